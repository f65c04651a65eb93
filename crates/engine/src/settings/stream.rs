//! `stream:`, with the parts of `host-os-policy:` that it needs.

use margay_config::{Checksums, Config, ConfigError};
use margay_stream::{HostOsPolicies, OsPolicy, StreamConfig, UrgentPolicy};

use super::{flag, host_policies, number, size, wrong};

/// The stream engine's settings.
///
/// # Errors
/// An invalid value.
pub(crate) fn stream(config: &Config, ips: bool) -> Result<StreamConfig, ConfigError> {
    let d = StreamConfig::default();
    let inline = match config.get("stream.inline") {
        None | Some("auto" | "") => ips,
        Some(_) => flag(config, "stream.inline", ips)?,
    };
    let mut os_policies = HostOsPolicies::default();
    for (addr, prefix, name, node) in host_policies(config)? {
        let policy = OsPolicy::from_name(name)
            .ok_or_else(|| node.error(format!("host-os-policy: \"{name}\" is no operating system that is known")))?;
        os_policies.add(addr, prefix, policy);
    }
    let chunk = |key: &str, default: u32| -> Result<u32, ConfigError> {
        let n = size(config, key, u64::from(default))?;
        u32::try_from(n).map_err(|_| wrong(config, key, "is larger than 4 GB"))
    };
    let urgent = |key: &str, default: UrgentPolicy| match config.get(key) {
        None | Some("") => Ok(default),
        Some(name) => UrgentPolicy::from_name(name).ok_or_else(|| {
            wrong(
                config,
                key,
                &format!("\"{name}\" is no policy for urgent data; there are oob, inline, drop, gap and clear"),
            )
        }),
    };
    Ok(StreamConfig {
        memcap: size(config, "stream.memcap", d.memcap)?,
        reassembly_memcap: size(config, "stream.reassembly.memcap", d.reassembly_memcap)?,
        depth: size(config, "stream.reassembly.depth", d.depth)?,
        toserver_chunk_size: chunk("stream.reassembly.toserver-chunk-size", d.toserver_chunk_size)?,
        toclient_chunk_size: chunk("stream.reassembly.toclient-chunk-size", d.toclient_chunk_size)?,
        randomize_chunk_percent: random(config)?,
        raw: flag(config, "stream.reassembly.raw", d.raw)?,
        midstream: flag(config, "stream.midstream", d.midstream)?,
        async_oneside: flag(config, "stream.async-oneside", d.async_oneside)?,
        inline,
        drop_invalid: flag(config, "stream.drop-invalid", d.drop_invalid)?,
        max_syn_queued: number(config, "stream.max-syn-queued", d.max_syn_queued)?,
        max_synack_queued: number(config, "stream.max-synack-queued", d.max_synack_queued)?,
        liberal_timestamps: flag(config, "stream.liberal-timestamps", d.liberal_timestamps)?,
        checksum_validation: flag(config, "stream.checksum-validation", d.checksum_validation)?,
        write_ambiguity: flag(config, "stream.reassembly.check-overlap-different-data", d.write_ambiguity)?,
        bypass: flag(config, "stream.bypass", d.bypass)?,
        urgent: urgent("stream.reassembly.urgent.policy", d.urgent)?,
        urgent_oob_limit: number(config, "stream.reassembly.urgent.oob-limit", d.urgent_oob_limit)?,
        urgent_oob_limit_policy: urgent("stream.reassembly.urgent.oob-limit-policy", d.urgent_oob_limit_policy)?,
        remembered: number::<u32>(config, "margay.resumable-connections", d.remembered as u32)? as usize,
        reset_memory: size(config, "margay.reset-memory", d.reset_memory)?,
        os_policies,
        ..d
    })
}

/// The percentage by which chunk sizes vary (`randomize-chunk-size`, `randomize-chunk-range`); 0 if they do not.
///
/// # Errors
/// Not a boolean, or not a percentage.
fn random(config: &Config) -> Result<u8, ConfigError> {
    const RANGE: &str = "stream.reassembly.randomize-chunk-range";
    let percent: u8 = number(config, RANGE, 10)?;
    if percent > 100 {
        return Err(wrong(config, RANGE, &format!("{percent} is not 0 to 100 percent")));
    }
    Ok(if flag(config, "stream.reassembly.randomize-chunk-size", false)? { percent } else { 0 })
}

/// Whether TCP packets with a wrong checksum are kept out of their streams: by `--set stream.checksum-validation`, or else by `-k`,
/// or else by the configuration.
///
/// # Errors
/// `capture.checksum-validation` is neither `none` nor `kernel`.
pub(crate) fn validates(option: Option<Checksums>, config: &Config, configured: bool) -> Result<bool, ConfigError> {
    const PATH: &str = "capture.checksum-validation";
    if config.is_set("stream.checksum-validation") {
        return Ok(configured);
    }
    let validated = match config.get(PATH) {
        None | Some("" | "kernel") => configured,
        Some("none") => false,
        Some(other) => {
            let why = format!("\"{other}\" is neither none nor kernel");
            return Err(wrong(config, PATH, &why));
        }
    };
    Ok(match option {
        Some(Checksums::All) => true,
        Some(Checksums::None) => false,
        None => validated,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sizes_and_policies() {
        let text = "%YAML 1.1\n---\nstream:\n  memcap: 1mb\n  reassembly:\n    depth: 50\n    urgent:\n      policy: gap\n\
                    host-os-policy:\n  old-linux: [10.0.0.0/8]\n";
        let s = stream(&Config::from_str(text, "t").unwrap(), true).unwrap();
        assert_eq!((s.memcap, s.depth, s.inline), (1 << 20, 50, true));
        assert_eq!(s.os_policies.of([10, 1, 1, 1].into()), OsPolicy::from_name("old-linux").unwrap());
        let bad = "%YAML 1.1\n---\nstream:\n  reassembly:\n    urgent:\n      policy: later\n";
        assert!(stream(&Config::from_str(bad, "t").unwrap(), true).is_err());
    }

    #[test]
    fn checksums_of_streams() {
        let plain = Config::from_str("%YAML 1.1\n---\nstream:\n  midstream: no\n", "t").unwrap();
        let none = Config::from_str("%YAML 1.1\n---\ncapture:\n  checksum-validation: none\n", "t").unwrap();
        for (option, config, configured, want) in [
            (None, &plain, true, true),
            (None, &plain, false, false),
            (None, &none, true, false),
            (Some(Checksums::All), &none, false, true),
            (Some(Checksums::None), &plain, true, false),
        ] {
            assert_eq!(validates(option, config, configured).unwrap(), want, "{option:?} {configured}");
        }
        // The value of `--set` is the last word, as in Suricata.
        let mut set = plain;
        set.set("stream.checksum-validation=no").unwrap();
        assert!(!validates(Some(Checksums::All), &set, false).unwrap());
        assert!(validates(Some(Checksums::None), &set, true).unwrap());
    }
}
