//! TCP packets: through the stream engine, and what it says of them.

use margay_flow::{Direction, Flow, FlowKey, FlowRef, FlowState};
use margay_packet::{L4, Packet};
use margay_stream::{Exception, FlowPrint, StreamEvents, TcpState};

use super::app::{Heard, is_over};
use super::{DropReason, Fate, FlowExt, Lane, Rest};
use crate::exception::{Condition, Policy};

/// What the stream engine said of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// What was wrong.
    pub(crate) events: StreamEvents,
    /// The session's state before the packet.
    pub(crate) before: TcpState,
    /// The flow's new state.
    pub(crate) state: Option<FlowState>,
    /// Whether the flow counts as established for this packet: the one that completes a handshake comes before
    /// that, unless it brings data.
    pub(crate) established: bool,
    /// The payload went into the stream.
    pub(crate) in_stream: bool,
    /// All that is left of the stream is to be inspected.
    pub(crate) flush: bool,
    /// The packet is made up for transactions alone, and nothing is left of the stream.
    pub(crate) for_txs: bool,
    /// Inline: the payload has to be replaced by what the stream has.
    pub(crate) rewrite: bool,
    /// Inline: it goes on without its urgent pointer.
    pub(crate) clear_urgent: bool,
    /// Nothing more is to be seen of the flow.
    pub(crate) bypass: bool,
    /// What the application layer made of the data that the packet made available.
    pub(crate) heard: Heard,
}

impl Lane {
    /// Takes a TCP packet into its session, and notes what was seen. Where it opens a new connection on a flow whose connection is over,
    /// that flow ends and another begins: its place and the packet's direction are returned.
    pub(super) fn tcp(
        &mut self,
        packet: &Packet<'_>,
        key: &FlowKey,
        mut at: FlowRef,
        mut direction: Direction,
        fate: &mut Fate,
        seen: &mut Seen,
    ) -> (FlowRef, Direction) {
        let Lane { flows, rest, policies, .. } = self;
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        let fresh = flow.core.pkts == [0; 2];
        let mut established = is_established(flow.core.state);
        let state = |flow: &Flow<FlowExt>| flow.ext.tcp.as_ref().map_or(TcpState::None, |s| s.state());
        let mut before = state(flow);
        let mut resumed = false;
        if before <= TcpState::SynRecv {
            // Its connection may be one that was silent for longer than flows live.
            let print = FlowPrint { hash: key.hash(), second: key.source_is_second() };
            if let Some(of_client) = rest.stream.resume(&mut flow.ext.tcp, packet, print) {
                before = state(flow);
                (resumed, established) = (true, true);
                if of_client != (direction == Direction::ToServer) {
                    flows.swap(at);
                    direction = direction.reverse();
                }
            }
        }
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        let mut had_session = flow.ext.tcp.is_some() && !resumed;
        let mut out = rest.stream.process(&mut flow.ext.tcp, packet, direction, fresh);
        if resumed {
            out.state = out.state.or(Some(FlowState::Established));
        }
        if out.reuse {
            let tenant = flow.ext.tenant;
            let make = || FlowExt::of(tenant);
            let answered = flow.ext.tcp.as_deref().and_then(|old| rest.stream.open_answered(old, packet));
            // Inline, a SYN once more: its server is here already, whatever becomes of it.
            let heard = flow.ext.tcp.as_deref().filter(|old| rest.ips && old.state() == TcpState::SynRecv);
            let heard = heard.map_or(0, |old| old.tcp_flags(Direction::ToClient));
            let Some(new) = flows.replace(at, packet, key, make, &mut |f, r| rest.end_flow(f, r)) else {
                rest.apply(Condition::FlowMemcap, policies.of(Condition::FlowMemcap), fate, None);
                return (at, direction);
            };
            (at, direction) = (new, Direction::ToServer);
            (established, had_session) = (false, false);
            if answered.is_some() {
                // It is the server's answer: the flow is its client's.
                flows.swap(at);
                direction = Direction::ToClient;
            }
            let Some(flow) = flows.get_mut(at) else { return (at, direction) };
            rest.at_flow(flow);
            flow.ext.tcp = answered;
            before = state(flow);
            out = rest.stream.process(&mut flow.ext.tcp, packet, direction, true);
            if let Some(new) = flow.ext.tcp.as_deref_mut().filter(|_| heard != 0) {
                new.heard_before(Direction::ToClient, heard);
            }
        }
        // An acknowledgement that completes the handshake and brings data is of the connection already.
        established |= out.state == Some(FlowState::Established) && !packet.payload().is_empty();
        if out.swap {
            flows.swap(at);
            direction = Direction::ToClient;
        }
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        if !had_session {
            rest.new_session(flow);
        }
        if flow.ext.tcp.as_ref().is_some_and(|s| s.depth_reached(direction)) {
            fate.pcap.past_stream_depth = true;
        }
        if let Some(e) = out.exception {
            let condition = match e {
                Exception::Midstream => Condition::Midstream,
                Exception::SessionMemcap => Condition::StreamMemcap,
                Exception::ReassemblyMemcap => Condition::ReassemblyMemcap,
            };
            let policy = policies.of(condition);
            rest.apply(condition, policy, fate, Some(flow));
            out.bypass |= policy == Policy::Bypass;
        }
        if out.without_data && !rest.wire.as_mut().is_some_and(|w| w.strip(packet)) {
            out.drop = true;
        }
        if out.restart || out.untaken {
            rest.restart_app(packet, flow, !out.untaken);
        }
        if out.drop && fate.drop.is_none() {
            fate.drop = Some(if out.drop_urgent { DropReason::StreamUrgent } else { DropReason::StreamError });
        }
        // Data of a SYN waits for what follows the handshake.
        let early = !established && !rest.ips && flow.ext.tcp.as_ref().is_some_and(|s| s.is_fast_open());
        let mut heard = if early { Heard::default() } else { rest.feed_tcp(flow, direction, false) };
        if heard.turn {
            flow.ext.turn_round();
            flows.swap(at);
            direction = direction.reverse();
            let Some(flow) = flows.get_mut(at) else { return (at, direction) };
            heard = rest.feed_tcp(flow, direction, false);
        }
        let over = flows.get(at).and_then(|f| f.ext.tcp.as_deref()).is_some_and(is_over);
        *seen = Seen {
            heard,
            events: out.events,
            before,
            state: out.state,
            established,
            in_stream: out.in_stream,
            flush: out.flush || over,
            for_txs: false,
            rewrite: out.rewrite,
            clear_urgent: out.clear_urgent,
            bypass: out.bypass,
        };
        if let Some(proto) = seen.heard.failed
            && let Some(flow) = flows.get_mut(at)
        {
            rest.parser_failed(proto, flow, fate, seen);
        }
        (at, direction)
    }
}

