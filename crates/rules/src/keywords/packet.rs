//! Keywords on a packet's headers, and header buffers.

use super::{Buffer, Keyword};
use crate::ast::{Check, ChecksumLayer, Compare, FlagMode, IpOption, Protocol, VlanLayer};
use crate::builder::{Builder, Input, PAYLOAD};
use crate::error::{Fail, fail};
use crate::number::{compare, decimal};
use crate::size::unsigned;

/// The buffers of headers: the enum that detection uses, and each one's keyword.
macro_rules! headers {
    ($($(#[$about:meta])* $variant:ident $id:ident $name:literal $description:literal;)*) => {
        /// A buffer within the packet itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PacketBuffer {
            /// `payload`, `pkt_data`: the bytes after the innermost header.
            Payload,
            $($(#[$about])* $variant,)*
        }

        impl PacketBuffer {
            /// All buffers, in the order of their numbers.
            pub const ALL: &[PacketBuffer] = &[PacketBuffer::Payload, $(PacketBuffer::$variant,)*];

            /// The buffer with that name; `None` if it is not a packet buffer.
            pub fn from_name(name: &str) -> Option<PacketBuffer> {
                match name {
                    PAYLOAD | "pkt_data" => Some(PacketBuffer::Payload),
                    $($name => Some(PacketBuffer::$variant),)*
                    _ => None,
                }
            }

            /// The buffer's name in rules.
            pub const fn name(self) -> &'static str {
                match self {
                    PacketBuffer::Payload => PAYLOAD,
                    $(PacketBuffer::$variant => $name,)*
                }
            }
        }

        $(static $id: Buffer = Buffer {
            name: $name, internal: $name, description: $description, ..Buffer::PLAIN
        };)*

        /// The sticky buffers of headers.
        pub(super) const HEADERS: &[Keyword] = &[$(Keyword::sticky(&[$name], &$id)),*];
    };
}

headers! {
    /// `tcp.hdr`: the TCP header with its options.
    TcpHeader TCP_HDR "tcp.hdr" "tcp header";
    /// `udp.hdr`: the 8 bytes of the UDP header.
    UdpHeader UDP_HDR "udp.hdr" "udp header";
    /// `ipv4.hdr`: the IPv4 header with its options.
    Ipv4Header IPV4_HDR "ipv4.hdr" "ipv4 header";
    /// `ipv6.hdr`: the IPv6 header with its extension headers.
    Ipv6Header IPV6_HDR "ipv6.hdr" "ipv6 header";
    /// `icmpv4.hdr`: 8 bytes; 20 for a timestamp message; a router advertisement includes its addresses.
    Icmpv4Header ICMPV4_HDR "icmpv4.hdr" "icmpv4 header";
    /// `icmpv6.hdr`: 8 bytes.
    Icmpv6Header ICMPV6_HDR "icmpv6.hdr" "icmpv6 header";
    /// `ip.src`: the source address, 4 or 16 bytes.
    IpSource IP_SRC "ip.src" "source address";
    /// `ip.dst`: the destination address.
    IpDestination IP_DST "ip.dst" "destination address";
    /// `igmp.hdr`: the first 8 bytes of an IGMP message (RFC 2236 section 2).
    IgmpHeader IGMP_HDR "igmp.hdr" "igmp header";
    /// `ether.hdr`: the 14 bytes of the Ethernet header, of captured frames and reassembled datagrams.
    EthernetHeader ETHER_HDR "ether.hdr" "ethernet header";
    /// `arp.hdr`: the whole ARP message.
    ArpHeader ARP_HDR "arp.hdr" "arp header";
}

impl PacketBuffer {
    /// The buffer's number, below the length of [`Self::ALL`]: an index for tables.
    #[inline]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// The buffer of that number.
    #[inline]
    pub fn from_index(index: u8) -> Option<PacketBuffer> {
        Self::ALL.get(usize::from(index)).copied()
    }

    /// Whether only a packet has it: a stream has a payload, and a flow has addresses.
    pub const fn is_header(self) -> bool {
        !matches!(self, PacketBuffer::Payload | PacketBuffer::IpSource | PacketBuffer::IpDestination)
    }

    /// Whether packets of a rule's protocol may have it.
    pub(crate) fn fits(self, protocol: &Protocol) -> bool {
        match (self, protocol) {
            (_, Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::PacketHeader) => true,
            (PacketBuffer::TcpHeader, Protocol::App(app)) => margay_app::header_transports(app)[0],
            (PacketBuffer::UdpHeader, Protocol::App(app)) => margay_app::header_transports(app)[1],
            (PacketBuffer::TcpHeader, p) => matches!(p, Protocol::Tcp | Protocol::TcpPacket | Protocol::TcpStream),
            (PacketBuffer::UdpHeader, p) => *p == Protocol::Udp,
            (PacketBuffer::Icmpv4Header, p) => matches!(p, Protocol::Icmp | Protocol::Icmpv4),
            (PacketBuffer::Icmpv6Header, p) => matches!(p, Protocol::Icmp | Protocol::Icmpv6),
            _ => true,
        }
    }
}

macro_rules! integers {
    ($($f:ident $max:expr, $module:literal => $check:expr;)*) => {
        $(fn $f(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
            match compare(&i.text, $max) {
                Some(c) => { let check: fn(Compare) -> Check = $check; b.packet_check(check(c)); Ok(()) }
                None => fail($module, format!("invalid value for {}: \"{}\"", i.written, i.text)),
            }
        })*
    };
}

const U8: u64 = u8::MAX as u64;
const U16: u64 = u16::MAX as u64;
const U32: u64 = u32::MAX as u64;

integers! {
    ttl U8, "detect-ttl" => Check::Ttl;
    tcp_seq U32, "detect-seq" => Check::TcpSeq;
    tcp_ack U32, "detect-ack" => Check::TcpAck;
    tcp_window U16, "detect-tcp-window" => |value| Check::TcpWindow { value };
    tcp_mss U16, "detect-tcpmss" => Check::TcpMss;
    tcp_wscale U8, "detect-tcp-wscale" => Check::TcpWscale;
    itype U8, "detect-itype" => Check::IcmpType;
    icode U8, "detect-icode" => Check::IcmpCode;
    icmpv6_mtu U32, "detect-icmpv6-mtu" => Check::Icmpv6Mtu;
    igmp_type U8, "detect-igmp-type" => Check::IgmpType;
    vlan_layers 3, "detect-vlan-layers" => Check::VlanLayers;
}

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::value(&["ttl"], ttl).about("the time to live of the IP header"),
    Keyword::value(&["tos"], tos).negatable().about("the type of service of the IPv4 header"),
    Keyword::value(&["id"], id).about("the identification of the IPv4 header"),
    Keyword::value(&["ip_proto"], ip_proto).or_unquoted().about("the protocol of the IP header"),
    Keyword::bare(&["sameip"], sameip).about("source and destination are the same address"),
    Keyword::value(&["l3_proto"], l3_proto).about("the version of IP"),
    Keyword::value(&["ipopts"], ipopts).about("an option of the IPv4 header is there"),
    Keyword::value(&["fragbits"], fragbits).about("the bits of the IPv4 header about fragments"),
    Keyword::value(&["fragoffset"], fragoffset).about("the offset of the fragment, in units of 8 bytes"),
    Keyword::value(&["tcp.flags", "flags"], tcp_flags).about("the flags of the TCP header"),
    Keyword::value(&["tcp.seq", "seq"], tcp_seq).about("the sequence number of the TCP header"),
    Keyword::value(&["tcp.ack", "ack"], tcp_ack).about("the acknowledgement number of the TCP header"),
    Keyword::value(&["tcp.window", "window"], tcp_window).about("the window of the TCP header"),
    Keyword::value(&["tcp.mss"], tcp_mss).about("the maximum segment size option of the TCP header"),
    Keyword::value(&["tcp.wscale"], tcp_wscale).about("the window scale option of the TCP header"),
    Keyword::value(&["itype"], itype).about("the type of an ICMP message"),
    Keyword::value(&["icode"], icode).about("the code of an ICMP message"),
    Keyword::value(&["icmp_id"], icmp_id).about("the identifier of an ICMP message"),
    Keyword::value(&["icmp_seq"], icmp_seq).about("the sequence number of an ICMP message"),
    Keyword::value(&["icmpv6.mtu"], icmpv6_mtu).about("the MTU in an ICMPv6 message"),
    Keyword::value(&["igmp.type"], igmp_type).about("the type of an IGMP message"),
    Keyword::value(&["dsize"], dsize).about("the size of the packet's payload"),
    Keyword::value(&["ipv4-csum"], checksum).about("whether the checksum of the IPv4 header is valid"),
    Keyword::value(&["tcpv4-csum"], checksum).about("whether the checksum of TCP over IPv4 is valid"),
    Keyword::value(&["tcpv6-csum"], checksum).about("whether the checksum of TCP over IPv6 is valid"),
    Keyword::value(&["udpv4-csum"], checksum).about("whether the checksum of UDP over IPv4 is valid"),
    Keyword::value(&["udpv6-csum"], checksum).about("whether the checksum of UDP over IPv6 is valid"),
    Keyword::value(&["icmpv4-csum"], checksum).about("whether the checksum of an ICMPv4 message is valid"),
    Keyword::value(&["icmpv6-csum"], checksum).about("whether the checksum of an ICMPv6 message is valid"),
    Keyword::value(&["vlan.id"], vlan_id).about("the identifier of a VLAN tag"),
    Keyword::value(&["vlan.layers"], vlan_layers).about("how many VLAN tags the packet has"),
    Keyword::value(&["rpc"], rpc).about("program, version and procedure of a call of Sun RPC"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::Ttl(_) => "ttl",
        Check::Tos { .. } => "tos",
        Check::IpId(_) => "id",
        Check::IpProto(_) => "ip_proto",
        Check::SameIp => "sameip",
        Check::L3Proto(_) => "l3_proto",
        Check::IpOption(_) => "ipopts",
        Check::FragBits { .. } => "fragbits",
        Check::FragOffset(_) => "fragoffset",
        Check::TcpFlags { .. } => "tcp.flags",
        Check::TcpSeq(_) => "tcp.seq",
        Check::TcpAck(_) => "tcp.ack",
        Check::TcpWindow { .. } => "tcp.window",
        Check::TcpMss(_) => "tcp.mss",
        Check::TcpWscale(_) => "tcp.wscale",
        Check::IcmpType(_) => "itype",
        Check::IcmpCode(_) => "icode",
        Check::IcmpId(_) => "icmp_id",
        Check::IcmpSeq(_) => "icmp_seq",
        Check::Icmpv6Mtu(_) => "icmpv6.mtu",
        Check::IgmpType(_) => "igmp.type",
        Check::Dsize(_) => "dsize",
        Check::Checksum { layer, .. } => checksum_name(*layer),
        Check::VlanId { .. } => "vlan.id",
        Check::VlanLayers(_) => "vlan.layers",
        Check::Rpc { .. } => "rpc",
        _ => return None,
    })
}

