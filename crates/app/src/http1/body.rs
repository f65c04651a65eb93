//! Bodies: out of their coding, into a window for rules and into a file.

use crate::arguments::Arguments;
use crate::decompress::{BOMB_RATIO, Decoder, Status, codings};
use crate::file::Files;
use crate::http1::config::ServerConfig;
use crate::http1::events::Event;
use crate::parser::Shared;
use crate::window::Window;
use margay_flow::Direction;
use margay_packet::Time;

use super::chunked::Chunk;
use super::multipart::{Multipart, Part, Problem};

/// How a body's end is known (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Framing {
    /// There is none.
    #[default]
    None,
    /// By its length: so many bytes are to come.
    Length(u64),
    /// Chunked.
    Chunked(Chunk),
    /// It ends with the stream.
    Close,
}

/// The file that a body becomes once there is data.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileWish {
    /// Whether it becomes one.
    pub wanted: bool,
    /// Its name.
    pub name: Vec<u8>,
    /// Its place in the whole.
    pub range: Option<(u64, u64)>,
    /// The whole that it is a range of: its name among servers, and its length.
    pub whole: Option<(Vec<u8>, u64)>,
}

/// A body.
#[derive(Debug, Default)]
pub(crate) struct Body {
    window: Window,
    decoder: Option<Decoder>,
    /// Bytes on the wire, with what chunks add.
    pub transferred: u64,
    /// Bytes of it that came out of its coding.
    decoded: u64,
    /// The window has had all that it may have.
    limited: bool,
    /// No more will come.
    pub done: bool,
    /// The file to make of it.
    pub file: FileWish,
    /// The body is one of several parts (RFC 7578), of which some may be files.
    pub multipart: Option<Box<Multipart>>,
    /// Of a request: its arguments, where rules look at them.
    pub arguments: Option<Box<Arguments>>,
    /// What was wrong, until the transaction takes it.
    pub events: Vec<Event>,
    opened: bool,
}

/// What bodies are handled with.
#[derive(Debug)]
pub(crate) struct BodyCx<'a> {
    pub shared: &'a mut Shared,
    pub files: &'a crate::file::FileConfig,
    pub server: &'a ServerConfig,
    pub memcap: u64,
    pub time: Time,
}

impl Body {
    /// Sets up decoding by the value of `Content-Encoding`; events that came of it are added to `events`.
    pub(crate) fn set_coding(&mut self, value: &[u8], server: &ServerConfig, dir: Direction, events: &mut Vec<Event>) {
        let layers = server.layers.get(dir.index()).copied().unwrap_or(0);
        if layers == 0 {
            return;
        }
        let found = codings(value, layers);
        if found.too_many {
            events.push(Event::TooManyLayers);
        }
        if found.abnormal {
            events.push(Event::AbnormalEncoding);
        }
        if !found.list.is_empty() {
            self.decoder = Some(Decoder::new(&found.list, server.decompress));
        }
    }

    /// So many bytes of it will come, as its message says.
    pub(crate) fn announce(&mut self, bytes: u64, server: &ServerConfig, dir: Direction) {
        // How many come out of its coding is not known.
        if self.decoder.is_none() {
            let limit = server.body_limit.get(dir.index()).copied().unwrap_or(0);
            self.window.announce(if limit == 0 { bytes } else { bytes.min(limit) });
        }
    }

    /// Bytes of the body without its framing.
    pub(crate) fn data(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, data: &[u8]) {
        self.transferred = self.transferred.saturating_add(data.len() as u64);
        if data.is_empty() {
            return;
        }
        let Some(mut decoder) = self.decoder.take() else {
            self.out(cx, files, dir, data);
            return;
        };
        let status = decoder.push(data, &mut |piece| {
            self.out(cx, files, dir, piece);
            self.wants_more(cx, files, dir)
        });
        self.decoder = Some(decoder);
        self.events.extend(event(status));
        if status == Status::Bomb && self.opened && files.is_open(dir) {
            // What else there is of it will not come out.
            files.close(&mut cx.shared.files, cx.files, dir, true);
        }
    }

    /// The body is at its end, or (`truncated`) will not be seen to its end.
    pub(crate) fn end(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, truncated: bool) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        if let Some(mut decoder) = self.decoder.take() {
            let status = decoder.finish(&mut |piece| {
                self.out(cx, files, dir, piece);
                self.wants_more(cx, files, dir)
            });
            self.events.extend(event(status));
        }
        if let Some(mut multipart) = self.multipart.take() {
            multipart.finish(&mut |part| self.part(cx, files, dir, part));
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

    /// Bytes are missing.
    pub(crate) fn gap(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, len: u64) {
        self.transferred = self.transferred.saturating_add(len);
        // What is behind a gap cannot be decoded.
        self.decoder = None;
        // Limits are of what was seen: what is missing takes none of them.
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
            files.open(&mut cx.shared.files, cx.files, dir, &self.file.name, self.file.range);
            if dir == Direction::ToClient {
                // For rules on `file.data` it is in the body's own window, as both HTTP's buffers say.
                files.look_elsewhere(dir);
            }
            if let Some((key, total)) = &self.file.whole {
                files.range_of(&mut cx.shared.files, cx.files, dir, key, *total, cx.time);
            }
        }
    }

    /// Whether more of a coded body is decoded: for rules up to their limit, for a file to its end. Behind both it is decoded only to
    /// tell a bomb, which takes `compression-bomb-limit`, or less where it has grown as much as only a bomb does.
    fn wants_more(&mut self, cx: &BodyCx<'_>, files: &Files, dir: Direction) -> bool {
        let file = self.multipart.is_some() || (self.opened && files.is_open(dir));
        if file || !self.limited {
            return true;
        }
        if self.decoded > self.transferred.saturating_mul(BOMB_RATIO) {
            self.events.push(Event::Bomb);
            return false;
        }
        self.decoded <= cx.server.decompress.bomb
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
            files.close(&mut cx.shared.files, cx.files, dir, true);
        }
        if !self.limited {
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

    /// A part of the body that is one of several.
    fn part(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, part: Part<'_>) {
        let engine = &mut cx.shared.files;
        match part {
            Part::Begin { filename, .. } => {
                self.opened = true;
                files.open(engine, cx.files, dir, filename, None);
            }
            Part::Data(data) => files.append(engine, cx.files, dir, data),
            Part::End => files.close(engine, cx.files, dir, false),
            Part::Problem(problem) => self.events.push(match problem {
                Problem::Generic => Event::MultipartError,
                Problem::NoFileData => Event::MultipartNoData,
                Problem::InvalidHeader => Event::MultipartHeader,
            }),
        }
    }

    /// Heap memory in bytes: the inspection window, the decoders, and the notes on the body.
    pub(crate) fn held(&self) -> usize {
        self.window.memory()
            + self.decoder.as_ref().map_or(0, Decoder::memory)
            + self.multipart.as_ref().map_or(0, |m| size_of::<Multipart>() + m.memory())
            + self.arguments.as_ref().map_or(0, |a| a.memory())
            + self.file.name.capacity()
            + self.file.whole.as_ref().map_or(0, |(key, _)| key.capacity())
    }

    /// The window for rules.
    pub(crate) const fn window(&self) -> &Window {
        &self.window
    }

    /// The same, to move on.
    pub(crate) const fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Whether the window is at its end.
    pub(crate) const fn at_end(&self) -> bool {
        self.done || self.limited
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
