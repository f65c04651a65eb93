//! A frame's headers: the offsets of the fields that an instance of a session changes, and checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use margay_packet::checksum::internet;

/// Offsets of an IP packet's fields within its Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Offset of the IP header.
    pub(crate) l3: u16,
    /// Offset of the IP packet's end; less than the frame's length if the frame is padded.
    pub(crate) end: u16,
    pub(crate) v6: bool,
    /// Transport protocol, also in fragments after the first.
    pub(crate) proto: u8,
    /// Offset of the transport header; 0 in fragments after the first, or if the header is incomplete.
    pub(crate) l4: u16,
    /// Offset of the transport checksum; 0 if there is none.
    pub(crate) check: u16,
    /// Whether the packet is a fragment; true for the first one, too.
    pub(crate) fragment: bool,
    /// Offset of the identification's two low bytes; 0 if there is none.
    pub(crate) id: u16,
}

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMPV6: u8 = 58;

pub(crate) fn be16(b: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*b.get(at..)?.first_chunk()?))
}

pub(crate) fn be32(b: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*b.get(at..)?.first_chunk()?))
}

pub(crate) fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = b.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Offset and type of an Ethernet frame's payload, after up to four VLAN tags.
fn ethernet(frame: &[u8]) -> Option<(usize, u16)> {
    let mut at = 12;
    let mut kind = be16(frame, at)?;
    for _ in 0..4 {
        if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        at += 4;
        kind = be16(frame, at)?;
    }
    Some((at + 2, kind))
}

/// Finds the headers; `None` if the frame has no complete IP header.
pub(crate) fn parse(frame: &[u8]) -> Option<Layout> {
    let (l3, kind) = ethernet(frame)?;
    let (mut l4, proto, end, fragment, later, v6, id);
    match kind {
        0x0800 => {
            let first = *frame.get(l3)?;
            let header = usize::from(first & 15) * 4;
            if first >> 4 != 4 || header < 20 || frame.len() < l3 + header {
                return None;
            }
            let total = usize::from(be16(frame, l3 + 2)?);
            end = (l3 + total.max(header)).min(frame.len());
            let flags = be16(frame, l3 + 6)?;
            fragment = flags & 0x3fff != 0;
            later = flags & 0x1fff != 0;
            proto = *frame.get(l3 + 9)?;
            l4 = l3 + header;
            v6 = false;
            id = l3 + 4;
        }
        0x86dd => {
            if frame.get(l3)? >> 4 != 6 || frame.len() < l3 + 40 {
                return None;
            }
            end = (l3 + 40 + usize::from(be16(frame, l3 + 4)?)).min(frame.len());
            let mut next = *frame.get(l3 + 6)?;
            l4 = l3 + 40;
            let (mut any, mut behind, mut place) = (false, false, 0);
            for _ in 0..8 {
                let len = match next {
                    0 | 43 | 60 | 135 => 8 + usize::from(*frame.get(l4 + 1)?) * 8,
                    51 => 8 + usize::from(*frame.get(l4 + 1)?) * 4,
                    44 => {
                        let offset = be16(frame, l4 + 2)?;
                        any = offset & 0xfff9 != 0;
                        behind = offset & 0xfff8 != 0;
                        place = l4 + 6;
                        8
                    }
                    _ => break,
                };
                next = *frame.get(l4)?;
                l4 += len;
                if behind {
                    break;
                }
            }
            (proto, fragment, later, v6, id) = (next, any, behind, true, place);
        }
        _ => return None,
    }
    let (need, field) = match (proto, v6) {
        (TCP, _) => (20, 16),
        (UDP, _) => (8, 6),
        (ICMP, false) | (ICMPV6, true) => (4, 2),
        (132, _) => (12, 0),
        _ => (0, 0),
    };
    if later || need == 0 || l4 + need > end {
        l4 = 0;
    }
    let check = if l4 != 0 && field != 0 { l4 + field } else { 0 };
    let short = |n: usize| u16::try_from(n).ok();
    Some(Layout {
        l3: short(l3)?,
        end: short(end)?,
        v6,
        proto,
        l4: short(l4)?,
        check: short(check)?,
        fragment,
        id: short(id)?,
    })
}

impl Layout {
    /// Offsets of the source and destination addresses, and the length of an address.
    pub(crate) fn addresses(&self) -> (usize, usize, usize) {
        let l3 = usize::from(self.l3);
        if self.v6 { (l3 + 8, l3 + 24, 16) } else { (l3 + 12, l3 + 16, 4) }
    }

    pub(crate) fn ends(&self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let (s, d, _) = self.addresses();
        let get = |at: usize| -> Option<IpAddr> {
            let bytes = frame.get(at..)?;
            Some(if self.v6 {
                IpAddr::V6(Ipv6Addr::from(*bytes.first_chunk::<16>()?))
            } else {
                IpAddr::V4(Ipv4Addr::from(*bytes.first_chunk::<4>()?))
            })
        };
        Some((get(s)?, get(d)?))
    }

    /// Whether the transport header is present and has ports.
    pub(crate) fn has_ports(&self) -> bool {
        self.l4 != 0 && matches!(self.proto, TCP | UDP | 132)
    }

