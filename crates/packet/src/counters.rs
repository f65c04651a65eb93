//! The decoder's counters, by the names of Suricata's statistics.

use crate::event::DecodeEvent;

/// Number of kinds of events.
const EVENTS: usize = DecodeEvent::ALL.len();

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident $name:literal),* $(,)?) => {
        /// Counters of one decoder. All count from its start; frames and packets in packets, `bytes` in bytes.
        #[derive(Debug, Clone)]
        pub struct DecodeCounters {
            $($(#[$doc])* #[doc = concat!("`", $name, "`.")] pub $field: u64,)*
            /// `decoder.event.*`, by [`DecodeEvent`]'s number.
            pub events: [u64; EVENTS],
        }

        impl Default for DecodeCounters {
            fn default() -> Self {
                DecodeCounters { $($field: 0,)* events: [0; EVENTS] }
            }
        }

        impl DecodeCounters {
            /// Calls `f` with every plain counter's dotted name and value, zeros included.
            fn plain(&self, f: &mut dyn FnMut(&str, u64)) {
                $(f($name, self.$field);)*
            }
        }
    };
}

counters! {
    /// Captured frames:
    pkts "decoder.pkts",
    /// Captured bytes:
    bytes "decoder.bytes",
    /// Captured frames with a broken header that stopped decoding:
    invalid "decoder.invalid",
    ipv4 "decoder.ipv4",
    ipv6 "decoder.ipv6",
    ethernet "decoder.ethernet",
    arp "decoder.arp",
    unknown_ethertype "decoder.unknown_ethertype",
    chdlc "decoder.chdlc",
    raw "decoder.raw",
    null "decoder.null",
    sll "decoder.sll",
    sll2 "decoder.sll2",
    tcp "decoder.tcp",
    udp "decoder.udp",
    sctp "decoder.sctp",
    esp "decoder.esp",
    icmpv4 "decoder.icmpv4",
    icmpv6 "decoder.icmpv6",
    igmp "decoder.igmp",
    ppp "decoder.ppp",
    pppoe "decoder.pppoe",
    geneve "decoder.geneve",
    gre "decoder.gre",
    vlan "decoder.vlan",
    vlan_qinq "decoder.vlan_qinq",
    vlan_qinqinq "decoder.vlan_qinqinq",
    vxlan "decoder.vxlan",
    vntag "decoder.vntag",
    etag "decoder.etag",
    ieee8021ah "decoder.ieee8021ah",
    teredo "decoder.teredo",
    ipv4_in_ipv4 "decoder.ipv4_in_ipv4",
    ipv6_in_ipv4 "decoder.ipv6_in_ipv4",
    ipv4_in_ipv6 "decoder.ipv4_in_ipv6",
    ipv6_in_ipv6 "decoder.ipv6_in_ipv6",
    mpls "decoder.mpls",
    /// Largest captured frame in bytes:
    max_pkt_size "decoder.max_pkt_size",
    erspan "decoder.erspan",
    nsh "decoder.nsh",
    too_many_layers "decoder.too_many_layers",
    /// Events of packets that already had [`MAX_EVENTS`](crate::packet::MAX_EVENTS):
    events_dropped "decoder.events_dropped",
    defrag_ipv4_fragments "defrag.ipv4.fragments",
    defrag_ipv4_reassembled "defrag.ipv4.reassembled",
    defrag_ipv6_fragments "defrag.ipv6.fragments",
    defrag_ipv6_reassembled "defrag.ipv6.reassembled",
    /// Times that no tracker was free for a new datagram, or its sender had its full share:
    defrag_max_trackers_reached "defrag.max_trackers_reached",
    /// Times that room was needed because the limit of stored fragments was reached:
    defrag_max_frags_reached "defrag.max_frags_reached",
    /// Fragments not stored because memory ran out:
    defrag_memcap "defrag.memcap",
    /// Trackers taken from a datagram that had timed out:
    defrag_tracker_soft_reuse "defrag.tracker_soft_reuse",
    /// Trackers taken from a complete datagram, or from one that had not timed out:
    defrag_tracker_hard_reuse "defrag.tracker_hard_reuse",
    /// Trackers freed after a timeout because another fragment of that datagram, or of its sender, arrived:
    defrag_tracker_timeout "defrag.wrk.tracker_timeout",
    /// Bytes of memory in use by the defragmenter:
    defrag_memuse "defrag.memuse",
}

impl DecodeCounters {
    /// Calls `f` with every counter's dotted name and value, zeros included, in the order of Suricata's `stats` where
    /// it has one.
    pub fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        self.plain(f);
        f("decoder.avg_pkt_size", self.bytes.checked_div(self.pkts).unwrap_or(0));
        let mut name = String::from("decoder.event.");
        let stem = name.len();
        for (&event, &count) in DecodeEvent::ALL.iter().zip(&self.events) {
            // As in Suricata, `decoder.too_many_layers` counts this one.
            if event == DecodeEvent::TooManyLayers {
                continue;
            }
            name.truncate(stem);
            name.push_str(event.name());
            f(&name, count);
        }
    }

    /// How often `event` occurred.
    pub fn event(&self, event: DecodeEvent) -> u64 {
        self.events[event as usize]
    }
}
