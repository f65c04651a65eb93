//! `af-packet:`: the interfaces to capture from, their workers, and their capture settings.

use std::any::Any;

use margay_capture::af_packet::{Agreement, BridgeEnd, Distribution, Fanout, Interface, Settings, Trust};
use margay_capture::ebpf::XdpMode;
use margay_config::{Capture, Config, ConfigError, Node, RunOptions};
use margay_output::{notice, warning};

use super::af_packet::Bridged;
use super::cpus::Cpus;
use super::medium::Medium;
use crate::Failed;

pub(super) mod nfqueue;

/// Limit of an interface's workers: the number of sockets that the kernel accepts into a fan-out group by default.
const WORKERS_MAX: usize = 256;
/// Assumed size of one packet of `ring-size` in the ring: a full Ethernet frame with its headers.
const PACKET: u64 = 2048;
/// Limit of the time that a thread polls for packets before it sleeps, in microseconds.
const BUSY_POLL_MAX: u32 = 10_000;
/// The largest default block size.
const BLOCK: u64 = 1 << 17;

/// An interface to capture from.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) medium: Box<dyn Medium>,
    /// Checksums are ignored once too many are wrong (`checksum-checks: auto`).
    pub(crate) auto_trust: bool,
    /// The kernel bypasses flows here (`bypass`).
    pub(crate) bypass: Option<XdpMode>,
}

impl Device {
    /// Whether packets may be dropped.
    pub(crate) fn drops(&self) -> bool {
        self.medium.drops()
    }

    /// Its interfaces, indexed by the source's ends.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.medium.interfaces(&self.name).into_iter().flatten()
    }

    /// The fan-out groups with a configured number.
    fn groups(&self) -> impl Iterator<Item = u16> {
        self.medium.groups().into_iter().flatten()
    }

    /// The AF_PACKET settings of an interface that uses AF_PACKET.
    fn packet_settings(&mut self) -> Option<&mut Settings> {
        (&mut *self.medium as &mut dyn Any).downcast_mut()
    }
}

/// The arrangement of workers (`--runmode`, `runmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunMode {
    /// One worker.
    Single,
    /// Several workers for each interface, each doing all the work.
    Workers,
}

impl RunMode {
    /// # Errors
    /// More interfaces than the mode allows.
    pub(super) fn check(self, names: &[String]) -> Result<(), Failed> {
        if self == RunMode::Single && names.len() > 1 {
            return Err(Failed::new("runmodes", "the run mode \"single\" takes one interface; there are several"));
        }
        Ok(())
    }

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
                "autofp: the kernel distributes flows to the workers (fan-out), and idle workers help busy ones \
                 (margay.search-ahead): running as \"workers\""
            );
            Ok(RunMode::Workers)
        }
        Some(other) => Err(Failed::new(
            "runmodes",
            format!("there is no run mode \"{other}\" for live capture; there are single and workers"),
        )),
    }
}

/// The AF_PACKET interfaces of the command line, or else all of the configuration.
///
/// # Errors
/// No interface, an interface that does not exist, or an invalid or unsupported setting.
pub(super) fn af_packet_devices(
    config: &Config,
    options: &RunOptions,
    mode: RunMode,
    cpus: &Cpus,
) -> Result<Vec<Device>, Failed> {
    let entries = Entries::of(config, "af-packet");
    let names = entries.chosen(options);
    if names.is_empty() {
        return Err(Failed::new("af-packet", "no interface: name one (-i eth0), or list some under af-packet"));
    }
    mode.check(&names)?;
    let filter = crate::settings::filter(options, "af-packet")?;
    let mut devices: Vec<Device> = Vec::new();
    for name in names {
        if let Some(known) = devices.iter().find(|d| d.interfaces().any(|i| i == name)) {
            if known.name != name {
                // The other interface of a bridge.
                continue;
            }
            return Err(Failed::new("af-packet", format!("{name}: is named twice")));
        }
        let device = device(&entries, &name, mode, filter.as_deref(), cpus)?;
        for name in device.interfaces() {
            Interface::find(name).map_err(|e| Failed::new("af-packet", e.to_string()))?;
        }
        let mut ids: Vec<u16> = devices.iter().flat_map(Device::groups).collect();
        for id in device.groups() {
            if ids.contains(&id) {
                return Err(Failed::new(
                    "af-packet",
                    format!("{name}: has the cluster-id {id} of another interface: each interface needs its own"),
                ));
            }
            ids.push(id);
        }
        devices.push(device);
    }
    let inline = devices.iter().any(Device::drops);
    if let Some(d) = devices.iter().find(|d| inline && !d.drops()) {
        warning!(
            "af-packet",
            "{}: is not inline, and another interface is: events of its packets say what would be done inline, and nothing is",
            d.name
        );
    }
    Ok(devices)
}

