//! All outputs of a worker.

use std::sync::Arc;

use margay_packet::{Packet, Time};

use crate::eve::{Feed, Tee};
use crate::event::{
    AlertEvent, AnomalyEvent, AppEvent, ArpEvent, DataEvent, DropEvent, EventType, EventTypes, FlowEvent, PacketEvent,
    StatsEvent, StreamEvent,
};
use crate::log::{Level, log};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings, PacketFate, PcapLogCounters};
use crate::sinks::{OutputCounters, Sink};
use crate::writer::Writer;

/// One output of a worker.
#[derive(Debug)]
struct Output {
    types: EventTypes,
    /// The number of outputs with the same name before it.
    before: usize,
    sink: Box<dyn EventSink>,
}

impl Output {
    fn new(sink: Box<dyn EventSink>, before: usize) -> Output {
        Output { types: sink.types(), before, sink }
    }
}

/// The outputs of one worker.
///
/// [`Outputs::new`] opens them for the first worker, [`Outputs::share`] creates the others. An event that no output
/// takes costs only the bit test of [`Outputs::wants`]. [`Outputs::end_batch`] hands over the collected lines.
#[derive(Debug)]
pub struct Outputs {
    /// Event types that are needed now.
    wants: EventTypes,
    /// Event types that the outputs take, with or without an observer.
    written: EventTypes,
    all: Vec<Output>,
    /// Whether an output takes packets.
    wants_packets: bool,
    /// Whether an output holds packets of flows until a rule matches.
    holds_packets: bool,
    writer: Option<Arc<Writer>>,
    /// Counters of the outputs of all workers.
    counters: OutputCounters,
    /// The observer's feed.
    tee: Option<Box<Tee>>,
}

impl Outputs {
    fn of(
        mut all: Vec<Output>,
        writer: Option<Arc<Writer>>,
        counters: OutputCounters,
        tee: Option<Box<Tee>>,
    ) -> Outputs {
        all.iter_mut().filter_map(|o| o.sink.sink()).for_each(|s| counters.register(s));
        let written = all.iter().fold(EventTypes::NONE, |types, o| types.union(o.types));
        let wants_packets = all.iter().any(|o| o.sink.wants_packets());
        let holds_packets = all.iter().any(|o| o.sink.holds_packets());
        Outputs { wants: written, written, all, wants_packets, holds_packets, writer, counters, tee }
    }

    /// Opens all outputs, for worker 0. `now` is the time in the names of files. `thread` is the identifier of the
    /// worker's thread, for `pcap-log`.
    ///
    /// # Errors
    /// The first output that cannot be opened.
    pub fn new(settings: Vec<Box<dyn OutputSettings>>, now: Time, thread: u64) -> Result<Outputs, OutputError> {
        let mut all: Vec<Output> = Vec::new();
        for (n, s) in settings.iter().enumerate() {
            let before = settings.iter().take(n).filter(|other| other.name() == s.name()).count();
            let sink = s.open(&Opening { now, thread, worker: 1, before, writer: None })?;
            all.push(Output::new(sink, before));
        }
        Ok(Outputs::of(all, None, OutputCounters::default(), None))
    }

    /// The same outputs for worker `number`, counted from 1. Capture logs of mode `multi` get files of their own;
    /// all workers write to the file of mode `normal`.
    ///
    /// # Errors
    /// A file of the worker's own that cannot be created.
    pub fn share(&mut self, number: usize, now: Time, thread: u64) -> Result<Outputs, OutputError> {
        let mut all = Vec::new();
        for o in &mut self.all {
            let at = Opening { now, thread, worker: number + 1, before: o.before, writer: self.writer.as_ref() };
            all.extend(o.sink.share(&at)?.map(|sink| Output::new(sink, o.before)));
        }
        let tee = self.tee.as_ref().map(|t| Box::new(t.share()));
        Ok(Outputs {
            written: self.written,
            wants: self.written,
            ..Outputs::of(all, self.writer.clone(), self.counters(), tee)
        })
    }

