//! The buffer against a model that keeps every byte for itself.
#![allow(clippy::unwrap_used)]

use margay_stream::{OsPolicy, StreamBuffer};
use proptest::prelude::*;

/// Each byte with the segment it came with.
#[derive(Clone, Default)]
struct Model(Vec<Option<(u8, (u64, u64))>>);

impl Model {
    fn insert(&mut self, start: usize, bytes: &[u8], policy: OsPolicy, floor: usize) -> (bool, bool) {
        let segment = (start as u64, (start + bytes.len()) as u64);
        let (mut overlap, mut different) = (false, false);
        self.0.resize(self.0.len().max(start + bytes.len()), None);
        for (i, &b) in bytes.iter().enumerate().filter(|(i, _)| start + i >= floor) {
            let slot = &mut self.0[start + i];
            match slot {
                None => *slot = Some((b, segment)),
                Some((old, owner)) => {
                    overlap = true;
                    different |= *old != b;
                    if policy.later_wins(*owner, segment) {
                        *slot = Some((b, segment));
                    }
                }
            }
        }
        (overlap, different)
    }
    fn contiguous(&self, at: usize) -> Vec<u8> {
        self.0.iter().skip(at).map_while(|b| b.map(|b| b.0)).collect()
    }
}

fn segments() -> impl Strategy<Value = Vec<(usize, Vec<u8>)>> {
    prop::collection::vec((0usize..120, prop::collection::vec(0u8..3, 1..40)), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn holds_what_the_model_holds(
        segments in segments(),
        policy in prop::sample::select(OsPolicy::ALL.to_vec()),
        consume in prop::collection::vec(any::<bool>(), 30),
    ) {
        let (mut buffer, mut model) = (StreamBuffer::default(), Model::default());
        let mut floor = 0usize;
        for (n, (start, bytes)) in segments.iter().enumerate() {
            let (overlap, different) = model.insert(*start, bytes, policy, floor);
            let done = buffer.insert(*start as u64, bytes, policy, 8);
            prop_assert_eq!((done.overlap, done.different, done.refused), (overlap, different, false));
            for at in floor..model.0.len() {
                let want = model.contiguous(at);
                prop_assert_eq!(buffer.contiguous(at as u64, u64::MAX), &want[..]);
            }
            // A reader takes half of what there is.
            if consume[n] {
                floor += model.contiguous(floor).len() / 2;
                buffer.set_floor(floor as u64);
                buffer.release(floor as u64);
            }
        }
    }

    #[test]
    fn any_split_and_order_gives_the_stream(
        stream in prop::collection::vec(any::<u8>(), 1..400),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..60),
        policy in prop::sample::select(OsPolicy::ALL.to_vec()),
    ) {
        // The same bytes, in whatever pieces, repeats and order: policies do not matter.
        let mut buffer = StreamBuffer::default();
        for (a, b) in &cuts {
            let (a, b) = (a.index(stream.len()), b.index(stream.len()));
            let (a, b) = (a.min(b), a.max(b) + 1);
            prop_assert!(!buffer.insert(a as u64, &stream[a..b], policy, 8).different);
        }
        buffer.insert(0, &stream, policy, 8);
        prop_assert_eq!(buffer.contiguous(0, u64::MAX), &stream[..]);
        prop_assert_eq!(buffer.end(), stream.len() as u64);
    }
}

#[test]
fn writes_holes_as_text() {
    let mut b = StreamBuffer::default();
    b.insert(4, b"GOOD", OsPolicy::Bsd, 8);
    b.insert(12, b"DATA", OsPolicy::Bsd, 8);
    let mut out = Vec::new();
    b.with_gaps(0, u64::MAX, 100, &mut out);
    assert_eq!(out, b"[4 bytes missing]GOOD[4 bytes missing]DATA");
    out.clear();
    b.with_gaps(4, u64::MAX, 6, &mut out);
    assert_eq!(out, b"GOOD[4");
}

#[test]
fn regions_and_blocks_have_limits() {
    let mut b = StreamBuffer::default();
    for i in 0..8u64 {
        assert!(!b.insert(i << 20, b"x", OsPolicy::Bsd, 8).refused);
    }
    assert!(b.insert(9 << 20, b"x", OsPolicy::Bsd, 8).refused);
    assert!(!b.insert(7 << 20 | 5, b"x", OsPolicy::Bsd, 8).refused);
    assert_eq!(b.regions_seen(), 8);
    let mut b = StreamBuffer::default();
    let refused = (0..1000u64).filter(|i| b.insert(i * 2, b"x", OsPolicy::Bsd, 8).refused).count();
    assert_eq!(refused, 1000 - 256);
    assert!(b.memory() < 64 << 10);
}

#[test]
fn a_long_stream_needs_little_memory() {
    let mut b = StreamBuffer::default();
    let bytes = [7u8; 1460];
    for i in 0..10_000u64 {
        let start = i * 1460;
        assert_eq!(b.insert(start, &bytes, OsPolicy::Bsd, 8).new, 1460);
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
    b.insert(60_000, &stream[60_000..], OsPolicy::Bsd, 8);
    for i in (0..60_000).rev() {
        assert_eq!(b.insert(i as u64, &stream[i..=i], OsPolicy::Bsd, 8).new, 1);
    }
    assert_eq!(b.contiguous(0, u64::MAX), &stream[..]);
    assert!(b.memory() < 400 << 10, "{}", b.memory());
}

#[test]
fn a_segment_over_many_pieces_takes_them_all() {
    let mut b = StreamBuffer::default();
    for i in 0..1500u64 {
        b.insert(i, b"a", OsPolicy::Bsd, 8);
    }
    // Bsd: the later one wins where it begins before; so it does for all pieces but the first.
    let done = b.insert(0, &[b'b'; 1501], OsPolicy::Bsd, 8);
    assert_eq!((done.new, done.overlap, done.different), (1, true, true));
    assert_eq!(b.contiguous(0, 3), b"abb");
    // They are that segment's now: the same again does not win over it, one before it does.
    assert!(b.insert(0, &[b'c'; 1501], OsPolicy::Bsd, 8).different);
    assert_eq!(b.contiguous(0, 3), b"abb");
}
