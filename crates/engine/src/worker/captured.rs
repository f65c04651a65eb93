//! The interfaces that a worker's packets come from.

use margay_capture::live::LiveCounters;
use margay_packet::{Time, Vlans};

/// Calls a function with the name and value of each counter of a source.
pub(crate) type SourceCounters = fn(&LiveCounters, &mut dyn FnMut(&str, u64));

/// The live source of a worker's packets.
pub(crate) struct Captured {
    /// The interfaces: one, or the two that are bridged.
    pub(crate) ends: Vec<End>,
    /// The thread's name in statistics.
    pub(crate) thread: String,
    /// The names of the source's counters.
    pub(crate) counters: SourceCounters,
    /// Reports connections that this worker's parsers expect to the other workers.
    pub(crate) announce: Option<Announce>,
    /// Counters of searches for other workers, if the workers of the interface help each other.
    pub(crate) ahead: Option<AheadCounters>,
}

/// Counters of workers that search payloads for each other.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AheadCounters {
    /// Frames that this worker offered to others.
    pub(crate) offered: u64,
    /// Payloads that it searched for others.
    pub(crate) searched: u64,
    /// Searches of others that it used.
    pub(crate) used: u64,
}

impl Captured {
    /// Calls `f` for each counter in display order: Suricata's, then Margay's own.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&str, u64)) {
        let mut c = LiveCounters::default();
        self.ends.iter().for_each(|e| c.add(&e.live));
        f("capture.kernel_packets", c.kernel_packets);
        f("capture.kernel_drops", c.kernel_drops);
        f("capture.errors", c.errors);
        (self.counters)(&c, f);
        if let Some(a) = &self.ahead {
            f("search_ahead.offered", a.offered);
            f("search_ahead.searched", a.searched);
            f("search_ahead.used", a.used);
        }
    }

    /// Counts a batch of frames from one interface as inspected, with the number of wrong checksums.
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
    /// Received and lost packets, as of the last query.
    pub(crate) live: LiveCounters,
    /// Decoded frames.
    pub(crate) decoded: u64,
    /// TCP packets with a wrong checksum.
    pub(crate) invalid_checksums: u64,
}

/// Reports the connections that a flow's parser expects to other workers.
pub(crate) type Announce = Box<dyn FnMut(&[margay_app::expect::Expect], Vlans, Time) + Send>;