    /// Starts a thread that writes the lines from now on. A worker waits for files and sockets only if it produces lines
    /// faster than the thread writes them. An output's lines are handed over at the end of a batch once there are
    /// `worth` bytes, and with [`Outputs::tick`]. Call it before [`Outputs::share`], because it applies to all workers.
    /// If there is nothing to write, or no thread can be started, workers keep writing themselves.
    pub fn write_aside(&mut self, worth: usize) {
        if self.writer.is_some() || self.sinks().next().is_none() {
            return;
        }
        match Writer::start() {
            Ok(writer) => {
                let writer = Arc::new(writer);
                self.sinks().for_each(|s| s.write_aside(&writer, worth));
                self.counters.register_writer(&writer);
                self.writer = Some(writer);
            }
            Err(e) => log(
                Level::Warning,
                "output",
                format_args!("no thread to write events: {e}; packets wait while they are written"),
            ),
        }
    }

    /// The same outputs for a thread without packets that reports on the workers. It writes to the first worker's files.
    pub fn beside(&mut self) -> Outputs {
        let one = |o: &mut Output| Some(Output::new(o.sink.beside()?, o.before));
        let all = self.all.iter_mut().filter_map(one).collect();
        Outputs {
            written: self.written,
            wants: self.written,
            ..Outputs::of(all, self.writer.clone(), self.counters(), None)
        }
    }

    /// Adds an observer: from now on `feed` also receives alerts and ended flows. Call it before [`Outputs::share`],
    /// because it applies to all workers.
    pub fn tell(&mut self, feed: &Arc<Feed>) {
        self.tee = Some(Box::new(Tee::new(Arc::clone(feed))));
    }

    /// Sets the interface that packets come from (`in_iface`).
    pub fn set_interface(&mut self, interface: &str) {
        self.all.iter_mut().for_each(|o| o.sink.set_interface(interface));
        self.tee.iter_mut().for_each(|t| t.set_interface(interface));
    }

    /// Sets the tenant of the events that follow (`tenant_id`); 0 is no tenant.
    pub fn set_tenant(&mut self, tenant: u32) {
        self.all.iter_mut().for_each(|o| o.sink.set_tenant(tenant));
        self.tee.iter_mut().for_each(|t| t.set_tenant(tenant));
    }

    /// Whether any output takes events of this type. Ask before building one.
    #[inline]
    pub fn wants(&self, kind: EventType) -> bool {
        self.wants.contains(kind)
    }

    /// The largest number of stream bytes that an output shows with an alert.
    pub fn stream_payload(&self) -> usize {
        self.all.iter().map(|o| o.sink.stream_payload()).max().unwrap_or(0)
    }

    /// Whether an output writes capture files.
    #[inline]
    pub fn wants_pcap(&self) -> bool {
        self.wants_packets
    }

    fn event(&mut self, event: Event<'_>) {
        let kind = event.kind();
        if self.wants.contains(kind) {
            self.all.iter_mut().filter(|o| o.types.contains(kind)).for_each(|o| o.sink.event(event));
        }
    }

    /// A rule matched.
    pub fn alert(&mut self, event: &AlertEvent<'_>) {
        self.event(Event::Alert(event));
        self.tee.iter_mut().for_each(|t| t.alert(event));
    }

    /// An anomaly was found.
    pub fn anomaly(&mut self, event: &AnomalyEvent<'_>) {
        self.event(Event::Anomaly(event));
    }

    /// The TCP engine has processed a packet.
    pub fn stream(&mut self, event: &StreamEvent<'_>) {
        self.event(Event::Stream(event));
    }

    /// A packet was dropped.
    pub fn dropped(&mut self, event: &DropEvent<'_>) {
        self.event(Event::Drop(event));
    }

    /// A flow ended: writes one `flow` event.
    pub fn flow(&mut self, event: &FlowEvent<'_>) {
        self.event(Event::Flow(event));
        self.tee.iter_mut().for_each(|t| t.flow(event));
    }

