//! Looks for a library of multi-pattern matching with `pkg-config`: Hyperscan, or Vectorscan, which has the same interface and
//! the same name (`libhs`). `MARGAY_HS=hyperscan` or `MARGAY_HS=vectorscan` asks for that one, and the build fails where it is
//! not what is there; without it what is there is taken, and where there is none the portable matcher serves alone. With the
//! feature `portable` nothing is looked for.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(have_hs)");
    println!("cargo::rerun-if-env-changed=MARGAY_HS");
    let wanted = std::env::var("MARGAY_HS").ok().filter(|w| !w.is_empty());
    if std::env::var_os("CARGO_FEATURE_PORTABLE").is_some() {
        if let Some(wanted) = wanted {
            fail(&format!("MARGAY_HS={wanted} and the feature `portable` exclude each other"));
        }
        return;
    }
    let found = pkg_config::Config::new().atleast_version("5.2").cargo_metadata(false).probe("libhs");
    match (wanted.as_deref(), &found) {
        (None, Err(_)) => return,
        (None, Ok(_)) => {}
        (Some(wanted @ ("hyperscan" | "vectorscan")), Ok(lib)) if wanted == name(&lib.version) => {}
        (Some(wanted @ ("hyperscan" | "vectorscan")), Ok(lib)) => fail(&format!(
            "MARGAY_HS={wanted}, but pkg-config finds {} {}: install lib{wanted}-dev, or name the folder of its libhs.pc in \
             PKG_CONFIG_PATH",
            name(&lib.version),
            lib.version
        )),
        (Some(wanted @ ("hyperscan" | "vectorscan")), Err(e)) => {
            fail(&format!("MARGAY_HS={wanted}, but pkg-config finds no libhs: install lib{wanted}-dev ({e})"));
        }
        (Some(other), _) => fail(&format!("MARGAY_HS={other}: what may stand there is hyperscan or vectorscan")),
    }
    // Once more, to tell cargo what to link with.
    if pkg_config::Config::new().atleast_version("5.2").probe("libhs").is_ok() {
        println!("cargo::rustc-cfg=have_hs");
    }
}

/// Which of the two has that version: Hyperscan ended in the open with 5.4.2 and goes on, closed, at 5.5; what lies between
/// is Vectorscan.
fn name(version: &str) -> &'static str {
    let mut parts = version.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    match [parts.next(), parts.next(), parts.next()] {
        [Some(5), Some(4), Some(3..)] => "vectorscan",
        _ => "hyperscan",
    }
}

fn fail(why: &str) {
    println!("cargo::error={why}");
    std::process::exit(1);
}
