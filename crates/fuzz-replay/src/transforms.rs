//! The target `transforms`: runs a buffer through transforms of rules.

use std::cell::RefCell;

use margay_detect::pcre::PcreScratch;
use margay_detect::transform::{CompiledTransforms, TransformScratch};
use margay_meaning::decode::Decoding;
use margay_rules::ast::{Base64Mode, Transform};

/// Most bytes that a transform makes here.
const LIMIT: usize = 32 << 10;

/// The transform with this number, and a value for it.
fn transform(number: u8, value: u8) -> Transform {
    let size = u32::from(value) << 4;
    match number % 27 {
        0 => Transform::CompressWhitespace,
        1 => Transform::StripWhitespace,
        2 => Transform::StripPseudoHeaders,
        3 => Transform::HeaderLowercase,
        4 => Transform::ToLowercase,
        5 => Transform::ToUppercase,
        6 => Transform::ToMd5,
        7 => Transform::ToSha1,
        8 => Transform::ToSha256,
        9 => Transform::DotPrefix,
        10 => Transform::Domain,
        11 => Transform::Tld,
        12 => Transform::UrlDecode,
        13 => Transform::Xor(vec![value; usize::from(value & 7) + 1]),
        14 => Transform::PcreXform(if value & 1 == 0 { "a(.*)b" } else { "[^=]*=([a-z0-9]+)" }.into()),
        15 => Transform::FromBase64 {
            bytes: (value & 1 != 0).then_some(size),
            offset: u32::from(value & 6),
            mode: [Base64Mode::Rfc4648, Base64Mode::Rfc2045, Base64Mode::Strict][usize::from(value >> 3) % 3],
        },
        16 => Transform::Gunzip { max_size: size },
        17 => Transform::ZlibDeflate { max_size: size },
        other => Transform::Decode(Decoding::ALL[usize::from(other - 18) % Decoding::ALL.len()]),
    }
}

/// A byte with the number of transforms, two bytes for each, and the buffer.
pub fn transforms(data: &[u8]) {
    thread_local! {
        static SCRATCH: RefCell<Option<PcreScratch>> = const { RefCell::new(None) };
    }
    let Some((&count, rest)) = data.split_first() else { return };
    let (list, buffer) = rest.split_at((usize::from(count % 6) * 2).min(rest.len()));
    let list: Vec<Transform> = list.chunks_exact(2).map(|c| transform(c[0], c[1])).collect();
    let compiled = CompiledTransforms::compile(&list, Default::default()).expect("each compiles");
    SCRATCH.with_borrow_mut(|pcre| {
        let pcre = pcre.get_or_insert_with(PcreScratch::new);
        let mut scratch = TransformScratch::new(LIMIT);
        let first = compiled.apply(buffer, &mut scratch, pcre).to_vec();
        assert!(first.len() <= LIMIT.max(if list.is_empty() { buffer.len() } else { 0 }), "{} bytes", first.len());
        // Check that nothing remains of an earlier call.
        let _ = compiled.apply(b"something else", &mut scratch, pcre);
        assert!(compiled.apply(buffer, &mut scratch, pcre) == first, "another result the second time");
    });
}
