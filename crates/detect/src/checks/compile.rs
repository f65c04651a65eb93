//! Compiles the checks of the syntax tree, with numbers for names.

use margay_packet::DecodeEvent;
use margay_rules::ast::{CaptureKind, Check, FlowIntCheck, FlowIntValue, XBitTrack};
use margay_rules::{APP_LAYER_EVENTS, info};

use super::{CheckEnv, CompiledCheck, IntOp, IntValue, Kind, Names, ProtoSet};
use crate::geoip::GeoCheck;
use crate::inspect::CompileError;

/// The right side of a flowint.
pub(crate) fn int_value(v: &FlowIntValue, names: &mut Names) -> IntValue {
    match v {
        FlowIntValue::Number(n) => IntValue::Number(*n),
        FlowIntValue::Variable(name) => IntValue::Variable(names.intern(name)),
    }
}

/// Rejects owners of bits that this build does not support.
pub(crate) fn track(track: XBitTrack) -> Result<XBitTrack, CompileError> {
    match track {
        XBitTrack::Transaction => {
            Err(CompileError::unsupported("xbits", "track tx needs transactions, which this build does not have"))
        }
        other => Ok(other),
    }
}

impl CompiledCheck {
    /// Compiles one check.
    ///
    /// # Errors
    /// If an event or category is unknown, or this build does not support the check.
    // It stays whole: a flat match over the checks.
    pub fn compile(check: &Check, env: &mut CheckEnv<'_>) -> Result<CompiledCheck, CompileError> {
        let missing = |keyword: &str| Err(CompileError::unsupported(keyword, "this build cannot check it"));
        Ok(CompiledCheck(match check {
            Check::Flow(f) => Kind::Flow(*f),
            Check::FlowBit { names, set } => {
                Kind::FlowBits { names: names.iter().map(|n| env.names.intern(n)).collect(), set: *set }
            }
            Check::FlowInt { name, op } => {
                let name = env.names.intern(name);
                let mut compare = |op, v| Kind::FlowInt { name, op, value: int_value(v, env.names) };
                match op {
                    FlowIntCheck::Less(v) => compare(IntOp::Less, v),
                    FlowIntCheck::LessEqual(v) => compare(IntOp::LessEqual, v),
                    FlowIntCheck::Equal(v) => compare(IntOp::Equal, v),
                    FlowIntCheck::NotEqual(v) => compare(IntOp::NotEqual, v),
                    FlowIntCheck::GreaterEqual(v) => compare(IntOp::GreaterEqual, v),
                    FlowIntCheck::Greater(v) => compare(IntOp::Greater, v),
                    FlowIntCheck::IsSet => Kind::FlowIntSet { name, set: true },
                    FlowIntCheck::IsNotSet => Kind::FlowIntSet { name, set: false },
                }
            }
            Check::XBit { name, track: t, set, .. } => {
                Kind::XBit { name: env.names.intern(name), track: track(*t)?, set: *set }
            }
            Check::Ttl(c) => Kind::Ttl(*c),
            Check::Tos { value, negated } => Kind::Tos { value: *value, negated: *negated },
            Check::IpId(v) => Kind::IpId(*v),
            Check::IpProto(c) => Kind::IpProto(*c),
            Check::SameIp => Kind::SameIp,
            Check::L3Proto(v) => Kind::L3Proto(*v),
            Check::IpOption(o) => Kind::IpOption(*o),
            Check::FragBits { bits, mode } => Kind::FragBits { bits: *bits, mode: *mode },
            Check::FragOffset(c) => Kind::FragOffset(*c),
            Check::TcpFlags { bits, ignore, mode } => Kind::TcpFlags { bits: *bits, ignore: *ignore, mode: *mode },
            Check::TcpSeq(c) => Kind::TcpSeq(*c),
            Check::TcpAck(c) => Kind::TcpAck(*c),
            Check::TcpWindow { value } => Kind::TcpWindow(*value),
            Check::TcpMss(c) => Kind::TcpMss(*c),
            Check::TcpWscale(c) => Kind::TcpWscale(*c),
            Check::IcmpType(c) => Kind::IcmpType(*c),
            Check::IcmpCode(c) => Kind::IcmpCode(*c),
            Check::IcmpId(v) => Kind::IcmpId(*v),
            Check::IcmpSeq(v) => Kind::IcmpSeq(*v),
            Check::Icmpv6Mtu(c) => Kind::Icmpv6Mtu(*c),
            Check::IgmpType(c) => Kind::IgmpType(*c),
            Check::Dsize(c) => Kind::Dsize(*c),
            Check::Checksum { layer, valid } => Kind::Checksum { layer: *layer, valid: *valid },
            Check::StreamSize { side, value } => Kind::StreamSize { side: *side, value: *value },
            Check::AppProto { name, negated, mode } => {
                Kind::AppProto { protos: ProtoSet::named(name), negated: *negated, mode: *mode }
            }
            Check::DecodeEvent(name) => match DecodeEvent::from_name(name) {
                Some(e) => Kind::DecodeEvent(e),
                None => return Err(CompileError::invalid("decode-event", format!("there is no event {name:?}"))),
            },
            Check::StreamEvent(name) => match (env.stream_event)(name) {
                Some(n @ 0..128) => Kind::StreamEvent(1 << n),
                _ => return Err(CompileError::invalid("stream-event", format!("there is no event {name:?}"))),
            },
            Check::FlowAge(c) => Kind::FlowAge(*c),
            Check::FlowPkts { side, value } => Kind::FlowPkts { side: *side, value: *value },
            Check::FlowBytes { side, value } => Kind::FlowBytes { side: *side, value: *value },
            Check::VlanId { value, layer } => Kind::VlanId { value: *value, layer: *layer },
            Check::VlanLayers(c) => Kind::VlanLayers(*c),
            Check::IpRep { side, category, op } => match (env.reputation_category)(category) {
                Some(category) => Kind::IpRep { side: *side, category, op: *op },
                None => {
                    return Err(CompileError::invalid(
                        "iprep",
                        format!("there is no category {category:?}; see reputation-categories-file"),
                    ));
                }
            },
            Check::Rpc { program, version, procedure } => {
                Kind::Rpc { program: *program, version: *version, procedure: *procedure }
            }
            Check::AppEvent(name) => match APP_LAYER_EVENTS.iter().position(|e| e == name) {
                Some(n) => Kind::AppLayerEvent(1 << n),
                None => return missing("app-layer-event"),
            },
            Check::FlowElephant(side) => Kind::FlowElephant(*side),
            Check::GeoIp(g) => match &env.countries {
                Some(countries) => Kind::GeoIp(Box::new(GeoCheck { rule: g.clone(), countries: countries.clone() })),
                None => {
                    let reason = "there is no database; name one in geoip-database";
                    return Err(CompileError::invalid("geoip", reason));
                }
            },
            Check::UriLen { .. } => return missing("urilen"),
            Check::Score { .. } => return missing("score"),
            Check::File(_) => return missing("file"),
            Check::AppState { .. } => return missing("app-layer-state"),
            Check::Variable { kind: CaptureKind::Alert, .. } => return missing("a variable of an alert"),
            Check::Variable { kind, name, value, negated } => Kind::Variable {
                of_flow: *kind == CaptureKind::Flow,
                name: env.names.intern(name),
                value: value.as_slice().into(),
                negated: *negated,
            },
            Check::Number { keyword, .. } => return missing(keyword),
            // Scripts run separately, when everything else holds.
            Check::Lua(_) => return missing("lua"),
            Check::Interface(_) => return missing(info::keyword_of_check(check)),
            Check::Other { keyword, .. } => return missing(keyword),
        }))
    }
}
