//! The state machine: matches replies to commands, and tracks the announced data connection.

use margay_flow::{Direction, FlowCore};

use crate::config::{AppConfig, Securing};
use crate::conversation::{Conversation, Framing, Tx};
use crate::expect::{Awaited, Expect, ExpectedFlow};
use crate::ftp_data::{Command, Transfer};
use crate::parser::{Outcome, Parse, Shared};
use crate::proto::AppProto;

use super::address;
use super::events::Event;
use super::line::{self, Line};
use super::tx::{FtpTx, Room};

type Turn<'a, 'b> = crate::conversation::Turn<'a, 'b, FtpTx>;

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

/// The state of a flow.
#[derive(Debug)]
pub(super) struct Ftp {
    /// The longest line.
    max_line: usize,
    /// Number of the first transaction that waits for its reply. All later ones wait too, because replies come in order.
    open: u64,
    sides: [Side; 2],
    /// Inside a multi-line reply, or after a gap: lines without a code belong to it.
    within: bool,
    /// The open transaction has lines that are not a reply (IRC begins with commands of FTP): the next command ends it.
    loose: bool,
    /// The agreed data connection.
    data: Option<Data>,
    /// Requests for TLS that wait for their reply.
    auths: u32,
    securing: Securing,
}

impl Conversation for Ftp {
    type Tx = FtpTx;
    const PROTO: AppProto = AppProto::Ftp;
    /// Like Suricata, do not inspect each message of the raw stream at once.
    const PROMPT: bool = false;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        let max_line = (config.ftp.max_line as usize).max(1);
        Ftp {
            max_line,
            open: 0,
            sides: Default::default(),
            within: false,
            loose: false,
            data: None,
            auths: 0,
            securing: config.declared.securing(),
        }
    }

    /// As in Suricata, a line without its end is ignored at the end of the stream.
    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        if dir == Direction::ToServer && self.auths > 0 && !end && self.securing.holds(data) {
            return Framing::More;
        }
        let side = &mut self.sides[dir.index()];
        if side.skip {
            let end = memchr::memchr(b'\n', data);
            side.skip = end.is_none();
            return Framing::Skip(end.map_or(data.len(), |i| i + 1));
        }
        match line::next(data, &mut side.scan, self.max_line) {
            Line::More => Framing::More,
            Line::Whole(len) => Framing::Message(len),
            Line::TooLong => Framing::Message(self.max_line),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, message: &[u8]) -> Outcome {
        let (line, too_long) = line::split(message);
        let outcome = match dir {
            Direction::ToServer => self.command(turn, line, too_long),
            Direction::ToClient => self.reply(turn, line, too_long),
        };
        if outcome != Outcome::Full {
            self.sides[dir.index()] = Side { scan: 0, skip: too_long };
        }
        outcome
    }

    /// A gap makes the line around it unusable.
    fn gap(&mut self, _turn: &mut Turn<'_, '_>, dir: Direction, _len: u64) -> Outcome {
        self.sides[dir.index()] = Side { scan: 0, skip: true };
        self.within |= dir == Direction::ToClient;
        Outcome::More
    }

    /// The commands that wait get no reply.
    fn ends(&mut self, turn: &mut Turn<'_, '_>, dir: Direction) {
        if turn.cx.end && dir == Direction::ToClient {
            for id in self.open..turn.next_id() {
                if let Some(tx) = turn.tx(id) {
                    complete(tx);
                }
            }
            (self.open, self.loose) = (turn.next_id(), false);
        }
    }

    /// [`Ftp::make_room`] has limits of its own.
    fn max_txs(&self) -> usize {
        usize::MAX
    }

    fn freed(&mut self, shared: &mut Shared, tx: &mut Tx<FtpTx>) {
        tx.content.uncount(&mut shared.counters.ftp_memory);
    }
}

impl Ftp {
    /// The limit of commands that wait for a reply (`max-tx`).
    const fn most(cx: &Parse<'_>) -> usize {
        match cx.config.ftp.max_tx {
            0 => TXS_MAX,
            n => n as usize,
        }
    }

    /// Checks that another command's transaction fits. If the limit of waiting commands is reached, the oldest of them gets an
    /// event and the parser gives up. If as many answered ones exist in addition, those must be inspected and freed first.
    fn make_room(&mut self, turn: &mut Turn<'_, '_>) -> Result<(), Outcome> {
        self.skip_freed(turn);
        let waiting = turn.next_id().saturating_sub(self.open);
        if waiting >= Self::most(turn.cx) as u64 {
            turn.cx.shared.counters.tx_limit(AppProto::Ftp);
            if let Some(tx) = turn.tx(self.open) {
                event(tx, Event::TooManyTransactions, Direction::ToServer);
            }
            return Err(Outcome::Failed);
        }
        Self::has_room(turn)
    }

    /// Whether another transaction fits, including answered ones.
    fn has_room(turn: &Turn<'_, '_>) -> Result<(), Outcome> {
        if turn.count() >= Self::most(turn.cx).saturating_mul(2) { Err(Outcome::Full) } else { Ok(()) }
    }

    /// Moves [`Ftp::open`] past transactions that were freed before their reply came.
    fn skip_freed(&mut self, turn: &Turn<'_, '_>) {
        self.open = turn.kept_from(self.open);
    }

