//! A running engine watched: `margay top`, the page's data and the metrics agree with what the engine wrote and counts.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use process::{Engine, engine, folder, root, wait};
use serde_json::Value;

/// What is at a path: status and body.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the page is served");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it is asked");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    let (head, body) = all.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0), body.to_owned())
}

fn top(dir: &Path, more: &[&str]) -> std::process::Output {
    let mut c = Command::new(process::MARGAY);
    c.args(["top", "--socket"]).arg(dir.join("s.sock")).args(more).stdin(Stdio::null());
    c.output().expect("top runs")
}

/// An engine that waits for captures in a folder, and has read one.
#[test]
fn views_agree_with_the_engine() {
    let dir = folder("watched");
    let pcaps = dir.join("in");
    std::fs::create_dir_all(&pcaps).expect("a folder");
    std::fs::copy(root().join("demo/demo.rules"), dir.join("a.rules")).expect("rules");
    let configuration = dir.join("m.yaml");
    let text = "%YAML 1.1\n---\noutputs:\n- eve-log: {enabled: yes, types: [alert]}\npcap-file: {delay: 0, poll-interval: 1}\n\
                flow-timeouts: {default: {new: 1}}\nprofiling: {rules: {enabled: yes, active: yes}}\n";
    std::fs::write(&configuration, text).expect("a configuration");
    let mut c = engine(process::MARGAY, &configuration, &dir);
    c.args(["--web", "127.0.0.1:0", "--pcap-file-continuous", "-r"]).arg(&pcaps);
    let mut e = Engine::spawn(c, dir.join("s.sock"));
    assert!(e.until("/metrics its counters"));
    let said = e.all.last().cloned().unwrap_or_default();
    let address = said.split("http://").nth(1).and_then(|s| s.split('/').next()).expect("an address").to_owned();
    // Somebody looks before the first packet: what comes then is seen.
    let json = |path: &str| -> Value { serde_json::from_str(&get(&address, path).1).unwrap_or_default() };
    wait("a worker", || json("/api/snapshot")["workers"].as_array().is_some_and(|w| w.len() == 1));
    std::fs::copy(root().join("demo/demo.pcap"), dir.join("part")).expect("a capture");
    std::fs::rename(dir.join("part"), pcaps.join("a.pcap")).expect("a capture");
    assert!(e.until("end of file reached"));
    wait("alerts are seen", || json("/api/snapshot")["watched"]["alerts"].as_u64() > Some(0));
    let dumped = process::ask(&dir.join("s.sock"), &["dump-counters"]);
    let alerts = dumped["detect"]["alert"].as_u64().expect("a counter");
    assert!(alerts > 0);
    wait("all of them", || json("/api/alerts").as_array().is_some_and(|a| a.len() as u64 == alerts));
    let seen = json("/api/alerts");
    let first = &seen[0]["event"];
    assert!(
        first["packet"].is_string() && first["alert"]["rule"].as_str().is_some_and(|r| r.starts_with("alert")),
        "{first}"
    );
    assert!(first["flow"].is_object());
    // The same as was written, one by one.
    let written = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let sid = |v: &Value| v["alert"]["signature_id"].as_u64();
    let of_log: Vec<_> = written.lines().filter_map(|l| sid(&serde_json::from_str(l).ok()?)).collect();
    let of_page: Vec<_> = seen.as_array().into_iter().flatten().filter_map(|a| sid(&a["event"])).collect();
    assert_eq!(of_page, of_log);
    let metrics = get(&address, "/metrics").1;
    for (name, counter) in [
        ("margay_decoder_pkts_total", &dumped["decoder"]["pkts"]),
        ("margay_detect_alert_total", &dumped["detect"]["alert"]),
    ] {
        let line = format!("{name}{{worker=\"W#01\",interface=\"\"}} {counter}");
        assert!(metrics.lines().any(|l| l == line), "{line}");
    }
    let out = top(&dir, &["--json"]);
    let picture: Value = serde_json::from_slice(&out.stdout).expect("a picture");
    assert_eq!(picture["totals"]["packets"], dumped["decoder"]["pkts"]);
    assert_eq!(picture["totals"]["alerts"].as_u64(), Some(alerts));
    // What rules cost is asked for less often.
    wait("rules are profiled", || json("/api/snapshot")["rules"].as_array().is_some_and(|r| !r.is_empty()));
    let out = top(&dir, &[]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("W#01") && text.contains("flow.memcap"),
        "no terminal, so text: {text}"
    );
    assert_eq!(get(&address, "/").0, 200);
    e.signal("TERM");
    assert!(e.ended().0.success());
    let out = top(&dir, &[]);
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("no engine answers"));
}

/// An address that can be reached from elsewhere wants a token, before anything is opened.
#[test]
fn an_open_page_is_refused() {
    let dir = folder("watched-open");
    std::fs::write(dir.join("a.rules"), "alert ip any any -> any any (sid:1;)\n").expect("rules");
    std::fs::write(dir.join("m.yaml"), "%YAML 1.1\n---\n").expect("a configuration");
    for (address, says) in [("0.0.0.0:0", "margay.web.token"), ("nonsense", "no address")] {
        for test in [&["-T"][..], &["-r", "/dev/null"]] {
            let mut c = engine(process::MARGAY, &dir.join("m.yaml"), &dir);
            let out = c.args(["--web", address]).args(test).output().expect("it runs");
            let said = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
            assert!(out.status.code() == Some(1) && said.contains(says), "{address} {test:?}: {said}");
        }
    }
}

/// Beside the laboratory `margay top` is there before the engine is.
#[test]
fn top_waits_for_an_engine() {
    let dir = folder("watch-wait");
    let pcaps = dir.join("in");
    std::fs::create_dir_all(&pcaps).expect("a folder");
    std::fs::copy(root().join("demo/demo.rules"), dir.join("a.rules")).expect("rules");
    let configuration = dir.join("m.yaml");
    std::fs::write(&configuration, "%YAML 1.1\n---\npcap-file: {delay: 0}\n").expect("a configuration");
    let mut c = Command::new(process::MARGAY);
    c.args(["top", "--wait", "--json", "--socket"]).arg(dir.join("s.sock"));
    let top = c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("top runs");
    std::thread::sleep(Duration::from_millis(500));
    let mut c = engine(process::MARGAY, &configuration, &dir);
    c.args(["--pcap-file-continuous", "-r"]).arg(&pcaps);
    let _engine = Engine::spawn(c, dir.join("s.sock"));
    let out = top.wait_with_output().expect("top ends");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("waiting: no engine answers"), "{said}");
    assert!(String::from_utf8_lossy(&out.stdout).starts_with('{'), "{}", String::from_utf8_lossy(&out.stdout));
}
