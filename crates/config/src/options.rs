//! The table of command line options, for the parser, the help and the start's notices.

use crate::keys::Effect;
use crate::run_options::{Capture, RunOptions};

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// A value: `-r FILE`, `-rFILE`, `--runmode NAME`, `--runmode=NAME`.
    Value(&'static str),
    /// An optional value, only in the form `--af-packet=IF`.
    Perhaps(&'static str),
}

/// The options by name; one for each row of [`OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Config,
    Include,
    Set,
    DataDir,
    LogDir,
    Test,
    DumpConfig,
    ReadFile,
    FileContinuous,
    FileRecursive,
    FilePreload,
    FileDelete,
    FileBuffer,
    ErfIn,
    Interface,
    Pcap,
    PcapBuffer,
    AfPacket,
    AfXdp,
    Nfqueue,
    Nflog,
    Netmap,
    Pfring,
    PfringCluster,
    PfringBalance,
    Dpdk,
    Dag,
    Napatech,
    Divert,
    CapturePlugin,
    CapturePluginArgs,
    UnixSocket,
    FilterFile,
    Checksums,
    Rules,
    RulesExclusive,
    Firewall,
    FirewallRules,
    InitErrorsFatal,
    StrictKeywords,
    DisableDetection,
    DisableHashing,
    EngineAnalysis,
    Runmode,
    SimulateIps,
    RejectDev,
    Daemon,
    Pidfile,
    Web,
    User,
    Group,
    NoCache,
    NoRandom,
    Verbose,
    Help,
    Version,
    BuildInfo,
    DumpFeatures,
    ListProtocols,
    ListHooks,
    ListRuleProtocols,
    ListKeywords,
    ListRunmodes,
}

/// One option.
pub(crate) struct Opt {
    pub(crate) id: Id,
    pub(crate) short: Option<char>,
    pub(crate) long: Option<&'static str>,
    pub(crate) takes: Takes,
    /// Its description in the help; `None` for an option that the help does not show.
    pub(crate) text: Option<&'static str>,
    /// Whether it has that effect in this program.
    pub(crate) effect: Effect,
    /// For options without effect and refused options: whether the command line has it.
    given: Option<fn(&RunOptions) -> bool>,
}

impl Opt {
    /// Its name as on a command line: `--data-dir`, `-r`.
    pub(crate) fn name(&self) -> String {
        match (self.long, self.short) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }

    /// Its form in the reference, with its letter and value.
    pub(crate) fn shown(&self) -> String {
        let short = self.short.filter(|_| self.long.is_some()).map(|s| format!("-{s}, ")).unwrap_or_default();
        let takes = match self.takes {
            Takes::Nothing => String::new(),
            Takes::Value(what) => format!(" {what}"),
            Takes::Perhaps(what) => format!("[={what}]"),
        };
        format!("`{short}{}{takes}`", self.name())
    }

    /// Its effect, or why it has none.
    pub(crate) fn meaning(&self) -> String {
        let text = self.text.unwrap_or("capture of another kind");
        match self.effect {
            Effect::Acts => text.to_owned(),
            Effect::Ignored(why) => format!("{text}: has no effect, because {why}"),
            Effect::Refused(why) => format!("{text}: refused, because {why}"),
        }
    }

    /// Marks the option as accepted without effect.
    const fn ignored(mut self, given: fn(&RunOptions) -> bool, why: &'static str) -> Opt {
        self.effect = Effect::Ignored(why);
        self.given = Some(given);
        self
    }

    /// Marks the option as refused.
    const fn refused(mut self, given: fn(&RunOptions) -> bool, why: &'static str) -> Opt {
        self.effect = Effect::Refused(why);
        self.given = Some(given);
        self
    }
}

const fn opt(id: Id, short: Option<char>, long: Option<&'static str>, takes: Takes, text: &'static str) -> Opt {
    Opt { id, short, long, takes, text: Some(text), effect: Effect::Acts, given: None }
}

/// Why other capture methods are refused.
const OTHER_CAPTURE: &str = "this release reads capture files (-r, --unix-socket), interfaces (-i, --af-packet, --af-xdp, --pcap) \
                             and queues of netfilter (-q)";

