//! Content inspection: whether the checks of one buffer of a rule hold for some bytes.
//!
//! The checks run in rule order with a cursor at the end of the last match. If a later check is relative to a `content`
//! or `pcre`, each occurrence of it is tried until the rest holds too. Every other check has one result. Backtracking
//! follows Suricata (observed where its manual is silent):
//!
//! - A literal without a relative check after it is searched once. A failure after it is final.
//! - If an absolute literal is missing, the failure is final, since no earlier check could change that.
//! - If a relative literal is missing, the search goes back to the literal that it is relative to.
//!
//! Work is bounded by [`InspectLimits::recursion`] steps per buffer (`detect.inspection-recursion-limit`): a buffer that
//! needs more does not match, and a counter counts it. Inspection does not allocate: literals are prepared when the rule
//! is compiled, and [`InspectContext`] has the scratch memory.

pub mod asn1;
mod compile;
pub(crate) mod number;
mod observer;
mod run;
mod search;
#[cfg(test)]
mod spared;
#[cfg(test)]
mod tests;

pub(crate) use compile::{bytes_needed, judges_bytes, order_counts, own_checks};
pub use observer::Off;
pub(crate) use observer::{CheckResult, Observer, OpSeen};

use std::sync::Arc;

use margay_meaning::Judge;
use margay_rules::ast::{
    Asn1, ByteExtract, ByteJump, ByteMath, ByteTest, CaptureKind, Compare, FloatCompare, VARIABLES_MAX, Value,
};

use crate::dataset::{SetCheck, SetHit};
use crate::head::Head;
use crate::pcre::{Pcre, PcreError, PcreLimits, PcreScratch};
use crate::shareable::InOrder;
use search::Searcher;

/// Limits of inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InspectLimits {
    /// Most steps per buffer: `detect.inspection-recursion-limit`.
    pub recursion: u32,
    /// Limits of one regular expression match.
    pub pcre: PcreLimits,
    /// Most outermost elements that `asn1` inspects: `asn1-max-frames`.
    pub asn1_frames: u32,
}

impl Default for InspectLimits {
    fn default() -> Self {
        InspectLimits { recursion: 3000, pcre: PcreLimits::default(), asn1_frames: asn1::FRAMES }
    }
}

/// Why a rule's check cannot be compiled. The rule does not load; the others do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// An invalid regular expression.
    #[error(transparent)]
    Pcre(#[from] PcreError),
    /// A keyword that this build does not support.
    #[error("{keyword}: {reason}")]
    Unsupported {
        /// The keyword.
        keyword: String,
        /// The unsupported part.
        reason: String,
    },
    /// A value that cannot be compiled.
    #[error("{keyword}: {reason}")]
    Invalid {
        /// The keyword.
        keyword: String,
        /// The problem, and a valid form.
        reason: String,
    },
}

impl CompileError {
    pub(crate) fn unsupported(keyword: &str, reason: impl Into<String>) -> Self {
        CompileError::Unsupported { keyword: keyword.to_owned(), reason: reason.into() }
    }
    pub(crate) fn invalid(keyword: &str, reason: impl Into<String>) -> Self {
        CompileError::Invalid { keyword: keyword.to_owned(), reason: reason.into() }
    }
}

/// Most checks on one buffer; this bounds the nesting of a search.
pub const CHECKS_MAX: usize = 512;
/// Most bytes that `base64_decode` produces.
pub const BASE64_MAX: usize = 65536;
/// Most captures, and most bytes of them, that one match of a rule keeps.
pub const CAPTURES_MAX: (usize, usize) = (32, 16384);
/// Most entropy values that one evaluation of a rule keeps.
pub const MEASURED_MAX: usize = 16;
/// Most `replace` places that one match of a rule keeps.
pub const REPLACES_MAX: usize = 32;
/// Most dataset entries that one match of a rule shows.
pub const HITS_MAX: usize = 16;

