//! Reads messages from a stream.
//!
//! NetBIOS frames records; a record of SMB2 has one or more messages. The parser waits for a complete message, up to
//! [`WHOLE_MAX`] bytes, except for reads and writes of files, whose bytes it consumes as they arrive. If a gap ends inside a
//! record with a known length, the parser skips the rest of the record. Otherwise it searches for a header after the gap.

use margay_flow::Direction;
use margay_packet::KeyedMap;

use crate::cache::{Cache, Holds};
use crate::file::Files;
use crate::file::track::{Budget, FileCx, Odd, Place};
use crate::parser::{Outcome, Parse, Parsed, Parser, Shared};
use crate::proto::AppProto;
use crate::tx::{Transaction, TxBase};
use crate::tx_list::{TxList, transactions_in_list};

use super::events::Event;
use super::pipe::Pipe;
use super::tx::{FileAccess, FileId, SmbTx, What};
use super::{COMPLETE, frame};

/// The longest message that is buffered as a whole; a longer one is skipped (`record_overflow`).
const WHOLE_MAX: u64 = 1 << 20;
/// The most transactions that one message can create: it may carry messages of DCE/RPC.
const MESSAGE_TXS: usize = 1100;
/// Length of the record header.
const LENGTH: usize = 4;
/// Length of the transform header of an encrypted message (MS-SMB2 section 2.2.41).
const TRANSFORM: usize = 52;

/// A read or a write that waits for its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub id: FileId,
    pub offset: u64,
    pub session: u64,
    pub tree: u32,
    /// The transaction of a write.
    pub tx: Option<u64>,
    /// The requested length.
    pub length: u32,
}

/// A connection to a share.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub name: Vec<u8>,
    pub pipe: bool,
}

impl Holds for Access {}

impl Holds for FileId {}

impl Holds for Tree {
    fn holds(&self) -> usize {
        self.name.capacity()
    }
}

/// File data that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    /// Its transaction.
    pub tx: Option<u64>,
    /// File offset of the next byte.
    pub offset: u64,
    /// Bytes left, and bytes of the message after them.
    pub left: u64,
    pub behind: u64,
    /// The handling of the data, known after its first bytes.
    pub place: Option<Place>,
}

/// The position in a direction.
#[derive(Debug, Default)]
pub(super) enum State {
    /// At a record header.
    #[default]
    Length,
    /// At a message within a record.
    Message,
    /// In skipped bytes.
    Skip(u64),
    /// This many bytes before file data, and then in it.
    Data(u64, Data),
    /// In skipped bytes, with an unknown record boundary after them.
    Lost(u64),
    /// In the rest of a record that is not SMB; the parser gives up at its end.
    Alien(u64),
}

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub state: State,
    /// Bytes left of the record.
    pub left: u64,
    /// Unconsumed bytes.
    waiting: usize,
    /// Session and tree of the previous message in a chain, and the file that it opened.
    pub chain: (u64, u32, Option<FileId>),
}

/// The result of a parsing step.
pub(super) enum Step {
    /// This many bytes were consumed. With 0, the state has changed.
    Used(usize),
    /// More data is needed.
    More,
}

/// The parser of a flow.
#[derive(Debug, Default)]
pub(super) struct SmbParser {
    txs: TxList<SmbTx>,
    /// All transactions before this one are complete.
    oldest: u64,
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
    /// Whether a direction sent anything.
    spoke: [bool; 2],
    /// Too many transactions wait for a side that is not seen, or the data is not SMB: the parser gives up.
    stuck: bool,
    budgets: [Budget; 2],
}

impl SmbParser {
    pub(super) fn get(&mut self, id: u64) -> Option<&mut SmbTx> {
        self.txs.get_mut(id)
    }

    pub(super) fn peek(&self, id: u64) -> Option<&SmbTx> {
        self.txs.get(id)
    }

