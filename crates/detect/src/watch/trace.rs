//! What becomes of a few rules, written down packet by packet (`margay rules explain`).
//!
//! Of each rule a [`RuleTrace`] keeps how often what was the reason that it did not match, the first looks for each reason, the
//! first ones that matched, and the one that got furthest. All of these are few, however long the capture is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use margay_app::{AppProto, protocol};
use margay_flow::{Direction, FlowAction};
use margay_packet::{PacketSource, Time};
use margay_rules::ast::{BufferCheck, BufferChecks, Check, FileCheck, Rule};

use super::describe::{self, buffer_check, literal, transformed};
use super::hints::{self, longest_beginning, tenths};
use super::{At, Came, End, Fate, Look, OpSeen, Searched, StepCame, Watch};
use crate::checks::CheckInput;
use crate::detect::Detect;
use crate::group::{Needs, Source, Trigger};
use crate::header::{Misfit, PacketKey};
use crate::input::Input;
use crate::inspect::{CompiledBuffer, Op, own_checks};
use crate::kind::RuleKind;
use crate::mpm::Pattern;
use crate::prefilter::Literal;
use crate::rule::CompiledRule;
use crate::tx::{FileTest, Plan, SlotSource, Step, TxTrigger, View, What};

/// Looks that are kept for one reason, and of matches.
const KEPT: usize = 3;
/// Most reasons that are told apart.
const REASONS_MAX: usize = 256;
/// Bytes of an excerpt, and how many of them come before what it is about.
const EXCERPT: (usize, usize) = (64, 16);

/// A packet, as its number and ends tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRef {
    /// The frame's number in the capture, from 1.
    pub number: u64,
    /// When it was captured.
    pub time: Time,
    /// Source address.
    pub src: IpAddr,
    /// Source port; 0 where there is none.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port; 0 where there is none.
    pub dport: u16,
    /// IP protocol number; 0 where it is no IP.
    pub proto: u8,
    /// Number of its flow, where it has one.
    pub flow: Option<u64>,
    /// Its direction there.
    pub dir: Option<Direction>,
    /// The engine made it up to have the rest of a stream inspected; number and time are those of the packet before.
    pub made_up: bool,
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineCame {
    /// It holds.
    Held,
    /// It held with an earlier look, which is remembered.
    HeldBefore,
    /// It does not hold yet, and may.
    NotYet,
    /// It does not hold.
    Failed,
}

impl LineCame {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            LineCame::Held => "held",
            LineCame::HeldBefore => "held_before",
            LineCame::NotYet => "not_yet",
            LineCame::Failed => "failed",
        }
    }
}

/// Bytes of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Size of the buffer.
    pub size: usize,
    /// Where in the buffer the excerpt begins.
    pub offset: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What of the buffer it is about: from and to, in the buffer.
    pub mark: (usize, usize),
}

impl Excerpt {
    fn of(data: &[u8], mark: (usize, usize)) -> Excerpt {
        let offset = mark.0.min(data.len()).saturating_sub(EXCERPT.1);
        let end = (offset + EXCERPT.0).min(data.len());
        Excerpt { size: data.len(), offset, bytes: data.get(offset..end).unwrap_or(&[]).to_vec(), mark }
    }
}

/// One check, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The check, as the rule writes it.
    pub check: String,
    /// What became of it.
    pub came: LineCame,
    /// What it looked at: a buffer, or nothing for checks of packet and flow.
    pub place: String,
    /// What there was.
    pub detail: String,
    /// The bytes.
    pub excerpt: Option<Excerpt>,
}

impl Line {
    /// Of a script: as the rule writes it, and whether it speaks for a match.
    pub(crate) fn of_script(asked: &str, held: bool) -> Line {
        let (came, detail) = match held {
            true => (LineCame::Held, "the script matches"),
            false => (LineCame::Failed, "the script does not match"),
        };
        Line::new(asked, came, "", detail)
    }

    fn new(check: impl Into<String>, came: LineCame, place: impl Into<String>, detail: impl Into<String>) -> Line {
        Line { check: check.into(), came, place: place.into(), detail: detail.into(), excerpt: None }
    }
}

/// One look at the rule.
#[derive(Debug, Clone)]
pub struct LookReport {
    /// With which packet.
    pub packet: PacketRef,
    /// In what: the packet, a transaction, a frame.
    pub subject: String,
    /// The checks, in the order in which they were looked at.
    pub lines: Vec<Line>,
    /// How far it got, to compare with others.
    pub depth: u32,
    /// Of a look that did not match the check that got furthest, by its place in `lines`.
    pub failing: Option<usize>,
}

/// What kind of reason it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The packet does not fit the rule's header.
    Header,
    /// The packet or transaction was not inspected, or not for this rule.
    NotInspected,
    /// The rule's fast pattern is not there, or the packet has not what the rule needs.
    Prefilter,
    /// A check does not hold.
    Check,
    /// All that was there held; something is still to come.
    Waiting,
}

impl ReasonKind {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ReasonKind::Header => "header",
            ReasonKind::NotInspected => "not_inspected",
            ReasonKind::Prefilter => "prefilter",
            ReasonKind::Check => "check",
            ReasonKind::Waiting => "waiting",
        }
    }
}

/// Why the rule did not match, and how often.
#[derive(Debug, Clone)]
pub struct Reason {
    /// What kind of reason it is.
    pub kind: ReasonKind,
    /// In words.
    pub text: String,
    /// How often.
    pub count: u64,
    /// The first times.
    pub first: Vec<LookReport>,
}

/// What matches came to.
#[derive(Debug, Clone)]
pub struct FateCount {
    /// In words.
    pub text: String,
    /// Whether an alert was written.
    pub alert: bool,
    /// How often.
    pub count: u64,
    /// With which packets first.
    pub first: Vec<PacketRef>,
}

