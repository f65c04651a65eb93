//! A command with its responses, or a mail that the server sent.

use margay_flow::Direction;
use margay_json::Json;

use crate::config::AppLogOptions;
use crate::conversation::Content;
use crate::smtp::mail::Mail;
use crate::smtp::{email_buffer, log_email};
use crate::tx::{Found, LogFor, TxBase};
use crate::window::WindowLimits;

use super::syntax::{ARGUMENT_MAX, Words};
use super::{EMAIL_AT, Id};

/// The limit of arguments kept from a command.
const ARGUMENTS_MAX: usize = 3;
/// The limit of responses in bytes.
const RESPONSES_MAX: usize = 16 << 10;
/// The limit of responses.
const LINES_MAX: usize = 256;

/// A command. Passwords are not kept.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) tag: Vec<u8>,
    /// The command in capitals, including `UID`.
    pub(super) name: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    /// Name of the user that logs in.
    pub(super) user: Option<Vec<u8>>,
}

impl Command {
    /// Reads a line after its tag, without its end, and without the literal that it announces.
    pub(super) fn read(tag: &[u8], line: &[u8]) -> Command {
        let mut words = Words(line);
        let mut name = words.next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"UID")
            && let Some(second) = words.next()
        {
            name.push(b' ');
            name.extend(second);
        }
        name.make_ascii_uppercase();
        let mut command = Command { tag: tag.to_vec(), name, ..Command::default() };
        command.add(words.0);
        command
    }

    /// Adds the words of a further piece.
    pub(super) fn add(&mut self, line: &[u8]) {
        let room = self.most().saturating_sub(self.arguments.len());
        self.arguments.extend(Words(line).take(room));
        self.find_user();
    }

    /// Adds a literal.
    pub(super) fn add_literal(&mut self, literal: Vec<u8>) {
        if self.arguments.len() < self.most() {
            self.arguments.push(literal);
        }
        self.find_user();
    }

    /// A copy without arguments, for a further mail of the command.
    pub(super) fn again(&self) -> Command {
        Command { tag: self.tag.clone(), name: self.name.clone(), ..Command::default() }
    }

    /// Whether the next literal is a mail. Parts that the server joins (RFC 4469) are not.
    pub(super) fn takes_mail(&self) -> bool {
        let parts = || self.arguments.iter().any(|a| a.eq_ignore_ascii_case(b"CATENATE"));
        self.is("APPEND") && !self.arguments.is_empty() && !parts()
    }

    /// Arguments after the user name or the mechanism are secret.
    fn most(&self) -> usize {
        if self.is("LOGIN") || self.is("AUTHENTICATE") { 1 } else { ARGUMENTS_MAX }
    }

    fn find_user(&mut self) {
        if self.is("LOGIN") && self.user.is_none() {
            self.user = self.arguments.first().cloned();
        }
    }

    /// Whether it is this command, given in capitals.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name.as_bytes()
    }

    /// The mechanism of an authentication.
    pub(super) fn mechanism(&self) -> Option<&[u8]> {
        self.arguments.first().filter(|_| self.is("AUTHENTICATE")).map(Vec::as_slice)
    }

    /// The mailbox of the command.
    fn mailbox(&self) -> Option<&[u8]> {
        let at = match self.name.as_slice() {
            b"SELECT" | b"EXAMINE" | b"CREATE" | b"DELETE" | b"RENAME" | b"SUBSCRIBE" | b"UNSUBSCRIBE" | b"STATUS"
            | b"APPEND" | b"GETACL" | b"SETACL" | b"DELETEACL" | b"LISTRIGHTS" | b"MYRIGHTS" | b"GETQUOTAROOT"
            | b"GETMETADATA" | b"SETMETADATA" => 0,
            b"LIST" | b"LSUB" | b"COPY" | b"MOVE" | b"UID COPY" | b"UID MOVE" => 1,
            _ => return None,
        };
        self.arguments.get(at).map(Vec::as_slice)
    }

    fn held(&self) -> usize {
        let arguments: usize = self.arguments.iter().map(|a| size_of::<Vec<u8>>() + a.capacity()).sum();
        self.tag.capacity() + self.name.capacity() + arguments + self.user.as_ref().map_or(0, Vec::capacity)
    }

    fn log(&self, json: &mut Json) {
        json.bytes("tag", &self.tag);
        json.bytes("command", self.name.get(..ARGUMENT_MAX).unwrap_or(&self.name));
        if let Some(user) = &self.user {
            json.bytes("user", user);
        }
        if let Some(mechanism) = self.mechanism() {
            json.bytes("mechanism", mechanism);
        }
        if let Some(mailbox) = self.mailbox() {
            json.bytes("mailbox", mailbox);
        } else if !self.arguments.is_empty() && self.user.is_none() && self.mechanism().is_none() {
            json.array("arguments");
            self.arguments.iter().for_each(|a| json.item_bytes(a));
            json.end_array();
        }
    }
}

