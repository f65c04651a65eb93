//! The transaction list of a flow.
//!
//! Lookup by number is fast, iteration is in numeric order, and it skips transactions that have not changed since their last
//! inspection: a flow may have a thousand that wait for a response while a packet changes only one. The list also tracks their
//! memory.

use std::collections::VecDeque;
use std::ops::Range;

use margay_flow::Direction;

use crate::tx::Transaction;

/// The number of transactions for which an empty list keeps memory: what the first one reserves.
const FEW: usize = 4;

/// A transaction.
#[derive(Debug)]
struct Entry<T> {
    id: u64,
    /// Memory at the last count.
    counted: u64,
    /// It may have changed since [`TxList::rest`].
    awake: bool,
    /// It may have changed since its memory was counted.
    touched: bool,
    tx: Box<T>,
}

/// The transactions of a flow that have not been freed, by number.
#[derive(Debug)]
pub(crate) struct TxList<T> {
    /// Sorted by number.
    entries: VecDeque<Entry<T>>,
    /// The number of the next transaction.
    next: u64,
    /// Sorted numbers of transactions that were awake, without those of `woken`. Some may rest or be freed since.
    awake: Vec<u64>,
    /// Numbers of those that woke out of order, until the next visit.
    woken: Vec<u64>,
    /// Numbers of transactions that were touched. Some may be freed since.
    touched: Vec<u64>,
    /// Total memory at the last count.
    memory: u64,
}

