//! Passes TCP packets through the stream engine, and handles its results.

use margay_flow::{Direction, Flow, FlowAction, FlowKey, FlowRef, FlowState};
use margay_packet::{L4, Packet};
use margay_stream::{Exception, FlowPrint, StreamEvents, TcpSession, TcpState};

use super::app::AppResult;
use super::firewall::FlowDropBy;
use super::{DropReason, FlowExt, PacketVerdict, Pipeline, Stages};
use crate::exception::{Condition, Policy};

/// The stream engine's results for a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Stream events.
    pub(crate) events: StreamEvents,
    /// The session's state before the packet.
    pub(crate) before: TcpState,
    /// The flow's new state.
    pub(crate) state: Option<FlowState>,
    /// Whether the flow counts as established for this packet. The packet that completes a handshake does not count yet,
    /// unless it has data.
    pub(crate) established: bool,
    /// The payload went into the stream.
    pub(crate) in_stream: bool,
    /// The rest of the stream must be inspected.
    pub(crate) flush: bool,
    /// The packet is the first pseudo packet of its direction at the end of the flow.
    pub(crate) flow_ends: bool,
    /// Encryption begins with the packet, which has no data itself, and earlier data of its direction was not inspected.
    pub(crate) encrypts: bool,
    /// The packet is a pseudo packet, made because the flow changes its protocol.
    pub(crate) changing: bool,
    /// The packet is a pseudo packet for the transactions of a closed connection, whose stream has nothing left to inspect.
    pub(crate) for_txs: bool,
    /// Inline: the stream's data must replace the payload.
    pub(crate) rewrite: bool,
    /// Inline: the packet is forwarded without its urgent pointer.
    pub(crate) clear_urgent: bool,
    /// The rest of the flow needs no inspection.
    pub(crate) bypass: bool,
    /// The application layer's result for the data that the packet made available.
    pub(crate) app_result: AppResult,
}

impl Seen {
    /// The stream events, one bit each.
    pub(super) fn event_bits(&self) -> u128 {
        self.events.as_slice().iter().fold(0, |set, e| set | 1 << (*e as u8))
    }
}