/// The device of an interface, or of two that are bridged.
fn device(
    entries: &Entries<'_>,
    name: &str,
    mode: RunMode,
    filter: Option<&str>,
    cpus: &Cpus,
) -> Result<Device, Failed> {
    let of = entries.of_interface(name);
    let Some((other, drops)) = of.bridged()? else { return of.device(name, mode, filter, cpus) };
    let back = entries.of_interface(&other);
    if filter.is_some() {
        return Err(of.wrong("copy-mode", NO_FILTER).into());
    }
    let [a, b] = [of, back].map(|e| e.copies(mode, cpus));
    bridge((&of, name, a?, drops), (&back, &other, b?))
}

/// Validates the af-packet section, whether the interfaces exist or not.
///
/// # Errors
/// An invalid setting, or two interfaces that cannot be bridged.
pub(super) fn test(config: &Config, mode: RunMode, cpus: &Cpus) -> Result<(), Failed> {
    let entries = Entries::of(config, "af-packet");
    entries.interfaces().iter().try_for_each(|name| device(&entries, name, mode, None, cpus).map(drop))
}

/// Whether captured packets may be dropped: an interface has `copy-mode: ips`, or the source is a netfilter queue.
pub(crate) fn is_inline(config: &Config, options: &RunOptions) -> bool {
    if let Some(Capture::Nfqueue(_)) = options.capture {
        return true;
    }
    let entries = Entries::of(config, "af-packet");
    let names = entries.chosen(options);
    names.iter().any(|n| entries.of_interface(n).text("copy-mode") == Some("ips"))
}

/// Whether the kernel bypasses flows of the capture source.
pub(super) fn bypasses(config: &Config, options: &RunOptions) -> bool {
    let entries = Entries::of(config, "af-packet");
    let names = entries.chosen(options);
    names.iter().any(|n| entries.of_interface(n).flag("bypass", false).unwrap_or(false))
}

const NO_FILTER: &str = "a filter cannot go with it: packets that do not match would not be sent on; leave packets out with \
                         pass rules";

