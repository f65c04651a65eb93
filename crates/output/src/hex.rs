//! Bytes as hexadecimal numbers and text, 16 on a line.

use crate::json::digits;

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
const ON_A_LINE: usize = 16;
/// The column of values about an alert.
pub(crate) const COLUMN: usize = 21;

/// Appends `bytes` with their offsets, in Suricata's form.
pub(crate) fn dump(out: &mut Vec<u8>, bytes: &[u8]) {
    for (n, line) in bytes.chunks(ON_A_LINE).enumerate() {
        out.push(b' ');
        offset(out, n * ON_A_LINE);
        out.extend_from_slice(b"  ");
        for at in 0..ON_A_LINE {
            match line.get(at) {
                Some(&b) => {
                    out.extend_from_slice(&digits_of(b));
                    out.push(b' ');
                }
                None => out.extend_from_slice(b"   "),
            }
            if at == ON_A_LINE / 2 - 1 {
                out.push(b' ');
            }
        }
        out.extend_from_slice(b"  ");
        for (at, &b) in line.iter().enumerate() {
            out.push(if matches!(b, b' '..=b'~') { b } else { b'.' });
            if at == ON_A_LINE / 2 - 1 {
                out.push(b' ');
            }
        }
        out.push(b'\n');
    }
}

/// Appends `NAME LEN:` with the number of bytes, `NAME:`, and the bytes.
pub(crate) fn section(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let from = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b" LEN:");
    pad(out, from, COLUMN);
    digits(out, bytes.len() as u64);
    out.push(b'\n');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b":\n");
    dump(out, bytes);
}

/// Fills a line that begins at `from` with spaces up to a column, with one at least.
pub(crate) fn pad(out: &mut Vec<u8>, from: usize, column: usize) {
    let width = out.len() - from;
    out.resize(from + column.max(width + 1), b' ');
}

/// Appends an offset with at least four digits.
fn offset(out: &mut Vec<u8>, at: usize) {
    let more = (usize::BITS - at.leading_zeros()).div_ceil(4).max(4);
    for n in (0..more).rev() {
        out.push(digit((at >> (4 * n)) as u8));
    }
}

/// Both digits of a byte, in upper case.
pub(crate) fn digits_of(b: u8) -> [u8; 2] {
    [digit(b >> 4), digit(b)]
}

fn digit(b: u8) -> u8 {
    DIGITS[usize::from(b & 15)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_in_suricata() {
        let mut out = Vec::new();
        dump(&mut out, b"GET /password-okHTTP\n");
        assert_eq!(
            String::from_utf8(out).unwrap(),
            " 0000  47 45 54 20 2F 70 61 73  73 77 6F 72 64 2D 6F 6B   GET /pas sword-ok\n \
             0010  48 54 54 50 0A                                     HTTP.\n"
        );
        let mut out = Vec::new();
        offset(&mut out, 0x1_2340);
        assert_eq!(out, b"12340");
    }
}
