//! Idle workers search the payloads that wait for other workers (`autofp-scheduler: adaptive`, `margay.search-ahead`).
//!
//! Flows go to workers by their hash. If one flow is most of the load, its worker falls behind while others are idle. Most of
//! the time goes to the pattern search in payloads, which depends only on the bytes and the requested rules
//! (`margay_detect::SearchPlan`). Everything else about a packet depends on the packets before it. So an idle worker takes a
//! piece from another worker's [`Board`], searches the payloads of its frames, and stores the results beside them
//! ([`Notes`]). The owner still decodes, tracks and reassembles every packet in order. When it needs a search that a helper
//! has made, it takes the result.
//!
//! - *What to search for* is on the board by flow and direction: the search plan of the flow's last packet, and where in its frame
//!   the payload began. The helper relies on this. The owner verifies it: a result counts only for exactly the packet's bytes
//!   and exactly the search plan that it needs.
//! - *Nobody waits.* The owner takes the results that exist, and makes missing searches itself. A helper leaves a piece when
//!   the owner catches up, and takes the next one. So no state of a flow moves, nothing runs out of order, and a wrong guess
//!   costs only the helper's time. Deadlock is impossible, because the workers share only a lock-free queue.
//! - *It is free when there are many flows*, because then no worker is idle. The owner reads one word a frame, and writes to
//!   the board when a flow needs another plan than before.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use margay_detect::{Detect, SearchPlan, SearchedAhead, Searcher};
use margay_output::warning;

use super::piece::Piece;

/// Frames of a piece that the notes have room for.
const FRAMES: usize = 256;
/// Candidates that the notes of a piece have room for.
const RULES: usize = 1024;
/// Slots for search plans, by flow and direction. Flows that share a slot overwrite each other's plan.
const WISHES: usize = 512;
/// Pieces that a board has room for: more than a queue holds.
const PIECES: usize = 64;
/// Shorter frames are not worth a search.
const FRAME_MIN: u32 = 256;
/// A helper leaves the piece when the owner is this close.
const CLOSE: u64 = 4;

/// Search results for the frames of one piece.
#[derive(Debug)]
pub(crate) struct Notes {
    frames: Box<[Note]>,
    rules: Box<[AtomicU32]>,
    /// A helper wrote something here.
    used: AtomicBool,
}

/// Search results for one frame. `place` is written last; 0 stands for no result.
#[derive(Debug, Default)]
struct Note {
    recipe: AtomicU64,
    place: AtomicU64,
}

/// The payload's position in its frame, and its range among the notes' rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    start: u16,
    len: u16,
    from: u16,
    count: u16,
}

impl Place {
    const fn word(self) -> u64 {
        let Place { start, len, from, count } = self;
        // A length is never 0, so the word is never 0.
        (start as u64) << 48 | (len as u64) << 32 | (from as u64) << 16 | count as u64
    }

    const fn from_word(w: u64) -> Place {
        Place { start: (w >> 48) as u16, len: (w >> 32) as u16, from: (w >> 16) as u16, count: w as u16 }
    }
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            frames: (0..FRAMES).map(|_| Note::default()).collect(),
            rules: (0..RULES).map(|_| AtomicU32::new(0)).collect(),
            used: AtomicBool::new(false),
        }
    }
}

impl Notes {
    /// Clears the notes for another piece.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(self.used.get_mut()) {
            self.frames.iter_mut().for_each(|n| *n.place.get_mut() = 0);
        }
    }
}

/// The search plan of a flow. `key` has the flow's key in its upper half, then the payload's offset in the frame, and a
/// lowest bit that marks the slot as used.
#[derive(Debug, Default)]
struct Wish {
    key: AtomicU64,
    recipe: AtomicU64,
}

/// The work that a worker offers to helpers.
#[derive(Debug)]
pub(crate) struct Board {
    pieces: ArrayQueue<Arc<Piece>>,
    /// Pieces that were removed.
    taken: AtomicU64,
    wishes: Box<[Wish]>,
}

impl Default for Board {
    fn default() -> Board {
        Board {
            pieces: ArrayQueue::new(PIECES),
            taken: AtomicU64::new(0),
            wishes: (0..WISHES).map(|_| Wish::default()).collect(),
        }
    }
}

