//! gzip (RFC 1952), zlib (RFC 1950) and raw deflate (RFC 1951), distinguished by their first bytes whatever the header says.

use std::fmt;

use flate2::{Crc, FlushDecompress};

use super::inflating::{self, Inflating};
use super::{Coding, Piece, SCRATCH, Status, Step};

/// The first bytes of a gzip member.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;

/// The position in a gzip header or trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waiting for the first two bytes.
    Sniff,
    /// gzip: the ten fixed bytes.
    Fixed,
    /// gzip: FEXTRA's length.
    ExtraLen,
    /// gzip: the content of FEXTRA.
    Extra,
    /// gzip: the file name, up to a zero.
    Name,
    /// gzip: a comment, up to a zero.
    Comment,
    /// gzip: the header's checksum.
    HeaderCrc,
    /// The deflated data.
    Body,
    /// gzip: checksum and length.
    Trailer,
    /// gzip: after a member, where another one may begin.
    Next,
    /// After the end.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapper {
    Gzip,
    Zlib,
    Bare,
}

/// A decoder for `gzip` and `deflate`.
pub(super) struct Flate {
    label: Coding,
    wrapper: Wrapper,
    stage: Stage,
    inflate: Inflating,
    /// The current field of the header or trailer.
    field: [u8; 10],
    /// Its length so far, or the rest of FEXTRA.
    count: usize,
    flags: u8,
    header_crc: Crc,
    crc: Crc,
    /// The checksum of the data is not computed, and counts as right.
    spared: bool,
    /// Output of a raw deflate stream declared as gzip: a guess that is held until it is certain, or [`SCRATCH`] is full.
    pending: Option<usize>,
}

impl fmt::Debug for Flate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flate").field("wrapper", &self.wrapper).field("stage", &self.stage).finish_non_exhaustive()
    }
}

impl Flate {
    pub(super) fn new(label: Coding) -> Flate {
        Flate {
            label,
            wrapper: Wrapper::Bare,
            stage: Stage::Sniff,
            inflate: Inflating::default(),
            field: [0; 10],
            count: 0,
            flags: 0,
            header_crc: Crc::new(),
            crc: Crc::new(),
            spared: false,
            pending: None,
        }
    }

    /// See [`super::Decoder::spare_checksums`].
    pub(super) const fn spare_checksums(&mut self) {
        self.spared = true;
    }

    /// Allocated memory in bytes.
    pub(super) const fn memory(&self) -> usize {
        inflating::MEMORY
    }

    /// Starts with another guess of the format; `false` if there is none left. The caller provides all data again.
    pub(super) fn retry(&mut self) -> bool {
        if self.wrapper == Wrapper::Bare {
            return false;
        }
        self.begin(Wrapper::Bare);
        true
    }

    /// Looks for another member (RFC 1952 section 2.2), which Go, Node.js and urllib3 read. Zero padding before it is skipped,
    /// as in Python's `gzip`. No client reads other data after a member.
    fn next_member(&mut self, input: &mut &[u8]) -> Step {
        if self.count == 0 {
            let zeros = input.iter().take_while(|&&b| b == 0).count();
            *input = input.get(zeros..).unwrap_or(&[]);
        }
        while self.count < MAGIC.len() {
            let Some((&byte, tail)) = input.split_first() else { return Step::NeedInput };
            if MAGIC.get(self.count) != Some(&byte) {
                self.stage = Stage::Done;
                return Step::End { lied: false };
            }
            (self.count, *input) = (self.count + 1, tail);
        }
        self.inflate.reset(false);
        self.crc.reset();
        self.header_crc.reset();
        self.header_crc.update(&MAGIC);
        if let Some(to) = self.field.get_mut(..MAGIC.len()) {
            to.copy_from_slice(&MAGIC);
        }
        self.stage = Stage::Fixed;
        Step::Again { lied: false }
    }

    fn begin(&mut self, wrapper: Wrapper) {
        self.wrapper = wrapper;
        self.inflate.reset(wrapper == Wrapper::Zlib);
        self.stage = if wrapper == Wrapper::Gzip { Stage::Fixed } else { Stage::Body };
        self.count = 0;
        self.pending = (wrapper == Wrapper::Bare && self.label == Coding::Gzip).then_some(0);
    }

    /// Whether a header in the data shows that it is compressed.
    pub(super) fn has_header(&self) -> bool {
        self.stage != Stage::Sniff && self.wrapper != Wrapper::Bare
    }

    /// Collects `n` bytes of a field. Returns `true` once they are complete.
    fn collect(&mut self, input: &mut &[u8], n: usize) -> bool {
        let take = n.saturating_sub(self.count).min(input.len());
        let (head, tail) = input.split_at(take);
        if let Some(to) = self.field.get_mut(self.count..self.count + take) {
            to.copy_from_slice(head);
        }
        if self.stage != Stage::HeaderCrc && self.stage != Stage::Trailer {
            self.header_crc.update(head);
        }
        self.count += take;
        *input = tail;
        self.count >= n
    }

    /// Skips past a zero. Returns `true` once it is found.
    fn skip_string(&mut self, input: &mut &[u8]) -> bool {
        let end = input.iter().position(|&b| b == 0);
        let (head, tail) = input.split_at(end.map_or(input.len(), |e| e + 1));
        self.header_crc.update(head);
        *input = tail;
        end.is_some()
    }

