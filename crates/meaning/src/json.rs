//! Checks whether a value is a JSON document (RFC 8259), without storing any of it.

/// Maximum nesting.
const DEPTH: usize = 64;

/// Whether `data` is exactly one object or array.
pub(crate) fn is_document(data: &[u8]) -> bool {
    let mut end = 0;
    document(data, &mut end) && end == data.len()
}

/// Whether `data` is an object or array, or several in a row, as collectors of logs take them. The last ones may be cut off.
pub(crate) fn are_documents(data: &[u8]) -> bool {
    let mut end = 0;
    document(data, &mut end) && matches!(data.get(end), None | Some(b'{' | b'['))
}

/// Whether `data` is the beginning of an object or array, or more.
pub(crate) fn begins(data: &[u8]) -> bool {
    let mut end = 0;
    document(data, &mut end) || end >= data.len()
}

/// Whether an object or array is at the beginning. `at` becomes its end with the white space behind it, or else the place of the
/// fault, which is the end of data that is only cut off.
fn document(data: &[u8], at: &mut usize) -> bool {
    // The closing byte of each open bracket, which also says whether names are expected.
    let mut open: Vec<u8> = Vec::new();
    let space = |at: &mut usize| *at += data.iter().skip(*at).take_while(|b| b.is_ascii_whitespace()).count();
    loop {
        space(at);
        // A value.
        match data.get(*at) {
            Some(b'{') if open.len() < DEPTH => {
                *at += 1;
                space(at);
                if data.get(*at) == Some(&b'}') {
                    *at += 1;
                } else {
                    open.push(b'}');
                    if !name(data, at) {
                        return false;
                    }
                    continue;
                }
            }
            Some(b'[') if open.len() < DEPTH => {
                *at += 1;
                space(at);
                if data.get(*at) == Some(&b']') {
                    *at += 1;
                } else {
                    open.push(b']');
                    continue;
                }
            }
            Some(b'"') if !open.is_empty() => {
                if !string(data, at) {
                    return false;
                }
            }
            Some(b'-' | b'0'..=b'9' | b't' | b'f' | b'n') if !open.is_empty() => {
                let scalar = data
                    .iter()
                    .skip(*at)
                    .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.'))
                    .count();
                let text = data.get(*at..*at + scalar).unwrap_or(&[]);
                let number = text.iter().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'));
                if !number && !matches!(text, b"true" | b"false" | b"null") {
                    *at += if *at + scalar == data.len() { scalar } else { 0 };
                    return false;
                }
                *at += scalar;
            }
            _ => return false,
        }
        // The text after the value.
        loop {
            space(at);
            let Some(&close) = open.last() else { return true };
            match data.get(*at) {
                Some(b',') => {
                    *at += 1;
                    space(at);
                    if close == b'}' && !name(data, at) {
                        return false;
                    }
                    break;
                }
                Some(&b) if b == close => {
                    *at += 1;
                    open.pop();
                }
                _ => return false,
            }
        }
    }
}

/// Parses a name with its colon.
fn name(data: &[u8], at: &mut usize) -> bool {
    if data.get(*at) != Some(&b'"') || !string(data, at) {
        return false;
    }
    *at += data.iter().skip(*at).take_while(|b| b.is_ascii_whitespace()).count();
    *at += 1;
    data.get(*at - 1) == Some(&b':')
}

/// Parses a string that begins here.
fn string(data: &[u8], at: &mut usize) -> bool {
    *at += 1;
    loop {
        match data.get(*at) {
            None => return false,
            Some(b'"') => {
                *at += 1;
                return true;
            }
            Some(b'\\') => *at += 2,
            Some(_) => *at += 1,
        }
    }
}
