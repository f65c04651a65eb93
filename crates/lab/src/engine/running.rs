//! A running engine: readiness, liveness, counters, and stopping.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use super::contract::{Contract, Ready};
use super::counters::{CounterFile, Counts};
use crate::clock::Moment;
use crate::command::quoted;
use crate::cpus::Cpus;
use crate::isolate::Job;
use crate::load::Wire;
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::signals;

/// The engine's source of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Interfaces, in a network namespace if one is named, and an inline engine's other interface. A virtual machine
    /// reads from a TAP device.
    Interfaces { names: Vec<String>, peer: Option<String>, tap: Option<String>, namespace: Option<String> },
    /// A capture. The engine ends after it.
    Capture(PathBuf),
    /// The simulated engine's socket.
    Socket,
}

impl From {
    /// The engine's ends of a wire.
    pub(crate) fn wire(wire: &Wire) -> From {
        From::Interfaces {
            names: wire.pairs.iter().map(|pair| pair.engine.clone()).collect(),
            peer: wire.far.as_ref().map(|far| far.engine.clone()),
            tap: wire.tap.clone(),
            namespace: wire.namespace.clone(),
        }
    }

    /// The names of the interfaces that the engine reads from; none without interfaces.
    fn names(&self) -> &[String] {
        if let From::Interfaces { names, .. } = self { names } else { &[] }
    }
}

/// A running engine, see the module. It is killed when dropped.
pub(crate) struct Running {
    /// Its name.
    pub(crate) name: String,
    child: Child,
    held: OwnedFd,
    console: PathBuf,
    counters: Option<CounterFile>,
    rest: Duration,
    stop: Signal,
    stop_within: Duration,
    /// When it was started.
    pub(crate) started: Moment,
    /// When it reported that it was ready.
    pub(crate) ready: Moment,
    /// Peak memory in bytes.
    peak: f64,
    /// The engine is a child of `child`.
    launched: bool,
    /// That child, once it is known.
    engine: Option<(u32, OwnedFd)>,
    tick: f64,
}

/// How an engine ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// The time.
    pub(crate) at: Moment,
    /// CPU seconds of all its threads until the end.
    pub(crate) busy: f64,
    /// Peak memory in bytes. The last reading may be 50 ms before the end.
    pub(crate) peak: f64,
}

/// Parses a signal name, with or without `SIG`.
pub(super) fn signal(name: &str) -> Option<Signal> {
    Some(match name.trim_start_matches("SIG") {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => return None,
    })
}

impl Running {
    /// Starts the engine in folder `dir` and waits until it is ready. `short` is a folder with a short name.
    ///
    /// # Errors
    /// If it cannot be started, ends early or is not ready in time. It is then not running.
    pub(crate) fn start(
        contract: &Contract,
        from: &From,
        dir: &Path,
        short: &Path,
        session: &mut Session,
    ) -> Outcome<Running> {
        let mut running = Self::launch(contract, from, dir, short, session)?;
        running.await_ready(contract, dir, short)?;
        running.find_engine();
        Ok(running)
    }

