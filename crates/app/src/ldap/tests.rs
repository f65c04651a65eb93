//! Captured requests and responses, and invalid ones.

use super::*;
use crate::testing::Talk;

const BIND: &[u8] = b"0\x16\x02\x01\x01`\x11\x02\x01\x03\x04\x00\xa3\x0a\x04\x08CRAM-MD5";
const BIND_RESPONSE: &[u8] = b"00\x02\x01\x01a+\x0a\x01\x0e\x04\x00\x04\x00\x87\x22<10a13c7bf708ca0f399ca99e927da88b>";
const SEARCH: &[u8] = b"0V\x02\x01\x02cQ\x04\x11dc=example,dc=com\x0a\x01\x02\x0a\x01\x00\x02\x02\x03\xe8\x02\x01\x1e\x01\x01\x00\xa0$\xa3\x15\x04\x0bobjectClass\x04\x06person\xa3\x0b\x04\x03uid\x04\x04jdoe0\x06\x04\x01*\x04\x01+";
const ENTRY: &[u8] = b"0I\x02\x01\x02dD\x04\x11dc=example,dc=com0/0\x1c\x04\x0bobjectClass1\x0d\x04\x03top\x04\x06domain0\x0f\x04\x02dc1\x09\x04\x07example";
const DONE: &[u8] = b"0\x0c\x02\x01\x02e\x07\x0a\x01\x00\x04\x00\x04\x00";
const MODIFY: &[u8] = b"0\x81\x80\x02\x01\x02f{\x04$uid=jdoe,ou=People,dc=example,dc=com0S0\x18\x0a\x01\x010\x13\x04\x09givenName1\x06\x04\x04John0\x1c\x0a\x01\x000\x17\x04\x09givenName1\x0a\x04\x08Jonathan0\x19\x0a\x01\x020\x14\x04\x02cn1\x0e\x04\x0cJonathan Doe";
const MODIFY_RESPONSE: &[u8] = b"0\x0c\x02\x01\x02g\x07\x0a\x01\x00\x04\x00\x04\x00";
const ADD: &[u8] = b"0I\x02\x01\x02hD\x04\x11dc=example,dc=com0/0\x1c\x04\x0bobjectClass1\x0d\x04\x03top\x04\x06domain0\x0f\x04\x02dc1\x09\x04\x07example";
const ADD_RESPONSE: &[u8] = b"0\x0c\x02\x01\x02i\x07\x0a\x01\x00\x04\x00\x04\x00";
const COMPARE: &[u8] =
    b"0E\x02\x01\x02n@\x04$uid=jdoe,ou=People,dc=example,dc=com0\x18\x04\x0cemployeeType\x04\x08salaried";
const COMPARE_RESPONSE: &[u8] = b"0\x0c\x02\x01\x02o\x07\x0a\x01\x06\x04\x00\x04\x00";
const DELETE: &[u8] = b"0)\x02\x01\x02J$uid=jdoe,ou=People,dc=example,dc=com";
const DELETE_RESPONSE: &[u8] = b"0\x0c\x02\x01\x02k\x07\x0a\x01\x00\x04\x00\x04\x00";
const EXTENDED: &[u8] = b"0\x1d\x02\x01\x01w\x18\x80\x161.3.6.1.4.1.1466.20037";
const EXTENDED_RESPONSE: &[u8] = b"0$\x02\x01\x01x\x1f\x0a\x01\x00\x04\x00\x04\x00\x8a\x161.3.6.1.4.1.1466.20037";
const ABANDON: &[u8] = b"0\x06\x02\x01\x06P\x01\x05";

fn ldap() -> Talk {
    Talk::tcp(AppProto::Ldap, 389)
}

fn tlv(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[tag, 0x82][..], &len, body].concat()
}

/// A response to message 2 with that tag and body.
fn response(tag: u8, body: &[u8]) -> Vec<u8> {
    tlv(0x30, &[&b"\x02\x01\x02"[..], &tlv(tag, body)].concat())
}

