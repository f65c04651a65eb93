//! Packets of flows that may still get an alert: with `conditional`, a capture file begins with the data that led to it.

use std::collections::VecDeque;

use margay_packet::{KeyedMap, LinkType, Packet, Time};

/// Bytes of one flow's packets; its oldest ones go first.
const FLOW_MAX: usize = 64 * 1024;
/// Memory of a packet besides its bytes.
const OVERHEAD: usize = size_of::<HeldPacket>() + 16;
/// Memory of a flow besides its packets.
const FLOW_OVERHEAD: usize = size_of::<HeldFlow>() + 32;

/// A captured packet, as files have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) time: Time,
    pub(super) link: LinkType,
    pub(super) data: &'a [u8],
    pub(super) wire_len: u32,
}

impl<'a> Record<'a> {
    pub(super) fn of(p: &Packet<'a>) -> Record<'a> {
        Record { time: p.time, link: p.link, data: p.data, wire_len: p.wire_len }
    }
}

/// A packet that waits for an alert.
#[derive(Debug)]
pub(super) struct HeldPacket {
    time: Time,
    link: LinkType,
    data: Box<[u8]>,
    wire_len: u32,
}

impl HeldPacket {
    pub(super) fn record(&self) -> Record<'_> {
        Record { time: self.time, link: self.link, data: &self.data, wire_len: self.wire_len }
    }
}

#[derive(Debug, Default)]
struct HeldFlow {
    packets: VecDeque<HeldPacket>,
    /// Memory of the packets.
    bytes: usize,
}

/// The packets of all flows.
#[derive(Debug, Default)]
pub(super) struct Held {
    flows: KeyedMap<u64, HeldFlow>,
    bytes: usize,
    memcap: usize,
}

impl Held {
    pub(super) fn new(memcap: u64) -> Held {
        Held { memcap: usize::try_from(memcap).unwrap_or(usize::MAX), ..Held::default() }
    }

    /// Keeps a packet of a flow. Returns whether there was memory for it.
    pub(super) fn hold(&mut self, flow: u64, p: &Packet<'_>) -> bool {
        let size = p.data.len() + OVERHEAD;
        let known = self.flows.contains_key(&flow);
        let more = if known { size } else { size + FLOW_OVERHEAD };
        if self.bytes.saturating_add(more) > self.memcap {
            return false;
        }
        self.bytes += more;
        let of_flow = self.flows.entry(flow).or_default();
        of_flow.bytes += size;
        of_flow.packets.push_back(HeldPacket { time: p.time, link: p.link, data: p.data.into(), wire_len: p.wire_len });
        while of_flow.bytes > FLOW_MAX && of_flow.packets.len() > 1 {
            let Some(oldest) = of_flow.packets.pop_front() else { break };
            let size = oldest.data.len() + OVERHEAD;
            of_flow.bytes -= size;
            self.bytes -= size;
        }
        true
    }

    /// Takes the packets of a flow, which is over or has an alert.
    pub(super) fn take(&mut self, flow: u64) -> VecDeque<HeldPacket> {
        let Some(of_flow) = self.flows.remove(&flow) else { return VecDeque::new() };
        self.bytes -= of_flow.bytes + FLOW_OVERHEAD;
        of_flow.packets
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use margay_packet::Frame;

    use super::*;
    use crate::output::PacketFate;
    use crate::pcaplog::{Conditional, PcapLog, PcapLogSettings};

    fn packet(data: &[u8], secs: i64) -> Packet<'_> {
        let wire_len = data.len() as u32;
        Packet::new(&Frame { time: Time::new(secs, 0), data, wire_len, link: LinkType::ETHERNET, number: 0 })
    }

    fn log(dir: &std::path::Path, conditional: Conditional, memcap: u64) -> PcapLog {
        let path = dir.join("log.pcap");
        let settings = PcapLogSettings { conditional, hold_memcap: memcap, ..PcapLogSettings::new(path) };
        PcapLog::new(settings, 0, 0).unwrap()
    }

    const fn of(flow: u64) -> PacketFate {
        PacketFate {
            past_stream_depth: false,
            passed: false,
            alerted: false,
            tagged: false,
            flow: Some(flow),
            has_data: true,
        }
    }

    /// The first bytes of the packets in the only file.
    fn written(dir: &std::path::Path) -> Vec<u8> {
        let file = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        let all = std::fs::read(file).unwrap();
        let mut rest = &all[24..];
        let mut out = Vec::new();
        while !rest.is_empty() {
            let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
            out.push(rest[16]);
            rest = &rest[16 + len..];
        }
        out
    }

    #[test]
    fn the_data_before_an_alert_is_written_before_the_packet() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path(), Conditional::Alerts, 1 << 20);
        log.packet(&packet(&[1; 60], 1), of(7));
        log.packet(&packet(&[2; 60], 2), PacketFate { has_data: false, ..of(7) });
        log.packet(&packet(&[3; 60], 3), of(8));
        log.packet(&packet(&[4; 60], 4), PacketFate { past_stream_depth: true, ..of(7) });
        log.packet(&packet(&[5; 60], 5), of(7));
        log.packet(&packet(&[6; 60], 6), PacketFate { alerted: true, has_data: false, ..of(7) });
        log.packet(&packet(&[7; 60], 7), PacketFate { alerted: true, ..of(7) });
        log.flow_ended(8, false);
        log.packet(&packet(&[8; 60], 8), of(9));
        log.flow_ended(9, true);
        log.finish();
        assert_eq!(written(dir.path()), [1, 4, 5, 6, 7, 8]);
        assert_eq!((log.counters().written, log.counters().not_held), (6, 0));
    }

    #[test]
    fn memory_is_limited() {
        let mut held = Held::new(200_000);
        let data = [0u8; 10_000];
        for _ in 0..100 {
            assert!(held.hold(1, &packet(&data, 1)));
        }
        assert_eq!(held.take(1).len(), 6);
        assert_eq!(held.bytes, 0);
        let kept = (0..100).filter(|n| held.hold(*n, &packet(&data, 1))).count();
        assert_eq!(kept, 19);
        assert!(held.bytes <= 200_000);
        (0..100).for_each(|n| drop(held.take(n)));
        assert_eq!(held.bytes, 0);

        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path(), Conditional::Tag, 50);
        log.packet(&packet(&[1; 60], 1), of(7));
        log.packet(&packet(&[2; 60], 1), PacketFate { tagged: true, ..of(7) });
        assert_eq!((log.counters().written, log.counters().not_held), (1, 1));
    }
}
