//! Packet and flow checks: the checks of a rule that inspect no buffer.
//!
//! A [`CompiledCheck`] has numbers instead of names, and all workers share it. [`CheckInput`] is the data for one
//! packet. [`CompiledCheck::cost`] ranks checks, so that a rule runs its cheap ones first.

mod compile;
pub(crate) mod describe;

mod flow;
pub(crate) mod header;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use margay_app::AppProto;
use margay_flow::{CapturedVars, Direction, FlowCore};
use margay_packet::{DecodeEvent, Packet};
use margay_rules::ast::{
    AppProtoMode, ChecksumLayer, Compare, FlagMode, FlowCheck, FlowSide, IpOption, IpRepOp, IpRepSide, StreamSide,
    VlanLayer, XBitTrack,
};

use crate::dataset::Datasets;
use crate::geoip::{Countries, GeoCheck};
use crate::hostvars::HostVars;

pub use crate::names::Names;

pub(crate) use compile::{int_value, track};

/// The context that compiling checks needs.
pub struct CheckEnv<'a> {
    /// Names of bits and integers.
    pub names: &'a mut Names,
    /// The number (below 128) of a stream event, by its name without `stream.`.
    pub stream_event: &'a dyn Fn(&str) -> Option<u8>,
    /// The number of an IP reputation category, by its name.
    pub reputation_category: &'a dyn Fn(&str) -> Option<u8>,
    /// Datasets.
    pub sets: &'a Datasets,
    /// Countries of addresses.
    pub countries: Option<Arc<Countries>>,
}

/// Reputation of addresses (`iprep`).
pub trait Reputation {
    /// The score of `address` in a category, 0 to 127; `None` if it has none.
    fn score(&self, address: IpAddr, category: u8) -> Option<u8>;
}

/// Bytes that each side of a TCP session sent, by sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamSizes {
    /// Sent by the server.
    pub server: u64,
    /// Sent by the client.
    pub client: u64,
}

/// A flow's application protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppProtos {
    /// As detected in each direction, by [`Direction::index`].
    pub side: [AppProto; 2],
    /// The protocol of the whole flow.
    pub flow: AppProto,
    /// The protocol before a protocol change (`original`).
    pub original: AppProto,
}

/// A set of application protocols that a name in a rule stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProtoSet(u64);

impl ProtoSet {
    /// The protocols that `name` stands for; empty if there are none.
    pub fn named(name: &str) -> ProtoSet {
        ProtoSet(AppProto::all().filter(|p| p.is_meant_by(name)).fold(0, |set, p| set | 1 << p as u8))
    }

    /// Whether the set contains `p`.
    pub const fn has(self, p: AppProto) -> bool {
        self.0 & 1 << p as u8 != 0
    }

    /// Whether it is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The data that checks read for one packet.
#[derive(Clone, Copy)]
pub struct CheckInput<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Its flow.
    pub flow: Option<&'a FlowCore>,
    /// Its direction in that flow.
    pub direction: Direction,
    /// Whether the packet belongs to an established flow: for TCP after the handshake, otherwise once both sides sent
    /// packets.
    pub established: bool,
    /// Whether the inspected data is the reassembled stream rather than the packet's own payload.
    pub stream_data: bool,
    /// Whether stream data is due with the packet, and a rule for its direction and port inspects streams.
    pub stream_due: bool,
    /// Whether the payload is encrypted. Then neither its bytes nor its size are inspected.
    pub no_payload: bool,
    /// Sizes of the TCP session's streams; `None` without a session.
    pub stream_sizes: Option<StreamSizes>,
    /// Stream events of the packet, one bit by number.
    pub stream_events: u128,
    /// Application protocols.
    pub app: AppProtos,
    /// Application layer events that belong to no protocol, one bit by place in [`margay_rules::APP_LAYER_EVENTS`].
    pub app_events: u8,
    /// Whether the packet is the first of its flow in its direction.
    pub flow_start: bool,
    /// Bits of hosts and host pairs.
    pub hosts: Option<&'a HostVars>,
    /// Variables of the packet.
    pub packet_vars: Option<&'a CapturedVars>,
    /// Reputation of addresses; `None` if none is loaded.
    pub reputation: Option<&'a dyn Reputation>,
}

impl<'a> CheckInput<'a> {
    /// Input for a packet and its flow, without streams, protocols and hosts. The flow's state gives `established`.
    pub fn new(packet: &'a Packet<'a>, flow: Option<&'a FlowCore>, direction: Direction) -> Self {
        CheckInput {
            packet,
            flow,
            direction,
            established: flow.is_some_and(|f| f.state != margay_flow::FlowState::New),
            stream_data: false,
            stream_due: false,
            no_payload: false,
            stream_sizes: None,
            stream_events: 0,
            app: AppProtos::default(),
            app_events: 0,
            flow_start: false,
            hosts: None,
            packet_vars: None,
            reputation: None,
        }
    }
}

/// Right side of a flowint comparison, with the name as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IntValue {
    Number(u32),
    Variable(u32),
}

