//! Operations (RFC 4511 section 4): stored raw, and parsed when a value is needed.

use std::sync::OnceLock;

use margay_json::Json;

use super::names;
use crate::ber::{INTEGER, OCTETS, Reader, SEQUENCE, integer};

/// `BOOLEAN`.
const BOOLEAN: u8 = 0x01;
/// `ENUMERATED`.
const ENUMERATED: u8 = 0x0a;
/// `SET OF`.
const SET: u8 = 0x31;
/// The limit of an operation's attributes for rules.
const ATTRIBUTES_MAX: usize = 4096;

/// The object identifier of StartTLS (section 4.14.1).
const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// An operation: its tag, and its contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operation {
    tag: u8,
    body: Box<[u8]>,
    /// Offset and length of each attribute type in `body`.
    attributes: Vec<(u32, u32)>,
    /// The places of each attribute value and its type. Filled when a rule asks for the first one.
    pairs: OnceLock<Vec<(Place, Place)>>,
}

/// Offset and length in the body.
type Place = (u32, u32);

/// The place of a part of `body`.
fn place(body: &[u8], of: &[u8]) -> Option<Place> {
    let start = (of.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    Some((u32::try_from(start).ok()?, u32::try_from(of.len()).ok()?))
}

/// The parsed content of an operation. Lists end at the first invalid element.
enum View<'a> {
    Bind { version: i64, name: &'a [u8], sasl: Option<(&'a [u8], Option<&'a [u8]>)> },
    Done { result: Outcome<'a>, rest: Reader<'a> },
    Search { base: &'a [u8], numbers: [i64; 4], types_only: bool, attributes: Reader<'a> },
    Entry { name: &'a [u8], attributes: Reader<'a> },
    List(Reader<'a>),
    Modify { object: &'a [u8], changes: Reader<'a> },
    ModifyName { entry: &'a [u8], new: &'a [u8], delete_old: bool, superior: Option<&'a [u8]> },
    Compare { entry: &'a [u8], description: &'a [u8], value: &'a [u8] },
    Delete(&'a [u8]),
    Abandon(i64),
    Unbind,
    Named { name: Option<&'a [u8]>, value: Option<&'a [u8]> },
}

/// `LDAPResult` (section 4.1.9).
struct Outcome<'a> {
    code: u32,
    matched: &'a [u8],
    message: &'a [u8],
}

/// The next element, if it has this tag.
fn optional<'a>(reader: &mut Reader<'a>, tag: u8) -> Option<&'a [u8]> {
    reader.take(tag)
}

/// The elements of a list, up to the first invalid one.
fn list<'a>(mut reader: Reader<'a>) -> impl Iterator<Item = &'a [u8]> {
    std::iter::from_fn(move || Some(reader.element()?.body))
}

/// The attributes of a list: type and values.
fn attributes<'a>(reader: Reader<'a>) -> impl Iterator<Item = (&'a [u8], Reader<'a>)> {
    list(reader).map_while(|body| {
        let mut inside = Reader::new(body);
        Some((inside.take(OCTETS)?, inside.enter(SET)?))
    })
}

/// The changes of a modification: operation, type, values.
fn changes<'a>(reader: Reader<'a>) -> impl Iterator<Item = (i64, &'a [u8], Reader<'a>)> {
    list(reader).map_while(|body| {
        let mut inside = Reader::new(body);
        let kind = inside.integer(ENUMERATED)?;
        let mut of = inside.enter(SEQUENCE)?;
        Some((kind, of.take(OCTETS)?, of.enter(SET)?))
    })
}

fn boolean(reader: &mut Reader<'_>) -> Option<bool> {
    Some(*reader.take(BOOLEAN)?.first()? != 0)
}

fn view(tag: u8, body: &[u8]) -> Option<View<'_>> {
    let mut r = Reader::new(body);
    Some(match tag {
        // Section 4.2.
        0x60 => {
            let (version, name) = (r.integer(INTEGER)?, r.take(OCTETS)?);
            let sasl = match r.element()? {
                // A password, which is not logged.
                e if e.tag == 0x80 => None,
                e if e.tag == 0xa3 => {
                    let mut sasl = e.inside();
                    Some((sasl.take(OCTETS)?, optional(&mut sasl, OCTETS)))
                }
                // Another kind, such as that of Windows (MS-ADTS section 5.1.1.1).
                _ => None,
            };
            View::Bind { version, name, sasl }
        }
        0x42 => View::Unbind,
        // Section 4.5.
        0x63 => {
            let base = r.take(OCTETS)?;
            let (scope, deref) = (r.integer(ENUMERATED)?, r.integer(ENUMERATED)?);
            let numbers = [scope, deref, r.integer(INTEGER)?, r.integer(INTEGER)?];
            let types_only = boolean(&mut r)?;
            // The filter.
            r.element()?;
            View::Search { base, numbers, types_only, attributes: r.enter(SEQUENCE)? }
        }
        0x64 | 0x68 => View::Entry { name: r.take(OCTETS)?, attributes: r.enter(SEQUENCE)? },
        0x73 => View::List(r),
        0x61 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x78 => {
            let code = r.unsigned(ENUMERATED)?;
            let result = Outcome { code, matched: r.take(OCTETS)?, message: r.take(OCTETS)? };
            // Referrals (section 4.1.10).
            optional(&mut r, 0xa3);
            View::Done { result, rest: r }
        }
        // Section 4.6.
        0x66 => View::Modify { object: r.take(OCTETS)?, changes: r.enter(SEQUENCE)? },
        0x4a => View::Delete(body),
        // Section 4.9.
        0x6c => View::ModifyName {
            entry: r.take(OCTETS)?,
            new: r.take(OCTETS)?,
            delete_old: boolean(&mut r)?,
            superior: optional(&mut r, 0x80),
        },
        // Section 4.10.
        0x6e => {
            let entry = r.take(OCTETS)?;
            let mut of = r.enter(SEQUENCE)?;
            View::Compare { entry, description: of.take(OCTETS)?, value: of.take(OCTETS)? }
        }
        0x50 => View::Abandon(integer(body)?),
        // Section 4.12.
        0x77 => View::Named { name: Some(r.take(0x80)?), value: optional(&mut r, 0x81) },
        0x79 => View::Named { name: optional(&mut r, 0x80), value: optional(&mut r, 0x81) },
        _ => return None,
    })
}

