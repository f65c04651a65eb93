//! An engine's contract: how to start it, how it reports readiness, where it writes counters and how to stop it. Margay
//! and Suricata have contracts here; the user describes other engines in YAML (docs/lab.md).

use std::time::Duration;

use margay_config::{Config, Node};

use super::counters::{Format, Names};
use crate::cpus::Cpus;
use crate::isolate::Apart;
use crate::problem::{Outcome, Problem};
use crate::units;

/// How an engine reports that it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A line with this text on its standard output or error.
    Line(String),
    /// This file exists.
    File(String),
    /// It is ready as soon as it is started.
    AtOnce,
}

/// The location of an engine's counters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CountersAt {
    /// The file, with placeholders.
    pub(crate) file: String,
    pub(crate) format: Format,
    pub(crate) names: Names,
    /// Names for one of several interfaces, with `{interface}`. Suricata's `stats.log` needs none: it has threads.
    pub(crate) by_interface: Names,
    /// Counters that did not change for this long are final. It is longer than the engine's write interval.
    pub(crate) rest: Duration,
}

/// An engine's contract, see the module. Commands and files have placeholders: `{interface}`, `{peer}` (an inline
/// engine's other interface), `{capture}`, `{dir}` (this run's folder), `{tmp}` (a folder with a short name, for
/// sockets) and `{cores}` (its number of CPUs). With several interfaces, `{interfaces}` is a list of them, and a word with
/// `{n}` is repeated for each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contract {
    /// The engine's name in reports.
    pub(crate) name: String,
    /// The command that reads packets from `{interface}`; empty if there is none.
    pub(crate) live: Vec<String>,
    /// The command that reads `{capture}` and ends; empty if there is none.
    pub(crate) offline: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) ready: Ready,
    /// Time limit for getting ready.
    pub(crate) ready_within: Duration,
    pub(crate) counters: Option<CountersAt>,
    /// The name of the signal that stops it.
    pub(crate) stop: String,
    /// Time limit for stopping.
    pub(crate) stop_within: Duration,
    /// The command that prints its version; empty if there is none.
    pub(crate) version: Vec<String>,
    /// It is restarted for each trial of a search.
    pub(crate) restart: bool,
    /// Its CPUs while it reads from an interface.
    pub(crate) cpus: Cpus,
    /// It is the simulated engine, which also takes packet counts.
    pub(crate) simulated: bool,
    /// Its isolation.
    pub(crate) apart: Apart,
}

impl Contract {
    /// The same engine on the interfaces that its configuration lists, if its command would name one: Margay and Suricata
    /// inline, or on several interfaces.
    pub(crate) fn listed(mut self) -> Contract {
        for word in &mut self.live {
            if word == "--af-packet={interface}" {
                *word = "--af-packet".to_owned();
            }
        }
        self
    }

    /// The same engine on several interfaces, whose counts it tells apart by thread.
    pub(crate) fn several(self) -> Contract {
        let mut contract = self.listed();
        for word in &mut contract.live {
            if word == "outputs.99.stats.threads=no" {
                *word = "outputs.99.stats.threads=yes".to_owned();
            }
        }
        contract
    }

    /// Whether its command says what to do with several interfaces.
    pub(crate) fn takes_several(&self) -> bool {
        self.live.iter().any(|word| ["{n}", "{interfaces}", "{source}"].iter().any(|name| word.contains(name)))
    }

    /// An engine with nothing but its commands.
    fn plain(name: &str) -> Contract {
        Contract {
            name: name.to_owned(),
            live: Vec::new(),
            offline: Vec::new(),
            environment: Vec::new(),
            ready: Ready::AtOnce,
            ready_within: Duration::from_secs(120),
            counters: None,
            stop: "TERM".to_owned(),
            stop_within: Duration::from_secs(60),
            version: Vec::new(),
            restart: false,
            cpus: Cpus::default(),
            simulated: false,
            apart: Apart::default(),
        }
    }

    /// Sets its CPUs.
    pub(crate) fn on(&mut self, cpus: &Cpus) {
        self.cpus = cpus.clone();
        let count = cpus.count().to_string();
        for word in
            self.live.iter_mut().chain(&mut self.offline).chain(self.environment.iter_mut().map(|(_, value)| value))
        {
            *word = word.replace("{cores}", &count);
        }
    }

