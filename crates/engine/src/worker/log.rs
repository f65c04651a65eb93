//! Builds the events that the outputs write.

use margay_app::{LogFor, protocol};
use margay_detect::inspect::HITS_MAX;
use margay_detect::{Detect, Reject, payload_of};
use margay_flow::{
    CapturedVars, Direction, Flow, FlowAction, FlowCore, FlowState, icmpv4_counterpart, icmpv6_counterpart,
};
use margay_output::event::{
    self, Addresses, AlertEvent, Anomaly, AnomalyEvent, AppEvent, ArpEvent, DropEvent, Ether, EventType, FlowEvent,
    FlowSummary, Forwarded, Header, ONE_RECORD, PacketEvent, Payload, RejectTarget, TcpSummary, Var, Vars, VerdictInfo,
};
use margay_output::json::Json;
use margay_output::output::PacketFate;
use margay_packet::{L3, Packet, PacketSource};
use margay_rules::ast::Action;
use margay_stream::StreamEvent;

use super::app::FlowApp;
use super::fileinfo::alert_files;
use super::frames::FrameSource;
use super::scripts::{Occasion, ScriptContext};
use super::{DropReason, FlowExt, PacketVerdict, Stages};

/// Buffers that events reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Stream payload for alerts.
    pub(crate) payload: Vec<u8>,
    /// A packet whose payload was changed inline.
    pub(crate) rewritten: Vec<u8>,
    /// Numbers of transactions that are about to be freed.
    pub(crate) gone: Vec<u64>,
}

/// A direction in the form that events use.
pub(crate) fn direction(d: Direction) -> event::Direction {
    match d {
        Direction::ToServer => event::Direction::ToServer,
        Direction::ToClient => event::Direction::ToClient,
    }
}

/// A flow's own addresses.
pub(crate) fn addresses(core: &FlowCore) -> Addresses {
    Addresses { src: core.src, sport: core.sport, dst: core.dst, dport: core.dport, proto: core.proto }
}

/// The flow's addresses for an event about a packet that may have others.
fn flow_ends(p: &Packet<'_>, core: Option<&FlowCore>) -> Option<Addresses> {
    core.filter(|_| matches!(p.proto, 1 | 58)).map(addresses)
}

impl Stages {
    /// Logs an ARP packet for IPv4 over Ethernet.
    pub(super) fn log_arp(&mut self, p: &Packet<'_>) {
        if !self.outputs.wants(EventType::Arp) {
            return;
        }
        let L3::Arp { offset } = p.l3 else { return };
        let Some(b) = p.data.get(offset as usize..offset as usize + 28) else { return };
        // Hardware type Ethernet, protocol type IPv4, and their address lengths.
        if b[..6] != [0, 1, 8, 0, 6, 4] {
            return;
        }
        let mac = |o: usize| [b[o], b[o + 1], b[o + 2], b[o + 3], b[o + 4], b[o + 5]];
        let ip = |o: usize| std::net::Ipv4Addr::new(b[o], b[o + 1], b[o + 2], b[o + 3]);
        self.outputs.arp(&ArpEvent {
            header: Header { pcap_filename: self.file.as_deref(), ..Header::of(p) },
            opcode: u16::from_be_bytes([b[6], b[7]]),
            src_mac: mac(8),
            src_ip: ip(14),
            dest_mac: mac(18),
            dest_ip: ip(24),
        });
    }

    /// Sends a captured frame to the capture log, after all packets it carried.
    pub(super) fn log_pcap(&mut self, p: &Packet<'_>, fate: PacketFate) {
        if p.source == PacketSource::Wire && self.outputs.wants_pcap() {
            self.outputs.pcap_packet(p, fate);
        }
    }

    /// Logs a packet's decoder events and stream events.
    #[inline]
    pub(super) fn log_anomalies(&mut self, p: &Packet<'_>, flow: Option<&Flow<FlowExt>>, stream: &[StreamEvent]) {
        if !p.events.is_empty() || !stream.is_empty() {
            self.log_packet_events(p, flow, stream);
        }
    }

