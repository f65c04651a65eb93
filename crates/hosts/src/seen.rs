//! The bytes of one conversation, to the host, that the engine inspected.

use margay_engine::witness::{What, Witness};

use crate::packet::End;

/// Bytes of a stream that are recorded; conversations are shorter.
const MOST: usize = 256 << 10;
/// Places that are kept before the first byte of a stream that begins far away.
const BEFORE: i64 = 64 << 10;
/// Each byte must have been inspected in one chunk with this many bytes before it. No rule looks for anything longer.
pub const TOGETHER: usize = 256;

/// Bytes by their place in a stream.
#[derive(Debug, Default)]
struct Bytes {
    /// The place of the first byte of `bytes`: 0, unless the stream begins far from there.
    base: i64,
    bytes: Vec<u8>,
    /// For each byte: 0 if there is none, otherwise 1 + the start of the longest chunk that contained it.
    from: Vec<u32>,
}

impl Bytes {
    /// Records bytes at a place. Bytes before the stream's start are ignored.
    fn put(&mut self, place: i64, data: &[u8]) {
        if self.bytes.is_empty() && place > MOST as i64 / 2 {
            self.base = place - BEFORE;
        }
        let place = place - self.base;
        let cut = usize::try_from(-place).unwrap_or(0);
        let (start, data) = (usize::try_from(place).unwrap_or(0), data.get(cut..).unwrap_or(&[]));
        let end = start.saturating_add(data.len());
        if end > MOST {
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.from.resize(end, 0);
        }
        let mut changed = None;
        for (i, b) in data.iter().enumerate() {
            let at = start + i;
            let before = std::mem::replace(&mut self.bytes[at], *b);
            if self.from[at] == 0 || before != *b {
                changed = changed.or((self.from[at] != 0).then_some(()));
                self.from[at] = start as u32 + 1;
            } else {
                self.from[at] = self.from[at].min(start as u32 + 1);
            }
        }
        if changed.is_some() {
            // Later bytes were inspected together with other bytes than these.
            for from in self.from.iter_mut().skip(end).filter(|f| **f != 0) {
                *from = (*from).max(end as u32 + 1);
            }
        }
    }

    /// Discards all bytes from a place on.
    fn forget(&mut self, place: i64) {
        let from = usize::try_from(place - self.base).unwrap_or(0);
        self.from.iter_mut().skip(from).for_each(|f| *f = 0);
    }

    /// Whether these bytes can be recorded together with a byte at `place`.
    fn reaches(&self, place: i64) -> bool {
        self.bytes.is_empty() || place >= self.base && place - self.base <= MOST as i64 || self.base == 0 && place < 0
    }

    fn get(&self, at: i64) -> Option<(u8, i64)> {
        let at = usize::try_from(at - self.base).ok()?;
        let from = *self.from.get(at)?;
        (from != 0).then(|| (self.bytes[at], i64::from(from) - 1 + self.base))
    }
}

/// One of the engine's flows.
#[derive(Debug)]
struct Track {
    flow: u64,
    raw: Bytes,
    app: Bytes,
    app_off: bool,
    /// No parser received bytes before this place: parsing was off until a parser started there.
    not_parsed: i64,
    /// Where a parser replaced another one that had not failed.
    anew: Vec<i64>,
    gaps: Vec<(i64, i64)>,
}

/// A difference between the bytes that the host read and the inspected ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The place of the byte.
    pub at: usize,
    /// The kind of difference.
    pub how: How,
}

/// The kind of difference of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// It was not inspected.
    Unseen,
    /// Another byte was inspected in its place.
    Other,
    /// It was inspected, but not together with the bytes before it.
    Apart,
    /// No parser received it, though one parses the stream.
    UnseenByParser,
    /// A parser received another byte in its place.
    OtherByParser,
    /// A parser received it without the bytes before it.
    Anew,
}

impl How {
    /// The difference in words.
    pub const fn text(self) -> &'static str {
        match self {
            How::Unseen => "was not inspected",
            How::Other => "is another one than was inspected",
            How::Apart => "was inspected apart from what is before it",
            How::UnseenByParser => "was not given to the parser",
            How::OtherByParser => "is another one than the parser was given",
            How::Anew => "was given to a parser that knew nothing of what is before it",
        }
    }
}

/// The inspected bytes of one conversation.
#[derive(Debug, Default)]
pub struct Seen {
    tracks: Vec<Track>,
    datagrams: Vec<Vec<u8>>,
    /// The decoder's and stream engine's events.
    pub events: Vec<&'static str>,
    /// Whether the engine may have forgotten the flow and begun another one.
    several: bool,
    /// Most urgent bytes that the host may have taken out.
    urgent: usize,
}

impl Seen {
    /// No bytes yet. `several`: whether there may be several flows, one after the other. `urgent`: the number of
    /// segments with an urgent pointer.
    pub fn new(several: bool, urgent: usize) -> Seen {
        Seen { several, urgent, ..Seen::default() }
    }

