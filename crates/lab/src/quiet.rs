//! Detects other activity on the machine during a measurement: time that the hypervisor took (steal), tasks that waited
//! for a processor, and CPU time of processes outside the laboratory. A disturbed measurement says little. Results
//! therefore carry these numbers; above the limits here they are marked and get no verdict.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Results are not published if these shares of the machine's CPU time are exceeded.
const STEAL_MOST: f64 = 0.01;
const FOREIGN_MOST: f64 = 0.05;
/// How often the run queue is sampled.
const LOOK: Duration = Duration::from_millis(50);

/// Other activity on the machine during a measurement; NaN if unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Company {
    /// The share of the machine's CPU time that the hypervisor gave to other guests.
    pub(crate) steal: f64,
    /// The share of processes outside the laboratory.
    pub(crate) foreign: f64,
    /// Average number of tasks that waited for a processor, the engine's own included.
    pub(crate) waiting: f64,
}

impl Company {
    /// All values unknown.
    #[cfg(test)]
    pub(crate) const UNKNOWN: Company = Company { steal: f64::NAN, foreign: f64::NAN, waiting: f64::NAN };

    /// Names of the values in tables, in the order of [`Company::values`].
    pub(crate) const NAMES: [&str; 3] = ["steal_share", "foreign_share", "waiting_tasks"];

    pub(crate) fn values(&self) -> [f64; 3] {
        [self.steal, self.foreign, self.waiting]
    }

    /// Whether it disturbs a measurement too much for publication.
    pub(crate) fn disturbs(&self) -> bool {
        self.steal > STEAL_MOST || self.foreign > FOREIGN_MOST
    }

    /// The larger of both, value by value.
    #[must_use]
    pub(crate) fn worse(&self, other: &Company) -> Company {
        Company {
            steal: self.steal.max(other.steal),
            foreign: self.foreign.max(other.foreign),
            waiting: self.waiting.max(other.waiting),
        }
    }

    /// Describes the values, as part of a sentence.
    pub(crate) fn describe(&self) -> String {
        format!(
            "steal {:.1} %, other processes {:.1} % of the processors, {:.1} tasks waiting",
            self.steal * 100.0,
            self.foreign * 100.0,
            self.waiting
        )
    }

    /// The mark of a result that must not be published; empty for others.
    pub(crate) fn mark(&self) -> String {
        if self.disturbs() {
            format!("; NOT TO BE PUBLISHED, the machine was busy: {}", self.describe())
        } else {
            String::new()
        }
    }
}

/// Ticks of CPU time at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    /// Ticks in processes: user, nice and system, without interrupts.
    processes: f64,
    steal: f64,
    /// Ticks in all modes, including idle.
    all: f64,
    /// Ticks of the laboratory: this process and its descendants.
    own: f64,
    /// Ticks of kernel threads.
    kernel: f64,
}

impl Ticks {
    fn now() -> Ticks {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut ticks = Ticks::of(stat.lines().next().unwrap_or_default());
        let mut processes = HashMap::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if let Some(process) = Process::of(&text) {
                processes.insert(pid, process);
            }
        }
        (ticks.own, ticks.kernel) = shared_out(&processes, std::process::id());
        ticks
    }

    /// Parses the first line of `/proc/stat`.
    fn of(line: &str) -> Ticks {
        let all: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        match all[..] {
            // `user` and `nice` already include the time of guests.
            [user, nice, system, idle, iowait, irq, softirq, steal, ..] => Ticks {
                processes: user + nice + system,
                steal,
                all: user + nice + system + idle + iowait + irq + softirq + steal,
                ..Ticks::default()
            },
            _ => Ticks { processes: f64::NAN, steal: f64::NAN, all: f64::NAN, ..Ticks::default() },
        }
    }

    /// The activity between two moments; the caller provides `waiting`.
    fn company(&self, before: &Ticks, waiting: f64) -> Company {
        let all = self.all - before.all;
        let foreign = (self.processes - before.processes) - (self.own - before.own) - (self.kernel - before.kernel);
        let share = |ticks: f64| if all > 0.0 { (ticks / all).max(0.0) } else { f64::NAN };
        Company { steal: share(self.steal - before.steal), foreign: share(foreign), waiting }
    }
}

/// The fields of `/proc/PID/stat` in use.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    parent: u32,
    /// Its own ticks, and those of its ended children.
    ticks: f64,
}

impl Process {
    fn of(text: &str) -> Option<Process> {
        // The name is in parentheses and may contain anything.
        let (_, rest) = text.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let ticks = words.get(11..15)?.iter().filter_map(|word| word.parse::<f64>().ok()).sum();
        Some(Process { parent: words.get(1)?.parse().ok()?, ticks })
    }
}

/// The parent of the kernel threads.
const KTHREADD: u32 = 2;

