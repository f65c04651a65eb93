//! The header fields of one message: the raw bytes, and the parsed names and values.
//!
//! A field is parsed once the next line shows that it is not continued (RFC 9112, section 5.2). Values of a repeated field stay
//! separate, linked from the first one, and are joined on demand: joining them on arrival would take quadratic time.

use super::header_index::{self, Index, NameHash};
use super::line::Ending;

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
    /// Names and values.
    text: Vec<u8>,
    list: Vec<Field>,
    /// The index of names, if there are many fields.
    index: Option<Box<Index>>,
    /// The field that may be continued, without line ends.
    pending: Vec<u8>,
    has_pending: bool,
    pending_colon: bool,
    /// Some names have null bytes, so tags are not reliable for them.
    nulls: bool,
}

/// Initial capacities that suit most messages: raw bytes, names and values, one field, and the number of fields. They avoid
/// reallocation.
const RAW: usize = 512;
const LINE: usize = 128;
const FIELDS: usize = 16;

/// A value that equal names share, in any case, and few others do: most comparisons need nothing more. It is valid only for
/// names without null bytes.
fn tag(name: &[u8]) -> u32 {
    let at = |i: usize| u32::from(name.get(i).copied().unwrap_or(0) | 0x20);
    let len = name.len();
    (len as u32) << 24 ^ at(0) << 16 ^ at(len / 2) << 8 ^ at(len.wrapping_sub(1))
}

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

/// Whether a name is a token (RFC 9110, section 5.6.2) and not empty.
pub(super) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&b| TOKEN[usize::from(b)])
}

