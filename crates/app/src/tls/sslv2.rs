//! Messages of SSL 2.0 (The SSL Protocol, February 1995): the compatible ClientHello (RFC 5246 appendix E.2), and the
//! ServerHello of that version.

use super::version::Version;

/// Types of messages.
pub(super) mod kind {
    pub(crate) const ERROR: u8 = 0;
    pub(crate) const CLIENT_HELLO: u8 = 1;
    pub(crate) const SERVER_HELLO: u8 = 4;
}

/// Whether a record can begin with this byte. Without both bits it is a short record with padding, which no implementation
/// sends.
pub(super) const fn begins_with(first: u8) -> bool {
    first & 0xc0 != 0
}

/// A record header: two bytes, or three with padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Length of the header.
    pub(super) head: usize,
    /// Length of the content.
    pub(super) len: usize,
}

impl Head {
    /// Reads a header; `None` if it is incomplete.
    pub(super) fn read(data: &[u8]) -> Option<Head> {
        let &[a, b] = data.first_chunk::<2>()?;
        Some(if a & 0x80 != 0 {
            Head { head: 2, len: usize::from(a & 0x7f) << 8 | usize::from(b) }
        } else {
            Head { head: 3, len: usize::from(a & 0x3f) << 8 | usize::from(b) }
        })
    }
}

/// Reads a ClientHello after its type: the version, and whether its lengths are consistent.
pub(super) fn client_hello(body: &[u8]) -> Option<(Version, bool)> {
    let b = body.first_chunk::<8>()?;
    let number = |at: usize| usize::from(u16::from_be_bytes([b[at], b[at + 1]]));
    let (ciphers, session, challenge) = (number(2), number(4), number(6));
    let fits = ciphers % 3 == 0 && 8 + ciphers + session + challenge == body.len();
    Some((version(u16::from_be_bytes([b[0], b[1]])), fits))
}

/// Reads a ServerHello after its type: the version and the certificate.
pub(super) fn server_hello(body: &[u8]) -> Option<(Version, &[u8])> {
    let b = body.first_chunk::<10>()?;
    let len = usize::from(u16::from_be_bytes([b[4], b[5]]));
    Some((version(u16::from_be_bytes([b[2], b[3]])), body.get(10..10 + len)?))
}

/// SSL 2.0 has its version bytes in reverse order.
const fn version(sent: u16) -> Version {
    if sent == 0x0002 { Version::SSL2 } else { Version(sent) }
}
