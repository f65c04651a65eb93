//! `margay lab steering`: measures the cost of reading, steering and handing over, without inspection.
//!
//! Each figure measures the engine's own code on a capture in memory: reading; reading and finding each frame's flow;
//! reading, steering and handing over, where the same thread empties the receiving ends in turn, so that no wait is measured.
//! The transfer of a list to another processor is measured separately, between two threads. One hands frames over in lists of
//! several sizes through the engine's queue, and one by one through a queue with a lock.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use margay_capture::{CaptureSource, DeletePolicy, DirOptions, Event};
use margay_config::{Config, RunOptions};
use margay_packet::Frame;
use rtrb::RingBuffer;

use super::assign::Assigned;
use super::feeder::{Reading, Shared, Way};
use super::item::Item;
use super::longest_life;
use super::turns::Outcome;
use crate::Failed;
use crate::checksums::FileChecks;
use crate::console::say;
use crate::control::Control;
use crate::engines::EngineSet;
use crate::settings as all;
use crate::signals::Signals;
use crate::spread::piece::{Piece, Spot};
use crate::spread::steer::{Place, Steering};
use crate::watching::Watching;

/// Frames requested at a time, as in a run.
const BATCH: usize = 256;
/// List sizes to compare.
const LISTS: [usize; 4] = [1, 8, 32, 128];
const HANDED: u64 = 1_000_000;
/// Time limit of a measurement, however busy the machine is.
const LONGEST: Duration = Duration::from_millis(300);
/// Lists between two reads of the clock.
const LOOK: u64 = 64;
/// Lists in flight, as in a run.
const QUEUE: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

const USAGE: &str = "usage: margay lab steering CAPTURE [--workers N] [--repeats N] [--only read|place|hash|shortest-queue]\n\
    \n\
    What reading, steering and handing over take for each packet of a capture, without inspection.\n";

struct Wanted {
    capture: PathBuf,
    workers: usize,
    repeats: u32,
    /// A single step, run once, to count instructions.
    only: Option<String>,
}

/// Runs the command with the arguments after `lab steering`.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let wanted = match wanted(args) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => return say(USAGE),
        Err(why) => {
            eprint!("margay lab steering: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match measure(&wanted) {
        Ok(text) => say(&text),
        Err(f) => {
            eprintln!("margay lab steering: {}", f.message);
            ExitCode::FAILURE
        }
    }
}

fn wanted(args: impl Iterator<Item = OsString>) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted { capture: PathBuf::new(), workers: 2, repeats: 5, only: None };
    let mut args = args;
    while let Some(arg) = args.next() {
        let name = arg.to_string_lossy().into_owned();
        let mut value = || args.next().map(|v| v.to_string_lossy().into_owned()).ok_or(format!("{name} wants a value"));
        let number = |text: String, most: u32| match text.parse::<u32>() {
            Ok(n) if (1..=most).contains(&n) => Ok(n),
            _ => Err(format!("{text}: a number from 1 to {most} is expected")),
        };
        match name.as_str() {
            "-h" | "--help" => return Ok(None),
            "--workers" => wanted.workers = number(value()?, 256)? as usize,
            "--repeats" => wanted.repeats = number(value()?, 1000)?,
            "--only" => wanted.only = Some(value()?),
            _ if name.starts_with('-') => return Err(format!("{name}: there is no such option")),
            _ if wanted.capture.as_os_str().is_empty() => wanted.capture = PathBuf::from(arg),
            _ => return Err("one capture is measured".to_owned()),
        }
    }
    if wanted.capture.as_os_str().is_empty() {
        return Err("a capture is missing".to_owned());
    }
    Ok(Some(wanted))
}

/// Results of one step.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    time: Duration,
    packets: u64,
    /// Lists that were handed over.
    lists: u64,
}

impl Took {
    fn each(&self) -> f64 {
        self.time.as_nanos() as f64 / self.packets.max(1) as f64
    }
}

