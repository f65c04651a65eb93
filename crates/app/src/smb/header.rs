//! Headers of messages.

use crate::dcerpc::bytes::Reader;

/// The header of SMB1 (MS-CIFS section 2.2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Smb1 {
    pub command: u8,
    pub status: u32,
    pub flags: u8,
    pub flags2: u16,
    /// Of the connection to a share.
    pub tree: u16,
    /// Of a process, and of its message: tells which request a response is to.
    pub process: u16,
    pub message: u16,
    /// Of the user.
    pub user: u16,
}

impl Smb1 {
    pub(super) const LEN: usize = 32;
    /// Place of the flags.
    pub(super) const FLAGS: usize = 9;
    /// Set in responses.
    pub(super) const REPLY: u8 = 0x80;

    /// Reads one behind its magic.
    pub(super) fn read(message: &[u8]) -> Option<Smb1> {
        let mut r = Reader::little(message.get(..Self::LEN)?);
        r.take(4)?;
        let (command, status, flags, flags2) = (r.u8()?, r.u32()?, r.u8()?, r.u16()?);
        r.take(12)?;
        let (tree, process, user, message) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        Some(Smb1 { command, status, flags, flags2, tree, process, message, user })
    }

    pub(super) const fn is_response(self) -> bool {
        self.flags & Self::REPLY != 0
    }

    pub(super) const fn is_unicode(self) -> bool {
        self.flags2 & 0x8000 != 0
    }

    /// What it says came of the request.
    pub(super) const fn outcome(self) -> Status {
        if self.flags2 & 0x4000 != 0 {
            Status::Nt(self.status)
        } else {
            Status::Dos { class: self.status as u8, code: (self.status >> 16) as u16 }
        }
    }

    /// Tells which request a response is to.
    pub(super) const fn key(self) -> u64 {
        (self.process as u64) << 16 | self.message as u64
    }
}

/// The header of SMB2 (MS-SMB2 section 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Smb2 {
    pub command: u16,
    pub status: u32,
    pub flags: u32,
    /// Where the next message begins, from here; 0 for none.
    pub next: u32,
    pub message: u64,
    /// Of the connection to a share; where the message is asynchronous there is none.
    pub tree: Option<u32>,
    pub session: u64,
}

impl Smb2 {
    pub(super) const LEN: usize = 64;
    /// Place of the lowest flags.
    pub(super) const FLAGS: usize = 16;
    /// Set in responses.
    pub(super) const RESPONSE: u8 = 1;

    /// Reads one behind its magic.
    pub(super) fn read(message: &[u8]) -> Option<Smb2> {
        let mut r = Reader::little(message.get(..Self::LEN)?);
        r.take(8)?;
        let (status, command) = (r.u32()?, r.u16()?);
        r.take(2)?;
        let (flags, next, message) = (r.u32()?, r.u32()?, r.u64()?);
        r.u32()?;
        let tree = r.u32()?;
        let session = r.u64()?;
        let tree = (flags & 2 == 0).then_some(tree);
        Some(Smb2 { command, status, flags, next, message, tree, session })
    }

    pub(super) const fn is_response(self) -> bool {
        self.flags & Self::RESPONSE as u32 != 0
    }

    /// Whether it is for the session, tree and file of the one before it.
    pub(super) const fn is_related(self) -> bool {
        self.flags & 4 != 0
    }
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// MS-ERREF section 2.3.
    Nt(u32),
    /// MS-CIFS section 2.2.2.4.
    Dos { class: u8, code: u16 },
}

impl Status {
    /// More will come: the request is not yet answered.
    pub(super) const PENDING: Status = Status::Nt(0x103);
    /// What there is did not fit: the rest can be read.
    pub(super) const BUFFER_OVERFLOW: Status = Status::Nt(0x8000_0005);

    pub(super) const fn is_success(self) -> bool {
        matches!(self, Status::Nt(0) | Status::Dos { class: 0, .. })
    }
}
