//! Anomalies of a transaction, for rules (`app-layer-event`) and the anomaly log.

/// The number of events that a transaction holds without memory of their own. Most have none or one.
const FEW: usize = 14;

/// Numbers of events, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum List {
    /// The first `len` bytes.
    Few { len: u8, numbers: [u8; FEW] },
    #[allow(clippy::box_collection, reason = "the list takes two words")]
    Many(Box<Vec<u8>>),
}

impl Default for List {
    fn default() -> List {
        List::Few { len: 0, numbers: [0; FEW] }
    }
}

impl List {
    fn push(&mut self, number: u8) {
        match self {
            List::Few { len, numbers } => {
                if let Some(place) = numbers.get_mut(usize::from(*len)) {
                    *place = number;
                    *len += 1;
                } else {
                    let mut many = numbers.to_vec();
                    many.push(number);
                    *self = List::Many(Box::new(many));
                }
            }
            List::Many(many) => many.push(number),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            List::Few { len, numbers } => numbers.get(..usize::from(*len)).unwrap_or(numbers),
            List::Many(many) => many,
        }
    }

    const fn len(&self) -> usize {
        match self {
            List::Few { len, .. } => *len as usize,
            List::Many(many) => many.len(),
        }
    }
}

/// Events of a transaction in the order they occurred, each once unless it was added with [`AppEvents::repeat`]. The numbers
/// are indexes in [`crate::Protocol::events`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppEvents {
    /// A bit for each number. Two words, because one of 128 bits would double the alignment of every transaction.
    set: [u64; 2],
    list: List,
    logged: u32,
}

impl AppEvents {
    /// Adds event `number`, below 128.
    pub fn add(&mut self, number: u8) {
        if let Some(word) = self.set.get_mut(usize::from(number / 64)) {
            let bit = 1 << (number % 64);
            if *word & bit == 0 {
                *word |= bit;
                self.list.push(number);
            }
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
        self.set.get(usize::from(number / 64)).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Whether no event occurred.
    pub const fn is_empty(&self) -> bool {
        self.list.len() == 0
    }

    /// All of them, in order.
    pub fn as_slice(&self) -> &[u8] {
        self.list.as_slice()
    }

    /// Whether there are events that [`AppEvents::take_new`] has not returned.
    pub const fn has_new(&self) -> bool {
        (self.logged as usize) < self.list.len()
    }

    /// The events since the last call.
    pub fn take_new(&mut self) -> &[u8] {
        let from = std::mem::replace(&mut self.logged, self.list.len() as u32);
        self.list.as_slice().get(from as usize..).unwrap_or(&[])
    }

    /// Heap memory in bytes.
    pub fn held(&self) -> usize {
        match &self.list {
            List::Few { .. } => 0,
            List::Many(many) => size_of::<Vec<u8>>() + many.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_in_order_and_once() {
        let mut events = AppEvents::default();
        assert!(events.is_empty() && !events.has_new());
        let all: Vec<u8> = (0..128).rev().collect();
        for &n in all.iter().chain(&all) {
            events.add(n);
        }
        events.add(128);
        assert_eq!(events.as_slice(), all);
        assert!(all.iter().all(|&n| events.has(n)) && !events.has(128) && !events.has(255));
        assert!(events.held() >= 128);
    }

    #[test]
    fn the_log_gets_each_once() {
        let mut events = AppEvents::default();
        events.add(100);
        assert_eq!(events.take_new(), [100]);
        events.add(100);
        assert!(!events.has_new());
        for n in 0..2 * AppEvents::MOST {
            events.repeat(7);
            assert_eq!((events.take_new().len(), events.has_new()), (usize::from(n < AppEvents::MOST - 1), false));
        }
        assert_eq!(events.as_slice().len(), AppEvents::MOST);
    }
}
