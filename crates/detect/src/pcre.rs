//! A safe wrapper over PCRE2's 8-bit library (pcre2api(3)): compiled expressions with their match limits, and the
//! per-thread memory that matching needs.
//!
//! An expression is compiled once and shared; the match data, the match context and the JIT's stack live in a
//! [`PcreScratch`] that each worker owns, so that nothing is allocated while matching. Machine code is made when an
//! expression is first tried: of a set of rules few ever are, and it takes five times the memory of the expression itself.
//! Limits: PCRE gives up with an error once an expression took more steps than allowed, and that counts as no match.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Once;

use pcre2_sys as sys;

/// Most capture groups whose positions are kept.
pub const MAX_GROUPS: usize = 32;

/// Limits of one match (`pcre.match-limit`, `pcre.match-limit-recursion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcreLimits {
    /// Most internal match steps.
    pub steps: u32,
    /// Most nested backtracking points.
    pub depth: u32,
}

impl Default for PcreLimits {
    fn default() -> Self {
        PcreLimits { steps: 3500, depth: 1500 }
    }
}

/// Why an expression did not compile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pcre \"{pattern}\" does not compile at offset {offset}: {message}")]
pub struct PcreError {
    /// The expression.
    pub pattern: String,
    /// Where in the expression, in bytes from 0.
    pub offset: usize,
    /// PCRE's message, or ours about an option.
    pub message: String,
}

/// What a match attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcreResult {
    /// It matched these bytes of the subject, from start to end.
    Match(usize, usize),
    /// It did not match.
    NoMatch,
    /// A limit was reached, or PCRE failed otherwise; its error number.
    Failed(i32),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Pcre {
    code: NonNull<sys::pcre2_code_8>,
    /// `None` where the rule lifts the limits (`O`).
    limits: Option<PcreLimits>,
    /// Machine code is made once, before the first match; who comes meanwhile waits.
    jit: Once,
    groups: u32,
}

// SAFETY: a compiled pattern is read-only once compilation (including JIT) is done, and pcre2api(3), "Multithreading",
// allows it to be used by several threads at once. It is freed when its only owner is dropped.
unsafe impl Send for Pcre {}
// SAFETY: as above; matching only reads the code, and comes behind `jit`, so that nobody reads it while it is written.
unsafe impl Sync for Pcre {}

impl Pcre {
    /// Compiles `pattern` with the option letters `ismxAEG`; letters that name a buffer or a place (`RBO`…) must have been
    /// taken out. `limits` is `None` to match without limits.
    pub fn new(pattern: &str, options: &str, limits: Option<PcreLimits>) -> Result<Pcre, PcreError> {
        let fail = |offset: usize, message: String| PcreError { pattern: pattern.to_owned(), offset, message };
        let mut bits = 0;
        for c in options.chars() {
            bits |= match c {
                'i' => sys::PCRE2_CASELESS,
                's' => sys::PCRE2_DOTALL,
                'm' => sys::PCRE2_MULTILINE,
                'x' => sys::PCRE2_EXTENDED,
                'A' => sys::PCRE2_ANCHORED,
                'E' => sys::PCRE2_DOLLAR_ENDONLY,
                'G' => sys::PCRE2_UNGREEDY,
                other => return Err(fail(0, format!("option {other:?} is not one of i, s, m, x, A, E, G"))),
            };
        }
        let mut error = 0;
        let mut offset = 0;
        // SAFETY: pattern and length describe a live slice; the out pointers are live locals; a null context means defaults.
        let code = unsafe {
            sys::pcre2_compile_8(pattern.as_ptr(), pattern.len(), bits, &mut error, &mut offset, ptr::null_mut())
        };
        let Some(code) = NonNull::new(code) else {
            return Err(fail(offset, message(error)));
        };
        let mut groups: u32 = 0;
        // SAFETY: PCRE2_INFO_CAPTURECOUNT writes one u32 to `where`, which points to a live u32.
        unsafe {
            sys::pcre2_pattern_info_8(code.as_ptr(), sys::PCRE2_INFO_CAPTURECOUNT, (&raw mut groups).cast::<c_void>());
        }
        Ok(Pcre { code, limits, jit: Once::new(), groups })
    }

