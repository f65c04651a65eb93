//! Link, network and transport headers as views over captured bytes.
//!
//! A [`Frame`] comes from a capture; [`Decoder::decode`] walks its headers and hands every packet it finds to a
//! [`PacketSink`]: for a tunnel the inner packet first, then the outer one; for the last fragment of a datagram the
//! reassembled packet first, then the fragment. Packets borrow the frame; nothing is allocated except by the
//! defragmenter, which reuses its buffers. [`Packet::events`] has the anomalies.
//!
//! This crate knows no flows.
//!
//! # How it works
//!
//! - `decoder`: entry of frames; shared parts of the layers; inner packets. A layer's function takes the packet and the
//!   range of its bytes that the header may use, records its results, and calls the next one.
//! - `decode`: the layers, a file for each family. What they accept, and which events they raise, follows the RFCs
//!   and, where these leave it open, Suricata's observed behaviour.
//! - `defrag`: fragments by datagram; overlaps resolved as the destination's system would ([`Policy`]).
//! - `config`, `counters`, [`event`]: settings, statistics and events, by the names of Suricata's configuration, `stats`
//!   and rules.
//!
//! An inner packet whose first header is broken is dropped; its outer packet raises no event for it. Broken headers
//! further in are events of the inner packet. `decoder.invalid` counts captured frames only.
//!
//! # Where it differs from Suricata 7
//!
//! - IPv4 in IPv4, SLL2, ETAG, IGMP and ARP are decoded, as in Suricata 8.
//! - An IPv6 packet shorter than its header raises `ipv6.pkt_too_small`.
//! - GRE and IPv6 behind IPv6 extension headers are decoded instead of being unknown next headers: Linux puts a
//!   destination options header there by default.
//! - If more than two fragments overlap, the policy decides each byte between the fragments that contain it.
//! - IPv6 fragments of a wrong length raise an event and are not stored (RFC 8200 section 4.5).

mod bytes;
pub mod checksum;
mod config;
mod counters;
mod decode;
mod decoder;
mod defrag;
mod keyed;
mod packet;

pub mod event;
#[doc(hidden)]
pub mod fault;
pub mod tcp;

pub use config::{DecodeConfig, DefragConfig, Policy, UdpTunnel};
pub use counters::DecodeCounters;
pub use decoder::Decoder;
pub use event::DecodeEvent;
pub use keyed::{KeyedHash, KeyedMap, KeyedSet};
pub use packet::{
    Completed, Ethernet, Frame, L3, L4, LinkType, MAX_EVENTS, Packet, PacketEvents, PacketSink, PacketSource, Refused,
    Time, Vlans, ipv4_option, ipv6_ext,
};
