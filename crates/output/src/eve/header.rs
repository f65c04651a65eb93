//! Members that all events share.

use margay_packet::PacketSource;

use crate::event::{Addresses, Ether, EventType, Header, Var, VerdictInfo};
use crate::names::{ESP, TCP, UDP, has_ports, protocol_name};
use crate::{community_id, json::Json};

use super::Out;

/// `pkt_src` of most packets.
const WIRE: &str = ",\"pkt_src\":\"wire/pcap\"";

/// `proto`: the protocol's name, or its number if it has no name.
pub(super) fn proto(json: &mut Json, proto: u8) {
    match protocol_name(proto) {
        Some(name) => json.str("proto", name),
        None => {
            let digits = [b'0' + proto / 100, b'0' + proto / 10 % 10, b'0' + proto % 10];
            // All protocol numbers without a name have three digits.
            json.str("proto", std::str::from_utf8(&digits).unwrap_or_default());
        }
    }
}

/// Addresses, ports and protocol: `src_ip` to `ip_v`.
fn pair(j: &mut Json, a: &Addresses) {
    let ports = has_ports(a.proto);
    j.raw(b",\"src_ip\":\"");
    j.ip_rest(a.src);
    if ports {
        j.raw(b"\",\"src_port\":");
        j.uint_rest(u64::from(a.sport));
        j.raw(b",\"dest_ip\":\"");
    } else {
        j.raw(b"\",\"dest_ip\":\"");
    }
    j.ip_rest(a.dst);
    if ports {
        j.raw(b"\",\"dest_port\":");
        j.uint_rest(u64::from(a.dport));
    } else {
        j.raw(b"\"");
    }
    match (a.proto, a.src.is_ipv4()) {
        (TCP, true) => j.raw(b",\"proto\":\"TCP\",\"ip_v\":4"),
        (UDP, true) => j.raw(b",\"proto\":\"UDP\",\"ip_v\":4"),
        (number, v4) => {
            proto(j, number);
            j.uint("ip_v", if v4 { 4 } else { 6 });
        }
    }
}

