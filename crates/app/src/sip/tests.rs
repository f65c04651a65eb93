//! Messages of a telephone and its registrar: complete, in pieces, and invalid.

use margay_flow::Direction::{ToClient, ToServer};

use super::*;
use crate::testing::Talk;

const REGISTER: &str = "REGISTER sip:sip.cybercity.dk SIP/2.0\r\nv: SIP/2.0/UDP 192.168.1.2;branch=z9\r\n\
    From: <sip:voi18062@sip.cybercity.dk>;tag=903\r\nTO : <sip:voi18062@sip.cybercity.dk>\r\n\
    t: <sip:other@sip.cybercity.dk>\r\nUser-Agent: Nero SIPPS\r\n IP Phone\r\nContent-Length:  0\r\n\r\n";
const SDP: &str = "v=0\r\no=SIPPS 105015165 105015162 IN IP4 192.168.1.2\r\ns=SIP call\r\nc=IN IP4 192.168.1.2\r\nb=AS:64\r\n\
    t=0 0\r\nr=604800 3600 0 90000\r\nt=1 2\r\nk=prompt\r\na=sendrecv\r\nm=audio 30000 RTP/AVP 0 8\r\nb=AS:10\r\n\
    a=rtpmap:0 pcmu/8000\r\na=ptime:20\r\nm=video 30002 RTP/AVP 31\r\ni=camera\r\na=recvonly\r\n";

fn ok_with_sdp() -> String {
    format!(
        "SIP/2.0 183 In band info\r\nVia: SIP/2.0/UDP a\r\nVia: SIP/2.0/UDP b\r\nContent-Type: Application/SDP;x=y\r\n\
         Content-Length: {}\r\n\r\n{SDP}",
        SDP.len()
    )
}

const REGISTER_EVENT: &str = r#"{"sip":{"method":"REGISTER","uri":"sip:sip.cybercity.dk","version":"SIP/2.0","request_line":"REGISTER sip:sip.cybercity.dk SIP/2.0"}}"#;
const OK_EVENT: &str = concat!(
    r#"{"sip":{"version":"SIP/2.0","code":"183","reason":"In band info","response_line":"SIP/2.0 183 In band info","sdp":{"#,
    r#""origin":"SIPPS 105015165 105015162 IN IP4 192.168.1.2","session_name":"SIP call","connection_data":"IN IP4 192.168.1.2","#,
    r#""bandwidths":["AS:64"],"time_descriptions":[{"time":"0 0","repeat_time":"604800 3600 0 90000"},{"time":"1 2"}],"#,
    r#""encryption_key":"prompt","attributes":["sendrecv"],"media_descriptions":["#,
    r#"{"media":"audio 30000 RTP/AVP 0 8","bandwidths":["AS:10"],"attributes":["rtpmap:0 pcmu/8000","ptime:20"]},"#,
    r#"{"media":"video 30002 RTP/AVP 31","media_info":"camera","attributes":["recvonly"]}]}}}"#,
);

#[test]
fn datagrams() {
    let mut talk = Talk::udp(AppProto::Sip, 5060);
    talk.client(REGISTER.as_bytes()).server(ok_with_sdp().as_bytes());
    assert_eq!(talk.logs(), [REGISTER_EVENT, OK_EVENT]);
    assert_eq!(talk.complete(), [[true, true], [true, true]]);
    assert_eq!(talk.buffers("sip.method", ToServer), ["REGISTER"]);
    assert_eq!(talk.buffers("sip.stat_code", ToClient), ["183"]);
    assert_eq!(talk.buffers("sip.via", ToServer), ["SIP/2.0/UDP 192.168.1.2;branch=z9"]);
    assert_eq!(talk.buffers("sip.via", ToClient), ["SIP/2.0/UDP a", "SIP/2.0/UDP b"]);
    assert_eq!(talk.buffers("sip.to", ToServer), ["<sip:voi18062@sip.cybercity.dk>", "<sip:other@sip.cybercity.dk>"]);
    assert_eq!(talk.buffers("sip.user_agent", ToServer), ["Nero SIPPS\\r\\n IP Phone"]);
    assert_eq!(talk.buffers("sip.content_length", ToServer), ["0"]);
    assert_eq!(talk.buffers("sdp.attribute", ToClient), ["sendrecv"]);
    assert_eq!(talk.buffers("sdp.media.attribute", ToClient), ["rtpmap:0 pcmu/8000", "ptime:20", "recvonly"]);
    assert!(talk.buffers("sdp.media.attribute", ToServer).is_empty());
}

