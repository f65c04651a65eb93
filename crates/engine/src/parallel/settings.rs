//! Settings `runmode` and `autofp-scheduler`, and the number of workers for one source of packets.

use margay_config::{Config, RunOptions};
use margay_output::warning;

use super::moves::Rules;
use crate::live::cpus::Cpus;
use crate::settings::wrong;
use crate::{Failed, settings};

/// Limit of workers.
const WORKERS_MAX: usize = 256;

/// How flows are assigned to workers (`autofp-scheduler`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduler {
    /// By the hash of addresses, ports and protocol.
    Hash,
    /// By the hash of the addresses.
    IpPair,
    /// A new flow goes to the worker with the least work, and stays there.
    ShortestQueue,
    /// As `ShortestQueue`, but the flow may move to a less busy worker later.
    Moving(&'static str, Rules),
    /// By the hash of the flow. Idle workers search payloads that wait for others.
    Adaptive,
}

impl Scheduler {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Scheduler::Hash => "hash",
            Scheduler::IpPair => "ippair",
            Scheduler::ShortestQueue => "shortest-queue",
            Scheduler::Moving(name, _) => name,
            Scheduler::Adaptive => "adaptive",
        }
    }

    /// # Errors
    /// An invalid name.
    fn from_config(config: &Config) -> Result<Scheduler, Failed> {
        match config.get("autofp-scheduler") {
            // FTP connections go to one worker with every scheduler.
            Some("hash" | "ftp-hash") => Ok(Scheduler::Hash),
            None | Some("" | "adaptive") => Ok(Scheduler::Adaptive),
            Some("ippair") => Ok(Scheduler::IpPair),
            Some("shortest-queue" | "active-packets") => Ok(Scheduler::ShortestQueue),
            Some("conservative") => Ok(Scheduler::Moving("conservative", rules(config, false)?)),
            Some("optimistic") => Ok(Scheduler::Moving("optimistic", rules(config, true)?)),
            Some(other @ ("round-robin" | "active-flows")) => {
                warning!("runmodes", "autofp-scheduler: {other} was taken out of Suricata: hash");
                Ok(Scheduler::Hash)
            }
            Some(other) => {
                let there = format!(
                    "\"{other}\" is no scheduler; there are adaptive, hash, ippair, shortest-queue, conservative and optimistic"
                );
                Err(wrong(config, "autofp-scheduler", &there).into())
            }
        }
    }
}

/// By default, a worker's queue must be shorter by this many packets before a flow moves to it.
const DIFFERENCE: u64 = 256;
/// This many packets of a flow must wait before it moves with packets in flight: the study's threshold.
const WAITING: u32 = 100;

/// The conditions for moving a flow; `in_flight`: also while it has packets in flight.
fn rules(config: &Config, in_flight: bool) -> Result<Rules, Failed> {
    let difference = settings::number(config, "margay.move-difference", DIFFERENCE)?;
    let waiting = settings::number(config, "margay.move-waiting", WAITING)?;
    Ok(Rules { difference, waiting: in_flight.then_some(waiting) })
}

/// Distribution of one source of packets to several workers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Autofp {
    pub(crate) scheduler: Scheduler,
    pub(crate) workers: usize,
    /// Idle workers search payloads for busy ones (`adaptive`).
    pub(crate) search_ahead: bool,
}

/// Checks the name of a run mode.
///
/// # Errors
/// There is no such mode; the text names those that there are.
pub(crate) fn check_run_mode(mode: &str) -> Result<(), String> {
    if matches!(mode, "workers" | "autofp" | "single") {
        return Ok(());
    }
    Err(format!("there is no run mode \"{mode}\"; there are workers, autofp and single"))
}

/// Whether a capture file goes to several workers, and to how many: `--runmode autofp`, or `runmode: autofp`.
///
/// # Errors
/// An invalid run mode, scheduler or number.
pub(crate) fn autofp(config: &Config, options: &RunOptions) -> Result<Option<Autofp>, Failed> {
    let named = config.get("runmode").filter(|m| !m.is_empty());
    if let Some(mode) = named.filter(|m| *m != "auto") {
        check_run_mode(mode).map_err(|why| wrong(config, "runmode", &why))?;
    }
    let scheduler = Scheduler::from_config(config)?;
    if options.runmode.as_deref().or(named) != Some("autofp") {
        return Ok(None);
    }
    let workers = match config.get("margay.workers") {
        None | Some("" | "auto") => by_cpus(config)?,
        Some(_) => settings::number(config, "margay.workers", 0usize)?,
    };
    if !(1..=WORKERS_MAX).contains(&workers) {
        return Err(wrong(config, "margay.workers", &format!("must be auto, or between 1 and {WORKERS_MAX}")).into());
    }
    Ok(Some(Autofp { scheduler, workers, search_ahead: settings::search_ahead(config)? }))
}

/// The number of workers from the CPUs that workers may use (`threading.detect-thread-ratio`).
fn by_cpus(config: &Config) -> Result<usize, Failed> {
    const KEY: &str = "threading.detect-thread-ratio";
    let cpus = Cpus::from_config(config)?.workers("");
    let ratio = match config.get(KEY) {
        None | Some("") => 1.0,
        Some(text) => match text.trim().parse::<f64>() {
            Ok(r) if r > 0.0 && r.is_finite() => r,
            _ => return Err(wrong(config, KEY, "must be a number above 0").into()),
        },
    };
    Ok(((cpus as f64 * ratio) as usize).clamp(1, WORKERS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<(Scheduler, usize)>, Failed> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}\n"), "t").unwrap();
        Ok(autofp(&config, &RunOptions::default())?.map(|a| (a.scheduler, a.workers)))
    }

    #[test]
    fn what_can_be_set() {
        assert_eq!(of("runmode: single").unwrap(), None);
        assert!(of("runmode: single\nautofp-scheduler: foo").is_err());
        assert!(of("runmode: fast").is_err());
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(of("runmode: autofp").unwrap(), Some((Scheduler::Adaptive, cpus)));
        for name in ["shortest-queue", "active-packets"] {
            let of = of(&format!("runmode: autofp\nautofp-scheduler: {name}\nmargay:\n  workers: 5"));
            assert_eq!(of.unwrap(), Some((Scheduler::ShortestQueue, 5)));
        }
        let rules = |difference, waiting| Rules { difference, waiting };
        for (name, rules) in [("conservative", rules(9, None)), ("optimistic", rules(9, Some(WAITING)))] {
            let set = format!("runmode: autofp\nautofp-scheduler: {name}\nmargay:\n  workers: 2\n  move-difference: 9");
            assert_eq!(of(&set).unwrap(), Some((Scheduler::Moving(name, rules), 2)));
        }
        let twice = "runmode: autofp\nautofp-scheduler: ippair\nthreading:\n  detect-thread-ratio: 2.0";
        assert_eq!(of(twice).unwrap(), Some((Scheduler::IpPair, 2 * cpus)));
        assert_eq!(of("runmode: autofp\nmargay:\n  workers: 3").unwrap(), Some((Scheduler::Adaptive, 3)));
        for wrong in [
            "margay:\n  workers: 0",
            "margay:\n  workers: 257",
            "margay:\n  workers: two",
            "threading:\n  detect-thread-ratio: -1",
            "autofp-scheduler: luck",
            "autofp-scheduler: optimistic\nmargay:\n  move-waiting: many",
        ] {
            assert!(of(&format!("runmode: autofp\n{wrong}")).is_err(), "{wrong}");
        }
    }
}
