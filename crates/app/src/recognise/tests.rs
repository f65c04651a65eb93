use std::net::IpAddr;

use margay_packet::Time;
use proptest::prelude::*;

use super::*;
use crate::config::AppConfig;
use crate::parser::{Parse, Shared};
use crate::registry::{ALL, probes_of};
use crate::session::{AppSession, SessionEvent};

fn flow(proto: u8, sport: u16, dport: u16) -> FlowCore {
    FlowCore {
        pkts: [1, 0],
        state: margay_flow::FlowState::Established,
        ..FlowCore::new(
            1,
            proto,
            (IpAddr::from([192, 0, 2, 1]), sport),
            (IpAddr::from([198, 51, 100, 1]), dport),
            Time(0),
        )
    }
}

const TO_SERVER: Direction = Direction::ToServer;
const TO_CLIENT: Direction = Direction::ToClient;

fn look(flow: &FlowCore, dir: Direction, data: &[u8]) -> Recognised {
    Recogniser::default().recognise(&mut RecogniseState::default(), flow, dir, data, false)
}

fn is(proto: AppProto) -> Recognised {
    Recognised::Known { proto, reverse: false }
}

#[test]
fn http_by_its_methods_and_versions() {
    let f = flow(TCP, 40000, 8888);
    for request in ["GET / HTTP/1.1\r\n", "get /", "POST\t/", "BASELINE-CONTROL /", "version-control /x", "INVALID x"] {
        assert_eq!(look(&f, TO_SERVER, request.as_bytes()), is(AppProto::Http1), "{request}");
    }
    for response in ["HTTP/1.1 200 OK\r\n", "http/1.0 200", "HTTP/0.9"] {
        assert_eq!(look(&f, TO_CLIENT, response.as_bytes()), is(AppProto::Http1), "{response}");
    }
    let no = [
        (TO_SERVER, "\r\nGET / HTTP/1.1\r\n\r\n"),
        (TO_SERVER, " GET / HTTP/1.1\r\n\r\n"),
        (TO_SERVER, "GETT / HTTP/1.1\r\n\r\n"),
        (TO_SERVER, "SEARCH / HTTP/1.1\r\n\r\n"),
        (TO_SERVER, "GET\x0b/ HTTP/1.1\r\n\r\n"),
        (TO_SERVER, "HTTP/1.1 200 OK\r\n\r\n"),
        (TO_CLIENT, "HTTP/1.2 200 OK\r\n\r\n"),
        (TO_CLIENT, "HTTP/2 200 OK\r\n\r\n\r\n"),
        (TO_CLIENT, "\r\nHTTP/1.1 200 OK\r\n"),
        (TO_CLIENT, "GET / HTTP/1.1\r\n\r\n"),
    ];
    for (dir, text) in no {
        assert_eq!(look(&f, dir, text.as_bytes()), Recognised::Failed, "{text:?}");
    }
}

/// A ClientHello that OpenSSL or Go accepts is detected on any port, before the server answers.
#[test]
fn tls_by_a_greeting_in_odd_records() {
    let record = |kind: u8, version: u16, body: &[u8]| {
        [&[kind][..], &version.to_be_bytes(), &(body.len() as u16).to_be_bytes(), body].concat()
    };
    let hello = |version| record(22, version, &[1, 0, 0, 40, 3, 3]);
    for version in [0x0300, 0x0304, 0x0305, 0x03ff, 0x0200, 0x0400, 0x0000] {
        let bytes = hello(version);
        for port in [443, 5555] {
            assert_eq!(look(&flow(TCP, 40000, port), TO_SERVER, &bytes), is(AppProto::Tls), "{version:04x}");
        }
    }
    let f = flow(TCP, 40000, 5555);
    let (empty, warning) = (record(22, 0x0305, b""), record(21, 0x0301, &[1, 90]));
    for before in [empty.clone(), warning.clone(), empty.repeat(32), [warning, empty.clone()].concat()] {
        let bytes = [before, hello(0x0301)].concat();
        assert_eq!(look(&f, TO_SERVER, &bytes), is(AppProto::Tls));
        // Byte by byte, detection is no earlier than possible, and the result is the same.
        let mut state = RecogniseState::default();
        let all = Recogniser::default();
        let told = (1..=bytes.len()).find_map(|n| match all.recognise(&mut state, &f, TO_SERVER, &bytes[..n], false) {
            Recognised::More => None,
            other => Some(other),
        });
        assert_eq!(told, Some(is(AppProto::Tls)));
    }
    let no = [
        hello(0x1000),
        hello(0x1603),
        record(22, 0x0400, &[2, 0, 0, 40]),
        record(21, 0x0303, &[2, 40]),
        [empty.repeat(33), hello(0x0305)].concat(),
    ];
    // Longer than any pattern.
    let more = |bytes: Vec<u8>| [bytes, vec![0; 100]].concat();
    for bytes in no {
        assert_eq!(look(&f, TO_SERVER, &more(bytes.clone())), Recognised::Failed, "{bytes:?}");
    }
    assert_eq!(look(&f, TO_CLIENT, &more(hello(0x0305))), Recognised::Failed);
}

