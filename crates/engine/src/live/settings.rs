//! `af-packet:`: which interfaces are captured from, by how many workers, and how.

use margay_capture::Filter;
use margay_capture::af_packet::{Distribution, Fanout, Interface, Settings, Trust};
use margay_config::{Capture, Config, ConfigError, Node, RunOptions};
use margay_output::{notice, warning};

use super::cpus::Cpus;
use crate::Failed;

/// Workers that one interface may have: as many sockets as the kernel takes into a fan-out group unless told otherwise.
const WORKERS_MAX: usize = 256;
/// What one packet of `ring-size` is taken to need in the ring: a full Ethernet frame with its headers.
const PACKET: u64 = 2048;
/// The largest block that is chosen here.
const BLOCK: u64 = 1 << 19;

/// An interface to capture from.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) medium: Medium,
    /// Checksums are not looked at any more where too many are wrong (`checksum-checks: auto`).
    pub(crate) auto_trust: bool,
}

/// By what packets come from it.
#[derive(Debug, Clone)]
pub(crate) enum Medium {
    /// AF_PACKET, passively.
    AfPacket(Settings),
}

impl Device {
    /// The interfaces that it is of, by the numbers of a source's ends.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str())
    }

    fn fanout(&self) -> Option<Fanout> {
        match &self.medium {
            Medium::AfPacket(s) => s.fanout,
        }
    }
}

/// How workers are arranged (`--runmode`, `runmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// One worker.
    Single,
    /// Several for each interface, each of which does all there is to do.
    Workers,
}

impl RunMode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            RunMode::Single => "single",
            RunMode::Workers => "workers",
        }
    }
}

/// Reads the run mode.
pub(crate) fn run_mode(config: &Config, options: &RunOptions) -> Result<RunMode, Failed> {
    match options.runmode.as_deref().or(config.get("runmode")) {
        None | Some("" | "auto" | "workers") => Ok(RunMode::Workers),
        Some("single") => Ok(RunMode::Single),
        Some("autofp") => {
            notice!(
                "runmodes",
                "autofp: the kernel distributes flows to the workers (fan-out), and no thread of ours stands between: \
                 running as \"workers\""
            );
            Ok(RunMode::Workers)
        }
        Some(other) => Err(Failed::new(
            "runmodes",
            format!("there is no run mode \"{other}\" for live capture; there are single and workers"),
        )),
    }
}

