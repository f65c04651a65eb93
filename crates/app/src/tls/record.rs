//! Record headers (RFC 8446 section 5.1, RFC 5246 section 6.2.1).

use super::version::Version;

/// Length of a record header.
pub(super) const HEAD_LEN: usize = 5;
/// The maximum record length of RFC 5246 section 6.2.3, including encryption.
pub(super) const RECORD_MAX: usize = (1 << 14) + 2048;

/// Types of records.
pub(super) mod kind {
    pub(crate) const CHANGE_CIPHER: u8 = 20;
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
    pub(crate) const HEARTBEAT: u8 = 24;
}

/// A record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Type: one of [`kind`], if known.
    pub(super) kind: u8,
    /// Version.
    pub(super) version: Version,
    /// Length of the content.
    pub(super) len: usize,
}

impl Head {
    /// Reads a header; `None` if it is incomplete.
    pub(super) fn read(data: &[u8]) -> Option<Head> {
        let b = data.first_chunk::<HEAD_LEN>()?;
        Some(Head {
            kind: b[0],
            version: Version(u16::from_be_bytes([b[1], b[2]])),
            len: usize::from(u16::from_be_bytes([b[3], b[4]])),
        })
    }

    /// Whether the type is known.
    pub(super) const fn is_known(self) -> bool {
        matches!(self.kind, kind::CHANGE_CIPHER..=kind::HEARTBEAT)
    }
}
