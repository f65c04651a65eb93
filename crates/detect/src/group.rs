//! Rule groups: which rules a packet is looked at for, by transport, direction, application protocol and ports.
//!
//! Rules that name few ports are in the group of each of these ports, source or destination, whichever are fewer; all others
//! are in one group for every packet. Rules for an application protocol are in that protocol's group, with those for every
//! packet: to start the search of a buffer costs more than a few hundred patterns more. Where a protocol is on its usual port
//! (HTTP on 80), one group has the rules of both, for the same reason. So a packet meets at most three groups, and most have
//! but the first. What a group leaves open the header check decides.

use std::collections::{BTreeMap, HashMap};

use margay_app::AppProto;
use margay_flow::FlowVars;
use margay_rules::ast::{Check, Compare, FlagMode, PortSet};

use crate::checks::ProtoSet;
use crate::head::{Head, long, range};
use crate::header::{Header, PacketKey, PortPair, Sets, TO_CLIENT, TO_SERVER, transport};
use crate::mpm::{MatcherCache, MpmError, Regex, Scratch};
use crate::prefilter::{Literal, Prefilter, PrefilterBuilder};

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

/// What of a rule without a pattern is asked before it becomes a candidate: cheap, and enough to leave most packets out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quick {
    pub(crate) needs: Needs,
    /// TCP flags that are looked at, and what they must be; no flags where it is not TCP.
    pub(crate) flags: (u8, u8),
    pub(crate) ranges: Ranges,
    /// Of the payload, where the rule looks at nothing else.
    pub(crate) head: Head,
    /// What it asks of the bits of the flow; all must hold.
    pub(crate) bits: Box<[BitTest]>,
}

/// Numbers of bits, one of which must be set, or one of which must not.
pub(crate) type BitTest = (Box<[u32]>, bool);

/// Smallest and largest values that a rule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Of the payload's size, in bytes.
    payload: (u32, u32),
    /// Of the time to live.
    ttl: (u8, u8),
    /// Of the identification of the IPv4 header.
    id: (u16, u16),
    /// Of the TCP window.
    window: (u16, u16),
}

impl Ranges {
    const ALL: Ranges = Ranges { payload: (0, u32::MAX), ttl: (0, u8::MAX), id: (0, u16::MAX), window: (0, u16::MAX) };

    const fn hold(&self, has: &Has<'_>) -> bool {
        has.payload >= self.payload.0
            && has.payload <= self.payload.1
            && has.ttl >= self.ttl.0
            && has.ttl <= self.ttl.1
            && has.id >= self.id.0
            && has.id <= self.id.1
            && has.window >= self.window.0
            && has.window <= self.window.1
    }
}

impl Quick {
    /// Most bytes of payload that the rule takes.
    pub(crate) const fn payload_max(&self) -> u32 {
        self.ranges.payload.1
    }

    /// From the checks of a rule.
    pub(crate) fn of(checks: &[Check]) -> Quick {
        let mut q =
            Quick { needs: Needs::NOTHING, flags: (0, 0), ranges: Ranges::ALL, head: Head::ALL, bits: Box::default() };
        let short = |v: u64| u16::try_from(v).unwrap_or(u16::MAX);
        let byte = |v: u64| u8::try_from(v).unwrap_or(u8::MAX);
        for c in checks {
            match *c {
                Check::TcpFlags { bits: 0, mode, .. } if mode != FlagMode::Not => q.flags = (0xff, 0),
                Check::TcpFlags { bits: 0, .. } => {}
                Check::TcpFlags { bits, ignore, mode: FlagMode::Exact } => q.flags = (!ignore, bits & !ignore),
                Check::TcpFlags { bits, ignore: 0, mode: FlagMode::All } => q.flags = (bits, bits),
                // Of several, not all of them: that says nothing of any one.
                Check::TcpFlags { bits, ignore: 0, mode: FlagMode::Not } if bits.count_ones() == 1 => {
                    q.flags = (bits, 0)
                }
                Check::Dsize(d) => {
                    let (from, to) = range(&d);
                    q.ranges.payload = (long(from), long(to));
                }
                Check::Ttl(t) => {
                    let (from, to) = range(&t);
                    q.ranges.ttl = (byte(from), byte(to));
                }
                Check::IpId(id) => q.ranges.id = (id, id),
                Check::TcpWindow { value } => {
                    let (from, to) = range(&value);
                    q.ranges.window = (short(from), short(to));
                }
                Check::SameIp => q.needs = q.needs.and(Needs::SAME_IP),
                Check::IpOption(_) => q.needs = q.needs.and(Needs::IP_OPTIONS),
                // All but "do not fragment".
                Check::FragBits { bits, mode: FlagMode::Exact | FlagMode::All } if bits & 0xa000 != 0 => {
                    q.needs = q.needs.and(Needs::FRAGMENT);
                }
                Check::FragBits { bits, mode: FlagMode::Any } if bits & 0x4000 == 0 => {
                    q.needs = q.needs.and(Needs::FRAGMENT);
                }
                Check::FragOffset(c) if !c.holds(0) => q.needs = q.needs.and(Needs::FRAGMENT),
                Check::TcpAck(Compare::Equal(0)) => q.needs = q.needs.and(Needs::NO_ACK),
                _ => {}
            }
        }
        q
    }
}

