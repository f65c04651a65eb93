//! What an output is: [`OutputSettings`] open it for a worker, and the worker hands events to the [`EventSink`] that comes of it.
//!
//! An output is a file that implements both, and a line in the list of those that the configuration may name
//! (`engine/src/settings/outputs.rs`). Nothing else tells outputs apart.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use margay_packet::{Packet, Time};

use crate::event::{
    AlertEvent, AnomalyEvent, AppEvent, ArpEvent, DropEvent, EventType, EventTypes, FlowEvent, PacketEvent, StatsEvent,
    StreamEvent,
};
use crate::outputs::OutputError;
use crate::pcaplog::{PacketFate, PcapLogCounters};
use crate::settings::SinkSettings;
use crate::sinks::Sink;
use crate::writer::Writer;

/// An event that outputs take.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A rule matched.
    Alert(&'a AlertEvent<'a>),
    /// Something that should not be was seen.
    Anomaly(&'a AnomalyEvent<'a>),
    /// The TCP engine is done with a packet.
    Stream(&'a StreamEvent<'a>),
    /// A packet was dropped.
    Drop(&'a DropEvent<'a>),
    /// A flow ended: one record.
    Flow(&'a FlowEvent<'a>),
    /// A flow ended: a record for each direction.
    Netflow(&'a FlowEvent<'a>),
    /// A packet is kept by a `tag`.
    Packet(&'a PacketEvent<'a>),
    /// An ARP packet.
    Arp(&'a ArpEvent<'a>),
    /// Something of the application layer.
    App(&'a AppEvent<'a>),
    /// The counters.
    Stats(&'a StatsEvent<'a>),
}

impl Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?})", self.kind())
    }
}

impl Event<'_> {
    /// Its type.
    pub fn kind(&self) -> EventType {
        match self {
            Event::Alert(_) => EventType::Alert,
            Event::Anomaly(_) => EventType::Anomaly,
            Event::Stream(_) => EventType::Stream,
            Event::Drop(_) => EventType::Drop,
            Event::Flow(_) => EventType::Flow,
            Event::Netflow(_) => EventType::Netflow,
            Event::Packet(_) => EventType::Packet,
            Event::Arp(_) => EventType::Arp,
            Event::App(e) => e.kind,
            Event::Stats(_) => EventType::Stats,
        }
    }
}

/// For whom an output is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The time that names of files are made from.
    pub now: Time,
    /// Identifier of the worker's thread.
    pub thread: u64,
    /// Number of the worker, from 1.
    pub worker: usize,
    /// How many outputs of the same name are before it in the configuration.
    pub before: usize,
    /// The thread that writes, where there is one.
    pub(crate) writer: Option<&'a Arc<Writer>>,
}

/// The options of an output.
pub trait OutputSettings: Any + Debug + Send {
    /// Its name below `outputs:`.
    fn name(&self) -> &'static str;

    /// Opens it for the first worker.
    ///
    /// # Errors
    /// What cannot be opened.
    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError>;

    /// Where its lines go; `None` of what is no lines.
    fn sink(&mut self) -> Option<&mut SinkSettings> {
        None
    }

    /// The file that it writes, for what has no [`OutputSettings::sink`].
    fn path(&self) -> Option<&Path> {
        None
    }

    /// There are so many workers. What it changes because of that, in a sentence.
    fn for_workers(&mut self, workers: usize) -> Option<&'static str> {
        let _ = workers;
        None
    }
}

/// An output of one worker. Flushing, reopening and the like go to its [`EventSink::sink`], if it has one.
pub trait EventSink: Debug + Send {
    /// The types of events that it takes.
    fn types(&self) -> EventTypes;

    /// Something of those types happened.
    fn event(&mut self, event: Event<'_>);

    /// The worker's end of what it writes to.
    fn sink(&mut self) -> Option<&mut Sink>;

    /// The same output for another worker; `None` where that has no part in it.
    ///
    /// # Errors
    /// Files of its own that cannot be made.
    fn share(&mut self, at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError>;

    /// The same output for a thread that has no packets; `None` where that has no part in it.
    fn beside(&mut self) -> Option<Box<dyn EventSink>>;

    /// The interface that packets come from.
    fn set_interface(&mut self, interface: &str) {
        let _ = interface;
    }

    /// Whose the events are from here on; 0 is no tenant.
    fn set_tenant(&mut self, tenant: u32) {
        let _ = tenant;
    }

    /// How many bytes of a stream it shows with an alert.
    fn stream_payload(&self) -> usize {
        0
    }

    /// Whether it takes packets themselves.
    fn wants_packets(&self) -> bool {
        false
    }

    /// A packet, where it takes them.
    fn packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        let _ = (packet, fate);
    }

    /// What it made of packets.
    fn packet_counters(&self) -> Option<PcapLogCounters> {
        None
    }

    /// About once a second from one worker.
    fn tick(&mut self, now: Time) {
        if let Some(sink) = self.sink() {
            sink.tick(now);
        }
    }

    /// Writes everything that is buffered.
    fn flush(&mut self) {
        if let Some(sink) = self.sink() {
            sink.flush();
        }
    }

    /// As [`EventSink::flush`], at the end.
    fn finish(&mut self) {
        if let Some(sink) = self.sink() {
            sink.finish();
        }
    }

    /// Opens all files again, after they were moved away.
    fn reopen(&mut self, now: Time) {
        if let Some(sink) = self.sink() {
            sink.reopen(now);
        }
    }
}
