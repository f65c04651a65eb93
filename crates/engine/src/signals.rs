//! Signals: stop (INT, TERM), reopen the logs (HUP), reload the rules (USR2, which [`crate::control`] handles).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The signals received so far.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    rotate: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers. A second INT or TERM ends the process at once, in case the first cannot be handled.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn install() -> std::io::Result<Signals> {
        let s = Signals::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&s.stop))?;
            signal_hook::flag::register(signal, Arc::clone(&s.stop))?;
        }
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&s.rotate))?;
        Ok(s)
    }

    /// Installs the handler of USR2. This must come before anything is loaded, because USR2 would otherwise end the process.
    /// Early signals wait until they are read.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn reloads() -> std::io::Result<signal_hook::iterator::Signals> {
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR2])
    }

    /// Has the same effect as a signal to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the engine must stop.
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the logs must be reopened. Returns `true` once per signal.
    pub(crate) fn rotate(&self) -> bool {
        self.rotate.load(Ordering::Relaxed) && self.rotate.swap(false, Ordering::Relaxed)
    }
}
