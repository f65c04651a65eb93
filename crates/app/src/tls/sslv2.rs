//! Messages of SSL 2.0 (The SSL Protocol, February 1995): the greeting that a client may begin with (RFC 5246 appendix
//! E.2), and what a server of that time answers.

use super::version::Version;

/// Types of messages.
pub(super) mod kind {
    pub(crate) const ERROR: u8 = 0;
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 4;
}

/// The head of a record: two bytes, or three with padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the head.
    pub(super) head: usize,
    /// Bytes behind it.
    pub(super) len: usize,
}

impl Head {
    /// Reads a head; `None` where there is too little of it.
    pub(super) fn read(data: &[u8]) -> Option<Head> {
        let &[a, b] = data.first_chunk::<2>()?;
        Some(if a & 0x80 != 0 {
            Head { head: 2, len: usize::from(a & 0x7f) << 8 | usize::from(b) }
        } else {
            Head { head: 3, len: usize::from(a & 0x3f) << 8 | usize::from(b) }
        })
    }
}

/// The version of a ClientHello, from behind the type, and whether its lengths fit.
pub(super) fn client_hello(body: &[u8]) -> Option<(Version, bool)> {
    let b = body.first_chunk::<8>()?;
    let number = |at: usize| usize::from(u16::from_be_bytes([b[at], b[at + 1]]));
    let (ciphers, session, challenge) = (number(2), number(4), number(6));
    let fits = ciphers % 3 == 0 && 8 + ciphers + session + challenge == body.len();
    Some((version(u16::from_be_bytes([b[0], b[1]])), fits))
}

/// A ServerHello, from behind the type: its version and its certificate.
pub(super) fn server_hello(body: &[u8]) -> Option<(Version, &[u8])> {
    let b = body.first_chunk::<10>()?;
    let len = usize::from(u16::from_be_bytes([b[4], b[5]]));
    Some((version(u16::from_be_bytes([b[2], b[3]])), body.get(10..10 + len)?))
}

/// SSL 2.0 has its number the other way round.
const fn version(sent: u16) -> Version {
    if sent == 0x0002 { Version::SSL2 } else { Version(sent) }
}
