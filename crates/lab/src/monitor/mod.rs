//! `margay lab monitor`: samples the resource use of the machine and of a process tree, at a fixed period.
//!
//! A [`Sampler`] opens the files of /proc and /sys once, and reads them again from their start for each sample. A sample
//! is a row of numbers, one for each [`Column`]. Kernel counters appear as the difference from the previous sample, so a
//! column adds up to the total of a run. Sample times are fixed at the start, so they do not drift. A sample that could
//! not be taken in time is skipped and counted in the next one's `missed`.

mod card;
mod column;
mod counters;
mod group;
mod machine;
mod network;
mod process;
mod sampled_file;
mod sampler;
mod threads;
mod write;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use column::Kind;
pub(crate) use machine::describe;
pub(crate) use sampler::{Family, LEADING, Sampler, What};
pub(crate) use write::{Format, Writer, field};

use crate::problem::{Outcome, Problem};
use crate::signals;
use crate::units;

/// Sample what the machine and a process use
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The time between samples: 250ms, 1s, …
    #[arg(long, short = 'i', default_value = "1s", value_parser = units::duration)]
    period: Duration,
    /// Stop after this time
    #[arg(long, short = 'd', value_parser = units::duration)]
    duration: Option<Duration>,
    /// Stop after this many samples
    #[arg(long, short = 'n')]
    count: Option<u64>,
    /// Follow this process and all its descendants, until it ends
    #[arg(long, short = 'p', conflicts_with = "command")]
    pid: Option<u32>,
    /// Write samples here instead of to standard output
    #[arg(long, short = 'o')]
    output: Option<PathBuf>,
    /// Output format
    #[arg(long, short = 'f', value_enum, default_value = "csv")]
    format: Format,
    /// Leave out a family of columns; may be repeated, or given with commas
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Family>,
    /// Prefixes of thread names that get columns, with commas [default: the threads that exist at the start]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    threads: Vec<String>,
    /// Print the columns with their units, without taking a sample
    #[arg(long)]
    columns: bool,
    /// A command to start and follow; the monitor exits with its status
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// A command that was started to be sampled. It is killed when the sampler ends.
struct Followed(Child);

impl Drop for Followed {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let pid = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until && matches!(self.0.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If the process does not exist, the command cannot be started or samples cannot be written.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if args.period < Duration::from_millis(1) {
        return Err(Problem::Usage("--period: at least 1ms".to_owned()));
    }
    signals::listen();
    let out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).map_err(|error| Problem::file("make", path, error))?),
        None => Box::new(io::stdout()),
    };
    let mut followed = None;
    if let Some(program) = args.command.first().filter(|_| !args.columns) {
        let child = Command::new(program).args(&args.command[1..]).process_group(0).spawn();
        let child =
            child.map_err(|error| Problem::Failed(format!("cannot start {}: {error}", program.to_string_lossy())))?;
        followed = Some(Followed(child));
    }
    let process = args.pid.or_else(|| followed.as_ref().map(|followed| followed.0.id()));
    let mut sampler = Sampler::open(&What { process, without: args.without.clone(), threads: args.threads.clone() })?;
    for note in &sampler.notes {
        eprintln!("monitor: {note}");
    }
    if args.columns {
        return list(&sampler).map(|()| ExitCode::SUCCESS).or_else(closed);
    }
    let header = sampler.header().map(str::to_owned).collect::<Vec<_>>();
    let written = |error: io::Error| match &args.output {
        Some(path) => Problem::file("write", path, error),
        None => Problem::Failed(format!("cannot write to standard output: {error}")),
    };
    let writer = Writer::new(BufWriter::with_capacity(1 << 16, out), args.format, header.iter().map(String::as_str));
    let mut writer = match writer {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        other => other.map_err(written)?,
    };
    let begun = Instant::now();
    let mut left = args.count.unwrap_or(u64::MAX);
    let ended = AtomicBool::new(false);
    let child = std::cell::RefCell::new(followed);
    let status = std::cell::Cell::new(None);
    let stop = || {
        if let Some(Followed(child)) = child.borrow_mut().as_mut() {
            if let Ok(Some(code)) = child.try_wait() {
                status.set(Some(code));
                ended.store(true, Ordering::Relaxed);
            }
        } else if let Some(pid) = args.pid
            && !std::path::Path::new(&format!("/proc/{pid}")).exists()
        {
            ended.store(true, Ordering::Relaxed);
        }
        ended.load(Ordering::Relaxed) || args.duration.is_some_and(|limit| begun.elapsed() > limit + args.period / 2)
    };
    let result = sampler.run(args.period, stop, |row| {
        writer.write(row).map_err(written)?;
        left = left.saturating_sub(1);
        Ok(left > 0)
    });
    // A last sample covers the rest after the last whole period, so a short command has one too.
    if ended.load(Ordering::Relaxed) && result.is_ok() && left > 0 {
        writer.write(sampler.sample(0)).map_err(written)?;
    }
    let (taken, missed) = sampler.totals();
    let own = own_time().as_secs_f64() / begun.elapsed().as_secs_f64().max(1e-9) * 100.0;
    eprintln!("monitor: {taken} samples, {missed} missed; the monitor itself took {own:.2} % of a core");
    match result {
        Err(problem) if args.output.is_none() && problem.to_string().contains("Broken pipe") => {}
        other => other?,
    }
    Ok(match status.get() {
        Some(code) => {
            ExitCode::from(code.code().unwrap_or_else(|| 128 + code.signal().unwrap_or(0)).clamp(0, 255) as u8)
        }
        None => ExitCode::SUCCESS,
    })
}

