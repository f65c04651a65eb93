//! `asn1`: detects suspicious lengths in ASN.1 with basic encoding rules (X.690).
//!
//! Elements are read in order, with the contents of a constructed element right after its header. Nothing recurses, and
//! every byte is read once. A truncated or invalid element ends the walk, since the data after it has no known
//! structure. So a length beyond the end of the data does not count (observed, as are the bounds of overflows).

use margay_rules::ast::Asn1;

/// Default of `asn1-max-frames`.
pub const FRAMES: u32 = 256;

/// The longest decimal real number that is no overflow, in content bytes.
const DOUBLE_MAX: usize = 256;

/// An element's header.
#[derive(Debug, PartialEq, Eq)]
struct Element {
    /// Universal tag; `None` for other classes and for tags from 31 on.
    tag: Option<u8>,
    /// Whether its contents are elements.
    constructed: bool,
    /// Content length; `None` if an end-of-contents marker follows (section 8.1.3.6).
    len: Option<usize>,
    /// Header length.
    header: usize,
}

/// Reads the header of an element (sections 8.1.2 and 8.1.3); `None` if it is missing or truncated.
fn element(data: &[u8]) -> Option<Element> {
    let first = *data.first()?;
    let mut header = 1;
    let mut tag = (first >> 6 == 0).then_some(first & 0x1f);
    if first & 0x1f == 0x1f {
        tag = None;
        // A multi-byte tag: all bytes but the last have the highest bit set.
        header += data.get(1..)?.iter().position(|b| b & 0x80 == 0)? + 1;
    }
    let length = *data.get(header)?;
    header += 1;
    let len = match length {
        0..=0x7f => Some(usize::from(length)),
        0x80 => None,
        _ => {
            let bytes = data.get(header..header + usize::from(length & 0x7f))?;
            header += bytes.len();
            let fold = |n: usize, &b: &u8| n.checked_mul(256)?.checked_add(usize::from(b));
            Some(bytes.iter().try_fold(0, fold)?)
        }
    };
    Some(Element { tag, constructed: first & 0x20 != 0, len, header })
}

