//! Passes the target triple to the code.

fn main() {
    let target = std::env::var("TARGET").unwrap_or_else(|_| "unknown".into());
    println!("cargo:rustc-env=MARGAY_TARGET={target}");
    println!("cargo:rerun-if-changed=build.rs");
}
