//! The configuration of protocol detection.

use crate::proto::AppProto;

/// The mode of a protocol (`enabled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Not detected.
    #[default]
    Off,
    /// Detected, not parsed (`detection-only`).
    DetectionOnly,
    /// Detected, and parsed if there is a parser.
    On,
}

/// A set of ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// A set of these ports.
    pub fn of(ports: &[u16]) -> Ports {
        Ports(ports.iter().map(|p| (*p, *p)).collect())
    }

    /// Adds the ports from `first` to `last`.
    pub fn add(&mut self, first: u16, last: u16) {
        self.0.push((first, last));
    }

    /// The ports, some possibly several times.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.iter().flat_map(|(a, b)| *a..=*b)
    }

    /// Whether the set has a port.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(a, b)| (*a..=*b).contains(&port))
    }

    /// Whether the set has all ports.
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|(a, b)| *a == 0 && *b == u16::MAX)
    }
}

/// The configuration of one protocol over one transport; `None` for defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// `enabled`.
    pub mode: Option<Mode>,
    /// `detection-ports.dp`: ports of the server.
    pub dp: Option<Ports>,
    /// `detection-ports.sp`: ports of the client.
    pub sp: Option<Ports>,
}

/// The configuration of all protocols.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecogniseSettings {
    /// Whether packets wait for the verdict, so that detection must not wait for the answer.
    pub inline: bool,
    protocols: Vec<(AppProto, u8, ProtocolSettings)>,
}

impl RecogniseSettings {
    /// The defaults, passive or inline.
    pub fn new(inline: bool) -> Self {
        RecogniseSettings { inline, ..Self::default() }
    }

    /// Sets the configuration of a protocol over a transport (6 or 17).
    pub fn set(&mut self, proto: AppProto, transport: u8, settings: ProtocolSettings) {
        self.protocols.retain(|p| (p.0, p.1) != (proto, transport));
        self.protocols.push((proto, transport, settings));
    }

    /// The configuration of a protocol over a transport.
    pub fn of(&self, proto: AppProto, transport: u8) -> ProtocolSettings {
        self.protocols.iter().find(|p| (p.0, p.1) == (proto, transport)).map(|p| p.2.clone()).unwrap_or_default()
    }
}
