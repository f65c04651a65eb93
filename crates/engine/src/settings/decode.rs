//! `decoder:`, `defrag:` and `host-os-policy:`.

use std::net::IpAddr;

use margay_config::{Config, ConfigError, Node};
use margay_packet::{DecodeConfig, DefragConfig, Policy, UdpTunnel};

use super::{all_items, at_least_one, flag, memcap, networks, ports};

/// The decoder's settings.
///
/// # Errors
/// An invalid value.
pub(crate) fn decode(config: &Config, ignore_checksums: bool) -> Result<DecodeConfig, ConfigError> {
    let d = DecodeConfig::default();
    Ok(DecodeConfig {
        max_layers: at_least_one(config, "decoder.max-layers", d.max_layers)?,
        vxlan: tunnel(config, "decoder.vxlan", 4789)?,
        geneve: tunnel(config, "decoder.geneve", 6081)?,
        teredo: tunnel(config, "decoder.teredo", 3544)?,
        vntag: flag(config, "decoder.vntag.enabled", d.vntag)?,
        erspan_type1: d.erspan_type1,
        ignore_checksums,
        defrag: defrag(config)?,
    })
}

fn tunnel(config: &Config, path: &str, port: u16) -> Result<UdpTunnel, ConfigError> {
    Ok(UdpTunnel {
        enabled: flag(config, &format!("{path}.enabled"), true)?,
        ports: ports(config, &format!("{path}.ports"), port)?,
    })
}

fn defrag(config: &Config) -> Result<DefragConfig, ConfigError> {
    let d = DefragConfig::default();
    let mut hosts = Vec::new();
    for (addr, prefix, name, node) in host_policies(config)? {
        let policy = Policy::from_os_name(name)
            .ok_or_else(|| node.error(format!("host-os-policy: \"{name}\" is no operating system that is known")))?;
        hosts.push((addr, prefix, policy));
    }
    let many = |path: &str, default: usize| -> Result<usize, ConfigError> {
        at_least_one(config, path, u32::try_from(default).unwrap_or(u32::MAX)).map(|n| n as usize)
    };
    Ok(DefragConfig {
        memcap: usize::try_from(memcap(config, "defrag.memcap", d.memcap as u64)?).unwrap_or(usize::MAX),
        hash_size: many("defrag.hash-size", d.hash_size)?,
        trackers: many("defrag.trackers", d.trackers)?,
        max_frags: many("defrag.max-frags", d.max_frags)?,
        timeout: at_least_one(config, "defrag.timeout", d.timeout)?,
        timeouts: host_timeouts(config)?,
        vlan_tracking: flag(config, "vlan.use-for-tracking", d.vlan_tracking)?,
        hosts,
        default_policy: d.default_policy,
        checksums: d.checksums,
        inline: d.inline,
    })
}

/// The timeouts of `defrag.host-config`, a list of groups of hosts: `- dmz: {timeout: 30, address: [10.0.0.0/8, any]}`.
///
/// # Errors
/// An invalid network or number.
fn host_timeouts(config: &Config) -> Result<Vec<(IpAddr, u8, u32)>, ConfigError> {
    let mut out = Vec::new();
    let Some(groups) = config.node("defrag.host-config") else { return Ok(out) };
    for group in groups.children().flat_map(|item| item.children()) {
        let Some(seconds) = group.get("timeout") else { continue };
        let seconds: u32 = match seconds.parse() {
            Ok(n) if n > 0 => n,
            _ => return Err(group.error(format!("defrag.host-config: \"{seconds}\" is no number of seconds"))),
        };
        let Some(addresses) = group.node("address") else { continue };
        let everywhere = [(IpAddr::from([0; 4]), 0), (IpAddr::from([0; 16]), 0)];
        let networks = match all_items(addresses, "defrag.host-config")?.contains(&"any") {
            true => everywhere.to_vec(),
            false => networks(addresses, "defrag.host-config")?,
        };
        out.extend(networks.into_iter().map(|(address, prefix)| (address, prefix, seconds)));
    }
    Ok(out)
}