    /// Adds the witness's records of packets from `sender` to `host`, and its events. `isn` is the sender's initial
    /// sequence number.
    pub fn note(&mut self, witness: &Witness, sender: End, host: End, isn: u32) {
        for r in witness.records() {
            if let What::Event(name) = r.what {
                if (r.from.0 == sender.0 || r.to.0 == sender.0) && !self.events.contains(&name) {
                    self.events.push(name);
                }
                continue;
            }
            if r.from != sender || r.to != host {
                continue;
            }
            if let What::Payload(bytes) = &r.what {
                self.datagrams.push(witness.bytes(bytes).to_vec());
                continue;
            }
            let place = |first: &u32, offset: &u64| {
                i64::from(first.wrapping_add(*offset as u32).wrapping_sub(isn.wrapping_add(1)) as i32)
            };
            match &r.what {
                What::Stream { first, offset, bytes, .. } => {
                    let at = place(first, offset);
                    self.track(r.flow, Some(at)).raw.put(at, witness.bytes(bytes));
                }
                What::App { first, offset, bytes } => {
                    let at = place(first, offset);
                    self.track(r.flow, Some(at)).app.put(at, witness.bytes(bytes));
                }
                What::AppGap { first, offset, len } => {
                    let at = place(first, offset);
                    self.track(r.flow, Some(at)).gaps.push((at, at.saturating_add_unsigned(*len)));
                }
                What::AppOff => self.track(r.flow, None).app_off = true,
                What::AppRestart { first, offset } => {
                    // The previous parser has parsed all data before this place.
                    let at = place(first, offset);
                    let t = self.track(r.flow, Some(at));
                    t.app.forget(at);
                    if std::mem::take(&mut t.app_off) {
                        t.not_parsed = at;
                    } else {
                        t.anew.push(at);
                    }
                }
                What::Payload(_) | What::Event(_) | What::Alert(_) => {}
            }
        }
    }

    /// The track of a flow for a record at a place. A stray segment with a far number may open a flow that goes on where
    /// the host is; what lies that far apart is recorded in tracks of its own.
    fn track(&mut self, flow: u64, at: Option<i64>) -> &mut Track {
        let fits = |t: &Track| t.flow == flow && at.is_none_or(|at| t.raw.reaches(at) && t.app.reaches(at));
        let i = self.tracks.iter().rposition(fits).unwrap_or_else(|| {
            self.tracks.push(Track::of(flow));
            self.tracks.len() - 1
        });
        &mut self.tracks[i]
    }

    /// Number of inspected bytes, of streams and datagrams.
    pub fn inspected(&self) -> u64 {
        let of = |t: &Track| t.raw.from.iter().filter(|f| **f != 0).count() as u64;
        self.tracks.iter().map(of).sum::<u64>() + self.datagrams.iter().map(|d| d.len() as u64).sum::<u64>()
    }

    /// Checks that what the host read, from byte `from` on, was inspected as the host read it. `first` is the place of
    /// the first byte read; `parsed` is whether a parser must have received the bytes.
    ///
    /// # Errors
    /// The first difference from the flow that fits best.
    pub fn check(&self, read: &[u8], from: usize, first: i64, parsed: bool) -> Result<(), Difference> {
        if self.several {
            return self.check_any(read, from, first);
        }
        let mut best = Difference { at: from, how: How::Unseen };
        if from >= read.len() {
            return Ok(());
        }
        for t in &self.tracks {
            match t.check(read, from, first, parsed) {
                Ok(()) => return Ok(()),
                // Of two flows that fit equally, the one that has a byte there counts.
                Err(d) if d.at > best.at || d.at == best.at && best.how == How::Unseen => best = d,
                Err(_) => {}
            }
        }
        Err(best)
    }

    /// As [`Seen::check`], but each byte may be in any flow.
    fn check_any(&self, read: &[u8], from: usize, first: i64) -> Result<(), Difference> {
        for (at, b) in read.iter().enumerate().skip(from) {
            let mut how = How::Unseen;
            // A flow that follows another one is shifted by the urgent bytes of that one.
            let shifts = 0..=self.urgent as i64;
            for (t, shift) in self.tracks.iter().flat_map(|t| shifts.clone().map(move |n| (t, n))) {
                match t.raw.get(at as i64 + first + shift) {
                    Some((seen, _)) if seen == *b => how = How::Apart,
                    Some(_) if how == How::Unseen => how = How::Other,
                    _ => {}
                }
            }
            if how != How::Apart {
                return Err(Difference { at, how });
            }
        }
        Ok(())
    }

    /// Whether this datagram was inspected.
    pub fn has_datagram(&self, data: &[u8]) -> bool {
        self.datagrams.iter().any(|d| d == data)
    }
}

