//! A compiled rule: everything that is evaluated once the rule is a candidate.

use margay_rules::ast::{
    Action, ActionScope, AppProtoMode, BitOp, BufferCheck, BufferChecks, Check, Effect, Protocol, Rule, Side, Tag,
    Threshold, ThresholdKind,
};

use crate::buffer::PacketBuffer;
use crate::checks::{CheckEnv, CompiledCheck};
use crate::effect::CompiledEffect;
use crate::fast_pattern;
use crate::frame::{FrameBuilder, FrameRule};
use crate::group::{Needs, Quick, Source, Trigger};
use crate::head::Head;
use crate::header::{Header, SetsBuilder, transport};
use crate::inspect::{CompiledBuffer, InspectLimits};
use crate::kind::{self, RuleKind};
use crate::lua::RuleLua;
use crate::mpm::Regex;
use crate::prefilter::Literal;
use crate::refused::Refused;
use crate::transform::{CompiledTransforms, Inspection};
use crate::tx::{TxBuilder, TxRule};

/// A compiled rule. Its number is its place in the final order.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    pub(crate) header: Header,
    pub(crate) kind: RuleKind,
    pub(crate) action: Action,
    /// How far the action reaches, if the rule says so.
    pub(crate) scope: Option<ActionScope>,
    /// Whether a match writes an alert, subject to thresholds and the queue's size.
    pub(crate) writes: bool,
    /// Cheapest first.
    pub(crate) checks: Box<[CompiledCheck]>,
    /// Checks on payload or stream.
    pub(crate) payload: Box<[Inspection]>,
    /// Checks on headers.
    pub(crate) headers: Box<[(PacketBuffer, Inspection)]>,
    pub(crate) effects: Box<[CompiledEffect]>,
    /// Changes to flow bits.
    pub(crate) bits: ChangesBits,
    pub(crate) tags: Box<[Tag]>,
    /// Checks on transactions.
    pub(crate) tx: Option<Box<TxRule>>,
    /// Checks on frames.
    pub(crate) frame: Option<Box<FrameRule>>,
    /// Whether a search can find one of the rule's payload or stream contents.
    pub(crate) sought: bool,
    /// `flow:only_stream`: never inspects a packet's payload, not even outside the stream.
    pub(crate) stream_only: bool,
    /// The header names an application protocol, and no keyword inspects its transactions.
    pub(crate) of_protocol: bool,
    /// The rule needs the flow's protocol and nothing of a packet: it is inspected again when the protocol changes.
    pub(crate) of_change: bool,
    /// For a rule with only negated payload contents, the fast pattern: stream data that contains it excludes the packet.
    pub(crate) absent: Option<Box<Absent>>,
    /// Checks of scripts.
    pub(crate) lua: Option<Box<RuleLua>>,
}

/// Whether a rule has a positive payload or stream content, which a search can find.
fn is_sought(rule: &Rule) -> bool {
    let payload = rule.buffers.iter().filter(|b| kind::is_payload(&b.buffer) && !b.app);
    payload.flat_map(|b| &b.checks).any(|c| matches!(c, BufferCheck::Content(c) if !c.negated))
}

/// Whether a rule needs the flow's protocol, and otherwise only the flow's state and variables.
fn is_of_change(rule: &Rule) -> bool {
    let of_flow = |c: &Check| {
        let variable = matches!(c, Check::FlowBit { .. } | Check::FlowInt { .. });
        variable || matches!(c, Check::Flow(_) | Check::AppProto { .. })
    };
    let protocol = matches!(rule.protocol, Protocol::App(_));
    rule.buffers.is_empty()
        && rule.checks.iter().all(of_flow)
        && (protocol || rule.checks.iter().any(|c| matches!(c, Check::AppProto { .. })))
}

/// A negated content.
#[derive(Debug)]
pub(crate) struct Absent {
    bytes: Vec<u8>,
    nocase: bool,
}

impl Absent {
    fn of(rule: &Rule) -> Option<Box<Absent>> {
        let buffers = || rule.buffers.iter().filter(|b| kind::is_payload(&b.buffer) && b.transforms.is_empty());
        let contents = || {
            let checks = buffers().flat_map(|b| &b.checks);
            checks.filter_map(|c| if let BufferCheck::Content(c) = c { Some(c) } else { None })
        };
        if contents().any(|c| !c.negated) {
            return None;
        }
        // The fast pattern: of equally long contents, the first. A content with a place is not searched, as in Suricata.
        let sought = contents().rev().max_by_key(|c| (c.fast_pattern, c.bytes.len()))?;
        let placed = sought.offset.is_some() || sought.depth.is_some();
        let placed = placed || sought.distance.is_some() || sought.within.is_some();
        (!placed).then(|| Box::new(Absent { bytes: sought.bytes.clone(), nocase: sought.nocase }))
    }

