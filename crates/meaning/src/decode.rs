//! Decodes values as servers, browsers and interpreters do. Each function appends its result to `out`.
//!
//! Text without escapes stays unchanged. A result is at most four thirds as long as the input, and the work is linear in
//! its length.

use std::borrow::Cow;

/// A decoding that rules can use as a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decoding {
    /// [`url_decode_recursive`]
    UrlRecursive,
    /// [`html_entity_decode`]
    HtmlEntity,
    /// [`js_decode`]
    Js,
    /// [`utf8_normalise`]
    Utf8,
    /// [`remove_comments`]
    Comments,
    /// [`shell_unescape`]
    Shell,
    /// [`path_normalise`]
    Path,
    /// [`base64_plausible`]; implausible input stays unchanged.
    Base64,
    /// [`canonical`]
    Canonical,
}

impl Decoding {
    /// All decodings.
    pub const ALL: [Decoding; 9] = [
        Decoding::UrlRecursive,
        Decoding::HtmlEntity,
        Decoding::Js,
        Decoding::Utf8,
        Decoding::Comments,
        Decoding::Shell,
        Decoding::Path,
        Decoding::Base64,
        Decoding::Canonical,
    ];

    /// The decoding's name in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Decoding::UrlRecursive => "url_decode_recursive",
            Decoding::HtmlEntity => "html_entity_decode",
            Decoding::Js => "js_decode",
            Decoding::Utf8 => "utf8_normalise",
            Decoding::Comments => "remove_comments",
            Decoding::Shell => "shell_unescape",
            Decoding::Path => "path_normalise",
            Decoding::Base64 => "base64_decode_plausible",
            Decoding::Canonical => "canonicalise",
        }
    }

    /// Appends the decoded `data` to `out`.
    pub fn run(self, data: &[u8], out: &mut Vec<u8>) {
        match self {
            Decoding::UrlRecursive => url_decode_recursive(data, out),
            Decoding::HtmlEntity => html_entity_decode(data, out),
            Decoding::Js => js_decode(data, out),
            Decoding::Utf8 => utf8_normalise(data, out),
            Decoding::Comments => remove_comments(data, out),
            Decoding::Shell => shell_unescape(data, out),
            Decoding::Path => path_normalise(data, out),
            Decoding::Base64 => {
                if !base64_plausible(data, out) {
                    out.extend_from_slice(data);
                }
            }
            Decoding::Canonical => canonical(data, out),
        }
    }
}

/// Rounds of [`canonical`], and of repeated percent decoding.
const ROUNDS: usize = 4;

pub(crate) fn hex(data: &[u8], at: usize, digits: usize) -> Option<u32> {
    data.get(at..at + digits)?.iter().try_fold(0, |n, &b| Some(n << 4 | char::from(b).to_digit(16)?))
}

