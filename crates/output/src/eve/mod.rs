//! EVE: each event one JSON object on one line.
//!
//! A file for each type of event. [`Eve`] is one `eve-log`: its options, its clock, its sink, in whose buffer events are
//! written.

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

use crate::event::{
    AlertEvent, AnomalyEvent, AnomalyKind, AppEvent, ArpEvent, DropEvent, EventType, EventTypes, FlowEvent,
    PacketEvent, StatsEvent, StreamEvent,
};
use crate::json::Json;
use crate::settings::{EveSettings, Xff};
use crate::sinks::Sink;
use crate::time::Clock;

/// Where an event is written while it is made.
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

/// Makes events of files for records beside stored files (`write-fileinfo`), which belong to no `eve-log`.
#[derive(Debug)]
pub struct Record {
    settings: EveSettings,
    json: Json,
    clock: Clock,
    tenant: u32,
}

impl Record {
    /// With `xff` of the file store.
    pub fn new(xff: Option<Xff>) -> Self {
        let mut settings = EveSettings::file("", EventTypes::NONE.with(EventType::Fileinfo));
        settings.xff.files = xff;
        Record { settings, json: Json::new(), clock: Clock::system(), tenant: 0 }
    }

    /// Whose the events are from here on; 0 is no tenant.
    pub fn set_tenant(&mut self, tenant: u32) {
        self.tenant = tenant;
    }

    /// The event as one JSON object, without a line feed. [`AppEvent::fields`] is called with `usize::MAX`.
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
pub struct Eve {
    settings: EveSettings,
    number: usize,
    clock: Clock,
    sink: Sink,
    tenant: u32,
}

impl Eve {
    /// An output that writes to `sink`; `number` counts the `eve-log` outputs in the order of the configuration.
    pub fn new(settings: EveSettings, number: usize, sink: Sink, clock: Clock) -> Self {
        Eve { settings, number, clock, sink, tenant: 0 }
    }

    /// Whose the events are from here on, where they are of packets or flows (`tenant_id`); 0 is no tenant.
    pub fn set_tenant(&mut self, tenant: u32) {
        self.tenant = tenant;
    }

    /// The interface that packets come from.
    pub fn set_interface(&mut self, interface: &str) {
        let name = self.settings.in_iface.get_or_insert_default();
        name.clear();
        name.push_str(interface);
    }

    /// The types that this output wants to be told of.
    pub fn types(&self) -> EventTypes {
        let types = self.settings.types;
        if types.contains(EventType::Alert) && self.settings.alert.tagged_packets {
            types.with(EventType::Packet)
        } else {
            types
        }
    }

    /// The sink.
    pub fn sink(&mut self) -> &mut Sink {
        &mut self.sink
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

    /// Writes an alert.
    pub fn alert(&mut self, event: &AlertEvent<'_>) {
        self.line(|o| o.alert(event));
    }

    /// Writes an anomaly, if its kind is wanted.
    pub fn anomaly(&mut self, event: &AnomalyEvent<'_>) {
        let options = self.settings.anomaly;
        let wanted = match event.anomaly.kind() {
            AnomalyKind::Decode => options.decode,
            AnomalyKind::Stream => options.stream,
            AnomalyKind::AppLayer => options.applayer,
        };
        if wanted {
            self.line(|o| o.anomaly(event));
        }
    }

    /// Writes a dropped packet, if its flow was not reported yet or all are wanted.
    pub fn dropped(&mut self, event: &DropEvent<'_>) {
        if event.first_of_flow || self.settings.drop.all {
            self.line(|o| o.drop(event));
        }
    }

    /// Writes a flow.
    pub fn flow(&mut self, event: &FlowEvent<'_>) {
        self.line(|o| o.flow(event));
    }

    /// Writes a flow as one event a direction; a direction without packets has none.
    pub fn netflow(&mut self, event: &FlowEvent<'_>) {
        self.line(|o| o.netflow(event, 0));
        if event.pkts[1] > 0 {
            self.line(|o| o.netflow(event, 1));
        }
    }

    /// Writes what the TCP engine made of a packet, if that is wanted of it.
    pub fn stream(&mut self, event: &StreamEvent<'_>) {
        if stream::is_wanted(self.settings.stream, event) {
            self.line(|o| o.stream(event));
        }
    }

    /// Writes a tagged packet.
    pub fn packet(&mut self, event: &PacketEvent<'_>) {
        self.line(|o| o.packet(event));
    }

    /// Writes an ARP packet.
    pub fn arp(&mut self, event: &ArpEvent<'_>) {
        self.line(|o| o.arp(event));
    }

    /// Writes what this output makes of an event of the application layer.
    pub fn app(&mut self, event: &AppEvent<'_>) {
        for record in 0..(event.records)(self.number) {
            self.line(|o| o.app(event, record));
        }
    }

    /// Writes the counters.
    pub fn stats(&mut self, event: &StatsEvent<'_>) {
        self.line(|o| o.stats(event));
    }
}
