//! Live capture with AF_XDP. The engine has one end of a pair of virtual interfaces, traffic comes from the other. Each
//! test has a network namespace of its own.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::time::Duration;

use namespace::has_program;
use wire::{
    Engine, Sender, alerts, demo_rules, events, folder, goes_and_comes_back, is_refused, last_stats, of_the_file, pair,
    traffic, wait,
};

in_namespace! {
    "mgy";
    alerts_are_those_of_the_file: inner_same,
    killed_and_started_again: inner_kill,
    an_interface_may_go_and_come_back: inner_link,
    what_cannot_be_captured_is_said: inner_errors,
}

/// Writes AF_XDP settings to a file beside the test's own.
fn settings(dir: &std::path::Path, text: &str) -> String {
    let file = dir.join("xdp.yaml");
    std::fs::write(&file, format!("%YAML 1.1\n---\naf-xdp:\n  - interface: vb\n{text}\n")).expect("settings");
    file.display().to_string()
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_same() {
    namespace::pair_of("va", "vb", "numtxqueues 4 numrxqueues 4", "");
    let mut sent = traffic(40);
    // A DNS query in a network of its own.
    let query = traffic(1).remove(0);
    sent.push([&query[..12], &[0x81, 0, 0, 100][..], &query[12..]].concat());
    let want = of_the_file("xdp-file", &sent);
    for (name, text, mode) in [
        ("xdp-1", "    threads: 1\n    force-xdp-mode: skb\n    enable-busy-poll: no", "single"),
        ("xdp-4", "    threads: 4", "workers"),
        ("xdp-2", "    threads: 2\n    force-xdp-mode: drv\n    force-bind-mode: copy", "workers"),
    ] {
        let dir = folder(name);
        demo_rules(&dir);
        let file = settings(&dir, text);
        let e = Engine::start(&dir, &["--af-xdp=vb", "--runmode", mode, "--include", &file]);
        assert!(has_program("vb"));
        Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        assert_eq!(e.ask(&["capture-mode"]), "AF_XDP_DEV");
        assert_eq!(e.ask(&["iface-list"])["ifaces"], serde_json::json!(["vb"]));
        e.explained();
        assert!(!has_program("vb"), "the program is gone");
        let stats = last_stats(&dir);
        assert_eq!(stats["decoder"]["pkts"], sent.len(), "{name}");
        assert_eq!(stats["capture"]["kernel_packets"], sent.len());
        assert_eq!(stats["capture"]["kernel_drops"], 0);
        assert_eq!(stats["capture"]["afxdp"]["rx_dropped"], 0);
        assert_eq!(alerts(&dir), want, "{name}");
        let events = events(&dir);
        let alerts: Vec<_> = events.iter().filter(|e| e["event_type"] == "alert").collect();
        assert!(alerts.iter().all(|e| e["in_iface"] == "vb"));
        assert!(alerts.iter().any(|e| e["vlan"] == serde_json::json!([100])));
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_kill() {
    pair("va", "vb");
    let dir = folder("xdp-kill");
    demo_rules(&dir);
    let sent = traffic(5);
    let mut before = 0;
    for _ in 0..3 {
        let mut e = Engine::start(&dir, &["--af-xdp=vb"]);
        Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        wait("alerts", || events(&dir).iter().filter(|e| e["event_type"] == "alert").count() > before);
        before = events(&dir).iter().filter(|e| e["event_type"] == "alert").count();
        assert!(has_program("vb"));
        e.signal("KILL");
        e.child.wait().expect("it ends");
        wait("the program goes with its process", || !has_program("vb"));
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    goes_and_comes_back("xdp-link", &["--af-xdp=vb"], [Duration::ZERO; 2]);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    pair("va", "vb");
    let dir = folder("xdp-errors");
    demo_rules(&dir);
    let zero = settings(&dir, "    force-bind-mode: zero");
    for (more, words) in [
        (&["--af-xdp=nosuch"][..], "no such interface"),
        (&["--af-xdp=lo"], "the host itself"),
        (&["--af-xdp=vb", "--include", &zero], "force-bind-mode: zero"),
        (&["--af-xdp=vb", "udp", "and", "and"], "syntax error"),
    ] {
        is_refused(&dir, more, words);
    }
    let e = Engine::start(&dir, &["--af-xdp=vb"]);
    is_refused(&dir, &["--af-xdp=vb"], "another program for XDP");
    e.stop();
}
