//! The trace of one explained rule: its static facts and its current state.

use std::collections::HashMap;

use margay_app::{AppProto, protocol};
use margay_rules::FileBuffer;
use margay_rules::ast::{BufferCheck, BufferChecks, Check};

use super::Look;
use super::report::{FateCount, Line, LineCame, LookReport, PacketRef, Reason, ReasonKind};
use crate::describe::{literal, transformed};
use crate::detect::Detect;
use crate::group::{Needs, Source, Trigger};
use crate::header::Misfit;
use crate::inspect::{CompiledBuffer, own_checks};
use crate::kind::RuleKind;
use crate::mpm::Pattern;
use crate::prefilter::{Literal, digits_of};
use crate::tx::{SlotSource, TxTrigger};

/// Evaluations that are kept for one reason, and for matches.
pub(super) const KEPT: usize = 3;
/// Most distinct reasons.
pub(super) const REASONS_MAX: usize = 256;

/// What happened to one rule.
#[derive(Debug)]
pub struct RuleTrace {
    /// Its place in [`Detect::rules`].
    pub rule: u32,
    /// Inspected packets of the capture. The content of a tunnel or a fragmented datagram counts with the packet that
    /// carried it.
    pub packets: u64,
    /// Inspected pseudo packets, as at the end of a flow.
    pub made_up: u64,
    /// The number of the last inspected packet.
    pub(super) last: u64,
    /// Evaluations of the rule's checks.
    pub looks: u64,
    /// Evaluations that matched.
    pub matched: u64,
    /// The first matches.
    pub matches: Vec<LookReport>,
    /// Why the rule did not match, in order of appearance. The reader sorts them by frequency.
    pub reasons: Vec<Reason>,
    /// The evaluation without a match that got furthest.
    pub nearest: Option<LookReport>,
    /// The outcomes of the matches.
    pub fates: Vec<FateCount>,
    /// The rule's fast pattern and where it is searched; `None` if there is none.
    pub pattern: Option<String>,
    pub(super) own: Own,
    pub(super) work: Work,
}

/// Static facts of the rule.
#[derive(Debug)]
pub(super) struct Own {
    /// Buffers, by the address of their compiled form.
    pub(super) buffers: HashMap<usize, Buffer>,
    pub(super) trigger: Way,
}

/// A buffer of the rule.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) name: String,
    pub(super) checks: Vec<BufferCheck>,
}

/// How the rule becomes a candidate.
#[derive(Debug)]
pub(super) enum Way {
    /// By a pattern in the packet.
    Pattern(Vec<Source>, Literal),
    /// By a regular expression in the packet, if the matcher supports it, and the digits in a row that it needs. The
    /// search is skipped if the data has fewer.
    Regex(Vec<Source>, usize),
    /// By the properties of a packet.
    Needs(Needs),
    /// By the plans for its transactions.
    Transactions,
    Frames(Option<Literal>),
    IpOnly,
}

/// The state for the current packet.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) misfit: Option<Misfit>,
    /// Whether the rule was evaluated with this packet, or the reason why not is recorded already.
    pub(super) told: bool,
    /// Where the pattern was searched, and how much of it was there.
    pub(super) searches: Vec<(Line, u32)>,
    /// The results of packet and flow checks that ran only for the report; `None` until then.
    pub(super) quick: Option<Vec<Line>>,
    /// The current transaction, and whether the rule was evaluated on it.
    pub(super) transaction: Option<(String, bool)>,
    pub(super) look: Option<(Look, Current)>,
}

/// A running evaluation.
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) lines: Vec<Line>,
    /// Number of lines that held before the current buffer.
    pub(super) base: u32,
    pub(super) best: u32,
    /// The failed line that got furthest.
    pub(super) failing: Option<usize>,
    pub(super) place: (String, Vec<Line>),
    pub(super) path: Vec<Seen>,
    pub(super) failed: Option<(u32, Line, u32)>,
    /// For several values of one buffer, or several files: the one that got furthest, until the step ends.
    pub(super) values: Vec<(Vec<Line>, u32)>,
    pub(super) collects: bool,
}

/// A byte check that held.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) order: u32,
    pub(super) place: (usize, Option<usize>),
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) value: Option<u64>,
}

pub(super) fn address<T>(of: &T) -> usize {
    std::ptr::from_ref(of) as usize
}

impl Own {
    pub(super) fn new(detect: &Detect, number: u32) -> Option<Own> {
        let (rule, compiled) = (detect.rules().get(number as usize)?.tree()?, detect.compiled.get(number as usize)?);
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
            let literals = rule.checks.iter().filter_map(|c| if let Check::File(f) = c { f.as_buffer() } else { None });
            let all = with_checks.cloned().chain(literals);
            tx.checks.iter().zip(all).for_each(|(c, b)| add(c, &b));
        }
        let trigger = match compiled.kind {
            _ if compiled.frame.is_some() => Way::Frames(crate::frame::pattern_of(rule)),
            RuleKind::AppTransaction => Way::Transactions,
            RuleKind::IpOnly => Way::IpOnly,
            _ => match compiled.trigger(rule) {
                Trigger::Pattern(sources, l) => Way::Pattern(sources, l),
                Trigger::Regex(sources, regex, _) => Way::Regex(sources, digits_of(&regex)),
                Trigger::Always(quick) => Way::Needs(quick.needs),
            },
        };
        Some(Own { buffers, trigger })
    }
}

pub(super) fn pattern_text(p: &Pattern) -> String {
    format!("\"{}\"{}", literal(&p.bytes), if p.nocase { " in any case" } else { "" })
}

pub(super) fn source_name(s: Source) -> String {
    match s {
        Source::Payload => "the packet's payload".into(),
        Source::Stream => "the stream".into(),
        Source::Header(h) => crate::buffer::PacketBuffer::from_index(h).map_or("a header", |b| b.name()).to_owned(),
    }
}

impl RuleTrace {
    pub(super) fn new(detect: &Detect, number: u32) -> Option<RuleTrace> {
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
            made_up: 0,
            last: 0,
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

    /// Counts an inspected packet.
    pub(super) fn saw(&mut self, packet: &PacketRef) {
        if packet.made_up {
            self.made_up += 1;
        } else if packet.number == 0 || packet.number != self.last {
            self.packets += 1;
            self.last = packet.number;
        }
    }

    pub(super) fn reason(&mut self, kind: ReasonKind, text: String, look: LookReport) {
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

pub(super) fn slot_name(proto: AppProto, source: SlotSource) -> String {
    match source {
        SlotSource::Buffer(id) => {
            let def = protocol(proto).and_then(|p| p.buffers.iter().find(|b| b.id == id));
            def.map_or("a buffer", |b| b.name).to_owned()
        }
        SlotSource::FileData => FileBuffer::Data.name().into(),
        SlotSource::FileName => FileBuffer::Name.name().into(),
        SlotSource::FileMagic => FileBuffer::Magic.name().into(),
    }
}

impl Current {
    /// Ends the inspection of one place, with the lines that held and failed.
    pub(super) fn commit(&mut self, lines: Vec<Line>, partial: u32) {
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

    /// Of several values, keeps the one that got furthest.
    pub(super) fn settle(&mut self) -> bool {
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

impl Buffer {
    /// The check at a place of the compiled form.
    pub(super) fn check(&self, (outer, inner): (usize, Option<usize>)) -> Option<&BufferCheck> {
        match (self.checks.get(outer)?, inner) {
            (c, None) => Some(c),
            (BufferCheck::Base64 { data, .. }, Some(i)) => data.get(i),
            _ => None,
        }
    }
}