fn measure(wanted: &Wanted) -> Result<String, Failed> {
    let bench = Bench::new(&wanted.capture, wanted.workers)?;
    if let Some(only) = &wanted.only {
        let took = bench.step(only)?;
        return Ok(format!("{only}: {} packets, {:.1} ns each\n", took.packets, took.each()));
    }
    let steps = ["read", "place", "hash", "shortest-queue"];
    let mut best = [Took::default(); 4];
    for repeat in 0..wanted.repeats {
        for (step, best) in steps.iter().zip(&mut best) {
            let took = bench.step(step)?;
            if repeat == 0 || took.time < best.time {
                *best = took;
            }
        }
    }
    let [read, place, hash, shortest] = best;
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "{} packets, {} workers; the best of {} runs, ns a packet",
        read.packets, wanted.workers, wanted.repeats
    ));
    line(format!("{:38} {:8.1}", "reading", read.each()));
    line(format!("{:38} {:8.1}", "finding the flow", place.each() - read.each()));
    for (name, took) in [("hash", hash), ("shortest-queue", shortest)] {
        line(format!("{:38} {:8.1}", format!("steering and handing over, {name}"), took.each() - read.each()));
    }
    let lists = hash.lists as f64 / hash.packets.max(1) as f64;
    // Cache lines of a list: both ends of the queue, its entry, and the piece it points to; both ends and the entry of the
    // queue that returns lists; the buffer's reference count; the worker's position.
    let of_list = 2.0 + ((size_of::<Item>() + size_of::<Piece>()) as f64 / LINE as f64).ceil() + 3.0 + 1.0 + 1.0;
    let of_packet = size_of::<Spot>() as f64 / LINE as f64;
    line(format!(
        "{:38} {:8.2}   {:.4} lists a packet x {of_list:.0} lines + {} bytes a packet in a list",
        "lines of the cache that change hands",
        lists * of_list + of_packet,
        lists,
        size_of::<Spot>()
    ));
    line("two threads, nothing but handing over, ns a packet".to_owned());
    for size in LISTS {
        let took = (0..wanted.repeats).map(|_| lists_of(size)).fold(f64::MAX, f64::min);
        line(format!("{:38} {took:8.1}", format!("lists of {size}")));
    }
    let took = (0..wanted.repeats).map(|_| one_by_one()).fold(f64::MAX, f64::min);
    line(format!("{:38} {took:8.1}", "one by one, behind a lock"));
    Ok(out)
}

/// The setup of a measurement.
struct Bench {
    capture: PathBuf,
    workers: usize,
    control: Arc<Control>,
}

impl Bench {
    fn new(capture: &Path, workers: usize) -> Result<Bench, Failed> {
        let config = Config::from_str("%YAML 1.1\n---\n", "defaults")?;
        let control = Control::new(
            config,
            RunOptions::default(),
            false,
            PathBuf::new(),
            Arc::new(EngineSet::default()),
            Arc::new(Signals::default()),
            Watching::Nobody,
        )?;
        Ok(Bench { capture: capture.to_owned(), workers, control })
    }

    fn step(&self, name: &str) -> Result<Took, Failed> {
        match name {
            "read" => self.read(),
            "place" => self.place(),
            "hash" => self.hand_over(None),
            "shortest-queue" => self.hand_over(Some(Assigned::new(longest_life(&all::flow(&self.control.config)?)))),
            _ => Err(Failed::new("bench", format!("{name}: there are read, place, hash and shortest-queue"))),
        }
    }

    fn source(&self) -> Result<CaptureSource, Failed> {
        let source = CaptureSource::open(&self.capture, DirOptions::default(), None);
        Ok(source.map_err(|e| Failed::new("pcap", e.to_string()))?.preloading(true))
    }

    fn steering(&self) -> Result<Steering, Failed> {
        let decode = all::decode(&self.control.config, false)?;
        Ok(Steering { tunnels: vec![decode.vxlan, decode.geneve, decode.teredo], ..Steering::default() })
    }