/// An option of Suricata for hardware or a system that Margay does not support.
const fn foreign(
    id: Id,
    short: Option<char>,
    long: Option<&'static str>,
    takes: Takes,
    given: fn(&RunOptions) -> bool,
) -> Opt {
    Opt { id, short, long, takes, text: None, effect: Effect::Refused(OTHER_CAPTURE), given: Some(given) }
}

/// Whether the command line selects the unsupported capture option `name`.
fn from(run: &RunOptions, name: &str) -> bool {
    matches!(&run.capture, Some(Capture::Foreign(n, _)) if *n == name)
}

use Takes::{Nothing, Perhaps, Value};

/// The options, group by group.
#[rustfmt::skip]
pub(crate) const OPTIONS: &[(&str, &[Opt])] = &[
    ("Configuration", &[
        opt(Id::Config, Some('c'), None, Value("FILE"), "read the configuration from FILE"),
        opt(Id::Include, None, Some("include"), Value("FILE"), "read FILE after it (may be given several times)"),
        opt(Id::Set, None, Some("set"), Value("NAME=VALUE"), "change one setting, e.g. --set stream.midstream=true"),
        opt(Id::LogDir, Some('l'), None, Value("DIR"), "write logs to DIR"),
        opt(Id::DataDir, None, Some("data-dir"), Value("DIR"), "keep data sets and other state in DIR"),
        opt(Id::Test, Some('T'), None, Nothing, "read the configuration and the rules, report, and end"),
        opt(Id::DumpConfig, None, Some("dump-config"), Nothing, "print every setting and end"),
    ]),
    ("Packets from files", &[
        opt(Id::ReadFile, Some('r'), None, Value("PATH"), "read a capture file, or all files of a directory"),
        opt(Id::FileContinuous, None, Some("pcap-file-continuous"), Nothing, "wait for more files in the directory"),
        opt(Id::FileRecursive, None, Some("pcap-file-recursive"), Nothing, "read directories in the directory as well"),
        opt(Id::FilePreload, None, Some("pcap-preload"), Nothing, "read a capture file into memory before its first packet"),
        opt(Id::FileDelete, None, Some("pcap-file-delete"), Nothing, "remove each file once it has been read"),
        opt(Id::FileBuffer, None, Some("pcap-file-buffer-size"), Value("SIZE"), "read files in steps of SIZE (4kb to 64mb)")
            .ignored(|r| r.pcap_file_buffer_size.is_some(), "files are read a megabyte at a time, in a buffer of the engine's"),
        opt(Id::ErfIn, None, Some("erf-in"), Value("FILE"), "read a file in ERF format")
            .refused(|r| matches!(r.capture, Some(Capture::Erf(_))), "files in ERF format are not read; editcap -F pcap makes capture files of them"),
    ]),
    ("Packets from the network", &[
        opt(Id::Interface, Some('i'), None, Value("IF"), "capture from an interface in the best way there is"),
        opt(Id::AfPacket, None, Some("af-packet"), Perhaps("IF"), "capture with AF_PACKET"),
        opt(Id::AfXdp, None, Some("af-xdp"), Perhaps("IF"), "capture with AF_XDP"),
        opt(Id::Pcap, None, Some("pcap"), Perhaps("IF"), "capture with libpcap"),
        opt(Id::PcapBuffer, None, Some("pcap-buffer-size"), Value("SIZE"), "memory for libpcap"),
        opt(Id::Nfqueue, Some('q'), None, Value("N[:M]"), "decide on the packets of netfilter queue N (to M)"),
        opt(Id::UnixSocket, None, Some("unix-socket"), Perhaps("FILE"), "wait for commands on a socket"),
        opt(Id::FilterFile, Some('F'), None, Value("FILE"), "read the BPF filter from FILE"),
        opt(Id::Checksums, Some('k'), None, Value("all|none"), "check all checksums, or none"),
        foreign(Id::Nflog, None, Some("nflog"), Perhaps("GROUP"), |r| from(r, "nflog")),
        foreign(Id::Netmap, None, Some("netmap"), Perhaps("IF"), |r| from(r, "netmap")),
        foreign(Id::Pfring, None, Some("pfring"), Perhaps("IF"), |r| from(r, "pfring")),
        foreign(Id::PfringCluster, None, Some("pfring-cluster-id"), Value("ID"), |r| r.pfring_cluster_id.is_some()),
        foreign(Id::PfringBalance, None, Some("pfring-cluster-type"), Value("TYPE"), |r| r.pfring_cluster_type.is_some()),
        foreign(Id::Dpdk, None, Some("dpdk"), Nothing, |r| from(r, "dpdk")),
        foreign(Id::Dag, None, Some("dag"), Value("DEVICE"), |r| from(r, "dag")),
        foreign(Id::Napatech, None, Some("napatech"), Nothing, |r| from(r, "napatech")),
        foreign(Id::Divert, Some('d'), None, Value("PORT"), |r| from(r, "d")),
        foreign(Id::CapturePlugin, None, Some("capture-plugin"), Value("NAME"), |r| from(r, "capture-plugin")),
        foreign(Id::CapturePluginArgs, None, Some("capture-plugin-args"), Value("ARGS"), |r| r.capture_plugin_args.is_some()),
    ]),
    ("Rules", &[
        opt(Id::Rules, Some('s'), None, Value("FILE"), "load FILE besides the rule files of the configuration"),
        opt(Id::RulesExclusive, Some('S'), None, Value("FILE"), "load FILE and no others"),
        opt(Id::Firewall, None, Some("firewall"), Nothing, "drop what no firewall rule accepts"),
        opt(Id::FirewallRules, None, Some("firewall-rules-exclusive"), Value("FILE"), "load the firewall rules of FILE and no others"),
        opt(Id::InitErrorsFatal, None, Some("init-errors-fatal"), Nothing, "end if a rule cannot be loaded"),
        opt(Id::StrictKeywords, None, Some("strict-rule-keywords"), Perhaps("all|KW,..."), "unknown classtypes, references, events are errors"),
        opt(Id::DisableDetection, None, Some("disable-detection"), Nothing, "load no rules, only log"),
        opt(Id::DisableHashing, None, Some("disable-hashing"), Nothing, "compute no MD5, SHA-1, SHA-256"),
        opt(Id::NoCache, None, Some("no-cache"), Nothing, "compile all patterns, and keep none on disk"),
        opt(Id::EngineAnalysis, None, Some("engine-analysis"), Nothing, "report how the rules will be used and end"),
    ]),
    ("Running", &[
        opt(Id::Runmode, None, Some("runmode"), Value("NAME"), "workers, autofp or single"),
        opt(Id::SimulateIps, None, Some("simulate-ips"), Nothing, "decide as if inline, without dropping anything"),
        opt(Id::RejectDev, None, Some("reject-dev"), Value("IF"), "send the packets of 'reject' through this interface"),
        opt(Id::Daemon, Some('D'), None, Nothing, "run in the background"),
        opt(Id::Pidfile, None, Some("pidfile"), Value("FILE"), "write the process id to FILE"),
        opt(Id::Web, None, Some("web"), Value("ADDRESS:PORT"), "serve a live page and /metrics there (127.0.0.1:9300)"),
        opt(Id::User, None, Some("user"), Value("NAME"), "run as this user once everything is open"),
        opt(Id::Group, None, Some("group"), Value("NAME"), "run as this group once everything is open"),
        opt(Id::NoRandom, None, Some("no-random"), Nothing, "choose nothing at random, so that runs can be compared"),
        opt(Id::Verbose, Some('v'), None, Nothing, "say more (-vv, -vvv, -vvvv: still more)"),
    ]),
    ("Information", &[
        opt(Id::Help, Some('h'), Some("help"), Nothing, "print this"),
        opt(Id::Version, Some('V'), Some("version"), Nothing, "print the version"),
        opt(Id::BuildInfo, None, Some("build-info"), Nothing, "print how this program was built"),
        opt(Id::DumpFeatures, None, Some("dump-features"), Nothing, "print the features that rules can ask for"),
        opt(Id::ListProtocols, None, Some("list-app-layer-protos"), Nothing, "list the application protocols"),
        opt(Id::ListHooks, None, Some("list-app-layer-hooks"), Nothing, "list the states of each protocol that rules can name"),
        opt(Id::ListRuleProtocols, None, Some("list-rule-protos"), Nothing, "list the protocols that rules can begin with"),
        opt(Id::ListKeywords, None, Some("list-keywords"), Perhaps("all|csv|KW"), "list the keywords of rules, or explain one"),
        opt(Id::ListRunmodes, None, Some("list-runmodes"), Nothing, "list the run modes"),
    ]),
];

