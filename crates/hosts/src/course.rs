//! The sender's packets in order, and for each, whether a sensor can know that it reached the host.

use crate::conversation::{Opt, Segment, flag};
use crate::packet;

/// The version for content that is shifted.
const MOVED: u8 = u8::MAX;

/// A segment of the sender. Places are those of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Where its data begins, and one past its last byte.
    pub data: (i64, i64),
    /// Version of its content.
    pub version: u8,
    /// Whether data before it is missing, if only segments count that surely arrived.
    pub early: bool,
    /// Whether it was early when it was sent, or the host had not acknowledged everything sent before. Unlike `early`,
    /// this stays.
    pub waited: bool,
    /// Whether a host may discard it: because of its acknowledgment (or none), its timestamp, or an unreadable option,
    /// because it is in fragments, or because it is data with a SYN.
    pub doubtful: bool,
    /// Whether it, or a fragment of it, passed the engine and did not arrive.
    pub lost: bool,
    /// Whether it was sent in fragments.
    pub fragments: bool,
    /// Whether it reaches beyond the host's offered windows.
    pub beyond: bool,
    /// Whether its acknowledgment is older than the host's next byte.
    pub old_ack: bool,
    /// Whether its timestamp is older than one that was sent before.
    pub old_time: bool,
    /// The byte that its urgent pointer points at.
    pub urgent: Option<i64>,
    /// Whether data before it was missing when it was sent. Unlike `early`, this stays.
    pub fin_early: bool,
    /// TCP flags.
    pub flags: u8,
    /// Whether all of it was sent before, and may be acknowledged.
    pub again: bool,
    /// Whether the host discards it because it is no SYN and the host had not answered yet.
    pub premature: bool,
    /// Whether its checksum is wrong.
    pub broken: bool,
}

impl Sent {
    /// Whether a host surely accepts it if it has memory.
    const fn is_sure(&self) -> bool {
        !(self.lost || self.broken || self.doubtful || self.premature || self.beyond)
    }

    /// Whether it has data at a place.
    pub const fn covers(&self, place: i64) -> bool {
        self.data.0 <= place && place < self.data.1
    }
}

/// The packets sent so far.
#[derive(Debug, Clone, Default)]
pub struct Course {
    /// The segments, oldest first.
    pub sent: Vec<Sent>,
    /// Ranges with two versions of which a host may have either, since data before them was missing or discarded when
    /// they arrived.
    pub contested: Vec<(i64, i64)>,
    /// One past the furthest byte that the host has offered to take.
    edge: Option<i64>,
    /// The highest acknowledgment of the host.
    acked: i64,
    /// Whether its latest acknowledgment is below everything that surely arrived: it had no memory for some.
    short: bool,
    /// The latest timestamp.
    time: Option<i64>,
}

impl Course {
    /// Records that the host acknowledged up to `place` and offered `window` bytes.
    pub fn offered(&mut self, place: i64, window: i64) {
        self.acked = self.acked.max(place);
        self.short = place < self.next();
        self.edge = Some(self.edge.map_or(place + window, |e| e.max(place + window)));
    }

    /// The first missing byte, if only segments count that surely arrived.
    fn next(&self) -> i64 {
        let mut next = self.acked;
        let sure = || self.sent.iter().filter(|o| !o.early && o.is_sure());
        while let Some(end) = sure().filter(|o| o.data.0 <= next && o.data.1 > next).map(|o| o.data.1).max() {
            next = end;
        }
        next
    }

    /// Records a segment that is sent.
    pub fn note(&mut self, s: &Segment) {
        let start = s.at + i64::from(s.has(flag::SYN));
        // A wrong data offset turns header bytes into data or data into header bytes, and shifts the rest.
        let left = s.offset.map_or(0, |words| packet::header_len(s) as i64 - i64::from(words) * 4);
        let end = (start + i64::from(s.len) + left).max(start);
        let version = if left == 0 { s.version } else { MOVED };
        let time = s.options.iter().rev().find_map(|o| if let Opt::Time(n, _) = o { Some(*n) } else { None });
        let lost = s.lost || s.pieces.iter().any(|p| p.lost);
        let next = self.next();
        let early = start > next;
        let old_time = time.zip(self.time).is_some_and(|(now, before)| now < before);
        let unreadable = s.options.iter().any(|o| matches!(o, Opt::Raw(_))) || s.offset.is_some();
        let fragments = !s.pieces.is_empty();
        let beyond = self.edge.is_some_and(|edge| end > edge);
        let premature = self.edge.is_none() && !s.has(flag::SYN);
        let opens = s.has(flag::SYN) && s.len > 0;
        let doubtful = opens || s.ack != 0 || !s.has(flag::ACK) || old_time || unreadable || fragments;
        let urgent = s.has(flag::URG).then(|| s.at + i64::from(s.urgent.saturating_sub(1)));
        let new = Sent {
            data: (start, end),
            version,
            early,
            waited: early || self.short,
            doubtful,
            lost,
            fragments,
            beyond,
            old_ack: s.ack < 0,
            old_time,
            urgent,
            fin_early: start > next,
            flags: s.flags,
            again: end <= next && (s.len > 0 || end < next),
            premature,
            broken: s.broken,
        };
        self.time = self.time.max(time);
        if end > start {
            let overlaps = |o: &&Sent| o.data.0 < end && start < o.data.1 && o.data.1 > next && o.version != version;
            for o in self.sent.iter().filter(overlaps).filter(|o| early || o.early) {
                self.contested.push((o.data.0.max(start), o.data.1.min(end)));
            }
            // The host may have had no room for such a segment, and has not acknowledged it.
            let waited = |o: &&Sent| o.waited && o.data.0 < end && start < o.data.1 && o.version != version;
            let noted = |o: &&Sent| (early || o.early) && o.data.1 > next;
            for o in self.sent.iter().filter(waited).filter(|o| o.data.1 > self.acked && !noted(o)) {
                self.contested.push((o.data.0.max(start).max(self.acked), o.data.1.min(end)));
            }
        }
        // Early segments that continue the stream now are no longer early.
        let mut next = if early || !new.is_sure() { next } else { next.max(end) };
        self.sent.push(new);
        for _ in 0..self.sent.len() {
            let waits = |o: &&mut Sent| o.early && o.is_sure() && o.data.0 <= next && o.data.1 > next;
            let Some(o) = self.sent.iter_mut().find(waits) else { break };
            (o.early, next) = (false, o.data.1);
        }
    }

