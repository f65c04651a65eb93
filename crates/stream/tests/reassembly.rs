//! Compares the buffer with a model that stores every byte separately.
#![allow(clippy::unwrap_used)]

use margay_stream::{OsPolicy, StreamBuffer};
use proptest::prelude::*;

/// The segment that brought a byte, and whether another may replace it.
#[derive(Debug, Clone, Copy)]
struct Held {
    byte: u8,
    segment: (u64, u64),
    doubt: u8,
    /// The byte is in order for a receiver that accepts all segments up to this doubt.
    in_order_at: u8,
    settled: bool,
}

/// Every byte with its segment.
#[derive(Clone, Default)]
struct Model {
    bytes: Vec<Option<Held>>,
    /// The first byte that is not in order.
    next: usize,
    /// The receiver has everything before this.
    acked: usize,
    /// Early data that became in order with the previous segment.
    filled: (usize, usize),
    policy: OsPolicy,
}

impl Model {
    /// Whether the origin of a byte is recorded.
    fn is_owned(&self, at: usize) -> bool {
        let replaceable = if at < self.next { self.policy.replaces_in_order() } else { self.policy.replaces() };
        self.bytes[at].is_some_and(|h| !h.settled && (h.doubt > 0 || replaceable))
    }
    /// [`Held::in_order_at`] of a range that begins at `at`.
    fn in_order_at(&self, at: usize, doubt: u8) -> u8 {
        let doubtful = doubt > 0 || (0..self.bytes.len()).any(|i| self.is_owned(i) && self.bytes[i].unwrap().doubt > 0);
        match at {
            at if at <= self.next => doubt,
            at if doubtful && self.is_owned(at - 1) => self.bytes[at - 1].unwrap().in_order_at.max(doubt),
            _ => u8::MAX,
        }
    }
    fn insert(&mut self, start: usize, bytes: &[u8], doubt: u8, floor: usize) -> (bool, bool) {
        let (policy, before) = (self.policy, self.next);
        let segment = (start as u64, (start + bytes.len()) as u64);
        let (mut overlap, mut different) = (false, false);
        self.bytes.resize(self.bytes.len().max(start + bytes.len()), None);
        let held = |byte, in_order_at, settled| Held { byte, segment, doubt, in_order_at, settled };
        // Stored bytes come first.
        let mut new = Vec::new();
        let mut stretch: Option<(usize, u8)> = None;
        for (i, &byte) in bytes.iter().enumerate().filter(|(i, _)| start + i >= floor) {
            let at = start + i;
            let Some(old) = self.bytes[at] else {
                new.push((at, byte));
                continue;
            };
            overlap = true;
            different |= old.byte != byte;
            // In-order bytes are final, unless the receiver may lack them.
            let is_final = at < self.next && old.doubt == 0 && !policy.replaces_in_order();
            let wins = match doubt.cmp(&old.doubt) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal if doubt > 0 && old.in_order_at <= doubt => false,
                std::cmp::Ordering::Equal => policy.later_wins(old.segment, segment),
            };
            if wins && !old.settled && !is_final {
                let order = match stretch {
                    Some((end, order)) if end == at => order,
                    _ => self.in_order_at(at, doubt),
                };
                stretch = Some((at + 1, order));
                self.bytes[at] = Some(held(byte, order, false));
            }
        }
        let mut stretch: Option<(usize, u8)> = None;
        for (at, byte) in new {
            let order = match stretch {
                Some((end, order)) if end == at => order,
                _ => self.in_order_at(at, doubt),
            };
            stretch = Some((at + 1, order));
            self.bytes[at] = Some(held(byte, order, at < self.next.min(self.acked)));
            if doubt == 0 {
                self.extend();
            }
        }
        self.extend();
        let behind = before.max(start + bytes.len());
        if before < self.next && behind < self.next {
            self.filled = (behind, self.next);
        }
        (overlap, different)
    }
    fn extend(&mut self) {
        while self.bytes.get(self.next).is_some_and(|b| b.is_some_and(|h| h.doubt == 0 || self.next < self.acked)) {
            self.next += 1;
        }
    }
    fn acknowledge(&mut self, acked: usize, floor: usize) {
        self.acked = self.acked.max(acked);
        let filled = self.filled;
        if acked >= filled.0 {
            self.filled = (0, 0);
        }
        let lacks = (filled.0..filled.1).contains(&acked) && acked >= floor && acked >= self.acked;
        if lacks && !self.policy.replaces_in_order() {
            // The receiver had no room for that: the next data there replaces it.
            let segment = (acked as u64, filled.1 as u64);
            for (i, h) in self.bytes.iter_mut().enumerate().filter_map(|(i, h)| Some((i, h.as_mut()?))) {
                h.settled |= i < self.next;
                if (acked..filled.1).contains(&i) {
                    *h = Held { segment, doubt: 200, in_order_at: 200, settled: false, ..*h };
                }
            }
            self.next = acked;
        }
        while let Some(early) = (self.next..=acked).find(|i| self.bytes.get(*i).is_some_and(Option::is_some)) {
            let before = self.next;
            self.next = early;
            self.extend();
            if self.next == early && before == early {
                break;
            }
            self.filled = (0, 0);
        }
        self.bytes.iter_mut().take(acked).flatten().for_each(|h| h.settled = true);
    }
    fn settle(&mut self, floor: usize) {
        self.bytes.iter_mut().take(floor).flatten().for_each(|h| h.settled = true);
    }
    fn contiguous(&self, at: usize) -> Vec<u8> {
        self.bytes.iter().skip(at).map_while(|b| b.map(|b| b.byte)).collect()
    }
    fn in_order(&self, at: usize) -> Vec<u8> {
        self.contiguous(at).into_iter().take(self.next.saturating_sub(at)).collect()
    }
}

