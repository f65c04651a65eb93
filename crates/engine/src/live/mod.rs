//! Live capture: one thread for each worker of an interface, and a manager thread.
//!
//! [`Plan::run`] starts a thread for each worker. The thread creates its worker and its socket itself (`thread`), so that
//! their memory is near its CPU, and reports when it is ready. When all are ready, packets are let in. The manager thread
//! handles signals and statistics, and at the end reports where packets were lost (`losses`). Workers share only the compiled
//! rules, the datasets and the outputs; memory limits are divided among them.

mod af_packet;
pub(crate) mod bypass;
pub(crate) mod cpus;
mod helping;
mod libpcap;
pub(crate) mod losses;
pub(crate) mod medium;
mod numa;
mod offload;
mod report;
pub(crate) mod settings;
mod thread;
mod turns;
mod xdp;

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use margay_config::{Config, RunOptions};
use margay_detect::{Detect, RuleCosts};
use margay_output::remote::WhenFull;
use margay_output::{Outputs, error, info, notice, warning};

use crate::Failed;
use crate::control::{Control, LiveInfo};
use crate::exception::Policies;
use crate::keys::HashKeys;
use crate::profiling::Profiling;
use crate::service::{CaptureAccess, privileges};
use crate::settings as all;
use crate::threads::once;
use crate::watching::Watching;
use crate::worker::wire::Wire;
use crate::worker::{Opened, Worker};
use bypass::Table;
use cpus::Cpus;
use helping::Crew;
use losses::{Host, Row};
use report::Report;
use settings::{Device, RunMode};
use thread::{Final, WorkerSetup};

pub(crate) use settings::is_inline;

/// Checks `host-mode`, which only interfaces use.
///
/// # Errors
/// An unknown mode.
pub(crate) fn check_answers(config: &Config, options: &RunOptions) -> Result<(), Failed> {
    thread::answers(config, options).map(|_| ())
}

/// What the source needs of the system.
pub(crate) fn access(config: &Config, options: &RunOptions) -> CaptureAccess {
    CaptureAccess { bypasses: settings::bypasses(config, options), xdp_interfaces: xdp::interfaces(config, options) }
}

/// Interval of the checks for signals.
const STEP: Duration = Duration::from_millis(50);
/// Limit of workers.
const WORKERS_MAX: usize = 1024;

/// The capture sources and their settings.
pub(crate) struct Plan {
    devices: Vec<Arc<Device>>,
    cpus: Cpus,
    mode: RunMode,
    /// Idle workers search payloads for busy ones.
    search_ahead: bool,
}

impl Plan {
    /// Reads the settings, and checks that the interfaces exist.
    ///
    /// # Errors
    /// An invalid setting, or a missing interface.
    pub(crate) fn new(config: &Config, options: &RunOptions) -> Result<Plan, Failed> {
        let cpus = Cpus::from_config(config)?;
        let mode = settings::run_mode(config, options)?;
        let devices = medium::devices(config, options, mode, &cpus)?;
        let workers: usize = devices.iter().map(|d| d.workers).sum();
        if workers > WORKERS_MAX {
            return Err(Failed::new(
                "af-packet",
                format!("{workers} workers are more than {WORKERS_MAX}: set threads"),
            ));
        }
        if devices.len() > 1 && !all::flag(config, "livedev.use-for-tracking", true)? {
            warning!(
                "af-packet",
                "livedev.use-for-tracking: no: the two directions of a flow on two interfaces are of two workers here, which \
                 do not share flows"
            );
        }
        let search_ahead = all::search_ahead(config)?;
        Ok(Plan { devices: devices.into_iter().map(Arc::new).collect(), cpus, mode, search_ahead })
    }

