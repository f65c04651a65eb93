//! Exception policies: decide about a packet and its flow if the engine cannot inspect them.

use margay_detect::Reject;
use margay_flow::FlowAction;
use margay_packet::Packet;

use super::firewall::FlowDropBy;
use super::wire::Wire;
use super::{DropReason, FlowExt, PacketVerdict, Stages, tcp};
use crate::exception::{Condition, Policy};

impl Stages {
    /// The policy for a parser that fails on a flow.
    pub(super) fn error_policy(&self, flow: &margay_flow::Flow<FlowExt>) -> Policy {
        let midstream = flow.ext.tcp.as_ref().is_some_and(|s| s.is_midstream());
        self.error_policies[usize::from(midstream)]
    }

    /// Applies `app-layer.error-policy` after a parser failed on this packet's data.
    pub(super) fn parser_failed(
        &mut self,
        proto: margay_app::AppProto,
        flow: &mut margay_flow::Flow<FlowExt>,
        fate: &mut PacketVerdict,
        seen: &mut tcp::Seen,
        packet: &Packet<'_>,
    ) {
        let policy = self.error_policy(flow);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        self.apply(Condition::AppLayerError, policy, packet, fate, Some(flow));
        seen.bypass |= policy == Policy::Bypass;
    }

    /// Handles a parser that failed on the rest of the stream at the end of a flow. There is no packet left to drop or pass.
    pub(super) fn parser_failed_at_end(&mut self, proto: margay_app::AppProto, flow: &mut margay_flow::Flow<FlowExt>) {
        let policy = self.error_policy(flow);
        self.counters.policies.count(Condition::AppLayerError, policy);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        flow.ext.note_exception(Condition::AppLayerError, policy);
    }

    /// Applies an exception policy to a packet and its flow, if there is one.
    pub(super) fn apply(
        &mut self,
        condition: Condition,
        policy: Policy,
        packet: &Packet<'_>,
        fate: &mut PacketVerdict,
        flow: Option<&mut margay_flow::Flow<FlowExt>>,
    ) {
        self.counters.policies.count(condition, policy);
        match policy {
            Policy::Ignore => {}
            Policy::DropPacket | Policy::DropFlow | Policy::Reject => {
                // Outside IPS mode nothing can be dropped. The packet still reaches its destination, so it is inspected.
                if self.ips {
                    fate.drop = Some(DropReason::Exception(condition));
                }
                if policy == Policy::Reject {
                    fate.reject = true;
                    if fate.rejected.is_none() {
                        (fate.rejected, fate.answers) = (Some(Reject::Source), Wire::how(packet));
                    }
                }
            }
            Policy::PassPacket | Policy::PassFlow | Policy::Bypass => fate.pass = true,
        }
        let Some(flow) = flow else { return };
        match policy {
            Policy::Reject if !self.ips => {}
            Policy::DropFlow | Policy::Reject => {
                flow.core.action = if self.ips { FlowAction::Drop } else { FlowAction::WouldDrop };
                flow.ext.dropped_by = FlowDropBy::Exception;
            }
            Policy::PassFlow | Policy::Bypass if self.firewall => flow.core.td_passed = true,
            Policy::PassFlow | Policy::Bypass => flow.core.action = FlowAction::Pass,
            _ => {}
        }
        flow.ext.note_exception(condition, policy);
    }
}