/// No probe is skipped, however many protocols there are (more than fit in a word do not compile).
#[test]
fn every_probe_is_asked() {
    let mut settings = RecogniseSettings::new(true);
    for k in ALL {
        for transport in [TCP, UDP] {
            settings.set(k.proto, transport, ProtocolSettings { mode: Some(Mode::On), ..Default::default() });
        }
    }
    let all = Recogniser::new(&settings);
    assert_eq!(all.probes.each_ref().map(|p| p.list.len()), [TCP, UDP].map(probes_of));
}

#[test]
fn given_up_behind_the_longest_pattern() {
    let f = flow(TCP, 40000, 8888);
    for (dir, enough) in [(TO_SERVER, 17), (TO_CLIENT, 10)] {
        let junk = b"xyzzy1234 xyzzy12345";
        assert_eq!(look(&f, dir, &junk[..enough - 1]), Recognised::More);
        assert_eq!(look(&f, dir, &junk[..enough]), Recognised::Failed);
        assert_eq!(look(&f, dir, b""), Recognised::More);
    }
    // If the other side is known, this side gets the depth of that protocol's patterns too.
    let mut state = RecogniseState::default();
    let r = recogniser();
    assert_eq!(r.recognise(&mut state, &f, TO_SERVER, b"GET / HTTP/1.1\r\n", false), is(AppProto::Http1));
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"xyzzy1234 xyzzy1", false), Recognised::More);
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"xyzzy1234 xyzzy12", false), Recognised::Failed);
}

#[test]
fn what_was_taken_before_counts() {
    let (r, f) = (Recogniser::default(), flow(TCP, 40000, 8888));
    let mut state = RecogniseState::default();
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"220 ftp\r\n", false), Recognised::More);
    state.consumed(TO_CLIENT, 9);
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"331 ok\r\n", false), Recognised::Failed);
    // A pattern after the beginning does not match.
    let mut state = RecogniseState::default();
    state.consumed(TO_CLIENT, 3);
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"HTTP/1", false), Recognised::More);
}

#[test]
fn picked_up_in_the_middle_it_may_be_turned_round() {
    let f = flow(TCP, 80, 40000);
    let look = |f: &FlowCore, dir, data: &[u8]| {
        let mut state = RecogniseState::default();
        state.set_midstream();
        recogniser().recognise(&mut state, f, dir, data, false)
    };
    let turned = Recognised::Known { proto: AppProto::Http1, reverse: true };
    assert_eq!(look(&f, TO_SERVER, b"HTTP/1.1 200 OK\r\n"), turned);
    assert_eq!(look(&f, TO_CLIENT, b"GET / HTTP/1.1\r\n"), turned);
    assert_eq!(look(&f, TO_SERVER, b"GET / HTTP/1.1\r\n"), is(AppProto::Http1));
    // A probe for any port looks in both directions, too.
    let (greeting, f) = (b"220 mx ESMTP ready\r\n", flow(TCP, 2525, 40000));
    assert_eq!(look(&f, TO_SERVER, greeting), Recognised::Known { proto: AppProto::Smtp, reverse: true });
    assert_eq!(look(&f, TO_CLIENT, greeting), is(AppProto::Smtp));
}

