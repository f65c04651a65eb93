//! Captured messages, and invalid ones.

use super::*;
use crate::testing::Talk;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

const GET: &[u8] = b"\x30\x2e\x02\x01\x01\x04\x0b[R0_C@cti!]\xa0\x1c\x02\x04\x21\x18\x2c\xd7\x02\x01\x00\x02\x01\x00\x30\x0e\x30\x0c\x06\x08\x2b\x06\x01\x02\x01\x01\x03\x00\x05\x00";
const RESPONSE: &[u8] = b"\x30\x32\x02\x01\x01\x04\x0b[R0_C@cti!]\xa2\x20\x02\x04\x21\x18\x2c\xd7\x02\x01\x00\x02\x01\x00\x30\x12\x30\x10\x06\x08\x2b\x06\x01\x02\x01\x01\x03\x00\x43\x04\x04\x92\x6f\xa4";
const TRAP: &[u8] = b"\x30\x38\x02\x01\x00\x04\x06public\xa4\x2b\x06\x09\x2b\x06\x01\x04\x01\x04\x01\x02\x15\x40\x04\x7f\x00\x00\x01\x02\x01\x01\x02\x01\x00\x43\x01\x01\x30\x0f\x30\x0d\x06\x08\x2b\x06\x01\x02\x01\x02\x01\x00\x02\x01\x21";
const REPORT3: &[u8] = b"\x30\x6c\x02\x01\x03\x30\x0f\x02\x03\x00\x91\xc8\x02\x02\x08\x00\x04\x01\x00\x02\x01\x03\x04\x24\x30\x22\x04\x0c\x00\x00\x39\xe7\x00\x00\x00\xa1\xc0\xa8\x1d\xa0\x02\x02\x02\xf0\x02\x03\x02\xfd\xe7\x04\x05admin\x04\x00\x04\x00\x30\x30\x04\x0c\x00\x00\x39\xe7\x00\x00\x00\xa1\xc0\xa8\x1d\xa0\x04\x00\xa8\x1e\x02\x03\x00\x91\xc8\x02\x01\x00\x02\x01\x00\x30\x11\x30\x0f\x06\x0a\x2b\x06\x01\x06\x03\x0f\x01\x01\x04\x00\x41\x01\x01";

/// An element; `body` is shorter than 128 bytes.
fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag, u8::try_from(body.len()).unwrap()], body].concat()
}

/// Version 3 with flags, a security model and the data after the security parameters.
fn version3(flags: u8, model: u8, rest: &[u8]) -> Vec<u8> {
    let header = tlv(SEQUENCE, &[&[2, 1, 1, 2, 1, 9, 4, 1, flags, 2, 1][..], &[model]].concat());
    let parameters = tlv(OCTETS, b"\x30\x10\x04\x01e\x02\x01\x01\x02\x01\x02\x04\x01u\x04\x00\x04\x00\x05");
    tlv(SEQUENCE, &[&b"\x02\x01\x03"[..], &header, &parameters, rest].concat())
}

fn snmp() -> Talk {
    Talk::udp(AppProto::Snmp, 161)
}

#[test]
fn a_request_and_its_response() {
    let mut talk = snmp();
    talk.client(GET).server(RESPONSE);
    let log = |pdu| {
        format!(
            r#"{{"snmp":{{"version":2,"pdu_type":"{pdu}","vars":["1.3.6.1.2.1.1.3.0"],"community":"[R0_C@cti!]"}}}}"#
        )
    };
    assert_eq!(talk.logs(), [log("get_request"), log("response")]);
    assert_eq!((talk.numbers("snmp.pdu_type", TS), talk.numbers("snmp.pdu_type", TC)), (vec![0], vec![2]));
    assert_eq!((talk.numbers("snmp.version", TS), talk.buffers("snmp.usm", TS)), (vec![2], vec![]));
    assert_eq!(talk.buffers("snmp.community", TC), ["[R0_C@cti!]"]);
    assert_eq!(talk.complete(), [[true, true]; 2]);
}

#[test]
fn a_trap_of_version_1() {
    let mut talk = snmp();
    talk.client(TRAP);
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"snmp":{"version":1,"pdu_type":"trap_v1","trap_type":"warmStart","trap_oid":"1.3.6.1.4.1.4.1.2.21","#,
            r#""trap_address":"127.0.0.1","vars":["1.3.6.1.2.1.2.1.0"],"community":"public"}}"#
        )]
    );
    assert_eq!(
        (talk.numbers("snmp.trap_type", TS), talk.buffers("snmp.trap_address", TS)),
        (vec![1], vec!["127.0.0.1".into()])
    );
    assert_eq!(talk.buffers("snmp.trap_oid", TS), ["1.3.6.1.4.1.4.1.2.21"]);
}

