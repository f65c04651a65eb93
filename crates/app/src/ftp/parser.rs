//! The state machine: matches replies to commands, and tracks the announced data connection.

use margay_flow::Direction;

use crate::expect::{Awaited, Expect, ExpectedFlow};
use crate::ftp_data::{Command, Transfer};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::address;
use super::events::Event;
use super::line::{self, Line};
use super::tx::{FtpTx, Room};

/// The limit of commands that wait for a reply if the configuration says 0.
const TXS_MAX: usize = 1024;

/// The limit of announcements in one packet; further connections are not expected.
const EXPECTED_MAX: usize = 1024;

/// An agreed data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Data {
    flow: ExpectedFlow,
    /// The server opens it.
    active: bool,
}

/// Commands that the parser handles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Verb {
    Port,
    ExtendedPort,
    Passive,
    ExtendedPassive,
    /// A transfer of a file or a list.
    Transfer(Command),
    /// A request for TLS.
    Auth,
    #[default]
    Other,
}

impl Verb {
    /// The verb of a command line; `name` is the known command in it.
    fn of(name: &[u8], line: &[u8]) -> Verb {
        match name {
            b"PORT" => Verb::Port,
            b"EPRT" => Verb::ExtendedPort,
            b"PASV" => Verb::Passive,
            b"EPSV" => Verb::ExtendedPassive,
            _ => {
                let mut words = line.split(|b| matches!(b, b' ' | b'\t')).filter(|w| !w.is_empty());
                let word = words.next().unwrap_or(line);
                if word.eq_ignore_ascii_case(b"AUTH") && words.next().is_some_and(is_tls) {
                    return Verb::Auth;
                }
                let transfer = Command::ALL.into_iter().find(|c| word.eq_ignore_ascii_case(c.name().as_bytes()));
                transfer.map_or(Verb::Other, Verb::Transfer)
            }
        }
    }
}

/// Whether a security mechanism of `AUTH` is TLS: by its names of RFC 4217, and by the older one that curl still tries first.
fn is_tls(mechanism: &[u8]) -> bool {
    [&b"TLS"[..], b"TLS-C", b"TLS-P", b"SSL"].iter().any(|name| mechanism.eq_ignore_ascii_case(name))
}

/// One direction.
#[derive(Debug, Default)]
struct Side {
    /// The offset up to which the waiting data has no line end.
    scan: usize,
    /// The rest of the current line is skipped.
    skip: bool,
}

/// The FTP parser of a flow.
#[derive(Debug, Default)]
pub(super) struct FtpParser {
    txs: TxList<FtpTx>,
    /// Number of the first transaction that waits for its reply. All later ones wait too, because replies come in order.
    open: u64,
    sides: [Side; 2],
    /// Inside a multi-line reply, or after a gap: lines without a code belong to it.
    within: bool,
    /// The open transaction has lines that are not a reply (IRC begins with commands of FTP): the next command ends it.
    loose: bool,
    /// The agreed data connection.
    data: Option<Data>,
}