    #[inline(never)]
    fn read(&self) -> Result<Took, Failed> {
        each_frame(self.source()?.direct(), |frame| frame.number)
    }

    #[inline(never)]
    fn place(&self) -> Result<Took, Failed> {
        let steering = self.steering()?;
        each_frame(self.source()?.direct(), |frame| match steering.place(frame).0 {
            Place::Flow(hash)
            | Place::Plain(hash)
            | Place::Opening { flow: hash, .. }
            | Place::Control { pair: hash } => hash,
            Place::Fragment { datagram, .. } => datagram,
            Place::Unknown => 0,
        })
    }

    #[inline(never)]
    fn hand_over(&self, assigned: Option<Assigned>) -> Result<Took, Failed> {
        let (source, checks) = (self.source()?, FileChecks::Believed);
        let reading = Reading { source, checks, delete: DeletePolicy::Never, batch: BATCH };
        let life = longest_life(&all::flow(&self.control.config)?);
        let way = Way { steering: self.steering()?, assigned, moves: None, life };
        let (shared, mut inboxes) = Shared::new(Arc::clone(&self.control), reading, way, self.workers, false);
        let mut feeder = shared.feeder.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took = Took::default();
        let mut reader = 0;
        loop {
            shared.turns.begin();
            let outcome = feeder.turn(reader, &shared);
            shared.turns.end(outcome);
            reader = (reader + 1) % self.workers;
            for (inbox, load) in inboxes.iter_mut().zip(&shared.loads) {
                let mut done = load.done.load(Ordering::Relaxed);
                while let Ok(item) = inbox.items.pop() {
                    let Item::Piece(piece) = item else { continue };
                    for frame in piece.frames() {
                        load.at.store(frame.number, Ordering::Release);
                    }
                    took.lists += 1;
                    done += piece.len() as u64;
                    load.done.store(done, Ordering::Release);
                    if let Some(piece) = Arc::into_inner(piece) {
                        let _ = inbox.buffers.push(piece.done());
                    }
                }
            }
            if outcome == Outcome::Over {
                break;
            }
        }
        // Starts with the first frame; the file was read to memory earlier.
        took.time = feeder.began.map_or(Duration::ZERO, |b| b.elapsed());
        took.packets = shared.loads.iter().map(|l| l.done.load(Ordering::Relaxed)).sum();
        drop(feeder);
        Ok(took)
    }
}

/// Reads all frames and computes a number from each.
fn each_frame(mut source: CaptureSource, of: impl Fn(&Frame<'_>) -> u64) -> Result<Took, Failed> {
    let mut took = Took::default();
    let mut began = Instant::now();
    let mut sum = 0u64;
    loop {
        match source.next_event(BATCH, SystemTime::now) {
            Event::FileStart(_) => began = Instant::now(),
            Event::Batch(batch) => {
                for frame in batch.iter() {
                    sum ^= of(&frame);
                    took.packets += 1;
                }
            }
            Event::Failed { error, .. } => return Err(Failed::new("pcap", error.to_string())),
            Event::Done => break,
            _ => {}
        }
    }
    took.time = began.elapsed();
    std::hint::black_box(sum);
    Ok(took)
}

/// As large as the record that is handed over for a frame.
type Handed = [u64; 4];

/// Repeats until `try_it` returns a value, and yields if the other thread may have no processor.
fn until<T>(mut try_it: impl FnMut() -> Option<T>) -> T {
    let mut looks = 0u32;
    loop {
        if let Some(x) = try_it() {
            return x;
        }
        looks += 1;
        if looks.is_multiple_of(256) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Hands frames from one thread to another in lists of `size`, which are recycled. Returns nanoseconds a frame.
fn lists_of(size: usize) -> f64 {
    let (mut give, mut take) = RingBuffer::<Vec<Handed>>::new(QUEUE);
    let (mut back, mut again) = RingBuffer::<Vec<Handed>>::new(QUEUE * 2);
    let lists = HANDED / size as u64;
    let began = Instant::now();
    let mut handed = 0u64;
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut put = |list: Vec<Handed>| {
                let mut list = Some(list);
                until(|| match give.push(list.take()?) {
                    Ok(()) => Some(()),
                    Err(rtrb::PushError::Full(back)) => {
                        list = Some(back);
                        None
                    }
                });
            };
            for n in 0..lists {
                if n % LOOK == 0 && began.elapsed() > LONGEST {
                    break;
                }
                let mut list = again.pop().unwrap_or_default();
                list.extend((0..size as u64).map(|i| [n, i, n ^ i, 0]));
                put(list);
            }
            // An empty list is the end.
            put(Vec::new());
        });
        let mut sum = 0u64;
        loop {
            let mut list = until(|| take.pop().ok());
            if list.is_empty() {
                break;
            }
            handed += list.len() as u64;
            sum ^= list.iter().map(|h| h[2]).fold(0, |a, b| a ^ b);
            list.clear();
            let _ = back.push(list);
        }
        std::hint::black_box(sum);
    });
    began.elapsed().as_nanos() as f64 / handed.max(1) as f64
}

