//! Records what one worker inspects, for tests that compare it with what a host received (`crates/hosts`).
//!
//! In production, a worker has no witness. The only cost is one comparison where stream data is passed on.

use std::net::IpAddr;
use std::ops::Range;

use margay_detect::StreamChunk;
use margay_flow::{Direction, FlowCore};
use margay_packet::Packet;
use margay_stream::{StreamEvent, TcpSession};

/// An event in the inspection of a flow's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A chunk of the raw stream was inspected.
    Stream {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the chunk.
        offset: u64,
        /// Its bytes ([`Witness::bytes`]).
        bytes: Range<usize>,
        /// The number of its first bytes that were already in an earlier chunk.
        seen: usize,
    },
    /// Stream bytes went to protocol detection or to a parser, which may leave some of them for later.
    App {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Range<usize>,
    },
    /// A gap was reported to the application layer.
    AppGap {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the gap.
        offset: u64,
        /// Length of the gap.
        len: u64,
    },
    /// The application layer accepts no more data of the flow; recorded for each direction.
    AppOff,
    /// The application layer restarts with the stream.
    AppRestart {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the first byte that it receives from now on.
        offset: u64,
    },
    /// A packet was inspected; these are the bytes of its payload.
    Payload(Range<usize>),
    /// A decoder or stream event that rules can match, by name.
    Event(&'static str),
    /// An alert was written; the rule's index in [`margay_detect::Detect::rules`].
    Alert(u32),
}

/// One recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Id of the flow; 0 if the packet has none.
    pub flow: u64,
    /// IP protocol.
    pub proto: u8,
    /// Direction in the flow, if there is a flow.
    pub dir: Option<Direction>,
    /// Address and port of the sender.
    pub from: (IpAddr, u16),
    /// Address and port of the receiver.
    pub to: (IpAddr, u16),
    /// The event.
    pub what: What,
}

/// Everything inspected since the last [`Witness::clear`].
#[derive(Debug, Default)]
pub struct Witness {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl Witness {
    /// The records in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The bytes of a record.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or(&[])
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn note(&mut self, core: &FlowCore, dir: Direction, what: What) {
        let (client, server) = ((core.src, core.sport), (core.dst, core.dport));
        let (from, to) = match dir {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        };
        self.records.push(Record { flow: core.id, proto: core.proto, dir: Some(dir), from, to, what });
    }

    pub(crate) fn stream(&mut self, core: &FlowCore, dir: Direction, first: u32, chunk: &StreamChunk<'_>) {
        let bytes = self.keep(chunk.data);
        self.note(core, dir, What::Stream { first, offset: chunk.offset, bytes, seen: chunk.seen });
    }

    pub(crate) fn app(&mut self, core: &FlowCore, dir: Direction, first: u32, offset: u64, data: &[u8]) {
        let bytes = self.keep(data);
        self.note(core, dir, What::App { first, offset, bytes });
    }

    pub(crate) fn app_gap(&mut self, core: &FlowCore, dir: Direction, first: u32, offset: u64, len: u64) {
        self.note(core, dir, What::AppGap { first, offset, len });
    }

    pub(crate) fn app_off(&mut self, core: &FlowCore) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.note(core, dir, What::AppOff);
        }
    }

    pub(crate) fn app_restart(&mut self, core: &FlowCore, tcp: Option<&TcpSession>) {
        let Some(tcp) = tcp else { return };
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.note(core, dir, What::AppRestart { first: tcp.first_seq(dir), offset: tcp.app_offset(dir) });
        }
    }

    /// Records the payload of an inspected packet.
    pub(crate) fn payload(&mut self, packet: &Packet<'_>, flow: Option<(u64, Direction)>) {
        let bytes = self.keep(packet.payload());
        let (flow, dir) = of(flow);
        self.note_packet(packet, flow, dir, What::Payload(bytes));
    }

    /// Records an alert of a packet.
    pub(crate) fn alert(&mut self, packet: &Packet<'_>, flow: Option<(u64, Direction)>, rule: u32) {
        let (flow, dir) = of(flow);
        self.note_packet(packet, flow, dir, What::Alert(rule));
    }

    fn note_packet(&mut self, packet: &Packet<'_>, flow: u64, dir: Option<Direction>, what: What) {
        let (from, to) = ((packet.src, packet.sport), (packet.dst, packet.dport));
        self.records.push(Record { flow, proto: packet.proto, dir, from, to, what });
    }

    /// Records the decoder and stream events of a packet.
    pub(crate) fn events(&mut self, packet: &Packet<'_>, flow: u64, stream: &[StreamEvent]) {
        let decoder = packet.events.as_slice().iter().map(|e| e.name());
        for name in decoder.chain(stream.iter().map(|e| e.name())) {
            self.note_packet(packet, flow, None, What::Event(name));
        }
    }
}

/// Id of a flow (0 for none) and direction in it.
fn of(flow: Option<(u64, Direction)>) -> (u64, Option<Direction>) {
    flow.map_or((0, None), |(flow, dir)| (flow, Some(dir)))
}
