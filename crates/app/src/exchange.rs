//! Requests and their answers: [`Exchange`] holds both, and [`Waiting`] finds the request that an answer belongs to.

use std::fmt::Debug;
use std::hash::Hash;

use margay_flow::Direction;
use margay_packet::KeyedMap;

use crate::conversation::{Content, Turn};

/// A request and its answer.
#[derive(Debug)]
pub(crate) struct Exchange<M> {
    by_direction: [Option<M>; 2],
}

impl<M> Default for Exchange<M> {
    fn default() -> Self {
        Exchange { by_direction: [None, None] }
    }
}

impl<M> Exchange<M> {
    /// An exchange that begins with a message.
    pub(crate) fn of(dir: Direction, message: M) -> Exchange<M> {
        let mut exchange = Exchange::default();
        exchange.by_direction[dir.index()] = Some(message);
        exchange
    }

    /// The message of a direction.
    pub(crate) const fn get(&self, dir: Direction) -> Option<&M> {
        self.by_direction[dir.index()].as_ref()
    }

    /// The messages.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &M> {
        self.by_direction.iter().flatten()
    }

    /// Whether it has no message, because its only message was invalid.
    pub(crate) const fn is_empty(&self) -> bool {
        self.by_direction[0].is_none() && self.by_direction[1].is_none()
    }
}

/// From this many waiting requests on, a new one first removes those whose transactions were freed.
const WAITING_MAX: usize = 256;

/// The transactions of requests that wait for an answer, by the key that the answer repeats.
#[derive(Debug)]
pub(crate) struct Waiting<K>(KeyedMap<K, u64>);

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Waiting(KeyedMap::default())
    }
}

impl<K: Eq + Hash> Waiting<K> {
    /// Opens the transaction of a request. A client that uses a key again has given up on the earlier request.
    pub(crate) fn ask<M>(&mut self, turn: &mut Turn<'_, '_, Exchange<M>>, dir: Direction, key: K, message: M) -> u64
    where
        Exchange<M>: Content,
    {
        let tx = turn.open(Exchange::of(dir, message));
        tx.finish(dir);
        let number = tx.base.id;
        if self.0.len() >= WAITING_MAX {
            self.0.retain(|_, n| turn.tx(*n).is_some());
        }
        if let Some(old) = self.0.insert(key, number).and_then(|old| turn.tx(old)) {
            old.finish(dir.reverse());
        }
        number
    }

    /// Adds an answer to the transaction of its request. Returns the number of the transaction, and whether there was a request.
    pub(crate) fn answer<M>(
        &mut self,
        turn: &mut Turn<'_, '_, Exchange<M>>,
        dir: Direction,
        key: &K,
        message: M,
    ) -> (u64, bool)
    where
        Exchange<M>: Content,
    {
        match self.0.remove(key).and_then(|number| turn.tx(number)) {
            Some(tx) => {
                tx.content.by_direction[dir.index()] = Some(message);
                tx.finish(dir);
                (tx.base.id, true)
            }
            None => (turn.one_way(dir, Exchange::of(dir, message)).base.id, false),
        }
    }

    /// Heap memory, in bytes.
    pub(crate) fn held(&self) -> u64 {
        (self.0.capacity() * size_of::<(K, u64)>()) as u64
    }
}
