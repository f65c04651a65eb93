//! Buffers and numbers of HTTP/2 for rules, including those of DNS over HTTP/2.

use margay_flow::Direction;

use crate::declare::NumberSyntax;
use crate::dns;
use crate::tx::{BufferDef, Found, NumberDef, Transaction};

use super::tx::Http2Tx;
use super::{BODY, COMPLETE, HEADERS};
use super::{grpc, keywords};

const H: Option<u8> = Some(HEADERS);

http_buffers! {
    HEADERS HEADERS BODY false
    HeaderName "http2.header_name" Multi H, H, about: "HTTP2 header name";
    GrpcService "grpc.service" Single H, None;
    GrpcMethod "grpc.method" Single H, None;
}

/// The buffer that grows with each window of a body (bit = number).
pub(super) const ARGUMENTS: u64 = 1 << Buffer::Arg as u8;

const FRAME_TYPE: u8 = 0;
const ERROR_CODE: u8 = 1;
const PRIORITY: u8 = 2;
const WINDOW: u8 = 3;
const SIZE_UPDATE: u8 = 4;
const SETTINGS: u8 = 5;
const GRPC_STATUS: u8 = 6;

const ANY: [Option<u8>; 2] = [Some(NumberDef::ANY_STATE); 2];

const OWN_NUMBERS: [NumberDef; 7] = [
    NumberDef::keyword("http2.frametype", FRAME_TYPE, ANY, words(u8::MAX as u64, keywords::TYPES)),
    NumberDef::keyword("http2.errorcode", ERROR_CODE, ANY, words(u32::MAX as u64, keywords::ERRORS)),
    NumberDef::keyword("http2.priority", PRIORITY, ANY, NumberSyntax::U8),
    NumberDef::keyword("http2.window", WINDOW, ANY, NumberSyntax::U32),
    NumberDef::keyword("http2.size_update", SIZE_UPDATE, ANY, words(u64::MAX, &[])),
    NumberDef::keyword("http2.settings", SETTINGS, ANY, NumberSyntax::Own(keywords::settings)),
    NumberDef::keyword("grpc.status", GRPC_STATUS, [None, Some(COMPLETE)], words(u32::MAX as u64, grpc::STATUS)),
];

const fn words(max: u64, words: &'static [(&'static str, u64)]) -> NumberSyntax {
    NumberSyntax::Compare { max, words }
}

/// Numbers for rules. A setting has its identifier in the upper 32 bits and its value in the lower ones.
pub(super) static NUMBERS: &[NumberDef] = &OWN_NUMBERS;

const OWN: &[BufferDef] = BUFFERS;
const DNS_BUFFERS: &[BufferDef] = dns::BUFFERS;
const DNS_NUMBERS: &[NumberDef] = dns::NUMBERS;

/// The progress of a DNS value, which needs the complete message.
const fn whole(progress: [Option<u8>; 2]) -> [Option<u8>; 2] {
    let [request, response] = progress;
    [if request.is_some() { Some(COMPLETE) } else { None }, if response.is_some() { Some(COMPLETE) } else { None }]
}

/// The buffers of HTTP/2, then those of DNS.
pub(super) static DOH_BUFFERS: &[BufferDef] = &{
    let mut all = [OWN[0]; OWN.len() + DNS_BUFFERS.len()];
    let mut i = 0;
    while i < OWN.len() {
        all[i] = OWN[i];
        i += 1;
    }
    while i < all.len() {
        let d = DNS_BUFFERS[i - OWN.len()];
        all[i] = BufferDef { id: d.id + OWN.len() as u8, progress: whole(d.progress), ..d };
        i += 1;
    }
    all
};

/// The numbers of HTTP/2, then those of DNS.
pub(super) static DOH_NUMBERS: &[NumberDef] = &{
    let mut all = [OWN_NUMBERS[0]; OWN_NUMBERS.len() + DNS_NUMBERS.len()];
    let mut i = 0;
    while i < OWN_NUMBERS.len() {
        all[i] = OWN_NUMBERS[i];
        i += 1;
    }
    while i < all.len() {
        let d = DNS_NUMBERS[i - OWN_NUMBERS.len()];
        all[i] = NumberDef { id: d.id + OWN_NUMBERS.len() as u8, progress: whole(d.progress), ..d };
        i += 1;
    }
    all
};

/// The field that `http.cookie` shows and `http.header` leaves out.
const fn cookie(dir: Direction) -> &'static [u8] {
    match dir {
        Direction::ToServer => b"cookie",
        Direction::ToClient => b"set-cookie",
    }
}

