//! Work that is spared where nobody needs it: what anybody needs is still there.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod conversation;
mod made;
mod process;

use std::io::Write;
use std::path::Path;

use conversation::{Client, Ran, Say, Server, run_on};
use flate2::{Compression, write::GzEncoder};
use process::{folder, of_type};

/// Bytes of a body before it is packed: more than what is decoded for nobody, and ten times what it is packed.
const SIZE: usize = 4 << 20;
const LIMIT: usize = 100 << 10;

/// `SIZE` bytes with a word near the beginning, one behind the usual limits, and one at the end.
fn body() -> Vec<u8> {
    let mut draw = 1u32;
    let mut out: Vec<u8> = (0..SIZE)
        .map(|n| {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if n % 64 < 8 { b'a' + (draw >> 24) as u8 % 26 } else { b'.' }
        })
        .collect();
    for (word, at) in [(&b"first-word"[..], 1000), (b"middle-word", SIZE / 2), (b"final-word", SIZE - 20)] {
        out[at..at + word.len()].copy_from_slice(word);
    }
    out
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(data).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

const RULES: &str = "\
    alert http any any -> any any (msg:\"first\"; flow:to_client; file.data; content:\"first-word\"; sid:1;)\n\
    alert http any any -> any any (msg:\"middle\"; flow:to_client; file.data; content:\"middle-word\"; sid:2;)\n\
    alert http any any -> any any (msg:\"final\"; flow:to_client; file.data; content:\"final-word\"; sid:3;)\n\
    alert http any any -> any any (msg:\"second\"; flow:to_client; http.stat_code; content:\"404\"; sid:4;)\n";

/// A download of a packed body, and a request behind it on the same connection.
fn download(name: &str, rules: &str, more: &[&str]) -> Ran {
    let packed = gzip(&body());
    assert!(packed.len() * 5 < SIZE);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    let answer = [head.as_bytes(), &packed].concat();
    let mut capture = conversation::Capture::new();
    capture.connection(
        40000,
        80,
        &[
            Say(Client, b"GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"),
            Say(Server, &answer),
            Say(Client, b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n"),
            Say(Server, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        ],
    );
    let pcap = folder(&format!("spared-{name}-pcap")).join("a.pcap");
    capture.write(&pcap);
    run_on(&format!("spared-{name}"), &pcap, rules, &[&["--set", "unix-command.enabled=no"], more].concat())
}

fn alerts(dir: &Path) -> Vec<u64> {
    let mut sids: Vec<_> = of_type(dir, "alert").iter().filter_map(|e| e["alert"]["signature_id"].as_u64()).collect();
    sids.sort_unstable();
    sids.dedup();
    sids
}

const DEPTH: [&str; 2] = ["--set", "stream.reassembly.depth=0"];
const UNLIMITED: [&str; 2] = ["--set", "app-layer.protocols.http.libhtp.default-config.response-body-limit=0"];

/// With limits, what is behind them is decoded for nobody: the rules before them, the file, the record and what follows on the
/// connection are the same as ever.
#[test]
fn a_body_of_which_rules_have_all_they_look_at() {
    let ran = download("limited", RULES, &DEPTH);
    assert_eq!(alerts(&ran.dir), [1, 4]);
    let http = of_type(&ran.dir, "http");
    let length = gzip(&body()).len() as u64;
    assert_eq!((http.len(), http[0]["http"]["length"].as_u64()), (2, Some(length)), "{http:?}");
    let files = of_type(&ran.dir, "fileinfo");
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!((&files[0]["fileinfo"]["size"], &files[0]["fileinfo"]["state"]), (&LIMIT.into(), &"TRUNCATED".into()));
}

#[test]
fn a_body_that_rules_look_at_to_its_end() {
    let ran = download("unlimited", RULES, &[DEPTH, UNLIMITED].concat());
    assert_eq!(alerts(&ran.dir), [1, 2, 3, 4]);
    let files = of_type(&ran.dir, "fileinfo");
    assert_eq!((&files[0]["fileinfo"]["size"], &files[0]["fileinfo"]["state"]), (&SIZE.into(), &"CLOSED".into()));
}

/// Rules have their part, and the file goes on: it is stored whole, under its hash.
#[test]
fn a_body_that_is_stored() {
    let rules = format!(
        "{RULES}alert http any any -> any any (msg:\"store\"; flow:to_client; file.name; content:\"a.txt\"; filestore; sid:5;)\n"
    );
    let store = ["--set", "outputs.5.file-store.enabled=yes"];
    let ran =
        download("stored", &rules, &[&DEPTH[..], &store, &["--set", "outputs.5.file-store.stream-depth=0"]].concat());
    let files = of_type(&ran.dir, "fileinfo");
    assert_eq!(
        (&files[0]["fileinfo"]["size"], &files[0]["fileinfo"]["stored"], &files[0]["fileinfo"]["state"]),
        (&SIZE.into(), &true.into(), &"CLOSED".into()),
        "{files:?}"
    );
    let hash = files[0]["fileinfo"]["sha256"].as_str().expect("a hash");
    let path = ran.dir.join("filestore").join(&hash[..2]).join(hash);
    assert!(std::fs::read(&path).expect("the file") == body(), "{}", path.display());
}

/// What is left of a flow's streams when it ends is inspected, whatever there is of it.
#[test]
fn what_is_left_when_a_flow_ends() {
    use made::{ACK, Capture, PUSH, Side};
    /// What is sent, and whether the word is in what is left.
    type Ending = (&'static str, fn(&mut Capture), bool);
    const WORD: &[u8] = b".....evil-attack.....";
    let all: [Ending; 6] = [
        ("nothing", |c| c.open(0, (4000, 9999), (1000, 5000)), false),
        (
            "not acknowledged",
            |c| {
                c.open(0, (4000, 9999), (1000, 5000));
                c.tcp(9, Side::Client, (4000, 9999), (1001, 5001), ACK | PUSH, WORD);
            },
            true,
        ),
        (
            "behind a hole",
            |c| {
                c.open(0, (4000, 9999), (1000, 5000));
                c.tcp(9, Side::Client, (4000, 9999), (1301, 5001), ACK | PUSH, WORD);
            },
            true,
        ),
        (
            "of the server",
            |c| {
                c.open(0, (4000, 9999), (1000, 5000));
                c.tcp(9, Side::Server, (4000, 9999), (5001, 1001), ACK | PUSH, WORD);
            },
            true,
        ),
        (
            "before what was seen first",
            |c| {
                c.tcp(0, Side::Client, (4000, 9999), (1040, 5001), ACK, b"");
                c.tcp(1, Side::Client, (4000, 9999), (1001, 5001), ACK | PUSH, WORD);
            },
            true,
        ),
        (
            "before what was seen first, early",
            |c| {
                c.tcp(0, Side::Client, (4000, 9999), (1400, 5001), ACK | PUSH, b"x");
                c.tcp(1, Side::Client, (4000, 9999), (1001, 5001), ACK | PUSH, WORD);
            },
            true,
        ),
    ];
    let rules = "alert tcp-stream any any -> any any (msg:\"left\"; content:\"evil-attack\"; sid:1;)\n\
                 alert tcp-pkt any any -> any any (msg:\"a packet\"; content:\"evil-attack\"; sid:2;)\n";
    for (n, (name, make, found)) in all.into_iter().enumerate() {
        let mut capture = Capture::new();
        make(&mut capture);
        let pcap = folder(&format!("spared-left-{n}-pcap")).join("a.pcap");
        capture.write(&pcap);
        let options = ["-k", "none", "--set", "stream.midstream=true", "--set", "unix-command.enabled=no"];
        let ran = run_on(&format!("spared-left-{n}"), &pcap, rules, &options);
        assert_eq!(alerts(&ran.dir), if found { vec![1, 2] } else { vec![] }, "{name}");
        assert_eq!(of_type(&ran.dir, "flow").len(), 1, "{name}");
    }
}
