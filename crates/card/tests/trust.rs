//! Evidence for the simulator: work is conserved, queues behave as in theory, and cache and rows behave like simple reference models.
#![allow(clippy::panic, reason = "a test fails by it")]

use margay_card::cache::Cache;
use margay_card::cost::{Costs, Table};
use margay_card::design::{ASSIGNMENTS, Assignment, Design, PARTS, Part, SHARINGS, Sharing};
use margay_card::dram::{Dram, Timing};
use margay_card::model::{Load, Outcome, simulate};
use margay_card::search;
use margay_card::synthetic::{Random, trace};
use margay_card::trace::{TCP, Trace, Work};
use proptest::prelude::*;

/// One core, for which memory costs nothing. A packet without payload takes the returned number of instructions.
fn plain() -> (Design, Costs, f64) {
    let design = Design {
        cores: 1,
        frequency: 1e9,
        assignment: Assignment::Static,
        dram: Timing { open: 0, first: 0, byte: 0, ..Design::default().dram },
        packets: 4096,
        queue: 4096,
        ..Design::default()
    };
    let costs = Costs {
        assign: 200.0,
        packet: 700.0,
        notify: 100.0,
        scratch: 0.0,
        stall: 0.0,
        data: 0.0,
        code: 0.0,
        ..Costs::default()
    };
    (design, costs, 1000.0)
}

fn bare(packets: usize) -> Trace {
    let work = Work { bytes: 1000, payload: 900, ..Work::default() };
    Trace { flows: vec![7], packets: vec![work; packets], reports: Vec::new() }
}

#[test]
fn saturated_one_core_takes_the_sum_of_costs() {
    let (mut design, costs, instructions) = plain();
    design.cache = 0;
    let outcome = simulate(&design, &costs, &bare(20_000), Load::Saturated);
    let expected = 20_000.0 * instructions * 1000.0;
    assert!((outcome.time as f64 / expected - 1.0).abs() < 0.01, "{} of {expected}", outcome.time);
}

#[test]
fn one_core_agrees_with_a_queue_of_constant_service() {
    let (mut design, costs, instructions) = plain();
    design.cache = 0;
    let service = instructions * 1e-9;
    for load in [0.3, 0.5, 0.8] {
        let rate = load / service * 8000.0;
        let outcome = simulate(&design, &costs, &bare(400_000), Load::Poisson(rate, 12345));
        let expected = service * (1.0 + load / (2.0 * (1.0 - load)));
        let ratio = outcome.mean_latency() / expected;
        assert_eq!(outcome.lost, 0);
        assert!((ratio - 1.0).abs() < 0.01, "at {load}: {ratio}");
    }
}

fn designs() -> Vec<Design> {
    let mut all = Vec::new();
    for (_, assignment) in ASSIGNMENTS {
        for (_, sharing) in SHARINGS {
            for cores in [1, 3, 8, 64] {
                for (cache, matcher, gather) in [(0, 500e6, false), (512, 0.0, false), (65536, 500e6, true)] {
                    all.push(Design { cores, assignment, sharing, cache, matcher, gather, ..Design::default() });
                }
            }
        }
    }
    all
}

/// Checks the bounds that follow from the work of `trace`, of which no packet was lost.
fn bounded(design: &Design, trace: &Trace, outcome: &Outcome) {
    assert_eq!(outcome.done + outcome.lost, trace.packets.len() as u64);
    for busy in outcome.cores.iter().chain(&outcome.dram).chain([&outcome.matcher]) {
        assert!(*busy <= outcome.time, "{design:?} works longer than it takes: {outcome:?}");
    }
    assert_eq!(outcome.stages.iter().sum::<u64>(), outcome.cores.iter().sum::<u64>());
    let (bytes, alerts) =
        trace.packets.iter().fold((0, 0), |(b, a), p| (b + u64::from(p.bytes), a + u64::from(p.alerts)));
    if outcome.lost == 0 {
        assert_eq!((outcome.bytes, outcome.alerts), (bytes, alerts));
        let flushed: u64 = trace.packets.iter().map(|p| u64::from(p.flush)).sum();
        let reports: u64 =
            trace.packets.iter().map(|p| u64::from(if design.matcher > 0.0 { p.all } else { p.group })).sum();
        assert_eq!(outcome.verified, reports);
        if design.matcher > 0.0 {
            assert!(outcome.time as f64 >= flushed as f64 / design.matcher * 1e12 * 0.999);
        }
        // Every byte was written to DRAM by the card's port.
        assert!(
            outcome.time as f64
                >= bytes as f64 * design.dram.byte as f64 / 1000.0 / f64::from(design.dram.chips) * 0.999
        );
        if design.link > 0.0 {
            assert!(outcome.rate() <= design.link);
        }
    }
}

