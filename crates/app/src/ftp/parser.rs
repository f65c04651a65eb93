//! The state machine: whose reply it is, and which data connection was announced.

use std::collections::VecDeque;
use std::ops::Range;

use margay_flow::Direction;

use crate::expect::{Awaited, Carries, Expect, ExpectedFlow};
use crate::ftp_data::{Command, Transfer};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;

use super::address;
use super::events::Event;
use super::line::{self, Line};
use super::tx::{FtpTx, Room};

/// Most transactions that are complete and were not freed yet: those of one packet.
const COMPLETE_MAX: usize = 1024;

/// Most announcements of one packet that are told: what is beyond is not expected.
const EXPECTED_MAX: usize = 1024;

/// A data connection that was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Data {
    flow: ExpectedFlow,
    /// The server opens it.
    active: bool,
}

/// Commands that mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Port,
    ExtendedPort,
    Passive,
    ExtendedPassive,
    /// A file or a list is transferred.
    Transfer(Command),
    /// TLS is asked for.
    Auth,
    Other,
}

impl Verb {
    /// Of a command in capital letters.
    fn of(name: &[u8]) -> Verb {
        match name {
            b"PORT" => Verb::Port,
            b"EPRT" => Verb::ExtendedPort,
            b"PASV" => Verb::Passive,
            b"EPSV" => Verb::ExtendedPassive,
            b"AUTH TLS" => Verb::Auth,
            name => match Command::ALL.into_iter().find(|c| c.name().as_bytes() == name) {
                Some(command) => Verb::Transfer(command),
                None => Verb::Other,
            },
        }
    }
}

/// One direction.
#[derive(Debug, Default)]
struct Side {
    /// How far what waits is known to have no line end.
    scan: usize,
    /// The rest of a line that is of no use comes.
    skip: bool,
}

/// A flow's FTP parser.
#[derive(Debug, Default)]
pub(super) struct FtpParser {
    txs: VecDeque<Option<Box<FtpTx>>>,
    /// Number of the first of `txs`.
    first: u64,
    /// Number of the first that is not complete: all behind it are not either, for replies come in order.
    open: u64,
    sides: [Side; 2],
    /// Within a reply of several lines.
    within: bool,
    /// The data connection that was agreed on.
    data: Option<Data>,
}

impl FtpParser {
    fn next(&self) -> u64 {
        self.first.saturating_add(self.txs.len() as u64)
    }

    fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        if dir == Direction::ToServer { client } else { server }
    }

    fn get(&mut self, id: u64) -> Option<&mut FtpTx> {
        let i = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.txs.get_mut(i)?.as_deref_mut()
    }

    fn peek(&self, id: u64) -> Option<&FtpTx> {
        let i = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.txs.get(i)?.as_deref()
    }

    /// Makes a transaction; `None` where there are too many.
    fn make(&mut self, cx: &mut Parse<'_>) -> Option<u64> {
        let waiting = self.next().saturating_sub(self.open);
        let most = u64::from(cx.config.ftp.max_tx);
        if (most != 0 && waiting >= most) || self.txs.len() as u64 >= waiting.saturating_add(COMPLETE_MAX as u64) {
            if let Some(n) = cx.shared.counters.tx_limit.get_mut(AppProto::Ftp as usize) {
                *n += 1;
            }
            let oldest = if waiting > 0 { self.open } else { self.first };
            if let Some(tx) = self.get(oldest) {
                tx.event(Event::TooManyTransactions, Direction::ToServer);
            }
            return None;
        }
        let id = self.next();
        self.txs.push_back(Some(Box::new(FtpTx::new(id))));
        Some(id)
    }

    fn line(&mut self, cx: &mut Parse<'_>, dir: Direction, line: &[u8], too_long: bool) -> Outcome {
        match dir {
            Direction::ToServer => self.command(cx, line, too_long),
            Direction::ToClient => self.reply(cx, line, too_long),
        }
    }

    /// A line of the client.
    fn command(&mut self, cx: &mut Parse<'_>, line: &[u8], too_long: bool) -> Outcome {
        let (name, data) = line::command(line);
        if name.is_empty() {
            return Outcome::More;
        }
        let Some(id) = self.make(cx) else { return Outcome::Failed };
        let client = cx.flow.src;
        let room = room(cx);
        let Some(tx) = self.get(id) else { return Outcome::Failed };
        if !tx.set_command(name, data, room) {
            cx.shared.counters.ftp_memcap += 1;
        }
        if too_long {
            tx.command_truncated = true;
            tx.event(Event::RequestTooLong, Direction::ToServer);
        }
        let verb = Verb::of(&tx.command);
        let announced = match verb {
            Verb::Port => address::host_port(data),
            Verb::ExtendedPort => address::extended(data),
            _ => None,
        };
        if let Some((address, port)) = announced {
            (tx.port, tx.active) = (Some(port), true);
            tx.bounce = address != client;
        }
        if let Verb::Transfer(command) = verb
            && !command.is_list()
            && self.data.is_none()
            && let Some(tx) = self.get(id)
        {
            tx.event(Event::FileBeforePort, Direction::ToServer);
        }
        if let Some(tx) = self.get(id) {
            tx.count(&mut cx.shared.counters.ftp_memory);
        }
        match verb {
            Verb::Port | Verb::ExtendedPort => self.agreed(cx, announced.map(|(_, port)| port), true),
            Verb::Transfer(command) => {
                // Who opens the connection is the server in active mode.
                let by_opener = self.data.is_some_and(|d| d.active != command.is_upload());
                let name = if command.is_list() { Vec::new() } else { data.to_vec() };
                let transfer = Transfer { command, name };
                self.tell(cx, Awaited::Carries(Carries::FtpData(transfer, by_opener)));
            }
            _ => {}
        }
        Outcome::More
    }

    /// A line of the server.
    fn reply(&mut self, cx: &mut Parse<'_>, line: &[u8], too_long: bool) -> Outcome {
        let (code, text) = line::reply(line);
        while self.open < self.next() && self.peek(self.open).is_none() {
            self.open += 1;
        }
        if self.open >= self.next() {
            // What is no reply, and to nothing, has no meaning.
            if code.is_none() {
                return Outcome::More;
            }
            let Some(id) = self.make(cx) else { return Outcome::Failed };
            if let Some(tx) = self.get(id) {
                tx.base.one_sided(Direction::ToServer, super::COMPLETE);
            }
        }
        let (id, room, limit) = (self.open, room(cx), cx.config.ftp.max_line as usize);
        let Some(tx) = self.get(id) else { return Outcome::Failed };
        if !tx.add_reply(code.map(|c| c.digits), text, limit, room) {
            cx.shared.counters.ftp_memcap += 1;
        }
        if too_long {
            tx.reply_truncated = true;
            tx.event(Event::ResponseTooLong, Direction::ToClient);
        }
        tx.count(&mut cx.shared.counters.ftp_memory);
        let Some(code) = code else { return Outcome::More };
        self.within = code.more;
        if code.more || code.digits[0] == b'1' {
            return Outcome::More;
        }
        self.open += 1;
        let outcome = self.answered(cx, id, code.digits, text);
        if let Some(tx) = self.get(id) {
            tx.complete();
        }
        outcome
    }

    /// The last reply to a command is there.
    fn answered(&mut self, cx: &mut Parse<'_>, id: u64, code: [u8; 3], text: &[u8]) -> Outcome {
        let Some(tx) = self.get(id) else { return Outcome::More };
        let refused = matches!(code[0], b'4' | b'5');
        let verb = Verb::of(&tx.command);
        match verb {
            Verb::Passive | Verb::ExtendedPassive => {
                let port = match (verb, &code) {
                    (Verb::Passive, b"227") => address::passive(text),
                    (Verb::ExtendedPassive, b"229") => address::extended_passive(text),
                    _ => None,
                };
                tx.port = port;
                if port.is_some() {
                    self.agreed(cx, port, false);
                }
            }
            Verb::Port | Verb::ExtendedPort if refused => self.agreed(cx, None, true),
            // The port may be tried again.
            Verb::Transfer(_) if refused => self.tell(cx, Awaited::Nothing),
            Verb::Transfer(_) => self.data = None,
            Verb::Auth if &code == b"234" => return Outcome::Change(Some(AppProto::Tls)),
            _ => {}
        }
        Outcome::More
    }

    /// A data connection was agreed on; with no port there is none.
    fn agreed(&mut self, cx: &mut Parse<'_>, port: Option<u16>, active: bool) {
        let (client, server) = (cx.flow.src, cx.flow.dst);
        let (from, to) = if active { (server, client) } else { (client, server) };
        let new = port.map(|port| Data { flow: ExpectedFlow { transport: cx.flow.proto, from, to, port }, active });
        if self.data != new {
            self.tell(cx, Awaited::Nothing);
        }
        self.data = new;
        self.tell(cx, Awaited::Pending);
    }

    /// Tells what is known of the data connection that was agreed on.
    fn tell(&self, cx: &mut Parse<'_>, what: Awaited) {
        if let Some(data) = self.data
            && cx.shared.expected.len() < EXPECTED_MAX
        {
            cx.shared.expected.push(Expect { flow: data.flow, parent: cx.flow.id, what });
        }
    }
}

