//! A list of frames for one worker, as positions in a buffer that threads share.

use std::sync::Arc;

use margay_capture::live::Lent;
use margay_packet::{Frame, LinkType, Time};

use super::ahead::Notes;

/// A frame, in the buffer of its piece.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    /// Offset from the piece's base.
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) wire_len: u32,
    /// Number, relative to the piece's first frame.
    pub(crate) nth: u32,
    pub(crate) time: Time,
    pub(crate) link: LinkType,
    /// Key of its flow and direction; 0 if unknown.
    pub(crate) key: u32,
}

/// Where the frames of a piece are.
#[derive(Clone)]
pub(crate) enum Memory {
    /// In a buffer of the reader.
    Buffer(Arc<Vec<u8>>),
    /// In the ring of an interface.
    Ring(Lent),
}

impl Memory {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Buffer(bytes) => bytes,
            Memory::Ring(block) => (**block).as_ref(),
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

/// Frames for one worker, in stream order.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) memory: Memory,
    pub(crate) base: usize,
    pub(crate) spots: Vec<Spot>,
    /// Number of the first frame.
    pub(crate) first: u64,
    /// Stream time after the last frame, and the number of frames in the stream up to that point.
    pub(crate) now: Time,
    pub(crate) seen: u64,
    /// All the worker's frames before this number are in this piece or in earlier ones.
    pub(crate) upto: u64,
    /// Search results of other workers, if helping is on.
    pub(crate) notes: Option<Box<Notes>>,
    /// Its number on the worker's board, if it is there.
    pub(crate) shown: Option<u64>,
}

/// The recycled allocations of a piece.
#[derive(Debug, Default)]
pub(crate) struct PieceBuffer {
    pub(crate) spots: Vec<Spot>,
    pub(crate) notes: Option<Box<Notes>>,
}

impl Piece {
    pub(crate) fn len(&self) -> usize {
        self.spots.len()
    }

    /// The bytes and the key of the `nth` frame.
    pub(crate) fn at(&self, nth: usize) -> Option<(u32, &[u8])> {
        let spot = self.spots.get(nth)?;
        let start = self.base + spot.start as usize;
        Some((spot.key, self.memory.bytes().get(start..start + spot.len as usize)?))
    }

    /// A frame's number in the stream.
    pub(crate) fn number(&self, spot: &Spot) -> u64 {
        self.first + u64::from(spot.nth)
    }

    #[inline]
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        let bytes = self.memory.bytes();
        self.spots.iter().map(move |s| {
            let start = self.base + s.start as usize;
            Frame {
                data: bytes.get(start..start + s.len as usize).unwrap_or(&[]),
                wire_len: s.wire_len,
                time: s.time,
                link: s.link,
                number: self.number(s),
            }
        })
    }

    /// Releases the capture buffer, and returns the allocations for another piece.
    pub(crate) fn done(self) -> PieceBuffer {
        let Piece { mut spots, mut notes, .. } = self;
        spots.clear();
        if let Some(n) = &mut notes {
            n.clear();
        }
        PieceBuffer { spots, notes }
    }
}
