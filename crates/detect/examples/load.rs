//! Loads and compiles rule files and prints the time and the result of each step. Then it scans synthetic payloads to
//! measure the cost of packets that match nothing.
//!
//! `cargo run --release -p margay-detect --example load -- FILE…` (plain text; addresses and ports as in Suricata's
//! default configuration).

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use margay_detect::{Detect, DetectConfig, DetectState, Environment, Input, StreamChunk};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_rules::{Context, Loader};

fn context() -> Context {
    let available = ["http", "http1", "file", "app-layer"].map(str::to_owned).into();
    Context { available, ..Context::customary() }
}

fn flow() -> FlowCore {
    FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, ([10, 0, 0, 1].into(), 40000), ([93, 184, 216, 34].into(), 8080), Time(0))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let ctx = context();
    let t = Instant::now();
    let mut loader = Loader::new(&ctx);
    for f in std::env::args_os().skip(1) {
        loader.load_file(Path::new(&f))?;
    }
    let mut loaded = loader.finish();
    writeln!(
        out,
        "parsed {} rules, {} set aside, {} wrong, in {:?}",
        loaded.rules.len(),
        loaded.set_aside.len(),
        loaded.errors.len(),
        t.elapsed()
    )?;
    let number = |name: &str| margay_rules::STREAM_EVENTS.iter().position(|e| *e == name)?.try_into().ok();
    let environment = Environment { stream_event: &number, ..Default::default() };
    let t = Instant::now();
    let mut missing: HashMap<String, usize> = HashMap::new();
    for r in &loaded.set_aside {
        *missing.entry(r.missing.join(", ")).or_default() += 1;
    }
    let mut missing: Vec<_> = missing.into_iter().collect();
    missing.sort_by_key(|m| std::cmp::Reverse(m.1));
    for (m, n) in missing.iter().take(12) {
        writeln!(out, "  {n:6} need {m}")?;
    }
    loaded.set_aside.clear();
    let (detect, report) = Detect::compile(loaded.rules, &environment, &DetectConfig::default())?;
    let took = t.elapsed();
    let mut why: HashMap<&str, usize> = HashMap::new();
    for (_, m) in report.set_aside.iter().chain(&report.errors) {
        *why.entry(m).or_default() += 1;
    }
    let mut why: Vec<_> = why.into_iter().collect();
    why.sort_by_key(|w| std::cmp::Reverse(w.1));
    for (m, n) in why.iter().take(12) {
        writeln!(out, "  {n:6} {m}")?;
    }
    writeln!(
        out,
        "compiled {} in {took:?}: {} IP-only, {} of transactions, {} with a pattern, {:?}, {} matchers of {} patterns in {} KiB",
        report.loaded,
        report.ip_only,
        report.transactions,
        report.prefiltered,
        report.groups,
        report.matchers,
        report.patterns,
        report.matcher_memory / 1024
    )?;
    let mut kinds: HashMap<&str, usize> = HashMap::new();
    for i in 0..detect.rules().len() {
        if let Some(k) = detect.kind(i as u32) {
            *kinds.entry(k.name()).or_default() += 1;
        }
    }
    writeln!(out, "kinds: {kinds:?}")?;

    let mut state = DetectState::new(&detect)?;
    let mut flow = flow();
    for (name, text) in [("text", true), ("random", false)] {
        let mut seed = 1u64;
        let payload: Vec<u8> = (0..1400)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let b = (seed >> 56) as u8;
                if text { b" etaoinshrdlu<>/=\"0123456789abcdef"[usize::from(b) % 34] } else { b }
            })
            .collect();
        let mut bytes = vec![0u8; 40];
        bytes[32] = 0x50;
        bytes[33] = 0x18;
        bytes.extend_from_slice(&payload);
        let frame = Frame { data: &bytes, wire_len: 1440, time: Time(0), link: LinkType::RAW, number: 1 };
        let mut p = Packet::new(&frame);
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Tcp { offset: 20, header_len: 20 };
        p.proto = 6;
        (p.src, p.dst, p.sport, p.dport) = (flow.src, flow.dst, flow.sport, flow.dport);
        p.payload = (40, 1400);
        let chunks = [StreamChunk { data: &payload, offset: 0, seen: 0 }];
        let n = 200_000u32;
        let before = state.counters().candidates;
        let t = Instant::now();
        let mut alerts = 0;
        for _ in 0..n {
            let mut input = Input::new(&p);
            input.flow = Some(&mut flow);
            input.dir = Some(Direction::ToServer);
            input.established = true;
            input.in_stream = true;
            input.chunks = &chunks;
            state.inspect(&detect, &mut input);
            alerts += state.alerts().len();
        }
        let each = t.elapsed() / n;
        let candidates = (state.counters().candidates - before) as f64 / f64::from(n);
        writeln!(
            out,
            "{name}: {each:?} a packet of 1,400 bytes ({:.2} Gbit/s), {candidates:.1} candidates, {:.2} alerts",
            1400.0 * 8.0 / each.as_nanos() as f64,
            alerts as f64 / f64::from(n)
        )?;
    }
    Ok(())
}
