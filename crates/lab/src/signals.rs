//! SIGINT, SIGTERM and SIGHUP ask a command to stop. At its next check it stops, keeps its results and cleans up.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// Handles the signals from now on. A second signal of the same kind ends the process at once; `margay lab clean` then
/// does the clean-up.
pub(crate) fn listen() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Without a handler, the signal still ends the process by default.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&STOP));
        let _ = signal_hook::flag::register(signal, Arc::clone(&STOP));
    }
}

/// Whether a signal asked to stop.
pub(crate) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}
