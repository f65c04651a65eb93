//! Support for tests of several crates: material beside the checkout, network namespaces, and an account of the tests that
//! did not run.
//!
//! A test that cannot run calls [`not_run`] and returns. `make test` prints one line for each reason, with the number of tests
//! behind it. With `MARGAY_RUN_ALL=1` in the environment, which CI sets, such a test fails instead.
#![expect(clippy::expect_used, reason = "it is part of tests, which fail by it")]

mod namespace;

use std::io::Write;
use std::path::{Path, PathBuf};

pub use namespace::{ip, pair, pair_of, run_in_namespace};

/// The environment variable with the file that [`not_run`] appends to; `make test` sets it.
pub const ACCOUNT: &str = "MARGAY_NOT_RUN";
/// The environment variable that, set to 1, makes a test fail that cannot run.
pub const RUN_ALL: &str = "MARGAY_RUN_ALL";

/// Records that the current test, or a part of it, did not run.
///
/// `why` is the reason as one clause, the same for every test that has it: the summary groups by it.
///
/// # Panics
/// With `MARGAY_RUN_ALL=1` in the environment.
pub fn not_run(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let program = program();
    assert!(
        std::env::var_os(RUN_ALL).is_none_or(|v| v != "1"),
        "{program}: {test} cannot run: {why} ({RUN_ALL}=1 demands that every test runs)"
    );
    account(why, "left out");
}

/// The name of the test program.
fn program() -> String {
    let program = std::env::current_exe().ok();
    // Cargo names a test program after the file of the test, and adds a digest.
    let program = program.as_deref().and_then(Path::file_stem).map(|s| s.to_string_lossy().into_owned());
    program.as_deref().and_then(|p| p.rsplit_once('-')).map_or(String::new(), |(name, _)| name.to_owned())
}

/// Writes a line to the account. `kind` is `left out`, or `unavailable` if no machine of this kind could run the test.
fn account(why: &str, kind: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let program = program();
    eprintln!("{program}: {test} does not run: {why}");
    if let Some(account) = std::env::var_os(ACCOUNT) {
        let line = format!("{program}\t{test}\t{why}\t{kind}\n");
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&account);
        opened
            .and_then(|mut f| f.write_all(line.as_bytes()))
            .expect("the account of tests that did not run can be written");
    }
}

/// Records that a part of the current test did not run because the machine cannot have what it needs: a kernel feature, or a large
/// emulator. Unlike [`not_run`] this is no failure when every test must run.
///
/// # Panics
/// If the account of tests that did not run cannot be written.
pub fn unavailable(why: &str) {
    account(why, "unavailable");
}

/// The root of the checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file or folder of the material beside the checkout: in `../shared`, or in the folder that `SHARED` names. If it does not
/// exist, returns `None` and records the test as not run.
pub fn shared(path: &str) -> Option<PathBuf> {
    let base = std::env::var_os("SHARED").map_or_else(|| checkout().join("../shared"), PathBuf::from);
    let found = base.join(path);
    if found.exists() {
        return Some(found);
    }
    not_run(&format!("../shared/{path} is not here"));
    None
}

/// The folder with the public conformance cases: `CONFORMANCE_CASES`, otherwise `../shared/conformance/cases`. If it does not
/// exist, returns `None` and records the test as not run.
pub fn conformance_cases() -> Option<PathBuf> {
    let named = std::env::var_os("CONFORMANCE_CASES").filter(|v| !v.is_empty()).map(PathBuf::from);
    let cases = named.unwrap_or_else(|| checkout().join("../shared/conformance/cases"));
    if cases.is_dir() {
        return Some(cases);
    }
    not_run("the conformance cases are not here (../shared/conformance, or CONFORMANCE_CASES)");
    None
}

/// Creates a named pipe.
///
/// # Panics
/// If it cannot be created.
pub fn named_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|s| s.success()), "mkfifo {}", path.display());
}

/// Whether the test runs as root. If not, records the test as not run.
pub fn is_root() -> bool {
    // The owner of /proc/self is the effective user.
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !root {
        not_run("it needs root");
    }
    root
}
