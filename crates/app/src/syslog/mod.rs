//! Syslog (RFC 5424, RFC 3164) over UDP and TCP (RFC 6587): each message is a transaction.

mod message;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Resume, Turn, parser};
use crate::declare::{Keyword, KeywordDirection, Protocol, word};
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP, UDP};
use crate::tx::{Found, LogFor, TxBase};

use message::{FACILITIES, Message, SEVERITIES, priority};

/// The longest message; over TCP, the rest of a longer one becomes another message.
const LONGEST: usize = 8192;
/// The limit of digits in a message's length over TCP.
const DIGITS: usize = 5;

keywords! {
    Facility Keyword::words(&["syslog.facility"], 23, FACILITIES, KeywordDirection::Both);
    Severity Keyword::words(&["syslog.severity"], 7, SEVERITIES, KeywordDirection::Both);
    Hostname Keyword::buffer(&["syslog.hostname"], KeywordDirection::Both);
    AppName Keyword::buffer(&["syslog.app_name"], KeywordDirection::Both);
    Text Keyword::buffer(&["syslog.message"], KeywordDirection::Both);
}

/// Syslog.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition {
        patterns: &[],
        probes: &[
            Probe { transport: UDP, ports: &[514], probe: datagram },
            Probe { transport: TCP, ports: &[514, 601], probe: stream },
        ],
    },
    parser: parser::<Syslog>,
    keywords: KEYWORDS,
    buffers: &BUFFERS,
    numbers: &NUMBERS,
    ..Protocol::new(AppProto::Syslog, "syslog").logged().own()
};

/// Checks for a priority (RFC 5424 section 6.2.1).
fn datagram(_: Direction, data: &[u8]) -> Probed {
    if priority(data).is_some() { Probed::Yes { reverse: false } } else { Probed::No }
}

/// Checks for a priority, with or without a length before the message.
fn stream(_: Direction, data: &[u8]) -> Probed {
    let digits = data.iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = match data.get(digits..) {
        _ if digits > DIGITS => return Probed::No,
        None | Some([]) => return Probed::More,
        Some([b' ', rest @ ..]) if digits > 0 => rest,
        Some(rest) if digits == 0 => rest,
        Some(_) => return Probed::No,
    };
    if priority(rest).is_some() {
        return Probed::Yes { reverse: false };
    }
    // A priority has at most five characters.
    match rest {
        [] => Probed::More,
        [b'<', digits @ ..] if digits.len() < 4 && digits.iter().all(u8::is_ascii_digit) => Probed::More,
        _ => Probed::No,
    }
}

/// The state of a flow: nothing is kept between messages.
#[derive(Debug)]
struct Syslog {
    stream: bool,
}

/// Reads the length before a message (RFC 6587 section 3.4.1). Returns it and its own length. `None` if more digits may follow.
fn counted(data: &[u8]) -> Option<Option<(usize, usize)>> {
    let digits = data.iter().take(DIGITS + 1).take_while(|b| b.is_ascii_digit()).count();
    match data.get(digits) {
        _ if digits > DIGITS => Some(None),
        None => None,
        Some(b' ') if digits > 0 => {
            let len = data.get(..digits)?.iter().fold(0, |n, d| n * 10 + usize::from(d - b'0'));
            Some(Some((len, digits + 1)))
        }
        Some(_) => Some(None),
    }
}

impl Conversation for Syslog {
    type Tx = Message;
    const PROTO: AppProto = AppProto::Syslog;
    const RESUMES: bool = true;

    fn new(_config: &AppConfig, flow: &FlowCore) -> Self {
        Syslog { stream: flow.proto == 6 }
    }

    fn framing(&mut self, _dir: Direction, data: &[u8], end: bool) -> Framing {
        if let Some(Some((len, before))) = counted(data) {
            let kept = len.min(LONGEST);
            return Framing::Head(before + kept, (len - kept) as u64);
        }
        let seen = data.get(..LONGEST).unwrap_or(data);
        match seen.iter().position(|b| *b == b'\n') {
            Some(at) => Framing::Message(at + 1),
            None if end || seen.len() == LONGEST => Framing::Message(seen.len()),
            None => Framing::More,
        }
    }

