//! Runs the checks on a buffer.

use margay_rules::ast::{
    Base64Mode, ByteExtract, ByteJump, ByteMath, ByteOp, ByteTest, FloatCompare, MathOp, NumberFormat, Value,
};

use super::number::{self, mask};
use super::{
    BASE64_MAX, CAPTURES_MAX, Capture, CaptureRole, CheckResult, CompiledBuffer, ContentOp, HITS_MAX, InspectContext,
    MEASURED_MAX, Observer, Op, OpSeen, PcreOp, REPLACES_MAX, Replacement,
};
use crate::dataset::SetOutcome;
use crate::pcre::PcreResult;

/// The result of the checks from some point on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Match,
    /// They fail, but another place for an earlier literal may help.
    Fail,
    /// They fail for every place of earlier literals.
    Stop,
}

/// Lengths of the result lists, to roll back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks {
    captures: usize,
    bytes: usize,
    replaces: usize,
    hits: usize,
}

impl<W> InspectContext<W> {
    #[inline]
    pub(crate) fn marks(&self) -> Marks {
        Marks {
            captures: self.captures.len(),
            bytes: self.capture_bytes.len(),
            replaces: self.replaces.len(),
            hits: self.hits.len(),
        }
    }

    #[inline]
    pub(crate) fn rewind(&mut self, m: Marks) {
        // Most checks add nothing.
        if self.marks() == m {
            return;
        }
        self.captures.truncate(m.captures);
        self.capture_bytes.truncate(m.bytes);
        self.replaces.truncate(m.replaces);
        self.hits.truncate(m.hits);
    }

    /// A constant or a variable as a position, saturated to the valid range.
    fn position(&self, v: &Value) -> i64 {
        match v {
            Value::Number(n) => *n,
            Value::Variable(i) => self.variable(*i).try_into().unwrap_or(i64::MAX),
        }
    }

    /// A constant or a variable for comparisons.
    fn unsigned(&self, v: &Value) -> u64 {
        match v {
            Value::Number(n) => n.cast_unsigned(),
            Value::Variable(i) => self.variable(*i),
        }
    }

    fn variable(&self, i: u8) -> u64 {
        self.variables.get(usize::from(i)).copied().unwrap_or(0)
    }

    fn set_variable(&mut self, i: u8, value: u64) {
        if let Some(v) = self.variables.get_mut(usize::from(i)) {
            *v = value;
        }
    }

    fn keep_replacement(&mut self, at: usize, op: &ContentOp) {
        if let (Some(index), Ok(offset)) = (op.replace, u32::try_from(at))
            && self.replaces.len() < REPLACES_MAX
        {
            self.replaces.push(Replacement { offset, index });
        }
    }

    /// Keeps an entropy value; it replaces an earlier one of the same buffer.
    fn keep_entropy(&mut self, name: u32, value: f64) {
        let room = self.measured.len() < MEASURED_MAX && name != u32::MAX;
        match self.measured.iter_mut().find(|m| m.0 == name) {
            Some(m) => m.1 = value,
            None if room => self.measured.push((name, value)),
            None => {}
        }
    }

    fn keep_captures(&mut self, buffer: &CompiledBuffer, op: &PcreOp, subject: &[u8]) {
        for (n, index) in op.captures.clone().enumerate() {
            let Some(bytes) = self.pcre.group(n + 1).and_then(|(from, to)| subject.get(from..to)) else { continue };
            let start = self.capture_bytes.len();
            if self.captures.len() >= CAPTURES_MAX.0 || start + bytes.len() > CAPTURES_MAX.1 {
                return;
            }
            let Some((kind, text)) = buffer.captures.get(usize::from(index)) else { continue };
            if text.is_empty() {
                continue;
            }
            let (name, role) =
                buffer.targets.get(usize::from(index)).copied().unwrap_or((u32::MAX, CaptureRole::Named));
            self.capture_bytes.extend_from_slice(bytes);
            self.captures.push(Capture {
                index,
                kind: *kind,
                name,
                role,
                start: start as u32,
                len: bytes.len() as u32,
            });
        }
    }
}

