//! Tests of frame rules.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use margay_app::AppProto;
use margay_app::frame::{CHUNK, FrameMarks, STREAM, WHOLE_MAX};
use margay_detect::{Detect, DetectConfig, DetectState, Environment, FrameBytes, FrameInput, Input};
use margay_flow::{Direction, FlowCore, FlowState};
use margay_packet::{Frame, L3, L4, LinkType, Packet, Time};
use margay_rules::{Context, Loader};

const CLIENT: Direction = Direction::ToClient;
const REQUEST: u8 = 0;
const RESPONSE: u8 = 1;

/// A stream; `None` is a missing byte.
#[derive(Default)]
struct Stream(Vec<Option<u8>>);

impl FrameBytes for Stream {
    fn stretches(&self, from: u64, to: u64, each: &mut dyn FnMut(u64, &[u8])) {
        let to = (to as usize).min(self.0.len());
        let mut at = from as usize;
        while at < to {
            let bytes: Vec<u8> = self.0[at..to].iter().map_while(|b| *b).collect();
            if !bytes.is_empty() {
                each(at as u64, &bytes);
            }
            at += bytes.len().max(1);
        }
    }
}

struct Lab {
    detect: Detect,
    state: DetectState,
    marks: FrameMarks,
    stream: Stream,
    flow: FlowCore,
    ips: bool,
}

fn compiled(rules: &str) -> (Detect, Vec<String>) {
    let (detect, errors, aside) = compiled_or_refused(rules);
    assert!(errors.is_empty(), "{errors:?}");
    (detect, aside)
}

/// The reasons for rules that are errors, and those for rules that are set aside.
fn compiled_or_refused(rules: &str) -> (Detect, Vec<String>, Vec<String>) {
    let available =
        ["http", "http1", "dns", "snmp", "dcerpc", "smb", "tls", "frame", "app-layer"].map(str::to_owned).into();
    let context = Context { available, ..Context::default() };
    let mut loader = Loader::new(&context);
    loader.load_str(rules, "test.rules");
    let loaded = loader.finish();
    assert!(loaded.errors.is_empty() && loaded.set_aside.is_empty(), "{:?}", loaded.errors);
    let (detect, report) =
        Detect::compile(loaded.rules, &Environment::default(), &DetectConfig::default()).expect("compiles");
    let aside = report.set_aside.into_iter().map(|(_, why)| why).collect();
    (detect, report.errors.into_iter().map(|(_, why)| why).collect(), aside)
}

impl Lab {
    fn new(rules: &str) -> Lab {
        let (detect, aside) = compiled(rules);
        assert!(aside.is_empty(), "{aside:?}");
        let mut marks = FrameMarks::default();
        marks.inspected = detect.frame_kinds();
        marks.enter(AppProto::Http1);
        assert!(marks.wanted);
        let flow = FlowCore {
            state: FlowState::Established,
            ..FlowCore::new(1, 6, ([10, 0, 0, 1].into(), 40000), ([10, 0, 0, 2].into(), 80), Time(0))
        };
        Lab {
            state: DetectState::new(&detect).expect("scratch"),
            detect,
            marks,
            stream: Stream::default(),
            flow,
            ips: false,
        }
    }

    fn begin(&mut self, kind: u8) -> &mut Self {
        self.marks.begin(CLIENT, kind, self.stream.0.len(), Some(0));
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.stream.0.extend(text.bytes().map(Some));
        self
    }

    fn hole(&mut self, len: usize) -> &mut Self {
        self.stream.0.extend(std::iter::repeat_n(None, len));
        self
    }

    fn end(&mut self) -> &mut Self {
        self.marks.end(CLIENT, self.stream.0.len() as u64);
        self
    }

