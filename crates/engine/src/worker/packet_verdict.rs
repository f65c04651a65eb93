//! Verdicts on a packet and on the frame that carried it.

use margay_output::output::PacketFate;
use margay_packet::PacketSource;

use super::firewall::FlowDropBy;
use crate::exception::Condition;

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// A rule of the detection engine.
    Rules,
    /// Its flow is dropped.
    FlowDrop,
    /// An exception policy.
    Exception(Condition),
    /// The stream engine found it invalid.
    StreamError,
    /// Urgent data that the policy does not allow.
    StreamUrgent,
    /// A rate filter.
    Threshold,
    /// The firewall.
    Firewall(margay_detect::DropReason),
    /// The firewall dropped its flow.
    FirewallFlowDrop,
    /// An exception policy dropped its flow.
    ExceptionFlowDrop,
    /// A fragment of a datagram that is already dropped.
    DatagramDrop,
    /// A fragment that does not fit the other fragments of its datagram.
    DefragError,
    /// The packet could not carry a rule's replacement.
    NotReplaced,
    /// A packet inside it is dropped, or the datagram that its fragment completed.
    TunnelPacketDrop,
}

impl DropReason {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            DropReason::Rules => "rules",
            DropReason::FlowDrop => "flow drop",
            DropReason::Exception(c) => c.drop_reason(),
            DropReason::StreamError => "stream error",
            DropReason::StreamUrgent => "stream urgent",
            DropReason::Threshold => "threshold detection_filter",
            DropReason::Firewall(reason) => reason.name(),
            DropReason::FirewallFlowDrop => "firewall flow drop",
            DropReason::ExceptionFlowDrop => "exception policy flow drop",
            DropReason::DatagramDrop => "datagram drop",
            DropReason::DefragError => "defrag error",
            DropReason::NotReplaced => "not replaced",
            DropReason::TunnelPacketDrop => "tunnel packet drop",
        }
    }

    /// Whether the stream engine refused the packet.
    pub(super) const fn is_of_stream(self) -> bool {
        matches!(self, DropReason::StreamError | DropReason::StreamUrgent)
    }

    /// The reason for a packet whose flow is dropped.
    pub(super) const fn of_flow(by: FlowDropBy) -> DropReason {
        match by {
            FlowDropBy::Rules => DropReason::FlowDrop,
            FlowDropBy::Firewall => DropReason::FirewallFlowDrop,
            FlowDropBy::Exception => DropReason::ExceptionFlowDrop,
        }
    }
}

/// The verdict on a packet, collected from every stage. It covers only this packet and its flow. A pseudo packet at the end
/// of a flow has its own verdict.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PacketVerdict {
    /// Dropped, with the reason.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// A pass rule or policy let it through.
    pub(crate) pass: bool,
    /// The ends that receive an answer.
    pub(crate) rejected: Option<margay_detect::Reject>,
    /// The kinds of answers, if answers are sent at all.
    pub(crate) answers: &'static [&'static str],
    /// The rule that dropped it.
    pub(crate) dropped_by: Option<u32>,
    /// The bits of the packet mark that a rule sets, and their mask.
    pub(crate) mark: Option<(u32, u32)>,
    /// A rule requests a bypass of the flow.
    pub(crate) bypass: bool,
    /// Its flow is bypassed.
    pub(crate) bypassed: bool,
    /// Rules inspected the packet, so its events show the variables that they captured.
    pub(crate) inspected: bool,
    /// Decides whether the capture log keeps the packet.
    pub(crate) pcap: PacketFate,
    /// Inline: a packet that this one carries is dropped.
    pub(crate) inner_dropped: bool,
}

impl PacketVerdict {
    /// Drops the packet if a packet that it carries is dropped.
    pub(super) fn drop_with_inner(&mut self) {
        if self.inner_dropped {
            self.drop = self.drop.or(Some(DropReason::TunnelPacketDrop));
        }
    }

    /// Adds the verdict of rules on another part of the packet's data.
    pub(super) fn add(&mut self, more: PacketVerdict) {
        self.drop = self.drop.or(more.drop);
        self.reject |= more.reject;
        self.pass |= more.pass;
        if self.rejected.is_none() {
            (self.rejected, self.answers) = (more.rejected, more.answers);
        }
        self.dropped_by = self.dropped_by.or(more.dropped_by);
        self.mark = more.mark.or(self.mark);
        self.bypass |= more.bypass;
        self.inspected |= more.inspected;
        self.pcap.add(more.pcap);
    }
}

/// The verdict on a captured frame, combined from its packets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameVerdict {
    /// Dropped, with the first reason of any of its packets, or [`DropReason::TunnelPacketDrop`] if that packet was inside another.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// The bits of the packet mark that a rule sets, and their mask, from the last packet that has any.
    pub(crate) mark: Option<(u32, u32)>,
    /// The flow of the frame itself, not of a packet inside it, is bypassed.
    pub(crate) bypassed: bool,
    /// Decides whether the capture log keeps the frame.
    pub(crate) pcap: PacketFate,
}

impl FrameVerdict {
    /// The reason for the drop, as `drop` events show it.
    pub(crate) fn drop_reason(&self) -> Option<&'static str> {
        self.drop.map(DropReason::text)
    }

    /// Adds the verdict on one of the frame's packets.
    #[inline]
    pub(super) fn add(&mut self, of_packet: &PacketVerdict, source: PacketSource) {
        self.drop = match of_packet.drop {
            Some(DropReason::TunnelPacketDrop) => of_packet.drop,
            reason => self.drop.or(reason),
        };
        self.reject |= of_packet.reject;
        self.mark = of_packet.mark.or(self.mark);
        self.bypassed |= of_packet.bypassed && source == PacketSource::Wire;
        self.pcap.add(of_packet.pcap);
    }
}
