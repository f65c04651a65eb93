//! Settings of the configuration and the command line for running as a service.

use std::path::PathBuf;
use std::time::Duration;

use margay_config::{Config, ConfigError, Node, RunOptions};

use crate::settings::{flag, number, wrong};

/// A switch with an automatic setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    Auto,
    On,
    Off,
}

/// The effect of a system call that is not allowed (`security.seccomp.action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It fails with `EPERM`.
    Errno,
    /// It ends the process.
    Kill,
    /// It is allowed, and written to the kernel's audit log, to find missing calls.
    Log,
}

/// The reaction to a stuck worker (`margay.watchdog.action`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnStuck {
    /// It is logged and counted.
    Log,
    /// The process also ends, with a core dump if those are on, so that it is restarted.
    Abort,
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settings {
    /// `--user`, `run-as.user`
    pub(super) user: Option<String>,
    /// `--group`, `run-as.group`
    pub(super) group: Option<String>,
    /// `--pidfile`; with `-D` also `pid-file`
    pub(super) pidfile: Option<PathBuf>,
    /// `daemon-directory`
    pub(super) directory: PathBuf,
    /// `umask`
    pub(super) umask: Option<u32>,
    /// `coredump.max-dump` in bytes; `None` if not set.
    pub(super) max_dump: Option<u64>,
    /// `security.drop-capabilities`
    pub(super) drop_capabilities: Switch,
    /// `security.no-new-privileges`
    pub(super) no_new_privileges: bool,
    /// `security.limit-noproc`
    pub(super) limit_noproc: bool,
    /// `security.seccomp`
    pub(super) seccomp: Switch,
    pub(super) refusal: Refusal,
    /// `security.landlock`
    pub(super) landlock: Switch,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    /// `margay.lock-memory`
    pub(super) lock_memory: bool,
    /// `margay.watchdog.seconds`; `None` for 0.
    pub(super) stuck_after: Option<Duration>,
    /// `margay.watchdog.action`
    pub(super) on_stuck: OnStuck,
}

/// Seconds after which a worker counts as stuck by default.
const STUCK: u64 = 30;
/// The largest allowed value.
const STUCK_MAX: u64 = 86_400;

impl Settings {
    /// # Errors
    /// An invalid value.
    pub(super) fn new(config: &Config, options: &RunOptions) -> Result<Settings, ConfigError> {
        let said = |path: &str| config.get(path).map(str::trim).filter(|t| !t.is_empty());
        let configured = said("pid-file").filter(|_| options.daemon).map(PathBuf::from);
        let umask = match said("umask") {
            None => None,
            Some(t) => Some(
                u32::from_str_radix(t, 8)
                    .ok()
                    .filter(|m| *m <= 0o777)
                    .ok_or_else(|| wrong(config, "umask", &format!("\"{t}\" is no mask of permissions, like 022")))?,
            ),
        };
        let max_dump = match said("coredump.max-dump") {
            None => None,
            Some("unlimited") => Some(u64::MAX),
            Some(_) => config.size("coredump.max-dump")?,
        };
        let refusal = match said("security.seccomp.action") {
            None | Some("errno") => Refusal::Errno,
            Some("kill") => Refusal::Kill,
            Some("log") => Refusal::Log,
            Some(t) => {
                let why = format!("\"{t}\" is none of errno, kill and log");
                return Err(wrong(config, "security.seccomp.action", &why));
            }
        };
        let on_stuck = match said("margay.watchdog.action") {
            None | Some("log") => OnStuck::Log,
            Some("abort") => OnStuck::Abort,
            Some(t) => {
                return Err(wrong(config, "margay.watchdog.action", &format!("\"{t}\" is neither log nor abort")));
            }
        };
        let seconds: u64 = number(config, "margay.watchdog.seconds", STUCK)?;
        if seconds > STUCK_MAX {
            return Err(wrong(config, "margay.watchdog.seconds", &format!("{seconds} is not 0 to {STUCK_MAX}")));
        }
        let folders = |path: &str| -> Vec<PathBuf> {
            let list = config.node(path);
            list.iter().flat_map(Node::values).filter(|t| !t.is_empty()).map(PathBuf::from).collect()
        };
        Ok(Settings {
            user: options.user.clone().or_else(|| said("run-as.user").map(str::to_owned)),
            group: options.group.clone().or_else(|| said("run-as.group").map(str::to_owned)),
            pidfile: options.pidfile.clone().or(configured),
            directory: said("daemon-directory").unwrap_or("/").into(),
            umask,
            max_dump,
            drop_capabilities: switch(config, "security.drop-capabilities")?,
            no_new_privileges: flag(config, "security.no-new-privileges", true)?,
            limit_noproc: flag(config, "security.limit-noproc", false)?,
            seccomp: switch(config, "security.seccomp.enabled")?,
            refusal,
            landlock: switch(config, "security.landlock.enabled")?,
            read: folders("security.landlock.directories.read"),
            write: folders("security.landlock.directories.write"),
            lock_memory: flag(config, "margay.lock-memory", false)?,
            stuck_after: (seconds > 0).then(|| Duration::from_secs(seconds)),
            on_stuck,
        })
    }
}