    /// Numbers of the rules and frames that alert with the next packet.
    fn look(&mut self, end: bool) -> Vec<(u32, u64)> {
        let data = [0u8; 40];
        let frame = Frame { data: &data, wire_len: 40, time: Time(0), link: LinkType::RAW, number: 1 };
        let mut p = Packet::new(&frame);
        p.l3 = L3::Ipv4 { offset: 0, header_len: 20, options: 0 };
        p.l4 = L4::Tcp { offset: 20, header_len: 20 };
        (p.proto, p.payload) = (6, (40, 0));
        (p.src, p.dst, p.sport, p.dport) = (self.flow.dst, self.flow.src, 80, 40000);
        let mut input = Input::new(&p);
        (input.flow, input.dir, input.established) = (Some(&mut self.flow), Some(CLIENT), true);
        (input.app.flow, input.app.side, input.ips) = (AppProto::Http1, [AppProto::Http1; 2], self.ips);
        input.frames = Some(FrameInput {
            proto: AppProto::Http1,
            parser: 0,
            frames: self.marks.flow.of_mut(CLIENT),
            bytes: &self.stream,
            available: self.stream.0.len() as u64,
            offered: self.stream.0.len() as u64,
            end,
        });
        self.state.inspect(&self.detect, &mut input);
        let sid = |rule: u32| self.detect.rules()[rule as usize].sid;
        self.state.alerts().iter().map(|a| (sid(a.rule), a.frame.expect("a frame"))).collect()
    }
}

