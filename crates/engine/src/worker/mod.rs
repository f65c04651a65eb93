//! One worker: a packet's way from the capture to the events.
//!
//! [`Worker`] owns all that a packet touches. The decoder stands beside the rest ([`Lane`]), since it calls back into it
//! with each packet it finds.

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
mod fate;
mod fileinfo;
mod firewall;
mod flow_ext;
mod frames;
mod ips;
mod log;
pub(crate) mod moving;
mod policy;
mod scripts;
mod stream_log;
mod tcp;
mod warm;
pub(crate) mod wire;

use std::sync::Arc;

use margay_capture::live::Decisions;
use margay_detect::InOrder;
use margay_flow::{
    Direction, FlowAction, FlowHasher, FlowKey, FlowRef, FlowState, FlowTable, JUMP_BACK, Lookup, TCP_STATES,
};
use margay_output::Outputs;
use margay_packet::{Decoder, Frame, L3, Packet, PacketSink, Refused, Time};
use margay_stream::StreamEngine;

use crate::exception::{Condition, Policies, Policy, PolicyCounters};
use crate::parallel::ahead::Helped;
pub(crate) use app::AppLane;
pub(crate) use captured::{Announce, Captured, End};
use engines::{Engine, Engines};
pub(crate) use fate::{DropReason, Fate, FrameVerdict};
use firewall::BeforeFlow;
pub(crate) use flow_ext::FlowExt;
pub(crate) use ips::IpsCounters;
pub(crate) use log::RuleTexts;
use scripts::Scene;
pub(crate) use scripts::{Occasion, OutputScripts, ScriptFiles};
use wire::Wire;

/// One worker.
pub(crate) struct Worker {
    pub(crate) decoder: Decoder,
    pub(crate) lane: Lane,
    /// Frames since silent flows were looked for.
    pub(crate) unswept: u32,
    /// Second of packet time in which they were last looked for, of a live capture.
    pub(crate) swept: i64,
    /// The last second of which was said that it went by, live.
    pub(crate) told: i64,
}

/// Frames from one look for silent flows to the next. Short captures are most often those whose time goes back and forth
/// (several that were put together): their flows are left whole.
const SWEEP: u32 = 10_000;

/// All of a worker but its decoder.
pub(crate) struct Lane {
    /// Policies for what cannot be seen.
    pub(crate) policies: Policies,
    pub(crate) flows: FlowTable<FlowExt>,
    pub(crate) rest: Rest,
    /// The verdict on the frame that is being decoded, collected from its packets. [`Worker::frame`] returns it; nothing
    /// that has only [`Rest`], such as the end of a flow, can reach it.
    pub(crate) verdict: FrameVerdict,
}

/// What may be needed while a flow is borrowed.
pub(crate) struct Rest {
    /// Inline, or as if.
    pub(crate) ips: bool,
    /// Firewall mode.
    pub(crate) firewall: bool,
    /// What happens where a parser gives up: those of [`Lane::policies`], for where only this is at hand; of flows whose
    /// beginning was seen, and of those that were picked up midstream.
    pub(crate) error_policies: [Policy; 2],
    /// A datagram with a wrong checksum is never parsed: inline, and with `-k all`.
    pub(crate) discards_wrong_datagrams: bool,
    pub(crate) stream: StreamEngine,
    pub(crate) detect: Option<Engine>,
    /// Whose rules these are, and those of others.
    pub(crate) engines: Engines,
    pub(crate) app: AppLane,
    pub(crate) outputs: Outputs,
    /// Scripts that write logs.
    pub(crate) scripts: OutputScripts,
    pub(crate) counters: Counters,
    pub(crate) scratch: log::Scratch,
    /// Of each rule, what events show.
    pub(crate) texts: Arc<RuleTexts>,
    /// Whether an output wants the Ethernet addresses of flows.
    pub(crate) ethernet: bool,
    /// It was said that the pattern matcher failed.
    told_of_search_error: bool,
    /// Bytes of a stream that alerts show.
    shown: usize,
    /// Packet time: it stands still where packets are out of order, and goes back where it jumps.
    pub(crate) now: Time,
    /// Capture file being read.
    pub(crate) file: Option<String>,
    /// Alerts of the current capture file.
    pub(crate) file_alerts: u64,
    /// Connections that parsers announced.
    pub(crate) expected: expect::Expected,
    /// Hashes flows as the flow table does.
    pub(crate) hasher: FlowHasher,
    /// Flows that are bypassed in the kernel, where that is wanted.
    pub(crate) kernel: Option<Box<bypass::InKernel>>,
    /// Where its packets come from, if that is an interface.
    pub(crate) captured: Option<Captured>,
    /// What goes back there.
    pub(crate) wire: Option<Box<Wire>>,
    /// Tells the workers of the same stream of packets of connections that this one's parsers announced.
    pub(crate) announce: Option<Announce>,
    /// What they found in the packets of this one.
    pub(crate) helped: Option<Helped>,
    /// Whose turn it is among them.
    order: Option<Arc<dyn InOrder>>,
    /// States of the TCP sessions that ended since they were counted.
    ended_tcp: Vec<&'static str>,
}