    pub(super) const fn side(&mut self, dir: Direction) -> &mut Side {
        let [client, server] = &mut self.sides;
        match dir {
            Direction::ToServer => client,
            Direction::ToClient => server,
        }
    }

    /// Creates a transaction; `None` if there are too many.
    pub(super) fn make(&mut self, cx: &mut Parse<'_>, mut tx: SmbTx) -> Option<u64> {
        let most = (cx.config.smb.max_tx as usize).max(1);
        if self.txs.len() >= most {
            cx.shared.counters.tx_limit(AppProto::Smb);
            // With this many transactions, the parser reads no further message.
            if self.txs.len() >= most.saturating_mul(2).saturating_add(MESSAGE_TXS) {
                return None;
            }
            // End the oldest transaction. It is freed once it is inspected.
            let oldest = self.txs.first_incomplete(self.oldest, [COMPLETE; 2]);
            self.oldest = oldest;
            if let Some(tx) = self.get(oldest) {
                tx.event(Event::TooManyTransactions);
                self.finish(cx, oldest);
            }
            // Only one side is seen, so none of them will be answered. As in Suricata 8, the parser gives up.
            if self.spoke != [true; 2] {
                self.stuck = true;
                return None;
            }
        }
        tx.dialect.clone_from(&self.dialect);
        Some(self.txs.push(|id| {
            tx.base = TxBase { id, ..TxBase::default() };
            tx
        }))
    }

    /// Adds an event to a transaction, or to a new one.
    pub(super) fn report(&mut self, cx: &mut Parse<'_>, dir: Direction, version: u8, id: Option<u64>, event: Event) {
        let id = match id {
            Some(id) => Some(id),
            None => {
                // This command number is not assigned.
                let command = if version == 1 { 0xfe } else { 0xffff };
                let id = self.make(cx, SmbTx { version, command, what: What::Odd, ..SmbTx::default() });
                if let Some(tx) = id.and_then(|id| self.get(id)) {
                    tx.base.one_sided(dir.reverse(), COMPLETE);
                    tx.base.advance(dir, COMPLETE);
                }
                id
            }
        };
        if let Some(tx) = id.and_then(|id| self.get(id)) {
            tx.event(event);
            tx.base.touch(dir);
        }
    }

    /// Completes the request of a transaction.
    pub(super) fn asked(&mut self, cx: &Parse<'_>, id: u64, answered_by: Option<(u8, u64)>) {
        if let Some(tx) = self.get(id) {
            tx.key = answered_by;
            tx.base.advance(Direction::ToServer, COMPLETE);
            match answered_by {
                Some(key) => {
                    self.requests.insert(cx.config.smb.max_session_cache_size, key, id);
                }
                None => tx.base.advance(Direction::ToClient, COMPLETE),
            }
        }
    }

    /// Completes the response of a transaction.
    pub(super) fn answered(&mut self, id: u64) {
        let dialect = std::mem::take(&mut self.dialect);
        if let Some(tx) = self.get(id) {
            tx.dialect.clone_from(&dialect);
            tx.base.advance(Direction::ToServer, COMPLETE);
            tx.base.advance(Direction::ToClient, COMPLETE);
        }
        self.dialect = dialect;
    }

