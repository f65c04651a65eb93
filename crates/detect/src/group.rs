//! Rule groups: they select rules for a packet by transport, direction, application protocol and ports.
//!
//! A rule that names few ports is in the group of each of these ports, source or destination, whichever are fewer. All
//! other rules are in one group for every packet. Rules for an application protocol are in that protocol's group,
//! together with the rules for every packet: starting another buffer search costs more than a few hundred extra
//! patterns. For a protocol on its usual port (HTTP on 80), one group has the rules of both, for the same reason. So a
//! packet uses at most three groups, and most packets use only the first. The header check that follows is exact.

mod ports;
mod quick;

use std::collections::BTreeMap;

use margay_flow::FlowVars;
use margay_rules::ast::PortSet;

use crate::checks::ProtoSet;
use crate::head::Head;
use crate::header::{Header, PacketKey, PortPair, Sets};
use crate::mpm::{MatcherCache, Regex, Scratch};
use crate::prefilter::{Literal, Prefilter, PrefilterBuilder};
pub use ports::GroupCounts;
pub(crate) use ports::{GroupIds, Groups};
pub(crate) use quick::{BitTest, Has, Needs, Quick, Ranges};

/// The data in which a matcher searches for a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The packet's payload.
    Payload,
    /// Stream data.
    Stream,
    /// A packet header, by the number of its buffer.
    Header(u8),
}

/// How a rule becomes a candidate.
#[derive(Debug, Clone)]
pub(crate) enum Trigger {
    /// By a pattern in one of these sources.
    Pattern(Vec<Source>, Literal),
    /// By a regular expression in one of these sources, if the matcher supports the expression. Otherwise as if the rule
    /// had none.
    Regex(Vec<Source>, Regex, Quick),
    /// For every packet that meets the rule's needs.
    Always(Quick),
}

impl Trigger {
    /// Whether a pattern makes the rule a candidate.
    pub(crate) const fn is_pattern(&self) -> bool {
        matches!(self, Trigger::Pattern(..))
    }
}

/// Flag in a rule number: the entry stands for the payload or stream pattern of a transaction rule. The pattern makes
/// the rule a candidate for transactions, not for the packet itself.
pub(crate) const OF_TRANSACTION: u32 = 1 << 31;

/// The facts of one rule that grouping needs.
pub(crate) struct GroupRule {
    /// The rule's number; with [`OF_TRANSACTION`] for a transaction rule.
    pub(crate) rule: u32,
    pub(crate) header: Header,
    pub(crate) sport: PortSet,
    pub(crate) dport: PortSet,
    /// The flow's protocol must be one of these; `None` accepts any.
    pub(crate) app: Option<ProtoSet>,
    /// Whether the rule inspects streams.
    pub(crate) of_streams: bool,
    pub(crate) trigger: Trigger,
}

/// Rules that share transport, direction and ports.
#[derive(Debug, Default)]
pub(crate) struct Group {
    prefilters: Vec<(Source, Prefilter)>,
    always: Box<[Block]>,
    waiting: Waiting,
}

/// Rules without a pattern that have the same needs.
#[derive(Debug)]
struct Bucket {
    ports: PortPair,
    /// Rules with no other cheap condition.
    plain: Box<[u32]>,
    /// Rules with further cheap conditions, and the values that each accepts.
    rules: Box<[(u32, Ranges, Head)]>,
}

/// A cheap condition that many rules without a pattern share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    mask: Mask,
    ports: PortPair,
}

/// Required properties and TCP flags: a mask for [`Has::word`], and the value it must have under the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mask(u32, u32);

impl Mask {
    fn new(needs: Needs, flags: (u8, u8)) -> Mask {
        Mask(needs.word(flags.0), needs.word(flags.1))
    }

    #[inline]
    const fn holds(self, word: u32) -> bool {
        word & self.0 == self.1
    }
}

fn holds(head: &Head, has: &Has<'_>) -> bool {
    has.head.is_none_or(|first| head.holds(has.payload, first))
}