#[test]
fn off_is_not_looked_for() {
    let mut settings = RecogniseSettings::default();
    let off = ProtocolSettings { mode: Some(Mode::Off), ..ProtocolSettings::default() };
    settings.set(AppProto::Http1, TCP, off);
    let r = Recogniser::new(&settings);
    let got =
        r.recognise(&mut RecogniseState::default(), &flow(TCP, 1, 80), TO_SERVER, b"GET / HTTP/1.1\r\n\r\n", false);
    assert_eq!(got, Recognised::Failed);
    assert!(!r.parses(AppProto::Http1));
    let only = ProtocolSettings { mode: Some(Mode::DetectionOnly), ..ProtocolSettings::default() };
    settings.set(AppProto::Http1, TCP, only);
    let r = Recogniser::new(&settings);
    assert_eq!(r.mode(AppProto::Http1), Mode::DetectionOnly);
    assert!(!r.parses(AppProto::Http1));
}

/// The result for a direction when its data arrives in these pieces.
fn in_pieces(
    r: &Recogniser,
    f: &FlowCore,
    midstream: bool,
    dir: Direction,
    data: &[u8],
    pieces: &[usize],
) -> Recognised {
    let mut state = RecogniseState::default();
    if midstream {
        state.set_midstream();
    }
    let mut end = 0;
    for p in pieces.iter().copied().chain([data.len()]) {
        end = (end + p).min(data.len());
        match r.recognise(&mut state, f, dir, &data[..end], end == data.len()) {
            Recognised::More => {}
            other => return other,
        }
    }
    Recognised::More
}

fn recogniser() -> &'static Recogniser {
    static R: std::sync::OnceLock<Recogniser> = std::sync::OnceLock::new();
    R.get_or_init(Recogniser::default)
}

/// Detection where packets wait for the verdict.
fn inline() -> &'static Recogniser {
    static R: std::sync::OnceLock<Recogniser> = std::sync::OnceLock::new();
    R.get_or_init(|| Recogniser::new(&RecogniseSettings::new(true)))
}

/// Inline, a request must be inspected before its server gets it: its line is enough, whatever the method, and although its
/// first word is another protocol's command.
#[test]
fn inline_any_request_line_is_http() {
    let f = flow(TCP, 40000, 8888);
    let look = |text: &str| inline().recognise(&mut RecogniseState::default(), &f, TO_SERVER, text.as_bytes(), false);
    let long = format!("PURGE /{}", "a".repeat(PROBE_MAX));
    let requests = [
        "SEARCH /x HTTP/1.1\r\n",
        "RPC_IN_DATA\t/rpc\tHTTP/1.0\n",
        "\r\n\nGET / HTTP/1.1\r\n",
        "jeff http://x/ http/1.1\n",
        "EHLO / HTTP/1.1\r\n",
        "USER /?id=1 HTTP/1.1\r\n",
        "GET /",
        &long,
    ];
    for text in requests {
        assert_eq!(look(text), is(AppProto::Http1), "{text:?}");
    }
    let blank = "\r\n".repeat(PROBE_MAX);
    let word = "A".repeat(PROBE_MAX);
    for text in [
        "HTTP/1.1 200 OK\r\n",
        "DESCRIBE rtsp://x/ RTSP/1.0\r\n",
        "X /with-no-version\r\n",
        "{} /items HTTP/1.1\r\n",
        &blank,
        &word,
    ] {
        assert_eq!(look(text), Recognised::Failed, "{text:?}");
    }
    assert_eq!(look("EHLO mx\r\n"), is(AppProto::Smtp));
    assert_eq!(look("PURGE / HTTP/1."), Recognised::More);
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        start in prop_oneof![
            Just(&b"GET / HTTP/1.1\r\n"[..]), Just(&b"\r\nX / HTTP/1.1\r\n"[..]), Just(&b"EHLO / HTTP/1.1\r\n"[..]),
            Just(&b"\x00\x1c\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www"[..]),
            Just(&b"\x05\x00\x0b\x03\x10\x00\x00\x00"[..]), Just(&b"\x30\x0c\x02\x01\x01\x60\x07"[..]),
            Just(&b"\x80\x00\x00\x28\x11\x22\x33\x44\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01\x86\xa3"[..]), Just(&b"HTTP/1.1 200 OK\r\n"[..]), Just(&b"SSH-2.0-x\r\n"[..]),
            Just(&b""[..]),
        ],
        cut in 0usize..24,
        tail in proptest::collection::vec(any::<u8>(), 0..80),
        pieces in proptest::collection::vec(1usize..9, 0..30),
        port in prop_oneof![Just(53u16), Just(80), Just(443), Just(445), Just(8888), Just(23), Just(88), Just(389), Just(1883), Just(2049), Just(3389)],
        client in any::<bool>(),
        middle in any::<bool>(),
    ) {
        let mut data = start[..cut.min(start.len())].to_vec();
        data.extend_from_slice(&tail);
        let f = flow(TCP, 40000, port);
        let dir = if client { TO_SERVER } else { TO_CLIENT };
        for r in [recogniser(), inline()] {
            prop_assert_eq!(in_pieces(r, &f, middle, dir, &data, &pieces), in_pieces(r, &f, middle, dir, &data, &[]));
        }
    }
}

