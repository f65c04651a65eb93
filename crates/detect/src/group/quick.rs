//! Cheap properties of packets and the needs of rules: the first test, before any check.

use margay_flow::FlowVars;
use margay_rules::ast::{Check, Compare, FlagMode};

use crate::head::{Head, long, range};

/// Cheap conditions of a rule without a pattern. They exclude most packets before the rule becomes a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quick {
    pub(crate) needs: Needs,
    /// Mask of TCP flags and their required value; no flags for other protocols.
    pub(crate) flags: (u8, u8),
    pub(crate) ranges: Ranges,
    /// Conditions on the payload, if the rule inspects nothing else.
    pub(crate) head: Head,
    /// Tests of flow bits; all must hold.
    pub(crate) bits: Box<[BitTest]>,
}

/// Bit numbers, and whether one of them must be set or one must be unset.
pub(crate) type BitTest = (Box<[u32]>, bool);

/// Smallest and largest values that a rule accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Payload size in bytes.
    payload: (u32, u32),
    /// Time to live.
    ttl: (u8, u8),
    /// Identification field of the IPv4 header.
    id: (u16, u16),
    /// TCP window.
    window: (u16, u16),
}

impl Ranges {
    pub(super) const ALL: Ranges =
        Ranges { payload: (0, u32::MAX), ttl: (0, u8::MAX), id: (0, u16::MAX), window: (0, u16::MAX) };

    pub(super) const fn hold(&self, has: &Has<'_>) -> bool {
        has.payload >= self.payload.0
            && has.payload <= self.payload.1
            && has.ttl >= self.ttl.0
            && has.ttl <= self.ttl.1
            && has.id >= self.id.0
            && has.id <= self.id.1
            && has.window >= self.window.0
            && has.window <= self.window.1
    }
}

impl Quick {
    /// Largest payload that the rule accepts, in bytes.
    pub(crate) const fn payload_max(&self) -> u32 {
        self.ranges.payload.1
    }

    /// Derives the conditions from a rule's checks.
    pub(crate) fn of(checks: &[Check]) -> Quick {
        let mut q =
            Quick { needs: Needs::NOTHING, flags: (0, 0), ranges: Ranges::ALL, head: Head::ALL, bits: Box::default() };
        let short = |v: u64| u16::try_from(v).unwrap_or(u16::MAX);
        let byte = |v: u64| u8::try_from(v).unwrap_or(u8::MAX);
        for c in checks {
            match *c {
                Check::TcpFlags { bits: 0, mode, .. } if mode != FlagMode::Not => q.flags = (0xff, 0),
                Check::TcpFlags { bits: 0, .. } => {}
                Check::TcpFlags { bits, ignore, mode: FlagMode::Exact } => q.flags = (!ignore, bits & !ignore),
                Check::TcpFlags { bits, ignore: 0, mode: FlagMode::All } => q.flags = (bits, bits),
                // "Not all of several flags" gives no condition on any single flag.
                Check::TcpFlags { bits, ignore: 0, mode: FlagMode::Not } if bits.count_ones() == 1 => {
                    q.flags = (bits, 0)
                }
                Check::Dsize(d) => {
                    let (from, to) = range(&d);
                    q.ranges.payload = (long(from), long(to));
                }
                Check::Ttl(t) => {
                    let (from, to) = range(&t);
                    q.ranges.ttl = (byte(from), byte(to));
                }
                Check::IpId(id) => q.ranges.id = (id, id),
                Check::TcpWindow { value } => {
                    let (from, to) = range(&value);
                    q.ranges.window = (short(from), short(to));
                }
                Check::SameIp => q.needs = q.needs.and(Needs::SAME_IP),
                Check::IpOption(_) => q.needs = q.needs.and(Needs::IP_OPTIONS),
                // Every fragment bit except "do not fragment".
                Check::FragBits { bits, mode: FlagMode::Exact | FlagMode::All } if bits & 0xa000 != 0 => {
                    q.needs = q.needs.and(Needs::FRAGMENT);
                }
                Check::FragBits { bits, mode: FlagMode::Any } if bits & 0x4000 == 0 => {
                    q.needs = q.needs.and(Needs::FRAGMENT);
                }
                Check::FragOffset(c) if !c.holds(0) => q.needs = q.needs.and(Needs::FRAGMENT),
                Check::TcpAck(Compare::Equal(0)) => q.needs = q.needs.and(Needs::NO_ACK),
                _ => {}
            }
        }
        q
    }
}

