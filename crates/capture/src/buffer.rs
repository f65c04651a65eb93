//! The read-ahead buffer: the part of the file in memory.

use std::io::{self, Read};
use std::sync::Arc;

use crate::ahead::{HEADROOM, READ_AHEAD, ReadAhead};

/// The largest buffer; a record that does not fit is broken.
pub(crate) const MAX_BUFFER: usize = 32 << 20;

/// A window over the source, which only moves forwards.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Arc<Vec<u8>>,
    start: usize,
    end: usize,
    /// Offset in the source of `bytes[start]`.
    offset: u64,
    eof: bool,
    /// Earlier buffers that callers may still hold. They are reused when nobody holds them.
    lent: Vec<Arc<Vec<u8>>>,
}

impl Buffer {
    /// Clears the contents for another source, but keeps the memory.
    pub(crate) fn reset(&mut self) {
        (self.start, self.end, self.offset, self.eof) = (0, 0, 0, false);
        if self.bytes.len() > MAX_BUFFER {
            self.bytes = Arc::default();
        }
    }

    /// Takes the bytes of a whole source.
    pub(crate) fn fill_with(&mut self, bytes: Vec<u8>) {
        self.lend();
        (self.start, self.end, self.offset, self.eof) = (0, bytes.len(), 0, true);
        self.bytes = Arc::new(bytes);
    }

    /// The buffer, for callers that hold it, and the offset in it of the last `n` consumed bytes.
    pub(crate) fn shared(&self, n: usize) -> (&Arc<Vec<u8>>, usize) {
        (&self.bytes, self.start.saturating_sub(n))
    }

    /// Whether the next [`Buffer::refill`] needs at most `most` lent buffers. If not, it may take one more.
    pub(crate) fn has_spare(&self, most: usize) -> bool {
        self.lent.len() < most || self.lent.iter().any(|b| Arc::strong_count(b) == 1)
    }

    /// Moves the buffer to the lent ones, if a caller holds it.
    fn lend(&mut self) {
        if Arc::get_mut(&mut self.bytes).is_none() {
            self.lent.push(std::mem::take(&mut self.bytes));
        }
    }

    /// Returns the buffer for writing. If a caller holds it, the remaining bytes are first copied to another buffer.
    fn own(&mut self) -> &mut Vec<u8> {
        if Arc::get_mut(&mut self.bytes).is_none() {
            let free = self.lent.iter_mut().position(|b| Arc::get_mut(b).is_some());
            let mut other = free.map_or_else(Arc::default, |i| self.lent.swap_remove(i));
            let bytes = Arc::make_mut(&mut other);
            let rest = self.bytes.get(self.start..self.end).unwrap_or(&[]);
            if bytes.len() < rest.len() {
                bytes.resize(self.bytes.len(), 0);
            }
            if let Some(room) = bytes.get_mut(..rest.len()) {
                room.copy_from_slice(rest);
            }
            (self.start, self.end) = (0, rest.len());
            self.lent.push(std::mem::replace(&mut self.bytes, other));
        }
        // There is no other reference, so this does not copy.
        Arc::make_mut(&mut self.bytes)
    }

