//! Converts the configuration to each crate's settings. Every key that the engine uses is read here, once.

mod app;
mod app_log;
mod datasets;
mod declared;
mod decode;
mod detect;
mod dns;
mod files;
mod filter;
mod firewall;
mod flow;
mod ftp;
mod http2;
mod lines;
mod load;
mod outputs;
mod recognise;
mod remote;
mod smb;
mod smtp;
mod socket;
mod ssh;
mod stream;
mod tenants;
mod tls;
mod web;

pub(crate) use app::app;
pub(crate) use datasets::{configured_sets, datasets};
pub(crate) use decode::{decode, host_policies};
pub(crate) use detect::{custom_groups, detect};
pub(crate) use files::{check_store, files};
pub(crate) use filter::filter;
pub(crate) use firewall::{firewall_files, firewall_folder, firewall_policies, is_firewall};
pub(crate) use flow::flow;
#[cfg(test)]
pub(crate) use load::log_folder;
pub(crate) use load::{CONFIGURATION, configuration, log_dir};
pub(crate) use outputs::{
    ScriptFiles, WORTH, open_files, outputs, search_ahead, shows_ja4, test_outputs, wants_ethernet, writer_thread,
};
pub(crate) use recognise::{list_app_protos, recogniser};
pub(crate) use remote::{Reach, reach};
pub(crate) use socket::{SOCKET_FOLDER, socket, socket_path};
pub(crate) use ssh::ssh;
pub(crate) use stream::{stream, validates};
pub(crate) use tenants::{Mappings, Selector, TenantSettings, VLAN_MAX, tenant_config, tenants, vlan_id};
pub(crate) use tls::{JaWants, certificate_folder, fingerprints, tls};
pub(crate) use web::{WebSettings, web};

use std::net::IpAddr;

use margay_config::{Config, ConfigError, Node};

/// The folder of rule files, and of output scripts, without a path (`default-rule-path`).
pub(crate) fn rule_folder(config: &Config) -> &str {
    config.get("default-rule-path").filter(|f| !f.is_empty()).unwrap_or("/var/lib/margay/rules")
}

/// An integer at `path` that fits into `T`; `default` if not set.
///
/// # Errors
/// Not a number, or out of range.
pub(crate) fn number<T: TryFrom<i64>>(config: &Config, path: &str, default: T) -> Result<T, ConfigError> {
    let Some(n) = config.int(path)? else { return Ok(default) };
    T::try_from(n).map_err(|_| wrong(config, path, &format!("{n} is out of range")))
}

/// An integer at `path` other than 0.
///
/// # Errors
/// As [`number`]; 0.
pub(crate) fn at_least_one<T: TryFrom<i64> + PartialEq + Default>(
    config: &Config,
    path: &str,
    default: T,
) -> Result<T, ConfigError> {
    match number(config, path, default)? {
        n if n == T::default() => Err(wrong(config, path, "must be at least 1")),
        n => Ok(n),
    }
}

/// A size in bytes at `path`.
///
/// # Errors
/// Not a size.
pub(crate) fn size(config: &Config, path: &str, default: u64) -> Result<u64, ConfigError> {
    Ok(config.size(path)?.unwrap_or(default))
}

/// The memory of a table at `path`. Without any, the table would hold nothing.
///
/// # Errors
/// As [`size`]; 0.
pub(crate) fn memcap(config: &Config, path: &str, default: u64) -> Result<u64, ConfigError> {
    match size(config, path, default)? {
        0 => Err(wrong(config, path, "must be at least 1")),
        n => Ok(n),
    }
}

/// A boolean at `path`.
///
/// # Errors
/// Not a boolean.
pub(crate) fn flag(config: &Config, path: &str, default: bool) -> Result<bool, ConfigError> {
    Ok(config.bool(path)?.unwrap_or(default))
}

/// Stack size of a worker's thread (`threading.stack-size`): never less than scripts need.
///
/// # Errors
/// Not a size, or an impossible one.
pub(crate) fn stack_size(config: &Config) -> Result<usize, ConfigError> {
    const PATH: &str = "threading.stack-size";
    const MOST: u64 = 1 << 30;
    let least = margay_lua::STACK;
    let wanted = size(config, PATH, least as u64)?;
    if wanted > MOST {
        return Err(wrong(config, PATH, "is more than 1 GiB"));
    }
    let wanted = usize::try_from(wanted).unwrap_or(least);
    if wanted < least {
        margay_output::info!(
            "threading",
            "{PATH}: scripts need a stack of {} MiB: that is what workers get",
            least >> 20
        );
    }
    Ok(wanted.max(least))
}

