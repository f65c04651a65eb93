//! Structures that the rules of one protocol and direction share.

use std::collections::HashMap;

use margay_app::{AppProto, BufferKind, TxDetect};
use margay_flow::Direction;
use margay_rules::ast::{BufferCheck, Transform};

use super::{Judged, Plan, TxTrigger};
use crate::byte_set::ByteSet;
use crate::head::Head;
use crate::inspect::CompileError;
use crate::literals;
use crate::mpm::MatcherCache;
use crate::pcre::PcreLimits;
use crate::prefilter::{AnyOf, Literal, Prefilter, PrefilterBuilder};
use crate::transform::CompiledTransforms;

/// The source of a slot's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SlotSource {
    /// A buffer of the protocol, by its number.
    Buffer(u8),
    /// Data of files.
    FileData,
    /// Names of files.
    FileName,
    /// Detected types of files.
    FileMagic,
}

/// A buffer that rules inspect.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) source: SlotSource,
    pub(crate) progress: u8,
    pub(crate) kind: BufferKind,
    pub(crate) transforms: CompiledTransforms,
    pub(crate) prefilter: Option<Prefilter>,
    /// Rules that the prefilter finds, sorted, with checks that must also hold for the value.
    pub(crate) found: Box<[(u32, Judged)]>,
    /// Rules without a pattern, whose checks run for every value.
    pub(crate) every: Box<[(u32, Judged)]>,
}

impl Slot {
    /// Whether one inspection of a transaction sees at most one value: a protocol buffer that is not multi-valued.
    pub(crate) fn is_one(&self) -> bool {
        matches!(self.source, SlotSource::Buffer(_)) && !self.kind.is_several()
    }
}

/// A rule without a pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Always {
    /// The progress from which on the rule is evaluated.
    pub(crate) progress: u8,
    pub(crate) rule: u32,
    /// [`super::TxRule::payload_sought`], if that may be the only condition.
    pub(crate) sought: bool,
    /// [`Plan::gates`].
    pub(crate) gates: Box<[Gate]>,
}

/// Cheap properties of a single-valued buffer: its presence, its length and the bytes it contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    there: bool,
    len: u32,
    bytes: ByteSet,
}

/// The byte set is not computed for longer buffers.
const SUMMARY_MAX: usize = 128;

impl Summary {
    pub(crate) fn of(data: Option<&[u8]>) -> Summary {
        let there = data.is_some();
        let data = data.unwrap_or_default();
        let bytes = if data.len() <= SUMMARY_MAX { ByteSet::of(data) } else { ByteSet::ALL };
        Summary { there, len: u32::try_from(data.len()).unwrap_or(u32::MAX), bytes }
    }
}

/// A condition of one step on a buffer's [`Summary`]. If it fails once the transaction is past `progress`, or complete,
/// the rule never matches the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gate {
    pub(crate) slot: u16,
    pub(crate) progress: u8,
    /// Minimum and maximum length.
    len: (u32, u32),
    /// Bytes that must occur.
    bytes: ByteSet,
}

impl Gate {
    /// A condition on the length of a buffer.
    pub(crate) const fn of_length(slot: u16, progress: u8, len: (u32, u32)) -> Gate {
        Gate { slot, progress, len, bytes: ByteSet::EMPTY }
    }

    /// The condition that follows from checks on a buffer.
    pub(crate) fn of_checks(slot: u16, progress: u8, checks: &[BufferCheck]) -> Gate {
        let mut gate = Gate::of_length(slot, progress, Head::of(checks).lengths());
        let mut literal = |bytes: &[u8], nocase: bool| {
            bytes.iter().filter(|b| !nocase || !b.is_ascii_alphabetic()).for_each(|&b| gate.bytes.insert(b));
        };
        for c in checks {
            match c {
                BufferCheck::Content(c) if !c.negated => literal(&c.bytes, c.nocase),
                BufferCheck::Pcre(p) if !p.negated => {
                    let (all, nocase) = literals::of_pattern(&p.pattern, &p.options);
                    all.iter().for_each(|l| literal(l, nocase));
                }
                _ => {}
            }
        }
        gate
    }

