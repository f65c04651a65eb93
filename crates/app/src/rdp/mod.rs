//! RDP (MS-RDPBCGR): the beginning of a connection, up to the server's Connect Response, or up to the certificates of a TLS
//! session. Each of these PDUs is a transaction.

mod client;

use margay_flow::{Direction, FlowCore};
use margay_json::Json;

use crate::ber::{INTEGER, Reader, SEQUENCE};
use crate::config::{AppConfig, AppLogOptions};
use crate::conversation::{Content, Conversation, Framing, Turn, parser};
use crate::declare::Protocol;
use crate::parser::Outcome;
use crate::proto::AppProto;
use crate::recognise::{Probe, Probed, Recognition, TCP};
use crate::tx::{LogFor, TxBase};
use client::Client;

/// Length of a TPKT header (RFC 1006 section 6).
const TPKT: usize = 4;
/// Offset of the MCS PDU, after a TPKT header and X.224's data header.
const MCS: usize = 7;
/// Length of a TLS record header (RFC 5246 section 6.2.1), and of the longest record.
const RECORD: usize = 5;
const RECORD_MAX: usize = (1 << 14) + 2048;
/// Content types of TLS records.
const HANDSHAKE: u8 = 0x16;
const APPLICATION_DATA: u8 = 0x17;
/// The limits of a server's handshake up to its certificates in bytes, and of its certificates.
const HANDSHAKE_MAX: usize = 64 << 10;
const CERTIFICATES_MAX: usize = 32;
/// The first bytes of a cookie (section 2.2.1.1).
const COOKIE: &[u8] = b"Cookie: mstshash=";

const TS: Direction = Direction::ToServer;
const TC: Direction = Direction::ToClient;

/// Flag names of a negotiation request, by bit (section 2.2.1.1.1).
const REQUEST_FLAGS: &[&str] =
    &["restricted_admin_mode_required", "redirected_authentication_mode_required", "?", "correlation_info_present"];
/// Flag names of a negotiation response, by bit (section 2.2.1.2.1); one is defined without a name.
const RESPONSE_FLAGS: &[&str] =
    &["extended_client_data", "dynvc_gfx", "", "restricted_admin", "redirected_authentication"];
/// Causes of a failed negotiation, from 1 on (section 2.2.1.2.2).
const FAILURES: &[&str] = &[
    "ssl required by server",
    "ssl not allowed by server",
    "ssl cert not on server",
    "inconsistent flags",
    "hybrid required by server",
    "ssl with user auth required by server",
];

/// RDP.
pub static PROTOCOL: Protocol = Protocol {
    recognition: Recognition { patterns: &[], probes: &[Probe { transport: TCP, ports: &[3389], probe }] },
    parser: parser::<Rdp>,
    packet_addresses: true,
    ..Protocol::new(AppProto::Rdp, "rdp").logged()
};

/// Checks for TPKT (RFC 1006 section 6). As in Suricata, its version is enough on the port.
fn probe(_: Direction, data: &[u8]) -> Probed {
    match data.first() {
        Some(3) => Probed::Yes { reverse: false },
        Some(_) => Probed::No,
        None => Probed::More,
    }
}

/// The state of a flow.
#[derive(Debug, Default)]
struct Rdp {
    /// TLS has begun.
    tls: bool,
    /// The server's handshake messages that are not handled yet.
    handshake: Vec<u8>,
    /// Sides with an invalid PDU: as in Suricata, the rest of that side is not parsed.
    stopped: [bool; 2],
}

impl Conversation for Rdp {
    type Tx = Pdu;
    const PROTO: AppProto = AppProto::Rdp;

    fn new(_config: &AppConfig, _flow: &FlowCore) -> Self {
        Rdp::default()
    }

    fn framing(&mut self, dir: Direction, data: &[u8], end: bool) -> Framing {
        if self.stopped[dir.index()] {
            return Framing::Skip(data.len());
        }
        self.tls |= data.first() == Some(&HANDSHAKE);
        let (head, len) = if self.tls {
            if dir == TS {
                return Framing::Skip(data.len());
            }
            match data.first_chunk::<RECORD>() {
                Some([_, _, _, high, low]) => (RECORD, RECORD + usize::from(u16::from_be_bytes([*high, *low]))),
                None => (RECORD, 0),
            }
        } else {
            match data {
                [first, ..] if *first != 3 => return self.stop(dir, data),
                [_, _, high, low, ..] => (TPKT, usize::from(u16::from_be_bytes([*high, *low]))),
                _ => (TPKT, 0),
            }
        };
        match data.len() {
            n if n < head => {
                if end {
                    Framing::Skip(n)
                } else {
                    Framing::More
                }
            }
            _ if len < head || (self.tls && len > RECORD + RECORD_MAX) => self.stop(dir, data),
            n if end && n < len => Framing::Skip(n),
            _ => Framing::Message(len),
        }
    }

