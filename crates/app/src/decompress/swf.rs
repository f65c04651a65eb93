//! Flash files in the form that rules inspect: `CWS` (zlib) and `ZWS` (LZMA) become uncompressed `FWS`.
//!
//! SWF File Format Specification 19, chapter 2: three bytes of signature, one of version, four of uncompressed length in little
//! endian. `CWS` exists from version 6 on, `ZWS` from version 13 on. A `ZWS` continues with four bytes of compressed length and
//! five bytes of LZMA properties.

use flate2::FlushDecompress;
use liblzma::stream::{Action, Error, Status, Stream};

use super::Limits;
use super::inflating::Inflating;

/// `swf-decompression`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwfConfig {
    /// `type`: decompress deflate.
    pub deflate: bool,
    /// `type`: decompress LZMA.
    pub lzma: bool,
    /// `compress-depth`, 0 for all.
    pub compress_depth: u64,
    /// `decompress-depth`, 0 for all.
    pub decompress_depth: u64,
}

const HEADER: usize = 8;
const ZWS_HEADER: usize = 17;

/// The output limit for a file, whatever it declares and the settings allow.
pub const MAX_OUTPUT: usize = 4 << 20;

/// The result for a window of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swf {
    /// Not a compressed Flash file, or of a kind that is not decompressed.
    Not,
    /// Decompressed, to the extent that data is available and the limits allow.
    Decoded,
    /// The version does not have this compression.
    InvalidVersion,
    /// The header is incomplete.
    InvalidLength,
    /// The data is damaged.
    Broken,
    /// LZMA needs more memory than its limit.
    Memory,
}

/// Whether data begins like a compressed Flash file.
pub fn is_compressed(data: &[u8]) -> bool {
    matches!(data, [b'C' | b'Z', b'W', b'S', ..])
}

/// Decompresses the available beginning `data` of a Flash file. With [`Swf::Decoded`], `out` has the uncompressed file,
/// starting with `FWS`. Otherwise `out` is empty, and rules inspect `data` itself.
pub fn decompress(data: &[u8], config: &SwfConfig, limits: Limits, out: &mut Vec<u8>) -> Swf {
    out.clear();
    let (lzma, oldest) = match data {
        [b'C', b'W', b'S', ..] if config.deflate => (false, 6),
        [b'Z', b'W', b'S', ..] if config.lzma => (true, 13),
        _ => return Swf::Not,
    };
    let start = if lzma { ZWS_HEADER } else { HEADER };
    let (Some(&[_, _, _, version, a, b, c, d]), Some(body)) = (data.first_chunk::<HEADER>(), data.get(start..)) else {
        return Swf::InvalidLength;
    };
    if version < oldest {
        return Swf::InvalidVersion;
    }
    // Players treat a length that is too small as one without the header, and zero as unknown.
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

/// Makes room for the next piece; `None` if `out` has reached its limit.
fn grow(out: &mut Vec<u8>, most: usize) -> Option<usize> {
    let from = out.len();
    out.resize(most.min(from.saturating_add(super::SCRATCH)), 0);
    (out.len() > from).then_some(from)
}

fn inflate(body: &[u8], most: usize, out: &mut Vec<u8>) -> Swf {
    // The checksum at the end is ignored, because players do not wait for it.
    let mut rest = match body {
        [cmf, flags, rest @ ..]
            if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flags)) % 31 == 0 && flags & 0x20 == 0 =>
        {
            rest
        }
        [] | [_] => return Swf::InvalidLength,
        _ => return Swf::Broken,
    };
    let mut recycled = Inflating::default();
    let decoder = recycled.stream();
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
    // `lzma-enabled` is about content codings; the setting for Flash names LZMA itself.
    let memory = if limits.lzma_memory == 0 { Limits::default().lzma_memory } else { limits.lzma_memory };
    let limit = u32::try_from(memory).unwrap_or(u32::MAX);
    let wanted = u32::from_le_bytes([a, b, c, d]);
    // The header of LZMA-alone. A Flash file omits the length, which may be unknown.
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

#[cfg(test)]
mod tests {
    use super::super::tests::{lzma, zlib};
    use super::*;

