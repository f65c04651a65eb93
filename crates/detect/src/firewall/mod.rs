//! Firewall mode: rules that decide which packets pass, before any threat detection rule runs.
//!
//! As documented under "Firewall Mode Design". Firewall rules come first in the rule list, in file order, and are in
//! none of the other rules' groups. They are in tables; in each table the first matching rule decides:
//!
//! - `packet:pre_flow` and `packet:pre_stream`: before the flow lookup, and before stream processing;
//! - `packet:filter`: each packet;
//! - `app:filter`: one for each state of each protocol's transactions, in each direction.
//!
//! `accept:hook` continues with the next table. The other scopes of `accept` end the firewall for the packet, the
//! transaction or the flow. `drop` ends everything for the packet. If no rule of a table matches, the table's [`Policy`]
//! decides. Threat detection rules on packets run between the packet tables and the transaction tables (`packet:td`),
//! those on transactions after the latter (`app:td`). They see what the firewall accepts, and their decisions never
//! change later decisions of the firewall: their `pass` ends threat detection, not the firewall.
//!
//! The table of a transaction's state runs with every change while the transaction is in that state, and once more after
//! it left the state. [`margay_app::TxFirewall`] remembers the progress.

mod policy;
#[cfg(test)]
mod tests;

use margay_app::{AppProto, Protocol};
use margay_flow::Direction;
use margay_rules::ast::{Action, ActionScope, Effect, Rule};

use crate::header::transport;
use crate::input::Verdict;
use crate::kind::untracks;
use crate::rule::CompiledRule;
use crate::tx::{TxGroup, state_of};

pub use policy::{FirewallPolicies, Policy, app_hook};

/// A table for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketHook {
    /// `packet:pre_flow`
    PreFlow,
    /// `packet:pre_stream`
    PreStream,
    /// `packet:filter`
    Filter,
}

impl PacketHook {
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// The decision of a table before the flow or the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookOutcome {
    /// Continue with the next step.
    Next,
    /// The packet stays out of flow tracking.
    Untracked,
    /// The packet is dropped; its alerts are available.
    Dropped(Verdict),
}

/// The effect of a matching firewall rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirewallRule {
    pub(crate) verdict: Option<Policy>,
    /// `pass` as an additional action: threat detection skips this packet, or the whole flow.
    pub(crate) pass: Option<ActionScope>,
    /// `config: tracking disable`: the packet stays out of flow tracking.
    pub(crate) untracked: bool,
}

/// The rules of one packet table, by transport.
#[derive(Debug)]
struct PacketTable {
    rules: [Box<[u32]>; 7],
    policy: Policy,
}

/// A rule in a transaction table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) rule: u32,
    /// Whether the rule belongs to a later state (`<`) and only accepts here.
    pub(crate) implied: bool,
}

/// The table of one state.
#[derive(Debug)]
pub(crate) struct StateTable {
    pub(crate) rules: Vec<Entry>,
    pub(crate) policy: Policy,
}

/// The compiled firewall.
#[derive(Debug)]
pub(crate) struct Firewall {
    rules: Box<[FirewallRule]>,
    packet: [PacketTable; 3],
    /// By protocol and direction, the tables of the states.
    apps: Box<[Box<[StateTable]>]>,
    /// An empty group, for protocols that no rule inspects.
    pub(crate) no_group: TxGroup,
}

