//! Hooks to watch detection: for `rules explain` ([`trace`], with its results in [`report`]) and for rule profiles
//! ([`profile`]).
//!
//! A [`State`](crate::state::State) is generic over a [`Watch`]. Hook calls are inside `if W::ON`, or the hook bodies
//! are empty. With [`Off`], which normal runs use, the compiler removes them. So `rules explain` shows the real
//! inspection and not a second implementation.

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

use crate::buffer::PacketBuffer;
use crate::checks::CheckInput;
use crate::group::Source;
use crate::header::PacketKey;
use crate::input::Input;
use crate::inspect::{Observer, Off};
use crate::rule::CompiledRule;
use crate::tx::{Plan, Slot, Step, View};
use report::Line;

/// The object that a rule is evaluated on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    /// A packet, and the stream data that came with it.
    Packet,
    /// A transaction, by its number.
    Transaction { proto: AppProto, dir: Direction, id: u64, progress: u8, complete: bool },
    /// A part of a frame.
    Frame { proto: AppProto, kind: u8, id: u64 },
}

/// How the evaluation of a rule ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Match,
    /// Nothing failed yet.
    Wait,
    Fail,
    /// For a `=>` rule: this direction is complete, the other one not yet.
    HalfMatch,
}

/// The source of the bytes that are inspected next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    Header(PacketBuffer),
    Payload,
    /// Stream data, with the stream offset of its first byte.
    Stream(u64),
    /// A transaction buffer.
    Slot,
    FileName(u32),
    FileMagic(u32),
    /// A frame, with the stream offset of the part.
    Frame(u64),
}

/// The data in which a fast pattern was searched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Searched<'a> {
    Packet(Source),
    Slot(AppProto, Direction, u16, &'a Slot),
    Frame(AppProto, u8),
}

/// The result of one step of a transaction rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepCame {
    /// The step held in an earlier evaluation.
    HeldBefore,
    Held,
    /// The transaction has not made enough progress.
    NotReached,
    /// The step may hold later.
    NotYet,
    Failed,
}

/// The outcome of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchOutcome {
    Alert,
    /// The rule writes no alert (`noalert`, `pass`, `config`).
    Silent,
    /// A threshold suppressed the alert, and the action too if this is true.
    Threshold(bool),
    /// The packet had too many alerts.
    Overflow,
    /// An earlier rule, by number, passed the packet.
    Passed(u32),
}

/// Receives the events of detection.
pub(crate) trait Watch: Observer {
    /// Inspection of a packet begins; `first` if it is the first of its flow in its direction.
    fn packet(&mut self, _input: &Input<'_>, _key: &PacketKey, _first: bool) {}
    /// A packet is not inspected because its flow already has a verdict.
    fn left_out(&mut self, _input: &Input<'_>) {}
    /// The next watched rule whose header fits the packet and none of whose checks ran. The caller then runs its packet
    /// and flow checks for the report.
    fn silent(&mut self) -> Option<u32> {
        None
    }
    /// Inspection of the packet ended.
    fn packet_done(&mut self) {}
    /// The search for patterns in a packet's payload or in its due stream data begins.
    fn searching(&mut self) {}
    /// The search ended.
    fn search_over(&mut self, _stream: bool) {}
    /// Patterns were searched in `data`, or the data was missing.
    fn searched(&mut self, _place: Searched<'_>, _data: Option<&[u8]>) {}
    /// Inspection of a transaction begins.
    fn transaction(&mut self, _proto: AppProto, _view: &View<'_>) {}
    /// Evaluation of a rule begins.
    fn begin(&mut self, _rule: u32, _look: Look) {}
    /// Evaluation of the rule ended.
    fn end(&mut self, _rule: u32, _end: End) {}
    /// Describes the packet and flow checks; `failed` is the index of the first one that does not hold.
    fn tell(&self, _rule: &CompiledRule, _input: &CheckInput<'_>, _failed: Option<usize>) -> Vec<Line> {
        Vec::new()
    }
    /// Takes the lines from [`Self::tell`].
    fn told(&mut self, _lines: Vec<Line>) {}
    /// The source of the data that is inspected next.
    fn at(&mut self, _place: At) {}
    /// The data to inspect is missing.
    fn missing(&mut self, _place: At, _why: &'static str) {}
    /// Called before and after the search that decides whether an earlier packet already had a match in stream data;
    /// afterwards with its result, before with `false`.
    fn found_before(&mut self, _before: bool) {}
    /// A step of a transaction rule ran.
    fn step(&mut self, _rule: u32, _plan: &Plan, _step: &Step, _came: StepCame, _view: &View<'_>) {}
    /// The outcome of a match.
    fn fate(&mut self, _rule: u32, _fate: MatchOutcome) {}
}

impl Watch for Off {}
