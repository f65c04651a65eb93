//! PostgreSQL's protocol, version 3 ("Frontend/Backend Protocol" in its documentation): a request with its response is a
//! transaction.
//!
//! Messages of extended queries (Parse, Bind, Execute …) and their responses are skipped.

mod tx;

use std::collections::VecDeque;

use margay_flow::{Direction, FlowCore};

use crate::bytes::be32;
use crate::config::{AppConfig, Securing};
use crate::conversation::{Conversation, Framing, Resume, Turn, Tx, parser};
use crate::declare::{EveOption, Keyword, KeywordDirection, Protocol, Setting, Unit};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Probe, Probed, Recognition, TCP};

use tx::{Copied, Exchange, Request, Response};

/// The longest startup packet, as in the server.
const STARTUP_MAX: usize = 10_000;
/// The limit of parsed bytes in a message; the rest is skipped.
const MESSAGE_MAX: usize = 1 << 20;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:pgsql.NAME`).

    events! { "PostgreSQL";
        InvalidLength "invalid_length";
        MalformedRequest "malformed_request";
        MalformedResponse "malformed_response";
        TooManyTransactions "too_many_transactions";
    }
}
use events::Event;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

keywords! {
    Query Keyword::buffer(&["pgsql.query"], KeywordDirection::ToServer);
}

const MAX_TX: usize = 0;
const STREAM_DEPTH: usize = 1;

/// PostgreSQL.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[Setting::max_tx(1024), Setting::STREAM_DEPTH],
    eve_options: &[EveOption { key: "passwords", unit: Unit::Flag, default: 0, about: "Whether passwords are shown." }],
    mode: Mode::Off,
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[5432], probe }] },
    parser: parser::<Pgsql>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    events: events::NAMES,
    ..Protocol::new(AppProto::Pgsql, "pgsql").logged()
};

/// Codes of startup packets that are not a version.
const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// Checks for a client's startup packet, or a server's response to one.
fn probe(dir: Direction, data: &[u8]) -> Probed {
    let yes_if = |is| if is { Probed::Yes { reverse: false } } else { Probed::No };
    if dir == TS {
        return match (be32(data, 0), be32(data, 4)) {
            (Some(n), Some(code)) => {
                yes_if((8..STARTUP_MAX as u32).contains(&n) && matches!(code, 0x0003_0000 | CANCEL | SSL | GSS))
            }
            _ => Probed::More,
        };
    }
    match data {
        [] => Probed::More,
        // The response to a request for encryption, whatever follows in the same segment.
        [b'S' | b'N', ..] => yes_if(true),
        [b'R' | b'E', ..] => match be32(data, 1) {
            None => Probed::More,
            Some(n) => yes_if((8..0x1_0000).contains(&n)),
        },
        _ => Probed::No,
    }
}

/// The client's next message, if the server requested one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Password,
    SaslInitial,
    Sasl,
    /// A step of GSSAPI or SSPI.
    Token,
}

/// The state of a flow.
#[derive(Debug)]
struct Pgsql {
    max_txs: usize,
    stream_depth: u64,
    /// Transactions that wait for a response, oldest first.
    pending: VecDeque<u64>,
    /// A request for encryption waits for its one-byte response: the client's data after it may be encrypted.
    encryption: bool,
    /// It is for GSS-API, whose messages look like any other.
    gss: bool,
    securing: Securing,
    /// The meaning of messages of type `p`.
    asked: Asked,
    /// The server accepted the client.
    ready: bool,
    /// The transaction of data that the client copies in.
    copy: Option<u64>,
}

/// The longest message that is found after a gap: its length has two zeros, which few texts have.
const RESUME_MAX: usize = 0xffff;

/// Length of a message, and how much of it is parsed. `None` if more data is needed.
fn extent(data: &[u8]) -> Option<(usize, usize)> {
    let (at, seen) = match data.first()? {
        0 => (0, usize::MAX),
        // For rows, only the number of columns.
        b'D' => (1, 7),
        b'd' => (1, 5),
        _ => (1, MESSAGE_MAX),
    };
    let len = at + be32(data, at)? as usize;
    Some((len, len.min(seen)))
}

impl Conversation for Pgsql {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Pgsql;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);
    /// Connections of applications last for days. After a gap, the parser continues with the next message.
    const RESUMES: bool = true;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Pgsql {
            max_txs: config.settings.get(AppProto::Pgsql, MAX_TX) as usize,
            stream_depth: config.settings.get(AppProto::Pgsql, STREAM_DEPTH),
            pending: VecDeque::new(),
            encryption: false,
            gss: false,
            securing: config.declared.securing(),
            asked: Asked::Password,
            ready: false,
            copy: None,
        }
    }

    fn resume(&mut self, dir: Direction, data: &[u8], _end: bool) -> Resume {
        let begins = |w: &[u8]| {
            let len = be32(w, 1).and_then(|len| usize::try_from(len).ok());
            w.first() != Some(&0) && len.is_some_and(|len| len <= RESUME_MAX && is_sane(dir, w, 1 + len))
        };
        Resume::search(data, 5, begins)
    }

    /// Which response belongs to which request is unknown after a gap.
    fn gap(&mut self, turn: &mut Turn<'_, '_, Exchange>, _dir: Direction, _len: u64) -> Outcome {
        if self.encryption {
            return Outcome::Failed;
        }
        for id in std::mem::take(&mut self.pending) {
            if let Some(tx) = turn.tx(id) {
                tx.finish(TS);
                tx.finish(TC);
            }
        }
        Outcome::More
    }

    fn framing(&mut self, dir: Direction, data: &[u8], _end: bool) -> Framing {
        if self.encryption {
            match dir {
                TS if self.gss || self.securing.holds(data) => return Framing::More,
                // Messages in cleartext do not wait.
                TS => {}
                TC => return Framing::Message(1),
            }
        }
        match extent(data) {
            // A malformed message is handled immediately.
            Some((len, _)) if !is_sane(dir, data, len) => Framing::Message(data.len()),
            Some((len, seen)) => Framing::Head(seen, (len - seen) as u64),
            None => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) -> Outcome {
        turn.cx.shared.wishes.stream_depth = Some(self.stream_depth);
        if self.encryption && dir == TC {
            return self.encryption(turn, data);
        }
        let Some((len, seen)) = extent(data) else { return Outcome::More };
        if !is_sane(dir, data, len) {
            let event = if dir == TS { Event::MalformedRequest } else { Event::MalformedResponse };
            turn.one_way(dir, Exchange::default()).event(event as u8);
            return Outcome::Failed;
        }
        if data.len() < seen {
            // The stream ends within the message.
            return Outcome::More;
        }
        // A peer that never waits for a response is not a real client.
        if self.pending.len() >= self.max_txs.max(1).saturating_mul(4) {
            return Outcome::Failed;
        }
        match (dir, data) {
            (Direction::ToServer, [0, _, _, _, rest @ ..]) => self.startup(turn, rest),
            (Direction::ToServer, [of, _, _, _, _, body @ ..]) => self.request(turn, *of, body, len - 5),
            (Direction::ToClient, [of, _, _, _, _, body @ ..]) => return self.response(turn, *of, body, len - 5),
            _ => {}
        }
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<u64>()) as u64
    }
}

/// Whether a message may begin like this.
fn is_sane(dir: Direction, data: &[u8], len: usize) -> bool {
    match (dir, data.first()) {
        (Direction::ToServer, Some(0)) => (8..=STARTUP_MAX).contains(&len),
        (Direction::ToServer, Some(of)) => len >= 5 && b"pQXdcfPBDECSHF".contains(of),
        (Direction::ToClient, Some(of)) => len >= 5 && b"RSKZCTDENAGHWdc123nstIVv".contains(of),
        _ => false,
    }
}

/// Splits off text at its zero; without a zero, it is all of the data.
fn text(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|b| *b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[]),
    }
}

impl Pgsql {
    /// Handles the response to a request for encryption.
    fn encryption(&mut self, turn: &mut Turn<'_, '_, Exchange>, data: &[u8]) -> Outcome {
        self.encryption = false;
        let gss = match self.pending.pop_front().and_then(|id| turn.tx(id)) {
            Some(tx) => {
                if data == b"S" || data == b"N" {
                    tx.content.response.ssl_accepted = Some(data == b"S");
                }
                tx.finish(TC);
                tx.content.request == Request::Gss
            }
            None => false,
        };
        match data {
            b"S" if !gss => Outcome::Change(turn.cx.config.declared.secured()),
            b"G" if gss => Outcome::Done,
            b"N" => Outcome::Resume,
            // The server does not know the request and closes the connection with an error.
            _ => Outcome::Done,
        }
    }

    fn startup(&mut self, turn: &mut Turn<'_, '_, Exchange>, rest: &[u8]) {
        let body = rest.get(4..).unwrap_or(&[]);
        match be32(rest, 0) {
            Some(CANCEL) if body.len() >= 8 => {
                let (process, key) = (be32(body, 0).unwrap_or(0), be32(body, 4).unwrap_or(0));
                turn.one_way(TS, Exchange::of(Request::Cancel { process, key }));
            }
            Some(code @ (SSL | GSS)) => {
                (self.encryption, self.gss) = (true, code == GSS);
                self.open(turn, if code == SSL { Request::Ssl } else { Request::Gss });
            }
            Some(version @ 0x0003_0000..=0x0003_ffff) => {
                self.open(turn, Request::Startup { version, parameters: body.into() });
            }
            _ => turn.one_way(TS, Exchange::default()).event(Event::MalformedRequest as u8),
        }
    }

    fn open<'t>(&mut self, turn: &'t mut Turn<'_, '_, Exchange>, request: Request) -> &'t mut Tx<Exchange> {
        let tx = turn.open(Exchange::of(request));
        tx.finish(TS);
        self.pending.push_back(tx.base.id);
        tx
    }

    /// Handles a request; `len` is the length of the whole body.
    fn request(&mut self, turn: &mut Turn<'_, '_, Exchange>, of: u8, body: &[u8], len: usize) {
        match of {
            b'Q' => {
                self.open(turn, Request::Query(text(body).0.into()));
            }
            b'p' => {
                let request = match self.asked {
                    Asked::Password => Request::Password(text(body).0.into()),
                    Asked::Sasl => Request::Sasl(body.into()),
                    Asked::Token => Request::Token,
                    Asked::SaslInitial => {
                        let (mechanism, rest) = text(body);
                        let parameter = rest.get(4..).unwrap_or(&[]);
                        Request::SaslInitial { mechanism: mechanism.into(), parameter: parameter.into() }
                    }
                };
                self.open(turn, request);
            }
            b'X' => {
                turn.one_way(TS, Exchange::of(Request::Terminate));
            }
            b'd' => {
                let tx = match self.copy.filter(|id| turn.tx(*id).is_some()) {
                    Some(id) => id,
                    None => self.open_copy(turn),
                };
                if let Some(tx) = turn.tx(tx)
                    && let Request::Copy { data, .. } = &mut tx.content.request
                {
                    data.add(len as u64);
                }
            }
            b'c' | b'f' => {
                let id = match self.copy.take() {
                    Some(id) => id,
                    None => self.open_copy(turn),
                };
                self.copy = None;
                if let Some(tx) = turn.tx(id) {
                    if let Request::Copy { done, .. } = &mut tx.content.request {
                        *done = Some(if of == b'c' { "copy_done" } else { "copy_fail" });
                    }
                    tx.finish(TS);
                }
            }
            // Extended queries.
            _ => {}
        }
    }

    /// The transaction of the client's copy data.
    fn open_copy(&mut self, turn: &mut Turn<'_, '_, Exchange>) -> u64 {
        let tx = turn.open(Exchange::of(Request::Copy { data: Copied::default(), done: None }));
        self.copy = Some(tx.base.id);
        self.pending.push_back(tx.base.id);
        tx.base.id
    }

    /// Handles a response. One without a known request is skipped.
    fn response(&mut self, turn: &mut Turn<'_, '_, Exchange>, of: u8, body: &[u8], len: usize) -> Outcome {
        if self.pending.is_empty() {
            return Outcome::More;
        }
        let mut ends = of == b'Z';
        if let (b'R', Some(kind)) = (of, be32(body, 0)) {
            self.asked = match kind {
                7..=9 => Asked::Token,
                10 => Asked::SaslInitial,
                11 => Asked::Sasl,
                _ => Asked::Password,
            };
            self.ready |= kind == 0;
            // The server requests more data, in a transaction of its own. SASL ends with two messages.
            ends = !matches!(kind, 0 | 12);
        }
        // The server requests data, or refused the client.
        ends |= matches!(of, b'G' | b'W') || of == b'E' && !self.ready;
        let id = if ends { self.pending.pop_front() } else { self.pending.front().copied() };
        if let Some(tx) = id.and_then(|id| turn.tx(id)) {
            tx.content.response.add(of, body, len as u64);
            if ends {
                tx.finish(TS);
                tx.finish(TC);
                if self.copy == id {
                    self.copy = None;
                }
            }
        }
        Outcome::More
    }
}

impl Exchange {
    fn of(request: Request) -> Exchange {
        Exchange { request, response: Response::default() }
    }
}

#[cfg(test)]
mod tests;
