//! `margay lab attacks` with this engine: a small set of attacks in other traffic, read from a capture and sent inline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use process::{MARGAY, folder};
use serde_json::Value;

const DECLARED: &str = r"
[[defence]]
sid = 7001
name = 'words of a tool'
technique = 'T1071, CWE-1'
class = 'trojan-activity'
header = 'tcp any any -> any 4444'
stops = [{ over = 'tcp', port = 4444, say = ['>evil words\x00', '<answer'] }]
passes = [{ over = 'tcp', port = 4444, say = ['>good words\x00', '<answer'] }]

[[defence]]
sid = 7002
name = 'a datagram that is only noticed'
technique = 'T1048'
confidence = 'low'
class = 'trojan-activity'
header = 'udp any any -> any 5555'
stops = [{ over = 'udp', port = 5555, say = ['>strange'], times = 3 }]
passes = [{ over = 'udp', port = 5555, say = ['>usual'] }]

[[defence]]
sid = 7003
name = 'what no rule finds'
technique = 'T1071.001'
class = 'attempted-admin'
header = 'tcp any any -> any 6666'
stops = [{ over = 'tcp', port = 6666, say = ['>unknown'] }]
passes = [{ over = 'tcp', port = 6666, say = ['>also evil words'] }]
";

/// The last rule stops a conversation that must pass.
const RULES: &str = "\
    drop tcp any any -> any 4444 (msg:\"words\"; flow:established,to_server; content:\"evil words\"; sid:7001;)\n\
    alert udp any any -> any 5555 (msg:\"datagram\"; content:\"strange\"; sid:7002;)\n\
    drop tcp any any -> any 6666 (msg:\"mistake\"; flow:established,to_server; content:\"also evil\"; sid:7009;)\n";

fn lab(words: &[&str]) -> Output {
    Command::new(MARGAY).args(["lab", "attacks"]).args(words).output().expect("the laboratory starts")
}

fn ok(words: &[&str]) -> String {
    let output = lab(words);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {text}");
    text
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

/// Writes declarations and rules, and makes a capture with these further options. Returns the capture and the rules.
fn made(name: &str, more: &[&str]) -> (PathBuf, PathBuf) {
    let dir = folder(name);
    let (declared, rules, capture) = (dir.join("d.toml"), dir.join("x.rules"), dir.join("a.pcap"));
    std::fs::write(&declared, DECLARED).expect("declarations");
    std::fs::write(&rules, RULES).expect("rules");
    let words = ["make", "--defences", text(&declared), "-o", text(&capture)];
    ok(&[&words[..], more].concat());
    (capture, rules)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file of lines");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The name, the wanted result and the verdict of each conversation, sorted.
fn verdicts(results: &[Value]) -> Vec<(String, String, String)> {
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> =
        results.iter().skip(1).map(|l| (word(l, "attack"), word(l, "must"), word(l, "verdict"))).collect();
    all.sort();
    all
}

fn expected() -> Vec<(String, String, String)> {
    [
        ("a datagram that is only noticed", "notice", "noticed"),
        ("a datagram that is only noticed", "pass", "passed"),
        ("what no rule finds", "pass", "stopped"),
        ("what no rule finds", "stop", "passed"),
        ("words of a tool", "pass", "passed"),
        ("words of a tool", "stop", "stopped"),
    ]
    .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()))
    .to_vec()
}

/// Runs this engine on the capture; returns the output folder and the results.
fn run(capture: &Path, rules: &Path, more: &[&str]) -> (PathBuf, Vec<Value>) {
    let out = capture.with_file_name("out");
    let config = margay_testing::checkout().join("etc/margay.yaml");
    let words = ["run", text(capture), "-c", text(&config), "-S", text(rules), "-o", text(&out)];
    ok(&[&words[..], more].concat());
    let results = lines(&out.join("results.jsonl"));
    (out, results)
}

#[test]
fn the_same_seed_gives_the_same_capture_and_truth() {
    let share = ["--preset", "office", "--share", "5%", "--duration", "300ms"];
    let (one, _) = made("attacks-seed-1", &share);
    let (two, _) = made("attacks-seed-2", &share);
    let (three, _) = made("attacks-seed-3", &[&share[..], &["--seed", "2"]].concat());
    let read = |path: &Path| std::fs::read(path).expect("a file");
    assert!(read(&one) == read(&two) && read(&one) != read(&three));
    let truth = |path: &Path| path.with_extension("truth.jsonl");
    assert!(read(&truth(&one)) == read(&truth(&two)));
    let truths = lines(&truth(&one));
    // Every conversation occurs at least once, and the lines are numbered in order.
    assert!(truths.len() >= 6, "{}", truths.len());
    for (n, t) in truths.iter().enumerate() {
        assert_eq!(t["n"], n);
        assert_eq!(t["match"], "addresses");
    }
    let packets: u64 = truths.iter().filter_map(|t| t["packets"].as_u64()).sum();
    assert!(packets > 30, "{packets}");
}

#[test]
fn a_capture_read_by_the_engine_has_the_verdicts_that_its_rules_make() {
    let (capture, rules) = made("attacks-offline", &[]);
    let (out, results) = run(&capture, &rules, &["--offline"]);
    assert_eq!(verdicts(&results), expected());
    let page = out.join("page.html");
    let said = ok(&["report", text(&out), "-o", text(&page)]);
    assert!(said.contains("1 of 2 attacks that are to be stopped"), "{said}");
    assert!(said.contains("1 of 3 conversations that must pass were stopped by mistake"), "{said}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("what no rule finds (attempted-admin; T1071.001): 2 conversations, 2 not as they must be"));
    assert!(page.contains("msg:&quot;mistake&quot;"));
    let listed = ok(&["list", "--defences", text(&capture.with_file_name("d.toml")), "--technique", "T1071"]);
    assert!(
        listed.contains("T1071.001") && listed.contains("2 defences; 2 samples of attacks, 2 that must pass"),
        "{listed}"
    );
}

#[test]
fn inline_what_the_rules_stop_never_arrives_and_all_else_does() {
    // Without root, `is_root` records that the test did not run.
    if !margay_testing::is_root() {
        return;
    }
    // The other traffic is datagrams and the round trip is long, so that an engine on a busy machine does not read an answer
    // before its question.
    let more = ["--preset", "udp64", "--share", "1%", "--rate", "2000pps", "--rtt", "100ms"];
    let (capture, rules) = made("attacks-inline", &more);
    let (_, results) = run(&capture, &rules, &[]);
    assert_eq!(verdicts(&results), expected());
    let head = &results[0];
    for which in ["with", "without"] {
        let others = &head[which];
        assert!(others["packets"].as_u64() > Some(1000), "{head}");
        assert_eq!((&others["blocked"], &others["arrived"]), (&Value::from(0), &others["packets"]), "{which}: {head}");
    }
    let stopped = results.iter().find(|line| line["blocked_by"] == serde_json::json!([7001])).expect("a line");
    // The request and its answer, the two packets with data, were sent; neither arrived.
    assert_eq!(stopped["arrived"], serde_json::json!([2, 0]));
}
