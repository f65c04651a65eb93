//! Distributes the packets of one source to several workers (`--runmode autofp`), for capture files.
//!
//! Each worker owns its flows, streams and other state, like the workers of interfaces (`live`, which also lists the state
//! that workers share). The modules here bring the packets to the workers:
//!
//! - `fragments`: handles frames whose headers lack the ports; `assign`: remembers the worker of a flow, if its hash does not
//!   decide.
//! - `feeder`: reads frames, and puts lists of frames (`item`) into the workers' queues. The lists refer to the reader's
//!   buffers.
//! - From `spread`: the flow of a frame (`steer`), the lists (`piece`), and the help of idle workers (`ahead`).
//! - `turns`: decides which worker reads. There is no reader thread; an idle worker reads.
//! - `moves`: moves flows between workers, and explains why this cannot deadlock; `mover`: a worker's part in it; `handover`:
//!   passes a value from one worker to another.
//! - `order`: makes a worker wait before its rules touch state that all workers share; `whereabouts`: skips waits for workers
//!   that did not see the host.
//! - `worker_setup`: a worker's thread. `report`: the sum of all workers' statistics.
//! - `costs`: measures the cost of packets on one worker, for the simulation of many (`margay lab parallel`). `measure`:
//!   measures the cost of distribution (`margay lab steering`).
//!
//! # The same alerts
//!
//! All packets that a flow's alerts depend on go to one worker, in file order. Workers access shared state in file order as
//! well. Each piece of work carries the time of the whole packet stream, so flows end at the same time as with one worker.

mod assign;
mod costs;
mod feeder;
mod fragments;
mod handover;
mod item;
mod measure;
mod mover;
mod moves;
mod order;
mod report;
mod settings;
mod sync;
mod turns;
mod whereabouts;
mod worker_setup;

use std::path::Path;
use std::sync::{Arc, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use margay_capture::{Progress, ProgressDisplay, Style};
use margay_config::RunOptions;
use margay_flow::FlowConfig;
use margay_output::remote::WhenFull;
use margay_output::{error, info, notice, warning};

use crate::Failed;
use crate::control::Control;
use crate::exception::Policies;
use crate::files::{self, Input};
use crate::keys::HashKeys;
use crate::live::cpus::Cpus;
use crate::profiling::Profiling;
use crate::settings as all;
use crate::spread::steer::{Exact, Keys, Steering};
use crate::threads::once;
use crate::watching::Watching;
use assign::Assigned;
pub(crate) use costs::PacketCosts;
use feeder::{Reading, Shared, Way};
pub use measure::run as bench_steering;
use report::Report;
use settings::Scheduler;
pub(crate) use settings::{Autofp, autofp, check_run_mode};
use worker_setup::{Final, WorkerSetup};

/// Interval of the checks for signals.
const STEP: Duration = Duration::from_millis(20);

/// The input, and its tenant.
pub(crate) struct Job<'a> {
    pub(crate) options: &'a RunOptions,
    pub(crate) policies: &'a Policies,
    /// The log folder.
    pub(crate) dir: &'a Path,
    /// The tenant; 0 stands for the engine's own rules.
    pub(crate) tenant: u32,
}

