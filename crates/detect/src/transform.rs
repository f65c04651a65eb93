//! Transforms of buffers: rules inspect their result instead of the original bytes.
//!
//! Transforms run in rule order, each on the previous result, between two buffers of a [`TransformScratch`] that is
//! reused. A result has at most [`TransformScratch::limit`] bytes.

use std::io::Read;

use margay_rules::ast::Transform;
use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use crate::base64;
use crate::inspect::{CompileError, CompiledBuffer};
use crate::lua::TransformScripts;
use crate::pcre::{Pcre, PcreLimits, PcreResult, PcreScratch};

/// Scratch buffers for transforms; one per worker.
#[derive(Debug)]
pub struct TransformScratch {
    from: Vec<u8>,
    to: Vec<u8>,
    limit: usize,
    limit_reached: u64,
    /// Scripts of `luaxform`, by number.
    pub(crate) lua: TransformScripts,
}

impl TransformScratch {
    /// Scratch buffers for results of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        TransformScratch { from: Vec::new(), to: Vec::new(), limit, limit_reached: 0, lua: TransformScripts::default() }
    }
    /// The limit of a result in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// How often a result was cut at the limit.
    pub fn limit_reached(&self) -> u64 {
        self.limit_reached
    }
}

impl Default for TransformScratch {
    /// A limit of 1 MiB.
    fn default() -> Self {
        Self::new(1 << 20)
    }
}

/// The transforms of one buffer of a rule, ready to run.
#[derive(Debug)]
pub struct CompiledTransforms {
    steps: Box<[Step]>,
}

#[derive(Debug)]
enum Step {
    Plain(Transform),
    Pcre(Pcre),
    /// The script's number, and its arguments.
    Lua(u32, Box<[String]>),
}

impl CompiledTransforms {
    /// Compiles transforms.
    ///
    /// # Errors
    /// If a `luaxform` script was not loaded, a `pcrexform` does not compile or has not exactly one capture group, or an
    /// `xor` key is empty.
    pub fn compile(transforms: &[Transform], limits: PcreLimits) -> Result<CompiledTransforms, CompileError> {
        let mut steps = Vec::with_capacity(transforms.len());
        for t in transforms {
            steps.push(match t {
                Transform::Lua(l) => match l.number {
                    Some(n) => Step::Lua(n, l.args.clone().into_boxed_slice()),
                    None => return Err(CompileError::unsupported("luaxform", "the script was not loaded")),
                },
                Transform::PcreXform(pattern) => {
                    let code = Pcre::new(pattern, "", Some(limits))?;
                    if code.groups() != 1 {
                        return Err(CompileError::invalid(
                            "pcrexform",
                            format!("{} capture groups in \"{pattern}\"; exactly one is needed", code.groups()),
                        ));
                    }
                    Step::Pcre(code)
                }
                Transform::Xor(key) if key.is_empty() => {
                    return Err(CompileError::invalid("xor", "the key is empty; give at least one byte"));
                }
                other => Step::Plain(other.clone()),
            });
        }
        Ok(CompiledTransforms { steps: steps.into_boxed_slice() })
    }

    /// Whether there are no transforms, so that the caller can use the buffer itself.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a script runs, whose result need not depend on the bytes alone.
    pub(crate) fn runs_scripts(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Lua(..)))
    }

    /// Appends the transformed `data` to `out`.
    pub(crate) fn append(
        &self,
        data: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut TransformScratch,
        pcre: &mut PcreScratch,
    ) {
        // The most frequent case needs no copies.
        let [Step::Plain(Transform::Decode(decoding))] = &self.steps[..] else {
            out.extend_from_slice(self.apply(data, scratch, pcre));
            return;
        };
        let start = out.len();
        decoding.run(data, out);
        if out.len() - start > scratch.limit {
            out.truncate(start + scratch.limit);
            scratch.limit_reached += 1;
        }
    }

    /// Transforms `data`; the result is valid until the next use of `scratch`.
    pub fn apply<'s>(&self, data: &[u8], scratch: &'s mut TransformScratch, pcre: &mut PcreScratch) -> &'s [u8] {
        let TransformScratch { from, to, limit, limit_reached, lua } = scratch;
        to.clear();
        to.extend_from_slice(data);
        for step in &self.steps {
            std::mem::swap(from, to);
            to.clear();
            match step {
                // Without a match the buffer is unchanged.
                Step::Pcre(code) => match code.find_at(from, 0, pcre) {
                    PcreResult::Match(..) => {
                        let group = pcre.group(1).and_then(|(a, b)| from.get(a..b)).unwrap_or(&[]);
                        to.extend_from_slice(group);
                    }
                    _ => std::mem::swap(from, to),
                },
                // If the script returns nothing the buffer is unchanged. Scripts are not called for empty data.
                Step::Lua(number, args) => {
                    if from.is_empty() || !lua.transform(*number, from, args, to) {
                        to.clear();
                        std::mem::swap(from, to);
                    }
                }
                Step::Plain(t) => run(t, from, to, *limit),
            }
            if to.len() > *limit {
                to.truncate(*limit);
                *limit_reached += 1;
            }
        }
        to
    }
}

