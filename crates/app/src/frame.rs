//! Frames: ranges of a stream that a parser marks as a unit of the protocol (a request, a PDU, a header).
//!
//! A protocol names its frame types in [`crate::Protocol::frames`]. Its parser marks where a frame begins
//! ([`FrameMarks::begin`]) and ends ([`FrameMarks::end`]); the bytes stay in the stream. Without frame rules or frame logging,
//! parsers mark nothing.

use margay_flow::Direction;

use crate::AppProto;

/// The limit of pending frames in a direction. Frames beyond it are counted, not marked.
pub const FRAMES_MAX: usize = 64;
/// The frame type of the whole stream.
pub const STREAM: u8 = u8::MAX;

/// New data that an open frame needs before rules inspect it again. It is also the amount of earlier data that the next
/// inspection repeats.
pub const CHUNK: u64 = 2560;
/// Limit of the bytes at the front of a frame that rules inspect.
pub const WHOLE_MAX: u64 = 32 << 10;

/// A range of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its number in its direction, from 1.
    pub id: u64,
    /// Index of its type in [`crate::Protocol::frames`], or [`STREAM`].
    pub kind: u8,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Stream offset after its last byte; `None` while unknown.
    pub end: Option<u64>,
    /// Its transaction.
    pub tx: Option<u64>,
    /// Whether it was logged.
    pub logged: bool,
    /// Stream offset up to which rules inspected it.
    pub seen: u64,
    /// Whether rules have finished with it.
    pub inspected: bool,
    /// Numbers of the rules that matched it.
    pub matched: Vec<u32>,
}

impl Frame {
    /// Offset of the first byte of the next inspection.
    pub const fn needed(&self) -> u64 {
        match self.seen.saturating_sub(self.offset) {
            0..=WHOLE_MAX => self.offset,
            _ => self.seen.saturating_sub(CHUNK),
        }
    }
}

/// A flow's frames.
#[derive(Debug, Clone, Default)]
pub struct FlowFrames {
    lists: [Vec<Frame>; 2],
    made: [u64; 2],
}

impl FlowFrames {
    /// The pending frames of a direction, oldest first.
    pub fn of(&self, dir: Direction) -> &[Frame] {
        &self.lists[dir.index()]
    }

    /// As [`FlowFrames::of`], mutable.
    pub fn of_mut(&mut self, dir: Direction) -> &mut [Frame] {
        &mut self.lists[dir.index()]
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Stream offset of the first byte of a direction that rules still have to inspect.
    pub fn needed(&self, dir: Direction) -> Option<u64> {
        self.of(dir).iter().filter(|f| !f.inspected).map(Frame::needed).min()
    }

    /// Ends inspection of all frames.
    pub fn set_inspected(&mut self) {
        self.lists.iter_mut().flatten().for_each(|f| f.inspected = true);
    }

    /// Frees frames that have ended, are logged, and are not needed by rules.
    pub fn tidy(&mut self) {
        for list in &mut self.lists {
            list.retain(|f| !(f.logged && f.inspected && f.end.is_some()));
        }
    }
}

/// The frame types that rules inspect, by protocol. A type is a bit; a protocol has at most 63, and [`STREAM`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameKinds(Vec<(AppProto, u64)>);

const fn bit(kind: u8) -> u64 {
    1 << if kind < 63 { kind } else { 63 }
}

impl FrameKinds {
    /// Adds a frame type of a protocol.
    pub fn add(&mut self, proto: AppProto, kind: u8) {
        self.add_bits(proto, bit(kind));
    }

    /// Adds the types of `other`.
    pub fn add_all(&mut self, other: &FrameKinds) {
        other.0.iter().for_each(|&(proto, kinds)| self.add_bits(proto, kinds));
    }

    fn add_bits(&mut self, proto: AppProto, kinds: u64) {
        match self.0.iter_mut().find(|(p, _)| *p == proto) {
            Some((_, known)) => *known |= kinds,
            None => self.0.push((proto, kinds)),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, proto: AppProto) -> u64 {
        self.0.iter().find(|(p, _)| *p == proto).map_or(0, |(_, kinds)| *kinds)
    }
}

/// The frames of the current flow, as the worker's parsers mark them.
#[derive(Debug, Clone, Default)]
pub struct FrameMarks {
    /// Whether an output logs frames.
    pub logged: bool,
    /// The frames that rules inspect.
    pub inspected: FrameKinds,
    /// Whether a rule or an output uses frames of the current protocol.
    pub wanted: bool,
    /// The types that rules inspect, of the current protocol.
    kinds: u64,
    /// Stream offset of the first byte of the parser's input.
    pub at: u64,
    /// The flow's frames.
    pub flow: FlowFrames,
    /// Frames that exceeded [`FRAMES_MAX`].
    pub refused: u64,
}

impl FrameMarks {
    /// The parser of `proto` marks frames next.
    pub fn enter(&mut self, proto: AppProto) {
        self.kinds = self.inspected.of(proto);
        self.wanted = self.logged || self.kinds != 0;
    }

