//! Collects samples and events, for the views that read them.
//!
//! Everything is bounded: an hour of points ([`HISTORY`]), the last [`ALERTS`] alerts with at most [`ALERT_BYTES`] together,
//! and [`COUNTERS`] counters for each top list in the current [`PERIOD`] and as many for the previous one.

mod picture;

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::model::{Point, Recent, Sample, Snapshot, Talker, TopAlert, Watched};
use crate::sketch::Window;

/// Seconds of history.
pub const HISTORY: usize = 3600;
/// Limit of the alerts that are kept.
pub const ALERTS: usize = 1000;
/// Limit of the bytes of their texts together.
pub const ALERT_BYTES: usize = 8 << 20;
/// Limit of the bytes of an alert's text. A longer one is only counted.
pub const ALERT_MAX: usize = 32 << 10;
/// Counters of a top list, for each period.
pub const COUNTERS: usize = 1024;
/// Length of a period of the top lists.
pub const PERIOD: Duration = Duration::from_secs(600);
/// Entries of a top list in a snapshot.
pub const SHOWN: usize = 20;
/// How long sampling continues after the last request.
pub const INTEREST: Duration = Duration::from_secs(60);
/// A snapshot older than this is stale, and readers wait for a new one.
const STALE: Duration = Duration::from_secs(5);
/// Limit of the rule messages that are kept.
const NAMES: usize = 4 * COUNTERS;

/// An alert that is kept.
#[derive(Debug, Clone)]
struct Alert {
    /// Its summary.
    recent: Recent,
    /// Its event, as one JSON object.
    text: Arc<str>,
}

#[derive(Debug)]
struct State {
    /// The last sample.
    sample: Option<Arc<Sample>>,
    snapshot: Option<Arc<Snapshot>>,
    history: VecDeque<Point>,
    alerts: VecDeque<Alert>,
    alert_bytes: usize,
    rules: Window<(u32, u32)>,
    /// Messages of rules, by generator and signature id.
    names: HashMap<(u32, u32), String>,
    talkers: Window<IpAddr>,
    alerted: Window<IpAddr>,
    turned: Instant,
    watched: Watched,
    asked: Option<Instant>,
}

/// The data about a running engine, for the views.
#[derive(Debug)]
pub struct Hub {
    state: Mutex<State>,
    /// Signals a new snapshot.
    made: Condvar,
    always: AtomicBool,
}

impl Default for Hub {
    fn default() -> Hub {
        Hub {
            state: Mutex::new(State {
                sample: None,
                snapshot: None,
                history: VecDeque::new(),
                alerts: VecDeque::new(),
                alert_bytes: 0,
                rules: Window::new(COUNTERS),
                names: HashMap::new(),
                talkers: Window::new(COUNTERS),
                alerted: Window::new(COUNTERS),
                turned: Instant::now(),
                watched: Watched::default(),
                asked: None,
            }),
            made: Condvar::new(),
            always: AtomicBool::new(false),
        }
    }
}

/// The members of an alert's event that the views use.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    src_ip: String,
    #[serde(default)]
    src_port: Option<u16>,
    #[serde(default)]
    dest_ip: String,
    #[serde(default)]
    dest_port: Option<u16>,
    #[serde(borrow)]
    alert: Rule<'a>,
}

#[derive(Deserialize)]
struct Rule<'a> {
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    signature_id: u32,
    #[serde(default)]
    signature: String,
    #[serde(default)]
    severity: u64,
    #[serde(default)]
    action: &'a str,
}

fn endpoint(address: &str, port: Option<u16>) -> String {
    match port {
        Some(port) if address.contains(':') => format!("[{address}]:{port}"),
        Some(port) => format!("{address}:{port}"),
        None => address.to_owned(),
    }
}

