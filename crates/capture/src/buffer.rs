//! The read-ahead buffer: what of the file is in memory.

use std::io::{self, Read};

use crate::ahead::{HEADROOM, ReadAhead};

/// Bytes taken from the source with one read. Larger does not read faster, and pushes packets out of the caches before
/// they are looked at.
pub(crate) const READ_AHEAD: usize = 1 << 20;

/// The largest buffer; a record that does not fit is broken.
pub(crate) const MAX_BUFFER: usize = 32 << 20;

/// A window over the source, moved forwards only.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the source of `bytes[start]`.
    offset: u64,
    eof: bool,
}

impl Buffer {
    /// Forgets its contents for another source; the memory is kept.
    pub(crate) fn reset(&mut self) {
        (self.start, self.end, self.offset, self.eof) = (0, 0, 0, false);
    }

    /// What was read and not yet consumed.
    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or(&[])
    }

    /// The `n` bytes that were consumed last and what follows them; valid until the next [`Buffer::refill`].
    pub(crate) fn consumed(&self, n: usize) -> &[u8] {
        self.bytes.get(self.start.saturating_sub(n)..self.end).unwrap_or(&[])
    }

    /// Marks `n` bytes as done with. They stay where they are until the next [`Buffer::refill`].
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

    /// Reads once from `source`, after moving what is left to the front. Grows only when full, by doubling, so that
    /// memory follows what the source has and never what a length field claims.
    ///
    /// At the end of the source [`Buffer::eof`] turns true and nothing is added.
    pub(crate) fn refill(&mut self, source: &mut impl Read) -> io::Result<()> {
        if self.eof {
            return Ok(());
        }
        self.to_front();
        if self.end == self.bytes.len() {
            self.grow(self.end + 1)?;
        }
        loop {
            match source.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.eof = true,
                // A source that claims more than it was given room for is not trusted.
                Ok(n) => self.end = (self.end + n).min(self.bytes.len()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            return Ok(());
        }
    }

    /// The same, from what a thread has read: its buffer is taken, not copied, but for what is left of a record.
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
            std::mem::swap(&mut self.bytes, &mut next);
            (self.start, self.end) = (start, HEADROOM + n);
        } else {
            self.to_front();
            let end = self.end + n;
            if end > self.bytes.len() {
                self.grow(end)?;
            }
            if let (Some(room), Some(read)) = (self.bytes.get_mut(self.end..end), next.get(HEADROOM..HEADROOM + n)) {
                room.copy_from_slice(read);
            }
            self.end = end;
        }
        ahead.give_back(next);
        Ok(())
    }

    /// Moves what is left to the front.
    fn to_front(&mut self) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
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
        self.bytes.resize(size, 0);
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
