//! Tests of whole detection, with rules built by hand and packets built without the decoder.

mod scope;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use margay_app::AppProto;
use margay_flow::{Direction, FlowAction, FlowCore, FlowState};
use margay_packet::{Frame, L3, L4, LinkType, Packet, PacketSource, Time, tcp};
use margay_rules::ast::*;
use proptest::prelude::*;

use crate::checks::AppProtos;
use crate::inspect::Off;
use crate::mpm::MpmAlgo;
use crate::state::State;
use crate::watch::Watch;
use crate::watch::trace::Tracer;
use crate::{
    Alert, Detect, DetectConfig, DetectState, Environment, Input, RuleKind, StreamChunk, Verdict, VerdictAction,
};

fn everywhere() -> AddressSet {
    AddressSet { any: true, ..Default::default() }
}

pub(crate) fn rule(sid: u32, action: Action, protocol: Protocol) -> Rule {
    Rule {
        action,
        protocol,
        hook: None,
        src: everywhere(),
        sport: PortSet { any: true, ranges: vec![] },
        arrow: Arrow::Forward,
        dst: everywhere(),
        dport: PortSet { any: true, ranges: vec![] },
        sid,
        gid: 1,
        rev: 0,
        msg: String::new(),
        class: None,
        priority: 3,
        target: None,
        noalert: false,
        force_alert: false,
        checks: vec![],
        buffers: vec![],
        effects: vec![],
        thresholds: vec![],
        prefilter: None,
        missing: vec![],
        firewall: false,
        place: Place { file: "test".into(), line: sid, column: 1 },
        text: "".into(),
    }
}

pub(crate) fn content(bytes: &[u8]) -> Content {
    Content { bytes: bytes.to_vec(), ..Default::default() }
}

/// An expression without options, with its captures.
pub(crate) fn pcre(pattern: &str, captures: &[(CaptureKind, &str)]) -> BufferCheck {
    BufferCheck::Pcre(Pcre {
        pattern: pattern.into(),
        negated: false,
        options: String::new(),
        relative: false,
        raw: false,
        override_limits: false,
        captures: captures.iter().map(|(k, n)| (*k, (*n).to_owned())).collect(),
    })
}

pub(crate) fn with_content(mut r: Rule, contents: Vec<Content>) -> Rule {
    r.buffers.push(BufferChecks {
        buffer: "payload".into(),
        app: false,
        transforms: vec![],
        checks: contents.into_iter().map(BufferCheck::Content).collect(),
        absent: None,
        side: None,
    });
    r
}

pub(crate) fn alert(sid: u32, bytes: &[u8]) -> Rule {
    with_content(rule(sid, Action::Alert, Protocol::Tcp), vec![content(bytes)])
}

fn ip(a: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, a))
}

pub(crate) fn flow(sport: u16, dport: u16) -> FlowCore {
    FlowCore { state: FlowState::Established, ..FlowCore::new(1, 6, (ip(1), sport), (ip(2), dport), Time(0)) }
}

/// A TCP header with ACK set, and `payload` behind it.
pub(crate) fn tcp_bytes(payload: &[u8]) -> Vec<u8> {
    let mut b = vec![0u8; 40];
    b[20 + 12] = 0x50;
    b[20 + 13] = tcp::flag::ACK | tcp::flag::PSH;
    b.extend_from_slice(payload);
    b
}

pub(crate) fn packet(bytes: &[u8], dir: Direction, sport: u16, dport: u16) -> Packet<'_> {
    let frame = Frame {
        data: bytes,
        wire_len: bytes.len() as u32,
        time: Time(1_700_000_000_000_000),
        link: LinkType::RAW,
        number: 1,
    };
    let mut p = Packet::new(&frame);
    p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
    p.l4 = L4::Tcp { offset: 20, header_len: 20 };
    p.proto = 6;
    (p.src, p.dst, p.sport, p.dport) = match dir {
        Direction::ToServer => (ip(1), ip(2), sport, dport),
        Direction::ToClient => (ip(2), ip(1), dport, sport),
    };
    p.payload = (40, bytes.len() as u32 - 40);
    p
}

pub(crate) struct Lab<W = Off> {
    pub(crate) detect: Arc<Detect>,
    pub(crate) state: State<W>,
    flow: FlowCore,
    app: AppProto,
    ips: bool,
    /// Number of packets sent.
    sent: u64,
}

