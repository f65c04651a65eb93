//! Bodies: out of their coding, into a window for rules and into a file.

use crate::decompress::{Coding, Decoder, Status};
use crate::file::Files;
use crate::http1::config::ServerConfig;
use crate::http1::events::Event;
use crate::parser::Shared;
use crate::window::Window;
use margay_flow::Direction;

use super::chunked::Chunk;
use super::headers::{Headers, space, trim_by};
use super::request::says;

/// How a body's end is known (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Framing {
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
pub(super) struct FileWish {
    /// Whether it becomes one.
    pub wanted: bool,
    /// Its name.
    pub name: Vec<u8>,
    /// Its place in the whole.
    pub range: Option<(u64, u64)>,
}

/// A body.
#[derive(Debug, Default)]
pub(super) struct Body {
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
    opened: bool,
}

/// What bodies are handled with.
#[derive(Debug)]
pub(super) struct BodyCx<'a> {
    pub shared: &'a mut Shared,
    pub files: &'a crate::file::FileConfig,
    pub server: &'a ServerConfig,
    pub memcap: u64,
}

impl Body {
    /// Sets up decoding by the fields of the message; events that came of it are added to `events`.
    pub(super) fn set_coding(
        &mut self,
        headers: &Headers,
        server: &ServerConfig,
        dir: Direction,
        events: &mut Vec<Event>,
    ) {
        let layers = server.layers.get(dir.index()).copied().unwrap_or(0) as usize;
        let mut codings: Vec<Coding> = Vec::new();
        let mut odd = false;
        for value in headers.values(b"content-encoding") {
            for word in value.split(|&b| b == b',') {
                let word = trim_by(word, |b| space(b) || matches!(b, 0 | b':' | b';' | 0xa0));
                let coding = if says(word, b"gzip") {
                    odd |= !word.eq_ignore_ascii_case(b"gzip") && !word.eq_ignore_ascii_case(b"x-gzip");
                    Coding::Gzip
                } else if says(word, b"deflate") {
                    odd |= !word.eq_ignore_ascii_case(b"deflate") && !word.eq_ignore_ascii_case(b"x-deflate");
                    Coding::Deflate
                } else if word.eq_ignore_ascii_case(b"lzma") {
                    Coding::Lzma
                } else if word.eq_ignore_ascii_case(b"br") {
                    Coding::Brotli
                } else {
                    odd |= !word.is_empty()
                        && !word.eq_ignore_ascii_case(b"identity")
                        && !word.eq_ignore_ascii_case(b"inflate");
                    continue;
                };
                if layers == 0 {
                    continue;
                }
                if codings.len() >= layers {
                    events.push(Event::TooManyLayers);
                    break;
                }
                codings.push(coding);
            }
        }
        if odd && layers > 0 {
            events.push(Event::AbnormalEncoding);
        }
        if !codings.is_empty() {
            codings.reverse();
            self.decoder = Some(Decoder::new(&codings, server.decompress));
        }
    }

    /// Bytes of the body without its framing.
    pub(super) fn data(
        &mut self,
        cx: &mut BodyCx<'_>,
        files: &mut Files,
        dir: Direction,
        data: &[u8],
    ) -> Option<Event> {
        self.transferred = self.transferred.saturating_add(data.len() as u64);
        if data.is_empty() {
            return None;
        }
        let Some(mut decoder) = self.decoder.take() else {
            self.out(cx, files, dir, data);
            return None;
        };
        let status = decoder.push(data, &mut |piece| self.out(cx, files, dir, piece));
        self.decoder = Some(decoder);
        event(status)
    }

    /// The body is at its end, or (`truncated`) will not be seen to its end.
    pub(super) fn end(
        &mut self,
        cx: &mut BodyCx<'_>,
        files: &mut Files,
        dir: Direction,
        truncated: bool,
    ) -> Option<Event> {
        if std::mem::replace(&mut self.done, true) {
            return None;
        }
        let mut status = Status::Ok;
        if let Some(mut decoder) = self.decoder.take() {
            status = decoder.finish(&mut |piece| self.out(cx, files, dir, piece));
        }
        if self.opened {
            files.close(&mut cx.shared.files, cx.files, dir, truncated);
        }
        event(status)
    }

    /// Bytes are missing.
    pub(super) fn gap(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, len: u64) {
        self.transferred = self.transferred.saturating_add(len);
        // What is behind a gap cannot be decoded.
        self.decoder = None;
        self.window.gap(len);
        self.decoded = self.decoded.saturating_add(len);
        self.open(cx, files, dir);
        if self.opened {
            files.gap(&mut cx.shared.files, cx.files, dir, len);
        }
    }

    fn open(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction) {
        if self.file.wanted && !self.opened {
            self.opened = true;
            files.open(&mut cx.shared.files, cx.files, dir, &self.file.name, self.file.range);
        }
    }

    fn out(&mut self, cx: &mut BodyCx<'_>, files: &mut Files, dir: Direction, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.open(cx, files, dir);
        let limit = cx.server.body_limit.get(dir.index()).copied().unwrap_or(0);
        if self.opened && files.is_open(dir) {
            let depth = files.depth(cx.files, dir, limit);
            let room = if depth == 0 { u64::MAX } else { depth.saturating_sub(self.decoded) };
            let keep = piece.get(..room.min(piece.len() as u64) as usize).unwrap_or(piece);
            files.append(&mut cx.shared.files, cx.files, dir, keep);
            if keep.len() < piece.len() {
                files.close(&mut cx.shared.files, cx.files, dir, true);
            }
        }
        if !self.limited {
            let room = if limit == 0 { u64::MAX } else { limit.saturating_sub(self.decoded) };
            let keep = piece.get(..room.min(piece.len() as u64) as usize).unwrap_or(piece);
            let held = cx.shared.counters.http_memory.saturating_add(keep.len() as u64);
            if cx.memcap != 0 && held > cx.memcap {
                cx.shared.counters.http_memcap += 1;
                self.limited = true;
            } else {
                self.window.append(keep);
                self.limited = keep.len() < piece.len();
            }
        }
        self.decoded = self.decoded.saturating_add(piece.len() as u64);
    }

    /// The window for rules.
    pub(super) const fn window(&self) -> &Window {
        &self.window
    }

    /// The same, to move on.
    pub(super) const fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Whether the window is at its end.
    pub(super) const fn at_end(&self) -> bool {
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
