//! `margay lab traffic send`: captures and profiles onto an interface.
//!
//! Packets come from memory ([`store`]) where they fit into it. A thread waits until the next packet is due ([`pace`]),
//! writes all packets that are due by then into the kernel's transmit ring ([`port`]), and hands them over with one call.
//! How late each one was is counted in a histogram. Flat out there is nothing to wait for, and several threads may send:
//! each has whole flows, so that the packets of a flow stay in their order.

mod pace;
mod port;
mod store;

use std::fmt::Write as _;
use std::fs;
use std::io::IoSlice;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::generate::{self, Prepared, Progress};
use super::template::Dir;
use super::units::{self, Rate};
use pace::{Clock, Histogram, Pace};
use port::{Counts, Interface, Method, Port};
use store::{Feed, Files, Fitted, Store, copy};

/// `send`'s arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Captures (pcap, pcapng), sent one after the other
    #[arg(value_name = "CAPTURE", required_unless_present_any = ["profile", "preset"])]
    captures: Vec<PathBuf>,
    /// Interface to send on
    #[arg(short, long, value_name = "NAME")]
    interface: String,
    /// Send what servers say on this interface, and only what clients say on --interface
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Make the traffic of a profile on the way instead of reading captures
    #[arg(long, value_name = "FILE", conflicts_with = "captures")]
    profile: Option<PathBuf>,
    /// Make the traffic of a preset on the way; 'traffic gen --list-presets' lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["captures", "profile"])]
    preset: Option<String>,
    /// Seed of the profile's traffic
    #[arg(long)]
    seed: Option<u64>,
    /// Times the profile's sessions a second
    #[arg(long, value_name = "N")]
    load: Option<f64>,
    /// As fast as can be
    #[arg(long, group = "speed")]
    flat_out: bool,
    /// All interfaces and copies together: 2Gbps (frames without FCS), 100kpps
    #[arg(short, long, group = "speed", value_parser = units::rate)]
    rate: Option<Rate>,
    /// As captured, so many times as fast; 1 where no speed is told
    #[arg(short, long, group = "speed", value_name = "N")]
    multiplier: Option<f64>,
    /// So many copies in parallel (1 to 16), each with addresses of its own
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: u32,
    /// Added to the addresses once for the second copy, twice for the third, and so on
    #[arg(long, value_name = "ADDRESS")]
    copy_mask: Option<std::net::Ipv4Addr>,
    /// Send everything so many times; 0 is until stopped
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    loops: u64,
    /// Stop after so long, and begin again where there is not enough to send
    #[arg(long, value_parser = units::duration)]
    duration: Option<u64>,
    /// Stop after so many packets
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Threads where packets are sent flat out from memory; unless told as many as processors, four at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Option<u32>,
    /// How packets are handed to the kernel; auto is the transmit ring for a pace, and flat out AF_XDP for one thread and
    /// sendmmsg for the others
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = ["auto", "ring", "xdp", "sendmmsg"])]
    method: String,
    /// Captures up to this size are read into memory before sending; larger ones while sending
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = units::size)]
    memory: u64,
    /// Reserve most of a processor for the sender (SCHED_DEADLINE), for exact pacing on a busy machine
    #[arg(long)]
    realtime: bool,
    /// Do not raise the sender's priority (nice -20) while it keeps to a pace
    #[arg(long, conflicts_with = "realtime")]
    ordinary: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the report as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

/// When to end.
#[derive(Clone, Copy)]
struct Limits {
    loops: u64,
    /// Nanoseconds.
    duration: Option<u64>,
    /// Of this thread.
    packets: Option<u64>,
}

/// What threads tell about themselves while they run.
#[derive(Default)]
struct Shared {
    packets: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
}

/// What one thread did.
#[derive(Default)]
struct Stats {
    packets: u64,
    bytes: u64,
    /// By interface.
    by_port: [u64; 2],
    nanoseconds: u64,
    late: Histogram,
    counts: Counts,
    fitted: Fitted,
    loops: u64,
    error: Option<String>,
}

/// How packets become copies.
#[derive(Clone, Copy)]
struct Copies {
    n: u32,
    mask: u32,
}

