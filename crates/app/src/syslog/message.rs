//! A message: its priority, the header if it has one, and its text.

use std::ops::Range;

use margay_flow::Direction;

/// Names of facilities (RFC 5424 section 6.2.1), as in `syslog.conf`.
pub(super) const FACILITIES: &[(&str, u64)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("ntp", 12),
    ("security", 13),
    ("console", 14),
    ("solaris-cron", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Names of severities.
pub(super) const SEVERITIES: &[(&str, u64)] =
    &[("emerg", 0), ("alert", 1), ("crit", 2), ("err", 3), ("warning", 4), ("notice", 5), ("info", 6), ("debug", 7)];

/// The highest priority.
const PRIORITY_MAX: u16 = 191;

/// The priority at the front, and its length.
pub(super) fn priority(data: &[u8]) -> Option<(u8, usize)> {
    let digits = data.strip_prefix(b"<")?;
    let len = digits.iter().take(4).position(|b| *b == b'>').filter(|n| *n > 0)?;
    let value =
        digits.get(..len)?.iter().try_fold(0u16, |n, d| d.is_ascii_digit().then(|| n * 10 + u16::from(d - b'0')));
    Some((u8::try_from(value.filter(|v| *v <= PRIORITY_MAX)?).ok()?, len + 2))
}

/// A message, with the ranges of its parts.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) dir: Direction,
    pub(super) priority: u8,
    pub(super) text: Box<[u8]>,
    /// Parts of the header, as ranges in `text`.
    pub(super) timestamp: Option<Range<usize>>,
    pub(super) hostname: Option<Range<usize>>,
    pub(super) app_name: Option<Range<usize>>,
    pub(super) proc_id: Option<Range<usize>>,
    pub(super) msg_id: Option<Range<usize>>,
    /// The end of the header.
    body: usize,
}

impl Message {
    /// Reads a message; `None` if it has no priority.
    pub(super) fn read(dir: Direction, data: &[u8]) -> Option<Message> {
        let (priority, at) = priority(data)?;
        let data = data.trim_ascii_end();
        let mut m = Message {
            dir,
            priority,
            text: data.into(),
            timestamp: None,
            hostname: None,
            app_name: None,
            proc_id: None,
            msg_id: None,
            body: at.min(data.len()),
        };
        if m.new_header(at).is_none() {
            m.old_header(at);
        }
        Some(m)
    }

    /// A part of the header.
    pub(super) fn part(&self, part: &Option<Range<usize>>) -> Option<&[u8]> {
        self.text.get(part.clone()?)
    }

    /// The text after the header.
    pub(super) fn message(&self) -> &[u8] {
        self.text.get(self.body..).unwrap_or(&[])
    }

    /// The word at `at`, and the offset of the next one.
    fn word(&self, at: usize) -> Option<(Range<usize>, usize)> {
        let len = self.text.get(at..)?.iter().position(|b| *b == b' ').filter(|n| *n > 0)?;
        Some((at..at + len, at + len + 1))
    }

    /// Reads the header of RFC 5424 (section 6); `-` is an absent part.
    fn new_header(&mut self, at: usize) -> Option<()> {
        if !self.text.get(at..)?.starts_with(b"1 ") {
            return None;
        }
        let mut at = at + 2;
        let mut parts = [const { None }; 5];
        for part in &mut parts {
            let (word, next) = self.word(at)?;
            *part = Some(word).filter(|w| self.text.get(w.clone()) != Some(b"-"));
            at = next;
        }
        self.body = self.behind_data(at);
        [self.timestamp, self.hostname, self.app_name, self.proc_id, self.msg_id] = parts;
        Some(())
    }

    /// The offset of the message after structured data (section 6.3), where `\` escapes the next byte of a value.
    fn behind_data(&self, at: usize) -> usize {
        let rest = self.text.get(at..).unwrap_or(&[]);
        let mut len = usize::from(rest.first() == Some(&b'-'));
        let (mut quoted, mut protected, mut inside) = (false, false, false);
        if len == 0 {
            for b in rest {
                match b {
                    _ if protected => protected = false,
                    b'\\' if quoted => protected = true,
                    b'"' if inside => quoted = !quoted,
                    b'[' if !quoted => inside = true,
                    b']' if !quoted => inside = false,
                    _ if !inside => break,
                    _ => {}
                }
                len += 1;
            }
        }
        let space = usize::from(rest.get(len) == Some(&b' '));
        at + len + space
    }

    /// Reads the header of RFC 3164 (section 4.1): a time of 15 characters, a host, and a tag with a process id in brackets.
    fn old_header(&mut self, at: usize) {
        let time = self.text.get(at..at + 16);
        let Some([_, _, _, b' ', _, _, b' ', _, _, b':', _, _, b':', _, _, b' ']) = time else { return };
        (self.timestamp, self.body) = (Some(at..at + 15), at + 16);
        let Some((host, next)) = self.word(self.body) else { return };
        (self.hostname, self.body) = (Some(host), next);
        let rest = self.text.get(next..).unwrap_or(&[]);
        // A tag has at most 32 characters, but programs exceed that.
        let len = rest.iter().take(64).position(|b| matches!(b, b':' | b'[' | b' '));
        let Some(len) = len.filter(|n| *n > 0) else { return };
        let mut end = next + len;
        match rest.get(len) {
            Some(b'[') => {
                let Some(n) = rest.get(len + 1..).and_then(|r| r.iter().position(|b| *b == b']')) else { return };
                self.proc_id = Some(end + 1..end + 1 + n);
                end += n + 2;
            }
            Some(b':') => {}
            _ => return,
        }
        self.app_name = Some(next..next + len);
        let skipped = self.text.get(end..).map_or(0, |r| r.iter().take_while(|b| matches!(b, b':' | b' ')).count());
        self.body = end + skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(data: &[u8]) -> Vec<String> {
        let m = Message::read(Direction::ToServer, data).unwrap();
        let of = |p: &Option<Range<usize>>| m.part(p).map_or("-".into(), |b| b.escape_ascii().to_string());
        let header = [&m.timestamp, &m.hostname, &m.app_name, &m.proc_id, &m.msg_id].map(of);
        [&header[..], &[m.message().escape_ascii().to_string()]].concat()
    }

    #[test]
    fn headers() {
        assert_eq!(
            parts(b"<165>1 2003-08-24T05:14:15Z 192.0.2.1 proc 8710 - [a@1 x=\"]\\\"\"][b] text \n"),
            ["2003-08-24T05:14:15Z", "192.0.2.1", "proc", "8710", "-", "text"]
        );
        assert_eq!(
            parts(b"<13>Feb  5 17:32:18 10.0.0.99 cron[42]: (root) CMD"),
            ["Feb  5 17:32:18", "10.0.0.99", "cron", "42", "-", "(root) CMD"]
        );
        assert_eq!(parts(b"<0>1 - - - - - -"), ["-", "-", "-", "-", "-", ""]);
        assert_eq!(parts(b"<0>only text here"), ["-", "-", "-", "-", "-", "only text here"]);
        assert_eq!(parts(b"<0>1 cut"), ["-", "-", "-", "-", "-", "1 cut"]);
        assert_eq!(parts(b"<0>"), ["-", "-", "-", "-", "-", ""]);
    }

    #[test]
    fn priorities() {
        assert_eq!((priority(b"<0>"), priority(b"<191>x")), (Some((0, 3)), Some((191, 5))));
        for none in [&b"<>"[..], b"<192>", b"<1234>", b"<a>", b"1>", b"<12"] {
            assert_eq!(priority(none), None, "{}", none.escape_ascii());
        }
    }
}
