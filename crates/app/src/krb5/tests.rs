//! Messages of clients and servers, and invalid ones.

use super::*;
use crate::testing::Talk;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

const AS_REQ: &[u8] = b"jt0r\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a\xa4f0d\xa0\x07\x03\x05\x00@\x00\x00\x00\xa1\x110\x0f\xa0\x03\x02\x01\x01\xa1\x080\x06\x1b\x04user\xa2\x07\x1b\x05REALM\xa3\x1a0\x18\xa0\x03\x02\x01\x01\xa1\x110\x0f\x1b\x06krbtgt\x1b\x05REALM\xa5\x11\x18\x0f20370913024805Z\xa7\x04\x02\x0209\xa8\x080\x06\x02\x01\x12\x02\x01\x17";
const TGS_REQ: &[u8] = b"l]0[\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0c\xa4O0M\xa0\x07\x03\x05\x00@\x00\x00\x00\xa2\x07\x1b\x05REALM\xa3\x160\x14\xa0\x03\x02\x01\x01\xa1\x0d0\x0b\x1b\x04HTTP\x1b\x03www\xa5\x11\x18\x0f20370913024805Z\xa7\x04\x02\x0209\xa8\x080\x06\x02\x01\x12\x02\x01\x17";
const AS_REP: &[u8] = b"k\x81\x870\x81\x84\xa0\x03\x02\x01\x05\xa1\x03\x02\x01\x0b\xa3\x08\x1b\x06CREALM\xa4\x110\x0f\xa0\x03\x02\x01\x01\xa1\x080\x06\x1b\x04user\xa5HaF0D\xa0\x03\x02\x01\x05\xa1\x0c\x1b\x0aTICK.REALM\xa2\x1c0\x1a\xa0\x03\x02\x01\x01\xa1\x130\x11\x1b\x06krbtgt\x1b\x07T.REALM\xa3\x110\x0f\xa0\x03\x02\x01\x12\xa2\x08\x04\x06cipher\xa6\x110\x0f\xa0\x03\x02\x01\x17\xa2\x08\x04\x06cipher";
const TGS_REP: &[u8] = b"m\x81\x870\x81\x84\xa0\x03\x02\x01\x05\xa1\x03\x02\x01\x0d\xa3\x08\x1b\x06CREALM\xa4\x110\x0f\xa0\x03\x02\x01\x01\xa1\x080\x06\x1b\x04user\xa5HaF0D\xa0\x03\x02\x01\x05\xa1\x0c\x1b\x0aTICK.REALM\xa2\x1c0\x1a\xa0\x03\x02\x01\x01\xa1\x130\x11\x1b\x06krbtgt\x1b\x07T.REALM\xa3\x110\x0f\xa0\x03\x02\x01\x17\xa2\x08\x04\x06cipher\xa6\x110\x0f\xa0\x03\x02\x01\x12\xa2\x08\x04\x06cipher";
const ERROR: &[u8] = b"~P0N\xa0\x03\x02\x01\x05\xa1\x03\x02\x01\x1e\xa4\x11\x18\x0f20370913024805Z\xa5\x03\x02\x01\x01\xa6\x03\x02\x01\x19\xa9\x08\x1b\x06EREALM\xaa\x1b0\x19\xa0\x03\x02\x01\x01\xa1\x120\x10\x1b\x06krbtgt\x1b\x06EREALM";

