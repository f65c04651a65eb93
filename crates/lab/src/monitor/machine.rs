//! The machine as a whole: processors, memory, disks, interrupts, memory nodes, pressure.

use super::column::{Column, Source};
use super::sampled_file::{SampledFile, named, once};

const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// `/proc/stat`: CPU time by core and mode, context switches, interrupts, forks, the run queue.
pub(super) struct Processors {
    stat: SampledFile,
    cores: Vec<String>,
    tick: f64,
}

impl Processors {
    pub(super) fn open() -> std::io::Result<Processors> {
        let mut stat = SampledFile::open("/proc/stat")?;
        let words = stat.read().lines().filter_map(|line| line.split(' ').next());
        let cores = words.filter(|word| word.len() > 3 && word.starts_with("cpu")).map(str::to_owned).collect();
        Ok(Processors { stat, cores, tick: rustix::param::clock_ticks_per_second() as f64 })
    }
}

const SOFTIRQS: [&str; 10] =
    ["hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu"];

impl Source for Processors {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        // The machine's line is the sum of its cores. Multiplying the ticks by the number of cores gives the mean.
        let whole = self.tick * self.cores.len().max(1) as f64;
        columns.extend(MODES.iter().map(|mode| Column::share(format!("cpu.{mode}"), whole)));
        columns.push(Column::share("cpu.busy", whole));
        for core in &self.cores {
            columns.extend(MODES.iter().map(|mode| Column::share(format!("{core}.{mode}"), self.tick)));
            columns.push(Column::share(format!("{core}.busy"), self.tick));
        }
        for (name, unit) in [("switches.context", "switches"), ("irq.all", "interrupts"), ("forks", "processes")] {
            columns.push(Column::count(name, unit));
        }
        columns.push(Column::gauge("run.ready", "tasks"));
        columns.push(Column::gauge("run.blocked", "tasks"));
        columns.extend(SOFTIRQS.iter().map(|kind| Column::count(format!("softirq.{kind}"), "interrupts")));
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let text = self.stat.read();
        let width = MODES.len() + 1;
        let first = row.len();
        row.resize(first + (self.cores.len() + 1) * width + 5 + SOFTIRQS.len(), f64::NAN);
        let out = &mut row[first..];
        let (processors, rest) = out.split_at_mut((self.cores.len() + 1) * width);
        let mut expected = 0;
        for line in text.lines() {
            let mut words = line.split(' ').filter(|word| !word.is_empty());
            let Some(name) = words.next() else { continue };
            let mut next = || words.next().and_then(|word| word.parse::<f64>().ok()).unwrap_or(f64::NAN);
            if name.starts_with("cpu") {
                let at = if name == "cpu" {
                    0
                } else {
                    // Cores are in order; an offline core has no line.
                    match self.cores[expected..].iter().position(|core| core == name) {
                        Some(on) => {
                            expected += on + 1;
                            expected
                        }
                        None => continue,
                    }
                };
                let out = &mut processors[at * width..(at + 1) * width];
                let mut busy = 0.0;
                for (mode, value) in out[..MODES.len()].iter_mut().enumerate() {
                    *value = next();
                    if MODES[mode] != "idle" && MODES[mode] != "iowait" {
                        busy += *value;
                    }
                }
                out[MODES.len()] = busy;
                continue;
            }
            match name {
                "ctxt" => rest[0] = next(),
                "intr" => rest[1] = next(),
                "processes" => rest[2] = next(),
                "procs_running" => rest[3] = next(),
                "procs_blocked" => rest[4] = next(),
                "softirq" => {
                    next();
                    rest[5..].fill_with(next);
                }
                _ => {}
            }
        }
    }
}

/// `/proc/interrupts`: the sum by core.
pub(super) struct Interrupts {
    file: SampledFile,
    cores: Vec<String>,
}

impl Interrupts {
    pub(super) fn open() -> std::io::Result<Interrupts> {
        let mut file = SampledFile::open("/proc/interrupts")?;
        let head = file.read().lines().next().unwrap_or("");
        let cores = head.split_whitespace().map(str::to_lowercase).collect();
        Ok(Interrupts { file, cores })
    }
}

