//! Finds a library for multi-pattern matching with `pkg-config`: Hyperscan, or Vectorscan, which has the same interface
//! and name (`libhs`). With `MARGAY_HS=hyperscan` or `MARGAY_HS=vectorscan`, the build fails if the library is not the
//! named one. Otherwise any of them is used, or the portable matcher if there is none. With the feature `portable`, no
//! library is searched.

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
        (Some(wanted @ ("hyperscan" | "vectorscan")), Err(_)) => {
            fail(&format!("MARGAY_HS={wanted}, but pkg-config finds no libhs: install lib{wanted}-dev"));
        }
        (Some(other), _) => fail(&format!("MARGAY_HS={other}: what may stand there is hyperscan or vectorscan")),
    }
    // A second probe makes cargo link the library.
    if pkg_config::Config::new().atleast_version("5.2").probe("libhs").is_ok() {
        println!("cargo::rustc-cfg=have_hs");
    }
}

/// Which library has that version. Open Hyperscan ended with 5.4.2 and continues as a closed product from 5.5; the
/// versions between are Vectorscan's.
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
