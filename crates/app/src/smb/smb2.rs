//! Messages of SMB2 and 3 (MS-SMB2 section 2.2).

use margay_flow::Direction;

use super::auth;
use super::events::Event;
use super::frame;
use super::header::{Smb2, Status};
use super::names;
use super::parser::{Access, Data, SmbParser, State, Step, Tree, mark};
use super::pipe;
use super::text;
use super::tx::{Create, FileId, Negotiation, Set, SetInfo, SmbTx, TreeConnect, What};
use crate::parser::Parse;
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
/// Bytes needed to tell DCE/RPC from a file.
const SNIFF: usize = 16;

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

impl SmbParser {
    /// Parses a message at the front of `rest`, which holds the available part of the record.
    pub(super) fn smb2(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, rest: &[u8], whole: bool) -> Step {
        let left = self.side(dir).left;
        let Some(mut h) = Smb2::read(rest) else {
            if !whole {
                return Step::More;
            }
            self.report(cx, dir, 2, None, Event::MalformedData);
            self.side(dir).state = State::Skip(left);
            return Step::Used(0);
        };
        let next = u64::from(h.next);
        let fits = next == 0 || (next >= Smb2::LEN as u64 && next <= left);
        let len = if next == 0 || !fits { left } else { next };
        let (session, tree, _) = self.side(dir).chain;
        if h.is_related() && h.session == u64::MAX {
            h.session = session;
        }
        if h.is_related() && h.tree == Some(u32::MAX) {
            h.tree = Some(tree);
        }
        let towards = if h.is_response() { Direction::ToClient } else { Direction::ToServer };
        if towards != dir {
            let odd = if h.is_response() { Event::ResponseToServer } else { Event::RequestToClient };
            // Without the magic, the next step would not recognise it, so skip it here.
            mark(cx, dir, frame::SMB2, at, Smb2::LEN, len, None);
            self.report(cx, dir, 2, None, odd);
            self.side(dir).state = State::Skip(len);
            return Step::Used(0);
        }
        let streamed = match (h.command, h.is_response()) {
            (command::WRITE, false) => self.write(cx, dir, at, h, rest, len),
            (command::READ, true) if Status::Nt(h.status).is_success() => self.read(cx, dir, at, h, rest, len),
            _ => None,
        };
        if let Some(step) = streamed {
            return step;
        }
        if Self::too_long(len) {
            mark(cx, dir, frame::SMB2, at, Smb2::LEN, len, None);
            return self.pass_over(cx, dir, 2, len);
        }
        let Some(message) = usize::try_from(len).ok().and_then(|n| rest.get(..n)) else { return Step::More };
        let id = if h.is_response() { self.response(cx, h, message) } else { self.request(cx, h, message) };
        mark(cx, dir, frame::SMB2, at, Smb2::LEN, len, id);
        if !fits {
            self.report(cx, dir, 2, id, Event::MalformedData);
        }
        let side = self.side(dir);
        (side.chain.0, side.chain.1) = (h.session, h.tree.unwrap_or(side.chain.1));
        self.used(dir, message.len())
    }

