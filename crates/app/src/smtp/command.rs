//! Commands (RFC 5321, section 4.1.1; RFC 3030; RFC 3207).

/// The meaning of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command<'a> {
    /// EHLO or HELO, with the client's name.
    Hello(&'a [u8]),
    /// MAIL FROM, with the reverse-path as written.
    Mail(&'a [u8]),
    /// RCPT TO, with the forward-path as written.
    Rcpt(&'a [u8]),
    Data,
    /// BDAT, with the length of the chunk, and whether it is the last one; `None` if the arguments are invalid.
    Bdat(Option<(u64, bool)>),
    Rset,
    StartTls,
    Auth,
    Quit,
    /// Any other known command.
    Known,
    /// Anything else: an unknown command, or an authentication step.
    Other,
}

/// Verbs without information about the mail.
const VERBS: [&[u8; 4]; 11] =
    [b"NOOP", b"VRFY", b"EXPN", b"HELP", b"ETRN", b"TURN", b"ATRN", b"SEND", b"SOML", b"SAML", b"BURL"];

impl Command<'_> {
    /// Reads a line, without its line break.
    pub(super) fn read(line: &[u8]) -> Command<'_> {
        let line = line.trim_ascii_start();
        let end = line.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(line.len());
        let (verb, rest) = line.split_at(end);
        // Nearly all verbs have four letters.
        let Ok(four) = <[u8; 4]>::try_from(verb) else {
            return if verb.eq_ignore_ascii_case(b"STARTTLS") { Command::StartTls } else { Command::Other };
        };
        match &four.map(|b| b.to_ascii_uppercase()) {
            b"EHLO" | b"HELO" | b"LHLO" => Command::Hello(word(rest)),
            b"MAIL" => prefixed(rest, b" FROM").map_or(Command::Known, |path| Command::Mail(word(path))),
            b"RCPT" => prefixed(rest, b" TO").map_or(Command::Known, |path| Command::Rcpt(word(path))),
            b"DATA" => Command::Data,
            b"BDAT" => Command::Bdat(chunk(rest)),
            b"RSET" => Command::Rset,
            b"AUTH" => Command::Auth,
            b"QUIT" => Command::Quit,
            verb if VERBS.contains(&verb) => Command::Known,
            _ => Command::Other,
        }
    }
}

/// The text after a prefix and its colon. As in Suricata, any byte may be in the colon's place, because some servers accept a
/// space there.
fn prefixed<'a>(line: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (own, rest) = line.split_at_checked(prefix.len())?;
    own.eq_ignore_ascii_case(prefix).then(|| rest.get(1..))?
}

/// The first word, which may be empty. Only blanks end it, so a line that was cut between CR and LF keeps the CR.
fn word(text: &[u8]) -> &[u8] {
    text.trim_ascii_start().split(|b| matches!(b, b' ' | b'\t')).next().unwrap_or(&[])
}

/// `20` or `20 LAST`.
fn chunk(text: &[u8]) -> Option<(u64, bool)> {
    let mut words = text.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let digits = words.next()?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let len = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match words.next() {
        None => Some((len, false)),
        Some(w) if w.eq_ignore_ascii_case(b"LAST") => Some((len, true)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        for (line, want) in [
            (&b"EHLO mx.example"[..], Command::Hello(b"mx.example")),
            (b"helo  a b ", Command::Hello(b"a")),
            (b"HELO", Command::Hello(b"")),
            (b"EHLO a\r", Command::Hello(b"a\r")),
            (b"MAIL FROM: <a@b> SIZE=3", Command::Mail(b"<a@b>")),
            (b"MAIL FROM <a@b>", Command::Mail(b"<a@b>")),
            (b"RCPT TO;<a@b>", Command::Rcpt(b"<a@b>")),
            (b"mail from:<>", Command::Mail(b"<>")),
            (b"RCPT TO:c@d x", Command::Rcpt(b"c@d")),
            (b"RCPT TO", Command::Known),
            (b"DATA ", Command::Data),
            (b"DATAX", Command::Other),
            (b"BDAT 20 last", Command::Bdat(Some((20, true)))),
            (b"BDAT 20", Command::Bdat(Some((20, false)))),
            (b"BDAT -1", Command::Bdat(None)),
            (b"BDAT 99999999999999999999", Command::Bdat(None)),
            (b"BDAT", Command::Bdat(None)),
            (b"staRttLs", Command::StartTls),
            (b"auth PLAIN", Command::Auth),
            (b"Zm9v", Command::Other),
            (b"", Command::Other),
        ] {
            assert_eq!(Command::read(line), want, "{line:?}");
        }
    }
}