fn tos(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-tos";
    let t = i.text.trim();
    let value = match t.strip_prefix('x') {
        Some(h) => u64::from_str_radix(h, 16).ok(),
        None => decimal(t, u64::MAX),
    };
    match value {
        Some(n) if n <= U8 => {
            b.packet_check(Check::Tos { value: n as u8, negated: i.negated });
            Ok(())
        }
        Some(_) => fail(M, format!("Invalid tos argument - {t}.  The tos option value must be in the range 0 - 255")),
        None => fail(M, format!("invalid tos option - {t}. The tos option value must be in the range 0 - 255")),
    }
}

fn id(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-id";
    let t = i.text.trim();
    match decimal(t, u64::MAX) {
        Some(n) if n <= U16 => {
            b.packet_check(Check::IpId(n as u16));
            Ok(())
        }
        Some(_) => fail(M, format!("invalid id option '{t}'")),
        None => fail(M, format!("invalid id option '{t}'. The id option value must be in the range 0 - 65536")),
    }
}

/// Names of IP protocols (RFC 5237's registry, as in `/etc/protocols`).
const IP_PROTOCOLS: &[(&str, u8)] = &[
    ("ip", 0),
    ("hopopt", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("ipip", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("skip", 57),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ospfigp", 89),
    ("ax.25", 93),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("manet", 138),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
    ("ethernet", 143),
];

/// Aliases of the registry that are in neither case.
const MIXED_CASE: &[&str] = &[
    "IPv6",
    "IPv6-Route",
    "IPv6-Frag",
    "IPv6-ICMP",
    "IPv6-NoNxt",
    "IPv6-Opts",
    "Mobility-Header",
    "UDPLite",
    "MPLS-in-IP",
    "Shim6",
];

fn ip_protocol(name: &str) -> Option<u8> {
    // Lower case, or an alias of the registry, most of which are in upper case.
    let lower = name.to_ascii_lowercase();
    if name != lower && name != name.to_ascii_uppercase() && !MIXED_CASE.contains(&name) {
        return None;
    }
    IP_PROTOCOLS.iter().find(|p| p.0 == lower).map(|p| p.1)
}

fn ip_proto(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-ipproto";
    let t = i.text.trim();
    let (op, name) = match t.chars().next() {
        Some(c @ ('!' | '<' | '>')) => (c, t.get(1..).unwrap_or_default().trim_start()),
        _ => ('=', t),
    };
    let number = if name.starts_with(|c: char| c.is_ascii_digit()) {
        match decimal(name, U8) {
            Some(n) => n,
            None => return fail(M, format!("Malformed protocol number: {name}")),
        }
    } else {
        match ip_protocol(name) {
            Some(n) => u64::from(n),
            None => return fail(M, format!("Unknown protocol name: \"{name}\"")),
        }
    };
    if !matches!(b.rule.protocol, Protocol::Ip | Protocol::Ipv4 | Protocol::Ipv6 | Protocol::PacketHeader) {
        return fail(
            M,
            "Signature can use ip_proto keyword only when we use alert ip, in which case the _ANY flag is set on the sig \
             and the if condition should match.",
        );
    }
    let c = match op {
        '!' => Compare::NotEqual(number),
        '<' => Compare::Less(number),
        '>' => Compare::Greater(number),
        _ => Compare::Equal(number),
    };
    for old in &b.rule.checks {
        let Check::IpProto(old) = old else { continue };
        match (old, &c) {
            (Compare::Equal(_), _) | (_, Compare::Equal(_)) => {
                return fail(M, "can't use a eq ipproto without any operators attached to them in the same sig");
            }
            (Compare::Greater(_), Compare::Greater(_)) => {
                return fail(M, "can't use a eq or gt ipproto along with a greater than ipproto in the same sig ");
            }
            (Compare::Less(_), Compare::Less(_)) => {
                return fail(M, "can't use a eq or lt ipproto along with a less than ipproto in the same sig ");
            }
            (Compare::Greater(least), Compare::Less(most)) if most <= least => {
                return fail(M, "can't use a have both gt and lt ipprotos, with the lt being lower than gt value");
            }
            (Compare::Less(most), Compare::Greater(least)) if most <= least => {
                return fail(M, "can't have both gt and lt ipprotos, with the lt being lower than gt value");
            }
            _ => {}
        }
    }
    b.packet_check(Check::IpProto(c));
    Ok(())
}

#[allow(clippy::unnecessary_wraps)]
fn sameip(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> {
    b.packet_check(Check::SameIp);
    Ok(())
}

fn l3_proto(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let v = match i.text.trim().to_ascii_lowercase().as_str() {
        "ipv4" | "ip4" => 4,
        "ipv6" | "ip6" => 6,
        _ => return fail("detect-l3proto", format!("Invalid l3 proto: \"{}\"", i.text.trim())),
    };
    b.check(Check::L3Proto(v));
    Ok(())
}

fn ipopts(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    // The bits of the decoder's `ipv4_option`.
    let bit = match i.text.trim().to_ascii_lowercase().as_str() {
        "any" => {
            b.packet_check(Check::IpOption(IpOption::Any));
            return Ok(());
        }
        "eol" => 0,
        "nop" => 1,
        "rr" => 2,
        "ts" => 3,
        "sec" => 4,
        "lsrr" => 5,
        "satid" => 6,
        "ssrr" => 7,
        "rtralt" => 8,
        "cipso" => 9,
        "esec" => 10,
        "qs" => 11,
        t => return fail("detect-ipopts", format!("unknown IP option specified \"{t}\"")),
    };
    b.packet_check(Check::IpOption(IpOption::Bit(1 << bit)));
    Ok(())
}

/// Letters with a mode before or after them.
fn flag_letters(text: &str) -> (FlagMode, String) {
    let mut mode = FlagMode::Exact;
    let mut letters = String::new();
    for c in text.chars().filter(|c| !c.is_ascii_whitespace()) {
        match c {
            '+' => mode = FlagMode::All,
            '*' => mode = FlagMode::Any,
            '!' => mode = FlagMode::Not,
            c => letters.push(c),
        }
    }
    (mode, letters)
}

fn fragbits(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    // Unlike for `flags`, Suricata ignores a modifier after the letters.
    let text = i.text.trim();
    let (modifier, letters) = text.split_at(usize::from(text.starts_with(['+', '*', '!'])));
    let (mode, _) = flag_letters(modifier);
    let letters = letters.split(['+', '*', '!']).next().unwrap_or_default();
    let mut bits = 0;
    for c in letters.chars() {
        bits |= match c {
            'M' => 0x2000,
            'D' => 0x4000,
            'R' => 0x8000,
            // Other letters are ignored, as in Suricata.
            _ => 0,
        };
    }
    if bits == 0 {
        return fail("detect-fragbits", format!("invalid fragbits \"{}\": M, D and R are known", i.text));
    }
    b.packet_check(Check::FragBits { bits, mode });
    Ok(())
}

fn fragoffset(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || Fail::new("detect-fragoffset", format!("Parse error {}", i.text));
    let t = i.text.trim();
    let (op, n) = match t.chars().next() {
        Some(c @ ('<' | '>')) => (c, t.get(1..).unwrap_or_default().trim()),
        _ => ('=', t),
    };
    let n = decimal(n, U16).ok_or_else(bad)?;
    b.packet_check(Check::FragOffset(match op {
        '<' => Compare::Less(n),
        '>' => Compare::Greater(n),
        _ => Compare::Equal(n),
    }));
    Ok(())
}

/// TCP flags as bits; `None` for an unknown letter.
fn tcp_bits(letters: &str) -> Option<u8> {
    letters.chars().try_fold(0, |bits, c| {
        Some(
            bits | match c.to_ascii_uppercase() {
                'F' => 0x01,
                'S' => 0x02,
                'R' => 0x04,
                'P' => 0x08,
                'A' => 0x10,
                'U' => 0x20,
                'E' | '2' => 0x40,
                'C' | '1' => 0x80,
                '0' => 0,
                _ => return None,
            },
        )
    })
}

fn tcp_flags(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || Fail::new("detect-tcp-flags", "pcre match failed");
    let (flags, ignore) = match i.text.split_once(',') {
        Some((flags, ignore)) => (flags, Some(ignore.trim())),
        None => (i.text.as_ref(), None),
    };
    let (mode, letters) = flag_letters(flags);
    if letters.is_empty() || letters.len() > 9 || ignore == Some("") {
        return Err(bad());
    }
    let bits = tcp_bits(&letters).ok_or_else(bad)?;
    let ignore = tcp_bits(ignore.unwrap_or("")).ok_or_else(bad)?;
    b.packet_check(Check::TcpFlags { bits, ignore, mode });
    Ok(())
}

/// A number, which these old keywords no longer accept in quotes.
fn plain(i: &Input<'_>, module: &'static str, what: &str) -> Result<u16, Fail> {
    let t = i.text.trim();
    match decimal(t, u64::MAX) {
        Some(n) if n <= U16 => Ok(n as u16),
        Some(_) => fail(module, format!("specified {what} {t} is not valid")),
        None => fail(module, format!("Parse error {t}")),
    }
}

fn icmp_id(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let n = plain(i, "detect-icmp-id", "icmp id")?;
    b.packet_check(Check::IcmpId(n));
    Ok(())
}

fn icmp_seq(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let n = plain(i, "detect-icmp-seq", "icmp seq")?;
    b.check(Check::IcmpSeq(n));
    Ok(())
}

fn dsize(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-dsize";
    if b.seen.dsize {
        return fail(M, "Can't use 2 or more dsizes in the same sig.  Invalidating signature.");
    }
    let Some(c) = compare(&i.text, U16) else {
        return fail(M, format!("Parsing '{}' failed", i.text));
    };
    b.seen.dsize = true;
    b.packet_check(Check::Dsize(c));
    Ok(())
}

const fn checksum_name(layer: ChecksumLayer) -> &'static str {
    match layer {
        ChecksumLayer::Ipv4 => "ipv4-csum",
        ChecksumLayer::TcpV4 => "tcpv4-csum",
        ChecksumLayer::TcpV6 => "tcpv6-csum",
        ChecksumLayer::UdpV4 => "udpv4-csum",
        ChecksumLayer::UdpV6 => "udpv6-csum",
        ChecksumLayer::Icmpv4 => "icmpv4-csum",
        ChecksumLayer::Icmpv6 => "icmpv6-csum",
    }
}

fn checksum(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let layer = match i.name {
        "ipv4-csum" => ChecksumLayer::Ipv4,
        "tcpv4-csum" => ChecksumLayer::TcpV4,
        "tcpv6-csum" => ChecksumLayer::TcpV6,
        "udpv4-csum" => ChecksumLayer::UdpV4,
        "udpv6-csum" => ChecksumLayer::UdpV6,
        "icmpv4-csum" => ChecksumLayer::Icmpv4,
        _ => ChecksumLayer::Icmpv6,
    };
    let valid = match i.text.trim().to_ascii_lowercase().as_str() {
        "valid" => true,
        "invalid" => false,
        t => return fail("detect-csum", format!("{} is \"valid\" or \"invalid\", not \"{t}\"", i.name)),
    };
    b.check(Check::Checksum { layer, valid });
    Ok(())
}

fn vlan_id(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || Fail::new("detect-vlan-id", format!("vlan id invalid {}", i.text));
    let (value, layer) = match i.text.split_once(',') {
        Some((v, l)) => (v, Some(l.trim())),
        None => (i.text.as_ref(), None),
    };
    let value = compare(value, 4095).ok_or_else(bad)?;
    let layer = match layer {
        None | Some("any") => VlanLayer::Any,
        Some("all") => VlanLayer::All,
        Some(n) => VlanLayer::Index(n.parse::<i8>().ok().filter(|n| (-3..=2).contains(n)).ok_or_else(bad)?),
    };
    b.packet_check(Check::VlanId { value, layer });
    Ok(())
}

fn rpc(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let bad = || Fail::new("detect-rpc", format!("parse error, ret -1, string {}", i.text));
    let number = |s: &str| unsigned(s).and_then(|n| u32::try_from(n).ok());
    let mut words = i.text.split(',').map(str::trim);
    let program = words.next().and_then(number).ok_or_else(bad)?;
    let mut optional = || match words.next() {
        None | Some("*") => Some(None),
        Some(n) => number(n).map(Some),
    };
    let version = optional().ok_or_else(bad)?;
    let procedure = optional().ok_or_else(bad)?;
    if words.next().is_some() {
        return Err(bad());
    }
    b.packet_check(Check::Rpc { program, version, procedure });
    Ok(())
}
