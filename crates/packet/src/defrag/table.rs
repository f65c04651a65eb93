//! The table of trackers: by key, by age, and by sender.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use super::segments::Segments;
use super::shares::Shares;
use super::{Fragment, KEEP_CAPACITY};
use crate::config::Policy;
use crate::keyed::KeyedHash;
use crate::packet::{Packet, Time};

/// Tells datagrams apart (RFC 791 section 3.2, RFC 8200 section 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    /// The keyed hash of the other fields.
    hash: u64,
    src: IpAddr,
    pub(super) dst: IpAddr,
    id: u32,
    /// The IPv4 protocol; 0 for IPv6, whose key has none.
    proto: u8,
    vlans: [u16; 3],
}

impl Key {
    /// The sender: an IPv4 address, or the first 64 bits of an IPv6 address, since one sender may own all addresses of a /64.
    fn source(&self) -> IpAddr {
        match self.src {
            IpAddr::V6(a) => IpAddr::from(Ipv6Addr::from_bits(a.to_bits() & !u128::from(u64::MAX))),
            v4 => v4,
        }
    }
}

/// A tracker's index in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// The treatment of further fragments of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// They are reassembled.
    #[default]
    Open,
    /// Inline: the complete datagram was dropped, and further fragments are dropped too.
    Refused,
    /// The datagram was complete. Hashes of its fragments are remembered; inline, no other fragment of it is forwarded.
    Settled,
    /// The tracker is unused.
    Spare,
}

/// A fragment that arrived, by its place and a hash of its bytes: the value, at a random point, of a polynomial over
/// the field of [`PRIME`]. Two different fragments of `n` bytes have the same hash in `n` of 7 * 2^61 cases, even if an
/// attacker made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    from: u16,
    len: u16,
    more: bool,
    hash: u64,
}

impl Tracker {
    /// Whether a fragment contradicts earlier ones: other bytes, another end of the datagram, or another next header of
    /// the first fragment. `next` is this fragment's.
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

/// 2^61 - 1.
const PRIME: u64 = (1 << 61) - 1;

/// `n` modulo [`PRIME`], for `n` up to a little over its square.
fn reduce(n: u128) -> u64 {
    let n = (n & u128::from(PRIME)) as u64 + (n >> 61) as u64;
    if n >= PRIME { n - PRIME } else { n }
}

/// No tracker.
const NONE: u32 = u32::MAX;
/// Memory of a map entry, or of a mark in its tree.
const ENTRY: usize = 64;
const MARK: usize = 32;

/// A datagram, in reassembly or remembered.
#[derive(Debug)]
pub(super) struct Tracker {
    key: Key,
    pub(super) policy: Policy,
    /// Seconds that it may take (`defrag.timeout`, `defrag.host-config`).
    pub(super) timeout: u32,
    pub(super) state: State,
    /// When its first fragment arrived.
    pub(super) first: Time,
    /// When its latest fragment arrived.
    pub(super) last: Time,
    pub(super) segments: Segments,
    /// Whether it was complete and another fragment with its identification arrived: of a new datagram, or a
    /// retransmission.
    pub(super) reopened: bool,
    /// The fragments that arrived.
    marks: BTreeSet<Mark>,
    /// Fragments kept.
    pub(super) frags: usize,
    /// Whether two of them overlapped.
    pub(super) overlap: bool,
    /// The number of fragments that its sender had sent to its receiver when the latest one of this datagram arrived.
    pub(super) serial: u32,
    /// For IPv6: the next header in the first fragment.
    pub(super) next: u8,
    /// Where the datagram's last fragment (without "more fragments") ends; 0 while it is missing.
    pub(super) last_end: usize,
    /// The highest end of any fragment.
    pub(super) end: usize,
    /// The bytes before the payload in the first fragment's packet.
    pub(super) head: Vec<u8>,
    /// Where in `head` the IP header starts.
    pub(super) ip: usize,
    /// Memory counted for it.
    counted: usize,
    bucket: u32,
    next_in_bucket: u32,
    /// Its neighbours by age in `Table::live` or `Table::settled`.
    of_all: Links,
    /// Its neighbours by age among those of its sender, while it is open or refused.
    of_sender: Links,
    /// The place of its sender in `Table::senders`, while it is open or refused.
    sender: u32,
    /// [`Policy::Linux`]: the place of its sender and receiver in `Table::pairs`.
    pair: u32,
}

/// Neighbours in a list.
#[derive(Debug, Clone, Copy)]
struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    const NONE: Links = Links { older: NONE, newer: NONE };
}

