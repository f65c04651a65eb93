//! Measures the cost of each packet on one worker (`margay.packet-costs`). `margay lab parallel --simulate` uses the result.
//!
//! The clock is read before and after each step of each packet, and the cost of reading it is subtracted. A run without this
//! setting never reads the clock for a packet. The file has little-endian numbers. It begins with the eight bytes `MGYCOST1`.
//! Three numbers of 8 bytes follow: the number of packets, the nanoseconds from the first packet to the end of the last flow,
//! and the nanoseconds of that after the last packet. Each packet then has the hash that steers it (8 bytes), and in 4 bytes
//! each the nanoseconds for reading, for computing that hash, for decoding, tracking and parsing, for the searches in its
//! payload and in its stream data, for everything else such as checks and events, and its length.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use margay_config::{Config, ConfigError};
use margay_output::{error, info};
use margay_packet::Frame;

use crate::settings as all;
use crate::spread::steer::{Place, Steering};
use crate::worker::Worker;

const KEY: &str = "margay.packet-costs";
/// Clock reads that measure the cost of one.
const READS: u32 = 20_000;

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    hash: u64,
    steer: u64,
    before: u64,
    payload: u64,
    stream: u64,
    after: u64,
    len: u32,
}

/// Collects the costs of packets.
pub(crate) struct PacketCosts {
    path: PathBuf,
    steering: Steering,
    /// Nanoseconds that a clock read takes.
    clock: u64,
    batch: Vec<Cost>,
    out: Vec<u8>,
    packets: u64,
    last: Option<Instant>,
}

impl PacketCosts {
    pub(crate) fn is_wanted(config: &Config) -> bool {
        config.get(KEY).is_some_and(|f| !f.is_empty())
    }

    /// The collector, if costs are requested. A file name without a folder is in `dir`.
    ///
    /// # Errors
    /// Invalid decoder settings.
    pub(crate) fn of(config: &Config, dir: &Path) -> Result<Option<PacketCosts>, ConfigError> {
        let Some(file) = config.get(KEY).filter(|f| !f.is_empty()) else { return Ok(None) };
        let decode = all::decode(config, false)?;
        let tunnels = vec![decode.vxlan, decode.geneve, decode.teredo];
        Ok(Some(PacketCosts {
            path: dir.join(file),
            steering: Steering { tunnels, ..Steering::default() },
            clock: clock(),
            batch: Vec::new(),
            out: Vec::new(),
            packets: 0,
            last: None,
        }))
    }

    /// Has `worker` inspect a batch that was requested at `asked` and has just arrived.
    pub(crate) fn batch<'a>(&mut self, asked: Instant, frames: impl Iterator<Item = Frame<'a>>, worker: &mut Worker) {
        let came = Instant::now();
        let read = self.took(asked, came);
        let mut begin = came;
        for frame in frames {
            let hash = match self.steering.place(&frame).0 {
                Place::Flow(hash)
                | Place::Plain(hash)
                | Place::Opening { flow: hash, .. }
                | Place::Control { pair: hash } => hash,
                Place::Fragment { first, alone, .. } => first.unwrap_or(alone),
                Place::Unknown => 0,
            };
            let steered = Instant::now();
            worker.frame(&frame);
            let done = Instant::now();
            let times = worker.pipeline.stages.own().and_then(|(_, state)| state.take_times()).unwrap_or_default();
            let mut cost =
                Cost { hash, steer: self.took(begin, steered), len: frame.data.len() as u32, ..Cost::default() };
            if let (Some(first), Some(last)) = (times.first, times.last) {
                let spans = |n: u32| u64::from(n) * self.clock;
                cost.before = self.took(steered, first);
                cost.payload = nanos(times.payload).saturating_sub(spans(times.payload_spans));
                cost.stream = nanos(times.stream).saturating_sub(spans(times.stream_spans));
                // Each search lies between two clock reads, one of which counts as part of the search.
                let searches = nanos(times.payload + times.stream) + spans(times.payload_spans + times.stream_spans);
                cost.after = self.took(first, last).saturating_sub(searches) + self.took(last, done);
            } else {
                cost.before = self.took(steered, done);
            }
            self.batch.push(cost);
            begin = Instant::now();
        }
        let before = Instant::now();
        worker.expire();
        let ended = Instant::now();
        let rest = self.took(before, ended);
        self.last = Some(ended);
        self.keep(read, rest);
    }

    /// Records a batch. Work for the whole batch is shared out among its packets.
    fn keep(&mut self, read: u64, rest: u64) {
        let n = self.batch.len() as u64;
        for (i, c) in (0u64..).zip(self.batch.drain(..)) {
            let share = |of: u64| of * (i + 1) / n - of * i / n;
            self.out.extend(c.hash.to_le_bytes());
            for value in [share(read), c.steer, c.before, c.payload, c.stream, c.after + share(rest), u64::from(c.len)]
            {
                self.out.extend(u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes());
            }
        }
        self.packets += n;
    }

    fn took(&self, from: Instant, to: Instant) -> u64 {
        nanos(to.duration_since(from)).saturating_sub(self.clock)
    }

    /// Writes the file. The first packet arrived at `began`, and the last flow has just ended.
    pub(crate) fn write(self, began: Instant) {
        let all = began.elapsed();
        let end = self.last.map_or(Duration::ZERO, |l| l.elapsed());
        let mut head = b"MGYCOST1".to_vec();
        for n in [self.packets, nanos(all), nanos(end)] {
            head.extend(n.to_le_bytes());
        }
        let path = self.path.display();
        let written = std::fs::File::create(&self.path).and_then(|mut f| {
            std::io::Write::write_all(&mut f, &head)?;
            std::io::Write::write_all(&mut f, &self.out)
        });
        match written {
            Ok(()) => {
                info!(
                    "profiling",
                    "the costs of {} packets are in {path}; a clock read takes {} ns", self.packets, self.clock
                )
            }
            Err(e) => error!("profiling", "{path}: cannot be written: {e}"),
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds that a clock read takes.
fn clock() -> u64 {
    let from = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    nanos(from.elapsed()) / u64::from(READS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_batch_is_shared_out() {
        let mut costs = PacketCosts {
            path: PathBuf::new(),
            steering: Steering::default(),
            clock: 20,
            batch: vec![Cost { hash: 7, after: 5, len: 60, ..Cost::default() }; 3],
            out: Vec::new(),
            packets: 0,
            last: None,
        };
        costs.keep(100, 10);
        assert_eq!((costs.packets, costs.out.len()), (3, 3 * 36));
        let number = |at: usize| u32::from_le_bytes(costs.out[at..at + 4].try_into().unwrap());
        assert_eq!([8, 44, 80].map(number).iter().sum::<u32>(), 100);
        assert_eq!([28, 64, 100].map(number).iter().sum::<u32>(), 15 + 10);
        assert_eq!(number(32), 60);
        let now = Instant::now();
        assert_eq!(costs.took(now, now + Duration::from_nanos(90)), 70);
        assert_eq!(costs.took(now, now), 0);
    }
}
