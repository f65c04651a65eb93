//! Watching detection at work: for `rules explain` ([`trace`], what it gives is in [`report`]) and for profiles of rules ([`profile`]).
//!
//! A [`State`](crate::state::State) is made for one kind of [`Watch`]. Calls stand behind `if W::ON`, or their bodies are empty:
//! with [`Off`], which a run has that nobody watches, the compiler leaves nothing of them, so that what is explained is the
//! inspection itself and not a second one beside it.

pub(crate) mod describe;
pub(crate) mod hints;
pub(crate) mod profile;
pub mod report;
mod rule;
#[cfg(test)]
mod tests;
pub(crate) mod trace;
mod words;

use margay_app::AppProto;
use margay_flow::Direction;
use margay_rules::ast::VARIABLES_MAX;

use crate::buffer::PacketBuffer;
use crate::checks::CheckInput;
use crate::group::Source;
use crate::header::PacketKey;
use crate::input::Input;
use crate::inspect::{CompiledBuffer, Op};
use crate::rule::CompiledRule;
use crate::tx::{Plan, Slot, Step, View};
use report::Line;

/// What a rule is looked at in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    /// A packet, and the stream data that came with it.
    Packet,
    /// A transaction, by its number.
    Transaction { proto: AppProto, dir: Direction, id: u64, progress: u8, complete: bool },
    /// A stretch of a frame.
    Frame { proto: AppProto, kind: u8, id: u64 },
}

/// How a look at a rule ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Match,
    /// Nothing speaks against it yet.
    Wait,
    Fail,
    /// Of a `=>` rule: this direction has all, the other one not yet.
    HalfMatch,
}

/// Where the bytes come from that are looked at next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    Header(PacketBuffer),
    Payload,
    /// Stream data, with the place in the stream of its first byte.
    Stream(u64),
    /// A buffer of a transaction.
    Slot,
    FileName(u32),
    FileMagic(u32),
    /// A frame, with the place of the stretch in the stream.
    Frame(u64),
}

/// What a fast pattern was looked for in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Searched<'a> {
    Packet(Source),
    Slot(AppProto, Direction, u16, &'a Slot),
    Frame(AppProto, u8),
}

/// What became of a check of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckResult {
    /// It holds, with these bytes.
    Held(usize, usize),
    /// It does not; of what must not be there these bytes are.
    Failed(Option<(usize, usize)>),
    /// It was not looked at: the rule took too many steps in this buffer.
    Limit,
}

/// A check of bytes, as it was looked at.
#[derive(Debug)]
pub(crate) struct OpSeen<'a> {
    pub(crate) data: &'a [u8],
    /// The end of the match before.
    pub(crate) cursor: usize,
    /// Where a literal was looked for.
    pub(crate) window: Option<(usize, usize)>,
    pub(crate) came: CheckResult,
    pub(crate) variables: &'a [u64; VARIABLES_MAX],
    pub(crate) dce_little: bool,
}

/// What became of a step of a rule on transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepCame {
    /// With an earlier look.
    HeldBefore,
    Held,
    /// The transaction has not come that far.
    NotReached,
    /// It may hold later.
    NotYet,
    Failed,
}

/// What a match came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchOutcome {
    Alert,
    /// The rule writes none (`noalert`, `pass`, `config`).
    Writes(bool),
    /// A threshold kept the alert back, and the action too where this is true.
    Threshold(bool),
    /// The packet had too many alerts.
    Overflow,
    /// A rule before it, by number, let the packet pass.
    Passed(u32),
}

/// Who is told of what detection does.
pub(crate) trait Watch: std::fmt::Debug {
    /// Whether there is anybody.
    const ON: bool;
    /// Whether single checks are of interest, and not rules alone.
    const CHECKS: bool;
    /// Inspection of a packet begins; `first` is the first one of its flow's direction.
    fn packet(&mut self, _input: &Input<'_>, _key: &PacketKey, _first: bool) {}
    /// A packet is not inspected because of what was decided for its flow.
    fn left_out(&mut self, _input: &Input<'_>) {}
    /// The next of the rules that are of interest and that the packet fits, none of whose checks was looked at: what its
    /// checks of packet and flow would have said is told next.
    fn silent(&mut self) -> Option<u32> {
        None
    }
    /// Inspection of the packet is over.
    fn packet_done(&mut self) {}
    /// Patterns are going to be looked for in a packet's payload or in what is due of its stream.
    fn searching(&mut self) {}
    /// They were.
    fn search_over(&mut self, _stream: bool) {}
    /// Patterns were looked for, in bytes that were there or were not.
    fn searched(&mut self, _place: Searched<'_>, _data: Option<&[u8]>) {}
    /// A look at a transaction begins.
    fn transaction(&mut self, _proto: AppProto, _view: &View<'_>) {}
    /// A rule is looked at.
    fn begin(&mut self, _rule: u32, _look: Look) {}
    /// The look at the rule is over.
    fn end(&mut self, _rule: u32, _end: End) {}
    /// What became of checks of packet and flow; `failed` is the place of the first one that does not hold.
    fn tell(&self, _rule: &CompiledRule, _input: &CheckInput<'_>, _failed: Option<usize>) -> Vec<Line> {
        Vec::new()
    }
    /// Takes what [`Self::tell`] gave.
    fn told(&mut self, _lines: Vec<Line>) {}
    /// Where what is looked at next comes from.
    fn at(&mut self, _place: At) {}
    /// What is to be looked at is not there.
    fn missing(&mut self, _place: At, _why: &'static str) {}
    /// A check of bytes was looked at.
    fn op(&mut self, _buffer: &CompiledBuffer, _op: &Op, _seen: &OpSeen<'_>) {}
    /// All checks of a buffer were.
    fn buffer(&mut self, _buffer: &CompiledBuffer, _data: &[u8], _matched: bool) {}
    /// Whether what was found in stream data was found before, in the part that an earlier packet brought.
    fn found_before(&mut self, _before: bool) {}
    /// A step of a rule on transactions was looked at.
    fn step(&mut self, _rule: u32, _plan: &Plan, _step: &Step, _came: StepCame, _view: &View<'_>) {}
    /// What a match came to.
    fn fate(&mut self, _rule: u32, _fate: MatchOutcome) {}
}

/// Nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Off;

impl Watch for Off {
    const ON: bool = false;
    const CHECKS: bool = false;
}
