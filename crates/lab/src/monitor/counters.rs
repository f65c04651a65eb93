//! Hardware performance counters, if the machine has them and permits their use.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

use super::column::{Column, Source};

const EVENTS: [(Hardware, &str); 5] = [
    (Hardware::CPU_CYCLES, "cycles"),
    (Hardware::INSTRUCTIONS, "instructions"),
    (Hardware::CACHE_REFERENCES, "cache_references"),
    (Hardware::CACHE_MISSES, "cache_misses"),
    (Hardware::BRANCH_MISSES, "branch_misses"),
];

/// Counters of the whole machine, one set for each core.
pub(super) struct Counters {
    kinds: Vec<(&'static str, Vec<Counter>)>,
}

impl Counters {
    /// Opens them on cores `0..cores`. The error says why there are none.
    pub(super) fn open(cores: usize) -> Result<Counters, String> {
        let mut kinds = Vec::new();
        let mut why = None;
        for (event, name) in EVENTS {
            let open = |core: usize| {
                let mut counter =
                    Builder::new(event).any_pid().one_cpu(core).include_kernel().exclude_hv(false).build()?;
                counter.enable()?;
                Ok(counter)
            };
            match (0..cores).map(open).collect::<std::io::Result<Vec<Counter>>>() {
                Ok(counters) => kinds.push((name, counters)),
                Err(error) => why = Some(error),
            }
        }
        match why {
            Some(error) if kinds.is_empty() => Err(match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "they need root, or kernel.perf_event_paranoid at 0 or below".to_owned()
                }
                std::io::ErrorKind::NotFound | std::io::ErrorKind::Unsupported => "the machine has none".to_owned(),
                _ => error.to_string(),
            }),
            _ => Ok(Counters { kinds }),
        }
    }
}

impl Source for Counters {
    fn columns(&self) -> Vec<Column> {
        self.kinds.iter().map(|(name, _)| Column::count(format!("perf.{name}"), "events")).collect()
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        for (_, counters) in &mut self.kinds {
            row.push(counters.iter_mut().map(|counter| counter.read().map_or(f64::NAN, |count| count as f64)).sum());
        }
    }
}
