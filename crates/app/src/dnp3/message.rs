//! Objects of a fragment (IEEE 1815 clause 4.2.2 and 11).

use margay_json::Json;

use super::layout::{Field, LENGTHS, REST, layout};

/// An object's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) group: u8,
    pub(super) variation: u8,
    pub(super) qualifier: u8,
    pub(super) start: u32,
    pub(super) stop: u32,
    pub(super) count: u32,
}

impl Head {
    pub(super) fn prefix_code(self) -> u8 {
        self.qualifier >> 4 & 7
    }

    pub(super) fn range_code(self) -> u8 {
        self.qualifier & 15
    }
}

/// How parsing of the objects ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All objects were read.
    Complete,
    /// A header is truncated, or does not define its points.
    Incomplete,
    /// An object is unknown, or its points are truncated.
    Unknown,
    TooManyPoints,
    TooManyObjects,
}

/// A point of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point<'a> {
    prefix: u32,
    index: u32,
    /// The size prefix, if there is one.
    size: Option<u32>,
    layout: &'static [Field],
    data: &'a [u8],
    /// The first bit, if points share a byte.
    bit: u8,
}

/// A callback for objects and their points.
pub(super) trait Visit {
    fn object(&mut self, head: Head);
    fn point(&mut self, point: Point<'_>);
    fn end(&mut self);
}

/// Limits on objects and points in a message; 0 for none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) objects: usize,
    pub(super) points: usize,
}

fn le(data: &[u8]) -> u64 {
    data.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Skips indexes without points.
fn indexes(head: Head, data: &mut &[u8]) -> Option<End> {
    let len = 1usize << (head.prefix_code() - 1);
    match (head.count as usize).checked_mul(len).and_then(|len| data.get(len..)) {
        Some(rest) => {
            *data = rest;
            None
        }
        None => Some(End::Unknown),
    }
}

/// Iterates over the objects of a fragment. With `headers_alone`, points do not follow their headers, as in a read request;
/// indexes do, and so do points with a size prefix, such as the position in a file.
pub(super) fn walk(mut data: &[u8], headers_alone: bool, limits: Limits, visit: &mut impl Visit) -> End {
    let (mut objects, mut points) = (0, limits.points);
    while let Some((head, rest)) = data.split_first_chunk::<3>() {
        let &[group, variation, qualifier] = head;
        objects += 1;
        if limits.objects != 0 && objects > limits.objects {
            return End::TooManyObjects;
        }
        let mut head = Head { group, variation, qualifier, start: 0, stop: 0, count: 0 };
        let used = range(&mut head, rest);
        visit.object(head);
        let end = match used {
            None => Some(End::Incomplete),
            Some(used) => {
                data = rest.get(used..).unwrap_or(&[]);
                // Variation 0 requests any variation, and has no points.
                if head.count == 0 || variation == 0 || headers_alone && head.prefix_code() == 0 {
                    None
                } else if headers_alone && matches!(head.prefix_code(), 1..=3) {
                    indexes(head, &mut data)
                } else {
                    self::points(head, &mut data, &mut points, limits.points == 0, visit)
                }
            }
        };
        visit.end();
        if let Some(end) = end {
            return end;
        }
    }
    if data.is_empty() { End::Complete } else { End::Incomplete }
}

/// Reads an object's range. Returns its length.
fn range(head: &mut Head, data: &[u8]) -> Option<usize> {
    let number = |at: usize, len: usize| data.get(at..at + len).map(|b| le(b) as u32);
    let len = match head.range_code() {
        0 | 3 => 1,
        1 | 4 => 2,
        2 | 5 => 4,
        6 => return Some(0),
        code @ (7 | 8 | 9 | 11) => {
            let len = match code {
                8 => 2,
                9 => 4,
                _ => 1,
            };
            head.count = number(0, len)?;
            return Some(len);
        }
        _ => return None,
    };
    let (start, stop) = (number(0, len)?, number(len, len)?);
    (head.start, head.stop) = (start, stop);
    // A range that ends before it begins has a huge count, and its points are missing.
    head.count = stop.wrapping_sub(start).wrapping_add(1);
    Some(2 * len)
}

/// Iterates over the points of an object.
fn points(head: Head, data: &mut &[u8], left: &mut usize, any: bool, visit: &mut impl Visit) -> Option<End> {
    let Some(layout) = layout(head.group, head.variation) else { return Some(End::Unknown) };
    let mut take = |data: &mut &[u8], point: Point<'_>, used: usize| {
        if !any {
            if *left == 0 {
                return false;
            }
            *left -= 1;
        }
        visit.point(point);
        *data = data.get(used..).unwrap_or(&[]);
        true
    };
    if let [Field::B(_, width)] = layout {
        let mut bit = 0;
        for i in 0..head.count {
            if data.is_empty() {
                return Some(End::Unknown);
            }
            let index = head.start.wrapping_add(i);
            let point = Point { prefix: 0, index, size: None, layout, data, bit };
            bit += width;
            let used = usize::from(bit >= 8);
            if !take(data, point, used) {
                return Some(End::TooManyPoints);
            }
            bit %= 8;
        }
        // The remaining bits of a byte have no meaning.
        if bit != 0 {
            *data = data.get(1..).unwrap_or(&[]);
        }
        return None;
    }
    for i in 0..head.count {
        let code = head.prefix_code();
        let len = match code {
            1 | 4 => 1,
            2 | 5 => 2,
            3 | 6 => 4,
            _ => 0,
        };
        let Some((prefix, rest)) = data.split_at_checked(len) else { return Some(End::Unknown) };
        let prefix = le(prefix) as u32;
        let index = if matches!(code, 1..=3) { prefix } else { head.start.wrapping_add(i) };
        let size = matches!(code, 4..=6).then_some(prefix);
        let point = Point { prefix, index, size, layout, data: rest, bit: 0 };
        let Some(used) = point.measure() else { return Some(End::Unknown) };
        if !take(data, point, len + used) {
            return Some(End::TooManyPoints);
        }
    }
    None
}

