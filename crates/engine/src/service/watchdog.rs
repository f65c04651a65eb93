//! The watchdog: a thread that checks whether workers make progress.
//!
//! Each worker has a [`Beat`]: a number that it writes once per batch, in a cache line of its own. The watchdog reads these
//! numbers. If one does not change for too long, it logs the worker, its last packet, its script, and the kernel's state of
//! its thread. It counts the event, and ends the process if the configuration asks for it, so that it is restarted. systemd
//! gets its keep-alive only while all workers make progress.
//!
//! Time in which the watchdog itself did not run (the process was stopped, or the machine slept) does not count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_output::{error, notice, warning};

use super::notify::Notify;
use super::settings::OnStuck;
use crate::signals::Signals;

/// The shortest and the longest time between two checks.
const STEP: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Written only by its worker, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    /// Odd while the worker processes packets; changes with each batch.
    beats: AtomicU64,
    /// Packets decoded before this batch.
    packets: AtomicU64,
}

/// A worker's thread under the watchdog.
#[derive(Debug)]
struct WatchedThread {
    name: String,
    thread: i32,
    /// The thread's id in the script engine.
    mark: usize,
    ended: AtomicBool,
    line: Line,
}

/// The worker's handle. The worker is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Beat {
    watched: Arc<WatchedThread>,
    beats: u64,
}

impl Beat {
    /// Called once per batch: the worker makes progress. `packets` were decoded so far.
    #[inline]
    pub(crate) fn pass(&mut self, packets: u64) {
        self.beats = (self.beats | 1).wrapping_add(2);
        self.watched.line.packets.store(packets, Ordering::Relaxed);
        self.watched.line.beats.store(self.beats, Ordering::Relaxed);
    }

    /// Called before the worker waits for something that may take any time.
    #[inline]
    pub(crate) fn rest(&mut self) {
        self.beats = self.beats.wrapping_add(2) & !1;
        self.watched.line.beats.store(self.beats, Ordering::Relaxed);
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.watched.ended.store(true, Ordering::Relaxed);
    }
}

/// All watched workers, and the number of times that one was stuck.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    threads: Mutex<Vec<Arc<WatchedThread>>>,
    stuck: AtomicU64,
}

impl Watch {
    /// From now on, the calling thread is watched as worker `name`.
    pub(crate) fn join(&self, name: &str) -> Beat {
        let watched = Arc::new(WatchedThread {
            name: name.to_owned(),
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            mark: margay_lua::thread_mark(),
            ended: AtomicBool::new(false),
            line: Line::default(),
        });
        let mut threads = self.threads();
        threads.retain(|s| !s.ended.load(Ordering::Relaxed));
        threads.push(Arc::clone(&watched));
        Beat { watched, beats: 0 }
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<Arc<WatchedThread>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of times that a worker was stuck.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }
}

/// A worker's state at the last check.
#[derive(Debug)]
struct Seen {
    watched: Arc<WatchedThread>,
    beats: u64,
    /// How long it has made no progress.
    still: Duration,
    /// Processor time of its thread when it last made progress.
    ran: Option<Duration>,
    told: bool,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Well,
    /// It is stuck, and was not before.
    Stuck,
    /// It is still stuck.
    StillStuck,
    /// It makes progress again, after being stuck for this time.
    Back(Duration),
}

impl Seen {
    fn new(watched: &Arc<WatchedThread>) -> Seen {
        let beats = watched.line.beats.load(Ordering::Relaxed);
        Seen { watched: Arc::clone(watched), beats, still: Duration::ZERO, ran: None, told: false }
    }

    /// Checks it, `time` after the last check.
    fn look(&mut self, time: Duration, after: Duration) -> Found {
        let beats = self.watched.line.beats.load(Ordering::Relaxed);
        if beats != self.beats || beats & 1 == 0 {
            let still = std::mem::take(&mut self.still);
            (self.beats, self.ran) = (beats, None);
            return if std::mem::take(&mut self.told) { Found::Back(still) } else { Found::Well };
        }
        if self.still.is_zero() {
            self.ran = account(self.watched.thread).map(|a| a.1);
        }
        self.still += time;
        match (self.still >= after, self.told) {
            (false, _) => Found::Well,
            (true, true) => Found::StillStuck,
            (true, false) => {
                self.told = true;
                Found::Stuck
            }
        }
    }

    /// Describes its state.
    fn words(&self) -> String {
        let s = &self.watched;
        let packets = s.line.packets.load(Ordering::Relaxed);
        let mut words = format!(
            "{} has not gone on for {} s: it is at one of the packets that come after its first {packets}",
            s.name,
            self.still.as_secs()
        );
        if let Some(script) = margay_lua::running(s.mark) {
            words.push_str(&format!(", in the script {script}"));
        }
        let of =
            |file: &str| std::fs::read_to_string(format!("/proc/self/task/{}/{file}", s.thread)).unwrap_or_default();
        if let Some((state, ran)) = account(s.thread) {
            let ran = ran.saturating_sub(self.ran.unwrap_or(ran)).as_secs_f64();
            words.push_str(&format!("; its thread {} ", s.thread));
            match state {
                'R' => words.push_str(&format!("runs, and had {ran:.1} s of a processor in that time")),
                _ => {
                    let place = of("wchan");
                    let place = Some(place.trim()).filter(|p| !["", "0"].contains(p)).unwrap_or("the kernel");
                    words
                        .push_str(&format!("waits in {place} (state {state}; {ran:.1} s of a processor in that time)"));
                }
            }
        }
        words
    }
}