    /// Calls a function with a file's transaction.
    fn with_file(
        &mut self,
        cx: &mut Parse<'_>,
        id: u64,
        f: impl FnOnce(&mut FileAccess, &mut FileCx<'_>, &mut Vec<Odd>),
    ) {
        let Some(tx) = self.txs.get_mut(id) else { return };
        let SmbTx { base: TxBase { files, .. }, what: What::File(file), .. } = tx else { return };
        let dir = file.dir;
        let [writes, reads] = &mut self.budgets;
        let budget = if dir == Direction::ToServer { writes } else { reads };
        let files: &mut Files = files;
        let mut odd = Vec::new();
        let limits = cx.config.smb.queue_limits(dir);
        let (engine, config) = (&mut cx.shared.files, &cx.config.files);
        f(file, &mut FileCx { engine, config, files, budget, dir, limits }, &mut odd);
        for o in odd {
            tx.event(Event::of(o, dir));
            // Rules on events are inspected with the next packet of either direction.
            tx.base.touch(dir.reverse());
        }
        tx.base.touch(dir);
    }

    /// Adds complete data to a file.
    pub(super) fn file_data(&mut self, cx: &mut Parse<'_>, id: u64, offset: u64, data: &[u8]) {
        self.with_file(cx, id, |file, f, odd| {
            let place = file.track.begin(f, offset, data.len() as u64, odd);
            file.track.data(f, place, offset, data);
        });
    }

    /// Stops parsing of a transaction.
    pub(super) fn finish(&mut self, cx: &mut Parse<'_>, id: u64) {
        self.with_file(cx, id, |file, f, _| {
            let mut track = std::mem::take(&mut file.track);
            track.finish(f);
        });
        if let Some(tx) = self.get(id) {
            let of = tx.file_mut().map(|f| (f.id, f.dir));
            tx.base.advance(Direction::ToServer, COMPLETE);
            tx.base.advance(Direction::ToClient, COMPLETE);
            if let Some(key) = of {
                self.open.remove(&key);
            }
        }
    }

    /// Ends a file's transactions. Its name is needed until the response: a read before the close may be answered after it.
    pub(super) fn close(&mut self, cx: &mut Parse<'_>, id: FileId) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.close_side(cx, id, dir);
        }
    }

    /// Ends a file's reads or writes.
    pub(super) fn close_side(&mut self, cx: &mut Parse<'_>, id: FileId, dir: Direction) {
        if let Some(tx) = self.open.remove(&(id, dir)) {
            self.finish(cx, tx);
        }
    }

    /// Closes a file for good.
    pub(super) fn closed(&mut self, cx: &mut Parse<'_>, id: FileId) {
        self.close(cx, id);
        self.names.remove(&id);
    }

    /// Replaces a placeholder by the file's identifier.
    pub(super) fn rename(&mut self, cx: &Parse<'_>, from: FileId, to: FileId) {
        if self.names.remove(&from).is_none() {
            return;
        }
        self.aliases.insert(cx.config.smb.max_guid_cache_size, from, to);
        for dir in [Direction::ToServer, Direction::ToClient] {
            if let Some(id) = self.open.remove(&(from, dir)) {
                self.open.insert((to, dir), id);
                if let Some(file) = self.get(id).and_then(SmbTx::file_mut) {
                    file.id = to;
                }
            }
        }
    }

    /// The transaction of a file's reads or writes, created if necessary.
    pub(super) fn file(&mut self, cx: &mut Parse<'_>, dir: Direction, seed: SmbTx, id: FileId) -> Option<u64> {
        if let Some(tx) = self.open.get(&(id, dir)) {
            return Some(*tx);
        }
        let share = self.trees.get(&(seed.session, seed.tree)).map(|t| t.name.clone()).unwrap_or_default();
        // As in Suricata, one kind of access to an unknown file has no name, in each version another one.
        let nameless = (seed.version == 1) == (dir == Direction::ToClient);
        let unknown: &[u8] = if nameless { b"" } else { b"<unknown>" };
        let name = self.names.get(&id).cloned().unwrap_or_else(|| unknown.to_vec());
        let access = FileAccess { name: name.clone(), share, id, dir, track: Default::default() };
        let tx = self.make(cx, SmbTx { what: What::File(Box::new(access)), ..seed })?;
        self.open.insert((id, dir), tx);
        if let Some(t) = self.txs.get_mut(tx) {
            t.base.files.open(&mut cx.shared.files, &cx.config.files, dir, &name, None);
            // Both sides belong to the transaction; rules inspect the file in this direction.
            t.base.touch(dir);
        }
        Some(tx)
    }

