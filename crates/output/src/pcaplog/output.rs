//! `pcap-log` as an output. It takes packets, but no events.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use margay_packet::{Packet, Time};

use super::{PcapLog, PcapLogError, PcapLogSettings, PcapMode};
use crate::event::EventTypes;
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings, PacketFate, PcapLogCounters};
use crate::sinks::Sink;

impl From<PcapLogError> for OutputError {
    fn from(error: PcapLogError) -> OutputError {
        OutputError::Other(Box::new(error))
    }
}

impl OutputSettings for PcapLogSettings {
    fn name(&self) -> &'static str {
        "pcap-log"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        let log = PcapLog::new(self.clone(), at.worker, at.thread)?;
        Ok(if self.shared {
            Box::new(SharedLog { log: Arc::new(Mutex::new(log)), first: true })
        } else {
            Box::new(log)
        })
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn for_workers(&mut self, workers: usize) -> Option<&'static str> {
        if self.mode != PcapMode::Normal || workers < 2 {
            return None;
        }
        self.shared = true;
        Some("mode normal writes one file, for which workers wait; with mode multi each has its own")
    }
}

/// A file that all workers write to: mode `normal` with several workers.
#[derive(Debug)]
struct SharedLog {
    log: Arc<Mutex<PcapLog>>,
    /// Whether this is the first worker's, which has the counters of all.
    first: bool,
}

impl SharedLog {
    fn locked(&self) -> MutexGuard<'_, PcapLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for SharedLog {
    fn types(&self) -> EventTypes {
        EventTypes::NONE
    }

    fn event(&mut self, _event: Event<'_>) {}

    fn sink(&mut self) -> Option<&mut Sink> {
        None
    }

    fn share(&mut self, _at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError> {
        Ok(Some(Box::new(SharedLog { log: Arc::clone(&self.log), first: false })))
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        None
    }

    fn wants_packets(&self) -> bool {
        true
    }

    fn packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        self.locked().packet(packet, fate);
    }

    fn holds_packets(&self) -> bool {
        self.locked().held.is_some()
    }

    fn flow_ended(&mut self, flow: u64, alerted: bool) {
        self.locked().flow_ended(flow, alerted);
    }

    fn shares_held(&self) -> bool {
        true
    }

    fn capture_file(&self) -> Option<String> {
        self.locked().open_file()
    }

    fn packet_counters(&self) -> Option<PcapLogCounters> {
        self.first.then(|| self.locked().counters())
    }

    fn tick(&mut self, _now: Time) {
        self.locked().flush();
    }

    fn flush(&mut self) {
        self.locked().flush();
    }

    /// The last worker closes the file.
    fn finish(&mut self) {
        self.locked().flush();
    }

    fn reopen(&mut self, _now: Time) {
        self.locked().reopen();
    }
}

impl PcapLog {
    /// The full path of the open file.
    fn open_file(&self) -> Option<String> {
        let path = &self.open.as_ref()?.path;
        Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string())
    }
}

impl EventSink for PcapLog {
    fn types(&self) -> EventTypes {
        EventTypes::NONE
    }

    fn event(&mut self, _event: Event<'_>) {}

    fn sink(&mut self) -> Option<&mut Sink> {
        None
    }

    /// In mode `normal` a single worker has the only ring.
    fn share(&mut self, at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError> {
        if self.settings.mode == PcapMode::Multi { self.settings.open(at).map(Some) } else { Ok(None) }
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        None
    }

    fn wants_packets(&self) -> bool {
        true
    }

    fn packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        PcapLog::packet(self, packet, fate);
    }

    fn holds_packets(&self) -> bool {
        self.held.is_some()
    }

    fn flow_ended(&mut self, flow: u64, alerted: bool) {
        PcapLog::flow_ended(self, flow, alerted);
    }

    fn capture_file(&self) -> Option<String> {
        self.open_file()
    }

    fn packet_counters(&self) -> Option<PcapLogCounters> {
        Some(self.counters())
    }

    fn tick(&mut self, _now: Time) {
        PcapLog::flush(self);
    }

    fn flush(&mut self) {
        PcapLog::flush(self);
    }

    fn finish(&mut self) {
        PcapLog::finish(self);
    }

    fn reopen(&mut self, _now: Time) {
        PcapLog::reopen(self);
    }
}
