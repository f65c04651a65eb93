//! Events as the engine reports them: plain structs whose fields borrow from packets, flows and rules.
//!
//! Each output's options decide which of the fields are written, and in which form.

mod data;
mod ether;
mod kind;
mod stats;

use std::net::IpAddr;

use margay_app::script::Answer;
use margay_packet::{L4, Packet, PacketSource, Time};

use crate::json::{Json, digits, ip};

pub use data::DataEvent;
pub use ether::Ether;
pub use kind::{EventType, EventTypes};
pub use stats::{Counter, EngineStats, StatsEvent};

/// Writes further members of an event, such as `"http":{...}`. The number is that of the `eve-log` output, in
/// configuration order, for members that depend on its options.
pub type Fields<'a> = &'a dyn Fn(&mut Json, usize);

/// As [`Fields`], for one of several events. The last number is that of the event.
pub type RecordFields<'a> = &'a dyn Fn(&mut Json, usize, usize);

/// Returns a value of the event's transaction: of a protocol's values, the one with that name, and with that argument, as
/// [`margay_app::Transaction::ask`] does.
pub type Ask<'a> = &'a dyn Fn(&str, &str, Option<&[u8]>) -> Option<Answer>;

/// Number of events to write, by the number of the output.
pub type Records<'a> = &'a dyn Fn(usize) -> usize;

/// One event for every output.
pub const ONE_RECORD: Records<'static> = &|_| 1;

/// Addresses, ports and protocol of a packet or flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Source.
    pub src: IpAddr,
    /// Source port; shown for TCP, UDP and SCTP only.
    pub sport: u16,
    /// Destination.
    pub dst: IpAddr,
    /// Destination port.
    pub dport: u16,
    /// IP protocol.
    pub proto: u8,
}

impl Addresses {
    /// Swaps source and destination.
    pub const fn reversed(self) -> Self {
        Addresses { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport, proto: self.proto }
    }

    /// Appends `SOURCE:PORT -> DESTINATION:PORT`, as lines of text have it.
    pub(crate) fn line(&self, out: &mut Vec<u8>) {
        ip(out, self.src);
        out.push(b':');
        digits(out, u64::from(self.sport));
        out.extend_from_slice(b" -> ");
        ip(out, self.dst);
        out.push(b':');
        digits(out, u64::from(self.dport));
    }
}

/// A flow or packet variable that a rule captured.
#[derive(Debug, Clone, Copy)]
pub enum Var<'a> {
    /// The rule gives the name: `{name: value}`.
    Named(&'a str, &'a [u8]),
    /// The rule captures the name from the traffic: `{"key":..},{"value":..}`.
    KeyValue(&'a [u8], &'a [u8]),
}

/// Variables that rules keep with a flow. Outputs with `metadata` write them as `metadata` and `traffic`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Vars<'a> {
    /// Names of the bits set. `traffic/id/x` and `traffic/label/x` go to `traffic`.
    pub flowbits: &'a [&'a str],
    /// Integers.
    pub flowints: &'a [(&'a str, u32)],
    /// Variables of the packet.
    pub pktvars: &'a [Var<'a>],
    /// Variables of the flow.
    pub flowvars: &'a [Var<'a>],
    /// Entropy computed by rules, by buffer name.
    pub entropy: &'a [(&'a str, f64)],
}

impl Vars<'_> {
    /// Whether there are no variables at all.
    pub const fn is_empty(&self) -> bool {
        self.flowbits.is_empty()
            && self.flowints.is_empty()
            && self.pktvars.is_empty()
            && self.flowvars.is_empty()
            && self.entropy.is_empty()
    }
}

/// Direction of the event within its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `to_server`.
    ToServer,
    /// `to_client`.
    ToClient,
}

impl Direction {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::ToServer => "to_server",
            Direction::ToClient => "to_client",
        }
    }
}