/// An option of a run that has no effect or is refused: its name, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// Its name as on a command line: `--dpdk`.
    pub option: String,
    /// The reason.
    pub why: &'static str,
    /// Whether it ends the run. Otherwise the option is accepted, and has no effect.
    pub refused: bool,
}

/// The options of a run that have no effect, and those that end the run.
pub fn unserved(run: &RunOptions) -> Vec<Unserved> {
    let given = all().filter(|o| o.given.is_some_and(|given| given(run)));
    given
        .filter_map(|o| match o.effect {
            Effect::Acts => None,
            Effect::Ignored(why) => Some(Unserved { option: o.name(), why, refused: false }),
            Effect::Refused(why) => Some(Unserved { option: o.name(), why, refused: true }),
        })
        .collect()
}

/// Every option of the table: its name as on a command line, its value, its effect.
pub fn rows() -> impl Iterator<Item = (String, Option<&'static str>, Effect)> {
    all().map(|o| {
        let takes = match o.takes {
            Nothing => None,
            Value(what) | Perhaps(what) => Some(what),
        };
        (o.name(), takes, o.effect)
    })
}

/// Every option.
pub(crate) fn all() -> impl Iterator<Item = &'static Opt> {
    OPTIONS.iter().flat_map(|(_, options)| options.iter())
}

