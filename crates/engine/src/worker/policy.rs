//! Exception policies: what happens to a packet and its flow where something cannot be seen.

use margay_flow::FlowAction;

use super::firewall::FlowDropBy;
use super::{DropReason, Fate, FlowExt, Rest, tcp};
use crate::exception::{Condition, Policy};

impl Rest {
    /// The policy for a parser that gives up on a flow.
    pub(super) fn error_policy(&self, flow: &margay_flow::Flow<FlowExt>) -> Policy {
        let midstream = flow.ext.tcp.as_ref().is_some_and(|s| s.is_midstream());
        self.error_policies[usize::from(midstream)]
    }

    /// A parser gave up on a flow with this packet's data: applies `app-layer.error-policy`.
    pub(super) fn parser_failed(
        &mut self,
        proto: margay_app::AppProto,
        flow: &mut margay_flow::Flow<FlowExt>,
        fate: &mut Fate,
        seen: &mut tcp::Seen,
    ) {
        let policy = self.error_policy(flow);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        self.apply(Condition::AppLayerError, policy, fate, Some(flow));
        seen.bypass |= policy == Policy::Bypass;
    }

    /// A parser gave up on a flow with what was left of its stream when it ended: there is no packet any more to drop or pass.
    pub(super) fn parser_failed_at_end(&mut self, proto: margay_app::AppProto, flow: &mut margay_flow::Flow<FlowExt>) {
        let policy = self.error_policy(flow);
        self.counters.policies.count(Condition::AppLayerError, policy);
        self.counters.policies.count_error(flow.core.proto, proto, policy);
        flow.ext.note_exception(Condition::AppLayerError, policy);
    }

    /// Applies an exception policy to a packet and, where there is one, its flow.
    pub(super) fn apply(
        &mut self,
        condition: Condition,
        policy: Policy,
        fate: &mut Fate,
        flow: Option<&mut margay_flow::Flow<FlowExt>>,
    ) {
        self.counters.policies.count(condition, policy);
        match policy {
            Policy::Ignore => {}
            Policy::DropPacket | Policy::DropFlow | Policy::Reject => {
                // Elsewhere nothing can be dropped, and what still reaches its end is inspected.
                if self.ips {
                    fate.drop = Some(DropReason::Exception(condition));
                }
                fate.reject |= policy == Policy::Reject;
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
