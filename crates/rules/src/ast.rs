//! The checked syntax tree of a rule: the parser's result after everything in the text was validated.
//!
//! Values are resolved: variables are expanded, address and port lists are sorted ranges, hexadecimal content is bytes.
//! Invalid combinations of keywords were rejected. The tree does not decide how a rule is matched.

use std::sync::Arc;

mod buffers;
mod effects;
mod sets;

pub use buffers::*;
pub use effects::*;
pub use sets::*;

/// The place of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file as it was named on the command line or in the configuration.
    pub file: Arc<str>,
    /// Line of the rule's first character, from 1.
    pub line: u32,
    /// Column, in characters from 1, of the part that a message is about.
    pub column: u32,
}

/// The action of a rule that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Write an alert.
    Alert,
    /// Do not inspect this packet or flow further.
    Pass,
    /// Drop the packet and the rest of its flow, and alert.
    Drop,
    /// Drop, and send the source a reset or unreachable (`reject` and `rejectsrc`).
    Reject,
    /// Drop, and send the reject to the destination.
    RejectDst,
    /// Drop, and send the reject to both.
    RejectBoth,
    /// Change logging of the transaction (`config` rules).
    Config,
    /// Accept, in firewall rules.
    Accept,
}

/// The protocol of a rule's header.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Any IP packet: `ip`, `any`.
    Ip,
    /// IPv4 only: `ip4`, `ipv4`.
    Ipv4,
    /// IPv6 only: `ip6`, `ipv6`.
    Ipv6,
    /// TCP; stream data and packets.
    Tcp,
    /// TCP, one packet's payload at a time: `tcp-pkt`.
    TcpPacket,
    /// TCP, the reassembled stream only: `tcp-stream`.
    TcpStream,
    /// UDP.
    Udp,
    /// ICMP of either version: `icmp`.
    Icmp,
    /// `icmpv4`.
    Icmpv4,
    /// `icmpv6`.
    Icmpv6,
    /// SCTP.
    Sctp,
    /// Any packet, even without a valid header: `pkthdr`.
    PacketHeader,
    /// Ethernet frames (`ether`), for rules on link-layer fields.
    Ethernet,
    /// ARP.
    Arp,
    /// An application protocol by its name in lower case (`http`, `tls`, `dns` …).
    App(String),
}

/// A set of addresses: sorted, disjoint, inclusive ranges, with negations already removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AddressSet {
    /// IPv4 ranges in host byte order.
    pub v4: Vec<(u32, u32)>,
    /// IPv6 ranges in host byte order.
    pub v6: Vec<(u128, u128)>,
    /// Whether the set has every address of both families.
    pub any: bool,
    /// Whether its text has a `!`, in nested lists and variables too.
    pub negated: bool,
}

/// A set of ports: sorted, disjoint, inclusive ranges, with negations already removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PortSet {
    /// The ranges.
    pub ranges: Vec<(u16, u16)>,
    /// Whether the set has every port.
    pub any: bool,
}

