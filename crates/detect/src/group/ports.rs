//! Selects a packet's groups by transport, direction, application protocol and ports.

use std::collections::HashMap;

use margay_app::AppProto;
use margay_rules::ast::PortSet;

use super::{Group, GroupRule};
use crate::header::{PacketKey, TO_CLIENT, TO_SERVER, transport};
use crate::mpm::{MatcherCache, MpmError};

type GroupId = u16;

/// A packet's groups, by number.
pub(crate) type GroupIds = [GroupId; 3];

/// The number that means no group.
const NO_GROUP: GroupId = GroupId::MAX;

/// Most application protocols: the size of a [`ProtoSet`].
const PROTOS: usize = u64::BITS as usize;

/// The groups of one transport and direction.
#[derive(Debug)]
struct PortMap {
    /// For each application protocol its group, or the group for every packet.
    apps: [GroupId; PROTOS],
    /// The groups of source ports, and of destination ports.
    ports: [Ports; 2],
    /// For each application protocol, the group of its usual server port, and the group that replaces both that one and
    /// the protocol's own.
    joined: [(GroupId, GroupId); PROTOS],
}

/// Groups of ports.
#[derive(Debug, Default)]
struct Ports {
    /// One bit for each port that has a group. Few ports have one, so this bitmap stays in the CPU cache.
    some: Box<[u64]>,
    /// Empty if no port has a group.
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

    /// The group of a port.
    fn get(&self, port: u16) -> Option<GroupId> {
        let port = usize::from(port);
        let has_one = self.some.get(port / 64)? >> (port % 64) & 1 == 1;
        if has_one { self.groups.get(port).copied() } else { None }
    }
}

/// Server ports whose packets of one direction meet a rule that inspects streams. Suricata groups rules by the destination port
/// to the server and by the source port to the client. The rule's other conditions do not matter here.
#[derive(Debug)]
struct StreamPorts(Box<[u64; 1024]>);

impl StreamPorts {
    fn of(rules: &[GroupRule], to_client: bool) -> StreamPorts {
        let side = if to_client { TO_CLIENT } else { TO_SERVER };
        // At each port, how many more ranges begin than end.
        let mut steps = vec![0i64; 65537];
        for r in rules {
            if !r.of_streams || r.header.transports & transport::TCP == 0 || r.header.sides & side == 0 {
                continue;
            }
            let (server, client) = if to_client { (&r.sport, &r.dport) } else { (&r.dport, &r.sport) };
            let turns = r.header.both || r.header.transaction;
            for ports in std::iter::once(server).chain(turns.then_some(client)) {
                let all = [(0, u16::MAX)];
                for &(from, to) in if ports.any { &all[..] } else { &ports.ranges[..] } {
                    steps[usize::from(from)] += 1;
                    steps[usize::from(to) + 1] -= 1;
                }
            }
        }
        let (mut set, mut open) = (Box::new([0u64; 1024]), 0);
        for (port, step) in steps.iter().enumerate().take(65536) {
            open += step;
            set[port / 64] |= u64::from(open > 0) << (port % 64);
        }
        StreamPorts(set)
    }

    const fn has(&self, port: u16) -> bool {
        self.0[port as usize / 64] >> (port % 64) & 1 == 1
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// Indexed by [`slot`].
    maps: Vec<PortMap>,
    /// To the server, and to the client.
    stream_ports: Option<[StreamPorts; 2]>,
}

/// Numbers of rules and groups, for the report and for `engine-analysis`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Groups.
    pub groups: usize,
    /// Sum of the groups' sizes.
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
    /// Sorts `rules`, which are in their final order, into groups: at most `max` for one transport to the server, and to
    /// the client.
    pub(crate) fn new(
        rules: &[GroupRule],
        max: [usize; 2],
        cache: &mut MatcherCache,
    ) -> Result<(Groups, GroupCounts), MpmError> {
        let mut out = Groups::default();
        let mut counts = GroupCounts::default();
        // Equal rule lists, often those of the two directions, share one group.
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
                    // In packets to the client, the server's port is the source port.
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
        out.stream_ports = Some([false, true].map(|to_client| StreamPorts::of(rules, to_client)));
        counts.groups = out.groups.len();
        Ok((out, counts))
    }

    /// Whether a rule for streams concerns the packet's direction and server port.
    pub(crate) fn look_at_streams(&self, k: &PacketKey, to_client: bool) -> bool {
        let Some([to_server, from_server]) = &self.stream_ports else { return false };
        if to_client { from_server.has(k.sport) } else { to_server.has(k.dport) }
    }

    /// The groups of a packet: the group of its flow's protocol, or else the one for every packet, and those of its
    /// ports.
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

    /// The groups behind these numbers.
    pub(crate) fn each(&self, ids: GroupIds) -> impl Iterator<Item = &Group> {
        ids.into_iter().filter_map(|id| self.groups.get(usize::from(id)))
    }
}

/// Ports in `from..=to` and their rules.
type Segment<'a> = (u16, u16, Vec<&'a GroupRule>);

/// The port set that indexes a rule, and whether it is looked up by source port and by destination port. A bidirectional
/// rule is looked up by both.
fn key_ports(r: &GroupRule) -> (&PortSet, [bool; 2]) {
    let by_source = width(&r.sport) < width(&r.dport);
    let turns = r.header.both || r.header.transaction;
    (if by_source { &r.sport } else { &r.dport }, [turns || by_source, turns || !by_source])
}

/// Splits the rules of one transport and direction into those for every port and those for segments of the port space,
/// by source port and by destination port.
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

/// The segments that rules form on the ports of one side; counts their `members`. Stops early if there are more than
/// `most`.
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
            // Many wide ranges split into many pieces. Stop before collecting them all.
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