impl ContentOp {
    /// Start and end of the range of `data` that may contain the literal; `None` if it cannot fit.
    fn window<W>(&self, data: &[u8], cursor: usize, ctx: &InspectContext<W>) -> Option<(usize, usize)> {
        let len = data.len() as i64;
        let mut start = 0i64;
        let mut end = len;
        if self.is_relative() {
            let cursor = cursor as i64;
            let distance = self.distance.as_ref().map_or(0, |d| ctx.position(d));
            start = cursor.saturating_add(distance);
            if let Some(w) = &self.within {
                end = start.saturating_add(ctx.position(w));
                // A range that would end before the buffer starts is unlimited (observed).
                if end < 0 {
                    end = len;
                }
            }
        }
        let offset = self.offset.as_ref().map_or(0, |o| ctx.position(o));
        start = start.max(offset);
        let n = self.len as i64;
        end = end.min(self.last(ctx));
        end = end.min(len);
        if self.ends_with {
            if end < len {
                return None;
            }
            start = start.max(end - n);
        }
        let start = start.max(0);
        if end - start < n { None } else { Some((start as usize, end as usize)) }
    }

    /// Where the literal ends at the latest, by its depth. Before the data, if the place is in a part that is gone.
    fn last<W>(&self, ctx: &InspectContext<W>) -> i64 {
        let depth = self.depth.as_ref().map(|d| ctx.position(d));
        let depth = if self.starts_with { Some(depth.unwrap_or(i64::MAX).min(self.len as i64)) } else { depth };
        let Some(depth) = depth else { return i64::MAX };
        let offset = self.offset.as_ref().map_or(0, |o| ctx.position(o));
        offset.saturating_add(depth).saturating_sub(ctx.start.cast_signed())
    }

    fn find(&self, data: &[u8], start: usize, end: usize) -> Option<usize> {
        let hay = data.get(start..end)?;
        if hay.len() == self.len {
            return self.search.equals(hay).then_some(start);
        }
        self.search.find(hay).map(|i| start + i)
    }
}

impl Op {
    /// Whether it is a literal that has to be somewhere in `data` and is not.
    fn is_missing(&self, data: &[u8]) -> bool {
        matches!(self, Op::Content(c) if !c.negated && c.search.find(data).is_none())
    }
}

/// The number of places of a literal that fail before the literals behind it are looked for in the whole buffer: without one of
/// them, all other places fail too.
const PATIENCE: u32 = 4;

