//! DCE/RPC over named pipes.
//!
//! A pipe carries consecutive DCE/RPC messages, in pieces with arbitrary boundaries. A request becomes a call in the
//! transaction of the message that carried its end. The call number matches the response, whichever message carries it.

use std::collections::VecDeque;

use margay_flow::Direction;

use crate::dcerpc::call::{Association, Call};
use crate::dcerpc::pdu::{HEADER, Header, kind};
use crate::parser::Parse;

use super::parser::SmbParser;
use super::tx::{FileId, SmbTx, What};
use crate::cache::Holds;

/// The limit of a pipe's open calls; the oldest are dropped.
const CALLS_MAX: usize = 64;
/// The limit of messages read from one piece.
const MESSAGES_MAX: usize = 1024;

/// A named pipe that carries DCE/RPC.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    with: Association,
    /// By direction: an incomplete message.
    partial: [Vec<u8>; 2],
    /// Open calls: number and transaction.
    calls: VecDeque<(u32, u64)>,
}

impl Holds for Pipe {
    fn holds(&self) -> usize {
        self.with.held()
            + self.partial.iter().map(Vec::capacity).sum::<usize>()
            + self.calls.capacity() * size_of::<(u32, u64)>()
    }
}

/// Whether data at offset `start` of `rest`, `len` bytes long, begins with a DCE/RPC message. The check needs `need` bytes;
/// `None` if they have not arrived.
pub(super) fn sniff(rest: &[u8], start: u64, len: u64, need: usize) -> Option<bool> {
    if len < need as u64 {
        return Some(false);
    }
    let data = usize::try_from(start).ok().and_then(|n| rest.get(n..)).and_then(|d| d.get(..need))?;
    Some(Header::read(data).is_some())
}

impl SmbParser {
    /// Handles a client's data on a pipe. Returns its transaction; `None` if the data is not DCE/RPC.
    pub(super) fn pipe_request(
        &mut self,
        cx: &mut Parse<'_>,
        seed: SmbTx,
        id: FileId,
        data: &[u8],
    ) -> Option<Option<u64>> {
        let dir = Direction::ToServer;
        if self.pipes.get(&id).is_none() {
            Header::read(data)?;
            self.pipes.insert(cx.config.smb.max_dcerpc_frag_cache_size, id, Pipe::default());
        }
        let mut found = None;
        self.messages(id, dir, data, |parser, h, pdu| {
            if matches!(h.kind, kind::CO_CANCEL | kind::ORPHANED) {
                return;
            }
            let Some(pipe) = parser.pipes.get(&id) else { return };
            // A fragment continues an incomplete request.
            let open = pipe.calls.iter().rev().find(|c| c.0 == h.call).map(|c| c.1).filter(|tx| {
                !h.is_first() && parser.call(*tx).is_some_and(|c| !c.side(dir).done && c.side(dir).kind == Some(h.kind))
            });
            let tx = match open {
                Some(tx) => tx,
                None => {
                    let what = What::Dcerpc(Box::new(Call::new(h, true)));
                    let SmbTx { version, command, session, tree, .. } = seed;
                    let own = SmbTx { what, version, command, session, tree, file: Some(id), ..SmbTx::default() };
                    let Some(tx) = parser.make(cx, own) else { return };
                    tx
                }
            };
            parser.call_message(id, tx, dir, h, pdu);
            // The third leg of authentication has no response.
            if let Some(pipe) = parser.pipes.get_mut(&id)
                && open.is_none()
                && h.kind != kind::AUTH3
            {
                if pipe.calls.len() >= CALLS_MAX {
                    pipe.calls.pop_front();
                }
                pipe.calls.push_back((h.call, tx));
            }
            found = Some(tx);
        });
        Some(found)
    }

