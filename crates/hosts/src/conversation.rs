//! A conversation: the packets of one side, and the actions of the host's application, step by step.
//!
//! Its text form has one step per line, so that a failing conversation can be kept and run again
//! ([`Conversation::parse`]). Sequence numbers count from the sender's first data byte (its SYN is at -1),
//! acknowledgments from the next byte that the host will send. Content is computed from the place in the stream and a
//! *version*: two segments that disagree about a byte have different versions there.

use std::fmt::{self, Write as _};

/// The side that opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// The host listens.
    #[default]
    Server,
    /// The host connects to the sender.
    Client,
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversation {
    /// The name of its class: a row of the report.
    pub class: String,
    /// Whether it is over IPv6.
    pub v6: bool,
    /// The side that opens the connection.
    pub role: Role,
    /// Which of the host's ports, by index.
    pub port: usize,
    /// Whether the application asks for urgent data in the stream (`SO_OOBINLINE`).
    pub oob_inline: bool,
    /// Whether the stream begins as an HTTP request, so that a parser receives all of it.
    pub http: bool,
    /// Whether the application reads only at `read` steps and at the end, instead of after every packet.
    pub lazy: bool,
    /// The sender's initial sequence number.
    pub isn: u32,
    /// The steps.
    pub steps: Vec<Step>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The sender sends a TCP segment.
    Segment(Segment),
    /// The sender sends a fragment of a UDP datagram.
    Piece(Piece),
    /// The application reads.
    Read,
    /// The application writes this many bytes.
    Write(u16),
    /// The application shuts down its sending side.
    Shutdown,
    /// This many seconds pass. The kernel's clock cannot be moved, so only the engine's does. If there are datagram
    /// fragments and the time is long enough for hosts to forget them (more than 30 seconds, 60 for IPv6), the run
    /// waits until this host has forgotten them too, which takes it [`crate::host::FRAGMENT_SECONDS`].
    Wait(u32),
}

/// TCP flags (RFC 9293 section 3.1).
pub mod flag {
    #![allow(missing_docs)]
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const RST: u8 = 4;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
    pub const URG: u8 = 32;
}

/// A TCP segment of the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number.
    pub at: i64,
    /// Bytes of payload.
    pub len: u16,
    /// Version of its content.
    pub version: u8,
    /// TCP flags.
    pub flags: u8,
    /// Acknowledgment number.
    pub ack: i64,
    /// Window.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, in order.
    pub options: Vec<Opt>,
    /// Whether its checksum is wrong.
    pub broken: bool,
    /// Whether it passes the engine and does not reach the host.
    pub lost: bool,
    /// The data offset to write instead of the right one.
    pub offset: Option<u8>,
    /// Number of bytes after the end that the IP header gives.
    pub trailing: u8,
    /// Its IP fragments in sending order; empty if it is not fragmented.
    pub pieces: Vec<Piece>,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            at: 0,
            len: 0,
            version: 0,
            flags: flag::ACK,
            ack: 0,
            window: 65_535,
            urgent: 0,
            options: Vec::new(),
            broken: false,
            lost: false,
            offset: None,
            trailing: 0,
            pieces: Vec::new(),
        }
    }
}

impl Segment {
    /// One past its last byte.
    pub fn end(&self) -> i64 {
        self.at + i64::from(self.len)
    }
    /// Whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// A fragment of an IP packet: of a segment, or of a UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    /// The datagram's number in the conversation, from which its identification follows.
    pub id: u16,
    /// Length of the whole datagram in bytes, including its UDP header.
    pub of: u16,
    /// Where the fragment starts in the datagram, in bytes. On the wire, this is rounded down to a multiple of eight.
    pub from: u16,
    /// Length of the fragment in bytes.
    pub len: u16,
    /// The fragment's "more fragments" flag.
    pub more: bool,
    /// Version of its content. Versions differ in the order of the 16-bit words in each eight bytes, so that checksums
    /// do not change.
    pub version: u8,
    /// Whether it passes the engine and does not reach the host.
    pub lost: bool,
    /// Whether its IPv4 header has a wrong checksum.
    pub broken: bool,
}

