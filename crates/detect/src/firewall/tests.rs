//! Tests of the tables by themselves; whole packets go through them in the conformance cases.

use margay_rules::ast::ActionScope;

use super::*;

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
