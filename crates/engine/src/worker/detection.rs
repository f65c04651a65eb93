//! Runs detection on a packet, and applies the verdict to the packet, its flow and the events.

use margay_app::{AppProto, Transaction};
use margay_detect::checks::{AppProtos, StreamSizes};
use margay_detect::{FrameInput, Input, StreamChunk, Verdict, VerdictAction};
use margay_flow::{Direction, Flow, FlowAction, FlowState};
use margay_output::error;
use margay_packet::{Packet, PacketSource};
use margay_stream::TcpSession;

use super::app::{FlowApp, awake};
use super::firewall::FlowDropBy;
use super::frames::FrameSource;
use super::scripts::{Occasion, ScriptContext};
use super::tcp::Seen;
use super::wire::Wire;
use super::{DropReason, FlowExt, PacketVerdict, Stages};

/// Decides when rules on the flow's protocol alone (`pd_only`) run. In a stream, they run once for each direction, with the
/// first packet after the one that decided the protocol; inline, with that packet itself, if the protocol is known in time.
/// For datagrams, they run with the first of each direction, and with the next one after the protocols change.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProtocolRules {
    protocols: AppProtos,
    /// Whether they ran, by direction.
    looked: [bool; 2],
}

/// The carrier of a flow's protocol, for [`ProtocolRules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Datagrams,
    Stream,
    StreamInline,
}

impl ProtocolRules {
    /// Whether the rules are due with a packet of that direction, and whether this packet changed the protocols.
    fn are_due(&mut self, dir: Direction, protocols: AppProtos, carrier: Carrier) -> (bool, bool) {
        let d = dir.index();
        let mut due = carrier == Carrier::Datagrams && !std::mem::replace(&mut self.looked[d], true);
        let before = std::mem::replace(&mut self.protocols, protocols);
        let told = protocols != before;
        if told {
            let all = carrier == Carrier::Datagrams;
            for (looked, (was, is)) in self.looked.iter_mut().zip(before.side.into_iter().zip(protocols.side)) {
                *looked &= !all && was == is;
            }
        }
        if carrier != Carrier::Datagrams {
            let sides = if carrier == Carrier::StreamInline { protocols.side } else { before.side };
            // Protocol detection has not failed until both sides are decided.
            let decided = match sides[d] {
                AppProto::Unknown => false,
                AppProto::Failed => !sides.contains(&AppProto::Unknown),
                _ => true,
            };
            due = decided && !std::mem::replace(&mut self.looked[d], true);
        }
        (due, told)
    }
}

/// The protocols of a flow, for rules.
fn app_protos(app: Option<&FlowApp>) -> AppProtos {
    app.map_or_else(AppProtos::default, |a| AppProtos {
        side: a.session.sides_for_rules(),
        flow: a.session.for_rules(),
        original: a.session.original,
    })
}

/// The sizes of a session's streams.
fn stream_sizes(session: Option<&TcpSession>) -> Option<StreamSizes> {
    session
        .map(|s| StreamSizes { client: s.stream_size(Direction::ToServer), server: s.stream_size(Direction::ToClient) })
}

impl Stages {
    /// Runs detection on a packet without a flow.
    pub(super) fn detect_alone(&mut self, packet: &Packet<'_>, fate: &mut PacketVerdict) {
        let Some((detect, state)) = &mut self.detect else { return };
        if let Some(w) = &mut self.app.witness {
            w.payload(packet, None);
        }
        let mut input = Input { ips: self.ips, td_passed: fate.pass, ..Input::new(packet) };
        let verdict = state.inspect(detect, &mut input);
        self.replace(packet, fate);
        self.carry_out(packet, None, verdict, fate);
    }

