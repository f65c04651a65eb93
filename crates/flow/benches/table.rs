//! Cost of finding a packet's flow, and of creating one.
#![allow(clippy::unwrap_used)]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use margay_flow::{Direction, FlowConfig, FlowTable, Lookup};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};

fn main() {
    divan::main();
}

/// A datagram of flow `n`.
fn packet<'a>(n: u32, back: bool, seconds: i64) -> Packet<'a> {
    let mut p =
        Packet::new(&Frame { data: &[], wire_len: 100, time: Time::new(seconds, 0), link: LinkType::RAW, number: 1 });
    let [_, a, b, c] = n.to_be_bytes();
    (p.src, p.dst) = ([10, a, b, c].into(), [192, 0, 2, 1].into());
    (p.sport, p.dport) = (1024 + (n % 50_000) as u16, 53);
    if back {
        std::mem::swap(&mut p.src, &mut p.dst);
        std::mem::swap(&mut p.sport, &mut p.dport);
    }
    p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
    p.l4 = L4::Udp { offset: 20 };
    p.proto = 17;
    p
}

fn see(table: &mut FlowTable<()>, p: &Packet<'_>) {
    let Some(key) = table.key(p, 0) else { return };
    match table.lookup(p, &key, || (), &mut |_, _| {}) {
        Lookup::Created(at) => _ = table.update(at, p, &key, Direction::ToServer),
        Lookup::Found(at, d) => _ = table.update(at, p, &key, d),
        _ => {}
    }
}

fn config(flows: u32) -> FlowConfig {
    FlowConfig { hash_size: flows.next_power_of_two().max(65536), memcap: 4 << 30, ..FlowConfig::default() }
}

/// Packets of existing flows in both directions, each of another flow than the previous packet.
#[divan::bench(args = [1_000, 100_000, 1_000_000])]
fn found(b: Bencher<'_, '_>, flows: u32) {
    let mut table = FlowTable::new(config(flows));
    (0..flows).for_each(|n| see(&mut table, &packet(n, false, 1)));
    // A walk with jumps that visits each flow before it repeats one.
    let mut at = 0;
    let packets: Vec<_> = (0..1024)
        .map(|n| {
            at = (at + 611_953) % flows;
            packet(at, n % 2 == 1, 1)
        })
        .collect();
    b.counter(ItemsCount::new(packets.len()))
        .bench_local(|| packets.iter().for_each(|p| see(&mut table, black_box(p))));
}

/// Flows of one packet each: created, and ended by timeout.
#[divan::bench]
fn made_and_ended(b: Bencher<'_, '_>) {
    let mut table = FlowTable::new(config(100_000));
    let (mut n, mut seconds) = (0u32, 1i64);
    b.counter(ItemsCount::new(1024usize)).bench_local(|| {
        for _ in 0..1024 {
            n = (n + 1) & 0xff_ffff;
            see(&mut table, &packet(n, false, seconds));
        }
        seconds += 1;
        while !table.expire(Time::new(seconds, 0), 64, &mut |f, _| {
            black_box(f);
        }) {}
    });
}
