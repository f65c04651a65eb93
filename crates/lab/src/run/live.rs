//! An engine with a load on a wire.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Moment;
use crate::cpus::Cpus;
use crate::engine::{Contract, Counts, From, Running};
use crate::load::{Interfaces, Latency, Order, Pair, Probe, Sender, Sent, Wire, softnet_drops};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::quiet::{Company, Witness};
use crate::stages::{Counted, Losses};
use crate::watch::Watch;

/// The timing of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Times {
    /// The time before ring losses count: it fills queues and caches.
    pub(crate) warm_up: Duration,
    /// The time after that.
    pub(crate) hold: Duration,
    /// The sampling period.
    pub(crate) period: Duration,
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    /// The requested rate in packets a second.
    pub(crate) rate: f64,
    pub(crate) counted: Counted,
    pub(crate) losses: Losses,
    /// The same of each interface, if there are several.
    pub(crate) each: Vec<(Counted, Losses)>,
    /// Cores that the engine kept busy after the warm-up.
    pub(crate) busy: f64,
    /// Cores of the whole machine that were busy after the warm-up, kernel and sender included.
    pub(crate) host: f64,
    /// Peak memory of the engine so far, in bytes.
    pub(crate) peak: f64,
    /// Latency of the probe flow after the warm-up, through an inline engine.
    pub(crate) latency: Option<Latency>,
    /// Other activity on the machine after the warm-up.
    pub(crate) company: Company,
}

/// Busy seconds of all processors since the machine started.
fn host_busy() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_of(text.lines().next().unwrap_or_default()) / rustix::param::clock_ticks_per_second() as f64
}

/// The busy ticks in a line of `/proc/stat`: user, nice, system, interrupts; NaN if the line is invalid.
fn busy_of(line: &str) -> f64 {
    let ticks: Vec<f64> = line.split_ascii_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    match ticks[..] {
        [user, nice, system, _, _, irq, softirq, ..] => user + nice + system + irq + softirq,
        _ => f64::NAN,
    }
}

/// The packets that had passed each interface at one time.
struct Glance {
    /// The engine's counts, as last read.
    counts: Vec<Counts>,
    /// The engine's interfaces.
    there: Interfaces,
    /// The sender's.
    here: Interfaces,
}

impl Glance {
    fn at(running: Option<&Running>, pid: Option<u32>) -> Glance {
        let counts = running.map_or_else(Vec::new, Running::counts_by_interface);
        Glance { counts, there: Interfaces::read(pid), here: Interfaces::read(None) }
    }

    fn counts(&self, interface: usize) -> Counts {
        self.counts.get(interface).copied().unwrap_or(Counts::UNKNOWN)
    }
}

/// The counts and losses of each interface, from glances before the load, after the warm-up and at the end. The kernel's
/// queues belong to no interface, so what they dropped is in the loss on the link.
fn by_interface(pairs: &[Pair], [first, warm, last]: [&Glance; 3], seconds: f64) -> Vec<(Counted, Losses)> {
    let of = |(at, pair): (usize, &Pair)| {
        let sent = |from: &Glance| last.here.sent(&pair.sender) - from.here.sent(&pair.sender);
        let since = last.counts(at).since(&warm.counts(at));
        let (there, name) = (&last.there, &pair.engine);
        let counted = Counted {
            sent: Sent { offered: sent(first), packets: sent(first), bytes: f64::NAN, seconds, late: f64::NAN },
            card: there.lost(name) - first.there.lost(name),
            softnet: f64::NAN,
            interface: there.received(name) - first.there.received(name),
            engine: last.counts(at).since(&first.counts(at)),
            held_sent: sent(warm),
            held_received: since.received,
            held_dropped: since.dropped,
            forwarded: f64::NAN,
        };
        (counted, Losses::of(&counted))
    };
    pairs.iter().enumerate().map(of).collect()
}

/// An engine, a sender and the connection between them.
pub(crate) struct Rig {
    contract: Contract,
    wire: Option<Wire>,
    sender: Box<dyn Sender>,
    times: Times,
    dir: PathBuf,
    short: PathBuf,
    running: Option<(Running, Watch)>,
    /// Number of engine folders so far.
    starts: u32,
    /// The engine's counters, if they have settled and nothing was sent since.
    rested: Option<Counts>,
    /// CPUs of the latency probe.
    pub(crate) probe_cpus: Cpus,
    /// Sources that could not be sampled.
    pub(crate) notes: Vec<String>,
    /// Last, so that its things are removed after everything else has ended.
    session: Session,
}

