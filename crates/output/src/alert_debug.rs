//! `alert-debug`: all that is known of each packet with alerts, for authors of rules.

use crate::event::{AlertEvent, Direction, EventType, EventTypes, FlowSummary, Var};
use crate::hex::{COLUMN, dump, pad, section};
use crate::json::{digits, ip};
use crate::names::{TCP, has_ports};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::SinkSettings;
use crate::sinks::Sink;
use crate::time::Clock;

/// Limit of the stream bytes that an alert shows.
const STREAM_BYTES: usize = 4096;
/// The column of values about a packet.
const PACKET_COLUMN: usize = 19;

/// The options of `alert-debug`.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertDebugSettings {
    /// The sink.
    pub sink: SinkSettings,
}

impl OutputSettings for AlertDebugSettings {
    fn name(&self) -> &'static str {
        "alert-debug"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        Ok(Box::new(AlertDebug::new(Sink::open(self.sink.clone(), at.now)?)))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

#[derive(Debug)]
struct AlertDebug {
    /// The packet's record so far.
    record: Vec<u8>,
    clock: Clock,
    sink: Sink,
}

impl AlertDebug {
    fn new(sink: Sink) -> Self {
        AlertDebug { record: Vec::new(), clock: Clock::system(), sink }
    }
}

impl EventSink for AlertDebug {
    fn types(&self) -> EventTypes {
        EventTypes::NONE.with(EventType::Alert)
    }

    fn event(&mut self, event: Event<'_>) {
        let Event::Alert(e) = event else { return };
        let (n, of) = e.place;
        if n == 0 {
            self.record.clear();
            head(&mut self.record, &mut self.clock, e);
        }
        alert(&mut self.record, e);
        if n + 1 == of {
            if !e.packet.is_ip() {
                packet(&mut self.record, e);
            }
            self.sink.line(&self.record);
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(AlertDebug::new(self.sink.share())))
    }

    fn stream_payload(&self) -> usize {
        STREAM_BYTES
    }
}

/// Appends a line `NAME:  VALUE`.
fn line(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    let from = out.len();
    out.extend_from_slice(name.as_bytes());
    out.push(b':');
    pad(out, from, PACKET_COLUMN);
    value(out);
    out.push(b'\n');
}

fn number(out: &mut Vec<u8>, name: &str, value: impl Into<u64>) {
    line(out, name, |out| digits(out, value.into()));
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    line(out, name, |out| out.extend_from_slice(value.as_bytes()));
}

const fn truth(yes: bool) -> &'static str {
    if yes { "TRUE" } else { "FALSE" }
}

/// Appends the part before the first alert.
fn head(out: &mut Vec<u8>, clock: &mut Clock, e: &AlertEvent<'_>) {
    out.extend_from_slice(b"+================\n");
    line(out, "TIME", |out| clock.fast(out, e.header.time));
    if let Some(n) = e.header.pcap_cnt {
        number(out, "PCAP PKT NUM", n);
    }
    if let Some(source) = e.header.pkt_src {
        text(out, "PKT SRC", source.name());
    }
    if let Some(a) = e.header.addresses {
        line(out, "SRC IP", |out| ip(out, a.src));
        line(out, "DST IP", |out| ip(out, a.dst));
        number(out, "PROTO", a.proto);
        if has_ports(a.proto) && (a.sport, a.dport) != (0, 0) {
            number(out, "SRC PORT", a.sport);
            number(out, "DST PORT", a.dport);
        }
        if let Some(tcp) = e.packet.tcp().filter(|_| a.proto == TCP) {
            number(out, "TCP SEQ", tcp.seq());
            number(out, "TCP ACK", tcp.ack());
        }
        let to = |d| truth(e.direction == Some(d));
        let sides = format!("to_server: {}, to_client: {}", to(Direction::ToServer), to(Direction::ToClient));
        text(out, "FLOW", &sides);
        if let Some(flow) = &e.flow {
            of_flow(out, clock, e, flow);
        }
        variables(out, e);
        packet(out, e);
    }
    let from = out.len();
    out.extend_from_slice(b"ALERT CNT:");
    pad(out, from, column(e));
    digits(out, e.place.1 as u64);
    out.push(b'\n');
}

