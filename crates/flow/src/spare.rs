//! Recycled buffers: one flow's data reuses the memory that another flow's data released.
//!
//! Data of streams, bodies and files arrives packet by packet. Without recycling, each growing buffer would be moved
//! three or four times, to memory that is not in the CPU cache or not even mapped. Each thread keeps a few spare buffers
//! and reuses the last one first, which is still in the cache. It keeps at most 64 buffers of up to 64 KiB and 256
//! buffers of 2 KiB.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// First buffer size for data in packets of the usual size: holds one packet.
const PACKET: usize = 2 << 10;
/// Most spare buffers of that size per thread.
const PACKETS_KEPT: usize = 256;
/// Smaller buffers are not kept, except those for one packet; larger ones are rare.
const MIN: usize = 8 << 10;
const MAX: usize = 64 << 10;
/// Sizes for data beyond its first packet: few and at most three times apart, so that a released buffer fits the next
/// user.
const SIZES: [usize; 3] = [MIN, 24 << 10, MAX];
/// A spare buffer is not used if less than one part in this many would be filled.
const FITS: usize = 3;
/// Number of spare buffers inspected for a fit.
const TRIES: usize = 12;
/// Most spare buffers per thread.
const KEPT: usize = 64;
/// Data of this size is expected to grow beyond one packet.
const GROWS: usize = 1024;
/// Memory that an announced size reserves at once. Beyond it, at most [`TRUST`] times the received data is reserved, so
/// that a sender cannot claim memory by announcing a large size.
const ANNOUNCED: usize = 32 << 10;
const TRUST: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static PACKETS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes whose memory is recycled when they are dropped.
#[derive(Debug, Clone, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Allocated memory in bytes.
    #[inline]
    pub const fn reserved(&self) -> usize {
        self.0.capacity()
    }

    /// Appends `bytes`; grows into a spare buffer if there is one.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        self.append_of(bytes, 0);
    }

    /// As [`Buffer::append`], with the expected final size `total`: memory for it is reserved, so that the data need not
    /// move.
    #[inline]
    pub fn append_of(&mut self, bytes: &[u8], total: usize) {
        let data = &mut self.0;
        let needed = data.len() + bytes.len();
        if data.capacity() < needed && (needed > GROWS || total > needed) {
            grow(data, 0, bytes.len(), total);
        }
        data.extend_from_slice(bytes);
    }

    /// As [`Buffer::append_of`], if the bytes before `from` are no longer needed; `total` does not count them. Returns
    /// whether they were freed because the rest had to move: the data then begins with the byte at `from`.
    #[inline]
    pub fn append_behind(&mut self, from: usize, bytes: &[u8], total: usize) -> bool {
        let data = &mut self.0;
        let moves = from > 0 && data.capacity() - data.len() < bytes.len();
        if moves {
            make_room(data, from.min(data.len()), bytes.len(), total);
            data.extend_from_slice(bytes);
        } else {
            // There is room, or nothing before `from` that could be freed.
            self.append_of(bytes, total);
        }
        moves
    }

    /// Frees the bytes before `from` and moves the rest to the front. Returns whether memory was released: if little is
    /// left, it moves to a packet buffer, and this one becomes the next large buffer while it is in the cache.
    pub fn forget_before(&mut self, from: usize) -> bool {
        let left = self.0.get(from..).unwrap_or(&[]);
        let gives = left.len() <= PACKET && self.0.capacity() >= MIN;
        if gives {
            let mut new = packet();
            new.extend_from_slice(left);
            *self = Buffer(new);
        } else {
            self.0.drain(..from.min(self.0.len()));
        }
        gives
    }

    /// For a buffer that expects no more data: frees the bytes before `from` and unused memory, if they are more than a
    /// quarter of the remaining data. Returns whether it did: the data then begins with the byte at `from`.
    pub fn shrink(&mut self, from: usize) -> bool {
        let needed = self.0.get(from..).unwrap_or(&[]);
        let shrinks = self.0.capacity() > needed.len() + needed.len() / 4;
        if shrinks {
            *self = Buffer(needed.to_vec());
        }
        shrinks
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(data: Vec<u8>) -> Buffer {
        Buffer(data)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        give(std::mem::take(&mut self.0));
    }
}

