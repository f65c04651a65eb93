//! `detect:`, `action-order:`, `pcre:` and the other settings of rule matching.

use std::time::Duration;

use margay_config::{Config, ConfigError};
use margay_detect::mpm::{CacheSettings, MpmAlgo};
use margay_detect::{DetectConfig, LuaConfig};
use margay_rules::ast::Action;

use super::{flag, memcap, number, size, wrong};

/// Assumed bytes of an entry in a per-host table whose limit is in bytes.
const HOST_ENTRY: u64 = 256;

/// The settings of detection.
///
/// # Errors
/// An invalid value.
pub(crate) fn detect(config: &Config) -> Result<DetectConfig, ConfigError> {
    let d = DetectConfig::default();
    let mpm_algo = match config.get("mpm-algo") {
        None | Some("") => d.mpm_algo,
        Some(name) => MpmAlgo::from_name(name).ok_or_else(|| {
            wrong(config, "mpm-algo", &format!("\"{name}\" is no pattern matcher; there are auto, hs and ac"))
        })?,
    };
    let entries = |path: &str, default: usize| -> Result<usize, ConfigError> {
        let bytes = memcap(config, path, (default as u64).saturating_mul(HOST_ENTRY))?;
        Ok(usize::try_from(bytes / HOST_ENTRY).unwrap_or(usize::MAX).max(1))
    };
    Ok(DetectConfig {
        mpm_algo,
        packet_alert_max: number(config, "packet-alert-max", d.packet_alert_max)?,
        action_order: action_order(config)?.unwrap_or(d.action_order),
        inspection_recursion_limit: match number(
            config,
            "detect.inspection-recursion-limit",
            d.inspection_recursion_limit,
        )? {
            0 => u32::MAX,
            n => n,
        },
        pcre_match_limit: limit(config, "pcre.match-limit", d.pcre_match_limit)?,
        pcre_match_limit_recursion: limit(config, "pcre.match-limit-recursion", d.pcre_match_limit_recursion)?,
        asn1_frames: number(config, "asn1-max-frames", d.asn1_frames)?,
        threshold_memcap: size(config, "detect.thresholds.memcap", d.threshold_memcap)?,
        threshold_hash_size: number::<u32>(config, "detect.thresholds.hash-size", d.threshold_hash_size as u32)?
            as usize,
        tag_entries: d.tag_entries,
        host_entries: entries("host.memcap", d.host_entries)?,
        pair_entries: entries("ippair.memcap", d.pair_entries)?,
        port_groups: port_groups(config)?.unwrap_or(d.port_groups),
        guess_tx: flag(config, "detect.guess-applayer-tx", d.guess_tx)?,
        guess_limit: number(config, "detect.stream-tx-log-limit", d.guess_limit)?,
        lua: lua(config, d.lua)?,
        cache: cache(config)?,
    })
}

/// Limits of the rule groups by port, to the server and to the client (`detect.profile`); `None` for `medium`.
///
/// # Errors
/// An invalid profile; with `custom`, a number outside 1 to 65535.
fn port_groups(config: &Config) -> Result<Option<[usize; 2]>, ConfigError> {
    Ok(match config.get("detect.profile") {
        None | Some("" | "medium") => None,
        Some("low") => Some([256; 2]),
        Some("high") => Some([8192; 2]),
        Some("custom") => Some(custom_groups(config)?),
        Some(other) => {
            let why = format!("\"{other}\" is no profile; there are low, medium, high and custom");
            return Err(wrong(config, "detect.profile", &why));
        }
    })
}

/// `detect.custom-values`: groups to the server and to the client.
///
/// # Errors
/// A number outside 1 to 65535.
pub(crate) fn custom_groups(config: &Config) -> Result<[usize; 2], ConfigError> {
    let of = |name: &str, default: u16| {
        let path = format!("detect.custom-values.{name}-groups");
        match number::<u16>(config, &path, default)? {
            0 => Err(wrong(config, &path, "rules need a group: give 1 to 65535")),
            n => Ok(usize::from(n)),
        }
    };
    Ok([of("toserver", 40)?, of("toclient", 20)?])
}

/// The default folder of the pattern cache.
const CACHE_FOLDER: &str = "/var/lib/margay/cache";
/// The default age at which unused cache entries are deleted.
const CACHE_AGE: Duration = Duration::from_secs(7 * 86_400);