fn of_flow(out: &mut Vec<u8>, clock: &mut Clock, e: &AlertEvent<'_>, flow: &FlowSummary) {
    line(out, "FLOW Start TS", |out| clock.fast(out, flow.start));
    number(out, "FLOW PKTS TODST", flow.pkts[0]);
    number(out, "FLOW PKTS TOSRC", flow.pkts[1]);
    number(out, "FLOW Total Bytes", flow.bytes[0] + flow.bytes[1]);
    let seen = flow.pkts.map(|n| truth(n > 0));
    text(out, "FLOW IPONLY SET", &format!("TOSERVER: {}, TOCLIENT: {}", seen[0], seen[1]));
    text(out, "FLOW ACTION", &format!("DROP: {}", truth(flow.dropped)));
    let passed = format!("PACKET: {}, PAYLOAD: FALSE, APP_LAYER: FALSE", truth(flow.passed));
    text(out, "FLOW NOINSPECTION", &passed);
    let proto = e.app_protos.proto;
    text(out, "FLOW APP_LAYER", &format!("DETECTED: {}, PROTO {}", truth(proto.is_some()), proto.unwrap_or("unknown")));
}

fn variables(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    let vars = &e.header.vars;
    for bit in vars.flowbits {
        text(out, "FLOWBIT", bit);
    }
    for (name, value) in vars.flowints {
        text(out, "FLOWINT", &format!("\"{name}\" => {value}"));
    }
    for var in vars.flowvars {
        let (name, value) = name_and_value(var);
        text(out, "FLOWVAR", &format!("\"{}\" => \"{}\"", name.escape_ascii(), value.escape_ascii()));
    }
    for var in vars.pktvars {
        let (name, value) = name_and_value(var);
        line(out, "PKTVAR", |out| out.extend(name.escape_ascii()));
        dump(out, value);
    }
}

fn name_and_value<'a>(var: &Var<'a>) -> (&'a [u8], &'a [u8]) {
    match *var {
        Var::Named(name, value) => (name.as_bytes(), value),
        Var::KeyValue(name, value) => (name, value),
    }
}

fn packet(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    number(out, "PACKET LEN", e.packet.data.len() as u64);
    out.extend_from_slice(b"PACKET:\n");
    dump(out, e.packet.data);
}

/// The column of values about an alert.
fn column(e: &AlertEvent<'_>) -> usize {
    if e.packet.is_ip() { COLUMN } else { PACKET_COLUMN }
}

fn alert(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    let s = &e.signature;
    let mut value = |name: &str, value: &dyn Fn(&mut Vec<u8>)| {
        let from = out.len();
        out.extend_from_slice(format!("ALERT {name} [{:02}]:", e.place.0).as_bytes());
        pad(out, from, column(e));
        value(out);
        out.push(b'\n');
    };
    // A line feed in a rule's message must not end the line.
    value("MSG", &|out| out.extend(s.msg.unwrap_or(b"(null)").iter().map(|&b| if b == b'\n' { b' ' } else { b })));
    value("GID", &|out| digits(out, u64::from(s.gid)));
    value("SID", &|out| digits(out, u64::from(s.id)));
    value("REV", &|out| digits(out, u64::from(s.rev)));
    let no_class = if e.packet.is_ip() { "<none>" } else { "(null)" };
    value("CLASS", &|out| out.extend_from_slice(s.category.unwrap_or(no_class).as_bytes()));
    value("PRIO", &|out| digits(out, s.priority.into()));
    if !e.packet.is_ip() {
        return;
    }
    let stream = e.payload.filter(|p| p.stream);
    let place = match (e.tx_id, stream) {
        (Some((_, false)), _) => "STATE",
        (_, Some(_)) => "STREAM",
        _ => "PACKET",
    };
    value("FOUND IN", &|out| out.extend_from_slice(place.as_bytes()));
    value("IN TX", &|out| match e.tx_id {
        Some((id, _)) => digits(out, id),
        None => out.extend_from_slice(b"N/A"),
    });
    if !e.packet.payload().is_empty() {
        section(out, "PAYLOAD", e.packet.payload());
    }
    if let Some(stream) = stream.filter(|p| !p.data.is_empty()) {
        section(out, "STREAM DATA", stream.data);
    }
}
