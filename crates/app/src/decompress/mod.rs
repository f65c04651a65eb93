//! Compressed bodies: gzip, deflate, LZMA, Brotli, in layers, as lying servers send them and lenient browsers read them.
//!
//! A [`Decoder`] has a layer for each coding, outermost first, and what one gives is at once the next one's input. Nothing
//! is gathered but what a layer may have to hand on untouched:
//!
//! - As long as nothing was decoded, a layer keeps its input, 128 KiB at most. When it then turns out not to be what it
//!   was said to be, another idea is tried (`gzip` and `deflate` are told apart by their first bytes: gzip, zlib, bare
//!   deflate), and when none is left all of it is passed on as it is.
//! - When the data is damaged behind something that was decoded, that counts, and what follows is dropped. So is what is
//!   behind the end of the compressed data; of gzip that is behind the last of its members.
//! - Wrong checksums, lengths and reserved flags are told ([`Status::Broken`]), and change nothing.
//!
//! Every layer's output is counted against [`Limits`]: one that grows too much ends the decoding of the body, whichever
//! layer it is. A clock is never read: `decompression-time-limit` is a number of bytes ([`Limits::work_of_time`]). Where nobody wants
//! what comes out any more, nothing more is decoded.

mod brotli;
mod codings;
mod flate;
mod lzma;
pub mod swf;
#[cfg(test)]
mod tests;

pub use codings::{Codings, codings};

use std::ops::Range;

use brotli::Brotli;
use flate::Flate;
use lzma::Lzma;

/// Largest piece that a layer gives at a time, in bytes.
pub const SCRATCH: usize = 16 << 10;

/// Most input that a layer keeps while nothing was decoded.
const HOLD: usize = 128 << 10;

/// Output for each byte of input from which on a body may be a bomb.
pub const BOMB_RATIO: u64 = 2048;

/// Most layers of a [`Decoder`].
pub const MAX_LAYERS: usize = 8;

/// A coding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip` (RFC 1952).
    Gzip,
    /// `deflate`, `x-deflate` (RFC 1950; in practice often RFC 1951).
    Deflate,
    /// `lzma`: the LZMA-alone format.
    Lzma,
    /// `br` (RFC 7932).
    Brotli,
}

/// Limits of decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of output after which a body counts as a bomb if it also is more than 2,048 times its input
    /// (`compression-bomb-limit`).
    pub bomb: u64,
    /// Memory that LZMA may use for its dictionary, in bytes (`lzma-memlimit`); 0 turns LZMA off.
    pub lzma_memory: u64,
    /// Bytes of output of all layers of a body together, those of Brotli counted twice and those of LZMA four times, after
    /// which nothing more is decoded (`decompression-time-limit`, see [`Limits::work_of_time`]); 0 for no limit.
    pub work: u64,
}

impl Limits {
    /// The bytes that stand for a `decompression-time-limit` in microseconds: 512 for each, about what inflating takes.
    pub const fn work_of_time(microseconds: u64) -> u64 {
        microseconds.saturating_mul(512)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bomb: 1 << 20, lzma_memory: 1 << 20, work: Limits::work_of_time(100_000) }
    }
}

/// What came of decompressing a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All is well.
    Ok,
    /// The data is not what it was said to be, or damaged. Said once, by the call that found it.
    Broken,
    /// The limit of expansion was reached; nothing more comes out. Said by every call from then on.
    Bomb,
    /// LZMA needs more memory than it may have: passed on as it is if nothing was decoded yet, else dropped. Said once.
    Memory,
}

