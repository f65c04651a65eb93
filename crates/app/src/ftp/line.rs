//! Lines, commands and reply codes.

/// The part of a command's first word that is searched for its name, in bytes.
const WORD_MAX: usize = 16;

/// The line at the front of a direction's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// A line of this many bytes with its end.
    Whole(usize),
    /// A line that exceeds the limit. The rest is skipped.
    TooLong,
    /// More data is needed.
    More,
}

/// Finds the end of the first line of `data`, which is at most `limit` bytes long without it. `scan` is the offset up to which
/// there is no line end.
pub(super) fn next(data: &[u8], scan: &mut usize, limit: usize) -> Line {
    let window = data.get(..limit.saturating_add(1)).unwrap_or(data);
    let from = (*scan).min(window.len());
    match memchr::memchr(b'\n', window.get(from..).unwrap_or(&[])) {
        Some(i) => Line::Whole(from + i + 1),
        None if data.len() > limit => Line::TooLong,
        None => {
            *scan = window.len();
            Line::More
        }
    }
}

/// A line without its end, and whether it has none, because it exceeds the limit.
pub(super) fn split(line: &[u8]) -> (&[u8], bool) {
    match line.strip_suffix(b"\n") {
        Some(line) => (line.strip_suffix(b"\r").unwrap_or(line), false),
        None => (line, true),
    }
}

/// Known commands: RFC 959, its predecessors and extensions, and requests for TLS.
const COMMANDS: &[&[u8]] = &[
    b"ABOR",
    b"ACCT",
    b"ALLO",
    b"APPE",
    b"AUTH TLS",
    b"CDUP",
    b"CHMOD",
    b"CWD",
    b"DELE",
    b"EPRT",
    b"EPSV",
    b"HELP",
    b"IDLE",
    b"LIST",
    b"MAIL",
    b"MDTM",
    b"MKD",
    b"MLFL",
    b"MODE",
    b"MRCP",
    b"MRSQ",
    b"MSAM",
    b"MSND",
    b"MSOM",
    b"NLST",
    b"NOOP",
    b"PASS",
    b"PASV",
    b"PORT",
    b"PWD",
    b"QUIT",
    b"REIN",
    b"REST",
    b"RETR",
    b"RMD",
    b"RNFR",
    b"RNTO",
    b"SITE",
    b"SIZE",
    b"SMNT",
    b"STAT",
    b"STOR",
    b"STOU",
    b"STRU",
    b"SYST",
    b"TYPE",
    b"UMASK",
    b"USER",
];

/// A known command of one word, as a number.
#[derive(Clone, Copy)]
struct Packed {
    name: u64,
    mask: u64,
    /// Its place in [`COMMANDS`].
    at: usize,
}

/// The known commands of one word by their last letter. No command is the end of another, so their order has no meaning.
static ENDING: [[Packed; 12]; 26] = {
    let mut table = [[Packed { name: 0, mask: 0, at: 0 }; 12]; 26];
    let mut counts = [0; 26];
    let mut at = 0;
    while at < COMMANDS.len() {
        let command = COMMANDS[at];
        if command.len() <= 5 {
            let (mut name, mut mask, mut n) = (0, 0, 0);
            while n < command.len() {
                name = name << 8 | command[n] as u64;
                mask = mask << 8 | 0xff;
                n += 1;
            }
            let letter = (command[n - 1] - b'A') as usize;
            table[letter][counts[letter]] = Packed { name, mask, at };
            counts[letter] += 1;
        }
        at += 1;
    }
    table
};

/// The command in a line, without Telnet bytes before it (RFC 959 section 4.1.3: `ABOR` follows an interrupt).
pub(super) fn command(mut line: &[u8]) -> &[u8] {
    while let [0xff, 0xf0..=0xff, rest @ ..] = line {
        line = rest;
    }
    line.trim_ascii()
}

/// The known command of a line, and the rest of the line from one byte past the length of its name. As in Suricata's rules, the
/// name may be part of the first word (`USERHOST`, `XCWD`); the match that ends first counts.
pub(super) fn known(line: &[u8]) -> Option<(&'static [u8], &[u8])> {
    const TLS: &[u8] = b"AUTH TLS";
    if line.eq_ignore_ascii_case(TLS) {
        return Some((TLS, &[]));
    }
    let word = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    // The last bytes so far, in upper case.
    let mut last = 0u64;
    (1..=word.min(WORD_MAX)).find_map(|end| {
        last = last << 8 | u64::from(line.get(end - 1)?.to_ascii_uppercase());
        let letter = usize::from(last as u8).wrapping_sub(usize::from(b'A'));
        let ends = ENDING.get(letter)?.iter().take_while(|c| c.mask != 0);
        let found = ends.copied().find(|c| last & c.mask == c.name)?;
        let name = COMMANDS.get(found.at)?;
        Some((*name, line.get(name.len() + 1..).unwrap_or(&[])))
    })
}

