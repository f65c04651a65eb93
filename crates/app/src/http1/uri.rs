//! Request targets: parsed and normalised as the server would.
//!
//! First [`split`] parses the target. Then the path is decoded (percent signs, backslashes, repeated slashes, as set in
//! [`PathConfig`]), multi-byte characters become single bytes if the server does that, dot segments are removed, and
//! `double-decode-path` decodes the result again. The query is only decoded. All steps work in place in the output, which only
//! shrinks, so the work is linear in the length of the target.

use std::ops::Range;

use super::bestfit::best_fit;
use super::host;
use crate::config::http1::{InvalidEncoding, PathConfig, ServerConfig};

pub use super::host::normalise_host;

/// A parsed request target (RFC 3986, section 3; leniently).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uri<'a> {
    /// Scheme, without the colon.
    pub scheme: Option<&'a [u8]>,
    /// User name and password of `user:password@`.
    pub userinfo: Option<&'a [u8]>,
    /// Host as written; an IPv6 literal with its brackets.
    pub host: Option<&'a [u8]>,
    /// Port as written.
    pub port: Option<&'a [u8]>,
    /// Path.
    pub path: Option<&'a [u8]>,
    /// Query, without the question mark.
    pub query: Option<&'a [u8]>,
    /// Fragment, without the hash.
    pub fragment: Option<&'a [u8]>,
}

/// Anomalies of a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UriFlags {
    /// The host or the port is invalid (`request_uri_host_invalid`).
    pub host_invalid: bool,
    /// The normalised path has a null byte.
    pub null: bool,
    /// Percent-encoding was nested, and was decoded twice (`double_encoded_uri`).
    pub double_encoded: bool,
}

/// Appends the normalised request target to `out`: the value of `http.uri`. It is at most three bytes longer than `raw`, and
/// never longer without `uri-include-all`. It does not handle the authority of a `CONNECT` request: see [`host::connect`].
pub fn normalise(raw: &[u8], config: &ServerConfig, out: &mut Vec<u8>) -> UriFlags {
    normalise_parts(&split(raw), config, out).0
}

/// As [`normalise`], for a target that was split. Also returns the place of the normalised path in `out`.
pub(super) fn normalise_parts(uri: &Uri<'_>, config: &ServerConfig, out: &mut Vec<u8>) -> (UriFlags, Range<usize>) {
    let (mut flags, mut place) = (UriFlags::default(), 0..0);
    if config.uri_include_all {
        include_authority(uri, out, &mut flags);
    } else if uri.host.is_some() {
        // Only the validity matters, so the bytes are removed again.
        let start = out.len();
        flags.host_invalid = !host::normalise_uri_host(uri, out).1;
        out.truncate(start);
    }
    if let Some(path) = uri.path {
        let start = out.len();
        decode_path(path, &config.path, out);
        if config.path.utf8_best_fit {
            utf8_best_fit(out, start, config.path.replacement);
        }
        remove_dot_segments(out, start);
        if config.double_decode_path {
            flags.double_encoded |= decode_percent(out, start, false);
        }
        flags.null = out.get(start..).is_some_and(|path| memchr::memchr(0, path).is_some());
        place = start..out.len();
    }
    if let Some(query) = uri.query {
        out.push(b'?');
        let start = out.len();
        out.extend_from_slice(query);
        decode_percent(out, start, config.plus_as_space);
        if config.double_decode_query {
            flags.double_encoded |= decode_percent(out, start, config.plus_as_space);
        }
    }
    if let Some(fragment) = uri.fragment {
        out.push(b'#');
        let start = out.len();
        out.extend_from_slice(fragment);
        // Servers that decode `%uXXXX` in paths do so in fragments; none does in a query.
        let u = config.path.u_encoding.then_some(config.path.replacement);
        decode_plain(out, start, false, u);
    }
    (flags, place)
}

