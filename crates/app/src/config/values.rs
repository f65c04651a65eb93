//! Numbers that protocols declare as settings and options.

use crate::proto::AppProto;

/// The values in force of all declared settings or options, by protocol.
#[derive(Debug, Clone)]
pub struct Values(Vec<Vec<u64>>);

impl Values {
    pub(crate) fn new(defaults: impl Iterator<Item = Vec<u64>>) -> Values {
        Values(defaults.collect())
    }

    /// The value at an index in a protocol's list; 0 if the index does not exist.
    pub fn get(&self, proto: AppProto, place: usize) -> u64 {
        let of = (proto as usize).checked_sub(2).and_then(|i| self.0.get(i));
        of.and_then(|v| v.get(place)).copied().unwrap_or(0)
    }

    /// Sets the value at an index in a protocol's list.
    pub fn set(&mut self, proto: AppProto, place: usize, value: u64) {
        let of = (proto as usize).checked_sub(2).and_then(|i| self.0.get_mut(i));
        if let Some(v) = of.and_then(|v| v.get_mut(place)) {
            *v = value;
        }
    }
}
