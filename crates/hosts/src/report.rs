//! What a run came to, by class.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::play::{Mode, Outcome};
use crate::seen::{Difference, How, TOGETHER};

/// What cannot be known beside the wire, by the event that says so, and why.
const UNDECIDABLE: &[(&str, &str)] = &[
    ("ipv4.frag_again", "fragment lost behind the sensor"),
    ("ipv6.frag_again", "fragment lost behind the sensor"),
    ("ipv4.frag_late", "fragment at the time at which others are forgotten"),
    ("ipv6.frag_late", "fragment at the time at which others are forgotten"),
    ("ipv4.frag_ignored", "fragments that make no sense"),
    ("ipv6.frag_ignored", "fragments that make no sense"),
    ("ipv4.frag_overlap", "fragments that overlap"),
    ("ipv6.frag_overlap", "fragments that overlap"),
];

/// Which of two versions of a segment arrived is not seen where one is lost behind the sensor.
const LOST: &str = "segment lost behind the sensor";
/// Of two versions that a host may both discard, one for its timestamp, the first is kept.
const DOUBTFUL: &str = "both versions are doubtful";
/// Linux looks at the acknowledgment of data only off its fast path.
const ACK: &str = "acknowledgment that cannot be";
/// An urgent byte that the next urgent pointer goes past is taken out where its application has read up to it by then.
const URGENT: &str = "urgent byte that was passed over";
/// Which of two versions of early data Linux keeps depends on whether it could put the first together with what was beside it, which
/// its memory decides.
const EARLY: &str = "early segments that disagree";
/// Whether a host takes a segment that reaches beyond its window depends on what its application has read, and on its kernel.
const BEYOND: &str = "segment beyond the window";
/// Data of the second of two different SYNs is not kept; where the first is lost the host may take it.
const LOST_SYN: &str = "SYN lost behind the sensor";

/// What becomes of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// What the host read was inspected.
    Fine,
    /// It was not, which nobody beside the wire can know; an event says so.
    Undecidable(&'static str),
    /// It was not.
    Slipped(Difference),
}

impl Verdict {
    /// Of what a conversation came to.
    pub fn of(mode: Mode, out: &Outcome) -> Verdict {
        let Some(d) = &out.difference else { return Verdict::Fine };
        let has = |e: &str| out.events.contains(&e);
        let told = UNDECIDABLE.iter().find(|u| has(u.0)).map(|u| u.1);
        let told = told.or_else(|| {
            let other = matches!(d.how, How::Other | How::OtherByParser | How::Apart);
            let differs = other && has("reassembly_overlap_different_data");
            if out.passed_over {
                Some(URGENT)
            } else if differs && out.lost {
                Some(LOST)
            } else if differs
                && out.contested.iter().any(|c| (c.0..c.1 + TOGETHER as i64).contains(&(d.at as i64 + out.first)))
            {
                Some(EARLY)
            } else if differs && has("est_packet_out_of_window") {
                Some(BEYOND)
            } else if differs && has("pkt_invalid_timestamp") {
                Some(DOUBTFUL)
            } else if d.how == How::Unseen && has("est_invalid_ack") {
                Some(ACK)
            } else if out.lost && has("3whs_synack_with_wrong_ack") {
                Some(LOST_SYN)
            } else {
                None
            }
        });
        match told.filter(|_| mode == Mode::Passive) {
            Some(why) => Verdict::Undecidable(why),
            None => Verdict::Slipped(d.clone()),
        }
    }
}

/// A row: what the conversations of a class came to.
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

/// What a run came to.
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

    /// Adds all of another one.
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

    /// Conversations held.
    pub fn conversations(&self) -> u64 {
        self.rows.values().map(|r| r.conversations).sum()
    }

    /// Conversations of which the host read something that was not inspected, and nothing said so.
    pub fn slipped(&self) -> u64 {
        self.rows.values().map(|r| r.slipped).sum()
    }

    /// Of a class: conversations, and those of which something arrived.
    pub fn arrived(&self, class: &str) -> (u64, u64) {
        self.rows.get(class).map_or((0, 0), |r| (r.conversations, r.arrived))
    }

    /// As a table.
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
            let told: Vec<String> = r.undecidable.iter().map(|(name, n)| format!("{name}: {n}")).collect();
            (cells, told.join("; "))
        };
        for (name, r) in &self.rows {
            let (cells, told) = show(name, r);
            line(cells, &told);
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
        let (cells, told) = show("all", &sum);
        line(cells, &told);
        if !self.reasons.is_empty() {
            let all: Vec<String> = self.reasons.iter().map(|(why, n)| format!("{why} {n}")).collect();
            let _ = writeln!(out, "dropped: {}", all.join(", "));
        }
        out
    }
}
