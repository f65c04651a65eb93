//! Header compression (RFC 7541): decodes blocks to fields, with the dynamic table.
//!
//! An invalid block leaves the table as it was at the error, and the fields before the error count. All sizes are bounded: the
//! table by `max-table-size`, whatever the peer announces, and the fields of a message by [`Fields`].

use std::collections::VecDeque;

use super::fields::Fields;
use super::huffman;

/// The overhead that each entry counts besides its text (RFC 7541, section 4.1).
const ENTRY: usize = 32;
/// The initial size of the table (RFC 9113, section 6.5.2).
const INITIAL: usize = 4096;

/// The static table (RFC 7541, appendix A), from index 1.
const STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// The errors of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Faults {
    /// It is invalid: an unknown index, an invalid string, or it is truncated.
    pub invalid: bool,
    /// A number in it is too large.
    pub overflow: bool,
    /// Fields were dropped because they exceed the limits.
    pub dropped: bool,
}

#[derive(Debug)]
struct Entry {
    /// Name and value, joined.
    text: Box<[u8]>,
    name: u32,
}

impl Entry {
    fn split(&self) -> (&[u8], &[u8]) {
        self.text.split_at_checked(self.name as usize).unwrap_or((&[], &[]))
    }

    fn size(&self) -> usize {
        self.text.len() + ENTRY
    }
}

/// Decodes the blocks of one direction.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Newest entry first.
    table: VecDeque<Entry>,
    size: usize,
    max: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder { table: VecDeque::new(), size: 0, max: INITIAL, name: Vec::new(), value: Vec::new() }
    }
}

/// Reasons to stop within a block.
enum Stop {
    Invalid,
    Overflow,
}

impl Decoder {
    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        // An entry counts 32 bytes more than its text (RFC 7541 section 4.1), close to its real overhead.
        self.size + self.table.capacity() * size_of::<Entry>() + self.name.capacity() + self.value.capacity()
    }

    /// Decodes a whole block into `fields`, which may grow up to `budget` bytes. The table never exceeds `limit`.
    pub(super) fn block(&mut self, mut data: &[u8], fields: &mut Fields, limit: usize, budget: usize) -> Faults {
        let mut faults = Faults::default();
        self.resize(self.max.min(limit));
        while !data.is_empty() {
            match self.field(&mut data, fields, limit, budget) {
                Ok(kept) => faults.dropped |= !kept,
                Err(stop) => {
                    match stop {
                        Stop::Invalid => faults.invalid = true,
                        Stop::Overflow => faults.overflow = true,
                    }
                    break;
                }
            }
        }
        if self.name.capacity() + self.value.capacity() > 4 * INITIAL {
            (self.name, self.value) = (Vec::new(), Vec::new());
        }
        faults
    }

    /// Decodes one representation (RFC 7541, section 6). Returns whether its field was kept.
    fn field(&mut self, data: &mut &[u8], fields: &mut Fields, limit: usize, budget: usize) -> Result<bool, Stop> {
        let first = data.first().copied().unwrap_or_default();
        if first & 0x80 != 0 {
            let index = integer(data, 7)?;
            let (name, value) = self.get(index).ok_or(Stop::Invalid)?;
            let kept = fields.push(name, value, budget);
            if !kept {
                // The same field does not fit any better when it comes again.
                while first != 0xff && data.first() == Some(&first) {
                    *data = data.get(1..).unwrap_or(&[]);
                }
            }
            return Ok(kept);
        }
        if first & 0xe0 == 0x20 {
            let size = integer(data, 5)?;
            self.resize(usize::try_from(size).unwrap_or(usize::MAX).min(limit));
            return Ok(fields.update(size));
        }
        let keep = first & 0x40 != 0;
        let index = integer(data, if keep { 6 } else { 4 })?;
        // A string is limited to what the fields or the table can hold.
        let longest = fields.room(budget).max(self.max);
        let mut name = std::mem::take(&mut self.name);
        let mut value = std::mem::take(&mut self.value);
        name.clear();
        value.clear();
        let read = match index {
            0 => text(data, longest, &mut name),
            i => self.get(i).map(|(n, _)| name.extend_from_slice(n)).ok_or(Stop::Invalid).map(|()| true),
        };
        let read = read.and_then(|whole| Ok(text(data, longest, &mut value)? && whole));
        let kept = read.map(|whole| {
            if keep {
                self.insert(&name, &value);
            }
            whole && fields.push(&name, &value, budget)
        });
        (self.name, self.value) = (name, value);
        kept
    }

    /// The entry at an index, static or dynamic.
    fn get(&self, index: u64) -> Option<(&[u8], &[u8])> {
        let index = usize::try_from(index).ok()?.checked_sub(1)?;
        match STATIC.get(index) {
            Some(entry) => Some(*entry),
            None => self.table.get(index - STATIC.len()).map(Entry::split),
        }
    }

    fn insert(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + ENTRY;
        // An entry that is too large empties the table (RFC 7541, section 4.4).
        self.evict(self.max.saturating_sub(size));
        if size <= self.max {
            let mut text = Vec::with_capacity(name.len() + value.len());
            text.extend_from_slice(name);
            text.extend_from_slice(value);
            self.table.push_front(Entry { text: text.into_boxed_slice(), name: name.len() as u32 });
            self.size += size;
        }
    }

    fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(max);
    }

    /// Evicts the oldest entries until the table has at most `size`.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            let Some(e) = self.table.pop_back() else { break };
            self.size = self.size.saturating_sub(e.size());
        }
    }
}

