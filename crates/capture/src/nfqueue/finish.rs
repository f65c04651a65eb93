//! Completes packets that have an unfinished checksum or are truncated.

use margay_packet::checksum::internet;

/// Writes the TCP or UDP checksum of a complete IP packet. Other packets stay unchanged, because cards fill in no other checksums.
pub(super) fn fill_in(packet: &mut [u8]) {
    let _ = try_fill_in(packet);
}

/// The payload of an IP packet.
struct Carried {
    proto: u8,
    start: usize,
    end: usize,
    /// Whether it is a fragment.
    fragment: bool,
}

fn carried(packet: &[u8]) -> Option<Carried> {
    let half = |at: usize| packet.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b));
    match packet.first()? >> 4 {
        4 => Some(Carried {
            proto: *packet.get(9)?,
            start: usize::from(packet.first()? & 15) * 4,
            end: half(2)?.into(),
            fragment: half(6)? & 0x3fff != 0,
        }),
        6 => {
            let (mut proto, mut start) = (*packet.get(6)?, 40);
            // Hop-by-hop options, routing, destination options.
            while matches!(proto, 0 | 43 | 60) {
                let header: [u8; 2] = *packet.get(start..)?.first_chunk()?;
                (proto, start) = (header[0], start + (usize::from(header[1]) + 1) * 8);
            }
            Some(Carried { proto, start, end: 40 + usize::from(half(4)?), fragment: proto == 44 })
        }
        _ => None,
    }
}

fn try_fill_in(packet: &mut [u8]) -> Option<()> {
    let c = carried(packet)?;
    let field = match c.proto {
        6 => 16,
        17 => 6,
        _ => return None,
    };
    let addresses = if packet.first()? >> 4 == 4 { 12..20 } else { 8..40 };
    let mut all = packet.get(addresses)?.to_vec();
    let bytes = packet.get(c.start..c.end)?;
    all.extend(u32::try_from(bytes.len()).ok()?.to_be_bytes());
    all.extend([0, 0, 0, c.proto]);
    let pseudo = all.len();
    all.extend_from_slice(bytes);
    all.get_mut(pseudo + field..pseudo + field + 2)?.fill(0);
    let sum = match internet(&all) {
        0 if c.proto == 17 => 0xffff,
        sum => sum,
    };
    packet.get_mut(c.start + field..c.start + field + 2)?.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

/// Adapts the length fields of a truncated packet to its present length. Returns whether it is a TCP segment. A shortened
/// segment may be forwarded, because its sender retransmits the rest. Does not fill in the checksum.
pub(super) fn shorten(packet: &mut [u8]) -> bool {
    try_shorten(packet).unwrap_or(false)
}

fn try_shorten(packet: &mut [u8]) -> Option<bool> {
    let len = u16::try_from(packet.len()).ok()?;
    match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet.first()? & 15) * 4;
            packet.get_mut(2..4)?.copy_from_slice(&len.to_be_bytes());
            packet.get_mut(10..12)?.fill(0);
            let sum = internet(packet.get(..header)?);
            packet.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        }
        6 => packet.get_mut(4..6)?.copy_from_slice(&len.checked_sub(40)?.to_be_bytes()),
        _ => return None,
    }
    let c = carried(packet)?;
    if c.proto == 17 && !c.fragment {
        let len = u16::try_from(packet.len().checked_sub(c.start)?).ok()?;
        packet.get_mut(c.start + 4..c.start + 6)?.copy_from_slice(&len.to_be_bytes());
    }
    Some(c.proto == 6 && !c.fragment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A datagram from 10.0.0.1, port 1, to 10.0.0.2, port 2, of `hi!`, and the same over IPv6 from ::1 to ::2.
    #[test]
    fn checksums() {
        let udp = [0, 1, 0, 2, 0, 11, 0xaa, 0xaa, b'h', b'i', b'!'];
        let mut v4 = vec![0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        v4.extend(udp);
        fill_in(&mut v4);
        // 0a00+0001+0a00+0002 + 0011+000b + 0001+0002+000b + 6869+2100 = 9d96
        assert_eq!(v4[26..28], (!0x9d96u16).to_be_bytes());
        let mut v6 = vec![0x60, 0, 0, 0, 0, 19, 60, 64];
        for n in [1, 2] {
            v6.extend([0; 15]);
            v6.push(n);
        }
        v6.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        v6.extend(udp);
        fill_in(&mut v6);
        // 0001+0002 + 000b+0011 + 0001+0002+000b + 6869+2100 = 8996
        assert_eq!(v6[54..56], (!0x8996u16).to_be_bytes());
    }

    #[test]
    fn what_was_cut_ends_where_it_ends() {
        let mut tcp = vec![0x45, 0, 0xff, 0xff, 0, 0, 0x40, 0, 64, 6, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2];
        tcp.extend([0; 30]);
        assert!(shorten(&mut tcp));
        assert_eq!((&tcp[2..4], internet(&tcp[..20])), (&[0, 50][..], 0));
        fill_in(&mut tcp);
        assert_ne!(tcp[36..38], [0, 0]);
        let mut udp = vec![0x60, 0, 0, 0, 0xff, 0xff, 17, 64];
        udp.extend([0; 32 + 8 + 5]);
        assert!(!shorten(&mut udp));
        assert_eq!((&udp[4..6], &udp[44..46]), (&[0, 13][..], &[0, 13][..]));
    }

    proptest! {
        #[test]
        fn nothing_is_written_outside(bytes in proptest::collection::vec(any::<u8>(), 0..120), first in 0u8..0x80) {
            let mut packet = bytes;
            if let Some(b) = packet.first_mut() {
                *b = first;
            }
            let before = packet.clone();
            fill_in(&mut packet);
            let changed = before.iter().zip(&packet).filter(|(a, b)| a != b).count();
            prop_assert!(changed <= 2);
            shorten(&mut packet);
        }
    }
}
