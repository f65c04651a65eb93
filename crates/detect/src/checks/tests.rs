use std::net::{IpAddr, Ipv6Addr};

use margay_flow::FlowState;
use margay_packet::{DecodeConfig, Decoder, Frame, L3, LinkType, PacketSource, Time};
use margay_rules::ast::{Check, FlowIntCheck, FlowIntValue, Side};

use super::*;
use crate::hostvars::HostKey;

/// Decodes a raw IP packet and calls `f` with the innermost packet.
fn with_packet<R>(bytes: &[u8], f: impl Fn(&Packet<'_>) -> R) -> R {
    let frame =
        Frame { data: bytes, wire_len: bytes.len() as u32, time: Time::new(1000, 0), link: LinkType::RAW, number: 1 };
    let mut out = None;
    Decoder::new(DecodeConfig::default()).decode(&frame, &mut |p: &Packet<'_>| out = Some(f(p)));
    out.expect("one packet")
}

fn ipv4(proto: u8, frag: u16, payload: &[u8]) -> Vec<u8> {
    let mut h = vec![0x45, 0x20, 0, 0, 0x12, 0x34, 0, 0, 61, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    h[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    h[6..8].copy_from_slice(&frag.to_be_bytes());
    let sum = margay_packet::checksum::internet(&h);
    h[10..12].copy_from_slice(&sum.to_be_bytes());
    h.extend_from_slice(payload);
    h
}

fn tcp(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut t = vec![0x30, 0x39, 0, 80, 0, 0, 0, 100, 0, 0, 0, 200, 0x70, flags, 3, 0xe8, 0, 0, 0, 0];
    // MSS 1400, window scale 7, a NOP.
    t.extend_from_slice(&[2, 4, 5, 0x78, 3, 3, 7, 1]);
    t.extend_from_slice(payload);
    ipv4(6, 0x4000, &t)
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut u = vec![0x30, 0x39, 0, 53, 0, 0, 0, 0];
    u[4..6].copy_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    u.extend_from_slice(payload);
    ipv4(17, 0, &u)
}

fn compile(check: &Check, names: &mut Names) -> Result<CompiledCheck, crate::inspect::CompileError> {
    let stream_event = |name: &str| (name == "3whs_ack_in_wrong_dir").then_some(5);
    let reputation_category = |name: &str| (name == "BadHosts").then_some(1);
    CompiledCheck::compile(
        check,
        &mut CheckEnv {
            names,
            stream_event: &stream_event,
            reputation_category: &reputation_category,
            sets: &Default::default(),
            countries: None,
        },
    )
}

fn holds(check: Check, bytes: &[u8]) -> bool {
    let c = compile(&check, &mut Names::default()).expect("compiles");
    with_packet(bytes, |p| c.holds(&CheckInput::new(p, None, Direction::ToServer)))
}

fn flow() -> FlowCore {
    let ip = IpAddr::from([10, 0, 0, 1]);
    FlowCore {
        last: Time::new(1000, 0),
        pkts: [10, 3],
        bytes: [1000, 50],
        ..FlowCore::new(1, 6, (ip, 1), (ip, 2), Time::new(990, 900_000))
    }
}

use Compare::{Equal, Greater, GreaterEqual, Less, NotEqual};

#[test]
fn ip_headers() {
    let p = udp(b"abc");
    assert!(holds(Check::Ttl(Equal(61)), &p) && !holds(Check::Ttl(Less(61)), &p));
    assert!(
        holds(Check::Tos { value: 0x20, negated: false }, &p) && !holds(Check::Tos { value: 0x20, negated: true }, &p)
    );
    assert!(holds(Check::IpId(0x1234), &p) && !holds(Check::IpId(1), &p));
    assert!(holds(Check::IpProto(Equal(17)), &p) && !holds(Check::IpProto(Equal(6)), &p));
    assert!(!holds(Check::SameIp, &p));
    assert!(holds(Check::L3Proto(4), &p) && !holds(Check::L3Proto(6), &p));
    assert!(!holds(Check::IpOption(IpOption::Any), &p));
    assert!(holds(Check::Dsize(Equal(3)), &p));
    assert!(holds(Check::FragOffset(Equal(0)), &p));
    let fragment = ipv4(17, 0x2003, &[0; 16]);
    assert!(holds(Check::FragOffset(Equal(3)), &fragment));
    assert!(holds(Check::FragBits { bits: 0x2000, mode: FlagMode::Exact }, &fragment));
}

/// Suricata's results for fragbits: M 0x2000, D 0x4000, R 0x8000.
#[test]
fn flag_modes() {
    let which = |bits: u16, mode| -> Vec<u16> {
        let all = [0u16, 0x4000, 0x2000, 0x8000, 0x6000, 0xc000];
        all.into_iter().filter(|&have| header::fragment_bits(have, bits, mode)).collect()
    };
    assert_eq!(which(0x4000, FlagMode::Exact), [0x4000]);
    assert_eq!(which(0x4000, FlagMode::Not), [0, 0x2000, 0x8000]);
    assert_eq!(which(0x6000, FlagMode::Not), [0, 0x4000, 0x2000, 0x8000, 0xc000]);
    assert_eq!(which(0x4000, FlagMode::All), [0x6000, 0xc000]);
    assert_eq!(which(0x6000, FlagMode::Any), [0x4000, 0x2000, 0x6000, 0xc000]);
    assert_eq!(which(0xc000, FlagMode::Not), [0, 0x4000, 0x2000, 0x8000, 0x6000]);
}

#[test]
fn tcp_headers() {
    let p = tcp(0x02, b"");
    let flags = |bits, ignore, mode| Check::TcpFlags { bits, ignore, mode };
    assert!(holds(flags(0x02, 0, FlagMode::Exact), &p));
    assert!(!holds(flags(0x12, 0, FlagMode::Exact), &p));
    assert!(!holds(flags(0x02, 0, FlagMode::Exact), &tcp(0xc2, b"")));
    assert!(holds(flags(0x02, 0xc0, FlagMode::Exact), &tcp(0xc2, b"")));
    let data = tcp(0x18, b"a");
    // With no flags named, all flags count in every mode.
    for mode in [FlagMode::Exact, FlagMode::All, FlagMode::Any] {
        assert!(holds(flags(0, 0x18, mode), &tcp(0, b"")) && !holds(flags(0, 0x18, mode), &data));
    }
    assert!(!holds(flags(0, 0, FlagMode::Not), &tcp(0, b"")) && holds(flags(0, 0x18, FlagMode::Not), &data));
    // A rule that names SYN, FIN or RST needs a packet with one of them. One that names URG, ECE or CWR needs a packet
    // with one of these.
    assert!(!holds(flags(0x02, 0, FlagMode::Not), &data) && holds(flags(0x02, 0, FlagMode::Not), &tcp(0x11, b"")));
    assert!(holds(flags(0x12, 0, FlagMode::Any), &tcp(0x11, b"")) && !holds(flags(0x11, 0, FlagMode::Any), &p));
    assert!(!holds(flags(0x12, 0, FlagMode::Any), &data));
    assert!(holds(flags(0x11, 0, FlagMode::Any), &tcp(0x12, b"")) && !holds(flags(0x11, 0, FlagMode::Any), &data));
    assert!(!holds(flags(0x20, 0, FlagMode::Not), &data) && holds(flags(0x20, 0, FlagMode::Not), &tcp(0x82, b"")));
    assert!(holds(flags(0x10, 0, FlagMode::Not), &p) && holds(flags(0x18, 0, FlagMode::Any), &data));
    assert!(holds(flags(0x12, 0, FlagMode::Any), &p) && !holds(flags(0x12, 0, FlagMode::All), &p));
    assert!(holds(Check::TcpSeq(Equal(100)), &p) && holds(Check::TcpAck(Equal(200)), &p));
    assert!(holds(Check::TcpWindow { value: Equal(1000) }, &p));
    assert!(holds(Check::TcpMss(Equal(1400)), &p) && holds(Check::TcpWscale(Equal(7)), &p));
    assert!(!holds(Check::TcpSeq(GreaterEqual(0)), &udp(b"")));
}

#[test]
fn icmp_and_igmp() {
    let echo = ipv4(1, 0, &[8, 0, 0, 0, 0, 7, 0, 9, 1, 2]);
    assert!(holds(Check::IcmpType(Equal(8)), &echo) && holds(Check::IcmpCode(Equal(0)), &echo));
    assert!(holds(Check::IcmpId(7), &echo) && holds(Check::IcmpSeq(9), &echo));
    let unreachable = ipv4(1, 0, &[3, 1, 0, 0, 0, 7, 0, 9]);
    assert!(!holds(Check::IcmpId(7), &unreachable) && holds(Check::IcmpType(Equal(3)), &unreachable));
    assert!(!holds(Check::IcmpType(Equal(0)), &udp(b"")));
    let igmp = ipv4(2, 0, &[0x16, 0, 0, 0, 224, 0, 0, 1]);
    assert!(holds(Check::IgmpType(Equal(0x16)), &igmp) && !holds(Check::IgmpType(Equal(0x16)), &echo));
    let mut six = vec![0x60, 0, 0, 0, 0, 8, 58, 64];
    six.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
    six.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
    six.extend_from_slice(&[2, 0, 0, 0, 0, 0, 5, 0]);
    assert!(holds(Check::Icmpv6Mtu(Equal(1280)), &six) && holds(Check::Ttl(Equal(64)), &six));
    assert!(holds(Check::SameIp, &six) && holds(Check::L3Proto(6), &six));
}

#[test]
fn checksums() {
    let good = ipv4(1, 0, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    let c = |layer, valid| Check::Checksum { layer, valid };
    assert!(holds(c(ChecksumLayer::Ipv4, true), &good) && holds(c(ChecksumLayer::Icmpv4, true), &good));
    let mut bad = good.clone();
    bad[10] ^= 1;
    bad[22] ^= 1;
    assert!(holds(c(ChecksumLayer::Ipv4, false), &bad) && holds(c(ChecksumLayer::Icmpv4, false), &bad));
    assert!(!holds(c(ChecksumLayer::TcpV4, false), &bad) && !holds(c(ChecksumLayer::Icmpv6, false), &bad));
    assert!(holds(c(ChecksumLayer::TcpV4, false), &tcp(2, b"")));
}

/// `dsize:!N` asks for data: in the packet, or due in the stream.
#[test]
fn a_negated_size_asks_for_data() {
    let c = compile(&Check::Dsize(NotEqual(2)), &mut Names::default()).expect("compiles");
    for (payload, stream_due, want) in
        [(&b"abc"[..], false, true), (b"ab", true, false), (b"", false, false), (b"", true, true)]
    {
        with_packet(&tcp(0x11, payload), |p| {
            let input = CheckInput { stream_due, ..CheckInput::new(p, None, Direction::ToServer) };
            assert_eq!(c.holds(&input), want, "{payload:?} {stream_due}");
            let encrypted = CheckInput { no_payload: true, ..input };
            assert_eq!(c.holds(&encrypted), want && stream_due, "{payload:?} {stream_due}");
        });
    }
}

#[test]
fn flows() {
    let check = |f: FlowCheck, input: &CheckInput<'_>| {
        compile(&Check::Flow(f), &mut Names::default()).expect("compiles").holds(input)
    };
    let any = FlowCheck::default();
    let to_server = FlowCheck { side: Some(Side::ToServer), ..any };
    let established = FlowCheck { established: true, ..any };
    let not = FlowCheck { not_established: true, ..any };
    with_packet(&udp(b"x"), |p| {
        let none = CheckInput::new(p, None, Direction::ToServer);
        // As observed: a packet without a flow counts as sent to the server and has no other flow property.
        assert!(check(to_server, &none) && !check(FlowCheck { side: Some(Side::ToClient), ..any }, &none));
        assert!(!check(FlowCheck { stateless: true, ..any }, &none) && !check(not, &none));
        assert!(!check(established, &none));
        let mut f = flow();
        assert!(!check(established, &CheckInput::new(p, Some(&f), Direction::ToServer)));
        f.state = FlowState::Established;
        let i = CheckInput::new(p, Some(&f), Direction::ToClient);
        assert!(check(established, &i) && !check(not, &i) && !check(to_server, &i));
        assert!(check(FlowCheck { stream: Some(false), ..any }, &i));
        assert!(!check(FlowCheck { stream: Some(true), ..any }, &i));
        assert!(check(FlowCheck { stream: Some(true), ..any }, &CheckInput { stream_data: true, ..i }));
        assert!(check(FlowCheck { frag: Some(false), ..any }, &i) && !check(FlowCheck { frag: Some(true), ..any }, &i));
        let mut whole = *p;
        whole.source = PacketSource::Defrag;
        assert!(check(FlowCheck { frag: Some(true), ..any }, &CheckInput { packet: &whole, ..i }));
    });
}

#[test]
fn flow_variables_and_counters() {
    let mut names = Names::default();
    let mut f = flow();
    f.vars.set_bit(names.intern("a"));
    f.vars.set_int(names.intern("n"), 5);
    with_packet(&udp(b"x"), |p| {
        let mut names = Names::default();
        names.intern("a");
        names.intern("n");
        let i = CheckInput::new(p, Some(&f), Direction::ToServer);
        let mut yes = |c: Check| compile(&c, &mut names).expect("compiles").holds(&i);
        let bits = |names: &[&str], set| Check::FlowBit { names: names.iter().map(|&s| s.to_owned()).collect(), set };
        assert!(yes(bits(&["a"], true)) && !yes(bits(&["b"], true)) && yes(bits(&["b", "a"], true)));
        assert!(yes(bits(&["b"], false)) && !yes(bits(&["a"], false)));
        let int = |name: &str, op| Check::FlowInt { name: name.into(), op };
        let n = FlowIntValue::Number;
        let v = |s: &str| FlowIntValue::Variable(s.into());
        assert!(yes(int("n", FlowIntCheck::Equal(n(5)))) && yes(int("n", FlowIntCheck::LessEqual(v("n")))));
        assert!(!yes(int("n", FlowIntCheck::Less(n(5)))) && yes(int("n", FlowIntCheck::GreaterEqual(n(5)))));
        assert!(!yes(int("q", FlowIntCheck::NotEqual(n(5)))) && yes(int("n", FlowIntCheck::NotEqual(v("q")))));
        assert!(yes(int("n", FlowIntCheck::Greater(v("q")))) && !yes(int("n", FlowIntCheck::Equal(v("q")))));
        assert!(yes(int("n", FlowIntCheck::IsSet)) && yes(int("q", FlowIntCheck::IsNotSet)));
        assert!(yes(Check::FlowAge(Equal(10))) && !yes(Check::FlowAge(Greater(10))));
        let pkts = |side, v| Check::FlowPkts { side, value: Equal(v) };
        assert!(yes(pkts(FlowSide::ToServer, 10)) && yes(pkts(FlowSide::ToClient, 3)));
        assert!(yes(pkts(FlowSide::Either, 3)) && !yes(pkts(FlowSide::Both, 3)));
        assert!(yes(Check::FlowBytes { side: FlowSide::Both, value: Greater(49) }));
        let none = CheckInput::new(p, None, Direction::ToServer);
        let isnotset = compile(&bits(&["b"], false), &mut names).expect("compiles");
        assert!(!isnotset.holds(&none));
    });
}

/// Every address has the score 0.
struct NoData;

impl Reputation for NoData {
    fn score(&self, _: IpAddr, _: u8) -> Option<u8> {
        Some(0)
    }
}

#[test]
fn hosts_streams_vlans_and_reputation() {
    struct Rep;
    impl Reputation for Rep {
        fn score(&self, address: IpAddr, category: u8) -> Option<u8> {
            (category == 1 && address == IpAddr::from([10, 0, 0, 2])).then_some(90)
        }
    }
    with_packet(&udp(b"x"), |p| {
        let mut names = Names::default();
        let mut hosts = HostVars::new(8, 8);
        hosts.set(HostKey::pair(p.dst, p.src), names.intern("x"), p.time, 30);
        let mut tagged = *p;
        tagged.vlans.push(100);
        tagged.vlans.push(200);
        let mut i = CheckInput::new(&tagged, None, Direction::ToServer);
        i.hosts = Some(&hosts);
        i.reputation = Some(&Rep);
        i.stream_sizes = Some(StreamSizes { server: 5000, client: 10 });
        i.stream_events = 1 << 5;
        let mut yes = |c: Check| compile(&c, &mut names).expect("compiles").holds(&i);
        let x = |track, set| Check::XBit { name: "x".into(), track, set, hostbits: false };
        assert!(yes(x(XBitTrack::Pair, true)) && !yes(x(XBitTrack::Source, true)) && yes(x(XBitTrack::Both, false)));
        let rep = |side, op| Check::IpRep { side, category: "BadHosts".into(), op };
        assert!(yes(rep(IpRepSide::Any, IpRepOp::Score(Greater(80)))) && !yes(rep(IpRepSide::Source, IpRepOp::IsSet)));
        assert!(yes(rep(IpRepSide::Destination, IpRepOp::IsSet)) && yes(rep(IpRepSide::Source, IpRepOp::IsNotSet)));
        assert!(!yes(rep(IpRepSide::Both, IpRepOp::IsSet)));
        let size = |side| Check::StreamSize { side, value: Greater(1000) };
        assert!(yes(size(StreamSide::Server)) && !yes(size(StreamSide::Client)));
        assert!(yes(size(StreamSide::Either)) && !yes(size(StreamSide::Both)));
        assert!(yes(Check::StreamEvent("3whs_ack_in_wrong_dir".into())));
        let vlan = |v, layer| Check::VlanId { value: Equal(v), layer };
        assert!(yes(vlan(100, VlanLayer::Index(0))) && yes(vlan(200, VlanLayer::Index(-1))));
        assert!(
            yes(vlan(200, VlanLayer::Any)) && !yes(vlan(200, VlanLayer::All)) && !yes(vlan(100, VlanLayer::Index(2)))
        );
        assert!(!yes(vlan(100, VlanLayer::Index(-3))) && yes(Check::VlanLayers(Equal(2))));
        i.reputation = Some(&NoData);
        let mut yes = |c: Check| compile(&c, &mut names).expect("compiles").holds(&i);
        assert!(
            yes(rep(IpRepSide::Source, IpRepOp::IsNotSet)) && yes(rep(IpRepSide::Source, IpRepOp::Score(Equal(0))))
        );
    });
}

#[test]
fn application_protocols() {
    let f = flow();
    with_packet(&udp(b"x"), |p| {
        let mut i = CheckInput::new(p, Some(&f), Direction::ToServer);
        let yes = |name: &str, negated, mode, i: &CheckInput<'_>| {
            let c = Check::AppProto { name: name.into(), negated, mode };
            compile(&c, &mut Names::default()).expect("compiles").holds(i)
        };
        use AppProtoMode::{Direction as Dir, Either, Final, ToClient};
        assert!(yes("unknown", false, Final, &i));
        let ping = FlowCore { proto: 1, ..flow() };
        assert!(!yes(
            "unknown",
            false,
            Final,
            &CheckInput { flow: Some(&ping), ..CheckInput::new(p, None, Direction::ToServer) }
        ));
        // While the protocol is undecided, nothing matches.
        for mode in [Dir, Either, Final] {
            assert!(!yes("tls", false, mode, &i) && !yes("tls", true, mode, &i));
        }
        i.app.side = [AppProto::Tls, AppProto::Unknown];
        assert!(yes("tls", false, Dir, &i) && !yes("tls", true, Dir, &i) && yes("http", true, Dir, &i));
        assert!(
            yes("http", true, Either, &i)
                && !yes("tls", true, Either, &i)
                && yes("tls", false, Either, &i)
                && !yes("tls", true, ToClient, &i)
        );
        i.app.side[1] = AppProto::Failed;
        assert!(yes("failed", false, ToClient, &i) && yes("http", true, Either, &i));
        i.app.flow = AppProto::Http1;
        assert!(yes("http", false, Final, &i) && !yes("http", true, Final, &i));
    });
}

#[test]
fn events_and_rpc() {
    with_packet(&udp(b"x"), |p| {
        let mut broken = *p;
        broken.events.push(DecodeEvent::UdpLenInvalid);
        let c = compile(&Check::DecodeEvent("udp.len_invalid".into()), &mut Names::default()).expect("compiles");
        assert!(c.holds(&CheckInput::new(&broken, None, Direction::ToServer)));
        assert!(!c.holds(&CheckInput::new(p, None, Direction::ToServer)));
        assert!(matches!(p.l3, L3::Ipv4 { .. }));
    });
    let mut call = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa0, 0, 0, 0, 2, 0, 0, 0, 3];
    let rpc = |version, procedure| Check::Rpc { program: 100_000, version, procedure };
    assert!(holds(rpc(None, None), &udp(&call)) && holds(rpc(Some(2), Some(3)), &udp(&call)));
    assert!(!holds(rpc(Some(3), None), &udp(&call)) && !holds(rpc(None, None), &udp(&call[..23])));
    call[7] = 1;
    assert!(!holds(rpc(None, None), &udp(&call)), "a reply");
}

#[test]
fn what_does_not_compile_says_why() {
    let why = |c: Check| compile(&c, &mut Names::default()).expect_err("refused").to_string();
    assert!(why(Check::DecodeEvent("nope".into())).contains("nope"));
    assert!(why(Check::StreamEvent("nope".into())).contains("nope"));
    assert!(
        why(Check::IpRep { side: IpRepSide::Any, category: "C".into(), op: IpRepOp::IsSet }).contains("categories")
    );
}

#[test]
fn cheap_checks_rank_first() {
    let cost = |c: Check| compile(&c, &mut Names::default()).expect("compiles").cost();
    let flow = cost(Check::Flow(FlowCheck::default()));
    let bit = cost(Check::FlowBit { names: vec!["a".into()], set: true });
    let sum = cost(Check::Checksum { layer: ChecksumLayer::Ipv4, valid: true });
    assert!(flow < bit && bit < sum);
}
