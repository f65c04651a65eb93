//! The settings of a network interface that its driver can report and change: the operations of `ethtool`, behind a
//! trait.
//!
//! [`real`] asks the kernel. [`made_up`] is a simulated card with the behaviour of real ones, for recorded machines and
//! tests. Each setting has one text form, which plans, journals and comparisons use.

pub(crate) mod made_up;
mod netlink;
pub(crate) mod real;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// The reason that a card operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The driver does not have the operation, or rejects the value.
    #[error("the driver does not support it")]
    Unsupported,
    /// The user, or the container, lacks the permission.
    #[error("not permitted: it needs root (CAP_NET_ADMIN) outside of a container")]
    NotPermitted,
    /// The interface, file or queue does not exist.
    #[error("it is not there")]
    Missing,
    /// Another error, as the kernel describes it.
    #[error("{0}")]
    Other(String),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Refusal::Unsupported,
            Some(libc::EPERM | libc::EACCES | libc::EROFS) => Refusal::NotPermitted,
            Some(libc::ENODEV | libc::ENOENT | libc::ENXIO) => Refusal::Missing,
            _ => Refusal::Other(error.to_string()),
        }
    }
}

/// The result of a card operation.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// Queues of an interface: `ethtool -l`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Channels {
    pub(crate) rx: u32,
    pub(crate) tx: u32,
    pub(crate) other: u32,
    pub(crate) combined: u32,
}

impl Channels {
    /// Number of receive queues.
    pub(crate) fn receive(&self) -> u32 {
        self.rx + self.combined
    }
}

impl fmt::Display for Channels {
    /// `combined 16`, `rx 4 tx 4`. `other` never changes and is not shown.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rx + self.tx > 0, self.combined > 0) {
            (false, _) => write!(out, "combined {}", self.combined),
            (true, false) => write!(out, "rx {} tx {}", self.rx, self.tx),
            (true, true) => write!(out, "rx {} tx {} combined {}", self.rx, self.tx, self.combined),
        }
    }
}

/// Descriptors of each queue: `ethtool -g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Ring {
    pub(crate) rx: u32,
    pub(crate) tx: u32,
}

impl fmt::Display for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "rx {} tx {}", self.rx, self.tx)
    }
}

/// Interrupt coalescing: `ethtool -c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Coalesce {
    pub(crate) adaptive_rx: bool,
    pub(crate) adaptive_tx: bool,
    pub(crate) rx_usecs: u32,
    pub(crate) rx_frames: u32,
}

impl fmt::Display for Coalesce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Coalesce { adaptive_rx, adaptive_tx, rx_usecs, rx_frames } = *self;
        let (rx, tx) = (on(adaptive_rx), on(adaptive_tx));
        write!(out, "adaptive-rx {rx} adaptive-tx {tx} rx-usecs {rx_usecs} rx-frames {rx_frames}")
    }
}

/// Ethernet pause frames, sent and honoured: `ethtool -a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Pause {
    pub(crate) autoneg: bool,
    pub(crate) rx: bool,
    pub(crate) tx: bool,
}

impl fmt::Display for Pause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "autoneg {} rx {} tx {}", on(self.autoneg), on(self.rx), on(self.tx))
    }
}

/// A feature that can be switched: `ethtool -k`, by the kernel's names (`rx-gro`, `rx-lro`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Feature {
    pub(crate) on: bool,
    /// The driver does not allow changes.
    pub(crate) fixed: bool,
}

/// How packets are distributed among queues: `ethtool -x`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Rss {
    /// `toeplitz`, `xor`, `crc32`; empty if the driver does not report it.
    pub(crate) function: String,
    /// Transformation of the hash input: `none`, `symmetric-xor`, `symmetric-or-xor`.
    pub(crate) transform: String,
    /// The key; empty if there is none.
    pub(crate) key: Vec<u8>,
    /// The queue for each hash value; empty if there is no table.
    pub(crate) table: Vec<u32>,
}