impl Lab {
    fn new(rules: Vec<Rule>) -> Lab {
        Lab::with(rules, &DetectConfig::default())
    }

    fn with(rules: Vec<Rule>, config: &DetectConfig) -> Lab {
        Lab::watched(rules, config, |_| Off)
    }
}

impl Lab<Tracer> {
    /// A lab that traces all rules.
    pub(crate) fn explaining(rules: Vec<Rule>, config: &DetectConfig) -> Lab<Tracer> {
        let all: Vec<u32> = (0..rules.len() as u32).collect();
        Lab::watched(rules, config, |d| Tracer::new(d, &all))
    }
}

impl<W: Watch> Lab<W> {
    fn watched(rules: Vec<Rule>, config: &DetectConfig, watch: impl FnOnce(&Arc<Detect>) -> W) -> Lab<W> {
        let (detect, report) = Detect::compile(rules, &Environment::default(), config).unwrap();
        assert_eq!(report.errors, []);
        assert_eq!(report.set_aside, []);
        let detect = Arc::new(detect);
        let state = State::watched(&detect, watch(&detect)).unwrap();
        Lab { detect, state, flow: flow(40000, 80), app: AppProto::Unknown, ips: false, sent: 0 }
    }

    fn ips(mut self) -> Self {
        self.ips = true;
        self
    }

    pub(crate) fn send(
        &mut self,
        payload: &[u8],
        dir: Direction,
        in_stream: bool,
        chunks: &[&[u8]],
    ) -> (Vec<u32>, Verdict) {
        let bytes = tcp_bytes(payload);
        let mut p = packet(&bytes, dir, self.flow.sport, self.flow.dport);
        self.sent += 1;
        p.number = self.sent;
        let chunks: Vec<StreamChunk<'_>> = chunks.iter().map(|data| StreamChunk { data, offset: 0, seen: 0 }).collect();
        let mut input = Input::new(&p);
        input.flow = Some(&mut self.flow);
        input.dir = Some(dir);
        input.established = true;
        input.in_stream = in_stream;
        input.chunks = &chunks;
        input.ips = self.ips;
        input.app = AppProtos { side: [self.app; 2], flow: self.app, original: self.app };
        let v = self.state.inspect(&self.detect, &mut input);
        let rules = self.detect.rules();
        (self.state.alerts().iter().map(|a| rules[a.rule as usize].sid).collect(), v)
    }

    pub(crate) fn payload(&mut self, payload: &[u8]) -> (Vec<u32>, Verdict) {
        self.send(payload, Direction::ToServer, false, &[])
    }
}

fn ip_only(sid: u32, action: Action) -> Rule {
    rule(sid, action, Protocol::Tcp)
}

#[test]
fn workers_share_rules() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Detect>();
    moved::<DetectState>();
}

/// A packet that fits both directions of a `<>` rule matches twice. With equal ends there is only one direction.
#[test]
fn both_ways_are_two_rules() {
    let net = AddressSet { v4: vec![(0x0a00_0001, 0x0a00_0002)], v6: vec![], any: false, negated: false };
    let one = AddressSet { v4: vec![(0x0a00_0001, 0x0a00_0001)], v6: vec![], any: false, negated: false };
    let mut twice = rule(1, Action::Alert, Protocol::Ip);
    (twice.arrow, twice.dst) = (Arrow::Both, net);
    let mut once = rule(2, Action::Alert, Protocol::Ip);
    (once.arrow, once.dst) = (Arrow::Both, one);
    let mut same = rule(3, Action::Alert, Protocol::Ip);
    same.arrow = Arrow::Both;
    let mut lab = Lab::new(vec![twice, once, same]);
    assert_eq!(lab.payload(b"x").0, [1, 1, 2, 3]);
}

/// A fragment has its transport protocol, but neither ports nor payload.
#[test]
fn fragments_have_neither_ports_nor_payload() {
    let size =
        |sid, n| Rule { checks: vec![Check::Dsize(Compare::Equal(n))], ..rule(sid, Action::Alert, Protocol::Tcp) };
    let mut ports = size(3, 0);
    ports.dport = PortSet { ranges: vec![(0, 79), (81, 65535)], any: false };
    let all = vec![size(1, 0), size(2, 3), ports, alert(4, b"abc"), rule(5, Action::Alert, Protocol::Udp)];
    let mut lab = Lab::new(all);
    let bytes = tcp_bytes(b"abc");
    let p = Packet { l4: L4::None, fragment: true, ..packet(&bytes, Direction::ToServer, 0, 0) };
    lab.state.inspect(&lab.detect, &mut Input::new(&p));
    let sids: Vec<u32> = lab.state.alerts().iter().map(|a| lab.detect.rules()[a.rule as usize].sid).collect();
    assert_eq!(sids, [1]);
}