    /// The file of a message in a chain; the next message may refer to it (MS-SMB2 section 3.3.5.2.7.2).
    fn related(&mut self, id: FileId) -> FileId {
        let [client, _] = &mut self.sides;
        if id != FileId::RELATED {
            client.chain.2 = Some(id);
        }
        client.chain.2.unwrap_or(id)
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

    /// Consumes the data of a write. `None` if the message has to be buffered as a whole.
    fn write(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, h: Smb2, rest: &[u8], len: u64) -> Option<Step> {
        let fixed = Smb2::LEN + WRITE;
        if len < fixed as u64 {
            return None;
        }
        if rest.len() < fixed {
            return Some(Step::More);
        }
        let mut r = Reader::little(rest.get(Smb2::LEN..fixed)?);
        r.u16()?;
        let data_at = u64::from(r.u16()?);
        let (length, offset) = (r.u32()?, r.u64()?);
        let id = file_id(&mut r)?;
        let id = self.related(id);
        let tree = h.tree.unwrap_or(0);
        let start = data_at.max(fixed as u64).min(len);
        let here = u64::from(length).min(len - start);
        let is_pipe = match self.is_pipe(h.session, tree) {
            Some(is) => is,
            None => match pipe::sniff(rest, start, here, SNIFF) {
                Some(is) => is,
                None => return Some(Step::More),
            },
        };
        if is_pipe {
            return None;
        }
        let tx = self.file(cx, dir, Self::seed(h), id);
        mark(cx, dir, frame::SMB2, at, Smb2::LEN, len, tx);
        let most = cx.config.smb.max_write_size;
        let agreed = self.sizes.map_or(u32::MAX, |s| s.1);
        if (most > 0 && length > most) || length > agreed || u64::from(length) > here {
            self.report(cx, dir, 2, tx, Event::WriteRequestTooLarge);
        }
        let access = Access { id, offset, session: h.session, tree, tx, length };
        self.accesses.insert(cx.config.smb.max_rec_offset_cache_size, (2, h.message), access);
        self.side(dir).chain.0 = h.session;
        self.data_state(dir, tx, (offset, start - fixed as u64, here), len - start - here);
        Some(self.used(dir, fixed))
    }

    /// Enters the state for file data: `left` bytes after `skip` more, with `behind` bytes following.
    pub(super) fn data_state(
        &mut self,
        dir: Direction,
        tx: Option<u64>,
        (offset, skip, left): (u64, u64, u64),
        behind: u64,
    ) {
        self.side(dir).state = State::Data(skip, Data { tx, offset, left, behind, place: None });
    }

    /// Consumes the data of a read. `None` if the message has to be buffered as a whole.
    fn read(&mut self, cx: &mut Parse<'_>, dir: Direction, at: usize, h: Smb2, rest: &[u8], len: u64) -> Option<Step> {
        let fixed = Smb2::LEN + READ;
        if len < fixed as u64 {
            return None;
        }
        if rest.len() < fixed {
            return Some(Step::More);
        }
        // The data's file is unknown without the request.
        let mut access = *self.accesses.get(&(2, h.message))?;
        access.id = self.own(access.id);
        let mut r = Reader::little(rest.get(Smb2::LEN..fixed)?);
        r.u16()?;
        let data_at = u64::from(r.u8()?);
        r.u8()?;
        let length = r.u32()?;
        let start = data_at.max(fixed as u64).min(len);
        let here = u64::from(length).min(len - start);
        let known = self.pipes.get(&access.id).is_some();
        // An asynchronous response on a pipe without DCE/RPC is stored as a file, and so are later responses of that pipe.
        let is_file = !known && (h.tree.is_none() || self.open.contains_key(&(access.id, dir)));
        let is_pipe = match self.is_pipe(access.session, access.tree) {
            _ if is_file => false,
            Some(is) => is,
            None if known => true,
            None => match pipe::sniff(rest, start, here, SNIFF) {
                Some(is) => is,
                None => return Some(Step::More),
            },
        };
        if is_pipe {
            return None;
        }
        self.accesses.remove(&(2, h.message));
        let seed = SmbTx { tree: access.tree, session: access.session, ..Self::seed(h) };
        let tx = self.file(cx, dir, seed, access.id);
        mark(cx, dir, frame::SMB2, at, Smb2::LEN, len, tx);
        if let Some(t) = tx.and_then(|id| self.get(id)) {
            t.status = Some(Status::Nt(h.status));
        }
        let most = cx.config.smb.max_read_size;
        let agreed = self.sizes.map_or(u32::MAX, |s| s.0);
        let larger = length > agreed || length > access.length || u64::from(length) > here;
        if (most > 0 && length > most) || larger {
            self.report(cx, dir, 2, tx, Event::ReadResponseTooLarge);
        }
        self.data_state(dir, tx, (access.offset, start - fixed as u64, here), len - start - here);
        Some(self.used(dir, fixed))
    }

    /// Handles a complete request. Returns its transaction.
    fn request(&mut self, cx: &mut Parse<'_>, h: Smb2, message: &[u8]) -> Option<u64> {
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
                self.report(cx, dir, 2, None, Event::MalformedData);
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
                    self.names.insert(cx.config.smb.max_guid_cache_size, file, c.name.clone());
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
                    self.close(cx, id);
                }
            }),
            command::READ => return self.read_request(cx, h, r),
            command::WRITE => return self.write_pipe(cx, h, message, r),
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
                        && let Some(tx) = self.pipe_request(cx, Self::seed(h), id, input)
                    {
                        if let Some(tx) = tx {
                            self.asked(cx, tx, key);
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
        let id = self.make(cx, SmbTx { what, file: closes, ..Self::seed(h) })?;
        self.asked(cx, id, key);
        if h.command == command::NEGOTIATE {
            self.negotiation_tx = Some(id);
        }
        for e in events.into_iter().flatten() {
            self.report(cx, dir, 2, Some(id), e);
        }
        if fine.is_none() {
            self.report(cx, dir, 2, Some(id), Event::MalformedData);
        }
        Some(id)
    }

    /// Handles a read request. The transaction starts with the response.
    fn read_request(&mut self, cx: &mut Parse<'_>, h: Smb2, mut r: Reader<'_>) -> Option<u64> {
        let mut read = || {
            r.take(4)?;
            Some((r.u32()?, r.u64()?, file_id(&mut r)?))
        };
        let Some((length, offset, id)) = read() else {
            self.report(cx, Direction::ToServer, 2, None, Event::MalformedData);
            return None;
        };
        let id = self.related(id);
        let most = cx.config.smb.max_read_size;
        let agreed = self.sizes.map_or(u32::MAX, |s| s.0);
        if (most > 0 && length > most) || length > agreed {
            self.report(cx, Direction::ToServer, 2, None, Event::ReadRequestTooLarge);
        }
        let access = Access { id, offset, session: h.session, tree: h.tree.unwrap_or(0), tx: None, length };
        self.accesses.insert(cx.config.smb.max_rec_offset_cache_size, (2, h.message), access);
        None
    }

    /// Handles a write to a named pipe.
    fn write_pipe(&mut self, cx: &mut Parse<'_>, h: Smb2, message: &[u8], mut r: Reader<'_>) -> Option<u64> {
        let mut write = || {
            r.u16()?;
            let (at, length, offset) = (r.u16()?, r.u32()?, r.u64()?);
            let id = file_id(&mut r)?;
            Some((id, length, offset, part(message, usize::from(at), length as usize)?))
        };
        let Some((id, length, offset, data)) = write() else {
            self.report(cx, Direction::ToServer, 2, None, Event::MalformedData);
            return None;
        };
        let tx = self.pipe_request(cx, Self::seed(h), id, data).flatten();
        if let Some(tx) = tx {
            let access = Access { id, offset, session: h.session, tree: h.tree.unwrap_or(0), tx: Some(tx), length };
            self.accesses.insert(cx.config.smb.max_rec_offset_cache_size, (2, h.message), access);
        }
        tx
    }

    /// The transaction that a response belongs to. The server may answer an SMB1 client with SMB2, and a negotiation with
    /// another number.
    fn request_of(&mut self, h: Smb2) -> Option<u64> {
        let found = self.requests.get(&(2, h.message)).copied();
        if found.is_none() && h.command == command::NEGOTIATE { self.open_negotiation() } else { found }
    }

    /// Handles a response whose request was lost, or is not seen: it still tells the dialect, or carries DCE/RPC.
    fn unrequested(&mut self, cx: &mut Parse<'_>, h: Smb2, status: Status, message: &[u8]) -> Option<u64> {
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
                (body.u32()? == FSCTL_PIPE_TRANSCEIVE).then(|| self.pipe_response(cx, seed, file, data, None))?
            }
            _ => None,
        }
    }

    /// Handles a complete response. Returns its transaction.
    fn response(&mut self, cx: &mut Parse<'_>, h: Smb2, message: &[u8]) -> Option<u64> {
        let dir = Direction::ToClient;
        let status = Status::Nt(h.status);
        let key = (2, h.message);
        if matches!(h.command, command::READ | command::WRITE) {
            return self.access_response(cx, h, message, status);
        }
        let Some(id) = self.request_of(h) else {
            return self.unrequested(cx, h, status, message);
        };
        if status == Status::PENDING {
            if let Some(tx) = self.get(id) {
                tx.status = Some(status);
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
            && let Some(file) = self.peek(id).and_then(|t| t.file)
        {
            // If the same chain opened the file, the response to that has already been handled.
            let file = self.own(file);
            self.closed(cx, file);
        }
        let tx = self.get(id)?;
        tx.status = Some(status);
        if h.session != 0 {
            tx.session = h.session;
        }
        if let Some(tree) = h.tree.filter(|t| *t != 0) {
            tx.tree = tree;
        }
        // The response to a failed request has no result to parse.
        let fine = match &mut tx.what {
            _ if !status.is_success() && status != Status::BUFFER_OVERFLOW => {
                if matches!(tx.what, What::Dcerpc(_)) {
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
            tx.event(Event::MalformedData);
        }
        if let Some((dialect, sizes)) = agreed {
            self.dialect = names::smb2_dialect(dialect);
            self.sizes = Some(sizes);
            let (read, write) = (cx.config.smb.max_read_size, cx.config.smb.max_write_size);
            if read > 0 && sizes.0 > read {
                self.report(cx, dir, 2, Some(id), Event::NegotiateMaxReadSizeTooLarge);
            }
            if write > 0 && sizes.1 > write {
                self.report(cx, dir, 2, Some(id), Event::NegotiateMaxWriteSizeTooLarge);
            }
        }
        if let Some(tree) = connected {
            self.trees.insert(cx.config.smb.max_tree_cache_size, (h.session, h.tree.unwrap_or(0)), tree);
        }
        if let Some((file, name)) = opened {
            self.names.insert(cx.config.smb.max_guid_cache_size, file, name);
            // Later requests of the chain used a placeholder for the file identifier.
            self.rename(cx, FileId::opened_by(h.message), file);
        }
        match piped {
            Some((Some(file), data)) => {
                self.pipe_response(cx, Self::seed(h), file, data, Some(id));
            }
            Some((None, _)) => self.answered(id),
            None => self.answered(id),
        }
        Some(id)
    }

    /// Handles the response to a write; or to a read that failed or is not of a file.
    fn access_response(&mut self, cx: &mut Parse<'_>, h: Smb2, message: &[u8], status: Status) -> Option<u64> {
        let key = (2, h.message);
        if status == Status::PENDING {
            return self.accesses.get(&key).and_then(|a| a.tx);
        }
        let mut access = self.accesses.remove(&key)?;
        access.id = self.own(access.id);
        if h.command == command::WRITE {
            if let Some(tx) = access.tx.and_then(|id| self.get(id)) {
                // The status of a call comes with its response, unless the server refuses the write.
                let (call, refused) = (tx.call().is_some(), !status.is_success());
                if !call || refused {
                    tx.status = Some(status);
                }
                if call
                    && refused
                    && let Some(id) = access.tx
                {
                    self.answered(id);
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
        self.pipe_response(cx, seed, access.id, data, None)
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