/// Makes room for `more` bytes after the data from `from` on, in place if that is worthwhile.
#[cold]
fn make_room(data: &mut Vec<u8>, from: usize, more: usize, total: usize) {
    let live = data.len() - from;
    if live <= from && live + more <= data.capacity() {
        // Each byte moves at most once for every byte freed.
        data.drain(..from);
    } else {
        grow(data, from, more, total);
    }
}

/// Allocates room for `more` bytes after the data from `from` on, which is all that is kept.
#[cold]
fn grow(data: &mut Vec<u8>, from: usize, more: usize, total: usize) {
    let live = data.get(from..).unwrap_or(&[]);
    let needed = live.len() + more;
    let announced = total.min(ANNOUNCED.max(TRUST * needed));
    if announced <= needed && needed <= PACKET {
        let mut new = packet();
        new.extend_from_slice(live);
        give(std::mem::replace(data, new));
        return;
    }
    let (size, fits) = if announced > needed {
        (announced, announced..=announced + announced / 4)
    } else if live.len() < GROWS {
        // A packet buffer is enough.
        (needed, needed..=FITS * needed)
    } else {
        (SIZES.into_iter().find(|s| *s >= needed).unwrap_or(needed.max(2 * live.len())), needed..=FITS * needed)
    };
    let fits = |v: &Vec<u8>| fits.contains(&v.capacity());
    let spare = SPARE.try_with(|s| {
        let mut spare = s.try_borrow_mut().ok()?;
        let at = spare.iter().rev().take(TRIES).position(fits)?;
        let at = spare.len() - 1 - at;
        Some(spare.swap_remove(at))
    });
    let mut new = spare.ok().flatten().unwrap_or_else(|| Vec::with_capacity(size));
    new.extend_from_slice(live);
    give(std::mem::replace(data, new));
}

/// An empty packet buffer.
fn packet() -> Vec<u8> {
    let spare = PACKETS.try_with(|s| s.try_borrow_mut().ok()?.pop());
    spare.ok().flatten().unwrap_or_else(|| Vec::with_capacity(PACKET))
}

/// Keeps the memory of a dropped buffer, if it is worth keeping.
#[inline]
fn give(data: Vec<u8>) {
    if (PACKET..=MAX).contains(&data.capacity()) {
        keep(data);
    }
}

