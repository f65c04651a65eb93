//! `arp`.

use std::net::IpAddr;

use crate::event::{ArpEvent, EventType};

use super::Out;

/// Names of ARP operations (IANA's ARP parameters). The decoder rejects all others.
fn opcode(n: u16) -> &'static str {
    match n {
        1 => "request",
        2 => "reply",
        3 => "request_reverse",
        4 => "reply_reverse",
        8 => "in_request",
        9 => "in_reply",
        _ => "unknown",
    }
}

impl Out<'_> {
    pub(super) fn arp(&mut self, e: &ArpEvent<'_>) {
        self.begin(&e.header, EventType::Arp);
        self.context(&e.header);
        let j = &mut *self.json;
        j.object("arp");
        j.str("hw_type", "ethernet");
        j.str("proto_type", "ipv4");
        j.str("opcode", opcode(e.opcode));
        j.mac("src_mac", e.src_mac);
        j.ip("src_ip", IpAddr::V4(e.src_ip));
        j.mac("dest_mac", e.dest_mac);
        j.ip("dest_ip", IpAddr::V4(e.dest_ip));
        j.end_object();
        self.finish(e.header.pcap_filename);
    }
}
