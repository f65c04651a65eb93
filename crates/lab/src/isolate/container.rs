//! A container built by this program: `unshare` creates its namespaces. [`run`] then sets up the root, the control
//! group, and the capabilities and system calls that a container runtime allows, and executes the command.

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive};
use rustix::mount::{mount_change, mount_remount, unmount};
use rustix::process::pivot_root;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::{Isolation, Job, filter, group, named_files, program};
use crate::made::Session;
use crate::problem::{Outcome, Problem};

/// See [`super::Kind`].
pub(super) struct Container {
    pub(super) macvtap: bool,
}

/// Default capabilities of a container runtime, and those that packet capture needs.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::AUDIT_WRITE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::IPC_LOCK);

/// Folders of this machine in a container's root, if they exist.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/sys"];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

impl Isolation for Container {
    fn wrap(&self, job: &Job<'_>) -> Outcome<Vec<String>> {
        let mut words: Vec<String> =
            ["unshare", "--mount", "--ipc", "--uts", "--pid", "--fork", "--kill-child"].map(str::to_owned).to_vec();
        words.extend(crate::command::own_command()?);
        words.push("inside".to_owned());
        let mut add =
            |option: &str, path: &Path| words.extend([option.to_owned(), path.to_string_lossy().into_owned()]);
        add("--root", &job.short.join("root"));
        add("--writable", job.dir);
        add("--writable", job.short);
        let program = job.words.first().and_then(|word| program(word));
        for path in named_files(job.words).into_iter().chain(program).chain(job.capture.map(Path::to_owned)) {
            if !SYSTEM.iter().any(|folder| path.starts_with(folder)) {
                add("--readable", &path);
            }
        }
        words.push("--".to_owned());
        words.extend(job.words.iter().cloned());
        Ok(words)
    }

    fn group(&self, memory: Option<u64>, session: &mut Session) -> Outcome<Option<PathBuf>> {
        let Some(memory) = memory else { return Ok(None) };
        let place = group::Place::find().map_err(|why| Problem::Failed(format!("a limit of memory: {why}")))?;
        place.make(memory, session).map(Some)
    }

    fn missing(&self, memory: Option<u64>) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("it needs root".to_owned());
        }
        if program("unshare").is_none() {
            return Some("there is no `unshare` (util-linux)".to_owned());
        }
        if !filter::AVAILABLE {
            return Some("its filter of system calls is for x86-64 and ARM64".to_owned());
        }
        if memory.is_some()
            && let Err(why) = group::Place::find()
        {
            return Some(why);
        }
        if self.macvtap && !has_macvtap() {
            return Some("the kernel has no macvtap interfaces".to_owned());
        }
        None
    }

    fn has_launcher(&self) -> bool {
        true
    }
}

/// Whether a macvtap interface can be created, tested in a separate namespace.
fn has_macvtap() -> bool {
    let script =
        "ip link add try0 type veth peer name try1 && ip link add link try0 name try2 type macvtap mode passthru";
    let tried = Command::new("unshare").args(["--net", "sh", "-c", script]).output();
    tried.is_ok_and(|output| output.status.success())
}

/// Execute a command in a container; a part of the laboratory's own launcher
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A folder for the root
    #[arg(long)]
    root: PathBuf,
    #[arg(long)]
    readable: Vec<PathBuf>,
    #[arg(long)]
    writable: Vec<PathBuf>,
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Executes the command. It is the first process of a PID namespace, with mounts of its own.
///
/// # Errors
/// If a part of the container cannot be created.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if std::process::id() != 1 {
        return Err(Problem::Usage("`inside` is started by the laboratory, in namespaces of its own".to_owned()));
    }
    enter(args).map_err(|(what, error)| Problem::Failed(format!("container: cannot {what}: {error}")))?;
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // A kernel may not know all of them.
        let _ = remove_capability_from_bounding_set(capability);
    }
    filter::install().map_err(|error| Problem::Failed(format!("container: cannot filter system calls: {error}")))?;
    let Some((program, words)) = args.command.split_first() else {
        return Err(Problem::Usage("a command is missing".to_owned()));
    };
    let error = Command::new(program).args(words).exec();
    Err(Problem::Failed(format!("container: cannot start {program}: {error}")))
}

/// Creates the root and changes to it.
fn enter(args: &Args) -> Result<(), (String, std::io::Error)> {
    fn doing<T, E: Into<std::io::Error>>(
        what: impl FnOnce() -> String,
        result: Result<T, E>,
    ) -> Result<T, (String, std::io::Error)> {
        result.map_err(|error| (what(), error.into()))
    }
    let root = &args.root;
    let make = |path: &Path| doing(|| format!("make {}", path.display()), std::fs::create_dir_all(path));
    doing(
        || "make mounts private".to_owned(),
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC),
    )?;
    make(root)?;
    // Writes must not show in the root itself, because the folder bound into it contains it.
    let mode = CString::new("mode=755").unwrap_or_default();
    doing(|| "mount the root".to_owned(), mount("margay", root, "tmpfs", MountFlags::NOSUID, mode.as_c_str()))?;
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let bind = |path: &Path, writable: bool, deep: bool| -> Result<(), (String, std::io::Error)> {
        let target = inside(path);
        if path.is_dir() {
            make(&target)?;
        } else {
            make(target.parent().unwrap_or(root))?;
            if !target.exists() {
                doing(|| format!("make {}", target.display()), std::fs::File::create(&target))?;
            }
        }
        let bound = if deep { mount_bind_recursive(path, &target) } else { mount_bind(path, &target) };
        doing(|| format!("bind {}", path.display()), bound)?;
        if !writable {
            let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
            doing(|| format!("protect {}", path.display()), mount_remount(&target, flags, c""))?;
        }
        Ok(())
    };
    for path in SYSTEM.map(Path::new) {
        if let Ok(link) = std::fs::read_link(path) {
            doing(|| format!("link {}", path.display()), std::os::unix::fs::symlink(link, inside(path)))?;
        } else if path.is_dir() {
            bind(path, false, true)?;
        }
    }
    for folder in ["dev", "proc", "tmp", "run", "var/lib", "var/log", "root"] {
        make(&root.join(folder))?;
    }
    for name in DEVICES {
        bind(&Path::new("/dev").join(name), true, false)?;
    }
    let rules = Path::new("/var/lib/suricata");
    if rules.is_dir() {
        bind(rules, false, false)?;
    }
    for path in &args.readable {
        bind(path, false, false)?;
    }
    for path in &args.writable {
        bind(path, true, false)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    doing(|| "mount /proc".to_owned(), mount("proc", root.join("proc"), "proc", flags, None))?;
    doing(|| "enter the root".to_owned(), std::env::set_current_dir(root))?;
    doing(|| "change the root".to_owned(), pivot_root(".", "."))?;
    doing(|| "leave the old root".to_owned(), unmount(".", UnmountFlags::DETACH))?;
    doing(|| "enter the new root".to_owned(), std::env::set_current_dir("/"))
}
