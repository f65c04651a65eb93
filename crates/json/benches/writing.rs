//! The cost of writing the members of events.
#![allow(clippy::unwrap_used)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use margay_json::Json;
use margay_json::time::Clock;
use margay_packet::Time;

fn main() {
    divan::main();
}

/// The head of an event: a time, addresses, ports, names.
#[divan::bench]
fn head_of_an_event(b: Bencher<'_, '_>) {
    let mut j = Json::new();
    let mut clock = Clock::utc();
    let mut n = 0i64;
    b.bench_local(|| {
        n += 700;
        j.clear();
        j.item_object();
        j.time("timestamp", Time::new(1_700_000_000, n), &mut clock);
        j.uint("flow_id", 1_970_855_314_279_086);
        j.uint("pcap_cnt", n.unsigned_abs());
        j.str("event_type", "alert");
        j.ip("src_ip", [192, 168, 1, 20].into());
        j.uint("src_port", 49_152);
        j.ip("dest_ip", [203, 0, 113, 5].into());
        j.uint("dest_port", 443);
        j.str("proto", "TCP");
        j.str("pkt_src", "wire/pcap");
        j.end_object();
        black_box(j.as_bytes().len())
    });
}

fn text(kind: &str) -> Vec<u8> {
    match kind {
        "plain" => b"Mozilla/5.0 (X11; Linux x86_64) ".repeat(32),
        "quoted" => b"a \"name\" in C:\\folder\\file\r\n    ".repeat(32),
        "UTF-8" => "Stra\u{df}e, caf\u{e9}, \u{65e5}\u{672c}\u{8a9e}; ".as_bytes().repeat(32),
        _ => (0..1024u32).map(|n| ((n * 7919) >> 3) as u8).collect(),
    }
}

#[divan::bench(args = ["plain", "quoted", "UTF-8", "binary"])]
fn string(b: Bencher<'_, '_>, kind: &str) {
    let text = text(kind);
    let mut j = Json::new();
    b.counter(BytesCount::new(text.len())).bench_local(|| {
        j.clear();
        j.bytes("value", black_box(&text));
    });
}

#[divan::bench]
fn base64(b: Bencher<'_, '_>) {
    let data = text("binary");
    let mut j = Json::new();
    b.counter(BytesCount::new(data.len())).bench_local(|| {
        j.clear();
        j.base64("payload", black_box(&data));
    });
}
