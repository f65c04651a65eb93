//! What happened, as the engine tells it: plain structs whose fields borrow from packets, flows and rules.
//!
//! Which of it is written, and in which form, is up to each output's options.

mod kind;

use std::net::IpAddr;

use margay_packet::{Packet, PacketSource, Time};

use crate::json::Json;
use crate::names;

pub use kind::{EventType, EventTypes};

/// Writes further members of an event: `"http":{...}` and the like. The number is that of the `eve-log` output, in the
/// order of the configuration, for what depends on its options.
pub type Fields<'a> = &'a dyn Fn(&mut Json, usize);

/// As [`Fields`], for one of several events: the last number is that of the event.
pub type RecordFields<'a> = &'a dyn Fn(&mut Json, usize, usize);

/// How many events are made, by the number of the output.
pub type Records<'a> = &'a dyn Fn(usize) -> usize;

/// One event, whatever the output.
pub const ONE_RECORD: Records<'static> = &|_| 1;

/// Who talks to whom.
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
    /// The same the other way.
    pub const fn reversed(self) -> Self {
        Addresses { src: self.dst, sport: self.dport, dst: self.src, dport: self.sport, proto: self.proto }
    }
}

/// Ethernet addresses, written where an output's `ethernet` is on.
#[derive(Debug, Clone, Copy, Default)]
pub enum Ether<'a> {
    /// None known.
    #[default]
    None,
    /// Those of one packet: `src_mac`, `dest_mac`.
    Packet {
        /// Source.
        src: [u8; 6],
        /// Destination.
        dst: [u8; 6],
    },
    /// All that a flow had: `src_macs`, `dest_macs`.
    Flow {
        /// Source addresses.
        src: &'a [[u8; 6]],
        /// Destination addresses.
        dst: &'a [[u8; 6]],
    },
}

/// A flow or packet variable that a rule captured.
#[derive(Debug, Clone, Copy)]
pub enum Var<'a> {
    /// Of a rule that names it: `{name: value}`.
    Named(&'a str, &'a [u8]),
    /// Of a rule that takes its name from the traffic as well: `{"key":..},{"value":..}`.
    KeyValue(&'a [u8], &'a [u8]),
}

/// What rules keep with a flow, written as `metadata` and `traffic` where an output's `metadata` is on.
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
    /// Entropy computed by rules, by the buffer's name.
    pub entropy: &'a [(&'a str, f64)],
}

impl Vars<'_> {
    /// Whether there is nothing at all.
    pub const fn is_empty(&self) -> bool {
        self.flowbits.is_empty()
            && self.flowints.is_empty()
            && self.pktvars.is_empty()
            && self.flowvars.is_empty()
            && self.entropy.is_empty()
    }
}

/// Direction of what is reported within its flow.
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

/// What all events begin with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Header<'a> {
    /// When it happened.
    pub time: Time,
    /// The flow's number.
    pub flow_id: Option<u64>,
    /// Number of the flow that this one comes from, such as FTP's control connection.
    pub parent_id: Option<u64>,
    /// Ends of the flow, where its packets may have others: an ICMP error is of the flow that it is about.
    pub flow_ends: Option<Addresses>,
    /// Interface of a live capture.
    pub in_iface: Option<&'a str>,
    /// Number of the packet in the capture file.
    pub pcap_cnt: Option<u64>,
    /// VLAN identifiers, outermost first.
    pub vlans: &'a [u16],
    /// Addresses; `None` for what is not IP.
    pub addresses: Option<Addresses>,
    /// ICMP type and code.
    pub icmp: Option<(u8, u8)>,
    /// Flow events: type and code of the answer.
    pub icmp_response: Option<(u8, u8)>,
    /// ESP flows: security parameters index.
    pub spi: Option<u32>,
    /// Where the packet comes from.
    pub pkt_src: Option<PacketSource>,
    /// Ethernet addresses.
    pub ether: Ether<'a>,
    /// Flow and packet variables.
    pub vars: Vars<'a>,
    /// Capture file, written where an output's `pcap-file` is on.
    pub pcap_filename: Option<&'a str>,
}

impl<'a> Header<'a> {
    /// The same for what is logged before a flow changes its protocol: as if a packet of its own came between this one and the next.
    pub fn flushed(self) -> Self {
        Header { pcap_cnt: None, pkt_src: Some(PacketSource::StreamFlush), ..self }
    }

