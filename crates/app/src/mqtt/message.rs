//! Control packets of MQTT 3.1, 3.1.1 and 5.0 (MQTT 5.0 sections 2 and 3).

use std::ops::Range;

/// The limit of logged properties in a list.
const PROPERTIES_MAX: usize = 64;

/// The type of a control packet (section 2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type(pub(super) u8);

impl Type {
    pub(super) const CONNECT: Type = Type(1);
    pub(super) const CONNACK: Type = Type(2);
    pub(super) const PUBLISH: Type = Type(3);
    pub(super) const PUBACK: Type = Type(4);
    pub(super) const PUBREC: Type = Type(5);
    pub(super) const PUBREL: Type = Type(6);
    pub(super) const PUBCOMP: Type = Type(7);
    pub(super) const SUBSCRIBE: Type = Type(8);
    pub(super) const SUBACK: Type = Type(9);
    pub(super) const UNSUBSCRIBE: Type = Type(10);
    pub(super) const UNSUBACK: Type = Type(11);
    pub(super) const DISCONNECT: Type = Type(14);
    pub(super) const AUTH: Type = Type(15);

    /// The name in events, and with these letters in rules.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|n| n.1 == u64::from(self.0)).map_or("unassigned", |n| n.0)
    }
}

/// Names of types.
pub(super) const NAMES: &[(&str, u64)] = &[
    ("unassigned", 0),
    ("connect", 1),
    ("connack", 2),
    ("publish", 3),
    ("puback", 4),
    ("pubrec", 5),
    ("pubrel", 6),
    ("pubcomp", 7),
    ("subscribe", 8),
    ("suback", 9),
    ("unsubscribe", 10),
    ("unsuback", 11),
    ("pingreq", 12),
    ("pingresp", 13),
    ("disconnect", 14),
    ("auth", 15),
];

/// The fixed header (section 2.1): a byte of type and flags, and the remaining length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Type and flags.
    pub(super) first: u8,
    /// Length of the header.
    pub(super) len: usize,
    /// Length of the data after it; below 2^28.
    pub(super) remaining: usize,
}

impl Header {
    /// `Err(true)`: more bytes are needed; `Err(false)`: the length has more than four bytes.
    pub(super) fn read(data: &[u8]) -> Result<Header, bool> {
        let Some((&first, rest)) = data.split_first() else { return Err(true) };
        let (remaining, used) = variable(rest)?;
        Ok(Header { first, len: 1 + used, remaining })
    }

    pub(super) fn total(self) -> usize {
        self.len + self.remaining
    }
}

/// Reads a variable byte integer (section 1.5.5). Returns it and its encoded length. Errors as in [`Header::read`].
fn variable(data: &[u8]) -> Result<(usize, usize), bool> {
    let mut value = 0;
    for at in 0..4 {
        let b = *data.get(at).ok_or(true)?;
        value |= usize::from(b & 0x7f) << (7 * at);
        if b & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(false)
}

/// The range of a part in a message's body.
pub(super) type Part = Range<u32>;

/// A raw message, with the ranges of its parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Type and flags, the first byte.
    pub(super) first: u8,
    /// The data after the fixed header; empty if the message exceeds `max-msg-length`.
    pub(super) body: Box<[u8]>,
    /// Its parts.
    pub(super) kind: Kind,
}

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It exceeds the limit: its total length.
    Truncated(usize),
    Connect(Connect),
    Connack {
        session_present: bool,
        code: u8,
        properties: Part,
    },
    Publish {
        topic: Part,
        id: Option<u16>,
        properties: Part,
        message: Part,
    },
    /// PUBACK, PUBREC, PUBREL, PUBCOMP.
    Receipt {
        id: u16,
        reason: Option<u8>,
        properties: Part,
    },
    /// SUBSCRIBE, UNSUBSCRIBE: the offset of each topic.
    Topics {
        id: u16,
        properties: Part,
        topics: Vec<u32>,
    },
    /// SUBACK, UNSUBACK: one-byte codes. MQTT 3 has none in UNSUBACK.
    Codes {
        id: u16,
        properties: Part,
        codes: Option<Part>,
    },
    /// DISCONNECT, AUTH.
    Reason {
        reason: Option<u8>,
        properties: Part,
    },
    /// PINGREQ, PINGRESP, and unassigned types.
    Empty,
}

/// CONNECT (section 3.1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connect {
    pub(super) protocol: Part,
    pub(super) version: u8,
    pub(super) flags: u8,
    pub(super) properties: Part,
    pub(super) client_id: Part,
    /// Properties, topic and message.
    pub(super) will: Option<(Part, Part, Part)>,
    pub(super) username: Option<Part>,
    pub(super) password: Option<Part>,
}

/// Flags of CONNECT.
pub(super) const CONNECT_FLAGS: &[(&str, u64)] =
    &[("username", 0x80), ("password", 0x40), ("will_retain", 0x20), ("will", 0x04), ("clean_session", 0x02)];
const USERNAME: u8 = 0x80;
const PASSWORD: u8 = 0x40;
const WILL: u8 = 0x04;

