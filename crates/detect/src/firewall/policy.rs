//! The default policies of tables, for packets that no rule matches.

use margay_app::{AppProto, Protocol};
use margay_flow::Direction;
use margay_rules::ast::ActionScope;

use super::PacketHook;
use crate::tx::state_of;

/// A decision and its scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Whether it accepts.
    pub accept: bool,
    /// The scope.
    pub scope: ActionScope,
}

impl Policy {
    /// `accept:hook`
    pub const ACCEPT_HOOK: Policy = Policy { accept: true, scope: ActionScope::Hook };
    /// `drop:packet`
    pub const DROP_PACKET: Policy = Policy { accept: false, scope: ActionScope::Packet };
    /// `drop:flow`
    pub const DROP_FLOW: Policy = Policy { accept: false, scope: ActionScope::Flow };

    /// Parses a text such as `accept:hook`.
    pub fn parse(text: &str) -> Option<Policy> {
        let (action, scope) = text.split_once(':')?;
        let scope = match scope {
            "packet" => ActionScope::Packet,
            "flow" => ActionScope::Flow,
            "hook" => ActionScope::Hook,
            "tx" => ActionScope::Transaction,
            _ => return None,
        };
        match (action, scope) {
            ("accept", _) => Some(Policy { accept: true, scope }),
            ("drop", ActionScope::Packet | ActionScope::Flow) => Some(Policy { accept: false, scope }),
            _ => None,
        }
    }

    /// Whether a packet table can have this policy.
    pub fn fits(self, hook: PacketHook) -> bool {
        match self.scope {
            ActionScope::Transaction => false,
            ActionScope::Flow => hook != PacketHook::PreFlow,
            _ => true,
        }
    }
}

/// The policies of all tables (`firewall.policies`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallPolicies {
    /// Policies of the packet tables, in the order of [`PacketHook`].
    pub packet: [Policy; 3],
    /// Policy of all transaction tables not in `hooks`.
    pub app: Policy,
    /// Policies of single states of a protocol in one direction.
    pub hooks: Vec<((AppProto, Direction, u8), Policy)>,
}

impl Default for FirewallPolicies {
    fn default() -> Self {
        FirewallPolicies {
            packet: [Policy::ACCEPT_HOOK, Policy::ACCEPT_HOOK, Policy::DROP_PACKET],
            app: Policy::DROP_FLOW,
            hooks: Vec::new(),
        }
    }
}

impl FirewallPolicies {
    pub(crate) fn app(&self, proto: AppProto, dir: Direction, state: u8) -> Policy {
        self.hooks.iter().rev().find(|h| h.0 == (proto, dir, state)).map_or(self.app, |h| h.1)
    }
}

/// The direction and state of a hook's name in a protocol.
pub fn app_hook(protocol: &Protocol, name: &str) -> Option<(Direction, u8)> {
    [Direction::ToServer, Direction::ToClient].into_iter().find_map(|d| Some((d, state_of(protocol, d, name)?)))
}
