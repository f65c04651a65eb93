//! Writes one part and its index.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use base64::Engine;
use margay_packet::Frame;
use sha2::{Digest, Sha256};

use crate::archive::{Part, PartIndex, VERSION, part_file, write_json};
use crate::bloom::{Entry, Filter, V4, V6};
use crate::error::Error;
use crate::group::{Links, Step, group};
use crate::pair::Seen;
use crate::pcapng::Blocks;

/// A part's entry in the index.
#[derive(Debug)]
pub(crate) struct Content {
    protocols: [bool; 256],
    fragments: u64,
    tunnels: u64,
    other: u64,
    links: Links,
    filter: Filter,
}

impl Content {
    fn new(entries: usize) -> Content {
        let (links, filter) = (Links::default(), Filter::new(entries));
        Content { protocols: [false; 256], fragments: 0, tunnels: 0, other: 0, links, filter }
    }

    fn address(&mut self, a: IpAddr) {
        let prefixes = if a.is_ipv4() { V4 } else { V6 };
        prefixes.iter().for_each(|&bits| self.filter.insert(Entry::Network(a, bits).hash()));
    }

    /// Adds the packets of a frame.
    pub(crate) fn note(&mut self, packets: &[Seen]) {
        self.links.note(packets);
        for seen in packets {
            for (a, b) in [seen.ends, seen.pair.filter(|_| seen.pair != seen.ends)].into_iter().flatten() {
                self.address(a);
                self.address(b);
            }
            if seen.ends.is_some() {
                self.protocols[usize::from(seen.proto)] = true;
            }
            if let Some((source, destination)) = seen.ports {
                self.filter.insert(Entry::Port(seen.proto, source).hash());
                self.filter.insert(Entry::Port(seen.proto, destination).hash());
            }
        }
    }

    fn count(&mut self, packets: &[Seen]) {
        self.fragments += u64::from(packets.iter().any(|s| s.captured && s.fragment));
        self.tunnels += u64::from(packets.iter().any(|s| s.depth > 0));
        self.other += u64::from(packets.iter().all(|s| s.ends.is_none()));
    }
}

/// A part that is being written.
#[derive(Debug)]
pub(crate) struct Open {
    part: Part,
    blocks: Blocks,
    waiting: Vec<u8>,
    numbers: Vec<u8>,
    groups: Vec<u8>,
    sum: Sha256,
    pub(crate) content: Content,
}

/// A part that lacks only its index. The next window may still add to the index: a datagram that begins here and ends there.
#[derive(Debug)]
pub(crate) struct Whole {
    part: Part,
    pub(crate) content: Content,
}

impl Open {
    /// An empty part. `entries` is the number of index entries that are kept individually.
    pub(crate) fn new(bucket: u16, window: u32, entries: usize) -> Open {
        let part = Part {
            name: format!("{bucket:03}-{window:06}"),
            bucket,
            window,
            packets: 0,
            bytes: 0,
            first: i64::MAX,
            last: i64::MIN,
            sha256: String::new(),
        };
        let (blocks, content) = (Blocks::default(), Content::new(entries));
        let [waiting, numbers, groups] = [const { Vec::new() }; 3];
        Open { part, blocks, waiting, numbers, groups, sum: Sha256::new(), content }
    }

    /// Adds a frame. Returns the number of bytes that now wait to be written.
    pub(crate) fn add(&mut self, frame: &Frame<'_>, number: u64, packets: &[Seen]) -> usize {
        let before = self.waiting.len();
        let own = self.blocks.packet(frame, &mut self.waiting);
        let length = (self.waiting.len() - before) as u32;
        let group = group(packets.last().and_then(|s| s.pair));
        self.groups.extend_from_slice(&Step { group, length, headed: length != own }.bytes());
        self.numbers.extend_from_slice(&number.to_le_bytes());
        self.part.packets += 1;
        self.part.first = self.part.first.min(frame.time.0);
        self.part.last = self.part.last.max(frame.time.0);
        self.content.note(packets);
        self.content.count(packets);
        self.waiting.len() + self.numbers.len() + self.groups.len()
    }

    /// Writes the waiting bytes. The files are opened and closed for each call, so many parts need no more handles than one.
    pub(crate) fn flush(&mut self, archive: &Path) -> Result<(), Error> {
        self.sum.update(&self.waiting);
        self.part.bytes += self.waiting.len() as u64;
        append(&part_file(archive, &self.part.name, "pcapng"), &mut self.waiting)?;
        append(&part_file(archive, &self.part.name, "numbers"), &mut self.numbers)?;
        append(&part_file(archive, &self.part.name, "groups"), &mut self.groups)
    }

    /// Writes the rest and syncs it to disk.
    pub(crate) fn close(mut self, archive: &Path) -> Result<Whole, Error> {
        self.flush(archive)?;
        for extension in ["pcapng", "numbers", "groups"] {
            let file = part_file(archive, &self.part.name, extension);
            let open = OpenOptions::new().append(true).open(&file);
            open.and_then(|f| f.sync_all()).map_err(Error::write(&file))?;
        }
        self.part.sha256 = self.sum.finalize().iter().map(|b| format!("{b:02x}")).collect();
        Ok(Whole { part: self.part, content: self.content })
    }
}

fn append(file: &Path, bytes: &mut Vec<u8>) -> Result<(), Error> {
    let open = OpenOptions::new().create(true).append(true).open(file);
    open.and_then(|mut f| f.write_all(bytes)).map_err(Error::write(file))?;
    bytes.clear();
    Ok(())
}

impl Whole {
    /// Writes the index. Returns the part's entry in the manifest.
    pub(crate) fn finish(self, archive: &Path) -> Result<Part, Error> {
        let Content { protocols, fragments, tunnels, other, links, filter } = self.content;
        let index = PartIndex {
            version: VERSION,
            part: self.part.clone(),
            protocols: (0..=255u8).filter(|&p| protocols[usize::from(p)]).collect(),
            fragments,
            tunnels,
            other,
            links: links.list(),
            filter: base64::engine::general_purpose::STANDARD.encode(filter.bits()),
        };
        write_json(&part_file(archive, &self.part.name, "index.json"), &index)?;
        Ok(self.part)
    }
}
