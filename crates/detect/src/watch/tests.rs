//! Tests of rule traces, with packets built without the decoder.

use margay_flow::Direction;
use margay_rules::ast::*;

use super::report::{LineCame, Reason, ReasonKind, RuleTrace};
use super::trace::Tracer;
use crate::DetectConfig;
use crate::tests::{Lab, alert, content, pcre, rule, with_content};

fn lab(rules: Vec<Rule>) -> Lab<Tracer> {
    Lab::explaining(rules, &DetectConfig::default())
}

/// The trace of the rule with that signature.
fn trace(lab: &Lab<Tracer>, sid: u32) -> &RuleTrace {
    let is = |t: &&RuleTrace| lab.detect.rules()[t.rule as usize].sid == sid;
    lab.state.context.watch.traces().iter().find(is).expect("is explained")
}

fn reason(t: &RuleTrace, kind: ReasonKind) -> &Reason {
    t.reasons.iter().find(|r| r.kind == kind).unwrap_or_else(|| panic!("{:?}", t.reasons))
}

#[test]
fn headers() {
    let mut r = alert(1, b"abc");
    r.dport = PortSet { ranges: vec![(443, 443), (8000, 8080)], any: false };
    let mut udp = alert(2, b"abc");
    udp.protocol = Protocol::Udp;
    udp.text = "alert udp any any -> any any (content:\"abc\"; sid:2;)".into();
    let mut lab = lab(vec![r, udp]);
    lab.payload(b"abc");
    lab.payload(b"abc");
    let port = reason(trace(&lab, 1), ReasonKind::Header);
    assert_eq!((port.text.as_str(), port.count, port.first.len()), ("the destination port is not 443,8000:8080", 2, 2));
    assert_eq!(reason(trace(&lab, 2), ReasonKind::Header).text, "the packet is not of the rule's protocol (udp)");
}

#[test]
fn patterns_that_are_not_there() {
    let mut lab = lab(vec![alert(1, b"needle")]);
    lab.payload(b"");
    lab.payload(b"hay with a need, no more");
    lab.payload(b"a NEEDLE");
    let t = trace(&lab, 1);
    assert_eq!((t.looks, t.matched), (0, 0));
    assert!(reason(t, ReasonKind::NotInspected).text.contains("nothing to look for the fast pattern in"));
    let case = &t.nearest.as_ref().expect("one was nearest").lines[0];
    assert!(case.detail.ends_with("in other case it is at byte 2: nocase would find it"), "{}", case.detail);
    let line = &reason(t, ReasonKind::Prefilter).first[0].lines[0];
    assert_eq!(line.detail, "not in the 24 bytes; its first 4 of 6 are at byte 11");
    assert_eq!(line.excerpt.as_ref().map(|e| (e.size, e.mark)), Some((24, (11, 15))));
}

/// An expression that needs digits is not searched if there are too few of them, and the report says so.
#[test]
fn expressions_that_are_not_there() {
    if !crate::mpm::MpmAlgo::has_hyperscan() {
        // Without Hyperscan no expression is searched: such a rule is evaluated with every packet.
        return;
    }
    let of = |sid, pattern| {
        let mut r = with_content(rule(sid, Action::Alert, Protocol::Tcp), vec![content(b"x")]);
        r.buffers[0].checks = vec![pcre(pattern, &[])];
        r
    };
    let mut lab = lab(vec![of(1, "rd \\d{16}"), of(2, "[a-c]+1"), of(3, "no \\d{5}")]);
    lab.payload(b"card 123456789, no more");
    lab.payload(b"card 1234567890123456");
    lab.payload(b"no card");
    lab.payload(b"");
    let t = trace(&lab, 1);
    assert_eq!((t.looks, t.matched), (1, 1));
    let said = reason(t, ReasonKind::Prefilter);
    assert!(
        said.text.starts_with("the expression of its pcre cannot match: it takes 16 digits in a row, which are not in"),
        "{}",
        said.text
    );
    let detail = |n: usize| {
        let line = &said.first[n].lines[0];
        (line.check.as_str(), line.detail.as_str())
    };
    assert_eq!(detail(0), ("16 digits in a row", "the longest row in the 23 bytes has 9"));
    assert_eq!(detail(1), ("16 digits in a row", "there is none in the 7 bytes"));
    assert_eq!(said.count, 2);
    assert!(reason(t, ReasonKind::NotInspected).text.contains("nothing to look for the expression"));
    // An expression without digits, and one whose digits are there but whose rest is not.
    for (sid, packets) in [(2, 3), (3, 2)] {
        let said = trace(&lab, sid).reasons.iter().find(|r| r.text.contains("matches nowhere in")).expect("is said");
        assert_eq!((said.kind, said.count), (ReasonKind::Prefilter, packets), "{sid}");
    }
}

