//! Frames records and messages, and stores the state of a flow.
//!
//! NetBIOS frames records; a record of SMB2 has one or more messages. The parser waits for a complete message, up to
//! [`WHOLE_MAX`] bytes. Of a file's read or write it waits for the head only, and the data arrives as a body ([`super::files`]).

use margay_flow::{Direction, FlowCore};
use margay_packet::KeyedMap;

use crate::cache::{Cache, Holds};
use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Limit, Piece, Resume, Tx};
use crate::file::track::Budget;
use crate::parser::{Outcome, Parse, Shared};
use crate::proto::AppProto;

use super::events::Event;
use super::files::{Access, Data, Transfer};
use super::frame;
use super::header::{Smb1, Smb2};
use super::pipe::Pipe;
use super::tx::{FileId, SmbTx, What, complete, event};

pub(super) type Turn<'a, 'b> = crate::conversation::Turn<'a, 'b, SmbTx>;

/// The longest message that is buffered as a whole; a longer one is skipped (`record_overflow`).
const WHOLE_MAX: u64 = 1 << 20;
/// Length of the record header.
const LENGTH: usize = 4;
/// Length of the magic at the beginning of a message.
const MAGIC: usize = 4;
/// Length of the transform header of an encrypted message (MS-SMB2 section 2.2.41).
const TRANSFORM: usize = 52;

/// A connection to a share.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub name: Vec<u8>,
    pub pipe: bool,
}

impl Holds for Tree {
    fn holds(&self) -> usize {
        self.name.capacity()
    }
}

/// How a message is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Reading {
    /// It is the header of a record.
    #[default]
    Record,
    /// More of it is needed to decide.
    More,
    /// As a whole.
    Whole,
    /// Its head, before file data.
    Transfer(Transfer),
    /// It is encrypted or compressed, and skipped.
    Sealed,
    /// It is skipped, with an event.
    Skipped(Event),
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The record carries SMB.
    is_session: bool,
    /// The next message, and its length.
    reading: Reading,
    pub len: u64,
    /// Session and tree of the previous message in a chain, and the file that it opened.
    pub chain: (u64, u32, Option<FileId>),
    /// File data that is being received, and bytes of the message after it.
    pub data: Option<Data>,
    pub behind: u64,
    /// A record was not SMB.
    is_alien: bool,
}

/// The parser's state of a flow.
#[derive(Debug, Default)]
pub(super) struct Smb {
    max_txs: usize,
    pub sides: [Side; 2],
    /// The negotiated dialect, as far as it is known.
    pub dialect: String,
    /// The negotiated maximum of a read and of a write.
    pub sizes: Option<(u32, u32)>,
    /// Transactions that wait for a response, by version and message number.
    pub requests: Cache<(u8, u64), u64>,
    /// Reads and writes that wait for a response, by version and message number.
    pub accesses: Cache<(u8, u64), Access>,
    /// Trees, by session and tree identifier.
    pub trees: Cache<(u64, u32), Tree>,
    /// Names of open files.
    pub names: Cache<FileId, Vec<u8>>,
    /// The final identifiers of files that were opened under a placeholder.
    pub aliases: Cache<FileId, FileId>,
    /// The transactions of files, by direction of the data.
    pub open: KeyedMap<(FileId, Direction), u64>,
    pub pipes: Cache<FileId, Pipe>,
    /// The transaction of the last negotiation.
    pub negotiation_tx: Option<u64>,
    pub budgets: [Budget; 2],
}

