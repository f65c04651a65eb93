//! Lists that most transactions do not have.

use std::ops::Deref;

/// A list that takes one word until it gets its first entry. A transaction has many such lists, and each word of it is written
/// and moved when it begins.
#[derive(Debug, Clone)]
#[allow(clippy::box_collection, reason = "the list takes one word")]
pub struct RareVec<T>(Option<Box<Vec<T>>>);

impl<T> Default for RareVec<T> {
    fn default() -> RareVec<T> {
        RareVec(None)
    }
}

impl<T> Deref for RareVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> RareVec<T> {
    /// The list, to add entries.
    pub fn to_add(&mut self) -> &mut Vec<T> {
        self.0.get_or_insert_default()
    }

    /// The list, to change entries; `None` if it never had any.
    pub fn to_change(&mut self) -> Option<&mut Vec<T>> {
        self.0.as_deref_mut()
    }

    /// Takes all entries.
    pub fn take(&mut self) -> Vec<T> {
        self.0.take().map_or_else(Vec::new, |list| *list)
    }

    /// Heap memory in bytes, without that of the entries.
    pub fn held(&self) -> usize {
        self.0.as_deref().map_or(0, |list| size_of::<Vec<T>>() + list.capacity() * size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_with_the_first_entry() {
        let mut list = RareVec::<u32>::default();
        assert!(list.is_empty() && list.held() == 0 && list.to_change().is_none() && list.take().is_empty());
        list.to_add().extend([1, 2]);
        assert_eq!((&list[..], list.clone().take()), (&[1, 2][..], vec![1, 2]));
        assert!(list.held() >= size_of::<Vec<u32>>() + 8);
        list.to_change().unwrap().clear();
        assert!(list.is_empty());
    }
}
