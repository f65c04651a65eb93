//! One worker: a packet's way from the capture to the events.
//!
//! [`Worker`] owns all that a packet touches. The decoder stands beside the rest ([`Lane`]), since it calls back into it
//! with each packet it finds.

mod app;
mod app_memory;
mod burst;
pub(crate) mod bypass;
mod closing;
mod detection;
mod end;
pub(crate) mod engines;
mod expect;
mod fileinfo;
mod firewall;
mod frames;
mod ips;
mod log;
pub(crate) mod moving;
mod scripts;
mod stream_log;
mod tcp;
mod warm;
pub(crate) mod wire;

use std::sync::Arc;

use margay_capture::live::{Decisions, LiveCounters};
use margay_detect::{InOrder, RulesMark};
use margay_flow::{
    Direction, FlowAction, FlowHasher, FlowKey, FlowRef, FlowState, FlowTable, JUMP_BACK, Lookup, TCP_STATES,
};
use margay_output::Outputs;
use margay_output::pcaplog::PacketFate;
use margay_packet::{Decoder, Frame, L3, Packet, PacketSink, PacketSource, Refused, Time, Vlans};
use margay_stream::{StreamEngine, TcpSession};

use crate::exception::{Condition, Policies, Policy, PolicyCounters};
use crate::parallel::ahead::Helped;
pub(crate) use app::AppLane;
use engines::{Engine, Engines};
use firewall::{BeforeFlow, FlowDropBy};
pub(crate) use ips::IpsCounters;
pub(crate) use log::RuleTexts;
use scripts::Scene;
pub(crate) use scripts::{Occasion, OutputScripts, ScriptFiles};
use wire::Wire;

/// What the engine keeps with a flow: first what every packet touches, which shares a cache line with the end of the flow's own
/// record.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FlowExt {
    /// The TCP session, from the first packet that made one.
    pub(crate) tcp: Option<Box<TcpSession>>,
    /// The application layer, from the first data on.
    pub(crate) app: Option<Box<app::FlowApp>>,
    /// The rules that last looked at it: what they left is in their numbers.
    rules: RulesMark,
    /// When rules that ask for its protocol alone are due.
    protocol_rules: detection::ProtocolRules,
    /// Whose it is.
    tenant: u32,
    /// What the checksums of its datagrams were, by direction.
    checksums: [app::Checksums; 2],
    /// Who dropped it, where it is dropped.
    dropped_by: FlowDropBy,
    /// Whether a drop was logged, by direction.
    drop_logged: [bool; 2],
    /// What was seen of its end while it is bypassed.
    pub(crate) closing: Option<Box<closing::Closing>>,
    /// Exception policies that took effect.
    exceptions: Option<Box<Exceptions>>,
    /// Ethernet addresses, where an output wants them: to the server and to the client.
    pub(crate) macs: Option<Box<[MacList; 2]>>,
    /// Number of the flow that announced this one.
    pub(crate) parent: Option<u64>,
}

/// Exception policies that took effect for a flow, each once.
#[derive(Debug, Default)]
struct Exceptions(Vec<(Condition, Policy)>);

// A million idle flows should not take more than 400 MB with what they are found by.
const _: () = assert!(size_of::<margay_flow::Flow<FlowExt>>() <= 320);

/// Ethernet addresses of one side of a flow, most ten.
#[derive(Debug, Default)]
pub(crate) struct MacList {
    pub(crate) src: Vec<[u8; 6]>,
}

const MACS_MAX: usize = 10;

impl FlowExt {
    /// Of a new flow of that tenant.
    fn of(tenant: u32) -> FlowExt {
        FlowExt { tenant, ..FlowExt::default() }
    }

    /// Notes for the flow's record that an exception policy took effect.
    fn note_exception(&mut self, condition: Condition, policy: Policy) {
        let list = &mut self.exceptions.get_or_insert_default().0;
        if !list.contains(&(condition, policy)) {
            list.push((condition, policy));
        }
    }

    /// The exception policies that took effect.
    pub(crate) fn exceptions(&self) -> &[(Condition, Policy)] {
        self.exceptions.as_ref().map_or(&[], |e| &e.0)
    }

    /// The flow was turned round.
    fn turn_round(&mut self) {
        if let Some(tcp) = &mut self.tcp {
            tcp.turn_round();
        }
        if let Some(app) = &mut self.app {
            app.turn_round();
        }
        if let Some(macs) = &mut self.macs {
            macs.swap(0, 1);
        }
        self.drop_logged.swap(0, 1);
    }
}

