//! Protocols that are recognised, or only named in rules, and not parsed.

use margay_flow::Direction;

use super::{Mode, Pattern, Recognition};
use crate::registry::{AppProto, Opening, Protocol};

/// A literal to the client.
const fn tc(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes)
}

/// A protocol that is recognised.
const fn named(proto: AppProto, name: &'static str, patterns: &'static [Pattern]) -> Protocol {
    Protocol {
        recognition: Recognition { patterns, probes: &[] },
        event_key: name,
        event_type: name,
        ..Protocol::new(proto, name)
    }
}

/// A protocol that has a name in rules alone.
const fn unknown(proto: AppProto, name: &'static str) -> Protocol {
    Protocol { config: "", mode: Mode::Off, ..Protocol::new(proto, name) }
}

/// IMAP (RFC 9051 section 7.1).
pub(crate) static IMAP: Protocol = Protocol {
    opening: Opening::Command,
    event_key: "",
    ..named(AppProto::Imap, "imap", &[tc(b"* OK ").nocase(), tc(b"* PREAUTH ").nocase(), tc(b"* BYE ").nocase()])
};
/// IRC.
pub(crate) static IRC: Protocol = Protocol { opening: Opening::Command, ..unknown(AppProto::Irc, "irc") };
/// Jabber.
pub(crate) static JABBER: Protocol = unknown(AppProto::Jabber, "jabber");