impl Track {
    fn of(flow: u64) -> Track {
        Track {
            flow,
            raw: Bytes::default(),
            app: Bytes::default(),
            app_off: false,
            not_parsed: i64::MIN,
            anew: Vec::new(),
            gaps: Vec::new(),
        }
    }

    fn check(&self, read: &[u8], from: usize, first: i64, parsed: bool) -> Result<(), Difference> {
        for (at, b) in read.iter().enumerate().skip(from) {
            let place = at as i64 + first;
            let wrong = |how| Err(Difference { at, how });
            match self.raw.get(place) {
                None => return wrong(How::Unseen),
                Some((seen, _)) if seen != *b => return wrong(How::Other),
                Some((_, chunk)) if chunk > (place + 1 - TOGETHER as i64).max(first) => return wrong(How::Apart),
                Some(_) => {}
            }
            match self.app.get(place) {
                Some((seen, _)) if seen != *b => return wrong(How::OtherByParser),
                None if self.gaps.iter().any(|g| (g.0..g.1).contains(&place)) => return wrong(How::UnseenByParser),
                Some(_) if parsed && place > first && self.anew.contains(&place) => return wrong(How::Anew),
                None if parsed && !self.app_off && place >= self.not_parsed => return wrong(How::UnseenByParser),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(chunks: &[(i64, &[u8])]) -> Seen {
        let mut t = Track { app_off: true, ..Track::of(1) };
        chunks.iter().for_each(|c| t.raw.put(c.0, c.1));
        Seen { tracks: vec![t], ..Seen::default() }
    }

    #[test]
    fn what_is_missing_other_or_apart() {
        let how = |seen: &Seen, read: &[u8]| seen.check(read, 0, 0, false).map_err(|d| (d.at, d.how));
        assert_eq!(how(&track(&[]), b"a"), Err((0, How::Unseen)));
        assert_eq!(how(&track(&[(0, b"abc")]), b"abc"), Ok(()));
        assert_eq!(how(&track(&[(0, b"abc")]), b"abcd"), Err((3, How::Unseen)));
        assert_eq!(how(&track(&[(0, b"aXc")]), b"abc"), Err((1, How::Other)));
        assert_eq!(how(&track(&[(0, b"ab"), (2, b"cd")]), b"abcd"), Err((2, How::Apart)));
        assert_eq!(how(&track(&[(0, b"ab"), (0, b"abcd")]), b"abcd"), Ok(()));
        // Inspected together, then again alone and with other content.
        assert_eq!(how(&track(&[(0, b"abX"), (2, b"c")]), b"abc"), Err((2, How::Apart)));
    }

    #[test]
    fn parsers_are_held_to_it_too() {
        let mut seen = track(&[(0, b"abcd")]);
        seen.tracks[0].app_off = false;
        seen.tracks[0].app.put(0, b"ab");
        assert_eq!(seen.check(b"ab", 0, 0, true), Ok(()));
        assert_eq!(seen.check(b"abc", 0, 0, true), Err(Difference { at: 2, how: How::UnseenByParser }));
        assert_eq!(seen.check(b"abc", 0, 0, false), Ok(()));
        seen.tracks[0].app.put(2, b"X");
        assert_eq!(seen.check(b"abc", 0, 0, false), Err(Difference { at: 2, how: How::OtherByParser }));
        seen.tracks[0].app.put(2, b"c");
        assert_eq!(seen.check(b"abc", 0, 0, true), Ok(()));
        seen.tracks[0].anew.push(2);
        assert_eq!(seen.check(b"abc", 0, 0, true), Err(Difference { at: 2, how: How::Anew }));
        assert_eq!(seen.check(b"abc", 0, 0, false), Ok(()));
    }

    #[test]
    fn several_flows_only_where_that_can_be() {
        let mut seen = track(&[(0, b"ab")]);
        let mut second = track(&[(2, b"cd")]).tracks.remove(0);
        second.flow = 2;
        seen.tracks.push(second);
        assert_eq!(seen.check(b"abcd", 0, 0, false), Err(Difference { at: 2, how: How::Unseen }));
        seen.several = true;
        assert_eq!(seen.check(b"abcd", 0, 0, false), Ok(()));
        assert_eq!(seen.check(b"abXd", 0, 0, false), Err(Difference { at: 2, how: How::Other }));
    }

    #[test]
    fn a_flow_that_a_stray_segment_opens_goes_on_where_the_host_is() {
        let mut seen = track(&[(0, b"ab"), (4_000_000, b"x")]);
        for (at, bytes) in [(5_000_000, b"y"), (2, b"c")] {
            seen.track(2, Some(at)).raw.put(at, bytes);
        }
        seen.several = true;
        assert_eq!(seen.check(b"abc", 0, 0, false), Ok(()));
        assert_eq!(seen.check(b"abcd", 0, 0, false), Err(Difference { at: 3, how: How::Unseen }));
    }
}
