//! Formats numbers and addresses, and finds out which kinds of bytes a string has.
//!
//! Nothing here is specific to a processor. Bytes are checked in arrays of sixteen, for which compilers use vector instructions if
//! there are any, and shorter strings in words. Short text is formatted in an array of fixed size, appended as a whole and
//! truncated: that takes a few stores, whereas copying a variable number of bytes would be a function call.

use std::net::IpAddr;

/// The escape of each byte in a string: 0 for none, `u` for `\u00xx`, otherwise the letter of the short form.
pub(crate) static ESCAPE: [u8; 256] = {
    let mut t = [0u8; 256];
    let mut i = 0;
    while i < 0x20 {
        t[i] = b'u';
        i += 1;
    }
    t[0x08] = b'b';
    t[0x09] = b't';
    t[0x0a] = b'n';
    t[0x0c] = b'f';
    t[0x0d] = b'r';
    t[b'"' as usize] = b'"';
    t[b'\\' as usize] = b'\\';
    t
};

/// Each byte in lower-case hexadecimal.
pub(crate) static HEX_PAIRS: [[u8; 2]; 256] = {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut t = [[0u8; 2]; 256];
    let mut i = 0;
    while i < 256 {
        t[i] = [HEX[i >> 4], HEX[i & 15]];
        i += 1;
    }
    t
};

/// The numbers up to 99, with two digits.
static PAIRS: [[u8; 2]; 100] = {
    let mut t = [[0u8; 2]; 100];
    let mut i = 0;
    while i < 100 {
        t[i] = [b'0' + i as u8 / 10, b'0' + i as u8 % 10];
        i += 1;
    }
    t
};

/// The numbers up to 255 without leading zeros, each followed by a full stop.
static OCTETS: [[u8; 4]; 256] = {
    let mut t = [[0u8; 4]; 256];
    let mut i = 0;
    while i < 256 {
        let (a, b, c) = (b'0' + (i / 100) as u8, b'0' + (i / 10 % 10) as u8, b'0' + (i % 10) as u8);
        t[i] = if i > 99 {
            [a, b, c, b'.']
        } else if i > 9 {
            [b, c, b'.', 0]
        } else {
            [c, b'.', 0, 0]
        };
        i += 1;
    }
    t
};

/// A flag of [`kinds`]: a byte must be escaped in JSON.
pub(crate) const SPECIAL: u8 = 1;
/// A flag of [`kinds`]: a byte is not ASCII.
pub(crate) const FOREIGN: u8 = 0x80;

#[inline]
const fn kind(b: u8) -> u8 {
    (b < 0x20) as u8 | (b == b'"') as u8 | (b == b'\\') as u8 | b & FOREIGN
}

/// The combined [`kind`] of eight bytes.
#[inline]
const fn kinds_of_word(word: u64) -> u8 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    const fn zero(x: u64) -> u64 {
        x.wrapping_sub(ONES) & !x
    }
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let special = control | zero(word ^ (ONES * b'"' as u64)) | zero(word ^ (ONES * b'\\' as u64));
    (special & HIGH != 0) as u8 | ((word & HIGH != 0) as u8) << 7
}

