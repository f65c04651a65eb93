//! A machine's settings: the name in journals, reading and writing, and the equivalent command.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::card::{Answer, Cards, Channels, Coalesce, Pause, Refusal, Ring, Words, is_even_text, key_of, on};
use super::discover::interrupts;
use super::list;
use super::tree::Tree;

/// A setting. Interfaces are identified by name, and queues by number, because a queue's interrupt changes with the
/// number of queues and with each boot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Knob {
    /// A service, running or stopped.
    Service(String),
    Channels(String),
    Ring(String),
    Pause(String),
    Feature(String, String),
    RssFunction(String),
    RssTransform(String),
    RssKey(String),
    RssTable(String),
    Hash(String, String),
    Coalesce(String),
    Promisc(String),
    Arp(String),
    /// CPUs that a receive queue hands its packets to: `rps_cpus`, as a list.
    Rps(String, u32),
    /// The affinity of a receive queue's interrupt.
    Irq(String, u32),
    /// A file of the kernel.
    File(String),
    /// A folder, file or symbolic link that we create.
    OwnFolder(String),
    Own(String),
    OwnLink(String),
}

/// A setting's value; `None` if it does not exist, such as a removed queue or a file that is not created yet.
pub(crate) type Value = Option<String>;

impl Knob {
    /// The order of writing: settings that make a driver forget others come before those.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Knob::Service(_) => 0,
            Knob::Channels(_) => 10,
            Knob::Ring(_) => 20,
            Knob::Pause(_) => 25,
            Knob::Feature(..) => 30,
            Knob::RssFunction(_) => 40,
            Knob::RssTransform(_) => 41,
            Knob::RssKey(_) => 42,
            Knob::RssTable(_) => 43,
            Knob::Hash(..) => 39,
            Knob::Coalesce(_) => 50,
            Knob::Promisc(_) | Knob::Arp(_) => 55,
            Knob::Rps(..) => 60,
            Knob::Irq(..) => 61,
            Knob::File(_) => 70,
            Knob::OwnFolder(_) => 90,
            Knob::Own(_) => 91,
            Knob::OwnLink(_) => 92,
        }
    }

    /// The interface of the setting.
    pub(crate) fn interface(&self) -> Option<&str> {
        match self {
            Knob::Channels(name)
            | Knob::Ring(name)
            | Knob::Pause(name)
            | Knob::Feature(name, _)
            | Knob::RssFunction(name)
            | Knob::RssTransform(name)
            | Knob::RssKey(name)
            | Knob::RssTable(name)
            | Knob::Hash(name, _)
            | Knob::Coalesce(name)
            | Knob::Promisc(name)
            | Knob::Arp(name)
            | Knob::Rps(name, _)
            | Knob::Irq(name, _) => Some(name),
            Knob::File(path) => {
                let folders = ["/sys/class/net/", "/proc/sys/net/ipv4/conf/", "/proc/sys/net/ipv6/conf/"];
                let rest = folders.iter().find_map(|folder| path.strip_prefix(folder))?;
                rest.split('/').next()
            }
            Knob::Service(_) | Knob::Own(_) | Knob::OwnLink(_) | Knob::OwnFolder(_) => None,
        }
    }

    /// Whether a change makes drivers change other settings of the interface.
    pub(crate) fn has_side_effects(&self) -> bool {
        matches!(self, Knob::Channels(_) | Knob::Ring(_))
    }

    /// Whether a change may take the link down for a while.
    pub(crate) fn may_cut_link(&self) -> bool {
        matches!(self, Knob::Channels(_) | Knob::Ring(_) | Knob::Pause(_) | Knob::RssFunction(_))
            || matches!(self, Knob::Feature(_, name) if ["rx-lro", "rx-gro-hw", "rx-ntuple-filter"].contains(&name.as_str()))
    }

    /// Whether drivers may silently choose another number.
    pub(crate) fn may_round(&self) -> bool {
        matches!(self, Knob::Ring(_) | Knob::Coalesce(_))
    }

    /// Whether the driver's own value is equivalent: another even spread over all queues.
    pub(crate) fn is_as_good(&self, want: &str, got: &str) -> bool {
        matches!(self, Knob::RssTable(_)) && want == "default" && is_even_text(got)
    }

    /// Whether it outlives a restart of the machine.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Knob::Own(_) | Knob::OwnLink(_) | Knob::OwnFolder(_))
    }

    /// The equivalent command, for people.
    pub(crate) fn command(&self, value: &str) -> String {
        match self {
            Knob::Service(name) if value == "stopped" => format!("systemctl stop {name}"),
            Knob::Service(name) => format!("systemctl start {name}"),
            Knob::Channels(name) => format!("ethtool -L {name} {value}"),
            Knob::Ring(name) => format!("ethtool -G {name} {value}"),
            Knob::Pause(name) => format!("ethtool -A {name} {value}"),
            Knob::Feature(name, feature) => format!("ethtool -K {name} {feature} {value}"),
            Knob::RssFunction(name) => format!("ethtool -X {name} hfunc {value}"),
            Knob::RssTransform(name) => format!("ethtool -X {name} xfrm {value}"),
            Knob::RssKey(name) => format!("ethtool -X {name} hkey {value}"),
            Knob::RssTable(name) => format!("ethtool -X {name} {value}"),
            Knob::Hash(name, flow) => format!("ethtool -N {name} rx-flow-hash {flow} {value}"),
            Knob::Coalesce(name) => format!("ethtool -C {name} {value}"),
            Knob::Promisc(name) => format!("ip link set {name} promisc {value}"),
            Knob::Arp(name) => format!("ip link set {name} arp {value}"),
            Knob::Rps(name, queue) => {
                let mask = list::to_mask(&list::parse(value));
                format!("echo {mask} > /sys/class/net/{name}/queues/rx-{queue}/rps_cpus")
            }
            Knob::Irq(name, queue) => {
                format!("echo {value} > /proc/irq/$(margay tune discover --irq {name}:{queue})/smp_affinity_list")
            }
            Knob::File(path) => match path.strip_prefix("/proc/sys/") {
                Some(name) => {
                    let quoted = if value.contains(' ') { format!("'{value}'") } else { value.to_owned() };
                    format!("sysctl -w {}={quoted}", name.replace('/', "."))
                }
                None => format!("echo {value} > {path}"),
            },
            Knob::OwnFolder(path) => format!("mkdir {path}"),
            Knob::Own(path) => format!("write {path}"),
            Knob::OwnLink(path) => format!("ln -s {value} {path}"),
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Service(name) => write!(out, "service {name}"),
            Knob::Channels(name) => write!(out, "channels {name}"),
            Knob::Ring(name) => write!(out, "ring {name}"),
            Knob::Pause(name) => write!(out, "pause {name}"),
            Knob::Feature(name, feature) => write!(out, "feature {name} {feature}"),
            Knob::RssFunction(name) => write!(out, "rss-function {name}"),
            Knob::RssTransform(name) => write!(out, "rss-transform {name}"),
            Knob::RssKey(name) => write!(out, "rss-key {name}"),
            Knob::RssTable(name) => write!(out, "rss-table {name}"),
            Knob::Hash(name, flow) => write!(out, "hash {name} {flow}"),
            Knob::Coalesce(name) => write!(out, "coalesce {name}"),
            Knob::Promisc(name) => write!(out, "promisc {name}"),
            Knob::Arp(name) => write!(out, "arp {name}"),
            Knob::Rps(name, queue) => write!(out, "rps {name} {queue}"),
            Knob::Irq(name, queue) => write!(out, "irq {name} {queue}"),
            Knob::File(path) => write!(out, "file {path}"),
            Knob::OwnFolder(path) => write!(out, "own-folder {path}"),
            Knob::Own(path) => write!(out, "own {path}"),
            Knob::OwnLink(path) => write!(out, "own-link {path}"),
        }
    }
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(text: &str) -> Result<Knob, String> {
        let wrong = || format!("'{text}' is no setting");
        let (kind, rest) = text.split_once(' ').ok_or_else(wrong)?;
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        let name = first.to_owned();
        let queue = || second.parse().map_err(|_| wrong());
        Ok(match kind {
            "service" => Knob::Service(name),
            "channels" => Knob::Channels(name),
            "ring" => Knob::Ring(name),
            "pause" => Knob::Pause(name),
            "feature" => Knob::Feature(name, second.to_owned()),
            "rss-function" => Knob::RssFunction(name),
            "rss-transform" => Knob::RssTransform(name),
            "rss-key" => Knob::RssKey(name),
            "rss-table" => Knob::RssTable(name),
            "hash" => Knob::Hash(name, second.to_owned()),
            "coalesce" => Knob::Coalesce(name),
            "promisc" => Knob::Promisc(name),
            "arp" => Knob::Arp(name),
            "rps" => Knob::Rps(name, queue()?),
            "irq" => Knob::Irq(name, queue()?),
            "file" => Knob::File(rest.to_owned()),
            "own-folder" => Knob::OwnFolder(rest.to_owned()),
            "own" => Knob::Own(rest.to_owned()),
            "own-link" => Knob::OwnLink(rest.to_owned()),
            _ => return Err(wrong()),
        })
    }
}

