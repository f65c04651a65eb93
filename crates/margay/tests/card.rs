//! `margay lab card` with work that the engine recorded: the simulated card finds what the engine finds.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod conversation;
mod process;

use std::path::Path;
use std::process::{Command, Output};

use conversation::{Capture, Client, Datagram, Say, Server, run_on};
use margay_card::cost::Costs;
use margay_card::design::Design;
use margay_card::model::{Load, simulate};
use margay_card::trace::{TCP, Trace, Work};
use process::{MARGAY, folder};

fn lab(words: &[&str]) -> Output {
    Command::new(MARGAY).args(["lab", "card"]).args(words).output().expect("the laboratory starts")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of letters")
}

const RULES: &str = "\
    alert http any any -> any any (msg:\"uri\"; flow:to_server; http.uri; content:\"/evil-attack\"; sid:1;)\n\
    alert tcp any any -> any 25 (msg:\"mail\"; flow:to_server; content:\"secret words\"; pcre:\"/secret words [0-9]+/\"; sid:2;)\n\
    alert tcp any any -> any 8080 (msg:\"other port\"; content:\"Host|3a| here\"; sid:3;)\n\
    alert udp any any -> any 53 (msg:\"datagram\"; content:\"needle\"; sid:4;)\n";

/// Records the capture's work under the rules.
fn record(name: &str, pcap: &Path, rules: &str) -> Trace {
    let dir = folder(name);
    let (file, out) = (dir.join("work.rules"), dir.join("work"));
    std::fs::write(&file, rules).expect("rules");
    let any = ["--set", "vars.address-groups.HOME_NET=any", "--set", "vars.address-groups.EXTERNAL_NET=any"];
    let mut words = vec!["record", text(pcap), "--rules", text(&file), "--out", text(&out)];
    words.extend(any);
    let ran = lab(&words);
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    let data = std::fs::read(&out).expect("a work trace");
    Trace::from_bytes(&data, name).expect("a work trace that can be read")
}

fn capture() -> Capture {
    let mut c = Capture::new();
    let request = b"GET /evil-attack?x=%41 HTTP/1.1\r\nHost: here\r\n\r\n";
    let harmless = b"GET /fine HTTP/1.1\r\nHost: here\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    c.connection(40_001, 80, &[Say(Client, request), Say(Server, answer), Say(Client, harmless), Say(Server, answer)]);
    c.connection(
        40_002,
        25,
        &[
            Say(Server, b"220 mail\r\n"),
            Say(Client, b"HELO secret words 17\r\n"),
            Say(Server, b"250 mail\r\n"),
            Say(Client, &[b"HELO secret words x\r\n".as_slice(), &[b'x'; 9000]].concat()),
        ],
    );
    let needle = Datagram {
        from: Client,
        client_port: 40_003,
        server_port: 53,
        data: b"a needle",
        wrong_by: None,
        length: None,
    };
    c.datagram(needle);
    c
}

#[test]
fn work_is_what_the_engine_did() {
    let pcap = folder("card-work-capture").join("in.pcap");
    capture().write(&pcap);
    let trace = record("card-work", &pcap, RULES);
    let sum = |of: &dyn Fn(&Work) -> u64| trace.packets.iter().map(of).sum::<u64>();
    assert_eq!(trace.flows.len(), 3);
    // Two URIs: the normalised `/evil-attack?x=A`, and `/fine`.
    assert_eq!((sum(&|p| u64::from(p.uris)), sum(&|p| u64::from(p.uri_bytes))), (2, 16 + 5));
    // Every byte of the streams and the datagram was inspected once, and no other byte.
    assert_eq!(sum(&|p| u64::from(p.payload)), sum(&|p| u64::from(p.flush)));
    let udp: Vec<&Work> = trace.packets.iter().filter(|p| p.flags & TCP == 0).collect();
    assert_eq!(udp.len(), 1);
    assert_eq!((udp[0].flush, udp[0].payload, udp[0].group, udp[0].alerts), (8, 8, 1, 1));
    // The single table finds the rule for port 8080 in both requests. The tables for their ports do not contain it.
    let number = |p: &Work, n: u16| trace.reports[p.first as usize + usize::from(n)] >> 16;
    let only_in_all = |p: &Work| (p.group..p.all).map(|n| number(p, n)).collect::<Vec<_>>();
    let others: Vec<u32> = trace.packets.iter().flat_map(only_in_all).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    assert_eq!(others[0], others[1]);
    // The mail rule was verified in both commands, and inspected the bytes after its literal.
    let looked: Vec<u32> = trace
        .packets
        .iter()
        .flat_map(|p| (0..p.group).map(|n| trace.reports[p.first as usize + usize::from(n)] & 0xffff))
        .collect();
    assert!(looked.iter().any(|l| *l >= 2000), "{looked:?}");
}

