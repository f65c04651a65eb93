//! `margay lab card record` and `mix`: work traces from captures, and from flows of other work traces.

use std::path::{Path, PathBuf};

use margay_card::mix::{Interleaving, Mix, mix};
use margay_card::record::{Job, Recorder};
use margay_card::trace::Trace;

use super::bad;
use crate::problem::{Outcome, Problem};

#[derive(clap::Args)]
pub(crate) struct RecordArgs {
    /// Capture files, or folders of them
    #[arg(required = true)]
    captures: Vec<PathBuf>,
    /// The rules
    #[arg(long, short = 'S')]
    rules: PathBuf,
    /// A configuration [default: the one that comes with Margay]
    #[arg(long, short)]
    config: Option<PathBuf>,
    /// Settings that differ from the configuration (name=value)
    #[arg(long)]
    set: Vec<String>,
    /// Inspect as an inline engine does: each segment at once
    #[arg(long)]
    inline: bool,
    /// Where to write the work trace
    #[arg(long, short)]
    out: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct MixArgs {
    /// The recorded work
    trace: PathBuf,
    /// Packets
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    packets: u32,
    /// Target mean of the frame sizes in bytes
    #[arg(long, default_value_t = 778.0)]
    mean: f64,
    /// Flows that are open at the same time
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    open: u32,
    /// Most consecutive packets of a flow
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    bursts: u32,
    /// Leave out flows with more packets
    #[arg(long, default_value_t = 2000)]
    longest: usize,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the work trace
    #[arg(long, short)]
    out: PathBuf,
}

/// Expands a list of files and folders to files. A folder's files are sorted by name.
pub(crate) fn captures(named: &[PathBuf]) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = |e| Problem::file("read", path, e);
        let mut within = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?.path();
            if entry.extension().is_some_and(|e| ["pcap", "pcapng", "cap"].iter().any(|name| e == *name)) {
                within.push(entry);
            }
        }
        if within.is_empty() {
            return Err(Problem::Usage(format!("{}: there is no .pcap, .pcapng or .cap file in it", path.display())));
        }
        within.sort();
        files.append(&mut within);
    }
    Ok(files)
}

/// The recorder that the program provides.
pub(crate) fn recorder(recorder: Option<Recorder>) -> Outcome<Recorder> {
    recorder.ok_or_else(|| {
        Problem::Usage("this program has no engine to record work with: use `margay lab card record`".to_owned())
    })
}

fn write(trace: &Trace, out: &Path) -> Outcome<()> {
    std::fs::write(out, trace.to_bytes()).map_err(|e| Problem::file("write", out, e))?;
    println!("{}: {}", out.display(), summary(trace));
    Ok(())
}

/// A one-line summary of a work trace.
pub(crate) fn summary(trace: &Trace) -> String {
    let sum = |of: &dyn Fn(&margay_card::trace::Work) -> u64| trace.packets.iter().map(of).sum::<u64>();
    format!(
        "{} packets of {} flows, {:.0} bytes a packet, {} flushes of {} bytes, {} reports of port groups, {} of one table, \
         {} URIs, {} alerts",
        trace.packets.len(),
        trace.flows.len(),
        sum(&|p| u64::from(p.bytes)) as f64 / trace.packets.len().max(1) as f64,
        sum(&|p| u64::from(p.flush > 0)),
        sum(&|p| u64::from(p.flush)),
        sum(&|p| u64::from(p.group)),
        sum(&|p| u64::from(p.all)),
        sum(&|p| u64::from(p.uris)),
        sum(&|p| u64::from(p.alerts)),
    )
}

pub(crate) fn record(args: &RecordArgs, program: Option<Recorder>) -> Outcome<()> {
    let record = recorder(program)?;
    let captures = captures(&args.captures)?;
    let (rules, config, settings) = (args.rules.as_path(), args.config.as_deref(), args.set.as_slice());
    let job = Job { captures: &captures, rules, config, settings, inline: args.inline };
    let trace = record(&job).map_err(Problem::Usage)?;
    trace.check(&args.captures.first().map_or_else(String::new, |c| c.display().to_string())).map_err(bad)?;
    write(&trace, &args.out)
}

pub(crate) fn mixed(args: &MixArgs) -> Outcome<()> {
    let data = std::fs::read(&args.trace).map_err(|e| Problem::file("read", &args.trace, e))?;
    let name = args.trace.display().to_string();
    let base = Trace::from_bytes(&data, &name).map_err(bad)?;
    let interleaving = if args.bursts > 1 { Interleaving::Bursts(args.bursts) } else { Interleaving::Spread };
    let what = Mix {
        packets: args.packets as usize,
        mean: args.mean,
        open: args.open as usize,
        interleaving,
        longest: args.longest,
        seed: args.seed,
    };
    write(&mix(&base, &what).map_err(|why| Problem::Usage(format!("{name}: {why}")))?, &args.out)
}