/// What became of one rule.
#[derive(Debug)]
pub struct RuleTrace {
    /// Its place in [`Detect::rules`].
    pub rule: u32,
    /// Packets inspected, those that the engine made up included.
    pub packets: u64,
    /// Looks at the rule's checks.
    pub looks: u64,
    /// How many of them were matches.
    pub matched: u64,
    /// The first matches.
    pub matches: Vec<LookReport>,
    /// Why it did not match, the most frequent reason first once sorted by the reader; in order of appearance here.
    pub reasons: Vec<Reason>,
    /// Of what did not match the look that got furthest.
    pub nearest: Option<LookReport>,
    /// What the matches came to.
    pub fates: Vec<FateCount>,
    /// The pattern that makes it a candidate, and in what; `None` where there is none.
    pub pattern: Option<String>,
    own: Own,
    work: Work,
}

/// What is known of the rule beforehand.
#[derive(Debug)]
struct Own {
    /// By the address of their compiled form: buffers.
    buffers: HashMap<usize, Buffer>,
    trigger: Way,
}

/// A buffer of the rule.
#[derive(Debug, Clone)]
struct Buffer {
    name: String,
    checks: Vec<BufferCheck>,
}

/// How the rule becomes a candidate.
#[derive(Debug)]
enum Way {
    /// By a pattern in the packet.
    Pattern(Vec<Source>, Literal),
    /// By an expression in the packet, where the matcher can look for it.
    Regex,
    /// With what a packet has.
    Needs(Needs),
    /// By the plans of its transactions.
    Transactions,
    Frames(Option<Literal>),
    IpOnly,
}

/// What is going on with the packet at hand.
#[derive(Debug, Default)]
struct Work {
    misfit: Option<Misfit>,
    /// Whether a look at the rule took place with this packet, or the reason why not is told already.
    told: bool,
    /// What the pattern was looked for in: the place, and whether it was there.
    searches: Vec<(Line, u32)>,
    /// What the checks of packet and flow say, where nobody looked at them; once it was asked for.
    quick: Option<Vec<Line>>,
    /// The transaction that is looked at, and whether the rule was.
    transaction: Option<(String, bool)>,
    look: Option<(Look, Current)>,
}

/// A look that is going on.
#[derive(Debug, Default)]
struct Current {
    lines: Vec<Line>,
    /// Lines that held before the buffer at hand.
    base: u32,
    best: u32,
    /// The line that failed and got furthest.
    failing: Option<usize>,
    place: (String, Vec<Line>),
    path: Vec<Seen>,
    failed: Option<(u32, Line, u32)>,
    /// Several values of one buffer, or files: what got furthest is kept until the step is over.
    values: Vec<(Vec<Line>, u32)>,
    collects: bool,
}

/// A check of bytes that held.
#[derive(Debug, Clone)]
struct Seen {
    order: u32,
    place: (usize, Option<usize>),
    from: usize,
    to: usize,
    value: Option<u64>,
}

/// Writes down what becomes of some rules.
#[derive(Debug)]
pub(crate) struct Tracer {
    detect: Arc<Detect>,
    traces: Vec<RuleTrace>,
    /// The trace of the rule that is looked at.
    active: Option<usize>,
    /// What is looked at does not count (the same bytes once more).
    muted: bool,
    packet: Option<PacketRef>,
    app: (AppProto, bool),
    first: bool,
}

fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of) as usize
}

impl Own {
    fn new(detect: &Detect, number: u32) -> Option<Own> {
        let (rule, compiled) = (detect.rules().get(number as usize)?, detect.compiled.get(number as usize)?);
        let mut buffers = HashMap::new();
        let mut add = |c: &CompiledBuffer, b: &BufferChecks| {
            let name = transformed(&b.buffer, &b.transforms);
            buffers.insert(address(c), Buffer { name, checks: own_checks(&b.checks) });
        };
        let of_packet = || rule.buffers.iter().filter(|b| !b.app);
        let payloads = of_packet().filter(|b| crate::kind::is_payload(&b.buffer));
        compiled.payload.iter().zip(payloads).for_each(|(c, b)| add(&c.checks, b));
        let headers = of_packet().filter(|b| !crate::kind::is_payload(&b.buffer));
        compiled.headers.iter().zip(headers).for_each(|(c, b)| add(&c.1.checks, b));
        if let Some(f) = &compiled.frame {
            f.checks.iter().zip(rule.buffers.iter().filter(|b| b.app)).for_each(|(c, b)| add(&c.checks, b));
        }
        if let Some(tx) = &compiled.tx {
            let with_checks = rule.buffers.iter().filter(|b| b.app && !b.checks.is_empty());
            let literals = rule.checks.iter().filter_map(file_literal);
            let all = with_checks.cloned().chain(literals);
            tx.checks.iter().zip(all).for_each(|(c, b)| add(c, &b));
        }
        let trigger = match compiled.kind {
            _ if compiled.frame.is_some() => Way::Frames(crate::frame::pattern_of(rule)),
            RuleKind::AppTransaction => Way::Transactions,
            RuleKind::IpOnly => Way::IpOnly,
            _ => match compiled.trigger(rule) {
                Trigger::Pattern(sources, l) => Way::Pattern(sources, l),
                Trigger::Regex(..) => Way::Regex,
                Trigger::Always(quick) => Way::Needs(quick.needs),
            },
        };
        Some(Own { buffers, trigger })
    }
}

/// The checks of a file's name or magic that keywords other than buffers ask for, as [`crate::tx`] compiles them.
fn file_literal(c: &Check) -> Option<BufferChecks> {
    let (buffer, text, negated) = match c {
        Check::File(FileCheck::Name { text, negated }) => ("file.name", text.clone(), *negated),
        Check::File(FileCheck::Extension { text, negated }) => {
            ("file.name", [b".", text.as_slice()].concat(), *negated)
        }
        Check::File(FileCheck::Magic { text, negated }) => ("file.magic", text.clone(), *negated),
        _ => return None,
    };
    let content = margay_rules::ast::Content { bytes: text, negated, nocase: true, ..Default::default() };
    Some(BufferChecks {
        buffer: buffer.into(),
        app: true,
        side: None,
        transforms: Vec::new(),
        checks: vec![BufferCheck::Content(content)],
        absent: None,
    })
}

fn pattern_text(p: &Pattern) -> String {
    format!("\"{}\"{}", literal(&p.bytes), if p.nocase { " in any case" } else { "" })
}

