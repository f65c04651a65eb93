//! One capture file, many workers: what they find is what one worker finds.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use process::root;

fn folder(name: &str) -> PathBuf {
    process::folder(&format!("autofp-{name}"))
}

fn run(dir: &Path, capture: &Path, rules: &Path, more: &[&str]) -> Output {
    let path = |p: &str| root().join(p).display().to_string();
    let classes = format!("classification-file={}", path("etc/classification.config"));
    let references = format!("reference-config-file={}", path("etc/reference.config"));
    let config = path("etc/margay.yaml");
    let (dir, capture, rules) = (dir.display().to_string(), capture.display().to_string(), rules.display().to_string());
    let mut args = vec!["-c", &config, "-l", &dir, "-r", &capture, "-S", &rules, "-k", "none"];
    args.extend(["--set", &classes, "--set", &references]);
    args.extend(more);
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).output().expect("the engine starts")
}

fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

fn number(line: &str, name: &str) -> Option<u64> {
    line.split(&format!("\"{name}\":")).nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn word<'a>(line: &'a str, name: &str) -> &'a str {
    line.split(&format!("\"{name}\":\"")).nth(1).and_then(|l| l.split('"').next()).unwrap_or_default()
}

/// What was found, in no order: each alert with its packet's number, each other event by its type and ends.
fn found(dir: &Path) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for line in std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default().lines() {
        let kind = word(line, "event_type");
        if kind == "stats" {
            continue;
        }
        let ends = [word(line, "src_ip"), word(line, "dest_ip")];
        let ports = [number(line, "src_port"), number(line, "dest_port")];
        let sid = number(line, "signature_id");
        // Events that end a flow have no packet's number.
        let packet = number(line, "pcap_cnt");
        *all.entry(format!("{kind} {ends:?} {ports:?} {sid:?} {packet:?}")).or_default() += 1;
    }
    all
}

/// Runs with one worker, and with several in every way, and compares. Returns how many events there are.
fn compare(name: &str, capture: &Path, rules: &Path, more: &[&str]) -> usize {
    let of = |name: &str, mode: &[&str]| {
        let dir = folder(name);
        let mut args = more.to_vec();
        args.extend(mode);
        let o = run(&dir, capture, rules, &args);
        assert!(o.status.success(), "{}", stderr(&o));
        found(&dir)
    };
    let one = of(&format!("{name}-1"), &["--runmode", "single"]);
    for scheduler in ["adaptive", "hash", "ippair", "shortest-queue"] {
        for workers in ["1", "2", "3", "7"] {
            let (scheduler_set, workers_set) =
                (format!("autofp-scheduler={scheduler}"), format!("margay.workers={workers}"));
            let mode = ["--runmode", "autofp", "--set", &scheduler_set, "--set", &workers_set];
            let several = of(&format!("{name}-{scheduler}-{workers}"), &mode);
            let missing: Vec<_> = one.iter().filter(|(k, n)| several.get(*k) != Some(n)).collect();
            let more: Vec<_> = several.iter().filter(|(k, n)| one.get(*k) != Some(n)).collect();
            assert!(
                missing.is_empty() && more.is_empty(),
                "{name}: {scheduler}, {workers} workers: not as with one:\n{missing:#?}\n{more:#?}"
            );
        }
    }
    one.values().map(|n| *n as usize).sum()
}

#[test]
fn the_demo() {
    let n = compare("demo", &root().join("demo/demo.pcap"), &root().join("demo/demo.rules"), &[]);
    assert!(n > 5, "{n} events");
}

#[test]
fn keywords_and_tiny_batches() {
    let dir = root().join("crates/margay/tests/keywords");
    let (capture, rules) = (dir.join("packets.pcap"), dir.join("keywords.rules"));
    assert!(compare("keywords", &capture, &rules, &["--set", "margay.batch-size=1"]) > 50);
    assert!(compare("preloaded", &capture, &rules, &["--pcap-preload"]) > 50);
}

