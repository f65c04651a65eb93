//! CPU time of a process and its descendants, by thread name.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use super::column::{Column, Source};
use super::sampled_file::SampledFile;

/// Most names with columns of their own. Threads with other names are summed up.
const MOST_NAMES: usize = 64;
/// Most threads that are followed.
const MOST: usize = 4096;

/// A thread with its open file.
struct One {
    stat: SampledFile,
    /// The index of its pair of columns.
    at: usize,
    started: u64,
    last: [f64; 2],
}

/// `/proc/PID/task/TID/stat` of a tree of processes.
pub(super) struct Threads {
    root: u32,
    /// Prefixes of names as given, or the names of threads that existed at the start. The pair of columns after the last
    /// name is for all others.
    names: Vec<String>,
    whole: bool,
    known: HashMap<u32, One>,
    sums: Vec<[f64; 2]>,
    tick: f64,
}

/// The name, the ticks in user and kernel mode, and the start time in a `stat` file.
fn parse(text: &str) -> Option<(&str, [f64; 2], u64)> {
    // The name is in parentheses and may contain anything, parentheses and spaces included.
    let (head, rest) = text.rsplit_once(") ")?;
    let name = head.split_once('(')?.1;
    let mut words = rest.split_ascii_whitespace();
    let user = words.nth(11)?.parse().ok()?;
    let system = words.next()?.parse().ok()?;
    Some((name, [user, system], words.nth(6)?.parse().ok()?))
}

/// A thread name, usable within a column name.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "#_-:/".contains(c) { c } else { '_' }).collect()
}

impl Threads {
    /// Follows `root`. `names` are prefixes of the thread names that get columns; if empty, current threads get them.
    ///
    /// # Errors
    /// If there is no such process.
    pub(super) fn open(root: u32, names: &[String]) -> std::io::Result<Threads> {
        SampledFile::open(format!("/proc/{root}/stat"))?;
        let tick = rustix::param::clock_ticks_per_second() as f64;
        let (whole, known) = (names.is_empty(), HashMap::new());
        let mut threads = Threads { root, names: names.to_vec(), whole, known, sums: Vec::new(), tick };
        if whole {
            let mut found = BTreeSet::new();
            threads.each(|_, folder| {
                if let Ok(name) = std::fs::read_to_string(folder.join("comm")) {
                    found.insert(name.trim_end_matches('\n').to_owned());
                }
            });
            threads.names = found.into_iter().take(MOST_NAMES).collect();
        }
        threads.names.truncate(MOST_NAMES);
        threads.sums = vec![[0.0; 2]; threads.names.len() + 1];
        Ok(threads)
    }

    /// Calls `what` with each thread in the tree, and its folder.
    fn each(&self, mut what: impl FnMut(u32, PathBuf)) {
        let (mut queue, mut seen, mut count) = (vec![self.root], HashSet::new(), 0);
        while let Some(pid) = queue.pop() {
            if !seen.insert(pid) {
                continue;
            }
            for entry in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let Ok(thread) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
                count += 1;
                if count > MOST {
                    return;
                }
                let children = std::fs::read_to_string(entry.path().join("children")).unwrap_or_default();
                queue.extend(children.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
                what(thread, entry.path());
            }
        }
    }

    fn place(&self, name: &str) -> usize {
        let fits = |known: &String| if self.whole { known == name } else { name.starts_with(known.as_str()) };
        self.names.iter().position(fits).unwrap_or(self.names.len())
    }
}

impl Source for Threads {
    fn columns(&self) -> Vec<Column> {
        let names = self.names.iter().map(|name| plain(name)).chain(["other".to_owned()]);
        names
            .flat_map(|name| ["user", "system"].map(|mode| Column::share(format!("thread.{name}.{mode}"), self.tick)))
            .collect()
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let mut there = Vec::new();
        self.each(|thread, folder| there.push((thread, folder)));
        let mut seen = HashSet::with_capacity(there.len());
        for (thread, folder) in there {
            seen.insert(thread);
            if !self.known.contains_key(&thread) {
                let Ok(mut stat) = SampledFile::open(folder.join("stat")) else { continue };
                let Some((name, _, started)) = parse(stat.read()) else { continue };
                let at = self.place(name);
                self.known.insert(thread, One { stat, at, started, last: [0.0; 2] });
            }
            let Some(one) = self.known.get_mut(&thread) else { continue };
            let Some((_, now, started)) = parse(one.stat.read()) else { continue };
            if started != one.started {
                // The identifier now belongs to another thread; the next sample includes it.
                seen.remove(&thread);
                continue;
            }
            for ((sum, now), last) in self.sums[one.at].iter_mut().zip(now).zip(one.last) {
                *sum += (now - last).max(0.0);
            }
            one.last = now;
        }
        self.known.retain(|thread, _| seen.contains(thread));
        row.extend(self.sums.iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = "7 (a) (b) c) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 5678 1000 200 0\n";
        assert_eq!(parse(text), Some(("a) (b) c", [12.0, 34.0], 5678)));
        assert_eq!(parse("7 (cut"), None);
        assert_eq!(plain("W#01 eth,1"), "W#01_eth_1");
    }

    #[test]
    fn threads_of_a_name_count_together_and_others_apart() {
        let mut threads = Threads::open(std::process::id(), &["busy-".to_owned()]).unwrap();
        let names: Vec<String> = threads.columns().into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["thread.busy-.user", "thread.busy-.system", "thread.other.user", "thread.other.system"]);
        let mut before = Vec::new();
        threads.read(&mut before);
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let spin = |name: &str| {
            let stop = stop.clone();
            let work = move || while !stop.load(std::sync::atomic::Ordering::Relaxed) {};
            std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
        };
        let busy = [spin("busy-1"), spin("busy-2")];
        let mut after = Vec::new();
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(50));
            after.clear();
            threads.read(&mut after);
            if after[0] + after[1] > before[0] + before[1] + 10.0 {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(after[0] + after[1] > before[0] + before[1] + 10.0, "{before:?} {after:?}");
        // Ended threads stay in the sums.
        let mut last = Vec::new();
        threads.read(&mut last);
        assert!(last[0] >= after[0]);
    }
}