    /// Captures until the engine stops. With `late`, the rules are loaded after packets start to arrive.
    ///
    /// # Errors
    /// A worker cannot start.
    pub(crate) fn run(
        self,
        control: &Arc<Control>,
        options: &RunOptions,
        policies: &Policies,
        late: bool,
    ) -> Result<(), Failed> {
        let config = &control.config;
        let workers: usize = self.devices.iter().map(|d| d.workers).sum();
        let interfaces: Vec<String> = self.devices.iter().flat_map(|d| d.interfaces()).map(str::to_owned).collect();
        let queues = self.devices.iter().any(|d| !d.medium.is_of_interface());
        let capture = self.devices.first().map_or("", |d| d.medium.capture());
        // Only this code sets it.
        let _ = control.live.set(LiveInfo { mode: self.mode.name(), capture, workers, interfaces: interfaces.clone() });
        let mut first = Some(all::open_files(config, &control.dir, workers, WhenFull::Drop)?);
        if all::writer_thread(config, workers)? {
            // Each batch flushes its own events.
            privileges::without(|| first.iter_mut().for_each(|o| o.write_aside(0)));
        }
        first.iter_mut().for_each(|o| o.tell(&control.watched.feed));
        let beside = first.as_mut().map(Outputs::beside);
        let files = all::files(config, &control.dir, options)?;
        if let Some(store) = &files.store {
            // Its thread needs no capability.
            privileges::without(|| store.prepare()).map_err(|e| Failed::new("filestore", e.to_string()))?;
        }
        let cpus = Arc::new(self.cpus);
        let (ready, told) = mpsc::channel();
        let mut threads: Vec<JoinHandle<Option<Final>>> = Vec::new();
        let mut starters = Vec::new();
        let mut prepared: Vec<(Arc<Device>, usize, Outputs)> = Vec::new();
        for device in &self.devices {
            for nth in 0..device.workers {
                let number = prepared.len();
                // The first worker gets the opened outputs, and the others get handles to them.
                let outputs = match prepared.first_mut() {
                    None => first.take().ok_or_else(|| Failed::new("threads", "no outputs"))?,
                    Some((_, _, o)) => o
                        .share(number, all::now(), number as u64)
                        .map_err(|e| Failed::new("logopenfile", e.to_string()))?,
                };
                prepared.push((Arc::clone(device), nth, outputs));
            }
        }
        let stack = all::stack_size(config)?;
        // Netfilter packets may come from any interface.
        let _offloads = if queues { None } else { offload::off(config, &interfaces)? };
        let tables: Vec<Option<Arc<Table>>> = self.devices.iter().map(|d| Table::of(d)).collect();
        let mut table = tables.iter();
        let (mut group, mut bypass, mut crew) = (Arc::default(), None, None);
        for (overall, (device, nth, outputs)) in prepared.into_iter().enumerate() {
            if nth == 0 {
                group = Arc::default();
                bypass = table.next().cloned().flatten();
                let helps = self.search_ahead && device.workers > 1;
                crew = helps.then(|| Arc::new(Crew::new(device.workers, &HashKeys::of(options))));
                info!(
                    "runmodes",
                    "{}: creating {} thread{}",
                    device.name,
                    device.workers,
                    if device.workers == 1 { "" } else { "s" }
                );
            }
            let (go, wait) = mpsc::channel();
            starters.push(go);
            let thread = format!("W#{:02}-{}", nth + 1, device.name);
            let setup = WorkerSetup {
                control: Arc::clone(control),
                options: options.clone(),
                policies: *policies,
                device,
                nth,
                overall,
                workers,
                thread: thread.clone(),
                outputs,
                files: files.clone(),
                cpus: Arc::clone(&cpus),
                group: Arc::clone(&group),
                bypass: bypass.clone(),
                crew: crew.clone(),
                ready: ready.clone(),
                go: wait,
            };
            let handle = std::thread::Builder::new()
                .name(thread.clone())
                .stack_size(stack)
                .spawn(move || setup.run())
                .map_err(|e| Failed::new("threads", format!("cannot start the thread {thread}: {e}")))?;
            threads.push(handle);
        }
        drop(ready);
        if let Err(f) = all_say(&told, workers) {
            // Workers that are ready must not start.
            drop(starters);
            threads.into_iter().for_each(|t| drop(t.join()));
            return Err(f);
        }
        cpus.place_manager();
        let host = if queues { Host::of_queue } else { Host::of };
        let before: Vec<Host> = interfaces.iter().map(|i| host(i)).collect();
        for go in starters {
            // A worker that has already ended is noticed soon enough.
            let _ = go.send(());
        }
        if let Err(f) = all_say(&told, workers) {
            control.signals.ask_to_stop();
            threads.into_iter().for_each(|t| drop(t.join()));
            return Err(f);
        }
        let looking = bypass::look_after(tables.into_iter().flatten().collect(), &control.signals);
        let ready = looking.and_then(|()| control.ready());
        if let Err(f) = ready.and_then(|()| if late { control.load_beside() } else { Ok(()) }) {
            control.signals.ask_to_stop();
            threads.into_iter().for_each(|t| drop(t.join()));
            return Err(f);
        }
        notice!("threads", "Threads created -> W: {workers}   Engine started.");
        let outputs = match beside {
            Some(o) => o,
            None => Opened::nothing()?.outputs,
        };
        let mut report = Report::new(config, control, outputs, interfaces.into_iter().zip(before).collect())?;
        let broken = stand_by(control, &threads, &mut report);
        control.service.get().inspect(|s| s.stopping());
        control.signals.ask_to_stop();
        report.ended();
        let mut finals = Vec::new();
        for t in threads {
            match t.join() {
                Ok(f) => finals.extend(f),
                Err(_) => error!("threads", "a worker's thread failed: what it had is lost"),
            }
        }
        report.last(&finals);
        tell(&report.rows(), &finals);
        if let Watching::Profile(_) = control.watching
            && let Some(p) = Profiling::of(config, &control.dir)?
        {
            profile(&p, finals.iter().filter_map(|f| f.costs.as_ref()));
        }
        match broken {
            true => Err(Failed::new("threads", "a worker's thread failed; the others were stopped")),
            false => Ok(()),
        }
    }
}

