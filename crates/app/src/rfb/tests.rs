//! Captured handshakes of each version, and invalid ones.

use super::*;
use crate::testing::Talk;

const SCREEN: &[u8] =
    b"\x05\x00\x03\x20\x20\x18\x00\x01\x00\xff\x00\xff\x00\xff\x10\x08\x00\x00\x00\x00\x00\x00\x00\x05a@b.c";

fn rfb() -> Talk {
    Talk::tcp(AppProto::Rfb, 5900)
}

#[test]
fn version_3_8() {
    let mut talk = rfb();
    talk.shared.frames.wanted = true;
    talk.server(b"RFB 003.008\n")
        .client(b"RFB 003.008\n")
        .server(&[1, 2])
        .client(&[2])
        .server(&[1; 16])
        .client(&[2; 16]);
    assert_eq!(talk.complete(), [[false, false]]);
    talk.shared.whole = [false; 2];
    talk.server(&[0; 4]);
    assert_eq!(talk.shared.whole, [false, true]);
    talk.client(&[0]).server(SCREEN);
    assert_eq!((talk.outcome, talk.complete()), (Outcome::Done, vec![[true, true]]));
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"rfb":{"server_protocol_version":{"major":"003","minor":"008"},"client_protocol_version":{"major":"003","minor":"008"},"#,
            r#""authentication":{"security_type":2,"vnc":{"challenge":"01010101010101010101010101010101","response":"02020202020202020202020202020202"},"security_result":"OK"},"#,
            r#""screen_shared":false,"framebuffer":{"width":1280,"height":800,"name":"a@b.c","pixel_format":{"bits_per_pixel":32,"depth":24,"big_endian":false,"true_color":true,"#,
            r#""red_max":255,"green_max":255,"blue_max":255,"red_shift":16,"green_shift":8,"blue_shift":0}}}}"#
        )]
    );
    assert_eq!(talk.buffers("rfb.name", TC), ["a@b.c"]);
    assert_eq!((talk.numbers("rfb.secresult", TC), talk.numbers("rfb.sectype", TS)), (vec![0], vec![2]));
    let frames = |d| talk.shared.frames.flow.of(d).iter().map(|f| f.end.unwrap_or(0) - f.offset).collect::<Vec<_>>();
    assert_eq!((frames(TS), frames(TC)), (vec![12, 1, 16, 1], vec![12, 2, 16, 4, 29]));
}

