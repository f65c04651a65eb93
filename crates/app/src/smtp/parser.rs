//! The state machine: the client's lines and mails, the server's replies, and the command that each reply answers.

use margay_flow::{Direction, FlowState};

use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::Transaction;
use crate::tx_list::{TxList, transactions_in_list};

use super::command::Command;
use super::doubt::{Asked, Pending};
use super::events::{Event, of_mail};
use super::line::{Line, MAX_LINE, Side};
use super::mail::{Mail, MailCx};
use super::reply::Reply;
use super::tx::SmtpTx;
use super::{BODY, COMMAND_FRAME, DATA, DATA_FRAME, RESPONSE_FRAME};

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// The client's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    /// Commands.
    #[default]
    Command,
    /// STARTTLS was sent: the rest is for the protocol after the reply.
    Tls,
    /// In a mail, up to a line with a dot.
    Data,
    /// In a chunk of a mail, with the bytes left, and whether it is the last chunk.
    Chunk { left: u64, last: bool },
}

/// The SMTP parser of a flow.
#[derive(Debug, Default)]
pub(super) struct SmtpParser {
    txs: TxList<SmtpTx>,
    /// The current transaction.
    open: Option<u64>,
    client: Side,
    server: Side,
    mode: Mode,
    /// The next byte of the mail starts a line.
    line_start: bool,
    /// The beginning of a line that a chunk ended in.
    carry: Vec<u8>,
    /// The previous command was a chunk, and not the last one.
    after_chunk: bool,
    /// Commands that wait for their replies.
    pending: Pending,
    /// The client's next line is an authentication step, not a command.
    credentials: bool,
    /// Bytes that the client sent after a refused command, to be parsed as commands.
    again: Vec<u8>,
    /// The client's waiting data can be parsed now, and comes before the server's next line.
    resume: bool,
    /// The server has sent data.
    greeted: bool,
    /// After a gap, replies cannot be matched to commands.
    lost: bool,
    /// The client's name.
    helo: Option<Vec<u8>>,
}

impl SmtpParser {
    fn get(&mut self, id: u64) -> Option<&mut SmtpTx> {
        self.txs.get_mut(id)
    }

    /// Whether the next command may exceed the limit of transactions. All but the current one are complete, and are freed once
    /// inspected.
    fn is_full(&self, cx: &mut Parse<'_>) -> bool {
        let most = (cx.config.smtp.max_tx as usize).max(2);
        let going_on = self.open.is_some_and(|id| self.txs.get(id).is_some_and(|t| !t.is_complete()));
        // A command that ends the current transaction begins another.
        let room = if going_on { most.saturating_mul(2) } else { most };
        let full = cx.config.smtp.max_tx != 0 && self.txs.len() >= room;
        if full {
            cx.shared.counters.tx_limit(AppProto::Smtp);
        }
        full
    }

    /// The current transaction; creates one if there is none.
    fn current(&mut self, cx: &mut Parse<'_>) -> Option<&mut SmtpTx> {
        if let Some(id) = self.open.filter(|id| self.txs.get(*id).is_some_and(|t| !t.is_complete())) {
            return self.get(id);
        }
        let (helo, window) = (self.helo.clone(), cx.config.smtp.file_window());
        let id = self.txs.push(|id| {
            let mut tx = SmtpTx { helo, window, ..SmtpTx::default() };
            tx.base.id = id;
            tx
        });
        self.open = Some(id);
        self.get(id)
    }

    /// The transaction of a frame.
    fn frame_tx(&self) -> Option<u64> {
        self.open.or_else(|| self.txs.next().checked_sub(1))
    }

