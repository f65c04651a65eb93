//! Runs the engine as a service: in the background, as another user, with few privileges, watched.
//!
//! [`Service::begin`] does what must happen before anything is opened and before there are threads: going to the background
//! (`daemon`), the pid file (`pidfile`), the user and capabilities (`privileges`), and the accessible files (`landlock`).
//! [`Service::ready`] does what is possible only when everything is open: it drops the capabilities of the start, locks
//! memory, restricts system calls (`seccomp`), starts the watchdog (`watchdog`), and notifies waiting processes (`notify`,
//! and the parent of a daemon). `docs/service.md` is the user's view.

mod daemon;
mod landlock;
mod notify;
mod pidfile;
pub(crate) mod privileges;
mod seccomp;
mod settings;
pub(crate) mod watchdog;
mod web;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use margay_config::{Capture, Config, RuleFiles, RunOptions};
use margay_output::{error, info, warning};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;

use crate::Failed;
use crate::settings::{Reach, SOCKET_FOLDER, log_dir, reach, socket};
use crate::signals::Signals;
use crate::threads;
use notify::Notify;
use pidfile::PidFile;
use privileges::{Account, Needs};
use seccomp::Filters;
use settings::{Settings, Switch};
use watchdog::{Watch, Watchdog};
pub(crate) use web::Web;

/// What the source of packets needs of the system, as the configuration says.
#[derive(Debug, Clone, Default)]
pub(crate) struct CaptureAccess {
    /// The kernel bypasses flows.
    pub(crate) bypasses: bool,
    /// Interfaces of AF_XDP, whose settings change.
    pub(crate) xdp_interfaces: Vec<String>,
}

/// A run as a service, as far as the settings ask for it.
pub(crate) struct Service {
    /// The command line; with `-D` its paths are absolute.
    pub(crate) options: RunOptions,
    settings: Settings,
    /// Packets come from interfaces.
    live: bool,
    access: CaptureAccess,
    /// Network access that outputs need.
    reach: Reach,
    account: Option<Account>,
    /// Messages for the log, once it is open: whether it is a warning, the module, the text.
    words: Vec<(bool, &'static str, String)>,
    notify: Arc<Notify>,
    /// The run has no end of its own: live capture, or files that clients submit.
    lasting: bool,
    stopping: AtomicBool,
    pidfile: Mutex<Option<PidFile>>,
    /// The live page's socket, until it is served.
    web: Mutex<Option<Web>>,
}

impl Service {
    /// Becomes a service, as far as the settings ask for it. The calling thread must be the only one. With `-D`, this returns
    /// in another process.
    ///
    /// # Errors
    /// An invalid setting, or the system refuses.
    pub(crate) fn begin(config: &Config, options: &RunOptions, access: CaptureAccess) -> Result<Arc<Service>, Failed> {
        let settings = Settings::new(config, options)?;
        if settings.user.is_none() && config.node("run-as").is_some_and(|n| n.node("user").is_some()) {
            return Err(Failed::new(
                "privs",
                "no user name was provided - ensure it is specified either in the configuration file (run-as.user) or in \
                 command-line arguments (--user)",
            ));
        }
        let account = Account::find(settings.user.as_deref(), settings.group.as_deref())?;
        let live = !matches!(options.capture, None | Some(Capture::File(_) | Capture::Erf(_) | Capture::UnixSocket(_)));
        let lasting = live || matches!(options.capture, Some(Capture::UnixSocket(_)));
        let mut service = Service {
            options: options.clone(),
            settings,
            live,
            access,
            reach: Reach::default(),
            account,
            words: Vec::new(),
            notify: Arc::default(),
            lasting,
            stopping: AtomicBool::new(false),
            pidfile: Mutex::default(),
            web: Mutex::default(),
        };
        if !options.test && !options.engine_analysis {
            service.start(config)?;
        }
        Ok(Arc::new(service))
    }