    /// The header of an event about `packet`; flow, interface, file and variables are for the caller to add.
    ///
    /// The number in the capture is there for captured frames only, as with Suricata: what was taken out of a tunnel
    /// has it in `tunnel`. A packet that was made up to inspect what a captured frame brought has the number of that one.
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
            icmp: (packet.is_ip() && names::is_icmp(packet.proto)).then_some(packet.icmp),
            pkt_src: Some(packet.source),
            ether: packet.ethernet.map_or(Ether::None, |e| Ether::Packet { src: e.src, dst: e.dst }),
            ..Header::default()
        }
    }
}

/// Which end of the alert's packet a rule's `target` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `src_ip`: the source is the target.
    Src,
    /// `dest_ip`.
    Dest,
}

/// What events say of a rule.
#[derive(Debug, Clone, Copy, Default)]
pub struct Signature<'a> {
    /// Generator, 1 where the rule says nothing.
    pub gid: u32,
    /// `sid`.
    pub id: u32,
    /// `rev`, 0 where the rule says nothing.
    pub rev: u32,
    /// `msg`, escapes resolved; bytes because rules need not be UTF-8. Without one EVE shows an empty string, `fast.log`
    /// shows `(null)`.
    pub msg: Option<&'a [u8]>,
    /// Description of the `classtype`.
    pub category: Option<&'a str>,
    /// Priority, 1 to 255.
    pub priority: u8,
    /// What comes before that, as [`crate::eve::signature_json`] renders it once; `None` where it was not.
    pub text: Option<&'a [u8]>,
    /// `metadata` as [`crate::eve::metadata_json`] renders it once.
    pub metadata: Option<&'a [u8]>,
    /// References with their prefix resolved.
    pub references: &'a [String],
    /// The rule's text.
    pub rule: &'a [u8],
    /// `target`.
    pub target: Option<Target>,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// `alert`: let through, with an alert.
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

/// Who got the resets or ICMP errors of a `reject` rule.
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

/// The verdict on a packet, with what was sent to reject it.
#[derive(Debug, Clone, Copy)]
pub struct VerdictInfo<'a> {
    /// What became of the packet.
    pub action: Verdict,
    /// Where it was rejected: to whom, and how (`tcp-reset`, `icmp-prohib`).
    pub reject: Option<(RejectTarget, &'a [&'a str])>,
}

/// Names of application protocols as a flow has them; `None` is not written.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppProtos<'a> {
    /// `app_proto`.
    pub proto: Option<&'a str>,
    /// `app_proto_ts`, where the server's side differs.
    pub to_server: Option<&'a str>,
    /// `app_proto_tc`, where the client's side differs.
    pub to_client: Option<&'a str>,
    /// `app_proto_orig`, after a change of protocol (STARTTLS).
    pub original: Option<&'a str>,
    /// `app_proto_expected`.
    pub expected: Option<&'a str>,
}

impl<'a> AppProtos<'a> {
    /// From the names of the flow's protocol, of that of each direction (to the server, to the client), of the one before a
    /// change, and of the one that was expected: what says nothing new is left out. `None` is a protocol not known yet, and
    /// `failed` one that was looked for and not found.
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
    /// The flow's own addresses: source is the client.
    pub addresses: Addresses,
}

/// Where the client's address can be asked for as a proxy gives it in a header: for outputs with `xff`.
#[derive(Clone, Copy)]
pub struct Forwarded<'a> {
    /// Which of the header's addresses is the client's: the source where they are those of something that goes to the
    /// server, the destination where it goes to the client.
    pub direction: Direction,
    /// Looks for the header of that name in any case, and gives its address: the first of a list with `true`, else the
    /// last.
    pub find: &'a dyn Fn(&str, bool) -> Option<IpAddr>,
}

/// The payload that an alert shows.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    /// The bytes: of the packet, or of the stream around it. No more than the largest `payload-buffer-size` is needed
    /// of a stream.
    pub data: &'a [u8],
    /// Whether they come from the stream.
    pub stream: bool,
}

