//! Flash files as rules are to see them: `CWS` (zlib) and `ZWS` (LZMA) as the `FWS` that they were before.
//!
//! SWF File Format Specification 19, chapter 2: three bytes of signature, one of version, four of length (of the file when
//! it is not compressed, little endian). `CWS` is there from version 6 on, `ZWS` from version 13 on; in a `ZWS` four bytes
//! with the compressed length follow, then LZMA's five bytes of properties.

use flate2::{Decompress, FlushDecompress};
use liblzma::stream::{Action, Error, Status, Stream};

use super::Limits;
use crate::http1::SwfConfig;

const HEADER: usize = 8;
const ZWS_HEADER: usize = 17;

/// Most bytes that come of a file, whatever it says and however much is allowed.
pub const MAX_OUTPUT: usize = 4 << 20;

/// What a window of data came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swf {
    /// No compressed Flash file, or of a kind that is not to be decompressed.
    Not,
    /// It was decompressed, as far as it is there and limits allow.
    Decoded,
    /// Its version knows no such compression.
    InvalidVersion,
    /// There is not even a header.
    InvalidLength,
    /// It is damaged.
    Broken,
    /// LZMA needs more memory than it may have.
    Memory,
}

/// Whether data begins like a compressed Flash file.
pub fn is_compressed(data: &[u8]) -> bool {
    matches!(data, [b'C' | b'Z', b'W', b'S', ..])
}

/// Decompresses a Flash file of which `data` is the beginning. With [`Swf::Decoded`], `out` has it uncompressed, `FWS`
/// first; in every other case `out` is empty and what is to be looked at is `data` as it is.
pub fn decompress(data: &[u8], config: &SwfConfig, limits: Limits, out: &mut Vec<u8>) -> Swf {
    out.clear();
    let (lzma, oldest) = match data {
        [b'C', b'W', b'S', ..] if config.deflate => (false, 6),
        [b'Z', b'W', b'S', ..] if config.lzma && limits.lzma_memory > 0 => (true, 13),
        _ => return Swf::Not,
    };
    let start = if lzma { ZWS_HEADER } else { HEADER };
    let (Some(&[_, _, _, version, a, b, c, d]), Some(body)) = (data.first_chunk::<HEADER>(), data.get(start..)) else {
        return Swf::InvalidLength;
    };
    if version < oldest {
        return Swf::InvalidVersion;
    }
    // Players take a length that is too small as the length without the header, and one of nothing as none.
    let declared = match u32::from_le_bytes([a, b, c, d]) {
        0 => usize::MAX,
        n => (n as usize).saturating_add(HEADER),
    };
    let depth = |n: u64| if n == 0 { usize::MAX } else { usize::try_from(n).unwrap_or(usize::MAX) };
    let most = declared.min(depth(config.decompress_depth)).clamp(HEADER, MAX_OUTPUT);
    let body = body.get(..depth(config.compress_depth).min(body.len())).unwrap_or(body);
    out.extend_from_slice(&[b'F', b'W', b'S', version, a, b, c, d]);
    let result = if lzma { unlzma(data, body, limits, most, out) } else { inflate(body, most, out) };
    if result != Swf::Decoded {
        out.clear();
    }
    result
}

/// Makes room for the next piece; `None` where `out` has all it may have.
fn grow(out: &mut Vec<u8>, most: usize) -> Option<usize> {
    let from = out.len();
    out.resize(most.min(from.saturating_add(super::SCRATCH)), 0);
    (out.len() > from).then_some(from)
}

fn inflate(body: &[u8], most: usize, out: &mut Vec<u8>) -> Swf {
    // The checksum at the end is not looked at: players do not wait for it.
    let mut rest = match body {
        [cmf, flags, rest @ ..]
            if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flags)) % 31 == 0 && flags & 0x20 == 0 =>
        {
            rest
        }
        [] | [_] => return Swf::InvalidLength,
        _ => return Swf::Broken,
    };
    let mut decoder = Decompress::new(false);
    while let Some(from) = grow(out, most) {
        let (in_before, out_before) = (decoder.total_in(), decoder.total_out());
        let result = decoder.decompress(rest, out.get_mut(from..).unwrap_or(&mut []), FlushDecompress::None);
        let (used, made) = ((decoder.total_in() - in_before) as usize, (decoder.total_out() - out_before) as usize);
        rest = rest.get(used..).unwrap_or(&[]);
        out.truncate(from + made);
        match result {
            Err(_) => return Swf::Broken,
            Ok(flate2::Status::StreamEnd) => break,
            Ok(_) if used == 0 && made == 0 => break,
            Ok(_) => (),
        }
    }
    Swf::Decoded
}

fn unlzma(data: &[u8], body: &[u8], limits: Limits, most: usize, out: &mut Vec<u8>) -> Swf {
    let Some(&[properties, a, b, c, d]) = data.get(12..).and_then(|d| d.first_chunk::<5>()) else {
        return Swf::InvalidLength;
    };
    let limit = u32::try_from(limits.lzma_memory).unwrap_or(u32::MAX);
    let wanted = u32::from_le_bytes([a, b, c, d]);
    // The header of LZMA-alone: what a Flash file leaves out is the length, which need not be known.
    let mut header = [0xff; 13];
    header[0] = properties;
    header[1..5].copy_from_slice(&wanted.min(limit).to_le_bytes());
    let Ok(mut stream) = Stream::new_lzma_decoder(u64::MAX) else { return Swf::Memory };
    if stream.process(&header, &mut [0], Action::Run).is_err() || stream.total_in() != 13 {
        return Swf::Broken;
    }
    let mut rest = body;
    while let Some(from) = grow(out, most) {
        let (in_before, out_before) = (stream.total_in(), stream.total_out());
        let result = stream.process(rest, out.get_mut(from..).unwrap_or(&mut []), Action::Run);
        let (used, made) = ((stream.total_in() - in_before) as usize, (stream.total_out() - out_before) as usize);
        rest = rest.get(used..).unwrap_or(&[]);
        out.truncate(from + made);
        match result {
            Err(Error::Mem | Error::MemLimit) => return Swf::Memory,
            Err(_) if wanted > limit => return Swf::Memory,
            Err(_) => return Swf::Broken,
            Ok(Status::StreamEnd) => break,
            Ok(_) if used == 0 && made == 0 => break,
            Ok(_) => (),
        }
    }
    Swf::Decoded
}