/// The subcommands: name and purpose.
pub const COMMANDS: &[(&str, &str)] = &[
    ("setup", "write a first configuration for this machine, and test it"),
    ("rules", "check rule files, explain why a rule matched or did not"),
    ("ctl", "ask a running engine, over its unix socket"),
    ("top", "watch a running engine in the terminal"),
    ("tune", "tune card, interrupts, processors and kernel for a sensor"),
    ("split", "make an archive of captures that can be searched part by part"),
    ("lab", "make traffic, measure and compare engines"),
    ("help", "explain a command, a setting or a keyword"),
    ("completions", "print completions for a shell: bash, zsh or fish"),
];

/// The text of `--help`.
pub fn help() -> String {
    const COLUMN: usize = 36;
    const COMMAND: usize = 14;
    let mut out = String::from(
        "Margay: network intrusion detection and prevention.\n\
         \n\
         Usage: margay [OPTIONS] [BPF FILTER]\n       \
                margay COMMAND ...\n\
         \n\
         Commands:\n",
    );
    for (name, text) in COMMANDS {
        out.push_str(&format!("  {name:<COMMAND$}{text}\n"));
    }
    for (group, options) in OPTIONS {
        out.push_str(&format!("\n{group}:\n"));
        for option in *options {
            let Some(text) = option.text else { continue };
            let mut left = match option.short {
                Some(short) => format!("  -{short}"),
                None => "    ".into(),
            };
            if let Some(long) = option.long {
                left.push_str(if option.short.is_some() { ", --" } else { "  --" });
                left.push_str(long);
            }
            match option.takes {
                Nothing => {}
                Value(name) => left.push_str(&format!(" {name}")),
                Perhaps(name) => left.push_str(&format!("[={name}]")),
            }
            if left.len() + 2 > COLUMN {
                out.push_str(&format!("{left}\n{:COLUMN$}{text}\n", ""));
            } else {
                out.push_str(&format!("{left:<COLUMN$}{text}\n"));
            }
        }
    }
    out.push_str(
        "\nExamples:\n  \
           margay -r traffic.pcap -S my.rules\n  \
           margay -c margay.yaml -S my.rules -r traffic.pcap -l logs\n  \
           margay -c margay.yaml --af-packet=eth0 'not port 22'\n  \
           margay -c margay.yaml -T\n",
    );
    out
}
