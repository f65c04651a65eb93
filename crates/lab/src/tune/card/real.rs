//! Cards of this machine: the kernel requests of `ethtool` and `ip`.

use std::collections::BTreeMap;

use super::{Answer, Cards, Channels, Coalesce, Driver, Feature, Flags, Link, Pause, Refusal, Ring, Rss};
use crate::ethtool::Ethtool;
use crate::tune::card::netlink;

/// Commands of `SIOCETHTOOL`.
mod command {
    pub(super) const GET_DRIVER: u32 = 0x03;
    pub(super) const GET_COALESCE: u32 = 0x0e;
    pub(super) const SET_COALESCE: u32 = 0x0f;
    pub(super) const GET_RING: u32 = 0x10;
    pub(super) const SET_RING: u32 = 0x11;
    pub(super) const GET_PAUSE: u32 = 0x12;
    pub(super) const SET_PAUSE: u32 = 0x13;
    pub(super) const GET_STRINGS: u32 = 0x1b;
    pub(super) const GET_COUNTERS: u32 = 0x1d;
    pub(super) const GET_HASH_FIELDS: u32 = 0x29;
    pub(super) const SET_HASH_FIELDS: u32 = 0x2a;
    pub(super) const GET_STRINGS_LENGTH: u32 = 0x37;
    pub(super) const GET_FEATURES: u32 = 0x3a;
    pub(super) const SET_FEATURES: u32 = 0x3b;
    pub(super) const GET_CHANNELS: u32 = 0x3c;
    pub(super) const SET_CHANNELS: u32 = 0x3d;
    pub(super) const GET_RSS: u32 = 0x46;
    pub(super) const SET_RSS: u32 = 0x47;
}

/// Sets of strings.
const COUNTERS: u32 = 1;
const FEATURES: u32 = 4;
/// Length of a string in such a set.
const STRING: usize = 32;
/// A limit above any driver's number of strings.
const STRINGS_MAX: usize = 16_384;
/// Hash functions by their bits.
const FUNCTIONS: [(u8, &str); 3] = [(1, "toeplitz"), (2, "xor"), (4, "crc32")];
const TRANSFORMS: [(u8, &str); 3] = [(0, "none"), (1, "symmetric-xor"), (2, "symmetric-or-xor")];
/// Size of the RSS structure before its table and key.
const RSS_HEADER: usize = 24;
/// Leaves the table unchanged.
const TABLE_UNCHANGED: u32 = u32::MAX;
/// Kinds of `ethtool -n DEV rx-flow-hash`, with their numbers. AH and ESP share one.
const FLOW_NUMBERS: [(&str, u32); 8] =
    [("tcp4", 1), ("udp4", 2), ("sctp4", 3), ("ah4", 4), ("tcp6", 5), ("udp6", 6), ("sctp6", 7), ("ah6", 8)];
/// Letters of hash fields and their bits.
const FIELDS: [(char, u32); 8] = [('m', 1), ('v', 2), ('t', 3), ('s', 4), ('d', 5), ('f', 6), ('n', 7), ('r', 31)];

