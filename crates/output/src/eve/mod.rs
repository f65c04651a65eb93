//! EVE: each event is one JSON object on one line.
//!
//! Each event type has a file here. An `eve-log` has options, a clock, and a sink whose buffer receives the events.

mod alert;
mod anomaly;
mod arp;
mod drop;
mod flow;
mod header;
mod packet;
mod stats;
mod stream;
mod tee;
mod xff;

pub use alert::{metadata_json, signature_json};
pub(crate) use tee::Tee;
pub use tee::{AlertSeen, Feed, FlowSeen, Seen};

use crate::event::{AnomalyKind, AppEvent, EventType, EventTypes};
use crate::json::Json;
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::{EveSettings, SinkKind, SinkSettings, Xff};
use crate::sinks::Sink;
use crate::time::Clock;

/// An event that is being rendered: the buffer, and the state of its output.
pub(crate) struct Out<'a> {
    json: &'a mut Json,
    clock: &'a mut Clock,
    settings: &'a EveSettings,
    number: usize,
    tenant: u32,
}

impl Out<'_> {
    fn app(&mut self, event: &AppEvent<'_>, record: usize) {
        let client = self.client(event.kind, event.xff.as_ref());
        let changed = client.header(&event.header);
        self.begin(changed.as_ref().unwrap_or(&event.header), event.kind);
        self.context(&event.header);
        self.tx_id(event.tx_id);
        if let Some(d) = event.direction {
            self.json.str("direction", d.name());
        }
        (event.fields)(self.json, self.number, record);
        if client.overwrites().is_none() {
            client.member(self.json);
        }
        self.finish(event.header.pcap_filename);
    }
}

/// Renders the records that are stored next to files (`write-fileinfo`). They belong to no `eve-log`.
#[derive(Debug)]
pub struct Record {
    settings: EveSettings,
    json: Json,
    clock: Clock,
    tenant: u32,
}

impl Record {
    /// Takes the file store's `xff` options.
    pub fn new(xff: Option<Xff>) -> Self {
        let mut settings = EveSettings::file("", EventTypes::NONE.with(EventType::Fileinfo));
        settings.xff.files = xff;
        Record { settings, json: Json::new(), clock: Clock::system(), tenant: 0 }
    }

    /// Sets the tenant of the events that follow; 0 is no tenant.
    pub fn set_tenant(&mut self, tenant: u32) {
        self.tenant = tenant;
    }

    /// Renders the event as one JSON object, without a line feed. Calls [`AppEvent::fields`] with `usize::MAX`.
    pub fn render(&mut self, event: &AppEvent<'_>) -> &[u8] {
        self.json.clear();
        self.json.raw(b"{");
        let Record { settings, json, clock, tenant } = self;
        Out { json, clock, settings, number: usize::MAX, tenant: *tenant }.app(event, 0);
        self.json.raw(b"}");
        self.json.as_bytes()
    }
}

/// One `eve-log` output.
#[derive(Debug)]
struct Eve {
    settings: EveSettings,
    number: usize,
    clock: Clock,
    sink: Sink,
    tenant: u32,
}

impl Eve {
    /// Creates an output that writes to `sink`. `number` counts the `eve-log` outputs in configuration order.
    fn new(settings: EveSettings, number: usize, sink: Sink, clock: Clock) -> Self {
        Eve { settings, number, clock, sink, tenant: 0 }
    }

    fn line(&mut self, write: impl FnOnce(&mut Out<'_>)) {
        let Eve { settings, number, clock, sink, tenant } = self;
        sink.line_with(|json| {
            json.raw(settings.prefix.as_bytes());
            json.raw(b"{");
            write(&mut Out { json, clock, settings, number: *number, tenant: *tenant });
            json.raw(b"}\n");
        });
    }
}

/// The sink settings of worker `number`, counted from 1. With `threaded` the number goes before the file extension.
fn sink_of(s: &EveSettings, number: usize) -> SinkSettings {
    let mut sink = s.sink.clone();
    if is_by_worker(s) {
        let extension = sink.path.extension().map(|e| e.to_string_lossy().into_owned());
        sink.path.set_extension(match extension {
            Some(e) => format!("{number}.{e}"),
            None => number.to_string(),
        });
    }
    sink
}

/// Whether each worker writes a file of its own.
fn is_by_worker(s: &EveSettings) -> bool {
    s.threaded && s.sink.kind == SinkKind::Regular
}

impl OutputSettings for EveSettings {
    fn name(&self) -> &'static str {
        "eve-log"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        let sink = Sink::open(sink_of(self, at.worker), at.now)?;
        Ok(Box::new(Eve::new(self.clone(), at.before, sink, Clock::system())))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

impl EventSink for Eve {
    fn types(&self) -> EventTypes {
        let types = self.settings.types;
        if types.contains(EventType::Alert) && self.settings.alert.tagged_packets {
            types.with(EventType::Packet)
        } else {
            types
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Alert(e) => self.line(|o| o.alert(e)),
            Event::Anomaly(e) => {
                let options = self.settings.anomaly;
                let wanted = match e.anomaly.kind() {
                    AnomalyKind::Decode => options.decode,
                    AnomalyKind::Stream => options.stream,
                    AnomalyKind::AppLayer => options.applayer,
                };
                if wanted {
                    self.line(|o| o.anomaly(e));
                }
            }
            // Only a flow's first drop is written, unless the options ask for all.
            Event::Drop(e) if e.first_of_flow || self.settings.drop.all => self.line(|o| o.drop(e)),
            Event::Drop(_) => {}
            Event::Flow(e) => self.line(|o| o.flow(e)),
            Event::Netflow(e) => {
                self.line(|o| o.netflow(e, 0));
                // A direction without packets has no event.
                if e.pkts[1] > 0 {
                    self.line(|o| o.netflow(e, 1));
                }
            }
            Event::Stream(e) => {
                if stream::is_wanted(self.settings.stream, e) {
                    self.line(|o| o.stream(e));
                }
            }
            Event::Packet(e) => self.line(|o| o.packet(e)),
            Event::Arp(e) => self.line(|o| o.arp(e)),
            Event::App(e) => {
                for record in 0..(e.records)(self.number) {
                    self.line(|o| o.app(e, record));
                }
            }
            Event::Stats(e) => self.line(|o| o.stats(e)),
            Event::Data(_) => {}
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn share(&mut self, at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError> {
        if !is_by_worker(&self.settings) {
            return Ok(self.beside());
        }
        let mut sink = Sink::open(sink_of(&self.settings, at.worker), at.now)?;
        at.writer.iter().for_each(|w| sink.write_aside(w, self.sink.worth()));
        Ok(Some(Box::new(Eve::new(self.settings.clone(), self.number, sink, Clock::system()))))
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(Eve::new(self.settings.clone(), self.number, self.sink.share(), Clock::system())))
    }

    fn set_interface(&mut self, interface: &str) {
        let name = self.settings.in_iface.get_or_insert_default();
        name.clear();
        name.push_str(interface);
    }

    fn set_tenant(&mut self, tenant: u32) {
        self.tenant = tenant;
    }

    fn stream_payload(&self) -> usize {
        self.settings.alert.stream_payload()
    }
}
