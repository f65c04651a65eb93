//! Compares the current settings with the wanted ones, and reports rounding by drivers and later changes.

use std::collections::BTreeMap;

use super::journal::{Journal, Store, knob};
use super::knob::{Machine, Value};
use crate::problem::Outcome;

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Number of settings with the wanted value.
    pub(crate) right: usize,
    /// Settings that the driver rounded: name, wanted value, actual value.
    pub(crate) rounded: Vec<(String, String, String)>,
    /// Settings that changed: name, value when applied, current value.
    pub(crate) changed: Vec<(String, Value, Value)>,
}

/// Reads back all settings that are in effect.
///
/// # Errors
/// If the journal names a setting that this release does not know.
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
