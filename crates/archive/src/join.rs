//! Merges parts again, in the order of the original capture.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::archive::{Manifest, Part, PartIndex, part_file};
use crate::error::Error;
use crate::group::{ENTRY, ROWS, Selection, Step};
use crate::pcapng::{Blocks, Record, Records, Stopped};

/// Bytes of a part that are read at a time.
const AHEAD: usize = 128 << 10;
/// Bytes that are written at a time.
const OUT: usize = 256 << 10;

/// Bytes of a part that are read at a time if most of it is skipped.
const SPARSE: usize = 16 << 10;

/// A part that is being read.
struct Current {
    file: PathBuf,
    records: Records<BufReader<File>>,
    numbers: BufReader<File>,
    /// With a selection, the groups of its packets.
    groups: Option<BufReader<File>>,
}

impl Current {
    fn open(file: PathBuf, selected: bool) -> Result<Current, Error> {
        let open = |file: &Path, bytes| {
            File::open(file).map(|f| BufReader::with_capacity(bytes, f)).map_err(Error::read(file))
        };
        let numbers = open(&file.with_extension("numbers"), 8 << 10)?;
        let groups = selected.then(|| open(&file.with_extension("groups"), 8 << 10)).transpose()?;
        let records = Records::new(open(&file, if selected { SPARSE } else { AHEAD })?);
        Ok(Current { file, records, numbers, groups })
    }

