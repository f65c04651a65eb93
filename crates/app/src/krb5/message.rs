//! Messages (RFC 4120 section 5): the parts that events and rules need.

use crate::ber::{INTEGER, Reader, SEQUENCE, integer};

/// The limit of components in a principal's name. Most names have two or three.
const COMPONENTS_MAX: usize = 64;
/// The version of the protocol.
const VERSION: i64 = 5;

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
    fn read(body: &[u8]) -> Option<Name> {
        let fields = Fields::read(body)?;
        integer(Reader::new(fields.0[0]?).take(INTEGER)?)?;
        let mut list = Reader::new(fields.0[1]?).enter(SEQUENCE)?;
        let mut name = Name::default();
        while !list.is_empty() {
            let component = list.element()?.body;
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

/// The fields of a sequence, by context tag. Other elements and higher tags are ignored; of two with the same tag, the first
/// counts.
struct Fields<'a>([Option<&'a [u8]>; 12]);

impl<'a> Fields<'a> {
    /// Reads `body`, which is a sequence.
    fn read(body: &'a [u8]) -> Option<Fields<'a>> {
        let mut inside = Reader::new(body).enter(SEQUENCE)?;
        let mut fields = Fields([None; 12]);
        while !inside.is_empty() {
            let element = inside.element()?;
            if let Some(field) = fields.0.get_mut(usize::from(element.tag ^ 0xa0)) {
                field.get_or_insert(element.body);
            }
        }
        Some(fields)
    }

    fn number(&self, field: usize) -> Option<i64> {
        Reader::new((*self.0.get(field)?)?).integer(INTEGER)
    }

    fn text(&self, field: usize) -> Option<Box<[u8]>> {
        Some(Reader::new((*self.0.get(field)?)?).element()?.body.into())
    }

    /// A name; `Err` if it is invalid.
    fn name(&self, field: usize) -> Result<Option<Name>, ()> {
        self.0.get(field).copied().flatten().map(|body| Name::read(body).ok_or(())).transpose()
    }

    /// Encryption type of encrypted data (section 5.2.9).
    fn encryption(&self, field: usize) -> Option<i32> {
        i32::try_from(Fields::read((*self.0.get(field)?)?)?.number(0)?).ok()
    }
}

impl Message {
    /// Reads a complete message; `None` if it is invalid, or of a type that other protocols carry.
    pub(super) fn read(data: &[u8]) -> Option<Message> {
        let outer = Reader::new(data).element()?;
        let kind = Kind::of(outer.tag)?;
        let fields = Fields::read(outer.body)?;
        let version = if kind.is_request() { fields.number(1) } else { fields.number(0) };
        if version != Some(VERSION) {
            return None;
        }
        let mut message = Message {
            kind,
            error: None,
            cname: None,
            realm: None,
            sname: None,
            encryption: None,
            ticket_encryption: None,
        };
        match kind {
            // Section 5.4.1.
            Kind::AsReq | Kind::TgsReq => {
                let body = Fields::read(fields.0[4]?)?;
                message.cname = body.name(1).ok()?;
                message.realm = Some(body.text(2)?);
                message.sname = body.name(3).ok()?;
            }
            // Section 5.4.2.
            Kind::AsRep | Kind::TgsRep => {
                message.realm = Some(fields.text(3)?);
                message.cname = Some(fields.name(4).ok()??);
                // Section 5.3.
                let ticket = Fields::read(Reader::new(fields.0[5]?).take(0x61)?)?;
                message.sname = Some(ticket.name(2).ok()??);
                message.ticket_encryption = Some(ticket.encryption(3)?);
                message.encryption = Some(fields.encryption(6)?);
            }
            // Section 5.9.1.
            Kind::Error => {
                message.error = Some(i32::try_from(fields.number(6)?).ok()?);
                message.realm = fields.text(7);
                message.cname = fields.name(8).ok()?;
                message.sname = Some(fields.name(10).ok()??);
            }
        }
        Some(message)
    }

    pub(super) fn held(&self) -> usize {
        let names = [&self.cname, &self.sname].into_iter().flatten().map(Name::held).sum::<usize>();
        names + self.realm.as_ref().map_or(0, |r| r.len())
    }
}
