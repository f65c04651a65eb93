//! Errors and warnings of the parser, each with its place and the module name for the log.

use std::fmt;
use std::sync::Arc;

use crate::ast::Place;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// A rule was rejected.
    Error,
    /// A rule is suspicious, or was rejected for a reason that is not its fault.
    Warning,
}

/// One line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The severity.
    pub severity: Severity,
    /// The module that logs the message, by its name in logs and engine events: `detect-depth`, `detect-parse`, `detect`
    /// …
    pub module: &'static str,
    /// The text.
    pub text: String,
}

/// A rule that was rejected because of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// The rule's place; the column is that of the faulty option.
    pub place: Place,
    /// The messages to log, in order. For a rule that is not [`silent`](Self::silent), the last is `error parsing
    /// signature "…" from file … at line …`.
    pub messages: Vec<Message>,
    /// The rule's text, with continuation lines joined.
    pub text: Arc<str>,
    /// Whether the rule is skipped without counting as failed: it names something that no longer exists, and keywords
    /// are not strict (`--strict-rule-keywords`).
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

/// A warning about a rule that was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleWarning {
    /// The place.
    pub place: Place,
    /// The message to log.
    pub message: Message,
}

/// Why a rule is rejected, within the parser.
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

    /// A rejection whose message is logged as a warning.
    pub(crate) fn warned(module: &'static str, text: impl Into<String>) -> Fail {
        Fail { messages: vec![Message { severity: Severity::Warning, module, text: text.into() }], silent: false }
    }

    /// A rejection that does not count as a failure.
    pub(crate) fn silently(module: &'static str, text: impl Into<String>) -> Fail {
        Fail { silent: true, ..Fail::warned(module, text) }
    }

    /// Adds a further error.
    pub(crate) fn and(mut self, module: &'static str, text: impl Into<String>) -> Fail {
        self.messages.push(Message { severity: Severity::Error, module, text: text.into() });
        self
    }
}

/// An `Err` with one error.
pub(crate) fn fail<T>(module: &'static str, text: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::new(module, text))
}

/// A problem in `classification.config`, `reference.config` or `threshold.config`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The place.
    pub place: Place,
    /// The message to log.
    pub message: Message,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.file, self.place.line, self.message.text)
    }
}
