//! Converts names of counters to names of metrics.

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows while the engine runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A counter's name in the form of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Name {
    /// The family, without `_total`.
    pub(super) family: String,
    pub(super) kind: Kind,
    /// `bytes`, `ratio`; empty for plain counts.
    pub(super) unit: &'static str,
    /// Its description.
    pub(super) help: String,
    /// The part of the name that becomes a label.
    pub(super) labels: Vec<(&'static str, String)>,
    /// The factor that converts the value to the unit.
    pub(super) scale: f64,
}

/// Names that end in a variable word: its prefix, the family, the label, the description.
const GROUPS: &[(&str, &str, &str, &str)] = &[
    ("app_layer.flow.", "app_layer_flows", "app_proto", "Flows, by application protocol."),
    ("app_layer.tx.", "app_layer_transactions", "app_proto", "Transactions, by application protocol."),
    (
        "decoder.event.",
        "decoder_events",
        "event",
        "Packets with something odd in their headers, by event (decode-event).",
    ),
    ("stream.", "stream_events", "event", "Odd things in TCP connections, by event (stream-event)."),
    ("flow.end.state.", "flow_end", "state", "Flows that ended, by the state that they were in."),
    ("flow.end.tcp_state.", "flow_end_tcp", "state", "TCP flows that ended, by the state of their connection."),
];

/// Counters that go up and down.
const GAUGES: &[&str] = &[
    "flow.active",
    "flow.spare",
    "flow.mgr.rows_maxlen",
    "flow.mgr.rows_per_sec",
    "flow.wrk.spare_sync_avg",
    "flow.wrk.flows_injected_max",
    "flow.recycler.queue_avg",
    "flow.recycler.queue_max",
    "tcp.active_sessions",
    "tcp.resumable",
    "app_layer.expectations",
    "detect.threshold_entries",
    "detect.rule_sets",
    "file_store.open_files",
    "capture.afpacket.busy_loop_avg",
    "memcap.pressure",
    "memcap.pressure_max",
    "decoder.max_pkt_size",
    "decoder.avg_pkt_size",
    "file_store.quota_used",
];

/// Descriptions of counters. All other counters get a generic description.
const HELP: &[(&str, &str)] = &[
    ("decoder.pkts", "Packets decoded."),
    ("decoder.bytes", "Bytes of packets decoded."),
    ("decoder.invalid", "Packets that could not be decoded to their end."),
    ("decoder.ipv4", "IPv4 packets."),
    ("decoder.ipv6", "IPv6 packets."),
    ("decoder.tcp", "TCP packets."),
    ("decoder.udp", "UDP packets."),
    ("decoder.avg_pkt_size", "Mean size of packets."),
    ("decoder.max_pkt_size", "Size of the largest packet."),
    ("capture.kernel_packets", "Packets that the kernel had for a worker."),
    ("capture.kernel_drops", "Packets lost because a worker's ring was full."),
    ("capture.softnet.dropped", "Packets that the host lost because its backlog was full, of all interfaces."),
    ("capture.softnet.time_squeezed", "How often the host's time for packets was over before all were handled."),
    ("detect.alert", "Alerts."),
    ("detect.alert_queue_overflow", "Alerts left out because a packet had too many."),
    ("detect.alerts_suppressed", "Matches without an alert because of thresholds, suppressions or noalert."),
    ("flow.total", "Flows."),
    ("flow.active", "Flows that are open."),
    ("flow.tcp", "TCP flows."),
    ("flow.udp", "UDP flows."),
    ("flow.memcap", "Flows that were not kept for want of memory (flow.memcap)."),
    ("flow.emerg_mode_entered", "How often the flow table was nearly full."),
    ("tcp.sessions", "TCP connections."),
    ("tcp.active_sessions", "TCP connections that are open."),
    ("tcp.ssn_memcap_drop", "TCP connections that were not followed for want of memory (stream.memcap)."),
    ("tcp.segment_memcap_drop", "TCP segments left out for want of memory (stream.reassembly.memcap)."),
    ("tcp.reassembly_gap", "Gaps in TCP streams: data that never came."),
    ("tcp.invalid_checksum", "TCP packets with a wrong checksum."),
    ("memcap.pressure", "How near memory is to a limit: the stage that is nearest."),
    ("memcap.pressure_max", "The highest that memory was near to a limit."),
    ("eve.lost", "Lines of events that could not be written."),
    ("eve.waits", "How often a worker waited for the thread that writes events."),
    ("engine.failed_threads", "Threads of the engine that failed."),
    ("watchdog.stuck", "How often a worker made no progress for too long."),
];