fn push_char(out: &mut Vec<u8>, code: u32) {
    match u8::try_from(code) {
        Ok(b) if b.is_ascii() => out.push(b),
        _ => {
            let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Decodes `%xx`, and `%uxxxx` as in old Microsoft servers; with `plus`, also `+` to a space.
pub fn percent_decode(data: &[u8], plus: bool, out: &mut Vec<u8>) {
    let other = if plus { b'+' } else { b'%' };
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        at += 1;
        match b {
            b'+' if plus => out.push(b' '),
            b'%' => {
                if let Some(byte) = hex(data, at, 2) {
                    out.push(byte as u8);
                    at += 2;
                } else if let (Some(b'u' | b'U'), Some(code)) = (data.get(at), hex(data, at + 1, 4)) {
                    push_char(out, code);
                    at += 5;
                } else {
                    out.push(b);
                }
            }
            _ => {
                // Most of a value needs no decoding.
                let rest = data.get(at - 1..).unwrap_or(&[]);
                let plain = memchr::memchr2(b'%', other, rest).unwrap_or(rest.len());
                out.extend_from_slice(rest.get(..plain).unwrap_or(&[]));
                at += plain - 1;
            }
        }
    }
}

/// Decodes percent signs until none are left, at most four times.
pub fn url_decode_recursive(data: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    percent_decode(data, false, out);
    let mut last = data.len();
    for _ in 1..ROUNDS {
        if out.len() - start == last || !out.get(start..).is_some_and(|d| d.contains(&b'%')) {
            break;
        }
        last = out.len() - start;
        let before = out.split_off(start);
        percent_decode(&before, false, out);
    }
}

/// HTML entity names that matter to syntax.
const ENTITIES: &[(&str, u32)] = &[
    ("amp", 38),
    ("apos", 39),
    ("ast", 42),
    ("bsol", 92),
    ("colon", 58),
    ("comma", 44),
    ("commat", 64),
    ("dollar", 36),
    ("equals", 61),
    ("excl", 33),
    ("grave", 96),
    ("gt", 62),
    ("hat", 94),
    ("lbrace", 123),
    ("lbrack", 91),
    ("lcub", 123),
    ("lowbar", 95),
    ("lpar", 40),
    ("lsqb", 91),
    ("lt", 60),
    ("nbsp", 32),
    ("newline", 10),
    ("num", 35),
    ("percnt", 37),
    ("period", 46),
    ("plus", 43),
    ("quest", 63),
    ("quot", 34),
    ("rbrace", 125),
    ("rbrack", 93),
    ("rcub", 125),
    ("rpar", 41),
    ("rsqb", 93),
    ("semi", 59),
    ("sol", 47),
    ("tab", 9),
    ("verbar", 124),
    ("vert", 124),
];
/// Longest entity name.
const ENTITY_MAX: usize = 8;
/// Most digits of a numeric entity: browsers accept any number of leading zeros.
const ENTITY_DIGITS: usize = 64;

/// Appends the character of the entity at the start of `data`; returns the entity's length. The semicolon is optional.
pub(crate) fn entity(data: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let rest = data.strip_prefix(b"&")?;
    let semicolon = |len: usize| len + usize::from(data.get(len) == Some(&b';'));
    if let Some(number) = rest.strip_prefix(b"#") {
        let (radix, digits) = match number.first() {
            Some(b'x' | b'X') => (16, number.get(1..)?),
            _ => (10, number),
        };
        let count = digits.iter().take(ENTITY_DIGITS).take_while(|&&b| char::from(b).is_digit(radix)).count();
        if count == 0 {
            return None;
        }
        let code = digits
            .iter()
            .take(count)
            .fold(0_u32, |n, &b| n.saturating_mul(radix).saturating_add(char::from(b).to_digit(radix).unwrap_or(0)));
        push_char(out, code);
        return Some(semicolon(data.len() - digits.len() + count));
    }
    let count = rest.iter().take(ENTITY_MAX).take_while(|b| b.is_ascii_alphabetic()).count();
    let name = rest.get(..count)?.to_ascii_lowercase();
    let (_, code) = ENTITIES.iter().find(|(n, _)| n.as_bytes() == name)?;
    // A word that only begins like an entity is none.
    if rest.get(count) != Some(&b';') && rest.get(count).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    push_char(out, *code);
    Some(semicolon(1 + count))
}

/// Decodes `&lt;`, `&#60;`, `&#x3c;`.
pub fn html_entity_decode(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        match (b == b'&').then(|| entity(data.get(at..).unwrap_or(&[]), out)).flatten() {
            Some(len) => at += len,
            None => {
                out.push(b);
                at += 1;
            }
        }
    }
}

/// Decodes `\xXX`, `\uXXXX`, `\u{X}` and `\NNN` of JavaScript (ECMA-262, section 12.9.4). One-letter escapes stay: they
/// are more often part of a Windows path.
pub fn js_decode(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        at += 1;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let octal = || {
            let digits = data.get(at..at + 3)?;
            let n = digits.iter().try_fold(0_u32, |n, &b| Some(n << 3 | char::from(b).to_digit(8)?))?;
            (32..127).contains(&n).then_some(n)
        };
        match data.get(at) {
            Some(b'x') if hex(data, at + 1, 2).is_some() => {
                push_char(out, hex(data, at + 1, 2).unwrap_or(0));
                at += 3;
            }
            Some(b'u') if hex(data, at + 1, 4).is_some() => {
                push_char(out, hex(data, at + 1, 4).unwrap_or(0));
                at += 5;
            }
            Some(b'u') if data.get(at + 1) == Some(&b'{') => {
                let digits = data.iter().skip(at + 2).take(6).take_while(|b| b.is_ascii_hexdigit()).count();
                match hex(data, at + 2, digits) {
                    Some(code) if digits > 0 && data.get(at + 2 + digits) == Some(&b'}') => {
                        push_char(out, code);
                        at += 3 + digits;
                    }
                    _ => out.push(b),
                }
            }
            Some(b'0'..=b'7') if octal().is_some() => {
                push_char(out, octal().unwrap_or(0));
                at += 3;
            }
            _ => out.push(b),
        }
    }
}