impl<T> Default for TxList<T> {
    fn default() -> Self {
        TxList {
            entries: VecDeque::new(),
            next: 0,
            awake: Vec::new(),
            woken: Vec::new(),
            touched: Vec::new(),
            memory: 0,
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
        self.add(Box::new(make(id)))
    }

    /// As [`TxList::push`], for a large transaction: it is made where it stays. `set` receives its number.
    pub(crate) fn push_default(&mut self, set: impl FnOnce(u64, &mut T)) -> (u64, Option<&mut T>)
    where
        T: Default,
    {
        let mut tx = Box::<T>::default();
        set(self.next, &mut tx);
        let id = self.add(tx);
        (id, self.entries.back_mut().map(|e| &mut *e.tx))
    }

    fn add(&mut self, tx: Box<T>) -> u64 {
        let id = self.next;
        self.next += 1;
        self.entries.push_back(Entry { id, counted: 0, awake: true, touched: true, tx });
        self.awake.push(id);
        self.touched.push(id);
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
        self.changed(id, true)
    }

    /// As [`TxList::get_mut`], for a change that needs no memory.
    pub(crate) fn wake_mut(&mut self, id: u64) -> Option<&mut T> {
        self.changed(id, false)
    }

    /// Finds a transaction and marks it as changed, and with `memory` as one whose memory is to be counted again.
    #[inline]
    fn changed(&mut self, id: u64, memory: bool) -> Option<&mut T> {
        let i = self.place(id)?;
        let TxList { entries, awake, woken, touched, .. } = self;
        let e = entries.get_mut(i)?;
        if memory && !e.touched {
            e.touched = true;
            touched.push(id);
        }
        if !e.awake {
            e.awake = true;
            wake(awake, woken, id);
        }
        Some(&mut e.tx)
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

    /// See [`crate::Parser::past_complete`].
    pub(crate) fn past_complete(&self, from: u64, dir: Direction, complete: u8) -> (u64, bool) {
        let (mut next, mut any) = (from, false);
        let mut i = self.place_if_none_freed(from).unwrap_or_else(|| self.place_from(from));
        while let Some(e) = self.entries.get(i) {
            i += 1;
            // Those in between were freed, so they were complete.
            any |= e.id > next;
            let base = e.tx.base();
            if base.progress[dir.index()] < complete {
                return (e.id, any);
            }
            any |= base.only != Some(dir.reverse());
            next = e.id + 1;
        }
        (self.next.max(next), any | (self.next > next))
    }

    /// The first number from `from` on whose transaction may have changed since [`TxList::rest`].
    pub(crate) fn next_awake(&self, from: u64) -> Option<u64> {
        let is_awake = |id: u64| self.place(id).and_then(|i| self.entries.get(i)).is_some_and(|e| e.awake);
        let start = self.awake.partition_point(|id| *id < from);
        let sorted = self.awake.get(start..).unwrap_or_default().iter().copied().find(|id| is_awake(*id));
        let woken = self.woken.iter().copied().filter(|id| *id >= from && is_awake(*id)).min();
        sorted.into_iter().chain(woken).min()
    }

    /// Visits the transactions that may have changed since they came to rest, in order. Those for which `f` returns true rest.
    pub(crate) fn visit_awake(&mut self, mut f: impl FnMut(u64, &mut T) -> bool) {
        self.settle();
        let (mut kept, mut i) = (0, 0);
        for n in 0..self.awake.len() {
            let Some(&id) = self.awake.get(n) else { break };
            // Usually it is behind the one before.
            if self.entries.get(i).is_none_or(|e| e.id != id) {
                let Some(place) = self.place(id) else { continue };
                i = place;
            }
            let Some(e) = self.entries.get_mut(i) else { break };
            i += 1;
            if !e.awake {
                continue;
            }
            if f(id, &mut e.tx) {
                e.awake = false;
            } else if let Some(place) = self.awake.get_mut(kept) {
                *place = id;
                kept += 1;
            }
        }
        self.awake.truncate(kept);
    }

    /// Sorts those that woke out of order among the others.
    fn settle(&mut self) {
        if !self.woken.is_empty() {
            self.awake.append(&mut self.woken);
            self.awake.sort();
            self.awake.dedup();
        }
    }

    /// Skips a transaction until its parser changes it.
    pub(crate) fn rest(&mut self, id: u64) {
        if let Some(e) = self.place(id).and_then(|i| self.entries.get_mut(i)) {
            e.awake = false;
        }
        if self.awake.last() == Some(&id) {
            self.awake.pop();
        }
        self.tidy();
    }

    /// Removes the numbers of transactions that rest or are gone, if they are most: nobody may visit the list.
    fn tidy(&mut self) {
        if self.awake.len() + self.woken.len() > 2 * self.entries.len() + FEW {
            self.visit_awake(|_, _| false);
        }
    }

    /// Marks all transactions as changed.
    pub(crate) fn wake_all(&mut self) {
        self.awake.clear();
        self.woken.clear();
        self.awake.extend(self.entries.iter().map(|e| e.id));
        self.entries.iter_mut().for_each(|e| e.awake = true);
    }

    /// Frees a transaction.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Box<T>> {
        let entry = match self.place(id)? {
            0 => self.entries.pop_front(),
            i => self.entries.remove(i),
        }?;
        self.memory = self.memory.saturating_sub(entry.counted);
        if self.entries.is_empty() {
            self.awake.clear();
            self.woken.clear();
            // Most flows have one transaction at a time; return the memory after a burst.
            if self.entries.capacity().max(self.touched.capacity()) > FEW {
                self.entries.shrink_to(1);
                self.awake.shrink_to(1);
                (self.touched, self.woken) = (Vec::new(), Vec::new());
            }
        }
        self.tidy();
        Some(entry.tx)
    }

    /// Total memory. Counts changed transactions again.
    pub(crate) fn memory(&mut self) -> u64 {
        let mut touched = std::mem::take(&mut self.touched);
        for &id in &touched {
            let Some(i) = self.place(id) else { continue };
            if let Some(e) = self.entries.get_mut(i) {
                let now = (size_of::<Entry<T>>() + size_of::<T>()) as u64 + e.tx.held();
                self.memory = self.memory.saturating_sub(e.counted).saturating_add(now);
                (e.counted, e.touched) = (now, false);
            }
        }
        touched.clear();
        self.touched = touched;
        self.memory
    }
}

/// Adds a number to the sorted list, or to those that are not in order.
fn wake(awake: &mut Vec<u64>, woken: &mut Vec<u64>, id: u64) {
    if awake.last().is_none_or(|last| *last < id) {
        awake.push(id);
    } else {
        woken.push(id);
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

        fn visit_awake(&mut self, f: &mut dyn FnMut(u64, &mut dyn Transaction) -> bool) {
            self.txs.visit_awake(|id, tx| f(id, tx));
        }

        fn past_complete(&self, from: u64, dir: Direction, complete: u8) -> (u64, bool) {
            self.txs.past_complete(from, dir, complete)
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
            match draw(7) {
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
                5 => {
                    let mut visited = BTreeSet::new();
                    list.visit_awake(|id, _| {
                        assert!(visited.last().is_none_or(|last| *last < id));
                        visited.insert(id);
                        id % 3 == 0
                    });
                    assert_eq!(visited, awake);
                    awake.retain(|id| id % 3 != 0);
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
            assert!(list.awake.len() + list.woken.len() <= 2 * there.len() + FEW + 1);
        }
    }
}