impl Source for Interrupts {
    fn columns(&self) -> Vec<Column> {
        self.cores.iter().map(|core| Column::count(format!("irq.{core}"), "interrupts")).collect()
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let first = row.len();
        row.resize(first + self.cores.len(), 0.0);
        let text = self.file.read();
        for line in text.lines().skip(1) {
            let words = line.split_ascii_whitespace().skip(1);
            for (value, word) in row[first..].iter_mut().zip(words) {
                let Ok(count) = word.parse::<u64>() else { break };
                *value += count as f64;
            }
        }
        if text.is_empty() {
            row[first..].fill(f64::NAN);
        }
    }
}

/// `/proc/meminfo` and `/proc/vmstat`.
pub(super) struct Memory {
    info: SampledFile,
    vm: SampledFile,
}

const MEMORY: [(&str, &str); 9] = [
    ("MemTotal", "total"),
    ("MemFree", "free"),
    ("MemAvailable", "available"),
    ("Buffers", "buffers"),
    ("Cached", "cached"),
    ("Dirty", "dirty"),
    ("Slab", "slab"),
    ("SwapTotal", "swap_total"),
    ("SwapFree", "swap_free"),
];
const FAULTS: [&str; 5] = ["pgfault", "pgmajfault", "pswpin", "pswpout", "oom_kill"];

impl Memory {
    pub(super) fn open() -> std::io::Result<Memory> {
        Ok(Memory { info: SampledFile::open("/proc/meminfo")?, vm: SampledFile::open("/proc/vmstat")? })
    }
}

impl Source for Memory {
    fn columns(&self) -> Vec<Column> {
        let mut columns: Vec<Column> =
            MEMORY.iter().map(|(_, name)| Column::gauge(format!("mem.{name}"), "bytes")).collect();
        columns.push(Column::gauge("mem.used", "bytes"));
        columns.extend(FAULTS.iter().map(|name| Column::count(format!("vm.{name}"), "events")));
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let first = row.len();
        named(self.info.read(), &MEMORY.map(|(name, _)| name), 1024.0, row);
        let used = row[first] - row[first + 2];
        row.push(used);
        named(self.vm.read(), &FAULTS, 1.0, row);
    }
}

/// `/proc/diskstats`: whole disks that were ever read or written.
pub(super) struct Disks {
    file: SampledFile,
    names: Vec<String>,
}

impl Disks {
    pub(super) fn open() -> std::io::Result<Disks> {
        let mut file = SampledFile::open("/proc/diskstats")?;
        let mut names = Vec::new();
        for line in file.read().lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let used = |at: usize| words.get(at).is_some_and(|word| *word != "0");
            // Only whole disks have a folder in /sys/block.
            if let Some(name) = words.get(2).filter(|_| used(3) || used(7))
                && std::path::Path::new("/sys/block").join(name).exists()
            {
                names.push((*name).to_owned());
            }
        }
        Ok(Disks { file, names })
    }
}

impl Source for Disks {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for name in &self.names {
            columns.push(Column::count(format!("disk.{name}.reads"), "requests"));
            columns.push(Column::count(format!("disk.{name}.read_bytes"), "bytes"));
            columns.push(Column::count(format!("disk.{name}.writes"), "requests"));
            columns.push(Column::count(format!("disk.{name}.write_bytes"), "bytes"));
            columns.push(Column::share(format!("disk.{name}.busy"), 1000.0));
        }
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        let first = row.len();
        row.resize(first + self.names.len() * 5, f64::NAN);
        for line in self.file.read().lines() {
            let mut words = line.split_ascii_whitespace().skip(2);
            let Some(at) = words.next().and_then(|name| self.names.iter().position(|known| known == name)) else {
                continue;
            };
            let values: Vec<f64> = words.take(10).map(|word| word.parse().unwrap_or(f64::NAN)).collect();
            let get = |at: usize| values.get(at).copied().unwrap_or(f64::NAN);
            let out = &mut row[first + at * 5..first + at * 5 + 5];
            out.copy_from_slice(&[get(0), get(2) * 512.0, get(4), get(6) * 512.0, get(9)]);
        }
    }
}

