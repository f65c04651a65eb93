//! `drop`.

use margay_packet::tcp::flag;
use margay_packet::{L3, L4, Packet};

use crate::event::{DropEvent, EventType};
use crate::json::Json;

use super::Out;

fn u16_at(b: &[u8], at: usize) -> u64 {
    b.get(at..at + 2).and_then(|s| s.try_into().ok()).map_or(0, |s| u64::from(u16::from_be_bytes(s)))
}

fn u8_at(b: &[u8], at: usize) -> u64 {
    b.get(at).map_or(0, |&b| u64::from(b))
}

impl Out<'_> {
    pub(super) fn drop(&mut self, e: &DropEvent<'_>) {
        let options = self.settings.drop;
        self.begin(&e.header, EventType::Drop);
        self.context(&e.header);
        if let Some(d) = e.direction {
            self.json.str("direction", d.name());
        }
        self.json.object("drop");
        headers(self.json, e.packet);
        self.json.str("reason", e.reason);
        self.json.end_object();
        if options.verdict
            && let Some(verdict) = &e.verdict
        {
            self.verdict(verdict);
        }
        if options.alerts
            && let Some((signature, blocked)) = &e.alert
        {
            self.tx_id(e.tx_id);
            self.alert_object(signature, *blocked, e.header.addresses.as_ref(), |_, _| {});
        }
        self.finish(e.header.pcap_filename);
    }
}

/// Writes the header fields of a packet.
pub(super) fn headers(j: &mut Json, p: &Packet<'_>) {
    let ip = p.l3_bytes();
    match p.l3 {
        L3::Ipv4 { .. } => {
            j.uint("len", u16_at(ip, 2));
            j.uint("tos", u8_at(ip, 1));
            j.uint("ttl", u8_at(ip, 8));
            j.uint("ipid", u16_at(ip, 4));
        }
        L3::Ipv6 { .. } => {
            let first = u16_at(ip, 0) << 16 | u16_at(ip, 2);
            j.uint("len", u16_at(ip, 4));
            j.uint("tc", first >> 20 & 0xff);
            j.uint("hoplimit", u8_at(ip, 7));
            j.uint("flowlbl", first & 0xf_ffff);
        }
        L3::None | L3::Arp { .. } => return,
    }
    let b = p.l4_bytes();
    match p.l4 {
        L4::Tcp { .. } => {
            let Some(t) = p.tcp() else { return };
            j.uint("tcpseq", u64::from(t.seq()));
            j.uint("tcpack", u64::from(t.ack()));
            j.uint("tcpwin", u64::from(t.window()));
            for (key, bit) in [
                ("syn", flag::SYN),
                ("ack", flag::ACK),
                ("psh", flag::PSH),
                ("rst", flag::RST),
                ("urg", flag::URG),
                ("fin", flag::FIN),
            ] {
                j.bool(key, t.has(bit));
            }
            j.uint("tcpres", u8_at(b, 12) & 0x0f);
            j.uint("tcpurgp", u64::from(t.urgent()));
        }
        L4::Udp { .. } => j.uint("udplen", u16_at(b, 4)),
        L4::Icmpv4 { .. } => {
            // Identifier and sequence number, for messages that have them. Suricata reads the bytes as little-endian
            // numbers.
            let (id, seq) = match p.icmp.0 {
                0 | 8 | 13..=18 => (u16_at(b, 4) as u16, u16_at(b, 6) as u16),
                _ => (0, 0),
            };
            j.uint("icmp_id", u64::from(id.swap_bytes()));
            j.uint("icmp_seq", u64::from(seq.swap_bytes()));
        }
        _ => {}
    }
}
