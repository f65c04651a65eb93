//! The state machine: the client's lines and mails, the server's replies, and the command that each reply answers.

use margay_flow::{Direction, FlowCore, FlowState};

use crate::config::{AppConfig, Securing};
use crate::conversation::{Conversation, Framing, Limit, Piece, Tx};
use crate::mime::Status;
use crate::parser::{Outcome, Shared};
use crate::proto::AppProto;

use super::command::Command;
use super::events::{Event, of_mail};
use super::mail::{Lines, Mail, MailCx};
use super::pending::{Asked, Pending};
use super::reply::Reply;
use super::tx::{SmtpTx, event};
use super::{BODY, COMMAND_FRAME, DATA, DATA_FRAME, RESPONSE_FRAME, line};

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

type Turn<'a, 'b> = crate::conversation::Turn<'a, 'b, SmtpTx>;

/// The client's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    /// Commands.
    #[default]
    Command,
    /// In a mail, up to a line with a dot.
    Data,
    /// In a chunk of a mail, with the bytes left, and whether it is the last chunk.
    Chunk { left: u64, last: bool },
}

/// The SMTP parser of a flow.
#[derive(Debug)]
pub(super) struct Smtp {
    max_txs: usize,
    /// The current transaction.
    open: Option<u64>,
    mode: Mode,
    /// By direction: the rest of the current line is skipped.
    skip: [bool; 2],
    /// The current mail's lines.
    lines: Lines,
    /// The previous command was a chunk, and not the last one.
    after_chunk: bool,
    /// Commands that wait for their replies.
    pending: Pending,
    /// After STARTTLS, until its reply.
    securing: Securing,
    /// The client's next line is an authentication step, not a command.
    credentials: bool,
    /// The server has sent data.
    greeted: bool,
    /// After a gap, replies cannot be matched to commands.
    lost: bool,
    /// The client's name.
    helo: Option<Vec<u8>>,
}

impl Conversation for Smtp {
    type Tx = SmtpTx;
    const PROTO: AppProto = AppProto::Smtp;
    const LIMIT: Limit = Limit::Wait;
    /// A transaction is a whole mail, so raw inspection waits for commands instead ([`Smtp::reply`]).
    const PROMPT: bool = false;
    const SHOWS_START: bool = true;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Smtp {
            max_txs: match config.smtp.max_tx {
                0 => usize::MAX,
                n => (n as usize).max(2),
            },
            open: None,
            mode: Mode::Command,
            skip: [false; 2],
            lines: Lines::new(false),
            after_chunk: false,
            pending: Pending::default(),
            securing: config.declared.securing(),
            credentials: false,
            greeted: false,
            lost: false,
            helo: None,
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        let skip = &mut self.skip[dir.index()];
        if *skip {
            let len = memchr::memchr(b'\n', data);
            *skip = len.is_none();
            return Framing::Skip(len.map_or(data.len(), |n| n + 1));
        }
        let len = match self.mode {
            _ if dir == TC => line::length(data, end),
            Mode::Command if !end && self.awaits_tls(data) => None,
            Mode::Data => line::of_mail(data, self.lines.at_start(), end),
            // The rest of its command was skipped.
            Mode::Chunk { left, .. } => return Framing::Body(0, left),
            Mode::Command => line::length(data, end),
        };
        len.map_or(Framing::More, Framing::Message)
    }

    fn message(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, message: &[u8]) -> Outcome {
        if dir == TC {
            return self.reply_line(turn, message);
        }
        if self.mode == Mode::Data {
            self.data(turn, message);
        } else {
            self.early(turn);
            self.command(turn, message);
            turn.frame(TS, COMMAND_FRAME, 0, message.len(), turn.latest_id());
        }
        Outcome::More
    }

    fn waits(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, data: &[u8]) -> Outcome {
        if dir == TS && self.mode == Mode::Command && self.awaits_tls(data) {
            self.early(turn);
        }
        if dir == TS && self.mode == Mode::Data {
            self.data_begins(turn);
            if let Some(tx) = self.open.and_then(|id| turn.tx(id)).filter(|tx| tx.content.mail.is_some()) {
                tx.touch(TS);
            }
        }
        Outcome::More
    }

