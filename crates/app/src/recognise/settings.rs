//! What the configuration says about recognition.

use crate::registry::AppProto;

/// What is done about a protocol (`enabled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// It is not looked for.
    #[default]
    Off,
    /// It is recognised, and not parsed (`detection-only`).
    DetectionOnly,
    /// It is recognised, and parsed where there is a parser.
    On,
}

/// A set of ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// These ports.
    pub fn of(ports: &[u16]) -> Ports {
        Ports(ports.iter().map(|p| (*p, *p)).collect())
    }

    /// Adds the ports from `first` to `last`.
    pub fn add(&mut self, first: u16, last: u16) {
        self.0.push((first, last));
    }

    /// Whether a port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|(a, b)| (*a..=*b).contains(&port))
    }

    /// Whether every port is.
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|(a, b)| *a == 0 && *b == u16::MAX)
    }
}

/// What the configuration says of one protocol over one transport; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// `enabled`.
    pub mode: Option<Mode>,
    /// `detection-ports.dp`: ports of the server.
    pub dp: Option<Ports>,
    /// `detection-ports.sp`: ports of the client.
    pub sp: Option<Ports>,
}

/// What the configuration says of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecogniseSettings {
    protocols: Vec<(AppProto, u8, ProtocolSettings)>,
}

impl RecogniseSettings {
    /// Sets what holds for a protocol over a transport (6, 17).
    pub fn set(&mut self, proto: AppProto, transport: u8, settings: ProtocolSettings) {
        self.protocols.retain(|p| (p.0, p.1) != (proto, transport));
        self.protocols.push((proto, transport, settings));
    }

    /// What holds for a protocol over a transport.
    pub fn of(&self, proto: AppProto, transport: u8) -> ProtocolSettings {
        self.protocols.iter().find(|p| (p.0, p.1) == (proto, transport)).map(|p| p.2.clone()).unwrap_or_default()
    }
}
