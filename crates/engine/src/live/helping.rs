//! Idle workers of an interface help a busy one (`margay.search-ahead`).
//!
//! The kernel gives all packets of a flow to one worker, so a single large flow keeps one worker busy while the others wait. A
//! worker with more packets in its ring, and an idle worker beside it, offers the next blocks of the ring as pieces ([`Piece`]).
//! Idle workers search their payloads ([`crate::spread::ahead`]). The owner inspects its packets in order, as always, and takes
//! the searches that are ready.
//!
//! Nothing is copied: the source lends its memory ([`LiveSource::lend`]), and releases it when nobody reads it any more. An
//! inline worker offers nothing, because it forwards each batch before it receives the next one.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use margay_capture::live::{LiveSource, Received};
use margay_detect::Detect;
use margay_packet::{Frame, Time};

use crate::keys::HashKeys;
use crate::spread::ahead::{Board, Helped, Helper, Team};
use crate::spread::piece::{Memory, Piece, PieceBuffer, Spot};
use crate::spread::steer::{Keys, Steering, key_of};
use crate::worker::AheadCounters;

/// Blocks of the ring that a worker offers at a time.
const PIECES: usize = 16;
/// Frames of a batch that is offered: more than a block of full frames has. A block with more is inspected by the owner alone,
/// because small frames are not worth a search.
const FRAMES: usize = 1024;
/// How long an idle worker waits for packets of its own while another worker offers some of its.
const NAP: Duration = Duration::from_millis(1);

/// A worker's state that the others read; on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct State {
    /// Number of the frame that it inspects.
    at: AtomicU64,
    /// It has no packets.
    idle: AtomicBool,
}

/// The workers of an interface.
#[derive(Debug)]
pub(super) struct Crew {
    boards: Box<[Arc<Board>]>,
    states: Box<[State]>,
    /// Workers that offer pieces.
    offering: AtomicUsize,
    steering: Steering,
}

impl Crew {
    pub(super) fn new(workers: usize, keys: &HashKeys) -> Crew {
        Crew {
            boards: (0..workers).map(|_| Arc::default()).collect(),
            states: (0..workers).map(|_| State::default()).collect(),
            offering: AtomicUsize::new(0),
            steering: Steering { keys: Keys::of(&keys.table), ..Steering::default() },
        }
    }

    fn is_another_idle(&self, me: usize) -> bool {
        self.states.iter().enumerate().any(|(n, s)| n != me && s.idle.load(Ordering::Relaxed))
    }
}

impl Team for Crew {
    fn boards(&self) -> &[Arc<Board>] {
        &self.boards
    }

    fn at(&self, worker: usize) -> u64 {
        self.states.get(worker).map_or(0, |s| s.at.load(Ordering::Relaxed))
    }

    /// Idle workers look for work every [`NAP`].
    fn wake_one(&self) {}
}

/// Frames that the source lent.
struct Offered {
    piece: Arc<Piece>,
    /// Whether each frame's checksums are trusted.
    trusted: Vec<bool>,
}

/// One worker's part.
pub(super) struct Helping {
    crew: Arc<Crew>,
    me: usize,
    pub(super) helped: Rc<Helped>,
    helper: Helper,
    /// Pieces that wait for this worker.
    pieces: VecDeque<Offered>,
    /// Memory for more.
    spare: Vec<(PieceBuffer, Vec<bool>)>,
    /// Frames and pieces offered so far.
    frames: u64,
    shown: u64,
    is_offering: bool,
}

impl Helping {
    pub(super) fn new(crew: &Arc<Crew>, me: usize) -> Helping {
        let board = crew.boards.get(me).cloned().unwrap_or_default();
        Helping {
            crew: Arc::clone(crew),
            me,
            helped: Rc::new(Helped::new(board)),
            helper: Helper::new(Arc::clone(crew) as Arc<dyn Team>, me),
            pieces: VecDeque::new(),
            spare: Vec::new(),
            frames: 0,
            shown: 0,
            is_offering: false,
        }
    }

