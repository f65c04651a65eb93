//! Memory that comes back: the buffer that one flow's data has grown, the next flow's data takes.
//!
//! Data of streams, bodies and files is gathered a packet at a time. Without this every such buffer would be moved three or four
//! times as it grows, into memory that is not in the cache, or not even mapped. A thread keeps a few for itself; what is kept
//! was needed at some time, and is no more than 64 times 64 KiB.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Smaller buffers are not worth keeping, larger ones are rare.
const MIN: usize = 8 << 10;
const MAX: usize = 64 << 10;
/// A spare buffer is not taken for less than this part of it, …
const FITS: usize = 3;
/// …and looked for among so many.
const TRIES: usize = 12;
/// Most buffers that a thread keeps.
const KEPT: usize = 64;
/// Data of so many bytes has grown beyond a packet, and will grow on.
const GROWS: usize = 1024;
/// Up to so many bytes it grows by more than what is needed.
const LARGE: usize = 12 << 10;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes whose memory comes back when they are dropped.
#[derive(Debug, Clone, Default)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Appends `bytes`; grows into a spare buffer where there is one.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        let data = &mut self.0;
        if data.capacity() - data.len() < bytes.len() && data.len() + bytes.len() > GROWS {
            grow(data, bytes.len());
        }
        data.extend_from_slice(bytes);
    }

    /// Nothing more will come, and what is before `from` is not needed: gives back the memory that no other byte is in, where
    /// that is more than a quarter. Whether it did: then the bytes begin with that at `from`.
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

#[cold]
fn grow(data: &mut Vec<u8>, more: usize) {
    let needed = data.len() + more;
    let fits = |v: &Vec<u8>| v.capacity() >= needed && v.capacity() / FITS <= needed;
    let spare = SPARE.try_with(|s| {
        let mut spare = s.try_borrow_mut().ok()?;
        let at = spare.iter().rev().take(TRIES).position(fits)?;
        let at = spare.len() - 1 - at;
        Some(spare.swap_remove(at))
    });
    let spare = spare.ok().flatten();
    match spare {
        Some(mut spare) => {
            spare.extend_from_slice(data);
            give(std::mem::replace(data, spare));
        }
        // Not to be moved at every doubling.
        None if (GROWS..LARGE).contains(&data.len()) => data.reserve(more.max(3 * data.len())),
        None => data.reserve(more),
    }
}

/// Keeps the memory of a buffer that nobody needs, if it is worth it.
#[inline]
fn give(data: Vec<u8>) {
    if (MIN..=MAX).contains(&data.capacity()) {
        keep(data);
    }
}

fn keep(mut data: Vec<u8>) {
    data.clear();
    // A thread that ends keeps nothing.
    let _ = SPARE.try_with(|s| {
        if let Ok(mut spare) = s.try_borrow_mut()
            && spare.len() < KEPT
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
        assert_eq!(kept(), 1);
        let mut b = Buffer::default();
        b.append(&[2; 600]);
        assert_eq!(kept(), 1, "what fits a packet needs none");
        b.append(&[3; 600]);
        assert_eq!(kept(), 1, "it would be far too large");
        b.append(&[4; 12_000]);
        assert_eq!((kept(), b.capacity(), b.as_ptr()), (0, capacity, at));
        assert!(b[..600] == [2; 600] && b[600..1200] == [3; 600] && b[1200..] == [4; 12_000]);
        // None is left, and what is too large or too small is not kept.
        let mut c = b.clone();
        c.append(&[5; MAX]);
        drop(c);
        drop(Buffer::from(vec![0; 100]));
        assert_eq!(kept(), 0);
        // A spare one that is too small stays.
        drop(b);
        let mut d = Buffer::from(vec![6; MAX]);
        d.append(&[7; 2000]);
        assert_eq!((kept(), d.len()), (1, MAX + 2000));
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
    fn only_so_many_are_kept() {
        for _ in 0..2 * KEPT {
            give(Vec::with_capacity(MIN));
        }
        assert_eq!(kept(), KEPT);
    }
}