    /// Parses the front of `rest`, which begins at offset `at` of the parser's input.
    fn step(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8]) -> Step {
        let side = self.side(dir);
        match &mut side.state {
            State::Length => self.length(cx, dir, at, rest),
            State::Message => match side.left {
                0 => {
                    side.state = State::Length;
                    Step::Used(0)
                }
                left => self.message(cx, dir, at, rest, left),
            },
            State::Skip(0) => {
                side.state = State::Message;
                Step::Used(0)
            }
            State::Skip(n) => {
                let used = rest.len().min(usize::try_from(*n).unwrap_or(usize::MAX));
                *n -= used as u64;
                side.left = side.left.saturating_sub(used as u64);
                Step::Used(used)
            }
            State::Data(n @ 1.., _) => {
                let used = rest.len().min(usize::try_from(*n).unwrap_or(usize::MAX));
                *n -= used as u64;
                side.left = side.left.saturating_sub(used as u64);
                Step::Used(used)
            }
            State::Data(_, d) if d.left == 0 => {
                side.state = State::Skip(d.behind);
                Step::Used(0)
            }
            State::Data(_, d) => {
                let bytes = rest.get(..usize::try_from(d.left).unwrap_or(usize::MAX)).unwrap_or(rest);
                let was = *d;
                d.left -= bytes.len() as u64;
                d.offset = d.offset.saturating_add(bytes.len() as u64);
                side.left = side.left.saturating_sub(bytes.len() as u64);
                if let Some(tx) = was.tx {
                    let mut place = was.place;
                    self.with_file(cx, tx, |file, f, odd| {
                        let here = *place.get_or_insert_with(|| file.track.begin(f, was.offset, was.left, odd));
                        file.track.data(f, here, was.offset, bytes);
                    });
                    if let State::Data(_, d) = &mut self.side(dir).state {
                        d.place = place;
                    }
                }
                Step::Used(bytes.len())
            }
            State::Alien(0) => self.alien(dir),
            State::Alien(n) => {
                let used = rest.len().min(usize::try_from(*n).unwrap_or(usize::MAX));
                *n -= used as u64;
                side.left = side.left.saturating_sub(used as u64);
                Step::Used(used)
            }
            State::Lost(n @ 1..) => {
                let used = rest.len().min(usize::try_from(*n).unwrap_or(usize::MAX));
                *n -= used as u64;
                Step::Used(used)
            }
            State::Lost(_) => {
                let found = rest.windows(LENGTH + 4).position(|w| {
                    w.first() == Some(&0) && matches!(w.get(4), Some(0xfc..=0xff)) && w.get(5..) == Some(b"SMB")
                });
                match found {
                    Some(n) => {
                        side.state = State::Length;
                        Step::Used(n)
                    }
                    // The data may end with the beginning of a header.
                    None => match rest.len().saturating_sub(LENGTH + 3) {
                        0 => Step::More,
                        n => Step::Used(n),
                    },
                }
            }
        }
    }

    /// Reads a record's length (RFC 1002 section 4.3.1; MS-SMB2 section 2.1 uses all 24 bits).
    fn length(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8]) -> Step {
        let Some(&[kind, a, b, c]) = rest.first_chunk::<LENGTH>() else { return Step::More };
        let len = u32::from_be_bytes([0, a, b, c]);
        let frames = &mut cx.shared.frames;
        let (body, end) = ((at + LENGTH) as u64, (at + LENGTH) as u64 + u64::from(len));
        frames.begin(dir, frame::NBSS, at, None);
        frames.end(dir, end);
        frames.begin(dir, frame::NBSS + 1, at, None);
        frames.end(dir, body);
        if len > 0 {
            frames.begin(dir, frame::NBSS + 2, at + LENGTH, None);
            frames.end(dir, end);
        }
        let side = self.side(dir);
        side.left = u64::from(len);
        side.chain = (0, 0, None);
        // Only session messages carry SMB; other records, also of unknown types, are skipped by their length.
        side.state = if kind == 0 { State::Message } else { State::Skip(u64::from(len)) };
        Step::Used(LENGTH)
    }

    fn message(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8], left: u64) -> Step {
        // The data after the record is not part of it.
        let rest = rest.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(rest);
        let whole = rest.len() as u64 == left;
        let Some(magic) = rest.first_chunk::<4>() else {
            if !whole {
                return Step::More;
            }
            return self.alien(dir);
        };
        match magic {
            b"\xffSMB" => self.smb1(cx, dir, at, rest, whole),
            b"\xfeSMB" => self.smb2(cx, dir, at, rest, whole),
            b"\xfdSMB" | b"\xfcSMB" => {
                mark(cx, dir, frame::SMB3, at, TRANSFORM, left, None);
                self.side(dir).state = State::Skip(left);
                Step::Used(0)
            }
            [_, b'S', b'M', b'B'] => {
                self.side(dir).state = State::Skip(left);
                Step::Used(0)
            }
            // A wrong length makes the other side's messages no less readable, so the parser waits for the record's end.
            _ => {
                self.side(dir).state = State::Alien(left);
                Step::Used(0)
            }
        }
    }

    /// Gives up on a flow that does not continue as SMB. As in Suricata, the event belongs to the last transaction.
    fn alien(&mut self, dir: Direction) -> Step {
        self.stuck = true;
        let last = self.txs.range().end.saturating_sub(1);
        if let Some(tx) = self.get(last) {
            tx.event(Event::MalformedData);
            tx.base.touch(dir);
        }
        Step::More
    }

    /// Skips a message that is too long to buffer.
    pub(super) fn pass_over(&mut self, cx: &mut Parse<'_>, dir: Direction, version: u8, len: u64) -> Step {
        self.report(cx, dir, version, None, Event::RecordOverflow);
        self.side(dir).state = State::Skip(len);
        Step::Used(0)
    }

    /// Consumes `len` bytes of a message.
    pub(super) fn used(&mut self, dir: Direction, len: usize) -> Step {
        let side = self.side(dir);
        side.left = side.left.saturating_sub(len as u64);
        Step::Used(len)
    }

    /// Whether a message is too long to wait for.
    pub(super) const fn too_long(len: u64) -> bool {
        len > WHOLE_MAX
    }
}

