//! This machine, as plans use it: its files, cards and services.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::card::made_up::MadeUp;
use super::card::real::Real;
use super::card::{Answer, Cards, Refusal};
use super::knob::Machine;
use super::tree::{Memory, Root, Tree};

/// This machine, see the module.
pub(crate) struct Host {
    tree: Root,
    cards: Real,
}

impl Host {
    pub(crate) fn this() -> Host {
        Host { tree: Root(PathBuf::from("/")), cards: Real }
    }

    pub(crate) fn root(&self) -> &Root {
        &self.tree
    }
}

/// Finds a process by name: its identifier, and whether systemd started it.
fn process(tree: &dyn Tree, name: &str) -> Option<(String, bool)> {
    let all = tree.names("/proc").into_iter().filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()));
    // The kernel keeps 15 characters of a process name.
    let short: String = name.chars().take(15).collect();
    let mut found = all.filter(|pid| tree.text(&format!("/proc/{pid}/comm")).as_deref() == Some(&short));
    let pid = found.next()?;
    let groups = tree.text(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let managed = groups.lines().any(|line| line.contains(&format!("/{name}.service")));
    Some((pid, managed))
}

/// How a service runs: `stopped`, `running by systemd`, or `running as` its command line.
fn service(tree: &dyn Tree, name: &str) -> String {
    match process(tree, name) {
        None => "stopped".to_owned(),
        Some((_, true)) => "running by systemd".to_owned(),
        Some((pid, false)) => {
            let line = tree.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
            format!("running as {}", line.trim_end_matches(['\0', '\n']).replace('\0', " "))
        }
    }
}

fn run(command: &mut Command) -> Answer<()> {
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Refusal::Other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

impl Machine for Host {
    fn tree(&self) -> &dyn Tree {
        &self.tree
    }

    fn cards(&self) -> &dyn Cards {
        &self.cards
    }

    fn service(&self, name: &str) -> Answer<String> {
        Ok(service(&self.tree, name))
    }

    fn set_service(&self, name: &str, state: &str) -> Answer<()> {
        match (state, process(&self.tree, name)) {
            ("stopped", None) => Ok(()),
            ("stopped", Some((_, true))) => run(Command::new("systemctl").args(["stop", name])),
            ("stopped", Some((pid, false))) => {
                let number = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
                let number = number.ok_or_else(|| Refusal::Other(format!("process {pid}")))?;
                rustix::process::kill_process(number, rustix::process::Signal::TERM)
                    .map_err(|e| Refusal::from(std::io::Error::from(e)))?;
                let gone = || !self.tree.exists(&format!("/proc/{pid}/comm"));
                for _ in 0..100 {
                    if gone() {
                        return Ok(());
                    }
                    self.wait(Duration::from_millis(50));
                }
                Err(Refusal::Other(format!("{name} (process {pid}) does not end")))
            }
            ("running by systemd", _) => run(Command::new("systemctl").args(["start", name])),
            (line, None) => {
                let line = line.strip_prefix("running as ").unwrap_or(line);
                let mut words = line.split_whitespace();
                let program = words.next().ok_or_else(|| Refusal::Other("no command line".to_owned()))?;
                let mut command = Command::new(program);
                command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn()?;
                Ok(())
            }
            (_, Some(_)) => Ok(()),
        }
    }

    fn wait(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The identifier of processes that a simulated machine starts.
const STARTED: u32 = 4_000_000;

impl Machine for MadeUp {
    fn tree(&self) -> &dyn Tree {
        &self.tree
    }

    fn cards(&self) -> &dyn Cards {
        self
    }

    fn service(&self, name: &str) -> Answer<String> {
        Ok(service(&self.tree, name))
    }

    fn set_service(&self, name: &str, state: &str) -> Answer<()> {
        let tree: &Memory = &self.tree;
        match (state, process(tree, name)) {
            ("stopped", Some((pid, _))) => tree.remove(&format!("/proc/{pid}")),
            ("stopped", None) | (_, Some(_)) => {}
            (state, None) => {
                let at = format!("/proc/{STARTED}");
                tree.set(&format!("{at}/comm"), &format!("{name}\n"));
                match state.strip_prefix("running as ") {
                    Some(line) => tree.set(&format!("{at}/cmdline"), &line.replace(' ', "\0")),
                    None => tree.set(&format!("{at}/cgroup"), &format!("0::/system.slice/{name}.service\n")),
                }
            }
        }
        Ok(())
    }

    fn wait(&self, _: Duration) {
        self.look();
    }
}