    /// Moves to the next part of a gzip header.
    fn next_stage(&mut self) {
        self.count = 0;
        for (flag, stage) in
            [(FEXTRA, Stage::ExtraLen), (FNAME, Stage::Name), (FCOMMENT, Stage::Comment), (FHCRC, Stage::HeaderCrc)]
        {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                self.stage = stage;
                return;
            }
        }
        self.stage = Stage::Body;
    }

    /// One step: consumes from `input`, and may return output in `scratch`.
    // It stays whole: a flat match over the decoder's states.
    pub(super) fn step(&mut self, input: &mut &[u8], scratch: &mut [u8; SCRATCH]) -> Step {
        match self.stage {
            Stage::Sniff => {
                // The bytes are examined, not consumed: the caller holds them.
                if !self.collect_sniff(input) {
                    return Step::NeedInput;
                }
                let [a, b, ..] = self.field;
                let zlib =
                    a & 0x0f == 8 && a >> 4 <= 7 && (u16::from(a) << 8 | u16::from(b)) % 31 == 0 && b & 0x20 == 0;
                let wrapper = match (a, b) {
                    _ if [a, b] == MAGIC => Wrapper::Gzip,
                    _ if zlib => Wrapper::Zlib,
                    _ => Wrapper::Bare,
                };
                self.begin(wrapper);
                // A zlib stream declared as gzip raises no event: other implementations accept it too.
                let lied =
                    matches!((self.label, wrapper), (Coding::Gzip, Wrapper::Bare) | (Coding::Deflate, Wrapper::Gzip));
                Step::Restart { lied }
            }
            Stage::Fixed => {
                if !self.collect(input, 10) {
                    return Step::NeedInput;
                }
                let [_, _, method, flags, ..] = self.field;
                if method != 8 {
                    return Step::Failed;
                }
                self.flags = flags;
                self.next_stage();
                // Reserved bits have no known meaning; the data is decoded nevertheless.
                Step::Again { lied: flags & 0xe0 != 0 }
            }
            Stage::ExtraLen => {
                if !self.collect(input, 2) {
                    return Step::NeedInput;
                }
                let [lo, hi, ..] = self.field;
                self.count = usize::from(u16::from_le_bytes([lo, hi]));
                self.stage = Stage::Extra;
                Step::Again { lied: false }
            }
            Stage::Extra => {
                let (head, tail) = input.split_at(self.count.min(input.len()));
                self.header_crc.update(head);
                self.count -= head.len();
                *input = tail;
                if self.count > 0 {
                    return Step::NeedInput;
                }
                self.next_stage();
                Step::Again { lied: false }
            }
            Stage::Name | Stage::Comment => {
                if !self.skip_string(input) {
                    return Step::NeedInput;
                }
                self.next_stage();
                Step::Again { lied: false }
            }
            Stage::HeaderCrc => {
                let sum = self.header_crc.sum() as u16;
                if !self.collect(input, 2) {
                    return Step::NeedInput;
                }
                let [lo, hi, ..] = self.field;
                self.next_stage();
                Step::Again { lied: u16::from_le_bytes([lo, hi]) != sum }
            }
            Stage::Body => self.body(input, scratch),
            Stage::Trailer => {
                if !self.collect(input, 8) {
                    return Step::NeedInput;
                }
                let [a, b, c, d, e, f, g, h, ..] = self.field;
                let right = self.spared
                    || u32::from_le_bytes([a, b, c, d]) == self.crc.sum()
                        && u32::from_le_bytes([e, f, g, h]) == self.crc.amount();
                (self.stage, self.count) = (Stage::Next, 0);
                Step::Sure { lied: !right }
            }
            Stage::Next => self.next_member(input),
            Stage::Done => Step::End { lied: false },
        }
    }

    fn collect_sniff(&mut self, input: &mut &[u8]) -> bool {
        let take = 2usize.saturating_sub(self.count).min(input.len());
        let (head, tail) = input.split_at(take);
        if let Some(to) = self.field.get_mut(self.count..self.count + take) {
            to.copy_from_slice(head);
        }
        self.count += take;
        *input = tail;
        self.count >= 2
    }

    fn body(&mut self, input: &mut &[u8], scratch: &mut [u8; SCRATCH]) -> Step {
        let inflate = self.inflate.stream();
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let from = self.pending.unwrap_or(0);
        let room = scratch.get_mut(from..).unwrap_or(&mut []);
        let result = inflate.decompress(input, room, FlushDecompress::None);
        let used = (inflate.total_in() - before_in) as usize;
        let made = (inflate.total_out() - before_out) as usize;
        *input = input.get(used..).unwrap_or(&[]);
        let end = from + made;
        if self.wrapper == Wrapper::Gzip && !self.spared {
            self.crc.update(scratch.get(from..end).unwrap_or(&[]));
        }
        match result {
            Err(_) if self.pending.is_some() => return Step::Failed,
            Err(_) if end == 0 => return Step::Failed,
            Err(_) => {
                self.stage = Stage::Done;
                return Step::Output(Piece { range: 0..end, cost: made, failed: Some(Status::Broken) });
            }
            Ok(flate2::Status::StreamEnd) => {
                self.stage = if self.wrapper == Wrapper::Gzip { Stage::Trailer } else { Stage::Done };
                (self.count, self.pending) = (0, None);
            }
            Ok(_) => {
                if used == 0 && made == 0 {
                    return if input.is_empty() { Step::NeedInput } else { Step::Failed };
                }
                if self.pending.is_some() {
                    if end < SCRATCH {
                        self.pending = Some(end);
                        return Step::Again { lied: false };
                    }
                    self.pending = None;
                }
            }
        }
        if end == 0 {
            return Step::Again { lied: false };
        }
        Step::Output(Piece { range: 0..end, cost: made, failed: None })
    }

    /// The held output of a guess at the end of the body.
    pub(super) fn rest(&mut self) -> usize {
        let n = self.pending.take().unwrap_or(0);
        self.stage = Stage::Done;
        n
    }
}
