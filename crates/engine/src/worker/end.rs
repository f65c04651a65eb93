//! What happens when a flow ends: what is left of its streams is inspected, then it is logged.

use std::net::IpAddr;

use margay_flow::{Direction, EndReason, Flow, FlowAction, FlowCore, FlowState};
use margay_packet::{L3, L4, LinkType, Packet, PacketSource, Time};
use margay_stream::{FlowPrint, TcpState};

use super::app::{Heard, is_over};
use super::tcp::{Seen, is_established};
use super::{Fate, FlowExt, Rest};

/// Most packets made up for one direction of a flow at its end.
const FLUSHES_MAX: usize = 256;
/// Longest header of a made-up packet: IPv6 and TCP.
pub(super) const HEADERS: usize = 60;

impl Rest {
    /// Ends a flow: inspects what is left of its streams, counts and logs it.
    ///
    /// A packet of another flow may be what noticed that the flow is over. The packets that are made up here have fates of
    /// their own, which end here, so that nothing of this reaches the verdict on that packet.
    pub(super) fn end_flow(&mut self, mut flow: Flow<FlowExt>, reason: EndReason) {
        self.at_flow(&mut flow);
        self.end_in_kernel(&mut flow.core);
        // What was not let through was not said.
        let dropped = self.ips && flow.core.action == FlowAction::Drop;
        let mut inspected = false;
        if carries(&flow) && !flow.core.action.is_unwatched(self.ips) && !dropped {
            // What was heard before is looked at before what the end brings.
            if flow.ext.app.as_ref().is_some_and(|a| a.has_news(Direction::ToServer)) {
                inspected |= self.flush(&mut flow, Direction::ToServer, Heard::default());
            }
            let mut heard = self.feed_tcp(&mut flow, Direction::ToClient, true);
            if heard.turn {
                flow.ext.turn_round();
                flow.core.turn_round();
                heard = self.feed_tcp(&mut flow, Direction::ToClient, true);
            }
            if heard.full {
                let looked;
                (heard, looked) = self.work_off_at_end(&mut flow, heard);
                inspected |= looked;
            }
            if let Some(proto) = heard.failed {
                self.parser_failed_at_end(proto, &mut flow);
            }
            if let Some(s) = flow.ext.tcp.as_deref_mut() {
                s.app_disable();
            }
            for dir in [Direction::ToServer, Direction::ToClient] {
                inspected |= self.flush(&mut flow, dir, heard);
            }
        }
        if dropped {
            self.discard_app(&mut flow);
        } else {
            self.end_app(&mut flow, inspected);
        }
        if let Some(app) = flow.ext.app.as_deref() {
            self.app.counted_elsewhere(app, true);
        }
        self.log_flow(&flow, reason.name());
        if let Some(session) = &flow.ext.tcp {
            if reason != EndReason::Shutdown {
                let (hash, second) = self.hasher.of(&flow.core);
                self.stream.remember(session, FlowPrint { hash, second }, self.now.secs() as u32);
            }
            self.stream.end(session);
            self.ended_tcp.push(session.state().name());
        }
        if let Some((_, state)) = &mut self.detect {
            state.flow_ended(flow.core.id);
        }
    }

    /// Inspects what is left of the direction that a connection's last packet did not come in, where it is closed: what waits would fill
    /// memory until the flow times out. Less than a chunk waits for a packet that repeats its direction's end, or for the flow's, as in
    /// Suricata.
    pub(super) fn flush_closed(&mut self, flow: &mut Flow<FlowExt>, dir: Direction) {
        let Some(tcp) = flow.ext.tcp.as_deref().filter(|t| is_over(t)) else { return };
        let news = flow.ext.app.as_ref().is_some_and(|a| a.has_news(dir));
        if news || tcp.needs_flush(dir) && !tcp.raw_waits_little(dir) {
            self.flush(flow, dir, Heard::default());
        }
    }

