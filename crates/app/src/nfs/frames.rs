//! Frames of calls and replies.

use margay_flow::Direction;

use super::tx::Exchange;
use crate::bytes::be32;
use crate::conversation::Turn;

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

const PDU_FRAME: u8 = 0;
const HEADER_FRAME: u8 = 1;
const DATA_FRAME: u8 = 2;
const CREDS_FRAME: u8 = 3;
const NFS_FRAME: u8 = 4;
const STATUS_FRAME: u8 = 5;
/// Offset of version 4's frame types; a compound has a header before its operations.
const V4_FRAMES: u8 = 2;
const V4_HEADER_FRAME: u8 = 7;
const V4_OPERATIONS_FRAME: u8 = 8;
const V4_STATUS_FRAME: u8 = 9;

/// Offset of a call's credentials: flavor, length and body.
const CREDS_AT: usize = 24;
/// Length of a message's number and type.
const RPC_HEADER: usize = 8;

/// Marks a call whose last `args` bytes are the arguments. The message begins at offset `at` of the turn's message.
pub(super) fn call(turn: &mut Turn<'_, '_, Exchange>, version: u32, at: usize, message: &[u8], args: usize) {
    let creds = 8 + be32(message, CREDS_AT + 4).unwrap_or(0) as usize;
    turn.frame(TS, PDU_FRAME, 0, at + message.len(), None);
    turn.frame(TS, CREDS_FRAME, at + CREDS_AT, creds, None);
    mark(turn, TS, version, at, message, args);
}

/// Marks a reply, with the version of its call if known, and the length of its results if there are any.
pub(super) fn reply(
    turn: &mut Turn<'_, '_, Exchange>,
    version: Option<u32>,
    at: usize,
    message: &[u8],
    results: Option<usize>,
) {
    turn.frame(TC, PDU_FRAME, 0, at + message.len(), None);
    turn.frame(TC, HEADER_FRAME, 0, at + RPC_HEADER, None);
    turn.frame(TC, DATA_FRAME, at + RPC_HEADER, message.len().saturating_sub(RPC_HEADER), None);
    if let (Some(version), Some(results)) = (version, results) {
        mark(turn, TC, version, at, message, results);
    }
}

/// Marks the last `len` bytes of an RPC message. The message begins at offset `at` of the turn's message.
fn mark(turn: &mut Turn<'_, '_, Exchange>, dir: Direction, version: u32, at: usize, message: &[u8], len: usize) {
    let body = at + message.len() - len;
    let v4 = version == 4;
    turn.frame(dir, NFS_FRAME + if v4 { V4_FRAMES } else { 0 }, body, len, None);
    if len < 4 {
        return;
    }
    if dir == TC {
        turn.frame(dir, if v4 { V4_STATUS_FRAME } else { STATUS_FRAME }, body, 4, None);
    }
    if v4 {
        // Before its operations, a call has a tag and a version, a reply a status and a tag.
        let text = |n: usize| be32(message, message.len() - len + n).map_or(0, |t| (t as usize).next_multiple_of(4));
        let head = 8usize.saturating_add(text(if dir == TS { 0 } else { 4 }));
        if head < len {
            turn.frame(dir, V4_HEADER_FRAME, body, head, None);
            turn.frame(dir, V4_OPERATIONS_FRAME, body + head, len - head, None);
        }
    }
}