/// The pseudo packet at the end of a flow shows rules the rest of the stream, and no packet data.
#[test]
fn made_up_packets_have_no_headers() {
    let mut flags = rule(1, Action::Alert, Protocol::Tcp);
    flags.checks.push(Check::TcpAck(Compare::Equal(0)));
    // The flow's protocol is known without a packet; whether the packet is established is not.
    let http = || Protocol::App("http".into());
    let mut established = rule(5, Action::Alert, http());
    established.checks.push(Check::Flow(FlowCheck { established: true, ..FlowCheck::default() }));
    // Suricata checks addresses once per flow, except where one of them is negated.
    let mut negated = rule(6, Action::Alert, Protocol::Ip);
    negated.dst = AddressSet { v4: vec![(9, u32::MAX)], v6: vec![], any: false, negated: true };
    let mut of_packet = Rule { sid: 7, ..negated.clone() };
    of_packet.checks.push(Check::Flow(FlowCheck { side: Some(Side::ToServer), ..FlowCheck::default() }));
    let rules = vec![flags, rule(2, Action::Alert, Protocol::Ip), alert(3, b"abc"), rule(4, Action::Alert, http())];
    let mut lab = Lab::new(rules.into_iter().chain([established, negated, of_packet]).collect());
    let bytes = tcp_bytes(b"");
    let chunks = [StreamChunk { data: b"abc", offset: 0, seen: 0 }];
    let all = vec![1, 2, 3, 4, 5, 6, 7];
    for (source, want) in [(PacketSource::StreamFlowTimeout, vec![3, 4, 6]), (PacketSource::Wire, all)] {
        let p = Packet { source, ..packet(&bytes, Direction::ToServer, 40000, 80) };
        let mut input = Input { flow: Some(&mut lab.flow), dir: Some(Direction::ToServer), ..Input::new(&p) };
        let http = AppProto::Http1;
        input.app = AppProtos { side: [http; 2], flow: http, original: http };
        (input.established, input.flow_ends) = (true, true);
        (input.in_stream, input.chunks) = (true, &chunks);
        lab.state.inspect(&lab.detect, &mut input);
        let mut sids: Vec<u32> = lab.state.alerts().iter().map(|a| lab.detect.rules()[a.rule as usize].sid).collect();
        sids.sort_unstable();
        assert_eq!(sids, want, "{source:?}");
    }
}

/// Offsets count from the new part of a chunk; a literal without an offset may straddle the border.
#[test]
fn places_in_a_chunk_are_those_of_its_new_part() {
    let placed = |sid, offset| {
        let mut r = alert(sid, b"new");
        if let Some(BufferCheck::Content(c)) = r.buffers[0].checks.first_mut() {
            (c.offset, c.depth) = (Some(Value::Number(offset)), Some(Value::Number(3)));
        }
        r
    };
    let mut lab = Lab::new(vec![placed(1, 0), placed(2, 3), alert(3, b"ldn"), alert(4, b"old"), alert(5, b"new")]);
    let bytes = tcp_bytes(b"");
    for (offset, want) in [(7, vec![1, 3, 5]), (0, vec![1, 2, 3, 5])] {
        let chunks = [StreamChunk { data: b"oldnew", offset, seen: 3 }];
        let p = packet(&bytes, Direction::ToServer, 40000, 80);
        let mut input = Input { flow: Some(&mut lab.flow), dir: Some(Direction::ToServer), ..Input::new(&p) };
        (input.in_stream, input.chunks) = (true, &chunks);
        lab.state.inspect(&lab.detect, &mut input);
        let mut sids: Vec<u32> = lab.state.alerts().iter().map(|a| lab.detect.rules()[a.rule as usize].sid).collect();
        sids.sort_unstable();
        assert_eq!(sids, want, "at {offset}");
    }
}

