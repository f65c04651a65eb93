//! Replies (RFC 5321, section 4.2).

/// Codes in use, sorted: RFC 5321 (section 4.2.3), RFC 4954 (section 6, authentication), RFC 7504, and 401, 402 and 435, which
/// older servers send.
const KNOWN: [u16; 38] = [
    211, 214, 220, 221, 235, 250, 251, 252, 334, 354, 401, 402, 421, 432, 435, 450, 451, 452, 454, 455, 500, 501, 502,
    503, 504, 521, 525, 530, 534, 535, 538, 550, 551, 552, 553, 554, 555, 556,
];

/// A line of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    /// Its code.
    pub code: u16,
    /// Whether it is the last line of the reply.
    pub last: bool,
}

impl Reply {
    /// Reads a line, without its line break; `None` if it does not begin with a code.
    pub(super) fn read(line: &[u8]) -> Option<Reply> {
        let &[a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', ref rest @ ..] = line else { return None };
        let digit = |d: u8| u16::from(d - b'0');
        Some(Reply { code: digit(a) * 100 + digit(b) * 10 + digit(c), last: rest.first() != Some(&b'-') })
    }

    /// Whether the code is in use.
    pub(super) fn known(&self) -> bool {
        KNOWN.binary_search(&self.code).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        for (line, want) in [
            (&b"250 ok"[..], Some((250, true))),
            (b"250-mx", Some((250, false))),
            (b"354", Some((354, true))),
            (b"250what", Some((250, true))),
            (b"25", None),
            (b"999 x", None),
            (b"abc", None),
        ] {
            assert_eq!(Reply::read(line).map(|r| (r.code, r.last)), want);
        }
        assert!(KNOWN.is_sorted());
        assert!(Reply { code: 535, last: true }.known() && !Reply { code: 472, last: true }.known());
    }
}