    /// Adds an event to the current transaction, or to the last one.
    fn event(&mut self, cx: &mut Parse<'_>, event: Event, dir: Direction) {
        let id = self.frame_tx();
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            tx.event(event, dir);
        } else if let Some(tx) = self.current(cx) {
            tx.event(event, dir);
        }
    }

    fn close(&mut self) {
        if let Some(tx) = self.open.take().and_then(|id| self.get(id)) {
            tx.complete();
        }
    }

    fn ask(&mut self, what: Asked) {
        let id = self.frame_tx().unwrap_or(0);
        self.lost |= self.pending.push(what, id);
    }

    /// Parses the client's data.
    fn client(&mut self, cx: &mut Parse<'_>, data: &[u8]) -> Parsed {
        if self.again.is_empty() {
            return self.client_bytes(cx, data);
        }
        // Data to be parsed again comes first. Its frames were marked the first time.
        let mut all = std::mem::take(&mut self.again);
        let before = all.len();
        all.extend_from_slice(data);
        let frames = std::mem::replace(&mut cx.shared.frames.wanted, false);
        let parsed = self.client_bytes(cx, &all);
        cx.shared.frames.wanted = frames;
        if parsed.consumed < before {
            all.truncate(before);
            all.drain(..parsed.consumed);
            self.again = all;
        }
        Parsed { consumed: parsed.consumed.saturating_sub(before), ..parsed }
    }

    fn client_bytes(&mut self, cx: &mut Parse<'_>, data: &[u8]) -> Parsed {
        let mut at = 0;
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            if rest.is_empty() {
                break;
            }
            let used = match self.mode {
                Mode::Tls if rest.len() <= MAX_LINE && !cx.end => break,
                // The server does not reply, so the client's data is parsed as commands.
                Mode::Tls => {
                    self.mode = Mode::Command;
                    continue;
                }
                _ if self.client.skip => self.client.pass_over(rest),
                Mode::Command => {
                    if self.is_full(cx) {
                        return Parsed { consumed: at, outcome: Outcome::Full };
                    }
                    let Some(line) = self.client.line(rest, cx.end) else { break };
                    self.command(cx, &line);
                    let tx = self.frame_tx();
                    cx.shared.frames.begin(TS, COMMAND_FRAME, at, tx);
                    cx.shared.frames.end(TS, (at + line.total) as u64);
                    line.total
                }
                Mode::Data => match self.data_lines(cx, rest, at) {
                    0 => break,
                    n => n,
                },
                Mode::Chunk { left, last } => match self.chunk(cx, rest, left, last) {
                    0 => break,
                    n => n,
                },
            };
            let lost = self.lost || !self.greeted;
            self.pending.sent(rest.get(..used).unwrap_or(rest), lost);
            at += used;
        }
        if cx.end && matches!(self.mode, Mode::Data | Mode::Chunk { .. }) {
            self.cut_off(cx);
        }
        Parsed::used(at)
    }

    /// Handles a command.
    fn command(&mut self, cx: &mut Parse<'_>, line: &Line<'_>) {
        let credentials = std::mem::take(&mut self.credentials);
        let command = if credentials { Command::Other } else { Command::read(line.text) };
        if matches!(command, Command::Mail(_) | Command::Hello(_))
            && self.open.is_some_and(|id| self.pending.has_reset(id) || self.get(id).is_some_and(|t| t.rejected))
        {
            // The next mail begins before the reply that ends this one.
            self.close();
        }
        let after_chunk = std::mem::take(&mut self.after_chunk);
        let at = self.pending.at();
        let Some(tx) = self.current(cx) else { return };
        tx.base.touch(TS);
        if line.cut {
            tx.event(Event::TruncatedLine, TS);
            tx.event(Event::CommandTooLong, TS);
        }
        let behind = at + line.total as u64;
        let mut asked = if credentials { Asked::Auth } else { Asked::Other };
        match command {
            Command::Hello(name) => {
                if std::mem::replace(&mut tx.said_hello, true) {
                    tx.event(Event::DuplicateFields, TS);
                } else {
                    tx.helo = Some(name.to_vec());
                    self.helo = Some(name.to_vec());
                }
            }
            Command::Mail(path) => {
                if tx.mail_from.is_some() {
                    tx.event(Event::DuplicateFields, TS);
                } else {
                    tx.mail_from = Some(path.to_vec());
                }
            }
            Command::Rcpt(path) => {
                tx.recipient(path);
            }
            Command::Data => {
                asked = Asked::Data(behind);
                if tx.mail.as_ref().is_some_and(|m| m.begun) {
                    // DATA cannot continue a chunked mail (RFC 3030, section 3).
                    tx.event(Event::UnparsableContent, TS);
                } else {
                    tx.mail = Mail::new(&cx.config.smtp);
                }
                tx.base.advance(TS, DATA);
                (self.mode, self.line_start) = (Mode::Data, true);
            }
            Command::Bdat(None) => tx.event(Event::BdatTooLong, TS),
            Command::Bdat(Some((left, last))) => {
                asked = Asked::Chunk(behind);
                let fresh = tx.base.progress[0] < DATA;
                if fresh {
                    tx.mail = Mail::new(&cx.config.smtp);
                }
                tx.base.advance(TS, DATA);
                if fresh {
                    self.line_start = true;
                    self.carry.clear();
                }
                self.mode = Mode::Chunk { left, last };
            }
            Command::Rset => asked = Asked::Rset,
            Command::StartTls => {
                asked = Asked::StartTls;
                self.mode = Mode::Tls;
            }
            Command::Auth => asked = Asked::Auth,
            Command::Quit => asked = Asked::Quit,
            Command::Other if after_chunk => tx.event(Event::BdatTooLong, TS),
            Command::Known | Command::Other => {}
        }
        self.client.skip = line.cut;
        self.ask(asked);
        if let Mode::Chunk { left: 0, last } = self.mode {
            self.chunk_end(cx, last);
        }
    }

    /// Takes the current mail out of the transaction to read into it.
    fn with_mail(&mut self, cx: &mut Parse<'_>, f: impl FnOnce(&mut MailCx<'_, '_>, &mut Mail)) {
        let Some(tx) = self.open.and_then(|id| self.get(id)) else { return };
        let Some(mut mail) = tx.mail.take() else { return };
        let base = &mut tx.base;
        let mut mcx = MailCx::new(cx, &mut base.files, &mut base.events, TS, of_mail);
        f(&mut mcx, &mut mail);
        mcx.done();
        if mail.status() != crate::mime::Status::Header {
            tx.base.advance(TS, BODY);
        }
        tx.base.touch(TS);
        tx.mail = Some(mail);
    }

    /// Reads lines of a mail. Returns the number of bytes consumed.
    fn data_lines(&mut self, cx: &mut Parse<'_>, data: &[u8], at: usize) -> usize {
        let tx = self.frame_tx();
        if self.greeted && self.pending.has_data() && !self.lost {
            self.event(cx, Event::InvalidPipelining, TS);
        }
        cx.shared.frames.begin(TS, DATA_FRAME, at, tx);
        let end = cx.end;
        let (mut side, mut start) = (std::mem::take(&mut self.client), self.line_start);
        let (mut used, mut over) = (0, None);
        self.with_mail_or_not(cx, |mut reader| {
            while let Some(line) = side.line(data.get(used..).unwrap_or(&[]), end) {
                let mut text = line.text;
                if start {
                    if text == b"." && !line.cut && !line.ending.is_empty() {
                        over = Some(used);
                        used += line.total;
                        break;
                    }
                    text = text.strip_prefix(b".").unwrap_or(text);
                }
                if let Some((mcx, mail)) = &mut reader {
                    mcx.line(mail, text, start, line.ending, text.len() < line.text.len());
                }
                start = !line.ending.is_empty();
                used += line.total;
            }
            if let (Some((mcx, mail)), Some(_)) = (&mut reader, over) {
                mcx.end(mail, false);
            }
        });
        (self.client, self.line_start) = (side, start);
        if let Some(over) = over {
            cx.shared.frames.end(TS, (at + over) as u64);
            self.mode = Mode::Command;
            self.ask(Asked::Other);
            self.close();
        }
        used
    }

    /// As [`SmtpParser::with_mail`], but also calls the function if there is no mail.
    fn with_mail_or_not(&mut self, cx: &mut Parse<'_>, f: impl FnOnce(Option<(&mut MailCx<'_, '_>, &mut Mail)>)) {
        if self.open.and_then(|id| self.get(id)).is_some_and(|t| t.mail.is_some()) {
            self.with_mail(cx, |mcx, mail| f(Some((mcx, mail))));
        } else {
            f(None);
        }
    }

    /// Reads bytes of a chunk. Returns the number of bytes consumed.
    fn chunk(&mut self, cx: &mut Parse<'_>, data: &[u8], left: u64, last: bool) -> usize {
        let own = data.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(data);
        let whole = own.len() as u64 == left;
        let end = cx.end;
        let (mut side, mut start) = (std::mem::take(&mut self.client), self.line_start);
        let mut carry = std::mem::take(&mut self.carry);
        let mut used = 0;
        self.with_mail_or_not(cx, |mut reader| {
            let mut tell = |text: &[u8], start: bool, ending: &[u8]| {
                if let Some((mcx, mail)) = &mut reader {
                    mcx.line(mail, text, start, ending, false);
                }
            };
            while used < own.len() {
                let rest = own.get(used..).unwrap_or(&[]);
                if !carry.is_empty() {
                    // The unfinished line of the previous chunk, up to its end.
                    let room = MAX_LINE.saturating_sub(carry.len());
                    let lf = memchr::memchr(b'\n', rest.get(..room).unwrap_or(rest));
                    let n = lf.map_or(rest.len().min(room), |n| n + 1);
                    carry.extend_from_slice(rest.get(..n).unwrap_or(&[]));
                    used += n;
                    if let Some(line) = Side::default().line(&carry, false) {
                        tell(line.text, start, line.ending);
                        start = !line.ending.is_empty();
                        carry.clear();
                    }
                    continue;
                }
                let Some(line) = side.line(rest, whole || end) else { break };
                used += line.total;
                if line.ending.is_empty() && !line.cut {
                    carry.extend_from_slice(line.text);
                    continue;
                }
                tell(line.text, start, line.ending);
                start = !line.ending.is_empty();
            }
        });
        (self.client, self.line_start, self.carry) = (side, start, carry);
        let left = left.saturating_sub(used as u64);
        self.mode = Mode::Chunk { left, last };
        if left == 0 {
            self.chunk_end(cx, last);
        }
        used
    }

    /// Ends a chunk.
    fn chunk_end(&mut self, cx: &mut Parse<'_>, last: bool) {
        self.mode = Mode::Command;
        self.client.scan = 0;
        if !last {
            self.after_chunk = true;
            return;
        }
        let (carry, start) = (std::mem::take(&mut self.carry), self.line_start);
        self.with_mail(cx, |mcx, mail| {
            if !carry.is_empty() {
                mcx.line(mail, &carry, start, b"", false);
            }
            mcx.end(mail, false);
        });
        self.close();
    }

    /// Ends the current mail, truncated.
    fn cut_off(&mut self, cx: &mut Parse<'_>) {
        self.mode = Mode::Command;
        let (carry, start) = (std::mem::take(&mut self.carry), self.line_start);
        self.with_mail(cx, |mcx, mail| {
            if !carry.is_empty() {
                mcx.line(mail, &carry, start, b"", false);
            }
            mcx.end(mail, true);
        });
    }

    /// Parses the server's data.
    fn server(&mut self, cx: &mut Parse<'_>, data: &[u8]) -> Parsed {
        let mut at = 0;
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            if rest.is_empty() || self.resume {
                break;
            }
            if self.server.skip {
                at += self.server.pass_over(rest);
                continue;
            }
            let Some(line) = self.server.line(rest, cx.end) else { break };
            let tx = self.frame_tx();
            cx.shared.frames.begin(TC, RESPONSE_FRAME, at, tx);
            at += line.total;
            cx.shared.frames.end(TC, at as u64);
            self.server.skip = line.cut;
            if line.cut {
                self.event(cx, Event::TruncatedLine, TC);
                self.event(cx, Event::ReplyTooLong, TC);
            }
            // A line without a valid code is not SMTP.
            let Some(reply) = Reply::read(line.text).filter(Reply::known) else {
                if !std::mem::replace(&mut self.greeted, true) && !self.lost {
                    self.event(cx, Event::NoWelcome, TC);
                }
                // The end of the connection cut the line off: its rest could have made it a reply.
                if !line.cut && data.get(..at).is_some_and(|d| !d.ends_with(b"\n")) {
                    break;
                }
                // After a complete mail, an invalid reply belongs to no transaction.
                if self.open.is_some() || self.frame_tx().is_none() {
                    self.event(cx, Event::InvalidReply, TC);
                }
                // A truncated line does not prove that.
                if line.cut {
                    continue;
                }
                return Parsed { consumed: at, outcome: Outcome::Failed };
            };
            if reply.last
                && let Some(outcome) = self.reply(cx, reply.code)
            {
                return Parsed { consumed: at, outcome };
            }
        }
        Parsed::used(at)
    }

    /// Handles a complete reply. Returns the outcome if it changes what follows.
    fn reply(&mut self, cx: &mut Parse<'_>, code: u16) -> Option<Outcome> {
        if !std::mem::replace(&mut self.greeted, true) {
            let to_tls = self.pending.front() == Some(Asked::StartTls);
            let refused = matches!(code, 421 | 554) && self.pending.is_empty();
            if (code == 220 && !to_tls) || refused {
                // The client did not wait for the greeting (RFC 5321, section 4.3.1).
                if !self.pending.is_empty() && !self.lost {
                    self.event(cx, Event::NoWelcome, TC);
                }
                return None;
            }
            if !self.lost {
                self.event(cx, Event::NoWelcome, TC);
            }
            if self.pending.is_empty() {
                return None;
            }
        }
        let Some((asked, id)) = self.pending.pop() else {
            // 421 can come without a command (RFC 5321, section 3.8).
            if code != 421 && !self.lost {
                self.event(cx, Event::UnmatchedReply, TC);
            }
            return None;
        };
        // A command with its reply is a message: raw inspection does not wait for more, as in Suricata 8.
        cx.shared.whole = [true; 2];
        if let Some(tx) = self.get(id) {
            tx.answered = true;
        }
        match asked {
            Asked::Other => {}
            Asked::Quit => {
                // The connection has closed, so the rest of a mail will not come. While it is open, more may follow whatever
                // the server replied.
                if cx.flow.state == FlowState::Closed && self.open == Some(id) {
                    self.close();
                }
            }
            Asked::Data(_) if code / 100 == 3 => self.pending.settle(),
            Asked::Data(from) => {
                if let Some(tx) = self.get(id) {
                    tx.event(Event::DataRejected, TC);
                    tx.rejected = true;
                }
                return self.refused(cx, from, id);
            }
            // A server with CHUNKING reads a chunk's bytes even if it rejects them (RFC 3030 section 2). Without it, the bytes
            // are commands.
            Asked::Chunk(from) if matches!(code, 500 | 502) => return self.refused(cx, from, id),
            Asked::Chunk(_) => self.pending.settle(),
            Asked::Auth if code == 334 => return self.challenged(cx),
            Asked::Auth => {}
            Asked::Rset => {
                if code / 100 == 2 && self.open == Some(id) {
                    self.close();
                }
            }
            Asked::StartTls => {
                if self.mode == Mode::Tls {
                    (self.mode, self.resume) = (Mode::Command, true);
                }
                if code == 220 {
                    self.close();
                    return Some(Outcome::Change(cx.config.declared.secured()));
                }
                if let Some(tx) = self.get(id) {
                    tx.event(Event::TlsRejected, TC);
                }
            }
        }
        None
    }

    /// A command that announced mail was refused: the server reads the bytes from the client's offset `from` on as commands.
    fn refused(&mut self, cx: &mut Parse<'_>, from: u64, id: u64) -> Option<Outcome> {
        let back = self.pending.take_back(from);
        if self.open == Some(id) && matches!(self.mode, Mode::Data | Mode::Chunk { .. }) {
            if back.as_ref().is_some_and(Vec::is_empty) {
                // The client sent nothing of the mail.
                if let Some(tx) = self.get(id) {
                    tx.mail = None;
                }
            } else {
                self.cut_off(cx);
            }
        }
        self.mode = Mode::Command;
        self.after_chunk = false;
        self.carry.clear();
        match back {
            Some(bytes) => (self.client.skip, self.client.scan, self.again) = (false, 0, bytes),
            // Too many bytes to keep: the next line is a command.
            None => self.client.skip |= !self.line_start,
        }
        self.resume = true;
        if self.again.is_empty() {
            return None;
        }
        let end = std::mem::replace(&mut cx.end, false);
        let parsed = self.client(cx, b"");
        cx.end = end;
        (parsed.outcome != Outcome::More).then_some(parsed.outcome)
    }

    /// The server requests the next authentication step, so the client's next line is not a command.
    fn challenged(&mut self, cx: &mut Parse<'_>) -> Option<Outcome> {
        let Some((asked, id)) = self.pending.pop() else {
            self.credentials = true;
            return None;
        };
        // The client did not wait, and its line was parsed as a command.
        let outcome = match asked {
            Asked::Data(from) | Asked::Chunk(from) => self.refused(cx, from, id),
            Asked::StartTls if self.mode == Mode::Tls => {
                (self.mode, self.resume) = (Mode::Command, true);
                None
            }
            _ => None,
        };
        self.pending.push_front(Asked::Auth, id);
        outcome
    }
}