#[test]
fn payload_and_stream() {
    let mut packet_rule = alert(3, b"abc");
    packet_rule.protocol = Protocol::TcpPacket;
    let mut stream_rule = alert(4, b"abc");
    stream_rule.protocol = Protocol::TcpStream;
    let mut anchored = alert(2, b"abc");
    if let BufferCheck::Content(c) = &mut anchored.buffers[0].checks[0] {
        c.depth = Some(Value::Number(3));
    }
    let mut only_stream = alert(5, b"abc");
    only_stream.checks.push(Check::Flow(FlowCheck { stream: Some(true), ..FlowCheck::default() }));
    let mut lab = Lab::new(vec![alert(1, b"abc"), anchored, packet_rule, stream_rule, only_stream]);
    let kinds: Vec<_> = (0..4).map(|i| lab.detect.kind(i).unwrap()).collect();
    assert_eq!(kinds, [RuleKind::Stream, RuleKind::PacketStream, RuleKind::Packet, RuleKind::Stream]);
    // A packet outside the stream: a `tcp-stream` rule sees its payload, one with `flow:only_stream` does not.
    assert_eq!(lab.payload(b"abc").0, [1, 2, 3, 4]);
    assert_eq!(lab.send(b"abc", Direction::ToServer, true, &[]).0, [2, 3]);
    assert_eq!(lab.send(b"x", Direction::ToServer, true, &[b"abcd"]).0, [1, 2, 4, 5]);
    assert_eq!(lab.send(b"", Direction::ToServer, true, &[b"zabcd"]).0, [1, 4, 5]);
    assert!(lab.state.alerts().iter().all(|a| a.stream));
}

/// With stream data, a packet without payload is inspected as well: a negated content holds, unless the stream data has
/// it.
#[test]
fn a_packet_without_payload_beside_stream_data() {
    let mut rule = alert(1, b"abc");
    rule.protocol = Protocol::TcpPacket;
    if let BufferCheck::Content(c) = &mut rule.buffers[0].checks[0] {
        c.negated = true;
    }
    // If no rule inspects streams, the stream data has no effect.
    let mut alone = Lab::new(vec![rule.clone()]);
    assert_eq!(alone.send(b"", Direction::ToServer, false, &[b"xyz"]).0, [0u32; 0]);
    let mut lab = Lab::new(vec![rule, alert(2, b"never")]);
    assert_eq!(lab.send(b"", Direction::ToServer, false, &[]).0, [0u32; 0]);
    assert_eq!(lab.send(b"", Direction::ToServer, false, &[b"xyz"]).0, [1]);
    assert_eq!(lab.send(b"", Direction::ToServer, false, &[b"zabcd"]).0, [0u32; 0]);
    // The stream ended before data that was not inspected.
    assert_eq!(lab.send(b"", Direction::ToServer, false, &[b""]).0, [1]);
}

/// A content that is not to be there keeps no packet from being looked at where it has a place.
#[test]
fn a_placed_content_rules_no_packet_out() {
    let not = |sid: u32, contents: &[(&[u8], bool)]| {
        let of = |&(bytes, placed): &(&[u8], bool)| {
            let mut c = content(bytes);
            (c.negated, c.offset) = (true, placed.then_some(Value::Number(1)));
            c
        };
        with_content(rule(sid, Action::Alert, Protocol::Tcp), contents.iter().map(of).collect())
    };
    let rules = [not(1, &[(b"abc", true)]), not(2, &[(b"abc", false)]), not(3, &[(b"abcd", true), (b"abc", false)])];
    let mut lab = Lab::new(rules.into());
    assert_eq!(lab.send(b"", Direction::ToServer, false, &[b"zabcd"]).0, [1, 3]);
}

#[test]
fn ip_only_once_for_each_direction() {
    let mut lab = Lab::new(vec![ip_only(1, Action::Alert)]);
    assert_eq!(lab.payload(b"").0, [1]);
    assert_eq!(lab.payload(b"").0, [0u32; 0]);
    assert_eq!(lab.send(b"", Direction::ToClient, false, &[]).0, [1]);
    assert_eq!(lab.send(b"", Direction::ToClient, false, &[]).0, [0u32; 0]);
    assert!(lab.flow.alerted);
}

