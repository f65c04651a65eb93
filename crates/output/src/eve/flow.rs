//! `flow` and `netflow`.

use margay_packet::tcp::flag;

use crate::event::{Addresses, Ether, EventType, FlowEvent};
use crate::json::Json;

use super::Out;

/// Writes a member for each flag that is set.
fn flags(j: &mut Json, bits: u8) {
    for (key, bit) in [
        ("syn", flag::SYN),
        ("fin", flag::FIN),
        ("rst", flag::RST),
        ("psh", flag::PSH),
        ("ack", flag::ACK),
        ("urg", flag::URG),
        ("ecn", flag::ECE),
        ("cwr", flag::CWR),
    ] {
        if bits & bit != 0 {
            j.bool(key, true);
        }
    }
}

impl Out<'_> {
    /// Opens `flow` and writes the counters to the server and to the client.
    pub(super) fn begin_flow(&mut self, pkts: &[u64; 2], bytes: &[u64; 2]) {
        let j = &mut *self.json;
        j.raw(b",\"flow\":{\"pkts_toserver\":");
        j.uint_rest(pkts[0]);
        j.raw(b",\"pkts_toclient\":");
        j.uint_rest(pkts[1]);
        j.raw(b",\"bytes_toserver\":");
        j.uint_rest(bytes[0]);
        j.raw(b",\"bytes_toclient\":");
        j.uint_rest(bytes[1]);
    }

    pub(super) fn flow(&mut self, e: &FlowEvent<'_>) {
        self.begin(&e.header, EventType::Flow);
        self.app_protos(&e.app_protos);
        self.begin_flow(&e.pkts, &e.bytes);
        let j = &mut *self.json;
        if let Some([ts, tc]) = e.bypassed {
            j.object("bypassed");
            j.uint("pkts_toserver", ts.0);
            j.uint("pkts_toclient", tc.0);
            j.uint("bytes_toserver", ts.1);
            j.uint("bytes_toclient", tc.1);
            j.end_object();
        }
        j.time("start", e.start, self.clock);
        j.time("end", e.end, self.clock);
        j.uint("age", age(e));
        if e.emergency {
            j.bool("emergency", true);
        }
        if let Some(bypass) = e.bypass {
            j.str("bypass", bypass);
        }
        j.str("state", e.state);
        j.str("reason", e.reason);
        j.bool("alerted", e.alerted);
        if let Some(action) = e.action {
            j.str("action", action);
        }
        if self.settings.flow.exception_policy && !e.exception_policies.is_empty() {
            j.array("exception_policy");
            for &(target, policy) in e.exception_policies {
                j.item_object();
                j.str("target", target);
                j.str("policy", policy);
                j.end_object();
            }
            j.end_array();
        }
        if e.tx_cnt > 0 {
            j.uint("tx_cnt", e.tx_cnt);
        }
        if e.elephant {
            j.bool("elephant", true);
        }
        j.end_object();
        self.context(&e.header);
        self.tcp(e);
        self.finish(e.header.pcap_filename);
    }

    fn tcp(&mut self, e: &FlowEvent<'_>) {
        let Some(t) = &e.tcp else { return };
        let j = &mut *self.json;
        j.object("tcp");
        j.hex("tcp_flags", &[t.flags[0] | t.flags[1]]);
        j.hex("tcp_flags_ts", &[t.flags[0]]);
        j.hex("tcp_flags_tc", &[t.flags[1]]);
        flags(j, t.flags[0] | t.flags[1]);
        if let Some(state) = t.state {
            j.str("state", state);
            for (key, on) in [("ts_gap", t.gap[0]), ("tc_gap", t.gap[1])] {
                if on {
                    j.bool(key, true);
                }
            }
            j.uint("ts_max_regions", u64::from(t.max_regions[0]));
            j.uint("tc_max_regions", u64::from(t.max_regions[1]));
            for (key, n) in [("ts_urgent_oob_data", t.urgent_oob[0]), ("tc_urgent_oob_data", t.urgent_oob[1])] {
                if n > 0 {
                    j.uint(key, u64::from(n));
                }
            }
        }
        j.end_object();
    }

    /// Writes one direction. `side` indexes the arrays; direction 1 swaps the addresses.
    pub(super) fn netflow(&mut self, e: &FlowEvent<'_>, side: usize) {
        let mut h = e.header;
        h.icmp_response = None;
        // Both directions show the identifier of the flow.
        if side == 1 {
            h.addresses =
                h.addresses.map(|a| Addresses { src: a.dst, sport: a.dport, dst: a.src, dport: a.sport, ..a });
            h.icmp = e.header.icmp_response.or(e.header.icmp);
            if let Ether::Flow { src, dst } = h.ether {
                h.ether = Ether::Flow { src: dst, dst: src };
            }
        }
        self.begin(&h, EventType::Netflow);
        let mut protos = e.app_protos;
        protos.proto = protos.proto.or(Some("unknown"));
        self.app_protos(&protos);
        let at = |list: &[u64; 2]| list.get(side).copied().unwrap_or(0);
        let (min, max) = e.ttl.get(side).copied().unwrap_or((0, 0));
        let j = &mut *self.json;
        j.object("netflow");
        j.uint("pkts", at(&e.pkts));
        j.uint("bytes", at(&e.bytes));
        j.time("start", e.start, self.clock);
        j.time("end", e.end, self.clock);
        j.uint("age", age(e));
        j.uint("min_ttl", u64::from(min));
        j.uint("max_ttl", u64::from(max));
        j.end_object();
        if let Some(t) = &e.tcp {
            let bits = t.flags.get(side).copied().unwrap_or(0);
            j.object("tcp");
            j.hex("tcp_flags", &[bits]);
            flags(j, bits);
            j.end_object();
        }
        self.context(&h);
        self.finish(h.pcap_filename);
    }
}

/// Whole seconds between the seconds of the first and the last packet, as Suricata counts.
fn age(e: &FlowEvent<'_>) -> u64 {
    u64::try_from(e.end.secs().saturating_sub(e.start.secs())).unwrap_or(0)
}