/// All stored data from `at` on; early data may come in several parts.
fn all_from(buffer: &StreamBuffer, mut at: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while buffer.next_at(at) == Some(at) {
        let part = buffer.contiguous(at, u64::MAX);
        assert!(!part.is_empty());
        out.extend_from_slice(part);
        at += part.len() as u64;
    }
    out
}

#[derive(Clone)]
struct Step {
    start: usize,
    bytes: Vec<u8>,
    doubt: u8,
    consume: bool,
    acknowledge: Option<usize>,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = self.bytes.iter().map(|b| char::from(b'0' + b)).collect();
        write!(f, "{}: {text} doubt {} consume {} ack {:?}", self.start, self.doubt, self.consume, self.acknowledge)
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0usize..120,
        prop::collection::vec(0u8..3, 1..40),
        prop::sample::select(vec![0u8, 0, 0, 0, 1, 2]),
        prop::bool::weighted(0.3),
        prop::option::weighted(0.2, 0usize..150),
    );
    let step =
        step.prop_map(|(start, bytes, doubt, consume, acknowledge)| Step { start, bytes, doubt, consume, acknowledge });
    prop::collection::vec(step, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn holds_what_the_model_holds(steps in steps(), policy in prop::sample::select(OsPolicy::ALL.to_vec())) {
        let (mut buffer, mut model) = (StreamBuffer::default(), Model { policy, ..Model::default() });
        let mut floor = 0usize;
        for step in &steps {
            let (overlap, different) = model.insert(step.start, &step.bytes, step.doubt, floor);
            let done = buffer.insert(step.start as u64, &step.bytes, policy, step.doubt);
            prop_assert_eq!((done.overlap, done.different), (overlap, different));
            if let Some(acked) = step.acknowledge {
                buffer.acknowledge(acked as u64);
                model.acknowledge(acked, floor);
            }
            prop_assert_eq!(buffer.next(), model.next as u64);
            for at in floor..model.bytes.len() {
                prop_assert_eq!(all_from(&buffer, at as u64), model.contiguous(at), "at {}", at);
                // In-order data is contiguous.
                if at < model.next {
                    prop_assert_eq!(buffer.contiguous(at as u64, u64::MAX), &model.in_order(at)[..]);
                }
                let early = model.bytes[at].is_some();
                prop_assert_eq!(buffer.next_at(at as u64) == Some(at as u64), early);
            }
            // Rewriting gives the stored bytes.
            let whole: Vec<u8> = step.bytes.iter().map(|b| b ^ 0x80).collect();
            let mut rewritten = whole.clone();
            buffer.rewrite(step.start as u64, &mut rewritten);
            for (i, (new, old)) in rewritten.iter().zip(&whole).enumerate().filter(|(i, _)| step.start + i >= floor) {
                let held = model.bytes[step.start + i].map_or(*old, |h| h.byte);
                prop_assert_eq!(*new, held);
            }
            prop_assert!(buffer.compare(step.start as u64, &rewritten).1);
            // A reader takes half of the available data.
            if step.consume {
                floor += model.in_order(floor).len() / 2;
                buffer.set_floor(floor as u64);
                buffer.release(floor as u64);
                model.settle(floor);
            }
        }
        // At the end, holes are skipped.
        buffer.finish();
        let mut at = floor;
        while let Some(next) = buffer.next_at(at as u64) {
            let part = buffer.contiguous(next, u64::MAX);
            prop_assert_eq!(part, &model.contiguous(next as usize)[..]);
            at = next as usize + part.len();
        }
        prop_assert!(model.bytes.iter().skip(at).all(Option::is_none));
    }

    #[test]
    fn any_split_and_order_gives_the_stream(
        stream in prop::collection::vec(any::<u8>(), 1..400),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..60),
        policy in prop::sample::select(OsPolicy::ALL.to_vec()),
        doubt in 0u8..3,
    ) {
        // The same bytes in any pieces, repetitions and order: policies make no difference.
        let mut buffer = StreamBuffer::default();
        for (a, b) in &cuts {
            let (a, b) = (a.index(stream.len()), b.index(stream.len()));
            let (a, b) = (a.min(b), a.max(b) + 1);
            prop_assert!(!buffer.insert(a as u64, &stream[a..b], policy, doubt).different);
        }
        buffer.insert(0, &stream, policy, 0);
        prop_assert_eq!(buffer.contiguous(0, u64::MAX), &stream[..]);
        prop_assert_eq!(buffer.end(), stream.len() as u64);
        prop_assert!(!buffer.has_early());
    }

    /// Urgent bytes are removed in any order of pointers and data, if a pointer comes before its byte is in order.
    #[test]
    fn urgent_bytes_are_taken_out(
        stream in prop::collection::vec(any::<u8>(), 2..200),
        pieces in prop::collection::vec((any::<prop::sample::Index>(), 1usize..20), 0..60),
        urgent in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut buffer = StreamBuffer::default();
        let (mut pending, mut taken) = (None::<u64>, Vec::new());
        let mut urgent = urgent.iter().map(|u| u.index(stream.len()) as u64);
        let n = stream.len();
        let all = pieces.iter().map(|(a, n)| (a.index(stream.len()), *n)).chain([(0, n)]);
        for (a, len) in all {
            let b = (a + len).min(n);
            if let Some(u) = urgent.next() {
                let counts = u >= buffer.next() && pending.is_none_or(|p| u > p);
                prop_assert_eq!(buffer.would_point_urgent(u), counts);
                prop_assert_eq!(buffer.point_urgent(u), counts);
                if counts {
                    pending = Some(u);
                }
            }
            buffer.insert(a as u64, &stream[a..b], OsPolicy::Linux, 0);
            if let Some(p) = pending.filter(|p| *p < buffer.next()) {
                taken.push(p);
                pending = None;
            }
            let want: Vec<u8> = (0..buffer.next()).filter(|n| !taken.contains(n)).map(|n| stream[n as usize]).collect();
            prop_assert_eq!(buffer.contiguous(0, buffer.in_order_end()), &want[..]);
            prop_assert_eq!(buffer.urgent_count(), taken.len() as u64);
            // A retransmission has equal bytes and is reported as equal.
            prop_assert!(buffer.compare(a as u64, &stream[a..b]).1);
            prop_assert!(!buffer.insert(a as u64, &stream[a..b], OsPolicy::Linux, 0).different);
        }
    }
}

