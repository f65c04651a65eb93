//! Records of a stream, calls and replies, and file data.
//!
//! Over TCP, a message is a record of one or more fragments (RFC 5531 section 11). The parser waits for the first [`WHOLE`]
//! bytes of a long one. The rest, and fragments of a record that has several, arrive as bodies: file data goes to the file, and
//! the rest of other long messages is ignored.

use margay_flow::{Direction, FlowCore};
use margay_packet::KeyedMap;

use super::calls::{self, Args, Chunk, v2, v3};
use super::compound;
use super::events::Event;
use super::frames;
use super::rpc::{Auth, Call, Reply, Rpc};
use super::tx::{Exchange, Transfer};
use super::xdr::Xdr;
use super::{MAX_READ_QUEUE_CNT, MAX_READ_QUEUE_SIZE, MAX_TX, MAX_WRITE_QUEUE_CNT, MAX_WRITE_QUEUE_SIZE};
use crate::bytes::be32;
use crate::cache::{Cache, Holds};
use crate::config::AppConfig;
use crate::conversation::{Conversation, Framing, Piece, Resume, Turn, Tx};
use crate::file::track::{Budget, FileCx, Odd, Place};
use crate::parser::{Outcome, Shared};
use crate::proto::AppProto;
use crate::tx::TxBase;

/// The limit of message data that the parser waits for.
const WHOLE: usize = 64 << 10;
/// Length of a record mark.
const MARK: usize = 4;
/// The data needed to recognise a message after a gap.
const TELLING: usize = 24;
/// The longest message that is accepted after a gap.
const RECORD_MAX: usize = 4 << 20;
/// The limit of handles in a flow whose names are kept; the oldest are evicted.
const NAMES_MAX: u32 = 1024;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// A call that waits for its reply.
#[derive(Debug)]
struct Pending {
    /// Its transaction; reads get theirs with the data.
    tx: Option<u64>,
    version: u32,
    procedure: u32,
    auth: Auth,
    handle: Box<[u8]>,
    name: Box<[u8]>,
    offset: u64,
}

impl Holds for Pending {
    fn holds(&self) -> usize {
        self.handle.len() + self.name.len() + self.auth.held()
    }
}

/// File data that is being received.
#[derive(Debug, Clone, Copy)]
struct Data {
    tx: u64,
    /// File offset of the next byte.
    offset: u64,
    /// Bytes left.
    left: u64,
    place: Place,
    /// The file ends with them.
    end: bool,
    /// As [`Chunk::synced`].
    synced: bool,
    xid: u32,
}

/// The position in a record.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// Its beginning is being reassembled.
    #[default]
    Head,
    /// In file data.
    Data(Data),
    /// In skipped data.
    Skip,
}

/// The state of one direction of a stream.
#[derive(Debug, Default)]
struct Side {
    /// A record with several fragments has begun.
    begun: bool,
    /// The current fragment is the record's last one.
    last: bool,
    state: State,
    /// The beginning of a record with several fragments.
    parts: Vec<u8>,
}

impl Side {
    /// Ends a fragment, and the record with its last one.
    fn fragment_end(&mut self) {
        if self.last {
            *self = Side::default();
        }
    }
}

/// A record mark: whether it begins the record's last fragment, and the length of the fragment.
fn mark(data: &[u8]) -> Option<(bool, usize)> {
    be32(data, 0).map(|mark| (mark >> 31 != 0, (mark & 0x7fff_ffff) as usize))
}

/// The parser's state of a flow.
#[derive(Debug)]
pub(super) struct Nfs {
    max_txs: usize,
    /// The limits of waiting bytes and chunks, by direction of the data.
    limits: [(usize, u32); 2],
    calls: Cache<u32, Pending>,
    /// File names by handle.
    names: Cache<Vec<u8>, Vec<u8>>,
    /// Transactions of files, by direction of the data.
    open: KeyedMap<(Direction, Box<[u8]>), u64>,
    budgets: [Budget; 2],
    sides: [Side; 2],
}

impl Conversation for Nfs {
    type Tx = Exchange;
    const PROTO: AppProto = AppProto::Nfs;
    const TOO_MANY: Option<u8> = Some(Event::TooManyTransactions as u8);
    const RESUMES: bool = true;

