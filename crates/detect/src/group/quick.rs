//! The first test of a rule, before any check: needs, TCP flags and ranges, compared with a summary of the packet.

use margay_flow::FlowVars;
use margay_rules::ast::{Check, Compare, FlagMode};

use crate::head::{Head, long, range};

/// What of a rule without a pattern is asked before it becomes a candidate: cheap, and enough to leave most packets out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quick {
    pub(crate) needs: Needs,
    /// TCP flags that are looked at, and what they must be; no flags where it is not TCP.
    pub(crate) flags: (u8, u8),
    pub(crate) ranges: Ranges,
    /// Of the payload, where the rule looks at nothing else.
    pub(crate) head: Head,
    /// What it asks of the bits of the flow; all must hold.
    pub(crate) bits: Box<[BitTest]>,
}

/// Numbers of bits, one of which must be set, or one of which must not.
pub(crate) type BitTest = (Box<[u32]>, bool);

/// Smallest and largest values that a rule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// Of the payload's size, in bytes.
    payload: (u32, u32),
    /// Of the time to live.
    ttl: (u8, u8),
    /// Of the identification of the IPv4 header.
    id: (u16, u16),
    /// Of the TCP window.
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
    /// Most bytes of payload that the rule takes.
    pub(crate) const fn payload_max(&self) -> u32 {
        self.ranges.payload.1
    }

    /// From the checks of a rule.
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
                // Of several, not all of them: that says nothing of any one.
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
                // All but "do not fragment".
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

/// What a packet has, for [`Quick`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Has<'a> {
    pub(crate) needs: Needs,
    /// TCP flags; 0 where it is not TCP.
    pub(crate) flags: u8,
    /// Bytes of payload.
    pub(crate) payload: u32,
    /// How it begins ([`crate::head::first_of`]); `None` where rules are to be looked at whatever that is.
    pub(crate) head: Option<u64>,
    /// Time to live, or hop limit; 0 where it is not IP.
    pub(crate) ttl: u8,
    /// Identification of the IPv4 header; 0 where it is not IPv4.
    pub(crate) id: u16,
    /// TCP window; 0 where it is not TCP.
    pub(crate) window: u16,
    /// What the flow has of bits; `None` without a flow.
    pub(crate) vars: Option<&'a FlowVars>,
}

impl Has<'_> {
    pub(super) const fn word(&self) -> u32 {
        self.needs.word(self.flags)
    }
}

/// What a packet must have for a rule without a pattern, one bit each; all must be there.
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
    /// The first packet of a direction, or of one since something of the protocol became known.
    pub(crate) const PROTOCOL: Needs = Needs(1 << 5);
    /// A flow whose protocol is known.
    pub(crate) const APP: Needs = Needs(1 << 6);
    /// The same address twice.
    pub(crate) const SAME_IP: Needs = Needs(1 << 7);
    /// Options of IPv4.
    pub(crate) const IP_OPTIONS: Needs = Needs(1 << 8);
    /// Bits or an offset that only fragments have, and what is wrong.
    pub(crate) const FRAGMENT: Needs = Needs(1 << 9);
    /// An acknowledgement number of 0.
    pub(crate) const NO_ACK: Needs = Needs(1 << 10);
    /// A packet with which something of the protocol became known.
    pub(crate) const PROTOCOL_TOLD: Needs = Needs(1 << 11);

    #[inline]
    pub(crate) const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }
    /// Itself where `yes`, else nothing.
    #[inline]
    pub(crate) const fn if_so(self, yes: bool) -> Needs {
        Needs(self.0 * yes as u16)
    }
    /// What is needed, in words.
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

    /// Together with TCP's flags, or a mask of them.
    pub(super) const fn word(self, flags: u8) -> u32 {
        self.0 as u32 | (flags as u32) << 16
    }
}