    /// A flow changes its protocol: the data before that is inspected and logged with packets made up for it, the last in the direction of
    /// the packet at hand. Inline, the packet at hand carries the verdict, and the data is inspected with it.
    #[cold]
    pub(super) fn flush_changing(&mut self, flow: &mut Flow<FlowExt>, dir: Direction) {
        if self.ips {
            return;
        }
        for d in [dir.reverse(), dir] {
            let core = flow.core.clone();
            let mut bytes = [0u8; HEADERS];
            let packet = Packet { source: PacketSource::StreamFlush, ..pseudo(&core, d, self.now, &mut bytes) };
            let heard = Heard { changing: true, ..Heard::default() };
            let established = is_established(core.state);
            let seen = Seen { in_stream: true, established, heard, ..Seen::default() };
            let mut fate = Fate::default();
            self.detect_in_flow(&packet, flow, d, &seen, &mut fate);
            self.log_app(&packet, flow, false, fate.inspected);
        }
    }

    /// Where a connection is closed, what is left of its streams may wait long for the flow's end: it shall take no more memory
    /// than it needs.
    #[inline]
    pub(super) fn shrink_closed(&mut self, flow: &mut Flow<FlowExt>) {
        if let Some(tcp) = flow.ext.tcp.as_deref_mut().filter(|t| t.state() == TcpState::Closed) {
            tcp.shrink_closed();
            self.stream.account(tcp);
        }
    }

    /// Inspects what is left of one direction, with packets made up for it. Returns whether there was anything to inspect.
    fn flush(&mut self, flow: &mut Flow<FlowExt>, dir: Direction, mut heard: Heard) -> bool {
        let mut inspected = false;
        let mut txs = flow.ext.app.as_ref().is_some_and(|a| a.session.has_txs() || a.frames.needed(dir).is_some());
        let closed = flow.core.state == FlowState::Closed;
        // A hole divides what is left: one packet for each stretch, and no more than can be honest.
        for _ in 0..FLUSHES_MAX {
            let left = flow.ext.tcp.as_ref().is_some_and(|s| s.needs_flush(dir));
            if self.detect.is_none() || !(left || std::mem::take(&mut txs)) {
                return inspected;
            }
            let mut bytes = [0u8; HEADERS];
            let packet = pseudo(&flow.core, dir, self.now, &mut bytes);
            let established = is_established(flow.core.state);
            let seen = Seen {
                flush: true,
                in_stream: true,
                established,
                heard: std::mem::take(&mut heard),
                for_txs: !left && closed,
                ..Seen::default()
            };
            let mut fate = Fate::default();
            let raw = |flow: &Flow<FlowExt>| flow.ext.tcp.as_deref().map_or(0, |t| t.raw_offset(dir));
            let before = raw(flow);
            self.detect_in_flow(&packet, flow, dir, &seen, &mut fate);
            inspected = true;
            if raw(flow) == before {
                // What is left waits for the parser: nobody else wants it.
                return inspected;
            }
        }
        inspected
    }
}

impl Rest {
    /// Logs what is left of a flow's transactions.
    fn end_app(&mut self, flow: &mut Flow<FlowExt>, inspected: bool) {
        if flow.ext.app.is_some() {
            let mut bytes = [0u8; HEADERS];
            let core = flow.core.clone();
            // As from the side that spoke, where only one did.
            let way = if core.pkts[0] == 0 { Direction::ToClient } else { Direction::ToServer };
            let packet = pseudo(&core, way, self.now, &mut bytes);
            self.log_frames(&packet, flow, way, true);
            // Of a flow that was dropped nothing more came through that would be worth a record.
            if self.ips && core.action == FlowAction::Drop {
                return;
            }
            self.log_app(&packet, flow, true, inspected);
        }
    }
}

/// Whether something of a flow's streams may be left to inspect. A connection that carried no data has nothing; a scan or a flood
/// makes thousands of these.
fn carries(flow: &Flow<FlowExt>) -> bool {
    flow.ext.tcp.as_deref().is_some_and(|t| flow.ext.app.is_some() || t.has_data())
}

/// A TCP packet without payload in direction `dir` of a flow, for alerts about what was left of its stream.
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
