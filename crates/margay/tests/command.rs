//! The command as a user sees it: its events for the demo capture, and its messages when something is wrong.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::path::Path;
use std::process::{Command, Output};

use process::{folder, root};

fn margay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_margay")).args(args).output().expect("the engine starts")
}

/// Runs on a capture with the demo's rules. `more` follows the usual arguments.
fn run(dir: &Path, capture: &Path, more: &[&str]) -> Output {
    let root = root();
    let path = |p: &str| root.join(p).display().to_string();
    let (config, rules) = (path("etc/margay.yaml"), path("demo/demo.rules"));
    let classes = format!("classification-file={}", path("etc/classification.config"));
    let references = format!("reference-config-file={}", path("etc/reference.config"));
    let (dir, capture) = (dir.display().to_string(), capture.display().to_string());
    let mut args =
        vec!["-c", &config, "-l", &dir, "-r", &capture, "--set", &classes, "--set", &references, "-k", "none"];
    if !more.contains(&"-S") {
        args.extend(["-S", &rules]);
    }
    args.extend(more);
    margay(&args)
}

fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// The lines of one type in eve.json, in order.
fn events(dir: &Path, kind: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default();
    text.lines().filter(|l| l.contains(&format!("\"event_type\":\"{kind}\""))).map(str::to_owned).collect()
}