/// The properties of a packet that [`Quick`] compares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Has<'a> {
    pub(crate) needs: Needs,
    /// TCP flags; 0 without TCP.
    pub(crate) flags: u8,
    /// Payload size in bytes.
    pub(crate) payload: u32,
    /// The first bytes of the payload ([`crate::head::first_of`]); `None` to skip this condition.
    pub(crate) head: Option<u64>,
    /// Time to live or hop limit; 0 without IP.
    pub(crate) ttl: u8,
    /// Identification field of the IPv4 header; 0 without IPv4.
    pub(crate) id: u16,
    /// TCP window; 0 without TCP.
    pub(crate) window: u16,
    /// The flow's variables; `None` without a flow.
    pub(crate) vars: Option<&'a FlowVars>,
}

impl Has<'_> {
    pub(super) const fn word(&self) -> u32 {
        self.needs.word(self.flags)
    }
}

/// Properties that a packet must have for a rule without a pattern, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub(crate) struct Needs(u16);

impl Needs {
    pub(crate) const NOTHING: Needs = Needs(0);
    /// Payload, of the packet or its stream.
    pub(crate) const DATA: Needs = Needs(1);
    /// A flow.
    pub(crate) const FLOW: Needs = Needs(1 << 1);
    /// An event of the stream engine.
    pub(crate) const STREAM_EVENT: Needs = Needs(1 << 2);
    /// An event of the decoder.
    pub(crate) const DECODE_EVENT: Needs = Needs(1 << 3);
    /// An established flow.
    pub(crate) const ESTABLISHED: Needs = Needs(1 << 4);
    /// The first packet of a direction, or the first one after protocol detection made progress.
    pub(crate) const PROTOCOL: Needs = Needs(1 << 5);
    /// A flow whose protocol is known.
    pub(crate) const APP: Needs = Needs(1 << 6);
    /// Equal source and destination address.
    pub(crate) const SAME_IP: Needs = Needs(1 << 7);
    /// IPv4 options.
    pub(crate) const IP_OPTIONS: Needs = Needs(1 << 8);
    /// Bits or an offset that only fragments have, or that are invalid.
    pub(crate) const FRAGMENT: Needs = Needs(1 << 9);
    /// Acknowledgement number 0.
    pub(crate) const NO_ACK: Needs = Needs(1 << 10);
    /// A packet with which the detected protocols changed.
    pub(crate) const PROTOCOL_TOLD: Needs = Needs(1 << 11);

    #[inline]
    pub(crate) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }
    /// `self` if `yes`, else nothing.
    #[inline]
    pub(crate) const fn if_so(self, yes: bool) -> Needs {
        Needs(self.0 * yes as u16)
    }
    /// The needs in words.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Needs, &str); 8] = [
            (Needs::DATA, "payload or stream data"),
            (Needs::FLOW, "a flow"),
            (Needs::STREAM_EVENT, "an event of the stream engine"),
            (Needs::DECODE_EVENT, "an event of the decoder"),
            (Needs::ESTABLISHED, "an established flow"),
            (Needs::PROTOCOL, "a packet after what was recognised of the protocol"),
            (Needs::PROTOCOL_TOLD, "a protocol just recognised"),
            (Needs::APP, "a flow whose protocol is known"),
        ];
        NAMES.into_iter().filter(move |(n, _)| self.0 & n.0 != 0).map(|(_, name)| name)
    }

    /// Combines the needs with TCP flags or a mask of them.
    pub(super) const fn word(self, flags: u8) -> u32 {
        self.0 as u32 | (flags as u32) << 16
    }
}
