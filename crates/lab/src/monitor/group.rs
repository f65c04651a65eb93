//! The control group of a process: limits, throttling, and pressure.

use std::path::{Path, PathBuf};

use super::column::{Column, Source};
use super::machine::stalls;
use super::sampled_file::{SampledFile, named, number, once};

/// The group of a process, by version 2 of the interface, and by version 1 for controllers that exist there.
pub(super) struct Group {
    files: Vec<(What, SampledFile)>,
}

/// The contents of a file.
#[derive(Clone, Copy)]
enum What {
    /// `cpu.stat` of version 2.
    Time,
    /// `cpu.max`: quota and period, as cores.
    Quota,
    Resident,
    MemoryLimit,
    /// `memory.events`.
    Events,
    Pressure(&'static str),
    /// `cpuset.cpus.effective`, as a number of cores.
    Cores,
    /// `cpu.stat` of version 1, times in nanoseconds.
    OldThrottle,
    /// `cpu.cfs_quota_us`, in a folder with `cpu.cfs_period_us`.
    OldQuota {
        period: f64,
    },
    /// `cpuacct.usage`, in nanoseconds.
    OldTime,
    /// `memory.failcnt`.
    OldFailures,
}

const TIME: [&str; 5] = ["usage_usec", "user_usec", "system_usec", "throttled_usec", "nr_throttled"];
const EVENTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

impl Group {
    /// Opens the group of process `pid`, or our own.
    pub(super) fn open(pid: Option<u32>) -> Group {
        let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let membership = once(format!("/proc/{process}/cgroup"));
        let mounts = once("/proc/self/mountinfo");
        let mut group = Group { files: Vec::new() };
        if let Some(folder) = folder(&mounts, &membership, "") {
            group.add(&folder, "cpu.stat", What::Time);
            group.add(&folder, "cpu.max", What::Quota);
            group.add(&folder, "memory.current", What::Resident);
            group.add(&folder, "memory.max", What::MemoryLimit);
            group.add(&folder, "memory.events", What::Events);
            for (file, name) in [("cpu.pressure", "cpu"), ("memory.pressure", "memory"), ("io.pressure", "io")] {
                group.add(&folder, file, What::Pressure(name));
            }
            group.add(&folder, "cpuset.cpus.effective", What::Cores);
        }
        if let Some(folder) = folder(&mounts, &membership, "cpu") {
            group.add(&folder, "cpu.stat", What::OldThrottle);
            let period = number(&once(folder.join("cpu.cfs_period_us")));
            group.add(&folder, "cpu.cfs_quota_us", What::OldQuota { period });
        }
        if let Some(folder) = folder(&mounts, &membership, "cpuacct") {
            group.add(&folder, "cpuacct.usage", What::OldTime);
        }
        if let Some(folder) = folder(&mounts, &membership, "memory") {
            group.add(&folder, "memory.usage_in_bytes", What::Resident);
            group.add(&folder, "memory.limit_in_bytes", What::MemoryLimit);
            group.add(&folder, "memory.failcnt", What::OldFailures);
        }
        if let Some(folder) = folder(&mounts, &membership, "cpuset") {
            group.add(&folder, "cpuset.effective_cpus", What::Cores);
        }
        group
    }

    fn add(&mut self, folder: &Path, name: &str, what: What) {
        if let Ok(mut file) = SampledFile::open(folder.join(name))
            && !file.read().is_empty()
        {
            self.files.push((what, file));
        }
    }
}

/// The group's folder in the hierarchy of `controller` (version 1), or in version 2 if `controller` is empty. `mounts`
/// is `/proc/self/mountinfo`, `membership` is `/proc/PID/cgroup`.
fn folder(mounts: &str, membership: &str, controller: &str) -> Option<PathBuf> {
    let path = membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let found = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|c| c == controller)
        };
        found.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1)?);
        let fits = if controller.is_empty() {
            name == "cgroup2"
        } else {
            name == "cgroup" && options.split(',').any(|option| option == controller)
        };
        let mut words = place.split(' ').skip(3);
        let (root, mount) = (words.next()?, words.next()?);
        // Inside a container the mount's root is the group itself, or the path is relative to it.
        let below = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
        fits.then(|| Path::new(mount).join(below))
    })
}

