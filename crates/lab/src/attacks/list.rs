//! `margay lab attacks list`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use super::cases::Chosen;
use super::declared::{Action, Defence};
use crate::problem::Outcome;

/// List the declared attacks by technique, class or rule
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  margay lab attacks list                              techniques (ATT&CK, CWE, CVE) and how many samples each has
  margay lab attacks list --by class
  margay lab attacks list --by rule --technique T1059  the rules against one technique")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Print a line for each of these
    #[arg(long, default_value = "technique", value_parser = ["technique", "class", "rule"])]
    by: String,
    /// Print JSON, one object on each line
    #[arg(long)]
    json: bool,
}

/// The rules and samples behind a line.
#[derive(Default)]
struct Row {
    rules: Vec<u32>,
    /// Number of samples to stop, to notice and to pass.
    samples: [usize; 3],
    names: Vec<String>,
}

impl Row {
    fn add(&mut self, d: &Defence) {
        self.rules.push(d.sid);
        self.samples[usize::from(d.action == Action::Notice)] += d.stops.len();
        self.samples[2] += d.passes.len();
        self.names.push(d.name.clone());
    }
}

/// The kind of a technique, for grouping.
fn kind(technique: &str) -> &'static str {
    let known = [("T", "ATT&CK"), ("CWE-", "CWE"), ("CVE-", "CVE")];
    known
        .iter()
        .find(|(head, _)| {
            technique.strip_prefix(head).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map_or("other", |(_, kind)| kind)
}

fn rows(all: &[Defence], by: &str) -> BTreeMap<(String, String), Row> {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for d in all {
        let keys = match by {
            "class" => vec![(String::new(), d.class.clone())],
            "rule" => vec![(d.techniques.join(", "), d.sid.to_string())],
            _ => d.techniques.iter().map(|t| (kind(t).to_owned(), t.clone())).collect(),
        };
        for key in keys {
            rows.entry(key).or_default().add(d);
        }
    }
    rows
}

fn table(rows: &BTreeMap<(String, String), Row>, by: &str) -> String {
    let mut out = String::new();
    let width = rows.keys().map(|(_, key)| key.len()).max().unwrap_or(0).max(9);
    let _ = writeln!(out, "{by:width$}  {:>5} {:>5} {:>6} {:>5}  against", "rules", "stop", "notice", "pass");
    for ((group, key), row) in rows {
        let [stop, notice, pass] = row.samples;
        let mut names = row.names.clone();
        names.dedup();
        let more = names.len().saturating_sub(3);
        names.truncate(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let group = if by == "rule" { format!(" ({group})") } else { String::new() };
        let _ = writeln!(
            out,
            "{key:width$}  {:>5} {stop:>5} {notice:>6} {pass:>5}  {}{more}{group}",
            row.rules.len(),
            names.join("; ")
        );
    }
    out
}

/// Runs the command.
///
/// # Errors
/// If declarations cannot be read.
pub(super) fn run(args: &Args) -> Outcome<ExitCode> {
    let all = args.chosen.declarations()?;
    let rows = rows(&all, &args.by);
    if args.json {
        for ((group, key), row) in &rows {
            let [stop, notice, pass] = row.samples;
            let line = serde_json::json!({
                (args.by.as_str()): key, "kind": group, "rules": row.rules, "stop": stop, "notice": notice, "pass": pass, "against": row.names,
            });
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    print!("{}", table(&rows, &args.by));
    let sum = |of: fn(&Defence) -> usize| all.iter().map(of).sum::<usize>();
    println!(
        "{} defences; {} samples of attacks, {} that must pass",
        all.len(),
        sum(|d| d.stops.len()),
        sum(|d| d.passes.len())
    );
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn techniques_are_sorted_by_kind() {
        assert_eq!(
            ["T1190", "CWE-89", "CVE-2021-44228", "MS17-010", "Tx"].map(kind),
            ["ATT&CK", "CWE", "CVE", "other", "other"]
        );
        let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../defence");
        let all = super::super::declared::read(&[own]).unwrap();
        let rows = rows(&all, "technique");
        let sql = &rows[&("CWE".to_owned(), "CWE-89".to_owned())];
        assert!(sql.rules.contains(&9_100_010) && sql.samples[0] > 5 && sql.samples[2] > 0);
        let text = table(&rows, "technique");
        assert!(text.contains("\nT1190 ") && text.contains(" more"), "{text}");
    }
}
