//! A reader of XDR (RFC 4506): big endian, in multiples of four bytes.

/// The unread part of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Xdr<'a>(&'a [u8]);

impl<'a> Xdr<'a> {
    pub(super) const fn new(data: &'a [u8]) -> Xdr<'a> {
        Xdr(data)
    }

    /// Number of unread bytes.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads this many bytes, without padding.
    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.bytes(4)?.first_chunk()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(*self.bytes(8)?.first_chunk()?))
    }

    /// Reads data with a length prefix, up to a limit (section 4.10).
    pub(super) fn opaque(&mut self, max: usize) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let bytes = self.bytes(len.min(max.checked_add(1)?)).filter(|_| len <= max)?;
        // At the end of a truncated message, padding may be missing.
        let padding = (len.next_multiple_of(4) - len).min(self.0.len());
        self.bytes(padding)?;
        Some(bytes)
    }

    /// Reads data with a length prefix that may be incomplete: the full length, and the available part.
    pub(super) fn beginning(&mut self) -> Option<(u64, &'a [u8])> {
        let len = u64::from(self.u32()?);
        let here = usize::try_from(len).unwrap_or(usize::MAX).min(self.0.len());
        let bytes = self.bytes(here)?;
        let padding = (len.next_multiple_of(4) - len) as usize;
        self.bytes(padding.min(self.0.len()))?;
        Some((len, bytes))
    }

    /// Skips an array of four-byte integers.
    pub(super) fn skip_words(&mut self) -> Option<()> {
        let count = self.u32()? as usize;
        self.bytes(count.checked_mul(4)?).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded() {
        let mut xdr = Xdr::new(b"\0\0\0\x05hello\0\0\0\0\0\0\x07");
        assert_eq!((xdr.opaque(5), xdr.u32(), xdr.len()), (Some(&b"hello"[..]), Some(7), 0));
        assert_eq!(Xdr::new(b"\0\0\0\x05hello\0\0\0").opaque(4), None);
        assert_eq!(Xdr::new(b"\xff\xff\xff\xffhello").opaque(8), None);
        let mut xdr = Xdr::new(b"\0\0\x01\0abc");
        assert_eq!((xdr.beginning(), xdr.len()), (Some((256, &b"abc"[..])), 0));
        assert_eq!(Xdr::new(b"\xff\xff\xff\xff\0\0\0\0").skip_words(), None);
    }
}
