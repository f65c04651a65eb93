//! The literals of all protocols in one search.

use aho_corasick::{AhoCorasick, MatchKind};
use margay_flow::Direction;

use super::Pattern;
use crate::proto::AppProto;

/// The patterns of a transport, by direction.
#[derive(Debug, Clone)]
pub(super) struct PatternSets {
    sets: [PatternSet; 2],
    depth: usize,
}

impl PatternSets {
    pub(super) fn new(patterns: &[(AppProto, Pattern)]) -> Self {
        let sets = [Direction::ToServer, Direction::ToClient].map(|d| PatternSet::new(patterns, d));
        let depth = patterns.iter().map(|(_, p)| usize::from(p.depth)).max().unwrap_or(0);
        PatternSets { sets, depth }
    }

    pub(super) fn of(&self, dir: Direction) -> &PatternSet {
        let [client, server] = &self.sets;
        if dir == Direction::ToServer { client } else { server }
    }

    /// The offset by which all patterns of both directions end.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }
}

/// The patterns of a transport and direction.
#[derive(Debug, Clone)]
pub(super) struct PatternSet {
    /// Case-insensitive; `None` if there are no patterns.
    automaton: Option<AhoCorasick>,
    /// By pattern number in the automaton.
    patterns: Vec<(AppProto, Pattern)>,
    depth: usize,
}

impl PatternSet {
    fn new(patterns: &[(AppProto, Pattern)], dir: Direction) -> Self {
        let patterns: Vec<_> = patterns.iter().filter(|(_, p)| p.dir == dir && !p.bytes.is_empty()).copied().collect();
        let depth = patterns.iter().map(|(_, p)| usize::from(p.depth)).max().unwrap_or(0);
        // The literals are built in, few and short, so the automaton fits.
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(patterns.iter().map(|(_, p)| p.bytes))
            .ok()
            .filter(|_| !patterns.is_empty());
        PatternSet { automaton, patterns, depth }
    }

    /// The offset by which all patterns end.
    pub(super) const fn depth(&self) -> usize {
        self.depth
    }

    /// The pattern that ends first: its end, and its protocol. If several end there, prefers that of the protocol `likely`,
    /// then the one named first.
    pub(super) fn find(&self, data: &[u8], likely: Option<AppProto>) -> Option<(usize, AppProto)> {
        let automaton = self.automaton.as_ref()?;
        let data = data.get(..self.depth).unwrap_or(data);
        let mut best: Option<(usize, (bool, usize), AppProto)> = None;
        for m in automaton.find_overlapping_iter(data) {
            if best.is_some_and(|b| b.0 < m.end()) {
                break;
            }
            let number = m.pattern().as_usize();
            let Some((proto, p)) = self.patterns.get(number) else { continue };
            let placed = m.start() >= usize::from(p.offset) && m.end() <= usize::from(p.depth);
            let same = p.nocase || data.get(m.start()..m.end()) == Some(p.bytes);
            let rank = (likely != Some(*proto), number);
            if placed && same && best.is_none_or(|b| rank < b.1) {
                best = Some((m.end(), rank, *proto));
            }
        }
        best.map(|(end, _, proto)| (end, proto))
    }
}
