//! The end of a flow: inspects the rest of its streams, then logs the flow.

use std::net::IpAddr;

use margay_app::AppProto;
use margay_flow::{Direction, EndReason, Flow, FlowAction, FlowCore, FlowState};
use margay_packet::{L3, L4, LinkType, Packet, PacketSource, Time};
use margay_stream::{FlowPrint, TcpState};

use super::app::AppResult;
use super::app_feed::is_over;
use super::tcp::{Seen, is_established};
use super::{FlowExt, PacketVerdict, Stages};

/// Limit of the pseudo packets for one direction of a flow at its end.
const FLUSHES_MAX: usize = 256;
/// Longest header of a pseudo packet: IPv6 and TCP.
pub(super) const HEADERS: usize = 60;

impl Stages {
    /// Ends a flow: inspects the rest of its streams, counts it and logs it.
    ///
    /// A packet of another flow may have triggered the end. The pseudo packets of the ending flow have verdicts of their own,
    /// which are discarded, so the verdict on the other flow's packet does not change.
    pub(super) fn end_flow(&mut self, mut flow: Flow<FlowExt>, reason: EndReason) {
        self.at_flow(&mut flow);
        self.end_in_kernel(&mut flow.core);
        self.end_streams(&mut flow);
        if let Some(app) = flow.ext.app.as_deref() {
            self.app.counted_elsewhere(app, true);
        }
        self.log_flow(&flow, reason.name());
        self.outputs.pcap_flow_ended(flow.core.id, flow.core.alerted);
        if let Some(session) = &flow.ext.tcp {
            if reason != EndReason::Shutdown {
                let (hash, second) = self.hasher.of(&flow.core);
                let (print, secs) = (FlowPrint { hash, second }, self.now.secs() as u32);
                // A dropped connection would otherwise get through as another one, parsed from its middle.
                match self.ips && flow.core.action == FlowAction::Drop {
                    true => self.stream.remember_dropped(session, print, secs, flow.ext.dropped_by as u8),
                    false => self.stream.remember(session, print, secs),
                }
            }
            self.stream.end(session);
            self.ended_tcp.push(session.state().name());
        }
        if let Some((_, state)) = &mut self.detect {
            state.flow_ended(flow.core.id);
        }
    }

    /// Inspects the rest of a flow's streams, and logs its transactions. Returns whether the ends of the flow were swapped,
    /// because its protocol was recognised only now.
    pub(super) fn end_streams(&mut self, flow: &mut Flow<FlowExt>) -> bool {
        // Dropped data never arrived, so it is not inspected.
        let dropped = self.ips && flow.core.action == FlowAction::Drop;
        let (mut inspected, mut turned) = (false, false);
        let untaken = !self.ips && flow.ext.tcp.as_ref().is_some_and(|t| t.is_untaken());
        if carries(flow) && !flow.core.action.is_unwatched(self.ips) && !dropped && !untaken {
            let open = is_open(flow);
            // Earlier transactions are inspected before the data that the end makes available to the parsers. The stream is
            // inspected whole: a pattern may reach into the data that nothing acknowledged.
            if flow.ext.app.as_ref().is_some_and(|a| a.has_news(Direction::ToServer)) {
                if let Some(tcp) = flow.ext.tcp.as_deref_mut() {
                    tcp.finish_streams();
                }
                inspected |= self.flush(flow, Direction::ToServer, AppResult::default(), None);
            }
            let mut app_result = self.feed_tcp(flow, Direction::ToClient, true);
            if app_result.turn {
                flow.ext.turn_round();
                flow.core.turn_round();
                turned = true;
                app_result = self.feed_tcp(flow, Direction::ToClient, true);
            }
            if app_result.full {
                let looked;
                (app_result, looked) = self.work_off_at_end(flow, app_result);
                inspected |= looked;
            }
            if let Some(proto) = app_result.failed {
                self.parser_failed_at_end(proto, flow);
            }
            if let Some(s) = flow.ext.tcp.as_deref_mut() {
                s.app_disable();
            }
            for dir in [Direction::ToServer, Direction::ToClient] {
                inspected |= self.flush(flow, dir, app_result, Some(open));
            }
        }
        if dropped {
            self.discard_app(flow);
        } else {
            self.end_app(flow, inspected);
        }
        turned
    }

