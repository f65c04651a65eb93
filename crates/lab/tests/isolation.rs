//! An engine of known capacity in each isolation that this machine has: namespaces, a control group, a virtual machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::Path;
use std::process::Output;

use common::{LAB, Table, command, text};
use margay_testing::{is_root, not_run, unavailable};

/// Runs an experiment with one isolation. If the machine lacks it, returns `None` and records the test as not run.
fn isolated(folder: &Path, kind: &str, memory: &str) -> Option<(Output, Table)> {
    let experiment = format!(
        "%YAML 1.1\n---\nabout: a test\nengines:\n  sim: {{adapter: simulated, capacity: 1000000, isolation: [{kind}], memory: [{memory}]}}\n\
         loads:\n  l: {{preset: udp64, rates: [1kpps]}}\nrepeats: 1\nwarm-up: 1s\nhold: 1s\n"
    );
    let file = folder.join("x.yaml");
    std::fs::write(&file, experiment).unwrap();
    let out = folder.join("out");
    let mut command = command(folder, &["compare", &file.to_string_lossy(), "-o", &out.to_string_lossy()]);
    let run = command.output().unwrap();
    if let Some(line) = text(&run).lines().find(|line| line.contains("is left out: ")) {
        left_out(line);
        return None;
    }
    assert!(run.status.success(), "{}", text(&run));
    Some((run, Table::read(&out.join("runs.csv"))))
}

/// Checks that nothing of the session remains.
fn nothing_is_left(folder: &Path) {
    let left: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("mlab"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_engine_in_a_container_sees_the_packets_and_is_measured() {
    for kind in ["container", "container-macvtap"] {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let Some((_, runs)) = isolated(folder.path(), kind, "512MiB") else { continue };
        // Neighbour discovery of the interfaces may add packets.
        assert!(runs.number(0, "decoded") >= runs.number(0, "sent") * 0.99, "{kind}");
        assert!(runs.number(0, "cpu_cores").is_finite() && runs.number(0, "peak_bytes") > 1e6, "{kind}");
        nothing_is_left(folder.path());
    }
}

#[test]
fn an_engine_in_a_virtual_machine_says_what_it_counts() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some((run, runs)) = isolated(folder.path(), "machine", "256MiB") else { return };
    assert!(text(&run).contains(" machine (") && text(&run).contains(" with 256 MiB"), "{}", text(&run));
    // The number depends on the machine, but some must arrive.
    assert!(runs.number(0, "decoded") > 10.0);
    assert!(runs.number(0, "host_cores").is_finite());
    nothing_is_left(folder.path());
}

/// Runs a script as an engine, in the laboratory's container.
fn script(folder: &Path, memory: &str, script: &str) -> Option<String> {
    if !is_root() {
        return None;
    }
    let capture = folder.join("none.pcap");
    std::fs::write(&capture, one_packet()).unwrap();
    let experiment = format!(
        "%YAML 1.1\n---\nabout: a test\nengines:\n  shell:\n    offline: [sh, -uc, '{script}']\n    isolation: [container]\n    memory: [{memory}]\n\
         loads:\n  l: {{capture: none.pcap}}\nrepeats: 1\n"
    );
    let file = folder.join("x.yaml");
    std::fs::write(&file, experiment).unwrap();
    let out = folder.join("out");
    let run = command(folder, &["compare", &file.to_string_lossy(), "-o", &out.to_string_lossy()]).output().unwrap();
    let said = text(&run);
    if let Some(line) = said.lines().find(|line| line.contains("is left out: ")) {
        left_out(line);
        return None;
    }
    let console = std::fs::read_dir(out.join("runs")).unwrap().flatten().next().unwrap().path().join("console.log");
    Some(std::fs::read_to_string(console).unwrap() + &said)
}

/// A capture with one packet of 60 bytes.
fn one_packet() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend([0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1, 1, 0, 60, 60].iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend([0u8; 60]);
    bytes
}

#[test]
fn a_container_has_a_root_processes_and_rights_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "told").unwrap();
    let secret = folder.path().join("secret").display().to_string();
    let words = format!(
        "echo pid $$; cat {secret}; touch /etc/mlab-was-here; touch {{dir}}/may-write && echo wrote; \
         unshare --mount true; mount -t tmpfs x /tmp; grep -E \"^(CapBnd|Seccomp):\" /proc/self/status"
    );
    let Some(said) = script(folder.path(), "256MiB", &words) else { return };
    assert!(said.contains("pid 1\n"), "{said}");
    assert!(!said.contains("told"), "{said}");
    assert!(said.contains("Read-only file system") && !Path::new("/etc/mlab-was-here").exists(), "{said}");
    assert!(said.contains("wrote\n"), "{said}");
    assert!(said.contains("unshare failed: Operation not permitted"), "{said}");
    assert!(said.contains("Seccomp:\t2") && !said.contains("CapBnd:\t000001ffffffffff"), "{said}");
}

#[test]
fn a_containers_memory_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    // About 200 MB in a variable.
    let words = "x=$(head -c 200000000 /dev/zero | tr \"\\\\000\" x); echo has ${#x}";
    let Some(said) = script(folder.path(), "64MiB", words) else { return };
    assert!(!said.contains("has 200000000") && said.contains("1 runs failed"), "{}", &said[..said.len().min(2000)]);
    let folder = tempfile::tempdir().unwrap();
    let Some(said) = script(folder.path(), "2GiB", words) else { return };
    assert!(said.contains("has 200000000"), "{}", &said[..said.len().min(2000)]);
}

#[test]
fn the_launcher_is_not_for_people() {
    let output = std::process::Command::new(LAB).args(["inside", "--root", "/nowhere", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("started by the laboratory"), "{}", text(&output));
}

#[test]
fn reading_the_clock_is_timed_in_each_isolation() {
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("clock.csv");
    let arguments = ["clock", "--calls", "1000", "-n", "1", "-o", &csv.to_string_lossy()];
    // `make lab-experiments` measures virtual machines.
    let mut command = command(folder.path(), &arguments);
    let run = command.env("MARGAY_LAB_GUEST", folder.path()).output().unwrap();
    assert!(run.status.success(), "{}", text(&run));
    let table = Table::read(&csv);
    assert_eq!(table.word(0, "isolation"), "none");
    assert!((0..table.len()).all(|line| table.number(line, "system_ns") > 0.0));
    assert!(text(&run).contains("left out: "), "{}", text(&run));
}

/// Records an isolation that this machine lacks. Not every machine needs an emulator.
fn left_out(line: &str) {
    let why = line.rsplit("left out: ").next().unwrap_or_default();
    if why.contains("qemu") { unavailable(why) } else { not_run(why) }
}