    /// The bytes that were read and are not consumed yet.
    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or(&[])
    }

    /// The last `n` consumed bytes and all bytes after them; valid until the next [`Buffer::refill`].
    pub(crate) fn consumed(&self, n: usize) -> &[u8] {
        self.bytes.get(self.start.saturating_sub(n)..self.end).unwrap_or(&[])
    }

    /// Consumes `n` bytes. They stay in place until the next [`Buffer::refill`].
    pub(crate) fn consume(&mut self, n: usize) {
        let n = n.min(self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Offset in the source of the first byte of [`Buffer::data`].
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes taken from the source so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }

    /// Whether the source has ended.
    pub(crate) fn eof(&self) -> bool {
        self.eof
    }

    /// Reads once from `source`, after moving the remaining bytes to the front. Grows only when full, by doubling, so that memory
    /// depends on the bytes that the source has, and never on what a length field claims.
    ///
    /// At the end of the source [`Buffer::eof`] turns true and nothing is added.
    pub(crate) fn refill(&mut self, source: &mut impl Read) -> io::Result<()> {
        if self.eof {
            return Ok(());
        }
        self.compact();
        if self.end == self.bytes.len() {
            self.grow(self.end + 1)?;
        }
        loop {
            let end = self.end;
            let room = self.own().get_mut(end..).unwrap_or(&mut []);
            match source.read(room) {
                Ok(0) => self.eof = true,
                // Do not trust a source that claims more than the room it was given.
                Ok(n) => self.end = (end + n).min(self.bytes.len()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }

    /// The same with a reading thread. Takes its buffer without a copy, except for a partial record from before.
    pub(crate) fn refill_ahead(&mut self, ahead: &mut ReadAhead) -> io::Result<()> {
        if self.eof {
            return Ok(());
        }
        let (mut next, n) = ahead.next()?;
        self.eof = n == 0;
        let rest = self.end - self.start;
        if rest <= HEADROOM {
            let start = HEADROOM - rest;
            if let (Some(room), Some(rest)) = (next.get_mut(start..HEADROOM), self.bytes.get(self.start..self.end)) {
                room.copy_from_slice(rest);
            }
            let bytes = self.own();
            std::mem::swap(bytes, &mut next);
            (self.start, self.end) = (start, HEADROOM + n);
        } else {
            self.compact();
            let end = self.end + n;
            if end > self.bytes.len() {
                self.grow(end)?;
            }
            let at = self.end;
            if let (Some(room), Some(read)) = (self.own().get_mut(at..end), next.get(HEADROOM..HEADROOM + n)) {
                room.copy_from_slice(read);
            }
            self.end = end;
        }
        ahead.give_back(next);
        Ok(())
    }

    /// Moves the remaining bytes to the front.
    fn compact(&mut self) {
        self.own();
        if self.start > 0 {
            let (start, end) = (self.start, self.end);
            self.own().copy_within(start..end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Makes room for `wanted` bytes, by doubling.
    fn grow(&mut self, wanted: usize) -> io::Result<()> {
        let size = (self.bytes.len() * 2).max(wanted.next_power_of_two()).clamp(READ_AHEAD, MAX_BUFFER);
        if size < wanted {
            return Err(io::Error::other("a record does not fit the largest buffer"));
        }
        self.own().resize(size, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_what_the_source_has() {
        let mut buffer = Buffer::default();
        let mut source: &[u8] = &[7; 100];
        for _ in 0..10 {
            buffer.refill(&mut source).unwrap();
        }
        assert!(buffer.eof());
        assert_eq!((buffer.data().len(), buffer.bytes.len()), (100, READ_AHEAD));

        buffer.reset();
        let mut endless = io::repeat(1);
        let error = loop {
            if let Err(error) = buffer.refill(&mut endless) {
                break error;
            }
        };
        assert_eq!(buffer.bytes.len(), MAX_BUFFER);
        assert!(error.to_string().contains("does not fit"));
    }

    #[test]
    fn what_others_hold_is_left_alone() {
        let mut buffer = Buffer::default();
        let mut source: &[u8] = b"abcdef";
        buffer.refill(&mut source).unwrap();
        buffer.consume(4);
        let (held, at) = buffer.shared(4);
        let (held, at) = (Arc::clone(held), at);
        let mut more: &[u8] = b"ghi";
        buffer.refill(&mut more).unwrap();
        assert_eq!((&held[at..at + 6], buffer.data(), buffer.offset()), (&b"abcdef"[..], &b"efghi"[..], 4));
        assert!(!buffer.has_spare(1) && buffer.has_spare(2));
        drop(held);
        assert!(buffer.has_spare(1));
        let memory = buffer.lent[0].as_ptr();
        let held = Arc::clone(buffer.shared(0).0);
        more = b"j";
        buffer.refill(&mut more).unwrap();
        assert_eq!((buffer.bytes.as_ptr(), buffer.data(), buffer.lent.len()), (memory, &b"efghij"[..], 1));
        drop(held);
        buffer.fill_with(b"whole".to_vec());
        assert_eq!((buffer.data(), buffer.eof(), buffer.offset()), (&b"whole"[..], true, 0));
    }

    #[test]
    fn what_was_consumed_stays_until_the_next_refill() {
        let mut buffer = Buffer::default();
        let mut source: &[u8] = b"abcdef";
        buffer.refill(&mut source).unwrap();
        buffer.consume(2);
        buffer.consume(3);
        assert_eq!((buffer.consumed(3), buffer.data(), buffer.offset()), (&b"cdef"[..], &b"f"[..], 5));
        buffer.consume(100);
        assert_eq!((buffer.offset(), buffer.bytes_read()), (6, 6));
    }
}