/// The same for single frames, each with a lock.
fn one_by_one() -> f64 {
    const LAST: u64 = u64::MAX;
    let queue = Mutex::new(VecDeque::<Handed>::with_capacity(QUEUE * 128));
    let began = Instant::now();
    let mut handed = 0u64;
    std::thread::scope(|s| {
        s.spawn(|| {
            let put = |n: u64| {
                until(|| {
                    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                    (queue.len() < QUEUE * 128).then(|| queue.push_back([n, 0, n, 0]))
                });
            };
            for n in 0..HANDED {
                if n % (LOOK * 16) == 0 && began.elapsed() > LONGEST {
                    break;
                }
                put(n);
            }
            put(LAST);
        });
        let mut sum = 0u64;
        loop {
            let [n, ..] = until(|| queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front());
            if n == LAST {
                break;
            }
            handed += 1;
            sum ^= n;
        }
        std::hint::black_box(sum);
    });
    began.elapsed().as_nanos() as f64 / handed.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Option<Wanted>, String> {
        wanted(words.iter().map(OsString::from))
    }

    #[test]
    fn what_can_be_asked() {
        let w = asked(&["a.pcap", "--workers", "3", "--only", "read"]).unwrap().unwrap();
        assert_eq!((w.capture.to_str(), w.workers, w.only.as_deref()), (Some("a.pcap"), 3, Some("read")));
        assert!(asked(&["--help"]).unwrap().is_none());
        for wrong in [&["--workers"][..], &["a", "b"], &[], &["a", "--workers", "0"], &["a", "--else"]] {
            assert!(asked(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_packet_is_handed_over_once() {
        let file = std::env::temp_dir().join(format!("margay-steering-{}.pcap", std::process::id()));
        let mut bytes = Vec::new();
        for n in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
            bytes.extend(n.to_le_bytes());
        }
        for n in 0..5000u32 {
            let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            ip.extend([(n >> 8) as u8, n as u8, 0, 53, 0, 8, 0, 0]);
            for word in [n, 0, ip.len() as u32, ip.len() as u32] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(ip);
        }
        std::fs::write(&file, bytes).unwrap();
        let bench = Bench::new(&file, 3).unwrap();
        for step in ["read", "place", "hash", "shortest-queue"] {
            assert_eq!(bench.step(step).unwrap().packets, 5000, "{step}");
        }
        let lists = bench.step("hash").unwrap().lists;
        assert!((5000 / 256..1000).contains(&lists), "{lists}");
        assert!(bench.step("else").is_err());
        assert!(lists_of(8) > 0.0 && one_by_one() > 0.0);
        std::fs::remove_file(file).unwrap();
    }
}
