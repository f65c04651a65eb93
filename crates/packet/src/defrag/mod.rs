//! The defragmenter: keeps fragments by datagram until it is whole.
//!
//! A tracker stands for a datagram in the course of reassembly. Its fragments' bytes are appended to one buffer as they
//! come; a sorted list of segments says which bytes of that buffer make up the datagram, and whose they are, so that the
//! policy of the destination can decide where fragments overlap. Trackers keep their buffers when they are reused:
//! after a while nothing is allocated.
//!
//! Inline, fragments go on as they come, and a host that misses one must not put together what was not inspected: what came first
//! counts, and what says something else is refused ([`Refused`]); so is what comes of a datagram that was dropped. One whose fragments
//! took different ways may not have arrived whole: it is kept until it would time out, and stays what it was.
//!
//! Limits: trackers (the one that was longest without a fragment gives way; inline the new one), fragments and memory (what does not fit is
//! not kept, and the packet says so), time (a datagram not whole by then is forgotten).

mod segments;
mod table;

use std::net::IpAddr;

use crate::checksum::internet;
use crate::config::{DefragConfig, Policy};
use crate::counters::DecodeCounters;
use crate::event::DecodeEvent as E;
use crate::packet::{Completed, L3, Packet, Refused};
use segments::Inserted;
use table::{Key, Slot, Table};

/// Longest datagram (RFC 791 section 3.1), and the longest payload of an IPv6 packet (RFC 8200 section 3).
const MAX_LEN: usize = 65_535;
/// Buffers larger than this are not kept for reuse.
const KEEP_CAPACITY: usize = 16 << 10;

/// Where a fragment lies in its packet and in its datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    /// Where the IP header starts.
    pub(crate) ip: usize,
    /// Where the payload starts and ends.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The datagram's identification.
    pub(crate) id: u32,
    /// Where the payload belongs in the datagram, in bytes.
    pub(crate) offset: usize,
    /// Whether it is not the last one.
    pub(crate) more: bool,
    /// For IPv6: where the number of the fragment header is written; in `start - 8` is the one to put there instead.
    pub(crate) next_header_at: usize,
}

/// A datagram that is whole.
pub(crate) struct Whole {
    /// From the first fragment's link layer on.
    pub(crate) data: Vec<u8>,
    /// Where its IP header starts.
    pub(crate) ip: usize,
    /// What the last fragment brought, where none overlaps another.
    pub(crate) completed: Option<Completed>,
}

/// The defragmenter of one decoder.
#[derive(Debug)]
pub(crate) struct Defrag {
    table: Table,
    hosts: Vec<(IpAddr, u8, Policy)>,
    default_policy: Policy,
    vlan_tracking: bool,
    memcap: usize,
    max_frags: usize,
    inline: bool,
    /// Fragments kept now.
    frags: usize,
    /// Buffers for datagrams that are whole; more than one only where one is inside another.
    pool: Vec<Vec<u8>>,
}

impl Defrag {
    /// A defragmenter with nothing kept.
    pub(crate) fn new(config: &DefragConfig) -> Self {
        let mut hosts = config.hosts.clone();
        // The longest prefix first, so that the first one that holds an address counts.
        hosts.sort_by_key(|&(_, prefix, _)| std::cmp::Reverse(prefix));
        Defrag {
            table: Table::new(config.hash_size, config.trackers, config.timeout),
            hosts,
            default_policy: config.default_policy,
            vlan_tracking: config.vlan_tracking,
            memcap: config.memcap,
            max_frags: config.max_frags,
            inline: config.inline,
            frags: 0,
            pool: Vec::new(),
        }
    }

    /// Changes the limit of memory; what there is stays.
    pub(crate) fn set_memcap(&mut self, memcap: usize) {
        self.memcap = memcap;
    }

