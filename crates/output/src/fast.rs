//! `fast.log`: one line for each alert.

use crate::event::{AlertEvent, EventType, EventTypes};
use crate::json::{digits, ip};
use crate::names::{has_ports, is_icmp, protocol_name};
use crate::output::{Event, EventSink, Opening, OutputSettings};
use crate::outputs::OutputError;
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
        Ok(Box::new(Fast::new(Sink::open(self.sink.clone(), at.now)?, Clock::system())))
    }

    fn sink(&mut self) -> Option<&mut SinkSettings> {
        Some(&mut self.sink)
    }
}

/// The `fast` output.
#[derive(Debug)]
struct Fast {
    line: Vec<u8>,
    clock: Clock,
    sink: Sink,
}

impl Fast {
    fn new(sink: Sink, clock: Clock) -> Self {
        Fast { line: Vec::with_capacity(512), clock, sink }
    }
}

impl EventSink for Fast {
    fn types(&self) -> EventTypes {
        EventTypes::NONE.with(EventType::Alert)
    }

    fn event(&mut self, event: Event<'_>) {
        if let Event::Alert(e) = event {
            self.line.clear();
            render(&mut self.line, &mut self.clock, e);
            self.sink.line(&self.line);
        }
    }

    fn sink(&mut self) -> Option<&mut Sink> {
        Some(&mut self.sink)
    }

    fn share(&mut self, _at: &Opening<'_>) -> Result<Option<Box<dyn EventSink>>, OutputError> {
        Ok(self.beside())
    }

    fn beside(&mut self) -> Option<Box<dyn EventSink>> {
        Some(Box::new(Fast::new(self.sink.share(), Clock::system())))
    }
}

fn render(out: &mut Vec<u8>, clock: &mut Clock, e: &AlertEvent<'_>) {
    let put = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
    let s = &e.signature;
    clock.fast(out, e.header.time);
    put(out, "  ");
    if e.blocked {
        put(out, "[Drop] ");
    } else if e.would_drop {
        put(out, "[wDrop] ");
    }
    put(out, "[**] [");
    digits(out, u64::from(s.gid));
    out.push(b':');
    digits(out, u64::from(s.id));
    out.push(b':');
    digits(out, u64::from(s.rev));
    put(out, "] ");
    // A line feed in a rule's message must not end the line.
    out.extend(s.msg.unwrap_or(b"(null)").iter().map(|&b| if b == b'\n' { b' ' } else { b }));
    put(out, " [**] [Classification: ");
    put(out, s.category.unwrap_or("(null)"));
    put(out, "] [Priority: ");
    digits(out, u64::from(s.priority));
    put(out, "] ");
    match &e.header.addresses {
        Some(a) => {
            out.push(b'{');
            match protocol_name(a.proto) {
                Some(name) => put(out, name),
                None => {
                    put(out, "PROTO:");
                    digits(out, u64::from(a.proto));
                }
            }
            put(out, "} ");
            let (sport, dport) = match e.header.icmp {
                Some((kind, code)) if is_icmp(a.proto) => (u16::from(kind), u16::from(code)),
                _ if has_ports(a.proto) => (a.sport, a.dport),
                _ => (0, 0),
            };
            ip(out, a.src);
            out.push(b':');
            digits(out, u64::from(sport));
            put(out, " -> ");
            ip(out, a.dst);
            out.push(b':');
            digits(out, u64::from(dport));
        }
        None => {
            put(out, "[**] [Raw pkt: ");
            for &b in e.packet.data.iter().take(RAW_BYTES) {
                const HEX: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(&[HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)], b' ']);
            }
            out.push(b']');
            if let Some(n) = e.header.pcap_cnt {
                put(out, " [pcap file packet: ");
                digits(out, n);
                out.push(b']');
            }
        }
    }
    out.push(b'\n');
}
