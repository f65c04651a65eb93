//! Reassembles files from ranges (RFC 9110, section 14), across all transactions and flows that one worker sees.
//!
//! The next part in order is appended to the whole file at once; later parts wait. The transaction that completes the file
//! gets it as an additional file. An incomplete file is dropped after [`FileConfig::range_timeout`] without a new part, or
//! oldest first if all of them exceed [`FileConfig::range_memcap`], or if there are too many.

use std::collections::{BTreeMap, VecDeque};

use margay_packet::{KeyedMap, Time};

use super::{File, FileConfig, FileEngine, FileState};

/// The limit of incomplete files.
const MAX_FILES: usize = 4096;

/// The limit of waiting parts in a file.
const MAX_PARTS: usize = 4096;

/// Incomplete files by their key (host and path).
#[derive(Debug, Default)]
pub(super) struct Ranges {
    files: KeyedMap<Box<[u8]>, Whole>,
    /// Ranges in the order in which they began: number, time, key. Only a file's last one counts.
    order: VecDeque<(u64, Time, Box<[u8]>)>,
    /// Number of the last range.
    last: u64,
    /// Memory of all files in bytes.
    memory: u64,
    /// Time of the last packet that began a range.
    now: Time,
}

#[derive(Debug)]
struct Whole {
    file: File,
    total: u64,
    /// Waiting parts, by offset.
    parts: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the key, of `parts`, and of the data that `file` holds for detection.
    memory: u64,
    /// Number of its last range.
    last: u64,
}

impl Whole {
    fn append(&mut self, engine: &mut FileEngine, config: &FileConfig, offset: u64, data: &[u8]) {
        let before = self.file.window.held().0.len() as u64;
        let mut parts = 0i64;
        if offset > self.file.size {
            if self.parts.len() < MAX_PARTS {
                // Of two parts with the same offset, keep the longer one.
                let part = self.parts.entry(offset).or_default();
                if part.len() < data.len() {
                    parts += (data.len() - part.len()) as i64;
                    data.clone_into(part);
                }
            }
        } else {
            self.extend(engine, config, offset, data);
            while let Some(first) = self.parts.first_entry().filter(|e| *e.key() <= self.file.size) {
                let (offset, part) = first.remove_entry();
                parts -= part.len() as i64;
                self.extend(engine, config, offset, &part);
            }
        }
        let window = self.file.window.held().0.len() as u64;
        self.memory = (self.memory + window).saturating_sub(before).saturating_add_signed(parts);
    }

    /// Appends the new bytes of a part.
    fn extend(&mut self, engine: &mut FileEngine, config: &FileConfig, offset: u64, data: &[u8]) {
        let known = usize::try_from(self.file.size - offset).unwrap_or(usize::MAX);
        let room = usize::try_from(self.total.saturating_sub(self.file.size)).unwrap_or(usize::MAX);
        if let Some(new) = data.get(known..) {
            self.file.append(engine, config, new.get(..room).unwrap_or(new));
        }
    }
}

impl Ranges {
    /// Whether an incomplete file with this key, size and direction exists.
    fn has(&self, key: &[u8], to_client: bool, total: u64) -> bool {
        self.files.get(key).is_some_and(|w| w.total == total && w.file.to_client == to_client)
    }

    fn take(&mut self, key: &[u8]) -> Option<(Box<[u8]>, Whole)> {
        let (key, whole) = self.files.remove_entry(key)?;
        self.memory = self.memory.saturating_sub(whole.memory);
        Some((key, whole))
    }

    fn put(&mut self, key: Box<[u8]>, whole: Whole) {
        self.memory += whole.memory;
        self.files.insert(key, whole);
    }

    /// Makes room: removes files that timed out, and the oldest ones above the limit. Returns the number of the latter.
    fn expire(&mut self, config: &FileConfig) -> u64 {
        let mut evicted = 0;
        let timeout = config.range_timeout.saturating_mul(1_000_000);
        while let Some((number, time, key)) = self.order.front() {
            let current = self.files.get(key).is_some_and(|w| w.last == *number);
            let late = self.now.0.saturating_sub(time.0) > timeout;
            let full = self.memory > config.range_memcap || self.files.len() > MAX_FILES;
            if current && !late && !full {
                break;
            }
            if let Some((_, _, key)) = self.order.pop_front()
                && current
            {
                self.take(&key);
                evicted += u64::from(!late);
            }
        }
        if self.order.len() > 4 * MAX_FILES {
            let files = &self.files;
            self.order.retain(|(number, _, key)| files.get(key).is_some_and(|w| w.last == *number));
        }
        evicted
    }
}

/// Begins a part of a file; `new` creates the whole file for the first one.
pub(super) fn begin(
    engine: &mut FileEngine,
    config: &FileConfig,
    key: &[u8],
    total: u64,
    to_client: bool,
    time: Time,
    new: impl FnOnce(&FileEngine) -> File,
) {
    engine.ranges.now = time;
    engine.counters.over_range += engine.ranges.expire(config);
    if !engine.ranges.has(key, to_client, total) {
        // With another size, the file has changed on the server.
        engine.ranges.take(key);
        let file = new(engine);
        engine.ranges.put(key.into(), Whole { file, total, parts: BTreeMap::new(), memory: key.len() as u64, last: 0 });
    }
    let ranges = &mut engine.ranges;
    ranges.last += 1;
    if let Some(w) = ranges.files.get_mut(key) {
        w.last = ranges.last;
        ranges.order.push_back((ranges.last, time, key.into()));
    }
}

/// Adds data of a part; `offset` is within the whole file.
pub(super) fn append(engine: &mut FileEngine, config: &FileConfig, key: &[u8], offset: u64, data: &[u8]) {
    let Some((key, mut whole)) = engine.ranges.take(key) else { return };
    whole.append(engine, config, offset, data);
    engine.ranges.put(key, whole);
    if engine.ranges.memory > config.range_memcap {
        engine.counters.over_range += engine.ranges.expire(config);
    }
}

/// Ends a part. Returns the whole file if it is complete.
pub(super) fn complete(engine: &mut FileEngine, config: &FileConfig, key: &[u8]) -> Option<File> {
    engine.ranges.files.get(key).filter(|w| w.file.size >= w.total)?;
    let (_, mut whole) = engine.ranges.take(key)?;
    whole.file.close(engine, config, false);
    Some(whole.file).filter(|f| f.state == FileState::Closed)
}