    /// Runs detection on a packet of a flow, and on the stream data that is due.
    pub(super) fn detect_in_flow(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        seen: &Seen,
        fate: &mut PacketVerdict,
    ) {
        let Some((detect, state)) = &mut self.detect else { return };
        let session = flow.ext.tcp.as_deref();
        // Data that is inspected before its acknowledgment is inspected again with what follows it (`stream.inline`).
        let inline = session.map_or(self.ips, TcpSession::inline);
        let sent = !matches!(packet.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush);
        let chunk = session.and_then(|s| match s.raw_chunk(dir, seen.flush) {
            None if seen.encrypts => s.raw_last(dir),
            // The rest before encryption is due with the next packet, even if that one ends the connection.
            None if sent && seen.flush && !inline => s.raw_chunk(dir, false),
            due => due,
        });
        let chunks =
            chunk.map(|c| StreamChunk { data: c.data, offset: c.offset, seen: if inline { 0 } else { c.seen } });
        if let Some(w) = &mut self.app.witness {
            w.payload(packet, Some((flow.core.id, dir)));
            if let (Some(s), Some(c)) = (session, &chunks) {
                w.stream(&flow.core, dir, s.first_seq(dir), c);
            }
        }
        let stream_waits = session.is_some_and(|s| s.raw_waits(dir));
        let stream_sizes = stream_sizes(session);
        let established = match session {
            Some(_) => seen.established,
            None => flow.core.proto != 6 && flow.core.state == FlowState::Established,
        };
        let mut app = flow.ext.app.as_deref_mut();
        let protos = app_protos(app.as_deref());
        if let Some(a) = &app {
            self.app.shared.files.flow = a.files;
        }
        let events = seen.event_bits();
        let source = FrameSource { tcp: session, dir, payload: packet.payload() };
        let (mut txs, mut txs_changed, mut frames, mut no_payload) = (None, false, None, false);
        let parser = app.as_deref().and_then(|a| a.session.parsers().last());
        let show_start = self.shown > 0 && parser.is_some_and(|p| p.shows_start());
        if let Some(a) = app.as_deref_mut() {
            // The firewall may leave a change for a later packet.
            txs_changed = a.session.take_changed(dir) || detect.is_firewall();
            if txs_changed {
                a.mark_dirty();
            }
            no_payload = a.encrypted;
            let ended = seen.flush || a.session.is_ended(dir);
            if !self.app.shared.frames.inspected.is_empty() && !a.frames.of(dir).is_empty() {
                let available = session.map_or(u64::MAX, |s| s.app_offset(dir));
                frames = Some(FrameInput {
                    proto: a.session.proto,
                    parser: a.session.parsers().len().saturating_sub(1) as u8,
                    frames: a.frames.of_mut(dir),
                    bytes: &source,
                    available,
                    offered: available.max(a.offered[dir.index()]),
                    end: ended || session.is_none(),
                });
            }
            txs = Some(a.session.parsers_mut());
        }
        if self.scripts.active() {
            let context = ScriptContext { packet: Some(packet), flow: Some(&flow.core), app: protos };
            if self.scripts.wants(Occasion::Stream)
                && let Some(c) = chunk
            {
                self.scripts.stream(&mut self.outputs, Some(detect), context, dir, (c.offset, c.data));
            }
            if self.scripts.wants(Occasion::Body)
                && let Some(parsers) = &txs
            {
                // The end of a body comes with the transaction's log.
                let due = |tx: &&dyn Transaction| tx.base().updated[dir.index()] && !tx.base().logged;
                for tx in parsers.iter().flat_map(|p| awake(&**p)).filter(due) {
                    self.scripts.body(&mut self.outputs, Some(detect), context, (tx, dir), false);
                }
            }
        }
        let carrier = match (flow.core.proto, inline) {
            (6, false) => Carrier::Stream,
            (6, true) => Carrier::StreamInline,
            _ => Carrier::Datagrams,
        };
        let (protocol_due, protocol_told) = match packet.source {
            // Rules on the protocol look at the packet that was captured.
            PacketSource::StreamFlush => (false, false),
            _ => flow.ext.protocol_rules.are_due(dir, protos, carrier),
        };
        let mut input = Input {
            flow: Some(&mut flow.core),
            dir: Some(dir),
            established,
            in_stream: seen.in_stream,
            no_payload,
            chunks: chunks.as_slice(),
            stream_waits,
            stream_events: events,
            protocol_due,
            protocol_told,
            app: protos,
            app_events: seen.app_result.events,
            txs,
            txs_changed,
            frames,
            files: Some(&mut self.app.shared.files),
            stream_sizes,
            ips: self.ips,
            td_passed: fate.pass,
            let_through: seen.for_txs,
            flow_ends: seen.flow_ends,
            changing: seen.changing,
            ahead: self.helped.as_deref(),
            ..Input::new(packet)
        };
        let verdict = state.inspect(detect, &mut input);
        if let Some(a) = app {
            a.files = self.app.shared.files.flow;
        }
        self.replace(packet, fate);
        if self.shown > 0
            && let Some((_, state)) = &self.detect
            && state.alerts().iter().any(|a| a.stream)
        {
            self.scratch.payload.clear();
            if let Some(s) = session {
                let (from, to) = s.event_range(dir, !inline, show_start);
                s.payload_with_gaps(dir, from, to, self.shown, &mut self.scratch.payload);
            }
        }
        let end = chunk.map(|c| c.offset + c.data.len() as u64);
        self.carry_out(packet, Some((flow, dir)), verdict, fate);
        if flow.core.action == FlowAction::Drop {
            self.frames_unwatched(flow);
        }
        if let Some(s) = flow.ext.tcp.as_deref_mut() {
            let app = flow.ext.app.as_deref();
            let frames = !self.app.shared.frames.inspected.is_empty() && !app.is_some_and(|a| a.wishes.no_payload);
            if frames || show_start {
                let needed = app.filter(|_| frames).and_then(|a| a.frames.needed(dir));
                let start = show_start && s.acknowledged_offset(dir) < self.shown as u64;
                s.keep(dir, if start { Some(0) } else { needed });
            }
            if let Some(end) = end {
                s.raw_done(dir, end);
            }
            self.stream.account(s);
        }
    }