/// Comparisons of flowints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IntOp {
    Less,
    LessEqual,
    Equal,
    NotEqual,
    GreaterEqual,
    Greater,
}

/// A compiled check.
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledCheck(Kind);

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Flow(FlowCheck),
    FlowBits { names: Box<[u32]>, set: bool },
    FlowIntSet { name: u32, set: bool },
    FlowInt { name: u32, op: IntOp, value: IntValue },
    Variable { of_flow: bool, name: u32, value: Box<[u8]>, negated: bool },
    XBit { name: u32, track: XBitTrack, set: bool },
    Ttl(Compare),
    Tos { value: u8, negated: bool },
    IpId(u16),
    IpProto(Compare),
    SameIp,
    L3Proto(u8),
    IpOption(IpOption),
    FragBits { bits: u16, mode: FlagMode },
    FragOffset(Compare),
    TcpFlags { bits: u8, ignore: u8, mode: FlagMode },
    TcpSeq(Compare),
    TcpAck(Compare),
    TcpWindow(Compare),
    TcpMss(Compare),
    TcpWscale(Compare),
    IcmpType(Compare),
    IcmpCode(Compare),
    IcmpId(u16),
    IcmpSeq(u16),
    Icmpv6Mtu(Compare),
    IgmpType(Compare),
    Dsize(Compare),
    Checksum { layer: ChecksumLayer, valid: bool },
    StreamSize { side: StreamSide, value: Compare },
    AppProto { protos: ProtoSet, negated: bool, mode: AppProtoMode },
    DecodeEvent(DecodeEvent),
    StreamEvent(u128),
    AppLayerEvent(u8),
    FlowStart,
    FlowAge(Compare),
    FlowPkts { side: FlowSide, value: Compare },
    FlowBytes { side: FlowSide, value: Compare },
    FlowElephant(FlowSide),
    VlanId { value: Compare, layer: VlanLayer },
    VlanLayers(Compare),
    IpRep { side: IpRepSide, category: u8, op: IpRepOp },
    GeoIp(Box<GeoCheck>),
    Rpc { program: u32, version: Option<u32>, procedure: Option<u32> },
}

impl CompiledCheck {
    /// Whether the packet is the first of its flow in its direction (`tcp:flow_start`).
    pub(crate) const FLOW_START: CompiledCheck = CompiledCheck(Kind::FlowStart);

    /// If this is a flow bit test: the bits, and whether one of them must be set or one must be unset.
    pub(crate) fn bits(&self) -> Option<(&[u32], bool)> {
        match &self.0 {
            Kind::FlowBits { names, set } => Some((names, *set)),
            _ => None,
        }
    }

    /// The cost from 0 to 9: rules run their checks in this order.
    pub fn cost(&self) -> u8 {
        match &self.0 {
            Kind::Flow(_) => 0,
            Kind::IpProto(_) | Kind::L3Proto(_) | Kind::Dsize(_) | Kind::TcpFlags { .. } => 1,
            Kind::Ttl(_)
            | Kind::Tos { .. }
            | Kind::IpId(_)
            | Kind::SameIp
            | Kind::IpOption(_)
            | Kind::FragBits { .. }
            | Kind::FragOffset(_)
            | Kind::TcpSeq(_)
            | Kind::TcpAck(_)
            | Kind::TcpWindow(_)
            | Kind::TcpMss(_)
            | Kind::TcpWscale(_)
            | Kind::IcmpType(_)
            | Kind::IcmpCode(_)
            | Kind::IcmpId(_)
            | Kind::IcmpSeq(_)
            | Kind::Icmpv6Mtu(_)
            | Kind::IgmpType(_)
            | Kind::StreamEvent(_)
            | Kind::AppLayerEvent(_)
            | Kind::FlowStart
            | Kind::VlanId { .. }
            | Kind::VlanLayers(_) => 2,
            Kind::DecodeEvent(_)
            | Kind::StreamSize { .. }
            | Kind::FlowAge(_)
            | Kind::FlowPkts { .. }
            | Kind::FlowBytes { .. }
            | Kind::FlowElephant(_)
            | Kind::Rpc { .. } => 3,
            Kind::FlowBits { .. } | Kind::FlowIntSet { .. } | Kind::FlowInt { .. } => 4,
            Kind::AppProto { .. } => 5,
            Kind::XBit { .. } | Kind::Variable { .. } => 6,
            Kind::IpRep { .. } => 7,
            Kind::GeoIp(_) => 8,
            Kind::Checksum { .. } => 9,
        }
    }

