//! The connection between sender and engine, and the kernel's counters for it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::made::{Session, Thing, ip};
use crate::problem::{Outcome, Problem};

/// The connection, see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    /// The pairs of interfaces that packets are sent and read on; at least one.
    pub(crate) pairs: Vec<Pair>,
    /// The pair on the other side of an inline engine. Its sender's end sends the servers' packets and receives the
    /// clients'.
    pub(crate) far: Option<Pair>,
    /// The TAP device in the engine's namespace that leads into a virtual machine.
    pub(crate) tap: Option<String>,
    /// The engine's network namespace, if it is not the command's own.
    pub(crate) namespace: Option<String>,
}

/// Two connected interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// The sender's, in the command's own network namespace.
    pub(crate) sender: String,
    /// The one that the engine reads from, and if it is inline, forwards to.
    pub(crate) engine: String,
}

/// Most pairs of interfaces of a passive engine.
pub(crate) const PAIRS_MOST: u32 = 8;

impl Wire {
    /// Uses existing interfaces.
    ///
    /// # Errors
    /// If one does not exist.
    pub(crate) fn given(pairs: &[Pair]) -> Outcome<Wire> {
        for name in pairs.iter().flat_map(|pair| [&pair.sender, &pair.engine]) {
            if name.contains('/') || !Path::new("/sys/class/net").join(name).exists() {
                let there: Vec<String> = std::fs::read_dir("/sys/class/net")
                    .into_iter()
                    .flatten()
                    .flatten()
                    .map(|entry| entry.file_name().to_string_lossy().into_owned())
                    .collect();
                return Err(Problem::Usage(format!("there is no interface {name}; there are {}", there.join(", "))));
            }
        }
        Ok(Wire { pairs: pairs.to_vec(), far: None, tap: None, namespace: None })
    }

    /// Creates `count` pairs of virtual interfaces, and one more for an `inline` engine. The engine's ends are in a new
    /// network namespace. The session removes them.
    ///
    /// # Errors
    /// If they cannot be created: without root, or without iproute2.
    pub(crate) fn make(session: &mut Session, mtu: u32, count: u32, inline: bool) -> Outcome<Wire> {
        let space = session.id.clone();
        let pair = |sender: char, engine: char, number: u32| Pair {
            sender: numbered(&session.id, sender, number),
            engine: numbered(&session.id, engine, number),
        };
        let pairs: Vec<Pair> = (1..=count).map(|number| pair('s', 'e', number)).collect();
        let far = inline.then(|| pair('t', 'f', 1));
        let failed = |why: String| {
            let hint = if rustix::process::geteuid().is_root() {
                ""
            } else {
                " (it needs root; --interface takes a pair that is there)"
            };
            Problem::Failed(format!("cannot make a pair of interfaces{hint}: {why}"))
        };
        session.will_make(Thing::Namespace(space.clone()))?;
        ip(&["netns", "add", &space]).map_err(failed)?;
        let mtu = mtu.to_string();
        for Pair { sender, engine } in pairs.iter().chain(&far) {
            session.will_make(Thing::Interface(sender.clone()))?;
            ip(&[
                "link", "add", sender, "mtu", &mtu, "type", "veth", "peer", "name", engine, "mtu", &mtu, "netns",
                &space,
            ])
            .map_err(failed)?;
            // No address of its own, so that only the test's packets are on the wire.
            ip(&["link", "set", sender, "addrgenmode", "none", "up"]).map_err(failed)?;
            ip(&["-n", &space, "link", "set", engine, "addrgenmode", "none", "up"]).map_err(failed)?;
        }
        ip(&["-n", &space, "link", "set", "lo", "up"]).map_err(failed)?;
        Ok(Wire { pairs, far, tap: None, namespace: Some(space) })
    }

    /// The sender's interfaces, an inline engine's other side included.
    pub(crate) fn senders(&self) -> Vec<String> {
        self.pairs.iter().chain(&self.far).map(|pair| pair.sender.clone()).collect()
    }