    /// Keeps a fragment. Returns the datagram when nothing of it is missing any more; [`Defrag::give_back`] takes the
    /// buffer.
    pub(crate) fn add(&mut self, p: &mut Packet<'_>, f: &Fragment, counters: &mut DecodeCounters) -> Option<Whole> {
        let is_v6 = matches!(p.l3, L3::Ipv6 { .. });
        let key = Key::new(p, f.id, is_v6, self.vlan_tracking);
        if let Some(slot) = self.table.find(&key)
            && self.table.tracker(slot).refused
            && !self.table.timed_out(slot, p.time)
        {
            p.refused = Some(Refused::Datagram);
            return None;
        }
        let unsound = self.inline.then_some(Refused::Unsound);
        let payload = p.data.get(f.start..f.end)?;
        // An IPv4 datagram's length includes its header, of 20 bytes at least.
        if f.offset + payload.len() + if is_v6 { 0 } else { 20 } > MAX_LEN {
            p.events.push(if is_v6 { E::Ipv6FragPktTooLarge } else { E::Ipv4FragPktTooLarge });
            p.refused = unsound;
            return None;
        }
        // Some hosts take as much of it as is a multiple of eight, others nothing; none takes what has a broken header.
        if self.inline && ((f.more && payload.len() % 8 != 0) || p.ipv4_checksum_ok() == Some(false)) {
            p.refused = unsound;
            return None;
        }
        let ignored = if is_v6 { E::Ipv6FragIgnored } else { E::Ipv4FragIgnored };
        if self.frags >= self.max_frags {
            self.expire_oldest(p, counters);
        }
        if self.frags >= self.max_frags {
            counters.defrag_max_frags_reached += 1;
            p.defrag_memcap_hit = true;
            p.events.push(ignored);
            return None;
        }
        let Some(slot) = self.tracker(&key, p, counters) else {
            p.defrag_memcap_hit = true;
            p.events.push(ignored);
            return None;
        };
        let next = if is_v6 { p.data.get(f.start - 8).copied().unwrap_or(59) } else { 0 };
        let way = if self.inline { way(p, f, is_v6) } else { 0 };
        if self.inline {
            let t = self.table.tracker(slot);
            if t.contradicts(f, payload, next) {
                p.events.push(if is_v6 { E::Ipv6FragOverlap } else { E::Ipv4FragOverlap });
                p.refused = if t.settled { Some(Refused::Datagram) } else { unsound };
                return None;
            }
            if t.settled {
                return None;
            }
        }
        let head = if f.offset == 0 { p.data.get(..if is_v6 { f.start - 8 } else { f.start })? } else { &[] };
        if !self.room(slot, payload.len() + head.len(), p, counters) {
            counters.defrag_memcap += 1;
            p.defrag_memcap_hit = true;
            p.events.push(ignored);
            if self.table.tracker(slot).frags == 0 {
                self.release(slot);
            }
            counters.defrag_memuse = self.table.memuse() as u64;
            return None;
        }
        let t = self.table.tracker_mut(slot);
        t.last = p.time;
        let end = f.offset + payload.len();
        let Inserted { overlap, first_byte } = t.segments.insert(t.policy, f.offset, payload);
        t.frags += 1;
        t.overlap |= overlap;
        t.uneven |= t.frags > 1 && t.way != way;
        t.way = way;
        self.frags += 1;
        t.end = t.end.max(end);
        if !f.more {
            t.last_end = t.last_end.max(end);
        }
        if f.offset == 0 && (first_byte || t.head.is_empty()) {
            t.head.clear();
            t.head.extend_from_slice(head);
            t.ip = f.ip;
            t.next = next;
            if is_v6 && let Some(b) = t.head.get_mut(f.next_header_at) {
                *b = next;
            }
        }
        if overlap {
            p.events.push(if is_v6 { E::Ipv6FragOverlap } else { E::Ipv4FragOverlap });
        }
        // What ends behind the last fragment is no part of a datagram: such a one never gets whole.
        let whole = t.end > 0 && t.last_end == t.end && t.segments.covered() == t.end && !t.head.is_empty();
        let result = if whole { self.assemble(slot, is_v6, p, f) } else { None };
        // For those that are kept there is half of the memory.
        if whole && self.inline && self.table.tracker(slot).uneven && self.table.memuse() < self.memcap / 2 {
            let t = self.table.tracker_mut(slot);
            t.settled = true;
            self.frags -= std::mem::take(&mut t.frags).min(self.frags);
        } else if whole {
            self.release(slot);
        }
        self.table.account(slot);
        counters.defrag_memuse = self.table.memuse() as u64;
        result
    }

    /// Takes back the buffer of a datagram.
    pub(crate) fn give_back(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.pool.len() < 4 {
            self.pool.push(buffer);
        }
    }

    /// The datagram of a tracker that has all of it; `None`, with an event, where it is too long.
    fn assemble(&mut self, slot: Slot, is_v6: bool, p: &mut Packet<'_>, f: &Fragment) -> Option<Whole> {
        let t = self.table.tracker(slot);
        let ip_headers = t.head.len().saturating_sub(t.ip);
        let length = ip_headers + t.end - if is_v6 { 40.min(ip_headers) } else { 0 };
        if length > MAX_LEN {
            p.events.push(if is_v6 { E::Ipv6FragPktTooLarge } else { E::Ipv4FragPktTooLarge });
            return None;
        }
        let mut out = self.pool.pop().unwrap_or_default();
        out.extend_from_slice(&t.head);
        t.segments.copy_to(&mut out);
        let length = (length as u16).to_be_bytes();
        let headers = out.get_mut(t.ip..t.head.len())?;
        if is_v6 {
            headers.get_mut(4..6)?.copy_from_slice(&length);
        } else {
            headers.get_mut(2..4)?.copy_from_slice(&length);
            headers.get_mut(6..8)?.fill(0);
            headers.get_mut(10..12)?.fill(0);
            let sum = internet(headers).to_be_bytes();
            headers.get_mut(10..12)?.copy_from_slice(&sum);
        }
        let completed = (!t.overlap).then(|| Completed {
            start: (t.head.len() + f.offset) as u32,
            len: (f.end - f.start) as u32,
            at: f.start as u32,
        });
        Some(Whole { data: out, ip: t.ip, completed })
    }