impl CompiledBuffer {
    /// Runs `ops` over `data` from `cursor`.
    // It stays whole: the interpreter's loop, with one match over the operations.
    pub(super) fn run<W: Observer>(
        &self,
        ops: &[Op],
        data: &[u8],
        mut cursor: usize,
        ctx: &mut InspectContext<W>,
    ) -> Outcome {
        let mut rest = ops;
        // The result of a failure: `Stop` after a literal that is not tried again.
        let mut fail = Outcome::Fail;
        while let Some((op, after)) = rest.split_first() {
            rest = after;
            ctx.steps += 1;
            if ctx.steps >= self.limit {
                ctx.limit_reached += 1;
                self.tell(op, data, cursor, None, CheckResult::Limit, ctx);
                return Outcome::Stop;
            }
            // The place of the check's match, and the range that was searched; only for watchers.
            let (before, mut place, mut sought) = (cursor, None, None);
            let holds = match op {
                Op::Content(c) => {
                    let window = c.window(data, cursor, ctx);
                    // Places that failed before fail again.
                    let begin = |start| match c.tried.and_then(|slot| ctx.tried.get(usize::from(slot))) {
                        Some(&(from, to)) if !W::CHECKS && (from..to).contains(&start) => to,
                        _ => start,
                    };
                    let found = window.and_then(|(start, end)| c.find(data, begin(start), end));
                    if W::CHECKS {
                        sought = window;
                        place = found.map(|at| (at, at + c.len));
                    }
                    if c.negated {
                        // Of a place in an earlier part, nothing is known here.
                        found.is_none() && (ctx.start == 0 || c.last(ctx) > 0)
                    } else {
                        let exhausted = if c.is_relative() { fail } else { Outcome::Stop };
                        let (Some(at), Some((start, end))) = (found, window) else {
                            self.tell(op, data, cursor, window, CheckResult::Failed(None), ctx);
                            return exhausted;
                        };
                        if c.relative_next {
                            self.tell(op, data, cursor, window, CheckResult::Held(at, at + c.len), ctx);
                            return self.try_places(op, c, rest, data, (start, at, end), exhausted, ctx);
                        }
                        ctx.keep_replacement(at, c);
                        cursor = at + c.len;
                        fail = Outcome::Stop;
                        true
                    }
                }
                Op::Pcre(p) => {
                    let base = if p.relative { cursor } else { 0 };
                    let subject = data.get(base..).unwrap_or(&[]);
                    match p.code.find_at(subject, 0, &mut ctx.pcre) {
                        PcreResult::Failed(_) => {
                            ctx.pcre_failed += 1;
                            false
                        }
                        PcreResult::NoMatch => p.negated,
                        PcreResult::Match(from, to) if p.negated => {
                            if W::CHECKS {
                                place = Some((base + from, base + to));
                            }
                            false
                        }
                        PcreResult::Match(from, to) if p.relative_next => {
                            self.tell(op, data, cursor, None, CheckResult::Held(base + from, base + to), ctx);
                            return self.try_matches(op, p, rest, data, base, (from, to), fail, ctx);
                        }
                        PcreResult::Match(from, to) => {
                            if W::CHECKS {
                                place = Some((base + from, base + to));
                            }
                            ctx.keep_captures(self, p, subject);
                            cursor = base + to;
                            true
                        }
                    }
                }
                Op::IsDataAt { at, relative, negated } => {
                    let at = ctx.position(at);
                    let len = data.len() as i64;
                    // Relative: the byte before that place must exist. Absolute: the byte at it.
                    let there = if *relative { (cursor as i64).saturating_add(at) <= len } else { at < len };
                    there != *negated
                }
                Op::Bsize(c) => c.holds(ctx.start.saturating_add(data.len() as u64)),
                Op::ByteTest(b) => byte_test(b, data, cursor, ctx),
                Op::ByteJump(b) => jumped(byte_jump(b, data, cursor, ctx), &mut cursor),
                Op::ByteExtract(b) => jumped(byte_extract(b, data, cursor, ctx), &mut cursor),
                Op::ByteMath(b) => jumped(byte_math(b, data, cursor, ctx), &mut cursor),
                Op::Base64 { bytes, offset, relative, data: inner } => {
                    let from = (if *relative { cursor } else { 0 }).saturating_add(*offset as usize);
                    let encoded = data.get(from..).unwrap_or(&[]);
                    let encoded = match bytes {
                        Some(n) => encoded.get(..*n as usize).unwrap_or(encoded),
                        None => encoded,
                    };
                    let mut decoded = std::mem::take(&mut ctx.base64);
                    decoded.clear();
                    crate::base64::decode(encoded, Base64Mode::Rfc4648, BASE64_MAX, &mut decoded);
                    let outcome = if decoded.is_empty() || inner.is_empty() {
                        Outcome::Fail
                    } else {
                        let start = std::mem::take(&mut ctx.start);
                        let outcome = self.run(inner, &decoded, 0, ctx);
                        ctx.start = start;
                        outcome
                    };
                    ctx.base64 = decoded;
                    outcome == Outcome::Match
                }
                Op::Entropy { bytes, offset, value, name } => match entropy_of(data, *bytes, *offset) {
                    Some(e) => {
                        ctx.keep_entropy(*name, e);
                        entropy_holds(e, *value)
                    }
                    None => false,
                },
                Op::Asn1(a) => {
                    let at = match a.relative_offset {
                        Some(offset) => (cursor as i64).saturating_add(i64::from(offset)),
                        None => i64::from(a.absolute_offset),
                    };
                    usize::try_from(at)
                        .ok()
                        .and_then(|at| data.get(at..))
                        .is_some_and(|data| super::asn1::holds(a, data, self.asn1_frames))
                }
                Op::Judge(judge) => judge.holds(data),
                Op::Set(s) => match s.run_in(data, ctx.order.as_deref()) {
                    SetOutcome::Holds(hit) => {
                        if let Some(hit) = hit.filter(|_| ctx.hits.len() < HITS_MAX) {
                            ctx.hits.push(hit);
                        }
                        true
                    }
                    SetOutcome::Fails => false,
                    SetOutcome::Full => {
                        ctx.set_full += 1;
                        false
                    }
                },
            };
            if W::CHECKS {
                let (from, to) = place.unwrap_or((before, cursor));
                let came = if holds { CheckResult::Held(from, to) } else { CheckResult::Failed(place) };
                self.tell(op, data, before, sought, came, ctx);
            }
            if !holds {
                return fail;
            }
        }
        ctx.cursor = cursor;
        Outcome::Match
    }

    /// Reports the result of a check to the watcher.
    #[inline]
    fn tell<W: Observer>(
        &self,
        op: &Op,
        data: &[u8],
        cursor: usize,
        window: Option<(usize, usize)>,
        came: CheckResult,
        ctx: &mut InspectContext<W>,
    ) {
        if W::CHECKS {
            let seen = OpSeen { data, cursor, window, came, variables: &ctx.variables, dce_little: ctx.dce_little };
            ctx.watch.op(self, op, &seen);
        }
    }

