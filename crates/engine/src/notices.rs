//! Messages at the start about unknown settings and options, and those without effect.

use margay_config::{Config, Ignored, RunOptions};
use margay_output::{notice, warning};

/// Limit of the settings that one line names.
const NAMED: usize = 12;

/// Logs a warning for each unknown setting, and a notice for each reason why settings or options have no effect.
pub(crate) fn say(config: &Config, options: &RunOptions) {
    for note in config.unknown_keys() {
        warning!("conf", "{note}");
    }
    for line in lines(config, options) {
        notice!("conf", "{line}");
    }
}

/// Logs a warning for each value that its setting does not allow, and that nothing has read: a value that is read is refused.
pub(crate) fn unfit(config: &Config) {
    for note in config.unfit_values() {
        warning!("conf", "{note}");
    }
}

/// The notices.
fn lines(config: &Config, options: &RunOptions) -> Vec<String> {
    let given = margay_config::unserved(options).into_iter().filter(|u| !u.refused);
    let mut lines: Vec<String> = given.map(|u| format!("{} has no effect: {}", u.option, u.why)).collect();
    lines.extend(ignored(&config.ignored_keys()));
    lines
}

/// A line for each reason, in configuration order.
fn ignored(all: &[Ignored]) -> Vec<String> {
    let mut reasons: Vec<&'static str> = Vec::new();
    for i in all {
        if !reasons.contains(&i.why) {
            reasons.push(i.why);
        }
    }
    let line = |why: &&'static str| {
        let of: Vec<&Ignored> = all.iter().filter(|i| i.why == *why).collect();
        let names: Vec<&str> = of.iter().map(|i| i.path.as_str()).collect();
        let place = of.first().map_or_else(String::new, |i| format!("{}: ", i.place));
        let has = if names.len() == 1 { "has" } else { "have" };
        format!("{place}{} {has} no effect: {why}", named(&names))
    };
    reasons.iter().map(line).collect()
}

/// The names, up to the limit of a line.
fn named(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t.yaml").unwrap();
        lines(&config, &RunOptions::default())
    }

    #[test]
    fn one_line_for_each_reason() {
        let said = said(
            "stream: {prealloc-sessions: 5}\nflow: {managers: 3, recyclers: 2}\nspm-algo: bm\nmax-pending-packets: 1024\n",
        );
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(
            said[1].starts_with("t.yaml:4:8: flow.managers, flow.recyclers have no effect: each worker"),
            "{said:?}"
        );
    }

    #[test]
    fn options_without_effect() {
        let options = RunOptions { pcap_file_buffer_size: Some(1 << 20), ..RunOptions::default() };
        let said = lines(&Config::new(), &options);
        assert!(said.len() == 1 && said[0].starts_with("--pcap-file-buffer-size has no effect: "), "{said:?}");
    }

    #[test]
    fn the_shipped_configuration_needs_no_word() {
        let config =
            Config::load(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/margay.yaml")).unwrap();
        assert_eq!(lines(&config, &RunOptions::default()), [""; 0]);
    }
}
