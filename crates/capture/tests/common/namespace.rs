//! A network namespace for a test that needs interfaces: it is made and removed with the test, which runs itself again inside of it
//! (`ip netns exec`). What is ignored in such a file is what runs there. It needs root, and says so where it is not it.
#![allow(dead_code)]

use std::process::Command;

/// Runs `ip` with these words; whether it did what they say.
pub(crate) fn ip(words: &str) -> bool {
    Command::new("ip").args(words.split_whitespace()).output().is_ok_and(|o| o.status.success())
}

struct Namespace(String);

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

/// Runs the test `inner` in a namespace of its own, whose name begins with `prefix`.
pub(crate) fn inside(prefix: &str, inner: &str) {
    let ns = format!("{prefix}{}-{inner}", std::process::id());
    if !ip(&format!("netns add {ns}")) {
        eprintln!("{inner}: not tested: network namespaces need root and iproute2");
        return;
    }
    let ns = Namespace(ns);
    let ran = Command::new("ip")
        .args(["netns", "exec", &ns.0])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", inner, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .expect("ip runs");
    let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && text.contains("1 passed"), "{text}");
    eprint!("{text}");
}

/// Tests that each run another one, which is ignored, in a namespace.
macro_rules! in_namespace {
    ($prefix:literal; $($name:ident: $inner:ident,)*) => {
        $(#[test]
        fn $name() {
            namespace::inside($prefix, stringify!($inner));
        })*
    };
}

/// A pair of interfaces, quiet but for what is sent; `up` is what else `ip link set` is told of each.
pub(crate) fn pair(a: &str, b: &str, up: &str) {
    pair_of(a, b, "", up);
}

/// As [`pair`]; `each` is what `ip link add` is told of each, as how many queues it has.
pub(crate) fn pair_of(a: &str, b: &str, each: &str, up: &str) {
    // No neighbour discovery, no multicast reports.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("settings of the namespace");
    assert!(ip(&format!("link add {a} {each} type veth peer name {b} {each}")), "the kernel has virtual interfaces");
    for i in [a, b] {
        assert!(ip(&format!("link set {i} up {up}")));
    }
}

/// Whether a program of XDP is at the interface.
pub(crate) fn has_program(name: &str) -> bool {
    let o = Command::new("ip").args(["link", "show", name]).output().expect("ip runs");
    String::from_utf8_lossy(&o.stdout).contains("xdp")
}
