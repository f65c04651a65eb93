//! Transforms, which change a sticky buffer's data before inspection.

use margay_meaning::decode::Decoding;

use super::{Keyword, pcre};
use crate::ast::{Base64Mode, LuaTransform, Transform};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::signed;

macro_rules! plain {
    ($($name:ident => $t:ident;)*) => {
        $(fn $name(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> { b.transform(Transform::$t) })*
    };
}

plain! {
    compress_whitespace => CompressWhitespace;
    strip_whitespace => StripWhitespace;
    strip_pseudo_headers => StripPseudoHeaders;
    header_lowercase => HeaderLowercase;
    to_lowercase => ToLowercase;
    to_uppercase => ToUppercase;
    to_md5 => ToMd5;
    to_sha1 => ToSha1;
    to_sha256 => ToSha256;
    dotprefix => DotPrefix;
    domain => Domain;
    tld => Tld;
    url_decode => UrlDecode;
}

macro_rules! decodings {
    ($($name:ident => $d:ident;)*) => {
        $(fn $name(b: &mut Builder<'_>, _: &Input<'_>) -> Result<(), Fail> { b.transform(Transform::Decode(Decoding::$d)) })*
    };
}

decodings! {
    url_decode_recursive => UrlRecursive;
    html_entity_decode => HtmlEntity;
    js_decode => Js;
    utf8_normalise => Utf8;
    remove_comments => Comments;
    shell_unescape => Shell;
    path_normalise => Path;
    base64_decode_plausible => Base64;
    canonicalise => Canonical;
}

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::bare(&["compress_whitespace"], compress_whitespace).about("make one blank of white space in a row"),
    Keyword::bare(&["strip_whitespace"], strip_whitespace).about("without white space"),
    Keyword::bare(&["strip_pseudo_headers"], strip_pseudo_headers).about("without the pseudo headers of HTTP/2"),
    Keyword::bare(&["header_lowercase"], header_lowercase).about("names of headers in lower case"),
    Keyword::bare(&["to_lowercase"], to_lowercase).about("letters in lower case"),
    Keyword::bare(&["to_uppercase"], to_uppercase).about("letters in upper case"),
    Keyword::bare(&["to_md5"], to_md5).about("the MD5 digest of the buffer"),
    Keyword::bare(&["to_sha1"], to_sha1).about("the SHA-1 digest of the buffer"),
    Keyword::bare(&["to_sha256"], to_sha256).about("the SHA-256 digest of the buffer"),
    Keyword::bare(&["dotprefix"], dotprefix).about("put a dot before the buffer"),
    Keyword::bare(&["domain"], domain).about("only the registered domain of a name"),
    Keyword::bare(&["tld"], tld).about("only the public suffix of a name"),
    Keyword::bare(&["url_decode"], url_decode).about("decode the %xx of URLs"),
    Keyword::bare(&["url_decode_recursive"], url_decode_recursive).about("decode the %xx of URLs until there are none"),
    Keyword::bare(&["html_entity_decode"], html_entity_decode)
        .about("decode entities of HTML: by name, by decimal and by hexadecimal number"),
    Keyword::bare(&["js_decode"], js_decode).about("decode \\x3c, \\u003c and \\074"),
    Keyword::bare(&["utf8_normalise"], utf8_normalise)
        .about("overlong and full-width characters to ASCII, spaces of all kinds to a space"),
    Keyword::bare(&["remove_comments"], remove_comments).about("take /* comments */ away"),
    Keyword::bare(&["shell_unescape"], shell_unescape)
        .about("take away the quotes, backslashes and empty variables that a shell leaves away"),
    Keyword::bare(&["path_normalise"], path_normalise).about("backslashes, repeated slashes and /./ to one slash"),
    Keyword::bare(&["base64_decode_plausible"], base64_decode_plausible)
        .about("decode base64 where it plausibly is some: twelve characters or more that give text"),
    Keyword::bare(&["canonicalise"], canonicalise)
        .about("the one form that the encodings of a value stand for, in small letters"),
    Keyword::quoted(&["xor"], xor).about("decode with a key by exclusive or"),
    Keyword::quoted(&["pcrexform"], pcrexform).about("only what a regular expression captures"),
    Keyword::maybe(&["from_base64"], from_base64).about("decode base64"),
    Keyword::maybe(&["gunzip"], gunzip).about("decompress gzip"),
    Keyword::maybe(&["zlib_deflate"], zlib_deflate).about("decompress zlib"),
    Keyword::value(&["luaxform"], luaxform).needs("lua").about("a Lua script transforms the buffer"),
];

