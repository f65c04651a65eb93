//! `app-layer.protocols.smb:`, and the `smb` section of an `eve-log`.

use margay_app::smb::{Config as SmbConfig, LogOptions, kinds};
use margay_config::{Config, ConfigError, Node};

const SMB: &str = "app-layer.protocols.smb";

/// The settings of SMB.
///
/// # Errors
/// An invalid value.
pub(super) fn smb(config: &Config) -> Result<SmbConfig, ConfigError> {
    let mut smb = SmbConfig::default();
    let Some(node) = config.node(SMB) else { return Ok(smb) };
    set(node.size("stream-depth")?, &mut smb.stream_depth);
    set(bytes(node, "max-read-size")?, &mut smb.max_read_size);
    set(bytes(node, "max-write-size")?, &mut smb.max_write_size);
    set(bytes(node, "max-read-queue-size")?, &mut smb.max_read_queue_size);
    set(bytes(node, "max-write-queue-size")?, &mut smb.max_write_queue_size);
    set(count(node, "max-read-queue-cnt", 0)?, &mut smb.max_read_queue_cnt);
    set(count(node, "max-write-queue-cnt", 0)?, &mut smb.max_write_queue_cnt);
    set(count(node, "max-guid-cache-size", 1)?, &mut smb.max_guid_cache_size);
    set(count(node, "max-rec-offset-cache-size", 1)?, &mut smb.max_rec_offset_cache_size);
    set(count(node, "max-tree-cache-size", 1)?, &mut smb.max_tree_cache_size);
    set(count(node, "max-dcerpc-frag-cache-size", 1)?, &mut smb.max_dcerpc_frag_cache_size);
    set(count(node, "max-session-cache-size", 1)?, &mut smb.max_session_cache_size);
    set(count(node, "max-tx", 1)?, &mut smb.max_tx);
    Ok(smb)
}

/// Reads the `smb` section of an `eve-log`: it selects all types of events, or its `types`.
pub(super) fn log(node: Node<'_>, warnings: &mut Vec<String>) -> LogOptions {
    let Some(types) = node.node("types") else { return LogOptions::default() };
    let mut shown = 0;
    for name in types.values() {
        match kinds::NAMES.iter().find(|(n, _)| *n == name) {
            Some((_, kind)) => shown |= kind,
            None => {
                let known = kinds::NAMES.map(|(n, _)| n).join(", ");
                warnings.push(format!("{}: smb: types: \"{name}\" is none; there are {known}", types.place()));
            }
        }
    }
    LogOptions { kinds: shown }
}

fn set<T>(value: Option<T>, to: &mut T) {
    if let Some(v) = value {
        *to = v;
    }
}

fn bytes(node: Node<'_>, key: &str) -> Result<Option<u32>, ConfigError> {
    let Some(n) = node.size(key)? else { return Ok(None) };
    match u32::try_from(n) {
        Ok(n) => Ok(Some(n)),
        Err(_) => Err(node.error(format!("{key}: {n} is more than 4 GB"))),
    }
}

fn count(node: Node<'_>, key: &str, least: u32) -> Result<Option<u32>, ConfigError> {
    let Some(n) = node.int(key)? else { return Ok(None) };
    match u32::try_from(n).ok().filter(|n| *n >= least) {
        Some(n) => Ok(Some(n)),
        None => Err(node.error(format!("{key}: {n} is out of range; it is at least {least}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::from_str(&format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n{text}"), "t").unwrap()
    }

    #[test]
    fn reads() {
        let c = config(
            "    smb:\n      max-read-size: 8mb\n      max-write-queue-cnt: 3\n      max-tx: 7\n      stream-depth: 1mb\n      \
             max-guid-cache-size: 9\n",
        );
        let s = smb(&c).unwrap();
        assert_eq!((s.max_read_size, s.max_write_queue_cnt, s.max_tx), (8 << 20, 3, 7));
        assert_eq!((s.stream_depth, s.max_guid_cache_size), (1 << 20, 9));
        assert_eq!((smb(&config("    dns:\n")).unwrap(), SmbConfig::default().max_tx), (SmbConfig::default(), 1024));
        for bad in
            ["smb:\n      max-tx: 0\n", "smb:\n      max-read-size: 5gb\n", "smb:\n      max-write-queue-cnt: -1\n"]
        {
            assert!(smb(&config(&format!("    {bad}"))).is_err(), "{bad}");
        }
    }

    #[test]
    fn shows_what_is_asked_for() {
        let c = Config::from_str("%YAML 1.1\n---\nsmb:\n  types: [file, create, other]\nall:\n  enabled: yes\n", "t")
            .unwrap();
        let mut warnings = Vec::new();
        assert_eq!(log(c.node("smb").unwrap(), &mut warnings).kinds, kinds::FILE | kinds::CREATE);
        assert!(warnings.len() == 1 && warnings[0].contains("\"other\"") && warnings[0].contains("tree_connect"));
        assert_eq!(log(c.node("all").unwrap(), &mut warnings), LogOptions::default());
    }
}
