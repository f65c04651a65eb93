//! `margay lab throughput`: the highest rate that an engine takes with at most a given loss, and where packets are lost above it.

mod search;
mod stages;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(crate) use search::{Bound, Found, Limit, Range, Verdict, search};
pub(crate) use stages::{Counted, Losses, Stage};

use crate::engine::{Contract, Options};
use crate::load::{self, Sender, Wire};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::run::live::{Rig, Times, Trial};
use crate::run::{Capture, offline};
use crate::stats::Summary;
use crate::units::{self, Rate, short};
use crate::{monitor, signals};

/// Find the highest rate that an engine takes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine: margay, suricata, simulated, or a file that describes another
    #[arg(long, short = 'e', default_value = "margay")]
    engine: String,
    /// The engine's program, where it is not in the path
    #[arg(long)]
    binary: Option<String>,
    /// The engine's configuration file
    #[arg(long, short = 'c')]
    config: Option<String>,
    /// A file of rules that are the only ones
    #[arg(long, short = 'S')]
    rules: Vec<String>,
    /// A setting of the engine's configuration, name=value
    #[arg(long)]
    set: Vec<String>,
    /// One more word for the engine's command line
    #[arg(long = "arg", allow_hyphen_values = true)]
    args: Vec<String>,
    /// The simulated engine's packets a second
    #[arg(long, default_value_t = 20_000.0)]
    capacity: f64,
    /// Time the engine over this capture instead of sending to it
    #[arg(long, conflicts_with_all = ["replay", "interface"])]
    capture: Option<PathBuf>,
    /// The capture to send, again and again
    #[arg(long)]
    replay: Option<PathBuf>,
    /// The interface that the engine reads from; without, a pair of virtual ones is made
    #[arg(long, requires = "send_on")]
    interface: Option<String>,
    /// The interface to send on, connected to the other
    #[arg(long, requires = "interface")]
    send_on: Option<String>,
    /// The largest packet on virtual interfaces, in bytes without the Ethernet header
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// The rate to begin with: 10kpps, 100mbit
    #[arg(long, default_value = "10kpps", value_parser = units::rate)]
    from: Rate,
    /// The highest rate of interest
    #[arg(long, default_value = "10mpps", value_parser = units::rate)]
    to: Rate,
    /// The loss that is allowed, in % of what was sent
    #[arg(long, default_value_t = 1.0)]
    loss: f64,
    /// How closely to find the bound, in %
    #[arg(long, default_value_t = 1.0)]
    close: f64,
    /// How long to send before losses count
    #[arg(long, default_value = "2s", value_parser = units::duration)]
    warm_up: Duration,
    /// How long to send after that
    #[arg(long, default_value = "10s", value_parser = units::duration)]
    hold: Duration,
    /// How many searches to make, or runs over the capture
    #[arg(long, short = 'n', default_value_t = 3)]
    repeats: u32,
    /// The time between samples of the machine and the engine
    #[arg(long, default_value = "250ms", value_parser = units::duration)]
    period: Duration,
    /// The folder for samples, logs and results
    #[arg(long, short = 'o', default_value = "lab-throughput")]
    output: PathBuf,
    /// Send less than asked, in %: to see that it is found
    #[arg(long, hide = true, default_value_t = 0.0)]
    lose_sender: f64,
    /// Send no more packets a second: to see that it is found
    #[arg(long, hide = true)]
    sender_most: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// Where the engine, the sender or the interfaces fail; or somebody asks to stop. Samples and trials so far are in the folder.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    signals::listen();
    for (name, value, most) in [("loss", args.loss, 100.0), ("close", args.close, 100.0)] {
        if !(0.0..most).contains(&value) {
            return Err(Problem::Usage(format!("--{name} {value}: a percentage is expected")));
        }
    }
    if args.repeats == 0 || args.close == 0.0 || args.hold.is_zero() {
        return Err(Problem::Usage("--repeats, --close and --hold have to be above 0".to_owned()));
    }
    let contract = contract(args)?;
    std::fs::create_dir_all(&args.output).map_err(|error| Problem::file("make", &args.output, error))?;
    let dir = std::path::absolute(&args.output).map_err(|error| Problem::file("find", &args.output, error))?;
    if let Some(path) = &args.capture {
        return over_capture(args, &contract, path, &dir);
    }
    let mut session = Session::begin()?;
    let folder = session.make_folder()?;
    let times = Times { warm_up: args.warm_up, hold: args.hold, period: args.period };
    let (wire, sender, capture): (Option<Wire>, Box<dyn Sender>, Option<Capture>) = if contract.takes_socket() {
        let sender =
            load::Stream { socket: folder.join("sim"), lose: args.lose_sender / 100.0, most: args.sender_most };
        (None, Box::new(sender), None)
    } else {
        let Some(path) = &args.replay else {
            return Err(Problem::Usage(
                "--replay: a capture to send is missing (or --capture, to read one offline)".to_owned(),
            ));
        };
        let capture = Capture::read(path)?;
        let wire = match (&args.interface, &args.send_on) {
            (Some(engine), Some(sender)) => Wire::given(sender, engine)?,
            _ => Wire::make(&mut session, args.mtu)?,
        };
        let sender = load::TcpReplay { capture: path.clone(), interface: wire.sender.clone(), folder: folder.clone() };
        (Some(wire), Box::new(sender), Some(capture))
    };
    let packets = |name: &str, rate: Rate| {
        let packets = match (&capture, rate) {
            (Some(capture), rate) => capture.packets_a_second(rate),
            (None, Rate::Packets(packets)) => Some(packets),
            _ => None,
        };
        packets.ok_or_else(|| Problem::Usage(format!("--{name}: this load has no such rate; packets a second it has")))
    };
    let range = Range { from: packets("from", args.from)?, to: packets("to", args.to)?, close: args.close / 100.0 };
    let mut rig = Rig::new(contract, wire, sender, times, &dir, folder, session);
    println!("load: {}", rig.describe());
    let mut log = TrialLog::create(&dir.join("trials.csv"))?;
    let searches = Searches { range, repeats: args.repeats, allowed: args.loss / 100.0 };
    let result = searches.run(&mut rig, &mut |search, trial| {
        println!("{}", line(search, &trial, capture.as_ref()));
        log.write(search, &trial)
    });
    let notes = rig.end();
    let bound = result?;
    for note in notes? {
        println!("note: {note}");
    }
    report(&bound, args.loss, capture.as_ref(), &dir)?;
    Ok(ExitCode::SUCCESS)
}