impl Rss {
    /// The table in short form: `default` spreads evenly over all `queues`, `equal N` over the first N; otherwise all
    /// entries.
    pub(crate) fn table_text(&self, queues: u32) -> String {
        table_text(&self.table, queues)
    }

    /// The key as `6d:5a:…`.
    pub(crate) fn key_text(&self) -> String {
        key_text(&self.key)
    }
}

/// See [`Rss::table_text`].
pub(crate) fn table_text(table: &[u32], queues: u32) -> String {
    let spread = table.iter().max().map_or(0, |most| most + 1);
    let even = spread > 0 && table.iter().enumerate().all(|(at, queue)| at as u32 % spread == *queue);
    match even {
        true if spread == queues => "default".to_owned(),
        true => format!("equal {spread}"),
        false => table.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// Whether every queue appears equally often, with a difference of at most one, in any order.
pub(crate) fn is_even(table: &[u32], queues: u32) -> bool {
    let mut counts = vec![0usize; queues as usize];
    for queue in table {
        match counts.get_mut(*queue as usize) {
            Some(count) => *count += 1,
            None => return false,
        }
    }
    let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    least > 0 && most - least <= 1
}

/// The same for a table in text form.
pub(crate) fn is_even_text(text: &str) -> bool {
    let table: Option<Vec<u32>> = text.split(' ').map(|word| word.parse().ok()).collect();
    table.is_some_and(|table| is_even(&table, table.iter().max().map_or(0, |most| most + 1)))
}

/// See [`Rss::key_text`].
pub(crate) fn key_text(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Parses `6d:5a:…`; `None` if it is not a key.
pub(crate) fn key_of(text: &str) -> Option<Vec<u8>> {
    text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect()
}

/// Flow types whose hash fields can be read: `ethtool -n DEV rx-flow-hash KIND`. `ah4` and `ah6` cover AH and ESP, which
/// the kernel does not distinguish.
pub(crate) const FLOWS: [&str; 8] = ["tcp4", "udp4", "sctp4", "ah4", "tcp6", "udp6", "sctp6", "ah6"];

/// Flags of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Flags {
    pub(crate) up: bool,
    /// Set by the operator, not by a capturing program.
    pub(crate) promisc: bool,
    pub(crate) arp: bool,
}

/// The driver behind an interface: `ethtool -i`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) firmware: String,
    pub(crate) bus: String,
}

/// The interface's place in the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    /// Such as `192.0.2.1/24`, without link-local IPv6 addresses.
    pub(crate) addresses: Vec<String>,
    /// The mode of the XDP program: `none`, `driver`, `generic`, `offloaded`; empty if unknown.
    pub(crate) xdp: String,
}