impl Firewall {
    /// Builds the firewall from the rules, in which firewall rules come first.
    pub(crate) fn new(
        rules: &[Rule],
        compiled: &[CompiledRule],
        protocols: &[&'static Protocol],
        policies: &FirewallPolicies,
    ) -> Firewall {
        let mut packet: [[Vec<u32>; 7]; 3] = Default::default();
        let mut apps: Vec<Vec<StateTable>> = Vec::new();
        for p in protocols {
            for dir in [Direction::ToServer, Direction::ToClient] {
                let at = place(p.proto, dir);
                if apps.len() <= at {
                    apps.resize_with(at + 1, Vec::new);
                }
                let states = (0u8..).zip(p.states[dir.index()]);
                apps[at] = states
                    .map(|(s, name)| StateTable {
                        rules: Vec::new(),
                        policy: match p.is_hook(name) {
                            true => policies.app(p.proto, dir, s),
                            false => Policy::ACCEPT_HOOK,
                        },
                    })
                    .collect();
            }
        }
        let mut of_firewall = Vec::new();
        for ((number, rule), c) in (0u32..).zip(rules).zip(compiled).take_while(|((_, r), _)| r.firewall) {
            of_firewall.push(firewall_rule(rule));
            let hook = rule.hook.as_deref().unwrap_or_default();
            let Some(tx) = &c.tx else {
                let table = &mut packet[packet_hook(hook).index()];
                for (bit, list) in (0..).zip(table.iter_mut()) {
                    if c.header.transports & 1 << bit != 0 {
                        list.push(number);
                    }
                }
                continue;
            };
            let (name, before) = hook.strip_prefix('<').map_or((hook, false), |n| (n, true));
            for plan in &tx.plans {
                let protocol = protocols.iter().find(|p| p.proto == plan.proto);
                let Some(state) = protocol.and_then(|p| state_of(p, plan.dir, name)) else { continue };
                let Some(tables) = apps.get_mut(place(plan.proto, plan.dir)) else { continue };
                for (s, table) in (0u8..=state).zip(tables.iter_mut()) {
                    if s == state || before {
                        table.rules.push(Entry { rule: number, implied: s != state });
                    }
                }
            }
        }
        let mut policy = policies.packet.into_iter();
        let packet = packet.map(|rules| PacketTable {
            rules: rules.map(Vec::into_boxed_slice),
            policy: policy.next().unwrap_or(Policy::DROP_PACKET),
        });
        Firewall {
            rules: of_firewall.into_boxed_slice(),
            packet,
            apps: apps.into_iter().map(Vec::into_boxed_slice).collect(),
            no_group: TxGroup::default(),
        }
    }

    pub(crate) fn table(&self, hook: PacketHook, transport: u8) -> (&[u32], Policy) {
        let table = &self.packet[hook.index()];
        let rules = table.rules.get((transport & transport::ALL).trailing_zeros() as usize);
        (rules.map_or(&[], |r| r), table.policy)
    }

    /// The tables of a protocol's states; empty if it has no parser.
    pub(crate) fn states(&self, proto: AppProto, dir: Direction) -> &[StateTable] {
        self.apps.get(place(proto, dir)).map_or(&[], |t| t)
    }

    pub(crate) fn rule(&self, number: u32) -> Option<FirewallRule> {
        self.rules.get(number as usize).copied()
    }
}

const fn place(proto: AppProto, dir: Direction) -> usize {
    proto as usize * 2 + dir.index()
}

fn packet_hook(name: &str) -> PacketHook {
    match name {
        "pre_flow" => PacketHook::PreFlow,
        "pre_stream" => PacketHook::PreStream,
        _ => PacketHook::Filter,
    }
}

fn firewall_rule(rule: &Rule) -> FirewallRule {
    let scope = rule.effects.iter().find_map(|e| match e {
        Effect::Action { action, scope } if *action == rule.action => *scope,
        _ => None,
    });
    let pass = rule.effects.iter().find_map(|e| match e {
        Effect::Action { action: Action::Pass, scope } => *scope,
        _ => None,
    });
    let accept = match rule.action {
        Action::Accept => Some(true),
        Action::Config => None,
        _ => Some(false),
    };
    FirewallRule {
        verdict: accept.map(|accept| Policy { accept, scope: scope.unwrap_or(ActionScope::Packet) }),
        pass,
        untracked: rule.effects.iter().any(untracks),
    }
}
