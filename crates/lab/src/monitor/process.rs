//! A process and all that it started, as one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use super::column::{Column, Source};
use super::kept::{Kept, named};

/// The processes of the tree that are followed; what a tree has beyond them is not counted, and said so in `proc.unseen`.
const MOST: usize = 4096;

/// One process, its files open.
struct One {
    stat: Kept,
    io: Option<Kept>,
    /// The threads' files: number of the thread, `status` (context switches), `children`.
    threads: HashMap<u32, (Kept, Option<Kept>)>,
    /// What it had used at the last sample: the sum of the tree goes on from there, also when the process is gone.
    last: [f64; COUNTS.len()],
    /// When it started, in ticks since boot: a number that was given to another process is seen by it.
    started: u64,
}

/// What is summed up as it grows. Times are in ticks.
const COUNTS: [&str; 8] = ["user", "system", "faults", "major_faults", "yields", "preemptions", "read", "written"];

/// `/proc/PID` of a process and its descendants.
pub(super) struct Tree {
    root: u32,
    known: HashMap<u32, One>,
    sums: [f64; COUNTS.len()],
    tick: f64,
    page: f64,
}

impl Tree {
    /// Follows `pid`.
    ///
    /// # Errors
    /// Where there is no such process.
    pub(super) fn open(pid: u32) -> std::io::Result<Tree> {
        Kept::open(format!("/proc/{pid}/stat"))?;
        Ok(Tree {
            root: pid,
            known: HashMap::new(),
            sums: [0.0; COUNTS.len()],
            tick: rustix::param::clock_ticks_per_second() as f64,
            page: rustix::param::page_size() as f64,
        })
    }

    fn adopt(pid: u32) -> Option<One> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let mut stat = Kept::open(folder.join("stat")).ok()?;
        let started = Stat::of(stat.read())?.started;
        // The file is the owner's and root's alone.
        let io = Kept::open(folder.join("io")).ok();
        Some(One { stat, io, threads: HashMap::new(), last: [0.0; COUNTS.len()], started })
    }
}

/// What is used of `/proc/PID/stat`.
struct Stat {
    state: char,
    faults: f64,
    major_faults: f64,
    user: f64,
    system: f64,
    threads: f64,
    started: u64,
    size: f64,
    resident: f64,
}

impl Stat {
    fn of(text: &str) -> Option<Stat> {
        // The name is in parentheses and may hold anything, parentheses and spaces too.
        let (_, rest) = text.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<f64>().ok();
        Some(Stat {
            state: words.first()?.chars().next()?,
            faults: number(7)?,
            major_faults: number(9)?,
            user: number(11)?,
            system: number(12)?,
            threads: number(17)?,
            started: words.get(19)?.parse().ok()?,
            size: number(20)?,
            resident: number(21)?,
        })
    }
}

impl Source for Tree {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::share("proc.user", self.tick),
            Column::share("proc.system", self.tick),
            Column::count("proc.faults", "events"),
            Column::count("proc.major_faults", "events"),
            Column::count("proc.yields", "switches"),
            Column::count("proc.preemptions", "switches"),
            Column::count("proc.read_bytes", "bytes"),
            Column::count("proc.write_bytes", "bytes"),
            Column::gauge("proc.processes", "processes"),
            Column::gauge("proc.threads", "threads"),
            Column::gauge("proc.resident", "bytes"),
            Column::gauge("proc.virtual", "bytes"),
            Column::gauge("proc.unseen", "processes"),
        ]
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let mut queue = vec![self.root];
        let mut seen = std::collections::HashSet::new();
        let (mut processes, mut threads, mut resident, mut size, mut unseen) = (0.0, 0.0, 0.0, 0.0, 0.0);
        while let Some(pid) = queue.pop() {
            if !seen.insert(pid) {
                continue;
            }
            if seen.len() > MOST {
                unseen += 1.0;
                continue;
            }
            let one = match self.known.entry(pid) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let Some(one) = Self::adopt(pid) else { continue };
                    place.insert(one)
                }
            };
            let Some(stat) = Stat::of(one.stat.read()).filter(|stat| stat.started == one.started) else {
                self.known.remove(&pid);
                seen.remove(&pid);
                continue;
            };
            let mut now = one.last;
            now[..4].copy_from_slice(&[stat.user, stat.system, stat.faults, stat.major_faults]);
            one.children(pid, stat.threads, &mut queue);
            let (mut yields, mut preemptions) = (0.0, 0.0);
            let mut found = Vec::with_capacity(2);
            for (status, _) in one.threads.values_mut() {
                found.clear();
                named(status.read(), &["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"], 1.0, &mut found);
                yields += found[0].max(0.0);
                preemptions += found[1].max(0.0);
            }
            // A thread that ended takes its switches with it.
            now[4] = now[4].max(yields);
            now[5] = now[5].max(preemptions);
            if let Some(io) = &mut one.io {
                found.clear();
                named(io.read(), &["read_bytes", "write_bytes"], 1.0, &mut found);
                now[6] = now[6].max(found[0]);
                now[7] = now[7].max(found[1]);
            }
            for ((sum, value), last) in self.sums.iter_mut().zip(now).zip(one.last) {
                *sum += (value - last).max(0.0);
            }
            one.last = now;
            if stat.state != 'Z' {
                processes += 1.0;
                threads += stat.threads;
                resident += stat.resident * self.page;
                size += stat.size;
            }
        }
        self.known.retain(|pid, _| seen.contains(pid));
        row.extend(self.sums);
        row.extend([processes, threads, resident, size, unseen]);
    }
}

impl One {
    /// Keeps the threads' files up to date, and adds to `queue` the processes that they started.
    fn children(&mut self, pid: u32, threads: f64, queue: &mut Vec<u32>) {
        let task = PathBuf::from(format!("/proc/{pid}/task"));
        self.threads.retain(|_, (status, _)| !status.read().is_empty());
        if self.threads.len() as f64 != threads {
            for entry in std::fs::read_dir(&task).into_iter().flatten().flatten() {
                let Ok(thread) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
                if let Entry::Vacant(place) = self.threads.entry(thread)
                    && let Ok(status) = Kept::open(entry.path().join("status"))
                {
                    place.insert((status, Kept::open(entry.path().join("children")).ok()));
                }
            }
        }
        for (_, children) in self.threads.values_mut() {
            if let Some(children) = children {
                queue.extend(children.read().split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
            }
        }
    }
}
