//! `autofp-scheduler: adaptive`: who has nothing to do looks through what waits for others.
//!
//! Flows go to workers by their hash. Where one flow is most of the load, its worker is behind and the others have nothing to do.
//! What costs is the search for patterns in payloads, and that depends on nothing but the bytes and the rules that are asked for
//! (`margay_detect::SearchPlan`); all else about a packet depends on those before it. So a worker without work takes a piece from
//! another's [`Board`], looks through the payloads of its frames, and writes what it found beside them ([`Notes`]). The owner
//! decodes, tracks and reassembles every packet in order, as ever; where it comes to the search and somebody made it, it
//! takes over what was found.
//!
//! - *What to look for* stands on the board by flow and direction: what the last packet of those asked for, and where in its frame its
//!   payload began. The helper believes it, the owner does not: what was found counts only where it was found in the very bytes
//!   the packet has, for the very recipe that it asks for.
//! - *Nobody waits.* The owner takes what it finds; what is not there yet it looks for itself. A helper that the owner catches up
//!   with leaves the piece, and takes the next one. So no state of a flow moves, nothing is done out of order, and a wrong guess costs
//!   the helper's time alone. There is nothing that could deadlock: the only thing that is shared is a queue without locks.
//! - *It costs nothing where flows are many*: then nobody is without work. The owner looks at one word a frame, and writes to the
//!   board where a flow asks for something else than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use margay_detect::{Detect, SearchPlan, SearchedAhead, Searcher};
use margay_output::warning;

use super::feeder::Shared;
use super::piece::Piece;

/// Frames of a piece that notes have room for.
const FRAMES: usize = 256;
/// Candidates that all notes of a piece have room for.
const RULES: usize = 1024;
/// Flows, by direction, whose wishes a board shows; those that fall to the same place take turns.
const WISHES: usize = 512;
/// Pieces that a board has room for: more than a queue.
const PIECES: usize = 64;
/// Shorter frames are not worth it.
const FRAME_MIN: u32 = 256;
/// A helper this close before the owner leaves the piece.
const CLOSE: u64 = 4;

/// What was found in the frames of one piece.
#[derive(Debug)]
pub(super) struct Notes {
    frames: Box<[Note]>,
    rules: Box<[AtomicU32]>,
    /// Somebody wrote something here.
    used: AtomicBool,
}

/// What was found in one frame. `place` is written last, and 0 where nothing is.
#[derive(Debug, Default)]
struct Note {
    recipe: AtomicU64,
    place: AtomicU64,
}

/// Where the payload is in its frame, and what was found among the notes' rules.
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
        // A length is never 0, and so is no word.
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
    /// Fit for another piece.
    pub(super) fn clear(&mut self) {
        if std::mem::take(self.used.get_mut()) {
            self.frames.iter_mut().for_each(|n| *n.place.get_mut() = 0);
        }
    }
}

/// A wish: `key` is the flow's, shifted, with where the payload begins.
#[derive(Debug, Default)]
struct Wish {
    key: AtomicU64,
    recipe: AtomicU64,
}

/// What one worker has others help with.
#[derive(Debug)]
pub(super) struct Board {
    pieces: ArrayQueue<Arc<Piece>>,
    /// Pieces that were taken down.
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
    /// Shows a piece that its worker was handed; whether there was room.
    pub(super) fn show(&self, piece: &Arc<Piece>) -> bool {
        self.pieces.push(Arc::clone(piece)).is_ok()
    }

    /// Takes down what is shown up to the `nth` piece: its worker is there.
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

    /// Pieces that nobody has looked at.
    fn len(&self) -> usize {
        self.pieces.len()
    }

    fn wish_of(&self, key: u32) -> Option<&Wish> {
        // Which of a flow's directions it is stands in the lowest bit, the flow's hash above.
        self.wishes.get((key ^ key >> 9) as usize % WISHES)
    }

    /// What the packets of a flow are to be looked through for, and where their payload begins.
    fn wished(&self, key: u32) -> Option<(usize, SearchPlan)> {
        let wish = self.wish_of(key)?;
        let word = wish.key.load(Ordering::Acquire);
        let here = word >> 32 == u64::from(key) && word & 1 == 1;
        here.then(|| ((word >> 1 & 0xffff) as usize, SearchPlan::from_word(wish.recipe.load(Ordering::Relaxed))))
    }

