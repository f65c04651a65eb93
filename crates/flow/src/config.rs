//! Settings of the flow table, with the defaults of Suricata 8 (`flow:`, `flow-timeouts:`, `vlan:`, `livedev:`,
//! `decoder.recursion-level:`).

use crate::hash::HashKey;
use crate::{FlowState, RateConfig};

/// Idle timeouts of flows of one protocol, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One side seen, or no handshake yet.
    pub new: u32,
    /// Both sides seen.
    pub established: u32,
    /// TCP only: connection closed. Flows of other protocols never reach this state.
    pub closed: u32,
    /// Bypassed in user space or in the capture.
    pub bypassed: u32,
}

impl Timeouts {
    /// The timeout for `state`, in seconds.
    pub const fn of(&self, state: FlowState) -> u32 {
        match state {
            FlowState::New => self.new,
            FlowState::Established => self.established,
            FlowState::Closed => self.closed,
            FlowState::LocalBypassed | FlowState::CaptureBypassed => self.bypassed,
        }
    }
}

/// A protocol's timeouts in normal times and in emergency mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutPair {
    /// Outside emergency mode.
    pub normal: Timeouts,
    /// In emergency mode.
    pub emergency: Timeouts,
}

/// `flow-timeouts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowTimeouts {
    /// All other protocols.
    pub default: TimeoutPair,
    /// TCP.
    pub tcp: TimeoutPair,
    /// UDP.
    pub udp: TimeoutPair,
    /// ICMP and ICMPv6.
    pub icmp: TimeoutPair,
}

impl FlowTimeouts {
    /// The timeouts of an IP protocol.
    pub const fn of(&self, proto: u8) -> &TimeoutPair {
        match proto {
            6 => &self.tcp,
            17 => &self.udp,
            1 | 58 => &self.icmp,
            _ => &self.default,
        }
    }

    /// The shortest timeout of a new or established flow, over all protocols.
    pub(crate) fn least(&self) -> u32 {
        let pairs = [self.default, self.tcp, self.udp, self.icmp];
        let all = pairs.iter().flat_map(|p| [p.normal, p.emergency]).flat_map(|t| [t.new, t.established]);
        all.min().unwrap_or(0)
    }
}

impl Default for FlowTimeouts {
    fn default() -> Self {
        let datagrams = TimeoutPair {
            normal: Timeouts { new: 30, established: 300, closed: 0, bypassed: 100 },
            emergency: Timeouts { new: 10, established: 100, closed: 0, bypassed: 50 },
        };
        FlowTimeouts {
            default: datagrams,
            tcp: TimeoutPair {
                normal: Timeouts { new: 60, established: 600, closed: 10, bypassed: 100 },
                emergency: Timeouts { new: 5, established: 100, closed: 10, bypassed: 50 },
            },
            udp: datagrams,
            icmp: datagrams,
        }
    }
}

/// Settings of [`crate::FlowTable`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowConfig {
    /// Most memory for the table, in bytes (`flow.memcap`); 0 means no limit.
    pub memcap: u64,
    /// Buckets of the hash table (`flow.hash-size`), at least 1.
    pub hash_size: u32,
    /// Flows allocated before the first packet (`flow.prealloc`).
    pub prealloc: u32,
    /// Percentage of the flow limit that must be free again before emergency mode ends (`flow.emergency-recovery`), 1 to
    /// 100.
    pub emergency_recovery: u8,
    /// Timeouts.
    pub timeouts: FlowTimeouts,
    /// The definition of an elephant flow (`flow.rate-tracking`); `None` if tracking is off.
    pub rate: Option<RateConfig>,
    /// Whether VLAN tags are part of a flow's key (`vlan.use-for-tracking`).
    pub vlan_use_for_tracking: bool,
    /// Whether the capture interface is part of a flow's key (`livedev.use-for-tracking`).
    pub livedev_use_for_tracking: bool,
    /// Whether the tunnel depth is part of a flow's key (`decoder.recursion-level.use-for-tracking`).
    pub recursion_use_for_tracking: bool,
    /// The key of the table's hash. A random key ([`HashKey::random`]) keeps attackers from causing collisions.
    pub hash_key: HashKey,
    /// The key from which flow identifiers are derived. With a fixed key, the same packets have the same identifiers in
    /// every run, whatever the table's key.
    pub id_key: HashKey,
}

impl Default for FlowConfig {
    fn default() -> Self {
        FlowConfig {
            memcap: 128 << 20,
            hash_size: 65536,
            prealloc: 10_000,
            emergency_recovery: 30,
            timeouts: FlowTimeouts::default(),
            rate: None,
            vlan_use_for_tracking: true,
            livedev_use_for_tracking: true,
            recursion_use_for_tracking: true,
            hash_key: HashKey::fixed(0),
            id_key: HashKey::fixed(0),
        }
    }
}
