//! `docs/configuration.md` is generated from the table of settings.

use std::path::Path;

#[test]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
fn the_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let wanted = margay_config::reference::reference();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let first = there.lines().zip(wanted.lines()).position(|(a, b)| a != b);
    assert!(
        there == wanted,
        "docs/configuration.md is not what the table says, from line {} on: `UPDATE=1 cargo test -p margay-config --test \
         reference` writes it",
        first.map_or(there.lines().count().min(wanted.lines().count()), |n| n) + 1
    );
}
