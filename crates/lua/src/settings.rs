//! How scripts are run: their limits, what they can access, and their log.

use std::sync::Arc;
use std::time::Duration;

/// The level of a script's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warning,
    Notice,
    Info,
    Perf,
    Config,
    Debug,
}

impl LogLevel {
    pub(crate) const ALL: [LogLevel; 7] = [
        LogLevel::Error,
        LogLevel::Warning,
        LogLevel::Notice,
        LogLevel::Info,
        LogLevel::Perf,
        LogLevel::Config,
        LogLevel::Debug,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warning => "warning",
            LogLevel::Notice => "notice",
            LogLevel::Info => "info",
            LogLevel::Perf => "perf",
            LogLevel::Config => "config",
            LogLevel::Debug => "debug",
        }
    }
}

/// The log of scripts.
pub type Log = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// Limits of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in addition to an empty state (`security.lua.max-bytes`).
    pub bytes: usize,
    /// Instructions of one call (`security.lua.max-instructions`).
    pub instructions: u64,
    /// Time limit of one call, checked only after many instructions.
    pub time: Duration,
}

impl Limits {
    /// Default limits of rule scripts.
    pub const RULES: Limits = Limits { bytes: 500_000, instructions: 500_000, time: Duration::from_secs(1) };
    /// Limits of scripts that write logs.
    pub const OUTPUT: Limits = Limits { bytes: 256 << 20, instructions: 100_000_000, time: Duration::from_secs(10) };
}

/// The functions and modules that a script can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only the sandbox's functions.
    Sandbox,
    /// All of Lua, including files and Lua modules (`security.lua.allow-restricted-functions`, scripts that write logs).
    Open,
}

/// How scripts are run.
#[derive(Clone)]
pub struct Settings {
    /// Their limits.
    pub limits: Limits,
    /// The functions and modules that they can access.
    pub mode: Mode,
    /// The log of their messages.
    pub log: Log,
    /// The log folder, for `suricata.config`.
    pub log_path: Option<String>,
}

impl Default for Settings {
    /// The sandbox with the limits of rules, and without a log.
    fn default() -> Self {
        Settings { limits: Limits::RULES, mode: Mode::Sandbox, log: Arc::new(|_, _| {}), log_path: None }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("limits", &self.limits).field("mode", &self.mode).finish_non_exhaustive()
    }
}
