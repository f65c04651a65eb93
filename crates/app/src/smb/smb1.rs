//! Messages of SMB1 (MS-CIFS section 2.2.4, MS-SMB section 2.2.4).
//!
//! A message may be a chain of several commands (`ANDX`). Each makes a transaction of its own.

use margay_flow::Direction;

use super::events::Event;
use super::files::{Access, Transfer};
use super::frame;
use super::header::{Smb1, Status};
use super::parser::{Reading, Smb, Tree, Turn, mark};
use super::smb2::{token_events, unix};
use super::text;
use super::tx::{Create, FileId, Negotiation, Set, SetInfo, Setup, SmbTx, TreeConnect, What, event};
use crate::reader::Reader;

/// Commands.
pub(super) mod command {
    pub(super) const CLOSE: u8 = 0x04;
    pub(super) const RENAME: u8 = 0x07;
    pub(super) const READ: u8 = 0x0a;
    pub(super) const WRITE: u8 = 0x0b;
    pub(super) const LOCKING_ANDX: u8 = 0x24;
    pub(super) const TRANS: u8 = 0x25;
    pub(super) const TRANS_SECONDARY: u8 = 0x26;
    pub(super) const WRITE_AND_CLOSE: u8 = 0x2c;
    pub(super) const OPEN_ANDX: u8 = 0x2d;
    pub(super) const READ_ANDX: u8 = 0x2e;
    pub(super) const WRITE_ANDX: u8 = 0x2f;
    pub(super) const TRANS2: u8 = 0x32;
    pub(super) const TRANS2_SECONDARY: u8 = 0x33;
    pub(super) const NEGOTIATE: u8 = 0x72;
    pub(super) const SESSION_SETUP_ANDX: u8 = 0x73;
    pub(super) const LOGOFF_ANDX: u8 = 0x74;
    pub(super) const TREE_CONNECT_ANDX: u8 = 0x75;
    pub(super) const NT_TRANS_SECONDARY: u8 = 0xa1;
    pub(super) const NT_CREATE_ANDX: u8 = 0xa2;
    pub(super) const NT_CANCEL: u8 = 0xa4;
    pub(super) const NONE: u8 = 0xff;
}

/// The limit of commands parsed in a chain.
const CHAIN_MAX: usize = 16;
/// The limit of a client's dialects.
const DIALECTS_MAX: usize = 256;
/// The limit of open requests with the same number.
const ALIKE_MAX: u64 = 8;

/// A command within a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    /// The whole message; offsets are relative to it.
    pub message: &'a [u8],
    pub words: &'a [u8],
    pub bytes: &'a [u8],
    /// Offset of `bytes` in the message.
    pub at: usize,
}

impl<'a> Block<'a> {
    /// Reads the command at an offset; `None` if it is truncated. `bytes` may end with the message.
    fn read(message: &'a [u8], at: usize) -> Option<Block<'a>> {
        let count = usize::from(*message.get(at)?);
        let words = message.get(at + 1..)?.get(..2 * count)?;
        let at = at + 1 + 2 * count;
        let len = usize::from(u16::from_le_bytes(*message.get(at..)?.first_chunk()?));
        let rest = message.get(at + 2..)?;
        Some(Block { message, words, bytes: rest.get(..len).unwrap_or(rest), at: at + 2 })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.words.get(at..)?.first_chunk().map(|b| u16::from_le_bytes(*b))
    }

    pub(super) fn u32(&self, at: usize) -> Option<u32> {
        self.words.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
    }

    /// Reads a string at `from` in `bytes`: its text, and the offset of the next one.
    pub(super) fn string(&self, from: usize, unicode: bool) -> Option<(Vec<u8>, usize)> {
        let (text, used) = text::string(self.bytes.get(from..)?, self.at + from, unicode);
        Some((text, from + used))
    }
}

/// Whether a command's words begin with an `ANDX` header.
const fn is_andx(command: u8) -> bool {
    matches!(
        command,
        command::LOCKING_ANDX
            | command::OPEN_ANDX
            | command::READ_ANDX
            | command::WRITE_ANDX
            | command::SESSION_SETUP_ANDX
            | command::LOGOFF_ANDX
            | command::TREE_CONNECT_ANDX
            | command::NT_CREATE_ANDX
    )
}

/// File data of a write or of a read response: the file and its offset, and the range in the message.
#[derive(Debug, Clone, Copy)]
struct Extent {
    fid: u16,
    offset: u64,
    at: usize,
    len: u32,
}

impl Extent {
    /// The data, as far as the message has it, and whether it is cut short.
    fn data<'a>(&self, b: &Block<'a>) -> (&'a [u8], bool) {
        let rest = b.message.get(self.at..).unwrap_or(&[]);
        rest.get(..self.len as usize).map_or((rest, true), |data| (data, false))
    }
}

