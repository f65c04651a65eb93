//! The reader's end of a worker's queue.

use std::collections::VecDeque;
use std::sync::Arc;

use margay_packet::{Frame, Time};
use rtrb::{Consumer, Producer};

use super::super::item::Item;
use crate::spread::ahead::{Board, Notes};
use crate::spread::piece::{Memory, Piece, PieceBuffer, Spot};

/// Shorter lists are not offered to helpers.
const WORTH_SHOWING: usize = 8;

/// How far the stream was steered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stream {
    pub(super) now: Time,
    /// Frames so far.
    pub(super) seen: u64,
    /// The next frame's number.
    pub(super) upto: u64,
}

/// The reader's end of a worker's queue.
pub(super) struct WorkerQueue {
    pub(super) items: Producer<Item>,
    buffers: Consumer<PieceBuffer>,
    /// Where helpers find the worker's waiting pieces.
    board: Option<Arc<Board>>,
    shown: u64,
    /// The open list, and its buffer.
    pub(super) open: Vec<Spot>,
    notes: Option<Box<Notes>>,
    pub(super) first: u64,
    base: usize,
    /// Items that did not fit into the queue.
    pub(super) waiting: VecDeque<Item>,
    /// Packets handed over, and those of them that the worker had finished at the last check.
    pub(super) sent: u64,
    pub(super) done: u64,
    /// The stream's position when the last piece was made, in frames seen and as a frame number.
    pub(super) told: u64,
    pub(super) upto: u64,
    pub(super) longest: u64,
}

impl WorkerQueue {
    /// The queue of a worker that has received nothing yet.
    pub(super) fn new(items: Producer<Item>, buffers: Consumer<PieceBuffer>, board: Option<Arc<Board>>) -> WorkerQueue {
        WorkerQueue {
            items,
            buffers,
            board,
            shown: 0,
            open: Vec::new(),
            notes: None,
            first: 0,
            base: 0,
            waiting: VecDeque::new(),
            sent: 0,
            done: 0,
            told: 0,
            upto: 0,
            longest: 0,
        }
    }

    /// Packets that wait for the worker, as of the last check.
    #[inline]
    pub(super) fn load(&self) -> u64 {
        (self.sent + self.open.len() as u64).saturating_sub(self.done)
    }

    /// Moves waiting items into the queue. Returns whether all of them fit.
    pub(super) fn put(&mut self) -> bool {
        while let Some(item) = self.waiting.pop_front() {
            if let Err(rtrb::PushError::Full(item)) = self.items.push(item) {
                self.waiting.push_front(item);
                return false;
            }
        }
        true
    }

    /// Makes a piece of the open list.
    pub(super) fn close(&mut self, buffer: &Arc<Vec<u8>>, stream: Stream) {
        let Stream { now, seen, upto } = stream;
        let next = self.buffers.pop().unwrap_or_default();
        let spots = std::mem::replace(&mut self.open, next.spots);
        let mut notes = std::mem::replace(&mut self.notes, next.notes);
        (self.told, self.upto) = (seen, upto);
        self.sent += spots.len() as u64;
        let memory = Memory::Buffer(if spots.is_empty() { Arc::default() } else { Arc::clone(buffer) });
        let shown = self.board.is_some().then_some(self.shown).filter(|_| spots.len() >= WORTH_SHOWING);
        if shown.is_some() {
            notes.get_or_insert_default();
        }
        let piece =
            Arc::new(Piece { memory, base: self.base, spots, first: self.first, now, seen, upto, notes, shown });
        if shown.is_some() && self.board.as_ref().is_some_and(|b| b.show(&piece)) {
            self.shown += 1;
        }
        self.waiting.push_back(Item::Piece(piece));
    }

    /// Whether a frame at `start` is too far from the piece's base.
    #[inline]
    pub(super) fn is_far(&self, start: usize) -> bool {
        u32::try_from(start.saturating_sub(self.base)).is_err()
    }

    #[inline]
    pub(super) fn add(&mut self, start: usize, frame: &Frame<'_>, key: u32) {
        if self.open.is_empty() {
            (self.base, self.first) = (start, frame.number);
        }
        self.open.push(Spot {
            start: (start - self.base) as u32,
            len: frame.data.len() as u32,
            wire_len: frame.wire_len,
            nth: (frame.number - self.first) as u32,
            time: frame.time,
            link: frame.link,
            key,
        });
    }
}
