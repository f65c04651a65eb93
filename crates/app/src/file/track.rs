//! Putting files together from reads and writes, which may come in any order.
//!
//! What goes on where the file is goes into it at once. What is behind that waits, as long as there is room
//! ([`Budget`]); what is before it came already. A file that is closed while something waits has a hole, and so has one
//! for which there was no more room.

use std::collections::BTreeMap;

use margay_flow::Direction;

use super::Files;
use crate::parser::Parse;

/// Something odd about a read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    /// It begins before what came already, or where another one waits.
    Overlap,
    /// So many bytes wait that it cannot.
    TooManyBytes,
    /// So many others wait that it cannot.
    TooMany,
}

/// What waits of all files of a flow in a direction.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Budget {
    pub bytes: usize,
    pub chunks: u32,
}

/// How far a file is.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// Offset of the next byte.
    next: u64,
    /// What waits, by offset.
    queue: BTreeMap<u64, Vec<u8>>,
    /// Bytes of that.
    bytes: usize,
}

/// What a file is put together with.
pub(crate) struct FileCx<'a, 'b> {
    pub cx: &'a mut Parse<'b>,
    pub files: &'a mut Files,
    pub budget: &'a mut Budget,
    pub dir: Direction,
    /// Most bytes and reads or writes that may wait; 0 for any number.
    pub limits: (usize, u32),
}

impl FileCx<'_, '_> {
    fn append(&mut self, data: &[u8]) {
        let config = self.cx.config;
        // More than rules asked to store, or than is followed of files, is left to the file itself.
        self.files.append(&mut self.cx.shared.files, &config.files, self.dir, data);
    }

    fn gap(&mut self, len: u64) {
        let config = self.cx.config;
        self.files.gap(&mut self.cx.shared.files, &config.files, self.dir, len);
    }
}

/// What is done with a chunk: one read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It goes into the file, but for what is there already.
    Direct,
    /// It waits, as the one at this offset.
    Waits(u64),
    /// Another one with the same beginning waits: it is passed over.
    Dropped,
}

impl Track {
    /// Bytes of memory that wait.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.queue.len() * size_of::<(u64, Vec<u8>)>()
    }

    /// A chunk of `len` bytes begins at `offset`. What is odd about it is added to `odd`.
    pub(crate) fn begin(&mut self, f: &mut FileCx<'_, '_>, offset: u64, len: u64, odd: &mut Vec<Odd>) -> Place {
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
        // There is no more room: what is missing will not be waited for.
        odd.push(why);
        self.drain(f, true);
        if offset > self.next {
            f.gap(offset - self.next);
            self.next = offset;
        }
        Place::Direct
    }

    /// Bytes of a chunk, at `at` in the file.
    pub(crate) fn data(&mut self, f: &mut FileCx<'_, '_>, place: Place, at: u64, data: &[u8]) {
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

    /// Takes what waits and goes on; all of it where nothing will come between (`holes`).
    fn drain(&mut self, f: &mut FileCx<'_, '_>, holes: bool) {
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

    /// Bytes of a chunk, at `at` in the file, are missing, and `left` of it are to come: what is done with those.
    pub(crate) fn gap(&mut self, f: &mut FileCx<'_, '_>, place: Place, at: u64, len: u64, left: u64) -> Place {
        let behind = at.saturating_add(len);
        match place {
            Place::Dropped => Place::Dropped,
            // It goes on as another one.
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

    /// Nothing more will come.
    pub(crate) fn finish(&mut self, f: &mut FileCx<'_, '_>) {
        self.drain(f, true);
        let config = f.cx.config;
        if f.files.is_open(f.dir) {
            f.files.close(&mut f.cx.shared.files, &config.files, f.dir, false);
        }
    }

    /// Gives back what waits, unseen.
    pub(crate) fn discard(&mut self, budget: &mut Budget) {
        self.bytes = 0;
        for data in std::mem::take(&mut self.queue).into_values() {
            budget.bytes = budget.bytes.saturating_sub(data.len());
            budget.chunks = budget.chunks.saturating_sub(1);
        }
    }
}
