//! Putting files together from reads and writes, which may come in any order.
//!
//! What goes on where the file is goes into it at once. What is behind that waits, as long as there is room
//! ([`Budget`]); what is before it came already. A file that is closed while something waits has a hole, and so has one
//! for which there was no more room.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use margay_flow::Direction;

use crate::file::Files;
use crate::parser::Parse;

use super::events::Event;

/// What waits of all files of a flow in a direction.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Budget {
    pub bytes: usize,
    pub chunks: u32,
}

/// How far a file is.
#[derive(Debug, Default)]
pub(super) struct Track {
    /// Offset of the next byte.
    next: u64,
    /// What waits, by offset.
    queue: BTreeMap<u64, Vec<u8>>,
}

/// What a file is put together with.
pub(super) struct FileCx<'a, 'b> {
    pub cx: &'a mut Parse<'b>,
    pub files: &'a mut Files,
    pub budget: &'a mut Budget,
    pub dir: Direction,
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

    /// Most bytes and chunks that may wait.
    fn limits(&self) -> (usize, u32) {
        let c = &self.cx.config.smb;
        match self.dir {
            Direction::ToServer => (c.max_write_queue_size as usize, c.max_write_queue_cnt),
            Direction::ToClient => (c.max_read_queue_size as usize, c.max_read_queue_cnt),
        }
    }
}

impl Track {
    /// Bytes at `offset`; `continues` where they go on with those of the last call. What was odd is added to `events`.
    pub(super) fn data(
        &mut self,
        f: &mut FileCx<'_, '_>,
        offset: u64,
        mut data: &[u8],
        continues: bool,
        events: &mut Vec<Event>,
    ) {
        let mut at = offset;
        if at < self.next {
            if !continues {
                events.push(Event::FileOverlap);
            }
            let came = usize::try_from(self.next - at).unwrap_or(usize::MAX);
            at = self.next;
            data = data.get(came..).unwrap_or(&[]);
        }
        if data.is_empty() {
            return;
        }
        if at == self.next {
            f.append(data);
            self.next = self.next.saturating_add(data.len() as u64);
            self.drain(f, false);
            return;
        }
        self.wait(f, at, data, events);
    }

    fn wait(&mut self, f: &mut FileCx<'_, '_>, at: u64, data: &[u8], events: &mut Vec<Event>) {
        let (most, chunks) = f.limits();
        // What goes on with a chunk is part of it.
        let before = self.queue.range_mut(..at).next_back().filter(|(o, d)| o.saturating_add(d.len() as u64) == at);
        let new = before.is_none();
        let (size, count) = match f.dir {
            Direction::ToServer => (Event::WriteQueueSizeExceeded, Event::WriteQueueCntExceeded),
            Direction::ToClient => (Event::ReadQueueSizeExceeded, Event::ReadQueueCntExceeded),
        };
        let over = if most > 0 && f.budget.bytes.saturating_add(data.len()) > most {
            Some(size)
        } else if new && chunks > 0 && f.budget.chunks >= chunks {
            Some(count)
        } else {
            None
        };
        if let Some((_, d)) = before.filter(|_| over.is_none()) {
            d.extend_from_slice(data);
        } else if let Entry::Vacant(entry) = self.queue.entry(at) {
            entry.insert(data.to_vec());
            f.budget.chunks += 1;
        } else {
            events.push(Event::FileOverlap);
            return;
        }
        f.budget.bytes += data.len();
        if let Some(event) = over {
            // There is no more room: what is missing will not be waited for.
            events.push(event);
            self.drain(f, true);
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

    /// Bytes at `offset` are missing.
    pub(super) fn gap(&mut self, f: &mut FileCx<'_, '_>, offset: u64, len: u64) {
        // Behind a hole between chunks that is not known to be one there is nothing to say.
        if offset == self.next {
            f.gap(len);
            self.next = self.next.saturating_add(len);
            self.drain(f, false);
        }
    }

    /// Nothing more will come.
    pub(super) fn finish(&mut self, f: &mut FileCx<'_, '_>) {
        self.drain(f, true);
        let config = f.cx.config;
        if f.files.is_open(f.dir) {
            f.files.close(&mut f.cx.shared.files, &config.files, f.dir, false);
        }
    }

    /// Gives back what waits, unseen.
    pub(super) fn discard(&mut self, budget: &mut Budget) {
        for data in std::mem::take(&mut self.queue).into_values() {
            budget.bytes = budget.bytes.saturating_sub(data.len());
            budget.chunks = budget.chunks.saturating_sub(1);
        }
    }
}
