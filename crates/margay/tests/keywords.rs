//! Keywords that belong to no protocol, and the forms that all keywords share. Each has a rule in
//! `keywords/keywords.rules`, run on `keywords/packets.pcap`. A comment above each rule lists the packets that it alerts
//! on. They match the reference if it knows the keyword, otherwise the manual. The rules file begins with a description
//! of the packets.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs rules on the packets. Returns the numbers of the packets that each rule alerts on, and the output.
fn run(name: &str, rules: &Path, more: &[&str]) -> (BTreeMap<u32, Vec<u64>>, String) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder for logs");
    let etc = |file: &str| root().join("etc").join(file).display().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_margay"))
        .args(["-c", &etc("margay.yaml"), "-k", "none", "-S"])
        .arg(rules)
        .arg("-r")
        .arg(root().join("crates/margay/tests/keywords/packets.pcap"))
        .arg("-l")
        .arg(&dir)
        .args(["--set", &format!("classification-file={}", etc("classification.config"))])
        .args(["--set", &format!("reference-config-file={}", etc("reference.config"))])
        .args(["--set", "packet-alert-max=500"])
        .args(more)
        .output()
        .expect("the engine starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let number = |line: &str, key: &str| -> Option<u64> {
        line.split(&format!("\"{key}\":")).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let mut alerts: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let events = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    for line in events.lines().filter(|l| l.contains("\"event_type\":\"alert\"")) {
        let sid = number(line, "signature_id").expect("a number") as u32;
        // Only captured frames have a number. A packet inside a tunnel counts as its outer packet, which `tunnel` names.
        // A reassembled packet counts as none.
        let own = if line.contains("\"pkt_src\":\"defrag\"") { "" } else { line };
        alerts.entry(sid).or_default().push(number(own, "pcap_cnt").unwrap_or(0));
    }
    (alerts, said)
}

/// The errors and warnings in the output.
fn complaints(said: &str) -> Vec<&str> {
    said.lines().filter(|l| l.starts_with("E: ") || l.starts_with("W: ")).collect()
}

