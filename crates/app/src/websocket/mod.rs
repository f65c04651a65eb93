//! WebSocket (RFC 6455), with compressed messages (RFC 7692). HTTP/1 changes to it after its response `101`.
//!
//! Each protocol frame is a transaction. The payload of a fragmented message belongs to the frame that ends it. Control frames
//! in between have their own payload.

mod inflate;
mod tx;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use margay_flow::{Direction, FlowCore};

use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Turn, parser};
use crate::declare::{EveOption, Handover, Keyword, KeywordDirection, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probed, Recognition};

use inflate::Inflater;
use tx::Pdu;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:websocket.NAME`).

    events! { "WebSocket";
        SkipEndOfPayload "skip_end_of_payload";
        ReassemblyLimitReached "reassembly_limit_reached";
        DecompressionFailed "decompression_failed";
        CompressionBomb "compression_bomb";
    }
}
use events::Event;

/// Names of opcodes (RFC 6455 section 5.2).
const OPCODES: &[(&str, u64)] =
    &[("continuation", 0), ("text", 1), ("binary", 2), ("close", 8), ("ping", 9), ("pong", 10)];
/// Frames with this opcode or above are control frames, which may interrupt a message.
const CONTROL: u8 = 8;
/// The frame ends its message.
const FIN: u8 = 0x80;
/// The message is compressed: RSV1 (RFC 7692 section 6).
const COMP: u8 = 0x40;
/// The upper bits of a frame's first byte.
const FLAGS: &[(&str, u64)] = &[("fin", FIN as u64), ("comp", COMP as u64)];

keywords! {
    Payload Keyword::buffer(&["websocket.payload"], KeywordDirection::Both);
    Flags Keyword::flags(&["websocket.flags"], 255, FLAGS, KeywordDirection::Both);
    Mask Keyword::number(&["websocket.mask"], u32::MAX as u64, KeywordDirection::Both);
    Opcode Keyword::words(&["websocket.opcode"], 255, OPCODES, KeywordDirection::Both);
}

const MAX_PAYLOAD: usize = 0;

/// Indexes of options: of the event type, then of alerts.
const PAYLOAD: usize = 0;
const PAYLOAD_PRINTABLE: usize = 1;
const ALERT_PAYLOAD: usize = 2;
const ALERT_PAYLOAD_PRINTABLE: usize = 3;

/// Frame types for rules.
const FRAME_PDU: u8 = 0;
const FRAME_HEADER: u8 = 1;
const FRAME_DATA: u8 = 2;

/// Whether a client's data can be a frame. A first frame whose payload is not masked (RFC 6455 section 5.1) and that breaks the format in
/// another way as well is text.
fn client_begins(data: &[u8]) -> Probed {
    match data {
        [] | [_] => Probed::More,
        [first, second, ..] => {
            let opcode = first & 0x0f;
            let is_valid = match opcode {
                1 | 2 => first & 0x30 == 0,
                8..=10 => first & 0x70 == 0 && first & FIN != 0,
                _ => false,
            };
            if is_valid || second & 0x80 != 0 { Probed::Yes { reverse: false } } else { Probed::No }
        }
    }
}

/// WebSocket.
pub static PROTOCOL: Protocol = Protocol {
    follows: &[Handover::Upgrade("websocket")],
    settings: &[Setting {
        key: "max-payload-size",
        unit: Unit::Bytes,
        default: 64 << 10,
        about: "Most bytes of a message's payload that are inspected, compressed or not; the rest is skipped.",
    }],
    eve_options: &[
        EveOption { key: "payload", unit: Unit::Flag, default: 0, about: "The payload, in Base64." },
        EveOption { key: "payload-printable", unit: Unit::Flag, default: 0, about: "The payload, as printable text." },
    ],
    alert_options: &[
        EveOption {
            key: "websocket-payload",
            unit: Unit::Flag,
            default: 0,
            about: "The payload of WebSocket, in Base64.",
        },
        EveOption {
            key: "websocket-payload-printable",
            unit: Unit::Flag,
            default: 0,
            about: "The payload, as printable text.",
        },
    ],
    recognition: Recognition { patterns: &[], probes: &[] },
    client_begins,
    parser: parser::<WebSocket>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    frames: &["pdu", "header", "data"],
    events: events::NAMES,
    packet_addresses: true,
    ..Protocol::new(AppProto::Websocket, "websocket").logged()
};

/// The header of a frame (RFC 6455 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// FIN and the reserved bits.
    flags: u8,
    opcode: u8,
    mask: Option<u32>,
    /// Length of the payload.
    payload: u64,
    /// Length of the header.
    len: usize,
}

impl Header {
    /// Reads a header; `None` if it is incomplete.
    fn read(data: &[u8]) -> Option<Header> {
        let &[first, second, ref rest @ ..] = data else { return None };
        let (payload, len) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes(*rest.first_chunk()?)), 4),
            127 => (u64::from_be_bytes(*rest.first_chunk()?), 10),
            n => (u64::from(n), 2),
        };
        let mask = match second & 0x80 {
            0 => None,
            _ => Some(u32::from_be_bytes(*data.get(len..)?.first_chunk()?)),
        };
        let len = if mask.is_some() { len + 4 } else { len };
        Some(Header { flags: first & 0xf0, opcode: first & 0x0f, mask, payload, len })
    }

    const fn is_control(&self) -> bool {
        self.opcode >= CONTROL
    }
}

/// The frame whose payload is being received.
#[derive(Debug)]
struct Current {
    header: Header,
    /// Bytes of its payload so far.
    at: u64,
    /// Its transaction, unless that is already complete.
    tx: Option<u64>,
}

/// The state of one direction.
#[derive(Debug, Default)]
struct Side {
    frame: Option<Current>,
    /// The payload of the message so far.
    message: Vec<u8>,
    /// The payload of the control frame so far.
    control: Vec<u8>,
    /// A message waits for its next fragment.
    fragmented: bool,
    /// The message is compressed.
    compressed: bool,
    /// The message reached the inspection limit, and rules have its beginning.
    full: bool,
    /// Decompresses messages, which may refer to earlier ones (RFC 7692 section 7.2.3.2).
    inflater: Option<Box<Inflater>>,
}

/// The state of a flow.
#[derive(Debug)]
struct WebSocket {
    max_payload: usize,
    sides: [Side; 2],
}

impl Conversation for WebSocket {
    type Tx = Pdu;
    const PROTO: AppProto = AppProto::Websocket;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        let max = config.settings.get(Self::PROTO, MAX_PAYLOAD);
        WebSocket { max_payload: usize::try_from(max).unwrap_or(usize::MAX), sides: Default::default() }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], _end: bool) -> Framing {
        match &self.sides[dir.index()].frame {
            // A payload is consumed as it arrives.
            Some(frame) => {
                let left = usize::try_from(frame.header.payload - frame.at).unwrap_or(usize::MAX);
                Framing::Message(left.min(data.len()))
            }
            None => Header::read(data).map_or(Framing::More, |header| Framing::Message(header.len)),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, data: &[u8]) -> Outcome {
        let side = &mut self.sides[dir.index()];
        if side.frame.is_some() {
            side.payload(turn, dir, data, self.max_payload);
        } else if let Some(header) = Header::read(data) {
            side.begin(turn, dir, header);
        }
        side.end_frame(turn, dir, self.max_payload);
        Outcome::More
    }

    fn gap(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let Some(frame) = side.frame.as_mut().filter(|f| len <= f.header.payload - f.at) else {
            // The next frame boundary is unknown.
            return Outcome::Failed;
        };
        frame.at += len;
        if !frame.header.is_control()
            && let Some(inflater) = &mut side.inflater
        {
            inflater.lose();
        }
        side.end_frame(turn, dir, self.max_payload);
        Outcome::More
    }

    fn held(&self) -> u64 {
        let of = |s: &Side| {
            let inflater = if s.inflater.is_some() { inflate::MEMORY } else { 0 };
            (s.message.capacity() + s.control.capacity()) as u64 + inflater
        };
        self.sides.iter().map(of).sum()
    }
}

impl Side {
    /// Begins a frame.
    fn begin(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, header: Header) {
        let tx =
            turn.open(Pdu { dir, flags: header.flags, opcode: header.opcode, mask: header.mask, payload: Vec::new() });
        tx.only(dir);
        let id = tx.base.id;
        let payload = usize::try_from(header.payload.min(1 << 40)).unwrap_or(usize::MAX >> 8);
        turn.frame(dir, FRAME_PDU, 0, header.len + payload, Some(id));
        turn.frame(dir, FRAME_HEADER, 0, header.len, Some(id));
        if payload > 0 {
            turn.frame(dir, FRAME_DATA, header.len, payload, Some(id));
        }
        if header.is_control() {
            self.control.clear();
        } else if header.opcode != 0 || !self.fragmented {
            // A message that another one interrupts is never delivered (section 5.4).
            self.message.clear();
            (self.full, self.compressed) = (false, header.flags & COMP != 0);
        }
        self.frame = Some(Current { header, at: 0, tx: Some(id) });
    }

    /// Handles payload of the current frame.
    fn payload(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, data: &[u8], max: usize) {
        let Some(frame) = &mut self.frame else { return };
        let plain = unmask(frame.header.mask, frame.at, data);
        frame.at += data.len() as u64;
        let (header, tx) = (frame.header, frame.tx);
        if header.is_control() {
            if append(&mut self.control, &plain, max) {
                self.cut(turn, dir, Event::SkipEndOfPayload);
            }
            return;
        }
        let is_over = if self.compressed {
            self.inflate(turn, tx, &plain, max)
        } else {
            !self.full && append(&mut self.message, &plain, max)
        };
        if is_over {
            self.full = true;
            let whole = header.opcode != 0 && header.flags & FIN != 0;
            self.cut(turn, dir, if whole { Event::SkipEndOfPayload } else { Event::ReassemblyLimitReached });
        }
    }

    /// Decompresses data of a message. Returns whether it exceeds the limit. Data beyond the limit is decompressed too, because
    /// later messages may refer to it.
    fn inflate(&mut self, turn: &mut Turn<'_, '_, Pdu>, tx: Option<u64>, data: &[u8], max: usize) -> bool {
        let inflater = self.inflater.get_or_insert_with(Default::default);
        let (message, full) = (&mut self.message, self.full);
        let mut is_over = false;
        let result = inflater.feed(data, |out| is_over |= !full && append(message, out, max));
        if let (Err(event), Some(tx)) = (result, tx.and_then(|id| turn.tx(id))) {
            tx.event(event as u8);
        }
        is_over
    }

    /// The payload of the current frame or its message exceeds the inspection limit: rules get its beginning now.
    fn cut(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, event: Event) {
        let Some(frame) = &mut self.frame else { return };
        let Some(tx) = frame.tx.take().and_then(|id| turn.tx(id)) else { return };
        tx.content.payload =
            std::mem::take(if frame.header.is_control() { &mut self.control } else { &mut self.message });
        tx.event(event as u8);
        tx.finish(dir);
    }

    /// Ends the current frame if it is complete.
    fn end_frame(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, max: usize) {
        let Some(Current { header, tx, .. }) = self.frame.as_ref().filter(|f| f.at == f.header.payload) else { return };
        let (header, tx) = (*header, *tx);
        let is_last = header.flags & FIN != 0;
        if !header.is_control() {
            self.fragmented = !is_last;
            if is_last && self.compressed {
                if self.inflate(turn, tx, &inflate::TAIL, max) {
                    self.cut(turn, dir, Event::SkipEndOfPayload);
                }
                if let Some(inflater) = &mut self.inflater {
                    inflater.end_message();
                }
            }
        }
        // `None` if rules already have it.
        let Some(tx) = self.frame.take().and_then(|f| f.tx).and_then(|id| turn.tx(id)) else { return };
        if header.is_control() {
            tx.content.payload = std::mem::take(&mut self.control);
        } else if is_last {
            tx.content.payload = std::mem::take(&mut self.message);
        }
        tx.finish(dir);
    }
}

/// Unmasks payload bytes from offset `at` on (RFC 6455 section 5.3).
fn unmask(mask: Option<u32>, at: u64, data: &[u8]) -> Cow<'_, [u8]> {
    match mask {
        None | Some(0) => Cow::Borrowed(data),
        Some(mask) => {
            let key = mask.rotate_left(8 * (at % 4) as u32).to_be_bytes();
            Cow::Owned(data.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect())
        }
    }
}

/// Appends bytes, up to a length of `max`. Returns whether there were more.
fn append(to: &mut Vec<u8>, data: &[u8], max: usize) -> bool {
    let room = max.saturating_sub(to.len());
    to.extend_from_slice(data.get(..room).unwrap_or(data));
    data.len() > room
}