impl Message {
    /// A message that exceeds the limit.
    pub(super) fn truncated(header: Header) -> Message {
        Message { first: header.first, body: Box::default(), kind: Kind::Truncated(header.total()) }
    }

    /// Reads the data after the fixed header. `None` if it is malformed. `version` is that of the connection.
    pub(super) fn read(first: u8, body: &[u8], version: u8) -> Option<Message> {
        let mut r = Reader { body, at: 0, v5: version == 5 };
        // An omitted reason is 0 (section 3.4.2.1), also in versions after 5.
        let omitted = (version >= 5).then_some(0);
        let kind = match Type(first >> 4) {
            Type::CONNECT => Kind::Connect(r.connect()?),
            Type::CONNACK => {
                let (flags, code) = (r.byte()?, r.byte()?);
                Kind::Connack { session_present: flags & 1 != 0, code, properties: r.properties_if_any()? }
            }
            Type::PUBLISH => {
                let topic = r.string()?;
                let id = if first & 0x06 != 0 { Some(r.number()?) } else { None };
                let properties = r.properties()?;
                Kind::Publish { topic, id, properties, message: r.rest() }
            }
            Type::PUBACK | Type::PUBREC | Type::PUBREL | Type::PUBCOMP => {
                let id = r.number()?;
                let reason = r.reason().or(omitted);
                Kind::Receipt { id, reason, properties: r.properties_if_any()? }
            }
            of @ (Type::SUBSCRIBE | Type::UNSUBSCRIBE) => {
                let (id, properties) = (r.number()?, r.properties()?);
                let mut topics = Vec::new();
                // As in Suricata, the topics end at the first one that exceeds the message.
                while r.at < body.len() {
                    let at = r.at as u32;
                    if r.string().is_none() || (of == Type::SUBSCRIBE && r.byte().is_none()) {
                        break;
                    }
                    topics.push(at);
                }
                Kind::Topics { id, properties, topics }
            }
            of @ (Type::SUBACK | Type::UNSUBACK) => {
                let (id, properties) = (r.number()?, r.properties()?);
                // If CONNECT was not seen, the length tells the version.
                let has = of == Type::SUBACK || r.v5 || (version == 0 && r.at < body.len());
                Kind::Codes { id, properties, codes: has.then(|| r.rest()) }
            }
            // Like in Suricata, a DISCONNECT without properties counts as one without a reason code.
            Type::DISCONNECT if r.v5 && body.len() < 2 => Kind::Reason { reason: Some(0), properties: 0..0 },
            Type::DISCONNECT | Type::AUTH => {
                let reason = r.reason().or(omitted);
                Kind::Reason { reason, properties: r.properties_if_any()? }
            }
            _ => Kind::Empty,
        };
        Some(Message { first, body: body.into(), kind })
    }

    pub(super) fn of(&self) -> Type {
        Type(self.first >> 4)
    }

    pub(super) fn qos(&self) -> u8 {
        self.first >> 1 & 3
    }

    pub(super) fn part(&self, part: &Part) -> &[u8] {
        self.body.get(part.start as usize..part.end as usize).unwrap_or(&[])
    }

    /// A topic of SUBSCRIBE or UNSUBSCRIBE, with the byte after it.
    pub(super) fn topic(&self, at: u32) -> (&[u8], u8) {
        let mut r = Reader { body: &self.body, at: at as usize, v5: false };
        let Some(part) = r.string() else { return (&[], 0) };
        (self.part(&part), r.byte().unwrap_or(0))
    }

    /// Its reason codes, whatever the type of the message.
    pub(super) fn codes(&self) -> &[u8] {
        match &self.kind {
            Kind::Connack { code, .. } => std::slice::from_ref(code),
            Kind::Receipt { reason: Some(code), .. } | Kind::Reason { reason: Some(code), .. } => {
                std::slice::from_ref(code)
            }
            Kind::Codes { codes: Some(codes), .. } => self.part(codes),
            _ => &[],
        }
    }

    pub(super) fn held(&self) -> u64 {
        let topics = match &self.kind {
            Kind::Topics { topics, .. } => topics.capacity() * size_of::<u32>(),
            _ => 0,
        };
        (self.body.len() + topics) as u64
    }
}

