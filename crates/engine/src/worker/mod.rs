//! One worker: takes packets from the capture to the events.
//!
//! [`Worker`] owns everything that a packet touches. The decoder is a field beside the [`Pipeline`], because it calls the
//! pipeline for each packet that it finds in a frame.

mod app;
mod app_feed;
mod app_log;
mod app_memory;
mod burst;
pub(crate) mod bypass;
mod captured;
mod closing;
mod detection;
mod end;
pub(crate) mod engines;
mod expect;
mod fileinfo;
mod firewall;
mod flow_ext;
mod frames;
mod ips;
mod log;
pub(crate) mod moving;
mod outputs;
mod packet_verdict;
mod policy;
mod resets;
mod scripts;
mod setup;
mod stream_log;
mod tcp;
mod warm;
pub(crate) mod wire;

use std::rc::Rc;
use std::sync::Arc;

use margay_capture::live::Decisions;
use margay_detect::SearchedAhead;
use margay_flow::{
    Direction, FlowAction, FlowHasher, FlowKey, FlowRef, FlowState, FlowTable, JUMP_BACK, Lookup, TCP_STATES,
};
use margay_output::Outputs;
use margay_packet::{Decoder, Frame, L3, Packet, PacketSink, Refused, Time};
use margay_stream::StreamEngine;

use crate::exception::{Condition, Policies, Policy, PolicyCounters};
use crate::rules::RuleTexts;
pub(crate) use app::AppStage;
pub(crate) use captured::{AheadCounters, Announce, Captured, End, SourceCounters};
use engines::{Engine, Engines, PacketOrder};
use firewall::BeforeFlow;
pub(crate) use flow_ext::FlowExt;
use flow_ext::MacList;
pub(crate) use ips::IpsCounters;
pub(crate) use outputs::{Opened, share_outputs, test_scripts};
pub(crate) use packet_verdict::{DropReason, FrameVerdict, PacketVerdict};
use scripts::ScriptContext;
pub(crate) use scripts::{Occasion, OutputScripts};
pub(crate) use setup::{Part, app_wants, worker, worker_of};
use wire::Wire;

/// One worker.
pub(crate) struct Worker {
    pub(crate) decoder: Decoder,
    pub(crate) pipeline: Pipeline,
    /// Frames since the worker last searched for flows that timed out.
    pub(crate) unswept: u32,
    /// Second of packet time of the last such search, in a live capture.
    pub(crate) swept: i64,
    /// The last second of packet time that [`Worker::expire_live`] reported as over.
    pub(crate) told: i64,
}

/// Frames between two searches for flows that timed out. Time often jumps back and forth in short captures, because several
/// captures were merged. They end before the first search, so their flows stay whole.
const SWEEP: u32 = 10_000;

/// Everything a worker has except its decoder.
pub(crate) struct Pipeline {
    /// Exception policies.
    pub(crate) policies: Policies,
    pub(crate) flows: FlowTable<FlowExt>,
    pub(crate) stages: Stages,
    /// The verdict on the frame that is being decoded, collected from its packets. [`Worker::frame`] returns it. Code that
    /// has only [`Stages`], such as the end of a flow, cannot reach it.
    pub(crate) verdict: FrameVerdict,
}