impl FtpParser {
    fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        if dir == Direction::ToServer { client } else { server }
    }

    fn get(&mut self, id: u64) -> Option<&mut FtpTx> {
        self.txs.get_mut(id)
    }

    /// The limit of commands that wait for a reply (`max-tx`).
    const fn most(cx: &Parse<'_>) -> usize {
        match cx.config.ftp.max_tx {
            0 => TXS_MAX,
            n => n as usize,
        }
    }

    /// Checks that another command's transaction fits. If the limit of waiting commands is reached, the oldest of them gets an
    /// event and the parser gives up. If as many answered ones exist in addition, those must be inspected and freed first.
    fn make_room(&mut self, cx: &mut Parse<'_>) -> Result<(), Outcome> {
        self.skip_freed();
        let waiting = self.txs.next().saturating_sub(self.open);
        if waiting >= Self::most(cx) as u64 {
            cx.shared.counters.tx_limit(AppProto::Ftp);
            if let Some(tx) = self.get(self.open) {
                tx.event(Event::TooManyTransactions, Direction::ToServer);
            }
            return Err(Outcome::Failed);
        }
        self.has_room(cx)
    }

    /// Whether another transaction fits, including answered ones.
    fn has_room(&self, cx: &Parse<'_>) -> Result<(), Outcome> {
        if self.txs.len() >= Self::most(cx).saturating_mul(2) { Err(Outcome::Full) } else { Ok(()) }
    }

    /// Moves [`FtpParser::open`] past transactions that were freed before their reply came.
    fn skip_freed(&mut self) {
        self.open = self.txs.next_id(self.open).unwrap_or(self.txs.next());
    }

    fn make(&mut self) -> u64 {
        self.txs.push(FtpTx::new)
    }

    fn line(&mut self, cx: &mut Parse<'_>, dir: Direction, line: &[u8], too_long: bool) -> Outcome {
        match dir {
            Direction::ToServer => self.command(cx, line, too_long),
            Direction::ToClient => self.reply(cx, line, too_long),
        }
    }

    /// Handles a line of the client.
    fn command(&mut self, cx: &mut Parse<'_>, line: &[u8], too_long: bool) -> Outcome {
        let line = line::command(line);
        if line.is_empty() {
            return Outcome::More;
        }
        self.end_loose();
        // The transaction of an unknown command only shows its reply.
        let (name, data) = line::known(line).unwrap_or_default();
        if let Err(outcome) = self.make_room(cx) {
            return outcome;
        }
        let id = self.make();
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
        let verb = Verb::of(name, line);
        tx.verb = verb;
        let announced = match verb {
            Verb::Port => address::host_port(data),
            Verb::ExtendedPort => address::extended(data),
            _ => None,
        };
        if let Some((address, port)) = announced {
            (tx.port, tx.active) = (Some(port), true);
            tx.bounce = address.is_some_and(|a| a != client);
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
                // In active mode, the server opens the connection.
                let by_opener = self.data.is_some_and(|d| d.active != command.is_upload());
                let name = if command.is_list() { Vec::new() } else { data.to_vec() };
                let transfer = Transfer { command, name };
                self.tell(cx, Awaited::Carries(transfer.carried(by_opener)));
            }
            _ => {}
        }
        Outcome::More
    }

    /// Handles a line of the server.
    fn reply(&mut self, cx: &mut Parse<'_>, line: &[u8], too_long: bool) -> Outcome {
        let (code, text) = line::reply(line, self.within);
        let id = match self.whose(cx) {
            Ok(id) => id,
            Err(outcome) => return outcome,
        };
        let (room, limit) = (room(cx), cx.config.ftp.max_line as usize);
        let Some(tx) = self.get(id) else { return Outcome::Failed };
        if !tx.add_reply(code.map(|c| c.digits), text, limit, room) {
            cx.shared.counters.ftp_memcap += 1;
        }
        if too_long {
            tx.reply_truncated = true;
            tx.event(Event::ResponseTooLong, Direction::ToClient);
        }
        tx.count(&mut cx.shared.counters.ftp_memory);
        let Some(code) = code else {
            self.loose |= !self.within;
            return Outcome::More;
        };
        (self.within, self.loose) = (code.more, false);
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

    /// The transaction of a server line; creates one if no command waits for a reply.
    fn whose(&mut self, cx: &mut Parse<'_>) -> Result<u64, Outcome> {
        self.skip_freed();
        if self.open < self.txs.next() {
            return Ok(self.open);
        }
        self.has_room(cx)?;
        let id = self.make();
        if let Some(tx) = self.get(id) {
            tx.base.one_sided(Direction::ToServer, super::COMPLETE);
        }
        Ok(id)
    }

    /// The client sent a command: ends a transaction with lines that are not a reply. The result does not depend on the
    /// segmentation of the stream.
    fn end_loose(&mut self) {
        if std::mem::take(&mut self.loose) {
            let id = self.open;
            self.open += 1;
            if let Some(tx) = self.get(id) {
                tx.complete();
            }
        }
    }

    /// Handles the final reply to a command.
    fn answered(&mut self, cx: &mut Parse<'_>, id: u64, code: [u8; 3], text: &[u8]) -> Outcome {
        let Some(tx) = self.get(id) else { return Outcome::More };
        let verb = tx.verb;
        let refused = matches!(code[0], b'4' | b'5');
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
            // The client may use the port for another transfer.
            Verb::Transfer(_) if refused => self.tell(cx, Awaited::Nothing),
            Verb::Transfer(_) => self.data = None,
            Verb::Auth if &code == b"234" => return Outcome::Change(Some(AppProto::Tls)),
            _ => {}
        }
        Outcome::More
    }

    /// Records an agreed data connection; without a port there is none.
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

    /// Announces the purpose of the agreed data connection.
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
    /// Like Suricata, do not inspect each message of the raw stream at once.
    fn is_prompt(&self) -> bool {
        false
    }

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
            let (line, used, too_long) = match line::next(rest, &mut self.side(dir).scan, limit) {
                Line::More => break,
                Line::Whole(line, used) => (line, used, false),
                Line::TooLong(line) => (line, line.len(), true),
            };
            let side = self.side(dir);
            (side.scan, side.skip) = (0, too_long);
            at += used;
            let outcome = self.line(cx, dir, line, too_long);
            if outcome == Outcome::Full {
                // The line comes again.
                self.side(dir).skip = false;
                return Parsed { consumed: at - used, outcome };
            }
            if outcome != Outcome::More {
                return Parsed { consumed: at, outcome };
            }
        }
        if cx.end && dir == Direction::ToClient {
            // The remaining commands will get no reply.
            let mut from = self.open;
            while let Some(id) = self.txs.next_id(from) {
                from = id + 1;
                if let Some(tx) = self.get(id) {
                    tx.complete();
                }
            }
            self.open = self.txs.next();
        }
        // As in Suricata, a line without its end is ignored.
        Parsed::used(if cx.end { data.len() } else { at })
    }

    /// A gap makes the line around it unusable.
    fn gap(&mut self, _: &mut Parse<'_>, dir: Direction, _: u64) -> Outcome {
        let side = self.side(dir);
        (side.scan, side.skip) = (0, true);
        if dir == Direction::ToClient {
            self.within = true;
        }
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        self.txs.memory()
    }

    transactions_in_list!();

    fn free_tx(&mut self, shared: &mut Shared, id: u64) {
        if let Some(mut tx) = self.txs.remove(id) {
            tx.uncount(&mut shared.counters.ftp_memory);
        }
    }
}
