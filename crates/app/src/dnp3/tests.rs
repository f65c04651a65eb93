//! Frames of a master and an outstation: complete, in several segments, and with errors in each layer.

use margay_flow::Direction::{ToClient, ToServer};

use super::*;
use crate::testing::Talk;

/// A link frame with checksums.
fn frame(control: u8, user: &[u8]) -> Vec<u8> {
    let mut out = vec![5, 0x64, 5 + user.len() as u8, control, 4, 0, 3, 0];
    let sum = crc(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    for block in user.chunks(BLOCK) {
        out.extend_from_slice(block);
        out.extend_from_slice(&crc(block).to_le_bytes());
    }
    out
}

/// A fragment in one segment, of a master or an outstation.
fn fragment(dir: Direction, data: &[u8]) -> Vec<u8> {
    frame(if dir == ToServer { 0xc4 } else { 0x44 }, &[&[0xc0], data].concat())
}

fn talk() -> Talk {
    Talk::tcp(AppProto::Dnp3, 20000)
}

/// A captured request of a master that disables unsolicited responses.
const DISABLE: &[u8] =
    b"\x05\x64\x11\xc4\x04\x00\x03\x00\xb4\xb8\xc1\xc2\x15\x3c\x02\x06\x3c\x03\x06\x3c\x04\x06\xe1\xc7";

#[test]
fn a_request_and_its_answer() {
    let mut disable = DISABLE.to_vec();
    let n = disable.len();
    let sums = (crc(&disable[..8]).to_le_bytes(), crc(&disable[10..n - 2]).to_le_bytes());
    disable[8..10].copy_from_slice(&sums.0);
    disable[n - 2..].copy_from_slice(&sums.1);
    let answer = fragment(ToClient, &[0xc2, 129, 0x90, 0x02]);
    let mut talk = talk();
    for b in &disable {
        talk.client(&[*b]);
    }
    talk.server(&answer[..7]).server(&answer[7..]);
    let object = |variation| {
        format!(
            r#"{{"group":60,"variation":{variation},"qualifier":6,"prefix_code":0,"range_code":6,"start":0,"stop":0,"count":0}}"#
        )
    };
    assert_eq!(
        talk.logs(),
        [
            format!(
                concat!(
                    r#"{{"dnp3":{{"type":"request","control":{{"dir":true,"pri":true,"fcb":false,"fcv":false,"function_code":4}},"src":3,"dst":4,"#,
                    r#""application":{{"control":{{"fir":true,"fin":true,"con":false,"uns":false,"sequence":2}},"function_code":21,"#,
                    r#""objects":[{},{},{}],"complete":true}}}}}}"#,
                ),
                object(2),
                object(3),
                object(4)
            ),
            concat!(
                r#"{"dnp3":{"type":"response","control":{"dir":false,"pri":true,"fcb":false,"fcv":false,"function_code":4},"src":3,"dst":4,"#,
                r#""application":{"control":{"fir":true,"fin":true,"con":false,"uns":false,"sequence":2},"function_code":129,"complete":true},"#,
                r#""iin":{"indicators":["device_restart","need_time","object_unknown"]}}}"#,
            )
            .to_string(),
        ]
    );
    assert_eq!(talk.complete(), [[true, true]; 2]);
    assert_eq!(talk.numbers("dnp3_func", ToServer), [21]);
    assert_eq!(talk.numbers("dnp3_func", ToClient), [129]);
    assert_eq!(talk.numbers("dnp3_ind", ToClient), [0x9002]);
    assert_eq!(talk.numbers("dnp3_obj", ToServer), [60 << 8 | 2, 60 << 8 | 3, 60 << 8 | 4]);
    assert_eq!(talk.buffers("dnp3.data", ToServer), ["\\xc2\\x15<\\x02\\x06<\\x03\\x06<\\x04\\x06"]);
    assert_eq!(talk.events(), [""; 0]);
}

/// The logged objects of a write of `objects`.
fn shown(objects: &[u8]) -> (String, Vec<&'static str>) {
    let mut talk = talk();
    talk.client(&fragment(ToServer, &[&[0xc0, 2], objects].concat()));
    let logs = talk.logs();
    let (_, log) = logs[0].split_once(r#""function_code":2,"#).unwrap();
    (log.strip_suffix("}}}").unwrap().to_string(), talk.events())
}

fn head(group: u8, variation: u8, qualifier: u8, start: u32, stop: u32, count: u32) -> String {
    let (prefix, range) = (qualifier >> 4, qualifier & 15);
    format!(
        r#"{{"group":{group},"variation":{variation},"qualifier":{qualifier},"prefix_code":{prefix},"range_code":{range},"start":{start},"stop":{stop},"count":{count}"#
    )
}

#[test]
fn objects() {
    for (bytes, header, points) in [
        // A six-byte time.
        (
            &b"\x32\x01\x07\x01\x01\x02\x03\x04\x05\x06"[..],
            head(50, 1, 7, 0, 0, 1),
            r#"{"prefix":0,"index":0,"timestamp":6618611909121}"#,
        ),
        // Packed bits.
        (
            b"\x50\x01\x00\x07\x09\x05",
            head(80, 1, 0, 7, 9, 3),
            r#"{"prefix":0,"index":7,"state":1},{"prefix":0,"index":8,"state":0},{"prefix":0,"index":9,"state":1}"#,
        ),
        (
            b"\x03\x01\x00\x00\x01\x0e",
            head(3, 1, 0, 0, 1, 2),
            r#"{"prefix":0,"index":0,"state":2},{"prefix":0,"index":1,"state":3}"#,
        ),
        // An index before each point; a signed value; flags.
        (
            b"\x20\x02\x28\x01\x00\x07\x00\x41\xff\xff",
            head(32, 2, 0x28, 0, 0, 1),
            concat!(
                r#"{"prefix":7,"index":7,"online":1,"restart":0,"comm_lost":0,"remote_forced":0,"local_forced":0,"over_range":0,"#,
                r#""reference_err":1,"reserved0":0,"value":18446744073709551615}"#,
            ),
        ),
        (
            b"\x29\x03\x00\x00\x00\x00\x00\xc0\x3f\x07",
            head(41, 3, 0, 0, 0, 1),
            r#"{"prefix":0,"index":0,"value":1.5,"control_status":7}"#,
        ),
        // A size before each point: a file name, and bytes.
        (
            b"\x46\x04\x5b\x01\x0e\x00\x78\x56\x34\x12\x3e\x03\x00\x00\x00\x04\x04\x00\x00a",
            head(70, 4, 0x5b, 0, 0, 1),
            concat!(
                r#"{"prefix":14,"index":0,"size":14,"file_handle":305419896,"file_size":830,"maximum_block_size":1024,"#,
                r#""request_id":4,"status_code":0,"optional_text":"a"}"#,
            ),
        ),
        (
            b"\x78\x0c\x5b\x01\x0a\x00\x01\x00\x00\x00\x02\x00\x02\x00hi",
            head(120, 12, 0x5b, 0, 0, 1),
            r#"{"prefix":10,"index":0,"size":10,"ksq":1,"user_number":2,"challenge_data_len":2,"data->challenge_data":"aGk="}"#,
        ),
        (
            b"\x53\x01\x5b\x01\x0a\x00ab\x00\x00\x07\x00\x02\x00hi",
            head(83, 1, 0x5b, 0, 0, 1),
            r#"{"prefix":10,"index":0,"size":10,"data->vendor_code":"ab","object_id":7,"length":2,"data->data_objects":"aGk="}"#,
        ),
    ] {
        let expected = format!(r#""objects":[{header},"points":[{points}]}}],"complete":true"#);
        assert_eq!(shown(bytes), (expected, vec![]));
    }
    // A request for any variation has no points.
    assert_eq!(
        shown(b"\x02\x00\x00\x00\x09"),
        (format!(r#""objects":[{}}}],"complete":true"#, head(2, 0, 0, 0, 9, 10)), vec![])
    );
}

#[test]
fn objects_that_are_bad() {
    for (bytes, header, event) in [
        // An unknown group; missing points; a range that ends before it begins; a size beyond the message.
        (&b"\xff\x01\x07\x01\0\0"[..], head(255, 1, 7, 0, 0, 1), Some("unknown_object")),
        (b"\x32\x01\x07\x01\x01", head(50, 1, 7, 0, 0, 1), Some("unknown_object")),
        (b"\x1e\x01\x02\x02\0\0\0\0\0\0\0", head(30, 1, 2, 2, 0, u32::MAX), Some("unknown_object")),
        (b"\x46\x05\x6b\x01\xff\xff\xff\xff\0\0", head(70, 5, 0x6b, 0, 0, 1), Some("unknown_object")),
        (b"\x78\x01\x5b\x01\x01\x00\0\0\0\0\0\0\0\0\0", head(120, 1, 0x5b, 0, 0, 1), Some("unknown_object")),
        (b"\x3c\x04\x6d\x01", head(60, 4, 0x6d, 0, 0, 0), None),
        (b"\x32\x01\x09\x01", head(50, 1, 9, 0, 0, 0), None),
        (b"\x3c\x04\x06\x01\x02", head(60, 4, 6, 0, 0, 0), None),
    ] {
        let expected = format!(r#""objects":[{header}}}],"complete":false"#);
        assert_eq!(shown(bytes), (expected, event.into_iter().collect()), "{bytes:x?}");
    }
}

#[test]
fn a_request_to_read_has_no_points() {
    let mut talk = talk();
    talk.client(&fragment(ToServer, b"\xc0\x01\x1e\x01\x00\x00\x09\x3c\x02\x06"));
    assert_eq!((talk.events(), talk.numbers("dnp3_obj", ToServer)), (vec![], vec![30 << 8 | 1, 60 << 8 | 2]));
    // Indexes and the position in a file are exceptions.
    let mut talk = Talk::tcp(AppProto::Dnp3, 20000);
    talk.client(&fragment(
        ToServer,
        b"\xc0\x01\x1e\x01\x17\x02\x07\x09\x46\x05\x5b\x01\x08\x00\x78\x56\x34\x12\0\0\0\0",
    ));
    assert_eq!((talk.events(), talk.numbers("dnp3_obj", ToServer)), (vec![], vec![30 << 8 | 1, 70 << 8 | 5]));
    let point = r#""points":[{"prefix":8,"index":0,"size":8,"file_handle":305419896,"block_number":0,"file_data":""}]}],"complete":true"#;
    assert!(talk.logs()[0].contains(point), "{}", talk.logs()[0]);
    talk.client(&fragment(ToServer, b"\xc0\x01\x1e\x01\x39\xff\xff\xff\xff\0\0"));
    assert_eq!(talk.events(), ["unknown_object"]);
}

#[test]
fn limits() {
    let bits = [&b"\xc0\x02\x01\x01\x01\0\0\xff\xff"[..], &[0; 40]].concat();
    let mut talk = talk().set("max-points", 100);
    talk.client(&fragment(ToServer, &bits));
    assert_eq!(talk.events(), ["too_many_points"]);
    assert_eq!(talk.logs()[0].matches("\"state\"").count(), 100);
    let mut talk = Talk::tcp(AppProto::Dnp3, 20000).set("max-objects", 2);
    talk.client(&fragment(ToServer, b"\xc0\x01\x3c\x02\x06\x3c\x03\x06\x3c\x04\x06"));
    assert_eq!(talk.events(), ["too_many_objects"]);
    assert_eq!(talk.logs()[0].matches("\"group\"").count(), 2);
}

#[test]
fn segments() {
    let data = b"\xc0\x02\x32\x01\x07\x01\x01\x02\x03\x04\x05\x06";
    let segment = |transport: u8, data: &[u8]| frame(0xc4, &[&[transport], data].concat());
    let mut talk = talk();
    talk.client(&segment(0x7f, &data[..5])).client(&segment(0x00, &data[5..7]));
    assert_eq!(talk.txs().len(), 0);
    talk.client(&segment(0x81, &data[7..]));
    assert_eq!(talk.numbers("dnp3_obj", ToServer), [50 << 8 | 1]);
    // A segment is missing, or the first one: nothing is reassembled.
    talk.client(&segment(0x41, &data[..5])).client(&segment(0x83, &data[5..])).client(&segment(0x84, data));
    assert_eq!((talk.txs().len(), talk.events()), (1, vec![]));
    // The same without a final segment.
    let mut talk = Talk::tcp(AppProto::Dnp3, 20000);
    talk.client(&segment(0x40, &[0; 249]));
    for n in 1..70 {
        talk.client(&segment(n & 0x3f, &[0; 249]));
    }
    assert_eq!((talk.events(), talk.logs().len()), (vec!["too_long_reassembly"], 0));
}

#[test]
fn what_is_bad_in_a_frame() {
    let good = fragment(ToServer, b"\xc0\x01\x3c\x02\x06");
    let with = |at: usize| {
        let mut data = good.clone();
        data[at] ^= 1;
        data
    };
    let mut talk = talk();
    talk.client(&with(8)).client(&with(12)).client(&frame(0xc4, b"")).client(&good);
    assert_eq!(talk.events(), ["bad_link_crc", "bad_transport_crc", "len_too_small"]);
    assert_eq!(talk.logs().len(), 1);
    talk.client(b"\x05\x64\x04");
    assert_eq!((talk.events().last(), talk.outcome), (Some(&"len_too_small"), Outcome::Failed));
    let mut talk = Talk::tcp(AppProto::Dnp3, 20000);
    assert_eq!(talk.client(b"GET /").outcome, Outcome::Failed);
}

#[test]
fn what_is_not_kept() {
    let mut talk = talk();
    // Confirmations; a link status; a frame of a secondary station; a truncated request.
    talk.client(&fragment(ToServer, b"\xc0\x00")).client(&frame(0xc9, b"")).client(&frame(0x80, b""));
    talk.server(&fragment(ToClient, b"\xc0\x00")).client(&fragment(ToServer, b"\xc0\x01\x3c")[..12]).end();
    assert_eq!((talk.txs().len(), talk.events()), (0, vec![]));
}

#[test]
fn fragments_that_end_within_their_header() {
    for (dir, short) in [(ToServer, &b"\xc0"[..]), (ToServer, b""), (ToClient, b"\xc0\x81\x00"), (ToClient, b"\xc0")] {
        let mut talk = talk();
        for data in [short, b"\xc0\x81\0\0"] {
            let frame = fragment(dir, data);
            if dir == ToServer {
                talk.client(&frame)
            } else {
                talk.server(&frame)
            };
        }
        assert_eq!((talk.events(), talk.logs().len()), (vec!["len_too_small"], 1), "{short:?}");
    }
}

#[test]
fn a_gap() {
    let good = fragment(ToServer, b"\xc0\x01\x3c\x02\x06");
    let mut talk = talk();
    talk.client(&good).gap(ToServer, 100).client(b"rest\x05").client(&good[..1]).client(&good[1..]).client(&good);
    assert_eq!(talk.txs().len(), 3);
}

#[test]
fn keywords() {
    assert_eq!(indicators("all_stations,Need_time"), Ok(NumberCondition::Bits { any: 0x1100, none: 0 }));
    assert_eq!(indicators("0x8000, 1"), Ok(NumberCondition::Bits { any: 0x8001, none: 0 }));
    assert!(indicators("all").is_err() && indicators("0x10000").is_err());
    assert_eq!(object("60, 2"), Ok(NumberCondition::OneOf { values: vec![60 << 8 | 2], negated: false }));
    for bad in ["60", "60,256", "a,1"] {
        assert!(object(bad).is_err());
    }
}