/// The first data of each protocol is detected on its port. A truncated prefix of any length is never detected as anything
/// else.
#[test]
fn protocols_on_their_ports() {
    let query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x01a\x03com\x00\x00\x01\x00\x01";
    let over_tcp = [&[0, query.len() as u8][..], query].concat();
    let cases: &[(u8, u16, Direction, &[u8], AppProto)] = &[
        (TCP, 8888, TO_SERVER, b"\x16\x03\x01\x00\x50\x01", AppProto::Tls),
        (TCP, 443, TO_SERVER, b"\x80\x2e\x01\x03\x01\x00\x15", AppProto::Tls),
        (TCP, 8888, TO_CLIENT, b"SSH-2.0-OpenSSH\r\n", AppProto::Ssh),
        (TCP, 25, TO_SERVER, b"ehlo mx.example\r\n", AppProto::Smtp),
        (TCP, 21, TO_SERVER, b"USER anonymous\r\n", AppProto::Ftp),
        (TCP, 143, TO_CLIENT, b"* OK IMAP4rev1 ready\r\n", AppProto::Imap),
        (TCP, 110, TO_CLIENT, b"+OK POP3 ready\r\n", AppProto::Pop3),
        (
            TCP,
            445,
            TO_SERVER,
            b"\x00\x00\x00\x40\xfeSMB\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00",
            AppProto::Smb,
        ),
        (TCP, 135, TO_SERVER, b"\x05\x00\x0b\x03\x10\x00\x00\x00\x48\x00\x00\x00\x01\x00\x00\x00", AppProto::Dcerpc),
        (TCP, 53, TO_SERVER, &over_tcp, AppProto::Dns),
        (UDP, 53, TO_SERVER, query, AppProto::Dns),
        (UDP, 5353, TO_SERVER, query, AppProto::Mdns),
        (TCP, 3389, TO_SERVER, b"\x03\x00\x00\x0b\x06\xe0\x00\x00\x00\x00\x00", AppProto::Rdp),
        (TCP, 1883, TO_SERVER, b"\x10\x20\x00\x04MQTT\x04\x02\x00\x3c", AppProto::Mqtt),
        (TCP, 23, TO_CLIENT, b"\xff\xfd\x18", AppProto::Telnet),
        (TCP, 5900, TO_CLIENT, b"RFB 003.008\n", AppProto::Rfb),
        (TCP, 80, TO_SERVER, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", AppProto::Http2),
        (TCP, 389, TO_SERVER, b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00", AppProto::Ldap),
        (UDP, 69, TO_SERVER, b"\x00\x01file\x00octet\x00", AppProto::Tftp),
        (UDP, 5060, TO_SERVER, b"REGISTER sip:example SIP/2.0\r\n", AppProto::Sip),
        (UDP, 6881, TO_SERVER, b"d1:ad2:id20:aaaaaaaaaaaaaaaaaaaae1:q4:ping1:t2:aa1:y1:qe", AppProto::BittorrentDht),
    ];
    for &(transport, port, dir, data, proto) in cases {
        let f = flow(transport, 40000, port);
        assert_eq!(look(&f, dir, data), is(proto), "{proto:?}");
        for cut in 1..data.len() {
            let got = look(&f, dir, &data[..cut]);
            let fits = got == is(proto) || got == Recognised::More || (transport == UDP && got == Recognised::Failed);
            assert!(fits, "{proto:?} of {cut}: {got:?}");
        }
    }
}

#[test]
fn an_answer_that_comes_as_a_question() {
    let answer = b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x01a\x03com\x00\x00\x01\x00\x01";
    let turned = Recognised::Known { proto: AppProto::Dns, reverse: true };
    assert_eq!(look(&flow(UDP, 40000, 53), TO_SERVER, answer), turned);
    assert_eq!(look(&flow(UDP, 40000, 53), TO_CLIENT, answer), is(AppProto::Dns));
    // With a handshake, the direction is certain.
    let over_tcp = [&[0, 28][..], answer].concat();
    assert_eq!(look(&flow(TCP, 40000, 53), TO_SERVER, &over_tcp), is(AppProto::Dns));
}

#[test]
fn an_answer_to_a_client_whose_question_was_not_seen() {
    let answer = b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x01a\x03com\x00\x00\x01\x00\x01";
    let f = flow(UDP, 53, 40000);
    assert_eq!(look(&f, TO_SERVER, answer), Recognised::Failed);
    let mut state = RecogniseState::default();
    state.set_midstream();
    let turned = Recognised::Known { proto: AppProto::Dns, reverse: true };
    assert_eq!(recogniser().recognise(&mut state, &f, TO_SERVER, answer, false), turned);
}

#[test]
fn dns_with_many_questions() {
    let f = flow(TCP, 40000, 53);
    let questions = b"\x01a\x00\x00\x01\x00\x01".repeat(1500);
    let mut message = vec![0x12, 0x34, 1, 0];
    message.extend_from_slice(&1500u16.to_be_bytes());
    message.extend_from_slice(&[0; 6]);
    message.extend_from_slice(&questions);
    let mut stream = (message.len() as u16).to_be_bytes().to_vec();
    stream.extend_from_slice(&message);
    assert_eq!(look(&f, TO_SERVER, &stream[..90]), Recognised::More);
    assert_eq!(look(&f, TO_SERVER, &stream[..100]), is(AppProto::Dns));
    // More than fits.
    stream[..2].copy_from_slice(&900u16.to_be_bytes());
    assert_eq!(look(&f, TO_SERVER, &stream[..100]), Recognised::Failed);
    assert_eq!(look(&flow(UDP, 40000, 53), TO_SERVER, &message), is(AppProto::Dns));
    assert_eq!(look(&flow(UDP, 40000, 53), TO_SERVER, &message[..900]), Recognised::Failed);
}

#[test]
fn what_the_other_side_speaks_breaks_a_tie() {
    let (f, r) = (flow(TCP, 40000, 110), recogniser());
    let mut state = RecogniseState::default();
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"+OK ready\r\n", false), is(AppProto::Pop3));
    assert_eq!(r.recognise(&mut state, &f, TO_SERVER, b"USER x\r\n", false), is(AppProto::Pop3));
}

