//! A reload of the same rules changes nothing: captures give the same alerts, whenever the reload happens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use margay_capture::{CaptureSource, DirOptions, Event};
use margay_config::{Checksums, RuleFiles, RunOptions};
use margay_rules::Context;
use serde_json::Value;

use super::Control;
use crate::engines::{self, Loading};
use crate::exception::Policies;
use crate::settings;
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::watching::Watching;
use crate::worker;

/// Everything switched on, for a run in `dir`.
fn configuration(dir: &Path) -> PathBuf {
    let mut text =
        "%YAML 1.1\n---\nstats:\n  enabled: no\noutputs:\n- eve-log:\n    enabled: yes\n    filename: eve.json\n    \
                    types: [alert]\napp-layer:\n  protocols:\n"
            .to_owned();
    for p in margay_app::PROTOCOLS {
        text.push_str(&format!("    {}:\n      enabled: yes\n", p.config));
    }
    let context = Context::customary();
    for (group, values) in [("address-groups", &context.addresses), ("port-groups", &context.ports)] {
        let prefix = if group == "address-groups" { "vars:\n" } else { "" };
        text.push_str(&format!("{prefix}  {group}:\n"));
        values.iter().for_each(|(n, v)| text.push_str(&format!("    {n}: \"{v}\"\n")));
    }
    let file = dir.join("margay.yaml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The alerts of a capture, with a reload after every so many packets. `None` if the rules do not load.
fn alerts(name: &str, rules: &Path, capture: &Path, every: Option<usize>) -> Option<Vec<String>> {
    let dir = std::env::temp_dir().join(format!("margay-same-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let options = RunOptions {
        config: Some(configuration(&dir)),
        log_dir: Some(dir.clone()),
        data_dir: Some(dir.clone()),
        checksums: Some(Checksums::None),
        rules: RuleFiles::Exclusive(rules.display().to_string()),
        ..RunOptions::default()
    };
    let config = settings::configuration(&options).unwrap();
    let set = engines::load(&Loading { config: &config, options: &options, ips: false, dir: &dir, trees: false }, None)
        .ok()?;
    let policies = Policies::from_config(&config, false, false).unwrap();
    let signals = Arc::new(Signals::default());
    let control = Control::new(config, options, false, dir.clone(), Arc::new(set), signals, Watching::Nobody).unwrap();
    let mut made = None;
    let post = control
        .enter(|set| {
            let c = &control;
            made = Some(worker::worker(&c.config, &c.options, false, &policies, set, &dir, &Watching::Nobody)?);
            Ok(())
        })
        .unwrap();
    let mut worker = made.unwrap();
    let mut reporter = Reporter::new(&control.config, false).unwrap();
    // The test does not wait for the worker, which takes the rules right here.
    control.leave(&post);
    let mut source = CaptureSource::open(capture, DirOptions::default(), None).ok()?;
    let mut packets = 0;
    loop {
        match source.next_event(1, SystemTime::now) {
            Event::Batch(batch) => {
                for frame in batch.iter() {
                    worker.frame(&frame);
                    packets += 1;
                }
                worker.expire();
                if every.is_some_and(|n| packets % n == 0) {
                    let before = control.engines();
                    assert!(control.reload().is_ok(), "{name}");
                    let set = control.engines();
                    let wants = control.wants(&set).unwrap();
                    let install =
                        crate::worker::engines::Install::new(set, &before, wants, &Watching::Nobody, false).unwrap();
                    post.install(install).unwrap();
                    post.serve(&mut worker, &mut reporter);
                }
            }
            Event::Done => break,
            _ => {}
        }
    }
    worker.finish();
    worker.pipeline.stages.outputs.finish();
    let text = std::fs::read_to_string(dir.join("eve.json")).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    let line = |l: &str| {
        let e: Value = serde_json::from_str(l).unwrap();
        format!("{} {} {} {}", e["pcap_cnt"], e["alert"]["signature_id"], e["tx_id"], e["direction"])
    };
    Some(text.lines().map(line).collect())
}

#[test]
fn the_demo() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo");
    let (rules, capture) = (demo.join("demo.rules"), demo.join("demo.pcap"));
    let want = alerts("demo", &rules, &capture, None).expect("rules");
    assert!(!want.is_empty());
    for every in [1, 2, 3, 7] {
        assert_eq!(alerts("demo", &rules, &capture, Some(every)), Some(want.clone()), "every {every}");
    }
}

/// Some of the public cases; all of them with MARGAY_ALL_CASES. As many reloads as fit into a short time.
#[test]
fn public_cases() {
    let Some(cases) = margay_testing::conformance_cases() else { return };
    let entries = std::fs::read_dir(&cases).expect("the folder can be read");
    let step = if std::env::var_os("MARGAY_ALL_CASES").is_some() { 1 } else { 40 };
    let mut dirs: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join("test.rules").exists()).collect();
    dirs.sort();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for dir in dirs.iter().step_by(step) {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        let mut captures = files.filter(|f| f.extension().is_some_and(|e| e == "pcap" || e == "pcapng"));
        let (Some(capture), None) = (captures.next(), captures.next()) else { continue };
        let size = std::fs::metadata(&capture).map_or(u64::MAX, |m| m.len());
        if size > 200_000 || std::fs::metadata(dir.join("test.rules")).is_ok_and(|m| m.len() > 20_000) {
            continue;
        }
        let (name, rules) = (dir.file_name().unwrap().to_string_lossy().into_owned(), dir.join("test.rules"));
        let Some(want) = alerts(&name, &rules, &capture, None) else { continue };
        seen += usize::from(!want.is_empty());
        let every = 1 + (size / 4000) as usize;
        let got = alerts(&name, &rules, &capture, Some(every));
        if got.as_ref() != Some(&want) {
            wrong.push(format!("{name}, every {every}:\n  {want:?}\n  {got:?}"));
        }
    }
    assert!(seen > 0, "no case at {} has alerts", cases.display());
    eprintln!("{seen} cases with alerts");
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
