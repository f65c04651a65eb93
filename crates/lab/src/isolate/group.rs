//! A control group with a memory limit, with version 1 or 2 of the interface.

use std::path::{Path, PathBuf};

use crate::made::{Session, Thing};
use crate::problem::{Outcome, Problem};

/// Where memory control groups are created, and the file with their limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The folder that groups are created in.
    folder: PathBuf,
    /// The file in a group that holds its limit.
    limit: &'static str,
}

impl Place {
    /// The place on this machine.
    ///
    /// # Errors
    /// A clause that gives the reason if there is none.
    pub(super) fn find() -> Result<Place, String> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let has = |path: &Path| path.is_dir();
        let delegates = |folder: &Path| {
            let on = std::fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            on.split_whitespace().any(|name| name == "memory")
        };
        Place::of(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"), &has, &delegates)
    }

    /// Finds the place from the mounts and a process's groups. With version 1, a group is created below the process's
    /// own. With version 2 it is created beside it, because a group with processes cannot delegate.
    fn of(
        mounts: &str,
        groups: &str,
        has: &dyn Fn(&Path) -> bool,
        delegates: &dyn Fn(&Path) -> bool,
    ) -> Result<Place, String> {
        let mounted = |kind: &str, option: &str| {
            mounts.lines().find_map(|line| {
                let (before, after) = line.split_once(" - ")?;
                let mut after = after.split(' ');
                let (found, options) = (after.next()?, after.nth(1)?);
                let fits = found == kind && (option.is_empty() || options.split(',').any(|one| one == option));
                fits.then(|| PathBuf::from(before.split(' ').nth(4).unwrap_or_default()))
            })
        };
        let own = |controller: &str| {
            groups.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let (controllers, path) = (parts.next()?, parts.next()?);
                controllers.split(',').any(|one| one == controller).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        if let (Some(mount), Some(own)) = (mounted("cgroup", "memory"), own("memory")) {
            let folder = mount.join(own);
            return match has(&folder) {
                true => Ok(Place { folder, limit: "memory.limit_in_bytes" }),
                false => Err(format!("this process's control group {} is not to be seen", folder.display())),
            };
        }
        let Some(mount) = mounted("cgroup2", "") else { return Err("there are no control groups".to_owned()) };
        let own = mount.join(own("").unwrap_or_default());
        let beside = own.ancestors().skip(1).find(|folder| folder.starts_with(&mount) && delegates(folder));
        match beside {
            Some(folder) => Ok(Place { folder: folder.to_owned(), limit: "memory.max" }),
            None if delegates(&mount) => Ok(Place { folder: mount, limit: "memory.max" }),
            None => Err("no control group passes the memory controller on to groups below it".to_owned()),
        }
    }

    /// Creates a group of `session` with at most `memory` bytes. Returns its folder.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn make(&self, memory: u64, session: &mut Session) -> Outcome<PathBuf> {
        let path = self.folder.join(&session.id);
        session.will_make(Thing::Group(path.clone()))?;
        if !path.exists() {
            std::fs::create_dir(&path).map_err(|error| Problem::file("make the control group", &path, error))?;
        }
        let limit = path.join(self.limit);
        std::fs::write(&limit, memory.to_string()).map_err(|error| Problem::file("write", &limit, error))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 1 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &str = "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn groups_are_made_where_they_may_be() {
        let place = |mounts: &str, groups: &str, delegating: &[&str]| {
            Place::of(mounts, groups, &|_| true, &|folder| delegating.iter().any(|known| Path::new(known) == folder))
        };
        let v1 = place(V1, "4:memory:/a/b\n0::/\n", &[]).unwrap();
        assert_eq!(v1, Place { folder: "/sys/fs/cgroup/memory/a/b".into(), limit: "memory.limit_in_bytes" });
        let v2 = place(V2, "0::/user.slice/session.scope\n", &["/sys/fs/cgroup", "/sys/fs/cgroup/user.slice"]).unwrap();
        assert_eq!(v2, Place { folder: "/sys/fs/cgroup/user.slice".into(), limit: "memory.max" });
        // The root group may have processes.
        assert_eq!(place(V2, "0::/\n", &["/sys/fs/cgroup"]).unwrap().folder, Path::new("/sys/fs/cgroup"));
        assert!(place(V2, "0::/a\n", &[]).unwrap_err().contains("no control group passes"));
        assert!(place("", "", &[]).unwrap_err().contains("no control groups"));
    }
}
