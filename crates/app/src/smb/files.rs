//! Files: their names, and the data of their reads and writes.
//!
//! All reads of a file, from open to close, are one transaction, and so are all its writes.

use margay_flow::Direction;

use crate::cache::Holds;
use crate::conversation::{Piece, Tx};
use crate::file::Files;
use crate::file::track::{FileCx, Odd, Place};
use crate::parser::Parse;
use crate::tx::TxBase;

use super::events::Event;
use super::parser::{Reading, Smb, Turn};
use super::pipe;
use super::tx::{FileAccess, FileId, SmbTx, What, complete, event};

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

impl Holds for Access {}

impl Holds for FileId {}

/// A read or a write whose data arrives as a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    /// With the length that the message states.
    pub access: Access,
    /// Length of the message's fixed part.
    pub head: usize,
    /// Offset of the data in the message, and the bytes of it that the message has.
    pub start: u64,
    pub here: u64,
}

impl Transfer {
    /// A transfer whose data begins at offset `at` of a message of `len` bytes.
    pub(super) fn new(access: Access, head: usize, at: u64, len: u64) -> Transfer {
        let start = at.max(head as u64).min(len);
        Transfer { access, head, start, here: u64::from(access.length).min(len - start) }
    }

    /// Whether the message has less data than it states.
    pub(super) fn is_cut(&self) -> bool {
        u64::from(self.access.length) > self.here
    }

    /// How the message is read of which `rest` is available. `None` if it belongs to a pipe; if that is not known, the beginning
    /// of the data decides.
    pub(super) fn reading(self, is_pipe: Option<bool>, rest: &[u8]) -> Option<Reading> {
        match is_pipe.or_else(|| pipe::sniff(rest, self.start, self.here)) {
            None => Some(Reading::More),
            Some(false) => Some(Reading::Transfer(self)),
            Some(true) => None,
        }
    }
}

/// File data that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    tx: Option<u64>,
    /// File offset of the next byte.
    offset: u64,
    /// The handling of the data, known after its first bytes.
    place: Option<Place>,
}

impl Smb {
    /// Stores a read or a write until its response comes.
    pub(super) fn wait(&mut self, turn: &Turn<'_, '_>, key: (u8, u64), access: Access) {
        self.accesses.insert(turn.cx.config.smb.max_rec_offset_cache_size, key, access);
    }

