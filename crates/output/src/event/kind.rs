//! Types of events, and sets of them.

use margay_app::{ALL, AppProto, Protocol};

macro_rules! kinds {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// Types of events, by the names that `event_type` and `types:` of an `eve-log` know them by.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum EventType {
            $($variant,)*
            /// That of an application protocol.
            App(AppProto),
        }

        /// Types that are no protocol's.
        const OWN: &[(EventType, &str)] = &[$((EventType::$variant, $name)),*];

        impl EventType {
            /// Its number: those of protocols are behind the others.
            const fn number(self) -> u32 {
                match self {
                    EventType::App(proto) => PROTOCOLS_FROM + proto as u32,
                    $(EventType::$variant => Number::$variant as u32,)*
                }
            }
        }

        #[repr(u8)]
        enum Number { $($variant),* }
    };
}

kinds! {
    Alert "alert",
    Anomaly "anomaly",
    Drop "drop",
    Flow "flow",
    Netflow "netflow",
    Stats "stats",
    Packet "packet",
    Arp "arp",
    Frame "frame",
    Metadata "metadata",
    Fileinfo "fileinfo",
    Stream "stream_tcp",
}

/// Number of the type of the first protocol.
const PROTOCOLS_FROM: u32 = 32;

impl EventType {
    /// All of them.
    pub fn all() -> impl Iterator<Item = EventType> {
        let of_protocols = ALL.iter().filter(|p| !p.event_key.is_empty()).map(|p| EventType::App(p.proto));
        OWN.iter().map(|o| o.0).chain(of_protocols)
    }

    /// The value of `event_type`. Events of HTTP/2 are those of HTTP, and what it carries of DNS is an event of DNS, though
    /// they are asked for by names of their own.
    pub fn name(self) -> &'static str {
        match self {
            EventType::App(proto) => ALL.iter().find(|p| p.proto == proto).map_or("", |p| p.event_type),
            own => OWN.iter().find(|o| o.0 == own).map_or("", |o| o.1),
        }
    }

    /// The type that a configuration means by `name`.
    pub fn from_name(name: &str) -> Option<EventType> {
        match name {
            "files" => return Some(EventType::Fileinfo),
            "stream" => return Some(EventType::Stream),
            "stream_tcp" => return None,
            _ => {}
        }
        if let Some(own) = OWN.iter().find(|o| o.1 == name) {
            return Some(own.0);
        }
        let of = |p: &&&Protocol| p.event_key == name || p.event_aliases.contains(&name);
        ALL.iter().find(of).filter(|_| !name.is_empty()).map(|p| EventType::App(p.proto))
    }
}

/// A set of event types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventTypes(u128);

impl EventTypes {
    /// The empty set.
    pub const NONE: EventTypes = EventTypes(0);

    /// The set with `kind` added.
    #[must_use]
    pub const fn with(self, kind: EventType) -> Self {
        EventTypes(self.0 | 1 << kind.number())
    }
    /// Everything in either set.
    #[must_use]
    pub const fn union(self, other: EventTypes) -> Self {
        EventTypes(self.0 | other.0)
    }
    /// Whether `kind` is in it.
    #[inline]
    pub const fn contains(self, kind: EventType) -> bool {
        self.0 & 1 << kind.number() != 0
    }
}

impl FromIterator<EventType> for EventTypes {
    fn from_iter<I: IntoIterator<Item = EventType>>(kinds: I) -> Self {
        kinds.into_iter().fold(EventTypes::NONE, EventTypes::with)
    }
}