fn write_andx(b: &Block<'_>) -> Option<Extent> {
    let high = if b.words.len() >= 28 { u64::from(b.u32(24)?) } else { 0 };
    let len = u32::from(b.u16(20)?) | u32::from(b.u16(18)?) << 16;
    let offset = u64::from(b.u32(6)?) | high << 32;
    Some(Extent { fid: b.u16(4)?, offset, at: usize::from(b.u16(22)?), len })
}

/// Reads the response to a read. The request has the file and the offset.
fn read_andx(b: &Block<'_>, access: &Access) -> Option<Extent> {
    let FileId::Smb1(fid) = access.id else { return None };
    let len = u32::from(b.u16(10)?) | u32::from(b.u16(14)?) << 16;
    Some(Extent { fid, offset: access.offset, at: usize::from(b.u16(12)?), len })
}

impl Smb {
    /// How a message is read that takes the whole record, `len` bytes, of which `rest` is available.
    pub(super) fn reading1(&self, dir: Direction, rest: &[u8], len: u64) -> Reading {
        let Some(h) = Smb1::read(rest) else {
            // The message handler reports a message without a complete header.
            return if rest.len() as u64 == len { Reading::Whole } else { Reading::More };
        };
        match (h.is_response(), dir) {
            (true, Direction::ToServer) => Reading::Skipped(Event::ResponseToServer),
            (false, Direction::ToClient) => Reading::Skipped(Event::RequestToClient),
            _ => self.streamed(h, rest, len).unwrap_or(Reading::Whole),
        }
    }

    /// Handles a message, or its head.
    pub(super) fn message1(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, message: &[u8], reading: Reading) {
        let Some(h) = Smb1::read(message) else {
            self.report(turn, dir, 1, None, Event::MalformedData);
            return;
        };
        let len = self.side(dir).len;
        let id = match reading {
            Reading::Transfer(t) => self.transfer1(turn, dir, h, &t),
            Reading::Skipped(event) => {
                self.report(turn, dir, 1, None, event);
                None
            }
            _ => self.chain(turn, dir, h, message),
        };
        mark(turn, dir, frame::SMB1, Smb1::LEN, len, id);
    }

    pub(super) fn seed1(h: Smb1) -> SmbTx {
        SmbTx {
            version: 1,
            command: u16::from(h.command),
            session: u64::from(h.user),
            tree: u32::from(h.tree),
            ..SmbTx::default()
        }
    }

    fn tree1(&self, h: Smb1) -> Option<&Tree> {
        self.trees.get(&(u64::from(h.user), u32::from(h.tree))).or_else(|| self.trees.get(&(0, u32::from(h.tree))))
    }