/// Limit of the arguments of `luaxform`.
const LUA_ARGS_MAX: usize = 10;

/// Default output limit of a decompressing transform, in bytes.
const DECOMPRESSED: u32 = 1024;

fn xor(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-transform-xor";
    if !i.raw.len().is_multiple_of(2) {
        return fail(M, "XOR transform key's length must be an even number");
    }
    if i.raw.len() / 2 > usize::from(u8::MAX) {
        return fail(M, "Key length too big for XOR transform");
    }
    let mut key = Vec::with_capacity(i.raw.len() / 2);
    for pair in i.raw.chunks_exact(2) {
        let digits = pair.iter().map(|&c| (c as char).to_digit(16));
        let Some(byte) = digits.reduce(|n, d| Some(n? << 4 | d?)).flatten() else {
            return fail(M, "XOR transform key must be hexadecimal characters only");
        };
        key.push(byte as u8);
    }
    b.transform(Transform::Xor(key))
}

fn pcrexform(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    pcre::one_capture(&i.text)?;
    b.transform(Transform::PcreXform(i.text.to_string()))
}

fn from_base64(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-transform-base64";
    let (mut bytes, mut offset, mut mode) = (None, None, None);
    if i.given {
        for w in i.text.split(',').map(str::trim) {
            let bad = || Fail::new(M, format!("invalid value for from_base64: \"{w}\""));
            let (name, value) = w.split_once(|c: char| c.is_ascii_whitespace()).ok_or_else(bad)?;
            let value = value.trim();
            let twice = match name {
                "bytes" => bytes.replace(signed(value, 1, 65535).ok_or_else(bad)? as u32).is_some(),
                "offset" => offset.replace(signed(value, 0, 65535).ok_or_else(bad)? as u32).is_some(),
                "mode" => mode
                    .replace(match value {
                        "strict" => Base64Mode::Strict,
                        "rfc2045" => Base64Mode::Rfc2045,
                        "rfc4648" => Base64Mode::Rfc4648,
                        _ => return Err(bad()),
                    })
                    .is_some(),
                _ => return Err(bad()),
            };
            if twice {
                return fail(M, format!("from_base64 has \"{name}\" twice"));
            }
        }
    }
    b.transform(Transform::FromBase64 { bytes, offset: offset.unwrap_or(0), mode: mode.unwrap_or(Base64Mode::Rfc4648) })
}

/// `max-size n`, with a unit.
fn max_size(i: &Input<'_>) -> Result<u32, Fail> {
    let t = i.text.trim();
    if t.is_empty() {
        return Ok(DECOMPRESSED);
    }
    let size = t.strip_prefix("max-size").and_then(crate::size::unsigned).and_then(|n| u32::try_from(n).ok());
    match size {
        Some(n) if n > 0 => Ok(n),
        _ => fail("detect-transform-decompress", format!("invalid value for {}: \"{t}\"", i.name)),
    }
}

fn gunzip(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let max_size = max_size(i)?;
    b.transform(Transform::Gunzip { max_size })
}

fn zlib_deflate(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let max_size = max_size(i)?;
    b.transform(Transform::ZlibDeflate { max_size })
}

fn luaxform(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-transform-luaxform";
    let mut words = i.text.split(',').map(|w| w.trim().to_owned());
    let script = words.next().filter(|s| !s.is_empty());
    let Some(script) = script else { return fail(M, "luaxform needs the name of a script: luaxform:script.lua;") };
    let args: Vec<String> = words.collect();
    if args.len() > LUA_ARGS_MAX {
        return fail(M, format!("luaxform has {} arguments; at most {LUA_ARGS_MAX} are possible", args.len()));
    }
    b.transform(Transform::Lua(LuaTransform { script, args, number: None }))
}
