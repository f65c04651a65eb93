//! The laboratory on a pair of virtual interfaces that it creates and removes: sender, link, engine. It needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use common::{LAB, Table, lab, start, text, until};
use rustix::process::{Pid, Signal, kill_process};

/// The tests need the processors, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// `None` if interfaces cannot be created; the test is then recorded as not run.
fn alone() -> Option<MutexGuard<'static, ()>> {
    let name = format!("mlt-{}", std::process::id());
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !ip(&["netns", "add", &name]) || !ip(&["netns", "del", &name]) {
        margay_testing::not_run("network namespaces need root and iproute2");
        return None;
    }
    Some(guard)
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
}

/// The arguments of a throughput run: small packets of many flows to a simulated engine, on interfaces that the run creates.
fn throughput<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["throughput", "-e", "simulated", "--preset", "udp64", "-n", "1", "-o", out];
    words.extend(more);
    words
}

/// The session of the run in this folder. The names of its namespaces, interfaces and folders begin with it.
fn session(out: &Path) -> String {
    let command = std::fs::read_to_string(out.join("command")).unwrap();
    command.split(' ').find(|word| word.starts_with("mlab")).unwrap().to_owned()
}

/// Remains of a session.
fn left(session: &str, state: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for folder in ["/run/netns", "/sys/class/net"].map(PathBuf::from).into_iter().chain([std::env::temp_dir()]) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(session) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    left.extend(
        std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path().display().to_string()),
    );
    left
}

#[test]
fn every_packet_on_the_wire_is_accounted_for() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let to = out.to_str().unwrap();
    // One trial at twice the engine's capacity.
    let one = ["--capacity", "4000", "--arg=--ring=200", "--from", "8k", "--to", "8k", "--loss", "95", "--close", "90"];
    let run = lab(&state, &[&throughput(to, &["--warm-up", "500ms", "--hold", "2s"])[..], &one].concat());
    assert!(run.status.success(), "{}", text(&run));
    let trials = Table::read(&out.join("trials.csv"));
    // There are more trials if the sender missed the rate.
    assert!(trials.len() > 0, "{}", text(&run));
    let get = |name: &str| trials.number(0, name);
    // Nothing is lost before the engine, and all packets are decoded, dropped or in the ring (200 at most).
    assert!(get("sent") > 10_000.0 && get("received") == get("sent"), "{}", text(&run));
    let waiting = get("received") - get("dropped") - get("decoded");
    assert!((-1.0..=201.0).contains(&waiting), "{waiting} wait: {}", text(&run));
    for stage in ["link", "nic", "softnet"] {
        assert_eq!(get(&format!("lost_{stage}")), 0.0, "{stage}: {}", text(&run));
    }
    // Use the rate that was sent, which on a busy machine is lower than requested.
    let expected = 1.0 - 4000.0 / (get("sent") / get("seconds"));
    assert!((get("lost_ring") - expected).abs() < 0.15, "{expected}: {}", text(&run));
    assert!(text(&run).contains("the sender on CPU") || std::thread::available_parallelism().unwrap().get() == 1);
    assert_eq!(left(&session(&out), &state), Vec::<String>::new());
}

const EXPERIMENT: &str = "%YAML 1.1
---
title: Two engines on a wire
about: Of which one takes four times as much as the other.
engines:
  slow: {adapter: simulated, capacity: 2000, args: [--ring=200]}
  fast: {adapter: simulated, capacity: 8000, args: [--ring=200]}
loads:
  steps: {preset: udp64, rates: [1kpps, 6kpps]}
  bound: {preset: udp64, search: yes, loss: 20, from: 2kpps, to: 4kpps}
repeats: 1
warm-up: 300ms
hold: 1s
period: 100ms
";

