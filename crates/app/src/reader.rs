//! A reader of integers and byte ranges, in either byte order.

/// The unread bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    little: bool,
}

impl<'a> Reader<'a> {
    /// Reads little-endian integers.
    pub(crate) const fn little(rest: &'a [u8]) -> Self {
        Reader { rest, little: true }
    }

    /// Reads integers in the byte order of a message.
    pub(crate) const fn new(rest: &'a [u8], little: bool) -> Self {
        Reader { rest, little }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes; `None` if there are fewer.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let b = self.array()?;
        Some(if self.little { u16::from_le_bytes(b) } else { u16::from_be_bytes(b) })
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let b = self.array()?;
        Some(if self.little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) })
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let b = self.array()?;
        Some(if self.little { u64::from_le_bytes(b) } else { u64::from_be_bytes(b) })
    }

    pub(crate) fn uuid(&mut self) -> Option<Uuid> {
        Some(Uuid::read(self.array()?, self.little))
    }
}

/// A UUID (C706 appendix A): its bytes in written order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Converts from the message's form: the first three fields are integers in its byte order.
    pub(crate) const fn read(mut b: [u8; 16], little: bool) -> Self {
        if little {
            b = [b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]];
        }
        Uuid(b)
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_in_both_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut r = Reader::little(&bytes);
        assert_eq!((r.u8(), r.u16(), r.u32()), (Some(1), Some(0x0302), Some(0x0706_0504)));
        assert_eq!((r.u32(), r.take(3), r.rest()), (None, None, &[8, 9][..]));
        assert_eq!(Reader::new(&bytes, false).u64(), Some(0x0102_0304_0506_0708));
    }

    #[test]
    fn a_uuid_as_it_is_written() {
        let wire = [0x82, 6, 0xf7, 0x1f, 0x51, 0xa, 0xe8, 0x30, 7, 0x6d, 0x74, 0xb, 0xe8, 0xce, 0xe9, 0x8b];
        assert_eq!(Uuid::read(wire, true).to_string(), "1ff70682-0a51-30e8-076d-740be8cee98b");
        assert_eq!(Uuid::read(wire, false).to_string(), "8206f71f-510a-e830-076d-740be8cee98b");
    }
}
