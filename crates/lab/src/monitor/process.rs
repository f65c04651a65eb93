//! The resource use of a process and all its descendants, summed up.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::PathBuf;

use super::column::{Column, Source};
use super::sampled_file::{SampledFile, named};

/// Most processes of a tree that are followed. `proc.unseen` counts the others.
const MOST: usize = 4096;

/// One process with its open files.
struct One {
    stat: SampledFile,
    io: Option<SampledFile>,
    /// Files of the threads by thread number: `status` (context switches) and `children`.
    threads: HashMap<u32, (SampledFile, Option<SampledFile>)>,
    /// Its counters at the previous sample. The tree's sum continues from there, even after the process has ended.
    last: [f64; COUNTS.len()],
    /// Start time in ticks since boot. It detects a reused process identifier.
    started: u64,
}

/// Counters that are summed as they grow. Times are in ticks.
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
    /// If there is no such process.
    pub(super) fn open(pid: u32) -> std::io::Result<Tree> {
        SampledFile::open(format!("/proc/{pid}/stat"))?;
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
        let mut stat = SampledFile::open(folder.join("stat")).ok()?;
        let started = Stat::of(stat.read())?.started;
        // Only the owner and root may read the file.
        let io = SampledFile::open(folder.join("io")).ok();
        Some(One { stat, io, threads: HashMap::new(), last: [0.0; COUNTS.len()], started })
    }
}

/// The fields of `/proc/PID/stat` in use.
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
        // The name is in parentheses and may contain anything, parentheses and spaces included.
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
            // The switches of an ended thread disappear with it.
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
        if processes == 0.0 {
            // The process has ended. Its last values are unknown, not zero.
            row.resize(row.len() + COUNTS.len() + 5, f64::NAN);
            return;
        }
        row.extend(self.sums);
        row.extend([processes, threads, resident, size, unseen]);
    }
}

impl One {
    /// Updates the threads' files, and adds the processes that the threads started to `queue`.
    fn children(&mut self, pid: u32, threads: f64, queue: &mut Vec<u32>) {
        let task = PathBuf::from(format!("/proc/{pid}/task"));
        self.threads.retain(|_, (status, _)| !status.read().is_empty());
        if self.threads.len() as f64 != threads {
            for entry in std::fs::read_dir(&task).into_iter().flatten().flatten() {
                let Ok(thread) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
                if let Entry::Vacant(place) = self.threads.entry(thread)
                    && let Ok(status) = SampledFile::open(entry.path().join("status"))
                {
                    place.insert((status, SampledFile::open(entry.path().join("children")).ok()));
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