/// A TCP option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opt {
    /// Maximum segment size.
    Mss(u16),
    /// Window scale.
    Scale(u8),
    /// Selective acknowledgment permitted.
    SackOk,
    /// Timestamp, relative to [`TIMESTAMP`], and its echo reply; `None` stands for the host's last timestamp.
    Time(i64, Option<u32>),
    /// Fast open, with a cookie of this many bytes.
    FastOpen(u8),
    /// These bytes.
    Raw(Vec<u8>),
}

/// The first timestamp.
pub const TIMESTAMP: u32 = 0x1000_0000;

/// The first bytes of an HTTP conversation.
pub const HTTP: &[u8] = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n";

/// The byte at a place of the stream, in that version.
pub fn content(http: bool, at: i64, version: u8) -> u8 {
    let mixed = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let letter = (mixed % 26) as u8;
    match version {
        0 => match usize::try_from(at).ok().filter(|_| http).and_then(|at| HTTP.get(at)) {
            Some(b) => *b,
            None => b'a' + letter,
        },
        1 => b'A' + letter,
        2 => b'0' + (mixed % 10) as u8,
        v => 0x80 | v ^ letter,
    }
}

const FLAGS: &[(u8, char)] = &[(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, 'A'), (32, 'U'), (64, 'E'), (128, 'C')];

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Opt::Mss(n) => write!(f, "mss:{n}"),
            Opt::Scale(n) => write!(f, "scale:{n}"),
            Opt::SackOk => f.write_str("sack"),
            Opt::Time(value, None) => write!(f, "time:{value}"),
            Opt::Time(value, Some(echo)) => write!(f, "time:{value}:{echo}"),
            Opt::FastOpen(n) => write!(f, "fastopen:{n}"),
            Opt::Raw(bytes) => {
                f.write_str("raw:")?;
                bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}+{}", self.id, self.of, self.from, self.len)?;
        for (word, on) in [("more", self.more), ("lost", self.lost), ("broken", self.broken)] {
            if on {
                write!(f, ":{word}")?;
            }
        }
        if self.version > 0 {
            write!(f, ":v{}", self.version)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = match self {
            Step::Read => return f.write_str("read"),
            Step::Write(n) => return write!(f, "write {n}"),
            Step::Shutdown => return f.write_str("shutdown"),
            Step::Wait(n) => return write!(f, "wait {n}"),
            Step::Piece(p) => return write!(f, "piece {p}"),
            Step::Segment(s) => s,
        };
        write!(f, "segment at={}", s.at)?;
        let plain = Segment::default();
        let mut number = |name: &str, n: i64, usual: i64| if n == usual { Ok(()) } else { write!(f, " {name}={n}") };
        number("len", s.len.into(), 0)?;
        number("v", s.version.into(), 0)?;
        number("ack", s.ack, 0)?;
        number("window", s.window.into(), plain.window.into())?;
        number("urgent", s.urgent.into(), 0)?;
        number("trailing", s.trailing.into(), 0)?;
        number("offset", s.offset.map_or(-1, i64::from), -1)?;
        f.write_str(" flags=")?;
        FLAGS.iter().filter(|x| s.flags & x.0 != 0).try_for_each(|x| f.write_char(x.1))?;
        s.options.iter().try_for_each(|o| write!(f, " {o}"))?;
        for (word, on) in [("broken", s.broken), ("lost", s.lost)] {
            if on {
                write!(f, " {word}")?;
            }
        }
        s.pieces.iter().try_for_each(|p| write!(f, " piece={p}"))
    }
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conversation class={} port={} isn={}", self.class, self.port, self.isn)?;
        let words = [
            ("v6", self.v6),
            ("client", self.role == Role::Client),
            ("oobinline", self.oob_inline),
            ("http", self.http),
            ("lazy", self.lazy),
        ];
        for (word, _) in words.into_iter().filter(|w| w.1) {
            write!(f, " {word}")?;
        }
        f.write_char('\n')?;
        self.steps.iter().try_for_each(|s| writeln!(f, "{s}"))
    }
}

