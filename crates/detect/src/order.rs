//! The order of rules: which is evaluated first, which alert comes first, and so which `pass` stops which alerts.
//!
//! As documented under "Rule Prioritization": action, then who writes and who reads flowbits, flowints, flow and packet
//! variables, bits of hosts, of pairs of hosts and of transactions, then priority, and last the signature's number. For
//! variables of flows, packets and transactions rules that only write come first, then those that read and write, then those
//! that only read, and last those that do neither. `hostbits` and `xbits` of addresses have two ranks, as observed in
//! Suricata: rules that write `hostbits` come before all others, and rules that read `xbits` before all others, so that an
//! `xbits` rule sees what earlier packets set, never what its own packet sets.

use margay_rules::ast::{Action, BufferCheck, CaptureKind, Check, Effect, Rule, XBitTrack};

/// Place in an order by a variable: 0 writes, 1 reads and writes, 2 reads, 3 neither.
type Rank = u8;

const fn rank(writes: bool, reads: bool) -> Rank {
    match (writes, reads) {
        (true, false) => 0,
        (true, true) => 1,
        (false, true) => 2,
        (false, false) => 3,
    }
}

/// What a rule is sorted by, most significant first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    action: u8,
    flowbits: Rank,
    flowints: Rank,
    flowvars: Rank,
    pktvars: Rank,
    hostbits: Rank,
    xbits: Rank,
    pairbits: Rank,
    txbits: Rank,
    priority: u32,
    sid: u32,
    gid: u32,
}

/// The three kinds of `reject` have one place in `action-order`.
const fn class(a: Action) -> Action {
    match a {
        Action::RejectDst | Action::RejectBoth => Action::Reject,
        other => other,
    }
}

fn captures(rule: &Rule, kind: CaptureKind) -> bool {
    rule.buffers.iter().flat_map(|b| &b.checks).any(|c| match c {
        BufferCheck::Pcre(p) => p.captures.iter().any(|(k, _)| *k == kind),
        _ => false,
    })
}

fn key(rule: &Rule, order: &[Action]) -> Key {
    let action = class(rule.action);
    let place = order.iter().position(|&a| class(a) == action).unwrap_or(order.len());
    let checks = |f: &dyn Fn(&Check) -> bool| rule.checks.iter().any(f);
    let effects = |f: &dyn Fn(&Effect) -> bool| rule.effects.iter().any(f);
    // Whether a rule asks for `xbits` of an address or a pair, and whether it changes `hostbits`.
    let asks = |pair: bool| {
        checks(&|c| {
            matches!(c, Check::XBit { track, hostbits: false, .. }
                if *track != XBitTrack::Transaction && (*track == XBitTrack::Pair) == pair)
        })
    };
    let changes = effects(&|e| matches!(e, Effect::XBit { hostbits: true, .. }));
    let variable = |want: CaptureKind| checks(&|c| matches!(c, Check::Variable { kind, .. } if *kind == want));
    Key {
        action: u8::try_from(place).unwrap_or(u8::MAX),
        flowbits: rank(
            effects(&|e| matches!(e, Effect::FlowBit { .. })),
            checks(&|c| matches!(c, Check::FlowBit { .. })),
        ),
        flowints: rank(
            effects(&|e| matches!(e, Effect::FlowInt { .. })),
            checks(&|c| matches!(c, Check::FlowInt { .. })),
        ),
        flowvars: rank(captures(rule, CaptureKind::Flow), variable(CaptureKind::Flow)),
        pktvars: rank(captures(rule, CaptureKind::Packet), variable(CaptureKind::Packet)),
        hostbits: Rank::from(!changes),
        xbits: Rank::from(!asks(false)),
        pairbits: Rank::from(!asks(true)),
        txbits: rank(
            effects(&|e| matches!(e, Effect::XBit { track: XBitTrack::Transaction, .. })),
            checks(&|c| matches!(c, Check::XBit { track: XBitTrack::Transaction, .. })),
        ),
        priority: rule.priority,
        sid: rule.sid,
        gid: rule.gid,
    }
}

/// Sorts `rules`; those that compare equal stay in the order they were loaded in. Firewall rules come first, in the order
/// of their files.
pub fn sort(rules: &mut [Rule], order: &[Action]) {
    rules.sort_by_key(|r| !r.firewall);
    let of_firewall = rules.partition_point(|r| r.firewall);
    if let Some(others) = rules.get_mut(of_firewall..) {
        others.sort_by_cached_key(|r| key(r, order));
    }
}