    fn start(&mut self, config: &Config) -> Result<(), Failed> {
        if let Some(mask) = self.settings.umask {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask));
        }
        if self.options.daemon {
            if config.is_built_in() && config.get("default-log-dir").is_none() {
                // The folder where it was started, not the daemon's folder.
                self.options.log_dir.get_or_insert_with(|| ".".into());
            }
            absolute(&mut self.options)?;
            self.settings.pidfile = self.options.pidfile.clone().or(self.settings.pidfile.take());
            daemon::enter(&self.settings.directory)?;
            if !logs_somewhere(config) {
                self.warn("daemon", "in the background (-D) nothing is seen of the console: switch on file or syslog in logging.outputs");
            }
        }
        let notify = Notify::from_environment();
        if let Some(wrong) = &notify.wrong {
            self.warn("systemd", wrong.clone());
        }
        self.notify = Arc::new(notify);
        if let Some(path) = &self.settings.pidfile {
            *self.pidfile.lock().unwrap_or_else(PoisonError::into_inner) = Some(PidFile::create(path)?);
        }
        // TCP sockets must be created before Landlock applies and before the user changes.
        *self.web.lock().unwrap_or_else(PoisonError::into_inner) = Web::listen(config, &self.options)?;
        self.limits();
        self.step_down(config)?;
        let dir = log_dir(config, &self.options)?;
        if self.account.is_some() {
            may_write(&dir, &self.who())?;
        }
        self.reach = reach(config, &dir).map_err(|e| Failed::new("runmodes", e.to_string()))?;
        for folder in &self.reach.write {
            // Landlock can only allow paths that exist.
            std::fs::create_dir_all(folder).map_err(|e| {
                let (folder, owner) = (folder.display(), owner(folder));
                Failed::new("output", format!("{folder}: the spool's folder cannot be made: {e}{owner}"))
            })?;
        }
        if self.restricts_files(config)? {
            let r = landlock::restrict(config, &self.options, &self.settings, (&self.reach, &self.access), &dir)?;
            for path in &r.missing {
                self.warn("landlock", format!("security.landlock.directories: {path} is not there"));
            }
            self.words.push((!r.holds, "landlock", r.words));
        }
        Ok(())
    }

    /// Whether Landlock is on. With `auto` it is on for live capture, because the configuration then names every file that is
    /// read or written later. Absolute paths in rules (`dataset:…,load /a/b`) are an exception.
    fn restricts_files(&self, config: &Config) -> Result<bool, Failed> {
        Ok(match self.settings.landlock {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => {
                self.live && !crate::settings::flag(config, "datasets.rules.allow-absolute-filenames", false)?
            }
        })
    }

    fn warn(&mut self, module: &'static str, words: impl Into<String>) {
        self.words.push((true, module, words.into()));
    }

    /// Raises limits that only root may raise.
    fn limits(&mut self) {
        if self.settings.lock_memory {
            let all = Rlimit { current: None, maximum: None };
            // A failure shows when memory is locked.
            let _ = setrlimit(Resource::Memlock, all);
        }
        if let Some(bytes) = self.settings.max_dump {
            let wanted = (bytes != u64::MAX).then_some(bytes);
            let most = getrlimit(Resource::Core).maximum;
            let set = setrlimit(Resource::Core, Rlimit { current: wanted, maximum: wanted })
                .or_else(|_| setrlimit(Resource::Core, Rlimit { current: most, maximum: most }));
            if let Err(e) = set {
                self.warn("coredump", format!("the size of core dumps cannot be set (coredump.max-dump): {e}"));
            }
        }
    }

    /// Changes the user, and drops unneeded privileges.
    fn step_down(&mut self, config: &Config) -> Result<(), Failed> {
        let needs = Needs::of(&self.options, config, self.access.bypasses);
        let dropping = match self.settings.drop_capabilities {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => !privileges::is_root() || self.account.as_ref().is_some_and(|a| !a.uid.is_root()),
        };
        self.own_folder(config)?;
        if let Some(account) = self.account.clone() {
            if dropping {
                privileges::bound();
            }
            privileges::become_account(&account, dropping.then_some(needs))?;
        } else if dropping {
            privileges::bound();
        }
        if dropping {
            privileges::lower_to_start(needs)?;
            privileges::drop_from_here_on(needs.kept);
        }
        if self.settings.max_dump.is_some_and(|n| n > 0) {
            // The kernel disables core dumps when the user changes.
            let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
        }
        if self.settings.no_new_privileges
            && let Err(e) = set_no_new_privs(true)
        {
            self.warn("privs", format!("programs may gain privileges (no_new_privs): {e}"));
        }
        if let Some(a) = &self.account {
            let words = format!("running as {} (uid {}, gid {})", a.name, a.uid.as_raw(), a.gid.as_raw());
            self.words.push((false, "privs", words));
        }
        Ok(())
    }

    /// Creates the folder of the unix socket, which would be impossible later, and gives it to the user. An existing folder
    /// is left alone, except the engine's own below `/run`, which an earlier run as root may have created.
    fn own_folder(&self, config: &Config) -> Result<(), Failed> {
        let Some(path) = socket(config, &self.options)? else { return Ok(()) };
        if let (Some(a), Ok(meta)) = (&self.account, std::fs::symlink_metadata(SOCKET_FOLDER))
            && path.parent() == Some(Path::new(SOCKET_FOLDER))
            && meta.is_dir()
            && meta.uid() == 0
            && !a.uid.is_root()
        {
            std::os::unix::fs::chown(SOCKET_FOLDER, Some(a.uid.as_raw()), Some(a.gid.as_raw())).map_err(|e| {
                let owner = owner(Path::new(SOCKET_FOLDER));
                Failed::new("unix-manager", format!("{SOCKET_FOLDER}: cannot be given to {}: {e}{owner}", a.name))
            })?;
        }
        let folder = path.parent().filter(|f| !f.as_os_str().is_empty() && !f.exists());
        let (Some(folder), true) = (folder, self.account.is_some() || self.restricts_files(config)?) else {
            return Ok(());
        };
        let made = std::fs::create_dir_all(folder).and_then(|()| match &self.account {
            Some(a) => std::os::unix::fs::chown(folder, Some(a.uid.as_raw()), Some(a.gid.as_raw())),
            None => Ok(()),
        });
        made.map_err(|e| {
            let (folder, owner) = (folder.display(), owner(folder));
            Failed::new("unix-manager", format!("{folder}: the socket's folder cannot be made: {e}{owner}"))
        })
    }

    fn who(&self) -> String {
        self.account.as_ref().map_or_else(String::new, |a| a.name.clone())
    }

    /// Logs the messages from before the log was open.
    pub(crate) fn tell(&self) {
        for (warn, module, words) in &self.words {
            if *warn {
                warning!(module, "{words}");
            } else {
                info!(module, "{words}");
            }
        }
    }

    /// Completes the start, when everything is open and packets may arrive: drops the privileges of the start, starts the
    /// watchdog, and notifies waiting processes.
    ///
    /// # Errors
    /// The watchdog thread cannot start, or capabilities cannot be dropped.
    pub(crate) fn ready(&self, watch: &Arc<Watch>, signals: &Arc<Signals>) -> Result<(), Failed> {
        privileges::shed()?;
        self.watch(watch, signals)?;
        if self.settings.lock_memory {
            self.lock_memory();
        }
        let filters = match self.settings.seccomp {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => self.lasting,
        };
        let filters = match (filters, self.settings.limit_noproc) {
            (true, _) => {
                Some(Filters::Engine { refusal: self.settings.refusal, live: self.live, remote: self.reach.any })
            }
            (false, true) => Some(Filters::Processes),
            (false, false) => None,
        };
        if let Some(Err(e)) = filters.map(seccomp::restrict) {
            warning!("seccomp", "system calls are not restricted, and other programs may be started: {e}");
        }
        daemon::tell(0);
        self.notify.ready();
        Ok(())
    }

    fn watch(&self, watch: &Arc<Watch>, signals: &Arc<Signals>) -> Result<(), Failed> {
        // The default is systemd's own timeout.
        let Some(after) = self.settings.stuck_after.or(self.notify.patience).filter(|_| self.lasting) else {
            return Ok(());
        };
        let dog = Watchdog {
            watch: Arc::clone(watch),
            signals: Arc::clone(signals),
            notify: Arc::clone(&self.notify),
            after,
            on_stuck: self.settings.on_stuck,
        };
        thread("watchdog", move || {
            threads::persist("the watchdog", || dog.run());
        })
    }

    /// Locks current and future memory, so that it is never swapped out.
    fn lock_memory(&self) {
        if let Some(limit) = getrlimit(Resource::Memlock).current
            && !privileges::lock_memory_without_limit()
        {
            // Beyond the limit, the engine could not allocate any memory.
            warning!(
                "memory",
                "memory is not locked (margay.lock-memory): at most {limit} bytes may be; start as root, or set \
                 LimitMEMLOCK=infinity in the unit"
            );
            return;
        }
        match mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
            Ok(()) => info!("memory", "memory is locked"),
            Err(e) => warning!("memory", "memory is not locked (margay.lock-memory): {e}"),
        }
    }

    /// Takes the live page's socket, if there is one, to serve it.
    pub(crate) fn take_web(&self) -> Option<Web> {
        self.web.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Announces that the engine stops.
    pub(crate) fn stopping(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.notify.stopping();
        }
    }

    /// Announces that rules are being loaded, until the value is dropped.
    pub(crate) fn reloading(&self) -> Reloading<'_> {
        self.notify.reloading();
        Reloading(self)
    }
}