    fn launch(contract: &Contract, from: &From, dir: &Path, short: &Path, session: &mut Session) -> Outcome<Running> {
        let name = contract.name.clone();
        std::fs::create_dir_all(dir).map_err(|error| Problem::file("make", dir, error))?;
        let template = if matches!(from, From::Capture(_)) { &contract.offline } else { &contract.live };
        let Some(program) = template.first() else {
            let kind = if matches!(from, From::Capture(_)) { "offline" } else { "live" };
            return Err(Problem::Usage(format!("engine {name} has no `{kind}` command")));
        };
        let fill = |word: &str| fill(word, from, dir, short);
        let mut words: Vec<String> = Vec::new();
        if let From::Interfaces { namespace: Some(namespace), .. } = from {
            words.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        let own: Vec<String> = repeated(template, from.names()).iter().map(|word| fill(word)).collect();
        let environment: Vec<(String, String)> =
            contract.environment.iter().map(|(key, value)| (key.clone(), fill(value))).collect();
        let how = contract.apart.kind.how();
        let counters_at = contract.counters.as_ref().map(|at| PathBuf::from(fill(&at.file)));
        let dir_whole = std::path::absolute(dir).map_err(|error| Problem::file("find", dir, error))?;
        words.extend(how.wrap(&Job {
            words: &own,
            environment: &environment,
            dir: &dir_whole,
            short,
            capture: if let From::Capture(path) = from { Some(path) } else { None },
            interface: match from {
                From::Interfaces { names, tap, .. } => names.first().map(|name| (name.as_str(), tap.as_deref())),
                _ => None,
            },
            counters: counters_at.as_deref(),
            cpus: contract.cpus.count(),
            memory: contract.apart.memory,
        })?);
        // Do this first: a thread in a network namespace no longer sees control groups.
        if let Some(group) = how.group(contract.apart.memory, session)? {
            let join = ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\""].map(str::to_owned);
            let processes = group.join("cgroup.procs").to_string_lossy().into_owned();
            words = join.into_iter().chain([processes]).chain(words).collect();
        }
        let console = dir.join("console.log");
        let log = File::create(&console).map_err(|error| Problem::file("make", &console, error))?;
        let log_too = log.try_clone().map_err(|error| Problem::file("use", &console, error))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(log).stderr(log_too).process_group(0);
        command.envs(environment);
        session.mark(&mut command)?;
        let line = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let command_file = dir.join("command");
        std::fs::write(&command_file, format!("{line}\n"))
            .map_err(|error| Problem::file("write", &command_file, error))?;
        let started = Moment::now();
        // An engine that reads a capture gets all CPUs, because there is no sender.
        let cpus = if matches!(from, From::Interfaces { .. }) { &contract.cpus } else { &Cpus::default() };
        let child = cpus
            .spawn(&mut command)
            .map_err(|error| Problem::Failed(format!("engine {name}: cannot start {}: {error}", fill(program))))?;
        let held = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .map_err(|error| Problem::Failed(format!("engine {name}: cannot watch its process: {error}")))?;
        let counters = contract.counters.as_ref();
        let rest = counters.map_or(Duration::ZERO, |at| at.rest);
        let counters = counters.map(|at| CounterFile::new(PathBuf::from(fill(&at.file)), at.format, at.names.clone()));
        // With one interface, the sums are its counts.
        let several = if from.names().len() > 1 { from.names() } else { &[] };
        let own = contract.counters.as_ref().map(|at| &at.by_interface);
        let counters = counters.map(|file| match own {
            Some(own) => file.by_interface(several, own),
            None => file,
        });
        Ok(Running {
            name,
            child,
            held,
            console,
            counters,
            rest,
            stop: signal(&contract.stop).unwrap_or(Signal::TERM),
            stop_within: contract.stop_within,
            started,
            ready: started,
            peak: 0.0,
            launched: how.has_launcher(),
            engine: None,
            tick: rustix::param::clock_ticks_per_second() as f64,
        })
    }

    fn await_ready(&mut self, contract: &Contract, dir: &Path, short: &Path) -> Outcome<()> {
        let until = self.started.plus(contract.ready_within);
        let file = match &contract.ready {
            Ready::AtOnce => return Ok(()),
            Ready::File(file) => Some(PathBuf::from(fill(file, &From::Socket, dir, short))),
            Ready::Line(_) => None,
        };
        loop {
            let ended = self.wait(Duration::from_millis(5))?;
            let ready = match (&contract.ready, &file) {
                (Ready::Line(line), _) => std::fs::read(&self.console)
                    .is_ok_and(|text| text.windows(line.len().max(1)).any(|part| part == line.as_bytes())),
                (_, Some(file)) => file.exists(),
                _ => true,
            };
            if ready {
                self.ready = Moment::now();
                return Ok(());
            }
            if ended {
                return Err(self.ended_early("before it was ready"));
            }
            if signals::stop_asked() {
                return Err(Problem::Interrupted(format!("stopped while engine {} was starting", self.name)));
            }
            if Moment::now() > until {
                let wanted = match (&contract.ready, file) {
                    (Ready::Line(line), _) => format!("'{line}' did not come on its output"),
                    (_, Some(file)) => format!("{} was not there", file.display()),
                    _ => String::new(),
                };
                return Err(Problem::Failed(format!(
                    "engine {} did not get ready within {:?}: {wanted}{}",
                    self.name,
                    contract.ready_within,
                    self.last_words()
                )));
            }
        }
    }

    /// Its process identifier.
    pub(crate) fn pid(&self) -> u32 {
        self.engine.as_ref().map_or_else(|| self.child.id(), |(pid, _)| *pid)
    }