/// Whether two names are equal in any case, ignoring null bytes in `found`.
fn same(found: &[u8], wanted: &[u8]) -> bool {
    if found.len() == wanted.len() {
        return found.eq_ignore_ascii_case(wanted);
    }
    found.len() > wanted.len()
        && found
            .iter()
            .filter(|&&b| b != 0)
            .map(u8::to_ascii_lowercase)
            .eq(wanted.iter().filter(|&&b| b != 0).map(u8::to_ascii_lowercase))
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
    pub(super) fn memory(&self) -> usize {
        self.raw.capacity()
            + self.text.capacity()
            + self.pending.capacity()
            + self.list.capacity() * std::mem::size_of::<Field>()
            + self.index.as_ref().map_or(0, |i| size_of::<Index>() + i.memory())
    }

    /// Begins a field. The previous one must be finished.
    pub(super) fn begin(&mut self, line: &[u8]) {
        self.pending.clear();
        if self.pending.capacity() == 0 {
            self.pending.reserve_exact(LINE.max(line.len()));
        }
        self.pending.extend_from_slice(line);
        self.has_pending = true;
        self.pending_colon = memchr::memchr(b':', line).is_some();
    }

    /// Continues the current field, up to `limit` bytes. Returns false if there is none.
    pub(super) fn fold(&mut self, line: &[u8], limit: usize) -> bool {
        if !self.has_pending {
            return false;
        }
        let room = limit.saturating_sub(self.pending.len());
        self.pending.extend_from_slice(line.get(..room.min(line.len())).unwrap_or(line));
        self.pending_colon = self.pending_colon || line.contains(&b':');
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
            if total > limit || self.pending.len() + content.len() > limit || lenient && content.contains(&b':') {
                break;
            }
            self.pending.extend_from_slice(content);
            self.pending_colon = self.pending_colon || content.contains(&b':');
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
        self.has_pending && self.pending_colon
    }

    /// Length of the current field.
    pub(super) fn pending_len(&self) -> usize {
        if self.has_pending { self.pending.len() } else { 0 }
    }

    /// Finishes the current field.
    pub(super) fn finish(&mut self, limit: u32) -> FieldFlags {
        let mut flags = FieldFlags::default();
        if !std::mem::take(&mut self.has_pending) {
            return flags;
        }
        // As in Suricata, one more than the limit is kept.
        if self.list.len() > limit as usize {
            flags.too_many = true;
            return flags;
        }
        let pending = std::mem::take(&mut self.pending);
        let (before, value) = match memchr::memchr(b':', &pending) {
            Some(colon) => (pending.get(..colon).unwrap_or(&[]), trim(pending.get(colon + 1..).unwrap_or(&[]))),
            None => {
                flags.no_colon = true;
                (&[][..], trim(&pending))
            }
        };
        let name = trim(before);
        // White space before the colon is not allowed (RFC 9112, 5.1).
        flags.invalid = !flags.no_colon && (!is_token(name) || before.last().is_some_and(|&b| space(b)));
        self.nulls |= flags.invalid && name.contains(&0);
        self.push(name, value, &mut flags);
        self.pending = pending;
        flags
    }

    fn push(&mut self, name: &[u8], value: &[u8], flags: &mut FieldFlags) {
        let at = self.list.len() as u32;
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
        let tag = tag(name);
        if self.list.capacity() == 0 {
            self.list.reserve_exact(FIELDS);
            self.text.reserve_exact(RAW.max(name.len() + value.len()));
        }
        let name = self.put(name);
        let value = self.put(value);
        self.list.push(Field { tag, name, value, first: before.is_none(), next: NONE, tail: at, count: 1 });
        if self.list.len() == header_index::FROM && self.index.is_none() {
            let mut index = Box::<Index>::default();
            for (i, f) in self.list.iter().enumerate().filter(|(_, f)| f.first) {
                let name = self.bytes(f.name);
                index.add(name, index.hash(name), i as u32);
            }
            self.index = Some(index);
        }
    }

    fn put(&mut self, bytes: &[u8]) -> (u32, u32) {
        let at = self.text.len() as u32;
        self.text.extend_from_slice(bytes);
        (at, bytes.len() as u32)
    }

    fn bytes(&self, (at, len): (u32, u32)) -> &[u8] {
        self.text.get(at as usize..(at as usize).saturating_add(len as usize)).unwrap_or(&[])
    }

    /// The index of the first field with this name, in any case.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.list.is_empty() {
            return None;
        }
        if let Some(index) = &self.index {
            return self.find_in(index, name, index.hash(name));
        }
        if self.nulls {
            return self.list.iter().position(|f| f.first && same(self.bytes(f.name), name));
        }
        let tag = tag(name);
        self.list.iter().position(|f| f.tag == tag && f.first && same(self.bytes(f.name), name))
    }

    /// As `find`, for messages with many fields.
    fn find_in(&self, index: &Index, name: &[u8], hash: NameHash) -> Option<usize> {
        let found = [index.exact(hash), index.with_nulls(name, hash)].into_iter().flatten().min()? as usize;
        if self.list.get(found).is_some_and(|f| same(self.bytes(f.name), name)) {
            return Some(found);
        }
        // Another name has the same 64-bit hash, which a sender cannot provoke.
        self.list.iter().position(|f| f.first && same(self.bytes(f.name), name))
    }

    /// The value of the first field with this name.
    pub(super) fn first(&self, name: &[u8]) -> Option<&[u8]> {
        let f = self.list.get(self.find(name)?)?;
        Some(self.bytes(f.value))
    }

    /// Whether a field occurred more than once.
    pub(super) fn repeated(&self, name: &[u8]) -> bool {
        self.find(name).and_then(|i| self.list.get(i)).is_some_and(|f| f.count > 1)
    }

    /// All values of a name. `scratch` joins several values with `, `.
    pub(super) fn joined<'a>(&'a self, name: &[u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let i = self.find(name)?;
        let f = self.list.get(i)?;
        if f.next == NONE {
            return Some(self.bytes(f.value));
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
            out.extend_from_slice(self.bytes(f.value));
            at = f.next;
        }
    }

    /// All values of a name, separately.
    pub(super) fn values<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let mut at = self.find(name).map_or(NONE, |i| i as u32);
        std::iter::from_fn(move || {
            let f = self.list.get(at as usize)?;
            at = f.next;
            Some(self.bytes(f.value))
        })
    }

    /// The distinct names, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.list.iter().filter(|f| f.first).map(|f| self.bytes(f.name))
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
        out.extend_from_slice(self.bytes(f.name));
        out.extend_from_slice(b": ");
        self.join(i, out);
        true
    }

    /// Appends `Name: value` and a line end for each name except `without`.
    pub(super) fn all(&self, without: &[u8], out: &mut Vec<u8>) {
        for (i, f) in self.list.iter().enumerate().filter(|(_, f)| f.first) {
            let name = self.bytes(f.name);
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

    fn parsed(lines: &[&[u8]]) -> Headers {
        let mut h = Headers::default();
        for l in lines {
            if l.first().is_some_and(|b| *b == b' ') {
                h.fold(l, 1000);
                continue;
            }
            h.finish(1024);
            h.begin(l);
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
            h.begin(b"A: 1");
            let (used, ending) = h.fold_lines(data, 20, lenient);
            (used, ending, h.raw().len(), h.pending[4..].to_vec())
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
    fn equal_names_have_the_same_tag() {
        for (a, b) in [("Content-Type", "content-type"), ("X", "x"), ("", ""), ("a[b", "A[B"), ("Ab", "aB")] {
            assert_eq!(tag(a.as_bytes()), tag(b.as_bytes()), "{a}");
        }
        assert_ne!(tag(b"Accept-Encoding"), tag(b"Accept-Language"));
    }

    #[test]
    fn too_many_repetitions_are_dropped() {
        let mut h = Headers::default();
        let mut repeated = 0;
        for _ in 0..100 {
            h.begin(b"A: b");
            repeated += usize::from(h.finish(1024).repeated);
        }
        assert_eq!((repeated, h.values(b"a").count()), (99, 65));
        for _ in 0..100 {
            h.begin(b"B: b");
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
                h.begin(&[name, b":x"].concat());
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