    /// A flow ended: writes one `netflow` event for each direction.
    pub fn netflow(&mut self, event: &FlowEvent<'_>) {
        self.event(Event::Netflow(event));
    }

    /// A `tag` keeps a packet.
    pub fn packet(&mut self, event: &PacketEvent<'_>) {
        self.event(Event::Packet(event));
    }

    /// An ARP packet.
    pub fn arp(&mut self, event: &ArpEvent<'_>) {
        self.event(Event::Arp(event));
    }

    /// An event of the application layer.
    pub fn app(&mut self, event: &AppEvent<'_>) {
        self.event(Event::App(event));
    }

    /// Bytes of a stream or body.
    pub fn data(&mut self, event: &DataEvent<'_>) {
        self.event(Event::Data(event));
    }

    /// The counters.
    pub fn stats(&mut self, event: &StatsEvent<'_>) {
        self.event(Event::Stats(event));
    }

    /// Whether a capture file needs the packets' flows, and the ends of flows.
    #[inline]
    pub fn holds_packets(&self) -> bool {
        self.holds_packets
    }

    /// A flow is over: capture files write or forget its packets.
    pub fn pcap_flow_ended(&mut self, flow: u64, alerted: bool) {
        if self.holds_packets {
            self.all.iter_mut().for_each(|o| o.sink.flow_ended(flow, alerted));
        }
    }

    /// A flow continues at another worker: this worker's own capture files forget its packets.
    pub fn pcap_flow_left(&mut self, flow: u64) {
        if self.holds_packets {
            self.all.iter_mut().filter(|o| !o.sink.shares_held()).for_each(|o| o.sink.flow_ended(flow, false));
        }
    }

    /// Hands a packet to the capture files.
    pub fn pcap_packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        self.all.iter_mut().for_each(|o| o.sink.packet(packet, fate));
    }

    /// The capture file that packets are written to now, if there is one.
    pub fn capture_file(&self) -> Option<String> {
        if !self.wants_packets {
            return None;
        }
        self.all.iter().find_map(|o| o.sink.capture_file())
    }

    /// Counters of this worker's capture files, summed up.
    pub fn pcap_counters(&self) -> PcapLogCounters {
        let all = self.all.iter().filter_map(|o| o.sink.packet_counters());
        all.fold(PcapLogCounters::default(), |a, b| PcapLogCounters {
            written: a.written + b.written,
            filtered_bpf: a.filtered_bpf + b.filtered_bpf,
            lost: a.lost + b.lost,
            not_held: a.not_held + b.not_held,
        })
    }

    fn sinks(&mut self) -> impl Iterator<Item = &mut Sink> {
        self.all.iter_mut().filter_map(|o| o.sink.sink())
    }

    /// Hands over the lines of a batch of packets.
    pub fn end_batch(&mut self) {
        self.sinks().for_each(Sink::end_batch);
        if let Some(tee) = &mut self.tee {
            tee.end_batch();
            // Without an observer, no event is built for it.
            self.wants = if tee.is_looking() { self.written.union(Tee::WANTS) } else { self.written };
        }
    }

    /// Called about once a second by one worker, because only the clock triggers this: flushes buffers, rotates files
    /// whose interval is over, reconnects sockets.
    pub fn tick(&mut self, now: Time) {
        self.all.iter_mut().for_each(|o| o.sink.tick(now));
    }

    /// Writes everything that is buffered.
    pub fn flush(&mut self) {
        self.all.iter_mut().for_each(|o| o.sink.flush());
    }

    /// As [`Outputs::flush`], at the end of the run; also logs how many lines were lost. Every worker calls it for its
    /// own lines.
    pub fn finish(&mut self) {
        self.all.iter_mut().for_each(|o| o.sink.finish());
    }

    /// Reopens all files, after they were moved away.
    pub fn reopen(&mut self, now: Time) {
        self.all.iter_mut().for_each(|o| o.sink.reopen(now));
    }

    /// Counters of the outputs of all workers.
    pub fn counters(&self) -> OutputCounters {
        self.counters.clone()
    }
}