    fn new(config: &AppConfig, _flow: &FlowCore) -> Self {
        let setting = |place| config.settings.get(AppProto::Nfs, place);
        let limits = |size, count| {
            let size = usize::try_from(setting(size)).unwrap_or(usize::MAX);
            (size, u32::try_from(setting(count)).unwrap_or(u32::MAX))
        };
        Nfs {
            max_txs: (setting(MAX_TX) as usize).max(1),
            limits: [
                limits(MAX_WRITE_QUEUE_SIZE, MAX_WRITE_QUEUE_CNT),
                limits(MAX_READ_QUEUE_SIZE, MAX_READ_QUEUE_CNT),
            ],
            calls: Cache::default(),
            names: Cache::default(),
            open: KeyedMap::default(),
            budgets: [Budget::default(); 2],
            sides: [Side::default(), Side::default()],
        }
    }

    fn framing(&mut self, dir: Direction, data: &[u8], _end: bool) -> Framing {
        match mark(data) {
            None => Framing::More,
            Some((last, len)) if self.sides[dir.index()].begun || !last => Framing::Body(MARK, len as u64),
            // Even a rejection is longer (RFC 5531 section 9).
            Some((_, len)) if len < 12 => Framing::Broken,
            Some((_, len)) => {
                let head = len.min(WHOLE);
                Framing::Body(MARK + head, (len - head) as u64)
            }
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, data: &[u8]) -> Outcome {
        if turn.cx.flow.proto != 6 {
            let (_, holds) = self.record(turn, dir, data, true, Some(0));
            return if holds { Outcome::More } else { Outcome::Failed };
        }
        let (Some((last, len)), Some(message)) = (mark(data), data.get(MARK..)) else { return Outcome::More };
        let side = &mut self.sides[dir.index()];
        side.last = last;
        if side.begun || !last {
            side.begun = true;
            if len == 0 {
                side.fragment_end();
            }
            return Outcome::More;
        }
        // The message may be longer, or the stream may end within it.
        let (next, _) = self.record(turn, dir, message, message.len() >= len, Some(MARK));
        if len > WHOLE {
            self.sides[dir.index()].state = next;
        }
        Outcome::More
    }

    fn body(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, piece: Piece<'_>, left: u64) -> Outcome {
        let side = &mut self.sides[dir.index()];
        let ends = side.last && left == 0;
        let next = match (side.state, piece) {
            (State::Data(d), Piece::Data(data)) => self.data(turn, d, data),
            (State::Data(d), Piece::Gap(len)) => self.data_gap(turn, d, len),
            (State::Head, Piece::Data(data)) => {
                let (own, rest) = data.split_at(data.len().min(WHOLE - side.parts.len()));
                side.parts.extend_from_slice(own);
                if side.parts.len() < WHOLE && !ends {
                    State::Head
                } else {
                    let parts = std::mem::take(&mut side.parts);
                    match self.record(turn, dir, &parts, ends && rest.is_empty(), None) {
                        (State::Data(d), _) if !rest.is_empty() => self.data(turn, d, rest),
                        (next, _) => next,
                    }
                }
            }
            (State::Head, Piece::Gap(_)) => {
                side.parts = Vec::new();
                State::Skip
            }
            (State::Skip, _) => State::Skip,
        };
        let side = &mut self.sides[dir.index()];
        side.state = next;
        if left == 0 {
            side.fragment_end();
        }
        Outcome::More
    }

    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        match data.windows(MARK + TELLING).position(|w| tells(w, &self.calls)) {
            Some(0) => Resume::Here,
            Some(at) => Resume::Skip(at),
            None => match (data.len() + 1).saturating_sub(MARK + TELLING) {
                0 => Resume::More,
                len => Resume::Skip(len),
            },
        }
    }

    fn gap(&mut self, _turn: &mut Turn<'_, '_, Exchange>, dir: Direction, _len: u64) -> Outcome {
        self.sides[dir.index()] = Side::default();
        Outcome::More
    }

    fn max_txs(&self) -> usize {
        self.max_txs
    }