/// A rule matched.
#[derive(Clone, Copy)]
pub struct AlertEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet, for `packet`, `packet_info` and `tunnel`.
    pub packet: &'a Packet<'a>,
    /// The rule.
    pub signature: Signature<'a>,
    /// Whether the packet was blocked because of this rule (`action`).
    pub blocked: bool,
    /// Whether a rule that drops matched where packets cannot be dropped: `[wDrop]` in `fast.log`.
    pub would_drop: bool,
    /// Engine of the rule in firewall mode: `fw` or `td`.
    pub engine: Option<&'a str>,
    /// Transaction, and whether it was only assumed (`tx_guessed`).
    pub tx_id: Option<(u64, bool)>,
    /// The client behind a proxy, from the alert's transaction, or where it has none, from any of the flow.
    pub xff: Option<Forwarded<'a>>,
    /// What data sets have to say: the members of `context`.
    pub context: Option<Fields<'a>>,
    /// Progress of the transaction to the server and to the client, by the names of the protocol's states.
    pub progress: Option<(&'a str, &'a str)>,
    /// Members of the application layer (`http`, `files`, ...), written where the output's alerts have `metadata.app-layer`.
    pub app: Option<Fields<'a>>,
    /// Names of the application protocol.
    pub app_protos: AppProtos<'a>,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// The flow.
    pub flow: Option<FlowSummary>,
    /// Payload; `None` where the packet has no payload of its own, such as broken packets.
    pub payload: Option<Payload<'a>>,
    /// Verdict.
    pub verdict: Option<VerdictInfo<'a>>,
}

/// Something that should not be was seen.
#[derive(Debug, Clone, Copy)]
pub enum Anomaly<'a> {
    /// By the decoder; the event's name without `decoder.`.
    Decode(&'a str),
    /// By the stream engine; the event's name without `stream.`.
    Stream(&'a str),
    /// By an application-layer parser or protocol detection.
    AppLayer {
        /// The event's name in capitals or as the protocol has it.
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

/// Where an anomaly was seen.
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
    /// Where it was seen.
    pub const fn kind(&self) -> AnomalyKind {
        match self {
            Anomaly::Decode(_) => AnomalyKind::Decode,
            Anomaly::Stream(_) => AnomalyKind::Stream,
            Anomaly::AppLayer { .. } => AnomalyKind::AppLayer,
            Anomaly::Unknown { kind, .. } => *kind,
        }
    }
}

/// An anomaly of a packet.
#[derive(Debug, Clone, Copy)]
pub struct AnomalyEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// What.
    pub anomaly: Anomaly<'a>,
    /// Transaction, where there is one.
    pub tx_id: Option<u64>,
    /// The packet, for `packethdr`.
    pub packet: Option<&'a Packet<'a>>,
}

/// What the TCP engine made of a packet.
#[derive(Debug, Clone, Copy)]
pub struct StreamEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Its direction.
    pub direction: Direction,
    /// Its session after it; `None` where it belongs to none.
    pub session: Option<SessionState<'a>>,
    /// Names of its events, without `stream.`; those of the decoder count only as there being some.
    pub events: &'a [&'static str],
    /// Whether the decoder found something wrong with it.
    pub decode_events: bool,
    /// Whether it repeats what was acknowledged.
    pub spurious_retransmission: bool,
}

/// A TCP session as events of packets show it.
#[derive(Debug, Clone, Copy)]
pub struct SessionState<'a> {
    /// State after the packet.
    pub state: &'a str,
    /// State before it, where it was another one.
    pub before: Option<&'a str>,
    /// What is special about it.
    pub flags: &'a [&'static str],
    /// The client and the server.
    pub peers: [PeerState; 2],
}

/// One side of a TCP session.
#[derive(Debug, Clone, Copy)]
pub struct PeerState {
    /// Its initial sequence number.
    pub isn: u32,
    /// One past the last byte that it sent.
    pub next_seq: u32,
    /// Up to where the other side acknowledged.
    pub last_ack: u32,
    /// Up to where the other side lets it send.
    pub next_win: u32,
    /// Sequence number of the first byte of it that is kept.
    pub base_seq: u32,
    /// One past the last byte of it that is kept.
    pub right_edge: u32,
    /// The window that the other side offered last.
    pub window: u32,
    /// The shift of that window.
    pub wscale: u8,
    /// Data of it is missing.
    pub gap: bool,
    /// It sent more than is put together.
    pub depth_reached: bool,
}

