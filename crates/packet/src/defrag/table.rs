//! The table of trackers: by key, and by how long they have been without a fragment.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use super::segments::Segments;
use super::{Fragment, KEEP_CAPACITY};
use crate::config::Policy;
use crate::packet::{Packet, Time};

/// Tells datagrams apart (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    /// Of IPv4; IPv6 has no protocol in its key.
    proto: u8,
    vlans: [u16; 3],
}

impl Key {
    /// The key of a fragment.
    pub(super) fn new(p: &Packet<'_>, id: u32, is_v6: bool, vlan_tracking: bool) -> Key {
        let vlans = if vlan_tracking { p.vlans.raw() } else { [0; 3] };
        Key { src: p.src, dst: p.dst, id, proto: if is_v6 { 0 } else { p.proto }, vlans }
    }
}

/// Which tracker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Tracker {
    /// Whether nothing is to be put together any more.
    pub(super) fn is_over(&self) -> bool {
        self.refused || self.settled
    }

    /// Whether a fragment says something else than those of before: other bytes, another end, or if it is the first one, another
    /// protocol. `next` is what it says comes behind its fragment header.
    pub(super) fn contradicts(&self, f: &Fragment, payload: &[u8], next: u8) -> bool {
        let end = f.offset + payload.len();
        let ends = if f.more {
            self.last_end != 0 && end >= self.last_end
        } else {
            self.end > end || (self.last_end != 0 && end != self.last_end)
        };
        let head = f.offset == 0 && !self.head.is_empty() && next != self.next;
        ends || head || self.segments.contradict(f.offset, payload)
    }
}

/// No tracker.
const NONE: u32 = u32::MAX;

/// A datagram in the course of reassembly.
#[derive(Debug)]
pub(super) struct Tracker {
    key: Key,
    pub(super) policy: Policy,
    /// When its last fragment came.
    pub(super) last: Time,
    pub(super) segments: Segments,
    /// Fragments kept.
    pub(super) frags: usize,
    /// Whether two of them overlapped.
    pub(super) overlap: bool,
    /// It was whole, and was dropped.
    pub(super) refused: bool,
    /// Inline: it was whole, and went on; it is kept for what may follow.
    pub(super) settled: bool,
    /// Inline: the way of the last fragment, and whether not all had the same.
    pub(super) way: u64,
    pub(super) uneven: bool,
    /// For IPv6: what the first fragment says comes behind its fragment header.
    pub(super) next: u8,
    /// Where the last fragment (without "more fragments") ended; 0 as long as it is missing.
    pub(super) last_end: usize,
    /// Where the furthest fragment ended.
    pub(super) end: usize,
    /// What lies before the payload in the first fragment's packet.
    pub(super) head: Vec<u8>,
    /// Where in `head` the IP header starts.
    pub(super) ip: usize,
    /// Memory counted for it.
    counted: usize,
    bucket: u32,
    next_in_bucket: u32,
    older: u32,
    newer: u32,
}

impl Tracker {
    fn memory(&self) -> usize {
        size_of::<Tracker>() + self.segments.memory() + self.head.capacity()
    }
}

/// Trackers in use and those that were, in a hash table and a list by age.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Vec<u32>,
    trackers: Vec<Tracker>,
    /// Not in use.
    spare: Vec<u32>,
    limit: usize,
    timeout_micros: i64,
    oldest: u32,
    newest: u32,
    memuse: usize,
    hasher: RandomState,
}