    fn freed(&mut self, _shared: &mut Shared, tx: &mut Tx<Exchange>) {
        let Some(mut transfer) = tx.content.transfer.take() else { return };
        transfer.track.discard(&mut self.budgets[transfer.dir.index()]);
        let key = (transfer.dir, transfer.handle);
        if self.open.get(&key) == Some(&tx.base.id) {
            self.open.remove(&key);
        }
    }

    fn held(&self) -> u64 {
        let open = self.open.capacity() * size_of::<((Direction, Box<[u8]>), u64)>();
        let handles: usize = self.open.len() * calls::HANDLE_MAX;
        let parts: usize = self.sides.iter().map(|s| s.parts.capacity()).sum();
        (self.calls.memory() + self.names.memory() + open + handles + parts) as u64
    }
}

/// Whether a record begins here: a call of NFS, or the reply to a waiting call.
fn tells(record: &[u8], calls: &Cache<u32, Pending>) -> bool {
    let at = |n| be32(record, n).unwrap_or(0);
    let mark = at(0);
    if mark >> 31 == 0 || !(TELLING..=RECORD_MAX).contains(&((mark & 0x7fff_ffff) as usize)) {
        return false;
    }
    match at(8) {
        0 => at(12) == 2 && at(16) == 100_003 && (2..=4).contains(&at(20)),
        1 => at(12) <= 1 && calls.get(&at(4)).is_some(),
        _ => false,
    }
}

impl Nfs {
    /// Handles a message, or its beginning if `whole` is not set. Returns the handling of the following data, and whether the
    /// message is valid. `at` is its offset in the turn's message, if it is there.
    fn record(
        &mut self,
        turn: &mut Turn<'_, '_, Exchange>,
        dir: Direction,
        message: &[u8],
        whole: bool,
        at: Option<usize>,
    ) -> (State, bool) {
        let rpc = Rpc::read(message);
        let legible = rpc.is_some();
        let next = match rpc {
            Some(Rpc::Call(call)) if dir == TS => {
                if let Some(at) = at.filter(|_| whole) {
                    frames::call(turn, call.version, at, message, call.args.len());
                }
                self.call(turn, call)
            }
            Some(Rpc::Reply(reply)) if dir == TC => {
                if let Some(at) = at.filter(|_| whole) {
                    let version = self.calls.get(&reply.xid).map(|call| call.version);
                    frames::reply(turn, version, at, message, reply.results.map(|r| r.len()));
                }
                self.reply(turn, reply)
            }
            // Callbacks of a server to its client, and their replies.
            Some(_) => Some(State::Skip),
            None => None,
        };
        match next {
            Some(next) => (next, true),
            // The missing end may be the cause.
            None if !whole => (State::Skip, true),
            // As in Suricata, a message without a valid header is no transaction.
            None if !legible => (State::Skip, false),
            None => {
                let tx = turn.one_way(dir, Exchange::new(0, 0, be32(message, 0).unwrap_or(0), Auth::default()));
                tx.event(Event::MalformedData as u8);
                (State::Skip, false)
            }
        }
    }

