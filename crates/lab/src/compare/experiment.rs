//! An experiment file: engines, loads, repeats.

use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_config::{Config, Node};

use super::engines;
use super::study::Study;
use crate::cpus::Shared;
use crate::engine::{Contract, Options, only, read_duration};
use crate::load::{PAIRS_MOST, Pair, What};
use crate::problem::{Outcome, Problem};
use crate::run::live::Times;
use crate::units::{self, Rate};

/// A rate in an experiment file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Speed {
    /// In its own unit.
    Rate(Rate),
    /// A multiple of the load's base rate.
    Base(f64),
}

/// The base rate of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Base {
    /// Given in the file.
    Rate(Rate),
    /// Measured: the first engine's bound on this machine, so that the load's rates reach from well below it to twice
    /// above it.
    Auto,
}

/// A load as the file describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// The engine reads a capture and ends.
    Offline { capture: PathBuf },
    /// Traffic sent at several rates, in several numbers of copies at once.
    Rates { what: What, speeds: Vec<Speed>, base: Option<Base>, copies: Vec<u32> },
    /// A search for the highest rate with at most a given share of losses.
    Search { what: What, from: Rate, to: Rate, allowed: f64, copies: Vec<u32> },
    /// Packet counts for the simulated engine, at several rates.
    Numbers { speeds: Vec<Speed> },
}

/// How a load reaches the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Way {
    /// A capture gets new addresses in each round.
    pub(super) renew: bool,
    /// The engine is between two wires, with clients on one and servers on the other.
    pub(super) inline: bool,
    /// Of several interfaces each gets every packet; otherwise flows are divided among them.
    pub(super) same: bool,
}

/// A load with its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) name: String,
    pub(super) way: Way,
    /// The numbers of interfaces that it is sent on, each a point of its own.
    pub(super) interfaces: Vec<u32>,
    pub(super) kind: Kind,
}

/// An experiment, see the module.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    pub(super) title: String,
    /// The experiment's purpose, for the report.
    pub(super) about: String,
    pub(super) engines: Vec<Contract>,
    /// The engine that the others are compared with.
    pub(super) baseline: usize,
    pub(super) loads: Vec<Load>,
    pub(super) repeats: u32,
    pub(super) times: Times,
    /// Existing pairs of interfaces; without any, they are made.
    pub(super) wire: Vec<Pair>,
    pub(super) mtu: u32,
    /// CPUs of sender and engines while packets are sent.
    pub(super) cpus: Shared,
    /// Parts that this machine cannot run, a sentence each.
    pub(super) notes: Vec<String>,
    /// The text of the file.
    pub(super) text: String,
    /// The study that the experiment repeats.
    pub(super) study: Option<Study>,
    /// Precision of the search for bounds, as a share.
    pub(super) close: f64,
}

impl Experiment {
    /// Makes every load that sends traffic send this capture instead.
    ///
    /// # Errors
    /// If there is no such load.
    pub(super) fn replay(&mut self, path: &Path) -> Outcome<()> {
        let path = std::path::absolute(path).map_err(|error| Problem::file("find", path, error))?;
        if !path.exists() {
            return Err(Problem::Usage(format!("--replay: there is no file {}", path.display())));
        }
        for load in &mut self.loads {
            if let Kind::Rates { what, .. } | Kind::Search { what, .. } = &mut load.kind {
                *what = What::Capture(path.clone());
            }
        }
        Ok(())
    }

    /// Shortens the experiment, to check that it runs and what it produces, not to measure.
    pub(super) fn quicken(&mut self) {
        self.repeats = 1;
        self.times.warm_up = self.times.warm_up.min(Duration::from_secs(1));
        self.times.hold = self.times.hold.min(Duration::from_secs(3));
        self.close = self.close.max(0.25);
        for load in &mut self.loads {
            let (Kind::Rates { speeds, .. } | Kind::Numbers { speeds }) = &mut load.kind else { continue };
            // Keep the lowest rate, one in the middle and the highest.
            if speeds.len() > 3 {
                *speeds = vec![speeds[0], speeds[speeds.len() / 2], speeds[speeds.len() - 1]];
            }
        }
        self.notes.push(
            "a quick run (--quick): one repeat, a few seconds for each trial, at most three rates, bounds to within 25 %. It shows that \
             the experiment runs, and measures little"
                .to_owned(),
        );
    }
}

