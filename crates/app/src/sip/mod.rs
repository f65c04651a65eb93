//! SIP (RFC 3261) over UDP and TCP, with its session descriptions (SDP, RFC 8866): each message is a transaction.
//!
//! Requests go to the server and responses to the client. Like in Suricata, a message in the wrong direction is an error.

mod head;
mod sdp;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Opening, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{Found, LogFor, TxBase};

use head::{Field, Head, StartLine};
use sdp::Sdp;

/// The limit of a start line with its header fields over TCP; a longer header ends parsing of the flow.
const HEAD_MAX: usize = 64 << 10;
/// The limit of a session description; the rest of a longer one is skipped.
const SDP_MAX: usize = 32 << 10;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:sip.NAME`).

    events! { "SIP";
        IncompleteData "incomplete_data";
        InvalidData "invalid_data";
    }
}
use events::Event;

keywords! {
    Method Keyword::buffer(&["sip.method"], KeywordDirection::Both);
    Uri Keyword::buffer(&["sip.uri"], KeywordDirection::Both);
    StatCode Keyword::buffer(&["sip.stat_code"], KeywordDirection::Both);
    StatMsg Keyword::buffer(&["sip.stat_msg"], KeywordDirection::Both);
    RequestLine Keyword::buffer(&["sip.request_line"], KeywordDirection::Both);
    ResponseLine Keyword::buffer(&["sip.response_line"], KeywordDirection::Both);
    Version Keyword::buffer(&["sip.protocol"], KeywordDirection::Both);
    From Keyword::buffers(&["sip.from"], KeywordDirection::Both);
    To Keyword::buffers(&["sip.to"], KeywordDirection::Both);
    Via Keyword::buffers(&["sip.via"], KeywordDirection::Both);
    UserAgent Keyword::buffers(&["sip.user_agent"], KeywordDirection::Both);
    ContentType Keyword::buffers(&["sip.content_type"], KeywordDirection::Both);
    ContentLength Keyword::buffers(&["sip.content_length"], KeywordDirection::Both);
    SdpSessionName Keyword::buffers(&["sdp.session_name"], KeywordDirection::Both);
    SdpSessionInfo Keyword::buffers(&["sdp.session_info"], KeywordDirection::Both);
    SdpOrigin Keyword::buffers(&["sdp.origin"], KeywordDirection::Both);
    SdpUri Keyword::buffers(&["sdp.uri"], KeywordDirection::Both);
    SdpEmail Keyword::buffers(&["sdp.email"], KeywordDirection::Both);
    SdpPhone Keyword::buffers(&["sdp.phone_number"], KeywordDirection::Both);
    SdpConnection Keyword::buffers(&["sdp.connection_data"], KeywordDirection::Both);
    SdpBandwidth Keyword::buffers(&["sdp.bandwidth"], KeywordDirection::Both);
    SdpTime Keyword::buffers(&["sdp.time"], KeywordDirection::Both);
    SdpRepeat Keyword::buffers(&["sdp.repeat_time"], KeywordDirection::Both);
    SdpZone Keyword::buffers(&["sdp.timezone"], KeywordDirection::Both);
    SdpKey Keyword::buffers(&["sdp.encryption_key"], KeywordDirection::Both);
    SdpAttribute Keyword::buffers(&["sdp.attribute"], KeywordDirection::Both);
    SdpMedia Keyword::buffers(&["sdp.media.media"], KeywordDirection::Both);
    SdpMediaInfo Keyword::buffers(&["sdp.media.media_info"], KeywordDirection::Both);
    SdpMediaConnection Keyword::buffers(&["sdp.media.connection_data"], KeywordDirection::Both);
    SdpMediaKey Keyword::buffers(&["sdp.media.encryption_key"], KeywordDirection::Both);
    SdpMediaBandwidth Keyword::buffers(&["sdp.media.bandwidth"], KeywordDirection::Both);
    SdpMediaAttribute Keyword::buffers(&["sdp.media.attribute"], KeywordDirection::Both);
}

/// Types of frames, by number.
const FRAMES: &[&str] =
    &["pdu", "request.line", "request.headers", "request.body", "response.line", "response.headers", "response.body"];
const PDU_FRAME: u8 = 0;
/// The first of the three parts of a request; those of a response follow.
const REQUEST_LINE_FRAME: u8 = 1;
const RESPONSE_LINE_FRAME: u8 = 4;

/// The first words of messages: the methods of RFC 3261 and its extensions, and the version of a response.
const WORDS: [&[u8]; 15] = [
    b"REGISTER ",
    b"INVITE ",
    b"ACK ",
    b"BYE ",
    b"CANCEL ",
    b"UPDATE ",
    b"REFER ",
    b"PRACK ",
    b"SUBSCRIBE ",
    b"NOTIFY ",
    b"PUBLISH ",
    b"MESSAGE ",
    b"INFO ",
    b"OPTIONS ",
    b"SIP/2.0 ",
];

/// Each word over both transports and in both directions, because either end may send requests.
const LITERALS: [Pattern; WORDS.len() * 4] = {
    let mut all = [Pattern::tcp(Direction::ToServer, b""); WORDS.len() * 4];
    let mut i = 0;
    while i < WORDS.len() {
        let (to_server, to_client) =
            (Pattern::tcp(Direction::ToServer, WORDS[i]), Pattern::tcp(Direction::ToClient, WORDS[i]));
        all[4 * i] = to_server;
        all[4 * i + 1] = to_client;
        all[4 * i + 2] = Pattern { transport: UDP, ..to_server };
        all[4 * i + 3] = Pattern { transport: UDP, ..to_client };
        i += 1;
    }
    all
};

/// The line ends that may precede the first message of a stream.
const BLANKS_MAX: usize = 64;

/// Clients may begin a stream with line ends (RFC 3261, section 7.5; RFC 5626, section 3.5.1).
fn after_line_ends(_dir: Direction, data: &[u8]) -> Probed {
    let blanks = data.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let rest = data.get(blanks..).unwrap_or(&[]);
    if blanks == 0 && !data.is_empty() || blanks > BLANKS_MAX {
        Probed::No
    } else if WORDS.iter().any(|w| rest.starts_with(w)) {
        Probed::Yes { reverse: false }
    } else if WORDS.iter().any(|w| w.starts_with(rest)) {
        Probed::More
    } else {
        Probed::No
    }
}

const LENIENT: usize = 0;

/// SIP.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[Setting {
        key: "lenient",
        unit: Unit::Flag,
        default: 0,
        about: "Whether either side may send requests, as a server does that calls a registered telephone, names and values may \
                have other characters than ASCII, and datagrams of line ends or zeros, which keep an address binding, are no \
                errors.",
    }],
    opening: Opening::Command,
    recognition: Recognition {
        patterns: &LITERALS,
        probes: &[Probe { transport: TCP, ports: &[], probe: after_line_ends }],
    },
    parser: parser::<Sip>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    frames: FRAMES,
    ..Protocol::new(AppProto::Sip, "sip").logged()
};

/// The state of a stream's direction.
#[derive(Debug, Default)]
struct Side {
    /// Bytes of the current header that have no blank line.
    scanned: usize,
    /// Length of the current message, and the rest of its body after that, once the header is complete.
    message: Option<(usize, u64)>,
}

/// Reads a header. Only the lenient parser takes any character, and expects a server that calls a registered telephone.
fn read(lenient: bool, dir: Direction, head: &[u8]) -> Option<Head> {
    let request = if lenient { !head.starts_with(b"SIP/") } else { dir == Direction::ToServer };
    Head::read(request, head).filter(|h| lenient || h.is_strict())
}

/// The state of a flow.
#[derive(Debug, Default)]
struct Sip {
    lenient: bool,
    sides: [Side; 2],
}

impl Conversation for Sip {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Sip;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Sip { lenient: config.settings.get(AppProto::Sip, LENIENT) != 0, ..Sip::default() }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        let side = &mut self.sides[dir.index()];
        if let Some((len, body)) = side.message {
            return Framing::Head(len, body);
        }
        // Line ends before a start line are skipped (section 7.5); clients send them to keep the connection open.
        let blank = data.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        if blank > 0 {
            side.scanned = 0;
            return Framing::Skip(blank);
        }
        let Some(len) = head::end(data, side.scanned) else {
            side.scanned = data.len();
            return match () {
                () if data.len() > HEAD_MAX => Framing::Broken,
                () if end => Framing::Skip(data.len()),
                () => Framing::More,
            };
        };
        let Some(head) = read(self.lenient, dir, data.get(..len).unwrap_or(data)) else { return Framing::Broken };
        let body = head.content_length();
        let wanted = if head.has_sdp() { body.min(SDP_MAX as u64) as usize } else { 0 };
        side.message = Some((len + wanted, body - wanted as u64));
        Framing::Head(len + wanted, body - wanted as u64)
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        let side = &mut self.sides[dir.index()];
        (side.scanned, side.message) = (0, None);
        let failed = |turn: &mut Turn<'_, '_, Message>, event| {
            // Every datagram is a frame, whatever its content.
            if turn.cx.flow.proto == 17 {
                turn.frame(dir, PDU_FRAME, 0, message.len(), None);
            }
            if let Some(tx) = turn.latest() {
                tx.event(event as u8);
            }
            Outcome::Failed
        };
        // Datagrams without a message keep an address binding.
        if self.lenient && (message.iter().all(|b| matches!(b, b'\r' | b'\n' | b' ' | 0)) || message == b"jaK") {
            turn.frame(dir, PDU_FRAME, 0, message.len(), None);
            return Outcome::More;
        }
        let Some(len) = head::end(message, 0) else { return failed(turn, Event::IncompleteData) };
        let Some(head) = read(self.lenient, dir, message.get(..len).unwrap_or(message)) else {
            return failed(turn, Event::InvalidData);
        };
        let rest = message.get(len..).unwrap_or(&[]);
        let mut body = rest.len() as u64;
        if turn.cx.flow.proto == 6 {
            body = head.content_length();
        }
        let sdp = if head.has_sdp() { Sdp::read(rest.get(..SDP_MAX).unwrap_or(rest)) } else { None };
        let (line, is_request) = (head.line_len(), head.is_request());
        let id = turn.one_way(dir, Message { dir, head, sdp }).base.id;
        let first = if is_request { REQUEST_LINE_FRAME } else { RESPONSE_LINE_FRAME };
        let body = usize::try_from(body).unwrap_or(usize::MAX - len);
        turn.frame(dir, PDU_FRAME, 0, len.saturating_add(body), Some(id));
        turn.frame(dir, first, 0, line, Some(id));
        // Excluding the blank line.
        let blank = if message.get(..len).is_some_and(|m| m.ends_with(b"\r\n")) { 2 } else { 1 };
        turn.frame(dir, first + 1, line, len.saturating_sub(line + blank), Some(id));
        if body > 0 {
            turn.frame(dir, first + 2, len, body, Some(id));
        }
        Outcome::More
    }
}

/// A message.
#[derive(Debug)]
struct Message {
    dir: Direction,
    head: Head,
    sdp: Option<Box<Sdp>>,
}

impl Message {
    fn find(&self, id: Id, index: usize) -> Option<&[u8]> {
        let head = &self.head;
        let field = match id {
            Id::Method | Id::Uri | Id::RequestLine | Id::StatCode | Id::StatMsg | Id::ResponseLine | Id::Version => {
                return (index == 0).then(|| self.of_line(id)).flatten();
            }
            Id::From => return head.field(Field::From, index),
            Id::To => return head.field(Field::To, index),
            Id::Via => return head.field(Field::Via, index),
            Id::UserAgent => return head.field(Field::UserAgent, index),
            Id::ContentType => return head.field(Field::ContentType, index),
            Id::ContentLength => return head.field(Field::ContentLength, index),
            Id::SdpSessionName => sdp::Field::SessionName,
            Id::SdpSessionInfo => sdp::Field::SessionInfo,
            Id::SdpOrigin => sdp::Field::Origin,
            Id::SdpUri => sdp::Field::Uri,
            Id::SdpEmail => sdp::Field::Email,
            Id::SdpPhone => sdp::Field::Phone,
            Id::SdpConnection => sdp::Field::Connection,
            Id::SdpBandwidth => sdp::Field::Bandwidth,
            Id::SdpTime => sdp::Field::Time,
            Id::SdpRepeat => sdp::Field::Repeat,
            Id::SdpZone => sdp::Field::Zone,
            Id::SdpKey => sdp::Field::Key,
            Id::SdpAttribute => sdp::Field::Attribute,
            Id::SdpMedia => sdp::Field::Media,
            Id::SdpMediaInfo => sdp::Field::MediaInfo,
            Id::SdpMediaConnection => sdp::Field::MediaConnection,
            Id::SdpMediaKey => sdp::Field::MediaKey,
            Id::SdpMediaBandwidth => sdp::Field::MediaBandwidth,
            Id::SdpMediaAttribute => sdp::Field::MediaAttribute,
        };
        self.sdp.as_ref()?.field(field, index)
    }

    fn of_line(&self, id: Id) -> Option<&[u8]> {
        Some(match (self.head.start(), id) {
            (StartLine::Request { method, .. }, Id::Method) => method,
            (StartLine::Request { uri, .. }, Id::Uri) => uri,
            (StartLine::Response { code, .. }, Id::StatCode) => code,
            (StartLine::Response { reason, .. }, Id::StatMsg) => reason,
            (StartLine::Request { .. }, Id::RequestLine) | (StartLine::Response { .. }, Id::ResponseLine) => {
                self.head.line()
            }
            (StartLine::Request { version, .. } | StartLine::Response { version, .. }, Id::Version) => version,
            _ => return None,
        })
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        self.head.held() + self.sdp.as_ref().map_or(0, |s| s.held())
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if dir != self.dir {
            return None;
        }
        self.find(Id::of(id)?, index).map(Found::whole)
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("sip");
        match self.head.start() {
            StartLine::Request { method, uri, version } => {
                json.bytes("method", method);
                json.bytes("uri", uri);
                json.bytes("version", version);
                json.bytes("request_line", self.head.line());
            }
            StartLine::Response { version, code, reason } => {
                json.bytes("version", version);
                json.bytes("code", code);
                json.bytes("reason", reason);
                json.bytes("response_line", self.head.line());
            }
        }
        if let Some(sdp) = &self.sdp {
            sdp.log(json);
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