/// Most literals of one buffer whose failed places are remembered.
const TRIED_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct ContentOp {
    search: Searcher,
    len: usize,
    negated: bool,
    offset: Option<Value>,
    depth: Option<Value>,
    distance: Option<Value>,
    within: Option<Value>,
    starts_with: bool,
    ends_with: bool,
    /// Whether a later check is relative to this literal.
    relative_next: bool,
    /// Whether only the first place is tried: later checks cannot hold after a later place if they fail after the first.
    first_only: bool,
    /// If the result of later checks depends only on this literal's place: the index of its range in
    /// `InspectContext::tried`.
    tried: Option<u8>,
    /// Index in `CompiledBuffer::replaces` of the replacement.
    replace: Option<u16>,
}

impl ContentOp {
    fn is_relative(&self) -> bool {
        self.distance.is_some() || self.within.is_some()
    }
}

#[derive(Debug)]
pub(crate) struct PcreOp {
    code: Pcre,
    negated: bool,
    relative: bool,
    relative_next: bool,
    /// Range in `CompiledBuffer::captures` that the groups fill, in order.
    captures: std::ops::Range<u16>,
}

#[derive(Debug)]
pub(crate) enum Op {
    Content(Box<ContentOp>),
    Pcre(Box<PcreOp>),
    IsDataAt {
        at: Value,
        relative: bool,
        negated: bool,
    },
    Bsize(Compare),
    ByteTest(Box<ByteTest>),
    ByteJump(Box<ByteJump>),
    ByteExtract(Box<ByteExtract>),
    ByteMath(Box<ByteMath>),
    Base64 {
        bytes: Option<u32>,
        offset: u32,
        relative: bool,
        data: Box<[Op]>,
    },
    /// With the number of the buffer's name in events.
    Entropy {
        bytes: u32,
        offset: u32,
        value: FloatCompare,
        name: u32,
    },
    Asn1(Asn1),
    Judge(Judge),
    Set(Box<SetCheck>),
}

/// The compiled checks on one buffer of a rule. Shared by all workers.
#[derive(Debug)]
pub struct CompiledBuffer {
    ops: Box<[Op]>,
    captures: Vec<(CaptureKind, Arc<str>)>,
    /// For each capture, the number of its name and its role.
    targets: Vec<(u32, CaptureRole)>,
    replaces: Vec<Arc<[u8]>>,
    limit: u32,
    asn1_frames: u32,
    /// Whether failed places of some literals are remembered.
    remembers: bool,
    /// Whether nothing but a failure comes of the checks if one of them fails: they have no side effects.
    needs_all: bool,
    /// Necessary conditions on the buffer's length and first bytes. Accepts everything if the checks have side effects.
    head: Head,
    /// How bytes in front of the buffer would affect the checks.
    before: Before,
}

/// How bytes in front of a buffer would affect its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Before {
    /// Checks that hold without them also hold with them: literals without a fixed place.
    More,
    /// The result may change.
    Other,
    /// Places count from the beginning, so they would mean other bytes.
    Placed,
}

impl Before {
    fn of(ops: &[Op]) -> Before {
        let each = ops.iter().map(|op| match op {
            Op::Content(c) if c.offset.is_some() || c.depth.is_some() || c.starts_with => Before::Placed,
            Op::Content(c) if !c.negated => Before::More,
            Op::IsDataAt { relative: true, negated: false, .. } => Before::More,
            Op::IsDataAt { relative: false, .. } | Op::Bsize(_) | Op::Entropy { .. } => Before::Placed,
            Op::ByteTest(b) if !b.relative => Before::Placed,
            Op::ByteJump(b) if !b.relative => Before::Placed,
            Op::ByteExtract(b) if !b.relative => Before::Placed,
            Op::ByteMath(b) if !b.relative => Before::Placed,
            Op::Base64 { relative: false, .. } => Before::Placed,
            Op::Asn1(a) if a.relative_offset.is_none() => Before::Placed,
            _ => Before::Other,
        });
        each.max().unwrap_or(Before::Other)
    }
}