fn number<T: TryFrom<i64>>(text: &str) -> Result<T, String> {
    let n = text.parse::<i64>().ok().and_then(|n| T::try_from(n).ok());
    n.ok_or_else(|| format!("\"{text}\" is no number, or too large a one"))
}

impl Opt {
    fn parse(text: &str) -> Result<Option<Opt>, String> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        Ok(Some(match name {
            "mss" => Opt::Mss(number(value)?),
            "scale" => Opt::Scale(number(value)?),
            "sack" => Opt::SackOk,
            "time" => match value.split_once(':') {
                None => Opt::Time(number(value)?, None),
                Some((value, echo)) => Opt::Time(number(value)?, Some(number(echo)?)),
            },
            "fastopen" => Opt::FastOpen(number(value)?),
            "raw" => {
                let digits = (0..value.len()).step_by(2);
                let byte = |i| value.get(i..i + 2).and_then(|d: &str| u8::from_str_radix(d, 16).ok());
                Opt::Raw(
                    digits.map(byte).collect::<Option<_>>().ok_or_else(|| format!("\"{value}\" is not hexadecimal"))?,
                )
            }
            _ => return Ok(None),
        }))
    }
}

impl Piece {
    fn parse(text: &str) -> Result<Piece, String> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(|| format!("\"{text}\" is no fragment: ID:OF:FROM+LEN is"));
        let (id, of, range) = (number(next()?)?, number(next()?)?, next()?);
        let (from, len) = range.split_once('+').ok_or_else(|| format!("\"{range}\" is no range: FROM+LEN is"))?;
        let mut p = Piece { id, of, from: number(from)?, len: number(len)?, ..Piece::default() };
        for word in parts {
            match word {
                "more" => p.more = true,
                "lost" => p.lost = true,
                "broken" => p.broken = true,
                _ => match word.strip_prefix('v') {
                    Some(v) => p.version = number(v)?,
                    None => return Err(format!("\"{word}\" says nothing of a fragment")),
                },
            }
        }
        Ok(p)
    }
}

impl Step {
    fn parse(line: &str) -> Result<Step, String> {
        let mut words = line.split_whitespace();
        let mut value = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        match value("a step")? {
            "read" => return Ok(Step::Read),
            "shutdown" => return Ok(Step::Shutdown),
            "write" => return Ok(Step::Write(number(value("a number of bytes")?)?)),
            "wait" => return Ok(Step::Wait(number(value("a number of seconds")?)?)),
            "piece" => return Ok(Step::Piece(Piece::parse(value("a fragment")?)?)),
            "segment" => {}
            other => return Err(format!("\"{other}\" is no step")),
        }
        let mut s = Segment { flags: 0, ..Segment::default() };
        for word in words {
            match word.split_once('=') {
                Some(("at", v)) => s.at = number(v)?,
                Some(("len", v)) => s.len = number(v)?,
                Some(("v", v)) => s.version = number(v)?,
                Some(("ack", v)) => s.ack = number(v)?,
                Some(("window", v)) => s.window = number(v)?,
                Some(("urgent", v)) => s.urgent = number(v)?,
                Some(("trailing", v)) => s.trailing = number(v)?,
                Some(("offset", v)) => s.offset = Some(number(v)?),
                Some(("piece", v)) => s.pieces.push(Piece::parse(v)?),
                Some(("flags", v)) => {
                    for c in v.chars() {
                        let known = FLAGS.iter().find(|f| f.1 == c);
                        s.flags |= known.ok_or_else(|| format!("\"{c}\" is no flag"))?.0;
                    }
                }
                _ => match word {
                    "broken" => s.broken = true,
                    "lost" => s.lost = true,
                    _ => s
                        .options
                        .push(Opt::parse(word)?.ok_or_else(|| format!("\"{word}\" says nothing of a segment"))?),
                },
            }
        }
        Ok(Step::Segment(s))
    }
}