const RULES: &str = "alert http any any -> any any (frame:http1.response; content:\"one\"; sid:1;)
    alert http any any -> any any (frame:http1.response; content:\"one\"; endswith; sid:2;)
    alert http any any -> any any (frame:http1.response; content:\"one\"; startswith; sid:3;)
    alert http any any -> any any (frame:http1.response; content:\"one\"; content:\"two\"; distance:0; sid:4;)
    alert http any any -> any any (frame:http1.response; content:!\"zzz\"; sid:5;)
    alert http any any -> any any (frame:response; bsize:7; sid:6;)
    alert tcp any any -> any any (flow:to_server; frame:http1.response; content:\"one\"; sid:7;)
    alert http any any -> any any (frame:http1.request; content:\"one\"; sid:8;)";

#[test]
fn a_frame_is_looked_at_when_it_is_whole_and_once() {
    let mut t = Lab::new(RULES);
    assert_eq!(t.begin(RESPONSE).text("one two").look(false), []);
    assert_eq!(t.end().look(false), [(1, 1), (3, 1), (4, 1), (5, 1), (6, 1)]);
    assert_eq!(t.look(false), []);
    assert_eq!(t.begin(RESPONSE).text(" the one").end().look(false), [(1, 2), (2, 2), (5, 2)]);
    assert_eq!(t.begin(REQUEST).text("one").end().look(false), [(8, 3)]);
}

#[test]
fn a_hole_divides_a_frame() {
    let mut t = Lab::new(RULES);
    t.begin(RESPONSE).text("one").hole(5).text("two").end();
    // The data before the gap does not end the frame, and no match continues across the gap.
    assert_eq!(t.look(false), [(1, 1), (3, 1), (5, 1)]);
    let mut t = Lab::new(RULES);
    t.begin(RESPONSE).hole(3).text("one").end();
    assert_eq!(t.look(false), [(1, 1), (2, 1), (5, 1)]);
}

#[test]
fn an_open_frame_is_looked_at_by_chunks_and_at_the_end_of_the_stream() {
    let mut t = Lab::new("alert http any any -> any any (frame:http1.stream; content:\"one\"; endswith; sid:1;)");
    assert_eq!(t.begin(STREAM).text("one").look(false), []);
    assert_eq!(t.look(true), [(1, 1)]);
    let mut t = Lab::new("alert http any any -> any any (frame:http1.response; content:\"one\"; sid:1;)");
    let chunk = "x".repeat(CHUNK as usize - 2);
    assert_eq!(t.begin(RESPONSE).text(&chunk).text("o").look(false), []);
    assert_eq!(t.text("n").look(false), []);
    // A match across two inspections is found.
    assert_eq!(t.text("e ").text(&chunk).look(false), [(1, 1)]);
    // The rule matches once more if a later chunk matches again.
    assert_eq!(t.text(&chunk).look(false), []);
    assert_eq!(t.text("one").text(&chunk).look(false), [(1, 1)]);
}

/// In a later chunk, places count from its new data, and contents that must not be there may have been there before.
#[test]
fn later_chunks_are_looked_at_by_themselves() {
    let mut t = Lab::new(
        "alert http any any -> any any (frame:http1.response; byte_test:1,=,0x61,1; sid:1;)
         alert http any any -> any any (frame:http1.response; isdataat:3000; sid:2;)
         alert http any any -> any any (frame:http1.response; isdataat:!3000; sid:3;)
         alert http any any -> any any (frame:http1.response; content:!\"one\"; sid:4;)
         alert http any any -> any any (frame:http1.response; content:!\"one\"; depth:9; sid:5;)
         alert http any any -> any any (frame:http1.response; bsize:>3000; isdataat:1; sid:6;)",
    );
    let chunk = "x".repeat(CHUNK as usize);
    t.begin(RESPONSE).text("one");
    assert_eq!(t.text(&chunk).look(false), [(3, 1)]);
    assert_eq!(t.text("ba").text(&chunk).look(false), [(1, 1), (3, 1), (4, 1), (6, 1)]);
    assert_eq!(t.text(&chunk).text(&chunk).look(false), [(2, 1), (4, 1), (6, 1)]);
}

#[test]
fn a_long_frame_needs_no_more_memory_than_a_window() {
    let mut t = Lab::new("alert http any any -> any any (frame:http1.response; content:\"one\"; sid:1;)");
    let chunk = "x".repeat(CHUNK as usize);
    t.begin(RESPONSE);
    for _ in 0..100 {
        assert_eq!(t.text(&chunk).look(false), []);
        let needed = t.marks.flow.needed(CLIENT).expect("is open");
        assert!(t.stream.0.len() as u64 - needed <= WHOLE_MAX + CHUNK);
    }
    assert_eq!(t.text("one").end().look(false), [(1, 1)]);
    assert_eq!(t.marks.flow.needed(CLIENT), None);
}

#[test]
fn inline_every_packet_is_looked_at() {
    let mut t = Lab::new("drop http any any -> any any (frame:http1.response; content:\"one\"; sid:1;)");
    t.ips = true;
    assert_eq!(t.begin(RESPONSE).text("on").look(false), []);
    assert_eq!(t.text("e").look(false), [(1, 1)]);
}

#[test]
fn frames_and_hooks_that_a_protocol_does_not_have_are_errors() {
    let (_, errors, aside) = compiled_or_refused(
        "alert http1 any any -> any any (frame:http1.odd; content:\"a\"; sid:1;)
         alert tcp any any -> any any (frame:http1.odd; content:\"a\"; sid:2;)
         alert http1:odd any any -> any any (sid:3;)
         alert http1:response_line any any -> any any (sid:4;)",
    );
    let frame = "protocol \"http1\" has no frame \"http1.odd\"";
    assert_eq!(errors, [frame, frame, "protocol \"http1\" has no hook \"odd\""]);
    assert!(aside.is_empty(), "{aside:?}");
}

#[test]
fn a_stream_is_a_frame_of_protocols_over_tcp() {
    let (_, errors, aside) = compiled_or_refused(
        "alert dns any any -> any any (frame:dns.stream; content:\"a\"; sid:1;)
         alert udp any any -> any any (frame:dns.pdu; content:\"a\"; sid:2;)
         alert ip any any -> any any (frame:tls.stream; content:\"a\"; sid:3;)
         alert udp any any -> any any (frame:dns.stream; content:\"a\"; sid:4;)
         alert udp any any -> any any (frame:tls.pdu; content:\"a\"; sid:5;)
         alert snmp any any -> any any (frame:snmp.stream; content:\"a\"; sid:6;)
         alert snmp any any -> any any (frame:stream; content:\"a\"; sid:7;)
         alert dcerpc any any -> any any (frame:dcerpc.smb1.pdu; content:\"a\"; sid:8;)
         alert tcp any any -> any any (frame:snmp.stream; content:\"a\"; sid:9;)",
    );
    let none = |of: &str, name: &str| format!("protocol \"{of}\" has no frame \"{name}\"");
    let expected = [
        ("dns", "dns.stream"),
        ("tls", "tls.pdu"),
        ("snmp", "snmp.stream"),
        ("snmp", "stream"),
        ("dcerpc", "dcerpc.smb1.pdu"),
    ];
    assert_eq!(errors, expected.map(|(of, name)| none(of, name)));
    assert!(aside.is_empty(), "{aside:?}");
}

#[test]
fn what_cannot_be_is_set_aside() {
    let (detect, aside) = compiled(
        "alert http any any -> any any (frame:http1.request; content:\"a\"; frame:http1.response; content:\"b\"; sid:2;)",
    );
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(detect.frame_kinds().is_empty());
}