    /// How a read or write of a file is read. `None` if the message has to be buffered as a whole.
    fn streamed(&self, h: Smb1, rest: &[u8], len: u64) -> Option<Reading> {
        let asked = match h.command {
            command::WRITE_ANDX if !h.is_response() => None,
            command::READ_ANDX if h.is_response() && h.outcome().is_success() => {
                Some(self.accesses.get(&(1, h.key()))?)
            }
            _ => return None,
        };
        // The words, which begin with the `ANDX` header.
        let Some(&count) = rest.get(Smb1::LEN) else { return (len > Smb1::LEN as u64).then_some(Reading::More) };
        let head = Smb1::LEN + 1 + 2 * usize::from(count) + 2;
        if len < head as u64 {
            return None;
        }
        let Some(front) = rest.get(..head) else { return Some(Reading::More) };
        let block = Block::read(front, Smb1::LEN)?;
        if block.words.first() != Some(&command::NONE) {
            return None;
        }
        let e = match asked {
            None => write_andx(&block)?,
            Some(asked) => read_andx(&block, asked)?,
        };
        let (id, session) = (FileId::Smb1(e.fid), u64::from(h.user));
        let tree = asked.map_or(u32::from(h.tree), |a| a.tree);
        let is_pipe = match self.trees.get(&(session, tree)).or_else(|| self.tree1(h)) {
            Some(tree) => Some(tree.pipe),
            None => self.pipes.get(&id).map(|_| true),
        };
        let access = Access { id, offset: e.offset, session, tree, tx: None, length: e.len };
        Transfer::new(access, head, e.at as u64, len).reading(is_pipe, rest)
    }

    /// Handles the head of a read or write of a file. Returns its transaction.
    fn transfer1(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, h: Smb1, t: &Transfer) -> Option<u64> {
        let Access { id, tree, .. } = t.access;
        let tx = self.file(turn, dir, SmbTx { tree, ..Self::seed1(h) }, id);
        let (most, event) = if h.is_response() {
            self.accesses.remove(&(1, h.key()));
            if let Some(tx) = tx.and_then(|id| turn.tx(id)) {
                tx.content.status = Some(h.outcome());
            }
            (turn.cx.config.smb.max_read_size, Event::ReadResponseTooLarge)
        } else {
            self.wait(turn, (1, h.key()), Access { tx, ..t.access });
            (turn.cx.config.smb.max_write_size, Event::WriteRequestTooLarge)
        };
        if most > 0 && t.access.length > most {
            self.report(turn, dir, 1, tx, event);
        }
        if t.is_cut() {
            self.report(turn, dir, 1, tx, event);
        }
        self.begin_transfer(turn, dir, tx, t);
        tx
    }

    /// Handles the commands of a complete message. Returns the first transaction.
    fn chain(&mut self, turn: &mut Turn<'_, '_>, dir: Direction, h: Smb1, message: &[u8]) -> Option<u64> {
        let (mut h, mut at, mut found) = (h, Smb1::LEN, None);
        for n in 0..CHAIN_MAX {
            let Some(block) = Block::read(message, at) else {
                // A failed command may have an empty response.
                let bare = h.is_response() && message.len() <= at + 1;
                if h.is_response() {
                    let empty = Block { message, words: &[], bytes: &[], at: message.len() };
                    let id = self.response1(turn, h, empty, n);
                    found = found.or(id);
                }
                if !bare {
                    self.report(turn, dir, 1, found, Event::MalformedData);
                }
                break;
            };
            let id = if h.is_response() { self.response1(turn, h, block, n) } else { self.request1(turn, h, block, n) };
            found = found.or(id);
            let next = block.words.first().copied().filter(|_| is_andx(h.command)).unwrap_or(command::NONE);
            let Some(to) = block.u16(2).map(usize::from).filter(|to| next != command::NONE && *to > at) else { break };
            (h.command, at) = (next, to);
        }
        found
    }

