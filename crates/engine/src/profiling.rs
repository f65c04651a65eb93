//! The cost of each rule (`profiling.rules`): the settings, and the report at the end of a run.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use margay_config::{Config, ConfigError};
use margay_detect::{Detect, RuleCosts};
use margay_json::Json;
use margay_json::time::Clock;
use margay_output::{error, info};

use crate::settings::{self, flag, number, wrong};

/// The sort key of a report, in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Ticks,
    AvgTicks,
    AvgTicksMatch,
    AvgTicksNoMatch,
    Checks,
    Matches,
    MaxTicks,
}

const SORTS: [(Sort, &str, &str); 7] = [
    (Sort::Ticks, "ticks", "ticks"),
    (Sort::AvgTicks, "avgticks", "average ticks"),
    (Sort::AvgTicksMatch, "avgticks_match", "average ticks (match)"),
    (Sort::AvgTicksNoMatch, "avgticks_no_match", "average ticks (no match)"),
    (Sort::Checks, "checks", "number of checks"),
    (Sort::Matches, "matches", "number of matches"),
    (Sort::MaxTicks, "maxticks", "max ticks"),
];

/// The settings of `profiling.rules`, if it is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Profiling {
    /// One packet in this many is measured.
    pub(crate) every: u32,
    path: PathBuf,
    append: bool,
    sort: Vec<Sort>,
    limit: usize,
    json: bool,
}

impl Profiling {
    /// Reads `profiling`; files without a folder are in `dir`.
    ///
    /// # Errors
    /// An invalid value.
    pub(crate) fn of(config: &Config, dir: &Path) -> Result<Option<Profiling>, ConfigError> {
        let enabled = flag(config, "profiling.rules.enabled", false)?;
        if !enabled || !flag(config, "profiling.rules.active", false)? {
            if enabled {
                info!("profiling", "rules are not profiled: profiling.rules.active is not set");
            }
            return Ok(None);
        }
        let every: u32 = number(config, "profiling.sample-rate", 1)?;
        if !every.is_power_of_two() {
            return Err(wrong(config, "profiling.sample-rate", "must be a power of 2: 1 for every packet"));
        }
        let sort = match config.get("profiling.rules.sort").filter(|s| !s.is_empty()) {
            None => SORTS.iter().map(|s| s.0).collect(),
            Some(name) => match SORTS.iter().find(|s| s.1 == name) {
                Some(s) => vec![s.0],
                None => {
                    let all: Vec<&str> = SORTS.iter().map(|s| s.1).collect();
                    let reason = format!("\"{name}\" is none of {}", all.join(", "));
                    return Err(wrong(config, "profiling.rules.sort", &reason));
                }
            },
        };
        let limit: u32 = number(config, "profiling.rules.limit", 0)?;
        Ok(Some(Profiling {
            every,
            path: dir.join(config.get("profiling.rules.filename").unwrap_or("rule_perf.log")),
            append: flag(config, "profiling.rules.append", true)?,
            sort,
            limit: if limit == 0 { usize::MAX } else { limit as usize },
            json: flag(config, "profiling.rules.json", false)?,
        }))
    }

    /// Writes the report.
    pub(crate) fn write(&self, detect: &Detect, costs: &[RuleCosts]) {
        let mut file = std::fs::OpenOptions::new();
        file.create(true).write(true).append(self.append).truncate(!self.append);
        let written = file.open(&self.path).and_then(|mut f| f.write_all(self.report(detect, costs).as_bytes()));
        match written {
            Ok(()) => info!("profiling", "the costs of rules are in {}", self.path.display()),
            Err(e) => error!("profiling", "{}: cannot be written: {e}", self.path.display()),
        }
    }

    fn report(&self, detect: &Detect, costs: &[RuleCosts]) -> String {
        let mut rows: Vec<Row> = detect
            .rules()
            .iter()
            .zip(costs)
            .filter(|(_, c)| c.checks > 0)
            .map(|(r, c)| Row { sid: r.sid, gid: r.gid, rev: r.rev, costs: *c })
            .collect();
        let total: u64 = rows.iter().fold(0, |t, r| t.saturating_add(r.costs.ticks));
        let mut out = String::new();
        for &sort in &self.sort {
            rows.sort_by(|a, b| b.key(sort).total_cmp(&a.key(sort)).then(a.sid.cmp(&b.sid)));
            let shown = rows.get(..self.limit.min(rows.len())).unwrap_or_default();
            match self.json {
                true => json(shown, sort, total, &mut out),
                false => table(shown, sort, total, &mut out),
            }
        }
        out
    }
}

/// A rule's line.
#[derive(Debug)]
struct Row {
    sid: u32,
    gid: u32,
    rev: u32,
    costs: RuleCosts,
}

fn average(sum: u64, n: u64) -> f64 {
    if n == 0 { 0.0 } else { sum as f64 / n as f64 }
}

impl Row {
    fn avg(&self) -> f64 {
        average(self.costs.ticks, self.costs.checks)
    }
    fn avg_match(&self) -> f64 {
        average(self.costs.ticks_match, self.costs.matches)
    }
    fn avg_no_match(&self) -> f64 {
        average(self.costs.ticks_no_match(), self.costs.checks - self.costs.matches)
    }
    fn percent(&self, total: u64) -> f64 {
        average(self.costs.ticks, total) * 100.0
    }

