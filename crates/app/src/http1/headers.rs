//! The header fields of one message: the raw bytes, and the places of the parsed names and values in them.
//!
//! A field is parsed once the next line shows that it is not continued (RFC 9112, section 5.2). Values of a repeated field stay
//! separate, linked from the first one, and are joined on demand: joining them on arrival would take quadratic time.
//!
//! The parser asks every message for a dozen names of which most are absent. A set of bits answers most of these questions
//! without a look at the fields.

use super::header_index::{self, Index, NameHash};
use super::line::Ending;
use super::names::{bit, equal, tag};
use crate::rare::RareVec;

/// The limit of repetitions of a field; further ones are dropped.
const MAX_REPETITIONS: u16 = 64;
/// No further field with this name.
const NONE: u32 = u32::MAX;

/// The anomalies of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FieldFlags {
    /// It has no colon.
    pub no_colon: bool,
    /// The name is empty or not a token.
    pub invalid: bool,
    /// The name occurred before.
    pub repeated: bool,
    /// There are too many fields.
    pub too_many: bool,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    /// The [`tag`] of its name.
    tag: u32,
    /// Whether name and value are in [`Headers::folded`], instead of [`Headers::raw`].
    folded: bool,
    name: (u32, u32),
    value: (u32, u32),
    /// Whether it is the first one with its name.
    first: bool,
    /// The next one with its name.
    next: u32,
    /// In the first field of a name: the last one, and their number.
    tail: u32,
    count: u16,
}

/// The fields of a message.
#[derive(Debug, Clone, Default)]
pub(super) struct Headers {
    /// The raw bytes, with line ends and the empty line.
    raw: Vec<u8>,
    /// The fields of several lines, without line ends.
    folded: RareVec<u8>,
    list: Vec<Field>,
    /// The index of names, if there are many fields.
    index: Option<Box<Index>>,
    /// The [`bit`]s of the names; all bits if tags are not reliable.
    present: u64,
    /// The field that may be continued: its place in `raw`, or in `folded` if it has several lines.
    pending: (u32, u32),
    /// The place of its first colon, counted from its beginning.
    colon: Option<u32>,
    has_pending: bool,
    pending_folded: bool,
    /// Some names have null bytes, so tags are not reliable for them.
    nulls: bool,
}

/// Initial capacities that suit most messages: the raw bytes, and the number of fields. They avoid reallocation.
const RAW: usize = 512;
const FIELDS: usize = 16;

/// White space of C's `isspace`.
pub(super) const fn space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Removes white space on both sides.
pub(super) fn trim(b: &[u8]) -> &[u8] {
    trim_by(b, space)
}

/// Removes bytes for which `f` holds on both sides.
pub(super) fn trim_by(mut b: &[u8], f: impl Fn(u8) -> bool) -> &[u8] {
    while let [first, rest @ ..] = b {
        if !f(*first) {
            break;
        }
        b = rest;
    }
    while let [rest @ .., last] = b {
        if !f(*last) {
            break;
        }
        b = rest;
    }
    b
}

const fn token(b: u8) -> bool {
    matches!(b, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~')
}

static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = token(b as u8);
        b += 1;
    }
    table
};

/// Whether a byte may be in a token.
pub(super) const fn is_token_byte(b: u8) -> bool {
    TOKEN[b as usize]
}

/// Whether a name is a token (RFC 9110, section 5.6.2) and not empty.
pub(super) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| TOKEN[usize::from(b)])
}

/// Whether two names are equal in any case, ignoring null bytes in `found`.
fn same(found: &[u8], wanted: &[u8]) -> bool {
    if found.len() == wanted.len() {
        return equal(found, wanted);
    }
    found.len() > wanted.len()
        && found
            .iter()
            .filter(|&&b| b != 0)
            .map(u8::to_ascii_lowercase)
            .eq(wanted.iter().filter(|&&b| b != 0).map(u8::to_ascii_lowercase))
}

/// The bytes at a place: offset and length.
fn bytes_at(text: &[u8], (at, len): (u32, u32)) -> &[u8] {
    text.get(at as usize..(at as usize).saturating_add(len as usize)).unwrap_or(&[])
}