#[test]
fn work_is_conserved_and_no_bound_is_beaten() {
    let trace = trace(1500, 40, 5);
    for mut design in designs() {
        design.check().unwrap();
        bounded(&design, &trace, &simulate(&design, &Costs::default(), &trace, Load::Saturated));
        design.packets = 8;
        bounded(&design, &trace, &simulate(&design, &Costs::default(), &trace, Load::Even(2e9)));
        design.link = 3e8;
        bounded(&design, &trace, &simulate(&design, &Costs::default(), &trace, Load::Saturated));
    }
}

#[test]
fn a_rate_beyond_the_card_loses_packets_and_one_below_does_not() {
    let trace = trace(20_000, 100, 6);
    let design = Design { packets: 64, ..Design::default() };
    let most = simulate(&design, &Costs::default(), &trace, Load::Saturated).rate();
    let below = simulate(&design, &Costs::default(), &trace, Load::Even(most * 0.7));
    let beyond = simulate(&design, &Costs::default(), &trace, Load::Even(most * 1.5));
    assert_eq!(below.lost, 0);
    assert!((beyond.loss() - 1.0 / 3.0).abs() < 0.05, "{}", beyond.loss());
    assert!(beyond.mean_latency() > below.mean_latency());
}

#[test]
fn more_of_anything_is_not_worse() {
    let trace = trace(10_000, 200, 7);
    let rate = |design: &Design| simulate(design, &Costs::default(), &trace, Load::Saturated).rate();
    let base = rate(&Design::default());
    // No shared resource is near its limit, so work that one core does later does not delay another one now.
    let of = |cores| rate(&Design { cores, ..Design::default() });
    assert!(of(2) > of(1) * 1.85 && base > of(2) * 1.75 && of(8) > base * 1.5, "{} {} {base} {}", of(1), of(2), of(8));
    assert!(rate(&Design { frequency: 600e6, ..Design::default() }) > base);
    assert!(rate(&Design { cache: 0, ..Design::default() }) < base);
    assert!(rate(&Design { matcher: 0.0, ..Design::default() }) < base);
    assert!(rate(&Design { sharing: Sharing::Private, assignment: Assignment::Dynamic, ..Design::default() }) < base);
}

#[test]
fn hardware_steers_without_cores() {
    let trace = trace(5_000, 300, 8);
    let by_core = Design { assignment: Assignment::Static, ..Design::default() };
    let by_hardware = Design { steered: true, ..by_core.clone() };
    by_hardware.check().unwrap();
    for (packets, queue) in [(256, 32), (16, 2)] {
        let run = |design: &Design, load| {
            let design = Design { packets, queue, ..design.clone() };
            let outcome = simulate(&design, &Costs::default(), &trace, load);
            bounded(&design, &trace, &outcome);
            outcome
        };
        let (core, hardware) = (run(&by_core, Load::Saturated), run(&by_hardware, Load::Saturated));
        assert_eq!((hardware.stages[0], hardware.lost), (0, 0));
        assert!(hardware.rate() > core.rate(), "{packets}, {queue}: {} of {}", hardware.rate(), core.rate());
        // A packet whose queue is full is lost, if nothing makes the sender wait.
        assert!(run(&by_hardware, Load::Even(hardware.rate() * 2.0)).lost > 0);
    }
}

#[test]
fn what_the_card_does_the_host_does_not() {
    let trace = trace(8_000, 300, 8);
    let run = |part| {
        let design = Design { part, ..Design::default() };
        let outcome = simulate(&design, &Costs::default(), &trace, Load::Saturated);
        assert_eq!(outcome.done, 8_000, "{part:?}");
        outcome
    };
    let outcomes: Vec<Outcome> = PARTS.iter().rev().map(|p| run(p.1)).collect();
    // From steering to doing everything, the host does less and less, and the card more.
    for pair in outcomes.windows(2) {
        assert!(pair[1].host_work < pair[0].host_work && pair[1].rate() < pair[0].rate(), "{pair:?}");
    }
    let bytes: u64 = trace.packets.iter().map(|p| u64::from(p.bytes)).sum();
    assert_eq!(outcomes[0].host, (8_000, bytes));
    let wanted = |p: &&Work| p.flush > 0 && (p.group > 0 || p.uris > 0);
    assert_eq!(outcomes[2].host.0, trace.packets.iter().filter(wanted).count() as u64);
    let alerts: f64 = trace.packets.iter().map(|p| f64::from(p.alerts)).sum();
    assert_eq!((outcomes[3].host.0, outcomes[3].host_work), (0, alerts * Costs::default().host_packet));
    // The inputs: packets, strings in inspected bytes, verification, URIs.
    let costs = Costs::default();
    let sum = |of: &dyn Fn(&Work) -> f64| trace.packets.iter().map(of).sum::<f64>();
    let all = 8_000.0 * costs.host_packet
        + sum(&|p| f64::from(p.flush)) * costs.host_byte
        + sum(&|p| f64::from(p.group)) * costs.host_verify
        + sum(&|p| f64::from(p.uris)) * costs.uri
        + sum(&|p| f64::from(p.uri_bytes)) * costs.uri_byte;
    assert!((outcomes[0].host_work / all - 1.0).abs() < 1e-9);
    let at = outcomes[0].host_cores(100e9, costs.host_core);
    assert!((at - all / (bytes as f64 * 8.0) * 100e9 / costs.host_core).abs() < 1e-6);
}

