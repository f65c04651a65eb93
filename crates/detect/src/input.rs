//! The input of detection for one packet, and its result.

use margay_app::file::FileEngine;
use margay_app::{AppProto, Parser};
use margay_flow::{Direction, FlowAction, FlowCore};
use margay_packet::Packet;
use margay_rules::ast::Action;

use crate::ahead::SearchedAhead;
use crate::checks::{AppProtos, StreamSizes};
use crate::frame::FrameInput;

/// Stream data that is due for inspection: data that no earlier inspection covered, preceded by enough older data to
/// find matches that straddle the border.
#[derive(Debug, Clone, Copy)]
pub struct StreamChunk<'a> {
    /// The bytes, in order and without gaps.
    pub data: &'a [u8],
    /// The offset of the first byte from the start of the stream.
    pub offset: u64,
    /// Number of leading bytes that an earlier chunk had. A match that lies wholly within them was found then.
    pub seen: usize,
}

/// One packet and what earlier stages know of it.
#[derive(Debug)]
pub struct Input<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Its flow.
    pub flow: Option<&'a mut FlowCore>,
    /// Its direction in the flow.
    pub dir: Option<Direction>,
    /// Whether the flow is established: both sides sent packets and, for TCP, the handshake is complete or the session
    /// was picked up midstream.
    pub established: bool,
    /// Whether the packet's payload went into the stream. Stream rules then wait for `chunks`.
    pub in_stream: bool,
    /// Whether the payload is encrypted and not worth inspecting.
    pub no_payload: bool,
    /// Stream data of the packet's direction to inspect now.
    pub chunks: &'a [StreamChunk<'a>],
    /// Whether stream data of the packet's direction remains at the end of the connection, due or not.
    pub stream_waits: bool,
    /// Stream engine events of this packet, one bit each.
    pub stream_events: u128,
    /// Whether rules that only check the flow's protocol run with this packet.
    pub protocol_due: bool,
    /// Whether the detected protocols changed with this packet, or detection failed for good.
    pub protocol_told: bool,
    /// Application protocols of the flow.
    pub app: AppProtos,
    /// Application layer events of this packet that belong to no protocol, one bit each by place in
    /// [`margay_rules::APP_LAYER_EVENTS`].
    pub app_events: u8,
    /// The parsers of the flow that have transactions, oldest first ([`margay_app::AppSession::parsers_mut`]).
    pub txs: Option<&'a mut [Box<dyn Parser>]>,
    /// Whether a transaction of `txs` may have changed in the packet's direction since its last inspection.
    pub txs_changed: bool,
    /// The frames of the packet's direction, if any rule inspects frames.
    pub frames: Option<FrameInput<'a>>,
    /// The engine that stores files, if files may be stored.
    pub files: Option<&'a mut FileEngine>,
    /// Sizes of the TCP session's streams; `None` without a session.
    pub stream_sizes: Option<StreamSizes>,
    /// Whether drops take effect (IPS mode).
    pub ips: bool,
    /// Firewall mode: an earlier decision lets the packet pass, and threat detection rules are skipped.
    pub td_passed: bool,
    /// Firewall mode: this is a pseudo packet for data that the firewall already let through, so the firewall is
    /// skipped.
    pub let_through: bool,
    /// The packet is the first pseudo packet of its direction at the end of the flow.
    pub flow_ends: bool,
    /// The packet is a pseudo packet, made because the flow changes its protocol.
    pub changing: bool,
    /// Results of a search that another thread may have made in this payload.
    pub ahead: Option<&'a dyn SearchedAhead>,
}

impl<'a> Input<'a> {
    /// A packet without a flow, in passive mode.
    pub const fn new(packet: &'a Packet<'a>) -> Self {
        Input {
            packet,
            flow: None,
            dir: None,
            established: false,
            in_stream: false,
            no_payload: false,
            chunks: &[],
            stream_waits: false,
            stream_events: 0,
            protocol_due: false,
            protocol_told: false,
            app: AppProtos { side: [AppProto::Unknown; 2], flow: AppProto::Unknown, original: AppProto::Unknown },
            app_events: 0,
            txs: None,
            txs_changed: true,
            frames: None,
            files: None,
            stream_sizes: None,
            ips: false,
            td_passed: false,
            let_through: false,
            flow_ends: false,
            changing: false,
            ahead: None,
        }
    }
}

