//! POP3 (RFC 1939, extensions of RFC 2449, STLS of RFC 2595, AUTH of RFC 5034): each command with its response is a transaction,
//! and so is the server's greeting.

mod tx;

use std::collections::VecDeque;

use margay_flow::{Direction, FlowCore};

use crate::config::{AppConfig, Securing};
use crate::conversation::{Conversation, Framing, Turn, parser};
use crate::declare::{Opening, Protocol, Setting};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Pattern, Recognition};

use tx::{Exchange, Request, Response};

/// The limit of a line; the rest of a longer one is skipped.
const LINE_MAX: usize = 8 << 10;
/// The limit of bytes kept from the lines after a response's first one.
const DATA_MAX: usize = 64 << 10;

pub mod events {
    //! Anomalies, under the names that rules use (`app-layer-event:pop3.NAME`).

    events! { "POP3";
        TooManyTransactions "too_many_transactions";
        RequestTooLong "request_too_long";
        IncorrectArgumentCount "incorrect_argument_count";
        UnknownCommand "unknown_command";
        ResponseTooLong "response_too_long";
    }
}
use events::Event;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

const MAX_TX: usize = 0;
const STREAM_DEPTH: usize = 1;

/// POP3.
pub static PROTOCOL: Protocol = Protocol {
    settings: &[Setting::max_tx(256), Setting::STREAM_DEPTH],
    opening: Opening::Command,
    // RFC 5034, 6856; some clients only look whether the server answers.
    first_words: &["AUTH", "LANG", "UTF8", "NOOP", "HELP", "QUIT"],
    recognition: Recognition {
        patterns: &[
            Pattern::tcp(TC, b"+OK "),
            Pattern::tcp(TC, b"-ERR "),
            Pattern::tcp(TS, b"USER ").nocase(),
            Pattern::tcp(TS, b"PASS ").nocase(),
            Pattern::tcp(TS, b"QUIT").nocase(),
            Pattern::tcp(TS, b"CAPA").nocase(),
            Pattern::tcp(TS, b"APOP ").nocase(),
            Pattern::tcp(TS, b"STLS").nocase(),
            Pattern::tcp(TS, b"AUTH\r\n").nocase(),
        ],
        probes: &[],
    },
    parser: parser::<Pop3>,
    events: events::NAMES,
    ..Protocol::new(AppProto::Pop3, "pop3").logged()
};

/// The lines after a response's first one, up to a line with a dot.
#[derive(Debug, Clone, Copy)]
struct Body {
    /// Its transaction; `None` for an unsolicited response.
    tx: Option<u64>,
    /// The next byte begins a line.
    line_start: bool,
}

/// The state of a flow.
#[derive(Debug)]
struct Pop3 {
    max_txs: usize,
    stream_depth: u64,
    /// Commands that wait for a response, oldest first.
    pending: VecDeque<u64>,
    /// The current response continues.
    body: Option<Body>,
    /// By direction: the rest of an overlong line is skipped.
    overlong: [bool; 2],
    /// The server requested an authentication step: the client's next line is not a command.
    credentials: bool,
    /// STLS waits for its response: the client's data after it may be TLS.
    stls: bool,
    securing: Securing,
}

/// Length of the first line with its end, up to the limit; `None` if it is incomplete.
fn line(data: &[u8], end: bool) -> Option<usize> {
    let seen = data.get(..LINE_MAX).unwrap_or(data);
    match seen.iter().position(|b| *b == b'\n') {
        Some(at) => Some(at + 1),
        None if seen.len() == LINE_MAX || end => Some(seen.len()),
        None => None,
    }
}