/// Validates the settings of interfaces, whether the interfaces exist or not.
///
/// # Errors
/// An invalid setting.
pub(crate) fn test(config: &Config) -> Result<(), Failed> {
    settings::test(config, RunMode::Workers, &Cpus::from_config(config)?)
}

/// Prepares a worker for live capture, with the sender of its verdicts.
pub(crate) fn prepare(worker: &mut Worker, wire: Wire) {
    worker.decoder.live = true;
    worker.pipeline.stages.wire = Some(Box::new(wire));
}

/// Waits until every worker has reported that it is ready, or why it failed.
fn all_say(told: &mpsc::Receiver<Result<(), Failed>>, workers: usize) -> Result<(), Failed> {
    let mut all = Ok(());
    for _ in 0..workers {
        let said =
            told.recv().unwrap_or_else(|_| Err(Failed::new("threads", "a worker's thread ended before it began")));
        all = all.and(said);
    }
    all
}

/// Waits until the engine must stop, or a worker ends unexpectedly.
fn stand_by(control: &Arc<Control>, threads: &[JoinHandle<Option<Final>>], report: &mut Report) -> bool {
    let mut reports = true;
    loop {
        if control.signals.stop() {
            notice!("suricata", "Signal Received.  Stopping engine.");
            return false;
        }
        if threads.iter().any(JoinHandle::is_finished) && !control.signals.stop() {
            return true;
        }
        if control.signals.rotate() {
            margay_output::log::reopen();
            // Each worker reopens its own files.
            if control.ask(|w, _| w.pipeline.stages.outputs.reopen(all::now())).is_err() {
                warning!("output", "a worker did not open its log files anew: it did not answer in time");
            }
        }
        if reports && once(|| report.tick(control)).is_none() {
            reports = false;
            error!("counters", "statistics failed: none are written until the engine stops");
        }
        std::thread::sleep(STEP);
    }
}

/// Logs received and lost packets.
fn tell(rows: &[Row], finals: &[Final]) {
    info!("counters", "Alerts: {}", finals.iter().map(|f| f.alerts).sum::<u64>());
    for r in rows {
        let c = &r.live;
        let percent = if c.kernel_packets == 0 { 0.0 } else { c.kernel_drops as f64 * 100.0 / c.kernel_packets as f64 };
        notice!(
            "device",
            "{}: packets: {}, drops: {} ({percent:.2}%), invalid chksum: {}",
            r.interface,
            c.kernel_packets,
            c.kernel_drops,
            r.invalid_checksums
        );
    }
    for line in losses::table(rows) {
        notice!("losses", "{line}");
    }
    for r in rows.iter().filter(|r| r.unexplained() != 0) {
        error!("losses", "{}: {} packets cannot be explained", r.interface, r.unexplained());
    }
}

/// Writes the rule costs of all workers together.
pub(crate) fn profile<'a>(p: &Profiling, mut all: impl Iterator<Item = &'a (Arc<Detect>, Vec<RuleCosts>)>) {
    let Some((detect, first)) = all.next() else { return };
    let mut sum = first.clone();
    for (_, costs) in all.filter(|(d, _)| d.serial() == detect.serial()) {
        sum.iter_mut().zip(costs).for_each(|(s, c)| s.plus(c));
    }
    p.write(detect, &sum);
}

/// The settings of live capture, for the test that checks all settings.
#[cfg(test)]
pub(crate) fn shown(config: &Config, options: &RunOptions, out: &mut String) -> Result<(), String> {
    use margay_config::Capture;
    use std::fmt::Write;

    let cpus = Cpus::from_config(config).map_err(|e| e.to_string())?;
    let mode = settings::run_mode(config, options).map_err(|f| f.message)?;
    for capture in [Capture::AfPacket(Vec::new()), Capture::Nfqueue(vec![0]), Capture::Pcap(Vec::new())] {
        let options = RunOptions { capture: Some(capture), ..options.clone() };
        let devices = medium::devices(config, &options, mode, &cpus).map_err(|f| f.message)?;
        let inline = is_inline(config, &options);
        writeln!(out, "devices: {devices:?} {inline}").map_err(|e| e.to_string())?;
    }
    let (xdp, answers) = (xdp::shown(config, options)?, thread::answers(config, options).map_err(|f| f.message)?);
    writeln!(out, "cpus: {cpus:?}\nxdp: {xdp}\nanswers: {answers:?}\nrun mode: {mode:?}").map_err(|e| e.to_string())
}
