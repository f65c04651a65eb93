//! Types of events, and sets of them.

use margay_app::{ALL, AppProto, Protocol};

macro_rules! kinds {
    ($($variant:ident $name:literal),* $(,)?) => {
        /// Event types, by the names in `event_type` and in `types:` of an `eve-log`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum EventType {
            $($variant,)*
            /// The events of an application protocol.
            App(AppProto),
        }

        /// Types that belong to no application protocol.
        const OWN: &[(EventType, &str)] = &[$((EventType::$variant, $name)),*];

        impl EventType {
            /// The type's number. Protocols come after the other types.
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
    TcpData "tcp-data",
    HttpBodyData "http-body-data",
}

/// The number of the first protocol's type.
const PROTOCOLS_FROM: u32 = 32;

impl EventType {
    /// All event types of an `eve-log`.
    pub fn all() -> impl Iterator<Item = EventType> {
        let of_protocols = ALL.iter().filter(|p| !p.event_key.is_empty()).map(|p| EventType::App(p.proto));
        OWN.iter().map(|o| o.0).filter(|kind| !kind.is_data()).chain(of_protocols)
    }

    /// Whether these are bytes for outputs of their own, which no `eve-log` writes.
    const fn is_data(self) -> bool {
        matches!(self, EventType::TcpData | EventType::HttpBodyData)
    }

    /// The value of `event_type`. HTTP/2 events appear as `http`, and DNS over HTTP/2 as `dns`, although the configuration
    /// has separate names for these types.
    pub fn name(self) -> &'static str {
        match self {
            EventType::App(proto) => ALL.iter().find(|p| p.proto == proto).map_or("", |p| p.event_type),
            own => OWN.iter().find(|o| o.0 == own).map_or("", |o| o.1),
        }
    }

    /// The type that the configuration calls `name`.
    pub fn from_name(name: &str) -> Option<EventType> {
        match name {
            "files" => return Some(EventType::Fileinfo),
            "stream" => return Some(EventType::Stream),
            // The names of these events select nothing: `stream` and `files` do, and `tagged-packets` of alerts.
            "stream_tcp" | "fileinfo" | "packet" => return None,
            _ => {}
        }
        if let Some(own) = OWN.iter().find(|o| o.1 == name && !o.0.is_data()) {
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
    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: EventTypes) -> Self {
        EventTypes(self.0 | other.0)
    }
    /// Whether the set contains `kind`.
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
