//! Message headers.

use crate::reader::Reader;

/// The header of SMB1 (MS-CIFS section 2.2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Smb1 {
    pub command: u8,
    pub status: u32,
    pub flags: u8,
    pub flags2: u16,
    /// Tree identifier.
    pub tree: u16,
    /// Process identifier and multiplex identifier: together they match a response to its request.
    pub process: u16,
    pub message: u16,
    /// User identifier.
    pub user: u16,
}

impl Smb1 {
    pub(super) const LEN: usize = 32;
    /// Offset of the flags.
    pub(super) const FLAGS: usize = 9;
    /// Set in responses.
    pub(super) const REPLY: u8 = 0x80;

    /// Reads a header after its magic.
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

    /// The status of a response.
    pub(super) const fn outcome(self) -> Status {
        if self.flags2 & 0x4000 != 0 {
            Status::Nt(self.status)
        } else {
            Status::Dos { class: self.status as u8, code: (self.status >> 16) as u16 }
        }
    }

    /// The key that matches a response to its request.
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
    /// Offset of the next message from this header; 0 if there is none.
    pub next: u32,
    pub message: u64,
    /// Tree identifier; an asynchronous message has none.
    pub tree: Option<u32>,
    pub session: u64,
}

impl Smb2 {
    pub(super) const LEN: usize = 64;
    /// Offset of the lowest byte of the flags.
    pub(super) const FLAGS: usize = 16;
    /// Set in responses.
    pub(super) const RESPONSE: u8 = 1;

    /// Reads a header after its magic.
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

    /// Whether it uses the session, tree and file of the previous message.
    pub(super) const fn is_related(self) -> bool {
        self.flags & 4 != 0
    }
}

/// The status in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// MS-ERREF section 2.3.
    Nt(u32),
    /// MS-CIFS section 2.2.2.4.
    Dos { class: u8, code: u16 },
}

impl Status {
    /// The final response is still to come.
    pub(super) const PENDING: Status = Status::Nt(0x103);
    /// The output did not fit; the client can read the rest.
    pub(super) const BUFFER_OVERFLOW: Status = Status::Nt(0x8000_0005);

    pub(super) const fn is_success(self) -> bool {
        matches!(self, Status::Nt(0) | Status::Dos { class: 0, .. })
    }
}
