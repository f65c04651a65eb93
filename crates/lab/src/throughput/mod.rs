//! `margay lab throughput`: the highest rate that an engine handles with at most a given loss, and where packets are
//! lost above it.

mod memory;
mod search;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(crate) use search::{Bound, Limit, Range, Verdict, search};

use crate::cpus::Shared;
use crate::engine::{Contract, Options};
use crate::load::{self, Pair, Sender, What, Wire};
use crate::made::Session;
use crate::problem::{Outcome, Problem};
use crate::quiet::Company;
use crate::run::live::{Rig, Times};
use crate::run::{Capture, offline};
use crate::stages::{Losses, Stage};
use crate::stats::Summary;
use crate::units::{self, Rate, short, spoken};
use crate::{monitor, signals};
use memory::{Memory, Tried};

/// Find the highest rate that an engine takes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine: margay, suricata, simulated, or a file that describes another one
    #[arg(long, short = 'e', default_value = "margay")]
    engine: String,
    /// The engine's program, if it is not in the path
    #[arg(long)]
    binary: Option<String>,
    /// The engine's configuration file
    #[arg(long, short = 'c')]
    config: Option<String>,
    /// A rule file that replaces all others
    #[arg(long, short = 'S')]
    rules: Vec<String>,
    /// A setting of the engine's configuration, name=value
    #[arg(long)]
    set: Vec<String>,
    /// One more argument for the engine's command line
    #[arg(long = "arg", allow_hyphen_values = true)]
    args: Vec<String>,
    /// The simulated engine's packets a second
    #[arg(long, default_value_t = 20_000.0)]
    capacity: f64,
    /// Measure the engine's time on this capture, instead of sending to it
    #[arg(long, conflicts_with_all = ["sent", "interface"])]
    capture: Option<PathBuf>,
    /// The capture to send, repeatedly
    #[arg(long, group = "sent")]
    replay: Option<PathBuf>,
    /// The profile whose traffic to send
    #[arg(long, group = "sent")]
    profile: Option<PathBuf>,
    /// The preset whose traffic to send; `traffic gen --list-presets` lists them
    #[arg(long, group = "sent")]
    preset: Option<String>,
    /// Number of simultaneous copies, each with its own addresses
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: u32,
    /// Use new addresses in each round, so that no flow repeats
    #[arg(long)]
    renew: bool,
    /// The sender: the laboratory's own, or tcpreplay (captures, one copy)
    #[arg(long, default_value = "own", value_parser = ["own", "tcpreplay"])]
    sender: String,
    /// The interface that the engine reads from; by default, a virtual pair is created
    #[arg(long, requires = "send_on")]
    interface: Option<String>,
    /// The interface to send on, connected to the other
    #[arg(long, requires = "interface")]
    send_on: Option<String>,
    /// The sender's CPUs, as 0,2-5 [default: the last one]
    #[arg(long, value_name = "LIST")]
    sender_cpus: Option<String>,
    /// The engine's CPUs while packets are sent [default: all but the sender's]
    #[arg(long, value_name = "LIST")]
    engine_cpus: Option<String>,
    /// Largest packet on virtual interfaces, in bytes without the Ethernet header
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// The first rate: 10kpps, 100mbit
    #[arg(long, default_value = "10kpps", value_parser = units::rate)]
    from: Rate,
    /// The highest rate of interest
    #[arg(long, default_value = "10mpps", value_parser = units::rate)]
    to: Rate,
    /// The allowed loss, in % of the sent packets
    #[arg(long, default_value_t = 1.0)]
    loss: f64,
    /// Precision of the bound, in %
    #[arg(long, default_value_t = 1.0)]
    close: f64,
    /// How long to send before losses count
    #[arg(long, default_value = "2s", value_parser = units::duration)]
    warm_up: Duration,
    /// How long to send after that
    #[arg(long, default_value = "10s", value_parser = units::duration)]
    hold: Duration,
    /// Number of searches, or of runs on the capture
    #[arg(long, short = 'n', default_value_t = 3)]
    repeats: u32,
    /// The time between samples of the machine and the engine
    #[arg(long, default_value = "250ms", value_parser = units::duration)]
    period: Duration,
    /// Discard the results in the folder and start again
    #[arg(long)]
    fresh: bool,
    /// The folder for samples, logs and results; an interrupted measurement resumes from it
    #[arg(long, short = 'o', default_value = "lab-throughput")]
    output: PathBuf,
    /// Send less than requested, in %, to test that it is detected
    #[arg(long, hide = true, default_value_t = 0.0)]
    lose_sender: f64,
    /// Send at most this many packets a second, to test that it is detected
    #[arg(long, hide = true)]
    sender_most: Option<f64>,
}

