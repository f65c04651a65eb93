//! What a flow that moves to another worker takes along in the counters.

use crate::parser::{AppCounters, Parser};
use crate::registry::protocol;
use crate::tx::Transaction;

impl AppCounters {
    /// Moves the memory of a parser's transactions from one worker's counters to another's: subtracts it if the flow leaves
    /// (`leave`), or adds it.
    pub fn moved(&mut self, parser: &dyn Parser, leave: bool) {
        let Some(counter) = protocol(parser.proto()).and_then(|p| p.memory_counter) else { return };
        let total = counter(self);
        let mut held = 0u64;
        let mut from = 0;
        while let Some(id) = parser.next_tx(from) {
            from = id + 1;
            held = held.saturating_add(parser.tx(id).map_or(0, Transaction::counted));
        }
        *total = if leave { total.saturating_sub(held) } else { total.saturating_add(held) };
    }
}
