//! The kind of a rule: where it is evaluated, and how far its action reaches.
//!
//! The kinds follow the Suricata manual's "Rule Types and Categorization" and the output of `--engine-analysis`.

use margay_rules::ast::{
    Action, Arrow, BitOp, BufferCheck, BufferChecks, Check, ConfigKind, ConfigScope, ConfigWhat, Effect, FlowCheck,
    LuaAt, Protocol, Rule, Value, XBitTrack,
};

use crate::refused::Refused;

/// The kind of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleKind {
    /// Addresses, ports and protocol only: a table lookup once for each direction of a flow (`ip_only`).
    IpOnly,
    /// As [`RuleKind::IpOnly`], with a negated address: for every packet (`like_ip_only`).
    LikeIpOnly,
    /// `app-layer-protocol` only: once for each direction, when the protocol is known (`pd_only`).
    ProtocolDetection,
    /// `decode-event` only: for packets with decoder events, valid or not (`de_only`).
    DecodeEvent,
    /// Each packet by itself (`pkt`).
    Packet,
    /// Packet payload and stream (`pkt_stream`).
    PacketStream,
    /// Stream, or the payload of packets that are in no stream (`stream`).
    Stream,
    /// Packets of a flow with that protocol (`app_layer`).
    AppLayer,
    /// Transactions of a protocol (`app_tx`).
    AppTransaction,
}

impl RuleKind {
    /// The kind of `rule`.
    pub fn of(rule: &Rule) -> RuleKind {
        kind(rule)
    }

    /// The kind's name in `--engine-analysis`.
    pub const fn name(self) -> &'static str {
        match self {
            RuleKind::IpOnly => "ip_only",
            RuleKind::LikeIpOnly => "like_ip_only",
            RuleKind::ProtocolDetection => "pd_only",
            RuleKind::DecodeEvent => "de_only",
            RuleKind::Packet => "pkt",
            RuleKind::PacketStream => "pkt_stream",
            RuleKind::Stream => "stream",
            RuleKind::AppLayer => "app_layer",
            RuleKind::AppTransaction => "app_tx",
        }
    }

    /// Whether the rule's `drop` or `pass` holds for the whole flow. For [`RuleKind::Stream`] and
    /// [`RuleKind::PacketStream`] it does if the match was in stream data.
    pub const fn acts_on_flow(self, in_stream: bool) -> bool {
        match self {
            RuleKind::DecodeEvent | RuleKind::Packet => false,
            RuleKind::PacketStream | RuleKind::Stream => in_stream,
            _ => true,
        }
    }
}

/// Whether the buffer belongs to the packet or the stream, as opposed to a protocol.
pub fn is_payload(buffer: &str) -> bool {
    matches!(buffer, "payload" | "pkt_data")
}

/// The data that a check needs.
enum Needs {
    /// The packet's headers or size.
    Packet,
    /// A transaction.
    Transaction,
    /// Nothing that prevents inspection once per flow or on a stream.
    Nothing,
    /// State that may change with any packet. A stream rule stays a stream rule.
    State,
}

fn needs(check: &Check) -> Needs {
    match check {
        Check::Ttl(_)
        | Check::Tos { .. }
        | Check::IpId(_)
        | Check::SameIp
        | Check::IpOption(_)
        | Check::FragBits { .. }
        | Check::FragOffset(_)
        | Check::TcpFlags { .. }
        | Check::TcpSeq(_)
        | Check::TcpAck(_)
        | Check::TcpWindow { .. }
        | Check::TcpMss(_)
        | Check::TcpWscale(_)
        | Check::IcmpType(_)
        | Check::IcmpCode(_)
        | Check::IcmpId(_)
        | Check::IcmpSeq(_)
        | Check::Icmpv6Mtu(_)
        | Check::IgmpType(_)
        | Check::Dsize(_)
        | Check::Rpc { .. }
        | Check::FlowAge(_)
        | Check::FlowPkts { .. }
        | Check::FlowBytes { .. }
        | Check::FlowElephant(_)
        | Check::VlanId { .. }
        | Check::VlanLayers(_) => Needs::Packet,
        Check::XBit { track: XBitTrack::Transaction, .. } | Check::Score { .. } => Needs::Transaction,
        Check::AppEvent(name) if !name.contains('.') => Needs::State,
        Check::AppEvent(_)
        | Check::File(_)
        | Check::AppState { .. }
        | Check::UriLen { .. }
        | Check::Number { .. }
        | Check::Interface(_)
        | Check::Other { .. } => Needs::Transaction,
        Check::Lua(c) => match c.at {
            LuaAt::Packet | LuaAt::Payload => Needs::Packet,
            LuaAt::Stream => Needs::State,
            LuaAt::Transaction => Needs::Transaction,
        },
        Check::IpProto(_) | Check::L3Proto(_) | Check::IpRep { .. } => Needs::Nothing,
        Check::Flow(_)
        | Check::FlowBit { .. }
        | Check::FlowInt { .. }
        | Check::XBit { .. }
        | Check::Checksum { .. }
        | Check::StreamSize { .. }
        | Check::AppProto { .. }
        | Check::DecodeEvent(_)
        | Check::StreamEvent(_)
        // For each packet, as in Suricata.
        | Check::GeoIp(_)
        | Check::Variable { .. } => Needs::State,
    }
}