/// The interfaces that the command line names, or else all of the configuration.
///
/// # Errors
/// None; one that does not exist; a setting that cannot be, or that is for something that is not here.
pub(crate) fn devices(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Result<Vec<Device>, Failed> {
    let section = config.node("af-packet");
    let entries: Vec<Node<'_>> = section.iter().flat_map(Node::children).collect();
    let named = |name: &str| entries.iter().find(|e| e.get("interface") == Some(name)).copied();
    let names: Vec<String> = match &options.capture {
        Some(Capture::Interfaces(names) | Capture::AfPacket(names)) if !names.is_empty() => names.clone(),
        _ => {
            let all = entries.iter().filter_map(|e| e.get("interface")).filter(|n| *n != "default");
            all.map(str::to_owned).collect()
        }
    };
    if names.is_empty() {
        return Err(Failed::new("af-packet", "no interface: name one (-i eth0), or list some under af-packet"));
    }
    if mode == RunMode::Single && names.len() > 1 {
        return Err(Failed::new("runmodes", "the run mode \"single\" takes one interface; there are several"));
    }
    let filter = match (&options.filter, &options.filter_file) {
        (Some(words), _) => Some(words.clone()),
        (None, Some(file)) => Filter::from_file(file).map_err(|e| Failed::new("af-packet", e.to_string()))?,
        (None, None) => None,
    };
    let mut devices: Vec<Device> = Vec::new();
    for name in names {
        if devices.iter().any(|d| d.name == name) {
            return Err(Failed::new("af-packet", format!("{name}: is named twice")));
        }
        let of = Entry { own: named(&name), default: named("default") };
        let device = of.device(&name, mode, filter.as_deref(), cpus)?;
        Interface::find(&name).map_err(|e| Failed::new("af-packet", e.to_string()))?;
        if let Some(id) = device.fanout().and_then(|f| f.id)
            && let Some(other) = devices.iter().find(|d| d.fanout().is_some_and(|f| f.id == Some(id)))
        {
            return Err(Failed::new(
                "af-packet",
                format!("{name}: has the cluster-id {id} of {}: each interface needs its own", other.name),
            ));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// What is said of an interface, and of those of which nothing is said.
struct Entry<'a> {
    own: Option<Node<'a>>,
    default: Option<Node<'a>>,
}

impl<'a> Entry<'a> {
    fn node(&self, key: &str) -> Option<Node<'a>> {
        self.own.and_then(|n| n.node(key)).or_else(|| self.default.and_then(|n| n.node(key)))
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        self.node(key).map(|n| n.text()).filter(|t| !t.is_empty())
    }

    /// The entry that has the key, for the getters.
    fn holder(&self, key: &str) -> Option<Node<'a>> {
        [self.own, self.default].into_iter().flatten().find(|n| n.node(key).is_some())
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        self.holder(key).map_or(Ok(default), |n| Ok(n.bool(key)?.unwrap_or(default)))
    }

    fn number<T: TryFrom<i64>>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(node) = self.holder(key) else { return Ok(None) };
        let Some(n) = node.int(key)? else { return Ok(None) };
        T::try_from(n).map(Some).map_err(|_| self.wrong(key, &format!("{n} is out of range")))
    }

    fn size(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        self.holder(key).map_or(Ok(None), |n| n.size(key))
    }

    fn wrong(&self, key: &str, why: &str) -> ConfigError {
        match self.node(key) {
            Some(n) => n.error(format!("af-packet: {key}: {why}")),
            None => ConfigError::new(margay_config::Place::file("configuration"), format!("af-packet: {key}: {why}")),
        }
    }

    fn device(&self, name: &str, mode: RunMode, filter: Option<&str>, cpus: &Cpus) -> Result<Device, Failed> {
        self.refuse()?;
        self.remark(name)?;
        let distribution = match self.text("cluster-type") {
            None => Distribution::Flow,
            Some("cluster_ebpf") => {
                return Err(self.wrong("cluster-type", "cluster_ebpf is not in this release; see cluster_flow").into());
            }
            Some(t) => Distribution::from_name(t).ok_or_else(|| {
                let there = "cluster_flow, cluster_cpu, cluster_qm, cluster_rollover, cluster_rnd, cluster_round_robin";
                self.wrong("cluster-type", &format!("\"{t}\" is no cluster type; there are {there}"))
            })?,
        };
        let workers = match (mode, self.text("threads")) {
            (RunMode::Single, _) => 1,
            (RunMode::Workers, None | Some("auto")) => match distribution {
                Distribution::Queue => queues(name).unwrap_or_else(|| cpus.workers(name)),
                _ => cpus.workers(name),
            },
            (RunMode::Workers, Some(_)) => self.number("threads")?.unwrap_or(1),
        };
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(self.wrong("threads", &format!("{workers} is not 1 to {WORKERS_MAX}")).into());
        }
        if workers > 1 && !distribution.keeps_flows() {
            notice!(
                "af-packet",
                "{name}: {}: all packets of a flow come to one worker only if the card and the system see to it (queues, \
                 interrupts); where they do not, streams have gaps",
                self.text("cluster-type").unwrap_or_default()
            );
        }
        let fanout = (workers > 1).then_some(Fanout {
            id: self.number("cluster-id")?,
            distribution,
            defrag: self.flag("defrag", true)?,
            rollover: self.flag("rollover", false)?,
        });
        let (block_size, blocks) = self.ring()?;
        let (trust, auto_trust) = match self.text("checksum-checks") {
            None | Some("kernel") => (Trust::Kernel, false),
            Some("auto") => (Trust::Kernel, true),
            Some(t) => match margay_config::typed::parse_bool(t) {
                Ok(true) => (Trust::Nobody, false),
                Ok(false) => (Trust::Everybody, false),
                Err(_) => {
                    let why = format!("\"{t}\" is none of kernel, yes, no and auto");
                    return Err(self.wrong("checksum-checks", &why).into());
                }
            },
        };
        let settings = Settings {
            block_size,
            blocks,
            block_timeout: self.number("block-timeout")?.unwrap_or(10),
            buffer_size: self
                .size("buffer-size")?
                .map(|n| u32::try_from(n).map_err(|_| self.wrong("buffer-size", "is larger than 4 GiB")))
                .transpose()?
                .unwrap_or(0),
            promiscuous: !self.flag("disable-promisc", false)?,
            trust,
            filter: filter.or_else(|| self.text("bpf-filter")).map(str::to_owned),
            fanout,
        };
        Ok(Device { name: name.to_owned(), workers, medium: Medium::AfPacket(settings), auto_trust })
    }

    /// Block size and number of blocks. `ring-size` is in packets, as in Suricata.
    fn ring(&self) -> Result<(u32, u32), ConfigError> {
        let d = Settings::default();
        let block: Option<u64> = self.size("block-size")?;
        let bytes = match self.number::<u64>("ring-size")? {
            Some(0) => return Err(self.wrong("ring-size", "0 packets are no ring")),
            Some(packets) => packets.saturating_mul(PACKET),
            None => u64::from(d.block_size) * u64::from(d.blocks),
        };
        // Several blocks, so that one can be filled while another is read.
        let block = block.unwrap_or_else(|| (bytes / 8).next_power_of_two().clamp(1 << 16, BLOCK));
        let blocks = bytes.div_ceil(block.max(1)).max(2);
        if block == 0 || !block.is_multiple_of(4096) {
            return Err(self.wrong("block-size", &format!("{block} bytes are not whole pages of 4096 bytes")));
        }
        match (u32::try_from(block), u32::try_from(blocks)) {
            (Ok(block), Ok(blocks)) if u64::from(block) * u64::from(blocks) <= 1 << 32 => Ok((block, blocks)),
            _ => Err(self.wrong("ring-size", "the ring would be larger than 4 GiB")),
        }
    }

    /// What is not here, and would change what is captured.
    fn refuse(&self) -> Result<(), ConfigError> {
        match self.text("copy-mode") {
            None | Some("none") => {}
            Some(mode @ ("ips" | "tap")) => {
                let why =
                    format!("\"{mode}\" is not in this release: it captures passively; remove it, or set it to none");
                return Err(self.wrong("copy-mode", &why));
            }
            Some(other) => return Err(self.wrong("copy-mode", &format!("\"{other}\" is none of none, ips and tap"))),
        }
        for key in ["ebpf-lb-file", "ebpf-filter-file", "xdp-filter-file"] {
            if self.text(key).is_some() {
                return Err(self.wrong(key, "programs of your own are not in this release"));
            }
        }
        Ok(())
    }

    /// What changes nothing, and is said.
    fn remark(&self, name: &str) -> Result<(), ConfigError> {
        for key in ["use-mmap", "tpacket-v3"] {
            if !self.flag(key, true)? {
                warning!("af-packet", "{name}: {key}: packets always come through a ring of TPACKET_V3");
            }
        }
        for key in ["use-emergency-flush", "bypass"] {
            if self.flag(key, false)? {
                warning!("af-packet", "{name}: {key} changes nothing in this release");
            }
        }
        Ok(())
    }
}