/// What the worker itself counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) ips: IpsCounters,
    pub(crate) policies: PolicyCounters,
    pub(crate) alerts: u64,
    /// Datagrams that no parser was given, for their checksum is wrong.
    pub(crate) udp_invalid_checksum: u64,
}

impl Worker {
    /// Takes one captured frame all the way, and returns the verdict on it.
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) -> FrameVerdict {
        margay_packet::fault::point("worker");
        self.lane.verdict = FrameVerdict::default();
        if let Some(wire) = &mut self.lane.rest.wire {
            wire.begin(frame.data);
        }
        self.unswept = self.unswept.saturating_add(1);
        self.decoder.decode(frame, &mut self.lane);
        let verdict = self.lane.verdict;
        if self.lane.rest.ips {
            self.lane.rest.counters.ips.count(verdict, self.lane.rest.firewall);
        }
        verdict
    }

    /// Notes for the source what becomes of the frame that was just taken.
    pub(crate) fn decide(&mut self, verdict: FrameVerdict) {
        if let Some(wire) = &mut self.lane.rest.wire {
            wire.decide(verdict);
        }
    }

    /// What was decided of the frames of a batch, and is to be answered; [`Worker::decided`] takes it back.
    pub(crate) fn decisions(&mut self) -> Decisions {
        self.lane.rest.wire.as_mut().map(|w| std::mem::take(&mut w.decisions)).unwrap_or_default()
    }

    /// Gives back what was decided: it was carried out.
    pub(crate) fn decided(&mut self, mut decisions: Decisions) {
        if let Some(wire) = &mut self.lane.rest.wire {
            decisions.clear();
            wire.decisions = decisions;
        }
    }

    /// Called between batches: from time to time ends the flows that were silent for too long. A packet of such a flow
    /// ends it too, so that this changes no more than when.
    pub(crate) fn expire(&mut self) {
        let Lane { flows, rest, .. } = &mut self.lane;
        if self.unswept >= SWEEP || flows.emergency() {
            let now = rest.now;
            if flows.expire(now, 1024, &mut |flow, reason| rest.end_flow(flow, reason)) {
                self.unswept = 0;
            }
        }
        rest.tell_of_failed_searches();
        rest.end_batch();
        self.lane.count_ended();
    }

    /// As [`Worker::expire`], of one of several workers: `now` is the time of the stream that all have their packets from, of
    /// which `others` went to others since this was last called.
    pub(crate) fn expire_with(&mut self, now: Time, others: u64) {
        self.lane.rest.now = now;
        self.unswept = self.unswept.saturating_add(u32::try_from(others).unwrap_or(u32::MAX));
        self.expire();
    }

    /// As [`Worker::expire`], of packets that come as time goes by: flows that are silent for too long are ended every second
    /// of it, at most `budget` now. `now` is the time where no packets came that would tell. Returns whether a second went by.
    pub(crate) fn expire_live(&mut self, now: Option<Time>, budget: usize) -> bool {
        let Lane { flows, rest, .. } = &mut self.lane;
        if let Some(now) = now
            && now > rest.now
        {
            rest.now = now;
        }
        let second = rest.now.secs();
        if second != self.swept || flows.emergency() {
            // What is left over is looked at after the next batch.
            let now = rest.now;
            if flows.expire(now, budget, &mut |flow, reason| rest.end_flow(flow, reason)) {
                self.swept = second;
            }
        }
        rest.tell_of_failed_searches();
        rest.end_batch();
        self.lane.count_ended();
        std::mem::replace(&mut self.told, second) != second
    }

    /// Whether [`Worker::expire_live`] left flows over that have to be ended.
    pub(crate) fn has_flows_to_end(&self) -> bool {
        self.lane.rest.now.secs() != self.swept
    }

    /// Ends every flow: the capture is at its end.
    pub(crate) fn finish(&mut self) {
        let Lane { flows, rest, .. } = &mut self.lane;
        flows.drain(&mut |flow, reason| rest.end_flow(flow, reason));
        rest.outputs.flush();
        rest.app.shared.files.sync();
        self.lane.count_ended();
    }
}