impl Out<'_> {
    /// Writes the first members of an event, from `timestamp` to `pkt_src`. Members that nearly every event has are
    /// written in one piece, commas and keys included.
    pub(super) fn begin(&mut self, h: &Header<'_>, kind: EventType) {
        let j = &mut *self.json;
        j.raw(b"\"timestamp\":\"");
        j.time_rest(h.time, self.clock);
        match h.flow_id {
            Some(id) => {
                j.raw(b"\",\"flow_id\":");
                j.uint_rest(id);
            }
            None => j.raw(b"\""),
        }
        if let Some(id) = h.parent_id {
            j.uint("parent_id", id);
        }
        let worker = self.settings.in_iface.as_deref().filter(|_| kind != EventType::Stats);
        if let Some(iface) = h.in_iface.or(worker) {
            j.str("in_iface", iface);
        }
        if let Some(n) = h.pcap_cnt {
            j.raw(b",\"pcap_cnt\":");
            j.uint_rest(n);
        }
        j.word("event_type", kind.name());
        if !h.vlans.is_empty() {
            j.array("vlan");
            for &v in h.vlans {
                j.item_uint(u64::from(v));
            }
            j.end_array();
        }
        if let Some(a) = &h.addresses {
            pair(j, a);
        }
        if let Some((kind, code)) = h.icmp {
            j.uint("icmp_type", u64::from(kind));
            j.uint("icmp_code", u64::from(code));
        }
        if let Some((kind, code)) = h.icmp_response {
            j.uint("response_icmp_type", u64::from(kind));
            j.uint("response_icmp_code", u64::from(code));
        }
        if let Some(spi) = h.spi {
            j.uint("spi", u64::from(spi));
        }
        match h.pkt_src {
            Some(PacketSource::Wire) => j.raw(WIRE.as_bytes()),
            Some(source) => j.word("pkt_src", source.name()),
            None => {}
        }
        if self.tenant != 0 && kind != EventType::Stats {
            j.uint("tenant_id", u64::from(self.tenant));
        }
    }

    /// `traffic`, `metadata`, `ether` and `community_id`, if the options ask for them.
    pub(super) fn context(&mut self, h: &Header<'_>) {
        if self.settings.metadata && !h.vars.is_empty() {
            self.vars(h);
        }
        if self.settings.ethernet {
            self.ether(&h.ether);
        }
        if let (true, Some(_), Some(a)) =
            (self.settings.community_id, h.flow_id, h.flow_ends.as_ref().or(h.addresses.as_ref()))
        {
            let icmp = h.flow_ends.as_ref().map_or(h.icmp, |f| Some((f.sport as u8, f.dport as u8)));
            let ports = match h.spi {
                Some(spi) if a.proto == ESP => (spi as u16, (spi >> 16) as u16),
                _ if has_ports(a.proto) => (a.sport, a.dport),
                _ => (0, 0),
            };
            let hash = community_id::hash(self.settings.community_id_seed, a.src, a.dst, ports, icmp, a.proto);
            let j = &mut *self.json;
            j.json("community_id", b"\"1:");
            j.base64_rest(&hash);
            j.raw(b"\"");
        }
    }

    fn vars(&mut self, h: &Header<'_>) {
        let v = &h.vars;
        let j = &mut *self.json;
        let part = |bit: &&str, prefix: &str| bit.strip_prefix(prefix).is_some();
        let (id, label) = ("traffic/id/", "traffic/label/");
        let has = |prefix: &str| v.flowbits.iter().any(|b| part(b, prefix));
        if has(id) || has(label) {
            j.object("traffic");
            for (key, prefix) in [("id", id), ("label", label)] {
                if has(prefix) {
                    j.array(key);
                    for name in v.flowbits.iter().filter_map(|b| b.strip_prefix(prefix)) {
                        j.item_str(name);
                    }
                    j.end_array();
                }
            }
            j.end_object();
        }
        let plain = |bit: &&&str| !part(bit, id) && !part(bit, label);
        let bits = v.flowbits.iter().any(|b| plain(&b));
        if !bits && v.flowints.is_empty() && v.pktvars.is_empty() && v.flowvars.is_empty() && v.entropy.is_empty() {
            return;
        }
        j.object("metadata");
        if bits {
            j.array("flowbits");
            for bit in v.flowbits.iter().filter(plain) {
                j.item_str(bit);
            }
            j.end_array();
        }
        for (key, list, of_packet) in [("pktvars", v.pktvars, true), ("flowvars", v.flowvars, false)] {
            if !list.is_empty() {
                j.array(key);
                list.iter().for_each(|v| var(j, v, of_packet));
                j.end_array();
            }
        }
        if !v.flowints.is_empty() {
            j.object("flowints");
            for &(name, value) in v.flowints {
                j.name(name);
                j.item_uint(u64::from(value));
            }
            j.end_object();
        }
        if !v.entropy.is_empty() {
            j.object("entropy");
            for &(name, value) in v.entropy {
                j.name(name);
                j.item_float(value);
            }
            j.end_object();
        }
        j.end_object();
    }

    fn ether(&mut self, ether: &Ether<'_>) {
        let j = &mut *self.json;
        match ether {
            Ether::None => return,
            Ether::Packet { src, dst } => {
                j.object("ether");
                j.mac("src_mac", *src);
                j.mac("dest_mac", *dst);
            }
            Ether::Flow { src, dst } => {
                if src.is_empty() && dst.is_empty() {
                    return;
                }
                j.object("ether");
                for (key, list) in [("dest_macs", dst), ("src_macs", src)] {
                    j.array(key);
                    for &mac in *list {
                        j.item_mac(mac);
                    }
                    j.end_array();
                }
            }
        }
        j.end_object();
    }

    /// `tx_id` and `tx_guessed`.
    pub(super) fn tx_id(&mut self, tx: Option<(u64, bool)>) {
        if let Some((id, guessed)) = tx {
            self.json.uint("tx_id", id);
            if guessed {
                self.json.bool("tx_guessed", true);
            }
        }
    }

    /// `verdict`.
    pub(super) fn verdict(&mut self, verdict: &VerdictInfo<'_>) {
        let j = &mut *self.json;
        j.object("verdict");
        j.str("action", verdict.action.name());
        if let Some((target, how)) = verdict.reject {
            j.str("reject-target", target.name());
            j.array("reject");
            for how in how {
                j.item_str(how);
            }
            j.end_array();
        }
        j.end_object();
    }

    /// Writes the last members and closes the event.
    pub(super) fn finish(&mut self, pcap_filename: Option<&str>) {
        let j = &mut *self.json;
        if let (true, Some(name)) = (self.settings.pcap_file, pcap_filename) {
            j.str("pcap_filename", name);
        }
        if let Some(version) = &self.settings.version {
            j.str("suricata_version", version);
        }
        if let Some(name) = &self.settings.sensor_name {
            j.str("host", name);
        }
    }
}

/// Shows captured bytes as `payload_printable` does.
fn var(j: &mut Json, v: &Var<'_>, of_packet: bool) {
    j.item_object();
    match v {
        Var::Named(name, value) => {
            j.name(name);
            j.item_printable(value);
        }
        Var::KeyValue(key, value) if of_packet => {
            j.name_printable(key);
            j.item_printable(value);
        }
        // Suricata writes two objects for variables of a flow.
        Var::KeyValue(key, value) => {
            j.printable("key", key);
            j.end_object();
            j.item_object();
            j.printable("value", value);
        }
    }
    j.end_object();
}