impl Autofp {
    /// Reads a capture with several workers. Returns the number of alerts.
    ///
    /// # Errors
    /// A worker cannot start.
    pub(crate) fn read(&self, control: &Arc<Control>, input: Input, job: &Job<'_>) -> Result<u64, Failed> {
        let config = &control.config;
        let workers = self.workers;
        let mut first = all::open_files(config, job.dir, workers, WhenFull::Wait)?;
        if all::writer_thread(config, workers)? {
            first.write_aside(all::WORTH);
        }
        first.tell(&control.watched.feed);
        let beside = first.beside();
        let mut outputs = vec![first];
        for number in 1..workers {
            if let Some(o) = outputs.first_mut() {
                let shared = o.share(number, all::now(), number as u64);
                outputs.push(shared.map_err(|e| Failed::new("logopenfile", e.to_string()))?);
            }
        }
        let decode = all::decode(config, false)?;
        let config_flow = all::flow(config)?;
        let keys = HashKeys::of(job.options);
        let steering = Steering {
            pairs: self.scheduler == Scheduler::IpPair,
            tunnels: vec![decode.vxlan, decode.geneve, decode.teredo],
            exact: match self.scheduler {
                Scheduler::Moving(..) => Some(Exact { key: keys.table, vlans: config_flow.vlan_use_for_tracking }),
                _ => None,
            },
            keys: Keys::of(&keys.table),
        };
        let Input { source, delete, batch, checks } = input;
        let reading = Reading { source, checks, delete, batch };
        let life = longest_life(&config_flow);
        let assigned = match self.scheduler {
            Scheduler::ShortestQueue | Scheduler::Moving(..) => Some(Assigned::new(life)),
            Scheduler::Adaptive | Scheduler::Hash | Scheduler::IpPair => None,
        };
        let moves = match self.scheduler {
            Scheduler::Moving(_, rules) => Some(rules),
            _ => None,
        };
        let way = Way { steering, assigned, moves, life };
        let helping = self.scheduler == Scheduler::Adaptive && self.search_ahead;
        let (shared, inboxes) = Shared::new(Arc::clone(control), reading, way, workers, helping);
        let shared = Arc::new(shared);
        let files = all::files(config, job.dir, job.options)?;
        let cpus = Arc::new(Cpus::from_config(config)?);
        let stack = all::stack_size(config)?;
        let (ready, told) = mpsc::channel();
        let mut threads: Vec<JoinHandle<Option<Final>>> = Vec::new();
        let mut starters = Vec::new();
        for (number, (outputs, inbox)) in outputs.into_iter().zip(inboxes).enumerate() {
            let (go, wait) = mpsc::channel();
            starters.push(go);
            let setup = WorkerSetup {
                control: Arc::clone(control),
                options: job.options.clone(),
                policies: *job.policies,
                number,
                workers,
                dir: job.dir.to_owned(),
                tenant: job.tenant,
                outputs,
                files: files.clone(),
                cpus: Arc::clone(&cpus),
                inbox,
                shared: Arc::clone(&shared),
                ready: ready.clone(),
                go: wait,
            };
            let name = format!("W#{:02}", number + 1);
            let handle = std::thread::Builder::new()
                .name(name.clone())
                .stack_size(stack)
                .spawn(move || setup.run())
                .map_err(|e| Failed::new("threads", format!("cannot start the thread {name}: {e}")))?;
            threads.push(handle);
        }
        drop(ready);
        let mut made = Ok(());
        for _ in 0..workers {
            let said =
                told.recv().unwrap_or_else(|_| Err(Failed::new("threads", "a worker's thread ended before it began")));
            made = made.and(said);
        }
        if control.queue.is_none() {
            // In this mode files are submitted later, and the engine is ready before the first one.
            made = made.and_then(|()| control.ready());
        }
        if let Err(f) = made {
            // Workers that are ready must not start.
            drop(starters);
            threads.into_iter().for_each(|t| drop(t.join()));
            return Err(f);
        }
        cpus.place_manager();
        info!("runmodes", "autofp: {workers} workers, scheduler {}", self.scheduler.name());
        for go in starters {
            // A worker that has already ended is noticed at the end.
            let _ = go.send(());
        }
        let mut report = Report::new(config, control, beside)?;
        stand_by(control, job.options, &threads, &shared, &mut report);
        let mut finals: Vec<Final> = Vec::new();
        let mut failed = false;
        for t in threads {
            match t.join() {
                Ok(f) => finals.extend(f),
                Err(_) => failed = true,
            }
        }
        let alerts = self.tell(control, job, &shared, finals, report)?;
        match failed {
            true => Err(Failed::new("threads", "a worker's thread failed: what it had is lost")),
            false => Ok(alerts),
        }
    }

