//! Sources of packets: memory, captures that are read while sending, or a profile's stream.

use std::collections::HashMap;
use std::fs::File;
use std::io::IoSlice;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use margay_capture::Reader;

use super::super::frame::{self, Delta, ICMP, ICMPV6, Layout, UDP, be16};
use super::super::mix::{Mix, Plan};
use super::super::profile::Profile;
use super::super::rng;
use super::super::template::Dir;

/// A packet to send.
pub(crate) struct Item<'a> {
    pub(crate) frame: &'a [u8],
    /// Nanoseconds into the capture.
    pub(crate) at: u64,
    pub(crate) dir: Dir,
    pub(crate) layout: Option<&'a Layout>,
}

impl Item<'_> {
    /// A hash of its two addresses, the same in both directions and for all fragments; 0 without addresses.
    pub(crate) fn pair(&self) -> u32 {
        let Some((a, b)) = self.layout.and_then(|layout| layout.ends(self.frame)) else { return 0 };
        let hash = [a.min(b), a.max(b)].into_iter().fold(0, |hash, ip| rng::mix(hash ^ number(ip)));
        // The remainder is taken of it, so it must not use the low bits alone.
        (hash >> 32) as u32
    }
}

/// An address as a number of 64 bits.
fn number(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(a) => u64::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a) as u64 ^ (u128::from(a) >> 64) as u64,
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    len: u32,
    at: u64,
    dir: Dir,
    layout: Option<Layout>,
    /// Hash of the flow, the same in both directions.
    hash: u32,
}

/// Counters of packets that were shortened or left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fitted {
    /// Packets that fit only after bytes behind the IP packet (padding, a frame check sequence) were cut off.
    pub(crate) trimmed: u64,
    /// Left out: longer than the interface's MTU.
    pub(crate) too_long: u64,
    /// Left out: neither Ethernet nor IP.
    pub(crate) foreign: u64,
}

/// Determines the direction of packets: a flow's first packet comes from the client, unless it is a SYN-ACK.
#[derive(Default)]
struct Directions {
    flows: HashMap<[(IpAddr, u16); 2], bool>,
}

/// Most flows whose client is remembered.
const MAX_FLOWS: usize = 8_000_000;

impl Directions {
    fn of(&mut self, frame: &[u8], layout: Option<&Layout>) -> (Dir, u32) {
        let Some((layout, (src, dst))) = layout.and_then(|l| Some((l, l.ends(frame)?))) else {
            return (Dir::Client, 0);
        };
        let (sport, dport) = layout.ports(frame).unwrap_or((0, 0));
        let (a, b) = ((src, sport), (dst, dport));
        let swapped = b < a;
        let key = if swapped { [b, a] } else { [a, b] };
        let hash = {
            let mut h = 0u64;
            for (ip, port) in key {
                h = rng::mix(h ^ number(ip) ^ (u64::from(port) << 40));
            }
            h as u32
        };
        // Whether the client is the smaller end.
        let first = || {
            let answer = layout.tcp_flags(frame).is_some_and(|f| f & 0x12 == 0x12);
            answer == swapped
        };
        let client_small = match self.flows.get(&key) {
            Some(c) => *c,
            None => {
                let c = first();
                if self.flows.len() < MAX_FLOWS {
                    self.flows.insert(key, c);
                }
                c
            }
        };
        let dir = if client_small != swapped { Dir::Client } else { Dir::Server };
        (dir, hash)
    }
}

/// Returns the length of a frame for an interface that takes `most` bytes after the Ethernet header; `None` if it is too long.
fn fit(len: usize, layout: Option<&Layout>, most: usize, fitted: &mut Fitted) -> Option<usize> {
    // VLAN tags do not count.
    let head = layout.map_or(14, |l| usize::from(l.l3).max(14));
    if len <= head + most {
        return Some(len);
    }
    match layout {
        Some(l) if usize::from(l.end) <= head + most => {
            fitted.trimmed += 1;
            Some(usize::from(l.end))
        }
        _ => {
            fitted.too_long += 1;
            None
        }
    }
}

/// Packets in memory.
#[derive(Default)]
pub(crate) struct Store {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    pub(crate) fitted: Fitted,
    pub(crate) longest: usize,
}

