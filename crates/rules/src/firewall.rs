//! Requirements on the header of a firewall rule, and restrictions for other rules.

use crate::ast::{Action, ActionScope, Effect, Protocol, Rule};
use crate::error::{Fail, fail};

const M: &str = "detect-parse";

/// Checks the header of a rule.
///
/// A firewall rule must state its action with a scope (`accept:hook`), and the hook where it is evaluated (`tcp:all`).
/// For other rules both are inferred.
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

#[cfg(test)]
mod tests {
    use crate::{Context, Loader};

    fn loads(header: &str) -> bool {
        let available = ["http1", "tls", "app-layer"].map(str::to_owned).into();
        let ctx = Context { available, ..Context::default() };
        let mut loader = Loader::new(&ctx);
        loader.load_firewall_bytes(format!("{header} any any -> any any (sid:1;)").as_bytes(), "fw.rules");
        let loaded = loader.finish();
        loaded.errors.iter().all(|e| e.firewall) && loaded.errors.is_empty() && loaded.rules.iter().all(|r| r.firewall)
    }

    #[test]
    fn action_scope_and_hook_have_to_be_said() {
        for good in [
            "accept:hook tcp:all",
            "accept:packet ip:pre_flow",
            "accept:flow,pass:flow,alert tcp:pre_stream",
            "accept:tx http1:request_line",
            "accept:flow tls:<client_hello_done",
            "drop:packet arp:all",
            "drop:flow,alert tls:client_hello_done",
            "config:packet ip:pre_flow",
        ] {
            assert!(loads(good), "{good}");
        }
        for bad in [
            "accept tcp:all",
            "accept:hook tcp",
            "accept:hook tcp:nothing",
            "accept:tx tcp:all",
            "accept:flow ip:pre_flow",
            "drop tcp:all",
            "drop:hook tcp:all",
            "drop:flow tls:<client_hello_done",
            "drop:flow,pass:flow tcp:all",
            "accept:hook,drop:flow tcp:all",
            "alert tcp:all",
            "pass:flow tcp:all",
        ] {
            assert!(!loads(bad), "{bad}");
        }
    }

    #[test]
    fn accept_is_for_firewall_rules() {
        for text in
            ["accept:hook tcp:all any any -> any any (sid:1;)", "alert,accept:flow tcp any any -> any any (sid:1;)"]
        {
            assert_eq!(crate::load_str(text, "t", &Context::default()).errors.len(), 1, "{text}");
        }
        assert!(
            crate::load_str("drop:packet tcp any any -> any any (sid:1;)", "t", &Context::default()).errors.is_empty()
        );
    }
}
