//! The mail of a transaction: the data kept from it, and its files.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::ops::{Deref, DerefMut};

use margay_flow::Direction;
use margay_packet::KeyedMap;

use crate::event::AppEvents;
use crate::file::Files;
use crate::mime::{Message, Part, Problem, Status};
use crate::parser::Parse;

use super::line::{MAX_LINE, split};
use crate::config::smtp::{Config, MailField};

/// The limit of fields; further ones are dropped.
const MAX_FIELDS: usize = 128;
/// The limit in bytes for fields that neither rules nor events use; further ones are dropped.
const MAX_OTHER_BYTES: usize = 16 << 10;
/// The limit of URLs; further ones are dropped.
const MAX_URLS: usize = 1024;
/// The limit of URLs in bytes.
const MAX_URL_BYTES: usize = 256 << 10;
/// The limit of attachment names; further ones are dropped.
const MAX_ATTACHMENTS: usize = 256;
/// The size of data batches for files.
const BATCH: usize = 16 << 10;
/// File name of a mail that is not parsed.
const RAW_NAME: &[u8] = b"rawmsg";

/// A mail.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    message: Message,
    /// The mail becomes one raw file.
    raw: bool,
    /// Whether any data came.
    pub(crate) begun: bool,
    found: Found,
}

/// The parts of a mail that rules and events see.
#[derive(Debug, Default)]
pub(crate) struct Found {
    fields: Vec<(MailField, Vec<u8>)>,
    /// Fields that neither rules nor events use, for scripts.
    others: Vec<(Vec<u8>, Vec<u8>)>,
    other_bytes: usize,
    pub(crate) urls: Vec<Vec<u8>>,
    url_bytes: usize,
    /// Indexes of URLs by their hash.
    url_places: KeyedMap<u64, usize>,
    /// Bytes of all kept texts.
    bytes: usize,
    pub(crate) attachments: Vec<Vec<u8>>,
}

impl Deref for Mail {
    type Target = Found;

    fn deref(&self) -> &Found {
        &self.found
    }
}

impl DerefMut for Mail {
    fn deref_mut(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Mail {
    /// Starts a mail; `None` if mail is not processed.
    pub(crate) fn new(config: &Config) -> Option<Box<Mail>> {
        let raw = config.raw_extraction && !config.decode_mime;
        (raw || config.decode_mime)
            .then(|| Box::new(Mail { message: Message::new(&config.mime), raw, ..Mail::default() }))
    }

    /// Memory in bytes, including its own size.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Mail>()
            + self.message.memory()
            + self.bytes
            + self.fields.capacity() * size_of::<(MailField, Vec<u8>)>()
            + self.others.capacity() * size_of::<(Vec<u8>, Vec<u8>)>()
            + (self.urls.capacity() + self.attachments.capacity()) * size_of::<Vec<u8>>()
            + self.url_places.capacity() * size_of::<(u64, usize)>()
    }

    /// The parsing status.
    pub(crate) const fn status(&self) -> Status {
        self.message.status()
    }

    /// Whether it was parsed.
    pub(crate) const fn is_parsed(&self) -> bool {
        !self.raw
    }

    /// See [`Message::body_md5`].
    pub(crate) const fn body_md5(&self) -> Option<[u8; 16]> {
        self.message.body_md5()
    }
}

impl Found {
    /// The first field with this name.
    pub(crate) fn first(&self, field: MailField) -> Option<&[u8]> {
        self.all(field).next()
    }

    /// All fields with this name.
    pub(crate) fn all(&self, field: MailField) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.fields.iter().filter(move |f| f.0 == field).map(|f| f.1.as_slice())
    }

