//! The command line, compatible with Suricata 8.

use crate::options::{self, Id, Opt, Takes};
use crate::run_options::{Capture, Checksums, RuleFiles, RunOptions, Strict};
use crate::typed;
use std::ffi::OsString;
use std::path::PathBuf;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a configuration and do something with it: run, test it, print it, analyse the rules.
    Run(Box<RunOptions>),
    /// `-h`: print [`help`](crate::help).
    Help,
    /// `-V`: print the version.
    Version,
    /// `--build-info`.
    BuildInfo,
    /// `--dump-features`.
    DumpFeatures,
    /// `--list-app-layer-protos`.
    ListAppLayerProtos,
    /// `--list-app-layer-hooks`.
    ListAppLayerHooks,
    /// `--list-rule-protos`.
    ListRuleProtos,
    /// `--list-keywords`.
    ListKeywords(Keywords),
    /// `--list-runmodes`.
    ListRunmodes,
    /// A command of Margay's own (`margay rules ...`) and the arguments after it.
    Own(Own, Vec<OsString>),
}

/// Margay's own commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// `margay rules`: work with rule files.
    Rules,
    /// `margay ctl`: send a command to a running engine.
    Ctl,
    /// `margay lab`: traffic, measurement, tuning.
    Lab,
}

/// The keywords that `--list-keywords` lists, and the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keywords {
    /// Their names.
    Names,
    /// `=all`: everything about each.
    All,
    /// `=csv`: a table separated by semicolons.
    Csv,
    /// `=NAME`: everything about one.
    One(String),
}

/// Why a command line is invalid, as a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("margay: {0}\nTry 'margay --help'.")]
pub struct CliError(pub String);

impl CliError {
    /// The exit status after this error, as in Suricata.
    pub const EXIT_STATUS: u8 = 1;
}

/// The parser of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Cli;

impl Cli {
    /// Reads the arguments (without the program's name). Options may follow the words of the BPF filter; after `--`
    /// there are only such words.
    ///
    /// # Errors
    /// An option is unknown, lacks its value, has an invalid value, or contradicts another one.
    pub fn parse<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Result<Command, CliError> {
        let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
        if let Some(own) = args.first().and_then(|a| a.to_str()).and_then(own_command) {
            return Ok(Command::Own(own, args.into_iter().skip(1).collect()));
        }
        let mut words = Vec::with_capacity(args.len());
        for (arg, number) in args.into_iter().zip(1..) {
            match arg.into_string() {
                Ok(word) => words.push(word),
                Err(arg) => {
                    return Err(CliError(format!("argument {number} ({}) is not UTF-8 text", arg.to_string_lossy())));
                }
            }
        }
        let mut state = State { run: RunOptions::default(), other: None };
        let mut filter: Vec<String> = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                filter.extend(words.by_ref());
            } else if let Some(long) = word.strip_prefix("--") {
                state.long(long, &mut words)?;
            } else if word.len() > 1 && word.starts_with('-') {
                state.short(word.get(1..).unwrap_or_default(), &mut words)?;
            } else {
                filter.push(word);
            }
        }
        // An empty shell variable leaves an empty word.
        filter.retain(|w| !w.is_empty());
        if let Some(other) = state.other {
            return Ok(other);
        }
        let mut run = state.run;
        if !filter.is_empty() {
            if run.filter_file.is_some() {
                return Err(CliError(format!(
                    "a BPF filter after the options ('{}') and -F cannot be combined",
                    filter.join(" ")
                )));
            }
            run.filter = Some(filter.join(" "));
        }
        Ok(Command::Run(Box::new(run)))
    }
}

fn own_command(word: &str) -> Option<Own> {
    match word {
        "rules" => Some(Own::Rules),
        "ctl" => Some(Own::Ctl),
        "lab" => Some(Own::Lab),
        _ => None,
    }
}

struct State {
    run: RunOptions,
    /// The first option that asks for information instead of a run.
    other: Option<Command>,
}

impl State {
    /// `name` or `name=value`, without the dashes.
    fn long(&mut self, text: &str, rest: &mut impl Iterator<Item = String>) -> Result<(), CliError> {
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let Some(option) = options::all().find(|o| o.long == Some(name)) else {
            let hint = similar(name).map(|o| format!(", did you mean '--{o}'?")).unwrap_or_default();
            return Err(CliError(format!("unrecognized option '--{name}'{hint}")));
        };
        let shown = format!("--{name}");
        let value = match (option.takes, attached) {
            (Takes::Nothing, None) => None,
            (Takes::Nothing, Some(_)) => return Err(CliError(format!("option '{shown}' doesn't allow an argument"))),
            (Takes::Perhaps(_), value) => value,
            (Takes::Value(_), Some(value)) => Some(value),
            (Takes::Value(what), None) => Some(required(&shown, what, rest)?),
        };
        self.apply(option, &shown, value)
    }

