//! Command lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

use margay_config::{Capture, Checksums, Cli, Command, Keywords, Own, RuleFiles, RunOptions, Strict, help};
use std::path::PathBuf;

fn parse(line: &str) -> Result<Command, String> {
    Cli::parse(line.split_whitespace()).map_err(|e| e.0)
}

fn run(line: &str) -> RunOptions {
    match parse(line).unwrap() {
        Command::Run(run) => *run,
        other => panic!("{other:?}"),
    }
}

fn error(line: &str) -> String {
    parse(line).unwrap_err()
}

#[test]
fn a_run_over_a_file() {
    let run = run(
        "--set stream.midstream=true --set=a.b=c=d --init-errors-fatal -l out --simulate-ips -c x.yaml -rfile.pcap -S my.rules -k none -vv -v",
    );
    assert_eq!(run.sets, ["stream.midstream=true", "a.b=c=d"]);
    assert!(run.init_errors_fatal && run.simulate_ips);
    assert_eq!(run.log_dir, Some(PathBuf::from("out")));
    assert_eq!(run.config, Some(PathBuf::from("x.yaml")));
    assert_eq!(run.capture, Some(Capture::File("file.pcap".into())));
    assert_eq!(run.rules, RuleFiles::Exclusive("my.rules".into()));
    assert_eq!(run.checksums, Some(Checksums::None));
    assert_eq!(run.verbose, 3);
    assert_eq!(run.filter, None);
}

#[test]
fn nothing_given_is_nothing_set() {
    assert_eq!(run(""), RunOptions::default());
}

#[test]
fn words_are_the_filter_wherever_they_stand() {
    let run = run("tcp -kall and -i eth0 -- port -80");
    assert_eq!(run.filter.as_deref(), Some("tcp and port -80"));
    assert_eq!(run.checksums, Some(Checksums::All));
    assert_eq!(run.capture, Some(Capture::Interfaces(vec!["eth0".into()])));
    let Command::Run(run) = Cli::parse(["-T", "", "not port 22"]).unwrap() else { panic!() };
    assert_eq!(run.filter.as_deref(), Some("not port 22"));
    // As in getopt, an optional value needs its '='.
    let run = self::run("--af-packet eth0");
    assert_eq!((run.capture, run.filter.as_deref()), (Some(Capture::AfPacket(vec![])), Some("eth0")));
}

#[test]
fn letters_share_a_dash() {
    let run = run("-TDvlout");
    assert!(run.test && run.daemon);
    assert_eq!((run.verbose, run.log_dir), (1, Some("out".into())));
}

#[test]
fn every_source_of_packets() {
    let source = |line: &str| run(line).capture.unwrap();
    assert_eq!(source("--af-packet=a --af-packet=b"), Capture::AfPacket(vec!["a".into(), "b".into()]));
    assert_eq!(source("-i a -i b"), Capture::Interfaces(vec!["a".into(), "b".into()]));
    assert_eq!(source("--pcap=a"), Capture::Pcap(vec!["a".into()]));
    assert_eq!(source("--af-xdp"), Capture::AfXdp(vec![]));
    assert_eq!(source("-q 3 -q 5:7"), Capture::Nfqueue(vec![3, 5, 6, 7]));
    assert_eq!(source("--erf-in x"), Capture::Erf("x".into()));
    assert_eq!(source("--unix-socket"), Capture::UnixSocket(None));
    assert_eq!(source("--unix-socket=s"), Capture::UnixSocket(Some("s".into())));
    assert_eq!(source("--dpdk"), Capture::Foreign("dpdk", vec![]));
    assert_eq!(source("--netmap=a"), Capture::Foreign("netmap", vec!["a".into()]));
    assert_eq!(source("-d 80"), Capture::Foreign("d", vec!["80".into()]));
    assert_eq!(source("--capture-plugin x"), Capture::Foreign("capture-plugin", vec!["x".into()]));
    for two in ["-r a -r b", "-r a -i b", "--af-packet -q 0", "--unix-socket -r x", "--dpdk --netmap"] {
        assert!(error(two).starts_with("more than one run mode has been specified"), "{two}");
    }
}

