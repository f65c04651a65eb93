//! Start, packet loop, statistics and shutdown: connects the other crates. It contains no stage's logic.
//!
//! [`run`] runs a command line: it reads the configuration (`settings`), the rules and their files (`rules`, `engines`),
//! opens the outputs, and drives a `worker` over the capture (`single`, `parallel`, `live`; `spread` is
//! what the last two share). `stats` collects the counters, and `control` handles requests to the running engine. If the start fails, it logs one error and exits with status 1, before anything is written.

mod analysis;
mod checksums;
mod console;
mod control;
mod ctl;
mod dry;
mod engines;
mod exception;
mod explain;
mod files;
pub mod in_process;
mod info;
mod keys;
mod listing;
mod live;
mod logging;
mod notices;
mod parallel;
mod post;
mod profiling;
mod queue;
#[doc(hidden)]
pub mod replay;
mod rule_check;
mod rules;
mod scripts;
mod service;
mod settings;
mod signals;
mod single;
mod spread;
mod start;
mod stats;
mod threads;
#[cfg(test)]
mod walk;
mod watched;
mod watching;
pub mod witness;
mod worker;

pub use control::message::messages as control_messages;
pub use parallel::bench_steering;
pub use start::run;

/// The `--help` texts of the engine's own commands: the command's words (`rules check`), and the text.
pub fn helps() -> Vec<(String, String)> {
    let of = |words: &str, text: &str| (words.to_owned(), text.to_owned());
    vec![
        of("rules", rule_check::COMMANDS),
        of("rules check", rule_check::HELP),
        of("rules explain", explain::HELP),
        of("ctl", &ctl::help()),
    ]
}

/// The engine's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The Suricata release whose rules, configuration and events are supported.
pub(crate) const COMPATIBLE: &str = "8.0.6";

/// The error that ends the engine with status 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failed {
    /// The module, for the log.
    pub(crate) module: &'static str,
    /// What happened, and where.
    pub(crate) message: String,
}

impl Failed {
    pub(crate) fn new(module: &'static str, message: impl Into<String>) -> Failed {
        Failed { module, message: message.into() }
    }
}

impl From<margay_config::ConfigError> for Failed {
    fn from(e: margay_config::ConfigError) -> Failed {
        Failed::new("conf-yaml-loader", e.to_string())
    }
}
