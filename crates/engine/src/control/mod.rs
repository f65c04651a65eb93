//! What can be asked of a running engine, and who asks: the unix socket, and signals.
//!
//! [`Control`] knows the engines in use, the workers, and the capture files that wait. It is shared by the threads that serve
//! it, none of which is on the packet path: that of the socket, one for each client, one for SIGUSR2, one that drops what
//! workers do not need any more. What they want of a worker goes through its [`post::Post`].
//!
//! - `reload`: other rules in place of those in use; tenants.
//! - `socket`, `message`: the socket, and its protocol.
//! - `commands`: what can be said there.
//! - `queue`: `--unix-socket`: capture files that are handed over.

pub(crate) mod commands;
pub(crate) mod message;
pub(crate) mod post;
pub(crate) mod queue;
mod reload;
#[cfg(test)]
mod same;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use margay_app::file::FileEngine;
use margay_config::{Capture, Config, RunOptions};
use margay_output::{error, notice};
use margay_packet::fault;

use crate::engines::{EngineSet, Loading};
use crate::service::watchdog::Watch;
use crate::service::{Service, privileges};
use crate::settings;
use crate::signals::Signals;
use crate::start::Watching;
use crate::watched::Watched;
use crate::worker::engines::{AppWants, Install, Retired};
use crate::{Failed, start, threads};
use post::{Post, Unanswered};
use queue::Queue;

/// How long a worker is waited for that carries out an order.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// How long a reload waits for workers to take the new rules: those that wait for packets take them with the next.
const TAKEN: Duration = Duration::from_millis(500);

/// What is shared by all who control a running engine.
pub(crate) struct Control {
    pub(crate) options: RunOptions,
    pub(crate) ips: bool,
    pub(crate) started: Instant,
    /// The configuration of the start: what is not about rules holds to the end.
    pub(crate) config: Config,
    /// What it said of rules when they were last read.
    pub(crate) rules_config: RwLock<Arc<Config>>,
    /// Fingerprints that outputs show.
    shown: settings::JaWants,
    /// Where logs and reports go.
    pub(crate) dir: PathBuf,
    engines: RwLock<Arc<EngineSet>>,
    /// Held by who makes other engines: one at a time.
    changing: Mutex<()>,
    /// A reload goes on that nobody waits for.
    reloading: AtomicBool,
    workers: Mutex<Vec<Arc<Post>>>,
    /// Takes what is to be dropped off the packet path.
    reclaimer: mpsc::Sender<Retired>,
    pub(crate) signals: Arc<Signals>,
    /// Whether somebody watches detection.
    pub(crate) watching: Watching,
    /// `--unix-socket`: capture files to be read.
    pub(crate) queue: Option<Queue>,
    /// Interfaces are captured from.
    pub(crate) live: OnceLock<LiveInfo>,
    /// Workers that are watched.
    pub(crate) watch: Arc<Watch>,
    /// What the process is beyond a run; none in tests.
    pub(crate) service: OnceLock<Arc<Service>>,
    /// What those see who look on.
    pub(crate) watched: Watched,
    /// Why the engine stops before somebody asks it to.
    pub(crate) failed: OnceLock<Failed>,
}

/// What is captured from, where it is interfaces.
#[derive(Debug)]
pub(crate) struct LiveInfo {
    /// The run mode's name.
    pub(crate) mode: &'static str,
    /// That of the kind of capture.
    pub(crate) capture: &'static str,
    /// How many workers there are.
    pub(crate) workers: usize,
    /// The interfaces' names.
    pub(crate) interfaces: Vec<String>,
}

