//! Runs those conformance cases whose rules need packets and flows but neither streams nor protocols.
//!
//! Needs the cases (CONFORMANCE_CASES, or ../shared/conformance/cases beside the repository) and prints a note if they
//! are missing. A simple table in this test tracks flows: packets with the same ends and transport are one flow.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use margay_detect::iprep::IpReputationBuilder;
use margay_detect::{Detect, DetectConfig, DetectState, Environment, Input, VerdictAction};
use margay_flow::{Direction, FlowAction, FlowCore, FlowState};
use margay_packet::{DecodeConfig, Decoder, Frame, L4, LinkType, Packet, Time};
use margay_rules::ast::Action;
use margay_rules::{Context, FEATURES, Loader};

/// Link type and frames of a classic capture file in either byte order.
fn frames(path: &Path) -> (LinkType, Vec<(Time, u32, Vec<u8>)>) {
    let bytes = std::fs::read(path).expect("the capture can be read");
    let magic = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes"));
    let little = matches!(magic, 0xa1b2_c3d4 | 0xa1b2_3c4d);
    let nanos = matches!(magic, 0xa1b2_3c4d | 0x4d3c_b2a1);
    let u32_at = |o: usize| {
        let b: [u8; 4] = bytes[o..o + 4].try_into().expect("4 bytes");
        if little { u32::from_le_bytes(b) } else { u32::from_be_bytes(b) }
    };
    let (mut at, mut out) = (24, Vec::new());
    while at + 16 <= bytes.len() {
        let (secs, frac, len, wire) = (u32_at(at), u32_at(at + 4), u32_at(at + 8) as usize, u32_at(at + 12));
        let micros = if nanos { frac / 1000 } else { frac };
        let Some(data) = bytes.get(at + 16..at + 16 + len) else { break };
        out.push((Time::new(secs.into(), micros.into()), wire, data.to_vec()));
        at += 16 + len;
    }
    (LinkType(u32_at(20)), out)
}

type Key = (u8, (IpAddr, u16), (IpAddr, u16));

#[derive(Default)]
struct Flows(HashMap<Key, FlowCore>);

impl Flows {
    fn get(&mut self, p: &Packet<'_>) -> Option<(&mut FlowCore, Direction)> {
        if !p.is_ip() || p.invalid || matches!(p.l4, L4::None) {
            return None;
        }
        let (a, b) = ((p.src, p.sport), (p.dst, p.dport));
        let id = self.0.len() as u64 + 1;
        let f = self
            .0
            .entry((p.proto, a.min(b), a.max(b)))
            .or_insert_with(|| FlowCore::new(id, p.proto, (p.src, p.sport), (p.dst, p.dport), p.time));
        let dir = if (p.src, p.sport) == (f.src, f.sport) { Direction::ToServer } else { Direction::ToClient };
        f.last = p.time;
        f.pkts[dir.index()] += 1;
        if f.pkts[0] > 0 && f.pkts[1] > 0 {
            f.state = FlowState::Established;
        }
        Some((f, dir))
    }
}

#[derive(Debug, Default)]
struct Outcome {
    alerts: BTreeMap<u32, u32>,
    dropped: u32,
    tagged: u32,
    /// Actions of the flows at the end.
    flows: Vec<FlowAction>,
}

struct Case<'a> {
    rules: &'a str,
    capture: &'a str,
    ips: bool,
    order: &'a [Action],
    alert_max: u16,
    reputation: Option<(&'a str, &'a str)>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        let order = &[Action::Pass, Action::Drop, Action::Reject, Action::Alert];
        Case { rules: "", capture: "", ips: false, order, alert_max: 0, reputation: None }
    }
}