impl Conversation {
    /// Parses the text form ([`fmt::Display`]). Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// The line that cannot be read, and why.
    pub fn parse(text: &str) -> Result<Conversation, String> {
        let mut c: Option<Conversation> = None;
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |e: String| format!("line {}: {e}", n + 1);
            match (&mut c, line.strip_prefix("conversation")) {
                (None, Some(words)) => c = Some(Self::head(words).map_err(at)?),
                (Some(c), None) => c.steps.push(Step::parse(line).map_err(at)?),
                (None, None) => return Err(at("a line that begins with \"conversation\" comes first".to_owned())),
                (Some(_), Some(_)) => return Err(at("there is one conversation in a file".to_owned())),
            }
        }
        c.ok_or_else(|| "there is no conversation in it".to_owned())
    }

    fn head(words: &str) -> Result<Conversation, String> {
        let mut c = Conversation::default();
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some(("class", v)) => v.clone_into(&mut c.class),
                Some(("port", v)) => c.port = number(v)?,
                Some(("isn", v)) => c.isn = number(v)?,
                _ => match word {
                    "v6" => c.v6 = true,
                    "client" => c.role = Role::Client,
                    "oobinline" => c.oob_inline = true,
                    "http" => c.http = true,
                    "lazy" => c.lazy = true,
                    _ => return Err(format!("\"{word}\" says nothing of a conversation")),
                },
            }
        }
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let piece = Piece { id: 3, of: 40, from: 8, len: 16, more: true, version: 1, lost: true, broken: true };
        let segment = Segment {
            at: -70_000,
            len: 9,
            version: 2,
            flags: flag::SYN | flag::URG,
            ack: -5,
            window: 7,
            urgent: 4,
            options: vec![
                Opt::Mss(1460),
                Opt::Scale(15),
                Opt::SackOk,
                Opt::Time(-3, None),
                Opt::Time(4, Some(u32::MAX)),
                Opt::FastOpen(8),
                Opt::Raw(vec![1, 0xff]),
            ],
            broken: true,
            lost: true,
            offset: Some(3),
            trailing: 6,
            pieces: vec![piece, Piece { id: 1, of: 8, ..Piece::default() }],
        };
        let c = Conversation {
            class: "all".into(),
            v6: true,
            role: Role::Client,
            port: 2,
            oob_inline: true,
            http: true,
            lazy: true,
            isn: u32::MAX,
            steps: vec![
                Step::Segment(segment),
                Step::Segment(Segment::default()),
                Step::Piece(piece),
                Step::Read,
                Step::Write(3),
                Step::Shutdown,
                Step::Wait(61),
            ],
        };
        assert_eq!(Conversation::parse(&c.to_string()), Ok(c.clone()), "{c}");
        let plain = Conversation { class: "x".into(), ..Conversation::default() };
        assert_eq!(Conversation::parse(&format!("# why\n\n{plain}")), Ok(plain));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, why) in [
            ("", "there is no conversation"),
            ("read", "line 1: a line that begins"),
            ("conversation class=a\nconversation", "line 2: there is one"),
            ("conversation x", "says nothing of a conversation"),
            ("conversation\nsegment at=x", "line 2: \"x\" is no number"),
            ("conversation\nsegment at=1 flags=Q", "\"Q\" is no flag"),
            ("conversation\nsegment at=1 raw:0g", "not hexadecimal"),
            ("conversation\npiece 1:2", "is no fragment"),
            ("conversation\npiece 1:2:3", "is no range"),
            ("conversation\nwrite 70000", "too large"),
            ("conversation\ndance", "is no step"),
        ] {
            let e = Conversation::parse(text).unwrap_err();
            assert!(e.contains(why), "{text:?}: {e}");
        }
    }

    #[test]
    fn versions_disagree_about_every_byte() {
        for at in -50..500 {
            let all: Vec<u8> = (0..4).map(|v| content(false, at, v)).collect();
            for (i, b) in all.iter().enumerate() {
                assert!(!all[..i].contains(b), "{at}");
            }
        }
        assert_eq!(content(true, 0, 0), b'P');
    }
}
