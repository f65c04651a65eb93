//! Messages, over a connection (C706 section 12.6) and in datagrams (section 12.5).

use crate::reader::{Reader, Uuid};

/// Message types; both transports share the numbers.
pub(crate) mod kind {
    pub(crate) const REQUEST: u8 = 0;
    pub(crate) const PING: u8 = 1;
    pub(crate) const RESPONSE: u8 = 2;
    pub(crate) const FAULT: u8 = 3;
    pub(crate) const CL_CANCEL: u8 = 8;
    pub(crate) const BIND: u8 = 11;
    pub(crate) const BIND_ACK: u8 = 12;
    pub(crate) const BIND_NAK: u8 = 13;
    pub(crate) const ALTER_CONTEXT: u8 = 14;
    pub(crate) const ALTER_CONTEXT_RESP: u8 = 15;
    pub(crate) const AUTH3: u8 = 16;
    pub(crate) const SHUTDOWN: u8 = 17;
    pub(crate) const CO_CANCEL: u8 = 18;
    pub(crate) const ORPHANED: u8 = 19;
}

/// Names of the message types in events, by number.
const NAMES: [&str; 20] = [
    "REQUEST",
    "PING",
    "RESPONSE",
    "FAULT",
    "WORKING",
    "NOCALL",
    "REJECT",
    "ACK",
    "CL_CANCEL",
    "FACK",
    "CANCEL_ACK",
    "BIND",
    "BINDACK",
    "BINDNAK",
    "ALTER_CONTEXT",
    "ALTER_CONTEXT_RESP",
    "AUTH3",
    "SHUTDOWN",
    "CO_CANCEL",
    "ORPHANED",
];

/// The name of a message type in events.
pub(crate) fn name(kind: u8) -> &'static str {
    NAMES.get(usize::from(kind)).copied().unwrap_or("UNKNOWN")
}

/// The first fragment of several, or the only one.
const FIRST: u8 = 0x01;
/// The last fragment of several, or the only one.
const LAST: u8 = 0x02;

/// Major version, the first byte of a message over a connection.
pub(crate) const VERSION: u8 = 5;
/// Length of [`Header`] in a message.
pub(crate) const HEADER: usize = 16;
/// Least length of [`Datagram`].
pub(crate) const DATAGRAM: usize = 80;
/// The limit of contexts read from a message.
const CONTEXTS_MAX: usize = 255;

/// The common header of connection-oriented messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub minor: u8,
    pub kind: u8,
    pub flags: u8,
    /// Whether integers are little endian.
    pub little: bool,
    /// Length of the fragment, including this header.
    pub length: u16,
    /// Length of the authentication verifier at its end.
    pub auth: u16,
    pub call: u32,
}

impl Header {
    /// Reads a header; `None` if it is too short or invalid.
    pub(crate) fn read(data: &[u8]) -> Option<Header> {
        let &[_, minor, kind, _, order, float, ..] = data.first_chunk::<HEADER>()?;
        let valid = minor <= 1 && kind <= kind::ORPHANED && order & 0xee == 0 && float <= 3;
        if valid { Header::read_loosely(data) } else { None }
    }

    /// As [`Header::read`]; on a known connection, Suricata accepts every minor version and representation.
    pub(crate) fn read_loosely(data: &[u8]) -> Option<Header> {
        let &[version, minor, kind, flags, order, _, _, _, rest @ ..] = data.first_chunk::<HEADER>()?;
        if version != VERSION || kind > kind::ORPHANED {
            return None;
        }
        let little = order & 0x10 != 0;
        let mut r = Reader::new(&rest, little);
        let (length, auth, call) = (r.u16()?, r.u16()?, r.u32()?);
        (usize::from(length) >= HEADER + least_body(kind)).then_some(Header {
            minor,
            kind,
            flags,
            little,
            length,
            auth,
            call,
        })
    }

    pub(crate) const fn is_first(self) -> bool {
        self.flags & FIRST != 0
    }

    pub(crate) const fn is_last(self) -> bool {
        self.flags & LAST != 0
    }
}

/// The fixed fields behind the header, without which Suricata does not read a message of this type.
const fn least_body(kind: u8) -> usize {
    match kind {
        kind::REQUEST => 8,
        kind::BIND | kind::ALTER_CONTEXT => 12,
        kind::BIND_ACK | kind::ALTER_CONTEXT_RESP => 10,
        _ => 0,
    }
}

