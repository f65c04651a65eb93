//! Tests of the flow table's public interface.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use std::net::IpAddr;

use margay_flow::{
    Direction, EndReason, Ends, Flow, FlowConfig, FlowRef, FlowState, FlowTable, HashKey, Lookup, OVER_MIN,
};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};

fn frame(data: &[u8], seconds: i64) -> Packet<'_> {
    Packet::new(&Frame { data, wire_len: 100, time: Time::new(seconds, 0), link: LinkType::RAW, number: 1 })
}

fn udp<'a>(a: &str, b: &str, sport: u16, dport: u16, seconds: i64) -> Packet<'a> {
    let mut p = frame(&[], seconds);
    (p.src, p.dst) = (a.parse().unwrap(), b.parse().unwrap());
    p.l3 = match p.src {
        IpAddr::V4(_) => L3::Ipv4 { offset: 0, header_len: 20, options: 0 },
        IpAddr::V6(_) => L3::Ipv6 { offset: 0, header_len: 40, extensions: 0, fragment: 0 },
    };
    p.l4 = L4::Udp { offset: 20 };
    p.proto = 17;
    (p.sport, p.dport) = (sport, dport);
    p
}

fn icmp<'a>(a: &str, b: &str, kind: u8, data: &'a [u8]) -> Packet<'a> {
    let mut p = udp(a, b, 0, 0, 0);
    p.data = data;
    p.proto = 1;
    p.icmp = (kind, 0);
    p.l4 = L4::Icmpv4 { offset: 0 };
    p.payload = (8, data.len().saturating_sub(8) as u32);
    p
}

struct Bench {
    table: FlowTable<()>,
    ended: Vec<(u64, u16, EndReason)>,
}

