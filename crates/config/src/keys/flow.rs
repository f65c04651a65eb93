//! Decoding, fragments, flows, TCP, hosts.

use super::reasons::{ALWAYS, GROWS, HOST_TABLE, NO_MANAGER, NO_OFFLOAD, REMOVED};
use super::{Key, U32, flag, flag_or, list, number, section, size, text, word};

pub(super) const ABOUT: &str = "How much of the traffic's state is kept, and for how long. A memory limit is divided among \
                                the workers.";

/// Operating systems of `host-os-policy`.
pub(super) const SYSTEMS: &[&str] = &[
    "bsd",
    "bsd-right",
    "hpux10",
    "hpux11",
    "irix",
    "linux",
    "macos",
    "old-linux",
    "old-solaris",
    "solaris",
    "vista",
    "windows",
    "windows2k3",
    "first",
    "last",
];

const POLICIES: &[&str] =
    &["auto", "ignore", "drop-flow", "pass-flow", "bypass", "drop-packet", "pass-packet", "reject"];

const URGENT: &[&str] = &["oob", "inline", "drop", "gap", "clear"];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    list("host-os-policy.<os>", "networks", "", "Networks whose overlapping fragments and segments are read as this system reads them.").like("[10.0.0.0/8]"),
    // Decoding
    number("decoder.max-layers", "16", (1, 255), "headers", "Headers of a packet, at most."),
    flag("decoder.teredo.enabled", "yes", "Whether to decode Teredo."),
    text("decoder.teredo.ports", "ports", "3544", "Ports of Teredo, or `any`.").like("3545"),
    flag("decoder.vxlan.enabled", "yes", "Whether to decode VXLAN."),
    text("decoder.vxlan.ports", "ports", "4789", "Ports of VXLAN, or `any`.").like("4790"),
    flag("decoder.vxlan.reserved-bits-check", "", "Whether reserved bits must be 0.").ignored(NO_OFFLOAD),
    flag("decoder.geneve.enabled", "yes", "Whether to decode Geneve."),
    text("decoder.geneve.ports", "ports", "6081", "Ports of Geneve, or `any`.").like("6082"),
    flag("decoder.vntag.enabled", "yes", "Whether to decode VN-Tags."),
    flag("decoder.erspan.typeI.enabled", "", "Whether ERSPAN type I is followed.").ignored("ERSPAN Type I is no longer configurable and always enabled"),
    flag("decoder.recursion-level.use-for-tracking", "yes", "Whether the tunnel depth is part of a flow's identity."),
    flag("decoder.arp.enabled", "yes", "Whether ARP is decoded.").ignored(ALWAYS),
    flag("decoder.cdp.enabled", "yes", "Whether CDP is decoded.").ignored(ALWAYS),
    flag("decoder.ipv4.ipip.enabled", "yes", "Whether IP in IP is decoded.").ignored(ALWAYS),
    flag("decoder.ipv4.ipip.track-parent-flow", "yes", "Whether flows know the flow of their tunnel.").ignored(ALWAYS),
    flag("decoder.ipv6.ipip-ipv4.enabled", "yes", "Whether IPv4 in IPv6 is decoded.").ignored(ALWAYS),
    flag("decoder.ipv6.ipip-ipv4.track-parent-flow", "yes", "Whether flows know the flow of their tunnel.").ignored(ALWAYS),
    flag("decoder.ipv6.ipip-ipv6.enabled", "yes", "Whether IPv6 in IPv6 is decoded.").ignored(ALWAYS),
    flag("decoder.ipv6.ipip-ipv6.track-parent-flow", "yes", "Whether flows know the flow of their tunnel.").ignored(ALWAYS),
    // Fragments
    size("defrag.memcap", "32mb", "Memory for fragments.").within(1, u64::MAX),
    word("defrag.memcap-policy", POLICIES, "auto", "Policy at that limit.").like("pass-packet"),
    number("defrag.hash-size", "65536", (1, U32), "buckets", "Hash size of the datagram table."),
    number("defrag.trackers", "65535", (1, U32), "datagrams", "Datagrams reassembled at a time, at most."),
    number("defrag.max-frags", "65535", (1, U32), "fragments", "Fragments held, at most."),
    flag("defrag.prealloc", "yes", "Whether memory is taken at start.").ignored(GROWS),
    number("defrag.timeout", "60", (1, U32), "seconds", "How long a datagram waits for its fragments."),
    number("defrag.host-config.#.*.timeout", "60", (1, U32), "seconds", "The same for datagrams to some hosts.").shown_by("packet/tests/defrag.rs::hosts_have_timeouts_of_their_own"),
    list("defrag.host-config.#.*.address", "networks, or any", "", "Those hosts; the longest prefix counts.").shown_by("engine/src/settings/decode.rs::groups_of_hosts_have_timeouts"),
    // Flows
    size("flow.memcap", "128mb", "Memory for flows; 0 is no limit."),
    word("flow.memcap-policy", POLICIES, "auto", "Policy at that limit.").like("pass-packet"),
    number("flow.hash-size", "65536", (1, U32), "buckets", "Hash size of the flow table."),
    number("flow.prealloc", "10000", (0, U32), "flows", "Flows to allocate at start."),
    number("flow.emergency-recovery", "30", (1, 100), "percent", "Share of flows that must end before the emergency is over."),
    number("flow.managers", "1", (1, 1024), "threads", "Threads that end flows.").ignored(NO_MANAGER),
    number("flow.recyclers", "1", (1, 1024), "threads", "Threads that log flows.").ignored(NO_MANAGER),
    number("flow.prune-flows", "*", (0, U32), "flows", "").ignored(REMOVED),
    flag("flow.timeout-checks", "*", "").ignored(REMOVED),
    text("flow.end-flow-policy", "", "*", "").ignored(REMOVED),
    size("flow.rate-tracking.bytes", "", "An elephant flow moves this many bytes in one direction …").like("1gb").shown_by("engine/src/settings/flow.rs::elephants"),
    number("flow.rate-tracking.interval", "", (1, U32), "seconds", "… within this many seconds.").like("10").shown_by("engine/src/settings/flow.rs::elephants"),
    number("flow-timeouts.<timeouts>.new", "30", (0, U32), "seconds", "Idle time after which a one-sided flow ends (TCP: 60)."),
    number("flow-timeouts.<timeouts>.established", "300", (0, U32), "seconds", "Idle time after which an established flow ends (TCP: 600)."),
    number("flow-timeouts.<timeouts>.closed", "0", (0, U32), "seconds", "Idle time after which a closed flow ends (TCP: 10)."),
    number("flow-timeouts.<timeouts>.bypassed", "100", (0, U32), "seconds", "Idle time after which a bypassed flow ends."),
    number("flow-timeouts.<timeouts>.emergency-new", "10", (0, U32), "seconds", "The same in an emergency, for a one-sided flow (TCP: 5)."),
    number("flow-timeouts.<timeouts>.emergency-established", "100", (0, U32), "seconds", "The same in an emergency, for an established flow."),
    number("flow-timeouts.<timeouts>.emergency-closed", "0", (0, U32), "seconds", "The same in an emergency, for a closed flow (TCP: 10)."),
    number("flow-timeouts.<timeouts>.emergency-bypassed", "50", (0, U32), "seconds", "The same in an emergency, for a bypassed flow."),
    // TCP
    size("stream.memcap", "64mb", "Memory for TCP sessions; 0 is no limit."),
    word("stream.memcap-policy", POLICIES, "auto", "Policy at that limit.").like("pass-packet"),
    flag("stream.checksum-validation", "yes", "Whether to ignore segments with a wrong checksum."),
    number("stream.prealloc-sessions", "2048", (0, U32), "sessions", "Sessions that memory is taken for at start.").ignored(GROWS),
    number("stream.max-sessions", "*", (0, U32), "sessions", "").ignored(REMOVED),
    flag("stream.midstream", "no", "Whether to pick up sessions whose start was not seen."),
    word("stream.midstream-policy", POLICIES, "auto", "Action on such sessions.").like("pass-flow"),
    flag("stream.async-oneside", "no", "Whether to follow sessions of which only one direction is seen; inline the default is yes."),
    flag_or("stream.inline", &["auto"], "auto", "Whether to inspect data before its acknowledgment; `auto`: when inline."),
    flag("stream.drop-invalid", "yes", "Whether to drop invalid segments when inline."),
    number("stream.max-syn-queued", "10", (0, 255), "segments", "SYNs to remember per session."),
    number("stream.max-synack-queued", "5", (0, 255), "segments", "SYN/ACKs to remember per session."),
    flag("stream.bypass", "no", "Whether to bypass a flow at `reassembly.depth`."),
    flag("stream.liberal-timestamps", "no", "Whether to tolerate odd timestamps."),
    size("stream.reassembly.memcap", "256mb", "Memory for stream data; 0 is no limit."),
    word("stream.reassembly.memcap-policy", POLICIES, "auto", "Policy at that limit.").like("pass-packet"),
    word("stream.reassembly.memcap-exception-policy", POLICIES, "*", "").ignored(REMOVED),
    size("stream.reassembly.depth", "1mb", "Bytes of each direction to reassemble; 0 is all."),
    size("stream.reassembly.toserver-chunk-size", "2560", "Bytes to gather before rules without an application keyword inspect them.").within(0, U32 as u64),
    size("stream.reassembly.toclient-chunk-size", "2560", "The same for data to the client.").within(0, U32 as u64),
    flag("stream.reassembly.randomize-chunk-size", "no", "Whether these sizes vary by session, derived from its first sequence number: the same traffic gives the same chunks."),
    number("stream.reassembly.randomize-chunk-range", "10", (0, 100), "percent", "Variation of the chunk size, in percent."),
    flag("stream.reassembly.raw", "yes", "Whether rules without an application keyword inspect streams."),
    number("stream.reassembly.segment-prealloc", "2048", (0, U32), "segments", "Segments that memory is taken for at start.").ignored(GROWS),
    number("stream.reassembly.chunk-prealloc", "*", (0, U32), "chunks", "").ignored(REMOVED),
    section("stream.reassembly.segments", "").ignored(REMOVED),
    flag("stream.reassembly.check-overlap-different-data", "no", "Whether anomalies are written for data that was sent twice with different contents, and other data that hosts may read differently, also if no rule names the event. Margay always compares it; inline such anomalies are always written."),
    number("stream.reassembly.max-regions", "8", (0, 65_535), "regions", "Stretches of a direction's data that are far apart.").ignored("early data is kept wherever it is, up to `stream.reassembly.memcap`"),
    word("stream.reassembly.urgent.policy", URGENT, "oob", "What to do with urgent data. `drop` means `oob` if packets are not dropped; inline, the default on the wire is to clear the flag."),
    number("stream.reassembly.urgent.oob-limit", "64", (0, 65_535), "bytes", "Urgent bytes to take out of a direction."),
    word("stream.reassembly.urgent.oob-limit-policy", URGENT, "drop", "What to do with urgent bytes beyond that."),
    // Hosts
    size("host.memcap", "64mb", "Memory for per-host counters and bits, at 256 bytes each.").within(1, u64::MAX),
    number("host.hash-size", "4096", (1, U32), "buckets", "The table of hosts.").ignored(HOST_TABLE),
    number("host.prealloc", "1000", (0, U32), "hosts", "Hosts that memory is taken for at start.").ignored(HOST_TABLE),
    size("ippair.memcap", "16mb", "Memory for counters and bits per host pair, at 256 bytes each.").within(1, u64::MAX),
    number("ippair.hash-size", "4096", (1, U32), "buckets", "The table of pairs.").ignored(HOST_TABLE),
    number("ippair.prealloc", "1000", (0, U32), "pairs", "Pairs that memory is taken for at start.").ignored(HOST_TABLE),
];