fn keep(mut data: Vec<u8>) {
    data.clear();
    let (list, most) = match data.capacity() {
        PACKET => (&PACKETS, PACKETS_KEPT),
        MIN.. => (&SPARE, KEPT),
        _ => return,
    };
    // A thread that ends keeps nothing.
    let _ = list.try_with(|s| {
        if let Ok(mut spare) = s.try_borrow_mut()
            && spare.len() < most
        {
            spare.push(data);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> usize {
        SPARE.with_borrow(Vec::len)
    }

    #[test]
    fn what_one_grew_the_next_takes() {
        let mut a = Buffer::default();
        for _ in 0..20 {
            a.append(&[1; 1000]);
        }
        let (capacity, at) = (a.capacity(), a.as_ptr());
        assert!((MIN..=MAX).contains(&capacity));
        drop(a);
        assert_eq!(kept(), 2, "and what it grew out of");
        let mut b = Buffer::default();
        b.append(&[2; 600]);
        assert_eq!(kept(), 2, "what fits a packet needs none");
        b.append(&[3; 600]);
        assert_eq!(kept(), 2, "they would be far too large");
        b.append(&[4; 12_000]);
        assert_eq!((kept(), b.capacity(), b.as_ptr()), (1, capacity, at));
        assert!(b[..600] == [2; 600] && b[600..1200] == [3; 600] && b[1200..] == [4; 12_000]);
        // No spare is left. Too large or too small buffers are not kept; the outgrown one is.
        let mut c = b.clone();
        c.append(&[5; MAX]);
        assert_eq!((kept(), c.len()), (2, 13_200 + MAX));
        drop(c);
        drop(Buffer::from(vec![0; 100]));
        assert_eq!(kept(), 2);
        SPARE.with_borrow_mut(Vec::clear);
        // A spare buffer that is too small stays.
        drop(b);
        let mut d = Buffer::from(vec![6; MAX]);
        d.append(&[7; 2000]);
        assert_eq!((kept(), d.len()), (2, MAX + 2000));
    }

    #[test]
    fn what_no_byte_is_in_is_given_back() {
        let mut a = Buffer::from(Vec::with_capacity(MIN));
        a.append(&[1; MIN - 100]);
        assert!(!a.shrink(0) && kept() == 0);
        a[MIN - 101] = 2;
        assert!(a.shrink(MIN - 102));
        assert_eq!((a.as_slice(), a.capacity(), kept()), (&[1, 2][..], 2, 1));
        assert!(!a.shrink(0) && a.shrink(5) && a.is_empty());
    }

    #[test]
    fn what_was_announced_is_not_moved() {
        let mut a = Buffer::default();
        a.append_of(&[1; 100], 700);
        assert_eq!(a.capacity(), 700);
        let mut b = Buffer::default();
        b.append_of(&[1; 1400], 12_000);
        let at = b.as_ptr();
        for n in 2..=8 {
            b.append_of(&[n; 1400], 12_000);
        }
        assert_eq!((b.capacity(), b.as_ptr()), (12_000, at));
        assert!(!b.shrink(0));
        // An announced size is trusted only up to a few times the received data.
        let mut c = Buffer::default();
        c.append_of(&[1; 10], usize::MAX);
        assert_eq!(c.capacity(), ANNOUNCED);
        c.append_of(&[2; ANNOUNCED], usize::MAX);
        assert_eq!((c.capacity(), c.len()), (TRUST * (ANNOUNCED + 10), ANNOUNCED + 10));
        // Required memory is allocated in any case.
        let mut d = Buffer::default();
        d.append_of(&[1; 5000], 100);
        assert!(d[..] == [1; 5000]);
    }

    #[test]
    fn what_is_freed_is_not_moved_along() {
        let mut a = Buffer::from(Vec::with_capacity(MIN));
        a.append(&[1; 6000]);
        a.append(&[2; 2000]);
        assert!(!a.append_behind(6000, &[3; 100], 0), "there is room");
        assert!(a.append_behind(6000, &[4; 1000], 0));
        assert_eq!((a.len(), a.capacity()), (3100, MIN));
        assert!(a[..2000] == [2; 2000] && a[2000..2100] == [3; 100] && a[2100..] == [4; 1000]);
        // More is kept than freed: the buffer grows, without the freed bytes.
        assert!(a.append_behind(100, &[5; 6000], 0));
        assert_eq!((a.len(), a.capacity()), (9000, SIZES[1]));
        assert!(a[..1900] == [2; 1900] && a[3000..] == [5; 6000]);
        assert!(!a.append_behind(0, &[6; SIZES[1]], 0));
        assert_eq!((a.len(), a.capacity()), (9000 + SIZES[1], SIZES[2]));
    }

    #[test]
    fn what_is_forgotten_gives_a_large_buffer_back() {
        let mut a = Buffer::from(Vec::with_capacity(MIN));
        a.append(&[1; 6000]);
        a.append(&[2; 2000]);
        assert!(a.forget_before(7000));
        assert_eq!((a.as_slice(), a.capacity(), kept()), (&[2; 1000][..], PACKET, 1));
        assert!(!a.forget_before(900));
        assert_eq!((a.as_slice(), a.capacity()), (&[2; 100][..], PACKET));
        // It grows into the buffer that it left.
        a.append(&[3; PACKET]);
        assert_eq!((a.len(), a.capacity(), kept()), (100 + PACKET, 100 + PACKET, 1));
        a.append(&[4; 3000]);
        assert_eq!((a.capacity(), kept()), (MIN, 0));
        // If much is left, it stays.
        assert!(!a.forget_before(100));
        assert_eq!((a.len(), a.capacity()), (PACKET + 3000, MIN));
    }

    #[test]
    fn a_packet_takes_what_held_one() {
        let mut a = Buffer::default();
        a.append(&[1; 1460]);
        let at = a.as_ptr();
        assert_eq!(a.capacity(), PACKET);
        drop(a);
        let mut b = Buffer::default();
        b.append(&[2; 1200]);
        assert_eq!((b.as_ptr(), b.as_slice()), (at, &[2; 1200][..]));
    }

    #[test]
    fn only_so_many_are_kept() {
        for _ in 0..2 * PACKETS_KEPT {
            give(Vec::with_capacity(PACKET));
        }
        assert_eq!(PACKETS.with_borrow(Vec::len), PACKETS_KEPT);
        for _ in 0..2 * KEPT {
            give(Vec::with_capacity(MIN));
        }
        assert_eq!(kept(), KEPT);
    }
}