/// A machine whose settings can be read and written.
pub(crate) trait Machine {
    fn tree(&self) -> &dyn Tree;
    fn cards(&self) -> &dyn Cards;
    /// `stopped`, or how the service runs, in enough detail to start it again.
    fn service(&self, name: &str) -> Answer<String>;
    fn set_service(&self, name: &str, state: &str) -> Answer<()>;
    /// Waits.
    fn wait(&self, time: Duration);

    /// Reads a setting's value. A missing one is `None`; one that the driver does not have is refused.
    fn read(&self, knob: &Knob) -> Answer<Value> {
        match read(self.tree(), self.cards(), knob, |name| self.service(name)) {
            Err(Refusal::Missing) => Ok(None),
            other => other,
        }
    }

    /// Writes a setting. A missing queue needs no write to become `None`.
    fn write(&self, knob: &Knob, value: &Value) -> Answer<()> {
        write(self.tree(), self.cards(), knob, value, |name, state| self.set_service(name, state))
    }
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn read(tree: &dyn Tree, cards: &dyn Cards, knob: &Knob, service: impl Fn(&str) -> Answer<String>) -> Answer<Value> {
    Ok(Some(match knob {
        Knob::Service(name) => service(name)?,
        Knob::Channels(name) => cards.channels(name)?.0.to_string(),
        Knob::Ring(name) => cards.ring(name)?.0.to_string(),
        Knob::Pause(name) => cards.pause(name)?.to_string(),
        Knob::Feature(name, feature) => {
            let features = cards.features(name)?;
            on(features.get(feature).ok_or(Refusal::Unsupported)?.on).to_owned()
        }
        Knob::RssFunction(name) => cards.rss(name)?.function,
        Knob::RssTransform(name) => cards.rss(name)?.transform,
        Knob::RssKey(name) => cards.rss(name)?.key_text(),
        Knob::RssTable(name) => {
            let queues = cards.channels(name).map_or(0, |(now, _)| now.receive());
            cards.rss(name)?.table_text(queues)
        }
        Knob::Hash(name, flow) => cards.hash_fields(name, flow)?,
        Knob::Coalesce(name) => cards.coalesce(name)?.to_string(),
        Knob::Promisc(name) => on(cards.flags(name)?.promisc).to_owned(),
        Knob::Arp(name) => on(cards.flags(name)?.arp).to_owned(),
        Knob::Rps(name, queue) => {
            let text = tree.read(&format!("/sys/class/net/{name}/queues/rx-{queue}/rps_cpus"))?;
            list::show(&list::from_mask(&text))
        }
        Knob::Irq(name, queue) => {
            let irq = interrupts::of_queue(tree, name, *queue).ok_or(Refusal::Missing)?;
            list::show(&list::parse(&tree.read(&format!("/proc/irq/{irq}/smp_affinity_list"))?))
        }
        Knob::File(path) => words(&tree.read(path)?),
        Knob::Own(path) => tree.read(path)?,
        Knob::OwnLink(path) => tree.link(path).ok_or(Refusal::Missing)?,
        Knob::OwnFolder(path) => return Ok(tree.exists(path).then(|| "there".to_owned())),
    }))
}

fn wrong(value: &str) -> Refusal {
    Refusal::Other(format!("'{value}' is not a valid value"))
}

fn write(
    tree: &dyn Tree,
    cards: &dyn Cards,
    knob: &Knob,
    value: &Value,
    service: impl Fn(&str, &str) -> Answer<()>,
) -> Answer<()> {
    match (knob, value) {
        (Knob::Own(path), _) => return tree.put_file(path, value.as_deref()),
        (Knob::OwnLink(path), _) => return tree.put_link(path, value.as_deref()),
        (Knob::OwnFolder(path), _) => return tree.put_folder(path, value.is_some()),
        _ => {}
    }
    let Some(text) = value.as_deref() else { return Ok(()) };
    let switch = match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(wrong(text)),
    };
    let parsed = Words::of(text).ok_or_else(|| wrong(text));
    match knob {
        Knob::Service(name) => service(name, text),
        Knob::Channels(name) => {
            let (now, words) = (cards.channels(name)?.0, parsed?);
            let number = |word| words.number(word, 0).ok_or_else(|| wrong(text));
            let wanted = Channels { rx: number("rx")?, tx: number("tx")?, combined: number("combined")?, ..now };
            cards.set_channels(name, wanted)
        }
        Knob::Ring(name) => {
            let (now, words) = (cards.ring(name)?.0, parsed?);
            let number = |word, or| words.number(word, or).ok_or_else(|| wrong(text));
            cards.set_ring(name, Ring { rx: number("rx", now.rx)?, tx: number("tx", now.tx)? })
        }
        Knob::Pause(name) => {
            let (now, words) = (cards.pause(name)?, parsed?);
            let switch = |word, or| words.switch(word, or).ok_or_else(|| wrong(text));
            let wanted = Pause {
                autoneg: switch("autoneg", now.autoneg)?,
                rx: switch("rx", now.rx)?,
                tx: switch("tx", now.tx)?,
            };
            cards.set_pause(name, wanted)
        }
        Knob::Coalesce(name) => {
            let (now, words) = (cards.coalesce(name)?, parsed?);
            let switch = |word, or| words.switch(word, or).ok_or_else(|| wrong(text));
            let number = |word, or| words.number(word, or).ok_or_else(|| wrong(text));
            let wanted = Coalesce {
                adaptive_rx: switch("adaptive-rx", now.adaptive_rx)?,
                adaptive_tx: switch("adaptive-tx", now.adaptive_tx)?,
                rx_usecs: number("rx-usecs", now.rx_usecs)?,
                rx_frames: number("rx-frames", now.rx_frames)?,
            };
            cards.set_coalesce(name, wanted)
        }
        Knob::Feature(name, feature) => cards.set_feature(name, feature, switch?),
        Knob::RssFunction(name) => cards.set_rss_function(name, text),
        Knob::RssTransform(name) => cards.set_rss_transform(name, text),
        Knob::RssKey(name) => cards.set_rss_key(name, &key_of(text).ok_or_else(|| wrong(text))?),
        Knob::RssTable(name) => {
            let length = cards.rss(name)?.table.len();
            let table: Option<Vec<u32>> = match text.strip_prefix("equal ") {
                _ if text == "default" => return cards.set_rss_table(name, None),
                Some(queues) => {
                    let queues: u32 = queues.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong(text))?;
                    Some((0..length as u32).map(|at| at % queues).collect())
                }
                None => text.split_whitespace().map(|word| word.parse().ok()).collect(),
            };
            cards.set_rss_table(name, Some(&table.ok_or_else(|| wrong(text))?))
        }
        Knob::Hash(name, flow) => cards.set_hash_fields(name, flow, text),
        Knob::Promisc(name) => {
            let now = cards.flags(name)?;
            cards.set_flags(name, super::card::Flags { promisc: switch?, ..now })
        }
        Knob::Arp(name) => {
            let now = cards.flags(name)?;
            cards.set_flags(name, super::card::Flags { arp: switch?, ..now })
        }
        Knob::Rps(name, queue) => {
            let mask = list::to_mask(&list::parse(text));
            tree.write(&format!("/sys/class/net/{name}/queues/rx-{queue}/rps_cpus"), &mask)
        }
        Knob::Irq(name, queue) => {
            let irq = interrupts::of_queue(tree, name, *queue).ok_or(Refusal::Missing)?;
            tree.write(&format!("/proc/irq/{irq}/smp_affinity_list"), text)
        }
        Knob::File(path) => tree.write(path, text),
        Knob::Own(_) | Knob::OwnLink(_) | Knob::OwnFolder(_) => Ok(()),
    }
}