/// Wall-clock time, for engine events and file names.
pub(crate) fn now() -> margay_packet::Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    margay_packet::Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// An error for the setting at `path`, with its position.
pub(crate) fn wrong(config: &Config, path: &str, reason: &str) -> ConfigError {
    match config.node(path) {
        Some(n) => n.error(format!("{path}: {reason}")),
        None => ConfigError::new(margay_config::Place::file("configuration"), format!("{path}: {reason}")),
    }
}

/// The items of a list that is written as one text: `80, 443` or `[80, 443]`. `None` if one of the brackets is missing.
fn items(text: &str) -> Option<impl Iterator<Item = &str>> {
    let text = text.trim();
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None if text.ends_with(']') => return None,
        None => text,
    };
    Some(inner.split(',').map(str::trim).filter(|i| !i.is_empty()))
}

/// The reason why a list has no [`items`].
fn no_pair(text: &str) -> String {
    format!("\"{text}\" has one bracket without the other")
}

/// The items of all texts of a setting; errors name it `name`.
///
/// # Errors
/// A bracket is missing.
fn all_items<'a>(node: Node<'a>, name: &str) -> Result<Vec<&'a str>, ConfigError> {
    let mut all = Vec::new();
    for text in node.values() {
        all.extend(items(text).ok_or_else(|| node.error(format!("{name}: {}", no_pair(text))))?);
    }
    Ok(all)
}

/// The networks of a setting, one or a list: addresses with the lengths of their prefixes. Errors name it `name`.
///
/// # Errors
/// Not a network, or a bracket is missing.
fn networks(node: Node<'_>, name: &str) -> Result<Vec<(IpAddr, u8)>, ConfigError> {
    let network = |text: &str| {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr =
            address.trim().parse().map_err(|_| node.error(format!("{name}: \"{text}\" is no network")))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        match prefix.map(|p| p.trim().parse::<u8>()) {
            None => Ok((address, longest)),
            Some(Ok(p)) if p <= longest => Ok((address, p)),
            _ => Err(node.error(format!("{name}: \"{text}\" has no valid prefix length"))),
        }
    };
    all_items(node, name)?.into_iter().map(network).collect()
}

/// The ports of a setting, sorted: `4789`, `[4789, 4800:4810]`, `$VXLAN_PORTS`, `any` (empty).
///
/// # Errors
/// An invalid port, an unknown variable, or variables that are nested too deeply.
pub(crate) fn ports(config: &Config, path: &str, default: u16) -> Result<Vec<u16>, ConfigError> {
    let Some(node) = config.node(path) else { return Ok(vec![default]) };
    let mut out = Vec::new();
    for text in node.values() {
        add_ports(config, path, text, 0, &mut out)?;
    }
    out.sort_unstable();
    out.dedup();
    Ok(out)
}

fn add_ports(config: &Config, path: &str, text: &str, depth: u8, out: &mut Vec<u16>) -> Result<(), ConfigError> {
    if depth > 8 {
        return Err(wrong(config, path, "port variables refer to each other in a circle"));
    }
    let parts = items(text).ok_or_else(|| wrong(config, path, &no_pair(text)))?;
    for part in parts.filter(|p| *p != "any") {
        if let Some(name) = part.strip_prefix('$') {
            let Some((_, value)) = config.port_groups().find(|(n, _)| *n == name) else {
                return Err(wrong(config, path, &format!("there is no port variable \"{name}\" in vars.port-groups")));
            };
            add_ports(config, path, value, depth + 1, out)?;
        } else {
            let (first, last) = part.split_once(':').unwrap_or((part, part));
            match (first.trim().parse::<u16>(), last.trim().parse()) {
                (Ok(first), Ok(last)) if first <= last => out.extend(first..=last),
                _ => return Err(wrong(config, path, &format!("\"{part}\" is no port and no range of ports"))),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_workers() {
        let of = |text: &str| {
            let config = Config::from_str(&format!("%YAML 1.1\n---\nthreading:\n  a: b\n{text}"), "t").unwrap();
            stack_size(&config).map_err(|e| e.to_string())
        };
        assert_eq!(of(""), Ok(margay_lua::STACK));
        assert_eq!(of("  stack-size: 64mb\n"), Ok(64 << 20));
        assert_eq!(of("  stack-size: 512kb\n"), Ok(margay_lua::STACK));
        assert!(of("  stack-size: 2gb\n").unwrap_err().contains("1 GiB"));
    }
}
