//! The chunked coding (RFC 9112, section 7.1), as it comes from servers that do not care.

use super::headers::space;

/// Where a chunked body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// At the line of a size.
    Size,
    /// In data, with so many bytes to come.
    Data(u64),
    /// Behind data, at its line end.
    End,
}

/// What a line of a size says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Size; `None` where it is none.
    pub len: Option<u64>,
    /// An extension follows it.
    pub extension: bool,
}

/// Whether a line before a size is to be skipped: white space only.
pub(super) fn blank(line: &[u8]) -> bool {
    line.iter().all(|&b| space(b) || b == 0)
}

/// Reads the line of a size: hexadecimal digits behind white space; whatever follows them is ignored.
pub(super) fn size(line: &[u8]) -> Size {
    let line = super::headers::trim_by(line, |b| space(b) || b == 0);
    // Python's `int` reads a sign, a prefix and underscores between digits; other clients refuse the chunk.
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
    // More than 31 bits is no size that anybody sends.
    let len = len.filter(|&l| l <= i32::MAX as u64);
    Size { len, extension: rest.contains(&b';') }
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
        }
        assert!(size(b"5; foo").extension);
    }
}
