//! The defragmenter: stores the fragments of each datagram until it is complete.
//!
//! A tracker stands for a datagram in reassembly. Its fragments' bytes are appended to one buffer as they arrive. A
//! tree of segments has the bytes of that buffer that make up the datagram, and the fragment that each comes from, so
//! that the destination's policy can decide overlaps.
//!
//! **Passive**, the defragmenter imitates the destination, as far as its policy is known: it discards what the
//! destination discards, at the same time. It cannot know two things, and raises events for them: a fragment that
//! arrives about when a host discards the earlier ones (`frag_late`), and an additional fragment of a complete datagram
//! (`frag_again`), of which the host may not have received all.
//!
//! **Inline**, fragments are forwarded as they come, and a host may reassemble any of those that it still holds. So forwarded fragments
//! are remembered for as long as any host may hold them, and a contradicting fragment is refused ([`Refused`]): by its bytes while the
//! datagram is incomplete, and later, since a host may still miss a lost fragment, by a hash of each fragment. So a host reassembles
//! only what was inspected. Nothing more of a dropped datagram is forwarded.
//!
//! Limits: trackers, fragments, memory, and time. Under pressure no sender (an address, or the first 64 bits of an IPv6
//! address) has more than a quarter of each. Passive, the oldest datagram of such a sender is evicted, otherwise the
//! oldest of all. Inline, no datagram that a host may hold is forgotten, so new datagrams of that sender are refused,
//! and complete, forwarded ones are evicted. A fragment that does not fit is not stored, and its packet has an event.

mod segments;
mod shares;
mod table;

use std::net::IpAddr;

use crate::checksum::internet;
use crate::config::{DefragConfig, Policy};
use crate::counters::DecodeCounters;
use crate::event::DecodeEvent as E;
use crate::packet::{Completed, L3, Packet, Refused, Time};
use segments::Inserted;
use table::{Key, Slot, State, Table};

/// Longest datagram (RFC 791 section 3.1), and the longest payload of an IPv6 packet (RFC 8200 section 3).
const MAX_LEN: usize = 65_535;
/// Buffers larger than this are not kept for reuse.
const KEEP_CAPACITY: usize = 16 << 10;
/// Linux: seconds from the first fragment on after which it forgets a datagram (`net.ipv4.ipfrag_time`, `net.ipv6.ip6frag_time`).
const LINUX_TIME: [u32; 2] = [30, 60];
/// Linux: how much later a fragment of a datagram may come than the one before it, counted in fragments of its sender
/// (`net.ipv4.ipfrag_max_dist`). So 63 others may lie between.
const LINUX_DISTANCE: u32 = 64;
/// Microseconds before and after a datagram's timeout in which it is unknown whether the host has forgotten it.
const LATE: i64 = 500_000;
/// Under pressure, one sender may have one part in this many of trackers, fragments and memory.
const SHARE: usize = 4;

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
    /// "More fragments": whether this is not the datagram's last fragment.
    pub(crate) more: bool,
    /// For IPv6: where the preceding header has the fragment header's number. The reassembled datagram has the byte at
    /// `start - 8` there instead.
    pub(crate) next_header_at: usize,
}

/// A complete datagram.
pub(crate) struct Whole {
    /// From the first fragment's link layer on.
    pub(crate) data: Vec<u8>,
    /// Where its IP header starts.
    pub(crate) ip: usize,
    /// The part that the last arriving fragment brought, if no fragments overlapped.
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
    timeout: u32,
    timeouts: Vec<(IpAddr, u8, u32)>,
    checksums: bool,
    inline: bool,
    /// A datagram of the sender that was last found to have more than its share.
    greedy: Option<Key>,
    /// Spare buffers for complete datagrams; more than one is needed only if one datagram is inside another.
    pool: Vec<Vec<u8>>,
}

impl Defrag {
    /// A defragmenter without fragments.
    pub(crate) fn new(config: &DefragConfig) -> Self {
        Defrag {
            table: Table::new(config.hash_size, config.trackers),
            hosts: longest_first(&config.hosts),
            default_policy: config.default_policy,
            vlan_tracking: config.vlan_tracking,
            memcap: config.memcap,
            max_frags: config.max_frags,
            timeout: config.timeout,
            timeouts: longest_first(&config.timeouts),
            checksums: config.checksums,
            inline: config.inline,
            greedy: None,
            pool: Vec::new(),
        }
    }

    /// Changes the memory limit; stored fragments stay.
    pub(crate) fn set_memcap(&mut self, memcap: usize) {
        self.memcap = memcap;
    }

