//! Compressed bodies: gzip, deflate, LZMA, Brotli, in layers, as lying servers send them and lenient browsers read them.

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
    /// Memory that LZMA may use, in bytes (`lzma-memlimit`); 0 turns LZMA off.
    pub lzma_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { bomb: 1 << 20, lzma_memory: 1 << 20 }
    }
}

/// What came of decompressing a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All is well.
    Ok,
    /// The data is not what it was said to be; it is passed on as it is from here on.
    Broken,
    /// The limit of expansion was reached; nothing more comes out.
    Bomb,
    /// LZMA asked for more memory than it may have; it is passed on as it is.
    Memory,
}

/// Decoders one behind the other, the outermost coding first.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// A decoder for codings in the order in which they are to be undone.
    pub fn new(_codings: &[Coding], _limits: Limits) -> Decoder {
        Decoder {}
    }

    /// Decodes a piece; what comes out is handed to `sink` in pieces of bounded size.
    pub fn push(&mut self, input: &[u8], sink: &mut dyn FnMut(&[u8])) -> Status {
        sink(input);
        Status::Ok
    }

    /// The body is at its end: what is left inside comes out.
    pub fn finish(&mut self, _sink: &mut dyn FnMut(&[u8])) -> Status {
        Status::Ok
    }
}
