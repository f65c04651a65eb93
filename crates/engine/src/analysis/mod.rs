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
use std::path::{Path, PathBuf};

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

/// A report that is written as it is made; none where it is not wanted.
struct Report {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Report {
    fn new(dir: &Path, name: &str, wanted: bool) -> Result<Report, Failed> {
        let path = dir.join(name);
        let file = match wanted {
            true => Some(BufWriter::new(File::create(&path).map_err(failed(&path))?)),
            false => None,
        };
        Ok(Report { path, file })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        match &mut self.file {
            Some(f) => f.write_all(bytes).map_err(failed(&self.path)),
            None => Ok(()),
        }
    }

    fn end(mut self) -> Result<(), Failed> {
        match &mut self.file {
            Some(f) => f.flush().map_err(failed(&self.path)),
            None => Ok(()),
        }
    }
}

/// Writes all reports about `rules`, in the order in which they are evaluated. One rule is in memory at a time.
///
/// # Errors
/// A setting that cannot be read, a file that cannot be written.
pub(crate) fn write(config: &Config, dir: &Path, rules: &[Rule]) -> Result<(), Failed> {
    let of_rules = settings::flag(config, "engine-analysis.rules", true)?;
    let of_patterns = settings::flag(config, "engine-analysis.rules-fast-pattern", true)?;
    let mut lines = Report::new(dir, "rules.json", of_rules)?;
    let mut readable = Report::new(dir, "rules_analysis.txt", of_rules)?;
    let mut literals = Report::new(dir, "rules_fast_pattern.txt", of_patterns)?;
    readable.add(text::rules_heading().as_bytes())?;
    literals.add(text::fast_patterns_heading().as_bytes())?;
    let bits = json::Bits::of(rules);
    let (mut patterns, mut summary) = (json::Patterns::default(), text::Summary::default());
    let mut j = Json::new();
    for rule in rules {
        let a = Analysed::of(rule);
        j.clear();
        json::rule(&mut j, &a, &bits);
        lines.add(j.as_bytes())?;
        readable.add(text::rule(&a).as_bytes())?;
        literals.add(text::fast_pattern(&a).as_bytes())?;
        patterns.add(&a);
        summary.add(&a);
    }
    literals.add(summary.report().as_bytes())?;
    for report in [lines, readable, literals] {
        report.end()?;
    }
    if of_rules {
        save(dir, "patterns.json", patterns.report().as_bytes())?;
        if let Some(report) = bits.report() {
            save(dir, "flowbits.json", report.as_bytes())?;
        }
    }
    notice!("engine-analysis", "{} rules analysed; the reports are in {}", rules.len(), dir.display());
    Ok(())
}

/// Writes `rule_group.json`.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write_groups<'r>(
    settings: &GroupSettings,
    dir: &Path,
    rules: impl Iterator<Item = &'r Rule>,
) -> Result<(), Failed> {
    let all: Vec<Analysed> = rules.map(|r| Analysed::of(r).slim()).collect();
    save(dir, "rule_group.json", groups::report(&all, settings).as_bytes())
}

#[cfg(test)]
mod tests;
