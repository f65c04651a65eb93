//! Rules that inspect transactions.
//!
//! For each protocol and direction in which such a rule can match, it has a [`Plan`]: an ordered list of [`Step`]s, each
//! with the progress from which on it can be evaluated. All steps must hold for one transaction. While the rule waits
//! for the others, a bit remembers each step that held ([`margay_app::TxDetect::waiting`]), so that data that streams by
//! is never needed twice.
//!
//! Plans of one protocol and direction share a [`TxGroup`]. Its [`Slot`]s are the buffers, with transforms, that rules
//! inspect. A slot's bytes are built once for each inspection of a transaction, however many rules use them. A slot has
//! a matcher for the patterns of its rules. Rules without a pattern become candidates when the transaction reaches the
//! progress that they need, with the first file, or with the event that they test. Buffers that no rule uses cost
//! nothing.
//!
//! Values that most transactions share (a method, a browser's name) make many rules candidates. A candidate's [`Gate`]s
//! run first: conditions on the lengths of buffers and on bytes that must occur in them, from properties computed once
//! for each inspection.
//!
//! `=>` rules have a plan for each direction. The rule matches when both plans hold.

mod compile;
mod file;
mod group;
mod plan;
mod script;
#[cfg(test)]
pub(crate) mod tests;

use margay_app::file::FileEngine;
use margay_app::window::WindowLimits;
use margay_app::{AppProto, BufferKind, Found, Transaction};
use margay_flow::Direction;
use margay_rules::ast::{Compare, InterfaceTest, NumberTest, Which};

use crate::byte_set::ByteSet;
use crate::inspect::CompiledBuffer;

pub(crate) use compile::{TxBuilder, payload_pattern, state_of};
pub(crate) use file::FileTest;
pub(crate) use group::{Always, Gate, Slot, SlotSource, Summary, TxGroup, TxGroups, TxSearched};

/// The transaction part of a rule.
#[derive(Debug)]
pub(crate) struct TxRule {
    /// One plan for each protocol and direction in which the rule can match.
    pub(crate) plans: Box<[Plan]>,
    /// Checks on buffers, for all plans.
    pub(crate) checks: Box<[CompiledBuffer]>,
    /// Whether both directions must hold (`=>`).
    pub(crate) both: bool,
    /// Whether a pattern of the payload and stream checks is searched in each packet whose flow has the plan's protocol.
    /// Without the pattern, these checks do not hold.
    pub(crate) payload_sought: bool,
    /// Whether the rule tests a score. It then runs after all rules that add to the score.
    pub(crate) late: bool,
}

impl TxRule {
    /// Whether all plans of the rule have a fast pattern.
    pub(crate) fn is_prefiltered(&self) -> bool {
        self.plans.iter().all(|p| matches!(p.trigger, TxTrigger::Pattern(..)))
    }

    pub(crate) fn plan(&self, proto: AppProto, dir: Direction) -> Option<&Plan> {
        self.plans.iter().find(|p| p.proto == proto && p.dir == dir)
    }
}

/// The steps of a rule for transactions of one protocol in one direction.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) proto: AppProto,
    pub(crate) dir: Direction,
    /// In evaluation order ([`Step::rank`]); step n has bit n.
    pub(crate) steps: Box<[Step]>,
    /// The bits of all steps.
    pub(crate) full: u64,
    /// Whether the fast pattern is in streamed data, so that the rule becomes a candidate repeatedly.
    pub(crate) streamed: bool,
    /// The state of the rule's hook, if the rule has no other step. It then matches at each inspection in that state.
    pub(crate) repeats: Option<u8>,
    pub(crate) trigger: TxTrigger,
    /// Cheap conditions that follow from the steps.
    pub(crate) gates: Box<[Gate]>,
    /// Whether no step has a side effect, so that steps may be skipped once one fails.
    pub(crate) looks: bool,
}

/// One transaction in one direction.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) tx: &'a dyn Transaction,
    pub(crate) group: &'a TxGroup,
    pub(crate) dir: Direction,
    pub(crate) progress: u8,
    pub(crate) complete: bool,
    /// One more than the progress at the previous inspection.
    pub(crate) begun: u8,
    /// The file engine; without it, file types are unknown.
    pub(crate) engine: Option<&'a FileEngine>,
    pub(crate) limits: WindowLimits,
    /// The index of a file that takes the place of the body in `file.data`.
    pub(crate) joined: Option<usize>,
}