const TOP: [&str; 14] = [
    "title", "about", "engines", "baseline", "loads", "repeats", "warm-up", "hold", "period", "wire", "mtu", "cpus",
    "close", "study",
];

impl Experiment {
    /// Reads the file at `path`. `cpus` apply if the experiment names none, `instead` replaces the engines' own options.
    /// Files in it are looked up in its folder first, then in the working folder.
    ///
    /// # Errors
    /// If a setting is unknown or makes no sense, with its place.
    pub(super) fn load(path: &Path, cpus: &Shared, instead: &Options) -> Outcome<Experiment> {
        let text =
            std::fs::read_to_string(path).map_err(|error| Problem::Usage(format!("{}: {error}", path.display())))?;
        Experiment::read(&text, path, cpus, instead)
    }

    fn read(text: &str, path: &Path, cpus: &Shared, instead: &Options) -> Outcome<Experiment> {
        let config = Config::from_str(text, &path.to_string_lossy())?;
        let root = config.root();
        only(root, &TOP)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut notes = Vec::new();
        let cpus = read_cpus(root, cpus)?;
        let missing = |name: &str| Problem::Usage(format!("{}: '{name}' is missing", path.display()));
        let mut engines = Vec::new();
        for node in root.child("engines").ok_or_else(|| missing("engines"))?.children() {
            engines.extend(engines::read(node, folder, (&cpus, instead), &mut notes)?);
        }
        let mut loads = Vec::new();
        for node in root.child("loads").ok_or_else(|| missing("loads"))?.children() {
            let flag = |key: &str| node.bool(key).map(|flag| flag.unwrap_or(false));
            let way = Way { renew: flag("renew")?, inline: flag("inline")?, same: flag("same")? };
            let kind = read_load(node, folder)?;
            loads.push(Load {
                name: node.name().to_owned(),
                way,
                interfaces: read_interfaces(node, way, &engines)?,
                kind,
            });
        }
        if engines.is_empty() || loads.is_empty() {
            return Err(Problem::Usage(format!(
                "{}: an experiment needs an engine and a load{}",
                path.display(),
                notes.iter().map(|note| format!("; {note}")).collect::<String>()
            )));
        }
        let baseline = match root.child("baseline") {
            None => 0,
            Some(node) => engines.iter().position(|engine| engine.name == node.text()).ok_or_else(|| {
                let names: Vec<&str> = engines.iter().map(|engine| engine.name.as_str()).collect();
                Problem::from(node.error(format!(
                    "baseline: '{}' is no engine here; {} are",
                    node.text(),
                    names.join(", ")
                )))
            })?,
        };
        let repeats = root.int("repeats")?.unwrap_or(5);
        let repeats = u32::try_from(repeats).ok().filter(|repeats| (1..=1000).contains(repeats));
        let repeats = repeats.ok_or_else(|| Problem::Usage(format!("{}: repeats: 1 to 1000", path.display())))?;
        let time = |key: &str, otherwise| read_duration(root, key).map(|time| time.unwrap_or(otherwise));
        let times = Times {
            warm_up: time("warm-up", Duration::from_secs(2))?,
            hold: time("hold", Duration::from_secs(10))?,
            period: time("period", Duration::from_millis(250))?,
        };
        if times.hold.is_zero() || times.period < Duration::from_millis(10) {
            return Err(Problem::Usage(format!("{}: hold has to be above 0, period at least 10ms", path.display())));
        }
        let close = root.percent("close")?.unwrap_or(2.0);
        if !(close > 0.0 && close <= 100.0) {
            return Err(Problem::Usage(format!("{}: close: a percentage above 0", path.display())));
        }
        let wire = read_wire(root)?;
        let mtu = root.int("mtu")?.unwrap_or(1500);
        let mtu = u32::try_from(mtu).ok().filter(|mtu| (68..=65535).contains(mtu));
        let mtu = mtu.ok_or_else(|| Problem::Usage(format!("{}: mtu: 68 to 65535", path.display())))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let experiment = Experiment {
            study: Study::read(root)?,
            title: root.get("title").map_or(name, str::to_owned),
            about: root.get("about").unwrap_or_default().to_owned(),
            engines,
            baseline,
            loads,
            repeats,
            times,
            wire,
            mtu,
            cpus,
            notes,
            text: text.to_owned(),
            close: close / 100.0,
        };
        if let Some(study) = &experiment.study {
            study.check(&experiment)?;
        }
        Ok(experiment)
    }
}