/// Runs the command.
///
/// # Errors
/// If the engine, the sender or the interfaces fail, or on a request to stop. The folder has the samples and trials so
/// far.
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
    let mut contract = contract(args)?;
    std::fs::create_dir_all(&args.output).map_err(|error| Problem::file("make", &args.output, error))?;
    let dir = std::path::absolute(&args.output).map_err(|error| Problem::file("find", &args.output, error))?;
    if args.fresh {
        memory::clear(&dir)?;
    }
    if let Some(path) = &args.capture {
        return over_capture(args, &contract, path, &dir);
    }
    let in_numbers = contract.simulated && args.replay.is_none() && args.profile.is_none() && args.preset.is_none();
    let cpus = Shared::given(args.sender_cpus.as_deref(), args.engine_cpus.as_deref())?;
    contract.on(&cpus.engine);
    let mut session = Session::begin()?;
    let folder = session.make_folder()?;
    let times = Times { warm_up: args.warm_up, hold: args.hold, period: args.period };
    let (wire, sender, capture): (Option<Wire>, Box<dyn Sender>, Option<Capture>) = if in_numbers {
        let sender =
            load::Stream { socket: folder.join("sim"), lose: args.lose_sender / 100.0, most: args.sender_most };
        (None, Box::new(sender), None)
    } else {
        let what = match (&args.replay, &args.profile, &args.preset) {
            (Some(path), _, _) => What::Capture(path.clone()),
            (_, Some(path), _) => What::Profile(path.clone()),
            (_, _, Some(name)) => What::Preset(name.clone()),
            _ => {
                return Err(Problem::Usage(
                    "nothing to send: --replay, --profile or --preset (or --capture, to read one offline)".to_owned(),
                ));
            }
        };
        let capture = match &what {
            What::Capture(path) => Some(Capture::read(path)?),
            _ => None,
        };
        let wire = match (&args.interface, &args.send_on) {
            (Some(engine), Some(sender)) => Wire::given(&[Pair { sender: sender.clone(), engine: engine.clone() }])?,
            _ => Wire::make(&mut session, args.mtu, 1, false)?,
        };
        let (interfaces, folder) = (wire.senders(), folder.clone());
        let sender: Box<dyn Sender> = match (args.sender.as_str(), what) {
            ("tcpreplay", What::Capture(capture)) if args.copies == 1 && !args.renew => {
                let interface = interfaces.concat();
                Box::new(load::TcpReplay { capture, interface, folder, cpus: cpus.sender.clone() })
            }
            ("tcpreplay", _) => {
                return Err(Problem::Usage("--sender tcpreplay sends captures, and one copy of them".to_owned()));
            }
            (_, what) => {
                let cpus = cpus.sender.clone();
                Box::new(load::Traffic {
                    what,
                    copies: args.copies,
                    renew: args.renew.then_some(0),
                    peer: None,
                    interfaces,
                    same: false,
                    folder,
                    cpus,
                })
            }
        };
        (Some(wire), sender, capture)
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
    let mut memory = Memory::open(&dir, &measurement(args, &contract, &cpus))?;
    if memory.known() > 0 {
        println!("{} trials are there already", memory.known());
    }
    let mut rig = Rig::new(contract, wire, sender, times, &dir, folder, session);
    println!("load: {}", rig.describe());
    if !in_numbers {
        println!("{}", cpus.describe());
    }
    let searches = Searches { range, repeats: args.repeats, allowed: args.loss / 100.0 };
    let (mut trials, mut took) = (Vec::new(), Vec::new());
    let result = searches.run(&mut |number, rate, left| {
        let tried = match memory.recall(number, rate) {
            Some(tried) => tried,
            None => {
                let begun = Instant::now();
                let trial = rig.trial(rate)?;
                took.push(begun.elapsed().as_secs_f64());
                memory.keep(number, &trial)?
            }
        };
        trials.push(tried);
        println!("{}", line(&tried, capture.as_ref()));
        if left > 0 && !took.is_empty() {
            let each = took.iter().sum::<f64>() / took.len() as f64;
            eprintln!("  search {number} of {}, about {} left", args.repeats, spoken(each * f64::from(left)));
        }
        Ok(tried.losses)
    });
    let notes = rig.end();
    let bound = result.map_err(|problem| match problem {
        Problem::Interrupted(why) => Problem::Interrupted(format!("{why}; the same command goes on from here")),
        other => other,
    })?;
    for note in notes? {
        println!("note: {note}");
    }
    report(&bound, args.loss, &trials, capture.as_ref(), &cpus, &dir)?;
    Ok(ExitCode::SUCCESS)
}