impl MacList {
    fn add(&mut self, mac: [u8; 6]) {
        if self.src.len() < MACS_MAX && !self.src.contains(&mac) {
            self.src.push(mac);
        }
    }
}

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// A rule of the detection engine.
    Rules,
    /// Its flow is dropped.
    FlowDrop,
    /// An exception policy.
    Exception(Condition),
    /// The stream engine found it invalid.
    StreamError,
    /// Urgent data that is not allowed.
    StreamUrgent,
    /// A rate filter.
    Threshold,
    /// The firewall.
    Firewall(margay_detect::DropReason),
    /// The firewall dropped its flow.
    FirewallFlowDrop,
    /// An exception policy dropped its flow.
    ExceptionFlowDrop,
    /// A fragment of a datagram of which nothing more is let through.
    DatagramDrop,
    /// A fragment that does not fit others of its datagram.
    DefragError,
    /// It could not be sent on with what a rule has put in.
    NotReplaced,
}

impl DropReason {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            DropReason::Rules => "rules",
            DropReason::FlowDrop => "flow drop",
            DropReason::Exception(c) => c.drop_reason(),
            DropReason::StreamError => "stream error",
            DropReason::StreamUrgent => "stream urgent",
            DropReason::Threshold => "threshold detection_filter",
            DropReason::Firewall(reason) => reason.name(),
            DropReason::FirewallFlowDrop => "firewall flow drop",
            DropReason::ExceptionFlowDrop => "exception policy flow drop",
            DropReason::DatagramDrop => "datagram drop",
            DropReason::DefragError => "defrag error",
            DropReason::NotReplaced => "not replaced",
        }
    }

    /// Of a packet whose flow is dropped.
    const fn of_flow(by: FlowDropBy) -> DropReason {
        match by {
            FlowDropBy::Rules => DropReason::FlowDrop,
            FlowDropBy::Firewall => DropReason::FirewallFlowDrop,
            FlowDropBy::Exception => DropReason::ExceptionFlowDrop,
        }
    }
}

/// What becomes of a packet: the result of every stage that looked at it. It belongs to this packet and its flow alone;
/// a packet that is made up at the end of a flow has its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fate {
    /// Dropped, and why.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// A pass rule or policy let it through.
    pub(crate) pass: bool,
    /// Who is to be answered.
    pub(crate) rejected: Option<margay_detect::Reject>,
    /// How they are, where packets are sent at all.
    pub(crate) answers: &'static [&'static str],
    /// The rule that dropped it.
    pub(crate) dropped_by: Option<u32>,
    /// The bits of its mark that a rule sets, and which they are.
    pub(crate) mark: Option<(u32, u32)>,
    /// A rule asks for its flow to be bypassed.
    pub(crate) bypass: bool,
    /// Its flow is bypassed.
    pub(crate) bypassed: bool,
    /// Rules inspected it: variables that they captured belong to its events.
    pub(crate) inspected: bool,
    /// What decides whether the capture log keeps it.
    pub(crate) pcap: PacketFate,
}

/// The verdict on a captured frame: what the packets that it carried come to together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameVerdict {
    /// Dropped, and why: the first reason of any of its packets.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// The bits of its mark that a rule sets, and which they are: those of the last packet that has any.
    pub(crate) mark: Option<(u32, u32)>,
    /// The flow of the frame itself, not of a packet inside it, is bypassed.
    pub(crate) bypassed: bool,
    /// What decides whether the capture log keeps it.
    pub(crate) pcap: PacketFate,
}

impl Fate {
    /// Takes in what rules decided about more of what the packet brought.
    fn add(&mut self, more: Fate) {
        self.drop = self.drop.or(more.drop);
        self.reject |= more.reject;
        self.pass |= more.pass;
        if self.rejected.is_none() {
            (self.rejected, self.answers) = (more.rejected, more.answers);
        }
        self.dropped_by = self.dropped_by.or(more.dropped_by);
        self.mark = more.mark.or(self.mark);
        self.bypass |= more.bypass;
        self.inspected |= more.inspected;
        self.pcap.add(more.pcap);
    }
}

impl FrameVerdict {
    /// Why the frame is dropped, as `drop` events name it.
    pub(crate) fn drop_reason(&self) -> Option<&'static str> {
        self.drop.map(DropReason::text)
    }

    /// Takes in what one of the frame's packets came to.
    #[inline]
    fn add(&mut self, fate: &Fate, source: PacketSource) {
        self.drop = self.drop.or(fate.drop);
        self.reject |= fate.reject;
        self.mark = fate.mark.or(self.mark);
        self.bypassed |= fate.bypassed && source == PacketSource::Wire;
        self.pcap.add(fate.pcap);
    }
}

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