/// The beginning of a reply line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code {
    pub digits: [u8; 3],
    /// Whether more lines follow (`-`).
    pub more: bool,
}

/// The code of a reply line, and its text without trailing blanks. An inner line of a reply has no code. `within` a reply of
/// several lines, only a blank, a hyphen or the line's end may follow a code.
pub(super) fn reply(line: &[u8], within: bool) -> (Option<Code>, &[u8]) {
    let (code, text) = split_code(line, within);
    let blanks = text.iter().rev().take_while(|b| matches!(b, b' ' | b'\t'..=b'\r')).count();
    (code, text.get(..text.len() - blanks).unwrap_or(text))
}

fn split_code(line: &[u8], within: bool) -> (Option<Code>, &[u8]) {
    if let Some((digits, rest)) = line.split_first_chunk::<3>()
        && digits.iter().all(u8::is_ascii_digit)
    {
        match rest {
            [b' ', text @ ..] => return (Some(Code { digits: *digits, more: false }), text),
            [b'-', text @ ..] => return (Some(Code { digits: *digits, more: true }), text),
            [] => return (Some(Code { digits: *digits, more: false }), rest),
            // Clients accept it (`220\tready`).
            [_, text @ ..] if !within => return (Some(Code { digits: *digits, more: false }), text),
            _ => {}
        }
    }
    (None, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut scan = 0;
        assert_eq!(next(b"QUI", &mut scan, 10), Line::More);
        assert_eq!(scan, 3);
        assert_eq!(next(b"QUIT\r\nX", &mut scan, 10), Line::Whole(6));
        assert_eq!(next(b"A\n", &mut 0, 10), Line::Whole(2));
        assert_eq!(next(b"0123456789\n", &mut 0, 10), Line::Whole(11));
        assert_eq!(next(b"0123456789\r\n", &mut 0, 10), Line::TooLong);
        assert_eq!(next(b"01234567890", &mut 0, 10), Line::TooLong);
        assert_eq!(next(b"", &mut 0, 10), Line::More);
        for (line, want) in [("QUIT\r\n", ("QUIT", false)), ("A\n", ("A", false)), ("B\r", ("B\r", true))] {
            assert_eq!(split(line.as_bytes()), (want.0.as_bytes(), want.1));
        }
    }

    #[test]
    fn commands() {
        let of = |line| known(command(line));
        assert_eq!(of(b"RETR a b"), Some((&b"RETR"[..], &b"a b"[..])));
        assert_eq!(of(b"\xff\xf4\xff\xf2ABOR"), Some((&b"ABOR"[..], &b""[..])));
        assert_eq!(of(b"  pass "), Some((&b"PASS"[..], &b""[..])));
        assert_eq!(of(b"PASS  x y "), Some((&b"PASS"[..], &b" x y"[..])));
        assert_eq!(of(b"auth tls"), Some((&b"AUTH TLS"[..], &b""[..])));
        assert_eq!(of(b"USERHOST a"), Some((&b"USER"[..], &b"OST a"[..])));
        assert_eq!(of(b"xcwd /a"), Some((&b"CWD"[..], &b" /a"[..])));
        assert_eq!(of(b"SITE CHMOD 644"), Some((&b"SITE"[..], &b"CHMOD 644"[..])));
        for unknown in [&b"AUTH TLS-P"[..], b"FEAT", b"MLSD x", b"OPTS UTF8 ON", b"X LIST", b""] {
            assert_eq!(of(unknown), None, "{}", unknown.escape_ascii());
        }
    }

    #[test]
    fn replies() {
        assert_eq!(reply(b"220 hi", false), (Some(Code { digits: *b"220", more: false }), &b"hi"[..]));
        assert_eq!(reply(b"211-Features:", false), (Some(Code { digits: *b"211", more: true }), &b"Features:"[..]));
        assert_eq!(reply(b" MDTM", false), (None, &b" MDTM"[..]));
        assert_eq!(reply(b"220\tready", false), (Some(Code { digits: *b"220", more: false }), &b"ready"[..]));
        assert_eq!(reply(b"2200", true), (None, &b"2200"[..]));
        assert_eq!(reply(b"200 ok \t\r", false), (Some(Code { digits: *b"200", more: false }), &b"ok"[..]));
        assert_eq!(reply(b":- \x0b", false), (None, &b":-"[..]));
        assert_eq!(reply(b"200 ", false), (Some(Code { digits: *b"200", more: false }), &b""[..]));
        assert_eq!(reply(b"226", false), (Some(Code { digits: *b"226", more: false }), &b""[..]));
    }
}
