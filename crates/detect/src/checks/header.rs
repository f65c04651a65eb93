//! Checks of headers.

use margay_packet::{L3, L4, Packet, PacketSource};
use margay_rules::ast::{ChecksumLayer, Compare, FlagMode, IpOption, IpRepOp, IpRepSide, VlanLayer};

use super::CheckInput;

pub(super) fn u16_at(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// The fixed part of the IPv4 header.
pub(super) fn ipv4<'a>(p: &Packet<'a>) -> Option<&'a [u8; 20]> {
    match p.l3 {
        L3::Ipv4 { .. } => p.l3_bytes().first_chunk(),
        _ => None,
    }
}

/// The fixed part of the IPv6 header.
fn ipv6<'a>(p: &Packet<'a>) -> Option<&'a [u8; 40]> {
    match p.l3 {
        L3::Ipv6 { .. } => p.l3_bytes().first_chunk(),
        _ => None,
    }
}

pub(super) fn version(p: &Packet<'_>) -> Option<u8> {
    match p.l3 {
        L3::Ipv4 { .. } => Some(4),
        L3::Ipv6 { .. } => Some(6),
        _ => None,
    }
}

/// TTL or hop limit.
pub(crate) fn ttl(p: &Packet<'_>) -> Option<u8> {
    p.ttl()
}

/// Identification field of the IPv4 header.
pub(crate) fn ip_id(p: &Packet<'_>) -> Option<u16> {
    ipv4(p).and_then(|h| u16_at(h, 4))
}

/// Fields of the IP header; 0 if there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IpFields {
    pub(crate) ttl: u8,
    pub(crate) id: u16,
    /// Flags and fragment offset of the IPv4 header.
    pub(crate) fragment: u16,
}

/// The values of [`ttl`], [`ip_id`] and [`frag_word`] for a packet.
#[inline]
pub(crate) fn ip_fields(p: &Packet<'_>) -> IpFields {
    match ipv4(p) {
        Some(&[_, _, _, _, id0, id1, f0, f1, ttl, ..]) => {
            IpFields { ttl, id: u16::from_be_bytes([id0, id1]), fragment: u16::from_be_bytes([f0, f1]) }
        }
        None => IpFields { ttl: ipv6(p).map_or(0, |h| h[7]), ..IpFields::default() },
    }
}

pub(super) fn ip_option(p: &Packet<'_>, o: IpOption) -> bool {
    match (p.l3, o) {
        (L3::Ipv4 { options, .. }, IpOption::Any) => options != 0,
        (L3::Ipv4 { options, .. }, IpOption::Bit(b)) => options & b != 0,
        _ => false,
    }
}

/// Flags and fragment offset of the IPv4 header.
pub(crate) fn frag_word(p: &Packet<'_>) -> Option<u16> {
    ipv4(p).and_then(|h| u16_at(h, 6))
}

/// Fragment offset in units of 8 bytes; for IPv6 only with a fragment header.
pub(super) fn frag_offset(p: &Packet<'_>) -> Option<u16> {
    match p.l3 {
        L3::Ipv4 { .. } => frag_word(p).map(|w| w & 0x1fff),
        L3::Ipv6 { fragment, .. } if fragment != 0 => u16_at(p.data.get(fragment as usize..)?, 2).map(|w| w >> 3),
        _ => None,
    }
}

/// Compares flag bits. The manual's "not set" holds unless all bits are set (observed).
pub(super) fn flags(have: u32, want: u32, mode: FlagMode) -> bool {
    match mode {
        FlagMode::Exact => have == want,
        FlagMode::All => have & want == want,
        FlagMode::Any => have & want != 0,
        FlagMode::Not => have & want != want,
    }
}

/// Compares the flags of a TCP header. `flags:0` and `flags:!0` compare all flags and ignore the mask (observed).
pub(super) fn tcp_flags(have: u8, want: u8, ignore: u8, mode: FlagMode) -> bool {
    if want == 0 {
        return (have == 0) != (mode == FlagMode::Not);
    }
    has_groups(have, want) && flags((have & !ignore).into(), want.into(), mode)
}

/// Suricata's precondition for comparing flags: the packet has one of SYN, FIN and RST if the rule names one of them,
/// and one of URG, ECE and CWR if the rule names one of these. It matters for `!` and `*`: `flags:!S` holds only for
/// packets with FIN or RST.
const fn has_groups(have: u8, want: u8) -> bool {
    use margay_packet::tcp::flag::{ACK, FIN, PSH, RST, SYN};
    const ENDS: u8 = SYN | FIN | RST;
    const RARE: u8 = !(ENDS | ACK | PSH);
    (want & ENDS == 0 || have & ENDS != 0) && (want & RARE == 0 || have & RARE != 0)
}

/// Compares the fragment bits of an IPv4 header. `+` requires a further bit beside the named ones (observed).
pub(super) fn fragment_bits(have: u16, want: u16, mode: FlagMode) -> bool {
    let more = mode != FlagMode::All || have & !want != 0;
    more && flags(have.into(), want.into(), mode)
}

