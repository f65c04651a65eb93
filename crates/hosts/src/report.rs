//! The results of a run, by class.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::play::{Mode, Outcome};
use crate::seen::Difference;
use crate::undecidable;

/// The outcome of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte that the host read was inspected.
    Fine,
    /// A byte was not inspected, but no passive sensor can know that the host reads it; an event says so.
    Undecidable(&'static str),
    /// A byte was not inspected, and no known reason explains it.
    Slipped(Difference),
}

impl Verdict {
    /// The verdict on a conversation.
    pub fn of(mode: Mode, out: &Outcome) -> Verdict {
        let Some(d) = &out.difference else { return Verdict::Fine };
        match undecidable::reason(d, out).filter(|_| mode == Mode::Passive) {
            Some(why) => Verdict::Undecidable(why),
            None => Verdict::Slipped(d.clone()),
        }
    }
}

/// A row: the outcomes of a class.
#[derive(Debug, Clone, Default)]
struct Row {
    conversations: u64,
    arrived: u64,
    read: u64,
    inspected: u64,
    packets: u64,
    dropped: u64,
    replaced: u64,
    undecidable: BTreeMap<&'static str, u64>,
    slipped: u64,
}

/// The results of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    rows: BTreeMap<String, Row>,
    reasons: BTreeMap<&'static str, u64>,
}

impl Report {
    /// Adds a conversation.
    pub fn add(&mut self, class: &str, out: &Outcome, verdict: &Verdict) {
        if !self.rows.contains_key(class) {
            self.rows.insert(class.to_owned(), Row::default());
        }
        let Some(r) = self.rows.get_mut(class) else { return };
        r.conversations += 1;
        r.arrived += u64::from(out.arrived);
        r.read += out.read.len() as u64;
        r.inspected += out.inspected;
        r.packets += out.packets;
        r.dropped += out.dropped.values().sum::<u64>();
        r.replaced += out.replaced;
        for (why, n) in &out.dropped {
            *self.reasons.entry(why).or_default() += n;
        }
        match verdict {
            Verdict::Fine => {}
            Verdict::Undecidable(name) => *r.undecidable.entry(name).or_default() += 1,
            Verdict::Slipped(_) => r.slipped += 1,
        }
    }

    /// Adds the results of another run.
    pub fn merge(&mut self, other: Report) {
        for (class, o) in other.rows {
            let r = self.rows.entry(class).or_default();
            r.conversations += o.conversations;
            r.arrived += o.arrived;
            r.read += o.read;
            r.inspected += o.inspected;
            r.packets += o.packets;
            r.dropped += o.dropped;
            r.replaced += o.replaced;
            r.slipped += o.slipped;
            for (name, n) in o.undecidable {
                *r.undecidable.entry(name).or_default() += n;
            }
        }
        for (why, n) in other.reasons {
            *self.reasons.entry(why).or_default() += n;
        }
    }

    /// Number of conversations.
    pub fn conversations(&self) -> u64 {
        self.rows.values().map(|r| r.conversations).sum()
    }

    /// Number of conversations with [`Verdict::Slipped`].
    pub fn slipped(&self) -> u64 {
        self.rows.values().map(|r| r.slipped).sum()
    }

    /// A class's number of conversations, and of those in which anything arrived.
    pub fn arrived(&self, class: &str) -> (u64, u64) {
        self.rows.get(class).map_or((0, 0), |r| (r.conversations, r.arrived))
    }

    /// The results as a table.
    pub fn table(&self, mode: Mode) -> String {
        let mut out = String::new();
        let mut line = |cells: [String; 9], undecidable: &str| {
            let _ = write!(out, "{:<20}", cells[0]);
            for c in &cells[1..] {
                let _ = write!(out, " {c:>13}");
            }
            let _ = writeln!(out, "  {undecidable}");
        };
        let head =
            ["conversations", "arrived", "bytes read", "inspected", "packets", "dropped", "replaced", "slipped past"];
        let mut cells = [const { String::new() }; 9];
        cells[0] = mode.name().to_owned();
        for (to, from) in cells[1..].iter_mut().zip(head) {
            from.clone_into(to);
        }
        line(cells, "undecidable");
        let mut sum = Row::default();
        let show = |name: &str, r: &Row| {
            let n = [r.conversations, r.arrived, r.read, r.inspected, r.packets, r.dropped, r.replaced, r.slipped];
            let mut cells = [const { String::new() }; 9];
            name.clone_into(&mut cells[0]);
            for (to, n) in cells[1..].iter_mut().zip(n) {
                *to = n.to_string();
            }
            let text: Vec<String> = r.undecidable.iter().map(|(name, n)| format!("{name}: {n}")).collect();
            (cells, text.join("; "))
        };
        for (name, r) in &self.rows {
            let (cells, text) = show(name, r);
            line(cells, &text);
            sum.conversations += r.conversations;
            sum.arrived += r.arrived;
            sum.read += r.read;
            sum.inspected += r.inspected;
            sum.packets += r.packets;
            sum.dropped += r.dropped;
            sum.replaced += r.replaced;
            sum.slipped += r.slipped;
            for (name, n) in &r.undecidable {
                *sum.undecidable.entry(name).or_default() += n;
            }
        }
        let (cells, text) = show("all", &sum);
        line(cells, &text);
        if !self.reasons.is_empty() {
            let all: Vec<String> = self.reasons.iter().map(|(why, n)| format!("{why} {n}")).collect();
            let _ = writeln!(out, "dropped: {}", all.join(", "));
        }
        out
    }
}