/// Members that all events begin with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header<'a> {
    /// Time of the event.
    pub time: Time,
    /// The flow's number.
    pub flow_id: Option<u64>,
    /// Number of the flow that announced this one, such as FTP's control connection.
    pub parent_id: Option<u64>,
    /// Addresses of the flow, if the packet's may differ: an ICMP error belongs to the flow that it refers to.
    pub flow_ends: Option<Addresses>,
    /// Interface of a live capture.
    pub in_iface: Option<&'a str>,
    /// Number of the packet in the capture file.
    pub pcap_cnt: Option<u64>,
    /// VLAN identifiers, outermost first.
    pub vlans: &'a [u16],
    /// Addresses; `None` for a packet that is not IP.
    pub addresses: Option<Addresses>,
    /// ICMP type and code.
    pub icmp: Option<(u8, u8)>,
    /// Flow events: type and code of the answer.
    pub icmp_response: Option<(u8, u8)>,
    /// ESP flows: security parameters index.
    pub spi: Option<u32>,
    /// The source of the packet (`pkt_src`).
    pub pkt_src: Option<PacketSource>,
    /// Ethernet addresses.
    pub ether: Ether<'a>,
    /// Flow and packet variables.
    pub vars: Vars<'a>,
    /// Capture file, written if an output's `pcap-file` is on.
    pub pcap_filename: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// The header for a transaction that is logged before its flow changes protocol: the event looks as if it came from
    /// a packet of its own.
    pub fn flushed(self) -> Self {
        Header { pcap_cnt: None, pkt_src: Some(PacketSource::StreamFlush), ..self }
    }

    /// The header with source and destination swapped.
    pub fn reversed(self) -> Self {
        Header { addresses: self.addresses.map(Addresses::reversed), ether: self.ether.reversed(), ..self }
    }

    /// The header with the addresses of a packet instead of its own.
    pub fn with_ends_of(self, packet: &'a Packet<'a>) -> Self {
        let Header { addresses, ether, .. } = Header::of(packet);
        Header { addresses, ether, ..self }
    }

    /// The header of an event about `packet`. The caller adds flow, interface, file and variables.
    ///
    /// As in Suricata, only captured frames have `pcap_cnt`; packets decapsulated from a tunnel have it in `tunnel`. A
    /// pseudo-packet, made to inspect data of a captured frame, has the frame's number.
    pub fn of(packet: &'a Packet<'a>) -> Self {
        let captured = packet.recursion == 0 && matches!(packet.source, PacketSource::Wire | PacketSource::StreamFlush);
        Header {
            time: packet.time,
            pcap_cnt: Some(packet.number).filter(|n| captured && *n > 0),
            vlans: packet.vlans.as_slice(),
            addresses: packet.is_ip().then_some(Addresses {
                src: packet.src,
                sport: packet.sport,
                dst: packet.dst,
                dport: packet.dport,
                proto: packet.proto,
            }),
            icmp: matches!(packet.l4, L4::Icmpv4 { .. } | L4::Icmpv6 { .. }).then_some(packet.icmp),
            pkt_src: Some(packet.source),
            ether: packet.ethernet.map_or(Ether::None, |e| Ether::Packet { src: e.src, dst: e.dst }),
            ..Header::default()
        }
    }
}

/// The end of the alert's packet that a rule's `target` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `src_ip`: the source is the target.
    Src,
    /// `dest_ip`.
    Dest,
}

/// The description of a rule in events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signature<'a> {
    /// Generator; 1 if the rule has no `gid`.
    pub gid: u32,
    /// `sid`.
    pub id: u32,
    /// `rev`; 0 if the rule has none.
    pub rev: u32,
    /// `msg`, with escapes resolved. Bytes, because rules need not be UTF-8. Without a message EVE shows an empty
    /// string, `fast.log` shows `(null)`.
    pub msg: Option<&'a [u8]>,
    /// Description of the `classtype`.
    pub category: Option<&'a str>,
    /// Priority: 1 is the highest.
    pub priority: u32,
    /// The members above, rendered once by [`crate::eve::signature_json`]; `None` if they were not rendered.
    pub text: Option<&'a [u8]>,
    /// `metadata`, rendered once by [`crate::eve::metadata_json`].
    pub metadata: Option<&'a [u8]>,
    /// References with their prefix resolved.
    pub references: &'a [String],
    /// The rule's text.
    pub rule: &'a [u8],
    /// `target`.
    pub target: Option<Target>,
}

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// `alert`: the packet passed, with an alert.
    Alert,
    /// `pass`.
    Pass,
    /// `accept`: firewall rules.
    Accept,
    /// `drop`.
    Drop,
}

impl Verdict {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Alert => "alert",
            Verdict::Pass => "pass",
            Verdict::Accept => "accept",
            Verdict::Drop => "drop",
        }
    }
}

/// Receiver of the resets or ICMP errors that a `reject` rule sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectTarget {
    /// `to_client`.
    ToClient,
    /// `to_server`.
    ToServer,
    /// `both`.
    Both,
}

