//! Compiles a buffer's checks.

use std::sync::Arc;

use super::search::Searcher;
use margay_rules::ast::{BufferCheck, BufferChecks, Value};

use super::{
    Before, CHECKS_MAX, CaptureRole, CompileError, CompiledBuffer, ContentOp, InspectLimits, Op, PcreOp, TRIED_MAX,
};
use crate::any_of;
use crate::byte_set::ByteSet;
use crate::dataset::{Datasets, SetCheck, SetTest};
use crate::head::Head;
use crate::pcre::Pcre;

/// Reduces backtracking over relative literals. Marks literals of which only the first place needs a try, and gives
/// others a slot that remembers failed places. Returns whether a slot was given.
///
/// Without this, the places of relative literals multiply: each place of the first with each of the second, and so on,
/// up to `detect.inspection-recursion-limit`.
fn spare_places(ops: &mut [Op]) -> bool {
    // Variables that checks set depend on the places of earlier literals, so a place that failed may succeed later.
    let sets = ops.iter().any(|op| matches!(op, Op::ByteExtract(_) | Op::ByteMath(_)));
    let mut slots = 0..TRIED_MAX as u8;
    let mut behind = !sets;
    for op in ops.iter_mut().rev() {
        if let Op::Content(c) = op
            && c.relative_next
        {
            c.first_only = behind;
            if !sets && !behind {
                c.tried = slots.next();
            }
        }
        behind &= favours_early(op);
    }
    slots.start > 0
}

/// Whether an earlier cursor is at least as good for this check: if the check holds from a later cursor, it also holds
/// from an earlier one, and leaves at least as much data for the checks after it.
fn favours_early(op: &Op) -> bool {
    match op {
        // A later cursor makes the search range begin later and end at the same byte.
        Op::Content(c) => c.within.is_none() && !(c.negated && c.distance.is_some()),
        Op::Pcre(p) => !p.relative,
        Op::IsDataAt { relative, negated, .. } => !(*relative && *negated),
        Op::Bsize(_) | Op::Entropy { .. } | Op::Set(_) => true,
        Op::ByteTest(b) => !b.relative,
        Op::Base64 { relative, .. } => !relative,
        Op::Asn1(a) => a.relative_offset.is_none(),
        Op::Judge(_) => true,
        Op::ByteJump(_) | Op::ByteExtract(_) | Op::ByteMath(_) => false,
    }
}

impl CompiledBuffer {
    /// Compiles the checks of `buffer`; the caller handles its transforms and `absent`.
    ///
    /// # Errors
    /// An invalid regular expression, a keyword that this build does not support, or more than [`CHECKS_MAX`] checks.
    pub fn compile(buffer: &BufferChecks, limits: &InspectLimits) -> Result<CompiledBuffer, CompileError> {
        let acts = acts(&buffer.checks);
        let mut out = CompiledBuffer {
            ops: Box::default(),
            captures: Vec::new(),
            targets: Vec::new(),
            replaces: Vec::new(),
            limit: limits.recursion,
            asn1_frames: limits.asn1_frames,
            remembers: false,
            needs_all: !acts,
            head: if acts { Head::ALL } else { Head::of(&buffer.checks) },
            before: Before::Other,
        };
        out.ops = out.compile_ops(&buffer.checks, limits, 0)?;
        out.before = Before::of(&out.ops);
        out.remembers = spare_places(&mut out.ops);
        Ok(out)
    }