    /// Whether `data` contains it.
    pub(crate) fn is_in(&self, data: &[u8]) -> bool {
        match self.nocase {
            true => data.windows(self.bytes.len().max(1)).any(|w| w.eq_ignore_ascii_case(&self.bytes)),
            false => memchr::memmem::find(data, &self.bytes).is_some(),
        }
    }
}

/// How a matching rule changes flow bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangesBits {
    /// It does not.
    No,
    /// It sets bits, which may be set already.
    Sets,
    /// It also clears bits.
    Any,
}

impl ChangesBits {
    fn of(rule: &Rule) -> ChangesBits {
        let ops =
            || rule.effects.iter().filter_map(|e| if let Effect::FlowBit { op, .. } = e { Some(*op) } else { None });
        match ops().next() {
            None => ChangesBits::No,
            Some(_) if ops().all(|op| op == BitOp::Set) => ChangesBits::Sets,
            Some(_) => ChangesBits::Any,
        }
    }
}

/// Whether a rule reads numbers of the payload in the byte order of DCERPC, which only its flows have.
fn takes_dce_order(rule: &Rule) -> bool {
    let payload = rule.buffers.iter().filter(|b| !b.app);
    payload.flat_map(|b| &b.checks).any(BufferCheck::is_dce)
}

/// The checks on packets and flows, cheapest first.
fn checks_of(rule: &Rule, of_tx: bool, env: &mut CheckEnv<'_>) -> Result<Vec<CompiledCheck>, Refused> {
    let mut checks = Vec::with_capacity(rule.checks.len() + 1);
    match &rule.protocol {
        // The parser that owns the transaction implies the protocol.
        Protocol::App(_) if of_tx => {}
        Protocol::App(name) => {
            let check = Check::AppProto { name: name.clone(), negated: false, mode: AppProtoMode::Final };
            checks.push(CompiledCheck::compile(&check, env)?);
        }
        _ => match rule.hook.as_deref() {
            None | Some("all") => {}
            Some("flow_start") => checks.push(CompiledCheck::FLOW_START),
            Some("pre_flow" | "pre_stream") if rule.firewall => {}
            Some("pre_flow") if kind::is_before_flow(rule) => kind::asks_of_flow(rule)?,
            Some(h) => return Err(Refused::Unsupported(format!("this build does not have the hook {h}"))),
        },
    }
    if !of_tx && !matches!(rule.protocol, Protocol::App(_)) && takes_dce_order(rule) {
        let check = Check::AppProto { name: "dcerpc".into(), negated: false, mode: AppProtoMode::Final };
        checks.push(CompiledCheck::compile(&check, env)?);
    }
    let elsewhere = |c: &Check| matches!(c, Check::Lua(_)) || (of_tx && kind::is_of_transaction(c));
    for c in rule.checks.iter().filter(|c| !elsewhere(c)) {
        checks.push(CompiledCheck::compile(c, env)?);
    }
    checks.sort_by_key(CompiledCheck::cost);
    Ok(checks)
}

/// The inspected buffers of packets.
#[derive(Default)]
struct Buffers {
    payload: Vec<Inspection>,
    headers: Vec<(PacketBuffer, Inspection)>,
}

impl Buffers {
    fn of(rule: &Rule, env: &mut CheckEnv<'_>, limits: &InspectLimits) -> Result<Buffers, Refused> {
        let mut all = Buffers::default();
        for b in rule.buffers.iter().filter(|b| !b.app) {
            if b.absent.is_some() {
                return Err(Refused::Unsupported(format!("absent is not possible for {}", b.buffer)));
            }
            let mut compiled = Inspection {
                transforms: CompiledTransforms::compile(&b.transforms, limits.pcre)?,
                checks: CompiledBuffer::compile(b, limits)?,
            };
            compiled.checks.resolve(&b.buffer, env.names, env.sets)?;
            if kind::is_payload(&b.buffer) {
                all.payload.push(compiled);
            } else if let Some(p) = PacketBuffer::from_name(&b.buffer) {
                all.headers.push((p, compiled));
            } else {
                return Err(Refused::Unsupported(format!("this build does not have the buffer {}", b.buffer)));
            }
        }
        Ok(all)
    }
}