    pub(crate) fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let l4 = usize::from(self.l4);
        self.has_ports().then_some((be16(frame, l4)?, be16(frame, l4 + 2)?))
    }

    pub(crate) fn tcp_flags(&self, frame: &[u8]) -> Option<u8> {
        (self.proto == TCP && self.l4 != 0).then(|| frame.get(usize::from(self.l4) + 13).copied())?
    }

    /// Computes the IPv4 header's checksum, and the transport's if the whole packet is there. A UDP checksum of 0 over IPv4
    /// stays 0: the sender computed none (RFC 768).
    pub(crate) fn fix(&self, frame: &mut [u8]) {
        let l3 = usize::from(self.l3);
        if !self.v6 {
            let header = frame.get(l3).map_or(0, |b| usize::from(b & 15) * 4);
            put(frame, l3 + 10, &[0, 0]);
            let sum = frame.get(l3..l3 + header).map_or(0, internet);
            put(frame, l3 + 10, &sum.to_be_bytes());
        }
        let (check, l4, end) = (usize::from(self.check), usize::from(self.l4), usize::from(self.end));
        if check == 0 || self.fragment {
            return;
        }
        if self.proto == UDP {
            let told = be16(frame, l4 + 4).map_or(0, usize::from);
            let none = !self.v6 && be16(frame, check) == Some(0);
            if none || told != end - l4 {
                return;
            }
        }
        put(frame, check, &[0, 0]);
        let Some(bytes) = frame.get(l4..end) else { return };
        let mut sum = u32::from(!internet(bytes));
        if self.proto != ICMP {
            let (s, _, len) = self.addresses();
            let ends = frame.get(s..s + 2 * len).unwrap_or(&[]);
            let total = (end - l4) as u32;
            sum += u32::from(!internet(ends)) + u32::from(self.proto) + (total >> 16) + (total & 0xffff);
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let mut value = !(sum as u16);
        if value == 0 && self.proto == UDP {
            value = 0xffff;
        }
        put(frame, check, &value.to_be_bytes());
    }
}

/// The effect of one or more changes of bytes on a checksum over them (RFC 1624).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta(i64);

impl Delta {
    /// Replaces the bytes at `at`, and adds the change. `base` is the offset where the checksummed bytes begin.
    pub(crate) fn replace(&mut self, frame: &mut [u8], at: usize, new: &[u8], base: usize) {
        let Some(old) = frame.get_mut(at..at + new.len()) else { return };
        let mut even = (at.wrapping_sub(base)) & 1 == 0;
        for (o, n) in old.iter_mut().zip(new) {
            let change = i64::from(*n) - i64::from(*o);
            self.0 += if even { change << 8 } else { change };
            even = !even;
            *o = *n;
        }
    }

    /// The sum of both changes.
    pub(crate) fn plus(self, other: Delta) -> Delta {
        Delta(self.0 + other.0)
    }

    /// Updates the checksum at `at`. A UDP checksum of 0 is written as `0xffff`, since 0 says that the sender computed none
    /// (RFC 768).
    pub(crate) fn apply(self, frame: &mut [u8], at: usize, udp: bool) {
        let Some(old) = be16(frame, at) else { return };
        let mut sum = (i64::from(!old) + self.0).rem_euclid(0xffff);
        if sum == 0 {
            // The sum of bytes that are not all zero is never +0 in ones' complement.
            sum = 0xffff;
        }
        let mut value = !(sum as u16);
        if udp && value == 0 {
            value = 0xffff;
        }
        put(frame, at, &value.to_be_bytes());
    }
}

/// Converts a frame of another link layer to Ethernet. `macs` is the destination and the source address. `None` if the link
/// layer is unknown or the packet is not IP.
pub(crate) fn to_ethernet(link: margay_packet::LinkType, data: &[u8], macs: &[u8; 12]) -> Option<Vec<u8>> {
    use margay_packet::LinkType as L;
    let skip = match link {
        L::ETHERNET => return Some(data.to_vec()),
        L::NULL | L::LOOP => 4,
        L::LINUX_SLL => 16,
        L::LINUX_SLL2 => 20,
        l if l.is_raw_ip() => 0,
        _ => return None,
    };
    let rest = data.get(skip..)?;
    let kind: u16 = match rest.first()? >> 4 {
        4 => 0x0800,
        6 => 0x86dd,
        _ => return None,
    };
    Some([macs.as_slice(), &kind.to_be_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::rng::Rng;

    /// An Ethernet frame with IPv4, UDP and `payload`, its checksums not computed.
    fn udp4(payload: &[u8]) -> Vec<u8> {
        let total = 28 + payload.len() as u16;
        let mut f = vec![2; 12];
        f.extend([8, 0, 0x45, 0]);
        f.extend(total.to_be_bytes());
        f.extend([0, 1, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend([0x10, 0, 0, 53]);
        f.extend((total - 20).to_be_bytes());
        f.extend([0xff, 0xff]);
        f.extend(payload);
        f
    }

    #[test]
    fn incremental_is_as_computed_anew() {
        let mut rng = Rng::new(1, 0);
        for n in 0..2000usize {
            let payload = rng.bytes(n % 40);
            let mut frame = udp4(&payload);
            let layout = parse(&frame).unwrap();
            layout.fix(&mut frame);
            let (mut ip, mut l4) = (Delta::default(), Delta::default());
            let l3 = usize::from(layout.l3);
            for at in [l3 + 12, l3 + 16] {
                ip.replace(&mut frame, at, &rng.bytes(4), l3);
            }
            for at in 0..payload.len().min(3) {
                l4.replace(&mut frame, 42 + at, &rng.bytes(1), 34);
            }
            l4.replace(&mut frame, 34, &rng.bytes(2), 34);
            ip.apply(&mut frame, l3 + 10, false);
            l4.plus(ip).apply(&mut frame, 40, true);
            let mut anew = frame.clone();
            layout.fix(&mut anew);
            assert_eq!(frame, anew);
        }
    }

    #[test]
    fn cut_frames_are_no_trouble() {
        let whole = udp4(b"hello");
        for len in 0..whole.len() {
            let mut frame = whole[..len].to_vec();
            if let Some(layout) = parse(&frame) {
                layout.fix(&mut frame);
            }
        }
    }
}
