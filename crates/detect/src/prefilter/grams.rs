//! Searches literals by their grams.
//!
//! A literal's *gram* is its rarest four bytes, or two bytes for a common literal. A bitmap of gram hashes excludes
//! nearly every offset of a buffer. On short buffers this is faster than the multi-pattern matcher, which takes longer
//! to start than to search.

use std::ops::Range;

use crate::commonplace;
use crate::fast_pattern::literal_strength;
use crate::mpm::Pattern;

use super::place::{Table, hash, word};
use super::{Entry, Literal, entries};

/// Longest window in bytes.
const WINDOW: usize = 8;

#[derive(Debug)]
pub(super) struct Grams {
    /// Sorted by gram, then by window.
    entries: Box<[Placed]>,
    table: Table,
    /// Bitmap of gram hashes.
    bits: Box<[u64]>,
    /// Unused hash bits for `bits`.
    shift: u32,
    /// Gram length in bytes: four, or two for common literals.
    len: usize,
    mask: u32,
}

/// A window, and the range of its entries.
pub(super) type Window = (Pattern, (u32, u32));

/// A literal and its rules, with its *window*: its rarest few bytes, which contain its gram.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) entry: Entry,
    /// The offsets in the literal where the window ends and where the gram begins.
    pub(super) window_end: u32,
    gram: u32,
}

/// The offset of the most selective `n` bytes of `bytes`.
fn strongest(bytes: &[u8], n: usize, nocase: bool) -> usize {
    let windows = bytes.windows(n).map(|w| (!commonplace::is(w), literal_strength(w, nocase))).enumerate();
    // The first one of equals.
    windows.max_by_key(|&(i, s)| (s, std::cmp::Reverse(i))).map_or(0, |(i, _)| i)
}

impl Grams {
    /// Builds the grams of literals that are either all common or all rare. Also returns their windows, sorted, each
    /// with its range of entries.
    pub(super) fn new(list: Vec<(&Literal, u32)>) -> (Grams, Vec<Window>) {
        let common = list.iter().any(|(l, _)| l.is_common());
        let (len, mask) = if common { (2, 0xffff) } else { (4, u32::MAX) };
        let place = |entry: Entry| {
            let Pattern { bytes, nocase } = &entry.literal.pattern;
            let n = bytes.len().min(WINDOW);
            let start = strongest(bytes, n, *nocase);
            let window = bytes.get(start..start + n).unwrap_or(bytes);
            let mut pattern = Pattern { bytes: window.to_vec(), nocase: *nocase };
            if *nocase {
                pattern.bytes.make_ascii_lowercase();
            }
            let at = strongest(window, len.min(window.len()), *nocase);
            let key = word(window.get(at..).unwrap_or(window)) & mask;
            (key, pattern, Placed { window_end: (start + n) as u32, gram: (start + at) as u32, entry })
        };
        let mut placed: Vec<_> = entries(list).into_iter().map(place).collect();
        placed.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        // The gram is chosen from the window, so entries with the same window are adjacent.
        let mut windows: Vec<Window> = Vec::new();
        for ((_, pattern, _), n) in placed.iter().zip(0u32..) {
            match windows.last_mut() {
                Some((p, range)) if p == pattern => range.1 = n + 1,
                _ => windows.push((pattern.clone(), (n, n + 1))),
            }
        }
        windows.sort_unstable();
        let bits = (placed.len() * 32).next_power_of_two().clamp(1 << 9, 1 << 17);
        let shift = 32 - bits.trailing_zeros();
        let mut map = vec![0u64; bits / 64].into_boxed_slice();
        for (key, ..) in &placed {
            let h = hash(*key, shift);
            map[h / 64] |= 1 << (h % 64);
        }
        let grams = Grams {
            table: Table::new(mask, placed.iter().map(|p| p.0)),
            entries: placed.into_iter().map(|p| p.2).collect(),
            bits: map,
            shift,
            len,
            mask,
        };
        (grams, windows)
    }

    /// Whether these are common literals.
    pub(super) const fn are_common(&self) -> bool {
        self.len == 2
    }

    /// The entries of a range.
    pub(super) fn entries(&self, from: u32, to: u32) -> &[Placed] {
        self.entries.get(from as usize..to as usize).unwrap_or(&[])
    }

    /// Adds the rules whose literal is in `data`.
    pub(super) fn scan(&self, data: &[u8], out: &mut Vec<u32>) {
        self.scan_part(data, 0..data.len(), out);
    }

    /// Adds the rules whose literal is in `data`, with its gram in this part.
    pub(super) fn scan_part(&self, data: &[u8], part: Range<usize>, out: &mut Vec<u32>) {
        let mut at_gram = |at: usize, key: u32| {
            let h = hash(key, self.shift);
            if self.bits.get(h / 64).is_some_and(|b| b >> (h % 64) & 1 == 1) {
                self.found(data, at, key, out);
            }
        };
        let bytes = data.get(part.clone()).unwrap_or(data);
        match self.len {
            2 => {
                for (at, pair) in bytes.windows(2).enumerate() {
                    at_gram(part.start + at, word(pair) & self.mask);
                }
            }
            _ => {
                for (at, four) in bytes.windows(4).enumerate() {
                    at_gram(part.start + at, word(four));
                }
            }
        }
    }

    #[cold]
    fn found(&self, data: &[u8], at: usize, key: u32, out: &mut Vec<u32>) {
        // Common literals have up to three bytes, or one repeated byte. So inside a row of equal bytes there is nothing
        // that its beginning or end does not have. Only the allowed offset may differ, which the rule's own check tests.
        if self.are_common()
            && let Some([a, b, c, d]) = at.checked_sub(1).and_then(|from| data.get(from..)?.first_chunk::<4>())
            && a == b
            && b == c
            && c == d
        {
            return;
        }
        for p in self.table.get(key).and_then(|r| self.entries.get(r)).unwrap_or(&[]) {
            let literal = &p.entry.literal;
            let here = |s| if self.are_common() { literal.equals(data, s) } else { literal.is_at(data, s) };
            if at.checked_sub(p.gram as usize).is_some_and(here) {
                out.extend_from_slice(&p.entry.rules);
            }
        }
    }
}