#[test]
fn a_search() {
    let mut talk = ldap();
    talk.client(SEARCH);
    assert_eq!((talk.complete(), talk.numbers("ldap.request.operation", TS)), (vec![[true, false]], vec![3]));
    talk.server(ENTRY);
    assert_eq!(talk.complete(), [[true, false]]);
    assert_eq!(
        (talk.numbers("ldap.responses.operation", TC), talk.numbers("ldap.responses.count", TC)),
        (vec![4], vec![1])
    );
    talk.server(DONE);
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"ldap":{"request":{"message_id":2,"operation":"search_request","search_request":{"base_object":"dc=example,dc=com","scope":2,"deref_alias":0,"#,
            r#""size_limit":1000,"time_limit":30,"types_only":false,"attributes":["*","+"]}},"responses":["#,
            r#"{"operation":"search_result_entry","search_result_entry":{"base_object":"dc=example,dc=com","#,
            r#""attributes":[{"type":"objectClass","values":["top","domain"]},{"type":"dc","values":["example"]}]}},"#,
            r#"{"operation":"search_result_done","search_result_done":{"result_code":"success","matched_dn":"","message":""}}]}}"#
        )]
    );
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]], vec![]));
    assert_eq!(
        (talk.buffers("ldap.request.dn", TS), talk.buffers("ldap.request.attribute_type", TS)),
        (vec!["dc=example,dc=com".into()], vec!["*".into(), "+".into()])
    );
    assert_eq!(
        (talk.buffers("ldap.responses.dn", TC), talk.buffers("ldap.responses.message", TC)),
        (vec!["dc=example,dc=com".into(), String::new()], vec![String::new(); 2])
    );
    assert_eq!(talk.buffers("ldap.responses.attribute_type", TC), ["objectClass", "dc"]);
    assert_eq!(talk.buffers("ldap.request.attributes", TS), [""; 0]);
    assert_eq!(talk.buffers("ldap.responses.attributes", TC), ["objectClass=top", "objectClass=domain", "dc=example"]);
    assert_eq!(
        (talk.numbers("ldap.responses.operation", TC), talk.numbers("ldap.responses.count", TC)),
        (vec![4, 5], vec![2])
    );
    // The entry has no result code, and keeps its index.
    assert_eq!(talk.numbers("ldap.responses.result_code", TC), [ABSENT, 0]);
}