#[test]
fn engines_are_compared_over_the_wire() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let file = folder.path().join("two.yaml");
    std::fs::write(&file, EXPERIMENT).unwrap();
    let run = lab(&state, &["compare", file.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    assert!(run.status.success(), "{}", text(&run));
    let runs = Table::read(&out.join("runs.csv"));
    assert_eq!(runs.len(), 6, "{}", text(&run));
    for line in 0..runs.len() {
        let get = |name: &str| runs.number(line, name);
        assert!(out.join(runs.word(line, "folder")).join("samples.csv").exists());
        if runs.word(line, "load") == "steps" {
            assert_eq!(get("received"), get("sent"), "{}", text(&run));
            let (slow, fast_sent) = (runs.word(line, "engine") == "slow", get("rate") > 5000.0);
            let expected = if slow && fast_sent { 1.0 - 2000.0 / (get("sent") / get("sent_s")) } else { 0.0 };
            assert!((get("loss") - expected).abs() < 0.2, "{expected}, {}: {}", get("loss"), text(&run));
        } else if runs.word(line, "engine") == "fast" {
            // The engine handles the highest requested rate, or the sender could not reach it.
            assert!(get("bound_is_engines") == 0.0 || get("bound_pps") > 2000.0, "{}", text(&run));
        }
    }
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("Two engines on a wire") && !report.contains("NaN"), "{report}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
}

const CARDS: &str = "%YAML 1.1
---
title: One interface and two
about: Of which one loses what comes on it above the engine's capacity, and two share it.
engines:
  sim: {adapter: simulated, capacity: 3000, args: [--ring=200]}
loads:
  flows: {preset: udp64, rates: [4kpps], interfaces: [1, 2]}
  each: {preset: udp64, rates: [1500pps], interfaces: [2], same: yes}
study:
  title: A study of two
  figures:
    packets taken, two: {load: flows, engine: sim, interfaces: 2, metric: taken_per_s, theirs: 1.33}
repeats: 1
warm-up: 300ms
hold: 1s
period: 100ms
";

#[test]
fn each_of_two_interfaces_is_counted_and_reported() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let file = folder.path().join("cards.yaml");
    std::fs::write(&file, CARDS).unwrap();
    let run = lab(&state, &["compare", file.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    let said = text(&run);
    assert!(run.status.success(), "{said}");
    let runs = Table::read(&out.join("runs.csv"));
    assert_eq!(runs.len(), 3, "{said}");
    let get = |line: usize, name: &str| runs.number(line, name);
    // On one interface there is nothing to tell apart, and a quarter is lost.
    assert!(get(0, "sent_1").is_nan() && get(0, "loss") > 0.05, "{said}");
    for line in [1, 2] {
        for name in ["sent", "received", "dropped", "decoded"] {
            let sum = get(line, &format!("{name}_1")) + get(line, &format!("{name}_2"));
            // The sum is rounded after it is made.
            assert!((sum - get(line, name)).abs() <= 2.0, "{name}: {sum}: {said}");
            assert!(name == "dropped" || get(line, &format!("{name}_2")) > 100.0, "{name}: {said}");
        }
        // Either takes what it gets.
        assert!(get(line, "loss_1") < 0.05 && get(line, "loss_2") < 0.05, "{said}");
    }
    // The same on each; the sender may end between the two.
    assert!((get(2, "sent_1") - get(2, "sent_2")).abs() <= 1.0, "{said}");
    let checkpoints = Table::read(&out.join("checkpoints.csv"));
    let with = (0..checkpoints.len()).any(|line| checkpoints.number(line, "decoded_2") > 100.0);
    assert!(with, "{:?}", std::fs::read_to_string(out.join("checkpoints.csv")));
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    for what in ["By interface", "on 2 interfaces", "Loss of each interface", "A study of two"] {
        assert!(report.contains(what) && !report.contains("NaN"), "{what}");
    }
    assert!(out.join("plots/flows-interfaces.svg").exists() && said.contains("study: packets taken, two"), "{said}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
}

/// A long run, once its engine receives packets.
fn lasting(out: &Path, state: &Path) -> std::process::Child {
    let to = out.to_str().unwrap();
    let run = start(state, &throughput(to, &["--capacity", "50000", "--from", "2k", "--hold", "300s"]));
    until("an engine that gets packets", || {
        let samples = Table::read(&out.join("samples.csv"));
        samples.len() > 2 && samples.number(samples.len() - 1, "engine.received") > 100.0
    });
    run
}

#[test]
fn an_interface_that_vanishes_ends_the_run() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let run = lasting(&out, &state);
    let session = session(&out);
    assert!(ip(&["link", "del", &format!("{session}s")]));
    let run = run.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    let said = text(&run);
    assert!(
        said.contains("the sender failed")
            && said.contains(&format!("the kernel takes no packets for '{session}s' any more")),
        "{said}"
    );
    assert!(Table::read(&out.join("samples.csv")).len() > 2 && out.join("trials.csv").exists());
    assert_eq!(left(&session, &state), Vec::<String>::new());
}

#[test]
fn an_engine_that_is_killed_ends_the_run() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let run = lasting(&out, &state);
    let session = session(&out);
    // The only process in the engine's namespace is the engine.
    let there = Command::new("ip").args(["netns", "pids", &session]).output().unwrap();
    let pid = String::from_utf8_lossy(&there.stdout).trim().parse::<i32>().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let run = run.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(text(&run).contains("engine simulated was ended by signal 9"), "{}", text(&run));
    assert!(Table::read(&out.join("samples.csv")).len() > 2);
    assert_eq!(left(&session, &state), Vec::<String>::new());
}

#[test]
fn clean_removes_what_a_killed_run_left() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let mut run = lasting(&out, &state);
    let session = session(&out);
    assert!(text(&lab(&state, &["clean"])).contains("1 sessions are still running"));
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(left(&session, &state).len() >= 4, "{:?}", left(&session, &state));
    let cleaned = lab(&state, &["clean"]);
    assert!(cleaned.status.success(), "{}", text(&cleaned));
    let folder = std::env::temp_dir().join(&session).display().to_string();
    for what in ["processes", &format!("namespace {session}"), &format!("folder {folder}")] {
        assert!(text(&cleaned).contains(&format!("removed {what}")), "{what}: {}", text(&cleaned));
    }
    assert_eq!(left(&session, &state), Vec::<String>::new());
    assert!(text(&lab(&state, &["clean"])).contains("nothing was left behind"));
    assert!(Table::read(&out.join("samples.csv")).len() > 2);
}