/// A text that is equal for two measurements of the same thing.
fn measurement(args: &Args, contract: &Contract, cpus: &Shared) -> String {
    format!(
        "{contract:?} {cpus:?} {:?}",
        (
            (&args.replay, &args.profile, &args.preset, args.copies, args.renew, &args.sender),
            (&args.interface, &args.send_on, args.mtu, args.from, args.to, args.loss, args.close),
            (args.warm_up, args.hold, args.lose_sender, args.sender_most),
        )
    )
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
        "margay" => Ok(Contract::suricata("margay", &binary(crate::command::own_engine()), &options)),
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
    /// The allowed share of losses.
    pub(crate) allowed: f64,
}

/// A sender missed the rate if it is this share below it.
pub(crate) const SHORT: f64 = 0.02;

/// Makes a trial. The arguments are the search's number from 1, the rate, and the expected number of further trials.
pub(crate) type Make<'a> = dyn FnMut(u32, f64, u32) -> Outcome<Losses> + 'a;

impl Searches {
    /// Executes the searches.
    ///
    /// # Errors
    /// Errors of a trial.
    pub(crate) fn run(&self, make: &mut Make<'_>) -> Outcome<Bound> {
        let mut found = Vec::new();
        let mut before = 0;
        for number in 1..=self.repeats {
            let mut made = 0;
            let mut once = |rate: f64, more: u32| {
                made += 1;
                // Each remaining search takes as many trials as the earlier ones, or as this one will.
                let each = if number == 1 { made + more } else { before / (number - 1) };
                let losses = make(number, rate, more + each * (self.repeats - number))?;
                let verdict = self.verdict(&losses);
                let clear = verdict == Verdict::Lost && losses.total() > CLEAR * self.allowed + SHORT;
                Ok((verdict, clear))
            };
            found.push(search(self.range, &mut |rate, more| confirmed(&mut || once(rate, more)))?);
            before += made;
        }
        Bound::of(found).ok_or_else(|| Problem::Failed("no search was made".to_owned()))
    }

    fn verdict(&self, losses: &Losses) -> Verdict {
        if losses.total() > self.allowed {
            Verdict::Lost
        } else if losses.at(Stage::Sender) > SHORT {
            Verdict::Unreached
        } else {
            Verdict::Taken
        }
    }
}

/// A loss this many times the allowed one is no accident.
const CLEAR: f64 = 5.0;

/// Repeats a trial whose rate was narrowly lost. If the results differ, a third trial decides. One hiccup of the machine
/// is not the engine's bound, and a search never returns to a rate that it has left.
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

/// A trial as one line.
fn line(trial: &Tried, capture: Option<&Capture>) -> String {
    let bits =
        capture.map_or_else(String::new, |capture| format!(" ({}bit/s)", short(trial.rate * capture.bits_a_packet())));
    let total = trial.losses.total() * 100.0;
    format!(
        "search {}: {:>9} packets/s{bits}: lost {total:.2} %; by stage: {}{}",
        trial.search,
        short(trial.rate),
        trial.losses.describe(),
        trial.company.mark()
    )
}

/// Prints the bound and writes it to `bound.json`.
fn report(
    bound: &Bound,
    loss: f64,
    trials: &[Tried],
    capture: Option<&Capture>,
    cpus: &Shared,
    dir: &Path,
) -> Outcome<()> {
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
    let above = trials.iter().filter(|trial| trial.rate > rate.value && trial.losses.total() > loss / 100.0);
    let stage = above.min_by(|a, b| a.rate.total_cmp(&b.rate)).and_then(|trial| trial.losses.worst());
    if let Some(stage) = stage {
        println!("  just above it most is lost at: {}", stage.name());
    }
    let disturbed: Vec<&Tried> = trials.iter().filter(|trial| trial.company.disturbs()).collect();
    let worst = trials.iter().map(|trial| trial.company).reduce(|a, b| a.worse(&b));
    if let (Some(worst), false) = (worst, disturbed.is_empty()) {
        println!(
            "  NOT TO BE PUBLISHED: the machine was busy in {} of {} trials (at worst {})",
            disturbed.len(),
            trials.len(),
            worst.describe()
        );
    }
    let number = |value: f64| if value.is_finite() { serde_json::json!(value) } else { serde_json::Value::Null };
    let value = serde_json::json!({
        "publishable": disturbed.is_empty(),
        "disturbed_trials": disturbed.len(),
        "company": worst.map(|worst| Company::NAMES.iter().zip(worst.values()).map(|(name, value)| ((*name).to_owned(), number(value))).collect::<serde_json::Map<_, _>>()),
        "loss_allowed_percent": loss,
        "packets_per_second": number(rate.value),
        "low": number(rate.low),
        "high": number(rate.high),
        "searches": bound.found.iter().map(|found| number(found.rate)).collect::<Vec<_>>(),
        "lost_above_it_at": stage.map(Stage::name),
        "limit": format!("{:?}", bound.limit()).to_lowercase(),
        "engine_cpus": cpus.engine.to_string(),
        "sender_cpus": cpus.sender.to_string(),
        "machine": monitor::describe().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<serde_json::Map<_, _>>(),
    });
    let path = dir.join("bound.json");
    std::fs::write(&path, format!("{value:#}\n")).map_err(|error| Problem::file("write", &path, error))?;
    println!("  trials, samples and logs: {}", dir.display());
    Ok(())
}

