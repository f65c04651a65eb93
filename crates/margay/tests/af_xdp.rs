//! Live capture with AF_XDP: the engine on one end of a pair of virtual interfaces, traffic from the other, each test in a network
//! namespace of its own.

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::process::Command;

use namespace::ip;
use wire::{
    Engine, Sender, alerts, command, demo_rules, events, folder, last_stats, of_the_file, pair, said, traffic, wait,
};

in_namespace! {
    "mgy";
    alerts_are_those_of_the_file: inner_same,
    killed_and_started_again: inner_kill,
    an_interface_may_go_and_come_back: inner_link,
    what_cannot_be_captured_is_said: inner_errors,
}

/// Whether a program of XDP is at the interface.
fn occupied() -> bool {
    let o = Command::new("ip").args(["link", "show", "vb"]).output().expect("ip runs");
    String::from_utf8_lossy(&o.stdout).contains("xdp")
}

/// Two interfaces with so many queues.
fn queues(n: u32) {
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("settings of the namespace");
    let each = format!("numtxqueues {n} numrxqueues {n}");
    assert!(ip(&format!("link add va {each} type veth peer name vb {each}")));
    for i in ["va", "vb"] {
        assert!(ip(&format!("link set {i} up")));
    }
}

/// A settings file for AF_XDP beside that of the test.
fn settings(dir: &std::path::Path, text: &str) -> String {
    let file = dir.join("xdp.yaml");
    std::fs::write(&file, format!("%YAML 1.1\n---\naf-xdp:\n  - interface: vb\n{text}\n")).expect("settings");
    file.display().to_string()
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_same() {
    queues(4);
    let mut sent = traffic(40);
    // A lookup in a network of its own.
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
        assert!(occupied());
        Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        assert_eq!(e.ask(&["capture-mode"]), "AF_XDP_DEV");
        assert_eq!(e.ask(&["iface-list"])["ifaces"], serde_json::json!(["vb"]));
        let words = e.stop();
        assert!(said(&words, "received = inspected + lost"), "{words:?}");
        assert!(!occupied(), "the program is gone");
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
        assert!(occupied());
        e.signal("KILL");
        e.child.wait().expect("it ends");
        wait("the program goes with its process", || !occupied());
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    pair("va", "vb");
    let dir = folder("xdp-link");
    demo_rules(&dir);
    let sent = traffic(1);
    let mut e = Engine::start(&dir, &["--af-xdp=vb"]);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    assert!(ip("link set vb down"));
    assert!(e.until("went down"));
    assert!(ip("link set vb up"));
    assert!(e.until("is up again"));
    Sender::on("va").send(&sent);
    e.decoded(2 * sent.len() as u64);
    assert!(ip("link del vb"));
    assert!(e.until("is gone") || said(&e.all, "is gone"));
    pair("va", "vb");
    assert!(e.until("is up again"));
    Sender::on("va").send(&sent);
    e.decoded(3 * sent.len() as u64);
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    let lookups = events(&dir).iter().filter(|e| e["alert"]["signature_id"] == 1_000_004).count();
    assert_eq!(lookups, 3);
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
        (&["--af-xdp=vb", "--simulate-ips"], "capture files"),
    ] {
        let o = command(&dir, more).output().expect("the engine runs");
        let said = String::from_utf8_lossy(&o.stdout) + String::from_utf8_lossy(&o.stderr);
        assert!(o.status.code() == Some(1) && said.contains(words), "{more:?}: {said}");
    }
    let e = Engine::start(&dir, &["--af-xdp=vb"]);
    let o = command(&dir, &["--af-xdp=vb"]).output().expect("the engine runs");
    let said = String::from_utf8_lossy(&o.stdout) + String::from_utf8_lossy(&o.stderr);
    assert!(o.status.code() == Some(1) && said.contains("another program for XDP"), "{said}");
    e.stop();
}