/// A packet was dropped.
#[derive(Debug, Clone, Copy)]
pub struct DropEvent<'a> {
    /// Header.
    pub header: Header<'a>,
    /// The packet, for the fields of its headers.
    pub packet: &'a Packet<'a>,
    /// Why: `rules`, `flow drop`, `stream midstream`, ...
    pub reason: &'a str,
    /// Direction of the packet.
    pub direction: Option<Direction>,
    /// Whether this is the first drop of its flow, or of no flow: outputs with `flows: start` show only these.
    pub first_of_flow: bool,
    /// Transaction, and whether it was only assumed.
    pub tx_id: Option<(u64, bool)>,
    /// The rule that dropped it, and whether it is one that blocks.
    pub alert: Option<(Signature<'a>, bool)>,
    /// Verdict.
    pub verdict: Option<VerdictInfo<'a>>,
}

/// What a side of a TCP connection did.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpSummary<'a> {
    /// Flags seen to the server and to the client.
    pub flags: [u8; 2],
    /// State of the connection, where it was tracked.
    pub state: Option<&'a str>,
    /// Whether data is missing to the server and to the client.
    pub gap: [bool; 2],
    /// Most regions of reassembly at a time, to the server and to the client.
    pub max_regions: [u16; 2],
    /// Bytes of urgent data taken out of band, to the server and to the client; 0 is not written.
    pub urgent_oob: [u32; 2],
}

/// A flow ended.
#[derive(Debug, Clone, Copy)]
pub struct FlowEvent<'a> {
    /// Header, with the flow's own addresses.
    pub header: Header<'a>,
    /// Application protocols; for netflow `unknown` is written where there is none.
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
    /// Whether a rule alerted on it.
    pub alerted: bool,
    /// `drop`, `pass` or `accept`, where that was decided for the flow.
    pub action: Option<&'a str>,
    /// Whether emergency mode was on.
    pub emergency: bool,
    /// `local` or `capture`, where it was bypassed.
    pub bypass: Option<&'a str>,
    /// Packets and bytes while bypassed in the capture, to the server and to the client.
    pub bypassed: Option<[(u64, u64); 2]>,
    /// Exception policies that took effect, as target and policy.
    pub exception_policies: &'a [(&'a str, &'a str)],
    /// Number of transactions; 0 is not written.
    pub tx_cnt: u64,
    /// Whether it was an elephant flow.
    pub elephant: bool,
    /// Smallest and largest TTL, by direction: for netflow.
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

/// An event of the application layer: `event_type`, header, and what the protocol writes.
#[derive(Clone, Copy)]
pub struct AppEvent<'a> {
    /// Which type.
    pub kind: EventType,
    /// Header.
    pub header: Header<'a>,
    /// Transaction, and whether it was only assumed.
    pub tx_id: Option<(u64, bool)>,
    /// Direction, where the type shows it.
    pub direction: Option<Direction>,
    /// The client behind a proxy: for `http` and `fileinfo`.
    pub xff: Option<Forwarded<'a>>,
    /// How many events an output makes of it, by the output's number: mostly [`ONE_RECORD`].
    pub records: Records<'a>,
    /// The type's own members, by the output's number and that of the event.
    pub fields: RecordFields<'a>,
}

/// One counter.
#[derive(Debug, Clone, Copy)]
pub struct Counter<'a> {
    /// Dotted name: `decoder.event.ipv4.trunc_pkt`. No name may be the beginning of another one up to a dot.
    pub name: &'a str,
    /// Its value.
    pub value: i64,
    /// What it was in the last report.
    pub last: i64,
}

/// What a detection engine has loaded.
#[derive(Debug, Clone, Copy)]
pub struct EngineStats {
    /// Tenant, 0 without tenants.
    pub id: u32,
    /// When the rules were loaded.
    pub last_reload: Time,
    /// Rules in use.
    pub rules_loaded: u64,
    /// Rules with errors.
    pub rules_failed: u64,
    /// Rules left out because of what they require.
    pub rules_skipped: u64,
}

/// A report of all counters.
#[derive(Debug, Clone, Copy)]
pub struct StatsEvent<'a> {
    /// When.
    pub time: Time,
    /// Seconds since the start.
    pub uptime: u64,
    /// Sums over all threads, in the order they are to be shown.
    pub totals: &'a [Counter<'a>],
    /// Counters of each thread, by its name.
    pub threads: &'a [(&'a str, &'a [Counter<'a>])],
    /// Detection engines.
    pub engines: &'a [EngineStats],
    /// Capture file.
    pub pcap_filename: Option<&'a str>,
}