/// Of a worker whose packets come from an interface.
pub(crate) struct Captured {
    /// The interfaces: one, or the two that are bridged.
    pub(crate) ends: Vec<End>,
    /// The thread, as statistics name it.
    pub(crate) thread: String,
    /// The names of its source's counters.
    pub(crate) counters: crate::live::medium::Counters,
    /// Tells the other workers of connections that this one's parsers announced.
    pub(crate) announce: Option<Announce>,
}

/// An interface that a worker's packets come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct End {
    pub(crate) interface: String,
    /// What came, and was lost on the way, when that was last asked for.
    pub(crate) live: LiveCounters,
    /// Frames that were decoded.
    pub(crate) decoded: u64,
    /// TCP packets with a wrong checksum.
    pub(crate) invalid_checksums: u64,
}

/// Tells other workers of connections that a flow announced.
pub(crate) type Announce = Box<dyn FnMut(&[margay_app::expect::Expect], Vlans, Time) + Send>;

impl Captured {
    /// Gives its counters in the order they are shown: Suricata's, then our own.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        let mut c = LiveCounters::default();
        self.ends.iter().for_each(|e| c.add(&e.live));
        f("capture.kernel_packets", c.kernel_packets);
        f("capture.kernel_drops", c.kernel_drops);
        f("capture.errors", c.errors);
        (self.counters)(&c, f);
    }

    /// Notes that a batch of one of the interfaces was inspected: so many frames, and so many of them with wrong checksums.
    pub(crate) fn inspected(&mut self, end: usize, decoded: u64, invalid_checksums: u64) {
        if let Some(e) = self.ends.get_mut(end) {
            e.decoded += decoded;
            e.invalid_checksums += invalid_checksums;
        }
    }
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
            if seen.heard.changing {
                rest.flush_changing(flow, dir);
            }
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

    /// The policy for a parser that gives up on a flow.
    fn error_policy(&self, flow: &margay_flow::Flow<FlowExt>) -> Policy {
        let midstream = flow.ext.tcp.as_ref().is_some_and(|s| s.is_midstream());
        self.error_policies[usize::from(midstream)]
    }

    /// A parser gave up on a flow with this packet's data: applies `app-layer.error-policy`.
    pub(super) fn parser_failed(
        &mut self,
        proto: margay_app::AppProto,
        flow: &mut margay_flow::Flow<FlowExt>,
        fate: &mut Fate,
        seen: &mut tcp::Seen,
    ) {
        let policy = self.error_policy(flow);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        self.apply(Condition::AppLayerError, policy, fate, Some(flow));
        seen.bypass |= policy == Policy::Bypass;
    }

    /// A parser gave up on a flow with what was left of its stream when it ended: there is no packet any more to drop or pass.
    fn parser_failed_at_end(&mut self, proto: margay_app::AppProto, flow: &mut margay_flow::Flow<FlowExt>) {
        let policy = self.error_policy(flow);
        self.counters.policies.count(Condition::AppLayerError, policy);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        flow.ext.note_exception(Condition::AppLayerError, policy);
    }

    /// Applies an exception policy to a packet and, where there is one, its flow.
    fn apply(
        &mut self,
        condition: Condition,
        policy: Policy,
        fate: &mut Fate,
        flow: Option<&mut margay_flow::Flow<FlowExt>>,
    ) {
        self.counters.policies.count(condition, policy);
        match policy {
            Policy::Ignore => {}
            Policy::DropPacket | Policy::DropFlow | Policy::Reject => {
                // Elsewhere nothing can be dropped, and what still reaches its end is inspected.
                if self.ips {
                    fate.drop = Some(DropReason::Exception(condition));
                }
                fate.reject |= policy == Policy::Reject;
            }
            Policy::PassPacket | Policy::PassFlow | Policy::Bypass => fate.pass = true,
        }
        let Some(flow) = flow else { return };
        match policy {
            Policy::Reject if !self.ips => {}
            Policy::DropFlow | Policy::Reject => {
                flow.core.action = if self.ips { FlowAction::Drop } else { FlowAction::WouldDrop };
                flow.ext.dropped_by = FlowDropBy::Exception;
            }
            Policy::PassFlow | Policy::Bypass if self.firewall => flow.core.td_passed = true,
            Policy::PassFlow | Policy::Bypass => flow.core.action = FlowAction::Pass,
            _ => {}
        }
        flow.ext.note_exception(condition, policy);
    }
}