    /// Handles a request. Returns its transaction; `n` is its index in a chain.
    fn request1(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: Block<'_>, n: usize) -> Option<u64> {
        let dir = Direction::ToServer;
        let unicode = h.is_unicode();
        if h.command == command::NEGOTIATE
            && let Some(id) = self.open_negotiation(turn)
        {
            self.report(turn, dir, 1, Some(id), Event::DuplicateNegotiate);
            return Some(id);
        }
        let (mut what, mut closes, mut nameless) = (What::Generic, None, false);
        let fine = match h.command {
            command::NEGOTIATE => dialects(&b).map(|dialects| {
                nameless = dialects.iter().any(Vec::is_empty);
                what = What::Negotiate(Box::new(Negotiation { dialects, ..Negotiation::default() }));
            }),
            command::SESSION_SETUP_ANDX => session_setup(&b, unicode).map(|w| what = w),
            command::TREE_CONNECT_ANDX => tree_connect(&b, unicode).map(|(share, service)| {
                let service = Some((service, Vec::new()));
                what = What::TreeConnect(Box::new(TreeConnect { share, service, ..TreeConnect::default() }));
            }),
            command::NT_CREATE_ANDX => create(&b, unicode).map(|c| what = What::Create(Box::new(c))),
            command::CLOSE => b.u16(0).map(|fid| {
                closes = Some(FileId::Smb1(fid));
                // As in Suricata, the file that the client reads ends with the response.
                self.close_side(turn, FileId::Smb1(fid), Direction::ToServer);
            }),
            command::READ_ANDX | command::READ => return self.read_request1(turn, h, &b),
            command::WRITE_ANDX | command::WRITE | command::WRITE_AND_CLOSE => return self.write1(turn, h, &b),
            command::RENAME => rename(&b, unicode).map(|(name, to)| {
                let set = Set::Rename(to);
                let info = SetInfo { name, id: None, class: "", level: "", subcommand: None, what: set };
                what = What::SetInfo(Box::new(info));
            }),
            command::TRANS => return self.trans_request(turn, h, &b),
            command::TRANS2 => match self.trans2_request(&b, unicode) {
                Some(w) => {
                    what = w;
                    Some(())
                }
                None => return None,
            },
            _ => Some(()),
        };
        let events = token_events(&what);
        let mut tx = SmbTx { what, file: closes, ..Self::seed1(h) };
        if h.command == command::NEGOTIATE {
            // Before session setup there is neither session nor tree, whatever the client sends.
            (tx.session, tx.tree) = (0, 0);
        } else if matches!(h.command, command::SESSION_SETUP_ANDX | command::TREE_CONNECT_ANDX) {
            // There is no tree yet; the response to a tree connect names it.
            tx.tree = 0;
        }
        let id = self.make(turn, tx)?;
        if h.command == command::NEGOTIATE {
            self.negotiation_tx = Some(id);
        }
        let part =
            matches!(h.command, command::TRANS_SECONDARY | command::TRANS2_SECONDARY | command::NT_TRANS_SECONDARY);
        // Several open requests with the same number are unusual, but they occur.
        let free = (0..ALIKE_MAX).map(|turn| key(h, n, turn)).find(|k| self.requests.get(k).is_none());
        if !part {
            let silent = h.command == command::NT_CANCEL;
            self.asked(turn, id, (!silent).then(|| free.unwrap_or(key(h, n, 0))));
        } else if let Some(tx) = turn.tx(id) {
            // Only the primary request gets the response. This one's event is written at the end.
            tx.finish(Direction::ToServer);
        }
        let nameless = nameless.then_some(Event::NegotiateMalformedDialects);
        let malformed = fine.is_none().then_some(Event::MalformedData);
        for e in events.into_iter().chain([nameless, malformed]).flatten() {
            self.report(turn, dir, 1, Some(id), e);
        }
        Some(id)
    }

    fn read_request1(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: &Block<'_>) -> Option<u64> {
        let request = if h.command == command::READ {
            (|| Some((b.u16(0)?, u64::from(b.u32(4)?), u32::from(b.u16(2)?))))()
        } else {
            (|| {
                let high = if b.words.len() >= 24 { u64::from(b.u32(20)?) } else { 0 };
                Some((b.u16(4)?, u64::from(b.u32(6)?) | high << 32, u32::from(b.u16(10)?)))
            })()
        };
        let Some((fid, offset, length)) = request else {
            self.report(turn, Direction::ToServer, 1, None, Event::MalformedData);
            return None;
        };
        let id = FileId::Smb1(fid);
        let access = Access { id, offset, session: u64::from(h.user), tree: u32::from(h.tree), tx: None, length };
        self.wait(turn, (1, h.key()), access);
        None
    }

