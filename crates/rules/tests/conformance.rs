//! Loads every rule file of the conformance cases, if they are present. The rules of cases that expect a load without
//! errors must load or be set aside.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::path::{Path, PathBuf};

use margay_rules::{Context, Loader};

/// Cases with rules that must fail although the run itself succeeds.
const MEANT_TO_FAIL: &[&str] = &["test-bad-", "test-content-limits"];

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    for e in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let p = e.path();
        if p.is_dir() {
            walk(&p, out);
        } else if p.extension().is_some_and(|x| x == "rules") {
            out.push(p);
        }
    }
}

#[test]
fn rules_of_the_cases() {
    let Some(root) = margay_testing::conformance_cases() else { return };
    // Cases that are known to fail may fail because of their rules; tools/conformance reports when one of them passes.
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/expected-failures.txt");
    let list = std::fs::read_to_string(list).expect("the list of known failures");
    let known: Vec<&str> = list.lines().filter_map(|l| l.split_whitespace().next()).collect();
    let ctx = Context::customary();
    let mut files = Vec::new();
    walk(&root, &mut files);
    let mut wrong = Vec::new();
    for f in files {
        let case = f.parent().unwrap_or(&root);
        let yaml = std::fs::read_to_string(case.join("test.yaml")).unwrap_or_default();
        let name = case.strip_prefix(&root).unwrap_or(case).to_string_lossy().into_owned();
        if yaml.contains("exit-code: 1")
            || MEANT_TO_FAIL.iter().any(|m| name.starts_with(m))
            || known.contains(&name.as_str())
        {
            continue;
        }
        let mut l = Loader::new(&ctx);
        // `accept` needs a firewall rule, which has its own files.
        let text = std::fs::read(&f).unwrap();
        if String::from_utf8_lossy(&text).lines().any(|l| l.starts_with("accept:")) {
            l.load_firewall_file(&f).unwrap();
        } else {
            l.load_file(&f).unwrap();
        }
        for e in l.finish().errors.iter().filter(|e| !e.silent) {
            wrong.push(format!("{name}: {e}"));
        }
    }
    assert!(wrong.is_empty(), "{} rules fail:\n{}", wrong.len(), wrong.join("\n"));
}
