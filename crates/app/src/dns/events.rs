//! Anomalies of a message, under the names that rules use (`app-layer-event:dns.NAME`).

events! {
    "DNS";
    MalformedData "malformed_data";
    NotRequest "not_request";
    NotResponse "not_response";
    ZFlagSet "z_flag_set";
    InvalidOpcode "invalid_opcode";
    NameTooLong "name_too_long";
    InfiniteLoop "infinite_loop";
    TooManyLabels "too_many_labels";
    InvalidAdditionals "invalid_additionals";
    InvalidAuthorities "invalid_authorities";
}

/// A set of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSet(u16);

impl EventSet {
    /// Adds an event.
    pub const fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u16;
    }

    /// Whether the set has an event.
    pub const fn has(self, event: Event) -> bool {
        self.0 & (1 << event as u16) != 0
    }

    /// The events, by number.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL.iter().copied().filter(move |&e| self.has(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let mut set = EventSet::default();
        set.add(Event::InvalidAuthorities);
        set.add(Event::NotRequest);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Event::NotRequest, Event::InvalidAuthorities]);
        assert_eq!(NAMES[Event::InvalidAuthorities as usize], "invalid_authorities");
        assert!(NAMES.len() <= 16);
    }
}
