//! What is in a block: `tpacket_block_desc` with its `tpacket3_hdr`s (linux/if_packet.h). Safe code: what the kernel wrote is
//! read like any other bytes.

use margay_packet::{LinkType, Time};

use crate::reader::Meta;

/// Bytes of a VLAN tag.
pub(super) const VLAN_TAG: usize = 4;
/// Two addresses come before it.
const ADDRESSES: usize = 12;
/// Of `tpacket3_hdr`, without its last eight bytes of padding.
const HEADER: usize = 40;
/// Tag protocol where the kernel does not say which (IEEE 802.1Q).
const TPID: u16 = 0x8100;

const NOT_READY: u32 = libc::TP_STATUS_CSUMNOTREADY;
const VLAN: u32 = libc::TP_STATUS_VLAN_VALID;
const VLAN_PROTOCOL: u32 = libc::TP_STATUS_VLAN_TPID_VALID;

fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

fn half(block: &[u8], at: usize) -> Option<u16> {
    block.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// A place in a block that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cursor {
    /// Where the next header is.
    at: usize,
    /// Packets left.
    pub(super) left: u32,
}

impl Cursor {
    /// At the first packet of `block`.
    pub(super) fn of(block: &[u8]) -> Cursor {
        let left = word(block, 12).unwrap_or(0);
        let at = word(block, 16).unwrap_or(u32::MAX) as usize;
        Cursor { at, left }
    }

    /// The next packet: where it is, after its VLAN tag was put back. `None` at the end, and where there is no whole packet
    /// although there should be: then packets are left.
    pub(super) fn next(&mut self, block: &mut [u8], link: LinkType, trust: Trust) -> Option<Meta> {
        if self.left == 0 {
            return None;
        }
        let (meta, step) = read(block, self.at, link, trust)?;
        self.left -= 1;
        self.at += step;
        Some(meta)
    }
}

/// Whose checksums are taken to be right (`checksum-checks`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// Those of packets that this host sends and whose card has yet to fill them in.
    #[default]
    Kernel,
    /// None.
    Nobody,
    /// All.
    Everybody,
}

fn read(block: &mut [u8], at: usize, link: LinkType, trust: Trust) -> Option<(Meta, usize)> {
    let header = block.get(at..)?.get(..HEADER)?;
    let field = |n| word(header, n);
    let (step, secs, nanos) = (field(0)?, field(4)?, field(8)?);
    let (mut len, mut wire_len, status) = (field(12)? as usize, field(16)?, field(20)?);
    let mut start = at + usize::from(half(header, 24)?);
    let (tci, tpid) = (field(32)? as u16, half(header, 36)?);
    block.get(start..start + len)?;
    if status & VLAN != 0
        && len >= ADDRESSES
        && link == LinkType::ETHERNET
        && start >= at + HEADER + VLAN_TAG
        && let Some(frame) = block.get_mut(start - VLAN_TAG..start + ADDRESSES)
    {
        let tpid = if status & VLAN_PROTOCOL != 0 { tpid } else { TPID };
        frame.copy_within(VLAN_TAG.., 0);
        let tag = frame.get_mut(ADDRESSES..)?;
        tag.get_mut(..2)?.copy_from_slice(&tpid.to_be_bytes());
        tag.get_mut(2..)?.copy_from_slice(&tci.to_be_bytes());
        start -= VLAN_TAG;
        len += VLAN_TAG;
        wire_len = wire_len.saturating_add(VLAN_TAG as u32);
    }
    let trusted = match trust {
        Trust::Kernel => status & NOT_READY != 0,
        Trust::Nobody => false,
        Trust::Everybody => true,
    };
    let meta = Meta {
        start: u32::try_from(start).ok()?,
        len: u32::try_from(len).ok()?,
        wire_len,
        link,
        time: Time::new(i64::from(secs), i64::from(nanos / 1000)),
        trusted,
    };
    Some((meta, if step == 0 { len.max(HEADER) } else { step as usize }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block with frames, as the kernel writes them: each with its status, VLAN control information and protocol.
    fn block(frames: &[(&[u8], u32, u16, u16)]) -> Vec<u8> {
        let mut b = vec![0u8; 48];
        b[12..16].copy_from_slice(&(frames.len() as u32).to_ne_bytes());
        b[16..20].copy_from_slice(&48u32.to_ne_bytes());
        for (i, (data, status, tci, tpid)) in frames.iter().enumerate() {
            let mac = 86usize;
            let step = (mac + data.len()).next_multiple_of(16);
            let mut f = vec![0u8; step];
            let next = if i + 1 == frames.len() { 0 } else { step as u32 };
            let words =
                [next, 1_700_000_000, 123_456_789, data.len() as u32, data.len() as u32 + 7, *status, mac as u32, 0];
            for (n, w) in words.iter().enumerate() {
                f[n * 4..n * 4 + 4].copy_from_slice(&w.to_ne_bytes());
            }
            f[24..26].copy_from_slice(&(mac as u16).to_ne_bytes());
            f[32..36].copy_from_slice(&u32::from(*tci).to_ne_bytes());
            f[36..38].copy_from_slice(&tpid.to_ne_bytes());
            f[mac..mac + data.len()].copy_from_slice(data);
            b.extend_from_slice(&f);
        }
        b
    }

    #[test]
    fn frames_are_found_and_tags_put_back() {
        let frame: Vec<u8> = (0..60).collect();
        let mut b = block(&[
            (&frame, 1, 0, 0),
            (&frame, 1 | VLAN, 100, 0),
            (&frame, 1 | VLAN | VLAN_PROTOCOL, 0x2065, 0x88a8),
            (&frame[..5], 1 | VLAN | NOT_READY, 7, 0),
        ]);
        let mut c = Cursor::of(&b);
        let mut seen = Vec::new();
        while let Some(m) = c.next(&mut b, LinkType::ETHERNET, Trust::Kernel) {
            seen.push((b[m.start as usize..][..m.len as usize].to_vec(), m.wire_len, m.trusted));
            assert_eq!(m.time, Time::new(1_700_000_000, 123_456));
        }
        assert_eq!(c.left, 0);
        let tagged = |tag: [u8; 4]| [&frame[..12], &tag[..], &frame[12..]].concat();
        assert_eq!(seen[0], (frame.clone(), 67, false));
        assert_eq!(seen[1], (tagged([0x81, 0, 0, 100]), 71, false));
        assert_eq!(seen[2], (tagged([0x88, 0xa8, 0x20, 0x65]), 71, false));
        assert_eq!(seen[3], (frame[..5].to_vec(), 12, true));
    }

    proptest! {
        #[test]
        fn no_block_leads_outside(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            words in proptest::collection::vec((0usize..100, 0u32..400), 0..20),
        ) {
            for (at, w) in words {
                if let Some(place) = bytes.get_mut(at * 4..at * 4 + 4) {
                    place.copy_from_slice(&w.to_ne_bytes());
                }
            }
            let mut c = Cursor::of(&bytes);
            let mut n = 0;
            while let Some(m) = c.next(&mut bytes, LinkType::ETHERNET, Trust::Nobody) {
                prop_assert!((m.start + m.len) as usize <= bytes.len());
                n += 1;
                if n > 1000 { break; }
            }
        }
    }
}
