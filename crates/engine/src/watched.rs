//! Live views: once a second, a thread asks each worker for its counters, collects the events that the workers put aside, and
//! passes both to [`margay_watch::Hub`], for the socket's command `watch`, the live page and the metrics.
//!
//! A worker answers between two batches, as for every command. The thread does not wait for late workers, and shows their
//! previous values instead. Without viewers, it sends no requests.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use margay_output::OutputCounters;
use margay_output::eve::Seen;
use margay_output::info;
use margay_watch::model::{About, Counters, Memory, RuleCost, Sample, WorkerSample};

use crate::control::Control;
use crate::live::losses::{Host, Row};
use crate::service::{Web, thread};
use crate::stats::{self, Reporter};
use crate::watching::Watching;
use crate::worker::{End, Worker};
use crate::{Failed, threads};

/// Interval of samples.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the checks for viewers, and for the end of the engine.
const STEP: Duration = Duration::from_millis(100);
/// Limit of the time that a sample waits for all workers together.
const PATIENCE: Duration = Duration::from_millis(800);
/// Limit of the alerts per second that are collected as text, from all workers together.
const TEXTS: u32 = 1000;
/// Limit of the most expensive rules that a worker reports, and that are shown.
const RULES_TOLD: usize = 200;
const RULES: usize = 20;
/// Rule costs are requested once in this many samples.
const RULES_EVERY: u64 = 5;

/// Starts the thread that takes samples, and the one that serves the page, if it is on.
///
/// # Errors
/// A thread cannot start.
pub(crate) fn start(control: &Arc<Control>, web: Option<Web>) -> Result<(), Failed> {
    if let Some(Web { listener, settings }) = web {
        let hub = Arc::clone(&control.watched.hub);
        hub.always();
        let control = Arc::clone(control);
        let access = margay_watch::web::Access { listen: settings.listen, token: settings.token };
        info!("web", "http://{}/ shows this engine, /metrics its counters", settings.listen);
        thread("web", move || {
            threads::persist("the live page", || {
                margay_watch::web::serve(&listener, &hub, &access, &|name| stats::is_most(name), &|| {
                    control.signals.stop()
                });
            });
        })?;
    }
    let control = Arc::clone(control);
    thread("watch", move || {
        threads::persist("who watches the engine", || Watcher::new(&control).run());
    })
}

/// A worker's report.
struct WorkerReport {
    name: String,
    thread: i32,
    counters: Counters,
    memory: Vec<Memory>,
    /// The counters of all workers' outputs.
    outputs: OutputCounters,
    ends: Vec<End>,
    /// The costs of its rules, if they were requested: the sum, and the highest.
    costs: Option<(u64, Vec<RuleCost>)>,
}

struct Watcher<'a> {
    control: &'a Arc<Control>,
    /// The last report of each worker, by thread id.
    workers: BTreeMap<i32, WorkerReport>,
    /// The counters of each interface before the first packet.
    before: Option<Vec<(String, Host)>>,
    samples: u64,
    seen: Seen,
}

