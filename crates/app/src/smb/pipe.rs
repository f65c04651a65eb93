//! DCE/RPC over named pipes.
//!
//! A pipe carries consecutive DCE/RPC messages, in pieces with arbitrary boundaries. A request becomes a call in the
//! transaction of the message that carried its end. The call number matches the response, whichever message carries it.

use std::collections::VecDeque;

use margay_flow::Direction;

use crate::cache::Holds;
use crate::dcerpc::call::{Association, Call};
use crate::dcerpc::pdu::{HEADER, Header, kind};

use super::parser::{Smb, Turn};
use super::tx::{FileId, SmbTx, What};

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

impl Pipe {
    fn add(&mut self, call: u32, tx: u64) {
        if self.calls.len() >= CALLS_MAX {
            self.calls.pop_front();
        }
        self.calls.push_back((call, tx));
    }
}

impl Holds for Pipe {
    fn holds(&self) -> usize {
        self.with.held()
            + self.partial.iter().map(Vec::capacity).sum::<usize>()
            + self.calls.capacity() * size_of::<(u32, u64)>()
    }
}

/// Whether data at offset `start` of `rest`, `len` bytes long, begins with a DCE/RPC message; `None` if too little of it has
/// arrived.
pub(super) fn sniff(rest: &[u8], start: u64, len: u64) -> Option<bool> {
    if len < HEADER as u64 {
        return Some(false);
    }
    let data = usize::try_from(start).ok().and_then(|n| rest.get(n..)).and_then(|d| d.get(..HEADER))?;
    Some(Header::read(data).is_some())
}

/// The call of a transaction.
fn call<'t>(turn: &'t Turn<'_, '_>, tx: u64) -> Option<&'t Call> {
    turn.peek(tx)?.content.call()
}

impl Smb {
    /// Handles a client's data on a pipe. Returns its transaction; `None` if the data is not DCE/RPC.
    pub(super) fn pipe_request(
        &mut self,
        turn: &mut Turn<'_, '_>,
        seed: SmbTx,
        id: FileId,
        data: &[u8],
    ) -> Option<Option<u64>> {
        let dir = Direction::ToServer;
        self.open_pipe(turn, id, data)?;
        let mut found = None;
        self.messages(turn, id, dir, data, |parser, turn, h, pdu| {
            if matches!(h.kind, kind::CO_CANCEL | kind::ORPHANED) {
                return;
            }
            let Some(pipe) = parser.pipes.get(&id) else { return };
            // A fragment continues an incomplete request.
            let open = pipe.calls.iter().rev().find(|c| c.0 == h.call).map(|c| c.1).filter(|tx| {
                !h.is_first() && call(turn, *tx).is_some_and(|c| !c.side(dir).done && c.side(dir).kind == Some(h.kind))
            });
            let tx = match open {
                Some(tx) => tx,
                None => {
                    let what = What::Dcerpc(Box::new(Call::new(h, true)));
                    let SmbTx { version, command, session, tree, .. } = seed;
                    let own = SmbTx { what, version, command, session, tree, file: Some(id), ..SmbTx::default() };
                    let Some(tx) = parser.make(turn, own) else { return };
                    tx
                }
            };
            parser.call_message(turn, id, tx, dir, h, pdu);
            // The third leg of authentication has no response.
            if let Some(pipe) = parser.pipes.get_mut(&id)
                && open.is_none()
                && h.kind != kind::AUTH3
            {
                pipe.add(h.call, tx);
            }
            found = Some(tx);
        });
        Some(found)
    }

    /// Handles a server's data on a pipe, in response to the message of transaction `of` or to a read. Returns its transaction.
    pub(super) fn pipe_response(
        &mut self,
        turn: &mut Turn<'_, '_>,
        seed: SmbTx,
        id: FileId,
        data: &[u8],
        of: Option<u64>,
    ) -> Option<u64> {
        let dir = Direction::ToClient;
        self.open_pipe(turn, id, data)?;
        let mut found = of;
        self.messages(turn, id, dir, data, |parser, turn, h, pdu| {
            if h.kind == kind::SHUTDOWN {
                return;
            }
            let Some(pipe) = parser.pipes.get(&id) else { return };
            let waits = |tx: &u64| call(turn, *tx).is_some_and(|c| c.id == h.call && !c.side(dir).done);
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
                    let Some(tx) = parser.make(turn, own) else { return };
                    if let Some(t) = turn.tx(tx) {
                        t.only(Direction::ToClient);
                    }
                    if let Some(pipe) = parser.pipes.get_mut(&id) {
                        pipe.add(h.call, tx);
                    }
                    tx
                }
            };
            if let Some(t) = turn.tx(tx)
                && seed.status.is_some()
            {
                t.content.status = seed.status;
            }
            parser.call_message(turn, id, tx, dir, h, pdu);
            found = Some(tx);
        });
        found
    }

    /// Begins a pipe, unless it is known, or its data is not DCE/RPC.
    fn open_pipe(&mut self, turn: &Turn<'_, '_>, id: FileId, data: &[u8]) -> Option<()> {
        if self.pipes.get(&id).is_none() {
            Header::read(data)?;
            self.pipes.insert(turn.cx.config.smb.max_dcerpc_frag_cache_size, id, Pipe::default());
        }
        Some(())
    }

    /// Adds a message to the call of a transaction.
    fn call_message(&mut self, turn: &mut Turn<'_, '_>, id: FileId, tx: u64, dir: Direction, h: Header, pdu: &[u8]) {
        let (Some(pipe), Some(t)) = (self.pipes.get_mut(&id), turn.tx(tx)) else { return };
        let What::Dcerpc(call) = &mut t.content.what else { return };
        let _ = call.message(&mut pipe.with, dir, h, pdu.get(HEADER..).unwrap_or(&[]));
        let done = call.side(dir).done;
        if h.kind == kind::REQUEST && dir == Direction::ToServer {
            // Rules for the response compare the operation with the next packet to the client.
            t.touch(Direction::ToClient);
        }
        if done {
            t.finish(dir);
        }
        if done && dir == Direction::ToClient {
            pipe.calls.retain(|c| c.1 != tx);
            self.answered(turn, tx);
        }
    }

    /// Reassembles messages and passes each to `f`.
    fn messages(
        &mut self,
        turn: &mut Turn<'_, '_>,
        id: FileId,
        dir: Direction,
        data: &[u8],
        mut f: impl FnMut(&mut Self, &mut Turn<'_, '_>, Header, &[u8]),
    ) {
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
            f(self, turn, h, pdu);
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
