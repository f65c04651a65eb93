//! Tags: log packets of the same flow or host after a match.
//!
//! A tag counts the packet that set it and applies from the next packet on. A packet may be both tagged and alerting. If
//! a packet finds a tag expired and sets it again, the packet still counts as tagged.

use std::net::IpAddr;

use margay_packet::Time;
use margay_rules::ast::{Tag, TagScope, TagUnit};

use crate::bounded::{Bounded, Inserted, Worth};

/// Most tags of one flow or host; further ones are not set.
const TAGS_MAX: usize = 10;

/// How often matches restart a tag before it has to run out, as in Suricata 7.
const RESTARTS_MAX: u8 = 9;

#[derive(Debug, Clone, Copy)]
struct Active {
    /// Generator and signature number of the rule that set the tag.
    rule: (u32, u32),
    unit: TagUnit,
    limit: u64,
    /// Packets or bytes so far.
    count: u64,
    start: Time,
    last: Time,
    /// Whether the last packet found the tag expired. The next packet removes it.
    over: bool,
    restarts: u8,
}

/// Tags of a flow that moves to another worker.
#[derive(Debug)]
pub struct FlowTags(Vec<Active>);

/// A worker's tags of flows and hosts.
#[derive(Debug)]
pub(crate) struct Tags {
    flows: Bounded<u64, Vec<Active>>,
    hosts: Bounded<IpAddr, Vec<Active>>,
    /// Tags that were not set because a table or list was full.
    pub(crate) memcap: u64,
}

/// An unused tag is forgotten after this many microseconds.
const IDLE: i64 = 3600 * 1_000_000;

/// The facts of a packet that tags use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tagged {
    pub(crate) flow: Option<u64>,
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) time: Time,
    /// Length on the wire, in bytes.
    pub(crate) len: u32,
}

/// Counts a packet in every tag of a list; returns whether a tag still held.
fn count(tags: &mut Vec<Active>, p: &Tagged) -> bool {
    let mut held = false;
    tags.retain(|t| !t.over);
    for t in tags {
        t.last = p.time;
        let holds = match t.unit {
            TagUnit::Packets => {
                t.count += 1;
                t.count <= t.limit
            }
            TagUnit::Bytes => {
                t.count += u64::from(p.len);
                t.count <= t.limit
            }
            TagUnit::Seconds => {
                p.time.secs().saturating_sub(t.start.secs()) <= i64::try_from(t.limit).unwrap_or(i64::MAX)
            }
        };
        held |= holds;
        t.over = !holds;
    }
    held
}

impl Tags {
    pub(crate) fn new(max: usize) -> Self {
        Tags { flows: Bounded::new(max), hosts: Bounded::new(max), memcap: 0 }
    }

    /// Takes over the tags of the rules before a reload, but keeps its own limit.
    pub(crate) fn take_over(&mut self, old: &mut Tags) {
        let (flows, hosts) = (self.flows.limit(), self.hosts.limit());
        std::mem::swap(&mut self.flows, &mut old.flows);
        std::mem::swap(&mut self.hosts, &mut old.hosts);
        self.flows.set_limit(flows);
        self.hosts.set_limit(hosts);
        self.memcap = old.memcap;
    }

    /// Whether there are no tags.
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.len() == 0 && self.hosts.len() == 0
    }

    /// Counts a packet in all tags that apply to it; returns whether there was one.
    pub(crate) fn packet(&mut self, p: &Tagged) -> bool {
        let mut held = false;
        if let Some(id) = p.flow
            && let Some(tags) = self.flows.get_mut(&id)
        {
            held |= count(tags, p);
            if tags.is_empty() {
                self.flows.remove(&id);
            }
        }
        if self.hosts.len() != 0 {
            for a in [p.src, p.dst] {
                if let Some(tags) = self.hosts.get_mut(&a) {
                    held |= count(tags, p);
                    if tags.is_empty() {
                        self.hosts.remove(&a);
                    }
                }
                if p.src == p.dst {
                    break;
                }
            }
        }
        held
    }

    /// Sets a tag of `rule`, or restarts it; returns whether it was set before this packet. Without a flow, a session
    /// tag applies to the destination host.
    pub(crate) fn set(&mut self, rule: (u32, u32), tag: &Tag, p: &Tagged) -> bool {
        let (limit, unit) = (u64::from(tag.count), tag.unit);
        let count = match unit {
            TagUnit::Packets => 1,
            TagUnit::Bytes => u64::from(p.len),
            TagUnit::Seconds => 0,
        };
        let active = Active { rule, unit, limit, count, start: p.time, last: p.time, over: false, restarts: 0 };
        let list = match (tag.scope, p.flow) {
            (TagScope::Session, Some(id)) => room(&mut self.flows, id, p.time),
            (TagScope::HostSource, _) => room(&mut self.hosts, p.src, p.time),
            (TagScope::HostDestination | TagScope::Session, _) => room(&mut self.hosts, p.dst, p.time),
        };
        let Some(list) = list else {
            self.memcap = self.memcap.saturating_add(1);
            return false;
        };
        if let Some(t) = list.iter_mut().find(|t| t.rule == rule && t.unit == active.unit && t.limit == active.limit) {
            if t.restarts == RESTARTS_MAX {
                return false;
            }
            let before = t.start < p.time;
            *t = Active { restarts: t.restarts + 1, ..active };
            return before;
        }
        if list.len() < TAGS_MAX {
            list.push(active);
        } else {
            self.memcap = self.memcap.saturating_add(1);
        }
        false
    }

    /// Removes and returns the tags of a flow that moves to another worker.
    pub(crate) fn leave(&mut self, id: u64) -> Option<FlowTags> {
        if self.flows.len() == 0 {
            return None;
        }
        self.flows.remove(&id).map(FlowTags)
    }

    /// Adds the tags of a flow that comes from another worker.
    pub(crate) fn enter(&mut self, id: u64, tags: FlowTags) {
        let latest = tags.0.iter().map(|t| t.last).max().unwrap_or_default();
        match room(&mut self.flows, id, latest) {
            Some(list) => *list = tags.0,
            None => self.memcap = self.memcap.saturating_add(tags.0.len() as u64),
        }
    }

    /// Forgets the tags of a flow that ended.
    pub(crate) fn flow_ended(&mut self, id: u64) {
        if self.flows.len() != 0 {
            self.flows.remove(&id);
        }
    }
}

