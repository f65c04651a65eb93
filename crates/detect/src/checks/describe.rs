//! Describes packet and flow checks: the condition and the actual value.

use margay_app::AppProto;
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::PacketSource;
use margay_rules::ast::{
    AppProtoMode, Check, ChecksumLayer, Compare, FlagMode, FlowCheck, FlowSide, IpRepOp, Rule, Side, StreamSide,
    VlanLayer, XBitTrack,
};

use super::{CheckInput, CompiledCheck, IntOp, IntValue, Kind, Names, ProtoSet, header};
use crate::describe::{compare, literal};
use crate::hostvars::HostKey;

fn list(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut out = String::new();
    for w in words {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(w.as_ref());
    }
    out
}

/// TCP flags as rules write them, lowest bit first.
pub(crate) fn tcp_flags(bits: u8) -> String {
    let text: String = (0..8).zip("FSRPAUEC".chars()).filter(|(n, _)| bits >> n & 1 == 1).map(|x| x.1).collect();
    if text.is_empty() { "0".into() } else { text }
}

const fn mode(m: FlagMode) -> &'static str {
    match m {
        FlagMode::Exact => "",
        FlagMode::All => "+",
        FlagMode::Any => "*",
        FlagMode::Not => "!",
    }
}

const fn by_side(side: FlowSide) -> &'static str {
    match side {
        FlowSide::ToServer => "toserver",
        FlowSide::ToClient => "toclient",
        FlowSide::Both => "both",
        FlowSide::Either => "either",
    }
}

const fn track(t: XBitTrack) -> &'static str {
    match t {
        XBitTrack::Source => "ip_src",
        XBitTrack::Destination => "ip_dst",
        XBitTrack::Pair => "ip_pair",
        XBitTrack::Both => "both",
        XBitTrack::Transaction => "tx",
    }
}

fn int_text(v: IntValue, names: &Names) -> String {
    match v {
        IntValue::Number(n) => n.to_string(),
        IntValue::Variable(v) => names.name(v).unwrap_or("?").to_owned(),
    }
}

/// Formats a value, or says that the packet has none.
fn number(v: Option<impl std::fmt::Display>) -> String {
    v.map_or("the packet has none".to_owned(), |v| format!("it is {v}"))
}

fn protocol(p: AppProto) -> &'static str {
    match p {
        AppProto::Unknown => "not known yet",
        AppProto::Failed => "failed (not recognised)",
        p => p.rule_name(),
    }
}

