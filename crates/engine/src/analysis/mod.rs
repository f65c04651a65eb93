//! `--engine-analysis`: reports on rules, for those who write them.
//!
//! Into the log folder go `rules.json` (a line a rule: what it needs, where it is looked at, which checks are made there,
//! which literal the prefilter looks for), `rules_analysis.txt` and `rules_fast_pattern.txt` (the same to read),
//! `patterns.json`, `flowbits.json`, and where `detect.profiling.grouping.dump-to-disk` asks for it `rule_group.json`.
//! `engine-analysis.rules` and `engine-analysis.rules-fast-pattern` turn off what is not wanted.
//!
//! The forms are Suricata's. They are made from the rules as the language means them, so that rules which this build sets
//! aside are in them too, and say so. Nothing here is used while packets are inspected.

mod engines;
mod groups;
mod items;
mod json;
mod model;
mod text;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use margay_config::Config;
use margay_json::Json;
use margay_output::notice;
use margay_rules::ast::Rule;

use crate::{Failed, settings};
pub(crate) use groups::GroupSettings;
use model::Analysed;

fn failed(path: &Path) -> impl Fn(std::io::Error) -> Failed + '_ {
    move |e| Failed::new("engine-analysis", format!("cannot write {}: {e}", path.display()))
}

fn save(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Failed> {
    let path = dir.join(name);
    std::fs::write(&path, bytes).map_err(failed(&path))
}

/// Writes all reports about `rules`, in the order in which they are evaluated.
///
/// # Errors
/// A setting that cannot be read, a file that cannot be written.
pub(crate) fn write(config: &Config, dir: &Path, rules: &[Rule]) -> Result<(), Failed> {
    let all: Vec<Analysed> = rules.iter().map(Analysed::of).collect();
    if settings::flag(config, "engine-analysis.rules", true)? {
        let bits = json::Bits::of(&all);
        let path = dir.join("rules.json");
        let mut file = BufWriter::new(File::create(&path).map_err(failed(&path))?);
        let mut j = Json::new();
        for a in &all {
            j.clear();
            json::rule(&mut j, a, &bits);
            file.write_all(j.as_bytes()).map_err(failed(&path))?;
        }
        file.flush().map_err(failed(&path))?;
        save(dir, "rules_analysis.txt", text::rules(&all).as_bytes())?;
        save(dir, "patterns.json", json::patterns(&all).as_bytes())?;
        if let Some(report) = bits.report() {
            save(dir, "flowbits.json", report.as_bytes())?;
        }
    }
    if settings::flag(config, "engine-analysis.rules-fast-pattern", true)? {
        save(dir, "rules_fast_pattern.txt", text::fast_patterns(&all).as_bytes())?;
    }
    notice!("engine-analysis", "{} rules analysed; the reports are in {}", all.len(), dir.display());
    Ok(())
}

/// Writes `rule_group.json`.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write_groups(settings: &GroupSettings, dir: &Path, rules: &[Rule]) -> Result<(), Failed> {
    let all: Vec<Analysed> = rules.iter().map(Analysed::of).collect();
    save(dir, "rule_group.json", groups::report(&all, settings).as_bytes())
}
