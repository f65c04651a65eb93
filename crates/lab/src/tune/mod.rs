//! `margay tune`: finds the settings of card, interrupts, processors and kernel that matter to a sensor, and changes
//! them safely, even in the middle of the night.
//!
//! [`discover`] reads the machine. [`plan`] is a function of the facts and the goal. [`apply`] writes, with a journal
//! before each change and a watchdog behind it. [`verify`] reads back and measures. [`undo`] restores. All of them use
//! [`knob::Machine`], which is this machine or a simulated one. A setting has the same text form ([`knob`]) everywhere.

mod apply;
pub(crate) mod card;
mod command;
mod discover;
mod facts;
mod host;
mod journal;
mod knob;
mod list;
mod measure;
mod picture;
mod plan;
mod recorded;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod undo;
mod verify;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;

use crate::problem::{Outcome, Problem};
use crate::units::{self, Rate};
use card::made_up::{MadeUp, described};
use discover::{Options, discover, interrupts};
use facts::Facts;
use host::Host;
use knob::Machine;
use plan::{Goal, Mode, Plan};
use tree::{Recording, Tree};

/// Tune card, interrupts, CPUs and kernel for a sensor: discover, plan, apply, verify, undo
#[derive(Subcommand)]
pub(crate) enum Tune {
    Discover(DiscoverArgs),
    Plan(PlanArgs),
    Apply(Box<command::ApplyArgs>),
    Confirm(command::ConfirmArgs),
    Verify(command::VerifyArgs),
    Undo(command::UndoArgs),
    Status(command::StatusArgs),
    #[command(hide = true)]
    Watchdog(watchdog::Args),
}

/// Print the facts as JSON: processors, memory nodes, interfaces with their drivers, interrupts, kernel, engine
#[derive(clap::Args)]
pub(crate) struct DiscoverArgs {
    /// The engine's configuration [default: /etc/margay/margay.yaml, /etc/suricata/suricata.yaml]
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Record everything that was read, so that --on can plan for this machine elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "on")]
    record: Option<PathBuf>,
    /// Use a recorded machine instead of this one
    #[arg(long, value_name = "FILE")]
    on: Option<PathBuf>,
    /// Draw the machine with its current interfaces, queues, workers and interrupts
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Only print the interrupt number of a receive queue: eth1:3
    #[arg(long, value_name = "INTERFACE:QUEUE", conflicts_with_all = ["record", "on"])]
    irq: Option<String>,
}

/// The purpose of a sensor.
#[derive(clap::Args)]
pub(crate) struct GoalArgs {
    /// Interfaces that the sensor reads from; in pairs for inline [default: unused hardware interfaces]
    #[arg(value_name = "INTERFACE")]
    interfaces: Vec<String>,
    /// Whether packets are only inspected or wait for a verdict
    #[arg(long = "for", value_enum, default_value_t = Mode::Passive)]
    mode: Mode,
    /// Traffic of all interfaces together: 10gbit [default: what the links carry]
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// CPUs that the sensor leaves to others: 0,2-3
    #[arg(long, value_name = "CPUS")]
    leave: Option<String>,
    /// Most workers [default: computed from the rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Memory that the engine may use: 32gb [default: 60 % of the workers' memory nodes]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Leave a step out, by its id (eth1.ring) or the word in it (ring)
    #[arg(long, value_name = "STEP")]
    without: Vec<String>,
    /// Tune named interfaces even if they carry an address, a route, a bridge or your own session
    #[arg(long, requires = "interfaces")]
    force: bool,
    /// Write files, so that the settings survive a restart
    #[arg(long)]
    persist: bool,
    /// The engine's configuration [default: /etc/margay/margay.yaml, /etc/suricata/suricata.yaml]
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Print the changes, in order, with reasons and sources; nothing is changed
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    goal: GoalArgs,
    /// Plan for a recorded machine instead of this one
    #[arg(long, value_name = "FILE")]
    on: Option<PathBuf>,
    /// Draw the machine with the planned interfaces, queues, workers and interrupts
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Exit with status 3 if a setting has to change
    #[arg(long)]
    check: bool,
    /// Also show settings that are already correct
    #[arg(long)]
    all: bool,
    /// Only print the commands, one on each line, for a shell
    #[arg(long, conflicts_with_all = ["json", "engine"])]
    commands: bool,
    /// As JSON
    #[arg(long, conflicts_with = "engine")]
    json: bool,
    /// Only print the engine's settings, as YAML to include
    #[arg(long)]
    engine: bool,
}

/// Runs the command.
///
/// # Errors
/// If the arguments make no sense, or something failed.
pub(crate) fn run(tune: Tune) -> Outcome<ExitCode> {
    match tune {
        Tune::Discover(args) => run_discover(&args),
        Tune::Plan(args) => run_plan(&args),
        Tune::Apply(args) => command::run_apply(&args),
        Tune::Confirm(args) => command::run_confirm(&args),
        Tune::Verify(args) => command::run_verify(&args),
        Tune::Undo(args) => command::run_undo(&args),
        Tune::Status(args) => command::run_status(&args),
        Tune::Watchdog(args) => command::run_watchdog(&args),
    }
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|e| Problem::file("read", path, e))
}

/// Reads a recorded machine.
fn recorded_machine(path: &Path) -> Outcome<MadeUp> {
    recorded::read(&read(path)?).map_err(|why| Problem::Usage(format!("{}: {why}", path.display())))
}