    /// Whether the check holds.
    pub fn holds(&self, input: &CheckInput<'_>) -> bool {
        let p = input.packet;
        match &self.0 {
            Kind::Flow(c) => flow::flow(c, input),
            Kind::FlowBits { names, set } => input.flow.is_some_and(|f| names.iter().any(|&n| f.vars.bit(n) == *set)),
            Kind::FlowIntSet { name, set } => input.flow.is_some_and(|f| f.vars.int(*name).is_some() == *set),
            Kind::FlowInt { name, op, value } => flow::int(*name, *op, *value, input),
            Kind::Variable { of_flow, name, value, negated } => {
                let vars = if *of_flow { input.flow.map(|f| f.vars.captured()) } else { input.packet_vars };
                let held = vars.and_then(|v| v.get(*name));
                held.is_some_and(|v| memchr::memmem::find(v, value).is_some() != *negated)
            }
            Kind::XBit { name, track, set } => flow::xbit(*name, *track, *set, input),
            Kind::Ttl(c) => header::ttl(p).is_some_and(|v| c.holds(v.into())),
            Kind::Tos { value, negated } => header::ipv4(p).is_some_and(|h| (h[1] == *value) != *negated),
            Kind::IpId(id) => header::ip_id(p) == Some(*id),
            Kind::IpProto(c) => p.is_ip() && c.holds(p.proto.into()),
            Kind::SameIp => p.is_ip() && p.src == p.dst,
            Kind::L3Proto(v) => header::version(p) == Some(*v),
            Kind::IpOption(o) => header::ip_option(p, *o),
            Kind::FragBits { bits, mode } => {
                header::frag_word(p).is_some_and(|w| header::fragment_bits(w & 0xe000, *bits, *mode))
            }
            Kind::FragOffset(c) => header::frag_offset(p).is_some_and(|v| c.holds(v.into())),
            Kind::TcpFlags { bits, ignore, mode } => {
                p.tcp().is_some_and(|t| header::tcp_flags(t.flags(), *bits, *ignore, *mode))
            }
            Kind::TcpSeq(c) => p.tcp().is_some_and(|t| c.holds(t.seq().into())),
            Kind::TcpAck(c) => p.tcp().is_some_and(|t| c.holds(t.ack().into())),
            Kind::TcpWindow(c) => p.tcp().is_some_and(|t| c.holds(t.window().into())),
            Kind::TcpMss(c) => p.is_tcp() && p.tcp_options.mss.is_some_and(|v| c.holds(v.into())),
            Kind::TcpWscale(c) => p.is_tcp() && p.tcp_options.window_scale.is_some_and(|v| c.holds(v.into())),
            Kind::IcmpType(c) => header::is_icmp(p) && c.holds(p.icmp.0.into()),
            Kind::IcmpCode(c) => header::is_icmp(p) && c.holds(p.icmp.1.into()),
            Kind::IcmpId(v) => header::icmp_id_seq(p).is_some_and(|(id, _)| id == *v),
            Kind::IcmpSeq(v) => header::icmp_id_seq(p).is_some_and(|(_, seq)| seq == *v),
            Kind::Icmpv6Mtu(c) => header::icmpv6_mtu(p).is_some_and(|v| c.holds(v.into())),
            Kind::IgmpType(c) => header::igmp_type(p).is_some_and(|v| c.holds(v.into())),
            Kind::Dsize(c) => {
                let len = crate::header::payload_of(p).len() as u64;
                // A negated size requires data that may be inspected, in the packet or due in the stream (Suricata 8, `dsize:!9`).
                let asks_data = matches!(c, Compare::NotEqual(_));
                let there = (len > 0 && !input.no_payload) || input.stream_due;
                !header::is_pseudo(p) && c.holds(len) && (there || !asks_data)
            }
            Kind::Checksum { layer, valid } => header::checksum(p, *layer) == Some(*valid),
            Kind::StreamSize { side, value } => input.stream_sizes.is_some_and(|s| {
                let (server, client) = (value.holds(s.server), value.holds(s.client));
                match side {
                    StreamSide::Server => server,
                    StreamSide::Client => client,
                    StreamSide::Both => server && client,
                    StreamSide::Either => server || client,
                }
            }),
            Kind::AppProto { protos, negated, mode } => flow::app_proto(*protos, *negated, *mode, input),
            Kind::DecodeEvent(e) => p.events.contains(*e),
            Kind::StreamEvent(bit) => input.stream_events & bit != 0,
            Kind::AppLayerEvent(bit) => input.app_events & bit != 0,
            Kind::FlowStart => input.flow_start,
            Kind::FlowAge(c) => {
                input.flow.is_some_and(|f| c.holds(f.last.secs().saturating_sub(f.start.secs()).max(0) as u64))
            }
            Kind::FlowPkts { side, value } => input.flow.is_some_and(|f| flow::side(*side, *value, f.pkts)),
            Kind::FlowBytes { side, value } => input.flow.is_some_and(|f| flow::side(*side, *value, f.bytes)),
            Kind::FlowElephant(side) => {
                input.flow.is_some_and(|f| flow::side(*side, Compare::Equal(1), f.elephant.map(u64::from)))
            }
            Kind::VlanId { value, layer } => header::vlan(p.vlans.as_slice(), *value, *layer),
            Kind::VlanLayers(c) => c.holds(p.vlans.as_slice().len() as u64),
            Kind::IpRep { side, category, op } => header::reputation(input, *side, *category, *op),
            Kind::GeoIp(c) => p.is_ip() && c.holds(p.src, p.dst),
            Kind::Rpc { program, version, procedure } => header::rpc(p, *program, *version, *procedure),
        }
    }
}