/// Converts a name to the characters that a metric's name may have.
fn plain(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    // A unit is written in full, and counters get this ending anyway.
    if let Some(rest) = out.strip_suffix("_per_sec") {
        out = format!("{rest}_per_second");
    } else if let Some(rest) = out.strip_suffix("_total") {
        out.truncate(rest.len());
    }
    out
}

/// The metric of a counter of `stats` events.
pub(super) fn name(counter: &str) -> Name {
    let of = |family: &str, help: &str, labels: Vec<(&'static str, String)>| Name {
        family: format!("margay_{family}"),
        kind: Kind::Counter,
        unit: "",
        help: help.to_owned(),
        labels,
        scale: 1.0,
    };
    if let Some(rest) = counter.strip_prefix("app_layer.error.") {
        let policy = "Exception policies applied after an error of a parser.";
        return match (rest.strip_prefix("exception_policy."), rest.split_once('.')) {
            (Some(p), _) => of("app_layer_error_policy", policy, vec![("policy", p.to_owned())]),
            (None, Some((proto, error))) => match error.strip_prefix("exception_policy.") {
                Some(p) => of(
                    "app_layer_proto_error_policy",
                    "Exception policies applied after an error of a parser, by application protocol.",
                    vec![("app_proto", proto.to_owned()), ("policy", p.to_owned())],
                ),
                None => of(
                    "app_layer_errors",
                    "Flows whose parser stopped, by application protocol and reason.",
                    vec![("app_proto", proto.to_owned()), ("error", error.to_owned())],
                ),
            },
            (None, None) => of("app_layer_errors", "Flows whose parser stopped.", vec![("error", rest.to_owned())]),
        };
    }
    if let Some((prefix, family, label, help)) = GROUPS.iter().find(|g| counter.starts_with(g.0)) {
        let word = counter.strip_prefix(prefix).unwrap_or_default();
        return of(family, help, vec![(label, word.to_owned())]);
    }
    let help = HELP.iter().find(|h| h.0 == counter).map(|h| h.1.to_owned());
    let mut name = of(&plain(counter), "", Vec::new());
    name.help = help.unwrap_or_else(|| format!("The counter {counter} of stats events."));
    let memory = counter.ends_with("memuse");
    if memory || GAUGES.contains(&counter) {
        name.kind = Kind::Gauge;
    }
    if memory || counter.ends_with("pkt_size") || counter.ends_with("quota_used") {
        name.family.push_str("_bytes");
    }
    if counter.starts_with("memcap.pressure") {
        name.family.push_str("_ratio");
        (name.unit, name.scale) = ("ratio", 0.01);
    }
    if name.family.ends_with("_bytes") {
        name.unit = "bytes";
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metrics() {
        for (counter, family, kind, unit) in [
            ("decoder.bytes", "margay_decoder_bytes", Kind::Counter, "bytes"),
            ("flow.total", "margay_flow", Kind::Counter, ""),
            ("flow.memuse", "margay_flow_memuse_bytes", Kind::Gauge, "bytes"),
            ("memcap.pressure_max", "margay_memcap_pressure_max_ratio", Kind::Gauge, "ratio"),
            ("flow.mgr.rows_per_sec", "margay_flow_mgr_rows_per_second", Kind::Gauge, ""),
            ("capture.nfq.a-b", "margay_capture_nfq_a_b", Kind::Counter, ""),
        ] {
            let n = name(counter);
            assert_eq!((n.family.as_str(), n.kind, n.unit), (family, kind, unit), "{counter}");
            assert!(!n.help.is_empty());
        }
        let n = name("app_layer.error.dns_tcp.gap");
        assert_eq!((n.family.as_str(), n.labels.len()), ("margay_app_layer_errors", 2));
    }
}