/// The cards of this machine.
pub(crate) struct Real;

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn word(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

fn put(data: &mut [u8], at: usize, value: u32) {
    if let Some(place) = data.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn ask<const N: usize>(name: &str, command: u32) -> Answer<[u32; N]> {
    let mut numbers = [0; N];
    numbers[0] = command;
    Ethtool::open(name)?.numbers(&mut numbers)?;
    Ok(numbers)
}

fn tell<const N: usize>(name: &str, command: u32, mut numbers: [u32; N]) -> Answer<()> {
    numbers[0] = command;
    Ok(Ethtool::open(name)?.numbers(&mut numbers)?)
}

/// The names in a set of counters or features.
fn strings(tool: &Ethtool, set: u32) -> Answer<Vec<String>> {
    // Command, a reserved word, the 64-bit mask of sets, and a length for each.
    let mut data = vec![0; 20];
    put(&mut data, 0, command::GET_STRINGS_LENGTH);
    data[8..16].copy_from_slice(&(1u64 << set).to_ne_bytes());
    tool.call(&mut data)?;
    let some = data[8..16].iter().any(|byte| *byte != 0);
    let length = if some { word(&data, 16) as usize } else { 0 };
    if length == 0 || length > STRINGS_MAX {
        return Err(Refusal::Unsupported);
    }
    let mut data = vec![0; 12 + length * STRING];
    put(&mut data, 0, command::GET_STRINGS);
    put(&mut data, 4, set);
    put(&mut data, 8, length as u32);
    tool.call(&mut data)?;
    Ok(data[12..].chunks_exact(STRING).map(text).collect())
}

/// The RSS header with its table and key.
fn rss_data(tool: &Ethtool) -> Answer<Vec<u8>> {
    let mut header = vec![0; RSS_HEADER];
    put(&mut header, 0, command::GET_RSS);
    tool.call(&mut header)?;
    let (table, key) = (word(&header, 8) as usize, word(&header, 12) as usize);
    if table > 1 << 16 || key > 1 << 12 {
        return Err(Refusal::Other("the driver's hash table or key is of no believable size".to_owned()));
    }
    let mut data = vec![0; RSS_HEADER + table * 4 + key];
    put(&mut data, 0, command::GET_RSS);
    put(&mut data, 8, table as u32);
    put(&mut data, 12, key as u32);
    tool.call(&mut data)?;
    Ok(data)
}

/// Changes one part of RSS and leaves the others unchanged.
fn change_rss(
    name: &str,
    table: Option<&[u32]>,
    reset: bool,
    key: &[u8],
    function: u8,
    transform: Option<u8>,
) -> Answer<()> {
    let tool = Ethtool::open(name)?;
    let now = rss_data(&tool)?;
    let entries = table.unwrap_or_default();
    let mut data = vec![0; RSS_HEADER + entries.len() * 4 + key.len()];
    put(&mut data, 0, command::SET_RSS);
    put(
        &mut data,
        8,
        if reset {
            0
        } else if table.is_some() {
            entries.len() as u32
        } else {
            TABLE_UNCHANGED
        },
    );
    put(&mut data, 12, key.len() as u32);
    data[16] = function;
    // Kernels before 6.8 have no transformation. They expect zero here, and also report zero.
    data[17] = transform.unwrap_or(now[17]);
    for (at, entry) in entries.iter().enumerate() {
        put(&mut data, RSS_HEADER + at * 4, *entry);
    }
    data[RSS_HEADER + entries.len() * 4..].copy_from_slice(key);
    Ok(tool.call(&mut data)?)
}

impl Cards for Real {
    fn driver(&self, name: &str) -> Answer<Driver> {
        let mut data = vec![0; 196];
        put(&mut data, 0, command::GET_DRIVER);
        Ethtool::open(name)?.call(&mut data)?;
        let part = |n: usize| text(&data[4 + n * STRING..4 + (n + 1) * STRING]);
        Ok(Driver { name: part(0), version: part(1), firmware: part(2), bus: part(3) })
    }

    fn link(&self, name: &str) -> Answer<Link> {
        netlink::link(name)
    }

    fn route_to(&self, address: &str) -> Answer<String> {
        netlink::route_to(address)
    }

    fn flags(&self, name: &str) -> Answer<Flags> {
        let flags = i32::from(Ethtool::open(name)?.flags()?);
        let has = |bit| flags & bit != 0;
        Ok(Flags { up: has(libc::IFF_UP), promisc: has(libc::IFF_PROMISC), arp: !has(libc::IFF_NOARP) })
    }

    fn set_flags(&self, name: &str, flags: Flags) -> Answer<()> {
        let tool = Ethtool::open(name)?;
        let mut bits = i32::from(tool.flags()?);
        for (on, bit) in [(flags.up, libc::IFF_UP), (flags.promisc, libc::IFF_PROMISC), (!flags.arp, libc::IFF_NOARP)] {
            bits = if on { bits | bit } else { bits & !bit };
        }
        Ok(tool.set_flags(bits as u16)?)
    }

    fn channels(&self, name: &str) -> Answer<(Channels, Channels)> {
        let n = ask::<9>(name, command::GET_CHANNELS)?;
        let of = |at: usize| Channels { rx: n[at], tx: n[at + 1], other: n[at + 2], combined: n[at + 3] };
        Ok((of(5), of(1)))
    }

    fn set_channels(&self, name: &str, c: Channels) -> Answer<()> {
        let n = ask::<9>(name, command::GET_CHANNELS)?;
        tell(name, command::SET_CHANNELS, [0, n[1], n[2], n[3], n[4], c.rx, c.tx, c.other, c.combined])
    }

    fn ring(&self, name: &str) -> Answer<(Ring, Ring)> {
        let n = ask::<9>(name, command::GET_RING)?;
        Ok((Ring { rx: n[5], tx: n[8] }, Ring { rx: n[1], tx: n[4] }))
    }

    fn set_ring(&self, name: &str, ring: Ring) -> Answer<()> {
        let mut n = ask::<9>(name, command::GET_RING)?;
        (n[5], n[8]) = (ring.rx, ring.tx);
        tell(name, command::SET_RING, n)
    }

    fn coalesce(&self, name: &str) -> Answer<Coalesce> {
        let n = ask::<23>(name, command::GET_COALESCE)?;
        Ok(Coalesce { adaptive_rx: n[10] != 0, adaptive_tx: n[11] != 0, rx_usecs: n[1], rx_frames: n[2] })
    }

    fn set_coalesce(&self, name: &str, c: Coalesce) -> Answer<()> {
        let mut n = ask::<23>(name, command::GET_COALESCE)?;
        (n[1], n[2], n[10], n[11]) = (c.rx_usecs, c.rx_frames, c.adaptive_rx.into(), c.adaptive_tx.into());
        tell(name, command::SET_COALESCE, n)
    }

    fn pause(&self, name: &str) -> Answer<Pause> {
        let n = ask::<4>(name, command::GET_PAUSE)?;
        Ok(Pause { autoneg: n[1] != 0, rx: n[2] != 0, tx: n[3] != 0 })
    }

    fn set_pause(&self, name: &str, p: Pause) -> Answer<()> {
        tell(name, command::SET_PAUSE, [0, p.autoneg.into(), p.rx.into(), p.tx.into()])
    }

    fn features(&self, name: &str) -> Answer<BTreeMap<String, Feature>> {
        let tool = Ethtool::open(name)?;
        let names = strings(&tool, FEATURES)?;
        let blocks = names.len().div_ceil(32);
        // For each 32 features: changeable, wanted, active, never changed.
        let mut data = vec![0; 8 + blocks * 16];
        put(&mut data, 0, command::GET_FEATURES);
        put(&mut data, 4, blocks as u32);
        tool.call(&mut data)?;
        let one = |(at, name): (usize, String)| {
            let bit = |part: usize| word(&data, 8 + at / 32 * 16 + part * 4) >> (at % 32) & 1 == 1;
            (name, Feature { on: bit(2), fixed: !bit(0) || bit(3) })
        };
        Ok(names.into_iter().enumerate().filter(|(_, name)| !name.is_empty()).map(one).collect())
    }

    fn set_feature(&self, name: &str, feature: &str, on: bool) -> Answer<()> {
        let tool = Ethtool::open(name)?;
        let names = strings(&tool, FEATURES)?;
        let at = names.iter().position(|known| known == feature).ok_or(Refusal::Unsupported)?;
        let blocks = names.len().div_ceil(32);
        let mut data = vec![0; 8 + blocks * 8];
        put(&mut data, 0, command::SET_FEATURES);
        put(&mut data, 4, blocks as u32);
        put(&mut data, 8 + at / 32 * 8, 1 << (at % 32));
        put(&mut data, 8 + at / 32 * 8 + 4, u32::from(on) << (at % 32));
        // Reading back shows what the driver did not do.
        Ok(tool.call(&mut data)?)
    }

    fn rss(&self, name: &str) -> Answer<Rss> {
        let data = rss_data(&Ethtool::open(name)?)?;
        let entries = word(&data, 8) as usize;
        let named = |names: &[(u8, &str)], value: u8| {
            let name = names.iter().find(|(bit, _)| *bit == value);
            name.map_or_else(|| format!("{value:#x}"), |(_, name)| (*name).to_owned())
        };
        let function = if data[16] == 0 { String::new() } else { named(&FUNCTIONS, data[16]) };
        let table = (0..entries).map(|at| word(&data, RSS_HEADER + at * 4)).collect();
        let key = data[RSS_HEADER + entries * 4..].to_vec();
        Ok(Rss { function, transform: named(&TRANSFORMS, data[17]), key, table })
    }

    fn set_rss_function(&self, name: &str, function: &str) -> Answer<()> {
        let known = FUNCTIONS.iter().find(|(_, known)| *known == function).ok_or(Refusal::Unsupported)?;
        change_rss(name, None, false, &[], known.0, None)
    }

    fn set_rss_transform(&self, name: &str, transform: &str) -> Answer<()> {
        let known = TRANSFORMS.iter().find(|(_, known)| *known == transform).ok_or(Refusal::Unsupported)?;
        change_rss(name, None, false, &[], 0, Some(known.0))
    }

    fn set_rss_key(&self, name: &str, key: &[u8]) -> Answer<()> {
        change_rss(name, None, false, key, 0, None)
    }

    fn set_rss_table(&self, name: &str, table: Option<&[u32]>) -> Answer<()> {
        change_rss(name, table, table.is_none(), &[], 0, None)
    }

    fn hash_fields(&self, name: &str, flow: &str) -> Answer<String> {
        let number = FLOW_NUMBERS.iter().find(|(known, _)| *known == flow).ok_or(Refusal::Unsupported)?.1;
        let mut data = vec![0; 16];
        put(&mut data, 0, command::GET_HASH_FIELDS);
        put(&mut data, 4, number);
        Ethtool::open(name)?.call(&mut data)?;
        // The upper half of the 64 bits is unused.
        let bits = word(&data, 8) | word(&data, 12);
        let letters: String =
            FIELDS.iter().filter(|(_, bit)| bits >> bit & 1 == 1).map(|(letter, _)| *letter).collect();
        Ok(if letters.is_empty() { "-".to_owned() } else { letters })
    }

    fn set_hash_fields(&self, name: &str, flow: &str, fields: &str) -> Answer<()> {
        let number = FLOW_NUMBERS.iter().find(|(known, _)| *known == flow).ok_or(Refusal::Unsupported)?.1;
        let bits =
            FIELDS.iter().filter(|(letter, _)| fields.contains(*letter)).fold(0u64, |all, (_, bit)| all | 1 << bit);
        let mut data = vec![0; 16];
        put(&mut data, 0, command::SET_HASH_FIELDS);
        put(&mut data, 4, number);
        data[8..].copy_from_slice(&bits.to_ne_bytes());
        Ok(Ethtool::open(name)?.call(&mut data)?)
    }

    fn counters(&self, name: &str) -> Answer<Vec<(String, u64)>> {
        let tool = Ethtool::open(name)?;
        let names = strings(&tool, COUNTERS)?;
        let mut data = vec![0; 8 + names.len() * 8];
        put(&mut data, 0, command::GET_COUNTERS);
        put(&mut data, 4, names.len() as u32);
        tool.call(&mut data)?;
        let value = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        Ok(names.into_iter().zip(data[8..].chunks_exact(8).map(value)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_answers_what_it_can() {
        let features = Real.features("lo").unwrap();
        assert!(features.contains_key("rx-gro"));
        assert!(!features["rx-lro"].on && features["rx-lro"].fixed);
        assert!(Real.flags("lo").is_ok());
        assert_eq!(Real.ring("lo"), Err(Refusal::Unsupported));
        assert_eq!(Real.channels("lo"), Err(Refusal::Unsupported));
        assert_eq!(Real.rss("lo"), Err(Refusal::Unsupported));
        assert_eq!(Real.flags("nosuch0"), Err(Refusal::Missing));
        assert_eq!(Real.route_to("127.0.0.1").as_deref(), Ok("lo"));
        let link = Real.link("lo").unwrap();
        assert_eq!(link.xdp, "none");
        assert_eq!(Real.set_feature("lo", "no-such-feature", true), Err(Refusal::Unsupported));
    }
}
