//! All outputs of a worker.

use std::sync::Arc;

use margay_packet::{Packet, Time};

use crate::eve::{Eve, Feed, Tee};
use crate::event::{
    AlertEvent, AnomalyEvent, AppEvent, ArpEvent, DropEvent, EventType, EventTypes, FlowEvent, PacketEvent, StatsEvent,
    StreamEvent,
};
use crate::fast::Fast;
use crate::log::{Level, log};
use crate::pcaplog::{PacketFate, PcapLog, PcapLogCounters, PcapLogError, PcapLogSettings, PcapMode};
use crate::remote::RemoteCounters;
use crate::settings::{EveSettings, SinkKind, SinkSettings, StatsLogSettings};
use crate::sinks::{OpenError, Sink};
use crate::stats_log::StatsLog;
use crate::time::Clock;
use crate::writer::Writer;

/// One output of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputSpec {
    /// `eve-log`.
    Eve(Box<EveSettings>),
    /// `fast`.
    Fast(SinkSettings),
    /// `stats`.
    StatsLog(StatsLogSettings),
    /// `pcap-log`.
    PcapLog(PcapLogSettings),
}

/// Why an output cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// A file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// `pcap-log`.
    #[error(transparent)]
    PcapLog(#[from] PcapLogError),
}

/// The sink of worker `number`: with `threaded` the number goes before the extension.
fn eve_sink(s: &EveSettings, number: usize) -> SinkSettings {
    let mut sink = s.sink.clone();
    if s.threaded && sink.kind == SinkKind::Regular {
        let extension = sink.path.extension().map(|e| e.to_string_lossy().into_owned());
        sink.path.set_extension(match extension {
            Some(e) => format!("{number}.{e}"),
            None => number.to_string(),
        });
    }
    sink
}

/// The outputs of one worker.
///
/// [`Outputs::new`] opens them for the first worker, [`Outputs::share`] makes the others. What an event costs that no
/// output wants is [`Outputs::wants`]: a bit test. Lines are collected and handed over with [`Outputs::end_batch`].
#[derive(Debug)]
pub struct Outputs {
    specs: Vec<OutputSpec>,
    /// What is asked for now.
    wants: EventTypes,
    /// What outputs ask for, whether somebody looks on or not.
    written: EventTypes,
    eve: Vec<Eve>,
    fast: Vec<Fast>,
    stats: Vec<StatsLog>,
    pcap: Vec<PcapLog>,
    writer: Option<Arc<Writer>>,
    /// Somebody looks on.
    tee: Option<Box<Tee>>,
}

impl Outputs {
    /// Opens all outputs, for worker 0. `now` is the time that names of files are made from; `thread` is the identifier
    /// of the worker's thread, for `pcap-log`.
    ///
    /// # Errors
    /// The first output that cannot be opened.
    pub fn new(specs: Vec<OutputSpec>, now: Time, thread: u64) -> Result<Outputs, OutputError> {
        let mut o = Outputs {
            specs,
            wants: EventTypes::NONE,
            written: EventTypes::NONE,
            eve: Vec::new(),
            fast: Vec::new(),
            stats: Vec::new(),
            pcap: Vec::new(),
            writer: None,
            tee: None,
        };
        for spec in &o.specs {
            match spec {
                OutputSpec::Eve(s) => {
                    let sink = Sink::open(eve_sink(s, 1), now)?;
                    let eve = Eve::new((**s).clone(), o.eve.len(), sink, Clock::system());
                    o.wants = o.wants.union(eve.types());
                    o.eve.push(eve);
                }
                OutputSpec::Fast(s) => {
                    o.wants = o.wants.with(EventType::Alert);
                    o.fast.push(Fast::new(Sink::open(s.clone(), now)?, Clock::system()));
                }
                OutputSpec::StatsLog(s) => {
                    o.wants = o.wants.with(EventType::Stats);
                    o.stats.push(StatsLog::new(s.options, Sink::open(s.sink.clone(), now)?, Clock::system()));
                }
                OutputSpec::PcapLog(s) => o.pcap.push(PcapLog::new(s.clone(), 1, thread)?),
            }
        }
        o.written = o.wants;
        Ok(o)
    }