/// A message with its length, for TCP.
fn record(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

#[test]
fn a_client_logs_in() {
    let mut talk = Talk::udp(AppProto::Krb5, 88);
    talk.client(AS_REQ).server(ERROR).client(AS_REQ).server(AS_REP).client(TGS_REQ).server(TGS_REP);
    let request = r#"{"krb5":{"msg_type":"KRB_AS_REQ","cname":"user","realm":"REALM","sname":"krbtgt/REALM","encryption":"<none>","weak_encryption":false}}"#;
    assert_eq!(
        talk.logs(),
        [
            request,
            r#"{"krb5":{"msg_type":"KRB_ERROR","failed_request":"KRB_AS_REQ","error_code":"KDC_ERR_PREAUTH_REQUIRED","cname":"<empty>","realm":"<empty>","sname":"krbtgt/EREALM","encryption":"<none>","weak_encryption":false}}"#,
            request,
            r#"{"krb5":{"msg_type":"KRB_AS_REP","cname":"user","realm":"CREALM","sname":"krbtgt/T.REALM","encryption":"rc4-hmac","weak_encryption":true,"ticket_encryption":"aes256-cts-hmac-sha1-96","ticket_weak_encryption":false}}"#,
            r#"{"krb5":{"msg_type":"KRB_TGS_REQ","cname":"<empty>","realm":"REALM","sname":"HTTP/www","encryption":"<none>","weak_encryption":false}}"#,
            r#"{"krb5":{"msg_type":"KRB_TGS_REP","cname":"user","realm":"CREALM","sname":"krbtgt/T.REALM","encryption":"aes256-cts-hmac-sha1-96","weak_encryption":false,"ticket_encryption":"rc4-hmac","ticket_weak_encryption":true}}"#,
        ]
    );
    assert_eq!(talk.events(), ["weak_encryption"]);
    assert_eq!(talk.numbers("krb5_msg_type", TS), [10, 10, 12]);
    assert_eq!(
        (talk.numbers("krb5_err_code", TC), talk.numbers("krb5.ticket_encryption", TC)),
        (vec![25], vec![18, 23])
    );
    assert_eq!(talk.buffers("krb5.sname", TC), ["krbtgt", "EREALM", "krbtgt", "T.REALM", "krbtgt", "T.REALM"]);
    assert_eq!(talk.buffers("krb5.cname", TC), ["user", "user"]);
    // An error without a request.
    talk.server(ERROR);
    assert!(talk.logs()[6].contains(r#""failed_request":"UNKNOWN""#));
}

#[test]
fn over_tcp_in_any_pieces() {
    let bytes = [record(AS_REQ), record(TGS_REQ)].concat();
    let logs = |size: usize| {
        let mut talk = Talk::tcp(AppProto::Krb5, 88);
        for piece in bytes.chunks(size) {
            talk.client(piece);
        }
        talk.logs()
    };
    assert_eq!(logs(bytes.len()).len(), 2);
    for size in 1..bytes.len() {
        assert_eq!(logs(size), logs(bytes.len()), "{size}");
    }
    // A truncated message has no transaction.
    let mut talk = Talk::tcp(AppProto::Krb5, 88);
    talk.client(&bytes[..bytes.len() - 1]).end();
    assert_eq!(talk.logs().len(), 1);
}

#[test]
fn lengths_that_lie() {
    let mut talk = Talk::tcp(AppProto::Krb5, 88);
    talk.client(&(MESSAGE_MAX as u32 + 1).to_be_bytes()).client(&[0x6a; MESSAGE_MAX - 9]);
    talk.gap(TS, 9);
    assert_eq!(talk.outcome, Outcome::More);
    talk.client(b"x").client(&record(b"")).client(&record(AS_REQ));
    assert_eq!(talk.logs().len(), 1);
    talk.gap(TS, 1);
    assert_eq!(talk.outcome, Outcome::Failed);
    // The highest bit is reserved (section 7.2.2): Suricata waits for a message of that length, and parses the other side.
    let mut talk = Talk::tcp(AppProto::Krb5, 88);
    talk.client(b"\x80\0\0\x01").client(&record(AS_REQ)).server(&record(ERROR));
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, 1));
}

#[test]
fn what_is_no_message() {
    for message in [AS_REQ, TGS_REQ, AS_REP, TGS_REP, ERROR] {
        for cut in 0..message.len() {
            assert_eq!(Message::read(&message[..cut]), None, "{cut}");
        }
        for i in 0..message.len() {
            for b in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut message = message.to_vec();
                message[i] = b;
                let _ = Message::read(&message);
            }
        }
    }
    // A message of the application that uses the ticket.
    let mut talk = Talk::udp(AppProto::Krb5, 88);
    let mut of_application = AS_REQ.to_vec();
    of_application[0] = 0x6e;
    talk.client(&of_application);
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, 0));
}

/// The message with other bytes in place of the only occurrence of some.
fn with(message: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let at = message.windows(old.len()).position(|w| w == old).unwrap();
    [&message[..at], new, &message[at + old.len()..]].concat()
}

/// Suricata accepts another class than the expected one, any version, and fields behind those that it knows.
#[test]
fn what_is_accepted() {
    let as_it_is = Message::read(AS_REQ);
    for (old, new) in [
        (&b"\xa1\x03\x02\x01\x05"[..], &b"\xa1\x03\x02\x01\x04"[..]),
        (b"\xa1\x03\x02\x01\x05", b"\x61\x03\x82\x01\x05"),
        (b"\xa2\x07\x1b\x05REALM", b"\xe2\x07\x5b\x05REALM"),
        (b"0d\xa0", b"\x10d\xa0"),
    ] {
        assert_eq!(Message::read(&with(AS_REQ, old, new)), as_it_is, "{new:x?}");
    }
    // Only the error code and names are read of this error; text follows.
    let longer = [&with(ERROR, b"~P0N", b"~U0S")[..], b"\xab\x03\x01x!"].concat();
    assert_eq!(Message::read(&longer), Message::read(ERROR));
}

