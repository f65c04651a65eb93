//! Bodies: decoded into an inspection window and a file.

use crate::arguments::Arguments;
use crate::config::http1::ServerConfig;
use crate::decompress::{BOMB_RATIO, Decoder, SCRATCH, Status, codings};
use crate::file::Files;
use crate::http1::events::Event;
use crate::parser::Shared;
use crate::rare::RareVec;
use crate::window::{Window, WindowLimits};
use margay_flow::Direction;
use margay_packet::Time;

use super::chunked::Chunk;
use super::multipart::{Multipart, Part, Problem};

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 4096;

/// The part of a file's name that is kept.
fn cut(name: &[u8]) -> &[u8] {
    name.get(..NAME_MAX).unwrap_or(name)
}

/// How a body ends (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Framing {
    /// There is no body.
    #[default]
    None,
    /// After this many bytes.
    Length(u64),
    /// Chunked.
    Chunked(Chunk),
    /// At the end of the stream.
    Close,
}

impl Framing {
    /// Whether there is no body, or one without a byte.
    pub(crate) const fn is_empty(self) -> bool {
        matches!(self, Framing::None | Framing::Length(0))
    }
}

/// The file to make of a body once it has data.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileWish {
    /// Whether to make a file.
    pub wanted: bool,
    /// Its name.
    pub name: Box<[u8]>,
    /// Its range, if it is a part of a file; most files are complete.
    pub part: Option<Box<FilePart>>,
}

/// The place of a file in the whole file that it is a part of.
#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    /// The range.
    pub range: (u64, u64),
    /// The whole file: a name that is unique across servers, and the length.
    pub whole: Option<(Vec<u8>, u64)>,
}

/// A body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    window: Window,
    decoder: Option<Box<Decoder>>,
    /// Bytes on the wire, including chunk framing.
    pub transferred: u64,
    /// Decoded bytes.
    decoded: u64,
    /// The window has reached its limit.
    limited: bool,
    /// The body has ended.
    pub done: bool,
    /// The last chunk was read: only the trailer follows.
    pub last_chunk: bool,
    /// The file to make of it.
    pub file: FileWish,
    /// The body is multipart (RFC 7578), and some parts may be files.
    pub multipart: Option<Box<Multipart>>,
    /// The arguments of a request, if rules inspect them.
    pub arguments: Option<Box<Arguments>>,
    /// Anomalies, until the transaction takes them.
    pub events: RareVec<Event>,
    opened: bool,
}

/// Beyond `compression-bomb-limit`, the most decoded bytes for each one received in which rules look for arguments. Logs, which
/// compress best, reach half of it.
const ARGUMENTS_RATIO: u64 = 64;

/// The context for handling bodies.
#[derive(Debug)]
pub(crate) struct BodyCx<'a> {
    pub shared: &'a mut Shared,
    pub files: &'a crate::file::FileConfig,
    pub server: &'a ServerConfig,
    pub memcap: u64,
    pub time: Time,
}

impl Body {
    /// Sets up decoding for a `Content-Encoding`; anomalies are added to `events`.
    pub(crate) fn set_coding(&mut self, value: &[u8], server: &ServerConfig, dir: Direction, events: &mut Vec<Event>) {
        let layers = server.layers.get(dir.index()).copied().unwrap_or(0);
        let found = codings(value, layers);
        if found.too_many {
            events.push(Event::TooManyLayers);
        }
        if found.abnormal {
            events.push(Event::AbnormalEncoding);
        }
        if !found.list.is_empty() {
            self.decoder = Some(Box::new(Decoder::new(&found.list, server.decompress)));
        }
    }

    /// Announces the length that the message declares.
    pub(crate) fn announce(&mut self, bytes: u64, server: &ServerConfig, dir: Direction) {
        // The decoded length is unknown.
        if self.decoder.is_none() {
            let limit = server.body_limit.get(dir.index()).copied().unwrap_or(0);
            self.window.announce(if limit == 0 { bytes } else { bytes.min(limit) });
        }
    }

