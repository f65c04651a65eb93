//! Starts the engine from a command line, and shuts it down.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use margay_app::Extra;
use margay_app::certificates::CertificateStore;
use margay_app::file::FileEngine;
use margay_config::{Capture, Checksums, Cli, Command, Config, Own, RuleFiles, RunOptions};
use margay_detect::{Detect, DetectState};
use margay_flow::FlowTable;
use margay_output::event::EventType;
use margay_output::{error, info, notice, warning};
use margay_packet::Decoder;
use margay_stream::{StreamConfig, StreamEngine, UrgentPolicy};

use crate::control::{Control, socket};
use crate::engines::{EngineSet, Loading};
use crate::exception::Policies;
use crate::keys::{HashKeys, reads_files};
use crate::parallel::{self, Autofp};
use crate::profiling::Profiling;
use crate::service::{self, Service};
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::worker::engines::{AppWants, Install};
use crate::worker::{AppStage, FrameVerdict, Pipeline, Stages, Worker};
use crate::{
    Failed, ctl, dry, engines, explain, files, info as about, listing, live, logging, rule_check, settings, threads,
    watched,
};

mod modes;

use modes::{check_modes, dump, introduce, is_live, policies, watching};

/// Runs a command line (without the program's name). The exit status is Suricata's: 0, or 1 after an error message.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = match Cli::parse(args) {
        Ok(c) => c,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(margay_config::CliError::EXIT_STATUS);
        }
    };
    match command {
        Command::Run(options) => match start(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(f) => {
                error!(f.module, "{}", f.message);
                service::failed();
                ExitCode::FAILURE
            }
        },
        Command::Help => say(&margay_config::help()),
        Command::Version => say(&about::version()),
        Command::BuildInfo => say(&about::build()),
        Command::DumpFeatures => say(&about::features()),
        Command::ListRunmodes => say(about::runmodes()),
        Command::ListKeywords(what) => {
            let said = say(&listing::keywords(&what));
            if listing::is_known(&what) { said } else { ExitCode::FAILURE }
        }
        Command::ListRuleProtos => say(&listing::rule_protocols()),
        Command::ListAppLayerProtos => say(&settings::list_app_protos(&Default::default())),
        Command::ListAppLayerHooks => say(&listing::hooks()),
        Command::Own(Own::Ctl, args) => ctl::run(&args),
        Command::Own(Own::Rules, args) => match args.split_first() {
            Some((word, rest)) if word == "explain" => explain::run(rest),
            _ => rule_check::run(&args),
        },
        Command::Own(Own::Lab, _) => {
            eprintln!("margay: the command 'lab' is not in this release");
            ExitCode::FAILURE
        }
    }
}

/// Writes to standard output.
pub(crate) fn say(text: &str) -> ExitCode {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    // A reader that closed the pipe (`margay -h | head`) is not an error.
    let _ =
        out.write_all(text.as_bytes()).and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
    ExitCode::SUCCESS
}

/// Refuses unsupported options by name, instead of ignoring them.
fn refuse(options: &RunOptions) -> Result<(), Failed> {
    if let Some(what) = margay_config::unserved(options).into_iter().find(|u| u.refused) {
        return Err(Failed::new("suricata", format!("{} is not in this release: {}", what.option, what.why)));
    }
    if let Some(mode) = &options.runmode {
        parallel::check_run_mode(mode).map_err(|why| Failed::new("runmodes", why))?;
    }
    if options.disable_detection && options.rules != RuleFiles::Configured {
        return Err(Failed::new("suricata", "-s and -S load rules: they cannot go with --disable-detection"));
    }
    if let Some(dir) = options.data_dir.as_deref().filter(|d| !d.is_dir()) {
        return Err(Failed::new("suricata", format!("--data-dir: {}: there is no such folder", dir.display())));
    }
    Ok(())
}

/// The configuration file without `-c`.
pub(crate) const CONFIGURATION: &str = "/etc/margay/margay.yaml";

