//! The decoder: the entry of a frame, and the parts shared by all layers.
//!
//! A layer's function takes the packet and the range of `data` that the header may use, records its results in the
//! packet and calls the next layer's function. It returns whether its own header was sound: a tunnel whose first inner
//! header is not sound carries no packet.

use std::net::IpAddr;

use crate::config::{DecodeConfig, PortFilter};
use crate::counters::DecodeCounters;
use crate::defrag::{Defrag, Whole};
use crate::event::DecodeEvent;
use crate::packet::{Frame, L3, LinkType, Packet, PacketSink, PacketSource};

/// The payload of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inner {
    Ipv4,
    Ipv6,
    Ethernet,
    Ppp,
    Vlan,
    Arp,
    /// ERSPAN type I: a bare Ethernet frame.
    Erspan1,
    /// ERSPAN type II: a header of 8 bytes, then an Ethernet frame.
    Erspan2,
}

/// Decodes frames and reassembles fragments. Each worker has one.
#[derive(Debug)]
pub struct Decoder {
    pub(crate) config: DecodeConfig,
    /// Ports of encapsulations in UDP.
    pub(crate) udp_tunnels: PortFilter,
    pub(crate) defrag: Defrag,
    /// Whether the next frames' checksums are not valid yet, because the network card fills them in later: they count
    /// as right.
    pub unfinished_checksums: bool,
    /// Whether frames come from an interface. A truncated frame then raises an event; in capture files, truncated
    /// frames are normal.
    pub live: bool,
    /// Counters of packets so far.
    pub counters: DecodeCounters,
}

impl Decoder {
    /// A decoder that has seen no frame.
    pub fn new(config: DecodeConfig) -> Self {
        let defrag = Defrag::new(&config.defrag);
        let udp_tunnels = PortFilter::of([&config.teredo, &config.geneve, &config.vxlan]);
        let counters = DecodeCounters::default();
        Decoder { config, udp_tunnels, defrag, unfinished_checksums: false, live: false, counters }
    }

    /// The settings.
    pub fn config(&self) -> &DecodeConfig {
        &self.config
    }

    /// Changes the memory limit for fragments, in bytes. Stored fragments stay.
    pub fn set_defrag_memcap(&mut self, memcap: usize) {
        self.config.defrag.memcap = memcap;
        self.defrag.set_memcap(memcap);
    }

    /// Decodes `frame` and hands `sink` each packet: the payload of a tunnel or reassembled datagram first, the captured
    /// packet last. The captured packet always comes, even if nothing of it was decoded.
    pub fn decode<S: PacketSink>(&mut self, frame: &Frame<'_>, sink: &mut S) {
        let len = frame.data.len() as u64;
        self.counters.pkts += 1;
        self.counters.bytes += len;
        self.counters.max_pkt_size = self.counters.max_pkt_size.max(len);
        let mut p = Packet::new(frame);
        p.ignore_checksums = self.config.ignore_checksums || self.unfinished_checksums;
        if self.live && u64::from(frame.wire_len) > len {
            note(&mut p, DecodeEvent::AfpacketTruncPkt);
        }
        let end = p.data.len();
        self.link(&mut p, end, sink);
        if p.invalid {
            self.counters.invalid += 1;
        }
        self.finish(&p, sink);
    }

    /// Decodes from the link layer on, as [`Packet::link`] says.
    fn link<S: PacketSink>(&mut self, p: &mut Packet<'_>, end: usize, sink: &mut S) {
        match p.link {
            LinkType::ETHERNET => self.ethernet(p, 0, end, sink),
            LinkType::NULL => self.null(p, end, false, sink),
            LinkType::LOOP => self.null(p, end, true, sink),
            LinkType::PPP => self.ppp(p, 0, end, sink),
            LinkType::CHDLC => self.chdlc(p, end, sink),
            LinkType::LINUX_SLL => self.sll(p, end, sink),
            LinkType::LINUX_SLL2 => self.sll2(p, end, sink),
            link if link.is_raw_ip() => self.raw(p, end, sink),
            _ => false,
        };
    }

    /// Counts a packet's events and hands it over.
    pub(crate) fn finish<S: PacketSink>(&mut self, p: &Packet<'_>, sink: &mut S) {
        for &e in p.events.as_slice() {
            self.counters.events[e as usize] += 1;
            if e == DecodeEvent::TooManyLayers {
                self.counters.too_many_layers += 1;
            }
        }
        self.counters.events_dropped += u64::from(p.events.dropped());
        sink.packet(p);
    }

    /// Counts a header towards the limit of layers. If that is reached, the packet is invalid and the result `false`.
    pub(crate) fn layer(&self, p: &mut Packet<'_>) -> bool {
        p.layers = p.layers.saturating_add(1);
        p.layers < self.config.max_layers || bad(p, DecodeEvent::TooManyLayers)
    }

