//! `logging:`: the targets of the engine's messages.

use std::path::Path;

use margay_config::{Config, ConfigError, Node, RunOptions};
use margay_detect::DetectConfig;
use margay_detect::pcre::{Pcre, PcreLimits, PcreResult, PcreScratch};
use margay_output::log::{Level, LineFilter, LogOutput, LogTarget, init};
use margay_output::priority::Facility;
use margay_output::{error, warning};

use crate::Failed;

/// The default identity in syslog.
const IDENTITY: &str = "suricata";

/// The items of `logging.outputs`.
const TARGETS: [&str; 3] = ["console", "file", "syslog"];

/// Opens the targets of `logging.outputs`; by default, the console.
///
/// # Errors
/// An invalid value.
pub(crate) fn open(config: &Config, options: &RunOptions, dir: &Path) -> Result<(), Failed> {
    let mut outputs = outputs(config, dir)?;
    if options.test && !dir.is_dir() {
        // A test creates no folder.
        outputs.retain(|o| !matches!(o.target, LogTarget::File(_)));
    }
    let filter = filter(config)?.map(|f| -> LineFilter { Box::new(move |line| f.takes(line)) });
    // The engine inspects traffic even if its log cannot be written.
    if let Err(e) = init(&outputs, Level::verbose(options.verbose), filter) {
        error!("logopenfile", "{e}");
    }
    for item in config.node("logging.outputs").iter().flat_map(Node::children) {
        let name = item.entry().0;
        if !TARGETS.contains(&name) {
            warning!("conf", "{}: logging cannot go to \"{name}\", only to console, file or syslog", item.place());
        }
    }
    Ok(())
}

/// An expression that log lines must match.
#[derive(Debug)]
struct Filter(Pcre);

impl Filter {
    fn takes(&self, line: &[u8]) -> bool {
        // Messages are rare, and come from any thread.
        !matches!(self.0.find_at(line, 0, &mut PcreScratch::new()), PcreResult::NoMatch)
    }
}

const FILTER: &str = "logging.default-output-filter";

/// The configured expression.
pub(crate) fn configured_filter(config: &Config) -> Option<&str> {
    config.get(FILTER).filter(|t| !t.is_empty())
}

/// Reads `logging.default-output-filter`; the variable SC_LOG_OP_FILTER takes precedence.
///
/// # Errors
/// An invalid regular expression.
fn filter(config: &Config) -> Result<Option<Filter>, Failed> {
    let asked = std::env::var("SC_LOG_OP_FILTER").ok().filter(|t| !t.is_empty());
    let Some(expression) = asked.as_deref().or(configured_filter(config)) else { return Ok(None) };
    let limits = DetectConfig::default();
    let limits = PcreLimits { steps: limits.pcre_match_limit, depth: limits.pcre_match_limit_recursion };
    match Pcre::new(expression, "", Some(limits)) {
        Ok(code) => Ok(Some(Filter(code))),
        Err(e) => Err(match asked {
            Some(_) => Failed::new("log", format!("SC_LOG_OP_FILTER: {e}")),
            None => crate::settings::wrong(config, FILTER, &e.to_string()).into(),
        }),
    }
}

/// Reads `logging`; files are in `dir`.
///
/// # Errors
/// An invalid value.
pub(crate) fn outputs(config: &Config, dir: &Path) -> Result<Vec<LogOutput>, Failed> {
    // As documented, the environment takes precedence over the configured default. Outputs with a level of their own keep it.
    let asked = std::env::var("SC_LOG_LEVEL").ok();
    let default = match (asked.as_deref().and_then(Level::from_name), config.node("logging.default-log-level")) {
        (Some(level), _) => level,
        (None, Some(n)) => level(n)?,
        (None, None) => Level::Notice,
    };
    // The default form is the console's. Files and syslog have their own.
    let asked = std::env::var("SC_LOG_FORMAT").ok();
    let form = asked.as_deref().or(config.get("logging.default-log-format")).filter(|f| !f.is_empty());
    let form = form.map(str::to_owned);
    let mut outputs = Vec::new();
    let mut console = None;
    for item in config.node("logging.outputs").iter().flat_map(Node::children) {
        let (name, Some(node)) = item.entry() else { continue };
        // Others are reported once the log is open, and the table of settings has no rows for them.
        if !TARGETS.contains(&name) {
            continue;
        }
        let enabled = node.bool("enabled")?.unwrap_or(true);
        let level = match node.node("level") {
            Some(n) => level(n)?,
            None => default,
        };
        let json = match node.get("type") {
            None | Some("" | "regular") => false,
            Some("json") => true,
            Some(other) => return Err(node.error(format!("type: \"{other}\" is neither regular nor json")).into()),
        };
        let target = match name {
            "console" => {
                console = Some(enabled);
                LogTarget::Console
            }
            "file" => LogTarget::File(dir.join(node.get("filename").unwrap_or("suricata.log"))),
            "syslog" => LogTarget::Syslog(
                match node.get("facility") {
                    Some(f) => Facility::from_name(f)
                        .ok_or_else(|| node.error(format!("facility: syslog has no facility \"{f}\"")))?,
                    None => Facility::Local5,
                },
                node.get("identity").filter(|i| !i.is_empty()).unwrap_or(IDENTITY).to_owned(),
            ),
            _ => continue,
        };
        if enabled {
            let format = match (node.get("format").filter(|f| !f.is_empty()), &target) {
                (Some(format), _) => Some(format.to_owned()),
                (None, LogTarget::Console) => form.clone(),
                (None, _) => None,
            };
            outputs.push(LogOutput { target, level, json, format });
        }
    }
    // Errors must be visible somewhere, unless the console was switched off explicitly.
    if console.is_none() {
        outputs.insert(0, LogOutput { target: LogTarget::Console, level: default, json: false, format: form });
    }
    Ok(outputs)
}

fn level(node: Node<'_>) -> Result<Level, ConfigError> {
    let text = node.text();
    if text.is_empty() {
        return Ok(Level::Notice);
    }
    Level::from_name(text).ok_or_else(|| {
        node.error(format!(
            "\"{text}\" is no log level; there are error, warning, notice, info, perf, config and debug"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_chosen_by_an_expression() {
        let of =
            |text: &str| filter(&Config::from_str(&format!("%YAML 1.1\n---\nlogging: {{{text}}}\n"), "t").unwrap());
        assert!(of("default-output-filter: ").unwrap().is_none());
        let f = of("default-output-filter: \"^Info: (rules|detect): [0-9]+\"").unwrap().unwrap();
        assert!(f.takes(b"Info: rules: 1 rule files processed") && !f.takes(b"Info: rules: No signatures supplied."));
        let e = of("default-output-filter: \"a(b\"").unwrap_err().message;
        assert!(e.contains("t:3") && e.contains("default-output-filter"), "{e}");
    }
}