/// Converts UTF-8 like lenient decoders and best-fit tables: overlong forms, full-width letters, typographic quotes and
/// slashes become ASCII, and all kinds of spaces become a space. Zero-width characters and null bytes are removed.
pub fn utf8_normalise(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        at += 1;
        let tail = |n: usize| data.get(at + n).copied().filter(|b| b & 0xc0 == 0x80).map(|b| u32::from(b & 0x3f));
        match b {
            0 => {}
            1..=0x7f => out.push(b),
            0xc0..=0xdf if let Some(low) = tail(0) => {
                at += 1;
                fit(out, u32::from(b & 0x1f) << 6 | low);
            }
            // An invalid sequence that some decoders accept as a character.
            0xc0 | 0xc1 if let Some(&low) = data.get(at).filter(|b| b.is_ascii()) => {
                at += 1;
                fit(out, u32::from(b & 0x1f) << 6 | u32::from(low & 0x3f));
            }
            0xe0..=0xef if let (Some(middle), Some(low)) = (tail(0), tail(1)) => {
                at += 2;
                fit(out, u32::from(b & 0x0f) << 12 | middle << 6 | low);
            }
            0xf0..=0xf7 if let (Some(a), Some(middle), Some(low)) = (tail(0), tail(1), tail(2)) => {
                at += 3;
                fit(out, u32::from(b & 0x07) << 18 | a << 12 | middle << 6 | low);
            }
            _ => out.push(b),
        }
    }
}

/// Appends the best-fit replacement of a character.
fn fit(out: &mut Vec<u8>, code: u32) {
    let ascii = match code {
        0 | 0xad | 0x200b..=0x200f | 0x2060 | 0xfeff => return,
        0x01..=0x7f => code,
        0xff01..=0xff5e => code - 0xfee0,
        0xa0 | 0x1680 | 0x2000..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000 => 0x20,
        0xb4 | 0x2b9 | 0x2bc | 0x2c8 | 0x2018..=0x201b | 0x2032 | 0x275b | 0x275c => 0x27,
        0x2ba | 0x201c..=0x201f | 0x2033 | 0x275d | 0x275e => 0x22,
        0x2044 | 0x2215 => 0x2f,
        0x2216 | 0x29f5 => 0x5c,
        0x2024 | 0xb7 => 0x2e,
        0x2039 | 0x3008 | 0x276c => 0x3c,
        0x203a | 0x3009 | 0x276d => 0x3e,
        0x2474..=0x247c => code - 0x2474 + 0x31,
        // Letters and digits in circles.
        0x2460..=0x2468 => code - 0x2460 + 0x31,
        0x24b6..=0x24cf => code - 0x24b6 + 0x61,
        0x24d0..=0x24e9 => code - 0x24d0 + 0x61,
        0x24ea => 0x30,
        0x3002 | 0xff61 => 0x2e,
        _ => return push_char(out, code),
    };
    out.push(ascii as u8);
}

/// Replaces `/* … */` by a space, or by nothing between letters. Comments that MySQL executes (`/*!50000 … */`) keep
/// their content.
pub fn remove_comments(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        if b == b'/' && data.get(at + 1) == Some(&b'*') {
            at += 2;
            if data.get(at) == Some(&b'!') {
                at += 1;
                at += data.iter().skip(at).take_while(|b| b.is_ascii_digit()).count();
                out.push(b' ');
                continue;
            }
            let rest = data.get(at..).unwrap_or(&[]);
            at += memchr::memmem::find(rest, b"*/").map_or(rest.len(), |i| i + 2);
            out.push(b' ');
        } else if b == b'*' && data.get(at + 1) == Some(&b'/') {
            at += 2;
            out.push(b' ');
        } else {
            out.push(b);
            at += 1;
        }
    }
}

