//! Compounds of version 4 (RFC 7530 section 16, RFC 8881 section 18): a sequence of operations on the current file.
//!
//! An unknown operation ends the parsing, because its length is unknown.

use super::calls::{Chunk, HANDLE_MAX, NAME_MAX};
use super::tx::OPERATIONS_MAX;
use super::xdr::Xdr;

/// Length of a state id (RFC 7530 section 2.2.16).
const STATEID: usize = 16;
/// Length of a directory's change information (section 2.2.11).
const CHANGE: usize = 20;
/// The limit of a tag, an owner, or attributes.
const OPAQUE_MAX: usize = 64 << 10;

const ACCESS: u32 = 3;
const CLOSE: u32 = 4;
const COMMIT: u32 = 5;
const CREATE: u32 = 6;
const DELEGRETURN: u32 = 8;
const GETATTR: u32 = 9;
const GETFH: u32 = 10;
const LINK: u32 = 11;
const LOOKUP: u32 = 15;
const LOOKUPP: u32 = 16;
const OPEN: u32 = 18;
const OPEN_CONFIRM: u32 = 20;
const PUTFH: u32 = 22;
const PUTPUBFH: u32 = 23;
const PUTROOTFH: u32 = 24;
const READ: u32 = 25;
const READDIR: u32 = 26;
const READLINK: u32 = 27;
const REMOVE: u32 = 28;
const RENAME: u32 = 29;
const RENEW: u32 = 30;
const RESTOREFH: u32 = 31;
const SAVEFH: u32 = 32;
const SECINFO: u32 = 33;
const SETATTR: u32 = 34;
const SETCLIENTID_CONFIRM: u32 = 36;
const WRITE: u32 = 38;
const SEQUENCE: u32 = 53;
const RECLAIM_COMPLETE: u32 = 58;

/// The request of a compound.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) operations: Vec<u32>,
    /// The initial file of the compound.
    pub(super) handle: &'a [u8],
    /// The last name that was looked up, opened, created or removed.
    pub(super) name: &'a [u8],
    /// A new name.
    pub(super) to: &'a [u8],
    /// Offset of a read.
    pub(super) offset: u64,
    /// Data of a write.
    pub(super) chunk: Option<Chunk<'a>>,
    /// The file is closed, or its data is committed.
    pub(super) ends: bool,
}

/// The results of a compound.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    pub(super) status: u32,
    /// The requested handle.
    pub(super) handle: &'a [u8],
    /// Data of a read.
    pub(super) chunk: Option<Chunk<'a>>,
}

/// The operation that represents a compound in events: the first one on a file or a name, or the last one.
pub(super) fn leading(operations: &[u32]) -> u32 {
    let does = |op: &&u32| {
        matches!(**op, WRITE | READ | OPEN | CREATE | REMOVE | RENAME | LINK | SETATTR | CLOSE | LOOKUP | READDIR)
    };
    operations.iter().find(does).or(operations.last()).copied().unwrap_or(1)
}

fn attributes(xdr: &mut Xdr<'_>) -> Option<()> {
    xdr.skip_words()?;
    xdr.opaque(OPAQUE_MAX).map(|_| ())
}

/// Reads the arguments of OPEN (RFC 7530 section 16.16): the name, if the file is identified by name.
fn open_args<'a>(xdr: &mut Xdr<'a>) -> Option<&'a [u8]> {
    // Sequence number, access, deny bits, and the owner's client.
    xdr.bytes(20)?;
    xdr.opaque(OPAQUE_MAX)?;
    if xdr.u32()? == 1 {
        match xdr.u32()? {
            0 | 1 => attributes(xdr)?,
            2 => xdr.bytes(8).map(|_| ())?,
            3 => {
                xdr.bytes(8)?;
                attributes(xdr)?;
            }
            _ => return None,
        }
    }
    match xdr.u32()? {
        0 | 3 => xdr.opaque(NAME_MAX),
        1 => xdr.u32().map(|_| &[][..]),
        2 => {
            xdr.bytes(STATEID)?;
            xdr.opaque(NAME_MAX)
        }
        4 | 6 => Some(&[]),
        5 => xdr.bytes(STATEID).map(|_| &[][..]),
        _ => None,
    }
}