impl Operation {
    /// Reads an operation, if it is valid.
    pub(super) fn read(tag: u8, body: &[u8]) -> Option<Operation> {
        let view = view(tag, body)?;
        let place = |of: &[u8]| place(body, of);
        let places: Vec<(u32, u32)> = match view {
            View::Search { attributes, .. } => list(attributes).take(ATTRIBUTES_MAX).filter_map(place).collect(),
            View::Entry { attributes: all, .. } => {
                attributes(all).take(ATTRIBUTES_MAX).filter_map(|(kind, _)| place(kind)).collect()
            }
            View::Modify { changes: all, .. } => {
                changes(all).take(ATTRIBUTES_MAX).filter_map(|(_, kind, _)| place(kind)).collect()
            }
            View::Compare { description, .. } => place(description).into_iter().collect(),
            _ => Vec::new(),
        };
        Some(Operation { tag, body: body.into(), attributes: places, pairs: OnceLock::new() })
    }

    fn view(&self) -> Option<View<'_>> {
        view(self.tag, &self.body)
    }

    /// The number of the operation.
    pub(super) const fn number(&self) -> u8 {
        self.tag & 0x1f
    }

    /// Whether clients send it.
    pub(super) const fn is_request(&self) -> bool {
        matches!(self.number(), 0 | 2 | 3 | 6 | 8 | 10 | 12 | 14 | 16 | 23)
    }

    /// Whether a request has no response.
    pub(super) const fn has_no_response(&self) -> bool {
        matches!(self.number(), 2 | 16)
    }

    /// Whether further responses follow this one.
    pub(super) const fn goes_on(&self) -> bool {
        matches!(self.number(), 4 | 19 | 25)
    }

    /// Whether it requests TLS.
    pub(super) fn is_start_tls(&self) -> bool {
        self.tag == 0x77 && matches!(self.view(), Some(View::Named { name: Some(START_TLS), .. }))
    }

    /// Whether it binds with SASL, which may seal all later data (RFC 4513 section 5.2.1).
    pub(super) fn is_sasl_bind(&self) -> bool {
        matches!(self.view(), Some(View::Bind { sasl: Some(_), .. }))
    }

    /// The result code.
    pub(super) fn code(&self) -> Option<u32> {
        match self.view()? {
            View::Done { result, .. } => Some(result.code),
            _ => None,
        }
    }

    /// The diagnostic message of a result.
    pub(super) fn message(&self) -> Option<&[u8]> {
        match self.view()? {
            View::Done { result, .. } => Some(result.message),
            _ => None,
        }
    }

    /// The name of its object.
    pub(super) fn name(&self) -> Option<&[u8]> {
        Some(match self.view()? {
            View::Bind { name, .. } | View::Entry { name, .. } | View::Delete(name) => name,
            View::Search { base: name, .. } | View::Modify { object: name, .. } => name,
            View::ModifyName { entry: name, .. } | View::Compare { entry: name, .. } => name,
            View::Done { result, .. } => result.matched,
            View::List(_) | View::Abandon(_) | View::Unbind | View::Named { .. } => return None,
        })
    }

    /// The number of its attribute types for rules.
    pub(super) const fn attributes(&self) -> usize {
        self.attributes.len()
    }

    /// An attribute type.
    pub(super) fn attribute(&self, index: usize) -> Option<&[u8]> {
        self.at(*self.attributes.get(index)?)
    }

    fn at(&self, (start, len): Place) -> Option<&[u8]> {
        self.body.get(start as usize..)?.get(..len as usize)
    }

    /// The attribute values for rules, each with its type. A search names types only, so it has none.
    fn pairs(&self) -> &[(Place, Place)] {
        self.pairs.get_or_init(|| {
            let values = |kind: &[u8], values: Reader<'_>| -> Vec<(Place, Place)> {
                let pair = |value| Some((place(&self.body, kind)?, place(&self.body, value)?));
                list(values).filter_map(pair).take(ATTRIBUTES_MAX).collect()
            };
            match self.view() {
                Some(View::Entry { attributes: all, .. }) => {
                    attributes(all).flat_map(|(kind, of)| values(kind, of)).take(ATTRIBUTES_MAX).collect()
                }
                Some(View::Modify { changes: all, .. }) => {
                    changes(all).flat_map(|(_, kind, of)| values(kind, of)).take(ATTRIBUTES_MAX).collect()
                }
                Some(View::Compare { description, value, .. }) => {
                    place(&self.body, description).zip(place(&self.body, value)).into_iter().collect()
                }
                _ => Vec::new(),
            }
        })
    }

    /// The number of its attribute values for rules.
    pub(super) fn values(&self) -> usize {
        self.pairs().len()
    }

    /// Writes an attribute value as `TYPE=VALUE` to `out`.
    pub(super) fn value(&self, index: usize, out: &mut Vec<u8>) -> Option<()> {
        let (kind, value) = *self.pairs().get(index)?;
        out.clear();
        out.extend_from_slice(self.at(kind)?);
        out.push(b'=');
        out.extend_from_slice(self.at(value)?);
        Some(())
    }

    pub(super) fn held(&self) -> usize {
        self.body.len() + self.attributes.capacity() * size_of::<(u32, u32)>()
    }

    /// Appends `"operation":"…"` and its content.
    // It stays whole: a flat match over the operations.
    pub(super) fn log(&self, json: &mut Json) {
        let operation = names::operation(self.number());
        json.str("operation", operation);
        let Some(view) = self.view() else { return };
        match view {
            View::Unbind => return,
            View::List(uris) => {
                json.array(operation);
                list(uris).for_each(|uri| json.item_bytes(uri));
                json.end_array();
                return;
            }
            _ => json.object(operation),
        }
        match view {
            View::Bind { version, name, sasl } => {
                json.int("version", version);
                json.bytes("name", name);
                if let Some((mechanism, credentials)) = sasl {
                    json.object("sasl");
                    json.bytes("mechanism", mechanism);
                    if let Some(credentials) = credentials {
                        json.bytes("credentials", credentials);
                    }
                    json.end_object();
                }
            }
            View::Done { result, mut rest } => {
                json.str("result_code", &names::result(result.code));
                json.bytes("matched_dn", result.matched);
                json.bytes("message", result.message);
                // In responses to binds, and in extended responses.
                for (tag, key) in [(0x87, "server_sasl_creds"), (0x8a, "name"), (0x8b, "value")] {
                    if let Some(value) = optional(&mut rest, tag) {
                        json.bytes(key, value);
                    }
                }
            }
            View::Search { base, numbers: [scope, deref, size, time], types_only, attributes } => {
                json.bytes("base_object", base);
                json.int("scope", scope);
                json.int("deref_alias", deref);
                json.int("size_limit", size);
                json.int("time_limit", time);
                json.bool("types_only", types_only);
                if !attributes.is_empty() {
                    json.array("attributes");
                    list(attributes).for_each(|a| json.item_bytes(a));
                    json.end_array();
                }
            }
            View::Entry { name, attributes: all } => {
                let added = self.tag == 0x68;
                json.bytes(if added { "entry" } else { "base_object" }, name);
                if !all.is_empty() {
                    json.array("attributes");
                    for (kind, values) in attributes(all) {
                        json.item_object();
                        json.bytes(if added { "name" } else { "type" }, kind);
                        log_values(json, "values", values);
                        json.end_object();
                    }
                    json.end_array();
                }
            }
            View::Modify { object, changes: all } => {
                json.bytes("object", object);
                if !all.is_empty() {
                    json.array("changes");
                    for (kind, attribute, values) in changes(all) {
                        json.item_object();
                        json.str("operation", names::change(kind));
                        json.object("modification");
                        json.bytes("attribute_type", attribute);
                        log_values(json, "attribute_values", values);
                        json.end_object();
                        json.end_object();
                    }
                    json.end_array();
                }
            }
            View::ModifyName { entry, new, delete_old, superior } => {
                json.bytes("entry", entry);
                json.bytes("new_rdn", new);
                json.bool("delete_old_rdn", delete_old);
                if let Some(superior) = superior {
                    json.bytes("new_superior", superior);
                }
            }
            View::Compare { entry, description, value } => {
                json.bytes("entry", entry);
                json.object("attribute_value_assertion");
                json.bytes("description", description);
                json.bytes("value", value);
                json.end_object();
            }
            View::Delete(name) => json.bytes("dn", name),
            View::Abandon(id) => json.int("message_id", id),
            View::Named { name, value } => {
                for (key, of) in [("name", name), ("value", value)] {
                    if let Some(of) = of {
                        json.bytes(key, of);
                    }
                }
            }
            View::Unbind | View::List(_) => {}
        }
        json.end_object();
    }
}

fn log_values(json: &mut Json, key: &'static str, values: Reader<'_>) {
    if !values.is_empty() {
        json.array(key);
        list(values).for_each(|v| json.item_bytes(v));
        json.end_array();
    }
}
