//! Messages of CIP (CIP volume 1, chapter 2): a request to an object, or a response.

use super::names;
use crate::bytes::{le16, le32};

/// Services with a layout of their own.
const GET_ATTRIBUTE_LIST: u8 = 0x03;
const SET_ATTRIBUTE_LIST: u8 = 0x04;
const MULTIPLE: u8 = 0x0a;
const UNCONNECTED_SEND: u8 = 0x52;
/// The class of the connection manager, which forwards requests.
const CONNECTION_MANAGER: u32 = 6;
/// The bit of a service code that marks a response.
const RESPONSE: u8 = 0x80;
/// The limit of nested messages.
const DEPTH_MAX: usize = 3;

/// A segment of a path (CIP volume 1, appendix C).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Segment<'a> {
    /// A number: its type and value.
    Logical(&'static str, u32),
    /// The name of a tag.
    Symbol(&'a [u8]),
    /// A segment that routes to another device, or qualifies the previous segment.
    Other,
}

/// Names of the types of logical segments, by type.
const LOGICAL: [&str; 8] =
    ["class", "instance", "member", "connection_point", "attribute", "special", "service", "extended_logical"];

/// The segments of a padded path, up to the first invalid one.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = path;
    std::iter::from_fn(move || {
        let (segment, len) = segment(rest)?;
        rest = rest.get(len..).unwrap_or(&[]);
        Some(segment)
    })
}

/// The segment at the front, and its padded length.
fn segment(path: &[u8]) -> Option<(Segment<'_>, usize)> {
    let first = *path.first()?;
    Some(match first >> 5 {
        // A port: the first byte announces a wide port number, and the length of a link address.
        0 => {
            let wide = if first & 0x0f == 0x0f { 2 } else { 0 };
            let len = match first & 0x10 {
                0 => 2 + wide,
                _ => 2 + wide + usize::from(*path.get(1)?),
            };
            (Segment::Other, len.next_multiple_of(2))
        }
        1 => {
            let of = LOGICAL[usize::from(first >> 2 & 7)];
            // An electronic key (appendix C-1.4.2.5): its format, and eight bytes.
            if first == 0x34 {
                return Some((Segment::Other, 10));
            }
            match first & 3 {
                0 => (Segment::Logical(of, u32::from(*path.get(1)?)), 2),
                1 => (Segment::Logical(of, u32::from(le16(path, 2)?)), 4),
                2 => (Segment::Logical(of, le32(path, 2)?), 6),
                _ => return None,
            }
        }
        // A network segment: one byte, or a number of words.
        2 => match first & 0x10 {
            0 => (Segment::Other, 2),
            _ => (Segment::Other, 2 + 2 * usize::from(*path.get(1)?)),
        },
        // Data, or a symbol in the extended form.
        4 => {
            let len = usize::from(*path.get(1)?);
            if first == 0x91 {
                (Segment::Symbol(path.get(2..2 + len)?), (2 + len).next_multiple_of(2))
            } else {
                (Segment::Other, 2 + 2 * len)
            }
        }
        _ => return None,
    })
}

/// A message: its known parts, and the raw rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cip<'a> {
    /// A request.
    Request {
        /// Code of the service.
        service: u8,
        /// Path of the object.
        path: &'a [u8],
        /// Data of the request.
        data: &'a [u8],
    },
    /// A response.
    Response {
        /// Service code, without the response bit.
        service: u8,
        /// General status.
        status: u8,
        /// Additional status codes of two bytes each, little endian.
        extended: &'a [u8],
        /// Data of the response.
        data: &'a [u8],
    },
}