/// See [`Transaction::buffer`].
// It stays whole: a flat match over the buffers.
pub(super) fn buffer<'a>(
    tx: &'a Http2Tx,
    id: u8,
    dir: Direction,
    index: usize,
    scratch: &'a mut Vec<u8>,
) -> Option<Found<'a>> {
    let def = DOH_BUFFERS.get(usize::from(id))?;
    let needed = def.progress.get(dir.index()).copied().flatten()?;
    if tx.base.progress.get(dir.index()).is_none_or(|&p| p < needed) || (index > 0 && !def.kind.is_several()) {
        return None;
    }
    let message = tx.message(dir);
    let Some(buffer) = ALL.get(usize::from(id)).copied() else {
        return message.dns.as_ref()?.buffer(id - ALL.len() as u8, dir, index, scratch);
    };
    let fields = &message.fields;
    if fields.is_empty() && !matches!(buffer, Buffer::RequestBody | Buffer::ResponseBody | Buffer::FileData) {
        return None;
    }
    let data: Option<&'a [u8]> = match buffer {
        Buffer::GrpcService => tx.service(),
        Buffer::GrpcMethod => tx.method(),
        Buffer::Uri | Buffer::UriRaw => fields.first(b":path"),
        Buffer::Method => fields.first(b":method"),
        Buffer::RequestLine => {
            scratch.extend_from_slice(fields.first(b":method")?);
            scratch.push(b' ');
            scratch.extend_from_slice(fields.first(b":path").unwrap_or_default());
            scratch.extend_from_slice(b" HTTP/2\r\n");
            Some(scratch)
        }
        Buffer::ResponseLine => {
            scratch.extend_from_slice(b"HTTP/2 ");
            scratch.extend_from_slice(message.status()?);
            scratch.extend_from_slice(b"\r\n");
            Some(scratch)
        }
        Buffer::StatCode => message.status(),
        // HTTP/2 has no status message (RFC 9113, section 8.3.2).
        Buffer::StatMsg => Some(b""),
        Buffer::Protocol => Some(b"HTTP/2"),
        Buffer::Header | Buffer::HeaderRaw => {
            for (name, value) in fields.iter().filter(|f| !f.0.eq_ignore_ascii_case(cookie(dir))) {
                scratch.extend_from_slice(name);
                scratch.extend_from_slice(b": ");
                scratch.extend_from_slice(value);
                scratch.extend_from_slice(b"\r\n");
            }
            Some(scratch)
        }
        Buffer::HeaderNames => {
            scratch.extend_from_slice(b"\r\n");
            for (name, _) in fields.iter() {
                scratch.extend_from_slice(name);
                scratch.extend_from_slice(b"\r\n");
            }
            scratch.extend_from_slice(b"\r\n");
            Some(scratch)
        }
        Buffer::Arg => message.body.arguments.as_ref()?.get(index),
        Buffer::RequestHeader | Buffer::ResponseHeader => {
            let (name, value) = fields.iter().nth(index)?;
            scratch.extend_from_slice(name);
            scratch.extend_from_slice(b": ");
            scratch.extend_from_slice(value);
            Some(scratch)
        }
        Buffer::HeaderName => Some(fields.iter().nth(index)?.0),
        Buffer::Cookie => fields.joined(cookie(dir), scratch),
        Buffer::UserAgent => fields.joined(b"user-agent", scratch),
        Buffer::Host => Some(&tx.host[..]).filter(|h| !h.is_empty()),
        Buffer::HostRaw => tx.host_raw(),
        Buffer::Accept => fields.joined(b"accept", scratch),
        Buffer::AcceptLang => fields.joined(b"accept-language", scratch),
        Buffer::AcceptEnc => fields.joined(b"accept-encoding", scratch),
        Buffer::Referer => fields.joined(b"referer", scratch),
        Buffer::Connection => fields.joined(b"connection", scratch),
        Buffer::ContentLen => fields.joined(b"content-length", scratch),
        Buffer::ContentType => fields.joined(b"content-type", scratch),
        Buffer::Location => fields.joined(b"location", scratch),
        Buffer::Server => fields.joined(b"server", scratch),
        Buffer::RequestBody | Buffer::ResponseBody | Buffer::FileData => {
            if message.body.window().total() == 0 {
                return None;
            }
            return message.body.window().due(tx.limits(dir), message.body.at_end());
        }
    };
    data.map(Found::whole)
}

/// See [`Transaction::number`].
pub(super) fn number(tx: &Http2Tx, id: u8, dir: Direction, index: usize) -> Option<u64> {
    let message = tx.message(dir);
    match id {
        FRAME_TYPE => message.kinds().nth(index),
        ERROR_CODE => message.goaway.into_iter().chain(message.resets()).map(u64::from).nth(index),
        PRIORITY => message.priorities().nth(index).map(u64::from),
        WINDOW => message.windows.get(index).map(|w| u64::from(*w)),
        SIZE_UPDATE => message.fields.updates().nth(index),
        GRPC_STATUS => tx.call_status().filter(|_| dir == Direction::ToClient && index == 0),
        SETTINGS => message.settings.get(index).map(|(id, value)| u64::from(*id) << 32 | u64::from(*value)),
        _ => message.dns.as_ref()?.number(id.checked_sub(OWN_NUMBERS.len() as u8)?, dir, index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        assert!(DOH_BUFFERS.len() <= 64);
        for (i, b) in DOH_BUFFERS.iter().enumerate() {
            assert_eq!(usize::from(b.id), i, "{}", b.name);
        }
        // Numbers of DNS keep their ids, offset by the count of those of HTTP/2.
        let own = OWN_NUMBERS.len();
        assert!(OWN_NUMBERS.iter().enumerate().all(|(i, n)| usize::from(n.id) == i));
        for (n, dns) in DOH_NUMBERS.iter().skip(own).zip(DNS_NUMBERS) {
            assert_eq!((n.name, usize::from(n.id)), (dns.name, usize::from(dns.id) + own));
        }
        assert!(BUFFERS.iter().zip(DOH_BUFFERS).all(|(a, b)| a.name == b.name && a.progress == b.progress));
    }
}