#[test]
fn pass_stops_what_comes_after_it() {
    let with = |order: Vec<Action>| DetectConfig { action_order: order, ..Default::default() };
    use Action::{Alert as A, Drop as D, Pass as P, Reject as R};
    let rules = || {
        let c = |r: Rule| with_content(r, vec![content(b"Hi all")]);
        vec![ip_only(1, A), c(rule(2, P, Protocol::Tcp)), ip_only(3, D)]
    };
    let run = |order: Vec<Action>| Lab::with(rules(), &with(order)).ips().payload(b"Hi all");
    let (alerts, v) = run(vec![P, D, R, A]);
    assert_eq!((alerts, v.action), (vec![], VerdictAction::Pass));
    let (alerts, v) = run(vec![D, P, R, A]);
    assert_eq!((alerts, v.action, v.flow), (vec![3], VerdictAction::Drop, FlowAction::Drop));
    let (alerts, v) = run(vec![D, A, R, P]);
    assert_eq!((alerts, v.action), (vec![3, 1], VerdictAction::Drop));
}

#[test]
fn a_passed_or_dropped_flow_is_not_inspected() {
    let mut lab = Lab::new(vec![ip_only(1, Action::Pass), alert(2, b"abc")]).ips();
    assert_eq!(lab.payload(b"abc").0, [0u32; 0]);
    assert_eq!(lab.flow.action, FlowAction::Pass);
    assert_eq!(lab.payload(b"abc").0, [0u32; 0]);
    let mut lab = Lab::new(vec![ip_only(1, Action::Drop), alert(2, b"abc")]).ips();
    assert_eq!(lab.payload(b"abc").0, [1, 2]);
    let (alerts, v) = lab.payload(b"abc");
    assert_eq!((alerts, v.action), (vec![], VerdictAction::Drop));
    assert_eq!(v.drop_reason.map(|r| r.name()), Some("flow drop"));
}

#[test]
fn passive_mode_drops_nothing() {
    let mut lab = Lab::new(vec![ip_only(1, Action::Drop), ip_only(2, Action::Reject)]);
    let (alerts, v) = lab.payload(b"");
    // The flow would be dropped, so none of its later packets is inspected.
    assert_eq!((alerts, v.action, v.flow), (vec![1, 2], VerdictAction::Accept, FlowAction::Drop));
    assert!(v.reject.is_some());
    let blocked: Vec<bool> = lab.state.alerts().iter().map(|a: &Alert| a.blocked).collect();
    assert_eq!(blocked, [false, true]);
    let (alerts, v) = lab.payload(b"");
    assert_eq!((alerts, v.action), (vec![], VerdictAction::Accept));
}

#[test]
fn a_packet_keeps_so_many_alerts() {
    let rules: Vec<Rule> = (1..=20).map(|sid| alert(sid, b"abc")).collect();
    let mut silent: Vec<Rule> =
        (21..=40).map(|sid| Rule { noalert: true, priority: 1, ..alert(sid, b"abc") }).collect();
    silent.extend(rules);
    let mut lab = Lab::with(silent, &DetectConfig { packet_alert_max: 0, ..Default::default() });
    assert_eq!(lab.payload(b"abc").0, (1..=15).collect::<Vec<_>>());
    assert_eq!(lab.state.counters().alert_queue_overflow, 5);
    assert_eq!(lab.state.counters().alert, 15);
    // As in Suricata, a match with `noalert` counts as suppressed.
    assert_eq!(lab.state.counters().alerts_suppressed, 20);
}

/// As in Suricata, the byte order of DCERPC restricts a rule to its flows.
#[test]
fn the_byte_order_of_dcerpc_needs_its_protocol() {
    let number = |endian| {
        let mut r = rule(1, Action::Alert, Protocol::TcpPacket);
        r = with_content(r, vec![content(b"a")]);
        r.buffers[0].checks.push(BufferCheck::ByteTest(ByteTest {
            bytes: Value::Number(2),
            negated: false,
            op: ByteOp::Greater,
            value: Value::Number(1),
            offset: Value::Number(0),
            relative: false,
            format: NumberFormat::Binary(endian),
            bitmask: None,
        }));
        Lab::new(vec![r])
    };
    for (endian, app, want) in [
        (Endian::Big, AppProto::Unknown, true),
        (Endian::Dce, AppProto::Unknown, false),
        (Endian::Dce, AppProto::Http1, false),
        (Endian::Dce, AppProto::Dcerpc, true),
        (Endian::Dce, AppProto::Smb, true),
    ] {
        let mut lab = number(endian);
        lab.app = app;
        assert_eq!(lab.payload(b"abc").0.len(), usize::from(want), "{endian:?} {app:?}");
    }
}