fn sids(lines: &[String]) -> Vec<u32> {
    lines
        .iter()
        .filter_map(|l| l.split("\"signature_id\":").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

#[test]
fn finds_what_is_in_the_demo() {
    let dir = folder("demo");
    let o = run(&dir, &root().join("demo/demo.pcap"), &[]);
    assert!(o.status.success(), "{}", stderr(&o));
    let mut found = sids(&events(&dir, "alert"));
    found.sort_unstable();
    assert_eq!(found, [1_000_001, 1_000_002, 1_000_003, 1_000_004]);
    assert_eq!(events(&dir, "stats").len(), 1);
    assert!(std::fs::read_to_string(dir.join("fast.log")).expect("fast.log").contains("[1:1000001:1]"));
}

#[test]
fn same_alerts_each_time_and_with_any_batch() {
    let capture = root().join("demo/demo.pcap");
    let mut first: Option<(Vec<String>, Vec<String>)> = None;
    for (i, batch) in [256, 1, 2, 7, 64, 256, 256, 1000, 3, 256].iter().enumerate() {
        let dir = folder(&format!("batch{i}"));
        let o = run(&dir, &capture, &["--set", &format!("margay.batch-size={batch}")]);
        assert!(o.status.success(), "{}", stderr(&o));
        let got = (events(&dir, "alert"), events(&dir, "anomaly"));
        assert!(!got.0.is_empty());
        match &first {
            None => first = Some(got),
            Some(f) => assert_eq!(*f, got, "batches of {batch}"),
        }
    }
}

#[test]
fn a_cut_capture_is_read_to_its_last_whole_packet() {
    let dir = folder("cut");
    let bytes = std::fs::read(root().join("demo/demo.pcap")).expect("the demo capture");
    let file = dir.join("cut.pcap");
    std::fs::write(&file, &bytes[..bytes.len() - 5]).expect("a file");
    let o = run(&dir, &file, &[]);
    assert!(o.status.success());
    let said = stderr(&o);
    assert!(said.contains("cut.pcap") && said.contains("byte"), "{said}");
    let stats = events(&dir, "stats");
    assert!(stats[0].contains("\"decoder\":{\"pkts\":52,"), "{}", stats[0]);
}

#[test]
fn what_is_missing_is_said_in_one_sentence() {
    let dir = folder("missing");
    let o = run(&dir, &dir.join("none.pcap"), &[]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("none.pcap"), "{}", stderr(&o));
    assert!(!dir.join("eve.json").exists(), "nothing is written before all is found");

    let o = margay(&["-c", "no-such.yaml", "-r", "x"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("no-such.yaml"), "{}", stderr(&o));

    let bad = dir.join("bad.yaml");
    std::fs::write(&bad, "%YAML 1.1\n---\na: [1, 2\nb: }\n").expect("a file");
    let o = margay(&["-c", &bad.display().to_string(), "-r", "x"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("bad.yaml:"), "{}", stderr(&o));

    let o = run(&dir, &root().join("demo/demo.pcap"), &["-l", "/dev/null/folder"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("/dev/null/folder"), "{}", stderr(&o));

    let o = margay(&["--no-such-option"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("--no-such-option"), "{}", stderr(&o));
}

#[test]
fn rules_that_cannot_load_say_where_and_why() {
    let dir = folder("rules");
    let rules = dir.join("some.rules");
    std::fs::write(
        &rules,
        "alert tcp any any -> any any (msg:\"good\"; flags:S; sid:1;)\nalert tcp any any -> any any (content:\"a; sid:2;)\n\
         alert http any any -> any any (frame:http1.odd; content:\"a\"; sid:3;)\n",
    )
    .expect("a file");
    let capture = root().join("demo/demo.pcap");
    let rules = rules.display().to_string();
    let o = run(&dir, &capture, &["-S", &rules]);
    assert!(o.status.success(), "{}", stderr(&o));
    // The second fails when it is parsed, the third when it is compiled.
    for line in [2, 3] {
        let end = format!("some.rules at line {line}");
        assert!(
            stderr(&o).lines().any(|l| l.contains("error parsing signature") && l.ends_with(&end)),
            "{}",
            stderr(&o)
        );
    }
    assert!(sids(&events(&dir, "alert")).contains(&1), "the rest of the file loads");

    let o = run(&dir, &capture, &["-S", &rules, "--init-errors-fatal"]);
    assert_eq!(o.status.code(), Some(1));
    let o = run(&dir, &capture, &["-S", &rules, "-T"]);
    assert_eq!(o.status.code(), Some(1));
    let o = run(&dir, &capture, &["-S", "none.rules", "--init-errors-fatal"]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("none.rules"), "{}", stderr(&o));
}

#[test]
fn a_full_disk_is_said_and_survived() {
    if !Path::new("/dev/full").exists() {
        margay_testing::not_run("/dev/full is not here");
        return;
    }
    let dir = folder("full");
    let o = run(&dir, &root().join("demo/demo.pcap"), &["--set", "outputs.1.eve-log.filename=/dev/full"]);
    let said = stderr(&o);
    assert_eq!(said.matches("/dev/full").count(), 1, "{said}");
    // The run completes, and reports that events are missing.
    assert!(dir.join("fast.log").exists() && said.contains("events could not be written and are lost"), "{said}");
    assert_eq!(o.status.code(), Some(1), "{said}");
    // Commands that print and end fail as well.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full opens");
    let mut list = Command::new(env!("CARGO_BIN_EXE_margay"));
    let o = list.arg("--list-keywords=all").stdout(full).output().expect("it starts");
    assert!(o.status.code() == Some(1) && stderr(&o).contains("standard output"), "{}", stderr(&o));
}

#[test]
fn help_and_version_are_there() {
    for arg in ["-h", "--help", "-V", "--build-info", "--list-keywords", "--list-runmodes", "--dump-features"] {
        let o = margay(&[arg]);
        assert!(o.status.success() && !o.stdout.is_empty(), "{arg}");
    }
    let config = root().join("etc/margay.yaml").display().to_string();
    let logs = folder("help").display().to_string();
    // An unsupported option is rejected by name.
    let o = margay(&["--erf-in", "x.erf", "-c", &config, "-l", &logs]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("--erf-in"), "{}", stderr(&o));
    let o = margay(&["-i", "no-such-card", "-c", &config, "-l", &logs]);
    assert_eq!(o.status.code(), Some(1));
    assert!(stderr(&o).contains("no-such-card"), "{}", stderr(&o));
}

#[test]
fn the_logging_folder_is_made() {
    let (dir, demo) = (folder("logs"), root().join("demo/demo.pcap").display().to_string());
    std::fs::write(dir.join("a.yaml"), "%YAML 1.1\n---\noutputs:\n- eve-log: {enabled: yes, types: [flow]}\n")
        .expect("a file");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
        command.args(["-c", "a.yaml", "--disable-detection"]).args(more).current_dir(&dir).output().expect("it starts")
    };
    // A test of the configuration writes nothing.
    let o = run(&["-T", "-l", "never"]);
    assert!(o.status.success() && !dir.join("never").exists(), "{}", stderr(&o));
    let o = run(&["-T", "-S", "a.rules"]);
    assert!(!o.status.success() && stderr(&o).contains("--disable-detection"), "{}", stderr(&o));
    let o = run(&["-T", "--data-dir", "nowhere"]);
    assert!(!o.status.success() && stderr(&o).contains("nowhere"), "{}", stderr(&o));
    let o = run(&["-r", &demo, "-l", "new/logs"]);
    assert!(o.status.success() && dir.join("new/logs/eve.json").exists(), "{}", stderr(&o));
    // Without a folder in options or configuration, logs go to the current one.
    let o = run(&["-r", &demo]);
    assert!(o.status.success() && dir.join("eve.json").exists(), "{}", stderr(&o));
    // A file that has the folder's name is an error that names it.
    let o = run(&["-r", &demo, "-l", "a.yaml"]);
    assert!(o.status.code() == Some(1) && stderr(&o).contains("a.yaml"), "{}", stderr(&o));
}

/// Writes rules to a file, and returns its path.
fn rules(dir: &Path, text: &str) -> String {
    let path = dir.join("own.rules");
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

#[test]
fn rules_are_explained() {
    let dir = folder("explain");
    let text = "alert tcp any any -> any any (msg:\"split\"; flow:established; content:\"uid=0|28|root|29|\"; sid:1;)\n\
                alert tcp any any -> any any (flow:established; content:\"uid=0\"; content:\"wheel\"; distance:0; sid:2;)\n\
                alert tcp any any -> any any (content:\"a\"; depth:x; sid:3;)\n\
                alert udp any any -> any 54 (content:\"example\"; sid:4;)\n";
    let (rules, root) = (rules(&dir, text), root());
    let (config, pcap) = (root.join("etc/margay.yaml"), root.join("demo/demo.pcap"));
    let (config, pcap) = (config.display().to_string(), pcap.display().to_string());
    let explain = |sid: &str, more: &[&str]| {
        let args = ["rules", "explain", sid, "--pcap", &pcap, "-c", &config, "-S", &rules, "-k", "none"];
        let o = margay(&[&args[..], more].concat());
        (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned(), stderr(&o))
    };
    let (code, out, err) = explain("1", &[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("MATCHED once") && out.contains("an alert was written") && out.contains("75 69 64 3d"),
        "{out}"
    );
    let (code, out, _) = explain("2", &[]);
    assert_eq!(code, Some(1));
    assert!(out.contains("NO MATCH") && out.contains("content:\"wheel\"; distance:0"), "{out}");
    let (code, _, err) = explain("3", &[]);
    assert_eq!(code, Some(2));
    assert!(err.contains("own.rules:3") && err.contains("depth"), "{err}");
    assert_eq!(explain("5", &[]).0, Some(2));
    let (code, out, _) = explain("4", &["--json"]);
    assert_eq!(code, Some(1));
    assert!(out.starts_with("{\"rules\":[{\"signature_id\":4,"), "{out}");
    assert!(out.contains("\"kind\":\"header\"") && out.contains("the destination port is not 54"), "{out}");
}

/// The report names the address or port of an application rule that does not fit, and counts each packet once.
#[test]
fn addresses_of_application_rules_are_explained() {
    let dir = folder("explain-app");
    let text = "alert http any any -> any 8081 (http.uri; content:\"/\"; sid:1;)\n\
                alert http 10.9.9.9 any -> any any (http.uri; content:\"/\"; sid:2;)\n\
                alert http any any -> any any (http.method; content:\"PUT\"; sid:3;)\n\
                alert dns any any -> any 5353 (dns.query; content:\"example\"; sid:4;)\n";
    let (rules, root) = (rules(&dir, text), root());
    let (config, pcap) = (root.join("etc/margay.yaml"), root.join("demo/demo.pcap"));
    let (config, pcap) = (config.display().to_string(), pcap.display().to_string());
    let o = run(&dir, Path::new(&pcap), &["-S", &rules]);
    let read = String::from_utf8_lossy(&o.stdout).into_owned();
    let packets: u64 = read
        .split("read 1 file, ")
        .nth(1)
        .and_then(|r| r.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{read}"));
    for (sid, says) in [
        ("1", "mostly: the destination port is not 8081"),
        ("2", "mostly: the source address is not one of the rule's"),
        ("3", "it got furthest with packet"),
        ("4", "mostly: the destination port is not 5353"),
    ] {
        let o = margay(&["rules", "explain", sid, "--pcap", &pcap, "-c", &config, "-S", &rules, "-k", "none"]);
        let out = String::from_utf8_lossy(&o.stdout).into_owned();
        assert!(out.contains(says) && !out.contains("it does not match"), "{out}");
        // Flows that are open at the end of the capture have made-up packets as well.
        assert!(out.contains(&format!("NO MATCH in {packets} packets")), "{out}");
    }
}

#[test]
fn a_test_refuses_outputs_that_do_not_open() {
    let dir = folder("test-outputs");
    let head = "%YAML 1.1\n---\noutputs:\n- eve-log:\n    enabled: yes\n    types: [alert]\n    filetype: ";
    let tcp = "tcp\n    tcp: {server: \"127.0.0.1:9\", tls: {enabled: yes, ca: no-such.pem}}\n";
    let mut cases = vec![(tcp, "no-such.pem")];
    if cfg!(not(feature = "kafka")) {
        cases.push(("kafka\n    kafka: {brokers: \"127.0.0.1:9\", topic: t}\n", "this build has no Kafka"));
    }
    for (text, says) in cases {
        let config = dir.join("c.yaml");
        std::fs::write(&config, format!("{head}{text}")).expect("a configuration");
        let o =
            margay(&["-T", "-c", &config.display().to_string(), "-S", "/dev/null", "-l", &dir.display().to_string()]);
        assert!(o.status.code() == Some(1) && stderr(&o).contains(says), "{says}: {}", stderr(&o));
    }
}

/// A test gives the warnings of a run.
#[test]
fn a_test_warns_of_values_of_outputs() {
    let dir = folder("test-warnings");
    let config = dir.join("c.yaml");
    let text = "%YAML 1.1\n---\noutputs:\n- eve-log:\n    enabled: yes\n    xff: {enabled: yes, mode: foo}\n    types: [{http: {dump-all-headers: x}}]\n- fast: {enabled: no, append: maybe}\n";
    std::fs::write(&config, text).expect("a configuration");
    let o = margay(&["-T", "-c", &config.display().to_string(), "-S", "/dev/null", "-l", &dir.display().to_string()]);
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(o.status.success(), "{}", stderr(&o));
    for warning in
        ["the XFF mode foo is invalid", "dump-all-headers: \"x\" is none of", "fast.append' cannot be 'maybe'"]
    {
        assert!(said.contains(warning), "{warning}: {said}");
    }
}

#[test]
fn bits_that_nothing_sets_are_warned_of() {
    let dir = folder("flowbits");
    let rules = rules(&dir, "alert tcp any any -> any any (flowbits:isset,ghost; sid:1;)\n");
    let o = run(&dir, &root().join("demo/demo.pcap"), &["-S", &rules]);
    assert!(o.status.success(), "{}", stderr(&o));
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(said.contains("flowbit 'ghost' is checked but not set. Checked in 1 and 0 other sigs"), "{said}");
    let o = margay(&["rules", "check", &rules]);
    let out = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(out.contains("own.rules:1:") && out.contains("'ghost' is checked but not set"), "{out}");
}

/// The shipped configuration shows what an inline engine drops.
#[test]
fn drops_are_logged_inline() {
    let dir = folder("drops");
    let rules = rules(&dir, "drop udp any any -> any 53 (content:\"example\"; sid:1;)\n");
    let o = run(&dir, &root().join("demo/demo.pcap"), &["-S", &rules, "--simulate-ips"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let drops = events(&dir, "drop");
    assert!(drops.first().is_some_and(|d| d.contains("\"signature_id\":1")), "{drops:?}");
}

#[test]
fn rules_are_profiled() {
    let dir = folder("profile");
    let active = ["--set", "profiling.rules.enabled=yes", "--set", "profiling.rules.active=yes"];
    let table = ["--set", "profiling.rules.sort=checks", "--set", "profiling.rules.json=no"];
    let more = [&active[..], &table].concat();
    let o = run(&dir, &root().join("demo/demo.pcap"), &more);
    assert!(o.status.success(), "{}", stderr(&o));
    let table = std::fs::read_to_string(dir.join("rule_perf.log")).expect("a report");
    assert!(table.contains("Sorted by: number of checks."), "{table}");
    for sid in ["1000001", "1000002", "1000003", "1000004"] {
        let row = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>()).find(|r| r.get(1) == Some(&sid));
        let row = row.unwrap_or_else(|| panic!("{table}"));
        assert_ne!((row[6], row[7]), ("0", "0"), "{table}");
    }
    assert_eq!(sids(&events(&dir, "alert")).len(), 4, "what is found stays the same");
}