    /// Runs detection on a packet that the stream engine refused. As in Suricata, rules see its headers and its stream events, but not
    /// its payload, which is no part of the stream.
    pub(super) fn detect_refused(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        seen: &Seen,
        fate: &mut PacketVerdict,
    ) {
        let Some((detect, state)) = &mut self.detect else { return };
        let mut input = Input {
            dir: Some(dir),
            established: seen.established,
            no_payload: true,
            stream_events: seen.event_bits(),
            app: app_protos(flow.ext.app.as_deref()),
            stream_sizes: stream_sizes(flow.ext.tcp.as_deref()),
            ips: self.ips,
            flow: Some(&mut flow.core),
            ..Input::new(packet)
        };
        let verdict = state.inspect(detect, &mut input);
        let reason = fate.drop;
        self.carry_out(packet, Some((flow, dir)), verdict, fate);
        // The stream engine's reason came first.
        fate.drop = reason;
    }

    /// Forwards the packet with the replacements of the matching rules, or drops it if that is impossible.
    fn replace(&mut self, packet: &Packet<'_>, fate: &mut PacketVerdict) {
        let Some((_, state)) = &self.detect else { return };
        if !self.ips || state.replacements().is_empty() {
            return;
        }
        // Packets of a capture file are not forwarded; replacements are only counted.
        if let Some(wire) = self.wire.as_mut().filter(|w| w.inline)
            && !wire.replace(packet, state.replacements().iter().map(|(at, bytes)| (*at, &bytes[..])))
        {
            fate.drop = fate.drop.or(Some(DropReason::NotReplaced));
            return;
        }
        self.counters.ips.replaced();
    }

