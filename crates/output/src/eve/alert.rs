//! `alert`.

use margay_packet::Packet;

use crate::event::{Addresses, AlertEvent, AppProtos, EventType, FlowSummary, Payload, Signature, Target};
use crate::json::Json;
use crate::names::{has_ports, link_type};

use super::Out;
use super::header::proto;
use super::xff::Client;

/// Renders a rule's `metadata` once, when the rule is loaded. Keys are in alphabetical order; each has a list of its
/// values, the last one first. Words without a value are left out. `None` if nothing remains.
pub fn metadata_json(pairs: &[(&str, &str)]) -> Option<Vec<u8>> {
    let mut keys: Vec<&str> = pairs.iter().map(|p| p.0).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.is_empty() {
        return None;
    }
    let mut j = Json::new();
    j.item_object();
    for key in keys {
        j.name(key);
        j.item_array();
        for (_, value) in pairs.iter().rev().filter(|p| p.0 == key) {
            j.item_str(value);
        }
        j.end_array();
    }
    j.end_object();
    Some(j.as_bytes().to_vec())
}

/// Renders the part of an alert that describes its rule, once for each rule: the members `gid` to `severity`, without
/// the braces. [`Signature::text`] takes the result.
pub fn signature_json(s: &Signature<'_>) -> Vec<u8> {
    let mut j = Json::new();
    signature(&mut j, s);
    j.as_bytes().to_vec()
}

fn signature(j: &mut Json, s: &Signature<'_>) {
    j.uint("gid", u64::from(s.gid));
    j.uint("signature_id", u64::from(s.id));
    j.uint("rev", u64::from(s.rev));
    j.bytes("signature", s.msg.unwrap_or_default());
    j.str("category", s.category.unwrap_or_default());
    j.uint("severity", s.priority.into());
}

