//! Sessions through the TLS parser: the result, and that it does not depend on the segmentation.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::net::IpAddr;

use margay_app::certificates::{CertificateStore, Occasion};
use margay_app::tls::{Encryption, Field, Fields};
use margay_app::{AppConfig, AppLogOptions, AppProto, LogFor, Outcome, Parse, Parser, Shared, protocol};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_json::Json;
use margay_packet::Time;
use proptest::prelude::*;

/// A parser with its context, fed as a session does.
struct Talk {
    time: i64,
    config: AppConfig,
    flow: FlowCore,
    shared: Shared,
    parser: Box<dyn Parser>,
    waiting: [Vec<u8>; 2],
    outcome: Outcome,
}

impl Talk {
    fn new(encryption: Encryption) -> Talk {
        let flow = FlowCore {
            state: FlowState::Established,
            ..FlowCore::new(1, 6, (IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 443), Time(0))
        };
        let mut config = AppConfig::default();
        (config.tls.encryption, config.tls.ja3, config.tls.ja4) = (encryption, true, true);
        let parser = (protocol(AppProto::Tls).expect("TLS has a parser").parser)(&config, &flow);
        let shared = Shared::default();
        Talk {
            time: 1_600_000_000,
            config,
            flow,
            shared,
            parser,
            waiting: [Vec::new(), Vec::new()],
            outcome: Outcome::More,
        }
    }

    fn feed(&mut self, dir: Direction, data: &[u8], end: bool) {
        if self.outcome != Outcome::More {
            return;
        }
        let waiting = &mut self.waiting[dir.index()];
        waiting.extend_from_slice(data);
        let time = Time::new(self.time, 0);
        let mut cx =
            Parse { config: &self.config, shared: &mut self.shared, flow: &self.flow, time, end, inline: false };
        let parsed = self.parser.data(&mut cx, dir, waiting);
        assert!(parsed.consumed <= waiting.len());
        waiting.drain(..parsed.consumed);
        self.outcome = parsed.outcome;
    }

    fn number(&self, name: &str, dir: Direction) -> Option<u64> {
        let def = protocol(AppProto::Tls)?.numbers.iter().find(|n| n.name == name)?;
        self.parser.tx(0)?.number(def.id, dir, 0)
    }

    fn buffer(&self, name: &str, dir: Direction, index: usize) -> Option<Vec<u8>> {
        let def = protocol(AppProto::Tls)?.buffers.iter().find(|b| b.name == name)?;
        let mut scratch = Vec::new();
        self.parser.tx(0)?.buffer(def.id, dir, index, &mut scratch).map(|f| f.data.to_vec())
    }

    fn events(&self) -> Vec<&'static str> {
        let names = protocol(AppProto::Tls).map_or(&[][..], |p| p.events);
        let tx = self.parser.tx(0);
        tx.map_or(Vec::new(), |t| t.base().events.as_slice().iter().map(|e| names[usize::from(*e)]).collect())
    }

    fn log(&self) -> String {
        let mut options = AppLogOptions::default();
        options.tls.fields = Field::NAMES.iter().fold(Fields::default(), |f, n| f.with(n.1));
        let mut json = Json::new();
        json.item_object();
        if let Some(tx) = self.parser.tx(0) {
            tx.log(&mut json, &options, LogFor::Event);
        }
        json.end_object();
        String::from_utf8(json.as_bytes().to_vec()).expect("a log is UTF-8")
    }

    /// Everything that rules and logs see.
    fn seen(&self) -> Vec<String> {
        let Some(tx) = self.parser.tx(0) else { return Vec::new() };
        let protocol = protocol(AppProto::Tls).expect("TLS has a parser");
        let mut events = self.events();
        events.sort_unstable();
        let mut out = vec![format!("{:?} {:?} {events:?}", self.outcome, tx.base().progress), self.log()];
        for dir in [ToServer, ToClient] {
            for def in protocol.buffers {
                for index in 0.. {
                    let Some(data) = self.buffer(def.name, dir, index) else { break };
                    out.push(format!("{} {dir:?} {}", def.name, data.escape_ascii()));
                    if !def.kind.is_several() {
                        break;
                    }
                }
            }
            // The state is that of the data that arrived last.
            let numbers = protocol.numbers.iter().filter(|n| n.name != "ssl_state");
            out.extend(numbers.map(|n| format!("{} {:?}", n.name, self.number(n.name, dir))));
        }
        out
    }
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16).to_be_bytes();
    [&[kind, 3, 3], &len[..], body].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32).to_be_bytes();
    [&[kind], &len[1..], body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let len = |n: usize| (n as u16).to_be_bytes();
    extension(0, &[&len(name.len() + 3)[..], &[0], &len(name.len()), name].concat())
}