fn switch(config: &Config, path: &str) -> Result<Switch, ConfigError> {
    Ok(match config.get(path) {
        None | Some("" | "auto") => Switch::Auto,
        Some(_) if flag(config, path, false)? => Switch::On,
        Some(_) => Switch::Off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, options: &RunOptions) -> Result<Settings, String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap();
        Settings::new(&config, options).map_err(|e| e.to_string())
    }

    #[test]
    fn the_command_line_comes_first() {
        let text =
            "run-as:\n  user: suri\n  group: 12\npid-file: /run/a.pid\numask: 027\ncoredump:\n  max-dump: unlimited\n";
        let s = read(text, &RunOptions::default()).unwrap();
        assert_eq!((s.user.as_deref(), s.group.as_deref()), (Some("suri"), Some("12")));
        assert_eq!((s.pidfile, s.umask, s.max_dump), (None, Some(0o27), Some(u64::MAX)), "pid-file is for -D");
        let options = RunOptions { user: Some("7".into()), daemon: true, ..RunOptions::default() };
        let s = read(text, &options).unwrap();
        assert_eq!((s.user.as_deref(), s.pidfile), (Some("7"), Some("/run/a.pid".into())));
        let options = RunOptions { pidfile: Some("/b".into()), ..RunOptions::default() };
        assert_eq!(read(text, &options).unwrap().pidfile, Some("/b".into()));
    }

    #[test]
    fn security() {
        let s = read("security:\n  limit-noproc: true\n", &RunOptions::default()).unwrap();
        assert_eq!(
            (s.limit_noproc, s.seccomp, s.landlock, s.no_new_privileges),
            (true, Switch::Auto, Switch::Auto, true)
        );
        let s = read(
            "security:\n  seccomp: {enabled: yes, action: kill}\n  drop-capabilities: no\n  landlock:\n    enabled: yes\n    \
             directories:\n      write: [/a, /b]\n      read: [/c]\n",
            &RunOptions::default(),
        )
        .unwrap();
        assert_eq!((s.seccomp, s.refusal, s.drop_capabilities), (Switch::On, Refusal::Kill, Switch::Off));
        assert_eq!((s.write.len(), s.read, s.landlock), (2, vec![PathBuf::from("/c")], Switch::On));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, word) in [
            ("umask: 999", "umask"),
            ("security: {seccomp: {action: maybe}}", "errno"),
            ("security: {seccomp: {enabled: perhaps}}", "perhaps"),
            ("margay: {watchdog: {action: run}}", "abort"),
            ("margay: {watchdog: {seconds: -1}}", "out of range"),
            ("coredump: {max-dump: lots}", "lots"),
        ] {
            let e = read(text, &RunOptions::default()).unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
        assert_eq!(read("margay: {watchdog: {seconds: 0}}", &RunOptions::default()).unwrap().stuck_after, None);
    }
}