    /// How many capture groups it has.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Whether machine code was made for it.
    pub fn is_jit(&self) -> bool {
        let mut size: usize = 0;
        self.jit.is_completed() && {
            // SAFETY: PCRE2_INFO_JITSIZE writes one size to `where`, which points to a live usize; behind `jit` the code is
            // written to no more.
            let rc = unsafe {
                sys::pcre2_pattern_info_8(self.code.as_ptr(), sys::PCRE2_INFO_JITSIZE, (&raw mut size).cast::<c_void>())
            };
            rc == 0 && size > 0
        }
    }

    /// Looks for a match in `subject` at or after `start`. The positions of groups are in `scratch` afterwards.
    pub fn find_at(&self, subject: &[u8], start: usize, scratch: &mut PcreScratch) -> PcreResult {
        scratch.count = 0;
        if start > subject.len() {
            return PcreResult::NoMatch;
        }
        scratch.set_limits(self.limits);
        self.jit.call_once(|| {
            // SAFETY: the documented way to add machine code to what was compiled; nobody else uses the code until this is
            // done, for all matching comes behind it. Failure (no JIT in this build, or not for this pattern) leaves it usable
            // by the interpreter.
            unsafe { sys::pcre2_jit_compile_8(self.code.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        });
        // SAFETY: code, match data and context are live; subject pointer and length describe a live slice, start is within
        // it. PCRE does not keep the subject beyond what the ovector (offsets, not pointers) tells. `&mut scratch` makes
        // this the only user of the match data and the JIT stack.
        let rc = unsafe {
            sys::pcre2_match_8(
                self.code.as_ptr(),
                subject.as_ptr(),
                subject.len(),
                start,
                0,
                scratch.data.as_ptr(),
                scratch.context.as_ptr(),
            )
        };
        match rc {
            sys::PCRE2_ERROR_NOMATCH => PcreResult::NoMatch,
            rc if rc < 0 => PcreResult::Failed(rc),
            rc => {
                // 0 says that there were more groups than pairs: then all pairs are set.
                scratch.count = if rc == 0 { MAX_GROUPS } else { (rc as usize).min(MAX_GROUPS) };
                // `\K` in a lookahead may set the start behind the end: such a match is taken as empty at its end.
                let (from, to) = scratch.group(0).unwrap_or((start, start));
                let to = to.min(subject.len());
                PcreResult::Match(from.min(to), to)
            }
        }
    }
}

impl Drop for Pcre {
    fn drop(&mut self) {
        // SAFETY: `code` came from pcre2_compile_8 and nobody else frees it.
        unsafe { sys::pcre2_code_free_8(self.code.as_ptr()) }
    }
}

/// PCRE's text for an error number.
fn message(error: i32) -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: buffer and its length describe live, writable memory; PCRE ends the text with a zero or reports failure.
    let n = unsafe { sys::pcre2_get_error_message_8(error, buffer.as_mut_ptr(), buffer.len()) };
    match usize::try_from(n).ok().and_then(|n| buffer.get(..n)) {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None => format!("error {error}"),
    }
}

/// What matching needs besides the code: owned by one worker, used for all its expressions.
#[derive(Debug)]
pub struct PcreScratch {
    data: NonNull<sys::pcre2_match_data_8>,
    context: NonNull<sys::pcre2_match_context_8>,
    jit_stack: *mut sys::pcre2_jit_stack_8,
    /// What the context is set to, so that it is only changed when an expression differs.
    limits: Option<Option<PcreLimits>>,
    count: usize,
}

// SAFETY: all three allocations are owned by this value alone and tied to no thread; it may move between threads, and
// without Sync it is not used by two at once.
unsafe impl Send for PcreScratch {}

/// PCRE's own limits, for expressions that lift the configured ones (pcre2build(3): 10,000,000).
const UNLIMITED: PcreLimits = PcreLimits { steps: 10_000_000, depth: 10_000_000 };

impl PcreScratch {
    /// Sets up match data for [`MAX_GROUPS`] pairs and a JIT stack of 32 KiB that may grow to 512 KiB.
    ///
    /// # Panics
    /// Where memory for these few kilobytes is not to be had, as other allocations do.
    #[expect(
        clippy::expect_used,
        reason = "as other allocations do, it panics without memory; nothing from outside leads here"
    )]
    pub fn new() -> Self {
        // SAFETY: plain allocations with default (null) general contexts; null results are checked below.
        let (data, context, jit_stack) = unsafe {
            (
                sys::pcre2_match_data_create_8(MAX_GROUPS as u32, ptr::null_mut()),
                sys::pcre2_match_context_create_8(ptr::null_mut()),
                sys::pcre2_jit_stack_create_8(32 * 1024, 512 * 1024, ptr::null_mut()),
            )
        };
        let data = NonNull::new(data).expect("memory for pcre match data");
        let context = NonNull::new(context).expect("memory for a pcre match context");
        if !jit_stack.is_null() {
            // SAFETY: with a null callback, PCRE takes the data pointer as the JIT stack itself (pcre2jit(3)); the stack
            // lives as long as the context, both are freed in `drop`.
            unsafe { sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, jit_stack.cast::<c_void>()) };
        }
        PcreScratch { data, context, jit_stack, limits: None, count: 0 }
    }

    fn set_limits(&mut self, limits: Option<PcreLimits>) {
        if self.limits == Some(limits) {
            return;
        }
        let l = limits.unwrap_or(UNLIMITED);
        // SAFETY: the context is live and ours; these calls store a number in it.
        unsafe {
            sys::pcre2_set_match_limit_8(self.context.as_ptr(), l.steps);
            sys::pcre2_set_depth_limit_8(self.context.as_ptr(), l.depth);
        }
        self.limits = Some(limits);
    }

    /// Where group `n` of the latest match lies, from start to end; `None` where it took no part.
    pub fn group(&self, n: usize) -> Option<(usize, usize)> {
        if n >= self.count {
            return None;
        }
        // SAFETY: match data created for MAX_GROUPS pairs has an ovector of 2 * MAX_GROUPS values, and n < count <= MAX_GROUPS.
        let (from, to) = unsafe {
            let v = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            (*v.add(2 * n), *v.add(2 * n + 1))
        };
        if from == sys::PCRE2_UNSET || to == sys::PCRE2_UNSET { None } else { Some((from, to)) }
    }
}

