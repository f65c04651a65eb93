//! The packet: the decoder's result, as offsets into the captured bytes.

use std::net::{IpAddr, Ipv4Addr};

use crate::event::DecodeEvent;
use crate::tcp::TcpOptions;

/// A point in time, in microseconds since 1970-01-01 UTC: the resolution that events are reported in.
///
/// Time always comes from the capture; nothing on the packet path reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

impl Time {
    /// From whole seconds and microseconds.
    pub const fn new(secs: i64, micros: i64) -> Self {
        Time(secs.saturating_mul(1_000_000).saturating_add(micros))
    }
    /// Whole seconds since the epoch.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }
    /// Microseconds past [`Time::secs`], 0 to 999,999.
    pub const fn subsec_micros(self) -> u32 {
        self.0.rem_euclid(1_000_000) as u32
    }
    /// Microseconds from `earlier` to `self`; negative if `earlier` is later.
    pub const fn micros_since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A link-layer type, as numbered by the `LINKTYPE_` registry of pcap files (tcpdump.org/linktypes.html).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the capturing host.
    pub const NULL: LinkType = LinkType(0);
    /// Ethernet.
    pub const ETHERNET: LinkType = LinkType(1);
    /// PPP, with or without HDLC framing.
    pub const PPP: LinkType = LinkType(9);
    /// Raw IP as some BSDs number it (`DLT_RAW` 12, and 14 on OpenBSD).
    pub const RAW_DLT: LinkType = LinkType(12);
    /// Raw IP; version from the first nibble.
    pub const RAW: LinkType = LinkType(101);
    /// Cisco HDLC.
    pub const CHDLC: LinkType = LinkType(104);
    /// OpenBSD loopback: a 4-byte address family in network byte order.
    pub const LOOP: LinkType = LinkType(108);
    /// Linux "cooked" capture.
    pub const LINUX_SLL: LinkType = LinkType(113);
    /// Raw IPv4.
    pub const IPV4: LinkType = LinkType(228);
    /// Raw IPv6.
    pub const IPV6: LinkType = LinkType(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: LinkType = LinkType(276);

    /// Whether packets start with an IP header.
    pub const fn is_raw_ip(self) -> bool {
        matches!(self.0, 12 | 14 | 101 | 228 | 229)
    }

    /// Whether the decoder knows this link layer; frames of others yield packets of which nothing is known.
    pub const fn is_supported(self) -> bool {
        self.is_raw_ip() || matches!(self.0, 0 | 1 | 9 | 104 | 108 | 113 | 276)
    }
}

/// One captured frame, borrowed from the reader.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The captured bytes, from the link layer on.
    pub data: &'a [u8],
    /// Length on the wire, in bytes; more than `data.len()` if the capture truncated the packet.
    pub wire_len: u32,
    /// When it was captured.
    pub time: Time,
    /// Link layer of `data`.
    pub link: LinkType,
    /// Its number in the capture, from 1 (`pcap_cnt` in events).
    pub number: u64,
}

/// Where a packet's bytes come from (`pkt_src` in events).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PacketSource {
    /// As captured: `wire/pcap`.
    Wire,
    /// Inside GRE: `gre tunnel`.
    Gre,
    /// Inside IPv4: `ipv4 tunnel`.
    Ipv4Tunnel,
    /// Inside IPv6: `ipv6 tunnel`.
    Ipv6Tunnel,
    /// Inside Teredo: `teredo tunnel`.
    Teredo,
    /// Reassembled from fragments: `defrag`.
    Defrag,
    /// Inside VXLAN: `vxlan encapsulation`.
    Vxlan,
    /// Inside Geneve: `geneve encapsulation`.
    Geneve,
    /// Mirrored by ERSPAN: `erspan tunnel`. The decoder does not produce this: it reports everything inside GRE, ERSPAN
    /// included, as [`PacketSource::Gre`].
    Erspan,
    /// Ethernet inside another protocol: `ether tunnel`. The decoder does not produce this.
    EtherTunnel,
    /// Pseudo packet that the engine creates at the end of a flow: `stream (flow timeout)`.
    StreamFlowTimeout,
    /// Pseudo packet that the engine creates to inspect and log the stream so far before it continues:
    /// `stream (detect/log)`.
    StreamFlush,
}

impl PacketSource {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            PacketSource::Wire => "wire/pcap",
            PacketSource::Gre => "gre tunnel",
            PacketSource::Ipv4Tunnel => "ipv4 tunnel",
            PacketSource::Ipv6Tunnel => "ipv6 tunnel",
            PacketSource::Teredo => "teredo tunnel",
            PacketSource::Defrag => "defrag",
            PacketSource::Vxlan => "vxlan encapsulation",
            PacketSource::Geneve => "geneve encapsulation",
            PacketSource::Erspan => "erspan tunnel",
            PacketSource::EtherTunnel => "ether tunnel",
            PacketSource::StreamFlowTimeout => "stream (flow timeout)",
            PacketSource::StreamFlush => "stream (detect/log)",
        }
    }
}

