//! Alerts and flows for an observer: a few alerts a second as text, and all alerts and flows as numbers.
//!
//! A worker collects both in its own memory. At the end of a batch it adds them to the feed that all workers share, if the
//! lock is free, so the worker never waits ([`Feed`]). Events for which there is no room are only counted. Without an
//! observer ([`Feed::look`]), nothing is collected.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::count;
use crate::event::{AlertEvent, EventType, EventTypes, FlowEvent};
use crate::json::Json;
use crate::settings::EveSettings;
use crate::time::Clock;

use super::Out;

/// Limits of what a worker holds until it can hand it over: alerts, flows, and bytes of text.
const HELD: usize = 4096;
const HELD_BYTES: usize = 256 << 10;
/// The same limits for all workers together, until an observer takes the events.
const SHARED: usize = 65_536;
const SHARED_BYTES: usize = 4 << 20;

/// An alert as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlertSeen {
    /// Generator id of the rule (`gid`).
    pub gid: u32,
    /// Signature id of the rule (`sid`).
    pub sid: u32,
    /// Source and destination, if the packet has addresses.
    pub addresses: Option<[IpAddr; 2]>,
}

/// A flow that ended, as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowSeen {
    /// Source and destination.
    pub addresses: [IpAddr; 2],
    /// Bytes in both directions.
    pub bytes: u64,
}

/// Events since the observer last took them.
#[derive(Debug, Default)]
pub struct Seen {
    /// Alerts as EVE JSON, a line each, with their packet and rule.
    pub lines: Vec<u8>,
    /// The alerts, up to the limits of the feed.
    pub alerts: Vec<AlertSeen>,
    /// The flows that ended, up to the limits of the feed.
    pub flows: Vec<FlowSeen>,
}

/// The feed that all workers share.
#[derive(Debug, Default)]
pub struct Feed {
    looking: AtomicBool,
    /// The number of alerts that may still be rendered as text.
    texts: AtomicI64,
    unshown: AtomicU64,
    uncounted: AtomicU64,
    seen: Mutex<Seen>,
}

impl Feed {
    /// Turns observation on: until the next call, at most `texts` alerts are rendered as text. `None` turns it off.
    pub fn look(&self, texts: Option<u32>) {
        self.texts.store(texts.map_or(0, i64::from), Ordering::Relaxed);
        self.looking.store(texts.is_some(), Ordering::Relaxed);
    }

    /// Takes the collected events. `empty` receives the ones that follow.
    pub fn take(&self, empty: Seen) -> Seen {
        std::mem::replace(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner), empty)
    }

    /// Since the last call: alerts without text, and alerts and flows that are missing in [`Seen`].
    pub fn left_out(&self) -> (u64, u64) {
        (self.unshown.swap(0, Ordering::Relaxed), self.uncounted.swap(0, Ordering::Relaxed))
    }
}

/// One worker's end of the feed.
#[derive(Debug)]
pub(crate) struct Tee {
    feed: Arc<Feed>,
    settings: EveSettings,
    clock: Clock,
    tenant: u32,
    lines: Json,
    held: Seen,
}

impl Tee {
    /// The event types that the feed needs.
    pub(crate) const WANTS: EventTypes = EventTypes::NONE.with(EventType::Alert).with(EventType::Flow);

    pub(crate) fn new(feed: Arc<Feed>) -> Tee {
        let mut settings = EveSettings::file("", EventTypes::NONE.with(EventType::Alert));
        (settings.alert.packet, settings.alert.rule_raw, settings.alert.rule_reference) = (true, true, true);
        settings.pcap_file = true;
        Tee { feed, settings, clock: Clock::system(), tenant: 0, lines: Json::new(), held: Seen::default() }
    }

    /// Another worker's end of the same feed.
    pub(crate) fn share(&self) -> Tee {
        Tee::new(Arc::clone(&self.feed))
    }