    /// Handles a complete write: to a named pipe, in a chain, or with an old command.
    fn write1(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: &Block<'_>) -> Option<u64> {
        let dir = Direction::ToServer;
        let extent = if h.command == command::WRITE_ANDX {
            write_andx(b)
        } else {
            // A format byte, and for the older command a length.
            let skip = if h.command == command::WRITE { 3 } else { 1 };
            (|| {
                let (fid, len, offset) = (b.u16(0)?, u32::from(b.u16(2)?), u64::from(b.u32(4)?));
                Some(Extent { fid, offset, at: b.at + skip, len })
            })()
        };
        let Some(e) = extent else {
            self.report(turn, dir, 1, None, Event::MalformedData);
            return None;
        };
        let id = FileId::Smb1(e.fid);
        let (data, is_cut) = e.data(b);
        let is_pipe = self.tree1(h).map(|t| t.pipe);
        let tx = if is_pipe != Some(false)
            && let Some(tx) = self.pipe_request(turn, Self::seed1(h), id, data)
        {
            tx
        } else if is_pipe == Some(true) {
            None
        } else {
            let tx = self.file(turn, dir, Self::seed1(h), id);
            if let Some(tx) = tx {
                self.file_data(turn, tx, e.offset, data);
            }
            tx
        };
        let most = turn.cx.config.smb.max_write_size;
        if most > 0 && e.len > most {
            self.report(turn, dir, 1, tx, Event::WriteRequestTooLarge);
        }
        let (session, tree) = (u64::from(h.user), u32::from(h.tree));
        self.wait(turn, (1, h.key()), Access { id, offset: e.offset, session, tree, tx, length: e.len });
        if is_cut {
            self.report(turn, dir, 1, tx, Event::MalformedData);
        }
        if h.command == command::WRITE_AND_CLOSE {
            self.closed(turn, id);
        }
        tx
    }

    /// Handles a response. Returns its transaction; `n` is its index in a chain.
    fn response1(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: Block<'_>, n: usize) -> Option<u64> {
        let status = h.outcome();
        match h.command {
            command::READ_ANDX | command::READ => return self.read1(turn, h, &b, status),
            command::WRITE_ANDX | command::WRITE | command::WRITE_AND_CLOSE => {
                let access = self.accesses.remove(&(1, h.key()))?;
                if let Some(tx) = access.tx.and_then(|id| turn.tx(id)) {
                    tx.content.status = Some(status);
                    if !status.is_success() && tx.content.call().is_some() {
                        let id = tx.base.id;
                        self.answered(turn, id);
                    }
                }
                return access.tx;
            }
            _ => {}
        }
        let waiting = (0..ALIKE_MAX).map(|turn| key(h, n, turn)).filter_map(|k| Some((k, *self.requests.get(&k)?)));
        let (key, id) = match waiting.min_by_key(|w| w.1) {
            Some(found) => found,
            // A negotiation has one answer, whatever its number.
            None if h.command == command::NEGOTIATE => {
                let id = self.open_negotiation(turn)?;
                (turn.peek(id)?.content.key.filter(|k| k.0 == 1)?, id)
            }
            None => return None,
        };
        if status == Status::PENDING {
            return Some(id);
        }
        self.requests.remove(&key);
        if h.command == command::CLOSE
            && let Some(file) = turn.peek(id).and_then(|tx| tx.content.file)
        {
            self.closed(turn, file);
        }
        let unicode = h.is_unicode();
        let (mut connected, mut opened, mut dialect) = (None, None, None);
        let mut unoffered = false;
        let tx = turn.tx(id)?;
        let content = &mut tx.content;
        content.status = Some(status);
        if h.command != command::NEGOTIATE {
            if h.user != 0 {
                content.session = u64::from(h.user);
            }
            if h.tree != 0 {
                content.tree = u32::from(h.tree);
            }
        }
        let works = status.is_success() || status == Status::Nt(0xc000_0016);
        let fine = match &mut content.what {
            // As in Suricata, a refusal has a response with empty names.
            What::SessionSetup(s) if !works && b.words.is_empty() => {
                s.native[1] = Some(Default::default());
                Some(())
            }
            _ if !works => Some(()),
            What::Negotiate(n) => b.u16(0).map(|index| {
                dialect = n.dialects.get(usize::from(index)).cloned();
                unoffered = dialect.is_none();
                // With extended security, the response has the server's identity (MS-SMB section 2.2.4.5.2).
                let capabilities =
                    b.words.get(19..).and_then(|w| w.first_chunk()).map_or(0, |c| u32::from_le_bytes(*c));
                n.server_guid = b.bytes.first_chunk::<16>().copied().filter(|_| capabilities & 0x8000_0000 != 0);
            }),
            What::SessionSetup(s) => {
                s.native[1] = session_setup_response(&b, unicode);
                Some(())
            }
            What::TreeConnect(t) => b.string(0, false).map(|(service, _)| {
                t.pipe = service == b"IPC";
                connected = Some(Tree { name: t.share.clone(), pipe: t.pipe });
                if let Some(s) = &mut t.service {
                    s.1 = service;
                }
            }),
            What::Create(c) => create_response(&b).map(|(fid, times, size)| {
                (c.id, c.times, c.size) = (Some(FileId::Smb1(fid)), times, size);
                opened = Some((FileId::Smb1(fid), c.name.clone()));
            }),
            _ => Some(()),
        };
        if fine.is_none() {
            event(tx, Event::MalformedData);
        }
        if unoffered {
            event(tx, Event::NegotiateMalformedDialects);
        }
        if let Some(name) = dialect {
            self.dialect = String::from_utf8_lossy(&name).into_owned();
        }
        if let Some(tree) = connected {
            self.trees.insert(turn.cx.config.smb.max_tree_cache_size, (u64::from(h.user), u32::from(h.tree)), tree);
        }
        if let Some((file, name)) = opened {
            self.names.insert(turn.cx.config.smb.max_guid_cache_size, file, name);
        }
        if h.command == command::TRANS && turn.peek(id).is_some_and(|tx| tx.content.call().is_some()) {
            self.trans_response(turn, h, &b, id, status);
        } else {
            self.answered(turn, id);
        }
        Some(id)
    }

