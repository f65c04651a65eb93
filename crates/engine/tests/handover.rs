//! Tests `parallel::handover` with loom, in every order of its steps. A given value is taken exactly once, even if the giver
//! is gone by then. A taker whose giver failed continues. Workers that wait for each other's flows, and for each other's
//! frames, all finish.
//!
//! The code is the engine's own. A wait is a check followed by a yield, so an endless wait makes the model endless, which
//! loom reports.

#![allow(clippy::unwrap_used)]

#[path = "../src/parallel/handover.rs"]
#[allow(dead_code)]
mod handover;

/// Replaces the standard library's types with loom's.
mod sync {
    pub(super) use loom::sync::Mutex;
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
}

use handover::{Asked, Handover, Taken};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Waits as a taker: checks until the value is there, or never will be.
fn wait<T>(cell: &Handover<T>, gone: impl Fn() -> bool, mut meanwhile: impl FnMut()) -> Option<T> {
    loop {
        match cell.take(&gone) {
            Taken::Here(t) => return Some(t),
            Taken::Never => return None,
            Taken::NotYet => {
                meanwhile();
                loom::thread::yield_now();
            }
        }
    }
}

const GONE: u64 = u64::MAX;

#[test]
fn what_was_given_before_the_end_is_taken() {
    check(3, || {
        let cell = Arc::new(Handover::new());
        let at = Arc::new(AtomicU64::new(0));
        let (theirs, its) = (Arc::clone(&cell), Arc::clone(&at));
        let giver = loom::thread::spawn(move || {
            theirs.give(7);
            its.store(GONE, Ordering::Release);
        });
        assert_eq!(wait(&cell, || at.load(Ordering::Acquire) == GONE, || ()), Some(7));
        assert_eq!(cell.take(|| true), Taken::Never);
        giver.join().unwrap();
    });
}

#[test]
fn one_that_failed_is_not_waited_for() {
    check(3, || {
        let cell = Arc::new(Handover::<u32>::new());
        let at = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&at);
        let giver = loom::thread::spawn(move || its.store(GONE, Ordering::Release));
        assert_eq!(wait(&cell, || at.load(Ordering::Acquire) == GONE, || ()), None);
        giver.join().unwrap();
    });
}

/// The value is requested while the giver works, and the giver also reaches the end of its queue: it gives once.
#[test]
fn asked_and_at_the_end_of_the_queue() {
    check(3, || {
        let cell = Arc::new(Handover::new());
        let asked = Arc::new(Asked::new());
        let (theirs, its) = (Arc::clone(&cell), Arc::clone(&asked));
        let giver = loom::thread::spawn(move || {
            let mut list: Vec<Arc<Handover<u32>>> = Vec::new();
            let mut given = 0;
            for _frame in 0..2 {
                if its.any() {
                    its.collect(&mut list);
                }
                for m in list.drain(..) {
                    given += 1;
                    m.give(given);
                }
            }
            if !theirs.is_given() {
                given += 1;
                theirs.give(given);
            }
            given
        });
        asked.ask(Arc::clone(&cell));
        assert_eq!(wait(&cell, || false, || ()), Some(1));
        assert_eq!(giver.join().unwrap(), 1);
    });
}

/// An item of a queue, with its position in the stream.
#[derive(Clone, Copy)]
enum Item {
    /// A frame that accesses shared state: all other workers must be past it.
    Frame(u64),
    Give(usize),
    Take(usize, u64),
}

/// Runs workers with these queues, which hold the feeder's items, until all have finished.
fn run(queues: &'static [&'static [Item]], cells: usize, preemptions: usize) {
    check(preemptions, move || {
        let at: Arc<Vec<AtomicU64>> = Arc::new(queues.iter().map(|_| AtomicU64::new(0)).collect());
        let cells: Arc<Vec<Handover<usize>>> = Arc::new((0..cells).map(|_| Handover::new()).collect());
        let work = |me: usize, at: Arc<Vec<AtomicU64>>, cells: Arc<Vec<Handover<usize>>>| {
            for item in queues[me] {
                match *item {
                    Item::Frame(f) => {
                        at[me].store(f, Ordering::Release);
                        for (n, other) in at.iter().enumerate() {
                            while n != me && other.load(Ordering::Acquire) < f {
                                loom::thread::yield_now();
                            }
                        }
                    }
                    Item::Give(c) => cells[c].give(c),
                    Item::Take(c, f) => {
                        at[me].store(f, Ordering::Release);
                        assert_eq!(wait(&cells[c], || false, || ()), Some(c));
                    }
                }
            }
            at[me].store(GONE, Ordering::Release);
        };
        let others: Vec<_> = (1..queues.len())
            .map(|me| {
                let (at, cells) = (Arc::clone(&at), Arc::clone(&cells));
                loom::thread::spawn(move || work(me, at, cells))
            })
            .collect();
        work(0, at, cells);
        others.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn flows_go_both_ways() {
    use Item::{Frame, Give, Take};
    run(&[&[Frame(1), Give(0), Take(1, 4), Frame(4)], &[Frame(2), Take(0, 3), Frame(3), Give(1)]], 2, 2);
}

#[test]
fn there_and_back() {
    use Item::{Frame, Give, Take};
    run(&[&[Give(0), Take(1, 3), Frame(3)], &[Take(0, 2), Frame(2), Give(1), Frame(4)]], 2, 2);
}

/// A flow moves on from the second worker to the third before the first has given it.
#[test]
fn three_workers() {
    use Item::{Give, Take};
    run(&[&[Give(0)], &[Take(0, 2), Give(1)], &[Take(1, 3)]], 2, 1);
}
