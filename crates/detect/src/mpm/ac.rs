//! The portable engine: one case-insensitive Aho-Corasick automaton; matches are verified where case matters.

use aho_corasick::{AhoCorasickBuilder, AhoCorasickKind, MatchKind};

use super::{EngineScratch, Mpm, MpmError, OnHit, Pattern, ScanError};

/// An automaton, and the patterns whose case must be verified.
pub(super) struct AhoCorasick {
    automaton: aho_corasick::AhoCorasick,
    /// The pattern's bytes if case matters.
    exact: Vec<Option<Box<[u8]>>>,
}

impl AhoCorasick {
    pub(super) fn new(patterns: &[(Pattern, bool)]) -> Result<Self, MpmError> {
        let automaton = AhoCorasickBuilder::new()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .prefilter(patterns.len() < 8)
            .build(patterns.iter().map(|(p, _)| &p.bytes))
            .map_err(|e| MpmError::Build(e.to_string()))?;
        let exact = patterns
            .iter()
            .map(|(p, _)| {
                let letters = p.bytes.iter().any(u8::is_ascii_alphabetic);
                (!p.nocase && letters).then(|| p.bytes.clone().into_boxed_slice())
            })
            .collect();
        Ok(AhoCorasick { automaton, exact })
    }
}

impl Mpm for AhoCorasick {
    fn prepare(&self, _: &mut EngineScratch) -> Result<(), MpmError> {
        Ok(())
    }

    fn scan(&self, data: &[u8], _: &mut EngineScratch, hit: OnHit<'_>) -> Result<(), ScanError> {
        for m in self.automaton.find_overlapping_iter(data) {
            if let Some(Some(exact)) = self.exact.get(m.pattern().as_usize())
                && data.get(m.range()) != Some(&exact[..])
            {
                continue;
            }
            hit(m.pattern().as_u32(), m.end());
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.automaton.memory_usage()
    }
}