    #[cold]
    fn log_packet_events(&mut self, p: &Packet<'_>, flow: Option<&Flow<FlowExt>>, stream: &[StreamEvent]) {
        if let Some(w) = &mut self.app.witness {
            w.events(p, flow.map_or(0, |f| f.core.id), stream);
        }
        if !self.outputs.wants(EventType::Anomaly) {
            return;
        }
        let held;
        let mut header =
            Header { flow_id: flow.map(|f| f.core.id), pcap_filename: self.file.as_deref(), ..Header::of(p) };
        header.parent_id = flow.and_then(|f| f.ext.parent);
        header.flow_ends = flow_ends(p, flow.map(|f| &f.core));
        if let (Some(flow), Some((detect, _))) = (flow, &self.detect) {
            held = HeldVars::of(detect, Some(&flow.core), None);
            header.vars = held.vars();
        }
        let events = p.events.as_slice().iter().map(|e| Anomaly::Decode(e.name()));
        // Two stream events have a different name in events than in rules.
        let name = |e: &StreamEvent| e.stat_name().strip_prefix("stream.").unwrap_or(e.name());
        // Inline, these events explain why a packet was changed or dropped.
        let all = self.ips || self.stream.config().write_ambiguity;
        let named = self.detect.as_ref().map_or(0, |(detect, _)| detect.stream_events());
        let written = |e: &&StreamEvent| all || !e.is_ambiguity() || named & (1 << **e as u8) != 0;
        for anomaly in events.chain(stream.iter().filter(written).map(|e| Anomaly::Stream(name(e)))) {
            self.outputs.anomaly(&AnomalyEvent { header, anomaly, tx_id: None, packet: Some(p) });
        }
    }

    /// Logs a packet's alerts. An alert on the stream shows the stream's payload.
    pub(super) fn log_alerts(
        &mut self,
        p: &Packet<'_>,
        flow: Option<(&Flow<FlowExt>, Direction)>,
        fate: PacketVerdict,
    ) {
        let Some((detect, state)) = &self.detect else { return };
        let alerts = state.alerts();
        if alerts.is_empty() {
            return;
        }
        if let Some(w) = &mut self.app.witness {
            alerts.iter().for_each(|a| w.alert(p, flow.map(|(f, d)| (f.core.id, d)), a.rule));
        }
        let held = HeldVars::of(detect, flow.map(|(f, _)| &f.core), Some(state.packet_vars()));
        let header = Header {
            flow_id: flow.map(|(f, _)| f.core.id),
            parent_id: flow.and_then(|(f, _)| f.ext.parent),
            flow_ends: flow_ends(p, flow.map(|(f, _)| &f.core)),
            pcap_filename: self.file.as_deref(),
            vars: held.vars(),
            ..Header::of(p)
        };
        let verdict = verdict(fate, self.firewall);
        let app = flow.and_then(|(f, _)| f.ext.app.as_deref());
        let names = app.map(FlowApp::names).unwrap_or_default();
        let options = &self.app.options;
        let capture_file = self.outputs.capture_file();
        for (n, a) in alerts.iter().enumerate() {
            self.counters.alerts += 1;
            self.file_alerts += 1;
            let parser = app.and_then(|app| app.session.parsers().get(usize::from(a.parser)));
            let tx = a.tx_id.and_then(|id| parser?.tx(id));
            let progress = tx
                .zip(parser.and_then(|p| protocol(p.proto())))
                .and_then(|(tx, protocol)| protocol.shown_progress(tx.base().progress));
            // An alert without a transaction may refer to any.
            let find = |header: &str, forward: bool| match tx {
                Some(tx) => tx.forwarded_for(header, forward),
                None => app?.forwarded_for(header, forward),
            };
            let frame = app.zip(flow).and_then(|(app, (f, d))| {
                let frame = app.frames.of(d).iter().find(|x| Some(x.id) == a.frame)?;
                Some((app, frame, FrameSource { tcp: f.ext.tcp.as_deref(), dir: d, payload: p.payload() }))
            });
            let fields = |json: &mut Json, n: usize| {
                if let Some((app, frame, source)) = &frame {
                    let most = options.get(n).map_or(0, |o| o.alert_frame_payload);
                    source.log(app, frame, most, &mut Vec::new(), json);
                }
                if let (Some(tx), Some(o)) = (tx, options.get(n)) {
                    tx.log(json, o, LogFor::Alert);
                }
            };
            let files = |json: &mut Json, n: usize| {
                if let (Some(tx), Some(o), Some((_, way))) = (tx, options.get(n), flow) {
                    alert_files(tx, way, json, &o.files);
                }
            };
            let contexts = |json: &mut Json, _: usize| {
                let mut shown = [""; HITS_MAX];
                for ((name, object), n) in state.contexts(a).zip(0..HITS_MAX) {
                    if !shown.contains(&name) {
                        json.name(name);
                        json.item_json(object);
                        shown[n] = name;
                    }
                }
            };
            let has_context = state.contexts(a).next().is_some();
            let flushed = tx.is_some() && !a.tx_guessed && app.is_some_and(|app| app.session.is_changing());
            let event = AlertEvent {
                place: (n, alerts.len()),
                header: if flushed { header.flushed() } else { header },
                packet: p,
                signature: self.texts.signature(detect, a.rule),
                blocked: a.blocked,
                would_drop: !self.ips && a.action == Action::Drop,
                engine: self.firewall.then(|| {
                    let rule = detect.rules().get(a.rule as usize);
                    if rule.is_some_and(|r| r.firewall) { "fw" } else { "td" }
                }),
                tx_id: a.tx_id.map(|t| (t, a.tx_guessed)),
                xff: app.zip(flow).map(|(_, (_, d))| Forwarded { direction: direction(d), find: &find }),
                context: if has_context { Some(&contexts) } else { None },
                progress,
                app: if tx.is_some() || frame.is_some() { Some(&fields) } else { None },
                files: if tx.is_some() { Some(&files) } else { None },
                app_protos: names,
                direction: flow.map(|(_, d)| direction(d)),
                flow: flow.map(|(f, _)| summary(&f.core)),
                payload: if a.stream {
                    Some(Payload { data: &self.scratch.payload, stream: true })
                } else {
                    Some(Payload { data: payload_of(p), stream: false })
                },
                verdict: Some(verdict),
                capture_file: capture_file.as_deref(),
            };
            self.outputs.alert(&event);
            if self.scripts.wants(Occasion::Alert) {
                self.scripts.alert(detect, ScriptContext::new(Some(p), flow.map(|(f, _)| &f.core), app), a.rule, tx);
            }
        }
    }

