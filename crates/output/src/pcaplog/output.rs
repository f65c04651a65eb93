//! `pcap-log` as an output. It takes packets, but no events.

use std::path::Path;

use margay_packet::{Packet, Time};

use super::{PacketFate, PcapLog, PcapLogCounters, PcapLogSettings, PcapMode};
use crate::event::EventTypes;
use crate::output::{Event, EventSink, Opening, OutputSettings};
use crate::outputs::OutputError;
use crate::sinks::Sink;

impl OutputSettings for PcapLogSettings {
    fn name(&self) -> &'static str {
        "pcap-log"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        Ok(Box::new(PcapLog::new(self.clone(), at.worker, at.thread)?))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn for_workers(&mut self, workers: usize) -> Option<&'static str> {
        if self.mode != PcapMode::Normal || workers < 2 {
            return None;
        }
        self.mode = PcapMode::Multi;
        Some("mode normal is for one worker: each worker writes files of its own (mode multi)")
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

    /// In mode `normal` the first worker has the only ring.
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
