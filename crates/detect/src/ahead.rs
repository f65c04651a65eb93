//! Searches that another thread makes in advance.
//!
//! The patterns found in a payload depend only on its bytes and on the rule groups to search for. So any thread may
//! search a payload before the packet is inspected; the result is the usual list of candidates. A [`SearchPlan`] names
//! the groups. The worker that inspects a flow publishes the plan of the flow's last packet ([`SearchedAhead::found`]).
//! An idle worker searches queued payloads with that plan ([`crate::Searcher::search`]). The result is used if the packet's own
//! plan turns out to be the same.

use crate::group::GroupIds;

/// Searching a shorter payload is as fast as looking up a result.
pub(crate) const AHEAD_MIN: usize = 192;

/// The rule groups to search a payload for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchPlan(u64);

/// Mask for the low 15 bits of the rule set's serial number, which a plan keeps.
const NUMBER: u64 = (1 << 15) - 1;

impl SearchPlan {
    /// The plan for these groups of the rule set with this serial number, and for the groups' stream patterns if `stream`.
    pub(crate) const fn of(serial: u64, groups: GroupIds, stream: bool) -> SearchPlan {
        let [a, b, c] = groups;
        SearchPlan((a as u64) << 48 | (b as u64) << 32 | (c as u64) << 16 | (serial & NUMBER) << 1 | stream as u64)
    }

    /// The plan as a number, for storage.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The plan from its number. Every number is a plan, but its groups may not exist.
    pub const fn from_word(word: u64) -> SearchPlan {
        SearchPlan(word)
    }

    pub(crate) const fn groups(self) -> GroupIds {
        [(self.0 >> 48) as u16, (self.0 >> 32) as u16, (self.0 >> 16) as u16]
    }

    pub(crate) const fn is_stream(self) -> bool {
        self.0 & 1 == 1
    }

    pub(crate) const fn is_for(self, serial: u64) -> bool {
        self.0 >> 1 & NUMBER == serial & NUMBER
    }
}

/// Results of other threads for the current packet.
pub trait SearchedAhead: std::fmt::Debug {
    /// Adds the candidate rules of `payload` if another thread searched it with this plan. Returns `false` otherwise;
    /// the plan then applies to the next packets of this flow and direction.
    fn found(&self, plan: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool;
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