/// `/sys/devices/system/node`: where memory was allocated, by node.
pub(super) struct Nodes {
    nodes: Vec<(String, SampledFile, SampledFile)>,
}

const NUMA: [&str; 5] = ["numa_hit", "numa_miss", "numa_foreign", "local_node", "other_node"];

impl Nodes {
    pub(super) fn open() -> Nodes {
        let mut nodes = Vec::new();
        for entry in std::fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            if name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
                && let (Ok(stat), Ok(info)) =
                    (SampledFile::open(path.join("numastat")), SampledFile::open(path.join("meminfo")))
            {
                nodes.push((name, stat, info));
            }
        }
        nodes.sort_by_key(|(name, _, _)| name[4..].parse::<u32>().unwrap_or(0));
        Nodes { nodes }
    }
}

impl Source for Nodes {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (name, _, _) in &self.nodes {
            for what in ["hit", "miss", "foreign", "local", "other"] {
                columns.push(Column::count(format!("numa.{name}.{what}"), "pages"));
            }
            columns.push(Column::gauge(format!("numa.{name}.free"), "bytes"));
        }
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        for (_, stat, info) in &mut self.nodes {
            named(stat.read(), &NUMA, 1.0, row);
            let free = info.read().lines().find_map(|line| line.split_once("MemFree:"));
            let free = free.and_then(|(_, value)| value.split_ascii_whitespace().next()?.parse::<f64>().ok());
            row.push(free.map_or(f64::NAN, |kilobytes| kilobytes * 1024.0));
        }
    }
}

/// `/proc/pressure`: the share of the period in which tasks waited.
pub(super) struct Pressure {
    files: Vec<(&'static str, SampledFile)>,
}

impl Pressure {
    pub(super) fn open() -> Pressure {
        let open = |name: &'static str| Some((name, SampledFile::open(format!("/proc/pressure/{name}")).ok()?));
        let mut files: Vec<_> = ["cpu", "memory", "io"].into_iter().filter_map(open).collect();
        // If pressure tracking is off, the files exist but cannot be read.
        files.retain_mut(|(_, file)| !file.read().is_empty());
        Pressure { files }
    }
}

impl Source for Pressure {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (name, _) in &self.files {
            columns.push(Column::share(format!("pressure.{name}.some"), 1e6));
            columns.push(Column::share(format!("pressure.{name}.full"), 1e6));
        }
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        for (_, file) in &mut self.files {
            stalls(file.read(), row);
        }
    }
}

/// The `total=` values of the lines `some` and `full` in a pressure file, in microseconds.
pub(super) fn stalls(text: &str, row: &mut Vec<f64>) {
    for wanted in ["some ", "full "] {
        let line = text.lines().find(|line| line.starts_with(wanted));
        let total = line.and_then(|line| line.rsplit_once("total=")).and_then(|(_, total)| total.trim().parse().ok());
        row.push(total.unwrap_or(f64::NAN));
    }
}

/// Describes the machine for reports: processor model and count, memory, nodes, kernel, hypervisor.
pub(crate) fn describe() -> Vec<(&'static str, String)> {
    let cpu = once("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let mut memory = Vec::new();
    named(&once("/proc/meminfo"), &["MemTotal"], 1.0 / 1_048_576.0, &mut memory);
    let nodes = Nodes::open().nodes.len().max(1);
    let system = once("/etc/os-release");
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    vec![
        ("processor", field("model name").unwrap_or_else(|| "unknown".to_owned())),
        ("logical cores", cores.to_string()),
        ("memory nodes", nodes.to_string()),
        ("memory", format!("{:.1} GiB", memory[0])),
        ("kernel", format!("{} {}", once("/proc/sys/kernel/ostype").trim(), once("/proc/sys/kernel/osrelease").trim())),
        ("system", system.trim_matches('"').to_owned()),
        ("virtual", if cpu.contains(" hypervisor") { "yes".to_owned() } else { "not seen".to_owned() }),
    ]
}
