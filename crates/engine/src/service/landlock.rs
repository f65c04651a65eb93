//! Landlock: limits the files that the engine can access.
//!
//! Paths in the configuration and on the command line are allowed automatically; `security.landlock.directories` adds more.
//! The limits apply to the calling thread and to threads that it starts. They are set before anything is opened, so a missing
//! path shows at the start.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use margay_capture::af_xdp::Port;
use margay_config::{Capture, Config, Node, RuleFiles, RunOptions};

use super::CaptureAccess;
use super::settings::Settings;
use crate::Failed;
use crate::settings::{Reach, datasets, detect, firewall_folder, is_firewall, rule_folder, socket, tenants};

/// Access rights that this code knows. An older kernel enforces fewer.
const KNOWN: ABI = ABI::V6;
/// Readable for every run: the kernel's information on processes and interfaces, time zones, file types, user names.
const SYSTEM: [&str; 5] = ["/proc", "/sys", "/usr", "/etc", "/dev/urandom"];
/// Long DNS responses need TCP.
const DNS: u16 = 53;
/// Sink of unwanted output.
const NOWHERE: &str = "/dev/null";

/// Readable paths, and paths that are writable as well.
#[derive(Debug, Default, PartialEq, Eq)]
struct Places {
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
}

/// The folder of a file. For a pattern, the folder before its first star.
fn folder(file: &Path) -> PathBuf {
    let plain: PathBuf = file.iter().take_while(|part| !part.to_string_lossy().contains(['*', '?', '['])).collect();
    let up = if plain.as_path() == file { plain.parent().unwrap_or(Path::new("/")) } else { &plain };
    if up.as_os_str().is_empty() { PathBuf::from(".") } else { up.to_owned() }
}

impl Places {
    /// Collects the paths of the configuration and the command line.
    fn of(
        config: &Config,
        options: &RunOptions,
        settings: &Settings,
        access: &CaptureAccess,
        dir: &Path,
    ) -> Result<Places, Failed> {
        let mut p = Places::default();
        let said = |path: &str| config.get(path).filter(|t| !t.is_empty()).map(PathBuf::from);
        p.read.extend(SYSTEM.map(PathBuf::from));
        p.read.extend(settings.read.iter().cloned());
        p.read.extend(config.files().map(|f| folder(Path::new(f))));
        p.read.extend(options.includes.iter().map(|f| folder(f)));
        p.read.insert(rule_folder(config).into());
        if is_firewall(config, options)? {
            p.read.insert(firewall_folder(config).into());
        }
        for key in ["default-reputation-path", "multi-detect.config-path"] {
            p.read.extend(said(key));
        }
        for key in [
            "classification-file",
            "reference-config-file",
            "threshold-file",
            "reputation-categories-file",
            "geoip-database",
            "magic-file",
        ] {
            p.read.extend(said(key).map(|f| folder(&f)));
        }
        for key in ["rule-files", "reputation-files", "firewall.rule-files"] {
            let list = config.node(key);
            let absolute = list.iter().flat_map(Node::values).map(Path::new).filter(|f| f.is_absolute());
            p.read.extend(absolute.map(folder));
        }
        if let RuleFiles::Added(f) | RuleFiles::Exclusive(f) = &options.rules {
            p.read.insert(folder(Path::new(f)));
        }
        for file in [&options.filter_file, &options.firewall_rules].into_iter().flatten() {
            p.read.insert(folder(file));
        }
        for (_, yaml) in &tenants(config)?.tenants {
            p.read.insert(folder(yaml));
        }
        p.write.insert(dir.to_owned());
        p.write.insert(NOWHERE.into());
        p.write.extend(settings.write.iter().cloned());
        p.write.insert(datasets(config, options, false)?.data_dir);
        p.write.extend(detect(config)?.cache.map(|c| c.folder));
        p.write.extend(settings.pidfile.iter().map(|f| folder(f)));
        p.write.extend(socket(config, options)?.iter().map(|f| folder(f)));
        p.outputs(config, dir);
        p.write.extend(access.xdp_interfaces.iter().flat_map(|i| Port::settings_of(i)));
        if let Some(Capture::File(path) | Capture::Erf(path)) = &options.capture {
            let place = if path.is_dir() { path.clone() } else { folder(path) };
            let removes = options.pcap_file_delete
                || config.get("pcap-file.delete-when-done").is_some_and(|t| !["", "no", "false"].contains(&t));
            if removes {
                p.write.insert(place)
            } else {
                p.read.insert(place)
            };
        }
        Ok(p)
    }