impl Rig {
    /// An engine that reads from `wire`, or from its socket if there is none, what `sender` sends. Files go to `dir`;
    /// `short` is the session's folder, for sockets.
    pub(crate) fn new(
        contract: Contract,
        wire: Option<Wire>,
        sender: Box<dyn Sender>,
        times: Times,
        dir: &Path,
        short: PathBuf,
        session: Session,
    ) -> Rig {
        let (dir, running, notes) = (dir.to_owned(), None, Vec::new());
        let probe_cpus = Cpus::default();
        Rig { probe_cpus, contract, wire, sender, times, dir, short, running, starts: 1, rested: None, notes, session }
    }

    /// Describes the sender.
    pub(crate) fn describe(&self) -> String {
        self.sender.describe()
    }

    fn engine(&mut self) -> Outcome<&mut Running> {
        if self.contract.restart {
            self.stop()?;
        }
        if self.running.is_none() {
            let from = match &self.wire {
                Some(wire) => From::wire(wire),
                None => From::Socket,
            };
            // Each start of the engine gets a new folder, also when a measurement is resumed. Files of an earlier engine
            // are neither read nor overwritten.
            let mut dir = self.dir.clone();
            while dir.join("console.log").exists() {
                self.starts += 1;
                dir = self.dir.join(format!("start-{}", self.starts));
            }
            let running = Running::start(&self.contract, &from, &dir, &self.short, &mut self.session)?;
            let watch = Watch::start(running.pid(), running.counters(), self.times.period, &dir);
            self.running = Some((running, watch));
        }
        match &mut self.running {
            Some((running, _)) => Ok(running),
            None => Err(Problem::Failed("the engine does not run".to_owned())),
        }
    }

    fn stop(&mut self) -> Outcome<()> {
        let Some((running, watch)) = self.running.take() else { return Ok(()) };
        let ended = running.stop();
        let notes = watch.end()?;
        self.notes.extend(notes);
        self.notes.sort();
        self.notes.dedup();
        ended.map(|_| ())
    }

    /// Sends at `rate` packets a second, and returns what happened to the packets.
    ///
    /// # Errors
    /// If the engine does not get ready or ends, if the sender fails, or on a request to stop.
    pub(crate) fn trial(&mut self, rate: f64) -> Outcome<Trial> {
        let times = self.times;
        let doing = format!("at {rate:.0} packets a second");
        // Receivers on the engine's side, senders on the sender's.
        let (receivers, sending_on) = self
            .wire
            .as_ref()
            .map_or_else(|| (vec![String::new()], Vec::new()), |wire| (wire.engines(), wire.senders()));
        let inline = self.wire.as_ref().is_some_and(|wire| wire.far.is_some());
        let sum = |names: &[String], of: &dyn Fn(&str) -> f64| names.iter().map(|name| of(name)).sum::<f64>();
        let arrived = || {
            let read = Interfaces::read(None);
            if inline { sum(&sending_on, &|name| read.received(name)) } else { f64::NAN }
        };
        // Wait until earlier packets have passed.
        let before = match self.rested.take() {
            Some(counts) if self.running.is_some() && !self.contract.restart => counts,
            _ => self.engine()?.settle(None, Duration::from_secs(30))?,
        };
        let pid = self.engine_pid();
        let (wire_before, softnet_before, arrived_before) = (Interfaces::read(pid), softnet_drops(), arrived());
        let first = Glance::at(self.running.as_ref().map(|(running, _)| running), pid);
        let order = Order { rate, time: times.warm_up + times.hold };
        let mut sending = self.sender.start(order, &mut self.session)?;
        let running = self.running.as_mut().map(|(running, _)| running);
        let running = running.ok_or_else(|| Problem::Failed("the engine does not run".to_owned()))?;
        running.keep(times.warm_up, &format!("while warming up {doing}"))?;
        let (middle, sent_middle) = (running.counts(), sending.so_far().unwrap_or(0.0));
        let warm = Glance::at(Some(running), pid);
        let witness = Witness::begin();
        let (busy_middle, host_middle, at_middle) = (running.busy(), host_busy(), Moment::now());
        let wire = self.wire.as_ref();
        let probe = match wire.and_then(|wire| Some((wire.pairs.first()?, wire.far.as_ref()?))) {
            Some((near, far)) => Some(Probe::start(&near.sender, far, &self.probe_cpus)?),
            None => None,
        };
        let mut over = Duration::ZERO;
        while !sending.done()? {
            running.keep(Duration::from_millis(20), &doing)?;
            over += Duration::from_millis(20);
            if over > times.hold * 2 + Duration::from_secs(30) {
                return Err(Problem::Failed(format!(
                    "the sender on {} does not end {doing}",
                    sending_on.join(" and ")
                )));
            }
        }
        let held = Moment::now().since(at_middle).as_secs_f64();
        let (busy, host) = ((running.busy() - busy_middle) / held, (host_busy() - host_middle) / held);
        let company = witness.end();
        let sent = match sending.report() {
            Ok(sent) => sent,
            Err(problem) => {
                // Nearly always because the engine ended, and that is the better report.
                running.keep(Duration::from_millis(500), &doing)?;
                return Err(problem);
            }
        };
        drop(sending);
        let probed = probe.map(Probe::end);
        // The probe's packets pass through the engine too, and are counted there.
        let own = probed.as_ref().map_or(0.0, |(_, own)| *own);
        let latency = probed.and_then(|(latency, _)| latency);
        let after = running.settle(Some((before, sent.packets + own)), Duration::from_secs(30))?;
        self.rested = Some(after);
        let wire_after = Interfaces::read(pid);
        let last = Glance::at(Some(running), pid);
        let pairs = self.wire.as_ref().map_or(&[][..], |wire| &wire.pairs);
        let each = if pairs.len() > 1 { by_interface(pairs, [&first, &warm, &last], sent.seconds) } else { Vec::new() };
        let since = after.since(&middle);
        let counted = Counted {
            sent,
            card: sum(&receivers, &|name| wire_after.lost(name) - wire_before.lost(name))
                + self
                    .wire
                    .as_ref()
                    .and_then(|wire| wire.tap.as_ref())
                    .map_or(0.0, |tap| wire_after.refused(tap) - wire_before.refused(tap)),
            softnet: softnet_drops() - softnet_before,
            interface: sum(&receivers, &|name| wire_after.received(name) - wire_before.received(name)),
            engine: after.since(&before),
            held_sent: sent.packets - sent_middle,
            held_received: since.received,
            held_dropped: since.dropped,
            forwarded: arrived() - arrived_before,
        };
        if !counted.engine.decoded.is_finite() {
            return Err(Problem::Failed(format!(
                "engine {} wrote no counters, so its losses are unknown: `decoded` was not found{}",
                self.contract.name,
                self.contract.counters.as_ref().map_or_else(String::new, |at| format!(" in {}", at.file))
            )));
        }
        let peak = self.running.as_ref().map_or(f64::NAN, |(running, _)| running.peak());
        Ok(Trial { rate, counted, losses: Losses::of(&counted), each, busy, host, peak, latency, company })
    }