/// The stages and what they share. They are separate from the flow table, so that they can be used while a flow is borrowed
/// from it.
pub(crate) struct Stages {
    /// IPS mode, inline or simulated.
    pub(crate) ips: bool,
    /// Firewall mode.
    pub(crate) firewall: bool,
    /// Policies for a parser that fails, copied from [`Pipeline::policies`] for code that has only the stages: for flows that
    /// were seen from their beginning, and for flows that were picked up midstream.
    pub(crate) error_policies: [Policy; 2],
    /// Datagrams with a wrong checksum are never parsed: inline, and with `-k all`.
    pub(crate) discards_wrong_datagrams: bool,
    pub(crate) stream: StreamEngine,
    pub(crate) detect: Option<Engine>,
    /// The rule engines of all tenants, and which one the current packet uses.
    pub(crate) engines: Engines,
    pub(crate) app: AppStage,
    pub(crate) outputs: Outputs,
    /// Scripts that write logs.
    pub(crate) scripts: OutputScripts,
    pub(crate) counters: Counters,
    pub(crate) scratch: log::Scratch,
    /// The texts of rules for events.
    pub(crate) texts: Arc<RuleTexts>,
    /// Whether an output wants the Ethernet addresses of flows.
    pub(crate) ethernet: bool,
    /// The failure of the pattern matcher was logged.
    told_of_search_error: bool,
    /// Bytes of stream data that alerts show.
    shown: usize,
    /// Packet time. It does not go back for packets that are slightly out of order, only for a jump.
    pub(crate) now: Time,
    /// Capture file being read.
    pub(crate) file: Option<String>,
    /// Alerts of the current capture file.
    pub(crate) file_alerts: u64,
    /// Connections that parsers expect.
    pub(crate) expected: expect::Expected,
    /// Hashes flows in the same way as the flow table.
    pub(crate) hasher: FlowHasher,
    /// Flows that the kernel bypasses, if kernel bypass is on.
    pub(crate) kernel: Option<Box<bypass::InKernel>>,
    /// The interfaces that the packets come from, in a live capture.
    pub(crate) captured: Option<Captured>,
    /// Verdicts, changed packets and answers that go back to the interface.
    pub(crate) wire: Option<Box<Wire>>,
    /// Reports connections that this worker's parsers expect to the other workers of the same capture.
    pub(crate) announce: Option<Announce>,
    /// Search results of other workers for this worker's packets.
    pub(crate) helped: Option<Rc<dyn SearchedAhead>>,
    /// Connections that a reset closed, which may go on.
    pub(crate) resets: resets::Resets,
    /// Orders the workers' access to shared state.
    order: Option<Arc<dyn PacketOrder>>,
    /// Final states of the TCP sessions that ended since the last count.
    ended_tcp: Vec<&'static str>,
}

/// The worker's own counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) ips: IpsCounters,
    pub(crate) policies: PolicyCounters,
    pub(crate) alerts: u64,
    /// Datagrams that were not parsed because their checksum is wrong.
    pub(crate) udp_invalid_checksum: u64,
    /// Most Ethernet addresses of a flow's client and server (`decoder.max_mac_addrs_src`, `_dst`).
    pub(crate) max_macs: [u64; 2],
}

impl Counters {
    fn note_macs(&mut self, macs: &[MacList; 2]) {
        for (max, list) in self.max_macs.iter_mut().zip(macs) {
            *max = (*max).max(list.src.len() as u64);
        }
    }
}

