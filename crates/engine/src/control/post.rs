//! What other threads ask of a worker: orders, carried out by the worker itself between two batches.
//!
//! The worker looks at one flag a batch, which is written only when there is an order: nothing on the packet path waits or
//! is shared and written. What belongs to a worker (flows, bits of hosts, counters) so stays its own, also for those who ask
//! about it.
//!
//! Rules that are to take the place of others wait in a place of their own: where a worker waits for packets while rules are
//! loaded again and again it takes the last ones, and those in between are let go.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::stats::Reporter;
use crate::worker::Worker;
use crate::worker::engines::{Install, Retired};

/// Most orders that wait; further ones are refused.
const ORDERS_MAX: usize = 256;

/// Something for a worker to do.
pub(crate) type Order = Box<dyn FnOnce(&mut Worker, &mut Reporter) + Send>;

/// Orders for one worker.
#[derive(Default)]
pub(crate) struct Post {
    waiting: AtomicBool,
    orders: Mutex<Orders>,
    /// For how many microseconds of its processor the worker was last kept by taking other rules.
    kept: AtomicU64,
    /// Who drops what the worker does not need any more.
    reclaimer: Option<mpsc::Sender<Retired>>,
}

#[derive(Default)]
struct Orders {
    /// The worker carries out none any more.
    closed: bool,
    /// Rules to be taken before anything else is done.
    install: Option<Install>,
    list: VecDeque<Order>,
}

/// Why an order was not carried out, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unanswered {
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// Too much is asked of it.
    #[error("the worker has too many orders waiting")]
    Busy,
    /// It waits for packets, or works on those of a very large batch.
    #[error("the worker did not answer: it waits for packets")]
    Late,
}

impl Post {
    /// For a worker whose old rules go to `reclaimer`.
    pub(crate) fn new(reclaimer: mpsc::Sender<Retired>) -> Post {
        Post { reclaimer: Some(reclaimer), ..Post::default() }
    }

    /// Has the worker take other rules; those that it did not take yet are let go.
    ///
    /// # Errors
    /// Where the worker has ended.
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

    /// Hands an order over.
    ///
    /// # Errors
    /// Where the worker takes none.
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

    /// Has `ask` carried out, and waits `time` for what it comes to.
    ///
    /// # Errors
    /// Where it was not carried out in that time.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        time: Duration,
        ask: impl FnOnce(&mut Worker, &mut Reporter) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (send, receive) = mpsc::sync_channel(1);
        self.send(Box::new(move |worker, reporter| {
            // Who asked may have gone.
            let _ = send.try_send(ask(worker, reporter));
        }))?;
        receive.recv_timeout(time).map_err(|e| match e {
            mpsc::RecvTimeoutError::Timeout => Unanswered::Late,
            mpsc::RecvTimeoutError::Disconnected => Unanswered::Ended,
        })
    }

    /// For how long the worker was last kept by taking other rules, in time of its processor.
    pub(crate) fn kept(&self) -> Duration {
        Duration::from_micros(self.kept.load(Ordering::Relaxed))
    }

    /// Whether there is something to carry out.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Carries out what waits; for the worker, once a batch.
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
                // It ends with the process.
                let _ = reclaimer.send(retired);
            }
        }
        for order in list {
            order(worker, reporter);
        }
    }

    /// Takes no more orders, after those that wait.
    pub(crate) fn close(&self, worker: &mut Worker, reporter: &mut Reporter) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.serve_all(worker, reporter);
    }
}

/// Microseconds for which the calling thread had a processor.
fn processor_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap_or(0)
}