/// Sends a feed until its end or a limit.
fn send(feed: &mut Feed<'_>, ports: &mut [Port], pace: Pace, copies: Copies, limits: Limits, shared: &Shared) -> Stats {
    let mut s = Stats::default();
    let result = match (&*feed, &mut *ports) {
        (Feed::Memory { store, part, .. }, [port])
            if pace == Pace::Flat && copies.n == 1 && limits.packets.is_none() && port.sends_from() =>
        {
            from_memory(store, *part, port, limits, shared, &mut s)
        }
        _ => sending(feed, ports, pace, copies, limits, shared, &mut s),
    };
    s.error = result.err();
    s.fitted = feed.fitted();
    for port in ports {
        // What is filled and could not be handed over was not sent.
        s.packets -= port.pending as u64;
        s.counts.refused += port.counts.refused;
        s.counts.full += port.counts.full;
        s.counts.calls += port.counts.calls;
    }
    s
}

/// How many packets are handed over at once, where nothing must be waited for.
const BATCH: usize = 128;

fn sending(
    feed: &mut Feed<'_>,
    ports: &mut [Port],
    pace: Pace,
    copies: Copies,
    limits: Limits,
    shared: &Shared,
    s: &mut Stats,
) -> Result<(), String> {
    let mut clock = Clock::new(pace);
    let stopped = || shared.stop.load(Ordering::Relaxed);
    // Deadlines of the packets that were filled and not handed over yet.
    let mut due: Vec<u64> = Vec::with_capacity(2 * BATCH);
    let mut told = (0, 0);
    let mut passed = 0u64;
    'all: loop {
        let before = s.packets;
        while let Some(item) = feed.next()? {
            for n in 0..copies.n {
                if let Some(deadline) = clock.due(item.at) {
                    let now = clock.elapsed();
                    if deadline > now {
                        flush(ports, &mut due, &clock, s, &stopped)?;
                        if limits.duration.is_some_and(|d| deadline > d) {
                            clock.wait(limits.duration.unwrap_or(0), stopped);
                            break 'all;
                        }
                        clock.wait(deadline, stopped);
                    }
                    due.push(deadline);
                }
                let which = if ports.len() > 1 && item.dir == Dir::Server { 1 } else { 0 };
                let Some(port) = ports.get_mut(which) else { break 'all };
                let len = item.frame.len();
                loop {
                    if let Some(place) = port.place()
                        && let Some(place) = place.get_mut(..len)
                    {
                        place.copy_from_slice(item.frame);
                        if n > 0
                            && let Some(layout) = item.layout
                        {
                            copy(place, layout, n, copies.mask);
                        }
                        port.commit(len);
                        break;
                    }
                    port.counts.full += 1;
                    if port.pending == 0 {
                        port.wait();
                    }
                    port.flush().map_err(|e| gone(&port.name, &e))?;
                    if stopped() {
                        break 'all;
                    }
                }
                clock.sent(len);
                s.packets += 1;
                s.bytes += len as u64;
                if let Some(count) = s.by_port.get_mut(which) {
                    *count += 1;
                }
                passed += 1;
                if due.len() >= BATCH || (due.is_empty() && passed.is_multiple_of(BATCH as u64)) {
                    flush(ports, &mut due, &clock, s, &stopped)?;
                }
                if passed.is_multiple_of(1024) {
                    shared.packets.fetch_add(s.packets - told.0, Ordering::Relaxed);
                    shared.bytes.fetch_add(s.bytes - told.1, Ordering::Relaxed);
                    told = (s.packets, s.bytes);
                    if stopped() || limits.duration.is_some_and(|d| clock.elapsed() >= d) {
                        break 'all;
                    }
                }
                if limits.packets.is_some_and(|most| s.packets >= most) {
                    break 'all;
                }
            }
            if stopped() {
                break 'all;
            }
        }
        s.loops += 1;
        let more = limits.loops == 0 || s.loops < limits.loops || limits.duration.is_some();
        if !more || s.packets == before {
            break;
        }
        clock.again(feed.rewind()?);
    }
    flush(ports, &mut due, &clock, s, &stopped)?;
    s.nanoseconds = clock.elapsed();
    shared.packets.fetch_add(s.packets - told.0, Ordering::Relaxed);
    shared.bytes.fetch_add(s.bytes - told.1, Ordering::Relaxed);
    Ok(())
}

