//! Parameters of header values (`name="value"; …`), and the headers with parameters that concern files.

/// Reads a parameter's value at the front of `data`: quoted (a `\` escapes a quote), or up to a blank or a byte in `ends`.
/// Returns it and the rest. `None` if a quote is not closed. Escapes stay as written, as in Suricata's file names; [`unescape`]
/// removes them.
pub(crate) fn value<'a>(data: &'a [u8], ends: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let Some(quoted) = data.strip_prefix(b"\"") else {
        let end = data.iter().position(|b| ends.contains(b) || b.is_ascii_whitespace()).unwrap_or(data.len());
        return Some(data.split_at(end));
    };
    let mut escaped = false;
    let end = quoted.iter().position(|&b| {
        let quote = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        quote
    })?;
    Some((quoted.get(..end)?, quoted.get(end + 1..)?))
}

/// A value without its parameters, such as the media type of a `Content-Type` (RFC 9110, section 8.3.1).
pub(crate) fn without_parameters(value: &[u8]) -> &[u8] {
    memchr::memchr(b';', value).and_then(|at| value.get(..at)).unwrap_or(value)
}

/// A quoted value without its escapes (RFC 9110, section 5.6.4).
pub(crate) fn unescape(value: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let kept = value.iter().filter(|&&b| {
        escaped = b == b'\\' && !escaped;
        !escaped
    });
    kept.copied().collect()
}

/// The parameters of a header value, `form-data; name="a"; filename=b`: names and values as written. Parameters without a value
/// are skipped, and so is everything after an unclosed quote.
pub fn params(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    params_by(header, |data| value(data, b";"))
}

/// As [`params`], but a value without quotes may contain blanks (`filename=annual report.exe`), as mail programs accept.
pub(crate) fn params_with_blanks(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    params_by(header, |data| {
        if data.first() == Some(&b'"') {
            return value(data, b";");
        }
        let end = memchr::memchr(b';', data).unwrap_or(data.len());
        data.split_at_checked(end).map(|(text, after)| (text.trim_ascii_end(), after))
    })
}

/// The parameters of a header value; `read` splits a value and the rest.
fn params_by(header: &[u8], read: impl Fn(&[u8]) -> Option<(&[u8], &[u8])>) -> impl Iterator<Item = (&[u8], &[u8])> {
    // The first part is the value itself.
    let mut rest = header.iter().position(|&b| b == b';').and_then(|n| header.get(n..));
    std::iter::from_fn(move || {
        loop {
            let text = rest?;
            let text = text.get(text.iter().position(|b| !b.is_ascii_whitespace() && *b != b';')?..)?;
            let end = text.iter().position(|b| matches!(b, b'=' | b';')).unwrap_or(text.len());
            let (key, after) = text.split_at(end);
            let Some(after) = after.strip_prefix(b"=") else {
                rest = Some(after);
                continue;
            };
            let (text, after) = read(after.trim_ascii_start())?;
            rest = Some(after);
            return Some((key.trim_ascii(), text));
        }
    })
}

/// The value of parameter `name`, in any case.
pub fn param<'a>(header: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    params(header).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The raw file name in a `Content-Disposition` (RFC 6266); `None` if it is missing or empty.
pub fn disposition_filename(header: &[u8]) -> Option<&[u8]> {
    param(header, b"filename").filter(|n| !n.is_empty())
}

/// A `Content-Range` (RFC 9110, section 14.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// Length of the whole, if known.
    pub total: Option<u64>,
}

/// The numbers of a `Content-Range`, which may contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeNumbers {
    /// First and last byte; `None` for `*`.
    pub range: Option<(u64, u64)>,
    /// Length of the whole; `None` for `*`.
    pub total: Option<u64>,
}

