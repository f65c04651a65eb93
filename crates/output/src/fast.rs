//! `fast.log` and alerts in syslog: one line for each alert.

use crate::event::{Addresses, AlertEvent, EventType, EventTypes};
use crate::hex::digits_of;
use crate::json::digits;
use crate::names::{has_ports, is_icmp, protocol_name};
use crate::output::{Event, EventSink, Opening, OutputError, OutputSettings};
use crate::settings::SinkSettings;
use crate::sinks::Sink;
use crate::time::Clock;

/// Limit of the bytes that are shown of a packet without addresses.
const RAW_BYTES: usize = 32;

/// The options of `fast`.
#[derive(Debug, Clone, PartialEq)]
pub struct FastSettings {
    /// The sink.
    pub sink: SinkSettings,
}

impl OutputSettings for FastSettings {
    fn name(&self) -> &'static str {
        "fast"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        Ok(Box::new(Fast::new(Sink::open(self.sink.clone(), at.now)?, Form::File)))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

/// The options of `syslog`.
#[derive(Debug, Clone, PartialEq)]
pub struct SyslogSettings {
    /// The sink.
    pub sink: SinkSettings,
}

impl OutputSettings for SyslogSettings {
    fn name(&self) -> &'static str {
        "syslog"
    }

    fn open(&self, at: &Opening<'_>) -> Result<Box<dyn EventSink>, OutputError> {
        Ok(Box::new(Fast::new(Sink::open(self.sink.clone(), at.now)?, Form::Syslog)))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With the time.
    File,
    /// Without, because syslog adds it.
    Syslog,
}

/// The `fast` and `syslog` outputs.
#[derive(Debug)]
struct Fast {
    line: Vec<u8>,
    clock: Clock,
    sink: Sink,
    form: Form,
}

impl Fast {
    fn new(sink: Sink, form: Form) -> Self {
        Fast { line: Vec::with_capacity(512), clock: Clock::system(), sink, form }
    }
}

impl EventSink for Fast {
    fn types(&self) -> EventTypes {
        EventTypes::NONE.with(EventType::Alert)
    }

    fn event(&mut self, event: Event<'_>) {
        if let Event::Alert(e) = event {
            self.line.clear();
            render(&mut self.line, &mut self.clock, e, self.form);
            self.sink.line(&self.line);
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(Fast::new(self.sink.share(), self.form)))
    }
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn render(out: &mut Vec<u8>, clock: &mut Clock, e: &AlertEvent<'_>, form: Form) {
    if form == Form::File {
        clock.fast(out, e.header.time);
        put(out, "  ");
    }
    if e.blocked {
        put(out, "[Drop] ");
    } else if e.would_drop {
        put(out, "[wDrop] ");
    }
    let (before, after) = if form == Form::File { ("[**] ", " [**] ") } else { ("", " ") };
    put(out, before);
    rule(out, e);
    put(out, after);
    class(out, e);
    match &e.header.addresses {
        Some(a) => ends(out, a, e.header.icmp),
        None => raw_packet(out, e),
    }
    out.push(b'\n');
}

/// Appends the rule's numbers and message.
fn rule(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    let s = &e.signature;
    out.push(b'[');
    digits(out, u64::from(s.gid));
    out.push(b':');
    digits(out, u64::from(s.id));
    out.push(b':');
    digits(out, u64::from(s.rev));
    put(out, "] ");
    // A line feed in a rule's message must not end the line.
    out.extend(s.msg.unwrap_or(b"(null)").iter().map(|&b| if b == b'\n' { b' ' } else { b }));
}

fn class(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    put(out, "[Classification: ");
    put(out, e.signature.category.unwrap_or("(null)"));
    put(out, "] [Priority: ");
    digits(out, e.signature.priority.into());
    put(out, "] ");
}

/// Appends protocol, source and destination. ICMP's type and code stand in place of ports.
fn ends(out: &mut Vec<u8>, a: &Addresses, icmp: Option<(u8, u8)>) {
    let (sport, dport) = match icmp {
        Some((kind, code)) if is_icmp(a.proto) => (u16::from(kind), u16::from(code)),
        _ if has_ports(a.proto) => (a.sport, a.dport),
        _ => (0, 0),
    };
    out.push(b'{');
    match protocol_name(a.proto) {
        Some(name) => put(out, name),
        None => {
            put(out, "PROTO:");
            digits(out, u64::from(a.proto));
        }
    }
    put(out, "} ");
    Addresses { sport, dport, ..*a }.line(out);
}

/// Appends the first bytes of a packet without addresses.
fn raw_packet(out: &mut Vec<u8>, e: &AlertEvent<'_>) {
    put(out, "[**] [Raw pkt: ");
    for &b in e.packet.data.iter().take(RAW_BYTES) {
        out.extend_from_slice(&digits_of(b));
        out.push(b' ');
    }
    out.push(b']');
    if let Some(n) = e.header.pcap_cnt {
        put(out, " [pcap file packet: ");
        digits(out, n);
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AppProtos, Header, Signature};
    use margay_packet::{Frame, LinkType, Packet, Time};

    #[test]
    fn syslog_lines_have_no_time() {
        let frame = Frame { data: &[], wire_len: 0, time: Time(0), link: LinkType::ETHERNET, number: 1 };
        let packet = Packet::new(&frame);
        let addresses =
            Addresses { src: [10, 0, 0, 1].into(), sport: 8, dst: [10, 0, 0, 2].into(), dport: 80, proto: 6 };
        let event = AlertEvent {
            place: (0, 1),
            header: Header { addresses: Some(addresses), ..Header::default() },
            packet: &packet,
            signature: Signature { gid: 1, id: 7, rev: 2, msg: Some(b"a"), priority: 3, ..Signature::default() },
            blocked: true,
            would_drop: false,
            engine: None,
            tx_id: None,
            xff: None,
            context: None,
            progress: None,
            app: None,
            files: None,
            app_protos: AppProtos::default(),
            direction: None,
            flow: None,
            payload: None,
            verdict: None,
            capture_file: None,
        };
        let line = |form| {
            let mut out = Vec::new();
            render(&mut out, &mut Clock::utc(), &event, form);
            String::from_utf8(out).unwrap()
        };
        let rest = "[Classification: (null)] [Priority: 3] {TCP} 10.0.0.1:8 -> 10.0.0.2:80\n";
        assert_eq!(line(Form::Syslog), format!("[Drop] [1:7:2] a {rest}"));
        assert_eq!(line(Form::File), format!("01/01/1970-00:00:00.000000  [Drop] [**] [1:7:2] a [**] {rest}"));
    }
}
