//! Logs how the TCP engine handled each packet (`stream_tcp` events).

use margay_flow::{Direction, Flow};
use margay_output::event::{EventType, Header, PeerState, SessionState, StreamEvent as Event};
use margay_packet::Packet;
use margay_stream::{StreamEvent, TcpSession};

use super::log::direction;
use super::tcp::Seen;
use super::{FlowExt, Stages};

fn peer(session: &TcpSession, dir: Direction) -> PeerState {
    let s = session.side(dir);
    PeerState {
        isn: s.isn,
        next_seq: s.next_seq,
        last_ack: s.last_ack,
        next_win: s.next_win,
        base_seq: s.base_seq,
        right_edge: s.right_edge,
        window: s.window,
        wscale: s.wscale,
        gap: session.has_gap(dir),
        depth_reached: session.depth_reached(dir),
    }
}

impl Stages {
    /// Logs how the TCP engine handled a packet, if that output is on.
    pub(super) fn log_stream(&mut self, p: &Packet<'_>, flow: &Flow<FlowExt>, dir: Direction, seen: &Seen) {
        if !p.is_tcp() || !self.outputs.wants(EventType::Stream) {
            return;
        }
        let session = flow.ext.tcp.as_deref();
        let flags: Vec<&'static str> = session.map(|s| s.flags().collect()).unwrap_or_default();
        let events: Vec<&'static str> = seen.events.as_slice().iter().map(|e| e.name()).collect();
        let header = Header {
            flow_id: Some(flow.core.id),
            parent_id: flow.ext.parent,
            pcap_filename: self.file.as_deref(),
            ..Header::of(p)
        };
        self.outputs.stream(&Event {
            header,
            packet: p,
            direction: direction(dir),
            session: session.map(|s| SessionState {
                state: s.state().name(),
                before: (seen.before != s.state()).then(|| seen.before.name()),
                flags: &flags,
                peers: [Direction::ToServer, Direction::ToClient].map(|d| peer(s, d)),
            }),
            events: &events,
            decode_events: !p.events.is_empty(),
            spurious_retransmission: seen.events.as_slice().contains(&StreamEvent::PktSpuriousRetransmission),
        });
    }
}