    /// Tries the rest at every place of a literal, from the first one on, `at`. The search for it began at `start` and ends at
    /// `end`.
    #[allow(clippy::too_many_arguments)]
    fn try_places<W: Observer>(
        &self,
        op: &Op,
        c: &ContentOp,
        rest: &[Op],
        data: &[u8],
        (start, mut at, end): (usize, usize, usize),
        exhausted: Outcome,
        ctx: &mut InspectContext<W>,
    ) -> Outcome {
        let tried = c.tried.map(usize::from);
        let (from, to) = tried.and_then(|slot| ctx.tried.get(slot)).copied().unwrap_or_default();
        let mut failed = 0;
        loop {
            // Places that failed before fail again.
            let again = tried.is_some() && (from..to).contains(&at);
            if !again {
                let marks = ctx.marks();
                ctx.keep_replacement(at, c);
                match self.run(rest, data, at + c.len, ctx) {
                    Outcome::Fail => {}
                    done => return done,
                }
                ctx.rewind(marks);
                if c.first_only {
                    return exhausted;
                }
                failed += 1;
                if failed == PATIENCE && self.needs_all && !W::CHECKS && rest.iter().any(|op| op.is_missing(data)) {
                    return Outcome::Stop;
                }
            } else {
                // A place that was tried costs the steps of the checks behind it, as in Suricata.
                ctx.steps += 1;
            }
            match c.find(data, if again { to } else { at + 1 }, end) {
                Some(next) => {
                    at = next;
                    self.tell(op, data, at, None, CheckResult::Held(at, at + c.len), ctx);
                }
                None => break,
            }
        }
        if let Some(tried) = tried.and_then(|slot| ctx.tried.get_mut(slot)) {
            // All places up to the last one where the literal fits before `end`.
            let last = end + 1 - c.len;
            *tried = if (from..=to).contains(&start) && from < to { (from, to.max(last)) } else { (start, last) };
        }
        exhausted
    }

    /// Tries the rest at every match of an expression, from the first one on.
    #[allow(clippy::too_many_arguments)]
    fn try_matches<W: Observer>(
        &self,
        op: &Op,
        p: &PcreOp,
        rest: &[Op],
        data: &[u8],
        base: usize,
        (mut from, mut to): (usize, usize),
        exhausted: Outcome,
        ctx: &mut InspectContext<W>,
    ) -> Outcome {
        let subject = data.get(base..).unwrap_or(&[]);
        loop {
            let marks = ctx.marks();
            ctx.keep_captures(self, p, subject);
            match self.run(rest, data, base + to, ctx) {
                Outcome::Fail => {}
                done => return done,
            }
            ctx.rewind(marks);
            match p.code.find_at(subject, from + 1, &mut ctx.pcre) {
                // A lookbehind with `\K` might match at the same place again; each try must advance.
                PcreResult::Match(f, t) if f > from => {
                    (from, to) = (f, t);
                    self.tell(op, data, base, None, CheckResult::Held(base + f, base + t), ctx);
                }
                PcreResult::Failed(_) => {
                    ctx.pcre_failed += 1;
                    return exhausted;
                }
                _ => return exhausted,
            }
        }
    }
}

fn jumped(to: Option<usize>, cursor: &mut usize) -> bool {
    match to {
        Some(to) => {
            *cursor = to;
            true
        }
        None => false,
    }
}

/// The position of a number with the offset `offset`.
fn place(relative: bool, cursor: usize, offset: i64) -> i64 {
    if relative { (cursor as i64).saturating_add(offset) } else { offset }
}

fn byte_test<W>(b: &ByteTest, data: &[u8], cursor: usize, ctx: &InspectContext<W>) -> bool {
    let at = place(b.relative, cursor, ctx.position(&b.offset));
    let Some(n) = number::read(data, at, ctx.unsigned(&b.bytes), b.format, ctx.dce_little) else { return false };
    let left = mask(n.value, b.bitmask);
    let right = ctx.unsigned(&b.value);
    let holds = match b.op {
        ByteOp::Less => left < right,
        ByteOp::LessEqual => left <= right,
        ByteOp::Greater => left > right,
        ByteOp::GreaterEqual => left >= right,
        ByteOp::Equal => left == right,
        ByteOp::And => left & right != 0,
        // The manual calls it "bitwise OR"; Suricata computes an exclusive or.
        ByteOp::Or => left ^ right != 0,
    };
    holds != b.negated
}

