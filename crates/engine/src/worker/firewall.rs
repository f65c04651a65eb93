//! Firewall mode: the tables that come before the flow and before the stream.

use margay_detect::firewall::{HookOutcome, PacketHook};
use margay_detect::{Input, Verdict};
use margay_flow::{Direction, Flow, FlowState};
use margay_packet::Packet;

use super::tcp::is_established;
use super::{FlowExt, PacketVerdict, Stages};

/// Who dropped a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FlowDropBy {
    /// A rule for threat detection, as it is without firewall mode.
    #[default]
    Rules,
    /// A firewall rule, or a policy of the firewall.
    Firewall,
    /// An exception policy.
    Exception,
}

/// What is to be done with a packet before its flow is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeforeFlow {
    Next,
    Untracked,
    Dropped,
}

impl Stages {
    /// Whether rules are to be asked about a packet before its flow is looked up.
    pub(super) fn looks_before_flow(&self) -> bool {
        self.firewall || self.detect.as_ref().is_some_and(|(d, _)| d.looks_before_flow())
    }

    /// Asks `packet:pre_flow`, and the rules that take packets out of flow tracking. A packet that is dropped is seen to.
    pub(super) fn before_flow(&mut self, packet: &Packet<'_>, fate: &mut PacketVerdict) -> BeforeFlow {
        let Some((detect, state)) = &mut self.detect else { return BeforeFlow::Next };
        let mut input = Input { ips: self.ips, ..Input::new(packet) };
        match state.firewall_hook(detect, PacketHook::PreFlow, &mut input) {
            HookOutcome::Next if state.untracked(detect, &mut input) => BeforeFlow::Untracked,
            HookOutcome::Next => BeforeFlow::Next,
            HookOutcome::Untracked => BeforeFlow::Untracked,
            HookOutcome::Dropped(verdict) => {
                self.log_anomalies(packet, None, &[]);
                self.carry_out(packet, None, verdict, fate);
                self.log_drop(packet, None, *fate);
                BeforeFlow::Dropped
            }
        }
    }

    /// Asks `packet:pre_stream`: the verdict for a packet that is dropped.
    pub(super) fn before_stream(
        &mut self,
        packet: &Packet<'_>,
        flow: &mut Flow<FlowExt>,
        dir: Direction,
    ) -> Option<Verdict> {
        let (detect, state) = self.detect.as_mut()?;
        let established = match flow.core.proto {
            6 => is_established(flow.core.state),
            _ => flow.core.state == FlowState::Established,
        };
        let mut input =
            Input { flow: Some(&mut flow.core), dir: Some(dir), established, ips: self.ips, ..Input::new(packet) };
        match state.firewall_hook(detect, PacketHook::PreStream, &mut input) {
            HookOutcome::Dropped(verdict) => Some(verdict),
            _ => None,
        }
    }
}