/// Up to three VLAN identifiers (12 bits each), outermost first; those found past the third are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Vlans {
    ids: [u16; 3],
    len: u8,
}

impl Vlans {
    /// Adds an identifier; `false` if there are three already.
    pub fn push(&mut self, id: u16) -> bool {
        if usize::from(self.len) == self.ids.len() {
            return false;
        }
        self.ids[usize::from(self.len)] = id & 0x0fff;
        self.len += 1;
        true
    }
    /// The identifiers, outermost first.
    pub fn as_slice(&self) -> &[u16] {
        &self.ids[..usize::from(self.len)]
    }
    /// All three places; those unused are 0.
    pub const fn raw(&self) -> [u16; 3] {
        self.ids
    }
}

/// An Ethernet header's addresses and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Source address.
    pub src: [u8; 6],
    /// Destination address.
    pub dst: [u8; 6],
    /// EtherType as in the header, before any VLAN tag was followed.
    pub ether_type: u16,
}

/// The network header. Offsets count from the start of [`Packet::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum L3 {
    /// No network header was decoded.
    #[default]
    None,
    /// ARP (RFC 826); `offset` is that of its header.
    Arp {
        /// Where the ARP header starts.
        offset: u32,
    },
    /// IPv4 (RFC 791).
    Ipv4 {
        /// Where the IP header starts.
        offset: u32,
        /// Header length in bytes, options included: 20 to 60.
        header_len: u8,
        /// One bit for each option kind seen: see [`crate::ipv4_option`].
        options: u16,
    },
    /// IPv6 (RFC 8200).
    Ipv6 {
        /// Where the fixed header starts.
        offset: u32,
        /// Length of fixed and extension headers together, in bytes.
        header_len: u32,
        /// One bit for each kind of extension header seen: see [`crate::ipv6_ext`].
        extensions: u8,
        /// Where the fragment header starts; 0 if there is none.
        fragment: u32,
    },
}

/// Bits of [`L3::Ipv4::options`].
pub mod ipv4_option {
    #![allow(missing_docs)]
    pub const EOL: u16 = 1;
    pub const NOP: u16 = 1 << 1;
    pub const RR: u16 = 1 << 2;
    pub const TS: u16 = 1 << 3;
    pub const SEC: u16 = 1 << 4;
    pub const LSRR: u16 = 1 << 5;
    pub const SATID: u16 = 1 << 6;
    pub const SSRR: u16 = 1 << 7;
    pub const RTRALT: u16 = 1 << 8;
    pub const CIPSO: u16 = 1 << 9;
    pub const ESEC: u16 = 1 << 10;
    pub const QS: u16 = 1 << 11;
}

/// Bits of [`L3::Ipv6::extensions`].
pub mod ipv6_ext {
    #![allow(missing_docs)]
    pub const HOP_BY_HOP: u8 = 1;
    pub const ROUTING: u8 = 1 << 1;
    pub const FRAGMENT: u8 = 1 << 2;
    pub const DEST: u8 = 1 << 3;
    pub const AUTH: u8 = 1 << 4;
    pub const ESP: u8 = 1 << 5;
}

/// The transport header. Offsets count from the start of [`Packet::data`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum L4 {
    /// No transport header was decoded.
    #[default]
    None,
    /// TCP (RFC 9293).
    Tcp {
        /// Where the TCP header starts.
        offset: u32,
        /// Header length in bytes, options included: 20 to 60.
        header_len: u8,
    },
    /// UDP (RFC 768).
    Udp {
        /// Where the UDP header starts.
        offset: u32,
    },
    /// ICMP for IPv4 (RFC 792).
    Icmpv4 {
        /// Where the ICMP header starts.
        offset: u32,
    },
    /// ICMP for IPv6 (RFC 4443).
    Icmpv6 {
        /// Where the ICMP header starts.
        offset: u32,
    },
    /// SCTP (RFC 9260).
    Sctp {
        /// Where the SCTP common header starts.
        offset: u32,
    },
    /// ESP (RFC 4303).
    Esp {
        /// Where the ESP header starts.
        offset: u32,
    },
    /// IGMP (RFC 2236, 3376).
    Igmp {
        /// Where the IGMP header starts.
        offset: u32,
    },
    /// GRE (RFC 2784, 2637).
    Gre {
        /// Where the GRE header starts.
        offset: u32,
    },
}