#[test]
fn a_tag_in_the_long_form() {
    let mut message = TRAP.to_vec();
    message.splice(13..14, [0xbf, 4]);
    message[1] += 1;
    assert!(snmp().client(&message).logs()[0].contains(r#""trap_type":"warmStart""#));
    message[14] = 9;
    assert_eq!(snmp().client(&message).outcome, Outcome::Failed);
}

#[test]
fn errors_have_names() {
    for (status, name) in [(2, r#""response","error":"NoSuchName","#), (17, r#""response","error":"ErrorStatus(17)","#)]
    {
        let mut message = RESPONSE.to_vec();
        message[28] = status;
        assert!(snmp().server(&message).logs()[0].contains(name));
        // A bulk request has another number there.
        message[18] = 0xa5;
        assert!(!snmp().server(&message).logs()[0].contains("error"));
    }
}

#[test]
fn version_3() {
    let mut talk = snmp();
    talk.server(REPORT3).client(&version3(7, 3, &tlv(OCTETS, b"encrypted")));
    assert_eq!(
        talk.logs(),
        [
            r#"{"snmp":{"version":3,"pdu_type":"report","vars":["1.3.6.1.6.3.15.1.1.4.0"],"usm":"admin"}}"#,
            r#"{"snmp":{"version":3,"pdu_type":"encrypted"}}"#,
        ]
    );
    assert_eq!((talk.buffers("snmp.usm", TC), talk.buffers("snmp.usm", TS)), (vec!["admin".into()], vec!["u".into()]));
    assert_eq!(talk.numbers("snmp.pdu_type", TS), []);
}

/// Rules do not see an empty user or community.
#[test]
fn empty_names() {
    let mut talk = snmp();
    talk.client(b"\x30\x12\x02\x01\x01\x04\x00\xa0\x0b\x02\x01\x01\x02\x01\x00\x02\x01\x00\x30\x00");
    assert_eq!((talk.logs().len(), talk.buffers("snmp.community", TS)), (1, vec![]));
}

#[test]
fn what_is_strange_has_events() {
    let scoped = tlv(SEQUENCE, b"\x04\x01e\x04\x01c\xa0\x0b\x02\x01\x01\x02\x01\x00\x02\x01\x00\x30\x00");
    let mut talk = snmp();
    talk.client(&version3(4, 2, &scoped));
    assert_eq!(talk.events(), ["unknown_security_model"]);
    assert_eq!(talk.logs(), [r#"{"snmp":{"version":3,"pdu_type":"get_request"}}"#]);
    talk.client(TRAP);
    assert_eq!(talk.events(), ["unknown_security_model", "version_mismatch"]);
    assert_eq!(talk.numbers("snmp.version", TS), [3, 3]);
}

#[test]
fn what_is_no_message() {
    for message in [GET, RESPONSE, TRAP, REPORT3] {
        for cut in 1..message.len() {
            let mut talk = snmp();
            talk.client(&message[..cut]);
            assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Failed, 0), "{cut}");
        }
        // Any byte may be wrong: nothing is read past the message.
        for i in 0..message.len() {
            for b in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut message = message.to_vec();
                message[i] = b;
                snmp().client(&message).logs();
            }
        }
    }
    let mut talk = snmp();
    // Version 4; a PDU that version 1 does not have; a flag that wrongly says encrypted.
    let mut of_version_1 = GET.to_vec();
    (of_version_1[4], of_version_1[18]) = (0, 0xa5);
    let not_encrypted = version3(2, 3, &tlv(SEQUENCE, b""));
    for message in [&b"\x30\x03\x02\x01\x04"[..], &of_version_1, &not_encrypted] {
        talk.client(message);
        assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Failed, 0));
    }
    // An invalid datagram does not end parsing of the flow.
    talk.client(GET);
    assert_eq!(talk.logs().len(), 1);
}

#[test]
fn recognised_by_its_beginning() {
    assert!([GET, RESPONSE, TRAP, REPORT3].iter().all(|m| probe(TS, m) == Probed::Yes { reverse: false }));
    assert_eq!(
        (probe(TS, b"\x30"), probe(TS, b"\x30\x03\x02\x01\x02"), probe(TS, b"0")),
        (Probed::More, Probed::No, Probed::More)
    );
    assert_eq!(probe(TS, b"\x30\x80\x02\x01\x01\x04"), Probed::No);
    // Version, community and PDU fill the message.
    for (at, byte) in [(4, 2), (6, 10), (18, 1), (19, 27)] {
        let mut message = GET.to_vec();
        message[at] = byte;
        assert_eq!(probe(TS, &message), Probed::No, "{at}");
    }
    assert!((1..GET.len()).all(|cut| probe(TS, &GET[..cut]) == Probed::More));
}

/// Suricata compares neither classes of tags nor the length of a PDU, and a list of variables ends at an invalid one.
#[test]
fn what_is_accepted() {
    let log = |message: &[u8]| snmp().client(message).logs();
    for (at, byte) in [(0, 0x70), (2, 0x42), (5, 0x84), (18, 0x40), (19, 3), (20, 0xc2), (34, 0x31), (36, 0x07)] {
        let mut message = GET.to_vec();
        message[at] = byte;
        assert_eq!(log(&message), log(GET), "{at}");
    }
    let mut message = TRAP.to_vec();
    message[15] = 0x04;
    assert_eq!((TRAP[15], log(&message)), (0x06, log(TRAP)));
    // The list ends at a name whose last number is incomplete.
    let mut message = GET.to_vec();
    message[45] = 0x80;
    assert!(log(&message)[0].contains(r#""vars":[]"#), "{:?}", log(&message));
    // A negative counter is invalid.
    let mut message = RESPONSE.to_vec();
    message[48] = 0x92;
    assert_eq!((message[46], log(&message).len()), (0x43, 0));
}
