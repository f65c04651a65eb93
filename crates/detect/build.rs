//! Looks for Hyperscan (or Vectorscan, which has the same interface) with `pkg-config`; without it, or with
//! `MARGAY_NO_HYPERSCAN` set, the crate is built with the portable matcher alone.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(have_hs)");
    println!("cargo::rerun-if-env-changed=MARGAY_NO_HYPERSCAN");
    if std::env::var_os("MARGAY_NO_HYPERSCAN").is_none()
        && pkg_config::Config::new().atleast_version("5.2").probe("libhs").is_ok()
    {
        println!("cargo::rustc-cfg=have_hs");
    }
}
