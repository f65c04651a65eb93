//! Reads capture files: the loop that drives a worker.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use margay_capture::{
    CaptureSource, DeletePolicy, DirOptions, Event, Filter, FilterSet, ProgressDisplay, Style, delete,
};
use margay_config::{Config, RunOptions};
use margay_output::{error, info, notice, warning};
use margay_packet::LinkType;

use crate::Failed;
use crate::checksums::FileChecks;
use crate::control::post::Post;
use crate::control::queue::Queue;
use crate::parallel::PacketCosts;
use crate::service::watchdog::Beat;
use crate::settings;
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::worker::Worker;

/// Frames delivered at a time (`margay.batch-size`): the default, and the maximum.
const BATCH: usize = 256;
const BATCH_MAX: usize = 65_536;

/// A source of files, and how to read it.
pub(crate) struct Input {
    pub(crate) source: CaptureSource,
    pub(crate) delete: DeletePolicy,
    pub(crate) batch: usize,
    pub(crate) checks: FileChecks,
}

/// Opens the path of `-r`, with the filter of the command line or of `-F`. With `continuous`, a folder is watched for more
/// files, whatever the settings.
///
/// # Errors
/// A missing path, a filter that does not compile, or incompatible options.
pub(crate) fn open(config: &Config, options: &RunOptions, path: &Path, continuous: bool) -> Result<Input, Failed> {
    let expression = settings::filter(options, "suricata")?;
    if let Some(e) = &expression {
        Filter::compile(e, LinkType::ETHERNET).map_err(|e| Failed::new("pcap", e.to_string()))?;
    }
    let (dir, policy) = folder(config, options, continuous)?;
    let source = CaptureSource::open(path, dir, expression.as_deref().map(FilterSet::new))
        .map_err(|e| Failed::new("suricata", e.to_string()))?
        .preloading(options.pcap_preload);
    Ok(Input { source, delete: policy, batch: batch_size(config)?, checks: FileChecks::of(config, options)? })
}

/// How folders are read, and whether files are deleted afterwards: `pcap-file` and the options of the command line.
///
/// # Errors
/// An invalid value.
pub(crate) fn folder(
    config: &Config,
    options: &RunOptions,
    continuous: bool,
) -> Result<(DirOptions, DeletePolicy), Failed> {
    let defaults = DirOptions::default();
    let seconds = |key: &str, d: Duration| -> Result<Duration, Failed> {
        Ok(Duration::from_secs(settings::number::<u32>(config, key, d.as_secs() as u32)?.into()))
    };
    let dir = DirOptions {
        recursive: options.pcap_file_recursive || config.bool("pcap-file.recursive")?.unwrap_or(false),
        continuous: continuous || options.pcap_file_continuous || config.bool("pcap-file.continuous")?.unwrap_or(false),
        delay: seconds("pcap-file.delay", defaults.delay)?,
        poll_interval: seconds("pcap-file.poll-interval", defaults.poll_interval)?,
    };
    let policy = if options.pcap_file_delete {
        DeletePolicy::Always
    } else {
        match config.get("pcap-file.delete-when-done") {
            None => DeletePolicy::Never,
            Some(t) => DeletePolicy::from_name(t).ok_or_else(|| {
                Failed::new("pcap", format!("pcap-file.delete-when-done: \"{t}\" is none of false, true, non-alerts"))
            })?,
        }
    };
    Ok((dir, policy))
}

/// Frames delivered at a time.
///
/// # Errors
/// An invalid number.
pub(crate) fn batch_size(config: &Config) -> Result<usize, Failed> {
    let batch = settings::number(config, "margay.batch-size", BATCH)?;
    if !(1..=BATCH_MAX).contains(&batch) {
        return Err(settings::wrong(config, "margay.batch-size", "must be between 1 and 65536").into());
    }
    Ok(batch)
}

impl Input {
    /// Sets whether files are deleted after reading, if the settings do not say so.
    pub(crate) fn with(self, delete: bool) -> Input {
        Input { delete: if delete { DeletePolicy::Always } else { self.delete }, ..self }
    }
}

/// Controls of a read in progress.
pub(crate) struct Steering<'a> {
    pub(crate) signals: &'a Signals,
    /// Requests to the worker.
    pub(crate) post: &'a Post,
    /// Submitted files: the current one may be interrupted, and its end is recorded.
    pub(crate) queue: Option<&'a Queue>,
}

impl Steering<'_> {
    fn interrupted(&self) -> bool {
        self.queue.is_some_and(|q| q.interrupt.load(Ordering::Relaxed))
    }

    /// Waits, and handles requests meanwhile.
    fn wait(&self, time: Duration, worker: &mut Worker, reporter: &mut Reporter) {
        const STEP: Duration = Duration::from_millis(20);
        let mut left = time;
        while !left.is_zero() && !self.signals.stop() && !self.interrupted() {
            self.post.serve(worker, reporter);
            std::thread::sleep(left.min(STEP));
            left = left.saturating_sub(STEP);
        }
    }
}