    /// Handles data of the body, without framing.
    pub(crate) fn data(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, data: &[u8]) {
        self.transferred = self.transferred.saturating_add(data.len() as u64);
        if data.is_empty() {
            return;
        }
        let Some(mut decoder) = self.decoder.take() else {
            self.out(cx, files, dir, data);
            return;
        };
        if cx.shared.files.spare_checksums {
            decoder.spare_checksums();
        }
        let limit = cx.server.body_limit.get(dir.index()).copied().unwrap_or(0);
        let status = decoder.push(data, &mut |piece| {
            if self.decoded + piece.len() as u64 >= SCRATCH as u64 && !self.limited {
                // More will follow, and the window grows fewer times towards a known size.
                self.window.announce(limit);
            }
            self.out(cx, files, dir, piece);
            self.wants_more(cx, files, dir)
        });
        self.decoder = Some(decoder);
        self.happened(event(status));
        if status == Status::Bomb && self.opened && files.is_open(dir) {
            // The rest cannot be decoded.
            files.close(&mut cx.shared.files, cx.files, dir, true);
        }
    }

    /// Ends a body without a byte and without anything that waits for its end, as most have. Returns false for any other.
    #[inline]
    pub(crate) const fn end_empty(&mut self) -> bool {
        let empty = self.transferred == 0
            && self.window.memory() == 0
            && self.decoder.is_none()
            && self.multipart.is_none()
            && self.arguments.is_none()
            && !self.opened;
        self.done |= empty;
        empty
    }

