//! The records of a rule: evaluations, reasons, and the inspected data.

use std::net::IpAddr;

use margay_flow::Direction;
use margay_packet::Time;

pub use super::rule::RuleTrace;

/// Size of an excerpt, and the bytes before the marked part.
const EXCERPT: (usize, usize) = (64, 16);

/// A packet, identified by number and endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRef {
    /// The frame's number in the capture, from 1.
    pub number: u64,
    /// When it was captured.
    pub time: Time,
    /// Source address.
    pub src: IpAddr,
    /// Source port; 0 if there is none.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port; 0 if there is none.
    pub dport: u16,
    /// IP protocol number; 0 without IP.
    pub proto: u8,
    /// Number of the packet's flow, if it has one.
    pub flow: Option<u64>,
    /// The packet's direction in the flow.
    pub dir: Option<Direction>,
    /// Whether the engine created this pseudo packet to inspect the rest of a stream. Number and time are those of the
    /// previous packet.
    pub made_up: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineCame {
    /// The check holds.
    Held,
    /// The check held in an earlier evaluation, which is remembered.
    HeldBefore,
    /// The check does not hold yet, but may later.
    NotYet,
    /// The check does not hold.
    Failed,
}

impl LineCame {
    /// The result's name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            LineCame::Held => "held",
            LineCame::HeldBefore => "held_before",
            LineCame::NotYet => "not_yet",
            LineCame::Failed => "failed",
        }
    }
}

/// Part of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Size of the buffer.
    pub size: usize,
    /// The excerpt's offset in the buffer.
    pub offset: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The marked bytes: start and end in the buffer.
    pub mark: (usize, usize),
}

impl Excerpt {
    pub(super) fn of(data: &[u8], mark: (usize, usize)) -> Excerpt {
        let offset = mark.0.min(data.len()).saturating_sub(EXCERPT.1);
        let end = (offset + EXCERPT.0).min(data.len());
        Excerpt { size: data.len(), offset, bytes: data.get(offset..end).unwrap_or(&[]).to_vec(), mark }
    }
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The check, as the rule writes it.
    pub check: String,
    /// The result.
    pub came: LineCame,
    /// The inspected buffer; empty for packet and flow checks.
    pub place: String,
    /// The actual value.
    pub detail: String,
    /// The inspected bytes.
    pub excerpt: Option<Excerpt>,
}

impl Line {
    /// The line of a script: as the rule writes it, and whether the script returned a match.
    pub(crate) fn of_script(asked: &str, held: bool) -> Line {
        let (came, detail) = match held {
            true => (LineCame::Held, "the script matches"),
            false => (LineCame::Failed, "the script does not match"),
        };
        Line::new(asked, came, "", detail)
    }

    pub(super) fn new(
        check: impl Into<String>,
        came: LineCame,
        place: impl Into<String>,
        detail: impl Into<String>,
    ) -> Line {
        Line { check: check.into(), came, place: place.into(), detail: detail.into(), excerpt: None }
    }
}

/// One evaluation of the rule.
#[derive(Debug, Clone)]
pub struct LookReport {
    /// The packet.
    pub packet: PacketRef,
    /// The inspected object: the packet, a transaction, a frame.
    pub subject: String,
    /// The checks, in the order in which they ran.
    pub lines: Vec<Line>,
    /// How far the evaluation got, to compare it with others.
    pub depth: u32,
    /// In an evaluation without a match, the index in `lines` of the check that got furthest.
    pub failing: Option<usize>,
}

/// The kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The packet does not fit the rule's header.
    Header,
    /// The packet or transaction was not inspected, or not for this rule.
    NotInspected,
    /// The rule's fast pattern is missing, or the packet does not meet the rule's needs.
    Prefilter,
    /// A check does not hold.
    Check,
    /// Everything so far held, but more data must come.
    Waiting,
}

impl ReasonKind {
    /// The kind's name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ReasonKind::Header => "header",
            ReasonKind::NotInspected => "not_inspected",
            ReasonKind::Prefilter => "prefilter",
            ReasonKind::Check => "check",
            ReasonKind::Waiting => "waiting",
        }
    }
}

/// A reason why the rule did not match, and how often it applied.
#[derive(Debug, Clone)]
pub struct Reason {
    /// The kind of the reason.
    pub kind: ReasonKind,
    /// The reason as text.
    pub text: String,
    /// How often it applied.
    pub count: u64,
    /// The first evaluations with this reason.
    pub first: Vec<LookReport>,
}

/// An outcome of matches, and how often it happened.
#[derive(Debug, Clone)]
pub struct FateCount {
    /// The outcome as text.
    pub text: String,
    /// Whether an alert was written.
    pub alert: bool,
    /// How often it happened.
    pub count: u64,
    /// The first packets with this outcome.
    pub first: Vec<PacketRef>,
}
