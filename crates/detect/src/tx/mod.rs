//! Rules that look at transactions.
//!
//! For each protocol and direction in which such a rule can hold it has a [`Plan`]: an ordered list of [`Step`]s, each with
//! the progress from which on it can be looked at. All steps must hold for one transaction; a step that held is kept as a
//! bit ([`margay_app::TxDetect::waiting`]) while the rule waits for the others, so that a buffer that streams by is never
//! needed twice.
//!
//! Plans of one protocol and direction share a [`TxGroup`]. Its [`Slot`]s are the buffers, with transforms, that rules
//! look at; the text of one is put together once for each look at a transaction, whatever the number of rules. A slot has
//! a matcher for the patterns of its rules. Rules without a pattern become candidates when the transaction reaches the
//! progress that they need, with the first file, or with the event that they ask for. What no rule asks for costs nothing.
//!
//! Of what is common to most transactions (a method, a browser's name) many rules are candidates. Before anything else is asked
//! of them their [`Gate`]s are: lengths of buffers, and bytes that must be in them, which are put together once for a look.
//!
//! `=>` rules have a plan for both directions; each holds by itself, and the rule matches when both do.

mod compile;
mod file;
mod group;
mod inspect;
mod step;
#[cfg(test)]
pub(crate) mod tests;
mod values;

use margay_app::{AppProto, BufferKind};
use margay_flow::Direction;
use margay_rules::ast::{Compare, InterfaceTest, NumberTest, Which};

use crate::inspect::CompiledBuffer;

pub(crate) use compile::{TxBuilder, payload_pattern, state_of};
pub(crate) use file::FileTest;
pub(crate) use group::{Always, Gate, Slot, SlotSource, Summary, TxGroup, TxGroups};
pub(crate) use inspect::{Eval, MATCHED, View};
pub(crate) use values::TxScratch;

/// The part of a rule that looks at transactions.
#[derive(Debug)]
pub(crate) struct TxRule {
    /// One for each protocol and direction in which the rule can hold.
    pub(crate) plans: Box<[Plan]>,
    /// Checks of buffers, for all plans.
    pub(crate) checks: Box<[CompiledBuffer]>,
    /// Whether both directions must hold (`=>`).
    pub(crate) both: bool,
    /// Whether a pattern of its checks of payload and stream is looked for with each packet whose flow's protocol is that of the
    /// plan: without it they do not hold.
    pub(crate) payload_sought: bool,
    /// Whether it asks for a score: it is looked at once all others have added to it.
    pub(crate) late: bool,
}

impl TxRule {
    /// Whether a pattern stands for it wherever it can hold.
    pub(crate) fn is_prefiltered(&self) -> bool {
        self.plans.iter().all(|p| matches!(p.trigger, TxTrigger::Pattern(..)))
    }

    pub(crate) fn plan(&self, proto: AppProto, dir: Direction) -> Option<&Plan> {
        self.plans.iter().find(|p| p.proto == proto && p.dir == dir)
    }
}

/// What a rule asks of the transactions of one protocol in one direction.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) proto: AppProto,
    pub(crate) dir: Direction,
    /// In the order in which they are looked at ([`Step::rank`]); step n has bit n.
    pub(crate) steps: Box<[Step]>,
    /// The bits of all steps.
    pub(crate) full: u64,
    /// Whether a pattern in streamed data stands for it, so that it is a candidate again and again.
    pub(crate) streamed: bool,
    /// The state that it is hooked to, where it asks nothing else: it matches with each look at that state.
    pub(crate) repeats: Option<u8>,
    pub(crate) trigger: TxTrigger,
    /// What is quick to see of its steps.
    pub(crate) gates: Box<[Gate]>,
    /// Whether its steps do nothing but look, so that those behind one that does not hold, or before it, can be left out.
    pub(crate) looks: bool,
}

/// How a plan becomes a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TxTrigger {
    /// With a pattern in a slot.
    Pattern(u16, crate::prefilter::Literal),
    /// From a progress on.
    Progress(u8),
    /// With a file.
    File,
    /// With an event.
    Event(u8),
    /// Never by itself: the other direction of a `=>` rule has all that it asks.
    Never,
}

/// One thing that must hold.
#[derive(Debug)]
pub(crate) struct Step {
    /// The progress from which on it is looked at.
    pub(crate) progress: u8,
    pub(crate) what: What,
    /// Whether alerts show what was found: then it is looked at each time, and not remembered.
    pub(crate) shows: bool,
    /// How much work it is, beside others of its progress.
    pub(crate) cost: u8,
}

impl Step {
    pub(crate) const fn new(progress: u8, what: What) -> Step {
        Step { progress, what, shows: false, cost: 0 }
    }

    /// What has the lower one is looked at first: what is there earlier, and then what is quick. Payload and stream, which may
    /// hold with any packet and so decide nothing, come last.
    pub(crate) const fn rank(&self) -> (bool, u8, u8) {
        (matches!(self.what, What::Payload), self.progress, self.cost)
    }
}

#[derive(Debug)]
pub(crate) enum What {
    /// Checks, by number in [`TxRule::checks`], of a slot's buffer.
    Buffer { slot: u16, check: u16, kind: BufferKind },
    /// The buffer is not there; or, with checks, these hold.
    Absent { slot: u16, or_else: Option<u16>, kind: BufferKind },
    /// The length of a slot's buffer (`urilen`).
    Length { slot: u16, value: Compare },
    /// An interface of DCE/RPC, by the number of its buffer in the protocol.
    Interface { id: u8, test: InterfaceTest },
    /// A number of the transaction, by its number in the protocol; `changes` says that it may be another one later.
    Number { id: u8, test: NumberTest, which: Which, changes: bool },
    /// The transaction has an event.
    Event(u8),
    /// One file for which all tests hold.
    File(std::sync::Arc<[FileTest]>),
    /// The transaction's progress (`app-layer-state`).
    State { state: u8, order: std::cmp::Ordering },
    /// The progress was reached (a hook).
    Reached,
    /// The rule's checks of payload or stream hold.
    Payload,
    /// A script, by number in [`crate::lua::RuleLua`]; of a buffer, with the checks of it that come first. `changes` says that
    /// it may hold later, whatever the state.
    Lua { number: u16, buffer: Option<(u16, Option<u16>, BufferKind)>, changes: bool },
    /// A bit of the transaction.
    Bit { name: u32, set: bool },
    /// A score of the transaction.
    Score { name: u32, least: u32 },
}
