//! Reading back: what was wanted, what drivers made of it, and what somebody changed since.

use std::collections::BTreeMap;

use super::journal::{Journal, Store, knob};
use super::knob::{Machine, Value};
use crate::problem::Outcome;

/// What reading back found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Settings that are as they were wanted.
    pub(crate) right: usize,
    /// Settings that the driver rounded: wanted, and what it is.
    pub(crate) rounded: Vec<(String, String, String)>,
    /// Settings that are something else now: as left, and what they are.
    pub(crate) changed: Vec<(String, Value, Value)>,
}

/// Reads back all that is in effect.
///
/// # Errors
/// Where the journal names a setting that this release does not know.
pub(crate) fn read_back<S: Store>(machine: &dyn Machine, journal: &Journal<S>, boot: &str) -> Outcome<Found> {
    let mut wanted: BTreeMap<&String, &Value> = BTreeMap::new();
    let mut left: BTreeMap<&String, &Value> = BTreeMap::new();
    for section in journal.active(boot).into_iter().map(|at| &journal.sections[at]) {
        wanted.extend(&section.wanted);
        left.extend(&section.after);
    }
    let mut found = Found::default();
    for (name, want) in wanted {
        let is = machine.read(&knob(name)?).unwrap_or_default();
        let left = left.get(name).copied().unwrap_or(want);
        match (&is, want) {
            _ if is != *left => found.changed.push((name.clone(), left.clone(), is)),
            (Some(is), Some(want)) if is != want => found.rounded.push((name.clone(), want.clone(), is.clone())),
            _ => found.right += 1,
        }
    }
    Ok(found)
}
