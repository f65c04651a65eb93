//! Runs every file of the corpora through its target, and checks that each target has a program, a corpus and a function of the same name.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn corpus_holds() {
    let mut broken = Vec::new();
    for &(name, target) in margay_fuzz_replay::TARGETS {
        let mut files = 0;
        let corpus = fuzz().join("corpus").join(name);
        for entry in std::fs::read_dir(corpus).unwrap_or_else(|e| panic!("corpus of {name}: {e}")) {
            let path = entry.expect("a folder entry").path();
            let data = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            if std::panic::catch_unwind(|| target(&data)).is_err() {
                broken.push(path.display().to_string());
            }
            files += 1;
        }
        assert!(files > 0, "the corpus of {name} is empty");
    }
    assert!(broken.is_empty(), "these do not hold: {broken:#?}");
}

/// Names of a folder's files, without their extensions.
fn names(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(fuzz().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let paths = entries.map(|e| e.expect("a folder entry").path());
    paths.filter_map(|p| Some(p.file_stem()?.to_string_lossy().into_owned())).collect()
}

#[test]
fn targets_are_the_same_everywhere() {
    let targets: BTreeSet<String> = margay_fuzz_replay::TARGETS.iter().map(|t| t.0.to_owned()).collect();
    assert_eq!(targets.len(), margay_fuzz_replay::TARGETS.len(), "a target's name occurs twice");
    assert_eq!(names("fuzz_targets"), targets, "fuzz/fuzz_targets");
    assert_eq!(names("corpus"), targets, "fuzz/corpus");
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let programs = manifest.split("[[bin]]").skip(1).map(|bin| {
        let field = |key: &str| bin.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        let (name, path) = (field("name").expect("a name"), field("path").expect("a path"));
        assert_eq!(path, format!("fuzz_targets/{name}.rs"));
        name.to_owned()
    });
    assert_eq!(programs.collect::<BTreeSet<_>>(), targets, "programs of fuzz/Cargo.toml");
    for name in &targets {
        let text = std::fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).expect("a target");
        assert!(text.contains(&format!("margay_fuzz_replay::{name}(data)")), "{name}.rs runs another target");
    }
}