impl RejectTarget {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            RejectTarget::ToClient => "to_client",
            RejectTarget::ToServer => "to_server",
            RejectTarget::Both => "both",
        }
    }
}

/// The verdict on a packet, with the reject packets that were sent.
#[derive(Debug, Clone, Copy)]
pub struct VerdictInfo<'a> {
    /// The verdict.
    pub action: Verdict,
    /// If the packet was rejected: the receiver, and the method (`tcp-reset`, `icmp-prohib`).
    pub reject: Option<(RejectTarget, &'a [&'a str])>,
}

/// Names of a flow's application protocols; `None` is not written.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppProtos<'a> {
    /// `app_proto`.
    pub proto: Option<&'a str>,
    /// `app_proto_ts`, if the direction to the server differs.
    pub to_server: Option<&'a str>,
    /// `app_proto_tc`, if the direction to the client differs.
    pub to_client: Option<&'a str>,
    /// `app_proto_orig`, after a change of protocol (STARTTLS).
    pub original: Option<&'a str>,
    /// `app_proto_expected`.
    pub expected: Option<&'a str>,
}

impl<'a> AppProtos<'a> {
    /// Takes the names of the flow's protocol, of each direction's (to the server, to the client), of the one before a
    /// protocol change, and of the expected one. Names that add nothing are left out. `None` is a protocol that is not
    /// yet detected, `failed` one whose detection failed.
    pub fn new(
        proto: Option<&'a str>,
        sides: [Option<&'a str>; 2],
        original: Option<&'a str>,
        expected: Option<&'a str>,
    ) -> Self {
        let other = |name: Option<&'a str>| name.filter(|&n| proto != Some(n));
        let [to_server, to_client] = sides.map(other);
        AppProtos { proto, to_server, to_client, original: other(original), expected: other(expected) }
    }
}

/// Counters and addresses of the flow an alert belongs to.
#[derive(Debug, Clone, Copy)]
pub struct FlowSummary {
    /// Packets to the server and to the client.
    pub pkts: [u64; 2],
    /// Bytes to the server and to the client.
    pub bytes: [u64; 2],
    /// Time of the first packet.
    pub start: Time,
    /// The flow's own addresses: the client is the source.
    pub addresses: Addresses,
    /// Every further packet is dropped.
    pub dropped: bool,
    /// No further packet is inspected.
    pub passed: bool,
}

/// Access to the client's address in a proxy's header, for outputs with `xff`.
#[derive(Clone, Copy)]
pub struct Forwarded<'a> {
    /// Selects the client's address in the event's [`Header`]: the source for traffic to the server, the destination for
    /// traffic to the client.
    pub direction: Direction,
    /// Finds the proxy's header with that name, in any case, and returns the address in it: the first of a list if the flag
    /// is `true`, otherwise the last.
    pub find: &'a dyn Fn(&str, bool) -> Option<IpAddr>,
}

/// The payload that an alert shows.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The bytes of the packet, or of the stream around it. The caller need not supply more stream bytes than the largest
    /// `payload-buffer-size`.
    pub data: &'a [u8],
    /// Whether the bytes come from the stream.
    pub stream: bool,
}

/// A rule matched.
#[derive(Clone, Copy)]
pub struct AlertEvent<'a> {
    /// The alert's place among those of its packet, from 0, and their number.
    pub place: (usize, usize),
    /// Header.
    pub header: Header<'a>,
    /// The packet, for `packet`, `packet_info` and `tunnel`.
    pub packet: &'a Packet<'a>,
    /// The rule.
    pub signature: Signature<'a>,
    /// Whether this rule blocked the packet (`action`).
    pub blocked: bool,
    /// Whether a drop rule matched in a mode that cannot drop packets: `[wDrop]` in `fast.log`.
    pub would_drop: bool,
    /// The rule's engine in firewall mode: `fw` or `td`.
    pub engine: Option<&'a str>,
    /// Transaction, and whether it is a guess (`tx_guessed`).
    pub tx_id: Option<(u64, bool)>,
    /// The client behind a proxy: from the alert's transaction, or from any transaction of the flow if the alert has
    /// none.
    pub xff: Option<Forwarded<'a>>,
    /// Members of `context`, which data sets supply.
    pub context: Option<Fields<'a>>,
    /// Progress of the transaction to the server and to the client, as the protocol names its states.
    pub progress: Option<(&'a str, &'a str)>,
    /// Members of the application layer (`http`, ...), for outputs whose alerts have `metadata.app-layer`.
    pub app: Option<Fields<'a>>,
    /// `files`, for outputs whose alerts have `metadata.rule.metadata`, as in Suricata.
    pub files: Option<Fields<'a>>,
    /// Names of the application protocol.
    pub app_protos: AppProtos<'a>,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// The flow.
    pub flow: Option<FlowSummary>,
    /// Payload; `None` if the packet has none of its own, for example a malformed packet.
    pub payload: Option<Payload<'a>>,
    /// Verdict.
    pub verdict: Option<VerdictInfo<'a>>,
    /// The file of `pcap-log` that was open when the rule matched.
    pub capture_file: Option<&'a str>,
}

