//! Values that several trackers share, such as those of their sender.
//!
//! A tracker keeps the place of its values, so only the first tracker and the last one look them up by their key.

use std::hash::Hash;

use crate::keyed::KeyedMap;

/// Values by key and by place.
#[derive(Debug)]
pub(super) struct Shares<K, V> {
    places: KeyedMap<K, u32>,
    values: Vec<V>,
    /// Places that are not used.
    free: Vec<u32>,
}

impl<K, V> Default for Shares<K, V> {
    fn default() -> Self {
        Shares { places: KeyedMap::default(), values: Vec::new(), free: Vec::new() }
    }
}

impl<K: Hash + Eq, V> Shares<K, V> {
    /// The place of a key's values, and whether they are new: `value`.
    pub(super) fn enter(&mut self, key: K, value: V) -> (u32, bool) {
        let mut new = false;
        let (values, free) = (&mut self.values, &mut self.free);
        let place = *self.places.entry(key).or_insert_with(|| {
            new = true;
            let place = free.pop().unwrap_or(values.len() as u32);
            match values.get_mut(place as usize) {
                Some(unused) => *unused = value,
                None => values.push(value),
            }
            place
        });
        (place, new)
    }

    /// Removes a key. Its place may be another key's from now on.
    pub(super) fn leave(&mut self, key: &K, place: u32) {
        if self.places.remove(key).is_some() {
            self.free.push(place);
        }
    }

    /// The values of a key.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.at(*self.places.get(key)?)
    }

    /// The values in a place.
    pub(super) fn at(&self, place: u32) -> Option<&V> {
        self.values.get(place as usize)
    }

    /// The values in a place, to change.
    pub(super) fn at_mut(&mut self, place: u32) -> Option<&mut V> {
        self.values.get_mut(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut shares = Shares::default();
        let (a, new) = shares.enter("a", 1);
        assert!(new && shares.enter("a", 2) == (a, false));
        let (b, _) = shares.enter("b", 3);
        assert_eq!(
            (shares.at(a), shares.at(b), shares.get(&"b"), shares.at(u32::MAX)),
            (Some(&1), Some(&3), Some(&3), None)
        );
        shares.leave(&"a", a);
        assert_eq!(shares.get(&"a"), None);
        assert_eq!(shares.enter("c", 4), (a, true));
        assert_eq!(shares.get(&"c"), Some(&4));
    }
}