    /// Whether the condition holds.
    #[inline]
    pub(crate) fn holds(&self, s: &Summary) -> bool {
        s.there && s.len >= self.len.0 && s.len <= self.len.1 && self.bytes.is_within(&s.bytes)
    }
}

/// Structures that the rules of one protocol and direction share.
#[derive(Debug, Default)]
pub(crate) struct TxGroup {
    pub(crate) slots: Box<[Slot]>,
    /// Slots whose values make rules candidates, by progress.
    pub(crate) searched: Box<[u16]>,
    /// Rules without a pattern, by the progress from which on they are evaluated.
    pub(crate) always: Box<[Always]>,
    /// Rules that a value makes candidates by an expression or a judgement, with the progress from which on an explanation
    /// evaluates them without that value, to show where they fail.
    pub(crate) expressions: Box<[(u8, u32)]>,
    /// Rules that become candidates with a file.
    pub(crate) files: Box<[u32]>,
    /// Rules that become candidates with an event, sorted by event.
    pub(crate) events: Box<[(u8, u32)]>,
    /// The number of the buffer that `file.data` is, if rules inspect it.
    pub(crate) file_data: Option<u8>,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct TxGroups {
    list: Vec<((AppProto, Direction), TxGroup)>,
}

/// How far the prefilter has come with a transaction: the part of [`TxDetect`] that it reads and writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TxSearched {
    pub(crate) searched: u64,
    pub(crate) begun: u8,
}

impl TxSearched {
    pub(crate) const fn of(seen: &TxDetect) -> TxSearched {
        TxSearched { searched: seen.searched, begun: seen.begun }
    }

    pub(crate) const fn keep(self, seen: &mut TxDetect) {
        (seen.searched, seen.begun) = (self.searched, self.begun);
    }
}

impl TxGroup {
    /// Makes a transaction's state such that buffers (bit = number) with new data are searched again, and rules without a
    /// pattern on them evaluated again. Rules that have matched stay settled.
    #[cold]
    pub(crate) fn search_again(&self, buffers: u64, seen: &mut TxSearched) {
        seen.searched &= !buffers;
        let renewed = |s: &&Slot| matches!(s.source, SlotSource::Buffer(id) if buffers >> id & 1 != 0);
        if let Some(first) = self.slots.iter().filter(renewed).map(|s| s.progress).min() {
            seen.begun = seen.begun.min(first);
        }
    }
}

impl TxGroups {
    /// The group of a protocol and direction; `None` if no rule inspects its transactions.
    pub(crate) fn get(&self, proto: AppProto, dir: Direction) -> Option<&TxGroup> {
        self.list.iter().find(|(k, _)| *k == (proto, dir)).map(|(_, g)| g)
    }

    /// The largest number of slots in a group.
    pub(crate) fn slots(&self) -> usize {
        self.list.iter().map(|(_, g)| g.slots.len()).max().unwrap_or(0)
    }
}

/// The rules that the values of a slot make candidates.
#[derive(Debug, Default)]
struct SlotRules {
    patterns: Vec<(Literal, u32)>,
    /// The literals that expressions need.
    needed: Vec<(AnyOf, u32)>,
    found: Vec<(u32, Judged)>,
    every: Vec<(u32, Judged)>,
}

/// Builds one group.
#[derive(Debug, Default)]
pub(super) struct GroupBuilder {
    slots: Vec<Slot>,
    /// The rules of each slot.
    lists: Vec<SlotRules>,
    expressions: Vec<(u8, u32)>,
    numbers: HashMap<(SlotSource, String), u16>,
    always: Vec<Always>,
    files: Vec<u32>,
    events: Vec<(u8, u32)>,
    pub(super) file_data: Option<u8>,
}