impl Bench {
    fn new(config: FlowConfig) -> Self {
        Bench { table: FlowTable::new(config), ended: Vec::new() }
    }
    fn see(&mut self, p: &Packet<'_>) -> Lookup {
        let key = self.table.key(p, 0).unwrap();
        let ended = &mut self.ended;
        let found = self.table.lookup(p, &key, || (), &mut |f: Flow<()>, r| ended.push((f.core.id, f.core.sport, r)));
        match found {
            Lookup::Created(at) => assert!(self.table.update(at, p, &key, Direction::ToServer).is_some()),
            Lookup::Found(at, d) => assert!(self.table.update(at, p, &key, d).is_some()),
            _ => {}
        }
        found
    }
    fn expire(&mut self, seconds: i64) {
        let ended = &mut self.ended;
        while !self.table.expire(Time::new(seconds, 0), 3, &mut |f, r| ended.push((f.core.id, f.core.sport, r))) {}
    }
    fn made(&mut self, p: &Packet<'_>) -> FlowRef {
        match self.see(p) {
            Lookup::Created(at) => at,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn both_directions_are_one_flow() {
    let mut b = Bench::new(FlowConfig::default());
    let at = b.made(&udp("10.0.0.9", "10.0.0.1", 1000, 53, 0));
    assert_eq!(b.table.get(at).unwrap().core.state, FlowState::New);
    assert_eq!(b.see(&udp("10.0.0.1", "10.0.0.9", 53, 1000, 1)), Lookup::Found(at, Direction::ToClient));
    assert_eq!(b.see(&udp("10.0.0.9", "10.0.0.1", 1000, 53, 1)), Lookup::Found(at, Direction::ToServer));
    let core = &b.table.get(at).unwrap().core;
    assert_eq!((core.state, core.pkts, core.bytes), (FlowState::Established, [2, 1], [200, 100]));
    assert!(core.id > 0 && core.id < 1 << 53);
    b.table.swap(at);
    assert_eq!(b.see(&udp("10.0.0.1", "10.0.0.9", 53, 1000, 1)), Lookup::Found(at, Direction::ToServer));
    assert_eq!(b.table.get(at).unwrap().core.sport, 53);
}

#[test]
fn what_tells_flows_apart() {
    let mut b = Bench::new(FlowConfig { hash_size: 1, ..FlowConfig::default() });
    b.made(&udp("1.2.3.4", "5.6.7.8", 1111, 2222, 0));
    b.made(&udp("102:304::", "506:708::", 1111, 2222, 0));
    b.made(&udp("::1.2.3.4", "::5.6.7.8", 1111, 2222, 0));
    let mut tagged = udp("1.2.3.4", "5.6.7.8", 1111, 2222, 0);
    tagged.vlans.push(7);
    b.made(&tagged);
    let mut inner = udp("1.2.3.4", "5.6.7.8", 1111, 2222, 0);
    inner.recursion = 1;
    b.made(&inner);
    let mut ids: Vec<u64> = b.table.iter().map(|(_, f)| f.core.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);

    let config = FlowConfig {
        vlan_use_for_tracking: false,
        recursion_use_for_tracking: false,
        livedev_use_for_tracking: false,
        ..FlowConfig::default()
    };
    let mut b = Bench::new(config);
    b.made(&udp("1.2.3.4", "5.6.7.8", 1111, 2222, 0));
    assert!(matches!(b.see(&tagged), Lookup::Found(..)));
    assert!(matches!(b.see(&inner), Lookup::Found(..)));
}

#[test]
fn pairs_echo_requests_with_replies_and_errors_with_their_flow() {
    let mut b = Bench::new(FlowConfig::default());
    let ping = b.made(&icmp("10.0.0.1", "10.0.0.2", 8, &[0; 8]));
    assert_eq!(b.see(&icmp("10.0.0.2", "10.0.0.1", 0, &[0; 8])), Lookup::Found(ping, Direction::ToClient));
    b.made(&icmp("10.0.0.2", "10.0.0.1", 8, &[0; 8]));
    assert!(b.table.key(&icmp("10.0.0.2", "10.0.0.1", 11, &[0; 8]), 0).is_none());
    // A type without an answer is a flow in each direction.
    let unknown = b.made(&icmp("10.0.0.1", "10.0.0.2", 24, &[0; 8]));
    assert_eq!(b.see(&icmp("10.0.0.1", "10.0.0.2", 24, &[0; 8])), Lookup::Found(unknown, Direction::ToServer));
    b.made(&icmp("10.0.0.2", "10.0.0.1", 24, &[0; 8]));
    b.made(&icmp("10.0.0.2", "10.0.0.1", 255, &[0; 8]));

    let mut bytes = vec![3, 3, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 53, 0, 8, 0, 0]);
    assert_eq!(b.see(&icmp("10.0.0.7", "10.0.0.1", 3, &bytes)), Lookup::Unrelated);
    let at = b.made(&udp("10.0.0.1", "10.0.0.2", 1000, 53, 0));
    assert_eq!(b.see(&icmp("10.0.0.7", "10.0.0.1", 3, &bytes)), Lookup::Found(at, Direction::ToClient));
    assert_eq!(b.table.get(at).unwrap().core.state, FlowState::New);
    for cut in 0..bytes.len() {
        assert!(b.table.key(&icmp("10.0.0.7", "10.0.0.1", 3, &bytes[..cut]), 0).is_none());
    }
}

#[test]
fn pairs_icmpv6_questions_with_answers_of_code_0() {
    fn icmpv6<'a>(a: &str, b: &str, kind: u8, code: u8) -> Packet<'a> {
        let mut p = udp(a, b, 0, 0, 0);
        (p.proto, p.icmp, p.l4) = (58, (kind, code), L4::Icmpv6 { offset: 0 });
        p
    }
    let mut b = Bench::new(FlowConfig::default());
    for (kind, answer) in [(128, 129), (135, 136), (148, 149), (151, 152), (157, 158)] {
        let asked = b.made(&icmpv6("fe80::1", "fe80::2", kind, 0));
        assert_eq!(b.see(&icmpv6("fe80::2", "fe80::1", answer, 0)), Lookup::Found(asked, Direction::ToClient));
        b.made(&icmpv6("fe80::1", "fe80::2", kind, 1));
    }
    b.made(&icmpv6("fe80::1", "fe80::2", 141, 0));
    b.made(&icmpv6("fe80::2", "fe80::1", 142, 0));
}

#[test]
fn silent_flows_time_out() {
    let mut b = Bench::new(FlowConfig::default());
    b.made(&udp("10.0.0.1", "10.0.0.2", 1, 53, 1000));
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 1000));
    b.see(&udp("10.0.0.2", "10.0.0.1", 53, 2, 1020));
    b.expire(1029);
    assert_eq!(b.ended.len(), 0);
    b.expire(1032);
    assert_eq!(b.ended.iter().map(|e| (e.1, e.2)).collect::<Vec<_>>(), [(1, EndReason::Timeout)]);
    // Established: 300 seconds since the last packet.
    b.expire(1319);
    assert_eq!(b.ended.len(), 1);
    // The wheel has not expired it yet, but the lookup finds it too old.
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 1321));
    assert_eq!(b.ended.len(), 2);
    assert_ne!(b.ended[1].0, b.table.iter().next().unwrap().1.core.id);
    // Far ahead, and back again.
    b.expire(10_000_000);
    assert_eq!(b.ended.len(), 3);
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 5));
    b.expire(34);
    assert_eq!(b.ended.len(), 3);
    b.expire(37);
    assert_eq!(b.ended.len(), 4);
    assert!(b.table.is_empty());
    // A packet after the timeout belongs to another flow.
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 100));
    assert!(matches!(b.see(&udp("10.0.0.1", "10.0.0.2", 2, 53, 129)), Lookup::Found(..)));
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 159));
}