impl Status {
    /// The worse of two.
    #[must_use]
    pub fn worse(self, other: Status) -> Status {
        let rank = |s| match s {
            Status::Ok => 0,
            Status::Broken => 1,
            Status::Memory => 2,
            Status::Bomb => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

/// What came of a step of a layer.
enum Step {
    /// All input is used up.
    NeedInput,
    /// There is more to do; `lied` where something was wrong that does not matter.
    Again { lied: bool },
    /// The data is what it was taken for, though nothing came out; `lied` as of [`Step::Again`].
    Sure { lied: bool },
    /// The layer knows now how to read the data: all of it is to be given again.
    Restart { lied: bool },
    /// A piece of output.
    Output(Piece),
    /// The end of the compressed data.
    End { lied: bool },
    /// It cannot be read, and nothing came out in this step.
    Failed,
    /// LZMA's memory is not enough.
    Memory,
}

/// Output of a step.
struct Piece {
    /// Where in the layer's scratch memory.
    range: Range<usize>,
    /// What it counts against [`Limits::work`].
    cost: usize,
    /// What is wrong behind it.
    failed: Option<Status>,
}

#[derive(Debug)]
enum Engine {
    Flate(Flate),
    Lzma(Lzma),
    Brotli(Brotli),
}

impl Engine {
    fn step(&mut self, input: &mut &[u8], scratch: &mut [u8; SCRATCH]) -> Step {
        match self {
            Engine::Flate(e) => e.step(input, scratch),
            Engine::Lzma(e) => e.step(input, scratch),
            Engine::Brotli(e) => e.step(input, scratch),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Engine::Flate(e) => e.memory(),
            Engine::Lzma(e) => e.memory(),
            Engine::Brotli(e) => e.memory(),
        }
    }

    fn retry(&mut self) -> bool {
        match self {
            Engine::Flate(e) => e.retry(),
            Engine::Lzma(_) | Engine::Brotli(_) => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing came out yet: the input is kept.
    Holding,
    /// Something did.
    Decoding,
    /// As it is.
    Raw,
    /// Not at all.
    Dropping,
}

#[derive(Debug)]
struct Layer {
    engine: Engine,
    mode: Mode,
    hold: Vec<u8>,
    out: u64,
    scratch: Box<[u8; SCRATCH]>,
}

/// What the layers of a decoder share.
#[derive(Debug, Default)]
struct Account {
    limits: Limits,
    /// Bytes of the body.
    input: u64,
    work: u64,
    bomb: bool,
    /// Nobody wants what comes out.
    unwanted: bool,
    status: Option<Status>,
}

impl Account {
    /// Nothing more is decoded.
    const fn is_over(&self) -> bool {
        self.bomb || self.unwanted
    }

    fn say(&mut self, status: Status) {
        self.status = Some(self.status.unwrap_or(Status::Ok).worse(status));
    }

    fn lied(&mut self, lied: bool) {
        if lied {
            self.say(Status::Broken);
        }
    }
}

/// Takes what comes out, and says whether more of it is wanted.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Hands `data` through layers to the sink.
fn feed(layers: &mut [Layer], account: &mut Account, data: &[u8], sink: Sink<'_>) {
    match layers.split_first_mut() {
        _ if data.is_empty() || account.is_over() => (),
        None => account.unwanted = !data.chunks(SCRATCH).all(&mut *sink),
        Some((layer, rest)) => layer.feed(rest, account, data, sink),
    }
}

impl Layer {
    fn new(coding: Coding, limits: Limits) -> Layer {
        let engine = match coding {
            Coding::Gzip | Coding::Deflate => Engine::Flate(Flate::new(coding)),
            Coding::Lzma => Engine::Lzma(Lzma::new(limits.lzma_memory)),
            Coding::Brotli => Engine::Brotli(Brotli::new()),
        };
        Layer { engine, mode: Mode::Holding, hold: Vec::new(), out: 0, scratch: Box::new([0; SCRATCH]) }
    }

    fn feed(&mut self, rest: &mut [Layer], account: &mut Account, data: &[u8], sink: Sink<'_>) {
        match self.mode {
            Mode::Raw => feed(rest, account, data, sink),
            Mode::Dropping => (),
            Mode::Decoding => {
                self.run(rest, account, data, 0, sink);
            }
            // The usual body gives something with its first piece: then nothing is copied.
            Mode::Holding if self.hold.is_empty() => {
                if self.run(rest, account, data, 0, sink) {
                    self.hold.extend_from_slice(data);
                    self.limit_hold(account);
                }
            }
            Mode::Holding => {
                let mut hold = std::mem::take(&mut self.hold);
                let from = hold.len();
                hold.extend_from_slice(data);
                if self.run(rest, account, &hold, from, sink) {
                    self.hold = hold;
                    self.limit_hold(account);
                }
            }
        }
    }

    /// Keeps no more input where there is too much of it. So much that decodes to nothing (a long name in a header, empty
    /// blocks) and is still no error, is what it was taken for: there is nothing to pass on as it is.
    fn limit_hold(&mut self, account: &mut Account) {
        if self.hold.len() > HOLD {
            account.say(Status::Broken);
            self.mode = Mode::Decoding;
            self.hold = Vec::new();
        }
    }

    /// Decodes what is in `all` from `from` on; while nothing came out yet, `all` is the input since the beginning. Returns
    /// whether it has to be kept.
    fn run(&mut self, rest: &mut [Layer], account: &mut Account, all: &[u8], from: usize, sink: Sink<'_>) -> bool {
        let mut input = all.get(from..).unwrap_or(&[]);
        while !account.is_over() {
            let (give_up, status) = match self.engine.step(&mut input, &mut self.scratch) {
                Step::NeedInput => return self.mode == Mode::Holding,
                Step::Again { lied } => {
                    account.lied(lied);
                    continue;
                }
                Step::Sure { lied } => {
                    account.lied(lied);
                    self.mode = Mode::Decoding;
                    continue;
                }
                Step::Restart { lied } => {
                    account.lied(lied);
                    input = all;
                    continue;
                }
                Step::End { lied } => {
                    account.lied(lied);
                    self.mode = Mode::Dropping;
                    return false;
                }
                Step::Output(piece) => {
                    self.mode = Mode::Decoding;
                    self.give(rest, account, piece.range, piece.cost, sink);
                    if let Some(status) = piece.failed {
                        account.say(status);
                        self.mode = Mode::Dropping;
                        return false;
                    }
                    continue;
                }
                Step::Failed if self.mode == Mode::Holding && self.engine.retry() => {
                    account.say(Status::Broken);
                    input = all;
                    continue;
                }
                Step::Failed => (self.mode, Status::Broken),
                Step::Memory => (self.mode, Status::Memory),
            };
            account.say(status);
            if give_up == Mode::Holding {
                self.mode = Mode::Raw;
                feed(rest, account, all, sink);
            } else {
                self.mode = Mode::Dropping;
            }
            return false;
        }
        false
    }

    /// Counts a piece of output and hands it on.
    fn give(&mut self, rest: &mut [Layer], account: &mut Account, range: Range<usize>, cost: usize, sink: Sink<'_>) {
        let piece = self.scratch.get(range).unwrap_or(&[]);
        self.out = self.out.saturating_add(piece.len() as u64);
        account.work = account.work.saturating_add(cost as u64);
        feed(rest, account, piece, sink);
        let limits = account.limits;
        account.bomb |= self.out > limits.bomb && self.out > account.input.saturating_mul(BOMB_RATIO);
        account.bomb |= limits.work != 0 && account.work > limits.work;
    }

    fn finish(&mut self, rest: &mut [Layer], account: &mut Account, sink: Sink<'_>) {
        if account.is_over() || !matches!(self.mode, Mode::Holding | Mode::Decoding) {
            return;
        }
        let hold = std::mem::take(&mut self.hold);
        let (rest_len, header) = match &mut self.engine {
            Engine::Flate(e) => (e.rest(), e.has_header()),
            Engine::Lzma(_) => (0, false),
            Engine::Brotli(e) => {
                e.finish();
                self.run(rest, account, &hold, hold.len(), sink);
                (0, false)
            }
        };
        if self.mode != Mode::Holding {
            return;
        }
        self.mode = Mode::Dropping;
        if rest_len > 0 {
            self.give(rest, account, 0..rest_len, rest_len, sink);
        } else if !header && !hold.is_empty() {
            account.say(Status::Broken);
            feed(rest, account, &hold, sink);
        }
    }
}

/// Decoders one behind the other, the outermost coding first.
#[derive(Debug, Default)]
pub struct Decoder {
    layers: Vec<Layer>,
    account: Account,
}

impl Decoder {
    /// A decoder for codings in the order in which they are to be undone; those behind the [`MAX_LAYERS`]th are not.
    pub fn new(codings: &[Coding], limits: Limits) -> Decoder {
        let on = |c: &&Coding| **c != Coding::Lzma || limits.lzma_memory > 0;
        let layers = codings.iter().filter(on).take(MAX_LAYERS).map(|&c| Layer::new(c, limits)).collect();
        Decoder { layers, account: Account { limits, ..Account::default() } }
    }

    /// Bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        let layer = |l: &Layer| size_of::<Layer>() + SCRATCH + l.hold.capacity() + l.engine.memory();
        self.layers.iter().map(layer).sum()
    }

    /// Decodes a piece; what comes out is handed to `sink` in pieces of at most [`SCRATCH`] bytes, until it says that it wants no
    /// more: then nothing is decoded any more, of this piece and of those that follow.
    pub fn push(&mut self, input: &[u8], sink: &mut dyn FnMut(&[u8]) -> bool) -> Status {
        self.account.input = self.account.input.saturating_add(input.len() as u64);
        feed(&mut self.layers, &mut self.account, input, sink);
        self.status()
    }

    /// The body is at its end: what is left inside comes out.
    pub fn finish(&mut self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Status {
        let mut layers = &mut self.layers[..];
        while let Some((layer, rest)) = layers.split_first_mut() {
            layer.finish(rest, &mut self.account, sink);
            layers = rest;
        }
        self.status()
    }

    fn status(&mut self) -> Status {
        let status = self.account.status.take().unwrap_or(Status::Ok);
        if !self.account.bomb {
            return status;
        }
        for layer in &mut self.layers {
            layer.hold = Vec::new();
        }
        Status::Bomb
    }
}
