//! Inspection windows over streamed data: bodies and files of any size in constant memory.

use margay_flow::spare::Buffer;

use crate::buffer::Found;

/// How much streamed data rules inspect, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowLimits {
    /// Data needed before the first inspection, unless the data has ended (`*-body-minimal-inspect-size`).
    pub min: u32,
    /// Inspected data that the next inspection repeats (`*-body-inspect-window`).
    pub window: u32,
    /// Until more than so many bytes were inspected, each inspection repeats all of them. Inline, where inspections are small, rules
    /// see as much together as they do otherwise.
    pub whole: u32,
}

impl WindowLimits {
    /// The limits for inline inspection: data is inspected before it is passed on, so it never waits for more.
    pub const fn inline(self) -> WindowLimits {
        WindowLimits { min: 0, window: self.window, whole: self.min }
    }

    /// Where the next inspection begins, after `inspected` bytes.
    fn begins(self, inspected: u64) -> u64 {
        if inspected <= u64::from(self.whole) { 0 } else { inspected.saturating_sub(u64::from(self.window)) }
    }
}

/// The limits for files of protocols without settings for it, as in Suricata: a file is inspected once it is complete or 32 KiB
/// of it are there.
pub const FILE_WINDOW: WindowLimits = WindowLimits { min: 32 << 10, window: 4 << 10, whole: 0 };

/// [`FILE_WINDOW`], or the limits of that for inline inspection.
pub const fn file_window(inline: bool) -> WindowLimits {
    if inline { FILE_WINDOW.inline() } else { FILE_WINDOW }
}

/// The tail of streamed data that detection has not inspected, or needs again to find matches across the boundary.
#[derive(Debug, Clone, Default)]
pub struct Window {
    data: Buffer,
    /// Freed bytes at the front of `data` that are not yet moved out.
    head: usize,
    /// The front of the data at the last inspection, as an index in `data`. Any change of the data sets it to `head`.
    looked: usize,
    /// Stream offset of `data[head]`.
    start: u64,
    /// Stream offset up to which data was inspected.
    inspected: u64,
    /// Total size if announced; otherwise 0.
    announced: u64,
}

impl Window {
    /// Announces the total size. The first data then allocates memory for it.
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

    /// Skips bytes that need no inspection, and drops the held data.
    pub fn pass(&mut self, bytes: u64) {
        self.discard();
        self.start = self.start.saturating_add(bytes);
        self.inspected = self.start;
    }

    fn bytes(&self) -> &[u8] {
        self.data.get(self.head..).unwrap_or(&[])
    }

    /// Total bytes so far.
    pub fn total(&self) -> u64 {
        self.start.saturating_add(self.bytes().len() as u64)
    }

    /// Allocated memory in bytes.
    pub const fn memory(&self) -> usize {
        self.data.reserved()
    }

    /// Whether there is data to inspect.
    pub fn has_new(&self) -> bool {
        self.total() > self.inspected
    }

    /// The held data, with its offset.
    pub fn held(&self) -> (&[u8], u64) {
        (self.bytes(), self.start)
    }

    /// The data held at the last inspection, including what it freed, for events about its matches. Once data is added, the
    /// held data.
    pub fn shown(&self) -> &[u8] {
        self.data.get(self.looked..).unwrap_or(&[])
    }

