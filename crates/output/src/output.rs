//! The traits of an output: [`OutputSettings`] open it for a worker, and the worker hands events to the resulting
//! [`EventSink`].
//!
//! A new output is a module that implements both, and a line in the list of outputs that the configuration may name
//! (`engine/src/settings/outputs.rs`). No other code depends on the kind of output.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use margay_packet::{Packet, Time};

use crate::event::{
    AlertEvent, AnomalyEvent, AppEvent, ArpEvent, DataEvent, DropEvent, EventType, EventTypes, FlowEvent, PacketEvent,
    StatsEvent, StreamEvent,
};
use crate::settings::SinkSettings;
use crate::sinks::{OpenError, Sink};
use crate::writer::Writer;

/// The reason that an output cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file that cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An error of the output's own kind.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// The engine's knowledge of a packet beyond its headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketFate {
    /// The packet is beyond the stream's inspection depth.
    pub past_stream_depth: bool,
    /// A `pass` rule matched the packet's flow.
    pub passed: bool,
    /// A rule alerted on the packet, or earlier on its flow.
    pub alerted: bool,
    /// A `tag` keeps the packet.
    pub tagged: bool,
    /// The packet's flow, for outputs that hold packets ([`EventSink::holds_packets`]).
    pub flow: Option<u64>,
    /// The packet carries data of a TCP stream; also for those outputs.
    pub has_data: bool,
}

impl PacketFate {
    /// Adds what is known of another packet from the same frame.
    pub const fn add(&mut self, other: PacketFate) {
        self.past_stream_depth |= other.past_stream_depth;
        self.passed |= other.passed;
        self.alerted |= other.alerted;
        self.tagged |= other.tagged;
        if self.flow.is_none() {
            (self.flow, self.has_data) = (other.flow, other.has_data);
        }
    }
}

/// Counters for `pcap_log.*`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PcapLogCounters {
    /// `pcap_log.written`: packets written.
    pub written: u64,
    /// `pcap_log.filtered_bpf`: packets that the filter rejected.
    pub filtered_bpf: u64,
    /// Packets that could not be written.
    pub lost: u64,
    /// `pcap_log.not_held`: packets before an alert for which `hold-memcap` had no room.
    pub not_held: u64,
}

/// An event, as outputs receive it.
#[derive(Clone, Copy)]
pub enum Event<'a> {
    /// A rule matched.
    Alert(&'a AlertEvent<'a>),
    /// A protocol violation or another irregularity.
    Anomaly(&'a AnomalyEvent<'a>),
    /// The TCP engine has processed a packet.
    Stream(&'a StreamEvent<'a>),
    /// A packet was dropped.
    Drop(&'a DropEvent<'a>),
    /// A flow ended: one record.
    Flow(&'a FlowEvent<'a>),
    /// A flow ended: a record for each direction.
    Netflow(&'a FlowEvent<'a>),
    /// A `tag` keeps a packet.
    Packet(&'a PacketEvent<'a>),
    /// An ARP packet.
    Arp(&'a ArpEvent<'a>),
    /// An event of the application layer.
    App(&'a AppEvent<'a>),
    /// Bytes of a stream or body.
    Data(&'a DataEvent<'a>),
    /// The counters.
    Stats(&'a StatsEvent<'a>),
}

impl Debug for Event<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:?})", self.kind())
    }
}

impl Event<'_> {
    /// The event's type.
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
            Event::Data(e) => e.kind,
            Event::Stats(_) => EventType::Stats,
        }
    }
}

/// The worker that an output is opened for.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// The time in the names of new files.
    pub now: Time,
    /// Identifier of the worker's thread.
    pub thread: u64,
    /// Number of the worker, from 1.
    pub worker: usize,
    /// The number of outputs with the same name before it in the configuration.
    pub before: usize,
    /// The writing thread, if there is one.
    pub(crate) writer: Option<&'a Arc<Writer>>,
}

/// The options of an output.
pub trait OutputSettings: Any + Debug + Send {
    /// The output's name below `outputs:`.
    fn name(&self) -> &'static str;

    /// Opens the output for the first worker.
    ///
    /// # Errors
    /// A file or another resource that cannot be opened.
    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError>;

    /// Settings of the sink; `None` if the output does not write lines.
    fn sink(&mut self) -> Option<&mut SinkSettings> {
        None
    }

    /// The file that the output writes, if it has no [`OutputSettings::sink`].
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Adapts the settings to the number of workers. Returns a sentence for the log if that changes something.
    fn for_workers(&mut self, workers: usize) -> Option<&'static str> {
        let _ = workers;
        None
    }
}

/// One worker's output. Flushing, reopening and the like go to its [`EventSink::sink`], if it has one.
pub trait EventSink: Debug + Send {
    /// The event types that it takes.
    fn types(&self) -> EventTypes;

    /// Handles an event of those types.
    fn event(&mut self, event: Event<'_>);

    /// The worker's end of its sink.
    fn sink(&mut self) -> Option<&mut Sink>;

    /// The same output for another worker; `None` if that worker has no part in it. By default as [`EventSink::beside`].
    ///
    /// # Errors
    /// A file of the worker's own that cannot be created.
    fn share(&mut self, at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError> {
        let _ = at;
        Ok(self.beside())
    }

    /// The same output for a thread without packets; `None` if that thread has no part in it.
    fn beside(&mut self) -> Option<Box<dyn EventSink>>;

    /// Sets the interface that packets come from.
    fn set_interface(&mut self, interface: &str) {
        let _ = interface;
    }

    /// Sets the tenant of the events that follow; 0 is no tenant.
    fn set_tenant(&mut self, tenant: u32) {
        let _ = tenant;
    }

    /// Limit of the stream bytes that the output shows with an alert.
    fn stream_payload(&self) -> usize {
        0
    }

    /// Whether the output takes packets.
    fn wants_packets(&self) -> bool {
        false
    }

    /// Handles a packet, if the output takes packets.
    fn packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        let _ = (packet, fate);
    }

    /// Whether the output holds packets of flows until a rule matches.
    fn holds_packets(&self) -> bool {
        false
    }

    /// A flow is over, with or without alerts, or continues at another worker.
    fn flow_ended(&mut self, flow: u64, alerted: bool) {
        let _ = (flow, alerted);
    }

    /// Whether all workers share the packets that the output holds.
    fn shares_held(&self) -> bool {
        false
    }

    /// The open file of an output that takes packets.
    fn capture_file(&self) -> Option<String> {
        None
    }

    /// Counters of an output that takes packets.
    fn packet_counters(&self) -> Option<PcapLogCounters> {
        None
    }

    /// Called about once a second by one worker.
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

    /// As [`EventSink::flush`], at the end of the run.
    fn finish(&mut self) {
        if let Some(sink) = self.sink() {
            sink.finish();
        }
    }

    /// Reopens all files, after they were moved away.
    fn reopen(&mut self, now: Time) {
        if let Some(sink) = self.sink() {
            sink.reopen(now);
        }
    }
}
