//! `margay lab traffic gen`: writes a profile's traffic to a capture file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use margay_capture::{PcapWriter, RECORD_HEADER_LEN, Resolution};
use margay_packet::LinkType;

use super::mix::{Mix, Plan, Truth};
use super::preset;
use super::profile::Profile;
use super::units::{self, Rate};

/// The traffic to make; shared by `gen` and `send`.
#[derive(clap::Args, Clone)]
pub(crate) struct What {
    /// The profile: the project's format or one of TRex's
    #[arg(value_name = "PROFILE")]
    pub(crate) profile: Option<PathBuf>,
    /// A profile that comes with the program; see --list-presets
    #[arg(long, value_name = "NAME", conflicts_with = "profile")]
    pub(crate) preset: Option<String>,
    /// Begin sessions for this long (10s, 5m), and finish them
    #[arg(long, value_parser = units::duration)]
    pub(crate) duration: Option<u64>,
    /// Make a capture file of about this size (600MB, 10GiB)
    #[arg(long, value_parser = units::size, conflicts_with = "duration")]
    pub(crate) size: Option<u64>,
    /// Begin as many sessions a second as this rate needs (2Gbps, 100kpps)
    #[arg(long, value_parser = units::rate)]
    pub(crate) rate: Option<Rate>,
    /// Multiply the profile's sessions a second by this
    #[arg(short, long, value_name = "N", conflicts_with = "rate")]
    pub(crate) multiplier: Option<f64>,
    /// The same seed gives the same bytes
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Share of the sessions that are attacks, where the profile has attacks (1%)
    #[arg(long, value_parser = units::share)]
    pub(crate) attacks: Option<f64>,
}

/// `gen`'s arguments.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Capture to write; - is standard output
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["list_presets", "show_preset"])]
    output: Option<PathBuf>,
    /// Write time stamps in microseconds, for old programs [default: nanoseconds]
    #[arg(long)]
    micro: bool,
    /// When the traffic begins, in seconds since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 1_700_000_000)]
    start: u32,
    /// Write a summary by source, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// List the profiles that come with the program
    #[arg(long)]
    list_presets: bool,
    /// Print a profile that comes with the program, as a starting point for your own
    #[arg(long, value_name = "NAME")]
    show_preset: Option<String>,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

/// A loaded profile, with its packet stream started.
pub(crate) struct Prepared {
    pub(crate) profile: Profile,
    pub(crate) mix: Mix,
    pub(crate) plan: Plan,
}

impl What {
    /// Loads the profile and determines its rate and duration.
    pub(crate) fn prepare(&self) -> Result<Prepared, String> {
        let mut profile = match (&self.profile, &self.preset) {
            (Some(path), _) => Profile::load(path).map_err(|e| e.to_string())?,
            (None, Some(name)) => preset::load(name, self.size)?,
            (None, None) => return Err("give a profile, or --preset NAME; --list-presets lists them".into()),
        };
        if let Some(share) = self.attacks
            && !profile.attack_share(share)
        {
            return Err(format!(
                "--attacks {}%: the profile '{}' has no attacks beside other traffic; the preset 'attacks' has",
                share * 100.0,
                profile.name
            ));
        }
        let seed = self.seed.or(profile.seed).unwrap_or(1);
        let mut mix = Mix::new(&profile, seed)?;
        let (bits, packets, sessions) = mix.rates();
        let multiplier = match (self.rate.or(profile.rate), self.multiplier) {
            (_, Some(m)) if m.is_finite() && m > 0.0 => m,
            (_, Some(m)) => return Err(format!("--multiplier {m}: it must be more than 0")),
            (Some(Rate::Bits(b)), None) => b / bits,
            (Some(Rate::Packets(p)), None) => p / packets,
            (None, None) => 1.0,
        };
        if sessions * multiplier > 1e9 {
            return Err(format!(
                "this would be {} sessions a second; a thousand million is the most",
                units::short(sessions * multiplier)
            ));
        }
        let until = match (self.duration, self.size) {
            (Some(d), _) => d,
            (None, Some(size)) => {
                let per_second = multiplier * (bits / 8.0 + packets * RECORD_HEADER_LEN as f64);
                mix.fitting(multiplier, size as f64 / per_second * 1e9).max(1.0) as u64
            }
            (None, None) => profile.duration.unwrap_or(10_000_000_000),
        };
        let plan = Plan { seed, multiplier, until };
        mix.start(&plan);
        Ok(Prepared { profile, mix, plan })
    }
}

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|e| format!("{} cannot be written: {e}", path.display()))
}

