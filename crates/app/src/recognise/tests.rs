use std::net::{IpAddr, Ipv4Addr};

use margay_packet::{Time, Vlans};
use proptest::prelude::*;

use super::*;

fn flow(proto: u8, sport: u16, dport: u16) -> FlowCore {
    FlowCore {
        id: 1,
        src: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        dst: IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
        sport,
        dport,
        proto,
        spi: 0,
        vlans: Vlans::default(),
        recursion: 0,
        start: Time(0),
        last: Time(0),
        pkts: [1, 0],
        bytes: [0; 2],
        bypassed: [(0, 0); 2],
        state: margay_flow::FlowState::Established,
        action: margay_flow::FlowAction::None,
        alerted: false,
        first_seen: [false; 2],
        vars: margay_flow::FlowVars::default(),
        tcp_flags: [SYN, SYN],
        ttl: [(0, 0); 2],
        emergency: false,
    }
}

const TO_SERVER: Direction = Direction::ToServer;
const TO_CLIENT: Direction = Direction::ToClient;

fn look(flow: &FlowCore, dir: Direction, data: &[u8]) -> Recognised {
    Recogniser::default().recognise(&mut RecogniseState::default(), flow, dir, data, false)
}

fn known(proto: AppProto) -> Recognised {
    Recognised::Known { proto, reverse: false }
}

#[test]
fn http_by_its_methods_and_versions() {
    let f = flow(TCP, 40000, 8888);
    for request in ["GET / HTTP/1.1\r\n", "get /", "POST\t/", "BASELINE-CONTROL /", "version-control /x", "INVALID x"] {
        assert_eq!(look(&f, TO_SERVER, request.as_bytes()), known(AppProto::Http1), "{request}");
    }
    for response in ["HTTP/1.1 200 OK\r\n", "http/1.0 200", "HTTP/0.9"] {
        assert_eq!(look(&f, TO_CLIENT, response.as_bytes()), known(AppProto::Http1), "{response}");
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

#[test]
fn given_up_behind_the_longest_pattern() {
    let f = flow(TCP, 40000, 8888);
    for (dir, enough) in [(TO_SERVER, 17), (TO_CLIENT, 13)] {
        let junk = b"xyzzy1234 xyzzy12345";
        assert_eq!(look(&f, dir, &junk[..enough - 1]), Recognised::More);
        assert_eq!(look(&f, dir, &junk[..enough]), Recognised::Failed);
        assert_eq!(look(&f, dir, b""), Recognised::More);
    }
    // The other side is known: this one has as long as the other would have had.
    let mut state = RecogniseState::default();
    let r = recogniser();
    assert_eq!(r.recognise(&mut state, &f, TO_SERVER, b"GET / HTTP/1.1\r\n", false), known(AppProto::Http1));
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
    // Not at its beginning: nothing is recognised there.
    let mut state = RecogniseState::default();
    state.consumed(TO_CLIENT, 3);
    assert_eq!(r.recognise(&mut state, &f, TO_CLIENT, b"HTTP/1.1", false), Recognised::More);
}

#[test]
fn picked_up_in_the_middle_it_may_be_turned_round() {
    let mut f = flow(TCP, 80, 40000);
    f.tcp_flags = [0x10, 0x10];
    let turned = Recognised::Known { proto: AppProto::Http1, reverse: true };
    assert_eq!(look(&f, TO_SERVER, b"HTTP/1.1 200 OK\r\n"), turned);
    assert_eq!(look(&f, TO_CLIENT, b"GET / HTTP/1.1\r\n"), turned);
    assert_eq!(look(&f, TO_SERVER, b"GET / HTTP/1.1\r\n"), known(AppProto::Http1));
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

/// What a direction comes to when its bytes arrive in these pieces.
fn in_pieces(f: &FlowCore, dir: Direction, data: &[u8], pieces: &[usize]) -> Recognised {
    let (r, mut state) = (recogniser(), RecogniseState::default());
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

proptest! {
    #[test]
    fn pieces_do_not_matter(
        start in prop_oneof![
            Just(&b"GET / HTTP/1.1\r\n"[..]), Just(&b"HTTP/1.1 200 OK\r\n"[..]), Just(&b"SSH-2.0-x\r\n"[..]),
            Just(&b""[..]),
        ],
        cut in 0usize..24,
        tail in proptest::collection::vec(any::<u8>(), 0..80),
        pieces in proptest::collection::vec(1usize..9, 0..30),
        port in prop_oneof![Just(53u16), Just(80), Just(443), Just(445), Just(8888)],
        client in any::<bool>(),
        middle in any::<bool>(),
    ) {
        let mut data = start[..cut.min(start.len())].to_vec();
        data.extend_from_slice(&tail);
        let mut f = flow(TCP, 40000, port);
        if middle {
            f.tcp_flags = [0x10; 2];
        }
        let dir = if client { TO_SERVER } else { TO_CLIENT };
        prop_assert_eq!(in_pieces(&f, dir, &data, &pieces), in_pieces(&f, dir, &data, &[]));
    }
}
