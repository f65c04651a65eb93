//! Messages of SMB2 and 3 (MS-SMB2 section 2.2).

use margay_flow::Direction;

use super::auth;
use super::events::Event;
use super::files::{Access, Transfer};
use super::frame;
use super::header::{Smb2, Status};
use super::names;
use super::parser::{Reading, Smb, Tree, Turn, mark};
use super::text;
use super::tx::{Create, FileId, Negotiation, Set, SetInfo, SmbTx, TreeConnect, What, event};
use crate::reader::Reader;

/// Commands.
mod command {
    pub(super) const NEGOTIATE: u16 = 0;
    pub(super) const SESSION_SETUP: u16 = 1;
    pub(super) const TREE_CONNECT: u16 = 3;
    pub(super) const CREATE: u16 = 5;
    pub(super) const CLOSE: u16 = 6;
    pub(super) const READ: u16 = 8;
    pub(super) const WRITE: u16 = 9;
    pub(super) const IOCTL: u16 = 11;
    pub(super) const CANCEL: u16 = 12;
    pub(super) const QUERY_INFO: u16 = 16;
    pub(super) const SET_INFO: u16 = 17;
    pub(super) const LAST: u16 = 18;
}

/// Length of the fixed part before the data of a write, after the header; [`READ`] is the same for a read response.
const WRITE: usize = 48;
/// See [`WRITE`].
const READ: usize = 16;

const FSCTL_PIPE_TRANSCEIVE: u32 = 0x0011_c017;

/// The part of a message at an offset from its header, with a length.
fn part(message: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    message.get(offset..)?.get(..len)
}

fn file_id(r: &mut Reader<'_>) -> Option<FileId> {
    r.array::<16>().map(FileId::Smb2)
}

/// Converts a time (MS-DTYP section 2.3.3) to seconds since 1970; 0 if there is none.
pub(super) const fn unix(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(11_644_473_600)
}

impl Smb {
    /// Reads a header. A message in a chain may use the session and tree of the message before it.
    fn header2(&self, dir: Direction, message: &[u8]) -> Option<Smb2> {
        let mut h = Smb2::read(message)?;
        let (session, tree, _) = self.sides[dir.index()].chain;
        if h.is_related() && h.session == u64::MAX {
            h.session = session;
        }
        if h.is_related() && h.tree == Some(u32::MAX) {
            h.tree = Some(tree);
        }
        Some(h)
    }

    /// The length of the message at the front of `rest`, which holds the available part of `left` bytes, and how it is read.
    pub(super) fn reading2(&mut self, dir: Direction, rest: &[u8], left: u64) -> (u64, Reading) {
        let Some(h) = self.header2(dir, rest) else {
            // The message handler reports a message without a complete header.
            return (left, if rest.len() as u64 == left { Reading::Whole } else { Reading::More });
        };
        let next = u64::from(h.next);
        let len = if (Smb2::LEN as u64..=left).contains(&next) { next } else { left };
        let reading = match (h.is_response(), dir) {
            (true, Direction::ToServer) => Reading::Skipped(Event::ResponseToServer),
            (false, Direction::ToClient) => Reading::Skipped(Event::RequestToClient),
            (false, _) if h.command == command::WRITE => self.write(h, rest, len).unwrap_or(Reading::Whole),
            (true, _) if h.command == command::READ && Status::Nt(h.status).is_success() => {
                self.read(h, rest, len).unwrap_or(Reading::Whole)
            }
            _ => Reading::Whole,
        };
        (len, reading)
    }

    /// Handles a message, or its head.
    pub(super) fn message2(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, message: &[u8], reading: Reading) {
        let Some(h) = self.header2(dir, message) else {
            self.report(turn, dir, 2, None, Event::MalformedData);
            return;
        };
        let len = self.side(dir).len;
        let id = match reading {
            Reading::Transfer(t) if h.is_response() => self.read_data(turn, h, &t),
            Reading::Transfer(t) => self.write_data(turn, h, &t),
            Reading::Skipped(event) => {
                self.report(turn, dir, 2, None, event);
                None
            }
            _ if h.is_response() => self.response(turn, h, message),
            _ => self.request(turn, h, message),
        };
        mark(turn, dir, frame::SMB2, Smb2::LEN, len, id);
        if matches!(reading, Reading::Whole) {
            if h.next != 0 && u64::from(h.next) != len {
                self.report(turn, dir, 2, id, Event::MalformedData);
            }
            let side = self.side(dir);
            (side.chain.0, side.chain.1) = (h.session, h.tree.unwrap_or(side.chain.1));
        }
    }