/// The direction of a rule's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrow {
    /// `->`
    Forward,
    /// `<>`: either direction.
    Both,
    /// `=>`: a transaction, in both directions.
    Transaction,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Rule {
    /// The action of a match.
    pub action: Action,
    /// Protocol.
    pub protocol: Protocol,
    /// Hook in the protocol field (`http1:request_headers`, `tcp:all` …), as written after the colon.
    pub hook: Option<String>,
    /// Source addresses.
    pub src: AddressSet,
    /// Source ports.
    pub sport: PortSet,
    /// Direction.
    pub arrow: Arrow,
    /// Destination addresses.
    pub dst: AddressSet,
    /// Destination ports.
    pub dport: PortSet,
    /// Signature id.
    pub sid: u32,
    /// Generator id; 1 if not given.
    pub gid: u32,
    /// Revision; 0 if not given.
    pub rev: u32,
    /// Message, with escapes resolved; empty if not given.
    pub msg: String,
    /// Class, if given and known.
    pub class: Option<Class>,
    /// Priority: `priority`, otherwise that of the class, otherwise 3.
    pub priority: u32,
    /// `target`: which end is the target of the attack.
    pub target: Option<Target>,
    /// `noalert`: match and act without an alert.
    pub noalert: bool,
    /// `alert` keyword: write an alert even if the action would not (`pass`).
    pub force_alert: bool,
    /// Header, flow state and variable checks, in rule order.
    pub checks: Vec<Check>,
    /// Buffer checks, in the order in which the rule names the buffers; checks on one buffer are in order.
    pub buffers: Vec<BufferChecks>,
    /// Effects of a match, in order.
    pub effects: Vec<Effect>,
    /// `threshold` and `detection_filter`.
    pub thresholds: Vec<Threshold>,
    /// `prefilter` keyword: the index in `checks` of the check that it applies to, if there is one.
    pub prefilter: Option<usize>,
    /// Keywords that need protocols or features missing from this build; a rule with any is set aside, not loaded.
    pub missing: Vec<String>,
    /// Whether it is a firewall rule: it comes from a file of such rules, which are evaluated in file order.
    pub firewall: bool,
    /// The rule's place.
    pub place: Place,
    /// The rule's text as written, with continuation lines joined. References ([`crate::references`]) and metadata
    /// ([`crate::metadata`]) are read from it on request.
    pub text: Arc<str>,
}

impl Rule {
    /// Whether the rule stores files (`filestore`).
    pub fn stores_files(&self) -> bool {
        self.effects.iter().any(|e| matches!(e, Effect::FileStore { .. }))
    }
}

/// A class from `classification.config`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    /// Short name, as in `classtype`.
    pub name: Arc<str>,
    /// Description, as events show it (`category`).
    pub description: Arc<str>,
    /// Priority, 1 (worst) to 255.
    pub priority: u32,
}

/// `target:`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// `src_ip`
    Source,
    /// `dest_ip`
    Destination,
}

/// A comparison of an unsigned number: the integer syntax that most keywords share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `5`, `=5`
    Equal(u64),
    /// `!5`, `!=5`
    NotEqual(u64),
    /// `<5`
    Less(u64),
    /// `<=5`
    LessEqual(u64),
    /// `>5`
    Greater(u64),
    /// `>=5`
    GreaterEqual(u64),
    /// `5<>10`: strictly between, unless the keyword's documentation says otherwise (then the bounds are already
    /// adjusted).
    Between(u64, u64),
    /// `!5-10`, `5!<>10`: not strictly between.
    NotBetween(u64, u64),
    /// `&0x0f`: all these bits.
    BitsSet(u64),
    /// `!&0x0f`: none of these bits.
    BitsClear(u64),
    /// `&mask=value`
    BitsEqual(u64, u64),
    /// `&mask!=value`
    BitsNotEqual(u64, u64),
}

impl Compare {
    /// Whether `v` satisfies the comparison.
    pub const fn holds(&self, v: u64) -> bool {
        match *self {
            Compare::Equal(a) => v == a,
            Compare::NotEqual(a) => v != a,
            Compare::Less(a) => v < a,
            Compare::LessEqual(a) => v <= a,
            Compare::Greater(a) => v > a,
            Compare::GreaterEqual(a) => v >= a,
            Compare::Between(a, b) => v > a && v < b,
            Compare::NotBetween(a, b) => v <= a || v >= b,
            Compare::BitsSet(m) => v & m == m,
            Compare::BitsClear(m) => v & m == 0,
            Compare::BitsEqual(m, x) => v & m == x,
            Compare::BitsNotEqual(m, x) => v & m != x,
        }
    }
}

