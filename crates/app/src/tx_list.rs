//! The transaction list of a flow.
//!
//! Lookup by number is fast, iteration is in numeric order, and it skips transactions that have not changed since their last
//! inspection: a flow may have a thousand that wait for a response while a packet changes only one. The list also tracks their
//! memory.

use std::collections::VecDeque;
use std::ops::Range;

use crate::tx::Transaction;

/// The number of transactions for which an empty list keeps memory: what the first one reserves.
const FEW: usize = 4;

/// No transaction has this number.
const NO_TX: u64 = u64::MAX;

/// A transaction.
#[derive(Debug)]
struct Entry<T> {
    id: u64,
    /// Memory at the last count.
    counted: u64,
    tx: Box<T>,
}

/// The transactions of a flow that have not been freed, by number.
#[derive(Debug)]
pub(crate) struct TxList<T> {
    /// Sorted by number.
    entries: VecDeque<Entry<T>>,
    /// The number of the next transaction.
    next: u64,
    /// Sorted numbers of transactions that may have changed since [`TxList::rest`].
    awake: VecDeque<u64>,
    /// Numbers of transactions that may have changed since their memory was counted, with duplicates and freed ones.
    touched: Vec<u64>,
    /// Total memory at the last count.
    memory: u64,
    /// The transactions that the parser asked for last, which are both awake and touched, so that it gets them at once: those
    /// that it works on in each direction.
    current: [u64; 2],
}

impl<T> Default for TxList<T> {
    fn default() -> Self {
        TxList {
            entries: VecDeque::new(),
            next: 0,
            awake: VecDeque::new(),
            touched: Vec::new(),
            memory: 0,
            current: [NO_TX; 2],
        }
    }
}