fn client_hello(session: &[u8], extensions: &[u8]) -> Vec<u8> {
    let random: Vec<u8> = (0..32).collect();
    let ciphers = [0, 8, 0x0a, 0x0a, 0x13, 0x01, 0xc0, 0x2f, 0x00, 0x35];
    let len = (extensions.len() as u16).to_be_bytes();
    let session = [&[session.len() as u8], session].concat();
    message(1, &[&[3, 3], &random[..], &session, &ciphers, &[1, 0], &len, extensions].concat())
}

fn server_hello(session: &[u8], extensions: &[u8]) -> Vec<u8> {
    let random: Vec<u8> = (32..64).collect();
    let len = (extensions.len() as u16).to_be_bytes();
    let session = [&[session.len() as u8], session].concat();
    message(2, &[&[3, 3], &random[..], &session, &[0xc0, 0x2f, 0], &len, extensions].concat())
}

/// A self-signed certificate (P-256, CN=a.example, alternative names a.example and 192.0.2.7, valid 1999 to 2055).
const CERTIFICATE: &[u8] = include_bytes!("tls-certificate.der");

fn certificates() -> Vec<u8> {
    let len = |n: usize| (n as u32).to_be_bytes()[1..].to_vec();
    let one = [&len(CERTIFICATE.len())[..], CERTIFICATE].concat();
    message(11, &[&len(2 * one.len())[..], &one, &one].concat())
}

/// The messages of a session of TLS 1.2.
fn session() -> Vec<(Direction, Vec<u8>)> {
    let groups = extension(10, &[0, 4, 0, 29, 0, 23]);
    let points = extension(11, &[1, 0]);
    let alpn = extension(16, b"\0\x0c\x02h2\x08http/1.1");
    let hello = [server_name(b"a.example"), groups, points, alpn].concat();
    let flight = [server_hello(b"", &extension(16, b"\0\x03\x02h2")), certificates(), message(14, b"")].concat();
    // Messages that span records.
    let (a, b) = flight.split_at(100);
    let change = record(20, &[1]);
    let finished = record(22, &[0xee; 40]);
    vec![
        (ToServer, record(22, &client_hello(b"", &hello))),
        (ToClient, [record(22, a), record(22, b)].concat()),
        (ToServer, [record(22, &message(16, &[1; 66])), change.clone(), finished.clone()].concat()),
        (ToClient, [change, finished].concat()),
        (ToServer, record(23, &[0x55; 300])),
        (ToClient, [record(23, &[0x66; 900]), record(21, &[7; 30])].concat()),
    ]
}

fn run(acts: &[(Direction, Vec<u8>)], size: usize, encryption: Encryption) -> Talk {
    let mut talk = Talk::new(encryption);
    for (dir, bytes) in acts {
        for piece in bytes.chunks(size) {
            talk.feed(*dir, piece, false);
        }
    }
    talk.feed(ToServer, b"", true);
    talk.feed(ToClient, b"", true);
    talk
}