impl Watcher<'_> {
    fn new(control: &Arc<Control>) -> Watcher<'_> {
        Watcher { control, workers: BTreeMap::new(), before: None, samples: 0, seen: Seen::default() }
    }

    fn run(&mut self) {
        let mut next = Instant::now();
        let mut looking = false;
        while !self.control.signals.stop() {
            self.interfaces();
            let wanted = self.control.watched.hub.is_wanted();
            if !wanted && looking {
                self.control.watched.feed.look(None);
            }
            looking = wanted;
            if wanted && Instant::now() >= next {
                next = Instant::now() + INTERVAL;
                margay_packet::fault::point("watch");
                self.events();
                let sample = self.sample();
                self.control.watched.hub.take(sample);
            }
            std::thread::sleep(STEP);
        }
        self.control.watched.feed.look(None);
    }

    /// Records once the initial counters of cards and host.
    fn interfaces(&mut self) {
        if let (None, Some(live)) = (&self.before, self.control.live.get()) {
            let host = if live.capture == "NFQ" { Host::of_queue } else { Host::of };
            self.before = Some(live.interfaces.iter().map(|i| (i.clone(), host(i))).collect());
        }
    }

    /// Collects the events that workers put aside, and lets them put aside more.
    fn events(&mut self) {
        let watched = &self.control.watched;
        let mut empty = std::mem::take(&mut self.seen);
        empty.lines.clear();
        empty.alerts.clear();
        empty.flows.clear();
        let seen = watched.feed.take(empty);
        watched.feed.look(Some(TEXTS));
        let (unshown, uncounted) = watched.feed.left_out();
        let mut feed = watched.hub.feed();
        feed.lines(&seen.lines);
        seen.alerts.iter().for_each(|a| feed.alert(a.gid, a.sid, a.addresses));
        seen.flows.iter().for_each(|f| feed.flow(f.addresses, f.bytes));
        feed.left_out(unshown, uncounted);
        drop(feed);
        self.seen = seen;
    }

    /// Requests reports from all workers at once, and waits for them together. Returns the number of late workers.
    fn ask(&mut self) -> u64 {
        let costs = matches!(self.control.watching, Watching::Profile(_)) && self.samples.is_multiple_of(RULES_EVERY);
        let (send, receive) = mpsc::channel();
        let mut asked = 0u64;
        for post in self.control.workers() {
            let send = send.clone();
            let order = post.send(Box::new(move |w, r| {
                // The sampler may have stopped waiting.
                let _ = send.send(tell(w, r, costs));
            }));
            asked += u64::from(order.is_ok());
        }
        drop(send);
        if asked == 0 {
            self.workers.clear();
        }
        let end = Instant::now() + PATIENCE;
        let mut answered = 0;
        while answered < asked {
            let Ok(mut told) = receive.recv_timeout(end.saturating_duration_since(Instant::now())) else { break };
            answered += 1;
            if let (None, Some(before)) = (&told.costs, self.workers.get_mut(&told.thread)) {
                told.costs = before.costs.take();
            }
            self.workers.insert(told.thread, told);
        }
        // Threads that have ended do not come back.
        self.workers.retain(|thread, _| std::path::Path::new(&format!("/proc/self/task/{thread}")).exists());
        asked - answered
    }

    fn sample(&mut self) -> Sample {
        let late = self.ask();
        self.samples += 1;
        let control = self.control;
        let mut totals = Counters::new();
        let mut outputs = None;
        let mut workers: Vec<WorkerSample> = Vec::new();
        for told in self.workers.values() {
            stats::add(&mut totals, told.counters.clone());
            outputs = Some(&told.outputs);
            workers.push(WorkerSample {
                name: told.name.clone(),
                interface: told.ends.iter().map(|e| e.interface.as_str()).collect::<Vec<_>>().join(","),
                cpu: processor_time(told.thread),
                counters: told.counters.clone(),
                memory: told.memory.clone(),
            });
        }
        totals.extend(outputs.map(stats::of_engine).unwrap_or_default());
        workers.sort_by(|a, b| (&a.interface, &a.name).cmp(&(&b.interface, &b.name)));
        let rows = self.rows();
        let sum = |f: fn(&Host) -> u64| rows.iter().map(|r| f(&r.host)).sum::<u64>();
        if let Some(first) = rows.first() {
            let host = [
                ("capture.nic.received", sum(|h| h.received)),
                ("capture.nic.lost", sum(|h| h.lost)),
                ("capture.softnet.dropped", first.host.softnet),
                ("capture.softnet.time_squeezed", first.host.squeezed),
                ("capture.engine.lost", rows.iter().map(Row::engine_lost).sum()),
            ];
            totals.extend(host.map(|(n, v)| (n.to_owned(), v)));
        }
        totals.push(("watchdog.stuck".to_owned(), control.watch.stuck()));
        let interfaces = rows.iter().map(|r| {
            let mut counters = Counters::new();
            r.for_each(&mut |name, value| counters.push((name.to_owned(), value)));
            (r.interface.clone(), counters)
        });
        let engines = control.engines().stats();
        let live = control.live.get();
        Sample {
            at: Instant::now(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0)),
            uptime: control.started.elapsed().as_secs(),
            about: About {
                version: crate::VERSION.to_owned(),
                mode: live.map_or(if workers.len() > 1 { "autofp" } else { "single" }, |l| l.mode).to_owned(),
                capture: live.map_or("PCAP_FILE", |l| l.capture).to_owned(),
                interfaces: live.map_or_else(Vec::new, |l| l.interfaces.clone()),
                rules_loaded: engines.iter().map(|e| e.rules_loaded).sum(),
                rules_failed: engines.iter().map(|e| e.rules_failed).sum(),
            },
            interfaces: interfaces.collect(),
            totals,
            workers,
            process_cpu: process_time(),
            resident: resident(),
            rules: self.rules(),
            late,
        }
    }

    /// Received and lost packets of each interface.
    fn rows(&self) -> Vec<Row> {
        let row = |(name, before): &(String, Host)| {
            let mut row = Row { interface: name.clone(), host: before.again(name).since(before), ..Row::default() };
            for e in self.workers.values().flat_map(|w| &w.ends).filter(|e| e.interface == *name) {
                row.live.add(&e.live);
                row.decoded += e.decoded;
                row.invalid_checksums += e.invalid_checksums;
            }
            row
        };
        self.before.iter().flatten().map(row).collect()
    }

    /// The costs of rules over all workers, the most expensive first.
    fn rules(&self) -> Vec<RuleCost> {
        let mut sums: BTreeMap<(u32, u32), RuleCost> = BTreeMap::new();
        let mut total = 0u64;
        for (all, rules) in self.workers.values().filter_map(|w| w.costs.as_ref()) {
            total = total.saturating_add(*all);
            for r in rules {
                let sum = sums.entry((r.gid, r.sid)).or_insert_with(|| RuleCost {
                    checks: 0,
                    matches: 0,
                    ticks: 0.0,
                    ..r.clone()
                });
                (sum.checks, sum.matches, sum.ticks) =
                    (sum.checks + r.checks, sum.matches + r.matches, sum.ticks + r.ticks);
            }
        }
        let mut list: Vec<RuleCost> = sums.into_values().collect();
        list.sort_by(|a, b| b.ticks.total_cmp(&a.ticks));
        list.truncate(RULES);
        for r in &mut list {
            r.percent = if total == 0 { 0.0 } else { r.ticks * 100.0 / total as f64 };
            r.ticks /= r.checks.max(1) as f64;
        }
        list
    }
}

