//! Rule order: it decides which rule runs first, which alert comes first, and which alerts a `pass` stops.
//!
//! As documented under "Rule Prioritization": action; then the writers and readers of flowbits, flowints, flow and
//! packet variables, host bits, host pair bits and transaction bits; then priority; last the signature number. For flow,
//! packet and transaction variables, rules that only write come first, then rules that read and write, then rules that
//! only read, then the others. `hostbits` and `xbits` of addresses have two ranks, as observed in Suricata: rules that
//! write `hostbits` and rules that read `xbits` come first. So an `xbits` rule sees bits that earlier packets set, never
//! bits of its own packet.

use margay_rules::ast::{Action, BufferCheck, CaptureKind, Check, Effect, Rule, XBitTrack};

/// Rank by a variable: 0 writes, 1 reads and writes, 2 reads, 3 neither.
type Rank = u8;

const fn rank(writes: bool, reads: bool) -> Rank {
    match (writes, reads) {
        (true, false) => 0,
        (true, true) => 1,
        (false, true) => 2,
        (false, false) => 3,
    }
}

/// The sort key of a rule, most significant part first.
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

/// The three kinds of `reject` share one place in `action-order`.
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
    // Whether a rule reads `xbits` of an address or a pair, and whether it changes `hostbits`.
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

/// Sorts `rules`; equal rules keep the order in which they were loaded. Firewall rules come first, in file order.
pub fn sort(rules: &mut [Rule], order: &[Action]) {
    rules.sort_by_key(|r| !r.firewall);
    let of_firewall = rules.partition_point(|r| r.firewall);
    if let Some(others) = rules.get_mut(of_firewall..) {
        others.sort_by_cached_key(|r| key(r, order));
    }
}
