//! Each side of a TCP connection is a frame, whatever the protocol's parser marks in it.

use std::net::IpAddr;

use margay_app::frame::STREAM;
use margay_app::{AppConfig, AppProto, AppSession, Parse, Shared};
use margay_flow::Direction::{self, ToClient, ToServer};
use margay_flow::{FlowCore, FlowState};
use margay_packet::Time;

/// The protocol that a conversation becomes, and the offsets at which whole-stream frames begin, by direction.
fn stream_frames(transport: u8, port: u16, parts: &[(Direction, &[u8])]) -> (AppProto, [Vec<u64>; 2]) {
    let ends = ((IpAddr::from([192, 0, 2, 1]), 40_000), (IpAddr::from([192, 0, 2, 2]), port));
    let flow = FlowCore { state: FlowState::Established, ..FlowCore::new(1, transport, ends.0, ends.1, Time(0)) };
    let (config, mut shared, mut session) = (AppConfig::default(), Shared::default(), AppSession::default());
    shared.frames.logged = true;
    for (dir, bytes) in parts {
        let mut rest = *bytes;
        // The session asks for the same data again after it has recognised the protocol.
        for _ in 0..4 {
            let (config, shared, flow) = (&config, &mut shared, &flow);
            let mut cx = Parse { config, shared, flow, time: Time(0), end: false, inline: false };
            let fed = session.data(&mut cx, *dir, rest);
            rest = &rest[fed.consumed..];
            if !fed.again {
                break;
            }
        }
    }
    let frames = [ToServer, ToClient]
        .map(|d| shared.frames.flow.of(d).iter().filter(|f| f.kind == STREAM).map(|f| f.offset).collect());
    (session.for_rules(), frames)
}

#[test]
fn the_stream_goes_on_when_the_parser_has_finished() {
    let flow = FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, ([192, 0, 2, 1].into(), 40_000), ([192, 0, 2, 2].into(), 5900), Time(0))
    };
    let setup: &[(Direction, &[u8])] = &[
        (ToClient, b"RFB 003.008\n"),
        (ToServer, b"RFB 003.008\n"),
        (ToClient, &[1, 1]),
        (ToServer, &[1]),
        (ToClient, &[0; 4]),
        (ToServer, &[1]),
        (ToClient, &[0; 24]),
    ];
    for (watched, off) in [(true, false), (false, true)] {
        let (config, mut shared, mut session) = (AppConfig::default(), Shared::default(), AppSession::default());
        if watched {
            shared.frames.inspected.add(AppProto::Rfb, STREAM);
        }
        let mut feed = |dir, mut rest: &[u8]| {
            let mut cx =
                Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end: false, inline: false };
            // The session asks for the same data again after it has recognised the protocol.
            for _ in 0..4 {
                let fed = session.data(&mut cx, dir, rest);
                rest = &rest[fed.consumed..];
                if !fed.again {
                    break;
                }
            }
            (rest.len(), session.is_off(), session.proto)
        };
        for (dir, bytes) in setup {
            assert_eq!(feed(*dir, bytes).0, 0, "{bytes:?}");
        }
        // Pixels are not parsed. Rules on the stream need them to arrive.
        assert_eq!(feed(ToClient, &[7; 5000]), (0, off, AppProto::Rfb));
    }
}

#[test]
fn each_side_of_a_connection_is_a_frame() {
    let ftp: &[(Direction, &[u8])] =
        &[(ToClient, b"220 ready\r\n"), (ToServer, b"USER a\r\n"), (ToServer, b"PASS b\r\n")];
    assert_eq!(stream_frames(6, 21, ftp), (AppProto::Ftp, [vec![0], vec![0]]));
    let http: &[(Direction, &[u8])] = &[(ToServer, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")];
    assert_eq!(stream_frames(6, 80, http), (AppProto::Http1, [vec![0], vec![]]));
    // A datagram belongs to no stream.
    let dns: &[(Direction, &[u8])] = &[(ToServer, b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01")];
    assert_eq!(stream_frames(17, 53, dns), (AppProto::Dns, [vec![], vec![]]));
}
