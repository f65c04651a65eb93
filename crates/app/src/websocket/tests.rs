use super::*;
use crate::testing::Talk;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

fn talk() -> Talk {
    Talk::tcp(AppProto::Websocket, 80)
}

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|c| u8::from_str_radix(std::str::from_utf8(c).unwrap(), 16).unwrap()).collect()
}

/// An unmasked frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        n @ ..=125 => out.push(n as u8),
        n @ ..=0xffff => {
            out.push(126);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        n => {
            out.push(127);
            out.extend_from_slice(&(n as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    out
}

/// A message in permessage-deflate, by a sender without context takeover.
fn deflate(data: &[u8]) -> Vec<u8> {
    let mut inner = flate2::Compress::new(flate2::Compression::best(), false);
    let mut out = Vec::with_capacity(data.len() / 100 + 256);
    inner.compress_vec(data, &mut out, flate2::FlushCompress::Sync).unwrap();
    assert_eq!(out[out.len() - 4..], inflate::TAIL);
    out.truncate(out.len() - 4);
    out
}

/// A captured masked text of a browser, and the server's answer.
#[test]
fn text_with_and_without_a_mask() {
    let mut talk = talk();
    talk.client(&hex("8188e2b695ed94d3e79e8bd9fbc1")).server(&frame(0x81, b"version,hybi-draft-13"));
    assert_eq!(
        talk.logs(),
        [
            r#"{"websocket":{"fin":true,"mask":3803616749,"opcode":"text"}}"#,
            r#"{"websocket":{"fin":true,"opcode":"text"}}"#
        ]
    );
    assert_eq!(talk.buffers("websocket.payload", TS), ["version,"]);
    assert_eq!(talk.buffers("websocket.payload", TC), ["version,hybi-draft-13"]);
    assert_eq!(talk.numbers("websocket.mask", TS), [3_803_616_749]);
    assert_eq!(talk.numbers("websocket.mask", TC), []);
    assert_eq!(talk.numbers("websocket.opcode", TC), [1]);
    assert_eq!(talk.numbers("websocket.flags", TC), [0x80]);
    assert_eq!(talk.complete(), [[true; 2]; 2]);
}

#[test]
fn byte_by_byte_it_is_the_same() {
    let mut talk = talk();
    for byte in hex("8188e2b695ed94d3e79e8bd9fbc1") {
        talk.client(&[byte]);
    }
    assert_eq!(talk.buffers("websocket.payload", TS), ["version,"]);
}

#[test]
fn the_payload_is_shown_where_it_is_wanted() {
    let mut talk = talk();
    talk.options.options.set(AppProto::Websocket, PAYLOAD, 1);
    talk.options.options.set(AppProto::Websocket, PAYLOAD_PRINTABLE, 1);
    talk.client(&frame(0x83, b"a\x01"));
    assert_eq!(
        talk.logs(),
        [concat!(
            r#"{"websocket":{"fin":true,"opcode":"unknown-3","payload_base64":"YQE=","#,
            r#""payload_printable":"a."}}"#
        )]
    );
}

#[test]
fn a_message_in_fragments_with_a_ping_between_them() {
    let mut talk = talk();
    talk.client(&frame(0x01, b"cmd.exe "));
    talk.client(&frame(0x89, b"ping")).client(&frame(0x00, b"/c power")).client(&frame(0x80, b"shell"));
    assert_eq!(talk.buffers("websocket.payload", TS), ["", "ping", "", "cmd.exe /c powershell"]);
    assert_eq!(talk.numbers("websocket.opcode", TS), [1, 9, 0, 0]);
    assert_eq!(talk.complete(), [[true; 2]; 4]);
    // The next message starts again, even if the previous one never ended.
    talk.client(&frame(0x01, b"lost")).client(&frame(0x81, b"next")).client(&frame(0x80, b"alone"));
    assert_eq!(talk.buffers("websocket.payload", TS)[4..], ["", "next", "alone"]);
}

#[test]
fn compressed_messages_that_refer_to_those_before() {
    let mut talk = talk();
    let first = deflate(b"TOGGLE=5659131662f54334");
    talk.server(&frame(0xc1, &first));
    let mut inner = flate2::Compress::new(flate2::Compression::best(), false);
    let mut out = Vec::with_capacity(256);
    inner.compress_vec(b"TOGGLE=5659131662f54334", &mut out, flate2::FlushCompress::Sync).unwrap();
    let at = out.len();
    inner.compress_vec(b"TOGGLE=5659131662f54335", &mut out, flate2::FlushCompress::Sync).unwrap();
    let second = &out[at..out.len() - 4];
    assert!(second.len() < 12, "it refers to the message before");
    // In two fragments; only the first one says that the message is compressed.
    talk.server(&frame(0x41, &second[..3])).server(&frame(0x80, &second[3..]));
    assert_eq!(talk.buffers("websocket.payload", TC), ["TOGGLE=5659131662f54334", "", "TOGGLE=5659131662f54335"]);
    assert!(talk.events().is_empty());
    // Without the first message, the second cannot be decompressed; an independent third one can.
    let mut talk = self::talk();
    talk.server(&frame(0xc1, second)).server(&frame(0xc1, &first));
    assert_eq!(talk.buffers("websocket.payload", TC)[1..], ["TOGGLE=5659131662f54334"]);
    assert_eq!(talk.events(), ["decompression_failed"]);
}

#[test]
fn a_block_that_ends_its_stream() {
    let mut inner = flate2::Compress::new(flate2::Compression::best(), false);
    let mut out = Vec::with_capacity(64);
    inner.compress_vec(b"final", &mut out, flate2::FlushCompress::Finish).unwrap();
    // Section 7.2.3.4.
    out.push(0);
    let mut talk = talk();
    talk.client(&frame(0xc1, &out)).client(&frame(0xc1, &deflate(b"next")));
    assert_eq!(talk.buffers("websocket.payload", TS), ["final", "next"]);
    assert!(talk.events().is_empty());
}

#[test]
fn no_more_than_the_limit_is_kept() {
    let mut talk = talk().set("max-payload-size", 8);
    talk.client(&frame(0x81, b"12345678")).client(&frame(0x82, &[b'x'; 70_000])).client(&frame(0x81, b"behind"));
    assert_eq!(talk.buffers("websocket.payload", TS), ["12345678", "xxxxxxxx", "behind"]);
    assert_eq!(talk.events(), ["skip_end_of_payload"]);
    // Across fragments, rules get the payload once it reaches the limit; later fragments have none.
    let mut talk = self::talk().set("max-payload-size", 8);
    talk.client(&frame(0x01, b"12345")).client(&frame(0x00, b"6789"));
    assert_eq!(talk.buffers("websocket.payload", TS), ["", "12345678"]);
    assert_eq!(talk.events(), ["reassembly_limit_reached"]);
    talk.client(&frame(0x80, b"abc")).client(&frame(0x89, &[b'p'; 20])).client(&frame(0x81, b"behind"));
    assert_eq!(talk.buffers("websocket.payload", TS)[2..], ["", "pppppppp", "behind"]);
    assert_eq!(talk.events(), ["reassembly_limit_reached", "skip_end_of_payload"]);
}

#[test]
fn decompression_is_bounded() {
    let mut talk = talk().set("max-payload-size", 16);
    // Later messages refer to data beyond the limit.
    talk.client(&frame(0xc1, &deflate(&[b'a'; 100_000]))).client(&frame(0xc1, &deflate(b"next")));
    assert_eq!(talk.buffers("websocket.payload", TS), ["a".repeat(16), "next".to_owned()]);
    assert_eq!(talk.events(), ["skip_end_of_payload"]);
    assert!(talk.held() < 200 << 10, "{}", talk.held());
    // Sixteen MiB compressed to some 16 KiB.
    let bomb = deflate(&vec![0; 16 << 20]);
    let mut talk = self::talk();
    talk.server(&frame(0xc2, &bomb)).server(&frame(0xc1, &deflate(b"next"))).server(&frame(0x81, b"plain"));
    assert_eq!(talk.events(), ["compression_bomb", "skip_end_of_payload", "compression_bomb"]);
    assert_eq!(talk.buffers("websocket.payload", TC)[1..], ["", "plain"]);
    assert_eq!(talk.buffers("websocket.payload", TC)[0].len(), 4 << 16, "64 KiB of escaped zeros");
    // If the limit does not cut it before, it raises an event.
    let mut talk = self::talk().set("max-payload-size", 64 << 20);
    talk.server(&frame(0xc2, &bomb));
    assert_eq!(talk.events(), ["compression_bomb"]);
    assert!(talk.held() < 8 << 20, "{}", talk.held());
}

#[test]
fn lengths_are_not_trusted() {
    let mut talk = talk();
    let mut data = vec![0x82, 0xff];
    data.extend_from_slice(&[0xff; 8]);
    data.extend_from_slice(&[1, 2, 3, 4]);
    talk.client(&data).client(&[0; 4096]);
    assert_eq!(talk.outcome, Outcome::More);
    assert_eq!(talk.complete(), [[false, true]]);
    assert!(talk.held() < 16 << 10, "{}", talk.held());
}

#[test]
fn gaps_within_a_payload_are_passed() {
    let mut talk = talk();
    let data = frame(0x81, b"0123456789");
    talk.client(&data[..6]).gap(TS, 4);
    talk.client(&data[10..]).client(&frame(0x81, b"next"));
    assert_eq!(talk.buffers("websocket.payload", TS), ["012389", "next"]);
    talk.gap(TS, 1);
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn empty_frames() {
    let mut talk = talk();
    talk.client(&[0x89, 0x80, 1, 2, 3, 4]).server(&[0x8a, 0]).server(&[0xc1, 1, 0]);
    assert_eq!(talk.numbers("websocket.opcode", TC), [10, 1]);
    assert_eq!(talk.buffers("websocket.payload", TC), ["", ""]);
    assert_eq!(talk.complete(), [[true; 2]; 3]);
    assert!(talk.events().is_empty());
}