    /// The file of a message in a chain; the next message may refer to it (MS-SMB2 section 3.3.5.2.7.2).
    fn related(&mut self, id: FileId) -> FileId {
        let opened = &mut self.side(Direction::ToServer).chain.2;
        if id != FileId::RELATED {
            *opened = Some(id);
        }
        opened.unwrap_or(id)
    }

    /// A file's final identifier, if it was opened under a placeholder.
    fn own(&self, id: FileId) -> FileId {
        self.aliases.get(&id).copied().unwrap_or(id)
    }

    fn seed(h: Smb2) -> SmbTx {
        SmbTx { version: 2, command: h.command, session: h.session, tree: h.tree.unwrap_or(0), ..SmbTx::default() }
    }

    /// Whether a tree is for named pipes, if known.
    fn is_pipe(&self, session: u64, tree: u32) -> Option<bool> {
        self.trees.get(&(session, tree)).map(|t| t.pipe)
    }

    /// How a write is read. `None` if it has to be buffered as a whole.
    fn write(&mut self, h: Smb2, rest: &[u8], len: u64) -> Option<Reading> {
        let head = Smb2::LEN + WRITE;
        if len < head as u64 {
            return None;
        }
        let Some(fixed) = rest.get(Smb2::LEN..head) else { return Some(Reading::More) };
        let mut r = Reader::little(fixed);
        r.u16()?;
        let data_at = u64::from(r.u16()?);
        let (length, offset) = (r.u32()?, r.u64()?);
        let id = file_id(&mut r)?;
        let id = self.related(id);
        let (session, tree) = (h.session, h.tree.unwrap_or(0));
        let access = Access { id, offset, session, tree, tx: None, length };
        Transfer::new(access, head, data_at, len).reading(self.is_pipe(session, tree), rest)
    }

    /// Handles the head of a write. Returns its transaction.
    fn write_data(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, t: &Transfer) -> Option<u64> {
        let dir = Direction::ToServer;
        let tx = self.file(turn, dir, Self::seed(h), t.access.id);
        let (most, length) = (turn.cx.config.smb.max_write_size, t.access.length);
        let agreed = self.sizes.map_or(u32::MAX, |s| s.1);
        if (most > 0 && length > most) || length > agreed || t.is_cut() {
            self.report(turn, dir, 2, tx, Event::WriteRequestTooLarge);
        }
        self.wait(turn, (2, h.message), Access { tx, ..t.access });
        self.side(dir).chain.0 = h.session;
        self.begin_transfer(turn, dir, tx, t);
        tx
    }

    /// How a response to a read is read. `None` if it has to be buffered as a whole.
    fn read(&self, h: Smb2, rest: &[u8], len: u64) -> Option<Reading> {
        let head = Smb2::LEN + READ;
        if len < head as u64 {
            return None;
        }
        let Some(fixed) = rest.get(Smb2::LEN..head) else { return Some(Reading::More) };
        // The data's file is unknown without the request.
        let mut access = *self.accesses.get(&(2, h.message))?;
        access.id = self.own(access.id);
        let mut r = Reader::little(fixed);
        r.u16()?;
        let data_at = u64::from(r.u8()?);
        r.u8()?;
        access.length = r.u32()?;
        let known = self.pipes.get(&access.id).is_some();
        // An asynchronous response on a pipe without DCE/RPC is stored as a file, and so are later responses of that pipe.
        let is_file = !known && (h.tree.is_none() || self.open.contains_key(&(access.id, Direction::ToClient)));
        let is_pipe = match self.is_pipe(access.session, access.tree) {
            _ if is_file => Some(false),
            None if known => Some(true),
            is_pipe => is_pipe,
        };
        Transfer::new(access, head, data_at, len).reading(is_pipe, rest)
    }

    /// Handles the head of a response to a read. Returns its transaction.
    fn read_data(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, t: &Transfer) -> Option<u64> {
        let dir = Direction::ToClient;
        let asked = self.accesses.remove(&(2, h.message)).map_or(0, |access| access.length);
        let Access { id, session, tree, length, .. } = t.access;
        let tx = self.file(turn, dir, SmbTx { session, tree, ..Self::seed(h) }, id);
        if let Some(tx) = tx.and_then(|id| turn.tx(id)) {
            tx.content.status = Some(Status::Nt(h.status));
        }
        let most = turn.cx.config.smb.max_read_size;
        let agreed = self.sizes.map_or(u32::MAX, |s| s.0);
        if (most > 0 && length > most) || length > agreed || length > asked || t.is_cut() {
            self.report(turn, dir, 2, tx, Event::ReadResponseTooLarge);
        }
        self.begin_transfer(turn, dir, tx, t);
        tx
    }

