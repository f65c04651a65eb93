//! The load on an engine under test: the sender, the wire, and the rate.

mod probe;
mod stream;
mod tcpreplay;
mod traffic;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use probe::{Latency, Probe};
pub(crate) use stream::Stream;
pub(crate) use tcpreplay::TcpReplay;
pub(crate) use traffic::Traffic;
pub(crate) use wire::{Interfaces, PAIRS_MOST, Pair, Wire, numbered, softnet_drops};

use crate::made::Session;
use crate::problem::Outcome;

/// Traffic to send onto an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A capture's packets.
    Capture(PathBuf),
    /// The traffic of a profile file.
    Profile(PathBuf),
    /// The traffic of a named preset.
    Preset(String),
}

impl What {
    /// Describes it as part of a sentence.
    pub(crate) fn describe(&self) -> String {
        match self {
            What::Capture(path) => format!("capture {}", path.display()),
            What::Profile(path) => format!("profile {}", path.display()),
            What::Preset(name) => format!("preset {name}"),
        }
    }
}

/// A request to a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Order {
    /// Packets a second.
    pub(crate) rate: f64,
    /// For how long.
    pub(crate) time: Duration,
}

/// A sender's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sent {
    /// Packets that should have been sent.
    pub(crate) offered: f64,
    /// Packets that were sent.
    pub(crate) packets: f64,
    /// Their bytes; NaN if the sender does not report them.
    pub(crate) bytes: f64,
    /// The time it took, in seconds.
    pub(crate) seconds: f64,
    /// Lateness of packets at the 99th percentile, in seconds; NaN if the sender does not report it.
    pub(crate) late: f64,
}

/// A sender of packets at a given rate.
pub(crate) trait Sender: Send {
    /// Its description for reports.
    fn describe(&self) -> String;

    /// Starts sending.
    ///
    /// # Errors
    /// If it cannot start.
    fn start(&mut self, order: Order, session: &mut Session) -> Outcome<Box<dyn Sending>>;
}

/// An active sender. It stops when dropped.
pub(crate) trait Sending {
    /// Number of packets sent so far, if known.
    fn so_far(&mut self) -> Option<f64>;

    /// Whether it has finished.
    ///
    /// # Errors
    /// If it failed.
    fn done(&mut self) -> Outcome<bool>;

    /// The final report. Call it after the sender has finished.
    ///
    /// # Errors
    /// If it failed, or gives no report.
    fn report(&mut self) -> Outcome<Sent>;
}