impl Board {
    /// Adds a piece from the worker's queue. Returns whether there was room.
    pub(crate) fn show(&self, piece: &Arc<Piece>) -> bool {
        self.pieces.push(Arc::clone(piece)).is_ok()
    }

    /// Removes the pieces up to the `nth`, which the worker has reached.
    fn take_down(&self, nth: u64) {
        while self.taken.load(Ordering::Relaxed) <= nth {
            if self.take().is_none() {
                break;
            }
        }
    }

    fn take(&self) -> Option<Arc<Piece>> {
        let piece = self.pieces.pop();
        if piece.is_some() {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        piece
    }

    /// Pieces that no helper has taken.
    fn len(&self) -> usize {
        self.pieces.len()
    }

    fn wish_of(&self, key: u32) -> Option<&Wish> {
        // The lowest bit of a key is the direction, and the flow's hash is above it.
        self.wishes.get((key ^ key >> 9) as usize % WISHES)
    }

    /// The search plan of a flow's packets, and the offset of their payload.
    fn wished(&self, key: u32) -> Option<(usize, SearchPlan)> {
        let wish = self.wish_of(key)?;
        let word = wish.key.load(Ordering::Acquire);
        let here = word >> 32 == u64::from(key) && word & 1 == 1;
        here.then(|| ((word >> 1 & 0xffff) as usize, SearchPlan::from_word(wish.recipe.load(Ordering::Relaxed))))
    }

    fn wish(&self, key: u32, start: u16, recipe: SearchPlan) {
        let Some(wish) = self.wish_of(key) else { return };
        let word = u64::from(key) << 32 | u64::from(start) << 1 | 1;
        // A helper that reads only one of the two new values makes a search that the owner does not use.
        if wish.recipe.load(Ordering::Relaxed) != recipe.word() {
            wish.recipe.store(recipe.word(), Ordering::Relaxed);
        }
        if wish.key.load(Ordering::Relaxed) != word {
            wish.key.store(word, Ordering::Release);
        }
    }
}

/// A worker's access to the helpers' results for the current frame.
#[derive(Debug)]
pub(crate) struct Helped {
    board: Arc<Board>,
    piece: RefCell<Option<Arc<Piece>>>,
    nth: Cell<usize>,
    /// Searches by helpers that this worker used.
    taken_over: Cell<u64>,
}

impl Helped {
    pub(crate) fn new(board: Arc<Board>) -> Helped {
        Helped { board, piece: RefCell::default(), nth: Cell::new(0), taken_over: Cell::new(0) }
    }

    /// Starts with a piece.
    pub(crate) fn begin(&self, piece: &Arc<Piece>) {
        if let Some(nth) = piece.shown {
            self.board.take_down(nth);
            *self.piece.borrow_mut() = Some(Arc::clone(piece));
        }
    }

    /// Starts with the piece's `nth` frame.
    #[inline]
    pub(crate) fn at(&self, nth: usize) {
        self.nth.set(nth);
    }

    pub(crate) fn end(&self) {
        *self.piece.borrow_mut() = None;
    }

    /// Searches by helpers that this worker used.
    pub(crate) fn taken_over(&self) -> u64 {
        self.taken_over.get()
    }
}

impl SearchedAhead for Helped {
    fn found(&self, recipe: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool {
        let piece = self.piece.borrow();
        let Some(piece) = &*piece else { return false };
        let Some((key, frame)) = piece.at(self.nth.get()) else { return false };
        // The payload's offset in the frame. A reassembled or rewritten payload is not in the frame.
        let Some(start) = payload.as_ptr().addr().checked_sub(frame.as_ptr().addr()) else { return false };
        let (Ok(start), Ok(len)) = (u16::try_from(start), u16::try_from(payload.len())) else { return false };
        if usize::from(start) + payload.len() > frame.len() || key == 0 {
            return false;
        }
        if let Some(notes) = &piece.notes
            && let Some(note) = notes.frames.get(self.nth.get())
        {
            let word = note.place.load(Ordering::Acquire);
            let place = Place::from_word(word);
            if word != 0
                && (place.start, place.len) == (start, len)
                && note.recipe.load(Ordering::Relaxed) == recipe.word()
            {
                let from = usize::from(place.from);
                let rules = notes.rules.get(from..from + usize::from(place.count)).unwrap_or_default();
                out.extend(rules.iter().map(|r| r.load(Ordering::Relaxed)));
                self.taken_over.set(self.taken_over.get() + 1);
                return true;
            }
        }
        self.board.wish(key, start, recipe);
        false
    }
}

/// The workers that help each other.
pub(crate) trait Team: Send + Sync {
    /// The board of each worker; empty if the workers do not help each other.
    fn boards(&self) -> &[Arc<Board>];