    /// Whether pieces wait.
    #[inline]
    pub(super) fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The number of frames in them.
    pub(super) fn waiting(&self) -> u64 {
        self.pieces.iter().map(|o| o.piece.len() as u64).sum()
    }

    /// Offers the batch that `source` has just returned, and those behind it, if a worker is idle. Returns what the source said
    /// last, which is still to be handled.
    pub(super) fn offer(&mut self, source: &mut dyn LiveSource, mut received: Received) -> Received {
        let is_worthwhile = |h: &Helping, s: &dyn LiveSource| s.is_waiting() && h.crew.is_another_idle(h.me);
        while received == Received::Frames
            && self.pieces.len() < PIECES
            && (self.has_pieces() || is_worthwhile(self, source))
            && self.lend(source)
        {
            received = self.receive_more(source);
        }
        received
    }

    /// Receives packets behind the pieces that wait, if there are any and room for them.
    pub(super) fn receive_more(&self, source: &mut dyn LiveSource) -> Received {
        match self.pieces.len() < PIECES && source.is_waiting() {
            true => source.receive(FRAMES, Duration::ZERO),
            false => Received::Idle,
        }
    }

    pub(super) fn counters(&self) -> AheadCounters {
        AheadCounters { offered: self.frames, searched: self.helper.looked_through, used: self.helped.taken_over() }
    }

    /// Makes a piece of the source's batch. Returns `false`, and does nothing, if the source does not lend it.
    fn lend(&mut self, source: &mut dyn LiveSource) -> bool {
        if !source.can_lend() {
            return false;
        }
        let (PieceBuffer { mut spots, notes }, mut trusted) = self.spare.pop().unwrap_or_default();
        let batch = source.batch();
        let mut now = Time(0);
        for (n, frame) in batch.iter().enumerate() {
            let (place, whose) = self.crew.steering.place(&frame);
            let key = key_of(place, whose);
            let Frame { wire_len, time, link, .. } = frame;
            let (start, len) = (batch.start(n).unwrap_or(0), frame.data.len() as u32);
            spots.push(Spot { start, len, wire_len, nth: n as u32, time, link, key });
            trusted.push(batch.trusted(n));
            now = time;
        }
        let Some(block) = source.lend() else { return false };
        let first = self.frames + 1;
        self.frames += spots.len() as u64;
        let (seen, upto) = (self.frames, self.frames + 1);
        let (notes, shown) = (Some(notes.unwrap_or_default()), Some(self.shown));
        let piece =
            Arc::new(Piece { memory: Memory::Ring(block), base: 0, spots, first, now, seen, upto, notes, shown });
        if self.crew.boards.get(self.me).is_some_and(|b| b.show(&piece)) {
            self.shown += 1;
        }
        self.pieces.push_back(Offered { piece, trusted });
        self.offers(true);
        true
    }