/// A cursor in a body. Reading past the end yields `None`.
#[derive(Debug)]
struct Reader<'a> {
    body: &'a [u8],
    at: usize,
    v5: bool,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<Part> {
        let end = self.at.checked_add(len).filter(|e| *e <= self.body.len())?;
        let part = self.at as u32..end as u32;
        self.at = end;
        Some(part)
    }

    fn byte(&mut self) -> Option<u8> {
        let b = *self.body.get(self.at)?;
        self.at += 1;
        Some(b)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    fn string(&mut self) -> Option<Part> {
        let len = self.number()?;
        self.take(usize::from(len))
    }

    fn rest(&mut self) -> Part {
        let part = self.at as u32..self.body.len() as u32;
        self.at = self.body.len();
        part
    }

    /// Reads a reason code, which may be omitted together with everything after it (section 3.4.2.1). MQTT 3 has none.
    fn reason(&mut self) -> Option<u8> {
        if self.v5 { self.byte() } else { None }
    }

    /// Reads properties, which only MQTT 5 has (section 2.2.2), and checks each of them.
    fn properties(&mut self) -> Option<Part> {
        if !self.v5 {
            return Some(0..0);
        }
        let (len, used) = variable(self.body.get(self.at..)?).ok()?;
        self.at += used;
        let part = self.take(len)?;
        let data = self.body.get(part.start as usize..part.end as usize)?;
        let mut all = Properties(data);
        while all.next().is_some() {}
        all.0.is_empty().then_some(part)
    }

    /// Reads properties at the end of a message that may omit them.
    fn properties_if_any(&mut self) -> Option<Part> {
        if self.at == self.body.len() { Some(0..0) } else { self.properties() }
    }

    fn connect(&mut self) -> Option<Connect> {
        let (protocol, version, flags) = (self.string()?, self.byte()?, self.byte()?);
        // The keep-alive in seconds.
        self.number()?;
        self.v5 = version == 5;
        let properties = self.properties()?;
        let client_id = self.string()?;
        let will = if flags & WILL != 0 { Some((self.properties()?, self.string()?, self.string()?)) } else { None };
        let username = if flags & USERNAME != 0 { Some(self.string()?) } else { None };
        let password = if flags & PASSWORD != 0 { Some(self.string()?) } else { None };
        Some(Connect { protocol, version, flags, properties, client_id, will, username, password })
    }
}

/// A property's value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a [u8]),
}

/// Iterates over properties. If data is left at the end, it is malformed.
#[derive(Debug)]
pub(super) struct Properties<'a>(&'a [u8]);

impl<'a> Properties<'a> {
    /// The properties of a checked list, up to the limit for logs.
    pub(super) fn of(data: &'a [u8]) -> impl Iterator<Item = (&'a [u8], Value<'a>)> {
        Properties(data).take(PROPERTIES_MAX)
    }

    fn take_text(data: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (len, rest) = data.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        *data = rest;
        Some(text)
    }

    fn read(id: usize, mut rest: &'a [u8]) -> Option<(&'a [u8], Value<'a>, &'a [u8])> {
        if id == USER_PROPERTY {
            let key = Self::take_text(&mut rest)?;
            let value = Self::take_text(&mut rest)?;
            return Some((key, Value::Text(value), rest));
        }
        let (name, shape) = PROPERTIES.iter().find(|p| usize::from(p.0) == id).map(|p| (p.1, p.2))?;
        let value = match shape {
            Shape::Text => Value::Text(Self::take_text(&mut rest)?),
            Shape::Variable => {
                let (n, used) = variable(rest).ok()?;
                rest = rest.get(used..)?;
                Value::Number(n as u64)
            }
            Shape::Bytes(len) => {
                let (bytes, behind) = rest.split_at_checked(len)?;
                rest = behind;
                Value::Number(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
            }
        };
        Some((name.as_bytes(), value, rest))
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = (&'a [u8], Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (id, used) = variable(self.0).ok()?;
            let rest = self.0.get(used..)?;
            if id != USER_PROPERTY && PROPERTIES.iter().all(|p| usize::from(p.0) != id) {
                // Like in Suricata, an unknown property has no value.
                self.0 = rest;
                continue;
            }
            let (name, value, rest) = Self::read(id, rest)?;
            self.0 = rest;
            return Some((name, value));
        }
    }
}

/// The encoding of a property's value.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Bytes(usize),
    Variable,
    Text,
}

/// A property with a name of its own.
const USER_PROPERTY: usize = 38;

/// Properties (section 2.2.2.2), except user properties.
const PROPERTIES: &[(u8, &str, Shape)] = &[
    (1, "payload_format_indicator", Shape::Bytes(1)),
    (2, "message_expiry_interval", Shape::Bytes(4)),
    (3, "content_type", Shape::Text),
    (8, "response_topic", Shape::Text),
    (9, "correlation_data", Shape::Text),
    (11, "subscription_identifier", Shape::Variable),
    (17, "session_expiry_interval", Shape::Bytes(4)),
    (18, "assigned_client_identifier", Shape::Text),
    (19, "server_keep_alive", Shape::Bytes(2)),
    (21, "authentication_method", Shape::Text),
    (22, "authentication_data", Shape::Text),
    (23, "request_problem_information", Shape::Bytes(1)),
    (24, "will_delay_interval", Shape::Bytes(4)),
    (25, "request_response_information", Shape::Bytes(1)),
    (26, "response_information", Shape::Text),
    (28, "server_reference", Shape::Text),
    (31, "reason_string", Shape::Text),
    (33, "receive_maximum", Shape::Bytes(2)),
    (34, "topic_alias_maximum", Shape::Bytes(2)),
    (35, "topic_alias", Shape::Bytes(2)),
    (36, "maximum_qos", Shape::Bytes(1)),
    (37, "retain_available", Shape::Bytes(1)),
    (39, "maximum_packet_size", Shape::Bytes(4)),
    (40, "wildcard_subscription_available", Shape::Bytes(1)),
    (41, "subscription_identifier_available", Shape::Bytes(1)),
    (42, "shared_subscription_available", Shape::Bytes(1)),
];
