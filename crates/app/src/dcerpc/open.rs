//! Finds the open call that a message continues.
//!
//! A client may have a thousand open calls, even with the same number, so the search must not scan them all.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use margay_flow::Direction;
use margay_packet::KeyedMap;

use crate::reader::Uuid;

/// Identifies the call that a datagram belongs to: activity and sequence number.
pub(super) type DatagramKey = (Uuid, u32);

/// Identifies a call within its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// Its number on a connection.
    Call(u32),
    Datagram(DatagramKey),
}

/// Transactions with the same call and direction, oldest first: usually one, which needs no allocation.
#[derive(Debug)]
struct Queue {
    first: u64,
    more: VecDeque<u64>,
}

impl Queue {
    fn iter(&self) -> impl Iterator<Item = u64> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// Transactions that wait for data of a direction, by call and direction, oldest first.
#[derive(Debug, Default)]
pub(super) struct Open {
    waiting: KeyedMap<(Key, Direction), Queue>,
    /// The total number of entries.
    len: usize,
}

impl Open {
    /// Adds a transaction that waits for data of a direction.
    pub(super) fn add(&mut self, key: Key, dir: Direction, id: u64) {
        match self.waiting.entry((key, dir)) {
            Entry::Occupied(queue) => queue.into_mut().more.push_back(id),
            Entry::Vacant(place) => {
                place.insert(Queue { first: id, more: VecDeque::new() });
            }
        }
        self.len += 1;
    }

    /// Removes a transaction, usually the first one.
    pub(super) fn remove(&mut self, key: Key, dir: Direction, id: u64) {
        let Entry::Occupied(mut place) = self.waiting.entry((key, dir)) else { return };
        let queue = place.get_mut();
        let found = queue.iter().position(|q| q == id);
        match found {
            None => return,
            Some(0) => match queue.more.pop_front() {
                Some(next) => queue.first = next,
                None => {
                    place.remove();
                }
            },
            Some(at) => {
                queue.more.remove(at - 1);
            }
        }
        self.len -= 1;
    }

    /// The first few transactions that wait.
    pub(super) fn first(&self, key: Key, dir: Direction) -> impl Iterator<Item = u64> {
        /// Fragments may have begun in two of the transactions: in one a request, in the other a response. The third has
        /// none, so any message fits it.
        const FEW: usize = 3;
        self.waiting.get(&(key, dir)).into_iter().flat_map(Queue::iter).take(FEW)
    }

    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn memory(&self) -> usize {
        self.waiting.capacity() * size_of::<((Key, Direction), Queue)>() + self.len * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ToClient, ToServer};

    #[test]
    fn the_oldest_are_first() {
        let mut open = Open::default();
        for id in 0..5 {
            open.add(Key::Call(7), ToClient, id);
        }
        open.add(Key::Call(7), ToServer, 9);
        open.add(Key::Call(8), ToClient, 5);
        assert_eq!(open.first(Key::Call(7), ToClient).collect::<Vec<_>>(), [0, 1, 2]);
        open.remove(Key::Call(7), ToClient, 1);
        open.remove(Key::Call(7), ToClient, 1);
        assert_eq!(open.first(Key::Call(7), ToClient).collect::<Vec<_>>(), [0, 2, 3]);
        for id in [0, 2, 3, 4] {
            open.remove(Key::Call(7), ToClient, id);
        }
        assert_eq!((open.waiting.len(), open.len), (2, 2));
    }
}