impl Worker {
    /// Processes one captured frame, and returns the verdict on it.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> FrameVerdict {
        margay_packet::fault::point("worker");
        self.pipeline.verdict = FrameVerdict::default();
        if let Some(wire) = &mut self.pipeline.stages.wire {
            wire.begin(frame.data);
        }
        self.unswept = self.unswept.saturating_add(1);
        self.decoder.decode(frame, &mut self.pipeline);
        let verdict = self.pipeline.verdict;
        if self.pipeline.stages.ips {
            self.pipeline.stages.counters.ips.count(verdict, self.pipeline.stages.firewall);
        }
        verdict
    }

    /// Records the verdict on the last frame, for the source to carry out.
    pub(crate) fn decide(&mut self, verdict: FrameVerdict) {
        if let Some(wire) = &mut self.pipeline.stages.wire {
            wire.decide(verdict);
        }
    }

    /// Takes the decisions on the frames of a batch. [`Worker::decided`] returns the buffer.
    pub(crate) fn decisions(&mut self) -> Decisions {
        self.pipeline.stages.wire.as_mut().map(|w| std::mem::take(&mut w.decisions)).unwrap_or_default()
    }

    /// Returns the buffer of decisions after they were carried out.
    pub(crate) fn decided(&mut self, mut decisions: Decisions) {
        if let Some(wire) = &mut self.pipeline.stages.wire {
            decisions.clear();
            wire.decisions = decisions;
        }
    }

    /// Called between batches. From time to time, it ends the flows that timed out. The next packet of such a flow would end
    /// it too, so this changes only the time of the end.
    pub(crate) fn expire(&mut self) {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        if self.unswept >= SWEEP || flows.emergency() {
            let now = stages.now;
            if flows.expire(now, 1024, &mut |flow, reason| stages.end_flow(flow, reason)) {
                self.unswept = 0;
            }
        }
        stages.tell_of_failed_searches();
        stages.end_batch();
        self.pipeline.count_ended();
    }

    /// Like [`Worker::expire`], for one of several workers. `now` is the time of the stream that all workers share. `others`
    /// counts the packets that went to other workers since the last call.
    pub(crate) fn expire_with(&mut self, now: Time, others: u64) {
        self.pipeline.stages.now = now;
        self.unswept = self.unswept.saturating_add(u32::try_from(others).unwrap_or(u32::MAX));
        self.expire();
    }

    /// Like [`Worker::expire`], for a live capture: every second, the worker ends the flows that timed out, at most `budget`
    /// of them in one call. `now` is the current time if no packet supplied one. Returns whether a second has passed.
    pub(crate) fn expire_live(&mut self, now: Option<Time>, budget: usize) -> bool {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        if let Some(now) = now
            && now > stages.now
        {
            stages.now = now;
        }
        let second = stages.now.secs();
        if second != self.swept || flows.emergency() {
            // The flows beyond the budget end after the next batch.
            let now = stages.now;
            if flows.expire(now, budget, &mut |flow, reason| stages.end_flow(flow, reason)) {
                self.swept = second;
            }
        }
        stages.tell_of_failed_searches();
        stages.end_batch();
        self.pipeline.count_ended();
        std::mem::replace(&mut self.told, second) != second
    }

    /// Whether [`Worker::expire_live`] left flows that timed out.
    pub(crate) fn has_flows_to_end(&self) -> bool {
        self.pipeline.stages.now.secs() != self.swept
    }

    /// Ends every flow at the end of the capture.
    pub(crate) fn finish(&mut self) {
        let Pipeline { flows, stages, .. } = &mut self.pipeline;
        flows.drain(&mut |flow, reason| stages.end_flow(flow, reason));
        stages.outputs.flush();
        stages.app.shared.files.sync();
        self.pipeline.count_ended();
    }
}

impl PacketSink for Pipeline {
    fn packet(&mut self, packet: &Packet<'_>) {
        if packet.time > self.stages.now || self.stages.now.micros_since(packet.time) > JUMP_BACK {
            self.stages.now = packet.time;
        }
        self.stages.at_packet(packet);
        if let L3::Arp { .. } = packet.l3 {
            self.stages.log_arp(packet);
        }
        // Packets inside this one were processed before it. The firewall has its own reasons, and a fragment that cannot carry a
        // replacement is dropped for that.
        let dropped = self.verdict.drop.is_some_and(|reason| reason != DropReason::NotReplaced);
        let inner_dropped = self.stages.ips && !self.stages.firewall && dropped;
        let mut fate = PacketVerdict { inner_dropped, ..PacketVerdict::default() };
        if packet.defrag_memcap_hit {
            let policy = self.policies.of(Condition::DefragMemcap);
            self.stages.apply(Condition::DefragMemcap, policy, packet, &mut fate, None);
        }
        if let Some(why) = packet.refused.filter(|_| self.stages.ips) {
            fate.drop = Some(match why {
                Refused::Datagram => DropReason::DatagramDrop,
                Refused::Unsound => DropReason::DefragError,
            });
        }
        let before =
            if self.stages.looks_before_flow() { self.stages.before_flow(packet, &mut fate) } else { BeforeFlow::Next };
        match before {
            BeforeFlow::Next => match self.flows.key(packet, 0) {
                Some(key) => self.in_flow(packet, &key, &mut fate),
                None => self.stages.inspect_alone(packet, &mut fate),
            },
            BeforeFlow::Untracked => self.stages.inspect_alone(packet, &mut fate),
            BeforeFlow::Dropped => {}
        }
        // A captured frame gets the strictest verdict of the packets it carried.
        self.verdict.add(&fate, packet.source);
        if (fate.reject || fate.rejected.is_some())
            && let Some(wire) = &mut self.stages.wire
        {
            wire.reject(packet, fate, self.stages.now);
        }
        self.stages.log_pcap(packet, self.verdict.pcap);
    }