    const ALL: SwfConfig = SwfConfig { deflate: true, lzma: true, compress_depth: 0, decompress_depth: 0 };
    const BODY: &[u8] = b"\x78\0\x05\x5f EICAR-STANDARD-ANTIVIRUS-TEST-FILE, and more of the same";

    fn header(kind: u8, version: u8, len: u32) -> Vec<u8> {
        [&[kind, b'W', b'S', version][..], &len.to_le_bytes()].concat()
    }

    fn cws(version: u8, len: u32) -> Vec<u8> {
        [header(b'C', version, len), zlib(BODY)].concat()
    }

    fn zws(version: u8, len: u32) -> Vec<u8> {
        let alone = lzma(BODY, 1 << 23);
        let packed = (alone.len() as u32 - 13).to_le_bytes();
        [&header(b'Z', version, len)[..], &packed, &alone[..5], &alone[13..]].concat()
    }

    fn run(data: &[u8], config: SwfConfig) -> (Swf, Vec<u8>) {
        let mut out = b"from before".to_vec();
        let result = decompress(data, &config, Limits::default(), &mut out);
        (result, out)
    }

    #[test]
    fn flash_files_are_as_they_were() {
        let len = BODY.len() as u32 + 8;
        for (data, version) in
            [(cws(6, len), 6), (cws(100, len), 100), (zws(13, len), 13), (cws(13, 0), 13), (cws(13, u32::MAX), 13)]
        {
            let (result, out) = run(&data, ALL);
            assert_eq!((result, &out[..4], &out[8..]), (Swf::Decoded, &[b'F', b'W', b'S', version][..], BODY));
            assert_eq!(out[4..8], data[4..8]);
        }
    }

    /// Content codings without LZMA leave Flash as its own setting has it.
    #[test]
    fn lzma_of_flash_has_its_own_setting() {
        let mut out = Vec::new();
        let limits = Limits { lzma_memory: 0, ..Limits::default() };
        assert_eq!(decompress(&zws(13, BODY.len() as u32 + 8), &ALL, limits, &mut out), Swf::Decoded);
    }

    #[test]
    fn limits_cut() {
        assert_eq!(run(&cws(13, 20), ALL).1.len(), 28);
        assert_eq!(run(&cws(13, 1000), SwfConfig { decompress_depth: 30, ..ALL }).1.len(), 30);
        let (result, out) = run(&cws(13, 1000), SwfConfig { compress_depth: 30, ..ALL });
        assert_eq!(result, Swf::Decoded);
        assert!(out.len() < BODY.len() + 8 && BODY.starts_with(&out[8..]));
        let zeros = [header(b'C', 13, u32::MAX), zlib(&vec![0; 2 * MAX_OUTPUT])].concat();
        assert_eq!(run(&zeros, ALL).1.len(), MAX_OUTPUT);
    }

    #[test]
    fn what_is_none_stays_as_it_is() {
        let empty = |r| (r, Vec::new());
        assert_eq!(run(b"FWS\x0d\0\0\0\0", ALL), empty(Swf::Not));
        assert_eq!(run(b"", ALL), empty(Swf::Not));
        assert_eq!(run(&cws(13, 100), SwfConfig { deflate: false, ..ALL }), empty(Swf::Not));
        assert_eq!(run(&zws(13, 100), SwfConfig { lzma: false, ..ALL }), empty(Swf::Not));
        assert_eq!(run(&cws(5, 100), ALL), empty(Swf::InvalidVersion));
        assert_eq!(run(&zws(12, 100), ALL), empty(Swf::InvalidVersion));
        assert_eq!(run(b"CWS\x0d\0\0\0", ALL), empty(Swf::InvalidLength));
        assert_eq!(run(b"ZWS\x0d\0\0\0\0\0\0\0\0", ALL), empty(Swf::InvalidLength));
        assert_eq!(run(b"CWS\x0d\0\0\0\0plain text", ALL), empty(Swf::Broken));
        let mut bad = zws(13, 100);
        bad[12] = 255;
        assert_eq!(run(&bad, ALL), empty(Swf::Broken));
    }
}