/// Reads the results of OPEN, including an optional delegation.
fn open_results(xdr: &mut Xdr<'_>) -> Option<()> {
    xdr.bytes(STATEID + CHANGE + 4)?;
    xdr.skip_words()?;
    let ace = |xdr: &mut Xdr<'_>| {
        xdr.bytes(12)?;
        xdr.opaque(OPAQUE_MAX).map(|_| ())
    };
    match xdr.u32()? {
        0 => {}
        1 => {
            xdr.bytes(STATEID + 4)?;
            ace(xdr)?;
        }
        2 => {
            // With a space limit.
            xdr.bytes(STATEID + 4 + 12)?;
            ace(xdr)?;
        }
        3 => {
            if matches!(xdr.u32()?, 1 | 2) {
                xdr.u32()?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// Reads a call. `None` if its beginning is invalid.
pub(super) fn asked<'a>(mut xdr: Xdr<'a>) -> Option<Asked<'a>> {
    xdr.opaque(OPAQUE_MAX)?;
    xdr.u32()?;
    let count = xdr.u32()? as usize;
    let mut asked = Asked::default();
    for _ in 0..count.min(OPERATIONS_MAX) {
        let Some(op) = xdr.u32() else { break };
        asked.operations.push(op);
        if operation(&mut asked, op, &mut xdr).is_none() {
            break;
        }
    }
    Some(asked)
}

/// Reads the arguments of an operation; `None` if it is unknown, or the message is truncated.
fn operation<'a>(asked: &mut Asked<'a>, op: u32, xdr: &mut Xdr<'a>) -> Option<()> {
    match op {
        GETFH | LOOKUPP | PUTPUBFH | PUTROOTFH | READLINK | RESTOREFH | SAVEFH => {}
        ACCESS | RECLAIM_COMPLETE => {
            xdr.u32()?;
        }
        CLOSE => {
            asked.ends = true;
            xdr.bytes(4 + STATEID)?;
        }
        COMMIT => {
            asked.ends = true;
            xdr.bytes(12)?;
        }
        CREATE => {
            match xdr.u32()? {
                // A link has its target, a device its numbers.
                5 => xdr.opaque(NAME_MAX).map(|_| ())?,
                3 | 4 => xdr.bytes(8).map(|_| ())?,
                _ => {}
            }
            asked.name = xdr.opaque(NAME_MAX)?;
            attributes(xdr)?;
        }
        DELEGRETURN => xdr.bytes(STATEID).map(|_| ())?,
        GETATTR => xdr.skip_words()?,
        LINK | LOOKUP | REMOVE | SECINFO => asked.name = xdr.opaque(NAME_MAX)?,
        OPEN => asked.name = open_args(xdr)?,
        OPEN_CONFIRM => xdr.bytes(STATEID + 4).map(|_| ())?,
        PUTFH => {
            let handle = xdr.opaque(HANDLE_MAX)?;
            if asked.handle.is_empty() {
                asked.handle = handle;
            }
        }
        READ => {
            xdr.bytes(STATEID)?;
            asked.offset = xdr.u64()?;
            xdr.u32()?;
        }
        READDIR => {
            xdr.bytes(24)?;
            xdr.skip_words()?;
        }
        RENAME => {
            asked.name = xdr.opaque(NAME_MAX)?;
            asked.to = xdr.opaque(NAME_MAX)?;
        }
        RENEW => xdr.bytes(8).map(|_| ())?,
        SETATTR => {
            xdr.bytes(STATEID)?;
            attributes(xdr)?;
        }
        SETCLIENTID_CONFIRM => xdr.bytes(16).map(|_| ())?,
        SEQUENCE => xdr.bytes(32).map(|_| ())?,
        WRITE => {
            xdr.bytes(STATEID)?;
            let offset = xdr.u64()?;
            let synced = xdr.u32()? != 0;
            let (len, data) = xdr.beginning()?;
            // Only one write is followed.
            if asked.chunk.is_none() {
                asked.chunk = Some(Chunk { offset, len, data, end: false, synced });
            }
        }
        _ => return None,
    }
    Some(())
}

/// Reads the reply to a call that reads from `offset`.
pub(super) fn given<'a>(mut xdr: Xdr<'a>, offset: u64) -> Option<Given<'a>> {
    let mut given = Given { status: xdr.u32()?, ..Given::default() };
    xdr.opaque(OPAQUE_MAX)?;
    let count = xdr.u32()? as usize;
    for _ in 0..count.min(OPERATIONS_MAX) {
        if result(&mut given, offset, &mut xdr).is_none() {
            break;
        }
    }
    Some(given)
}

fn result<'a>(given: &mut Given<'a>, offset: u64, xdr: &mut Xdr<'a>) -> Option<()> {
    let (op, status) = (xdr.u32()?, xdr.u32()?);
    if status != 0 {
        return None;
    }
    match op {
        LOOKUP | LOOKUPP | PUTFH | PUTPUBFH | PUTROOTFH | RESTOREFH | SAVEFH | RENEW | DELEGRETURN
        | SETCLIENTID_CONFIRM | RECLAIM_COMPLETE => {}
        ACCESS => xdr.bytes(8).map(|_| ())?,
        CLOSE | OPEN_CONFIRM => xdr.bytes(STATEID).map(|_| ())?,
        COMMIT => xdr.bytes(8).map(|_| ())?,
        CREATE => {
            xdr.bytes(CHANGE)?;
            xdr.skip_words()?;
        }
        GETATTR => attributes(xdr)?,
        GETFH => given.handle = xdr.opaque(HANDLE_MAX)?,
        LINK | REMOVE => xdr.bytes(CHANGE).map(|_| ())?,
        RENAME => xdr.bytes(2 * CHANGE).map(|_| ())?,
        OPEN => open_results(xdr)?,
        READ => {
            let end = xdr.u32()? != 0;
            let (len, data) = xdr.beginning()?;
            if given.chunk.is_none() {
                given.chunk = Some(Chunk { offset, len, data, end, synced: false });
            }
        }
        READLINK => xdr.opaque(OPAQUE_MAX).map(|_| ())?,
        SETATTR => xdr.skip_words()?,
        SEQUENCE => xdr.bytes(36).map(|_| ())?,
        WRITE => xdr.bytes(16).map(|_| ())?,
        _ => return None,
    }
    Some(())
}
