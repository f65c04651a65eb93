//! Reassembles files from reads and writes in any order.
//!
//! Data at the current end of the file is appended at once. Data beyond it waits, within the limits ([`Budget`]); earlier
//! data is a repetition. A file has a gap if data of a read or write is missing, if it is closed while data waits, or if the
//! limits were reached.

use std::collections::BTreeMap;

use margay_flow::Direction;

use super::{FileConfig, FileEngine, Files};

/// An anomaly of a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    /// It begins before the end of the file, or where another one waits.
    Overlap,
    /// It exceeds the limit of waiting bytes.
    TooManyBytes,
    /// It exceeds the limit of waiting reads or writes.
    TooMany,
}

/// Waiting data of all files in a flow's direction.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Budget {
    pub bytes: usize,
    pub chunks: u32,
}

/// The reassembly state of a file.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// File offset of the next byte.
    next: u64,
    /// Waiting data, by offset.
    queue: BTreeMap<u64, Vec<u8>>,
    /// Bytes in the queue.
    bytes: usize,
}

/// The context for reassembling a file.
pub(crate) struct FileCx<'a> {
    pub engine: &'a mut FileEngine,
    pub config: &'a FileConfig,
    pub files: &'a mut Files,
    pub budget: &'a mut Budget,
    pub dir: Direction,
    /// The limits of waiting bytes, and of waiting reads or writes; 0 for none.
    pub limits: (usize, u32),
}

impl FileCx<'_> {
    fn append(&mut self, data: &[u8]) {
        // The file applies its own limits on storing and following data.
        self.files.append(self.engine, self.config, self.dir, data);
    }

    fn gap(&mut self, len: u64) {
        self.files.gap(self.engine, self.config, self.dir, len);
    }
}

/// The handling of a chunk: one read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Append it to the file, without bytes that the file already has.
    Direct,
    /// It waits at this offset.
    Waits(u64),
    /// Skip it: another one with the same offset waits.
    Dropped,
}

impl Track {
    /// Bytes of waiting data.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.queue.len() * size_of::<(u64, Vec<u8>)>()
    }

    /// Begins a chunk of `len` bytes at `offset`. Anomalies are added to `odd`.
    pub(crate) fn begin(&mut self, f: &mut FileCx<'_>, offset: u64, len: u64, odd: &mut Vec<Odd>) -> Place {
        if offset <= self.next {
            if offset < self.next && len > 0 {
                odd.push(Odd::Overlap);
            }
            return Place::Direct;
        }
        if self.queue.contains_key(&offset) {
            odd.push(Odd::Overlap);
            return Place::Dropped;
        }
        let (most, chunks) = f.limits;
        let over = if most > 0 && (f.budget.bytes as u64).saturating_add(len) > most as u64 {
            Some(Odd::TooManyBytes)
        } else if chunks > 0 && f.budget.chunks >= chunks {
            Some(Odd::TooMany)
        } else {
            None
        };
        let Some(why) = over else {
            self.queue.insert(offset, Vec::new());
            f.budget.chunks += 1;
            return Place::Waits(offset);
        };
        // The limits are reached, so the missing data becomes a gap.
        odd.push(why);
        self.drain(f, true);
        if offset > self.next {
            f.gap(offset - self.next);
            self.next = offset;
        }
        Place::Direct
    }

    /// Handles data of a chunk at file offset `at`.
    pub(crate) fn data(&mut self, f: &mut FileCx<'_>, place: Place, at: u64, data: &[u8]) {
        match place {
            Place::Dropped => {}
            Place::Waits(offset) => {
                if let Some(chunk) = self.queue.get_mut(&offset) {
                    chunk.extend_from_slice(data);
                    self.bytes += data.len();
                    f.budget.bytes += data.len();
                }
            }
            Place::Direct => {
                let came = usize::try_from(self.next.saturating_sub(at)).unwrap_or(usize::MAX);
                let rest = data.get(came..).unwrap_or(&[]);
                if !rest.is_empty() {
                    f.append(rest);
                    self.next = self.next.saturating_add(rest.len() as u64);
                    self.drain(f, false);
                }
            }
        }
    }

    /// Appends waiting data in order; with `holes`, all of it, because the missing data will not come.
    fn drain(&mut self, f: &mut FileCx<'_>, holes: bool) {
        while let Some(entry) = self.queue.first_entry() {
            let at = *entry.key();
            if at > self.next && !holes {
                return;
            }
            let data = entry.remove();
            self.bytes = self.bytes.saturating_sub(data.len());
            f.budget.bytes = f.budget.bytes.saturating_sub(data.len());
            f.budget.chunks = f.budget.chunks.saturating_sub(1);
            if at > self.next {
                f.gap(at - self.next);
                self.next = at;
            }
            let came = usize::try_from(self.next - at).unwrap_or(usize::MAX);
            let rest = data.get(came..).unwrap_or(&[]);
            if !rest.is_empty() {
                f.append(rest);
                self.next = self.next.saturating_add(rest.len() as u64);
            }
        }
    }

    /// Handles a gap of a chunk at file offset `at`, with `left` bytes to follow. Returns the handling of those bytes.
    pub(crate) fn gap(&mut self, f: &mut FileCx<'_>, place: Place, at: u64, len: u64, left: u64) -> Place {
        let behind = at.saturating_add(len);
        match place {
            Place::Dropped => Place::Dropped,
            // The rest becomes a chunk of its own.
            Place::Waits(_) => self.begin(f, behind, left, &mut Vec::new()),
            Place::Direct => {
                if behind > self.next {
                    f.gap(behind - self.next);
                    self.next = behind;
                    self.drain(f, false);
                }
                Place::Direct
            }
        }
    }

    /// Ends the file.
    pub(crate) fn finish(&mut self, f: &mut FileCx<'_>) {
        self.drain(f, true);
        if f.files.is_open(f.dir) {
            f.files.close(f.engine, f.config, f.dir, false);
        }
    }

    /// Drops waiting data.
    pub(crate) fn discard(&mut self, budget: &mut Budget) {
        self.bytes = 0;
        for data in std::mem::take(&mut self.queue).into_values() {
            budget.bytes = budget.bytes.saturating_sub(data.len());
            budget.chunks = budget.chunks.saturating_sub(1);
        }
    }
}