fn source_name(s: Source) -> String {
    match s {
        Source::Payload => "the packet's payload".into(),
        Source::Stream => "the stream".into(),
        Source::Header(h) => crate::buffer::PacketBuffer::from_index(h).map_or("a header", |b| b.name()).to_owned(),
    }
}

impl RuleTrace {
    fn new(detect: &Detect, number: u32) -> Option<RuleTrace> {
        let own = Own::new(detect, number)?;
        let pattern = match &own.trigger {
            Way::Pattern(sources, p) => {
                let places: Vec<String> = sources.iter().map(|s| source_name(*s)).collect();
                Some(format!("{} in {}", pattern_text(&p.pattern), places.join(" or ")))
            }
            Way::Frames(Some(p)) => Some(format!("{} in the frame", pattern_text(&p.pattern))),
            Way::Transactions => detect.compiled.get(number as usize).and_then(|c| {
                c.tx.as_ref()?.plans.iter().find_map(|p| match &p.trigger {
                    TxTrigger::Pattern(slot, Literal { pattern, .. }) => {
                        let group = detect.txs.get(p.proto, p.dir)?;
                        let slot = group.slots.get(usize::from(*slot))?;
                        Some(format!("{} in {}", pattern_text(pattern), slot_name(p.proto, slot.source)))
                    }
                    _ => None,
                })
            }),
            _ => None,
        };
        Some(RuleTrace {
            rule: number,
            packets: 0,
            looks: 0,
            matched: 0,
            matches: Vec::new(),
            reasons: Vec::new(),
            nearest: None,
            fates: Vec::new(),
            pattern,
            own,
            work: Work::default(),
        })
    }

    fn reason(&mut self, kind: ReasonKind, text: String, look: LookReport) {
        let furthest = self.nearest.as_ref().is_none_or(|n| look.depth > n.depth);
        if furthest && matches!(kind, ReasonKind::Check | ReasonKind::Prefilter | ReasonKind::Waiting) {
            self.nearest = Some(look.clone());
        }
        let full = self.reasons.len() >= REASONS_MAX;
        match self.reasons.iter_mut().find(|r| r.kind == kind && r.text == text) {
            Some(r) => {
                r.count += 1;
                if r.first.len() < KEPT {
                    r.first.push(look);
                }
            }
            None if !full => self.reasons.push(Reason { kind, text, count: 1, first: vec![look] }),
            None => {
                let text = "other reasons".to_owned();
                match self.reasons.last_mut() {
                    Some(r) if r.text == text => r.count += 1,
                    _ => self.reasons.push(Reason { kind, text, count: 1, first: Vec::new() }),
                }
            }
        }
    }
}

fn slot_name(proto: AppProto, source: SlotSource) -> String {
    match source {
        SlotSource::Buffer(id) => {
            let def = protocol(proto).and_then(|p| p.buffers.iter().find(|b| b.id == id));
            def.map_or("a buffer", |b| b.name).to_owned()
        }
        SlotSource::FileData => "file.data".into(),
        SlotSource::FileName => "file.name".into(),
        SlotSource::FileMagic => "file.magic".into(),
    }
}

fn state_name(proto: AppProto, dir: Direction, progress: u8) -> &'static str {
    let states = protocol(proto).map(|p| p.states[dir.index()]);
    states.and_then(|s| s.get(usize::from(progress)).copied()).unwrap_or("?")
}

const fn side(dir: Direction) -> &'static str {
    match dir {
        Direction::ToServer => "to the server",
        Direction::ToClient => "to the client",
    }
}

impl Current {
    /// Ends what was looked at in one place: what held and what failed.
    fn commit(&mut self, lines: Vec<Line>, partial: u32) {
        let held = lines.iter().filter(|l| matches!(l.came, LineCame::Held | LineCame::HeldBefore)).count() as u32;
        let depth = (self.base + held) * 10 + partial;
        let failed = lines.iter().position(|l| matches!(l.came, LineCame::Failed | LineCame::NotYet));
        match failed {
            None => self.base += held,
            Some(at) if self.failing.is_none() || depth > self.best => self.failing = Some(self.lines.len() + at),
            Some(_) => {}
        }
        self.best = self.best.max(depth);
        self.lines.extend(lines);
    }

    /// Of several values the one that got furthest.
    fn settle(&mut self) -> bool {
        self.collects = false;
        let values = std::mem::take(&mut self.values);
        let others = values.len().saturating_sub(1);
        let held = |l: &[Line]| l.iter().filter(|l| l.came == LineCame::Held).count();
        let all = |l: &[Line]| l.iter().all(|l| l.came == LineCame::Held);
        let rank = |v: &(Vec<Line>, u32)| (all(&v.0), held(&v.0) as u32 * 10 + v.1);
        let Some((mut lines, partial)) = values.into_iter().reduce(|a, b| if rank(&b) > rank(&a) { b } else { a })
        else {
            return false;
        };
        if others > 0
            && let Some(l) = lines.last_mut()
        {
            l.detail += &format!(" (the best of {} values)", others + 1);
        }
        self.commit(lines, partial);
        true
    }
}

impl Tracer {
    /// For these rules, by number.
    pub(crate) fn new(detect: &Arc<Detect>, rules: &[u32]) -> Tracer {
        Tracer {
            traces: rules.iter().filter_map(|&r| RuleTrace::new(detect, r)).collect(),
            detect: Arc::clone(detect),
            active: None,
            muted: false,
            packet: None,
            app: (AppProto::Unknown, false),
            first: false,
        }
    }

    pub(crate) fn traces(&self) -> &[RuleTrace] {
        &self.traces
    }

    fn packet_ref(input: &Input<'_>) -> PacketRef {
        let p = input.packet;
        PacketRef {
            number: p.number,
            time: p.time,
            src: p.src,
            sport: p.sport,
            dst: p.dst,
            dport: p.dport,
            proto: p.proto,
            flow: input.flow.as_ref().map(|f| f.id),
            dir: input.dir,
            made_up: matches!(p.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush),
        }
    }

