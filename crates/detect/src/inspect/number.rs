//! Reads numbers from a buffer for `byte_test`, `byte_jump`, `byte_extract` and `byte_math`.

use margay_rules::ast::{Endian, NumberFormat};

/// A number that was read, and its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) value: u64,
    /// For binary numbers the requested bytes; for text, up to the end of the digits.
    pub(crate) len: usize,
}

/// Reads a number of `bytes` bytes at `at`; `None` if the buffer is too short or has no number there. Text of 0 bytes may use
/// the rest of the buffer. A binary number of 0 bytes is 0, as in Suricata.
///
/// `dce_little` is the byte order in the DCERPC header.
#[inline]
pub(crate) fn read(data: &[u8], at: i64, bytes: u64, format: NumberFormat, dce_little: bool) -> Option<Number> {
    let at = usize::try_from(at).ok()?;
    if let (1, NumberFormat::Binary(_)) = (bytes, format) {
        return data.get(at).map(|&b| Number { value: u64::from(b), len: 1 });
    }
    read_long(data, at, bytes, format, dce_little)
}

fn read_long(data: &[u8], at: usize, bytes: u64, format: NumberFormat, dce_little: bool) -> Option<Number> {
    let bytes = usize::try_from(bytes).ok()?;
    let field = match format {
        NumberFormat::Text { .. } if bytes == 0 => data.get(at..)?,
        _ => data.get(at..at.checked_add(bytes)?)?,
    };
    match format {
        NumberFormat::Binary(endian) => {
            if bytes > 8 {
                return None;
            }
            let little = match endian {
                Endian::Big => false,
                Endian::Little => true,
                Endian::Dce => dce_little,
            };
            let value = if little {
                field.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b))
            } else {
                field.iter().fold(0u64, |v, &b| v << 8 | u64::from(b))
            };
            Some(Number { value, len: bytes })
        }
        NumberFormat::Text { base } => text(field, base),
    }
}

/// Parses like C's `strtoull`: blanks, a sign, `0x` before hexadecimal digits, then all digits. `None` without a digit,
/// or if the value exceeds 64 bits. A minus sign wraps.
fn text(field: &[u8], base: u8) -> Option<Number> {
    let mut i = field.iter().position(|b| !matches!(b, b' ' | b'\t'..=b'\r'))?;
    let negative = match field.get(i) {
        Some(b'-') => {
            i += 1;
            true
        }
        Some(b'+') => {
            i += 1;
            false
        }
        _ => false,
    };
    let hex_prefix = matches!(field.get(i..i + 3), Some([b'0', b'x' | b'X', d]) if d.is_ascii_hexdigit());
    let base = match base {
        0 if hex_prefix => 16,
        0 if field.get(i) == Some(&b'0') => 8,
        0 => 10,
        b => b,
    };
    if base == 16 && hex_prefix {
        i += 2;
    }
    let start = i;
    let mut value = 0u64;
    while let Some(digit) = field.get(i).and_then(|&b| char::from(b).to_digit(u32::from(base).clamp(2, 36))) {
        value = value.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
        i += 1;
    }
    if i == start {
        return None;
    }
    Some(Number { value: if negative { value.wrapping_neg() } else { value }, len: i })
}

/// Applies a `bitmask`: selects its bits and shifts them down by its trailing zeros.
pub(crate) fn mask(value: u64, bitmask: Option<u32>) -> u64 {
    match bitmask {
        None => value,
        Some(0) => 0,
        Some(m) => (value & u64::from(m)) >> m.trailing_zeros(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: NumberFormat = NumberFormat::Binary(Endian::Big);

    #[test]
    fn binary() {
        let d = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let value = |at, n, f, dce| read(&d, at, n, f, dce).map(|n| n.value);
        assert_eq!(value(0, 1, BIG, false), Some(1));
        assert_eq!(value(1, 3, BIG, false), Some(0x02_0304));
        assert_eq!(value(1, 2, NumberFormat::Binary(Endian::Little), false), Some(0x0302));
        assert_eq!(value(1, 2, NumberFormat::Binary(Endian::Dce), true), Some(0x0302));
        assert_eq!(value(1, 8, BIG, false), Some(0x0203_0405_0607_0809));
        assert_eq!(value(2, 8, BIG, false), None);
        assert_eq!(value(0, 9, BIG, false), None);
        assert_eq!(
            (value(0, 0, BIG, false), value(9, 0, BIG, false), value(10, 0, BIG, false)),
            (Some(0), Some(0), None)
        );
        assert_eq!(value(-1, 1, BIG, false), None);
        assert_eq!(value(i64::MAX, 1, BIG, false), None);
    }

    /// Suricata's results for these fields in each base.
    #[test]
    fn text_as_the_peer_reads_it() {
        let read =
            |s: &str, base| read(s.as_bytes(), 0, 4, NumberFormat::Text { base }, false).map(|n| (n.value, n.len));
        assert_eq!(read(" 12z", 10), Some((12, 3)));
        assert_eq!(read("+12z", 10), Some((12, 3)));
        assert_eq!(read("-12z", 10), Some((12u64.wrapping_neg(), 3)));
        assert_eq!(read("0x1f", 10), Some((0, 1)));
        assert_eq!(read("0x1f", 16), Some((0x1f, 4)));
        assert_eq!(read("1fzz", 16), Some((0x1f, 2)));
        assert_eq!(read("017z", 10), Some((17, 3)));
        assert_eq!(read("017z", 8), Some((15, 3)));
        assert_eq!(read("089z", 8), Some((0, 1)));
        assert_eq!(read("\t\n12", 10), Some((12, 4)));
        assert_eq!(read("0xzz", 16), Some((0, 1)));
        assert_eq!(read("zzzz", 10), None);
        assert_eq!(read("    ", 10), None);
        assert_eq!(read("-zzz", 10), None);
        assert_eq!(read("0x1f", 0), Some((0x1f, 4)));
        assert_eq!(read("017z", 0), Some((15, 3)));
        let whole = |s: &str| super::read(s.as_bytes(), 1, 0, NumberFormat::Text { base: 10 }, false).map(|n| n.value);
        assert_eq!(
            (whole("x8079"), whole("x12345678901z"), whole("xz"), whole("x")),
            (Some(8079), Some(12_345_678_901), None, None)
        );
        let long = "99999999999999999999999";
        assert_eq!(super::read(long.as_bytes(), 0, 23, NumberFormat::Text { base: 10 }, false), None);
    }

    #[test]
    fn bitmasks() {
        assert_eq!(mask(0x48, Some(0xf8)), 9);
        assert_eq!(mask(0x4854, Some(0xf8f8)), 0x90a);
        assert_eq!(mask(7, None), 7);
        assert_eq!(mask(7, Some(0)), 0);
    }
}