    /// Suricata, or Margay, which takes the same options. A statistics log of its own, written once a second, is added
    /// to the outputs for the counters. (An event log would need a list of types, which Suricata 8 does not accept from
    /// `--set`.)
    pub(crate) fn suricata(name: &str, binary: &str, options: &Options) -> Contract {
        let mut command = vec![binary.to_owned()];
        let mut add = |words: &[&str]| command.extend(words.iter().map(|word| (*word).to_owned()));
        if let Some(config) = &options.config {
            add(&["-c", config]);
        }
        for rules in &options.rules {
            add(&["-S", rules]);
        }
        add(&["-l", "{dir}"]);
        for setting in [
            "stats.enabled=yes",
            "stats.interval=1",
            "outputs.99=stats",
            "outputs.99.stats.enabled=yes",
            "outputs.99.stats.filename=lab-counters.log",
            "outputs.99.stats.append=no",
            "outputs.99.stats.totals=yes",
            "outputs.99.stats.threads=no",
            "outputs.99.stats.null-values=yes",
        ] {
            add(&["--set", setting]);
        }
        for setting in &options.set {
            add(&["--set", setting]);
        }
        add(&options.args.iter().map(String::as_str).collect::<Vec<_>>());
        let with =
            |words: &[&str]| command.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect();
        let list = |name: &str| vec![name.to_owned()];
        Contract {
            live: with(&["--af-packet={interface}"]),
            offline: with(&["-r", "{capture}"]),
            ready: Ready::Line("Engine started".to_owned()),
            ready_within: Duration::from_secs(300),
            counters: Some(CountersAt {
                file: "{dir}/lab-counters.log".to_owned(),
                format: Format::StatsLog,
                names: Names {
                    received: list("capture.kernel_packets"),
                    dropped: list("capture.kernel_drops"),
                    decoded: list("decoder.pkts"),
                    gaps: list("tcp.reassembly_gap"),
                    alerts: list("detect.alert"),
                    blocked: vec!["ips.blocked".to_owned(), "ips.rejected".to_owned()],
                },
                by_interface: Names::default(),
                // It writes every second, but its threads hand over their counts every three seconds.
                rest: Duration::from_millis(4500),
            }),
            stop: "INT".to_owned(),
            version: vec![binary.to_owned(), "-V".to_owned()],
            ..Contract::plain(name)
        }
    }

    /// The simulated engine (`crate::sim`) with this capacity, and further options.
    pub(crate) fn simulated(name: &str, capacity: f64, options: &[String]) -> Outcome<Contract> {
        let mut live = crate::command::own_command()?;
        let words = ["sim-engine", "--source", "{source}", "--counters", "{dir}/counters", "--capacity"];
        live.extend(words.map(str::to_owned));
        live.push(capacity.to_string());
        live.extend(options.iter().cloned());
        let list = |name: &str| vec![name.to_owned()];
        Ok(Contract {
            live,
            ready: Ready::Line("Engine started".to_owned()),
            ready_within: Duration::from_secs(20),
            counters: Some(CountersAt {
                file: "{dir}/counters".to_owned(),
                format: Format::Lines,
                names: Names {
                    received: list("received"),
                    dropped: list("dropped"),
                    decoded: list("decoded"),
                    ..Names::default()
                },
                by_interface: Names {
                    received: list("received.{interface}"),
                    dropped: list("dropped.{interface}"),
                    decoded: list("decoded.{interface}"),
                    ..Names::default()
                },
                rest: Duration::from_millis(400),
            }),
            simulated: true,
            ..Contract::plain(name)
        })
    }

