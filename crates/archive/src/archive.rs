//! The archive's metadata: `archive.json`, and the index of each part.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The layout version that this program writes and reads.
pub const VERSION: u32 = 1;
/// The manifest's name.
pub const MANIFEST: &str = "archive.json";

/// A capture that was split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name as given.
    pub file: String,
    /// Packets that were read from it.
    pub packets: u64,
    /// Why reading stopped before its end, or could not begin.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// A part, as the manifest lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// File name without extension.
    pub name: String,
    /// Its bucket.
    pub bucket: u16,
    /// Number of its window, from 0. The parts of a bucket follow each other in time.
    pub window: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes of its `.pcapng`.
    pub bytes: u64,
    /// Time of its earliest packet, in microseconds since 1970.
    pub first: i64,
    /// Time of its latest packet.
    pub last: i64,
    /// SHA-256 of its `.pcapng`, in hexadecimal digits.
    pub sha256: String,
}

/// `archive.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`VERSION`].
    pub version: u32,
    /// Buckets, including empty ones.
    pub buckets: u16,
    /// Length of a window in microseconds; 0 for a single window.
    pub window: i64,
    /// [`crate::group::ROWS`]; 0 in archives without groups, whose parts are read whole.
    #[serde(default)]
    pub rows: u16,
    /// Packets of all parts.
    pub packets: u64,
    /// The captures that were read.
    pub captures: Vec<Source>,
    /// Sets of buckets that must be read together, because the same inner flow is in tunnels of each.
    pub together: Vec<Vec<u16>>,
    /// Inner flows that were not remembered. If there are any, all buckets with tunnels are in `together`.
    pub claims_refused: u64,
    /// Fragments that were dropped while splitting, for lack of memory. The indexes do not cover their datagrams. If there
    /// are any, an index must not be queried for ports.
    pub fragments_refused: u64,
    /// Whether more than a tenth of the first 1,000 packets have a wrong checksum, so that an engine would trust all
    /// checksums of the whole capture (`pcap-file.checksum-checks: auto`). An engine's own judgement of a part does not
    /// count.
    pub checksums_believed: bool,
    /// The parts, by bucket and window.
    pub parts: Vec<Part>,
}

/// `NAME.index.json`: what a part may contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartIndex {
    /// [`VERSION`].
    pub version: u32,
    /// The same data as in the manifest.
    #[serde(flatten)]
    pub part: Part,
    /// IP protocols of its packets, including inner packets, by number.
    pub protocols: Vec<u8>,
    /// Packets that are fragments.
    pub fragments: u64,
    /// Frames with inner packets.
    pub tunnels: u64,
    /// Frames without an IP header.
    pub other: u64,
    /// Groups that must be read together ([`crate::group`]). `None` if there are too many to list; then the part is read
    /// whole.
    #[serde(default)]
    pub links: Option<Vec<(u16, u16)>>,
    /// [`crate::bloom::Filter`] of addresses, networks and ports, in base64.
    pub filter: String,
}

impl PartIndex {
    /// Reads the index of a part.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Index`] for an invalid index, or another version.
    pub fn read(archive: &Path, name: &str) -> Result<PartIndex, Error> {
        let file = part_file(archive, name, "index.json");
        let index: PartIndex = read_json(&file)?;
        match index.version {
            VERSION => Ok(index),
            other => Err(Error::Index { file, reason: format!("it has version {other}, not {VERSION}") }),
        }
    }
}

impl Manifest {
    /// Reads the manifest of an archive.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Index`] for an invalid manifest, or another version.
    pub fn read(archive: &Path) -> Result<Manifest, Error> {
        let file = archive.join(MANIFEST);
        let manifest: Manifest = read_json(&file)?;
        if manifest.version != VERSION {
            return Err(Error::Index { file, reason: format!("it has version {}, not {VERSION}", manifest.version) });
        }
        Ok(manifest)
    }
}

fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let text = fs::read(file).map_err(Error::read(file))?;
    serde_json::from_slice(&text).map_err(|e| Error::Index { file: file.to_owned(), reason: e.to_string() })
}

/// Writes a JSON file and syncs it to disk.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(value)
        .map_err(|e| Error::Write { file: file.to_owned(), source: std::io::Error::other(e) })?;
    let written = File::create(file).and_then(|mut f| f.write_all(&text).and_then(|()| f.sync_all()));
    written.map_err(Error::write(file))
}

/// The path of a part's file with this extension.
pub(crate) fn part_file(archive: &Path, name: &str, extension: &str) -> PathBuf {
    archive.join(format!("{name}.{extension}"))
}