    /// Handles a complete request. Returns its transaction.
    fn request(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, message: &[u8]) -> Option<u64> {
        let dir = Direction::ToServer;
        let body = message.get(Smb2::LEN..).unwrap_or(&[]);
        let mut r = Reader::little(body);
        // A cancellation has no response, and the number of the request that it cancels.
        let key = (h.command != command::CANCEL).then_some((2, h.message));
        let mut what = What::Generic;
        let mut closes = None;
        let fine = match h.command {
            command::QUERY_INFO => return None,
            c if c > command::LAST => {
                self.report(turn, dir, 2, None, Event::MalformedData);
                return None;
            }
            command::NEGOTIATE => negotiate_request(r).map(|n| what = What::Negotiate(Box::new(n))),
            command::SESSION_SETUP => {
                // As in Suricata, the token is searched behind the fixed fields, wherever they say that it is.
                if let Some(rest) = body.get(SETUP_FIXED..) {
                    what = What::SessionSetup(Box::default()).with_token(rest);
                }
                Some(())
            }
            command::TREE_CONNECT => tree_connect_request(message, r).map(|share| {
                what =
                    What::TreeConnect(Box::new(TreeConnect { share, share_type: Some(0), ..TreeConnect::default() }));
            }),
            command::CREATE => create_request(message, r).map(|c| {
                let file = FileId::opened_by(h.message);
                if h.next > 0 {
                    self.names.insert(turn.cx.config.smb.max_guid_cache_size, file, c.name.clone());
                    self.side(dir).chain.2 = Some(file);
                }
                what = What::Create(Box::new(c));
            }),
            command::CLOSE => r.take(8).and_then(|_| file_id(&mut r)).map(|id| {
                let id = self.related(id);
                closes = Some(id);
                // If the chain also opens the file, it is closed after that response.
                if !id.is_placeholder() || self.own(id) != id {
                    let id = self.own(id);
                    self.close(turn, id);
                }
            }),
            command::READ => return self.read_request(turn, h, r),
            command::WRITE => return self.write_pipe(turn, h, message, r),
            command::SET_INFO => match set_info_request(message, r) {
                Some((id, Some((level, set)))) => {
                    let file = self.related(id);
                    let name = self.names.get(&file).cloned().unwrap_or_else(|| b"<unknown>".to_vec());
                    let class = "FILE_INFO";
                    let info = SetInfo { name, id: Some(id), class, level, subcommand: None, what: set };
                    what = What::SetInfo(Box::new(info));
                    Some(())
                }
                Some((_, None)) => return None,
                None => None,
            },
            command::IOCTL => match ioctl(message, r) {
                Some((code, id, input)) => {
                    let id = self.related(id);
                    if code == FSCTL_PIPE_TRANSCEIVE
                        && let Some(tx) = self.pipe_request(turn, Self::seed(h), id, input)
                    {
                        if let Some(tx) = tx {
                            self.asked(turn, tx, key);
                        }
                        return tx;
                    }
                    what = What::Ioctl(code);
                    Some(())
                }
                None => None,
            },
            _ => Some(()),
        };
        let events = token_events(&what);
        let id = self.make(turn, SmbTx { what, file: closes, ..Self::seed(h) })?;
        self.asked(turn, id, key);
        if h.command == command::NEGOTIATE {
            self.negotiation_tx = Some(id);
        }
        for e in events.into_iter().flatten() {
            self.report(turn, dir, 2, Some(id), e);
        }
        if fine.is_none() {
            self.report(turn, dir, 2, Some(id), Event::MalformedData);
        }
        Some(id)
    }

    /// Handles a read request. The transaction starts with the response.
    fn read_request(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, mut r: Reader<'_>) -> Option<u64> {
        let mut read = || {
            r.take(4)?;
            Some((r.u32()?, r.u64()?, file_id(&mut r)?))
        };
        let Some((length, offset, id)) = read() else {
            self.report(turn, Direction::ToServer, 2, None, Event::MalformedData);
            return None;
        };
        let id = self.related(id);
        let most = turn.cx.config.smb.max_read_size;
        let agreed = self.sizes.map_or(u32::MAX, |s| s.0);
        if (most > 0 && length > most) || length > agreed {
            self.report(turn, Direction::ToServer, 2, None, Event::ReadRequestTooLarge);
        }
        let access = Access { id, offset, session: h.session, tree: h.tree.unwrap_or(0), tx: None, length };
        self.wait(turn, (2, h.message), access);
        None
    }