    /// Handles a complete response to a read.
    fn read1(&mut self, turn: &mut Turn<'_, '_>, h: Smb1, b: &Block<'_>, status: Status) -> Option<u64> {
        let dir = Direction::ToClient;
        let access = self.accesses.remove(&(1, h.key()))?;
        if !status.is_success() && status != Status::BUFFER_OVERFLOW {
            return None;
        }
        let extent = if h.command == command::READ_ANDX {
            read_andx(b, &access)
        } else {
            let FileId::Smb1(fid) = access.id else { return None };
            b.u16(0).map(|len| Extent { fid, offset: access.offset, at: b.at + 3, len: u32::from(len) })
        };
        let Some(e) = extent else {
            self.report(turn, dir, 1, None, Event::MalformedData);
            return None;
        };
        let (data, is_cut) = e.data(b);
        let (session, tree) = (access.session, access.tree);
        let seed = SmbTx { session, tree, status: Some(status), ..Self::seed1(h) };
        let is_pipe = self.trees.get(&(session, tree)).map(|t| t.pipe);
        if is_pipe != Some(false)
            && let Some(tx) = self.pipe_response(turn, Self::again(&seed), access.id, data, None)
        {
            return Some(tx);
        }
        if is_pipe == Some(true) {
            return None;
        }
        let tx = self.file(turn, dir, seed, access.id)?;
        if is_cut {
            self.report(turn, dir, 1, Some(tx), Event::MalformedData);
        }
        self.file_data(turn, tx, e.offset, data);
        Some(tx)
    }

    /// Copies the initial state of a transaction.
    fn again(seed: &SmbTx) -> SmbTx {
        let SmbTx { version, command, session, tree, status, .. } = *seed;
        SmbTx { version, command, session, tree, status, ..SmbTx::default() }
    }

    /// The negotiation without an answer. Its answer may have another number, and it may begin with SMB1 and continue with SMB2.
    pub(super) fn open_negotiation(&self, turn: &Turn<'_, '_>) -> Option<u64> {
        let id = self.negotiation_tx?;
        let tx = &turn.peek(id)?.content;
        (matches!(tx.what, What::Negotiate(_)) && tx.status.is_none()).then_some(id)
    }
}

