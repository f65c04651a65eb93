//! Expected connections: a bounded table that new TCP flows are looked up in.
//!
//! It holds the connections that parsers announced ([`margay_app::expect`]), by the opening host, the listening host and the
//! port. A flow is looked up with its first data, at no cost while the table is empty. Each entry serves one flow, and
//! expires [`LIFE`] after its last announcement. A full table accepts no more entries and counts the refusals; protocol
//! detection then handles those flows as usual.
//!
//! Workers share no state. A control connection and its data connection have different ports, and may belong to different
//! workers. So an announcement is sent to all other workers as a request (`live`). An entry is one small value, and lookups
//! stay local. If a flow uses one worker's entry, the entries of the other workers expire.

use std::net::IpAddr;

use margay_app::expect::{Awaited, Carries, Expect, ExpectedFlow};
use margay_flow::FlowCore;
use margay_packet::{KeyedMap, Time, Vlans};

/// Limit of expected connections.
const MAX: usize = 4096;
/// Lifetime of an entry, in microseconds.
const LIFE: i64 = 30_000_000;
/// Microseconds between two searches of a full table for expired entries.
const SWEEP: i64 = 1_000_000;

#[derive(Debug)]
struct Entry {
    /// The flow that announced it.
    parent: u64,
    vlans: Vlans,
    /// `None` until its protocol is known.
    carries: Option<Carries>,
    until: Time,
}

/// The result of looking up a new flow.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The flow is not expected.
    No,
    /// The flow is expected, but its protocol is not known yet.
    Later,
    /// The expected protocol, the id of the announcing flow, and whether the flow's client is the listening side.
    Carries(Carries, u64, bool),
}

/// Connections that parsers announced.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    table: KeyedMap<ExpectedFlow, Entry>,
    swept: Time,
    /// Connections that were refused because the table was full.
    pub(crate) refused: u64,
}

impl Expected {
    /// The number of expected connections.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no connection is expected.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Records the announcements of a flow with these VLAN tags.
    pub(crate) fn note(&mut self, announced: &mut Vec<Expect>, vlans: Vlans, now: Time) {
        for e in announced.drain(..) {
            let carries = match e.what {
                Awaited::Nothing => {
                    if self.table.get(&e.flow).is_some_and(|x| x.parent == e.parent) {
                        self.table.remove(&e.flow);
                    }
                    continue;
                }
                Awaited::Pending => None,
                Awaited::Carries(c) => Some(c),
            };
            if self.table.len() >= MAX && !self.table.contains_key(&e.flow) {
                self.sweep(now);
                if self.table.len() >= MAX {
                    self.refused += 1;
                    continue;
                }
            }
            let entry = Entry { parent: e.parent, vlans, carries, until: Time(now.0.saturating_add(LIFE)) };
            self.table.insert(e.flow, entry);
        }
    }

    fn sweep(&mut self, now: Time) {
        if now.0.saturating_sub(self.swept.0) >= SWEEP {
            self.swept = now;
            self.table.retain(|_, e| e.until >= now);
        }
    }

    /// Looks up a flow. If its protocol is known, removes the entry.
    pub(crate) fn ask(&mut self, flow: &FlowCore, now: Time) -> Answer {
        let key = |from: IpAddr, to: IpAddr, port| ExpectedFlow { transport: flow.proto, from, to, port };
        // The opener of a flow that was picked up midstream is unknown.
        for (key, reversed) in
            [(key(flow.src, flow.dst, flow.dport), false), (key(flow.dst, flow.src, flow.sport), true)]
        {
            let Some(entry) = self.table.get(&key).filter(|e| e.vlans == flow.vlans && e.parent != flow.id) else {
                continue;
            };
            if entry.until < now {
                self.table.remove(&key);
                continue;
            }
            if entry.carries.is_none() {
                return Answer::Later;
            }
            if let Some(Entry { carries: Some(carries), parent, .. }) = self.table.remove(&key) {
                return Answer::Carries(carries, parent, reversed);
            }
        }
        Answer::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_app::ftp_data::{Command, Transfer};

    fn flow(id: u64, from: u8, to: u8, port: u16) -> FlowCore {
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        FlowCore::new(id, 6, (ip(from), 40_000), (ip(to), port), Time(0))
    }

    fn expect(port: u16, what: Awaited) -> Expect {
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        Expect { flow: ExpectedFlow { transport: 6, from: ip(1), to: ip(2), port }, parent: 1, what }
    }

    fn file() -> Awaited {
        Awaited::Carries(Transfer { command: Command::Retr, name: b"a".to_vec() }.carried(false))
    }

    #[test]
    fn one_flow_each() {
        let (mut t, control) = (Expected::default(), flow(1, 1, 2, 21));
        let say = |t: &mut Expected, what| t.note(&mut vec![expect(1000, what)], control.vlans, Time(0));
        assert!(matches!(t.ask(&flow(2, 1, 2, 1000), Time(0)), Answer::No));
        say(&mut t, Awaited::Pending);
        assert!(matches!(t.ask(&flow(2, 1, 2, 1000), Time(0)), Answer::Later));
        assert!(matches!(t.ask(&flow(2, 1, 2, 1001), Time(0)), Answer::No));
        say(&mut t, file());
        assert!(matches!(t.ask(&flow(2, 1, 2, 1000), Time(5)), Answer::Carries(_, 1, false)));
        assert!(matches!(t.ask(&flow(3, 1, 2, 1000), Time(5)), Answer::No));
        say(&mut t, file());
        say(&mut t, Awaited::Nothing);
        assert_eq!(t.len(), 0);
    }

    #[test]
    fn other_way_round_and_too_late() {
        let (mut t, control) = (Expected::default(), flow(1, 1, 2, 21));
        t.note(&mut vec![expect(1000, file())], control.vlans, Time(0));
        let mut turned = flow(2, 2, 1, 40_000);
        turned.sport = 1000;
        assert!(matches!(t.ask(&turned, Time(0)), Answer::Carries(_, 1, true)));
        t.note(&mut vec![expect(1000, file())], control.vlans, Time(0));
        assert!(matches!(t.ask(&flow(2, 1, 2, 1000), Time(LIFE + 1)), Answer::No));
        assert_eq!(t.len(), 0);
    }

    #[test]
    fn is_bounded() {
        let (mut t, control) = (Expected::default(), flow(1, 1, 2, 21));
        for port in 1..=5000 {
            t.note(&mut vec![expect(port, file())], control.vlans, Time(0));
        }
        assert_eq!((t.len(), t.refused), (MAX, 5000 - MAX as u64));
        t.note(&mut vec![expect(6000, file())], control.vlans, Time(LIFE + SWEEP));
        assert_eq!(t.len(), 1);
    }
}