#[test]
fn a_stream_in_pieces_is_what_it_is_whole() {
    let (to_server, to_client) = (format!("\r\n\r\n{REGISTER}\r\n{REGISTER}"), ok_with_sdp().repeat(2));
    for size in [1, 2, 7, 100, 10_000] {
        let mut talk = Talk::tcp(AppProto::Sip, 5060);
        to_server.as_bytes().chunks(size).for_each(|c| {
            talk.client(c);
        });
        to_client.as_bytes().chunks(size).for_each(|c| {
            talk.server(c);
        });
        assert_eq!(talk.logs(), [REGISTER_EVENT, REGISTER_EVENT, OK_EVENT, OK_EVENT], "{size}");
    }
}

#[test]
fn a_large_body_is_passed_over() {
    let mut talk = Talk::tcp(AppProto::Sip, 5060);
    talk.client(b"MESSAGE sip:a SIP/2.0\r\nl: 1000000\r\n\r\n");
    assert_eq!(talk.logs().len(), 1);
    talk.client(&[b'x'; 5000]).gap(ToServer, 900_000);
    assert_eq!(talk.outcome, Outcome::More);
    talk.client(&[b'x'; 95_000]).client(REGISTER.as_bytes());
    assert_eq!(talk.logs().get(1).map(String::as_str), Some(REGISTER_EVENT));
    // Only the beginning of a long description is read.
    let long = format!("{SDP}a={}", "X".repeat(100_000 - SDP.len() - 2));
    talk.client(format!("INVITE sip:b SIP/2.0\r\nc: application/sdp\r\nl: 100000\r\n\r\n{long}").as_bytes());
    talk.client(REGISTER.as_bytes());
    assert_eq!(talk.logs().len(), 4);
    assert_eq!(talk.buffers("sdp.session_name", ToServer), ["SIP call"]);
}

#[test]
fn frames_are_those_of_the_message() {
    let mut talk = Talk::tcp(AppProto::Sip, 5060);
    talk.shared.frames.wanted = true;
    talk.server(ok_with_sdp().as_bytes());
    let of = |f: &crate::frame::Frame| (FRAMES[usize::from(f.kind)], f.offset, f.end.unwrap_or(0) - f.offset);
    let head = ok_with_sdp().len() - SDP.len();
    let line = "SIP/2.0 183 In band info\r\n".len();
    assert_eq!(
        talk.shared.frames.flow.of(ToClient).iter().map(of).collect::<Vec<_>>(),
        [
            ("pdu", 0, ok_with_sdp().len() as u64),
            ("response.line", 0, line as u64),
            ("response.headers", line as u64, (head - line - 2) as u64),
            ("response.body", head as u64, SDP.len() as u64),
        ]
    );
}

#[test]
fn what_is_no_message() {
    // SSDP, a message in the wrong direction, a truncated one, and a NAT keep-alive.
    for (dir, bytes) in [
        (ToServer, "NOTIFY * HTTP/1.1\r\nHost: 239.255.255.250:1900\r\n\r\n"),
        (ToServer, "SIP/2.0 200 OK\r\n\r\n"),
        (ToClient, REGISTER),
        (ToClient, "SIP/2.0 2xx OK\r\n\r\n"),
        (ToClient, "SIP/2.0 20000 OK\r\n\r\n"),
        (ToServer, " sip:a SIP/2.0\r\n\r\n"),
        (ToServer, "REGISTER sip:a SIP/2.0\r\nVia: x\r\n"),
        (ToServer, "     "),
    ] {
        let mut talk = Talk::udp(AppProto::Sip, 5060);
        if dir == ToServer {
            talk.client(bytes.as_bytes())
        } else {
            talk.server(bytes.as_bytes())
        };
        assert_eq!((talk.outcome, talk.logs().len()), (Outcome::Failed, 0), "{bytes}");
        // The next message is parsed nevertheless, and the event belongs to the last one.
        talk.client(REGISTER.as_bytes()).client(bytes.as_bytes());
        assert_eq!(
            (talk.logs().len(), talk.events().len()),
            (1 + usize::from(bytes == REGISTER), usize::from(bytes != REGISTER))
        );
    }
}

