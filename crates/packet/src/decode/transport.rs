//! Transports: TCP, UDP, SCTP, ESP, IGMP.

use crate::bytes::{u8_at, u16_at, u32_at};
use crate::decoder::{Decoder, bad, note};
use crate::event::DecodeEvent as E;
use crate::packet::{L4, Packet, PacketSink};
use crate::tcp::TcpOptions;

/// Header lengths in bytes.
mod len {
    pub(super) const TCP: usize = 20;
    pub(super) const UDP: usize = 8;
    pub(super) const SCTP: usize = 12;
    pub(super) const ESP: usize = 8;
    pub(super) const IGMP: usize = 8;
}

impl Decoder {
    /// Decodes the transports that IPv4 and IPv6 share; ignores others.
    pub(crate) fn transport<S: PacketSink>(
        &mut self,
        p: &mut Packet<'_>,
        proto: u8,
        at: usize,
        end: usize,
        sink: &mut S,
    ) {
        match proto {
            6 => self.tcp(p, at, end),
            17 => self.udp(p, at, end, sink),
            47 => self.gre(p, at, end, sink),
            50 => self.esp(p, at, end),
            132 => self.sctp(p, at, end),
            _ => {}
        }
    }

    /// TCP (RFC 9293).
    fn tcp(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.tcp += 1;
        let b = p.range(at, end);
        if b.len() < len::TCP {
            bad(p, E::TcpPktTooSmall);
            return;
        }
        let header_len = usize::from(b[12] >> 4) * 4;
        if header_len > b.len() {
            bad(p, E::TcpHlenTooSmall);
            return;
        }
        let Some(options) = b.get(len::TCP..header_len) else {
            bad(p, E::TcpInvalidOptlen);
            return;
        };
        if !options.is_empty() {
            let mut found = TcpOptions::default();
            parse_tcp_options(p, options, &mut found);
            p.tcp_options = found;
        }
        p.sport = u16_at(b, 0);
        p.dport = u16_at(b, 2);
        p.l4 = L4::Tcp { offset: at as u32, header_len: header_len as u8 };
        p.payload = ((at + header_len) as u32, (b.len() - header_len) as u32);
    }

    /// UDP (RFC 768).
    fn udp<S: PacketSink>(&mut self, p: &mut Packet<'_>, at: usize, end: usize, sink: &mut S) {
        self.counters.udp += 1;
        let b = p.range(at, end);
        if b.len() < len::UDP {
            bad(p, E::UdpHlenTooSmall);
            return;
        }
        let mut udp_len = usize::from(u16_at(b, 4));
        if udp_len == 0 && self.config.defrag.inline && p.dst.is_ipv6() {
            // A length of 0 means all bytes (RFC 2675 section 4). Some hosts accept it even if the datagram is no
            // jumbogram.
            note(p, E::UdpLenInvalid);
            udp_len = b.len();
        }
        if udp_len > b.len() {
            bad(p, E::UdpPktTooSmall);
            return;
        }
        if udp_len < len::UDP {
            bad(p, E::UdpLenInvalid);
            return;
        }
        p.sport = u16_at(b, 0);
        p.dport = u16_at(b, 2);
        p.l4 = L4::Udp { offset: at as u32 };
        p.payload = ((at + len::UDP) as u32, (udp_len - len::UDP) as u32);
        if self.udp_tunnels.may_have(p.sport) || self.udp_tunnels.may_have(p.dport) {
            self.udp_tunnel(p, at + len::UDP, at + udp_len, sink);
        }
    }

    /// SCTP (RFC 9260): the common header.
    fn sctp(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.sctp += 1;
        let b = p.range(at, end);
        if b.len() < len::SCTP {
            bad(p, E::SctpPktTooSmall);
            return;
        }
        p.sport = u16_at(b, 0);
        p.dport = u16_at(b, 2);
        p.l4 = L4::Sctp { offset: at as u32 };
        p.payload = ((at + len::SCTP) as u32, (b.len() - len::SCTP) as u32);
    }

    /// ESP (RFC 4303).
    fn esp(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.esp += 1;
        let b = p.range(at, end);
        if b.len() < len::ESP {
            bad(p, E::EspPktTooSmall);
            return;
        }
        if !self.layer(p) {
            return;
        }
        p.l4 = L4::Esp { offset: at as u32 };
        p.payload = ((at + len::ESP) as u32, (b.len() - len::ESP) as u32);
    }

