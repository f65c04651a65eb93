//! Starts the engine from a command line, and shuts it down.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use margay_config::{Capture, Cli, Command, Config, Own, RuleFiles, RunOptions};
use margay_output::{error, info, notice, warning};

use crate::console::say;
use crate::control::{Control, socket};
use crate::engines::{EngineSet, Loading};
use crate::exception::Policies;
use crate::parallel::{self, Autofp};
use crate::profiling::Profiling;
use crate::service::{self, Service};
use crate::settings::{configuration, log_dir};
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::worker::worker;
use crate::{
    Failed, ctl, dry, engines, explain, files, info as about, listing, live, logging, notices, rule_check, settings,
    single, threads, watched,
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

fn start(options: &RunOptions) -> Result<(), Failed> {
    let began = Instant::now();
    threads::tell_of_panics();
    let config = configuration(options)?;
    if options.dump_config {
        return dump(&config);
    }
    refuse(options)?;
    let service = Service::begin(&config, options, live::access(&config, options))?;
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
    // A stop while rules are loading takes effect behind that, so that the end is orderly. Tests end at once.
    let signals = match options.test || options.engine_analysis {
        true => Arc::default(),
        false => Arc::new(Signals::install().map_err(signal)?),
    };
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
        notices::unfit(&config);
        notice!("suricata", "Configuration provided was successfully loaded. Exiting.");
        return Ok(());
    }
    let socket = settings::socket(&config, options)?;
    let profiling = Profiling::of(&config, &dir)?;
    let autofp = parallel::autofp(&config, options)?;
    notices::unfit(&config);
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
        let steering = single::Steering { signals: &control.signals, post: &post, queue: control.queue.as_ref() };
        let mut costs = parallel::PacketCosts::of(config, dir)?;
        let mut beat = control.watch.join("W#01");
        let ran =
            threads::once(|| single::run(input, &mut worker, &mut reporter, &steering, &mut beat, costs.as_mut()));
        drop(beat);
        control.leave(&post);
        post.close(&mut worker, &mut reporter);
        let Some(single::Ran { began, refused }) = ran else {
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
        files::complete(lost)?;
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