fn options(config: Option<&Path>) -> Outcome<Options> {
    let engine = match config {
        None => None,
        // Paths of a machine begin with a slash.
        Some(path) => Some(std::path::absolute(path).map_err(|e| Problem::file("find", path, e))?),
    };
    Ok(Options { engine: engine.map(|path| path.to_string_lossy().into_owned()) })
}

fn found(machine: &dyn Machine, tree: &dyn Tree, config: Option<&Path>) -> Outcome<Facts> {
    let facts = discover(machine, tree, &options(config)?);
    match (config, facts.engine.is_none()) {
        (Some(path), true) => {
            let why = facts.missing.iter().rfind(|missing| missing.what.contains("configuration"));
            let why = why.map_or_else(String::new, |missing| missing.why.clone());
            Err(Problem::Usage(format!("cannot read the engine's configuration {}: {why}", path.display())))
        }
        _ => Ok(facts),
    }
}

fn run_discover(args: &DiscoverArgs) -> Outcome<ExitCode> {
    let config = args.config.as_deref();
    if let Some(which) = &args.irq {
        let parsed = which.rsplit_once(':').and_then(|(name, queue)| Some((name, queue.parse::<u32>().ok()?)));
        let (name, queue) =
            parsed.ok_or_else(|| Problem::Usage(format!("'{which}' is not a queue, such as eth1:3")))?;
        let irq = interrupts::of_queue(Host::this().tree(), name, queue);
        let irq =
            irq.ok_or_else(|| Problem::Failed(format!("queue {queue} of '{name}' has no interrupt of its own")))?;
        println!("{irq}");
        return Ok(ExitCode::SUCCESS);
    }
    let facts = match (&args.on, &args.record) {
        (Some(path), _) => {
            let machine = recorded_machine(path)?;
            found(&machine, machine.tree(), config)?
        }
        (None, None) => found(&Host::this(), Host::this().tree(), config)?,
        (None, Some(path)) => {
            let host = Host::this();
            let recording = Recording::of(host.root());
            let facts = found(&host, &recording, config)?;
            let mut text = recording.written();
            facts.interfaces.keys().for_each(|name| text += &described(host.cards(), name));
            std::fs::write(path, text).map_err(|e| Problem::file("write", path, e))?;
            facts
        }
    };
    draw(args.svg.as_deref(), &facts, None)?;
    let json = serde_json::to_string_pretty(&facts).map_err(|e| Problem::Failed(e.to_string()))?;
    println!("{json}");
    Ok(ExitCode::SUCCESS)
}

fn draw(path: Option<&Path>, facts: &Facts, plan: Option<&Plan>) -> Outcome<()> {
    let Some(path) = path else { return Ok(()) };
    let svg = picture::svg(facts, plan.map(|plan| &plan.placement));
    std::fs::write(path, svg).map_err(|e| Problem::file("write", path, e))
}

impl GoalArgs {
    fn goal(&self) -> Outcome<Goal> {
        let usage = Problem::Usage;
        let rate = match self.rate.as_deref().map(units::rate).transpose().map_err(usage)? {
            None => None,
            Some(Rate::Bits(bits)) => Some(bits as u64),
            Some(_) => return Err(usage("--rate: bits a second are needed, as 10gbit".to_owned())),
        };
        let leave = match &self.leave {
            None => Vec::new(),
            Some(text) => {
                let cpus = list::parse(text);
                if cpus.is_empty() {
                    return Err(usage(format!("--leave: '{text}' is not a list of CPUs, such as 0,2-5")));
                }
                cpus
            }
        };
        let memory = self.memory.as_deref().map(margay_config::typed::parse_size).transpose();
        let program = std::env::current_exe().map_or_else(|_| "margay".to_owned(), |path| path.display().to_string());
        Ok(Goal {
            mode: self.mode,
            interfaces: self.interfaces.clone(),
            rate,
            leave,
            workers: self.workers.map(usize::from),
            memory: memory.map_err(|why| usage(format!("--memory: {why}")))?,
            without: self.without.clone(),
            force: self.force,
            keep: self.persist,
            // The laboratory's own command has the subcommand too.
            program,
        })
    }
}

/// A request that cannot be met is an error; the plan does not silently omit it.
fn refuse(plan: &Plan) -> Outcome<()> {
    match plan.refused_by_name().first() {
        None => Ok(()),
        Some(refused) => {
            Err(Problem::Usage(format!("'{}' is not tuned: {}", refused.interface, refused.reasons.join("; "))))
        }
    }
}

fn run_plan(args: &PlanArgs) -> Outcome<ExitCode> {
    let goal = args.goal.goal()?;
    let config = args.goal.config.as_deref();
    let facts = match &args.on {
        Some(path) => {
            let machine = recorded_machine(path)?;
            found(&machine, machine.tree(), config)?
        }
        None => command::facts_now(&Host::this(), config)?,
    };
    let plan = plan::plan(&facts, &goal);
    draw(args.svg.as_deref(), &facts, Some(&plan))?;
    if args.json {
        println!("{:#}", text::plan_json(&plan));
    } else if args.commands {
        print!("{}", text::plan_commands(&plan));
    } else if args.engine {
        print!("{}", plan.engine);
    } else {
        print!("{}", text::plan(&plan, &facts, args.all));
    }
    refuse(&plan)?;
    let open = plan.steps().next().is_some();
    Ok(if args.check && open { ExitCode::from(3) } else { ExitCode::SUCCESS })
}