/// Removes what a shell removes: quotes, backslashes, carets of the Windows shell, and variables that are empty or a
/// space (`$IFS`, `$@`, `$*`, `$1`).
pub fn shell_unescape(data: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&b) = data.get(at) {
        at += 1;
        match b {
            b'\'' | b'"' | b'^' => {}
            b'\\' => match data.get(at) {
                Some(b'\n') => at += 1,
                // Escaped once more, as in a string of JSON.
                Some(b'\\') if data.get(at + 1).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'/') => at += 1,
                Some(&c) if c.is_ascii_alphanumeric() || c == b'/' || c == b'-' || c == b'.' => {}
                _ => out.push(b),
            },
            b'$' => {
                let rest = data.get(at..).unwrap_or(&[]);
                if let Some(after) = rest.strip_prefix(b"{IFS") {
                    at += 4 + memchr::memchr(b'}', after).map_or(0, |i| i + 1);
                    out.push(b' ');
                } else if rest.starts_with(b"IFS") {
                    at += 3;
                    if rest.get(3) == Some(&b'$') && rest.get(4).is_some_and(u8::is_ascii_digit) {
                        at += 2;
                    }
                    out.push(b' ');
                } else if matches!(rest.first(), Some(b'@' | b'*' | b'!' | b'?' | b'-' | b'$' | b'_'))
                    || rest.first().is_some_and(u8::is_ascii_digit)
                {
                    at += 1;
                } else if matches!(rest, [b'a'..=b'z', next, ..] if matches!(next, b' ' | b'/' | b'+' | b'|' | b';'))
                    || matches!(rest, [b'a'..=b'z'])
                {
                    // `cat$u /etc$u/passwd$u`: nobody has set it.
                    at += 1;
                } else if matches!(rest.get(..2), Some(b"()" | b"''" | b"\"\"")) || rest.starts_with(b"{}") {
                    at += 2;
                } else {
                    out.push(b);
                }
            }
            b'`' if data.get(at) == Some(&b'`') => at += 1,
            _ => out.push(b),
        }
    }
}

/// Converts backslashes to slashes, and repeated slashes and `/./` to a single slash. Parent references (`..`) stay.
pub fn path_normalise(data: &[u8], out: &mut Vec<u8>) {
    // Nothing is left out or replaced without one of these, which most values do not have.
    let shortens = has_pair(data, |a, b| b == b'/' && (a == b'/' || a == b'.'));
    if !shortens && memchr::memchr(b'\\', data).is_none() {
        out.extend_from_slice(data);
        return;
    }
    let start = out.len();
    for &b in data {
        let b = if b == b'\\' { b'/' } else { b };
        let so_far = out.get(start..).unwrap_or(&[]);
        if b == b'/' && so_far.ends_with(b"/") {
            continue;
        }
        if b == b'/' && (so_far.ends_with(b"/.") || so_far == b".") {
            out.pop();
            if out.len() == start {
                out.push(b'/');
            }
            continue;
        }
        out.push(b);
    }
}

/// Minimum length of Base64 text.
const BASE64_MIN: usize = 12;

/// Decodes Base64 if it is plausible: at least twelve characters, all from its alphabet, and the result is text. Returns
/// whether it was.
pub fn base64_plausible(data: &[u8], out: &mut Vec<u8>) -> bool {
    let text = data.trim_ascii();
    let body = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    if text.len() < BASE64_MIN || body.len() % 4 == 1 {
        return false;
    }
    // At most one byte in twenty of the result is not text.
    let (mut others, most) = (0, body.len() * 6 / 8 / 20);
    let is_text = |b: u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e);
    // Nearly all values fail, so this pass writes nothing.
    let plausible = decoded(body).all(|part| {
        others += part.as_ref().map_or(0, |(bytes, len)| bytes.iter().take(*len).filter(|b| !is_text(**b)).count());
        part.is_some() && others <= most
    });
    if plausible {
        decoded(body).flatten().for_each(|(bytes, len)| out.extend(bytes.iter().take(len)));
    }
    plausible
}

