//! The chunked coding (RFC 9112, section 7.1), including the forms of careless servers.

use super::headers::space;

/// The position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// At a size line.
    Size,
    /// In data, with this many bytes left.
    Data(u64),
    /// After data, at its line end.
    End,
}

/// The content of a size line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// The size; `None` if it is invalid.
    pub len: Option<u64>,
    /// An extension follows it.
    pub extension: bool,
    /// Nothing follows it, except white space and an extension.
    pub is_alone: bool,
}

/// Whether a line before a size is skipped: it has only white space.
pub(super) fn blank(line: &[u8]) -> bool {
    trimmed(line).is_empty()
}

/// Whether a size may still follow the beginning of a line: it has at most white space and a sign.
pub(super) fn may_begin(line: &[u8]) -> bool {
    matches!(trimmed(line), b"" | b"+")
}

fn trimmed(line: &[u8]) -> &[u8] {
    super::headers::trim_by(line, |b| space(b) || b == 0)
}

/// As [`size`], for a line of one to seven hexadecimal digits and nothing else. `None` for any other, and for the last chunk's 0.
pub(super) fn usual_size(line: &[u8]) -> Option<u64> {
    if line.len() > 7 {
        return None;
    }
    let add = |number, &b: &u8| Some(number << 4 | u64::from((b as char).to_digit(16)?));
    line.iter().try_fold(0, add).filter(|&number| number > 0)
}

/// Reads a size line: white space, then hexadecimal digits; the rest is ignored.
pub(super) fn size(line: &[u8]) -> Size {
    let line = trimmed(line);
    // Python's `int` accepts a sign, a prefix and underscores between digits; other clients reject the chunk.
    let line = line.strip_prefix(b"+").unwrap_or(line);
    let line = match line {
        [b'0', b'x' | b'X', rest @ ..] if rest.first().is_some_and(u8::is_ascii_hexdigit) => rest,
        _ => line,
    };
    let digits = line.iter().take_while(|&&b| b.is_ascii_hexdigit() || b == b'_').count();
    let (number, rest) = line.split_at_checked(digits).unwrap_or((&[], line));
    let underscores = number.first() == Some(&b'_');
    let mut len = if number.is_empty() || underscores { None } else { Some(0u64) };
    for b in number.iter().filter(|&&b| b != b'_') {
        let digit = u64::from((*b as char).to_digit(16).unwrap_or(0));
        len = len.and_then(|l| l.checked_mul(16)).map(|l| l | digit);
    }
    // No real chunk has a size of more than 31 bits.
    let len = len.filter(|&l| l <= i32::MAX as u64);
    let is_alone = rest.iter().find(|&&b| !space(b) && b != 0).is_none_or(|&b| b == b';');
    Size { len, extension: rest.contains(&b';'), is_alone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (line, len) in [
            (&b"f"[..], Some(15)),
            (b"0F\t", Some(15)),
            (b" \x0b 10 ", Some(16)),
            (b"5,", Some(5)),
            (b"\r5", Some(5)),
            (b"5\0", Some(5)),
            (b"7fffffff", Some(0x7fff_ffff)),
            (b"80000000", None),
            (b"ffffffffffffffffff", None),
            (b"x5", None),
            (b"X5O!P%@AP", None),
            (b"-1", None),
            (b"", None),
            (b"0x10", Some(16)),
            (b"+8", Some(8)),
            (b"0_8", Some(8)),
            (b"_8", None),
            (b"0x", Some(0)),
        ] {
            assert_eq!(size(line).len, len, "{line:?}");
            assert!(usual_size(line).is_none_or(|usual| Some(usual) == len), "{line:?}");
        }
        // In pieces, a sign comes before its digits.
        assert_eq!(
            [&b""[..], b" \t", b" +", b"+8", b"++", b"x"].map(may_begin),
            [true, true, true, false, false, false]
        );
        assert!(size(b"5; foo").extension);
        assert_eq!(
            [&b"5 ; foo"[..], b"5", b"5 ", b"5 foo", b"5x"].map(|l| size(l).is_alone),
            [true, true, true, false, false]
        );
        assert_eq!(
            [&b"1fA"[..], b"fffffff", b"00", b"", b"8000000"].map(usual_size),
            [Some(0x1fa), Some(0xfff_ffff), None, None, Some(0x800_0000)]
        );
    }
}