/// A protocol that detection never finds is parsed after a change from another one, unless it is off.
#[test]
fn a_protocol_that_is_only_handed_over_to() {
    assert!(recogniser().parses(AppProto::Websocket));
    let mut settings = RecogniseSettings::default();
    settings.set(AppProto::Websocket, TCP, ProtocolSettings { mode: Some(Mode::Off), ..Default::default() });
    assert!(!Recogniser::new(&settings).parses(AppProto::Websocket));
}

proptest! {
    /// A probe never changes its answer, whatever follows (datagrams are complete, so only TCP probes).
    #[test]
    fn probes_stand_by_what_they_said(
        start in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(3), Just(5), Just(0x30), any::<u8>()], 0..40),
    ) {
        for p in ALL.iter().flat_map(|k| k.recognition.probes).filter(|p| p.transport == TCP) {
            for dir in [TO_SERVER, TO_CLIENT] {
                let mut said = Probed::More;
                for n in 0..=start.len() {
                    let now = (p.probe)(dir, &start[..n]);
                    prop_assert!(said == Probed::More || now == said, "{said:?} then {now:?} at {n}");
                    said = now;
                }
            }
        }
    }
}

/// HTTP servers accept any word as a method: the response identifies the request, whatever the segmentation.
#[test]
fn a_request_whose_method_is_a_command_elsewhere() {
    for (command, proto) in [
        ("EHLO /x HTTP/1.1\r\n", "EHLO x\r\n"),
        ("user /x http/1.0\n", "USER x\r\n"),
        ("SSH-2.0-x /x HTTP/1.1\r\n", "SSH-2.0-x\r\n"),
    ]
    .map(|(request, command)| (request, look(&flow(TCP, 40000, 80), TO_SERVER, command.as_bytes())))
    {
        assert!(matches!(proto, Recognised::Known { .. }), "{command}");
        let f = flow(TCP, 40000, 80);
        assert_eq!(look(&f, TO_SERVER, command.as_bytes()), Recognised::Failed, "{command}");
        let r = recogniser();
        let mut state = RecogniseState::default();
        for n in 1..command.len() {
            let got = r.recognise(&mut state, &f, TO_SERVER, &command.as_bytes()[..n], false);
            assert_eq!(got, Recognised::More, "{command} {n}");
        }
        assert_eq!(r.recognise(&mut state, &f, TO_SERVER, command.as_bytes(), false), Recognised::Failed);
        assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"HTTP/1.1 200 OK\r\n", false), is(AppProto::Http1));
    }
    // HTTP servers do not speak first.
    let (r, mut state, f) = (recogniser(), RecogniseState::default(), flow(TCP, 40000, 25));
    r.recognise(&mut state, &f, TO_CLIENT, b"220 a\r\n", false);
    assert_eq!(r.recognise(&mut state, &f, TO_SERVER, b"EHLO x HTTP/1.1\r\n", false), is(AppProto::Smtp));
    // No command is that long. A command that the client ends without a line end is complete.
    let long = [&b"EHLO "[..], &[b'x'; PROBE_MAX]].concat();
    assert_eq!(look(&flow(TCP, 40000, 80), TO_SERVER, &long), Recognised::Failed);
    let (r, mut state) = (recogniser(), RecogniseState::default());
    assert_eq!(r.recognise(&mut state, &flow(TCP, 40000, 25), TO_SERVER, b"EHLO x", true), is(AppProto::Smtp));
}