/// Up to eight buckets and their needs, compared at once. For most packets no bucket fits and nothing more is done.
#[derive(Debug)]
struct Block {
    mask: [u32; 8],
    value: [u32; 8],
    buckets: Box<[Bucket]>,
}

impl Block {
    fn new(buckets: Vec<(Mask, Bucket)>) -> Block {
        // Unused slots never fit.
        let (mut mask, mut value) = ([0; 8], [1; 8]);
        for ((m, v), (needs, _)) in mask.iter_mut().zip(&mut value).zip(&buckets) {
            (*m, *v) = (needs.0, needs.1);
        }
        Block { mask, value, buckets: buckets.into_iter().map(|b| b.1).collect() }
    }

    /// Returns one bit for each bucket whose needs are met.
    #[inline]
    fn which(&self, word: u32) -> u32 {
        // This form lets the compiler vectorise the comparison.
        let bits: [u32; 8] = std::array::from_fn(|n| if word & self.mask[n] == self.value[n] { 1 << n } else { 0 });
        bits.iter().fold(0, |all, bit| all | bit)
    }
}

/// Rules without a pattern that test flow bits. Most flows have few bits, so rules are looked up by the bits that are
/// set.
#[derive(Debug, Default)]
struct Waiting {
    /// Filter by bit number, modulo its size: whether some rule waits for a bit.
    some: Box<[u64; 16]>,
    /// Rules by a bit that must be set, sorted by bit.
    set: Box<[(u32, Box<[Asking]>)]>,
    /// Rules that only require unset bits.
    unset: Box<[Asking]>,
}

/// A rule that tests bits.
#[derive(Debug, Clone)]
struct Asking {
    rule: u32,
    common: Common,
    ranges: Ranges,
    head: Head,
    bits: Box<[BitTest]>,
}

impl Asking {
    fn holds(&self, has: &Has<'_>, key: &PacketKey, sets: &Sets, vars: &FlowVars) -> bool {
        self.bits.iter().all(|(names, set)| names.iter().any(|&n| vars.bit(n) == *set))
            && self.common.mask.holds(has.word())
            && self.ranges.hold(has)
            && holds(&self.head, has)
            && self.common.ports.fits(key, sets)
    }
}

impl Waiting {
    const fn place(bit: u32) -> (usize, u64) {
        ((bit / 64 % 16) as usize, 1 << (bit % 64))
    }

    fn new(rules: Vec<Asking>) -> Waiting {
        let mut out = Waiting::default();
        let mut set: BTreeMap<u32, Vec<Asking>> = BTreeMap::new();
        let mut unset = Vec::new();
        for r in rules {
            let Some((names, _)) = r.bits.iter().find(|b| b.1) else {
                unset.push(r);
                continue;
            };
            for &bit in names {
                let (word, mask) = Self::place(bit);
                out.some[word] |= mask;
                set.entry(bit).or_default().push(r.clone());
            }
        }
        out.set = set.into_iter().map(|(bit, rules)| (bit, rules.into_boxed_slice())).collect();
        out.unset = unset.into_boxed_slice();
        out
    }
}

