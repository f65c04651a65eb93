//! Buffers of HTTP/1 for rules.

use margay_flow::Direction;

use crate::decompress::swf;
use crate::tx::Found;

use super::request::part;
use super::tx::Http1Tx;
use super::{BODY, HEADERS, LINE};

http_buffers! {
    LINE HEADERS BODY true
    Start "http.start" ("http_start") Single Some(HEADERS), Some(HEADERS),
        about: "http start: request and response line and headers";
}

/// The buffers (bit = number) that also have the fields of the trailer.
pub(super) const WITH_TRAILER: u64 = 1 << Buffer::Header as u8 | 1 << Buffer::HeaderRaw as u8;

/// The buffer that grows with each window of a body (bit = number).
pub(super) const ARGUMENTS: u64 = 1 << Buffer::Arg as u8;

/// See [`crate::Transaction::buffer`].
// It stays whole: a flat match over the buffers.
pub(super) fn buffer<'a>(
    tx: &'a Http1Tx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let buffer = *ALL.get(id as usize)?;
    let def = BUFFERS.get(id as usize)?;
    let needed = def.begins(dir)?;
    if tx.base.progress.get(dir.index()).is_none_or(|&p| p < needed) {
        return None;
    }
    if index > 0 && !def.kind.is_several() {
        return None;
    }
    let message = tx.message(dir);
    let to_server = dir == Direction::ToServer;
    let field = |name: &[u8], scratch: &'a mut Vec<u8>| message.headers.joined(name, scratch);
    let line = &tx.request.line;
    let some = |b: &'a [u8]| (!b.is_empty()).then_some(b);
    let data = match buffer {
        // The target of CONNECT is an authority: its path and query are there, but empty.
        Buffer::Uri if tx.method() == b"CONNECT" => Some(&b""[..]),
        Buffer::Uri => some(tx.uri()),
        Buffer::UriRaw => some(tx.uri_raw()),
        Buffer::Method => some(tx.method()),
        Buffer::RequestLine | Buffer::ResponseLine => some(&message.line),
        Buffer::StatCode => some(part(&message.line, tx.status_line.status)),
        Buffer::StatMsg => some(part(&message.line, tx.status_line.message)),
        Buffer::Protocol if to_server => some(part(line, tx.request_line.protocol)),
        Buffer::Protocol => some(part(&message.line, tx.status_line.protocol)),
        Buffer::Header => {
            message.headers.all(cookie(to_server), scratch);
            some(scratch)
        }
        Buffer::HeaderRaw => some(message.headers.raw()),
        Buffer::HeaderNames => {
            if message.headers.is_empty() {
                return None;
            }
            scratch.extend_from_slice(b"\r\n");
            for name in message.headers.names() {
                scratch.extend_from_slice(name);
                scratch.extend_from_slice(b"\r\n");
            }
            scratch.extend_from_slice(b"\r\n");
            some(scratch)
        }
        Buffer::Arg => tx.request.body.arguments.as_ref()?.get(index),
        Buffer::RequestHeader | Buffer::ResponseHeader => {
            if !message.headers.one(index, scratch) {
                return None;
            }
            some(scratch)
        }
        Buffer::Start => {
            if message.line.is_empty() {
                return None;
            }
            scratch.extend_from_slice(&message.line);
            scratch.extend_from_slice(b"\r\n");
            message.headers.all(b"", scratch);
            if !message.headers.is_empty() {
                scratch.extend_from_slice(b"\r\n");
            }
            some(scratch)
        }
        Buffer::Cookie => field(cookie(to_server), scratch),
        Buffer::UserAgent => field(b"user-agent", scratch),
        Buffer::Host => some(&tx.host),
        // Before all fields are there, and if the field is empty.
        Buffer::HostRaw if tx.host_raw.is_empty() => field(b"host", scratch),
        Buffer::HostRaw => some(&tx.host_raw),
        Buffer::Accept => field(b"accept", scratch),
        Buffer::AcceptLang => field(b"accept-language", scratch),
        Buffer::AcceptEnc => field(b"accept-encoding", scratch),
        Buffer::Referer => field(b"referer", scratch),
        Buffer::Connection => field(b"connection", scratch),
        Buffer::ContentLen => field(b"content-length", scratch),
        Buffer::ContentType => field(b"content-type", scratch),
        Buffer::Location => field(b"location", scratch),
        Buffer::Server => field(b"server", scratch),
        Buffer::RequestBody | Buffer::ResponseBody | Buffer::FileData => {
            let body = &message.body;
            if body.window().total() == 0 {
                return None;
            }
            let due = body.window().due(tx.limits(dir), body.at_end())?;
            let Some((config, limits)) = tx.swf.as_deref().filter(|_| !to_server) else { return Some(due) };
            // The part before may be of the decompressed file.
            let due = Found { seen: 0, ..due };
            if due.offset == 0
                && swf::is_compressed(due.data)
                && swf::decompress(due.data, config, *limits, scratch) == swf::Swf::Decoded
            {
                return Some(Found { data: scratch, ..due });
            }
            return Some(due);
        }
    };
    data.map(Found::whole)
}

/// The field that `http.cookie` contains and `http.header` omits.
const fn cookie(to_server: bool) -> &'static [u8] {
    if to_server { b"cookie" } else { b"set-cookie" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        assert!(BUFFERS.len() <= 64);
        for (i, b) in BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
        }
    }
}
