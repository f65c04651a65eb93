//! `flow:`, `flow-timeouts:`, `vlan:` and `livedev:`.

use margay_config::{Config, ConfigError};
use margay_flow::{FlowConfig, RateConfig, TimeoutPair, Timeouts};

use super::{at_least_one, flag, number, size, wrong};

/// The flow table's settings.
///
/// # Errors
/// An invalid value.
pub(crate) fn flow(config: &Config) -> Result<FlowConfig, ConfigError> {
    const RECOVERY: &str = "flow.emergency-recovery";
    let d = FlowConfig::default();
    let mut timeouts = d.timeouts;
    timeouts.default = pair(config, "default", timeouts.default)?;
    timeouts.tcp = pair(config, "tcp", timeouts.tcp)?;
    timeouts.udp = pair(config, "udp", timeouts.udp)?;
    timeouts.icmp = pair(config, "icmp", timeouts.icmp)?;
    Ok(FlowConfig {
        memcap: size(config, "flow.memcap", d.memcap)?,
        hash_size: at_least_one(config, "flow.hash-size", d.hash_size)?,
        prealloc: number(config, "flow.prealloc", d.prealloc)?,
        emergency_recovery: match at_least_one(config, RECOVERY, d.emergency_recovery)? {
            n if n > 100 => return Err(wrong(config, RECOVERY, &format!("{n} percent are more than all flows"))),
            n => n,
        },
        timeouts,
        rate: rate(config)?,
        vlan_use_for_tracking: flag(config, "vlan.use-for-tracking", d.vlan_use_for_tracking)?,
        livedev_use_for_tracking: flag(config, "livedev.use-for-tracking", d.livedev_use_for_tracking)?,
        recursion_use_for_tracking: flag(
            config,
            "decoder.recursion-level.use-for-tracking",
            d.recursion_use_for_tracking,
        )?,
        // The creator of a table sets its keys.
        hash_key: d.hash_key,
        id_key: d.id_key,
    })
}

/// `flow.rate-tracking`, which needs both of its values.
fn rate(config: &Config) -> Result<Option<RateConfig>, ConfigError> {
    const BYTES: &str = "flow.rate-tracking.bytes";
    const INTERVAL: &str = "flow.rate-tracking.interval";
    let (bytes, interval) = match (config.size(BYTES)?, number(config, INTERVAL, 0)?) {
        (None, 0) => return Ok(None),
        (bytes, interval) => (bytes.unwrap_or(0), interval),
    };
    for (path, zero) in [(BYTES, bytes == 0), (INTERVAL, interval == 0)] {
        if zero {
            let text = format!("{path}: give the bytes and the seconds that make an elephant, both above 0");
            return Err(wrong(config, path, &text));
        }
    }
    Ok(Some(RateConfig { bytes, interval }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elephants() {
        let read =
            |text: &str| flow(&Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap()).map(|c| c.rate);
        assert_eq!(read("flow:\n  memcap: 1mb").unwrap(), None);
        let both = read("flow:\n  rate-tracking:\n    bytes: 1GiB\n    interval: 10").unwrap();
        assert_eq!(both, Some(RateConfig { bytes: 1 << 30, interval: 10 }));
        for bad in ["bytes: 1GiB", "interval: 10", "{bytes: 0, interval: 10}", "{bytes: many, interval: 10}"] {
            assert!(read(&format!("flow:\n  rate-tracking:\n    {bad}")).is_err(), "{bad}");
        }
    }
}
