//! Lines of either direction.

/// The longest line that is parsed, including its line break; the rest is skipped. Mail lines arrive in pieces of this length.
/// RFC 5321, section 4.5.3.1 allows 512 bytes, extensions more.
pub(super) const MAX_LINE: usize = 4096;

/// Length of the line at the front of `data` with its line break, or of the part of one that is parsed; with `end`, also of an
/// unfinished one.
pub(super) fn length(data: &[u8], end: bool) -> Option<usize> {
    let within = data.get(..MAX_LINE).unwrap_or(data);
    match memchr::memchr(b'\n', within) {
        Some(n) => Some(n + 1),
        None => (end || within.len() == MAX_LINE).then_some(within.len()),
    }
}

/// A line without its line break, and the line break; an unfinished one has none.
pub(super) fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let text = line.strip_suffix(b"\n").map_or(line, |text| text.strip_suffix(b"\r").unwrap_or(text));
    line.split_at(text.len())
}

/// How much of a mail's data can be read: up to the line with a dot that ends the mail, or whole lines and pieces of
/// [`MAX_LINE`]; with `end`, also an unfinished line.
pub(super) fn of_mail(data: &[u8], line_start: bool, end: bool) -> Option<usize> {
    let behind_dot = |at| match data.get(at..)? {
        [b'.', b'\n', ..] => Some(at + 2),
        [b'.', b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    };
    let lines = line_start.then_some(0).into_iter().chain(memchr::memmem::find_iter(data, b"\n.").map(|n| n + 1));
    if let Some(len) = lines.filter_map(behind_dot).next() {
        return Some(len);
    }
    let lines = memchr::memrchr(b'\n', data).map_or(0, |n| n + 1);
    let whole = if end { data.len() } else { lines + (data.len() - lines) / MAX_LINE * MAX_LINE };
    (whole > 0).then_some(whole)
}

/// A part of a mail ([`of_mail`]) without the line that ends the mail, and whether it has that line.
pub(super) fn without_dot(data: &[u8], line_start: bool) -> (&[u8], bool) {
    let before = match split(data) {
        (text, [_, ..]) => text.strip_suffix(b"."),
        _ => None,
    };
    match before {
        Some(before) if before.ends_with(b"\n") || line_start && before.is_empty() => (before, true),
        _ => (data, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_ends_a_mail() {
        for (data, start, len, over) in [
            (&b"a\r\n.\r\nQUIT\r\n"[..], false, Some(6), true),
            (b"abc", true, None, false),
            (b"a\nbc", true, Some(2), false),
            (&[b'x'; 2 * MAX_LINE + 5], true, Some(2 * MAX_LINE), false),
            (b"a\n.\nb", true, Some(4), true),
            (b".\r\nb", true, Some(3), true),
            (b".\r\nb", false, Some(3), false),
            (b"a\r\n.b\r\n..\r\n.\r\n", true, Some(14), true),
            (b"a\r\n.\r", true, Some(3), false),
            (b"a\n.", true, Some(2), false),
            (b".", true, None, false),
            (b".\r", true, None, false),
            (b".\rx\n", true, Some(4), false),
            (b"a.\n", true, Some(3), false),
            (b"a\n..\n", true, Some(5), false),
        ] {
            assert_eq!(of_mail(data, start, false), len, "{}", data.escape_ascii());
            let part = &data[..len.unwrap_or(0)];
            assert_eq!(without_dot(part, start).1, over, "{}", data.escape_ascii());
            assert!(of_mail(data, start, true).is_some());
        }
        assert_eq!(without_dot(b"a\r\n.\r\n", true), (&b"a\r\n"[..], true));
        assert_eq!(split(b"a\r\r\n"), (&b"a\r"[..], &b"\r\n"[..]));
        assert_eq!(split(b"a\r"), (&b"a\r"[..], &b""[..]));
    }
}