    /// The data to inspect now: nothing until the minimum is reached or the data is `at_end`; then the new data and the window
    /// before it.
    pub fn due(&self, limits: WindowLimits, at_end: bool) -> Option<Found<'_>> {
        if !at_end && self.inspected == 0 && self.total() < u64::from(limits.min) {
            return None;
        }
        if !self.has_new() && !at_end {
            return None;
        }
        let from = limits.begins(self.inspected).max(self.start);
        let data = self.bytes().get((from - self.start) as usize..).unwrap_or(&[]);
        Some(Found { data, offset: from, end: at_end, seen: self.inspected.saturating_sub(from) as usize })
    }

    /// Marks the data that [`Window::due`] returned as inspected, and frees what the next inspection does not need.
    pub fn looked_at(&mut self, limits: WindowLimits, at_end: bool) {
        if !at_end && self.inspected == 0 && self.total() < u64::from(limits.min) {
            return;
        }
        self.inspected = self.total();
        let keep = limits.begins(self.inspected);
        // The rest moves to the front when new data needs the room, so freeing waits until it is worth the copy.
        let free = keep.saturating_sub(self.start) as usize;
        let held = self.bytes().len();
        self.looked = self.head;
        if free > 0 && free * 2 >= held {
            let free = free.min(held);
            self.head += free;
            self.start = self.start.saturating_add(free as u64);
        }
    }

    /// Drops the data, which needs no inspection, and keeps the count.
    pub fn discard(&mut self) {
        self.start = self.total();
        self.inspected = self.start;
        (self.data, self.head, self.looked) = (Buffer::default(), 0, 0);
    }

    /// Frees unused memory at the end of the data.
    pub fn shrink(&mut self) {
        if self.data.shrink(self.head) {
            self.head = 0;
        }
        self.looked = self.head;
    }

    /// Frees the memory of inspected data, for a stream of which rules see no more: the rest of a long body may take hours.
    #[inline]
    pub fn settle(&mut self) {
        if !self.has_new() && self.memory() > 2 * self.bytes().len() {
            self.shrink();
        }
    }

    /// Records a gap. Data on both sides of it is not joined.
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

    const L: WindowLimits = WindowLimits { min: 4, window: 2, whole: 0 };

    #[test]
    fn looks_when_there_is_enough() {
        let mut w = Window::default();
        w.append(b"abc");
        assert_eq!(w.due(L, false), None);
        let due = |data, offset, end, seen| Some(Found { data, offset, end, seen });
        assert_eq!(w.due(L, true), due(b"abc", 0, true, 0));
        w.looked_at(L, false);
        w.append(b"de");
        assert_eq!(w.due(L, false), due(b"abcde", 0, false, 0));
        w.looked_at(L, false);
        assert_eq!(w.due(L, false), None);
        w.append(b"f");
        assert_eq!(w.due(L, false), due(b"def", 3, false, 2));
    }

    #[test]
    fn inline_the_beginning_is_looked_at_as_a_whole() {
        let mut w = Window::default();
        let due = |data, offset, seen| Some(Found { data, offset, end: false, seen });
        for (new, all, seen) in [(&b"ab"[..], &b"ab"[..], 0), (b"cd", b"abcd", 2), (b"e", b"abcde", 4)] {
            w.append(new);
            assert_eq!(w.due(L.inline(), false), due(all, 0, seen));
            w.looked_at(L.inline(), false);
        }
        w.append(b"f");
        assert_eq!(w.due(L.inline(), false), due(b"def", 3, 2));
    }

    #[test]
    fn events_show_what_the_last_look_had() {
        let mut w = Window::default();
        w.append(b"abcdef");
        w.looked_at(L, false);
        assert_eq!((w.held(), w.shown()), ((&b"ef"[..], 4), &b"abcdef"[..]));
        w.append(b"g");
        assert_eq!(w.shown(), b"efg");
        w.looked_at(WindowLimits { window: 0, ..L }, true);
        assert_eq!((w.held(), w.shown()), ((&b""[..], 7), &b"efg"[..]));
        w.append(b"h");
        assert_eq!((w.held(), w.shown()), ((&b"h"[..], 7), &b"h"[..]));
    }

    #[test]
    fn the_rest_of_a_long_body_needs_no_memory() {
        let mut w = Window::default();
        w.announce(100_000);
        w.append(&[1; 100_000]);
        w.settle();
        assert!(w.memory() >= 100_000, "nothing was inspected");
        w.looked_at(L, false);
        w.settle();
        assert_eq!((w.total(), w.held(), w.has_new()), (100_000, (&[1, 1][..], 99_998), false));
        assert!(w.memory() < 100, "{}", w.memory());
    }

    #[test]
    fn memory_stays_bounded() {
        let mut w = Window::default();
        for _ in 0..10_000 {
            w.append(&[0; 100]);
            w.looked_at(L, false);
        }
        assert_eq!(w.total(), 1_000_000);
        // The first buffer holds a packet.
        assert!(w.memory() <= 2048, "{}", w.memory());
    }
}
