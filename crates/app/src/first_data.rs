//! Which direction of a connection spoke first.

use margay_flow::Direction;

/// The direction whose data came first. Data of the other direction may be offered sooner, because it was acknowledged sooner.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FirstData {
    /// The direction whose data was offered to the session first.
    offered: Option<Direction>,
    /// The direction whose data arrived first, if that is known.
    pub(crate) arrived: Option<Direction>,
}

impl FirstData {
    pub(crate) fn offered(&mut self, dir: Direction) {
        self.offered.get_or_insert(dir);
    }

    /// Whether this direction's data came first, both on the wire and here.
    pub(crate) fn is(self, dir: Direction) -> bool {
        self.offered == Some(dir) && self.arrived.is_none_or(|d| d == dir)
    }

    /// The first data of a direction is missing.
    pub(crate) fn forget(&mut self, dir: Direction) {
        if self.offered == Some(dir) {
            *self = FirstData::default();
        }
    }

    /// The directions were swapped.
    pub(crate) fn turn_round(&mut self) {
        *self =
            FirstData { offered: self.offered.map(Direction::reverse), arrived: self.arrived.map(Direction::reverse) };
    }
}