/// Existing interfaces: a name or a list of them for the sender, and as many for the engine.
fn read_wire(root: Node<'_>) -> Outcome<Vec<Pair>> {
    let Some(node) = root.child("wire") else { return Ok(Vec::new()) };
    only(node, &["sender", "engine"])?;
    let names = |key: &str| -> Vec<&str> { node.child(key).map(|child| child.values().collect()).unwrap_or_default() };
    let (senders, engines) = (names("sender"), names("engine"));
    if senders.is_empty() || senders.len() != engines.len() {
        return Err(node
            .error("wire: 'sender' and 'engine' are interfaces, and both are needed, as many of each")
            .into());
    }
    let pair = |(sender, engine): (&str, &str)| Pair { sender: sender.to_owned(), engine: engine.to_owned() };
    Ok(senders.into_iter().zip(engines).map(pair).collect())
}

/// A load's numbers of interfaces.
fn read_interfaces(node: Node<'_>, way: Way, engines: &[Contract]) -> Outcome<Vec<u32>> {
    let mut counts = Vec::new();
    for text in node.child("interfaces").into_iter().flat_map(|child| child.values()) {
        let number = text.parse::<u32>().ok().filter(|count| (1..=PAIRS_MOST).contains(count));
        let wrong = || Problem::from(node.error(format!("interfaces: '{text}' is not from 1 to {PAIRS_MOST}")));
        counts.push(number.ok_or_else(wrong)?);
    }
    let several = counts.iter().any(|count| *count > 1);
    if way.same && !several {
        return Err(node.error("same: is of several interfaces, which are missing (interfaces: 2)").into());
    }
    if several && way.inline {
        return Err(node.error("interfaces: an inline engine has one on each side").into());
    }
    if let Some(engine) = engines.iter().find(|engine| several && !engine.takes_several()) {
        return Err(node
            .error(format!(
                "interfaces: engine {} says nothing of several: a setting with {{n}} is repeated for each, {{interfaces}} lists \
                 them",
                engine.name
            ))
            .into());
    }
    if counts.is_empty() {
        counts.push(1);
    }
    Ok(counts)
}

/// CPUs of sender and engines: `shared` (any), `{sender: 3, engine: 0-2}`, or by default the sender on the last CPU.
fn read_cpus(root: Node<'_>, otherwise: &Shared) -> Outcome<Shared> {
    let Some(node) = root.child("cpus") else { return Ok(otherwise.clone()) };
    if node.text() == "shared" {
        return Ok(Shared::default());
    }
    only(node, &["sender", "engine"])?;
    Shared::given(node.get("sender"), node.get("engine"))
        .map_err(|problem| node.error(format!("cpus: {problem}; 'shared' lets both run anywhere")).into())
}

/// The file that `name` refers to.
pub(super) fn found(name: &str, folder: &Path) -> PathBuf {
    let beside = folder.join(name);
    let path = if beside.exists() { beside } else { PathBuf::from(name) };
    std::path::absolute(&path).unwrap_or(path)
}

