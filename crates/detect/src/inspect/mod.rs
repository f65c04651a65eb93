//! Content inspection: whether the checks of one buffer of a rule hold for some bytes.
//!
//! The checks are walked in the order of the rule with a cursor, the end of the last match. `content` and `pcre` that a
//! later check is relative to are tried at each of their occurrences until the rest holds too; every other check has one
//! outcome. How failure travels back follows what Suricata does (observed, where its manual is silent):
//!
//! - a literal that nothing is relative to is looked for once; what fails behind it fails for good;
//! - an absolute literal that is not there (any more) fails for good, since nothing before it could change that;
//! - a relative one that is not there sends the search back to the literal it hangs on.
//!
//! Work is bounded by [`InspectLimits::recursion`] steps a buffer (`detect.inspection-recursion-limit`): what takes more
//! does not match, and is counted. Nothing is allocated: literals are prepared when the rule is compiled, and
//! [`InspectContext`] keeps the memory that matching needs.

pub mod asn1;
mod base64;
mod compile;
pub(crate) mod number;
mod run;
mod search;
#[cfg(test)]
mod spared;
#[cfg(test)]
mod tests;

pub(crate) use base64::decode as decode_base64;
pub(crate) use compile::{order_counts, own_checks};

use std::sync::Arc;

use margay_meaning::Judge;
use margay_rules::ast::{
    Asn1, ByteExtract, ByteJump, ByteMath, ByteTest, CaptureKind, Compare, FloatCompare, VARIABLES_MAX, Value,
};

use crate::dataset::{SetCheck, SetHit};
use crate::head::Head;
use crate::pcre::{Pcre, PcreError, PcreLimits, PcreScratch};
use crate::shareable::InOrder;
use crate::watch::{Off, Watch};
use search::Searcher;

/// Limits of inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InspectLimits {
    /// Most steps for one buffer: `detect.inspection-recursion-limit`.
    pub recursion: u32,
    /// Limits of one regular expression match.
    pub pcre: PcreLimits,
    /// Most outermost elements that `asn1` looks at: `asn1-max-frames`.
    pub asn1_frames: u32,
}

impl Default for InspectLimits {
    fn default() -> Self {
        InspectLimits { recursion: 3000, pcre: PcreLimits::default(), asn1_frames: asn1::FRAMES }
    }
}

/// Why a rule's check cannot be compiled. The rule is set aside; the others load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// A regular expression is wrong.
    #[error(transparent)]
    Pcre(#[from] PcreError),
    /// This build does not have it.
    #[error("{keyword}: {reason}")]
    Unsupported {
        /// The keyword.
        keyword: String,
        /// What about it.
        reason: String,
    },
    /// A value that no check can be made of.
    #[error("{keyword}: {reason}")]
    Invalid {
        /// The keyword.
        keyword: String,
        /// What is wrong, and what would be right.
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

/// Most checks of one buffer: bounds how deep a search can nest.
pub const CHECKS_MAX: usize = 512;
/// Most bytes that `base64_decode` gives.
pub const BASE64_MAX: usize = 65536;
/// Most captures, and most bytes of them, that one rule's match keeps.
pub const CAPTURES_MAX: (usize, usize) = (32, 16384);
/// Most values of entropy that one rule's look keeps.
pub const MEASURED_MAX: usize = 16;
/// Most `replace` places that one rule's match keeps.
pub const REPLACES_MAX: usize = 32;
/// Most entries of sets that one rule's match shows.
pub const HITS_MAX: usize = 16;

/// Most literals of one buffer whose places are remembered.
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
    /// Whether a later check is relative to it.
    relative_next: bool,
    /// Where nothing of the checks behind it can hold at a later place that did not hold at an earlier one: the first place alone
    /// is tried.
    first_only: bool,
    /// Where what the checks behind it find depends on its place alone: the number of its stretch in `InspectContext::tried`.
    tried: Option<u8>,
    /// Index in `CompiledBuffer::replaces` of what it is replaced with.
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
    /// Range in `CompiledBuffer::captures` that its groups fill, in order.
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

/// The checks of one buffer of a rule, ready to run. Shared by all workers.
#[derive(Debug)]
pub struct CompiledBuffer {
    ops: Box<[Op]>,
    captures: Vec<(CaptureKind, Arc<str>)>,
    /// Of each capture the number of its name, and what it is for.
    targets: Vec<(u32, CaptureRole)>,
    replaces: Vec<Arc<[u8]>>,
    limit: u32,
    asn1_frames: u32,
    /// Whether there are literals whose places are remembered.
    remembers: bool,
    /// What of a buffer's length and beginning the checks leave; anything where they do more than look.
    head: Head,
    /// How bytes before the buffer's beginning affect the checks.
    before: Before,
}

/// How bytes before a buffer's beginning affect its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Before {
    /// What holds without it holds with it as well: literals that may lie anywhere.
    More,
    /// Something else may hold.
    Other,
    /// Their places are counted from the beginning: they mean something else.
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

/// What a captured text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureRole {
    /// The value of the variable that the rule names.
    Named,
    /// `key` with `value` right behind it: the key of the variable whose value that is.
    Key,
    /// The value that goes with the key.
    Value,
}

/// What a capture group of a matching `pcre` held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// Which of [`CompiledBuffer::captures`].
    pub index: u16,
    /// Where it goes.
    pub kind: CaptureKind,
    /// Number of its name ([`CompiledBuffer::resolve`]).
    pub name: u32,
    /// What it is.
    pub role: CaptureRole,
    start: u32,
    len: u32,
}

