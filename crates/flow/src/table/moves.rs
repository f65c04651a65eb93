//! Moves flows between tables.
//!
//! A flow that leaves does not end, and one that enters does not begin: flow counters count it once, and the sum over
//! both tables stays the same. The flow keeps its age in packet time, since each table has its own clock.

use margay_packet::Time;

use super::{EndReason, Flow, FlowRef, FlowTable};
use crate::key::{self, Ends, FlowKey, Key};

/// A flow that moves from one table to another.
#[derive(Debug)]
pub struct Leaving<X> {
    /// The flow.
    pub flow: Flow<X>,
    key: Key,
    hash: u32,
    client_is_high: bool,
    /// Packet time of its last packet, as far as the table's clock shows.
    touched: Time,
    /// The number of the capture that the last packet belongs to, if that is the table's current one.
    capture: Option<u64>,
}

impl<X> FlowTable<X> {
    /// The key of a plain flow, the same in all tables with the same settings.
    pub fn key_of(&self, ends: &Ends) -> FlowKey {
        key::of_ends((&self.config.hash_key, self.config.vlan_use_for_tracking), ends, 0, false)
    }

    /// Removes and returns the flow with that key, without ending it. `None` if it does not exist.
    pub fn leave(&mut self, key: &FlowKey) -> Option<Leaving<X>> {
        let at = self.find(key).ok()?;
        let slot = self.slots.get(at)?;
        let (key, hash, client_is_high, touched) = (slot.key, slot.hash, slot.client_is_high, slot.touched);
        let age = self.clock.now().saturating_sub(touched).max(0);
        let capture = (touched >= self.border).then_some(self.captures);
        let touched = Time(self.clock.latest().0.saturating_sub(age));
        let flow = self.detach(at)?;
        Some(Leaving { flow, key, hash, client_is_high, touched, capture })
    }

    /// Adds a flow that left a table with the same settings. An existing flow with the same key is stale and ends. A flow
    /// may also be evicted if memory is short.
    ///
    /// # Errors
    /// If there is no room: returns the flow, which the caller must end.
    pub fn enter(
        &mut self,
        leaving: Leaving<X>,
        ended: &mut dyn FnMut(Flow<X>, EndReason),
    ) -> Result<FlowRef, Box<Flow<X>>> {
        let Leaving { flow, key, hash, client_is_high, touched, capture } = leaving;
        let stale = FlowKey { key, hash: u64::from(hash), swapped: false, error: false };
        if let Ok(at) = self.find(&stale)
            && let Some(old) = self.remove(at)
        {
            ended(old, EndReason::Timeout);
        }
        // A table without packets has no time yet.
        if self.clock.now() == 0 && self.clock.latest() == Time::default() {
            self.clock.advance(touched);
        }
        let now = self.clock.now();
        let age = self.clock.latest().micros_since(touched).max(0);
        let mut at_time = now.saturating_sub(age);
        if capture != Some(self.captures) {
            at_time = at_time.min(self.border.saturating_sub(1));
        }
        let Some(at) = self.free_place(now, ended) else { return Err(Box::new(flow)) };
        if self.fill(at, key, hash, client_is_high, at_time).is_none() {
            return Err(Box::new(flow));
        }
        self.put(at, flow);
        Ok(FlowRef(at))
    }
}

#[cfg(test)]
mod tests {
    use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};

    use super::*;
    use crate::{FlowConfig, FlowState, HashKey, Lookup};

    fn ends(port: u16, vlan: u16) -> Ends {
        let address = |n: u64| [0, 0x0a00_0000 + n];
        Ends { src: address(1), dst: address(2), sport: port, dport: 80, proto: 6, v6: false, vlans: [vlan, 0, 0] }
    }

    #[test]
    fn the_hash_is_as_fine_as_the_key() {
        let a = ends(1000, 0);
        let back = Ends { src: a.dst, dst: a.src, sport: a.dport, dport: a.sport, ..a };
        assert_eq!(a.hash(&HashKey::fixed(7), true), back.hash(&HashKey::fixed(7), true));
        for other in [ends(1001, 0), ends(1000, 5), Ends { v6: true, ..a }, Ends { proto: 17, ..a }] {
            assert_ne!(a.hash(&HashKey::fixed(7), true), other.hash(&HashKey::fixed(7), true));
        }
        assert_eq!(a.hash(&HashKey::fixed(7), false), ends(1000, 5).hash(&HashKey::fixed(7), false));
        assert_ne!(a.hash(&HashKey::fixed(7), true), a.hash(&HashKey::fixed(8), true));
    }

    fn packet(port: u16, time: i64) -> Packet<'static> {
        let time = Time::new(time, 0);
        let mut p = Packet::new(&Frame { data: &[], wire_len: 100, time, link: LinkType::RAW, number: 1 });
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Udp { offset: 20 };
        (p.src, p.dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        (p.sport, p.dport, p.proto) = (port, 53, 17);
        p
    }

    #[test]
    fn a_flow_goes_on_elsewhere() {
        let small = FlowConfig { prealloc: 0, ..FlowConfig::default() };
        let (mut a, mut b) = (FlowTable::<u32>::new(small.clone()), FlowTable::<u32>::new(small));
        let none = &mut |_: Flow<u32>, _| panic!("nothing ends");
        let p = packet(1000, 100);
        let key = a.key(&p, 0).unwrap();
        let address = |n: u64| [0, 0x0a00_0000 + n];
        let ends =
            Ends { src: address(2), dst: address(1), sport: 53, dport: 1000, proto: 17, v6: false, vlans: [0; 3] };
        assert_eq!((key.key, key.hash), (a.key_of(&ends).key, a.key_of(&ends).hash));
        let Lookup::Created(at) = a.lookup(&p, &key, || 5, none) else { panic!() };
        a.update(at, &p, &key, crate::Direction::ToServer);
        assert!(b.leave(&key).is_none());
        b.expire(Time::new(120, 0), 10, none);
        let leaving = a.leave(&b.key_of(&ends)).unwrap();
        assert_eq!((a.len(), leaving.flow.ext, leaving.touched), (0, 5, Time::new(100, 0)));
        let at = b.enter(leaving, none).unwrap();
        assert_eq!((b.len(), b.get(at).unwrap().ext), (1, 5));
        assert_eq!((a.counters.total, b.counters.total, a.counters.recycled, a.counters.end_state), (1, 0, 0, [0; 5]));
        // The answer belongs to the same flow, in the other direction.
        let back = Packet { src: p.dst, dst: p.src, sport: 53, dport: 1000, ..packet(1, 121) };
        let key = b.key(&back, 0).unwrap();
        assert_eq!(b.lookup(&back, &key, || 6, none), Lookup::Found(at, crate::Direction::ToClient));
        b.set_state(at, FlowState::Established);
        // Its idle time counts from its last packet, in whichever table that was.
        let leaving = b.leave(&key).unwrap();
        a.expire(Time::new(200, 0), 10, none);
        a.enter(leaving, none).unwrap();
        let mut ended = Vec::new();
        a.expire(Time::new(420, 0), 10, &mut |f, r| ended.push((f.ext, r)));
        assert!(ended.is_empty());
        a.expire(Time::new(423, 0), 10, &mut |f, r| ended.push((f.ext, r)));
        assert_eq!(ended, [(5, EndReason::Timeout)]);
    }
}
