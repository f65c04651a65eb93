//! Unit tests of the tables; the conformance cases send whole packets through them.

use margay_flow::FlowAction;
use margay_rules::ast::ActionScope;

use super::*;
use crate::input::{DropReason, Verdict, VerdictAction};
use crate::tx::tests::{CLIENT, Lab, METHOD, SERVER};

#[test]
fn policies_from_text() {
    let p = |accept, scope| Some(Policy { accept, scope });
    for (text, want) in [
        ("accept:hook", p(true, ActionScope::Hook)),
        ("accept:tx", p(true, ActionScope::Transaction)),
        ("accept:flow", p(true, ActionScope::Flow)),
        ("drop:packet", p(false, ActionScope::Packet)),
        ("drop:flow", p(false, ActionScope::Flow)),
        ("drop:hook", None),
        ("drop:tx", None),
        ("pass:flow", None),
        ("accept", None),
        ("accept:", None),
    ] {
        assert_eq!(Policy::parse(text), want, "{text}");
    }
    assert!(!Policy { accept: true, scope: ActionScope::Transaction }.fits(PacketHook::Filter));
    assert!(!Policy::DROP_FLOW.fits(PacketHook::PreFlow) && Policy::DROP_FLOW.fits(PacketHook::PreStream));
}

#[test]
fn the_last_policy_of_a_hook_counts() {
    let key = (AppProto::Dns, Direction::ToServer, 0);
    let policies = FirewallPolicies {
        hooks: vec![(key, Policy::DROP_PACKET), (key, Policy::ACCEPT_HOOK)],
        ..FirewallPolicies::default()
    };
    assert_eq!(policies.app(key.0, key.1, key.2), Policy::ACCEPT_HOOK);
    assert_eq!(policies.app(AppProto::Dns, Direction::ToClient, 0), Policy::DROP_FLOW);
}

/// The sids of the alerts of an inspection, in order, and the verdict.
fn look(lab: &mut Lab, dir: Direction) -> (Vec<u32>, Verdict) {
    let alerts = lab.look(dir);
    (alerts.iter().map(|a| lab.detect.rules()[a.rule as usize].sid).collect(), lab.verdict)
}

fn dropped(v: Verdict) -> Option<DropReason> {
    (v.action == VerdictAction::Drop).then_some(v.drop_reason).flatten()
}

#[test]
fn packets_nobody_accepts_are_dropped_and_not_their_flow() {
    let mut lab =
        Lab::firewall("accept:packet udp:all any any -> any any (sid:1;)", "alert tcp any any -> any any (sid:9;)");
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!(
        (alerts, dropped(v), lab.flow.action),
        (vec![], Some(DropReason::DefaultPacketPolicy), FlowAction::None)
    );
}

#[test]
fn the_first_rule_of_a_table_decides() {
    let mut lab = Lab::firewall(
        "drop:packet tcp:all any any -> any 81 (sid:1; alert;)\naccept:hook tcp:all any any -> any any (sid:2; alert;)\n\
         drop:flow tcp:all any any -> any any (sid:3; alert;)",
        "alert tcp any any -> any any (content:\"GET\"; sid:9;)",
    );
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v)), (vec![2, 9], None));
    let mut lab = Lab::firewall(
        "drop:flow tcp:all any any -> any any (sid:3;)\naccept:hook tcp:all any any -> any any (sid:2; alert;)",
        "alert tcp any any -> any any (content:\"GET\"; sid:9;)",
    );
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v), v.dropped_by), (vec![], Some(DropReason::FirewallRules), Some(0)));
    assert_eq!(dropped(look(&mut lab, SERVER).1), Some(DropReason::FlowDrop));
}

const ALL: &str = "accept:hook tcp:all any any -> any any (sid:1;)\n";

#[test]
fn each_state_has_to_be_accepted() {
    let rules = format!(
        "{ALL}accept:hook http1:request_started any any -> any any (alert; sid:10;)\n\
         accept:hook http1:request_line any any -> any any (http.method; content:\"GET\"; alert; sid:11;)"
    );
    let mut lab = Lab::firewall(&rules, "alert http any any -> any any (http.method; content:\"GET\"; sid:9;)");
    // The table of the current state runs with each change, and once more after the transaction left the state.
    lab.touch(SERVER);
    assert_eq!(look(&mut lab, SERVER).0, [10]);
    lab.set(METHOD, "GET").advance(SERVER, 1);
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v)), (vec![10, 11, 9], None));
    // A rule that matched its buffer still accepts, without another alert.
    lab.touch(SERVER);
    assert_eq!(look(&mut lab, SERVER), (vec![], Verdict::default()));
    lab.advance(SERVER, 2);
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v), lab.flow.action), (vec![], Some(DropReason::DefaultAppPolicy), FlowAction::Drop));
}

#[test]
fn an_accepted_transaction_is_accepted_both_ways() {
    let rules =
        format!("{ALL}accept:tx http1:<request_line any any -> any any (http.method; content:\"GET\"; sid:11;)");
    let mut lab = Lab::firewall(&rules, "alert http any any -> any any (http.stat_code; content:\"200\"; sid:9;)");
    lab.set(METHOD, "GET").advance(SERVER, 5);
    assert_eq!(dropped(look(&mut lab, SERVER).1), None);
    lab.set(5, "200").advance(CLIENT, 5);
    assert_eq!(look(&mut lab, CLIENT).0, [9]);
    assert_eq!(lab.flow.action, FlowAction::None);
}

#[test]
fn a_pass_of_threat_detection_is_not_the_firewalls() {
    let mut lab = Lab::firewall(
        &format!("{ALL}accept:hook http1:request_started any any -> any any (sid:10;)"),
        "pass:flow tcp any any -> any any (content:\"GET\"; alert; sid:8;)\nalert tcp any any -> any any (content:\"GET\"; sid:9;)",
    );
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, v.action), (vec![8], VerdictAction::Pass));
    assert!(lab.flow.td_passed && lab.flow.action == FlowAction::None);
    lab.set(METHOD, "GET").advance(SERVER, 1);
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v)), (vec![], Some(DropReason::DefaultAppPolicy)));
}

#[test]
fn what_threat_detection_drops_as_a_packet_comes_before_transactions() {
    let mut lab = Lab::firewall(
        &format!("{ALL}accept:hook http1:request_started any any -> any any (alert; sid:10;)"),
        "drop:packet tcp-pkt any any -> any any (content:\"GET\"; sid:8;)",
    );
    lab.touch(SERVER);
    let (alerts, v) = look(&mut lab, SERVER);
    assert_eq!((alerts, dropped(v)), (vec![8], Some(DropReason::Rules)));
}

#[test]
fn accept_and_pass_of_a_flow() {
    let mut lab = Lab::firewall(
        "accept:flow,pass:flow,alert tcp:all any any -> any any (sid:1;)",
        "drop tcp any any -> any any (content:\"GET\"; sid:8;)",
    );
    lab.advance(SERVER, 5);
    for want in [vec![1], vec![]] {
        let (alerts, v) = look(&mut lab, SERVER);
        assert_eq!((alerts, dropped(v), lab.flow.action), (want, None, FlowAction::Accept));
    }
}
