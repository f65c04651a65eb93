//! Parses the content of a block: `tpacket_block_desc` with its `tpacket3_hdr`s (linux/if_packet.h). This is safe code: the
//! kernel's bytes are parsed like any others.

use margay_packet::{LinkType, Time};

use super::send::Offload;
use crate::batch::Meta;

/// Bytes of a VLAN tag.
pub(super) const VLAN_TAG: usize = 4;
/// Bytes of the two addresses before the tag.
const ADDRESSES: usize = 12;
/// Bytes of `tpacket3_hdr`, without the eight bytes of padding at its end.
const HEADER: usize = 40;
/// Tag protocol if the kernel does not give one (IEEE 802.1Q).
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

/// The position in a block that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cursor {
    /// Offset of the next header.
    at: usize,
    /// Remaining packets.
    pub(super) left: u32,
}

impl Cursor {
    /// Starts at the first packet of `block`.
    pub(super) fn of(block: &[u8]) -> Cursor {
        let left = word(block, 12).unwrap_or(0);
        let at = word(block, 16).unwrap_or(u32::MAX) as usize;
        Cursor { at, left }
    }

    /// Restores the next packet's VLAN tag, and returns the packet's place. `None` at the end, or if the packet is not within the
    /// block; then `left` is not 0.
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

/// Which checksums are trusted without a check (`checksum-checks`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Trust {
    /// Checksums of packets that this host sends, and that its card has yet to fill in.
    #[default]
    Kernel,
    /// No checksum.
    Nobody,
    /// All checksums.
    Everybody,
}

/// The kernel's metadata of a packet, in any header version.
struct Said {
    secs: u32,
    nanos: u32,
    len: usize,
    wire_len: u32,
    status: u32,
    tci: u16,
    tpid: u16,
}

/// Restores the VLAN tag that the kernel removed from the frame at `start` of `bytes`. The free bytes before the frame begin
/// at `room`. Returns the frame's place, and whether there was a tag.
fn found(
    bytes: &mut [u8],
    mut start: usize,
    room: usize,
    said: &Said,
    link: LinkType,
    trust: Trust,
) -> Option<(Meta, bool)> {
    let (mut len, mut wire_len) = (said.len, said.wire_len);
    bytes.get(start..start.checked_add(len)?)?;
    let mut tagged = false;
    if said.status & VLAN != 0
        && len >= ADDRESSES
        && link == LinkType::ETHERNET
        && start >= room + VLAN_TAG
        && let Some(frame) = bytes.get_mut(start - VLAN_TAG..start + ADDRESSES)
    {
        let tpid = if said.status & VLAN_PROTOCOL != 0 { said.tpid } else { TPID };
        frame.copy_within(VLAN_TAG.., 0);
        let tag = frame.get_mut(ADDRESSES..)?;
        tag.get_mut(..2)?.copy_from_slice(&tpid.to_be_bytes());
        tag.get_mut(2..)?.copy_from_slice(&said.tci.to_be_bytes());
        start -= VLAN_TAG;
        len += VLAN_TAG;
        wire_len = wire_len.saturating_add(VLAN_TAG as u32);
        tagged = true;
    }
    let trusted = match trust {
        Trust::Kernel => said.status & NOT_READY != 0,
        Trust::Nobody => false,
        Trust::Everybody => true,
    };
    let meta = Meta {
        start: u32::try_from(start).ok()?,
        len: u32::try_from(len).ok()?,
        wire_len,
        link,
        time: Time::new(i64::from(said.secs), i64::from(said.nanos / 1000)),
        trusted,
    };
    Some((meta, tagged))
}

fn read(block: &mut [u8], at: usize, link: LinkType, trust: Trust) -> Option<(Meta, usize)> {
    let header = block.get(at..)?.get(..HEADER)?;
    let field = |n| word(header, n);
    let step = field(0)?;
    let said = Said {
        secs: field(4)?,
        nanos: field(8)?,
        len: field(12)? as usize,
        wire_len: field(16)?,
        status: field(20)?,
        tci: field(32)? as u16,
        tpid: half(header, 36)?,
    };
    let start = at + usize::from(half(header, 24)?);
    let (meta, _) = found(block, start, at + HEADER, &said, link, trust)?;
    Some((meta, if step == 0 { (meta.len as usize).max(HEADER) } else { step as usize }))
}

/// Bytes of `tpacket2_hdr`, without its padding.
const SLOT_HEADER: usize = 28;

/// A packet in a slot of a `TPACKET_V2` ring, or beside the slot if it was too large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// The frame's place in the slot, with its VLAN tag restored.
    pub(super) meta: Meta,
    /// Its checksum and segment information, in the form for sending.
    pub(super) offload: Offload,
}

/// The packet in a slot; `None` if the slot is invalid.
pub(super) fn slot(slot: &mut [u8], link: LinkType, trust: Trust) -> Option<Slot> {
    let (said, start) = slot_header(slot)?;
    let at = start.checked_sub(Offload::LEN)?;
    let offload = Offload(*slot.get(at..)?.first_chunk()?);
    // The offload header is read, so its bytes are free for the tag.
    let (meta, tagged) = found(slot, start, SLOT_HEADER, &said, link, trust)?;
    let offload = offload.for_sending(meta.len as usize, if tagged { VLAN_TAG as u16 } else { 0 });
    Some(Slot { meta, offload })
}