/// Whether a check looks at a packet's headers or size.
pub fn is_of_packet(check: &Check) -> bool {
    matches!(needs(check), Needs::Packet)
}

/// Whether a check inspects a transaction, not a packet or flow.
pub fn is_of_transaction(check: &Check) -> bool {
    matches!(needs(check), Needs::Transaction)
}

/// Whether a payload check of the rule has a fixed place in the payload.
fn anchored(rule: &Rule) -> bool {
    let fixed = |v: &Option<Value>| v.is_some();
    rule.buffers.iter().filter(|b| is_payload(&b.buffer)).flat_map(|b| &b.checks).any(|c| match c {
        BufferCheck::Content(c) => c.starts_with || fixed(&c.offset) || fixed(&c.depth),
        _ => false,
    })
}

/// The kind of `rule`.
pub(crate) fn kind(rule: &Rule) -> RuleKind {
    let app_protocol = matches!(rule.protocol, Protocol::App(_));
    let transaction = rule.buffers.iter().any(|b| b.app)
        || rule.checks.iter().any(|c| matches!(needs(c), Needs::Transaction))
        || rule.effects.iter().any(|e| {
            matches!(
                e,
                Effect::Other { .. }
                    | Effect::Config { .. }
                    | Effect::FileStore { .. }
                    | Effect::TlsStore
                    | Effect::XBit { track: XBitTrack::Transaction, .. }
                    | Effect::Score { .. }
            )
        });
    if transaction || rule.arrow == Arrow::Transaction || (app_protocol && rule.hook.is_some()) {
        return RuleKind::AppTransaction;
    }
    let flow = || rule.checks.iter().filter_map(|c| if let Check::Flow(f) = c { Some(f) } else { None });
    let packet = rule.protocol == Protocol::TcpPacket && !rule.buffers.is_empty()
        || rule.buffers.iter().any(|b| !is_payload(&b.buffer))
        || rule.checks.iter().any(|c| matches!(needs(c), Needs::Packet))
        // Alone, this check concerns addresses. With contents, it concerns the packet that has them.
        || (!rule.buffers.is_empty() && rule.checks.iter().any(|c| matches!(c, Check::IpProto(_))))
        // Without a protocol, reputation is looked up once for each direction of a flow.
        || (app_protocol && rule.checks.iter().any(|c| matches!(c, Check::IpRep { .. })))
        // `replace` changes a packet.
        || rule.effects.iter().any(|e| matches!(e, Effect::Replace))
        || flow().any(|f| f.stream == Some(false));
    if packet {
        return RuleKind::Packet;
    }
    let script_of_stream = rule.checks.iter().any(|c| matches!(c, Check::Lua(l) if l.at == LuaAt::Stream));
    if script_of_stream && rule.buffers.is_empty() {
        return RuleKind::Stream;
    }
    if !rule.buffers.is_empty() {
        if rule.protocol == Protocol::TcpStream || flow().any(|f| f.stream == Some(true)) {
            return RuleKind::Stream;
        }
        let stream_size = rule.checks.iter().any(|c| matches!(c, Check::StreamSize { .. }));
        // Without a stream, packet and stream rules both inspect the packet's payload.
        let no_stream = matches!(
            rule.protocol,
            Protocol::Udp | Protocol::Icmp | Protocol::Icmpv4 | Protocol::Icmpv6 | Protocol::Sctp
        );
        return if no_stream || anchored(rule) || stream_size { RuleKind::PacketStream } else { RuleKind::Stream };
    }
    let only = |f: &dyn Fn(&Check) -> bool| !rule.checks.is_empty() && rule.checks.iter().all(f);
    let side_only = |f: &FlowCheck| FlowCheck { side: None, ..*f } == FlowCheck::default();
    if !app_protocol {
        if only(&|c| matches!(c, Check::DecodeEvent(_))) {
            return RuleKind::DecodeEvent;
        }
        let detection = rule.checks.iter().any(|c| matches!(c, Check::AppProto { .. }));
        if detection && only(&|c| matches!(c, Check::AppProto { .. }) || matches!(c, Check::Flow(f) if side_only(f))) {
            return RuleKind::ProtocolDetection;
        }
        let changing = rule.effects.iter().any(|e| match e {
            Effect::FlowBit { op, .. } => *op != BitOp::Set,
            e => matches!(e, Effect::Bypass | Effect::NfqMark { .. } | Effect::FlowInt { .. }),
        });
        let addresses =
            rule.checks.iter().all(|c| matches!(needs(c), Needs::Nothing) || matches!(c, Check::XBit { .. }));
        return match addresses && !changing {
            true if rule.src.negated || rule.dst.negated => RuleKind::LikeIpOnly,
            true => RuleKind::IpOnly,
            false => RuleKind::Packet,
        };
    }
    let steady = rule.checks.iter().all(|c| match c {
        Check::Flow(f) => side_only(f),
        Check::AppProto { .. } => true,
        c => matches!(needs(c), Needs::Nothing),
    });
    if steady { RuleKind::AppLayer } else { RuleKind::Packet }
}