    /// The engine's interfaces, likewise.
    pub(crate) fn engines(&self) -> Vec<String> {
        self.pairs.iter().chain(&self.far).map(|pair| pair.engine.clone()).collect()
    }
}

/// The name of a session's interface: the first of a kind has no number.
pub(crate) fn numbered(session: &str, letter: char, number: u32) -> String {
    if number == 1 { format!("{session}{letter}") } else { format!("{session}{letter}{number}") }
}

/// A reading of `/proc/net/dev`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interfaces(BTreeMap<String, [f64; 16]>);

impl Interfaces {
    /// Reads it in the network namespace of process `pid`, or in our own.
    pub(crate) fn read(pid: Option<u32>) -> Interfaces {
        let path = pid.map_or_else(|| "/proc/net/dev".to_owned(), |pid| format!("/proc/{pid}/net/dev"));
        Interfaces::of(&std::fs::read_to_string(path).unwrap_or_default())
    }

    /// Parses its text.
    pub(crate) fn of(text: &str) -> Interfaces {
        let line = |line: &str| {
            let (name, rest) = line.split_once(':')?;
            let mut values = [f64::NAN; 16];
            for (value, word) in values.iter_mut().zip(rest.split_ascii_whitespace()) {
                *value = word.parse().ok()?;
            }
            Some((name.trim().to_owned(), values))
        };
        Interfaces(text.lines().skip(2).filter_map(line).collect())
    }

    /// Packets that `interface` sent; NaN if it does not exist.
    pub(crate) fn sent(&self, interface: &str) -> f64 {
        self.0.get(interface).map_or(f64::NAN, |values| values[9])
    }

    /// Packets that `interface` received.
    pub(crate) fn received(&self, interface: &str) -> f64 {
        self.0.get(interface).map_or(f64::NAN, |values| values[1])
    }

    /// Packets that `interface` lost when receiving: dropped (including missed) and overruns.
    pub(crate) fn lost(&self, interface: &str) -> f64 {
        self.0.get(interface).map_or(f64::NAN, |values| values[3] + values[4])
    }

    /// Packets that could not be sent out of `interface`. For a TAP device, its reader was too slow for them.
    pub(crate) fn refused(&self, interface: &str) -> f64 {
        self.0.get(interface).map_or(f64::NAN, |values| values[11])
    }
}

/// Drops of the kernel's packet queues on the whole machine.
pub(crate) fn softnet_drops() -> f64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let of = |line: &str| u32::from_str_radix(line.split(' ').nth(1)?, 16).ok().map(f64::from);
    text.lines().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_interfaces() {
        let text =
            "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        let read = Interfaces::of(text);
        assert_eq!((read.received("lo"), read.lost("lo"), read.sent("lo")), (2.0, 9.0, 10.0));
        assert!(read.sent("eth9").is_nan());
    }

    #[test]
    fn both_ends_of_all_pairs_are_listed_and_their_names_fit() {
        let pair = |number| Pair {
            sender: numbered("mlab0011aa00", 's', number),
            engine: numbered("mlab0011aa00", 'e', number),
        };
        let wire = Wire { pairs: vec![pair(1), pair(PAIRS_MOST)], far: None, tap: None, namespace: None };
        assert_eq!(wire.senders(), ["mlab0011aa00s", "mlab0011aa00s8"]);
        assert_eq!(wire.engines(), ["mlab0011aa00e", "mlab0011aa00e8"]);
        // The kernel takes names of 15 letters.
        assert!(wire.engines().iter().all(|name| name.len() <= 15));
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let pair = Pair { sender: "lo".to_owned(), engine: "nosuch0".to_owned() };
        let problem = Wire::given(&[pair]).unwrap_err().to_string();
        assert!(
            problem.starts_with("there is no interface nosuch0; there are ") && problem.contains("lo"),
            "{problem}"
        );
    }
}