    /// Handles a call. `None` if its arguments are invalid.
    fn call(&mut self, turn: &mut Turn<'_, '_, Exchange>, call: Call<'_>) -> Option<State> {
        let Call { xid, version, procedure, auth, args } = call;
        if !(2..=4).contains(&version) {
            turn.one_way(TS, Exchange::new(version, procedure, xid, auth)).event(Event::NonexistingVersion as u8);
            return Some(State::Skip);
        }
        if version == 4 {
            // The null procedure is no compound.
            return if procedure == calls::NULL { Some(State::Skip) } else { self.compound(turn, xid, auth, args) };
        }
        let args = if version == 2 { calls::args2(procedure, args)? } else { calls::args3(procedure, args)? };
        let Args { handle, name, to, offset, chunk } = args;
        let mut pending = Pending {
            tx: None,
            version,
            procedure,
            auth: auth.clone(),
            handle: handle.into(),
            name: name.into(),
            offset,
        };
        match (version, procedure, chunk) {
            (3, _, Some(chunk)) => {
                let seed = Exchange::new(version, procedure, xid, Auth::default());
                let next = self.write(turn, seed, handle, chunk);
                // The reply's frames have the version of its call.
                self.wait(turn, xid, pending);
                return Some(next);
            }
            (2, v2::READ, _) => {}
            (3, v3::READ, _) => {
                self.file(turn, TC, Exchange::new(version, procedure, xid, auth), handle);
            }
            // It ends a file, whose event shows the writes.
            (3, v3::COMMIT, _) => self.close(turn, TS, handle, xid),
            _ => {
                let mut exchange = Exchange::new(version, procedure, xid, auth);
                if version == 3 {
                    exchange.name = match procedure {
                        v3::ACCESS | v3::READDIRPLUS => self.name_of(handle),
                        _ => name.into(),
                    };
                    if matches!(
                        procedure,
                        v3::ACCESS | v3::CREATE | v3::MKDIR | v3::REMOVE | v3::RMDIR | v3::RENAME | v3::READDIRPLUS
                    ) {
                        exchange.handle = handle.into();
                    }
                    if procedure == v3::RENAME {
                        exchange.renamed = Some(to.into());
                    }
                }
                let tx = turn.open(exchange);
                tx.finish(TS);
                pending.tx = Some(tx.base.id);
            }
        }
        self.wait(turn, xid, pending);
        Some(State::Skip)
    }

    /// Handles a call of version 4.
    fn compound(&mut self, turn: &mut Turn<'_, '_, Exchange>, xid: u32, auth: Auth, args: Xdr<'_>) -> Option<State> {
        let asked = compound::asked(args)?;
        if asked.ends {
            self.close(turn, TS, asked.handle, xid);
            self.close(turn, TC, asked.handle, xid);
        }
        let procedure = compound::leading(&asked.operations);
        let mut seed = Exchange::new(4, procedure, xid, Auth::default());
        seed.operations.clone_from(&asked.operations);
        let mut pending = Pending {
            tx: None,
            version: 4,
            procedure,
            auth: auth.clone(),
            handle: asked.handle.into(),
            name: asked.name.into(),
            offset: asked.offset,
        };
        let next = match asked.chunk {
            Some(chunk) => self.write(turn, seed, asked.handle, chunk),
            None => {
                seed.auth = auth;
                seed.name = asked.name.into();
                seed.handle = asked.handle.into();
                seed.renamed = (!asked.to.is_empty()).then(|| asked.to.into());
                let tx = turn.open(seed);
                tx.finish(TS);
                pending.tx = Some(tx.base.id);
                State::Skip
            }
        };
        self.wait(turn, xid, pending);
        Some(next)
    }

    /// Stores a call until its reply comes.
    fn wait(&mut self, turn: &mut Turn<'_, '_, Exchange>, xid: u32, pending: Pending) {
        let max = u32::try_from(self.max_txs).unwrap_or(u32::MAX);
        let old = self.calls.insert(max, xid, pending);
        // A retransmitted call, or one that got no reply.
        if let Some(tx) = old.and_then(|old| old.tx).and_then(|id| turn.tx(id)) {
            tx.finish(TC);
        }
    }

    /// Handles a reply. `None` if it is invalid.
    fn reply(&mut self, turn: &mut Turn<'_, '_, Exchange>, reply: Reply<'_>) -> Option<State> {
        let Some(call) = self.calls.remove(&reply.xid) else { return Some(State::Skip) };
        let tx = call.tx;
        let (status, handle, chunk) = match reply.results {
            None => (0, &[][..], None),
            Some(results) => match call.version {
                2 => calls::results2(call.procedure, call.offset, results).map(|r| (r.status, r.handle, r.chunk)),
                3 => calls::results3(call.procedure, call.offset, results).map(|r| (r.status, r.handle, r.chunk)),
                _ => compound::given(results, call.offset).map(|r| (r.status, r.handle, r.chunk)),
            }?,
        };
        if !handle.is_empty() && !call.name.is_empty() && status == 0 {
            self.names.insert(NAMES_MAX, handle.into(), call.name.to_vec());
        }
        if let Some(tx) = tx.and_then(|id| turn.tx(id)) {
            tx.content.denied = !reply.accepted;
            tx.content.status = status;
            // The name of a lookup now has a handle.
            if call.version == 3 && call.procedure == v3::LOOKUP {
                tx.content.handle = handle.into();
            }
            tx.finish(TC);
        }
        let Some(chunk) = chunk else {
            if call.version == 3 && call.procedure == v3::READ {
                self.refused(turn, &call.handle, reply.accepted, status);
            }
            return Some(State::Skip);
        };
        let auth = if call.version == 2 { Auth::default() } else { call.auth };
        let procedure = if call.version == 4 { 25 } else { call.procedure };
        let seed = Exchange::new(call.version, procedure, reply.xid, auth);
        let tx = self.file(turn, TC, seed, &call.handle);
        Some(self.chunk(turn, tx, chunk, reply.xid))
    }