    /// Whether a rule or an output uses frames of this protocol.
    pub fn wants(&self, proto: AppProto) -> bool {
        self.logged || self.inspected.of(proto) != 0
    }

    /// Whether rules inspect this type of the current protocol.
    pub const fn inspects(&self, kind: u8) -> bool {
        self.kinds & bit(kind) != 0
    }

    /// Begins a frame of type `kind` at offset `from` of the parser's input. An open frame of the same transaction continues
    /// instead.
    pub fn begin(&mut self, dir: Direction, kind: u8, from: usize, tx: Option<u64>) {
        if !self.wanted {
            return;
        }
        let (i, inspected) = (dir.index(), !self.inspects(kind));
        let list = &mut self.flow.lists[i];
        if list.iter().any(|f| f.kind == kind && f.end.is_none() && f.tx == tx) {
            return;
        }
        if list.len() >= FRAMES_MAX {
            self.refused += 1;
            return;
        }
        self.flow.made[i] += 1;
        let offset = self.at.saturating_add(from as u64);
        list.push(Frame {
            id: self.flow.made[i],
            kind,
            offset,
            end: None,
            tx,
            logged: false,
            seen: offset,
            inspected,
            matched: Vec::new(),
        });
    }

    /// Begins the frame of the whole stream, at its first data.
    pub fn begin_stream(&mut self, dir: Direction) {
        if self.wanted && self.flow.made[dir.index()] == 0 {
            self.begin(dir, STREAM, 0, None);
        }
    }

    /// Ends the open protocol frame of a direction at offset `to` of the parser's input.
    pub fn end(&mut self, dir: Direction, to: u64) {
        let end = self.at.saturating_add(to);
        if let Some(f) = self.open(dir) {
            f.end = Some(end.max(f.offset));
        }
    }

    /// Ends the open protocol frame of a direction where it begins: its bytes turned out to be something else.
    pub fn void(&mut self, dir: Direction) {
        if let Some(f) = self.open(dir) {
            f.end = Some(f.offset);
        }
    }

    fn open(&mut self, dir: Direction) -> Option<&mut Frame> {
        let list = &mut self.flow.lists[dir.index()];
        list.iter_mut().rev().find(|f| f.end.is_none() && f.kind != STREAM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        let d = Direction::ToServer;
        let mut m = FrameMarks::default();
        m.begin(d, 0, 0, Some(0));
        assert!(m.flow.is_empty());
        m.wanted = true;
        m.begin_stream(d);
        m.begin_stream(d);
        m.begin(d, 0, 2, Some(0));
        m.begin(d, 0, 9, Some(0));
        m.at = 100;
        m.end(d, 5);
        m.begin(d, 0, 6, Some(1));
        m.void(d);
        m.begin(d, 0, 7, Some(1));
        let seen: Vec<_> = m.flow.of(d).iter().map(|f| (f.id, f.kind, f.offset, f.end, f.tx)).collect();
        assert_eq!(
            seen,
            [
                (1, STREAM, 0, None, None),
                (2, 0, 2, Some(105), Some(0)),
                (3, 0, 106, Some(106), Some(1)),
                (4, 0, 107, None, Some(1))
            ]
        );
        m.flow.of_mut(d).iter_mut().for_each(|f| f.logged = true);
        m.flow.tidy();
        assert_eq!(m.flow.of(d).len(), 2);
        for n in 2..1000 {
            m.begin(d, 0, 0, Some(n));
        }
        assert_eq!((m.flow.of(d).len(), m.refused > 900), (FRAMES_MAX, true));
    }

    /// Frames of a protocol without frame rules are not marked, and bytes of types without rules are not kept.
    #[test]
    fn only_inspected_types_are_kept() {
        let d = Direction::ToServer;
        let mut m = FrameMarks::default();
        m.inspected.add(AppProto::Http2, 1);
        m.inspected.add_all(&m.inspected.clone());
        m.enter(AppProto::Tls);
        m.begin_stream(d);
        assert!(!m.wanted && m.flow.is_empty());
        m.enter(AppProto::Http2);
        m.begin_stream(d);
        m.begin(d, 0, 0, None);
        assert_eq!((m.flow.of(d).len(), m.flow.needed(d)), (2, None));
        m.begin(d, 1, 9, None);
        assert_eq!(m.flow.needed(d), Some(9));
        m.logged = true;
        m.enter(AppProto::Tls);
        assert!(m.wanted);
        assert!(crate::PROTOCOLS.iter().all(|p| p.frames.len() <= 63));
    }
}