    /// The number of the frame that a worker inspects.
    fn at(&self, worker: usize) -> u64;

    /// Wakes an idle worker, if one sleeps until there is work.
    fn wake_one(&self);
}

/// Helps other workers.
pub(crate) struct Helper {
    team: Arc<dyn Team>,
    me: usize,
    searcher: Option<Searcher>,
    out: Vec<u32>,
    /// Payloads that it searched.
    pub(crate) looked_through: u64,
}

impl Helper {
    /// The helper of worker `me`, which has no rules yet.
    pub(crate) fn new(team: Arc<dyn Team>, me: usize) -> Helper {
        Helper { team, me, searcher: None, out: Vec::new(), looked_through: 0 }
    }

    /// Helps workers with these rules.
    pub(crate) fn rules(&mut self, detect: &Arc<Detect>) {
        if self.team.boards().is_empty() || self.has(detect) {
            return;
        }
        self.searcher = Searcher::new(detect)
            .inspect_err(|e| warning!("runmodes", "worker {} cannot help others: {e}", self.me + 1))
            .ok();
    }

    /// Drops its rules unless they are these: a reload replaced them, and their memory is to be freed.
    pub(crate) fn keep_only(&mut self, detect: Option<&Arc<Detect>>) {
        if !detect.is_some_and(|d| self.has(d)) {
            self.searcher = None;
        }
    }

    fn has(&self, detect: &Arc<Detect>) -> bool {
        self.searcher.as_ref().is_some_and(|s| Arc::ptr_eq(s.rules(), detect))
    }

    /// Searches a piece of the worker with the most waiting pieces. Returns `false` if there is no piece, or it cannot help.
    /// `needed` says whether the helper has work of its own.
    pub(crate) fn help(&mut self, needed: impl Fn() -> bool) -> bool {
        let Helper { team, me, searcher: Some(searcher), out, looked_through } = self else { return false };
        let others = team.boards().iter().enumerate().filter(|(n, _)| n != me);
        let Some((owner, board)) = others.max_by_key(|(_, b)| b.len()) else { return false };
        let Some(piece) = board.take() else { return false };
        if board.len() > 0 {
            // There is work for another idle worker, too.
            team.wake_one();
        }
        let Some(notes) = &piece.notes else { return true };
        let mut used = 0usize;
        for (nth, (note, spot)) in notes.frames.iter().zip(&piece.spots).enumerate() {
            if needed() {
                break;
            }
            if spot.key == 0 || spot.len < FRAME_MIN {
                continue;
            }
            let Some((start, recipe)) = board.wished(spot.key) else { continue };
            let Some((_, frame)) = piece.at(nth) else { continue };
            let Some(payload) = frame.get(start..) else { continue };
            let (Ok(start), Ok(len @ 1..)) = (u16::try_from(start), u16::try_from(payload.len())) else { continue };
            if team.at(owner).saturating_add(CLOSE) > piece.number(spot) {
                break;
            }
            out.clear();
            if !searcher.search(recipe, payload, out) {
                break;
            }
            *looked_through += 1;
            let Some(room) = notes.rules.get(used..used + out.len()) else { continue };
            room.iter().zip(&*out).for_each(|(r, n)| r.store(*n, Ordering::Relaxed));
            let place = Place { start, len, from: used as u16, count: out.len() as u16 };
            used += out.len();
            notes.used.store(true, Ordering::Relaxed);
            note.recipe.store(recipe.word(), Ordering::Relaxed);
            note.place.store(place.word(), Ordering::Release);
        }
        true
    }
}