    fn message(&mut self, turn: &mut Turn<'_, '_, Pdu>, dir: Direction, message: &[u8]) -> Outcome {
        if self.tls {
            return self.record(turn, message);
        }
        let Ok(pdu) = Pdu::read(dir, message) else {
            self.stopped[dir.index()] = true;
            return Outcome::More;
        };
        // Data after the response is not parsed.
        let last = matches!(pdu, Some(Pdu::ConnectResponse));
        if let Some(pdu) = pdu {
            turn.one_way(dir, pdu);
        }
        if last { Outcome::Done } else { Outcome::More }
    }

    fn held(&self) -> u64 {
        self.handshake.capacity() as u64
    }
}

impl Rdp {
    /// Ends parsing of a side.
    fn stop(&mut self, dir: Direction, data: &[u8]) -> Framing {
        self.stopped[dir.index()] = true;
        if self.stopped == [true; 2] { Framing::Broken } else { Framing::Skip(data.len()) }
    }

    /// Handles a TLS record of the server.
    fn record(&mut self, turn: &mut Turn<'_, '_, Pdu>, record: &[u8]) -> Outcome {
        match record.first() {
            Some(&HANDSHAKE) => self.handshake.extend_from_slice(record.get(RECORD..).unwrap_or_default()),
            // The certificates are encrypted (RFC 8446), or missing.
            Some(&APPLICATION_DATA) => return Outcome::Done,
            _ => return Outcome::More,
        }
        let mut messages = self.handshake.as_slice();
        while let Some((&kind, (body, rest))) = messages.split_first().and_then(|(k, m)| Some((k, vector(m)?))) {
            // Certificate (RFC 5246 section 7.4.2).
            if kind == 11 {
                turn.one_way(TC, Pdu::Tls(serials(body)));
                return Outcome::Done;
            }
            messages = rest;
        }
        let handled = self.handshake.len() - messages.len();
        self.handshake.drain(..handled);
        if self.handshake.len() > HANDSHAKE_MAX { Outcome::Done } else { Outcome::More }
    }
}

/// Splits off data with a three-byte length. Returns it and the rest.
fn vector(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let ([a, b, c], rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c))
}

/// The serial numbers of a message's certificates.
fn serials(message: &[u8]) -> Vec<Box<[u8]>> {
    let mut list = vector(message).map_or(&[][..], |(list, _)| list);
    let mut serials = Vec::new();
    while let Some((certificate, rest)) = vector(list)
        && serials.len() < CERTIFICATES_MAX
    {
        serials.extend(serial(certificate).map(Into::into));
        list = rest;
    }
    serials
}

/// The serial number of a certificate (RFC 5280 section 4.1).
fn serial(certificate: &[u8]) -> Option<&[u8]> {
    let mut to_be_signed = Reader::new(certificate).enter(SEQUENCE)?.enter(SEQUENCE)?;
    // The version.
    to_be_signed.take(0xa0);
    to_be_signed.take(INTEGER)
}

/// The stored part of a PDU.
#[derive(Debug, PartialEq, Eq)]
enum Pdu {
    /// Connection Request: the cookie, and flags.
    Request { cookie: Option<Box<[u8]>>, flags: u8 },
    /// Connection Confirm: type, flags and value of the negotiation.
    Response(Option<(u8, u8, u32)>),
    /// Connect Initial.
    ConnectRequest(Box<Client>),
    /// Connect Response.
    ConnectResponse,
    /// The serial numbers of the server's certificates.
    Tls(Vec<Box<[u8]>>),
}

/// A PDU whose length or content is invalid.
#[derive(Debug)]
struct Invalid;

/// The variable part of a connection PDU of class 0 without options, whose destination is not known yet (X.224 section 13.3).
fn variable(message: &[u8]) -> Option<&[u8]> {
    match message.get(TPKT + 1..)? {
        [_, 0, 0, _, _, 0, variable @ ..] => Some(variable),
        _ => None,
    }
}

/// Reads negotiation data (sections 2.2.1.1.1, 2.2.1.2.1, 2.2.1.2.2): type, flags, value.
fn negotiation(data: &[u8]) -> Option<(u8, u8, u32)> {
    match *data.first_chunk()? {
        [kind, flags, 8, 0, a, b, c, d] => Some((kind, flags, u32::from_le_bytes([a, b, c, d]))),
        _ => None,
    }
}

