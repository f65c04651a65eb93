//! Control of a running engine, through the unix socket and signals.
//!
//! [`Control`] has the active engines, the workers, and the queue of capture files. The control threads share it, and none of
//! them is on the packet path: the socket's thread, one for each client, one for SIGUSR2, and one that drops what workers no
//! longer need. A request to a worker goes through its [`Post`].
//!
//! - `reload`: replaces rules and tenants.
//! - `socket`, `message`: the socket, and its protocol.
//! - `commands`: the socket's commands.

pub(crate) mod commands;
pub(crate) mod message;
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

use margay_app::expect::{Expect, ExpectedFlow};
use margay_app::file::FileEngine;
use margay_config::{Capture, Config, RunOptions};
use margay_output::eve::Feed;
use margay_output::{error, notice};
use margay_packet::fault;
use margay_watch::Hub;

use crate::engines::{EngineSet, Loading};
use crate::post::{Post, Unanswered};
use crate::queue::Queue;
use crate::service::watchdog::Watch;
use crate::service::{Service, thread};
use crate::settings;
use crate::signals::Signals;
use crate::watching::Watching;
use crate::worker::engines::{AppWants, Install, Retired};
use crate::worker::{Announce, app_wants, test_scripts};
use crate::{Failed, threads};

/// Limit of the wait for a worker's answer to a request.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);
/// How long a reload waits for workers to take the new rules. Workers that wait for packets take them with the next packet.
const TAKEN: Duration = Duration::from_millis(500);

/// State that all control threads share.
pub(crate) struct Control {
    pub(crate) options: RunOptions,
    pub(crate) ips: bool,
    pub(crate) started: Instant,
    /// The configuration at the start. Settings other than rules stay fixed.
    pub(crate) config: Config,
    /// The configuration as of the last load of rules.
    pub(crate) rules_config: RwLock<Arc<Config>>,
    /// Fingerprints that outputs show.
    shown: settings::JaWants,
    /// The folder of logs and reports.
    pub(crate) dir: PathBuf,
    engines: RwLock<Arc<EngineSet>>,
    /// Held while engines are replaced: one replacement at a time.
    changing: Mutex<()>,
    /// A background reload is running.
    reloading: AtomicBool,
    workers: Mutex<Vec<Arc<Post>>>,
    /// Receives objects to drop off the packet path.
    reclaimer: mpsc::Sender<Retired>,
    pub(crate) signals: Arc<Signals>,
    /// Whether detection is profiled or traced.
    pub(crate) watching: Watching,
    /// `--unix-socket`: capture files to read.
    pub(crate) queue: Option<Queue>,
    /// The live capture, if there is one.
    pub(crate) live: OnceLock<LiveInfo>,
    /// Workers that the watchdog watches.
    pub(crate) watch: Arc<Watch>,
    /// The state of the service; not set in tests.
    pub(crate) service: OnceLock<Arc<Service>>,
    /// Data for live views.
    pub(crate) watched: Watched,
    /// The error that stops the engine.
    pub(crate) failed: OnceLock<Failed>,
}

/// Data for live views, to which the workers contribute.
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) hub: Arc<Hub>,
    /// Receives alerts and flows from the workers' outputs.
    pub(crate) feed: Arc<Feed>,
}

/// Description of a live capture.
#[derive(Debug)]
pub(crate) struct LiveInfo {
    /// The run mode's name.
    pub(crate) mode: &'static str,
    /// The name of the kind of capture.
    pub(crate) capture: &'static str,
    /// The number of workers.
    pub(crate) workers: usize,
    /// The interfaces' names.
    pub(crate) interfaces: Vec<String>,
}

