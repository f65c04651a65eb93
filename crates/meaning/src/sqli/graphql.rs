//! Reads GraphQL documents, whose quotes are not SQL's.

/// Most strings of a document.
const STRINGS: usize = 256;

/// The strings of a GraphQL document: `query Find($id: ID!) { item(name: "x") { id } }`. `None` if the value is not a whole
/// document.
pub(super) fn strings(value: &[u8]) -> Option<Vec<&[u8]>> {
    let value = value.trim_ascii();
    let named = [&b"query"[..], b"mutation", b"subscription", b"fragment"]
        .iter()
        .any(|w| value.strip_prefix(*w).is_some_and(|rest| matches!(rest.first(), Some(b' ' | b'\n' | b'{' | b'('))));
    let field =
        value.strip_prefix(b"{").is_some_and(|v| v.trim_ascii_start().first().is_some_and(u8::is_ascii_alphabetic));
    if !(named || field) || !value.ends_with(b"}") {
        return None;
    }
    let (mut found, mut depth, mut at, mut opened) = (Vec::new(), 0_usize, 0, false);
    while let Some(&b) = value.get(at) {
        at += 1;
        match b {
            b'"' => {
                let end = string(value.get(at..)?)?;
                if found.len() == STRINGS {
                    return None;
                }
                found.push(value.get(at..at + end)?);
                at += end + 1;
            }
            b'-' if value.get(at) == Some(&b'-') => return None,
            b'{' => {
                depth += 1;
                opened = true;
            }
            b'}' => depth = depth.checked_sub(1)?,
            // The marks of the language.
            b'(' | b')' | b'[' | b']' | b':' | b',' | b'!' | b'$' | b'@' | b'=' | b'.' | b'|' | b'&' | b'_' | b'-' => {}
            b' ' | b'\n' | b'\t' | b'\r' => {}
            b if b.is_ascii_alphanumeric() => {}
            _ => return None,
        }
    }
    (depth == 0 && opened).then_some(found)
}

/// The length of a string up to its closing quote.
fn string(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
}