    /// Finds the engine behind a launcher, which has no other child.
    fn find_engine(&mut self) {
        if !self.launched {
            return;
        }
        let parent = self.child.id().to_string();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let above = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            if above == Some(parent.as_str())
                && let Some(known) = Pid::from_raw(pid)
                && let Ok(held) = pidfd_open(known, PidfdFlags::empty())
            {
                self.engine = Some((pid.unsigned_abs(), held));
            }
        }
    }

    /// The process that receives signals.
    fn signalled(&self) -> &OwnedFd {
        self.engine.as_ref().map_or(&self.held, |(_, held)| held)
    }

    /// Waits at most `time` for its end, without recording the end.
    fn wait(&mut self, time: Duration) -> Outcome<bool> {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.pid())) {
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let peak = line.and_then(|line| line.trim().split(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0);
            self.peak = self.peak.max(peak * 1024.0);
        }
        let limit = rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&self.held, PollFlags::IN)];
        match poll(&mut polled, Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(Problem::Failed(format!("engine {}: cannot watch its process: {error}", self.name))),
        }
    }

    /// Waits for `time`, during which the engine must not end.
    ///
    /// # Errors
    /// If it ends, or on a request to stop.
    pub(crate) fn keep(&mut self, time: Duration, doing: &str) -> Outcome<()> {
        let until = Moment::now().plus(time);
        loop {
            let left = until.since(Moment::now());
            if self.wait(left.min(Duration::from_millis(50)))? {
                return Err(self.ended_early(doing));
            }
            if signals::stop_asked() {
                return Err(Problem::Interrupted(format!("stopped {doing}")));
            }
            if left.is_zero() {
                return Ok(());
            }
        }
    }

    /// A problem that describes how it ended, with its last output.
    fn ended_early(&mut self, doing: &str) -> Problem {
        let how = match self.child.wait() {
            Ok(status) => describe(status),
            Err(error) => error.to_string(),
        };
        Problem::Failed(format!("engine {} {how} {doing}{}", self.name, self.last_words()))
    }

    /// The last lines of its output, to append to a sentence.
    fn last_words(&self) -> String {
        let text = std::fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join("\n  ");
        if last.is_empty() { "; it said nothing".to_owned() } else { format!("; it said last:\n  {last}") }
    }

    /// The counters as last written.
    pub(crate) fn counts(&mut self) -> Counts {
        self.counters.as_mut().map_or(Counts::UNKNOWN, CounterFile::read)
    }

    /// Those of each interface, if there are several, as last read.
    pub(crate) fn counts_by_interface(&self) -> Vec<Counts> {
        self.counters.as_ref().map_or_else(Vec::new, CounterFile::last_by_interface)
    }

    /// A counter reader for another thread.
    pub(crate) fn counters(&self) -> Option<CounterFile> {
        self.counters.clone()
    }

    /// Waits until the counters settle, at most `most`. They have settled when they include the packets `expected` since
    /// `before`, or when they did not change for the contract's rest time.
    ///
    /// # Errors
    /// As [`Running::keep`].
    pub(crate) fn settle(&mut self, expected: Option<(Counts, f64)>, most: Duration) -> Outcome<Counts> {
        let begun = Moment::now();
        let (mut last, mut changed) = (self.counts(), begun);
        let first = self.updates();
        while self.counters.is_some() && Moment::now().since(begun) < most {
            if let Some((before, packets)) = expected {
                let known = |value: f64| if value.is_finite() { value } else { 0.0 };
                let grown = |of: fn(&Counts) -> f64| of(&last) - known(of(&before));
                let done = grown(|counts| counts.decoded) + known(grown(|counts| counts.dropped));
                // Each number may be rounded.
                if grown(|counts| counts.received) >= packets && done >= packets - 1.5 {
                    break;
                }
            }
            self.keep(Duration::from_millis(20), "while its counters came to rest")?;
            let now = self.counts();
            if !now.same(&last) {
                (last, changed) = (now, Moment::now());
            }
            let still = Moment::now().since(changed);
            // If the file is late, wait longer. Some engines write it only when counters change.
            if still > self.rest && (self.updates() > first || still > self.rest * 3) {
                break;
            }
        }
        Ok(last)
    }

    fn updates(&self) -> u64 {
        self.counters.as_ref().map_or(0, |counters| counters.updates)
    }

    /// Waits at most `within` for an engine that ends by itself.
    ///
    /// # Errors
    /// If it does not end, or on a request to stop.
    pub(crate) fn finish(mut self, within: Duration) -> Outcome<End> {
        let until = Moment::now().plus(within);
        while !self.wait(Duration::from_millis(50))? {
            if signals::stop_asked() {
                return Err(Problem::Interrupted(format!("stopped while engine {} was running", self.name)));
            }
            if Moment::now() > until {
                let words = self.last_words();
                return Err(Problem::Failed(format!("engine {} did not end within {within:?}{words}", self.name)));
            }
        }
        let end = self.take_end()?;
        if end.status.success() {
            return Ok(end);
        }
        Err(Problem::Failed(format!("engine {} {}{}", self.name, describe(end.status), self.last_words())))
    }

    /// CPU seconds of all its threads so far.
    pub(crate) fn busy(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let words: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(f64::NAN);
        if words.is_empty() || words == [""] {
            // It has ended; its launcher has its times.
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
            let words: Vec<f64> = stat
                .rsplit_once(") ")
                .map_or("", |(_, rest)| rest)
                .split(' ')
                .map(|word| word.parse().unwrap_or(f64::NAN))
                .collect();
            return words.get(13..15).map_or(f64::NAN, |times| times.iter().sum::<f64>() / self.tick);
        }
        (ticks(11) + ticks(12)) / self.tick
    }

    /// Peak memory so far, in bytes.
    pub(crate) fn peak(&self) -> f64 {
        self.peak
    }

    fn take_end(&mut self) -> Outcome<End> {
        let at = Moment::now();
        // An ended process keeps its times until it is reaped.
        let _ = waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let busy = self.busy();
        let status = self.child.wait();
        let status =
            status.map_err(|error| Problem::Failed(format!("engine {}: cannot see its end: {error}", self.name)))?;
        Ok(End { status, at, busy, peak: self.peak })
    }

    /// Asks it to stop, and kills it if it does not.
    ///
    /// # Errors
    /// If it had to be killed.
    pub(crate) fn stop(mut self) -> Outcome<(End, Counts)> {
        let _ = pidfd_send_signal(self.signalled(), self.stop);
        let until = Moment::now().plus(self.stop_within);
        while !self.wait(Duration::from_millis(20))? {
            if Moment::now() > until {
                let _ = pidfd_send_signal(&self.held, Signal::KILL);
                let _ = self.child.wait();
                return Err(Problem::Failed(format!(
                    "engine {} did not stop within {:?} and was killed{}",
                    self.name,
                    self.stop_within,
                    self.last_words()
                )));
            }
        }
        let end = self.take_end()?;
        Ok((end, self.counts()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = pidfd_send_signal(self.signalled(), self.stop);
            let limit = rustix::time::Timespec { tv_sec: 3, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(&self.held, PollFlags::IN)], Some(&limit));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A command's words, with those for each interface repeated: a word with `{n}` (and the option before it, if the word is
/// its value) once for each, with its number from 0 and its name.
fn repeated(template: &[String], interfaces: &[String]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in template {
        if !word.contains("{n}") {
            words.push(word.clone());
            continue;
        }
        let option = words.pop_if(|before| before.starts_with('-') && !before.contains('=') && !word.starts_with('-'));
        for (n, name) in interfaces.iter().enumerate() {
            words.extend(option.clone());
            words.push(word.replace("{n}", &n.to_string()).replace("{interface}", name));
        }
    }
    words
}

fn fill(word: &str, from: &From, dir: &Path, short: &Path) -> String {
    let mut word = word.replace("{dir}", &dir.to_string_lossy()).replace("{tmp}", &short.to_string_lossy());
    match from {
        From::Interfaces { names, peer, .. } => {
            if let Some(peer) = peer {
                word = word.replace("{peer}", peer);
            }
            if let Some(first) = names.first() {
                word = word.replace("{interface}", first);
            }
            let all = names.join(",");
            word = word.replace("{source}", &format!("interface:{all}")).replace("{interfaces}", &all);
        }
        From::Capture(path) => word = word.replace("{capture}", &path.to_string_lossy()),
        From::Socket => word = word.replace("{source}", &format!("{}/sim", short.to_string_lossy())),
    }
    word
}

/// Describes how a process ended, as part of a sentence.
fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_word_for_each_interface_is_repeated_with_its_option() {
        let template =
            words("ids --set af.{n}.interface={interface} --set a=b --on={n} -i {interface} --all {interfaces}");
        let names = words("eth0 eth1");
        let said = repeated(&template, &names);
        let expected = "ids --set af.0.interface=eth0 --set af.1.interface=eth1 --set a=b --on=0 --on=1 -i {interface} --all {interfaces}";
        assert_eq!(said, words(expected));
        let from = From::Interfaces { names, peer: None, tap: None, namespace: None };
        let fill = |word: &str| fill(word, &from, Path::new("/d"), Path::new("/t"));
        assert_eq!((fill("{interface}"), fill("{interfaces}")), ("eth0".to_owned(), "eth0,eth1".to_owned()));
        assert_eq!(fill("{source}"), "interface:eth0,eth1");
        // A capture has no interfaces, so settings for each of them are left out.
        assert_eq!(repeated(&words("ids --set x.{n}=1 -r y"), &[]), words("ids -r y"));
    }
}
