//! The cost of writing an event: rendering the line and handing it to the file, here /dev/null.
#![allow(clippy::unwrap_used)]

use divan::Bencher;
use margay_output::Outputs;
use margay_output::eve::signature_json;
use margay_output::event::*;
use margay_output::settings::EveSettings;
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};

fn main() {
    divan::main();
}

fn outputs(change: impl FnOnce(&mut EveSettings)) -> Outputs {
    let mut eve = EveSettings::file("/dev/null", EventType::all().collect());
    change(&mut eve);
    Outputs::new(vec![Box::new(eve)], Time(0), 1).unwrap()
}

fn packet(data: &[u8]) -> Packet<'_> {
    let wire_len = data.len() as u32;
    let time = Time::new(1_700_000_000, 1);
    let mut p = Packet::new(&Frame { data, wire_len, time, link: LinkType::RAW, number: 7 });
    (p.src, p.dst) = ([192, 168, 1, 20].into(), [203, 0, 113, 5].into());
    (p.sport, p.dport, p.proto) = (49_152, 80, 6);
    p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
    p.l4 = L4::Tcp { offset: 20, header_len: 20 };
    p.payload = (40, wire_len - 40);
    p
}

#[divan::bench(args = [false, true])]
fn alert(b: Bencher<'_, '_>, with_payload: bool) {
    let data = [&[0u8; 40][..], &b"GET /index.html HTTP/1.1\r\nHost: example.org\r\n".repeat(16)].concat();
    let p = packet(&data);
    let mut out = outputs(|eve| {
        eve.alert.payload = with_payload;
        eve.alert.payload_printable = with_payload;
        eve.alert.packet = with_payload;
    });
    let mut rule = Signature {
        gid: 1,
        id: 2_012_345,
        rev: 3,
        msg: Some(b"A rule's message, as long as they are"),
        category: Some("Attempted Administrator Privilege Gain"),
        priority: 1,
        ..Signature::default()
    };
    // The engine keeps this text after a rule's first alert.
    let text = signature_json(&rule);
    rule.text = Some(&text);
    let event = AlertEvent {
        place: (0, 1),
        header: Header { flow_id: Some(1_970_855_314_279_086), ..Header::of(&p) },
        packet: &p,
        signature: rule,
        blocked: false,
        would_drop: false,
        engine: None,
        tx_id: Some((0, false)),
        xff: None,
        context: None,
        progress: None,
        app: None,
        files: None,
        app_protos: AppProtos::default(),
        direction: Some(Direction::ToServer),
        flow: None,
        payload: with_payload.then_some(Payload { data: p.payload(), stream: false }),
        verdict: None,
        capture_file: None,
    };
    b.bench_local(|| out.alert(&event));
}

#[divan::bench]
fn flow(b: Bencher<'_, '_>) {
    let data = [0u8; 40];
    let p = packet(&data);
    let mut out = outputs(|_| ());
    let event = FlowEvent {
        header: Header { flow_id: Some(1_970_855_314_279_086), ..Header::of(&p) },
        app_protos: AppProtos::default(),
        pkts: [12, 17],
        bytes: [1_234, 23_456],
        start: Time::new(1_700_000_000, 1),
        end: Time::new(1_700_000_009, 1),
        state: "closed",
        reason: "timeout",
        alerted: false,
        action: None,
        emergency: false,
        bypass: None,
        bypassed: None,
        exception_policies: &[],
        tx_cnt: 3,
        elephant: false,
        ttl: [(64, 64); 2],
        tcp: None,
    };
    b.bench_local(|| out.flow(&event));
}
