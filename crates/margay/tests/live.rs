//! Live capture. The engine has one end of a pair of virtual interfaces, traffic comes from the other. Each test has a
//! network namespace of its own.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod wire;

use std::time::{Duration, Instant};

use namespace::ip;
use wire::{
    Engine, PATIENCE, Sender, alerts, demo_rules, events, folder, goes_and_comes_back, is_refused, last_stats,
    of_the_file, pair, said, traffic,
};

in_namespace! {
    "mgl";
    alerts_are_those_of_the_file: inner_same,
    reloads_under_traffic_lose_nothing: inner_reload,
    traffic_during_the_start_is_not_lost: inner_start,
    packets_are_captured_before_rules_are_loaded: inner_delayed,
    offloads_are_off_while_the_engine_runs: inner_offloads,
    answers_go_out_of_another_interface: inner_reject_dev,
    libpcap_finds_what_the_file_has: inner_libpcap,
    libpcap_waits_for_its_interface: inner_libpcap_link,
    an_interface_may_go_and_come_back: inner_link,
    filters_tags_and_several_interfaces: inner_filter,
    killed_and_started_again: inner_kill,
    what_the_ring_lost_is_told: inner_overrun,
    threads_are_where_they_belong: inner_threads,
    an_idle_worker_helps_with_a_large_flow: inner_elephant,
    what_cannot_be_captured_is_said: inner_errors,
    logs_are_moved_away_and_packets_cut: inner_rotate,
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_same() {
    pair("va", "vb");
    let sent = traffic(60);
    let want = of_the_file("same-file", &sent);
    for (name, threads, eve) in [("same-1", "1", "no"), ("same-4", "4", "no"), ("same-3", "3", "yes")] {
        let dir = folder(name);
        demo_rules(&dir);
        let mode = if threads == "1" { "single" } else { "workers" };
        let e = Engine::start(
            &dir,
            &[
                "--af-packet=vb",
                "--runmode",
                mode,
                "--set",
                &format!("af-packet.1.threads={threads}"),
                "--set",
                &format!("outputs.1.eve-log.threaded={eve}"),
            ],
        );
        Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        assert_eq!(e.ask(&["iface-list"])["ifaces"], serde_json::json!(["vb"]));
        let stat = e.ask(&["iface-stat", "vb"]);
        assert_eq!((stat["pkts"].as_u64(), stat["drop"].as_u64()), (Some(sent.len() as u64), Some(0)), "{stat}");
        assert_eq!(e.ask(&["running-mode"]), mode);
        assert_eq!(e.ask(&["capture-mode"]), "AF_PACKET_DEV");
        e.explained();
        let stats = last_stats(&dir);
        assert_eq!(stats["decoder"]["pkts"], sent.len(), "{name}");
        assert_eq!(stats["capture"]["kernel_packets"], sent.len());
        assert_eq!(stats["capture"]["kernel_drops"], 0);
        assert_eq!(alerts(&dir), want, "{name}");
        let events = events(&dir);
        assert!(
            events
                .iter()
                .filter(|e| e["event_type"] == "alert")
                .all(|e| e["in_iface"] == "vb" && e["pcap_cnt"].is_null())
        );
        if eve == "yes" {
            let used =
                (1..=3).filter(|n| std::fs::metadata(dir.join(format!("eve.{n}.json"))).is_ok_and(|m| m.len() > 0));
            assert!(used.count() >= 2, "files of several workers");
        }
        if threads == "4" {
            let text = std::fs::read_to_string(dir.join("stats.log")).expect("statistics");
            assert!(text.contains("capture.nic.received"), "{text}");
        }
    }
}

/// A datagram of one flow; every 50th has what the rule looks for.
fn datagram(n: u16) -> Vec<u8> {
    let mut payload = vec![b'a' + (n % 23) as u8; 900];
    if n.is_multiple_of(50) {
        payload[500..517].copy_from_slice(b"needle in a stack");
    }
    let (udp, ip) = (8 + payload.len() as u16, 28 + payload.len() as u16);
    let mut frame = [&[2; 12][..], &[8, 0]].concat();
    frame.extend([0x45, 0].iter().chain(&ip.to_be_bytes()).chain(&n.to_be_bytes()).chain(&[0, 0, 64, 17, 0, 0]));
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x20, 0, 0x27, 0x0f]);
    frame.extend(udp.to_be_bytes().iter().chain(&[0, 0]));
    frame.extend(payload);
    frame
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_elephant() {
    const PACKETS: u16 = 30_000;
    pair("va", "vb");
    let sent: Vec<Vec<u8>> = (0..PACKETS).map(datagram).collect();
    for helps in ["yes", "no"] {
        let dir = folder(&format!("elephant-{helps}"));
        let rule = "alert udp any any -> any 9999 (msg:\"a needle\"; content:\"needle in a stack\"; sid:1;)\n";
        std::fs::write(dir.join("a.rules"), rule).expect("rules");
        let settings =
            ["af-packet.1.threads=2", "af-packet.1.ring-size=40000", &format!("margay.search-ahead={helps}")];
        let e = Engine::start(&dir, &[&["-i", "vb"][..], &settings.map(|s| ["--set", s]).concat()].concat());
        // The whole flow waits in the ring of one worker when the engine continues.
        e.signal("STOP");
        Sender::on("va").send(&sent);
        e.signal("CONT");
        e.decoded(u64::from(PACKETS));
        e.explained();
        let (stats, found) = (last_stats(&dir), alerts(&dir));
        assert_eq!(stats["capture"]["kernel_drops"], 0);
        assert_eq!(found.into_values().collect::<Vec<_>>(), [usize::from(PACKETS) / 50]);
        let ahead = &stats["search_ahead"];
        let count = |name: &str| ahead[name].as_u64().unwrap_or(0);
        match helps {
            "yes" => assert!(count("offered") > u64::from(PACKETS) / 2, "{ahead}"),
            _ => assert!(ahead.is_null(), "{ahead}"),
        }
        assert!(count("used") <= count("searched"), "{ahead}");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_reload() {
    pair("va", "vb");
    let sent = traffic(60);
    let want = of_the_file("reload-file", &sent);
    let dir = folder("reload-live");
    demo_rules(&dir);
    let mut e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    let all = sent.clone();
    let sending = std::thread::spawn(move || {
        for part in all.chunks(64) {
            Sender::on("va").send(part);
        }
    });
    for _ in 0..5 {
        e.signal("USR2");
        assert!(e.until("rule reload complete"), "{:?}", e.all);
    }
    sending.join().expect("it is sent");
    e.decoded(sent.len() as u64);
    e.explained();
    assert_eq!(alerts(&dir), want);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_start() {
    pair("va", "vb");
    let dir = folder("start-live");
    std::fs::write(dir.join("a.rules"), "alert udp any any -> any 53 (msg:\"d\"; content:\"example\"; sid:1;)\n")
        .expect("rules");
    let query = traffic(1).into_iter().take(1).collect::<Vec<_>>();
    let mut e = Engine::begin(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    let mut sender = Sender::on("va");
    let end = Instant::now() + PATIENCE;
    let mut during = 0;
    while !e.all.iter().any(|l| l.contains("Engine started")) && Instant::now() < end {
        sender.send(&query);
        during += 1;
        std::thread::sleep(Duration::from_micros(200));
        e.all.extend(e.said.try_iter().collect::<Vec<_>>());
    }
    assert!(during > 10);
    for _ in 0..100 {
        sender.send(&query);
    }
    std::thread::sleep(Duration::from_millis(300));
    let words = e.stop();
    assert!(said(&words, "received = inspected + lost"), "{words:?}");
    let stats = last_stats(&dir);
    let count = |path: [&str; 2]| stats[path[0]][path[1]].as_u64().unwrap_or(0);
    let seen = count(["capture", "kernel_packets"]);
    assert!(
        seen >= 100 && count(["decoder", "pkts"]) == seen && count(["capture", "kernel_drops"]) == 0,
        "{seen} {words:?} {stats}"
    );
    assert_eq!(count(["detect", "alert"]), seen);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_offloads() {
    pair("va", "vb");
    let words = |name: &str, signal: &str| {
        let dir = folder(name);
        demo_rules(&dir);
        let e = Engine::start(&dir, &["--af-packet=vb", "--set", "capture.disable-offloading=yes"]);
        if signal == "KILL" {
            e.signal(signal);
            e.ended().1
        } else {
            e.stop()
        }
    };
    let off = |words: &[String]| said(words, "vb: switched off while the engine runs: ") && said(words, "tso");
    // Each run restores the offloads that it switched off.
    for name in ["offload-1", "offload-2"] {
        let words = words(name, "INT");
        assert!(off(&words), "{name}: {words:?}");
    }
    // A killed engine cannot restore them.
    assert!(off(&words("offload-4", "KILL")));
    assert!(!off(&words("offload-5", "INT")));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_reject_dev() {
    pair("va", "vb");
    pair("vc", "vd");
    let dir = folder("reject-dev");
    std::fs::write(dir.join("a.rules"), "reject udp any any -> any 53 (msg:\"r\"; content:\"example\"; sid:1;)\n")
        .expect("rules");
    let heard = pcap::Capture::from_device("vd").and_then(|c| c.immediate_mode(true).timeout(100).open());
    let mut heard = heard.expect("it can be listened to");
    let e = Engine::start(&dir, &["--af-packet=vb", "--reject-dev", "vc"]);
    Sender::on("va").send(&traffic(1)[..1]);
    e.decoded(1);
    // An ICMP message about the query, addressed to its sender.
    let end = Instant::now() + PATIENCE;
    let answer = loop {
        assert!(Instant::now() < end, "no answer came");
        if let Ok(p) = heard.next_packet()
            && p.data.get(12..14) == Some(&[8, 0])
            && p.data.get(23) == Some(&1)
        {
            break p.data.to_vec();
        }
    };
    assert_eq!(answer[34], 3, "unreachable: {answer:?}");
    e.explained();
    assert_eq!(last_stats(&dir)["capture"]["reject"]["sent"], 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_libpcap() {
    pair("va", "vb");
    let sent = traffic(20);
    let want = of_the_file("libpcap-file", &sent);
    let dir = folder("libpcap");
    demo_rules(&dir);
    let e = Engine::start(&dir, &["--pcap=vb", "--pcap-buffer-size", "16mb"]);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    assert_eq!(e.ask(&["capture-mode"]), "PCAP_DEV");
    e.explained();
    assert_eq!(alerts(&dir), want);
    assert_eq!(last_stats(&dir)["capture"]["kernel_packets"], sent.len());
    is_refused(&dir, &["--pcap=vb", "no such words"], "no such words");
    is_refused(&dir, &["--pcap=vc"], "vc");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_libpcap_link() {
    let noticed = [Duration::from_millis(1500), Duration::from_millis(1500)];
    goes_and_comes_back("link-libpcap", &["--pcap=vb"], noticed);
}

/// The rules file is a pipe: the engine gets its rules when the test writes them.
#[test]
#[ignore = "runs in a namespace"]
fn inner_delayed() {
    pair("va", "vb");
    let query = traffic(1).into_iter().take(1).collect::<Vec<_>>();
    let begin = |name: &str, more: &[&str]| {
        let dir = folder(name);
        margay_testing::named_pipe(&dir.join("a.rules"));
        let usual = ["--af-packet=vb", "--set", "detect.delayed-detect=yes", "--set", "af-packet.1.threads=2"];
        let e = Engine::start(&dir, &[&usual[..], more].concat());
        let mut sender = Sender::on("va");
        for _ in 0..10 {
            sender.send(&query);
        }
        e.decoded(10);
        (dir, e, sender)
    };
    let rule = "alert udp any any -> any 53 (msg:\"d\"; content:\"example\"; sid:1;)\n";

    let (dir, mut e, mut sender) = begin("delayed", &[]);
    std::fs::write(dir.join("a.rules"), rule).expect("rules");
    assert!(e.until("1 rules are loaded"), "{:?}", e.all);
    for _ in 0..5 {
        sender.send(&query);
    }
    e.decoded(15);
    e.explained();
    assert_eq!(alerts(&dir).values().sum::<usize>(), 5, "those that came after the rules");

    // With `--init-errors-fatal`, rules that do not load end the engine.
    let (dir, e, _) = begin("delayed-wrong", &["--init-errors-fatal"]);
    std::fs::write(dir.join("a.rules"), "alert udp any any -> any 53 (nonsense; sid:1;)\n").expect("rules");
    let (status, words) = e.ended();
    assert_eq!(status.code(), Some(1), "{words:?}");
    assert!(said(&words, "the rules cannot be loaded, the engine stops"), "{words:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    // Until every worker has noticed.
    let noticed = [Duration::from_millis(500), Duration::from_millis(1500)];
    goes_and_comes_back("link-live", &["-i", "vb", "--set", "af-packet.1.threads=2"], noticed);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_filter() {
    pair("va", "vb");
    pair("vc", "vd");
    let dir = folder("filter-live");
    demo_rules(&dir);
    let query = traffic(1).remove(0);
    let tagged = [&query[..12], &[0x81, 0, 0, 100][..], &query[12..]].concat();
    let e = Engine::start(&dir, &["-i", "vb", "-i", "vd", "--set", "af-packet.1.threads=2", "udp", "port", "53"]);
    Sender::on("va").send(&[tagged]);
    Sender::on("vc").send(&traffic(1));
    e.decoded(3);
    e.explained();
    assert_eq!(last_stats(&dir)["decoder"]["pkts"], 3, "a lookup with a tag; a lookup and its answer");
    let events = events(&dir);
    let of = |iface: &str| events.iter().find(|e| e["event_type"] == "alert" && e["in_iface"] == iface).cloned();
    assert_eq!(of("vb").expect("an alert")["vlan"], serde_json::json!([100]));
    assert!(of("vd").expect("an alert")["vlan"].is_null());
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_kill() {
    pair("va", "vb");
    let dir = folder("kill-live");
    demo_rules(&dir);
    let sent = traffic(20);
    let mut e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    e.signal("KILL");
    let _ = e.child.wait();
    drop(e);
    // The report is complete, and the next one follows.
    let before = events(&dir).iter().filter(|e| e["event_type"] == "alert").count();
    assert!(before >= 20, "{before}");
    let e = Engine::start(&dir, &["-i", "vb", "--set", "af-packet.1.threads=2"]);
    Sender::on("va").send(&sent);
    e.decoded(sent.len() as u64);
    e.explained();
    let after = events(&dir).iter().filter(|e| e["event_type"] == "alert").count();
    assert!(after > before);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_overrun() {
    pair("va", "vb");
    let dir = folder("overrun-live");
    demo_rules(&dir);
    let e = Engine::start(
        &dir,
        &[
            "-i",
            "vb",
            "--set",
            "af-packet.1.threads=1",
            "--set",
            "af-packet.1.ring-size=64",
            "--set",
            "af-packet.1.block-size=65536",
        ],
    );
    let sent = traffic(60);
    // A stopped worker's ring fills up quickly.
    e.signal("STOP");
    Sender::on("va").send(&sent);
    e.signal("CONT");
    e.decoded(sent.len() as u64);
    e.explained();
    let stats = last_stats(&dir);
    let lost = stats["capture"]["kernel_drops"].as_u64().unwrap_or(0);
    assert!(lost > 0);
    assert_eq!(stats["capture"]["kernel_packets"], sent.len());
    assert_eq!(stats["decoder"]["pkts"], sent.len() as u64 - lost);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_threads() {
    pair("va", "vb");
    let dir = folder("threads-live");
    demo_rules(&dir);
    let set = |name: &str, value: &str| format!("threading.cpu-affinity.{name}={value}");
    let e = Engine::start(
        &dir,
        &[
            "-i",
            "vb",
            "--set",
            "af-packet.1.threads=2",
            "--set",
            "threading.set-cpu-affinity=yes",
            "--set",
            &set("worker-cpu-set.cpu.0", "0"),
            "--set",
            &set("worker-cpu-set.mode", "exclusive"),
            "--set",
            &set("worker-cpu-set.prio.default", "low"),
            "--set",
            "margay.numa=bind",
        ],
    );
    // The kernel reports the policy of the calling thread for each mapping.
    let nodes = std::path::Path::new("/sys/devices/system/node/node0").exists();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", e.child.id())).expect("threads").flatten();
    let mut workers = 0;
    for t in tasks {
        let read = |name: &str| std::fs::read_to_string(t.path().join(name)).unwrap_or_default();
        let maps = read("numa_maps");
        if nodes && !maps.is_empty() {
            assert_eq!(maps.contains(" bind:0"), read("comm").starts_with("W#0"), "{}: {maps}", read("comm"));
        } else {
            margay_testing::unavailable("this kernel has no memory nodes, or lets nobody bind to them");
        }
        if read("comm").starts_with("W#0") {
            workers += 1;
            let status = read("status");
            let cpus = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
            assert_eq!(cpus.trim(), "0");
        }
    }
    assert_eq!(workers, 2);
    e.stop();
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_rotate() {
    pair("va", "vb");
    for i in ["va", "vb"] {
        assert!(ip(&format!("link set {i} mtu 9000")));
    }
    let dir = folder("rotate-live");
    demo_rules(&dir);
    let cut = "alert pkthdr any any -> any any (msg:\"cut\"; decode-event:afpacket.trunc_pkt; sid:7;)\n";
    let rules = std::fs::read_to_string(dir.join("a.rules")).expect("rules") + cut;
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let more = ["-i", "vb", "--set", "af-packet.1.threads=2", "--set", "af-packet.1.block-size=4096"];
    let e = Engine::start(&dir, &more);
    let sent = traffic(5);
    let mut sender = Sender::on("va");
    sender.send(&sent);
    e.decoded(sent.len() as u64);
    std::fs::rename(dir.join("eve.json"), dir.join("old.json")).expect("it is there");
    e.signal("HUP");
    let end = Instant::now() + PATIENCE;
    while !dir.join("eve.json").exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut large = sent[0].clone();
    large.resize(8000, 0);
    sender.send(&[large]);
    e.decoded(sent.len() as u64 + 1);
    e.explained();
    let old = std::fs::read_to_string(dir.join("old.json")).expect("events");
    assert!(old.ends_with('\n') && old.contains("1000004") && !old.contains("\"signature_id\":7,"));
    assert_eq!(events(&dir).iter().filter(|e| e["alert"]["signature_id"] == 7).count(), 1);
    assert_eq!(last_stats(&dir)["capture"]["afpacket"]["truncated"], 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_errors() {
    pair("va", "vb");
    let dir = folder("errors-live");
    demo_rules(&dir);
    for (more, words) in [
        (&["-i", "nosuch"][..], "no such interface"),
        (&["-i", "vb", "--set", "af-packet.1.copy-mode=ips"], "copy-iface"),
        (&["-i", "vb", "--runmode", "moon"], "run mode"),
        (&["-i", "vb", "-i", "lo", "--runmode", "single"], "single"),
        (&["-i", "vb", "udp", "and", "and"], "syntax error"),
        (&["-i", "vb", "-i", "vb"], "twice"),
    ] {
        is_refused(&dir, more, words);
    }
}
