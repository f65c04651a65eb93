//! Measures the search for the patterns of many rules, and the inspection of a packet with them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use margay_detect::mpm::{Matcher, MpmAlgo, Pattern, Scratch};
use margay_detect::{Detect, DetectConfig, DetectState, Environment, Input, StreamChunk};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_rules::{Context, load_str};

fn main() {
    divan::main();
}

/// A deterministic random generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn word(&mut self, low: u64, high: u64) -> String {
        let n = low + self.below(high - low);
        (0..n).map(|_| char::from(b"etaoinshrdlucmfw0123456789_/.=-"[self.below(31) as usize])).collect()
    }
}

/// Text like a web server's response, from words that are also used for patterns.
fn text() -> Vec<u8> {
    let mut d = Draw(7);
    let mut out = Vec::new();
    while out.len() < 1400 {
        out.extend_from_slice(d.word(3, 9).as_bytes());
        out.push(b' ');
    }
    out.truncate(1400);
    out
}

fn patterns(n: usize) -> Vec<Pattern> {
    let mut d = Draw(1);
    let mut all: Vec<Pattern> =
        (0..n).map(|_| Pattern { bytes: d.word(5, 16).into_bytes(), nocase: d.below(3) == 0 }).collect();
    all.sort();
    all.dedup();
    all
}

const ENGINES: [(&str, MpmAlgo); 2] = [("hs", MpmAlgo::Hyperscan), ("ac", MpmAlgo::AhoCorasick)];

/// The multi-pattern matcher on 1,400 bytes.
#[divan::bench(args = [("hs", 100), ("hs", 10_000), ("ac", 100), ("ac", 10_000)])]
fn scan(b: Bencher<'_, '_>, (engine, n): (&str, usize)) {
    let Some((_, algo)) = ENGINES.iter().find(|(name, _)| *name == engine) else { return };
    let Ok(matcher) = Matcher::new(&patterns(n), *algo, true) else { return };
    let (mut scratch, data) = (Scratch::default(), text());
    scratch.prepare(&matcher).unwrap();
    b.counter(BytesCount::new(data.len())).bench_local(|| {
        let mut hits = 0;
        scratch.scan(&matcher, black_box(&data), |_, _, _| hits += 1).expect("the scratch is prepared");
        hits
    });
}

/// Realistic rules: a fast pattern, and for some a second one, an expression, an offset, or bits.
fn rules(n: usize) -> String {
    let mut d = Draw(1);
    (1..=n)
        .map(|sid| {
            let port = ["any", "any", "any", "80", "443", "[25,587]"][d.below(6) as usize];
            let mut o = format!("content:\"{}\"; ", d.word(5, 16));
            match d.below(6) {
                0 => o += &format!("content:\"{}\"; distance:0; ", d.word(4, 9)),
                1 => {
                    o +=
                        &format!("pcre:\"/{}\\s*=\\s*[^\\r\\n]{{20}}/i\"; ", d.word(3, 5).replace(['/', '.', '-'], "x"))
                }
                2 => o += &format!("depth:{}; ", 20 + d.below(60)),
                3 => o += "dsize:>100; ",
                _ => {}
            }
            let fast = if d.below(20) == 0 { "flowbits:set,seen; " } else { "" };
            format!("alert tcp any any -> any {port} (msg:\"{sid}\"; flow:established; {o}{fast}sid:{sid};)\n")
        })
        .collect()
}

/// Inspects a packet of 1,400 bytes in a connection, with its stream chunk, by `count` rules. With `text` few rules find their
/// pattern; with `every pattern` all rules do and are evaluated.
#[divan::bench(args = [("text", 1), ("text", 1_000), ("text", 10_000), ("every pattern", 100)])]
fn inspect(b: Bencher<'_, '_>, (what, count): (&str, usize)) {
    let rules = rules(count);
    let loaded = load_str(&rules, "bench.rules", &Context::default());
    assert!(loaded.errors.is_empty(), "{:?}", loaded.errors.first());
    let (detect, report) = Detect::compile(loaded.rules, &Environment::default(), &DetectConfig::default()).unwrap();
    assert!(report.errors.is_empty(), "{:?}", report.errors.first());
    let mut state = DetectState::new(&detect).unwrap();
    let mut payload = text();
    if what != "text" {
        payload.clear();
        for part in rules.split("content:\"").skip(1) {
            payload.extend_from_slice(part.split('"').next().unwrap().as_bytes());
        }
        payload.resize(1400, b' ');
    }
    let mut flow = FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, ([10, 0, 0, 1].into(), 40000), ([93, 184, 216, 34].into(), 8080), Time(0))
    };
    let mut bytes = vec![0u8; 40];
    (bytes[32], bytes[33]) = (0x50, 0x18);
    bytes.extend_from_slice(&payload);
    let wire_len = bytes.len() as u32;
    let mut p = Packet::new(&Frame { data: &bytes, wire_len, time: Time(0), link: LinkType::RAW, number: 1 });
    p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
    p.l4 = L4::Tcp { offset: 20, header_len: 20 };
    p.proto = 6;
    (p.src, p.dst, p.sport, p.dport) = (flow.src, flow.dst, flow.sport, flow.dport);
    p.payload = (40, wire_len - 40);
    let chunks = [StreamChunk { data: &payload, offset: 0, seen: 0 }];
    b.counter(BytesCount::new(payload.len())).bench_local(|| {
        let mut input = Input::new(&p);
        input.flow = Some(&mut flow);
        input.dir = Some(Direction::ToServer);
        input.established = true;
        input.in_stream = true;
        input.chunks = &chunks;
        state.inspect(&detect, &mut input);
        state.alerts().len()
    });
}

/// Compiles parsed rules.
#[divan::bench(args = [1_000], sample_count = 5, sample_size = 1)]
fn compile(b: Bencher<'_, '_>, count: usize) {
    let rules = rules(count);
    b.with_inputs(|| load_str(&rules, "bench.rules", &Context::default()).rules)
        .bench_local_values(|list| Detect::compile(list, &Environment::default(), &DetectConfig::default()).is_ok());
}