/// The packet that was too large for its slot. Its `len` bytes are at offset `VLAN_TAG` of `beside`.
pub(super) fn beside(
    slot: &[u8],
    beside: &mut [u8],
    len: usize,
    offload: Offload,
    link: LinkType,
    trust: Trust,
) -> Option<Slot> {
    let (said, _) = slot_header(slot)?;
    let (meta, tagged) = found(beside, VLAN_TAG, 0, &Said { len, ..said }, link, trust)?;
    let offload = offload.for_sending(meta.len as usize, if tagged { VLAN_TAG as u16 } else { 0 });
    Some(Slot { meta, offload })
}

/// Bytes of a slot that [`is_of`] compares.
pub(super) const START: usize = 256;

/// Whether the packet of `len` bytes at offset `VLAN_TAG` of `beside` belongs to the slot that begins with `start`.
pub(super) fn is_of(start: &[u8; START], beside: &[u8], len: usize) -> bool {
    let Some((said, at)) = slot_header(start) else { return false };
    let frame = beside.get(VLAN_TAG..).unwrap_or(&[]);
    let known = start.get(at..).unwrap_or(&[]).iter().take(said.len);
    said.wire_len as usize == len && known.zip(frame.iter().take(len)).all(|(a, b)| a == b)
}

fn slot_header(slot: &[u8]) -> Option<(Said, usize)> {
    let said = Said {
        status: word(slot, 0)?,
        wire_len: word(slot, 4)?,
        len: word(slot, 8)? as usize,
        secs: word(slot, 16)?,
        nanos: word(slot, 20)?,
        tci: half(slot, 24)?,
        tpid: half(slot, 26)?,
    };
    Some((said, usize::from(half(slot, 12)?)))
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

    /// A slot with a frame, as the kernel writes it.
    fn a_slot(frame: &[u8], status: u32, tci: u16, offload: [u8; 10]) -> Vec<u8> {
        let mut s = vec![0u8; 2048];
        for (at, w) in [(0, status), (4, frame.len() as u32), (8, frame.len() as u32), (16, 1_700_000_000), (20, 5_000)]
        {
            s[at..at + 4].copy_from_slice(&w.to_ne_bytes());
        }
        s[12..14].copy_from_slice(&84u16.to_ne_bytes());
        s[24..26].copy_from_slice(&tci.to_ne_bytes());
        s[74..84].copy_from_slice(&offload);
        s[84..84 + frame.len()].copy_from_slice(frame);
        s
    }

    #[test]
    fn slots_have_frames_and_what_is_known_of_them() {
        let frame: Vec<u8> = (0..100).collect();
        let mut partial = [0u8; 10];
        partial[0] = 1;
        partial[6..8].copy_from_slice(&34u16.to_ne_bytes());
        partial[8..10].copy_from_slice(&16u16.to_ne_bytes());
        let mut s = a_slot(&frame, 1 | NOT_READY, 0, partial);
        let got = slot(&mut s, LinkType::ETHERNET, Trust::Kernel).expect("a packet");
        assert_eq!(s[got.meta.start as usize..][..got.meta.len as usize], frame);
        assert_eq!((got.offload.checksum(), got.meta.trusted), (Some(50), true));
        let mut s = a_slot(&frame, 1 | VLAN | NOT_READY, 100, partial);
        let got = slot(&mut s, LinkType::ETHERNET, Trust::Kernel).expect("a packet");
        let want = [&frame[..12], &[0x81, 0, 0, 100], &frame[12..]].concat();
        assert_eq!(s[got.meta.start as usize..][..got.meta.len as usize], want);
        assert_eq!(got.offload.checksum(), Some(54), "it is further back with the tag");
        let s = a_slot(&frame[..50], 1 | VLAN, 100, partial);
        let mut large = [&[0; 4], &frame[..]].concat();
        let offload = Offload(partial);
        let got = beside(&s, &mut large, 100, offload, LinkType::ETHERNET, Trust::Nobody).expect("a packet");
        assert_eq!((got.meta.start, got.meta.len, &large[..]), (0, 104, &want[..]));
        assert!(beside(&s, &mut large, 101, offload, LinkType::ETHERNET, Trust::Nobody).is_none());
    }

    proptest! {
        #[test]
        fn no_slot_leads_outside(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), mac in 0u16..400, len in 0u32..400) {
            if bytes.len() > 14 {
                bytes[8..12].copy_from_slice(&len.to_ne_bytes());
                bytes[12..14].copy_from_slice(&mac.to_ne_bytes());
            }
            if let Some(s) = slot(&mut bytes, LinkType::ETHERNET, Trust::Kernel) {
                prop_assert!((s.meta.start + s.meta.len) as usize <= bytes.len());
            }
        }

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
