//! The order in which the workers of an interface join its fan-out group.
//!
//! The kernel numbers the sockets of a group as they join, and `cluster_qm` hands the packets of the card's queue n to socket n,
//! `cluster_cpu` those of CPU n. So worker n joins as number n: where interrupts and workers share CPUs, as `margay tune` places
//! them, each worker has the queue of its CPU.

use std::sync::{Condvar, Mutex, PoisonError};

/// See the module. `T` is what those that came before leave to those after.
#[derive(Default)]
pub(super) struct Turns<T> {
    /// What is left, and who had his turn or never takes it.
    state: Mutex<(T, Vec<bool>)>,
    passed: Condvar,
}

/// A worker's turn, taken or not: it passes when this is dropped, so that nobody waits for a worker that could not be made.
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
    /// Waits until all before had theirs, and does something then.
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
            // The last is started first, and the third cannot be made.
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
