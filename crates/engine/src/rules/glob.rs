//! Patterns for file names, as in the shell and in glob(3): `*`, `?` and `[…]` in any folder of the path.

use std::path::{Component, Path, PathBuf};

/// Limit of the paths that a pattern's folders may stand for.
const PATHS: usize = 100_000;

/// Adds the files that match the pattern, sorted by path. Adds nothing if it is no pattern.
pub(super) fn expand(pattern: &Path, out: &mut Vec<PathBuf>) {
    if !pattern.to_str().is_some_and(is_pattern) {
        return;
    }
    let mut paths = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = match component {
            Component::Normal(name) => name.to_str().unwrap_or_default(),
            other => {
                paths.iter_mut().for_each(|p| p.push(other));
                continue;
            }
        };
        paths = match is_pattern(name) {
            true => paths.iter().flat_map(|folder| matching(folder, name)).take(PATHS).collect(),
            false => paths.into_iter().map(|p| p.join(name)).collect(),
        };
    }
    out.extend(paths.into_iter().filter(|p| p.is_file()));
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// The entries of a folder that match, sorted. Only a pattern that begins with a dot finds hidden ones.
fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = std::fs::read_dir(place) else { return Vec::new() };
    let names = entries.flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut found: Vec<PathBuf> = names
        .filter(|n| (pattern.starts_with('.') || !n.starts_with('.')) && fits(pattern.as_bytes(), n.as_bytes()))
        .map(|n| folder.join(n))
        .collect();
    found.sort();
    found
}

/// Whether a name matches a pattern.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // The position to return to: after the last `*`, and the length it matched.
    let (mut p, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            back = Some((p + 1, n));
            p += 1;
            continue;
        }
        match one(&pattern[p..], name[n]) {
            Some(length) => {
                p += length;
                n += 1;
            }
            None => match back {
                Some((bp, bn)) => {
                    p = bp;
                    n = bn + 1;
                    back = Some((bp, bn + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// The length of the pattern's first element if it matches `c`.
fn one(pattern: &[u8], c: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', ..] => match set(pattern, c) {
            Some((length, has)) => has.then_some(length),
            // Without an end it is an ordinary character.
            None => (c == b'[').then_some(1),
        },
        [b'\\', escaped, ..] => (*escaped == c).then_some(2),
        [first, ..] => (*first == c).then_some(1),
        [] => None,
    }
}

/// A set's length, and whether it has `c`; `None` if it has no end.
fn set(pattern: &[u8], c: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let begin = 1 + usize::from(negated);
    let (mut at, mut has) = (begin, false);
    loop {
        let mut low = *pattern.get(at)?;
        // Right at the beginning, a bracket is a member.
        if low == b']' && at > begin {
            return Some((at + 1, has != negated));
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        at += 1;
        match pattern.get(at..at + 2) {
            Some(&[b'-', high]) if high != b']' => {
                has |= (low..=high).contains(&c);
                at += 2;
            }
            _ => has |= low == c,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns() {
        let cases = [
            ("*.rules", "a.rules", true),
            ("*.rules", "a.rule", false),
            ("a*b*c", "a1b2b3c", true),
            ("*a*a*", "banana", true),
            ("a", "a", true),
            ("?", "", false),
            ("*", "", true),
            ("?.rules", "ab.rules", false),
            ("[12].rules", "1.rules", true),
            ("[12].rules", "3.rules", false),
            ("[!1].rules", "1.rules", false),
            ("[^1].rules", "2.rules", true),
            ("[a-c0-9]x", "5x", true),
            ("[a-c0-9]x", "dx", false),
            ("[]]x", "]x", true),
            ("[!]]x", "ax", true),
            ("[a-]x", "-x", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("\\[x\\].rules", "[x].rules", true),
            ("\\*", "a", false),
            ("*[0-9]*", "et-2020.rules", true),
            ("{1,2}", "1", false),
        ];
        for (pattern, name, fit) in cases {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), fit, "{pattern} {name}");
        }
    }

    #[test]
    fn folders_match_too_and_hidden_files_only_if_named() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["a/1.rules", "b/2.rules", "b/.3.rules", "b/c/4.rules", ".d/5.rules", "6.rules"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let find = |pattern: &str| {
            let mut out = Vec::new();
            expand(&dir.path().join(pattern), &mut out);
            let name = |p: &PathBuf| p.strip_prefix(dir.path()).unwrap().display().to_string();
            out.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(find("*/*.rules"), ["a/1.rules", "b/2.rules"]);
        assert_eq!(find("[ab]/../6.*"), ["a/../6.rules", "b/../6.rules"]);
        assert_eq!(find("*.rules"), ["6.rules"]);
        assert_eq!(find("b/.*"), ["b/.3.rules"]);
        assert_eq!(find(".?/*"), [".d/5.rules"]);
        assert_eq!(find("**/4.rules"), [""; 0]);
        assert_eq!(find("*"), ["6.rules"]);
        assert_eq!(find("6.rules"), [""; 0]);
    }
}
