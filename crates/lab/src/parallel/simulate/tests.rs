//! Loads with a known result.

use super::*;
use crate::stats::Random;
use load::Packet;

/// A machine on which only the measured costs count.
const FREE: Machine = Machine {
    wake: 0,
    ring: 0,
    give: 0,
    take: 0,
    far: 0,
    give_flow: 0,
    move_flow: 0,
    flush: 0,
    order: 0,
    help: 0,
    threshold: 100,
    gain: 256,
    beside: 1.0,
};

const ALL: [Strategy; 6] = [
    Strategy::Hash,
    Strategy::ShortestQueue,
    Strategy::Conservative,
    Strategy::Optimistic,
    Strategy::Study,
    Strategy::Adaptive,
];

/// A load of `packets` packets that alternate between `flows` flows.
fn many(packets: u32, flows: u32, each: Packet) -> Load {
    let mut random = Random(5);
    Load {
        packets: (0..packets).map(|n| Packet { flow: n % flows, ..each }).collect(),
        hashes: (0..flows).map(|_| random.next()).collect(),
        ..Load::default()
    }
}

const EACH: Packet = Packet { flow: 0, read: 10, steer: 0, before: 1000, search: 0, stream: 0, after: 1000, len: 1000 };

fn times(load: &Load, strategy: Strategy, workers: usize) -> f64 {
    simulate(load, strategy, workers, &FREE).speedup
}

#[test]
fn one_worker_is_one() {
    let load = many(20_000, 100, EACH);
    for strategy in ALL {
        let s = times(&load, strategy, 1);
        assert!((s - 1.0).abs() < 0.001, "{strategy:?} {s}");
    }
}

#[test]
fn what_is_perfectly_parallel_scales_by_workers() {
    // Many more flows than workers; reading is one part in 200.
    let load = many(200_000, 20_000, EACH);
    for workers in [2usize, 4, 16] {
        for strategy in [Strategy::ShortestQueue, Strategy::Hash] {
            let s = times(&load, strategy, workers);
            assert!(s > workers as f64 * 0.93 && s <= workers as f64 + 0.001, "{strategy:?} {workers}: {s}");
        }
    }
}

#[test]
fn one_flow_by_hash_is_one() {
    let load = many(50_000, 1, EACH);
    for strategy in [Strategy::Hash, Strategy::ShortestQueue] {
        let s = times(&load, strategy, 8);
        // Reading happens in parallel with the inspection.
        assert!((1.0..1.02).contains(&s), "{strategy:?} {s}");
    }
}

#[test]
fn nobody_is_faster_than_reading() {
    let load = many(100_000, 5_000, Packet { read: 100, before: 500, after: 0, ..EACH });
    let s = times(&load, Strategy::ShortestQueue, 64);
    assert!((5.0..=6.0).contains(&s), "{s}");
}

#[test]
fn one_flow_with_helpers_has_amdahls_limit() {
    // Other workers can do 730 of a packet's 1000.
    let load = many(100_000, 1, Packet { read: 0, before: 200, search: 730, after: 70, ..EACH });
    let two = times(&load, Strategy::Adaptive, 2);
    assert!((1.8..=2.0).contains(&two), "{two}");
    for workers in [6, 16] {
        let many = times(&load, Strategy::Adaptive, workers);
        assert!((2.7..=1.0 / 0.27 + 0.01).contains(&many), "{workers}: {many}");
    }
    let hash = times(&load, Strategy::Hash, 16);
    assert!((hash - 1.0).abs() < 0.01, "{hash}");
}

#[test]
fn many_flows_cost_nothing_with_helpers() {
    let load = many(100_000, 5_000, Packet { search: 500, ..EACH });
    for workers in [2usize, 4] {
        let (hash, ours) = (times(&load, Strategy::Hash, workers), times(&load, Strategy::Adaptive, workers));
        assert!(ours > hash * 0.99, "{workers}: {ours} {hash}");
    }
}

