//! Frames: stretches of a stream that a parser marks as one thing of a protocol (a request, a PDU, a header).
//!
//! A protocol names its types in [`crate::Protocol::frames`], and its parser says where one begins ([`FrameMarks::begin`])
//! and ends ([`FrameMarks::end`]); the bytes stay in the stream. Nothing is marked where nobody asked for frames.

use margay_flow::Direction;

/// Most frames of one direction that wait to be seen to; what comes on top is not marked, and counted.
pub const FRAMES_MAX: usize = 64;
/// Type of the frame that is the whole stream.
pub const STREAM: u8 = u8::MAX;

/// Bytes that must have come of a frame that is not at its end, for rules to look at it again; and those before what is new
/// that they look at with it.
pub const CHUNK: u64 = 2560;
/// Most bytes of a frame that rules look at from its beginning.
pub const WHOLE_MAX: u64 = 32 << 10;

/// A stretch of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its number in its direction, from 1.
    pub id: u64,
    /// Place of its type in [`crate::Protocol::frames`], or [`STREAM`].
    pub kind: u8,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Stream offset behind its last byte; `None` while that is not known.
    pub end: Option<u64>,
    /// Its transaction.
    pub tx: Option<u64>,
    /// Whether it was logged.
    pub logged: bool,
    /// Offset up to which rules looked at it.
    pub seen: u64,
    /// Whether rules are done with it.
    pub inspected: bool,
    /// Rules that matched it, by their numbers.
    pub matched: Vec<u32>,
}

impl Frame {
    /// Offset of the first byte that rules look at the next time.
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
    /// Those of a direction that are still of use, oldest first.
    pub fn of(&self, dir: Direction) -> &[Frame] {
        &self.lists[dir.index()]
    }

    /// The same, to write to.
    pub fn of_mut(&mut self, dir: Direction) -> &mut [Frame] {
        &mut self.lists[dir.index()]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(Vec::is_empty)
    }

    /// Stream offset of the first byte of a direction that rules have still to look at.
    pub fn needed(&self, dir: Direction) -> Option<u64> {
        self.of(dir).iter().filter(|f| !f.inspected).map(Frame::needed).min()
    }

    /// Says that rules will look at none of them any more.
    pub fn set_inspected(&mut self) {
        self.lists.iter_mut().flatten().for_each(|f| f.inspected = true);
    }

    /// Frees those that ended, were logged and are not needed for rules.
    pub fn tidy(&mut self) {
        for list in &mut self.lists {
            list.retain(|f| !(f.logged && f.inspected && f.end.is_some()));
        }
    }
}

/// Where a worker's parsers mark frames: of the flow at hand.
#[derive(Debug, Clone, Default)]
pub struct FrameMarks {
    /// Whether anybody wants frames.
    pub wanted: bool,
    /// Whether rules look at them.
    pub watched: bool,
    /// Stream offset of the first byte that the parser is given.
    pub at: u64,
    /// The flow's frames.
    pub flow: FlowFrames,
    /// Frames that were not marked because there were too many.
    pub refused: u64,
}

impl FrameMarks {
    /// A frame of type `kind` begins `from` bytes into what the parser was given. One that is open for the same
    /// transaction goes on.
    pub fn begin(&mut self, dir: Direction, kind: u8, from: usize, tx: Option<u64>) {
        if !self.wanted {
            return;
        }
        let i = dir.index();
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
            inspected: !self.watched,
            matched: Vec::new(),
        });
    }

    /// The whole stream is a frame as soon as there is data.
    pub fn begin_stream(&mut self, dir: Direction) {
        if self.wanted && self.flow.made[dir.index()] == 0 {
            self.begin(dir, STREAM, 0, None);
        }
    }

    /// The open frame of a direction that is of a type of the protocol ends `to` bytes into what the parser was given.
    pub fn end(&mut self, dir: Direction, to: u64) {
        let end = self.at.saturating_add(to);
        let list = &mut self.flow.lists[dir.index()];
        if let Some(f) = list.iter_mut().rev().find(|f| f.end.is_none() && f.kind != STREAM) {
            f.end = Some(end.max(f.offset));
        }
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
        m.begin(d, 0, 7, Some(1));
        let seen: Vec<_> = m.flow.of(d).iter().map(|f| (f.id, f.kind, f.offset, f.end, f.tx)).collect();
        assert_eq!(seen, [(1, STREAM, 0, None, None), (2, 0, 2, Some(105), Some(0)), (3, 0, 107, None, Some(1))]);
        m.flow.of_mut(d).iter_mut().for_each(|f| f.logged = true);
        m.flow.tidy();
        assert_eq!(m.flow.of(d).len(), 2);
        for n in 2..1000 {
            m.begin(d, 0, 0, Some(n));
        }
        assert_eq!((m.flow.of(d).len(), m.refused > 900), (FRAMES_MAX, true));
    }
}