#[test]
fn the_rest_of_a_flow_that_needs_no_more_does_not_go_up() {
    let work = |flow, payload, flush| Work { flow, bytes: 60 + payload, payload, flush, flags: TCP, ..Work::default() };
    // The first flow is inspected once, and then has two packets with payload between two without.
    let packets = vec![
        work(0, 0, 0),
        work(0, 500, 500),
        work(0, 0, 0),
        work(1, 100, 0),
        work(0, 900, 0),
        work(1, 100, 200),
        work(0, 900, 0),
    ];
    let trace = Trace { flows: vec![1, 2], packets, reports: vec![] };
    let design = Design { part: Part::Track, ..Design::default() };
    let outcome = simulate(&design, &Costs::default(), &trace, Load::Saturated);
    assert_eq!((outcome.done, outcome.host.0), (7, 5));
}

#[test]
fn a_flow_with_an_alert_is_dropped_from_there_on() {
    let mut trace = trace(4_000, 40, 8);
    let most = simulate(&Design::default(), &Costs::default(), &trace, Load::Saturated).rate();
    let design = Design { prevention: true, ..Design::default() };
    let run = |trace: &Trace| simulate(&design, &Costs::default(), trace, Load::Even(most * 0.2));
    let outcome = run(&trace);
    let with_alerts: std::collections::HashSet<u32> =
        trace.packets.iter().filter(|p| p.alerts > 0).map(|p| p.flow).collect();
    // Packets that were on the card at the time of the alert may have an alert, too.
    assert!(outcome.dropped > 0 && outcome.alerts >= with_alerts.len() as u64 && outcome.alerts < 60, "{outcome:?}");
    assert_eq!((outcome.done, outcome.lost), (4_000, 0));
    trace.packets.iter_mut().for_each(|p| p.alerts = 0);
    assert_eq!(run(&trace).dropped, 0);
}

