//! RFB (RFC 6143), the protocol of VNC: the handshake, up to the server's description of its screen, is one transaction. Later
//! data is not parsed.

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, NumberCondition, Protocol};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition};
use crate::tx::{Found, LogFor, TxBase};

/// The limit of a screen's name.
const NAME_MAX: usize = 4096;
/// The limit of a stored reason.
const REASON_MAX: usize = 4096;
/// The limit of data that a side sends before its turn.
const EARLY_MAX: usize = 4096;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:rfb.NAME`).

    events! { "RFB";
        UnimplementedSecurityType "unimplemented_security_type";
        UnknownSecurityResult "unknown_security_result";
        MalformedMessage "malformed_message";
        ConfusedState "confused_state";
    }
}
use events::Event;

keywords! {
    Name Keyword::buffer(&["rfb.name"], KeywordDirection::ToClient);
    SecurityResult Keyword::own(&["rfb.secresult"], security_result, KeywordDirection::ToClient);
    SecurityType Keyword::number(&["rfb.sectype"], u32::MAX as u64, KeywordDirection::ToServer);
}

/// RFB.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[Pattern::tcp(Direction::ToServer, b"RFB "), Pattern::tcp(Direction::ToClient, b"RFB ")],
        probes: &[],
    },
    parser: parser::<Rfb>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    frames: &["pdu"],
    ..Protocol::new(AppProto::Rfb, "rfb").logged()
};

/// Parses a number, or the name of a result.
fn security_result(text: &str) -> Result<NumberCondition, String> {
    let (not, word) = text.trim().strip_prefix('!').map_or(("", text.trim()), |w| ("!", w.trim_start()));
    let number = match word.to_ascii_lowercase().as_str() {
        "ok" => "0",
        "fail" => "1",
        "toomany" => "2",
        "unknown" if not.is_empty() => ">2",
        "unknown" => return Ok(NumberCondition::Compare { text: "<3".into(), max: u64::from(u32::MAX) }),
        _ => word,
    };
    Ok(NumberCondition::Compare { text: format!("{not}{number}"), max: u64::from(u32::MAX) })
}

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// The next message (section 7.1 to 7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    ServerVersion,
    ClientVersion,
    /// The server's security types.
    SecurityTypes,
    /// The client's choice.
    Choice,
    /// The choice of a server with version 3.3.
    ServersChoice,
    Challenge,
    Response,
    Result,
    ClientInit,
    ServerInit,
    /// Why the server refuses.
    Reason,
    /// An unsupported authentication type: data after it is not parsed.
    Unknown,
}

impl State {
    /// The side that sends next.
    const fn side(self) -> Option<Direction> {
        match self {
            State::ClientVersion | State::Choice | State::Response | State::ClientInit => Some(TS),
            State::Unknown => None,
            _ => Some(TC),
        }
    }
}

/// The state of a flow.
#[derive(Debug, Default)]
struct Rfb {
    state: State,
    /// The client's version: 3, 7 or 8.
    minor: u8,
    tx: u64,
}

fn be16(data: &[u8], at: usize) -> u16 {
    data.get(at..).and_then(|d| d.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b))
}

fn be32(data: &[u8], at: usize) -> u32 {
    data.get(at..).and_then(|d| d.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

impl Conversation for Rfb {
    type Tx = Handshake;
    const PROTO: AppProto = AppProto::Rfb;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Rfb::default()
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        match self.state.side() {
            None => return Framing::Skip(data.len()),
            Some(side) if side != dir => {
                // The data comes again at the side's turn, which may be missing at the end.
                return if end || data.len() > EARLY_MAX { Framing::Message(data.len()) } else { Framing::More };
            }
            Some(_) => {}
        }
        let len = match self.state {
            State::ServerVersion | State::ClientVersion => 12,
            State::SecurityTypes => 1 + usize::from(data[0]),
            State::Choice | State::ClientInit => 1,
            State::ServersChoice | State::Result => 4,
            State::Challenge | State::Response => 16,
            State::ServerInit if data.len() < 24 => 24,
            // The rest of a long name is not needed.
            State::ServerInit => 24 + (be32(data, 20) as usize).min(NAME_MAX),
            State::Reason if data.len() < 4 => 4,
            State::Reason => 4 + (be32(data, 0) as usize).min(REASON_MAX),
            State::Unknown => 1,
        };
        // A truncated message is not part of the handshake.
        if end && data.len() < len { Framing::Skip(data.len()) } else { Framing::Message(len) }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Handshake>, dir: Direction, message: &[u8]) -> Outcome {
        if self.state == State::ServerVersion && self.state.side() == Some(dir) {
            self.tx = turn.open(Handshake::default()).base.id;
        }
        // Stream rules inspect each message at once.
        turn.cx.shared.whole[dir.index()] = true;
        let Some(tx) = turn.tx(self.tx) else { return Outcome::Failed };
        let next = if self.state.side() == Some(dir) {
            self.read(&mut tx.content, message)
        } else {
            Err(Event::ConfusedState)
        };
        let id = self.tx;
        let outcome = match next {
            Ok(Some((state, event))) => {
                self.state = state;
                if let Some(event) = event {
                    tx.event(event as u8);
                }
                tx.touch(dir);
                // The data that the other side sent meanwhile can be read now.
                Outcome::Resume
            }
            Ok(None) => {
                tx.finish(TS);
                tx.finish(TC);
                Outcome::Done
            }
            Err(event) => {
                tx.event(event as u8);
                Outcome::Failed
            }
        };
        turn.frame(dir, 0, 0, message.len(), Some(id));
        outcome
    }
}

impl Rfb {
    /// Reads the current message. Returns the next state, with an optional event; `None` if the handshake is over.
    fn read(&mut self, h: &mut Handshake, m: &[u8]) -> Result<Option<(State, Option<Event>)>, Event> {
        let first = m.first().copied().unwrap_or(0);
        let next = match self.state {
            State::ServerVersion => {
                h.server = Some(version(m)?);
                State::ClientVersion
            }
            State::ClientVersion => {
                let (major, minor) = h.client.insert(version(m)?);
                // Versions below 3.7 are treated as 3.3, and unknown ones as 3.8 (section 7.1.1).
                self.minor = match (&*major, &*minor) {
                    (b"003", b"007") => 7,
                    (b"003", m) if &m[..] < b"007" => 3,
                    _ => 8,
                };
                if self.minor == 3 { State::ServersChoice } else { State::SecurityTypes }
            }
            // No types: the reason follows.
            State::SecurityTypes if first == 0 => State::Reason,
            State::SecurityTypes => State::Choice,
            State::Choice | State::ServersChoice => {
                let kind = if self.state == State::Choice { u32::from(first) } else { be32(m, 0) };
                h.security_type = Some(kind);
                match (kind, self.minor) {
                    (1, 8) => State::Result,
                    (1, _) => State::ClientInit,
                    (2, _) => State::Challenge,
                    (0, 3) => State::Reason,
                    _ => return Ok(Some((State::Unknown, Some(Event::UnimplementedSecurityType)))),
                }
            }
            State::Challenge => {
                h.challenge = m.first_chunk().copied();
                State::Response
            }
            State::Response => {
                h.response = m.first_chunk().copied();
                State::Result
            }
            State::Result => {
                let result = be32(m, 0);
                h.result = Some(result);
                match result {
                    0 => State::ClientInit,
                    // Servers before 3.8 close the connection without a reason (section 7.1.3).
                    1 | 2 if self.minor == 8 => State::Reason,
                    1 | 2 => return Ok(None),
                    _ => return Err(Event::UnknownSecurityResult),
                }
            }
            State::ClientInit => {
                h.shared = Some(first != 0);
                State::ServerInit
            }
            State::ServerInit => {
                h.screen = Some(m.into());
                return Ok(None);
            }
            State::Reason => {
                h.reason = m.get(4..).map(Into::into);
                return Ok(None);
            }
            State::Unknown => return Err(Event::ConfusedState),
        };
        Ok(Some((next, None)))
    }
}

/// Reads `RFB 003.008` and a line feed.
fn version(message: &[u8]) -> Result<([u8; 3], [u8; 3]), Event> {
    match message {
        [b'R', b'F', b'B', b' ', a, b, c, b'.', d, e, f, b'\n']
            if [a, b, c, d, e, f].iter().all(|x| x.is_ascii_digit()) =>
        {
            Ok(([*a, *b, *c], [*d, *e, *f]))
        }
        _ => Err(Event::MalformedMessage),
    }
}

/// The stored part of a handshake.
#[derive(Debug, Default)]
struct Handshake {
    server: Option<([u8; 3], [u8; 3])>,
    client: Option<([u8; 3], [u8; 3])>,
    security_type: Option<u32>,
    challenge: Option<[u8; 16]>,
    response: Option<[u8; 16]>,
    result: Option<u32>,
    shared: Option<bool>,
    /// The server's message (section 7.3.2), with the name cut at the limit.
    screen: Option<Box<[u8]>>,
    /// Why the server refuses, cut at the limit.
    reason: Option<Box<[u8]>>,
}

impl Handshake {
    fn name(&self) -> Option<&[u8]> {
        self.screen.as_ref()?.get(24..)
    }
}

impl Content for Handshake {
    fn held(&self) -> u64 {
        [&self.screen, &self.reason].into_iter().flatten().map(|b| b.len() as u64).sum()
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        (Id::of(id)? == Id::Name && dir == TC && index == 0).then(|| self.name().and_then(Found::filled)).flatten()
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        let n = match (Id::of(id)?, dir) {
            (Id::SecurityResult, TC) => self.result,
            (Id::SecurityType, TS) => self.security_type,
            _ => None,
        };
        n.filter(|_| index == 0).map(u64::from)
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("rfb");
        for (key, version) in [("server_protocol_version", self.server), ("client_protocol_version", self.client)] {
            if let Some((major, minor)) = version {
                json.object(key);
                json.bytes("major", &major);
                json.bytes("minor", &minor);
                json.end_object();
            }
        }
        json.object("authentication");
        if let Some(kind) = self.security_type {
            json.uint("security_type", u64::from(kind));
        }
        if self.challenge.is_some() || self.response.is_some() {
            json.object("vnc");
            for (key, bytes) in [("challenge", self.challenge), ("response", self.response)] {
                if let Some(bytes) = bytes {
                    json.hex(key, &bytes);
                }
            }
            json.end_object();
        }
        match self.result {
            Some(0) => json.str("security_result", "OK"),
            Some(1) => json.str("security_result", "FAIL"),
            Some(2) => json.str("security_result", "TOOMANY"),
            Some(n) => json.str("security_result", &format!("UNKNOWN ({n})")),
            None => {}
        }
        json.end_object();
        if let Some(reason) = &self.reason {
            json.bytes("server_security_failure_reason", reason);
        }
        if let Some(shared) = self.shared {
            json.bool("screen_shared", shared);
        }
        if let (Some(s), Some(name)) = (&self.screen, self.name()) {
            json.object("framebuffer");
            json.uint("width", u64::from(be16(s, 0)));
            json.uint("height", u64::from(be16(s, 2)));
            json.bytes("name", name);
            json.object("pixel_format");
            let byte = |at: usize| s.get(at).copied().unwrap_or(0);
            json.uint("bits_per_pixel", u64::from(byte(4)));
            json.uint("depth", u64::from(byte(5)));
            json.bool("big_endian", byte(6) != 0);
            json.bool("true_color", byte(7) != 0);
            json.uint("red_max", u64::from(be16(s, 8)));
            json.uint("green_max", u64::from(be16(s, 10)));
            json.uint("blue_max", u64::from(be16(s, 12)));
            json.uint("red_shift", u64::from(byte(14)));
            json.uint("green_shift", u64::from(byte(15)));
            json.uint("blue_shift", u64::from(byte(16)));
            json.end_object();
            json.end_object();
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
