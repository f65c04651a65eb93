//! Messages (RFC 4120 section 5): the parts that events and rules need.

use crate::ber::{INTEGER, OCTETS, Reader, SEQUENCE, integer, length};

/// The limit of components in a principal's name. Most names have two or three.
const COMPONENTS_MAX: usize = 64;
/// `BIT STRING`, `GeneralizedTime` and `GeneralString`.
const BITS: u8 = 0x03;
const TIME: u8 = 0x18;
const STRING: u8 = 0x1b;

/// The type of a message: the number of its application tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    AsReq = 10,
    AsRep = 11,
    TgsReq = 12,
    TgsRep = 13,
    Error = 30,
}

impl Kind {
    /// The type for a message's tag.
    fn of(tag: u8) -> Option<Kind> {
        Some(match tag {
            0x6a => Kind::AsReq,
            0x6b => Kind::AsRep,
            0x6c => Kind::TgsReq,
            0x6d => Kind::TgsRep,
            0x7e => Kind::Error,
            _ => return None,
        })
    }

    /// The name in events.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Kind::AsReq => "KRB_AS_REQ",
            Kind::AsRep => "KRB_AS_REP",
            Kind::TgsReq => "KRB_TGS_REQ",
            Kind::TgsRep => "KRB_TGS_REP",
            Kind::Error => "KRB_ERROR",
        }
    }

    /// Whether it is a request.
    pub(super) const fn is_request(self) -> bool {
        matches!(self, Kind::AsReq | Kind::TgsReq)
    }
}

/// A principal's name (section 5.2.2).
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Name {
    /// Its components, joined by `/`.
    pub(super) joined: Vec<u8>,
    /// The end of each component.
    ends: Vec<u32>,
}

impl Name {
    fn read(mut inside: Reader<'_>) -> Option<Name> {
        let mut fields = inside.enter_in_any_form(SEQUENCE)?;
        signed(&mut explicit(&mut fields, 0)?)?;
        let mut list = explicit(&mut fields, 1)?.enter_in_any_form(SEQUENCE)?;
        let mut name = Name::default();
        while !list.is_empty() {
            let component = list.take(STRING)?;
            if name.ends.len() < COMPONENTS_MAX {
                if !name.ends.is_empty() {
                    name.joined.push(b'/');
                }
                name.joined.extend_from_slice(component);
                name.ends.push(u32::try_from(name.joined.len()).ok()?);
            }
        }
        Some(name)
    }

    /// A component.
    pub(super) fn component(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).and_then(|i| self.ends.get(i)).map_or(0, |e| *e as usize + 1);
        self.joined.get(start..end)
    }

    fn held(&self) -> usize {
        self.joined.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// The stored part of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) error: Option<i32>,
    pub(super) cname: Option<Name>,
    pub(super) realm: Option<Box<[u8]>>,
    pub(super) sname: Option<Name>,
    /// Encryption type of a reply's client part.
    pub(super) encryption: Option<i32>,
    /// Encryption type of a reply's ticket.
    pub(super) ticket_encryption: Option<i32>,
}

/// A field with a context tag; data after its element is ignored.
fn explicit<'a>(fields: &mut Reader<'a>, number: u8) -> Option<Reader<'a>> {
    // Of the classes, Suricata refuses only the universal one.
    fields.tag().filter(|tag| tag & 0xc0 != 0)?;
    fields.enter(0xa0 | number)
}

/// A field that may be missing; `None` if it is invalid.
fn optional<'a, T>(
    fields: &mut Reader<'a>,
    number: u8,
    read: impl FnOnce(Reader<'a>) -> Option<T>,
) -> Option<Option<T>> {
    match fields.tag() {
        Some(tag) if tag & 0x3f == 0x20 | number => Some(Some(read(explicit(fields, number)?)?)),
        _ => Some(None),
    }
}

fn number(inside: &mut Reader<'_>) -> Option<i64> {
    let body = inside.take(INTEGER)?;
    // X.690 section 8.3.2: no zeros in front.
    let padded = matches!(body, [0, second, ..] if *second < 0x80);
    if padded { None } else { integer(body) }
}

/// An `Int32`.
fn signed(inside: &mut Reader<'_>) -> Option<i32> {
    i32::try_from(number(inside)?).ok()
}

/// A `UInt32`.
fn unsigned(mut inside: Reader<'_>) -> Option<u32> {
    u32::try_from(number(&mut inside)?).ok()
}

/// A `Realm`.
fn realm(mut inside: Reader<'_>) -> Option<Box<[u8]>> {
    Some(inside.take(STRING)?.into())
}

/// A `KerberosTime` (section 5.2.3).
fn time(mut inside: Reader<'_>) -> Option<()> {
    let text = inside.take_in_any_form(TIME)?;
    (text.len() == 15 && text.ends_with(b"Z") && text.iter().all(|b| (0x20..0x80).contains(b))).then_some(())
}

/// The contents of a bit string: unused bits are zero.
fn bits(body: &[u8]) -> Option<()> {
    let (&unused, bits) = body.split_first()?;
    let last = bits.last().copied().unwrap_or(0);
    (unused < 8 && (unused == 0 || !bits.is_empty()) && last.trailing_zeros() >= u32::from(unused)).then_some(())
}