/// The ends of a list, and its length.
#[derive(Debug, Clone, Copy)]
struct List {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl List {
    const EMPTY: List = List { oldest: NONE, newest: NONE, len: 0 };
}

/// One sender's datagrams that are in reassembly or refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    list: List,
    /// Fragments kept.
    pub(super) frags: usize,
    /// Bytes of memory.
    pub(super) memory: usize,
}

impl Sender {
    const NONE: Sender = Sender { list: List::EMPTY, frags: 0, memory: 0 };

    /// The number of datagrams.
    pub(super) fn trackers(&self) -> usize {
        self.list.len
    }

    /// The oldest datagram.
    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.list.oldest != NONE).then_some(Slot(self.list.oldest))
    }
}

impl Tracker {
    fn memory(&self) -> usize {
        size_of::<Tracker>() + self.segments.memory() + self.head.capacity() + self.marks.len() * MARK
    }

    /// Whether its datagram is IPv6.
    pub(super) fn is_v6(&self) -> bool {
        self.key.src.is_ipv6()
    }
}

/// All trackers, used and spare, with a hash table and lists by age.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Vec<u32>,
    trackers: Vec<Tracker>,
    /// Unused trackers.
    spare: Vec<u32>,
    limit: usize,
    /// Datagrams in reassembly, or refused.
    live: List,
    /// Complete datagrams whose fragments are remembered.
    settled: List,
    /// The share of each sender in `live`.
    senders: Shares<IpAddr, Sender>,
    /// Fragments kept.
    frags: usize,
    /// [`Policy::Linux`]: for each sender and receiver with a tracker, the number of fragments sent since then, and of
    /// trackers.
    pairs: Shares<(IpAddr, IpAddr), (u32, u32)>,
    memuse: usize,
    hasher: KeyedHash,
    /// The secret point at which fragment hashes are evaluated.
    point: u64,
}

