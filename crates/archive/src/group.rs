//! Groups of flows within a part, so that a hunt for one host reads the host's own flows and little else.
//!
//! A hash of its address gives each host one of [`ROWS`] rows. A frame's group is the pair of rows of its flow's two hosts
//! ([`crate::pair::Seen::pair`]). So all frames of a host are in the `ROWS` groups of its row, with about 1 in 180 of the
//! other hosts' frames. The archive's number of rows is enough to compute these groups. `NAME.groups` has [`ENTRY`] bytes for
//! each packet of a part: its group, and the distance from the end of the previous block to the end of its own ([`Step`]).
//!
//! Flows of several groups belong together if a frame has packets of more than one: a tunnel and its inner packets, or an
//! ICMP error and the flow it refers to. The part's index lists such groups as `Links`, and a [`Selection`] takes both or
//! neither.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::bloom::hash;
use crate::pair::Seen;

/// Rows of hosts: the largest number whose pairs fit into 16 bits, with [`APART`] left free.
pub const ROWS: u16 = 361;
/// The group of frames without an IP header, which is in every selection.
pub const APART: u16 = u16::MAX;
/// Bytes of a packet's entry in `NAME.groups`.
pub const ENTRY: usize = 6;
/// Limit of the links in an index.
const MOST_LINKS: usize = 2048;
/// Set in a step's length if other blocks come before the packet's own. They must be read even if the packet is skipped.
const HEADED: u32 = 1 << 31;

/// The row of a host.
pub fn row(host: IpAddr) -> u16 {
    let hash = match host {
        IpAddr::V4(a) => hash(&a.octets()),
        IpAddr::V6(a) => hash(&a.octets()),
    };
    (hash % u64::from(ROWS)) as u16
}

/// The group of flows between hosts of two rows, in either order.
fn cell(a: u16, b: u16) -> u16 {
    let (low, high) = (u32::from(a.min(b)), u32::from(a.max(b)));
    (high * (high + 1) / 2 + low) as u16
}

/// The group of a frame between two hosts.
pub fn group(pair: Option<(IpAddr, IpAddr)>) -> u16 {
    pair.map_or(APART, |(a, b)| cell(row(a), row(b)))
}

/// The entry of a packet in `NAME.groups`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its group.
    pub group: u16,
    /// Bytes from the end of the previous packet, or from the file's start, to the packet's own end.
    pub length: u32,
    /// Whether there are other blocks before its own.
    pub headed: bool,
}

impl Step {
    /// The encoded entry: group and length, little endian, with `headed` in the length's highest bit.
    pub fn bytes(self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..2].copy_from_slice(&self.group.to_le_bytes());
        bytes[2..].copy_from_slice(&(self.length | if self.headed { HEADED } else { 0 }).to_le_bytes());
        bytes
    }

    /// Decodes an entry.
    pub fn of([a, b, rest @ ..]: [u8; ENTRY]) -> Step {
        let length = u32::from_le_bytes(rest);
        Step { group: u16::from_le_bytes([a, b]), length: length & !HEADED, headed: length & HEADED != 0 }
    }
}

/// Pairs of groups that must be read together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    pairs: BTreeSet<(u16, u16)>,
    /// There are too many for an index.
    more: bool,
}

impl Links {
    /// Records the packets of a frame; the captured one comes last.
    pub(crate) fn note(&mut self, packets: &[Seen]) {
        let Some(of) = packets.last().map(|s| group(s.pair)).filter(|_| !self.more) else { return };
        for pair in packets.iter().flat_map(|s| [s.pair, s.ends]).flatten() {
            let other = group(Some(pair));
            if other != of && of != APART {
                self.pairs.insert((of.min(other), of.max(other)));
            }
        }
        if self.pairs.len() > MOST_LINKS {
            self.more = true;
            self.pairs = BTreeSet::new();
        }
    }

    /// All links; `None` if there are too many, and the whole part must be read.
    pub(crate) fn list(&self) -> Option<Vec<(u16, u16)>> {
        (!self.more).then(|| self.pairs.iter().copied().collect())
    }
}

/// The groups to read: those with flows of given hosts, and all linked groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    wanted: Vec<bool>,
}

impl Selection {
    /// The groups with flows of each host, or with flows between the two hosts of an entry with two. `links` are the links of
    /// all parts that are read.
    pub fn of(hosts: &[(IpAddr, Option<IpAddr>)], links: &[(u16, u16)]) -> Selection {
        let mut wanted = vec![false; usize::from(u16::MAX) + 1];
        let mut want = |group: u16| wanted[usize::from(group)] = true;
        want(APART);
        for (a, b) in hosts {
            match b {
                Some(b) => want(cell(row(*a), row(*b))),
                None => (0..ROWS).for_each(|other| want(cell(row(*a), other))),
            }
        }
        // Each round adds the groups linked to selected ones. A chain of links takes as many rounds as its length.
        loop {
            let mut more = false;
            for &(a, b) in links {
                let (a, b) = (usize::from(a), usize::from(b));
                if wanted[a] != wanted[b] {
                    (wanted[a], wanted[b], more) = (true, true, true);
                }
            }
            if !more {
                return Selection { wanted };
            }
        }
    }

    /// Whether packets of the group are read.
    pub fn has(&self, group: u16) -> bool {
        self.wanted.get(usize::from(group)).copied().unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    #[test]
    fn every_pair_of_rows_has_a_group_of_its_own() {
        let all: BTreeSet<u16> = (0..ROWS).flat_map(|a| (0..=a).map(move |b| cell(a, b))).collect();
        assert_eq!(all.len(), usize::from(ROWS) * (usize::from(ROWS) + 1) / 2);
        assert!(!all.contains(&APART));
        assert_eq!(cell(3, 5), cell(5, 3));
    }

    #[test]
    fn a_selection_has_a_hosts_flows_and_few_others() {
        let selection = Selection::of(&[(host(1), None)], &[]);
        assert!((2..500).all(|n| selection.has(group(Some((host(n), host(1)))))));
        assert!(selection.has(group(None)));
        let others = (2..20_000).filter(|&n| selection.has(group(Some((host(n), host(n + 50_000)))))).count();
        assert!(others < 200, "{others}");
        let pair = Selection::of(&[(host(1), Some(host(2)))], &[]);
        assert!(pair.has(group(Some((host(2), host(1))))) && !pair.has(group(Some((host(1), host(3))))));
    }

    #[test]
    fn what_is_linked_is_selected_along_chains() {
        let (a, b, c) =
            (group(Some((host(1), host(2)))), group(Some((host(3), host(4)))), group(Some((host(5), host(6)))));
        let none = Selection::of(&[(host(1), Some(host(2)))], &[]);
        assert!(!none.has(b) && !none.has(c));
        let chain = Selection::of(&[(host(1), Some(host(2)))], &[(b.min(c), b.max(c)), (a.min(b), a.max(b))]);
        assert!(chain.has(a) && chain.has(b) && chain.has(c));
    }

    #[test]
    fn a_step_is_read_as_it_was_written() {
        for step in
            [Step { group: 65_340, length: 262_208, headed: true }, Step { group: 0, length: 32, headed: false }]
        {
            assert_eq!(Step::of(step.bytes()), step);
        }
    }
}