/// The result of reading.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// When the first file began, if there was one.
    pub(crate) began: Option<Instant>,
    /// The only input file is not a capture.
    pub(crate) refused: Option<Failed>,
}

/// Handles a file that is not a capture: it is skipped in a folder, but a single file makes the run fail.
pub(crate) fn refused(in_folder: bool, file: &Path, error: &margay_capture::Error) -> Option<Failed> {
    if !in_folder {
        return Some(Failed::new("pcap", error.to_string()));
    }
    error!("pcap", "{error}");
    warning!("pcap", "{}: skipped", file.display());
    None
}

/// Reads everything through `worker`, until the end or a signal to stop. With `costs`, the clock is read at every step of
/// every packet.
pub(crate) fn run(
    input: Input,
    worker: &mut Worker,
    reporter: &mut Reporter,
    steering: &Steering<'_>,
    beat: &mut Beat,
    mut costs: Option<&mut PacketCosts>,
) -> Ran {
    let mut ran = Ran::default();
    let signals = steering.signals;
    let Input { mut source, delete: policy, batch, checks } = input;
    let stderr = std::io::stderr();
    let style = Style::of(&stderr);
    let show = reporter.show_progress(style == Style::Terminal);
    let mut display = ProgressDisplay::new(std::io::stderr(), style, Instant::now());
    let mut bad_link: Option<PathBuf> = None;
    let folder = source.is_folder();
    loop {
        if signals.stop() {
            notice!("suricata", "Signal Received.  Stopping engine.");
            break;
        }
        if steering.interrupted() {
            notice!("pcap", "reading was interrupted");
            break;
        }
        steering.post.serve(worker, reporter);
        if signals.rotate() {
            worker.pipeline.stages.outputs.reopen(settings::now());
            margay_output::log::reopen();
        }
        // A pipe may be silent for any time.
        beat.rest();
        let asked = costs.as_ref().map(|_| Instant::now());
        let event = source.next_event(batch, SystemTime::now);
        beat.pass(worker.decoder.counters.pkts);
        match event {
            Event::FileStart(start) => {
                info!("pcap", "Starting file run for {}", start.file.display());
                ran.began = ran.began.or_else(|| Some(Instant::now()));
                bad_link = None;
                if let Some(link) = start.link.filter(|l| !l.is_supported()) {
                    error!(
                        "pcap",
                        "{}: link type {} is not supported: none of it is decoded",
                        start.file.display(),
                        link.0
                    );
                    bad_link = Some(start.file.clone());
                }
                worker.pipeline.stages.file = Some(start.file.display().to_string());
                worker.pipeline.stages.file_alerts = 0;
                worker.pipeline.flows.begin_capture();
                worker.decoder.unfinished_checksums = checks.believes(&start.file);
            }
            Event::Batch(batch) if bad_link.is_none() => {
                if let (Some(costs), Some(asked)) = (costs.as_mut(), asked) {
                    costs.batch(asked, batch.iter(), worker);
                    continue;
                }
                for (index, frame) in batch.iter().enumerate() {
                    worker.warm(&batch, index);
                    worker.frame(&frame);
                }
                worker.expire();
            }
            Event::FileEnd(end) => {
                if let Some(queue) = steering.queue
                    && let Ok(changed) = std::fs::metadata(&end.file).and_then(|m| m.modified())
                {
                    queue.processed(changed);
                }
                match end.error {
                    None => info!("pcap", "pcap file {} end of file reached", end.file.display()),
                    Some(e) => error!("pcap", "{e}"),
                }
                if policy.applies(worker.pipeline.stages.file_alerts) && bad_link.is_none() {
                    match delete(&end.file) {
                        Ok(()) => info!("pcap", "{}: deleted", end.file.display()),
                        Err(e) => warning!("pcap", "{e}"),
                    }
                }
            }
            Event::Failed { file, error } => ran.refused = refused(folder, &file, &error).or(ran.refused),
            Event::Skipped { file, reason } => info!("pcap", "{} {reason}: skipped", file.display()),
            Event::Wait(time) => {
                worker.pipeline.stages.outputs.flush();
                beat.rest();
                steering.wait(time, worker, reporter);
            }
            Event::Done => break,
            _ => {}
        }
        // The clock is read once per batch, for progress and the statistics interval.
        let now = Instant::now();
        if show && display.update(&source.progress(), now).is_err() {
            // Standard error was closed; the capture continues.
        }
        reporter.tick(now, worker);
    }
    if show && display.finish(&source.progress(), Instant::now()).is_err() {
        // Standard error was closed.
    }
    let files = source.files();
    let c = source.counters();
    notice!("pcap", "read {files} file{}, {} packets, {} bytes", if files == 1 { "" } else { "s" }, c.frames, c.bytes);
    ran
}