    fn name_of(&self, handle: &[u8]) -> Box<[u8]> {
        self.names.get(&handle.to_vec()).map(|n| n.as_slice().into()).unwrap_or_default()
    }

    /// The transaction of a file's reads or writes, created from `seed` if necessary.
    fn file(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, mut seed: Exchange, handle: &[u8]) -> u64 {
        let key = (dir, Box::from(handle));
        if let Some(id) = self.open.get(&key)
            && turn.tx(*id).is_some()
        {
            return *id;
        }
        if seed.version != 2 {
            seed.name = self.name_of(handle);
        }
        seed.handle = handle.into();
        seed.transfer =
            Some(Box::new(Transfer { dir, handle: handle.into(), chunks: 0, last: None, track: Default::default() }));
        let tx = turn.open(seed);
        let id = tx.base.id;
        // Rules inspect the call at once, and the data when it comes.
        if dir == TC {
            tx.finish(TS);
        }
        tx.touch(TS);
        self.open.insert(key, id);
        id
    }

    /// A read was refused: if no data was read before, its transaction is complete.
    fn refused(&mut self, turn: &mut Turn<'_, '_, Exchange>, handle: &[u8], accepted: bool, status: u32) {
        let Some(id) = self.open.get(&(TC, Box::from(handle))).copied() else { return };
        let Some(tx) = turn.tx(id).filter(|tx| tx.base.files.is_empty()) else { return };
        tx.content.denied = !accepted;
        tx.content.status = status;
        tx.finish(TC);
        self.open.remove(&(TC, Box::from(handle)));
    }

    /// Handles a write.
    fn write(&mut self, turn: &mut Turn<'_, '_, Exchange>, seed: Exchange, handle: &[u8], chunk: Chunk<'_>) -> State {
        let xid = seed.xid;
        let id = self.file(turn, TS, seed, handle);
        let again =
            turn.tx(id).and_then(|tx| tx.content.transfer.as_ref()).is_some_and(|t| chunk.offset == 0 && t.chunks > 0);
        if again {
            self.begin_again(turn, id);
        }
        self.chunk(turn, id, chunk, xid)
    }

    /// The client writes a file again from the start: the data before is another file, whose end was not seen.
    fn begin_again(&mut self, turn: &mut Turn<'_, '_, Exchange>, id: u64) {
        let Some((tx, cx)) = turn.tx_and_parse(id) else { return };
        let Some(transfer) = tx.content.transfer.as_mut() else { return };
        transfer.track.discard(&mut self.budgets[transfer.dir.index()]);
        transfer.track = Default::default();
        transfer.chunks = 0;
        let (dir, name) = (transfer.dir, tx.content.name.clone());
        tx.base.files.close(&mut cx.shared.files, &cx.config.files, dir, true);
        tx.base.files.open(&mut cx.shared.files, &cx.config.files, dir, &name, None);
        tx.touch(dir);
    }

