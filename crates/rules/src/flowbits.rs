//! Finds flowbits that rules test and no rule sets. Such a rule never matches; usually the name is misspelt or a file is
//! not loaded.

use std::collections::{HashMap, HashSet};

use crate::ast::{BitOp, BufferCheck, Check, Effect, Rule};
use crate::error::{Message, RuleWarning, Severity};

/// A warning for each such bit, in the order of the first tests, at the place of the first rule that tests it. `aside`
/// are rules that this build does not load; bits that they set count as set.
pub(crate) fn never_set(rules: &[Rule], aside: &[Rule]) -> Vec<RuleWarning> {
    let mut set: HashSet<&str> = HashSet::new();
    let mut scripts = false;
    for rule in rules.iter().chain(aside) {
        for effect in &rule.effects {
            if let Effect::FlowBit { names, op: BitOp::Set | BitOp::Toggle } = effect {
                set.extend(names.iter().map(String::as_str));
            }
        }
        scripts = scripts || has_script(rule);
    }
    let mut order: Vec<(&str, &Rule, usize)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for rule in rules {
        for check in &rule.checks {
            let Check::FlowBit { names, set: true } = check else { continue };
            for name in names.iter().map(String::as_str).filter(|name| !set.contains(name)) {
                match known.get(name).and_then(|at| order.get_mut(*at)) {
                    Some((_, _, others)) => *others += 1,
                    None => {
                        known.insert(name, order.len());
                        order.push((name, rule, 0));
                    }
                }
            }
        }
    }
    let script = if scripts { "; a Lua script may set it" } else { "" };
    let warning = |(name, rule, others): (&str, &Rule, usize)| RuleWarning {
        place: rule.place.clone(),
        message: Message {
            severity: Severity::Warning,
            module: "detect-flowbits",
            text: format!(
                "flowbit '{name}' is checked but not set. Checked in {} and {others} other sigs{script}",
                rule.sid
            ),
        },
    };
    order.into_iter().map(warning).collect()
}

/// Whether a script of the rule may set bits.
fn has_script(rule: &Rule) -> bool {
    rule.checks.iter().any(|c| matches!(c, Check::Lua(_)))
        || rule.buffers.iter().any(|b| b.checks.iter().any(|c| matches!(c, BufferCheck::Lua(_))))
}
