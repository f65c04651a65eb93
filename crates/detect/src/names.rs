//! Names of bits and variables.

use std::collections::HashMap;
use std::sync::Arc;

/// Numbers for the names of bits and integers. All rules share one table, and a reload keeps it so that numbers stay the
/// same.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

impl Names {
    /// The number of `name`, assigned now if it has none.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&n) = self.numbers.get(name) {
            return n;
        }
        let n = self.names.len() as u32;
        let name: Arc<str> = Arc::from(name);
        self.names.push(name.clone());
        self.numbers.insert(name, n);
        n
    }

    /// The number of `name`, if it has one.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name with an assigned number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(|n| &**n)
    }
}
