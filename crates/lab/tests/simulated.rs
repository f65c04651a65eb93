//! The laboratory with an engine of known capacity, as a user runs it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::Path;
use std::process::Output;
use std::sync::Mutex;

use common::{Table, command, lab, text, until};

/// The tests measure time, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn throughput(state: &Path, out: &Path, more: &[&str]) -> Output {
    let out = out.to_string_lossy().into_owned();
    let mut arguments =
        vec!["throughput", "-e", "simulated", "--from=22k", "--warm-up", "150ms", "--hold", "500ms", "-o", &out];
    arguments.extend(more);
    lab(state, &arguments)
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
        // Everything that was created is removed.
        assert!(std::fs::read_dir(folder.path()).unwrap().flatten().all(|entry| entry.file_name() == "out"));
        // With 1 % of loss allowed, the bound is 1 % above the capacity.
        if searches.iter().all(|rate| (rate / 23_230.0 - 1.0).abs() < 0.05) {
            return;
        }
        // If the sender is late by more than the ring holds, its bursts overflow the ring, which is the machine's fault.
        let trials = Table::read(&out.join("trials.csv"));
        let late = (0..trials.len()).map(|trial| trials.number(trial, "late_p99")).fold(0.0, f64::max);
        assert!(late > 0.005, "{searches:?}");
    }
    eprintln!("this machine is too busy to search on: senders were more than 5 ms late");
}

/// The share lost at each stage in the first trial.
fn stages(out: &Path) -> Vec<(String, f64)> {
    let trials = Table::read(&out.join("trials.csv"));
    let stages = ["sender", "link", "nic", "softnet", "ring", "engine"];
    stages.map(|stage| (stage.to_owned(), trials.number(0, &format!("lost_{stage}")))).to_vec()
}

#[test]
fn a_loss_is_found_where_it_was_injected() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (stage, option) in
        [("sender", "--lose-sender=8"), ("ring", "--arg=--lose-ring=8"), ("engine", "--arg=--lose-engine=8")]
    {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        // One trial: a range with a single rate. The ring has room for all packets, so that a busy machine's delayed
        // bursts cause no other losses there.
        let one =
            ["-n", "1", "--to", "22k", "--loss", "20", "--close", "90", "--capacity", "100000", "--arg=--ring=20000"];
        let run = throughput(folder.path(), &out, &[&one[..], &[option]].concat());
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
            &folder.path().join("other").to_string_lossy(),
        ],
    );
    let said = text(&run);
    assert!(said.contains("engine slow did not get ready within 300ms: 'here I am' did not come"), "{said}");
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
    let state = folder.path().join("state");
    let words = ["throughput", "-e", "simulated", "--hold", "300s", "-o", &out.to_string_lossy()];
    let mut killed = command(&state, &words).stdout(std::process::Stdio::null()).spawn().unwrap();
    until("a sample", || out.join("samples.csv").exists());
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
    let words = ["throughput", "-e", "simulated", "--hold", "300s", "-o", &out.to_string_lossy()];
    let mut child = command(&state, &words).stdout(std::process::Stdio::null()).spawn().unwrap();
    let samples = || std::fs::read_to_string(out.join("samples.csv")).unwrap_or_default().lines().count();
    until("three samples", || samples() >= 3);
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
warm-up: 200ms
hold: 600ms
period: 50ms
";

/// Checks that the table is usable: every field has a name, every number is a number. Uses pandas if available.
fn python_reads(table: &Path) {
    const READ: &str = "
import csv, sys
words = {'load', 'point', 'engine', 'folder'}
rows = list(csv.DictReader(open(sys.argv[1], newline='')))
assert rows and None not in rows[0]
for row in rows:
    for name, value in row.items():
        if name not in words and value != '':
            float(value)
try:
    import pandas
except ImportError:
    print('csv')
else:
    frame = pandas.read_csv(sys.argv[1])
    assert list(frame.columns) == list(rows[0]) and len(frame) == len(rows)
    assert all(frame[name].dtype.kind in 'iuf' for name in frame.columns if name not in words)
    print('pandas')
";
    match std::process::Command::new("python3").args(["-c", READ]).arg(table).output() {
        Ok(output) => assert!(output.status.success(), "{}: {}", table.display(), text(&output)),
        Err(error) => eprintln!("{} is not read by Python, which cannot be started: {error}", table.display()),
    }
}

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

    let runs = Table::read(&out.join("runs.csv"));
    assert_eq!(runs.len(), 12);
    for line in 0..runs.len() {
        let get = |name: &str| runs.number(line, name);
        // Use the rate that was really sent: on a busy machine the last packets are late. The ring keeps 500.
        let (rate, slow) = (get("sent") / get("sent_s"), runs.word(line, "engine") == "slow");
        let over = (rate / 10_000.0 - 1.0) / (rate / 10_000.0) - 500.0 / get("sent");
        let expected = if slow && get("rate") > 10_000.0 { over.max(0.0) } else { 0.0 };
        // The engine cannot take more than its capacity on any machine. Extra losses on a busy one show as lateness of
        // the sender.
        assert!(get("loss") > expected - 0.12, "{expected}, {}", get("loss"));
        let accounted = 1.0 - get("decoded") / get("sent");
        assert!((get("loss") - accounted).abs() < 0.12, "{accounted}, {}", get("loss"));
        if get("late_p99_s") < 0.005 {
            assert!(get("loss") < expected + 0.12, "{expected}, {}", get("loss"));
        }
        assert!(out.join(runs.word(line, "folder")).join("samples.csv").exists());
    }
    python_reads(&out.join("runs.csv"));
    python_reads(&out.join(runs.word(0, "folder")).join("samples.csv"));
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

    // Another experiment cannot continue in the same folder.
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

#[test]
fn a_plan_names_rates_that_are_not_known_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.yaml");
    let engine = "engines:\n  a: {adapter: simulated, capacity: 1000}\n";
    let loads = "loads:\n  steps: {preset: office, rates: [0.5, 2], base: auto, copies: [1, 3]}\n";
    std::fs::write(&path, format!("%YAML 1.1\n---\n{engine}{loads}repeats: 1\n")).unwrap();
    let out = folder.path().join("out");
    let run = lab(folder.path(), &["compare", &path.to_string_lossy(), "--plan", "-o", &out.to_string_lossy()]);
    let said = text(&run);
    assert!(run.status.success(), "{said}");
    assert!(!said.contains("NaN"), "{said}");
    assert!(said.contains("steps, 2× the base, which the run measures first, 3 copies at once: a"), "{said}");
}
