//! Conversations that agree on another protocol, and what follows; and those without any.

use std::net::IpAddr;

use margay_app::session::SessionEvent;
use margay_app::{AppConfig, AppProto, AppSession, Parse, Shared};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::FlowCore;
use margay_packet::Time;

const UP_TO_THE_REPLY: [(Direction, &[u8]); 4] = [
    (ToClient, b"220 mail.example.com ESMTP\r\n"),
    (ToServer, b"EHLO client.example.com\r\n"),
    (ToClient, b"250-mail.example.com\r\n250 STARTTLS\r\n"),
    (ToServer, b"STARTTLS\r\n"),
];
const REPLY: (Direction, &[u8]) = (ToClient, b"220 go ahead\r\n");

/// Plays a conversation up to STARTTLS and the rest; returns the session and its events.
fn after(follows: &[(Direction, &[u8])], size: usize) -> (AppSession, u8) {
    play(UP_TO_THE_REPLY.iter().chain([&REPLY]).chain(follows), 25, size)
}

/// Plays a conversation in pieces of `size` bytes.
fn play<'a>(said: impl Iterator<Item = &'a (Direction, &'a [u8])>, port: u16, size: usize) -> (AppSession, u8) {
    let ends = ((IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), port));
    let flow = FlowCore::new(1, 6, ends.0, ends.1, Time(0));
    let (config, mut shared, mut session) = (AppConfig::default(), Shared::default(), AppSession::default());
    let (mut waiting, mut events) = ([Vec::new(), Vec::new()], 0);
    for (dir, data) in said {
        for piece in data.chunks(size) {
            waiting[dir.index()].extend_from_slice(piece);
            // The other direction's data may be parsed after this one's.
            for d in [*dir, dir.reverse(), *dir, dir.reverse()] {
                let held: &mut Vec<u8> = &mut waiting[d.index()];
                let mut cx = Parse {
                    config: &config,
                    shared: &mut shared,
                    flow: &flow,
                    time: Time(0),
                    end: false,
                    inline: false,
                };
                let consumed = session.data(&mut cx, d, held).consumed;
                held.drain(..consumed);
                events |= session.take_events();
            }
        }
    }
    (session, events)
}

/// Plays an upgrade of HTTP/1 and the rest; returns the session and its events.
fn after_upgrade(to: &str, follows: &[(Direction, &[u8])], size: usize) -> (AppSession, u8) {
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {to}\r\n\r\n");
    let response = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {to}\r\n\r\n");
    let begin = [(ToServer, request.as_bytes()), (ToClient, response.as_bytes())];
    play(begin.iter().chain(follows), 80, size)
}

#[test]
fn an_upgrade() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let request = &b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"[..];
    let unexpected = SessionEvent::UnexpectedProtocol.bit();
    for size in [1, 5, 1000] {
        for (to, client, proto) in
            [("h2c", &preface[..], AppProto::Http2), ("websocket", b"\x81\x81\0\0\0\0a", AppProto::Websocket)]
        {
            let (session, events) = after_upgrade(to, &[(ToServer, client)], size);
            assert_eq!(
                (session.proto, session.original, events & unexpected),
                (proto, AppProto::Http1, 0),
                "{to} {size}"
            );
            let (session, events) = after_upgrade(to, &[(ToServer, request)], size);
            assert_eq!((session.proto, session.original), (AppProto::Http1, AppProto::Unknown), "{to} {size}");
            assert_eq!((session.expected(), events & unexpected), (proto, unexpected), "{to} {size}");
        }
        // The server need not wait for the client.
        let (session, _) = after_upgrade("h2c", &[(ToClient, b"\0\0\0\x04\0\0\0\0\0")], size);
        assert!(session.proto == AppProto::Http2 && session.has_txs(), "{size}");
    }
}

/// Only one side sends data, and it is no known protocol's.
#[test]
fn detection_ends() {
    let skipped = SessionEvent::DetectionSkipped.bit();
    let (long, short) = (vec![0x99; 100_001], vec![0x99; 100_000]);
    for dir in [ToServer, ToClient] {
        for other in [&b""[..], b"\x9a"] {
            let (session, events) = play([(dir.reverse(), other), (dir, &long)].iter(), 9, 1000);
            assert_eq!((session.proto, session.is_off(), events), (AppProto::Failed, true, skipped));
            let (session, events) = play([(dir.reverse(), other), (dir, &short)].iter(), 9, 1000);
            assert_eq!((session.proto, session.is_off(), events), (AppProto::Unknown, false, 0));
        }
    }
}

/// The start of a ClientHello.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x80\x01\x00\x00\x7c\x03\x03";

#[test]
fn tls_follows() {
    for size in [1, 3, 1000] {
        let (session, events) = after(&[(ToServer, HELLO)], size);
        assert_eq!((session.proto, session.expected(), events), (AppProto::Tls, AppProto::Unknown, 0), "{size}");
    }
}

#[test]
fn another_protocol_follows() {
    let broken = SessionEvent::NoTlsAfterStarttls.bit() | SessionEvent::UnexpectedProtocol.bit();
    let http = (ToServer, &b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"[..]);
    let mail = [
        (ToServer, &b"MAIL FROM:<a@example.com>\r\n"[..]),
        (ToClient, b"250 ok\r\n"),
        (ToServer, b"RCPT TO:<b@example.com>\r\n"),
        (ToClient, b"250 ok\r\n"),
    ];
    for size in [1, 5, 1000] {
        let (session, events) = after(&[http], size);
        assert_eq!((session.proto, session.original), (AppProto::Http1, AppProto::Smtp), "{size}");
        assert_eq!((session.expected(), events & broken), (AppProto::Tls, broken), "{size}");
        // The server may even speak before the client.
        let (session, _) = after(&[(ToClient, b"250 ok\r\n"), http], size);
        assert_eq!(session.proto, AppProto::Http1, "{size}");
        // The mail goes on in cleartext.
        let (session, events) = after(&mail, size);
        assert_eq!((session.proto, session.expected()), (AppProto::Smtp, AppProto::Tls), "{size}");
        assert_eq!(events & broken, broken, "{size}");
        assert!(session.has_txs(), "{size}: its commands are a mail");
    }
}