    /// The look at hand, where the rule is one of those explained.
    fn current(&mut self) -> Option<&mut Current> {
        let t = self.traces.get_mut(self.active.filter(|_| !self.muted)?)?;
        t.work.look.as_mut().map(|l| &mut l.1)
    }

    fn subject(look: &Look) -> String {
        match *look {
            Look::Packet => "packet".into(),
            Look::Transaction { proto, dir, id, progress, complete } => format!(
                "transaction {id} of {}, {}, in state {}{}",
                proto.rule_name(),
                side(dir),
                state_name(proto, dir, progress),
                if complete { " (complete)" } else { "" }
            ),
            Look::Frame { proto, kind, id } => {
                format!("frame {id} ({}) of {}", frame_name(proto, kind), proto.rule_name())
            }
        }
    }

    /// Takes what checks of packet and flow would have said.
    fn take_quick(&mut self) {
        let Some(t) = self.active.take().and_then(|a| self.traces.get_mut(a)) else { return };
        if let (Some(quick), Some((_, current))) = (&mut t.work.quick, t.work.look.take()) {
            *quick = current.lines;
        }
    }

    /// Says of every rule that was not looked at with this packet why.
    fn explain_silence(&mut self) {
        let Some(packet) = self.packet else { return };
        for t in &mut self.traces {
            close_transaction(t, packet);
            if t.work.told {
                continue;
            }
            let rule = self.detect.rules().get(t.rule as usize);
            let report = |lines: Vec<Line>, depth| {
                let failing = lines.iter().position(|l| l.came == LineCame::Failed);
                LookReport { packet, subject: "packet".into(), lines, depth, failing }
            };
            if let Some(m) = t.work.misfit {
                let text = rule.map_or(String::new(), |r| misfit_text(m, r));
                t.reason(ReasonKind::Header, text, report(Vec::new(), m as u32));
                continue;
            }
            let searches = std::mem::take(&mut t.work.searches);
            let quick = t.work.quick.take().unwrap_or_default();
            let silent = |text: &str| (ReasonKind::NotInspected, text.to_owned());
            let (kind, text) = match &t.own.trigger {
                Way::IpOnly => silent(
                    "rules on addresses alone are looked at once for each direction of a flow, not with this packet",
                ),
                Way::Transactions if !self.app.1 => {
                    silent("the packet's flow has no transactions (its protocol is not known, or has none)")
                }
                Way::Transactions => (
                    ReasonKind::NotInspected,
                    format!(
                        "no transaction that this rule looks at changed with the packet (the flow's protocol is {})",
                        self.app.0.rule_name()
                    ),
                ),
                Way::Frames(Some(p)) if !searches.is_empty() => (
                    ReasonKind::Prefilter,
                    format!("the fast pattern {} is not in the frame", pattern_text(&p.pattern)),
                ),
                Way::Frames(_) => silent("no frame that this rule looks at was due with the packet"),
                Way::Needs(_) | Way::Regex if quick.iter().any(|l| l.came == LineCame::Failed) => {
                    let failed = quick.iter().find(|l| l.came == LineCame::Failed).map_or("", |l| l.check.as_str());
                    let text = format!("{failed} does not hold");
                    t.reason(ReasonKind::Check, text, report(quick.clone(), 1000 + quick.len() as u32 * 10 - 10));
                    continue;
                }
                Way::Regex => (
                    ReasonKind::Prefilter,
                    "the expression of its pcre matches nowhere in the payload or the stream".to_owned(),
                ),
                Way::Needs(needs) => {
                    let asked: Vec<&str> = needs.names().collect();
                    let text = format!("the packet has not all that it must have: {}", asked.join(", "));
                    (ReasonKind::Prefilter, text)
                }
                Way::Pattern(..) if searches.is_empty() => {
                    silent("there is nothing to look for the fast pattern in: no payload, and no stream data is due")
                }
                Way::Pattern(_, p) => {
                    let places: Vec<&str> = searches.iter().map(|s| s.0.place.as_str()).collect();
                    (
                        ReasonKind::Prefilter,
                        format!("the fast pattern {} is not in {}", pattern_text(&p.pattern), places.join(" or ")),
                    )
                }
            };
            let depth = 100 + searches.iter().map(|s| s.1).max().unwrap_or(0);
            let depth = if kind == ReasonKind::Prefilter { depth } else { 50 };
            t.reason(kind, text, report(searches.into_iter().map(|s| s.0).collect(), depth));
        }
        self.packet = None;
    }
}

/// A transaction was looked at, and the rule was not.
fn close_transaction(t: &mut RuleTrace, packet: PacketRef) {
    let Some((subject, looked)) = t.work.transaction.take() else { return };
    let searches = std::mem::take(&mut t.work.searches);
    if looked {
        return;
    }
    t.work.told = true;
    let found = searches.iter().any(|s| s.0.came == LineCame::Held);
    let (kind, text) = match searches.last() {
        _ if found => (ReasonKind::NotInspected, "the rule is done with the transaction: it matched before, or cannot match any more".to_owned()),
        Some((l, _)) if l.detail == MISSING => {
            (ReasonKind::Prefilter, format!("{} is not there: the transaction has no {}", l.check, l.place))
        }
        Some((l, _)) => (ReasonKind::Prefilter, format!("{} is not in {}", l.check, l.place)),
        None => (
            ReasonKind::NotInspected,
            "nothing of the transaction that would make the rule a candidate is new: it was looked at before, or is not there yet".to_owned(),
        ),
    };
    let depth = if kind == ReasonKind::Prefilter { 100 + searches.iter().map(|s| s.1).max().unwrap_or(0) } else { 50 };
    let lines: Vec<Line> = searches.into_iter().map(|s| s.0).collect();
    let failing = lines.iter().position(|l| l.came == LineCame::Failed);
    t.reason(kind, text, LookReport { packet, subject, lines, depth, failing });
}

fn frame_name(proto: AppProto, kind: u8) -> &'static str {
    protocol(proto).and_then(|p| p.frames.get(usize::from(kind)).copied()).unwrap_or("stream")
}