impl<T: Transaction + 'static> TxList<T> {
    /// The number of the next transaction.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The number of transactions.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// From the first transaction that was not freed to one past the latest; some in between may have been freed.
    pub(crate) fn range(&self) -> Range<u64> {
        self.entries.front().map_or(self.next, |e| e.id)..self.next
    }

    /// Adds a transaction. `make` receives its number.
    pub(crate) fn push(&mut self, make: impl FnOnce(u64) -> T) -> u64 {
        let id = self.next;
        self.next += 1;
        self.entries.push_back(Entry { id, counted: 0, tx: Box::new(make(id)) });
        self.awake.push_back(id);
        self.touched.push(id);
        self.keep(id);
        id
    }

    /// The index of the first transaction from a number on.
    fn place_from(&self, id: u64) -> usize {
        if let Some(i) = self.place_if_none_freed(id) {
            return i;
        }
        // With gaps, the common lookups are for the latest transactions, which have consecutive numbers.
        let Some(back) = self.entries.back() else { return 0 };
        let Some(behind) = back.id.checked_sub(id) else { return self.entries.len() };
        if let Some(i) = usize::try_from(behind).ok().and_then(|n| (self.entries.len() - 1).checked_sub(n))
            && self.entries.get(i).is_some_and(|e| e.id == id)
        {
            return i;
        }
        self.entries.partition_point(|e| e.id < id)
    }

    /// The index of a number under the common assumption that only the oldest transactions were freed.
    #[inline]
    fn place_if_none_freed(&self, id: u64) -> Option<usize> {
        let i = usize::try_from(id.checked_sub(self.entries.front()?.id)?).ok()?;
        (self.entries.get(i)?.id == id).then_some(i)
    }

    #[inline]
    fn place(&self, id: u64) -> Option<usize> {
        self.place_if_none_freed(id).or_else(|| self.place_where_some_were_freed(id))
    }

    #[cold]
    fn place_where_some_were_freed(&self, id: u64) -> Option<usize> {
        let i = self.place_from(id);
        (self.entries.get(i)?.id == id).then_some(i)
    }

    /// The transaction with this number.
    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        self.entries.get(self.place(id)?).map(|e| &*e.tx)
    }

    /// The transaction with this number, for the parser: counts as a change.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        // A parser often asks for the same one several times in a row.
        let [latest, other] = self.current;
        if latest == id || other == id {
            return self.look_mut(id);
        }
        self.touch(id)
    }

    /// Makes an awake and touched transaction one of the current ones.
    const fn keep(&mut self, id: u64) {
        self.current = [id, self.current[0]];
    }

    /// Finds a transaction and marks it as changed.
    fn touch(&mut self, id: u64) -> Option<&mut T> {
        let i = self.place(id)?;
        self.wake(id);
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
        self.keep(id);
        self.entries.get_mut(i).map(|e| &mut *e.tx)
    }

    /// The transaction with this number, for detection and logging: does not count as a change.
    #[inline]
    pub(crate) fn look_mut(&mut self, id: u64) -> Option<&mut T> {
        let i = self.place(id)?;
        self.entries.get_mut(i).map(|e| &mut *e.tx)
    }

    /// The first existing number from `from` on.
    pub(crate) fn next_id(&self, from: u64) -> Option<u64> {
        self.entries.get(self.place_from(from)).map(|e| e.id)
    }

    /// The first number from `from` on whose transaction does not have the progress `complete`; the next new number if all do.
    pub(crate) fn first_incomplete(&self, from: u64, complete: [u8; 2]) -> u64 {
        let rest = self.entries.range(self.place_from(from)..);
        let mut going_on = rest.filter(|e| e.tx.base().progress != complete);
        going_on.next().map_or(self.next, |e| e.id)
    }

    /// The first number from `from` on whose transaction may have changed since [`TxList::rest`].
    pub(crate) fn next_awake(&self, from: u64) -> Option<u64> {
        let (&first, &last) = (self.awake.front()?, self.awake.back()?);
        if first >= from {
            return Some(first);
        }
        if last < from {
            return None;
        }
        // The usual case: consecutive numbers.
        if self.awake_at(from).is_some() {
            return Some(from);
        }
        self.awake.get(self.awake_from(from)).copied()
    }

    /// The index of a number in the list of changed ones, if that list is consecutive from its front or its back to there. Often
    /// it is both: the oldest transactions end, and new ones begin.
    #[inline]
    fn awake_at(&self, id: u64) -> Option<usize> {
        let (first, last) = (*self.awake.front()?, *self.awake.back()?);
        let i = usize::try_from(id.checked_sub(first)?).ok()?;
        if self.awake.get(i) == Some(&id) {
            return Some(i);
        }
        let behind = usize::try_from(last.checked_sub(id)?).ok()?;
        let i = (self.awake.len() - 1).checked_sub(behind)?;
        (self.awake.get(i) == Some(&id)).then_some(i)
    }

    /// The index of the first changed one that is not below a number.
    fn awake_from(&self, id: u64) -> usize {
        // The usual case: the one that follows the oldest ones.
        let after = self.awake.front().and_then(|first| usize::try_from(id.checked_sub(*first)?).ok());
        if let Some(i) = after
            && let Some(before) = i.checked_sub(1)
            && self.awake.get(before) == id.checked_sub(1).as_ref()
            && self.awake.get(i).is_none_or(|&next| next >= id)
        {
            return i;
        }
        self.awake.partition_point(|other| *other < id)
    }

    fn wake(&mut self, id: u64) {
        if self.awake.back().is_none_or(|last| *last < id) {
            self.awake.push_back(id);
        } else if self.awake_at(id).is_none() {
            let at = self.awake_from(id);
            if self.awake.get(at) != Some(&id) {
                self.awake.insert(at, id);
            }
        }
    }

    /// Skips a transaction until its parser changes it.
    pub(crate) fn rest(&mut self, id: u64) {
        for current in &mut self.current {
            if *current == id {
                *current = NO_TX;
            }
        }
        if self.awake.back() == Some(&id) {
            self.awake.pop_back();
        } else if self.awake.front() == Some(&id) {
            self.awake.pop_front();
        } else if let Some(at) = self.awake_at(id).or_else(|| self.awake.binary_search(&id).ok()) {
            self.awake.remove(at);
        }
    }

    /// Marks all transactions as changed.
    pub(crate) fn wake_all(&mut self) {
        self.awake.clear();
        self.awake.extend(self.entries.iter().map(|e| e.id));
    }

    /// Frees a transaction.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let entry = match self.place(id)? {
            0 => self.entries.pop_front(),
            i => self.entries.remove(i),
        }?;
        self.rest(id);
        self.memory = self.memory.saturating_sub(entry.counted);
        // Most flows have one transaction at a time; return the memory after a burst.
        if self.entries.is_empty() && self.entries.capacity().max(self.touched.capacity()) > FEW {
            self.entries.shrink_to(1);
            self.awake.shrink_to(1);
            self.touched = Vec::new();
        }
        Some(entry.tx)
    }

    /// Total memory. Counts changed transactions again.
    pub(crate) fn memory(&mut self) -> u64 {
        // New transactions have consecutive numbers.
        if !self.touched.is_sorted_by(|a, b| a < b) {
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
        self.current = [NO_TX; 2];
        self.memory
    }
}

