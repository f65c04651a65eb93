//! The laboratory on an engine of known capacity, as a person runs it.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn lab(state: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_margay-lab")).args(arguments).env("MARGAY_LAB_STATE", state).output().unwrap()
}

/// Times matter: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn throughput(state: &Path, out: &Path, more: &[&str]) -> Output {
    let out = out.to_string_lossy().into_owned();
    let mut arguments =
        vec!["throughput", "-e", "simulated", "--from=22k", "--warm-up", "150ms", "--hold", "500ms", "-o", &out];
    arguments.extend(more);
    lab(state, &arguments)
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn five_searches_find_the_known_bound() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let more = ["-n", "5", "--capacity", "23000", "--loss", "1", "--close", "3", "--arg=--ring=500"];
        let run = throughput(folder.path(), &out, &more);
        assert!(run.status.success(), "{}", text(&run));
        let bound: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("bound.json")).unwrap()).unwrap();
        let searches: Vec<f64> =
            bound["searches"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
        assert_eq!(searches.len(), 5);
        assert_eq!(bound["limit"], "engine");
        let trials = std::fs::read_to_string(out.join("trials.csv")).unwrap();
        assert!(trials.lines().count() > 5 * 4);
        assert!(std::fs::read_to_string(out.join("samples.csv")).unwrap().lines().count() > 5);
        // What was made is gone.
        assert!(std::fs::read_dir(folder.path()).unwrap().flatten().all(|entry| entry.file_name() == "out"));
        // With 1 % of loss allowed it is 1 % above the capacity.
        if searches.iter().all(|rate| (rate / 23_230.0 - 1.0).abs() < 0.05) {
            return;
        }
        // A sender that is late by more than the ring holds sends bursts that it cannot take: the machine's doing.
        let late =
            trials.lines().skip(1).filter_map(|line| line.split(',').nth(6)?.parse::<f64>().ok()).fold(0.0, f64::max);
        assert!(late > 0.005, "{searches:?}");
    }
    eprintln!("this machine is too busy to search on: senders were more than 5 ms late");
}

/// The share that each stage lost in the first trial.
fn stages(out: &Path) -> Vec<(String, f64)> {
    let trials = std::fs::read_to_string(out.join("trials.csv")).unwrap();
    let mut lines = trials.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let values: Vec<&str> = lines.next().unwrap().split(',').collect();
    let stage = |(name, value): (&&str, &&str)| Some((name.strip_prefix("lost_")?.to_owned(), value.parse().unwrap()));
    names.iter().zip(&values).filter_map(stage).collect()
}

#[test]
fn a_loss_is_found_where_it_was_injected() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (stage, option) in
        [("sender", "--lose-sender=8"), ("ring", "--arg=--lose-ring=8"), ("engine", "--arg=--lose-engine=8")]
    {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        // One trial: a range that is nothing but its end.
        let run = throughput(
            folder.path(),
            &out,
            &["-n", "1", "--capacity", "100000", "--to", "22k", "--loss", "20", "--close", "90", option],
        );
        assert!(run.status.success(), "{}", text(&run));
        for (name, share) in stages(&out) {
            if name == stage {
                assert!((share - 0.08).abs() < 0.02, "{name} lost {share}");
            } else {
                assert!(share < 0.005, "{stage} was injected, {name} lost {share}");
            }
        }
        assert!(text(&run).contains(&format!("by stage: {stage} ")), "{}", text(&run));
    }
}

#[test]
fn a_sender_that_cannot_more_is_said_so() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = throughput(
        folder.path(),
        &out,
        &["-n", "1", "--capacity", "1000000", "--close", "10", "--sender-most", "30000"],
    );
    assert!(run.status.success(), "{}", text(&run));
    assert!(text(&run).contains("the sender reached no more"), "{}", text(&run));
}

#[test]
fn an_engine_that_dies_or_never_gets_ready_is_named() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = throughput(folder.path(), &out, &["--capacity", "50000", "--arg=--die-after=30000"]);
    assert_eq!(run.status.code(), Some(1));
    let said = text(&run);
    assert!(said.contains("engine simulated ended with status 3") && said.contains("packets a second"), "{said}");
    assert!(said.contains("out of order, as was asked"), "{said}");
    assert!(out.join("trials.csv").exists() && out.join("samples.csv").exists());

    let engine = folder.path().join("slow.yaml");
    let description = "%YAML 1.1\n---\nengines:\n  slow:\n    live: [sleep, '100']\n    ready: {line: here I am}\n    ready-within: 300ms\n";
    std::fs::write(&engine, description).unwrap();
    let begun = Instant::now();
    let replay = folder.path().join("x.pcap");
    std::fs::write(&replay, one_packet()).unwrap();
    let run = lab(
        folder.path(),
        &[
            "throughput",
            "-e",
            &engine.to_string_lossy(),
            "--replay",
            &replay.to_string_lossy(),
            "--interface",
            "lo",
            "--send-on",
            "lo",
            "-o",
            &out.to_string_lossy(),
        ],
    );
    let said = text(&run);
    assert!(said.contains("engine slow did not get ready within 300ms: 'here I am' did not come"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("mlab")), "{left:?}");
}

fn one_packet() -> Vec<u8> {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1, 0, 0, 60, 60] {
        pcap.extend(word.to_le_bytes());
    }
    pcap.extend([0; 60]);
    pcap
}