    /// Handles a server's data on a pipe, in response to the message of transaction `of` or to a read. Returns its transaction.
    pub(super) fn pipe_response(
        &mut self,
        cx: &mut Parse<'_>,
        seed: SmbTx,
        id: FileId,
        data: &[u8],
        of: Option<u64>,
    ) -> Option<u64> {
        let dir = Direction::ToClient;
        if self.pipes.get(&id).is_none() {
            Header::read(data)?;
            self.pipes.insert(cx.config.smb.max_dcerpc_frag_cache_size, id, Pipe::default());
        }
        let mut found = of;
        self.messages(id, dir, data, |parser, h, pdu| {
            if h.kind == kind::SHUTDOWN {
                return;
            }
            let Some(pipe) = parser.pipes.get(&id) else { return };
            let waits = |tx: &u64| parser.call(*tx).is_some_and(|c| c.id == h.call && !c.side(dir).done);
            let call =
                of.filter(waits).or_else(|| pipe.calls.iter().filter(|c| c.0 == h.call).map(|c| c.1).find(waits));
            let tx = match call {
                Some(tx) => tx,
                // Without its request it says nothing.
                None if h.kind == kind::BIND_ACK => return,
                None => {
                    let what = What::Dcerpc(Box::new(Call::new(h, true)));
                    let SmbTx { version, command, session, tree, status, .. } = seed;
                    let own = SmbTx { what, version, command, session, tree, status, ..SmbTx::default() };
                    let Some(tx) = parser.make(cx, own) else { return };
                    if let Some(t) = parser.get(tx) {
                        t.base.one_sided(Direction::ToServer, super::COMPLETE);
                    }
                    if let Some(pipe) = parser.pipes.get_mut(&id) {
                        if pipe.calls.len() >= CALLS_MAX {
                            pipe.calls.pop_front();
                        }
                        pipe.calls.push_back((h.call, tx));
                    }
                    tx
                }
            };
            if let Some(t) = parser.get(tx)
                && seed.status.is_some()
            {
                t.status = seed.status;
            }
            parser.call_message(id, tx, dir, h, pdu);
            found = Some(tx);
        });
        found
    }

    /// The pipe of a transaction's request.
    pub(super) fn piped(&self, tx: u64) -> Option<FileId> {
        self.peek(tx)?.file
    }

    fn call(&self, tx: u64) -> Option<&Call> {
        self.peek(tx)?.call()
    }

    /// Adds a message to the call of a transaction.
    fn call_message(&mut self, id: FileId, tx: u64, dir: Direction, h: Header, pdu: &[u8]) {
        let Some(mut pipe) = self.pipes.get_mut(&id).map(|p| std::mem::take(&mut p.with)) else { return };
        let mut done = false;
        if let Some(t) = self.get(tx)
            && let What::Dcerpc(call) = &mut t.what
        {
            let _ = call.message(&mut pipe, dir, h, pdu.get(HEADER..).unwrap_or(&[]));
            if h.kind == kind::REQUEST && dir == Direction::ToServer {
                // Rules for the response compare the operation with the next packet to the client.
                t.base.touch(Direction::ToClient);
            }
            done = call.side(dir).done;
            if done {
                t.base.advance(dir, super::COMPLETE);
            }
        }
        if let Some(p) = self.pipes.get_mut(&id) {
            p.with = pipe;
            if done && dir == Direction::ToClient {
                p.calls.retain(|c| c.1 != tx);
            }
        }
        if done && dir == Direction::ToClient {
            self.answered(tx);
        }
    }

    /// Reassembles messages and passes each to `f`.
    fn messages(&mut self, id: FileId, dir: Direction, data: &[u8], mut f: impl FnMut(&mut Self, Header, &[u8])) {
        let Some(pipe) = self.pipes.get_mut(&id) else { return };
        let before = pipe.holds();
        let mut joined = std::mem::take(&mut pipe.partial[dir.index()]);
        let mut rest = if joined.is_empty() {
            data
        } else {
            joined.extend_from_slice(data);
            &joined
        };
        for _ in 0..MESSAGES_MAX {
            let Some(h) = Header::read(rest) else {
                // Less than a header may be the beginning of a message.
                if rest.len() >= HEADER {
                    rest = &[];
                }
                break;
            };
            let Some((pdu, behind)) = rest.split_at_checked(usize::from(h.length)) else { break };
            f(self, h, pdu);
            rest = behind;
        }
        // At most the length of a message.
        let left = rest.get(..usize::from(u16::MAX)).unwrap_or(rest).to_vec();
        if let Some(pipe) = self.pipes.get_mut(&id) {
            pipe.partial[dir.index()] = left;
            let now = pipe.holds();
            self.pipes.changed(before, now);
        }
    }
}