    /// Reads bytes of a chunk.
    fn body(&mut self, turn: &mut Turn<'_, '_>, _dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        let Mode::Chunk { last, .. } = self.mode else { return Outcome::More };
        self.mode = Mode::Chunk { left, last };
        match piece {
            Piece::Data(data) => self.read(turn, data),
            Piece::Gap(len) => self.gap_in_mail(turn, len),
        }
        if left == 0 {
            self.chunk_end(turn, last);
            self.after_chunk &= matches!(piece, Piece::Data(_));
        }
        Outcome::More
    }

    fn gap(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, len: u64) -> Outcome {
        self.lose(turn);
        if self.mode == Mode::Data && dir == TS {
            self.gap_in_mail(turn, len);
            return Outcome::More;
        }
        self.skip[dir.index()] = true;
        self.greeted |= dir == TC;
        Outcome::More
    }

    /// Ends the current mail, truncated.
    fn ends(&mut self, turn: &mut Turn<'_, '_>, dir: Direction) {
        if dir == TS && matches!(self.mode, Mode::Data | Mode::Chunk { .. }) {
            self.mail_end(turn, true);
        }
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn freed(&mut self, _shared: &mut Shared, tx: &mut Tx<SmtpTx>) {
        if self.open == Some(tx.base.id) {
            self.open = None;
        }
    }

    fn held(&self) -> u64 {
        let helo = self.helo.as_ref().map_or(0, Vec::capacity);
        (self.lines.held() + helo + self.pending.memory()) as u64
    }
}

impl Smtp {
    /// The current transaction; creates one if there is none.
    fn current<'t>(&mut self, turn: &'t mut Turn<'_, '_>) -> Option<&'t mut Tx<SmtpTx>> {
        let open = self.open.filter(|id| turn.peek(*id).is_some_and(|tx| !(tx.is_finished(TS) && tx.is_finished(TC))));
        let id = open.unwrap_or_else(|| {
            let (helo, window) = (self.helo.clone(), turn.cx.config.smtp.file_window());
            turn.open(SmtpTx { helo, window, ..SmtpTx::default() }).base.id
        });
        self.open = Some(id);
        turn.tx(id)
    }

    /// Adds an event to the latest transaction.
    fn event(&mut self, turn: &mut Turn<'_, '_>, what: Event, dir: Direction) {
        let tx = if turn.latest().is_some() { turn.latest() } else { self.current(turn) };
        if let Some(tx) = tx {
            event(tx, what, dir);
        }
    }

    /// Completes the current transaction.
    fn close(&mut self, turn: &mut Turn<'_, '_>) {
        if let Some(tx) = self.open.take().and_then(|id| turn.tx(id)) {
            tx.finish(TS);
            tx.finish(TC);
        }
    }

    /// Whether the client's data may be the handshake behind a STARTTLS that has no reply yet.
    fn awaits_tls(&self, data: &[u8]) -> bool {
        self.pending.has_tls() && self.securing.holds(data)
    }

    /// The client goes on. It has to wait for the reply to STARTTLS (RFC 3207, section 4).
    fn early(&mut self, turn: &mut Turn<'_, '_>) {
        if self.greeted && self.pending.has_tls() && !self.lost {
            self.event(turn, Event::InvalidPipelining, TS);
        }
    }

    /// Adds a command that waits for its reply.
    fn ask(&mut self, turn: &mut Turn<'_, '_>, what: Asked) {
        self.lost |= self.pending.push(what, turn.latest_id().unwrap_or(0));
        if self.lost {
            // No reply will decide how the client's bytes are read.
            turn.settle(TS, u64::MAX);
        }
    }

    /// Replies cannot be matched to commands any longer.
    fn lose(&mut self, turn: &mut Turn<'_, '_>) {
        self.lost = true;
        self.pending.clear();
        turn.settle(TS, u64::MAX);
    }

    /// Handles a command.
    fn command(&mut self, turn: &mut Turn<'_, '_>, message: &[u8]) {
        let (text, ending) = line::split(message);
        let is_cut = ending.is_empty() && text.len() == line::MAX_LINE;
        let credentials = std::mem::take(&mut self.credentials);
        let command = if credentials { Command::Other } else { Command::read(text) };
        if matches!(command, Command::Mail(_) | Command::Hello(_))
            && let Some(id) = self.open
            && (self.pending.has_reset(id) || turn.peek(id).is_some_and(|tx| tx.content.rejected))
        {
            // The next mail begins before the reply that ends this one.
            self.close(turn);
        }
        let after_chunk = std::mem::take(&mut self.after_chunk);
        let asked = match command {
            _ if credentials => Asked::Auth,
            Command::Data => Asked::Data(turn.keep(TS)),
            Command::Bdat(Some(_)) => Asked::Chunk(turn.keep(TS)),
            Command::Rset => Asked::Rset,
            Command::StartTls => Asked::StartTls,
            Command::Auth => Asked::Auth,
            Command::Quit => Asked::Quit,
            _ => Asked::Other,
        };
        let config = turn.cx.config;
        let Some(tx) = self.current(turn) else { return };
        tx.touch(TS);
        if is_cut {
            event(tx, Event::TruncatedLine, TS);
            event(tx, Event::CommandTooLong, TS);
        }
        match command {
            Command::Hello(name) => {
                if std::mem::replace(&mut tx.content.said_hello, true) {
                    event(tx, Event::DuplicateFields, TS);
                } else {
                    tx.content.helo = Some(name.to_vec());
                    self.helo = Some(name.to_vec());
                }
            }
            Command::Mail(path) => {
                if tx.content.mail_from.is_some() {
                    event(tx, Event::DuplicateFields, TS);
                } else {
                    tx.content.mail_from = Some(path.to_vec());
                }
            }
            Command::Rcpt(path) => tx.content.recipient(path),
            Command::Data => {
                let is_chunked = tx.content.mail.as_ref().is_some_and(|m| m.begun);
                if is_chunked {
                    // DATA cannot continue a chunked mail (RFC 3030, section 3).
                    event(tx, Event::UnparsableContent, TS);
                } else {
                    tx.content.mail = Mail::new(&config.smtp);
                }
                tx.base.advance(TS, DATA);
                if is_chunked {
                    self.flush(turn);
                }
                (self.mode, self.lines) = (Mode::Data, Lines::new(true));
            }
            Command::Bdat(None) => event(tx, Event::BdatTooLong, TS),
            Command::Bdat(Some((left, last))) => {
                if tx.base.progress[0] < DATA {
                    tx.content.mail = Mail::new(&config.smtp);
                    self.lines = Lines::new(false);
                }
                tx.base.advance(TS, DATA);
                self.mode = Mode::Chunk { left, last };
                if !is_cut {
                    turn.body(TS, left);
                }
            }
            Command::Other if after_chunk => event(tx, Event::BdatTooLong, TS),
            _ => {}
        }
        self.skip[0] = is_cut;
        self.ask(turn, asked);
        if let Mode::Chunk { left: 0, last } = self.mode {
            self.chunk_end(turn, last);
        }
    }

    /// Takes the current mail out of the transaction to read into it. Without one, does nothing and returns `false`.
    fn with_mail(
        &mut self,
        turn: &mut Turn<'_, '_>,
        f: impl FnOnce(&mut Lines, &mut MailCx<'_, '_>, &mut Mail),
    ) -> bool {
        let Some((tx, cx)) = self.open.and_then(|id| turn.tx_and_parse(id)) else { return false };
        let Some(mut mail) = tx.content.mail.take() else { return false };
        let mut reader = MailCx::new(cx, &mut tx.base.files, &mut tx.base.events, TS, of_mail);
        f(&mut self.lines, &mut reader, &mut mail);
        reader.done();
        if mail.status() != Status::Header {
            tx.base.advance(TS, BODY);
        }
        tx.touch(TS);
        tx.content.mail = Some(mail);
        true
    }

    /// Reads bytes of the mail.
    fn read(&mut self, turn: &mut Turn<'_, '_>, data: &[u8]) {
        if !self.with_mail(turn, |lines, reader, mail| lines.read(reader, mail, data)) {
            self.lines.pass(data);
        }
    }

    /// Reads the rest of the mail that has no line end.
    fn flush(&mut self, turn: &mut Turn<'_, '_>) {
        self.with_mail(turn, |lines, reader, mail| lines.flush(reader, mail));
    }

    /// Handles a gap in the mail.
    fn gap_in_mail(&mut self, turn: &mut Turn<'_, '_>, len: u64) {
        self.lose(turn);
        self.with_mail(turn, |lines, reader, mail| lines.gap(reader, mail, len));
    }

    /// Ends the current mail; `truncated` if its end was not seen.
    fn mail_end(&mut self, turn: &mut Turn<'_, '_>, truncated: bool) {
        self.mode = Mode::Command;
        self.with_mail(turn, |lines, reader, mail| {
            lines.flush(reader, mail);
            reader.end(mail, truncated);
        });
    }

    /// Some of a mail has come.
    fn data_begins(&mut self, turn: &mut Turn<'_, '_>) {
        if self.greeted && self.pending.has_data() && !self.lost {
            self.event(turn, Event::InvalidPipelining, TS);
        }
        turn.begin_frame(TS, DATA_FRAME, 0, turn.latest_id());
    }

    /// Reads a mail, or the part that has come.
    fn data(&mut self, turn: &mut Turn<'_, '_>, message: &[u8]) {
        self.data_begins(turn);
        let (own, is_over) = line::without_dot(message, self.lines.at_start());
        self.read(turn, own);
        if is_over {
            turn.end_frame(TS, own.len());
            self.mail_end(turn, false);
            self.ask(turn, Asked::Other);
            self.close(turn);
        }
    }

    /// Ends a chunk.
    fn chunk_end(&mut self, turn: &mut Turn<'_, '_>, last: bool) {
        self.mode = Mode::Command;
        self.after_chunk = !last;
        if last {
            self.mail_end(turn, false);
            self.close(turn);
        }
    }

    /// Handles a line of the server.
    fn reply_line(&mut self, turn: &mut Turn<'_, '_>, message: &[u8]) -> Outcome {
        let (text, ending) = line::split(message);
        let is_cut = ending.is_empty() && text.len() == line::MAX_LINE;
        turn.frame(TC, RESPONSE_FRAME, 0, message.len(), turn.latest_id());
        self.skip[1] = is_cut;
        if is_cut {
            self.event(turn, Event::TruncatedLine, TC);
            self.event(turn, Event::ReplyTooLong, TC);
        }
        // Clients skip an empty line before the greeting.
        if text.is_empty() && !ending.is_empty() && !self.greeted {
            return Outcome::More;
        }
        // A line without a valid code is not SMTP.
        let Some(reply) = Reply::read(text).filter(Reply::known) else {
            if !std::mem::replace(&mut self.greeted, true) && !self.lost {
                self.event(turn, Event::NoWelcome, TC);
            }
            // The end of the connection cut the line off: its rest could have made it a reply.
            if !is_cut && ending.is_empty() {
                return Outcome::More;
            }
            // After a complete mail, an invalid reply belongs to no transaction.
            if self.open.is_some() || turn.latest_id().is_none() {
                self.event(turn, Event::InvalidReply, TC);
            }
            // A truncated line does not prove that.
            return if is_cut { Outcome::More } else { Outcome::Failed };
        };
        if reply.last { self.reply(turn, reply.code) } else { Outcome::More }
    }

    /// Handles a complete reply.
    fn reply(&mut self, turn: &mut Turn<'_, '_>, code: u16) -> Outcome {
        if !std::mem::replace(&mut self.greeted, true) {
            let to_tls = self.pending.front() == Some(Asked::StartTls);
            let refused = matches!(code, 421 | 554) && self.pending.is_empty();
            let greets = (code == 220 && !to_tls) || refused;
            // The client did not wait for the greeting (RFC 5321, section 4.3.1).
            if !(greets && self.pending.is_empty() || self.lost) {
                self.event(turn, Event::NoWelcome, TC);
            }
            if greets || self.pending.is_empty() {
                return Outcome::More;
            }
        }
        let Some((asked, id)) = self.pending.pop() else {
            // 421 can come without a command (RFC 5321, section 3.8).
            if code != 421 && !self.lost {
                self.event(turn, Event::UnmatchedReply, TC);
            }
            return Outcome::More;
        };
        // A command with its reply is a message: raw inspection does not wait for more, as in Suricata 8.
        turn.cx.shared.whole = [true; 2];
        if let Some(tx) = turn.tx(id) {
            tx.content.answered = true;
        }
        match asked {
            Asked::Other => {}
            Asked::Quit => {
                // The connection has closed, so the rest of a mail will not come. While it is open, more may follow whatever
                // the server replied.
                if turn.cx.flow.state == FlowState::Closed && self.open == Some(id) {
                    self.close(turn);
                }
            }
            Asked::Data(from) if code / 100 == 3 => turn.settle(TS, from),
            Asked::Data(from) => {
                if let Some(tx) = turn.tx(id) {
                    event(tx, Event::DataRejected, TC);
                    tx.content.rejected = true;
                }
                return self.refused(turn, from, id);
            }
            // A server with CHUNKING reads a chunk's bytes even if it rejects them (RFC 3030 section 2). Without it, the bytes
            // are commands.
            Asked::Chunk(from) if matches!(code, 500 | 502) => return self.refused(turn, from, id),
            Asked::Chunk(from) => turn.settle(TS, from),
            Asked::Auth if code == 334 => return self.challenged(turn),
            Asked::Auth => {}
            Asked::Rset => {
                if code / 100 == 2 && self.open == Some(id) {
                    self.close(turn);
                }
            }
            Asked::StartTls => {
                if code == 220 {
                    self.close(turn);
                    return Outcome::Change(turn.cx.config.declared.secured());
                }
                if let Some(tx) = turn.tx(id) {
                    event(tx, Event::TlsRejected, TC);
                }
                return Outcome::Resume;
            }
        }
        Outcome::More
    }

    /// A command that announced mail was refused: the server reads the bytes from the client's offset `from` on as commands.
    fn refused(&mut self, turn: &mut Turn<'_, '_>, from: u64, id: u64) -> Outcome {
        let back = turn.take_back(TS, from);
        self.pending.clear();
        let at_start = self.lines.at_start();
        if self.open == Some(id) && matches!(self.mode, Mode::Data | Mode::Chunk { .. }) {
            if back == Some(0) {
                // The client sent nothing of the mail.
                if let Some(tx) = turn.tx(id) {
                    tx.content.mail = None;
                }
            } else {
                self.mail_end(turn, true);
            }
        }
        (self.mode, self.after_chunk) = (Mode::Command, false);
        // If there were too many bytes to keep, the next line is a command.
        self.skip[0] = back.is_none() && (self.skip[0] || !at_start);
        self.lines = Lines::new(false);
        Outcome::Resume
    }

    /// The server requests the next authentication step, so the client's next line is not a command.
    fn challenged(&mut self, turn: &mut Turn<'_, '_>) -> Outcome {
        let Some((asked, id)) = self.pending.pop() else {
            self.credentials = true;
            return Outcome::More;
        };
        // The client did not wait, and its line was parsed as a command.
        let outcome = match asked {
            Asked::Data(from) | Asked::Chunk(from) => self.refused(turn, from, id),
            Asked::StartTls => Outcome::Resume,
            _ => Outcome::More,
        };
        self.pending.push_front(Asked::Auth, id);
        outcome
    }
}