fn run(dir: &Path, case: &Case<'_>) -> Outcome {
    let context = Context { available: FEATURES.iter().map(|(f, _)| (*f).to_owned()).collect(), ..Context::default() };
    let mut loader = Loader::new(&context);
    loader.load_file(&dir.join(case.rules)).expect("the rules can be read");
    let loaded = loader.finish();
    assert!(loaded.errors.is_empty(), "{}: {:?}", case.rules, loaded.errors);
    assert!(loaded.set_aside.is_empty(), "{}: {:?}", case.rules, loaded.set_aside[0].missing);
    let mut reputation = IpReputationBuilder::default();
    if let Some((categories, list)) = case.reputation {
        let errors = reputation.files(&dir.join(categories), &[dir.join(list)], None);
        assert_eq!(errors, []);
    }
    let environment = Environment { reputation: Arc::new(reputation.build()), ..Default::default() };
    let config =
        DetectConfig { action_order: case.order.to_vec(), packet_alert_max: case.alert_max, ..DetectConfig::default() };
    let (detect, report) = Detect::compile(loaded.rules, &environment, &config).expect("compiles");
    assert_eq!((&report.errors, &report.set_aside), (&vec![], &vec![]), "{}", case.rules);
    let mut state = DetectState::new(&detect).expect("scratch");
    let mut flows = Flows::default();
    let mut out = Outcome::default();
    let mut decoder = Decoder::new(DecodeConfig { ignore_checksums: true, ..DecodeConfig::default() });
    let (link, frames) = frames(&dir.join(case.capture));
    for (number, (time, wire_len, data)) in (1..).zip(&frames) {
        let frame = Frame { data, wire_len: *wire_len, time: *time, link, number };
        decoder.decode(&frame, &mut |p: &Packet<'_>| {
            let flow = flows.get(p);
            let mut input = Input::new(p);
            input.ips = case.ips;
            if let Some((flow, dir)) = flow {
                input.established = flow.state == FlowState::Established;
                input.dir = Some(dir);
                input.flow = Some(flow);
            }
            let v = state.inspect(&detect, &mut input);
            out.dropped += u32::from(v.action == VerdictAction::Drop);
            out.tagged += u32::from(v.tagged);
            for a in state.alerts() {
                *out.alerts.entry(detect.rules()[a.rule as usize].sid).or_default() += 1;
            }
        });
    }
    out.flows = flows.0.values().map(|f| f.action).collect();
    out
}