impl CompiledCheck {
    /// The condition as the rule writes it, and the actual value. `rule` is the check's rule.
    // It stays whole: a flat match over the checks.
    pub(crate) fn told(&self, input: &CheckInput<'_>, rule: &Rule, names: &Names) -> (String, String) {
        let p = input.packet;
        let words = Words { input, rule, names };
        let flow = |f: &dyn Fn(&FlowCore) -> String| words.flow(f);
        match &self.0 {
            Kind::Flow(f) => words.flow_option(f),
            Kind::FlowBits { names, set } => words.flow_bits(names, *set),
            Kind::FlowIntSet { name, set } => words.flow_int_set(*name, *set),
            Kind::FlowInt { name, op, value } => words.flow_int(*name, *op, *value),
            Kind::Variable { of_flow, name, value, negated } => words.variable(*of_flow, *name, value, *negated),
            Kind::XBit { name, track, set } => words.xbit(*name, *track, *set),
            Kind::Ttl(c) => (format!("ttl:{}", compare(c)), number(header::ttl(p))),
            Kind::Tos { value, negated } => {
                let asked = format!("tos:{}{value}", if *negated { "!" } else { "" });
                (asked, number(header::ipv4(p).map(|h| h[1])))
            }
            Kind::IpId(id) => (format!("id:{id}"), number(header::ipv4(p).and_then(|h| header::u16_at(h, 4)))),
            Kind::IpProto(c) => (format!("ip_proto:{}", compare(c)), number(p.is_ip().then_some(p.proto))),
            Kind::SameIp => ("sameip".into(), format!("{} and {}", p.src, p.dst)),
            Kind::L3Proto(v) => (format!("l3_proto:ipv{v}"), number(header::version(p))),
            Kind::IpOption(_) => ("ipopts".into(), "the packet's options decide".into()),
            Kind::FragBits { bits, mode: m } => {
                let asked = format!("fragbits:{}{:#06x}", mode(*m), bits);
                (asked, number(header::frag_word(p).map(|w| format!("{:#06x}", w & 0xe000))))
            }
            Kind::FragOffset(c) => (format!("fragoffset:{}", compare(c)), number(header::frag_offset(p))),
            Kind::TcpFlags { bits, ignore, mode: m } => {
                let ignored = if *ignore == 0 { String::new() } else { format!(",{}", tcp_flags(*ignore)) };
                let asked = format!("flags:{}{}{ignored}", mode(*m), tcp_flags(*bits));
                (asked, number(p.tcp().map(|t| tcp_flags(t.flags()))))
            }
            Kind::TcpSeq(c) => (format!("tcp.seq:{}", compare(c)), number(p.tcp().map(|t| t.seq()))),
            Kind::TcpAck(c) => (format!("tcp.ack:{}", compare(c)), number(p.tcp().map(|t| t.ack()))),
            Kind::TcpWindow(c) => (format!("tcp.window:{}", compare(c)), number(p.tcp().map(|t| t.window()))),
            Kind::TcpMss(c) => (format!("tcp.mss:{}", compare(c)), number(p.tcp_options.mss)),
            Kind::TcpWscale(c) => (format!("tcp.wscale:{}", compare(c)), number(p.tcp_options.window_scale)),
            Kind::IcmpType(c) => (format!("itype:{}", compare(c)), number(header::is_icmp(p).then_some(p.icmp.0))),
            Kind::IcmpCode(c) => (format!("icode:{}", compare(c)), number(header::is_icmp(p).then_some(p.icmp.1))),
            Kind::IcmpId(v) => (format!("icmp_id:{v}"), number(header::icmp_id_seq(p).map(|x| x.0))),
            Kind::IcmpSeq(v) => (format!("icmp_seq:{v}"), number(header::icmp_id_seq(p).map(|x| x.1))),
            Kind::Icmpv6Mtu(c) => (format!("icmpv6.mtu:{}", compare(c)), number(header::icmpv6_mtu(p))),
            Kind::IgmpType(c) => (format!("igmp.type:{}", compare(c)), number(header::igmp_type(p))),
            Kind::Dsize(c) => {
                let len = crate::header::payload_of(p).len();
                let found = match header::is_pseudo(p) {
                    true => "this is a pseudo packet without a size".into(),
                    false => format!("the payload has {len} bytes"),
                };
                (format!("dsize:{}", compare(c)), found)
            }
            Kind::Checksum { layer, valid } => words.checksum(*layer, *valid),
            Kind::StreamSize { side, value } => words.stream_size(*side, value),
            Kind::AppProto { protos, negated, mode } => words.app_proto(*protos, *negated, *mode),
            Kind::DecodeEvent(e) => {
                let found = list(p.events.as_slice().iter().map(|e| e.name()));
                let found =
                    if found.is_empty() { "the packet has none".into() } else { format!("the packet has {found}") };
                (format!("decode-event:{}", e.name()), found)
            }
            Kind::StreamEvent(bit) => words.stream_event(*bit),
            Kind::AppLayerEvent(_) => words.app_event(),
            Kind::FlowStart => {
                let found = if input.flow_start { "it is" } else { "it is a later one" };
                ("hook flow_start: the first packet of its direction".into(), found.into())
            }
            Kind::FlowAge(c) => {
                let age = |f: &FlowCore| f.last.secs().saturating_sub(f.start.secs()).max(0);
                (format!("flow.age:{}", compare(c)), flow(&|f| format!("it is {} s", age(f))))
            }
            Kind::FlowPkts { side, value } => {
                let found = flow(&|f| format!("{} to the server, {} to the client", f.pkts[0], f.pkts[1]));
                (format!("flow.pkts:{},{}", by_side(*side), compare(value)), found)
            }
            Kind::FlowBytes { side, value } => {
                let found = flow(&|f| format!("{} to the server, {} to the client", f.bytes[0], f.bytes[1]));
                (format!("flow.bytes:{},{}", by_side(*side), compare(value)), found)
            }
            Kind::FlowElephant(side) => words.elephant(*side),
            Kind::VlanId { value, layer } => {
                let layer = match layer {
                    VlanLayer::Any => "any".into(),
                    VlanLayer::All => "all".into(),
                    VlanLayer::Index(n) => n.to_string(),
                };
                (format!("vlan.id:{},{layer}", compare(value)), format!("the packet has {:?}", p.vlans.as_slice()))
            }
            Kind::VlanLayers(c) => (format!("vlan.layers:{}", compare(c)), number(Some(p.vlans.as_slice().len()))),
            Kind::IpRep { category, op, .. } => words.reputation(*category, op),
            Kind::GeoIp(_) => words.country(),
            Kind::Rpc { program, version, procedure } => {
                let part = |v: &Option<u32>| v.map_or("*".to_owned(), |v| v.to_string());
                (format!("rpc:{program},{},{}", part(version), part(procedure)), "the payload's header decides".into())
            }
        }
    }
}

/// The data for describing a check.
struct Words<'a> {
    input: &'a CheckInput<'a>,
    rule: &'a Rule,
    names: &'a Names,
}

