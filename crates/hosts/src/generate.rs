//! Random conversations, by class.
//!
//! A conversation starts as an ordinary one: a handshake and a stream in order. Its class then changes it in one or
//! more ways. All choices follow from the seed and the conversation's number.

use crate::conversation::{Conversation, HTTP, Opt, Role, Segment, Step, flag};
use crate::random::Random;

mod datagrams;
mod handshake;
mod stream;

/// Builds a conversation of a class.
type Make = fn(&mut Maker<'_>);

/// Every class with its weight: its relative number of conversations.
const CLASSES: &[(&str, u64, Make)] = &[
    ("plain", 2, |m| m.over(&[])),
    ("overlap", 5, |m| m.over(&[stream::overlap])),
    ("disagree", 9, |m| m.over(&[stream::disagree, stream::disagree])),
    ("repeat", 3, |m| m.over(&[stream::repeat])),
    ("reorder", 4, |m| m.over(&[stream::reorder])),
    ("reorder-disagree", 9, |m| m.over(&[stream::disagree, stream::reorder, stream::overlap])),
    ("urgent", 5, |m| m.over(&[stream::urgent])),
    ("timestamps", 5, |m| m.over(&[stream::timestamps])),
    ("acknowledgments", 5, |m| m.over(&[stream::acknowledgments])),
    ("reset", 6, |m| m.over(&[stream::reset])),
    ("fin", 6, |m| m.over(&[stream::fin])),
    ("syn-later", 3, |m| m.over(&[stream::syn])),
    ("broken", 4, |m| m.over(&[stream::broken])),
    ("window", 5, |m| m.over(&[stream::window])),
    ("options", 4, |m| m.over(&[stream::options])),
    ("lost", 2, |m| m.over(&[stream::lost])),
    ("half-closed", 3, |m| m.over(&[stream::half_closed])),
    ("handshake", 5, handshake::odd),
    ("syn-data", 4, handshake::with_data),
    ("idle", 2, |m| m.over(&[stream::idle, stream::disagree])),
    ("segment-fragments", 4, |m| m.over(&[stream::fragments])),
    ("host-connects", 4, handshake::host_connects),
    ("mixed", 12, mixed),
    ("datagram-fragments", 10, datagrams::fragments),
    ("datagram-timeouts", 2, datagrams::timeouts),
];

/// The names of the classes, in the order of the report.
pub fn classes() -> impl Iterator<Item = &'static str> {
    CLASSES.iter().map(|c| c.0)
}

/// Conversation number `index` of a run with `seed`, of the class `only` if that is given.
pub fn conversation(seed: u64, index: u64, only: Option<&str>) -> Conversation {
    let mut random = Random::new(seed, index);
    let all: u64 = CLASSES.iter().map(|c| c.1).sum();
    let mut at = random.below(all);
    let drawn = CLASSES.iter().find(|c| {
        let here = at < c.1;
        at = at.saturating_sub(c.1);
        here
    });
    let class = match only {
        Some(name) => CLASSES.iter().find(|c| c.0 == name),
        None => drawn,
    };
    let Some((name, _, make)) = class else { return Conversation::default() };
    let mut maker = Maker::new(&mut random, name);
    make(&mut maker);
    maker.c
}

/// A conversation that is being built.
struct Maker<'a> {
    r: &'a mut Random,
    c: Conversation,
    /// Whether segments have timestamps.
    timed: bool,
    /// The latest timestamp.
    clock: i64,
    /// Bytes of the stream.
    total: i64,
}