    /// Reads the contract in `node`; its name is the node's. For Margay and Suricata, the configuration and rules in
    /// `instead` replace its own.
    ///
    /// # Errors
    /// If a setting is unknown or makes no sense, with its place.
    pub(crate) fn read(node: Node<'_>, instead: &Options) -> Outcome<Contract> {
        let name = node.name().to_owned();
        let adapter = node.get("adapter").unwrap_or("command");
        let known: &[&str] = match adapter {
            "suricata" | "margay" => &["binary", "config", "rules", "set", "args"],
            "simulated" => &["capacity", "args"],
            "command" => &["live", "offline", "counters", "ready", "stop"],
            other => {
                let place = node.child("adapter").unwrap_or(node);
                return Err(place
                    .error(format!("'{other}' is no adapter: margay, suricata, simulated and command are"))
                    .into());
            }
        };
        let common = [
            "adapter",
            "environment",
            "ready-within",
            "stop-within",
            "restart",
            "workers",
            "nodes",
            "version",
            "isolation",
            "memory",
        ];
        only(node, &known.iter().chain(&common).copied().collect::<Vec<_>>())?;
        let list = |key: &str| -> Vec<String> {
            node.child(key).map(|node| node.values().map(str::to_owned).collect()).unwrap_or_default()
        };
        let mut contract = match adapter {
            "suricata" | "margay" => {
                let options = Options {
                    config: instead.config.clone().or_else(|| node.get("config").map(str::to_owned)),
                    rules: if instead.rules.is_empty() { list("rules") } else { instead.rules.clone() },
                    set: list("set"),
                    args: list("args"),
                };
                let binary = match (node.get("binary"), adapter) {
                    (Some(binary), _) => binary.to_owned(),
                    (None, "margay") => crate::command::own_engine(),
                    (None, _) => "suricata".to_owned(),
                };
                Contract::suricata(&name, &binary, &options)
            }
            "simulated" => {
                let capacity = node.float("capacity")?.filter(|capacity| *capacity > 0.0);
                let capacity =
                    capacity.ok_or_else(|| node.error("capacity: packets a second, above 0, are missing"))?;
                Contract::simulated(&name, capacity, &list("args"))?
            }
            _ => Contract::read_plain(node, &name)?,
        };
        let time = |key: &str, otherwise: Duration| read_duration(node, key).map(|time| time.unwrap_or(otherwise));
        contract.ready_within = time("ready-within", contract.ready_within)?;
        contract.stop_within = time("stop-within", contract.stop_within)?;
        contract.restart = node.bool("restart")?.unwrap_or(contract.restart);
        if node.child("version").is_some() {
            contract.version = list("version");
        }
        if let Some(environment) = node.child("environment") {
            contract.environment =
                environment.children().map(|node| (node.name().to_owned(), node.text().to_owned())).collect();
        }
        Ok(contract)
    }

    fn read_plain(node: Node<'_>, name: &str) -> Outcome<Contract> {
        let mut contract = Contract::plain(name);
        let list = |key: &str| -> Vec<String> {
            node.child(key).map(|node| node.values().map(str::to_owned).collect()).unwrap_or_default()
        };
        (contract.live, contract.offline) = (list("live"), list("offline"));
        if contract.live.is_empty() && contract.offline.is_empty() {
            return Err(node.error("'live' or 'offline': a command is missing, as a list of words").into());
        }
        if let Some(ready) = node.child("ready") {
            only(ready, &["line", "file"])?;
            contract.ready = match (ready.get("line"), ready.get("file")) {
                (Some(line), None) => Ready::Line(line.to_owned()),
                (None, Some(file)) => Ready::File(file.to_owned()),
                _ => return Err(ready.error("'ready': either a line or a file").into()),
            };
        }
        if let Some(stop) = node.get("stop") {
            super::running::signal(stop).ok_or_else(|| {
                Problem::from(
                    node.error(format!("stop: '{stop}' is no signal: INT, TERM, HUP, QUIT, USR1 and USR2 are")),
                )
            })?;
            contract.stop = stop.to_owned();
        }
        if let Some(counters) = node.child("counters") {
            let known = [&["file", "format", "rest", "by-interface"][..], &Names::KEYS].concat();
            only(counters, &known)?;
            let file = counters.get("file").ok_or_else(|| Problem::from(counters.error("'file' is missing")))?;
            let format = counters.get("format").unwrap_or("json-lines");
            let format = Format::named(format).ok_or_else(|| {
                Problem::from(
                    counters
                        .error(format!("format: '{format}' is not known; json-lines, json, lines and stats-log are")),
                )
            })?;
            let names = Names::of(counters);
            let by_interface = match counters.child("by-interface") {
                Some(node) => {
                    only(node, &Names::KEYS)?;
                    Names::of(node)
                }
                None => Names::default(),
            };
            if names.decoded.is_empty() {
                return Err(counters
                    .error("'decoded' is missing: what the engine took is what losses are told by")
                    .into());
            }
            let rest = read_duration(counters, "rest")?.unwrap_or(Duration::from_secs(3));
            contract.counters = Some(CountersAt { file: file.to_owned(), format, names, by_interface, rest });
        }
        Ok(contract)
    }

    /// Reads a file with one contract, or with an `engines:` section that contains `name`.
    ///
    /// # Errors
    /// If the file cannot be read or parsed.
    pub(crate) fn load(path: &str) -> Outcome<Contract> {
        let config = Config::load(path)?;
        let root = config.root();
        let mut engines = root.child("engines").into_iter().flat_map(|node| node.children());
        match (engines.next(), engines.next()) {
            (Some(only), None) => Contract::read(only, &Options::default()),
            (Some(_), Some(_)) => {
                Err(Problem::Usage(format!("{path} describes several engines: `margay lab compare` runs them")))
            }
            _ => Err(Problem::Usage(format!("{path} describes no engine: `engines:` with one below it is expected"))),
        }
    }
}

