//! `--engine-analysis`: reports on rules, for their authors.
//!
//! The log folder receives `rules.json` (one line per rule: its requirements, where it is evaluated, its checks there, and
//! its prefilter literal), `rules_analysis.txt` and `rules_fast_pattern.txt` (the same as text), `patterns.json`,
//! `flowbits.json`, in firewall mode `firewall.json` (the lines of its rules), and with `detect.profiling.grouping.dump-to-disk` also `rule_group.json`. `engine-analysis.rules` and
//! `engine-analysis.rules-fast-pattern` turn single reports off.
//!
//! The formats are Suricata's. The reports are made from the parsed rules, so they include the rules that this build sets
//! aside, marked as such. This code does not run during inspection.

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

/// A report that is written incrementally; `None` if it is off.
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

/// Writes all reports about `rules`, in evaluation order. Only one rule is in memory at a time.
///
/// # Errors
/// An invalid setting, or a file that cannot be written.
pub(crate) fn write(config: &Config, dir: &Path, rules: &[Rule]) -> Result<(), Failed> {
    let of_rules = settings::flag(config, "engine-analysis.rules", true)?;
    let of_patterns = settings::flag(config, "engine-analysis.rules-fast-pattern", true)?;
    let mut lines = Report::new(dir, "rules.json", of_rules)?;
    let wall = rules.iter().any(|r| r.firewall);
    let mut of_firewall = Report::new(dir, "firewall.json", of_rules && wall)?;
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
        if rule.firewall {
            of_firewall.add(j.as_bytes())?;
        }
        readable.add(text::rule(&a).as_bytes())?;
        literals.add(text::fast_pattern(&a).as_bytes())?;
        patterns.add(&a);
        summary.add(&a);
    }
    literals.add(summary.report().as_bytes())?;
    for report in [lines, of_firewall, readable, literals] {
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
/// The file cannot be written.
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
