//! Reads capture files with one worker.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use margay_capture::{Event, ProgressDisplay, Style, delete};
use margay_output::{error, info, notice, warning};

use crate::Failed;
use crate::files::{Input, refused};
use crate::parallel::PacketCosts;
use crate::post::Post;
use crate::queue::Queue;
use crate::service::watchdog::Beat;
use crate::settings;
use crate::signals::Signals;
use crate::stats::Reporter;
use crate::worker::Worker;

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
        // A file may be on a disk that does not answer for any time.
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