fn list(sampler: &Sampler) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for (name, unit) in LEADING {
        writeln!(out, "{name:40} {unit}")?;
    }
    for column in sampler.columns() {
        let kind = match column.kind {
            Kind::Gauge => "at the time of the sample",
            Kind::Count => "since the last sample",
            Kind::Share { .. } => "of the period",
        };
        writeln!(out, "{:40} {} {kind}", column.name, column.unit)?;
    }
    out.flush()
}

/// A reader that closed the pipe is no error.
fn closed(error: io::Error) -> Outcome<ExitCode> {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Problem::Failed(format!("cannot write to standard output: {error}")))
}

/// CPU time of this process so far.
fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_value_for_each_column() {
        let mut sampler = Sampler::open(&What { process: Some(std::process::id()), ..What::default() }).unwrap();
        let names: Vec<String> = sampler.header().map(str::to_owned).collect();
        std::thread::sleep(Duration::from_millis(20));
        let row = sampler.sample(0).to_vec();
        assert_eq!(row.len(), names.len());
        let value = |name: &str| row[names.iter().position(|known| known == name).unwrap()];
        assert!(value("mem.total") > 1e6);
        assert!(value("proc.resident") > 1e5);
        assert!(value("proc.threads") >= 1.0);
        assert!((0.019..5.0).contains(&value("period")));
        assert!((0.0..=101.0).contains(&(value("cpu.idle") + value("cpu.iowait"))) || value("period") < 0.05);
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), names.len(), "a name is there twice");
    }

    #[test]
    fn counts_what_a_child_does() {
        let mut child = Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 5"])
            .spawn()
            .unwrap();
        let mut sampler = Sampler::open(&What { process: Some(child.id()), ..What::default() }).unwrap();
        let names: Vec<String> = sampler.header().map(str::to_owned).collect();
        let at = |name: &str| names.iter().position(|known| known == name).unwrap();
        let mut busy = 0.0;
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(50));
            let row = sampler.sample(0);
            busy += (row[at("proc.user")] + row[at("proc.system")]) * row[at("period")] / 100.0;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(busy > 0.03, "{busy} s");
    }

    #[test]
    fn times_do_not_drift_and_what_was_missed_is_counted() {
        let mut sampler = Sampler::open(&What::default()).unwrap();
        let period = Duration::from_millis(20);
        let (mut elapsed, mut missed, mut samples) = (Vec::new(), 0.0, 0);
        sampler
            .run(
                period,
                || false,
                |row| {
                    elapsed.push(row[1]);
                    missed += row[3];
                    samples += 1;
                    if samples == 5 {
                        std::thread::sleep(Duration::from_millis(70));
                    }
                    Ok(elapsed.len() < 20)
                },
            )
            .unwrap();
        assert!(missed >= 2.0, "{missed} missed");
        // Sample k is due k periods after the start. The machine may wake it late, but never early, and lateness does
        // not add up.
        let mut due: f64 = 0.0;
        let mut late = Vec::new();
        for at in &elapsed {
            due = (at / 0.02).floor() * 0.02;
            late.push(at - due);
        }
        assert!((elapsed.len() as f64 + missed) * 0.02 - due < 0.03, "{elapsed:?} {missed}");
        late.sort_by(f64::total_cmp);
        assert!(late[late.len() / 2] < 0.015, "{late:?}");
    }

    /// `make monitor-cost` runs it optimised and alone, because it measures time.
    #[test]
    #[ignore = "measures time: make monitor-cost"]
    fn four_samples_a_second_take_under_a_hundredth_of_a_core() {
        let mut sampler = Sampler::open(&What { process: Some(std::process::id()), ..What::default() }).unwrap();
        let mut writer =
            Writer::new(io::sink(), Format::Csv, sampler.header().collect::<Vec<_>>().into_iter()).unwrap();
        let time = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
        };
        let before = time();
        for _ in 0..40 {
            writer.write(sampler.sample(0)).unwrap();
        }
        let each = (time() - before) / 40.0;
        println!("{:.3} % of a core at four samples a second", each * 4.0 * 100.0);
        assert!(each * 4.0 < 0.01, "{each} s a sample");
    }
}