/// A thread's state and its processor time, with a resolution of a hundredth of a second at best.
fn account(thread: i32) -> Option<(char, Duration)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name is in brackets, and may contain any character.
    let mut rest = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    let mut times = rest.skip(10).map_while(|n| n.parse::<u64>().ok());
    let ticks = times.next()?.saturating_add(times.next()?);
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Some((state, Duration::from_millis(ticks.saturating_mul(1000) / a_second)))
}

/// The watchdog thread.
pub(super) struct Watchdog {
    pub(super) watch: Arc<Watch>,
    pub(super) signals: Arc<Signals>,
    pub(super) notify: Arc<Notify>,
    /// The time after which a worker counts as stuck.
    pub(super) after: Duration,
    pub(super) on_stuck: OnStuck,
}

impl Watchdog {
    /// Runs until the process ends.
    pub(super) fn run(&self) {
        // systemd expects a keep-alive within its timeout, ideally two.
        let ping = self.notify.patience.map(|p| p / 2);
        let step = (self.after / 8).min(ping.map_or(STEP[1], |p| p / 2)).clamp(STEP[0], STEP[1]);
        let mut seen: Vec<Seen> = Vec::new();
        let (mut before, mut pinged) = (Instant::now(), None::<Instant>);
        let mut stopping = Duration::ZERO;
        loop {
            std::thread::sleep(step);
            margay_packet::fault::point("watchdog");
            let now = Instant::now();
            // If more time passed than requested, this thread did not run, and maybe the whole process did not.
            let time = now.duration_since(before).min(step * 2);
            before = now;
            if self.signals.stop() {
                stopping += time;
            }
            let well = self.look(&mut seen, time, stopping);
            if let Some(ping) = ping
                && well
                && pinged.is_none_or(|p| now.duration_since(p) + step > ping)
            {
                pinged = Some(now);
                self.notify.alive();
            }
        }
    }

    /// Checks all workers, with the time that the engine has been `stopping`. Returns whether all are well.
    fn look(&self, seen: &mut Vec<Seen>, time: Duration, stopping: Duration) -> bool {
        let threads = self.watch.threads().clone();
        seen.retain(|s| !s.watched.ended.load(Ordering::Relaxed));
        for watched in threads.iter().filter(|s| !s.ended.load(Ordering::Relaxed)) {
            if seen.iter().all(|s| !Arc::ptr_eq(&s.watched, watched)) {
                seen.push(Seen::new(watched));
            }
        }
        let mut well = true;
        for s in seen {
            match s.look(time, self.after) {
                Found::Well => {}
                Found::Back(still) => notice!("watchdog", "{} goes on, after {} s", s.watched.name, still.as_secs()),
                Found::Stuck => {
                    well = false;
                    self.watch.stuck.fetch_add(1, Ordering::Relaxed);
                    self.stuck(s);
                }
                Found::StillStuck => {
                    well = false;
                    // The other workers had that time to end.
                    if stopping >= self.after {
                        error!("watchdog", "{}; the engine stops and does not wait for it any longer", s.words());
                        signal_hook::low_level::exit(1);
                    }
                }
            }
        }
        well
    }

    #[cold]
    fn stuck(&self, s: &Seen) {
        let words = s.words();
        match self.on_stuck {
            OnStuck::Log => warning!("watchdog", "{words}"),
            OnStuck::Abort => {
                error!("watchdog", "{words}; ending, to be started again (margay.watchdog.action: abort)");
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_secs(10);

    #[test]
    fn who_stands_still_is_found() {
        let watch = Watch::default();
        let mut beat = watch.join("W#01");
        let watched = watch.threads().first().unwrap().clone();
        let mut seen = Seen::new(&watched);
        let mut look = |found: Found| assert_eq!(seen.look(STEP, AFTER), found);
        // Not started, then waiting: this may take any time.
        (0..9).for_each(|_| look(Found::Well));
        beat.pass(7);
        look(Found::Well);
        beat.rest();
        (0..9).for_each(|_| look(Found::Well));
        beat.pass(8);
        // The first check sees a new number.
        (0..3).for_each(|_| look(Found::Well));
        look(Found::Stuck);
        look(Found::StillStuck);
        beat.pass(9);
        look(Found::Back(Duration::from_secs(40)));
        look(Found::Well);
        // Each batch has a number of its own, even with a rest in between.
        for n in 0..9 {
            beat.rest();
            beat.pass(n);
            look(Found::Well);
        }
        drop(beat);
        assert!(watched.ended.load(Ordering::Relaxed));
        drop(watch.join("W#02"));
        assert!(watch.threads().iter().all(|s| s.name != "W#01"));
    }

    #[test]
    fn what_is_said_of_it() {
        let watch = Watch::default();
        let mut beat = watch.join("W#01-eth0");
        beat.pass(41);
        let watched = watch.threads().first().unwrap().clone();
        let mut seen = Seen { still: STEP, told: false, ..Seen::new(&watched) };
        assert_eq!(seen.look(AFTER, AFTER), Found::Stuck);
        let words = seen.words();
        assert!(words.contains("W#01-eth0") && words.contains("first 41") && words.contains("thread"), "{words}");
    }

    #[test]
    fn each_line_is_alone() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (128, 128));
    }
}