#[test]
fn time_that_jumps_back_within_a_capture_ends_no_flow() {
    let mut b = Bench::new(FlowConfig::default());
    let at = b.made(&udp("10.0.0.1", "10.0.0.2", 1, 53, 100_000));
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 10_000));
    b.made(&udp("10.0.0.1", "10.0.0.2", 3, 53, 20_000));
    b.expire(20_000);
    assert_eq!(b.ended.len(), 1, "the second one is silent, the first one is not yet");
    assert_eq!(b.see(&udp("10.0.0.1", "10.0.0.2", 1, 53, 20_001)), Lookup::Found(at, Direction::ToServer));
    b.expire(100_020);
    assert_eq!(b.table.len(), 1);
    b.expire(100_040);
    assert!(b.table.is_empty());

    // The next capture may have earlier times. The table's clock starts again, so old and new flows time out by them.
    b.made(&udp("10.0.0.1", "10.0.0.2", 1, 53, 200_000));
    b.table.begin_capture();
    b.made(&udp("10.0.0.1", "10.0.0.2", 2, 53, 10_000));
    b.expire(10_025);
    assert_eq!(b.table.len(), 2);
    b.expire(10_040);
    assert!(b.table.is_empty());
}

#[test]
fn a_state_with_a_shorter_timeout_counts_at_once() {
    let mut b = Bench::new(FlowConfig::default());
    let mut tcp = udp("10.0.0.1", "10.0.0.2", 1, 80, 1000);
    tcp.proto = 6;
    tcp.l4 = L4::Tcp { offset: 20, header_len: 20 };
    let at = b.made(&tcp);
    b.table.set_state(at, FlowState::Established);
    b.expire(1500);
    assert_eq!(b.table.len(), 1);
    b.table.set_state(at, FlowState::Closed);
    b.expire(1502);
    assert_eq!(b.table.len(), 0);
    assert_eq!(b.table.counters.end_state, [0, 0, 1, 0, 0]);
}

#[test]
fn a_bypassed_flow_that_is_over_waits_no_longer_than_a_closed_one() {
    for (over, closed, last) in [(false, 10, 100), (true, 10, 10), (true, 0, i64::from(OVER_MIN)), (true, 500, 100)] {
        let mut config = FlowConfig::default();
        config.timeouts.udp.normal.closed = closed;
        let mut t = Bench::new(config);
        let at = t.made(&udp("10.0.0.1", "10.0.0.2", 1, 2, 1000));
        t.table.set_state(at, FlowState::CaptureBypassed);
        t.table.set_over(at, !over);
        t.table.set_over(at, over);
        t.expire(1000 + last - 1);
        assert_eq!(t.ended.len(), 0, "{over} {closed}");
        t.expire(1000 + last + 1);
        assert_eq!(t.ended.len(), 1, "{over} {closed}");
    }
    // Packets that the kernel counts keep a bypassed flow alive.
    let mut t = Bench::new(FlowConfig::default());
    let at = t.made(&udp("10.0.0.1", "10.0.0.2", 1, 2, 1000));
    t.table.set_state(at, FlowState::CaptureBypassed);
    t.table.set_over(at, true);
    t.table.get_mut(at).unwrap().core.last = Time::new(1009, 0);
    t.expire(1011);
    assert_eq!(t.ended.len(), 0);
    t.expire(1015);
    assert_eq!(t.ended.len(), 1);
}

