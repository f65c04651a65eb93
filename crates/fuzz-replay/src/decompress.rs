//! Targets for the decoders of compressed bodies.

use margay_app::decompress::swf::{self, Swf};
use margay_app::decompress::{Coding, Decoder, Limits, SCRATCH, Status, codings};
use margay_app::http1::SwfConfig;

const LIMITS: Limits = Limits { bomb: 64 << 10, lzma_memory: 64 << 10, work: 1 << 20 };

/// Decodes in pieces of `size`. Returns the output and the worst status.
fn run(list: &[Coding], data: &[u8], size: usize) -> (Vec<u8>, Status) {
    let mut out = Vec::new();
    let mut sink = |piece: &[u8]| {
        assert!(!piece.is_empty() && piece.len() <= SCRATCH, "a piece of {} bytes", piece.len());
        out.extend_from_slice(piece);
        true
    };
    let mut decoder = Decoder::new(list, LIMITS);
    let mut status = Status::Ok;
    for piece in data.chunks(size.max(1)) {
        status = status.worse(decoder.push(piece, &mut sink));
    }
    status = status.worse(decoder.finish(&mut sink));
    (out, status)
}

/// Checks that the output is bounded, and the same whole and in pieces.
fn check(list: &[Coding], data: &[u8], size: usize) {
    let (whole, status) = run(list, data, usize::MAX);
    let most = LIMITS.work + (data.len() + 4 * SCRATCH) as u64;
    assert!(whole.len() as u64 <= most, "{} bytes of {}", whole.len(), data.len());
    let (split, other) = run(list, data, size);
    if status == Status::Bomb || other == Status::Bomb {
        // The exact place at which a bomb is cut depends on the pieces.
        let n = whole.len().min(split.len());
        assert!(whole.get(..n) == split.get(..n), "different before a bomb's end");
    } else {
        assert_eq!((whole.len(), status), (split.len(), other), "in pieces of {size}");
        assert!(whole == split, "different in pieces of {size}");
    }
}

fn one(coding: Coding, data: &[u8]) {
    let Some((&size, data)) = data.split_first() else { return };
    check(&[coding], data, usize::from(size));
}

/// A `gzip` body; the first byte is the size of pieces.
pub fn gzip(data: &[u8]) {
    one(Coding::Gzip, data);
}

/// A `deflate` body; the first byte is the size of pieces.
pub fn deflate(data: &[u8]) {
    one(Coding::Deflate, data);
}

/// An `lzma` body; the first byte is the size of pieces.
pub fn lzma(data: &[u8]) {
    one(Coding::Lzma, data);
}

/// A `br` body; the first byte is the size of pieces.
pub fn brotli(data: &[u8]) {
    one(Coding::Brotli, data);
}

/// A `Content-Encoding` value up to the first line feed, then the size of pieces and the body. The body and its decoded form are
/// also parsed as Flash files.
pub fn layers(data: &[u8]) {
    let Some(end) = data.iter().position(|&b| b == b'\n') else { return };
    let (value, rest) = data.split_at(end);
    let [_, size, body @ ..] = rest else { return };
    let found = codings(value, 3);
    assert!(found.list.len() <= 3);
    check(&found.list, body, usize::from(*size));
    let (decoded, _) = run(&found.list, body, usize::MAX);
    let config = SwfConfig { deflate: true, lzma: true, compress_depth: 0, decompress_depth: 1 << 20 };
    let mut out = Vec::new();
    for file in [body, &decoded] {
        let result = swf::decompress(file, &config, LIMITS, &mut out);
        assert_eq!(result == Swf::Decoded, out.starts_with(b"FWS"));
        assert!(out.len() <= 1 << 20);
    }
}