/// The configuration: that of `-c`, or else the installed one, or else the built-in one.
///
/// # Errors
/// A file that cannot be read, or is not a configuration.
pub(crate) fn configuration(options: &RunOptions) -> Result<Config, Failed> {
    let installed = || Some(PathBuf::from(CONFIGURATION)).filter(|p| p.exists());
    let mut config = match options.config.clone().or_else(installed) {
        Some(path) => Config::load_with(path, &options.includes, &options.sets)?,
        None => Config::built_in(&options.includes, &options.sets)?,
    };
    config.check_reads();
    Ok(config)
}

fn start(options: &RunOptions) -> Result<(), Failed> {
    let began = Instant::now();
    threads::tell_of_panics();
    let config = configuration(options)?;
    if options.dump_config {
        return dump(&config);
    }
    refuse(options)?;
    let service = Service::begin(&config, options)?;
    let _end = service::End(Arc::clone(&service));
    let options = &service.options;
    let dir = log_dir(&config, options)?;
    logging::open(&config, options, &dir)?;
    introduce(&config, options, &dir);
    service.tell();
    let live = is_live(options);
    let inline = live::is_inline(&config, options);
    let ips = options.simulate_ips || inline;
    check_modes(&config, options, live, ips)?;
    let policies = policies(&config, ips, inline)?;
    info!("exception-policy", "master exception-policy set to: {}", config.get("exception-policy").unwrap_or("auto"));

    let source = match &options.capture {
        Some(Capture::File(path)) if !options.engine_analysis => Some(files::open(&config, options, path, false)?),
        _ => None,
    };
    let devices = match live && !options.engine_analysis && !options.test {
        true => Some(live::Plan::new(&config, options)?),
        false => None,
    };
    let socket_mode = matches!(options.capture, Some(Capture::UnixSocket(_)));
    if source.is_none() && devices.is_none() && !socket_mode && !options.test && !options.engine_analysis {
        return Err(Failed::new(
            "suricata",
            "nothing to read: name a capture file with -r, an interface with -i or a queue with -q, or test the rules with -T",
        ));
    }
    // This comes before reading rules, which takes time.
    let signal = |e: std::io::Error| Failed::new("suricata", format!("cannot take signals: {e}"));
    let wakes = Signals::reloads().map_err(signal)?;
    let late = delayed(&config, options, devices.is_some())?;
    let engines = if options.disable_detection || late {
        settings::detect(&config)?;
        EngineSet::default()
    } else {
        engines::load(&Loading { config: &config, options, ips, dir: &dir, trees: false }, None)?
    };
    if options.engine_analysis {
        return Ok(());
    }
    if options.test {
        dry::test(&config, options, ips, &policies, engines, &dir)?;
        settings::web(&config, options)?;
        notice!("suricata", "Configuration provided was successfully loaded. Exiting.");
        return Ok(());
    }
    let socket = socket::wanted(&config, options)?;
    let signals = Arc::new(Signals::install().map_err(signal)?);
    let profiling = Profiling::of(&config, &dir)?;
    let autofp = parallel::autofp(&config, options)?;
    let watching = watching(&config, profiling.as_ref(), autofp.is_none() && source.is_some())?;
    let run = Run { options, policies, autofp };
    let control = Control::new(config, options.clone(), ips, dir, Arc::new(engines), Arc::clone(&signals), watching)?;
    let _ = control.service.set(Arc::clone(&service));
    control.serve_signals(wakes)?;
    // A capture file can be read without the socket.
    let must_listen = socket_mode || options.init_errors_fatal;
    let listening = socket.map(|path| listen(&control, &path, must_listen)).transpose()?.flatten();
    let web = service.take_web();
    if listening.is_some() || web.is_some() {
        watched::start(&control, web)?;
    }
    run.capture(&control, source, devices, late)?;
    // Ends the clients of the socket.
    signals.ask_to_stop();
    service.stopping();
    for problem in control.engines().datasets().save() {
        error!("datasets", "{problem}");
    }
    info!("suricata", "time elapsed {:.3}s", began.elapsed().as_secs_f64());
    match control.failed.get() {
        Some(f) => Err(Failed::new(f.module, f.message.clone())),
        None => Ok(()),
    }
}

/// Listens on the socket. A failure is an error only if the socket `must` work.
fn listen(control: &Arc<Control>, path: &Path, must: bool) -> Result<Option<socket::Socket>, Failed> {
    match socket::listen(control, path) {
        Err(f) if !must => {
            warning!(f.module, "{}", f.message);
            Ok(None)
        }
        other => other.map(Some),
    }
}