/// Whether an effect takes a packet out of flow tracking.
pub(crate) fn untracks(effect: &Effect) -> bool {
    matches!(effect, Effect::Config { what: ConfigWhat::Tracking, kind: ConfigKind::Flow, scope: ConfigScope::Packet })
}

/// Whether a rule that is not a firewall rule takes packets out of flow tracking. It runs only before the flow is known.
pub(crate) fn is_before_flow(rule: &Rule) -> bool {
    !rule.firewall
        && rule.action == Action::Config
        && rule.hook.as_deref() == Some("pre_flow")
        && rule.effects.iter().any(untracks)
}

/// Rejects checks that need a flow before there is one.
///
/// # Errors
/// Such a check.
pub(crate) fn asks_of_flow(rule: &Rule) -> Result<(), Refused> {
    let of_flow = |c: &Check| matches!(c, Check::Flow(_) | Check::FlowBit { .. } | Check::AppProto { .. });
    if rule.checks.iter().any(of_flow) {
        return Err(Refused::Error("before the flow is known (pre_flow) nothing can be asked of it".into()));
    }
    Ok(())
}

/// The kind of a firewall rule, which its hook decides.
///
/// # Errors
/// If the rule needs something that its hook does not have.
pub(crate) fn of_firewall(rule: &Rule) -> Result<RuleKind, Refused> {
    let inferred = kind(rule);
    if matches!(rule.protocol, Protocol::App(_)) {
        return Ok(RuleKind::AppTransaction);
    }
    let hook = rule.hook.as_deref().unwrap_or_default();
    if rule.buffers.iter().any(|b| b.app) || rule.checks.iter().any(is_of_transaction) {
        return Err(Refused::Error(format!(
            "a keyword of an application protocol needs a hook of that protocol, not {hook}"
        )));
    }
    if hook == "pre_flow" {
        asks_of_flow(rule)?;
    }
    if rule.effects.iter().any(untracks) && hook != "pre_flow" {
        return Err(Refused::Error(
            "tracking is disabled before the flow is known: the hook has to be pre_flow".into(),
        ));
    }
    Ok(if inferred == RuleKind::AppTransaction { RuleKind::Packet } else { inferred })
}

/// Whether a buffer of a rule is a frame.
pub(crate) fn is_frame(buffer: &BufferChecks) -> bool {
    buffer.buffer.starts_with("frame:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_written_negations_count() {
        let mut ctx = margay_rules::Context::default();
        ctx.addresses.insert("OUTSIDE".into(), "!10.0.0.0/8".into());
        ctx.addresses.insert("INSIDE".into(), "10.0.0.0/8".into());
        ctx.addresses.insert("PART".into(), "[10.0.0.0/8,!10.1.0.0/16]".into());
        for (addresses, negates) in [
            ("10.0.0.0/8", false),
            ("!10.0.0.0/8", true),
            ("[10.0.0.0/8,!10.1.0.0/16]", true),
            ("[::/1,0.0.0.0/1]", false),
            ("$INSIDE", false),
            ("$OUTSIDE", true),
            ("$PART", true),
            ("[192.0.2.0/24,$OUTSIDE]", true),
            ("!$OUTSIDE", true),
            ("[!192.0.2.1,any]", true),
        ] {
            let text = format!("alert ip {addresses} any -> any any (sid:1;)");
            let rule = margay_rules::load_str(&text, "t", &ctx).rules.pop().expect("loads");
            let is = if negates { RuleKind::LikeIpOnly } else { RuleKind::IpOnly };
            assert_eq!(kind(&rule), is, "{addresses}");
        }
    }
}