/// A lock whose holder stopped in the middle protects nothing that could be half done here.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    pub(crate) fn new(
        config: Config,
        options: RunOptions,
        ips: bool,
        dir: PathBuf,
        engines: Arc<EngineSet>,
        signals: Arc<Signals>,
        watching: Watching,
    ) -> Result<Arc<Control>, Failed> {
        let (reclaimer, dead) = mpsc::channel::<Retired>();
        thread("drop", move || {
            give_way();
            for retired in &dead {
                // One that fails is not in the way of the others.
                threads::once(|| {
                    fault::point("drop");
                    drop(retired);
                });
            }
        })?;
        let queue = matches!(options.capture, Some(Capture::UnixSocket(_))).then(Queue::default);
        Ok(Arc::new(Control {
            shown: settings::JaWants {
                ja4: settings::shows_ja4(&config, &dir)?,
                ..settings::test_scripts(&config, &dir)?
            },
            rules_config: RwLock::new(Arc::new(config.clone())),
            config,
            options,
            ips,
            started: Instant::now(),
            dir,
            engines: RwLock::new(engines),
            changing: Mutex::default(),
            reloading: AtomicBool::new(false),
            workers: Mutex::default(),
            reclaimer,
            signals,
            watching,
            queue,
            live: OnceLock::new(),
            watch: Arc::default(),
            service: OnceLock::new(),
            watched: Watched::default(),
            failed: OnceLock::new(),
        }))
    }

    /// The engines in use.
    pub(crate) fn engines(&self) -> Arc<EngineSet> {
        Arc::clone(&self.engines.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn loading<'a>(&'a self, config: &'a Config) -> Loading<'a> {
        Loading { config, options: &self.options, ips: self.ips, dir: &self.dir, trees: false }
    }

    /// What rules and outputs want of the application layer.
    pub(crate) fn wants(&self, set: &EngineSet) -> Result<AppWants, Failed> {
        start::app_wants(&self.config, &self.options, set, self.shown)
    }

    /// Makes a worker known, that will look for orders in the post returned. `take` gives it the engines that are in use
    /// then; those that come later go through the post.
    pub(crate) fn enter(&self, take: impl FnOnce(Arc<EngineSet>) -> Result<(), Failed>) -> Result<Arc<Post>, Failed> {
        // Nobody may put others in place in between.
        let _changing = held(&self.changing);
        take(self.engines())?;
        let post = Arc::new(Post::new(self.reclaimer.clone()));
        held(&self.workers).push(Arc::clone(&post));
        Ok(post)
    }

    /// The worker of that post is at its end.
    pub(crate) fn leave(&self, post: &Arc<Post>) {
        held(&self.workers).retain(|p| !Arc::ptr_eq(p, post));
    }

    /// The posts of all workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Post>> {
        held(&self.workers).clone()
    }

    /// Puts other engines in place of those in use. Who calls holds `changing`.
    /// Returns how long the worker that it kept longest was kept, in time of its processor.
    fn replace(&self, set: EngineSet) -> Result<Duration, Failed> {
        let before = self.engines();
        let wants = self.wants(&set)?;
        // libmagic, where rules ask for it that did not before.
        let files = settings::files(&self.config, &self.dir, &self.options)?;
        FileEngine::new(&files, wants.files).map_err(|e| Failed::new("files", e.to_string()))?;
        let set = Arc::new(set);
        let mut orders = Vec::new();
        let several = self.live.get().is_some_and(|l| l.workers > 1) || self.workers().len() > 1;
        for post in self.workers() {
            let install = Install::new(Arc::clone(&set), &before, wants.clone(), &self.watching, several)?;
            orders.push((post, install));
        }
        *self.engines.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&set);
        let mut kept = Duration::ZERO;
        for (post, install) in orders {
            // One that has ended needs none; one that waits for packets takes them with the next.
            if post.install(install).is_ok() && post.ask(TAKEN, |_, _| ()).is_ok() {
                kept = kept.max(post.kept());
            }
        }
        // Sets of data that nobody names any more are written now; the others go on.
        for problem in before.datasets().save_but(&set.datasets()) {
            error!("datasets", "{problem}");
        }
        Ok(kept)
    }

    /// Everything is open and packets may come: what is only for the start goes, and who waits is told.
    ///
    /// # Errors
    /// As [`Service::ready`].
    pub(crate) fn ready(self: &Arc<Self>) -> Result<(), Failed> {
        self.service.get().map_or(Ok(()), |s| s.ready(self))
    }

    /// Asks every worker the same. None answers where there is none.
    ///
    /// # Errors
    /// Where one does not answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&mut crate::worker::Worker, &mut crate::stats::Reporter) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Unanswered> {
        self.workers().iter().map(|p| p.ask(ANSWER, ask.clone())).collect()
    }

    /// Serves SIGUSR2 in a thread of its own, to the end of the process.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub(crate) fn serve_signals(self: &Arc<Self>, mut wakes: signal_hook::iterator::Signals) -> Result<(), Failed> {
        let control = Arc::clone(self);
        thread("signals", move || {
            threads::persist("who serves signals", || {
                for _ in &mut wakes {
                    fault::point("signals");
                    notice!("suricata", "SIGUSR2: live rule reload");
                    // What came of it was said.
                    let _ = control.reload();
                }
            });
        })
    }
}

/// By how much the priority of those who load and drop rules is lower than the workers' (nice values: a tenth of their share
/// where both want the same processor).
const NICE: i32 = 10;

/// Lowers the calling thread's priority.
fn give_way() {
    let own = rustix::thread::gettid();
    let now = rustix::process::getpriority_process(Some(own)).unwrap_or(0);
    // Without it it is done all the same.
    let _ = rustix::process::setpriority_process(Some(own), now + NICE);
}

/// Does something that takes long in a thread of its own that gives way to the workers, and waits for it.
///
/// # Errors
/// Its own, and where the thread failed.
fn aside<T: Send>(run: impl FnOnce() -> Result<T, Failed> + Send) -> Result<T, Failed> {
    let mut run = Some(run);
    let mut out = None;
    let failed = !std::thread::scope(|s| {
        let (run, out) = (&mut run, &mut out);
        let started = std::thread::Builder::new()
            .name("margay-load".into())
            .stack_size(margay_lua::STACK)
            .spawn_scoped(s, || {
                give_way();
                fault::point("load");
                *out = run.take().map(|run| run());
            });
        // A panic was told, and leaves nothing in `out`.
        started.map(|t| t.join().is_ok()).unwrap_or(true)
    });
    match (out, run) {
        (Some(out), _) => out,
        // There is no thread to be had.
        (None, Some(run)) if !failed => run(),
        (None, _) => Err(Failed::new("threads", "the thread that loads rules failed")),
    }
}

/// Starts a thread that serves the engine from beside.
///
/// # Errors
/// Where there is none to be had.
pub(crate) fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failed> {
    std::thread::Builder::new()
        .name(format!("margay-{name}"))
        // Rules are loaded there, and with them scripts.
        .stack_size(margay_lua::STACK)
        .spawn(|| {
            // None of them needs any.
            if let Err(f) = privileges::shed() {
                error!(f.module, "{}", f.message);
            }
            run();
        })
        .map(drop)
        .map_err(|e| Failed::new("threads", format!("cannot start the thread \"{name}\": {e}")))
}
