//! Counters of outputs. Each output counts once, however many workers write to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Behind, Sink};
use crate::remote::RemoteCounters;
use crate::writer::Writer;

/// The counters of all outputs of all workers. A clone has the same outputs.
#[derive(Debug, Clone, Default)]
pub struct OutputCounters(Arc<Mutex<Registered>>);

#[derive(Debug, Default)]
struct Registered {
    outputs: Vec<Arc<Behind>>,
    writer: Option<Arc<Writer>>,
}

impl OutputCounters {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the output of this worker's sink, unless another worker's sink already added it.
    pub(crate) fn register(&self, sink: &Sink) {
        let mut all = self.lock();
        if !all.outputs.iter().any(|o| Arc::ptr_eq(o, &sink.shared)) {
            all.outputs.push(Arc::clone(&sink.shared));
        }
    }

    /// Adds the thread that writes.
    pub(crate) fn register_writer(&self, writer: &Arc<Writer>) {
        self.lock().writer = Some(Arc::clone(writer));
    }

    /// Lines that could not be written so far.
    pub fn lost(&self) -> u64 {
        let all = self.lock();
        let with_thread = all.writer.as_ref().map_or(0, |w| w.lost());
        with_thread + all.outputs.iter().map(|o| o.lock().lost()).sum::<u64>()
    }

    /// The sum over the outputs on other machines; `None` without such outputs.
    pub fn remote(&self) -> Option<RemoteCounters> {
        self.lock().outputs.iter().filter_map(|o| o.lock().remote()).reduce(RemoteCounters::plus)
    }

    /// How often a worker waited for the writing thread; `None` without such a thread.
    pub fn waits(&self) -> Option<u64> {
        self.lock().writer.as_ref().map(|w| w.waits())
    }
}
