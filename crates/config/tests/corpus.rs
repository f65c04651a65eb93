//! Reads every configuration and command line of the conformance cases, if they are present.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use margay_config::{Cli, Command, Config};
use std::path::{Path, PathBuf};

/// Misspelt and invented settings in the cases, and the invalid value of a case that expects a refusal. All other settings there
/// must be known, and all other values must fit.
const WRONG: &[&str] = &["app-layer.protocols.tls.encrypt-handling", "foobar", "XXX"];

fn find(dir: &Path, wanted: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, wanted, found);
        } else if path.file_name().and_then(|n| n.to_str()).is_some_and(wanted) {
            found.push(path);
        }
    }
}

#[test]
fn every_configuration_is_read_and_known() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    let mut files = Vec::new();
    find(&dir, &|name| name.ends_with(".yaml") && name != "test.yaml", &mut files);
    assert!(files.len() > 300, "{} files", files.len());
    let mut unknown = Vec::new();
    for file in files {
        let config = Config::load(&file).unwrap();
        unknown.extend(config.unknown_keys().iter().chain(&config.unfit_values()).map(ToString::to_string));
    }
    unknown.retain(|line| !WRONG.iter().any(|m| line.contains(&format!("'{m}'"))));
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn every_command_line_is_understood() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    let mut files = Vec::new();
    find(&dir, &|name| name == "test.yaml", &mut files);
    let mut runs = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = if text.starts_with("%YAML") {
            text
        } else {
            format!("%YAML 1.1\n---\n{}", text.trim_start_matches("---"))
        };
        // Some case files have keys with empty parts, which the engine's reader refuses; skip those files.
        let Ok(case) = Config::from_str(&text, &file.display().to_string()) else { continue };
        let Some(args) = case.node("args") else { continue };
        let words: Vec<String> = args.values().flat_map(|v| v.split(char::is_whitespace)).map(str::to_owned).collect();
        match Cli::parse(&words) {
            Ok(Command::Run(_)) => runs += 1,
            Ok(_) => {}
            Err(e) => panic!("{}: {words:?}: {e}", file.display()),
        }
    }
    assert!(runs > 300, "{runs} command lines");
}