/// What a packet has, for [`Quick`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Has<'a> {
    pub(crate) needs: Needs,
    /// TCP flags; 0 where it is not TCP.
    pub(crate) flags: u8,
    /// Bytes of payload.
    pub(crate) payload: u32,
    /// How it begins ([`crate::head::first_of`]); `None` where rules are to be looked at whatever that is.
    pub(crate) head: Option<u64>,
    /// Time to live, or hop limit; 0 where it is not IP.
    pub(crate) ttl: u8,
    /// Identification of the IPv4 header; 0 where it is not IPv4.
    pub(crate) id: u16,
    /// TCP window; 0 where it is not TCP.
    pub(crate) window: u16,
    /// What the flow has of bits; `None` without a flow.
    pub(crate) vars: Option<&'a FlowVars>,
}

impl Has<'_> {
    const fn word(&self) -> u32 {
        self.needs.word(self.flags)
    }
}

/// What a packet must have for a rule without a pattern, one bit each; all must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub(crate) struct Needs(u16);

impl Needs {
    pub(crate) const NOTHING: Needs = Needs(0);
    /// Payload, of the packet or its stream.
    pub(crate) const DATA: Needs = Needs(1);
    /// A flow.
    pub(crate) const FLOW: Needs = Needs(1 << 1);
    /// An event of the stream engine.
    pub(crate) const STREAM_EVENT: Needs = Needs(1 << 2);
    /// An event of the decoder.
    pub(crate) const DECODE_EVENT: Needs = Needs(1 << 3);
    /// An established flow.
    pub(crate) const ESTABLISHED: Needs = Needs(1 << 4);
    /// The first packet of a direction, or of one since something of the protocol became known.
    pub(crate) const PROTOCOL: Needs = Needs(1 << 5);
    /// A flow whose protocol is known.
    pub(crate) const APP: Needs = Needs(1 << 6);
    /// The same address twice.
    pub(crate) const SAME_IP: Needs = Needs(1 << 7);
    /// Options of IPv4.
    pub(crate) const IP_OPTIONS: Needs = Needs(1 << 8);
    /// Bits or an offset that only fragments have, and what is wrong.
    pub(crate) const FRAGMENT: Needs = Needs(1 << 9);
    /// An acknowledgement number of 0.
    pub(crate) const NO_ACK: Needs = Needs(1 << 10);
    /// A packet with which something of the protocol became known.
    pub(crate) const PROTOCOL_TOLD: Needs = Needs(1 << 11);