/// Reads and changes cards by interface name. A missing interface returns [`Refusal::Missing`], an operation that the
/// driver does not have [`Refusal::Unsupported`].
pub(crate) trait Cards {
    fn driver(&self, name: &str) -> Answer<Driver>;
    fn link(&self, name: &str) -> Answer<Link>;
    /// The outgoing interface of packets to `address`.
    fn route_to(&self, address: &str) -> Answer<String>;
    fn flags(&self, name: &str) -> Answer<Flags>;
    fn set_flags(&self, name: &str, flags: Flags) -> Answer<()>;
    /// The current values and the maximum.
    fn channels(&self, name: &str) -> Answer<(Channels, Channels)>;
    fn set_channels(&self, name: &str, channels: Channels) -> Answer<()>;
    /// The current values and the maximum.
    fn ring(&self, name: &str) -> Answer<(Ring, Ring)>;
    fn set_ring(&self, name: &str, ring: Ring) -> Answer<()>;
    fn coalesce(&self, name: &str) -> Answer<Coalesce>;
    fn set_coalesce(&self, name: &str, coalesce: Coalesce) -> Answer<()>;
    fn pause(&self, name: &str) -> Answer<Pause>;
    fn set_pause(&self, name: &str, pause: Pause) -> Answer<()>;
    fn features(&self, name: &str) -> Answer<BTreeMap<String, Feature>>;
    fn set_feature(&self, name: &str, feature: &str, on: bool) -> Answer<()>;
    fn rss(&self, name: &str) -> Answer<Rss>;
    fn set_rss_function(&self, name: &str, function: &str) -> Answer<()>;
    fn set_rss_transform(&self, name: &str, transform: &str) -> Answer<()>;
    fn set_rss_key(&self, name: &str, key: &[u8]) -> Answer<()>;
    /// `None` restores the driver's default table and clears the mark that one was set explicitly.
    fn set_rss_table(&self, name: &str, table: Option<&[u32]>) -> Answer<()>;
    /// Letters of `ethtool -N`: `sdfn`.
    fn hash_fields(&self, name: &str, flow: &str) -> Answer<String>;
    fn set_hash_fields(&self, name: &str, flow: &str, fields: &str) -> Answer<()>;
    /// The driver's own counters: `ethtool -S`.
    fn counters(&self, name: &str) -> Answer<Vec<(String, u64)>>;
}

/// Formats `on` and `off` as ethtool does.
pub(crate) fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// A setting in text form: alternating names and values, some of which may be missing.
pub(crate) struct Words<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Words<'a> {
    /// `None` if a name has no value.
    pub(crate) fn of(text: &'a str) -> Option<Words<'a>> {
        let mut words = text.split_whitespace();
        let mut out = BTreeMap::new();
        while let Some(name) = words.next() {
            out.insert(name, words.next()?);
        }
        Some(Words(out))
    }

    /// The number of a name; `or` if the name is missing, `None` if the value is not a number.
    pub(crate) fn number(&self, name: &str, or: u32) -> Option<u32> {
        self.0.get(name).map_or(Some(or), |word| word.parse().ok())
    }

    /// The switch of a name; `or` if the name is missing, `None` if the value is neither on nor off.
    pub(crate) fn switch(&self, name: &str, or: bool) -> Option<bool> {
        match self.0.get(name) {
            None => Some(or),
            Some(&"on") => Some(true),
            Some(&"off") => Some(false),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_as_ethtool_does() {
        let channels = Channels { combined: 16, other: 1, ..Channels::default() };
        assert_eq!((channels.to_string().as_str(), channels.receive()), ("combined 16", 16));
        assert_eq!(Channels { rx: 4, tx: 2, ..Channels::default() }.to_string(), "rx 4 tx 2");
        let words = Words::of("adaptive-rx off rx-usecs 125").unwrap();
        assert_eq!((words.switch("adaptive-rx", true), words.switch("adaptive-tx", true)), (Some(false), Some(true)));
        assert_eq!((words.number("rx-usecs", 3), words.number("rx-frames", 3)), (Some(125), Some(3)));
        assert!(Words::of("rx").is_none());
    }

    #[test]
    fn tables_in_short() {
        let even: Vec<u32> = (0..128).map(|at| at % 4).collect();
        assert_eq!(table_text(&even, 4), "default");
        assert_eq!(table_text(&even, 8), "equal 4");
        assert_eq!(table_text(&[0, 0, 1], 2), "0 0 1");
        assert_eq!(table_text(&[0; 64], 1), "default");
        assert!(
            is_even_text("0 0 1 1 2 2") && is_even_text("1 0 1") && !is_even_text("0 0 0 1") && !is_even_text("0 2")
        );
        assert!(!is_even_text("default") && !is_even(&[0, 1], 3));
        assert_eq!(key_of("6d:5a").as_deref(), Some(&[0x6d, 0x5a][..]));
        assert_eq!((key_text(&[0x6d, 0x0a]).as_str(), key_of("6d:x")), ("6d:0a", None));
    }
}
