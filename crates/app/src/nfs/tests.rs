//! Calls and replies of the three versions, fragmented records, and invalid ones.

use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::Time;

use super::*;
use crate::parser::{Outcome, Parse};
use crate::testing::Talk;
use crate::window::WindowLimits;
use crate::{AppConfig, AppSession, Shared};

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

fn word(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn opaque(data: &[u8]) -> Vec<u8> {
    let padding = data.len().next_multiple_of(4) - data.len();
    [&word(data.len() as u32)[..], data, &[0; 3][..padding]].concat()
}

/// A call by user 3 of group 4 at the machine `host`.
fn call(xid: u32, version: u32, procedure: u32, args: &[Vec<u8>]) -> Vec<u8> {
    call_from(b"host", xid, version, procedure, args)
}

fn call_from(machine: &[u8], xid: u32, version: u32, procedure: u32, args: &[Vec<u8>]) -> Vec<u8> {
    let creds = [word(9), opaque(machine), word(3), word(4), word(0)].concat();
    let head =
        [word(xid), word(0), word(2), word(100_003), word(version), word(procedure), word(1), opaque(&creds)].concat();
    [head, word(0), word(0), args.concat()].concat()
}

fn reply(xid: u32, results: &[Vec<u8>]) -> Vec<u8> {
    [word(xid), word(1), word(0), word(0), word(0), word(0), results.concat()].concat()
}

/// A record of one fragment.
fn record(message: &[u8]) -> Vec<u8> {
    [word(1 << 31 | message.len() as u32), message.to_vec()].concat()
}

/// Records of version 3: a write, and the reply to a read.
fn write3(xid: u32, handle: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    write3_as(2, xid, handle, offset, data)
}

/// A write with the requested stability (RFC 1813, section 3.3.7): 0 waits for COMMIT.
fn write3_as(stable: u32, xid: u32, handle: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let at = offset.to_be_bytes().to_vec();
    record(&call(xid, 3, 7, &[opaque(handle), at, word(data.len() as u32), word(stable), opaque(data)]))
}

fn read3(xid: u32, end: u32, data: &[u8]) -> Vec<u8> {
    record(&reply(xid, &[word(0), word(0), word(data.len() as u32), word(end), opaque(data)]))
}

fn ask3(xid: u32, handle: &[u8], offset: u64) -> Vec<u8> {
    record(&call(xid, 3, 6, &[opaque(handle), offset.to_be_bytes().to_vec(), word(4096)]))
}

fn tcp() -> Talk {
    let mut talk = Talk::tcp(AppProto::Nfs, 2049);
    talk.shared.files.wants.data = false;
    talk
}

/// State, size and whether it has gaps, for each file.
fn files(talk: &Talk) -> Vec<(String, u64, bool)> {
    let of = |f: &crate::file::File| (format!("{:?}", f.state), f.size, f.gaps);
    talk.txs().iter().flat_map(|t| t.base().files.all().iter().map(of)).collect()
}

#[test]
fn names_and_handles_of_version_3() {
    let mut talk = Talk::udp(AppProto::Nfs, 2049);
    let handle = b"file-handle";
    talk.client(&call(1, 3, 3, &[opaque(b"dir"), opaque(b"a.txt")]));
    talk.server(&reply(1, &[word(0), opaque(handle), word(0), word(0)]));
    talk.client(&call(2, 3, 4, &[opaque(handle), word(1)])).server(&reply(2, &[word(13), word(0)]));
    talk.client(&call(3, 3, 14, &[opaque(b"dir"), opaque(b"a.txt"), opaque(b"dir"), opaque(b"b.txt")]));
    talk.server(&reply(3, &[word(0)]));
    talk.client(&call(4, 3, 1, &[opaque(handle)])).server(&reply(4, &[word(0)]));
    let rpc = |xid: u32| {
        format!(
            r#"{{"rpc":{{"xid":{xid},"status":"ACCEPTED","auth_type":"UNIX","creds":{{"machine_name":"host","uid":3,"gid":4}}}},"#
        )
    };
    let hash = format!("{:x}", tx::hash(handle));
    let dir = format!("{:x}", tx::hash(b"dir"));
    assert_eq!(
        talk.logs(),
        [
            format!(
                r#"{}"nfs":{{"version":3,"procedure":"LOOKUP","filename":"a.txt","hhash":"{hash}","id":1,"file_tx":false,"type":"response","status":"OK"}}}}"#,
                rpc(1)
            ),
            format!(
                r#"{}"nfs":{{"version":3,"procedure":"ACCESS","filename":"a.txt","hhash":"{hash}","id":2,"file_tx":false,"type":"response","status":"ERR_ACCES"}}}}"#,
                rpc(2)
            ),
            format!(
                r#"{}"nfs":{{"version":3,"procedure":"RENAME","filename":"a.txt","hhash":"{dir}","id":3,"file_tx":false,"type":"response","status":"OK","rename":{{"from":"a.txt","to":"b.txt"}}}}}}"#,
                rpc(3)
            ),
        ]
    );
    assert_eq!(talk.numbers("nfs.version", TS), [3, 3, 3, 3]);
    assert_eq!((talk.numbers("nfs.version", TC), talk.complete()), (vec![], vec![[true, true]; 4]));
    // The hash is the usual one.
    assert_eq!(tx::hash(b"123456789"), 0xcbf4_3926);
}

/// Clients begin with the null procedure. A directory that was looked up has its name in later calls.
#[test]
fn the_null_procedure_and_directories() {
    let mut talk = Talk::udp(AppProto::Nfs, 2049);
    talk.client(&call(1, 3, 0, &[])).server(&reply(1, &[]));
    talk.client(&call(2, 3, 3, &[opaque(b"root"), opaque(b"sub")]));
    talk.server(&reply(2, &[word(0), opaque(b"handle"), word(0), word(0)]));
    talk.client(&call(3, 3, 17, &[opaque(b"handle"), vec![0; 24]])).server(&reply(3, &[word(0)]));
    let logs = talk.logs();
    assert!(
        logs[0]
            .ends_with(r#""procedure":"NULL","filename":"","id":1,"file_tx":false,"type":"response","status":"OK"}}"#),
        "{}",
        logs[0]
    );
    assert!(logs[2].contains(r#""procedure":"READDIRPLUS","filename":"sub","hhash":"#), "{}", logs[2]);
    assert_eq!((talk.numbers("nfs.version", TS).len(), talk.complete()), (3, vec![[true, true]; 3]));
}

#[test]
fn user_and_group_are_read_without_the_padding_of_the_name() {
    let mut talk = Talk::udp(AppProto::Nfs, 2049);
    talk.client(&call_from(b"me", 1, 3, 4, &[opaque(b"handle"), word(1)])).server(&reply(1, &[word(0), word(0)]));
    let log = &talk.logs()[0];
    assert!(log.contains(r#""machine_name":"me","uid":0,"gid":196608"#), "{log}");
}

#[test]
fn a_file_that_is_read() {
    let mut talk = tcp();
    talk.client(&ask3(1, b"h", 0)).server(&read3(1, 0, b"hello "));
    talk.client(&ask3(2, b"h", 6)).server(&read3(2, 1, b"world"));
    assert_eq!(files(&talk), [("Closed".into(), 11, false)]);
    assert_eq!(talk.complete(), [[true, true]]);
    assert!(talk.logs()[0].contains(
        r#""file_tx":true,"type":"response","status":"OK","read":{"first":true,"last":true,"last_xid":2,"chunks":2}"#
    ));
    // The next read is of another file, and a refused one belongs to none.
    talk.client(&ask3(3, b"h", 0)).server(&record(&reply(3, &[word(70), word(0)])));
    assert!(talk.logs()[1].contains(r#""status":"ERR_STALE""#));
    assert_eq!((files(&talk).len(), talk.complete()), (1, vec![[true, true]; 2]));
}

#[test]
fn a_file_that_is_read_in_version_2() {
    let mut talk = Talk::udp(AppProto::Nfs, 2049);
    let attributes = [&[0; 20][..], &word(5), &[0; 44]].concat();
    talk.client(&call(1, 2, 6, &[vec![7; 32], word(0), word(4096), word(0)]));
    assert_eq!(talk.txs().len(), 0);
    talk.server(&reply(1, &[word(0), attributes, opaque(b"hello")]));
    assert_eq!(files(&talk), [("Closed".into(), 5, false)]);
    let log = &talk.logs()[0];
    assert!(log.contains(r#""auth_type":"NULL"}"#) && log.contains(r#""filename":"","hhash":""#), "{log}");
    assert!(log.contains(r#""read":{"first":true,"last":true,"last_xid":1,"chunks":0}"#), "{log}");
}

#[test]
fn a_file_that_is_written() {
    let mut talk = tcp();
    talk.client(&write3(1, b"h", 0, b"hello "))
        .client(&write3(2, b"h", 12, b"!"))
        .client(&write3(3, b"h", 6, b"world,"));
    assert_eq!(files(&talk), [("Open".into(), 13, false)]);
    // Written again from the start.
    talk.client(&write3(4, b"h", 0, b"again"));
    assert_eq!(files(&talk), [("Truncated".into(), 13, false), ("Open".into(), 5, false)]);
    talk.client(&record(&call(5, 3, 21, &[opaque(b"h"), vec![0; 12]])));
    assert_eq!(files(&talk)[1], ("Closed".into(), 5, false));
    // COMMIT belongs to the file.
    assert_eq!(talk.txs().len(), 1);
    assert!(talk.logs()[0].contains(r#""write":{"first":true,"last":true,"last_xid":5,"chunks":1}"#));
}

/// At the end of the stream, rules inspect what there is of a file that is still open.
#[test]
fn a_file_that_is_open_at_the_end() {
    let (config, mut shared, mut session) = (AppConfig::default(), Shared::default(), AppSession::default());
    shared.files.wants.data = true;
    let flow = FlowCore {
        state: FlowState::Established,
        ..FlowCore::new(1, 6, ([192, 0, 2, 1].into(), 800), ([192, 0, 2, 2].into(), 2049), Time(0))
    };
    let mut due = |session: &mut AppSession, dir, mut bytes: &[u8], end| {
        let mut cx = Parse { config: &config, shared: &mut shared, flow: &flow, time: Time(0), end, inline: false };
        // The session asks for the same data again after it has recognised the protocol.
        for _ in 0..4 {
            let fed = session.data(&mut cx, dir, bytes);
            bytes = &bytes[fed.consumed..];
            if !fed.again {
                break;
            }
        }
        let tx = session.parsers().first().and_then(|p| p.tx(p.txs().end.checked_sub(1)?))?;
        let found = tx.base().files.all().first()?.data(tx.file_window(TS, false))?;
        Some((found.data.to_vec(), tx.base().updated[0]))
    };
    assert_eq!(due(&mut session, TS, &write3_as(0, 1, b"h", 0, b"hello"), false), None);
    assert_eq!(
        due(&mut session, TC, &record(&reply(1, &[word(0), word(0), word(0), word(5), word(0), vec![0; 8]])), false),
        None
    );
    session.parsers_mut()[0].rest_tx(0);
    assert_eq!(due(&mut session, TS, b"", true), Some((b"hello".to_vec(), true)));
    // Detection sees it, though it rested.
    assert_eq!(session.parsers()[0].next_awake(0), Some(0));
}

/// No COMMIT follows a write that the server stores at once, so rules inspect what there is of the file.
#[test]
fn a_synchronous_write_is_inspected() {
    let limits = WindowLimits { min: 100, window: 100, whole: 0 };
    let due = |stable| {
        let mut talk = tcp();
        talk.shared.files.wants.data = true;
        talk.client(&write3_as(stable, 1, b"h", 0, b"hello "));
        let first = talk.txs()[0].base().files.all()[0].data(limits).is_some();
        talk.client(&write3_as(stable, 2, b"h", 6, b"world"));
        let found = talk.txs()[0].base().files.all()[0].data(limits).map(|f| f.data.to_vec());
        assert_eq!(files(&talk), [("Open".into(), 11, false)]);
        (first, found)
    };
    assert_eq!(due(0), (false, None));
    assert_eq!(due(1), (true, Some(b"hello world".to_vec())));
    assert_eq!(due(2), (true, Some(b"hello world".to_vec())));
}

/// Rules on the version match with the first call of a write, whose file ends much later.
#[test]
fn numbers_are_known_before_a_write_ends() {
    let numbers = crate::registry::protocol(crate::AppProto::Nfs).expect("it has a parser").numbers;
    assert!(numbers.iter().all(|n| n.progress == [Some(0), None]), "{numbers:?}");
}

#[test]
fn a_long_write_is_taken_as_it_comes() {
    let data: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let whole = write3(1, b"h", 0, &data);
    let mut talk = tcp();
    for piece in whole.chunks(1400) {
        talk.client(piece);
        assert!(talk.held() < 200_000, "{}", talk.held());
    }
    talk.client(&record(&call(2, 3, 21, &[opaque(b"h"), vec![0; 12]])));
    assert_eq!(files(&talk), [("Closed".into(), 300_000, false)]);
    // The same in fragments, one of which ends in the header.
    let mut talk = tcp();
    let message = &whole[4..];
    let mut from = 0;
    for len in [50, 100, 8192, 100_000, message.len()] {
        let to = (from + len).min(message.len());
        let last = u32::from(to == message.len()) << 31;
        talk.client(&[word(last | (to - from) as u32), message[from..to].to_vec()].concat());
        from = to;
    }
    talk.client(&record(&call(2, 3, 21, &[opaque(b"h"), vec![0; 12]])));
    assert_eq!(files(&talk), [("Closed".into(), 300_000, false)]);
}

#[test]
fn a_gap_in_a_write_is_a_hole() {
    let whole = write3(1, b"h", 0, &[7; 300_000]);
    let mut talk = tcp();
    talk.client(&whole[..100_000]).gap(TS, 50_000).client(&whole[150_000..]);
    talk.client(&record(&call(2, 3, 21, &[opaque(b"h"), vec![0; 12]])));
    // With a gap, the file is truncated.
    assert_eq!(files(&talk), [("Truncated".into(), 300_000, true)]);
    // The gap exceeds the record: the parser finds the next record.
    let mut talk = tcp();
    talk.client(&whole[..100_000]).gap(TS, 300_000);
    talk.client(&[&b"rubbish"[..], &record(&call(2, 3, 3, &[opaque(b"d"), opaque(b"name")]))].concat());
    assert_eq!(talk.txs().len(), 2);
    // A gap in a header that waits.
    let mut talk = tcp();
    talk.client(&whole[..20]).gap(TS, 400_000);
    talk.client(&record(&call(2, 3, 3, &[opaque(b"d"), opaque(b"name")])));
    assert_eq!(talk.txs().len(), 1);
}

/// A gap in a record with a known length ends before the next one, which needs no search: it may be in fragments.
#[test]
fn a_gap_in_a_record_that_waits() {
    let name = |xid| call(xid, 3, 3, &[opaque(b"d"), opaque(b"name")]);
    let first = record(&name(1));
    let message = name(2);
    let (begin, end) = message.split_at(40);
    let in_fragments = [word(40), begin.to_vec(), word(1 << 31 | end.len() as u32), end.to_vec()].concat();
    let mut talk = tcp();
    talk.client(&first[..20]).gap(TS, 30).client(&first[50..]).client(&in_fragments);
    assert_eq!((talk.txs().len(), talk.logs().len()), (1, 1));
    assert!(talk.logs()[0].contains(r#""xid":2,"#), "{:?}", talk.logs());
    // In a fragment, the rest of the record is skipped.
    let mut talk = tcp();
    talk.client(&in_fragments[..20]).gap(TS, 10).client(&in_fragments[30..]).client(&first);
    assert_eq!(talk.txs().len(), 1);
    assert!(talk.logs()[0].contains(r#""xid":1,"#), "{:?}", talk.logs());
}

/// The stream ends within a record: it is handled as far as it goes, whatever its length.
#[test]
fn a_truncated_write() {
    for len in [3_000, 300_000] {
        let whole = write3(1, b"h", 0, &vec![7; len]);
        let mut talk = tcp();
        talk.client(&whole[..2_000]).end();
        assert_eq!(files(&talk).len(), 1, "{len}");
    }
}

#[test]
fn compounds_of_version_4() {
    let mut talk = tcp();
    let sequence = [word(53), vec![0; 32]].concat();
    let putfh = [word(22), opaque(b"fh")].concat();
    let open =
        [word(18), word(0), word(2), word(0), vec![0; 8], opaque(b"owner"), word(0), word(0), opaque(b"name")].concat();
    let compound =
        |xid, ops: &[Vec<u8>]| record(&call(xid, 4, 1, &[word(0), word(1), word(ops.len() as u32), ops.concat()]));
    let answer = |xid, results: &[Vec<u8>]| {
        record(&reply(xid, &[word(0), word(0), word(results.len() as u32), results.concat()]))
    };
    let ok = |op| [word(op), word(0)].concat();
    talk.client(&compound(1, &[sequence.clone(), putfh.clone(), open, word(10)]));
    let opened = [ok(18), vec![0; 16 + 20 + 4], word(0), word(0)].concat();
    let got = [ok(10), opaque(b"file")].concat();
    talk.server(&answer(1, &[[ok(53), vec![0; 36]].concat(), ok(22), opened, got]));
    let write = [word(38), vec![0; 16], vec![0; 8], word(2), opaque(b"hello")].concat();
    let file = [word(22), opaque(b"file")].concat();
    talk.client(&compound(2, &[sequence.clone(), file.clone(), write]));
    talk.server(&answer(2, &[[ok(53), vec![0; 36]].concat(), ok(22), [ok(38), vec![0; 16]].concat()]));
    assert_eq!(files(&talk), [("Open".into(), 5, false)]);
    let close = [word(4), word(0), vec![0; 16]].concat();
    talk.client(&compound(3, &[sequence, file, close]));
    assert_eq!(files(&talk), [("Closed".into(), 5, false)]);
    let logs = talk.logs();
    // The call that opens a file has an event; the one that closes it has none.
    assert_eq!(logs.len(), 2);
    assert!(logs[0].contains(r#""procedure":"OPEN","filename":"name""#), "{}", logs[0]);
    assert!(logs[1].contains(r#""procedure":"WRITE","filename":"name","hhash":""#), "{}", logs[1]);
    assert!(logs[1].contains(r#""write":{"first":true,"last":true,"last_xid":3,"chunks":1}"#), "{}", logs[1]);
    let numbers = talk.numbers("nfs_procedure", TS);
    assert_eq!(numbers[..8].iter().step_by(2).copied().collect::<Vec<_>>(), [53, 22, 18, 10]);
}

#[test]
fn procedures_that_rules_name() {
    let text = |t: &str| match procedure(t) {
        Ok(NumberCondition::Tagged { tag, text }) => Some((tag, text.unwrap_or_default())),
        _ => None,
    };
    assert_eq!(text("17"), Some((0, "17".into())));
    // Both ends are included.
    assert_eq!((text("5<>8"), text("11-13")), (Some((0, "4-9".into())), Some((0, "10-14".into()))));
    assert_eq!((text("0-3"), text("7-7"), text("9<>4")), (Some((0, "<=3".into())), Some((0, "7".into())), None));
    assert_eq!(text("0x2-0x3"), Some((0, "1-4".into())));
    let number = |text: &str| NumberCondition::Compare { text: text.into(), max: u64::from(u32::MAX) };
    assert_eq!((version("2-3"), version(" 3 "), version(">2")), (Ok(number("1-4")), Ok(number("3")), Ok(number(">2"))));
    let getattr = text("getattr").unwrap();
    assert_eq!((getattr.0, text("!GetAttr")), (1, Some((1, format!("!{}", getattr.1)))));
    // The same name in versions 3 and 4.
    let named = u64::from(getattr.1.parse::<u32>().unwrap()) | NAMED;
    let mut talk = Talk::udp(AppProto::Nfs, 2049);
    talk.client(&call(1, 3, 1, &[opaque(b"h")]));
    talk.client(&call(2, 4, 1, &[word(0), word(0), word(1), word(9), word(0)]));
    assert_eq!(talk.numbers("nfs_procedure", TS), [1, named, 9, named]);
}

#[test]
fn what_is_odd() {
    let mut talk = tcp();
    talk.client(&record(&call(1, 5, 1, &[])));
    assert_eq!(talk.events(), ["nonexisting_version"]);
    // A string that exceeds the message.
    talk.client(&record(&call(2, 3, 3, &[opaque(b"d"), word(900)])));
    assert_eq!(talk.events(), ["nonexisting_version", "malformed_data"]);
    // A message that is neither a call nor a reply, and a call of another version of RPC, are no transactions.
    for (at, byte) in [(7, 2), (11, 3)] {
        let mut other = call(3, 3, 1, &[opaque(b"h")]);
        other[at] = byte;
        talk.client(&record(&other));
    }
    assert_eq!((talk.events().len(), talk.txs().len()), (2, 2));
    // Another program, and a reply without a call.
    let mut other = call(3, 3, 1, &[]);
    other[15] = 0xcb;
    talk.client(&record(&other)).server(&record(&reply(9, &[word(0)])));
    assert_eq!((talk.txs().len(), talk.outcome), (2, Outcome::More));
    // A call that the server rejects.
    talk.client(&record(&call(5, 3, 3, &[opaque(b"d"), opaque(b"n")])));
    talk.server(&record(&[word(5), word(1), word(1), word(1), word(1)].concat()));
    assert!(talk.logs().last().unwrap().contains(r#""status":"DENIED""#), "{:?}", talk.logs());
    talk.client(b"\x80\0\0\x01\0");
    assert_eq!(talk.outcome, Outcome::Failed);
}

#[test]
fn what_waits_is_limited() {
    let mut talk = tcp().set("max-tx", 20).set("max-write-queue-cnt", 2).set("max-write-queue-size", 1000);
    for xid in 0..200 {
        talk.client(&record(&call(xid, 3, 3, &[opaque(b"d"), opaque(b"name")])));
    }
    assert!(talk.txs().len() <= 20);
    assert!(talk.events().contains(&"too_many_transactions"));
    assert!(talk.held() < 200_000);
    let mut talk = tcp().set("max-write-queue-cnt", 2);
    for (xid, offset) in [(1, 100), (2, 300), (3, 500)] {
        talk.client(&write3(xid, b"h", offset, b"x"));
    }
    // The third one does not wait, so the data before it is a gap.
    assert_eq!(files(&talk), [("Open".into(), 501, true)]);
}

/// The frames of a reply depend on the version, which only the call has.
#[test]
fn the_reply_to_a_write_has_frames() {
    for version in [3, 4] {
        let mut talk = Talk::udp(AppProto::Nfs, 2049);
        talk.shared.frames.wanted = true;
        let write = match version {
            3 => call(1, 3, 7, &[opaque(b"h"), vec![0; 8], word(4), word(2), opaque(b"data")]),
            _ => call(
                1,
                4,
                1,
                &[word(0), word(0), word(2), word(22), opaque(b"h"), word(38), vec![0; 24], word(2), opaque(b"data")],
            ),
        };
        talk.client(&write).server(&reply(1, &[word(0), vec![0; 16]]));
        let pdu = if version == 3 { 4 } else { 6 };
        let marks: Vec<_> = talk.shared.frames.flow.of(TC).iter().map(|f| (f.kind, f.end)).collect();
        assert!(marks.contains(&(pdu, Some(44))), "{version} {marks:?}");
    }
}

#[test]
fn any_byte_may_be_wrong() {
    let messages = [
        ask3(1, b"handle", 0),
        write3(2, b"handle", 0, b"data"),
        record(&call(3, 4, 1, &[word(0), word(0), word(2), word(22), opaque(b"fh"), word(28), opaque(b"name")])),
    ];
    let answer = read3(1, 1, b"data");
    for whole in &messages {
        for i in 0..whole.len() {
            for b in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[i] = b;
                let mut talk = tcp();
                talk.client(&bad).server(&answer).end();
                talk.logs();
            }
        }
    }
}

#[test]
fn recognised_by_a_call() {
    let yes = Probed::Yes { reverse: false };
    let whole = record(&call(1, 3, 3, &[opaque(b"d"), opaque(b"name")]));
    assert_eq!((probe_tcp(TS, &whole), probe_tcp(TS, &whole[..20])), (yes, Probed::More));
    assert_eq!((probe_udp(TS, &whole[4..]), probe_udp(TS, &[0; 40])), (yes, Probed::No));
}