/// Appends scheme, user and host. Like in `http.host`, the port is omitted.
fn include_authority(uri: &Uri<'_>, out: &mut Vec<u8>, flags: &mut UriFlags) {
    if let Some(scheme) = uri.scheme {
        out.extend(scheme.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b"://");
    }
    if let Some(user) = uri.userinfo {
        out.extend_from_slice(user);
        if !user.contains(&b':') {
            out.push(b':');
        }
        out.push(b'@');
    }
    if uri.host.is_some() {
        flags.host_invalid = !host::normalise_uri_host(uri, out).1;
    }
}

/// Parses a request target. The part before the first colon is the scheme, unless the target begins with a slash. Two slashes
/// after it, but not three, begin an authority.
pub fn split(raw: &[u8]) -> Uri<'_> {
    let mut uri = Uri::default();
    let mut rest = raw;
    if raw.first() != Some(&b'/')
        && let Some((scheme, after)) = cut(raw, b':')
    {
        uri.scheme = Some(scheme);
        rest = after;
        if let Some(after) = rest.strip_prefix(b"//")
            && after.first() != Some(&b'/')
        {
            let end = after.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(after.len());
            let (authority, after) = after.split_at(end);
            rest = after;
            let server = match cut(authority, b'@') {
                Some((user, server)) => {
                    uri.userinfo = Some(user);
                    server
                }
                None => authority,
            };
            (uri.host, uri.port) = split_authority(server);
        }
    }
    if let Some((before, fragment)) = cut(rest, b'#') {
        uri.fragment = Some(fragment);
        rest = before;
    }
    if let Some((before, query)) = cut(rest, b'?') {
        uri.query = Some(query);
        rest = before;
    }
    uri.path = (!rest.is_empty()).then_some(rest);
    uri
}

/// Splits an authority without user into host and port: `host`, `host:80`, `[::1]:80`.
pub(super) fn split_authority(server: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    if server.first() == Some(&b'[')
        && let Some(end) = server.iter().position(|&b| b == b']')
    {
        let (literal, after) = server.split_at(end + 1);
        return (Some(literal), after.strip_prefix(b":"));
    }
    if server.first() == Some(&b'[') {
        // The bracket is not closed, so all of it is the host.
        return (Some(server), None);
    }
    match cut(server, b':') {
        Some((host, port)) => (Some(host), Some(port)),
        None => (Some(server), None),
    }
}

/// Splits `data` at the first `byte`.
pub(super) fn cut(data: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, data)?;
    Some((data.get(..at)?, data.get(at + 1..)?))
}