    fn stopped(&self, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Io(source) => Error::Read { file: self.file.clone(), source },
            Stopped::Broken(reason) => Error::Part { file: self.file.clone(), at: self.records.at, reason },
        }
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut number = [0u8; 8];
        self.numbers.read_exact(&mut number).map_err(Error::read(&self.file.with_extension("numbers")))?;
        Ok(u64::from_le_bytes(number))
    }

    /// The next packet's step; `None` at the end.
    fn step(&mut self) -> Result<Option<Step>, Error> {
        let Some(groups) = &mut self.groups else { return Ok(None) };
        let name = || self.file.with_extension("groups");
        if groups.fill_buf().map_err(|e| Error::Read { file: name(), source: e })?.is_empty() {
            return Ok(None);
        }
        let mut entry = [0u8; ENTRY];
        groups.read_exact(&mut entry).map_err(|e| Error::Read { file: name(), source: e })?;
        Ok(Some(Step::of(entry)))
    }

    /// Reads the next selected packet into `record`. Returns its number; `None` at the end.
    fn next(&mut self, selection: Option<&Selection>, record: &mut Record) -> Result<Option<u64>, Error> {
        let Some(selection) = selection else {
            return match self.records.next(record) {
                Ok(true) => self.number().map(Some),
                Ok(false) => Ok(None),
                Err(e) => Err(self.stopped(e)),
            };
        };
        let mut over = 0u64;
        while let Some(step) = self.step()? {
            let number = self.number()?;
            let wanted = selection.has(step.group);
            if !wanted && !step.headed {
                over += u64::from(step.length);
                continue;
            }
            let from = self.records.at.saturating_add(over);
            self.records.skip(std::mem::take(&mut over)).map_err(|e| self.stopped(e))?;
            let there = self.records.next(record).map_err(|e| self.stopped(e))?;
            if !there || self.records.at != from.saturating_add(u64::from(step.length)) {
                return Err(self.stopped(Stopped::Broken("it is not the file that its .groups describes")));
            }
            if wanted {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// The parts of a bucket, read one after the other, with three files open.
struct Chain {
    files: VecDeque<PathBuf>,
    current: Option<Current>,
    record: Record,
}

impl Chain {
    /// Reads the next packet. Returns its number.
    fn next(&mut self, selection: Option<&Selection>) -> Result<Option<u64>, Error> {
        loop {
            if self.current.is_none() {
                let Some(file) = self.files.pop_front() else { return Ok(None) };
                self.current = Some(Current::open(file, selection.is_some())?);
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            match current.next(selection, &mut self.record)? {
                Some(number) => return Ok(Some(number)),
                None => self.current = None,
            }
        }
    }
}

/// Selects the packets for [`join`].
#[derive(Debug, Default)]
pub struct Wanted<'w> {
    /// Names of parts; empty for all.
    pub only: &'w [String],
    /// Hosts, or pairs of hosts, whose flows are selected together with everything that belongs to them; empty for all flows.
    /// The selection includes some flows of other hosts.
    pub hosts: &'w [(IpAddr, Option<IpAddr>)],
}

/// The selected groups of these parts; `None` for everything.
fn selection(
    archive: &Path,
    manifest: &Manifest,
    parts: &[&Part],
    wanted: &Wanted<'_>,
) -> Result<Option<Selection>, Error> {
    if wanted.hosts.is_empty() {
        return Ok(None);
    }
    if manifest.rows != ROWS {
        let reason = "this archive cannot be read by hosts: split its captures again, or leave out --host";
        return Err(Error::Options(reason.to_owned()));
    }
    let mut links = Vec::new();
    for part in parts {
        match PartIndex::read(archive, &part.name)?.links {
            Some(more) => links.extend(more),
            None => return Ok(None),
        }
    }
    Ok(Some(Selection::of(wanted.hosts, &links)))
}

/// Writes the selected packets of an archive to `out` as one pcapng, ordered by their number in the capture. Also writes
/// these numbers to `numbers`, in the format of a part's `.numbers`. Returns the number of packets.
///
/// # Errors
/// [`Error::NoPart`], [`Error::Options`], [`Error::Read`], [`Error::Part`], [`Error::Index`]; [`Error::Write`] for `out`.
pub fn join(
    archive: &Path,
    wanted: &Wanted<'_>,
    out: &mut dyn Write,
    mut numbers: Option<&mut dyn Write>,
) -> Result<u64, Error> {
    let manifest = Manifest::read(archive)?;
    let only = wanted.only;
    if let Some(name) = only.iter().find(|n| !manifest.parts.iter().any(|p| p.name == **n)) {
        return Err(Error::NoPart(name.clone()));
    }
    let mut parts: Vec<_> = manifest.parts.iter().filter(|p| only.is_empty() || only.contains(&p.name)).collect();
    parts.sort_by_key(|p| p.window);
    let selection = selection(archive, &manifest, &parts, wanted)?;
    let selection = selection.as_ref();
    let mut files: BTreeMap<u16, VecDeque<PathBuf>> = BTreeMap::new();
    for part in parts {
        files.entry(part.bucket).or_default().push_back(part_file(archive, &part.name, "pcapng"));
    }
    let new = |files| Chain { files, current: None, record: Record::default() };
    let mut chains: Vec<Chain> = files.into_values().map(new).collect();
    let mut next = BinaryHeap::new();
    for (at, chain) in chains.iter_mut().enumerate() {
        next.extend(chain.next(selection)?.map(|number| Reverse((number, at))));
    }
    let told = |e| Error::Write { file: "the joined capture".into(), source: e };
    let (mut blocks, mut waiting, mut packets) = (Blocks::default(), Vec::new(), 0);
    // An empty selection still gives a valid capture.
    blocks.begin(&mut waiting);
    while let Some(Reverse((number, at))) = next.pop() {
        let Some(chain) = chains.get_mut(at) else { continue };
        chain.record.append(&mut blocks, &mut waiting);
        packets += 1;
        if let Some(numbers) = &mut numbers {
            numbers.write_all(&number.to_le_bytes()).map_err(told)?;
        }
        if waiting.len() >= OUT {
            out.write_all(&waiting).map_err(told)?;
            waiting.clear();
        }
        next.extend(chain.next(selection)?.map(|number| Reverse((number, at))));
    }
    out.write_all(&waiting).and_then(|()| out.flush()).map_err(told)?;
    Ok(packets)
}
