//! The transactions of a flow.
//!
//! They are found by number in about no time, in the order of their numbers, and those that did not change since they were last
//! looked at are passed over: a flow may have a thousand that wait for a response, and a packet changes one of them. What they
//! hold in memory is added up as they change.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tx::Transaction;

/// A transaction.
#[derive(Debug)]
struct Entry<T> {
    id: u64,
    /// Bytes that were last counted for it.
    counted: u64,
    tx: Box<T>,
}

/// The transactions of a flow that were not freed, by number.
#[derive(Debug)]
pub(crate) struct TxList<T> {
    /// Sorted by number.
    entries: VecDeque<Entry<T>>,
    /// The number that the next one gets.
    next: u64,
    /// Numbers of those that may have changed since [`TxList::rest`], sorted.
    awake: Vec<u64>,
    /// Numbers of those that may have changed since their memory was counted; some twice, some that were freed.
    touched: Vec<u64>,
    /// Bytes that they hold, as last counted.
    memory: u64,
}

impl<T> Default for TxList<T> {
    fn default() -> Self {
        TxList { entries: VecDeque::new(), next: 0, awake: Vec::new(), touched: Vec::new(), memory: 0 }
    }
}

impl<T: Transaction + 'static> TxList<T> {
    /// The number that the next one gets.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// From the first that was not freed to behind the latest; some between may have been freed.
    pub(crate) fn range(&self) -> Range<u64> {
        self.entries.front().map_or(self.next, |e| e.id)..self.next
    }

    /// Adds the next one, which is made with its number.
    pub(crate) fn push(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        let id = self.next;
        self.next += 1;
        self.entries.push_back(Entry { id, counted: 0, tx: Box::new(make(id)) });
        self.awake.push(id);
        self.touched.push(id);
        id
    }

    /// The place of the first from that number on.
    fn place_from(&self, id: u64) -> usize {
        // Mostly none between was freed.
        let guess = self.entries.front().map_or(0, |e| id.saturating_sub(e.id));
        if let Ok(i) = usize::try_from(guess)
            && self.entries.get(i).is_some_and(|e| e.id == id)
        {
            return i;
        }
        // Where some were, those that are asked for are mostly among the latest, which follow each other.
        let Some(back) = self.entries.back() else { return 0 };
        let Some(behind) = back.id.checked_sub(id) else { return self.entries.len() };
        if let Some(i) = usize::try_from(behind).ok().and_then(|n| (self.entries.len() - 1).checked_sub(n))
            && self.entries.get(i).is_some_and(|e| e.id == id)
        {
            return i;
        }
        self.entries.partition_point(|e| e.id < id)
    }

    fn place(&self, id: u64) -> Option<usize> {
        let i = self.place_from(id);
        (self.entries.get(i)?.id == id).then_some(i)
    }

    /// That of a number.
    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.entries.get(self.place(id)?).map(|e| &*e.tx)
    }

    /// That of a number, for a parser to change.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        // A parser asks for the latest one many times in a row.
        if self.touched.last() == Some(&id)
            && self.awake.last() == Some(&id)
            && self.entries.back().is_some_and(|e| e.id == id)
        {
            return self.entries.back_mut().map(|e| &mut *e.tx);
        }
        let i = self.place(id)?;
        self.wake(id);
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
        self.entries.get_mut(i).map(|e| &mut *e.tx)
    }

    /// That of a number, for who inspects and logs: it is not looked at again for that.
    pub(crate) fn look_mut(&mut self, id: u64) -> Option<&mut T> {
        let i = self.place(id)?;
        self.entries.get_mut(i).map(|e| &mut *e.tx)
    }

    /// The first number from `from` on.
    pub(crate) fn next_id(&self, from: u64) -> Option<u64> {
        self.entries.get(self.place_from(from)).map(|e| e.id)
    }

    /// The first number from `from` on of one that is not `complete` in both directions; the next number where all are.
    pub(crate) fn first_incomplete(&self, from: u64, complete: u8) -> u64 {
        let rest = self.entries.range(self.place_from(from)..);
        let mut going_on = rest.filter(|e| e.tx.base().progress != [complete; 2]);
        going_on.next().map_or(self.next, |e| e.id)
    }

    /// The first number from `from` on of one that may have changed since [`TxList::rest`].
    pub(crate) fn next_awake(&self, from: u64) -> Option<u64> {
        let i = match self.awake.first() {
            Some(&first) if first >= from => 0,
            _ => self.awake.partition_point(|id| *id < from),
        };
        self.awake.get(i).copied()
    }

    fn wake(&mut self, id: u64) {
        if self.awake.last() == Some(&id) {
            return;
        }
        if let Err(at) = self.awake.binary_search(&id) {
            self.awake.insert(at, id);
        }
    }

    /// Nothing is to be done with a transaction until its parser changes it.
    pub(crate) fn rest(&mut self, id: u64) {
        if let Ok(at) = self.awake.binary_search(&id) {
            self.awake.remove(at);
        }
    }

    /// All of them are to be looked at again.
    pub(crate) fn wake_all(&mut self) {
        self.awake.clear();
        self.awake.extend(self.entries.iter().map(|e| e.id));
    }

    /// Frees one.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let entry = self.entries.remove(self.place(id)?)?;
        self.rest(id);
        self.memory = self.memory.saturating_sub(entry.counted);
        if self.entries.is_empty() {
            // Most flows have one at a time; after a burst its room is given back.
            self.entries.shrink_to(1);
            self.awake.shrink_to(1);
            self.touched = Vec::new();
        }
        Some(entry.tx)
    }

    /// Bytes that they hold: those that changed are counted anew.
    pub(crate) fn memory(&mut self) -> u64 {
        if self.touched.len() > 1 {
            self.touched.sort_unstable();
            self.touched.dedup();
        }
        let touched = std::mem::take(&mut self.touched);
        for &id in &touched {
            let Some(i) = self.place(id) else { continue };
            if let Some(e) = self.entries.get_mut(i) {
                let now = (size_of::<Entry<T>>() + size_of::<T>()) as u64 + e.tx.held();
                self.memory = self.memory.saturating_sub(e.counted).saturating_add(now);
                e.counted = now;
            }
        }
        self.touched = touched;
        self.touched.clear();
        self.memory
    }
}

/// The methods of [`crate::Parser`] that its transactions answer, of a parser that has them in a [`TxList`] `txs`.
macro_rules! transactions_in_list {
    () => {
        fn txs(&self) -> std::ops::Range<u64> {
            self.txs.range()
        }

        fn next_tx(&self, from: u64) -> Option<u64> {
            self.txs.next_id(from)
        }

        fn next_awake(&self, from: u64) -> Option<u64> {
            self.txs.next_awake(from)
        }

        fn rest_tx(&mut self, id: u64) {
            self.txs.rest(id);
        }

        fn wake_txs(&mut self) {
            self.txs.wake_all();
        }

        fn tx(&self, id: u64) -> Option<&dyn Transaction> {
            self.txs.get(id).map(|t| t as &dyn Transaction)
        }

        fn tx_mut(&mut self, id: u64) -> Option<&mut dyn Transaction> {
            self.txs.look_mut(id).map(|t| t as &mut dyn Transaction)
        }
    };
}
pub(crate) use transactions_in_list;
