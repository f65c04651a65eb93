//! Literals that can occur anywhere in a buffer.
//!
//! The multi-pattern matcher searches for the literals' windows. A window has eight bytes: the matcher's cost grows with
//! longer patterns. Starting the matcher costs as much as some hundred bytes, so short buffers (a method, a status, a
//! header) are searched by grams instead, and common literals by grams of their own. All literals of a buffer share one
//! matcher, except those of two bytes, which would slow it down.

use crate::mpm::{Matcher, MatcherCache, Pattern, ScanError, Scratch};

use super::Literal;
use super::grams::Grams;

/// Buffers of up to this many bytes are searched without the matcher.
const SMALL: usize = 96;
/// Patterns with fewer bytes have their own matcher.
const SHORT: usize = 3;

#[derive(Debug)]
pub(super) struct Finder {
    /// Grams of rare literals and of common ones, if there are any.
    grams: [Option<Grams>; 2],
    matchers: Vec<(Matcher, Box<[Window]>)>,
    /// Length of the longest literal.
    longest: usize,
    /// The largest offset at which a literal with a limited offset may end; 0 if there is none.
    head: usize,
}

/// The meaning of a matcher's pattern: a range of entries of one kind of literal.
#[derive(Debug)]
struct Window {
    common: bool,
    from: u32,
    to: u32,
}

impl Finder {
    pub(super) fn new(list: Vec<(&Literal, u32)>, cache: &mut MatcherCache) -> Finder {
        let longest = list.iter().map(|(l, _)| l.pattern.bytes.len()).max().unwrap_or(0);
        let head = list.iter().filter_map(|(l, _)| l.end).max().unwrap_or(0) as usize;
        let (common, rare): (Vec<_>, Vec<_>) = list.into_iter().partition(|(l, _)| l.is_common());
        let mut windows: Vec<((Pattern, bool), Window)> = Vec::new();
        let grams = [rare, common].map(|list| {
            let (grams, list) = (!list.is_empty()).then(|| Grams::new(list))?;
            let common = grams.are_common();
            // Literals for short buffers only are found by grams there.
            let in_long =
                |w: &(u32, u32)| grams.entries(w.0, w.1).iter().any(|p| p.entry.literal.longest as usize > SMALL);
            let list = list.into_iter().filter(|(_, w)| in_long(w));
            windows.extend(list.map(|(p, (from, to))| ((p, common), Window { common, from, to })));
            Some(grams)
        });
        windows.sort_by(|a, b| a.0.cmp(&b.0));
        let (short, long): (Vec<_>, Vec<_>) = windows.into_iter().partition(|(p, _)| p.0.bytes.len() < SHORT);
        let matchers = [short, long].into_iter().filter(|l| !l.is_empty()).map(|list| {
            let (patterns, windows): (Vec<_>, Vec<_>) = list.into_iter().unzip();
            (cache.get(patterns), windows.into_boxed_slice())
        });
        Finder { matchers: matchers.collect(), grams, longest, head }
    }

    /// Adds the rules whose literal is in `data` at an allowed offset, counted from the beginning or from `seen`.
    pub(super) fn scan(&self, data: &[u8], seen: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let new = data.get(seen..).filter(|_| seen > 0);
        if data.len() <= SMALL {
            self.scan_grams(data, new, out);
            return;
        }
        let is_at = |literal: &Literal, start: usize| {
            let in_new = || new.zip(start.checked_sub(seen)).is_some_and(|(new, start)| literal.is_at(new, start));
            literal.is_at(data, start) || in_new()
        };
        if self.search(data, 0, is_at, scratch, out).is_err() {
            // Slower in a long buffer, but complete: the grams cover every literal.
            self.scan_grams(data, new, out);
        }
    }

    /// Adds the rules whose literal is in `data`, a window of streamed data. Those whose literal is in its first `seen` bytes,
    /// which an earlier window had, may be left out.
    pub(super) fn scan_behind(&self, data: &[u8], seen: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        // A literal may begin in the bytes that were seen. One with a limited offset may have come closer to the beginning.
        let from = (seen + 1).saturating_sub(self.longest);
        if from <= self.head || from >= data.len() {
            return self.scan(data, 0, scratch, out);
        }
        for part in [0..self.head, from..data.len()] {
            let Some(bytes) = data.get(part.clone()).filter(|b| b.len() > 1) else { continue };
            let is_at = |literal: &Literal, start: usize| literal.is_at(data, start);
            if bytes.len() <= SMALL || self.search(bytes, part.start, is_at, scratch, out).is_err() {
                self.grams.iter().flatten().for_each(|g| g.scan_part(data, part.clone(), out));
            }
        }
    }

    /// Searches `data`, which is `at` bytes behind the beginning of the buffer, with the matchers. `is_at` tells whether a
    /// literal is at an offset of the buffer.
    fn search(
        &self,
        data: &[u8],
        at: usize,
        is_at: impl Fn(&Literal, usize) -> bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), ScanError> {
        let [rare, common] = &self.grams;
        for (matcher, windows) in &self.matchers {
            scratch.scan(matcher, data, |window, end, marked| {
                let Some(w) = windows.get(window as usize) else { return };
                let Some(grams) = (if w.common { common } else { rare }) else { return };
                for (p, n) in grams.entries(w.from, w.to).iter().zip(w.from..) {
                    let mark = n << 1 | u32::from(w.common);
                    if marked.has(mark) {
                        continue;
                    }
                    let start = (at + end).checked_sub(p.window_end as usize);
                    // For a common literal the matcher reports only one place. That place need not be one the rule
                    // allows, nor have the whole literal.
                    if w.common || start.is_some_and(|s| is_at(&p.entry.literal, s)) {
                        marked.set(mark);
                        out.extend_from_slice(&p.entry.rules);
                    }
                }
            })?;
        }
        Ok(())
    }

    fn scan_grams(&self, data: &[u8], new: Option<&[u8]>, out: &mut Vec<u32>) {
        for data in std::iter::once(data).chain(new) {
            self.grams.iter().flatten().for_each(|g| g.scan(data, out));
        }
    }
}