#[test]
fn one_flow_uses_one_core_unless_it_may_move() {
    let trace = trace(5_000, 1, 8);
    let run = |assignment| {
        simulate(&Design { assignment, cores: 8, ..Design::default() }, &Costs::default(), &trace, Load::Saturated)
    };
    let (fixed, moved) = (run(Assignment::Dynamic), run(Assignment::Reassign));
    assert_eq!(fixed.moved, 0);
    assert!(moved.moved > 0);
    assert!(moved.rate() > fixed.rate());
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let text = "%YAML 1.1\n---\ncores: [1, 2, 4]\nfrequency: [200 MHz, 500 MHz]\ndata-cache: [0, 16, 4 KB]\n";
    let (candidates, impossible) = search::grid(text, "grid.yaml").unwrap();
    assert_eq!((candidates.len(), impossible), (12, 6));
    let trace = trace(1000, 20, 9);
    let todo: Vec<usize> = (0..candidates.len()).collect();
    let all = |threads| {
        let mut found = Vec::new();
        search::run(&candidates, &todo, &Costs::default(), &trace, Load::Saturated, threads, &mut |f| {
            found.push(f.clone());
            true
        });
        found.sort_by_key(|f| f.number);
        found
    };
    let one = all(1);
    assert_eq!(one.len(), candidates.len());
    assert_eq!(one, all(3));
    let front = search::pareto(&one);
    assert!(front.windows(2).all(|w| w[0].cost.area < w[1].cost.area && w[0].rate < w[1].rate));
    let best = front.last().unwrap();
    assert_eq!(search::cheapest(&one, best.rate, 0.0).unwrap().rate, best.rate);
    assert!(search::cheapest(&one, best.rate * 1.01, 0.0).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The reference is a list of sets, each a list of blocks by their last use.
    #[test]
    fn the_cache_is_as_a_simple_one(seed: u64, size in 0u32..6, ways in 0u32..3, block in 3u32..7) {
        let (ways, block) = (1usize << ways, 1u32 << block);
        let size = (ways as u32 * block) << size;
        let sets = (size / block) as usize / ways;
        let mut reference = vec![Vec::<u32>::new(); sets];
        let mut cache = Cache::new(size, ways as u32, block);
        let mut random = Random(seed);
        for _ in 0..2000 {
            let address = random.below(u64::from(size) * 3) as u32;
            let number = address / block;
            let set = &mut reference[number as usize % sets];
            let there = set.contains(&number);
            set.retain(|n| *n != number);
            set.push(number);
            if set.len() > ways {
                set.remove(0);
            }
            prop_assert_eq!(cache.read(address), there);
        }
    }

    #[test]
    fn rows_are_counted_as_a_map_of_open_rows_counts(seed: u64, chips in 1u32..5, banks in 1u32..5) {
        let timing = Timing { chips, banks, ..Design::default().dram };
        let mut dram = Dram::new(timing.clone());
        let mut open = std::collections::HashMap::new();
        let mut random = Random(seed);
        let (mut rows, mut busy, mut now) = (0, 0, 0);
        for _ in 0..1000 {
            let address = random.below(1 << 18) as u32 & !31;
            let row = address / timing.row;
            let new = open.insert((row % chips, row / chips % banks), row) != Some(row);
            rows += u64::from(new);
            busy += 32 * timing.byte / 1000 + if new { timing.open } else { 0 };
            let end = dram.access(now, address, 32, 1);
            prop_assert!(end >= now + timing.first);
            now += random.below(100_000);
        }
        prop_assert_eq!(dram.opened, rows);
        prop_assert_eq!(dram.busy.iter().sum::<u64>(), busy);
    }

    #[test]
    fn a_trace_survives_its_file(seed: u64, packets in 1usize..300) {
        let made = trace(packets, 9, seed);
        prop_assume!(made.packets.iter().any(|p| p.payload > 0));
        let bytes = made.to_bytes();
        prop_assert_eq!(&Trace::from_bytes(&bytes, "x").unwrap(), &made);
        prop_assert!(Trace::from_bytes(&bytes[..bytes.len() - 1], "x").is_err());
    }

    #[test]
    fn no_file_makes_the_reader_panic(at in 0usize..400, to: u8) {
        let mut bytes = trace(8, 3, 1).to_bytes();
        if let Some(b) = bytes.get_mut(at) {
            *b = to;
        }
        let _ = Trace::from_bytes(&bytes, "x");
    }
}

#[test]
fn bad_files_are_told_with_file_and_line() {
    let told = |text: &str| Design::from_yaml(&format!("%YAML 1.1\n---\n{text}"), "d.yaml").unwrap_err().to_string();
    for (text, expected) in [
        ("cores: 4\nspeed: 3\n", "d.yaml:4"),
        ("frequency: 500\n", "d.yaml:3"),
        ("cores: 0\n", "not a whole number from 1 to 64"),
        ("data-cache: 3000\n", "not a power of two"),
        ("data-cache: 32\n", "no room for 2 ways"),
        ("matcher: 0\ngather: yes\n", "gather needs a matcher"),
        ("steering: hardware\n", "assignment has to be static"),
        ("prevention: yes\npart: filter\n", "prevention needs a card that does all"),
        ("part: some\n", "all, filter, track, steer"),
        ("assignment: best\n", "static, dynamic, reassign"),
    ] {
        let why = told(text);
        assert!(why.contains(expected) && why.starts_with("d.yaml"), "{text}: {why}");
    }
    let none = Trace::from_bytes(b"pcap", "t.work").unwrap_err().to_string();
    assert!(none.contains("t.work: this is not a work trace"), "{none}");
    let empty = Trace { flows: vec![0], packets: vec![Work::default()], reports: vec![] };
    let why = Trace::from_bytes(&empty.to_bytes(), "t.work").unwrap_err().to_string();
    assert!(why.contains("no packet of the trace has payload"), "{why}");
}

/// A file of the checkout.
fn file(name: &str) -> String {
    let path = format!("{}/../../lab/card/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_files_of_the_checkout_are_what_is_built_in() {
    assert_eq!(Table::from_yaml(&file("costs.yaml"), "costs.yaml").unwrap().costs, Costs::default());
    assert_eq!(Design::from_yaml(&file("linesnort.yaml"), "linesnort.yaml").unwrap(), Design::default());
    for card in ["bluefield-2.yaml", "bluefield-3.yaml", "fpga.yaml", "switch.yaml"] {
        Design::from_yaml(&file(card), card).unwrap();
    }
    Table::from_yaml(&(file("costs-fpga.yaml")), "costs-fpga.yaml").unwrap();
    assert_eq!(search::grid(&file("grid.yaml"), "grid.yaml").unwrap().0.len(), 5 * 5 * 5 * 2 * 2 * 3);
}
