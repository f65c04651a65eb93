//! What the parser has to say: errors and warnings, each with the place and the module name that the log shows.

use std::fmt;
use std::sync::Arc;

use crate::ast::Place;

/// How bad a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Something was refused.
    Error,
    /// Something is odd, or was refused for a reason that is no fault of the rule.
    Warning,
}

/// One line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How bad it is.
    pub severity: Severity,
    /// The module that speaks, as the log and engine events name it: `detect-depth`, `detect-parse`, `detect` …
    pub module: &'static str,
    /// The text.
    pub text: String,
}

/// A rule that was not loaded because of what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// Where the rule stands; the column is that of the option at fault.
    pub place: Place,
    /// What to log, in order. For a rule that is not [`silent`](Self::silent) the last is
    /// `error parsing signature "…" from file … at line …`.
    pub messages: Vec<Message>,
    /// The rule's text, continuation lines joined.
    pub text: Arc<str>,
    /// Whether the rule is left out without counting as failed: what it names exists no longer, and keywords are not
    /// strict (`--strict-rule-keywords`).
    pub silent: bool,
    /// Whether it is a firewall rule.
    pub firewall: bool,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.place.file, self.place.line, self.place.column)?;
        for m in &self.messages {
            write!(f, ": {}: {}", m.module, m.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for RuleError {}

/// Something odd in a rule that was loaded all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWarning {
    /// Where.
    pub place: Place,
    /// What to log.
    pub message: Message,
}

/// Why a rule cannot be used, on its way up through the parser.
#[derive(Debug)]
pub(crate) struct Fail {
    pub(crate) messages: Vec<Message>,
    pub(crate) silent: bool,
}

impl Fail {
    /// One error.
    pub(crate) fn new(module: &'static str, text: impl Into<String>) -> Fail {
        Fail { messages: vec![Message { severity: Severity::Error, module, text: text.into() }], silent: false }
    }

    /// Refused, with a message that the log shows as a warning.
    pub(crate) fn warned(module: &'static str, text: impl Into<String>) -> Fail {
        Fail { messages: vec![Message { severity: Severity::Warning, module, text: text.into() }], silent: false }
    }

    /// Left out without counting as failed.
    pub(crate) fn silently(module: &'static str, text: impl Into<String>) -> Fail {
        Fail { silent: true, ..Fail::warned(module, text) }
    }

    /// A further error after the first.
    pub(crate) fn and(mut self, module: &'static str, text: impl Into<String>) -> Fail {
        self.messages.push(Message { severity: Severity::Error, module, text: text.into() });
        self
    }
}

/// `Err` of one error.
pub(crate) fn fail<T>(module: &'static str, text: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::new(module, text))
}

/// A problem in `classification.config`, `reference.config` or `threshold.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Where.
    pub place: Place,
    /// What to log.
    pub message: Message,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.file, self.place.line, self.message.text)
    }
}
