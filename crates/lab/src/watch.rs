//! A thread that samples the machine, the engine's processes and the engine's counters during a run. It writes two
//! files, which keep everything up to that point if the run fails.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::{CounterFile, Counts};
use crate::monitor::{Format, LEADING, Sampler, What, Writer};
use crate::problem::{Outcome, Problem};

/// The sampling thread, see the module. It stops when dropped.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Outcome<Vec<String>>>>,
}

impl Watch {
    /// Samples process `pid` every `period` into `samples.csv` in folder `dir`. The engine's counters follow the other
    /// columns, if it has any.
    pub(crate) fn start(pid: u32, counters: Option<CounterFile>, period: Duration, dir: &Path) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (stop, path) = (Arc::clone(&stop), dir.join("samples.csv"));
            std::thread::spawn(move || sample(pid, counters, period, &path, &stop))
        };
        Watch { stop, thread: Some(thread) }
    }

    /// Stops sampling. Returns the sources that could not be sampled, a sentence each.
    ///
    /// # Errors
    /// If samples could not be written.
    pub(crate) fn end(mut self) -> Outcome<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(Problem::Failed("the monitor's thread panicked".to_owned())),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Column names of the engine's counters: sums, and those of each of several interfaces by its number from 1.
fn counter_names(interfaces: usize) -> impl Iterator<Item = String> {
    let of = |number: usize| EACH.iter().map(move |name| format!("engine.{number}.{name}"));
    Counts::NAMES.iter().map(|name| format!("engine.{name}")).chain((1..=interfaces).flat_map(of))
}

/// The counters of an interface.
const EACH: [&str; 3] = ["received", "dropped", "decoded"];

fn sample(
    pid: u32,
    mut counters: Option<CounterFile>,
    period: Duration,
    path: &Path,
    stop: &AtomicBool,
) -> Outcome<Vec<String>> {
    // An engine that ended at once leaves no samples; this is no error.
    let Ok(mut sampler) = Sampler::open(&What { process: Some(pid), ..What::default() }) else {
        return Ok(vec![format!("process {pid} ended before it could be watched")]);
    };
    let wrote = |error| Problem::file("write", path, error);
    let file = File::create(path).map_err(|error| Problem::file("make", path, error))?;
    let own = |counters: &Option<CounterFile>| counters.as_ref().map_or_else(Vec::new, CounterFile::last_by_interface);
    let interfaces = own(&counters).len();
    let names: Vec<String> = sampler.header().map(str::to_owned).chain(counter_names(interfaces)).collect();
    let names = names.iter().map(String::as_str);
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 16, file), Format::Csv, names).map_err(wrote)?;
    let mut values = Vec::new();
    let mut write = |row: &[f64]| {
        values.clear();
        values.extend_from_slice(row);
        let counts = counters.as_mut().map_or(Counts::UNKNOWN, CounterFile::read);
        values.extend(counts.values());
        values.extend(own(&counters).iter().flat_map(|counts| [counts.received, counts.dropped, counts.decoded]));
        writer.write(&values).map_err(wrote)
    };
    sampler.run(period, || stop.load(Ordering::Relaxed), |row| write(row).map(|()| true))?;
    // A last sample covers the time after the last whole period.
    let row = sampler.sample(0).to_vec();
    write(&row)?;
    debug_assert!(row.len() >= LEADING.len());
    Ok(std::mem::take(&mut sampler.notes))
}
