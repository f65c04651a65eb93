//! Conversations that agree on TLS, and what follows.

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

/// Plays a conversation in pieces of `size` bytes; returns the session and its events.
fn after(follows: &[(Direction, &[u8])], size: usize) -> (AppSession, u8) {
    let ends = ((IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), 25));
    let flow = FlowCore::new(1, 6, ends.0, ends.1, Time(0));
    let (config, mut shared, mut session) = (AppConfig::default(), Shared::default(), AppSession::default());
    let (mut waiting, mut events) = ([Vec::new(), Vec::new()], 0);
    for (dir, data) in UP_TO_THE_REPLY.iter().chain([&REPLY]).chain(follows) {
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
