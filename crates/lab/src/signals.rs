//! SIGINT, SIGTERM and SIGHUP ask a command to stop: it does so at its next look, keeps what it has and cleans up.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// From now on signals ask to stop. A second signal of the same kind ends the process at once; `margay lab clean` then
/// does what was left.
pub(crate) fn listen() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // A signal that cannot be caught ends the process as it would have done anyway.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&STOP));
        let _ = signal_hook::flag::register(signal, Arc::clone(&STOP));
    }
}

/// Whether somebody asked to stop.
pub(crate) fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}