fn read_load(node: Node<'_>, folder: &Path) -> Outcome<Kind> {
    only(
        node,
        &[
            "capture",
            "replay",
            "profile",
            "preset",
            "simulated",
            "rates",
            "base",
            "copies",
            "search",
            "from",
            "to",
            "loss",
            "renew",
            "inline",
            "interfaces",
            "same",
        ],
    )?;
    let file = |key: &str| -> Outcome<Option<PathBuf>> {
        let Some(child) = node.child(key) else { return Ok(None) };
        let path = found(child.text(), folder);
        if !path.exists() {
            return Err(child.error(format!("{key}: there is no file {}", child.text())).into());
        }
        Ok(Some(path))
    };
    let (capture, replay, profile) = (file("capture")?, file("replay")?, file("profile")?);
    let preset = node.get("preset").map(str::to_owned);
    let simulated = node.bool("simulated")?.unwrap_or(false);
    let given = [capture.is_some(), replay.is_some(), profile.is_some(), preset.is_some(), simulated];
    if given.iter().filter(|given| **given).count() != 1 {
        return Err(node
            .error("one of capture (read offline), replay, profile, preset and simulated has to be given")
            .into());
    }
    if let Some(capture) = capture {
        only(node, &["capture"])?;
        return Ok(Kind::Offline { capture });
    }
    let speed = |child: Node<'_>, text: &str| match text.parse::<f64>() {
        Ok(times) if times > 0.0 => Ok(Speed::Base(times)),
        _ => units::rate(text).map(Speed::Rate).map_err(|why| Problem::from(child.error(why))),
    };
    let rate = |key: &str, otherwise: &str| {
        let child = node.child(key);
        units::rate(child.map_or(otherwise, |child| child.text()))
            .map_err(|why| Problem::from(child.unwrap_or(node).error(format!("{key}: {why}"))))
    };
    let mut copies = Vec::new();
    for text in node.child("copies").into_iter().flat_map(|child| child.values()) {
        let number = text.parse::<u32>().ok().filter(|copies| (1..=16).contains(copies));
        copies.push(number.ok_or_else(|| Problem::from(node.error(format!("copies: '{text}' is not from 1 to 16"))))?);
    }
    if copies.is_empty() {
        copies.push(1);
    }
    let what = match (replay, profile, preset) {
        (Some(path), _, _) => Some(What::Capture(path)),
        (_, Some(path), _) => Some(What::Profile(path)),
        (_, _, Some(name)) => Some(What::Preset(name)),
        _ => None,
    };
    if node.bool("search")?.unwrap_or(false) {
        let what = what.ok_or_else(|| Problem::from(node.error("simulated: use `margay lab throughput` to search")))?;
        let allowed = node.percent("loss")?.unwrap_or(1.0) / 100.0;
        return Ok(Kind::Search { what, from: rate("from", "10kpps")?, to: rate("to", "10mpps")?, allowed, copies });
    }
    let mut speeds = Vec::new();
    if let Some(child) = node.child("rates") {
        for text in child.values() {
            speeds.push(speed(child, text)?);
        }
    }
    if speeds.is_empty() {
        return Err(node.error("rates: a list is missing (or search: yes)").into());
    }
    let base = match node.get("base") {
        None => None,
        Some("auto") => Some(Base::Auto),
        Some(_) => Some(Base::Rate(rate("base", "")?)),
    };
    if base.is_none() && speeds.iter().any(|speed| matches!(speed, Speed::Base(_))) {
        return Err(node
            .error("base: is missing, and rates without a unit are multiples of it (a rate, or auto)")
            .into());
    }
    Ok(match what {
        Some(what) => Kind::Rates { what, speeds, base, copies },
        None if node.child("interfaces").is_some() => {
            return Err(node.error("interfaces: packets that are `simulated` are on none").into());
        }
        None => Kind::Numbers { speeds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Experiment, String> {
        Experiment::read(
            &format!("%YAML 1.1\n---\n{text}"),
            Path::new("x.yaml"),
            &Shared::of_machine(3),
            &Options::default(),
        )
        .map_err(|problem| problem.to_string())
    }

    const ENGINES: &str = "engines:\n  a: {adapter: suricata, rules: a.rules}\n  b:\n    adapter: suricata\n    set: ['af-packet.0.threads={workers}']\n    workers: [1, 2, 8]\n";

    #[test]
    fn reads_an_experiment() {
        let experiment = read(&format!(
            "title: T\n{ENGINES}baseline: a\nrepeats: 3\nhold: 5s\nloads:\n  steps: {{preset: office, rates: [1, 2, 9], base: auto, copies: [1, 4]}}\n  \
             bound: {{preset: office, search: yes, loss: 0, renew: yes, inline: yes}}\nclose: 5%\n"
        ))
        .unwrap();
        let names: Vec<&str> = experiment.engines.iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!(names, ["a", "b × 1", "b × 2"]);
        assert!(experiment.engines[2].live.contains(&"af-packet.0.threads=2".to_owned()));
        assert_eq!(experiment.notes, ["b with 8 workers is left out: the engine has 2 CPUs here"]);
        assert_eq!((experiment.repeats, experiment.times.hold), (3, Duration::from_secs(5)));
        let Kind::Rates { speeds, base, copies, .. } = &experiment.loads[0].kind else { panic!() };
        assert_eq!((speeds.len(), *base, copies.as_slice()), (3, Some(Base::Auto), &[1, 4][..]));
        assert!(matches!(experiment.loads[1].kind, Kind::Search { allowed: 0.0, .. }));
        assert_eq!(experiment.loads[0].way, Way::default());
        assert_eq!((experiment.loads[1].way, experiment.close), (Way { renew: true, inline: true, same: false }, 0.05));
        assert_eq!((experiment.loads[0].interfaces.as_slice(), experiment.wire.len()), (&[1][..], 0));
    }

    #[test]
    fn reads_several_interfaces() {
        let engine = "engines:\n  a: {adapter: margay, set: ['af-packet.{n}.interface={interface}']}\n";
        let load = "loads:\n  l: {preset: office, rates: [1kpps], interfaces: [1, 2], same: yes}\n";
        let wire = "wire: {sender: [eth2, eth3], engine: [eth0, eth1]}\n";
        let experiment = read(&format!("{engine}{load}{wire}")).unwrap();
        let load = &experiment.loads[0];
        assert_eq!((load.interfaces.as_slice(), load.way.same), (&[1, 2][..], true));
        let ends: Vec<(&str, &str)> =
            experiment.wire.iter().map(|pair| (pair.sender.as_str(), pair.engine.as_str())).collect();
        assert_eq!(ends, [("eth2", "eth0"), ("eth3", "eth1")]);
        let one =
            read(&format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\nwire: {{sender: a, engine: b}}\n"));
        assert_eq!(one.unwrap().wire.len(), 1);
    }

    #[test]
    fn a_node_that_is_not_here_is_named() {
        let experiment = read(
            "engines:\n  a: {adapter: suricata, nodes: [0, 4000], set: ['x={cores}']}\nloads:\n  l: {preset: a, rates: [1mpps]}\n\
             study:\n  figures:\n    x: {load: l, engine: a on node 4000, metric: loss, theirs: 1}\n",
        )
        .unwrap();
        let names: Vec<&str> = experiment.engines.iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!(names, ["a on node 0"]);
        assert!(
            experiment.notes[0].starts_with("a on node 4000 is left out: this machine has "),
            "{:?}",
            experiment.notes
        );
        assert!(!experiment.engines[0].live.contains(&"x={cores}".to_owned()));
    }

    #[test]
    fn a_word_after_an_option_is_a_path_only_where_there_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mine.yaml"), "").unwrap();
        let text = "engines:\n  a: {offline: [sh, -c, 'exec mine \"$0\"', x, -c, mine.yaml]}\nloads:\n  l: {preset: a, rates: [1mpps]}\n";
        let path = folder.path().join("x.yaml");
        let experiment =
            Experiment::read(&format!("%YAML 1.1\n---\n{text}"), &path, &Shared::of_machine(3), &Options::default());
        let words = &experiment.unwrap().engines[0].offline;
        assert_eq!(words[2], "exec mine \"$0\"");
        assert_eq!(words[5], folder.path().join("mine.yaml").to_string_lossy());
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, said) in [
            (ENGINES.to_owned(), "'loads' is missing"),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\ncpus: {{engine: 1000}}\n"),
                "CPU 1000 is not there",
            ),
            (format!("{ENGINES}loads:\n  l: {{capture: nosuch.pcap}}\n"), "there is no file nosuch.pcap"),
            (format!("{ENGINES}loads:\n  l: {{rates: [1]}}\n"), "one of capture (read offline), replay"),
            (format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1]}}\n"), "base: is missing"),
            (
                "engines:\n  a: {adapter: suricata, isolation: [jail]}\nloads:\n  l: {preset: a, rates: [1mpps]}\n"
                    .to_owned(),
                "'jail' is not known; none, container, container-macvtap, machine are",
            ),
            (
                "engines:\n  a: {adapter: suricata, memory: [1GiB]}\nloads:\n  l: {preset: a, rates: [1mpps]}\n"
                    .to_owned(),
                "a limit is of an isolation",
            ),
            (
                format!(
                    "{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\nstudy:\n  figures:\n    x: {{load: l, engine: a, metric: loss, theirs: many}}\n"
                ),
                "'many' is no ratio",
            ),
            (format!("{ENGINES}loads:\n  l: {{preset: a, rates: [quick]}}\n"), "'quick' is no rate"),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\nbaseline: c\n"),
                "'c' is no engine here; a, b × 1",
            ),
            (format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\nrepeat: 3\n"), "'repeat' is not known here"),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps], interfaces: [9]}}\n"),
                "'9' is not from 1 to 8",
            ),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps], interfaces: 2}}\n"),
                "engine a says nothing of several: a setting with {n} is repeated",
            ),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps], same: yes}}\n"),
                "same: is of several interfaces",
            ),
            (
                "engines:\n  a: {adapter: simulated, capacity: 1}\nloads:\n  l: {simulated: yes, rates: [1mpps], interfaces: 2}\n"
                    .to_owned(),
                "packets that are `simulated` are on none",
            ),
            (
                "engines:\n  a: {adapter: simulated, capacity: 1}\nloads:\n  l: {preset: a, rates: [1mpps], interfaces: 2, inline: yes}\n"
                    .to_owned(),
                "an inline engine has one on each side",
            ),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, rates: [1mpps]}}\nwire: {{sender: [a, b], engine: c}}\n"),
                "as many of each",
            ),
            (
                format!("{ENGINES}loads:\n  l: {{preset: a, copies: [17], rates: [1mpps]}}\n"),
                "'17' is not from 1 to 16",
            ),
        ] {
            let problem = read(&text).unwrap_err();
            assert!(problem.contains(said), "{problem}");
            assert!(problem.starts_with("x.yaml:"), "{problem}");
        }
    }

    #[test]
    fn the_projects_own_experiments_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Files for simulated cards have another format (`lab card run`).
            if path.file_name().unwrap().to_string_lossy().starts_with("card-") {
                continue;
            }
            for cpus in [1, 2, 128] {
                let experiment = Experiment::load(&path, &Shared::of_machine(cpus), &Options::default())
                    .unwrap_or_else(|problem| panic!("{problem}"));
                assert!(!experiment.about.is_empty(), "{}", path.display());
            }
            count += 1;
        }
        assert!(count >= 6);
    }
}