impl PacketSink for Lane {
    fn packet(&mut self, packet: &Packet<'_>) {
        if packet.time > self.rest.now || self.rest.now.micros_since(packet.time) > JUMP_BACK {
            self.rest.now = packet.time;
        }
        self.rest.at_packet(packet);
        if let L3::Arp { .. } = packet.l3 {
            self.rest.log_arp(packet);
        }
        let mut fate = Fate::default();
        if packet.defrag_memcap_hit {
            let policy = self.policies.of(Condition::DefragMemcap);
            self.rest.apply(Condition::DefragMemcap, policy, &mut fate, None);
        }
        if let Some(why) = packet.refused.filter(|_| self.rest.ips) {
            fate.drop = Some(match why {
                Refused::Datagram => DropReason::DatagramDrop,
                Refused::Unsound => DropReason::DefragError,
            });
        }
        let before =
            if self.rest.looks_before_flow() { self.rest.before_flow(packet, &mut fate) } else { BeforeFlow::Next };
        match before {
            BeforeFlow::Next => match self.flows.key(packet, 0) {
                Some(key) => self.in_flow(packet, &key, &mut fate),
                None => self.rest.inspect_alone(packet, &mut fate),
            },
            BeforeFlow::Untracked => self.rest.inspect_alone(packet, &mut fate),
            BeforeFlow::Dropped => {}
        }
        // The captured frame shares the fate of the worst of what it carried.
        self.verdict.add(&fate, packet.source);
        if (fate.reject || fate.rejected.is_some())
            && let Some(wire) = &mut self.rest.wire
        {
            wire.reject(packet, fate, self.rest.now);
        }
        self.rest.log_pcap(packet, self.verdict.pcap);
    }

    fn dropped(&mut self) -> bool {
        self.rest.ips && self.verdict.drop.is_some()
    }
}

impl Lane {
    /// Counts the states in which TCP sessions ended.
    fn count_ended(&mut self) {
        self.count_late();
        for name in self.rest.ended_tcp.drain(..) {
            if let Some(i) = TCP_STATES.iter().position(|s| *s == name) {
                self.flows.counters.tcp_end(i, false);
            }
        }
    }

