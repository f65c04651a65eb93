//! Files: `outputs: - file-store:`, and the file analysis that `eve-log`'s `files` requires.

use std::path::Path;

use margay_app::file::{FileConfig, FileWants, StoreConfig};
use margay_config::{Config, ConfigError, Node, RunOptions};
use margay_output::{error, notice, warning};

use super::{number, size, wrong};

/// Reads the settings of files. A relative folder of the store is below `log_dir`. With `--disable-hashing` no digest is
/// forced; the digest in the names of stored files is always computed.
///
/// # Errors
/// An invalid value, a file store of another version than 2, or two file stores.
pub(crate) fn files(config: &Config, log_dir: &Path, options: &RunOptions) -> Result<FileConfig, ConfigError> {
    let mut files = FileConfig {
        magic_file: config.get("magic-file").filter(|p| !p.is_empty()).map(Into::into),
        stream_depth: size(config, "stream.reassembly.depth", margay_stream::StreamConfig::default().depth)?,
        ..FileConfig::default()
    };
    files.range_memcap = size(config, "app-layer.protocols.http.byterange.memcap", files.range_memcap)?;
    files.range_max_size = size(config, "app-layer.protocols.http.byterange.max-size", files.range_max_size)?;
    files.range_timeout = number(config, "app-layer.protocols.http.byterange.timeout", files.range_timeout)?;
    if files.range_timeout < 0 {
        return Err(wrong(config, "app-layer.protocols.http.byterange.timeout", "must not be negative"));
    }
    for item in config.node("outputs").iter().flat_map(Node::children) {
        let (name, Some(node)) = item.entry() else { continue };
        if !matches!(name, "file-store" | "eve-log") || !node.bool("enabled")?.unwrap_or(false) {
            continue;
        }
        if name == "file-store" {
            if node.int("version")? != Some(2) {
                return Err(node.error(
                    "file-store: only version 2 of the file store is known; write \"version: 2\" and see what changed \
                     with it",
                ));
            }
            if files.store.is_some() {
                return Err(node.error("file-store: only one file store can be enabled"));
            }
            files.store = Some(store(node, log_dir, files.stream_depth)?);
            files.force = files.force.or(forced(node)?);
            continue;
        }
        for kind in node.node("types").iter().flat_map(Node::children) {
            if let ("files", Some(options)) = kind.entry()
                && options.bool("enabled")?.unwrap_or(true)
            {
                files.force = files.force.or(forced(options)?);
            }
        }
    }
    if options.disable_hashing {
        files.force = files.force.without_digests();
    }
    Ok(files)
}

/// Warns if rules store files (`filestore`) but there is no store.
pub(crate) fn check_store(config: &FileConfig, rules_store: bool) {
    if rules_store && config.store.is_none() {
        warning!(
            "detect-filestore",
            "One or more rule(s) depends on the file-store output log which is not enabled. Enable the output \
             \"file-store\"."
        );
    }
}

/// `force-magic`, `force-hash` and the older `force-md5` of a node.
fn forced(node: Node<'_>) -> Result<FileWants, ConfigError> {
    let mut wants = FileWants { magic: node.bool("force-magic")?.unwrap_or(false), ..FileWants::NONE };
    if node.bool("force-md5")?.unwrap_or(false) {
        warning!("file", "{}: force-md5 is deprecated; write \"force-hash: [md5]\"", node.place());
        wants.md5 = true;
    }
    for name in node.node("force-hash").iter().flat_map(Node::values) {
        match name.to_ascii_lowercase().as_str() {
            "md5" => wants.md5 = true,
            "sha1" => wants.sha1 = true,
            "sha256" => wants.sha256 = true,
            _ => warning!(
                "file",
                "{}: force-hash: there is no hash called \"{name}\"; there are md5, sha1 and sha256",
                node.place()
            ),
        }
    }
    Ok(wants)
}

