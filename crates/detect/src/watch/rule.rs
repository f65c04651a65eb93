//! One explained rule: what is known of it beforehand, and what is going on with it.

use std::collections::HashMap;

use margay_app::{AppProto, protocol};
use margay_rules::ast::{BufferCheck, BufferChecks, Check, FileCheck};

use super::Look;
use super::describe::{literal, transformed};
use super::report::{FateCount, Line, LineCame, LookReport, PacketRef, Reason, ReasonKind};
use crate::detect::Detect;
use crate::group::{Needs, Source, Trigger};
use crate::header::Misfit;
use crate::inspect::{CompiledBuffer, own_checks};
use crate::kind::RuleKind;
use crate::mpm::Pattern;
use crate::prefilter::{Literal, digits_of};
use crate::tx::{SlotSource, TxTrigger};

/// Looks that are kept for one reason, and of matches.
pub(super) const KEPT: usize = 3;
/// Most reasons that are told apart.
pub(super) const REASONS_MAX: usize = 256;

/// What became of one rule.
#[derive(Debug)]
pub struct RuleTrace {
    /// Its place in [`Detect::rules`].
    pub rule: u32,
    /// Packets of the capture that were inspected. What a tunnel or a datagram in fragments holds counts with the packet that carried it.
    pub packets: u64,
    /// Packets inspected that the engine made up, as at the end of a flow.
    pub made_up: u64,
    /// The packet that was inspected last, by its number.
    pub(super) last: u64,
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
    pub(super) own: Own,
    pub(super) work: Work,
}

/// What is known of the rule beforehand.
#[derive(Debug)]
pub(super) struct Own {
    /// By the address of their compiled form: buffers.
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
    /// By an expression in the packet, where the matcher can look for it; and how many digits in a row it takes, where it is not
    /// looked for without.
    Regex(Vec<Source>, usize),
    /// With what a packet has.
    Needs(Needs),
    /// By the plans of its transactions.
    Transactions,
    Frames(Option<Literal>),
    IpOnly,
}

/// What is going on with the packet at hand.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) misfit: Option<Misfit>,
    /// Whether a look at the rule took place with this packet, or the reason why not is told already.
    pub(super) told: bool,
    /// What the pattern was looked for in: the place, and whether it was there.
    pub(super) searches: Vec<(Line, u32)>,
    /// What the checks of packet and flow say, where nobody looked at them; once it was asked for.
    pub(super) quick: Option<Vec<Line>>,
    /// The transaction that is looked at, and whether the rule was.
    pub(super) transaction: Option<(String, bool)>,
    pub(super) look: Option<(Look, Current)>,
}

/// A look that is going on.
#[derive(Debug, Default)]
pub(super) struct Current {
    pub(super) lines: Vec<Line>,
    /// Lines that held before the buffer at hand.
    pub(super) base: u32,
    pub(super) best: u32,
    /// The line that failed and got furthest.
    pub(super) failing: Option<usize>,
    pub(super) place: (String, Vec<Line>),
    pub(super) path: Vec<Seen>,
    pub(super) failed: Option<(u32, Line, u32)>,
    /// Several values of one buffer, or files: what got furthest is kept until the step is over.
    pub(super) values: Vec<(Vec<Line>, u32)>,
    pub(super) collects: bool,
}

/// A check of bytes that held.
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
                Trigger::Regex(sources, regex, _) => Way::Regex(sources, digits_of(&regex)),
                Trigger::Always(quick) => Way::Needs(quick.needs),
            },
        };
        Some(Own { buffers, trigger })
    }
}

/// The checks of a file's name or magic that keywords other than buffers ask for, as [`crate::tx`] compiles them.
pub(super) fn file_literal(c: &Check) -> Option<BufferChecks> {
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

    /// Counts a packet that is inspected.
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
        SlotSource::FileData => "file.data".into(),
        SlotSource::FileName => "file.name".into(),
        SlotSource::FileMagic => "file.magic".into(),
    }
}

impl Current {
    /// Ends what was looked at in one place: what held and what failed.
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

    /// Of several values the one that got furthest.
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