/// Whether `data` has one of the conditions in `check`; inspects at most `frames` outermost elements.
pub fn holds(check: &Asn1, data: &[u8], frames: u32) -> bool {
    let (mut at, mut outer_end, mut outer) = (0, 0, 0u32);
    while let Some(e) = data.get(at..).and_then(element) {
        let start = at + e.header;
        let end = match e.len {
            Some(len) => match start.checked_add(len) {
                Some(end) if end <= data.len() => end,
                _ => return false,
            },
            // Only constructed elements may have an indefinite length (section 8.1.3.2).
            None if e.constructed => data.len(),
            None => return false,
        };
        if at >= outer_end {
            outer += 1;
            if outer > frames {
                return false;
            }
            outer_end = end;
        }
        if e.len.is_some_and(|len| check.oversize_length.is_some_and(|most| len as u64 > u64::from(most))) {
            return true;
        }
        let contents = data.get(start..end).unwrap_or(&[]);
        if !e.constructed
            && let Some(&first) = contents.first()
        {
            // The first byte of a bit string is the number of unused bits in its last byte (section 8.6.2.2).
            let unused = e.tag == Some(3) && usize::from(first) > 8 * contents.len();
            // A decimal real number has both highest bits clear (section 8.5.6).
            let decimal = e.tag == Some(9) && first & 0xc0 == 0 && contents.len() > DOUBLE_MAX;
            if check.bitstring_overflow && unused || check.double_overflow && decimal {
                return true;
            }
        }
        at = if e.constructed { start } else { end };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: Asn1 = Asn1 {
        bitstring_overflow: true,
        double_overflow: false,
        oversize_length: None,
        relative_offset: None,
        absolute_offset: 0,
    };
    const REAL: Asn1 = Asn1 { bitstring_overflow: false, double_overflow: true, ..BITS };
    const LONG: Asn1 = Asn1 { bitstring_overflow: false, oversize_length: Some(500), ..BITS };

    fn tlv(tag: u8, contents: &[u8]) -> Vec<u8> {
        let n = contents.len();
        let length = match n {
            0..=127 => vec![n as u8],
            128..=255 => vec![0x81, n as u8],
            _ => vec![0x82, (n >> 8) as u8, n as u8],
        };
        [&[tag][..], &length, contents].concat()
    }

    #[track_caller]
    fn all(check: &Asn1, want: bool, list: &[Vec<u8>]) {
        for data in list {
            assert_eq!(holds(check, data, FRAMES), want, "{data:02x?}");
        }
    }

    #[test]
    fn headers() {
        let e = |tag, constructed, len, header| Some(Element { tag, constructed, len, header });
        assert_eq!(element(b"\x30\x03\x02\x01\x00"), e(Some(16), true, Some(3), 2));
        assert_eq!(element(b"\x84\x82\x01\x00"), e(None, false, Some(256), 4));
        assert_eq!(element(b"\x1f\x81\x01\x02"), e(None, false, Some(2), 4));
        assert_eq!(element(b"\x30\x80\0\0"), e(Some(16), true, None, 2));
        for cut in [&b""[..], b"\x30", b"\x04\x82\x01", b"\x1f\x81", b"\x1f\x81\x81", b"\x04\xff\xff"] {
            assert_eq!(element(cut), None, "{cut:02x?}");
        }
        assert_eq!(element(&[&[4, 0x89, 1][..], &[0; 20]].concat()), None);
    }

    // The bounds below are Suricata's results for the same bytes.
    #[test]
    fn bit_strings() {
        let bits = |unused, n: usize| tlv(3, &[&[unused][..], &vec![0xff; n]].concat());
        all(&BITS, true, &[bits(255, 1), bits(17, 1), bits(9, 0), bits(41, 4), tlv(0x30, &bits(255, 1))]);
        all(&BITS, true, &[[tlv(2, b"\x01"), bits(17, 1)].concat(), [bits(17, 1), b"\x30".to_vec()].concat()]);
        all(&BITS, false, &[bits(0, 0), bits(7, 1), bits(16, 1), bits(8, 0), bits(40, 4), tlv(3, b"")]);
        // Constructed, in another class, or inside a primitive element, it is no bit string.
        all(&BITS, false, &[tlv(0x23, b"\xff\xff"), tlv(0x83, b"\xff\xff"), tlv(4, &bits(255, 1))]);
        let open = |tail: &[u8]| [b"\x30\x80", &bits(255, 1)[..], tail].concat();
        all(&BITS, true, &[open(b"\0\0"), [b"\0\0".to_vec(), bits(255, 1)].concat()]);
        all(&BITS, false, &[b"\x03\x20\xff\xff".to_vec(), [b"\x30\x20".to_vec(), bits(255, 1)].concat()]);
        all(&REAL, false, &[bits(255, 1)]);
    }

    #[test]
    fn real_numbers() {
        let real = |first: u8, len: usize| tlv(9, &[&[first][..], &vec![b'1'; len - 1]].concat());
        all(&REAL, true, &[real(0, 257), real(1, 258), real(3, 300), tlv(0x30, &real(3, 300))]);
        all(&REAL, false, &[real(3, 256), real(0x40, 300), real(0x80, 300), tlv(9, b""), tlv(4, &[b'1'; 300])]);
    }

    #[test]
    fn lengths() {
        let octets = |n| tlv(4, &vec![b'a'; n]);
        all(&LONG, true, &[octets(501), tlv(0x30, &octets(501)), [tlv(2, b"\x01"), octets(600)].concat()]);
        all(&LONG, true, &[tlv(0x44, &[0; 600]), tlv(0xa4, &octets(600)), [&b"\x30\x80"[..], &octets(600)].concat()]);
        all(&LONG, false, &[octets(500), octets(100), b"\x04\x82\x02\x58aaaa".to_vec()]);
        all(&LONG, false, &[b"\x04\x84\xff\xff\xff\xffaaaa".to_vec(), b"\x04\x80aa\0\0".to_vec(), vec![], vec![0x30]]);
    }

    #[test]
    fn only_so_many_outermost_elements() {
        let list = |n: usize| [b"\x02\x01\x01".repeat(n), tlv(3, b"\xff\xff")].concat();
        all(&BITS, true, &[list(255), tlv(0x30, &list(300))]);
        all(&BITS, false, &[list(256)]);
        assert!(holds(&BITS, &list(9), 10) && !holds(&BITS, &list(10), 10));
        // Deep nesting does not recurse.
        let deep = (0..10_000).fold(tlv(3, b"\xff\xff"), |inner, _| [&b"\x30\x80"[..], &inner].concat());
        all(&BITS, true, &[deep]);
    }
    /// For any bytes the walk ends, and its result is repeatable.
    #[test]
    fn any_bytes() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 56) as u8
        };
        let all = Asn1 { bitstring_overflow: true, double_overflow: true, oversize_length: Some(9), ..BITS };
        for n in 0..4000 {
            // Tags and lengths that nest more often than random bytes would.
            let data: Vec<u8> =
                (0..n % 97).map(|_| [next(), next() & 0x3f, 0x30, 0x80][usize::from(next() & 3)]).collect();
            assert_eq!(holds(&all, &data, FRAMES), holds(&all, &data, FRAMES));
        }
    }
}