    /// Calls a function with a file's transaction.
    fn with_file(
        &mut self,
        cx: &mut Parse<'_>,
        tx: &mut Tx<SmbTx>,
        f: impl FnOnce(&mut FileAccess, &mut FileCx<'_>, &mut Vec<Odd>),
    ) {
        let Tx { base: TxBase { files, .. }, content, .. } = tx;
        let Some(file) = content.file_mut() else { return };
        let dir = file.dir;
        let files: &mut Files = files;
        let mut odd = Vec::new();
        let (limits, budget) = (cx.config.smb.queue_limits(dir), &mut self.budgets[dir.index()]);
        let (engine, config) = (&mut cx.shared.files, &cx.config.files);
        f(file, &mut FileCx { engine, config, files, budget, dir, limits }, &mut odd);
        for o in odd {
            event(tx, Event::of(o, dir));
            // Rules on events are inspected with the next packet of either direction.
            tx.touch(dir.reverse());
        }
        tx.touch(dir);
    }

    /// Adds complete data to a file.
    pub(super) fn file_data(&mut self, turn: &mut Turn<'_, '_>, id: u64, offset: u64, data: &[u8]) {
        let Some((tx, cx)) = turn.tx_and_parse(id) else { return };
        self.with_file(cx, tx, |file, f, odd| {
            let place = file.track.begin(f, offset, data.len() as u64, odd);
            file.track.data(f, place, offset, data);
        });
    }

    /// The data of a read or a write arrives as a body.
    pub(super) fn begin_transfer(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, tx: Option<u64>, t: &Transfer) {
        turn.body(dir, t.here);
        let side = self.side(dir);
        side.data = (t.here > 0).then_some(Data { tx, offset: t.access.offset, place: None });
        side.behind = side.len - t.start - t.here;
    }

    /// Handles a piece of file data; `left` bytes follow.
    pub(super) fn receive(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, data: Data, piece: Piece<'_>, left: u64) {
        let (at, mut place) = (data.offset, data.place);
        let len = match piece {
            Piece::Data(bytes) => bytes.len() as u64,
            Piece::Gap(len) => len,
        };
        if let Some((tx, cx)) = data.tx.and_then(|id| turn.tx_and_parse(id)) {
            self.with_file(cx, tx, |file, f, odd| {
                let here = *place.get_or_insert_with(|| file.track.begin(f, at, len.saturating_add(left), odd));
                match piece {
                    Piece::Data(bytes) => file.track.data(f, here, at, bytes),
                    Piece::Gap(len) => place = Some(file.track.gap(f, here, at, len, left)),
                }
            });
        }
        self.side(dir).data = (left > 0).then_some(Data { offset: at.saturating_add(len), place, ..data });
    }

    /// Stops parsing of a file's transaction.
    pub(super) fn finish(&mut self, cx: &mut Parse<'_>, tx: &mut Tx<SmbTx>) {
        self.with_file(cx, tx, |file, f, _| std::mem::take(&mut file.track).finish(f));
        complete(tx);
        if let Some(file) = tx.content.file_mut() {
            self.open.remove(&(file.id, file.dir));
        }
    }

    /// Ends a file's transactions. Its name is needed until the response: a read before the close may be answered after it.
    pub(super) fn close(&mut self, turn: &mut Turn<'_, '_>, id: FileId) {
        for dir in [Direction::ToServer, Direction::ToClient] {
            self.close_side(turn, id, dir);
        }
    }

    /// Ends a file's reads or writes.
    pub(super) fn close_side(&mut self, turn: &mut Turn<'_, '_>, id: FileId, dir: Direction) {
        if let Some((tx, cx)) = self.open.remove(&(id, dir)).and_then(|tx| turn.tx_and_parse(tx)) {
            self.finish(cx, tx);
        }
    }

    /// Closes a file for good.
    pub(super) fn closed(&mut self, turn: &mut Turn<'_, '_>, id: FileId) {
        self.close(turn, id);
        self.names.remove(&id);
    }

    /// Replaces a placeholder by the file's identifier.
    pub(super) fn rename(&mut self, turn: &mut Turn<'_, '_>, from: FileId, to: FileId) {
        if self.names.remove(&from).is_none() {
            return;
        }
        self.aliases.insert(turn.cx.config.smb.max_guid_cache_size, from, to);
        for dir in [Direction::ToServer, Direction::ToClient] {
            if let Some(id) = self.open.remove(&(from, dir)) {
                self.open.insert((to, dir), id);
                if let Some(file) = turn.tx(id).and_then(|tx| tx.content.file_mut()) {
                    file.id = to;
                }
            }
        }
    }

    /// The transaction of a file's reads or writes, created if necessary.
    pub(super) fn file(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, seed: SmbTx, id: FileId) -> Option<u64> {
        if let Some(tx) = self.open.get(&(id, dir)) {
            return Some(*tx);
        }
        let share = self.trees.get(&(seed.session, seed.tree)).map(|t| t.name.clone()).unwrap_or_default();
        // As in Suricata, one kind of access to an unknown file has no name, in each version another one.
        let nameless = (seed.version == 1) == (dir == Direction::ToClient);
        let unknown: &[u8] = if nameless { b"" } else { b"<unknown>" };
        let name = self.names.get(&id).cloned().unwrap_or_else(|| unknown.to_vec());
        let access = FileAccess { name: name.clone(), share, id, dir, track: Default::default() };
        let made = self.make(turn, SmbTx { what: What::File(Box::new(access)), ..seed })?;
        self.open.insert((id, dir), made);
        if let Some((tx, cx)) = turn.tx_and_parse(made) {
            tx.base.files.open(&mut cx.shared.files, &cx.config.files, dir, &name, None);
            // Both sides belong to the transaction; rules inspect the file in this direction.
            tx.touch(dir);
        }
        Some(made)
    }
}