impl Out<'_> {
    pub(super) fn alert(&mut self, e: &AlertEvent<'_>) {
        let options = self.settings.alert;
        let client = self.client(EventType::Alert, e.xff.as_ref());
        let changed = client.header(&e.header);
        let header = changed.as_ref().unwrap_or(&e.header);
        self.begin(header, EventType::Alert);
        self.context(&e.header);
        self.tx_id(e.tx_id);

        self.alert_object(&e.signature, e.blocked, header.addresses.as_ref(), |o, s| {
            let j = &mut *o.json;
            if options.rule_metadata
                && let Some(metadata) = s.metadata
            {
                j.json("metadata", metadata);
            }
            if options.rule_raw {
                j.bytes("rule", s.rule);
            }
            if options.rule_reference && !s.references.is_empty() {
                j.array("references");
                s.references.iter().for_each(|r| j.item_str(r));
                j.end_array();
            }
            if let Some(engine) = e.engine {
                j.str("engine", engine);
            }
            client.member(j);
            if let Some(context) = e.context {
                j.object("context");
                context(j, o.number);
                j.end_object();
            }
        });
        self.tunnel(e.packet);
        if let Some((ts, tc)) = e.progress {
            self.json.str("ts_progress", ts);
            self.json.str("tc_progress", tc);
        }
        if options.app_layer
            && let Some(app) = e.app
        {
            app(self.json, self.number);
        }
        if options.rule_metadata
            && let Some(files) = e.files
        {
            files(self.json, self.number);
        }
        // Suricata names the protocol even if the protocol's own members are off.
        self.app_protos(&e.app_protos);
        if let Some(d) = e.direction {
            self.json.str("direction", d.name());
        }
        if options.flow
            && let Some(flow) = &e.flow
        {
            // Packets without ports, such as ICMP errors about the flow, omit them.
            let ports = has_ports(e.packet.proto) && e.packet.sport != 0;
            self.flow_summary(flow, &client, ports);
        }
        if let Some(payload) = &e.payload {
            self.payload(payload);
        }
        if options.packet {
            self.packet_bytes(e.packet, e.packet.data);
        }
        if options.verdict
            && let Some(verdict) = &e.verdict
        {
            self.verdict(verdict);
        }
        if let Some(file) = e.capture_file {
            self.json.str("capture_file", file);
        }
        self.finish(e.header.pcap_filename);
    }

    /// Writes the `alert` object, with the members that `more` adds.
    pub(super) fn alert_object(
        &mut self,
        s: &Signature<'_>,
        blocked: bool,
        addresses: Option<&Addresses>,
        more: impl FnOnce(&mut Self, &Signature<'_>),
    ) {
        let j = &mut *self.json;
        j.raw(if blocked { b",\"alert\":{\"action\":\"blocked\"," } else { b",\"alert\":{\"action\":\"allowed\"," });
        match s.text {
            Some(text) => j.raw(text),
            None => {
                let text = signature_json(s);
                j.raw(&text);
            }
        }
        if self.tenant != 0 {
            j.uint("tenant_id", u64::from(self.tenant));
        }
        if let (Some(target), Some(a)) = (s.target, addresses) {
            let (src, dst) = ((a.src, a.sport), (a.dst, a.dport));
            let (source, target) = if target == Target::Dest { (src, dst) } else { (dst, src) };
            for (key, (ip, port)) in [("source", source), ("target", target)] {
                j.object(key);
                j.ip("ip", ip);
                if has_ports(a.proto) {
                    j.uint("port", u64::from(port));
                }
                j.end_object();
            }
        }
        more(self, s);
        self.json.end_object();
    }

    /// `tunnel`: the outermost packet around `packet`. For a reassembled datagram, that is its last fragment.
    fn tunnel(&mut self, packet: &Packet<'_>) {
        let Some(mut root) = packet.outer else { return };
        while let Some(outer) = root.outer {
            root = outer;
        }
        let j = &mut *self.json;
        j.object("tunnel");
        j.ip("src_ip", root.src);
        j.uint("src_port", u64::from(root.sport));
        j.ip("dest_ip", root.dst);
        j.uint("dest_port", u64::from(root.dport));
        proto(j, root.proto);
        j.uint("depth", u64::from(packet.recursion));
        j.uint("pcap_cnt", root.number);
        j.str("pkt_src", root.source.name());
        j.end_object();
    }

    /// `app_proto`, and the other members that name protocols.
    pub(super) fn app_protos(&mut self, p: &AppProtos<'_>) {
        let j = &mut *self.json;
        if let Some(name) = p.proto {
            j.str("app_proto", name);
        }
        if let Some(name) = p.to_server {
            j.str("app_proto_ts", name);
        }
        if let Some(name) = p.to_client {
            j.str("app_proto_tc", name);
        }
        if let Some(name) = p.original {
            j.str("app_proto_orig", name);
        }
        if let Some(name) = p.expected {
            j.str("app_proto_expected", name);
        }
    }

    fn flow_summary(&mut self, f: &FlowSummary, client: &Client, ports: bool) {
        self.begin_flow(&f.pkts, &f.bytes);
        self.json.raw(b",\"start\":\"");
        self.json.time_rest(f.start, self.clock);
        self.json.raw(b"\"");
        let j = &mut *self.json;
        j.raw(b",\"src_ip\":\"");
        j.ip_rest(client.overwrites().unwrap_or(f.addresses.src));
        j.raw(b"\",\"dest_ip\":\"");
        j.ip_rest(f.addresses.dst);
        if ports {
            j.raw(b"\",\"src_port\":");
            j.uint_rest(u64::from(f.addresses.sport));
            j.raw(b",\"dest_port\":");
            j.uint_rest(u64::from(f.addresses.dport));
            j.raw(b"}");
        } else {
            j.raw(b"\"}");
        }
    }

    fn payload(&mut self, p: &Payload<'_>) {
        let options = self.settings.alert;
        if !(options.payload || options.payload_printable || options.payload_length) {
            return;
        }
        // As with frames, one byte less than the setting is shown.
        let data = match p.data.get(..options.payload_buffer_size.saturating_sub(1)) {
            Some(cut) if p.stream => cut,
            _ => p.data,
        };
        let j = &mut *self.json;
        if options.payload && !data.is_empty() {
            j.base64("payload", data);
        }
        if options.payload_length {
            j.uint("payload_length", data.len() as u64);
        }
        if options.payload_printable {
            j.printable("payload_printable", data);
        }
        j.uint("stream", u64::from(p.stream));
    }

    /// `packet` with `bytes`, and `packet_info`.
    pub(super) fn packet_bytes(&mut self, packet: &Packet<'_>, bytes: &[u8]) {
        let j = &mut *self.json;
        if !bytes.is_empty() {
            j.base64("packet", bytes);
        }
        let (number, name) = link_type(packet.link);
        j.object("packet_info");
        j.uint("linktype", u64::from(number));
        if let Some(name) = name {
            j.str("linktype_name", name);
        }
        j.end_object();
    }
}
