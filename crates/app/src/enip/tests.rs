//! Captured messages, and invalid ones.

use super::*;
use crate::testing::Talk;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// A message without a session.
fn message(command: u16, status: u32, context: u8, data: &[u8]) -> Vec<u8> {
    let mut out = command.to_le_bytes().to_vec();
    out.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
    out.extend([0; 4]);
    out.extend(status.to_le_bytes());
    out.extend([context, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(data);
    out
}

fn item(of: u16, data: &[u8]) -> Vec<u8> {
    [&of.to_le_bytes()[..], &u16::try_from(data.len()).unwrap().to_le_bytes(), data].concat()
}

/// A CIP message on a connection, with its sequence number.
fn connected(sequence: u16, cip: &[u8]) -> Vec<u8> {
    let data = item(0xb1, &[&sequence.to_le_bytes()[..], cip].concat());
    message(0x70, 0, 0, &[&[0, 0, 0, 0, 1, 0, 2, 0][..], &item(0xa1, b"\x01\x0b\x7c\x00"), &data].concat())
}

/// Several CIP messages in one; `head` is the outer header.
fn multiple(head: &[u8], all: &[&[u8]]) -> Vec<u8> {
    let mut out = head.to_vec();
    out.extend(u16::try_from(all.len()).unwrap().to_le_bytes());
    let mut at = 2 + 2 * all.len();
    for one in all {
        out.extend(u16::try_from(at).unwrap().to_le_bytes());
        at += one.len();
    }
    out.extend(all.concat());
    out
}

const IDENTITY: &[u8] = b"\x01\x00\x00\x02\xaf\x12\xac\x19\x17\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x0c\x00\x3a\x00\x04\x03\x30\x00\x8e\x4d\x52\x00\x0b1756-ENBT/A\x03";

fn enip() -> Talk {
    Talk::tcp(AppProto::Enip, 44818)
}

#[test]
fn a_device_tells_what_it_is() {
    let mut talk = Talk::udp(AppProto::Enip, 44818);
    talk.client(&message(0x63, 0, 0, b""));
    assert_eq!(talk.complete(), [[true, false]]);
    talk.server(&message(0x63, 0, 0, &[b"\x01\x00", &item(0x0c, IDENTITY)[..]].concat()));
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]], vec![]));
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"enip":{"request":{"command":"list_identity","status":"success"},"response":{"command":"list_identity","#,
            r#""status":"success","identity":{"protocol_version":1,"revision":"4.3","#,
            r#""vendor_id":"Rockwell Automation/Allen-Bradley","device_type":"Communications Adapter","product_code":58,"#,
            r#""status":48,"serial":5393806,"product_name":"1756-ENBT/A","state":3}}}}"#
        )]
    );
    for (name, want) in [
        ("enip.protocol_version", 1),
        ("enip.revision", 0x403),
        ("enip.identity_status", 0x30),
        ("enip.state", 3),
        ("enip.serial", 0x0052_4d8e),
        ("enip.product_code", 58),
        ("enip.device_type", 12),
        ("enip.vendor_id", 1),
    ] {
        assert_eq!((talk.numbers(name, TC), talk.numbers(name, TS)), (vec![want], vec![]), "{name}");
    }
    assert_eq!(talk.buffers("enip.product_name", TC), ["1756-ENBT/A"]);
    assert_eq!((talk.numbers("enip_command", TS), talk.numbers("enip_command", TC)), (vec![0x63], vec![0x63]));
}