#[test]
fn writes_holes_as_text() {
    let mut b = StreamBuffer::default();
    b.insert(4, b"GOOD", OsPolicy::Bsd, 0);
    b.insert(12, b"DATA", OsPolicy::Bsd, 0);
    for finished in [false, true] {
        if finished {
            b.finish();
        }
        let mut out = Vec::new();
        b.with_gaps(0, u64::MAX, 100, &mut out);
        assert_eq!(out, b"[4 bytes missing]GOOD[4 bytes missing]DATA");
        out.clear();
        b.with_gaps(4, u64::MAX, 6, &mut out);
        assert_eq!(out, b"GOOD[4");
    }
}

#[test]
fn regions_are_counted_and_nothing_is_refused() {
    let mut b = StreamBuffer::default();
    for i in 0..20u64 {
        b.insert(i << 20, b"x", OsPolicy::Bsd, 0);
        b.insert(i << 20 | 5, b"x", OsPolicy::Bsd, 0);
    }
    assert_eq!(b.regions_seen(), 20);
    for i in 0..20u64 {
        assert_eq!((b.contiguous(i << 20, u64::MAX), b.contiguous(i << 20 | 5, u64::MAX)), (&b"x"[..], &b"x"[..]));
    }
    // Data between two regions joins them.
    let mut b = StreamBuffer::default();
    for at in [0, 300, 600] {
        b.insert(at << 10, b"x", OsPolicy::Bsd, 0);
    }
    assert_eq!(b.regions_seen(), 3);
    b.insert(150 << 10, b"x", OsPolicy::Bsd, 0);
    b.insert(450 << 10, b"x", OsPolicy::Bsd, 0);
    b.insert(900 << 10, b"x", OsPolicy::Bsd, 0);
    assert_eq!(b.regions_seen(), 3);
}