/// Joins two interfaces into a bridge: each sends out the packets that the other receives.
fn bridge(
    (of, name, mut mine, drops): (&Entry<'_>, &str, Device, bool),
    (back, other, mut theirs): (&Entry<'_>, &str, Device),
) -> Result<Device, Failed> {
    if name == other {
        return Err(of.wrong("copy-iface", &format!("{name} cannot be bridged with itself")).into());
    }
    let other_drops = match back.bridged()? {
        Some((to, drops)) if to == name => drops,
        Some((to, _)) => {
            let why = format!("{name} is bridged with {other}, and {other} with {to}: each has to name the other");
            return Err(of.wrong("copy-iface", &why).into());
        }
        None => {
            let why = format!("{name} is bridged with {other}: that needs an entry with copy-iface: {name} as well");
            return Err(of.wrong("copy-iface", &why).into());
        }
    };
    if drops != other_drops {
        warning!(
            "af-packet",
            "{name} and {other}: one has copy-mode ips and the other tap: what comes in at {} is never dropped",
            if drops { other } else { name }
        );
    }
    if mine.workers != theirs.workers {
        let why = format!(
            "{name} has {} workers and {other} {}: each works on both, so the numbers have to be the same",
            mine.workers, theirs.workers
        );
        return Err(of.wrong("threads", &why).into());
    }
    let sizes = [name, other].map(Interface::mtu);
    if sizes[0] != sizes[1] {
        warning!(
            "af-packet",
            "{name} has an MTU of {}, and {other} of {}: packets that are too large for the other are lost",
            sizes[0],
            sizes[1]
        );
    }
    let (Some(a), Some(b)) = (mine.packet_settings().cloned(), theirs.packet_settings().cloned()) else {
        return Err(of.wrong("copy-mode", "cannot be bridged").into());
    };
    if mine.bypass != theirs.bypass {
        let why = format!("{name} and {other} need the same, and the same xdp-mode");
        return Err(of.wrong("bypass", &why).into());
    }
    if a.fanout.map(|f| f.distribution) != b.fanout.map(|f| f.distribution) {
        return Err(of.wrong("cluster-type", &format!("{name} and {other} need the same")).into());
    }
    let ends = [
        BridgeEnd { name: name.to_owned(), settings: a, drops },
        BridgeEnd { name: other.to_owned(), settings: b, drops: other_drops },
    ];
    Ok(Device {
        name: name.to_owned(),
        workers: mine.workers,
        medium: Box::new(Bridged { ends, agreement: Agreement::default() }),
        auto_trust: mine.auto_trust,
        bypass: mine.bypass,
    })
}

/// A list of interfaces: `af-packet:` or `af-xdp:`.
pub(super) struct Entries<'a> {
    section: &'static str,
    list: Vec<Node<'a>>,
}

impl<'a> Entries<'a> {
    pub(super) fn of(config: &'a Config, section: &'static str) -> Entries<'a> {
        Entries { section, list: config.node(section).iter().flat_map(Node::children).collect() }
    }

    pub(super) fn of_interface(&self, name: &str) -> Entry<'a> {
        let named = |name: &str| self.list.iter().find(|e| e.get("interface") == Some(name)).copied();
        Entry { section: self.section, own: named(name), default: named("default") }
    }

    /// The interfaces with an entry.
    pub(super) fn interfaces(&self) -> Vec<String> {
        self.list.iter().filter_map(|e| e.get("interface")).filter(|n| *n != "default").map(str::to_owned).collect()
    }

    /// The interfaces of the command line, or else the whole list.
    fn chosen(&self, options: &RunOptions) -> Vec<String> {
        match &options.capture {
            Some(Capture::Interfaces(names) | Capture::AfPacket(names)) if !names.is_empty() => names.clone(),
            Some(Capture::Interfaces(_) | Capture::AfPacket(_)) => self.interfaces(),
            _ => Vec::new(),
        }
    }
}

/// An interface's entry, and the default entry.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    /// The section's name: `af-packet` or `af-xdp`.
    section: &'static str,
    own: Option<Node<'a>>,
    default: Option<Node<'a>>,
}