impl<'a> Cip<'a> {
    /// Reads a message; `None` if it is truncated.
    pub(super) fn read(data: &'a [u8]) -> Option<Cip<'a>> {
        let (&service, rest) = data.split_first()?;
        if service & RESPONSE != 0 {
            let [_, status, words, rest @ ..] = rest else { return None };
            let (extended, data) = rest.split_at_checked(2 * usize::from(*words))?;
            return Some(Cip::Response { service: service & !RESPONSE, status: *status, extended, data });
        }
        let (words, rest) = rest.split_first()?;
        let (path, data) = rest.split_at_checked(2 * usize::from(*words))?;
        Some(Cip::Request { service, path, data })
    }

    /// Nested messages, in order.
    pub(super) fn inner(self) -> impl Iterator<Item = &'a [u8]> {
        let (list, forwarded) = match self {
            Cip::Request { service: MULTIPLE, data, .. } | Cip::Response { service: MULTIPLE, data, .. } => {
                (Some(data), None)
            }
            Cip::Request { service: UNCONNECTED_SEND, path, data } if class_of(path) == Some(CONNECTION_MANAGER) => {
                // The message's length follows a priority and a tick count (CIP volume 1, section 3-5.5.4).
                let len = le16(data, 2).map(usize::from);
                (None, len.and_then(|len| data.get(4..4 + len)))
            }
            _ => (None, None),
        };
        forwarded.into_iter().chain(list.into_iter().flat_map(packed))
    }

    /// The attributes listed in its data.
    fn listed(self) -> impl Iterator<Item = u32> {
        let (data, count) = match self {
            Cip::Request { service: GET_ATTRIBUTE_LIST, data, .. } => (data, usize::from(le16(data, 0).unwrap_or(0))),
            // Only the first one, because the object determines the lengths of values.
            Cip::Request { service: SET_ATTRIBUTE_LIST, data, .. } => {
                (data, usize::from(le16(data, 0).unwrap_or(0)).min(1))
            }
            _ => (&[][..], 0),
        };
        data.get(2..).unwrap_or(&[]).chunks_exact(2).take(count).map(|a| u32::from(u16::from_le_bytes([a[0], a[1]])))
    }
}

/// The class in a path.
pub(super) fn class_of(path: &[u8]) -> Option<u32> {
    segments(path).find_map(|s| match s {
        Segment::Logical("class", n) => Some(n),
        _ => None,
    })
}

/// The messages of a Multiple Service Packet (CIP volume 1, appendix ): a count, an offset for each message, and the
/// messages. An offset out of order ends the list, so no byte is parsed twice.
fn packed(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = usize::from(le16(data, 0).unwrap_or(0));
    let offset = move |i: usize| le16(data, 2 + 2 * i).map(usize::from);
    (0..count).map_while(move |i| {
        let from = offset(i).filter(|from| *from >= 2 + 2 * count)?;
        let to = if i + 1 < count { offset(i + 1)? } else { data.len() };
        data.get(from..to)
    })
}

/// The values for keywords from a message and its nested messages.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Classes of the paths of requests.
    pub(super) classes: Vec<u32>,
    /// Instances of the paths of requests.
    pub(super) instances: Vec<u32>,
    /// Attributes of requests, in paths and in lists.
    pub(super) attributes: Vec<u32>,
    /// Services of requests, each with its class and an attribute ([`triple`]).
    pub(super) services: Vec<u64>,
    /// General status codes of responses.
    pub(super) statuses: Vec<u8>,
    /// Additional status codes of responses.
    pub(super) extended: Vec<u16>,
}

/// A service with its class and an attribute as one number, for comparisons made by [`triple_test`]. Bits 56 and 57 say whether
/// there is a class and an attribute.
fn triple(service: u8, class: Option<u32>, attribute: Option<u32>) -> u64 {
    let class = class.map_or(0, |c| 1 << 56 | u64::from(c) << 16);
    let attribute = attribute.filter(|a| *a <= 0xffff).map_or(0, |a| 1 << 57 | u64::from(a));
    u64::from(service) << 48 | class | attribute
}

/// The mask and value for [`triple`] of a rule's condition.
pub(super) fn triple_test(service: u8, class: Option<u32>, attribute: Option<u32>) -> (u64, u64) {
    let full = |some: bool, bits: u64| if some { bits } else { 0 };
    let mask =
        0x7f << 48 | full(class.is_some(), 1 << 56 | 0xffff_ffff << 16) | full(attribute.is_some(), 1 << 57 | 0xffff);
    (mask, triple(service, class, attribute))
}

impl Summary {
    /// Summarises a message; `None` if it, or a nested one, is invalid.
    pub(super) fn of(data: &[u8]) -> Option<Summary> {
        let mut summary = Summary::default();
        summary.add(data, 0).then_some(summary)
    }

