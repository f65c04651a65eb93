//! The commands around a run: help, manual pages, completions, the first configuration.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use process::{MARGAY, folder, root};

/// Runs in that folder with these lines as answers.
fn run(dir: &Path, args: &[&str], answers: &str) -> Output {
    let mut c = Command::new(MARGAY);
    c.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = c.spawn().expect("it starts");
    // One that asks nothing has closed its end.
    let _ = child.stdin.take().expect("its input").write_all(answers.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn said(o: &Output) -> String {
    out(o) + &String::from_utf8_lossy(&o.stderr)
}

/// Runs a program on a text where it is installed; what it said on standard error.
fn checked(program: &str, args: &[&str], text: &str) -> Option<(bool, String)> {
    let mut c = Command::new(program);
    c.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).env("MANWIDTH", "100");
    let Ok(mut child) = c.spawn() else {
        margay_testing::not_run(&format!("{program} is not installed"));
        return None;
    };
    child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("it reads");
    let o = child.wait_with_output().expect("it ends");
    Some((o.status.success(), String::from_utf8_lossy(&o.stderr).into_owned()))
}

#[test]
fn shells_take_their_completions() {
    let dir = folder("completions");
    for shell in ["bash", "zsh", "fish"] {
        let o = run(&dir, &["completions", shell], "");
        assert!(o.status.success(), "{}", said(&o));
        let text = out(&o);
        for option in ["--pcap-file-continuous", "--home-net", "--strict"] {
            assert!(text.contains(option.trim_start_matches('-')), "{shell}: {option}");
        }
        let args: &[&str] = if shell == "fish" { &["--no-execute"] } else { &["-n"] };
        if let Some((good, errors)) = checked(shell, args, &text) {
            assert!(good && errors.is_empty(), "{shell}: {errors}");
        }
    }
    // What bash offers, by its own means.
    let text = out(&run(&dir, &["completions", "bash"], ""));
    let offered = |words: &str, n: usize| {
        let script =
            format!("{text}\nCOMP_WORDS=({words}); COMP_CWORD={n}; _margay; printf '%s\\n' \"${{COMPREPLY[@]}}\"");
        let o = Command::new("bash").args(["-c", &script]).current_dir(&dir).output().expect("bash");
        out(&o).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(offered("margay --af", 1).contains(&"--af-packet".to_owned()));
    assert_eq!(offered("margay -k a", 2), ["all"]);
    assert_eq!(offered("margay rules ex", 2), ["explain"]);
    assert!(offered("margay rules check --js", 3).contains(&"--json".to_owned()));
    let o = run(&dir, &["completions", "tcsh"], "");
    assert!(o.status.code() == Some(2) && said(&o).contains("fish"), "{}", said(&o));
}

#[test]
fn manual_pages_are_clean() {
    let dir = folder("manual");
    let o = run(&dir, &["help", "man", "--all", "."], "");
    assert!(o.status.success(), "{}", said(&o));
    let pages = ["margay.1", "margay-rules.1", "margay-ctl.1", "margay-setup.1", "margay-tune.1", "margay-lab.1"];
    for page in pages {
        let text = std::fs::read_to_string(dir.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.starts_with(".TH ") && text.contains(".SH SYNOPSIS"), "{page}");
        if let Some((good, warnings)) = checked("groff", &["-man", "-Tutf8", "-ww", "-z"], &text) {
            assert!(good && warnings.is_empty(), "{page}: {warnings}");
        }
    }
    assert_eq!(out(&run(&dir, &["help", "man"], "")), std::fs::read_to_string(dir.join("margay.1")).expect("a page"));
}

#[test]
fn topics_are_explained() {
    let dir = folder("topics");
    for (topic, word) in [
        (&["rules"][..], "explain"),
        (&["rules", "check"], "--strict"),
        (&["ctl"], "reload-rules"),
        (&["stream.memcap"], "64mb"),
        (&["content"], "content"),
        (&[], "--af-packet"),
    ] {
        let o = run(&dir, &[&["help"], topic].concat(), "");
        assert!(o.status.success() && out(&o).contains(word), "{topic:?}: {}", said(&o));
    }
    let o = run(&dir, &["help", "no", "such"], "");
    assert!(o.status.code() == Some(2) && said(&o).contains("no such"), "{}", said(&o));
    let o = run(&dir, &["rules", "--help"], "");
    assert!(o.status.success() && out(&o).contains("check") && out(&o).contains("explain"), "{}", said(&o));
    let o = run(&dir, &["bench", "parallel"], "");
    assert!(o.status.code() == Some(2) && said(&o).contains("margay lab parallel"), "{}", said(&o));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in ["--help", "--list-keywords=csv", "lab --help", "completions bash", "help man", "--dump-config"] {
        // The reader is gone before there is anything to read.
        let script = format!("{{ sleep 0.3; {MARGAY} {args}; echo $? >&3; }} 3>&2 | true");
        let o = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let errors = String::from_utf8_lossy(&o.stderr).into_owned();
        assert_eq!(errors.trim(), "0", "{args}: {errors}");
    }
}

#[test]
fn a_first_configuration_from_options() {
    let dir = folder("setup");
    let rules = root().join("demo/demo.rules").display().to_string();
    let base = ["setup", "--yes", "--interface", "lo", "--rules", &rules];
    let with = |more: &[&str]| run(&dir, &[&base[..], more].concat(), "");
    let o = with(&["--output", "a.yaml", "--home-net", "192.0.2.0/24"]);
    assert!(o.status.success() && said(&o).contains("passes its test"), "{}", said(&o));
    let text = std::fs::read_to_string(dir.join("a.yaml")).expect("a configuration");
    assert!(text.lines().count() < 30 && text.contains("192.0.2.0/24"), "{text}");
    // A run takes it.
    let dump = out(&run(&dir, &["-c", "a.yaml", "--dump-config"], ""));
    for line in ["vars.address-groups.HOME_NET = [192.0.2.0/24]", "af-packet.0.interface = lo", "outputs.1 = eve-log"] {
        assert!(dump.lines().any(|l| l == line), "{line}: {dump}");
    }
    // What is there stays, unless it is told otherwise.
    let o = with(&["--output", "a.yaml", "--home-net", "any"]);
    assert!(o.status.code() == Some(1) && said(&o).contains("--force"), "{}", said(&o));
    assert_eq!(std::fs::read_to_string(dir.join("a.yaml")).expect("a configuration"), text);
    assert!(with(&["--output", "a.yaml", "--force"]).status.success());
    // What does not pass its test is not written.
    let o = with(&["--output", "b.yaml", "--home-net", "10.0.0.0/33"]);
    assert!(o.status.code() == Some(1) && said(&o).contains("10.0.0.0/33"), "{}", said(&o));
    let left: Vec<_> = std::fs::read_dir(&dir).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert!(left.iter().all(|n| ["a.yaml", "margay-defaults.yaml"].iter().any(|k| n == k)), "{left:?}");
    // Inline has two interfaces that name each other.
    let o = with(&["--output", "c.yaml", "--mode", "inline", "--interface", "e9"]);
    assert!(o.status.success(), "{}", said(&o));
    let dump = out(&run(&dir, &["-c", "c.yaml", "--dump-config"], ""));
    for line in ["af-packet.0.copy-iface = e9", "af-packet.1.copy-iface = lo", "af-packet.1.copy-mode = ips"] {
        assert!(dump.lines().any(|l| l == line), "{line}: {dump}");
    }
    let o = with(&["--output", "d.yaml", "--install", "--unit-dir", "."]);
    assert!(o.status.success() && said(&o).contains("systemctl"), "{}", said(&o));
    let unit = std::fs::read_to_string(dir.join("margay.service")).expect("a unit");
    let start = unit.lines().find(|l| l.starts_with("ExecStart=")).expect("a start");
    assert!(start.contains(MARGAY) && start.contains("/d.yaml") && unit.contains("[Install]"), "{start}");
}

#[test]
fn a_first_configuration_from_answers() {
    let dir = folder("setup-asked");
    let o = run(&dir, &["setup", "--output", "a.yaml"], "passive\nlo\n198.51.100.0/24\n/no/such.rules\n");
    assert!(o.status.success(), "{}", said(&o));
    assert!(said(&o).contains("suricata-update") && said(&o).contains("Networks to protect"), "{}", said(&o));
    let text = std::fs::read_to_string(dir.join("a.yaml")).expect("a configuration");
    assert!(
        text.contains("interface: lo") && text.contains("198.51.100.0/24") && text.contains("/no/such.rules"),
        "{text}"
    );
    let o = run(&dir, &["setup", "--output", "b.yaml"], "passive\n");
    assert!(o.status.code() == Some(1) && said(&o).contains("--yes"), "{}", said(&o));
    assert!(!dir.join("b.yaml").exists());
}

#[test]
fn a_sensor_has_no_plots() {
    let of = |more: &[&str]| {
        let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        c.args(["tree", "--offline", "--locked", "-p", "margay", "-e", "normal", "--prefix", "none"]).args(more);
        let o = c.current_dir(root()).output().expect("cargo");
        assert!(o.status.success(), "{}", said(&o));
        out(&o)
    };
    let drawing = |text: &str| text.lines().any(|l| ["resvg ", "usvg ", "tiny-skia "].iter().any(|w| l.starts_with(w)));
    assert!(drawing(&of(&[])));
    assert!(!drawing(&of(&["--no-default-features", "--features", "mimalloc"])));
}