    /// A packet that belongs to a flow.
    fn in_flow(&mut self, packet: &Packet<'_>, key: &FlowKey, fate: &mut Fate) {
        let Lane { flows, rest, policies, .. } = self;
        let tenant = rest.engines.tenant();
        let found = flows.lookup(packet, key, || FlowExt::of(tenant), &mut |f, r| rest.end_flow(f, r));
        let (mut at, mut direction) = match found {
            Lookup::Found(at, d) => (at, d),
            Lookup::Created(at) => (at, Direction::ToServer),
            Lookup::Unrelated => return rest.inspect_alone(packet, fate),
            Lookup::NoMemory => {
                rest.apply(Condition::FlowMemcap, policies.of(Condition::FlowMemcap), fate, None);
                return rest.inspect_alone(packet, fate);
            }
        };
        if flows.get(at).is_some_and(|f| f.core.over)
            && let Some(new) = self.opened_again(packet, key, at, fate)
        {
            (at, direction) = (new, Direction::ToServer);
        }
        let Lane { flows, rest, .. } = self;
        let mut seen = tcp::Seen::default();
        let Some(flow) = flows.get_mut(at) else { return rest.inspect_alone(packet, fate) };
        rest.at_flow(flow);
        let core = &flow.core;
        let bypassed = matches!(core.state, FlowState::LocalBypassed | FlowState::CaptureBypassed);
        let dropped = rest.ips && core.action == FlowAction::Drop;
        if rest.firewall
            && packet.is_tcp()
            && !bypassed
            && !dropped
            && core.action != FlowAction::Accept
            && let Some(flow) = flows.get_mut(at)
            && let Some(verdict) = rest.before_stream(packet, flow, direction)
        {
            let Some(flow) = flows.update(at, packet, key, direction) else { return };
            rest.log_anomalies(packet, Some(flow), &[]);
            rest.carry_out(packet, Some((flow, direction)), verdict, fate);
            return rest.log_drop(packet, Some((flow, direction)), *fate);
        }
        if packet.is_tcp() && !bypassed && !dropped {
            (at, direction) = self.tcp(packet, key, at, direction, fate, &mut seen);
        }
        let Lane { flows, rest, .. } = self;
        let Some(flow) = flows.update(at, packet, key, direction) else { return };
        if rest.ethernet
            && let Some(e) = packet.ethernet
        {
            let macs = flow.ext.macs.get_or_insert_default();
            macs[direction.index()].add(e.src);
            macs[direction.reverse().index()].add(e.dst);
        }
        if bypassed {
            fate.bypassed = true;
            if packet.is_tcp()
                && let Some(over) = rest.look_for_the_end(packet, flow, direction)
            {
                rest.over_in_kernel(&mut flow.core, at, over);
                flows.set_over(at, over);
            }
            return;
        }
        // Nobody gets the datagrams of a flow that is dropped.
        if matches!(packet.l4, margay_packet::L4::Udp { .. }) && !dropped {
            seen.heard = rest.feed_udp(flow, direction, packet);
            if seen.heard.turn {
                flow.ext.turn_round();
                flows.swap(at);
                direction = direction.reverse();
                let Some(flow) = flows.get_mut(at) else { return };
                seen.heard = rest.feed_udp(flow, direction, packet);
            }
            if let Some(proto) = seen.heard.failed
                && let Some(flow) = flows.get_mut(at)
            {
                rest.parser_failed(proto, flow, fate, &mut seen);
            }
        }
        if let Some(state) = seen.state {
            flows.set_state(at, state);
        }
        self.inspect_in_flow(packet, at, direction, &mut seen, fate);
    }