#[test]
fn alerts_of_conformance_cases() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    use Action::{Alert as A, Drop as D, Pass as P, Reject as R};
    let plain = |rules, capture| Case { rules, capture, ..Case::default() };
    let ips = |rules, capture, order| Case { rules, capture, ips: true, order, ..Case::default() };
    let icmp = "threshold/threshold-rule-flow/icmp.pcap";
    let util10 = "util-action-tests/util-action-10/input.pcap";
    let util13 = "util-action-tests/util-action-13/input.pcap";
    let echo = "issue-4280-iprep/input.pcap";
    let ssh = "issue-5466-alert-then-pass-01/icmp_and_ssh.pcap";
    let rep = |rules, categories, list| Case {
        rules,
        capture: echo,
        reputation: Some((categories, list)),
        ..Case::default()
    };
    let pdra: &[Action] = &[P, D, R, A];
    let dpra: &[Action] = &[D, P, R, A];
    let darp: &[Action] = &[D, A, R, P];
    let filter: &[(u32, u32)] = &[(1, 8), (2, 7), (3, 6), (4, 4), (5, 1), (6, 0)];
    let list: &[(Case<'_>, &[(u32, u32)])] = &[
        (plain("threshold/detection_filter-rule-flow/test.rules", icmp), filter),
        (plain("threshold/detection_filter-rule-hostsrc/test.rules", icmp), filter),
        (plain("threshold/threshold-rule-flow/test.rules", icmp), &[(1, 8), (2, 1), (3, 2), (4, 1)]),
        (
            plain(
                "threshold/threshold-rule-flow-backoff-single-flow/test.rules",
                "filestore-filecontainer-smb/filecontainer-smb.pcap",
            ),
            &[(1, 6676), (2, 13), (3, 12), (4, 5)],
        ),
        (
            plain("detect-hostbits/detect-hostbits-01/test.rules", "detect-flowbits/input.pcap"),
            &[(1, 0), (2, 0), (3, 1)],
        ),
        (
            plain("detect-hostbits/detect-hostbits-03/test.rules", "detect-flowbits/input.pcap"),
            &[(1, 1), (2, 1), (3, 1), (4, 0)],
        ),
        (
            plain("iponly-midstream-01/test.rules", "uricontent/detect-uricontent-06/input.pcap"),
            &[(1, 1), (2, 0), (3, 1), (4, 1)],
        ),
        (
            ips("flow-drop-iponly-01/test.rules", "bug-5066-iponly-cidr-ordering-01/test-limit.pcap", pdra),
            &[(1, 1), (2, 0)],
        ),
        (plain("bug-5066-iponly-cidr-ordering-01/test.rules", "bug-5066-iponly-cidr-ordering-01/test-limit.pcap"), &[]),
        (plain("bug-5066-iponly-cidr-ordering-02/test.rules", "bug-5066-iponly-cidr-ordering-01/test-limit.pcap"), &[]),
        (plain("bug-5066-iponly-cidr-ordering-05/test.rules", "bug-5066-iponly-cidr-ordering-01/test-limit.pcap"), &[]),
        (ips("util-action-tests/util-action-01/test.rules", util13, pdra), &[(1, 1), (2, 0), (3, 1)]),
        (ips("util-action-tests/util-action-07/test.rules", util10, darp), &[(1, 3), (2, 0), (3, 3)]),
        (
            ips("util-action-tests/util-action-08/test.rules", "util-action-tests/util-action-08/input.pcap", pdra),
            &[(1, 0), (2, 0), (3, 0)],
        ),
        (ips("util-action-tests/util-action-11/test.rules", util13, dpra), &[(1, 0), (2, 0), (3, 1)]),
        (
            ips("util-action-tests/util-action-12/test.rules", "util-action-tests/util-action-12/input.pcap", dpra),
            &[(1, 1), (2, 0), (3, 0)],
        ),
        (ips("util-action-tests/util-action-14/test.rules", util13, darp), &[(1, 1), (2, 0), (3, 1)]),
        (ips("util-action-tests/util-action-16/test.rules", util13, darp), &[(1, 0), (2, 3), (3, 2)]),
        (ips("util-action-tests/util-action-15/test.rules", util13, darp), &[(1, 1), (2, 1), (3, 0)]),
        (
            plain("bug-7414-decoder-event-01/decoder-event.rules", "bug-7414-decoder-event-01/ip_secopt.pcap"),
            &[(2200005, 1)],
        ),
        (
            ips("bug-7414-decoder-event-02-ips/decoder-event.rules", "bug-7414-decoder-event-01/ip_secopt.pcap", pdra),
            &[(2200005, 1)],
        ),
        (
            ips(
                "bug-8021-alert-max-verdict-ips-03/decoder-event.rules",
                "bug-7414-decoder-event-01/ip_secopt.pcap",
                pdra,
            ),
            &[(2200005, 1)],
        ),
        (
            ips("bug-8021-ips-pass-verdict-04/decoder-event.rules", "bug-7414-decoder-event-01/ip_secopt.pcap", pdra),
            &[(2200005, 0)],
        ),
        (
            Case {
                alert_max: 6,
                order: &[P, A, D, R],
                ..plain("bug-8021-alert-max-verdict-02/test.rules", "bug-8021-alert-max-verdict-01/input.pcap")
            },
            &[(8002101, 0), (8002105, 0), (8002106, 1), (8002107, 0)],
        ),
        (ips("issue-5466-alert-then-pass-01/test.rules", ssh, pdra), &[(1, 0), (2, 1)]),
        (ips("issue-5466-alert-then-pass-03-drop-pass/test.rules", ssh, &[D, R, A, P]), &[(1, 1), (2, 1)]),
        (ips("issue-5466-alert-then-pass-04-drop-alert/test.rules", ssh, &[D, R, A, P]), &[(1, 0), (2, 1)]),
        (ips("bug-4663-02/test.rules", "bug-4663-02/icmp.pcap", dpra), &[(10002, 1)]),
        (ips("bug-4663-03/test.rules", "bug-4663-03/icmp_and_ssh.pcap", pdra), &[(1, 0)]),
        (
            Case {
                alert_max: 20,
                ..plain("alert-max/alert-max-20/test.rules", "alert-max/alert-max-default/input.pcap")
            },
            &[(20, 1)],
        ),
        (plain("alert-max/alert-max-default/test.rules", "alert-max/alert-max-default/input.pcap"), &[(16, 1)]),
        (
            rep("iprep-02/iprep.rules", "iprep-02/scirius-categories.txt", "iprep-02/scirius-iprep.list"),
            &[(2402000, 3), (2402001, 0)],
        ),
        (
            rep("iprep-03-bug-6834/iprep.rules", "iprep-03-bug-6834/categories.txt", "iprep-03-bug-6834/iprep.list"),
            &[(1, 10), (2, 10), (3, 10)],
        ),
        (
            rep(
                "iprep-04-bug-6834-any/iprep.rules",
                "iprep-04-bug-6834-any/categories.txt",
                "iprep-04-bug-6834-any/iprep.list",
            ),
            &[(1, 10), (2, 10), (3, 10)],
        ),
        (
            rep(
                "iprep-08-bug-6834-any-cidr/iprep.rules",
                "iprep-08-bug-6834-any-cidr/categories.txt",
                "iprep-08-bug-6834-any-cidr/iprep.list",
            ),
            &[(1, 10), (2, 10), (3, 10)],
        ),
        (
            rep(
                "iprep-10-bug-6834-dst-cidr/iprep.rules",
                "iprep-10-bug-6834-dst-cidr/categories.txt",
                "iprep-10-bug-6834-dst-cidr/iprep.list",
            ),
            &[(1, 5), (2, 5), (3, 5)],
        ),
        (
            rep(
                "iprep-11-isset/iprep.rules",
                "iprep-11-isset/scirius-categories.txt",
                "iprep-11-isset/scirius-iprep.list",
            ),
            &[(1, 2), (2, 1)],
        ),
    ];
    let mut wrong = Vec::new();
    for (case, want) in list {
        let got = run(&dir, case).alerts;
        for &(sid, n) in *want {
            let n_got = got.get(&sid).copied().unwrap_or(0);
            if n_got != n {
                wrong.push(format!("{}: rule {sid} alerted {n_got} times, not {n}", case.rules));
            }
        }
        if want.is_empty() && !got.is_empty() {
            wrong.push(format!("{}: alerts {got:?}, there should be none", case.rules));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn tags_and_drops_of_conformance_cases() {
    let Some(dir) = margay_testing::conformance_cases() else { return };
    let ssh = "ssh-banner-only/input.pcap";
    for (case, want) in [("eve-tag-03", 8), ("eve-tag-04", 8), ("eve-tag-05", 14), ("eve-tag-06", 14)] {
        let rules = format!("{case}/test.rules");
        let out = run(&dir, &Case { rules: &rules, capture: ssh, ..Case::default() });
        assert_eq!(out.tagged, want, "{case}");
    }
    use Action::{Alert as A, Drop as D, Pass as P, Reject as R};
    let capture = "issue-5466-alert-then-pass-01/icmp_and_ssh.pcap";
    let rules = "issue-5466-alert-then-pass-03-drop-pass/test.rules";
    let out = run(&dir, &Case { rules, capture, ips: true, order: &[D, R, A, P], ..Case::default() });
    assert_eq!(out.dropped, 322);
    assert_eq!(out.flows.iter().filter(|a| **a == FlowAction::Drop).count(), 1);
    let rules = "issue-5466-alert-then-pass-01/test.rules";
    let out = run(&dir, &Case { rules, capture, ips: true, order: &[P, D, R, A], ..Case::default() });
    assert_eq!(out.dropped, 0);
    assert_eq!(out.flows.iter().filter(|a| **a == FlowAction::Pass).count(), 1);
}
