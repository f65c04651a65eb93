//! IMAP (RFC 9051, RFC 3501): each command with its responses is a transaction, and so are the greeting and each mail that a
//! FETCH returns. Tags match responses to commands, so the parser can continue after a gap. Mails (APPEND, `BODY[]`, `RFC822`)
//! go line by line to [`crate::mime`], like those of SMTP and with its settings.

pub mod events;
mod syntax;
mod tx;

use std::collections::VecDeque;

use margay_flow::{Direction, FlowCore};

use crate::config::{AppConfig, Securing};
use crate::conversation::{Conversation, Framing, Piece, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Opening, Protocol, Setting};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Mode, Pattern, Recognition};
use crate::smtp::EMAIL;
use crate::smtp::mail::{Lines, Mail, MailCx};
use crate::tx::BufferDef;

use events::Event;
use syntax::{ARGUMENT_MAX, TAIL, is_mail, literal, sasl_user, tag};
use tx::{Command, Exchange};

/// The limit of a line that is parsed as a whole.
const LINE_MAX: usize = 8 << 10;
/// The limit of commands that wait for their final response; a further one ends the oldest.
const PENDING_MAX: usize = 128;
/// The limit of consecutive server lines that are not responses.
const MALFORMED_MAX: u8 = 8;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

const MAX_TX: usize = 0;
const STREAM_DEPTH: usize = 1;

keywords! {
    Command Keyword::buffer(&["imap.command"], KeywordDirection::ToServer);
    User Keyword::buffer(&["imap.user"], KeywordDirection::ToServer);
    Mailbox Keyword::buffer(&["imap.mailbox"], KeywordDirection::ToServer);
    Response Keyword::buffers(&["imap.response"], KeywordDirection::ToClient);
}

/// Id of the first mail buffer.
const EMAIL_AT: u8 = KEYWORDS.len() as u8;

/// The buffers of IMAP, followed by those that mails have in SMTP. A mail can go in either direction.
static ALL_BUFFERS: [BufferDef; BUFFERS_OF_IMAP.len() + EMAIL.len()] = {
    let mut all = [BUFFERS_OF_IMAP[0]; BUFFERS_OF_IMAP.len() + EMAIL.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < BUFFERS_OF_IMAP.len() {
            BUFFERS_OF_IMAP[i]
        } else {
            let (name, kind) = EMAIL[i - BUFFERS_OF_IMAP.len()];
            BufferDef { name, id: i as u8, progress: [Some(1); 2], kind, ..BufferDef::PLAIN }
        };
        i += 1;
    }
    all
};

const BUFFERS_OF_IMAP: [BufferDef; 4] = crate::declare::buffers(KEYWORDS);

/// IMAP.
pub static PROTOCOL: Protocol = Protocol {
    // Suricata only detects it, and so does this engine by default.
    mode: Mode::DetectionOnly,
    opening: Opening::Command,
    recognition: Recognition {
        patterns: &[
            Pattern::tcp(TC, b"* OK ").nocase(),
            Pattern::tcp(TC, b"* PREAUTH ").nocase(),
            Pattern::tcp(TC, b"* BYE ").nocase(),
        ],
        probes: &[],
    },
    settings: &[Setting::max_tx(256), Setting::STREAM_DEPTH],
    parser: parser::<Imap>,
    keywords: KEYWORDS,
    buffers: &ALL_BUFFERS,
    events: events::NAMES,
    is_own: true,
    ..Protocol::new(AppProto::Imap, "imap").logged()
};

/// How to handle a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Skip it.
    Skip,
    /// It is an argument of a command.
    Argument,
    /// It is a mail.
    Mail,
}

/// The current literal.
#[derive(Debug)]
struct Literal {
    kind: Kind,
    /// Its transaction.
    tx: Option<u64>,
    /// The lines of a mail.
    lines: Lines,
    argument: Vec<u8>,
}

/// The state of a direction.
#[derive(Debug, Default)]
struct Side {
    literal: Option<Literal>,
    /// After a literal, the command or response continues in the next line.
    open: bool,
    /// Its transaction.
    tx: Option<u64>,
    /// The next bytes continue a long line.
    within: bool,
    /// The end of the current line, which may announce a literal.
    tail: Vec<u8>,
    /// The mail number of the current response.
    fetched: Option<Vec<u8>>,
    /// After a gap: the next byte begins a line.
    found: bool,
}

impl Side {
    /// Ends the current command or response.
    fn close(&mut self) {
        (self.literal, self.open, self.tx, self.within, self.fetched) = (None, false, None, false, None);
        self.tail.clear();
    }