impl Run<'_> {
    /// Inspects packets until their source ends or the engine stops: a file, interfaces, or files that the socket names.
    fn capture(
        &self,
        control: &Arc<Control>,
        source: Option<files::Input>,
        devices: Option<live::Plan>,
        late: bool,
    ) -> Result<(), Failed> {
        if let Some(input) = source {
            notice!("threads", "Threads created -> W: {}   Engine started.", self.autofp.map_or(1, |a| a.workers));
            let alerts = self.read(control, input, &control.dir, 0)?;
            info!("counters", "Alerts: {alerts}");
        } else if let Some(plan) = devices {
            plan.run(control, self.options, &self.policies, late)?;
        } else {
            control.ready()?;
            notice!("threads", "Threads created ->   Engine started.");
            self.serve_queue(control);
            notice!("suricata", "Signal Received.  Stopping engine.");
        }
        Ok(())
    }
}

/// Whether rules are loaded while packets are already captured (`detect.delayed-detect`).
///
/// # Errors
/// Not a boolean; firewall mode, which must not pass any packet before its rules are loaded.
fn delayed(config: &Config, options: &RunOptions, live: bool) -> Result<bool, Failed> {
    const PATH: &str = "detect.delayed-detect";
    if !settings::flag(config, PATH, false)? || options.disable_detection || options.test || options.engine_analysis {
        return Ok(false);
    }
    if !live {
        info!("detect", "{PATH} is for live capture: the packets of capture files wait for the rules");
        return Ok(false);
    }
    if settings::is_firewall(config, options)? {
        let why = "packets would pass before the rules of firewall mode are there; remove it";
        return Err(settings::wrong(config, PATH, why).into());
    }
    Ok(true)
}

/// State that all capture files share.
struct Run<'a> {
    options: &'a RunOptions,
    policies: Policies,
    /// Packets of a file go to several workers.
    autofp: Option<Autofp>,
}

impl Run<'_> {
    /// Reads a capture with one worker, or several, and writes its logs to `dir`. It belongs to `tenant`, unless that is 0.
    /// Returns the number of alerts.
    fn read(&self, control: &Arc<Control>, input: files::Input, dir: &Path, tenant: u32) -> Result<u64, Failed> {
        if let Some(autofp) = &self.autofp {
            let job = parallel::Job { options: self.options, policies: &self.policies, dir, tenant };
            return autofp.read(control, input, &job);
        }
        let config = &control.config;
        let mut entered = None;
        let post = control.enter(|engines| {
            entered = Some(worker(config, self.options, control.ips, &self.policies, engines, dir, &control.watching)?);
            Ok(())
        })?;
        let Some(mut worker) = entered else { return Ok(0) };
        worker.pipeline.stages.outputs.tell(&control.watched.feed);
        worker.pipeline.stages.engines.direct = tenant;
        if control.queue.is_none() {
            // In this mode files are submitted later, and the engine is ready before the first one.
            control.ready()?;
        }
        let mut reporter = Reporter::new(config, self.options.verbose > 0)?;
        let steering = files::Steering { signals: &control.signals, post: &post, queue: control.queue.as_ref() };
        let mut costs = parallel::PacketCosts::of(config, dir)?;
        let mut beat = control.watch.join("W#01");
        let ran = threads::once(|| files::run(input, &mut worker, &mut reporter, &steering, &mut beat, costs.as_mut()));
        drop(beat);
        control.leave(&post);
        post.close(&mut worker, &mut reporter);
        let Some(files::Ran { began, refused }) = ran else {
            // Flows are left alone, because the failure might repeat. Output written so far is kept.
            worker.pipeline.stages.end_batch();
            worker.pipeline.stages.outputs.finish();
            return Err(Failed::new("threads", "the worker failed: the rest of the capture was not inspected"));
        };
        worker.finish();
        reporter.write(&mut worker);
        worker.pipeline.stages.outputs.finish();
        worker.pipeline.stages.scripts.finish();
        let lost = worker.pipeline.stages.outputs.counters().lost();
        if let (Some(costs), Some(began)) = (costs, began) {
            costs.write(began);
        }
        if let Some(began) = began {
            info!("pcap", "inspected in {:.6} s", began.elapsed().as_secs_f64());
        }
        // Costs of the engine's own rules; those of tenants are not shown.
        if let (Some(p), Some((detect, state))) = (Profiling::of(config, dir)?, worker.pipeline.stages.own()) {
            p.write(detect, state.costs());
        }
        complete(lost)?;
        match refused {
            Some(f) => Err(f),
            None => Ok(worker.pipeline.stages.counters.alerts),
        }
    }

    /// Reads the submitted capture files until the engine must stop.
    fn serve_queue(&self, control: &Arc<Control>) {
        let Some(queue) = &control.queue else { return };
        while !control.signals.stop() {
            let Some(job) = queue.next(std::time::Duration::from_millis(100)) else {
                if control.signals.rotate() {
                    margay_output::log::reopen();
                }
                continue;
            };
            let input = files::open(&control.config, self.options, &job.file, job.continuous);
            let read = input.and_then(|i| self.read(control, i.with(job.delete), &job.dir, job.tenant));
            if let Err(f) = read {
                error!(f.module, "{}: {}", job.file.display(), f.message);
            }
            queue.done();
        }
    }
}

