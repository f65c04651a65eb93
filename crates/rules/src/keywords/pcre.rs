//! `pcre`: delimiters, options and captures. The expression itself is only checked for its structure; compilation
//! decides whether it is valid.

use margay_app::Form;

use super::{Buffer, Keyword, declared};
use crate::ast::{BufferCheck, CaptureKind, Pcre};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};

pub(super) const KEYWORDS: &[Keyword] =
    &[Keyword::quoted(&["pcre"], pcre).or_unquoted().negatable().about("a regular expression")];

const M: &str = "detect-pcre";

/// The buffer for an option letter.
fn http_buffer(letter: char) -> Option<&'static Buffer> {
    match letter {
        'Q' => Some(&super::app::FILE_DATA),
        letter => declared::of_letter(letter),
    }
}

fn pcre(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    let text = i.text.as_ref();
    let bad = || Fail::new(M, format!("pcre parse error: {text}"));
    let (open, body) = match text.strip_prefix('m') {
        Some(rest) => {
            let c = rest.chars().next().filter(char::is_ascii_punctuation).ok_or_else(bad)?;
            (c, rest.get(1..).unwrap_or_default())
        }
        None => ('/', text.strip_prefix('/').ok_or_else(bad)?),
    };
    let (pattern, tail) = split_at_end(body, open).ok_or_else(bad)?;
    let (letters, names) = match tail.split_once(',') {
        Some((l, n)) => (l.trim(), Some(n)),
        None => (tail.trim(), None),
    };
    let mut p = Pcre {
        pattern: pattern.to_owned(),
        negated: i.negated,
        options: String::new(),
        relative: false,
        raw: false,
        override_limits: false,
        captures: Vec::new(),
    };
    let buffer = modifiers(&mut p, letters)?;
    let shape = shape(pattern, text)?;
    captures(&mut p.captures, names, &shape, tail)?;
    let group = match buffer {
        Some(info) => {
            super::need_protocol(b, info.protocols, "pcre");
            let selected = b.current.and_then(|g| b.groups.get(g)).map(|g| g.checks.buffer.as_str());
            // The buffer for Q has two names.
            let body = is_body(info) && selected == Some("http.response_body");
            if b.current.is_some() && selected != Some(info.name) && !body {
                return fail(
                    M,
                    format!(
                        "Expression seen with a sticky buffer still set; either (1) reset sticky buffer with pkt_data \
                         or (2) use a sticky buffer providing \"{}\".",
                        info.description
                    ),
                );
            }
            b.note(info)?;
            match b.current {
                Some(c) => c,
                None => b.group_of(info.name, Some(info)),
            }
        }
        None => match b.current {
            Some(c) => c,
            None => b.payload(),
        },
    };
    if p.relative && b.current.is_none() {
        let base64 = b.base64.map(|x| x.1);
        let list = b.list(group, base64);
        let before =
            list.is_some_and(|l| l.iter().any(|c| matches!(c, BufferCheck::Content(_) | BufferCheck::Pcre(_))));
        if !before {
            return fail(M, "pcre with /R (relative) needs preceding match in the same buffer");
        }
    }
    b.add(group, BufferCheck::Pcre(p));
    Ok(())
}

/// The expression and what follows it. The names of captures may have the delimiter in them (`flow:ua/ubuntu/repo`), so
/// the first one before a list of captures ends the expression; without a list it is the last of all.
fn split_at_end(body: &str, delimiter: char) -> Option<(&str, &str)> {
    let parts = |at: usize| Some((body.get(..at)?, body.get(at + delimiter.len_utf8()..)?));
    let names_captures = |tail: &str| {
        tail.split_once(',').is_some_and(|(letters, names)| {
            letters.trim().bytes().all(|c| c.is_ascii_alphabetic())
                && ["flow:", "pkt:", "alert:"].iter().any(|k| names.trim_start().starts_with(k))
        })
    };
    let list = body.match_indices(delimiter).filter_map(|(at, _)| parts(at)).find(|(_, tail)| names_captures(tail));
    list.or_else(|| parts(body.rfind(delimiter)?))
}