impl Table {
    pub(super) fn new(hash_size: usize, limit: usize) -> Table {
        let buckets = vec![NONE; hash_size.clamp(1, 1 << 24).next_power_of_two()];
        let memuse = buckets.len() * size_of::<u32>();
        let hasher = KeyedHash::default();
        let point = hasher.hash_one(0) % PRIME;
        Table {
            buckets,
            trackers: Vec::new(),
            spare: Vec::new(),
            limit: limit.clamp(1, NONE as usize - 1),
            live: List::EMPTY,
            settled: List::EMPTY,
            senders: Shares::default(),
            frags: 0,
            pairs: Shares::default(),
            memuse,
            hasher,
            point,
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memuse(&self) -> usize {
        self.memuse
    }

    /// Most trackers.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn tracker(&self, slot: Slot) -> &Tracker {
        &self.trackers[slot.0 as usize]
    }

    pub(super) fn tracker_mut(&mut self, slot: Slot) -> &mut Tracker {
        &mut self.trackers[slot.0 as usize]
    }

    /// The key of a fragment.
    pub(super) fn key(&self, p: &Packet<'_>, id: u32, is_v6: bool, vlan_tracking: bool) -> Key {
        let vlans = if vlan_tracking { p.vlans.raw() } else { [0; 3] };
        let proto = if is_v6 { 0 } else { p.proto };
        let [outer, middle, inner] = vlans.map(u64::from);
        let rest = (u64::from(id), outer << 48 | middle << 32 | inner << 16 | u64::from(proto));
        let hash = match (p.src, p.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.hasher.hash_one((u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()), rest))
            }
            (src, dst) => self.hasher.hash_one((src, dst, rest)),
        };
        Key { hash, src: p.src, dst: p.dst, id, proto, vlans }
    }

    fn bucket_of(&self, key: &Key) -> u32 {
        (key.hash as usize & (self.buckets.len() - 1)) as u32
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
        self.live.len + self.settled.len >= self.limit
    }

    /// The oldest datagram in reassembly, or refused.
    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.live.oldest != NONE).then_some(Slot(self.live.oldest))
    }

    /// The oldest complete datagram that is remembered.
    pub(super) fn oldest_settled(&self) -> Option<Slot> {
        (self.settled.oldest != NONE).then_some(Slot(self.settled.oldest))
    }

    /// The number of complete datagrams that are remembered.
    pub(super) fn settled(&self) -> usize {
        self.settled.len
    }

    /// Fragments kept.
    pub(super) fn frags(&self) -> usize {
        self.frags
    }

    /// The share of a datagram's sender.
    pub(super) fn sender(&self, key: &Key) -> Sender {
        self.senders.get(&key.source()).copied().unwrap_or(Sender::NONE)
    }

    /// Counts a tracker's fragment. Returns how many its sender sent to its receiver, this one included, since there is a
    /// tracker for them.
    pub(super) fn count(&mut self, slot: Slot) -> u32 {
        match self.pairs.at_mut(self.trackers[slot.0 as usize].pair) {
            Some((n, _)) => {
                *n = n.wrapping_add(1);
                *n
            }
            None => 0,
        }
    }

    /// Adds a tracker. The table must not be full.
    pub(super) fn insert(&mut self, key: &Key, policy: Policy, timeout: u32, now: Time) -> Slot {
        let bucket = self.bucket_of(key);
        let at = match self.spare.pop() {
            Some(at) => at,
            None => {
                self.trackers.push(Tracker {
                    key: *key,
                    policy,
                    timeout,
                    state: State::Open,
                    first: now,
                    last: now,
                    segments: Segments::default(),
                    reopened: false,
                    marks: BTreeSet::new(),
                    frags: 0,
                    overlap: false,
                    serial: 0,
                    next: 0,
                    last_end: 0,
                    end: 0,
                    head: Vec::new(),
                    ip: 0,
                    counted: 0,
                    bucket,
                    next_in_bucket: NONE,
                    of_all: Links::NONE,
                    of_sender: Links::NONE,
                    sender: NONE,
                    pair: NONE,
                });
                (self.trackers.len() - 1) as u32
            }
        };
        let next = std::mem::replace(&mut self.buckets[bucket as usize], at);
        let t = &mut self.trackers[at as usize];
        t.key = *key;
        t.policy = policy;
        t.timeout = timeout;
        t.state = State::Open;
        t.reopened = false;
        (t.first, t.last) = (now, now);
        t.serial = 0;
        t.bucket = bucket;
        t.next_in_bucket = next;
        t.pair = NONE;
        if policy == Policy::Linux {
            let (place, new) = self.pairs.enter((key.src, key.dst), (0, 0));
            t.pair = place;
            self.memuse += if new { ENTRY } else { 0 };
            if let Some(pair) = self.pairs.at_mut(place) {
                pair.1 += 1;
            }
        }
        self.link(at);
        self.account(Slot(at));
        Slot(at)
    }

    /// Makes a tracker the newest.
    pub(super) fn touch(&mut self, slot: Slot) {
        let at = slot.0;
        if self.trackers[at as usize].state == State::Settled {
            self.settled = self.pull(self.settled, at, false);
            self.settled = self.push(self.settled, at, false);
            return;
        }
        self.live = self.pull(self.live, at, false);
        self.live = self.push(self.live, at, false);
        let place = self.trackers[at as usize].sender;
        if let Some(list) = self.senders.at(place).map(|s| s.list) {
            let list = self.pull(list, at, true);
            let list = self.push(list, at, true);
            if let Some(sender) = self.senders.at_mut(place) {
                sender.list = list;
            }
        }
    }

    /// Marks a tracker's datagram as complete: only the hashes of its fragments stay.
    pub(super) fn settle(&mut self, slot: Slot) {
        self.count_frags(slot, 0);
        self.unlink(slot.0);
        let t = &mut self.trackers[slot.0 as usize];
        t.state = State::Settled;
        t.segments.clear(0);
        t.head = Vec::new();
        self.link(slot.0);
        self.account(slot);
    }

    /// Another fragment of a complete datagram arrived: reassembly starts again, and the hashes of its fragments stay.
    pub(super) fn reopen(&mut self, slot: Slot, now: Time) {
        self.unlink(slot.0);
        let t = &mut self.trackers[slot.0 as usize];
        t.state = State::Open;
        t.reopened = true;
        (t.overlap, t.last_end, t.end) = (false, 0, 0);
        (t.first, t.last) = (now, now);
        self.link(slot.0);
    }

    /// Marks a complete datagram as dropped: its further fragments are refused.
    pub(super) fn refuse(&mut self, slot: Slot) {
        let last = self.tracker(slot).last;
        self.start_over(slot, last);
        self.account(slot);
        self.unlink(slot.0);
        self.trackers[slot.0 as usize].state = State::Refused;
        self.link(slot.0);
    }

    /// Sets the number of fragments that a tracker keeps.
    pub(super) fn count_frags(&mut self, slot: Slot, frags: usize) {
        let t = &mut self.trackers[slot.0 as usize];
        let before = std::mem::replace(&mut t.frags, frags);
        self.frags = self.frags + frags - before;
        if let Some(sender) = self.senders.at_mut(t.sender) {
            sender.frags = (sender.frags + frags).saturating_sub(before);
        }
    }

    /// Forgets the fragments of a tracker, as a host does that starts over.
    pub(super) fn start_over(&mut self, slot: Slot, now: Time) {
        self.count_frags(slot, 0);
        let t = &mut self.trackers[slot.0 as usize];
        t.segments.clear(KEEP_CAPACITY);
        t.head.clear();
        t.marks.clear();
        (t.overlap, t.last_end, t.end) = (false, 0, 0);
        (t.first, t.last) = (now, now);
    }

    /// Records a fragment that arrived.
    pub(super) fn mark(&mut self, slot: Slot, f: &Fragment, payload: &[u8], next: u8) {
        let mark = self.mark_of(f, payload, next);
        self.trackers[slot.0 as usize].marks.insert(mark);
    }

    /// Whether an identical fragment arrived before.
    pub(super) fn is_marked(&self, slot: Slot, f: &Fragment, payload: &[u8], next: u8) -> bool {
        self.tracker(slot).marks.contains(&self.mark_of(f, payload, next))
    }

    fn mark_of(&self, f: &Fragment, payload: &[u8], next: u8) -> Mark {
        // The next header counts only in the first fragment.
        let first = u64::from(if f.offset == 0 { next } else { 0 });
        // Seven bytes at a time, which as a number are below the prime.
        let step = |h: u64, bytes: [u8; 8]| {
            reduce(u128::from(h) * u128::from(self.point) + u128::from(u64::from_le_bytes(bytes)))
        };
        let (sevens, rest) = payload.as_chunks::<7>();
        let whole = |h, &[a, b, c, d, e, f, g]: &[u8; 7]| step(h, [a, b, c, d, e, f, g, 0]);
        let mut hash = sevens.iter().fold(first, whole);
        if !rest.is_empty() {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            hash = step(hash, bytes);
        }
        Mark { from: f.offset as u16, len: payload.len() as u16, more: f.more, hash }
    }

    fn links(&mut self, at: u32, of_sender: bool) -> Option<&mut Links> {
        let t = self.trackers.get_mut(at as usize)?;
        Some(if of_sender { &mut t.of_sender } else { &mut t.of_all })
    }

    fn push(&mut self, mut list: List, at: u32, of_sender: bool) -> List {
        let older = std::mem::replace(&mut list.newest, at);
        if let Some(l) = self.links(at, of_sender) {
            *l = Links { older, newer: NONE };
        }
        match self.links(older, of_sender) {
            Some(o) => o.newer = at,
            None => list.oldest = at,
        }
        list.len += 1;
        list
    }

    fn pull(&mut self, mut list: List, at: u32, of_sender: bool) -> List {
        let Some(Links { older, newer }) = self.links(at, of_sender).copied() else { return list };
        match self.links(older, of_sender) {
            Some(o) => o.newer = newer,
            None => list.oldest = newer,
        }
        match self.links(newer, of_sender) {
            Some(n) => n.older = older,
            None => list.newest = older,
        }
        list.len -= 1;
        list
    }

    fn link(&mut self, at: u32) {
        let t = &self.trackers[at as usize];
        if t.state == State::Settled {
            self.settled = self.push(self.settled, at, false);
            return;
        }
        let (source, frags, memory) = (t.key.source(), t.frags, t.counted);
        self.live = self.push(self.live, at, false);
        let (place, new) = self.senders.enter(source, Sender::NONE);
        self.memuse += if new { ENTRY } else { 0 };
        self.trackers[at as usize].sender = place;
        let Some(list) = self.senders.at(place).map(|s| s.list) else { return };
        let list = self.push(list, at, true);
        if let Some(sender) = self.senders.at_mut(place) {
            sender.list = list;
            sender.frags += frags;
            sender.memory += memory;
        }
    }

    fn unlink(&mut self, at: u32) {
        let t = &mut self.trackers[at as usize];
        if t.state == State::Settled {
            self.settled = self.pull(self.settled, at, false);
            return;
        }
        let place = std::mem::replace(&mut t.sender, NONE);
        let (source, frags, memory) = (t.key.source(), t.frags, t.counted);
        self.live = self.pull(self.live, at, false);
        let Some(list) = self.senders.at(place).map(|s| s.list) else { return };
        let list = self.pull(list, at, true);
        if list.len == 0 {
            self.senders.leave(&source, place);
            self.memuse -= ENTRY;
        } else if let Some(sender) = self.senders.at_mut(place) {
            sender.list = list;
            sender.frags = sender.frags.saturating_sub(frags);
            sender.memory = sender.memory.saturating_sub(memory);
        }
    }

    /// Takes a tracker out of the table; it becomes spare.
    pub(super) fn remove(&mut self, slot: Slot) {
        let at = slot.0;
        let last = self.tracker(slot).last;
        self.start_over(slot, last);
        self.account(slot);
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
        t.state = State::Spare;
        let (key, place) = (t.key, std::mem::replace(&mut t.pair, NONE));
        if let Some(pair) = self.pairs.at_mut(place) {
            pair.1 -= 1;
            if pair.1 == 0 {
                self.pairs.leave(&(key.src, key.dst), place);
                self.memuse -= ENTRY;
            }
        }
        self.spare.push(at);
    }

    /// Makes room for a fragment, with `head` bytes of headers, in a tracker; `false` if `memcap` does not allow it.
    pub(super) fn grow(&mut self, slot: Slot, f: &Fragment, head: usize, memcap: usize) -> bool {
        let t = &mut self.trackers[slot.0 as usize];
        let others = MARK + head.saturating_sub(t.head.capacity());
        let allowed = memcap.saturating_sub(self.memuse + others);
        let grown = t.segments.reserve(t.policy, f.offset, f.end - f.start, allowed);
        if grown {
            t.head.reserve_exact(head.saturating_sub(t.head.len()));
        }
        self.account(slot);
        grown
    }

    /// Frees the memory of spare trackers.
    pub(super) fn drop_spare(&mut self) {
        for at in 0..self.spare.len() {
            self.drop_memory(Slot(self.spare[at]));
        }
    }

    /// Frees the memory of a spare tracker.
    pub(super) fn drop_memory(&mut self, slot: Slot) {
        let t = self.tracker_mut(slot);
        t.segments.clear(0);
        t.head = Vec::new();
        self.account(slot);
    }

    /// Updates a tracker's memory.
    pub(super) fn account(&mut self, slot: Slot) {
        let t = &mut self.trackers[slot.0 as usize];
        let memory = t.memory();
        let before = std::mem::replace(&mut t.counted, memory);
        self.memuse = self.memuse + memory - before;
        if let Some(sender) = self.senders.at_mut(t.sender) {
            sender.memory = (sender.memory + memory).saturating_sub(before);
        }
    }
}