/// Alerts of the engine's own run, and those of a simulated card.
fn alerts(name: &str, pcap: &Path, rules: &str) -> (usize, u64) {
    let own = run_on(&format!("{name}-engine"), pcap, rules, &["-k", "none"]).sids().len();
    let trace = record(name, pcap, rules);
    let costs = Costs::default();
    let of = |design: &Design| simulate(design, &costs, &trace, Load::Saturated).alerts;
    let card = of(&Design::default());
    assert_eq!(of(&Design { cores: 1, matcher: 0.0, ..Design::default() }), card);
    (own, card)
}

#[test]
fn the_cards_alerts_are_the_engines() {
    let pcap = folder("card-alerts-capture").join("in.pcap");
    capture().write(&pcap);
    assert_eq!(alerts("card-alerts", &pcap, RULES), (3, 3));
}

#[test]
fn the_cards_alerts_are_the_engines_for_the_mix_of_the_studies() {
    let Some(mix) = margay_testing::shared("captures/sfr/avl") else { return };
    let mut files: Vec<_> = std::fs::read_dir(&mix).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    let rules = "\
        alert tcp any any -> any any (msg:\"a\"; content:\"HTTP/1.1\"; sid:1;)\n\
        alert http any any -> any any (msg:\"b\"; http.uri; content:\"/\"; sid:2;)\n\
        alert udp any any -> any 53 (msg:\"c\"; content:\"|01 00 00 01|\"; sid:3;)\n\
        alert smtp any any -> any any (msg:\"d\"; content:\"MAIL FROM\"; nocase; sid:4;)\n";
    let mut all = 0;
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "pcap")) {
        if std::fs::metadata(file).expect("a file").len() > 200_000 {
            continue;
        }
        let name = format!("card-{}", file.file_stem().expect("a name").to_string_lossy());
        let (own, card) = alerts(&name, file, rules);
        assert_eq!(own as u64, card, "{}", file.display());
        all += own;
    }
    assert!(all >= 10, "{all} alerts");
}

#[test]
fn work_can_be_mixed_anew_and_replayed() {
    let dir = folder("card-mix");
    let pcap = dir.join("in.pcap");
    capture().write(&pcap);
    record("card-mix-base", &pcap, RULES);
    let base = dir.join("../card-mix-base/work");
    let out = dir.join("mixed");
    let words = ["mix", text(&base), "--packets", "5000", "--mean", "300", "--bursts", "4", "--out", text(&out)];
    let ran = lab(&words);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let trace = Trace::from_bytes(&std::fs::read(&out).expect("a trace"), "mixed").expect("a trace");
    assert_eq!(trace.packets.len(), 5000);
    let ran = lab(&["simulate", "--trace", text(&out)]);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let expected: u64 = trace.packets.iter().map(|p| u64::from(p.alerts)).sum();
    assert!(expected > 0 && said.contains(&format!("{expected} alerts")), "{said}");
}

#[test]
fn what_cannot_be_recorded_is_told_in_one_sentence() {
    let dir = folder("card-bad");
    let out = dir.join("work");
    let pcap = dir.join("in.pcap");
    capture().write(&pcap);
    let (bad, good, text_file) = (dir.join("bad.rules"), dir.join("good.rules"), dir.join("text.pcap"));
    std::fs::write(&bad, "alert tcp any any -> any any (content:; sid:1;)\n").expect("rules");
    std::fs::write(&good, RULES).expect("rules");
    std::fs::write(&text_file, "no capture").expect("a file");
    let empty = folder("card-bad-empty");
    let mut silent = Capture::new();
    silent.connection(40_001, 80, &[]);
    let silent_file = dir.join("silent.pcap");
    silent.write(&silent_file);
    for (pcap, rules, expected) in [
        (&pcap, &bad, "bad.rules"),
        (&text_file, &good, "text.pcap"),
        (&dir.join("none.pcap"), &good, "none.pcap"),
        (&pcap, &dir.join("none.rules"), "none.rules"),
        (&empty, &good, "there is no .pcap, .pcapng or .cap file in it"),
        (&silent_file, &good, "no packet of the trace has payload"),
    ] {
        let ran = lab(&["record", text(pcap), "--rules", text(rules), "--out", text(&out)]);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!out.exists());
    }
}