    fn add(&mut self, data: &[u8], depth: usize) -> bool {
        let Some(cip) = Cip::read(data) else { return false };
        match cip {
            Cip::Request { service, path, .. } => {
                let class = class_of(path);
                let mut any = false;
                for segment in segments(path) {
                    match segment {
                        Segment::Logical("class", n) => self.classes.push(n),
                        Segment::Logical("instance", n) => self.instances.push(n),
                        Segment::Logical("attribute", n) => self.attribute(service, class, n, &mut any),
                        _ => {}
                    }
                }
                for n in cip.listed() {
                    self.attribute(service, class, n, &mut any);
                }
                if !any {
                    self.services.push(triple(service, class, None));
                }
            }
            Cip::Response { status, extended, .. } => {
                self.statuses.push(status);
                self.extended.extend(extended.chunks_exact(2).map(|e| u16::from_le_bytes([e[0], e[1]])));
            }
        }
        // An invalid one must not hide those after it.
        let mut holds = true;
        for inner in cip.inner().filter(|_| depth < DEPTH_MAX) {
            holds &= self.add(inner, depth + 1);
        }
        holds
    }

    fn attribute(&mut self, service: u8, class: Option<u32>, n: u32, any: &mut bool) {
        self.attributes.push(n);
        self.services.push(triple(service, class, Some(n)));
        *any = true;
    }

    /// Heap memory in bytes.
    pub(super) fn held(&self) -> usize {
        (self.classes.capacity() + self.instances.capacity() + self.attributes.capacity()) * size_of::<u32>()
            + self.services.capacity() * size_of::<u64>()
            + self.statuses.capacity()
            + self.extended.capacity() * size_of::<u16>()
    }
}

/// The ranges of a message that begins at `at`, and of those nested in it: offset and length.
pub(super) fn places(message: &[u8], at: usize, out: &mut Vec<(usize, usize)>) {
    places_at(message, at, out, 0);
}

fn places_at(message: &[u8], at: usize, out: &mut Vec<(usize, usize)>, depth: usize) {
    out.push((at, message.len()));
    let Some(cip) = Cip::read(message).filter(|_| depth < DEPTH_MAX) else { return };
    for inner in cip.inner() {
        // It points into this message.
        let from = inner.as_ptr().addr() - message.as_ptr().addr();
        places_at(inner, at + from, out, depth + 1);
    }
}

/// Appends the members of a message to an open object.
pub(super) fn log(data: &[u8], json: &mut margay_json::Json) {
    log_at(data, json, 0);
}

fn log_at(data: &[u8], json: &mut margay_json::Json, depth: usize) {
    let Some(cip) = Cip::read(data) else { return };
    let (Cip::Request { service, .. } | Cip::Response { service, .. }) = cip;
    match names::service(service) {
        Some(name) => json.str("service", name),
        None => json.str("service", &format!("Unknown (0x{service:02x})")),
    }
    match cip {
        Cip::Request { path, .. } => {
            if !path.is_empty() {
                json.array("path");
                for segment in segments(path) {
                    let (of, number, symbol) = match segment {
                        Segment::Logical(of, n) => (of, Some(n), None),
                        Segment::Symbol(name) => ("symbol", None, Some(name)),
                        Segment::Other => continue,
                    };
                    json.item_object();
                    json.str("segment_type", of);
                    if let Some(n) = number {
                        json.uint("value", u64::from(n));
                    }
                    if let Some(name) = symbol {
                        json.bytes("value", name);
                    }
                    json.end_object();
                }
                json.end_array();
            }
            if let Some(name) = class_of(path).and_then(names::class) {
                json.str("class_name", name);
            }
        }
        Cip::Response { status, extended, .. } => {
            match names::state(status) {
                Some(name) => json.str("status", name),
                None => json.str("status", &format!("Unknown (0x{status:02x})")),
            }
            if let Some(extended) = le16(extended, 0) {
                json.uint("status_extended", u64::from(extended));
            }
        }
    }
    if depth < DEPTH_MAX {
        let mut open = false;
        for inner in cip.inner() {
            if !open {
                json.array("multiple");
                open = true;
            }
            json.item_object();
            log_at(inner, json, depth + 1);
            json.end_object();
        }
        if open {
            json.end_array();
        }
    }
}