/// Runs detection on a conversation. Returns the protocols of both sides, the anomalies, and the number of failed flows.
fn sides(transport: u8, port: u16, said: &[(Direction, &[u8])]) -> ([AppProto; 2], u8, u64) {
    sides_opened_by(None, transport, port, said)
}

/// As [`sides`], for a connection whose first data arrived in a direction.
fn sides_opened_by(
    opened_by: Option<Direction>,
    transport: u8,
    port: u16,
    said: &[(Direction, &[u8])],
) -> ([AppProto; 2], u8, u64) {
    let config = AppConfig::default();
    let (core, mut shared, mut session) = (flow(transport, 40_000, port), Shared::default(), AppSession::default());
    session.set_opened_by(opened_by);
    for &(dir, data) in said {
        let mut cx =
            Parse { config: &config, shared: &mut shared, flow: &core, time: Time(0), end: false, inline: false };
        session.data(&mut cx, dir, data);
    }
    let failed = shared.counters.flows[usize::from(transport == UDP)][AppProto::Failed as usize];
    (session.sides_shown(), session.take_events(), failed)
}

/// After the server's greeting, a client's first word need not identify the protocol.
#[test]
fn the_first_word_of_a_client() {
    let long = |word: &str| format!("{word}{}\r\n", "x".repeat(4096)).into_bytes();
    for (port, greeting, proto, words) in [
        (110, "+OK ready\r\n", AppProto::Pop3, &["AUTH XOAUTH2 ", "auth plain ", "LANG ", "NOOP\r\n"][..]),
        (21, "220 FTP ready\r\n", AppProto::Ftp, &["HOST ", "QUIT\r\n", "auth "][..]),
        (25, "220 mx ESMTP\r\n", AppProto::Smtp, &["XCLIENT ", "AUTH ", "MAIL "][..]),
    ] {
        for word in words {
            let data = long(word);
            for cut in [1, 3, data.len()] {
                let said = [(TO_CLIENT, greeting.as_bytes()), (TO_SERVER, &data[..cut]), (TO_SERVER, &data[..])];
                assert_eq!(sides(TCP, port, &said), ([proto; 2], 0, 0), "{word} {cut}");
            }
        }
        let other = long("AUTHX ");
        let (shown, events, _) = sides(TCP, port, &[(TO_CLIENT, greeting.as_bytes()), (TO_SERVER, &other[..])]);
        assert_eq!((shown[0], events), (AppProto::Failed, SessionEvent::OnlyOneDirection.bit()));
    }
}