    /// One or more letters after a dash; a value may follow in the same word.
    fn short(&mut self, text: &str, rest: &mut impl Iterator<Item = String>) -> Result<(), CliError> {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let Some(option) = options::all().find(|o| o.short == Some(letter)) else {
                return Err(CliError(format!("invalid option '-{letter}'")));
            };
            let shown = format!("-{letter}");
            if let Takes::Value(what) = option.takes {
                let attached = letters.as_str();
                let value = if attached.is_empty() { required(&shown, what, rest)? } else { attached.to_owned() };
                return self.apply(option, &shown, Some(value));
            }
            self.apply(option, &shown, None)?;
        }
        Ok(())
    }

    // It stays whole: a flat match over the options.
    fn apply(&mut self, option: &'static Opt, shown: &str, value: Option<String>) -> Result<(), CliError> {
        let run = &mut self.run;
        if value.as_deref() == Some("") {
            return Err(CliError(format!("option '{shown}' has an empty argument")));
        }
        let text = value.clone().unwrap_or_default();
        let path = || PathBuf::from(&text);
        match option.id {
            Id::Config => run.config = Some(path()),
            Id::Include => run.includes.push(path()),
            Id::Set => {
                if !text.contains('=') {
                    return Err(CliError(format!("invalid argument '{text}' for --set, must be name=value")));
                }
                run.sets.push(text);
            }
            Id::DataDir => run.data_dir = Some(path()),
            Id::LogDir => run.log_dir = Some(path()),
            Id::Test => run.test = true,
            Id::DumpConfig => run.dump_config = true,
            Id::ReadFile => self.capture(shown, Capture::File(path()))?,
            Id::FileContinuous => run.pcap_file_continuous = true,
            Id::FileRecursive => run.pcap_file_recursive = true,
            Id::FilePreload => run.pcap_preload = true,
            Id::FileDelete => run.pcap_file_delete = true,
            Id::FileBuffer => run.pcap_file_buffer_size = Some(size(shown, &text, 4 << 10, 64 << 20)?),
            Id::ErfIn => self.capture(shown, Capture::Erf(path()))?,
            Id::Interface => self.capture(shown, Capture::Interfaces(vec![text]))?,
            Id::Pcap => self.capture(shown, Capture::Pcap(value.into_iter().collect()))?,
            Id::PcapBuffer => run.pcap_buffer_size = Some(size(shown, &text, 0, i32::MAX as u64)?),
            Id::AfPacket => self.capture(shown, Capture::AfPacket(value.into_iter().collect()))?,
            Id::AfXdp => self.capture(shown, Capture::AfXdp(value.into_iter().collect()))?,
            Id::Nfqueue => self.capture(shown, Capture::Nfqueue(queues(&text)?))?,
            Id::Nflog | Id::Netmap | Id::Pfring | Id::Dpdk | Id::Dag | Id::Napatech | Id::CapturePlugin => {
                let name = option.long.unwrap_or_default();
                self.capture(shown, Capture::Foreign(name, value.into_iter().collect()))?;
            }
            Id::Divert => self.capture(shown, Capture::Foreign("d", vec![text]))?,
            Id::PfringCluster => run.pfring_cluster_id = Some(text),
            Id::PfringBalance => run.pfring_cluster_type = Some(text),
            Id::CapturePluginArgs => run.capture_plugin_args = Some(text),
            Id::UnixSocket => self.capture(shown, Capture::UnixSocket(value.map(PathBuf::from)))?,
            Id::FilterFile => run.filter_file = Some(path()),
            Id::Checksums => {
                run.checksums = Some(match text.as_str() {
                    "all" => Checksums::All,
                    "none" => Checksums::None,
                    _ => return Err(CliError(format!("option '{text}' invalid for -k, must be all or none"))),
                });
            }
            Id::Rules | Id::RulesExclusive => {
                if run.rules != RuleFiles::Configured {
                    return Err(CliError("can't have multiple -s options or mix -s and -S".into()));
                }
                run.rules = if option.id == Id::Rules { RuleFiles::Added(text) } else { RuleFiles::Exclusive(text) };
            }
            Id::Firewall => run.firewall = true,
            Id::FirewallRules => run.firewall_rules = Some(path()),
            Id::InitErrorsFatal => run.init_errors_fatal = true,
            Id::StrictKeywords => {
                run.strict_rule_keywords = Some(match value.as_deref() {
                    None | Some("all") => Strict::All,
                    Some(list) => Strict::Keywords(list.split(',').map(|k| k.trim().to_owned()).collect()),
                });
            }
            Id::DisableDetection => run.disable_detection = true,
            Id::DisableHashing => run.disable_hashing = true,
            Id::EngineAnalysis => run.engine_analysis = true,
            Id::Runmode => run.runmode = Some(text),
            Id::SimulateIps => run.simulate_ips = true,
            Id::RejectDev => run.reject_dev = Some(text),
            Id::Daemon => run.daemon = true,
            Id::Pidfile => run.pidfile = Some(path()),
            Id::Web => run.web = Some(text),
            Id::User => run.user = Some(text),
            Id::Group => run.group = Some(text),
            Id::NoCache => run.no_cache = true,
            Id::NoRandom => run.no_random = true,
            Id::Verbose => run.verbose = run.verbose.saturating_add(1),
            Id::Help => self.other(Command::Help),
            Id::Version => self.other(Command::Version),
            Id::BuildInfo => self.other(Command::BuildInfo),
            Id::DumpFeatures => self.other(Command::DumpFeatures),
            Id::ListProtocols => self.other(Command::ListAppLayerProtos),
            Id::ListHooks => self.other(Command::ListAppLayerHooks),
            Id::ListRuleProtocols => self.other(Command::ListRuleProtos),
            Id::ListRunmodes => self.other(Command::ListRunmodes),
            Id::ListKeywords => self.other(Command::ListKeywords(match value {
                None => Keywords::Names,
                Some(what) => match what.as_str() {
                    "all" => Keywords::All,
                    "csv" => Keywords::Csv,
                    _ => Keywords::One(what),
                },
            })),
        }
        Ok(())
    }

    fn other(&mut self, command: Command) {
        if self.other.is_none() {
            self.other = Some(command);
        }
    }

    /// Sets the source of packets. A second source must be of the same kind: another interface, or another queue.
    fn capture(&mut self, shown: &str, capture: Capture) -> Result<(), CliError> {
        match (&mut self.run.capture, capture) {
            (empty @ None, capture) => *empty = Some(capture),
            (Some(Capture::Interfaces(all)), Capture::Interfaces(more))
            | (Some(Capture::AfPacket(all)), Capture::AfPacket(more))
            | (Some(Capture::AfXdp(all)), Capture::AfXdp(more))
            | (Some(Capture::Pcap(all)), Capture::Pcap(more)) => all.extend(more),
            (Some(Capture::Foreign(name, all)), Capture::Foreign(other, more)) if *name == other => all.extend(more),
            (Some(Capture::Nfqueue(all)), Capture::Nfqueue(more)) => {
                all.extend(more);
                if all.len() > 1 << 16 {
                    return Err(CliError("more netfilter queues than there are".into()));
                }
            }
            _ => {
                return Err(CliError(format!(
                    "more than one run mode has been specified: '{shown}' comes after another source of packets"
                )));
            }
        }
        Ok(())
    }
}

