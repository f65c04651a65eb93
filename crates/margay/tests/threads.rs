//! Makes a thread of each kind panic (`MARGAY_FAULT`, which debug builds read). The engine reports, counts and handles
//! it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]
#![cfg(debug_assertions)]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod made;
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use wire::{Engine, Sender, command, demo_rules, events, folder, last_stats, pair, root, said, traffic, wait};

const FAULT: &str = "MARGAY_FAULT";

/// Reads the demo capture, repeated, with a fault. Returns the folder, the result and the log.
fn read(name: &str, fault: &str, more: &[&str]) -> (PathBuf, Output, String) {
    let demo = std::fs::read(root().join("demo/demo.pcap")).expect("the demo's capture");
    let mut capture = demo.clone();
    (0..8).for_each(|_| capture.extend_from_slice(&demo[24..]));
    read_of(name, |file| std::fs::write(file, &capture).expect("a capture"), fault, more)
}

/// Reads the capture that `make` writes.
fn read_of(name: &str, make: impl FnOnce(&Path), fault: &str, more: &[&str]) -> (PathBuf, Output, String) {
    let dir = folder(&format!("threads-{name}"));
    demo_rules(&dir);
    make(&dir.join("a.pcap"));
    let mut c = command(&dir, &["--set", "unix-command.enabled=no"]);
    c.args(more).arg("-r").arg(dir.join("a.pcap")).env(FAULT, fault).stdin(Stdio::null());
    let out = c.output().expect("the engine runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let _ = std::fs::remove_file(dir.join("a.pcap"));
    (dir, out, text)
}

/// Checks that the log names the thread and the place.
fn told(text: &str, thread: &str, place: &str) {
    let line = text
        .lines()
        .find(|l| l.contains("threads: the thread \""))
        .unwrap_or_else(|| panic!("nothing is told: {text}"));
    assert!(line.contains(thread) && line.contains(&format!("asked for at \"{place}\"")), "{line}");
    assert!(line.contains("report it"), "{line}");
}

fn alerts(dir: &Path) -> usize {
    events(dir).iter().filter(|e| e["event_type"] == "alert").count()
}

#[test]
fn a_worker_that_reads_a_file() {
    let (dir, out, text) = read("single", "worker:100", &["--runmode", "single"]);
    told(&text, "main", "worker");
    assert!(text.contains("was not inspected") && out.status.code() == Some(1), "{text}");
    // Earlier events are complete and present.
    assert!(alerts(&dir) > 0);
}

#[test]
fn one_of_several_workers_that_read_a_file() {
    // So many flows that each worker has some with alerts, whatever the seed of their hash.
    let make = |file: &Path| wire::write(file, &traffic(40));
    let more = ["--runmode", "autofp", "--set", "margay.workers=3"];
    let (dir, out, text) = read_of("autofp", make, "worker:100", &more);
    told(&text, "W#0", "worker");
    assert!(text.contains("what it had is lost") && out.status.code() == Some(1), "{text}");
    assert!(alerts(&dir) > 0, "the others came to their end");
    assert_eq!(last_stats(&dir)["engine"]["failed_threads"], 1);
}

#[test]
fn who_reads_ahead() {
    // Large enough that a thread reads it ahead.
    let mut capture = made::Capture::new();
    let data = [&[0x12, 0x34, 0, 99, 0xf0, 0, 0, 0][..], &[7; 61_432]].concat();
    (0..300).for_each(|n| capture.ip(n, made::Side::Client, 17, &data));
    let (dir, _, text) = read_of("ahead", |file| capture.write(file), "read-ahead:3", &["--runmode", "single"]);
    told(&text, "read-ahead", "read-ahead");
    assert!(text.contains("the thread that reads ahead stopped"), "{text}");
    let stats = last_stats(&dir);
    let read = stats["decoder"]["pkts"].as_u64().unwrap_or(0);
    assert!(read > 10 && read < 300 && stats["engine"]["failed_threads"] == 1, "{stats}");
}

#[test]
fn who_writes_events() {
    const ASIDE: [&str; 4] = ["--runmode", "single", "--set", "margay.writer-thread=yes"];
    let (whole, ..) = read("writer-whole", "", &ASIDE);
    let (dir, out, text) = read("writer", "writer:2", &ASIDE);
    told(&text, "Writer", "writer");
    assert!(text.contains("events could not be written and are lost") && out.status.code() == Some(1), "{text}");
    let stats = last_stats(&dir);
    let lost = stats["eve"]["lost"].as_u64().unwrap_or(0);
    assert!(lost > 0 && stats["engine"]["failed_threads"] == 1, "{stats}");
    // All outputs count their lines: exactly the lost lines are missing.
    let lines = |dir: &Path| -> u64 {
        let files = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path());
        let logs = files.filter(|f| ["eve.json", "fast.log"].iter().any(|n| f.ends_with(n)));
        logs.map(|f| std::fs::read_to_string(f).expect("lines").lines().count() as u64).sum()
    };
    let missing = lines(&whole) - lines(&dir);
    assert!(missing > 0 && missing <= lost, "{missing} lines are missing, {lost} counted");
}