/// Checks that take more than a line, each with its condition and the actual value.
impl Words<'_> {
    fn name(&self, n: u32) -> &str {
        self.names.name(n).unwrap_or("?")
    }

    /// Describes the flow, if there is one.
    fn flow(&self, f: &dyn Fn(&FlowCore) -> String) -> String {
        self.input.flow.map_or_else(|| "the packet has no flow".to_owned(), f)
    }

    /// Names from the rule: the compiled form has only numbers.
    fn named(&self, of: &dyn Fn(&Check) -> Option<String>) -> String {
        list(self.rule.checks.iter().filter_map(of))
    }

    /// `flow`
    fn flow_option(&self, f: &FlowCheck) -> (String, String) {
        let mut asked: Vec<&str> = Vec::new();
        asked.extend(f.established.then_some("established"));
        asked.extend(f.not_established.then_some("not_established"));
        asked.extend(f.stateless.then_some("stateless"));
        asked.extend(f.side.map(|s| if s == Side::ToServer { "to_server" } else { "to_client" }));
        asked.extend(f.stream.map(|s| if s { "only_stream" } else { "no_stream" }));
        asked.extend(f.frag.map(|s| if s { "only_frag" } else { "no_frag" }));
        let found = self.flow(&|core| {
            let state = match (self.input.established, core.state) {
                (true, _) => "established",
                (false, FlowState::Closed) => "closed, and not established",
                (false, _) => "not established",
            };
            let way = if self.input.direction == Direction::ToServer { "server" } else { "client" };
            let mut found = format!("the flow is {state}, the packet goes to the {way}");
            if f.stream.is_some() {
                found += if self.input.stream_data { "; there is stream data" } else { "; it is no stream data" };
            }
            if f.frag.is_some() && self.input.packet.source == PacketSource::Defrag {
                found += "; it was put together from fragments";
            }
            found
        });
        (format!("flow:{}", list(asked)), found)
    }

    /// `flowbits`
    fn flow_bits(&self, bits: &[u32], set: bool) -> (String, String) {
        let command = if set { "isset" } else { "isnotset" };
        let asked: Vec<&str> = bits.iter().map(|&n| self.name(n)).collect();
        let found = self.flow(&|f| {
            let have: Vec<&str> = f.vars.bits().iter().take(16).map(|&n| self.name(n)).collect();
            match have.is_empty() {
                true => "the flow has no bits set".into(),
                false => format!("the flow has {}", have.join(", ")),
            }
        });
        (format!("flowbits:{command},{}", asked.join("|")), found)
    }

    /// `flowint:NAME,isset`
    fn flow_int_set(&self, n: u32, set: bool) -> (String, String) {
        let asked = format!("flowint:{},{}", self.name(n), if set { "isset" } else { "isnotset" });
        (asked, self.flow(&|f| f.vars.int(n).map_or("it is not set".into(), |v| format!("it is {v}"))))
    }

    /// `flowint` with a comparison
    fn flow_int(&self, n: u32, op: IntOp, value: IntValue) -> (String, String) {
        let op = match op {
            IntOp::Less => "<",
            IntOp::LessEqual => "<=",
            IntOp::Equal => "==",
            IntOp::NotEqual => "!=",
            IntOp::GreaterEqual => ">=",
            IntOp::Greater => ">",
        };
        let asked = format!("flowint:{},{op},{}", self.name(n), int_text(value, self.names));
        (asked, self.flow(&|f| f.vars.int(n).map_or("it is not set".into(), |v| format!("it is {v}"))))
    }

    /// `flowvar`, `pktvar`
    fn variable(&self, of_flow: bool, n: u32, value: &[u8], negated: bool) -> (String, String) {
        let keyword = if of_flow { "flowvar" } else { "pktvar" };
        let vars = if of_flow { self.input.flow.map(|f| f.vars.captured()) } else { self.input.packet_vars };
        let found = vars.and_then(|v| v.get(n));
        let asked = format!("{keyword}:{}{},\"{}\"", if negated { "!" } else { "" }, self.name(n), literal(value));
        (asked, found.map_or("it is not set".into(), |v| format!("it is \"{}\"", literal(v))))
    }

    /// `xbits`
    fn xbit(&self, n: u32, t: XBitTrack, set: bool) -> (String, String) {
        let asked = format!("xbits:{},{},track {}", if set { "isset" } else { "isnotset" }, self.name(n), track(t));
        let is = |k| self.input.hosts.is_some_and(|h| h.is_set(k, n, self.input.packet.time));
        let p = self.input.packet;
        let is_set = match t {
            XBitTrack::Source => is(HostKey::Host(p.src)),
            XBitTrack::Destination => is(HostKey::Host(p.dst)),
            XBitTrack::Pair => is(HostKey::pair(p.src, p.dst)),
            XBitTrack::Both => is(HostKey::Host(p.src)) && is(HostKey::Host(p.dst)),
            XBitTrack::Transaction => false,
        };
        (asked, if is_set { "it is set".into() } else { "it is not set".into() })
    }

    /// `ipv4-csum` and the like
    fn checksum(&self, layer: ChecksumLayer, valid: bool) -> (String, String) {
        let layer_name = match layer {
            ChecksumLayer::Ipv4 => "ipv4",
            ChecksumLayer::TcpV4 => "tcpv4",
            ChecksumLayer::TcpV6 => "tcpv6",
            ChecksumLayer::UdpV4 => "udpv4",
            ChecksumLayer::UdpV6 => "udpv6",
            ChecksumLayer::Icmpv4 => "icmpv4",
            ChecksumLayer::Icmpv6 => "icmpv6",
        };
        let asked = format!("{layer_name}-csum:{}", if valid { "valid" } else { "invalid" });
        let found = match header::checksum(self.input.packet, layer) {
            None => "the packet has none",
            Some(true) => "it is valid",
            Some(false) => "it is invalid",
        };
        (asked, found.into())
    }

    /// `stream_size`
    fn stream_size(&self, side: StreamSide, value: &Compare) -> (String, String) {
        let side = match side {
            StreamSide::Server => "server",
            StreamSide::Client => "client",
            StreamSide::Both => "both",
            StreamSide::Either => "either",
        };
        let found = self.input.stream_sizes.map_or("there is no TCP session".into(), |s| {
            format!("the client sent {}, the server {}", s.client, s.server)
        });
        (format!("stream_size:{side},{}", compare(value)), found)
    }

    /// `app-layer-protocol`
    fn app_proto(&self, protos: ProtoSet, negated: bool, mode: AppProtoMode) -> (String, String) {
        let asked = list(AppProto::all().filter(|p| protos.has(*p)).map(AppProto::rule_name));
        let mode = match mode {
            AppProtoMode::Direction => "",
            AppProtoMode::Final => ",final",
            AppProtoMode::Either => ",either",
            AppProtoMode::ToServer => ",toserver",
            AppProtoMode::ToClient => ",toclient",
            AppProtoMode::Original => ",original",
        };
        let [server, client] = self.input.app.side.map(protocol);
        let whole = protocol(self.input.app.flow);
        let found = self.flow(&|_| format!("of the flow {whole}, to the server {server}, to the client {client}"));
        (format!("app-layer-protocol:{}{asked}{mode}", if negated { "!" } else { "" }), found)
    }

    /// `stream-event`
    fn stream_event(&self, bit: u128) -> (String, String) {
        let asked = self.named(&|c| if let Check::StreamEvent(n) = c { Some(n.clone()) } else { None });
        let found = match (self.input.stream_events, self.input.stream_events & bit) {
            (0, _) => "the packet has no stream events",
            (_, 0) => "the packet has others",
            _ => "the packet has it",
        };
        (format!("stream-event:{asked}"), found.into())
    }

    /// `app-layer-event`
    fn app_event(&self) -> (String, String) {
        let asked = self.named(&|c| if let Check::AppEvent(n) = c { Some(n.clone()) } else { None });
        let found = if self.input.app_events == 0 { "no such event came with the packet" } else { "events came" };
        (format!("app-layer-event:{asked}"), found.into())
    }

    /// `flow.elephant`
    fn elephant(&self, side: FlowSide) -> (String, String) {
        let is = |yes: bool| if yes { "is one" } else { "is none" };
        let found =
            self.flow(&|f| format!("to the server it {}, to the client it {}", is(f.elephant[0]), is(f.elephant[1])));
        (format!("flow.elephant:{}", by_side(side)), found)
    }

    /// `iprep`
    fn reputation(&self, category: u8, op: &IpRepOp) -> (String, String) {
        let asked = self.named(&|c| if let Check::IpRep { category, .. } = c { Some(category.clone()) } else { None });
        let op = match op {
            IpRepOp::Score(c) => compare(c),
            IpRepOp::IsSet => "isset".into(),
            IpRepOp::IsNotSet => "isnotset".into(),
        };
        let score = |a| self.input.reputation.and_then(|r| r.score(a, category));
        let text = |a| score(a).map_or("none".to_owned(), |s| s.to_string());
        (
            format!("iprep:{asked},{op}"),
            format!(
                "of the source {}, of the destination {}",
                text(self.input.packet.src),
                text(self.input.packet.dst)
            ),
        )
    }

    /// `geoip`
    fn country(&self) -> (String, String) {
        let asked = self.named(&|c| match c {
            Check::GeoIp(g) => {
                let countries = g.countries.iter().map(|c| String::from_utf8_lossy(c).into_owned());
                Some(list(countries))
            }
            _ => None,
        });
        (format!("geoip:{asked}"), format!("the addresses are {} and {}", self.input.packet.src, self.input.packet.dst))
    }
}