/// What of the rule's header a packet does not fit.
fn misfit_text(m: Misfit, rule: &Rule) -> String {
    let ports = |p: &margay_rules::ast::PortSet| {
        let list: Vec<String> =
            p.ranges.iter().take(8).map(|&(a, b)| if a == b { a.to_string() } else { format!("{a}:{b}") }).collect();
        format!("{}{}", list.join(","), if p.ranges.len() > 8 { ",…" } else { "" })
    };
    match m {
        Misfit::Transport | Misfit::Family => {
            let word = rule.text.split_whitespace().nth(1).unwrap_or("another");
            format!("the packet is not of the rule's protocol ({word})")
        }
        Misfit::Direction => "the packet goes the other way than flow asks".into(),
        Misfit::NoPorts => "the rule names ports, and the packet has none".into(),
        Misfit::DestinationPort => format!("the destination port is not {}", ports(&rule.dport)),
        Misfit::SourcePort => format!("the source port is not {}", ports(&rule.sport)),
        Misfit::SourceAddress => "the source address is not one of the rule's".into(),
        Misfit::DestinationAddress => "the destination address is not one of the rule's".into(),
    }
}

/// What is said of a buffer that is not in the transaction.
const MISSING: &str = "there is no such buffer in the transaction";

/// What is said of a pattern that was looked for; and how much of it was there.
fn search_line(l: &Literal, place: String, data: Option<&[u8]>) -> (Line, u32) {
    let p = &l.pattern;
    let check = format!("the fast pattern {}", pattern_text(p));
    let Some(data) = data else { return (Line::new(check, LineCame::Failed, place, MISSING), 0) };
    let place_of_it = (0..data.len()).find(|&start| l.is_at(data, start));
    let (at, len) = match place_of_it {
        Some(at) => (at, p.bytes.len()),
        None => longest_beginning(&p.bytes, data, p.nocase),
    };
    let found = place_of_it.is_some();
    if !found && !p.nocase && len < p.bytes.len() {
        let (at, len) = longest_beginning(&p.bytes, data, true);
        if len == p.bytes.len() {
            let detail =
                format!("not in the {} bytes; in other case it is at byte {at}: nocase would find it", data.len());
            let mut line = Line::new(check, LineCame::Failed, place, detail);
            line.excerpt = Some(Excerpt::of(data, (at, at + len)));
            return (line, 10);
        }
    }
    let detail = match len {
        _ if found => format!("at byte {at} of {}", data.len()),
        n if n == p.bytes.len() => {
            let end = l.end.map_or("the end".to_owned(), |e| format!("byte {}", e.saturating_sub(1)));
            format!("it is at byte {at}; the rule wants it between byte {} and {end}", l.offset)
        }
        0 | 1 => format!("not in the {} bytes", data.len()),
        _ => format!("not in the {} bytes; its first {len} of {} are at byte {at}", data.len(), p.bytes.len()),
    };
    let mut line = Line::new(check, if found { LineCame::Held } else { LineCame::Failed }, place, detail);
    if !data.is_empty() {
        line.excerpt = Some(Excerpt::of(data, (at, at + len)));
    }
    (line, tenths(len, p.bytes.len()) + 1)
}

impl Watch for Tracer {
    const ON: bool = true;
    const CHECKS: bool = true;

    fn packet(&mut self, input: &Input<'_>, key: &PacketKey, first: bool) {
        self.packet = Some(Self::packet_ref(input));
        self.app = (input.app.flow, input.txs.as_ref().is_some_and(|t| !t.is_empty()));
        self.first = first;
        for t in &mut self.traces {
            t.packets += 1;
            let misfit =
                self.detect.compiled.get(t.rule as usize).and_then(|r| r.header.misfit(key, &self.detect.sets));
            t.work = Work { misfit, ..Work::default() };
        }
    }

    fn left_out(&mut self, input: &Input<'_>) {
        let packet = Self::packet_ref(input);
        let text = match input.flow.as_ref().map(|f| f.action) {
            Some(FlowAction::Drop) => "the packet's flow is dropped: it is not inspected",
            _ => "a pass rule let the packet's flow pass: it is not inspected",
        };
        for t in &mut self.traces {
            t.packets += 1;
            let look = LookReport { packet, subject: "packet".into(), lines: Vec::new(), depth: 0, failing: None };
            t.reason(ReasonKind::NotInspected, text.to_owned(), look);
        }
    }

    fn silent(&mut self) -> Option<u32> {
        self.take_quick();
        let is = |t: &RuleTrace| {
            let waits = matches!(t.own.trigger, Way::Needs(_) | Way::Regex);
            waits && !t.work.told && t.work.misfit.is_none() && t.work.quick.is_none()
        };
        let at = self.traces.iter().position(is)?;
        let t = self.traces.get_mut(at)?;
        t.work.quick = Some(Vec::new());
        t.work.look = Some((Look::Packet, Current::default()));
        self.active = Some(at);
        Some(t.rule)
    }

    fn packet_done(&mut self) {
        self.explain_silence();
    }

    fn searched(&mut self, place: Searched<'_>, data: Option<&[u8]>) {
        for t in &mut self.traces {
            let compiled = self.detect.compiled.get(t.rule as usize);
            let line = match (place, &t.own.trigger) {
                // Where there are no streams, what is wanted of one is looked for in the payload.
                (Searched::Packet(s), Way::Pattern(sources, p))
                    if sources.contains(&s) || (s == Source::Payload && self.packet.is_some_and(|p| p.proto != 6)) =>
                {
                    search_line(p, source_name(s), data)
                }
                (Searched::Slot(proto, dir, n, slot), Way::Transactions) => {
                    let plan = compiled.and_then(|c| c.tx.as_ref()?.plan(proto, dir));
                    match plan.map(|p| &p.trigger) {
                        Some(TxTrigger::Pattern(own, p)) if *own == n => {
                            search_line(p, slot_name(proto, slot.source), data)
                        }
                        _ => continue,
                    }
                }
                (Searched::Frame(proto, kind), Way::Frames(Some(p))) => {
                    search_line(p, format!("frame {}", frame_name(proto, kind)), data)
                }
                _ => continue,
            };
            // Both groups of a packet are searched: the same place twice is told once.
            if !t.work.searches.iter().any(|s| s.0 == line.0) && t.work.searches.len() < 16 {
                t.work.searches.push(line);
            }
        }
    }