    #[inline]
    pub(crate) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }
    /// Itself where `yes`, else nothing.
    #[inline]
    pub(crate) const fn if_so(self, yes: bool) -> Needs {
        Needs(self.0 * yes as u16)
    }
    /// What is needed, in words.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Needs, &str); 8] = [
            (Needs::DATA, "payload or stream data"),
            (Needs::FLOW, "a flow"),
            (Needs::STREAM_EVENT, "an event of the stream engine"),
            (Needs::DECODE_EVENT, "an event of the decoder"),
            (Needs::ESTABLISHED, "an established flow"),
            (Needs::PROTOCOL, "a packet after what was recognised of the protocol"),
            (Needs::PROTOCOL_TOLD, "a protocol just recognised"),
            (Needs::APP, "a flow whose protocol is known"),
        ];
        NAMES.into_iter().filter(move |(n, _)| self.0 & n.0 != 0).map(|(_, name)| name)
    }

    /// Together with TCP's flags, or a mask of them.
    const fn word(self, flags: u8) -> u32 {
        self.0 as u32 | (flags as u32) << 16
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

type GroupId = u16;

/// Those of a packet, by number.
pub(crate) type GroupIds = [GroupId; 3];

/// Of no group.
const NO_GROUP: GroupId = GroupId::MAX;

/// Application protocols, by number, that there may be: as many as a [`ProtoSet`] holds.
const PROTOS: usize = u64::BITS as usize;

/// The groups of one transport and direction.
#[derive(Debug)]
struct PortMap {
    /// For each application protocol its group, or that for every packet.
    apps: [GroupId; PROTOS],
    /// The groups of source ports, and of destination ports.
    ports: [Ports; 2],
    /// For each application protocol the group of its usual port, which is the server's, and the one that stands for that and
    /// its own.
    joined: [(GroupId, GroupId); PROTOS],
}

/// Groups of ports.
#[derive(Debug, Default)]
struct Ports {
    /// A bit for each port that has one: few have, and these are in the cache.
    some: Box<[u64]>,
    /// Empty where no port has one.
    groups: Box<[GroupId]>,
}

impl Ports {
    fn fill(&mut self, from: u16, to: u16, id: GroupId) {
        if self.groups.is_empty() {
            self.groups = vec![0; 65536].into_boxed_slice();
            self.some = vec![0; 1024].into_boxed_slice();
        }
        for port in usize::from(from)..=usize::from(to) {
            self.groups[port] = id;
            self.some[port / 64] |= 1 << (port % 64);
        }
    }

    /// That of a port.
    fn get(&self, port: u16) -> Option<GroupId> {
        let port = usize::from(port);
        let has_one = self.some.get(port / 64)? >> (port % 64) & 1 == 1;
        if has_one { self.groups.get(port).copied() } else { None }
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// By [`slot`].
    maps: Vec<PortMap>,
}

/// How many rules and groups there are, for the report and for `engine-analysis`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Groups.
    pub groups: usize,
    /// Places of rules in groups.
    pub memberships: usize,
}

const TRANSPORTS: [u8; 7] = [
    transport::TCP,
    transport::UDP,
    transport::ICMPV4,
    transport::ICMPV6,
    transport::SCTP,
    transport::OTHER,
    transport::NONE,
];

const fn slot(transport: u8, to_client: bool) -> usize {
    transport.trailing_zeros() as usize * 2 + to_client as usize
}

fn width(p: &PortSet) -> u32 {
    if p.any { 65536 } else { p.ranges.iter().map(|&(a, b)| u32::from(b.saturating_sub(a)) + 1).sum() }
}

impl Groups {
    /// Sorts `rules`, which are in their final order, into groups: for a transport at most `max` of
    /// them, to the server and to the client.
    pub(crate) fn new(
        rules: &[GroupRule],
        max: [usize; 2],
        cache: &mut MatcherCache,
    ) -> Result<(Groups, GroupCounts), MpmError> {
        let mut out = Groups::default();
        let mut counts = GroupCounts::default();
        // Lists that are the same (often those of the two directions) are one group.
        let mut made: HashMap<(Vec<u32>, bool), GroupId> = HashMap::new();
        let mut group = |list: Vec<&GroupRule>, streams, groups: &mut Vec<Group>| -> Result<GroupId, MpmError> {
            let key: (Vec<u32>, bool) = (list.iter().map(|r| r.rule).collect(), streams);
            if let Some(&id) = made.get(&key) {
                return Ok(id);
            }
            let id = GroupId::try_from(groups.len()).ok().filter(|&id| id < NO_GROUP).ok_or_else(|| {
                MpmError::Build("more than 65,534 rule groups; lower the number of port groups".into())
            })?;
            counts.memberships += key.0.len();
            groups.push(Group::new(&list, streams, cache));
            made.insert(key, id);
            Ok(id)
        };
        for t in TRANSPORTS {
            for to_client in [false, true] {
                let side = if to_client { TO_CLIENT } else { TO_SERVER };
                let here: Vec<&GroupRule> =
                    rules.iter().filter(|r| r.header.transports & t != 0 && r.header.sides & side != 0).collect();
                let streams = t == transport::TCP;
                let (apps, here): (Vec<_>, Vec<_>) = here.into_iter().partition(|r| r.app.is_some());
                let ported = matches!(t, transport::TCP | transport::UDP);
                let (any, segments) =
                    if ported { split(&here, max[usize::from(to_client)]) } else { (here, <[Vec<_>; 2]>::default()) };
                let for_all = group(any.clone(), streams, &mut out.groups)?;
                let mut map = PortMap {
                    apps: [for_all; PROTOS],
                    ports: <[Ports; 2]>::default(),
                    joined: [(NO_GROUP, NO_GROUP); PROTOS],
                };
                for proto in AppProto::all() {
                    let mut list: Vec<_> =
                        apps.iter().copied().filter(|r| r.app.is_some_and(|set| set.has(proto))).collect();
                    if list.is_empty() {
                        continue;
                    }
                    list.extend(&any);
                    list.sort_by_key(|r| r.rule);
                    // The server's port is that which packets to the client come from.
                    let mut of_server = segments.get(usize::from(!to_client)).into_iter().flatten();
                    let usual = |s: &&Segment<'_>| proto.usual_port().is_some_and(|p| s.0 <= p && p <= s.1);
                    if let Some((.., of_port)) = of_server.find(usual) {
                        let mut both: Vec<_> = list.iter().chain(of_port).copied().collect();
                        both.sort_by_key(|r| r.rule);
                        let port = group(of_port.clone(), streams, &mut out.groups)?;
                        map.joined[proto as usize] = (port, group(both, streams, &mut out.groups)?);
                    }
                    map.apps[proto as usize] = group(list, streams, &mut out.groups)?;
                }
                for (ports, segments) in map.ports.iter_mut().zip(segments) {
                    for (from, to, list) in segments {
                        ports.fill(from, to, group(list, streams, &mut out.groups)?);
                    }
                }
                debug_assert_eq!(out.maps.len(), slot(t, to_client));
                out.maps.push(map);
            }
        }
        counts.groups = out.groups.len();
        Ok((out, counts))
    }

    /// The groups of a packet: that of its flow's protocol, or else that for every packet; and those of its ports.
    pub(crate) fn of(&self, k: &PacketKey, to_client: bool, app: AppProto) -> GroupIds {
        let Some(map) = self.maps.get(slot(k.transport, to_client)) else { return [NO_GROUP; 3] };
        let [source, destination] = &map.ports;
        let source = source.get(k.sport).unwrap_or(NO_GROUP);
        let destination = destination.get(k.dport).unwrap_or(NO_GROUP);
        let own = map.apps.get(app as usize).copied().unwrap_or(NO_GROUP);
        let (server, client) = if to_client { (source, destination) } else { (destination, source) };
        match map.joined.get(app as usize) {
            Some(&(port, both)) if port != NO_GROUP && port == server => [both, client, NO_GROUP],
            _ => [own, server, client],
        }
    }

    /// Those of them that there are.
    pub(crate) fn each(&self, ids: GroupIds) -> impl Iterator<Item = &Group> {
        ids.into_iter().filter_map(|id| self.groups.get(usize::from(id)))
    }
}

/// Ports in `from..=to` and their rules.
type Segment<'a> = (u16, u16, Vec<&'a GroupRule>);

