//! What loading rules logs and writes.

use margay_detect::{CompileReport, Detect};
use margay_output::{error, info, warning};
use margay_rules::ast::Rule;

use super::{FAIL_CLOSED, FAILED_MAX, FailedRule, Source, say};
use crate::Failed;
use crate::analysis::{self, GroupSettings};

/// Writes the engine analysis of `reported` rules, and the rule groups, if asked.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write_reports(
    source: &Source<'_>,
    groups: &GroupSettings,
    detect: &Detect,
    reported: &[Rule],
) -> Result<(), Failed> {
    let analyses = source.options.engine_analysis;
    if analyses {
        analysis::write(source.config, source.dir, reported)?;
    }
    match groups.dump {
        true if analyses => analysis::write_groups(groups, source.dir, reported.iter()),
        true => analysis::write_groups(groups, source.dir, detect.rules().iter().filter_map(|r| r.tree())),
        false => Ok(()),
    }
}

/// Logs the patterns that match no rule file.
pub(super) fn say_missing(patterns: &[String], fatal: bool) {
    for m in patterns {
        if fatal {
            error!("detect", "No rule files match the pattern {m}");
        } else {
            warning!("detect", "No rule files match the pattern {m}");
        }
    }
}

/// Logs the errors and warnings of rules.
pub(super) fn say_problems(set: &margay_rules::Loaded) {
    for e in &set.errors {
        for m in &e.messages {
            say(m);
        }
    }
    for w in &set.warnings {
        say(&w.message);
    }
}

/// Logs the rules that this build cannot evaluate.
pub(super) fn say_set_aside(set: &margay_rules::Loaded) {
    for r in &set.set_aside {
        let what = r.missing.join(", ");
        info!("rules", "{}: line {}: set aside: this build does not have {what}", r.place.file, r.place.line);
    }
}

/// Checks that all firewall rules were read. `is_firewall` says that the run is a firewall.
///
/// # Errors
/// If one has an error, or needs what this build does not have.
pub(super) fn check_firewall(set: &margay_rules::Loaded, is_firewall: bool) -> Result<(), Failed> {
    let aside = || set.set_aside.iter().filter(|r| r.firewall);
    let failed = set.errors.iter().filter(|e| e.firewall).count() + aside().count();
    if failed > 0 {
        for r in aside() {
            let what = r.missing.join(", ");
            error!("detect", "{}: line {}: this build does not have {what}", r.place.file, r.place.line);
        }
        return Err(Failed::new("firewall", format!("{failed} firewall rules cannot be loaded: {FAIL_CLOSED}")));
    }
    if is_firewall {
        info!("firewall", "{} firewall rules loaded", set.rules.iter().filter(|r| r.firewall).count());
    }
    Ok(())
}

/// The rules that do not parse, then those that do not compile, up to the limit that the socket shows.
pub(super) fn failed_rules(set: &margay_rules::Loaded, report: &CompileReport) -> Vec<FailedRule> {
    let refused = set.errors.iter().filter(|e| !e.silent);
    let mut failed: Vec<FailedRule> = refused.take(FAILED_MAX).map(FailedRule::of).collect();
    let uncompiled = report.errors.iter().zip(&report.error_texts).take(FAILED_MAX.saturating_sub(failed.len()));
    failed.extend(uncompiled.map(|((place, reason), text)| FailedRule::new(text, reason.clone(), place)));
    failed
}