/// Ticks of `root` and its descendants, and of kernel threads.
fn shared_out(processes: &HashMap<u32, Process>, root: u32) -> (f64, f64) {
    let (mut own, mut kernel) = (0.0, 0.0);
    for (pid, process) in processes {
        let mut at = *pid;
        // The limit ends loops from parents that change during the reading.
        for _ in 0..64 {
            if at == root {
                own += process.ticks;
                break;
            }
            if at == KTHREADD {
                kernel += process.ticks;
                break;
            }
            match processes.get(&at) {
                Some(known) if known.parent != 0 => at = known.parent,
                _ => break,
            }
        }
    }
    (own, kernel)
}

/// Observes the machine from [`Witness::begin`] to [`Witness::end`].
pub(crate) struct Witness {
    before: Ticks,
    stop: Arc<AtomicBool>,
    queue: Option<JoinHandle<f64>>,
}

impl Witness {
    pub(crate) fn begin() -> Witness {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let queue = std::thread::Builder::new().name("lab-witness".to_owned()).spawn(move || run_queue(&seen)).ok();
        Witness { before: Ticks::now(), stop, queue }
    }

    pub(crate) fn end(mut self) -> Company {
        let after = Ticks::now();
        self.stop.store(true, Ordering::Relaxed);
        let waiting = self.queue.take().and_then(|thread| thread.join().ok()).unwrap_or(f64::NAN);
        after.company(&self.before, waiting)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The average number of waiting tasks, until `stop` is set.
fn run_queue(stop: &AtomicBool) -> f64 {
    let (mut sum, mut looks) = (0.0, 0.0);
    while !stop.load(Ordering::Relaxed) {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some(waiting) = waiting_of(&text) {
            sum += waiting;
            looks += 1.0;
        }
        let end = Instant::now() + LOOK;
        while !stop.load(Ordering::Relaxed) && Instant::now() < end {
            std::thread::sleep(LOOK / 10);
        }
    }
    sum / looks
}

/// Runnable tasks in `/proc/stat` beyond the number of processors. It subtracts this thread, which runs while it looks.
fn waiting_of(text: &str) -> Option<f64> {
    let processors = text.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1);
    let running = text.lines().find_map(|line| line.strip_prefix("procs_running "))?.trim().parse::<f64>().ok()?;
    Some((running - 1.0 - processors as f64).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_is_foreign() {
        let of = |parent: u32, ticks: f64| Process { parent, ticks };
        let processes = HashMap::from([
            (1, of(0, 500.0)),
            (2, of(0, 7.0)),
            (30, of(2, 11.0)),
            (100, of(1, 20.0)),
            (101, of(100, 40.0)),
            (102, of(101, 60.0)),
            (200, of(1, 90.0)),
        ]);
        assert_eq!(shared_out(&processes, 100), (120.0, 18.0));
        let before = Ticks { own: 100.0, kernel: 10.0, ..Ticks::of("cpu 1000 0 200 5000 10 3 4 5 0 0") };
        let after = Ticks { own: 300.0, kernel: 20.0, ..Ticks::of("cpu 1210 0 210 5360 10 3 4 25 0 0") };
        // 220 of 600 ticks were in processes: 200 ours, 10 of the kernel, 10 of others; 20 were stolen.
        let company = after.company(&before, 0.5);
        assert!((company.foreign - 10.0 / 600.0).abs() < 1e-9 && (company.steal - 20.0 / 600.0).abs() < 1e-9);
        assert!(company.disturbs() && company.mark().contains("steal 3.3 %"), "{}", company.mark());
        let quiet = Company { steal: 0.001, foreign: 0.02, waiting: 9.0 };
        assert!(!quiet.disturbs() && quiet.mark().is_empty());
        assert!(!Company::UNKNOWN.disturbs());
    }

    #[test]
    fn reads_the_kernels_files() {
        let process = Process::of("7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5 6 7");
        assert_eq!(process, Some(Process { parent: 3, ticks: 100.0 }));
        assert_eq!(waiting_of("cpu 1\ncpu0 1\ncpu1 1\nprocs_running 6\n"), Some(3.0));
        assert_eq!(waiting_of("cpu 1\ncpu0 1\nprocs_running 1\n"), Some(0.0));
        assert_eq!(waiting_of(""), None);
    }

    #[test]
    fn another_process_is_seen() {
        // Its parent ends, so that it becomes a child of init.
        let pid = tempfile::NamedTempFile::new().unwrap();
        let script = format!("(timeout 20 sh -c 'while :; do :; done' & echo $! > {}) &", pid.path().display());
        let begun = Witness::begin();
        std::process::Command::new("setsid").args(["sh", "-c", &script]).status().unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        let company = begun.end();
        if let Ok(pid) = std::fs::read_to_string(pid.path()) {
            let _ = std::process::Command::new("kill").arg(pid.trim()).status();
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        // A part of one processor, because the machine may be busy.
        assert!(company.foreign > 0.1 / cpus, "{company:?}");
        assert!(company.steal.is_finite() && company.waiting.is_finite(), "{company:?}");
    }
}