/// By which of its ports a rule is found, and whether by the source port and by the destination port. A rule for both ways
/// is found by either.
fn key_ports(r: &GroupRule) -> (&PortSet, [bool; 2]) {
    let by_source = width(&r.sport) < width(&r.dport);
    let turns = r.header.both || r.header.transaction;
    (if by_source { &r.sport } else { &r.dport }, [turns || by_source, turns || !by_source])
}

/// Splits the rules of one transport and direction into those for every port and those for segments of the port space, by
/// source port and by destination port.
fn split<'a>(rules: &[&'a GroupRule], max: usize) -> (Vec<&'a GroupRule>, [Vec<Segment<'a>>; 2]) {
    let mut widest = 2048;
    loop {
        let (own, any): (Vec<_>, Vec<_>) = rules.iter().copied().partition(|r| width(key_ports(r).0) <= widest);
        let most = 4 * rules.len() + 1024;
        let mut members = 0usize;
        let sides = [0, 1].map(|side| segments(&own, side, most, &mut members));
        let distinct: usize = sides.iter().map(Vec::len).sum();
        if (distinct <= max && members <= most) || widest == 0 {
            return (any, sides);
        }
        widest /= 2;
    }
}

/// The segments that rules name of the ports of one side, counting their `members`; too few where they are more than `most`.
fn segments<'a>(rules: &[&'a GroupRule], side: usize, most: usize, members: &mut usize) -> Vec<Segment<'a>> {
    let here = || rules.iter().copied().map(|r| (r, key_ports(r))).filter(|(_, k)| k.1[side]);
    let mut starts: Vec<u32> = vec![0];
    for (_, (ports, _)) in here() {
        starts.extend(ports.ranges.iter().flat_map(|&(a, b)| [u32::from(a), u32::from(b) + 1]));
    }
    starts.sort_unstable();
    starts.dedup();
    let mut lists: Vec<Vec<&GroupRule>> = vec![Vec::new(); starts.len()];
    'all: for (r, (ports, _)) in here() {
        for &(a, b) in &ports.ranges {
            let from = starts.partition_point(|&s| s < u32::from(a));
            let to = starts.partition_point(|&s| s <= u32::from(b));
            for list in lists.get_mut(from..to).into_iter().flatten() {
                if list.last().is_none_or(|l| l.rule != r.rule) {
                    list.push(r);
                    *members += 1;
                }
            }
            // Many wide ranges cut into many pieces: not to be gathered before it is seen that they are too many.
            if *members > most {
                break 'all;
            }
        }
    }
    let end = |i: usize| starts.get(i + 1).map_or(65535, |e| e - 1);
    lists
        .into_iter()
        .enumerate()
        .filter(|(i, l)| !l.is_empty() && starts[*i] < 65536)
        .map(|(i, l)| (starts[i] as u16, end(i) as u16, l))
        .collect()
}