    /// Inspects the transactions of a closed connection's other direction, which may not get another packet, with the rest of
    /// its data. Data alone waits for that packet, as in Suricata, or for the end of the flow.
    pub(super) fn flush_closed(&mut self, flow: &mut Flow<FlowExt>, dir: Direction) {
        let Some(tcp) = flow.ext.tcp.as_deref().filter(|t| is_over(t)) else { return };
        let news = flow.ext.app.as_ref().is_some_and(|a| a.has_news(dir));
        if news || self.ips && tcp.needs_flush(dir) {
            self.flush(flow, dir, AppResult::default(), None);
        }
    }

    /// Inspects and logs the data before a change of the flow's protocol, with pseudo packets; the last has the direction of
    /// the current packet. Inline, the data is inspected with the current packet, which carries the verdict.
    #[cold]
    pub(super) fn flush_changing(&mut self, flow: &mut Flow<FlowExt>, dir: Direction) {
        if self.ips {
            return;
        }
        for d in [dir.reverse(), dir] {
            let core = flow.core.clone();
            let mut bytes = [0u8; HEADERS];
            let packet = Packet { source: PacketSource::StreamFlush, ..pseudo(&core, d, self.now, &mut bytes) };
            let established = is_established(core.state);
            let seen = Seen { in_stream: true, established, changing: true, ..Seen::default() };
            let mut fate = PacketVerdict::default();
            self.detect_in_flow(&packet, flow, d, &seen, &mut fate);
            self.log_app(&packet, flow, false, fate.inspected);
        }
    }

    /// Frees the data of a flow whose later packets are not inspected, so that it takes no memory from other flows.
    pub(super) fn discard_streams(&mut self, flow: &mut Flow<FlowExt>) {
        if let Some(tcp) = flow.ext.tcp.as_deref_mut().filter(|t| t.has_data()) {
            self.stream.discard(tcp);
        }
    }

    /// Frees the excess memory of a closed connection's streams, because the flow may end much later.
    #[inline]
    pub(super) fn shrink_closed(&mut self, flow: &mut Flow<FlowExt>) {
        if let Some(tcp) = flow.ext.tcp.as_deref_mut().filter(|t| t.state() == TcpState::Closed) {
            tcp.shrink_closed();
            self.stream.account(tcp);
        }
    }

    /// Inspects the rest of one direction with pseudo packets. `flow_ends` says that the flow ends, so this is the
    /// direction's last inspection, and whether it takes place if nothing is left. Returns whether there was anything to inspect.
    fn flush(
        &mut self,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
        mut app_result: AppResult,
        flow_ends: Option<bool>,
    ) -> bool {
        let mut inspected = false;
        let mut txs = flow.ext.app.as_ref().is_some_and(|a| a.session.has_txs() || a.frames.needed(dir).is_some());
        let closed = flow.core.state == FlowState::Closed;
        let mut open = flow_ends == Some(true) && !self.ips;
        let mut flow_ends = flow_ends.is_some();
        // Gaps divide the rest: one packet inspects one stretch. The limit stops absurd numbers of gaps.
        for _ in 0..FLUSHES_MAX {
            let left = flow.ext.tcp.as_ref().is_some_and(|s| s.needs_flush(dir));
            let due = left || std::mem::take(&mut txs);
            if self.detect.is_none() || !(due || std::mem::take(&mut open)) {
                return inspected;
            }
            open = false;
            let mut bytes = [0u8; HEADERS];
            let packet = pseudo(&flow.core, dir, self.now, &mut bytes);
            let established = is_established(flow.core.state);
            let seen = Seen {
                flush: true,
                in_stream: true,
                established,
                app_result: std::mem::take(&mut app_result),
                for_txs: !left && closed,
                flow_ends: std::mem::take(&mut flow_ends),
                ..Seen::default()
            };
            let mut fate = PacketVerdict::default();
            let raw = |flow: &Flow<FlowExt>| flow.ext.tcp.as_deref().map_or(0, |t| t.raw_offset(dir));
            let before = raw(flow);
            self.detect_in_flow(&packet, flow, dir, &seen, &mut fate);
            inspected |= due;
            if raw(flow) == before {
                // The rest waits for the parser only.
                return inspected;
            }
        }
        inspected
    }
}