/// Reads an integer with a prefix of `bits` bits (RFC 7541, section 5.1).
#[inline]
fn integer(data: &mut &[u8], bits: u32) -> Result<u64, Stop> {
    let mask = (1u8 << bits) - 1;
    let (first, rest) = data.split_first().ok_or(Stop::Invalid)?;
    if first & mask == mask {
        return long_integer(data, mask);
    }
    *data = rest;
    Ok(u64::from(first & mask))
}

/// Reads an integer that does not fit its prefix.
fn long_integer(data: &mut &[u8], mask: u8) -> Result<u64, Stop> {
    let (_, mut rest) = data.split_first().ok_or(Stop::Invalid)?;
    let mut value = u64::from(mask);
    let mut shift = 0;
    loop {
        let (b, more) = rest.split_first().ok_or(Stop::Invalid)?;
        rest = more;
        // No valid number in a block is this long.
        if shift > 28 {
            return Err(Stop::Overflow);
        }
        value += u64::from(b & 0x7f) << shift;
        shift += 7;
        if b & 0x80 == 0 {
            break;
        }
    }
    if value > u64::from(u32::MAX) {
        return Err(Stop::Overflow);
    }
    *data = rest;
    Ok(value)
}

/// Reads a string (RFC 7541, section 5.2). Returns false if it exceeds `longest` and was not kept.
fn text(data: &mut &[u8], longest: usize, out: &mut Vec<u8>) -> Result<bool, Stop> {
    let huffman = data.first().is_some_and(|b| b & 0x80 != 0);
    let length = usize::try_from(integer(data, 7)?).map_err(|_| Stop::Overflow)?;
    let (bytes, rest) = data.split_at_checked(length).ok_or(Stop::Invalid)?;
    *data = rest;
    if huffman {
        // The shortest code has five bits.
        if !huffman::decode(bytes, longest, out) {
            return if out.len() < longest { Err(Stop::Invalid) } else { Ok(false) };
        }
        return Ok(true);
    }
    out.extend_from_slice(bytes.get(..longest).unwrap_or(bytes));
    Ok(bytes.len() <= longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter_map(|b| char::from(b).to_digit(16).map(|d| d as u8)).collect();
        digits.chunks(2).map(|c| c[0] << 4 | c[1]).collect()
    }

    fn read(d: &mut Decoder, block: &str) -> Vec<String> {
        let mut f = Fields::default();
        assert_eq!(d.block(&hex(block), &mut f, 65536, usize::MAX), Faults::default(), "{block}");
        f.iter().map(|(n, v)| format!("{}: {}", n.escape_ascii(), v.escape_ascii())).collect()
    }

    #[test]
    fn requests_of_the_standard() {
        // RFC 7541, sections C.3 and C.4: the same fields without and with Huffman coding.
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut d = Decoder::default();
            assert_eq!(
                read(&mut d, blocks[0]),
                [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"]
            );
            assert_eq!(d.size, 57);
            assert_eq!(read(&mut d, blocks[1])[4], "cache-control: no-cache");
            assert_eq!(d.size, 110);
            assert_eq!(
                read(&mut d, blocks[2]),
                [
                    ":method: GET",
                    ":scheme: https",
                    ":path: /index.html",
                    ":authority: www.example.com",
                    "custom-key: custom-value"
                ]
            );
            assert_eq!((d.size, d.table.len()), (164, 3));
        }
    }

    #[test]
    fn responses_of_the_standard() {
        // RFC 7541, section C.6, with a table of 256 bytes: old entries are evicted.
        let mut d = Decoder::default();
        d.resize(256);
        let first = read(
            &mut d,
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        );
        assert_eq!(first[0], ":status: 302");
        assert_eq!((d.size, d.table.len()), (222, 4));
        assert_eq!(read(&mut d, "4883 640e ffc1 c0bf")[0], ":status: 307");
        assert_eq!((d.size, d.table.len()), (222, 4));
        let third = read(
            &mut d,
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        );
        assert_eq!(third[5], "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        assert_eq!((d.size, d.table.len()), (215, 3));
    }

    #[test]
    fn what_makes_no_sense() {
        for (block, invalid, overflow) in [
            // An index without an entry, one past the table, and zero.
            ("82 be", true, false),
            ("ff 80 80 80 01", true, false),
            ("80", true, false),
            // Truncated strings, and an invalid code.
            ("40 05 61", true, false),
            ("40 81 18 00", true, false),
            ("7f", true, false),
            // Numbers.
            ("ff ff ff ff ff ff ff ff ff ff 01", false, true),
            ("ff ff ff ff ff 7f", false, true),
        ] {
            let (mut d, mut f) = (Decoder::default(), Fields::default());
            let faults = d.block(&hex(block), &mut f, 4096, usize::MAX);
            assert_eq!((faults.invalid, faults.overflow), (invalid, overflow), "{block}");
        }
    }

    #[test]
    fn a_few_bytes_do_not_make_many() {
        let (mut d, mut f) = (Decoder::default(), Fields::default());
        let mut block = vec![0x40, 1, b'a', 0x7f, 0xa1, 0x1e];
        block.extend(vec![b'x'; 4000]);
        block.extend(vec![0xbe; 10_000]);
        let faults = d.block(&block, &mut f, 4096, usize::MAX);
        assert!(faults.dropped && !faults.invalid);
        assert!(f.memory() < 2 << 20, "{}", f.memory());
        // The table stays within the limit, whatever the peer announces.
        let faults = d.block(&hex("3f e1 ff 0f"), &mut Fields::default(), 100, usize::MAX);
        assert_eq!((faults, d.max, d.size), (Faults::default(), 100, 0));
    }
}