    fn dropped(&mut self) -> bool {
        self.stages.ips && self.verdict.drop.is_some()
    }
}

impl Pipeline {
    /// Counts the final states of TCP sessions.
    fn count_ended(&mut self) {
        self.count_late();
        for name in self.stages.ended_tcp.drain(..) {
            if let Some(i) = TCP_STATES.iter().position(|s| *s == name) {
                self.flows.counters.tcp_end(i, false);
            }
        }
    }

    /// Processes a packet that belongs to a flow.
    fn in_flow(&mut self, packet: &Packet<'_>, key: &FlowKey, fate: &mut PacketVerdict) {
        let Pipeline { flows, stages, policies, .. } = self;
        let tenant = stages.engines.tenant();
        let found = flows.lookup(packet, key, || FlowExt::of(tenant), &mut |f, r| stages.end_flow(f, r));
        let (mut at, mut direction) = match found {
            Lookup::Found(at, d) => (at, d),
            Lookup::Created(at) => (at, Direction::ToServer),
            Lookup::Unrelated => return stages.inspect_alone(packet, fate),
            Lookup::NoMemory => {
                stages.apply(Condition::FlowMemcap, policies.of(Condition::FlowMemcap), packet, fate, None);
                return stages.inspect_alone(packet, fate);
            }
        };
        if flows.get(at).is_some_and(|f| f.core.over || stages.is_untracked(f))
            && let Some(new) = self.opened_again(packet, key, at, fate)
        {
            (at, direction) = (new, Direction::ToServer);
        }
        let Pipeline { flows, stages, .. } = self;
        let mut seen = tcp::Seen::default();
        let Some(flow) = flows.get_mut(at) else { return stages.inspect_alone(packet, fate) };
        stages.at_flow(flow);
        let core = &flow.core;
        let bypassed = matches!(core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed);
        let dropped = stages.ips && core.action == FlowAction::Drop;
        if stages.firewall
            && packet.is_tcp()
            && !bypassed
            && !dropped
            && core.action != FlowAction::Accept
            && let Some(flow) = flows.get_mut(at)
            && let Some(verdict) = stages.before_stream(packet, flow, direction)
        {
            let Some(flow) = flows.update(at, packet, key, direction) else { return };
            stages.log_anomalies(packet, Some(flow), &[]);
            stages.carry_out(packet, Some((flow, direction)), verdict, fate);
            return stages.log_drop(packet, Some((flow, direction)), *fate);
        }
        if packet.is_tcp() && !bypassed && !dropped {
            (at, direction) = self.tcp(packet, key, at, direction, fate, &mut seen);
        }
        let Pipeline { flows, stages, .. } = self;
        let Some(flow) = flows.update(at, packet, key, direction) else { return };
        if stages.ethernet
            && let Some(e) = packet.ethernet
        {
            let macs = flow.ext.macs.get_or_insert_default();
            macs[direction.index()].add(e.src);
            macs[direction.reverse().index()].add(e.dst);
            stages.counters.note_macs(macs);
        }
        if bypassed {
            fate.bypassed = true;
            if packet.is_tcp()
                && let Some(over) = stages.look_for_the_end(packet, flow, direction)
            {
                stages.over_in_kernel(&mut flow.core, at, over);
                flows.set_over(at, over);
            }
            return;
        }
        // The parsers get no datagrams of a dropped flow.
        if matches!(packet.l4, margay_packet::L4::Udp { .. }) && !dropped {
            seen.app_result = stages.feed_udp(flow, direction, packet);
            if seen.app_result.turn {
                flow.ext.turn_round();
                flows.swap(at);
                direction = direction.reverse();
                let Some(flow) = flows.get_mut(at) else { return };
                seen.app_result = stages.feed_udp(flow, direction, packet);
            }
            if let Some(proto) = seen.app_result.failed
                && let Some(flow) = flows.get_mut(at)
            {
                stages.parser_failed(proto, flow, fate, &mut seen, packet);
            }
        }
        if let Some(state) = seen.state {
            flows.set_state(at, state);
        }
        self.inspect_in_flow(packet, at, direction, &mut seen, fate);
    }