/// Sends packets from memory flat out without a copy of our own.
fn from_memory(
    store: &Store,
    part: Option<&[u32]>,
    port: &mut Port,
    limits: Limits,
    shared: &Shared,
    s: &mut Stats,
) -> Result<(), String> {
    let clock = Clock::new(Pace::Flat);
    let mut frames: Vec<IoSlice<'_>> = Vec::with_capacity(2 * BATCH);
    'all: loop {
        let mut at = 0;
        loop {
            frames.clear();
            store.slices(part, at, 2 * BATCH, &mut frames);
            if frames.is_empty() {
                break;
            }
            warm(&frames);
            let n = port.send_from(&frames).map_err(|e| gone(&port.name, &e))?;
            at += n;
            let bytes: u64 = frames.iter().take(n).map(|f| f.len() as u64).sum();
            s.packets += n as u64;
            s.bytes += bytes;
            s.by_port[0] += n as u64;
            shared.packets.fetch_add(n as u64, Ordering::Relaxed);
            shared.bytes.fetch_add(bytes, Ordering::Relaxed);
            if shared.stop.load(Ordering::Relaxed) || limits.duration.is_some_and(|d| clock.elapsed() >= d) {
                break 'all;
            }
        }
        s.loops += 1;
        if at == 0 || (limits.loops > 0 && s.loops >= limits.loops && limits.duration.is_none()) {
            break;
        }
    }
    s.nanoseconds = clock.elapsed();
    Ok(())
}