/// The report has the evaluation that got furthest, with the checks that held before.
#[test]
fn the_check_that_failed() {
    let after = |bytes: &[u8], within| Content {
        distance: Some(Value::Number(0)),
        within: Some(Value::Number(within)),
        ..content(bytes)
    };
    let first = Content { fast_pattern: true, ..content(b"GET ") };
    let r = with_content(rule(1, Action::Alert, Protocol::Tcp), vec![first, after(b"Host", 20)]);
    let mut lab = lab(vec![r]);
    lab.payload(b"GET / HTTP/1.1 GET the host");
    lab.payload(b"GET /");
    let t = trace(&lab, 1);
    assert_eq!((t.looks, t.matched), (2, 0));
    let nearest = t.nearest.as_ref().expect("one was nearest");
    assert_eq!(nearest.packet.number, 1);
    let failed = &nearest.lines[nearest.failing.expect("a check failed")];
    assert_eq!(failed.check, "content:\"Host\"; distance:0; within:20");
    assert!(
        failed.detail.ends_with("in other case it is at bytes 23 to 26: nocase would find it"),
        "{}",
        failed.detail
    );
    let held: Vec<&str> =
        nearest.lines.iter().filter(|l| l.came == LineCame::Held).map(|l| l.detail.as_str()).collect();
    assert_eq!(held.last(), Some(&"at bytes 15 to 18"));
}

#[test]
fn numbers_and_variables() {
    let mut r = with_content(rule(1, Action::Alert, Protocol::Tcp), vec![content(b"ab")]);
    r.buffers[0].checks.push(BufferCheck::ByteTest(ByteTest {
        bytes: Value::Number(2),
        negated: false,
        op: ByteOp::Greater,
        value: Value::Number(1000),
        offset: Value::Number(0),
        relative: true,
        format: NumberFormat::Binary(Endian::Big),
        bitmask: None,
    }));
    let mut lab = lab(vec![r]);
    lab.payload(b"ab\x00\x10");
    let t = trace(&lab, 1);
    let failed = &reason(t, ReasonKind::Check).first[0];
    let line = &failed.lines[failed.failing.expect("a check failed")];
    assert_eq!(line.check, "byte_test:2,>,1000,0,relative");
    assert_eq!(line.detail, "the number there, bytes 2 to 3 (|00 10|), is 16; asked is > 1000");
}

#[test]
fn checks_of_packet_and_flow() {
    let check = |sid, c| Rule { checks: vec![c], ..rule(sid, Action::Alert, Protocol::Tcp) };
    let bit = Check::FlowBit { names: vec!["seen".into()], set: true };
    let flags = Check::TcpFlags { bits: 2, ignore: 0, mode: FlagMode::Exact };
    let mut lab = lab(vec![check(1, bit), check(2, flags), check(3, Check::Dsize(Compare::Less(9)))]);
    lab.payload(b"abc");
    let detail = |sid: u32| {
        let look = &reason(trace(&lab, sid), ReasonKind::Check).first[0];
        look.lines.last().map(|l| (l.check.clone(), l.detail.clone())).expect("a line")
    };
    assert_eq!(detail(1), ("flowbits:isset,seen".into(), "the flow has no bits set".into()));
    assert_eq!(detail(2), ("flags:S".into(), "it is PA".into()));
    assert_eq!(trace(&lab, 3).matched, 1);
}

#[test]
fn what_matches_come_to() {
    let limit = Threshold { kind: ThresholdKind::Limit, track: Track::Source, count: 1, seconds: 60, multiplier: 0 };
    let limited = Rule { thresholds: vec![limit], ..alert(1, b"abc") };
    let silent = Rule { noalert: true, ..alert(2, b"abc") };
    let pass = Rule { priority: 1, ..with_content(rule(4, Action::Pass, Protocol::TcpPacket), vec![content(b"xyz")]) };
    let mut lab = lab(vec![limited, silent, alert(3, b"xyz"), pass]);
    lab.payload(b"abc");
    lab.payload(b"abc");
    lab.payload(b"xyz");
    let said = |sid: u32| {
        let t = trace(&lab, sid);
        t.fates.iter().map(|f| (f.text.clone(), f.alert, f.count)).collect::<Vec<_>>()
    };
    let [(_, true, 1), (kept, false, 1)] = &said(1)[..] else { panic!("{:?}", said(1)) };
    assert!(kept.contains("threshold"), "{kept}");
    assert!(matches!(&said(2)[..], [(t, false, 2)] if t.contains("noalert")));
    assert!(
        matches!(&said(3)[..], [(t, false, 1)] if t == "no alert: the pass rule 4 comes before it"),
        "{:?}",
        said(3)
    );
}

/// Matches in stream data but not in the packet are reported for the stream.
#[test]
fn streams() {
    let mut lab = lab(vec![alert(1, b"abcdef")]);
    lab.send(b"abc", Direction::ToServer, true, &[]);
    lab.send(b"def", Direction::ToServer, true, &[b"abcdef"]);
    let t = trace(&lab, 1);
    assert_eq!((t.packets, t.matched), (2, 1));
    let line = t.matches[0].lines.last().expect("a line");
    assert_eq!((line.place.as_str(), line.detail.as_str()), ("the stream, from byte 0 on", "at bytes 0 to 5"));
}