/// Every second byte, then those between them, from either end: a segment's cost does not grow with the stored data.
#[test]
fn thousands_of_holes() {
    const N: u64 = 60_000;
    let stream: Vec<u8> = (0..N).map(|i| (i % 251) as u8).collect();
    for fills in [0u64, 1] {
        let mut b = StreamBuffer::default();
        for i in (1..N).step_by(2) {
            b.insert(i, &stream[i as usize..=i as usize], OsPolicy::Bsd, 0);
        }
        assert!(b.memory() < 200 * N / 2, "{}", b.memory());
        let mut rest: Vec<u64> = (0..N).step_by(2).collect();
        if fills == 1 {
            rest.reverse();
        }
        for i in rest {
            assert_eq!(b.insert(i, &stream[i as usize..=i as usize], OsPolicy::Bsd, 0).new, 1);
        }
        assert!(b.contiguous(0, u64::MAX) == stream && !b.has_early());
        b.shrink();
        assert!(b.memory() < 2 * N, "{}", b.memory());
    }
}

#[test]
fn a_long_stream_needs_little_memory() {
    let mut b = StreamBuffer::default();
    let bytes = [7u8; 1460];
    for i in 0..10_000u64 {
        let start = i * 1460;
        assert_eq!(b.insert(start, &bytes, OsPolicy::Bsd, 0).new, 1460);
        let before = start.saturating_sub(512);
        b.set_floor(start + 1460);
        b.release(before);
    }
    assert!(b.memory() < 32 << 10, "{}", b.memory());
}

#[test]
fn data_that_comes_backwards_needs_little_memory() {
    let mut b = StreamBuffer::default();
    let stream: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
    b.insert(60_000, &stream[60_000..], OsPolicy::First, 0);
    for i in (0..60_000).rev() {
        assert_eq!(b.insert(i as u64, &stream[i..=i], OsPolicy::First, 0).new, 1);
    }
    assert_eq!(b.contiguous(0, u64::MAX), &stream[..]);
    assert!(b.memory() < 400 << 10, "{}", b.memory());
}

#[test]
fn a_segment_over_many_pieces_takes_them_all() {
    let mut b = StreamBuffer::default();
    for i in 1..1501u64 {
        b.insert(i, b"a", OsPolicy::Bsd, 0);
    }
    // Bsd: the later segment wins if it begins before the earlier one, here for all of them.
    let done = b.insert(0, &[b'b'; 1502], OsPolicy::Bsd, 0);
    assert_eq!((done.new, done.overlap, done.different), (2, true, true));
    assert_eq!(b.contiguous(0, 3), b"bbb");
    // They are in order and final.
    assert!(b.insert(0, &[b'c'; 1502], OsPolicy::Bsd, 0).different);
    assert_eq!(b.contiguous(0, 3), b"bbb");
}

/// What hosts do with in-order and early data (observed of Linux 6.18).
#[test]
fn overlaps_as_linux_has_them() {
    for (segments, stream) in [
        (&[(0u64, &b"HELLO-"[..]), (0, b"xELLOxDECOYzz")][..], &b"HELLO-DECOYzz"[..]),
        (&[(9, b"BBBB"), (7, b"aaaa"), (0, b"1234567")], b"1234567aaaaBB"),
        (&[(9, b"BBBB"), (9, b"cccccc"), (0, b"123456789")], b"123456789cccccc"),
        (&[(7, b"BBBBBBBB"), (9, b"cc"), (0, b"1234567")], b"1234567BBBBBBBB"),
        (&[(7, b"BBBB"), (9, b"cccc"), (0, b"1234567")], b"1234567BBBBcc"),
        (&[(9, b"BB"), (7, b"cccccc"), (0, b"1234567")], b"1234567cccccc"),
        (&[(9, b"BB"), (9, b"cc"), (0, b"123456789")], b"123456789BB"),
        (&[(4, b"BBBB"), (0, b"aaaaaaaaaa")], b"aaaaaaaaaa"),
    ] {
        let mut b = StreamBuffer::default();
        for (at, bytes) in segments {
            b.insert(*at, bytes, OsPolicy::Linux, 0);
        }
        assert_eq!(String::from_utf8_lossy(b.contiguous(0, u64::MAX)), String::from_utf8_lossy(stream), "{segments:?}");
    }
}