impl State {
    /// Adds an alert, by its event's text.
    fn line(&mut self, line: &[u8]) {
        let event = match line.len() <= ALERT_MAX {
            true => serde_json::from_slice::<Event<'_>>(line).ok(),
            false => None,
        };
        let (Some(e), Ok(text)) = (event, std::str::from_utf8(line)) else {
            self.watched.alerts_unshown += 1;
            return;
        };
        self.watched.alerts += 1;
        let key = (e.alert.gid, e.alert.signature_id);
        if !self.names.contains_key(&key) {
            if self.names.len() >= NAMES {
                let rules = &self.rules;
                self.names.retain(|k, _| rules.get(k).is_some());
            }
            if self.names.len() < NAMES {
                self.names.insert(key, e.alert.signature.clone());
            }
        }
        let recent = Recent {
            n: self.watched.alerts,
            time: e.timestamp,
            sid: e.alert.signature_id.into(),
            message: e.alert.signature,
            severity: e.alert.severity,
            source: endpoint(&e.src_ip, e.src_port),
            destination: endpoint(&e.dest_ip, e.dest_port),
            action: e.alert.action.to_owned(),
        };
        self.alert_bytes += text.len();
        self.alerts.push_back(Alert { recent, text: text.into() });
        while self.alerts.len() > ALERTS || self.alert_bytes > ALERT_BYTES {
            let Some(old) = self.alerts.pop_front() else { break };
            self.alert_bytes -= old.text.len();
        }
    }

    fn top_alerts(&self) -> Vec<TopAlert> {
        let top = self.rules.top(SHOWN).into_iter();
        let one = |(key, c): ((u32, u32), crate::sketch::Count)| TopAlert {
            gid: key.0,
            sid: key.1,
            message: self.names.get(&key).cloned().unwrap_or_default(),
            count: c.count,
            error: c.error,
        };
        top.map(one).collect()
    }

    fn top_talkers(&self) -> Vec<Talker> {
        let top = self.talkers.top(SHOWN).into_iter();
        let one = |(address, c): (IpAddr, crate::sketch::Count)| Talker {
            address: address.to_string(),
            bytes: c.count,
            error: c.error,
            alerts: self.alerted.get(&address).map_or(0, |c| c.count),
        };
        top.map(one).collect()
    }
}

/// Adds events to the hub, whose lock it holds ([`Hub::feed`]).
pub struct Feeding<'a>(MutexGuard<'a, State>);

impl Feeding<'_> {
    /// Adds alerts: whole lines, each a JSON object. A line that is too long or invalid is only counted.
    pub fn lines(&mut self, lines: &[u8]) {
        for line in lines.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            self.0.line(line);
        }
    }

    /// Counts an alert of a rule on a packet between two addresses.
    pub fn alert(&mut self, gid: u32, sid: u32, addresses: Option<[IpAddr; 2]>) {
        self.0.rules.add((gid, sid), 1);
        for address in addresses.into_iter().flatten() {
            self.0.alerted.add(address, 1);
        }
    }

    /// Counts a flow between two addresses that ended, with its bytes in both directions.
    pub fn flow(&mut self, addresses: [IpAddr; 2], bytes: u64) {
        for address in addresses {
            self.0.talkers.add(address, bytes);
        }
    }

    /// Counts alerts that came without their text, and events that the top lists miss.
    pub fn left_out(&mut self, unshown: u64, uncounted: u64) {
        self.0.watched.alerts_unshown += unshown;
        self.0.watched.uncounted += uncounted;
    }
}

impl Hub {
    /// Takes the lock, even after a panic: each change under it is complete in itself.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a permanent viewer: from now on, samples are always taken.
    pub fn always(&self) {
        self.always.store(true, Ordering::Relaxed);
    }

    /// Whether to take samples now: there is a viewer, or there was one in the last [`INTEREST`].
    pub fn is_wanted(&self) -> bool {
        self.always.load(Ordering::Relaxed) || self.lock().asked.is_some_and(|a| a.elapsed() < INTEREST)
    }