/// A condition on a number of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NumberTest {
    /// The number satisfies the comparison.
    Compare(Compare),
    /// The number is in this list, or not in it.
    OneOf {
        /// The numbers.
        values: Vec<u64>,
        /// Whether the number must not be in the list.
        negated: bool,
    },
    /// The number is in one of these ranges, ends included.
    Ranges(Vec<(u64, u64)>),
    /// At least one bit of `any` is set (or `any` is 0), and no bit of `none` is set.
    Bits {
        /// Bits of which one has to be set.
        any: u64,
        /// Bits that must not be set.
        none: u64,
    },
    /// Each part of the number satisfies a comparison: lowest bit, number of bits, and the comparison.
    Parts(Vec<(u8, u8, Compare)>),
    /// The upper 32 bits equal the tag, and the lower 32 bits satisfy a comparison. For values that are identified by a
    /// number.
    Tagged {
        /// The number that identifies the value.
        tag: u32,
        /// The condition on the value.
        value: Compare,
    },
}

impl NumberTest {
    /// Whether `v` satisfies the condition.
    pub fn holds(&self, v: u64) -> bool {
        match self {
            NumberTest::Compare(c) => c.holds(v),
            NumberTest::OneOf { values, negated } => values.contains(&v) != *negated,
            NumberTest::Ranges(ranges) => ranges.iter().any(|(low, high)| (*low..=*high).contains(&v)),
            NumberTest::Tagged { tag, value } => v >> 32 == u64::from(*tag) && value.holds(v & 0xffff_ffff),
            NumberTest::Parts(parts) => parts.iter().all(|(first, bits, value)| {
                let mask = (1u64 << u32::from(*bits).min(32)) - 1;
                value.holds(v >> u32::from(*first).min(63) & mask)
            }),
            NumberTest::Bits { any, none } => (*any == 0 || v & any != 0) && v & none == 0,
        }
    }
}

/// A condition on the DCE/RPC interface of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InterfaceTest {
    /// Its UUID, in the order in which it is written.
    pub uuid: [u8; 16],
    /// Its major version.
    pub version: Option<Compare>,
    /// Whether a request counts even if its beginning was not seen.
    pub any_frag: bool,
}

impl InterfaceTest {
    /// Whether an interface satisfies the condition. `data` is the UUID, the major version as two bytes in big endian
    /// order, and a byte that is 1 if the beginning of the request was seen.
    pub fn holds(&self, data: &[u8]) -> bool {
        let Some((uuid, &[high, low, first])) = data.split_first_chunk::<16>() else { return false };
        *uuid == self.uuid
            && self.version.as_ref().is_none_or(|v| v.holds(u64::from(high) << 8 | u64::from(low)))
            && (self.any_frag || first == 1)
    }
}

/// The numbers of a transaction for which a condition must hold, if a transaction has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Which {
    /// At least one (`any`, or nothing given).
    #[default]
    Any,
    /// All, or there are none (`all`).
    All,
    /// All, and there is at least one (`all1`).
    AllAndSome,
    /// The one at this index; negative counts from the end.
    At(i32),
    /// This many of them (`nb>3`).
    Count(Compare),
}

/// The comparison of flag bits (`flags`, `fragbits`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlagMode {
    /// Exactly these.
    Exact,
    /// `+`: these and any others.
    All,
    /// `*`: any of these.
    Any,
    /// `!`: none of these.
    Not,
}

/// A direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Client to server.
    ToServer,
    /// Server to client.
    ToClient,
}

/// `flow:`; unset fields are not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FlowCheck {
    /// `to_server`, `from_client` or the reverse.
    pub side: Option<Side>,
    /// `established`
    pub established: bool,
    /// `not_established`
    pub not_established: bool,
    /// `stateless`
    pub stateless: bool,
    /// `only_stream` (`Some(true)`), `no_stream` (`Some(false)`)
    pub stream: Option<bool>,
    /// `only_frag` (`Some(true)`), `no_frag` (`Some(false)`)
    pub frag: Option<bool>,
}

