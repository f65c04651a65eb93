//! Requests from other threads to a worker, which handles them itself between two batches.
//!
//! The worker checks one flag per batch, which is written only if there is a request. Nothing on the packet path waits, or
//! shares a variable that is written often. So a worker's state (flows, bits of hosts, counters) stays private, even when
//! another thread requests it.
//!
//! New rules wait in a slot of their own. If rules are reloaded several times while a worker waits for packets, it takes the
//! last ones, and the others are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::stats::Reporter;
use crate::worker::Worker;
use crate::worker::engines::{Install, Retired};

/// Limit of waiting requests. Further ones are refused.
const ORDERS_MAX: usize = 256;

/// A request to a worker.
pub(crate) type Order = Box<dyn FnOnce(&mut Worker, &mut Reporter) + Send>;

/// The requests to one worker.
#[derive(Default)]
pub(crate) struct Post {
    waiting: AtomicBool,
    orders: Mutex<Orders>,
    /// How long the last change of rules kept the worker busy, in microseconds of processor time.
    kept: AtomicU64,
    /// The thread that drops what the worker no longer needs.
    reclaimer: Option<mpsc::Sender<Retired>>,
}

#[derive(Default)]
struct Orders {
    /// The worker accepts no more requests.
    closed: bool,
    /// Rules to install before anything else.
    install: Option<Install>,
    list: VecDeque<Order>,
}

/// Why a request was not handled, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// Too many requests are waiting.
    #[error("the worker has too many orders waiting")]
    Busy,
    /// It waits for packets, or is processing a very large batch.
    #[error("the worker did not answer: it waits for packets")]
    Late,
}

impl Post {
    /// The post of a worker whose old rules go to `reclaimer`.
    pub(crate) fn new(reclaimer: mpsc::Sender<Retired>) -> Post {
        Post { reclaimer: Some(reclaimer), ..Post::default() }
    }

    /// Gives the worker new rules. They replace earlier ones that it has not taken yet.
    ///
    /// # Errors
    /// The worker has ended.
    pub(crate) fn install(&self, mut new: Install) -> Result<(), Unanswered> {
        let old = {
            let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            if orders.closed {
                return Err(Unanswered::Ended);
            }
            let mut old = orders.install.take();
            if let Some(old) = &mut old {
                new.comes_after(old);
            }
            orders.install = Some(new);
            self.waiting.store(true, Ordering::Release);
            old
        };
        drop(old);
        Ok(())
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The worker accepts no requests.
    pub(crate) fn send(&self, order: Order) -> Result<(), Unanswered> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.closed {
            return Err(Unanswered::Ended);
        }
        if orders.list.len() >= ORDERS_MAX {
            return Err(Unanswered::Busy);
        }
        orders.list.push_back(order);
        self.waiting.store(true, Ordering::Release);
        Ok(())
    }

    /// Sends the request `ask`, and waits up to `time` for the result.
    ///
    /// # Errors
    /// There was no result in that time.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        time: Duration,
        ask: impl FnOnce(&mut Worker, &mut Reporter) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (send, receive) = mpsc::sync_channel(1);
        self.send(Box::new(move |worker, reporter| {
            // The sender may have stopped waiting.
            let _ = send.try_send(ask(worker, reporter));
        }))?;
        receive.recv_timeout(time).map_err(|e| match e {
            mpsc::RecvTimeoutError::Timeout => Unanswered::Late,
            mpsc::RecvTimeoutError::Disconnected => Unanswered::Ended,
        })
    }

    /// How long the last change of rules kept the worker busy, in processor time.
    pub(crate) fn kept(&self) -> Duration {
        Duration::from_micros(self.kept.load(Ordering::Relaxed))
    }

    /// Whether there are requests.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Handles all waiting requests. The worker calls this once per batch.
    #[inline]
    pub(crate) fn serve(&self, worker: &mut Worker, reporter: &mut Reporter) {
        if self.waiting.load(Ordering::Relaxed) {
            self.serve_all(worker, reporter);
        }
    }

    #[cold]
    fn serve_all(&self, worker: &mut Worker, reporter: &mut Reporter) {
        let (install, list) = {
            let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.store(false, Ordering::Relaxed);
            (orders.install.take(), std::mem::take(&mut orders.list))
        };
        if let Some(install) = install {
            let began = processor_time();
            let retired = worker.pipeline.stages.install(install);
            self.kept.store(processor_time().saturating_sub(began), Ordering::Relaxed);
            if let Some(reclaimer) = &self.reclaimer {
                // The receiver is gone only when the process ends.
                let _ = reclaimer.send(retired);
            }
        }
        for order in list {
            order(worker, reporter);
        }
    }

    /// Accepts no more requests, and handles those that wait.
    pub(crate) fn close(&self, worker: &mut Worker, reporter: &mut Reporter) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.serve_all(worker, reporter);
    }
}

/// Processor time of the calling thread, in microseconds.
fn processor_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap_or(0)
}