/// Whether a run over a capture file wrote all its events.
///
/// # Errors
/// Events were lost, so the run must not count as complete.
pub(crate) fn complete(lost: u64) -> Result<(), Failed> {
    match lost {
        0 => Ok(()),
        n => {
            Err(Failed::new("output", format!("{n} events could not be written and are lost: see the messages above")))
        }
    }
}

/// The log folder of `-l` or the configuration, or else the current folder.
pub(crate) fn log_folder(config: &Config, options: &RunOptions) -> PathBuf {
    options.log_dir.clone().unwrap_or_else(|| PathBuf::from(config.get("default-log-dir").unwrap_or(".")))
}

/// The log folder. A missing folder is created, except for a test of the configuration (`-T`), which writes no log.
///
/// # Errors
/// The folder cannot be created, or the path is not a folder.
pub(crate) fn log_dir(config: &Config, options: &RunOptions) -> Result<PathBuf, Failed> {
    let dir = log_folder(config, options);
    if dir.is_dir() || options.test {
        return Ok(dir);
    }
    std::fs::create_dir_all(&dir).map_err(|e| {
        Failed::new(
            "suricata",
            format!("cannot make the logging directory \"{}\": {e}; name another with -l", dir.display()),
        )
    })?;
    Ok(dir)
}

/// The requirements of rules and outputs for the application layer.
///
/// # Errors
/// An invalid setting.
pub(crate) fn app_wants(
    config: &Config,
    options: &RunOptions,
    set: &EngineSet,
    shown: settings::JaWants,
) -> Result<AppWants, Failed> {
    let ja = settings::JaWants {
        ja3: set.uses(Extra::Ja3) || shown.ja3,
        ja4: set.uses(Extra::Ja4) || shown.ja4,
        hassh: set.uses(Extra::Hassh) || shown.hassh,
    };
    Ok(AppWants {
        files: match options.disable_hashing {
            true => set.file_wants().without_digests(),
            false => set.file_wants(),
        },
        frames: set.wants_frames(),
        arguments: set.uses(Extra::Arguments),
        ssh: settings::ssh(config, ja.hassh)?,
        tls: settings::tls(config, ja)?,
    })
}

/// Creates a worker for these engines.
///
/// # Errors
/// An invalid setting, or an output that cannot be opened.
pub(crate) fn worker(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: Arc<EngineSet>,
    dir: &Path,
    watching: &Watching,
) -> Result<Worker, Failed> {
    let quiet = matches!(watching, Watching::Explain(_));
    let opened = match quiet {
        true => settings::Opened::nothing()?,
        false => settings::open_outputs(config, dir)?,
    };
    let part = Part { opened, files: settings::files(config, dir, options)?, workers: 1 };
    worker_of(config, options, ips, policies, engines, dir, watching, part)
}