/// The output's path with another extension: `mix.pcap` becomes `mix.rules`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    path.with_extension(ending)
}

pub(super) fn run(args: Args) -> Result<ExitCode, String> {
    if args.list_presets {
        print!("{}", preset::list());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.show_preset {
        print!("{}", preset::text(name)?);
        return Ok(ExitCode::SUCCESS);
    }
    let Some(output) = args.output.clone() else { return Err("--output FILE is needed".into()) };
    let stop = super::stop_flag()?;
    let Prepared { profile, mut mix, plan } = args.what.prepare()?;
    if !args.quiet {
        for note in &profile.notes {
            eprintln!("margay lab: note: {note}");
        }
    }
    let standard = output.as_os_str() == "-";
    let out: Box<dyn Write> = if standard { Box::new(io::stdout().lock()) } else { Box::new(create(&output)?) };
    let resolution = if args.micro { Resolution::Micro } else { Resolution::Nano };
    let failed = |e: io::Error| format!("{} cannot be written: {e}", output.display());
    let mut pcap = PcapWriter::new(BufWriter::with_capacity(1 << 20, out), LinkType::ETHERNET, 262_144, resolution)
        .map_err(failed)?;
    let mut truth = None;
    if let Some(rules) = &profile.rules
        && !standard
    {
        let path = beside(&output, "rules");
        create(&path)?.write_all(rules.as_bytes()).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    let has_attacks = profile.sources.iter().any(|s| matches!(s.what, super::profile::What::Attack(_)));
    if has_attacks && !standard {
        let path = beside(&output, "truth.jsonl");
        truth = Some((BufWriter::new(create(&path)?), path));
    }
    let mut progress = Progress::new(!args.quiet);
    let expected = args.what.size.map(|s| s as f64);
    let mut frame = Vec::with_capacity(2048);
    let (mut packets, mut last) = (0u64, 0u64);
    let base = u64::from(args.start) * 1_000_000_000;
    while let Some(made) = mix.next(&mut frame) {
        let at = base + made.at;
        let secs = u32::try_from(at / 1_000_000_000).unwrap_or(u32::MAX);
        pcap.write_nanos(secs, (at % 1_000_000_000) as u32, &frame, made.wire_len).map_err(failed)?;
        last = made.at;
        packets += 1;
        if let Some((file, path)) = &mut truth {
            for t in mix.truths() {
                writeln!(file, "{}", truth_line(&t, base))
                    .map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
            }
        }
        if packets.is_multiple_of(4096) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.show(|| {
                let done = match expected {
                    Some(size) => pcap.bytes() as f64 / size,
                    None => (made.at as f64 / plan.until as f64).min(1.0),
                };
                (done, format!("{} packets, {}B", units::short(packets as f64), units::short(pcap.bytes() as f64)))
            });
        }
    }
    pcap.flush().map_err(failed)?;
    if let Some((file, path)) = &mut truth {
        file.flush().map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    progress.end();
    let interrupted = stop.load(Ordering::Relaxed);
    let report = report(&mix, &profile, &plan, pcap.bytes(), last, interrupted);
    if let Some(path) = &args.report {
        let text = format!("{report:#}\n");
        create(path)?.write_all(text.as_bytes()).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    if !args.quiet {
        eprint!("{}", table(&mix, packets, pcap.bytes(), last));
        if interrupted {
            eprintln!("Interrupted: the capture ends at {:.3} s.", last as f64 / 1e9);
        }
    }
    Ok(if interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

fn truth_line(t: &Truth, base: u64) -> String {
    let time = |ns: u64| {
        let at = base + ns;
        format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000)
    };
    serde_json::json!({
        "attack": t.name, "sid": t.sid, "match": if t.by_source { "source" } else { "flow" },
        "start": time(t.start), "end": time(t.end), "proto": t.proto,
        "src_ip": t.client.0.to_string(), "src_port": t.client.1,
        "dest_ip": t.server.0.to_string(), "dest_port": t.server.1,
    })
    .to_string()
}

fn report(mix: &Mix, profile: &Profile, plan: &Plan, file: u64, last: u64, interrupted: bool) -> serde_json::Value {
    let seconds = plan.until as f64 / 1e9;
    let sources: Vec<_> = mix
        .sources()
        .map(|s| {
            let t = s.tally;
            let expected = s.cps * plan.multiplier * seconds;
            serde_json::json!({
                "name": s.name, "sessions": t.sessions, "flows": t.flows, "packets": t.packets, "bytes": t.bytes,
                "lost": t.lost, "refused": t.refused, "expected_sessions": expected,
                "expected_bytes": expected * s.bytes, "expected_packets": expected * s.packets,
                "session_bytes": s.bytes, "session_bytes_sd": s.bytes_sd, "samples": s.samples,
            })
        })
        .collect();
    let sum = |f: fn(&super::mix::Tally) -> u64| mix.sources().map(|s| f(&s.tally)).sum::<u64>();
    serde_json::json!({
        "profile": profile.name, "seed": plan.seed, "multiplier": plan.multiplier, "interrupted": interrupted,
        "arrivals": if mix.by_chance() { "poisson" } else { "even" },
        "sessions": sum(|t| t.sessions), "packets": sum(|t| t.packets), "bytes": sum(|t| t.bytes),
        "file_bytes": file, "begins_until_s": seconds, "last_packet_s": last as f64 / 1e9, "sources": sources,
    })
}

fn table(mix: &Mix, packets: u64, file: u64, last: u64) -> String {
    let mut out = String::new();
    let total: u64 = mix.sources().map(|s| s.tally.bytes).sum();
    let width = mix.sources().map(|s| s.name.len()).max().unwrap_or(6).max(6);
    let _ = writeln!(
        out,
        "{:width$}  {:>10} {:>10} {:>12} {:>15} {:>7}",
        "source", "sessions", "flows", "packets", "bytes", "share"
    );
    for s in mix.sources() {
        let (name, t) = (s.name, s.tally);
        let share = t.bytes as f64 * 100.0 / total.max(1) as f64;
        let _ = write!(
            out,
            "{name:width$}  {:>10} {:>10} {:>12} {:>15} {share:>6.2}%",
            t.sessions, t.flows, t.packets, t.bytes
        );
        if t.lost > 0 {
            let _ = write!(out, "  {} lost", t.lost);
        }
        if t.refused > 0 {
            let _ = write!(out, "  {} sessions left out: too many at a time", t.refused);
        }
        out.push('\n');
    }
    let seconds = (last as f64 / 1e9).max(1e-9);
    let _ = writeln!(
        out,
        "{packets} packets, {}B of frames over {seconds:.3} s ({}bit/s, {}packets/s); the file has {}B",
        units::short(total as f64),
        units::short(total as f64 * 8.0 / seconds),
        units::short(packets as f64 / seconds),
        units::short(file as f64)
    );
    out
}

/// A progress line for long runs: every half second on a terminal, every ten seconds elsewhere.
pub(crate) struct Progress {
    began: Instant,
    next: Duration,
    terminal: bool,
    on: bool,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(on: bool) -> Progress {
        let terminal = io::stderr().is_terminal();
        let first = Duration::from_millis(if terminal { 500 } else { 10_000 });
        Progress { began: Instant::now(), next: first, terminal, on, shown: false }
    }

    /// Prints the line if it is due. `say` returns the completed share and a text.
    pub(crate) fn show(&mut self, say: impl FnOnce() -> (f64, String)) {
        if !self.on {
            return;
        }
        let run = self.began.elapsed();
        if run < self.next {
            return;
        }
        self.next = run + Duration::from_millis(if self.terminal { 500 } else { 10_000 });
        let (done, text) = say();
        let done = done.clamp(0.0, 1.0);
        let left = if done > 0.005 { run.as_secs_f64() * (1.0 - done) / done } else { f64::NAN };
        let left = if left.is_finite() { format!(", about {left:.0} s left") } else { String::new() };
        if self.terminal {
            eprint!("\r{:3.0}%  {text}{left}\x1b[K", done * 100.0);
            self.shown = true;
        } else {
            eprintln!("{:3.0}%  {text}{left}", done * 100.0);
        }
    }

    pub(crate) fn end(&mut self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}