/// The role of a captured text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureRole {
    /// The value of the variable that the rule names.
    Named,
    /// The key of a variable; the next capture is its value.
    Key,
    /// The value for the previous key.
    Value,
}

/// The content of a capture group of a matching `pcre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// Index in [`CompiledBuffer::captures`].
    pub index: u16,
    /// Where it is stored.
    pub kind: CaptureKind,
    /// Number of its name ([`CompiledBuffer::resolve`]).
    pub name: u32,
    /// Its role.
    pub role: CaptureRole,
    start: u32,
    len: u32,
}

/// A place that `replace` overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    /// Offset in the buffer, in bytes.
    pub offset: u32,
    /// Index in [`CompiledBuffer::replaces`].
    pub index: u16,
}

/// State that inspection uses besides the buffer. One per worker, for all rules.
#[derive(Debug)]
pub struct InspectContext<W = Off> {
    /// Variables of the rule, by number; they persist between buffers of the rule.
    pub variables: [u64; VARIABLES_MAX],
    /// Byte order of the current DCERPC message, for `dce`.
    pub dce_little: bool,
    /// How often a buffer took too many steps.
    pub limit_reached: u64,
    /// How often a regular expression reached its limits or failed otherwise.
    pub pcre_failed: u64,
    /// Entropy values since they were last taken, by number of the buffer's name ([`CompiledBuffer::resolve`]).
    pub measured: Vec<(u32, f64)>,
    /// How often a value was not added to a dataset because it was full.
    pub set_full: u64,
    /// Keeps packet order for datasets that rules change, if several workers share one capture stream.
    pub(crate) order: Option<Arc<dyn InOrder>>,
    pcre: PcreScratch,
    base64: Vec<u8>,
    /// Where the last matching check ended, after a match.
    pub(crate) cursor: usize,
    /// Bytes of the buffer that are before the data: it is a part of a long body or file.
    start: u64,
    steps: u32,
    /// For literals that are tried at each place: the range of the buffer in which all places failed. For one buffer of
    /// one rule.
    tried: [(usize, usize); TRIED_MAX],
    captures: Vec<Capture>,
    capture_bytes: Vec<u8>,
    replaces: Vec<Replacement>,
    hits: Vec<SetHit>,
    /// Watches the checks.
    pub(crate) watch: W,
}

impl Default for InspectContext {
    fn default() -> Self {
        InspectContext::watched(Off)
    }
}

impl<W> InspectContext<W> {
    /// A context whose checks `watch` sees.
    pub(crate) fn watched(watch: W) -> Self {
        InspectContext {
            variables: [0; VARIABLES_MAX],
            dce_little: false,
            limit_reached: 0,
            pcre_failed: 0,
            measured: Vec::with_capacity(MEASURED_MAX),
            set_full: 0,
            order: None,
            hits: Vec::new(),
            pcre: PcreScratch::new(),
            base64: Vec::with_capacity(BASE64_MAX + 4),
            cursor: 0,
            start: 0,
            steps: 0,
            tried: [(0, 0); TRIED_MAX],
            captures: Vec::with_capacity(CAPTURES_MAX.0),
            capture_bytes: Vec::with_capacity(CAPTURES_MAX.1),
            replaces: Vec::with_capacity(REPLACES_MAX),
            watch,
        }
    }