/// Appends decoded Base64 without its line ends and other foreign characters (RFC 2045, section 6.8). It ends with the first
/// padding.
pub(crate) fn base64(data: &[u8], out: &mut Vec<u8>) {
    let end = memchr::memchr(b'=', data).unwrap_or(data.len());
    let digits = data.get(..end).unwrap_or(data).iter().filter(|&&b| b != b' ' && DIGITS[usize::from(b)] != NO_DIGIT);
    let digits: Vec<u8> = digits.copied().collect();
    decoded(&digits).flatten().for_each(|(bytes, len)| out.extend(bytes.iter().take(len)));
}

/// The value of each character of Base64, in both alphabets; a plus may have become a space. Others have [`NO_DIGIT`].
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 26 {
        digits[(b'A' + value) as usize] = value;
        digits[(b'a' + value) as usize] = 26 + value;
        if value < 10 {
            digits[(b'0' + value) as usize] = 52 + value;
        }
        value += 1;
    }
    (digits[b'+' as usize], digits[b'-' as usize], digits[b' ' as usize]) = (62, 62, 62);
    (digits[b'/' as usize], digits[b'_' as usize]) = (63, 63);
    digits
};
const NO_DIGIT: u8 = 0xff;

/// Decodes Base64 four characters at a time. Each item has the decoded bytes and their number, which is less than three only at
/// the end; it is `None` if a character is not in the alphabet.
fn decoded(body: &[u8]) -> impl Iterator<Item = Option<([u8; 3], usize)>> {
    let part = |four: [u8; 4], len: usize| {
        let [a, b, c, d] = four.map(|b| DIGITS[usize::from(b)]);
        let [_, x, y, z] = (u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d)).to_be_bytes();
        (a | b | c | d != NO_DIGIT).then_some(([x, y, z], len))
    };
    let (fours, rest) = body.as_chunks::<4>();
    let last = match *rest {
        [] => None,
        [a, b] => Some(part([a, b, b'A', b'A'], 1)),
        [a, b, c] => Some(part([a, b, c, b'A'], 2)),
        // No byte has fewer than two characters.
        _ => Some(None),
    };
    fours.iter().map(move |four| part(*four, 3)).chain(last)
}

/// Appends the decoded form of data.
type Decode = fn(&[u8], &mut Vec<u8>);

/// The escape characters that [`canonical`] decodes, in this order.
const ESCAPES: [(u8, Decode); 3] = [(b'%', url_decode_recursive), (b'&', html_entity_decode), (b'\\', js_decode)];

/// A value without its encodings, which are decoded until nothing changes, at most [`ROUNDS`] times.
fn decode_all(data: &[u8]) -> Cow<'_, [u8]> {
    let mut value = Cow::Borrowed(data);
    let mut next = Vec::new();
    for _ in 0..ROUNDS {
        let mut changed = false;
        let mut step = |value: &mut Cow<'_, [u8]>, f: Decode| {
            next.clear();
            f(value, &mut next);
            if **value != *next {
                changed = true;
                replace(value, &mut next);
            }
        };
        if memchr::memchr3(b'%', b'&', b'\\', &value).is_some() {
            for (escape, f) in ESCAPES {
                if memchr::memchr(escape, &value).is_some() {
                    step(&mut value, f);
                }
            }
        }
        if has(&value, |b| (b >= 0x80) | (b == 0)) {
            step(&mut value, utf8_normalise);
        }
        next.clear();
        if base64_plausible(&value, &mut next) {
            changed = true;
            replace(&mut value, &mut next);
        }
        if !changed {
            break;
        }
    }
    value
}

/// Makes `next` the value. It gets the buffer of the value before.
fn replace(value: &mut Cow<'_, [u8]>, next: &mut Vec<u8>) {
    let before = std::mem::replace(value, Cow::Owned(std::mem::take(next)));
    if let Cow::Owned(before) = before {
        *next = before;
    }
}

/// Converts the many encodings of a value to one form: percent signs, entities, JavaScript escapes, UTF-8 and Base64 are
/// decoded until nothing changes, at most four times. Letters become lower case. White space becomes a single space, or
/// a line end if it contains one.
pub fn canonical(data: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let value = decode_all(data);
    if has(&value, is_space) {
        spaces(&value, out);
    } else {
        out.extend_from_slice(&value);
    }
    out[start..].make_ascii_lowercase();
    debug_assert!(out.len() - start <= data.len() * 2 + 4, "grown");
}

/// White space. It has no branches, for [`has`].
fn is_space(b: u8) -> bool {
    (b == b' ') | (b.wrapping_sub(b'\t') < 5)
}