#[test]
fn an_alert_too_many_still_drops() {
    let config =
        DetectConfig { packet_alert_max: 1, action_order: vec![Action::Alert, Action::Drop], ..Default::default() };
    let drop = Rule { action: Action::Drop, ..alert(2, b"abc") };
    let mut lab = Lab::with(vec![alert(1, b"abc"), drop], &config).ips();
    let (alerts, v) = lab.payload(b"abc");
    assert_eq!((alerts, v.action), (vec![1], VerdictAction::Drop));
    assert_eq!(lab.state.counters().alert_queue_overflow, 1);
}

#[test]
fn a_pass_with_alert_is_written_alone() {
    let rules = (1..=5).map(|sid| alert(sid, b"abc"));
    let pass = Rule { action: Action::Pass, force_alert: true, ..alert(6, b"abc") };
    let mut lab = Lab::with(rules.chain([pass]).collect(), &DetectConfig { packet_alert_max: 6, ..Default::default() });
    let (alerts, v) = lab.payload(b"abc");
    assert_eq!((alerts, v.action), (vec![6], VerdictAction::Pass));
    assert_eq!(lab.state.counters().alert_queue_overflow, 0);
}

#[test]
fn flowbits_are_set_before_they_are_asked_for() {
    let bit = |r: Rule, set: bool| match set {
        true => Rule { effects: vec![Effect::FlowBit { names: vec!["a".into()], op: BitOp::Set }], ..r },
        false => Rule { checks: vec![Check::FlowBit { names: vec!["a".into()], set: true }], ..r },
    };
    let mut lab = Lab::new(vec![alert(1, b"x"), bit(alert(2, b"x"), false), bit(alert(3, b"x"), true)]);
    assert_eq!(lab.payload(b"x").0, [3, 2, 1]);
    // A pass stops the alerts of later rules, but not their effects.
    let pass = Rule { action: Action::Pass, protocol: Protocol::TcpPacket, ..alert(4, b"y") };
    let set = Rule { protocol: Protocol::TcpPacket, ..bit(alert(3, b"y"), true) };
    let ask = bit(rule(2, Action::Alert, Protocol::Tcp), false);
    let mut lab = Lab::new(vec![pass, set, ask]);
    assert_eq!(lab.payload(b"y").0, [0u32; 0]);
    assert_eq!(lab.payload(b"z").0, [2]);
}