#[test]
fn a_session() {
    let t = run(&session(), usize::MAX, Encryption::TrackOnly);
    assert_eq!((t.outcome, t.events()), (Outcome::More, Vec::new()));
    assert!(t.shared.wishes.no_payload && !t.shared.wishes.bypass);
    let text = |name, dir, n| t.buffer(name, dir, n).map(|b| String::from_utf8(b).unwrap());
    assert_eq!(text("tls.sni", ToServer, 0).as_deref(), Some("a.example"));
    assert_eq!(text("tls.alpn", ToServer, 1).as_deref(), Some("http/1.1"));
    assert_eq!(text("tls.alpn", ToClient, 0).as_deref(), Some("h2"));
    assert_eq!(text("tls.cert_subject", ToClient, 0).as_deref(), Some("C=DE, O=Margay, CN=a.example"));
    assert_eq!(text("tls.subjectaltname", ToClient, 1).as_deref(), Some("[192, 0, 2, 7]"));
    assert_eq!(text("ja3.string", ToServer, 0).as_deref(), Some("771,4865-49199-53,0-10-11-16,29-23,0"));
    assert_eq!(text("ja3s.string", ToClient, 0).as_deref(), Some("771,49199,16"));
    assert!(text("ja4.hash", ToServer, 0).is_some_and(|j| j.starts_with("t12d0304h2_")));
    assert_eq!(t.buffer("tls.certs", ToClient, 1).as_deref(), Some(CERTIFICATE));
    assert_eq!(t.number("tls.cert_chain_len", ToClient), Some(2));
    assert_eq!((t.number("tls_cert_expired", ToClient), t.number("tls_cert_valid", ToClient)), (Some(0), Some(1)));
    let log = t.log();
    for part in
        ["\"notbefore\":\"1999-01-01T00:00:00\"", "\"notafter\":\"2055-01-01T00:00:00\"", "\"version\":\"TLS 1.2\""]
    {
        assert!(log.contains(part), "{part} in {log}");
    }
}

