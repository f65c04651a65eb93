//! A bounded reader of BER (ITU-T X.690), to the extent that SNMP, Kerberos and LDAP use it: tags up to 30, also in the long
//! form, and definite lengths of at most four bytes. It copies nothing.

use std::fmt::Write;

/// `INTEGER`.
pub(crate) const INTEGER: u8 = 0x02;
/// `OCTET STRING`.
pub(crate) const OCTETS: u8 = 0x04;
/// `SEQUENCE` and `SEQUENCE OF`.
pub(crate) const SEQUENCE: u8 = 0x30;

/// Reads a length (section 8.1.3). Returns it and its encoded size.
///
/// # Errors
/// `true` if more bytes are needed; `false` if the length is indefinite, or longer than four bytes.
pub(crate) fn length(data: &[u8]) -> Result<(u32, usize), bool> {
    let first = *data.first().ok_or(true)?;
    if first < 0x80 {
        return Ok((u32::from(first), 1));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(false);
    }
    let bytes = data.get(1..=count).ok_or(true)?;
    Ok((bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b)), 1 + count))
}

/// A value with its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    /// Class, form and number in one byte; a number above 30 becomes 31.
    pub(crate) tag: u8,
    /// The contents.
    pub(crate) body: &'a [u8],
}

impl<'a> Element<'a> {
    /// A reader of the contents.
    pub(crate) const fn inside(self) -> Reader<'a> {
        Reader::new(self.body)
    }
}

/// Reads consecutive elements. If an element is invalid, the result is `None` and the position does not change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// The bits of a tag that must be as expected.
    mask: u8,
}

impl<'a> Reader<'a> {
    /// From the beginning of `data`.
    pub(crate) const fn new(data: &'a [u8]) -> Reader<'a> {
        Reader { rest: data, mask: 0xff }
    }

    /// As [`Reader::new`], but an element may have another class than expected: Suricata does not compare it in Kerberos and
    /// SNMP.
    pub(crate) const fn of_any_class(data: &'a [u8]) -> Reader<'a> {
        Reader { rest: data, mask: 0x3f }
    }

    /// Whether nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Tag of the next element, as [`Element::tag`] has it.
    pub(crate) fn tag(&self) -> Option<u8> {
        Some(self.identifier()?.0)
    }

    /// Reads a tag. Returns it and the data after it.
    fn identifier(&self) -> Option<(u8, &'a [u8])> {
        let (&first, mut rest) = self.rest.split_first()?;
        if first & 0x1f != 0x1f {
            return Some((first, rest));
        }
        // The long form: seven bits in each byte (section 8.1.2.4). Small numbers may have it too.
        let mut number = 0u32;
        for _ in 0..4 {
            let (&b, behind) = rest.split_first()?;
            (number, rest) = (number << 7 | u32::from(b & 0x7f), behind);
            if b & 0x80 == 0 {
                return Some((first & 0xe0 | number.min(0x1f) as u8, rest));
            }
        }
        None
    }

    /// The next element, which must be complete.
    pub(crate) fn element(&mut self) -> Option<Element<'a>> {
        let (tag, rest) = self.identifier()?;
        let (len, n) = length(rest).ok()?;
        let (body, rest) = rest.get(n..)?.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(Element { tag, body })
    }

    /// The contents of the next element, if it has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.take_masked(tag, self.mask)
    }

    /// As [`Reader::take`], with the primitive or the constructed form.
    pub(crate) fn take_in_any_form(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.take_masked(tag, self.mask & 0xdf)
    }

    fn take_masked(&mut self, tag: u8, mask: u8) -> Option<&'a [u8]> {
        if self.tag()? & mask == tag & mask { self.element().map(|e| e.body) } else { None }
    }

    /// Reads an element's tag and length, but not its contents; the length may be indefinite.
    pub(crate) fn head(&mut self) -> Option<u8> {
        let (tag, rest) = self.identifier()?;
        let n = if rest.first() == Some(&0x80) { 1 } else { length(rest).ok()?.1 };
        self.rest = rest.get(n..)?;
        Some(tag)
    }

    /// The number of elements that are left, if they fill the data and sequences are filled likewise, down to `depth` levels.
    pub(crate) fn count(mut self, depth: u8) -> Option<usize> {
        let mut n = 0;
        while !self.is_empty() {
            let element = self.element()?;
            let fits = match element.tag & 0xdf {
                // BOOLEAN (section 8.2), and ENUMERATED, to the extent that Suricata reads it.
                0x01 => element.body.len() == 1,
                0x0a => (1..=4).contains(&element.body.len()),
                0x10 if element.tag == SEQUENCE && depth > 0 => element.inside().count(depth - 1).is_some(),
                _ => true,
            };
            if !fits {
                return None;
            }
            n += 1;
        }
        Some(n)
    }

    /// A reader of the next element's contents, if it has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.take(tag).map(|rest| Reader { rest, mask: self.mask })
    }

    /// As [`Reader::enter`], with the primitive or the constructed form.
    pub(crate) fn enter_in_any_form(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.take_in_any_form(tag).map(|rest| Reader { rest, mask: self.mask })
    }

    /// An integer with this tag, of at most eight bytes.
    pub(crate) fn integer(&mut self, tag: u8) -> Option<i64> {
        integer(self.take(tag)?)
    }

    /// An integer with this tag from 0 to 2^32-1.
    pub(crate) fn unsigned(&mut self, tag: u8) -> Option<u32> {
        u32::try_from(self.integer(tag)?).ok()
    }
}

