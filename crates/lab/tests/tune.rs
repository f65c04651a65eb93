//! `margay tune` on interfaces of this kernel, in network namespaces of the tests. It needs root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{LAB, text, until};
use serde_json::Value;

/// A network namespace with a pair of interfaces, `v0` and `v1`, of four queues each.
struct Space {
    name: String,
    folder: tempfile::TempDir,
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).output().is_ok_and(|output| output.status.success())
}

impl Space {
    /// `None` if interfaces cannot be created, which is reported.
    fn new(test: &str) -> Option<Space> {
        let name = format!("mtt-{}-{}", std::process::id(), test.len() * 31 + usize::from(test.as_bytes()[3]));
        if !ip(&["netns", "add", &name]) {
            margay_testing::not_run("network namespaces need root and iproute2");
            return None;
        }
        let space = Space { name, folder: tempfile::tempdir().unwrap() };
        let queues = ["numrxqueues", "4", "numtxqueues", "4"];
        let pair = [&["link", "add", "v0"][..], &queues, &["type", "veth", "peer", "name", "v1"], &queues].concat();
        assert!(space.ip(&pair));
        for name in ["v0", "v1"] {
            assert!(space.ip(&["link", "set", name, "addrgenmode", "none", "up"]));
        }
        Some(space)
    }