/// As in Suricata, the fingerprint of an invalid hello has no MD5.
#[test]
fn fingerprints_of_invalid_hellos() {
    let mut acts = session();
    let hello = client_hello(b"", &extension(10, &[0, 4, 0, 29, 0, 23]));
    let cut = record(22, &message(1, &hello[4..hello.len() - 1]));
    acts[0].1 = cut;
    let t = run(&acts, usize::MAX, Encryption::TrackOnly);
    assert_eq!(t.events(), ["handshake_invalid_length"]);
    assert_eq!(t.buffer("ja3.string", ToServer, 0).as_deref(), Some(&b"771,4865-49199-53"[..]));
    assert_eq!(t.buffer("ja3.hash", ToServer, 0), None);
    assert!(t.log().contains(r#""ja3":{"string":"771,4865-49199-53"}"#), "{}", t.log());
}

/// `tls_cert_valid` is the opposite of `tls_cert_expired`, also before the certificate's time.
#[test]
fn a_certificate_is_expired_or_valid() {
    for (time, expired) in [(900_000_000, 0), (1_600_000_000, 0), (2_700_000_000, 1)] {
        let mut t = Talk::new(Encryption::TrackOnly);
        t.time = time;
        for (dir, bytes) in session() {
            t.feed(dir, &bytes, false);
        }
        let numbers = ["tls_cert_expired", "tls_cert_valid"].map(|name| t.number(name, ToClient));
        assert_eq!(numbers, [Some(expired), Some(1 - expired)], "{time}");
    }
}

#[test]
fn a_bypass_begins_with_data() {
    let acts = session();
    let mut t = Talk::new(Encryption::Bypass);
    for (dir, bytes) in acts.iter().take(4) {
        t.feed(*dir, bytes, false);
    }
    assert!(!t.shared.wishes.bypass);
    t.feed(ToServer, &acts[4].1, false);
    assert!(t.shared.wishes.bypass && t.outcome == Outcome::Done);
}

/// RFC 4217 section 12.3.
#[test]
fn ftp_goes_on_in_clear() {
    for (original, clear) in [(AppProto::Ftp, true), (AppProto::Smtp, false)] {
        let mut talk = Talk::new(Encryption::TrackOnly);
        talk.parser.comes_after(original);
        for (dir, bytes) in session() {
            talk.feed(dir, &bytes, false);
        }
        assert!(talk.shared.wishes.no_payload);
        for dir in [ToClient, ToServer] {
            talk.feed(dir, &record(21, &[7; 24]), false);
        }
        talk.feed(ToServer, b"PASV\r\n", false);
        if clear {
            assert_eq!(talk.outcome, Outcome::Change(Some(AppProto::Ftp)));
            assert_eq!((talk.waiting[0].as_slice(), talk.shared.wishes.no_payload), (&b"PASV\r\n"[..], false));
        } else {
            // The text reads as a record of SSL 2.0.
            assert_eq!((talk.outcome, talk.waiting[0].len(), talk.shared.wishes.no_payload), (Outcome::More, 0, true));
        }
    }
}

#[test]
fn an_early_end_of_a_session() {
    // Resumed: no certificate before both sides changed ciphers.
    let acts = [
        (ToServer, record(22, &client_hello(&[7; 32], b""))),
        (ToClient, [record(22, &server_hello(&[7; 32], b"")), record(20, &[1]), record(22, &[1; 40])].concat()),
        (ToServer, record(20, &[1])),
    ];
    assert!(run(&acts, usize::MAX, Encryption::Full).log().contains("\"session_resumed\":true"));
    // As in Suricata 8, a flow that ends without a certificate also counts as resumed.
    assert!(run(&acts[..2], usize::MAX, Encryption::Full).log().contains("\"session_resumed\":true"));
    // TLS 1.3, where the change of ciphers has no meaning.
    let acts = [
        (ToServer, record(22, &client_hello(&[7; 32], &extension(43, &[4, 3, 4, 3, 3])))),
        (ToClient, [record(22, &server_hello(&[7; 32], &extension(43, &[3, 4]))), record(20, &[1])].concat()),
        (ToClient, record(23, &[9; 100])),
    ];
    let t = run(&acts, usize::MAX, Encryption::Full);
    assert!(t.log().contains("\"version\":\"TLS 1.3\"") && !t.log().contains("resumed"), "{}", t.log());
}

/// Keywords of certificates that Suricata refuses with `flow:to_server` see only the server's. A session without any has 0.
#[test]
fn numbers_of_the_servers_certificates() {
    let numbers = protocol(AppProto::Tls).expect("TLS has a parser").numbers;
    let of_certificates: Vec<_> = numbers.iter().filter(|n| n.name.contains("cert")).collect();
    assert_eq!(of_certificates.len(), 5);
    assert!(of_certificates.iter().all(|n| n.progress[0].is_none() && n.progress[1].is_some()));
    let acts = [
        (ToServer, record(22, &client_hello(&[7; 32], b""))),
        (ToClient, [record(22, &server_hello(&[7; 32], b"")), record(20, &[1]), record(22, &[1; 40])].concat()),
        (ToServer, record(20, &[1])),
    ];
    let t = run(&acts, usize::MAX, Encryption::Full);
    assert_eq!(t.number("tls.cert_chain_len", ToClient), Some(0));
    assert_eq!(t.number("tls_cert_valid", ToClient), None);
}

/// A session without a cleartext certificate is logged once both handshakes have ended.
#[test]
fn when_a_session_is_logged() {
    let thirteen = |list: &[u8]| extension(43, list);
    let (change, data, finished) = (record(20, &[1]), record(23, &[9; 60]), record(22, &[1; 40]));
    let hello = record(22, &client_hello(&[7; 32], &thirteen(&[4, 3, 4, 3, 3])));
    let answer = [record(22, &server_hello(&[7; 32], &thirteen(&[3, 4]))), change.clone(), data.clone()].concat();
    // TLS 1.3: the client's change of ciphers, or its data, completes the condition.
    let client_last =
        [(ToServer, hello.clone(), false), (ToClient, answer.clone(), false), (ToServer, change.clone(), true)];
    let without_change = [(ToServer, hello, false), (ToClient, answer, false), (ToServer, data.clone(), true)];
    // Resumed: the server's data completes it, whatever the client sent before.
    let resumed = [
        (ToServer, record(22, &client_hello(&[7; 32], b"")), false),
        (ToClient, [record(22, &server_hello(&[7; 32], b"")), change.clone(), finished.clone()].concat(), false),
        (ToServer, [change, finished].concat(), false),
        (ToServer, data.clone(), false),
        (ToClient, data, true),
    ];
    for (n, acts) in [&client_last[..], &without_change, &resumed].iter().enumerate() {
        let mut talk = Talk::new(Encryption::TrackOnly);
        for (dir, bytes, logged) in *acts {
            talk.feed(*dir, bytes, false);
            let tx = talk.parser.tx(0).expect("a session");
            assert_eq!(tx.is_loggable(false), *logged, "session {n}: {dir:?} {}", bytes.len());
        }
    }
}

/// The last message of the data that arrived last gives the state, even within an incomplete record. The first hello updates
/// both directions.
#[test]
fn the_state_of_a_session() {
    let flight = record(22, &[server_hello(b"", b""), certificates()].concat());
    let mut talk = Talk::new(Encryption::TrackOnly);
    let state = |talk: &Talk| talk.number("ssl_state", ToClient);
    talk.feed(ToServer, &record(22, &client_hello(b"", b"")), false);
    assert_eq!(state(&talk), Some(1));
    assert_eq!(talk.parser.tx(0).expect("a session").base().updated, [true; 2]);
    talk.feed(ToClient, &flight[..40], false);
    assert_eq!(state(&talk), Some(0));
    talk.feed(ToClient, &flight[40..100], false);
    assert_eq!((state(&talk), talk.buffer("tls.cert_subject", ToClient, 0)), (Some(2), None));
    talk.feed(ToClient, &flight[100..], false);
    assert_eq!((state(&talk), talk.buffer("tls.cert_subject", ToClient, 0).is_some()), (Some(2), true));
    talk.feed(ToClient, &[], true);
    assert_eq!(state(&talk), Some(2));
    talk.feed(ToServer, &record(20, &[1]), false);
    assert_eq!(state(&talk), Some(0));
}

/// Hellos of SSL 2.0 are inspected as soon as those of TLS, before the next message changes the state.
#[test]
fn hellos_of_ssl2_are_due_at_once() {
    let mut talk = Talk::new(Encryption::TrackOnly);
    let hello = [&[0x80, 28, 1, 0, 2, 0, 3, 0, 0, 0, 16, 1, 0, 0x80][..], &[7; 16]].concat();
    talk.feed(ToServer, &hello, false);
    assert_eq!(talk.number("ssl_state", ToClient), Some(1));
    assert_eq!(talk.parser.tx(0).expect("a session").base().updated, [true; 2]);
    assert_eq!(talk.shared.whole, [true, false]);
}

/// A record's first byte says which kind it is. Text reads as a long record of SSL 2.0, without an event; what can begin no
/// record of either kind is invalid.
#[test]
fn the_first_byte_of_a_record_selects_its_kind() {
    let long_ago: &[u8] = &[0x80, 3, 9, 9, 9];
    let cases: [(&[u8], &[&str], bool); 8] = [
        (b"HTTP/1.1 200 OK\r\n\r\n", &[], true),
        (b"SSH-2.0-x\r\n", &[], true),
        (b"RFB 003.008\n", &[], true),
        (long_ago, &[], true),
        (&[0x80, 3, 0, 0, 1], &["error_message_encountered"], true),
        (&[0x80, 0, 0, 0, 0], &["invalid_sslv2_header", "invalid_ssl_record"], false),
        (b"220 ready\r\n", &["invalid_record_type"], false),
        (&[5, 0, 12, 3, 16], &["invalid_record_type"], false),
    ];
    for greeted in [false, true] {
        for (answer, events, goes_on) in cases {
            let mut talk = Talk::new(Encryption::TrackOnly);
            talk.feed(ToServer, &record(22, &client_hello(&[7; 32], b"")), false);
            if greeted {
                talk.feed(ToClient, &record(22, &server_hello(&[7; 32], b"")), false);
            }
            talk.feed(ToClient, answer, false);
            let seen = (talk.events(), talk.outcome == Outcome::More);
            assert_eq!(seen, (events.to_vec(), goes_on), "{answer:?}, {greeted}");
        }
    }
}

/// If the server requests a client certificate, the event waits for the client's response.
#[test]
fn an_event_waits_for_the_certificate_of_the_client() {
    let message = |kind: u8, body: &[u8]| [&[kind, 0, 0, body.len() as u8], body].concat();
    for asks in [false, true] {
        let mut flight = message(11, &[0, 0, 5, 0, 0, 2, 0x30, 0]);
        if asks {
            flight.extend(message(13, &[1, 1, 0, 0]));
        }
        flight.extend(message(14, b""));
        let mut talk = Talk::new(Encryption::TrackOnly);
        talk.feed(ToServer, &record(22, &client_hello(&[7; 32], b"")), false);
        talk.feed(ToClient, &[record(22, &server_hello(&[7; 32], b"")), record(22, &flight)].concat(), false);
        let logged = |t: &Talk| t.parser.tx(0).is_some_and(|tx| tx.is_loggable(false));
        let progress = |t: &Talk| t.parser.tx(0).map(|tx| tx.base().progress);
        assert_eq!((logged(&talk), progress(&talk)), (!asks, Some([if asks { 1 } else { 3 }, 4])));
        talk.feed(ToServer, &record(22, &[message(11, &[0, 0, 0]), message(16, &[1, 2])].concat()), false);
        assert_eq!((logged(&talk), progress(&talk)), (true, Some([3, 4])));
    }
}

/// JA4 counts a draft of TLS 1.3 as TLS 1.3.
#[test]
fn ja4_of_a_draft() {
    for (versions, start) in
        [(&[4, 3, 4, 0xfb, 0x1a][..], "t13i"), (&[4, 0x7f, 0x1c, 3, 3], "t13i"), (&[2, 3, 3], "t12i")]
    {
        let acts = [(ToServer, record(22, &client_hello(b"", &extension(43, versions))))];
        let t = run(&acts, usize::MAX, Encryption::TrackOnly);
        let ja4 = t.buffer("ja4.hash", ToServer, 0).map(|b| String::from_utf8(b).expect("text")).unwrap_or_default();
        assert!(ja4.starts_with(start), "{versions:x?}: {ja4}");
    }
}

#[test]
fn what_is_wrong() {
    let hello = |extensions: &[u8]| record(22, &client_hello(b"", extensions));
    let cases: &[(Direction, Vec<u8>, &str)] = &[
        (ToServer, vec![26, 3, 3, 0, 1, 0], "invalid_record_type"),
        (ToServer, vec![0x80, 2, 1, 0, 2], "invalid_ssl_record"),
        (ToServer, [hello(b""), vec![26, 3, 3, 0, 1, 0]].concat(), "invalid_record_type"),
        (ToServer, [hello(b""), vec![22, 9, 3, 0, 1, 0]].concat(), "invalid_record_version"),
        (ToServer, [hello(b""), vec![22, 0x10, 0, 0, 1, 0]].concat(), "invalid_record_version"),
        (ToServer, vec![22, 3, 3, 0xff, 0xff], "invalid_record_length"),
        (ToServer, record(22, b""), "invalid_record_length"),
        (ToServer, record(23, b"").repeat(40), "too_many_records_in_packet"),
        (ToServer, record(22, &message(99, b"abc")), "invalid_handshake_message"),
        (ToServer, record(22, &message(1, &[3, 3, 0])), "handshake_invalid_length"),
        (ToServer, hello(&[server_name(b"a"), server_name(b"b")].concat()), "multiple_sni_extensions"),
        (ToServer, hello(&extension(0, &[0, 4, 3, 0, 1, b'a'])), "invalid_sni_type"),
        (ToServer, hello(&extension(0, &[0, 4, 0, 0, 9, b'a'])), "invalid_sni_length"),
        (ToServer, hello(&server_name(&[b'a'; 256])), "invalid_sni_length"),
        (ToClient, record(22, &message(11, &[0, 0, 7, 0, 0, 4, 1, 2, 3, 4])), "certificate_invalid_der"),
        (ToClient, record(22, &message(11, &[0, 0, 7, 0, 0, 5, 1, 2, 3, 4])), "invalid_certificate"),
        (ToClient, record(22, &message(11, &[0, 0, 9, 0, 0, 4, 1, 2, 3, 4])), "certificate_invalid_length"),
        (ToClient, record(24, &[2, 0x40, 0, 1, 2, 3]), "overflow_heartbeat_message"),
        (ToClient, record(24, &[9, 0, 1, 1, 2, 3]), "invalid_heartbeat_message"),
    ];
    for (dir, bytes, event) in cases {
        let t = run(&[(*dir, bytes.clone())], usize::MAX, Encryption::Full);
        assert!(t.events().contains(event), "{event}: {:?}", t.events());
    }
}

/// A hello that OpenSSL or Go answers with a ServerHello is parsed like any other.
#[test]
fn odd_records_do_not_hide_a_greeting() {
    let hello = client_hello(b"", &server_name(b"odd.example"));
    let of = |version: u16, body: &[u8]| {
        let mut r = record(22, body);
        r[1..3].copy_from_slice(&version.to_be_bytes());
        r
    };
    let (first, second) = hello.split_at(40);
    let cases: &[(&str, Vec<u8>, Option<&str>)] = &[
        ("a version that is none", of(0x03ff, &hello), Some("invalid_record_version")),
        ("that of SSL 2.0", of(0x0200, &hello), Some("invalid_record_version")),
        ("version 0", of(0, &hello), Some("invalid_record_version")),
        ("versions that change", [of(0x0301, first), of(0x03ff, second)].concat(), Some("invalid_record_version")),
        ("an empty record", [of(0x0301, b""), of(0x0301, &hello)].concat(), Some("invalid_record_length")),
        ("32 of them", [of(0x0301, b"").repeat(32), of(0x0301, &hello)].concat(), Some("invalid_record_length")),
        ("an empty record within", [record(22, first), record(22, b""), record(22, second)].concat(), None),
        ("a warning", [record(21, &[1, 90]), record(22, &hello)].concat(), None),
        ("a warning within", [record(22, first), record(21, &[1, 90]), record(22, second)].concat(), None),
        ("pieces of a byte", hello.iter().flat_map(|b| record(22, &[*b])).collect(), None),
    ];
    for (what, bytes, event) in cases {
        for size in [usize::MAX, 1, 7] {
            let t = run(&[(ToServer, bytes.clone())], size, Encryption::TrackOnly);
            assert_eq!(t.outcome, Outcome::More, "{what}");
            assert_eq!(t.buffer("tls.sni", ToServer, 0).as_deref(), Some(&b"odd.example"[..]), "{what}");
            assert!(event.is_none_or(|e| t.events().contains(&e)), "{what}: {:?}", t.events());
        }
    }
    let beyond = [of(0x0301, b"").repeat(33), of(0x0301, &hello)].concat();
    assert_eq!(run(&[(ToServer, beyond)], usize::MAX, Encryption::TrackOnly).outcome, Outcome::Failed);
}

#[test]
fn any_split_of_a_session_makes_the_same() {
    let whole = run(&session(), usize::MAX, Encryption::TrackOnly).seen();
    for size in 1..80 {
        assert_eq!(run(&session(), size, Encryption::TrackOnly).seen(), whole, "in pieces of {size}");
    }
}

proptest! {
    #[test]
    fn any_split_makes_the_same(
        which in 0usize..6, at in 0usize..2000, value: u8, size in 1usize..50, ssl2: bool, more in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut acts = session();
        if ssl2 {
            acts[0].1 = [&b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"[..], &[1; 37]].concat();
        }
        let len = acts[which].1.len();
        acts[which].1[at % len] = value;
        acts[which].1.extend_from_slice(&more);
        let whole = run(&acts, usize::MAX, Encryption::Full).seen();
        prop_assert_eq!(run(&acts, size, Encryption::Full).seen(), whole);
    }
}

/// Go skips names of other types in the list of names.
#[test]
fn a_host_name_behind_another_name() {
    let names = extension(0, &[0, 12, 1, 0, 1, b'x', 0, 0, 5, b'h', b'.', b'e', b'x', b'a']);
    let t = run(&[(ToServer, record(22, &client_hello(b"", &names)))], usize::MAX, Encryption::Full);
    assert!(t.events().contains(&"invalid_sni_type"));
    assert_eq!(t.buffer("tls.sni", ToServer, 0).as_deref(), Some(&b"h.exa"[..]));
}

/// Rules may want the certificates before they have come.
#[test]
fn certificates_are_stored_once_they_come() {
    let mut store = CertificateStore::new(std::env::temp_dir()).expect("a folder");
    store.dir = Some("/no/such/folder".into());
    let mut talk = Talk::new(Encryption::TrackOnly);
    let mut stored = Vec::new();
    for (dir, bytes) in &session()[..2] {
        talk.feed(*dir, bytes, false);
        let occasion = Occasion { flow: &talk.flow, time: Time(0), number: None };
        let tx = talk.parser.tx(0).expect("a session");
        stored.push((tx.store_certificates(ToClient, &mut store, &occasion), store.failed));
    }
    assert_eq!(stored, [(false, 0), (true, 1)]);
}