    /// The datagram that this fragment completed is dropped: nothing more of it is kept until it would time out. A host
    /// that has its other fragments forgets them no later than that (RFC 791 section 3.2, RFC 8200 section 4.5).
    pub(crate) fn refuse(&mut self, p: &Packet<'_>, f: &Fragment, counters: &mut DecodeCounters) {
        let key = Key::new(p, f.id, matches!(p.l3, L3::Ipv6 { .. }), self.vlan_tracking);
        if let Some(slot) = self.table.find(&key) {
            self.release(slot);
        }
        if let Some(slot) = self.tracker(&key, p, counters) {
            self.table.tracker_mut(slot).refused = true;
        }
    }

    /// The tracker of `key`: the one there is, or a fresh one; inline `None` where there is no room.
    fn tracker(&mut self, key: &Key, p: &Packet<'_>, counters: &mut DecodeCounters) -> Option<Slot> {
        if let Some(slot) = self.table.find(key) {
            if !self.table.timed_out(slot, p.time) {
                self.table.touch(slot);
                return Some(slot);
            }
            counters.defrag_tracker_timeout += 1;
            self.release(slot);
        }
        if self.table.is_full() {
            counters.defrag_max_trackers_reached += 1;
            if let Some(oldest) = self.table.oldest() {
                if self.table.timed_out(oldest, p.time) {
                    counters.defrag_tracker_soft_reuse += 1;
                } else if self.inline && !self.table.tracker(oldest).is_over() {
                    return None;
                } else {
                    counters.defrag_tracker_hard_reuse += 1;
                }
                self.release(oldest);
            }
        }
        let policy = self.policy(p.dst);
        Some(self.table.insert(key, policy, p.time))
    }

    /// The policy for datagrams to `dst`.
    fn policy(&self, dst: IpAddr) -> Policy {
        let held = self.hosts.iter().find(|&&(network, prefix, _)| holds(network, prefix, dst));
        held.map_or(self.default_policy, |&(_, _, policy)| policy)
    }

    /// Makes room for `len` more bytes in a tracker; `false` where the memory cap stands against it.
    fn room(&mut self, slot: Slot, len: usize, p: &Packet<'_>, counters: &mut DecodeCounters) -> bool {
        if self.table.grow(slot, len, self.memcap) {
            return true;
        }
        // Half of the cap, so that this is not done for every fragment of a flood.
        while self.table.memuse() > self.memcap / 2 && self.expire_oldest(p, counters) {}
        self.table.drop_spare();
        self.table.grow(slot, len, self.memcap)
    }

    /// Forgets the datagram that was longest without a fragment, if that was too long; whether it was.
    fn expire_oldest(&mut self, p: &Packet<'_>, counters: &mut DecodeCounters) -> bool {
        match self.table.oldest() {
            Some(slot) if self.table.timed_out(slot, p.time) => {
                counters.defrag_tracker_timeout += 1;
                self.release(slot);
                true
            }
            _ => false,
        }
    }

    /// Forgets a datagram.
    fn release(&mut self, slot: Slot) {
        self.frags = self.frags.saturating_sub(self.table.tracker(slot).frags);
        self.table.remove(slot);
    }
}

/// What of a fragment says which way it goes and whether it arrives, as one number: to whom, its TTL or hop limit, options.
fn way(p: &Packet<'_>, f: &Fragment, is_v6: bool) -> u64 {
    let (ttl, options, end) = if is_v6 { (7, 40, f.start.saturating_sub(8)) } else { (8, 20, f.start) };
    let to = p.ethernet.map_or([0; 6], |e| e.dst);
    let ttl = p.data.get(f.ip + ttl);
    let options = p.data.get(f.ip + options..end).unwrap_or(&[]);
    // FNV-1a.
    let hash = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    to.iter().chain(ttl).chain(options).fold(0xcbf2_9ce4_8422_2325, hash)
}

/// Whether `network`/`prefix` holds `address`.
fn holds(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            (n.to_bits() ^ a.to_bits()) & mask == 0
        }
        (IpAddr::V6(n), IpAddr::V6(a)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            (n.to_bits() ^ a.to_bits()) & mask == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let a = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(holds(a("10.1.0.0"), 16, a("10.1.200.3")));
        assert!(!holds(a("10.1.0.0"), 16, a("10.2.200.3")));
        assert!(holds(a("0.0.0.0"), 0, a("10.2.200.3")));
        assert!(holds(a("10.2.200.3"), 32, a("10.2.200.3")));
        assert!(!holds(a("0.0.0.0"), 0, a("::1")));
        assert!(holds(a("fd00::"), 8, a("fdff::1")));
        assert!(!holds(a("::1"), 128, a("::2")));
    }
}