    /// Whether two segments that a host may both discard disagree at a place.
    pub fn doubtful_at(&self, place: i64) -> bool {
        let mut versions = self.sent.iter().filter(|s| s.covers(place) && s.doubtful && !s.lost).map(|s| s.version);
        versions.next().is_some_and(|first| versions.any(|v| v != first))
    }

    /// Whether one of these segments has data at a place.
    pub fn any_at(&self, place: i64, which: impl Fn(&Sent) -> bool) -> bool {
        self.sent.iter().any(|s| s.covers(place) && which(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(at: i64, len: u16, version: u8) -> Segment {
        Segment { at, len, version, ..Segment::default() }
    }

    fn course(all: &[Segment]) -> Course {
        let mut c = Course::default();
        c.offered(0, 1000);
        all.iter().for_each(|s| c.note(s));
        c
    }

    #[test]
    fn what_a_host_may_have_either_way() {
        // In order, then a second version.
        assert_eq!(course(&[segment(0, 10, 0), segment(5, 10, 1)]).contested, []);
        // Early, then a second version.
        assert_eq!(course(&[segment(5, 10, 0), segment(0, 10, 1)]).contested, [(5, 10)]);
        // After a segment that a host discards, or that did not arrive.
        let at_start = Segment { ack: 1, ..segment(0, 2, 0) };
        let discarded = || Segment { flags: 0, ..segment(5, 2, 0) };
        let lost = Segment { lost: true, ..segment(0, 2, 0) };
        for first in [at_start, lost] {
            assert_eq!(course(&[first, segment(2, 1, 1), segment(0, 4, 0)]).contested, [(2, 3)]);
        }
        // It was early, and is in order when it is sent again; the host has acknowledged it, or has not.
        let mut c = course(&[segment(5, 5, 0), segment(0, 5, 0)]);
        c.offered(10, 1000);
        c.note(&segment(5, 5, 1));
        assert_eq!(c.contested, []);
        assert_eq!(course(&[segment(5, 5, 0), segment(0, 5, 0), segment(5, 5, 1)]).contested, [(5, 10)]);
        // The host does not acknowledge everything that was sent: it may have discarded the rest as well.
        let mut c = course(&[segment(0, 5, 0), segment(5, 5, 0)]);
        c.offered(5, 1000);
        c.note(&segment(10, 5, 0));
        c.note(&segment(8, 4, 1));
        assert_eq!(c.contested, [(10, 12)]);
        // A segment with a wrong checksum fills no hole.
        let broken = Segment { broken: true, ..segment(0, 5, 0) };
        assert!(course(&[broken, segment(5, 5, 0)]).sent[1].fin_early);
        // Packets from before the connection.
        let mut c = Course::default();
        c.note(&segment(0, 5, 0));
        assert_eq!(c.next(), 0);
        // A doubtful segment does not put the segments after it in order.
        let mut c = course(&[segment(0, 5, 0), discarded(), segment(7, 2, 0)]);
        assert_eq!(c.next(), 5);
        c.note(&segment(5, 2, 0));
        assert_eq!(c.next(), 9);
        // A sure segment in order decides, which the engine must know. Between two doubtful ones nothing does.
        let mut c = course(&[segment(0, 5, 0), discarded(), segment(5, 2, 1)]);
        assert_eq!((c.contested.len(), c.doubtful_at(5)), (0, false));
        c.note(&Segment { ack: -1, ..segment(5, 1, 2) });
        assert_eq!((c.doubtful_at(5), c.doubtful_at(6)), (true, false));
    }

    #[test]
    fn what_is_odd_of_a_segment() {
        let time = |n| Segment { options: vec![Opt::Time(n, None)], ..segment(0, 1, 0) };
        let c = course(&[time(5), time(4), time(5)]);
        assert_eq!(c.sent.iter().map(|s| s.old_time).collect::<Vec<_>>(), [false, true, false]);
        let c = course(&[segment(990, 10, 0), segment(990, 11, 0)]);
        assert_eq!(c.sent.iter().map(|s| s.beyond).collect::<Vec<_>>(), [false, true]);
        let urgent = |urgent| Segment { flags: flag::ACK | flag::URG, urgent, ..segment(7, 1, 0) };
        let c = course(&[urgent(0), urgent(1), urgent(3)]);
        assert_eq!(c.sent.iter().map(|s| s.urgent).collect::<Vec<_>>(), [Some(7), Some(7), Some(9)]);
        assert!(c.any_at(7, |s| s.urgent == Some(9)) && !c.any_at(8, |_| true));
    }
}