/// Implements the transaction methods of [`crate::Parser`] for a parser with a [`TxList`] in the field `txs`.
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

        fn next_awake_mut(&mut self, from: u64) -> Option<(u64, &mut dyn Transaction)> {
            // Those that were freed are not in the list.
            let id = self.txs.next_awake(from)?;
            Some((id, self.txs.look_mut(id)?))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use margay_flow::Direction;

    use super::*;
    use crate::tx::{Found, TxBase};

    #[derive(Debug, Default)]
    struct Tx {
        base: TxBase,
        size: u64,
    }

    impl Transaction for Tx {
        fn base(&self) -> &TxBase {
            &self.base
        }
        fn base_mut(&mut self) -> &mut TxBase {
            &mut self.base
        }
        fn buffer<'a>(&'a self, _: u8, _: Direction, _: usize, _: &'a mut Vec<u8>) -> Option<Found<'a>> {
            None
        }
        fn held(&self) -> u64 {
            self.size
        }
        fn inspected(&mut self, _: Direction) {}
        fn log(&self, _: &mut margay_json::Json, _: &crate::AppLogOptions, _: crate::LogFor) {}
    }

    /// The list agrees with plain sets, whatever the order of insertion, change, rest and removal.
    #[test]
    fn what_is_there_and_awake() {
        let mut random = 1u64;
        let mut draw = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % n
        };
        let mut list = TxList::<Tx>::default();
        let (mut there, mut awake) = (BTreeSet::new(), BTreeSet::new());
        let one = (size_of::<Entry<Tx>>() + size_of::<Tx>()) as u64;
        for _ in 0..20_000 {
            let first = there.first().copied().unwrap_or(0);
            let id = if draw(2) == 0 { first } else { first + draw(40) };
            match draw(6) {
                0 | 1 if there.len() < 30 => {
                    let new = list.push(|_| Tx { size: 7, ..Tx::default() });
                    there.insert(new);
                    awake.insert(new);
                }
                2 => {
                    let found = list.get_mut(id).is_some();
                    assert_eq!(found, there.contains(&id));
                    if found {
                        awake.insert(id);
                    }
                }
                3 => {
                    list.rest(id);
                    awake.remove(&id);
                }
                4 => {
                    awake.remove(&id);
                    assert_eq!(list.remove(id).is_some(), there.remove(&id));
                }
                _ if draw(50) == 0 => {
                    list.wake_all();
                    awake.clone_from(&there);
                }
                _ => {}
            }
            assert_eq!(list.next_awake(id), awake.range(id..).next().copied());
            assert_eq!(list.next_id(id), there.range(id..).next().copied());
            assert_eq!(
                (list.get(id).is_some(), list.look_mut(id).is_some()),
                (there.contains(&id), there.contains(&id))
            );
            assert_eq!(list.memory(), there.len() as u64 * (one + 7));
        }
    }
}
