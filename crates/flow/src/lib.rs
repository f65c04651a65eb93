//! The flow table, timeouts and per-flow variables.
//!
//! # How it works
//!
//! [`FlowTable::key`] determines a packet's flow, if it has one; [`FlowTable::lookup`] finds or creates the flow;
//! [`FlowTable::update`] counts the packet. Each flow consists of a [`FlowCore`] and the engine's extension (its TCP
//! session, application state and so on). A table has one owner. Each worker has its own table, and all packets of a
//! flow go to the same worker ([`FlowKey::hash`] is equal in both directions).
//!
//! Packets with a flow: TCP, UDP and SCTP by addresses and ports; ICMP and ICMPv6 by addresses, type and the counterpart
//! type; an ICMP destination unreachable message belongs to the flow of the packet inside it, other ICMPv4 errors to
//! none; ESP by SPI, separately for each direction; IP-in-IP tunnels by addresses. Fragments have no flow (the
//! reassembled datagram has), nor do broken packets and other protocols.
//!
//! Time is packet time. Flows end in [`FlowTable::expire`], when the next packet of the same key comes after the
//! timeout, when memory runs out (oldest first; emergency mode then shortens the timeouts), or with
//! [`FlowTable::drain`]. Each ended flow is returned whole, so that its remaining data can be inspected.
//!
//! A flow can move to another table ([`FlowTable::leave`], [`FlowTable::enter`]) without ending.
//!
//! # Limits
//!
//! | limit on | setting | when it is reached |
//! | --- | --- | --- |
//! | flows | `flow.memcap` | one of the flows next to time out is evicted; `flow.get_used`, `flow.emerg_mode_entered` |
//! | flows per bucket | 16, plus 8 × (allocated slots ÷ buckets) | the bucket's longest idle flow is evicted; `flow.chain_evicted` |
//! | hosts, pairs | `host.memcap`, `ippair.memcap` | the new entry is not created; `host.memcap` |

mod clock;
mod config;
mod core;
mod counters;
mod hash;
mod host;
mod key;
mod rate;
mod slab;
pub mod spare;
mod table;

pub use crate::core::{
    CAPTURED_BYTES_MAX, CAPTURED_MAX, CapturedVar, CapturedVars, Direction, FlowAction, FlowCore, FlowState, FlowVars,
};
pub use clock::JUMP_BACK;
pub use config::{FlowConfig, FlowTimeouts, TimeoutPair, Timeouts};
pub use counters::{FlowCounters, TCP_STATES};
pub use hash::HashKey;
pub use host::{HostConfig, HostCounters, HostTable, IpPair};
pub use key::{Ends, FlowHasher, FlowKey, icmpv4_counterpart, icmpv6_counterpart};
pub use rate::{Rate, RateConfig, SLOTS as RATE_SLOTS};
pub use table::{EndReason, Flow, FlowRef, FlowTable, Leaving, Lookup, OVER_MIN, Wanted};
