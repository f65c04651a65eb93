//! Isolation of an engine under test: none, a container, a container on its own macvtap interface, a virtual machine. An
//! isolation wraps the engine's command ([`Isolation::wrap`]) and may add an interface between the wire and the engine
//! ([`Kind::connect`]).

mod clock;
mod container;
mod filter;
mod group;
mod guest;
mod machine;

use std::path::{Path, PathBuf};

pub(crate) use clock::{Args as ClockArgs, LoopArgs, run as run_clock, run_loop};
pub(crate) use container::{Args as InsideArgs, run as run_inside};

use crate::load::{Wire, numbered};
use crate::made::{Session, Thing, ip};
use crate::problem::{Outcome, Problem};

/// Memory of a virtual machine without a limit, in bytes. Study 3 used this much.
pub(crate) const MACHINE_MEMORY: u64 = 2 << 30;

/// The kinds of isolation, in the order of the published comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The engine is a process of this machine.
    #[default]
    Bare,
    /// Namespaces, a separate root, a limited set of capabilities and system calls, a control group.
    Container,
    /// The same, with a macvtap interface between the wire and the engine.
    Macvtap,
    /// A virtual machine (QEMU).
    Machine,
}

/// The isolation of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Apart {
    pub(crate) kind: Kind,
    /// Memory limit in bytes; for a virtual machine, its size.
    pub(crate) memory: Option<u64>,
}

/// A command to run isolated, with what it needs from this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) words: &'a [String],
    pub(crate) environment: &'a [(String, String)],
    /// Its output folder.
    pub(crate) dir: &'a Path,
    /// A folder with a short name that is removed with the session.
    pub(crate) short: &'a Path,
    /// The capture that it reads.
    pub(crate) capture: Option<&'a Path>,
    /// The interface that it reads from, and the TAP device that leads to a virtual machine.
    pub(crate) interface: Option<(&'a str, Option<&'a str>)>,
    /// Its counter file, which has the same path outside.
    pub(crate) counters: Option<&'a Path>,
    /// Its number of CPUs.
    pub(crate) cpus: usize,
    pub(crate) memory: Option<u64>,
}

/// A way to isolate a command.
pub(crate) trait Isolation {
    /// The command that runs `job` isolated.
    ///
    /// # Errors
    /// If it cannot be prepared.
    fn wrap(&self, job: &Job<'_>) -> Outcome<Vec<String>>;

    /// Creates the control group for the command, with at most `memory` bytes. `session` removes it. `None` if there is
    /// no limit, or if it is enforced differently.
    ///
    /// # Errors
    /// If it cannot be created.
    fn group(&self, _memory: Option<u64>, _session: &mut Session) -> Outcome<Option<PathBuf>> {
        Ok(None)
    }

    /// The reason that this machine cannot provide it; `None` if it can.
    fn missing(&self, memory: Option<u64>) -> Option<String>;

    /// Whether the engine is a child of the started process, rather than that process.
    fn has_launcher(&self) -> bool {
        false
    }
}

/// No isolation.
struct Bare;

impl Isolation for Bare {
    fn wrap(&self, job: &Job<'_>) -> Outcome<Vec<String>> {
        Ok(job.words.to_vec())
    }

    fn missing(&self, _: Option<u64>) -> Option<String> {
        None
    }
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Bare, Kind::Container, Kind::Macvtap, Kind::Machine];

