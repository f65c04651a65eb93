//! A session description (RFC 8866): lines of a letter and a value, first for the session and then for each medium.

use std::ops::Range;

use margay_json::Json;

/// The limit of lines; further ones are ignored.
const LINES_MAX: usize = 1024;

/// The type of a line; its value may occur several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Origin,
    SessionName,
    SessionInfo,
    Uri,
    Email,
    Phone,
    Connection,
    Bandwidth,
    Time,
    Repeat,
    Zone,
    Key,
    Attribute,
    Media,
    MediaInfo,
    MediaConnection,
    MediaBandwidth,
    MediaKey,
    MediaAttribute,
}

const FIELDS: usize = Field::MediaAttribute as usize + 1;

/// A description.
#[derive(Debug)]
pub(super) struct Sdp {
    bytes: Box<[u8]>,
    /// By [`Field`]: the index of the line's medium (for `r=`, of its time), and its value.
    values: [Vec<(u32, Range<u32>)>; FIELDS],
}

impl Sdp {
    /// Reads a description. `None` if it does not begin with version, origin and name.
    pub(super) fn read(data: &[u8]) -> Option<Box<Sdp>> {
        let mut sdp = Box::new(Sdp { bytes: data.into(), values: [const { Vec::new() }; FIELDS] });
        let mut at = 0;
        for (n, raw) in data.split_inclusive(|b| *b == b'\n').enumerate().take(LINES_MAX) {
            let line = raw.strip_suffix(b"\n").unwrap_or(raw);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let from = at;
            at += raw.len();
            let &[letter, b'=', ref value @ ..] = line else { continue };
            if (n == 0) != (letter == b'v') {
                return None;
            }
            let media = sdp.values[Field::Media as usize].len();
            let Some(field) = Self::field_of(letter, media > 0) else { continue };
            let owner = if field == Field::Repeat {
                sdp.values[Field::Time as usize].len().saturating_sub(1)
            } else {
                media.saturating_sub(1)
            };
            let start = (from + 2) as u32;
            sdp.values[field as usize].push((owner as u32, start..start + value.len() as u32));
        }
        let has = |f: Field| !sdp.values[f as usize].is_empty();
        (has(Field::Origin) && has(Field::SessionName)).then_some(sdp)
    }

    const fn field_of(letter: u8, media: bool) -> Option<Field> {
        Some(match (letter, media) {
            (b'm', _) => Field::Media,
            (b'i', true) => Field::MediaInfo,
            (b'c', true) => Field::MediaConnection,
            (b'b', true) => Field::MediaBandwidth,
            (b'k', true) => Field::MediaKey,
            (b'a', true) => Field::MediaAttribute,
            (b'o', false) => Field::Origin,
            (b's', false) => Field::SessionName,
            (b'i', false) => Field::SessionInfo,
            (b'u', false) => Field::Uri,
            (b'e', false) => Field::Email,
            (b'p', false) => Field::Phone,
            (b'c', false) => Field::Connection,
            (b'b', false) => Field::Bandwidth,
            (b't', false) => Field::Time,
            (b'r', false) => Field::Repeat,
            (b'z', false) => Field::Zone,
            (b'k', false) => Field::Key,
            (b'a', false) => Field::Attribute,
            _ => return None,
        })
    }

    fn text(&self, span: &Range<u32>) -> &[u8] {
        self.bytes.get(span.start as usize..span.end as usize).unwrap_or(&[])
    }

    /// Value number `index` of a field.
    pub(super) fn field(&self, field: Field, index: usize) -> Option<&[u8]> {
        self.values[field as usize].get(index).map(|v| self.text(&v.1))
    }

    /// Heap memory in bytes, with the size of the value itself.
    pub(super) fn held(&self) -> u64 {
        let values: usize = self.values.iter().map(|v| v.capacity() * size_of::<(u32, Range<u32>)>()).sum();
        (size_of::<Sdp>() + self.bytes.len() + values) as u64
    }

    /// The values of a field that belong to an owner, in order.
    fn owned(&self, field: Field, owner: u32) -> impl Iterator<Item = &[u8]> {
        let all = &self.values[field as usize];
        let from = all.partition_point(|v| v.0 < owner);
        all.get(from..).unwrap_or(&[]).iter().take_while(move |v| v.0 == owner).map(|v| self.text(&v.1))
    }

    fn single(&self, json: &mut Json, key: &'static str, field: Field, owner: u32) {
        if let Some(value) = self.owned(field, owner).next() {
            json.bytes(key, value);
        }
    }

    fn list(&self, json: &mut Json, key: &'static str, field: Field, owner: u32) {
        let mut values = self.owned(field, owner).peekable();
        if values.peek().is_some() {
            json.array(key);
            values.for_each(|v| json.item_bytes(v));
            json.end_array();
        }
    }

    /// Appends the member `sdp`.
    pub(super) fn log(&self, json: &mut Json) {
        json.object("sdp");
        for (key, field) in [
            ("origin", Field::Origin),
            ("session_name", Field::SessionName),
            ("session_info", Field::SessionInfo),
            ("uri", Field::Uri),
            ("email", Field::Email),
            ("phone_number", Field::Phone),
            ("connection_data", Field::Connection),
        ] {
            self.single(json, key, field, 0);
        }
        self.list(json, "bandwidths", Field::Bandwidth, 0);
        let times = &self.values[Field::Time as usize];
        if !times.is_empty() {
            json.array("time_descriptions");
            for (i, (_, time)) in times.iter().enumerate() {
                json.item_object();
                json.bytes("time", self.text(time));
                self.single(json, "repeat_time", Field::Repeat, i as u32);
                json.end_object();
            }
            json.end_array();
        }
        self.single(json, "timezone", Field::Zone, 0);
        self.single(json, "encryption_key", Field::Key, 0);
        self.list(json, "attributes", Field::Attribute, 0);
        let media = &self.values[Field::Media as usize];
        if !media.is_empty() {
            json.array("media_descriptions");
            for (i, (_, medium)) in media.iter().enumerate() {
                let i = i as u32;
                json.item_object();
                json.bytes("media", self.text(medium));
                self.single(json, "media_info", Field::MediaInfo, i);
                self.list(json, "bandwidths", Field::MediaBandwidth, i);
                self.single(json, "connection_data", Field::MediaConnection, i);
                self.single(json, "encryption_key", Field::MediaKey, i);
                self.list(json, "attributes", Field::MediaAttribute, i);
                json.end_object();
            }
            json.end_array();
        }
        json.end_object();
    }
}
