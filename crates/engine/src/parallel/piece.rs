//! The items of the queues: frames for one worker, as positions in the reader's buffers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use margay_capture::DeletePolicy;
use margay_packet::{Frame, LinkType, Time};
use rtrb::{Consumer, Producer};

use super::ahead::Notes;
use super::moves::Move;

/// A frame, in the buffer of its piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Offset from the piece's base.
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) wire_len: u32,
    /// Number, relative to the piece's first frame.
    pub(super) nth: u32,
    pub(super) time: Time,
    pub(super) link: LinkType,
    /// Key of its flow and direction; 0 if unknown.
    pub(super) key: u32,
}

/// Frames for one worker, in stream order.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: Arc<Vec<u8>>,
    pub(super) base: usize,
    pub(super) spots: Vec<Spot>,
    /// Number of the first frame.
    pub(super) first: u64,
    /// Stream time after the last frame, and the number of frames in the stream up to that point.
    pub(super) now: Time,
    pub(super) seen: u64,
    /// All the worker's frames before this number are in this piece or in earlier ones.
    pub(super) upto: u64,
    /// Search results of other workers, if helping is on.
    pub(super) notes: Option<Box<Notes>>,
    /// Its number on the worker's board, if it is there.
    pub(super) shown: Option<u64>,
}

/// The recycled allocations of a piece.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    pub(super) spots: Vec<Spot>,
    pub(super) notes: Option<Box<Notes>>,
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        self.spots.len()
    }

    /// The bytes and the key of the `nth` frame.
    pub(super) fn at(&self, nth: usize) -> Option<(u32, &[u8])> {
        let spot = self.spots.get(nth)?;
        let start = self.base + spot.start as usize;
        Some((spot.key, self.buffer.get(start..start + spot.len as usize)?))
    }

    /// A frame's number in the stream.
    pub(super) fn number(&self, spot: &Spot) -> u64 {
        self.first + u64::from(spot.nth)
    }

    #[inline]
    pub(super) fn frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.spots.iter().map(|s| {
            let start = self.base + s.start as usize;
            Frame {
                data: self.buffer.get(start..start + s.len as usize).unwrap_or(&[]),
                wire_len: s.wire_len,
                time: s.time,
                link: s.link,
                number: self.number(s),
            }
        })
    }

    /// Releases the capture buffer, and returns the allocations for another piece.
    pub(super) fn done(self) -> PieceBuffer {
        let Piece { mut spots, mut notes, .. } = self;
        spots.clear();
        if let Some(n) = &mut notes {
            n.clear();
        }
        PieceBuffer { spots, notes }
    }
}

/// A file that was read: the last worker to finish it closes it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) file: PathBuf,
    /// Workers that have not finished it.
    pub(super) left: AtomicUsize,
    pub(super) alerts: AtomicU64,
    /// Whether the file is deleted, depending on the number of alerts.
    pub(super) delete: DeletePolicy,
}

/// A file that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) file: PathBuf,
    /// Whether its checksums count as correct.
    pub(super) believed: bool,
}

/// An item in a queue.
#[derive(Debug)]
pub(super) enum Item {
    Piece(Arc<Piece>),
    /// A file begins.
    Begin(Arc<Begun>),
    End(Arc<Ended>),
    /// Gives a flow away: all its frames at this worker come before this item.
    Give(Arc<Move>),
    /// Takes a flow: all its frames at this worker come after this item.
    Take(Arc<Move>),
}

/// A worker's end of its queue.
pub(super) struct Inbox {
    pub(super) items: Consumer<Item>,
    pub(super) buffers: Producer<PieceBuffer>,
}
