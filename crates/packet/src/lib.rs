//! Link, network and transport headers as views over captured bytes.
//!
//! A [`Frame`] comes from a capture; [`Decoder::decode`] walks its headers and hands every packet it finds to a
//! [`PacketSink`]: for a tunnel the inner packet first, then the outer one; for the last fragment of a datagram the
//! reassembled packet first, then the fragment. Packets borrow the frame; nothing is allocated except by the
//! defragmenter, which reuses its buffers. What was wrong on the way is in [`Packet::events`].
//!
//! Nothing here knows a flow.

mod bytes;
pub mod checksum;
mod config;
mod counters;
mod decode;
mod decoder;
mod defrag;
mod packet;

pub mod event;
pub mod tcp;

pub use config::{DecodeConfig, DefragConfig, Policy, UdpTunnel};
pub use counters::DecodeCounters;
pub use decoder::Decoder;
pub use event::DecodeEvent;
pub use packet::{
    Ethernet, Frame, L3, L4, LinkType, MAX_EVENTS, Packet, PacketEvents, PacketSink, PacketSource, Time, Vlans,
    ipv4_option, ipv6_ext,
};