    /// The same outputs for worker `number`, from 1. Capture logs of mode `multi` get files of their own; those of mode
    /// `normal` stay with the first worker, whose [`Outputs::pcap_packet`] has to see all packets.
    ///
    /// # Errors
    /// Files of its own that cannot be made.
    pub fn share(&mut self, number: usize, now: Time, thread: u64) -> Result<Outputs, OutputError> {
        let mut o = Outputs {
            specs: self.specs.clone(),
            wants: self.written,
            written: self.written,
            eve: Vec::new(),
            fast: Vec::new(),
            stats: Vec::new(),
            pcap: Vec::new(),
            writer: self.writer.clone(),
            tee: self.tee.as_ref().map(|t| Box::new(t.share())),
        };
        let (mut eve, mut fast, mut stats) = (self.eve.iter_mut(), self.fast.iter_mut(), self.stats.iter_mut());
        for spec in &self.specs {
            match spec {
                OutputSpec::Eve(s) => {
                    if let Some(e) = eve.next() {
                        let sink = if s.threaded && s.sink.kind == SinkKind::Regular {
                            let mut sink = Sink::open(eve_sink(s, number + 1), now)?;
                            self.writer.iter().for_each(|w| sink.write_aside(w, e.sink().worth()));
                            sink
                        } else {
                            e.sink().share()
                        };
                        o.eve.push(Eve::new((**s).clone(), o.eve.len(), sink, Clock::system()));
                    }
                }
                OutputSpec::Fast(_) => {
                    o.fast.extend(fast.next().map(|f| Fast::new(f.sink().share(), Clock::system())));
                }
                OutputSpec::StatsLog(s) => {
                    let new = stats.next().map(|l| StatsLog::new(s.options, l.sink().share(), Clock::system()));
                    o.stats.extend(new);
                }
                OutputSpec::PcapLog(s) if s.mode == PcapMode::Multi => {
                    o.pcap.push(PcapLog::new(s.clone(), number + 1, thread)?);
                }
                OutputSpec::PcapLog(_) => {}
            }
        }
        Ok(o)
    }

    /// From here on lines are written by a thread, and a worker waits for files and sockets only where it is faster than
    /// they are. An output's lines are handed over at the end of a batch once there are `worth` bytes of them, and with
    /// [`Outputs::tick`]. For all workers: to be called before [`Outputs::share`]. Where there is nothing to write, or no
    /// thread to be had, workers go on writing.
    pub fn write_aside(&mut self, worth: usize) {
        if self.writer.is_some() || self.sinks().next().is_none() {
            return;
        }
        match Writer::start() {
            Ok(writer) => {
                let writer = Arc::new(writer);
                self.sinks().for_each(|s| s.write_aside(&writer, worth));
                self.writer = Some(writer);
            }
            Err(e) => log(
                Level::Warning,
                "output",
                format_args!("no thread to write events: {e}; packets wait while they are written"),
            ),
        }
    }

    /// How often a worker waited for the thread that writes; `None` without one.
    pub fn waits(&self) -> Option<u64> {
        self.writer.as_ref().map(|w| w.waits())
    }

    /// The same outputs for a thread that has no packets, and tells of the workers: it writes where the first worker does.
    pub fn beside(&mut self) -> Outputs {
        let eve = |(e, s): (&mut Eve, &EveSettings)| (s.clone(), e.sink().share());
        let settings = self.specs.iter().filter_map(|s| if let OutputSpec::Eve(e) = s { Some(&**e) } else { None });
        let eve: Vec<_> = self.eve.iter_mut().zip(settings).map(eve).collect();
        let stats =
            self.specs.iter().filter_map(|s| if let OutputSpec::StatsLog(l) = s { Some(l.options) } else { None });
        let stats = self.stats.iter_mut().zip(stats);
        Outputs {
            wants: self.written,
            written: self.written,
            eve: eve.into_iter().enumerate().map(|(n, (s, sink))| Eve::new(s, n, sink, Clock::system())).collect(),
            fast: self.fast.iter_mut().map(|f| Fast::new(f.sink().share(), Clock::system())).collect(),
            stats: stats.map(|(l, o)| StatsLog::new(o, l.sink().share(), Clock::system())).collect(),
            pcap: Vec::new(),
            specs: self.specs.clone(),
            writer: self.writer.clone(),
            tee: None,
        }
    }

    /// From here on `feed` is told of alerts and of flows that end, beside the outputs. For all workers: to be called before
    /// [`Outputs::share`].
    pub fn tell(&mut self, feed: &Arc<Feed>) {
        self.tee = Some(Box::new(Tee::new(Arc::clone(feed))));
    }

    /// The interface that packets come from (`in_iface`).
    pub fn set_interface(&mut self, interface: &str) {
        self.eve.iter_mut().for_each(|e| e.set_interface(interface));
        self.tee.iter_mut().for_each(|t| t.set_interface(interface));
    }

    /// Whose the events are from here on (`tenant_id`); 0 is no tenant.
    pub fn set_tenant(&mut self, tenant: u32) {
        for e in &mut self.eve {
            e.set_tenant(tenant);
        }
        self.tee.iter_mut().for_each(|t| t.set_tenant(tenant));
    }

    /// Whether any output wants events of this type: ask before making one.
    #[inline]
    pub fn wants(&self, kind: EventType) -> bool {
        self.wants.contains(kind)
    }

    /// How many bytes of a stream the alerts of any output show.
    pub fn stream_payload(&self) -> usize {
        let eve = self.specs.iter().filter_map(|s| if let OutputSpec::Eve(e) = s { Some(e) } else { None });
        eve.map(|e| e.alert.stream_payload()).max().unwrap_or(0)
    }

    /// Whether packets are written as capture files here.
    #[inline]
    pub fn wants_pcap(&self) -> bool {
        !self.pcap.is_empty()
    }

    fn eve_for(&mut self, kind: EventType) -> impl Iterator<Item = &mut Eve> {
        let eve: &mut [Eve] = if self.wants.contains(kind) { &mut self.eve } else { &mut [] };
        eve.iter_mut().filter(move |e| e.types().contains(kind))
    }