/// A command with its responses. The greeting is a response without a command, and each fetched mail has a transaction of its
/// own.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) command: Option<Command>,
    /// The responses, as lines without their ends and without literals.
    pub(super) lines: Vec<Vec<u8>>,
    pub(super) line_bytes: usize,
    /// The final response.
    pub(super) status: Option<(&'static str, Vec<u8>)>,
    /// Its mail.
    pub(super) mail: Option<Box<Mail>>,
    /// For a mail from the server, its number in the response.
    pub(super) fetched: Option<Vec<u8>>,
    /// Compressed data follows.
    pub(super) compressed: bool,
    pub(super) window: WindowLimits,
}

impl Exchange {
    /// Adds a response.
    pub(super) fn line(&mut self, line: &[u8]) {
        if self.lines.len() < LINES_MAX && self.line_bytes + line.len() <= RESPONSES_MAX {
            self.line_bytes += line.len();
            self.lines.push(line.to_vec());
        }
    }
}

impl Content for Exchange {
    fn held(&self) -> u64 {
        let lines: usize = self.lines.iter().map(|l| size_of::<Vec<u8>>() + l.capacity()).sum();
        let own = self.command.as_ref().map_or(0, Command::held)
            + lines
            + self.status.as_ref().map_or(0, |s| s.1.capacity())
            + self.fetched.as_ref().map_or(0, Vec::capacity)
            + self.mail.as_ref().map_or(0, |m| m.memory());
        own as u64
    }

    fn buffer<'a>(&'a self, id: u8, dir: Direction, index: usize, scratch: &'a mut Vec<u8>) -> Option<Found<'a>> {
        if let Some(of_mail) = id.checked_sub(EMAIL_AT) {
            // A mail has one direction: from the server if it was fetched, otherwise to it.
            let to_client = self.fetched.is_some();
            let mail = self.mail.as_ref().filter(|_| (dir == Direction::ToClient) == to_client)?;
            return email_buffer(mail, of_mail, index, scratch).map(Found::whole);
        }
        let command = self.command.as_ref().filter(|_| dir == Direction::ToServer && index == 0);
        let text = match Id::of(id)? {
            Id::Command => &command?.name,
            Id::User => command?.user.as_deref()?,
            Id::Mailbox => command?.mailbox()?,
            Id::Response if dir == Direction::ToClient => match self.lines.get(index) {
                Some(line) => line,
                None => self.status.as_ref().filter(|_| index == self.lines.len()).map(|s| &s.1)?,
            },
            Id::Response => return None,
        };
        Some(Found::whole(text))
    }

    fn file_window(&self, _inline: bool) -> Option<WindowLimits> {
        Some(self.window)
    }

    fn log(&self, _base: &TxBase, json: &mut Json, options: &AppLogOptions, what: LogFor) {
        json.object("imap");
        if let Some(command) = &self.command {
            json.object("request");
            command.log(json);
            json.end_object();
        }
        if let Some(item) = &self.fetched {
            json.bytes("fetched", item);
        }
        if self.status.is_some() || !self.lines.is_empty() {
            json.object("response");
            if let Some((status, text)) = &self.status {
                json.str("status", status);
                json.bytes("text", text.get(status.len()..).unwrap_or_default().trim_ascii_start());
            }
            if !self.lines.is_empty() {
                json.array("lines");
                self.lines.iter().for_each(|l| json.item_bytes(l));
                json.end_array();
            }
            json.end_object();
        }
        if self.compressed {
            json.bool("compressed", true);
        }
        json.end_object();
        if let Some(mail) = &self.mail {
            log_email(mail, json, options, what);
        }
    }
}
