//! Prefetching: reads the flows, sessions and stream buffers of the next packets of a batch together, so that the waits for memory
//! overlap. `margay_flow`'s `warm` finds the flows.

use margay_capture::Batch;
use margay_flow::{Ends, FlowRef, Wanted};
use margay_packet::{Frame, LinkType};

use super::Worker;

/// Frames whose flows are prefetched at a time. More would evict the first ones before their use.
pub(crate) const AHEAD: usize = 16;

const ETHERNET: usize = 14;
const VLAN: usize = 4;

impl Worker {
    /// Prefetches the flows of the frame at `index` and of the next frames. Call it before each frame of a batch; only every
    /// [`AHEAD`]th call does anything.
    #[inline]
    pub(crate) fn warm(&self, batch: &Batch<'_>, index: usize) {
        if index.is_multiple_of(AHEAD) && index + 1 < batch.len() {
            self.warm_from(batch, index);
        }
    }

    fn warm_from(&self, batch: &Batch<'_>, index: usize) {
        let flows = &self.pipeline.flows;
        let mut wanted = [Wanted::default(); AHEAD];
        let mut n = 0;
        for frame in (index..index + AHEAD).map_while(|i| batch.get(i)) {
            if let (Some(ends), Some(w)) = (plain(&frame), wanted.get_mut(n)) {
                *w = flows.want(&ends);
                n += 1;
            }
        }
        let mut places: [Option<FlowRef>; AHEAD] = [None; AHEAD];
        for (place, w) in places.iter_mut().zip(&wanted).take(n) {
            *place = flows.place(*w);
        }
        let mut sum = 0;
        let found = || places.iter().flatten().filter_map(|at| flows.get(*at));
        for flow in found() {
            sum ^= flow.core.id ^ u64::from(flow.ext.app.is_some());
        }
        for flow in found() {
            sum ^= flow.ext.tcp.as_deref().map_or(0, margay_stream::TcpSession::warm);
            sum ^= flow.ext.app.as_deref().map_or(0, super::app::FlowApp::warm);
        }
        std::hint::black_box(sum);
    }
}

/// The endpoints of a simple TCP or UDP packet: over Ethernet with at most one tag, and not fragmented.
#[inline]
fn plain(frame: &Frame<'_>) -> Option<Ends> {
    if frame.link != LinkType::ETHERNET {
        return None;
    }
    let data = frame.data;
    let u16_at = |at: usize| data.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_be_bytes(*b));
    let (mut ip, mut kind, mut vlans) = (ETHERNET, u16_at(ETHERNET - 2)?, [0; 3]);
    if kind == 0x8100 {
        vlans[0] = u16_at(ip)? & 0x0fff;
        ip += VLAN;
        kind = u16_at(ip - 2)?;
    }
    let header = data.get(ip..)?;
    let (src, dst, proto, at) = match kind {
        0x0800 => {
            let header: &[u8; 20] = header.first_chunk()?;
            if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
                return None;
            }
            let address = |at: usize| {
                [0, u64::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))]
            };
            (address(12), address(16), header[9], ip + usize::from(header[0] & 0x0f) * 4)
        }
        0x86dd => {
            let header: &[u8; 40] = header.first_chunk()?;
            let half = |at: usize| header[at..].first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
            ([half(8), half(16)], [half(24), half(32)], header[6], ip + 40)
        }
        _ => return None,
    };
    if proto != 6 && proto != 17 {
        return None;
    }
    Some(Ends { src, dst, sport: u16_at(at)?, dport: u16_at(at + 2)?, proto, v6: kind == 0x86dd, vlans })
}

#[cfg(test)]
mod tests {
    use margay_flow::{FlowConfig, FlowTable};
    use margay_packet::{DecodeConfig, Decoder, Packet, Time};

    use super::*;

    const TCP: [u8; 20] = [4, 1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0];
    const UDP: [u8; 8] = [4, 1, 0, 53, 0, 8, 0, 0];

    fn ethernet(kind: u16, tag: Option<u16>, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        if let Some(tag) = tag {
            frame.extend([0x81, 0, (tag >> 8) as u8, tag as u8]);
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(rest);
        frame
    }

    fn ipv4(proto: u8, options: usize, offset: u16, rest: &[u8]) -> Vec<u8> {
        let total = (20 + options + rest.len()) as u8;
        let mut ip =
            vec![0x45 + (options / 4) as u8, 0, 0, total, 0, 1, (offset >> 8) as u8, offset as u8, 64, proto, 0, 0];
        ip.extend([10, 0, 0, 9, 10, 0, 0, 1]);
        ip.resize(20 + options, 1);
        ip.extend(rest);
        ip
    }

    fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next, 64];
        ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend(rest);
        ip
    }

    fn frame(data: &[u8]) -> Frame<'_> {
        Frame { data, wire_len: 64, time: Time(0), link: LinkType::ETHERNET, number: 1 }
    }

    /// If the prefetch knows a frame's flow, it is the one that the packet looks up.
    #[test]
    fn plain_ends_are_those_of_the_packet() {
        let flows = FlowTable::<()>::new(FlowConfig::default());
        for data in [
            ethernet(0x0800, None, &ipv4(6, 0, 0, &TCP)),
            ethernet(0x0800, None, &ipv4(17, 8, 0x4000, &UDP)),
            ethernet(0x0800, Some(0x6007), &ipv4(6, 40, 0, &TCP)),
            ethernet(0x86dd, None, &ipv6(6, &TCP)),
            ethernet(0x86dd, Some(9), &ipv6(17, &UDP)),
        ] {
            let ends = plain(&frame(&data)).expect("plain");
            let mut found = None;
            Decoder::new(DecodeConfig::default())
                .decode(&frame(&data), &mut |p: &Packet<'_>| found = flows.key(p, 0).map(|k| k.hash()));
            assert_eq!(found, Some(flows.key_of(&ends).hash()), "{data:x?}");
            // A truncated frame has no endpoints, or the same ones.
            for n in 0..data.len() {
                assert!(plain(&frame(&data[..n])).is_none_or(|e| e == ends));
            }
        }
        for data in [
            ethernet(0x0800, None, &ipv4(6, 0, 0x2000, &TCP)),
            ethernet(0x0800, None, &ipv4(17, 0, 1, &UDP)),
            ethernet(0x0800, None, &ipv4(1, 0, 0, &UDP)),
            ethernet(0x0806, None, &[0; 28]),
        ] {
            assert_eq!(plain(&frame(&data)), None);
        }
    }
}