#[test]
fn one_flow_in_order_is_one_wherever_it_goes() {
    let load = many(100_000, 1, EACH);
    let of = |strategy| simulate(&load, strategy, 4, &FREE);
    let (wary, bold, study) = (of(Strategy::Conservative), of(Strategy::Optimistic), of(Strategy::Study));
    // The flow always has packets in flight.
    assert!(wary.speedup < 1.1 && wary.moves < 10, "{wary:?}");
    // The flow moves, and the new worker waits for it, because its packets are ordered.
    assert!(bold.speedup < 1.1 && bold.moves > 10 && bold.waited > 0.1, "{bold:?}");
    // Ordering effects afterwards allows a speed-up.
    assert!(study.speedup > 2.0 && study.moves > 10, "{study:?}");
    // Every packet pays the cost of ordering.
    let dear = Machine { order: 2000, ..FREE };
    assert!(simulate(&load, Strategy::Study, 4, &dear).speedup < study.speedup * 0.8);
}

#[test]
fn flows_that_collide_are_kept_or_moved_apart() {
    // Two flows with pauses, both on worker 0 by their hash, and one that begins late: `hash` leaves worker 1 idle.
    let mut load = many(60_000, 2, EACH);
    load.hashes = vec![1, 2];
    let hash = times(&load, Strategy::Hash, 2);
    let shortest = times(&load, Strategy::ShortestQueue, 2);
    assert!(hash < 1.02 && shortest > 1.8, "{hash} {shortest}");
}

#[test]
fn a_flow_that_pauses_is_moved_to_who_has_less_to_do() {
    // Four flows. Two end early, and the other two are on one worker. At times, one of them has no packet in flight.
    let mut load = many(200_000, 4, EACH);
    for (n, p) in (0u32..).zip(&mut load.packets) {
        let of_two = if n / 3000 % 2 == 0 { 0 } else { 2 };
        p.flow = if n < 4000 { n % 4 } else { of_two };
    }
    let conservative = simulate(&load, Strategy::Conservative, 2, &FREE);
    let shortest = times(&load, Strategy::ShortestQueue, 2);
    assert!(conservative.moves >= 1 && conservative.speedup > shortest * 1.2, "{shortest} {conservative:?}");
}

#[test]
fn work_is_neither_lost_nor_made() {
    let mut random = Random(9);
    let mut load = many(50_000, 300, EACH);
    for p in &mut load.packets {
        p.flow = random.below(300) as u32;
        p.search = random.below(3000) as u32;
    }
    load.end = 50_000;
    let work: u64 = load.packets.iter().map(Packet::work).sum();
    let read: u64 = load.packets.iter().map(|p| u64::from(p.read) + u64::from(p.steer)).sum();
    for workers in [1usize, 2, 7, 64] {
        for strategy in ALL.into_iter().filter(|s| *s != Strategy::Adaptive) {
            let s = simulate(&load, strategy, workers, &FREE);
            assert_eq!((s.inspected, s.read, s.searched), (work, read, 0), "{strategy:?} {workers}");
            // The workers cannot do more than the time allows, and the longest part is a lower bound.
            assert!(s.time as f64 * workers as f64 >= (work + read) as f64);
        }
        let s = simulate(&load, Strategy::Adaptive, workers, &FREE);
        assert!(s.inspected + s.searched >= work && s.read == read, "{workers}");
    }
}

#[test]
fn what_is_asked_twice_is_answered_alike() {
    let load = many(30_000, 50, Packet { search: 700, ..EACH });
    for strategy in [Strategy::Optimistic, Strategy::Study, Strategy::Adaptive] {
        let machine = Machine::default();
        assert_eq!(simulate(&load, strategy, 5, &machine), simulate(&load, strategy, 5, &machine));
    }
}

#[test]
fn nothing_to_do_ends() {
    assert_eq!(simulate(&Load::default(), Strategy::Adaptive, 64, &Machine::default()).moves, 0);
}

#[test]
fn waking_and_others_beside_cost() {
    let load = many(100_000, 5_000, EACH);
    let slow = Machine { beside: 1.25, ..FREE };
    let s = simulate(&load, Strategy::ShortestQueue, 2, &slow).speedup;
    assert!((1.5..1.62).contains(&s), "{s}");
}

#[test]
fn a_machine_is_set_by_name() {
    let mut machine = Machine::default();
    machine.set("wake=7").unwrap();
    machine.set("beside=1.5").unwrap();
    assert_eq!((machine.wake, machine.beside), (7, 1.5));
    assert!(machine.set("nonsense=1").unwrap_err().contains("give-flow"));
    assert!(machine.set("wake").is_err() && machine.set("wake=-1").is_err() && machine.set("ring=x").is_err());
    for name in Machine::NAMES.split(", ") {
        machine.set(&format!("{name}=3")).unwrap();
    }
}
