//! Hellos: reassembled CRYPTO streams, and the client hello of gQUIC.

/// The limit of a CRYPTO stream in bytes: hellos are shorter.
const STREAM_MAX: usize = 16 << 10;
/// The limit of ranges that wait for earlier data.
const STRETCHES_MAX: usize = 128;
/// The limit of tags in a gQUIC hello.
const TAGS_MAX: usize = 128;

/// A direction's CRYPTO stream, until its hello is complete.
#[derive(Debug, Default)]
pub(super) struct Crypto {
    bytes: Vec<u8>,
    /// Available ranges as (begin, end), sorted and disjoint.
    there: Vec<(usize, usize)>,
}

impl Crypto {
    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.there.capacity() * size_of::<(usize, usize)>()
    }

    /// Adds a range; `false` if it is too far, or too many wait.
    pub(super) fn add(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(begin) = usize::try_from(offset).ok().filter(|b| *b <= STREAM_MAX) else { return false };
        let end = begin + data.len();
        if end > STREAM_MAX {
            return false;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if let Some(place) = self.bytes.get_mut(begin..end) {
            place.copy_from_slice(data);
        }
        self.there.push((begin, end));
        self.there.sort_unstable();
        self.there.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        self.there.len() <= STRETCHES_MAX
    }

    /// The first message, once it is complete: type and content.
    pub(super) fn message(&self) -> Option<(u8, &[u8])> {
        let (0, end) = *self.there.first()? else { return None };
        let bytes = self.bytes.get(..end)?;
        let (&[kind, a, b, c], rest) = bytes.split_first_chunk::<4>()?;
        Some((kind, rest.get(..u32::from_be_bytes([0, a, b, c]) as usize)?))
    }
}

/// A CHLO message of gQUIC.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Chlo {
    /// Its tags joined by hyphens.
    pub(super) tags: Vec<u8>,
    /// The server's name.
    pub(super) sni: Option<Vec<u8>>,
    /// The client's software.
    pub(super) ua: Option<Vec<u8>>,
}

impl Chlo {
    /// Heap memory in bytes, without the size of the value itself.
    pub(super) fn held(&self) -> usize {
        let text = |t: &Option<Vec<u8>>| t.as_ref().map_or(0, Vec::capacity);
        self.tags.capacity() + text(&self.sni) + text(&self.ua)
    }

    /// Reads a CHLO; `None` if it is invalid or truncated.
    pub(super) fn read(data: &[u8]) -> Option<Chlo> {
        let rest = data.strip_prefix(b"CHLO")?;
        let (count, rest) = rest.split_first_chunk::<2>()?;
        let count = usize::from(u16::from_le_bytes(*count)).min(TAGS_MAX);
        let rest = rest.get(2..)?;
        let (table, values) = rest.split_at_checked(count * 8)?;
        let mut chlo = Chlo::default();
        let mut from = 0;
        for entry in table.chunks_exact(8) {
            let (tag, end) = entry.split_at(4);
            let end = end.first_chunk().map(|e| u32::from_le_bytes(*e) as usize)?;
            let value = values.get(from..end);
            from = end;
            let name = tag.trim_ascii_end();
            let name = name.strip_suffix(b"\0").unwrap_or(name);
            if !chlo.tags.is_empty() {
                chlo.tags.push(b'-');
            }
            chlo.tags.extend_from_slice(name);
            match name {
                b"SNI" => chlo.sni = value.map(<[u8]>::to_vec),
                b"UAID" => chlo.ua = value.map(<[u8]>::to_vec),
                _ => {}
            }
        }
        Some(chlo)
    }
}