/// A worker's report, created by the worker itself.
fn tell(worker: &mut Worker, reporter: &mut Reporter, costs: bool) -> WorkerReport {
    let counters = reporter.counters(worker);
    let memory = stats::memory(worker).into_iter();
    let memory = memory.map(|(name, used, cap)| Memory { name: name.to_owned(), used, cap }).collect();
    let costs = if costs { cost(worker) } else { None };
    let captured = worker.pipeline.stages.captured.as_ref();
    let this = std::thread::current();
    // A single worker of a capture file runs in the process's first thread.
    let own = this.name().filter(|n| *n != "main").unwrap_or("W#01");
    WorkerReport {
        name: captured.map_or_else(|| own.to_owned(), |c| c.thread.clone()),
        thread: rustix::thread::gettid().as_raw_nonzero().get(),
        counters,
        memory,
        outputs: worker.pipeline.stages.outputs.counters(),
        ends: captured.map_or_else(Vec::new, |c| c.ends.clone()),
        costs,
    }
}

/// The costs of the engine's own rules at this worker: the sum in ticks, and the most expensive rules.
fn cost(worker: &mut Worker) -> Option<(u64, Vec<RuleCost>)> {
    let (detect, state) = worker.pipeline.stages.own()?;
    let costs = state.costs();
    let mut ranked: Vec<(u64, usize)> =
        costs.iter().enumerate().filter(|(_, c)| c.checks > 0).map(|(n, c)| (c.ticks, n)).collect();
    let total = ranked.iter().fold(0u64, |sum, r| sum.saturating_add(r.0));
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.truncate(RULES_TOLD);
    let rule = |(_, n): (u64, usize)| {
        let (r, c) = (detect.rules().get(n)?, costs.get(n)?);
        let message = r.msg.to_string();
        let (checks, matches, ticks) = (c.checks, c.matches, c.ticks as f64);
        Some(RuleCost { gid: r.gid, sid: r.sid, message, percent: 0.0, checks, matches, ticks })
    };
    Some((total, ranked.into_iter().filter_map(rule).collect()))
}

/// Processor time of a thread of this process.
fn processor_time(thread: i32) -> Duration {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default();
    // In nanoseconds if the kernel supplies them, or else in hundredths of a second.
    let exact = read("schedstat").split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    exact.map_or_else(|| ticks(&read("stat")), Duration::from_nanos)
}

/// `/proc/…/stat`: user and system time are the 14th and 15th fields. The second field is a name in brackets.
fn ticks(stat: &str) -> Duration {
    let behind = stat.rsplit_once(')').map_or("", |s| s.1);
    let times = behind.split_ascii_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok());
    Duration::from_millis(times.sum::<u64>() * 1000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Processor time of all threads.
fn process_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Resident memory of the process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_counts() {
        assert_eq!(ticks("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20").as_millis(), 2000);
        assert_eq!(ticks("").as_millis(), 0);
        let before = processor_time(rustix::thread::gettid().as_raw_nonzero().get());
        let mut sum = 0u64;
        while process_time() < Duration::from_millis(30) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_time(rustix::thread::gettid().as_raw_nonzero().get()) >= before);
        assert!(resident() > 1 << 20);
    }
}