/// A protocol violation or another irregularity.
#[derive(Debug, Clone, Copy)]
pub enum Anomaly<'a> {
    /// Found by the decoder; the event's name without `decoder.`.
    Decode(&'a str),
    /// Found by the stream engine; the event's name without `stream.`.
    Stream(&'a str),
    /// Found by an application-layer parser or by protocol detection.
    AppLayer {
        /// The event's name, in capitals or as the protocol spells it.
        event: &'a str,
        /// The protocol.
        app_proto: &'a str,
        /// `proto_parser`, `proto_detect` or `parser`.
        layer: &'a str,
    },
    /// An event that has no name.
    Unknown {
        /// `decode`, `stream` or `applayer`.
        kind: AnomalyKind,
        /// Its number.
        code: u32,
    },
}

/// The layer that found an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnomalyKind {
    /// Decoder.
    Decode,
    /// Stream engine.
    Stream,
    /// Application layer.
    AppLayer,
}

impl AnomalyKind {
    /// The value of `type`.
    pub const fn name(self) -> &'static str {
        match self {
            AnomalyKind::Decode => "decode",
            AnomalyKind::Stream => "stream",
            AnomalyKind::AppLayer => "applayer",
        }
    }
}

impl Anomaly<'_> {
    /// The layer that found it.
    pub const fn kind(&self) -> AnomalyKind {
        match self {
            Anomaly::Decode(_) => AnomalyKind::Decode,
            Anomaly::Stream(_) => AnomalyKind::Stream,
            Anomaly::AppLayer { .. } => AnomalyKind::AppLayer,
            Anomaly::Unknown { kind, .. } => *kind,
        }
    }
}

/// An anomaly in a packet.
#[derive(Debug, Clone, Copy)]
pub struct AnomalyEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The anomaly.
    pub anomaly: Anomaly<'a>,
    /// Transaction, if there is one.
    pub tx_id: Option<u64>,
    /// The packet, for `packethdr`.
    pub packet: Option<&'a Packet<'a>>,
}

/// The TCP engine's result for a packet.
#[derive(Debug, Clone, Copy)]
pub struct StreamEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// The packet's direction.
    pub direction: Direction,
    /// The session after the packet; `None` if the packet belongs to no session.
    pub session: Option<SessionState<'a>>,
    /// Names of the stream events, without `stream.`. Decoder events only make the list non-empty.
    pub events: &'a [&'static str],
    /// Whether the decoder found an error in the packet.
    pub decode_events: bool,
    /// Whether the packet repeats acknowledged data.
    pub spurious_retransmission: bool,
}

/// A TCP session, as packet events show it.
#[derive(Debug, Clone, Copy)]
pub struct SessionState<'a> {
    /// State after the packet.
    pub state: &'a str,
    /// State before the packet, if it was different.
    pub before: Option<&'a str>,
    /// Special properties of the session.
    pub flags: &'a [&'static str],
    /// The client and the server.
    pub peers: [PeerState; 2],
}

/// One side of a TCP session.
#[derive(Debug, Clone, Copy)]
pub struct PeerState {
    /// The side's initial sequence number.
    pub isn: u32,
    /// One past the last byte that the side sent.
    pub next_seq: u32,
    /// The other side's highest acknowledgement.
    pub last_ack: u32,
    /// The end of the window that the other side allows.
    pub next_win: u32,
    /// Sequence number of the first buffered byte.
    pub base_seq: u32,
    /// One past the last buffered byte.
    pub right_edge: u32,
    /// The last window that the other side advertised.
    pub window: u32,
    /// The window's scale.
    pub wscale: u8,
    /// Some of the side's data is missing.
    pub gap: bool,
    /// The side sent more than the reassembly depth.
    pub depth_reached: bool,
}