#[test]
fn services_and_sessions() {
    let mut talk = enip();
    let services = item(0x100, b"\x01\x00\x20\x01Communications\0\0");
    talk.client(&message(4, 0, 1, b"")).server(&message(4, 0, 1, &[b"\x01\x00", &services[..]].concat()));
    talk.client(&message(0x65, 0, 2, b"\x01\0\0\0")).server(&message(0x65, 0x69, 2, b"\x01\0\0\0"));
    talk.client(&message(0x66, 0, 2, b""));
    assert_eq!((talk.numbers("enip.capabilities", TC), talk.numbers("enip.status", TC)), (vec![0x120], vec![0, 0x69]));
    assert_eq!(talk.buffers("enip.service_name", TC), ["Communications"]);
    assert_eq!(talk.numbers("enip.protocol_version", TS), [1]);
    let logs = talk.logs();
    assert!(
        logs[0]
            .contains(r#""list_services":{"protocol_version":1,"capabilities":288,"service_name":"Communications"}"#)
    );
    assert!(
        logs[1].contains(r#""status":"unsupported_prot_rev","register_session":{"protocol_version":1,"options":0}"#)
    );
    assert_eq!(logs[2], r#"{"enip":{"request":{"command":"unregister_session","status":"success"}}}"#);
    assert_eq!(talk.complete(), [[true, true]; 3]);
}

#[test]
fn messages_of_cip() {
    let list = b"\x03\x02\x20\x01\x24\x01\x02\x00\x05\x00\x07\x00";
    let single = b"\x0e\x04\x21\x00\x46\x01\x24\x01\x30\x06";
    let mut talk = enip();
    talk.shared.frames.wanted = true;
    talk.client(&connected(7, &multiple(b"\x0a\x02\x20\x02\x24\x01", &[list, single])));
    let marks: Vec<_> = talk.shared.frames.flow.of(TS).iter().map(|f| (f.kind, f.offset, f.end)).collect();
    // The message, its header and data; two items; the CIP message and two nested ones.
    let frames = [
        (0, 0, Some(80)),
        (1, 0, Some(24)),
        (2, 24, Some(80)),
        (3, 32, Some(40)),
        (3, 40, Some(80)),
        (4, 46, Some(80)),
        (4, 58, Some(70)),
        (4, 70, Some(80)),
    ];
    assert_eq!(marks, frames);
    talk.shared.frames.wanted = false;
    // The same context: the sequence number identifies the request.
    talk.client(&connected(8, b"\x4c\x03\x91\x03tag\x00\x01\x00"));
    talk.server(&connected(8, b"\xcc\x00\x05\x01\x08\x21"));
    talk.server(&connected(7, &multiple(b"\x8a\x00\x1e\x00", &[b"\x83\x00\x00\x00", b"\x8e\x00\x14\x00"])));
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]; 2], vec![]));
    assert_eq!(talk.numbers("enip.cip_class", TS), [2, 1, 0x146]);
    assert_eq!(talk.numbers("enip.cip_instance", TS), [1, 1, 1]);
    assert_eq!(talk.numbers("enip.cip_attribute", TS), [5, 7, 6]);
    assert_eq!(talk.numbers("enip.cip_status", TC), [0x1e, 0, 0x14, 5]);
    assert_eq!(talk.numbers("enip.cip_extendedstatus", TC), [0x2108]);
    assert_eq!(talk.numbers("cip_service", TC), []);
    assert_eq!(
        talk.logs(),
        [
            concat!(
                r#"{"enip":{"request":{"command":"send_unit_data","status":"success","cip":{"service":"Multiple Service Packet","#,
                r#""path":[{"segment_type":"class","value":2},{"segment_type":"instance","value":1}],"#,
                r#""class_name":"Message Router","multiple":[{"service":"Get Attribute List","#,
                r#""path":[{"segment_type":"class","value":1},{"segment_type":"instance","value":1}],"class_name":"Identity"},"#,
                r#"{"service":"Get Attribute Single","path":[{"segment_type":"class","value":326},"#,
                r#"{"segment_type":"instance","value":1},{"segment_type":"attribute","value":6}]}]}},"#,
                r#""response":{"command":"send_unit_data","status":"success","cip":{"service":"Multiple Service Packet","#,
                r#""status":"Embedded service error","multiple":[{"service":"Get Attribute List","status":"Success"},"#,
                r#"{"service":"Get Attribute Single","status":"Attribute not supported"}]}}}}"#
            ),
            concat!(
                r#"{"enip":{"request":{"command":"send_unit_data","status":"success","cip":{"service":"Unknown (0x4c)","#,
                r#""path":[{"segment_type":"symbol","value":"tag"}]}},"response":{"command":"send_unit_data","status":"success","#,
                r#""cip":{"service":"Unknown (0x4c)","status":"Path destination unknown","status_extended":8456}}}}"#
            ),
        ]
    );
}

