//! DNS over HTTP/2 (RFC 8484): a query in a `GET` target or in a body, the response in a body.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use margay_flow::Direction;

use crate::dns;
use crate::param::without_parameters;

use super::tx::{Http2Tx, Message};

/// The longest DNS message.
const LONGEST: usize = 65_535;

/// The media type of DNS messages.
const TYPE: &[u8] = b"application/dns-message";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Whether a value is the media type, ignoring parameters.
fn is_dns(value: &[u8]) -> bool {
    without_parameters(value).trim_ascii().eq_ignore_ascii_case(TYPE)
}

/// Checks the fields of a message for DNS, in the target or in the body to come.
pub(super) fn begin(tx: &mut Http2Tx, dir: Direction) -> bool {
    let id = tx.base.id;
    let message = tx.message_mut(dir);
    let fields = &message.fields;
    if fields.first(b"content-type").is_some_and(is_dns) {
        // Compressed bodies are not searched for DNS.
        if fields.first(b"content-encoding").is_none() {
            message.dns_data = Some(Vec::new());
        }
        return true;
    }
    if dir == Direction::ToClient || fields.first(b":method") != Some(b"GET") {
        return false;
    }
    let accepts = fields.iter().filter(|f| f.0.eq_ignore_ascii_case(b"accept"));
    if !accepts.flat_map(|f| f.1.split(|&b| b == b',')).any(is_dns) {
        return false;
    }
    let query = fields.first(b":path").and_then(|p| p.iter().position(|&b| b == b'?').and_then(|at| p.get(at + 1..)));
    let text = query.and_then(|q| q.split(|&b| b == b'&').find_map(|p| p.strip_prefix(b"dns=")));
    let Some(data) = text.and_then(|t| BASE64.decode(t).ok()).filter(|d| !d.is_empty()) else { return false };
    let data = data.get(..LONGEST).unwrap_or(&data);
    message.dns = Some(Box::new(dns::carried(id, dir, data)));
    true
}

/// Adds bytes of a body. Returns true if it exceeds a DNS message; the collected bytes are dropped then.
pub(super) fn data(message: &mut Message, data: &[u8]) -> bool {
    let Some(held) = &mut message.dns_data else { return false };
    let over = held.len() + data.len() > LONGEST;
    if over {
        message.dns_data = None;
    } else {
        held.extend_from_slice(data);
    }
    over
}

/// Ends the body.
pub(super) fn end(id: u64, message: &mut Message, dir: Direction) {
    if let Some(data) = message.dns_data.take()
        && !data.is_empty()
    {
        message.dns = Some(Box::new(dns::carried(id, dir, &data)));
    }
}
