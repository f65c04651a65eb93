//! Strings on the wire, converted to UTF-8.

/// Converts little-endian UTF-16, up to a terminator.
pub(super) fn utf16(data: &[u8]) -> Vec<u8> {
    let units = data.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).take_while(|u| *u != 0);
    let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    text.into_bytes()
}

/// The bytes up to a terminator.
pub(super) fn bytes(data: &[u8]) -> Vec<u8> {
    data.split(|b| *b == 0).next().unwrap_or(&[]).to_vec()
}

/// Reads a string of SMB1 from the front of `rest`, which begins at offset `at` of its message. Returns the text and its
/// encoded length. UTF-16 is aligned to an even offset.
pub(super) fn string(rest: &[u8], at: usize, unicode: bool) -> (Vec<u8>, usize) {
    if !unicode {
        let end = rest.iter().position(|b| *b == 0);
        return (bytes(rest), end.map_or(rest.len(), |n| n + 1));
    }
    let pad = at % 2;
    let units = rest.get(pad..).unwrap_or(&[]);
    let end = units.chunks_exact(2).position(|c| c == [0, 0]);
    (utf16(units), end.map_or(rest.len(), |n| pad + 2 * n + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        assert_eq!(string(b"abc\0de", 1, false), (b"abc".to_vec(), 4));
        assert_eq!(string(b"\0a\0b\0\0\0c", 3, true), (b"ab".to_vec(), 7));
        assert_eq!(string(b"a\0b\0", 2, true), (b"ab".to_vec(), 4));
        assert_eq!(utf16(&[0xe4, 0, 0, 0xd8]), "ä\u{fffd}".as_bytes());
    }
}