impl Conversation for Smb {
    type Tx = SmbTx;
    const PROTO: AppProto = AppProto::Smb;
    /// Messages are many and small, so the stream is inspected in chunks.
    const PROMPT: bool = false;
    const RESUMES: bool = true;
    /// A message may carry many calls of DCE/RPC.
    const LIMIT: Limit = Limit::EndAtOpen;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        Smb { max_txs: config.smb.max_tx as usize, ..Smb::default() }
    }

    fn arrives(&mut self, turn: &mut Turn<'_, '_>, _dir: Direction) {
        turn.cx.shared.wishes.stream_depth = Some(turn.cx.config.smb.stream_depth);
    }

    /// Reads a record's length (RFC 1002 section 4.3.1; MS-SMB2 section 2.1 uses all 24 bits).
    fn framing(&mut self, dir: Direction, data: &[u8], _end: bool) -> Framing {
        let side = self.side(dir);
        side.reading = Reading::Record;
        match data.first_chunk::<LENGTH>() {
            Some(&[_, a, b, c]) if !side.is_alien => {
                Framing::Record(LENGTH, u64::from(u32::from_be_bytes([0, a, b, c])))
            }
            _ => Framing::More,
        }
    }

    fn framing_within(&mut self, dir: Direction, data: &[u8], left: u64, end: bool) -> Framing {
        let side = self.side(dir);
        if !side.is_session {
            return Framing::Pass(left);
        }
        if side.behind > 0 {
            return Framing::Pass(std::mem::take(&mut side.behind));
        }
        let (len, header, reading) = match data.first_chunk::<MAGIC>() {
            None if (data.len() as u64) < left => return Framing::More,
            Some(b"\xffSMB") => (left, Smb1::LEN, self.reading1(dir, data, left)),
            Some(b"\xfeSMB") => {
                let (len, reading) = self.reading2(dir, data, left);
                (len, Smb2::LEN, reading)
            }
            Some(b"\xfdSMB" | b"\xfcSMB") => (left, MAGIC, Reading::Sealed),
            Some([_, b'S', b'M', b'B']) => return Framing::Pass(left),
            // A wrong length makes the other side's messages no less readable, so the parser waits for the record's end.
            _ => return Framing::Body(0, left),
        };
        let reading = match reading {
            Reading::Whole if len > WHOLE_MAX => Reading::Skipped(Event::RecordOverflow),
            reading => reading,
        };
        let side = self.side(dir);
        (side.reading, side.len) = (reading, len);
        match (reading, usize::try_from(len).unwrap_or(usize::MAX)) {
            (Reading::Whole, len) if len <= data.len() || !end => Framing::Message(len),
            (Reading::Transfer(t), _) => Framing::Head(t.head, t.start - t.head as u64),
            (Reading::Sealed | Reading::Skipped(_), _) => Framing::Head(header, len - header as u64),
            _ => Framing::More,
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, message: &[u8]) -> Outcome {
        let side = &self.sides[dir.index()];
        match (side.reading, message.first()) {
            (Reading::Record, _) => self.record(turn, dir, message),
            (Reading::Sealed, _) => mark(turn, dir, frame::SMB3, TRANSFORM, side.len, None),
            (reading, Some(0xff)) => self.message1(turn, dir, message, reading),
            (reading, _) => self.message2(turn, dir, message, reading),
        }
        Outcome::More
    }

    fn body(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        match self.sides[dir.index()].data {
            Some(data) => self.receive(turn, dir, data, piece, left),
            None => self.side(dir).is_alien = left == 0,
        }
        Outcome::More
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        let begins = |w: &[u8]| {
            w.first() == Some(&0) && matches!(w.get(LENGTH), Some(0xfc..=0xff)) && w.get(LENGTH + 1..) == Some(b"SMB")
        };
        Resume::search(data, LENGTH + MAGIC, begins)
    }

    fn gap(&mut self, _turn: &mut Turn<'_, '_>, dir: Direction, _len: u64) -> Outcome {
        *self.side(dir) = Side::default();
        Outcome::More
    }

    /// Gives up on a flow that does not continue as SMB. As in Suricata, the event belongs to the last transaction.
    fn handled(&mut self, turn: &mut Turn<'_, '_>, dir: Direction) -> Outcome {
        if !self.sides[dir.index()].is_alien {
            return Outcome::More;
        }
        if let Some(tx) = turn.latest() {
            event(tx, Event::MalformedData);
            tx.touch(dir);
        }
        Outcome::Failed
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn overflows(&mut self, cx: &mut Parse<'_>, tx: &mut Tx<SmbTx>) {
        event(tx, Event::TooManyTransactions);
        self.finish(cx, tx);
    }

    fn freed(&mut self, _shared: &mut Shared, tx: &mut Tx<SmbTx>) {
        let id = tx.base.id;
        if let Some(key) = tx.content.key
            && self.requests.get(&key) == Some(&id)
        {
            self.requests.remove(&key);
        }
        if let Some(file) = tx.content.file_mut() {
            file.track.discard(&mut self.budgets[file.dir.index()]);
            let key = (file.id, file.dir);
            if self.open.get(&key) == Some(&id) {
                self.open.remove(&key);
            }
        }
    }

    fn held(&self) -> u64 {
        let caches = self.requests.memory()
            + self.accesses.memory()
            + self.trees.memory()
            + self.names.memory()
            + self.aliases.memory()
            + self.pipes.memory();
        (caches + self.open.capacity() * size_of::<((FileId, Direction), u64)>()) as u64
    }
}

impl Smb {
    pub(super) fn side(&mut self, dir: Direction) -> &mut Side {
        &mut self.sides[dir.index()]
    }

    /// Begins a record.
    fn record(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, header: &[u8]) {
        let Some(&[kind, a, b, c]) = header.first_chunk::<LENGTH>() else { return };
        let len = LENGTH as u64 + u64::from(u32::from_be_bytes([0, a, b, c]));
        mark(turn, dir, frame::NBSS, LENGTH, len, None);
        // Only session messages carry SMB; other records, also of unknown types, are skipped by their length.
        *self.side(dir) = Side { is_session: kind == 0, ..Side::default() };
    }

    /// Creates a transaction; `None` if there are too many.
    pub(super) fn make(&mut self, turn: &mut Turn<'_, '_>, content: SmbTx) -> Option<u64> {
        let tx = turn.open_within(self, content)?;
        tx.content.dialect.clone_from(&self.dialect);
        Some(tx.base.id)
    }

    /// Adds an event to a transaction, or to a new one.
    pub(super) fn report(
        &mut self,
        turn: &mut Turn<'_, '_>,
        dir: Direction,
        version: u8,
        id: Option<u64>,
        what: Event,
    ) {
        let id = id.or_else(|| {
            // This command number is not assigned.
            let command = if version == 1 { 0xfe } else { 0xffff };
            let id = self.make(turn, SmbTx { version, command, what: What::Odd, ..SmbTx::default() })?;
            turn.tx(id)?.finish_one_way(dir);
            Some(id)
        });
        if let Some(tx) = id.and_then(|id| turn.tx(id)) {
            event(tx, what);
            tx.touch(dir);
        }
    }

    /// Completes the request of a transaction.
    pub(super) fn asked(&mut self, turn: &mut Turn<'_, '_>, id: u64, answered_by: Option<(u8, u64)>) {
        let most = turn.cx.config.smb.max_session_cache_size;
        let Some(tx) = turn.tx(id) else { return };
        tx.content.key = answered_by;
        tx.finish(Direction::ToServer);
        match answered_by {
            Some(key) => {
                self.requests.insert(most, key, id);
            }
            None => tx.finish(Direction::ToClient),
        }
    }

    /// Completes the response of a transaction.
    pub(super) fn answered(&self, turn: &mut Turn<'_, '_>, id: u64) {
        if let Some(tx) = turn.tx(id) {
            tx.content.dialect.clone_from(&self.dialect);
            complete(tx);
        }
    }
}

/// Marks a message of `len` bytes and its parts; `kind` is the frame type of the message.
pub(super) fn mark(turn: &mut Turn<'_, '_>, dir: Direction, kind: u8, header: usize, len: u64, tx: Option<u64>) {
    if !turn.cx.shared.frames.wanted {
        return;
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let parts = [(0, 0, len), (1, 0, header.min(len)), (2, header, len)];
    for (part, from, to) in parts.into_iter().filter(|(_, from, _)| *from < len) {
        turn.begin_frame(dir, kind + part, from, tx);
        turn.end_frame(dir, to);
    }
}