#[test]
fn a_service_with_class_and_attribute() {
    let mut talk = enip();
    talk.client(&connected(1, b"\x10\x03\x20\xf6\x24\x01\x30\x06")).client(&connected(2, b"\x05\x02\x20\x01\x24\x01"));
    // Through the connection manager of another device.
    let forwarded = b"\x52\x02\x20\x06\x24\x01\x0a\x05\x06\x00\x07\x02\x20\x01\x24\x01\x01\x00\x01\x00";
    let data = [&[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0][..], &item(0xb2, forwarded)].concat();
    talk.client(&message(0x6f, 0, 1, &data));
    let numbers = talk.numbers("cip_service", TS);
    let holds = |text: &str| {
        let Ok(NumberCondition::Compare { text, .. }) = cip_service(text) else { panic!("{text} is refused") };
        let (mask, value) = text.strip_prefix("&0x").and_then(|t| t.split_once("=0x")).unwrap();
        let [mask, value] = [mask, value].map(|n| u64::from_str_radix(n, 16).unwrap());
        numbers.iter().filter(|n| **n & mask == value).count()
    };
    assert_eq!((holds("16"), holds("16,246"), holds("16, 246, 6"), holds("16,246,7")), (1, 1, 1, 0));
    assert_eq!((holds("5"), holds("5,1"), holds("5,1,0"), holds("7,1"), holds("82,6")), (1, 1, 0, 1, 1));
    for bad in ["", "128", "16,", "16,246,6,1", "x", "16,65536"] {
        assert!(cip_service(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_broken_has_an_event() {
    let good = connected(1, b"\x0e\x03\x20\x01\x24\x01\x30\x06");
    // Items that exceed the message; a path that exceeds its item; no data.
    let mut items = good.clone();
    items[34] = 0xff;
    let mut path = good.clone();
    path[47] = 9;
    for bad in [items, path, message(0x70, 0, 0, b"")] {
        let mut talk = enip();
        talk.client(&bad);
        assert_eq!((talk.events(), talk.outcome), (vec!["invalid_pdu"], Outcome::More));
        talk.client(&good);
        assert_eq!(talk.txs().len(), 2);
    }
    let mut talk = enip();
    talk.client(&message(0x1234, 0, 0, b"12"));
    assert_eq!((talk.events(), talk.outcome), (vec!["invalid_pdu"], Outcome::Failed));
    // A response without a request is a transaction of its own.
    let mut talk = enip();
    talk.server(&connected(1, b"\x8e\x00\x00\x00"));
    assert_eq!(talk.complete(), [[true, true]]);
    assert!(talk.logs()[0].starts_with(r#"{"enip":{"response":{"#));
}

#[test]
fn offsets_that_overlap_are_read_once() {
    // All offsets point to the first message: only one is parsed, whatever the count.
    let mut all = b"\x0a\x02\x20\x02\x24\x01\x00\x40".to_vec();
    (0..0x4000).for_each(|_| all.extend(0x8002u16.to_le_bytes()));
    all.extend(b"\x0e\x03\x20\x01\x24\x01\x30\x06");
    let mut talk = enip();
    talk.client(&connected(1, &all));
    assert!(talk.numbers("enip.cip_class", TS).len() <= 2);
    assert_eq!(talk.events(), ["invalid_pdu"]);
}

#[test]
fn a_gap_is_overcome() {
    let request = connected(1, b"\x0e\x03\x20\x01\x24\x01\x30\x06");
    let mut talk = enip();
    talk.client(&request[..30]).gap(TS, 100);
    talk.client(&[&request[40..], &connected(2, b"\x0e\x03\x20\x02\x24\x01\x30\x06")[..]].concat());
    assert_eq!(talk.numbers("enip.cip_class", TS), [2]);
}

#[test]
fn open_transactions_are_limited() {
    let mut talk = enip();
    for n in 0..2 * TXS_MAX {
        talk.client(&connected(n as u16, b"\x0e\x03\x20\x01\x24\x01\x30\x06"));
    }
    assert!(talk.txs().len() <= TXS_MAX);
    assert!(talk.events().contains(&"too_many_transactions"));
    assert!(talk.shared.counters.tx_limit[AppProto::Enip as usize] > 0);
}

#[test]
fn any_byte_may_be_wrong() {
    let identity = message(0x63, 0, 0, &[b"\x01\x00", &item(0x0c, IDENTITY)[..]].concat());
    let request = connected(7, &multiple(b"\x0a\x02\x20\x02\x24\x01", &[b"\x03\x02\x20\x01\x24\x01\x01\x00\x05\x00"]));
    for whole in [identity, request] {
        for i in 0..whole.len() {
            for b in [0, 1, 0x7f, 0x80, 0x91, 0xff] {
                let mut bad = whole.clone();
                bad[i] = b;
                let mut talk = enip();
                talk.client(&bad).server(&bad).end();
                talk.logs();
                talk.buffers("enip.product_name", TC);
            }
        }
    }
}

#[test]
fn recognised_by_its_header() {
    assert_eq!(probe(TS, &message(0x63, 0, 0, b"")), Probed::Yes { reverse: false });
    assert_eq!(datagram(TS, &message(0x63, 0, 0, b"")), Probed::Yes { reverse: false });
    assert_eq!(datagram(TS, &[message(0, 0, 0, b""), b"more".to_vec()].concat()), Probed::No);
    assert_eq!((probe(TS, b"\x63\0"), probe(TS, &message(0x12, 0, 0, b""))), (Probed::More, Probed::No));
}