/// Whether servers send messages of this type over a connection.
pub(crate) const fn is_response(kind: u8) -> bool {
    matches!(
        kind,
        kind::RESPONSE | kind::FAULT | kind::BIND_ACK | kind::BIND_NAK | kind::ALTER_CONTEXT_RESP | kind::SHUTDOWN
    )
}

/// An interface in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Number of the context.
    pub context: u16,
    pub uuid: Uuid,
    /// Major and minor.
    pub version: (u16, u16),
    /// The server's answer: 0 for acceptance.
    pub result: Option<u16>,
}

/// A request, or a fragment of one. The stub data includes an object UUID and the authentication verifier, if any, as rules for
/// Suricata expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub context: u16,
    pub opnum: u16,
    pub stub: &'a [u8],
}

/// Reads a request after its header.
pub(crate) fn request(h: Header, body: &[u8]) -> Option<Request<'_>> {
    let mut r = Reader::new(body, h.little);
    r.u32()?;
    let (context, opnum) = (r.u16()?, r.u16()?);
    Some(Request { context, opnum, stub: r.rest() })
}

/// The stub data of a response after its header. Like Suricata, include the eight bytes before it, unless SMB carries the
/// message.
pub(crate) fn response(body: &[u8], carried: bool) -> Option<&[u8]> {
    body.get(if carried { 8 } else { 0 }..)
}

/// The interfaces that a bind or an alter context requests.
pub(crate) fn bind(h: Header, body: &[u8]) -> Option<Vec<Interface>> {
    let mut r = Reader::new(body, h.little);
    r.take(8)?;
    let count = usize::from(r.u8()?);
    r.take(3)?;
    let mut all = Vec::new();
    for _ in 0..count.min(CONTEXTS_MAX) {
        let context = r.u16()?;
        let syntaxes = usize::from(r.u8()?);
        r.u8()?;
        let uuid = r.uuid()?;
        let version = (r.u16()?, r.u16()?);
        r.take(syntaxes * 20)?;
        all.push(Interface { context, uuid, version, result: None });
    }
    Some(all)
}

/// The server's answers for the requested interfaces.
pub(crate) fn bind_ack(h: Header, body: &[u8]) -> Option<Vec<u16>> {
    let mut r = Reader::new(body, h.little);
    r.take(8)?;
    let address = usize::from(r.u16()?);
    r.take(address)?;
    // The results are aligned within the message. The header's length is a multiple of four, so alignment within the body is
    // the same.
    let used = body.len() - r.rest().len();
    r.take(used.next_multiple_of(4) - used)?;
    let count = usize::from(r.u8()?);
    r.take(3)?;
    let mut all = Vec::new();
    for _ in 0..count.min(CONTEXTS_MAX) {
        all.push(r.u16()?);
        // The reason, and the transfer syntax.
        r.take(22)?;
    }
    Some(all)
}

/// A datagram's header, and the rest of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagram<'a> {
    pub kind: u8,
    pub little: bool,
    pub interface: Uuid,
    pub version: u32,
    pub activity: Uuid,
    pub sequence: u32,
    pub opnum: u16,
    /// Whether it is a fragment, and whether it is the last one.
    pub fragment: bool,
    pub last: bool,
    pub stub: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a datagram; `None` if it is too short or invalid.
    pub(crate) fn read(data: &'a [u8]) -> Option<Datagram<'a>> {
        let [version, kind, flags, _, order, float, _, _, ..] = *data.first_chunk::<DATAGRAM>()?;
        if version != 4 || kind > kind::ORPHANED || order & 0xee != 0 || float > 3 {
            return None;
        }
        let little = order & 0x10 != 0;
        let mut r = Reader::new(data.get(24..)?, little);
        let interface = r.uuid()?;
        // Like Suricata, ignore the byte order of the message.
        let activity = Uuid::read(r.array()?, true);
        r.u32()?;
        let (version, sequence, opnum) = (r.u32()?, r.u32()?, r.u16()?);
        r.take(4)?;
        let length = usize::from(r.u16()?);
        r.take(4)?;
        let stub = r.rest();
        let stub = stub.get(..length).unwrap_or(stub);
        let (last, fragment) = (flags & 0x02 != 0, flags & 0x04 != 0);
        Some(Datagram { kind, little, interface, version, activity, sequence, opnum, fragment, last, stub })
    }

    /// Whether servers send messages of this type.
    pub(crate) const fn is_response(&self) -> bool {
        !matches!(self.kind, kind::REQUEST | kind::PING | kind::CL_CANCEL)
    }
}
