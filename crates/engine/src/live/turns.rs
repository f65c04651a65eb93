//! The order in which an interface's workers join its fan-out group.
//!
//! The kernel numbers the sockets of a group as they join. `cluster_qm` sends the packets of the card's queue n to socket n,
//! and `cluster_cpu` those of CPU n. So worker n joins as number n. If interrupts and workers share CPUs, as `margay tune`
//! places them, each worker gets the queue of its own CPU.

use std::sync::{Condvar, Mutex, PoisonError};

/// The turns of the workers. `T` is a value that each worker passes to the next ones.
#[derive(Default)]
pub(super) struct Turns<T> {
    /// The value, and which workers have had their turn or will never take it.
    state: Mutex<(T, Vec<bool>)>,
    passed: Condvar,
}

/// A worker's turn. Dropping it ends the turn, used or not, so that no worker waits for one that failed to start.
pub(super) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    number: usize,
}

impl<T> Turns<T> {
    /// The turn of worker `number`.
    pub(super) fn of(&self, number: usize) -> Turn<'_, T> {
        Turn { turns: self, number }
    }
}

impl<T> Turn<'_, T> {
    /// Waits for all earlier turns, then runs `what`.
    pub(super) fn take<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !(0..self.number).all(|before| state.1.get(before).copied().unwrap_or(false)) {
            state = self.turns.passed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        what(&mut state.0)
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1.len() <= self.number {
            state.1.resize(self.number + 1, false);
        }
        state.1[self.number] = true;
        self.turns.passed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_join_in_their_order() {
        let turns: Turns<Vec<usize>> = Turns::default();
        std::thread::scope(|scope| {
            // The last thread starts first, and the third fails.
            for number in (0..8).rev() {
                let turns = &turns;
                scope.spawn(move || {
                    let turn = turns.of(number);
                    if number != 2 {
                        turn.take(|joined| joined.push(number));
                    }
                });
                std::thread::yield_now();
            }
        });
        assert_eq!(turns.state.into_inner().unwrap().0, [0, 1, 3, 4, 5, 6, 7]);
    }
}