/// Applies the letters after the expression. Returns the buffer that one of them names.
fn modifiers(p: &mut Pcre, letters: &str) -> Result<Option<&'static Buffer>, Fail> {
    let mut buffer: Option<&'static Buffer> = None;
    for c in letters.chars() {
        match c {
            'A' | 'E' | 'G' | 'i' | 'm' | 's' | 'x' => {
                if !p.options.contains(c) {
                    p.options.push(c);
                }
            }
            'R' => p.relative = true,
            'O' => p.override_limits = true,
            'B' => {
                if buffer.is_some() {
                    return fail(M, "regex modifier 'B' inconsistent with an http buffer modifier");
                }
                p.raw = true;
            }
            _ => {
                let Some(new) = http_buffer(c) else {
                    return fail(M, format!("unknown regex modifier '{c}'"));
                };
                if p.raw {
                    return fail(M, format!("regex modifier '{c}' inconsistent with 'B'"));
                }
                if buffer.is_some() {
                    return fail(M, "only one pcre option to specify a buffer type is allowed");
                }
                buffer = Some(new);
            }
        }
    }
    if buffer.is_some_and(|b| b.form == Form::Host) && !p.options.contains('i') && has_upper_case(&p.pattern) {
        return fail(
            M,
            "pcre host(\"W\") specified has an uppercase char.  Since the hostname buffer we match against is actually \
             lowercase, please specify an all lowercase based pcre.",
        );
    }
    Ok(buffer)
}

/// Whether an expression has an upper-case letter that is not part of an escape sequence.
fn has_upper_case(pattern: &str) -> bool {
    let mut escaped = false;
    pattern.bytes().any(|c| {
        let found = !escaped && c.is_ascii_uppercase();
        escaped = !escaped && c == b'\\';
        found
    })
}

/// Whether a buffer is the one for `Q`.
fn is_body(info: &Buffer) -> bool {
    info.name == super::app::FILE_DATA.name
}

/// The structure of an expression.
struct Shape {
    /// Capturing groups.
    groups: usize,
    /// Named groups, in order.
    named: Vec<(usize, String)>,
}

/// Counts capturing groups, and rejects expressions that no engine would compile.
fn shape(pattern: &str, whole: &str) -> Result<Shape, Fail> {
    let broken = |at: usize, why: &str| -> Result<Shape, Fail> {
        fail(M, format!("pcre2 compile of \"{whole}\" failed at offset {at}: {why}"))
    };
    let b = pattern.as_bytes();
    let (mut s, mut depth, mut k) = (Shape { groups: 0, named: Vec::new() }, 0usize, 0);
    let mut quoted = false;
    while let Some(&c) = b.get(k) {
        if quoted {
            if b.get(k..k + 2) == Some(b"\\E") {
                quoted = false;
                k += 1;
            }
            k += 1;
            continue;
        }
        match c {
            b'\\' => {
                match b.get(k + 1) {
                    None => return broken(b.len(), "\\ at end of pattern"),
                    Some(b'Q') => quoted = true,
                    Some(_) => {}
                }
                k += 1;
            }
            b'[' => {
                k += 1;
                if b.get(k) == Some(&b'^') {
                    k += 1;
                }
                if b.get(k) == Some(&b']') {
                    k += 1;
                }
                loop {
                    match b.get(k) {
                        None => {
                            return broken(b.len(), "missing terminating ] for character class");
                        }
                        Some(b']') => break,
                        Some(b'\\') => k += 2,
                        Some(b'[') if b.get(k + 1) == Some(&b':') => {
                            // [:alpha:] ends at its own :]; a lone [: is not a class.
                            let rest = b.get(k + 2..).unwrap_or_default();
                            match rest.windows(2).position(|w| w == b":]") {
                                Some(n) if rest.iter().take(n).all(|c| c.is_ascii_alphabetic() || *c == b'^') => {
                                    k += n + 4
                                }
                                _ => k += 1,
                            }
                        }
                        Some(_) => k += 1,
                    }
                }
            }
            b'(' => {
                depth += 1;
                let rest = b.get(k + 1..).unwrap_or_default();
                if let Some(after) = rest.strip_prefix(b"?") {
                    if after.first() == Some(&b'#') {
                        match after.iter().position(|&c| c == b')') {
                            Some(n) => {
                                k += n + 2;
                                depth -= 1;
                            }
                            None => return broken(b.len(), "missing ) after (?# comment"),
                        }
                    } else if let Some(name) = name_of_group(after) {
                        s.groups += 1;
                        s.named.push((s.groups, name));
                    }
                } else if !rest.starts_with(b"*") {
                    s.groups += 1;
                }
            }
            b'*' | b'+' | b'?' if k == 0 => return broken(0, "quantifier does not follow a repeatable item"),
            b')' => match depth.checked_sub(1) {
                Some(d) => depth = d,
                None => return broken(k, "unmatched closing parenthesis"),
            },
            _ => {}
        }
        k += 1;
    }
    if depth > 0 {
        return broken(b.len(), "missing closing parenthesis");
    }
    Ok(s)
}