    fn compile_ops(
        &mut self,
        checks: &[BufferCheck],
        limits: &InspectLimits,
        nested: u8,
    ) -> Result<Box<[Op]>, CompileError> {
        if checks.len() > CHECKS_MAX {
            return Err(CompileError::invalid(
                "content",
                format!("{} checks for one buffer, at most {CHECKS_MAX} are possible", checks.len()),
            ));
        }
        let mut ops: Vec<Op> = Vec::with_capacity(checks.len());
        for check in checks {
            if is_end(check)
                && let Some(Op::Content(c)) = ops.last_mut()
            {
                // Right after a literal this is another form of `endswith`, also after a negated literal (observed).
                c.ends_with = true;
                continue;
            }
            if is_relative(check) {
                // The check that this one is relative to must be tried at every place. For numbers and lengths, that is
                // only the check right before; for literals and expressions, it is the nearest literal or expression
                // before (observed).
                let reach = match check {
                    BufferCheck::Content(_) | BufferCheck::Pcre(_) => ops.len(),
                    _ => 1,
                };
                for op in ops.iter_mut().rev().take(reach) {
                    match op {
                        Op::Content(c) => c.relative_next = true,
                        Op::Pcre(p) => p.relative_next = true,
                        _ => continue,
                    }
                    break;
                }
            }
            // Scripts run separately, when everything else holds.
            if !matches!(check, BufferCheck::Lua(_)) {
                ops.push(self.compile_op(check, limits, nested)?);
            }
        }
        Ok(ops.into_boxed_slice())
    }

    // It stays whole: a flat match over the checks of buffers.
    fn compile_op(&mut self, check: &BufferCheck, limits: &InspectLimits, nested: u8) -> Result<Op, CompileError> {
        Ok(match check {
            BufferCheck::Content(c) => {
                if c.bytes.is_empty() {
                    return Err(CompileError::invalid(
                        "content",
                        "an empty literal matches nothing; give at least one byte",
                    ));
                }
                let replace = match &c.replace {
                    Some(r) if r.len() != c.bytes.len() => {
                        return Err(CompileError::invalid(
                            "replace",
                            format!("{} bytes for a content of {}; both must be of one length", r.len(), c.bytes.len()),
                        ));
                    }
                    Some(r) => {
                        self.replaces.push(Arc::from(r.as_slice()));
                        u16::try_from(self.replaces.len() - 1).ok()
                    }
                    None => None,
                };
                Op::Content(Box::new(ContentOp {
                    search: Searcher::new(&c.bytes, c.nocase),
                    len: c.bytes.len(),
                    negated: c.negated,
                    offset: c.offset.clone(),
                    depth: c.depth.clone(),
                    distance: c.distance.clone(),
                    within: c.within.clone(),
                    starts_with: c.starts_with,
                    ends_with: c.ends_with,
                    relative_next: false,
                    first_only: false,
                    tried: None,
                    replace,
                }))
            }
            BufferCheck::Pcre(p) => {
                let code = Pcre::new(&p.pattern, &p.options, (!p.override_limits).then_some(limits.pcre))?;
                if p.captures.len() > code.groups() as usize {
                    return Err(CompileError::invalid(
                        "pcre",
                        format!("{} variables for {} capture groups", p.captures.len(), code.groups()),
                    ));
                }
                let from = self.captures.len();
                self.captures.extend(p.captures.iter().map(|(k, n)| (*k, Arc::from(n.as_str()))));
                let range = |n: usize| {
                    u16::try_from(n).map_err(|_| CompileError::invalid("pcre", "more than 65535 variables in one rule"))
                };
                let captures = range(from)?..range(self.captures.len())?;
                Op::Pcre(Box::new(PcreOp {
                    code,
                    negated: p.negated,
                    relative: p.relative,
                    relative_next: false,
                    captures,
                }))
            }
            BufferCheck::IsDataAt { at, relative, negated } => {
                Op::IsDataAt { at: at.clone(), relative: *relative, negated: *negated }
            }
            BufferCheck::Bsize(c) => Op::Bsize(*c),
            BufferCheck::ByteTest(b) => Op::ByteTest(Box::new(b.clone())),
            BufferCheck::ByteJump(b) => Op::ByteJump(Box::new(b.clone())),
            BufferCheck::ByteExtract(b) => Op::ByteExtract(Box::new(b.clone())),
            BufferCheck::ByteMath(b) => Op::ByteMath(Box::new(b.clone())),
            BufferCheck::Base64 { bytes, offset, relative, data } => {
                if nested > 0 {
                    return Err(CompileError::unsupported("base64_decode", "not possible within base64_data"));
                }
                Op::Base64 {
                    bytes: *bytes,
                    offset: *offset,
                    relative: *relative,
                    data: self.compile_ops(data, limits, nested + 1)?,
                }
            }
            BufferCheck::Entropy { bytes, offset, value } => {
                Op::Entropy { bytes: *bytes, offset: *offset, value: *value, name: u32::MAX }
            }
            BufferCheck::Asn1(a) => Op::Asn1(*a),
            BufferCheck::Judge(j) => Op::Judge(*j),
            BufferCheck::Dataset(d) => {
                Op::Set(Box::new(SetCheck { name: d.name.clone(), test: SetTest::Command(d.command), set: None }))
            }
            BufferCheck::DataRep(d) => Op::Set(Box::new(SetCheck {
                name: d.name.clone(),
                test: SetTest::Reputation(d.op, d.value),
                set: None,
            })),
            BufferCheck::Lua(_) => return Err(CompileError::unsupported("lua", "not possible within base64_data")),
            BufferCheck::Other { keyword, .. } => {
                return Err(CompileError::unsupported(keyword, "this build cannot check it"));
            }
        })
    }