/// Appends `value` with each run of white space as one space, or as a line end if it contains one.
fn spaces(value: &[u8], out: &mut Vec<u8>) {
    let mut space = None;
    for part in value.chunks(PART) {
        // Nearly all parts have single spaces at most, which stay.
        let double = part.first() == Some(&b' ') && space.is_some() || has_pair(part, |a, b| a == b' ' && b == b' ');
        if !double && !has(part, |b| matches!(b, b'\t'..=b'\r')) {
            out.extend_from_slice(part);
            space = (part.last() == Some(&b' ')).then(|| out.len() - 1);
            continue;
        }
        for &b in part {
            match (b, space) {
                (b'\r' | b'\n', Some(at)) => out[at] = b'\n',
                (b, Some(_)) if is_space(b) => {}
                (b, None) if is_space(b) => {
                    space = Some(out.len());
                    out.push(if matches!(b, b'\r' | b'\n') { b'\n' } else { b' ' });
                }
                _ => {
                    space = None;
                    out.push(b);
                }
            }
        }
    }
}

/// Bytes that are tested or changed together.
const PART: usize = 64;

/// Whether one of the bytes is such. Parts are tested as a whole, which the compiler turns into a few vector instructions if it
/// knows their length, and if `is` has no branches (`|` and not `||`; `matches!` with several patterns may become a table).
pub(crate) fn has(data: &[u8], is: impl Fn(u8) -> bool) -> bool {
    // A number, because the compiler does not join truth values in vectors.
    let any = |part: &[u8]| part.iter().fold(0, |any, &b| any | u8::from(is(b))) != 0;
    let (parts, rest) = data.as_chunks::<PART>();
    let (short, rest) = rest.as_chunks::<16>();
    parts.iter().any(|part| any(part)) || short.iter().any(|part| any(part)) || any(rest)
}

/// Whether all bytes are letters or digits: most long values have no meaning to any interpreter.
pub(crate) fn is_word(data: &[u8]) -> bool {
    !has(data, |b| !b.is_ascii_alphanumeric())
}

/// Whether two neighbouring bytes are such. All of them are tested, for the same reason.
fn has_pair(data: &[u8], is: impl Fn(u8, u8) -> bool) -> bool {
    let behind = data.get(1..).unwrap_or(&[]);
    data.iter().zip(behind).fold(false, |any, (&a, &b)| any | is(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte at each place of each length.
    #[test]
    fn has_looks_at_every_byte() {
        for len in 0..3 * PART {
            let mut data = vec![b'a'; len];
            assert!(!has(&data, |b| b == b' ') && is_word(&data));
            for at in 0..len {
                data[at] = b' ';
                assert!(has(&data, |b| b == b' ') && !is_word(&data), "{at} of {len}");
                data[at] = b'a';
            }
        }
    }

    /// Whatever the length, plausible Base64 decodes to what was encoded, and a foreign character is found at every place.
    #[test]
    fn base64_of_every_length() {
        use base64::Engine;
        for len in 9..40 {
            let text: Vec<u8> = (0..len).map(|n| b'A' + n % 26).collect();
            for engine in [base64::engine::general_purpose::STANDARD, base64::engine::general_purpose::STANDARD_NO_PAD]
            {
                let mut encoded = engine.encode(&text).into_bytes();
                let mut out = b"before".to_vec();
                assert!(base64_plausible(&encoded, &mut out));
                assert_eq!(out, [&b"before"[..], &text].concat());
                for at in 1..encoded.len() - 3 {
                    let was = std::mem::replace(&mut encoded[at], b'!');
                    assert!(!base64_plausible(&encoded, &mut out), "{at} of {len}");
                    encoded[at] = was;
                }
                assert_eq!(out.len(), 6 + text.len());
            }
        }
        // One byte in twenty may be something else.
        let mut text = vec![b'x'; 40];
        (text[3], text[30]) = (1, 2);
        let encode = |text: &[u8]| base64::engine::general_purpose::STANDARD.encode(text).into_bytes();
        assert!(base64_plausible(&encode(&text), &mut Vec::new()));
        text[8] = 3;
        assert!(!base64_plausible(&encode(&text), &mut Vec::new()));
    }
}