    /// Keeps the last bytes of the current line.
    fn note(&mut self, text: &[u8]) {
        self.tail.extend_from_slice(text.get(text.len().saturating_sub(TAIL)..).unwrap_or(text));
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
    }
}

/// The state of a flow.
#[derive(Debug)]
struct Imap {
    max_txs: usize,
    stream_depth: u64,
    sides: [Side; 2],
    /// Commands without their final response, oldest first: tag and transaction.
    pending: VecDeque<(Vec<u8>, u64)>,
    /// An authentication is in progress: the client's data belongs to it.
    authentication: Option<u64>,
    /// STARTTLS or COMPRESS waits for its response: the client's data after it may not be commands.
    hold: Option<u64>,
    /// It is COMPRESS: what follows may be any data.
    compresses: bool,
    securing: Securing,
    /// A literal of the client, for which the server has to consent: its command's transaction, and where the bytes begin that
    /// are commands if it does not.
    asked: Option<(u64, u64)>,
    /// The client waits for updates (RFC 2177) until it sends `DONE`.
    idle: bool,
    malformed: u8,
}

/// Length of the first line with its end, up to the limit; `None` if it is incomplete.
fn line(data: &[u8], end: bool) -> Option<usize> {
    let seen = data.get(..LINE_MAX).unwrap_or(data);
    match memchr::memchr(b'\n', seen) {
        Some(at) => Some(at + 1),
        None if seen.len() == LINE_MAX || end => Some(seen.len()),
        None => None,
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The status of a response that ends a command, or of a greeting.
fn status(text: &[u8]) -> Option<&'static str> {
    let word = text.split(|b| *b == b' ').next()?;
    ["OK", "NO", "BAD", "PREAUTH", "BYE"].into_iter().find(|s| word.eq_ignore_ascii_case(s.as_bytes()))
}

impl Conversation for Imap {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Imap;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);
    const RESUMES: bool = true;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Imap {
            max_txs: config.settings.get(AppProto::Imap, MAX_TX) as usize,
            stream_depth: config.settings.get(AppProto::Imap, STREAM_DEPTH),
            sides: Default::default(),
            pending: VecDeque::new(),
            authentication: None,
            hold: None,
            compresses: false,
            securing: config.declared.securing(),
            asked: None,
            idle: false,
            malformed: 0,
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        if dir == TS && self.hold.is_some() && (self.compresses || !end && self.securing.holds(data)) {
            return Framing::More;
        }
        line(data, end).map_or(Framing::More, Framing::Message)
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, message: &[u8]) -> Outcome {
        turn.cx.shared.wishes.stream_depth = Some(self.stream_depth);
        let side = &mut self.sides[dir.index()];
        let whole = message.ends_with(b"\n");
        let text = if whole { without_end(message) } else { message };
        let first = !std::mem::replace(&mut side.within, !whole);
        side.note(text);
        let mut outcome = Outcome::More;
        if first {
            outcome = if dir == TS { self.command(turn, text) } else { self.response(turn, text, whole) };
            if let Some(tx) = self.sides[dir.index()].tx.and_then(|id| turn.tx(id)).filter(|_| text.len() >= LINE_MAX) {
                tx.event(Event::LineTooLong as u8);
            }
        }
        if whole {
            self.line_end(turn, dir);
        }
        outcome
    }

    /// Handles bytes of a literal.
    fn body(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        if let Some(literal) = self.sides[dir.index()].literal.take() {
            self.literal(turn, dir, literal, piece, left);
        }
        Outcome::More
    }

    fn ends(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction) {
        if let Some(literal) = self.sides[dir.index()].literal.take() {
            self.end_mail(turn, dir, literal, true);
        }
    }

    /// The parser continues with the next line. The final response may be in the gap.
    fn gap(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, _len: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let tx = side.tx.filter(|_| dir == TS);
        side.found = false;
        side.close();
        if let Some(tx) = tx.and_then(|id| turn.tx(id)) {
            tx.finish(TS);
        }
        (self.hold, self.asked, self.authentication, self.idle) = (None, None, None, false);
        Outcome::More
    }

    fn resume(&mut self, dir: Direction, data: &[u8], _end: bool) -> Resume {
        let side = &mut self.sides[dir.index()];
        if std::mem::take(&mut side.found) {
            return Resume::Here;
        }
        let at = memchr::memchr(b'\n', data);
        side.found = at.is_some();
        Resume::Skip(at.map_or(data.len(), |n| n + 1))
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn held(&self) -> u64 {
        let sides = self.sides.iter().map(|s| {
            s.tail.capacity()
                + s.fetched.as_ref().map_or(0, Vec::capacity)
                + s.literal.as_ref().map_or(0, |l| l.argument.capacity() + l.lines.held())
        });
        let tags: usize = self.pending.iter().map(|p| p.0.capacity()).sum();
        (self.pending.capacity() * size_of::<(Vec<u8>, u64)>() + tags + sides.sum::<usize>()) as u64
    }
}

/// Takes the mail of a transaction out to read into it.
fn with_mail(
    turn: &mut Turn<'_, '_, Exchange>,
    dir: Direction,
    id: Option<u64>,
    f: impl FnOnce(&mut MailCx<'_, '_>, &mut Mail),
) {
    let Some((tx, cx)) = id.and_then(|id| turn.tx_and_parse(id)) else { return };
    let Some(mut mail) = tx.content.mail.take() else { return };
    let mut reader = MailCx::new(cx, &mut tx.base.files, &mut tx.base.events, dir, events::of_mail);
    f(&mut reader, &mut mail);
    reader.done();
    tx.content.mail = Some(mail);
    tx.touch(dir);
}

impl Imap {
    /// Handles the first piece of a client line.
    fn command(&mut self, turn: &mut Turn<'_, '_, Exchange>, text: &[u8]) -> Outcome {
        let [side, _] = &mut self.sides;
        let before = literal(text).map_or(text, |l| l.before);
        if side.open {
            if let Some(command) = side.tx.and_then(|id| turn.tx(id)).and_then(|t| t.content.command.as_mut()) {
                command.add(before);
            }
            return Outcome::More;
        }
        if let Some(id) = self.authentication {
            if let Some(command) = turn.tx(id).and_then(|t| t.content.command.as_mut())
                && command.user.is_none()
            {
                command.user = command.mechanism().and_then(|m| sasl_user(m, text));
            }
            return Outcome::More;
        }
        if text.is_empty() || std::mem::take(&mut self.idle) && text.eq_ignore_ascii_case(b"DONE") {
            return Outcome::More;
        }
        side.open = true;
        let window = turn.cx.config.smtp.file_window();
        let Some((tag, rest)) = tag(before) else {
            let command = Some(Command::read(b"", before));
            let tx = turn.one_way(TS, Exchange { command, window, ..Exchange::default() });
            tx.event(Event::MalformedCommand as u8);
            return Outcome::More;
        };
        let mut command = Command::read(tag, rest);
        if command.user.is_none()
            && let (Some(mechanism), Some(initial)) = (command.mechanism(), rest.splitn(3, |b| *b == b' ').nth(2))
        {
            command.user = sasl_user(mechanism, initial);
        }
        let is_known = self.pending.iter().any(|p| p.0 == tag);
        let tx = turn.open(Exchange { command: Some(command), window, ..Exchange::default() });
        if is_known {
            tx.event(Event::DuplicateTag as u8);
        }
        let id = tx.base.id;
        side.tx = Some(id);
        if self.pending.len() >= PENDING_MAX
            && let Some(oldest) = self.pending.pop_front().and_then(|(_, id)| turn.tx(id))
        {
            oldest.finish(TS);
            oldest.finish(TC);
        }
        self.pending.push_back((tag.to_vec(), id));
        Outcome::More
    }

    /// Handles the end of a line: a literal follows, or the command or response ends.
    fn line_end(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction) {
        let side = &mut self.sides[dir.index()];
        let tail = std::mem::take(&mut side.tail);
        // The line break may have arrived separately.
        let announced = literal(without_end(&tail)).filter(|_| side.open);
        if let Some(announced) = announced {
            let (kind, id) =
                if dir == TS { for_server(turn, side.tx) } else { from_server(turn, side, announced.before) };
            let new = Literal { kind, tx: id, lines: Lines::new(false), argument: Vec::new() };
            if dir == TS && announced.waits && self.asked.is_none() {
                self.asked = self.sides[0].tx.map(|id| (id, turn.keep(TS)));
            }
            turn.body(dir, announced.len);
            self.literal(turn, dir, new, Piece::Data(b""), announced.len);
            return;
        }
        let id = side.tx;
        let is_open = side.open;
        side.close();
        if let Some(tx) = id.filter(|_| dir == TS && is_open).and_then(|id| turn.tx(id)) {
            let command = tx.content.command.as_ref();
            let is = |name| command.is_some_and(|c| c.is(name));
            if is("AUTHENTICATE") {
                // The user name may be in the client's next line.
                self.authentication = id;
                return;
            }
            self.idle = is("IDLE");
            if self.hold.is_none() && (is("STARTTLS") || is("COMPRESS")) {
                (self.hold, self.compresses) = (id, is("COMPRESS"));
            }
            tx.finish(TS);
        }
    }

    /// Handles bytes of a literal; `left` bytes of it follow them.
    fn literal(
        &mut self,
        turn: &mut Turn<'_, '_, Exchange>,
        dir: Direction,
        mut literal: Literal,
        piece: Piece<'_>,
        left: u64,
    ) {
        match (literal.kind, piece) {
            (Kind::Skip, _) | (Kind::Argument, Piece::Gap(_)) => {}
            (Kind::Argument, Piece::Data(data)) => {
                let room = ARGUMENT_MAX.saturating_sub(literal.argument.len());
                literal.argument.extend(data.iter().take(room));
            }
            (Kind::Mail, _) => with_mail(turn, dir, literal.tx, |reader, mail| match piece {
                Piece::Data(data) => literal.lines.read(reader, mail, data),
                Piece::Gap(len) => literal.lines.gap(reader, mail, len),
            }),
        }
        if left > 0 {
            self.sides[dir.index()].literal = Some(literal);
            return;
        }
        if literal.kind == Kind::Argument
            && let Some(command) = literal.tx.and_then(|id| turn.tx(id)).and_then(|t| t.content.command.as_mut())
        {
            command.add_literal(std::mem::take(&mut literal.argument));
        }
        self.end_mail(turn, dir, literal, false);
    }

    /// Ends a mail. If it has a transaction of its own, that is complete.
    fn end_mail(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, mut literal: Literal, truncated: bool) {
        if literal.kind != Kind::Mail {
            return;
        }
        with_mail(turn, dir, literal.tx, |reader, mail| {
            literal.lines.flush(reader, mail);
            reader.end(mail, truncated);
        });
        if let Some(tx) = literal.tx.filter(|id| self.sides[dir.index()].tx != Some(*id)).and_then(|id| turn.tx(id)) {
            tx.finish(dir);
        }
    }

    /// Handles the first piece of a server line.
    fn response(&mut self, turn: &mut Turn<'_, '_, Exchange>, text: &[u8], whole: bool) -> Outcome {
        let [_, side] = &mut self.sides;
        if side.open || text.is_empty() {
            return Outcome::More;
        }
        let oldest = self.pending.front().map(|p| p.1).filter(|id| turn.tx(*id).is_some());
        let window = turn.cx.config.smtp.file_window();
        match text {
            [b'*', b' ', rest @ ..] => {
                (side.open, self.malformed) = (true, 0);
                let mut words = rest.splitn(3, |b| *b == b' ');
                let number = words.next().filter(|n| !n.is_empty() && n.len() < 20 && n.iter().all(u8::is_ascii_digit));
                let is_fetch = words.next().is_some_and(|w| w.eq_ignore_ascii_case(b"FETCH"));
                side.fetched = number.filter(|_| is_fetch).map(<[u8]>::to_vec);
                side.tx = oldest;
                if let Some(tx) = oldest.and_then(|id| turn.tx(id)) {
                    tx.content.line(text);
                    tx.touch(TC);
                    return Outcome::More;
                }
                // The greeting, or an unsolicited update.
                let mut exchange = Exchange { window, ..Exchange::default() };
                match status(rest) {
                    Some(status) => exchange.status = Some((status, rest.to_vec())),
                    None => exchange.line(text),
                }
                side.tx = Some(turn.one_way(TC, exchange).base.id);
            }
            [b'+', ..] => {
                self.malformed = 0;
                if let Some((_, from)) = self.asked.take_if(|a| Some(a.0) == oldest) {
                    turn.settle(TS, from);
                }
                if let Some(tx) = oldest.and_then(|id| turn.tx(id)) {
                    tx.content.line(text);
                    tx.touch(TC);
                }
            }
            _ => {
                let Some((status, tag, rest)) = tag(text).and_then(|(t, r)| Some((status(r)?, t, r))) else {
                    self.malformed += 1;
                    let tx = turn.one_way(TC, Exchange { window, ..Exchange::default() });
                    tx.content.line(text);
                    tx.event(Event::MalformedResponse as u8);
                    return if self.malformed > MALFORMED_MAX { Outcome::Failed } else { Outcome::More };
                };
                self.malformed = 0;
                return self.ended(turn, status, tag, rest, whole);
            }
        }
        Outcome::More
    }

    /// Handles the final response to the command with this tag.
    fn ended(
        &mut self,
        turn: &mut Turn<'_, '_, Exchange>,
        status: &'static str,
        tag: &[u8],
        text: &[u8],
        whole: bool,
    ) -> Outcome {
        let at = self.pending.iter().position(|p| p.0 == tag);
        let Some((at, (_, id))) = at.and_then(|at| Some((at, self.pending.remove(at)?))) else {
            let status = Some((status, text.to_vec()));
            let window = turn.cx.config.smtp.file_window();
            let tx = turn.one_way(TC, Exchange { status, window, ..Exchange::default() });
            tx.event(Event::UnsolicitedResponse as u8);
            return Outcome::More;
        };
        let refused = self.asked.take_if(|a| a.0 == id).filter(|_| status != "OK");
        if let Some((_, from)) = refused {
            self.refused(turn, at, from);
        }
        let is_sent = self.sides[0].tx != Some(id);
        self.authentication = self.authentication.filter(|a| *a != id);
        let holds = self.hold == Some(id);
        self.hold = self.hold.filter(|_| !holds);
        let Some(tx) = turn.tx(id) else {
            return if holds || refused.is_some() { Outcome::Resume } else { Outcome::More };
        };
        let is_tls = tx.content.command.as_ref().is_some_and(|c| c.is("STARTTLS"));
        tx.content.status = Some((status, text.to_vec()));
        tx.content.compressed = holds && !is_tls && status == "OK";
        let is_compressed = tx.content.compressed;
        if is_sent {
            tx.finish(TS);
        }
        tx.finish(TC);
        match (holds, status == "OK" && whole) {
            (false, _) if refused.is_some() => Outcome::Resume,
            (false, _) => Outcome::More,
            (true, true) if is_tls => Outcome::Change(turn.cx.config.declared.secured()),
            // The stream is compressed from here on (RFC 4978).
            (true, true) if is_compressed => Outcome::Done,
            (true, _) => Outcome::Resume,
        }
    }
}

impl Imap {
    /// The server did not consent to a literal: it reads the bytes from the client's offset `from` on as commands. Those that
    /// were parsed from them come again; they are the pending ones from `at` on.
    fn refused(&mut self, turn: &mut Turn<'_, '_, Exchange>, at: usize, from: u64) {
        let back = turn.take_back(TS, from);
        let side = &mut self.sides[0];
        let literal = side.literal.take();
        side.close();
        // If the bytes are gone, the next line is a command.
        side.within = back.is_none();
        if let Some(literal) = literal {
            self.end_mail(turn, TS, literal, true);
        }
        for (_, id) in self.pending.drain(at..) {
            if let Some(tx) = turn.tx(id) {
                tx.finish(TS);
                tx.finish(TC);
            }
        }
        (self.authentication, self.hold, self.idle) = (None, None, false);
    }
}

/// Returns the handling of a client's literal, and its transaction.
fn for_server(turn: &mut Turn<'_, '_, Exchange>, id: Option<u64>) -> (Kind, Option<u64>) {
    let Some(tx) = id.and_then(|id| turn.tx(id)) else { return (Kind::Skip, None) };
    let Some(command) = tx.content.command.as_ref() else { return (Kind::Skip, None) };
    if !command.takes_mail() {
        return (Kind::Argument, id);
    }
    let is_first = tx.content.mail.is_none();
    let again = Command::again(command);
    let Some(mail) = Mail::new(&turn.cx.config.smtp) else { return (Kind::Skip, None) };
    if is_first {
        if let Some(tx) = id.and_then(|id| turn.tx(id)) {
            tx.content.mail = Some(mail);
        }
        return (Kind::Mail, id);
    }
    // One command may append several mails (RFC 3502).
    let window = turn.cx.config.smtp.file_window();
    let tx = turn.open(Exchange { command: Some(again), mail: Some(mail), window, ..Exchange::default() });
    tx.only(TS);
    (Kind::Mail, Some(tx.base.id))
}

/// Returns the handling of a server's literal, and its transaction. Each mail has one of its own.
fn from_server(turn: &mut Turn<'_, '_, Exchange>, side: &Side, before: &[u8]) -> (Kind, Option<u64>) {
    let number = side.fetched.clone().filter(|_| is_mail(before));
    let (Some(number), Some(mail)) = (number, Mail::new(&turn.cx.config.smtp)) else { return (Kind::Skip, None) };
    let of = side.tx.and_then(|id| turn.tx(id)).and_then(|t| t.content.command.as_ref());
    let command = of.map(Command::again);
    let window = turn.cx.config.smtp.file_window();
    let fetched = Some(number);
    let tx = turn.open(Exchange { command, fetched, mail: Some(mail), window, ..Exchange::default() });
    tx.only(TC);
    (Kind::Mail, Some(tx.base.id))
}

#[cfg(test)]
mod tests;