    /// Calls a function with a file.
    fn with_file<T>(
        &mut self,
        turn: &mut Turn<'_, '_, Exchange>,
        id: u64,
        f: impl FnOnce(&mut Transfer, &mut FileCx<'_>, &mut Vec<Odd>) -> T,
    ) -> Option<T> {
        let Nfs { budgets, limits, .. } = self;
        let (tx, cx) = turn.tx_and_parse(id)?;
        let transfer = tx.content.transfer.as_mut()?;
        let dir = transfer.dir;
        let TxBase { files, .. } = &mut tx.base;
        let i = dir.index();
        // Anomalies have no event: the file shows its gaps.
        let (engine, config) = (&mut cx.shared.files, &cx.config.files);
        let mut file = FileCx { engine, config, files, budget: &mut budgets[i], dir, limits: limits[i] };
        let made = f(transfer, &mut file, &mut Vec::new());
        tx.touch(dir);
        Some(made)
    }

    /// Handles file data whose beginning is available.
    fn chunk(&mut self, turn: &mut Turn<'_, '_, Exchange>, id: u64, chunk: Chunk<'_>, xid: u32) -> State {
        let name = turn.tx(id).map(|tx| tx.content.name.clone()).unwrap_or_default();
        let place = self.with_file(turn, id, |transfer, f, odd| {
            // The first data creates the file.
            if f.files.is_empty() {
                f.files.open(f.engine, f.config, f.dir, &name, None);
            }
            let place = transfer.track.begin(f, chunk.offset, chunk.len, odd);
            transfer.track.data(f, place, chunk.offset, chunk.data);
            place
        });
        if let Some(tx) = turn.tx(id) {
            let counted = tx.content.version != 2;
            if let Some(transfer) = tx.content.transfer.as_mut() {
                transfer.chunks = transfer.chunks.saturating_add(u32::from(counted));
            }
        }
        let Some(place) = place else { return State::Skip };
        let here = chunk.data.len() as u64;
        let d = Data {
            tx: id,
            offset: chunk.offset.saturating_add(here),
            left: chunk.len - here.min(chunk.len),
            place,
            end: chunk.end,
            synced: chunk.synced,
            xid,
        };
        self.after(turn, d)
    }

    /// Handles more file data.
    fn data(&mut self, turn: &mut Turn<'_, '_, Exchange>, mut d: Data, data: &[u8]) -> State {
        let len = usize::try_from(d.left).unwrap_or(usize::MAX).min(data.len());
        let bytes = data.get(..len).unwrap_or(data);
        self.with_file(turn, d.tx, |transfer, f, _| transfer.track.data(f, d.place, d.offset, bytes));
        d.offset = d.offset.saturating_add(len as u64);
        d.left -= len as u64;
        self.after(turn, d)
    }

    /// Handles a gap in the record.
    fn data_gap(&mut self, turn: &mut Turn<'_, '_, Exchange>, mut d: Data, len: u64) -> State {
        let len = len.min(d.left);
        let (at, left) = (d.offset, d.left - len);
        let place = self.with_file(turn, d.tx, |transfer, f, _| transfer.track.gap(f, d.place, at, len, left));
        d.offset = at.saturating_add(len);
        d.left = left;
        match place {
            Some(place) => {
                d.place = place;
                self.after(turn, d)
            }
            None => State::Skip,
        }
    }

    /// The state after file data.
    fn after(&mut self, turn: &mut Turn<'_, '_, Exchange>, d: Data) -> State {
        if d.left > 0 {
            return State::Data(d);
        }
        if d.end {
            self.finish(turn, d.tx, d.xid);
        } else if d.synced {
            // Nothing says that the file is complete, so rules inspect what there is of it.
            self.with_file(turn, d.tx, |_, f, _| f.files.last_look(f.dir));
        }
        State::Skip
    }

    /// Closes a file by its handle.
    fn close(&mut self, turn: &mut Turn<'_, '_, Exchange>, dir: Direction, handle: &[u8], xid: u32) {
        if let Some(id) = self.open.get(&(dir, Box::from(handle))).copied() {
            self.finish(turn, id, xid);
        }
    }

    /// Ends a file.
    fn finish(&mut self, turn: &mut Turn<'_, '_, Exchange>, id: u64, xid: u32) {
        self.with_file(turn, id, |transfer, f, _| {
            std::mem::take(&mut transfer.track).finish(f);
            transfer.last = Some(xid);
        });
        if let Some(tx) = turn.tx(id) {
            tx.finish(TS);
            tx.finish(TC);
            if let Some(transfer) = &tx.content.transfer {
                self.open.remove(&(transfer.dir, transfer.handle.clone()));
            }
        }
    }
}
