//! Searches that another thread made beforehand.
//!
//! Which patterns a payload has depends on nothing but its bytes and the groups of rules that are asked for. So anybody may look
//! them up, at any time before the packet is inspected; what is found are candidates, as ever. [`SearchPlan`] says which groups: who
//! inspects the packets of a flow tells those of the last one ([`SearchedAhead::found`]), who has nothing to do looks through what
//! waits ([`Searcher::search`]), and what it found is of use where the packet then asks for the same.

use std::sync::Arc;

use crate::detect::Detect;
use crate::group::{GroupIds, Source};
use crate::mpm::{MpmError, Scratch};

/// Shorter payloads are looked through as fast as what was found is looked up.
pub(crate) const AHEAD_MIN: usize = 192;

/// What a payload is to be looked through for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlan(u64);

/// What is kept of the number of a set of rules: one of 32,768.
const NUMBER: u64 = (1 << 15) - 1;

impl SearchPlan {
    /// For the groups of the rules with this number, and also for what they want of streams.
    pub(crate) fn new(rules: &Detect, groups: GroupIds, stream: bool) -> SearchPlan {
        SearchPlan::of(rules.serial(), groups, stream)
    }

    const fn of(serial: u64, groups: GroupIds, stream: bool) -> SearchPlan {
        let [a, b, c] = groups;
        SearchPlan((a as u64) << 48 | (b as u64) << 32 | (c as u64) << 16 | (serial & NUMBER) << 1 | stream as u64)
    }

    /// As a number, for others to keep.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Back from the number: any number is one, though maybe of nothing that there is.
    pub const fn from_word(word: u64) -> SearchPlan {
        SearchPlan(word)
    }

    const fn groups(self) -> GroupIds {
        [(self.0 >> 48) as u16, (self.0 >> 32) as u16, (self.0 >> 16) as u16]
    }

    const fn is_stream(self) -> bool {
        self.0 & 1 == 1
    }

    const fn is_for(self, serial: u64) -> bool {
        self.0 >> 1 & NUMBER == serial & NUMBER
    }
}

/// Looks through payloads for others.
#[derive(Debug)]
pub struct Searcher {
    detect: Arc<Detect>,
    scratch: Scratch,
}

impl Searcher {
    /// For recipes of these rules.
    ///
    /// # Errors
    /// Where the matcher's scratch cannot be allocated.
    pub fn new(detect: &Arc<Detect>) -> Result<Searcher, MpmError> {
        Ok(Searcher { detect: Arc::clone(detect), scratch: detect.scratch()? })
    }

    /// Its rules.
    pub const fn rules(&self) -> &Arc<Detect> {
        &self.detect
    }

    /// Adds the rules that are candidates for a payload, each once. `false` where the recipe is of other rules.
    pub fn search(&mut self, recipe: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool {
        if !recipe.is_for(self.detect.serial()) {
            return false;
        }
        for group in self.detect.groups.each(recipe.groups()) {
            group.scan(Source::Payload, payload, &mut self.scratch, out);
            if recipe.is_stream() {
                group.scan(Source::Stream, payload, &mut self.scratch, out);
            }
        }
        self.scratch.forget();
        out.sort_unstable();
        out.dedup();
        true
    }
}

/// What others found in the packet at hand.
pub trait SearchedAhead: std::fmt::Debug {
    /// Adds the rules that are candidates for `payload`, where somebody looked through it for `recipe`. `false` where nobody did:
    /// then that is what the next packets of this flow and direction may be looked through for.
    fn found(&self, recipe: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_is_a_number() {
        for (serial, groups, stream) in [(0, [0, 0, 0], false), (32_767, [1, u16::MAX, 40_000], true)] {
            let r = SearchPlan::from_word(SearchPlan::of(serial, groups, stream).word());
            assert_eq!((r.groups(), r.is_stream()), (groups, stream));
            assert!(r.is_for(serial) && !r.is_for(serial ^ 1));
        }
    }
}