    fn key(&self, sort: Sort) -> f64 {
        match sort {
            Sort::Ticks => self.costs.ticks as f64,
            Sort::AvgTicks => self.avg(),
            Sort::AvgTicksMatch => self.avg_match(),
            Sort::AvgTicksNoMatch => self.avg_no_match(),
            Sort::Checks => self.costs.checks as f64,
            Sort::Matches => self.costs.matches as f64,
            Sort::MaxTicks => self.costs.max as f64,
        }
    }
}

fn table(rows: &[Row], sort: Sort, total: u64, out: &mut String) {
    let mut date = Vec::new();
    Clock::system().stats(&mut date, settings::now());
    let by = SORTS.iter().find(|s| s.0 == sort).map_or("", |s| s.2);
    let rule = "-".repeat(74);
    let _ = writeln!(out, "  {rule}\n  Date: {}. Sorted by: {by}.\n  {rule}", String::from_utf8_lossy(&date));
    let columns = [
        ("Num", 8),
        ("Rule", 12),
        ("Gid", 8),
        ("Rev", 8),
        ("Ticks", 12),
        ("%", 6),
        ("Checks", 8),
        ("Matches", 8),
        ("Max Ticks", 11),
        ("Avg Ticks", 11),
        ("Avg Match", 11),
        ("Avg No Match", 14),
    ];
    let line = |cell: &dyn Fn(usize, &str, usize) -> String| {
        let cells: Vec<String> = columns.iter().enumerate().map(|(n, (name, w))| cell(n, name, *w)).collect();
        format!("  {}\n", cells.join(" ").trim_end())
    };
    out.push_str(&line(&|_, name, w| format!("{name:<w$}")));
    out.push_str(&line(&|_, _, w| "-".repeat(w)));
    for (n, r) in rows.iter().enumerate() {
        let c = &r.costs;
        let values = [
            (n + 1).to_string(),
            r.sid.to_string(),
            r.gid.to_string(),
            r.rev.to_string(),
            c.ticks.to_string(),
            format!("{:.2}", r.percent(total)),
            c.checks.to_string(),
            c.matches.to_string(),
            c.max.to_string(),
            format!("{:.2}", r.avg()),
            format!("{:.2}", r.avg_match()),
            format!("{:.2}", r.avg_no_match()),
        ];
        out.push_str(&line(&|n, _, w| format!("{:<w$}", values.get(n).map_or("", String::as_str))));
    }
    out.push('\n');
}

fn json(rows: &[Row], sort: Sort, total: u64, out: &mut String) {
    let mut j = Json::new();
    j.item_object();
    j.time("timestamp", settings::now(), &mut Clock::system());
    j.str("sort", SORTS.iter().find(|s| s.0 == sort).map_or("", |s| s.1));
    j.array("rules");
    for r in rows {
        let c = &r.costs;
        j.item_object();
        j.uint("signature_id", u64::from(r.sid));
        j.uint("gid", u64::from(r.gid));
        j.uint("rev", u64::from(r.rev));
        j.uint("checks", c.checks);
        j.uint("matches", c.matches);
        j.uint("ticks_total", c.ticks);
        j.uint("ticks_max", c.max);
        j.uint("ticks_avg", r.avg() as u64);
        j.uint("ticks_avg_match", r.avg_match() as u64);
        j.uint("ticks_avg_nomatch", r.avg_no_match() as u64);
        j.uint("percent", r.percent(total) as u64);
        j.end_object();
    }
    j.end_array();
    j.end_object();
    out.push_str(&String::from_utf8_lossy(j.as_bytes()));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Profiling>, ConfigError> {
        let text = format!("%YAML 1.1\n---\nprofiling:\n  rules:\n    enabled: yes\n{text}\n");
        Profiling::of(&Config::from_str(&text, "t").unwrap(), Path::new("/logs"))
    }

    #[test]
    fn settings_of_rules() {
        assert_eq!(read("").unwrap(), None);
        let p =
            read("    active: yes\n    limit: 5\n    sort: checks\n    append: no\n  sample-rate: 8").unwrap().unwrap();
        assert_eq!((p.every, p.limit, p.append, p.json), (8, 5, false, false));
        assert_eq!((p.sort.as_slice(), p.path), (&[Sort::Checks][..], PathBuf::from("/logs/rule_perf.log")));
        let all = read("    active: yes").unwrap().unwrap();
        assert_eq!((all.sort.len(), all.limit, all.every), (SORTS.len(), usize::MAX, 1));
        for bad in ["    active: yes\n    sort: size", "    active: yes\n  sample-rate: 3"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tables_and_objects() {
        let costs = |checks, matches, ticks, ticks_match| RuleCosts {
            checks,
            matches,
            ticks,
            ticks_match,
            max: 60,
            ..RuleCosts::default()
        };
        let rows = [
            Row { sid: 7, gid: 1, rev: 2, costs: costs(4, 1, 300, 60) },
            Row { sid: 8, gid: 1, rev: 1, costs: costs(1, 0, 100, 0) },
        ];
        let mut out = String::new();
        table(&rows, Sort::Ticks, 400, &mut out);
        let line = out.lines().nth(5).unwrap();
        let want = "1 7 1 2 300 75.00 4 1 60 75.00 60.00 80.00";
        assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), want);
        assert!(out.contains("Sorted by: ticks."));
        let mut out = String::new();
        json(&rows, Sort::MaxTicks, 400, &mut out);
        assert!(out.contains("\"sort\":\"maxticks\"") && out.contains("\"ticks_avg_nomatch\":80"), "{out}");
    }
}