impl Group {
    fn new(rules: &[&GroupRule], streams: bool, cache: &mut MatcherCache) -> Group {
        let mut always: BTreeMap<Common, (Vec<u32>, Vec<_>)> = BTreeMap::new();
        let mut asking = Vec::new();
        let mut lists: BTreeMap<Source, PrefilterBuilder<'_>> = BTreeMap::new();
        // Without streams all data is payload.
        let real = |s: Source| if s == Source::Stream && !streams { Source::Payload } else { s };
        for r in rules {
            let quick = match &r.trigger {
                Trigger::Pattern(sources, p) => {
                    for s in sources {
                        lists.entry(real(*s)).or_default().add(p, r.rule);
                    }
                    continue;
                }
                Trigger::Regex(sources, regex, _) if cache.can(regex) => {
                    for s in sources {
                        lists.entry(real(*s)).or_default().add_regex(regex, r.rule);
                    }
                    continue;
                }
                Trigger::Regex(_, _, quick) | Trigger::Always(quick) => quick,
            };
            let common = Common { mask: Mask::new(quick.needs, quick.flags), ports: r.header.port_pair() };
            let Quick { ranges, head, .. } = *quick;
            if !quick.bits.is_empty() {
                asking.push(Asking { rule: r.rule, common, ranges, head, bits: quick.bits.clone() });
                continue;
            }
            let (plain, others) = always.entry(common).or_default();
            if (ranges, head) == (Ranges::ALL, Head::ALL) {
                plain.push(r.rule);
            } else {
                others.push((r.rule, ranges, head));
            }
        }
        let mut buckets: Vec<(Mask, Bucket)> = always
            .into_iter()
            .map(|(common, (plain, rules))| {
                let ports = common.ports;
                (common.mask, Bucket { ports, plain: plain.into_boxed_slice(), rules: rules.into_boxed_slice() })
            })
            .collect();
        let mut blocks = Vec::new();
        while !buckets.is_empty() {
            let rest = buckets.split_off(buckets.len().min(8));
            blocks.push(Block::new(std::mem::replace(&mut buckets, rest)));
        }
        Group {
            prefilters: lists.into_iter().map(|(s, l)| (s, l.finish(cache))).collect(),
            always: blocks.into_boxed_slice(),
            waiting: Waiting::new(asking),
        }
    }

    /// Adds the rules whose pattern occurs in `data`.
    pub(crate) fn scan(&self, source: Source, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.scan_from(source, data, 0, scratch, out);
    }

    /// As [`Self::scan`], for data whose first `seen` bytes were searched before ([`Prefilter::scan_from`]).
    pub(crate) fn scan_from(
        &self,
        source: Source,
        data: &[u8],
        seen: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        for (s, p) in &self.prefilters {
            if *s == source {
                p.scan_from(data, seen, scratch, out);
            }
        }
    }

    /// The header buffers in which some rule has its pattern.
    pub(crate) fn headers(&self) -> impl Iterator<Item = u8> + '_ {
        self.prefilters.iter().filter_map(|(s, _)| if let Source::Header(h) = s { Some(*h) } else { None })
    }

    /// Adds the rules that need neither a pattern nor a flow bit.
    pub(crate) fn always(&self, has: &Has<'_>, key: &PacketKey, sets: &Sets, out: &mut Vec<u32>) {
        let word = has.word();
        for block in &self.always {
            let mut which = block.which(word);
            while which != 0 {
                let Some(b) = block.buckets.get(which.trailing_zeros() as usize) else { break };
                which &= which - 1;
                if !b.ports.fits(key, sets) {
                    continue;
                }
                for &rule in &b.plain {
                    out.push(rule);
                }
                for (rule, ranges, head) in &b.rules {
                    if ranges.hold(has) && holds(head, has) {
                        out.push(*rule);
                    }
                }
            }
        }
    }

    /// Calls `out` with the rules that need no pattern and whose flow bit tests hold now, some rules twice. When a rule
    /// changes bits, call it again.
    pub(crate) fn waiting(&self, has: &Has<'_>, key: &PacketKey, sets: &Sets, out: &mut impl FnMut(u32)) {
        let Some(vars) = has.vars else { return };
        let w = &self.waiting;
        let mut add = |rules: &[Asking]| {
            for r in rules.iter().filter(|r| r.holds(has, key, sets, vars)) {
                out(r.rule);
            }
        };
        add(&w.unset);
        if w.set.is_empty() {
            return;
        }
        for &bit in vars.bits() {
            let (word, mask) = Waiting::place(bit);
            if w.some[word] & mask != 0
                && let Ok(at) = w.set.binary_search_by_key(&bit, |x| x.0)
                && let Some((_, rules)) = w.set.get(at)
            {
                add(rules);
            }
        }
    }
}
