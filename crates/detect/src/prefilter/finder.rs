//! Literals that are looked for everywhere in a buffer.
//!
//! Each literal has a *window*: its rarest few bytes. The multi-pattern matcher looks for the windows, for what it costs
//! grows with the length of its patterns beyond eight bytes. It is made for long buffers: on a short one starting it costs
//! more than the search. Short buffers (a method, a status, a header) are looked through here: a bit for the hash of each
//! window's *gram* (its first bytes, or rarest four) tells at nearly every place of a buffer that nothing is there.

use crate::fast_pattern::literal_strength;
use crate::mpm::{Matcher, MatcherCache, MpmError, Pattern, Scratch};

use super::place::{Table, hash, word};
use super::{Entry, Literal, entries};

/// Most bytes of a window.
const WINDOW: usize = 8;
/// Buffers of up to so many bytes are looked through without the matcher.
const SMALL: usize = 96;

#[derive(Debug)]
pub(super) struct Finder {
    matcher: Matcher,
    /// For each of the matcher's patterns its range of `entries`.
    windows: Box<[(u32, u32)]>,
    /// Sorted by gram, then by window.
    entries: Box<[Placed]>,
    grams: Table,
    /// Bits of hashes of grams.
    bits: Box<[u64]>,
    /// Bits of a hash that are not used for `bits`.
    shift: u32,
    /// Bytes of a gram: four, or two for common literals.
    gram: usize,
    mask: u32,
}

#[derive(Debug)]
struct Placed {
    entry: Entry,
    /// Where in the literal the window ends, and where its gram begins.
    window_end: u32,
    gram: u32,
}

/// Where the strongest `n` bytes of `bytes` begin.
fn strongest(bytes: &[u8], n: usize, nocase: bool) -> usize {
    let windows = bytes.windows(n).map(|w| literal_strength(w, nocase)).enumerate();
    // The first one of equals.
    windows.max_by_key(|&(i, s)| (s, std::cmp::Reverse(i))).map_or(0, |(i, _)| i)
}

impl Finder {
    /// For literals that are all common, or none of them.
    pub(super) fn new(list: Vec<(&Literal, u32)>, cache: &mut MatcherCache) -> Result<Finder, MpmError> {
        let common = list.iter().any(|(l, _)| l.is_common());
        let (gram, mask) = if common { (2, 0xffff) } else { (4, u32::MAX) };
        let place = |entry: Entry| {
            let Pattern { bytes, nocase } = &entry.literal.pattern;
            let n = bytes.len().min(WINDOW);
            let start = strongest(bytes, n, *nocase);
            let window = bytes.get(start..start + n).unwrap_or(bytes);
            let mut pattern = Pattern { bytes: window.to_vec(), nocase: *nocase };
            if *nocase {
                pattern.bytes.make_ascii_lowercase();
            }
            let at = strongest(window, gram.min(window.len()), *nocase);
            let key = word(window.get(at..).unwrap_or(window)) & mask;
            (key, pattern, Placed { window_end: (start + n) as u32, gram: (start + at) as u32, entry })
        };
        let mut placed: Vec<_> = entries(list).into_iter().map(place).collect();
        placed.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        // A window's gram is its own, so that those of one window lie together.
        let mut patterns: Vec<(Pattern, (u32, u32))> = Vec::new();
        for ((_, pattern, _), n) in placed.iter().zip(0u32..) {
            match patterns.last_mut() {
                Some((p, range)) if p == pattern => range.1 = n + 1,
                _ => patterns.push((pattern.clone(), (n, n + 1))),
            }
        }
        patterns.sort_unstable();
        let (patterns, windows): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
        let matcher = cache.get(patterns, common);
        let bits = (placed.len() * 32).next_power_of_two().clamp(1 << 9, 1 << 17);
        let shift = 32 - bits.trailing_zeros();
        let mut map = vec![0u64; bits / 64].into_boxed_slice();
        for (key, ..) in &placed {
            let h = hash(*key, shift);
            map[h / 64] |= 1 << (h % 64);
        }
        Ok(Finder {
            matcher,
            windows: windows.into_boxed_slice(),
            grams: Table::new(mask, placed.iter().map(|p| p.0)),
            entries: placed.into_iter().map(|p| p.2).collect(),
            bits: map,
            shift,
            gram,
            mask,
        })
    }

    /// Adds the rules whose literal is in `data`.
    pub(super) fn scan(&self, data: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if data.len() <= SMALL {
            return self.scan_small(data, out);
        }
        scratch.scan(&self.matcher, data, |window, end, seen| {
            let Some(&(from, to)) = self.windows.get(window as usize) else { return };
            for (p, n) in self.entries.get(from as usize..to as usize).unwrap_or(&[]).iter().zip(from..) {
                let start = end.checked_sub(p.window_end as usize);
                // Of a common one only one place is told, which need not be where the rule wants it, or have all of it.
                let here = self.gram == 2 || start.is_some_and(|s| p.entry.literal.is_at(data, s));
                if here && !seen.has(n) {
                    seen.set(n);
                    out.extend_from_slice(&p.entry.rules);
                }
            }
        });
    }

    fn scan_small(&self, data: &[u8], out: &mut Vec<u32>) {
        let mut at_gram = |at: usize, key: u32| {
            let h = hash(key, self.shift);
            if self.bits.get(h / 64).is_some_and(|b| b >> (h % 64) & 1 == 1) {
                self.found(data, at, key, out);
            }
        };
        match self.gram {
            2 => {
                for (at, pair) in data.windows(2).enumerate() {
                    at_gram(at, word(pair) & self.mask);
                }
            }
            _ => {
                for (at, four) in data.windows(4).enumerate() {
                    at_gram(at, word(four));
                }
            }
        }
    }

    #[cold]
    fn found(&self, data: &[u8], at: usize, key: u32, out: &mut Vec<u32>) {
        // Common literals have three bytes, or one again and again: within a row of the same byte there is nothing that is not at
        // its beginning or end. Only where it must lie may differ, which the rule's own check decides.
        if self.gram == 2
            && let Some([a, b, c, d]) = at.checked_sub(1).and_then(|from| data.get(from..)?.first_chunk::<4>())
            && a == b
            && b == c
            && c == d
        {
            return;
        }
        for p in self.grams.get(key).and_then(|r| self.entries.get(r)).unwrap_or(&[]) {
            let here = |s| match self.gram {
                2 => p.entry.literal.equals(data, s),
                _ => p.entry.literal.is_at(data, s),
            };
            if at.checked_sub(p.gram as usize).is_some_and(here) {
                out.extend_from_slice(&p.entry.rules);
            }
        }
    }
}
