//! The flow table, timeouts and per-flow variables.
//!
//! # How it works
//!
//! [`FlowTable::key`] says which flow a packet belongs to, and whether it has one at all; [`FlowTable::lookup`] finds the
//! flow or makes it; [`FlowTable::update`] counts the packet. Each flow is a [`FlowCore`] and an extension of the engine's
//! (its TCP session, application state and so on). A table has one owner; workers have one each, and packets of a flow
//! always go to the same worker ([`FlowKey::hash`] is equal in both directions).
//!
//! Which packets have a flow: TCP, UDP and SCTP by addresses and ports; ICMP and ICMPv6 by addresses, and the type with
//! that of its answer; an ICMP destination unreachable message belongs to the flow of the packet that it carries, other
//! ICMPv4 errors to none; ESP by SPI, each direction for itself; IP-in-IP tunnels by addresses. Fragments have none (the
//! reassembled datagram has), nor have broken packets and other protocols.
//!
//! Time is that of the packets. Flows end in [`FlowTable::expire`], when the next packet of the same key comes after the
//! timeout, when memory runs out (oldest first; emergency mode then shortens the timeouts), or with
//! [`FlowTable::drain`]. Each ended flow is handed out whole, so that what is left of its data can still be looked at.
//!
//! A flow may go on in another table ([`FlowTable::leave`], [`FlowTable::enter`]): it is neither ended nor begun by that.
//!
//! # Limits
//!
//! | what | limit | where it is reached |
//! | --- | --- | --- |
//! | flows | `flow.memcap` | one of the flows next to time out goes; `flow.get_used`, `flow.emerg_mode_entered` |
//! | flows of one bucket | 16, and 8 more for each time that the places for flows exceed the buckets | the flow of that bucket that was silent longest goes; `flow.chain_evicted` |
//! | hosts, pairs | `host.memcap`, `ippair.memcap` | the new one is not made; `host.memcap` |

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