#[test]
fn evicts_the_oldest_where_memory_ends() {
    let size = FlowTable::<()>::FLOW_SIZE;
    let config = FlowConfig { memcap: 64 * 4 + size * 10, hash_size: 64, prealloc: 4, ..FlowConfig::default() };
    let mut b = Bench::new(config);
    for i in 0..30 {
        b.made(&udp("10.0.0.1", "10.0.0.2", i, 53, 1000 + i64::from(i)));
    }
    assert_eq!(b.table.len(), 10);
    assert!(b.table.counters.memuse <= 64 * 4 + size * 10);
    assert_eq!(b.ended.iter().map(|e| e.1).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    assert_eq!(b.table.counters.get_used, 20);
    assert!(b.table.emergency());
    // New flows now live 10 seconds, until 30 percent are free.
    for _ in 0..10 {
        b.expire(1035);
    }
    assert_eq!(b.table.len(), 7);
    assert!(!b.table.emergency());
    assert_eq!((b.table.counters.emerg_mode_entered, b.table.counters.emerg_mode_over), (1, 1));
}

#[test]
fn drains_in_the_order_of_start() {
    let mut b = Bench::new(FlowConfig::default());
    for i in [5u16, 3, 9] {
        b.made(&udp("10.0.0.1", "10.0.0.2", i, 53, i64::from(i)));
    }
    let mut order = Vec::new();
    b.table.drain(&mut |f, r| order.push((f.core.sport, r)));
    assert_eq!(order, [(3, EndReason::Shutdown), (5, EndReason::Shutdown), (9, EndReason::Shutdown)]);
    assert!(b.table.is_empty());
}

#[test]
fn a_new_connection_replaces_the_old() {
    let mut b = Bench::new(FlowConfig::default());
    let p = udp("10.0.0.1", "10.0.0.2", 1, 53, 0);
    let at = b.made(&p);
    let id = b.table.get(at).unwrap().core.id;
    let key = b.table.key(&p, 0).unwrap();
    let mut reason = None;
    let new = b.table.replace(at, &p, &key, || (), &mut |_, r| reason = Some(r)).unwrap();
    assert_eq!(reason, Some(EndReason::TcpReuse));
    assert_ne!(b.table.get(new).unwrap().core.id, id);
    assert_eq!((b.table.len(), b.table.counters.tcp_reuse), (1, 1));
}

/// Client addresses and ports of flows to 10.0.0.2:53 that share one bucket of a table with this key and number of
/// buckets.
fn colliding(key: &HashKey, buckets: u64, count: usize) -> Vec<(u8, u16)> {
    let every = (0..=255u8).flat_map(|host| (1..=u16::MAX).map(move |port| (host, port)));
    let with = every.filter(|&(host, sport)| {
        let ends = Ends {
            src: [0, 0x0a00_0100 + u64::from(host)],
            dst: [0, 0x0a00_0002],
            sport,
            dport: 53,
            proto: 17,
            v6: false,
            vlans: [0; 3],
        };
        (u64::from(ends.hash(key, true) as u32) * buckets) >> 32 == 0
    });
    with.take(count).collect()
}

#[test]
fn chosen_collisions_need_the_key_and_end_the_flow_that_is_oldest() {
    const BUCKETS: u32 = 512;
    const FLOWS: usize = 400;
    let known = HashKey::fixed(1);
    let chosen = colliding(&known, u64::from(BUCKETS), FLOWS);
    let with = |hash_key| {
        let mut b = Bench::new(FlowConfig { hash_size: BUCKETS, prealloc: 0, hash_key, ..FlowConfig::default() });
        for (n, (host, port)) in chosen.iter().enumerate() {
            let p = udp(&format!("10.0.1.{host}"), "10.0.0.2", *port, 53, 1);
            b.made(&p);
            // The first flow stays in use, so that it is never the oldest.
            if n > 0 {
                let (host, port) = chosen[0];
                b.see(&udp(&format!("10.0.1.{host}"), "10.0.0.2", port, 53, 1));
            }
        }
        b
    };
    // With the key known all of them collide, and a bucket still has at most 16 flows.
    let b = with(known);
    assert_eq!((b.table.len(), b.table.counters.chain_evicted), (16, FLOWS as u64 - 16));
    assert!(b.ended.iter().all(|e| e.2 == EndReason::Forced) && b.ended.iter().all(|e| e.1 != chosen[0].1));
    // The same packets with a secret key.
    let b = with(HashKey::random());
    assert_eq!((b.table.len(), b.table.counters.chain_evicted, b.ended.len()), (FLOWS, 0, 0));
}

#[test]
fn buckets_that_are_few_hold_all_flows_that_memory_allows() {
    let mut b =
        Bench::new(FlowConfig { hash_size: 16, prealloc: 0, hash_key: HashKey::random(), ..FlowConfig::default() });
    for n in 0..5000u16 {
        b.made(&udp("10.0.0.1", "10.0.0.2", n, 53, 1));
    }
    assert_eq!((b.table.len(), b.table.counters.chain_evicted), (5000, 0));
}

#[test]
fn identifiers_are_those_of_their_key_whatever_the_table_is_keyed_with() {
    let ids = |id_key| {
        let mut b = Bench::new(FlowConfig { hash_key: HashKey::random(), id_key, ..FlowConfig::default() });
        (1..50u16).map(|n| b.made(&udp("10.0.0.1", "10.0.0.2", n, 53, 1))).for_each(drop);
        b.table.iter().map(|(_, f)| f.core.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(HashKey::fixed(4)), ids(HashKey::fixed(4)));
    assert_ne!(ids(HashKey::random()), ids(HashKey::random()));
}
