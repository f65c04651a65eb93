//! The facts about a rule that outlive its syntax tree.

use std::sync::Arc;

use margay_rules::ast::{Action, Class, Place, Rule, Target};

use crate::lineage::fingerprint;

/// The parts of a rule that events and reports show. The syntax tree is dropped after compilation: in a large rule set
/// the trees take more memory than everything else.
#[derive(Debug)]
pub struct RuleFacts {
    /// Signature number.
    pub sid: u32,
    /// Generator number.
    pub gid: u32,
    /// Revision; 0 where not given.
    pub rev: u32,
    /// Priority; 1 is the most severe.
    pub priority: u32,
    /// What a match does.
    pub action: Action,
    /// Which end is the target of the attack.
    pub target: Option<Target>,
    /// Whether it is a firewall rule.
    pub firewall: bool,
    /// Class, if given and known.
    pub class: Option<Class>,
    /// Message; empty where not given.
    pub msg: Box<str>,
    /// File and line of the rule.
    pub place: Place,
    /// The rule's text as written, continuation lines joined.
    pub text: Arc<str>,
    /// Hash of everything that decides when the rule matches and what it does; `None` if it cannot be computed.
    pub(crate) fingerprint: Option<u64>,
    tree: Option<Box<Rule>>,
}

impl RuleFacts {
    /// The facts of `rule`, with its tree if `keep_tree`.
    pub(crate) fn of(mut rule: Rule, keep_tree: bool) -> RuleFacts {
        RuleFacts {
            sid: rule.sid,
            gid: rule.gid,
            rev: rule.rev,
            priority: rule.priority,
            action: rule.action,
            target: rule.target,
            firewall: rule.firewall,
            class: rule.class.clone(),
            msg: if keep_tree { rule.msg.as_str().into() } else { std::mem::take(&mut rule.msg).into_boxed_str() },
            place: rule.place.clone(),
            text: rule.text.clone(),
            fingerprint: fingerprint(&rule),
            tree: keep_tree.then(|| Box::new(rule)),
        }
    }

    /// The rule's syntax tree, if it was kept ([`crate::Environment::keep_trees`]).
    pub fn tree(&self) -> Option<&Rule> {
        self.tree.as_deref()
    }
}