/// White space as defined by C's `isspace`.
const fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t'..=b'\r')
}

fn run(t: &Transform, from: &mut [u8], to: &mut Vec<u8>, limit: usize) {
    match t {
        Transform::CompressWhitespace => {
            let mut before = false;
            to.extend(from.iter().copied().filter(|&b| {
                let space = is_space(b);
                let keep = !(space && before);
                before = space;
                keep
            }));
        }
        Transform::StripWhitespace => to.extend(from.iter().copied().filter(|&b| !is_space(b))),
        Transform::StripPseudoHeaders => {
            // Header names, each on its own line. HTTP/2 pseudo-headers, which start with a colon, are removed.
            for line in from.split_inclusive(|&b| b == b'\n') {
                if line.first() != Some(&b':') {
                    to.extend_from_slice(line);
                }
            }
        }
        Transform::HeaderLowercase => {
            // The name up to each line's colon, without the value. An HTTP/2 name may itself start with a colon.
            for line in from.split_inclusive(|&b| b == b'\n') {
                let pseudo = usize::from(line.first() == Some(&b':'));
                let name = line.iter().skip(pseudo).position(|&b| b == b':').map_or(line.len(), |i| i + pseudo);
                to.extend(line.iter().enumerate().map(|(i, b)| if i < name { b.to_ascii_lowercase() } else { *b }));
            }
        }
        Transform::ToLowercase => to.extend(from.iter().map(u8::to_ascii_lowercase)),
        Transform::ToUppercase => to.extend(from.iter().map(u8::to_ascii_uppercase)),
        Transform::ToMd5 => to.extend_from_slice(&Md5::digest(&*from)),
        Transform::ToSha1 => to.extend_from_slice(&Sha1::digest(&*from)),
        Transform::ToSha256 => to.extend_from_slice(&Sha256::digest(&*from)),
        Transform::DotPrefix => {
            to.push(b'.');
            to.extend_from_slice(from);
        }
        // A name without a public suffix gives an empty result.
        Transform::Domain => to.extend_from_slice(psl::domain(from).map_or(&[][..], |d| d.as_bytes())),
        Transform::Tld => to.extend_from_slice(psl::suffix(from).map_or(&[][..], |s| s.as_bytes())),
        Transform::UrlDecode => url_decode(from, to),
        Transform::Decode(decoding) => decoding.run(from, to),
        Transform::Xor(key) => to.extend(from.iter().zip(key.iter().cycle()).map(|(b, k)| b ^ k)),
        Transform::FromBase64 { bytes, offset, mode } => {
            let encoded = from.get(*offset as usize..).unwrap_or(&[]);
            let encoded = bytes.and_then(|n| encoded.get(..n as usize)).unwrap_or(encoded);
            base64::decode(encoded, *mode, limit, to);
        }
        Transform::Gunzip { max_size } => inflate(flate2::read::MultiGzDecoder::new(&*from), *max_size, limit, to),
        Transform::ZlibDeflate { max_size } => inflate(flate2::read::ZlibDecoder::new(&*from), *max_size, limit, to),
        // Compiled to other steps, or rejected.
        Transform::PcreXform(_) | Transform::Lua(_) => to.extend_from_slice(from),
    }
}

/// Decompresses up to `max` bytes; keeps the output before an error.
fn inflate(decoder: impl Read, max: u32, limit: usize, to: &mut Vec<u8>) {
    let max = u64::from(max).min(limit as u64);
    let mut decoder = decoder.take(max);
    let mut chunk = [0u8; 4096];
    loop {
        match decoder.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(n) => to.extend_from_slice(chunk.get(..n).unwrap_or(&[])),
        }
    }
}

/// Decodes `%xx` to bytes and `+` to a space; other text stays.
fn url_decode(from: &[u8], to: &mut Vec<u8>) {
    let hex = |b: Option<&u8>| b.and_then(|&b| char::from(b).to_digit(16)).map(|d| d as u8);
    let mut i = 0;
    while let Some(&b) = from.get(i) {
        i += 1;
        match b {
            b'+' => to.push(b' '),
            b'%' => match (hex(from.get(i)), hex(from.get(i + 1))) {
                (Some(high), Some(low)) => {
                    to.push(high << 4 | low);
                    i += 2;
                }
                _ => to.push(b),
            },
            _ => to.push(b),
        }
    }
}

