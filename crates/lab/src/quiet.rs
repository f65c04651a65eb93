//! Whether the machine was left alone while something was measured: time that the hypervisor took (steal), tasks that waited for a
//! processor, and processor time of processes that are not the laboratory's. A measurement with company says little about what was
//! measured, so results carry these numbers, are marked above the limits here, and get no verdict.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shares of the machine's processor time above which a result is not to be published.
const STEAL_MOST: f64 = 0.01;
const FOREIGN_MOST: f64 = 0.05;
/// How often the run queue is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What the machine did beside a measurement; not a number is what is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Company {
    /// The share of the machine's processor time that the hypervisor gave to others.
    pub(crate) steal: f64,
    /// The share that processes had which are not the laboratory's.
    pub(crate) foreign: f64,
    /// Tasks that waited for a processor, on average; the engine's own are among them.
    pub(crate) waiting: f64,
}

impl Company {
    /// Nothing is known.
    #[cfg(test)]
    pub(crate) const UNKNOWN: Company = Company { steal: f64::NAN, foreign: f64::NAN, waiting: f64::NAN };

    /// What the values are called in tables, in the order of [`Company::values`].
    pub(crate) const NAMES: [&str; 3] = ["steal_share", "foreign_share", "waiting_tasks"];

    pub(crate) fn values(&self) -> [f64; 3] {
        [self.steal, self.foreign, self.waiting]
    }

    /// Whether what was measured meanwhile is not to be published.
    pub(crate) fn disturbs(&self) -> bool {
        self.steal > STEAL_MOST || self.foreign > FOREIGN_MOST
    }

    /// The worse of both, number by number.
    #[must_use]
    pub(crate) fn worse(&self, other: &Company) -> Company {
        Company {
            steal: self.steal.max(other.steal),
            foreign: self.foreign.max(other.foreign),
            waiting: self.waiting.max(other.waiting),
        }
    }

    /// As a part of a sentence.
    pub(crate) fn describe(&self) -> String {
        format!(
            "steal {:.1} %, other processes {:.1} % of the processors, {:.1} tasks waiting",
            self.steal * 100.0,
            self.foreign * 100.0,
            self.waiting
        )
    }

    /// The mark of a result that is not to be published; empty for others.
    pub(crate) fn mark(&self) -> String {
        if self.disturbs() {
            format!("; NOT TO BE PUBLISHED, the machine was busy: {}", self.describe())
        } else {
            String::new()
        }
    }
}

/// Ticks of processor time, as they were at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    /// In which any process ran: user, nice and system, of which interrupts are no part.
    processes: f64,
    steal: f64,
    /// All modes together, idle too.
    all: f64,
    /// Of the laboratory: this process, what it started, and what these started.
    own: f64,
    /// Of the kernel's own threads.
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

    /// Of the first line of `/proc/stat`.
    fn of(line: &str) -> Ticks {
        let all: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        match all[..] {
            // The time of guests is in `user` and `nice` already.
            [user, nice, system, idle, iowait, irq, softirq, steal, ..] => Ticks {
                processes: user + nice + system,
                steal,
                all: user + nice + system + idle + iowait + irq + softirq + steal,
                ..Ticks::default()
            },
            _ => Ticks { processes: f64::NAN, steal: f64::NAN, all: f64::NAN, ..Ticks::default() },
        }
    }

    /// The company between two moments; the caller knows `waiting`.
    fn company(&self, before: &Ticks, waiting: f64) -> Company {
        let all = self.all - before.all;
        let foreign = (self.processes - before.processes) - (self.own - before.own) - (self.kernel - before.kernel);
        let share = |ticks: f64| if all > 0.0 { (ticks / all).max(0.0) } else { f64::NAN };
        Company { steal: share(self.steal - before.steal), foreign: share(foreign), waiting }
    }
}

/// The fields of `/proc/PID/stat` that count here.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    parent: u32,
    /// Ticks of its own and of its children that are over.
    ticks: f64,
}

impl Process {
    fn of(text: &str) -> Option<Process> {
        // The name is in parentheses and may hold anything.
        let (_, rest) = text.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let ticks = words.get(11..15)?.iter().filter_map(|word| word.parse::<f64>().ok()).sum();
        Some(Process { parent: words.get(1)?.parse().ok()?, ticks })
    }
}

/// The process that starts the kernel's threads.
const KTHREADD: u32 = 2;

/// Ticks of `root` with all that descends from it, and of the kernel's threads.
fn shared_out(processes: &HashMap<u32, Process>, root: u32) -> (f64, f64) {
    let (mut own, mut kernel) = (0.0, 0.0);
    for (pid, process) in processes {
        let mut at = *pid;
        // Parents that change while they are read make no circle that never ends.
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

/// Looks at the machine from [`Witness::begin`] to [`Witness::end`].
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

/// How many tasks waited on average, until it is to stop.
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

/// Tasks that could run beyond those that the processors have, of `/proc/stat`. This one runs while it looks.
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
        // Of 600 ticks 220 were of processes: 200 ours, 10 the kernel's, 10 of others; 20 were stolen.
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
        // Not a child of this process for long: its parent ends, and it becomes that of init.
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
        // A part of one processor: the machine may have more to do.
        assert!(company.foreign > 0.1 / cpus, "{company:?}");
        assert!(company.steal.is_finite() && company.waiting.is_finite(), "{company:?}");
    }
}