/// A sequence whose elements `read` accepts.
fn sequence(mut inside: Reader<'_>, mut read: impl FnMut(&mut Reader<'_>) -> Option<()>) -> Option<()> {
    let mut list = inside.enter_in_any_form(SEQUENCE)?;
    while !list.is_empty() {
        read(&mut list)?;
    }
    Some(())
}

/// `SEQUENCE OF PA-DATA` (section 5.2.7).
fn padata(inside: Reader<'_>) -> Option<()> {
    sequence(inside, |list| {
        let mut fields = list.enter_in_any_form(SEQUENCE)?;
        signed(&mut explicit(&mut fields, 1)?)?;
        explicit(&mut fields, 2)?.element().map(|_| ())
    })
}

/// The encryption type of encrypted data (section 5.2.9).
fn encryption(mut inside: Reader<'_>) -> Option<i32> {
    let mut fields = inside.enter_in_any_form(SEQUENCE)?;
    let kind = signed(&mut explicit(&mut fields, 0)?)?;
    optional(&mut fields, 1, unsigned)?;
    explicit(&mut fields, 2)?.take(OCTETS)?;
    Some(kind)
}

impl Message {
    /// The type of a message, which may be invalid otherwise.
    pub(super) fn kind(data: &[u8]) -> Option<Kind> {
        let tag = *data.first()?;
        length(data.get(1..)?).ok()?;
        Kind::of(tag | 0x20)
    }

    /// Reads a complete message; `None` if it is invalid, or of a type that other protocols carry. The fields have to be in
    /// order. Data after the last one is ignored.
    pub(super) fn read(data: &[u8]) -> Option<Message> {
        let outer = Reader::new(data).element()?;
        let kind = Kind::of(outer.tag)?;
        let mut fields = Reader::of_any_class(outer.body).enter_in_any_form(SEQUENCE)?;
        let mut message = Message {
            kind,
            error: None,
            cname: None,
            realm: None,
            sname: None,
            encryption: None,
            ticket_encryption: None,
        };
        // The version and the type; Suricata accepts any.
        let first = u8::from(kind.is_request());
        unsigned(explicit(&mut fields, first)?)?;
        unsigned(explicit(&mut fields, first + 1)?)?;
        match kind {
            Kind::AsReq | Kind::TgsReq => message.request(fields)?,
            Kind::AsRep | Kind::TgsRep => message.reply(fields)?,
            Kind::Error => message.failure(fields)?,
        }
        Some(message)
    }

    /// Section 5.4.1.
    fn request(&mut self, mut fields: Reader<'_>) -> Option<()> {
        optional(&mut fields, 3, padata)?;
        let mut body = explicit(&mut fields, 4)?.enter_in_any_form(SEQUENCE)?;
        bits(explicit(&mut body, 0)?.take(BITS)?)?;
        self.cname = optional(&mut body, 1, Name::read)?;
        self.realm = Some(realm(explicit(&mut body, 2)?)?);
        self.sname = optional(&mut body, 3, Name::read)?;
        optional(&mut body, 4, time)?;
        time(explicit(&mut body, 5)?)?;
        optional(&mut body, 6, time)?;
        unsigned(explicit(&mut body, 7)?)?;
        sequence(explicit(&mut body, 8)?, |list| signed(list).map(|_| ()))
    }

    /// Section 5.4.2, and 5.3 for the ticket.
    fn reply(&mut self, mut fields: Reader<'_>) -> Option<()> {
        optional(&mut fields, 2, padata)?;
        self.realm = Some(realm(explicit(&mut fields, 3)?)?);
        self.cname = Some(Name::read(explicit(&mut fields, 4)?)?);
        let mut ticket = explicit(&mut fields, 5)?.enter(0x61)?.enter_in_any_form(SEQUENCE)?;
        unsigned(explicit(&mut ticket, 0)?)?;
        realm(explicit(&mut ticket, 1)?)?;
        self.sname = Some(Name::read(explicit(&mut ticket, 2)?)?);
        self.ticket_encryption = Some(encryption(explicit(&mut ticket, 3)?)?);
        self.encryption = Some(encryption(explicit(&mut fields, 6)?)?);
        Some(())
    }

    /// Section 5.9.1.
    fn failure(&mut self, mut fields: Reader<'_>) -> Option<()> {
        let micros = |inside: Reader<'_>| unsigned(inside).filter(|n| *n < 1_000_000);
        optional(&mut fields, 2, time)?;
        optional(&mut fields, 3, micros)?;
        time(explicit(&mut fields, 4)?)?;
        micros(explicit(&mut fields, 5)?)?;
        self.error = Some(signed(&mut explicit(&mut fields, 6)?)?);
        self.realm = optional(&mut fields, 7, realm)?;
        self.cname = optional(&mut fields, 8, Name::read)?;
        realm(explicit(&mut fields, 9)?)?;
        self.sname = Some(Name::read(explicit(&mut fields, 10)?)?);
        Some(())
    }

    pub(super) fn held(&self) -> usize {
        let names = [&self.cname, &self.sname].into_iter().flatten().map(Name::held).sum::<usize>();
        names + self.realm.as_ref().map_or(0, |r| r.len())
    }
}