    fn transaction(&mut self, proto: AppProto, view: &View<'_>) {
        let Some(packet) = self.packet else { return };
        for t in &mut self.traces {
            close_transaction(t, packet);
            t.work.searches.clear();
            let compiled = self.detect.compiled.get(t.rule as usize);
            let plan = compiled.and_then(|c| c.tx.as_ref()?.plan(proto, view.dir));
            if plan.is_some() && t.work.misfit.is_none() {
                let look = Look::Transaction {
                    proto,
                    dir: view.dir,
                    id: view.tx.base().id,
                    progress: view.progress,
                    complete: view.complete,
                };
                t.work.transaction = Some((Self::subject(&look), false));
            }
        }
    }

    fn begin(&mut self, rule: u32, look: Look) {
        self.active = self.traces.iter().position(|t| t.rule == rule);
        self.muted = false;
        let Some(t) = self.active.and_then(|a| self.traces.get_mut(a)) else { return };
        if let Some(tx) = &mut t.work.transaction {
            tx.1 = true;
        }
        if t.work.look.is_none() {
            let mut current = Current::default();
            let found = t.work.searches.iter().filter(|s| s.0.came == LineCame::Held).map(|s| s.0.clone());
            current.lines = found.collect();
            t.work.look = Some((look, current));
        }
    }

    fn end(&mut self, rule: u32, end: End) {
        let Some(t) = self.active.take().and_then(|a| self.traces.get_mut(a)) else { return };
        let (Some((look, mut current)), Some(packet), true) = (t.work.look.take(), self.packet, t.rule == rule) else {
            return;
        };
        current.settle();
        t.work.told = true;
        t.looks += 1;
        let depth = 1000 + current.best.max(current.base * 10);
        let mut subject = Self::subject(&look);
        if end == End::HalfMatch {
            subject += "; this direction has all that the rule asks, the other one not yet";
        }
        let failing = current.failing.filter(|_| end != End::Match);
        let report = LookReport { packet, subject, lines: current.lines, depth, failing };
        if end == End::Match {
            t.matched += 1;
            if t.matches.len() < KEPT {
                t.matches.push(report);
            }
            return;
        }
        let furthest = report.failing.and_then(|at| report.lines.get(at));
        let telling = |came: LineCame| {
            furthest.filter(|l| l.came == came).or_else(|| report.lines.iter().rev().find(|l| l.came == came))
        };
        let text = |l: &Line| match l.place.is_empty() {
            true => format!("{} does not hold", l.check),
            false => format!("{} does not hold in {}", l.check, l.place.split(',').next().unwrap_or_default()),
        };
        let (kind, text) = match (end, telling(LineCame::Failed), telling(LineCame::NotYet)) {
            (End::HalfMatch, ..) => (ReasonKind::Waiting, "one direction has all, the other one not yet".into()),
            (End::Wait, _, Some(l)) => (ReasonKind::Waiting, format!("{} is still to come", l.check)),
            (End::Wait, Some(l), _) => (ReasonKind::Waiting, format!("{} may still hold", l.check)),
            (End::Wait, ..) => (ReasonKind::Waiting, "the transaction is not complete".into()),
            (_, Some(l), _) => (ReasonKind::Check, text(l)),
            (_, _, Some(l)) => (ReasonKind::Check, format!("{} never came", l.check)),
            _ => (ReasonKind::Check, "it does not match".into()),
        };
        t.reason(kind, text, report);
    }

    fn tell(&self, rule: &CompiledRule, input: &CheckInput<'_>, failed: Option<usize>) -> Vec<Line> {
        let Some(t) = self.active.and_then(|a| self.traces.get(a)) else { return Vec::new() };
        let Some(ast) = self.detect.rules().get(t.rule as usize) else { return Vec::new() };
        let upto = failed.map_or(rule.checks.len(), |f| f + 1);
        let mut lines = Vec::with_capacity(upto);
        for (n, c) in rule.checks.iter().take(upto).enumerate() {
            let (asked, found) = c.told(input, ast, self.detect.names());
            let came = if Some(n) == failed { LineCame::Failed } else { LineCame::Held };
            lines.push(Line::new(asked, came, "", found));
        }
        lines
    }

    fn told(&mut self, lines: Vec<Line>) {
        if let Some(c) = self.current() {
            c.commit(lines, 0);
        }
    }

    fn at(&mut self, place: At) {
        let Some(c) = self.current() else { return };
        let name = match place {
            At::Header(_) | At::Slot => String::new(),
            At::Payload => "the packet's payload".into(),
            At::Stream(offset) => format!("the stream, from byte {offset} on"),
            At::FileName(n) | At::FileMagic(n) => format!("file {n}"),
            At::Frame(offset) => format!("the frame, at byte {offset} of the stream"),
        };
        c.collects = matches!(place, At::Slot | At::FileName(_) | At::FileMagic(_));
        c.place.0 = name;
    }

    fn missing(&mut self, place: At, why: &'static str) {
        let Some(c) = self.current() else { return };
        let name = match place {
            At::Header(b) => b.name(),
            At::Stream(_) => "the stream",
            At::Frame(_) => "the frame",
            _ => "the packet's payload",
        };
        c.commit(vec![Line::new("checks of bytes", LineCame::Failed, name, why)], 0);
    }

