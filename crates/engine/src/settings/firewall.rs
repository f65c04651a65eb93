//! `firewall`: whether it is on, its rule files, and the policies for packets that no rule matches.

use std::path::PathBuf;

use margay_app::{PROTOCOLS, Protocol};
use margay_config::{Config, ConfigError, Node, RunOptions};
use margay_detect::firewall::{FirewallPolicies, PacketHook, Policy, app_hook};

use super::flag;
use crate::Failed;

/// Whether firewall mode is on, by the configuration or the command line.
pub(crate) fn is_firewall(config: &Config, options: &RunOptions) -> Result<bool, ConfigError> {
    Ok(options.firewall || options.firewall_rules.is_some() || flag(config, "firewall.enabled", false)?)
}

/// The folder of firewall rule files without a path (`firewall.rule-path`).
pub(crate) fn firewall_folder(config: &Config) -> &str {
    config.get("firewall.rule-path").filter(|f| !f.is_empty()).unwrap_or("/etc/margay/firewall")
}

/// The firewall rule files: that of `--firewall-rules-exclusive`, or else those of the configuration.
pub(crate) fn firewall_files(config: &Config, options: &RunOptions) -> Vec<PathBuf> {
    if let Some(file) = &options.firewall_rules {
        return vec![file.clone()];
    }
    let folder = PathBuf::from(firewall_folder(config));
    let list = config.node("firewall.rule-files");
    list.map_or_else(Vec::new, |l| l.values().map(|name| folder.join(name)).collect())
}

fn wrong(path: &str, why: &str) -> Failed {
    Failed::new("firewall", format!("firewall.policies.{path}: {why}"))
}

/// The policy at a node: one action with its scope.
fn policy(node: Node<'_>, path: &str) -> Result<Policy, Failed> {
    let actions: Vec<&str> = node.values().collect();
    match *actions.as_slice() {
        [one] => Policy::parse(one).ok_or_else(|| {
            wrong(path, "not an action with its scope: accept:hook, accept:packet, accept:flow, drop:packet, drop:flow")
        }),
        [] => Err(wrong(path, "there is no action")),
        _ => {
            Err(wrong(path, "takes one action in this release: further actions (alert) are not possible for a policy"))
        }
    }
}

fn at(node: Option<Node<'_>>, key: &str, path: &str) -> Result<Option<Policy>, Failed> {
    node.and_then(|n| n.node(key)).map(|n| policy(n, &format!("{path}{key}"))).transpose()
}

/// `firewall.policies`. For each hook, the most specific setting applies.
///
/// # Errors
/// An unknown action, or one that is impossible for its hook.
pub(crate) fn firewall_policies(config: &Config) -> Result<FirewallPolicies, Failed> {
    const DEFAULT: &str = "default-policy";
    let mut out = FirewallPolicies::default();
    let Some(root) = config.node("firewall.policies") else { return Ok(out) };
    let general = at(Some(root), DEFAULT, "")?;
    let packet = root.node("packet");
    let of_packets = at(packet, DEFAULT, "packet.")?.or(general);
    let hooks =
        [("pre-flow", PacketHook::PreFlow), ("pre-stream", PacketHook::PreStream), ("filter", PacketHook::Filter)];
    for ((name, hook), slot) in hooks.into_iter().zip(out.packet.iter_mut()) {
        let Some(policy) = at(packet, name, "packet.")?.or(of_packets) else { continue };
        if !policy.fits(hook) {
            return Err(wrong(&format!("packet.{name}"), "the scope of its action is not possible for this hook"));
        }
        *slot = policy;
    }
    for n in packet.into_iter().flat_map(|p| p.children()) {
        let key = n.name();
        if key != DEFAULT && !hooks.iter().any(|h| h.0 == key) {
            return Err(wrong(&format!("packet.{key}"), "there is no such hook: filter, pre-flow, pre-stream"));
        }
    }
    let app = root.node("app");
    if let Some(policy) = at(app, DEFAULT, "app.")?.or(general) {
        out.app = policy;
    }
    for n in app.into_iter().flat_map(|a| a.children()) {
        let name = n.name();
        if name == DEFAULT {
            continue;
        }
        let Some(protocol) = PROTOCOLS.iter().find(|p| p.proto.rule_name() == name) else {
            return Err(wrong(&format!("app.{name}"), "there is no protocol of this name with a parser"));
        };
        of_protocol(protocol, n, name, &mut out)?;
    }
    Ok(out)
}

fn of_protocol(protocol: &Protocol, node: Node<'_>, name: &str, out: &mut FirewallPolicies) -> Result<(), Failed> {
    let path = format!("app.{name}.");
    let key = |dir, state| (protocol.proto, dir, state);
    if let Some(policy) = at(Some(node), "default-policy", &path)? {
        for dir in [margay_flow::Direction::ToServer, margay_flow::Direction::ToClient] {
            let states = (0u8..).zip(protocol.states[dir.index()]);
            out.hooks.extend(states.map(|(s, _)| (key(dir, s), policy)));
        }
    }
    for n in node.children() {
        let hook = n.name();
        if hook == "default-policy" {
            continue;
        }
        // Rules use underscores.
        let Some((dir, state)) = app_hook(protocol, &hook.replace('-', "_")) else {
            return Err(wrong(&format!("{path}{hook}"), "the protocol has no such hook"));
        };
        out.hooks.push((key(dir, state), policy(n, &format!("{path}{hook}"))?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use margay_app::AppProto;
    use margay_flow::Direction;

    use super::*;

    fn policies(text: &str) -> Result<FirewallPolicies, Failed> {
        let text = format!("%YAML 1.1\n---\nfirewall:\n  policies:\n{text}");
        firewall_policies(&Config::from_str(&text, "t").unwrap())
    }

    #[test]
    fn the_most_specific_policy_counts() {
        let p = policies(
            "    default-policy: [\"accept:hook\"]\n    packet:\n      default-policy: [\"drop:packet\"]\n      \
             pre-flow: [\"accept:packet\"]\n    app:\n      dns:\n        default-policy: [\"drop:packet\"]\n        \
             request-complete: [\"accept:tx\"]\n",
        )
        .unwrap();
        let accept_packet = Policy::parse("accept:packet").unwrap();
        assert_eq!(p.packet, [accept_packet, Policy::DROP_PACKET, Policy::DROP_PACKET]);
        assert_eq!(p.app, Policy::ACCEPT_HOOK);
        let of = |dir, state| p.hooks.iter().rev().find(|h| h.0 == (AppProto::Dns, dir, state)).map(|h| h.1);
        assert_eq!(of(Direction::ToServer, 0), Some(Policy::DROP_PACKET));
        assert_eq!(of(Direction::ToServer, 1), Policy::parse("accept:tx"));
    }

    #[test]
    fn what_is_not_possible_is_said() {
        for text in [
            "    default-policy: [\"accept:tx\"]\n",
            "    packet:\n      filter: [\"drop:hook\"]\n",
            "    packet:\n      nothing: [\"drop:packet\"]\n",
            "    app:\n      nothing:\n        default-policy: [\"drop:flow\"]\n",
            "    app:\n      dns:\n        nothing: [\"drop:flow\"]\n",
            "    app:\n      default-policy: [\"drop:flow\", \"alert\"]\n",
        ] {
            assert!(policies(text).is_err(), "{text}");
        }
    }
}
