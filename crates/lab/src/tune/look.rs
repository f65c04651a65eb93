//! What there is: read from `/proc` and `/sys`, and asked of drivers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ethtool::{Ethtool, Queues};

/// What of the machine matters to a sensor.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    pub(super) cores: Vec<usize>,
    /// Memory nodes, and the cores of each.
    pub(super) nodes: BTreeMap<i32, Vec<usize>>,
    /// How the frequency of cores is chosen, and of which; none where the machine does not let the kernel choose.
    pub(super) governors: BTreeMap<String, Vec<usize>>,
    /// Cores that the scheduler leaves alone, and those without a clock tick, as the kernel writes them.
    pub(super) isolated: String,
    pub(super) tickless: String,
    /// Whether two of the cores are one core's halves.
    pub(super) smt: bool,
    pub(super) irqbalance: bool,
    /// Since the machine was started: packets, those without room in a core's queue, and times that a core had to leave some.
    pub(super) softnet: [u64; 3],
    pub(super) backlog: Option<u64>,
    pub(super) budget: Option<u64>,
}

/// What of an interface does.
#[derive(Clone, Debug, Default)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) driver: String,
    /// The memory node that it is at; none where it has no hardware or there is one node.
    pub(super) node: Option<i32>,
    pub(super) up: bool,
    /// Descriptors of a receive ring, and as many as there may be.
    pub(super) ring: Option<(u32, u32)>,
    pub(super) queues: Option<Queues>,
    pub(super) lro: Option<bool>,
    pub(super) gro: Option<bool>,
    /// Interrupts, and the cores that each may come to.
    pub(super) interrupts: BTreeMap<u32, Vec<usize>>,
    /// Packets that it had no room for since it is there.
    pub(super) missed: u64,
}

/// Where to look: `/`, or a folder that stands for it.
pub(super) struct Root(pub(super) PathBuf);

impl Root {
    fn path(&self, at: &str) -> PathBuf {
        self.0.join(at)
    }

    /// A file's text, without what is around it; none where it is not there or may not be read.
    fn text(&self, at: &str) -> Option<String> {
        fs::read_to_string(self.path(at)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, at: &str) -> Option<u64> {
        self.text(at)?.parse().ok()
    }

    fn names(&self, at: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(at)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn machine(&self) -> Machine {
        let cpu = "sys/devices/system/cpu";
        let cores = list(&self.text(&format!("{cpu}/online")).unwrap_or_default());
        let mut governors: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for core in &cores {
            if let Some(governor) = self.text(&format!("{cpu}/cpu{core}/cpufreq/scaling_governor")) {
                governors.entry(governor).or_default().push(*core);
            }
        }
        let mut nodes = BTreeMap::new();
        for name in self.names("sys/devices/system/node") {
            if let Some(n) = name.strip_prefix("node").and_then(|n| n.parse().ok()) {
                let cores = self.text(&format!("sys/devices/system/node/{name}/cpulist")).unwrap_or_default();
                nodes.insert(n, list(&cores));
            }
        }
        let mut softnet = [0; 3];
        for line in self.text("proc/net/softnet_stat").unwrap_or_default().lines() {
            for (sum, word) in softnet.iter_mut().zip(line.split_whitespace()) {
                *sum += u64::from_str_radix(word, 16).unwrap_or(0);
            }
        }
        let processes = self.names("proc");
        let pids = processes.iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit()));
        let irqbalance = pids.filter_map(|pid| self.text(&format!("proc/{pid}/comm"))).any(|comm| comm == "irqbalance");
        Machine {
            cores,
            nodes,
            governors,
            isolated: self.text(&format!("{cpu}/isolated")).unwrap_or_default(),
            tickless: self.text(&format!("{cpu}/nohz_full")).filter(|text| text != "(null)").unwrap_or_default(),
            smt: self.number(&format!("{cpu}/smt/active")) == Some(1),
            irqbalance,
            softnet,
            backlog: self.number("proc/sys/net/core/netdev_max_backlog"),
            budget: self.number("proc/sys/net/core/netdev_budget"),
        }
    }

    /// Interfaces with hardware; where there is none, all but the loopback.
    pub(super) fn interfaces(&self) -> Vec<String> {
        let all: Vec<String> = self.names("sys/class/net").into_iter().filter(|name| name != "lo").collect();
        let hard = |name: &&String| self.path(&format!("sys/class/net/{name}/device")).exists();
        let hardware: Vec<String> = all.iter().filter(hard).cloned().collect();
        if hardware.is_empty() { all } else { hardware }
    }

    /// None where there is no such interface.
    pub(super) fn card(&self, name: &str) -> Option<Card> {
        let at = format!("sys/class/net/{name}");
        if name.is_empty() || name.contains('/') || !self.path(&at).exists() {
            return None;
        }
        let driver = fs::read_link(self.path(&format!("{at}/device/driver"))).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map(|d| d.to_string_lossy().into_owned());
        // A card's own, or those of the card that a virtual device of the machine's is behind.
        let mut interrupts = BTreeMap::new();
        for folder in ["device/msi_irqs", "device/../msi_irqs"] {
            for irq in self.names(&format!("{at}/{folder}")) {
                let cores = self.text(&format!("proc/irq/{irq}/smp_affinity_list"));
                if let (Ok(irq), Some(cores)) = (irq.parse(), cores) {
                    interrupts.insert(irq, list(&cores));
                }
            }
            if !interrupts.is_empty() {
                break;
            }
        }
        let missed = ["rx_missed_errors", "rx_fifo_errors"];
        let missed = missed.iter().filter_map(|what| self.number(&format!("{at}/statistics/{what}"))).sum();
        Some(Card {
            name: name.to_owned(),
            driver: driver.unwrap_or_else(|| "no hardware".into()),
            node: self.text(&format!("{at}/device/numa_node")).and_then(|n| n.parse().ok()).filter(|n| *n >= 0),
            up: self.text(&format!("{at}/operstate")).is_some_and(|state| state != "down"),
            interrupts,
            missed,
            ..Card::default()
        })
    }
}

impl Card {
    /// With what the driver says.
    pub(super) fn asked(mut self) -> Card {
        if let Ok(driver) = Ethtool::open(&self.name) {
            self.ring = driver.receive_ring();
            self.queues = driver.receive_queues();
            self.lro = driver.lro();
            self.gro = driver.gro();
        }
        self
    }
}

/// `0,2-5` as numbers; what is none is left out.
pub(super) fn list(text: &str) -> Vec<usize> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>())
            && last < 65_536
        {
            all.extend(first..=last);
        }
    }
    all
}