/// The checks on one buffer, and the transforms applied to the buffer first.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) transforms: CompiledTransforms,
    pub(crate) checks: CompiledBuffer,
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_rules::ast::Base64Mode;
    use std::io::Write;

    fn apply_all(list: &[Transform], data: &[u8]) -> Vec<u8> {
        let t = CompiledTransforms::compile(list, PcreLimits::default()).expect("compiles");
        t.apply(data, &mut TransformScratch::default(), &mut PcreScratch::new()).to_vec()
    }

    fn apply(t: Transform, data: &[u8]) -> String {
        apply_all(&[t], data).escape_ascii().to_string()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn text() {
        assert_eq!(apply(Transform::StripWhitespace, b" a\tb\x0b c\r\n"), "abc");
        assert_eq!(apply(Transform::CompressWhitespace, b"a  b \t c"), "a b c");
        assert_eq!(apply(Transform::ToLowercase, b"AbC1\xc4"), "abc1\\xc4");
        assert_eq!(apply(Transform::ToUppercase, b"AbC1"), "ABC1");
        assert_eq!(apply(Transform::DotPrefix, b"a.b"), ".a.b");
        assert_eq!(
            apply(Transform::HeaderLowercase, b"Accept-Ranges: Bytes\r\nA: B\r\n"),
            "accept-ranges: Bytes\\r\\na: B\\r\\n"
        );
        let names = b"\r\n:Status\r\nAccept\r\n\r\n";
        assert_eq!(apply(Transform::StripPseudoHeaders, names), "\\r\\nAccept\\r\\n\\r\\n");
        assert_eq!(apply(Transform::Xor(vec![1, 2]), b"abc"), "``b");
        assert_eq!(apply(Transform::UrlDecode, b"a%41+b%zz%4"), "aA b%zz%4");
    }

    #[test]
    fn hashes() {
        assert_eq!(hex(&apply_all(&[Transform::ToMd5], b"abc")), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(&apply_all(&[Transform::ToSha1], b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hex(&apply_all(&[Transform::ToSha256], b"abc")), sha256);
        // Each transform takes the previous result.
        assert_eq!(
            hex(&apply_all(&[Transform::ToLowercase, Transform::StripWhitespace, Transform::ToSha256], b"A b C")),
            sha256
        );
    }

    #[test]
    fn domains() {
        assert_eq!(apply(Transform::Domain, b"www.news.bbc.co.uk"), "bbc.co.uk");
        assert_eq!(apply(Transform::Domain, b"suricata.io"), "suricata.io");
        assert_eq!(apply(Transform::Tld, b"www.bbc.co.uk"), "co.uk");
        assert_eq!(apply(Transform::Tld, b"suricata.io"), "io");
        assert_eq!(apply(Transform::Domain, b"co.uk"), "");
        assert_eq!(apply(Transform::Domain, b""), "");
    }

    #[test]
    fn captures() {
        let x = || Transform::PcreXform(r"[a-zA-Z]+\s+(.*)\s+HTTP".into());
        assert_eq!(apply(x(), b"GET /z4d4kWk.jpg HTTP/1.1"), "/z4d4kWk.jpg");
        assert_eq!(apply(x(), b"nothing here"), "nothing here");
        for bad in ["a(b", "ab", "(a)(b)"] {
            assert!(CompiledTransforms::compile(&[Transform::PcreXform(bad.into())], PcreLimits::default()).is_err());
        }
        assert!(CompiledTransforms::compile(&[Transform::Lua(Default::default())], PcreLimits::default()).is_err());
        assert!(CompiledTransforms::compile(&[Transform::Xor(vec![])], PcreLimits::default()).is_err());
    }

    /// The rules of conformance cases from_base64-01 and -02.
    #[test]
    fn base64() {
        let t = |bytes, offset, mode| Transform::FromBase64 { bytes, offset, mode };
        let uri = b"/?arg=dGhpc2lzYXRlc3QK";
        assert_eq!(apply(t(None, 6, Base64Mode::Rfc4648), uri), "thisisatest\\n");
        assert_eq!(apply(t(None, 10, Base64Mode::Rfc4648), uri), "sisatest\\n");
        assert_eq!(apply(t(Some(6), 6, Base64Mode::Rfc4648), uri), "this");
        assert_eq!(apply(t(None, 6, Base64Mode::Strict), uri), "thisisatest\\n");
        assert_eq!(apply(t(None, 6, Base64Mode::Rfc2045), b"/?arg=Zm 9v Ym Fy"), "foobar");
        assert_eq!(apply(t(None, 600, Base64Mode::Rfc4648), uri), "");
    }

    #[test]
    fn compressed_data_within_limits() {
        let plain = vec![b'a'; 100_000];
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&plain).expect("to memory");
        let gz = gz.finish().expect("to memory");
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        z.write_all(&plain).expect("to memory");
        let z = z.finish().expect("to memory");
        assert_eq!(apply_all(&[Transform::Gunzip { max_size: 200_000 }], &gz), plain);
        assert_eq!(apply_all(&[Transform::Gunzip { max_size: 1024 }], &gz).len(), 1024);
        assert_eq!(apply_all(&[Transform::ZlibDeflate { max_size: 1024 }], &z).len(), 1024);
        assert_eq!(apply_all(&[Transform::Gunzip { max_size: 1024 }], b"no gzip"), b"");
        assert!(apply_all(&[Transform::Gunzip { max_size: 200_000 }], &gz[..gz.len() / 2]).len() < plain.len());
        let t = CompiledTransforms::compile(&[Transform::ToLowercase], PcreLimits::default()).expect("compiles");
        let mut small = TransformScratch::new(10);
        assert_eq!(t.apply(&plain, &mut small, &mut PcreScratch::new()).len(), 10);
        assert_eq!(small.limit_reached(), 1);
    }
}
