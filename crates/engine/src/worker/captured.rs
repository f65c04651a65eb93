//! The interfaces that a worker's packets come from.

use margay_capture::live::LiveCounters;
use margay_packet::{Time, Vlans};

/// Of a worker whose packets come from an interface.
pub(crate) struct Captured {
    /// The interfaces: one, or the two that are bridged.
    pub(crate) ends: Vec<End>,
    /// The thread, as statistics name it.
    pub(crate) thread: String,
    /// The names of its source's counters.
    pub(crate) counters: crate::live::medium::Counters,
    /// Tells the other workers of connections that this one's parsers announced.
    pub(crate) announce: Option<Announce>,
}

impl Captured {
    /// Gives its counters in the order they are shown: Suricata's, then our own.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        let mut c = LiveCounters::default();
        self.ends.iter().for_each(|e| c.add(&e.live));
        f("capture.kernel_packets", c.kernel_packets);
        f("capture.kernel_drops", c.kernel_drops);
        f("capture.errors", c.errors);
        (self.counters)(&c, f);
    }

    /// Notes that a batch of one of the interfaces was inspected: so many frames, and so many of them with wrong checksums.
    pub(crate) fn inspected(&mut self, end: usize, decoded: u64, invalid_checksums: u64) {
        if let Some(e) = self.ends.get_mut(end) {
            e.decoded += decoded;
            e.invalid_checksums += invalid_checksums;
        }
    }
}

/// An interface that a worker's packets come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct End {
    pub(crate) interface: String,
    /// What came, and was lost on the way, when that was last asked for.
    pub(crate) live: LiveCounters,
    /// Frames that were decoded.
    pub(crate) decoded: u64,
    /// TCP packets with a wrong checksum.
    pub(crate) invalid_checksums: u64,
}

/// Tells other workers of connections that a flow announced.
pub(crate) type Announce = Box<dyn FnMut(&[margay_app::expect::Expect], Vlans, Time) + Send>;