    /// The first field with any given name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<&[u8]> {
        match MailField::from_name(name) {
            Some(field) => self.first(field),
            None => self.others.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice()),
        }
    }

    /// The names of all fields.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        let known = self.fields.iter().map(|f| f.0.name().as_bytes());
        known.chain(self.others.iter().map(|(n, _)| n.as_slice())).collect()
    }

    /// Whether a URL is new. If so, the caller keeps it as the next one.
    fn is_new(&mut self, url: &[u8]) -> bool {
        let hash = self.url_places.hasher().hash_one(url);
        let place = self.urls.len();
        match self.url_places.entry(hash) {
            Entry::Occupied(e) => self.urls.get(*e.get()).is_none_or(|u| u != url),
            Entry::Vacant(e) => {
                e.insert(place);
                true
            }
        }
    }

    fn part(&mut self, config: &Config, part: Part<'_>) {
        match part {
            Part::Field(_, value) if value.trim_ascii().is_empty() => {}
            Part::Field(name, value) => match MailField::from_name(name) {
                Some(field) if self.fields.len() < MAX_FIELDS => {
                    self.bytes += value.len();
                    self.fields.push((field, value.to_vec()));
                }
                None if self.others.len() < MAX_FIELDS
                    && self.other_bytes + name.len() + value.len() <= MAX_OTHER_BYTES =>
                {
                    self.other_bytes += name.len() + value.len();
                    self.bytes += name.len() + value.len();
                    self.others.push((name.to_vec(), value.to_vec()));
                }
                _ => {}
            },
            Part::Attachment(name) if self.attachments.len() < MAX_ATTACHMENTS => {
                self.bytes += name.len();
                self.attachments.push(name.to_vec());
            }
            Part::Url { url, scheme } => {
                let shown = if config.log_url_scheme { url } else { url.get(scheme..).unwrap_or(url) };
                if self.urls.len() < MAX_URLS
                    && self.url_bytes.saturating_add(shown.len()) <= MAX_URL_BYTES
                    && self.is_new(shown)
                {
                    self.url_bytes += shown.len();
                    self.bytes += shown.len();
                    self.urls.push(shown.to_vec());
                }
            }
            _ => {}
        }
    }
}

/// The context for reading a mail.
pub(crate) struct MailCx<'a, 'p> {
    cx: &'a mut Parse<'p>,
    files: &'a mut Files,
    events: &'a mut AppEvents,
    /// The direction of the mail.
    dir: Direction,
    /// Converts a problem to its event number.
    event: fn(Problem) -> u8,
    /// Data of the open file that has not been handed on.
    batch: Vec<u8>,
}

impl<'a, 'p> MailCx<'a, 'p> {
    pub(crate) fn new(
        cx: &'a mut Parse<'p>,
        files: &'a mut Files,
        events: &'a mut AppEvents,
        dir: Direction,
        event: fn(Problem) -> u8,
    ) -> Self {
        let mut batch = std::mem::take(&mut cx.shared.scratch);
        batch.clear();
        MailCx { cx, files, events, dir, event, batch }
    }

    /// Reads a piece of a line: see [`Message::line`]. With `dot`, the client's dot stuffing was removed from it.
    pub(crate) fn line(&mut self, mail: &mut Mail, piece: &[u8], first: bool, ending: &[u8], dot: bool) {
        mail.begun = true;
        if mail.raw {
            if !self.files.is_open(self.dir) && mail.attachments.is_empty() {
                mail.attachments.push(RAW_NAME.to_vec());
                self.tell(Part::Begin(RAW_NAME));
            }
            self.tell(Part::Data(piece));
            self.tell(Part::Data(ending));
            return;
        }
        self.with(mail, |message, config, sink| {
            if dot {
                message.stuffing(b".");
            }
            message.line(&config.mime, piece, first, ending, sink);
        });
    }

    /// Handles a gap.
    pub(crate) fn gap(&mut self, mail: &mut Mail, len: u64) {
        if mail.raw {
            self.tell(Part::Gap(len));
        } else {
            self.with(mail, |message, _, sink| message.gap(len, sink));
        }
    }

    /// Ends the mail; `truncated` if its end was not seen.
    pub(crate) fn end(&mut self, mail: &mut Mail, truncated: bool) {
        if mail.raw {
            self.tell(Part::End { truncated });
        } else {
            self.with(mail, |message, config, sink| message.finish(&config.mime, truncated, sink));
        }
    }