/// `detect.sgh-mpm-caching`. The cache is off by default, as in Suricata.
fn cache(config: &Config) -> Result<Option<CacheSettings>, ConfigError> {
    const AGE: &str = "detect.sgh-mpm-caching-max-age";
    if !flag(config, "detect.sgh-mpm-caching", false)? {
        return Ok(None);
    }
    let folder = config.get("detect.sgh-mpm-caching-path").filter(|p| !p.is_empty()).unwrap_or(CACHE_FOLDER);
    let max_age = match config.get(AGE).filter(|a| !a.is_empty()) {
        None => Some(CACHE_AGE),
        Some(text) => {
            let age = age(text).ok_or_else(|| {
                wrong(config, AGE, &format!("\"{text}\" is no time; give a number with s, m, h, d or w, like 7d"))
            })?;
            Some(age).filter(|a| !a.is_zero())
        }
    };
    Ok(Some(CacheSettings { folder: folder.into(), max_age }))
}

/// Parses seconds, or a number with a unit letter.
fn age(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(digits.trim_end().parse::<u64>().ok()?.checked_mul(unit)?))
}

/// `security.lua`.
fn lua(config: &Config, d: LuaConfig) -> Result<LuaConfig, ConfigError> {
    let bytes = size(config, "security.lua.max-bytes", d.limits.bytes as u64)?;
    let instructions: u64 = number(config, "security.lua.max-instructions", d.limits.instructions)?;
    for (path, value) in [("security.lua.max-bytes", bytes), ("security.lua.max-instructions", instructions)] {
        if value == 0 {
            return Err(wrong(config, path, "a script that may use nothing does nothing; give a number above 0"));
        }
    }
    Ok(LuaConfig {
        allow: flag(config, "security.lua.allow-rules", d.allow)?,
        limits: margay_lua::Limits {
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX / 2),
            instructions,
            ..d.limits
        },
        restricted: flag(config, "security.lua.allow-restricted-functions", d.restricted)?,
    })
}

/// A limit of regular expressions; 0 and negative numbers select the default.
///
/// # Errors
/// The number does not fit into 32 bits.
fn limit(config: &Config, path: &str, default: u32) -> Result<u32, ConfigError> {
    match config.int(path)? {
        Some(n) if n > 0 => number(config, path, default),
        _ => Ok(default),
    }
}

fn action_order(config: &Config) -> Result<Option<Vec<Action>>, ConfigError> {
    let Some(node) = config.node("action-order") else { return Ok(None) };
    let mut order = Vec::new();
    for name in node.values() {
        let action = match name {
            "pass" => Action::Pass,
            "drop" => Action::Drop,
            "reject" => Action::Reject,
            "alert" => Action::Alert,
            other => {
                return Err(node.error(format!(
                    "action-order: \"{other}\" is no action; list pass, drop, reject and alert, each once"
                )));
            }
        };
        if order.contains(&action) {
            return Err(node.error(format!("action-order: \"{name}\" stands twice; list each action once")));
        }
        order.push(action);
    }
    if order.len() != 4 {
        return Err(node.error("action-order: list pass, drop, reject and alert, each once"));
    }
    Ok(Some(order))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DetectConfig, ConfigError> {
        detect(&Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap())
    }

    #[test]
    fn reads_the_cache() {
        assert_eq!(read("x: y").unwrap().cache, None);
        assert_eq!(read("detect:\n  sgh-mpm-caching: no\n  sgh-mpm-caching-path: /a").unwrap().cache, None);
        let c = read("detect:\n  sgh-mpm-caching: yes").unwrap().cache.unwrap();
        assert_eq!((c.folder.to_str(), c.max_age), (Some(CACHE_FOLDER), Some(CACHE_AGE)));
        for (text, want) in
            [("90", Some(90)), ("2 m", Some(120)), ("3h", Some(10_800)), ("1w", Some(604_800)), ("0", None)]
        {
            let all = format!(
                "detect:\n  sgh-mpm-caching: yes\n  sgh-mpm-caching-path: /a/b\n  sgh-mpm-caching-max-age: {text}"
            );
            let c = read(&all).unwrap().cache.unwrap();
            assert_eq!((c.folder.to_str(), c.max_age), (Some("/a/b"), want.map(Duration::from_secs)), "{text}");
        }
        for bad in ["soon", "7y", "-1d", "d", "99999999999999999999"] {
            assert!(
                read(&format!("detect:\n  sgh-mpm-caching: yes\n  sgh-mpm-caching-max-age: {bad}")).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn reads_order_and_limits() {
        let d =
            read("action-order: [drop, pass, reject, alert]\npacket-alert-max: 20\npcre:\n  match-limit: 9").unwrap();
        assert_eq!(d.action_order[0], Action::Drop);
        assert_eq!((d.packet_alert_max, d.pcre_match_limit), (20, 9));
        assert_eq!(read("detect:\n  inspection-recursion-limit: 0").unwrap().inspection_recursion_limit, u32::MAX);
        for bad in ["action-order: [drop]", "action-order: [drop, drop, pass, alert]", "mpm-algo: magic"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