/// The cursor after the jump; `None` if there is no number or the jump leads beyond the end. A jump before the start
/// leads to the start.
fn byte_jump<W>(b: &ByteJump, data: &[u8], cursor: usize, ctx: &InspectContext<W>) -> Option<usize> {
    let at = place(b.relative, cursor, ctx.position(&b.offset));
    let bytes = ctx.unsigned(&b.bytes);
    let (value, len) = if bytes == 0 && matches!(b.format, NumberFormat::Binary(_)) {
        (0, 0)
    } else {
        let n = number::read(data, at, bytes, b.format, ctx.dce_little)?;
        (mask(n.value, b.bitmask), n.len)
    };
    let mut jump = i128::from(value) * i128::from(b.multiplier.max(1));
    if b.align {
        jump = (jump + 3) & !3;
    }
    jump += i128::from(ctx.position(&b.post_offset));
    let from = if b.from_beginning {
        0
    } else if b.from_end {
        data.len() as i128
    } else {
        i128::from(at) + len as i128
    };
    let to = (from + jump).max(0);
    if to > data.len() as i128 { None } else { usize::try_from(to).ok() }
}

/// Sets the variable and moves the cursor behind the number.
fn byte_extract<W>(b: &ByteExtract, data: &[u8], cursor: usize, ctx: &mut InspectContext<W>) -> Option<usize> {
    let at = place(b.relative, cursor, i64::from(b.offset));
    let n = number::read(data, at, u64::from(b.bytes), b.format, ctx.dce_little)?;
    let mut value = n.value.wrapping_mul(u64::from(b.multiplier.max(1)));
    if b.align > 1 {
        value = value.checked_next_multiple_of(u64::from(b.align)).unwrap_or(value);
    }
    ctx.set_variable(b.variable, value);
    Some(usize::try_from(at).ok()? + n.len)
}

/// Sets the variable and moves the cursor behind the number. Division by zero does not match.
fn byte_math<W>(b: &ByteMath, data: &[u8], cursor: usize, ctx: &mut InspectContext<W>) -> Option<usize> {
    let at = place(b.relative, cursor, i64::from(b.offset));
    let n = number::read(data, at, ctx.unsigned(&b.bytes), b.format, ctx.dce_little)?;
    let right = ctx.unsigned(&b.rvalue);
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    let value = match b.op {
        MathOp::Add => n.value.wrapping_add(right),
        MathOp::Subtract => n.value.wrapping_sub(right),
        MathOp::Multiply => n.value.wrapping_mul(right),
        MathOp::Divide => n.value.checked_div(right)?,
        MathOp::ShiftLeft => n.value.checked_shl(shift).unwrap_or(0),
        MathOp::ShiftRight => n.value.checked_shr(shift).unwrap_or(0),
    };
    // The manual applies the mask to the number that was read; Suricata applies it to the result.
    ctx.set_variable(b.result, mask(value, b.bitmask));
    Some(usize::try_from(at).ok()? + n.len)
}

/// The entropy of a part of a buffer; `None` if the part is empty.
fn entropy_of(data: &[u8], bytes: u32, offset: u32) -> Option<f64> {
    let data = data.get(offset as usize..).filter(|d| !d.is_empty())?;
    Some(entropy(match bytes {
        0 => data,
        n => data.get(..n as usize).unwrap_or(data),
    }))
}

fn entropy_holds(entropy: f64, value: FloatCompare) -> bool {
    let e = (entropy * 1000.0).round();
    let t = |v: f64| (v * 1000.0).round();
    match value {
        FloatCompare::Equal(v) => e == t(v),
        FloatCompare::NotEqual(v) => e != t(v),
        FloatCompare::Less(v) => e < t(v),
        FloatCompare::LessEqual(v) => e <= t(v),
        FloatCompare::Greater(v) => e > t(v),
        FloatCompare::GreaterEqual(v) => e >= t(v),
        FloatCompare::Between(a, b) => e > t(a) && e < t(b),
        FloatCompare::NotBetween(a, b) => e <= t(a) || e >= t(b),
    }
}

/// Shannon entropy in bits per byte, 0 to 8.
fn entropy(data: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for &b in data {
        counts[usize::from(b)] += 1;
    }
    let total = data.len() as f64;
    counts
        .iter()
        .filter(|&&n| n > 0)
        .map(|&n| {
            let p = f64::from(n) / total;
            -p * p.log2()
        })
        .sum()
}