/// The networks of `host-os-policy`: address, prefix length, operating system, and the node.
///
/// # Errors
/// An invalid network.
pub(crate) fn host_policies(config: &Config) -> Result<Vec<(IpAddr, u8, &str, Node<'_>)>, ConfigError> {
    let mut out = Vec::new();
    let Some(policies) = config.node("host-os-policy") else { return Ok(out) };
    for os in policies.children() {
        let of = |(addr, prefix)| (addr, prefix, os.name(), os);
        out.extend(networks(os, "host-os-policy")?.into_iter().map(of));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_ports_policies_and_sizes() {
        let text = "%YAML 1.1\n---\nvars:\n  port-groups:\n    V: \"[8472,4789:4791]\"\ndecoder:\n  max-layers: 4\n  vxlan:\n    \
                    enabled: yes\n    ports: $V\n  teredo:\n    ports: any\ndefrag:\n  memcap: 1mb\nhost-os-policy:\n  \
                    linux: [10.0.0.0/8, \"2001:db8::/32\"]\n  windows: [0.0.0.0/0]\n";
        let d = decode(&Config::from_str(text, "t").unwrap(), true).unwrap();
        assert_eq!((d.max_layers, d.vxlan.ports, d.teredo.ports.len()), (4, vec![4789, 4790, 4791, 8472], 0));
        assert_eq!(d.defrag.memcap, 1 << 20);
        assert_eq!(d.defrag.hosts.len(), 3);
        assert!(d.ignore_checksums);
    }

    #[test]
    fn groups_of_hosts_have_timeouts() {
        let text = "%YAML 1.1\n---\ndefrag:\n  host-config:\n    - dmz: {timeout: 30, address: [192.168.1.0/24, 10.1.1.1]}\n    \
                    - rest: {timeout: 45, address: [10.0.0.0/8, \"any\"]}\n";
        let d = decode(&Config::from_str(text, "t").unwrap(), true).unwrap();
        let seconds: Vec<_> = d.defrag.timeouts.iter().map(|t| (t.0.to_string(), t.1, t.2)).collect();
        let want = [("192.168.1.0", 24, 30), ("10.1.1.1", 32, 30), ("0.0.0.0", 0, 45), ("::", 0, 45)];
        assert_eq!(seconds, want.map(|(a, p, s)| (a.to_owned(), p, s)));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, word) in [
            ("decoder:\n  vxlan:\n    ports: $NONE\n", "NONE"),
            ("decoder:\n  vxlan:\n    ports: 99999\n", "99999"),
            ("decoder:\n  vxlan:\n    ports: \"9:8\"\n", "9:8"),
            ("host-os-policy:\n  linux: [10.0.0.0/99]\n", "10.0.0.0/99"),
            ("host-os-policy:\n  plan9: [10.0.0.0/9]\n", "plan9"),
            ("decoder:\n  max-layers: 1000\n", "1000"),
            ("decoder:\n  geneve: {ports: \"[80\"}\n", "\"[80\" has one bracket without the other"),
            ("decoder:\n  teredo: {ports: \"80]\"}\n", "\"80]\" has one bracket without the other"),
            ("host-os-policy:\n  linux: \"[10.0.0.0/8\"\n", "\"[10.0.0.0/8\" has one bracket without the other"),
            ("defrag:\n  timeout: 0\n", "defrag.timeout"),
            (
                "defrag:\n  host-config:\n    - dmz: {timeout: 0, address: [10.0.0.0/8]}\n",
                "\"0\" is no number of seconds",
            ),
            ("defrag:\n  host-config:\n    - dmz: {timeout: 5, address: [10.0.0.0/80]}\n", "10.0.0.0/80"),
        ] {
            let e = decode(&Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t").unwrap(), false).unwrap_err();
            assert!(e.to_string().contains(word), "{e}");
            assert!(e.place.line > 0, "{e}");
        }
    }
}