    /// Detection, verdict and events of a packet with a flow.
    fn inspect_in_flow(
        &mut self,
        packet: &Packet<'_>,
        at: FlowRef,
        dir: Direction,
        seen: &mut tcp::Seen,
        fate: &mut Fate,
    ) {
        let Lane { flows, rest, .. } = self;
        let Some(flow) = flows.get_mut(at) else { return };
        // Inline, what the stream has wins over what the packet says.
        let rewritten = rest.rewritten(packet, flow, dir, seen);
        if let (Some(copy), Some(wire)) = (&rewritten, &mut rest.wire)
            && wire.inline
            && !wire.rewrite(packet, copy)
        {
            // It would say something else than what was inspected.
            fate.drop = fate.drop.or(Some(DropReason::StreamError));
        }
        if seen.clear_urgent && !rest.wire.as_mut().is_none_or(|w| !w.inline || w.clear_urgent(packet)) {
            fate.drop = fate.drop.or(Some(DropReason::StreamUrgent));
        }
        let copy;
        let packet = match &rewritten {
            Some(data) => {
                copy = Packet { data, ..*packet };
                &copy
            }
            None => packet,
        };
        if rest.ips && flow.core.action == FlowAction::Drop && fate.drop.is_none() {
            fate.drop = Some(DropReason::of_flow(flow.ext.dropped_by));
        }
        // The firewall has its say about what exception policies let pass as well.
        let raw = |flow: &margay_flow::Flow<FlowExt>| flow.ext.tcp.as_deref().map_or(0, |t| t.raw_offset(dir));
        let looked = raw(flow);
        let passes = (fate.pass || flow.core.action.is_unwatched(rest.ips)) && !rest.firewall;
        if fate.drop.is_none() && !passes {
            rest.detect_in_flow(packet, flow, dir, seen, fate);
            if fate.drop.is_none() && !fate.pass {
                rest.flush_closed(flow, dir.reverse());
            }
        } else {
            rest.frames_unwatched(flow);
        }
        // Behind detection: events show the bits that the packet set.
        rest.log_anomalies(packet, Some(flow), seen.events.as_slice());
        rest.log_stream(packet, flow, dir, seen);
        rest.log_recognition(packet, flow, seen.heard.events);
        if seen.heard.full && fate.drop.is_none() {
            rest.work_off(packet, flow, dir, seen, fate);
        }
        if fate.drop.is_some() {
            rest.log_drop(packet, Some((flow, dir)), *fate);
        }
        rest.log_frames(packet, flow, dir, false);
        let asked = seen.in_stream || raw(flow) > looked;
        rest.end_inspection(flow, asked.then_some(dir));
        rest.log_app(packet, flow, false, fate.inspected);
        rest.shrink_closed(flow);
        rest.script_packet(packet, Some(flow));
        fate.pcap.alerted |= flow.core.alerted;
        fate.pcap.passed |= flow.core.action == FlowAction::Pass;
        // What follows of a flow that is dropped is looked at as far as it takes to drop it.
        let dropped = rest.ips && flow.core.action == FlowAction::Drop;
        if (fate.bypass || seen.bypass || seen.heard.bypass) && !dropped {
            fate.bypassed = true;
            let state = rest.bypass(&flow.core, at);
            flows.set_state(at, state);
        }
        if let Some(data) = rewritten {
            rest.scratch.rewritten = data;
        }
    }
}

impl Rest {
    /// Nothing seen yet, and no rules: [`Rest::install`] brings them.
    pub(crate) fn new(ips: bool, stream: StreamEngine, app: AppLane, outputs: Outputs) -> Rest {
        Rest {
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
            order: None,
            ended_tcp: Vec::new(),
        }
    }

    /// Hands over what is to be written of a batch of packets.
    #[inline]
    pub(crate) fn end_batch(&mut self) {
        self.outputs.end_batch();
        self.app.shared.files.end_batch();
    }

    /// Detection and events of a packet that has no flow.
    fn inspect_alone(&mut self, packet: &Packet<'_>, fate: &mut Fate) {
        self.at_packet(packet);
        self.log_anomalies(packet, None, &[]);
        if fate.drop.is_none() && (self.firewall || !fate.pass) {
            self.detect_alone(packet, fate);
        }
        if fate.drop.is_some() {
            self.log_drop(packet, None, *fate);
        }
        self.script_packet(packet, None);
    }

    /// Calls the scripts that log packets.
    fn script_packet(&mut self, packet: &Packet<'_>, flow: Option<&margay_flow::Flow<FlowExt>>) {
        if self.scripts.wants(Occasion::Packet) {
            let app = flow.and_then(|f| f.ext.app.as_deref());
            let scene = Scene::new(Some(packet), flow.map(|f| &f.core), app);
            self.scripts.packet(self.detect.as_ref().map(|d| &*d.0), scene);
        }
    }
}
