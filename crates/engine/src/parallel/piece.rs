//! What goes through the queues: frames for one worker, by their places in the reader's buffers.

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
    /// Where it begins, from the piece's own beginning.
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) wire_len: u32,
    /// Its number, from that of the piece's first.
    pub(super) nth: u32,
    pub(super) time: Time,
    pub(super) link: LinkType,
    /// Of its flow and direction; 0 where that is not known.
    pub(super) key: u32,
}

/// Frames for one worker, in the order of the stream.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) buffer: Arc<Vec<u8>>,
    pub(super) base: usize,
    pub(super) spots: Vec<Spot>,
    /// Number of the first.
    pub(super) first: u64,
    /// Time of the stream after the last of them, and how many frames it has until then.
    pub(super) now: Time,
    pub(super) seen: u64,
    /// All frames before this number that the worker gets are in this piece or in those before.
    pub(super) upto: u64,
    /// What others found in its frames, where they may look.
    pub(super) notes: Option<Box<Notes>>,
    /// Its number among those on its worker's board, if it is there.
    pub(super) shown: Option<u64>,
}

/// What a piece is written on.
#[derive(Debug, Default)]
pub(super) struct PieceBuffer {
    pub(super) spots: Vec<Spot>,
    pub(super) notes: Option<Box<Notes>>,
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        self.spots.len()
    }

    /// The bytes of the `nth` frame, with its key.
    pub(super) fn at(&self, nth: usize) -> Option<(u32, &[u8])> {
        let spot = self.spots.get(nth)?;
        let start = self.base + spot.start as usize;
        Some((spot.key, self.buffer.get(start..start + spot.len as usize)?))
    }

    /// A frame's number in the stream.
    pub(super) fn number(&self, spot: &Spot) -> u64 {
        self.first + u64::from(spot.nth)
    }

    /// Its frames.
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

    /// Lets its buffer go, and gives back what it was written on.
    pub(super) fn done(self) -> PieceBuffer {
        let Piece { mut spots, mut notes, .. } = self;
        spots.clear();
        if let Some(n) = &mut notes {
            n.clear();
        }
        PieceBuffer { spots, notes }
    }
}

/// A file that was read: what happens when the last worker is done with it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) file: PathBuf,
    /// Workers that are not done with it.
    pub(super) left: AtomicUsize,
    pub(super) alerts: AtomicU64,
    /// Whether it is deleted, by the number of alerts.
    pub(super) delete: DeletePolicy,
}

/// A file that begins.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) file: PathBuf,
    /// Whether its checksums are believed.
    pub(super) believed: bool,
}

/// What is in a queue.
#[derive(Debug)]
pub(super) enum Item {
    Piece(Arc<Piece>),
    /// A file begins.
    Begin(Arc<Begun>),
    End(Arc<Ended>),
    /// All of a flow that is this worker's is before: another has it from here on.
    Give(Arc<Move>),
    /// What comes of a flow from here on is this worker's.
    Take(Arc<Move>),
}

/// The worker's end.
pub(super) struct Inbox {
    pub(super) items: Consumer<Item>,
    pub(super) buffers: Producer<PieceBuffer>,
}
