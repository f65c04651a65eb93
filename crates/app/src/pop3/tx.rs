//! A transaction: a command with its response.

use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::tx::{LogFor, TxBase};

/// The limit of arguments kept from a command.
const ARGUMENTS_MAX: usize = 16;

/// A command.
#[derive(Debug)]
pub(super) struct Request {
    /// Its first word, as written.
    command: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// There were more arguments.
    more: bool,
}

/// Commands, with the least and largest number of arguments.
const COMMANDS: &[(&str, usize, usize)] = &[
    ("USER", 1, 1),
    // A password may have spaces.
    ("PASS", 1, usize::MAX),
    ("APOP", 2, 2),
    ("AUTH", 1, 2),
    ("CAPA", 0, 0),
    ("STLS", 0, 0),
    ("STAT", 0, 0),
    ("LIST", 0, 1),
    ("RETR", 1, 1),
    ("DELE", 1, 1),
    ("NOOP", 0, 0),
    ("RSET", 0, 0),
    ("TOP", 2, 2),
    ("UIDL", 0, 1),
    ("QUIT", 0, 0),
];

impl Request {
    /// Reads a line without its end.
    pub(super) fn read(line: &[u8]) -> Request {
        let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty()).map(<[u8]>::to_vec);
        let command = words.next().unwrap_or_default();
        let arguments = words.by_ref().take(ARGUMENTS_MAX).collect();
        Request { command, arguments, more: words.next().is_some() }
    }

    /// An authentication step. Its content is not logged.
    pub(super) fn credentials() -> Request {
        Request { command: b"<SASL DATA>".to_vec(), arguments: Vec::new(), more: false }
    }

    /// Whether it is this command, in any case.
    pub(super) fn is(&self, command: &str) -> bool {
        self.command.eq_ignore_ascii_case(command.as_bytes())
    }

    /// Whether it is a known command in capitals, or not a command at all.
    pub(super) fn is_known(&self) -> bool {
        self.command == b"<SASL DATA>" || COMMANDS.iter().any(|c| c.0.as_bytes() == self.command)
    }

    /// Whether it has a valid number of arguments; true for an unknown command.
    pub(super) fn has_arguments_it_needs(&self) -> bool {
        let count = if self.more { ARGUMENTS_MAX + 1 } else { self.arguments.len() };
        COMMANDS.iter().find(|c| self.is(c.0)).is_none_or(|(_, least, most)| (*least..=*most).contains(&count))
    }

    /// Whether a positive response has more lines.
    pub(super) fn has_long_response(&self) -> bool {
        let plain = self.arguments.is_empty();
        ["CAPA", "RETR", "TOP"].iter().any(|c| self.is(c))
            || plain && ["LIST", "UIDL", "AUTH"].iter().any(|c| self.is(c))
    }

    fn held(&self) -> usize {
        let arguments: usize = self.arguments.iter().map(|a| size_of::<Vec<u8>>() + a.capacity()).sum();
        self.command.capacity() + arguments
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct Response {
    /// Whether it is `+OK` or a challenge.
    pub(super) success: bool,
    /// It is a challenge (RFC 5034 section 4): the client continues an authentication.
    pub(super) continues: bool,
    /// The text after the status.
    header: Vec<u8>,
    /// The further lines, with their ends.
    data: Vec<u8>,
    /// There were more lines.
    cut_off: bool,
}

impl Response {
    /// Reads the first line, without its end.
    pub(super) fn read(line: &[u8]) -> Option<Response> {
        let (success, continues, rest) = match line {
            [b'+', o, k, rest @ ..] if [*o, *k].eq_ignore_ascii_case(b"OK") => (true, false, rest),
            [b'-', e, r, s, rest @ ..] if [*e, *r, *s].eq_ignore_ascii_case(b"ERR") => (false, false, rest),
            [b'+'] => (true, true, &[] as &[u8]),
            [b'+', b' ', rest @ ..] => (true, true, rest),
            _ => return None,
        };
        let header = rest.trim_ascii_start().to_vec();
        Some(Response { success, continues, header, data: Vec::new(), cut_off: false })
    }

    /// Adds further lines, up to `most` bytes in total. Returns whether these are the first ones that do not fit.
    pub(super) fn add(&mut self, lines: &[u8], most: usize) -> bool {
        if !self.cut_off && self.data.len() + lines.len() <= most {
            self.data.extend_from_slice(lines);
            return false;
        }
        !std::mem::replace(&mut self.cut_off, true)
    }

    fn log(&self, json: &mut Json) {
        json.object("response");
        json.bool("success", self.success);
        json.str("status", if self.success { "OK" } else { "ERR" });
        json.bytes("header", &self.header);
        json.array("data");
        for line in self.data.split_inclusive(|b| *b == b'\n') {
            // A dot at the beginning of a line is doubled (RFC 1939 section 3).
            let line = super::without_end(line);
            json.item_bytes(if line.starts_with(b"..") { &line[1..] } else { line });
        }
        json.end_array();
        json.end_object();
    }
}

/// A command with its response. The greeting is a response without a command.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) request: Option<Request>,
    pub(super) response: Option<Response>,
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let response = self.response.as_ref().map_or(0, |r| r.header.capacity() + r.data.capacity());
        (self.request.as_ref().map_or(0, Request::held) + response) as u64
    }

    fn log(&self, _base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("pop3");
        if let Some(request) = &self.request {
            json.object("request");
            json.bytes("command", &request.command);
            json.array("args");
            request.arguments.iter().for_each(|a| json.item_bytes(a));
            json.end_array();
            json.end_object();
        }
        if let Some(response) = &self.response {
            response.log(json);
        }
        json.end_object();
    }
}
