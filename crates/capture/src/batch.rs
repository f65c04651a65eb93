//! Batches of frames, and the records of frames from which file formats and live sources make them.

use std::sync::Arc;

use margay_packet::{Frame, LinkType, Time};

use crate::error::Broken;
#[cfg(target_os = "linux")]
use crate::sys::Chunks;

/// A frame found by `fill`. Offsets count from the start of the data given to `fill`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) wire_len: u32,
    pub(crate) link: LinkType,
    pub(crate) time: Time,
    /// Its checksums are trusted without a check.
    pub(crate) trusted: bool,
}

/// The limit of one call of `fill`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The number of frames in the list at which it stops.
    pub(crate) frames: usize,
}

/// Why `fill` stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stop {
    /// The batch is complete.
    Full,
    /// The next record needs this many bytes, as far as is known.
    Need(usize),
    /// The next record is broken.
    Broken(Broken),
}

/// Counters of reading, as plain numbers that are cheap to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames delivered.
    pub frames: u64,
    /// Captured bytes of the frames delivered.
    pub bytes: u64,
    /// Frames that the filter rejected.
    pub filtered: u64,
    /// Captured bytes of the rejected frames.
    pub filtered_bytes: u64,
    /// Delivered frames that the capture had truncated (fewer bytes than on the wire).
    pub cut: u64,
    /// pcapng blocks that were skipped because they have no packet.
    pub skipped_blocks: u64,
}

impl Counters {
    /// Adds another capture's numbers.
    pub fn add(&mut self, other: &Counters) {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.filtered += other.filtered;
        self.filtered_bytes += other.filtered_bytes;
        self.cut += other.cut;
        self.skipped_blocks += other.skipped_blocks;
    }
}

/// The place of frames' bytes.
#[derive(Debug, Clone, Copy)]
enum Bytes<'a> {
    /// In one slice, each at the place that its `Meta` gives.
    Whole(&'a [u8]),
    /// In separate chunks, in the order of their `Meta`s.
    #[cfg(target_os = "linux")]
    Chunks(Chunks<'a>),
}

/// A batch of frames, which are valid at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    data: Bytes<'a>,
    metas: &'a [Meta],
    /// Number of the first frame; 0 if frames have no numbers.
    first: u64,
    /// The buffer, and the offset of `data` in it.
    shared: Option<(&'a Arc<Vec<u8>>, usize)>,
}

impl Default for Batch<'_> {
    /// No frames.
    fn default() -> Self {
        Batch::live(&[], &[])
    }
}

impl<'a> Batch<'a> {
    /// Frames of a file: the bytes, the number of the first frame, and the buffer with the offset of the bytes in it.
    pub(crate) fn of_file(
        data: &'a [u8],
        metas: &'a [Meta],
        first: u64,
        buffer: (&'a Arc<Vec<u8>>, usize),
    ) -> Batch<'a> {
        Batch { data: Bytes::Whole(data), metas, first, shared: Some(buffer) }
    }

    /// Frames of a live capture.
    pub(crate) fn live(data: &'a [u8], metas: &'a [Meta]) -> Batch<'a> {
        Batch { data: Bytes::Whole(data), metas, first: 0, shared: None }
    }

    /// Frames of a live capture, each in its own chunk.
    #[cfg(target_os = "linux")]
    pub(crate) fn chunks(chunks: Chunks<'a>, metas: &'a [Meta]) -> Batch<'a> {
        Batch { data: Bytes::Chunks(chunks), metas, first: 0, shared: None }
    }

    /// The buffer of a file's frames, for callers that keep frames beyond the next call. Its content stays while it is
    /// referenced. `None` for live captures.
    #[inline]
    pub fn buffer(&self) -> Option<&'a Arc<Vec<u8>>> {
        self.shared.map(|s| s.0)
    }

    /// Offset in [`Batch::buffer`] of the bytes of the frame at `index`.
    #[inline]
    pub fn offset(&self, index: usize) -> Option<usize> {
        Some(self.shared?.1 + self.metas.get(index)?.start as usize)
    }

    /// Offset of the bytes of the frame at `index` in the memory of a live batch ([`crate::live::LiveSource::lend`]).
    #[inline]
    pub fn start(&self, index: usize) -> Option<u32> {
        self.metas.get(index).map(|m| m.start)
    }

    /// Whether the checksums of the frame at `index` are trusted without a check, because the card that sends it has yet to fill
    /// them in, or because of the configuration.
    #[inline]
    pub fn trusted(&self, index: usize) -> bool {
        self.metas.get(index).is_some_and(|m| m.trusted)
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.metas.len()
    }

    /// Whether the filter rejected all frames.
    pub fn is_empty(&self) -> bool {
        self.metas.is_empty()
    }

    /// The frame at `index`.
    pub fn get(&self, index: usize) -> Option<Frame<'a>> {
        self.metas.get(index).map(|m| self.frame(index, m))
    }

    /// The frames, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Frame<'a>> + use<'a> {
        let batch = *self;
        batch.metas.iter().enumerate().map(move |(i, m)| batch.frame(i, m))
    }

    fn frame(&self, index: usize, m: &Meta) -> Frame<'a> {
        let start = m.start as usize;
        let data = match self.data {
            Bytes::Whole(all) => all.get(start..start + m.len as usize).unwrap_or(&[]),
            #[cfg(target_os = "linux")]
            Bytes::Chunks(chunks) => chunks.get(index),
        };
        Frame {
            data,
            wire_len: m.wire_len,
            time: m.time,
            link: m.link,
            number: if self.first == 0 { 0 } else { self.first + index as u64 },
        }
    }
}
