//! `suricata-update` (Debian's package) manages the rules of Margay as it does those of Suricata. Skipped with a word where
//! the tool is not installed.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tool() -> Option<&'static str> {
    let found = Command::new("suricata-update").arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        margay_testing::not_run("suricata-update is not installed (tools/setup suricata-update)");
    }
    found.then_some("suricata-update")
}

const RULES: &str = "alert tcp any any -> any any (msg:\"one\"; content:\"GET\"; sid:1; rev:1;)\n\
    alert http any any -> any any (msg:\"two\"; http.uri; content:\"two\"; sid:2; rev:3;)\n\
    # alert tcp any any -> any any (msg:\"switched off\"; sid:3; rev:1;)\n";

/// Runs the tool with a program by that path; its exit status and what it said.
fn update(tool: &str, dir: &Path, program: &Path, more: &[&str]) -> (bool, String) {
    let output = Command::new(tool)
        .arg(format!("--suricata={}", program.display()))
        .arg(format!("--suricata-conf={}", root().join("etc/margay.yaml").display()))
        .args(["--data-dir", "data", "--output", "rules", "-c", "update.yaml"])
        .args(more)
        .current_dir(dir)
        .output()
        .expect("the tool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

#[test]
fn rules_are_fetched_tested_and_reloaded() {
    let Some(tool) = tool() else { return };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suricata-update");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("data")).expect("a folder");
    std::fs::write(dir.join("source.rules"), RULES).expect("a source");
    std::fs::write(dir.join("local.rules"), "alert udp any any -> any any (msg:\"local\"; sid:4; rev:1;)\n")
        .expect("local rules");
    std::fs::write(dir.join("disable.conf"), "2\n").expect("a filter");
    let source = format!("file://{}", dir.join("source.rules").display());
    std::fs::write(
        dir.join("update.yaml"),
        format!("sources:\n  - {source}\nlocal:\n  - local.rules\nreload-command: touch reloaded\ndist-rule-directory: none\n"),
    )
    .expect("the tool's configuration");
    let margay = Path::new(env!("CARGO_BIN_EXE_margay"));
    // By its own name, and by that which the tool looks for.
    let link = dir.join("suricata");
    std::os::unix::fs::symlink(margay, &link).expect("a link");
    for program in [margay, &link] {
        let _ = std::fs::remove_dir_all(dir.join("rules"));
        let _ = std::fs::remove_file(dir.join("reloaded"));
        std::fs::create_dir_all(dir.join("rules")).expect("a folder");
        let (ok, said) = update(tool, &dir, program, &["--disable-conf", "disable.conf", "--force"]);
        assert!(ok, "{said}");
        assert!(said.contains("Found Suricata version 8.0.6"), "{said}");
        assert!(said.contains("Testing with suricata -T") && !said.contains("<Error>"), "{said}");
        assert!(!said.contains("not found in build-info"), "{said}");
        assert!(dir.join("reloaded").exists(), "the reload command was not run:\n{said}");
        let rules = std::fs::read_to_string(dir.join("rules/suricata.rules")).expect("the rules");
        let on = |sid: u32| rules.lines().any(|l| l.starts_with("alert") && l.contains(&format!("sid:{sid};")));
        assert_eq!([1, 2, 3, 4].map(on), [true, false, false, true], "{rules}");
    }
    // What does not load is not taken: the rules from before stay.
    std::fs::write(dir.join("source.rules"), "alert tcp any any -> any any (msg:\"bad\"; nothing; sid:5; rev:1;)\n")
        .expect("a source");
    let before = std::fs::read_to_string(dir.join("rules/suricata.rules")).expect("the rules");
    let (ok, said) = update(tool, &dir, margay, &["--force"]);
    let after = std::fs::read_to_string(dir.join("rules/suricata.rules")).expect("the rules");
    assert!(!ok && said.contains("nothing") && said.contains("Restoring previous rules"), "{said}");
    assert_eq!(before, after);
}

#[test]
fn rules_stay_in_their_files_where_that_is_asked_for() {
    let Some(tool) = tool() else { return };
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("suricata-update-no-merge");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("rules")).expect("a folder");
    std::fs::create_dir_all(dir.join("data")).expect("a folder");
    std::fs::write(dir.join("source.rules"), RULES).expect("a source");
    std::fs::write(
        dir.join("update.yaml"),
        format!("sources:\n  - file://{}\ndist-rule-directory: none\n", dir.join("source.rules").display()),
    )
    .expect("the tool's configuration");
    let margay = Path::new(env!("CARGO_BIN_EXE_margay"));
    let (ok, said) = update(tool, &dir, margay, &["--no-merge", "--no-test", "--no-reload", "--force"]);
    assert!(ok, "{said}");
    assert!(dir.join("rules/source.rules").exists(), "{said}");
}