impl<'a> View<'a> {
    /// A value of a buffer.
    pub(crate) fn buffer<'x>(&self, id: u8, index: usize, scratch: &'x mut Vec<u8>) -> Option<Found<'x>>
    where
        'a: 'x,
    {
        match self.joined {
            Some(n) if self.group.file_data == Some(id) => {
                let file = self.tx.base().files.all().get(n).filter(|_| index == 0)?;
                // The body comes next, so the buffer has not ended. Another transaction may have inspected its first bytes.
                Some(Found { end: false, seen: 0, ..file.data(self.limits)? })
            }
            _ => self.tx.buffer(id, self.dir, index, scratch),
        }
    }
}

/// Checks whose result depends only on a value's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Their number in [`TxRule::checks`].
    pub(crate) check: u16,
    /// A value that has none of these bytes fails.
    pub(crate) bytes: Option<ByteSet>,
}

/// How a plan makes its rule a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TxTrigger {
    /// By a pattern in a slot.
    Pattern(u16, crate::prefilter::Literal),
    /// By a value of a slot: one that has one of the literals that an expression needs, if there are such literals, and
    /// for which the checks hold, if their result depends only on its bytes. An explanation evaluates the rule without it
    /// from this progress on.
    Value { slot: u16, needed: Option<crate::prefilter::AnyOf>, check: Option<Judged>, progress: u8 },
    /// From this progress on.
    Progress(u8),
    /// With a file.
    File,
    /// With an event.
    Event(u8),
    /// Never: the other direction of a `=>` rule has all the steps.
    Never,
}

/// One condition that must hold.
#[derive(Debug)]
pub(crate) struct Step {
    /// The progress from which on the step can be evaluated.
    pub(crate) progress: u8,
    pub(crate) what: What,
    /// Whether alerts show the match's context. The step then runs each time and its result is not remembered.
    pub(crate) shows: bool,
    /// Its cost relative to other steps of the same progress.
    pub(crate) cost: u8,
}

impl Step {
    pub(crate) const fn new(progress: u8, what: What) -> Step {
        Step { progress, what, shows: false, cost: 0 }
    }

    /// The sort key of steps: first by progress, then by cost. Payload and stream steps come last, since almost any
    /// packet may satisfy them, so they rule out little.
    pub(crate) const fn rank(&self) -> (bool, u8, u8) {
        (matches!(self.what, What::Payload), self.progress, self.cost)
    }
}

#[derive(Debug)]
pub(crate) enum What {
    /// Checks on a slot's buffer, by number in [`TxRule::checks`].
    Buffer { slot: u16, check: u16, kind: BufferKind },
    /// The buffer does not exist, or these checks hold.
    Absent { slot: u16, or_else: Option<u16>, kind: BufferKind },
    /// A length condition on a slot's buffer (`urilen`).
    Length { slot: u16, value: Compare },
    /// A DCE/RPC interface, by the number of its buffer in the protocol.
    Interface { id: u8, test: InterfaceTest },
    /// A number of the transaction, by its number in the protocol; `changes` if its value may still change.
    Number { id: u8, test: NumberTest, which: Which, changes: bool },
    /// The transaction has an event.
    Event(u8),
    /// One file that passes all tests.
    File(std::sync::Arc<[FileTest]>),
    /// A condition on the transaction's progress (`app-layer-state`).
    State { state: u8, order: std::cmp::Ordering },
    /// The transaction reached the step's progress (a hook).
    Reached,
    /// The rule's payload or stream checks hold.
    Payload,
    /// A script, by number in [`crate::lua::RuleLua`]; for a buffer, with the checks on it that run first. `changes` if
    /// the script may return a match later, whatever the state.
    Lua { number: u16, buffer: Option<(u16, Option<u16>, BufferKind)>, changes: bool },
    /// A test of a transaction bit.
    Bit { name: u32, set: bool },
    /// A test of a transaction score.
    Score { name: u32, least: u32 },
}
