//! Rule groups: which rules a packet is looked at for, by transport, direction, application protocol and ports.
//!
//! Rules that name few ports are in the group of each of these ports, source or destination, whichever are fewer; all others
//! are in one group for every packet. Rules for an application protocol are in that protocol's group, with those for every
//! packet: to start the search of a buffer costs more than a few hundred patterns more. Where a protocol is on its usual port
//! (HTTP on 80), one group has the rules of both, for the same reason. So a packet meets at most three groups, and most have
//! but the first. What a group leaves open the header check decides.

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

/// What a pattern is looked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The packet's payload.
    Payload,
    /// Stream data.
    Stream,
    /// A header of the packet, by number of its buffer.
    Header(u8),
}

/// How a rule becomes a candidate.
#[derive(Debug, Clone)]
pub(crate) enum Trigger {
    /// By a pattern in one of these.
    Pattern(Vec<Source>, Literal),
    /// By a regular expression in one of these, where the matcher can look for it; else as if it had none.
    Regex(Vec<Source>, Regex, Quick),
    /// For every packet that has what it needs.
    Always(Quick),
}

impl Trigger {
    /// Whether a pattern stands for the rule.
    pub(crate) const fn is_pattern(&self) -> bool {
        matches!(self, Trigger::Pattern(..))
    }
}

/// Bit of the number of a rule on transactions whose pattern in payload or stream is looked for: it is no candidate for the
/// packet.
pub(crate) const OF_TRANSACTION: u32 = 1 << 31;

/// What the groups need to know of one rule.
pub(crate) struct GroupRule {
    /// Its number; with [`OF_TRANSACTION`] where that is what it looks at.
    pub(crate) rule: u32,
    pub(crate) header: Header,
    pub(crate) sport: PortSet,
    pub(crate) dport: PortSet,
    /// The flow's protocol must be one of these; any where it is `None`.
    pub(crate) app: Option<ProtoSet>,
    /// It looks at streams.
    pub(crate) of_streams: bool,
    pub(crate) trigger: Trigger,
}

/// Rules that share transport, direction and ports.
#[derive(Debug, Default)]
pub(crate) struct Group {
    prefilters: Vec<(Source, Prefilter)>,
    always: Box<[Block]>,
    waiting: Waiting,
    of_streams: bool,
}

/// Rules without a pattern that need the same.
#[derive(Debug)]
struct Bucket {
    ports: PortPair,
    /// Those that ask for nothing else that is quick to see.
    plain: Box<[u32]>,
    /// The others, and the values that each takes.
    rules: Box<[(u32, Ranges, Head)]>,
}

/// What many rules without a pattern have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Common {
    mask: Mask,
    ports: PortPair,
}

/// What must be there, and how TCP's flags must be: [`Has::word`] under a mask, and what it must be.
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

/// Up to eight buckets, and what they need, compared at once: for most packets that is all of them that is looked at.
#[derive(Debug)]
struct Block {
    mask: [u32; 8],
    value: [u32; 8],
    buckets: Box<[Bucket]>,
}

impl Block {
    fn new(buckets: Vec<(Mask, Bucket)>) -> Block {
        // Where there is none nothing fits.
        let (mut mask, mut value) = ([0; 8], [1; 8]);
        for ((m, v), (needs, _)) in mask.iter_mut().zip(&mut value).zip(&buckets) {
            (*m, *v) = (needs.0, needs.1);
        }
        Block { mask, value, buckets: buckets.into_iter().map(|b| b.1).collect() }
    }

    /// A bit for each that holds.
    #[inline]
    fn which(&self, word: u32) -> u32 {
        // Written so that the processor does four or more at once.
        let bits: [u32; 8] = std::array::from_fn(|n| if word & self.mask[n] == self.value[n] { 1 << n } else { 0 });
        bits.iter().fold(0, |all, bit| all | bit)
    }
}

/// Rules without a pattern that ask for bits of the flow. Most flows have few bits: rules are found by those.
#[derive(Debug, Default)]
struct Waiting {
    /// By number, modulo how many there are here: whether some rule waits for a bit.
    some: Box<[u64; 16]>,
    /// Rules by a bit that must be set, in the order of bits.
    set: Box<[(u32, Box<[Asking]>)]>,
    /// Rules that ask just for bits that are not set.
    unset: Box<[Asking]>,
}

/// A rule that asks for bits.
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
            of_streams: rules.iter().any(|r| r.of_streams),
        }
    }

    /// Whether a rule of it looks at streams.
    pub(crate) const fn looks_at_streams(&self) -> bool {
        self.of_streams
    }

    /// Adds the rules whose pattern is in `data`.
    pub(crate) fn scan(&self, source: Source, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        self.scan_from(source, data, 0, scratch, out);
    }

    /// The same for data of which the first `seen` bytes were searched before ([`Prefilter::scan_from`]).
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

    /// Buffers of headers that some rule's pattern is looked for in.
    pub(crate) fn headers(&self) -> impl Iterator<Item = u8> + '_ {
        self.prefilters.iter().filter_map(|(s, _)| if let Source::Header(h) = s { Some(*h) } else { None })
    }

    /// Adds the rules that need no pattern, nor any bit of the flow.
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

    /// Calls `out` with the rules that need no pattern, and for which the flow has the bits now; with some twice. When a rule
    /// changes bits there may be others.
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
