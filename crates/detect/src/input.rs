//! What detection is given of a packet, and what it gives back.

use margay_app::file::FileEngine;
use margay_app::{AppProto, Parser};
use margay_flow::{Direction, FlowAction, FlowCore};
use margay_packet::Packet;
use margay_rules::ast::Action;

use crate::ahead::SearchedAhead;
use crate::checks::{AppProtos, StreamSizes};
use crate::frame::FrameInput;

/// Stream data that is due for inspection: what earlier packets were not inspected with, or enough of it to see what
/// straddles the border.
#[derive(Debug, Clone, Copy)]
pub struct StreamChunk<'a> {
    /// The bytes, in order and without gaps.
    pub data: &'a [u8],
    /// Where in the stream they begin, in bytes from its start.
    pub offset: u64,
    /// How many bytes at the start were in a chunk before: what is wholly in them was found then.
    pub seen: usize,
}

/// One packet and what the rooms before know of it.
#[derive(Debug)]
pub struct Input<'a> {
    /// The packet.
    pub packet: &'a Packet<'a>,
    /// Its flow.
    pub flow: Option<&'a mut FlowCore>,
    /// Its direction in the flow.
    pub dir: Option<Direction>,
    /// Whether the flow is established: both sides were seen, for TCP the handshake is done (or picked up midway).
    pub established: bool,
    /// Whether the packet's payload went into the stream: rules for streams then wait for `chunks`.
    pub in_stream: bool,
    /// The payload is encrypted, and not worth a look.
    pub no_payload: bool,
    /// Stream data of the packet's direction to inspect now.
    pub chunks: &'a [StreamChunk<'a>],
    /// Whether stream data of the packet's direction is left at the end of the connection, be it due or not.
    pub stream_waits: bool,
    /// Events that the stream engine met with this packet, one bit each.
    pub stream_events: u128,
    /// Whether rules that ask for the flow's protocol alone are to look at it with this packet.
    pub protocol_due: bool,
    /// Whether something of the protocol became known with this packet, or is known not to become so.
    pub protocol_told: bool,
    /// Application protocols of the flow.
    pub app: AppProtos,
    /// Events of the application layer that came with this packet and are of no protocol, one bit each by place in
    /// [`margay_rules::APP_LAYER_EVENTS`].
    pub app_events: u8,
    /// The parsers of the flow that have transactions, oldest first ([`margay_app::AppSession::parsers_mut`]).
    pub txs: Option<&'a mut [Box<dyn Parser>]>,
    /// Whether a transaction of `txs` may have changed in the packet's direction since it was last inspected.
    pub txs_changed: bool,
    /// The frames of the packet's direction, where rules look at frames.
    pub frames: Option<FrameInput<'a>>,
    /// What files need that are to be stored.
    pub files: Option<&'a mut FileEngine>,
    /// Sizes of the TCP session's streams; `None` where there is no session.
    pub stream_sizes: Option<StreamSizes>,
    /// Whether drops are carried out.
    pub ips: bool,
    /// Firewall mode: something else let the packet pass, and rules for threat detection are not asked.
    pub td_passed: bool,
    /// Firewall mode: the packet is made up to have something inspected that was let through, and the firewall is not asked.
    pub let_through: bool,
    /// The packet is made up because the flow changes its protocol.
    pub changing: bool,
    /// What another thread may have found in the payload.
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
    /// What was done: the rule's action, or what a rate filter put in its place.
    pub action: Action,
    /// Whether the event says `blocked`: a drop that is carried out, a reject, or a rate filter's drop.
    pub blocked: bool,
    /// Whether the match was in stream data.
    pub stream: bool,
    /// The transaction that matched, or is guessed to be the one.
    pub tx_id: Option<u64>,
    /// The parser in [`Input::txs`] that has it.
    pub parser: u8,
    /// Whether the rule did not match on the transaction, which is just the one that was going on.
    pub tx_guessed: bool,
    /// The file that matched: its place among the transaction's files, of both directions.
    pub file: Option<u32>,
    /// The frame of the packet's direction that matched, by its number.
    pub frame: Option<u64>,
    /// Where it begins, and how much it is, what sets say of what was found ([`crate::DetectState::contexts`]).
    pub context: (u32, u8),
}

/// What is to become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerdictAction {
    /// Nothing matched that would change it (`alert` in events).
    #[default]
    Accept,
    /// A `pass` rule matched.
    Pass,
    /// Not to be let through.
    Drop,
}

/// Who is to be answered.
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
    /// A rule matched on a threshold of `threshold.config`.
    RulesThreshold,
    /// Its flow was dropped before.
    FlowDrop,
    /// A firewall rule matched it.
    FirewallRules,
    /// No firewall rule of `packet:filter` accepts it.
    DefaultPacketPolicy,
    /// No firewall rule of a state of its transaction accepts it.
    DefaultAppPolicy,
    /// A rule of `packet:pre_flow`, or its policy.
    PreFlowHook,
    /// A rule of `packet:pre_stream`, or its policy.
    PreStreamHook,
}

impl DropReason {
    /// Its name in events.
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

    /// Whether it is the firewall's.
    pub const fn is_firewall(self) -> bool {
        !matches!(self, DropReason::Rules | DropReason::RulesThreshold | DropReason::FlowDrop)
    }
}

/// What detection decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// For the packet.
    pub action: VerdictAction,
    /// Why it is dropped, where it is.
    pub drop_reason: Option<DropReason>,
    /// The rule that dropped it.
    pub dropped_by: Option<u32>,
    /// Who is to be answered; also without a drop, in passive mode.
    pub reject: Option<Reject>,
    /// What was decided for the flow with this packet; it is set in the flow already.
    pub flow: FlowAction,
    /// Whether the rest of the flow may bypass inspection.
    pub bypass: bool,
    /// The mark to set on the packet, and the bits of it that count.
    pub mark: Option<(u32, u32)>,
    /// Whether a tag of an earlier match asks for this packet to be logged.
    pub tagged: bool,
}

/// Whether the packet is looked at no further because of its flow.
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
    };
    match action {
        FlowAction::Drop if ips => {
            v.action = VerdictAction::Drop;
            v.drop_reason = Some(DropReason::FlowDrop);
            Some(v)
        }
        // Where nothing can be dropped the packet goes on.
        FlowAction::Drop => Some(v),
        FlowAction::Pass | FlowAction::Accept => {
            v.action = VerdictAction::Pass;
            Some(v)
        }
        _ => None,
    }
}