#[test]
fn who_writes_stored_files() {
    let store = ["--set", "outputs.5.file-store.version=2", "--set", "outputs.5.file-store.enabled=yes"];
    let store = [&store[..], &["--set", "outputs.5.file-store.force-filestore=yes", "--runmode", "single"]].concat();
    let (dir, out, text) = read("store", "file-store", &store);
    told(&text, "FileStore", "file-store");
    assert!(text.contains("no more files are stored") && out.status.success(), "{text}");
    let stats = last_stats(&dir);
    assert!(stats["file_store"]["files_lost"].as_u64() > Some(0) && stats["engine"]["failed_threads"] == 1, "{stats}");
}

/// An engine that waits for capture files, with a fault. It reads one file.
fn serving(name: &str, fault: &str, more: &[&str]) -> (Engine, PathBuf) {
    let dir = folder(&format!("threads-{name}"));
    demo_rules(&dir);
    let mut c = command(&dir, more);
    c.arg(format!("--unix-socket={}", dir.join("s.sock").display())).env(FAULT, fault);
    (Engine::spawn(c, dir.join("s.sock")).ready(), dir)
}

/// The engine reports the fault once and continues: it answers commands, and reads a capture.
fn works_on(mut e: Engine, dir: &Path, thread: &str, place: &str) -> Vec<String> {
    assert!(e.all.iter().any(|l| l.contains("threads: the thread")) || e.until("threads: the thread"), "{:?}", e.all);
    wait("it answers", || e.ask(&["version"]).is_string());
    let capture = root().join("demo/demo.pcap").display().to_string();
    let out = e.ctl(&["pcap-file", &capture, &dir.display().to_string()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    wait("the file is read", || std::fs::read_to_string(dir.join("eve.json")).is_ok_and(|t| t.contains("\"stats\"")));
    assert!(alerts(dir) > 0);
    let words = e.stop();
    told(&words.join("\n"), thread, place);
    words
}

#[test]
fn who_serves_a_client() {
    let (e, dir) = serving("client", "client", &[]);
    // The client's connection ends; the next one is served.
    assert!(e.ask(&["version"]).is_null());
    works_on(e, &dir, "margay-client", "client");
}

#[test]
fn clients_that_fail_do_not_use_up_their_number() {
    let (e, dir) = serving("clients", "client:*", &[]);
    for _ in 0..40 {
        assert!(e.ask(&["version"]).is_null());
    }
    let words = e.stop();
    assert!(!said(&words, "too many clients"), "{words:?}");
    assert_eq!(words.iter().filter(|l| l.contains("threads: the thread \"margay-client\" failed")).count(), 40);
    assert!(dir.exists());
}

#[test]
fn who_listens_for_clients() {
    let (e, dir) = serving("socket", "socket", &[]);
    let _ = e.ctl(&["version"]);
    let words = works_on(e, &dir, "margay-socket", "socket");
    assert!(said(&words, "the unix socket: begins anew"), "{words:?}");
}

#[test]
fn who_serves_signals() {
    let (mut e, dir) = serving("signals", "signals", &[]);
    e.signal("USR2");
    assert!(e.until("who serves signals: begins anew"), "{:?}", e.all);
    e.signal("USR2");
    assert!(e.until("rule reload complete"), "{:?}", e.all);
    works_on(e, &dir, "margay-signals", "signals");
}

#[test]
fn who_loads_rules() {
    let (mut e, dir) = serving("load", "load", &[]);
    e.signal("USR2");
    assert!(e.until("rule reload failed, the rules in use stay: the thread that loads rules failed"), "{:?}", e.all);
    e.signal("USR2");
    assert!(e.until("rule reload complete"), "{:?}", e.all);
    works_on(e, &dir, "margay-load", "load");
}

#[test]
fn the_watchdog() {
    let (mut e, dir) = serving("watchdog", "watchdog", &["--set", "margay.watchdog.seconds=5"]);
    assert!(e.until("the watchdog: begins anew"), "{:?}", e.all);
    works_on(e, &dir, "margay-watchdog", "watchdog");
}

in_namespace! {
    "mgt";
    a_worker_of_an_interface: inner_worker,
    statistics_and_old_rules: inner_beside,
    who_reads_what_is_bypassed: inner_bypass,
}

/// An engine on an interface, with a fault.
fn capturing(name: &str, fault: &str, more: &[&str]) -> (Engine, PathBuf) {
    let dir = folder(&format!("threads-{name}"));
    demo_rules(&dir);
    let mut c = command(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    c.args(more).env(FAULT, fault);
    (Engine::spawn(c, dir.join("s.sock")).ready(), dir)
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_worker() {
    pair("va", "vb");
    let (e, dir) = capturing("live", "worker:50", &[]);
    Sender::on("va").send(&traffic(20));
    // No worker inspects its packets any more, so the engine ends and reports it.
    let (status, words) = e.ended();
    assert_eq!(status.code(), Some(1), "{words:?}");
    told(&words.join("\n"), "W#0", "worker");
    assert!(said(&words, "a worker's thread failed; the others were stopped"), "{words:?}");
    assert_eq!(last_stats(&dir)["engine"]["failed_threads"], 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_beside() {
    pair("va", "vb");
    let sent = traffic(5);
    for (name, thread) in [("stats", "main"), ("drop", "margay-drop")] {
        let (mut e, dir) = capturing(name, name, &["--set", "stats.interval=1"]);
        Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        // Old rules are dropped after a reload.
        e.signal("USR2");
        assert!(e.until("rule reload complete"), "{:?}", e.all);
        Sender::on("va").send(&sent);
        e.decoded(2 * sent.len() as u64);
        let counted = e.counters()["engine"]["failed_threads"].clone();
        if name == "stats" {
            assert!(e.until("statistics failed"), "{:?}", e.all);
        } else {
            wait("the fault", || e.counters()["engine"]["failed_threads"] == 1);
        }
        let words = e.stop();
        told(&words.join("\n"), thread, name);
        assert!(said(&words, "received = inspected + lost"), "{words:?}, {counted}");
        assert_eq!(last_stats(&dir)["decoder"]["pkts"], 2 * sent.len());
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_bypass() {
    pair("va", "vb");
    // One fault: bypass continues.
    let (mut e, _) = capturing("bypass", "bypass", &["--set", "af-packet.1.bypass=yes"]);
    assert!(e.until("who reads what is bypassed: begins anew"), "{:?}", e.all);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(e.counters()["engine"]["failed_threads"], 1);
    let words = e.stop();
    told(&words.join("\n"), "bypass", "bypass");
    // Repeated faults: flows are bypassed in user space.
    let (mut e, dir) = capturing("bypass-all", "bypass:*", &["--set", "af-packet.1.bypass=yes"]);
    assert!(e.until("flows are bypassed in user space alone from here on"), "{:?}", e.all);
    assert!(said(&e.all, "who reads what is bypassed: failed 5 times and is given up"), "{:?}", e.all);
    Sender::on("va").send(&traffic(5));
    e.decoded(traffic(5).len() as u64);
    e.explained();
    let stats = last_stats(&dir);
    assert_eq!(
        (&stats["engine"]["failed_threads"], &stats["capture"]["bypass"]["flows"]),
        (&5.into(), &0.into()),
        "{stats}"
    );
}
