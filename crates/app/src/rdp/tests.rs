//! Beginnings of connections, and invalid ones.

use super::*;
use crate::testing::Talk;

const REQUEST: &[u8] =
    b"\x03\x00\x00*%\xe0\x00\x00\x00\x00\x00Cookie: mstshash=user\x0d\x0a\x01\x01\x08\x00\x03\x00\x00\x00";
const RESPONSE: &[u8] = b"\x03\x00\x00\x13\x0e\xd0\x00\x00\x124\x00\x02\x1f\x08\x00\x08\x00\x00\x00";
const CONNECT: &[u8] = b"\x03\x00\x01\x8a\x02\xf0\x80\x7fe\x82\x01~\x04\x01\x01\x04\x01\x01\x01\x01\xff0\x1a\x02\x01\x22\x02\x01\x02\x02\x01\x00\x02\x01\x01\x02\x01\x00\x02\x01\x01\x02\x03\x00\xff\xff\x02\x01\x020\x1a\x02\x01\x22\x02\x01\x02\x02\x01\x00\x02\x01\x01\x02\x01\x00\x02\x01\x01\x02\x03\x00\xff\xff\x02\x01\x020\x1a\x02\x01\x22\x02\x01\x02\x02\x01\x00\x02\x01\x01\x02\x01\x00\x02\x01\x01\x02\x03\x00\xff\xff\x02\x01\x02\x04\x82\x01\x1d\x00\x05\x00\x14|\x00\x01\x81\x14\x00\x08\x00\x10\x00\x01\xc0\x00Duca\x81\x06\x01\xc0\xe6\x00\x04\x00\x08\x00\x00\x05\x00\x04\x01\xca\x03\xaa\x09\x04\x00\x00(\x0a\x00\x00H\x00O\x00S\x00T\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00\x0c\x00\x00\x00i\x00m\x00e\x00f\x00i\x00l\x00e\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xca\x01\x00\x07\x00\x00\x00\x10\x00\x07\x00\x01\x00d\x00i\x00g\x00-\x00i\x00d\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00,\x01\x00\x00\xc8\x00\x00\x00Z\x00}\x00\x00\x00\x03\xc0 \x00\x02\x00\x00\x00rdpdr\x00\x00\x00\x00\x00\x80\x8012345678\x00\x00\x80\x80";
const CONNECT_RESPONSE: &[u8] = b"\x03\x00\x00 \x02\xf0\x80\x7ff\x82\x00\x14\x0a\x01\x00\x02\x01\x000\x03\x02\x01\x22\x04\x07\x00\x05\x00\x14|\x00\x01";

fn rdp() -> Talk {
    Talk::tcp(AppProto::Rdp, 3389)
}

/// Offset of the core data in [`CONNECT`].
fn core_at() -> usize {
    CONNECT.windows(4).position(|w| w == b"\x04\x00\x08\x00").unwrap()
}

/// A TLS record.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3][..], &len, body].concat()
}

#[test]
fn a_connection() {
    let mut talk = rdp();
    talk.client(REQUEST)
        .server(RESPONSE)
        .client(CONNECT)
        .client(b"\x03\0\0\x08\x02\xf0\x80\x28")
        .server(CONNECT_RESPONSE);
    assert_eq!(talk.outcome, Outcome::Done);
    assert_eq!(
        talk.logs(),
        [
            r#"{"rdp":{"tx_id":1,"event_type":"initial_request","cookie":"user","flags":["restricted_admin_mode_required"]}}"#,
            r#"{"rdp":{"tx_id":2,"event_type":"initial_response","server_supports":["extended_client_data","dynvc_gfx","restricted_admin","redirected_authentication"],"protocol":"hybrid_ex"}}"#,
            concat!(
                r#"{"rdp":{"tx_id":3,"event_type":"connect_request","client":{"version":"v5","desktop_width":1280,"desktop_height":1024,"color_depth":16,"#,
                r#""keyboard_layout":"en-US","build":"Windows XP","client_name":"HOST","keyboard_type":"enhanced","keyboard_subtype":3,"function_keys":12,"#,
                r#""ime":"imefile","product_id":1,"serial_number":7,"capabilities":["support_errinfo_pdf"],"id":"dig-id","connection_hint":"lan","#,
                r#""physical_width":300,"physical_height":200,"desktop_orientation":90,"scale_factor":125},"channels":["rdpdr","12345678"]}}"#
            ),
            r#"{"rdp":{"tx_id":4,"event_type":"connect_response"}}"#,
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 4]);
}