#[test]
fn streams_end() {
    let mut talk = Talk::tcp(AppProto::Sip, 5060);
    talk.client(REGISTER.get(..60).unwrap().as_bytes()).end();
    assert!(talk.logs().is_empty());
    // The header is limited.
    let mut talk = Talk::tcp(AppProto::Sip, 5060);
    talk.client(b"REGISTER sip:a SIP/2.0\r\n");
    for _ in 0..HEAD_MAX / 1000 + 1 {
        talk.client(&[b'x'; 1000]);
    }
    assert_eq!(talk.outcome, Outcome::Failed);
    let mut talk = Talk::tcp(AppProto::Sip, 5060);
    talk.client(&REGISTER.as_bytes()[..40]).gap(ToServer, 3);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn descriptions_that_are_none() {
    for text in ["", "v=0\r\n", "o=a\r\ns=b\r\n", "v=0\r\nv=0\r\no=a\r\ns=b\r\n", "v=0\r\ns=b\r\n"] {
        assert!(Sdp::read(text.as_bytes()).is_none(), "{text}");
    }
    let many = format!("v=0\no=a\ns=b\n{}", "a=x\n".repeat(100_000));
    let sdp = Sdp::read(many.as_bytes()).unwrap();
    assert!(sdp.field(sdp::Field::Attribute, 1020).is_some() && sdp.field(sdp::Field::Attribute, 1021).is_none());
}

/// A server calls a registered telephone over the telephone's flow.
#[test]
fn either_side_sends_requests() {
    let invite = "INVITE sip:b@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP a\r\nContent-Length: 0\r\n\r\n";
    let ringing = "SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP a\r\nContent-Length: 0\r\n\r\n";
    for talk in [Talk::udp(AppProto::Sip, 5060), Talk::tcp(AppProto::Sip, 5060)] {
        let mut talk = talk.set("lenient", 1);
        talk.shared.frames.wanted = true;
        talk.client(REGISTER.as_bytes()).server(invite.as_bytes()).client(ringing.as_bytes());
        assert_eq!((talk.logs().len(), talk.outcome), (3, Outcome::More));
        assert_eq!(talk.buffers("sip.method", ToClient), ["INVITE"]);
        assert_eq!(talk.buffers("sip.stat_code", ToServer), ["180"]);
        let kinds = |dir| -> Vec<&str> {
            talk.shared.frames.flow.of(dir).iter().map(|f| FRAMES[usize::from(f.kind)]).collect()
        };
        assert_eq!(kinds(ToClient), ["pdu", "request.line", "request.headers"]);
        assert_eq!(kinds(ToServer)[3..], ["pdu", "response.line", "response.headers"]);
    }
}

#[test]
fn datagrams_that_keep_an_address_binding() {
    let mut talk = Talk::udp(AppProto::Sip, 5060).set("lenient", 1);
    talk.shared.frames.wanted = true;
    for bytes in ["\r\n\r\n", "\0\0\0\0", "jaK", "     "] {
        talk.client(REGISTER.as_bytes()).client(bytes.as_bytes());
        assert_eq!((talk.outcome, talk.events().len()), (Outcome::More, 0));
    }
    let pdus = talk.shared.frames.flow.of(ToServer).iter().filter(|f| f.kind == PDU_FRAME).count();
    assert_eq!((talk.logs().len(), pdus), (4, 8));
}

#[test]
fn streams_that_begin_with_line_ends() {
    let yes = Probed::Yes { reverse: false };
    let of = |data: &[u8]| after_line_ends(ToServer, data);
    assert_eq!((of(b"\r\n\r\nOPTIONS sip:a"), of(b"\r\nSIP/2.0 200")), (yes, yes));
    assert_eq!((of(b"\r\n\r\n"), of(b"\r\nOPTI"), of(b"\r\nOPTIX")), (Probed::More, Probed::More, Probed::No));
    assert_eq!((of(b"OPTIONS sip:a"), of(&[b'\n'; 65])), (Probed::No, Probed::No));
}

/// Every byte in a name, a value, a reason, a method and an address.
#[test]
fn characters() {
    let count = |lenient: u64, client: bool, text: &[u8]| {
        let mut talk = Talk::udp(AppProto::Sip, 5060).set("lenient", lenient);
        if client {
            talk.client(text)
        } else {
            talk.server(text)
        };
        talk.logs().len()
    };
    for byte in 0..=255u8 {
        let message = |before: &str, after: &str| [before.as_bytes(), &[byte], after.as_bytes()].concat();
        let ascii = byte.is_ascii_alphanumeric();
        for (text, request, taken) in [
            (message("R", " sip:a SIP/2.0\r\nVia: b\r\n\r\n"), true, byte.is_ascii_alphabetic()),
            (
                message("REGISTER s", ":a SIP/2.0\r\nVia: b\r\n\r\n"),
                true,
                ascii || b"!#$%&'*+,-./:;=?@_`~".contains(&byte),
            ),
            (message("REGISTER sip:a SIP/2.0\r\nVi", "a: b\r\n\r\n"), true, ascii || b"!%'*+-.:_`~".contains(&byte)),
            (
                message("REGISTER sip:a SIP/2.0\r\nVia: b", "b\r\n\r\n"),
                true,
                matches!(byte, b'\t' | b'\r' | b' '..=b'~'),
            ),
            (
                message("SIP/2.0 200 O", "K\r\nVia: b\r\n\r\n"),
                false,
                ascii || b" !$%&'()*+,-./:;=?@_`~".contains(&byte),
            ),
        ] {
            assert_eq!(count(0, request, &text), usize::from(taken), "{byte:02x} {}", text.escape_ascii());
        }
    }
    let named = "REGISTER sip:a SIP/2.0\r\nFrom: \"J\u{f6}rg\" <sip:a>\r\n\r\n".as_bytes();
    assert_eq!((count(0, true, named), count(1, true, named)), (0, 1));
}