fn contract(args: &Args) -> Outcome<Contract> {
    let options = Options {
        config: args.config.clone(),
        rules: args.rules.clone(),
        set: args.set.clone(),
        args: args.args.clone(),
    };
    let binary = |otherwise: String| args.binary.clone().unwrap_or(otherwise);
    match args.engine.as_str() {
        "suricata" => Ok(Contract::suricata("suricata", &binary("suricata".to_owned()), &options)),
        "margay" => Ok(Contract::suricata("margay", &binary(crate::engine::own_engine()), &options)),
        "simulated" => Contract::simulated("simulated", args.capacity, &args.args),
        path if Path::new(path).exists() => Contract::load(path),
        other => Err(Problem::Usage(format!(
            "--engine {other}: margay, suricata and simulated are known, and there is no file of that name"
        ))),
    }
}

/// Several searches for the same bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Searches {
    pub(crate) range: Range,
    pub(crate) repeats: u32,
    /// The share of what was sent that may be lost.
    pub(crate) allowed: f64,
}

/// A sender that is this share below the rate has not reached it.
const SHORT: f64 = 0.02;

impl Searches {
    /// Makes them; `each` is told each trial and the number of its search, from 1.
    ///
    /// # Errors
    /// What a trial or `each` returns.
    pub(crate) fn run(&self, rig: &mut Rig, each: &mut dyn FnMut(u32, Trial) -> Outcome<()>) -> Outcome<Bound> {
        let mut found = Vec::new();
        for number in 1..=self.repeats {
            let mut once = |rate: f64| {
                let trial = rig.trial(rate)?;
                each(number, trial)?;
                let verdict = self.verdict(&trial);
                let clear = verdict == Verdict::Lost && trial.losses.total() > CLEAR * self.allowed + SHORT;
                Ok((verdict, clear))
            };
            found.push(search(self.range, &mut |rate| confirmed(&mut || once(rate)))?);
        }
        Bound::of(found).ok_or_else(|| Problem::Failed("no search was made".to_owned()))
    }

    fn verdict(&self, trial: &Trial) -> Verdict {
        if trial.losses.total() > self.allowed {
            Verdict::Lost
        } else if trial.losses.at(Stage::Sender) > SHORT {
            Verdict::Unreached
        } else {
            Verdict::Taken
        }
    }
}

/// A loss of so many times what is allowed is no hiccup.
const CLEAR: f64 = 5.0;

/// A rate that was not taken, and not clearly so, is tried again, and where that says otherwise a third trial decides: one hiccup of a machine is
/// not the engine's bound, and a search never comes back to what it has passed.
fn confirmed(trial: &mut dyn FnMut() -> Outcome<(Verdict, bool)>) -> Outcome<Verdict> {
    let (first, clear) = trial()?;
    if first == Verdict::Taken || clear {
        return Ok(first);
    }
    let (second, _) = trial()?;
    if second == first {
        return Ok(first);
    }
    trial().map(|(third, _)| third)
}

/// The table of trials, a line written with each.
struct TrialLog {
    file: File,
    path: PathBuf,
}

impl TrialLog {
    fn create(path: &Path) -> Outcome<TrialLog> {
        let file = File::create(path).map_err(|error| Problem::file("make", path, error))?;
        let mut log = TrialLog { file, path: path.to_owned() };
        let stages = Stage::ALL.map(|stage| format!("lost_{}", stage.name().to_lowercase())).join(",");
        log.line(&format!(
            "search,rate,offered,sent,bytes,seconds,late_p99,received,dropped,decoded,gaps,alerts,loss,{stages}"
        ))?;
        Ok(log)
    }

