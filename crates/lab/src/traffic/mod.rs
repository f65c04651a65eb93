//! `margay lab traffic`: makes traffic from a profile, and writes it to a capture or sends it on an interface.
//!
//! A profile ([`profile`], [`trex`] for TRex's) names sources: captures of one session, or built-in kinds of session
//! ([`kinds`], [`attack`]). Both become templates ([`template`]), and [`mix`] makes instances of them in time order.
//! [`generate`] writes the packets to a file; [`send`] sends them, or any capture, on an interface.

/// What other parts of the laboratory need to send on time.
pub(crate) mod quick {
    pub(crate) use super::send::{Interface, first, sleep_exactly};
}

mod addr;
mod attack;
pub(crate) mod frame;
pub(crate) mod generate;
mod kinds;
pub(crate) mod mix;
mod preset;
pub(crate) mod profile;
pub(crate) mod rng;
mod send;
pub(crate) mod session;
pub(crate) mod template;
mod trex;
pub(crate) mod units;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Subcommand;

pub(crate) use units::size;

/// Whether the preset exists.
#[cfg(test)]
pub(crate) fn has_preset(name: &str) -> bool {
    preset::text(name).is_ok()
}

/// `margay lab traffic …`.
#[derive(Subcommand)]
pub(crate) enum Traffic {
    /// Makes traffic from a profile and writes it to a capture file
    Gen(generate::Args),
    /// Sends captures or a profile's traffic on an interface
    Send(send::Args),
}

/// Runs `margay lab traffic`.
pub(crate) fn run(command: Traffic) -> ExitCode {
    let result = match command {
        Traffic::Gen(args) => generate::run(args),
        Traffic::Send(args) => send::run(args),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("margay lab: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A flag that SIGINT and SIGTERM set. A second signal ends the process at once.
fn stop_flag() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|e| format!("signals cannot be taken: {e}"))?;
    }
    Ok(stop)
}
