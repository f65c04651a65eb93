//! A network namespace for a test that needs interfaces. The test creates it, runs its own program again inside it (`ip netns
//! exec`), and removes it. The inner half is an ignored test, which is started by name.

use std::process::Command;

use crate::not_run;

/// Runs `ip` with these words. Returns whether it succeeded.
pub fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split_whitespace()).output().is_ok_and(|o| o.status.success())
}

struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

/// Runs the ignored test `inner` of this program in a new namespace, whose name begins with `prefix`. If none can be created,
/// records the test as not run.
///
/// # Panics
/// If the test fails.
pub fn run_in_namespace(prefix: &str, inner: &str) {
    let ns = format!("{prefix}{}-{inner}", std::process::id());
    if !ip(&format!("netns add {ns}")) {
        return not_run("network namespaces need root and iproute2");
    }
    let ns = Namespace(ns);
    let ran = Command::new("ip")
        .args(["netns", "exec", &ns.0])
        .arg(std::env::current_exe().expect("the test program has a path"))
        .args(["--exact", inner, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .expect("ip runs");
    let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && text.contains("1 passed"), "{text}");
    eprint!("{text}");
}

/// Declares tests that each run an ignored one in a network namespace: `in_namespace! { "prefix"; outer: inner, … }`.
#[macro_export]
macro_rules! in_namespace {
    ($prefix:literal; $($name:ident: $inner:ident,)*) => {
        $(#[test]
        fn $name() {
            $crate::run_in_namespace($prefix, stringify!($inner));
        })*
    };
}
/// Creates a pair of virtual interfaces that carry only the test's packets. `up` is appended to `ip link set … up` of each.
///
/// # Panics
/// If the kernel refuses.
pub fn pair(a: &str, b: &str, up: &str) {
    pair_of(a, b, "", up);
}

/// As [`pair`]. `each` is added to the options that create each interface, such as its number of queues.
///
/// # Panics
/// If the kernel refuses.
pub fn pair_of(a: &str, b: &str, each: &str, up: &str) {
    // No neighbour discovery, no multicast reports.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
        .expect("the namespace's settings can be written");
    assert!(ip(&format!("link add {a} {each} type veth peer name {b} {each}")), "the kernel has virtual interfaces");
    for i in [a, b] {
        assert!(ip(&format!("link set {i} up {up}")));
    }
}
