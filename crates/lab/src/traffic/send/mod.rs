//! `margay lab traffic send`: sends captures and profiles on an interface.
//!
//! Packets come from memory ([`store`]) if they fit into it. A thread waits until the next packet is due ([`pace`]), writes all
//! packets that are due by then into the kernel's transmit ring ([`port`]), and hands them over with one call. A histogram has
//! the lateness of each. Flat out, threads do not wait, and several may send: each has whole flows, so that the packets of a
//! flow stay in order.

mod pace;
mod port;
mod report;
mod store;
mod work;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::generate::{self, Prepared, Progress};
use super::units::{self, Rate};
use crate::ethtool::{Ethtool, Queues};
use pace::Pace;
pub(crate) use port::{Interface, first, sleep_exactly};
use port::{Method, Port};
use report::{Report, counters, settled};
use store::{Feed, Files, Fitted, Store};
use work::{Among, Copies, Limits, PORTS_MOST, Shared, Stats, send};

/// `send`'s arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Captures (pcap, pcapng), sent one after the other
    #[arg(value_name = "CAPTURE", required_unless_present_any = ["profile", "preset"])]
    captures: Vec<PathBuf>,
    /// Interface to send on. Given several times, flows are divided among the interfaces by their two addresses, so that both
    /// directions and all fragments of a flow are on the same one
    #[arg(short, long, value_name = "NAME", required = true)]
    interface: Vec<String>,
    /// Send every packet on each interface, instead of dividing flows among them
    #[arg(long, conflicts_with = "peer")]
    same: bool,
    /// Send the servers' packets on this interface, and only the clients' packets on --interface
    #[arg(long, value_name = "NAME")]
    peer: Option<String>,
    /// Make the traffic of a profile while sending, instead of reading captures
    #[arg(long, value_name = "FILE", conflicts_with = "captures")]
    profile: Option<PathBuf>,
    /// Make the traffic of a preset while sending; 'traffic gen --list-presets' lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["captures", "profile"])]
    preset: Option<String>,
    /// Seed of the profile's traffic
    #[arg(long)]
    seed: Option<u64>,
    /// Multiply the profile's sessions a second by this
    #[arg(long, value_name = "N")]
    load: Option<f64>,
    /// Send as fast as possible
    #[arg(long, group = "speed")]
    flat_out: bool,
    /// Rate of all interfaces and copies together: 2Gbps (frames without FCS), 100kpps
    #[arg(short, long, group = "speed", value_parser = units::rate)]
    rate: Option<Rate>,
    /// Speed relative to the capture's own [default: 1, unless another speed is given]
    #[arg(short, long, group = "speed", value_name = "N")]
    multiplier: Option<f64>,
    /// Number of parallel copies (1 to 16), each with its own addresses
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: u32,
    /// Added to the addresses once for the second copy, twice for the third, and so on
    #[arg(long, value_name = "ADDRESS")]
    copy_mask: Option<std::net::Ipv4Addr>,
    /// Use new addresses in each round, so that no flow repeats; start with those of round N
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    renew: Option<u32>,
    /// Send everything this many times; 0 repeats until stopped
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    loops: u64,
    /// Stop after this time; send everything again if it ends earlier
    #[arg(long, value_parser = units::duration)]
    duration: Option<u64>,
    /// Stop after this many packets
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Threads that send flat out from memory [default: the number of processors, at most four]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Option<u32>,
    /// How packets are handed to the kernel. auto uses the transmit ring to keep a pace. Flat out it uses AF_XDP for each thread
    /// that has a transmit queue, and sendmmsg for the others
    #[arg(long, value_name = "METHOD", default_value = "auto", value_parser = ["auto", "ring", "xdp", "sendmmsg"])]
    method: String,
    /// Read captures up to this size into memory before sending, and larger ones while sending
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
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: Args) -> Result<ExitCode, String> {
    let pace = match (args.flat_out, args.rate, args.multiplier) {
        (true, ..) => Pace::Flat,
        (_, Some(rate), _) => Pace::Rate(rate),
        (_, _, Some(m)) if m.is_finite() && m > 0.0 => Pace::Times(m),
        (_, _, Some(m)) => return Err(format!("--multiplier {m}: it must be more than 0")),
        _ => Pace::Times(1.0),
    };
    let (interfaces, among) = interfaces(&args)?;
    let mtu = interfaces.iter().map(|i| i.mtu).min().unwrap_or(1500);
    let stop = super::stop_flag()?;
    let mut notes = Vec::new();

    // The traffic to send.
    let endless = args.duration.is_some() || args.packets.is_some() || args.loops == 0;
    let mut mask = 0x0100_0000;
    let made = match (&args.profile, &args.preset) {
        (None, None) => None,
        (profile, preset) => {
            let what = generate::What {
                profile: profile.clone(),
                preset: preset.clone(),
                // If something else ends the run, sessions begin until it ends.
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
    if (args.copies > 1 || args.renew.is_some()) && mask == 0 {
        return Err("--copy-mask 0.0.0.0: the copies would have the same addresses".into());
    }

    // The threads that send it, and their sockets.
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
    // AF_XDP sends about half as much again as the others in the same time.
    let weights: Vec<u32> = methods.iter().map(|m| if matches!(m, Method::Xdp(_)) { 3 } else { 2 }).collect();
    let parts = if threads > 1 { store.parts(&weights) } else { Vec::new() };
    let limits = Limits { loops: args.loops, duration: args.duration, packets: args.packets };
    let copies = Copies { n: args.copies, mask, renew: args.renew };
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
                    send(feed, ports, among, pace, copies, limits, shared)
                })
            })
            .collect();
        let mut progress = Progress::new(!args.quiet && !args.json);
        let total = store.len() as f64 * f64::from(args.copies) * args.loops as f64;
        while handles.iter().any(|h| !h.is_finished()) {
            // At first look often, so that a short run is not prolonged.
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

/// The interfaces, and which packets are sent on which.
fn interfaces(args: &Args) -> Result<(Vec<Interface>, Among), String> {
    let names: Vec<&String> = args.interface.iter().chain(&args.peer).collect();
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(match args.peer {
                Some(_) => format!(
                    "--peer is '{name}' as well as --interface; the second direction needs an interface of its own"
                ),
                None => format!("--interface names '{name}' twice"),
            });
        }
    }
    let among = match (&args.peer, args.same) {
        (Some(_), _) if names.len() > 2 => return Err("--peer goes with one --interface".into()),
        (Some(_), _) => Among::Directions,
        (None, true) => Among::Same,
        (None, false) => Among::Flows,
    };
    if names.len() > PORTS_MOST {
        return Err(format!("--interface: at most {PORTS_MOST}"));
    }
    Ok((names.into_iter().map(|name| Interface::find(name)).collect::<Result<_, _>>()?, among))
}