    /// Assigns numbers to the names of captures and, if its entropy is measured, to the name of the buffer `buffer`;
    /// looks up datasets by name.
    ///
    /// # Errors
    /// If a dataset is not in `sets`.
    pub fn resolve(
        &mut self,
        buffer: &str,
        names: &mut crate::names::Names,
        sets: &Datasets,
    ) -> Result<(), CompileError> {
        let is = |n: usize, name: &str| self.captures.get(n).is_some_and(|c| &*c.1 == name);
        let pair = |n: usize| {
            let kind = |n: usize| self.captures.get(n).map(|c| c.0);
            is(n, "key") && is(n + 1, "value") && kind(n) == kind(n + 1)
        };
        self.targets = (0..self.captures.len())
            .zip(&self.captures)
            .map(|(n, (_, name))| {
                let role = match n.checked_sub(1) {
                    _ if pair(n) => CaptureRole::Key,
                    Some(before) if pair(before) => CaptureRole::Value,
                    _ => CaptureRole::Named,
                };
                (names.intern(name), role)
            })
            .collect();
        name_entropy(&mut self.ops, buffer, names);
        find_sets(&mut self.ops, sets)
    }
}

/// Sets the name under which events show entropy: the buffer's name in `metadata.entropy`.
fn name_entropy(ops: &mut [Op], buffer: &str, names: &mut crate::names::Names) {
    for op in ops {
        match op {
            Op::Entropy { name, .. } => {
                *name = match buffer {
                    "payload" | "pkt_data" => names.intern("content"),
                    other => names.intern(&other.replace('.', "_")),
                }
            }
            Op::Base64 { data, .. } => name_entropy(data, "base64_data", names),
            _ => {}
        }
    }
}

/// Looks up the datasets by name.
fn find_sets(ops: &mut [Op], sets: &Datasets) -> Result<(), CompileError> {
    for op in ops {
        match op {
            Op::Set(s) => match sets.get(&s.name) {
                Some(set) => {
                    s.set = Some(set.clone());
                    s.tell();
                }
                None => return Err(CompileError::invalid("dataset", format!("there is no set {}", s.name))),
            },
            Op::Base64 { data, .. } => find_sets(data, sets)?,
            _ => {}
        }
    }
    Ok(())
}

/// `isdataat:!1,relative`: right after a literal it is not a separate check.
fn is_end(check: &BufferCheck) -> bool {
    matches!(check, BufferCheck::IsDataAt { at: Value::Number(1), relative: true, negated: true })
}

