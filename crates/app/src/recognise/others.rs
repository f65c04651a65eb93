//! Protocols that are recognised and have no parser yet: they have a name in events and rules, and nothing more.

use margay_flow::Direction;

use super::{Pattern, Recognition};
use crate::proto::AppProto;

/// A protocol without a parser.
#[derive(Debug)]
pub struct Other {
    /// Which.
    pub proto: AppProto,
    /// Its key below `app-layer.protocols` in the configuration.
    pub config: &'static str,
    /// Whether it is looked for where the configuration says nothing.
    pub on: bool,
    /// How it is recognised.
    pub recognition: Recognition,
}

const fn ts(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToServer, bytes)
}

const fn tc(bytes: &'static [u8]) -> Pattern {
    Pattern::tcp(Direction::ToClient, bytes)
}

const fn by_pattern(proto: AppProto, config: &'static str, patterns: &'static [Pattern]) -> Other {
    Other { proto, config, on: true, recognition: Recognition { patterns, probes: &[] } }
}

/// All of them, in the order in which they are asked.
pub static OTHERS: &[Other] = &[
    // RFC 4253 section 4.2.
    by_pattern(AppProto::Ssh, "ssh", &[ts(b"SSH-"), tc(b"SSH-")]),
];
