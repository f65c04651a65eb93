//! Transfer codings (RFC 2045, section 6), decoded as mail programs do: invalid characters are skipped.

/// Decodes Base64 in pieces.
///
/// It skips bytes outside the alphabet. Padding ends a group of four, and another group may follow. Library decoders stop at
/// the first invalid byte instead.
#[derive(Debug, Clone, Default)]
pub(super) struct Base64 {
    group: [u8; 4],
    len: usize,
    /// Padding characters in the current group.
    pads: usize,
}

/// Values of the alphabet of RFC 4648 section 4, by byte; all other bytes have `other`.
pub const fn base64_values(other: u8) -> [u8; 256] {
    let mut t = [other; 256];
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut i = 0;
    while i < 64 {
        t[alphabet[i] as usize] = i as u8;
        i += 1;
    }
    t
}

/// The value of each byte; `PAD` and `BLANK` are special values.
const VALUES: [u8; 256] = {
    let mut t = base64_values(NONE);
    t[b'=' as usize] = PAD;
    t[b' ' as usize] = BLANK;
    t[b'\t' as usize] = BLANK;
    t[b'\r' as usize] = BLANK;
    t[b'\n' as usize] = BLANK;
    t
};
const PAD: u8 = 64;
const BLANK: u8 = 65;
const NONE: u8 = 66;

impl Base64 {
    /// Decodes a piece onto `out`. Returns whether all of it was valid.
    pub(super) fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> bool {
        let mut valid = true;
        let mut rest = piece;
        loop {
            if self.len == 0 && self.pads == 0 {
                rest = whole_groups(rest, out);
            }
            let Some((&b, tail)) = rest.split_first() else { break };
            rest = tail;
            match value(b) {
                BLANK => {}
                NONE => valid = false,
                PAD if self.len < 2 => valid = false,
                PAD => {
                    self.pads += 1;
                    if self.len + self.pads == 4 {
                        self.flush(out);
                    }
                }
                v => {
                    if self.pads > 0 {
                        valid = false;
                        self.flush(out);
                    }
                    if let Some(g) = self.group.get_mut(self.len) {
                        *g = v;
                    }
                    self.len += 1;
                    if self.len == 4 {
                        self.flush(out);
                    }
                }
            }
        }
        valid
    }

    /// Ends the current group and decodes its available part.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        let [a, b, c, d] = self.group;
        let bytes = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        out.extend_from_slice(bytes.get(..self.len.saturating_sub(1).min(3)).unwrap_or(&[]));
        *self = Base64::default();
    }
}

/// Decodes the groups of four valid characters at the start of `piece` onto `out`, which is nearly all of a real mail. Returns the
/// rest.
fn whole_groups<'a>(piece: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    let (groups, _) = piece.as_chunks::<4>();
    let mut n = 0;
    if let Some(first) = groups.first()
        && first.iter().all(|b| value(*b) < PAD)
    {
        out.reserve(3 * groups.len());
    }
    for group in groups {
        let [a, b, c, d] = group.map(value);
        // The special values have this bit.
        if (a | b | c | d) & PAD != 0 {
            break;
        }
        out.extend_from_slice(&[a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d]);
        n += 4;
    }
    piece.get(n..).unwrap_or(&[])
}

fn value(b: u8) -> u8 {
    VALUES.get(b as usize).copied().unwrap_or(NONE)
}

fn hex(b: u8) -> Option<u8> {
    (b as char).to_digit(16).map(|d| d as u8)
}

/// Decodes quoted-printable in pieces of lines.
#[derive(Debug, Clone, Default)]
pub(super) struct QuotedPrintable {
    /// An escape sequence that continues in the next piece.
    open: Vec<u8>,
    /// White space that is dropped if the line ends after it.
    blanks: Vec<u8>,
}

/// The limit of white space that is held until the line ends.
const MAX_BLANKS: usize = 1024;