    /// Logs the results.
    fn tell(
        &self,
        control: &Control,
        job: &Job<'_>,
        shared: &Shared,
        mut finals: Vec<Final>,
        mut report: Report,
    ) -> Result<u64, Failed> {
        finals.sort_by_key(|f| f.number);
        let mut feeder = shared.feeder.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counters = feeder.counters();
        for f in &finals {
            counters.add(f);
        }
        // From the first packet to the end of the last flow, including the last writes.
        let inspected = finals.iter().map(|f| f.ended).max().zip(feeder.began).map(|(e, b)| e.duration_since(b));
        let before = Instant::now();
        report.last(&finals, &counters);
        let lost = report.lost();
        if let Some(inspected) = inspected {
            info!("pcap", "inspected in {:.6} s", (inspected + before.elapsed()).as_secs_f64());
        }
        let (files, c) = feeder.read_so_far();
        let s = if files == 1 { "" } else { "s" };
        notice!("pcap", "read {files} file{s}, {} packets, {} bytes", c.frames, c.bytes);
        info!("runmodes", "autofp: {} turns of reading, {} ended by a full queue", counters.turns, counters.stalls);
        if counters.assigned != 0 {
            info!(
                "runmodes",
                "autofp: {} flows assigned, {} packets went by their hash: no room",
                counters.assigned,
                counters.unplaced
            );
        }
        if matches!(self.scheduler, Scheduler::Moving(..)) {
            info!(
                "runmodes",
                "autofp: moved {} flows, {} with what was known of them; waited {} times, {:.3} s",
                counters.moves,
                counters.given,
                counters.waits,
                counters.waited.as_secs_f64()
            );
        }
        for f in &finals {
            info!(
                "runmodes",
                "autofp: W#{:02}: {} packets, most waiting {}, read {} times, slept {} times, {:.3} s; waited for others {} times, {:.3} s; looked through {} payloads for others, others {} for it",
                f.number + 1,
                f.packets,
                counters.longest.get(f.number).copied().unwrap_or_default(),
                f.turns,
                f.sleeps,
                f.slept.as_secs_f64(),
                f.waits,
                f.waited.as_secs_f64(),
                f.looked_through,
                f.taken_over
            );
        }
        if let (Watching::Profile(_), Some(p)) = (&control.watching, Profiling::of(&control.config, job.dir)?) {
            crate::live::profile(&p, finals.iter().filter_map(|f| f.costs.as_ref()));
        }
        files::complete(lost)?;
        match feeder.refused.take() {
            Some(refused) => Err(refused),
            None => Ok(finals.iter().map(|f| f.alerts).sum()),
        }
    }
}

/// The longest time that a silent flow lives, in seconds.
fn longest_life(config: &FlowConfig) -> u32 {
    let t = &config.timeouts;
    let pairs = [t.default, t.tcp, t.udp, t.icmp];
    let all = pairs.iter().flat_map(|p| [p.normal, p.emergency]);
    all.flat_map(|t| [t.new, t.established, t.closed, t.bypassed]).max().unwrap_or(0)
}

/// Waits until all workers have ended.
fn stand_by(
    control: &Control,
    options: &RunOptions,
    threads: &[JoinHandle<Option<Final>>],
    shared: &Shared,
    report: &mut Report,
) {
    let stderr = std::io::stderr();
    let style = Style::of(&stderr);
    let show = style == Style::Terminal || options.verbose > 0;
    let mut display = ProgressDisplay::new(std::io::stderr(), style, Instant::now());
    let progress = || -> Progress { *shared.progress.lock().unwrap_or_else(PoisonError::into_inner) };
    let mut said = false;
    let mut reports = true;
    while !threads.iter().all(JoinHandle::is_finished) {
        if control.signals.stop() && !said {
            said = true;
            notice!("suricata", "Signal Received.  Stopping engine.");
        }
        if control.signals.rotate() {
            margay_output::log::reopen();
            if control.ask(|w, _| w.pipeline.stages.outputs.reopen(all::now())).is_err() {
                warning!("output", "a worker did not open its log files anew: it did not answer in time");
            }
        }
        if show && display.update(&progress(), Instant::now()).is_err() {
            // Standard error was closed; the capture continues.
        }
        if reports && once(|| report.tick(None)).is_none() {
            reports = false;
            error!("counters", "statistics failed: none are written until the end of the capture");
        }
        // A worker that ends wakes this thread.
        std::thread::park_timeout(STEP);
    }
    if show && display.finish(&progress(), Instant::now()).is_err() {
        // Standard error was closed.
    }
    if control.queue.as_ref().is_some_and(|q| q.interrupt.load(std::sync::atomic::Ordering::Relaxed)) {
        notice!("pcap", "reading was interrupted");
    }
}