    fn op(&mut self, buffer: &CompiledBuffer, op: &Op, seen: &OpSeen<'_>) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active) else { return };
        let (Some(own), Some(place)) = (t.own.buffers.get(&address(buffer)), buffer.place_of(op)) else { return };
        let Some(check) = own.check(place) else { return };
        let Some((_, c)) = &mut t.work.look else { return };
        // A check of base64_data comes after base64_decode began, which holds once all of them do.
        let order = match (place, seen.came) {
            ((n, Some(inner)), _) => n as u32 * 1024 + 1 + inner as u32,
            ((n, None), Came::Held(..)) if matches!(check, BufferCheck::Base64 { .. }) => n as u32 * 1024 + 1023,
            ((n, None), _) => n as u32 * 1024,
        };
        c.path.retain(|s| s.order < order);
        match seen.came {
            Came::Held(from, to) => {
                let variable = match check {
                    BufferCheck::ByteExtract(b) => Some(b.variable),
                    BufferCheck::ByteMath(b) => Some(b.result),
                    _ => None,
                };
                let value = variable.and_then(|v| seen.variables.get(usize::from(v)).copied());
                c.path.push(Seen { order, place, from, to, value });
            }
            Came::Failed(_) | Came::Limit => {
                let hint = hints::of(check, seen);
                let rank = |order: u32, tenths: u32| order * 16 + tenths;
                if c.failed.as_ref().is_none_or(|f| rank(order, hint.tenths) > rank(f.0, f.2)) {
                    let within = if place.1.is_some() { "base64_data" } else { "" };
                    let mut line = Line::new(buffer_check(check), LineCame::Failed, within, hint.text);
                    if !seen.data.is_empty() {
                        line.excerpt = Some(Excerpt::of(seen.data, hint.mark));
                    }
                    c.failed = Some((order, line, hint.tenths));
                    c.place.1 = held_lines(own, &c.path);
                }
            }
        }
    }

    fn buffer(&mut self, buffer: &CompiledBuffer, data: &[u8], matched: bool) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active) else { return };
        let Some(own) = t.own.buffers.get(&address(buffer)) else { return };
        let Some((_, c)) = &mut t.work.look else { return };
        let path = std::mem::take(&mut c.path);
        let failed = c.failed.take();
        let before = std::mem::take(&mut c.place.1);
        let place = match c.place.0.as_str() {
            "" => own.name.clone(),
            p if p.starts_with("file ") => format!("{} of {p}", own.name),
            p => p.to_owned(),
        };
        let (mut lines, partial) = match failed.filter(|_| !matched) {
            Some((_, line, partial)) => {
                let mut lines = before;
                lines.push(line);
                (lines, partial)
            }
            None => {
                let mut lines = held_lines(own, &path);
                let last = path.iter().rev().find(|s| s.place.1.is_none() && s.to > s.from);
                if let (Some(s), Some(l)) = (last.or(path.last()), lines.last_mut()) {
                    l.excerpt = (!data.is_empty()).then(|| Excerpt::of(data, (s.from, s.to)));
                }
                (lines, 0)
            }
        };
        for l in &mut lines {
            l.place = if l.place.is_empty() { place.clone() } else { format!("{} of {place}", l.place) };
        }
        match c.collects {
            true => {
                if c.values.len() < 64 {
                    c.values.push((lines, partial));
                }
            }
            false => c.commit(lines, partial),
        }
    }

    fn found_before(&mut self, before: bool) {
        self.muted = !self.muted;
        if before && let Some(c) = self.current() {
            let why = "it was found with an earlier packet already: what is new does not match by itself";
            c.commit(vec![Line::new("found first with this packet", LineCame::Failed, "the stream", why)], 0);
        }
    }

    fn step(&mut self, rule: u32, plan: &Plan, step: &Step, came: StepCame, view: &View<'_>) {
        let Some(active) = self.active.filter(|_| !self.muted) else { return };
        let Some(t) = self.traces.get_mut(active).filter(|t| t.rule == rule) else { return };
        let (detect, own) = (&self.detect, &t.own);
        let Some((_, c)) = &mut t.work.look else { return };
        let bytes = matches!(step.what, What::Buffer { .. } | What::Payload | What::File(_) | What::Absent { .. });
        if bytes && came != StepCame::HeldBefore && came != StepCame::NotReached {
            let told = c.settle();
            let whole = matches!(step.what, What::Buffer { .. } | What::Payload);
            if whole && (told || matches!(step.what, What::Payload)) {
                return;
            }
        }
        let (check, place, mut detail) = step_text(detect, own, t.rule, plan, step, view);
        let line_came = match came {
            StepCame::HeldBefore => LineCame::HeldBefore,
            StepCame::Held => LineCame::Held,
            StepCame::NotReached | StepCame::NotYet => LineCame::NotYet,
            StepCame::Failed => LineCame::Failed,
        };
        match came {
            StepCame::NotReached => {
                detail = format!(
                    "it is looked at from state {} on; the transaction is in {}",
                    state_name(plan.proto, plan.dir, step.progress),
                    state_name(plan.proto, plan.dir, view.progress)
                );
            }
            StepCame::HeldBefore => detail = "with an earlier packet".into(),
            _ => {}
        }
        c.commit(vec![Line::new(check, line_came, place, detail)], 0);
    }

    fn fate(&mut self, rule: u32, fate: Fate) {
        let by = |n: u32| self.detect.rules().get(n as usize).map_or(0, |r| r.sid);
        let (text, alert) = match fate {
            Fate::Alert => ("an alert was written".to_owned(), true),
            Fate::Writes(_) => {
                ("no alert: the rule writes none (noalert, pass, config, or flowbits:noalert)".into(), false)
            }
            Fate::Threshold(true) => ("no alert: its threshold has not been reached".into(), false),
            Fate::Threshold(false) => (
                "no alert: kept back by threshold, limit or suppress (the rule's, or of threshold.config)".into(),
                false,
            ),
            Fate::Overflow => ("no alert: the packet had too many already (packet-alert-max)".into(), false),
            Fate::Passed(n) => (format!("no alert: the pass rule {} comes before it", by(n)), false),
        };
        let packet = self.packet;
        let Some(t) = self.traces.iter_mut().find(|t| t.rule == rule) else { return };
        let at = match t.fates.iter().position(|f| f.text == text) {
            Some(at) => at,
            None if t.fates.len() < REASONS_MAX => {
                t.fates.push(FateCount { text, alert, count: 0, first: Vec::new() });
                t.fates.len() - 1
            }
            None => return,
        };
        if let Some(f) = t.fates.get_mut(at) {
            f.count += 1;
            if f.first.len() < KEPT {
                f.first.extend(packet);
            }
        }
    }
}