/// `geoip`: the countries of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GeoIp {
    /// The addresses that are checked.
    pub side: GeoSide,
    /// ISO 3166-1 codes of two letters.
    pub countries: Vec<[u8; 2]>,
    /// Whether the addresses must be in none of these.
    pub negated: bool,
}

/// The addresses of a packet that `geoip` checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum GeoSide {
    Source,
    Destination,
    Any,
    Both,
}

/// A check that inspects no buffer.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum Check {
    /// `flow`
    Flow(FlowCheck),
    /// `flowbits:isset|isnotset`; several names joined by `|` mean any of them.
    FlowBit { names: Vec<String>, set: bool },
    /// `flowint` comparisons and `isset`/`isnotset`
    FlowInt { name: String, op: FlowIntCheck },
    /// `xbits`/`hostbits` `isset|isnotset`. `hostbits` tells the keyword, which affects the rule's place in the evaluation
    /// order
    XBit { name: String, track: XBitTrack, set: bool, hostbits: bool },
    /// `score:NAME,>=,N`: the transaction's score reaches N
    Score { name: String, least: u32 },
    /// `ttl` (IPv6: hop limit)
    Ttl(Compare),
    /// `tos`, the value or its negation
    Tos { value: u8, negated: bool },
    /// `id` of the IP header
    IpId(u16),
    /// `ip_proto`
    IpProto(Compare),
    /// `sameip`
    SameIp,
    /// `l3_proto`: 4 or 6
    L3Proto(u8),
    /// `ipopts`: a bit mask of `margay-packet`'s `ipv4_option`; `None` for `any`.
    IpOption(IpOption),
    /// `fragbits`: M 0x2000, D 0x4000, R 0x8000
    FragBits { bits: u16, mode: FlagMode },
    /// `fragoffset`, in units of 8 bytes
    FragOffset(Compare),
    /// `tcp.flags` with the bits to ignore (`flags:S,CE`)
    TcpFlags { bits: u8, ignore: u8, mode: FlagMode },
    /// `tcp.seq`
    TcpSeq(Compare),
    /// `tcp.ack`
    TcpAck(Compare),
    /// `tcp.window`
    TcpWindow { value: Compare },
    /// `tcp.mss`
    TcpMss(Compare),
    /// `tcp.wscale`
    TcpWscale(Compare),
    /// `itype`
    IcmpType(Compare),
    /// `icode`
    IcmpCode(Compare),
    /// `icmp_id`
    IcmpId(u16),
    /// `icmp_seq`
    IcmpSeq(u16),
    /// `icmpv6.mtu`
    Icmpv6Mtu(Compare),
    /// `igmp.type`
    IgmpType(Compare),
    /// `dsize`
    Dsize(Compare),
    /// `ipv4-csum`, `tcpv4-csum` …: whether the checksum must be valid
    Checksum { layer: ChecksumLayer, valid: bool },
    /// `stream_size`
    StreamSize { side: StreamSide, value: Compare },
    /// `app-layer-protocol`
    AppProto { name: String, negated: bool, mode: AppProtoMode },
    /// `decode-event` (also `engine-event`), without `decoder.`
    DecodeEvent(String),
    /// `stream-event`, without `stream.`
    StreamEvent(String),
    /// `app-layer-event`
    AppEvent(String),
    /// `flow.age`, in seconds
    FlowAge(Compare),
    /// `flow.pkts`, `flow.pkts_toserver`, `flow.pkts_toclient`
    FlowPkts { side: FlowSide, value: Compare },
    /// `flow.bytes`, `flow.bytes_toserver`, `flow.bytes_toclient`
    FlowBytes { side: FlowSide, value: Compare },
    /// `flow.elephant`
    FlowElephant(FlowSide),
    /// `vlan.id`, with the layer (0 to 2, negative from the innermost) or any
    VlanId { value: Compare, layer: VlanLayer },
    /// `vlan.layers`
    VlanLayers(Compare),
    /// `iprep`
    IpRep { side: IpRepSide, category: String, op: IpRepOp },
    /// `geoip`
    GeoIp(GeoIp),
    /// `rpc:` application, version and procedure; `None` is `*`
    Rpc { program: u32, version: Option<u32>, procedure: Option<u32> },
    /// `urilen`, and whether it applies to the raw URI
    UriLen { value: Compare, raw: bool },
    /// `flowvar`, `pktvar`: a variable that `pcre` captured equals this value
    Variable { kind: CaptureKind, name: String, value: Vec<u8>, negated: bool },
    /// `filename`, `fileext`, `filemagic`, `filemd5` …: all of a rule's file checks must hold for one file
    File(FileCheck),
    /// `app-layer-state`: the transaction is in this state, before it (`<`) or after it (`>`)
    AppState { state: String, order: std::cmp::Ordering },
    /// A number of a transaction (`dns.opcode`, `ssl_state` …), by the keyword's canonical name
    Number { keyword: &'static str, test: NumberTest, which: Which },
    /// `lua`, without a sticky buffer
    Lua(Box<LuaCheck>),
    /// `dcerpc.iface`
    Interface(InterfaceTest),
    /// A check of another protocol or feature, as written
    Other { keyword: String, argument: String, negated: bool },
}