    /// Runs detection on a packet with a flow, applies the verdict, and writes the events.
    fn inspect_in_flow(
        &mut self,
        packet: &Packet<'_>,
        at: FlowRef,
        dir: Direction,
        seen: &mut tcp::Seen,
        fate: &mut PacketVerdict,
    ) {
        let Pipeline { flows, stages, .. } = self;
        let Some(flow) = flows.get_mut(at) else { return };
        // The capture log still has the packet that a rule passes, and nothing after it.
        fate.pcap.passed |= flow.core.action == FlowAction::Pass;
        // Inline, where the packet and the reassembled stream differ, the stream wins.
        let rewritten = stages.rewritten(packet, flow, dir, seen);
        // A packet that cannot be changed is dropped, but after inspection: the stream has its data, and may let the same pass
        // when it comes again.
        let mut unchangeable = None;
        if let (Some(copy), Some(wire)) = (&rewritten, &mut stages.wire)
            && wire.inline
            && !wire.rewrite(packet, copy)
        {
            // The packet would carry other data than was inspected.
            unchangeable = Some(DropReason::StreamError);
        }
        if seen.clear_urgent && !stages.wire.as_mut().is_none_or(|w| !w.inline || w.clear_urgent(packet)) {
            unchangeable = unchangeable.or(Some(DropReason::StreamUrgent));
        }
        let copy;
        let packet = match &rewritten {
            Some(data) => {
                copy = Packet { data, ..*packet };
                &copy
            }
            None => packet,
        };
        if stages.ips && flow.core.action == FlowAction::Drop && fate.drop.is_none() {
            fate.drop = Some(DropReason::of_flow(flow.ext.dropped_by));
        }
        // The firewall decides even about packets that an exception policy lets pass.
        let raw = |flow: &margay_flow::Flow<FlowExt>| flow.ext.tcp.as_deref().map_or(0, |t| t.raw_offset(dir));
        let looked = raw(flow);
        seen.encrypts = !seen.in_stream
            && flow.ext.app.as_deref().is_some_and(|a| a.wishes.no_payload && !a.encrypted)
            && flow.ext.tcp.as_deref().is_some_and(|t| t.raw_last(dir).is_some());
        let passes = (fate.pass || flow.core.action.is_unwatched(stages.ips)) && !stages.firewall;
        if fate.drop.is_none() && !passes {
            if seen.app_result.changing {
                stages.flush_changing(flow, dir);
            }
            stages.detect_in_flow(packet, flow, dir, seen, fate);
            if fate.drop.is_none() && !fate.pass {
                stages.flush_closed(flow, dir.reverse());
            }
        } else {
            if fate.drop.is_some_and(DropReason::is_of_stream) && !passes && !stages.firewall {
                stages.detect_refused(packet, flow, dir, seen, fate);
            }
            stages.frames_unwatched(flow);
            // Otherwise the data that no rule inspects would be kept for them.
            if passes
                && flow.core.action.is_unwatched(stages.ips)
                && let Some(tcp) = flow.ext.tcp.as_deref_mut().filter(|t| !t.raw_is_off())
            {
                tcp.raw_disable();
                stages.stream.account(tcp);
            }
        }
        fate.drop = fate.drop.or(unchangeable);
        fate.drop_with_inner();
        // This comes after detection, so that events show the bits that the packet set.
        stages.log_anomalies(packet, Some(flow), seen.events.as_slice());
        stages.log_stream(packet, flow, dir, seen);
        stages.log_recognition(packet, flow, seen.app_result.events);
        if seen.app_result.full && fate.drop.is_none() {
            stages.work_off(packet, flow, dir, seen, fate);
        }
        if fate.drop.is_some() {
            stages.log_drop(packet, Some((flow, dir)), *fate);
        }
        stages.log_frames(packet, flow, dir, false);
        let asked = seen.in_stream || seen.encrypts || raw(flow) > looked;
        stages.end_inspection(flow, asked.then_some(dir));
        stages.log_app(packet, flow, false, fate.inspected);
        stages.shrink_closed(flow);
        stages.script_packet(packet, Some(flow));
        fate.pcap.alerted |= flow.core.alerted;
        if stages.outputs.holds_packets() {
            fate.pcap.flow = Some(flow.core.id);
            fate.pcap.has_data = matches!(packet.l4, margay_packet::L4::Tcp { .. }) && !packet.payload().is_empty();
        }
        // Later packets of a dropped flow are processed only far enough to drop them.
        let dropped = stages.ips && flow.core.action == FlowAction::Drop;
        if dropped {
            stages.discard_streams(flow);
        } else if fate.bypass || seen.bypass || seen.app_result.bypass {
            fate.bypassed = true;
            let over = closing::note_known_end(flow, packet.time);
            let state = if over { FlowState::LocalBypassed } else { stages.bypass(&flow.core, at) };
            // Passive, the end of the flow inspects the rest of its data, except that of a passed flow.
            if stages.ips || flow.core.action.is_unwatched(stages.ips) {
                stages.discard_streams(flow);
            }
            flows.set_state(at, state);
            flows.set_over(at, over);
        }
        if let Some(data) = rewritten {
            stages.scratch.rewritten = data;
        }
        if seen.state == Some(FlowState::Closed) {
            self.note_reset(at);
        }
    }
}