    /// Logs a packet's variables, if rules captured any.
    pub(super) fn log_metadata(&mut self, p: &Packet<'_>, flow: Option<&FlowCore>) {
        let Some((detect, state)) = &self.detect else { return };
        if state.packet_vars().list().is_empty() || !self.outputs.wants(EventType::Metadata) {
            return;
        }
        let held = HeldVars::of(detect, flow, Some(state.packet_vars()));
        self.outputs.app(&AppEvent {
            kind: EventType::Metadata,
            header: Header {
                flow_id: flow.map(|f| f.id),
                flow_ends: flow_ends(p, flow),
                pcap_filename: self.file.as_deref(),
                vars: held.vars(),
                ..Header::of(p)
            },
            tx_id: None,
            direction: None,
            xff: None,
            records: ONE_RECORD,
            fields: &|_, _, _| {},
            ask: None,
        });
    }

    /// Logs a packet that a `tag` selected.
    pub(super) fn log_tagged(&mut self, p: &Packet<'_>, flow: Option<&Flow<FlowExt>>) {
        if self.outputs.wants(EventType::Packet) {
            let header = Header {
                flow_id: flow.map(|f| f.core.id),
                flow_ends: flow_ends(p, flow.map(|f| &f.core)),
                pcap_filename: self.file.as_deref(),
                ..Header::of(p)
            };
            self.outputs.packet(&PacketEvent { header, packet: p });
        }
    }