    /// Handles a line of the client.
    fn command(&mut self, turn: &mut Turn<'_, '_>, line: &[u8], too_long: bool) -> Outcome {
        let line = line::command(line);
        if line.is_empty() {
            return Outcome::More;
        }
        self.end_loose(turn);
        // The transaction of an unknown command only shows its reply.
        let (name, data) = line::known(line).unwrap_or_default();
        if let Err(outcome) = self.make_room(turn) {
            return outcome;
        }
        let (room, verb) = (room(turn.cx), Verb::of(name, line));
        let id = turn.open(FtpTx { verb, ..FtpTx::default() }).base.id;
        let Some((tx, cx)) = turn.tx_and_parse(id) else { return Outcome::Failed };
        tx.base.advance(Direction::ToServer, super::BEGUN);
        if !tx.content.set_command(name, data, room) {
            cx.shared.counters.ftp_memcap += 1;
        }
        if too_long {
            tx.content.command_truncated = true;
            event(tx, Event::RequestTooLong, Direction::ToServer);
        }
        let announced = match verb {
            Verb::Port => address::host_port(data),
            Verb::ExtendedPort => address::extended(data),
            _ => None,
        };
        if let Some((address, port)) = announced {
            (tx.content.port, tx.content.active) = (Some(port), true);
            tx.content.bounce = address.is_some_and(|a| a != cx.flow.src);
        }
        if self.data.is_none() && matches!(verb, Verb::Transfer(command) if !command.is_list()) {
            event(tx, Event::FileBeforePort, Direction::ToServer);
        }
        tx.content.count(&mut cx.shared.counters.ftp_memory);
        match verb {
            Verb::Port | Verb::ExtendedPort => self.agreed(cx, announced.map(|(_, port)| port), true),
            Verb::Auth => self.auths = self.auths.saturating_add(1),
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
    fn reply(&mut self, turn: &mut Turn<'_, '_>, line: &[u8], too_long: bool) -> Outcome {
        let (code, text) = line::reply(line, self.within);
        let id = match self.whose(turn) {
            Ok(id) => id,
            Err(outcome) => return outcome,
        };
        let room = room(turn.cx);
        let Some((tx, cx)) = turn.tx_and_parse(id) else { return Outcome::Failed };
        tx.base.advance(Direction::ToClient, super::BEGUN);
        tx.touch(Direction::ToClient);
        if !tx.content.add_reply(code.map(|c| c.digits), text, cx.config.ftp.max_line as usize, room) {
            cx.shared.counters.ftp_memcap += 1;
        }
        if too_long {
            tx.content.reply_truncated = true;
            event(tx, Event::ResponseTooLong, Direction::ToClient);
        }
        tx.content.count(&mut cx.shared.counters.ftp_memory);
        let Some(code) = code else {
            self.loose |= !self.within;
            return Outcome::More;
        };
        (self.within, self.loose) = (code.more, false);
        if code.more || code.digits[0] == b'1' {
            return Outcome::More;
        }
        self.open += 1;
        complete(tx);
        self.answered(cx, &mut tx.content, code.digits, text)
    }

    /// The transaction of a server line; creates one if no command waits for a reply.
    fn whose(&mut self, turn: &mut Turn<'_, '_>) -> Result<u64, Outcome> {
        self.skip_freed(turn);
        if self.open < turn.next_id() {
            return Ok(self.open);
        }
        Self::has_room(turn)?;
        let tx = turn.open(FtpTx::default());
        tx.only(Direction::ToClient);
        Ok(tx.base.id)
    }

    /// The client sent a command: ends a transaction with lines that are not a reply. The result does not depend on the
    /// segmentation of the stream.
    fn end_loose(&mut self, turn: &mut Turn<'_, '_>) {
        if std::mem::take(&mut self.loose) {
            if let Some(tx) = turn.tx(self.open) {
                complete(tx);
            }
            self.open += 1;
        }
    }

    /// Handles the final reply to a command.
    fn answered(&mut self, cx: &mut Parse<'_>, tx: &mut FtpTx, code: [u8; 3], text: &[u8]) -> Outcome {
        let refused = matches!(code[0], b'4' | b'5');
        if tx.verb == Verb::Auth {
            self.auths = self.auths.saturating_sub(1);
        }
        match tx.verb {
            Verb::Passive | Verb::ExtendedPassive => {
                tx.port = match (tx.verb, &code) {
                    (Verb::Passive, b"227") => address::passive(text),
                    (Verb::ExtendedPassive, b"229") => address::extended_passive(text),
                    _ => None,
                };
                if tx.port.is_some() {
                    self.agreed(cx, tx.port, false);
                }
            }
            Verb::Port | Verb::ExtendedPort if refused => self.agreed(cx, None, true),
            // The client may use the port for another transfer.
            Verb::Transfer(_) if refused => self.tell(cx, Awaited::Nothing),
            Verb::Transfer(_) => self.data = None,
            Verb::Auth if &code == b"234" => return Outcome::Change(cx.config.declared.secured()),
            Verb::Auth => return Outcome::Resume,
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

/// Adds an event, for rules of one direction.
fn event(tx: &mut Tx<FtpTx>, event: Event, dir: Direction) {
    tx.base.events.add(event as u8);
    tx.touch(dir);
}

/// Completes a transaction.
fn complete(tx: &mut Tx<FtpTx>) {
    tx.finish(Direction::ToServer);
    tx.finish(Direction::ToClient);
}