/// What a match does besides the rule's action.
#[derive(Default)]
struct Acts {
    effects: Vec<CompiledEffect>,
    tags: Vec<Tag>,
    scope: Option<ActionScope>,
    also_alert: bool,
}

impl Acts {
    fn of(rule: &Rule, of_tx: bool, env: &mut CheckEnv<'_>) -> Result<Acts, Refused> {
        let mut acts = Acts::default();
        for e in &rule.effects {
            match e {
                Effect::Tag(t) => acts.tags.push(*t),
                Effect::Action { action: Action::Alert, .. } if rule.action != Action::Alert => acts.also_alert = true,
                // Firewall actions are in the firewall's own tables.
                Effect::Action { .. } if rule.firewall => {}
                // Handled before the flow is known.
                e if (rule.firewall || kind::is_before_flow(rule)) && kind::untracks(e) => {}
                Effect::Action { action, scope: s } if *action == rule.action => match s {
                    Some(ActionScope::Hook | ActionScope::Transaction) if !of_tx => {
                        return Err(Refused::Unsupported("an action for a hook or transaction".into()));
                    }
                    s => acts.scope = *s,
                },
                Effect::Action { .. } => {
                    return Err(Refused::Unsupported("two actions besides alert in one rule".into()));
                }
                e => acts.effects.extend(CompiledEffect::compile(e, env.names)?),
            }
        }
        Ok(acts)
    }
}

impl CompiledRule {
    /// Compiles `rule`.
    pub(crate) fn compile(
        rule: &Rule,
        number: usize,
        env: &mut CheckEnv<'_>,
        sets: &mut SetsBuilder,
        txs: &mut TxBuilder,
        frames: &mut FrameBuilder,
        limits: &InspectLimits,
    ) -> Result<CompiledRule, Refused> {
        if !rule.missing.is_empty() {
            return Err(Refused::Unsupported(format!("this build does not have {}", rule.missing.join(", "))));
        }
        let kind = match rule.firewall {
            true => kind::of_firewall(rule)?,
            false if kind::is_before_flow(rule) => RuleKind::Packet,
            false => kind::kind(rule),
        };
        let header = Header::compile(rule, sets)
            .ok_or_else(|| Refused::Error("too many distinct address or port lists in all rules".into()))?;
        let of_tx = kind == RuleKind::AppTransaction;
        let checks = checks_of(rule, of_tx, env)?;
        let Buffers { payload, headers } = Buffers::of(rule, env, limits)?;
        let Acts { effects, tags, scope, also_alert } = Acts::of(rule, of_tx, env)?;
        let number = u32::try_from(number).map_err(|_| Refused::Error("too many rules".into()))?;
        let (mut tx, mut frame) = (None, None);
        if rule.buffers.iter().any(kind::is_frame) {
            if rule.firewall {
                return Err(Refused::Error("firewall rules cannot inspect frames".into()));
            }
            frame = Some(Box::new(frames.compile(rule, number, &header, env, limits)?));
        } else if of_tx {
            tx = Some(Box::new(txs.compile(rule, number, &header, env, limits)?));
        }
        let only_stream = rule.checks.iter().any(|c| matches!(c, Check::Flow(f) if f.stream == Some(true)));
        let detection_filter = |t: &Threshold| t.kind == ThresholdKind::DetectionFilter;
        if rule.firewall && rule.thresholds.iter().any(detection_filter) {
            return Err(Refused::Error("a firewall rule cannot have detection_filter: it decides at once".into()));
        }
        let silent = rule.firewall || rule.noalert || matches!(rule.action, Action::Config);
        Ok(CompiledRule {
            of_protocol: !of_tx && matches!(rule.protocol, Protocol::App(_)),
            of_change: is_of_change(rule),
            lua: RuleLua::compile(rule, of_tx)?.map(Box::new),
            header,
            kind,
            action: rule.action,
            scope,
            writes: rule.force_alert || also_alert || !(silent || matches!(rule.action, Action::Pass | Action::Accept)),
            checks: checks.into_boxed_slice(),
            payload: payload.into_boxed_slice(),
            headers: headers.into_boxed_slice(),
            effects: effects.into_boxed_slice(),
            bits: ChangesBits::of(rule),
            tags: tags.into_boxed_slice(),
            tx,
            frame,
            absent: Absent::of(rule),
            sought: is_sought(rule),
            stream_only: only_stream,
        })
    }

    /// Whether the action holds for the whole flow.
    pub(crate) fn acts_on_flow(&self, in_stream: bool) -> bool {
        match self.scope {
            Some(ActionScope::Packet | ActionScope::Hook | ActionScope::Transaction) => false,
            Some(ActionScope::Flow) => true,
            _ => self.kind.acts_on_flow(in_stream),
        }
    }

