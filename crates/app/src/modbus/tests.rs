//! Requests and responses of every function, rules from the manual, and invalid messages.

use super::*;
use crate::declare::{NumberCondition, NumberPart};
use crate::testing::Talk;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

fn modbus() -> Talk {
    Talk::tcp(AppProto::Modbus, 502)
}

/// A message of unit 1.
fn message(transaction: u16, pdu: &[u8]) -> Vec<u8> {
    let len = u16::try_from(pdu.len() + 1).unwrap();
    [&transaction.to_be_bytes()[..], &[0, 0], &len.to_be_bytes(), &[1], pdu].concat()
}

/// A conversation of one request and an optional response.
fn talk(request: &[u8], response: &[u8]) -> Talk {
    let mut talk = modbus();
    talk.client(&message(1, request));
    if !response.is_empty() {
        talk.server(&message(1, response));
    }
    talk
}

/// Whether a comparison of a keyword's part holds; supports the forms that the tests need.
fn holds(part: &NumberPart, n: u64) -> bool {
    let v = n >> part.first & ((1 << part.bits) - 1);
    let number = |t: &str| t.trim().parse::<u64>().unwrap();
    if let Some((mask, value)) = part.text.strip_prefix("&0x").and_then(|t| t.split_once("=0x")) {
        let [mask, value] = [mask, value].map(|t| u64::from_str_radix(t, 16).unwrap());
        return v & mask == value;
    }
    if let Some((a, b)) = part.text.split_once("<>") {
        return v > number(a) && v < number(b);
    }
    match part.text.split_at(1) {
        (">", n) => v > number(n),
        ("<", n) => v < number(n),
        _ => v == number(&part.text),
    }
}

/// Whether a rule's keyword matches a conversation.
fn matches(talk: &Talk, keyword: &str) -> bool {
    let Ok(NumberCondition::Parts(parts)) = rule::read(keyword) else { panic!("{keyword} is refused") };
    talk.numbers("modbus", TS).iter().any(|n| parts.iter().all(|p| holds(p, *n)))
}

#[test]
fn registers_that_are_read() {
    let talk = talk(&[3, 0, 0x6b, 0, 3], &[3, 6, 2, 0x2b, 0, 0, 0, 0x64]);
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]], vec![]));
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"modbus":{"id":1,"request":{"transaction_id":1,"protocol_id":0,"unit_id":1,"function_raw":3,"#,
            r#""function_code":"RdHoldRegs","access_type":"READ | HOLDING","category":"PUBLIC_ASSIGNED","error_flags":"NONE","#,
            r#""read":{"address":107,"quantity":3}},"response":{"transaction_id":1,"protocol_id":0,"unit_id":1,"function_raw":3,"#,
            r#""function_code":"RdHoldRegs","access_type":"READ | HOLDING","category":"PUBLIC_ASSIGNED","error_flags":"NONE","#,
            r#""read":{"data":"\u0002+\u0000\u0000\u0000d"}}}}"#
        )]
    );
    assert_eq!(talk.numbers("modbus", TC), []);
}

