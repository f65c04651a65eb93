//! CPUs for sender and engine. On the same CPU they would compete, and the measurement would show the scheduler.

use std::path::Path;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::problem::{Outcome, Problem};

/// A set of CPU numbers; empty means any CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpus(Vec<usize>);

/// CPUs of a sender and of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) sender: Cpus,
    pub(crate) engine: Cpus,
}

impl Cpus {
    /// The CPUs that this process may use.
    pub(crate) fn usable() -> Cpus {
        let set = sched_getaffinity(None);
        Cpus(set.map_or_else(|_| Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()))
    }

    /// Parses `0,2-5`; `all` means the CPUs that this process may use.
    ///
    /// # Errors
    /// A sentence, if the list is invalid or contains a CPU that this process may not use.
    pub(crate) fn read(text: &str) -> Result<Cpus, String> {
        let usable = Cpus::usable();
        if text == "all" {
            return Ok(usable);
        }
        let all = listed(text)?;
        match all.iter().find(|cpu| !usable.0.contains(cpu)) {
            Some(cpu) => Err(format!("CPU {cpu} is not there, or this process may not use it; {usable} are")),
            None if all.is_empty() => Err(format!("'{text}' has no CPU")),
            None => Ok(Cpus(all)),
        }
    }

    /// Those of them that are on memory node `node`.
    ///
    /// # Errors
    /// A clause that says why there are none.
    pub(crate) fn of_node(&self, node: u32) -> Result<Cpus, String> {
        self.of_node_in(node, Path::new("/sys/devices/system/node"))
    }

    fn of_node_in(&self, node: u32, folder: &Path) -> Result<Cpus, String> {
        let own = |node: u32| std::fs::read_to_string(folder.join(format!("node{node}/cpulist"))).ok();
        let Some(text) = own(node) else {
            // Nodes are numbered from 0. A kernel without support for them has one.
            return match (node, (0..).take_while(|node| own(*node).is_some()).count()) {
                (0, _) => Ok(self.clone()),
                (_, 0 | 1) => Err("this machine has one memory node".to_owned()),
                (_, count) => Err(format!("this machine has {count} memory nodes")),
            };
        };
        let there = if text.trim().is_empty() { Vec::new() } else { listed(text.trim())? };
        let usable = if self.0.is_empty() { Cpus::usable() } else { self.clone() };
        match Cpus(usable.0.into_iter().filter(|cpu| there.contains(cpu)).collect()) {
            Cpus(none) if none.is_empty() => Err("the engine has no CPU there".to_owned()),
            some => Ok(some),
        }
    }

    /// The number of CPUs; all of this machine's if any will do.
    pub(crate) fn count(&self) -> usize {
        if self.0.is_empty() { std::thread::available_parallelism().map_or(1, usize::from) } else { self.0.len() }
    }

    /// Whether the set restricts anything.
    pub(crate) fn matter(&self) -> bool {
        !self.0.is_empty()
    }

    /// Starts `command` on these CPUs. Its children inherit them, unless it sets their CPUs itself.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        if self.0.is_empty() {
            return command.spawn();
        }
        let mut wanted = CpuSet::new();
        for cpu in &self.0 {
            wanted.set(*cpu);
        }
        // A child inherits the CPUs of the thread that starts it, from its first instruction on.
        let own = sched_getaffinity(None)?;
        sched_setaffinity(None, &wanted)?;
        let child = command.spawn();
        sched_setaffinity(None, &own)?;
        child
    }
}

/// The CPUs in a list such as `0,2-5`.
fn listed(text: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |word: &str| {
            let number = word.trim().parse::<usize>().ok().filter(|cpu| *cpu < CpuSet::MAX_CPU);
            number.ok_or_else(|| format!("'{text}' is not a list of CPUs, such as 0,2-5 or all"))
        };
        all.extend(number(first)?..=number(last)?);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

impl Cpus {
    /// Moves the calling thread to these CPUs, if the set restricts anything and the kernel allows it.
    pub(crate) fn take(&self) {
        if self.matter() {
            let mut wanted = CpuSet::new();
            self.0.iter().for_each(|cpu| wanted.set(*cpu));
            // If it fails, the thread stays where it is.
            let _ = sched_setaffinity(None, &wanted);
        }
    }
}

impl std::fmt::Display for Cpus {
    /// Formats the set, such as `0-2,5`.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut at = 0;
        while let Some(first) = self.0.get(at) {
            let run = self.0[at..].iter().zip(*first..).take_while(|(cpu, next)| **cpu == *next).count();
            let comma = if at > 0 { "," } else { "" };
            match run {
                1 => write!(out, "{comma}{first}")?,
                _ => write!(out, "{comma}{first}-{}", first + run - 1)?,
            }
            at += run;
        }
        Ok(())
    }
}