const fn nibble(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

fn hex(a: u8, b: u8) -> Option<u8> {
    Some(nibble(a)? << 4 | nibble(b)?)
}

/// Treats two arbitrary bytes as hexadecimal digits.
const fn hex_of_anything(a: u8, b: u8) -> u8 {
    const fn digit(b: u8) -> u8 {
        if b >= b'A' { (b & 0xdf).wrapping_sub(b'A').wrapping_add(10) } else { b.wrapping_sub(b'0') }
    }
    digit(a).wrapping_mul(16).wrapping_add(digit(b))
}

/// The result of decoding a percent sign.
enum Escape {
    /// A byte, the length of its encoding, and whether it was a null byte written as `%00`.
    Byte(u8, usize, bool),
    /// This many bytes of input, unchanged.
    Verbatim(usize),
    /// Nothing: the percent sign is dropped.
    Dropped,
}

/// Decodes a percent sign in a path; `after` is the input after it.
fn escape(after: &[u8], config: &PathConfig) -> Escape {
    let invalid = |decoded: Option<(u8, usize)>| match (config.invalid, decoded) {
        (InvalidEncoding::Remove, _) => Escape::Dropped,
        (InvalidEncoding::Decode, Some((byte, len))) => Escape::Byte(byte, len, false),
        _ => Escape::Verbatim(1),
    };
    if config.u_encoding && matches!(after.first(), Some(b'u' | b'U')) {
        let &[_, a, b, c, d, ..] = after else { return invalid(None) };
        return match (hex(a, b), hex(c, d)) {
            (Some(high), Some(low)) => {
                Escape::Byte(best_fit(u32::from(high) << 8 | u32::from(low), config.replacement), 6, false)
            }
            _ => {
                let code = u32::from(hex_of_anything(a, b)) << 8 | u32::from(hex_of_anything(c, d));
                invalid(Some((best_fit(code, config.replacement), 6)))
            }
        };
    }
    let &[a, b, ..] = after else { return invalid(None) };
    match hex(a, b) {
        None => invalid(Some((hex_of_anything(a, b), 3))),
        Some(byte) if !config.decode_separators && (byte == b'/' || byte == b'\\' && config.backslash) => {
            Escape::Verbatim(3)
        }
        Some(byte) => Escape::Byte(byte, 3, byte == 0),
    }
}

/// Decodes and appends a path.
fn decode_path(path: &[u8], config: &PathConfig, out: &mut Vec<u8>) {
    let mut rest = path;
    let mut slash = false;
    while let Some((&first, after)) = rest.split_first() {
        // Most of a path needs no decoding.
        let plain = rest.iter().position(|b| matches!(b, b'%' | b'/' | b'\\' | 0)).unwrap_or(rest.len());
        if plain > 0 {
            let (text, after) = rest.split_at(plain);
            let from = out.len();
            out.extend_from_slice(text);
            if config.lowercase {
                out.get_mut(from..).unwrap_or_default().make_ascii_lowercase();
            }
            slash = false;
            rest = after;
            continue;
        }
        let (mut byte, len) = match first {
            b'%' => match escape(after, config) {
                Escape::Byte(_, _, true) if config.nul_encoded_ends => return,
                Escape::Byte(byte, len, _) => (byte, len),
                Escape::Dropped => {
                    rest = after;
                    continue;
                }
                Escape::Verbatim(len) => {
                    let (text, after) = rest.split_at(len.min(rest.len()));
                    let lower = |b: &u8| if config.lowercase { b.to_ascii_lowercase() } else { *b };
                    out.extend(text.iter().map(lower));
                    slash = false;
                    rest = after;
                    continue;
                }
            },
            0 if config.nul_raw_ends => return,
            _ => (first, 1),
        };
        rest = rest.get(len..).unwrap_or(&[]);
        if byte == b'\\' && config.backslash {
            byte = b'/';
        }
        if config.lowercase {
            byte = byte.to_ascii_lowercase();
        }
        if byte == b'/' && slash && config.compress {
            continue;
        }
        slash = byte == b'/';
        out.push(byte);
    }
}

/// Converts UTF-8 from `start` on to single bytes. Overlong forms count (`%c0%af` is a slash). Invalid UTF-8 is replaced; an
/// incomplete character at the end is dropped.
fn utf8_best_fit(out: &mut Vec<u8>, start: usize, replacement: u8) {
    if out.iter().skip(start).all(u8::is_ascii) {
        return;
    }
    let mut write = start;
    // The current character: its bits so far, and the number of missing bytes.
    let (mut code, mut missing) = (0u32, 0u8);
    let mut read = start;
    while let Some(&byte) = out.get(read) {
        let done = if missing == 0 {
            read += 1;
            (code, missing) = match byte {
                0..=0x7f => (u32::from(byte), 0),
                0xc0..=0xdf => (u32::from(byte & 0x1f), 1),
                0xe0..=0xef => (u32::from(byte & 0x0f), 2),
                0xf0..=0xf4 => (u32::from(byte & 0x07), 3),
                _ => (u32::from(u16::MAX), 0),
            };
            missing == 0
        } else {
            let next = code << 6 | u32::from(byte & 0x3f);
            // The second byte reveals surrogates and code points beyond the last plane.
            let broken = byte & 0xc0 != 0x80
                || missing == 2 && next & 0x3ffe0 == 0x360 && next < 0x400
                || missing == 3 && next > 0x10f;
            if broken {
                (code, missing) = (u32::from(u16::MAX), 0);
            } else {
                read += 1;
                (code, missing) = (next, missing - 1);
            }
            missing == 0
        };
        if done {
            // The write position never passes `read`, because each written byte has at least one input byte.
            if let Some(slot) = out.get_mut(write) {
                *slot = best_fit(code, replacement);
            }
            write += 1;
        }
    }
    out.truncate(write);
}

/// Removes `.` and `..` segments from `start` on (RFC 3986, section 5.2.4, but a slash after a final dot segment is removed
/// too).
fn remove_dot_segments(out: &mut Vec<u8>, start: usize) {
    let path = out.get(start..).unwrap_or(&[]);
    if path.first() != Some(&b'.') && memchr::memmem::find(path, b"/.").is_none() {
        return;
    }
    let len = out.len();
    let (mut read, mut write) = (start, start);
    // Whether a slash was read and not yet written, and whether a dot segment left it.
    let (mut slash, mut left) = (false, false);
    while read < len || slash {
        let rest = out.get(read..len).unwrap_or(&[]);
        if !slash && rest.first() == Some(&b'/') {
            (slash, left) = (true, false);
            read += 1;
            continue;
        }
        let (dots, end) = match rest {
            [b'.'] | [b'.', b'/', ..] => (1, rest.len() == 1),
            [b'.', b'.'] | [b'.', b'.', b'/', ..] => (2, rest.len() == 2),
            [] if slash && left => break,
            _ => (0, false),
        };
        if dots == 0 {
            if slash {
                put(out, write, b'/');
                write += 1;
                slash = false;
            }
            let segment = out.get(read..len).unwrap_or(&[]);
            let segment = memchr::memchr(b'/', segment).unwrap_or(segment.len());
            // The write position never passes the read position.
            out.copy_within(read..read + segment, write);
            write += segment;
            read += segment;
            continue;
        }
        if dots == 2 && slash {
            let kept = out.get(start..write).unwrap_or(&[]);
            write = start + kept.iter().rposition(|&b| b == b'/').unwrap_or(0);
        }
        if end {
            break;
        }
        read += dots + 1;
        left = true;
    }
    out.truncate(write);
}

fn put(out: &mut [u8], at: usize, byte: u8) {
    if let Some(slot) = out.get_mut(at) {
        *slot = byte;
    }
}

/// Decodes `%XX` from `start` on, and `+` if it means a space. Returns whether there was any `%XX`.
pub(super) fn decode_percent(out: &mut Vec<u8>, start: usize, plus: bool) -> bool {
    decode_plain(out, start, plus, None)
}

/// As [`decode_percent`], and also decodes `%uXXXX` if `u` has the replacement for unmatched characters.
fn decode_plain(out: &mut Vec<u8>, start: usize, plus: bool, u: Option<u8>) -> bool {
    let Some(first) = out.iter().skip(start).position(|&b| b == b'%' || plus && b == b'+') else { return false };
    let (mut read, mut write) = (start + first, start + first);
    let mut found = false;
    while let Some(rest) = out.get(read..).filter(|r| !r.is_empty()) {
        let (byte, len) = match *rest {
            [b'%', b'u' | b'U', a, b, c, d, ..] if u.is_some() => match (hex(a, b), hex(c, d)) {
                (Some(high), Some(low)) => (best_fit(u32::from(high) << 8 | u32::from(low), u.unwrap_or(b'?')), 6),
                _ => (b'%', 1),
            },
            [b'%', a, b, ..] => hex(a, b).map_or((b'%', 1), |byte| (byte, 3)),
            [b'+', ..] if plus => (b' ', 1),
            [byte, ..] => (byte, 1),
            [] => break,
        };
        found |= len > 1;
        put(out, write, byte);
        write += 1;
        read += len;
    }
    out.truncate(write);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::http1::Personality;

    fn norm(raw: &[u8], config: &ServerConfig) -> (Vec<u8>, UriFlags) {
        let mut out = b"before".to_vec();
        let flags = normalise(raw, config, &mut out);
        (out.split_off(6), flags)
    }

    fn personality(p: Personality) -> ServerConfig {
        let mut config = ServerConfig::default();
        config.set_personality(p);
        config
    }

    #[track_caller]
    fn table(config: &ServerConfig, rows: &[(&[u8], &[u8])]) {
        for &(raw, want) in rows {
            let got = norm(raw, config).0;
            assert_eq!(got, want, "{} -> {}", raw.escape_ascii(), got.escape_ascii());
        }
    }

    // The tables are results of Suricata 7.0.10, except for targets with spaces, which are from Suricata 8.

    #[test]
    fn as_ids() {
        table(
            &ServerConfig::default(),
            &[
                (b"/a%41%zz%4%", b"/aA%zz%4%"),
                (b"/a%2f%5c%2Fb", b"/a/b"),
                (b"/A\\b\\C", b"/A/b/C"),
                (b"/a%u0041%u00e9%u2215%uzzzz%u12%uff0f%ufffd%U0041", b"/aA?/%uzzzz%u12/?A"),
                (b"//a///b//", b"/a/b/"),
                (b"/a%00b?x=%00y", b"/a\0b?x=\0y"),
                (b"/a%01%7f%ffb", b"/a\x01\x7f?b"),
                (b"/a+b?c+d", b"/a+b?c+d"),
                (b"/a?b%20c%2fd%5c%zz%u0041", b"/a?b c/d\\%zz%u0041"),
                (b"/a?/../b//c\\D", b"/a?/../b//c\\D"),
                (b"/a#frag%41", b"/a#fragA"),
                (b"/a?b#c%41", b"/a?b#cA"),
                (b"/a#b?c", b"/a#b?c"),
                (b"/%c3%a9#%c0%af%u00%u2215%zz", b"/\xe9#\xc0\xaf%u00/%zz"),
                (b"/a?#", b"/a?#"),
                (b"*", b"*"),
                (b"?q", b"?q"),
                (b"", b""),
                (b"/..%2fa", b"/a"),
                (b"/a%3f%2e%2e/b", b"/a?../b"),
                (b"/a%252fb?c%2541", b"/a%2fb?c%41"),
                (b"/a%25%34%31", b"/a%41"),
                (b"/a%%32%35", b"/a%25"),
                (b"/uri afterspace", b"/uri afterspace"),
            ],
        );
    }

    #[test]
    fn utf8_as_ids() {
        table(
            &ServerConfig::default(),
            &[
                (b"/a%c0%afb%e0%80%af", b"/a/b/"),
                (b"/%f0%80%80%af", b"//"),
                (b"/%f4%90%80%80", b"/????"),
                (b"/%f4%8f%bf%bf", b"/?"),
                (b"/a/%c0%ae%c0%ae/b", b"/b"),
                (b"/caf%c3%a9%e2%80%99/\xc3\xa9\xff", b"/caf\xe9?/\xe9?"),
                (b"/%e2%80b%c3", b"/?b"),
                (b"/\xe2\x80\xc3\xa9", b"/?\xe9"),
                (b"/\xf0\x9f\x98\x80x\xf8\x88\x80\x80\x80y", b"/?x?????y"),
                (b"/\xf0\x82\x82\xacx", b"/?x"),
                (b"/\xe0\x81\x81", b"/A"),
                (b"/\xed\xa0\x80x", b"/???x"),
                (b"/\xef\xbc\x8f\xef\xbc\x8f", b"///"),
            ],
        );
    }

    #[test]
    fn dot_segments() {
        table(
            &ServerConfig::default(),
            &[
                (b"/a/../b", b"/b"),
                (b"/a/./b", b"/a/b"),
                (b"/../../b", b"/b"),
                (b"/a/..", b""),
                (b"/a/.", b"/a"),
                (b"/a/b/..?x=1", b"/a?x=1"),
                (b"/a/%2e%2e/b", b"/b"),
                (b"/a/....//b", b"/a/..../b"),
                (b"/a/..b/.c/d..", b"/a/..b/.c/d.."),
                (b"../a", b"a"),
                (b"./a", b"a"),
                (b".", b""),
                (b"..", b""),
                (b"/.", b""),
                (b"/../", b""),
                (b"a/../b", b"/b"),
                (b"a/../", b""),
                (b"/a//../b", b"/b"),
                (b"a/b/../c", b"a/c"),
                (b"/a/b/./", b"/a/b"),
                (b"/a/b/../", b"/a"),
                (b"/a/b/../../..", b""),
            ],
        );
        table(&personality(Personality::Minimal), &[(b"/a//../b", b"/a/b"), (b"//a///b//", b"//a///b//")]);
    }

    #[test]
    fn personalities() {
        use Personality as P;
        let rows: &[(&[u8], &[P], &[u8])] = &[
            (b"/a%2f%5c%2Fb", &[P::Generic, P::Iis51, P::Iis60, P::Iis70, P::Iis75], b"/a/b"),
            (b"/a%2f%5c%2Fb", &[P::Minimal, P::Iis40, P::Iis50, P::Apache2], b"/a%2f\\%2Fb"),
            (b"/%u0041%u00e9%u2215", &[P::Iis60, P::Iis70, P::Iis75], b"/A\xe9/"),
            (b"/%u0041", &[P::Minimal, P::Generic, P::Iis40, P::Iis50, P::Iis51, P::Apache2], b"/%u0041"),
            (b"/a//b", &[P::Generic, P::Iis51, P::Iis60, P::Iis70, P::Iis75, P::Apache2], b"/a/b"),
            (b"/a//b", &[P::Minimal, P::Iis40, P::Iis50], b"/a//b"),
            (b"/a//%2f/b", &[P::Apache2], b"/a/%2f/b"),
            (b"/\xc3\xa9", &[P::Minimal, P::Generic, P::Iis75, P::Apache2], b"/\xc3\xa9"),
        ];
        for (raw, all, want) in rows {
            for &p in *all {
                table(&personality(p), &[(raw, want)]);
            }
        }
    }

    #[test]
    fn single_settings() {
        let change = |f: &dyn Fn(&mut PathConfig), p: Personality| {
            let mut config = personality(p);
            f(&mut config.path);
            config
        };
        use Personality::{Generic, Ids, Iis60, Minimal};
        type Row<'a> = (&'a dyn Fn(&mut PathConfig), Personality, &'a [u8], &'a [u8]);
        let rows: &[Row<'_>] = &[
            (&|p| p.backslash = true, Minimal, b"/a\\b%5cc%2fd", b"/a/b%5cc%2fd"),
            (&|p| p.backslash = false, Ids, b"/a\\b%5cc%2fd", b"/a\\b\\c/d"),
            (&|p| p.decode_separators = true, Minimal, b"/a\\b%5cc%2fd", b"/a\\b\\c/d"),
            (&|p| p.decode_separators = false, Ids, b"/a\\b%5cc%2fd%u002f%u005c", b"/a/b%5cc%2fd/"),
            (&|p| p.lowercase = true, Ids, b"/A%41%uff21?A#B", b"/aaa?A#B"),
            (&|p| p.lowercase = true, Generic, b"/A%41%uff21?A#B", b"/aa%uff21?A#B"),
            (&|p| p.nul_encoded_ends = true, Ids, b"/a%00b?c%00d", b"/a?c\0d"),
            (&|p| p.nul_encoded_ends = true, Ids, b"/a%u0000b?c", b"/a\0b?c"),
            (&|p| p.nul_raw_ends = true, Ids, b"/a\0b?c", b"/a?c"),
            (&|p| p.compress = false, Ids, b"/a//b%2f/", b"/a//b//"),
            (&|p| p.u_encoding = true, Minimal, b"/%u0041%u00e9%u0100", b"/A\xe9A"),
            (&|p| p.utf8_best_fit = true, Iis60, b"/%c3%a9%c0%af%u0100", b"/\xe9/A"),
            (&|p| p.replacement = b'x', Ids, b"/%u4000%e4%80%80%c3", b"/xx"),
            (&|p| p.invalid = InvalidEncoding::Remove, Ids, b"/a%zzb%4%u00zz%u1%", b"/azzb4u00zzu1"),
            (&|p| p.invalid = InvalidEncoding::Decode, Ids, b"/a%zzb%4%u00zz%u1%", b"/aSb5u00zz%u1%"),
            (&|p| p.invalid = InvalidEncoding::Decode, Minimal, b"/a%zzb%4%u00zz%u1%", b"/aSb5u00zz\xe1%"),
        ];
        for (f, p, raw, want) in rows {
            table(&change(f, *p), &[(raw, want)]);
        }
    }

    #[test]
    fn decoded_twice() {
        let config = ServerConfig { double_decode_path: true, double_decode_query: true, ..ServerConfig::default() };
        for (raw, want, flag) in [
            (&b"/a%252fb?c%2541"[..], &b"/a/b?cA"[..], true),
            (b"/a%2541/..%255cb", b"/aA/..\\b", true),
            (b"/%252e%252e/b", b"/../b", true),
            (b"/%25c0%25af", b"/\xc0\xaf", true),
            (b"/a%252525", b"/a%25", true),
            (b"/a#%2541", b"/a#%41", false),
            (b"/a%25u0041", b"/a%u0041", false),
            (b"/a%25zz", b"/a%zz", false),
            (b"/evil%2527sqli", b"/evil'sqli", true),
        ] {
            let (got, flags) = norm(raw, &config);
            assert_eq!((got.as_slice(), flags.double_encoded), (want, flag), "{}", raw.escape_ascii());
        }
        assert!(!norm(b"/evil%2527sqli", &ServerConfig::default()).1.double_encoded);
    }

    #[test]
    fn absolute() {
        table(
            &ServerConfig::default(),
            &[
                (b"http://User:pw@Host.COM:80/a%41?b", b"/aA?b"),
                (b"http://host", b""),
                (b"http://host?x", b"?x"),
                (b"http://h/#f", b"/#f"),
                (b"ftp://x/y", b"/y"),
                (b"HTTP://Host/x/../y", b"/y"),
                (b"http:/x", b"/x"),
                (b"http:x", b"x"),
                (b"host:80", b"80"),
                (b"//host/p", b"/host/p"),
                (b"a/b:c/d", b"c/d"),
                (b"a?b:c", b"c"),
                (b"http:///h/x", b"/h/x"),
                (b"http://h\\x", b""),
                (b"http://u@h:80?x/@y", b"?x/@y"),
            ],
        );
        let all = ServerConfig { uri_include_all: true, plus_as_space: true, ..ServerConfig::default() };
        table(
            &all,
            &[
                (b"http://User:pw@Host.COM:80/a%41?b#c", b"http://User:pw@host.com/aA?b#c"),
                (b"/a?b+c%2b", b"/a?b c+"),
                (b"/a+b", b"/a+b"),
                (b"http://[::1]:99/x", b"http://[::1]/x"),
                (b"HTTP://Host./a%41", b"http://host/aA"),
                (b"http:///x", b"http:///x"),
                (b"http:////h", b"http:///h"),
                (b"http://u:@h:99/x", b"http://u:@h/x"),
                (b"http://@h/x", b"http://:@h/x"),
                (b"http://:80/x", b"http:///x"),
                (b"http://a%41/x", b"http://aa/x"),
                (b"://h/x", b"://h/x"),
                (b"host:80", b"host://80"),
            ],
        );
        assert!(norm(b"http://a,b/x", &all).1.host_invalid);
    }

    proptest! {
        #[test]
        fn never_panics_nor_grows(raw in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'u'),
            Just(b'2'), Just(b'f'), Just(b':'), any::<u8>()], 0..200), p in 0usize..10, bits in any::<u16>())
        {
            let mut config = personality(Personality::NAMES[p].1);
            config.double_decode_path = bits & 1 != 0;
            config.double_decode_query = bits & 2 != 0;
            config.plus_as_space = bits & 4 != 0;
            config.path.lowercase = bits & 8 != 0;
            config.path.invalid =
                [InvalidEncoding::Preserve, InvalidEncoding::Remove, InvalidEncoding::Decode][usize::from(bits >> 4 & 3) % 3];
            prop_assert!(norm(&raw, &config).0.len() <= raw.len());
            config.uri_include_all = true;
            prop_assert!(norm(&raw, &config).0.len() <= raw.len() + 3);
        }

        #[test]
        fn parts_are_in_order(raw in "[a:/?#@\\[\\]0-9]{0,30}") {
            let uri = split(raw.as_bytes());
            let total: usize = [uri.scheme, uri.userinfo, uri.host, uri.port, uri.path, uri.query, uri.fragment]
                .iter().flatten().map(|p| p.len()).sum();
            prop_assert!(total <= raw.len());
        }
    }
}