impl Parser for SmtpParser {
    /// A transaction is a whole mail, so raw inspection waits for commands instead ([`SmtpParser::reply`]).
    fn is_prompt(&self) -> bool {
        false
    }

    fn proto(&self) -> AppProto {
        AppProto::Smtp
    }

    fn shows_start(&self) -> bool {
        true
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        let parsed = match dir {
            Direction::ToServer => self.client(cx, data),
            Direction::ToClient => self.server(cx, data),
        };
        if std::mem::take(&mut self.resume) && parsed.outcome == Outcome::More {
            return Parsed { outcome: Outcome::Resume, ..parsed };
        }
        parsed
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        // After a gap, replies cannot be matched to commands.
        self.lost = true;
        self.pending.clear();
        if dir == TC {
            (self.server.skip, self.greeted) = (true, true);
            if self.mode == Mode::Tls {
                self.mode = Mode::Command;
            }
            return Outcome::More;
        }
        match self.mode {
            Mode::Command | Mode::Tls => {
                self.client.skip = true;
                self.mode = Mode::Command;
            }
            Mode::Data => {
                self.line_start = false;
                self.with_mail(cx, |mcx, mail| mcx.gap(mail, len));
            }
            Mode::Chunk { left, last } => {
                self.line_start = false;
                self.carry.clear();
                let missing = len.min(left);
                self.with_mail(cx, |mcx, mail| mcx.gap(mail, missing));
                self.mode = Mode::Chunk { left: left - missing, last };
                if left == missing {
                    self.chunk_end(cx, last);
                    self.client.skip = len > left;
                    self.after_chunk = false;
                }
            }
        }
        Outcome::More
    }

    fn truncated(&mut self, cx: &mut Parse<'_>, dir: Direction) {
        if dir == TS && matches!(self.mode, Mode::Data | Mode::Chunk { .. }) {
            self.cut_off(cx);
        }
    }

    fn memory(&mut self) -> u64 {
        let helo = self.helo.as_ref().map_or(0, Vec::capacity);
        let own = self.carry.capacity() + self.again.capacity() + helo + self.pending.memory();
        self.txs.memory() + own as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        self.txs.remove(id);
        if self.open == Some(id) {
            self.open = None;
        }
    }
}