impl GroupBuilder {
    /// The number of a slot, created if it is new.
    pub(super) fn slot(
        &mut self,
        source: SlotSource,
        progress: u8,
        kind: BufferKind,
        transforms: &[Transform],
        limits: PcreLimits,
    ) -> Result<u16, CompileError> {
        let text = if transforms.is_empty() { String::new() } else { format!("{transforms:?}") };
        let key = (source, text);
        if let Some(&n) = self.numbers.get(&key) {
            return Ok(n);
        }
        let n = u16::try_from(self.slots.len())
            .map_err(|_| CompileError::invalid("transform", "more than 65,535 transformed buffers in all rules"))?;
        let transforms = CompiledTransforms::compile(transforms, limits)?;
        let (found, every) = Default::default();
        self.slots.push(Slot { source, progress, kind, transforms, prefilter: None, found, every });
        self.lists.push(SlotRules::default());
        self.numbers.insert(key, n);
        Ok(n)
    }

    /// Adds a rule with its plan for this group.
    pub(super) fn add(&mut self, rule: u32, plan: &Plan, sought: bool) {
        match &plan.trigger {
            TxTrigger::Pattern(slot, pattern) => {
                if let Some(list) = self.lists.get_mut(usize::from(*slot)) {
                    list.patterns.push((pattern.clone(), rule));
                }
            }
            TxTrigger::Value { slot, needed, check, progress } => {
                self.expressions.push((*progress, rule));
                let Some(list) = self.lists.get_mut(usize::from(*slot)) else { return };
                let judged = check.map(|check| (rule, check));
                match needed {
                    Some(literals) => {
                        list.needed.push((literals.clone(), rule));
                        list.found.extend(judged);
                    }
                    None => list.every.extend(judged),
                }
            }
            TxTrigger::Progress(progress) => {
                let gates = plan.gates.clone();
                self.always.push(Always { progress: *progress, rule, sought: sought && plan.looks, gates });
            }
            TxTrigger::File => self.files.push(rule),
            TxTrigger::Event(e) => self.events.push((*e, rule)),
            TxTrigger::Never => {}
        }
    }

    fn finish(mut self, cache: &mut MatcherCache) -> TxGroup {
        let mut searched = Vec::new();
        for (n, (slot, list)) in (0u16..).zip(self.slots.iter_mut().zip(self.lists)) {
            let SlotRules { patterns, needed, mut found, every } = list;
            if patterns.is_empty() && needed.is_empty() && every.is_empty() {
                continue;
            }
            found.sort_unstable_by_key(|f| f.0);
            (slot.found, slot.every) = (found.into_boxed_slice(), every.into_boxed_slice());
            searched.push(n);
            if patterns.is_empty() && needed.is_empty() {
                continue;
            }
            let mut prefilter = PrefilterBuilder::default();
            patterns.iter().for_each(|(p, rule)| prefilter.add(p, *rule));
            needed.iter().for_each(|(any, rule)| prefilter.add_any_of(any, *rule));
            slot.prefilter = Some(prefilter.finish(cache));
        }
        let progress = |n: &u16| self.slots.get(usize::from(*n)).map_or(0, |s| s.progress);
        searched.sort_by_key(progress);
        self.always.sort_unstable();
        self.events.sort_unstable();
        TxGroup {
            slots: self.slots.into_boxed_slice(),
            searched: searched.into_boxed_slice(),
            always: self.always.into_boxed_slice(),
            expressions: self.expressions.into_boxed_slice(),
            files: self.files.into_boxed_slice(),
            events: self.events.into_boxed_slice(),
            file_data: self.file_data,
        }
    }
}

/// Builds all groups.
#[derive(Debug, Default)]
pub(super) struct GroupsBuilder {
    list: Vec<((AppProto, Direction), GroupBuilder)>,
}

impl GroupsBuilder {
    pub(super) fn get(&mut self, proto: AppProto, dir: Direction) -> &mut GroupBuilder {
        let at = match self.list.iter().position(|(k, _)| *k == (proto, dir)) {
            Some(at) => at,
            None => {
                self.list.push(((proto, dir), GroupBuilder::default()));
                self.list.len() - 1
            }
        };
        &mut self.list[at].1
    }

    pub(super) fn finish(self, cache: &mut MatcherCache) -> TxGroups {
        TxGroups { list: self.list.into_iter().map(|(k, g)| (k, g.finish(cache))).collect() }
    }
}