    /// After a gap, the rest of a line is not a message. With length prefixes, the next message cannot be found.
    fn resume(&mut self, _dir: Direction, data: &[u8], _end: bool) -> Resume {
        match data.iter().position(|b| *b == b'<') {
            Some(0) if priority(data).is_some() => Resume::Here,
            Some(0) if data.len() < 5 => Resume::More,
            Some(0) => Resume::Skip(1),
            Some(at) => Resume::Skip(at),
            None => Resume::Skip(data.len()),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Message>, dir: Direction, message: &[u8]) -> Outcome {
        let before = if self.stream { counted(message).flatten().map_or(0, |c| c.1) } else { 0 };
        let text = message.get(before..).unwrap_or(&[]);
        if let Some(message) = Message::read(dir, text.get(..LONGEST).unwrap_or(text)) {
            turn.one_way(dir, message);
        }
        Outcome::More
    }
}

impl Content for Message {
    fn held(&self) -> u64 {
        self.text.len() as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, _scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        let text = match Id::of(id)? {
            _ if dir != self.dir || index > 0 => return None,
            Id::Hostname => self.part(&self.hostname)?,
            Id::AppName => self.part(&self.app_name)?,
            Id::Text => self.message(),
            Id::Facility | Id::Severity => return None,
        };
        Some(Found::whole(text))
    }

    fn number(&self, id: u8, dir: Direction, index: usize) -> Option<u64> {
        match Id::of(id)? {
            _ if dir != self.dir || index > 0 => None,
            Id::Facility => Some(u64::from(self.priority >> 3)),
            Id::Severity => Some(u64::from(self.priority & 7)),
            Id::Hostname | Id::AppName | Id::Text => None,
        }
    }

    fn direction(&self, _only: Option<Direction>) -> Direction {
        self.dir
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("syslog");
        json.str("facility", word(FACILITIES, u64::from(self.priority >> 3)).unwrap_or_default());
        json.str("severity", word(SEVERITIES, u64::from(self.priority & 7)).unwrap_or_default());
        for (key, part) in [
            ("timestamp", &self.timestamp),
            ("hostname", &self.hostname),
            ("app_name", &self.app_name),
            ("proc_id", &self.proc_id),
            ("msg_id", &self.msg_id),
        ] {
            if let Some(text) = self.part(part) {
                json.bytes(key, text);
            }
        }
        json.bytes("message", self.message());
        json.end_object();
    }
}

#[cfg(test)]
mod tests {
    use margay_flow::Direction::ToServer;

    use super::*;
    use crate::testing::Talk;

    /// RFC 5424 section 6.5, example 1; RFC 3164 section 5.4, example 1.
    const NEW: &[u8] =
        b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed for lonvick on /dev/pts/8";
    const OLD: &[u8] = b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8";

    const LOGGED: [&str; 2] = [
        r#"{"syslog":{"facility":"auth","severity":"crit","timestamp":"2003-10-11T22:14:15.003Z","hostname":"mymachine.example.com","app_name":"su","msg_id":"ID47","message":"'su root' failed for lonvick on /dev/pts/8"}}"#,
        r#"{"syslog":{"facility":"auth","severity":"crit","timestamp":"Oct 11 22:14:15","hostname":"mymachine","app_name":"su","message":"'su root' failed for lonvick on /dev/pts/8"}}"#,
    ];

    #[test]
    fn datagrams() {
        let mut talk = Talk::udp(AppProto::Syslog, 514);
        talk.client(NEW).client(OLD).client(b"no priority");
        assert_eq!(talk.logs(), LOGGED);
        assert_eq!(
            (talk.numbers("syslog.facility", ToServer), talk.numbers("syslog.severity", ToServer)),
            (vec![4, 4], vec![2, 2])
        );
        assert_eq!(talk.buffers("syslog.hostname", ToServer), ["mymachine.example.com", "mymachine"]);
        assert_eq!(talk.buffers("syslog.app_name", ToServer), ["su", "su"]);
    }

    #[test]
    fn streams() {
        let count = format!("{} ", NEW.len());
        let mut talk = Talk::tcp(AppProto::Syslog, 601);
        talk.client(&[count.as_bytes(), NEW, OLD, b"\n"].concat());
        assert_eq!(talk.logs(), LOGGED);
        // The rest of a line after a gap is skipped.
        let mut talk = Talk::tcp(AppProto::Syslog, 601);
        talk.client(&OLD[..20]).gap(ToServer, 500).client(&[b"rest of it\n", OLD, b"\n"].concat());
        assert_eq!(talk.logs(), LOGGED[1..]);
        let mut talk = Talk::tcp(AppProto::Syslog, 601);
        talk.client(&[&b"<13>"[..], &[b'x'; 9000]].concat());
        assert_eq!(talk.txs().len(), 1);
    }

    #[test]
    fn recognition() {
        for (data, expected) in [
            (&b"<34>1 "[..], Probed::Yes { reverse: false }),
            (b"112 <34>", Probed::Yes { reverse: false }),
            (b"<3", Probed::More),
            (b"11", Probed::More),
            (b"11 ", Probed::More),
            (b"<192>", Probed::No),
            (b"123456 <1>", Probed::No),
            (b"GET /", Probed::No),
            (b"<html>", Probed::No),
        ] {
            assert_eq!(stream(ToServer, data), expected, "{}", data.escape_ascii());
        }
        assert_eq!(datagram(ToServer, b"<3"), Probed::No);
    }
}