/// The tag list of a key. If the table is full, this inspects a few lists and evicts long unused ones; `None` if there
/// are none.
fn room<K: std::hash::Hash + Eq>(table: &mut Bounded<K, Vec<Active>>, key: K, now: Time) -> Option<&mut Vec<Active>> {
    let used = |l: &Vec<Active>| l.iter().any(|t| now.micros_since(t.last) < IDLE);
    match table.insert(key, Vec::new, |l| if used(l) { Worth::Kept } else { Worth::Nothing }) {
        Inserted::There(list) | Inserted::New { value: list, .. } => Some(list),
        Inserted::Full => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(n: u32) -> Tagged {
        let (a, b) = (IpAddr::V4(1.into()), IpAddr::V4(2.into()));
        let (src, dst) = if n.is_multiple_of(2) { (a, b) } else { (b, a) };
        Tagged { flow: Some(1), src, dst, time: Time(1_000_000 + i64::from(n) * 100_000), len: 29 }
    }

    /// The number of tagged packets after the match, and the number of the last one.
    fn tagged(tags: &[Tag]) -> (usize, u32) {
        let mut t = Tags::new(10);
        for tag in tags {
            assert!(!t.set((1, 1), tag, &packet(0)));
        }
        let list: Vec<u32> = (1..=400).filter(|&n| t.packet(&packet(n))).collect();
        (list.len(), list.last().copied().unwrap_or(0))
    }

    fn tag(scope: TagScope, count: u32, unit: TagUnit) -> Tag {
        Tag { scope, count, unit }
    }

    /// A rule that matches on every packet.
    #[test]
    fn restarts_have_a_limit() {
        let mut t = Tags::new(10);
        let tag = tag(TagScope::Session, 3, TagUnit::Packets);
        let not_tagged: Vec<u32> = (1..40)
            .filter(|&n| {
                let held = t.packet(&packet(n));
                !(t.set((1, 1), &tag, &packet(n)) || held)
            })
            .collect();
        assert_eq!(not_tagged, [1, 13, 14, 26, 27, 39]);
    }

    #[test]
    fn as_the_reference() {
        use {TagScope as S, TagUnit as U};
        assert_eq!(tagged(&[tag(S::Session, 256, U::Packets)]), (255, 255));
        assert_eq!(tagged(&[tag(S::Session, 0, U::Packets)]), (0, 0));
        assert_eq!(tagged(&[tag(S::HostSource, 0, U::Bytes)]), (0, 0));
        assert_eq!(tagged(&[tag(S::Session, 3, U::Packets)]), (2, 2));
        assert_eq!(tagged(&[tag(S::HostSource, 3, U::Packets)]), (2, 2));
        assert_eq!(tagged(&[tag(S::HostDestination, 256, U::Packets)]), (255, 255));
        assert_eq!(tagged(&[tag(S::Session, 5, U::Seconds)]), (59, 59));
        assert_eq!(tagged(&[tag(S::HostSource, 300, U::Bytes)]), (9, 9));
        assert_eq!(tagged(&[tag(S::Session, 2, U::Packets), tag(S::HostSource, 4, U::Packets)]), (3, 3));
    }

    #[test]
    fn set_again_when_over() {
        let mut t = Tags::new(10);
        let one = tag(TagScope::Session, 1, TagUnit::Packets);
        assert!(!t.set((1, 1), &one, &packet(0)));
        assert!(!t.packet(&packet(1)) && t.set((1, 1), &one, &packet(1)));
        assert!(!t.packet(&packet(2)) && !t.packet(&packet(3)) && t.is_empty());
        assert!(!t.set((1, 1), &one, &packet(3)));
    }

    #[test]
    fn the_tables_are_bounded() {
        let mut t = Tags::new(1);
        t.set((1, 1), &tag(TagScope::Session, 2, TagUnit::Packets), &packet(0));
        let mut other = packet(0);
        other.flow = Some(2);
        t.set((1, 1), &tag(TagScope::Session, 2, TagUnit::Packets), &other);
        assert_eq!((t.flows.len(), t.memcap), (1, 1));
        t.flow_ended(1);
        assert!(t.is_empty());
    }
}
