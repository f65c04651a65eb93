//! `flow:`, `flow-timeouts:`, `vlan:` and `livedev:`.

use margay_config::{Config, ConfigError};
use margay_flow::{FlowConfig, TimeoutPair, Timeouts};

use super::{flag, number, size};

/// The flow table's settings.
///
/// # Errors
/// A value that cannot be read.
pub(crate) fn flow(config: &Config) -> Result<FlowConfig, ConfigError> {
    let d = FlowConfig::default();
    let mut timeouts = d.timeouts;
    timeouts.default = pair(config, "default", timeouts.default)?;
    timeouts.tcp = pair(config, "tcp", timeouts.tcp)?;
    timeouts.udp = pair(config, "udp", timeouts.udp)?;
    timeouts.icmp = pair(config, "icmp", timeouts.icmp)?;
    Ok(FlowConfig {
        memcap: size(config, "flow.memcap", d.memcap)?,
        hash_size: number(config, "flow.hash-size", d.hash_size)?,
        prealloc: number(config, "flow.prealloc", d.prealloc)?,
        emergency_recovery: number(config, "flow.emergency-recovery", d.emergency_recovery)?,
        timeouts,
        vlan_use_for_tracking: flag(config, "vlan.use-for-tracking", d.vlan_use_for_tracking)?,
        livedev_use_for_tracking: flag(config, "livedev.use-for-tracking", d.livedev_use_for_tracking)?,
        recursion_use_for_tracking: flag(
            config,
            "decoder.recursion-level.use-for-tracking",
            d.recursion_use_for_tracking,
        )?,
        seed: d.seed,
    })
}

fn pair(config: &Config, proto: &str, d: TimeoutPair) -> Result<TimeoutPair, ConfigError> {
    let read = |prefix: &str, d: Timeouts| -> Result<Timeouts, ConfigError> {
        let key = |name: &str| format!("flow-timeouts.{proto}.{prefix}{name}");
        Ok(Timeouts {
            new: number(config, &key("new"), d.new)?,
            established: number(config, &key("established"), d.established)?,
            closed: number(config, &key("closed"), d.closed)?,
            bypassed: number(config, &key("bypassed"), d.bypassed)?,
        })
    };
    Ok(TimeoutPair { normal: read("", d.normal)?, emergency: read("emergency-", d.emergency)? })
}
