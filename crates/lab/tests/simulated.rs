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
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let run = throughput(
        folder.path(),
        &out,
        &["-n", "5", "--capacity", "23000", "--loss", "1", "--close", "3", "--arg=--ring=500"],
    );
    assert!(run.status.success(), "{}", text(&run));
    let bound: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("bound.json")).unwrap()).unwrap();
    let searches: Vec<f64> = bound["searches"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
    assert_eq!(searches.len(), 5);
    // With 1 % of loss allowed it is 1 % above the capacity.
    for rate in &searches {
        assert!((rate / 23_230.0 - 1.0).abs() < 0.05, "{searches:?}");
    }
    assert_eq!(bound["limit"], "engine");
    let trials = std::fs::read_to_string(out.join("trials.csv")).unwrap();
    assert!(trials.lines().count() > 5 * 4);
    assert!(std::fs::read_to_string(out.join("samples.csv")).unwrap().lines().count() > 5);
    // What was made is gone.
    assert!(std::fs::read_dir(folder.path()).unwrap().flatten().all(|entry| entry.file_name() == "out"));
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
        (&["-e", "suricata"], "--replay: a capture to send is missing"),
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