#[test]
fn older_versions() {
    let mut talk = rfb();
    talk.server(b"RFB 003.003\n").client(b"RFB 003.003\n").server(b"\0\0\0\x02challenge.......").client(&[2; 16]);
    talk.server(&[0; 4]).client(&[1]).server(SCREEN);
    assert!(talk.outcome == Outcome::Done && talk.logs()[0].contains(r#""security_type":2"#));
    let mut talk = rfb();
    talk.server(b"RFB 003.007\n").client(b"RFB 003.007\n").server(&[2, 1, 2]).client(&[1]).client(&[1]).server(SCREEN);
    assert!(talk.outcome == Outcome::Done && talk.logs()[0].contains(r#""security_type":1},"screen_shared":true,"#));
}

#[test]
fn authentication_that_is_not_known() {
    let mut talk = rfb();
    talk.server(b"RFB 003.889\n").client(b"RFB 003.008\n").server(&[4, 30, 33, 36, 35]).client(&[30]);
    assert_eq!((talk.outcome, talk.events()), (Outcome::Resume, vec!["unimplemented_security_type"]));
    assert!(talk.logs()[0].ends_with(r#""authentication":{"security_type":30}}}"#));
    talk.server(&[0; 260]).client(b"abc");
    assert_eq!((talk.outcome, talk.complete()), (Outcome::More, vec![[false, false]]));
    talk.gap(TC, 1);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn refusals() {
    let start = |talk: &mut Talk| {
        talk.server(b"RFB 003.008\n").client(b"RFB 003.008\n");
    };
    let mut talk = rfb();
    start(&mut talk);
    talk.server(b"\0\0\0").server(b"\0\x03wh").server(b"y");
    assert_eq!((talk.outcome, talk.complete()), (Outcome::Done, vec![[true, true]]));
    assert!(talk.logs()[0].ends_with(r#""authentication":{},"server_security_failure_reason":"why"}}"#));
    let mut talk = rfb();
    start(&mut talk);
    talk.server(&[1, 2]).client(&[2]).server(&[1; 16]).client(&[2; 16]).server(&[0, 0, 0, 1]);
    assert_eq!((talk.numbers("rfb.secresult", TC), talk.complete()), (vec![1], vec![[false, false]]));
    talk.server(b"\0\0\0\x05wrong");
    assert_eq!((talk.outcome, talk.complete()), (Outcome::Done, vec![[true, true]]));
    assert!(talk.logs()[0].ends_with(r#""security_result":"FAIL"},"server_security_failure_reason":"wrong"}}"#));
    // The parser waits for the beginning of a long reason only.
    let mut talk = rfb();
    start(&mut talk);
    talk.server(b"\0\xff\xff\xff\xff").server(&[b'x'; REASON_MAX]);
    assert_eq!((talk.outcome, talk.logs()[0].matches('x').count()), (Outcome::Done, REASON_MAX));
    // Older servers give a reason only if they offer no type.
    let mut talk = rfb();
    talk.server(b"RFB 003.003\n").client(b"RFB 003.003\n").server(b"\0\0\0\0\0\0\0\x03why");
    assert!(talk.logs()[0].ends_with(r#"{"security_type":0},"server_security_failure_reason":"why"}}"#));
    let mut talk = rfb();
    talk.server(b"RFB 003.003\n").client(b"RFB 003.003\n").server(&[0, 0, 0, 2]).server(&[1; 16]).client(&[2; 16]);
    talk.server(&[0, 0, 0, 1]);
    assert_eq!((talk.outcome, talk.complete()), (Outcome::Done, vec![[true, true]]));
    let mut talk = rfb();
    start(&mut talk);
    talk.server(&[1, 1]).client(&[1]).server(&[9, 0, 0, 1]);
    assert_eq!((talk.outcome, talk.events()), (Outcome::Failed, vec!["unknown_security_result"]));
}

#[test]
fn what_is_no_handshake() {
    let mut talk = rfb();
    talk.server(b"RFB 0x3.008\n");
    assert_eq!((talk.outcome, talk.events()), (Outcome::Failed, vec!["malformed_message"]));
    // A side may send a little before its turn.
    let mut talk = rfb();
    talk.client(b"RFB 003.008\n").server(b"RFB 003.008\n").client(b"");
    assert_eq!(talk.logs().len(), 1);
    assert!(talk.logs()[0].contains("client_protocol_version"));
    talk.client(&[0; EARLY_MAX + 1]);
    assert_eq!((talk.outcome, talk.events()), (Outcome::Failed, vec!["confused_state"]));
    // The flow ends, and the other side's turn is missing.
    let mut talk = rfb();
    talk.server(b"RFB 003.008\n").server(&[1, 1]).end();
    assert_eq!((talk.outcome, talk.events()), (Outcome::Failed, vec!["confused_state"]));
    // The parser waits for the beginning of a long name only.
    let mut talk = rfb();
    talk.server(b"RFB 003.007\n").client(b"RFB 003.007\n").server(&[1, 1]).client(&[1, 1]);
    let mut screen = SCREEN[..20].to_vec();
    screen.extend([0xff; 4]);
    talk.server(&screen).server(&[b'n'; NAME_MAX]);
    assert_eq!((talk.outcome, talk.buffers("rfb.name", TC)[0].len()), (Outcome::Done, NAME_MAX));
    let mut talk = rfb();
    talk.server(b"RFB 003.0").end();
    assert!(talk.logs().is_empty());
}

#[test]
fn results_by_name() {
    let text = |t: &str| match security_result(t) {
        Ok(NumberCondition::Compare { text, .. }) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        ["ok", "!fail", "TooMany", "unknown", "!unknown", "!0", ">=1"].map(text),
        ["0", "!1", "2", ">2", "<3", "!0", ">=1"]
    );
}