impl<'a> Entry<'a> {
    pub(super) fn node(&self, key: &str) -> Option<Node<'a>> {
        self.own.and_then(|n| n.node(key)).or_else(|| self.default.and_then(|n| n.node(key)))
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.node(key).map(|n| n.text()).filter(|t| !t.is_empty())
    }

    /// The entry that has the key, for the getters.
    fn holder(&self, key: &str) -> Option<Node<'a>> {
        [self.own, self.default].into_iter().flatten().find(|n| n.node(key).is_some())
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        self.holder(key).map_or(Ok(default), |n| Ok(n.bool(key)?.unwrap_or(default)))
    }

    pub(super) fn number<T: TryFrom<i64>>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(node) = self.holder(key) else { return Ok(None) };
        let Some(n) = node.int(key)? else { return Ok(None) };
        T::try_from(n).map(Some).map_err(|_| self.wrong(key, &format!("{n} is out of range")))
    }

    pub(super) fn size(&self, key: &str) -> Result<Option<u64>, ConfigError> {
        self.holder(key).map_or(Ok(None), |n| n.size(key))
    }

    pub(super) fn wrong(&self, key: &str, why: &str) -> ConfigError {
        match self.node(key) {
            Some(n) => n.error(format!("{}: {key}: {why}", self.section)),
            None => {
                ConfigError::new(margay_config::Place::file("configuration"), format!("{}: {key}: {why}", self.section))
            }
        }
    }

    /// The interface that packets are sent to, and whether they may be dropped (`copy-mode: ips`) or not (`tap`).
    fn bridged(&self) -> Result<Option<(String, bool)>, ConfigError> {
        let drops = match self.text("copy-mode") {
            None | Some("none") => {
                if self.text("copy-iface").is_some() {
                    warning!("af-packet", "copy-iface changes nothing without copy-mode");
                }
                return Ok(None);
            }
            Some("ips") => true,
            Some("tap") => false,
            Some(other) => return Err(self.wrong("copy-mode", &format!("\"{other}\" is none of none, ips and tap"))),
        };
        match self.text("copy-iface") {
            Some(to) => Ok(Some((to.to_owned(), drops))),
            None => Err(self.wrong("copy-mode", "needs copy-iface: the interface that packets are sent out of")),
        }
    }

    /// Like [`Entry::device`], for an interface whose packets are forwarded.
    fn copies(&self, mode: RunMode, cpus: &Cpus) -> Result<Device, Failed> {
        let name = self.own.and_then(|n| n.get("interface")).unwrap_or_default();
        let mut device = self.device(name, mode, None, cpus)?;
        let Some(s) = device.packet_settings() else { return Ok(device) };
        if s.filter.is_some() {
            return Err(self.wrong("bpf-filter", NO_FILTER).into());
        }
        if !s.promiscuous {
            warning!(
                "af-packet",
                "{name}: disable-promisc: only packets to the interface itself come in and are sent on"
            );
        }
        if let Some(f) = &mut s.fanout {
            if f.rollover
                || matches!(f.distribution, Distribution::Rollover | Distribution::Random | Distribution::RoundRobin)
            {
                let why = "packets of a flow have to come to one worker where they may be dropped: cluster_flow, without rollover";
                return Err(self.wrong("cluster-type", why).into());
            }
            if f.defrag && self.node("defrag").is_some() {
                warning!(
                    "af-packet",
                    "{name}: defrag: fragments are forwarded unchanged, and reassembled by the engine"
                );
            }
            f.defrag = false;
        }
        Ok(device)
    }

    fn device(&self, name: &str, mode: RunMode, filter: Option<&str>, cpus: &Cpus) -> Result<Device, Failed> {
        self.refuse()?;
        let distribution = match self.text("cluster-type") {
            None => Distribution::Flow,
            Some(t) => Distribution::from_name(t).ok_or_else(|| {
                let there = "cluster_flow, cluster_cpu, cluster_qm, cluster_rollover, cluster_rnd, cluster_round_robin, cluster_ebpf";
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
        let (trust, auto_trust) = self.trust()?;
        let settings = Settings {
            block_size,
            blocks,
            block_timeout: self.number("block-timeout")?.unwrap_or(10),
            busy_poll: self.busy_poll()?,
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
        Ok(Device {
            name: name.to_owned(),
            workers,
            medium: Box::new(settings),
            auto_trust,
            bypass: self.bypass(name)?,
        })
    }

    /// Whether the kernel bypasses flows, and in which XDP mode.
    fn bypass(&self, name: &str) -> Result<Option<XdpMode>, ConfigError> {
        let wanted = self.flag("bypass", false)?;
        let mode = match self.text("xdp-mode") {
            None | Some("soft") => XdpMode::Generic,
            Some("driver") => XdpMode::Driver,
            Some("hw") => {
                let why = "\"hw\" cannot be: cards that run programs themselves have no counts for each CPU; there are soft and driver";
                return Err(self.wrong("xdp-mode", why));
            }
            Some(other) => return Err(self.wrong("xdp-mode", &format!("\"{other}\" is none of soft, driver and hw"))),
        };
        let file = self.text("xdp-filter-file").is_some();
        match (wanted, file) {
            (false, true) => {
                let why = "programs of your own are not run; with bypass: yes that of this engine takes its place";
                return Err(self.wrong("xdp-filter-file", why));
            }
            (true, true) => notice!("af-packet", "{name}: xdp-filter-file: the program of this engine takes its place"),
            _ => {}
        }
        if wanted && self.flag("pinned-maps", false)? {
            let why = "a table that outlives the engine would go on dropping packets that nobody counts: remove it";
            return Err(self.wrong("pinned-maps", why));
        }
        // A list has no text.
        let one_none =
            |n: &Node<'_>| n.text() == "none" || (n.text().is_empty() && n.children().all(|c| c.text() == "none"));
        if self.node("xdp-cpu-redirect").is_some_and(|n| !one_none(&n)) {
            let why = "packets are not moved to other CPUs: distribute them by the card's queues (RSS), and remove it";
            return Err(self.wrong("xdp-cpu-redirect", why));
        }
        if wanted && let Some(bridge) = master(name) {
            warning!(
                "af-packet",
                "{name}: bypass: it is a part of {bridge}, whose packets must not be dropped: flows are bypassed in user space alone"
            );
            return Ok(None);
        }
        Ok(wanted.then_some(mode))
    }

    /// Which checksums count as correct, and whether that is judged automatically.
    pub(super) fn trust(&self) -> Result<(Trust, bool), ConfigError> {
        Ok(match self.text("checksum-checks") {
            None | Some("kernel") => (Trust::Kernel, false),
            Some("auto") => (Trust::Kernel, true),
            Some(t) => match margay_config::typed::parse_bool(t) {
                Ok(true) => (Trust::Nobody, false),
                Ok(false) => (Trust::Everybody, false),
                Err(_) => {
                    let why = format!("\"{t}\" is none of kernel, yes, no and auto");
                    return Err(self.wrong("checksum-checks", &why));
                }
            },
        })
    }

    /// Microseconds that a bridge's worker polls for packets before it sleeps.
    fn busy_poll(&self) -> Result<u32, ConfigError> {
        match self.number::<u32>("busy-poll")?.unwrap_or(Settings::default().busy_poll) {
            n if n <= BUSY_POLL_MAX => Ok(n),
            n => Err(self.wrong("busy-poll", &format!("{n} is more than {BUSY_POLL_MAX} microseconds"))),
        }
    }

    /// Block size and number of blocks. `ring-size` counts packets, as in Suricata.
    fn ring(&self) -> Result<(u32, u32), ConfigError> {
        let d = Settings::default();
        let block: Option<u64> = self.size("block-size")?;
        let bytes = match self.number::<u64>("ring-size")? {
            Some(0) => return Err(self.wrong("ring-size", "a ring needs at least one packet")),
            Some(packets) => packets.saturating_mul(PACKET),
            None => u64::from(d.block_size) * u64::from(d.blocks),
        };
        // There are several blocks, so that one can fill while another is read.
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

    /// Refuses unsupported settings that would change which packets are captured.
    fn refuse(&self) -> Result<(), ConfigError> {
        let spreads = self.text("cluster-type") == Some("cluster_ebpf");
        if spreads && self.text("ebpf-lb-file").is_some() {
            notice!("af-packet", "ebpf-lb-file: the program of this engine takes its place");
        }
        for key in ["ebpf-lb-file", "ebpf-filter-file"] {
            if self.text(key).is_some() && !(spreads && key == "ebpf-lb-file") {
                return Err(self.wrong(key, "programs of your own are not in this release"));
            }
        }
        Ok(())
    }
}

/// The bridge or bond that an interface belongs to.
fn master(name: &str) -> Option<String> {
    let master = std::fs::read_link(format!("/sys/class/net/{name}/master")).ok()?;
    Some(master.file_name()?.to_string_lossy().into_owned())
}

/// The number of a card's receive queues.
fn queues(name: &str) -> Option<usize> {
    let list = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
    let n = list.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("rx-")).count();
    Some(n.clamp(1, WORKERS_MAX)).filter(|_| n > 0)
}

#[cfg(test)]
mod tests;