impl Default for PcreScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PcreScratch {
    fn drop(&mut self) {
        // SAFETY: each came from its create function, is freed once, and freeing a null stack is allowed.
        unsafe {
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            sys::pcre2_jit_stack_free_8(self.jit_stack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, options: &str, subject: &str) -> PcreResult {
        let p = Pcre::new(pattern, options, Some(PcreLimits::default())).expect("compiles");
        p.find_at(subject.as_bytes(), 0, &mut PcreScratch::new())
    }

    #[test]
    fn options() {
        assert_eq!(find("b", "", "abc"), PcreResult::Match(1, 2));
        assert_eq!(find("B", "", "abc"), PcreResult::NoMatch);
        assert_eq!(find("B", "i", "abc"), PcreResult::Match(1, 2));
        assert_eq!(find("a.c", "", "a\nc"), PcreResult::NoMatch);
        assert_eq!(find("a.c", "s", "a\nc"), PcreResult::Match(0, 3));
        assert_eq!(find("^c", "", "a\nc"), PcreResult::NoMatch);
        assert_eq!(find("^c", "m", "a\nc"), PcreResult::Match(2, 3));
        assert_eq!(find("b c", "x", "abc"), PcreResult::Match(1, 3));
        assert_eq!(find("b", "A", "abc"), PcreResult::NoMatch);
        assert_eq!(find("c$", "", "abc\n"), PcreResult::Match(2, 3));
        assert_eq!(find("c$", "E", "abc\n"), PcreResult::NoMatch);
        assert_eq!(find("b+", "", "abbb"), PcreResult::Match(1, 4));
        assert_eq!(find("b+", "G", "abbb"), PcreResult::Match(1, 2));
    }

    /// Threads that try an expression for the first time at once all find what it finds.
    #[test]
    fn machine_code_comes_with_the_first_match() {
        for _ in 0..50 {
            let p = Pcre::new("a+b", "", Some(PcreLimits::default())).expect("compiles");
            assert!(!p.is_jit());
            std::thread::scope(|s| {
                for _ in 0..3 {
                    s.spawn(|| assert_eq!(p.find_at(b"caab", 0, &mut PcreScratch::new()), PcreResult::Match(1, 4)));
                }
            });
            let mut on: u32 = 0;
            // SAFETY: PCRE2_CONFIG_JIT writes one u32 to `where`, which points to a live u32.
            unsafe { sys::pcre2_config_8(sys::PCRE2_CONFIG_JIT, (&raw mut on).cast::<c_void>()) };
            assert_eq!(p.is_jit(), on == 1);
        }
    }

    #[test]
    fn bytes_are_not_text() {
        let p = Pcre::new(r"\xff\x00.", "s", Some(PcreLimits::default())).expect("compiles");
        assert_eq!(p.find_at(b"a\xff\x00\xfe", 0, &mut PcreScratch::new()), PcreResult::Match(1, 4));
    }

    #[test]
    fn errors_say_where() {
        let e = Pcre::new("a(b", "", None).expect_err("unclosed");
        assert_eq!((e.offset, e.pattern.as_str()), (3, "a(b"));
        assert!(e.message.contains("parenthes"), "{}", e.message);
        assert!(Pcre::new("a", "Z", None).is_err());
    }

    #[test]
    fn limits_end_a_match_and_may_be_lifted() {
        let subject = "a".repeat(28) + "!";
        let hard = "(a+)+$";
        assert!(matches!(find(hard, "", &subject), PcreResult::Failed(_)));
        let p = Pcre::new("(?:a{1,3}b?)*x", "", None).expect("compiles");
        assert_eq!(p.find_at(&[b'a'; 12], 0, &mut PcreScratch::new()), PcreResult::NoMatch);
        // The scratch changes limits from one expression to the next.
        let limited = Pcre::new(hard, "", Some(PcreLimits { steps: 10, depth: 10 })).expect("compiles");
        let mut s = PcreScratch::new();
        assert!(matches!(limited.find_at(subject.as_bytes(), 0, &mut s), PcreResult::Failed(_)));
        assert_eq!(p.find_at(&[b'a'; 12], 0, &mut s), PcreResult::NoMatch);
        assert!(matches!(limited.find_at(subject.as_bytes(), 0, &mut s), PcreResult::Failed(_)));
    }

    #[test]
    fn groups_and_start() {
        let p = Pcre::new("(x)?(a)", "", Some(PcreLimits::default())).expect("compiles");
        let mut s = PcreScratch::new();
        assert_eq!(p.groups(), 2);
        assert_eq!(p.find_at(b"xa a", 1, &mut s), PcreResult::Match(1, 2));
        assert_eq!((s.group(1), s.group(2), s.group(3)), (None, Some((1, 2)), None));
        assert_eq!(p.find_at(b"xa a", 2, &mut s), PcreResult::Match(3, 4));
        assert_eq!(p.find_at(b"xa a", 5, &mut s), PcreResult::NoMatch);
        assert_eq!(s.group(0), None);
    }
}
