//! Hooks to watch the checks of buffers.

use margay_rules::ast::VARIABLES_MAX;

use super::{CompiledBuffer, Op};

/// The result of a byte check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// The check holds, with these bytes.
    Held(usize, usize),
    /// The check fails. For a negated check, these are the bytes that must not be there.
    Failed(Option<(usize, usize)>),
    /// The check did not run: the rule took too many steps in this buffer.
    Limit,
}

/// A byte check as it ran.
#[derive(Debug)]
pub(crate) struct OpSeen<'a> {
    pub(crate) data: &'a [u8],
    /// The end of the previous match.
    pub(crate) cursor: usize,
    /// The range in which a literal was searched.
    pub(crate) window: Option<(usize, usize)>,
    pub(crate) came: CheckResult,
    pub(crate) variables: &'a [u64; VARIABLES_MAX],
    pub(crate) dce_little: bool,
}

/// Receives the events of checks.
pub(crate) trait Observer: std::fmt::Debug {
    /// Whether anything is watched.
    const ON: bool;
    /// Whether single checks are watched, not only rules.
    const CHECKS: bool;
    /// A byte check ran.
    fn op(&mut self, _buffer: &CompiledBuffer, _op: &Op, _seen: &OpSeen<'_>) {}
    /// All checks of a buffer ran.
    fn buffer(&mut self, _buffer: &CompiledBuffer, _data: &[u8], _matched: bool) {}
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Off;

impl Observer for Off {
    const ON: bool = false;
    const CHECKS: bool = false;
}
