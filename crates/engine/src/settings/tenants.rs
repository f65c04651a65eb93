//! `multi-detect`: tenants, and the mappings from packets to tenants.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use margay_config::{Config, ConfigError, Node};

use super::{flag, number, wrong};

/// Limit of the threads that load tenants' rules.
const LOADERS_MAX: usize = 64;
/// Largest VLAN id of a mapping.
pub(crate) const VLAN_MAX: u16 = 4094;

/// How a packet's tenant is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Selector {
    /// By the client that submits a capture file (`pcap-file`).
    #[default]
    Direct,
    /// By the packet's outermost VLAN.
    Vlan,
    /// By the interface it arrived on.
    Device,
}

impl Selector {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Selector::Direct => "direct",
            Selector::Vlan => "vlan",
            Selector::Device => "device",
        }
    }
}

/// The tenants of packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Mappings {
    pub(crate) selector: Selector,
    /// Tenants by VLAN.
    pub(crate) vlans: HashMap<u16, u32>,
    /// Tenants by interface.
    pub(crate) devices: HashMap<String, u32>,
}

/// `multi-detect`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TenantSettings {
    pub(crate) enabled: bool,
    /// Whether packets without a tenant are inspected with the engine's own rules.
    pub(crate) default: bool,
    /// Threads that load tenants' rules.
    pub(crate) loaders: usize,
    /// Tenants and their files.
    pub(crate) tenants: Vec<(u32, PathBuf)>,
    pub(crate) mappings: Mappings,
}

/// The settings of tenants.
///
/// # Errors
/// An invalid value, or a duplicate tenant or mapping.
pub(crate) fn tenants(config: &Config) -> Result<TenantSettings, ConfigError> {
    let mut out = TenantSettings { default: true, loaders: 1, ..TenantSettings::default() };
    if !flag(config, "multi-detect.enabled", false)? {
        return Ok(out);
    }
    out.enabled = true;
    out.default = flag(config, "multi-detect.default", true)?;
    out.loaders = number(config, "multi-detect.loaders", 1usize)?;
    if !(1..=LOADERS_MAX).contains(&out.loaders) {
        return Err(wrong(config, "multi-detect.loaders", &format!("must be between 1 and {LOADERS_MAX} threads")));
    }
    out.mappings.selector = match config.get("multi-detect.selector") {
        None | Some("") => {
            let why = "multi-detect needs it: direct, vlan or device";
            return Err(wrong(config, "multi-detect.selector", why));
        }
        Some("direct") => Selector::Direct,
        Some("vlan") => Selector::Vlan,
        Some("device") => Selector::Device,
        Some(other) => {
            let why = format!("\"{other}\" is no selector; there are direct, vlan and device");
            return Err(wrong(config, "multi-detect.selector", &why));
        }
    };
    if out.mappings.selector == Selector::Vlan && !flag(config, "vlan.use-for-tracking", true)? {
        let why = "vlan needs vlan.use-for-tracking: packets of several VLANs would share a flow";
        return Err(wrong(config, "multi-detect.selector", why));
    }
    let folder = config.get("multi-detect.config-path").filter(|p| !p.is_empty());
    for item in config.node("multi-detect.tenants").iter().flat_map(Node::children) {
        let id = tenant_id(item, "id")?;
        let Some(yaml) = item.get("yaml").filter(|y| !y.is_empty()) else {
            return Err(item.error(format!("multi-detect.tenants: tenant {id} has no yaml")));
        };
        if out.tenants.iter().any(|t| t.0 == id) {
            return Err(item.error(format!("multi-detect.tenants: tenant {id} is there twice")));
        }
        out.tenants.push((id, folder.map_or_else(|| PathBuf::from(yaml), |f| Path::new(f).join(yaml))));
    }
    for item in config.node("multi-detect.mappings").iter().flat_map(Node::children) {
        let id = tenant_id(item, "tenant-id")?;
        let twice = |what: &str| item.error(format!("multi-detect.mappings: {what} is there twice"));
        if let Some(vlan) = item.int("vlan-id")? {
            let Some(vlan) = vlan_id(vlan) else {
                return Err(item.error(format!("multi-detect.mappings: vlan-id {vlan} is not 1 to {VLAN_MAX}")));
            };
            if out.mappings.vlans.insert(vlan, id).is_some() {
                return Err(twice(&format!("VLAN {vlan}")));
            }
        } else if let Some(device) = item.get("device").filter(|d| !d.is_empty()) {
            if out.mappings.devices.insert(device.to_owned(), id).is_some() {
                return Err(twice(&format!("device {device}")));
            }
        } else {
            return Err(item.error("multi-detect.mappings: a mapping has a vlan-id or a device"));
        }
    }
    Ok(out)
}

