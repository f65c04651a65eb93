//! A record of what one worker inspects, for tests that compare it with what a host received (`crates/hosts`).
//!
//! A worker of a sensor has none: it costs one comparison where stream data is handed on.

use std::net::IpAddr;
use std::ops::Range;

use margay_flow::{Direction, FlowCore};
use margay_packet::Packet;
use margay_stream::{StreamEvent, TcpSession};

/// What happened to the data of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A chunk of the raw stream went to detection.
    Stream {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the chunk.
        offset: u64,
        /// Its bytes ([`Witness::bytes`]).
        bytes: Range<usize>,
    },
    /// Bytes of the stream went to protocol detection or to a parser, which may leave some of them for later.
    App {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the first.
        offset: u64,
        /// The bytes.
        bytes: Range<usize>,
    },
    /// The application layer was told that bytes are missing.
    AppGap {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the first.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// The application layer takes no more data of the flow; noted for each direction.
    AppOff,
    /// The application layer begins anew with the stream.
    AppRestart {
        /// Sequence number of the first byte of the stream.
        first: u32,
        /// Stream offset of the first byte that it is given from now on.
        offset: u64,
    },
    /// A packet went to detection; these are the bytes of its payload.
    Payload(Range<usize>),
    /// A decoder or stream event that rules can ask for, by its name.
    Event(&'static str),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of the flow; 0 where the packet has none.
    pub flow: u64,
    /// Address and port of the sender.
    pub from: (IpAddr, u16),
    /// Address and port of the receiver.
    pub to: (IpAddr, u16),
    /// What.
    pub what: What,
}

/// What was inspected since it was last cleared.
#[derive(Debug, Default)]
pub struct Witness {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl Witness {
    /// What happened, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The bytes of a record.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or(&[])
    }

    /// Forgets all.
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
        self.records.push(Record { flow: core.id, from, to, what });
    }

    pub(crate) fn stream(&mut self, core: &FlowCore, dir: Direction, first: u32, offset: u64, data: &[u8]) {
        let bytes = self.keep(data);
        self.note(core, dir, What::Stream { first, offset, bytes });
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

    /// A packet that goes to detection.
    pub(crate) fn payload(&mut self, packet: &Packet<'_>, flow: u64) {
        let bytes = self.keep(packet.payload());
        let (from, to) = ((packet.src, packet.sport), (packet.dst, packet.dport));
        self.records.push(Record { flow, from, to, what: What::Payload(bytes) });
    }

    /// What was wrong with a packet.
    pub(crate) fn events(&mut self, packet: &Packet<'_>, flow: u64, stream: &[StreamEvent]) {
        let (from, to) = ((packet.src, packet.sport), (packet.dst, packet.dport));
        let decoder = packet.events.as_slice().iter().map(|e| e.name());
        for name in decoder.chain(stream.iter().map(|e| e.name())) {
            self.records.push(Record { flow, from, to, what: What::Event(name) });
        }
    }
}