/// Reads the numbers of a `Content-Range`: `bytes 0-99/200`, `bytes 0-99/*`, `bytes */200`. `None` if it has another form.
pub fn range_numbers(header: &[u8]) -> Option<RangeNumbers> {
    let header = header.trim_ascii();
    let unit = header.get(..5).filter(|u| u.eq_ignore_ascii_case(b"bytes"))?;
    let rest = header.get(unit.len()..)?;
    if !rest.first().is_some_and(u8::is_ascii_whitespace) {
        return None;
    }
    let text = std::str::from_utf8(rest.trim_ascii()).ok()?;
    let (range, total) = text.split_once('/')?;
    let range = match range.trim() {
        "*" => None,
        r => {
            let (start, end) = r.split_once('-')?;
            Some((digits(start)?, digits(end)?))
        }
    };
    let total = match total.trim() {
        "*" => None,
        n => Some(digits(n)?),
    };
    (range.is_some() || total.is_some()).then_some(RangeNumbers { range, total })
}

impl RangeNumbers {
    /// The range, unless there is none (`bytes */200`) or the numbers contradict each other (`range_invalid`).
    pub fn valid(self) -> Option<ContentRange> {
        let ((start, end), total) = (self.range?, self.total);
        (start <= end && total.is_none_or(|t| end < t)).then_some(ContentRange { start, end, total })
    }
}

/// Reads the range of a `Content-Range`. `None` if it is invalid (`range_invalid`), or has no range (`bytes */200`).
pub fn content_range(header: &[u8]) -> Option<ContentRange> {
    range_numbers(header)?.valid()
}

fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    // `parse` would accept a plus sign.
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names() {
        for (header, want) in [
            ("form-data; name=\"f\"; filename=\"a b.exe\"", Some("a b.exe")),
            ("attachment; filename=a.exe; size=3", Some("a.exe")),
            ("attachment; FileName = \"x\\\"y\\\\z\"", Some("x\\\"y\\\\z")),
            ("form-data; filename=\"a\\\"b\\\\c\\d\"", Some("a\\\"b\\\\c\\d")),
            ("form-data; filename=\"C:\\dir\\file.txt\"", Some("C:\\dir\\file.txt")),
            ("form-data; name=\"a; filename=b\"", None),
            ("attachment;; inline; filename=x", Some("x")),
            ("attachment; filename=\"x", None),
            ("attachment; filename=", None),
            ("attachment", None),
            ("", None),
        ] {
            assert_eq!(disposition_filename(header.as_bytes()), want.map(str::as_bytes), "{header}");
        }
    }

    #[test]
    fn ranges() {
        let range = |start, end, total| Some(ContentRange { start, end, total });
        for (header, want) in [
            ("bytes 0-99/200", range(0, 99, Some(200))),
            (" Bytes  5-5/* ", range(5, 5, None)),
            ("bytes */200", None),
            ("bytes 9-5/20", None),
            ("bytes 0-200/200", None),
            ("bytes +1-2/3", None),
            ("bytes 0-/3", None),
            ("bytes=0-1/3", None),
            ("items 0-1/3", None),
            ("bytes 0-99999999999999999999/3", None),
        ] {
            assert_eq!(content_range(header.as_bytes()), want, "{header}");
        }
    }

    #[test]
    fn numbers_of_ranges() {
        let numbers = |range, total| Some(RangeNumbers { range, total });
        for (header, want) in [
            ("bytes */200", numbers(None, Some(200))),
            ("bytes 9-5/20", numbers(Some((9, 5)), Some(20))),
            ("bytes 0-20/*", numbers(Some((0, 20)), None)),
            ("bytes */*", None),
            ("bytes *-5/9", None),
        ] {
            assert_eq!(range_numbers(header.as_bytes()), want, "{header}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(header in proptest::collection::vec(prop_oneof![Just(b';'), Just(b'"'), Just(b'='), Just(b'\\'),
            any::<u8>()], 0..80))
        {
            if let Some(name) = disposition_filename(&header) {
                prop_assert!(name.len() <= header.len());
            }
            content_range(&header);
        }
    }
}