/// Removes the pid file, however the run ends.
pub(crate) struct End(pub(crate) Arc<Service>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.stopping();
        drop(self.0.pidfile.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Marks a load of rules.
pub(crate) struct Reloading<'a>(&'a Service);

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        if !self.0.stopping.load(Ordering::Relaxed) {
            self.0.notify.ready();
        }
    }
}

/// Starts a control thread.
///
/// # Errors
/// The thread cannot start.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failed> {
    std::thread::Builder::new()
        .name(format!("margay-{name}"))
        // Rules, and their scripts, are loaded there.
        .stack_size(margay_lua::STACK)
        .spawn(|| {
            // Control threads need no capabilities.
            if let Err(f) = privileges::shed() {
                error!(f.module, "{}", f.message);
            }
            run();
        })
        .map(drop)
        .map_err(|e| Failed::new("threads", format!("cannot start the thread \"{name}\": {e}")))
}

/// Reports to the waiting parent process, if there is one, that the engine did not start.
pub(crate) fn failed() {
    daemon::tell(1);
}

/// Owner and permissions of a file in brackets, for messages about denied access. If the file is missing, those of its
/// folder.
pub(crate) fn owner(path: &Path) -> String {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some((path, meta)) = [path, parent].into_iter().find_map(|p| Some((p, std::fs::metadata(p).ok()?))) else {
        return String::new();
    };
    format!(
        " ({} belongs to uid {}, gid {}, mode {:04o}; this runs as uid {}, gid {})",
        path.display(),
        meta.uid(),
        meta.gid(),
        meta.mode() & 0o7777,
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw()
    )
}