impl QuotedPrintable {
    /// Decodes a piece of a line onto `out`; `ends` says whether the line ends here. Returns whether all of it was valid, and
    /// whether the line break belongs to the data.
    pub(super) fn push(&mut self, piece: &[u8], ends: bool, out: &mut Vec<u8>) -> (bool, bool) {
        let mut valid = true;
        for &b in piece {
            match (self.open.as_slice(), b) {
                ([], b' ' | b'\t') => {
                    if self.blanks.len() >= MAX_BLANKS {
                        out.append(&mut self.blanks);
                    }
                    self.blanks.push(b);
                }
                ([], b'=') => {
                    out.append(&mut self.blanks);
                    self.open.push(b);
                }
                ([], _) => {
                    out.append(&mut self.blanks);
                    out.push(b);
                }
                // White space after a soft line break.
                ([b'='], b' ' | b'\t') => self.open.push(b),
                ([b'='], _) if hex(b).is_some() => self.open.push(b),
                ([b'=', high], _) if hex(*high).is_some() && hex(b).is_some() => {
                    out.push(hex(*high).unwrap_or(0) << 4 | hex(b).unwrap_or(0));
                    self.open.clear();
                }
                ([b'=', b' ' | b'\t', ..], b' ' | b'\t') => {
                    if self.open.len() < MAX_BLANKS {
                        self.open.push(b);
                    }
                }
                _ => {
                    // Invalid sequences stay unchanged.
                    valid = false;
                    out.append(&mut self.open);
                    match b {
                        b'=' => self.open.push(b),
                        b' ' | b'\t' => self.blanks.push(b),
                        _ => out.push(b),
                    }
                }
            }
        }
        if !ends {
            return (valid, false);
        }
        self.blanks.clear();
        let soft = match self.open.as_slice() {
            [] => false,
            [b'='] | [b'=', b' ' | b'\t', ..] => {
                self.open.clear();
                true
            }
            _ => {
                valid = false;
                out.append(&mut self.open);
                false
            }
        };
        (valid, !soft)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn base64(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut d, mut out, mut valid) = (Base64::default(), Vec::new(), true);
        for p in pieces {
            valid &= d.push(p, &mut out);
        }
        d.flush(&mut out);
        (out, valid)
    }

    #[test]
    fn lenient_base64() {
        for (text, want, valid) in [
            ("SGVsbG8=", "Hello", true),
            ("SGVs bG8", "Hello", true),
            ("SGV!sbG8\nabc", "Hello\u{1a}m", false),
            ("NA=\r\n=Mg\r\n==\r\n", "42", true),
            ("NA=Mg==", "42", false),
            ("=", "", false),
            ("A", "", true),
            ("Qg", "B", true),
        ] {
            let (out, ok) = base64(&[text.as_bytes()]);
            assert_eq!((out.iter().map(|&b| b as char).collect::<String>(), ok), (want.into(), valid), "{text}");
        }
    }

    fn qp(lines: &[&[u8]], piece: usize) -> (Vec<u8>, bool) {
        let (mut d, mut out, mut valid) = (QuotedPrintable::default(), Vec::new(), true);
        for line in lines {
            let mut rest = *line;
            loop {
                let (now, after) = rest.split_at(piece.min(rest.len()));
                let (ok, brk) = d.push(now, after.is_empty(), &mut out);
                valid &= ok;
                if brk {
                    out.extend_from_slice(b"\n");
                }
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        }
        (out, valid)
    }

    #[test]
    fn lenient_quoted_printable() {
        for (lines, want, valid) in [
            (&["a=3Db=", "c"][..], "a=bc\n", true),
            (&["a  ", "b =20"], "a\nb  \n", true),
            (&["a=  ", "b"], "ab\n", true),
            (&["a=zz=", "=4"], "a=zz=4\n", false),
            (&["a==41"], "a=A\n", false),
            (&["=3d=E9"], "=\u{e9}\n", true),
        ] {
            let lines: Vec<&[u8]> = lines.iter().map(|l| l.as_bytes()).collect();
            for piece in [1, 2, 100] {
                let (out, ok) = qp(&lines, piece);
                let text: String = out.iter().map(|&b| b as char).collect();
                assert_eq!((text.as_str(), ok), (want, valid), "{lines:?} {piece}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(data in proptest::collection::vec(prop_oneof![Just(b'='), Just(b' '), Just(b'4'), Just(b'A'),
            Just(b'z'), Just(b'/'), any::<u8>()], 0..60), at in 0usize..60)
        {
            let (a, b) = data.split_at(at.min(data.len()));
            let bytes: Vec<&[u8]> = data.chunks(1).collect();
            prop_assert_eq!(base64(&[a, b]), base64(&[&data]));
            prop_assert_eq!(base64(&bytes), base64(&[&data]));
            prop_assert_eq!(qp(&[&data], at.max(1)), qp(&[&data], 1000));
        }
    }
}