    /// Decodes the payload of `outer` from `at` to `end` as a separate packet. `false` if its first header is broken or
    /// the limit of layers is reached.
    pub(crate) fn tunnel<S: PacketSink>(
        &mut self,
        outer: &mut Packet<'_>,
        (at, end): (usize, usize),
        inner: Inner,
        source: PacketSource,
        sink: &mut S,
    ) -> bool {
        let Some(data) = outer.data.get(at..end) else { return false };
        if outer.layers.saturating_add(1) >= self.config.max_layers {
            return bad(outer, DecodeEvent::TooManyLayers);
        }
        let had_inner = std::mem::replace(&mut outer.has_inner, true);
        let mut p = inner_packet(outer, data, source);
        p.link = LinkType::RAW_DLT;
        p.recursion = outer.recursion.saturating_add(1);
        p.layers = outer.layers + 1;
        let len = data.len();
        let sound = match inner {
            Inner::Ipv4 => self.ipv4(&mut p, 0, len, sink),
            Inner::Ipv6 => self.ipv6(&mut p, 0, len, sink),
            Inner::Ethernet => self.ethernet(&mut p, 0, len, sink),
            Inner::Ppp => self.ppp(&mut p, 0, len, sink),
            Inner::Vlan => self.vlan(&mut p, 0, len, sink),
            Inner::Arp => self.arp(&mut p, 0, len),
            Inner::Erspan1 => {
                self.counters.erspan += 1;
                self.ethernet(&mut p, 0, len, sink)
            }
            Inner::Erspan2 => self.erspan2(&mut p, len, sink),
        };
        // Teredo is guessed from the port, so only an inner packet without any broken header counts.
        let keep = sound && !(source == PacketSource::Teredo && p.invalid);
        if keep {
            self.finish(&p, sink);
        } else {
            outer.has_inner = had_inner;
        }
        keep
    }

    /// Stores an IP fragment. If it completes its datagram, decodes the datagram.
    pub(crate) fn fragment<S: PacketSink>(&mut self, p: &mut Packet<'_>, f: crate::defrag::Fragment, sink: &mut S) {
        p.fragment = true;
        p.payload = (f.start as u32, (f.end - f.start) as u32);
        let is_v6 = matches!(p.l3, L3::Ipv6 { .. });
        if is_v6 {
            self.counters.defrag_ipv6_fragments += 1;
        } else {
            self.counters.defrag_ipv4_fragments += 1;
        }
        let Some(Whole { data: whole, ip: ip_at, completed }) = self.defrag.add(p, &f, &mut self.counters) else {
            return;
        };
        if is_v6 {
            self.counters.defrag_ipv6_reassembled += 1;
        } else {
            self.counters.defrag_ipv4_reassembled += 1;
        }
        let layers = layers_before_datagram(p);
        if layers >= self.config.max_layers {
            bad(p, DecodeEvent::TooManyLayers);
            self.defrag.give_back(whole);
            return;
        }
        let had_inner = std::mem::replace(&mut p.has_inner, true);
        let mut r = inner_packet(p, &whole, PacketSource::Defrag);
        r.link = p.link;
        r.recursion = p.recursion;
        r.vlans = p.vlans;
        r.ethernet = p.ethernet;
        r.layers = layers;
        r.completed = completed;
        let len = whole.len();
        let sound = if is_v6 { self.ipv6(&mut r, ip_at, len, sink) } else { self.ipv4(&mut r, ip_at, len, sink) };
        if sound {
            self.finish(&r, sink);
        } else {
            p.has_inner = had_inner;
        }
        self.defrag.give_back(whole);
        if sink.dropped() {
            self.defrag.refuse(p, &f);
        }
    }
}

/// A packet over `data`, which `outer` carried or completed.
fn inner_packet<'b>(outer: &'b Packet<'_>, data: &'b [u8], source: PacketSource) -> Packet<'b> {
    let mut p = Packet::new(&Frame {
        data,
        wire_len: data.len() as u32,
        time: outer.time,
        link: outer.link,
        number: outer.number,
    });
    p.source = source;
    p.outer = Some(outer);
    p.ignore_checksums = outer.ignore_checksums;
    p
}

/// Headers that count towards the limit of a datagram that `last` completes: none, since the datagram is a packet of its own.
/// But a fragment inside a reassembled datagram continues to count. Otherwise each of many prepared datagrams could complete the
/// next one, and the decoder would call itself for each.
fn layers_before_datagram(last: &Packet<'_>) -> u8 {
    let mut packet = Some(last);
    while let Some(p) = packet {
        if p.source == PacketSource::Defrag {
            return last.layers.saturating_add(1);
        }
        packet = p.outer;
    }
    0
}

/// Adds an event.
pub(crate) fn note(p: &mut Packet<'_>, e: DecodeEvent) {
    p.events.push(e);
}

/// Adds an event that stops decoding: the packet is invalid. Always `false`, for the caller to return.
pub(crate) fn bad(p: &mut Packet<'_>, e: DecodeEvent) -> bool {
    p.events.push(e);
    p.invalid = true;
    false
}

/// Resets the network layer of a packet whose IP header turned out to be broken.
pub(crate) fn no_network(p: &mut Packet<'_>) {
    let unspecified = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
    p.l3 = L3::None;
    p.src = unspecified;
    p.dst = unspecified;
    p.proto = 0;
}
