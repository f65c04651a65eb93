//! Anomalies of a transaction, for rules (`app-layer-event`) and the anomaly log.

/// Events of a transaction in the order they occurred, each once unless it was added with [`AppEvents::repeat`]. The numbers
/// are indexes in [`crate::Protocol::events`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppEvents {
    set: u128,
    list: Vec<u8>,
    logged: usize,
}

impl AppEvents {
    /// Adds event `number`, below 128.
    pub fn add(&mut self, number: u8) {
        let bit = 1u128.checked_shl(u32::from(number)).unwrap_or(0);
        if bit != 0 && self.set & bit == 0 {
            self.set |= bit;
            self.list.push(number);
        }
    }

    /// Adds event `number`, below 128, even if it is already set; for protocols that count each occurrence. Repetitions
    /// beyond [`AppEvents::MOST`] are dropped.
    pub fn repeat(&mut self, number: u8) {
        if self.has(number) && self.list.len() < Self::MOST {
            self.list.push(number);
        } else {
            self.add(number);
        }
    }

    /// The number of events from which [`AppEvents::repeat`] drops repetitions.
    pub const MOST: usize = 128;

    /// Whether event `number` occurred.
    pub fn has(&self, number: u8) -> bool {
        self.set & 1u128.checked_shl(u32::from(number)).unwrap_or(0) != 0
    }

    /// Whether no event occurred.
    pub const fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// All of them, in order.
    pub fn as_slice(&self) -> &[u8] {
        &self.list
    }

    /// Whether there are events that [`AppEvents::take_new`] has not returned.
    pub const fn has_new(&self) -> bool {
        self.logged < self.list.len()
    }

    /// The events since the last call.
    pub fn take_new(&mut self) -> &[u8] {
        let from = std::mem::replace(&mut self.logged, self.list.len());
        self.list.get(from..).unwrap_or(&[])
    }
}