impl Pipeline {
    /// Processes a TCP packet in its session, and records the results. If it opens a new connection on a flow whose
    /// connection is over, that flow ends and another begins. Returns the flow's reference and the packet's direction.
    pub(super) fn tcp(
        &mut self,
        packet: &Packet<'_>,
        key: &FlowKey,
        mut at: FlowRef,
        mut direction: Direction,
        fate: &mut PacketVerdict,
        seen: &mut Seen,
    ) -> (FlowRef, Direction) {
        let Pipeline { flows, stages, policies, .. } = self;
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        let fresh = flow.core.pkts == [0; 2];
        let mut established = is_established(flow.core.state);
        let state = |flow: &Flow<FlowExt>| flow.ext.tcp.as_ref().map_or(TcpState::None, |s| s.state());
        let mut before = state(flow);
        let mut resumed = false;
        if flow.ext.tcp.as_deref().is_none_or(|s| s.gives_way()) {
            // The packet may resume a connection that was silent for longer than a flow lives.
            let print = FlowPrint { hash: key.hash(), second: key.source_is_second() };
            if let Some(of_client) = stages.stream.resume(&mut flow.ext.tcp, packet, print) {
                before = state(flow);
                (resumed, established) = (true, true);
                if of_client != (direction == Direction::ToServer) {
                    flows.swap(at);
                    direction = direction.reverse();
                }
                if let Some(flow) = flows.get_mut(at)
                    && let Some(reason) = flow.ext.tcp.as_deref().and_then(TcpSession::dropped)
                {
                    flow.core.action = FlowAction::Drop;
                    flow.ext.dropped_by = FlowDropBy::of(reason);
                    (seen.before, seen.state) = (before, Some(FlowState::Established));
                    return (at, direction);
                }
            }
        }
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        if resumed {
            // The application layer may have read data of the SYN that gave way.
            stages.restart_app(packet, flow, true);
        }
        let mut had_session = flow.ext.tcp.is_some() && !resumed;
        let mut out = stages.stream.process(&mut flow.ext.tcp, packet, direction, fresh);
        if resumed {
            out.state = out.state.or(Some(FlowState::Established));
        }
        if out.reuse {
            let tenant = flow.ext.tenant;
            let make = || FlowExt::of(tenant);
            let answered = flow.ext.tcp.as_deref().and_then(|old| stages.stream.open_answered(old, packet));
            // In IPS mode, a repeated SYN: the server's reply to the first one has arrived, so the new session keeps the
            // reply's TCP flags.
            let reply_flags = flow.ext.tcp.as_deref().filter(|old| stages.ips && old.state() == TcpState::SynRecv);
            let reply_flags = reply_flags.map_or(0, |old| old.tcp_flags(Direction::ToClient));
            let Some(new) = flows.replace(at, packet, key, make, &mut |f, r| stages.end_flow(f, r)) else {
                stages.apply(Condition::FlowMemcap, policies.of(Condition::FlowMemcap), packet, fate, None);
                return (at, direction);
            };
            (at, direction) = (new, Direction::ToServer);
            (established, had_session) = (false, false);
            if answered.is_some() {
                // The packet is the server's answer, so the flow begins with its client.
                flows.swap(at);
                direction = Direction::ToClient;
            }
            let Some(flow) = flows.get_mut(at) else { return (at, direction) };
            stages.at_flow(flow);
            flow.ext.tcp = answered;
            before = state(flow);
            out = stages.stream.process(&mut flow.ext.tcp, packet, direction, true);
            if let Some(new) = flow.ext.tcp.as_deref_mut().filter(|_| reply_flags != 0) {
                new.heard_before(Direction::ToClient, reply_flags);
            }
        }
        // An ACK that completes the handshake and has data already belongs to the established connection. A packet that
        // begins a session midstream does so only in IPS mode, where its data is not inspected again.
        let completes = had_session || stages.ips;
        established |= completes && out.state == Some(FlowState::Established) && !packet.payload().is_empty();
        if out.swap {
            flows.swap(at);
            direction = Direction::ToClient;
        }
        let Some(flow) = flows.get_mut(at) else { return (at, direction) };
        if !had_session {
            stages.new_session(flow);
        }
        // Without one side's data, the capture log has no use for the other side's acknowledgments.
        let beyond = |s: &TcpSession| s.depth_reached(Direction::ToServer) || s.depth_reached(Direction::ToClient);
        fate.pcap.past_stream_depth |= flow.ext.tcp.as_deref().is_some_and(beyond);
        if let Some(e) = out.exception {
            let condition = match e {
                Exception::Midstream => Condition::Midstream,
                Exception::SessionMemcap => Condition::StreamMemcap,
                Exception::ReassemblyMemcap => Condition::ReassemblyMemcap,
            };
            let policy = policies.of(condition);
            stages.apply(condition, policy, packet, fate, Some(flow));
            out.bypass |= policy == Policy::Bypass;
        }
        if out.without_data && !stages.wire.as_mut().is_some_and(|w| w.strip(packet)) {
            out.drop = true;
        }
        if out.restart || out.untaken {
            stages.restart_app(packet, flow, !out.untaken);
        }
        if out.drop && fate.drop.is_none() {
            fate.drop = Some(if out.drop_urgent { DropReason::StreamUrgent } else { DropReason::StreamError });
        }
        // Outside IPS mode, the parser gets data of a SYN (TCP Fast Open) once the handshake is complete, and data that
        // only a reset acknowledged once the connection goes on or the flow ends, as in Suricata.
        let opens = !established && !stages.ips;
        let waits = flow.ext.tcp.as_ref().is_some_and(|s| opens && s.is_fast_open() || s.may_go_on());
        let mut app_result = if waits { AppResult::default() } else { stages.feed_tcp(flow, direction, false) };
        if app_result.turn {
            flow.ext.turn_round();
            flows.swap(at);
            direction = direction.reverse();
            let Some(flow) = flows.get_mut(at) else { return (at, direction) };
            app_result = stages.feed_tcp(flow, direction, false);
        }
        *seen = Seen {
            app_result,
            events: out.events,
            before,
            state: out.state,
            established,
            in_stream: out.in_stream,
            flush: out.flush,
            flow_ends: false,
            encrypts: false,
            changing: false,
            for_txs: false,
            rewrite: out.rewrite,
            clear_urgent: out.clear_urgent,
            bypass: out.bypass,
        };
        if let Some(proto) = seen.app_result.failed
            && let Some(flow) = flows.get_mut(at)
        {
            stages.parser_failed(proto, flow, fate, seen, packet);
        }
        (at, direction)
    }
}

/// Whether a TCP connection was ever established.
pub(super) const fn is_established(state: FlowState) -> bool {
    matches!(state, FlowState::Established | FlowState::Closed)
}

impl Stages {
    /// Without rules, nothing inspects the raw stream of a new session.
    fn new_session(&self, flow: &mut Flow<FlowExt>) {
        if let Some(s) = flow.ext.tcp.as_deref_mut()
            && self.detect.is_none()
        {
            s.raw_disable();
        }
    }

    /// Inline: the packet with its payload replaced by the stream's data, and a corrected checksum.
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
