//! Protocols that only have a name in rules: they are neither detected nor parsed.

use crate::declare::{Opening, Protocol};
use crate::proto::AppProto;
use crate::recognise::Mode;

/// A protocol that only has a name in rules.
const fn unknown(proto: AppProto, name: &'static str) -> Protocol {
    Protocol { config: "", mode: Mode::Off, ..Protocol::new(proto, name) }
}

/// IRC.
pub(crate) static IRC: Protocol = Protocol { opening: Opening::Command, ..unknown(AppProto::Irc, "irc") };
/// Jabber.
pub(crate) static JABBER: Protocol = unknown(AppProto::Jabber, "jabber");