impl Pdu {
    /// Reads a PDU; `None` if it is none of a connection's setup.
    fn read(dir: Direction, message: &[u8]) -> Result<Option<Pdu>, Invalid> {
        let length = message.get(TPKT).copied().map_or(0, usize::from);
        // The lower half of connection PDUs is a credit (X.224 section 13.3.3).
        let kind = match message.get(TPKT + 1).copied().unwrap_or(0) {
            data @ 0xf0 => data,
            kind => kind & 0xf0,
        };
        let whole = TPKT + 1 + length == message.len();
        let data = length == 2 && message.get(TPKT + 2) == Some(&0x80);
        let mcs = message.get(MCS..).unwrap_or_default();
        match (dir, kind) {
            (TS, 0xe0) | (TC, 0xd0) if !whole => Err(Invalid),
            (TS, 0xe0) => Pdu::request(message),
            (TC, 0xd0) => Ok(Pdu::response(message)),
            (_, 0xf0) if !data => Err(Invalid),
            (TS, 0xf0) => Ok(mcs
                .strip_prefix(b"\x7f\x65")
                .and_then(Client::read)
                .map(|client| Pdu::ConnectRequest(Box::new(client)))),
            (TC, 0xf0) if mcs.starts_with(b"\x7f\x66") => Ok(Some(Pdu::ConnectResponse)),
            _ => Ok(None),
        }
    }

    fn request(message: &[u8]) -> Result<Option<Pdu>, Invalid> {
        let Some(mut rest) = variable(message) else { return Ok(None) };
        let mut cookie = None;
        if rest.starts_with(b"Cookie: ") {
            let end = rest.windows(2).position(|w| w == b"\r\n").ok_or(Invalid)?;
            let (line, behind) = rest.split_at(end);
            cookie = line.strip_prefix(COOKIE).map(Into::into);
            rest = behind.get(2..).unwrap_or_default();
        }
        let flags = negotiation(rest).filter(|n| n.0 == 1).map_or(0, |n| n.1);
        Ok(Some(Pdu::Request { cookie, flags }))
    }

    fn response(message: &[u8]) -> Option<Pdu> {
        Some(Pdu::Response(negotiation(variable(message)?)))
    }
}

/// Appends flag names, unless a set flag is unknown (or `?`).
fn log_flags(json: &mut Json, key: &'static str, flags: u64, names: &[&str]) {
    let set = |i: usize| flags >> i & 1 != 0;
    if flags == 0 || flags >> names.len() != 0 || names.iter().enumerate().any(|(i, n)| set(i) && *n == "?") {
        return;
    }
    json.array(key);
    names.iter().enumerate().filter(|(i, n)| set(*i) && !n.is_empty()).for_each(|(_, n)| json.item_str(n));
    json.end_array();
}

impl Content for Pdu {
    fn held(&self) -> u64 {
        let held = match self {
            Pdu::Request { cookie, .. } => cookie.as_ref().map_or(0, |c| c.len()),
            Pdu::ConnectRequest(client) => size_of::<Client>() + client.held(),
            Pdu::Tls(serials) => serials.iter().map(|s| s.len() + size_of::<Box<[u8]>>()).sum(),
            Pdu::Response(_) | Pdu::ConnectResponse => 0,
        };
        held as u64
    }

    fn log(&self, base: &TxBase, json: &mut Json, _options: &AppLogOptions, _what: LogFor) {
        json.object("rdp");
        // RDP's transaction numbers begin with 1.
        json.uint("tx_id", base.id + 1);
        let kind = match self {
            Pdu::Request { .. } => "initial_request",
            Pdu::Response(_) => "initial_response",
            Pdu::ConnectRequest(_) => "connect_request",
            Pdu::ConnectResponse => "connect_response",
            Pdu::Tls(_) => "tls_handshake",
        };
        json.str("event_type", kind);
        match self {
            Pdu::Request { cookie, flags } => {
                if let Some(cookie) = cookie {
                    json.bytes("cookie", cookie);
                }
                log_flags(json, "flags", (*flags).into(), REQUEST_FLAGS);
            }
            Pdu::Response(Some((2, flags, protocol))) => {
                let name = match protocol {
                    0 => "rdp",
                    1 => "ssl",
                    2 => "hybrid",
                    4 => "rds_tls",
                    8 => "hybrid_ex",
                    _ => "",
                };
                if !name.is_empty() && flags >> RESPONSE_FLAGS.len() == 0 {
                    log_flags(json, "server_supports", (*flags).into(), RESPONSE_FLAGS);
                    json.str("protocol", name);
                }
            }
            Pdu::Response(Some((3, _, code))) => {
                let reason = (*code as usize).checked_sub(1).and_then(|n| FAILURES.get(n));
                if let Some(reason) = reason {
                    json.uint("error_code", (*code).into());
                    json.str("reason", reason);
                }
            }
            Pdu::ConnectRequest(client) => client.log(json),
            Pdu::Tls(serials) => {
                json.array("x509_serials");
                for serial in serials {
                    let digits: String = serial.iter().map(|b| format!("{b:02x}")).collect();
                    json.item_str(digits.trim_start_matches('0'));
                }
                json.end_array();
            }
            Pdu::Response(_) | Pdu::ConnectResponse => {}
        }
        json.end_object();
    }
}

#[cfg(test)]
mod tests;