/// Decodes an integer's contents (section 8.3).
pub(crate) fn integer(body: &[u8]) -> Option<i64> {
    let negative = body.first()? & 0x80 != 0;
    let start = if negative { -1 } else { 0 };
    (body.len() <= 8).then(|| body.iter().fold(start, |n, b| n << 8 | i64::from(*b)))
}

/// Formats an object identifier (section 8.19) as `1.3.6.1`; `None` if it is invalid, or an arc has more than 63 bits.
pub(crate) fn oid(body: &[u8]) -> Option<String> {
    if body.last()? & 0x80 != 0 {
        return None;
    }
    let mut text = String::new();
    let mut arc = 0u64;
    for b in body {
        if arc >> 56 != 0 {
            return None;
        }
        arc = arc << 7 | u64::from(b & 0x7f);
        if b & 0x80 != 0 {
            continue;
        }
        // The first two arcs share one number.
        let _ = if text.is_empty() {
            let first = (arc / 40).min(2);
            write!(text, "{first}.{}", arc - first * 40)
        } else {
            write!(text, ".{arc}")
        };
        arc = 0;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for (data, is) in [
            (&b""[..], Err(true)),
            (b"\x7f", Ok((127, 1))),
            (b"\x80", Err(false)),
            (b"\x81", Err(true)),
            (b"\x81\xff", Ok((255, 2))),
            (b"\x84\xff\xff\xff\xff", Ok((u32::MAX, 5))),
            (b"\x85\0\0\0\0\x01", Err(false)),
        ] {
            assert_eq!(length(data), is, "{data:x?}");
        }
    }

    #[test]
    fn elements() {
        let mut r = Reader::new(b"\x30\x06\x02\x01\xfe\x04\x01a\x02\x02\x01\x00rest");
        let mut inside = r.enter(SEQUENCE).unwrap();
        assert_eq!(
            (inside.integer(INTEGER), inside.take(INTEGER), inside.take(OCTETS)),
            (Some(-2), None, Some(&b"a"[..]))
        );
        assert!(inside.is_empty() && inside.element().is_none());
        assert_eq!(r.unsigned(INTEGER), Some(256));
        // `r` is a tag, and `e` a length of 101 bytes, which are missing.
        assert_eq!((r.tag(), r.element()), (Some(b'r'), None));
        for (data, tag) in [
            (&b"\xbf\x04\x01a"[..], 0xa4),
            (b"\xbf\x80\x04\x01a", 0xa4),
            (b"\x7f\x81\x04\x01a", 0x7f),
            (b"\x1f\x1f\x01a", 0x1f),
        ] {
            assert_eq!(Reader::new(data).element(), Some(Element { tag, body: b"a" }));
        }
        for data in [
            &b"\x1f\x80\x80\x80\x80\x01\x00"[..],
            b"\x1f\x80",
            b"\x04\x80",
            b"\x04\x84\xff\xff\xff\xff",
            b"\x04\x02a",
            b"\x04",
        ] {
            assert_eq!(Reader::new(data).element(), None);
        }
        assert_eq!(Reader::new(b"\x02\x01\xff").unsigned(INTEGER), None);
        assert_eq!(Reader::new(b"\x02\x00").integer(INTEGER), None);
        assert_eq!(Reader::new(b"\x02\x09\x01\0\0\0\0\0\0\0\0").integer(INTEGER), None);
    }

    #[test]
    fn object_identifiers() {
        assert_eq!(oid(b"\x2b\x06\x01\x80\x01").as_deref(), Some("1.3.6.1.1"));
        assert_eq!(oid(b"\x28").as_deref(), Some("1.0"));
        assert_eq!(oid(b"\x88\x37\x03").as_deref(), Some("2.999.3"));
        assert_eq!((oid(b""), oid(b"\x2b\x86")), (None, None));
        assert_eq!(oid(&[&[0x2b], &[0xff; 12][..], &[1]].concat()), None);
    }
}
