//! A thread that looks whether workers make progress.
//!
//! Each worker has a [`Beat`]: a number that it writes once a batch, in a cache line of its own. The thread beside reads them, and
//! of one whose number stands still for too long it says which it is, after which packet, in which script, and what the kernel
//! says of its thread. It counts that, and ends the process where the configuration wants it, so that it is started again.
//! systemd is told that all is well only while all workers go on.
//!
//! Time in which the thread itself did not run (the process was stopped, the machine slept) does not count.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_output::{error, notice, warning};

use super::notify::Notify;
use super::settings::OnStuck;
use crate::signals::Signals;

/// The longest and the shortest time between two looks.
const STEP: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// What a worker writes: nobody else does, and nothing else is near.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line {
    /// Odd while the worker works on packets; another number after each batch.
    beats: AtomicU64,
    /// Packets decoded before this batch.
    packets: AtomicU64,
}

/// A worker, as it is watched.
#[derive(Debug)]
struct WatchedThread {
    name: String,
    thread: i32,
    /// The thread, as scripts know it.
    mark: usize,
    ended: AtomicBool,
    line: Line,
}

/// A worker's side; it is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct Beat {
    watched: Arc<WatchedThread>,
    beats: u64,
}

impl Beat {
    /// Once a batch: the worker goes on. `packets` were decoded so far.
    #[inline]
    pub(crate) fn pass(&mut self, packets: u64) {
        self.beats = (self.beats | 1).wrapping_add(2);
        self.watched.line.packets.store(packets, Ordering::Relaxed);
        self.watched.line.beats.store(self.beats, Ordering::Relaxed);
    }

    /// The worker waits for something that may take as long as it likes.
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

/// All workers, and how often one was stuck.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    threads: Mutex<Vec<Arc<WatchedThread>>>,
    stuck: AtomicU64,
}

impl Watch {
    /// From here on the calling thread is watched as worker `name`.
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

    /// How often a worker was found stuck.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed)
    }
}

/// What is known of a worker from the last look.
#[derive(Debug)]
struct Seen {
    watched: Arc<WatchedThread>,
    beats: u64,
    /// For how long it has not gone on.
    still: Duration,
    /// Processor time of its thread when it last went on.
    ran: Option<Duration>,
    told: bool,
}

/// What came of a look at a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Well,
    /// For the first time.
    Stuck,
    /// Still.
    StillStuck,
    /// It went on after it was stuck, for so long.
    Back(Duration),
}

impl Seen {
    fn new(watched: &Arc<WatchedThread>) -> Seen {
        let beats = watched.line.beats.load(Ordering::Relaxed);
        Seen { watched: Arc::clone(watched), beats, still: Duration::ZERO, ran: None, told: false }
    }

    /// Looks at it, `time` after the last look.
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

    /// What is known of it.
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

/// A thread's state and the processor time that it had, in hundredths of a second at best.
fn account(thread: i32) -> Option<(char, Duration)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name stands in brackets and may have anything in it.
    let mut rest = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = rest.next()?.chars().next()?;
    let mut times = rest.skip(10).map_while(|n| n.parse::<u64>().ok());
    let ticks = times.next()?.saturating_add(times.next()?);
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Some((state, Duration::from_millis(ticks.saturating_mul(1000) / a_second)))
}

/// What the thread does.
pub(super) struct Watchdog {
    pub(super) watch: Arc<Watch>,
    pub(super) signals: Arc<Signals>,
    pub(super) notify: Arc<Notify>,
    /// After how long a worker is stuck.
    pub(super) after: Duration,
    pub(super) on_stuck: OnStuck,
}

impl Watchdog {
    /// To the end of the process.
    pub(super) fn run(&self) {
        // systemd wants to hear something within its time, best twice.
        let ping = self.notify.patience.map(|p| p / 2);
        let step = (self.after / 8).min(ping.map_or(STEP[1], |p| p / 2)).clamp(STEP[0], STEP[1]);
        let mut seen: Vec<Seen> = Vec::new();
        let (mut before, mut pinged) = (Instant::now(), None::<Instant>);
        let mut stopping = Duration::ZERO;
        loop {
            std::thread::sleep(step);
            margay_packet::fault::point("watchdog");
            let now = Instant::now();
            // Of a longer time than was asked for this thread, and maybe all, did not run.
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

    /// Looks at all workers, when the engine has been `stopping` for so long; whether they are well.
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
                    // The others had that time to come to their end.
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
        // Not begun, then waiting: as long as it likes.
        (0..9).for_each(|_| look(Found::Well));
        beat.pass(7);
        look(Found::Well);
        beat.rest();
        (0..9).for_each(|_| look(Found::Well));
        beat.pass(8);
        // The first look sees another number.
        (0..3).for_each(|_| look(Found::Well));
        look(Found::Stuck);
        look(Found::StillStuck);
        beat.pass(9);
        look(Found::Back(Duration::from_secs(40)));
        look(Found::Well);
        // Each batch has a number of its own, also when a rest lies between.
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
