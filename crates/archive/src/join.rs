//! Putting parts together again, in the order of the capture that they were split from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::archive::{Manifest, part_file};
use crate::error::Error;
use crate::pcapng::{Blocks, Record, Records, Stopped};

/// Bytes that are read of a part at a time.
const AHEAD: usize = 128 << 10;
/// Bytes that are written at a time.
const OUT: usize = 256 << 10;

/// The parts of a bucket, one after the other: two files are open.
struct Chain {
    files: VecDeque<PathBuf>,
    current: Option<(PathBuf, Records<BufReader<File>>, BufReader<File>)>,
    record: Record,
}

impl Chain {
    /// Reads the next packet; its number.
    fn next(&mut self) -> Result<Option<u64>, Error> {
        loop {
            if self.current.is_none() {
                let Some(file) = self.files.pop_front() else { return Ok(None) };
                let open = |file: &Path| File::open(file).map_err(Error::read(file));
                let numbers = BufReader::with_capacity(8 << 10, open(&file.with_extension("numbers"))?);
                let records = Records::new(BufReader::with_capacity(AHEAD, open(&file)?));
                self.current = Some((file, records, numbers));
            }
            let Some((file, records, numbers)) = &mut self.current else { return Ok(None) };
            match records.next(&mut self.record) {
                Ok(true) => {
                    let mut number = [0u8; 8];
                    numbers.read_exact(&mut number).map_err(Error::read(&file.with_extension("numbers")))?;
                    return Ok(Some(u64::from_le_bytes(number)));
                }
                Ok(false) => self.current = None,
                Err(Stopped::Io(source)) => return Err(Error::Read { file: file.clone(), source }),
                Err(Stopped::Broken(reason)) => {
                    return Err(Error::Part { file: file.clone(), at: records.at, reason });
                }
            }
        }
    }
}

/// Writes the packets of an archive's parts, or of those named, to `out` as one pcapng, ordered by their number in the capture. With
/// `numbers` it writes those beside, as `.numbers` of a part has them. Returns how many packets.
///
/// # Errors
/// [`Error::NoPart`], [`Error::Read`], [`Error::Part`], [`Error::Index`]; [`Error::Write`] for `out`.
pub fn join(
    archive: &Path,
    only: &[String],
    out: &mut dyn Write,
    mut numbers: Option<&mut dyn Write>,
) -> Result<u64, Error> {
    let manifest = Manifest::read(archive)?;
    if let Some(name) = only.iter().find(|n| !manifest.parts.iter().any(|p| p.name == **n)) {
        return Err(Error::NoPart(name.clone()));
    }
    let mut parts: Vec<_> = manifest.parts.iter().filter(|p| only.is_empty() || only.contains(&p.name)).collect();
    parts.sort_by_key(|p| p.window);
    let mut files: BTreeMap<u16, VecDeque<PathBuf>> = BTreeMap::new();
    for part in parts {
        files.entry(part.bucket).or_default().push_back(part_file(archive, &part.name, "pcapng"));
    }
    let new = |files| Chain { files, current: None, record: Record::default() };
    let mut chains: Vec<Chain> = files.into_values().map(new).collect();
    let mut next = BinaryHeap::new();
    for (at, chain) in chains.iter_mut().enumerate() {
        next.extend(chain.next()?.map(|number| Reverse((number, at))));
    }
    let told = |e| Error::Write { file: "the joined capture".into(), source: e };
    let (mut blocks, mut waiting, mut packets) = (Blocks::default(), Vec::new(), 0);
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
        next.extend(chain.next()?.map(|number| Reverse((number, at))));
    }
    out.write_all(&waiting).and_then(|()| out.flush()).map_err(told)?;
    Ok(packets)
}