/// Checks the VLAN id of a mapping.
pub(crate) fn vlan_id(n: i64) -> Option<u16> {
    u16::try_from(n).ok().filter(|v| (1..=VLAN_MAX).contains(v))
}

fn tenant_id(item: Node<'_>, key: &str) -> Result<u32, ConfigError> {
    match item.int(key)?.map(u32::try_from) {
        Some(Ok(id)) if id > 0 => Ok(id),
        _ => Err(item.error(format!("multi-detect: {key} must be a number from 1 on"))),
    }
}

/// A tenant's configuration file, with the values of `--set multi-detect.ID.NAME=VALUE`.
///
/// # Errors
/// As for any configuration.
pub(crate) fn tenant_config(id: u32, yaml: &Path, sets: &[String]) -> Result<Config, ConfigError> {
    let prefix = format!("multi-detect.{id}.");
    let own: Vec<String> =
        sets.iter().filter_map(|s| s.trim_start().strip_prefix(&prefix)).map(str::to_owned).collect();
    Config::load_with(yaml, &[] as &[&Path], &own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TenantSettings, ConfigError> {
        tenants(&Config::from_str(&format!("%YAML 1.1\n---\nmulti-detect:\n{text}"), "t").unwrap())
    }

    #[test]
    fn settings() {
        let s = read(
            "  enabled: yes\n  selector: vlan\n  loaders: 3\n  config-path: /etc/x\n  tenants:\n  - tenant:\n    id: 1\n    \
             yaml: a.yaml\n  - id: 7\n    yaml: /b.yaml\n  mappings:\n  - vlan:\n    vlan-id: 1000\n    tenant-id: 1\n  - \
             vlan-id: 5\n    tenant-id: 7\n  - device: eth0\n    tenant-id: 7\n",
        )
        .unwrap();
        assert_eq!(s.tenants, [(1, PathBuf::from("/etc/x/a.yaml")), (7, PathBuf::from("/b.yaml"))]);
        assert_eq!((s.loaders, s.default, s.mappings.selector), (3, true, Selector::Vlan));
        assert_eq!((s.mappings.vlans[&1000], s.mappings.vlans[&5], s.mappings.devices["eth0"]), (1, 7, 7));
        assert!(!read("  enabled: no\n  selector: nonsense\n").unwrap().enabled);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            "default: yes",
            "selector: colour",
            "selector: direct\n  tenants:\n  - id: 0\n    yaml: a",
            "selector: vlan\n  tenants:\n  - id: 1",
            "selector: vlan\n  tenants:\n  - id: 1\n    yaml: a\n  - id: 1\n    yaml: b",
            "selector: vlan\n  mappings:\n  - vlan-id: 4095\n    tenant-id: 1",
            "selector: vlan\n  mappings:\n  - vlan-id: 5\n    tenant-id: 1\n  - vlan-id: 5\n    tenant-id: 2",
            "selector: vlan\n  mappings:\n  - tenant-id: 1",
        ] {
            assert!(read(&format!("  enabled: yes\n  {bad}\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn settings_of_a_tenant_on_the_command_line() {
        let dir = std::env::temp_dir().join(format!("margay-tenant-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("t.yaml");
        std::fs::write(&file, "%YAML 1.1\n---\ndefault-rule-path: /a\nrule-files: [x]\n").unwrap();
        let sets = ["multi-detect.3.default-rule-path=/b".to_owned(), "default-rule-path=/c".to_owned()];
        let of = |id| tenant_config(id, &file, &sets).unwrap().get("default-rule-path").unwrap().to_owned();
        assert_eq!((of(3), of(4)), ("/b".to_owned(), "/a".to_owned()));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