    fn line(&mut self, line: &str) -> Outcome<()> {
        writeln!(self.file, "{line}").map_err(|error| Problem::file("write", &self.path, error))
    }

    fn write(&mut self, search: u32, trial: &Trial) -> Outcome<()> {
        let sent = trial.counted.sent;
        let values = [trial.rate, sent.offered, sent.packets, sent.bytes, sent.seconds, sent.late];
        let values = values.into_iter().chain(trial.counted.engine.values());
        let values = values.chain([trial.losses.total()]).chain(trial.losses.share);
        let text = |value: f64| if value.is_finite() { format!("{value}") } else { String::new() };
        let line = std::iter::once(search.to_string()).chain(values.map(text)).collect::<Vec<_>>().join(",");
        self.line(&line)
    }
}

/// A trial in a line.
fn line(search: u32, trial: &Trial, capture: Option<&Capture>) -> String {
    let bits =
        capture.map_or_else(String::new, |capture| format!(" ({}bit/s)", short(trial.rate * capture.bits_a_packet())));
    let total = trial.losses.total() * 100.0;
    format!(
        "search {search}: {:>9} packets/s{bits}: lost {total:.2} %; by stage: {}",
        short(trial.rate),
        trial.losses.describe()
    )
}

/// Prints the bound and writes it as `bound.json`.
fn report(bound: &Bound, loss: f64, capture: Option<&Capture>, dir: &Path) -> Outcome<()> {
    let rate = bound.rate;
    println!();
    println!("highest rate with at most {loss} % lost: {} packets/s", short(rate.value));
    if let Some(capture) = capture {
        println!("  as bits of the captured packets: {}bit/s", short(rate.value * capture.bits_a_packet()));
    }
    if rate.low.is_finite() {
        println!(
            "  95 % interval of the median: {} to {} ({} searches)",
            short(rate.low),
            short(rate.high),
            rate.count
        );
    } else {
        println!("  of {} searches: too few for an interval", rate.count);
    }
    println!("  {}", bound.limit().describe());
    let number = |value: f64| if value.is_finite() { serde_json::json!(value) } else { serde_json::Value::Null };
    let value = serde_json::json!({
        "loss_allowed_percent": loss,
        "packets_per_second": number(rate.value),
        "low": number(rate.low),
        "high": number(rate.high),
        "searches": bound.found.iter().map(|found| number(found.rate)).collect::<Vec<_>>(),
        "limit": format!("{:?}", bound.limit()).to_lowercase(),
        "machine": monitor::describe().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<serde_json::Map<_, _>>(),
    });
    let path = dir.join("bound.json");
    std::fs::write(&path, format!("{value:#}\n")).map_err(|error| Problem::file("write", &path, error))?;
    println!("  trials, samples and logs: {}", dir.display());
    Ok(())
}

/// Times the engine over a capture.
fn over_capture(args: &Args, contract: &Contract, path: &Path, dir: &Path) -> Outcome<ExitCode> {
    let capture = Capture::read(path)?;
    let path = std::path::absolute(path).map_err(|error| Problem::file("find", path, error))?;
    let mut session = Session::begin()?;
    let mut runs = Vec::new();
    let begun = Instant::now();
    for number in 1..=args.repeats {
        let folder = dir.join(format!("run-{number}"));
        let within = Duration::from_secs(24 * 3600);
        let run = offline::run(contract, &path, &capture, args.period, within, &folder, &mut session)?;
        println!(
            "run {number} of {}: start {:.2} s, processing {:.3} s ({} packets/s), {:.2} s of processor, {:.0} MiB",
            args.repeats,
            run.start,
            run.processing,
            short(run.rate),
            run.busy,
            run.peak / 1_048_576.0
        );
        runs.push(run);
        let left = begun.elapsed() / number * (args.repeats - number);
        if number < args.repeats {
            eprintln!("about {:.0} s left", left.as_secs_f64());
        }
    }
    let of = |value: fn(&offline::Offline) -> f64| Summary::of(&runs.iter().map(value).collect::<Vec<_>>());
    if let (Some(time), Some(rate)) = (of(|run| run.processing), of(|run| run.rate)) {
        println!();
        println!(
            "{}: median of {} runs {:.3} s ({:.3} to {:.3}), {} packets/s, {}bit/s",
            contract.name,
            time.count,
            time.median,
            time.least,
            time.most,
            short(rate.median),
            short(rate.median * capture.bits_a_packet())
        );
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hiccup_is_not_a_bound() {
        use Verdict::{Lost, Taken, Unreached};
        for (said, verdict, trials) in [
            (&[Taken][..], Taken, 1),
            (&[Lost, Lost], Lost, 2),
            (&[Lost, Taken, Taken], Taken, 3),
            (&[Lost, Taken, Lost], Lost, 3),
            (&[Unreached, Unreached], Unreached, 2),
        ] {
            let mut made = 0;
            let found = confirmed(&mut || {
                made += 1;
                Ok((said[made - 1], false))
            });
            assert_eq!((found.unwrap(), made), (verdict, trials));
        }
        assert_eq!(confirmed(&mut || Ok((Lost, true))).unwrap(), Lost);
    }
}