const EXPERIMENT: &str = "%YAML 1.1\n---\n\
title: A small experiment\n\
work:\n\
  \x20 recorded:\n\
  \x20   captures: [in.pcap x 3]\n\
  \x20   rules: {from: work.rules, protocols: [all]}\n\
  \x20 between: {like: base.yaml recorded, inline: yes}\n\
  \x20 made: {made-up: {packets: 4000, flows: 100, seed: 4}}\n\
traces:\n\
  \x20 recorded: {work: recorded}\n\
  \x20 between: {work: between}\n\
  \x20 made: {work: made}\n\
rows:\n\
  \x20 - title: Cores\n\
  \x20   traces: [made]\n\
  \x20   vary: {cores: [1, 4]}\n\
  \x20   claims:\n\
  \x20     - {say: four are faster, study: '> 1', of: {cores: 4}, to: {cores: 1}, least: 1.2}\n\
  \x20     - {say: one is faster, study: '> 1', of: {cores: 1}, to: {cores: 4}, least: 1.2}\n\
  \x20     - {say: nobody knows, of: {cores: 2}, to: {cores: 1}}\n\
  \x20 - title: Latency\n\
  \x20   traces: [made]\n\
  \x20   measure: mean-latency\n\
  \x20   offered: 50 %\n\
  \x20   vary: {cores: [1, 4]}\n\
  \x20   claims:\n\
  \x20     - {say: waiting at 90 %, of: {offered: 90 %}, to: {}}\n\
  \x20 - title: Recorded\n\
  \x20   traces: [recorded, between]\n\
  \x20   measure: reports\n\
  \x20   vary: {cores: [4]}\n\
  \x20   claims:\n\
  \x20     - {say: the host alone, measure: host-bytes, of: {trace: recorded, part: steer}}\n";

#[test]
fn an_experiment_has_a_report() {
    let dir = folder("card-experiment");
    capture().write(&dir.join("in.pcap"));
    std::fs::write(dir.join("work.rules"), RULES).expect("rules");
    // The experiment that another one refers to has no rows, and no reference of its own.
    let lines: Vec<&str> =
        EXPERIMENT.lines().take_while(|l| *l != "rows:").filter(|l| !l.contains("between")).collect();
    let base = lines.join("\n") + "\nrows:\n  - {title: none, vary: {cores: [1]}}\n";
    std::fs::write(dir.join("base.yaml"), base).expect("an experiment");
    let file = dir.join("experiment.yaml");
    std::fs::write(&file, EXPERIMENT).expect("an experiment");
    let out = dir.join("out");
    let ran = lab(&["run", text(&file), "--out", text(&out), "--work", text(&dir), "--sensitivity"]);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    for (word, say) in [
        ("repeated", "four are faster"),
        ("refuted", "one is faster"),
        ("found", "nobody knows"),
        ("found", "waiting at 90 %"),
        ("found", "the host alone: 100"),
    ] {
        assert!(said.lines().any(|l| l.starts_with(word) && l.contains(say)), "{word} {say}: {said}");
    }
    let line = |say: &str| said.lines().skip_while(|l| !l.contains(say)).nth(1).unwrap_or_default().to_owned();
    // Packets wait longer at 90 % load than at 50 %, whatever the costs. How much longer depends on the costs.
    assert!(line("waiting").contains("With each estimated cost at half and twice it is"), "{said}");
    let report = std::fs::read_to_string(out.join("report.html")).expect("a report");
    assert!(report.contains("1 claims of the study are") && report.contains("3 questions that no study"), "{report}");
    // Three copies of the capture's three flows. The recorded work is kept.
    assert!(report.contains("9 flows"), "{report}");
    let kept = std::fs::read_dir(&dir).expect("a folder").filter_map(Result::ok);
    assert_eq!(kept.filter(|e| e.path().extension().is_some_and(|x| x == "work")).count(), 2);
    let told = |text: &str, expected: &str| {
        std::fs::write(&file, text).expect("an experiment");
        let ran = lab(&["run", self::text(&file), "--out", self::text(&out)]);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.code() == Some(2) && said.contains(expected), "{expected}: {said}");
    };
    told(&EXPERIMENT.replace("base.yaml", "experiment.yaml"), "experiments refer to each other");
    told(&EXPERIMENT.replace("offered: 50 %", "offered: much"), "experiment.yaml:25");
    told(&EXPERIMENT.replace("study: '> 1', ", ""), "a question has `of` and no bounds");
    told(&EXPERIMENT.replace("in.pcap x 3", "in.pcap x many"), "how often is not 1 to 1000");
}
