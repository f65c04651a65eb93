//! Rules on bodies and files that take several inspections, and on several files.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod conversation;
mod process;

use std::fmt::Write as _;

use conversation::{Capture, Client, Say, Server, run};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const GET: &[u8] = b"GET /f HTTP/1.1\r\nHost: a\r\n\r\n";

/// 80,000 bytes with FIRST at 10 and LATER at 60,000.
fn long() -> Vec<u8> {
    let mut body = vec![b'.'; 80_000];
    body[10..15].copy_from_slice(b"FIRST");
    body[60_000..60_005].copy_from_slice(b"LATER");
    body
}

/// An upload and a download of a body.
fn both_ways(body: &[u8]) -> Capture {
    let with =
        |head: &str| [head.as_bytes(), format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    let (post, answer) = (with("POST /f HTTP/1.1\r\nHost: a\r\n"), with("HTTP/1.1 200 OK\r\n"));
    let mut c = Capture::new();
    let turns = |request: &[u8], answer: &[u8]| {
        let cut = |from, data: &[u8]| data.chunks(1000).map(|d| (from, d.to_vec())).collect::<Vec<_>>();
        [cut(Client, request), cut(Server, answer)].concat()
    };
    for (port, request, answer) in [(20_001, &post[..], OK), (20_002, GET, &answer)] {
        let turns = turns(request, answer);
        let turns: Vec<_> = turns.iter().map(|(from, data)| Say(*from, data)).collect();
        c.connection(port, 80, &turns);
    }
    c
}

/// The rules, each on `file.data`, that alert in each direction: sids from 1 in their order.
fn held(name: &str, capture: &Capture, checks: &[&str], more: &[&str]) -> [Vec<u64>; 2] {
    let mut rules = String::new();
    for (n, check) in (1..).zip(checks) {
        for (sid, flow) in [(n, "to_server"), (n + 100, "to_client")] {
            let _ = writeln!(rules, "alert http any any -> any any (flow:{flow}; file.data; {check} sid:{sid};)");
        }
    }
    let mut sids = run(name, capture, &rules, more).sids();
    sids.sort_unstable();
    sids.dedup();
    let (up, down): (Vec<u64>, Vec<u64>) = sids.into_iter().partition(|sid| *sid < 100);
    [up, down.into_iter().map(|sid| sid - 100).collect()]
}

/// `depth`, `startswith` and `bsize` count from the beginning of a body, however much of it rules saw before.
#[test]
fn places_count_from_the_beginning_of_a_body() {
    let checks = [
        // None of these holds.
        "content:!\"FIRST\"; depth:100;",
        "content:\"LATER\"; depth:50000;",
        "content:!\"FIRST\"; startswith; content:\"LATER\";",
        "bsize:<50000; content:\"LATER\";",
        "content:\"LATER\"; content:!\"other\"; depth:200;",
        // All of these do.
        "bsize:80000;",
        "bsize:>50000;",
        "bsize:<70000; content:\"LATER\";",
        "content:\"FIRST\"; depth:100;",
        "content:\"LATER\"; content:!\"FIRST\";",
    ];
    let capture = both_ways(&long());
    for (name, more) in [("bodies-passive", &[][..]), ("bodies-inline", &["--simulate-ips"])] {
        assert_eq!(held(name, &capture, &checks, more), [[6, 7, 8, 9, 10]; 2].map(Vec::from), "{name}");
    }
}

/// Inline, a body of up to the least size of an inspection is looked at as a whole.
#[test]
fn inline_the_beginning_of_a_body_stays_together() {
    let mut body = long();
    body.truncate(20_000);
    body[15_000..15_005].copy_from_slice(b"AFTER");
    let checks = [
        "content:\"FIRST\"; content:\"AFTER\"; distance:0;",
        "content:\"AFTER\"; offset:14990;",
        "content:\"AFTER\"; pcre:\"/FIRST.*AFTER/s\";",
        "content:\"AFTER\"; content:!\"FIRST\";",
        "bsize:20000;",
    ];
    assert_eq!(
        held("bodies-together", &both_ways(&body), &checks, &["--simulate-ips"]),
        [[1, 2, 3, 5]; 2].map(Vec::from)
    );
}

/// Names and data of several files: each further buffer may be another file's.
#[test]
fn a_rule_on_two_files() {
    let file = |name: &str, data: &str| {
        format!("--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{data}\r\n")
    };
    let body = [file("a.txt", "hello"), file("b.pdf", "world")].concat() + "--B--\r\n";
    let head = "POST /f HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\n";
    let post = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let mut c = Capture::new();
    c.connection(20_001, 80, &[Say(Client, post.as_bytes()), Say(Server, OK)]);
    let (one, two) = post
        .as_bytes()
        .split_at(post.find("--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"b").unwrap_or(0));
    c.connection(20_002, 80, &[Say(Client, one), Say(Client, two), Say(Server, OK)]);
    let rules = "\
        alert http any any -> any any (file.name; content:\"a.txt\"; file.name; content:\"b.pdf\"; sid:1;)\n\
        alert http any any -> any any (file.data; content:\"hello\"; file.data; content:\"world\"; sid:2;)\n\
        alert http any any -> any any (file.data; content:\"hel\"; file.data; content:\"lo\"; within:2; sid:3;)\n\
        alert http any any -> any any (file.name; content:\"a.txt\"; file.name; content:\"c.exe\"; sid:4;)\n";
    let ran = run("bodies-two-files", &c, rules, &[]);
    let mut sids = ran.sids();
    sids.sort_unstable();
    assert_eq!(sids, [1, 1, 2, 2]);
}

/// A script is called for the data of a file, even if that begins after the fields of the message.
#[test]
fn a_script_sees_an_upload_in_pieces() {
    let script = process::folder("bodies-script-file").join("later.lua");
    let text = "function init(args) return {buffer = true} end\nfunction match(args)\n\
        if string.find(args.buffer or \"\", \"LATER\") then return 1 end\nreturn 0\nend\n";
    std::fs::write(&script, text).expect("it is written");
    let rule = format!("lua:{};", script.display());
    let more = ["--set", "security.lua.allow-rules=yes"];
    assert_eq!(held("bodies-script", &both_ways(&long()), &[&rule], &more), [vec![1], vec![1]]);
}