impl Shared {
    /// The sender on the last CPU and the engine on all others, if there are at least two; otherwise any.
    pub(crate) fn apart() -> Shared {
        Shared::of(Cpus::usable())
    }

    fn of(all: Cpus) -> Shared {
        let mut all = all.0;
        match all.pop() {
            Some(last) if !all.is_empty() => Shared { sender: Cpus(vec![last]), engine: Cpus(all) },
            _ => Shared::default(),
        }
    }

    /// The user's choice. If only one list is given, the other side gets the remaining CPUs.
    ///
    /// # Errors
    /// If a list is invalid, or no CPU remains.
    pub(crate) fn given(sender: Option<&str>, engine: Option<&str>) -> Outcome<Shared> {
        let read = |text: &str| Cpus::read(text).map_err(Problem::Usage);
        let rest =
            |taken: &Cpus| match Cpus(Cpus::usable().0.into_iter().filter(|cpu| !taken.0.contains(cpu)).collect()) {
                Cpus(left) if left.is_empty() => Err(Problem::Usage("no CPU is left for the other side".to_owned())),
                left => Ok(left),
            };
        match (sender, engine) {
            (None, None) => Ok(Shared::apart()),
            (Some(sender), Some(engine)) => Ok(Shared { sender: read(sender)?, engine: read(engine)? }),
            (Some(sender), None) => {
                let sender = read(sender)?;
                Ok(Shared { engine: rest(&sender)?, sender })
            }
            (None, Some(engine)) => {
                let engine = read(engine)?;
                Ok(Shared { sender: rest(&engine)?, engine })
            }
        }
    }

    /// The default for a machine with this many CPUs.
    #[cfg(test)]
    pub(crate) fn of_machine(cpus: usize) -> Shared {
        Shared::of(Cpus((0..cpus).collect()))
    }

    /// Describes the CPUs in a sentence.
    pub(crate) fn describe(&self) -> String {
        if self.sender.matter() && self.engine.matter() {
            format!("the engine runs on CPU {}, the sender on CPU {}", self.engine, self.sender)
        } else {
            "engine and sender run on any CPU".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_cpus_or_why_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Cpus(vec![0, 1, 2]);
        let of = |node| engine.of_node_in(node, folder.path());
        // A kernel without nodes.
        assert_eq!((of(0), of(1)), (Ok(engine.clone()), Err("this machine has one memory node".to_owned())));
        for (node, list) in [(0, "0-1,8\n"), (1, "2-3\n"), (2, "\n")] {
            std::fs::create_dir(folder.path().join(format!("node{node}"))).unwrap();
            std::fs::write(folder.path().join(format!("node{node}/cpulist")), list).unwrap();
        }
        assert_eq!((of(0), of(1)), (Ok(Cpus(vec![0, 1])), Ok(Cpus(vec![2]))));
        assert_eq!(of(2), Err("the engine has no CPU there".to_owned()));
        assert_eq!(of(3), Err("this machine has 3 memory nodes".to_owned()));
    }

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(Cpus(vec![0, 1, 2, 5, 7, 8]).to_string(), "0-2,5,7-8");
        let first = Cpus::usable().0[0];
        let text = format!("{first},{first}-{first}");
        assert_eq!(Cpus::read(&text).unwrap(), Cpus(vec![first]));
        assert_eq!(Cpus::read("all").unwrap(), Cpus::usable());
        assert!(Cpus::read("first").unwrap_err().contains("not a list of CPUs"));
        assert!(Cpus::read("1000").unwrap_err().contains("CPU 1000 is not there"));
        assert!(Cpus::read("2-1").unwrap_err().contains("has no CPU"));
    }

    #[test]
    fn a_child_is_where_it_was_put_and_this_thread_where_it_was() {
        let before = Cpus::usable();
        let last = Cpus(vec![*before.0.last().unwrap()]);
        let mut command = Command::new("sh");
        command.args(["-c", "exec grep Cpus_allowed_list /proc/self/status"]).stdout(std::process::Stdio::piped());
        let said = last.spawn(&mut command).unwrap().wait_with_output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert_eq!(said.split_whitespace().last(), Some(last.to_string().as_str()));
        assert_eq!(Cpus::usable(), before);
    }

    #[test]
    fn who_is_not_named_has_the_rest() {
        let all = Cpus::usable();
        if all.count() < 2 {
            return margay_testing::unavailable("there is one CPU");
        }
        let last = all.0[all.count() - 1].to_string();
        let shared = Shared::given(Some(&last), None).unwrap();
        assert_eq!(shared, Shared::apart());
        assert_eq!(shared.engine.count(), all.count() - 1);
        assert_eq!(shared.describe(), format!("the engine runs on CPU {}, the sender on CPU {last}", shared.engine));
        assert!(Shared::given(None, Some("all")).is_err());
    }
}
