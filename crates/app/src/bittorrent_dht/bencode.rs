//! Bencoding (BEP 3): integers, byte strings, lists and dictionaries, parsed in place.

/// The deepest nesting that is skipped.
const DEPTH_MAX: usize = 16;

/// A value; lists and dictionaries stay encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    List(&'a [u8]),
    Dictionary(&'a [u8]),
}

/// Splits off the value at the front of `data`; `None` if it is incomplete or invalid.
pub(super) fn value(data: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (&first, rest) = data.split_first()?;
    match first {
        b'i' => {
            let end = memchr::memchr(b'e', rest.get(..21).unwrap_or(rest))?;
            let text = std::str::from_utf8(rest.get(..end)?).ok()?;
            Some((Value::Int(text.parse().ok()?), rest.get(end + 1..)?))
        }
        b'0'..=b'9' => {
            let colon = memchr::memchr(b':', data.get(..11).unwrap_or(data))?;
            let len: usize = std::str::from_utf8(data.get(..colon)?).ok()?.parse().ok()?;
            let (bytes, rest) = data.get(colon + 1..)?.split_at_checked(len)?;
            Some((Value::Bytes(bytes), rest))
        }
        b'l' | b'd' => {
            let rest = behind(data)?;
            let items = data.get(1..data.len() - rest.len() - 1)?;
            Some((if first == b'l' { Value::List(items) } else { Value::Dictionary(items) }, rest))
        }
        _ => None,
    }
}

/// The data after the list or dictionary at the front of `data`; `None` if the nesting is too deep.
fn behind(mut data: &[u8]) -> Option<&[u8]> {
    let mut depth = 0;
    loop {
        data = match data.first()? {
            b'l' | b'd' => {
                depth += 1;
                (depth <= DEPTH_MAX).then_some(())?;
                data.get(1..)?
            }
            b'e' => {
                depth -= 1;
                data.get(1..)?
            }
            _ => value(data)?.1,
        };
        if depth == 0 {
            return Some(data);
        }
    }
}

/// Iterates over the entries of a dictionary; `None` if it is invalid.
pub(super) fn entries<'a>(mut items: &'a [u8], mut each: impl FnMut(&'a [u8], Value<'a>)) -> Option<()> {
    while !items.is_empty() {
        let (Value::Bytes(key), rest) = value(items)? else { return None };
        let (v, rest) = value(rest)?;
        each(key, v);
        items = rest;
    }
    Some(())
}

/// Iterates over the items of a list; `None` if it is invalid.
pub(super) fn items<'a>(mut items: &'a [u8], mut each: impl FnMut(Value<'a>)) -> Option<()> {
    while !items.is_empty() {
        let (v, rest) = value(items)?;
        each(v);
        items = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(value(b"i-42ex"), Some((Value::Int(-42), &b"x"[..])));
        assert_eq!(value(b"3:abcd"), Some((Value::Bytes(b"abc"), &b"d"[..])));
        assert_eq!(value(b"l3:abci1eed"), Some((Value::List(b"3:abci1e"), &b"d"[..])));
        assert_eq!(value(b"d1:ald1:bi1eeee"), Some((Value::Dictionary(b"1:ald1:bi1eee"), &b""[..])));
        for broken in [&b"i12"[..], b"ie", b"9:abc", b"99999999999999:a", b"l", b"d1:a", b"e", b"", b"i1-e"] {
            assert_eq!(value(broken), None, "{}", broken.escape_ascii());
        }
        assert_eq!(value(&[b'l'; 100_000]), None);
    }

    #[test]
    fn dictionaries() {
        let mut seen = Vec::new();
        assert_eq!(entries(b"1:ai1e1:bl1:ce", |k, v| seen.push((k, v))), Some(()));
        assert_eq!(seen, [(&b"a"[..], Value::Int(1)), (b"b", Value::List(b"1:c"))]);
        assert_eq!(entries(b"i1ei2e", |_, _| ()), None);
    }
}