#[test]
fn members_of_events() {
    for (request, response, want) in [
        (
            &[5, 0, 0xac, 0xff, 0][..],
            &[5, 0, 0xac, 0xff, 0][..],
            r#""access_type":"WRITE | COILS | SINGLE | WRITE_SINGLE""#,
        ),
        (&[5, 0, 0xac, 0xff, 0], &[5, 0, 0xac, 0xff, 0], r#""write":{"address":172,"data":65280}"#),
        (
            &[16, 0, 1, 0, 2, 4, 0, 10, 1, 2],
            &[16, 0, 1, 0, 2],
            r#""write":{"address":1,"quantity":2,"data":"\u0000\n\u0001\u0002"}"#,
        ),
        (
            &[22, 0, 4, 0, 0xf2, 0, 0x25],
            &[22, 0, 4, 0, 0xf2, 0, 0x25],
            r#""write":{"address":4,"and_mask":242,"or_mask":37}"#,
        ),
        (
            &[23, 0, 3, 0, 1, 0, 14, 0, 1, 2, 65, 66],
            &[23, 2, 67, 68],
            r#""read":{"address":3,"quantity":1},"write":{"address":14,"quantity":1,"data":"AB"}},"response""#,
        ),
        (&[8, 0, 4, 0, 0], &[], r#""diagnostic":{"raw":4,"code":"ForceListenOnlyMode","data":"\u0000\u0000"}"#),
        (&[43, 14, 1, 0], &[43, 14, 1, 1, 0, 0, 0], r#""mei":{"raw":14,"code":"RdDevId","data":"\u0001\u0000"}"#),
        (&[1, 0, 0, 0, 1], &[0x81, 2], r#""function_raw":129,"function_code":"RdCoils""#),
        (&[1, 0, 0, 0, 1], &[0x81, 2], r#""exception":{"raw":2,"code":"IllegalDataAddr"}"#),
        (&[65, 49], &[65, 50], r#""category":"USER_DEFINED","error_flags":"NONE","data":"1"}"#),
        (&[8, 0, 22, 0, 0], &[8, 0, 22, 0, 0], r#""category":"RESERVED""#),
    ] {
        let talk = talk(request, response);
        assert!(talk.logs()[0].contains(want), "{} in {}", want, talk.logs()[0]);
        assert_eq!(talk.events(), [] as [&str; 0], "{request:?}");
    }
}

#[test]
fn rules_of_the_manual() {
    let write = talk(&[16, 1, 0xf3, 0, 2, 4, 0, 10, 1, 2], &[]);
    for yes in [
        "function 16",
        "function assigned",
        "function public",
        "function !reserved",
        "function all",
        "access write",
        "access write holding",
        // Addresses count from 1.
        "access write holding, address 500",
        "access write holding, address 501, value >200",
        "access write holding, address 500, value <200",
        "access write holding, address 499<>502",
        "unit 1",
        "unit 0<>5, function 16",
        "unit <2, access write holding, address >500",
    ] {
        assert!(matches(&write, yes), "{yes}");
    }
    for no in [
        "function 6",
        "function user",
        "function !public",
        "access read",
        "access write coils",
        "access write holding, address 499",
        "access write holding, address 502",
        "access write holding, address 500, value >200",
        "unit 2, function 16",
    ] {
        assert!(!matches(&write, no), "{no}");
    }
    assert!(matches(&talk(&[8, 0, 4, 0, 0], &[]), "function 8, subfunction 4"));
    assert!(!matches(&talk(&[8, 0, 4, 0, 0], &[]), "access write"));
    // Address 4 of a read is not a sub-function.
    assert!(!matches(&talk(&[3, 0, 3, 0, 1], &[]), "function 3, subfunction 4"));
    assert!(matches(&talk(&[2, 0, 98, 0, 1], &[]), "access read discretes, address <100"));
    // The last coil of a partial byte.
    let coils = talk(&[15, 0, 0, 0, 10, 2, 0, 2], &[]);
    assert!(
        matches(&coils, "access write coils, address 10, value 1")
            && !matches(&coils, "access write coils, address 9, value 1")
    );
    // A single coil is on or off.
    let on = talk(&[5, 0, 10, 0xff, 0], &[]);
    assert!(
        matches(&on, "access write coils, address 11, value 1")
            && !matches(&on, "access write coils, address 11, value 65280")
    );
    assert!(matches(&talk(&[5, 0, 10, 0, 0], &[]), "access write coils, address 11, value 0"));
    // A function that reads and writes does both, each at its addresses.
    let both = talk(&[23, 0, 3, 0, 2, 0, 14, 0, 1, 2, 0, 9], &[]);
    assert!(
        matches(&both, "access read holding, address 5") && matches(&both, "access write holding, address 15, value 9")
    );
    assert!(!matches(&both, "access write holding, address 5") && !matches(&both, "access read holding, address 15"));
}

#[test]
fn rules_that_are_refused() {
    for bad in [
        "",
        "function",
        "function 128",
        "function other",
        "function !all",
        "subfunction 4",
        "access other",
        "access read other",
        "access write input",
        "access read, value 4",
        "access read holding, address 4, value 4",
        "function 3, address 4",
        "function 3, unit 4",
        "address 4",
    ] {
        assert!(rule::read(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_is_wrong_has_events() {
    for (request, response, want) in [
        (&[5, 0, 0xac, 0x12, 0][..], &[5, 0, 0xac, 0xff, 0][..], &["invalid_value", "value_mismatch"][..]),
        (&[3, 0, 1, 0, 200], &[], &["invalid_value"]),
        (&[3, 0, 1, 0, 2], &[3, 2, 0, 0], &["value_mismatch"]),
        (&[6, 0, 1, 0, 3], &[6, 0, 1, 0, 4], &["value_mismatch"]),
        (&[16, 0, 1, 0, 2, 9, 0, 10, 1, 2], &[], &["invalid_value", "invalid_length"]),
        (&[1, 0, 0, 0, 1], &[0x81, 12], &["invalid_exception_code"]),
        (&[0], &[], &["invalid_function_code"]),
        (&[3, 0, 0], &[], &["invalid_length"]),
        (&[3, 0, 1, 0, 2, 9], &[], &["invalid_length"]),
        (&[6, 0, 1, 0, 3], &[6, 0, 1, 0, 3, 9], &["invalid_length"]),
        (&[1, 0, 0, 0, 1], &[0x81, 2, 0], &["invalid_length"]),
        (&[5, 0, 1, 0xff, 0], &[1, 1, 1], &["unsolicited_response"]),
    ] {
        assert_eq!(talk(request, response).events(), want, "{request:?}");
    }
    let mut talk = modbus();
    talk.client(&[0, 1, 0, 5, 0, 6, 1, 1, 0, 0, 0, 1]);
    assert_eq!((talk.events(), talk.outcome), (vec!["invalid_protocol_id"], Outcome::More));
    talk.client(&[0, 1, 0, 0, 1, 0, 1, 1]);
    assert_eq!((talk.events().last(), talk.outcome), (Some(&"invalid_length"), Outcome::More));
    // Only the header's beginning is read, and parsing continues after the other side has spoken.
    assert!(talk.logs()[1].contains(r#""unit_id":0,"function_raw":0,"function_code":"Unknown""#), "{:?}", talk.logs());
    talk.client(&[0, 2, 0, 0, 0, 6, 1, 1, 0, 0, 0, 1]);
    talk.server(&[0, 1, 0, 0, 0, 3, 1, 0x81, 1]);
    talk.client(&[0, 3, 0, 0, 0, 6, 1, 1, 0, 0, 0, 1]);
    // A message that the stream ends in is ignored.
    talk.client(&[0, 4, 0, 0, 0, 6, 1, 1, 0, 0]).end();
    assert!(talk.logs()[3].contains(r#""transaction_id":3"#) && talk.logs().len() == 4, "{:?}", talk.logs());
}

#[test]
fn responses_find_their_requests() {
    let mut talk = modbus();
    talk.client(&[message(1, &[3, 0, 0, 0, 1]), message(2, &[3, 0, 1, 0, 1])].concat());
    for b in [message(2, &[3, 2, 0, 7]), message(1, &[3, 2, 0, 8])].concat() {
        talk.server(&[b]);
    }
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]; 2], vec![]));
    assert!(talk.logs()[1].contains(r#"{"data":"\u0000\u0007"}"#), "{}", talk.logs()[1]);
    let mut talk = modbus().set("request-flood", 10);
    for n in 0..40 {
        talk.client(&message(n, &[3, 0, 0, 0, 1]));
    }
    assert!(talk.txs().len() <= 10 && talk.events().contains(&"flooded"));
}

/// pymodbus answers functions that it does not know with function 0.
#[test]
fn messages_behind_a_gap() {
    let mut talk = modbus();
    // The rest of a lost message looks like no header; the next one is found in pieces, too.
    let next = [&b"\0\x07\0\x01\0"[..], &message(2, &[3, 0, 0, 0, 1])].concat();
    talk.client(&message(1, &[3, 0, 0, 0, 1])).gap(TS, 12).client(&next[..9]).client(&next[9..]);
    talk.server(&message(2, &[3, 2, 0, 7]));
    assert_eq!((talk.complete(), talk.events()), (vec![[true, false], [true, true]], vec![]));
}

#[test]
fn an_exception_without_a_function() {
    let mut talk = modbus();
    talk.client(&message(9, &[90, 0, 2])).server(&message(9, &[0x80, 1]));
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]], vec![]));
    let mut talk = modbus();
    talk.client(&message(9, &[90, 0, 2])).server(&message(8, &[0x80, 1]));
    assert_eq!(talk.events(), ["unsolicited_response"]);
}

#[test]
fn any_byte_may_be_wrong() {
    let requests: &[&[u8]] =
        &[&[3, 0, 1, 0, 2], &[16, 0, 1, 0, 2, 4, 0, 10, 1, 2], &[23, 0, 3, 0, 1, 0, 14, 0, 1, 2, 65, 66]];
    for request in requests {
        let whole = message(1, request);
        for i in 0..whole.len() {
            for b in [0, 1, 23, 0x7f, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[i] = b;
                let mut talk = modbus();
                talk.client(&bad).server(&bad).end();
                talk.logs();
                talk.numbers("modbus", TS);
            }
        }
    }
}

#[test]
fn recognised_by_its_header() {
    let yes = Probed::Yes { reverse: false };
    assert_eq!((probe(TS, &[0, 1, 0, 0, 0, 6, 1, 3]), probe(TS, &[0, 1, 0, 0, 0, 6])), (yes, Probed::More));
    // UMAS has a function code of its own.
    assert_eq!(probe(TS, &[0, 1, 0, 0, 0, 6, 1, 90]), Probed::No);
    assert_eq!((probe(TS, &[0, 1, 0, 0, 1, 16, 1, 3]), probe(TS, &[0, 1, 0, 1, 0, 6])), (Probed::No, Probed::No));
}