/// Suricata 8 shows a direction as failed only if the other one was known before, but has the anomaly in both cases.
#[test]
fn a_direction_that_fails_first() {
    let said = [(TO_SERVER, &[0xff; 4096][..]), (TO_CLIENT, &b"SSH-2.0-OpenSSH_9.6\r\n"[..])];
    let one_direction = SessionEvent::OnlyOneDirection.bit();
    assert_eq!(sides(TCP, 22, &said), ([AppProto::Unknown, AppProto::Ssh], one_direction, 0));
    // A direction whose data also fails its parser is not shown as failed: the flow has an error instead.
    let (shown, events, _) = sides(TCP, 22, &[said[1], said[0]]);
    assert_eq!((shown, events), ([AppProto::Unknown, AppProto::Ssh], one_direction));
    let hello = b"220 a\r\n";
    let (shown, events, _) = sides(TCP, 21, &[(TO_CLIENT, hello), (TO_SERVER, &b"AUTHX x\r\n".repeat(400))]);
    assert_eq!((shown, events), ([AppProto::Failed, AppProto::Ftp], one_direction));
}

/// When one direction's protocol is known, its probes decide about the other one on any port: here a hello in the form of SSL 2.0,
/// which is only looked for on port 443 otherwise.
#[test]
fn the_other_direction_of_a_known_protocol() {
    let hello = [&b"\x80\x32\x01\x03\x03\x00\x09\x00\x00\x00\x20"[..], &[0; 41]].concat();
    let other = [&b"\x80\x32\x07\x03\x03\x00\x09\x00\x00\x00\x20"[..], &[0; 41]].concat();
    let answer = b"\x16\x03\x03\x00\x31\x02\x00\x00\x2d\x03\x03";
    for port in [443, 4430] {
        let said = [(TO_SERVER, &hello[..]), (TO_CLIENT, answer), (TO_SERVER, &hello[..])];
        assert_eq!(sides(TCP, port, &said), ([AppProto::Tls; 2], 0, 0), "{port}");
    }
    let said = [(TO_SERVER, &other[..]), (TO_CLIENT, answer), (TO_SERVER, &other[..])];
    assert_eq!(sides(TCP, 4430, &said).0[1], AppProto::Tls);
    assert_eq!(sides(TCP, 4430, &said).1, SessionEvent::OnlyOneDirection.bit());
}

/// Only the protocol's own data in the wrong direction raises the anomaly.
#[test]
fn a_server_that_speaks_before_a_tls_client() {
    let hello = b"\x16\x03\x01\x00\x31\x01\x00\x00\x2d\x03\x03";
    let answer = b"\x16\x03\x03\x00\x31\x02\x00\x00\x2d\x03\x03";
    let wrong = SessionEvent::WrongDirectionFirstData.bit();
    for (said, shown, events) in [
        ([(TO_CLIENT, &answer[..]), (TO_SERVER, hello)], [AppProto::Unknown, AppProto::Tls], wrong),
        ([(TO_CLIENT, &b"J\0\0\0\n8.0.33\0"[..]), (TO_SERVER, hello)], [AppProto::Tls, AppProto::Unknown], 0),
    ] {
        assert_eq!(sides(TCP, 443, &said), (shown, events, 0));
    }
    // The hello arrived first, but the answer was acknowledged first.
    let said = [(TO_CLIENT, &answer[..]), (TO_SERVER, hello)];
    assert_eq!(sides_opened_by(Some(TO_SERVER), TCP, 443, &said), ([AppProto::Tls; 2], 0, 0));
    assert_eq!(sides_opened_by(Some(TO_CLIENT), TCP, 443, &said).1, wrong);
}

#[test]
fn flows_without_a_protocol_are_counted() {
    let nothing = &[0xff; 4096][..];
    assert_eq!(sides(UDP, 9, &[(TO_SERVER, nothing), (TO_SERVER, nothing), (TO_CLIENT, nothing)]).2, 1);
    assert_eq!(sides(TCP, 9, &[(TO_SERVER, nothing)]).2, 0);
    assert_eq!(sides(TCP, 9, &[(TO_SERVER, nothing), (TO_CLIENT, nothing), (TO_CLIENT, nothing)]).2, 1);
}

/// An answer that was sent to the port of servers turns the flow. What follows is still recognised.
#[test]
fn a_false_answer_hides_nothing() {
    let answer = b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x03www\x01a\x03com\x00\x00\x01\x00\x01";
    let (r, mut state) = (recogniser(), RecogniseState::default());
    state.set_midstream();
    let turned = Recognised::Known { proto: AppProto::Dns, reverse: true };
    assert_eq!(r.recognise(&mut state, &flow(UDP, 40000, 53), TO_SERVER, answer, false), turned);
    state.turn_round();
    assert_eq!(r.recognise(&mut state, &flow(UDP, 53, 40000), TO_CLIENT, answer, false), is(AppProto::Dns));
}