/// Whether a connection ends with a pseudo packet in each direction even if nothing is left to inspect, as in Suricata: it was
/// established and not closed, or its protocol is still undecided.
fn is_open(flow: &Flow<FlowExt>) -> bool {
    let undecided = flow.ext.app.as_deref().is_none_or(|a| a.session.proto == AppProto::Unknown);
    match flow.ext.tcp.as_deref().map_or(TcpState::None, |t| t.state()) {
        TcpState::Closed => undecided,
        state => state >= TcpState::Established,
    }
}

impl Stages {
    /// Logs a flow's remaining transactions.
    fn end_app(&mut self, flow: &mut Flow<FlowExt>, inspected: bool) {
        // Most flows have neither transactions nor frames at their end.
        if flow.ext.app.as_ref().is_some_and(|a| a.session.has_txs() || !a.frames.is_empty()) {
            let mut bytes = [0u8; HEADERS];
            let core = flow.core.clone();
            // If only one side sent packets, the event has that side's direction.
            let way = if core.pkts[0] == 0 { Direction::ToClient } else { Direction::ToServer };
            let packet = pseudo(&core, way, self.now, &mut bytes);
            self.log_frames(&packet, flow, way, true);
            // After a flow is dropped, nothing worth logging arrives.
            if self.ips && core.action == FlowAction::Drop {
                return;
            }
            self.log_app(&packet, flow, true, inspected);
        }
    }
}

/// Whether a flow's streams may have data left to inspect. A connection without data has none; a scan or a flood opens
/// thousands of these.
fn carries(flow: &Flow<FlowExt>) -> bool {
    flow.ext.tcp.as_deref().is_some_and(|t| flow.ext.app.is_some() || t.has_data())
}

/// A TCP packet without payload in direction `dir` of a flow, for alerts on the rest of its stream.
pub(super) fn pseudo<'a>(core: &FlowCore, dir: Direction, time: Time, bytes: &'a mut [u8; HEADERS]) -> Packet<'a> {
    let (src, dst, sport, dport) = match dir {
        Direction::ToServer => (core.src, core.dst, core.sport, core.dport),
        Direction::ToClient => (core.dst, core.src, core.dport, core.sport),
    };
    let tcp = match (src, dst) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            bytes[..4].copy_from_slice(&[0x45, 0, 0, 40]);
            bytes[8..10].copy_from_slice(&[64, 6]);
            bytes[12..16].copy_from_slice(&s.octets());
            bytes[16..20].copy_from_slice(&d.octets());
            20
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            bytes[0] = 0x60;
            bytes[4..8].copy_from_slice(&[0, 20, 6, 64]);
            bytes[8..24].copy_from_slice(&s.octets());
            bytes[24..40].copy_from_slice(&d.octets());
            40
        }
        _ => 20,
    };
    bytes[tcp..tcp + 2].copy_from_slice(&sport.to_be_bytes());
    bytes[tcp + 2..tcp + 4].copy_from_slice(&dport.to_be_bytes());
    bytes[tcp + 12] = 0x50;
    bytes[tcp + 13] = margay_packet::tcp::flag::ACK;
    let data = &bytes[..tcp + 20];
    let frame = margay_packet::Frame { data, wire_len: data.len() as u32, time, link: LinkType::RAW_DLT, number: 0 };
    Packet {
        source: PacketSource::StreamFlowTimeout,
        recursion: core.recursion,
        vlans: core.vlans,
        l3: if tcp == 20 {
            L3::Ipv4 { offset: 0, header_len: 20, options: 0 }
        } else {
            L3::Ipv6 { offset: 0, header_len: 40, extensions: 0, fragment: 0 }
        },
        l4: L4::Tcp { offset: tcp as u32, header_len: 20 },
        src,
        dst,
        proto: 6,
        sport,
        dport,
        payload: (data.len() as u32, 0),
        ignore_checksums: true,
        ..Packet::new(&frame)
    }
}
