//! [`Medium`]: the engine's interface to a capture source. A new source is a module that reads its settings and implements
//! this trait, and a line in [`SOURCES`]. No other code depends on the kind of source.

use std::any::Any;
use std::fmt::Debug;

use margay_capture::live::{LiveCounters, LiveSource};
use margay_config::{Config, RunOptions};

use super::bypass::Table;
use super::cpus::Cpus;
use super::settings::{Device, RunMode};
use crate::Failed;

pub(crate) use crate::worker::SourceCounters as Counters;

/// Creates the devices of the command line and the configuration; `None` if another source is selected.
type Devices = fn(&Config, &RunOptions, RunMode, &Cpus) -> Option<Result<Vec<Device>, Failed>>;

/// The sources that a command line can select. The last one is the default.
static SOURCES: &[Devices] =
    &[super::settings::nfqueue::chosen, super::xdp::chosen, super::libpcap::chosen, super::af_packet::chosen];

/// The devices of the selected source.
///
/// # Errors
/// No device, a device that does not exist, or an invalid or unsupported setting.
pub(crate) fn devices(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Result<Vec<Device>, Failed> {
    let mut asked = SOURCES.iter().filter_map(|devices| devices(config, options, mode, cpus));
    asked.next().unwrap_or_else(|| Err(Failed::new("runmodes", "there is no such source of packets")))
}

/// The numbers of fan-out groups, for one interface or two that are bridged.
pub(super) type Groups = [Option<u16>; 2];

/// The worker that opens a source.
pub(crate) struct Opening<'a> {
    pub(crate) device: &'a Device,
    /// Number of the worker on the device, from 0.
    pub(crate) nth: usize,
    /// Name of its thread.
    pub(crate) thread: &'a str,
    /// Flows that the kernel bypasses, if kernel bypass is on.
    pub(crate) bypass: Option<&'a Table>,
}

/// A kind of capture source.
pub(crate) trait Medium: Any + Debug + Send + Sync {
    /// Its section in the configuration, as messages name it.
    fn section(&self) -> &'static str;

    /// Its name as a kind of capture.
    fn capture(&self) -> &'static str;

    /// Whether packets may be dropped.
    fn drops(&self) -> bool {
        false
    }

    /// The interfaces of a device with this name, indexed by the source's ends.
    fn interfaces<'a>(&'a self, name: &'a str) -> [Option<&'a str>; 2] {
        [Some(name), None]
    }

    /// Whether all packets belong to these interfaces.
    fn is_of_interface(&self) -> bool {
        true
    }

    /// The fan-out groups with a configured number.
    fn groups(&self) -> Groups {
        [None, None]
    }

    /// The number of packets that are received together, if the source sets it.
    fn batch(&self) -> Option<usize> {
        None
    }

    /// The function that lists its counters by name.
    fn counters(&self) -> Counters {
        ring_counters
    }

    /// Opens the source for a worker. The workers of a device call this one after the other, and the first one determines
    /// their groups.
    ///
    /// # Errors
    /// The system refuses.
    fn open(&self, at: &Opening<'_>, groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed>;
}

/// The counters of a packet ring.
fn ring_counters(c: &LiveCounters, f: &mut dyn FnMut(&str, u64)) {
    f("capture.afpacket.busy_loop_avg", 0);
    f("capture.afpacket.polls", c.polls);
    f("capture.afpacket.poll_signal", c.poll_signal);
    f("capture.afpacket.poll_timeout", c.poll_timeout);
    f("capture.afpacket.poll_data", c.poll_data);
    f("capture.afpacket.poll_errors", c.poll_errors);
    f("capture.afpacket.send_errors", c.send_errors);
    f("capture.afpacket.ring_full", c.freezes);
    f("capture.afpacket.truncated", c.truncated);
    f("capture.afpacket.unreadable", c.unreadable);
    f("capture.afpacket.reopened", c.reopened);
    f("capture.afpacket.sent", c.sent);
}
