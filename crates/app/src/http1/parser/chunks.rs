//! Bodies in chunks (RFC 9112, section 7.1).

use margay_flow::Direction;

use super::{Http1Parser, State, Step};
use crate::config::http1::ServerConfig;
use crate::http1::TRAILER;
use crate::http1::body::Framing;
use crate::http1::chunked::{self, Chunk};
use crate::http1::events::Event;
use crate::http1::headers::space;
use crate::http1::line::{Ending, Line, next_line};
use crate::http1::request::is_request;
use crate::parser::{Outcome, Parse};

impl Http1Parser {
    pub(super) fn chunk(
        &mut self,
        cx: &mut Parse<'_>,
        server: &ServerConfig,
        dir: Direction,
        data: &[u8],
        at: Chunk,
    ) -> Step {
        match at {
            Chunk::Data(left) => {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
                let left = left.saturating_sub(n as u64);
                // The usual line end needs no step of its own.
                let ended = left == 0 && data.get(n..).is_some_and(|rest| rest.starts_with(b"\r\n"));
                let end = if ended { 2 } else { 0 };
                self.payload(cx, server, dir, data.get(..n).unwrap_or(data));
                self.framed(dir, end);
                self.side(dir).framing = Framing::Chunked(match left {
                    0 if ended => Chunk::Size,
                    0 => Chunk::End,
                    left => Chunk::Data(left),
                });
                Step::Used(n + end)
            }
            Chunk::End => {
                // Bytes between the data and the line end belong to no chunk.
                let lf = data.iter().position(|&b| b == b'\n');
                let n = lf.map_or(data.len(), |i| i + 1);
                self.framed(dir, n);
                if lf.is_some() {
                    self.side(dir).framing = Framing::Chunked(Chunk::Size);
                }
                Step::Used(n)
            }
            Chunk::Size => self.chunk_size(cx, dir, data),
        }
    }

    fn chunk_size(&mut self, cx: &mut Parse<'_>, dir: Direction, data: &[u8]) -> Step {
        /// The longest size line, including its extension: Python's limit, the largest.
        const LONGEST: usize = 64 << 10;
        /// The part of an unfinished size line that is read.
        const BEGINNING: usize = 256;
        let end = cx.end;
        let line = next_line(data, &mut self.side(dir).scan, false, end);
        let known = data.get(..line.map_or(data.len(), |l| l.content)).unwrap_or(data);
        if let (Some(Line { total, .. }), Some(size)) = (line, chunked::usual_size(known)) {
            self.framed(dir, total);
            self.side(dir).framing = Framing::Chunked(Chunk::Data(size));
            return Step::Used(total);
        }
        if let Some(Line { total, .. }) = line
            && chunked::blank(known)
        {
            self.framed(dir, total);
            return Step::Used(total);
        }
        // The beginning of an unfinished line decides; it is read again whenever more of the line comes.
        let known = if line.is_some() { known } else { known.get(..BEGINNING).unwrap_or(known) };
        let size = chunked::size(known);
        let hopeless = size.len.is_none() && (line.is_some() || !chunked::may_begin(known));
        if hopeless && dir == Direction::ToServer {
            // A server that ignores `Transfer-Encoding` reads the next request here.
            let start = data.iter().take_while(|&&b| space(b)).count();
            let request = is_request(data.get(start..).unwrap_or(&[]));
            if request.is_none() && !end && data.len() <= LONGEST {
                return Step::More;
            }
            let invalid = self.chunk_invalid(cx, dir);
            return if request == Some(true) { Step::Used(0) } else { invalid };
        }
        // If the connection ends within a line that is more than a size, it was no chunk to those that ignore `Transfer-Encoding`.
        let is_data = |l: &Line| l.ending == Ending::End && dir == Direction::ToClient && !size.is_alone;
        let Some(line) = line.filter(|l| !hopeless && !is_data(l)) else {
            if hopeless || line.is_some() || data.len() > LONGEST {
                return self.chunk_invalid(cx, dir);
            }
            return Step::More;
        };
        // The event is named after requests, and responses have no event of their own.
        if size.extension
            && let Some(tx) = self.current(dir)
        {
            tx.event(Event::RequestChunkExtension);
        }
        self.framed(dir, line.total);
        match size.len {
            Some(0) => {
                if let Some(tx) = self.current(dir) {
                    // Rules on the body need not wait for the trailer.
                    tx.message_mut(dir).body.last_chunk = true;
                    tx.base.advance(dir, TRAILER);
                }
                let side = self.side(dir);
                side.state = State::Trailer;
                side.last = Ending::CrLf;
            }
            Some(n) => self.side(dir).framing = Framing::Chunked(Chunk::Data(n)),
            None => return self.chunk_invalid(cx, dir),
        }
        Step::Used(line.total)
    }

    /// Handles an invalid size: like in browsers, a response body continues raw up to the end. A request cannot be followed.
    fn chunk_invalid(&mut self, cx: &mut Parse<'_>, dir: Direction) -> Step {
        let request = dir == Direction::ToServer;
        if let Some(tx) = self.current(dir) {
            tx.event(if request { Event::RequestChunkLen } else { Event::ResponseChunkLen });
            tx.base.touch(dir);
        }
        if request {
            // Servers process the chunks before it.
            self.finish(cx, dir, true);
            return Step::Stop(0, Outcome::Failed);
        }
        let side = self.side(dir);
        side.framing = Framing::Close;
        side.scan = 0;
        Step::Used(0)
    }
}