fn required(shown: &str, what: &str, rest: &mut impl Iterator<Item = String>) -> Result<String, CliError> {
    rest.next().ok_or_else(|| CliError(format!("option '{shown}' requires an argument: {what}")))
}

fn size(shown: &str, text: &str, least: u64, most: u64) -> Result<u64, CliError> {
    let bytes = typed::parse_size(text).map_err(|reason| CliError(format!("option '{shown}': {reason}")))?;
    if !(least..=most).contains(&bytes) {
        return Err(CliError(format!("option '{shown}': {text} is not between {least} and {most} bytes")));
    }
    Ok(bytes)
}

/// `3` or `0:3`.
fn queues(text: &str) -> Result<Vec<u16>, CliError> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first..=last).collect()),
        _ => Err(CliError(format!("option '-q': '{text}' is not a queue from 0 to 65535 or a range such as 0:3"))),
    }
}

/// The long option that `name` looks like.
fn similar(name: &str) -> Option<&'static str> {
    if name.len() > 40 {
        return None;
    }
    options::all()
        .filter_map(|o| o.long)
        .map(|long| (distance(name, long), long))
        .filter(|&(d, long)| d <= 2 || (name.len() > 3 && long.starts_with(name)))
        .min()
        .map(|(_, long)| long)
}

/// The edit distance: the number of letters to add, remove or change.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.chars()) {
            let cost = (before + usize::from(x != y)).min(left + 1).min(*cell + 1);
            before = std::mem::replace(cell, cost);
            left = cost;
        }
    }
    row.last().copied().unwrap_or_default()
}