/// An alert to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert {
    /// The rule: its place in [`crate::Detect::rules`].
    pub rule: u32,
    /// The rule's action, or the action that a rate filter replaced it with.
    pub action: Action,
    /// Whether the event says `blocked`: a drop that takes effect, a reject, or a rate filter's drop.
    pub blocked: bool,
    /// Whether the match was in stream data.
    pub stream: bool,
    /// The transaction that matched, or the guessed one.
    pub tx_id: Option<u64>,
    /// The index in [`Input::txs`] of the parser that has the transaction.
    pub parser: u8,
    /// Whether the transaction is a guess: the rule did not match on it, but it was the only current one.
    pub tx_guessed: bool,
    /// The number of the frame that matched, in the packet's direction.
    pub frame: Option<u64>,
    /// Start and length of the dataset contexts of this alert ([`crate::DetectState::contexts`]).
    pub context: (u32, u8),
}

/// The verdict for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerdictAction {
    /// No matching rule changes the packet's fate (`alert` in events).
    #[default]
    Accept,
    /// A `pass` rule matched.
    Pass,
    /// The packet must not be forwarded.
    Drop,
}

/// The ends that receive a reject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// The source.
    Source,
    /// The destination.
    Destination,
    /// Both.
    Both,
}

/// Why a packet is dropped (`drop.reason`, `ips.drop_reason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// A rule matched it.
    Rules,
    /// A rule matched through a threshold of `threshold.config`.
    RulesThreshold,
    /// An earlier packet had the flow dropped.
    FlowDrop,
    /// A firewall rule matched it.
    FirewallRules,
    /// No firewall rule of `packet:filter` accepts the packet.
    DefaultPacketPolicy,
    /// No firewall rule accepts a state of the packet's transaction.
    DefaultAppPolicy,
    /// A rule or the default policy of `packet:pre_flow`.
    PreFlowHook,
    /// A rule or the default policy of `packet:pre_stream`.
    PreStreamHook,
}

impl DropReason {
    /// The reason's name in events.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Rules => "rules",
            DropReason::RulesThreshold => "threshold detection_filter",
            DropReason::FlowDrop => "flow drop",
            DropReason::FirewallRules => "firewall rules",
            DropReason::DefaultPacketPolicy => "firewall default packet policy",
            DropReason::DefaultAppPolicy => "firewall default app policy",
            DropReason::PreFlowHook => "firewall pre flow hook",
            DropReason::PreStreamHook => "firewall pre stream hook",
        }
    }

    /// Whether the firewall gave the reason.
    pub const fn is_firewall(self) -> bool {
        !matches!(self, DropReason::Rules | DropReason::RulesThreshold | DropReason::FlowDrop)
    }
}

/// The result of detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The action for the packet.
    pub action: VerdictAction,
    /// Why the packet is dropped, if it is.
    pub drop_reason: Option<DropReason>,
    /// The rule that dropped the packet.
    pub dropped_by: Option<u32>,
    /// The ends to send a reject to. Passive mode sets it too, without a drop.
    pub reject: Option<Reject>,
    /// The flow action that this packet caused. The flow has it already.
    pub flow: FlowAction,
    /// Whether the rest of the flow may bypass inspection.
    pub bypass: bool,
    /// The mark to set on the packet, and its mask.
    pub mark: Option<(u32, u32)>,
    /// Whether a tag from an earlier match asks to log this packet.
    pub tagged: bool,
    /// Whether the packet sets a tag.
    pub sets_tag: bool,
}

/// The final verdict if the flow's action already decides it.
pub(crate) const fn of_flow(action: FlowAction, ips: bool) -> Option<Verdict> {
    let mut v = Verdict {
        action: VerdictAction::Accept,
        drop_reason: None,
        dropped_by: None,
        reject: None,
        flow: action,
        bypass: false,
        mark: None,
        tagged: false,
        sets_tag: false,
    };
    match action {
        FlowAction::Drop if ips => {
            v.action = VerdictAction::Drop;
            v.drop_reason = Some(DropReason::FlowDrop);
            Some(v)
        }
        // Without IPS mode nothing can be dropped: the packet goes on.
        FlowAction::Drop => Some(v),
        FlowAction::Pass | FlowAction::Accept => {
            v.action = VerdictAction::Pass;
            Some(v)
        }
        _ => None,
    }
}