pub(super) fn is_icmp(p: &Packet<'_>) -> bool {
    matches!(p.l4, L4::Icmpv4 { .. } | L4::Icmpv6 { .. })
}

/// Identifier and sequence number of the ICMP messages that have them: echo, timestamp, information and address mask
/// (RFC 792, RFC 950), and ICMPv6 echo (RFC 4443).
pub(super) fn icmp_id_seq(p: &Packet<'_>) -> Option<(u16, u16)> {
    let has = match p.l4 {
        L4::Icmpv4 { .. } => matches!(p.icmp.0, 0 | 8 | 13..=18),
        L4::Icmpv6 { .. } => matches!(p.icmp.0, 128 | 129),
        _ => false,
    };
    if !has {
        return None;
    }
    let b = p.l4_bytes();
    Some((u16_at(b, 4)?, u16_at(b, 6)?))
}

/// MTU of a "packet too big" message (RFC 4443 section 3.2).
pub(super) fn icmpv6_mtu(p: &Packet<'_>) -> Option<u32> {
    match p.l4 {
        L4::Icmpv6 { .. } if p.icmp.0 == 2 => u32_at(p.l4_bytes(), 4),
        _ => None,
    }
}

pub(super) fn igmp_type(p: &Packet<'_>) -> Option<u8> {
    match p.l4 {
        L4::Igmp { .. } => p.l4_bytes().first().copied(),
        _ => None,
    }
}

/// Whether this is a pseudo packet, which carries stream data and was never on the wire.
pub(super) fn is_pseudo(p: &Packet<'_>) -> bool {
    matches!(p.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush)
}

/// Whether the layer's checksum is correct; `None` if the packet does not have that layer.
pub(super) fn checksum(p: &Packet<'_>, layer: ChecksumLayer) -> Option<bool> {
    let v4 = matches!(p.l3, L3::Ipv4 { .. });
    let v6 = matches!(p.l3, L3::Ipv6 { .. });
    let has = match layer {
        ChecksumLayer::Ipv4 => return p.ipv4_checksum_ok(),
        ChecksumLayer::TcpV4 => v4 && p.is_tcp(),
        ChecksumLayer::TcpV6 => v6 && p.is_tcp(),
        ChecksumLayer::UdpV4 => v4 && matches!(p.l4, L4::Udp { .. }),
        ChecksumLayer::UdpV6 => v6 && matches!(p.l4, L4::Udp { .. }),
        ChecksumLayer::Icmpv4 => matches!(p.l4, L4::Icmpv4 { .. }),
        ChecksumLayer::Icmpv6 => matches!(p.l4, L4::Icmpv6 { .. }),
    };
    if has { p.l4_checksum_ok() } else { None }
}

pub(super) fn vlan(ids: &[u16], value: Compare, layer: VlanLayer) -> bool {
    let holds = |id: &u16| value.holds(u64::from(*id));
    match layer {
        VlanLayer::Any => ids.iter().any(holds),
        VlanLayer::All => !ids.is_empty() && ids.iter().all(holds),
        VlanLayer::Index(i) => {
            let i = isize::from(i);
            let at = if i < 0 { ids.len().checked_add_signed(i) } else { usize::try_from(i).ok() };
            at.and_then(|i| ids.get(i)).is_some_and(holds)
        }
    }
}

pub(super) fn reputation(input: &CheckInput<'_>, side: IpRepSide, category: u8, op: IpRepOp) -> bool {
    let p = input.packet;
    let Some(rep) = input.reputation.filter(|_| p.is_ip()) else { return false };
    let holds = |address| {
        let score = rep.score(address, category);
        match op {
            IpRepOp::Score(c) => score.is_some_and(|s| c.holds(s.into())),
            IpRepOp::IsSet => score.is_some(),
            // A score of 0 means no data.
            IpRepOp::IsNotSet => score.is_none_or(|s| s == 0),
        }
    };
    match side {
        IpRepSide::Any => holds(p.src) || holds(p.dst),
        IpRepSide::Source => holds(p.src),
        IpRepSide::Destination => holds(p.dst),
        IpRepSide::Both => holds(p.src) && holds(p.dst),
    }
}

/// A Sun RPC call (RFC 5531 section 9); over TCP a record mark comes first (section 11).
pub(super) fn rpc(p: &Packet<'_>, program: u32, version: Option<u32>, procedure: Option<u32>) -> bool {
    let start = match p.l4 {
        L4::Udp { .. } => 0,
        L4::Tcp { .. } => 4,
        _ => return false,
    };
    let Some(call) = p.payload().get(start..).filter(|c| c.len() >= 24) else { return false };
    u32_at(call, 4) == Some(0)
        && u32_at(call, 12) == Some(program)
        && version.is_none_or(|v| u32_at(call, 16) == Some(v))
        && procedure.is_none_or(|v| u32_at(call, 20) == Some(v))
}
