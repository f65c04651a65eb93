//! What becomes of a packet and of the frame that carried it.

use margay_output::pcaplog::PacketFate;
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
    /// Urgent data that is not allowed.
    StreamUrgent,
    /// A rate filter.
    Threshold,
    /// The firewall.
    Firewall(margay_detect::DropReason),
    /// The firewall dropped its flow.
    FirewallFlowDrop,
    /// An exception policy dropped its flow.
    ExceptionFlowDrop,
    /// A fragment of a datagram of which nothing more is let through.
    DatagramDrop,
    /// A fragment that does not fit others of its datagram.
    DefragError,
    /// It could not be sent on with what a rule has put in.
    NotReplaced,
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
        }
    }

    /// Of a packet whose flow is dropped.
    pub(super) const fn of_flow(by: FlowDropBy) -> DropReason {
        match by {
            FlowDropBy::Rules => DropReason::FlowDrop,
            FlowDropBy::Firewall => DropReason::FirewallFlowDrop,
            FlowDropBy::Exception => DropReason::ExceptionFlowDrop,
        }
    }
}

/// What becomes of a packet: the result of every stage that looked at it. It belongs to this packet and its flow alone;
/// a packet that is made up at the end of a flow has its own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fate {
    /// Dropped, and why.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// A pass rule or policy let it through.
    pub(crate) pass: bool,
    /// Who is to be answered.
    pub(crate) rejected: Option<margay_detect::Reject>,
    /// How they are, where packets are sent at all.
    pub(crate) answers: &'static [&'static str],
    /// The rule that dropped it.
    pub(crate) dropped_by: Option<u32>,
    /// The bits of its mark that a rule sets, and which they are.
    pub(crate) mark: Option<(u32, u32)>,
    /// A rule asks for its flow to be bypassed.
    pub(crate) bypass: bool,
    /// Its flow is bypassed.
    pub(crate) bypassed: bool,
    /// Rules inspected it: variables that they captured belong to its events.
    pub(crate) inspected: bool,
    /// What decides whether the capture log keeps it.
    pub(crate) pcap: PacketFate,
}

impl Fate {
    /// Takes in what rules decided about more of what the packet brought.
    pub(super) fn add(&mut self, more: Fate) {
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

/// The verdict on a captured frame: what the packets that it carried come to together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameVerdict {
    /// Dropped, and why: the first reason of any of its packets.
    pub(crate) drop: Option<DropReason>,
    /// Rejected as well.
    pub(crate) reject: bool,
    /// The bits of its mark that a rule sets, and which they are: those of the last packet that has any.
    pub(crate) mark: Option<(u32, u32)>,
    /// The flow of the frame itself, not of a packet inside it, is bypassed.
    pub(crate) bypassed: bool,
    /// What decides whether the capture log keeps it.
    pub(crate) pcap: PacketFate,
}

impl FrameVerdict {
    /// Why the frame is dropped, as `drop` events name it.
    pub(crate) fn drop_reason(&self) -> Option<&'static str> {
        self.drop.map(DropReason::text)
    }

    /// Takes in what one of the frame's packets came to.
    #[inline]
    pub(super) fn add(&mut self, fate: &Fate, source: PacketSource) {
        self.drop = self.drop.or(fate.drop);
        self.reject |= fate.reject;
        self.mark = fate.mark.or(self.mark);
        self.bypassed |= fate.bypassed && source == PacketSource::Wire;
        self.pcap.add(fate.pcap);
    }
}
