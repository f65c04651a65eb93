//! The engine's services for scripts: its log, and the log folder.

use std::path::Path;
use std::sync::Arc;

use margay_detect::lua::ScriptEnvironment;
use margay_lua::{Log, LogLevel};
use margay_output::log::{Level, log};

/// The log of scripts.
pub(crate) fn log_of(module: &'static str) -> Log {
    Arc::new(move |level, text| {
        let level = match level {
            LogLevel::Error => Level::Error,
            LogLevel::Warning => Level::Warning,
            LogLevel::Notice => Level::Notice,
            LogLevel::Info => Level::Info,
            LogLevel::Perf => Level::Perf,
            LogLevel::Config => Level::Config,
            LogLevel::Debug => Level::Debug,
        };
        log(level, module, format_args!("{text}"));
    })
}

/// The environment of rule scripts; `dir` is the log folder.
pub(crate) fn environment(dir: &Path) -> ScriptEnvironment {
    ScriptEnvironment { log: log_of("detect-lua"), log_path: Some(dir.display().to_string()) }
}