    fn ip(&self, words: &[&str]) -> bool {
        ip(&[&["-n", &self.name], words].concat())
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Runs `margay tune` within the namespace.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, LAB, "tune"]).args(words);
        command.env("MARGAY_TUNE_STATE", self.state()).env_remove("SSH_CONNECTION");
        command
    }

    fn tune(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Reads a file in `/sys` or `/proc` within the namespace.
    fn read(&self, path: &str) -> String {
        let output = Command::new("ip").args(["netns", "exec", &self.name, "cat", path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn write(&self, path: &str, value: &str) {
        let script = format!("echo {value} > {path}");
        let output = Command::new("ip").args(["netns", "exec", &self.name, "sh", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    /// The discovered facts, without values that change by themselves.
    fn facts(&self) -> Value {
        let mut facts = json(&self.tune(&["discover"]));
        facts["softnet"].take();
        for interface in facts["interfaces"].as_object_mut().unwrap().values_mut() {
            interface["losses"].take();
        }
        facts
    }

    fn queues(&self) -> usize {
        let facts = self.facts();
        facts["interfaces"]["v0"]["channels"]["now"]["rx"].as_u64().unwrap() as usize
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Nothing of a test remains, not even its watchdog.
        self.tune(&["undo"]);
        ip(&["netns", "del", &self.name]);
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// A pair with bad settings: RPS, merging, threaded polling, deferred interrupts.
fn badly_set_up(test: &str) -> Option<Space> {
    let space = Space::new(test)?;
    space.write("/sys/class/net/v0/gro_flush_timeout", "20000");
    space.write("/sys/class/net/v0/napi_defer_hard_irqs", "2");
    space.write("/sys/class/net/v0/queues/rx-2/rps_cpus", "1");
    space.write("/proc/sys/net/ipv6/conf/v0/disable_ipv6", "0");
    // A virtual pair merges packets only on request, and only then polls in a thread.
    let merging = Command::new("ip").args(["netns", "exec", &space.name, "ethtool", "-K", "v0", "gro", "on"]).output();
    let merging = merging.expect("`ip` runs");
    assert!(merging.status.success(), "`ethtool -K v0 gro on` (tools/setup ethtool): {}", text(&merging));
    space.write("/sys/class/net/v0/threaded", "1");
    Some(space)
}

#[test]
fn a_pair_is_tuned_and_given_back() {
    let Some(space) = badly_set_up("a_pair_is_tuned_and_given_back") else { return };
    let before = space.facts();
    // Without --yes nothing changes.
    let plan = space.tune(&["apply", "v0"]);
    assert!(plan.status.success() && text(&plan).contains("nothing was changed"), "{}", text(&plan));
    assert_eq!(space.facts(), before);
    assert_eq!(space.tune(&["plan", "v0", "--check"]).status.code(), Some(3));

    let applied = space.tune(&["apply", "v0", "--yes"]);
    assert!(applied.status.success(), "{}", text(&applied));
    assert!(text(&applied).contains("everything is given back in 60 s unless you confirm"), "{}", text(&applied));
    let waiting = space.tune(&["apply", "v0", "--yes"]);
    assert_eq!(waiting.status.code(), Some(1));
    assert!(text(&waiting).contains("still waits"), "{}", text(&waiting));
    let status = json(&space.tune(&["status", "--json"]));
    assert_eq!(status["sections"][0]["waits"], true);
    assert!(space.tune(&["confirm"]).status.success());

    // As planned, according to the kernel's own files.
    assert_eq!(space.queues(), 1);
    let is = |path: &str| space.read(path);
    assert_eq!(is("/sys/class/net/v0/gro_flush_timeout"), "0");
    assert_eq!(is("/sys/class/net/v0/napi_defer_hard_irqs"), "0");
    assert_eq!(is("/sys/class/net/v0/threaded"), "0");
    assert_eq!(is("/proc/sys/net/ipv6/conf/v0/disable_ipv6"), "1");
    let flags = u32::from_str_radix(is("/sys/class/net/v0/flags").trim_start_matches("0x"), 16).unwrap();
    assert_eq!(flags & 0x180, 0x180, "promiscuous, without ARP");
    assert_eq!(space.facts()["interfaces"]["v0"]["features"]["rx-gro"]["on"], false);

    // Applying twice changes nothing more, and reading back confirms that.
    let again = space.tune(&["apply", "v0", "--yes"]);
    assert!(again.status.success() && text(&again).contains("nothing to change was found"), "{}", text(&again));
    assert_eq!(space.tune(&["plan", "v0", "--check"]).status.code(), Some(0));
    let verified = space.tune(&["verify", "--measure", "200ms"]);
    assert!(verified.status.success(), "{}", text(&verified));
    assert!(
        text(&verified).contains("as they were wanted") && text(&verified).contains("lost at card v0"),
        "{}",
        text(&verified)
    );

    // Another program changes two settings, one of them to its original value.
    space.write("/sys/class/net/v0/gro_flush_timeout", "5000");
    space.write("/proc/sys/net/ipv6/conf/v0/disable_ipv6", "0");
    let verified = space.tune(&["verify"]);
    assert_eq!(verified.status.code(), Some(3), "{}", text(&verified));
    assert!(text(&verified).contains("gro_flush_timeout: 0 became 5000"), "{}", text(&verified));
    let preview = space.tune(&["undo", "--dry-run"]);
    assert!(text(&preview).contains("channels v0: rx 1 tx 4 becomes rx 4 tx 4"), "{}", text(&preview));
    assert_eq!(space.queues(), 1, "a dry run");
    let undone = space.tune(&["undo"]);
    assert!(undone.status.success(), "{}", text(&undone));
    assert!(
        text(&undone).contains("left as it is: file /sys/class/net/v0/gro_flush_timeout: 5000"),
        "{}",
        text(&undone)
    );
    assert_eq!(is("/sys/class/net/v0/gro_flush_timeout"), "5000");
    space.write("/sys/class/net/v0/gro_flush_timeout", "20000");
    assert_eq!(space.facts(), before);
    assert!(text(&space.tune(&["undo"])).contains("nothing was applied"));
}

#[test]
fn nobody_confirms_and_the_session_is_lost() {
    let Some(space) = Space::new("nobody_confirms_and_the_session_is_lost") else { return };
    let before = space.facts();
    // A separate session, whose end kills all its processes.
    let mut command = Command::new("setsid");
    command.args([
        "sh",
        "-c",
        "\"$@\"; echo applied; sleep 1000",
        "sh",
        "ip",
        "netns",
        "exec",
        &space.name,
        LAB,
        "tune",
    ]);
    command.args(["apply", "v0", "--yes", "--confirm-within", "2s"]).env("MARGAY_TUNE_STATE", space.state());
    let mut session = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(session.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("applied\n") {
        assert!(std::io::BufRead::read_line(&mut out, &mut said).unwrap() > 0, "{said}");
    }
    assert!(space.facts() != before, "{said}");
    let group = rustix::process::Pid::from_child(&session);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    session.wait().unwrap();
    until("given back", || space.facts() == before);
    let status = space.tune(&["status"]);
    assert!(text(&status).contains("given back"), "{}", text(&status));
    assert!(text(&space.tune(&["confirm"])).contains("nothing to confirm"));
    let log = std::fs::read_to_string(space.state().join("watchdog.log")).unwrap();
    assert!(log.contains("nobody confirmed within 2 s"), "{log}");
}

/// The journal's file has a size limit. The process is killed (SIGXFSZ) in the middle of the line that exceeds it, and
/// so is the watchdog, which has the same limit, when it begins to restore.
#[test]
fn a_crash_at_every_part_of_the_journal_is_given_back() {
    let Some(space) = badly_set_up("a_crash_at_every_part_of_the_journal") else { return };
    let before = space.facts();
    let mut crashed = 0;
    for blocks in 1.. {
        let state = space.folder.path().join(format!("crash-{blocks}"));
        let script = format!("ulimit -c 0; ulimit -f {blocks}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", "ip", "netns", "exec", &space.name, LAB, "tune", "apply", "v0", "--yes"]);
        let output = command.env("MARGAY_TUNE_STATE", &state).output().unwrap();
        let at = |words: &[&str]| space.command(words).env("MARGAY_TUNE_STATE", &state).output().unwrap();
        let whole = output.status.success();
        if !whole {
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(25), "{}", text(&output));
            crashed += 1;
        }
        let undone = at(&["undo"]);
        assert!(undone.status.success(), "{blocks}: {}", text(&undone));
        assert_eq!(space.facts(), before, "{blocks} blocks: {}", text(&undone));
        if whole {
            break;
        }
        assert!(blocks < 100, "the journal does not end");
    }
    assert!(crashed > 4, "{crashed}");
}

/// The process ends before a line of the journal, after it, or after a setting. `undo` restores everything, whether or
/// not the watchdog has begun to. No setting stays half-way.
#[test]
fn an_end_at_every_step_is_given_back() {
    let Some(space) = badly_set_up("an_end_at_every_step") else { return };
    let before = space.facts();
    for place in ["tune.journal", "tune.written", "tune.set"] {
        let mut ended = 0;
        for step in 1.. {
            let state = space.folder.path().join(format!("{place}-{step}"));
            let at = |words: &[&str], fault: &str| {
                let mut command = space.command(words);
                command.env("MARGAY_TUNE_STATE", &state).env("MARGAY_FAULT", fault).output().unwrap()
            };
            let applied = at(&["apply", "v0", "--yes"], &format!("{place}:{step}:abort"));
            let whole = applied.status.success();
            if !whole {
                let signal = std::os::unix::process::ExitStatusExt::signal(&applied.status);
                assert_eq!(signal, Some(6), "{place} {step}: {}", text(&applied));
                ended += 1;
            }
            let undone = at(&["undo"], "");
            assert!(undone.status.success(), "{place} {step}: {}", text(&undone));
            assert_eq!(space.facts(), before, "{place} {step}: {}", text(&undone));
            if whole {
                break;
            }
            assert!(step < 200, "{place} does not end");
        }
        assert!(ended >= 6, "{place}: {ended}");
    }
}

#[test]
fn who_applies_is_killed_and_the_watchdog_gives_back() {
    let Some(space) = Space::new("who_applies_is_killed") else { return };
    let before = space.facts();
    let applied = space.tune(&["apply", "v0", "--yes", "--confirm-within", "1h"]);
    assert!(applied.status.success(), "{}", text(&applied));
    // As if it had been killed before its last line: the journal is truncated there while the watchdog watches.
    let path = space.state().join("journal");
    let journal = std::fs::read_to_string(&path).unwrap();
    let last = journal.trim_end().rfind('\n').unwrap();
    assert!(journal[last..].contains("\"applied\""));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(last as u64 + 20).unwrap();
    until("given back", || space.facts() == before);
    let log = std::fs::read_to_string(space.state().join("watchdog.log")).unwrap();
    assert!(log.contains("who applied it is gone"), "{log}");
}

#[test]
fn what_somebody_needs_is_left_alone() {
    let Some(space) = Space::new("what_somebody_needs_is_left_alone") else { return };
    assert!(space.ip(&["addr", "add", "198.51.100.1/24", "dev", "v0"]));
    assert!(space.ip(&["route", "add", "default", "dev", "v0"]));
    assert!(space.ip(&["link", "add", "b0", "type", "bridge"]) && space.ip(&["link", "set", "v1", "master", "b0"]));
    let facts = space.facts();
    let reasons = |name: &str| facts["interfaces"][name]["protected"].to_string();
    assert!(reasons("v0").contains("198.51.100.1/24") && reasons("v0").contains("default route"), "{}", reasons("v0"));
    assert!(reasons("v1").contains("part of the bridge b0"), "{}", reasons("v1"));
    assert!(reasons("b0").contains("it is a bridge"), "{}", reasons("b0"));
    for name in ["v0", "v1", "b0"] {
        let refused = space.tune(&["apply", name, "--yes"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(&format!("'{name}' is not tuned")), "{}", text(&refused));
    }
    assert_eq!(space.facts(), facts);
    // The user's own session: its other end is reached through v0.
    let mut command = space.command(&["plan", "v0", "--json"]);
    let plan = command.env("SSH_CONNECTION", "198.51.100.7 50000 203.0.113.1 22").output().unwrap();
    assert!(json(&plan)["refused"].to_string().contains("your own session from 198.51.100.7"), "{}", text(&plan));
    // Apply with --force, and undo.
    let forced = space.tune(&["apply", "v0", "--yes", "--force"]);
    assert!(forced.status.success() && text(&forced).contains("tuned by force"), "{}", text(&forced));
    assert!(space.facts() != facts);
    assert!(space.tune(&["undo"]).status.success());
    assert_eq!(space.facts(), facts);
}

/// One of the kernel's files cannot be written, after others were.
#[test]
fn a_step_that_is_refused_stops_everything() {
    let Some(space) = badly_set_up("a_step_that_is_refused") else { return };
    let before = space.facts();
    let folder = "/proc/sys/net/ipv6/conf/v0";
    let script = format!("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && exec \"$@\"");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &space.name, "unshare", "--mount", "sh", "-c", &script, "sh", LAB, "tune"]);
    command.args(["apply", "v0", "--yes"]).env("MARGAY_TUNE_STATE", space.state());
    let stopped = command.output().unwrap();
    assert_eq!(stopped.status.code(), Some(1), "{}", text(&stopped));
    let said = text(&stopped);
    assert!(said.contains("v0.ipv6 failed: sysctl -w net.ipv6.conf.v0.disable_ipv6=1 was refused"), "{said}");
    assert!(said.contains("--without ipv6 leaves it out") && !said.contains("0 settings were given back"), "{said}");
    assert_eq!(space.facts(), before);
    let status = space.tune(&["status"]);
    assert!(text(&status).contains("v0.ipv6 failed"), "{}", text(&status));
}

#[test]
fn a_tap_has_no_queues_to_change() {
    let Some(space) = Space::new("a_tap_has_no_queues_to_change") else { return };
    if !space.ip(&["tuntap", "add", "t0", "mode", "tap"]) {
        return margay_testing::not_run("there are no taps here");
    }
    let before = space.facts();
    let stopped = space.tune(&["apply", "t0", "--yes"]);
    assert_eq!(stopped.status.code(), Some(1), "{}", text(&stopped));
    assert!(text(&stopped).contains("t0.queues failed: ethtool -L t0"), "{}", text(&stopped));
    assert_eq!(space.facts(), before);
    let without = space.tune(&["apply", "t0", "--yes", "--without", "queues"]);
    assert!(without.status.success(), "{}", text(&without));
    assert!(space.facts() != before);
    assert!(space.tune(&["undo"]).status.success());
    assert_eq!(space.facts(), before);
}

#[test]
fn another_namespace_is_another_machine() {
    let Some(space) = Space::new("another_namespace_is_another_machine") else { return };
    assert!(space.tune(&["apply", "v0", "--yes"]).status.success());
    let elsewhere = Command::new(LAB).args(["tune", "undo"]).env("MARGAY_TUNE_STATE", space.state()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(text(&elsewhere).contains("another network namespace"), "{}", text(&elsewhere));
    assert!(space.tune(&["undo"]).status.success());
}

#[test]
fn a_machine_that_was_recorded_has_the_same_plan() {
    let Some(space) = badly_set_up("a_machine_that_was_recorded") else { return };
    let (record, svg) = (space.folder.path().join("machine.txt"), space.folder.path().join("machine.svg"));
    let path = record.to_str().unwrap();
    let recorded = space.tune(&["discover", "--record", path, "--svg", svg.to_str().unwrap()]);
    assert!(recorded.status.success(), "{}", text(&recorded));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("v0 (veth)"));
    let here = space.tune(&["plan", "v0", "--all"]);
    let there = Command::new(LAB).args(["tune", "plan", "v0", "--all", "--on", path]).output().unwrap();
    assert_eq!(text(&here), text(&there));
    let commands = space.tune(&["plan", "v0", "--commands"]);
    assert!(text(&commands).contains("ethtool -L v0 rx 1 tx 4\n"), "{}", text(&commands));
}

#[test]
fn measured_with_traffic_from_a_second_port() {
    let Some(space) = Space::new("measured_with_traffic") else { return };
    let how = ["--measure", "1s", "--send-on", "v1", "--send", "udp64", "--send-rate", "2kpps"];
    let applied = space.tune(&[&["apply", "v0", "--yes"][..], &how].concat());
    assert!(applied.status.success() && text(&applied).contains("packets sent"), "{}", text(&applied));
    assert!(space.tune(&["confirm"]).status.success());
    let verified = json(&space.tune(&[&["verify", "--json"][..], &how].concat()));
    for when in ["before", "now"] {
        let sent = verified[when]["sent"].as_u64().unwrap();
        let stage = &verified[when]["stages"][0];
        assert_eq!(stage["name"], "card v0");
        assert!(sent > 100 && stage["received"].as_u64().unwrap() >= sent, "{verified:#}");
    }
}

#[test]
fn without_root_what_cannot_be_done_is_named() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let (program, own) = (folder.path().join("margay-lab"), folder.path().join("own"));
    std::fs::create_dir(&own).unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        std::fs::copy(LAB, &program).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let tune = |words: &[&str]| {
        let mut command = Command::new(if root { program.as_path() } else { Path::new(LAB) });
        command.arg("tune").args(words).current_dir(&own).env("MARGAY_TUNE_STATE", own.join("state"));
        if root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let Ok(discovered) = tune(&["discover"]) else {
        return margay_testing::not_run("nothing can be started as another user here");
    };
    let facts = json(&discovered);
    assert_eq!(facts["host"]["denied"], "it needs root (CAP_NET_ADMIN)");
    assert!(!facts["topology"]["cpus"].as_object().unwrap().is_empty());
    // On a recorded machine, only the permission is missing.
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tune/recorded/small-vm.txt");
    let changed = std::fs::read_to_string(recorded).unwrap().replace("000001ffffffffff", "0000000000000000");
    std::fs::write(own.join("vm.txt"), changed).unwrap();
    let plan = tune(&["plan", "--on", "vm.txt"]).unwrap();
    assert!(text(&plan).contains("cannot    it needs root (CAP_NET_ADMIN)"), "{}", text(&plan));
    // On this machine: an interface with --force, which cannot work.
    let Some(name) = facts["interfaces"].as_object().unwrap().keys().next() else { return };
    let applied = tune(&["apply", name, "--force", "--yes"]).unwrap();
    assert_eq!(applied.status.code(), Some(1), "{}", text(&applied));
    assert!(text(&applied).contains("it needs root"), "{}", text(&applied));
    assert!(tune(&["status"]).unwrap().status.success() && tune(&["verify"]).unwrap().status.success());
    // Only root may read what root applied; plans do without it.
    if root {
        let state = folder.path().join("roots");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("journal"), "").unwrap();
        let nobody = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(state.join("journal"), nobody).unwrap();
        let mut command = Command::new(&program);
        command.args(["tune", "plan"]).uid(NOBODY).gid(NOBODY).env("MARGAY_TUNE_STATE", &state);
        let plan = command.output().unwrap();
        assert!(plan.status.success() && text(&plan).contains("not known: what was applied before"), "{}", text(&plan));
        let mut command = Command::new(&program);
        command.args(["tune", "undo"]).uid(NOBODY).gid(NOBODY).env("MARGAY_TUNE_STATE", &state);
        let undo = command.output().unwrap();
        assert!(!undo.status.success() && text(&undo).contains("it needs root"), "{}", text(&undo));
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    for (words, said) in [
        (&["plan", "no-such-interface0"][..], "'no-such-interface0' is not tuned: there is no such interface"),
        (&["plan", "--rate", "5kpps"], "bits a second are needed"),
        (&["plan", "--leave", "some"], "is not a list of CPUs"),
        (&["plan", "--memory", "much"], "--memory"),
        (&["plan", "--on", "/no/such/file"], "cannot read /no/such/file"),
        (&["plan", "-c", "/no/such/file.yaml"], "cannot read the engine's configuration /no/such/file.yaml"),
        (&["plan", "--force"], "INTERFACE"),
        (&["discover", "--irq", "eth1"], "is not a queue"),
    ] {
        let state = tempfile::tempdir().unwrap();
        let output = Command::new(LAB).arg("tune").args(words).env("MARGAY_TUNE_STATE", state.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(if said.contains("cannot read /no") { 1 } else { 2 }), "{words:?}");
        assert!(text(&output).contains(said), "{words:?}: {}", text(&output));
    }
}