/// Measures the engine's time on a capture.
fn over_capture(args: &Args, contract: &Contract, path: &Path, dir: &Path) -> Outcome<ExitCode> {
    let capture = Capture::read(path)?;
    let path = std::path::absolute(path).map_err(|error| Problem::file("find", path, error))?;
    let mut session = Session::begin()?;
    let mut runs: Vec<offline::Offline> = Vec::new();
    let company = Company::NAMES.join(",");
    let mut table = format!("run,start_s,processing_s,cpu_s,peak_bytes,packets_per_s,decoded,gaps,alerts,{company}\n");
    let file = dir.join("runs.csv");
    let begun = Instant::now();
    for number in 1..=args.repeats {
        let folder = dir.join(format!("run-{number}"));
        let within = Duration::from_secs(24 * 3600);
        let run = offline::run(contract, &path, &capture, args.period, within, &folder, &mut session)?;
        println!(
            "run {number} of {}: start {:.2} s, processing {:.3} s ({} packets/s), {:.2} s of processor, {:.0} MiB{}",
            args.repeats,
            run.start,
            run.processing,
            short(run.rate),
            run.busy,
            run.peak / 1_048_576.0,
            run.company.mark()
        );
        let counts = run.counts;
        let values =
            [run.start, run.processing, run.busy, run.peak, run.rate, counts.decoded, counts.gaps, counts.alerts];
        let values = values.into_iter().chain(run.company.values());
        let text = values.map(|value| if value.is_finite() { format!(",{value}") } else { ",".to_owned() });
        table.push_str(&format!("{number}{}\n", text.collect::<String>()));
        std::fs::write(&file, &table).map_err(|error| Problem::file("write", &file, error))?;
        runs.push(run);
        let left = begun.elapsed() / number * (args.repeats - number);
        if number < args.repeats {
            eprintln!("about {} left", spoken(left.as_secs_f64()));
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
        if let Some(worst) = runs.iter().map(|run| run.company).reduce(|a, b| a.worse(&b)) {
            let disturbed = runs.iter().filter(|run| run.company.disturbs()).count();
            if disturbed > 0 {
                println!(
                    "NOT TO BE PUBLISHED: the machine was busy in {disturbed} of {} runs (at worst {})",
                    runs.len(),
                    worst.describe()
                );
            }
        }
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

    #[test]
    fn five_searches_on_a_nervous_machine_find_the_known_bound() {
        use crate::sim::Simulated;
        use crate::stats::Random;
        for seed in 1..=5 {
            let mut random = Random(seed);
            // Two seconds of warm-up and four of hold, in simulated time. Occasionally nothing moves for up to 30 ms,
            // and the delayed packets come at once.
            let mut trial = |rate: f64| {
                let mut engine = Simulated { capacity: 23_000.0, ring: 700.0, ..Simulated::default() };
                let (mut time, mut before) = (0.0, None);
                while time < 6.0 {
                    let step = if random.below(50) == 0 { random.share() * 0.03 } else { 0.002 };
                    time += step;
                    engine.arrive(rate * step, Duration::from_secs_f64(step * (0.9 + random.share() * 0.2)));
                    if time > 2.0 && before.is_none() {
                        before = Some(engine);
                    }
                }
                let before = before.unwrap();
                let loss = (engine.dropped - before.dropped) / (engine.received - before.received);
                Ok((if loss > 0.01 { Verdict::Lost } else { Verdict::Taken }, loss > 0.07))
            };
            let range = Range { from: 10_000.0, to: 1e6, close: 0.01 };
            let found = search(range, &mut |rate, _| confirmed(&mut || trial(rate))).unwrap();
            // 1 % of loss is allowed, so the bound is that much above the capacity.
            assert!((found.rate / 23_230.0 - 1.0).abs() < 0.05, "{found:?}");
        }
    }
}