    /// Announces whether this worker has pieces.
    fn offers(&mut self, is_offering: bool) {
        if self.is_offering != is_offering {
            self.is_offering = is_offering;
            match is_offering {
                true => self.crew.offering.fetch_add(1, Ordering::Relaxed),
                false => self.crew.offering.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }

    /// Hands each frame of the oldest piece to `inspect`, with whether its checksums are trusted. Returns the number of frames.
    pub(super) fn inspect_piece(&mut self, mut inspect: impl FnMut(&Frame<'_>, bool)) -> usize {
        let Some(Offered { piece, mut trusted }) = self.pieces.pop_front() else { return 0 };
        let state = self.crew.states.get(self.me);
        self.helped.begin(&piece);
        for (nth, (frame, trusted)) in piece.frames().zip(&trusted).enumerate() {
            if let Some(s) = state {
                s.at.store(frame.number, Ordering::Relaxed);
            }
            self.helped.at(nth);
            // Frames of an interface have no number.
            inspect(&Frame { number: 0, ..frame }, *trusted);
        }
        self.helped.end();
        let len = piece.len();
        // A helper may still hold the piece, and drops it later.
        if let Some(piece) = Arc::into_inner(piece) {
            trusted.clear();
            self.spare.push((piece.done(), trusted));
        }
        if self.pieces.is_empty() {
            self.offers(false);
        }
        len
    }

    /// Waits for packets, and meanwhile helps other workers with the rules `detect`.
    pub(super) fn receive(
        &mut self,
        source: &mut dyn LiveSource,
        detect: Option<&Arc<Detect>>,
        max: usize,
        wait: Duration,
    ) -> Received {
        self.helper.keep_only(detect);
        if source.is_waiting() {
            return source.receive(max, wait);
        }
        let idle = |is: bool| {
            if let Some(s) = self.crew.states.get(self.me) {
                s.idle.store(is, Ordering::Relaxed);
            }
        };
        idle(true);
        let mut wait = wait;
        if self.crew.offering.load(Ordering::Relaxed) > 0 {
            let helped = detect.is_some_and(|d| {
                self.helper.rules(d);
                self.helper.help(|| source.is_waiting())
            });
            wait = if helped { Duration::ZERO } else { wait.min(NAP) };
        }
        let received = source.receive(max, wait);
        // It stays idle between two waits.
        if received == Received::Frames {
            idle(false);
        }
        received
    }
}

impl Drop for Helping {
    fn drop(&mut self) {
        self.offers(false);
        if let Some(s) = self.crew.states.get(self.me) {
            s.idle.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_capture::Batch;
    use margay_capture::live::{Decisions, Lent, LiveCounters, LiveError};

    /// A source with this many blocks of one frame, which it lends.
    struct Blocks(usize, bool);

    impl LiveSource for Blocks {
        fn receive(&mut self, _: usize, _: Duration) -> Received {
            self.1 = self.0 > 0;
            match self.1 {
                true => Received::Frames,
                false => Received::Idle,
            }
        }

        fn batch(&self) -> Batch<'_> {
            Batch::default()
        }

        fn is_waiting(&self) -> bool {
            self.0 > usize::from(self.1)
        }

        fn can_lend(&self) -> bool {
            self.1
        }

        fn lend(&mut self) -> Option<Lent> {
            self.1.then(|| {
                (self.0, self.1) = (self.0 - 1, false);
                Arc::new(vec![0u8]) as Lent
            })
        }

        fn release(&mut self, _: &Decisions) {}

        fn start(&mut self) -> Result<(), LiveError> {
            Ok(())
        }

        fn stop(&mut self) {}

        fn settle(&self) -> Duration {
            Duration::ZERO
        }

        fn counters(&mut self, _: usize) -> LiveCounters {
            LiveCounters::default()
        }
    }

    #[test]
    fn packets_are_offered_if_more_wait_and_a_worker_is_idle() {
        let crew = Arc::new(Crew::new(2, &HashKeys::of(&margay_config::RunOptions::default())));
        let offered = |blocks| {
            let mut busy = Helping::new(&crew, 0);
            let mut source = Blocks(blocks, false);
            let received = source.receive(1, Duration::ZERO);
            let received = busy.offer(&mut source, received);
            (busy.pieces.len(), received, source.0)
        };
        assert_eq!(offered(3), (0, Received::Frames, 3), "nobody is idle yet");
        let mut other = Helping::new(&crew, 1);
        other.receive(&mut Blocks(0, false), None, 1, Duration::ZERO);
        assert_eq!(offered(1), (0, Received::Frames, 1), "no other packets wait");
        assert_eq!(offered(3), (3, Received::Idle, 0));
        assert_eq!(offered(PIECES + 3), (PIECES, Received::Idle, 3), "the rest stays in the ring");
        drop(other);
        assert_eq!(offered(3), (0, Received::Frames, 3), "the worker has ended");
    }
}