    fn engine_pid(&self) -> Option<u32> {
        self.running.as_ref().map(|(running, _)| running.pid())
    }

    /// Stops the engine.
    ///
    /// # Errors
    /// If it does not stop, or samples could not be written.
    pub(crate) fn end(mut self) -> Outcome<Vec<String>> {
        self.stop()?;
        Ok(std::mem::take(&mut self.notes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::Stage;

    #[test]
    fn each_interface_has_its_own_losses() {
        let dev =
            |name: &str, received: u32, sent: u32| format!("{name}: 0 {received} 0 0 0 0 0 0 0 {sent} 0 0 0 0 0 0\n");
        let counts =
            |received: f64, dropped: f64| Counts { received, dropped, decoded: received - dropped, ..Counts::UNKNOWN };
        let glance = |n: u32, counts: Vec<Counts>| Glance {
            counts,
            there: Interfaces::of(&format!("\n\n{}{}", dev("e", n, 0), dev("e2", n, 0))),
            here: Interfaces::of(&format!("\n\n{}{}", dev("s", 0, n), dev("s2", 0, n + n / 4))),
        };
        let pair = |sender: &str, engine: &str| Pair { sender: sender.to_owned(), engine: engine.to_owned() };
        let first = glance(0, Vec::new());
        let warm = glance(200, vec![counts(200.0, 0.0), counts(200.0, 50.0)]);
        let last = glance(1000, vec![counts(1000.0, 0.0), counts(1000.0, 450.0)]);
        let each = by_interface(&[pair("s", "e"), pair("s2", "e2")], [&first, &warm, &last], 1.0);
        assert_eq!(each.iter().map(|(counted, _)| counted.sent.packets).collect::<Vec<_>>(), [1000.0, 1250.0]);
        assert_eq!((each[0].1.total(), each[1].0.engine.decoded), (0.0, 550.0));
        // A fifth was lost on the way; half of the others after the warm-up.
        let lost = |stage| each[1].1.at(stage);
        assert!((lost(Stage::Link) - 0.2).abs() < 1e-9 && (lost(Stage::Ring) - 0.4).abs() < 1e-9, "{each:?}");
    }

    #[test]
    fn idle_and_waiting_is_not_busy() {
        assert_eq!(super::busy_of("cpu  10 1 20 5000 300 2 3 0 0 0"), 36.0);
        assert!(super::busy_of("").is_nan());
    }
}