/// A change of the steps between the handshake and the end.
type Change = fn(&mut Maker<'_>, &mut Vec<Step>);

impl<'a> Maker<'a> {
    fn new(r: &'a mut Random, class: &str) -> Maker<'a> {
        let isn = match r.below(4) {
            0 => u32::MAX - r.below(600) as u32,
            1 => (1 << 31) - r.below(600) as u32,
            _ => r.bits() as u32,
        };
        let c = Conversation {
            class: class.to_owned(),
            v6: r.chance(40),
            port: if r.chance(15) { 2 } else { 0 },
            http: r.chance(25),
            lazy: r.chance(30),
            oob_inline: r.chance(30),
            isn,
            ..Conversation::default()
        };
        let timed = r.chance(50);
        Maker { r, c, timed, clock: 100, total: 0 }
    }

    /// A segment with `len` bytes from `at` on, as an ordinary sender sends it.
    fn data(&mut self, at: i64, len: i64) -> Segment {
        let flags = if self.r.chance(30) { flag::ACK | flag::PSH } else { flag::ACK };
        self.with_time(Segment { at, len: len.clamp(0, 1400) as u16, flags, ..Segment::default() })
    }

    fn with_time(&mut self, mut s: Segment) -> Segment {
        if self.timed {
            self.clock += self.r.between(0, 3);
            s.options.push(Opt::Time(self.clock, None));
        }
        s
    }

    /// The options of an ordinary SYN.
    fn syn_options(&mut self) -> Vec<Opt> {
        let mut all = vec![Opt::Mss(self.r.pick(&[1460, 1460, 536, 8960]))];
        if self.r.chance(70) {
            all.push(Opt::SackOk);
        }
        if self.timed {
            all.push(Opt::Time(self.clock, Some(0)));
        }
        if self.r.chance(60) {
            all.push(Opt::Scale(self.r.pick(&[0, 2, 7, 14])));
        }
        all
    }

    fn open(&mut self) {
        let options = self.syn_options();
        let syn = Segment { at: -1, flags: flag::SYN, options, ..Segment::default() };
        self.c.steps.push(Step::Segment(syn));
        let ack = self.data(0, 0);
        self.c.steps.push(Step::Segment(Segment { flags: flag::ACK, ..ack }));
    }

    /// The stream in order.
    fn stream(&mut self) -> Vec<Step> {
        self.total = match self.r.below(20) {
            0 => self.r.between(3000, 12_000),
            1..4 => self.r.between(600, 3000),
            4..10 => self.r.between(8, 60),
            _ => self.r.between(60, 400),
        };
        if self.c.http {
            self.total += HTTP.len() as i64;
        }
        let longest = if self.total > 600 { 1400 } else { self.r.pick(&[8, 30, 120, 400]) };
        let mut all = Vec::new();
        let mut at = 0;
        if self.c.http && self.r.chance(80) {
            // The HTTP parser sees the head of the request before anything odd happens.
            let head = self.data(0, HTTP.len() as i64);
            all.push(Step::Segment(head));
            at = HTTP.len() as i64;
        }
        while at < self.total {
            let len = self.r.between(1, longest).min(self.total - at);
            let s = self.data(at, len);
            all.push(Step::Segment(s));
            at += len;
            if self.r.chance(4) {
                all.push(Step::Read);
            }
            if self.r.chance(4) {
                all.push(Step::Write(self.r.between(1, 300) as u16));
            }
        }
        all
    }

    fn close(&mut self) {
        if self.r.chance(40) {
            let total = self.total;
            let end = self.data(total, 0);
            self.c.steps.push(Step::Segment(Segment { flags: flag::FIN | flag::ACK, ..end }));
        }
    }

    /// Builds a whole conversation with these changes.
    fn over(&mut self, changes: &[Change]) {
        self.open();
        let mut steps = self.stream();
        for change in changes {
            change(self, &mut steps);
        }
        if steps.len() > 400 {
            steps.truncate(400);
        }
        self.c.steps.append(&mut steps);
        self.close();
    }

    /// A random place among the steps, for an insertion.
    fn place(&mut self, steps: &[Step]) -> usize {
        self.r.below(steps.len() as u64 + 1) as usize
    }

    /// A range of the stream, whose ends are mostly those of a segment, or near them.
    fn stretch(&mut self, steps: &[Step]) -> (i64, i64) {
        let segments: Vec<(i64, i64)> = steps
            .iter()
            .filter_map(|s| match s {
                Step::Segment(s) if s.len > 0 => Some((s.at, s.end())),
                _ => None,
            })
            .collect();
        if segments.is_empty() || self.r.chance(20) {
            let at = self.r.between(0, self.total.max(1) - 1);
            return (at, at + self.r.between(1, 40));
        }
        let (from, to) = self.r.pick(&segments);
        let shift = |r: &mut Random, n: i64| match r.below(6) {
            0 => n - 1,
            1 => n + 1,
            2 => n + r.between(-20, 20),
            _ => n,
        };
        let (a, b) = (shift(self.r, from), shift(self.r, to));
        let b = if self.r.chance(25) { b + self.r.between(1, 60) } else { b };
        (a.max(0), b.max(a.max(0) + 1))
    }
}

/// Several changes at once.
fn mixed(m: &mut Maker<'_>) {
    const ALL: &[Change] = &[
        stream::overlap,
        stream::disagree,
        stream::disagree,
        stream::repeat,
        stream::reorder,
        stream::urgent,
        stream::timestamps,
        stream::acknowledgments,
        stream::reset,
        stream::fin,
        stream::syn,
        stream::broken,
        stream::window,
        stream::options,
        stream::lost,
        stream::half_closed,
        stream::idle,
        stream::fragments,
    ];
    let n = m.r.between(2, 4) as usize;
    let changes: Vec<Change> = (0..n).map(|_| m.r.pick(ALL)).collect();
    if m.r.chance(10) {
        m.c.role = Role::Client;
        handshake::opened_by_host(m);
        let mut steps = m.stream();
        for c in changes {
            c(m, &mut steps);
        }
        m.c.steps.append(&mut steps);
        m.close();
        return;
    }
    m.over(&changes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_gives_the_same_conversation_and_its_text_reads_back() {
        for i in 0..3000 {
            let c = conversation(5, i, None);
            assert_eq!(c, conversation(5, i, None));
            assert_eq!(Conversation::parse(&c.to_string()), Ok(c));
        }
    }

    #[test]
    fn every_class_is_drawn() {
        let drawn: std::collections::BTreeSet<String> = (0..3000).map(|i| conversation(1, i, None).class).collect();
        assert_eq!(drawn.len(), CLASSES.len());
        for name in classes() {
            assert_eq!(conversation(1, 0, Some(name)).class, name);
        }
    }
}