    /// Applies the detection verdict to the packet's `fate`, and writes the alerts.
    pub(super) fn carry_out(
        &mut self,
        packet: &Packet<'_>,
        flow: Option<(&mut Flow<FlowExt>, Direction)>,
        verdict: Verdict,
        fate: &mut PacketVerdict,
    ) {
        match verdict.action {
            VerdictAction::Accept => {}
            VerdictAction::Pass => fate.pass = true,
            VerdictAction::Drop => {
                if self.ips {
                    fate.drop = Some(match verdict.drop_reason {
                        Some(margay_detect::DropReason::FlowDrop) => DropReason::FlowDrop,
                        Some(margay_detect::DropReason::RulesThreshold) => DropReason::Threshold,
                        Some(reason) if reason.is_firewall() => DropReason::Firewall(reason),
                        _ => DropReason::Rules,
                    });
                }
            }
        }
        fate.reject |= verdict.reject.is_some() && self.ips;
        fate.rejected = verdict.reject.or(fate.rejected);
        if verdict.reject.is_some() {
            fate.answers = Wire::how(packet);
        }
        fate.dropped_by = verdict.dropped_by;
        fate.inspected = true;
        fate.bypass |= verdict.bypass;
        fate.mark = verdict.mark.or(fate.mark);
        fate.pcap.tagged |= verdict.tagged || verdict.sets_tag;
        let alerted = self.detect.as_ref().is_some_and(|(_, s)| !s.alerts().is_empty());
        let (flow, dir) = match flow {
            Some((f, d)) => {
                f.core.alerted |= alerted;
                if f.core.action == FlowAction::Drop && verdict.drop_reason.is_some_and(|r| r.is_firewall()) {
                    f.ext.dropped_by = FlowDropBy::Firewall;
                }
                fate.pcap.alerted |= f.core.alerted;
                (Some(&*f), Some(d))
            }
            None => {
                fate.pcap.alerted |= alerted;
                (None, None)
            }
        };
        if alerted {
            self.log_alerts(packet, flow.zip(dir), *fate);
        }
        self.log_metadata(packet, flow.map(|f| &f.core));
        let made_up = matches!(packet.source, PacketSource::StreamFlowTimeout | PacketSource::StreamFlush);
        if verdict.tagged && !made_up {
            self.log_tagged(packet, flow);
        }
    }

    /// Logs the first failure of the pattern matcher. Called between batches.
    pub(super) fn tell_of_failed_searches(&mut self) {
        if let Some((_, state)) = &self.detect
            && let Some(e) = state.search_error()
            && !std::mem::replace(&mut self.told_of_search_error, true)
        {
            error!("detect", "{e}: buffers are searched without it, which is slower; detect.search_errors counts them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ToClient as C, ToServer as S};

    /// The packets with which rules on the protocol alone run.
    fn due(carrier: Carrier, packets: &[(Direction, [AppProto; 2])]) -> Vec<bool> {
        let mut rules = ProtocolRules::default();
        packets
            .iter()
            .map(|&(dir, side)| rules.are_due(dir, AppProtos { side, ..AppProtos::default() }, carrier).0)
            .collect()
    }

    #[test]
    fn rules_on_a_protocol_look_once_for_each_direction() {
        use AppProto::{Failed, Http1, Unknown};
        let none = [Unknown; 2];
        // A request is detected when the server acknowledges it, a response when the client does.
        let (request, both) = ([Http1, Unknown], [Http1; 2]);
        let packets = [(S, none), (C, none), (S, none), (C, request), (C, request), (S, both), (C, both), (S, both)];
        assert_eq!(due(Carrier::Stream, &packets), [false, false, false, false, false, true, true, false]);
        assert_eq!(due(Carrier::StreamInline, &packets), [false, false, false, false, false, true, true, false]);
        // Inline, it is detected with the packet itself.
        let packets = [(S, none), (C, none), (S, request), (C, request), (C, both), (S, both)];
        assert_eq!(due(Carrier::StreamInline, &packets), [false, false, true, false, true, false]);
        // After a failure on one side, the other side may still decide.
        let packets = [
            (S, none),
            (C, [Failed, Unknown]),
            (S, [Failed, Unknown]),
            (S, [Failed; 2]),
            (S, [Failed; 2]),
            (C, [Failed; 2]),
        ];
        assert_eq!(due(Carrier::Stream, &packets), [false, false, false, false, true, true]);
        // A new protocol is inspected again.
        let packets = [(S, both), (S, both), (S, [Unknown; 2]), (S, [AppProto::Tls; 2]), (S, [AppProto::Tls; 2])];
        assert_eq!(due(Carrier::Stream, &packets), [false, true, true, false, true]);
        // Datagrams: at once, and after each change.
        let packets = [(S, none), (S, request), (C, request), (S, request), (S, request)];
        assert_eq!(due(Carrier::Datagrams, &packets), [true, false, true, true, false]);
    }
}
