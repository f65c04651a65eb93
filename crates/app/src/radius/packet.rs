//! A packet (RFC 2865 section 3) with the relevant attributes (section 5).

use crate::bytes::{be16, be32};
use crate::declare::word;

/// Length of the header: code, identifier, length, authenticator.
const HEADER: usize = 20;
/// The longest packet.
const LONGEST: usize = 4096;

/// Names of codes (RFC 2865 section 3, RFC 2866 section 3, RFC 5176 section 2.3).
pub(super) const CODES: &[(&str, u64)] = &[
    ("access_request", 1),
    ("access_accept", 2),
    ("access_reject", 3),
    ("accounting_request", 4),
    ("accounting_response", 5),
    ("access_challenge", 11),
    ("status_server", 12),
    ("status_client", 13),
    ("disconnect_request", 40),
    ("disconnect_ack", 41),
    ("disconnect_nak", 42),
    ("coa_request", 43),
    ("coa_ack", 44),
    ("coa_nak", 45),
];

/// Names of `Acct-Status-Type` (RFC 2866 section 5.1).
pub(super) const STATUS_TYPES: &[(&str, u64)] =
    &[("start", 1), ("stop", 2), ("interim_update", 3), ("accounting_on", 7), ("accounting_off", 8)];

/// Attributes that keywords match.
pub(super) mod attribute {
    pub(crate) const USER_NAME: u8 = 1;
    pub(crate) const REPLY_MESSAGE: u8 = 18;
    pub(crate) const CALLED_STATION: u8 = 30;
    pub(crate) const CALLING_STATION: u8 = 31;
    pub(crate) const NAS_IDENTIFIER: u8 = 32;
}
/// `Acct-Status-Type`.
pub(super) const STATUS: u8 = 40;

/// The type of an attribute's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Text,
    Number,
    /// A number with named values.
    Words(&'static [(&'static str, u64)]),
    Address,
}

/// Attributes in events: number, key, type. Others, including passwords, are not kept.
pub(super) const ATTRIBUTES: &[(u8, &str, Value)] = &[
    (attribute::USER_NAME, "user_name", Value::Text),
    (4, "nas_ip", Value::Address),
    (5, "nas_port", Value::Number),
    (6, "service_type", Value::Number),
    (8, "framed_ip", Value::Address),
    (attribute::REPLY_MESSAGE, "reply_message", Value::Text),
    (attribute::CALLED_STATION, "called_station_id", Value::Text),
    (attribute::CALLING_STATION, "calling_station_id", Value::Text),
    (attribute::NAS_IDENTIFIER, "nas_identifier", Value::Text),
    (STATUS, "acct_status_type", Value::Words(STATUS_TYPES)),
    (42, "acct_input_octets", Value::Number),
    (43, "acct_output_octets", Value::Number),
    (44, "acct_session_id", Value::Text),
    (46, "acct_session_time", Value::Number),
    (49, "acct_terminate_cause", Value::Number),
    (61, "nas_port_type", Value::Number),
    (87, "nas_port_id", Value::Text),
];

/// The parts of a packet that rules and events need.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) code: u8,
    pub(super) id: u8,
    /// The logged attributes, raw: number, length, value.
    attributes: Box<[u8]>,
    /// The attributes are truncated.
    pub(super) is_cut: bool,
}

impl Packet {
    /// Reads a packet; `None` if it is invalid or shorter than its length says.
    pub(super) fn read(data: &[u8]) -> Option<Packet> {
        let [code, id, ..] = *data else { return None };
        let len = usize::from(be16(data, 2)?);
        word(CODES, u64::from(code)).filter(|_| (HEADER..=LONGEST).contains(&len))?;
        let mut rest = data.get(HEADER..len)?;
        let (mut kept, mut is_cut) = (Vec::new(), false);
        while let [number, len, ..] = *rest {
            let Some((attribute, behind)) = rest.split_at_checked(usize::from(len)).filter(|_| len >= 2) else {
                is_cut = true;
                break;
            };
            if ATTRIBUTES.iter().any(|a| a.0 == number) {
                kept.extend_from_slice(attribute);
            }
            rest = behind;
        }
        is_cut |= rest.len() == 1;
        Some(Packet { code, id, attributes: kept.into(), is_cut })
    }

    /// Whether it expects a response (RFC 5997 for `Status-Server`).
    pub(super) const fn is_request(&self) -> bool {
        matches!(self.code, 1 | 4 | 12 | 13 | 40 | 43)
    }

    /// The values of an attribute.
    pub(super) fn all(&self, number: u8) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.attributes[..];
        std::iter::from_fn(move || {
            let (attribute, behind) = rest.split_at_checked(usize::from(*rest.get(1)?))?;
            rest = behind;
            attribute.split_first_chunk::<2>()
        })
        .filter(move |(head, _)| head[0] == number)
        .map(|(_, value)| value)
    }

    /// The value of an attribute as a number; also works for addresses.
    pub(super) fn number(&self, number: u8) -> Option<u64> {
        self.all(number).next().and_then(|v| be32(v, 0)).map(u64::from)
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> u64 {
        self.attributes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes() {
        let packet = |attributes: &[u8]| {
            let len = (HEADER + attributes.len()) as u8;
            Packet::read(&[&[1, 0, 0, len][..], &[0; 16], attributes].concat()).unwrap()
        };
        let p = packet(b"\x12\x04ab\x12\x03c\x02\x04pw\x1a\x06\0\0\0\x09");
        assert_eq!(p.all(attribute::REPLY_MESSAGE).collect::<Vec<_>>(), [&b"ab"[..], b"c"]);
        assert!(!p.is_cut && p.all(2).next().is_none());
        for cut in [&b"\x12"[..], b"\x12\x01", b"\x12\x05ab", b"\x12\x00"] {
            assert!(packet(cut).is_cut, "{}", cut.escape_ascii());
        }
    }
}