    /// The name in an experiment file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Bare => "none",
            Kind::Container => "container",
            Kind::Macvtap => "container-macvtap",
            Kind::Machine => "machine",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its implementation.
    pub(crate) fn how(self) -> &'static dyn Isolation {
        match self {
            Kind::Bare => &Bare,
            Kind::Container => &container::Container { macvtap: false },
            Kind::Macvtap => &container::Container { macvtap: true },
            Kind::Machine => &machine::Machine,
        }
    }

    /// Adds the isolation's interface between the wire and the engine: a macvtap interface on the engine's end, or a
    /// bridge to the TAP device of a virtual machine.
    ///
    /// # Errors
    /// If it cannot be created, or the engine is inline.
    pub(crate) fn connect(self, wire: &mut Wire, session: &mut Session) -> Outcome<()> {
        if matches!(self, Kind::Bare | Kind::Container) {
            return Ok(());
        }
        let (Some(space), None) = (wire.namespace.clone(), &wire.far) else {
            return Err(Problem::Usage(format!(
                "isolation {}: needs interfaces that the laboratory makes; leave out `wire` and `inline`",
                self.name()
            )));
        };
        let machine = self == Kind::Machine;
        if machine && wire.pairs.len() > 1 {
            return Err(Problem::Usage(
                "isolation machine: a guest has one interface; leave out `interfaces`".to_owned(),
            ));
        }
        let failed = |why: String| Problem::Failed(format!("isolation {}: {why}", self.name()));
        let at = |words: &[&str]| ip(&[&["-n", &space], words].concat()).map_err(failed);
        // Everything is in the namespace and is removed with it.
        session.will_make(Thing::Namespace(space.clone()))?;
        if !machine {
            for (number, pair) in (1..).zip(&mut wire.pairs) {
                let own = numbered(&session.id, 'm', number);
                at(&["link", "add", "link", &pair.engine, "name", &own, "type", "macvtap", "mode", "passthru"])?;
                at(&["link", "set", &own, "addrgenmode", "none", "up"])?;
                pair.engine = own;
            }
            return Ok(());
        }
        let (tap, bridge) = (format!("{}g", session.id), format!("{}b", session.id));
        at(&["tuntap", "add", &tap, "mode", "tap"])?;
        // A bridge that learns no addresses forwards every frame.
        let mut words = vec!["link", "add", bridge.as_str(), "type", "bridge"];
        words.extend(["ageing_time", "0", "mcast_snooping", "0"]);
        at(&words)?;
        for name in wire.pairs.iter().map(|pair| &pair.engine).chain([&tap]) {
            at(&["link", "set", name, "addrgenmode", "none", "master", &bridge, "up"])?;
        }
        at(&["link", "set", &bridge, "addrgenmode", "none", "up"])?;
        wire.tap = Some(tap);
        Ok(())
    }
}

impl Apart {
    /// The suffix for an engine's name.
    pub(crate) fn describe(self) -> String {
        let kind = match self.kind {
            Kind::Bare => "bare",
            Kind::Container => "container",
            Kind::Macvtap => "container on macvtap",
            Kind::Machine => machine::accelerator().called(),
        };
        match self.memory {
            None => kind.to_owned(),
            Some(bytes) => format!("{kind} with {} MiB", bytes >> 20),
        }
    }
}

/// Whether virtual machines are emulated here.
pub(crate) fn emulated() -> bool {
    machine::accelerator() == machine::Accelerator::Tcg
}

/// The path of program `name`, if it is in the path.
fn program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Absolute paths of files and folders that a command needs in addition to the system's: those in its words, and those
/// in a configuration among them.
fn named_files(words: &[String]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut waiting: Vec<String> = words.iter().skip(1).cloned().collect();
    while let Some(word) = waiting.pop() {
        let word = word.rsplit_once('=').map_or(word.as_str(), |(_, value)| value);
        let path = Path::new(word);
        if !path.is_absolute() || !path.is_file() || found.iter().any(|known| known == path) {
            continue;
        }
        found.push(path.to_owned());
        if matches!(path.extension().and_then(|end| end.to_str()), Some("yaml" | "yml")) {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let quotes = |c: char| "\"',[]".contains(c);
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            waiting.extend(lines.flat_map(str::split_whitespace).map(|word| word.trim_matches(quotes).to_owned()));
            // The classification and reference files beside it.
            let beside = path.parent().into_iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
            let lists =
                beside.flatten().map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "config"));
            waiting.extend(lists.map(|path| path.to_string_lossy().into_owned()));
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_names() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("docker"), None);
        assert_eq!(Apart { kind: Kind::Container, memory: Some(512 << 20) }.describe(), "container with 512 MiB");
    }

    #[test]
    fn files_that_a_command_names_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        for (name, text) in [("a.rules", ""), ("threshold.config", ""), ("unused.yaml", ""), ("one.rules", "")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("more.yaml"), format!("rule-files: [\"{}\", /nowhere]\n", at("one.rules")))
            .unwrap();
        std::fs::write(
            folder.path().join("a.yaml"),
            format!("include: {}\n# {}\n", at("more.yaml"), at("unused.yaml")),
        )
        .unwrap();
        let words = ["/bin/engine", "-c", &at("a.yaml"), &format!("--rules={}", at("a.rules"))].map(str::to_owned);
        let found: Vec<String> = named_files(&words)
            .iter()
            .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
            .collect();
        assert_eq!(found, ["a.rules", "a.yaml", "more.yaml", "one.rules", "threshold.config"]);
    }
}