fn room(cx: &Parse<'_>) -> Room {
    Room { used: cx.shared.counters.ftp_memory, memcap: cx.config.ftp.memcap }
}

impl Parser for FtpParser {
    fn proto(&self) -> AppProto {
        AppProto::Ftp
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let limit = (cx.config.ftp.max_line as usize).max(1);
        let mut at = 0;
        while let Some(rest) = data.get(at..).filter(|r| !r.is_empty()) {
            if self.side(dir).skip {
                let end = memchr::memchr(b'\n', rest);
                self.side(dir).skip = end.is_none();
                at += end.map_or(rest.len(), |i| i + 1);
                continue;
            }
            let (line, used, too_long) = match line::next(rest, &mut self.side(dir).scan, limit, cx.end) {
                Line::More => break,
                Line::Whole(line, used) => (line, used, false),
                Line::TooLong(line) => (line, line.len(), true),
            };
            let side = self.side(dir);
            (side.scan, side.skip) = (0, too_long);
            at += used;
            let outcome = self.line(cx, dir, line, too_long);
            if outcome != Outcome::More {
                return Parsed { consumed: at, outcome };
            }
        }
        if cx.end && dir == Direction::ToClient {
            // No reply will come to what is left.
            for id in self.open..self.next() {
                if let Some(tx) = self.get(id) {
                    tx.complete();
                }
            }
            self.open = self.next();
        }
        Parsed::used(at)
    }

    /// The line that bytes are missing of, or that is behind them, cannot be known.
    fn gap(&mut self, _: &mut Parse<'_>, dir: Direction, _: u64) -> Outcome {
        let side = self.side(dir);
        (side.scan, side.skip) = (0, true);
        if dir == Direction::ToClient {
            self.within = false;
        }
        Outcome::More
    }

    fn txs(&self) -> Range<u64> {
        self.first..self.next()
    }

    fn tx(&self, id: u64) -> Option<&dyn Transaction> {
        self.peek(id).map(|t| t as &dyn Transaction)
    }

    fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
        self.get(id).map(|t| t as &mut dyn Transaction)
    }

    fn free_tx(&mut self, shared: &mut Shared, id: u64) {
        let Some(i) = id.checked_sub(self.first).and_then(|i| usize::try_from(i).ok()) else { return };
        if let Some(mut tx) = self.txs.get_mut(i).and_then(Option::take) {
            tx.uncount(&mut shared.counters.ftp_memory);
        }
        while let Some(None) = self.txs.front() {
            self.txs.pop_front();
            self.first += 1;
        }
        self.open = self.open.max(self.first);
    }
}