    /// How `rule`, from which `self` was compiled, becomes a candidate.
    pub(crate) fn trigger(&self, rule: &Rule) -> Trigger {
        let prefilterable = |i: usize| rule.buffers.get(i).is_some_and(|b| b.transforms.is_empty());
        let quick = Quick::of(&rule.checks);
        if let Some(f) = fast_pattern::to_look_for(rule, &prefilterable, &|_| 0)
            && let Some(buffer) = rule.buffers.get(f.buffer)
            && let mut pattern = Literal::from(f)
            && pattern.is_useful()
        {
            if kind::is_payload(&buffer.buffer) {
                let sources = self.sources();
                if sources == [Source::Payload] {
                    pattern.longest = quick.payload_max();
                }
                return Trigger::Pattern(sources, pattern);
            }
            if let Some(h) = PacketBuffer::from_name(&buffer.buffer) {
                return Trigger::Pattern(vec![Source::Header(h.index())], pattern);
            }
        }
        let sources = self.sources();
        let head = match sources.as_slice() {
            [Source::Payload] => self.head(rule),
            _ => Head::ALL,
        };
        let bits = self.checks.iter().filter_map(CompiledCheck::bits).map(|(names, set)| (names.into(), set)).collect();
        let quick = Quick { needs: quick.needs.and(self.needs(rule)), bits, head, ..quick };
        match self.regex(rule) {
            Some(regex) => Trigger::Regex(sources, regex, quick),
            None => Trigger::Always(quick),
        }
    }

    /// The necessary conditions on the payload, for a rule that inspects nothing else.
    fn head(&self, rule: &Rule) -> Head {
        let plain = |b: &&BufferChecks| kind::is_payload(&b.buffer) && b.transforms.is_empty();
        let mut all = rule.buffers.iter().filter(plain).map(|b| Head::of(&b.checks));
        // All these buffers are the payload, so one condition is enough.
        all.find(|h| *h != Head::ALL).unwrap_or(Head::ALL)
    }

    /// The data in which a search looks for the rule's patterns.
    fn sources(&self) -> Vec<Source> {
        match self.kind {
            _ if self.header.transports & transport::TCP == 0 => vec![Source::Payload],
            RuleKind::Stream => vec![Source::Stream],
            RuleKind::PacketStream => vec![Source::Payload, Source::Stream],
            _ => vec![Source::Payload],
        }
    }

    /// An expression that the payload must match somewhere.
    fn regex(&self, rule: &Rule) -> Option<Regex> {
        let plain = rule.buffers.iter().filter(|b| kind::is_payload(&b.buffer) && b.transforms.is_empty());
        plain.flat_map(|b| &b.checks).find_map(|c| match c {
            // A relative expression begins anywhere: its anchor is not the start of the buffer.
            BufferCheck::Pcre(p) if !p.negated && !p.relative => Regex::new(&p.pattern, &p.options),
            _ => None,
        })
    }

    /// The needs of the rule: a packet without them cannot match.
    fn needs(&self, rule: &Rule) -> Needs {
        let mut needs = Needs::NOTHING;
        if !self.payload.is_empty() || self.lua.as_ref().is_some_and(|l| l.asks_data()) {
            needs = needs.and(Needs::DATA);
        }
        if self.kind == RuleKind::ProtocolDetection {
            // The first protocol of a flow that changed it: as a prefilter, the rule runs when that is found, not with the
            // packets after that.
            let original = |c: &Check| matches!(c, Check::AppProto { mode: AppProtoMode::Original, .. });
            let told = rule.prefilter.and_then(|n| rule.checks.get(n)).is_some_and(original);
            needs = needs.and(if told { Needs::PROTOCOL_TOLD } else { Needs::PROTOCOL });
        }
        if matches!(rule.protocol, Protocol::App(_)) {
            needs = needs.and(Needs::APP);
        }
        for c in &rule.checks {
            needs = needs.and(match c {
                Check::StreamEvent(_) => Needs::STREAM_EVENT,
                Check::DecodeEvent(_) => Needs::DECODE_EVENT,
                Check::Flow(f) if f.established => Needs::FLOW.and(Needs::ESTABLISHED),
                Check::Flow(f) if f.not_established || f.stateless || f.side == Some(Side::ToClient) => Needs::FLOW,
                Check::FlowBit { set: true, .. } => Needs::FLOW,
                _ => Needs::NOTHING,
            });
        }
        needs
    }
}