    /// Whether an observer is present.
    pub(crate) fn is_looking(&self) -> bool {
        self.feed.looking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tenant(&mut self, tenant: u32) {
        self.tenant = tenant;
    }

    pub(crate) fn set_interface(&mut self, interface: &str) {
        let name = self.settings.in_iface.get_or_insert_default();
        name.clear();
        name.push_str(interface);
    }

    pub(crate) fn alert(&mut self, event: &AlertEvent<'_>) {
        if !self.is_looking() {
            return;
        }
        if self.held.alerts.len() < HELD {
            let addresses = event.header.addresses.as_ref().map(|a| [a.src, a.dst]);
            self.held.alerts.push(AlertSeen { gid: event.signature.gid, sid: event.signature.id, addresses });
        } else {
            self.feed.uncounted.fetch_add(1, Ordering::Relaxed);
        }
        if self.lines.len() >= HELD_BYTES || self.feed.texts.fetch_sub(1, Ordering::Relaxed) <= 0 {
            self.feed.unshown.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Tee { settings, clock, lines: json, tenant, .. } = self;
        json.raw(b"{");
        Out { json, clock, settings, number: 0, tenant: *tenant }.alert(event);
        self.lines.raw(b"}\n");
    }

    pub(crate) fn flow(&mut self, event: &FlowEvent<'_>) {
        if !self.is_looking() {
            return;
        }
        let Some(a) = &event.header.addresses else { return };
        if self.held.flows.len() < HELD {
            let bytes = event.bytes.iter().fold(0u64, |sum, b| sum.saturating_add(*b));
            self.held.flows.push(FlowSeen { addresses: [a.src, a.dst], bytes });
        } else {
            self.feed.uncounted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a batch: adds the worker's events to the shared feed, unless another worker holds the lock.
    pub(crate) fn end_batch(&mut self) {
        if self.held.alerts.is_empty() && self.held.flows.is_empty() {
            return;
        }
        let mut seen = match self.feed.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            // The next batch tries again.
            Err(TryLockError::WouldBlock) => return,
        };
        let (mut unshown, mut uncounted) = (0, 0);
        if seen.lines.len() + self.lines.len() <= SHARED_BYTES {
            seen.lines.extend_from_slice(self.lines.as_bytes());
        } else {
            unshown = count::lines(self.lines.as_bytes());
        }
        uncounted += add(&mut seen.alerts, &mut self.held.alerts);
        uncounted += add(&mut seen.flows, &mut self.held.flows);
        drop(seen);
        self.lines.clear();
        self.feed.unshown.fetch_add(unshown, Ordering::Relaxed);
        self.feed.uncounted.fetch_add(uncounted, Ordering::Relaxed);
    }
}

/// Moves as many items as fit. Returns the number of the others.
fn add<T>(to: &mut Vec<T>, from: &mut Vec<T>) -> u64 {
    let room = SHARED.saturating_sub(to.len()).min(from.len());
    let over = (from.len() - room) as u64;
    to.extend(from.drain(..room));
    from.clear();
    over
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Addresses, AppProtos, Header};
    use margay_packet::Time;

    fn flow(bytes: u64) -> FlowEvent<'static> {
        let [src, dst] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let addresses = Addresses { src, dst, sport: 1, dport: 2, proto: 6 };
        FlowEvent {
            header: Header { addresses: Some(addresses), ..Header::default() },
            app_protos: AppProtos::default(),
            pkts: [1, 1],
            bytes: [bytes, 1],
            start: Time(0),
            end: Time(0),
            state: "new",
            reason: "timeout",
            alerted: false,
            action: None,
            emergency: false,
            bypass: None,
            bypassed: None,
            exception_policies: &[],
            tx_cnt: 0,
            elephant: false,
            ttl: [(0, 0); 2],
            tcp: None,
        }
    }

    #[test]
    fn nobody_looks_nothing_is_held() {
        let feed = Arc::new(Feed::default());
        let mut tee = Tee::new(Arc::clone(&feed));
        tee.flow(&flow(5));
        tee.end_batch();
        assert!(feed.take(Seen::default()).flows.is_empty());
        feed.look(Some(10));
        tee.flow(&flow(5));
        assert!(feed.take(Seen::default()).flows.is_empty(), "not before the batch ends");
        tee.end_batch();
        assert_eq!(feed.take(Seen::default()).flows.iter().map(|f| f.bytes).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn events_are_made_for_it_while_somebody_looks() {
        let feed = Arc::new(Feed::default());
        let mut outputs = crate::Outputs::new(Vec::new(), Time(0), 0).unwrap();
        outputs.tell(&feed);
        for (texts, wanted) in [(None, false), (Some(1), true), (None, false)] {
            feed.look(texts);
            outputs.end_batch();
            assert_eq!(outputs.wants(EventType::Flow), wanted);
        }
    }

    #[test]
    fn what_finds_no_room_is_counted_and_nobody_waits() {
        let feed = Arc::new(Feed::default());
        let mut tee = Tee::new(Arc::clone(&feed));
        feed.look(Some(0));
        {
            let _held = feed.seen.lock().unwrap();
            for n in 0..HELD as u64 + 3 {
                tee.flow(&flow(n));
            }
            tee.end_batch();
        }
        assert_eq!(feed.left_out(), (0, 3));
        for _ in 0..SHARED / HELD {
            tee.end_batch();
            while tee.held.flows.len() < HELD {
                tee.flow(&flow(1));
            }
        }
        tee.end_batch();
        assert_eq!(feed.take(Seen::default()).flows.len(), SHARED);
        assert_eq!(feed.left_out(), (0, HELD as u64));
    }
}
