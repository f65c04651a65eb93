//! Data that is inspected as it streams by: bodies and files of any size in constant memory.

use margay_flow::spare::Buffer;

/// How much of streamed data is looked at, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowLimits {
    /// Bytes that must be there before the first look, unless the data is at its end (`*-body-minimal-inspect-size`).
    pub min: u32,
    /// Bytes already looked at that the next look begins with (`*-body-inspect-window`).
    pub window: u32,
}

/// The end of streamed data that detection has still to look at, or needs to look at again to see what straddles.
#[derive(Debug, Clone, Default)]
pub struct Window {
    data: Buffer,
    /// Bytes at the front of `data` that are freed but not yet moved out.
    head: usize,
    /// Where what the last look had began in `data`: nothing moved since.
    looked: usize,
    /// Offset of `data[head]` in all that streamed by.
    start: u64,
    /// Everything before this was looked at.
    inspected: u64,
    /// Bytes that will stream by, as far as is known; else 0.
    announced: u64,
}

impl Window {
    /// So many bytes will stream by, as was announced: memory is made for them when the first come.
    pub const fn announce(&mut self, bytes: u64) {
        self.announced = bytes;
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.head == self.data.len() {
            self.data.clear();
            self.head = 0;
        }
        let total = self.announced.saturating_sub(self.start);
        if self.data.append_behind(self.head, bytes, usize::try_from(total).unwrap_or(0)) {
            self.head = 0;
        }
        self.looked = self.head;
    }

    /// So many bytes stream by, and nobody looks at them, nor at what is held.
    pub fn pass(&mut self, bytes: u64) {
        self.discard();
        self.start = self.start.saturating_add(bytes);
        self.inspected = self.start;
    }

    fn bytes(&self) -> &[u8] {
        self.data.get(self.head..).unwrap_or(&[])
    }

    /// Bytes that streamed by.
    pub fn total(&self) -> u64 {
        self.start.saturating_add(self.bytes().len() as u64)
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        self.data.capacity()
    }

    /// Whether there is something that was not looked at.
    pub fn has_new(&self) -> bool {
        self.total() > self.inspected
    }

    /// What is held, with its offset.
    pub fn held(&self) -> (&[u8], u64) {
        (self.bytes(), self.start)
    }

    /// What was held for the last look, for events about what that look found.
    pub fn shown(&self) -> &[u8] {
        self.data.get(self.looked..).unwrap_or(&[])
    }

    /// What is due for inspection, with its offset: nothing before there is enough of it or it is `at_end`; then what is new
    /// and the window before it.
    pub fn due(&self, limits: WindowLimits, at_end: bool) -> Option<(&[u8], u64)> {
        if !at_end && self.inspected == 0 && self.total() < u64::from(limits.min) {
            return None;
        }
        if !self.has_new() && !at_end {
            return None;
        }
        let from = self.inspected.saturating_sub(u64::from(limits.window)).max(self.start);
        Some((self.bytes().get((from - self.start) as usize..).unwrap_or(&[]), from))
    }

    /// All of it was looked at, as far as [`Window::due`] gave it; frees what no further look needs.
    pub fn looked_at(&mut self, limits: WindowLimits, at_end: bool) {
        if !at_end && self.inspected == 0 && self.total() < u64::from(limits.min) {
            return;
        }
        self.inspected = self.total();
        let keep = self.inspected.saturating_sub(u64::from(limits.window));
        // What is left is moved when more comes that needs the room; that should be worth it.
        let free = keep.saturating_sub(self.start) as usize;
        let held = self.bytes().len();
        self.looked = self.head;
        if free > 0 && free * 2 >= held {
            let free = free.min(held);
            self.head += free;
            self.start = self.start.saturating_add(free as u64);
        }
    }

    /// Forgets the data, and keeps count: nobody will look at it.
    pub fn discard(&mut self) {
        self.start = self.total();
        self.inspected = self.start;
        (self.data, self.head, self.looked) = (Buffer::default(), 0, 0);
    }

    /// Nothing more will come: gives back the memory that no byte is in.
    pub fn shrink(&mut self) {
        if self.data.shrink(self.head) {
            self.head = 0;
        }
        self.looked = self.head;
    }

    /// Bytes that are missing here; what is behind them is not joined to what is before.
    pub fn gap(&mut self, bytes: u64) {
        self.start = self.total().saturating_add(bytes);
        self.inspected = self.start;
        self.data.clear();
        (self.head, self.looked) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L: WindowLimits = WindowLimits { min: 4, window: 2 };

    #[test]
    fn looks_when_there_is_enough() {
        let mut w = Window::default();
        w.append(b"abc");
        assert_eq!(w.due(L, false), None);
        assert_eq!(w.due(L, true), Some((&b"abc"[..], 0)));
        w.looked_at(L, false);
        w.append(b"de");
        assert_eq!(w.due(L, false), Some((&b"abcde"[..], 0)));
        w.looked_at(L, false);
        assert_eq!(w.due(L, false), None);
        w.append(b"f");
        assert_eq!(w.due(L, false), Some((&b"def"[..], 3)));
    }

    #[test]
    fn events_show_what_the_last_look_had() {
        let mut w = Window::default();
        w.append(b"abcdef");
        w.looked_at(L, false);
        assert_eq!((w.held(), w.shown()), ((&b"ef"[..], 4), &b"abcdef"[..]));
        w.append(b"g");
        assert_eq!(w.shown(), b"efg");
        w.looked_at(WindowLimits { min: 4, window: 0 }, true);
        assert_eq!((w.held(), w.shown()), ((&b""[..], 7), &b"efg"[..]));
        w.append(b"h");
        assert_eq!((w.held(), w.shown()), ((&b"h"[..], 7), &b"h"[..]));
    }

    #[test]
    fn memory_stays_bounded() {
        let mut w = Window::default();
        for _ in 0..10_000 {
            w.append(&[0; 100]);
            w.looked_at(L, false);
        }
        assert_eq!(w.total(), 1_000_000);
        // The first buffer has room for a packet.
        assert!(w.memory() <= 2048, "{}", w.memory());
    }
}
