//! The facts about a rule that outlive its syntax tree.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use margay_rules::ast::{Action, Check, Class, Place, Rule, Target};

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

/// A hash that is equal for rules with the same checks and effects. `None` for a rule with a script, whose text may have
/// changed.
fn fingerprint(rule: &Rule) -> Option<u64> {
    if rule.checks.iter().any(|c| matches!(c, Check::Lua(_))) {
        return None;
    }
    let Rule { action, protocol, hook, src, sport, arrow, dst, dport, sid, gid, noalert, force_alert, .. } = rule;
    let Rule { checks, buffers, effects, thresholds, prefilter, firewall, .. } = rule;
    let mut h = DefaultHasher::new();
    (action, protocol, hook, arrow, sid, gid, noalert, force_alert, prefilter, firewall).hash(&mut h);
    (checks, buffers, effects, thresholds, src, sport, dst, dport).hash(&mut h);
    Some(h.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences in checks and effects change the fingerprint; differences in the texts do not.
    #[test]
    fn fingerprints() {
        let of = |rule: &str| {
            let loaded = margay_rules::load_str(rule, "t", &margay_rules::Context::customary());
            assert_eq!(loaded.accepted(), 1, "{rule}: {:?}", loaded.errors);
            fingerprint(loaded.rules.first().or(loaded.set_aside.first()).unwrap())
        };
        let base =
            "alert tcp $HOME_NET any -> any 80 (msg:\"a\"; content:\"x\"; offset:1; metadata:a b; rev:1; sid:1;)";
        let with = |from: &str, to: &str| of(&base.replace(from, to));
        assert_eq!(of(base), of(&format!("\n\n{base}")));
        for (from, to) in
            [("\"a\"", "\"b\""), ("rev:1", "rev:2"), ("a b", "c d"), ("sid:1;", "sid:1; classtype:unknown;")]
        {
            assert_eq!(of(base), with(from, to), "{to}");
        }
        let others = [
            ("alert", "drop"),
            ("tcp", "udp"),
            ("$HOME_NET", "any"),
            ("80", "81"),
            ("->", "<>"),
            ("\"x\"", "\"y\""),
            ("\"x\"", "!\"x\""),
            ("offset:1", "offset:2"),
            ("offset:1", "nocase"),
            ("sid:1;", "sid:1; noalert;"),
            ("sid:1;", "sid:1; flowbits:set,a;"),
            ("sid:1;", "sid:1; threshold:type limit, track by_src, count 1, seconds 5;"),
            ("sid:1;", "sid:2;"),
        ];
        let mut seen = vec![of(base)];
        for (from, to) in others {
            let f = with(from, to);
            assert!(f.is_some() && !seen.contains(&f), "{to}");
            seen.push(f);
        }
    }
}