#[test]
fn an_interrupted_search_goes_on() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let to = out.to_str().unwrap();
    let words = throughput(
        to,
        &["--capacity", "100000", "--from", "1k", "--to", "4k", "--loss", "50", "--warm-up", "200ms", "--hold", "2s"],
    );
    let trials = || Table::read(&out.join("trials.csv")).len();
    let run = start(&state, &words);
    until("a trial", || trials() > 0);
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let run = run.wait_with_output().unwrap();
    let (before, table) = (trials(), || std::fs::read_to_string(out.join("trials.csv")).unwrap());
    let first = table();
    // The run may have ended before the signal.
    if run.status.code() != Some(0) {
        assert_eq!(run.status.code(), Some(130), "{}", text(&run));
        assert!(text(&run).contains("the same command goes on from here"), "{}", text(&run));
    }
    let again = lab(&state, &words);
    assert!(again.status.success(), "{}", text(&again));
    assert!(text(&again).contains(&format!("{before} trials are there already")), "{}", text(&again));
    assert!(table().starts_with(&first) && trials() >= 3, "{}", text(&again));
    assert!(text(&again).contains("highest rate with at most 50 % lost: "), "{}", text(&again));
    // A different measurement cannot continue there.
    let other = lab(&state, &[&words[..], &["--mtu", "1400"]].concat());
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other).contains("another measurement"), "{}", text(&other));
    assert_eq!(left(&session(&out), &state), Vec::<String>::new());
}

#[test]
fn without_root_what_cannot_be_done_is_named() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let root = rustix::process::geteuid().is_root();
    let (program, own) = (folder.path().join("margay-lab"), folder.path().join("own"));
    std::fs::create_dir(&own).unwrap();
    if root {
        // In a place where any user may start it, with a folder to write to.
        std::fs::copy(LAB, &program).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(if root { program.as_path() } else { Path::new(LAB) });
        command.args(arguments).current_dir(&own).env("MARGAY_LAB_STATE", own.join("state")).env("TMPDIR", &own);
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let output = match lab(&["traffic", "gen", "--preset", "office", "--duration", "300ms", "-q", "-o", "few.pcap"]) {
        Ok(output) => output,
        Err(error) => return margay_testing::not_run(&format!("nothing can be started as another user here: {error}")),
    };
    assert!(output.status.success(), "{}", text(&output));
    let run = |arguments: &[&str]| lab(arguments).unwrap();
    // Operations that work.
    let output = run(&["monitor", "-i", "20ms", "-n", "3"]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).lines().count() == 4,
        "{}",
        text(&output)
    );
    let output = run(&[
        "throughput",
        "-e",
        "simulated",
        "-n",
        "1",
        "--capacity",
        "1000000",
        "--from",
        "1k",
        "--to",
        "1k",
        "--loss",
        "50",
        "--warm-up",
        "0ms",
        "--hold",
        "200ms",
    ]);
    assert!(output.status.success(), "{}", text(&output));
    // Operations that fail, and why.
    for (arguments, said) in [
        (
            &["throughput", "-e", "simulated", "--preset", "office", "-o", "b"][..],
            "it needs root; --interface takes a pair",
        ),
        (&["traffic", "send", "-i", "lo", "--rate", "10pps", "few.pcap"], "raw sockets, which this user may not open"),
        (
            &["sim-engine", "--source", "interface:lo", "--counters", "c", "--capacity", "1"],
            "needs the capability CAP_NET_RAW",
        ),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    assert!(run(&["clean"]).status.success());
}