fn store(node: Node<'_>, log_dir: &Path, stream: u64) -> Result<StoreConfig, ConfigError> {
    let mut s = StoreConfig::new(log_dir.join(node.get("dir").filter(|d| !d.is_empty()).unwrap_or("filestore")));
    s.force = node.bool("force-filestore")?.unwrap_or(false);
    s.write_fileinfo = node.bool("write-fileinfo")?.unwrap_or(false);
    s.say = [|text| error!("filestore", "{text}"), |text| notice!("filestore", "{text}")];
    s.quota = node.size("quota")?.unwrap_or(0);
    s.queue = node.size("queue-size")?.unwrap_or(StoreConfig::QUEUE);
    let open = node.int("max-open-files")?.unwrap_or(0);
    s.max_open_files = u32::try_from(open).map_err(|_| {
        node.node("max-open-files").unwrap_or(node).error(format!("max-open-files: {open} is out of range"))
    })?;
    // "no" keeps the stream's own depth.
    let depth = if node.get("stream-depth") == Some("no") { None } else { node.size("stream-depth")? };
    if let Some(depth) = depth {
        if depth > 0 && depth <= stream {
            warning!(
                "filestore",
                "file-store.stream-depth value {depth} has no effect since it's less than stream.reassembly.depth value."
            );
        } else {
            s.stream_depth = Some(depth);
        }
    }
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FileConfig, ConfigError> {
        read_with(text, &RunOptions::default())
    }

    fn read_with(text: &str, options: &RunOptions) -> Result<FileConfig, ConfigError> {
        files(&Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "t").unwrap(), Path::new("logs"), options)
    }

    #[test]
    fn hashing_can_be_switched_off() {
        let text = "outputs:\n  - eve-log:\n      enabled: yes\n      types: [{files: {force-hash: [md5], force-magic: yes}}]\n";
        let options = RunOptions { disable_hashing: true, ..RunOptions::default() };
        let (on, off) = (read(text).unwrap().force, read_with(text, &options).unwrap().force);
        assert!(on.md5 && on.magic && !off.md5 && off.magic);
    }

    #[test]
    fn reads_a_store() {
        let f = read(
            "outputs:\n  - file-store:\n      version: 2\n      enabled: yes\n      write-fileinfo: yes\n      \
             force-filestore: yes\n      stream-depth: 0\n      max-open-files: 100\n      quota: 1gb\n      queue-size: 1mb\n      \
             force-hash: [SHA1, md5]\n",
        )
        .unwrap();
        let s = f.store.unwrap();
        assert_eq!(s.dir, Path::new("logs/filestore"));
        assert_eq!((s.force, s.write_fileinfo, s.stream_depth, s.max_open_files), (true, true, Some(0), 100));
        assert_eq!((s.quota, s.queue), (1 << 30, 1 << 20));
        assert_eq!(f.force, FileWants { md5: true, sha1: true, ..FileWants::NONE });
    }

    #[test]
    fn a_relative_directory_is_below_the_log() {
        let dir = |d: &str| {
            let text = format!("outputs:\n  - file-store:\n      version: 2\n      enabled: yes\n      dir: {d}\n");
            read(&text).unwrap().store.unwrap().dir
        };
        assert_eq!(dir("files"), Path::new("logs/files"));
        assert_eq!(dir("/var/files"), Path::new("/var/files"));
    }

    #[test]
    fn other_versions_are_refused() {
        for version in ["", "      version: 1\n", "      version: 3\n", "      version: x\n"] {
            assert!(read(&format!("outputs:\n  - file-store:\n{version}      enabled: yes\n")).is_err(), "{version}");
            let off = format!("outputs:\n  - file-store:\n{version}      enabled: no\n");
            assert!(read(&off).unwrap().store.is_none());
        }
        let one = "  - file-store:\n      version: 2\n      enabled: yes\n";
        assert!(read(&format!("outputs:\n{one}{one}")).is_err());
        assert!(read(&format!("outputs:\n{one}      max-open-files: -1\n")).is_err());
    }

    #[test]
    fn a_depth_below_that_of_the_stream_has_no_effect() {
        let depth = |file: &str, stream: &str| {
            let text = format!(
                "outputs:\n  - file-store:\n      version: 2\n      enabled: yes\n      stream-depth: {file}\n\
                 stream:\n  reassembly:\n    depth: {stream}\n"
            );
            read(&text).unwrap().store.unwrap().stream_depth
        };
        assert_eq!(depth("10000", "1mb"), None);
        assert_eq!(depth("100000", "0"), Some(100_000));
        assert_eq!(depth("2mb", "1mb"), Some(2 << 20));
        assert_eq!(depth("0", "1mb"), Some(0));
        assert_eq!(depth("no", "1mb"), None);
    }

    #[test]
    fn reads_byterange() {
        let text = |timeout| {
            format!(
                "app-layer:\n  protocols:\n    http:\n      byterange:\n        memcap: 1mb\n        timeout: {timeout}\n"
            )
        };
        let f = read(&text("5")).unwrap();
        assert_eq!((f.range_memcap, f.range_timeout), (1 << 20, 5));
        assert!(read(&text("-1")).is_err());
    }

    #[test]
    fn logs_force_hashes() {
        let f = read(
            "outputs:\n  - eve-log:\n      enabled: yes\n      types:\n        - alert\n        - files:\n            \
             force-magic: yes\n            force-hash: [sha256]\n  - eve-log:\n      enabled: no\n      types:\n        - \
             files:\n            force-hash: [md5]\n",
        )
        .unwrap();
        assert_eq!(f.force, FileWants { magic: true, sha256: true, ..FileWants::NONE });
        assert_eq!(
            read("outputs:\n  - eve-log:\n      enabled: yes\n      types: [files]\n").unwrap().force,
            FileWants::NONE
        );
    }
}
