//! `margay split`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::join::{Wanted, join};
use crate::split::{MAX_BUCKETS, Options, split};

/// `margay split`.
#[derive(Parser)]
#[command(
    name = "margay split",
    about = "Splits captures into an archive whose parts can be searched one by one, or merges an archive again",
    after_help = "Exit status: 0 for success; 1 if a capture was broken or could not be read (the log names it); 2 if no archive was made."
)]
struct Cli {
    /// Capture files (pcap, pcapng), folders of them, or - for standard input; read in this order as one capture
    #[arg(required_unless_present = "join", conflicts_with = "join")]
    captures: Vec<PathBuf>,
    /// Folder of the archive, which must not exist; with --join, the output file, - for standard output
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// Number of parts, divided by hosts (1 to 256)
    #[arg(long, value_name = "N", conflicts_with_all = ["part_size", "join"])]
    parts: Option<u16>,
    /// Approximate size of a part, instead of the number of parts, e.g. 256M (for captures of known size)
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "join")]
    part_size: Option<u64>,
    /// Also splits by time: a part has packets of one window, e.g. 1h, 30m, 1d (2m or more)
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "join")]
    by_time: Option<i64>,
    /// Writes the packets of this archive as one pcapng, in capture order
    #[arg(long, value_name = "ARCHIVE")]
    join: Option<PathBuf>,
    /// Only these parts (names from archive.json)
    #[arg(long, value_name = "PART", value_delimiter = ',', requires = "join")]
    only: Vec<String>,
    /// Only flows of this host, or between two (A,B), with everything that belongs to them; includes a few flows of other hosts
    #[arg(long, value_name = "ADDRESS", requires = "join", value_parser = hosts)]
    host: Vec<(IpAddr, Option<IpAddr>)>,
    /// Also writes each packet's number in the whole capture: 8 bytes each, little endian
    #[arg(long, value_name = "FILE", requires = "join")]
    numbers: Option<PathBuf>,
}

/// The text of `margay split --help`.
pub fn help() -> String {
    <Cli as clap::CommandFactory>::command().bin_name("margay split").term_width(100).render_help().to_string()
}

fn unit(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let times = units.iter().find(|u| u.0.eq_ignore_ascii_case(unit)).map(|u| u.1);
    let value = number.parse::<u64>().ok().zip(times).and_then(|(n, t)| n.checked_mul(t)).filter(|&v| v > 0);
    value.ok_or_else(|| format!("a number with a unit, as in {example}"))
}

fn size(text: &str) -> Result<u64, String> {
    unit(text, &[("", 1), ("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("t", 1 << 40)], "256M")
}

/// One address, or two.
fn hosts(text: &str) -> Result<(IpAddr, Option<IpAddr>), String> {
    let (a, b) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b)));
    let address = |text: &str| text.trim().parse().map_err(|_| format!("'{text}' is no address"));
    Ok((address(a)?, b.map(address).transpose()?))
}

/// In microseconds.
fn time(text: &str) -> Result<i64, String> {
    let seconds = unit(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)], "1h")?;
    i64::try_from(seconds).ok().and_then(|s| s.checked_mul(1_000_000)).ok_or_else(|| "it is too long".to_owned())
}

/// Runs `margay split` with the arguments after `split`.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(std::iter::once(OsString::from("margay split")).chain(args)) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &cli.join {
        Some(archive) => put_together(&cli, archive),
        None => take_apart(&cli),
    };
    done.unwrap_or_else(|e| {
        eprintln!("margay split: {e}");
        ExitCode::from(2)
    })
}

fn put_together(cli: &Cli, archive: &Path) -> Result<ExitCode, Error> {
    let create = |file: &PathBuf| File::create(file).map(BufWriter::new).map_err(Error::write(file));
    let mut out: Box<dyn Write> = match cli.into.as_os_str() == "-" {
        true => Box::new(std::io::stdout().lock()),
        false => Box::new(create(&cli.into)?),
    };
    let mut numbers = cli.numbers.as_ref().map(create).transpose()?;
    let wanted = Wanted { only: &cli.only, hosts: &cli.host };
    join(archive, &wanted, &mut out, numbers.as_mut().map(|n| n as &mut dyn Write))?;
    if let (Some(numbers), Some(file)) = (&mut numbers, &cli.numbers) {
        numbers.flush().map_err(Error::write(file))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn take_apart(cli: &Cli) -> Result<ExitCode, Error> {
    let buckets = match (cli.parts, cli.part_size) {
        (Some(parts), _) => parts,
        (None, Some(size)) => by_size(&cli.captures, size, cli.by_time.is_some())?,
        (None, None) => return Err(Error::Options("give --parts N or --part-size SIZE".to_owned())),
    };
    let manifest = split(&cli.captures, &Options { into: cli.into.clone(), buckets, window: cli.by_time })?;
    let broken: Vec<_> = manifest.captures.iter().filter_map(|c| c.problem.as_ref()).collect();
    broken.iter().for_each(|problem| eprintln!("margay split: {problem}"));
    let bytes: u64 = manifest.parts.iter().map(|p| p.bytes).sum();
    let largest = manifest.parts.iter().map(|p| p.bytes).max().unwrap_or(0);
    println!(
        "{} packets in {} parts, {} bytes, the largest part {}",
        manifest.packets,
        manifest.parts.len(),
        bytes,
        largest
    );
    for set in &manifest.together {
        println!(
            "must be read together, because tunnels share flows: {}",
            set.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
        );
    }
    Ok(ExitCode::from(u8::from(!broken.is_empty())))
}

/// The number of parts of `size` bytes for these captures.
fn by_size(captures: &[PathBuf], size: u64, by_time: bool) -> Result<u16, Error> {
    if by_time {
        let reason = "--part-size cannot know the size of a window: use --parts with --by-time";
        return Err(Error::Options(reason.to_owned()));
    }
    let mut total = 0u64;
    for capture in captures {
        let data = std::fs::metadata(capture).map_err(Error::read(capture))?;
        if !data.is_file() {
            return Err(Error::Options(format!(
                "--part-size needs files, and '{}' is none: give --parts",
                capture.display()
            )));
        }
        total = total.saturating_add(data.len());
    }
    let parts = total.div_ceil(size).max(1);
    u16::try_from(parts).ok().filter(|&p| p <= MAX_BUCKETS).ok_or_else(|| {
        Error::Options(format!(
            "the captures come to {parts} parts, and {MAX_BUCKETS} is the most: take larger ones, or --by-time"
        ))
    })
}