/// Most events of one packet, as in Suricata; [`DecodeCounters::events_dropped`](crate::counters::DecodeCounters) counts
/// further ones.
pub const MAX_EVENTS: usize = 15;

/// Decoder events of one packet in the order in which they occurred, repeats included.
#[derive(Debug, Clone, Copy)]
pub struct PacketEvents {
    list: [DecodeEvent; MAX_EVENTS],
    len: u8,
    dropped: u8,
}

impl Default for PacketEvents {
    fn default() -> Self {
        PacketEvents { list: [DecodeEvent::Ipv4PktTooSmall; MAX_EVENTS], len: 0, dropped: 0 }
    }
}

impl PacketEvents {
    /// Adds an event, unless there are [`MAX_EVENTS`] already.
    pub fn push(&mut self, e: DecodeEvent) {
        if let Some(slot) = self.list.get_mut(usize::from(self.len)) {
            *slot = e;
            self.len += 1;
        } else {
            self.dropped = self.dropped.saturating_add(1);
        }
    }
    /// How many events found no room.
    pub const fn dropped(&self) -> u8 {
        self.dropped
    }
    /// The events, oldest first.
    pub fn as_slice(&self) -> &[DecodeEvent] {
        &self.list[..usize::from(self.len)]
    }
    /// Whether `e` occurred.
    pub fn contains(&self, e: DecodeEvent) -> bool {
        self.as_slice().contains(&e)
    }
    /// Whether no event occurred.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Why a fragment is not stored, and must not be forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The complete datagram was dropped ([`PacketSink::dropped`]), or it was forwarded and this fragment would change
    /// it.
    Datagram,
    /// Inline: it contradicts earlier fragments, hosts disagree about it, or it is malformed.
    Unsound,
}

/// The part of a reassembled datagram that the last arriving fragment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completed {
    /// Where that part starts in the datagram's [`Packet::data`].
    pub start: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Where it starts in the fragment's own data, that of [`Packet::outer`].
    pub at: u32,
}

/// One decoded packet: a captured frame, a tunnel's inner packet, or a datagram reassembled from fragments.
///
/// All offsets count from the start of [`Packet::data`]. If a layer could not be decoded, it is [`L3::None`] or
/// [`L4::None`], and events say why.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// All bytes of this packet. For a captured frame they start at the link layer; for a tunnel's inner packet at the
    /// inner header, and `link` is [`LinkType::RAW_DLT`] whatever that header is (for VXLAN the inner Ethernet header
    /// is left out); for a reassembled datagram at the link layer of its first fragment.
    pub data: &'a [u8],
    /// Link layer at the start of `data`.
    pub link: LinkType,
    /// Length on the wire in bytes; for inner packets `data.len()`.
    pub wire_len: u32,
    /// When the frame was captured.
    pub time: Time,
    /// The frame's number in the capture, from 1 (`pcap_cnt`).
    pub number: u64,
    /// Where the bytes come from.
    pub source: PacketSource,
    /// How many tunnels deep: 0 for the captured frame.
    pub recursion: u8,
    /// The packet whose tunnel carried this one.
    pub outer: Option<&'a Packet<'a>>,
    /// VLAN tags.
    pub vlans: Vlans,
    /// Ethernet header, if there is one.
    pub ethernet: Option<Ethernet>,
    /// Network header.
    pub l3: L3,
    /// Transport header.
    pub l4: L4,
    /// Source address; unspecified IPv4 if `l3` is not IP.
    pub src: IpAddr,
    /// Destination address; unspecified IPv4 if `l3` is not IP.
    pub dst: IpAddr,
    /// IP protocol number of the transport (for IPv6: after the extension headers); 0 if there is none.
    pub proto: u8,
    /// Source port of TCP, UDP and SCTP, else 0.
    pub sport: u16,
    /// Destination port of TCP, UDP and SCTP, else 0.
    pub dport: u16,
    /// ICMP type and code, if `l4` is ICMP.
    pub icmp: (u8, u8),
    /// Payload after the innermost decoded header, as offset and length.
    pub payload: (u32, u32),
    /// TCP options, if `l4` is TCP.
    pub tcp_options: TcpOptions,
    /// Anomalies.
    pub events: PacketEvents,
    /// Whether a header was broken in a way that stops further processing (`decoder.invalid` counts these).
    pub invalid: bool,
    /// Whether this packet is an IP fragment (not reassembled): no transport header is decoded for it.
    pub fragment: bool,
    /// Whether this packet carries another one (tunnel), or completed a datagram (reassembly).
    pub has_inner: bool,
    /// Whether checksums count as right without looking (`-k none`, or the capture says so).
    pub ignore_checksums: bool,
    /// Whether this fragment was not stored because a limit on fragments, trackers or memory was reached
    /// (`defrag.max-frags`, `defrag.trackers`, `defrag.memcap`): `defrag.memcap-policy` says what to do with it.
    pub defrag_memcap_hit: bool,
    /// Why this fragment was not stored; inline, it must not be forwarded.
    pub refused: Option<Refused>,
    /// For a datagram reassembled from fragments without an overlap: the part that the last fragment brought.
    pub completed: Option<Completed>,
    /// Headers decoded so far, including those of outer packets (limit: `decoder.max-layers`).
    pub layers: u8,
}