    /// Logs a dropped packet.
    pub(super) fn log_drop(
        &mut self,
        p: &Packet<'_>,
        flow: Option<(&mut Flow<FlowExt>, Direction)>,
        fate: PacketVerdict,
    ) {
        let (Some(reason), true) = (fate.drop, self.ips) else { return };
        if !self.outputs.wants(EventType::Drop) {
            return;
        }
        let (mut first, mut way) = (true, None);
        let flow = flow.map(|(f, d)| {
            // Packets that are dropped one by one are all logged, as in Suricata.
            first = f.core.action != FlowAction::Drop || !std::mem::replace(&mut f.ext.drop_logged[d.index()], true);
            way = Some(direction(d));
            &*f
        });
        let held = match (&self.detect, flow) {
            (Some((detect, _)), Some(f)) => HeldVars::of(detect, Some(&f.core), None),
            _ => HeldVars::default(),
        };
        let header = Header {
            flow_id: flow.map(|f| f.core.id),
            flow_ends: flow_ends(p, flow.map(|f| &f.core)),
            parent_id: flow.and_then(|f| f.ext.parent),
            pcap_filename: self.file.as_deref(),
            vars: held.vars(),
            ..Header::of(p)
        };
        let alert = match (&self.detect, reason, fate.dropped_by) {
            (Some((detect, _)), DropReason::Rules | DropReason::Threshold | DropReason::Firewall(_), Some(rule)) => {
                Some((self.texts.signature(detect, rule), true))
            }
            _ => None,
        };
        let tx_id = self.detect.as_ref().zip(fate.dropped_by).and_then(|((_, state), rule)| {
            let cause = state.alerts().iter().find(|a| a.rule == rule)?;
            cause.tx_id.map(|id| (id, cause.tx_guessed))
        });
        self.outputs.dropped(&DropEvent {
            header,
            packet: p,
            reason: reason.text(),
            direction: way,
            first_of_flow: first,
            tx_id: tx_id.filter(|_| alert.is_some()),
            alert,
            verdict: Some(verdict(fate, self.firewall)),
        });
    }

    /// Logs a flow that ended, with totals and with counts for each direction.
    pub(super) fn log_flow(&mut self, flow: &Flow<FlowExt>, reason: &'static str) {
        if self.scripts.active() {
            let context = ScriptContext::new(None, Some(&flow.core), flow.ext.app.as_deref());
            self.scripts.flow(self.detect.as_ref().map(|d| &*d.0), context);
        }
        let (whole, halves) = (self.outputs.wants(EventType::Flow), self.outputs.wants(EventType::Netflow));
        if !whole && !halves {
            return;
        }
        let core = &flow.core;
        let held = match &self.detect {
            Some((detect, _)) => HeldVars::of(detect, Some(core), None),
            None => HeldVars::default(),
        };
        let exceptions: Vec<(&str, &str)> = flow.ext.exceptions().iter().map(|(c, p)| (c.target(), p.name())).collect();
        let icmp = matches!(core.proto, 1 | 58);
        let header = Header {
            time: self.now,
            flow_id: Some(core.id),
            parent_id: flow.ext.parent,
            vlans: core.vlans.as_slice(),
            addresses: Some(addresses(core)),
            icmp: icmp.then_some((core.sport as u8, core.dport as u8)),
            icmp_response: icmp_response(core),
            spi: (core.proto == 50).then_some(core.spi),
            ether: match &flow.ext.macs {
                Some(m) => Ether::Flow { src: &m[0].src, dst: &m[1].src },
                None => Ether::None,
            },
            vars: held.vars(),
            pcap_filename: self.file.as_deref(),
            ..Header::default()
        };
        let event = FlowEvent {
            header,
            app_protos: flow.ext.app.as_deref().map(FlowApp::names).unwrap_or_default(),
            pkts: core.pkts,
            bytes: core.bytes,
            start: core.start,
            end: core.last,
            state: state_name(core.state),
            reason,
            alerted: core.alerted,
            action: match core.action {
                FlowAction::None if core.td_passed => Some("pass"),
                FlowAction::None => None,
                FlowAction::Drop | FlowAction::WouldDrop => Some("drop"),
                FlowAction::Pass => Some("pass"),
                FlowAction::Accept => Some("accept"),
            },
            emergency: core.emergency,
            bypass: match core.state {
                FlowState::LocalBypassed => Some("local"),
                FlowState::CaptureBypassed => Some("capture"),
                _ => None,
            },
            bypassed: (core.state == FlowState::CaptureBypassed).then_some(core.bypassed),
            exception_policies: &exceptions,
            tx_cnt: flow.ext.app.as_ref().map_or(0, |a| a.session.tx_shown()),
            elephant: core.elephant.contains(&true),
            ttl: core.ttl,
            tcp: (core.proto == 6).then(|| self.tcp_summary(flow)),
        };
        if whole {
            self.outputs.flow(&event);
        }
        if halves {
            self.outputs.netflow(&event);
        }
    }