/// A check on a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileCheck {
    /// `filename`: the name contains the text, ignoring case
    Name { text: Vec<u8>, negated: bool },
    /// `fileext`: the name ends with a dot and the text, ignoring case
    Extension { text: Vec<u8>, negated: bool },
    /// `filemagic`: the detected file type contains the text, ignoring case
    Magic { text: Vec<u8>, negated: bool },
    /// `filemd5`, `filesha1`, `filesha256`: the digest is in a list
    Hash { kind: FileHash, list: String, negated: bool },
    /// `filesize`, in bytes
    Size(Compare),
}

/// A digest of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileHash {
    Md5,
    Sha1,
    Sha256,
}

/// `ipopts:`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpOption {
    /// `any`: there is an option
    Any,
    /// One option, as a bit of `margay_packet::ipv4_option`
    Bit(u16),
}

/// The checked layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ChecksumLayer {
    Ipv4,
    TcpV4,
    TcpV6,
    UdpV4,
    UdpV6,
    Icmpv4,
    Icmpv6,
}

/// `stream_size` sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum StreamSide {
    Server,
    Client,
    Both,
    Either,
}

/// Sides of flow counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlowSide {
    ToServer,
    ToClient,
    Both,
    Either,
}

/// Layer of `vlan.id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VlanLayer {
    /// Any one layer
    Any,
    /// All layers
    All,
    /// That layer; negative from the innermost
    Index(i8),
}

/// `app-layer-protocol` modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AppProtoMode {
    /// The packet's direction (the default)
    Direction,
    Final,
    Either,
    ToServer,
    ToClient,
    Original,
}

/// `iprep` sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum IpRepSide {
    Any,
    Source,
    Destination,
    Both,
}

/// `iprep` operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IpRepOp {
    /// A comparison of the score, 0 to 127
    Score(Compare),
    /// `isset`
    IsSet,
    /// `isnotset`
    IsNotSet,
}

/// The right side of `flowint` operations: a number or another flowint's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FlowIntValue {
    /// A number
    Number(u32),
    /// Another variable
    Variable(String),
}

/// `flowint` comparisons.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlowIntCheck {
    Less(FlowIntValue),
    LessEqual(FlowIntValue),
    Equal(FlowIntValue),
    NotEqual(FlowIntValue),
    GreaterEqual(FlowIntValue),
    Greater(FlowIntValue),
    IsSet,
    IsNotSet,
}

/// The owner of an xbit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XBitTrack {
    /// Source address (`ip_src`; `hostbits` default `src`)
    Source,
    /// Destination address
    Destination,
    /// The pair of addresses
    Pair,
    /// Both hosts (`hostbits:…,both`)
    Both,
    /// The transaction (Suricata 8: `track tx`)
    Transaction,
}
