//! Firewall mode: the tables that are evaluated before the flow lookup and before the stream engine.

use margay_detect::firewall::{HookOutcome, PacketHook};
use margay_detect::{Input, Verdict};
use margay_flow::{Direction, Flow, FlowState};
use margay_packet::Packet;

use super::tcp::is_established;
use super::{FlowExt, PacketVerdict, Stages};

/// The cause of a flow's drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FlowDropBy {
    /// A threat detection rule, as without firewall mode.
    #[default]
    Rules,
    /// A firewall rule, or a policy of the firewall.
    Firewall,
    /// An exception policy.
    Exception,
}

impl FlowDropBy {
    /// The cause with that number.
    pub(super) const fn of(number: u8) -> FlowDropBy {
        match number {
            n if n == FlowDropBy::Firewall as u8 => FlowDropBy::Firewall,
            n if n == FlowDropBy::Exception as u8 => FlowDropBy::Exception,
            _ => FlowDropBy::Rules,
        }
    }
}

/// The result of the tables before the flow lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BeforeFlow {
    Next,
    Untracked,
    Dropped,
}

impl Stages {
    /// Whether rules are evaluated before the flow lookup.
    pub(super) fn looks_before_flow(&self) -> bool {
        self.firewall || self.detect.as_ref().is_some_and(|(d, _)| d.looks_before_flow())
    }

    /// Evaluates `packet:pre_flow`, and the rules that exclude packets from flow tracking. Logs the packet if it is dropped.
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

    /// Evaluates `packet:pre_stream`. Returns the verdict for a dropped packet.
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
