//! Files beside captures: rules, configurations, lists, scripts.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Seed;

/// Longest file to use, because longer ones slow a fuzzer down.
const TEXT_MAX: usize = 16 << 10;

/// Seeds of a file, by its name.
pub(super) fn cut(name: &str, text: &[u8], seen: &mut HashSet<u64>, out: &mut Vec<Seed>) {
    if name.ends_with(".rules") {
        rules(text, seen, out);
        return;
    }
    if text.len() > TEXT_MAX {
        return;
    }
    let which = |n: u8| [&[n], text].concat();
    if name.ends_with(".yaml") {
        out.extend([("config", text.to_vec()), ("include", text.to_vec())]);
    } else if name.ends_with(".lua") {
        out.push(("lua", text.to_vec()));
    } else if name.starts_with("classification") {
        out.push(("lists", which(0)));
    } else if name.starts_with("reference") {
        out.push(("lists", which(1)));
    } else if name.starts_with("threshold") {
        out.push(("lists", which(2)));
    } else if name.ends_with(".list") {
        out.push(("lists", which(3)));
    } else if [".csv", ".lst"].iter().any(|e| name.ends_with(e)) {
        // Use the file as strings, digests and addresses.
        out.extend((0..5).map(|n| ("datasets", which(n))));
    } else if name.ends_with(".json") {
        out.extend([5, 10].map(|n| ("datasets", which(n))));
    }
}

/// Rules with a new sequence of option names.
fn rules(text: &[u8], seen: &mut HashSet<u64>, out: &mut Vec<Seed>) {
    for line in text.split(|&b| b == b'\n') {
        let line = line.trim_ascii();
        let Some(open) = line.iter().position(|&b| b == b'(') else { continue };
        if line.starts_with(b"#") || line.len() > TEXT_MAX || !line.ends_with(b")") {
            continue;
        }
        let (header, options) = (&line[..open], &line[open + 1..line.len() - 1]);
        let options = split(options);
        let mut h = DefaultHasher::new();
        header.split(|b| *b == b' ').take(2).for_each(|w| w.hash(&mut h));
        for (name, value) in &options {
            name.hash(&mut h);
            // Many keywords have more options after commas.
            value.split(|&b| b == b',').skip(1).for_each(|v| v.trim_ascii().split(|&b| b == b' ').next().hash(&mut h));
        }
        if !seen.insert(h.finish()) {
            continue;
        }
        out.push(("rules", [line, b"\n"].concat()));
        let about: [&[u8]; 9] =
            [b"sid", b"rev", b"gid", b"msg", b"metadata", b"classtype", b"reference", b"flow", b"priority"];
        let kept = options.iter().filter(|(name, _)| !about.contains(name));
        let mut inspect: Vec<u8> = Vec::new();
        let mut payload = Vec::new();
        for (name, value) in kept {
            if !inspect.is_empty() {
                inspect.extend_from_slice(b"; ");
            }
            inspect.extend_from_slice(name);
            if !value.is_empty() {
                inspect.push(b':');
                inspect.extend_from_slice(value);
            }
            if *name == b"content" {
                content(value, &mut payload);
            }
        }
        inspect.push(b'\n');
        inspect.extend(payload);
        out.push(("inspect", inspect));
    }
}

/// The options of a rule: names and values.
fn split(text: &[u8]) -> Vec<(&[u8], &[u8])> {
    let (mut out, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, &b) in text.iter().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => {
                let option = text[start..at].trim_ascii();
                let colon = option.iter().position(|&b| b == b':').unwrap_or(option.len());
                out.push((option[..colon].trim_ascii(), option.get(colon + 1..).unwrap_or(&[]).trim_ascii()));
                start = at + 1;
            }
            _ => {}
        }
    }
    out
}

/// Appends the bytes that a `content` looks for.
fn content(value: &[u8], out: &mut Vec<u8>) {
    let Some(from) = value.iter().position(|&b| b == b'"') else { return };
    let mut hex: Option<Vec<u8>> = None;
    let mut escaped = false;
    for &b in &value[from + 1..] {
        match (&mut hex, b) {
            (Some(digits), b'|') => {
                let text = String::from_utf8_lossy(digits).into_owned();
                out.extend(text.split_whitespace().filter_map(|d| u8::from_str_radix(d, 16).ok()));
                hex = None;
            }
            (Some(digits), b) => digits.push(b),
            (None, b) if std::mem::take(&mut escaped) => out.push(b),
            (None, b'\\') => escaped = true,
            (None, b'|') => hex = Some(Vec::new()),
            (None, b'"') => return,
            (None, b) => out.push(b),
        }
    }
}