/// Whether the current user may create files in a folder.
fn may_write(dir: &Path, who: &str) -> Result<(), Failed> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, dir, wanted, AtFlags::EACCESS).map_err(|e| {
        Failed::new(
            "privs",
            format!(
                "the logging directory \"{}\" cannot be written as {who}: {e}{}; make it that user's (chown), or name another \
                 with -l",
                dir.display(),
                owner(dir)
            ),
        )
    })
}

/// Whether messages go to more than the console.
fn logs_somewhere(config: &Config) -> bool {
    let mut outputs = config.node("logging.outputs").into_iter().flat_map(|n| n.children()).map(|i| i.entry());
    outputs.any(|(name, node)| {
        ["file", "syslog"].contains(&name) && node.is_some_and(|n| n.bool("enabled").ok().flatten().unwrap_or(true))
    })
}

/// Makes the command line's paths absolute, because a daemon changes its folder and reads some of them again.
fn absolute(options: &mut RunOptions) -> Result<(), Failed> {
    let here = std::env::current_dir()
        .map_err(|e| Failed::new("daemon", format!("the folder that this was started in cannot be named: {e}")))?;
    let paths = [
        &mut options.config,
        &mut options.log_dir,
        &mut options.data_dir,
        &mut options.filter_file,
        &mut options.firewall_rules,
        &mut options.pidfile,
    ];
    paths.into_iter().flatten().for_each(|p| *p = here.join(&*p));
    options.includes.iter_mut().for_each(|p| *p = here.join(&*p));
    match &mut options.capture {
        Some(Capture::File(p) | Capture::Erf(p)) if p.as_os_str() != "-" => *p = here.join(&*p),
        _ => {}
    }
    if let RuleFiles::Added(f) | RuleFiles::Exclusive(f) = &mut options.rules {
        *f = here.join(&*f).display().to_string();
    }
    Ok(())
}

/// The settings of the process, for the test that checks all settings.
#[cfg(test)]
pub(crate) fn shown(
    config: &Config,
    options: &RunOptions,
    access: impl Fn(&RunOptions) -> CaptureAccess,
    out: &mut String,
) -> Result<(), String> {
    use std::fmt::Write;

    let live = RunOptions { capture: Some(Capture::AfPacket(Vec::new())), daemon: true, ..options.clone() };
    let settings = Settings::new(config, &live).map_err(|e| e.to_string())?;
    let access = access(&live);
    let places = landlock::places(config, &live, &settings, &access, Path::new("/tmp")).map_err(|f| f.message)?;
    let sockets: Result<Vec<_>, _> = [options, &live].into_iter().map(|o| socket(config, o)).collect();
    let sockets = sockets.map_err(|e| e.to_string())?;
    writeln!(
        out,
        "process: {settings:?}\nplaces: {places}\nsockets: {sockets:?}\nneeds: {:?}",
        Needs::of(&live, config, access.bypasses)
    )
    .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_restricted_where_packets_come_from_the_network() {
        let restricts = |capture: Capture, text: &str| {
            let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").expect("a configuration");
            // A configuration test does not change the process.
            let options = RunOptions { capture: Some(capture), test: true, ..RunOptions::default() };
            let service =
                Service::begin(&config, &options, CaptureAccess::default()).unwrap_or_else(|e| panic!("{}", e.message));
            service.restricts_files(&config).unwrap_or_else(|e| panic!("{}", e.message))
        };
        let live = || Capture::AfPacket(vec!["eth0".into()]);
        assert!(restricts(live(), "") && restricts(Capture::Nfqueue(vec![0]), ""));
        assert!(!restricts(Capture::File("a.pcap".into()), "") && !restricts(Capture::UnixSocket(None), ""));
        assert!(!restricts(live(), "security: {landlock: {enabled: no}}"));
        assert!(restricts(Capture::File("a.pcap".into()), "security: {landlock: {enabled: yes}}"));
        // Rules may then name any file.
        assert!(!restricts(live(), "datasets: {rules: {allow-absolute-filenames: yes}}"));
    }
}