#[test]
fn what_operations_look_like() {
    let log = |request: &[u8], response: &[u8]| {
        let mut talk = ldap();
        talk.client(request).server(response);
        assert_eq!((talk.logs().len(), talk.complete(), talk.events()), (1, vec![[true, true]], vec![]));
        talk.logs().remove(0)
    };
    let ends = |log: &str, name: &str| {
        let end = format!(
            r#""responses":[{{"operation":"{name}","{name}":{{"result_code":"success","matched_dn":"","message":""}}}}]}}}}"#
        );
        assert!(log.ends_with(&end), "{log}");
    };
    let bind = log(BIND, BIND_RESPONSE);
    assert!(bind.contains(r#""request":{"message_id":1,"operation":"bind_request","bind_request":{"version":3,"name":"","sasl":{"mechanism":"CRAM-MD5"}}}"#), "{bind}");
    assert!(bind.contains(r#""bind_response":{"result_code":"sasl_bind_in_progress","matched_dn":"","message":"","server_sasl_creds":"<10a13c7bf708ca0f"#), "{bind}");
    let modify = log(MODIFY, MODIFY_RESPONSE);
    assert!(modify.contains(r#""modify_request":{"object":"uid=jdoe,ou=People,dc=example,dc=com","changes":[{"operation":"delete","modification":{"attribute_type":"givenName","attribute_values":["John"]}},{"operation":"add""#), "{modify}");
    ends(&modify, "modify_response");
    let add = log(ADD, ADD_RESPONSE);
    assert!(add.contains(r#""add_request":{"entry":"dc=example,dc=com","attributes":[{"name":"objectClass","values":["top","domain"]},{"name":"dc","values":["example"]}]}"#), "{add}");
    ends(&add, "add_response");
    let compare = log(COMPARE, COMPARE_RESPONSE);
    assert!(
        compare.contains(r#""attribute_value_assertion":{"description":"employeeType","value":"salaried"}"#)
            && compare.contains("compare_true"),
        "{compare}"
    );
    let delete = log(DELETE, DELETE_RESPONSE);
    assert!(delete.contains(r#""del_request":{"dn":"uid=jdoe,ou=People,dc=example,dc=com"}"#), "{delete}");
    ends(&delete, "del_response");
    // A renamed entry; a server's referral.
    let moved = tlv(0x30, &[&b"\x02\x01\x02"[..], &tlv(0x6c, b"\x04\x01a\x04\x01b\x01\x01\xff\x80\x01c")].concat());
    let moved = log(&moved, &response(0x6d, b"\x0a\x01\x63\x04\x01m\x04\x01d"));
    assert!(
        moved.contains(r#""mod_dn_request":{"entry":"a","new_rdn":"b","delete_old_rdn":true,"new_superior":"c"}"#),
        "{moved}"
    );
    assert!(moved.contains(r#""result_code":"99","matched_dn":"m","message":"d""#), "{moved}");
    let client_side = log(SEARCH, &response(0x65, b"\x0a\x01\x61\x04\0\x04\0"));
    assert!(client_side.contains(r#""result_code":"referral_limit_exceeded""#), "{client_side}");
    let code = |name: &str| names::RESULTS.iter().find(|r| r.0 == name).map(|r| r.1);
    let named = ["invalid_dn_syntax", "invalid_dns_syntax", "unknown_type", "e_sync_refresh_required", "no_operation"];
    assert_eq!(named.map(code), [34, 34, 114, 4096, 16654].map(Some));
    for (request, of, pairs) in [
        (MODIFY, MODIFY_RESPONSE, "givenName=John"),
        (ADD, ADD_RESPONSE, "objectClass=domain"),
        (COMPARE, COMPARE_RESPONSE, "employeeType=salaried"),
    ] {
        let mut talk = ldap();
        talk.client(request).server(of);
        assert!(talk.buffers("ldap.request.attributes", TS).contains(&pairs.to_owned()), "{pairs}");
    }
    let mut talk = ldap();
    talk.client(SEARCH)
        .server(&response(0x73, b"\x04\x06ldap:a\x04\x06ldap:b"))
        .server(&response(0x79, b"\x80\x011\x81\x01v"));
    assert!(
        talk.logs()[0]
            .contains(r#"{"operation":"search_result_reference","search_result_reference":["ldap:a","ldap:b"]}"#)
    );
    assert!(talk.logs()[0].contains(r#""intermediate_response":{"name":"1","value":"v"}"#));
}

#[test]
fn requests_without_response_and_responses_without_request() {
    let mut talk = ldap();
    talk.client(ABANDON).client(b"\x30\x05\x02\x01\x07\x42\x00").server(DONE);
    assert_eq!(
        talk.logs(),
        [
            r#"{"ldap":{"request":{"message_id":6,"operation":"abandon_request","abandon_request":{"message_id":5}}}}"#,
            r#"{"ldap":{"request":{"message_id":7,"operation":"unbind_request"}}}"#,
            r#"{"ldap":{"responses":[{"message_id":2,"operation":"search_result_done","search_result_done":{"result_code":"success","matched_dn":"","message":""}}]}}"#,
        ]
    );
    assert_eq!((talk.complete(), talk.events()), (vec![[true, true]; 3], vec!["request_not_found"]));
}

#[test]
fn tls_follows_start_tls() {
    let mut talk = ldap();
    talk.client(EXTENDED).client(b"\x16\x03\x01").server(EXTENDED_RESPONSE);
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Change(Some(AppProto::Tls)), 1));
    assert!(talk.logs()[0].contains(r#""extended_request":{"name":"1.3.6.1.4.1.1466.20037"}"#));
    assert!(talk.logs()[0].ends_with(r#""message":"","name":"1.3.6.1.4.1.1466.20037"}}]}}"#));
    // TLS was refused: the data after the request is LDAP.
    let mut talk = ldap();
    let mut refused = EXTENDED_RESPONSE.to_vec();
    refused[9] = 2;
    talk.client(&[EXTENDED, SEARCH].concat());
    assert_eq!(talk.logs().len(), 2);
    talk.server(&refused);
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Resume, 2));
    // Requests before the response do not hide the handshake.
    let mut talk = ldap();
    talk.client(&[EXTENDED, SEARCH, b"\x16\x03\x01"].concat()).server(EXTENDED_RESPONSE);
    assert_eq!(talk.outcome, Outcome::Change(Some(AppProto::Tls)));
}

#[test]
fn messages_behind_a_gap() {
    let mut talk = ldap();
    let next = [b"0\x03doe0", SEARCH].concat();
    talk.client(BIND).gap(TS, 100).client(&next[..8]).client(&next[8..]).server(DONE);
    assert_eq!((talk.complete(), talk.events()), (vec![[true, false], [true, true]], vec![]));
    // Encrypted data may follow.
    let mut talk = ldap();
    talk.client(EXTENDED).gap(TC, 10);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn sealed_messages_are_not_read() {
    let mut success = BIND_RESPONSE.to_vec();
    success[9] = 0;
    let mut talk = ldap();
    talk.client(BIND).server(&success).client(b"\0\0\0\x20sealed");
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Done, 1));
    // The client is not bound yet.
    let mut talk = ldap();
    talk.client(BIND).server(BIND_RESPONSE).client(b"\0\0\0\x20sealed");
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn in_any_pieces_and_in_datagrams() {
    let bytes = [ENTRY, ENTRY, DONE].concat();
    let logs = |size: usize| {
        let mut talk = ldap();
        talk.client(SEARCH);
        for piece in bytes.chunks(size) {
            talk.server(piece);
        }
        assert_eq!(talk.complete(), [[true, true]]);
        talk.logs()
    };
    for size in 1..bytes.len() {
        assert_eq!(logs(size), logs(bytes.len()), "{size}");
    }
    let mut talk = Talk::udp(AppProto::Ldap, 389);
    talk.client(SEARCH).server(&bytes);
    assert_eq!(talk.logs(), logs(bytes.len()));
    // Data after the messages of a datagram is invalid.
    talk.client(&[ABANDON, b"x"].concat());
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Failed, 2));
    // A datagram with more messages than the limit.
    let mut talk = Talk::udp(AppProto::Ldap, 389);
    talk.client(&ABANDON.repeat(DATAGRAM_MAX));
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, DATAGRAM_MAX));
    let mut talk = Talk::udp(AppProto::Ldap, 389);
    talk.client(&ABANDON.repeat(DATAGRAM_MAX + 1));
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Failed, DATAGRAM_MAX));
    let mut talk = ldap();
    talk.client(SEARCH).server(&bytes[..bytes.len() - 1]).end();
    assert_eq!(talk.complete(), [[true, false]]);
}

#[test]
fn what_is_no_message() {
    for message in
        [BIND, SEARCH, ENTRY, MODIFY, ADD, COMPARE, DELETE, EXTENDED, ABANDON, BIND_RESPONSE, EXTENDED_RESPONSE]
    {
        let mut inside = Reader::new(message).enter(SEQUENCE).unwrap();
        inside.unsigned(INTEGER);
        let whole = inside.element().unwrap();
        for i in 0..whole.body.len() {
            for b in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut body = whole.body.to_vec();
                body[i] = b;
                if let Some(operation) = Operation::read(whole.tag, &body) {
                    operation.log(&mut Json::new());
                    assert!((0..operation.attributes()).all(|n| operation.attribute(n).is_some()));
                }
            }
            Operation::read(whole.tag, &whole.body[..i]);
        }
    }
    for (data, outcome) in [
        (&b"\x31\x03\x02\x01\x01"[..], Outcome::Failed),
        (b"\x30\x80\x02\x01\x01", Outcome::Failed),
        (b"\x30\x84\xff\xff\xff\xff\x02", Outcome::More),
        (b"\x30", Outcome::More),
    ] {
        let mut talk = ldap();
        talk.client(data);
        assert_eq!((talk.outcome, talk.logs().len()), (outcome, 0), "{data:x?}");
    }
    let mut talk = ldap();
    talk.client(b"\x30\x05\x02\x01\x07\x63\x00");
    assert_eq!((talk.outcome, talk.events(), talk.logs().len()), (Outcome::Failed, vec!["invalid_data"], 0));
}

#[test]
fn what_is_too_much() {
    // A message that is too long is skipped, including a gap in it.
    let mut talk = ldap();
    let len = u32::try_from(MESSAGE_MAX).unwrap();
    talk.client(&[&b"\x30\x84"[..], &len.to_be_bytes()].concat())
        .client(&vec![2; MESSAGE_MAX / 2])
        .gap(TS, u64::from(len) / 2 - 1);
    assert_eq!(talk.outcome, Outcome::More);
    talk.client(&[b"\x02", ABANDON].concat());
    assert_eq!(talk.logs().len(), 1);
    // All responses are counted, but only some are kept, including the last one.
    let mut talk = ldap();
    talk.client(SEARCH);
    for _ in 0..RESPONSES_MAX + 9 {
        talk.server(ENTRY);
    }
    talk.server(DONE);
    assert_eq!(talk.numbers("ldap.responses.count", TC), [RESPONSES_MAX as u64 + 10]);
    assert_eq!(talk.numbers("ldap.responses.operation", TC).len(), RESPONSES_MAX + 1);
    assert_eq!(talk.numbers("ldap.responses.operation", TC).last(), Some(&5));
    // Requests without a response.
    let mut talk = ldap().set("max-tx", 4);
    talk.client(&SEARCH.repeat(4)).client(SEARCH);
    assert_eq!((talk.outcome, talk.events()), (Outcome::Full, vec!["too_many_transactions"; 4]));
}

#[test]
fn recognised_by_its_beginning() {
    assert!([BIND, SEARCH, ENTRY, ABANDON, DELETE].iter().all(|m| probe(TS, m) == Probed::Yes { reverse: false }));
    assert_eq!(
        (probe(TS, b"\x30"), probe(TS, b"\x30\x0c\x02"), probe(TS, b"\x30\x0c\x02\x01\x01")),
        (Probed::More, Probed::More, Probed::More)
    );
    assert_eq!((probe(TS, b"\x30\x0c\x02\x01\x01\x30"), probe(TS, b"\x31")), (Probed::No, Probed::No));
}