#[test]
fn each_keyword_alerts_where_it_should() {
    let rules = root().join("crates/margay/tests/keywords/keywords.rules");
    let rates = ["--set", "flow.rate-tracking.bytes=400", "--set", "flow.rate-tracking.interval=10"];
    let (alerts, said) = run("keywords", &rules, &rates);
    // One rule deliberately checks a bit that no rule sets.
    let about = complaints(&said);
    assert!(about.iter().all(|l| l.contains("flowbit 'never' is checked but not set")), "{about:?}");
    assert!(!said.contains("set aside"), "{said}");
    let text = std::fs::read_to_string(&rules).expect("rules");
    let (mut wrong, mut tested) = (Vec::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(numbers) = line.strip_prefix("#>") else { continue };
        let want: Vec<u64> = numbers.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        let rule = lines.next().expect("a rule behind its packets");
        let sid = rule.rsplit("sid:").next().and_then(|s| s.trim_end_matches(";)").parse().ok()).expect("a sid");
        let got = alerts.get(&sid).cloned().unwrap_or_default();
        tested += 1;
        if got != want {
            wrong.push(format!("{rule}\n  alerts on {got:?}, not {want:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {tested}:\n{}", wrong.len(), wrong.join("\n"));
    // Flow events mark elephant flows, and a counter has their number.
    let events = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords/eve.json");
    let events = std::fs::read_to_string(events).expect("events");
    let elephants = events.lines().filter(|l| l.contains("\"event_type\":\"flow\"") && l.contains("\"elephant\":true"));
    assert_eq!(elephants.count(), 2);
    assert!(events.lines().any(|l| l.contains("\"event_type\":\"stats\"") && l.contains("\"elephant\":2")));
    assert!(tested > 300);
}

/// `threshold.config`: the effect of its entries on rules, for each `track`.
#[test]
fn entries_of_the_threshold_file() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-thresholds");
    std::fs::create_dir_all(&dir).expect("a folder");
    let tick = |sid: u32| format!("alert udp any any -> any any (content:\"tick\"; sid:{sid};)\n");
    let rules = dir.join("ticks.rules");
    std::fs::write(&rules, (1..=12).map(tick).collect::<String>()).expect("rules");
    let thresholds = dir.join("threshold.config");
    let text = "threshold gen_id 1, sig_id 1, type limit, track by_src, count 2, seconds 60\n\
        event_filter gen_id 1, sig_id 2, type threshold, track by_dst, count 5, seconds 60\n\
        threshold gen_id 1, sig_id 3, type both, track by_rule, count 3, seconds 60\n\
        threshold gen_id 1, sig_id 4, type limit, track by_both, count 1, seconds 4\n\
        threshold gen_id 1, sig_id 5, type limit, track by_flow, count 3, seconds 60\n\
        threshold gen_id 1, sig_id 6, type backoff, track by_flow, count 1, multiplier 3\n\
        suppress gen_id 1, sig_id 7\n\
        suppress gen_id 1, sig_id 8, track by_src, ip 10.0.0.1\n\
        suppress gen_id 1, sig_id 9, track by_dst, ip 10.0.0.1\n\
        suppress gen_id 1, sig_id 10, track by_either, ip [10.0.0.0/30,!10.0.0.1]\n\
        rate_filter gen_id 1, sig_id 11, track by_flow, count 3, seconds 60, new_action pass, timeout 3\n\
        rate_filter gen_id 1, sig_id 12, track by_src, count 3, seconds 60, new_action alert, timeout 3\n";
    std::fs::write(&thresholds, text).expect("thresholds");
    let file = format!("threshold-file={}", thresholds.display());
    let (alerts, said) = run("keywords-thresholds-out", &rules, &["--set", &file]);
    assert!(complaints(&said).is_empty(), "{said}");
    let of = |sid: u32| alerts.get(&sid).cloned().unwrap_or_default();
    let all: Vec<u64> = (37..=46).collect();
    for (sid, want) in [(1, vec![37, 38]), (2, vec![41, 46]), (3, vec![39]), (4, vec![37, 42])] {
        assert_eq!(of(sid), want, "rule {sid}");
    }
    assert_eq!((of(5), of(6)), (vec![37, 38, 39], vec![37, 39, 45]));
    for (sid, want) in [(7, vec![]), (8, vec![]), (9, all), (10, vec![])] {
        assert_eq!(of(sid), want, "rule {sid}");
    }
    // The entry takes effect at the fourth match, for its number of seconds. The match that finds it expired is not
    // counted; the next one activates it again. Its `pass` also ends later rules.
    assert_eq!((of(11), of(12)), (vec![37, 38, 39, 44], vec![37, 38, 39, 44]));
}

#[test]
fn what_is_not_required_is_left_out_and_counted() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-requires");
    std::fs::create_dir_all(&dir).expect("a folder");
    let rules = dir.join("requires.rules");
    let rule = |sid: u32, requires: &str| {
        format!("alert udp any any -> any any (content:\"tick0\"; requires: {requires}; sid:{sid};)\n")
    };
    let list = [
        "version >= 8",
        "version >= 9",
        "version >= 7 < 8 | >= 8.0.1",
        "keyword content",
        "keyword nothing",
        "feature nothing",
        "version < 8, keyword content",
    ];
    std::fs::write(&rules, (1..).zip(list).map(|(n, r)| rule(n, r)).collect::<String>()).expect("rules");
    let (alerts, said) = run("keywords-requires-out", &rules, &["-v"]);
    assert_eq!(alerts.keys().copied().collect::<Vec<_>>(), [1, 3, 4]);
    assert!(complaints(&said).is_empty() && said.contains("4 rules skipped"), "{said}");
}

/// `tag`: the packets shown besides the alerting ones, as the reference shows them for the same rules.
#[test]
fn tagged_packets() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-tags");
    std::fs::create_dir_all(&dir).expect("a folder");
    let rules = dir.join("tags.rules");
    let shown = |list: &[(&str, &str)]| -> Vec<u64> {
        let rule = |(n, (header, options)): (usize, &(&str, &str))| {
            format!("alert {header} any any -> any any ({options} sid:{};)\n", n + 1)
        };
        std::fs::write(&rules, list.iter().enumerate().map(rule).collect::<String>()).expect("rules");
        let (_, said) = run("keywords-tags-out", &rules, &[]);
        assert!(complaints(&said).is_empty(), "{said}");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-tags-out/eve.json");
        let events = std::fs::read_to_string(out).expect("events");
        let of = |l: &str| l.split("\"pcap_cnt\":").nth(1)?.split(',').next()?.parse().ok();
        events.lines().filter(|l| l.contains("\"event_type\":\"packet\"")).filter_map(of).collect()
    };
    let all = shown(&[
        ("udp", "content:\"tick0\"; tag:session,3,packets;"),
        ("udp", "content:\"knock\"; tag:host,1,packets,src;"),
        ("tcp", "content:\"GET\"; tag:session,2,seconds;"),
        ("icmp", "itype:8; tag:host,2,packets,dst;"),
        ("udp", "content:\"tick5\"; tag:session,100,bytes;"),
        ("udp", "content:\"vlans\"; tag:host,3,seconds,src;"),
    ]);
    assert_eq!(all, [8, 9, 13, 22, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 43]);
    // A host without a side is the destination.
    let host = |side: &str| shown(&[("udp", &format!("content:\"knock\"; tag:host,1,packets{side};"))]);
    assert_eq!(host(""), host(",dst"));
    assert_ne!(host(""), host(",src"));
    // A packet may be tagged and alert. A source that alerts again restarts the count.
    assert_eq!(shown(&[("udp", "content:\"tick\"; tag:session,3,packets;")]), (38..=46).collect::<Vec<_>>());
    let two =
        [("udp", "content:\"tick1\"; tag:session,5,packets;"), ("udp", "content:\"tick3\"; tag:session,5,packets;")];
    assert_eq!(shown(&two), [39, 40, 41, 42, 43, 44]);
    // A tag that expires on a packet which sets it again is still active there.
    assert_eq!(shown(&[("tcp-pkt", "dsize:0; tag:session,1,packets;")]), [2, 3, 8, 9, 57, 58]);
}