impl Table {
    pub(super) fn new(hash_size: usize, limit: usize, timeout: u32) -> Table {
        let buckets = vec![NONE; hash_size.clamp(1, 1 << 24).next_power_of_two()];
        let memuse = buckets.len() * size_of::<u32>();
        Table {
            buckets,
            trackers: Vec::new(),
            spare: Vec::new(),
            limit: limit.clamp(1, NONE as usize - 1),
            timeout_micros: i64::from(timeout) * 1_000_000,
            oldest: NONE,
            newest: NONE,
            memuse,
            hasher: RandomState::new(),
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memuse(&self) -> usize {
        self.memuse
    }

    pub(super) fn tracker(&self, slot: Slot) -> &Tracker {
        &self.trackers[slot.0 as usize]
    }

    pub(super) fn tracker_mut(&mut self, slot: Slot) -> &mut Tracker {
        &mut self.trackers[slot.0 as usize]
    }

    fn bucket_of(&self, key: &Key) -> u32 {
        (self.hasher.hash_one(key) as usize & (self.buckets.len() - 1)) as u32
    }

    /// The tracker of a datagram.
    pub(super) fn find(&self, key: &Key) -> Option<Slot> {
        let mut at = self.buckets[self.bucket_of(key) as usize];
        while let Some(t) = self.trackers.get(at as usize) {
            if t.key == *key {
                return Some(Slot(at));
            }
            at = t.next_in_bucket;
        }
        None
    }

    /// Whether no tracker can be added.
    pub(super) fn is_full(&self) -> bool {
        self.spare.is_empty() && self.trackers.len() >= self.limit
    }

    /// The tracker that was longest without a fragment.
    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(Slot(self.oldest))
    }

    /// Whether a tracker's last fragment came too long ago.
    pub(super) fn timed_out(&self, slot: Slot, now: Time) -> bool {
        now.micros_since(self.tracker(slot).last) > self.timeout_micros
    }

    /// Adds a tracker. The table must not be full.
    pub(super) fn insert(&mut self, key: &Key, policy: Policy, now: Time) -> Slot {
        let bucket = self.bucket_of(key);
        let at = match self.spare.pop() {
            Some(at) => at,
            None => {
                self.trackers.push(Tracker {
                    key: *key,
                    policy,
                    last: now,
                    segments: Segments::default(),
                    frags: 0,
                    overlap: false,
                    refused: false,
                    settled: false,
                    way: 0,
                    uneven: false,
                    next: 0,
                    last_end: 0,
                    end: 0,
                    head: Vec::new(),
                    ip: 0,
                    counted: 0,
                    bucket,
                    next_in_bucket: NONE,
                    older: NONE,
                    newer: NONE,
                });
                (self.trackers.len() - 1) as u32
            }
        };
        let next = std::mem::replace(&mut self.buckets[bucket as usize], at);
        let t = &mut self.trackers[at as usize];
        t.key = *key;
        t.policy = policy;
        t.last = now;
        t.bucket = bucket;
        t.next_in_bucket = next;
        self.link_newest(at);
        self.account(Slot(at));
        Slot(at)
    }

    /// Makes a tracker the newest.
    pub(super) fn touch(&mut self, slot: Slot) {
        if self.newest != slot.0 {
            self.unlink(slot.0);
            self.link_newest(slot.0);
        }
    }

    fn link_newest(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        let t = &mut self.trackers[at as usize];
        t.older = older;
        t.newer = NONE;
        match self.trackers.get_mut(older as usize) {
            Some(o) => o.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let (older, newer) = (self.trackers[at as usize].older, self.trackers[at as usize].newer);
        match self.trackers.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
        match self.trackers.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
    }

    /// Takes a tracker out of the table; it becomes spare.
    pub(super) fn remove(&mut self, slot: Slot) {
        let at = slot.0;
        self.unlink(at);
        let (bucket, next) = (self.trackers[at as usize].bucket, self.trackers[at as usize].next_in_bucket);
        if self.buckets[bucket as usize] == at {
            self.buckets[bucket as usize] = next;
        } else {
            let mut before = self.buckets[bucket as usize];
            while let Some(t) = self.trackers.get_mut(before as usize) {
                if t.next_in_bucket == at {
                    t.next_in_bucket = next;
                    break;
                }
                before = t.next_in_bucket;
            }
        }
        let t = &mut self.trackers[at as usize];
        t.segments.clear(KEEP_CAPACITY);
        t.head.clear();
        t.frags = 0;
        (t.overlap, t.uneven, t.refused, t.settled) = (false, false, false, false);
        t.last_end = 0;
        t.end = 0;
        self.account(slot);
        self.spare.push(at);
    }

    /// Makes room for `len` bytes in a tracker where `memcap` allows.
    pub(super) fn grow(&mut self, slot: Slot, len: usize, memcap: usize) -> bool {
        let allowed = memcap.saturating_sub(self.memuse);
        let t = &mut self.trackers[slot.0 as usize];
        let grown = t.segments.reserve(len, allowed);
        self.account(slot);
        grown
    }

    /// Gives up the memory of spare trackers.
    pub(super) fn drop_spare(&mut self) {
        for at in 0..self.spare.len() {
            let slot = Slot(self.spare[at]);
            let t = self.tracker_mut(slot);
            t.segments.clear(0);
            t.head = Vec::new();
            self.account(slot);
        }
    }

    /// Counts a tracker's memory anew.
    pub(super) fn account(&mut self, slot: Slot) {
        let t = &mut self.trackers[slot.0 as usize];
        let memory = t.memory();
        let before = std::mem::replace(&mut t.counted, memory);
        self.memuse = self.memuse + memory - before;
    }
}
