//! Tests the protocol of `parallel::turns` with loom, in every order of its steps. No worker sleeps for ever, and everything
//! that is read is inspected once, in order.
//!
//! The code is the engine's own. Queues are counters with the memory ordering of the real ones (`rtrb`: the writer's index
//! releases items, the reader's index releases room), and the feeder hands out a fixed list. A sleep has no timeout here, so
//! a lost wake-up is a deadlock, which loom reports.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by it")]

#[path = "../src/parallel/turns.rs"]
#[allow(dead_code, clippy::duration_suboptimal_units)]
mod turns;

/// Replaces the standard library's types with loom's.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    /// A ring is remembered if no thread waits for it, like `unpark`.
    #[derive(Debug)]
    pub(super) struct Bell(Mutex<bool>, Condvar);

    impl Default for Bell {
        fn default() -> Bell {
            Bell(Mutex::new(false), Condvar::new())
        }
    }

    impl Bell {
        pub(super) fn here(&self) {}

        pub(super) fn wait(&self, _: std::time::Duration) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }

        pub(super) fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
    }
}

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use turns::{Outcome, Turns};

/// A bounded queue, reduced to the number of its items.
struct Queue {
    put: AtomicUsize,
    taken: AtomicUsize,
    room: usize,
}

impl Queue {
    fn new(room: usize) -> Queue {
        Queue { put: AtomicUsize::new(0), taken: AtomicUsize::new(0), room }
    }

    fn push(&self) -> bool {
        let put = self.put.load(Ordering::Relaxed);
        if put - self.taken.load(Ordering::Acquire) == self.room {
            return false;
        }
        self.put.store(put + 1, Ordering::Release);
        true
    }

    fn len(&self) -> usize {
        self.put.load(Ordering::Acquire) - self.taken.load(Ordering::Relaxed)
    }

    fn pop(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        if self.put.load(Ordering::Acquire) == taken {
            return false;
        }
        self.taken.store(taken + 1, Ordering::Release);
        true
    }
}

struct Feeder {
    /// The receiver of each item.
    list: &'static [usize],
    at: usize,
}

struct Shared {
    turns: Turns,
    queues: Vec<Queue>,
    feeder: Mutex<Feeder>,
}

/// Like `Feeder::read`: runs until the reader has work of its own, a queue is full, or everything is handed out.
fn turn(feeder: &mut Feeder, me: usize, shared: &Shared) -> Outcome {
    let turns = &shared.turns;
    loop {
        let Some(&to) = feeder.list.get(feeder.at) else {
            turns.unstuck();
            turns.finish();
            return Outcome::Over;
        };
        if shared.queues[me].len() > 0 {
            turns.unstuck();
            return Outcome::Fed;
        }
        if !shared.queues[to].push() {
            turns.stuck_at(to);
            if !shared.queues[to].push() {
                turns.wake(to);
                return Outcome::Full(to);
            }
        }
        turns.wake(to);
        feeder.at += 1;
    }
}

/// Like `WorkerSetup::work`.
fn work(me: usize, shared: &Shared) -> usize {
    let (turns, queue) = (&shared.turns, &shared.queues[me]);
    turns.enter(me);
    let mut inspected = 0;
    loop {
        let over = turns.over();
        if queue.pop() {
            inspected += 1;
            if queue.len() <= queue.room / 2 {
                turns.taken(me);
            }
            continue;
        }
        if over {
            return inspected;
        }
        if turns.begin() {
            let outcome = turn(&mut shared.feeder.lock().expect("nobody panics with it"), me, shared);
            turns.end(outcome);
            if !matches!(outcome, Outcome::Full(_)) {
                continue;
            }
        }
        turns.sleep(me, || queue.len() > 0);
    }
}

fn check(workers: usize, room: usize, list: &'static [usize], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let shared = Arc::new(Shared {
            turns: Turns::new(workers),
            queues: (0..workers).map(|_| Queue::new(room)).collect(),
            feeder: Mutex::new(Feeder { list, at: 0 }),
        });
        let threads: Vec<_> = (1..workers)
            .map(|me| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || work(me, &shared))
            })
            .collect();
        let mut of = vec![work(0, &shared)];
        of.extend(threads.into_iter().map(|t| t.join().expect("it ends")));
        for (w, n) in of.iter().enumerate() {
            assert_eq!(*n, list.iter().filter(|x| **x == w).count(), "worker {w}");
        }
    });
}

#[test]
fn two_workers_take_turns() {
    check(2, 1, &[0, 1], 3);
    check(2, 2, &[0, 1, 1], 2);
}

#[test]
fn a_full_queue_stops_nobody_for_ever() {
    check(2, 1, &[1, 1], 2);
    check(2, 1, &[1, 1, 0], 1);
}

#[test]
fn three_workers() {
    check(3, 1, &[2, 2], 1);
}