/// `prefilter` chooses how a rule is looked for, and changes nothing that it matches.
#[test]
fn rules_on_a_protocol_with_and_without_a_prefilter() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-prefilter");
    std::fs::create_dir_all(&dir).expect("a folder");
    let rules = dir.join("prefilter.rules");
    let kinds = ["http", "!tls", "failed", "http,to_client"];
    let rule = |(n, kind): (usize, &&str)| {
        let one = |sid: usize, more: &str| {
            format!("alert tcp any any -> any any (app-layer-protocol:{kind};{more} sid:{sid};)\n")
        };
        one(2 * n + 1, "") + &one(2 * n + 2, " prefilter;")
    };
    std::fs::write(&rules, kinds.iter().enumerate().map(rule).collect::<String>()).expect("rules");
    let (alerts, said) = run("keywords-prefilter-out", &rules, &[]);
    assert!(complaints(&said).is_empty(), "{said}");
    assert!(alerts.contains_key(&1), "{alerts:?}");
    for n in (1..).step_by(2).take(kinds.len()) {
        assert_eq!(alerts.get(&n), alerts.get(&(n + 1)), "rule {n}");
    }
}

/// A `pass` that its threshold suppresses passes nothing, as in the reference.
#[test]
fn passes_with_a_threshold() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-passes");
    std::fs::create_dir_all(&dir).expect("a folder");
    let rules = dir.join("passes.rules");
    for (kind, count, want) in [
        ("limit", 2, vec![39, 40, 41, 42, 43, 44, 45, 46]),
        ("both", 3, vec![37, 38, 40, 41, 42, 43, 44, 45, 46]),
        ("threshold", 3, vec![37, 38, 40, 41, 43, 44, 46]),
    ] {
        let text = format!(
            "pass udp any any -> any any (content:\"tick\"; threshold:type {kind},track by_src,count {count},seconds 60; sid:1;)\n\
            alert udp any any -> any any (content:\"tick\"; sid:2;)\n"
        );
        std::fs::write(&rules, text).expect("rules");
        let (alerts, said) = run("keywords-passes-out", &rules, &[]);
        assert!(complaints(&said).is_empty(), "{said}");
        assert_eq!((alerts.get(&1), alerts.get(&2)), (None, Some(&want)), "{kind}");
    }
}