    /// Ends the body; `truncated` if its end was not seen.
    pub(crate) fn end(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, truncated: bool) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        if let Some(mut decoder) = self.decoder.take() {
            let status = decoder.finish(&mut |piece| {
                self.out(cx, files, dir, piece);
                self.wants_more(cx, files, dir)
            });
            self.happened(event(status));
        }
        if let Some(mut multipart) = self.multipart.take() {
            multipart.finish(&mut |part| match part {
                Part::End => files.close(&mut cx.shared.files, cx.files, dir, truncated),
                part => self.part(cx, files, dir, part),
            });
        }
        if let Some(arguments) = &mut self.arguments {
            arguments.finish();
            cx.shared.counters.http_arguments += u64::from(arguments.newly_cut());
        }
        self.window.shrink();
        if self.opened && files.is_open(dir) {
            files.close(&mut cx.shared.files, cx.files, dir, truncated);
        }
    }

    /// Handles a gap.
    pub(crate) fn gap(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, len: u64) {
        self.transferred = self.transferred.saturating_add(len);
        // Data after a gap cannot be decoded.
        self.decoder = None;
        // The limits apply to received data, so a gap does not count.
        self.window.gap(len);
        if let Some(mut multipart) = self.multipart.take() {
            multipart.gap(&mut |part| self.part(cx, files, dir, part));
            self.multipart = Some(multipart);
        }
        self.open(cx, files, dir);
        if self.opened && files.is_open(dir) {
            files.gap(&mut cx.shared.files, cx.files, dir, len);
        }
    }

    fn open(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction) {
        if self.file.wanted && !self.opened {
            self.opened = true;
            if self.file.name.len() > NAME_MAX {
                self.happened(Some(Event::FileNameTooLong));
            }
            let part = self.file.part.as_deref();
            files.open(&mut cx.shared.files, cx.files, dir, cut(&self.file.name), part.map(|p| p.range));
            if dir == Direction::ToClient {
                // Rules on `file.data` use the body's own window, like the HTTP buffers.
                files.look_elsewhere(dir);
            }
            if let Some((key, total)) = part.and_then(|p| p.whole.as_ref()) {
                files.range_of(&mut cx.shared.files, cx.files, dir, key, *total, cx.time);
            }
        }
    }

    /// Whether to decode more of a compressed body: for rules up to their limit, for a file to its end, for arguments unless it
    /// grows beyond all proportion, which is a bomb too, because padding would hide the rest. Past these, decoding continues only
    /// to detect a bomb, up to `compression-bomb-limit`, or less if the expansion already shows one.
    fn wants_more(&mut self, cx: &BodyCx<'_>, files: &Files, dir: Direction) -> bool {
        let file = self.multipart.is_some() || (self.opened && files.is_open(dir));
        if file || !self.limited {
            return true;
        }
        let (within, arguments) = (self.decoded <= cx.server.decompress.bomb, self.arguments.is_some());
        let ratio = if arguments && !within { ARGUMENTS_RATIO } else { BOMB_RATIO };
        if self.decoded > self.transferred.saturating_mul(ratio) {
            self.happened(Some(Event::Bomb));
            return false;
        }
        within || arguments
    }

    fn out(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.open(cx, files, dir);
        if let Some(arguments) = &mut self.arguments {
            arguments.push(piece);
        }
        let limit = cx.server.body_limit.get(dir.index()).copied().unwrap_or(0);
        let depth = files.depth(cx.files, dir, limit);
        let room = if depth == 0 { u64::MAX } else { depth.saturating_sub(self.decoded) };
        let keep = piece.get(..room.min(piece.len() as u64) as usize).unwrap_or(piece);
        if let Some(mut multipart) = self.multipart.take() {
            multipart.push(keep, &mut |part| self.part(cx, files, dir, part));
            self.multipart = Some(multipart);
        } else if self.opened && files.is_open(dir) {
            files.append(&mut cx.shared.files, cx.files, dir, keep);
        }
        if keep.len() < piece.len() && self.opened && files.is_open(dir) {
            files.limit_reached(dir);
            // Stop at the first data of which nothing is kept.
            if keep.is_empty() {
                files.close(&mut cx.shared.files, cx.files, dir, true);
            }
        }
        if self.limited {
            self.window.settle();
        } else {
            let room = if limit == 0 { u64::MAX } else { limit.saturating_sub(self.decoded) };
            let keep = piece.get(..room.min(piece.len() as u64) as usize).unwrap_or(piece);
            let held = cx.shared.counters.http_memory.saturating_add(keep.len() as u64);
            if !cx.shared.files.wants.bodies {
                self.window.pass(keep.len() as u64);
                self.limited = keep.len() < piece.len();
            } else if cx.memcap != 0 && held > cx.memcap {
                cx.shared.counters.http_memcap += 1;
                self.limited = true;
            } else {
                self.window.append(keep);
                self.limited = keep.len() < piece.len();
            }
        }
        self.decoded = self.decoded.saturating_add(piece.len() as u64);
    }

    /// Handles a part of a multipart body.
    fn part(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, part: Part<'_>) {
        let engine = &mut cx.shared.files;
        match part {
            Part::Begin { filename, .. } => {
                self.opened = true;
                if filename.len() > NAME_MAX {
                    self.happened(Some(Event::FileNameTooLong));
                }
                files.open(engine, cx.files, dir, cut(filename), None);
            }
            Part::Data(data) => files.append(engine, cx.files, dir, data),
            Part::End => files.close(engine, cx.files, dir, false),
            Part::Problem(problem) => self.happened(Some(match problem {
                Problem::Generic => Event::MultipartError,
                Problem::NoFileData => Event::MultipartNoData,
                Problem::InvalidHeader => Event::MultipartHeader,
            })),
        }
    }

    fn happened(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.events.to_add().push(event);
        }
    }

    /// Whether rules must inspect the arguments again before the body ends; true only once.
    pub(crate) fn renewed_arguments(&mut self) -> bool {
        self.arguments.as_mut().is_some_and(|a| a.renewed())
    }

    /// Whether the body has nothing to inspect so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.window.total() == 0 && self.arguments.is_none()
    }

    /// Rules have inspected what the body has so far.
    pub(crate) fn inspected(&mut self, limits: WindowLimits) {
        let end = self.at_end();
        self.window.looked_at(limits, end);
        if let Some(arguments) = &mut self.arguments {
            arguments.inspected();
        }
    }

    /// Heap memory in bytes: the inspection window, the decoders, and the state of the body.
    pub(crate) fn held(&self) -> usize {
        self.window.memory()
            + self.decoder.as_ref().map_or(0, |d| size_of::<Decoder>() + d.memory())
            + self.multipart.as_ref().map_or(0, |m| size_of::<Multipart>() + m.memory())
            + self.arguments.as_ref().map_or(0, |a| a.memory())
            + self.file.name.len()
            + self
                .file
                .part
                .as_ref()
                .map_or(0, |p| size_of::<FilePart>() + p.whole.as_ref().map_or(0, |(key, _)| key.capacity()))
    }

    /// The inspection window.
    pub(crate) const fn window(&self) -> &Window {
        &self.window
    }

    /// As `window`, mutable.
    pub(crate) const fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Whether the window has reached its end.
    pub(crate) const fn at_end(&self) -> bool {
        self.done || self.limited || self.last_chunk
    }
}

const fn event(status: Status) -> Option<Event> {
    match status {
        Status::Ok => None,
        Status::Broken => Some(Event::GzipFailed),
        Status::Bomb => Some(Event::Bomb),
        Status::Memory => Some(Event::LzmaMemory),
    }
}