impl Stages {
    /// An empty state without rules. [`Stages::install`] adds the rules.
    pub(crate) fn new(ips: bool, stream: StreamEngine, app: AppStage, outputs: Outputs) -> Stages {
        Stages {
            ips,
            firewall: false,
            error_policies: [Policy::Ignore; 2],
            discards_wrong_datagrams: ips,
            stream,
            detect: None,
            engines: Engines::default(),
            app,
            told_of_search_error: false,
            shown: outputs.stream_payload(),
            outputs,
            scripts: OutputScripts::default(),
            counters: Counters::default(),
            scratch: log::Scratch::default(),
            texts: Arc::default(),
            ethernet: false,
            now: Time::default(),
            file: None,
            file_alerts: 0,
            expected: expect::Expected::default(),
            hasher: FlowHasher::default(),
            kernel: None,
            captured: None,
            wire: None,
            announce: None,
            helped: None,
            resets: resets::Resets::default(),
            order: None,
            ended_tcp: Vec::new(),
        }
    }

    /// Flushes the output of a batch of packets.
    #[inline]
    pub(crate) fn end_batch(&mut self) {
        self.outputs.end_batch();
        self.app.shared.files.end_batch();
    }

    /// Runs detection on a packet without a flow, and writes its events.
    fn inspect_alone(&mut self, packet: &Packet<'_>, fate: &mut PacketVerdict) {
        self.at_packet(packet);
        self.log_anomalies(packet, None, &[]);
        if fate.drop.is_none() && (self.firewall || !fate.pass) {
            self.detect_alone(packet, fate);
        }
        fate.drop_with_inner();
        if fate.drop.is_some() {
            self.log_drop(packet, None, *fate);
        }
        self.script_packet(packet, None);
    }

    /// Calls the scripts that log packets.
    fn script_packet(&mut self, packet: &Packet<'_>, flow: Option<&margay_flow::Flow<FlowExt>>) {
        if self.scripts.wants(Occasion::Packet) {
            let app = flow.and_then(|f| f.ext.app.as_deref());
            let context = ScriptContext::new(Some(packet), flow.map(|f| &f.core), app);
            self.scripts.packet(self.detect.as_ref().map(|d| &*d.0), context);
        }
    }
}
