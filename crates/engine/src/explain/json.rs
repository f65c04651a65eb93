//! The JSON report: one object.

use margay_detect::explain::{Excerpt, LookReport, PacketRef};
use margay_flow::Direction;
use margay_json::Json;
use margay_json::time::Clock;

use super::Explained;

fn packet(j: &mut Json, p: &PacketRef, clock: &mut Clock) {
    j.uint("pcap_cnt", p.number);
    j.time("timestamp", p.time, clock);
    if let Some(flow) = p.flow {
        j.uint("flow_id", flow);
    }
    if let Some(dir) = p.dir {
        j.str("direction", if dir == Direction::ToServer { "to_server" } else { "to_client" });
    }
    j.ip("src_ip", p.src);
    j.uint("src_port", u64::from(p.sport));
    j.ip("dest_ip", p.dst);
    j.uint("dest_port", u64::from(p.dport));
    j.uint("ip_proto", u64::from(p.proto));
    j.bool("made_up", p.made_up);
}

fn excerpt(j: &mut Json, e: &Excerpt) {
    j.object("bytes");
    j.uint("buffer_size", e.size as u64);
    j.uint("offset", e.offset as u64);
    j.hex("hex", &e.bytes);
    j.printable("printable", &e.bytes);
    j.uint("from", e.mark.0 as u64);
    j.uint("to", e.mark.1 as u64);
    j.end_object();
}

fn look(j: &mut Json, l: &LookReport, clock: &mut Clock) {
    j.object("packet");
    packet(j, &l.packet, clock);
    j.end_object();
    j.str("subject", &l.subject);
    j.array("checks");
    for line in &l.lines {
        j.item_object();
        j.str("check", &line.check);
        j.str("outcome", line.came.name());
        if !line.place.is_empty() {
            j.str("buffer", &line.place);
        }
        if !line.detail.is_empty() {
            j.str("detail", &line.detail);
        }
        if let Some(e) = &line.excerpt {
            excerpt(j, e);
        }
        j.end_object();
    }
    j.end_array();
}

fn looks(j: &mut Json, key: &'static str, list: &[LookReport], clock: &mut Clock) {
    j.array(key);
    for l in list {
        j.item_object();
        look(j, l, clock);
        j.end_object();
    }
    j.end_array();
}

fn rule(j: &mut Json, e: &Explained<'_>, clock: &mut Clock) {
    let (r, t) = (e.rule, e.trace);
    j.uint("signature_id", u64::from(r.sid));
    j.uint("gid", u64::from(r.gid));
    j.uint("rev", u64::from(r.rev));
    j.str("signature", &r.msg);
    j.str("file", &r.place.file);
    j.uint("line", u64::from(r.place.line));
    j.str("kind", e.kind.map_or("unknown", |k| k.name()));
    if let Some(p) = &t.pattern {
        j.str("fast_pattern", p);
    }
    j.uint("packets", t.packets);
    j.uint("made_up_packets", t.made_up);
    j.uint("looks", t.looks);
    j.uint("matches", t.matched);
    j.array("outcomes");
    for f in &t.fates {
        j.item_object();
        j.str("text", &f.text);
        j.bool("alert", f.alert);
        j.uint("count", f.count);
        j.array("first_packets");
        f.first.iter().for_each(|p| j.item_uint(p.number));
        j.end_array();
        j.end_object();
    }
    j.end_array();
    looks(j, "first_matches", &t.matches, clock);
    j.array("reasons");
    for reason in &t.reasons {
        j.item_object();
        j.str("kind", reason.kind.name());
        j.str("text", &reason.text);
        j.uint("count", reason.count);
        looks(j, "first", &reason.first, clock);
        j.end_object();
    }
    j.end_array();
    if let Some(n) = &t.nearest {
        j.object("nearest_miss");
        look(j, n, clock);
        j.end_object();
    }
}

pub(super) fn report(all: &[Explained<'_>], notes: &[String]) -> String {
    let (mut j, mut clock) = (Json::new(), Clock::system());
    j.item_object();
    j.array("rules");
    for e in all {
        j.item_object();
        rule(&mut j, e, &mut clock);
        j.end_object();
    }
    j.end_array();
    j.array("notes");
    notes.iter().for_each(|n| j.item_str(n));
    j.end_array();
    j.end_object();
    String::from_utf8_lossy(j.as_bytes()).into_owned()
}
