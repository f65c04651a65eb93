//! Counts the packets that leave an inline engine, on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use margay_capture::af_packet::{AfPacket, Settings};
use margay_capture::live::{Decisions, LiveSource, Received};

use super::sent::Counted;
use crate::problem::{Outcome, Problem};

/// Threads that count what arrives on interfaces.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    /// Packets so far.
    packets: Arc<AtomicU64>,
    threads: Vec<JoinHandle<(Counted, u64)>>,
}

impl Recorder {
    /// Starts on these interfaces.
    ///
    /// # Errors
    /// If an interface cannot be captured from.
    pub(super) fn start(interfaces: &[&str]) -> Outcome<Recorder> {
        let (stop, packets) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut recorder = Recorder { stop, packets, threads: Vec::new() };
        for name in interfaces {
            let failed = |why: String| Problem::Failed(format!("cannot record what arrives on {name}: {why}"));
            let mut source = AfPacket::open(name, Settings::default()).map_err(|error| failed(error.to_string()))?;
            source.start().map_err(|error| failed(error.to_string()))?;
            let (stop, packets) = (Arc::clone(&recorder.stop), Arc::clone(&recorder.packets));
            let thread = std::thread::Builder::new()
                .name("recorder".to_owned())
                .spawn(move || record(&mut source, &stop, &packets))
                .map_err(|error| failed(error.to_string()))?;
            recorder.threads.push(thread);
        }
        Ok(recorder)
    }

    /// Packets that arrived so far.
    pub(super) fn so_far(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Stops. Returns the counts, and the number of packets that the recorder itself lost.
    ///
    /// # Errors
    /// If a thread panicked. Without its packets, attacks would look stopped.
    pub(super) fn end(self) -> Outcome<(Counted, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = (Counted::default(), 0);
        for thread in self.threads {
            let panicked = |_| Problem::Failed("a thread that records what arrives has panicked".to_owned());
            let (counted, lost) = thread.join().map_err(panicked)?;
            all.0.merge(counted);
            all.1 += lost;
        }
        Ok(all)
    }
}

fn record(source: &mut AfPacket, stop: &AtomicBool, packets: &AtomicU64) -> (Counted, u64) {
    let (mut counted, decisions) = (Counted::default(), Decisions::default());
    loop {
        match source.receive(512, Duration::from_millis(20)) {
            Received::Frames => {
                let mut n = 0;
                for frame in source.batch().iter() {
                    counted.add(frame.data);
                    n += 1;
                }
                packets.fetch_add(n, Ordering::Relaxed);
                source.release(&decisions);
            }
            _ if stop.load(Ordering::Relaxed) => break,
            _ => {}
        }
    }
    let lost = source.counters(0).kernel_drops;
    (counted, lost)
}
