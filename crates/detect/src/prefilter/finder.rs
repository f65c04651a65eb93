//! Literals that are looked for everywhere in a buffer.
//!
//! The multi-pattern matcher looks for their windows (eight bytes: what it costs grows with the length of its patterns beyond
//! that). It is made for long buffers; short ones (a method, a status, a header) are looked through by grams, common literals
//! by grams of their own. To start the matcher costs as much as some hundred bytes: all literals of a buffer are in one, but
//! those of two bytes, among which it would be slow.

use crate::mpm::{Matcher, MatcherCache, Pattern, Scratch};

use super::Literal;
use super::grams::Grams;

/// Buffers of up to so many bytes are looked through without the matcher.
const SMALL: usize = 96;
/// Patterns of fewer bytes have a matcher of their own.
const SHORT: usize = 3;

#[derive(Debug)]
pub(super) struct Finder {
    /// Of rare literals and of common ones, where there are any.
    grams: [Option<Grams>; 2],
    matchers: Vec<(Matcher, Box<[Window]>)>,
}

/// What a matcher's pattern stands for: a range of the entries of one of the two kinds.
#[derive(Debug)]
struct Window {
    common: bool,
    from: u32,
    to: u32,
}

impl Finder {
    pub(super) fn new(list: Vec<(&Literal, u32)>, cache: &mut MatcherCache) -> Finder {
        let (common, rare): (Vec<_>, Vec<_>) = list.into_iter().partition(|(l, _)| l.is_common());
        let mut windows: Vec<((Pattern, bool), Window)> = Vec::new();
        let grams = [rare, common].map(|list| {
            let (grams, list) = (!list.is_empty()).then(|| Grams::new(list))?;
            let common = grams.are_common();
            // Those of short buffers alone are found there by their grams.
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
        Finder { matchers: matchers.collect(), grams }
    }

    /// Adds the rules whose literal is in `data`, where it may be: counted from its beginning, or from `seen` on.
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
        let [rare, common] = &self.grams;
        for (matcher, windows) in &self.matchers {
            let found = scratch.scan(matcher, data, |window, end, told| {
                let Some(w) = windows.get(window as usize) else { return };
                let Some(grams) = (if w.common { common } else { rare }) else { return };
                for (p, n) in grams.entries(w.from, w.to).iter().zip(w.from..) {
                    let mark = n << 1 | u32::from(w.common);
                    if told.has(mark) {
                        continue;
                    }
                    let start = end.checked_sub(p.window_end as usize);
                    // Of a common one only one place is told, which need not be where the rule wants it, or have all of it.
                    if w.common || start.is_some_and(|s| is_at(&p.entry.literal, s)) {
                        told.set(mark);
                        out.extend_from_slice(&p.entry.rules);
                    }
                }
            });
            if found.is_err() {
                // Slower in a long buffer, and all there is: grams have every literal.
                self.scan_grams(data, new, out);
                return;
            }
        }
    }

    fn scan_grams(&self, data: &[u8], new: Option<&[u8]>, out: &mut Vec<u32>) {
        for data in std::iter::once(data).chain(new) {
            self.grams.iter().flatten().for_each(|g| g.scan(data, out));
        }
    }
}