/// Takes a lock even if it is poisoned: nothing behind these locks can be left half done.
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
                // A failure does not stop later drops.
                threads::once(|| {
                    fault::point("drop");
                    drop(retired);
                });
            }
        })?;
        let queue = matches!(options.capture, Some(Capture::UnixSocket(_))).then(Queue::default);
        Ok(Arc::new(Control {
            shown: settings::JaWants { ja4: settings::shows_ja4(&config, &dir)?, ..test_scripts(&config, &dir)? },
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

    /// The active engines.
    pub(crate) fn engines(&self) -> Arc<EngineSet> {
        Arc::clone(&self.engines.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn loading<'a>(&'a self, config: &'a Config) -> Loading<'a> {
        Loading { config, options: &self.options, ips: self.ips, dir: &self.dir, trees: false }
    }

    /// The requirements of rules and outputs for the application layer.
    pub(crate) fn wants(&self, set: &EngineSet) -> Result<AppWants, Failed> {
        app_wants(&self.config, &self.options, set, self.shown)
    }

    /// Registers a worker, which will check the returned post for requests. `take` gives it the active engines; later ones
    /// arrive through the post.
    pub(crate) fn enter(&self, take: impl FnOnce(Arc<EngineSet>) -> Result<(), Failed>) -> Result<Arc<Post>, Failed> {
        // Nothing may replace the engines in between.
        let _changing = held(&self.changing);
        take(self.engines())?;
        let post = Arc::new(Post::new(self.reclaimer.clone()));
        held(&self.workers).push(Arc::clone(&post));
        Ok(post)
    }

    /// Unregisters the worker of that post, which ends.
    pub(crate) fn leave(&self, post: &Arc<Post>) {
        held(&self.workers).retain(|p| !Arc::ptr_eq(p, post));
    }

    /// The posts of all workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Post>> {
        held(&self.workers).clone()
    }

    /// Sends the announcements of one worker's parsers to all other workers; `None` if there is one worker. `own` is its post.
    pub(crate) fn announce(self: &Arc<Control>, own: &Arc<Post>, workers: usize) -> Option<Announce> {
        if workers < 2 {
            return None;
        }
        let (control, own) = (Arc::clone(self), Arc::clone(own));
        Some(Box::new(move |said: &[Expect], vlans, now| {
            for post in control.workers().iter().filter(|p| !Arc::ptr_eq(p, &own)) {
                let mut said: Vec<Expect> = said
                    .iter()
                    .map(|e| Expect { flow: ExpectedFlow { ..e.flow }, parent: e.parent, what: e.what.clone() })
                    .collect();
                // A worker that no longer takes requests does not need it.
                let _ = post.send(Box::new(move |w, _| w.pipeline.stages.expected.note(&mut said, vlans, now)));
            }
        }))
    }

    /// Replaces the active engines. The caller holds `changing`. Returns the longest time for which this kept a worker busy,
    /// in processor time.
    fn replace(&self, set: EngineSet) -> Result<Duration, Failed> {
        let before = self.engines();
        let wants = self.wants(&set)?;
        // Loads libmagic, if only the new rules use it.
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
            // A worker that has ended needs no rules, and a worker that waits for packets takes the rules with the next
            // packet.
            if post.install(install).is_ok() && post.ask(TAKEN, |_, _| ()).is_ok() {
                kept = kept.max(post.kept());
            }
        }
        // Datasets that no rule uses any more are saved now. The others stay active.
        for problem in before.datasets().save_but(&set.datasets()) {
            error!("datasets", "{problem}");
        }
        Ok(kept)
    }

    /// Completes the start, when everything is open and packets may arrive: drops what only the start needs, and notifies
    /// waiting processes.
    ///
    /// # Errors
    /// See [`Service::ready`].
    pub(crate) fn ready(self: &Arc<Self>) -> Result<(), Failed> {
        self.service.get().map_or(Ok(()), |s| s.ready(&self.watch, &self.signals))
    }

    /// Sends every worker the same request. Without workers, there is no answer.
    ///
    /// # Errors
    /// A worker does not answer.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&mut crate::worker::Worker, &mut crate::stats::Reporter) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Unanswered> {
        self.workers().iter().map(|p| p.ask(ANSWER, ask.clone())).collect()
    }

    /// Handles SIGUSR2 in a separate thread, until the process ends.
    ///
    /// # Errors
    /// The thread cannot start.
    pub(crate) fn serve_signals(self: &Arc<Self>, mut wakes: signal_hook::iterator::Signals) -> Result<(), Failed> {
        let control = Arc::clone(self);
        thread("signals", move || {
            threads::persist("who serves signals", || {
                for _ in &mut wakes {
                    fault::point("signals");
                    notice!("suricata", "SIGUSR2: live rule reload");
                    // The result was logged.
                    let _ = control.reload();
                }
            });
        })
    }
}

/// Added to the nice value of threads that load and drop rules. They get a tenth of a worker's share if both need the same
/// processor.
const NICE: i32 = 10;

/// Lowers the calling thread's priority.
fn give_way() {
    let own = rustix::thread::gettid();
    let now = rustix::process::getpriority_process(Some(own)).unwrap_or(0);
    // If this fails, the work continues at the old priority.
    let _ = rustix::process::setpriority_process(Some(own), now + NICE);
}

/// Runs a long task in a thread with a lower priority than the workers, and waits for it.
///
/// # Errors
/// The task's own error, or the thread failed.
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
        // A panic was logged, and leaves `out` empty.
        started.map(|t| t.join().is_ok()).unwrap_or(true)
    });
    match (out, run) {
        (Some(out), _) => out,
        // The thread could not start.
        (None, Some(run)) if !failed => run(),
        (None, _) => Err(Failed::new("threads", "the thread that loads rules failed")),
    }
}