/// One worker's share, if there are several workers.
pub(crate) struct Part {
    pub(crate) opened: settings::Opened,
    /// The settings of files, with the file store that all workers share.
    pub(crate) files: margay_app::file::FileConfig,
    /// The number of workers. Memory limits are divided among them.
    pub(crate) workers: u64,
}

impl Part {
    /// A worker's part of a limit; 0 stands for no limit.
    fn of(&self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { (limit / self.workers.max(1)).max(1) }
    }

    fn number(&self, of: u32) -> u32 {
        u32::try_from(self.of(u64::from(of))).unwrap_or(of)
    }
}

/// The store of certificates; with `quiet`, one that stores nothing.
fn certificates(config: &Config, dir: &Path, quiet: bool) -> Result<CertificateStore, Failed> {
    match settings::certificate_folder(config, dir)? {
        Some(folder) if !quiet => CertificateStore::new(folder.clone())
            .map_err(|e| Failed::new("log-tlsstore", format!("cannot make the folder {}: {e}", folder.display()))),
        _ => Ok(CertificateStore::default()),
    }
}

/// The settings of a worker's streams.
fn stream_of(config: &Config, options: &RunOptions, ips: bool, part: &Part) -> Result<StreamConfig, Failed> {
    let mut stream = settings::stream(config, ips)?;
    if ips && !options.simulate_ips {
        // On a live network, harmless irregularities are let pass: hosts retransmit, and half of a connection may take
        // another path.
        stream.spare_harmless = true;
        if config.get("stream.async-oneside").is_none() {
            stream.async_oneside = true;
        }
        if config.get("stream.reassembly.urgent.policy").is_none() {
            // Applications differ in whether and when they remove the urgent byte, and nothing on the wire shows it.
            stream.urgent = UrgentPolicy::Clear;
        }
    }
    stream.remembered = usize::try_from(part.of(stream.remembered as u64)).unwrap_or(usize::MAX);
    stream.checksum_validation = validates(options.checksums, config, stream.checksum_validation)?;
    (stream.memcap, stream.reassembly_memcap) = (part.of(stream.memcap), part.of(stream.reassembly_memcap));
    stream.reset_memory = part.of(stream.reset_memory);
    Ok(stream)
}

/// Creates one of several workers.
///
/// # Errors
/// As [`worker`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn worker_of(
    config: &Config,
    options: &RunOptions,
    ips: bool,
    policies: &Policies,
    engines: Arc<EngineSet>,
    dir: &Path,
    watching: &Watching,
    part: Part,
) -> Result<Worker, Failed> {
    let stream = stream_of(config, options, ips, &part)?;
    let mut flow = settings::flow(config)?;
    let keys = HashKeys::of(options);
    (flow.hash_key, flow.id_key) = (keys.table, keys.ids);
    (flow.memcap, flow.hash_size, flow.prealloc) =
        (part.of(flow.memcap), part.number(flow.hash_size), part.number(flow.prealloc));
    // Checksum keywords see the real checksums, whatever `-k` says.
    let mut decode = settings::decode(config, false)?;
    decode.defrag.checksums = stream.checksum_validation;
    decode.defrag.inline = ips && !options.simulate_ips;
    decode.defrag.memcap = usize::try_from(part.of(decode.defrag.memcap as u64)).unwrap_or(usize::MAX);
    let mut protocols = settings::app(config)?;
    (protocols.http1.memcap, protocols.ftp.memcap) = (part.of(protocols.http1.memcap), part.of(protocols.ftp.memcap));
    protocols.memcap = part.of(protocols.memcap);
    let quiet = matches!(watching, Watching::Explain(_));
    let mut files = part.files.clone();
    files.range_memcap = part.of(files.range_memcap);
    if let Some(store) = &mut files.store {
        store.waits = reads_files(options);
    }
    let (workers, opened) = (part.workers, part.opened);
    let settings::Opened { outputs, app: shown, store_xff, scripts } = opened;
    if settings::flag(config, "stats.enabled", true)? && !outputs.wants(EventType::Stats) && !quiet {
        warning!("counters", "stats are enabled but no loggers are active");
    }
    if quiet {
        files.store = None;
    }
    if let Some(store) = &files.store {
        store.prepare().map_err(|e| Failed::new("filestore", e.to_string()))?;
    }
    let ja4 = shown.iter().any(|o| o.tls.asks_ja4);
    let wants =
        app_wants(config, options, &engines, settings::JaWants { ja3: scripts.ja3, ja4, hassh: scripts.hassh })?;
    settings::check_store(&files, wants.files.store);
    let certificates = certificates(config, dir, quiet)?;
    let shared = margay_app::Shared {
        certificates,
        files: FileEngine::new(&files, wants.files).map_err(|e| Failed::new("files", e.to_string()))?,
        counters: margay_app::AppCounters::default(),
        frames: margay_app::frame::FrameMarks::default(),
        wishes: margay_app::FlowRequests::default(),
        whole: [false; 2],
        expected: Vec::new(),
        upgrade: None,
        scratch: Vec::new(),
    };
    let app = AppStage {
        config: Arc::new(margay_app::AppConfig {
            recogniser: margay_app::recognise::Recogniser::new(&settings::recogniser(config)?),
            files,
            ..protocols
        }),
        shared,
        record: margay_output::eve::Record::new(store_xff),
        options: shown,
        witness: None,
    };
    let mut stages = Stages::new(ips, StreamEngine::new(stream), app, outputs);
    stages.error_policies = [false, true].map(|midstream| policies.of_error(midstream));
    stages.discards_wrong_datagrams |= options.checksums == Some(Checksums::All);
    stages.scripts = scripts;
    stages.ethernet = settings::wants_ethernet(config)?;
    stages.install(Install::new(engines, &EngineSet::default(), wants, watching, workers > 1)?);
    let flows = FlowTable::new(flow);
    stages.hasher = flows.hasher();
    Ok(Worker {
        decoder: Decoder::new(decode),
        pipeline: Pipeline { policies: *policies, flows, stages, verdict: FrameVerdict::default() },
        unswept: 0,
        swept: 0,
        told: 0,
    })
}