impl Store {
    fn push(&mut self, frame: &[u8], at: u64, dir: Dir, layout: Option<Layout>, hash: u32, most: usize) {
        let Some(len) = fit(frame.len(), layout.as_ref(), most, &mut self.fitted) else { return };
        self.entries.push(Entry { start: self.bytes.len(), len: len as u32, at, dir, layout, hash });
        self.bytes.extend_from_slice(frame.get(..len).unwrap_or(frame));
        self.longest = self.longest.max(len);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All frames, one after the other.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes of all frames.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Nanoseconds from the first packet to the last.
    pub(crate) fn length(&self) -> u64 {
        self.entries.last().map_or(0, |e| e.at)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Item<'_>> {
        let e = self.entries.get(index)?;
        Some(Item {
            frame: self.bytes.get(e.start..e.start + e.len as usize)?,
            at: e.at,
            dir: e.dir,
            layout: e.layout.as_ref(),
        })
    }

    /// The frames whose indexes are in `part`, or all frames without it.
    pub(crate) fn slices(&self, part: Option<&[u32]>) -> Vec<IoSlice<'_>> {
        let frame = |e: &Entry| IoSlice::new(self.bytes.get(e.start..e.start + e.len as usize).unwrap_or(&[]));
        match part {
            None => self.entries.iter().map(frame).collect(),
            Some(part) => part.iter().filter_map(|i| self.entries.get(*i as usize)).map(frame).collect(),
        }
    }

    /// Divides packets among threads in proportion to `weights`, by whole flows. Returns each thread's packet indexes, in order.
    pub(crate) fn parts(&self, weights: &[u32]) -> Vec<Vec<u32>> {
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut parts = vec![Vec::new(); weights.len()];
        for (i, e) in (0u32..).zip(&self.entries) {
            let mut at = (u64::from(e.hash) * total) >> 32;
            for (part, weight) in parts.iter_mut().zip(weights) {
                if at < u64::from(*weight) {
                    part.push(i);
                    break;
                }
                at -= u64::from(*weight);
            }
        }
        parts
    }
}

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

/// Several captures, read one after the other as one.
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    next: usize,
    reader: Option<Reader<File>>,
    directions: Directions,
    /// Time of the current file's first packet in microseconds, and the nanosecond at which the file starts in the whole.
    first: Option<i64>,
    begins: u64,
    last: u64,
    most: usize,
    pub(crate) fitted: Fitted,
    /// Frames of the latest batch.
    batch: Store,
    at: usize,
}

impl Files {
    pub(crate) fn open(paths: &[PathBuf], most: usize) -> Result<Files, String> {
        for path in paths {
            if std::fs::metadata(path).is_ok_and(|m| m.is_dir()) {
                return Err(format!("{} is a folder; name the captures in it", path.display()));
            }
        }
        Ok(Files {
            paths: paths.to_vec(),
            next: 0,
            reader: None,
            directions: Directions::default(),
            first: None,
            begins: 0,
            last: 0,
            most,
            fitted: Fitted::default(),
            batch: Store::default(),
            at: 0,
        })
    }

    /// Reads more packets into `store`; false at the end.
    fn fill(&mut self, store: &mut Store) -> Result<bool, String> {
        loop {
            let reader = match &mut self.reader {
                Some(reader) => reader,
                None => {
                    let Some(path) = self.paths.get(self.next) else { return Ok(false) };
                    self.next += 1;
                    let file = File::open(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
                    let reader = Reader::new(file, path).map_err(|e| e.to_string())?;
                    self.first = None;
                    self.begins = self.last;
                    self.reader.insert(reader)
                }
            };
            let Some(batch) = reader.next_batch(4096).map_err(|e| e.to_string())? else {
                self.reader = None;
                continue;
            };
            for f in batch.iter() {
                let Some(data) = frame::to_ethernet(f.link, f.data, &MACS) else {
                    self.fitted.foreign += 1;
                    continue;
                };
                if data.len() < 14 {
                    self.fitted.foreign += 1;
                    continue;
                }
                let first = *self.first.get_or_insert(f.time.0);
                let at = u64::try_from(f.time.0.saturating_sub(first)).unwrap_or(0).saturating_mul(1000);
                // Times must not decrease.
                self.last = self.begins.saturating_add(at).max(self.last);
                let layout = frame::parse(&data);
                let (dir, hash) = self.directions.of(&data, layout.as_ref());
                store.push(&data, self.last, dir, layout, hash, self.most);
            }
            return Ok(true);
        }
    }

    /// Reads everything into memory, about `expected` bytes. More than `limit` bytes are an error.
    pub(crate) fn load(mut self, limit: u64, expected: u64) -> Result<Store, String> {
        let mut store = Store::default();
        store.bytes.reserve(usize::try_from(expected.min(limit)).unwrap_or(0));
        super::port::large_pages(store.bytes.spare_capacity_mut());
        while self.fill(&mut store)? {
            if store.bytes() > limit {
                return Err(format!("more than {} MB of packets", limit / 1_000_000));
            }
        }
        store.fitted.foreign = self.fitted.foreign;
        Ok(store)
    }

    pub(crate) fn rewind(&mut self) {
        (self.next, self.reader, self.last, self.at) = (0, None, 0, 0);
        self.batch = Store::default();
    }
}

/// A source of packets.
pub(crate) enum Feed<'a> {
    /// Packets in memory: all, or those whose indexes are in `part`.
    Memory {
        store: &'a Store,
        part: Option<&'a [u32]>,
        at: usize,
    },
    Files(Box<Files>),
    Profile {
        mix: Box<Mix>,
        profile: Box<Profile>,
        plan: Plan,
        buffer: Vec<u8>,
        layout: Option<Layout>,
        most: usize,
        fitted: Fitted,
        last: u64,
    },
}