    /// Adds the paths of outputs and their scripts.
    fn outputs(&mut self, config: &Config, dir: &Path) {
        for (name, node) in config.node("outputs").iter().flat_map(Node::children).map(|i| i.entry()) {
            let Some(node) = node else { continue };
            let get = |key: &str| node.get(key).filter(|t| !t.is_empty()).map(|t| dir.join(t));
            match name {
                "fast" | "eve-log" | "stats" | "http-log" | "tls-log" | "alert-debug" | "tcp-data"
                | "http-body-data" => self.write.extend(get("filename").map(|f| folder(&f))),
                "pcap-log" => {
                    let own = get("dir").unwrap_or_else(|| dir.to_owned());
                    self.write.extend(node.get("filename").map(|f| folder(&own.join(f))));
                    self.write.insert(own);
                }
                "file-store" => self.write.extend(get("dir")),
                "tls-store" => self.write.extend(get("certs-log-dir")),
                "lua" => self.read.extend(get("scripts-dir")),
                _ => {}
            }
        }
        for (name, node) in config.node("logging.outputs").iter().flat_map(Node::children).map(|i| i.entry()) {
            if let ("file", Some(node)) = (name, node) {
                self.write.extend(node.get("filename").map(|f| folder(&dir.join(f))));
            }
        }
    }
}

/// The places of a run, as text.
#[cfg(test)]
pub(super) fn places(
    config: &Config,
    options: &RunOptions,
    settings: &Settings,
    access: &CaptureAccess,
    dir: &Path,
) -> Result<String, Failed> {
    Places::of(config, options, settings, access, dir).map(|p| format!("{p:?}"))
}

/// The result, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restricted {
    /// The limits are in force.
    pub(super) holds: bool,
    pub(super) words: String,
    /// Configured paths that do not exist.
    pub(super) missing: Vec<String>,
}

/// Restricts the calling thread and threads that it starts.
///
/// # Errors
/// An invalid setting. A kernel without Landlock is not an error.
pub(super) fn restrict(
    config: &Config,
    options: &RunOptions,
    settings: &Settings,
    (reach, access): (&Reach, &CaptureAccess),
    dir: &Path,
) -> Result<Restricted, Failed> {
    let mut places = Places::of(config, options, settings, access, dir)?;
    places.write.extend(reach.write.iter().cloned());
    places.read.extend(reach.read.iter().map(|f| folder(f)));
    let named: Vec<&PathBuf> = settings.read.iter().chain(&settings.write).collect();
    let missing = named.iter().filter(|p| !p.exists()).map(|p| p.display().to_string()).collect();
    let (read, write) = (places.read.len(), places.write.len());
    Ok(match enforce(&places, stores_files(config), reach) {
        Ok(RulesetStatus::NotEnforced) => Restricted {
            holds: false,
            words: "the kernel does not have it, or it is not switched on (lsm=landlock,… on its command line; Linux 5.13): \
                    files are not restricted"
                .into(),
            missing,
        },
        Ok(status) => Restricted {
            holds: true,
            words: format!(
                "files are restricted to {read} places to read and {write} to write{}",
                if status == RulesetStatus::PartiallyEnforced { ", as far as this kernel can" } else { "" }
            ),
            missing,
        },
        Err(e) => Restricted { holds: false, words: format!("{e}: files are not restricted"), missing },
    })
}

/// Whether files move between folders. Landlock allows that from Linux 5.19 on.
fn stores_files(config: &Config) -> bool {
    let mut outputs = config.node("outputs").into_iter().flat_map(|n| n.children()).map(|i| i.entry());
    outputs.any(|(name, node)| {
        name == "file-store" && node.is_some_and(|n| n.bool("enabled").ok().flatten().unwrap_or(false))
    })
}

