//! Protocols that are recognised, or only named in rules, and not parsed.

use margay_flow::Direction;

use super::{Mode, Pattern, Probe, Probed, Recognition, TCP, probes};
use crate::declare::{Setting, Unit};
use crate::registry::{AppProto, Opening, Protocol};

/// A literal to the client.
const fn tc(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes)
}

const fn on_tcp(ports: &'static [u16], probe: fn(Direction, &[u8]) -> Probed) -> Probe {
    Probe { transport: TCP, ports, probe }
}

/// A protocol that is recognised.
const fn named(
    proto: AppProto,
    name: &'static str,
    patterns: &'static [Pattern],
    probes: &'static [Probe],
) -> Protocol {
    Protocol {
        recognition: Recognition { patterns, probes },
        event_key: name,
        event_type: name,
        ..Protocol::new(proto, name)
    }
}

/// The same, not looked for unless the configuration says so.
const fn off(proto: Protocol) -> Protocol {
    Protocol { mode: Mode::Off, ..proto }
}

/// A protocol that has a name in rules alone.
const fn unknown(proto: AppProto, name: &'static str) -> Protocol {
    Protocol { config: "", mode: Mode::Off, ..Protocol::new(proto, name) }
}

/// IMAP (RFC 9051 section 7.1).
pub(crate) static IMAP: Protocol = Protocol {
    opening: Opening::Command,
    event_key: "",
    ..named(AppProto::Imap, "imap", &[tc(b"* OK ").nocase(), tc(b"* PREAUTH ").nocase(), tc(b"* BYE ").nocase()], &[])
};
/// Modbus over TCP.
pub(crate) static MODBUS: Protocol = Protocol {
    settings: &[
        Setting { key: "request-flood", unit: Unit::Count, default: 500, about: "Requests without a response." },
        Setting { key: "stream-depth", unit: Unit::Bytes, default: 0, about: "How much of a stream is followed." },
    ],
    ..off(named(AppProto::Modbus, "modbus", &[], &[on_tcp(&[502], probes::modbus)]))
};
/// IRC.
pub(crate) static IRC: Protocol = Protocol { opening: Opening::Command, ..unknown(AppProto::Irc, "irc") };
/// Jabber.
pub(crate) static JABBER: Protocol = unknown(AppProto::Jabber, "jabber");
/// Suricata's example of a protocol.
pub(crate) static TEMPLATE: Protocol = unknown(AppProto::Template, "template");