impl Feed<'_> {
    /// The next packet; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'_>>, String> {
        match self {
            Feed::Memory { store, part, at } => {
                let index = match part {
                    Some(part) => part.get(*at).map(|i| *i as usize),
                    None => Some(*at),
                };
                *at += 1;
                Ok(index.and_then(|i| store.get(i)))
            }
            Feed::Files(files) => {
                while files.at >= files.batch.len() {
                    let mut batch = std::mem::take(&mut files.batch);
                    batch.bytes.clear();
                    batch.entries.clear();
                    let more = files.fill(&mut batch)?;
                    let (fitted, longest) = (batch.fitted, batch.longest);
                    files.batch = batch;
                    files.at = 0;
                    files.fitted.trimmed = fitted.trimmed;
                    files.fitted.too_long = fitted.too_long;
                    let _ = longest;
                    if !more {
                        return Ok(None);
                    }
                }
                files.at += 1;
                Ok(files.batch.get(files.at - 1))
            }
            Feed::Profile { mix, buffer, layout, most, fitted, last, .. } => loop {
                let Some(made) = mix.next(buffer) else { return Ok(None) };
                // The ground truth is not used here.
                mix.truths().for_each(drop);
                *layout = frame::parse(buffer);
                *last = made.at;
                let Some(len) = fit(buffer.len(), layout.as_ref(), *most, fitted) else { continue };
                return Ok(Some(Item {
                    frame: buffer.get(..len).unwrap_or(buffer),
                    at: made.at,
                    dir: made.dir,
                    layout: layout.as_ref(),
                }));
            },
        }
    }

    /// Rewinds to the first packet. Returns the duration of the finished pass, in the traffic's own time.
    pub(crate) fn rewind(&mut self) -> Result<u64, String> {
        match self {
            Feed::Memory { store, at, .. } => {
                *at = 0;
                Ok(store.length())
            }
            Feed::Files(files) => {
                let last = files.last;
                files.rewind();
                Ok(last)
            }
            Feed::Profile { mix, profile, plan, last, .. } => {
                plan.seed = plan.seed.wrapping_add(1);
                **mix = Mix::new(profile, plan.seed)?;
                mix.start(plan);
                Ok(*last)
            }
        }
    }

    pub(crate) fn fitted(&self) -> Fitted {
        match self {
            Feed::Memory { store, .. } => store.fitted,
            Feed::Files(files) => files.fitted,
            Feed::Profile { fitted, .. } => *fitted,
        }
    }
}

/// Turns a frame into that of copy number `n`: adds `mask` times `n` to both addresses (in IPv6, to bits 32 to 63), and updates
/// the checksums.
pub(crate) fn copy(frame: &mut [u8], layout: &Layout, n: u32, mask: u32) {
    let add = mask.wrapping_mul(n);
    if add == 0 {
        return;
    }
    let (src, dst, len) = layout.addresses();
    let l3 = usize::from(layout.l3);
    let mut delta = Delta::default();
    for at in [src, dst] {
        let at = if len == 16 { at + 4 } else { at };
        let Some(old) = frame::be32(frame, at) else { return };
        // Multicast and broadcast addresses stay unchanged.
        let keep = if len == 16 { frame.get(at - 4) == Some(&0xff) } else { old >> 28 >= 0xe };
        if !keep {
            delta.replace(frame, at, &old.wrapping_add(add).to_be_bytes(), l3);
        }
    }
    if !layout.v6 {
        delta.apply(frame, l3 + 10, false);
    }
    let check = usize::from(layout.check);
    let counts = check != 0 && layout.proto != ICMP && (layout.proto != ICMPV6 || layout.v6);
    let none = layout.proto == UDP && !layout.v6 && be16(frame, check) == Some(0);
    if counts && !none {
        delta.apply(frame, check, layout.proto == UDP);
    }
}

/// The size of a file in bytes; 0 if unknown.
pub(crate) fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::preset;

    #[test]
    fn copies_stay_right() {
        for name in ["office", "ipv6", "fragments"] {
            let profile = preset::load(name, None).unwrap();
            let mut mix = Mix::new(&profile, 3).unwrap();
            mix.start(&Plan { seed: 3, multiplier: 1.0, until: 100_000_000 });
            let mut frame = Vec::new();
            let mut n = 0;
            while mix.next(&mut frame).is_some() {
                let layout = frame::parse(&frame).unwrap();
                n += 1;
                copy(&mut frame, &layout, n % 16, 0x0100_0000);
                if !layout.fragment {
                    let mut anew = frame.clone();
                    layout.fix(&mut anew);
                    assert_eq!(anew, frame, "{name} {layout:?}");
                }
            }
            assert!(n > 100);
        }
    }
}
