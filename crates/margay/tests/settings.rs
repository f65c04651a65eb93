//! The effect of settings on a run: events of the demo capture with each setting, and without it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::path::Path;
use std::process::Output;

use process::{folder, root};
use serde_json::Value;

/// Runs on the demo capture, with these settings in place of the shipped ones.
fn run(dir: &Path, settings: &[&str]) -> Output {
    let mut command = process::engine(process::MARGAY, &root().join("etc/margay.yaml"), dir);
    command.arg("-r").arg(root().join("demo/demo.pcap")).args(["-k", "none"]);
    for s in settings {
        command.args(["--set", s]);
    }
    let o = command.output().expect("the engine starts");
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    o
}

fn events(dir: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    let all = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
    all.filter(|e| e["event_type"] == kind).collect()
}

/// The settings of the event type `frame`, by its position in the shipped configuration.
const FRAME: &str = "outputs.1.eve-log.types.1.frame";

#[test]
fn as_much_of_a_frame_is_shown_as_is_asked_for() {
    let printed = |dir: &Path| -> usize {
        let frames = events(dir, "frame");
        frames.iter().map(|e| e["frame"]["payload_printable"].as_str().map_or(0, str::len)).max().expect("frames")
    };
    let dir = folder("frames");
    run(&dir, &[&format!("{FRAME}.enabled=yes")]);
    assert!(printed(&dir) > 20);
    let dir = folder("frames-short");
    run(&dir, &[&format!("{FRAME}.enabled=yes"), &format!("{FRAME}.payload-buffer-size=11")]);
    assert_eq!(printed(&dir), 10);
}

#[test]
fn lines_of_the_log_are_chosen() {
    let dir = folder("log-filter");
    let o = run(&dir, &["logging.default-output-filter=^(i|Info): pcap"]);
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(said.lines().count() > 0 && said.lines().all(|l| l.starts_with("Info: pcap: ")), "{said}");
}

#[test]
fn an_unknown_output_is_a_warning() {
    let starts = |name: &str, enabled: &str| {
        let dir = folder(name);
        std::fs::write(dir.join("a.rules"), "").expect("rules");
        let yaml = format!("%YAML 1.1\n---\noutputs:\n  - pcap-info: {{enabled: {enabled}}}\n");
        std::fs::write(dir.join("a.yaml"), yaml).expect("a configuration");
        let mut command = process::engine(process::MARGAY, &dir.join("a.yaml"), &dir);
        let o = command.arg("-r").arg(root().join("demo/demo.pcap")).output().expect("the engine starts");
        (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr))
    };
    let (code, said) = starts("output-unknown", "yes");
    assert!(code == Some(0) && said.contains("there is no output named \"pcap-info\""), "{said}");
    let (code, said) = starts("output-unknown-off", "no");
    assert!(code == Some(0) && !said.contains("there is no output named"), "{said}");
}

#[test]
fn a_wrong_value_ends_the_start() {
    let starts = |name: &str, variable: &str| {
        let dir = folder(name);
        std::fs::write(dir.join("a.rules"), "").expect("rules");
        let mut command = process::engine(process::MARGAY, &root().join("etc/margay.yaml"), &dir);
        command.arg("-r").arg(root().join("demo/demo.pcap")).args(["--set", variable]);
        command.output().expect("the engine starts").status.success()
    };
    assert!(!starts("variable-port", "vars.port-groups.NONE=99999"));
    assert!(!starts("variable-address", "vars.address-groups.NONE=1.2.3"));
    assert!(starts("variable-empty", "vars.port-groups.NONE="));
    // Values of other settings that Suricata refuses.
    assert!(!starts("host-mode", "host-mode=foo") && starts("host-mode-known", "host-mode=router"));
    for table in ["defrag", "host", "ippair"] {
        assert!(!starts(&format!("{table}-memcap"), &format!("{table}.memcap=0")), "{table}");
    }
}