    /// Drops the captures and replacements of an earlier rule or buffer. The caller takes them after each matching
    /// buffer and calls this before the next.
    pub fn clear_results(&mut self) {
        self.captures.clear();
        self.capture_bytes.clear();
        self.replaces.clear();
        self.hits.clear();
    }
    /// Dataset entries that alerts show, for matches since [`Self::clear_results`].
    pub(crate) fn hits(&self) -> &[SetHit] {
        &self.hits
    }
    /// Captures of matches since [`Self::clear_results`].
    pub fn captures(&self) -> &[Capture] {
        &self.captures
    }
    /// The bytes of a capture.
    pub fn capture_bytes(&self, c: Capture) -> &[u8] {
        let start = c.start as usize;
        self.capture_bytes.get(start..start + c.len as usize).unwrap_or(&[])
    }
    /// Places to overwrite, for matches since [`Self::clear_results`].
    pub fn replacements(&self) -> &[Replacement] {
        &self.replaces
    }
    /// The scratch memory for regular expressions outside inspection (transforms).
    pub fn pcre_scratch(&mut self) -> &mut PcreScratch {
        &mut self.pcre
    }
}

impl CompiledBuffer {
    /// How bytes in front of the buffer would affect the checks.
    pub(crate) const fn before(&self) -> Before {
        self.before
    }

    /// Whether the checks have a positive literal.
    pub(crate) fn has_literal(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Content(c) if !c.negated))
    }

    /// Whether alerts show the context of a dataset entry. The checks then run once more when the rule matches.
    pub(crate) fn has_context(&self) -> bool {
        fn any(ops: &[Op]) -> bool {
            ops.iter().any(|op| match op {
                Op::Set(s) => s.has_context(),
                Op::Base64 { data, .. } => any(data),
                _ => false,
            })
        }
        any(&self.ops)
    }

    /// Whether all checks hold for `data`. If so, captures and replacements are added to `ctx`.
    pub fn matches(&self, data: &[u8], ctx: &mut InspectContext) -> bool {
        self.inspect(data, ctx)
    }

    /// As [`Self::inspect`], for a part of a body or file that has `start` bytes before it. As in Suricata, `depth`, `startswith` and
    /// `bsize` count from the beginning, all else from the part.
    pub(crate) fn inspect_part<W: Observer>(&self, data: &[u8], start: u64, ctx: &mut InspectContext<W>) -> bool {
        ctx.start = start;
        let holds = self.inspect(data, ctx);
        ctx.start = 0;
        holds
    }

    /// As [`Self::matches`], with or without a watcher.
    pub(crate) fn inspect<W: Observer>(&self, data: &[u8], ctx: &mut InspectContext<W>) -> bool {
        // The cheap conditions exclude most buffers. A watcher must see which check fails, so all checks run then.
        if !W::CHECKS && ctx.start == 0 && !self.head.fits(data) {
            return false;
        }
        ctx.steps = 0;
        if self.remembers {
            ctx.tried = [(0, 0); TRIED_MAX];
        }
        let marks = ctx.marks();
        let matched = self.run(&self.ops, data, 0, ctx) == run::Outcome::Match;
        if !matched {
            ctx.rewind(marks);
        }
        if W::ON {
            ctx.watch.buffer(self, data, matched);
        }
        matched
    }

    /// The position of a check, for watchers: its index, and the inner index if it is a check of `base64_data`.
    pub(crate) fn place_of(&self, op: &Op) -> Option<(usize, Option<usize>)> {
        self.ops.iter().enumerate().find_map(|(n, o)| match o {
            o if std::ptr::eq(o, op) => Some((n, None)),
            Op::Base64 { data, .. } => data.iter().position(|i| std::ptr::eq(i, op)).map(|i| (n, Some(i))),
            _ => None,
        })
    }

    /// The variables for captures, by [`Capture::index`], with their kinds.
    pub fn captures(&self) -> &[(CaptureKind, Arc<str>)] {
        &self.captures
    }

    /// Disables the conditions on length and first bytes.
    #[cfg(test)]
    pub(crate) const fn look_anyway(&mut self) {
        self.head = Head::ALL;
    }

    /// The bytes that a [`Replacement`] writes.
    pub fn replaces(&self) -> &[Arc<[u8]>] {
        &self.replaces
    }
}
