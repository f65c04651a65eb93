//! Tests in network namespaces of their own (`margay_testing`).
#![allow(dead_code, unused_imports, unused_macros)]

use std::process::Command;

pub(crate) use margay_testing::{ip, pair, pair_of, run_in_namespace as inside};

/// Declares tests that each run an ignored one in a network namespace.
macro_rules! in_namespace {
    ($($rest:tt)*) => { margay_testing::in_namespace! { $($rest)* } };
}

/// Whether an XDP program is attached to the interface.
pub(crate) fn has_program(name: &str) -> bool {
    let o = Command::new("ip").args(["link", "show", name]).output().expect("ip runs");
    String::from_utf8_lossy(&o.stdout).contains("xdp")
}