    /// Stores a fragment. Returns the datagram once it is complete; the caller returns its buffer with
    /// [`Defrag::give_back`].
    pub(crate) fn add(&mut self, p: &mut Packet<'_>, f: &Fragment, counters: &mut DecodeCounters) -> Option<Whole> {
        let is_v6 = matches!(p.l3, L3::Ipv6 { .. });
        let key = self.table.key(p, f.id, is_v6, self.vlan_tracking);
        let (overlap, ignored, late, again) = match is_v6 {
            true => (E::Ipv6FragOverlap, E::Ipv6FragIgnored, E::Ipv6FragLate, E::Ipv6FragAgain),
            false => (E::Ipv4FragOverlap, E::Ipv4FragIgnored, E::Ipv4FragLate, E::Ipv4FragAgain),
        };
        let next = if is_v6 { p.data.get(f.start - 8).copied().unwrap_or(59) } else { 0 };
        let mut payload = p.data.get(f.start..f.end)?;
        if let Some(slot) = self.table.find(&key).filter(|slot| !self.timed_out(*slot, p.time)) {
            let (state, reopened) = (self.table.tracker(slot).state, self.table.tracker(slot).reopened);
            if state == State::Settled || reopened {
                let known = self.table.is_marked(slot, f, payload, next);
                if !known {
                    p.events.push(again);
                }
                if !self.inline {
                    if state == State::Settled {
                        self.table.reopen(slot, p.time);
                    }
                } else {
                    if known {
                        self.touch(slot, p.time);
                    } else {
                        p.refused = Some(Refused::Datagram);
                    }
                    return None;
                }
            } else if state == State::Refused {
                p.refused = Some(Refused::Datagram);
                return None;
            }
        }
        let unsound = self.inline.then_some(Refused::Unsound);
        // Inline, a fragment that contradicts an earlier one is not forwarded, so the policy does not matter.
        let policy =
            if self.inline { Policy::First } else { of_network(&self.hosts, p.dst).unwrap_or(self.default_policy) };
        let linux = policy == Policy::Linux;
        // An IPv4 datagram's length includes its header, of 20 bytes at least.
        if f.offset + payload.len() + if is_v6 { 0 } else { 20 } > MAX_LEN {
            p.events.push(if is_v6 { E::Ipv6FragPktTooLarge } else { E::Ipv4FragPktTooLarge });
            p.refused = unsound;
            // For IPv4, Linux stores it, and checks the length when the datagram is complete.
            if is_v6 || !linux {
                return None;
            }
        }
        if (self.inline || self.checksums) && p.ipv4_checksum_ok() == Some(false) {
            // Every host discards it.
            p.events.push(ignored);
            p.refused = unsound;
            return None;
        }
        if self.inline {
            if f.more && payload.len() % 8 != 0 {
                // Some hosts cut it to a multiple of eight bytes, others discard it.
                p.refused = unsound;
                return None;
            }
        } else if linux {
            if is_v6 && f.offset == 0 && !has_header(next, payload) {
                p.events.push(ignored);
                return None;
            }
            if f.more {
                payload = payload.get(..payload.len() & !7)?;
            }
        }
        let found = self.table.find(&key).filter(|slot| !self.inline && self.is_late(*slot, p.time));
        if found.is_some() {
            p.events.push(late);
        }
        let Some(slot) = self.admit(&key, policy, p.time, counters) else {
            p.defrag_memcap_hit = true;
            p.events.push(ignored);
            return None;
        };
        let t = self.table.tracker(slot);
        if self.inline && t.contradicts(f, payload, next) {
            p.events.push(overlap);
            p.refused = unsound;
            return None;
        }
        if linux {
            let serial = if is_v6 { 0 } else { self.table.count(slot) };
            let t = self.table.tracker(slot);
            if t.frags > 0 && serial.wrapping_sub(t.serial) > LINUX_DISTANCE {
                self.table.start_over(slot, p.time);
                p.events.push(late);
            }
            let t = self.table.tracker_mut(slot);
            t.serial = serial;
            let end = f.offset + payload.len();
            let other_end = if f.more {
                t.last_end != 0 && end > t.last_end
            } else {
                t.end > end || (t.last_end != 0 && end != t.last_end)
            };
            if payload.is_empty() || other_end {
                p.events.push(ignored);
                self.release(slot);
                return None;
            }
        }
        let head = if f.offset == 0 { p.data.get(..if is_v6 { f.start - 8 } else { f.start })? } else { &[] };
        if !self.room(slot, &key, f, head.len(), p.time, counters) {
            counters.defrag_memcap += 1;
            p.defrag_memcap_hit = true;
            p.events.push(ignored);
            if self.table.tracker(slot).frags == 0 {
                self.release(slot);
            }
            counters.defrag_memuse = self.table.memuse() as u64;
            return None;
        }
        if self.inline {
            self.touch(slot, p.time);
        }
        self.table.mark(slot, f, payload, next);
        let t = self.table.tracker_mut(slot);
        let end = f.offset + payload.len();
        let Inserted { overlap: overlaps, first_byte, forgotten } = t.segments.insert(t.policy, f.offset, payload);
        if overlaps {
            p.events.push(overlap);
        }
        if linux && overlaps {
            // Linux discards the fragment, or all fragments of the datagram.
            if forgotten {
                self.release(slot);
            } else {
                self.table.account(slot);
            }
            return None;
        }
        t.overlap |= overlaps;
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
        let t = self.table.tracker(slot);
        self.table.count_frags(slot, t.frags + 1);
        let t = self.table.tracker(slot);
        // Data behind the last fragment makes the datagram impossible to complete.
        let whole = t.end > 0 && t.last_end == t.end && t.segments.covered() == t.end && !t.head.is_empty();
        let result = if whole { self.assemble(slot, is_v6, p, f) } else { None };
        if result.is_some() {
            self.settle(slot);
        } else if whole {
            self.release(slot);
        } else {
            self.table.account(slot);
        }
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

    /// The complete datagram of a tracker; `None`, with an event, if it is too long.
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

    /// Drops the datagram that this fragment completed: its further fragments are refused until it times out. A host
    /// that has its other fragments forgets them no later than that (RFC 791 section 3.2, RFC 8200 section 4.5).
    pub(crate) fn refuse(&mut self, p: &Packet<'_>, f: &Fragment) {
        let key = self.table.key(p, f.id, matches!(p.l3, L3::Ipv6 { .. }), self.vlan_tracking);
        if let Some(slot) = self.table.find(&key) {
            self.table.refuse(slot);
        }
    }

    /// The existing or a new tracker of `key`, with room for one more fragment; `None` if a limit does not allow it.
    fn admit(&mut self, key: &Key, policy: Policy, now: Time, counters: &mut DecodeCounters) -> Option<Slot> {
        while self.table.frags() >= self.max_frags {
            counters.defrag_max_frags_reached += 1;
            let victim = self.victim(key, None)?;
            if !self.forget(victim, now, counters) {
                return None;
            }
        }
        if let Some(slot) = self.table.find(key) {
            if !self.timed_out(slot, now) {
                return Some(slot);
            }
            counters.defrag_tracker_timeout += 1;
            self.release(slot);
        }
        while self.inline && self.is_greedy(key) {
            // Hosts may still hold the sender's forwarded fragments, so only a timed out datagram gives way.
            let oldest = self.table.sender(key).oldest().filter(|slot| self.timed_out(*slot, now));
            let Some(slot) = oldest else {
                counters.defrag_max_trackers_reached += 1;
                return None;
            };
            counters.defrag_tracker_timeout += 1;
            self.release(slot);
        }
        if self.table.is_full() {
            counters.defrag_max_trackers_reached += 1;
            match self.table.oldest_settled() {
                Some(over) => {
                    counters.defrag_tracker_hard_reuse += 1;
                    self.release(over);
                }
                None => {
                    let victim = self.victim(key, None)?;
                    if !self.forget(victim, now, counters) {
                        return None;
                    }
                }
            }
        }
        let timeout = of_network(&self.timeouts, key.dst).unwrap_or(self.timeout);
        Some(self.table.insert(key, policy, timeout, now))
    }

    /// Whether a sender has its full share of trackers, fragments or memory.
    fn is_greedy(&self, key: &Key) -> bool {
        let sender = self.table.sender(key);
        sender.trackers() >= (self.table.limit() / SHARE).max(SHARE)
            || sender.frags >= (self.max_frags / SHARE).max(SHARE)
            || sender.memory >= (self.memcap / SHARE).max(MAX_LEN * SHARE)
    }

    /// The datagram that gives way, if one must, to a fragment of `key`: the oldest of a sender with a full share, this
    /// one or another, else the oldest of all; never `spared`.
    fn victim(&mut self, key: &Key, spared: Option<Slot>) -> Option<Slot> {
        if self.is_greedy(key) {
            self.greedy = Some(*key);
        } else if self.greedy.is_some_and(|other| !self.is_greedy(&other)) {
            self.greedy = None;
        }
        let own = self.greedy.and_then(|key| self.table.sender(&key).oldest());
        own.filter(|slot| Some(*slot) != spared).or(self.table.oldest()).filter(|slot| Some(*slot) != spared)
    }

    /// Forgets a datagram. Inline, returns `false` if it has not timed out, since a host may hold its fragments.
    fn forget(&mut self, slot: Slot, now: Time, counters: &mut DecodeCounters) -> bool {
        if self.timed_out(slot, now) {
            counters.defrag_tracker_soft_reuse += 1;
        } else if self.inline {
            return false;
        } else {
            counters.defrag_tracker_hard_reuse += 1;
        }
        self.release(slot);
        true
    }

    /// A datagram's timeout in seconds, from its first fragment on; inline, from its last one.
    fn lifetime(&self, slot: Slot) -> u32 {
        let t = self.table.tracker(slot);
        match t.policy {
            Policy::Linux => t.timeout.min(LINUX_TIME[usize::from(t.is_v6())]),
            _ => t.timeout,
        }
    }

    /// Microseconds since the datagram timed out; negative before that.
    fn over_for(&self, slot: Slot, now: Time) -> i64 {
        let t = self.table.tracker(slot);
        let since = if self.inline { t.last } else { t.first };
        now.micros_since(since) - i64::from(self.lifetime(slot)) * 1_000_000
    }

    fn timed_out(&self, slot: Slot, now: Time) -> bool {
        self.over_for(slot, now) > 0
    }

    /// Whether the datagram's timeout is so close that the host may or may not have forgotten it.
    fn is_late(&self, slot: Slot, now: Time) -> bool {
        self.over_for(slot, now).abs() < LATE
    }

    /// Inline: records that a fragment of the datagram is forwarded.
    fn touch(&mut self, slot: Slot, now: Time) {
        self.table.tracker_mut(slot).last = now;
        self.table.touch(slot);
    }

    /// Marks the datagram as complete. Complete datagrams may have half of the trackers and half of the memory; beyond
    /// that, the oldest are forgotten.
    fn settle(&mut self, slot: Slot) {
        self.table.settle(slot);
        while self.table.settled() > (self.table.limit() / 2).max(1) || self.table.memuse() > self.memcap / 2 {
            match self.table.oldest_settled() {
                Some(oldest) if oldest != slot => self.release(oldest),
                _ => break,
            }
        }
    }

    /// Makes room for a fragment, with `head` bytes of headers, in a tracker; `false` if the memory limit does not allow it.
    fn room(
        &mut self,
        slot: Slot,
        key: &Key,
        f: &Fragment,
        head: usize,
        now: Time,
        counters: &mut DecodeCounters,
    ) -> bool {
        if self.table.grow(slot, f, head, self.memcap) {
            return true;
        }
        self.table.drop_spare();
        // Frees down to 7/8 of the limit, so that a flood does not trigger this for every fragment.
        while self.table.memuse() > self.memcap / 8 * 7 {
            let over = self.table.oldest_settled();
            let Some(victim) = over.or_else(|| self.victim(key, Some(slot))) else { break };
            if over.is_some() {
                self.release(victim);
            } else if !self.forget(victim, now, counters) {
                break;
            }
            self.table.drop_memory(victim);
        }
        self.table.grow(slot, f, head, self.memcap)
    }

    /// Forgets a datagram.
    fn release(&mut self, slot: Slot) {
        self.table.remove(slot);
    }
}

/// Whether a first fragment of IPv6 has all headers, including the transport's; Linux discards others (RFC 8200 section
/// 4.5).
fn has_header(next: u8, payload: &[u8]) -> bool {
    let least = match next {
        6 => 20,
        17 | 58 => 8,
        59 => 0,
        _ => 1,
    };
    payload.len() >= least
}

/// Networks with the longest prefix first, so that the first one that contains an address counts.
fn longest_first<T: Copy>(networks: &[(IpAddr, u8, T)]) -> Vec<(IpAddr, u8, T)> {
    let mut list = networks.to_vec();
    list.sort_by_key(|&(_, prefix, _)| std::cmp::Reverse(prefix));
    list
}

/// The value of the first network of a list that contains an address.
fn of_network<T: Copy>(list: &[(IpAddr, u8, T)], address: IpAddr) -> Option<T> {
    list.iter().find(|&&(network, prefix, _)| holds(network, prefix, address)).map(|&(_, _, value)| value)
}

/// Whether `network`/`prefix` contains `address`.
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