    fn tcp_summary(&self, flow: &Flow<FlowExt>) -> TcpSummary<'static> {
        let mut t = TcpSummary { flags: flow.core.tcp_flags, ..TcpSummary::default() };
        if let Some(s) = flow.ext.tcp.as_deref() {
            t.state = Some(s.state().name());
            t.flags = [s.tcp_flags(Direction::ToServer), s.tcp_flags(Direction::ToClient)];
            for d in [Direction::ToServer, Direction::ToClient] {
                t.gap[d.index()] = s.has_gap(d);
                t.max_regions[d.index()] = s.max_regions(d);
                t.urgent_oob[d.index()] = u32::try_from(s.urgent_bytes(d)).unwrap_or(u32::MAX);
            }
        }
        t
    }
}

fn state_name(state: FlowState) -> &'static str {
    match state {
        FlowState::New => "new",
        FlowState::Established => "established",
        FlowState::Closed => "closed",
        FlowState::LocalBypassed | FlowState::CaptureBypassed => "bypassed",
    }
}

fn summary(core: &FlowCore) -> FlowSummary {
    FlowSummary {
        pkts: core.pkts,
        bytes: core.bytes,
        start: core.start,
        addresses: addresses(core),
        dropped: core.action == FlowAction::Drop,
        passed: core.action == FlowAction::Pass,
    }
}

/// The variables that rules store with a flow and a packet, by name.
#[derive(Debug, Default)]
pub(crate) struct HeldVars<'a> {
    bits: Vec<&'a str>,
    ints: Vec<(&'a str, u32)>,
    of_packet: Vec<Var<'a>>,
    of_flow: Vec<Var<'a>>,
    entropy: Vec<(&'a str, f64)>,
}

impl<'a> HeldVars<'a> {
    /// The variables of `flow` and `packet`.
    pub(crate) fn of(detect: &'a Detect, flow: Option<&'a FlowCore>, packet: Option<&'a CapturedVars>) -> Self {
        let mut held = HeldVars::default();
        let name = |n: u32| detect.names().name(n);
        if let Some(vars) = flow.map(|f| &f.vars).filter(|v| !v.is_empty()) {
            held.bits.extend(vars.bits().iter().filter_map(|&b| name(b)));
            held.ints.extend(vars.ints().iter().filter_map(|&(i, v)| name(i).map(|n| (n, v))));
            held.entropy.extend(vars.floats().iter().filter_map(|&(i, v)| name(i).map(|n| (n, v))));
            held.of_flow.extend(captured(detect, vars.captured()));
        }
        if let Some(vars) = packet {
            held.of_packet.extend(captured(detect, vars));
        }
        held
    }

    /// In the form that events take.
    pub(crate) fn vars(&self) -> Vars<'_> {
        Vars {
            flowbits: &self.bits,
            flowints: &self.ints,
            pktvars: &self.of_packet,
            flowvars: &self.of_flow,
            entropy: &self.entropy,
        }
    }
}

fn captured<'a>(detect: &'a Detect, vars: &'a CapturedVars) -> impl Iterator<Item = Var<'a>> {
    vars.list().iter().filter_map(|v| match &v.key {
        Some(key) => Some(Var::KeyValue(key, &v.value)),
        None => detect.names().name(v.name).map(|n| Var::Named(n, &v.value)),
    })
}

fn verdict(fate: PacketVerdict, firewall: bool) -> VerdictInfo<'static> {
    let action = if fate.drop.is_some() {
        event::Verdict::Drop
    } else if fate.pass {
        event::Verdict::Pass
    } else if firewall {
        event::Verdict::Accept
    } else {
        event::Verdict::Alert
    };
    // Reading a capture file sends nothing, but the event still names the answer of the reject, as Suricata's does.
    let reject = fate.rejected.map(|r| match r {
        Reject::Source => (RejectTarget::ToClient, fate.answers),
        Reject::Destination => (RejectTarget::ToServer, fate.answers),
        Reject::Both => (RejectTarget::Both, fate.answers),
    });
    VerdictInfo { action, reject }
}

/// Type and code of the replies in an ICMP flow that has replies. Reply messages have the code 0 (RFC 792, RFC 4443).
fn icmp_response(core: &FlowCore) -> Option<(u8, u8)> {
    let asked = core.sport as u8;
    let answer = match core.proto {
        1 => icmpv4_counterpart(asked),
        58 => icmpv6_counterpart(asked),
        _ => None,
    };
    answer.filter(|_| core.pkts[1] > 0).map(|kind| (kind, 0))
}