    /// Takes the lock, to add events.
    pub fn feed(&self) -> Feeding<'_> {
        Feeding(self.lock())
    }

    /// Adds a sample, and makes the new snapshot.
    pub fn take(&self, sample: Sample) {
        let mut state = self.lock();
        if state.turned.elapsed() >= PERIOD {
            state.turned = Instant::now();
            state.rules.turn();
            state.talkers.turn();
            state.alerted.turn();
        }
        state.watched.late = sample.late;
        // After a time without a viewer there is no sample to compare with.
        let before = state.sample.take().filter(|b| sample.at.saturating_duration_since(b.at) < STALE);
        let mut snapshot = picture::of(&sample, before.as_deref());
        snapshot.top_alerts = state.top_alerts();
        snapshot.talkers = state.top_talkers();
        snapshot.recent = state.alerts.iter().rev().take(SHOWN).map(|a| a.recent.clone()).collect();
        snapshot.watched = state.watched;
        // The first sample has no rates.
        if before.is_some() {
            if state.history.len() >= HISTORY {
                state.history.pop_front();
            }
            state.history.push_back(snapshot.now);
        }
        state.sample = Some(Arc::new(sample));
        state.snapshot = Some(Arc::new(snapshot));
        drop(state);
        self.made.notify_all();
    }

    /// The last snapshot. If it is stale, because there was no viewer, waits up to `patience` for a new one; `None` if none
    /// comes.
    pub fn snapshot(&self, patience: Duration) -> Option<Arc<Snapshot>> {
        self.fresh(patience).0
    }

    /// The last sample, as [`Hub::snapshot`].
    pub fn sample(&self, patience: Duration) -> Option<Arc<Sample>> {
        self.fresh(patience).1
    }

    fn fresh(&self, patience: Duration) -> (Option<Arc<Snapshot>>, Option<Arc<Sample>>) {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.asked = Some(Instant::now());
        loop {
            if let (Some(sample), Some(snapshot)) = (&state.sample, &state.snapshot)
                && sample.at.elapsed() < STALE
            {
                return (Some(Arc::clone(snapshot)), Some(Arc::clone(sample)));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (None, None);
            }
            state = self.made.wait_timeout(state, left).map_or_else(|p| p.into_inner().0, |r| r.0);
        }
    }

    /// Points of the last hour later than `since`, in milliseconds since 1970; the oldest first.
    pub fn history(&self, since: u64) -> Vec<Point> {
        self.lock().history.iter().filter(|p| p.t > since).copied().collect()
    }

    /// The alerts with a number above `since`, oldest first, as a JSON array of `{"n":…,"event":{…}}`. If there are more than
    /// `most`, the last `most` of them.
    pub fn alerts(&self, since: u64, most: usize) -> String {
        let found: Vec<(u64, Arc<str>)> = {
            let state = self.lock();
            let later = state.alerts.iter().rev().take_while(|a| a.recent.n > since).take(most);
            later.map(|a| (a.recent.n, Arc::clone(&a.text))).collect()
        };
        let mut out = String::from("[");
        for (n, text) in found.iter().rev() {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str("{\"n\":");
            out.push_str(&n.to_string());
            out.push_str(",\"event\":");
            out.push_str(text);
            out.push('}');
        }
        out.push(']');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: usize, padding: usize) -> Vec<u8> {
        format!(
            "{{\"timestamp\":\"t{n}\",\"event_type\":\"alert\",\"src_ip\":\"fe80::1\",\"src_port\":5,\"dest_ip\":\"10.0.0.2\",\"alert\":\
             {{\"action\":\"allowed\",\"gid\":1,\"signature_id\":7,\"signature\":\"a \\\"b\\\"\",\"severity\":2,\"pad\":\"{}\"}}}}\n",
            "x".repeat(padding)
        )
        .into_bytes()
    }

    #[test]
    fn alerts_are_kept_within_bounds() {
        let hub = Hub::default();
        for n in 0..ALERTS + 500 {
            hub.feed().lines(&line(n, 10));
        }
        let all: serde_json::Value = serde_json::from_str(&hub.alerts(0, usize::MAX)).unwrap();
        let all = all.as_array().unwrap();
        assert_eq!(all.len(), ALERTS);
        assert_eq!((all[0]["n"].as_u64(), all[ALERTS - 1]["n"].as_u64()), (Some(501), Some(1500)));
        assert_eq!(all[0]["event"]["timestamp"], "t500");
        let last: serde_json::Value = serde_json::from_str(&hub.alerts(1498, 9)).unwrap();
        assert_eq!(last.as_array().unwrap().len(), 2);
        // A long alert evicts several others, and one that exceeds the limit is only counted.
        for n in 0..600 {
            hub.feed().lines(&line(n, 30_000));
        }
        let state = hub.lock();
        assert!(state.alert_bytes <= ALERT_BYTES && state.alerts.len() < 600);
        assert_eq!(state.alert_bytes, state.alerts.iter().map(|a| a.text.len()).sum::<usize>());
        let recent = &state.alerts.back().unwrap().recent;
        assert_eq!((recent.source.as_str(), recent.destination.as_str()), ("[fe80::1]:5", "10.0.0.2"));
        assert_eq!((recent.message.as_str(), recent.action.as_str()), ("a \"b\"", "allowed"));
        drop(state);
        hub.feed().lines(&line(0, ALERT_MAX));
        hub.feed().lines(b"{\"half\":\n");
        assert_eq!(hub.lock().watched.alerts_unshown, 2);
    }

    #[test]
    fn whoever_asks_waits_for_a_sample() {
        let hub = Hub::default();
        assert!(!hub.is_wanted());
        assert!(hub.snapshot(Duration::from_millis(5)).is_none());
        assert!(hub.is_wanted());
        std::thread::scope(|s| {
            let waits = s.spawn(|| hub.snapshot(Duration::from_secs(20)));
            hub.take(picture::tests::sample(100, 1));
            assert_eq!(waits.join().unwrap().unwrap().totals.packets, 100);
        });
        assert!(hub.history(0).is_empty(), "one sample has no rates");
    }

    #[test]
    fn the_history_is_an_hour() {
        let hub = Hub::default();
        for n in 0..HISTORY as u64 + 10 {
            hub.take(picture::tests::sample(n * 10, n));
        }
        let all = hub.history(0);
        assert_eq!(all.len(), HISTORY);
        assert_eq!(hub.history(all[HISTORY - 3].t).len(), 2);
        assert!((all[0].packets - 10.0).abs() < 0.01, "{:?}", all[0]);
    }

    #[test]
    fn the_most_frequent_are_named() {
        let hub = Hub::default();
        let [a, b] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        {
            let mut feed = hub.feed();
            feed.lines(&line(1, 0));
            feed.alert(1, 7, Some([a, b]));
            feed.alert(1, 7, None);
            feed.alert(1, 8, None);
            feed.flow([a, b], 1000);
            feed.flow([b, b], 1);
            feed.left_out(3, 4);
        }
        hub.take(picture::tests::sample(1, 0));
        let s = hub.snapshot(Duration::ZERO).unwrap();
        let top: Vec<_> = s.top_alerts.iter().map(|t| (t.sid, t.count, t.message.as_str())).collect();
        assert_eq!(top, [(7, 2, "a \"b\""), (8, 1, "")]);
        let talkers: Vec<_> = s.talkers.iter().map(|t| (t.address.as_str(), t.bytes, t.alerts)).collect();
        assert_eq!(talkers, [("10.0.0.2", 1002, 1), ("10.0.0.1", 1000, 1)]);
        assert_eq!((s.watched.alerts, s.watched.alerts_unshown, s.watched.uncounted), (1, 3, 4));
        assert_eq!(s.recent.len(), 1);
    }
}
