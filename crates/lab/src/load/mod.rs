//! What an engine under test is given to read: who sends it, over which wire, and how fast.

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
pub(crate) use wire::{Far, Interfaces, Wire, softnet_drops};

use crate::made::Session;
use crate::problem::Outcome;

/// What is sent onto an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A capture's packets.
    Capture(PathBuf),
    /// The traffic of a profile.
    Profile(PathBuf),
    /// That of a preset, by its name.
    Preset(String),
}

impl What {
    /// As part of a sentence.
    pub(crate) fn describe(&self) -> String {
        match self {
            What::Capture(path) => format!("capture {}", path.display()),
            What::Profile(path) => format!("profile {}", path.display()),
            What::Preset(name) => format!("preset {name}"),
        }
    }
}

/// What is asked of a sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Order {
    /// Packets a second.
    pub(crate) rate: f64,
    /// For how long.
    pub(crate) time: Duration,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sent {
    /// Packets that were to be sent.
    pub(crate) offered: f64,
    /// Packets that were.
    pub(crate) packets: f64,
    /// Their bytes; not a number where the sender does not tell.
    pub(crate) bytes: f64,
    /// The time it took, in seconds.
    pub(crate) seconds: f64,
    /// How late packets were at the 99th percentile, in seconds; not a number where the sender does not tell.
    pub(crate) late: f64,
}

/// Something that sends packets at a rate.
pub(crate) trait Sender: Send {
    /// What it is, for reports.
    fn describe(&self) -> String;

    /// Begins to send.
    ///
    /// # Errors
    /// Where it cannot.
    fn start(&mut self, order: Order, session: &mut Session) -> Outcome<Box<dyn Sending>>;
}

/// A sender at work. Dropped, it stops.
pub(crate) trait Sending {
    /// How many packets it has sent so far, where it can tell.
    fn so_far(&mut self) -> Option<f64>;

    /// Whether it is done.
    ///
    /// # Errors
    /// Where it failed.
    fn done(&mut self) -> Outcome<bool>;

    /// What was sent; asked once it is done.
    ///
    /// # Errors
    /// Where it failed, or does not tell.
    fn report(&mut self) -> Outcome<Sent>;
}