impl<'a> Packet<'a> {
    /// The packet of `frame`, with nothing decoded yet.
    pub fn new(frame: &Frame<'a>) -> Self {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Packet {
            data: frame.data,
            link: frame.link,
            wire_len: frame.wire_len,
            time: frame.time,
            number: frame.number,
            source: PacketSource::Wire,
            recursion: 0,
            outer: None,
            vlans: Vlans::default(),
            ethernet: None,
            l3: L3::None,
            l4: L4::None,
            src: unspecified,
            dst: unspecified,
            proto: 0,
            sport: 0,
            dport: 0,
            icmp: (0, 0),
            payload: (0, 0),
            tcp_options: TcpOptions::default(),
            events: PacketEvents::default(),
            invalid: false,
            fragment: false,
            has_inner: false,
            ignore_checksums: false,
            defrag_memcap_hit: false,
            refused: None,
            completed: None,
            layers: 0,
        }
    }

    /// The payload bytes; empty if there are none.
    pub fn payload(&self) -> &'a [u8] {
        let (o, n) = (self.payload.0 as usize, self.payload.1 as usize);
        self.data.get(o..o.saturating_add(n)).unwrap_or(&[])
    }

    /// The bytes from `at` to `end`; empty if the packet is shorter.
    pub(crate) fn range(&self, at: usize, end: usize) -> &'a [u8] {
        self.data.get(at..end).unwrap_or(&[])
    }

    /// Whether `l3` is IPv4 or IPv6.
    pub const fn is_ip(&self) -> bool {
        matches!(self.l3, L3::Ipv4 { .. } | L3::Ipv6 { .. })
    }

    /// Whether `l4` is TCP.
    pub const fn is_tcp(&self) -> bool {
        matches!(self.l4, L4::Tcp { .. })
    }

    /// Bytes from the start of the network header to the end of `data`; empty if there is none.
    pub fn l3_bytes(&self) -> &'a [u8] {
        match self.l3 {
            L3::None => &[],
            L3::Arp { offset } | L3::Ipv4 { offset, .. } | L3::Ipv6 { offset, .. } => {
                self.data.get(offset as usize..).unwrap_or(&[])
            }
        }
    }

    /// TTL of an IPv4 header, hop limit of an IPv6 one.
    #[inline]
    pub fn ttl(&self) -> Option<u8> {
        let at = match self.l3 {
            L3::Ipv4 { offset, .. } => offset as usize + 8,
            L3::Ipv6 { offset, .. } => offset as usize + 7,
            _ => return None,
        };
        self.data.get(at).copied()
    }

    /// Bytes from the transport header to the end of the IP payload; empty if there is none.
    pub fn l4_bytes(&self) -> &'a [u8] {
        let start = match self.l4 {
            L4::None => return &[],
            L4::Tcp { offset, .. }
            | L4::Udp { offset }
            | L4::Icmpv4 { offset }
            | L4::Icmpv6 { offset }
            | L4::Sctp { offset }
            | L4::Esp { offset }
            | L4::Igmp { offset }
            | L4::Gre { offset } => offset as usize,
        };
        let end = (self.payload.0 as usize).saturating_add(self.payload.1 as usize);
        self.data.get(start..end).unwrap_or(&[])
    }

    /// The TCP header, if there is one.
    pub fn tcp(&self) -> Option<crate::tcp::TcpHeader<'a>> {
        match self.l4 {
            L4::Tcp { .. } => crate::tcp::TcpHeader::new(self.l4_bytes()),
            _ => None,
        }
    }
}

/// Takes the packets that the decoder finds.
pub trait PacketSink {
    /// Called once for each packet, inner ones first.
    fn packet(&mut self, packet: &Packet<'_>);

    /// Called after a reassembled datagram and everything inside it were handed over. Returns whether the datagram is
    /// dropped. Its other fragments were forwarded already, so no fragment that would complete it may follow: until the
    /// datagram is forgotten, its fragments are [`Refused::Datagram`].
    fn dropped(&mut self) -> bool {
        false
    }
}

impl<F: FnMut(&Packet<'_>)> PacketSink for F {
    fn packet(&mut self, packet: &Packet<'_>) {
        self(packet);
    }
}