impl Headers {
    /// Adds a line, including its end, to the raw bytes.
    pub(super) fn add_raw(&mut self, line: &[u8]) {
        if self.raw.capacity() == 0 {
            self.raw.reserve_exact(RAW.max(line.len()));
        }
        self.raw.extend_from_slice(line);
    }

    /// The raw bytes.
    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Allocated memory in bytes.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        // Every line is among the raw bytes.
        if self.raw.capacity() == 0 {
            return 0;
        }
        self.raw.capacity()
            + self.folded.held()
            + self.list.capacity() * std::mem::size_of::<Field>()
            + self.index.as_ref().map_or(0, |i| size_of::<Index>() + i.memory())
    }

    /// Begins a field with the first `content` bytes of the last raw line, whose length with its end is `total`. The previous
    /// field must be finished.
    pub(super) fn begin(&mut self, content: usize, total: usize) {
        let at = self.raw.len().saturating_sub(total);
        self.pending = (at as u32, content.min(total) as u32);
        (self.has_pending, self.pending_folded) = (true, false);
        self.colon = memchr::memchr(b':', self.pending()).map(|at| at as u32);
    }

    /// The field that may be continued.
    fn pending(&self) -> &[u8] {
        bytes_at(if self.pending_folded { &self.folded } else { self.raw.as_slice() }, self.pending)
    }

    /// Continues the current field, up to `limit` bytes. Returns false if there is none.
    pub(super) fn fold(&mut self, line: &[u8], limit: usize) -> bool {
        if !self.has_pending {
            return false;
        }
        if !self.pending_folded {
            let at = self.folded.len() as u32;
            self.folded.to_add().extend_from_slice(bytes_at(&self.raw, self.pending));
            self.pending.0 = at;
            self.pending_folded = true;
        }
        let before = self.pending.1 as usize;
        let line = line.get(..limit.saturating_sub(before)).unwrap_or(line);
        self.colon = self.colon.or_else(|| memchr::memchr(b':', line).map(|at| (before + at) as u32));
        self.folded.to_add().extend_from_slice(line);
        self.pending.1 += line.len() as u32;
        true
    }

    /// Continues the current field with the plain folded lines at the front of `data`: those that end in CR LF, or for a
    /// request in LF. A field may have thousands. Returns their length, and the end of the last one.
    pub(super) fn fold_lines(&mut self, data: &[u8], limit: usize, lenient: bool) -> (usize, Option<Ending>) {
        let (mut used, mut ending) = (0, None);
        while let Some(rest @ [b' ' | b'\t', ..]) = data.get(used..) {
            let found = if lenient { memchr::memchr2(b'\n', b'\r', rest) } else { memchr::memchr(b'\n', rest) };
            let (content, total, end) = match found.and_then(|at| rest.split_at_checked(at)) {
                Some((content, [b'\r', b'\n', ..])) => (content, content.len() + 2, Ending::CrLf),
                Some(([content @ .., b'\r'], _)) => (content, content.len() + 2, Ending::CrLf),
                Some((content, [b'\n', ..])) if !lenient => (content, content.len() + 1, Ending::Lf),
                _ => break,
            };
            if total > limit || self.pending_len() + content.len() > limit || lenient && content.contains(&b':') {
                break;
            }
            self.fold(content, limit);
            used += total;
            ending = Some(end);
        }
        if used > 0 {
            self.add_raw(data.get(..used).unwrap_or(&[]));
        }
        (used, ending)
    }

    /// Whether a field may be continued.
    pub(super) const fn has_pending(&self) -> bool {
        self.has_pending
    }

    /// Whether the current field has its colon.
    pub(super) const fn has_colon(&self) -> bool {
        self.has_pending && self.colon.is_some()
    }

    /// Length of the current field.
    pub(super) const fn pending_len(&self) -> usize {
        if self.has_pending { self.pending.1 as usize } else { 0 }
    }

    /// Finishes the current field.
    #[inline]
    pub(super) fn finish(&mut self, limit: u32) -> FieldFlags {
        if self.has_pending { self.finish_pending(limit) } else { FieldFlags::default() }
    }

    fn finish_pending(&mut self, limit: u32) -> FieldFlags {
        let mut flags = FieldFlags::default();
        self.has_pending = false;
        // As in Suricata, one more than the limit is kept.
        if self.list.len() > limit as usize {
            flags.too_many = true;
            return flags;
        }
        let pending = self.pending();
        let (before, value) = match self.colon {
            Some(colon) => {
                let (before, after) = pending.split_at_checked(colon as usize).unwrap_or((pending, &[]));
                (before, trim(after.get(1..).unwrap_or(&[])))
            }
            None => {
                flags.no_colon = true;
                (&[][..], trim(pending))
            }
        };
        let name = trim(before);
        // White space before the colon is not allowed (RFC 9112, 5.1).
        flags.invalid = !flags.no_colon && (!is_token(name) || before.last().is_some_and(|&b| space(b)));
        let nulls = flags.invalid && name.contains(&0);
        // Both are parts of the pending field, or empty.
        let place = |part: &[u8]| {
            let at = (part.as_ptr() as usize).saturating_sub(pending.as_ptr() as usize);
            (self.pending.0 + if part.is_empty() { 0 } else { at as u32 }, part.len() as u32)
        };
        let (name, value) = (place(name), place(value));
        self.nulls |= nulls;
        self.push(name, value, &mut flags);
        flags
    }

    fn push(&mut self, place: (u32, u32), value: (u32, u32), flags: &mut FieldFlags) {
        let at = self.list.len() as u32;
        let name = bytes_at(if self.pending_folded { &self.folded } else { self.raw.as_slice() }, place);
        let tag = tag(name);
        // A message with an index needs the hash twice.
        let hash = self.index.as_ref().map(|index| index.hash(name));
        let before = match (&self.index, hash) {
            _ if name.is_empty() => None,
            (Some(index), Some(hash)) => self.find_in(index, name, hash),
            _ => self.find(name),
        };
        if let Some(first) = before {
            flags.repeated = true;
            let Some(f) = self.list.get_mut(first) else { return };
            if f.count > MAX_REPETITIONS {
                return;
            }
            f.count += 1;
            let tail = std::mem::replace(&mut f.tail, at);
            if let Some(t) = self.list.get_mut(tail as usize) {
                t.next = at;
            }
        }
        if let (Some(index), Some(hash), None) = (&mut self.index, hash, before) {
            index.add(name, hash, at);
        }
        self.present |= if self.nulls { u64::MAX } else { bit(tag) };
        if self.list.capacity() == 0 {
            self.list.reserve_exact(FIELDS);
        }
        let (folded, first) = (self.pending_folded, before.is_none());
        self.list.push(Field { tag, folded, name: place, value, first, next: NONE, tail: at, count: 1 });
        if self.list.len() == header_index::FROM && self.index.is_none() {
            let mut index = Box::<Index>::default();
            for (i, f) in self.list.iter().enumerate().filter(|(_, f)| f.first) {
                let name = self.name(f);
                index.add(name, index.hash(name), i as u32);
            }
            self.index = Some(index);
        }
    }

    fn text(&self, f: &Field) -> &[u8] {
        if f.folded { &self.folded } else { &self.raw }
    }

    fn name(&self, f: &Field) -> &[u8] {
        bytes_at(self.text(f), f.name)
    }

    fn value(&self, f: &Field) -> &[u8] {
        bytes_at(self.text(f), f.value)
    }

    /// The index of the first field with this name, in any case.
    #[inline]
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let tag = tag(name);
        if self.present & bit(tag) == 0 {
            return None;
        }
        self.find_tagged(name, tag)
    }

    /// As `find`, if a name with the same bit is present.
    fn find_tagged(&self, name: &[u8], tag: u32) -> Option<usize> {
        if let Some(index) = &self.index {
            return self.find_in(index, name, index.hash(name));
        }
        if self.nulls {
            return self.list.iter().position(|f| f.first && same(self.name(f), name));
        }
        self.list.iter().position(|f| f.tag == tag && f.first && same(self.name(f), name))
    }

    /// As `find`, for messages with many fields.
    fn find_in(&self, index: &Index, name: &[u8], hash: NameHash) -> Option<usize> {
        let found = [index.exact(hash), index.with_nulls(name, hash)].into_iter().flatten().min()? as usize;
        if self.list.get(found).is_some_and(|f| same(self.name(f), name)) {
            return Some(found);
        }
        // Another name has the same 64-bit hash, which a sender cannot provoke.
        self.list.iter().position(|f| f.first && same(self.name(f), name))
    }

    /// The value of the first field with this name.
    #[inline]
    pub(super) fn first(&self, name: &[u8]) -> Option<&[u8]> {
        let f = self.list.get(self.find(name)?)?;
        Some(self.value(f))
    }

    /// Whether a field occurred more than once.
    #[inline]
    pub(super) fn repeated(&self, name: &[u8]) -> bool {
        self.find(name).and_then(|i| self.list.get(i)).is_some_and(|f| f.count > 1)
    }

    /// All values of a name. `scratch` joins several values with `, `.
    #[inline]
    pub(super) fn joined<'a>(&'a self, name: &[u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        self.joined_from(self.find(name)?, scratch)
    }

    fn joined_from<'a>(&'a self, i: usize, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let f = self.list.get(i)?;
        if f.next == NONE {
            return Some(self.value(f));
        }
        scratch.clear();
        self.join(i, scratch);
        Some(scratch)
    }

    /// Appends all values of the name of field `first`.
    fn join(&self, first: usize, out: &mut Vec<u8>) {
        let mut at = first as u32;
        while let Some(f) = self.list.get(at as usize) {
            if at as usize != first {
                out.extend_from_slice(b", ");
            }
            out.extend_from_slice(self.value(f));
            at = f.next;
        }
    }

    /// All values of a name, separately.
    pub(super) fn values<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut at = self.find(name).map_or(NONE, |i| i as u32);
        std::iter::from_fn(move || {
            let f = self.list.get(at as usize)?;
            at = f.next;
            Some(self.value(f))
        })
    }

    /// The distinct names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().filter(|f| f.first).map(|f| self.name(f))
    }

    /// Whether there are no fields.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Appends `Name: value` for the distinct name at `index`. Returns false if there is none.
    pub(super) fn one(&self, index: usize, out: &mut Vec<u8>) -> bool {
        let first = match &self.index {
            Some(many) => many.firsts.get(index).map(|&i| i as usize),
            None => self.list.iter().enumerate().filter(|(_, f)| f.first).nth(index).map(|(i, _)| i),
        };
        let Some((i, f)) = first.and_then(|i| Some((i, self.list.get(i)?))) else { return false };
        out.extend_from_slice(self.name(f));
        out.extend_from_slice(b": ");
        self.join(i, out);
        true
    }

    /// Appends `Name: value` and a line end for each name except `without`.
    pub(super) fn all(&self, without: &[u8], out: &mut Vec<u8>) {
        for (i, f) in self.list.iter().enumerate().filter(|(_, f)| f.first) {
            let name = self.name(f);
            if !without.is_empty() && name.eq_ignore_ascii_case(without) {
                continue;
            }
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            self.join(i, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins a field.
    fn line(h: &mut Headers, l: &[u8]) {
        h.add_raw(l);
        h.begin(l.len(), l.len());
    }

    fn parsed(lines: &[&[u8]]) -> Headers {
        let mut h = Headers::default();
        for l in lines {
            if l.first().is_some_and(|b| *b == b' ') {
                h.fold(l, 1000);
                continue;
            }
            h.finish(1024);
            line(&mut h, l);
        }
        h.finish(1024);
        h
    }

    #[test]
    fn repeated_fields_are_joined_when_asked_for() {
        let h = parsed(&[b"A: 1", b"B:x", b"a:  2 ", b"A: 3", b"nocolon"]);
        let mut s = Vec::new();
        assert_eq!(h.joined(b"a", &mut s), Some(&b"1, 2, 3"[..]));
        let mut all = Vec::new();
        h.all(b"b", &mut all);
        assert_eq!(all, b"A: 1, 2, 3\r\n: nocolon\r\n");
        assert_eq!(h.names().collect::<Vec<_>>(), [&b"A"[..], b"B", b""]);
        let mut one = Vec::new();
        assert!(h.one(1, &mut one) && !h.one(3, &mut Vec::new()));
        assert_eq!(one, b"B: x");
    }

    #[test]
    fn folded_lines_are_of_the_value() {
        let h = parsed(&[b"A: 1", b"  2", b"B", b" : 3"]);
        assert_eq!(h.first(b"A"), Some(&b"1  2"[..]));
        assert_eq!(h.first(b"B"), Some(&b"3"[..]));
    }

    #[test]
    fn plain_folded_lines_are_read_at_once() {
        let folds = |data: &[u8], lenient| {
            let mut h = parsed(&[]);
            line(&mut h, b"A: 1");
            let (used, ending) = h.fold_lines(data, 20, lenient);
            (used, ending, h.raw().len() - 4, h.pending()[4..].to_vec())
        };
        assert_eq!(folds(b" 2\r\n\t3\n 4", false), (7, Some(Ending::Lf), 7, b" 2\t3".to_vec()));
        assert_eq!(folds(b" 2\r\n\t3\n 4", true), (4, Some(Ending::CrLf), 4, b" 2".to_vec()));
        assert_eq!(folds(b" 2\r3\r\n", true), (0, None, 0, Vec::new()));
        assert_eq!(folds(b" :\r\n", true), (0, None, 0, Vec::new()));
        assert_eq!(folds(b"B: 2\r\n", false), (0, None, 0, Vec::new()));
        assert_eq!(folds(b" 012345678901234\n 6\n", false).0, 17);
    }

    #[test]
    fn null_bytes_in_a_name_do_not_hide_it() {
        let h = parsed(&[b"Content\0-Encoding\x0b: gzip"]);
        assert_eq!(h.first(b"content-encoding"), Some(&b"gzip"[..]));
        let h = parsed(&[b"Host: a", b"\0Content-Encoding: br", b"content-ENCODING: gzip"]);
        assert_eq!(h.values(b"content-encoding").collect::<Vec<_>>(), [&b"br"[..], b"gzip"]);
        assert_eq!(h.first(b"Host"), Some(&b"a"[..]));
    }

    #[test]
    fn too_many_repetitions_are_dropped() {
        let mut h = Headers::default();
        let mut repeated = 0;
        for _ in 0..100 {
            line(&mut h, b"A: b");
            repeated += usize::from(h.finish(1024).repeated);
        }
        assert_eq!((repeated, h.values(b"a").count()), (99, 65));
        for _ in 0..100 {
            line(&mut h, b"B: b");
            h.finish(70);
        }
        assert_eq!(h.names().map(|n| h.values(n).count()).sum::<usize>(), 71);
    }
    proptest::proptest! {
        /// A search with the index finds the same fields as one without.
        #[test]
        fn many_fields_are_found_as_few_are(names in proptest::collection::vec("[aAbB\\x00]{0,4}", 1..120)) {
            let mut h = Headers::default();
            let mut model: Vec<&[u8]> = Vec::new();
            for name in names.iter().map(String::as_bytes) {
                let before = model.iter().position(|found| same(found, trim(name)));
                proptest::prop_assert_eq!(h.find(trim(name)).filter(|_| !h.is_empty()), before);
                line(&mut h, &[name, b":x"].concat());
                h.finish(1024);
                if h.list.len() > model.len() {
                    model.push(trim(name));
                }
            }
            proptest::prop_assert_eq!(h.index.is_some(), h.list.len() >= header_index::FROM);
            let firsts: Vec<_> = h.names().map(<[u8]>::to_vec).collect();
            for (n, name) in firsts.iter().enumerate() {
                let mut one = Vec::new();
                proptest::prop_assert!(h.one(n, &mut one) && one.starts_with(name));
            }
            proptest::prop_assert!(!h.one(firsts.len(), &mut Vec::new()));
        }
    }
}