fn enforce(places: &Places, moves: bool, reach: &Reach) -> Result<RulesetStatus, String> {
    let said = |e: landlock::RulesetError| e.to_string();
    let mut rules = Ruleset::default();
    if moves {
        rules = rules
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Refer)
            .map_err(|_| "the file store needs Landlock of Linux 5.19 (ABI 2), which is not here".to_owned())?
            .set_compatibility(CompatLevel::BestEffort);
    }
    // The engine serves nothing over TCP, and connects only to the outputs' servers (Linux 6.7).
    let net = match &reach.ports {
        Some(_) => AccessNet::from_all(KNOWN),
        None => AccessNet::BindTcp.into(),
    };
    let rules = rules.handle_access(AccessFs::from_all(KNOWN)).and_then(|r| r.handle_access(net));
    let mut rules = rules.and_then(|r| r.create()).map_err(said)?;
    for port in reach.ports.iter().flatten().copied().chain(reach.any.then_some(DNS)) {
        if reach.ports.is_some() {
            rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(said)?;
        }
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // No execution, and no device files.
    let write = AccessFs::from_all(KNOWN)
        & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev);
    let all = places.write.iter().map(|p| (p, write)).chain(places.read.iter().map(|p| (p, read)));
    for (path, rights) in all {
        // Paths that do not exist cannot be allowed. Pipes and similar files are skipped.
        if !std::fs::metadata(path).is_ok_and(|m| m.is_dir() || m.is_file() || m.file_type().is_char_device()) {
            continue;
        }
        let Ok(fd) = PathFd::new(path) else { continue };
        let rights: BitFlags<AccessFs> = if path.is_dir() { rights } else { rights & AccessFs::from_file(KNOWN) };
        rules = rules.add_rule(PathBeneath::new(fd, rights)).map_err(said)?;
    }
    rules.restrict_self().map(|s| s.ruleset).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        for (file, want) in [
            ("/a/b.rules", "/a"),
            ("/a/*.rules", "/a"),
            ("/a/*/b.rules", "/a"),
            ("b.rules", "."),
            ("*.rules", "."),
            ("/b", "/"),
            ("c/d", "c"),
        ] {
            assert_eq!(folder(Path::new(file)), Path::new(want), "{file}");
        }
    }

    #[test]
    fn what_the_configuration_names() {
        let config = Config::from_str(
            "%YAML 1.1\n---\ndefault-rule-path: /r\nrule-files: [a.rules, /q/b.rules]\nclassification-file: /c/x.config\noutputs:\n  - \
             eve-log: {enabled: yes, filename: /e/eve.json}\n  - file-store: {version: 2, enabled: yes, dir: \
             /store}\nlogging:\n  outputs:\n    - file: {enabled: yes, filename: /l/s.log}\nsecurity:\n  landlock:\n    enabled: yes\n    \
             directories: {write: [/w], read: [/x]}\npid-file: /p/m.pid\n",
            "t",
        )
        .unwrap();
        let options = RunOptions {
            capture: Some(Capture::File("/in/a.pcap".into())),
            rules: RuleFiles::Exclusive("/s/*.rules".into()),
            daemon: true,
            ..RunOptions::default()
        };
        let settings = Settings::new(&config, &options).unwrap();
        let p = Places::of(&config, &options, &settings, &CaptureAccess::default(), Path::new("/log")).unwrap();
        for dir in ["/r", "/q", "/c", "/s", "/x", "/in", "/proc"] {
            assert!(p.read.contains(Path::new(dir)), "{dir}: {p:?}");
        }
        for dir in ["/e", "/store", "/l", "/log", "/w", "/p", "/var/lib/margay/data"] {
            assert!(p.write.contains(Path::new(dir)), "{dir}: {p:?}");
        }
        assert!(stores_files(&config));
    }

    /// In a thread of its own, because the limits cannot be lifted.
    #[test]
    fn what_is_not_named_is_not_there() {
        let base = std::env::temp_dir().join(format!("margay-landlock-{}", std::process::id()));
        let dirs = ["in", "out", "other"].map(|d| base.join(d));
        for d in &dirs {
            std::fs::create_dir_all(d).unwrap();
            std::fs::write(d.join("a"), "a").unwrap();
        }
        let [read, write, other] = dirs.clone();
        let tried = std::thread::spawn(move || {
            let mut places = Places::default();
            places.read.insert(read.clone());
            places.write.insert(write.clone());
            if enforce(&places, true, &Reach { ports: Some(Vec::new()), ..Reach::default() })
                != Ok(RulesetStatus::FullyEnforced)
            {
                return None;
            }
            let sub = write.join("sub");
            Some([
                std::fs::read(read.join("a")).is_ok(),
                std::fs::write(read.join("b"), "").is_ok(),
                std::fs::write(write.join("b"), "").is_ok(),
                std::fs::create_dir(&sub).and_then(|()| std::fs::rename(write.join("b"), sub.join("b"))).is_ok(),
                std::fs::read(other.join("a")).is_ok(),
                std::fs::write(other.join("a"), "").is_ok(),
            ])
        });
        match tried.join().unwrap() {
            None => margay_testing::unavailable("this kernel has no Landlock, or not all of it"),
            Some(got) => assert_eq!(got, [true, false, true, true, false, false]),
        }
        let _ = std::fs::remove_dir_all(&base);
    }
}