/// The reason that there is nothing to send.
fn nothing(captures: &[PathBuf], f: &Fitted) -> String {
    let names: Vec<String> = captures.iter().map(|p| p.display().to_string()).collect();
    format!(
        "{}: no packet that could be sent ({} neither Ethernet nor IP, {} longer than the interface takes)",
        names.join(", "),
        f.foreign,
        f.too_long
    )
}

/// Opens every interface for each thread, by the requested method or another one. Returns each thread's method, and notes the reason.
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
            && args.renew.is_none()
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
            // If an interface has fewer queues than there are threads, the other threads use `sendmmsg`.
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
    if args.method != "ring" && args.method != "sendmmsg" && methods.contains(&Method::Mmsg) {
        for one in interfaces {
            if let Some(Queues { now, most, word }) = Ethtool::open(&one.name).ok().and_then(|e| e.transmit_queues())
                && most > now
                && threads > now as usize
            {
                let (name, wanted) = (&one.name, threads.min(most as usize));
                notes.push(format!(
                    "'{name}' has {now} transmit queue{} for {threads} threads; after 'ethtool -L {name} {word} {wanted}' more of \
                     them could use AF_XDP, which is faster",
                    if now == 1 { "" } else { "s" }
                ));
            }
        }
    }
    Ok((methods, all))
}