#[test]
fn rules_that_cannot_load_are_reported() {
    let bad = Rule { missing: vec!["lua".into()], ..alert(1, b"a") };
    let mut app = alert(2, b"a");
    app.buffers[0].app = true;
    app.buffers[0].buffer = "no.buffer".into();
    let (d, report) =
        Detect::compile(vec![bad, app, alert(3, b"a")], &Environment::default(), &DetectConfig::default()).unwrap();
    assert_eq!(report.set_aside.iter().map(|x| x.0.line).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((report.loaded, d.rules().len()), (1, 1));
}

#[test]
fn replacements_are_of_rules_that_match() {
    let with = |sid, bytes: &[u8], r: &[u8], also: &[u8]| {
        let c = Content { replace: Some(r.to_vec()), ..content(bytes) };
        with_content(rule(sid, Action::Alert, Protocol::TcpPacket), vec![c, content(also)])
    };
    let mut lab = Lab::new(vec![with(1, b"bc", b"XY", b"a"), with(2, b"bc", b"no", b"zz")]).ips();
    assert_eq!(lab.payload(b"abcd").0, [1]);
    assert_eq!(lab.state.replacements(), [(1, b"XY".as_slice().into())]);
    lab.payload(b"d");
    assert!(lab.state.replacements().is_empty());
    lab.ips = false;
    assert_eq!(lab.payload(b"abcd").0, [1]);
    assert!(lab.state.replacements().is_empty());
}

#[test]
fn an_action_may_have_a_scope() {
    let scoped = |scope| {
        let mut r = alert(1, b"abc");
        r.action = Action::Drop;
        r.effects = vec![Effect::Action { action: Action::Drop, scope: Some(scope) }];
        r
    };
    let mut lab = Lab::new(vec![scoped(ActionScope::Flow)]).ips();
    assert_eq!(lab.payload(b"abc").1.flow, FlowAction::Drop);
    let mut lab = Lab::new(vec![scoped(ActionScope::Packet)]).ips();
    let v = lab.send(b"", Direction::ToServer, true, &[b"abc"]).1;
    assert_eq!((v.action, v.flow), (VerdictAction::Drop, FlowAction::None));
}

fn any_port() -> impl Strategy<Value = PortSet> {
    prop_oneof![
        3 => Just(PortSet { any: true, ranges: vec![] }),
        3 => prop_oneof![Just(80u16), Just(81), Just(443), Just(40000)].prop_map(|p| PortSet { any: false, ranges: vec![(p, p)] }),
        1 => Just(PortSet { any: false, ranges: vec![(0, 79), (81, 65535)] }),
        1 => Just(PortSet { any: false, ranges: vec![(1, 80), (430, 500)] }),
        1 => Just(PortSet { any: false, ranges: vec![(1024, 65535)] }),
    ]
}

fn any_addresses() -> impl Strategy<Value = AddressSet> {
    let host = |a: u8| u32::from(Ipv4Addr::new(10, 0, 0, a));
    prop_oneof![
        4 => Just(everywhere()),
        1 => Just(AddressSet { v4: vec![(host(1), host(1))], v6: vec![], any: false, negated: false }),
        1 => Just(AddressSet { v4: vec![(host(0), host(255))], v6: vec![], any: false, negated: false }),
        1 => Just(AddressSet { v4: vec![(0, host(1) - 1), (host(2), u32::MAX)], v6: vec![], any: false, negated: false }),
    ]
}

fn any_content() -> impl Strategy<Value = Content> {
    let letters = prop_oneof![Just(b'a'), Just(b'B'), Just(b'b'), Just(b'c')];
    (proptest::collection::vec(letters, 1..4), any::<bool>(), proptest::option::of(0i64..4), prop::bool::weighted(0.2))
        .prop_map(|(bytes, nocase, depth, negated)| Content {
            depth: depth.map(|d| Value::Number(d + bytes.len() as i64)),
            bytes,
            nocase,
            negated,
            ..Default::default()
        })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let protocol = prop_oneof![
        4 => Just(Protocol::Tcp), 1 => Just(Protocol::TcpPacket), 1 => Just(Protocol::TcpStream), 1 => Just(Protocol::Ip),
        1 => Just(Protocol::Udp), 1 => Just(Protocol::App("http".into())), 1 => Just(Protocol::App("tls".into()))
    ];
    let action = prop_oneof![6 => Just(Action::Alert), 1 => Just(Action::Pass), 1 => Just(Action::Drop)];
    let checks = proptest::option::of(prop_oneof![
        any::<bool>().prop_map(|set| Check::FlowBit { names: vec!["a".into()], set }),
        (0u64..8).prop_map(|n| Check::Dsize(Compare::Less(n))),
        any::<bool>().prop_map(|s| Check::Flow(FlowCheck {
            side: Some(if s { Side::ToServer } else { Side::ToClient }),
            ..Default::default()
        })),
        Just(Check::TcpFlags { bits: tcp::flag::SYN, ignore: 0, mode: FlagMode::All }),
    ]);
    (
        (protocol, action, any::<bool>(), 1u32..4),
        (any_addresses(), any_port(), any_addresses(), any_port(), any::<bool>()),
        (checks, proptest::collection::vec(any_content(), 0..3), any::<bool>()),
    )
        .prop_map(
            |((protocol, action, noalert, priority), (src, sport, dst, dport, both), (check, contents, set))| {
                let mut r = rule(0, action, protocol);
                (r.src, r.sport, r.dst, r.dport, r.priority) = (src, sport, dst, dport, priority);
                r.noalert = noalert && set;
                r.arrow = if both { Arrow::Both } else { Arrow::Forward };
                r.checks.extend(check);
                if set {
                    r.effects.push(Effect::FlowBit { names: vec!["a".into()], op: BitOp::Set });
                }
                if contents.is_empty() { r } else { with_content(r, contents) }
            },
        )
}

/// Captures of an expression are stored with the flow or the packet once the whole rule matched. Other rules can then
/// test them.
#[test]
fn captured_variables() {
    let with = |sid, checks: Vec<BufferCheck>| {
        let mut r = alert(sid, b"id=");
        r.buffers[0].checks.extend(checks);
        r
    };
    let check = |sid, kind, value: &[u8], negated| {
        let mut r = rule(sid, Action::Alert, Protocol::Tcp);
        r.checks.push(Check::Variable { kind, name: "id".into(), value: value.to_vec(), negated });
        r
    };
    let (f, p) = (CaptureKind::Flow, CaptureKind::Packet);
    let mut lab = Lab::new(vec![
        with(1, vec![pcre("id=(\\d+)", &[(f, "id")])]),
        with(2, vec![pcre("(id)=(\\d+)", &[(p, "key"), (p, "value")])]),
        with(3, vec![pcre("id=(\\d+)", &[(f, "lost")]), BufferCheck::Content(content(b"never"))]),
        check(4, f, b"23", false),
        check(5, f, b"23", true),
        check(6, p, b"1", false),
    ]);
    assert_eq!(lab.payload(b"id=1234;").0, [1, 4, 2]);
    let [var] = lab.state.packet_vars().list() else { panic!("{:?}", lab.state.packet_vars()) };
    assert_eq!((var.key.as_deref(), &*var.value), (Some(&b"id"[..]), &b"1234"[..]));
    let held: Vec<_> =
        lab.flow.vars.captured().list().iter().map(|v| (lab.detect.names().name(v.name), &*v.value)).collect();
    assert_eq!(held, [(Some("id"), &b"1234"[..])]);
    assert_eq!(lab.payload(b"id=5;").0, [1, 5, 2]);
    assert_eq!(lab.payload(b"none").0, [5]);
    assert!(lab.state.packet_vars().list().is_empty());
    assert_eq!(lab.state.counters().var_memcap, 0);
}

/// Entropy is stored whatever the comparison's result, under the buffer's name in events.
#[test]
fn entropy_is_kept() {
    let mut r = alert(1, b"a");
    r.buffers[0].checks =
        vec![BufferCheck::Entropy { bytes: 0, offset: 0, value: margay_rules::ast::FloatCompare::Greater(7.0) }];
    let mut lab = Lab::new(vec![r]);
    assert_eq!(lab.payload(b"abab").0, [0u32; 0]);
    let held: Vec<_> = lab.flow.vars.floats().iter().map(|&(n, v)| (lab.detect.names().name(n), v)).collect();
    assert_eq!(held, [(Some("content"), 1.0)]);
}

proptest! {
    /// Groups, prefilters and tables never change the alerts.
    #[test]
    fn prefilters_lose_nothing(
        mut rules in proptest::collection::vec(any_rule(), 1..25),
        packets in proptest::collection::vec(
            (proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(b'B'), Just(b'c')], 0..10), any::<bool>(), any::<bool>()), 1..6),
        port in prop_oneof![Just(80u16), Just(81), Just(443), Just(9)],
        ac in any::<bool>(),
        groups in prop_oneof![0usize..4, Just(40)],
        app in prop_oneof![Just(AppProto::Unknown), Just(AppProto::Http1), Just(AppProto::Tls)],
    ) {
        for (sid, r) in (1..).zip(&mut rules) {
            r.sid = sid;
        }
        let algo = if ac { MpmAlgo::AhoCorasick } else { MpmAlgo::Auto };
        let config = DetectConfig { mpm_algo: algo, port_groups: [groups; 2], ..Default::default() };
        let mut fast = Lab::with(rules.clone(), &config).ips();
        let mut told = Lab::explaining(rules.clone(), &config).ips();
        let mut slow = Lab::with(rules, &config).ips();
        slow.state.everything = true;
        fast.flow.dport = port;
        slow.flow.dport = port;
        told.flow.dport = port;
        (fast.app, slow.app, told.app) = (app, app, app);
        let mut sent = 0;
        let mut stream = Vec::new();
        for (payload, to_client, in_stream) in packets {
            let dir = if to_client { Direction::ToClient } else { Direction::ToServer };
            stream.extend_from_slice(&payload);
            let chunks: &[&[u8]] = if in_stream { &[&stream] } else { &[] };
            let a = fast.send(&payload, dir, in_stream, chunks);
            let b = slow.send(&payload, dir, in_stream, chunks);
            // A watched inspection gives the same result, and reports something about every rule with every packet.
            let c = told.send(&payload, dir, in_stream, chunks);
            prop_assert_eq!(&a, &c);
            prop_assert_eq!(a, b);
            prop_assert_eq!(fast.flow.vars.bits(), slow.flow.vars.bits());
            prop_assert_eq!(fast.flow.vars.bits(), told.flow.vars.bits());
            sent += 1;
            for t in told.state.context.watch.traces() {
                let said: u64 = t.matched + t.reasons.iter().map(|r| r.count).sum::<u64>();
                prop_assert!(t.packets == sent && said >= sent, "{:?}", t);
            }
        }
    }
}
