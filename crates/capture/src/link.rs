//! The state of an interface and its changes: it goes down or up, disappears, or another one with its name appears.

use std::time::{Duration, Instant};

use crate::live::{LinkChange, Received};

/// The shortest and the longest interval between checks for an interface that disappeared.
const BACK_OFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// How often to check an interface that receives nothing.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The state of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// It exists and is down, according to the kernel or to an error of the socket.
    Down,
    /// It does not exist, and the next check is at `until`.
    Gone {
        until: Instant,
        pause: Duration,
    },
}

impl State {
    /// The state of an existing interface.
    pub(crate) fn of(up: bool) -> State {
        if up { State::Up } else { State::Down }
    }

    /// Whether it is too early for the next check.
    pub(crate) fn rests(self, now: Instant) -> bool {
        matches!(self, State::Gone { until, .. } if now < until)
    }

    /// Records that the same interface exists, and whether it is up. Returns the change, if there is one.
    pub(crate) fn is_there(&mut self, up: bool) -> Option<LinkChange> {
        let (state, change) = match (*self, up) {
            (State::Up, false) => (State::Down, LinkChange::Down),
            (State::Down, true) => (State::Up, LinkChange::Back),
            _ => return None,
        };
        *self = state;
        Some(change)
    }

    /// Records packets, the surest sign that the interface is up. Returns the change, if there is one.
    pub(crate) fn has_packets(&mut self) -> Option<LinkChange> {
        if *self == State::Down { self.is_there(true) } else { None }
    }

    /// Records that it does not exist, and schedules the next check at a growing interval. Returns the change, if there is one.
    pub(crate) fn is_gone(&mut self, now: Instant) -> Option<LinkChange> {
        let (pause, change) = match *self {
            State::Gone { pause, .. } => ((pause * 2).min(BACK_OFF[1]), None),
            _ => (BACK_OFF[0], Some(LinkChange::Gone)),
        };
        *self = State::Gone { until: now + pause, pause };
        change
    }
}

/// Converts a change to the result of receiving.
pub(crate) fn received(change: Option<LinkChange>) -> Received {
    change.map_or(Received::Idle, Received::Link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_reported_once() {
        let mut state = State::of(true);
        assert_eq!((state.is_there(true), state.has_packets()), (None, None));
        assert_eq!((state.is_there(false), state.is_there(false)), (Some(LinkChange::Down), None));
        assert_eq!((state.has_packets(), state.has_packets()), (Some(LinkChange::Back), None));
        let now = Instant::now();
        assert_eq!((state.is_gone(now), state.is_gone(now)), (Some(LinkChange::Gone), None));
        assert!(state.rests(now) && !state.rests(now + 2 * BACK_OFF[0]));
        (0..10).for_each(|_| assert_eq!(state.is_gone(now), None));
        assert!(state.rests(now + BACK_OFF[1] / 2) && !state.rests(now + BACK_OFF[1]));
        assert_eq!(state.is_there(true), None);
    }
}