impl Buffer {
    /// The check at a place of the compiled form.
    fn check(&self, (outer, inner): (usize, Option<usize>)) -> Option<&BufferCheck> {
        match (self.checks.get(outer)?, inner) {
            (c, None) => Some(c),
            (BufferCheck::Base64 { data, .. }, Some(i)) => data.get(i),
            _ => None,
        }
    }
}

fn held_lines(own: &Buffer, path: &[Seen]) -> Vec<Line> {
    let line = |s: &Seen| {
        let check = own.check(s.place)?;
        let detail = match (s.value, s.to > s.from, check) {
            (Some(v), ..) => format!("the variable is {v}"),
            (_, true, BufferCheck::ByteJump(_)) => format!("on to byte {}", s.to),
            (_, true, _) if s.to == s.from + 1 => format!("at byte {}", s.from),
            (_, true, _) => format!("at bytes {} to {}", s.from, s.to - 1),
            _ => String::new(),
        };
        let within = if s.place.1.is_some() { "base64_data" } else { "" };
        Some(Line::new(buffer_check(check), LineCame::Held, within, detail))
    };
    path.iter().filter_map(line).collect()
}

/// A step that has no lines of its own: what it asks, of what, and what there is.
fn step_text(
    detect: &Detect,
    own: &Own,
    number: u32,
    plan: &Plan,
    step: &Step,
    view: &View<'_>,
) -> (String, String, String) {
    let slot = |n: u16| {
        view.group.slots.get(usize::from(n)).map_or("a buffer".to_owned(), |s| slot_name(plan.proto, s.source))
    };
    let checks_of = |n: u16| {
        let compiled = detect.compiled.get(number as usize).and_then(|c| c.tx.as_ref()?.checks.get(usize::from(n)));
        compiled.and_then(|c| own.buffers.get(&address(c)))
    };
    let p = protocol(plan.proto);
    match &step.what {
        What::Buffer { slot: s, check, .. } => {
            let name = checks_of(*check).map_or_else(|| slot(*s), |b| b.name.clone());
            let list = checks_of(*check).map(|b| b.checks.iter().map(buffer_check).collect::<Vec<_>>().join("; "));
            (list.unwrap_or_default(), name, MISSING.into())
        }
        What::Absent { slot: s, .. } => ("absent".into(), slot(*s), String::new()),
        What::Length { slot: s, value } => (format!("urilen:{}", describe::compare(value)), slot(*s), String::new()),
        What::Number { id, test, which, .. } => {
            let name = p.and_then(|p| p.numbers.iter().find(|n| n.id == *id)).map_or("number", |n| n.name);
            let there: Vec<String> =
                (0..16).map_while(|i| view.tx.number(*id, view.dir, i)).map(|v| v.to_string()).collect();
            let detail =
                if there.is_empty() { "there is none".to_owned() } else { format!("it is {}", there.join(", ")) };
            (format!("{name}:{}", describe::number_test(test, *which)), String::new(), detail)
        }
        What::Interface { id, test } => {
            let mut put_together = Vec::new();
            let mut there = Vec::new();
            for i in 0..16 {
                put_together.clear();
                let Some(found) = view.tx.buffer(*id, view.dir, i, &mut put_together) else { break };
                there.push(describe::interface(found.data));
            }
            let detail = if there.is_empty() { "it is a call of no interface".to_owned() } else { there.join(", ") };
            (describe::interface_test(test), String::new(), detail)
        }
        What::Event(e) => {
            let name = |e: u8| p.and_then(|p| p.events.get(usize::from(e)).copied()).unwrap_or("?");
            let there: Vec<&str> = view.tx.base().events.as_slice().iter().take(16).map(|&e| name(e)).collect();
            let detail = if there.is_empty() { "the transaction has no events".to_owned() } else { there.join(", ") };
            (format!("app-layer-event:{}.{}", plan.proto.rule_name(), name(*e)), String::new(), detail)
        }
        What::State { state, order } => {
            let sign = match order {
                std::cmp::Ordering::Less => "<",
                std::cmp::Ordering::Equal => "",
                std::cmp::Ordering::Greater => ">",
            };
            let asked = format!("app-layer-state:{sign}{}", state_name(plan.proto, plan.dir, *state));
            (asked, String::new(), format!("the transaction is in {}", state_name(plan.proto, plan.dir, view.progress)))
        }
        What::Reached => (
            format!("hook {}", state_name(plan.proto, plan.dir, step.progress)),
            String::new(),
            "the transaction has come to it".into(),
        ),
        What::Lua { number: n, .. } => {
            let rule = detect.rules.get(number as usize);
            let asked = rule.and_then(|r| crate::lua::nth(r, *n)).map_or_else(|| "lua".to_owned(), describe::script);
            (asked, String::new(), "the script does not match".into())
        }
        What::Payload => ("checks of payload".into(), "payload".into(), String::new()),
        What::Bit { name, set } => {
            let command = if *set { "isset" } else { "isnotset" };
            let bits = view.tx.base().bits.contains(name);
            let asked = format!("xbits:{command},{},track tx", detect.names().name(*name).unwrap_or("?"));
            (asked, String::new(), if bits { "it is set".into() } else { "it is not set".into() })
        }
        What::File(tests) => {
            let files: Vec<String> = view
                .tx
                .base()
                .files
                .of(view.dir)
                .take(8)
                .map(|f| {
                    let ended = if f.ended() { "" } else { ", still going on" };
                    format!("\"{}\" ({} bytes{ended})", literal(f.name()), f.size())
                })
                .collect();
            let asked: Vec<String> = tests
                .iter()
                .map(|t| match t {
                    FileTest::Name(_) => "name".into(),
                    FileTest::Magic(_) => "magic".into(),
                    FileTest::Hash { negated, .. } => {
                        format!("digest {}in the list", if *negated { "not " } else { "" })
                    }
                    FileTest::Size(c) => format!("filesize:{}", describe::compare(c)),
                })
                .collect();
            let detail = if files.is_empty() { "there is no file".to_owned() } else { files.join(", ") };
            (format!("one file ({})", asked.join(", ")), "files".into(), detail)
        }
    }
}