/// `stream` of an eve-log: the states and both sides' numbers, as the reference shows them for the same packets.
#[test]
fn what_the_tcp_engine_made_of_packets() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keywords-stream");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a folder");
    let number = |line: &str| -> u64 {
        let text = line.split("\"pcap_cnt\":").nth(1).expect("a number");
        text.split(',').next().expect("a number").parse().expect("a number")
    };
    let shown = |option: &str| -> Vec<String> {
        let config = dir.join("stream.yaml");
        let text = format!(
            "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types:\n        \
             - stream:\n            {option}: true\n"
        );
        std::fs::write(&config, text).expect("a configuration");
        let _ = std::fs::remove_file(dir.join("eve.json"));
        let packets = root().join("crates/margay/tests/keywords/packets.pcap");
        let ok = Command::new(env!("CARGO_BIN_EXE_margay"))
            .args(["-k", "none", "-S", "/dev/null", "-c"])
            .arg(&config)
            .arg("-r")
            .arg(packets)
            .arg("-l")
            .arg(&dir)
            .output()
            .expect("the engine starts");
        assert!(ok.status.success(), "{}", String::from_utf8_lossy(&ok.stderr));
        let events = std::fs::read_to_string(dir.join("eve.json")).expect("events");
        events.lines().filter(|l| l.contains("\"event_type\":\"stream_tcp\"")).map(str::to_owned).collect()
    };
    let numbers = |lines: &[String]| lines.iter().map(|l| number(l)).collect::<Vec<_>>();
    let all = shown("all");
    assert_eq!(numbers(&all), [1, 2, 3, 4, 5, 6, 7, 8, 9, 25, 26, 27, 28, 55, 56, 57, 58, 59]);
    let state = |n: usize, before: &str, now: &str| {
        let want = match before {
            "" => format!("\"session\":{{\"state\":\"{now}\",\"flags\""),
            _ => format!("\"session\":{{\"state\":\"{now}\",\"pstate\":\"{before}\""),
        };
        assert!(all[n].contains(&want), "{} has no {want}", all[n]);
    };
    state(0, "none", "syn_sent");
    state(1, "syn_sent", "syn_recv");
    state(2, "syn_recv", "established");
    state(5, "", "established");
    state(8, "last_ack", "closed");
    let sides = "\"client\":{\"isn\":1000,\"next_seq\":1104,\"last_ack\":1104,\"next_win\":66536,\"base_seq\":1001,\
        \"segs_right_edge\":1104,\"window\":32768,\"wscale\":2,\"flags\":[]},\"server\":{\"isn\":5000,\"next_seq\":5092,\
        \"last_ack\":5001,\"next_win\":1053577,\"base_seq\":5001,\"segs_right_edge\":5092,\"window\":1048576,\"wscale\":7,";
    assert!(all[5].contains(sides), "{}", all[5]);
    assert!(all[9].contains("\"flags\":[\"event_set\"]") && !all[9].contains("\"session\""), "{}", all[9]);
    assert_eq!(numbers(&shown("state-update")), [1, 2, 3, 7, 8, 9, 28, 55, 56, 57, 58]);
    assert_eq!(numbers(&shown("event-set")), [25, 27, 55, 59]);
    assert_eq!(numbers(&shown("spurious-retransmission")), []);
}