/// The user's options for Margay and Suricata.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) config: Option<String>,
    pub(crate) rules: Vec<String>,
    pub(crate) set: Vec<String>,
    pub(crate) args: Vec<String>,
}

/// Checks that `node` has only `known` settings.
///
/// # Errors
/// An unknown setting, with its place.
pub(crate) fn only(node: Node<'_>, known: &[&str]) -> Outcome<()> {
    for child in node.children() {
        if !known.contains(&child.name()) {
            let what = format!("'{}' is not known here; {} are", child.name(), known.join(", "));
            return Err(child.error(what).into());
        }
    }
    Ok(())
}

/// Reads a duration below `node`.
///
/// # Errors
/// An invalid duration, with its place.
pub(crate) fn read_duration(node: Node<'_>, key: &str) -> Outcome<Option<Duration>> {
    let Some(child) = node.child(key) else { return Ok(None) };
    units::duration(child.text()).map(Some).map_err(|why| child.error(format!("{key}: {why}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Contract, String> {
        let config = Config::from_str(&format!("%YAML 1.1\n---\n{text}"), "x.yaml").unwrap();
        let engine = config.node("engines").unwrap().children().next().unwrap();
        Contract::read(engine, &Options::default()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn reads_a_contract() {
        let contract = read(
            "engines:\n  mine:\n    live: [mine, -i, '{interface}']\n    ready: {line: listening}\n    ready-within: 5s\n    stop: INT\n    \
             counters:\n      file: '{dir}/c'\n      format: lines\n      decoded: [a, b]\n",
        )
        .unwrap();
        assert_eq!((contract.name.as_str(), contract.ready_within), ("mine", Duration::from_secs(5)));
        assert_eq!(contract.live, ["mine", "-i", "{interface}"]);
        assert_eq!(contract.ready, Ready::Line("listening".to_owned()));
        assert_eq!(contract.counters.unwrap().names.decoded, ["a", "b"]);
    }

    #[test]
    fn suricata_gets_its_own_log_of_counters() {
        let contract = read(
            "engines:\n  tuned:\n    adapter: suricata\n    config: s.yaml\n    rules: x.rules\n    set: [a.b=c]\n",
        )
        .unwrap();
        let line = contract.offline.join(" ");
        assert!(line.starts_with("suricata -c s.yaml -S x.rules -l {dir} --set stats.enabled=yes"), "{line}");
        assert!(line.ends_with("--set a.b=c -r {capture}"), "{line}");
        // Suricata 8 rejects a list of event types on the command line.
        assert!(!line.contains("types"), "{line}");
        assert_eq!(contract.counters.map(|c| c.format), Some(Format::StatsLog));
    }

    #[test]
    fn several_interfaces_are_the_configurations() {
        let contract = Contract::suricata("x", "suricata", &Options::default());
        assert_eq!(contract.live.last().unwrap(), "--af-packet={interface}");
        assert!(!contract.takes_several());
        assert_eq!(contract.clone().listed().live.last().unwrap(), "--af-packet");
        let several = contract.several().live;
        assert_eq!(several.last().unwrap(), "--af-packet");
        assert!(several.contains(&"outputs.99.stats.threads=yes".to_owned()));
        let set = vec!["af-packet.{n}.interface={interface}".to_owned()];
        assert!(Contract::suricata("x", "suricata", &Options { set, ..Options::default() }).takes_several());
        assert!(Contract::simulated("x", 1.0, &[]).unwrap().takes_several());
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, said) in [
            ("engines:\n  x: {adapter: snort}\n", "x.yaml:4:7: 'snort' is no adapter"),
            ("engines:\n  x:\n    adapter: suricata\n    rulez: y\n", "x.yaml:6:5: 'rulez' is not known here"),
            ("engines:\n  x:\n    stop: INT\n", "a command is missing"),
            ("engines:\n  x:\n    live: [a]\n    stop: NOW\n", "'NOW' is no signal"),
            ("engines:\n  x:\n    live: [a]\n    counters: {file: f, format: xml}\n", "'xml' is not known"),
            (
                "engines:\n  x:\n    live: [a]\n    counters: {file: f, decoded: [d], by-interface: {seen: [s]}}\n",
                "'seen' is not known here",
            ),
            ("engines:\n  x:\n    live: [a]\n    ready-within: soon\n", "'soon' is no duration"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
    }
}