    /// Handles a write to a named pipe.
    fn write_pipe(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, message: &[u8], mut r: Reader<'_>) -> Option<u64> {
        let mut write = || {
            r.u16()?;
            let (at, length, offset) = (r.u16()?, r.u32()?, r.u64()?);
            let id = file_id(&mut r)?;
            Some((id, length, offset, part(message, usize::from(at), length as usize)?))
        };
        let Some((id, length, offset, data)) = write() else {
            self.report(turn, Direction::ToServer, 2, None, Event::MalformedData);
            return None;
        };
        let tx = self.pipe_request(turn, Self::seed(h), id, data).flatten();
        if let Some(tx) = tx {
            let access = Access { id, offset, session: h.session, tree: h.tree.unwrap_or(0), tx: Some(tx), length };
            self.wait(turn, (2, h.message), access);
        }
        tx
    }

    /// The transaction that a response belongs to. The server may answer an SMB1 client with SMB2, and a negotiation with
    /// another number.
    fn request_of(&self, turn: &Turn<'_, '_>, h: Smb2) -> Option<u64> {
        let found = self.requests.get(&(2, h.message)).copied();
        if found.is_none() && h.command == command::NEGOTIATE { self.open_negotiation(turn) } else { found }
    }

    /// Handles a response whose request was lost, or is not seen: it still tells the dialect, or carries DCE/RPC.
    fn unrequested(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, status: Status, message: &[u8]) -> Option<u64> {
        let mut body = Reader::little(message.get(Smb2::LEN..)?);
        match h.command {
            command::NEGOTIATE if status.is_success() => {
                let (dialect, _, sizes) = negotiate_response(body)?;
                (self.dialect, self.sizes) = (names::smb2_dialect(dialect), Some(sizes));
                None
            }
            command::IOCTL if status.is_success() || status == Status::BUFFER_OVERFLOW => {
                let (file, data) = ioctl_response(message, body)?;
                body.u32()?;
                let seed = SmbTx { status: Some(status), ..Self::seed(h) };
                (body.u32()? == FSCTL_PIPE_TRANSCEIVE).then(|| self.pipe_response(turn, seed, file, data, None))?
            }
            _ => None,
        }
    }