/// How much of `data`, which begins a line, belongs to a response before a line with a dot. `None` if the first line may be
/// that line.
fn body_lines(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match data.get(at..).unwrap_or(&[]) {
            [] | [b'.'] | [b'.', b'\r'] | [b'.', b'\n', ..] | [b'.', b'\r', b'\n', ..] => {
                return (at > 0).then_some(at);
            }
            rest => match rest.iter().position(|b| *b == b'\n') {
                Some(n) => at += n + 1,
                // A line of any length may arrive in pieces.
                None => return Some(data.len()),
            },
        }
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl Conversation for Pop3 {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Pop3;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Pop3 {
            max_txs: config.settings.get(AppProto::Pop3, MAX_TX) as usize,
            stream_depth: config.settings.get(AppProto::Pop3, STREAM_DEPTH),
            pending: VecDeque::new(),
            body: None,
            overlong: [false; 2],
            credentials: false,
            stls: false,
            securing: config.declared.securing(),
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        let overlong = &mut self.overlong[dir.index()];
        if *overlong {
            let len = data.iter().position(|b| *b == b'\n');
            *overlong = len.is_none();
            return Framing::Skip(len.map_or(data.len(), |n| n + 1));
        }
        if dir == TS && self.stls && !end && self.securing.holds(data) {
            return Framing::More;
        }
        if let (TC, Some(body)) = (dir, self.body) {
            if !body.line_start {
                let len = data.iter().position(|b| *b == b'\n').map_or(data.len(), |n| n + 1);
                return Framing::Message(len);
            }
            return match body_lines(data) {
                Some(len) => Framing::Message(len),
                None => line(data, end).map_or(Framing::More, Framing::Message),
            };
        }
        line(data, end).map_or(Framing::More, Framing::Message)
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        turn.cx.shared.wishes.stream_depth = Some(self.stream_depth);
        if dir == TC && self.body.is_some() {
            return self.body(turn, message);
        }
        let whole = message.ends_with(b"\n");
        self.overlong[dir.index()] = !whole;
        let line = without_end(message);
        if dir == TS { self.command(turn, line, whole) } else { self.response(turn, line, whole) }
    }

    /// Lines of a mail may be missing. After a gap in commands or responses, they cannot be matched.
    fn gap(&mut self, _turn: &mut Turn<'_, '_, Exchange>, dir: Direction, _len: u64) -> Outcome {
        match &mut self.body {
            Some(body) if dir == TC => {
                body.line_start = false;
                Outcome::More
            }
            _ => Outcome::Failed,
        }
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        (self.pending.capacity() * size_of::<u64>()) as u64
    }
}

impl Pop3 {
    fn command(&mut self, turn: &mut Turn<'_, '_, Exchange>, line: &[u8], whole: bool) -> Outcome {
        if line.is_empty() {
            return Outcome::More;
        }
        // A peer that never waits for a response is not a real client.
        if self.pending.len() >= self.max_txs.max(1).saturating_mul(4) {
            return Outcome::Failed;
        }
        let request = if std::mem::take(&mut self.credentials) { Request::credentials() } else { Request::read(line) };
        self.stls |= request.is("STLS");
        let wrong = [
            (!whole, Event::RequestTooLong),
            (!request.is_known(), Event::UnknownCommand),
            (!request.has_arguments_it_needs(), Event::IncorrectArgumentCount),
        ];
        let tx = turn.open(Exchange { request: Some(request), response: None });
        tx.finish(TS);
        for (is, event) in wrong {
            if is {
                tx.event(event as u8);
            }
        }
        self.pending.push_back(tx.base.id);
        Outcome::More
    }

    fn response(&mut self, turn: &mut Turn<'_, '_, Exchange>, line: &[u8], whole: bool) -> Outcome {
        let Some(response) = Response::read(line) else {
            return if line.is_empty() { Outcome::More } else { Outcome::Failed };
        };
        self.credentials = response.continues;
        let success = response.success && !response.continues;
        let id = self.pending.pop_front();
        let Some(tx) = id.and_then(|id| turn.tx(id)) else {
            if id.is_none() {
                let tx = turn.one_way(TC, Exchange { request: None, response: Some(response) });
                if !whole {
                    tx.event(Event::ResponseTooLong as u8);
                }
            }
            return Outcome::More;
        };
        if !whole {
            tx.event(Event::ResponseTooLong as u8);
        }
        let request = tx.content.request.as_ref();
        let (stls, goes_on) = request.map_or((false, false), |r| (r.is("STLS"), r.has_long_response()));
        tx.content.response = Some(response);
        if success && goes_on {
            self.body = Some(Body { tx: id, line_start: true });
            return Outcome::More;
        }
        tx.finish(TC);
        if !stls {
            return Outcome::More;
        }
        self.stls = false;
        if success { Outcome::Change(turn.cx.config.declared.secured()) } else { Outcome::Resume }
    }

    fn body(&mut self, turn: &mut Turn<'_, '_, Exchange>, lines: &[u8]) -> Outcome {
        let Some(Body { tx, line_start }) = self.body else { return Outcome::More };
        let tx = tx.and_then(|id| turn.tx(id));
        if line_start && without_end(lines) == b"." {
            self.body = None;
            if let Some(tx) = tx {
                tx.finish(TC);
            }
            return Outcome::More;
        }
        self.body = Some(Body { tx: tx.as_ref().map(|t| t.base.id), line_start: lines.ends_with(b"\n") });
        if let Some(tx) = tx
            && let Some(response) = &mut tx.content.response
            && response.add(lines, DATA_MAX)
        {
            tx.event(Event::ResponseTooLong as u8);
        }
        Outcome::More
    }
}

#[cfg(test)]
mod tests;
