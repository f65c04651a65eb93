//! Signals: stop (INT, TERM), reopen the logs (HUP), load the rules anew (USR2, which [`crate::control`] serves).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was signalled.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    rotate: Arc<AtomicBool>,
}

impl Signals {
    /// Begins to take signals. A second INT or TERM ends the process at once, for when the first cannot be served.
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

    /// Begins to take USR2: before anything is loaded, since it would end the process otherwise. What comes before somebody
    /// looks waits.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub(crate) fn reloads() -> std::io::Result<signal_hook::iterator::Signals> {
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGUSR2])
    }

    /// The same as a signal to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the logs are to be reopened; asked once a signal.
    pub(crate) fn rotate(&self) -> bool {
        self.rotate.load(Ordering::Relaxed) && self.rotate.swap(false, Ordering::Relaxed)
    }
}