    /// Handles a complete response. Returns its transaction.
    fn response(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, message: &[u8]) -> Option<u64> {
        let dir = Direction::ToClient;
        let status = Status::Nt(h.status);
        let key = (2, h.message);
        if matches!(h.command, command::READ | command::WRITE) {
            return self.access_response(turn, h, message, status);
        }
        let Some(id) = self.request_of(turn, h) else {
            return self.unrequested(turn, h, status, message);
        };
        if status == Status::PENDING {
            if let Some(tx) = turn.tx(id) {
                tx.content.status = Some(status);
            }
            return Some(id);
        }
        let body = message.get(Smb2::LEN..).unwrap_or(&[]);
        let mut r = Reader::little(body);
        self.requests.remove(&key);
        let mut agreed = None;
        let mut opened = None;
        let mut connected = None;
        let mut piped = None;
        if h.command == command::CLOSE
            && let Some(file) = turn.peek(id).and_then(|tx| tx.content.file)
        {
            // If the same chain opened the file, the response to that has already been handled.
            let file = self.own(file);
            self.closed(turn, file);
        }
        let tx = turn.tx(id)?;
        let content = &mut tx.content;
        content.status = Some(status);
        if h.session != 0 {
            content.session = h.session;
        }
        if let Some(tree) = h.tree.filter(|t| *t != 0) {
            content.tree = tree;
        }
        // The response to a failed request has no result to parse.
        let fine = match &mut content.what {
            _ if !status.is_success() && status != Status::BUFFER_OVERFLOW => {
                if matches!(content.what, What::Dcerpc(_)) {
                    piped = Some((None, &[][..]));
                }
                Some(())
            }
            What::Negotiate(n) if h.command == command::NEGOTIATE => {
                negotiate_response(r).map(|(dialect, guid, sizes)| {
                    n.server_guid = Some(guid);
                    n.sizes = Some(sizes);
                    agreed = Some((dialect, sizes));
                })
            }
            What::TreeConnect(t) => r.take(2).and_then(|_| r.u8()).map(|kind| {
                t.share_type = Some(kind);
                t.pipe = kind == 2;
                connected = Some(Tree { name: t.share.clone(), pipe: t.pipe });
            }),
            What::Create(c) => create_response(r).map(|(times, size, file)| {
                (c.times, c.size, c.id) = (times, size, Some(file));
                opened = Some((file, if c.name.is_empty() { b"<share_root>".to_vec() } else { c.name.clone() }));
            }),
            What::Dcerpc(_) => {
                let found = ioctl_response(message, r);
                piped = found.map(|(file, data)| (Some(file), data));
                found.map(|_| ())
            }
            _ => Some(()),
        };
        if fine.is_none() {
            event(tx, Event::MalformedData);
        }
        if let Some((dialect, sizes)) = agreed {
            self.dialect = names::smb2_dialect(dialect);
            self.sizes = Some(sizes);
            let (read, write) = (turn.cx.config.smb.max_read_size, turn.cx.config.smb.max_write_size);
            if read > 0 && sizes.0 > read {
                self.report(turn, dir, 2, Some(id), Event::NegotiateMaxReadSizeTooLarge);
            }
            if write > 0 && sizes.1 > write {
                self.report(turn, dir, 2, Some(id), Event::NegotiateMaxWriteSizeTooLarge);
            }
        }
        if let Some(tree) = connected {
            self.trees.insert(turn.cx.config.smb.max_tree_cache_size, (h.session, h.tree.unwrap_or(0)), tree);
        }
        if let Some((file, name)) = opened {
            self.names.insert(turn.cx.config.smb.max_guid_cache_size, file, name);
            // Later requests of the chain used a placeholder for the file identifier.
            self.rename(turn, FileId::opened_by(h.message), file);
        }
        match piped {
            Some((Some(file), data)) => {
                self.pipe_response(turn, Self::seed(h), file, data, Some(id));
            }
            Some((None, _)) => self.answered(turn, id),
            None => self.answered(turn, id),
        }
        Some(id)
    }

    /// Handles the response to a write; or to a read that failed or is not of a file.
    fn access_response(&mut self, turn: &mut Turn<'_, '_>, h: Smb2, message: &[u8], status: Status) -> Option<u64> {
        let key = (2, h.message);
        if status == Status::PENDING {
            return self.accesses.get(&key).and_then(|a| a.tx);
        }
        let mut access = self.accesses.remove(&key)?;
        access.id = self.own(access.id);
        if h.command == command::WRITE {
            if let Some(tx) = access.tx.and_then(|id| turn.tx(id)) {
                // The status of a call comes with its response, unless the server refuses the write.
                let (call, refused) = (tx.content.call().is_some(), !status.is_success());
                if !call || refused {
                    tx.content.status = Some(status);
                }
                if call && refused {
                    let id = tx.base.id;
                    self.answered(turn, id);
                }
            }
            return access.tx;
        }
        if !status.is_success() && status != Status::BUFFER_OVERFLOW {
            return None;
        }
        let mut r = Reader::little(message.get(Smb2::LEN..)?);
        r.u16()?;
        let at = usize::from(r.u8()?);
        r.u8()?;
        let length = r.u32()? as usize;
        let data = part(message, at, length)?;
        let seed = SmbTx { session: access.session, tree: access.tree, status: Some(status), ..Self::seed(h) };
        self.pipe_response(turn, seed, access.id, data, None)
    }
}

impl What {
    /// Adds the information of a client's token.
    pub(super) fn with_token(mut self, blob: &[u8]) -> Self {
        if let What::SessionSetup(setup) = &mut self {
            match auth::token(blob) {
                auth::Token::Ntlmssp(n) => setup.ntlmssp = Some(n),
                auth::Token::Kerberos(k) => setup.kerberos = Some(k),
                auth::Token::MalformedNtlmssp => setup.malformed = true,
                auth::Token::Other => {}
            }
        }
        self
    }
}

/// The events of a client's token.
pub(super) fn token_events(what: &What) -> [Option<Event>; 2] {
    let What::SessionSetup(setup) = what else { return [None; 2] };
    let unusual = setup.ntlmssp.as_ref().is_some_and(|n| n.unusual);
    [unusual.then_some(Event::UnusualNtlmsspOrder), setup.malformed.then_some(Event::MalformedNtlmsspRequest)]
}

