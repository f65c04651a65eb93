//! What the header of a firewall rule has to have, and what only a firewall rule may have.

use crate::ast::{Action, ActionScope, Effect, Protocol, Rule};
use crate::error::{Fail, fail};

const M: &str = "detect-parse";

/// Checks the header of a rule.
///
/// A firewall rule says what it does and how far that reaches (`accept:hook`), and where it is evaluated (`tcp:all`); what
/// other rules leave to be inferred.
pub(crate) fn header(rule: &Rule) -> Result<(), Fail> {
    let accepts = |e: &Effect| matches!(e, Effect::Action { action: Action::Accept, .. });
    if !rule.firewall {
        return match rule.action == Action::Accept || rule.effects.iter().any(accepts) {
            true => fail(M, "\"accept\" is for firewall rules: give its file with firewall.rule-files"),
            false => Ok(()),
        };
    }
    let app = matches!(rule.protocol, Protocol::App(_));
    let Some(hook) = rule.hook.as_deref() else {
        return fail(M, "firewall rules need a hook: tcp:all, tls:client_hello_done");
    };
    if !app && !matches!(hook, "all" | "flow_start" | "pre_flow" | "pre_stream") {
        return fail(M, format!("there is no hook \"{hook}\" for packets: all, flow_start, pre_flow, pre_stream"));
    }
    let before = hook.starts_with('<');
    if before && rule.action != Action::Accept {
        return fail(M, "only accept takes the hooks before its own along (\"<\")");
    }
    let Some(Effect::Action { scope: Some(scope), .. }) = rule.effects.first() else {
        return fail(M, "firewall rules need an action with a scope: accept:hook, drop:packet");
    };
    let possible = match (rule.action, scope) {
        (Action::Accept, ActionScope::Packet | ActionScope::Hook) => true,
        (Action::Accept | Action::Drop, ActionScope::Flow) => hook != "pre_flow" || app,
        (Action::Accept, ActionScope::Transaction) => app,
        (Action::Drop, ActionScope::Packet) => true,
        (Action::Config, ActionScope::Packet) => !app,
        _ => false,
    };
    if !possible {
        return fail(M, "this action or its scope is not possible in a firewall rule with this hook");
    }
    for e in rule.effects.iter().skip(1) {
        match e {
            Effect::Action { action: Action::Alert, scope: None } => {}
            Effect::Action { action: Action::Pass, scope: Some(ActionScope::Packet | ActionScope::Flow) }
                if rule.action == Action::Accept => {}
            Effect::Action { .. } => {
                return fail(
                    M,
                    "of a firewall rule the further actions are alert, and of accept pass:packet and pass:flow",
                );
            }
            _ => {}
        }
    }
    Ok(())
}
