//! Checks of a flow, its variables and its protocols.

use margay_app::AppProto;
use margay_flow::Direction;
use margay_packet::PacketSource;
use margay_rules::ast::{AppProtoMode, Compare, FlowCheck, FlowSide, Side, XBitTrack};

use super::{CheckInput, IntOp, IntValue, ProtoSet};
use crate::hostvars::HostKey;

/// `flow`: `established`, `not_established`, `stateless` and `no_frag` need a flow. A packet without a flow counts as
/// sent to the server.
pub(super) fn flow(c: &FlowCheck, input: &CheckInput<'_>) -> bool {
    let has_flow = input.flow.is_some();
    let side = match c.side {
        None => true,
        Some(Side::ToServer) => !has_flow || input.direction == Direction::ToServer,
        Some(Side::ToClient) => has_flow && input.direction == Direction::ToClient,
    };
    if !has_flow && (c.established || c.not_established || c.stateless || c.frag == Some(false)) {
        return false;
    }
    let established = input.established && has_flow;
    let reassembled = input.packet.source == PacketSource::Defrag;
    side && (!c.established || established)
        && (!c.not_established || !established)
        && c.stream.is_none_or(|only| only == input.stream_data)
        && c.frag.is_none_or(|only| only == reassembled)
}

/// `flowint` comparisons: with an unset variable on the left, no comparison holds. An unset variable on the right is 0
/// (observed).
pub(super) fn int(name: u32, op: IntOp, value: IntValue, input: &CheckInput<'_>) -> bool {
    let Some(vars) = input.flow.map(|f| &f.vars) else { return false };
    let right = match value {
        IntValue::Number(n) => n,
        IntValue::Variable(v) => vars.int(v).unwrap_or(0),
    };
    let Some(left) = vars.int(name) else { return false };
    match op {
        IntOp::Less => left < right,
        IntOp::LessEqual => left <= right,
        IntOp::Equal => left == right,
        IntOp::NotEqual => left != right,
        IntOp::GreaterEqual => left >= right,
        IntOp::Greater => left > right,
    }
}

/// `xbits` and `hostbits`. With `track both`, the bit must be set on both hosts.
pub(super) fn xbit(name: u32, track: XBitTrack, set: bool, input: &CheckInput<'_>) -> bool {
    let p = input.packet;
    if !p.is_ip() {
        return false;
    }
    let is_set = |key| input.hosts.is_some_and(|h| h.is_set(key, name, p.time));
    let found = match track {
        XBitTrack::Source => is_set(HostKey::Host(p.src)),
        XBitTrack::Destination => is_set(HostKey::Host(p.dst)),
        XBitTrack::Pair => is_set(HostKey::pair(p.src, p.dst)),
        XBitTrack::Both => is_set(HostKey::Host(p.src)) && is_set(HostKey::Host(p.dst)),
        XBitTrack::Transaction => return false,
    };
    found == set
}

/// Compares the counters of a flow's two directions.
pub(super) fn side(side: FlowSide, value: Compare, counts: [u64; 2]) -> bool {
    let [server, client] = counts.map(|n| value.holds(n));
    match side {
        FlowSide::ToServer => server,
        FlowSide::ToClient => client,
        FlowSide::Both => server && client,
        FlowSide::Either => server || client,
    }
}

/// `app-layer-protocol`: while a protocol is undecided, neither it nor its negation matches, unless the rule names
/// `unknown`. Flows of other transports than TCP and UDP have none, not even `unknown` (Suricata 8).
pub(super) fn app_proto(protos: ProtoSet, negated: bool, mode: AppProtoMode, input: &CheckInput<'_>) -> bool {
    if input.flow.is_none_or(|f| !matches!(f.proto, 6 | 17)) {
        return false;
    }
    // `None` while undecided.
    let is = |p: AppProto| (p != AppProto::Unknown || protos.has(AppProto::Unknown)).then(|| protos.has(p));
    let app = &input.app;
    let [server, client] = app.side.map(is);
    let found = match mode {
        AppProtoMode::Direction => [server, client][input.direction.index()],
        AppProtoMode::ToServer => server,
        AppProtoMode::ToClient => client,
        AppProtoMode::Final => is(app.flow),
        AppProtoMode::Original => is(app.original),
        AppProtoMode::Either => match (server, client) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            // One decided side is enough.
            (Some(false), _) | (_, Some(false)) => Some(false),
            (None, None) => None,
        },
    };
    found.is_some_and(|f| f != negated)
}