fn negotiate_request(mut r: Reader<'_>) -> Option<Negotiation> {
    r.u16()?;
    let count = usize::from(r.u16()?);
    r.take(8)?;
    let client_guid = r.array::<16>();
    r.take(8)?;
    let mut dialects = Vec::new();
    for _ in 0..count.min(64) {
        dialects.push(names::smb2_dialect(r.u16()?).into_bytes());
    }
    Some(Negotiation { dialects, client_guid, ..Negotiation::default() })
}

/// Length of a session setup's fixed fields (MS-SMB2 section 2.2.5).
const SETUP_FIXED: usize = 24;

type Agreed = (u16, [u8; 16], (u32, u32));

/// Reads dialect, server GUID, and the maximum of a read and of a write.
fn negotiate_response(mut r: Reader<'_>) -> Option<Agreed> {
    r.take(4)?;
    let dialect = r.u16()?;
    r.u16()?;
    let guid = r.array::<16>()?;
    r.take(8)?;
    Some((dialect, guid, (r.u32()?, r.u32()?)))
}

fn tree_connect_request(message: &[u8], mut r: Reader<'_>) -> Option<Vec<u8>> {
    r.take(4)?;
    let (at, len) = (r.u16()?, r.u16()?);
    part(message, usize::from(at), usize::from(len)).map(text::utf16)
}

fn create_request(message: &[u8], mut r: Reader<'_>) -> Option<Create> {
    const DIRECTORY_FILE: u32 = 0x1;
    const DELETE_ON_CLOSE: u32 = 0x1000;
    r.take(36)?;
    let (disposition, options) = (r.u32()?, r.u32()?);
    let (at, len) = (r.u16()?, r.u16()?);
    let name = if len == 0 { Vec::new() } else { text::utf16(part(message, usize::from(at), usize::from(len))?) };
    // The share's root is a directory anyway, and has no name.
    let directory = options & DIRECTORY_FILE != 0 && !name.is_empty();
    let delete = options & DELETE_ON_CLOSE != 0;
    Some(Create { name, directory, delete, disposition, ..Create::default() })
}

/// Reads times, size and file identifier.
fn create_response(mut r: Reader<'_>) -> Option<([u64; 4], u64, FileId)> {
    r.take(8)?;
    let times = [unix(r.u64()?), unix(r.u64()?), unix(r.u64()?), unix(r.u64()?)];
    r.u64()?;
    let size = r.u64()?;
    r.take(8)?;
    Some((times, size, file_id(&mut r)?))
}

type Level = (&'static str, Set);

/// Reads the file and the property that is set, if it is one that is logged.
fn set_info_request(message: &[u8], mut r: Reader<'_>) -> Option<(FileId, Option<Level>)> {
    r.u16()?;
    let (kind, class, len, at) = (r.u8()?, r.u8()?, r.u32()? as usize, usize::from(r.u16()?));
    r.take(6)?;
    let id = file_id(&mut r)?;
    let data = part(message, at, len)?;
    let level = match (kind, class) {
        // FileRenameInformation (MS-FSCC section 2.4.42.2).
        (1, 10) => {
            let mut r = Reader::little(data);
            r.take(16)?;
            let len = r.u32()? as usize;
            Some(("SMB2_FILE_RENAME_INFO", Set::Rename(text::utf16(r.take(len)?))))
        }
        // FileDispositionInformation (section 2.4.11), FileDispositionInformationEx.
        (1, 13 | 64) => Some(("SMB2_FILE_DISPOSITION_INFO", Set::Delete(data.first()? & 1 != 0))),
        _ => None,
    };
    Some((id, level))
}

/// Reads control code, file and input.
fn ioctl<'a>(message: &'a [u8], mut r: Reader<'_>) -> Option<(u32, FileId, &'a [u8])> {
    r.take(4)?;
    let code = r.u32()?;
    let id = file_id(&mut r)?;
    let (at, len) = (r.u32()? as usize, r.u32()? as usize);
    let input = if len == 0 { &[] } else { part(message, at, len)? };
    Some((code, id, input))
}

/// Reads file and output.
fn ioctl_response<'a>(message: &'a [u8], mut r: Reader<'_>) -> Option<(FileId, &'a [u8])> {
    r.take(8)?;
    let id = file_id(&mut r)?;
    r.take(8)?;
    let (at, len) = (r.u32()? as usize, r.u32()? as usize);
    let output = if len == 0 { &[] } else { part(message, at, len)? };
    Some((id, output))
}