/// A place that `replace` overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    /// Where in the buffer, in bytes.
    pub offset: u32,
    /// Which of [`CompiledBuffer::replaces`].
    pub index: u16,
}

/// What inspection reads and writes besides the buffer. One a worker, used for all rules.
#[derive(Debug)]
pub struct InspectContext<W = Off> {
    /// Variables of the rule, by number; kept from one of its buffers to the next.
    pub variables: [u64; VARIABLES_MAX],
    /// Byte order of the DCERPC message at hand, for `dce`.
    pub dce_little: bool,
    /// How often a buffer took too many steps since start.
    pub limit_reached: u64,
    /// How often a regular expression reached its limits or failed otherwise.
    pub pcre_failed: u64,
    /// Entropy measured since it was last taken, by number of the buffer's name ([`CompiledBuffer::resolve`]).
    pub measured: Vec<(u32, f64)>,
    /// How often data was not put in a set because it was full.
    pub set_full: u64,
    /// Where several workers have their packets from one stream, and look at sets that rules change.
    pub(crate) order: Option<Arc<dyn InOrder>>,
    pcre: PcreScratch,
    base64: Vec<u8>,
    steps: u32,
    /// Of literals that are tried at each of their places: a stretch of the buffer, from and to, in which all places failed. Of one
    /// buffer of one rule.
    tried: [(usize, usize); TRIED_MAX],
    captures: Vec<Capture>,
    capture_bytes: Vec<u8>,
    replaces: Vec<Replacement>,
    hits: Vec<SetHit>,
    /// Who is told of what is looked at.
    pub(crate) watch: W,
}

impl Default for InspectContext {
    fn default() -> Self {
        InspectContext::watched(Off)
    }
}

impl<W> InspectContext<W> {
    /// One that tells `watch` of what is looked at.
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
            steps: 0,
            tried: [(0, 0); TRIED_MAX],
            captures: Vec::with_capacity(CAPTURES_MAX.0),
            capture_bytes: Vec::with_capacity(CAPTURES_MAX.1),
            replaces: Vec::with_capacity(REPLACES_MAX),
            watch,
        }
    }

    /// Forgets the captures and replacements of an earlier rule or buffer. The caller takes what it wants after each
    /// buffer that matched, and calls this before the next.
    pub fn clear_results(&mut self) {
        self.captures.clear();
        self.capture_bytes.clear();
        self.replaces.clear();
        self.hits.clear();
    }
    /// Entries of sets, of matches since [`Self::clear_results`], that alerts show.
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
    /// Places to overwrite, of matches since [`Self::clear_results`].
    pub fn replacements(&self) -> &[Replacement] {
        &self.replaces
    }
    /// The scratch for regular expressions outside inspection (transforms).
    pub fn pcre_scratch(&mut self) -> &mut PcreScratch {
        &mut self.pcre
    }
}

impl CompiledBuffer {
    /// What bytes before a buffer's beginning mean to the checks.
    pub(crate) const fn before(&self) -> Before {
        self.before
    }

    /// Whether a literal has to be there.
    pub(crate) fn has_literal(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Content(c) if !c.negated))
    }

    /// Whether alerts show what a set says of what was found: then it is looked at once more when the rule matches.
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

    /// Whether all checks hold for `data`. Where they do, captures and replacements are added to `ctx`.
    pub fn matches(&self, data: &[u8], ctx: &mut InspectContext) -> bool {
        self.inspect(data, ctx)
    }

    /// The same, watched or not.
    pub(crate) fn inspect<W: Watch>(&self, data: &[u8], ctx: &mut InspectContext<W>) -> bool {
        // Most buffers are not as long, or do not begin, as the checks want it. Who watches is told which of them fails.
        if !W::CHECKS && !self.head.fits(data) {
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

    /// Where a check is, for who watches: its place, and that among the checks of `base64_data` where it is one of them.
    pub(crate) fn place_of(&self, op: &Op) -> Option<(usize, Option<usize>)> {
        self.ops.iter().enumerate().find_map(|(n, o)| match o {
            o if std::ptr::eq(o, op) => Some((n, None)),
            Op::Base64 { data, .. } => data.iter().position(|i| std::ptr::eq(i, op)).map(|i| (n, Some(i))),
            _ => None,
        })
    }

    /// Variables that captures of [`Capture::index`] go to, and of which kind.
    pub fn captures(&self) -> &[(CaptureKind, Arc<str>)] {
        &self.captures
    }

    /// Leaves nothing out by length or beginning.
    #[cfg(test)]
    pub(crate) const fn look_anyway(&mut self) {
        self.head = Head::ALL;
    }

    /// The bytes that a [`Replacement`] puts in place.
    pub fn replaces(&self) -> &[Arc<[u8]>] {
        &self.replaces
    }
}