    fn wish(&self, key: u32, start: u16, recipe: SearchPlan) {
        let Some(wish) = self.wish_of(key) else { return };
        let word = u64::from(key) << 32 | u64::from(start) << 1 | 1;
        // Whoever reads the one and not yet the other looks for something that is not asked for.
        if wish.recipe.load(Ordering::Relaxed) != recipe.word() {
            wish.recipe.store(recipe.word(), Ordering::Relaxed);
        }
        if wish.key.load(Ordering::Relaxed) != word {
            wish.key.store(word, Ordering::Release);
        }
    }
}

/// What a worker has of the others' help, for the frame at hand.
#[derive(Debug)]
pub(crate) struct Helped {
    board: Arc<Board>,
    piece: Option<Arc<Piece>>,
    nth: usize,
    /// Payloads that others had looked through.
    taken_over: std::cell::Cell<u64>,
}

impl Helped {
    pub(super) fn new(board: Arc<Board>) -> Helped {
        Helped { board, piece: None, nth: 0, taken_over: std::cell::Cell::new(0) }
    }

    /// This piece is inspected from here on.
    pub(super) fn begin(&mut self, piece: &Arc<Piece>) {
        if let Some(nth) = piece.shown {
            self.board.take_down(nth);
            self.piece = Some(Arc::clone(piece));
        }
    }

    /// Its `nth` frame is.
    #[inline]
    pub(super) const fn at(&mut self, nth: usize) {
        self.nth = nth;
    }

    pub(super) fn end(&mut self) {
        self.piece = None;
    }

    /// Payloads that others had looked through.
    pub(super) const fn taken_over(&self) -> u64 {
        self.taken_over.get()
    }
}

impl SearchedAhead for Helped {
    fn found(&self, recipe: SearchPlan, payload: &[u8], out: &mut Vec<u32>) -> bool {
        let Some(piece) = &self.piece else { return false };
        let Some((key, frame)) = piece.at(self.nth) else { return false };
        // Where it is in the frame: what was put together from several, or rewritten, is not.
        let Some(start) = payload.as_ptr().addr().checked_sub(frame.as_ptr().addr()) else { return false };
        let (Ok(start), Ok(len)) = (u16::try_from(start), u16::try_from(payload.len())) else { return false };
        if usize::from(start) + payload.len() > frame.len() || key == 0 {
            return false;
        }
        if let Some(notes) = &piece.notes
            && let Some(note) = notes.frames.get(self.nth)
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

/// Helps others.
pub(super) struct Helper {
    shared: Arc<Shared>,
    me: usize,
    searcher: Option<Searcher>,
    out: Vec<u32>,
    /// Payloads that it looked through.
    pub(super) looked_through: u64,
}

impl Helper {
    /// Of worker `me`, which has no rules yet.
    pub(super) fn new(shared: &Arc<Shared>, me: usize) -> Helper {
        Helper { shared: Arc::clone(shared), me, searcher: None, out: Vec::new(), looked_through: 0 }
    }

    /// Helps those that have these rules.
    pub(super) fn rules(&mut self, detect: &Arc<Detect>) {
        if self.shared.boards.is_empty() || self.searcher.as_ref().is_some_and(|s| Arc::ptr_eq(s.rules(), detect)) {
            return;
        }
        self.searcher = Searcher::new(detect)
            .inspect_err(|e| warning!("runmodes", "autofp: worker {} cannot help others: {e}", self.me + 1))
            .ok();
    }

    /// Looks through a piece of who has most waiting; `false` where nobody has one, or one cannot help. `needed` says whether there is
    /// something of one's own to do.
    pub(super) fn help(&mut self, needed: impl Fn() -> bool) -> bool {
        let Helper { shared, me, searcher: Some(searcher), out, looked_through } = self else { return false };
        let at = |n: usize| shared.loads.get(n).map_or(0, |l| l.at.load(Ordering::Relaxed));
        let others = shared.boards.iter().enumerate().filter(|(n, _)| n != me);
        let Some((owner, board)) = others.max_by_key(|(_, b)| b.len()) else { return false };
        let Some(piece) = board.take() else { return false };
        if board.len() > 0 {
            // There is something for another one without work, too.
            shared.turns.wake_one();
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
            if at(owner).saturating_add(CLOSE) > piece.number(spot) {
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