/// A packet was dropped.
#[derive(Debug, Clone, Copy)]
pub struct DropEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet, for the fields of its headers.
    pub packet: &'a Packet<'a>,
    /// The reason: `rules`, `flow drop`, `stream midstream`, ...
    pub reason: &'a str,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// Whether this is the first drop of a dropped flow and direction, or only the packet is dropped. Outputs with `flows: start` show only these.
    pub first_of_flow: bool,
    /// Transaction, and whether it is a guess.
    pub tx_id: Option<(u64, bool)>,
    /// The rule that dropped the packet, and whether the rule blocks.
    pub alert: Option<(Signature<'a>, bool)>,
    /// Verdict.
    pub verdict: Option<VerdictInfo<'a>>,
}

/// Both sides of a TCP connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpSummary<'a> {
    /// Flags seen to the server and to the client.
    pub flags: [u8; 2],
    /// State of the connection, if it was tracked.
    pub state: Option<&'a str>,
    /// Whether data is missing to the server and to the client.
    pub gap: [bool; 2],
    /// Largest number of reassembly regions at one time, to the server and to the client.
    pub max_regions: [u16; 2],
    /// Bytes of urgent data taken out of band, to the server and to the client; 0 is not written.
    pub urgent_oob: [u32; 2],
}

/// A flow ended.
#[derive(Debug, Clone, Copy)]
pub struct FlowEvent<'a> {
    /// Header, with the flow's own addresses.
    pub header: Header<'a>,
    /// Application protocols. Netflow writes `unknown` if there is none.
    pub app_protos: AppProtos<'a>,
    /// Packets to the server and to the client.
    pub pkts: [u64; 2],
    /// Bytes to the server and to the client.
    pub bytes: [u64; 2],
    /// First packet.
    pub start: Time,
    /// Last packet.
    pub end: Time,
    /// `new`, `established`, `closed`, `bypassed`.
    pub state: &'a str,
    /// `timeout`, `forced`, `shutdown`, `tcp_reuse`, ...
    pub reason: &'a str,
    /// Whether a rule alerted on the flow.
    pub alerted: bool,
    /// `drop`, `pass` or `accept`, if a rule decided for the whole flow.
    pub action: Option<&'a str>,
    /// Whether emergency mode was on.
    pub emergency: bool,
    /// `local` or `capture`, if the flow was bypassed.
    pub bypass: Option<&'a str>,
    /// Packets and bytes while the capture bypassed the flow, to the server and to the client.
    pub bypassed: Option<[(u64, u64); 2]>,
    /// Exception policies that took effect, as pairs of target and policy.
    pub exception_policies: &'a [(&'a str, &'a str)],
    /// Number of transactions; 0 is not written.
    pub tx_cnt: u64,
    /// Whether it was an elephant flow.
    pub elephant: bool,
    /// Smallest and largest TTL by direction, for netflow.
    pub ttl: [(u8, u8); 2],
    /// TCP.
    pub tcp: Option<TcpSummary<'a>>,
}

/// A packet kept because of a `tag`.
#[derive(Debug, Clone, Copy)]
pub struct PacketEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet.
    pub packet: &'a Packet<'a>,
}

/// An ARP packet for IPv4 over Ethernet (RFC 826).
#[derive(Debug, Clone, Copy)]
pub struct ArpEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// Operation.
    pub opcode: u16,
    /// Sender's hardware address.
    pub src_mac: [u8; 6],
    /// Sender's protocol address.
    pub src_ip: std::net::Ipv4Addr,
    /// Target's hardware address.
    pub dest_mac: [u8; 6],
    /// Target's protocol address.
    pub dest_ip: std::net::Ipv4Addr,
}

/// An event of the application layer: `event_type`, header, and the protocol's members.
#[derive(Clone, Copy)]
pub struct AppEvent<'a> {
    /// The event type.
    pub kind: EventType,
    /// Header.
    pub header: Header<'a>,
    /// Transaction, and whether it is a guess.
    pub tx_id: Option<(u64, bool)>,
    /// Direction, if the type shows it.
    pub direction: Option<Direction>,
    /// The client behind a proxy: for `http` and `fileinfo`.
    pub xff: Option<Forwarded<'a>>,
    /// How many events an output writes, by the output's number: mostly [`ONE_RECORD`].
    pub records: Records<'a>,
    /// The type's own members, by the output's number and the event's.
    pub fields: RecordFields<'a>,
    /// Values of the transaction, for outputs that are not JSON.
    pub ask: Option<Ask<'a>>,
}
