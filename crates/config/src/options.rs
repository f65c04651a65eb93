//! The table of command line options: what the parser takes and the help shows.

/// What an option is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// A value: `-r FILE`, `-rFILE`, `--runmode NAME`, `--runmode=NAME`.
    Value(&'static str),
    /// Perhaps a value, only as `--af-packet=IF`.
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
    /// What it does; none: taken, not shown.
    pub(crate) text: Option<&'static str>,
}

const fn opt(id: Id, short: Option<char>, long: Option<&'static str>, takes: Takes, text: &'static str) -> Opt {
    Opt { id, short, long, takes, text: Some(text) }
}

/// Of Suricata, for hardware and systems that others have.
const fn foreign(id: Id, short: Option<char>, long: Option<&'static str>, takes: Takes) -> Opt {
    Opt { id, short, long, takes, text: None }
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
        opt(Id::FileBuffer, None, Some("pcap-file-buffer-size"), Value("SIZE"), "read files in steps of SIZE (4kb to 64mb)"),
        opt(Id::ErfIn, None, Some("erf-in"), Value("FILE"), "read a file in ERF format"),
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
        foreign(Id::Nflog, None, Some("nflog"), Perhaps("GROUP")),
        foreign(Id::Netmap, None, Some("netmap"), Perhaps("IF")),
        foreign(Id::Pfring, None, Some("pfring"), Perhaps("IF")),
        foreign(Id::PfringCluster, None, Some("pfring-cluster-id"), Value("ID")),
        foreign(Id::PfringBalance, None, Some("pfring-cluster-type"), Value("TYPE")),
        foreign(Id::Dpdk, None, Some("dpdk"), Nothing),
        foreign(Id::Dag, None, Some("dag"), Value("DEVICE")),
        foreign(Id::Napatech, None, Some("napatech"), Nothing),
        foreign(Id::Divert, Some('d'), None, Value("PORT")),
        foreign(Id::CapturePlugin, None, Some("capture-plugin"), Value("NAME")),
        foreign(Id::CapturePluginArgs, None, Some("capture-plugin-args"), Value("ARGS")),
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

/// Every option.
pub(crate) fn all() -> impl Iterator<Item = &'static Opt> {
    OPTIONS.iter().flat_map(|(_, options)| options.iter())
}

/// The text of `--help`.
pub fn help() -> String {
    const COLUMN: usize = 36;
    let mut out = String::from(
        "Margay: network intrusion detection and prevention.\n\
         \n\
         Usage: margay [OPTIONS] [BPF FILTER]\n       \
                margay rules|ctl|lab COMMAND\n",
    );
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
           margay -c margay.yaml -S my.rules -r traffic.pcap -l logs\n  \
           margay -c margay.yaml --af-packet=eth0 'not port 22'\n  \
           margay -c margay.yaml -T\n",
    );
    out
}
