//! `stream_tcp`: the TCP engine's result for a packet.

use crate::event::{EventType, PeerState, StreamEvent};
use crate::json::Json;
use crate::settings::StreamOptions;

use super::{Out, drop};

/// Whether these options ask for the event.
pub(super) fn is_wanted(options: StreamOptions, e: &StreamEvent<'_>) -> bool {
    let has_events = e.decode_events || !e.events.is_empty();
    options.all
        || options.event_set && has_events
        || options.state_update && e.session.is_some_and(|s| s.before.is_some())
        || options.spurious_retransmission && e.spurious_retransmission
}

impl Out<'_> {
    pub(super) fn stream(&mut self, e: &StreamEvent<'_>) {
        self.begin(&e.header, EventType::Stream);
        self.context(&e.header);
        let j = &mut *self.json;
        j.str("direction", e.direction.name());
        j.object("stream_tcp");
        j.object("packet");
        drop::headers(j, e.packet);
        let flags = [
            ("spurious_retransmission", e.spurious_retransmission),
            ("event_set", e.decode_events || !e.events.is_empty()),
            ("state_update", e.session.is_some_and(|s| s.before.is_some())),
        ];
        j.array("flags");
        flags.iter().filter(|f| f.1).for_each(|f| j.item_str(f.0));
        j.end_array();
        j.end_object();
        if let Some(s) = &e.session {
            j.object("session");
            j.str("state", s.state);
            if let Some(before) = s.before {
                j.str("pstate", before);
            }
            j.object("flags");
            j.array("flags");
            s.flags.iter().for_each(|f| j.item_str(f));
            j.end_array();
            j.end_object();
            for (name, p) in ["client", "server"].into_iter().zip(&s.peers) {
                peer(j, name, p);
            }
            j.end_object();
        }
        if !e.events.is_empty() {
            j.array("events");
            e.events.iter().for_each(|e| j.item_str(&format!("stream.{e}")));
            j.end_array();
        }
        j.end_object();
        self.finish(e.header.pcap_filename);
    }
}

fn peer(j: &mut Json, name: &'static str, p: &PeerState) {
    j.object(name);
    for (key, n) in [
        ("isn", p.isn),
        ("next_seq", p.next_seq),
        ("last_ack", p.last_ack),
        ("next_win", p.next_win),
        ("base_seq", p.base_seq),
        ("segs_right_edge", p.right_edge),
        ("window", p.window),
        ("wscale", u32::from(p.wscale)),
    ] {
        j.uint(key, u64::from(n));
    }
    j.array("flags");
    for (flag, on) in [("gap", p.gap), ("depth_reached", p.depth_reached)] {
        if on {
            j.item_str(flag);
        }
    }
    j.end_array();
    j.end_object();
}