/// Whether TCP packets with a wrong checksum are kept out of their streams: by `-k`, or else by the configuration.
///
/// # Errors
/// `capture.checksum-validation` is neither `none` nor `kernel`.
pub(crate) fn validates(option: Option<Checksums>, config: &Config, configured: bool) -> Result<bool, Failed> {
    const PATH: &str = "capture.checksum-validation";
    let validated = match config.get(PATH) {
        None | Some("" | "kernel") => configured,
        Some("none") => false,
        Some(other) => {
            let why = format!("\"{other}\" is neither none nor kernel");
            return Err(settings::wrong(config, PATH, &why).into());
        }
    };
    Ok(match option {
        Some(Checksums::All) => true,
        Some(Checksums::None) => false,
        None => validated,
    })
}

/// How detection is watched.
#[derive(Debug, Clone)]
pub(crate) enum Watching {
    /// Not at all: a normal run.
    Nobody,
    /// Everything about these rules, by number, is recorded, and there is no other output.
    Explain(Vec<u32>),
    /// Measures each rule's cost, for one packet in so many.
    Profile(u32),
    /// Measures the cost of each packet's processing steps.
    Packets,
}

pub(crate) fn state(detect: &Arc<Detect>, watching: &Watching) -> Result<DetectState, Failed> {
    let state = match watching {
        Watching::Nobody => DetectState::new(detect),
        Watching::Explain(rules) => DetectState::explaining(detect, rules),
        Watching::Profile(every) => DetectState::profiling(detect, *every),
        Watching::Packets => DetectState::timing(detect),
    };
    state.map_err(|e| Failed::new("detect", e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_streams() {
        let plain = Config::from_str("%YAML 1.1\n---\nstream:\n  midstream: no\n", "t").unwrap();
        let none = Config::from_str("%YAML 1.1\n---\ncapture:\n  checksum-validation: none\n", "t").unwrap();
        for (option, config, configured, want) in [
            (None, &plain, true, true),
            (None, &plain, false, false),
            (None, &none, true, false),
            (Some(Checksums::All), &none, false, true),
            (Some(Checksums::None), &plain, true, false),
        ] {
            assert_eq!(validates(option, config, configured).unwrap(), want, "{option:?} {configured}");
        }
    }
}