#[test]
fn what_makes_no_sense_is_said() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for (more, said) in [
        (&["--engine", "nosuch"][..], "there is no file of that name"),
        (&["--from", "soon"], "is no rate"),
        (&["--from", "10mbit"], "this load has no such rate"),
        (&["--loss", "200"], "a percentage is expected"),
        (&["-e", "suricata"], "nothing to send: --replay, --profile or --preset"),
        (&["-e", "suricata", "--replay", "nosuch.pcap"], "nosuch.pcap: "),
        (&["-e", "margay", "--capture", "nosuch.pcap"], "nosuch.pcap: "),
    ] {
        let mut arguments = vec!["throughput", "-e", "simulated"];
        if more[0] == "-e" || more[0] == "--engine" {
            arguments.truncate(1);
        }
        let out = out.to_string_lossy().into_owned();
        arguments.extend(["-o", &out]);
        arguments.extend(more);
        let run = lab(folder.path(), &arguments);
        assert_eq!(run.status.code(), Some(2), "{}", text(&run));
        assert!(text(&run).contains(said), "{}", text(&run));
    }
}

#[test]
fn a_run_that_was_killed_is_cleaned_up() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut killed = Command::new(env!("CARGO_BIN_EXE_margay-lab"))
        .args(["throughput", "-e", "simulated", "--hold", "60s", "-o", &out.to_string_lossy()])
        .env("MARGAY_LAB_STATE", folder.path().join("state"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !out.join("samples.csv").exists() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let state = folder.path().join("state");
    let running = lab(&state, &["clean"]);
    assert!(text(&running).contains("1 sessions are still running"), "{}", text(&running));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let cleaned = lab(&state, &["clean"]);
    assert!(text(&cleaned).contains("removed processes"), "{}", text(&cleaned));
    assert!(text(&lab(&state, &["clean"])).contains("nothing was left behind"));
}

#[test]
fn a_signal_ends_a_run_and_keeps_what_there_is() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let mut child = Command::new(env!("CARGO_BIN_EXE_margay-lab"))
        .args(["throughput", "-e", "simulated", "--hold", "60s", "-o", &out.to_string_lossy()])
        .env("MARGAY_LAB_STATE", &state)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let samples = || std::fs::read_to_string(out.join("samples.csv")).unwrap_or_default().lines().count();
    while samples() < 3 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(samples() >= 3);
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
}

const EXPERIMENT: &str = "%YAML 1.1
---
title: Twice the capacity
about: Two engines, of which one can take twice as much as the other.
engines:
  slow: {adapter: simulated, capacity: 10000, args: [--ring=500]}
  fast: {adapter: simulated, capacity: 20000, args: [--ring=500]}
loads:
  numbers: {simulated: yes, rates: [8kpps, 20kpps]}
repeats: 3
warm-up: 100ms
hold: 300ms
period: 50ms
";

#[test]
fn a_comparison_is_resumed_and_reported() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("twice.yaml").to_string_lossy().into_owned();
    std::fs::write(&file, EXPERIMENT).unwrap();
    let out = folder.path().join("out");
    let state = folder.path().join("state");
    let compare = |more: &[&str]| {
        let out = out.to_string_lossy().into_owned();
        let arguments: Vec<&str> = ["compare", &file, "-o", &out].into_iter().chain(more.iter().copied()).collect();
        lab(&state, &arguments)
    };
    let plan = compare(&["--plan"]);
    assert_eq!(String::from_utf8_lossy(&plan.stdout).lines().count(), 12, "{}", text(&plan));
    let first = compare(&["-n", "1"]);
    assert!(first.status.success(), "{}", text(&first));
    let all = compare(&[]);
    assert!(all.status.success(), "{}", text(&all));
    assert!(text(&all).contains("4 of 12 runs are there already"), "{}", text(&all));

    let runs = std::fs::read_to_string(out.join("runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 13);
    let names: Vec<&str> = runs.lines().next().unwrap().split(',').collect();
    let at = |name: &str| names.iter().position(|known| *known == name).unwrap();
    for line in runs.lines().skip(1) {
        let values: Vec<&str> = line.split(',').collect();
        let (engine, rate): (&str, f64) = (values[at("engine")], values[at("rate")].parse().unwrap());
        let loss: f64 = values[at("loss")].parse().unwrap();
        let expected = if engine == "slow" && rate > 10_000.0 { 0.5 } else { 0.0 };
        assert!((loss - expected).abs() < 0.12, "{line}");
        assert!(out.join(values[at("folder")]).join("samples.csv").exists(), "{line}");
    }
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    for part in [
        "Twice the capacity",
        "In short",
        "<strong>fast</strong> took in",
        "95 % interval",
        "How it was measured",
        "<svg",
    ] {
        assert!(report.contains(part), "{part} is missing");
    }
    assert!(!report.contains("NaN") && !report.contains("Not complete"));
    for plot in ["packets", "loss", "cpu", "memory", "packets-over-time"] {
        let png = std::fs::read(out.join("plots").join(format!("numbers-{plot}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"), "{plot}");
    }

    // Another experiment does not go on in the same folder.
    std::fs::write(&file, EXPERIMENT.replace("20kpps", "30kpps")).unwrap();
    let other = compare(&[]);
    assert!(other.status.code() == Some(2) && text(&other).contains("another experiment"), "{}", text(&other));
}

#[test]
fn a_run_that_fails_is_named_and_the_others_go_on() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fails.yaml");
    let experiment = EXPERIMENT
        .replace("args: [--ring=500]}\n  fast", "args: [--die-after=500]}\n  fast")
        .replace("8kpps, 20kpps", "8kpps");
    std::fs::write(&file, experiment).unwrap();
    let out = folder.path().join("out");
    let run = lab(folder.path(), &["compare", &file.to_string_lossy(), "-o", &out.to_string_lossy(), "-n", "1"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(text(&run).contains("1 runs failed"), "{}", text(&run));
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(
        report.contains("engine slow ended with status 3") && report.contains("Not complete"),
        "what failed is missing"
    );
}