impl Point<'_> {
    /// The length of the point; `None` if it is truncated.
    fn measure(&self) -> Option<usize> {
        self.fields(|_, _| {})
    }

    /// Calls `each` with each field and its bytes. Returns their total length.
    fn fields(&self, mut each: impl FnMut(&Field, &[u8])) -> Option<usize> {
        let (mut at, mut bits) = (0, 0);
        let mut lengths = [0; LENGTHS];
        for field in self.layout {
            let rest = self.data.get(at..)?;
            let len = match *field {
                Field::B(_, width) => {
                    each(field, rest.get(..1)?);
                    bits += width;
                    at += usize::from(bits / 8);
                    bits %= 8;
                    continue;
                }
                Field::U(_, len) | Field::I(_, len) | Field::V(_, len) => len,
                Field::F(_) => 4,
                Field::D(_) => 8,
                Field::N(_, len, slot) => {
                    *lengths.get_mut(slot)? = le(rest.get(..len)?) as usize;
                    len
                }
                Field::T(_, REST) | Field::X(_, REST) => (self.size? as usize).checked_sub(at)?,
                Field::T(_, slot) | Field::X(_, slot) => *lengths.get(slot)?,
            };
            each(field, rest.get(..len)?);
            at += len;
        }
        Some(at)
    }

    /// The index of the point.
    pub(super) const fn index(&self) -> u32 {
        self.index
    }

    /// Appends the point as an object.
    pub(super) fn log(&self, json: &mut Json) {
        json.item_object();
        json.uint("prefix", u64::from(self.prefix));
        json.uint("index", u64::from(self.index));
        if let Some(size) = self.size {
            json.uint("size", u64::from(size));
        }
        let encoded = |name: &str| self.layout.iter().any(|f| matches!(f, Field::X(n, _) if *n == name));
        self.show(|name, value| match value {
            Shown::Uint(n) => json.uint(name, n),
            Shown::Float(f) => json.float(name, f),
            Shown::Bytes(b) if encoded(name) => json.base64(name, b),
            Shown::Bytes(b) => json.bytes(name, b),
        });
        json.end_object();
    }

    /// Calls `each` with the name and the value of each field.
    pub(super) fn show(&self, mut each: impl FnMut(&'static str, Shown<'_>)) {
        let mut bit = self.bit;
        self.fields(|field, bytes| match *field {
            Field::B(name, width) => {
                each(name, Shown::Uint(le(bytes) >> bit & ((1 << width) - 1)));
                bit = (bit + width) % 8;
            }
            Field::U(name, _) | Field::N(name, ..) => each(name, Shown::Uint(le(bytes))),
            Field::I(name, len) => {
                let shift = 64 - 8 * len as u32;
                each(name, Shown::Uint(((le(bytes) << shift) as i64 >> shift) as u64));
            }
            Field::F(name) => each(name, Shown::Float(f64::from(f32::from_bits(le(bytes) as u32)))),
            Field::D(name) => each(name, Shown::Float(f64::from_bits(le(bytes)))),
            Field::T(name, _) => each(name, Shown::Bytes(bytes)),
            // Shorter names are padded with zeros.
            Field::V(name, _) => {
                let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
                each(name, Shown::Bytes(bytes.get(..end).unwrap_or(bytes)));
            }
            Field::X(name, _) => {
                if !bytes.is_empty() {
                    each(name, Shown::Bytes(bytes));
                }
            }
        });
    }
}

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shown<'a> {
    /// An integer; a signed one as its 64 bits.
    Uint(u64),
    Float(f64),
    Bytes(&'a [u8]),
}