/// Marks a message of `len` bytes and its parts; `kind` is the frame type of the message.
pub(super) fn mark(cx: &mut Parse<'_>, dir: Direction, kind: u8, at: usize, header: usize, len: u64, tx: Option<u64>) {
    let frames = &mut cx.shared.frames;
    if !frames.wanted {
        return;
    }
    let end = at as u64 + len;
    let body = (at as u64 + header as u64).min(end);
    frames.begin(dir, kind, at, tx);
    frames.end(dir, end);
    frames.begin(dir, kind + 1, at, tx);
    frames.end(dir, body);
    if len > header as u64 {
        frames.begin(dir, kind + 2, at + header, tx);
        frames.end(dir, end);
    }
}

impl Parser for SmbParser {
    fn proto(&self) -> AppProto {
        AppProto::Smb
    }

    // Messages are many and small, so the stream is inspected in chunks.
    fn is_prompt(&self) -> bool {
        false
    }

    fn data(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Parsed {
        cx.shared.wishes.stream_depth = Some(cx.config.smb.stream_depth);
        if !data.is_empty() {
            self.spoke[dir.index()] = true;
        }
        let (mut at, mut outcome) = (0, Outcome::More);
        // A step without progress changes the state; the next step then consumes data or needs more.
        loop {
            let rest = data.get(at..).unwrap_or(&[]);
            let ready = match self.side(dir).state {
                State::Message => self.side(dir).left == 0,
                State::Skip(n) => n == 0,
                State::Data(n, d) => n == 0 && d.left == 0,
                State::Alien(n) => n == 0,
                State::Length | State::Lost(_) => false,
            };
            if rest.is_empty() && !ready {
                break;
            }
            if matches!(self.side(dir).state, State::Message) && self.is_full(cx) {
                outcome = Outcome::Full;
                break;
            }
            match self.step(cx, dir, at, rest) {
                Step::Used(n) => at += n,
                Step::More if !self.stuck => break,
                Step::More => {}
            }
            if self.stuck {
                return Parsed { consumed: at.min(data.len()), outcome: Outcome::Failed };
            }
        }
        let side = self.side(dir);
        side.waiting = data.len().saturating_sub(at);
        if cx.end && outcome == Outcome::More {
            at = data.len();
            side.waiting = 0;
        }
        Parsed { consumed: at.min(data.len()), outcome }
    }

    fn gap(&mut self, cx: &mut Parse<'_>, dir: Direction, len: u64) -> Outcome {
        let side = self.side(dir);
        let waiting = side.waiting as u64;
        let lost = State::Lost(waiting);
        match &mut side.state {
            State::Lost(n) => *n = (*n).max(waiting),
            // The waiting bytes come again. They are skipped with the rest of their record.
            State::Length => side.state = lost,
            _ if len.saturating_add(waiting) > side.left => {
                let gone = std::mem::replace(&mut side.state, lost);
                if let State::Data(skip, mut d) = gone {
                    self.data_gap(cx, &mut d, len.saturating_sub(skip));
                }
            }
            State::Message => {
                side.left -= len;
                side.state = State::Skip(side.left);
            }
            State::Alien(n) => {
                side.left -= len;
                *n = n.saturating_sub(len);
            }
            State::Skip(n) => {
                side.left -= len;
                match n.checked_sub(len) {
                    Some(left) => *n = left,
                    None => side.state = State::Skip(side.left),
                }
            }
            State::Data(skip, d) => {
                side.left -= len;
                let here = len.saturating_sub(*skip);
                *skip = skip.saturating_sub(len);
                let mut d = *d;
                let within = here <= d.left;
                self.data_gap(cx, &mut d, here);
                let side = self.side(dir);
                match &mut side.state {
                    State::Data(_, now) if within => *now = d,
                    state => *state = State::Skip(side.left),
                }
            }
        }
        Outcome::More
    }

    fn memory(&mut self) -> u64 {
        let own = self.requests.memory()
            + self.accesses.memory()
            + self.trees.memory()
            + self.names.memory()
            + self.aliases.memory()
            + self.pipes.memory()
            + self.open.capacity() * size_of::<((FileId, Direction), u64)>();
        self.txs.memory() + own as u64
    }

    transactions_in_list!();

    fn free_tx(&mut self, _shared: &mut Shared, id: u64) {
        let Some(mut tx) = self.txs.remove(id) else { return };
        if let Some(key) = tx.key
            && self.requests.get(&key) == Some(&id)
        {
            self.requests.remove(&key);
        }
        if let Some(file) = tx.file_mut() {
            let [writes, reads] = &mut self.budgets;
            file.track.discard(if file.dir == Direction::ToServer { writes } else { reads });
            let key = (file.id, file.dir);
            if self.open.get(&key) == Some(&id) {
                self.open.remove(&key);
            }
        }
    }
}

impl SmbParser {
    /// Whether complete transactions have to be freed before the parser can continue.
    fn is_full(&self, cx: &Parse<'_>) -> bool {
        self.txs.len() >= (cx.config.smb.max_tx as usize).max(1).saturating_mul(2)
    }

    /// Handles a gap in file data.
    fn data_gap(&mut self, cx: &mut Parse<'_>, d: &mut Data, len: u64) {
        let len = len.min(d.left);
        if len == 0 {
            return;
        }
        let was = *d;
        d.left -= len;
        d.offset = d.offset.saturating_add(len);
        if let Some(tx) = was.tx {
            let mut place = was.place;
            self.with_file(cx, tx, |file, f, odd| {
                let here = *place.get_or_insert_with(|| file.track.begin(f, was.offset, was.left, odd));
                place = Some(file.track.gap(f, here, was.offset, len, was.left - len));
            });
            d.place = place;
        }
    }
}
