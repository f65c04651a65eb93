//! Replies (RFC 5321, section 4.2).

/// Codes outside the syntax that filters for spam send.
const FILTERS: [u16; 2] = [471, 571];

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

    /// Whether the code may be in use: by its syntax, because extensions add codes and clients decide by the first digit
    /// (RFC 5321, sections 4.2 and 4.2.1). Of those that end in 00, only 500 has a meaning.
    pub(super) fn known(&self) -> bool {
        let fits = (200..600).contains(&self.code) && self.code / 10 % 10 <= 5;
        fits && (!self.code.is_multiple_of(100) || self.code == 500) || FILTERS.contains(&self.code)
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
        let known = |code| Reply { code, last: true }.known();
        // 353 is of PRDR, 458 of ETRN (RFC 1985).
        assert!([211, 253, 353, 458, 523, 535, 559, 471, 571].map(known) == [true; 9]);
        assert!([100, 199, 260, 400, 472, 599].map(known) == [false; 6]);
    }
}