    /// IGMP (RFC 2236, 3376).
    pub(super) fn igmp(&mut self, p: &mut Packet<'_>, at: usize, end: usize) {
        self.counters.igmp += 1;
        let b = p.range(at, end);
        if b.len() < len::IGMP {
            bad(p, E::IgmpPktTooSmall);
            return;
        }
        p.l4 = L4::Igmp { offset: at as u32 };
        p.payload = ((at + len::IGMP) as u32, (b.len() - len::IGMP) as u32);
    }
}

/// TCP option kinds (IANA: TCP parameters).
mod kind {
    pub(super) const EOL: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_OK: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMP: u8 = 8;
    pub(super) const MD5: u8 = 19;
    pub(super) const AO: u8 = 29;
    pub(super) const FAST_OPEN: u8 = 34;
    pub(super) const EXPERIMENT_1: u8 = 253;
    pub(super) const EXPERIMENT_2: u8 = 254;
}

/// Walks the options of a TCP header.
fn parse_tcp_options(p: &mut Packet<'_>, mut b: &[u8], found: &mut TcpOptions) {
    let mut sack_seen = false;
    while let Some(&kind) = b.first() {
        if kind == kind::EOL {
            return;
        }
        if kind == kind::NOP {
            b = &b[1..];
            continue;
        }
        if b.len() < 2 {
            return;
        }
        let Some(option) = b.get(..usize::from(b[1])).filter(|o| o.len() >= 2) else {
            bad(p, E::TcpOptInvalidLen);
            return;
        };
        b = &b[option.len()..];
        found.count = found.count.saturating_add(1);
        let (known, duplicate) = take_tcp_option(kind, option, &mut sack_seen, found);
        if duplicate {
            note(p, E::TcpOptDuplicate);
        } else if !known {
            note(p, E::TcpOptInvalidLen);
            p.invalid |= matches!(kind, kind::MD5 | kind::AO);
        }
    }
}

/// Records one option. Returns whether its length is right, and whether the option occurred before: hosts use the last
/// one (RFC 9293 section 3.1 does not mention this; Linux and the BSDs do so).
fn take_tcp_option(kind: u8, option: &[u8], sack_seen: &mut bool, found: &mut TcpOptions) -> (bool, bool) {
    let len = option.len();
    match kind {
        kind::WINDOW_SCALE if len != 3 => (false, false),
        kind::WINDOW_SCALE => {
            // Larger ones count as 14 (RFC 7323 section 2.3).
            let shift = u8_at(option, 2).min(14);
            (true, found.window_scale.replace(shift).is_some())
        }
        kind::MSS if len != 4 => (false, false),
        kind::MSS => (true, found.mss.replace(u16_at(option, 2)).is_some()),
        kind::SACK_OK if len != 2 => (false, false),
        kind::SACK_OK => (true, std::mem::replace(&mut found.sack_ok, true)),
        kind::TIMESTAMP if len != 10 => (false, false),
        kind::TIMESTAMP => (true, found.timestamp.replace((u32_at(option, 2), u32_at(option, 6))).is_some()),
        kind::SACK => {
            if !(2..=34).contains(&len) || len % 8 != 2 {
                return (false, false);
            }
            (found.sack, found.sack_count) = ([(0, 0); 4], 0);
            let edges = option.get(2..).unwrap_or(&[]).chunks_exact(8);
            for (slot, e) in found.sack.iter_mut().zip(edges) {
                *slot = (u32_at(e, 0), u32_at(e, 4));
                found.sack_count += 1;
            }
            (true, std::mem::replace(sack_seen, true))
        }
        kind::FAST_OPEN if len > 18 || !len.is_multiple_of(2) => (false, false),
        kind::FAST_OPEN => fast_open(len - 2, found),
        kind::EXPERIMENT_1 | kind::EXPERIMENT_2 if len != 4 && len != 12 => (false, false),
        kind::EXPERIMENT_1 | kind::EXPERIMENT_2 if u16_at(option, 2) == 0xf989 => fast_open(len - 4, found),
        kind::MD5 if len != 18 => (false, false),
        kind::AO if len < 4 => (false, false),
        kind::MD5 | kind::AO => {
            found.signed = true;
            (true, false)
        }
        _ => (true, false),
    }
}

/// TCP fast open (RFC 7413), as an option of its own or an experimental one (RFC 6994): a cookie, or a request for one
/// (length 0).
fn fast_open(cookie_len: usize, found: &mut TcpOptions) -> (bool, bool) {
    (true, found.fast_open.replace(cookie_len as u8).is_some())
}