#[test]
fn numbers_without_a_name() {
    let at = core_at();
    let log = |place: usize, bytes: &[u8]| {
        let mut connect = CONNECT.to_vec();
        connect[at + place..at + place + bytes.len()].copy_from_slice(bytes);
        rdp().client(&connect).logs().remove(0)
    };
    assert!(log(0, &[7, 0, 0, 0]).contains(r#""version":"unknown""#));
    assert!(log(12, &[0xff, 0xff, 0, 0]).contains(r#""keyboard_layout":"unknown","build""#));
    assert!(log(16, &[1, 0, 0, 0]).contains(r#""build":"unknown""#));
    assert!(!log(52, &[9, 0, 0, 0]).contains("keyboard_type"));
    // Colour depths: the last field with one counts.
    assert!(log(136, &[0, 0, 15, 0]).contains(r#""color_depth":8,"#));
    assert!(log(140, &[0x10, 0]).contains(r#""capabilities":[]"#) && !log(140, &[0, 8]).contains("capabilities"));
    assert!(log(216, &[1, 0]).ends_with(r#""physical_width":300},"channels":["rdpdr","12345678"]}}"#));
    assert_eq!((keyboard_count(), log(206, &[0]).contains("hint")), (449, false));
}

fn keyboard_count() -> usize {
    include_str!("keyboards.txt").lines().count()
}

#[test]
fn refusals() {
    let mut refused = RESPONSE.to_vec();
    refused[11..].copy_from_slice(&[3, 0, 8, 0, 5, 0, 0, 0]);
    assert_eq!(
        rdp().server(&refused).logs(),
        [r#"{"rdp":{"tx_id":1,"event_type":"initial_response","error_code":5,"reason":"hybrid required by server"}}"#]
    );
    refused[15] = 99;
    assert_eq!(rdp().server(&refused).logs(), [r#"{"rdp":{"tx_id":1,"event_type":"initial_response"}}"#]);
}

#[test]
fn certificates_of_tls() {
    let certificate = b"\x30\x0b\x30\x09\xa0\x03\x02\x01\x02\x02\x02\x0a\xbc";
    let list = [&[0, 0, 16, 0, 0, 13][..], certificate].concat();
    let messages = [&[2, 0, 0, 2, 3, 3, 11, 0, 0, 19][..], &list].concat();
    // The handshake messages may span records.
    for cut in 1..messages.len() {
        let mut talk = rdp();
        talk.client(REQUEST).server(RESPONSE).client(&record(22, b"hello"));
        talk.server(&record(22, &messages[..cut])).server(&record(20, b"\x01")).server(&record(22, &messages[cut..]));
        assert_eq!(talk.outcome, Outcome::Done);
        assert_eq!(talk.logs()[2], r#"{"rdp":{"tx_id":3,"event_type":"tls_handshake","x509_serials":["abc"]}}"#);
    }
    let mut talk = rdp();
    talk.client(&record(22, b"hello")).server(&record(22, &[2, 0, 0, 0])).server(&record(23, b"encrypted"));
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Done, 0));
    // A handshake without an end.
    let mut talk = rdp();
    talk.client(&record(22, b"hello")).server(&record(22, &[2, 0xff, 0, 0]));
    for _ in 0..5 {
        talk.server(&record(22, &[0; 16384]));
    }
    assert_eq!(talk.outcome, Outcome::Done);
}

#[test]
fn what_is_no_pdu() {
    // A cookie without an end; another class; a destination; a length beyond the PDU, and below it.
    let change = |at: usize, to: u8| {
        let mut request = REQUEST.to_vec();
        request[at] = to;
        request
    };
    let end = REQUEST.windows(2).position(|w| w == b"\r\n").unwrap();
    for (request, ends) in [
        (change(end, b'x'), true),
        (change(10, 0x20), false),
        (change(6, 1), false),
        (change(4, 0xff), true),
        (change(4, 9), true),
    ] {
        let mut talk = rdp();
        talk.client(&request).client(CONNECT).server(RESPONSE);
        // An invalid PDU ends parsing of its side only.
        assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, if ends { 1 } else { 2 }), "{request:x?}");
    }
    // A credit is no error.
    assert_eq!(rdp().client(&change(5, 0xe1)).logs().len(), 1);
    let mut talk = rdp();
    talk.client(b"\x03\x00\x00\x03rest").client(REQUEST).server(RESPONSE);
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, 1));
    talk.server(b"\x03\x00\x00\x03rest");
    assert_eq!(talk.outcome, Outcome::Failed);
    let mut talk = rdp();
    talk.client(REQUEST).client(b"garbage").client(CONNECT).server(RESPONSE);
    assert_eq!((talk.outcome, talk.logs().len()), (Outcome::More, 2));
    // A data PDU has a header of two bytes, and is not continued.
    for at in [4, 6] {
        let (mut connect, mut response) = (CONNECT.to_vec(), CONNECT_RESPONSE.to_vec());
        (connect[at], response[at]) = (1, 1);
        assert!(rdp().client(&connect).server(&response).logs().is_empty());
    }
    // The elements before the client's data do not matter, but it has a block.
    let key = CONNECT.windows(4).position(|w| w == b"Duca").unwrap();
    for at in 9..key {
        let mut connect = CONNECT.to_vec();
        connect[at] ^= 0x55;
        assert_eq!(rdp().client(&connect).logs().len(), 1, "{at}");
    }
    let mut connect = CONNECT.to_vec();
    connect[key + 4] = 3;
    assert!(rdp().client(&connect).logs().is_empty());
    // Any byte may be wrong, and the client's data may end anywhere.
    let inside = CONNECT.windows(2).position(|w| w == b"\x7f\x65").unwrap();
    let body = &CONNECT[inside + 2..];
    assert!(Client::read(body).is_some());
    for i in 0..body.len() {
        assert_eq!(Client::read(&body[..i]), None);
        for b in [0, 0x7f, 0x80, 0xff] {
            let mut body = body.to_vec();
            body[i] = b;
            if let Some(client) = Client::read(&body) {
                client.log(&mut Json::new());
            }
        }
    }
    let mut talk = rdp();
    talk.client(&REQUEST[..9]).end();
    assert!(talk.logs().is_empty());
}

#[test]
fn recognised_by_its_beginning() {
    assert!([REQUEST, RESPONSE, CONNECT].iter().all(|m| probe(TS, m) == Probed::Yes { reverse: false }));
    assert_eq!(
        (probe(TS, b""), probe(TS, b"\x04\0\0"), probe(TS, b"\x03\x01\0\x06\x02\x60")),
        (Probed::More, Probed::No, Probed::Yes { reverse: false })
    );
}