/// The kinds of bytes in a string: [`SPECIAL`] and [`FOREIGN`], or 0 if it can be written unchanged.
#[inline]
pub(crate) fn kinds(s: &[u8]) -> u8 {
    if let Some(last) = s.last_chunk::<16>() {
        let mut all = last.map(kind);
        for chunk in s.as_chunks::<16>().0 {
            for (all, b) in all.iter_mut().zip(chunk) {
                *all |= kind(*b);
            }
        }
        return all.iter().fold(0, |any, k| any | k);
    }
    if let (Some(first), Some(last)) = (s.first_chunk::<8>(), s.last_chunk::<8>()) {
        return kinds_of_word(u64::from_le_bytes(*first)) | kinds_of_word(u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (s.first_chunk::<4>(), s.last_chunk::<4>()) {
        let [first, last] = [first, last].map(|w| u64::from(u32::from_le_bytes(*w)));
        return kinds_of_word(first << 32 | last);
    }
    s.iter().fold(0, |any, &b| any | kind(b))
}

/// The four digits of a number below 10,000.
#[inline]
fn four(n: u32) -> [u8; 4] {
    let (high, low) = (PAIRS[(n / 100 % 100) as usize], PAIRS[(n % 100) as usize]);
    [high[0], high[1], low[0], low[1]]
}

/// Two digits of a number below 100.
#[inline]
pub(crate) fn two(n: u8) -> [u8; 2] {
    PAIRS[usize::from(n % 100)]
}

/// The six digits of a number below 1,000,000.
#[inline]
pub(crate) fn six(n: u32) -> [u8; 6] {
    let (a, [b, c, d, e]) = (PAIRS[(n / 10_000 % 100) as usize], four(n % 10_000));
    [a[0], a[1], b, c, d, e]
}

/// Appends the first `len` bytes of `text`.
#[inline]
fn append<const N: usize>(out: &mut Vec<u8>, text: &[u8; N], len: usize) {
    let end = out.len() + len.min(N);
    out.extend_from_slice(text);
    out.truncate(end);
}

/// Appends a number below 10,000.
#[inline]
fn small(out: &mut Vec<u8>, n: u32) {
    let len = 1 + usize::from(n > 9) + usize::from(n > 99) + usize::from(n > 999);
    let text = u32::from_le_bytes(four(n)) >> ((4 - len) * 8);
    append(out, &text.to_le_bytes(), len);
}

/// Appends a number in decimal.
#[inline]
pub fn digits(out: &mut Vec<u8>, value: u64) {
    if value < 10_000 { small(out, value as u32) } else { large(out, value) }
}

fn large(out: &mut Vec<u8>, value: u64) {
    const EIGHT: u64 = 100_000_000;
    if value < EIGHT {
        let value = value as u32;
        small(out, value / 10_000);
        out.extend_from_slice(&four(value % 10_000));
        return;
    }
    digits(out, value / EIGHT);
    let low = (value % EIGHT) as u32;
    let ([a, b, c, d], [e, f, g, h]) = (four(low / 10_000), four(low % 10_000));
    out.extend_from_slice(&[a, b, c, d, e, f, g, h]);
}

/// Appends an address; IPv6 with all eight groups of four digits.
#[inline]
pub fn ip(out: &mut Vec<u8>, value: IpAddr) {
    match value {
        IpAddr::V4(a) => {
            let mut text = [0u8; 16];
            let mut at = 0;
            for o in a.octets() {
                // At most three octets of four bytes precede it.
                if let Some(room) = text.get_mut(at..at + 4) {
                    room.copy_from_slice(&OCTETS[usize::from(o)]);
                }
                at += 2 + usize::from(o > 9) + usize::from(o > 99);
            }
            append(out, &text, at - 1);
        }
        IpAddr::V6(a) => {
            let mut text = [b':'; 40];
            for (room, o) in text.as_chunks_mut::<5>().0.iter_mut().zip(a.octets().as_chunks::<2>().0) {
                let (high, low) = (HEX_PAIRS[usize::from(o[0])], HEX_PAIRS[usize::from(o[1])]);
                *room = [high[0], high[1], low[0], low[1], b':'];
            }
            append(out, &text, 39);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_address_and_number_of_interest() {
        let mut out = Vec::new();
        for o in 0..=255u8 {
            for a in [[o, 0, 255, 10], [255, o, 9, 99], [1, 100, o, 0], [255, 255, 255, o]] {
                out.clear();
                ip(&mut out, IpAddr::from(a));
                assert_eq!(out, IpAddr::from(a).to_string().into_bytes());
            }
        }
        let powers = (0..20).map(|e| 10u64.pow(e));
        for n in powers.flat_map(|p| [p - 1, p, p + 1, p.wrapping_mul(7)]).chain([u64::MAX]).chain(0..20_000) {
            out.clear();
            digits(&mut out, n);
            assert_eq!(out, n.to_string().into_bytes());
        }
    }

    proptest! {
        #[test]
        fn kinds_are_those_of_all_bytes(
            mut s in proptest::collection::vec(0x20u8..0x80, 0..70), at: usize, b: u8, plain: bool
        ) {
            for b in &mut s {
                if kind(*b) != 0 {
                    *b = b'x';
                }
            }
            let len = s.len();
            if !plain && let Some(x) = s.get_mut(at.checked_rem(len).unwrap_or(0)) {
                *x = b;
            }
            prop_assert_eq!(kinds(&s), s.iter().fold(0, |any, &b| any | kind(b)));
        }

        #[test]
        fn numbers(n: u64) {
            let mut out = b"x".to_vec();
            digits(&mut out, n);
            prop_assert_eq!(out, format!("x{n}").into_bytes());
        }
    }
}