impl Source for Group {
    fn columns(&self) -> Vec<Column> {
        let mut columns = Vec::new();
        for (what, _) in &self.files {
            match what {
                What::Time => {
                    for name in ["usage", "user", "system", "throttled"] {
                        columns.push(Column::share(format!("cgroup.cpu.{name}"), 1e6));
                    }
                    columns.push(Column::count("cgroup.cpu.throttles", "times"));
                }
                What::Quota | What::OldQuota { .. } => columns.push(Column::gauge("cgroup.cpu.quota", "cores")),
                What::Resident => columns.push(Column::gauge("cgroup.memory.used", "bytes")),
                What::MemoryLimit => columns.push(Column::gauge("cgroup.memory.limit", "bytes")),
                What::Events => {
                    columns.extend(EVENTS.iter().map(|name| Column::count(format!("cgroup.memory.{name}"), "events")));
                }
                What::Pressure(name) => {
                    columns.push(Column::share(format!("cgroup.pressure.{name}.some"), 1e6));
                    columns.push(Column::share(format!("cgroup.pressure.{name}.full"), 1e6));
                }
                What::Cores => columns.push(Column::gauge("cgroup.cores", "cores")),
                What::OldThrottle => {
                    columns.push(Column::share("cgroup.v1.cpu.throttled", 1e9));
                    columns.push(Column::count("cgroup.v1.cpu.throttles", "times"));
                }
                What::OldTime => columns.push(Column::share("cgroup.v1.cpu.usage", 1e9)),
                What::OldFailures => columns.push(Column::count("cgroup.v1.memory.failures", "events")),
            }
        }
        columns
    }

    fn read(&mut self, row: &mut Vec<f64>) {
        for (what, file) in &mut self.files {
            let text = file.read();
            match what {
                What::Time => named(text, &TIME, 1.0, row),
                What::Quota => {
                    let mut words = text.split_ascii_whitespace().map(number);
                    row.push(words.next().unwrap_or(f64::NAN) / words.next().unwrap_or(f64::NAN));
                }
                // -1 means no quota.
                What::OldQuota { period } => {
                    row.push(Some(number(text)).filter(|q| *q > 0.0).unwrap_or(f64::NAN) / *period)
                }
                What::Resident | What::OldTime | What::OldFailures => row.push(number(text)),
                // `max` means no limit, and with version 1 a number near the largest address.
                What::MemoryLimit => row.push(Some(number(text)).filter(|limit| *limit < 9e18).unwrap_or(f64::NAN)),
                What::Events => named(text, &EVENTS, 1.0, row),
                What::Pressure(_) => stalls(text, row),
                What::Cores => row.push(cores(text.trim())),
                What::OldThrottle => named(text, &["throttled_time", "nr_throttled"], 1.0, row),
            }
        }
    }
}

/// The number of cores in a list like `0-3,8`.
fn cores(list: &str) -> f64 {
    let of = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        (last.parse::<f64>().unwrap_or(f64::NAN) - first.parse::<f64>().unwrap_or(f64::NAN)) + 1.0
    };
    list.split(',').filter(|range| !range.is_empty()).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn finds_the_folder_in_both_hierarchies() {
        let membership = "4:memory:/m\n1:cpu,cpuacct:/a/b\n0::/user.slice\n";
        assert_eq!(folder(MOUNTS, membership, ""), Some("/sys/fs/cgroup/unified/user.slice".into()));
        assert_eq!(folder(MOUNTS, membership, "cpu"), Some("/sys/fs/cgroup/cpu/a/b".into()));
        assert_eq!(folder(MOUNTS, membership, "memory"), None);
    }

    #[test]
    fn counts_cores() {
        assert_eq!(cores("0-3,8"), 5.0);
        assert_eq!(cores("2"), 1.0);
        assert_eq!(cores(""), 0.0);
    }
}