    /// A rule matched.
    pub fn alert(&mut self, event: &AlertEvent<'_>) {
        self.eve_for(EventType::Alert).for_each(|e| e.alert(event));
        self.fast.iter_mut().for_each(|f| f.alert(event));
        self.tee.iter_mut().for_each(|t| t.alert(event));
    }

    /// Something that should not be was seen.
    pub fn anomaly(&mut self, event: &AnomalyEvent<'_>) {
        self.eve_for(EventType::Anomaly).for_each(|e| e.anomaly(event));
    }

    /// The TCP engine is done with a packet.
    pub fn stream(&mut self, event: &StreamEvent<'_>) {
        self.eve_for(EventType::Stream).for_each(|e| e.stream(event));
    }

    /// A packet was dropped.
    pub fn dropped(&mut self, event: &DropEvent<'_>) {
        self.eve_for(EventType::Drop).for_each(|e| e.dropped(event));
    }

    /// A flow ended: one `flow` event.
    pub fn flow(&mut self, event: &FlowEvent<'_>) {
        self.eve_for(EventType::Flow).for_each(|e| e.flow(event));
        self.tee.iter_mut().for_each(|t| t.flow(event));
    }

    /// A flow ended: one `netflow` event a direction.
    pub fn netflow(&mut self, event: &FlowEvent<'_>) {
        self.eve_for(EventType::Netflow).for_each(|e| e.netflow(event));
    }

    /// A packet is kept by a `tag`.
    pub fn packet(&mut self, event: &PacketEvent<'_>) {
        self.eve_for(EventType::Packet).for_each(|e| e.packet(event));
    }

    /// An ARP packet.
    pub fn arp(&mut self, event: &ArpEvent<'_>) {
        self.eve_for(EventType::Arp).for_each(|e| e.arp(event));
    }

    /// An event of the application layer.
    pub fn app(&mut self, event: &AppEvent<'_>) {
        self.eve_for(event.kind).for_each(|e| e.app(event));
    }

    /// The counters.
    pub fn stats(&mut self, event: &StatsEvent<'_>) {
        self.eve_for(EventType::Stats).for_each(|e| e.stats(event));
        self.stats.iter_mut().for_each(|s| s.stats(event));
    }

    /// A packet for the capture files.
    pub fn pcap_packet(&mut self, packet: &Packet<'_>, fate: PacketFate) {
        self.pcap.iter_mut().for_each(|p| p.packet(packet, fate));
    }

    /// Numbers of the capture files of this worker, summed up.
    pub fn pcap_counters(&self) -> PcapLogCounters {
        self.pcap.iter().map(PcapLog::counters).fold(PcapLogCounters::default(), |a, b| PcapLogCounters {
            written: a.written + b.written,
            filtered_bpf: a.filtered_bpf + b.filtered_bpf,
            lost: a.lost + b.lost,
        })
    }

    fn sinks(&mut self) -> impl Iterator<Item = &mut Sink> {
        let eve = self.eve.iter_mut().map(Eve::sink);
        let fast = self.fast.iter_mut().map(Fast::sink);
        eve.chain(fast).chain(self.stats.iter_mut().map(StatsLog::sink))
    }

    /// Hands over the lines of a batch of packets.
    pub fn end_batch(&mut self) {
        self.sinks().for_each(Sink::end_batch);
        if let Some(tee) = &mut self.tee {
            tee.end_batch();
            // While nobody looks on, no event is made for it.
            self.wants = if tee.is_looking() { self.written.union(Tee::WANTS) } else { self.written };
        }
    }

    /// For the clock's sake, about once a second from one worker: flushes buffers, rotates files whose interval is over,
    /// connects to sockets again.
    pub fn tick(&mut self, now: Time) {
        self.sinks().for_each(|s| s.tick(now));
        self.pcap.iter_mut().for_each(PcapLog::flush);
    }

    /// Writes everything that is buffered.
    pub fn flush(&mut self) {
        self.sinks().for_each(Sink::flush);
        self.pcap.iter_mut().for_each(PcapLog::flush);
    }

    /// As [`Outputs::flush`], at the end: also tells how many lines were lost. Every worker calls it for its own lines.
    pub fn finish(&mut self) {
        self.sinks().for_each(Sink::finish);
        self.pcap.iter_mut().for_each(PcapLog::finish);
    }

    /// Opens all files anew, after they were moved away.
    pub fn reopen(&mut self, now: Time) {
        self.sinks().for_each(|s| s.reopen(now));
        self.pcap.iter_mut().for_each(PcapLog::reopen);
    }

    /// Numbers of the outputs on other machines together, of all workers; `None` where there are none.
    pub fn remote(&mut self) -> Option<RemoteCounters> {
        self.sinks().filter_map(|s| s.remote()).reduce(RemoteCounters::plus)
    }

    /// Lines that could not be written so far, of all workers.
    pub fn lost(&mut self) -> u64 {
        let with_thread = self.writer.as_ref().map_or(0, |w| w.lost());
        with_thread + self.sinks().map(|s| s.lost()).sum::<u64>()
    }
}