/// Reads a byte of every cache line of frames that are about to be sent: many at a time come from memory then, where the kernel's copy
/// waits for each.
fn warm(frames: &[IoSlice<'_>]) {
    let mut sum = 0u8;
    for frame in frames {
        for byte in frame.iter().step_by(64) {
            sum = sum.wrapping_add(*byte);
        }
    }
    std::hint::black_box(sum);
}

fn gone(name: &str, e: &std::io::Error) -> String {
    format!("the kernel takes no packets for '{name}' any more: {e}; is the interface still there, and up?")
}

/// Hands over what was filled, and notes how late it was.
fn flush(
    ports: &mut [Port],
    due: &mut Vec<u64>,
    clock: &Clock,
    s: &mut Stats,
    stopped: &impl Fn() -> bool,
) -> Result<(), String> {
    for port in ports {
        let mut tries = 0u64;
        while !port.flush().map_err(|e| gone(&port.name, &e))? {
            tries += 1;
            if stopped() && tries > 1000 {
                return Ok(());
            }
        }
    }
    if !due.is_empty() {
        let now = clock.elapsed();
        for deadline in due.drain(..) {
            s.late.add(now.saturating_sub(deadline));
        }
    }
    Ok(())
}

/// Transmit counters of an interface: packets, bytes, dropped, errors.
fn counters(name: &str) -> Option<[u64; 4]> {
    let text = fs::read_to_string("/proc/self/net/dev").ok()?;
    let line = text.lines().find_map(|l| l.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    let n: Vec<u64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    Some([*n.get(9)?, *n.get(8)?, *n.get(11)?, *n.get(10)?])
}

/// The interfaces' counters when they count what was handed over, or after a moment: hardware counts when it has sent.
fn settled(interfaces: &[Interface], before: &[Option<[u64; 4]>], stats: &[Stats]) -> Vec<Option<[u64; 4]>> {
    let began = Instant::now();
    loop {
        let after: Vec<_> = interfaces.iter().map(|i| counters(&i.name)).collect();
        let all = before.iter().zip(&after).enumerate().all(|(k, (before, after))| {
            let handed: u64 = stats.iter().filter_map(|s| s.by_port.get(k)).sum();
            before.zip(*after).is_none_or(|(b, a)| a[0].wrapping_sub(b[0]) >= handed)
        });
        if all || began.elapsed() > Duration::from_millis(300) {
            return after;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(super) fn run(args: Args) -> Result<ExitCode, String> {
    let pace = match (args.flat_out, args.rate, args.multiplier) {
        (true, ..) => Pace::Flat,
        (_, Some(rate), _) => Pace::Rate(rate),
        (_, _, Some(m)) if m.is_finite() && m > 0.0 => Pace::Times(m),
        (_, _, Some(m)) => return Err(format!("--multiplier {m}: it must be more than 0")),
        _ => Pace::Times(1.0),
    };
    let mut interfaces = vec![Interface::find(&args.interface)?];
    if let Some(peer) = &args.peer {
        if *peer == args.interface {
            return Err(format!(
                "--peer is '{peer}' as well as --interface; the second direction needs an interface of its own"
            ));
        }
        interfaces.push(Interface::find(peer)?);
    }
    let mtu = interfaces.iter().map(|i| i.mtu).min().unwrap_or(1500);
    let stop = super::stop_flag()?;
    let mut notes = Vec::new();

    // What is sent.
    let endless = args.duration.is_some() || args.packets.is_some() || args.loops == 0;
    let mut mask = 0x0100_0000;
    let made = match (&args.profile, &args.preset) {
        (None, None) => None,
        (profile, preset) => {
            let what = generate::What {
                profile: profile.clone(),
                preset: preset.clone(),
                // Where something else ends the run, sessions begin until then.
                duration: endless.then_some(365 * 86_400 * 1_000_000_000),
                size: None,
                rate: None,
                multiplier: args.load,
                seed: args.seed,
                attacks: None,
            };
            let made = what.prepare()?;
            mask = made.profile.copy_mask;
            notes.extend(made.profile.notes.iter().cloned());
            Some(made)
        }
    };
    let mut store = Store::default();
    let mut longest = mtu + 14 + 8;
    let mut files = None;
    if made.is_none() {
        let total: u64 = args.captures.iter().map(|p| store::size(p)).sum();
        let opened = Files::open(&args.captures, mtu)?;
        if total <= args.memory {
            store = opened.load(args.memory, total)?;
            if store.len() == 0 {
                return Err(nothing(&args.captures, &store.fitted));
            }
            longest = store.longest;
        } else {
            notes.push(format!(
                "the captures have {} MB, more than --memory: they are read while sending, which may disturb the pacing",
                total / 1_000_000
            ));
            files = Some(opened);
        }
    }
    if let Some(own) = args.copy_mask {
        mask = u32::from(own);
    }
    if args.copies > 1 && mask == 0 {
        return Err("--copy-mask 0.0.0.0: the copies would have the same addresses".into());
    }

    // Who sends it.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = pace == Pace::Flat && store.len() > 0 && args.packets.is_none();
    let threads = match args.threads {
        Some(n) if n > 1 && !parallel => {
            notes.push("one thread sends: several can only send flat out, from memory and without --packets".into());
            1
        }
        Some(n) => n as usize,
        None if parallel => processors.min(4),
        None => 1,
    };
    let (methods, mut open) = open_all(&args, &interfaces, longest, threads, pace == Pace::Flat, &store, &mut notes)?;
    if !args.quiet {
        for note in &notes {
            eprintln!("margay lab: note: {note}");
        }
    }
    // AF_XDP sends about half as much again in the same time.
    let weights: Vec<u32> = methods.iter().map(|m| if matches!(m, Method::Xdp(_)) { 3 } else { 2 }).collect();
    let parts = if threads > 1 { store.parts(&weights) } else { Vec::new() };
    let limits = Limits { loops: args.loops, duration: args.duration, packets: args.packets };
    let copies = Copies { n: args.copies, mask };
    let shared = Shared::default();
    let before: Vec<_> = interfaces.iter().map(|i| counters(&i.name)).collect();
    let mut feeds: Vec<Feed<'_>> = Vec::new();
    match (made, files) {
        (Some(Prepared { profile, mix, plan }), _) => feeds.push(Feed::Profile {
            mix: Box::new(mix),
            profile: Box::new(profile),
            plan,
            buffer: Vec::with_capacity(2048),
            layout: None,
            most: mtu,
            fitted: Fitted::default(),
            last: 0,
        }),
        (None, Some(files)) => feeds.push(Feed::Files(Box::new(files))),
        (None, None) if parts.is_empty() => feeds.push(Feed::Memory { store: &store, part: None, at: 0 }),
        (None, None) => {
            feeds.extend(parts.iter().map(|part| Feed::Memory { store: &store, part: Some(part), at: 0 }));
        }
    }

    let began = Instant::now();
    let stats: Vec<Stats> = std::thread::scope(|scope| {
        let handles: Vec<_> = feeds
            .iter_mut()
            .zip(open.iter_mut())
            .map(|(feed, ports)| {
                let shared = &shared;
                let (realtime, ordinary) = (args.realtime, args.ordinary);
                scope.spawn(move || {
                    port::sleep_exactly();
                    let before = match (realtime, pace) {
                        (true, _) => port::realtime().map_err(|e| {
                            format!("--realtime cannot be had ({e}); it takes root or CAP_SYS_NICE, and a processor that is free")
                        }),
                        (false, Pace::Flat) => Ok(()),
                        (false, _) if ordinary => Ok(()),
                        (false, _) => {
                            port::first();
                            Ok(())
                        }
                    };
                    if let Err(e) = before {
                        return Stats { error: Some(e), ..Stats::default() };
                    }
                    send(feed, ports, pace, copies, limits, shared)
                })
            })
            .collect();
        let mut progress = Progress::new(!args.quiet && !args.json);
        let total = store.len() as f64 * f64::from(args.copies) * args.loops as f64;
        while handles.iter().any(|h| !h.is_finished()) {
            // Short enough that a run of a moment is not made longer.
            std::thread::sleep(Duration::from_millis(if began.elapsed().as_millis() < 200 { 2 } else { 50 }));
            if stop.load(Ordering::Relaxed) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            progress.show(|| {
                let packets = shared.packets.load(Ordering::Relaxed) as f64;
                let run = began.elapsed();
                let done = match args.duration {
                    Some(d) => run.as_nanos() as f64 / d as f64,
                    None if total > 0.0 => packets / total,
                    None => 0.0,
                };
                let bits = shared.bytes.load(Ordering::Relaxed) as f64 * 8.0;
                let rate = |n: f64| units::short(n / run.as_secs_f64());
                (done, format!("{} packets, {}packets/s, {}bit/s", units::short(packets), rate(packets), rate(bits)))
            });
        }
        progress.end();
        handles.into_iter().map(|h| h.join().unwrap_or_default()).collect()
    });
    let after = settled(&interfaces, &before, &stats);

    let mut sum = Stats::default();
    for s in &stats {
        sum.packets += s.packets;
        sum.bytes += s.bytes;
        sum.nanoseconds = sum.nanoseconds.max(s.nanoseconds);
        sum.late.merge(&s.late);
        sum.loops = sum.loops.max(s.loops);
        for (a, b) in sum.by_port.iter_mut().zip(s.by_port) {
            *a += b;
        }
        sum.counts.refused += s.counts.refused;
        sum.counts.full += s.counts.full;
        sum.counts.calls += s.counts.calls;
        sum.error = sum.error.or_else(|| s.error.clone());
    }
    sum.fitted = stats.first().map(|s| s.fitted).unwrap_or_default();
    let r = Report {
        sum: &sum,
        interfaces: &interfaces,
        counters: before.into_iter().zip(after).map(|(b, a)| Some((b?, a?))).collect(),
        pace,
        methods: &methods,
        threads: stats.len(),
        copies: args.copies,
        interrupted: stop.load(Ordering::Relaxed),
    };
    let json = r.json();
    if let Some(path) = &args.report {
        fs::write(path, format!("{json:#}\n")).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    if args.json {
        println!("{json:#}");
    } else {
        print!("{}", r.table());
    }
    if let Some(e) = &sum.error {
        return Err(e.clone());
    }
    if let Some(missed) = r.missed() {
        return Err(missed);
    }
    Ok(if r.interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Why there is nothing to send.
fn nothing(captures: &[PathBuf], f: &Fitted) -> String {
    let names: Vec<String> = captures.iter().map(|p| p.display().to_string()).collect();
    format!(
        "{}: no packet that could be sent ({} neither Ethernet nor IP, {} longer than the interface takes)",
        names.join(", "),
        f.foreign,
        f.too_long
    )
}

/// Opens every interface for every thread by the method asked for, or another one; gives which, by thread, and tells why.
fn open_all(
    args: &Args,
    interfaces: &[Interface],
    longest: usize,
    threads: usize,
    flat: bool,
    store: &Store,
    notes: &mut Vec<String>,
) -> Result<(Vec<Method>, Vec<Vec<Port>>), String> {
    let open = |method: Method| -> Result<Vec<Port>, String> {
        if let (Method::Xdp(_), [one]) = (method, interfaces)
            && flat
            && store.len() > 0
            && args.copies == 1
            && args.packets.is_none()
            && let Ok(port) = Port::open(one, method, longest, Some(store.memory()))
        {
            return Ok(vec![port]);
        }
        interfaces.iter().map(|i| Port::open(i, method, longest, None)).collect()
    };
    let (mut methods, mut all) = (Vec::new(), Vec::new());
    for thread in 0..threads {
        let queue = thread as u32;
        let wanted: &[Method] = match args.method.as_str() {
            "ring" => &[Method::Ring],
            "sendmmsg" => &[Method::Mmsg],
            // An interface with fewer queues than threads has no place for the others.
            "xdp" if thread > 0 => &[Method::Xdp(queue), Method::Mmsg],
            "xdp" => &[Method::Xdp(queue)],
            _ if flat => &[Method::Xdp(queue), Method::Mmsg],
            _ => &[Method::Ring, Method::Mmsg],
        };
        let mut why = None;
        for &method in wanted {
            match open(method) {
                Ok(ports) => {
                    if let Some(why) = why.take().filter(|_| thread == 0) {
                        notes.push(format!("{why}; {} is used instead", method.name()));
                    }
                    methods.push(method);
                    all.push(ports);
                    why = None;
                    break;
                }
                Err(e) => why = Some(e),
            }
        }
        if let Some(why) = why {
            return Err(why);
        }
    }
    Ok((methods, all))
}

struct Report<'a> {
    sum: &'a Stats,
    interfaces: &'a [Interface],
    counters: Vec<Option<([u64; 4], [u64; 4])>>,
    pace: Pace,
    methods: &'a [Method],
    threads: usize,
    copies: u32,
    interrupted: bool,
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

impl Report<'_> {
    fn method(&self) -> String {
        let mut names: Vec<&str> = self.methods.iter().map(|m| m.name()).collect();
        names.dedup();
        names.join(" and ")
    }

    fn seconds(&self) -> f64 {
        (self.sum.nanoseconds as f64 / 1e9).max(1e-9)
    }

    /// Says so where the rate asked for was not reached.
    fn missed(&self) -> Option<String> {
        let Pace::Rate(rate) = self.pace else { return None };
        let (asked, got, unit) = match rate {
            Rate::Bits(b) => (b, self.sum.bytes as f64 * 8.0 / self.seconds(), "bit/s"),
            Rate::Packets(p) => (p, self.sum.packets as f64 / self.seconds(), "packets/s"),
        };
        (got < asked * 0.98 && self.sum.packets > 100 && !self.interrupted).then(|| {
            format!(
                "the rate was not reached: {}{unit} asked, {}{unit} sent; the sender was up to {:.1} ms behind. Ask for less, \
                 or use --flat-out to see what this machine can send",
                units::short(asked),
                units::short(got),
                self.sum.late.max() as f64 / 1e6
            )
        })
    }

    /// Says so where the kernel counts fewer packets than it took.
    fn lost(&self) -> Option<String> {
        let all = self.interfaces.iter().zip(&self.counters).zip(self.sum.by_port);
        let short = all.filter_map(|((i, c), handed)| {
            let (before, after) = (*c)?;
            let sent = after[0].wrapping_sub(before[0]);
            (sent < handed).then(|| format!("{handed} packets were handed over for '{}', and {sent} were sent", i.name))
        });
        short.reduce(|a, b| format!("{a}; {b}"))
    }

    fn json(&self) -> serde_json::Value {
        let s = self.sum;
        let pace = match self.pace {
            Pace::Flat => serde_json::json!({"mode": "flat-out"}),
            Pace::Rate(Rate::Bits(b)) => serde_json::json!({"mode": "rate", "bits_per_second": b}),
            Pace::Rate(Rate::Packets(p)) => serde_json::json!({"mode": "rate", "packets_per_second": p}),
            Pace::Times(m) => serde_json::json!({"mode": "multiplier", "multiplier": m}),
        };
        let late = (s.late.count() > 0).then(|| {
            let mut map = serde_json::Map::new();
            for (name, share) in QUANTILES {
                map.insert(name.into(), s.late.quantile(share).into());
            }
            map.insert("max".into(), s.late.max().into());
            map.insert("packets".into(), s.late.count().into());
            map
        });
        let interfaces: Vec<_> = self
            .interfaces
            .iter()
            .zip(&self.counters)
            .enumerate()
            .map(|(n, (i, c))| {
                let delta = |k: usize| c.map(|(b, a)| a[k].wrapping_sub(b[k]));
                serde_json::json!({
                    "name": i.name, "packets": s.by_port.get(n),
                    "kernel_tx_packets": delta(0), "kernel_tx_bytes": delta(1),
                    "kernel_tx_dropped": delta(2), "kernel_tx_errors": delta(3),
                })
            })
            .collect();
        serde_json::json!({
            "packets": s.packets, "bytes": s.bytes, "seconds": self.seconds(),
            "packets_per_second": s.packets as f64 / self.seconds(),
            "bits_per_second": s.bytes as f64 * 8.0 / self.seconds(),
            "pace": pace, "methods": self.methods.iter().map(|m| m.name()).collect::<Vec<_>>(),
            "threads": self.threads, "copies": self.copies, "loops": s.loops,
            "refused": s.counts.refused, "full": s.counts.full, "calls": s.counts.calls,
            "trimmed": s.fitted.trimmed, "too_long": s.fitted.too_long, "foreign": s.fitted.foreign,
            "pacing_error_ns": late, "interfaces": interfaces,
            "interrupted": self.interrupted, "error": s.error, "rate_reached": self.missed().is_none(),
        })
    }

    fn table(&self) -> String {
        let s = self.sum;
        let mut t = String::new();
        let _ = writeln!(
            t,
            "{} packets, {}B in {:.3} s: {}packets/s, {}bit/s ({}, {} thread{}, {} cop{})",
            s.packets,
            units::short(s.bytes as f64),
            self.seconds(),
            units::short(s.packets as f64 / self.seconds()),
            units::short(s.bytes as f64 * 8.0 / self.seconds()),
            self.method(),
            self.threads,
            if self.threads == 1 { "" } else { "s" },
            self.copies,
            if self.copies == 1 { "y" } else { "ies" },
        );
        for ((n, i), c) in self.interfaces.iter().enumerate().zip(&self.counters) {
            let _ = write!(t, "  {}: {} packets handed over", i.name, s.by_port.get(n).copied().unwrap_or(0));
            if let Some((b, a)) = c {
                let d = |k: usize| a[k].wrapping_sub(b[k]);
                let _ = write!(t, "; the kernel counts {} sent, {} dropped, {} errors", d(0), d(2), d(3));
            }
            t.push('\n');
        }
        let mut told = Vec::new();
        for (n, what) in [
            (s.counts.refused, "refused by the kernel (ENOBUFS) and offered again"),
            (s.fitted.trimmed, "cut behind their IP packet to fit the interface (padding, frame check sequence)"),
            (s.fitted.too_long, "left out: longer than the interface takes"),
            (s.fitted.foreign, "left out: neither Ethernet nor IP"),
        ] {
            if n > 0 {
                told.push(format!("  {n} {what}\n"));
            }
        }
        t.extend(told);
        if let Some(lost) = self.lost() {
            let _ = writeln!(t, "  {lost}: the interface lost the others, or counts late");
        }
        if s.late.count() > 0 {
            let _ = write!(t, "  pacing error, microseconds:");
            for (name, share) in QUANTILES {
                let _ = write!(t, "  {name} {:.1}", s.late.quantile(share) as f64 / 1e3);
            }
            let _ = writeln!(t, "  max {:.1}", s.late.max() as f64 / 1e3);
        }
        if self.interrupted {
            t.push_str("  interrupted\n");
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_counters_are_read() {
        // Every namespace has the loopback interface.
        assert!(counters("lo").is_some());
        assert!(counters("nosuch0").is_none());
        assert!(Interface::find("nosuch0").unwrap_err().contains("there is no interface 'nosuch0'"));
    }
}