/// The checks that compile to one operation each, in order.
pub(crate) fn own_checks(checks: &[BufferCheck]) -> Vec<BufferCheck> {
    let mut out: Vec<BufferCheck> = Vec::with_capacity(checks.len());
    for c in checks {
        match out.last_mut() {
            Some(BufferCheck::Content(last)) if is_end(c) => last.ends_with = true,
            // Scripts compile to no operation.
            _ if matches!(c, BufferCheck::Lua(_)) => {}
            _ => out.push(c.clone()),
        }
    }
    out
}

/// Whether one of the checks has a side effect whatever the others return: a dataset entry, a measurement or a script.
fn acts(checks: &[BufferCheck]) -> bool {
    checks.iter().any(|c| match c {
        BufferCheck::Entropy { .. } | BufferCheck::Dataset(_) | BufferCheck::Lua(_) | BufferCheck::Other { .. } => true,
        BufferCheck::Base64 { data, .. } => acts(data),
        _ => false,
    })
}

/// Whether the order of the checks relative to other buffers matters: they have side effects or set variables.
pub(crate) fn order_counts(checks: &[BufferCheck]) -> bool {
    acts(checks)
        || checks.iter().any(|c| match c {
            BufferCheck::ByteExtract(_) | BufferCheck::ByteMath(_) | BufferCheck::DataRep(_) => true,
            BufferCheck::Pcre(p) => !p.captures.is_empty(),
            BufferCheck::Base64 { data, .. } => order_counts(data),
            _ => false,
        })
}

/// Whether the result depends only on the buffer's bytes, and an expression or a judgement, which take long, must hold.
pub(crate) fn judges_bytes(checks: &[BufferCheck]) -> bool {
    let alone = |c: &BufferCheck| match c {
        BufferCheck::Content(c) => c.replace.is_none(),
        BufferCheck::Pcre(p) => p.captures.is_empty(),
        BufferCheck::IsDataAt { .. } | BufferCheck::Bsize(_) | BufferCheck::Judge(_) => true,
        _ => false,
    };
    let takes_long = |c: &BufferCheck| match c {
        BufferCheck::Pcre(p) => !p.negated,
        c => matches!(c, BufferCheck::Judge(_)),
    };
    checks.iter().all(alone) && checks.iter().any(takes_long)
}

/// The bytes of which a buffer for which the checks hold contains at least one, if any are known.
pub(crate) fn bytes_needed(checks: &[BufferCheck]) -> Option<ByteSet> {
    let expressions = checks.iter().filter_map(|c| match c {
        BufferCheck::Pcre(p) if !p.negated => any_of::bytes_of_pattern(&p.pattern, &p.options),
        _ => None,
    });
    expressions.min_by_key(ByteSet::len)
}

/// Whether the check depends on the place of the previous literal, so that backtracking tries every place of that
/// literal.
fn is_relative(check: &BufferCheck) -> bool {
    match check {
        BufferCheck::Content(c) => c.distance.is_some() || c.within.is_some(),
        BufferCheck::Pcre(p) => p.relative,
        BufferCheck::IsDataAt { relative, .. } => *relative,
        BufferCheck::ByteTest(b) => b.relative,
        BufferCheck::ByteJump(b) => b.relative,
        BufferCheck::ByteExtract(b) => b.relative,
        BufferCheck::ByteMath(b) => b.relative,
        // `base64_decode:relative` uses only the first place of the previous literal (Suricata's manual).
        BufferCheck::Base64 { .. } => false,
        // `asn1` does not retry other places either.
        BufferCheck::Bsize(_)
        | BufferCheck::Asn1(_)
        | BufferCheck::Entropy { .. }
        | BufferCheck::Dataset(_)
        | BufferCheck::DataRep(_)
        | BufferCheck::Lua(_)
        | BufferCheck::Judge(_)
        | BufferCheck::Other { .. } => false,
    }
}