/// A capture that the laboratory makes.
fn made(dir: &Path, what: &[&str], size: &str) -> PathBuf {
    let capture = dir.join("made.pcap");
    let mut lab = Command::new(env!("CARGO_BIN_EXE_margay"));
    lab.args(["lab", "traffic", "gen", "--size", size, "-q", "-o"]).arg(&capture).args(what);
    let o = lab.output().expect("the laboratory starts");
    assert!(o.status.success(), "{}", stderr(&o));
    capture
}

/// What hosts are counted by is what one worker counts: no worker waits for those that had nothing of a host, and all wait for
/// those that had. (One count for all would keep them in step.)
#[test]
fn hosts_are_counted_in_order() {
    let dir = folder("hosts-capture");
    let profile = dir.join("few-hosts.yaml");
    let pools = "clients: 10.0.0.1-10.0.0.6\nservers: 10.1.0.1-10.1.0.3\n";
    let templates = "  - {kind: http, cps: 200, requests: 2, bytes: 4kB}\n  - {kind: dns, cps: 900}\n";
    std::fs::write(&profile, format!("name: few-hosts\nrtt: 20ms\n{pools}templates:\n{templates}")).expect("a profile");
    let capture = made(&dir, &[&profile.display().to_string()], "1MB");
    let rules = dir.join("hosts.rules");
    let mut text = String::new();
    for (n, track) in ["by_src", "by_dst", "by_both", "by_flow"].iter().enumerate() {
        for (k, kind) in ["limit", "threshold", "both"].iter().enumerate() {
            let sid = 1 + n * 10 + k;
            text += &format!(
                "alert ip any any -> any any (msg:\"{track} {kind}\"; threshold:type {kind}, track {track}, count 7, seconds 1; sid:{sid};)\n"
            );
        }
    }
    for (n, track) in ["ip_src", "ip_dst", "ip_pair"].iter().enumerate() {
        let sid = 100 + n * 10;
        text += &format!(
            "alert tcp any any -> any any (msg:\"set\"; flags:S; xbits:set,x{n},track {track},expire 2; noalert; sid:{sid};)\n\
             alert udp any any -> any any (msg:\"is set\"; xbits:isset,x{n},track {track}; sid:{};)\n\
             alert udp any any -> any any (msg:\"unset\"; xbits:unset,x{n},track {track}; noalert; sid:{};)\n",
            sid + 1,
            sid + 2
        );
    }
    std::fs::write(&rules, text).expect("rules");
    let n = compare("hosts", &capture, &rules, &[]);
    assert!(n > 500, "{n} events");
}

/// One flow is the load: its worker takes over what the others found, and that is what it would have found.
#[test]
fn one_flow_is_searched_by_all() {
    let dir = folder("one-flow-capture");
    let (capture, rules) = (made(&dir, &["--preset", "elephant"], "6MB"), dir.join("one.rules"));
    let text: String = (0..64u32)
        .map(|n| {
            let kind = ["tcp", "tcp-pkt"][n as usize % 2];
            format!(
                "alert {kind} any any -> any any (msg:\"{n}\"; content:\"|{:02x} {:02x}|\"; sid:{};)\n",
                n * 3 + 1,
                n * 2 + 7,
                n + 1
            )
        })
        .collect();
    std::fs::write(&rules, text).expect("rules");
    let more = ["--set", "stats.enabled=yes"];
    // Which worker has how much to do when is the scheduler's.
    for attempt in 0..20 {
        let n = compare("one-flow", &capture, &rules, &more);
        assert!(n > 500, "{n} events");
        let eve = Path::new(env!("CARGO_TARGET_TMPDIR")).join("autofp-one-flow-adaptive-2/eve.json");
        let eve = std::fs::read_to_string(eve).expect("events");
        let taken_over: u64 = eve.lines().filter_map(|l| number(l, "taken_over")).sum();
        if taken_over > 200 {
            return;
        }
        println!("attempt {attempt}: {taken_over} payloads taken over");
    }
    panic!("nobody helps");
}