/// All fields have to be there, in order, and of their types.
#[test]
fn what_is_refused() {
    for (message, old, new) in [
        (AS_REQ, &b"\xa1\x03\x02\x01\x05"[..], &b"\x21\x03\x02\x01\x05"[..]),
        (AS_REQ, b"\xa2\x03\x02\x01\x0a", b"\xa2\x03\x02\x01\x8a"),
        (AS_REQ, b"\xa2\x03\x02\x01\x0a", b"\xa5\x03\x02\x01\x0a"),
        (AS_REQ, b"\x03\x05\x00@", b"\x03\x05\x08@"),
        (AS_REQ, b"\xa2\x07\x1b", b"\xa2\x07\x0c"),
        (AS_REQ, b"\x18\x0f2037", b"\x17\x0f2037"),
        (AS_REQ, b"4805Z", b"4805+"),
        (AS_REQ, b"\xa7\x04\x02\x0209", b"\xa7\x04\x02\x02\x00\x09"),
        (AS_REQ, b"\xa8\x080\x06\x02\x01\x12", b"\xa8\x080\x06\x04\x01\x12"),
        (AS_REP, b"\x04\x06cipher\xa6", b"\x05\x06cipher\xa6"),
        (ERROR, b"\xa5\x03\x02\x01\x01", b"\xa5\x03\x02\x01\xff"),
    ] {
        assert_eq!(Message::read(&with(message, old, new)), None, "{new:x?}");
    }
    // The error names an invalid request nevertheless.
    let mut talk = Talk::udp(AppProto::Krb5, 88);
    talk.client(&with(AS_REQ, b"4805Z", b"4805+")).server(ERROR);
    assert!(talk.logs()[0].contains(r#""failed_request":"KRB_AS_REQ""#), "{:?}", talk.logs());
}

#[test]
fn names_are_bounded() {
    let list = [0x1b, 1, b'a'].repeat(100);
    let tlv = |tag: u8, body: &[u8]| [&[tag, 0x82][..], &(body.len() as u16).to_be_bytes(), body].concat();
    let name = tlv(0x30, &[&b"\xa0\x03\x02\x01\x01"[..], &tlv(0xa1, &tlv(0x30, &list))].concat());
    let times = b"\xa5\x11\x18\x0f20370913024805Z\xa7\x04\x02\x0209\xa8\x050\x03\x02\x01\x12";
    let body = [&b"\xa0\x03\x03\x01\x00"[..], &tlv(0xa1, &name), b"\xa2\x03\x1b\x01R", times].concat();
    let fields = [&b"\xa1\x03\x02\x01\x05\xa2\x03\x02\x01\x0a"[..], &tlv(0xa4, &tlv(0x30, &body))].concat();
    let message = Message::read(&tlv(0x6a, &tlv(0x30, &fields))).unwrap();
    let cname = message.cname.unwrap();
    assert_eq!((cname.component(63), cname.component(64), cname.joined.len()), (Some(&b"a"[..]), None, 127));
}

#[test]
fn rules() {
    let of = |text: &str| match ticket_encryption(text) {
        Ok(NumberCondition::OneOf { values, negated }) => Some((values, negated)),
        _ => None,
    };
    let strong = vec![17, 18, 19, 20, 25, 26];
    assert_eq!((of("weak"), of(" !weak")), (Some((strong.clone(), true)), Some((strong, false))));
    assert_eq!(of("rc4-hmac, 17"), Some((vec![23, 17], false)));
    assert_eq!(of("-128"), Some((vec![0xffff_ff80], false)));
    assert_eq!((of("!23"), of("weak,17"), of("RC4-HMAC"), of("")), (None, None, None, None));
    assert!(
        error_code("25").is_ok()
            && error_code("-1").is_err()
            && error_code(">5").is_err()
            && message_type("256").is_err()
    );
}

#[test]
fn recognised_by_its_beginning() {
    assert!([AS_REQ, AS_REP, ERROR].iter().all(|m| probe_udp(TS, m) == Probed::Yes { reverse: false }));
    assert_eq!(probe_tcp(TS, &record(AS_REQ)), Probed::Yes { reverse: false });
    assert_eq!((probe_tcp(TS, b"\0\0\0"), probe_tcp(TS, b"\0\0\0\x09j")), (Probed::More, Probed::No));
    assert_eq!(
        (probe_udp(TS, b"j\x81"), probe_udp(TS, b"\x30\x03"), probe_udp(TS, b"j\x02\x02")),
        (Probed::More, Probed::No, Probed::No)
    );
}