/// How many receive queues a card has.
fn queues(name: &str) -> Option<usize> {
    let list = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    let n = list.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("rx-")).count();
    Some(n.clamp(1, WORKERS_MAX)).filter(|_| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<Device, String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\naf-packet:\n{yaml}\n"), "t").unwrap();
        let entries: Vec<Node<'_>> = config.node("af-packet").iter().flat_map(Node::children).collect();
        let named = |name: &str| entries.iter().find(|e| e.get("interface") == Some(name)).copied();
        let of = Entry { own: named("e0"), default: named("default") };
        of.device("e0", RunMode::Workers, None, &Cpus::default()).map_err(|f| f.message)
    }

    #[test]
    fn an_interface_has_what_is_said_of_it_or_of_all() {
        let d = read(
            "  - interface: e0\n    threads: 3\n    cluster-id: 7\n    cluster-type: cluster_qm\n    defrag: no\n    \
             block-size: 1mb\n    ring-size: 8192\n    checksum-checks: auto\n  - interface: default\n    threads: 9\n    \
             disable-promisc: yes\n    bpf-filter: tcp port 80\n    rollover: yes",
        )
        .unwrap();
        let Medium::AfPacket(s) = d.medium;
        let fanout = Fanout { id: Some(7), distribution: Distribution::Queue, defrag: false, rollover: true };
        assert_eq!((d.workers, s.fanout, d.auto_trust), (3, Some(fanout), true));
        assert_eq!((s.block_size, s.blocks, s.promiscuous), (1 << 20, 16, false));
        assert_eq!(s.filter.as_deref(), Some("tcp port 80"));
    }

    #[test]
    fn rings() {
        let of = |text: &str| {
            read(&format!("  - interface: e0\n    {text}")).map(|d| {
                let Medium::AfPacket(s) = d.medium;
                (s.block_size, s.blocks)
            })
        };
        assert_eq!(of("threads: 1"), Ok((1 << 19, 64)));
        assert_eq!(of("ring-size: 2048"), Ok((1 << 19, 8)));
        assert_eq!(of("ring-size: 10"), Ok((1 << 16, 2)));
        assert_eq!(of("block-size: 32768"), Ok((32768, 1024)));
        assert!(of("block-size: 1000").unwrap_err().contains("pages"));
        assert!(of("ring-size: 0").is_err());
        assert!(of("ring-size: 99999999").unwrap_err().contains("4 GiB"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (text, word) in [
            ("copy-mode: ips", "passively"),
            ("copy-mode: both", "none of"),
            ("cluster-type: cluster_ebpf", "not in this release"),
            ("cluster-type: cluster_moon", "cluster_flow"),
            ("threads: 0", "1 to 256"),
            ("threads: many", "many"),
            ("checksum-checks: perhaps", "kernel"),
            ("cluster-id: 70000", "out of range"),
            ("xdp-filter-file: a.o", "not in this release"),
        ] {
            let e = read(&format!(
                "  - interface: e0\n    {text}\n    {}",
                if text.starts_with("threads") { "defrag: no" } else { "threads: 2" }
            ))
            .unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
