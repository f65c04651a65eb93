//! Prefetching of flows.
//!
//! A lookup needs three loads, each of which depends on the previous one: the bucket, the flow's key, the flow. With
//! many flows, none of them is in the CPU cache, and the CPU waits three times. So the caller does the first step for
//! several packets, then the second: loads for different packets are independent, and their waits overlap.
//!
//! The result is only a hint: the packet does a full lookup later.

use super::{FlowRef, FlowTable};
use crate::key::Ends;

/// Most flows inspected per bucket.
const CHAIN_MAX: usize = 4;

/// A flow that a packet will look up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    hash: u32,
    at: u32,
}

impl<X> FlowTable<X> {
    /// The first step: reads the bucket of the flow with these ends.
    #[inline]
    pub fn want(&self, ends: &Ends) -> Wanted {
        let hash = self.key_of(ends).hash as u32;
        Wanted { hash, at: self.buckets.get(self.bucket(hash)).copied().unwrap_or(super::NONE) }
    }

    /// The second step: reads the keys in the bucket. The third is to read the flow.
    #[inline]
    pub fn place(&self, wanted: Wanted) -> Option<FlowRef> {
        let mut at = wanted.at;
        for _ in 0..CHAIN_MAX {
            let slot = self.slots.get(at)?;
            if slot.hash == wanted.hash {
                return Some(FlowRef(at));
            }
            at = slot.chain;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};

    use super::*;
    use crate::{Flow, FlowConfig, Lookup};

    #[test]
    fn finds_what_a_packet_finds() {
        // A single bucket, so that lookups follow a chain.
        let config = FlowConfig { prealloc: 0, hash_size: 1, ..FlowConfig::default() };
        let mut table = FlowTable::<u32>::new(config);
        let ends = |port| Ends {
            src: [0, 0x0a00_0001],
            dst: [0, 0x0a00_0002],
            sport: port,
            dport: 53,
            proto: 17,
            v6: false,
            vlans: [0; 3],
        };
        for port in 1..=CHAIN_MAX as u16 + 1 {
            assert_eq!(table.place(table.want(&ends(port))), None);
            let frame = Frame { data: &[], wire_len: 100, time: Time::new(1, 0), link: LinkType::RAW, number: 1 };
            let mut p = Packet::new(&frame);
            (p.l3, p.l4) = (L3::Ipv4 { offset: 0, header_len: 20, options: 0 }, L4::Udp { offset: 20 });
            (p.src, p.dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
            (p.sport, p.dport, p.proto) = (port, 53, 17);
            let key = table.key(&p, 0).unwrap();
            let Lookup::Created(at) = table.lookup(&p, &key, || 0, &mut |_: Flow<u32>, _| ()) else { panic!() };
            assert_eq!(table.place(table.want(&ends(port))), Some(at));
        }
        // The first flow is now too far down the chain.
        assert_eq!(table.place(table.want(&ends(1))), None);
    }
}