/// The name in `P<name>`, `<name>` or `'name'`.
fn name_of_group(after: &[u8]) -> Option<String> {
    let t = after.strip_prefix(b"P").unwrap_or(after);
    let (rest, end) = match t.first()? {
        b'<' => (t.get(1..)?, b'>'),
        b'\'' => (t.get(1..)?, b'\''),
        _ => return None,
    };
    let n = rest.iter().position(|&c| c == end)?;
    let name = rest.get(..n)?;
    // `(?<=` and `(?<!` are lookbehinds.
    if name.is_empty() || !name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_') {
        return None;
    }
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The variables of an expression: the listed names for its first groups, then the groups that are named after a variable.
fn captures(out: &mut Vec<(CaptureKind, String)>, names: Option<&str>, shape: &Shape, tail: &str) -> Result<(), Fail> {
    for n in names.into_iter().flat_map(|n| n.split(',')) {
        let (kind, name) = match n.trim().split_once(':') {
            Some(("flow", n)) => (CaptureKind::Flow, n),
            Some(("pkt", n)) => (CaptureKind::Packet, n),
            Some(("alert", n)) => (CaptureKind::Alert, n),
            _ => {
                return fail(
                    M,
                    format!(
                        "unknown regex modifier ','; captures are flow:name, pkt:name or alert:name, found \"{tail}\""
                    ),
                );
            }
        };
        let name = name.trim();
        if name.is_empty() {
            return fail(M, "a capture has no name");
        }
        // As in Suricata, an expression without captures may name one; nothing ever sets it.
        if shape.groups == 0 && out.is_empty() && names.is_some_and(|n| !n.contains(',')) {
            return Ok(());
        }
        if out.len() >= shape.groups {
            return fail(M, "more pkt/flow var capture names than capturing substrings");
        }
        out.push((kind, name.to_owned()));
    }
    for (group, n) in &shape.named {
        let kind = [("flow_", CaptureKind::Flow), ("pkt_", CaptureKind::Packet), ("alert_", CaptureKind::Alert)];
        if let Some((name, kind)) = kind.iter().find_map(|(x, k)| n.strip_prefix(x).map(|n| (n, *k)))
            && *group > out.len()
        {
            out.resize_with(group - 1, || (CaptureKind::Alert, String::new()));
            out.push((kind, name.to_owned()));
        }
    }
    Ok(())
}

/// Whether a transform's expression has exactly one capturing group.
pub(super) fn one_capture(pattern: &str) -> Result<(), Fail> {
    const M: &str = "detect-transform-pcrexform";
    let s = shape(pattern, pattern).map_err(|mut f| {
        for m in &mut f.messages {
            m.module = M;
        }
        f
    })?;
    if s.groups != 1 {
        return fail(M, format!("pcrexform needs exactly one substring capture, found {}", s.groups));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_their_numbers() {
        for (body, want) in [
            ("(?P<flow_x>a)(b)", &["x"][..]),
            ("(a)(?P<flow_x>b)", &["", "x"]),
            ("(a)(?<foo>b)(?P<flow_y>c)", &["", "", "y"]),
            ("(a)(?P<flow_x>b)(c)/, flow:u", &["u", "x"]),
            ("(?P<flow_x>a)(b)/, flow:u, flow:v", &["u", "v"]),
        ] {
            let (pattern, names) = body.split_once("/, ").map_or((body, None), |(p, n)| (p, Some(n)));
            let mut out = Vec::new();
            captures(&mut out, names, &shape(pattern, pattern).unwrap(), "").unwrap();
            assert_eq!(out.iter().map(|c| c.1.as_str()).collect::<Vec<_>>(), want, "{body}");
        }
    }

    #[test]
    fn names_of_captures_may_have_the_delimiter() {
        for (body, pattern, tail) in [
            ("(a)/U", "(a)", "U"),
            (r"\/(a)\/(b)/UR, flow:ua/ubuntu/repo,flow:ua/pkg", r"\/(a)\/(b)", "UR, flow:ua/ubuntu/repo,flow:ua/pkg"),
            ("(a)(b)/, alert:one/x, pkt:two/y", "(a)(b)", ", alert:one/x, pkt:two/y"),
            ("a/b,c/i", "a/b,c", "i"),
            ("a/, U/", "a/, U", ""),
        ] {
            assert_eq!(split_at_end(body, '/'), Some((pattern, tail)), "{body}");
        }
        assert_eq!(split_at_end("a", '/'), None);
    }

    #[test]
    fn shapes() {
        let groups = |p| shape(p, p).map(|s| s.groups);
        assert_eq!(groups(r"(a)(?:b)(?P<flow_x>c)\((?<=d)(?<y>e)").unwrap(), 3);
        assert_eq!(groups(r"[(][])][^])(][[:alpha:](]").unwrap(), 0);
        assert_eq!(groups(r"\Q(((\E").unwrap(), 0);
        assert_eq!(groups(r"(?i)(?#(()a").unwrap(), 0);
        assert_eq!(groups(r"(*UTF8)a").unwrap(), 0);
        for bad in ["(a", "a)", "[a", "a\\", "(?#a"] {
            assert!(groups(bad).is_err(), "{bad}");
        }
    }
}