/// Whether a TCP connection was established at some time.
pub(super) const fn is_established(state: FlowState) -> bool {
    matches!(state, FlowState::Established | FlowState::Closed)
}

impl Rest {
    /// Nothing inspects the raw stream of a session that begins while there are no rules.
    fn new_session(&self, flow: &mut Flow<FlowExt>) {
        if let Some(s) = flow.ext.tcp.as_deref_mut()
            && self.detect.is_none()
        {
            s.raw_disable();
        }
    }

    /// Inline: the packet with its payload replaced by what the stream has there, and its checksum put right.
    pub(super) fn rewritten(
        &mut self,
        packet: &Packet<'_>,
        flow: &Flow<FlowExt>,
        dir: Direction,
        seen: &Seen,
    ) -> Option<Vec<u8>> {
        if !seen.rewrite {
            return None;
        }
        let (session, L4::Tcp { offset, .. }) = (flow.ext.tcp.as_deref()?, packet.l4) else { return None };
        let seq = packet.tcp()?.seq();
        let mut data = std::mem::take(&mut self.scratch.rewritten);
        data.clear();
        data.extend_from_slice(packet.data);
        let (start, len) = (packet.payload.0 as usize, packet.payload.1 as usize);
        let changed = data.get_mut(start..start + len).is_some_and(|p| session.rewrite(dir, seq, p));
        if !changed {
            self.scratch.rewritten = data;
            return None;
        }
        let at = offset as usize + 16;
        if let Some(sum) = data.get_mut(at..at + 2) {
            sum.fill(0);
        }
        let sum = Packet { data: &data, ..*packet }.tcp_checksum();
        if let (Some(sum), Some(field)) = (sum, data.get_mut(at..at + 2)) {
            field.copy_from_slice(&sum.to_be_bytes());
        }
        self.counters.ips.replaced();
        Some(data)
    }
}
