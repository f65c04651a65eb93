//! Compressed bodies: gzip, deflate, LZMA and Brotli, in layers, with the wrong declarations of servers and the leniency of
//! browsers.
//!
//! A [`Decoder`] has a layer for each coding, outermost first. The output of one layer is immediately the input of the next. A
//! layer buffers only data that it may have to pass on unchanged:
//!
//! - Until it has output, a layer keeps its input, up to 128 KiB. If the data does not match the declared coding, it tries
//!   another one (the first bytes distinguish gzip, zlib and raw deflate for `gzip` and `deflate`). If none fits, it passes the
//!   data on unchanged.
//! - If the data is damaged after some output, the output counts and the rest is dropped. Data after the end of the compressed
//!   data is dropped too; for gzip, that is the end of the last member.
//! - Wrong checksums, lengths and reserved flags are reported ([`Status::Broken`]) and change nothing.
//!
//! The output of each layer counts towards [`Limits`]: if any layer expands too much, decoding of the body ends. The decoder
//! never reads a clock: `decompression-time-limit` is converted to a number of bytes ([`Limits::work_of_time`]). Once the sink
//! wants no more output, decoding stops.

mod brotli;
mod codings;
mod flate;
pub(crate) mod inflating;
mod lzma;
pub mod swf;
#[cfg(test)]
mod tests;

pub use codings::{Codings, codings};

use std::ops::Range;

use brotli::Brotli;
use flate::Flate;
use lzma::Lzma;

/// The largest piece of output, in bytes.
pub const SCRATCH: usize = 16 << 10;

/// The limit of input that a layer keeps before its first output.
const HOLD: usize = 128 << 10;

/// The expansion ratio from which a body may be a bomb.
pub const BOMB_RATIO: u64 = 2048;

/// The limit of layers in a [`Decoder`].
pub const MAX_LAYERS: usize = 8;

/// A content coding.
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
    /// The output above which a body counts as a bomb if it also exceeds 2,048 times its input (`compression-bomb-limit`).
    pub bomb: u64,
    /// The memory limit of LZMA's dictionary, in bytes (`lzma-memlimit`); 0 turns LZMA off.
    pub lzma_memory: u64,
    /// The limit of a body's output from all layers, where Brotli counts twice and LZMA four times (`decompression-time-limit`,
    /// see [`Limits::work_of_time`]); 0 for none.
    pub work: u64,
}

impl Limits {
    /// Converts a `decompression-time-limit` in microseconds to bytes: 512 for each, about the speed of inflating.
    pub const fn work_of_time(microseconds: u64) -> u64 {
        microseconds.saturating_mul(512)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bomb: 1 << 20, lzma_memory: 1 << 20, work: Limits::work_of_time(100_000) }
    }
}

/// The result of decompressing a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// No error.
    Ok,
    /// The data does not match the declaration, or is damaged. Only the call that finds it reports it.
    Broken,
    /// The expansion limit was reached, and no more output follows. Every later call reports it.
    Bomb,
    /// LZMA needs more memory than its limit: the data is passed on unchanged if there was no output, otherwise dropped.
    /// Reported once.
    Memory,
}

impl Status {
    /// The more severe of two.
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

/// The result of a layer's step.
enum Step {
    /// All input was consumed.
    NeedInput,
    /// There is more to do; `lied` reports a harmless error.
    Again { lied: bool },
    /// The format is certain although there was no output; `lied` as for [`Step::Again`].
    Sure { lied: bool },
    /// The layer has determined the format and needs all data again.
    Restart { lied: bool },
    /// A piece of output.
    Output(Piece),
    /// The end of the compressed data.
    End { lied: bool },
    /// The data is invalid, and this step gave no output.
    Failed,
    /// LZMA's memory limit is too low.
    Memory,
}

/// The output of a step.
struct Piece {
    /// Its range in the layer's scratch buffer.
    range: Range<usize>,
    /// Its cost towards [`Limits::work`].
    cost: usize,
    /// The error after it.
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
    /// No output yet: the input is kept.
    Holding,
    /// There was output.
    Decoding,
    /// Pass data on unchanged.
    Raw,
    /// Drop data.
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

/// State that the layers of a decoder share.
#[derive(Debug, Default)]
struct Account {
    limits: Limits,
    /// Input bytes of the body.
    input: u64,
    work: u64,
    bomb: bool,
    /// The sink wants no more output.
    unwanted: bool,
    status: Option<Status>,
}

impl Account {
    /// Whether decoding has ended.
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

/// Receives output, and returns whether it wants more.
type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Passes `data` through the layers to the sink.
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
            // Usually the first piece already gives output, and nothing is copied.
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

    /// Stops keeping input at the limit. If that much data decodes to nothing (a long name in a header, empty blocks) without
    /// an error, its format is certain and it need not be passed on unchanged.
    fn limit_hold(&mut self, account: &mut Account) {
        if self.hold.len() > HOLD {
            account.say(Status::Broken);
            self.mode = Mode::Decoding;
            self.hold = Vec::new();
        }
    }

    /// Decodes `all` from `from` on. Before the first output, `all` is the whole input. Returns whether it has to be kept.
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

    /// Counts a piece of output and passes it on.
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

/// A chain of decoders, the outermost coding first.
#[derive(Debug, Default)]
pub struct Decoder {
    layers: Vec<Layer>,
    account: Account,
}

impl Decoder {
    /// A decoder for codings in the order of decoding; those after the first [`MAX_LAYERS`] are ignored.
    pub fn new(codings: &[Coding], limits: Limits) -> Decoder {
        let on = |c: &&Coding| **c != Coding::Lzma || limits.lzma_memory > 0;
        let layers = codings.iter().filter(on).take(MAX_LAYERS).map(|&c| Layer::new(c, limits)).collect();
        Decoder { layers, account: Account { limits, ..Account::default() } }
    }

    /// From now on, no checksum of gzip is computed, since nobody uses [`Status::Broken`] for a wrong one.
    pub fn spare_checksums(&mut self) {
        for layer in &mut self.layers {
            if let Engine::Flate(flate) = &mut layer.engine {
                flate.spare_checksums();
            }
        }
    }

    /// Allocated memory in bytes.
    pub fn memory(&self) -> usize {
        let layer = |l: &Layer| size_of::<Layer>() + SCRATCH + l.hold.capacity() + l.engine.memory();
        self.layers.iter().map(layer).sum()
    }

    /// Decodes a piece. `sink` receives output in pieces of at most [`SCRATCH`] bytes, until it wants no more: then decoding
    /// stops, for this piece and for all that follow.
    pub fn push(&mut self, input: &[u8], sink: &mut dyn FnMut(&[u8]) -> bool) -> Status {
        self.account.input = self.account.input.saturating_add(input.len() as u64);
        feed(&mut self.layers, &mut self.account, input, sink);
        self.status()
    }

    /// Ends the body, and returns the remaining output.
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
