//! The decoded fields of a message: pseudo-headers, headers and trailers in the order they came.

use crate::http1::names;

/// The limit of fields and table updates in a message; further ones are dropped.
pub(super) const FIELDS_MAX: usize = 1024;
/// The limit of bytes of names and values in a message; fields beyond it are dropped. A few bytes of HPACK can expand to a
/// whole table entry, so the length of a block is no bound.
pub(super) const TEXT_MAX: usize = 256 << 10;

/// Initial capacities that suit most messages: fields, and bytes of names and values. They avoid reallocation.
const FIELDS: usize = 16;
const TEXT: usize = 256;

/// A field or a table update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// A name and its value.
    Field(&'a [u8], &'a [u8]),
    /// A dynamic table size update, which can come between fields (RFC 7541, section 6.3).
    Update(u64),
}

#[derive(Debug, Clone, Copy)]
enum Held {
    /// Start of the name, start of the value, and end of the value.
    Field(u32, u32, u32),
    Update(u64),
}

/// The fields of a message.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields {
    text: Vec<u8>,
    list: Vec<Held>,
    /// The bits of the names ([`names::bit`]).
    present: u64,
}

impl Fields {
    /// Bytes left within the limits, at most `budget`.
    pub(super) fn room(&self, budget: usize) -> usize {
        if self.list.len() >= FIELDS_MAX { 0 } else { TEXT_MAX.min(budget).saturating_sub(self.text.len()) }
    }

    /// Adds a field. Returns false if it does not fit.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], budget: usize) -> bool {
        if self.list.len() >= FIELDS_MAX || name.len().saturating_add(value.len()) > self.room(budget) {
            return false;
        }
        if self.list.capacity() == 0 {
            self.list.reserve_exact(FIELDS);
            self.text.reserve_exact(TEXT.max(name.len() + value.len()));
        }
        let from = self.text.len() as u32;
        self.text.extend_from_slice(name);
        let middle = self.text.len() as u32;
        self.text.extend_from_slice(value);
        self.list.push(Held::Field(from, middle, self.text.len() as u32));
        self.present |= names::bit(names::tag(name));
        true
    }

    /// Adds a table size update.
    pub(super) fn update(&mut self, size: u64) -> bool {
        let fits = self.list.len() < FIELDS_MAX;
        if fits {
            self.list.push(Held::Update(size));
        }
        fits
    }

    /// Removes all fields.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.list.clear();
        self.present = 0;
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.text.capacity() + self.list.capacity() * std::mem::size_of::<Held>()
    }

    /// Whether there are no fields or updates.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All fields and updates, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let slice = |from: u32, to: u32| self.text.get(from as usize..to as usize).unwrap_or(&[]);
        self.list.iter().map(move |h| match *h {
            Held::Field(from, middle, to) => Item::Field(slice(from, middle), slice(middle, to)),
            Held::Update(size) => Item::Update(size),
        })
    }

    /// Names and values, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.items().filter_map(|i| match i {
            Item::Field(n, v) => Some((n, v)),
            Item::Update(_) => None,
        })
    }

    /// The table size updates.
    pub(super) fn updates(&self) -> impl Iterator<Item = u64> {
        self.items().filter_map(|i| match i {
            Item::Update(size) => Some(size),
            Item::Field(..) => None,
        })
    }

    /// Whether a field with this name, in any case, may be there.
    #[inline]
    const fn may_have(&self, name: &[u8]) -> bool {
        self.present & names::bit(names::tag(name)) != 0
    }

    /// The value of the first field with this name, in any case.
    #[inline]
    pub(super) fn first(&self, name: &[u8]) -> Option<&[u8]> {
        if self.may_have(name) { self.search(name) } else { None }
    }

    fn search(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|f| names::equal(f.0, name)).map(|f| f.1)
    }

    /// The values of all fields with this name. `scratch` joins several values with `, `.
    #[inline]
    pub(super) fn joined<'a>(&'a self, name: &[u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        if self.may_have(name) { self.join(name, scratch) } else { None }
    }

    fn join<'a>(&'a self, name: &[u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let mut values = self.iter().filter(|f| names::equal(f.0, name)).map(|f| f.1);
        let first = values.next()?;
        let Some(second) = values.next() else { return Some(first) };
        scratch.clear();
        scratch.extend_from_slice(first);
        for v in std::iter::once(second).chain(values) {
            scratch.extend_from_slice(b", ");
            scratch.extend_from_slice(v);
        }
        Some(scratch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_in_order() {
        let mut f = Fields::default();
        assert!(
            f.push(b":method", b"GET", 1000)
                && f.update(7)
                && f.push(b"Cookie", b"a", 1000)
                && f.push(b"cookie", b"b", 1000)
        );
        let mut s = Vec::new();
        assert_eq!(f.joined(b"cookie", &mut s), Some(&b"a, b"[..]));
        assert_eq!((f.first(b"COOKIE"), f.first(b":path")), (Some(&b"a"[..]), None));
        assert_eq!(f.items().nth(1), Some(Item::Update(7)));
        assert_eq!((f.iter().count(), f.updates().count()), (3, 1));
    }

    #[test]
    fn there_is_an_end_to_them() {
        let mut f = Fields::default();
        assert!(!f.push(b"name", &[0; TEXT_MAX], usize::MAX) && f.is_empty());
        assert!(!f.push(b"name", b"value", 8));
        assert_eq!((0..2000).filter(|_| f.push(b"a", b"b", usize::MAX)).count(), FIELDS_MAX);
        assert!(!f.update(1));
        assert_eq!(f.room(usize::MAX), 0);
    }
}