#[test]
fn every_other_option() {
    let run = run("--include a --include b --data-dir d --dump-config --engine-analysis --pcap-file-continuous \
        --pcap-file-recursive --pcap-file-delete --pcap-file-buffer-size 8kb --pcap-buffer-size=1mb --pfring-cluster-id 1 \
        --pfring-cluster-type t --capture-plugin-args x -F f --firewall --firewall-rules-exclusive fw \
        --strict-rule-keywords=classtype,reference --disable-detection --disable-hashing --runmode=single --reject-dev e \
        --pidfile p --user u --group=g --no-random --no-cache -s add");
    let expected = RunOptions {
        includes: vec!["a".into(), "b".into()],
        data_dir: Some("d".into()),
        dump_config: true,
        engine_analysis: true,
        pcap_file_continuous: true,
        pcap_file_recursive: true,
        pcap_file_delete: true,
        pcap_file_buffer_size: Some(8192),
        pcap_buffer_size: Some(1 << 20),
        pfring_cluster_id: Some("1".into()),
        pfring_cluster_type: Some("t".into()),
        capture_plugin_args: Some("x".into()),
        filter_file: Some("f".into()),
        firewall: true,
        firewall_rules: Some("fw".into()),
        strict_rule_keywords: Some(Strict::Keywords(vec!["classtype".into(), "reference".into()])),
        disable_detection: true,
        disable_hashing: true,
        runmode: Some("single".into()),
        reject_dev: Some("e".into()),
        pidfile: Some("p".into()),
        user: Some("u".into()),
        group: Some("g".into()),
        no_random: true,
        no_cache: true,
        rules: RuleFiles::Added("add".into()),
        ..RunOptions::default()
    };
    assert_eq!(run, expected);
    assert_eq!(self::run("--strict-rule-keywords").strict_rule_keywords, Some(Strict::All));
}

#[test]
fn questions_are_no_runs() {
    for (line, command) in [
        ("-h --set a=b -c x", Command::Help),
        ("--help", Command::Help),
        ("-V", Command::Version),
        ("-c x --build-info", Command::BuildInfo),
        ("--dump-features", Command::DumpFeatures),
        ("--list-app-layer-protos", Command::ListAppLayerProtos),
        ("--list-app-layer-hooks", Command::ListAppLayerHooks),
        ("--list-rule-protos", Command::ListRuleProtos),
        ("--list-runmodes", Command::ListRunmodes),
        ("--list-keywords", Command::ListKeywords(Keywords::Names)),
        ("--list-keywords=all", Command::ListKeywords(Keywords::All)),
        ("--list-keywords=csv", Command::ListKeywords(Keywords::Csv)),
        ("--list-keywords=sid", Command::ListKeywords(Keywords::One("sid".into()))),
        ("lab measure -r x", Command::Own(Own::Lab, vec!["measure".into(), "-r".into(), "x".into()])),
        ("rules", Command::Own(Own::Rules, vec![])),
        ("ctl uptime", Command::Own(Own::Ctl, vec!["uptime".into()])),
    ] {
        assert_eq!(parse(line), Ok(command), "{line}");
    }
}

#[test]
fn mistakes_get_one_sentence() {
    for (line, says) in [
        ("--foo", "unrecognized option '--foo'"),
        ("--af-paket=eth0", "unrecognized option '--af-paket', did you mean '--af-packet'?"),
        ("--list-keyw", "unrecognized option '--list-keyw', did you mean '--list-keywords'?"),
        ("-Z", "invalid option '-Z'"),
        ("-vZ", "invalid option '-Z'"),
        ("-c", "option '-c' requires an argument: FILE"),
        ("--set", "option '--set' requires an argument: NAME=VALUE"),
        ("--set stream", "invalid argument 'stream' for --set, must be name=value"),
        ("--pidfile=", "option '--pidfile' has an empty argument"),
        ("--dump-config=1", "option '--dump-config' doesn't allow an argument"),
        ("-k foo", "option 'foo' invalid for -k, must be all or none"),
        ("-q x", "option '-q': 'x' is not a queue from 0 to 65535 or a range such as 0:3"),
        ("-q 2:1", "option '-q': '2:1' is not a queue from 0 to 65535 or a range such as 0:3"),
        ("-s a -S b", "can't have multiple -s options or mix -s and -S"),
        ("--pcap-file-buffer-size=1kb", "option '--pcap-file-buffer-size': 1kb is not between 4096 and 67108864 bytes"),
        ("-F x tcp", "a BPF filter after the options ('tcp') and -F cannot be combined"),
    ] {
        assert_eq!(error(line), says, "{line}");
    }
    assert_eq!(Cli::parse(["-Z"]).unwrap_err().to_string(), "margay: invalid option '-Z'\nTry 'margay --help'.");
}

#[cfg(unix)]
#[test]
fn arguments_must_be_text() {
    use std::os::unix::ffi::OsStringExt;
    let bad = std::ffi::OsString::from_vec(vec![b'-', b'r', 0xff]);
    assert!(Cli::parse([bad]).unwrap_err().0.starts_with("argument 1 (-r"));
}

#[test]
fn the_help_fits_and_names_every_group() {
    let text = help();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in ["-r PATH", "--af-packet[=IF]", "--set NAME=VALUE", "Rules:", "Examples:", "-V, --version"] {
        assert!(text.contains(part), "{part}");
    }
}