/// The key that matches a response to its request. The requests of a chain share a number, and others can have the same one
/// (`turn`). Some servers put another process into the responses of commands that open a connection.
fn key(h: Smb1, n: usize, turn: u64) -> (u8, u64) {
    let opens = matches!(h.command, command::NEGOTIATE | command::SESSION_SETUP_ANDX | command::TREE_CONNECT_ANDX);
    let number = if opens { u64::from(h.message) } else { h.key() };
    (1, number | (n as u64 & 0xff) << 32 | turn << 40 | u64::from(h.command) << 48)
}

/// The key of a request outside a chain.
pub(super) fn request_key(h: Smb1) -> (u8, u64) {
    key(h, 0, 0)
}

/// The dialects of a negotiation (MS-CIFS section 2.2.4.52.1). As in Suricata, neither the length before them nor their format
/// matters, and one without an end is ignored.
fn dialects(b: &Block<'_>) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut rest = b.message.get(b.at..)?;
    while let Some((_, tail)) = rest.split_first()
        && let Some((name, behind)) = tail.iter().position(|c| *c == 0).and_then(|end| tail.split_at_checked(end))
        && all.len() < DIALECTS_MAX
    {
        rest = behind.get(1..)?;
        // Padding is no dialect.
        if !(name.is_empty() && rest.is_empty()) {
            all.push(name.to_vec());
        }
    }
    (!all.is_empty()).then_some(all)
}

/// MS-CIFS section 2.2.4.53.1, MS-SMB section 2.2.4.6.1.
fn session_setup(b: &Block<'_>, unicode: bool) -> Option<What> {
    let mut setup = Setup::default();
    if b.words.len() == 24 {
        let len = usize::from(b.u16(14)?);
        let blob = b.bytes.get(..len)?;
        let (os, next) = b.string(len, unicode)?;
        let (lm, _) = b.string(next, unicode).unwrap_or_default();
        setup.native[0] = Some((os, lm));
        return Some(What::SessionSetup(Box::new(setup)).with_token(blob));
    }
    if b.words.len() == 26 {
        // Passwords, account, domain, system.
        let skip = usize::from(b.u16(14)?) + usize::from(b.u16(16)?);
        let (_, next) = b.string(skip, unicode)?;
        let (_, next) = b.string(next, unicode)?;
        let (os, next) = b.string(next, unicode).unwrap_or_default();
        let (lm, _) = b.string(next, unicode).unwrap_or_default();
        setup.native[0] = Some((os, lm));
    }
    Some(What::SessionSetup(Box::new(setup)))
}

fn session_setup_response(b: &Block<'_>, unicode: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    let blob = if b.words.len() >= 8 { usize::from(b.u16(6)?) } else { 0 };
    let (os, next) = b.string(blob, unicode)?;
    let (lm, _) = b.string(next, unicode).unwrap_or_default();
    Some((os, lm))
}

/// Share and service.
fn tree_connect(b: &Block<'_>, unicode: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    let password = usize::from(b.u16(6)?);
    let (share, next) = b.string(password, unicode)?;
    let (service, _) = b.string(next, false)?;
    Some((share, service))
}

/// MS-CIFS section 2.2.4.64.1.
fn create(b: &Block<'_>, unicode: bool) -> Option<Create> {
    let disposition = b.words.get(35..)?.first_chunk().map(|d| u32::from_le_bytes(*d))?;
    let options = b.words.get(39..)?.first_chunk().map(|d| u32::from_le_bytes(*d))?;
    let (name, _) = b.string(0, unicode)?;
    let (directory, delete) = (options & 1 != 0, options & 0x1000 != 0);
    Some(Create { name, directory, delete, disposition, ..Create::default() })
}

/// File identifier, times, size.
fn create_response(b: &Block<'_>) -> Option<(u16, [u64; 4], u64)> {
    let mut r = Reader::little(b.words.get(5..)?);
    let fid = r.u16()?;
    r.u32()?;
    let times = [unix(r.u64()?), unix(r.u64()?), unix(r.u64()?), unix(r.u64()?)];
    r.take(12)?;
    let size = r.u64()?;
    Some((fid, times, size))
}

/// The old and the new name, each after a format byte.
fn rename(b: &Block<'_>, unicode: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    let (from, next) = b.string(1, unicode)?;
    let (to, _) = b.string(next + 1, unicode)?;
    Some((from, to))
}
