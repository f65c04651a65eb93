//! What is written down of a rule: looks, reasons, and what they looked at.

use std::net::IpAddr;

use margay_flow::Direction;
use margay_packet::Time;

pub use super::rule::RuleTrace;

/// Bytes of an excerpt, and how many of them come before what it is about.
const EXCERPT: (usize, usize) = (64, 16);

/// A packet, as its number and ends tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRef {
    /// The frame's number in the capture, from 1.
    pub number: u64,
    /// When it was captured.
    pub time: Time,
    /// Source address.
    pub src: IpAddr,
    /// Source port; 0 where there is none.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port; 0 where there is none.
    pub dport: u16,
    /// IP protocol number; 0 where it is no IP.
    pub proto: u8,
    /// Number of its flow, where it has one.
    pub flow: Option<u64>,
    /// Its direction there.
    pub dir: Option<Direction>,
    /// The engine made it up to have the rest of a stream inspected; number and time are those of the packet before.
    pub made_up: bool,
}

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineCame {
    /// It holds.
    Held,
    /// It held with an earlier look, which is remembered.
    HeldBefore,
    /// It does not hold yet, and may.
    NotYet,
    /// It does not hold.
    Failed,
}

impl LineCame {
    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            LineCame::Held => "held",
            LineCame::HeldBefore => "held_before",
            LineCame::NotYet => "not_yet",
            LineCame::Failed => "failed",
        }
    }
}

/// Bytes of a buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Size of the buffer.
    pub size: usize,
    /// Where in the buffer the excerpt begins.
    pub offset: usize,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What of the buffer it is about: from and to, in the buffer.
    pub mark: (usize, usize),
}

impl Excerpt {
    pub(super) fn of(data: &[u8], mark: (usize, usize)) -> Excerpt {
        let offset = mark.0.min(data.len()).saturating_sub(EXCERPT.1);
        let end = (offset + EXCERPT.0).min(data.len());
        Excerpt { size: data.len(), offset, bytes: data.get(offset..end).unwrap_or(&[]).to_vec(), mark }
    }
}

/// One check, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The check, as the rule writes it.
    pub check: String,
    /// What became of it.
    pub came: LineCame,
    /// What it looked at: a buffer, or nothing for checks of packet and flow.
    pub place: String,
    /// What there was.
    pub detail: String,
    /// The bytes.
    pub excerpt: Option<Excerpt>,
}

impl Line {
    /// Of a script: as the rule writes it, and whether it speaks for a match.
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

/// One look at the rule.
#[derive(Debug, Clone)]
pub struct LookReport {
    /// With which packet.
    pub packet: PacketRef,
    /// In what: the packet, a transaction, a frame.
    pub subject: String,
    /// The checks, in the order in which they were looked at.
    pub lines: Vec<Line>,
    /// How far it got, to compare with others.
    pub depth: u32,
    /// Of a look that did not match the check that got furthest, by its place in `lines`.
    pub failing: Option<usize>,
}

/// What kind of reason it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasonKind {
    /// The packet does not fit the rule's header.
    Header,
    /// The packet or transaction was not inspected, or not for this rule.
    NotInspected,
    /// The rule's fast pattern is not there, or the packet has not what the rule needs.
    Prefilter,
    /// A check does not hold.
    Check,
    /// All that was there held; something is still to come.
    Waiting,
}

impl ReasonKind {
    /// Its name in JSON.
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

/// Why the rule did not match, and how often.
#[derive(Debug, Clone)]
pub struct Reason {
    /// What kind of reason it is.
    pub kind: ReasonKind,
    /// In words.
    pub text: String,
    /// How often.
    pub count: u64,
    /// The first times.
    pub first: Vec<LookReport>,
}

/// What matches came to.
#[derive(Debug, Clone)]
pub struct FateCount {
    /// In words.
    pub text: String,
    /// Whether an alert was written.
    pub alert: bool,
    /// How often.
    pub count: u64,
    /// With which packets first.
    pub first: Vec<PacketRef>,
}
