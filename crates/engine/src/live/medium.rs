//! What a capture source is to the engine: [`Medium`]. A source is a file that reads its settings and implements it, and a line in
//! [`SOURCES`]. Nothing else tells sources apart.

use std::any::Any;
use std::fmt::Debug;

use margay_capture::live::{LiveCounters, LiveSource};
use margay_config::{Config, RunOptions};

use super::bypass::Table;
use super::cpus::Cpus;
use super::settings::{Device, RunMode};
use crate::Failed;

/// Makes the devices that the command line and the configuration name; `None` where they name another source.
type Devices = fn(&Config, &RunOptions, RunMode, &Cpus) -> Option<Result<Vec<Device>, Failed>>;

/// The sources that a command line may ask for. The last one is the default.
static SOURCES: &[Devices] =
    &[super::settings::nfqueue::chosen, super::xdp::chosen, super::libpcap::chosen, super::af_packet::chosen];

/// The devices of the source that was asked for.
///
/// # Errors
/// None; one that does not exist; a setting that cannot be, or that is for something that is not here.
pub(crate) fn devices(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Result<Vec<Device>, Failed> {
    let mut asked = SOURCES.iter().filter_map(|devices| devices(config, options, mode, cpus));
    asked.next().unwrap_or_else(|| Err(Failed::new("runmodes", "there is no such source of packets")))
}

/// The numbers of fan-out groups, of one interface or of two that are bridged.
pub(super) type Groups = [Option<u16>; 2];

/// The worker that opens a source.
pub(crate) struct Opening<'a> {
    pub(crate) device: &'a Device,
    /// Number of the worker on the device, from 0.
    pub(crate) nth: usize,
    /// Name of its thread.
    pub(crate) thread: &'a str,
    /// Flows that the kernel bypasses, where that is wanted.
    pub(crate) bypass: Option<&'a Table>,
}

/// Gives what a source counts under the names of its counters.
pub(crate) type Counters = fn(&LiveCounters, &mut dyn FnMut(&str, u64));

/// By what packets come from a device.
pub(crate) trait Medium: Any + Debug + Send + Sync {
    /// Its section in the configuration, as messages name it.
    fn section(&self) -> &'static str;

    /// Its name as a kind of capture.
    fn capture(&self) -> &'static str;

    /// Whether packets may be dropped.
    fn drops(&self) -> bool {
        false
    }

    /// The interfaces that a device of this name is of, by the numbers of a source's ends.
    fn interfaces<'a>(&'a self, name: &'a str) -> [Option<&'a str>; 2] {
        [Some(name), None]
    }

    /// Whether all packets are of these interfaces.
    fn is_of_interface(&self) -> bool {
        true
    }

    /// The fan-out groups that were asked for by number.
    fn groups(&self) -> Groups {
        [None, None]
    }

    /// How many packets are received together, where the source says so.
    fn batch(&self) -> Option<usize> {
        None
    }

    /// Names of its counters.
    fn counters(&self) -> Counters {
        ring_counters
    }

    /// Opens it for a worker, one after the other on each device: the first says which group they are.
    ///
    /// # Errors
    /// What the system refuses.
    fn open(&self, at: &Opening<'_>, groups: &mut Groups) -> Result<Box<dyn LiveSource>, Failed>;
}

/// Those of a ring of packets.
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