    fn with(&mut self, mail: &mut Mail, f: impl FnOnce(&mut Message, &Config, &mut dyn FnMut(Part<'_>))) {
        let Mail { message, found, .. } = mail;
        let config = &self.cx.config.smtp;
        f(message, config, &mut |part| {
            found.part(config, part);
            self.tell(part);
        });
    }

    fn tell(&mut self, part: Part<'_>) {
        let dir = self.dir;
        if !matches!(part, Part::Data(_)) {
            self.flush();
        }
        let (engine, config) = (&mut self.cx.shared.files, &self.cx.config.files);
        match part {
            Part::Begin(name) => self.files.open(engine, config, dir, name, None),
            Part::Data(data) => {
                self.batch.extend_from_slice(data);
                if self.batch.len() >= BATCH {
                    self.flush();
                }
            }
            Part::Gap(len) => self.files.gap(engine, config, dir, len),
            Part::End { truncated } => self.files.close(engine, config, dir, truncated),
            Part::Problem(problem) => self.events.add((self.event)(problem)),
            Part::Field(..) | Part::Attachment(_) | Part::Url { .. } => {}
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            self.files.append(&mut self.cx.shared.files, &self.cx.config.files, self.dir, &self.batch);
            self.batch.clear();
        }
    }

    /// Hands on the remaining data.
    pub(crate) fn done(mut self) {
        self.flush();
        self.cx.shared.scratch = std::mem::take(&mut self.batch);
    }
}

/// The lines of a mail that comes in pieces of any length. The parser gets a longer line than [`MAX_LINE`] in pieces.
#[derive(Debug)]
pub(crate) struct Lines {
    /// The beginning of the current piece, which is incomplete.
    begun: Vec<u8>,
    /// That piece begins a line.
    start: bool,
    /// The client puts a dot before each line that begins with one.
    stuffed: bool,
}

impl Lines {
    pub(crate) const fn new(stuffed: bool) -> Self {
        Lines { begun: Vec::new(), start: true, stuffed }
    }

    /// Heap memory in bytes.
    pub(crate) const fn held(&self) -> usize {
        self.begun.capacity()
    }

    /// Whether the next byte begins a line.
    pub(crate) const fn at_start(&self) -> bool {
        self.start && self.begun.is_empty()
    }

    /// Reads bytes of the mail.
    pub(crate) fn read(&mut self, reader: &mut MailCx<'_, '_>, mail: &mut Mail, mut data: &[u8]) {
        while !data.is_empty() {
            let room = MAX_LINE.saturating_sub(self.begun.len());
            let within = data.get(..room).unwrap_or(data);
            let end = memchr::memchr(b'\n', within);
            let (piece, rest) = data.split_at(end.map_or(within.len(), |n| n + 1));
            data = rest;
            if !self.begun.is_empty() || end.is_none() && piece.len() < room {
                self.begun.extend_from_slice(piece);
                if end.is_some() || piece.len() == room {
                    self.flush(reader, mail);
                }
            } else {
                self.line(reader, mail, piece);
            }
        }
    }

    /// Passes over bytes of a mail that is not read.
    pub(crate) fn pass(&mut self, data: &[u8]) {
        self.start = data.last().map_or(self.start, |last| *last == b'\n');
    }

    /// Handles a gap. The line before it ends there, so that its bytes do not come behind the gap.
    pub(crate) fn gap(&mut self, reader: &mut MailCx<'_, '_>, mail: &mut Mail, len: u64) {
        self.flush(reader, mail);
        self.start = false;
        reader.gap(mail, len);
    }

    /// Reads the line whose end has not come.
    pub(crate) fn flush(&mut self, reader: &mut MailCx<'_, '_>, mail: &mut Mail) {
        let mut begun = std::mem::take(&mut self.begun);
        if !begun.is_empty() {
            self.line(reader, mail, &begun);
            begun.clear();
            self.begun = begun;
        }
    }

    fn line(&mut self, reader: &mut MailCx<'_, '_>, mail: &mut Mail, line: &[u8]) {
        let (text, ending) = split(line);
        let own = text.strip_prefix(b".").filter(|_| self.start && self.stuffed);
        reader.line(mail, own.unwrap_or(text), self.start, ending, own.is_some());
        self.start = !ending.is_empty();
    }
}
