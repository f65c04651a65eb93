//! A few thousand conversations with this machine's TCP/IP stack in each mode, and those that slipped past before. `make
//! hosts` holds a million.
#![allow(clippy::panic, reason = "a test fails by it")]

use std::process::Command;

fn hold(mode: &str) {
    // Without root, `is_root` records that the test did not run.
    if !margay_testing::is_root() {
        return;
    }
    let dir = std::env::temp_dir().join(format!("margay-hosts-test-{mode}-{}", std::process::id()));
    let run = Command::new(env!("CARGO_BIN_EXE_margay-hosts"))
        .args(["--mode", mode, "--count", "2000", "--seed", "1", "-o"])
        .arg(&dir)
        .output();
    let _ = std::fs::remove_dir_all(&dir);
    match run {
        Ok(out) => {
            let told = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            assert!(out.status.success(), "{told}");
            assert!(told.contains("2000 conversations, seed 1"), "{told}");
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn inline_what_the_host_reads_was_inspected() {
    hold("inline");
}

#[test]
fn passive_what_the_host_reads_was_inspected() {
    hold("passive");
}

/// Conversations of earlier runs that slipped past, made small. None does so now, in either mode.
#[test]
fn what_was_found_before_is_inspected() {
    if !margay_testing::is_root() {
        return;
    }
    let found = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/found");
    let Ok(files) = std::fs::read_dir(found) else { panic!("{found} cannot be read") };
    let mut run = Command::new(env!("CARGO_BIN_EXE_margay-hosts"));
    let mut held = 0;
    for path in files.flatten().map(|f| f.path()) {
        run.arg("--replay").arg(path);
        held += 1;
    }
    match run.output() {
        Ok(out) => {
            let told = String::from_utf8_lossy(&out.stdout);
            let of_these =
                told.lines().filter(|l| l.ends_with("all of it was inspected") || l.starts_with("not all of")).count();
            assert!(
                out.status.success() && held > 0 && of_these == 2 * held,
                "{told}{}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        Err(e) => panic!("{e}"),
    }
}
