//! Verdicts and alerts of made captures. Most tests are about a flow's end: its verdict stays with that flow. The packet that
//! detects the end belongs to another flow and gets its own verdict. There, rules see a flow's last data only at its end, which
//! a packet of the next flow triggers.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod made;
mod process;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use made::Side::{Client, Server};
use made::{ACK, Capture, PUSH, SYN};
use process::{folder, of_type};

/// A connection whose last data is never acknowledged. After its timeout, another one with the same ports carries an
/// attack. Its first packet detects that the first connection is over.
fn two_connections() -> Capture {
    const PORTS: (u16, u16) = (40_000, 7777);
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, b"the unseen end");
    let later = 4_000_000;
    c.open(later, PORTS, (700_000, 900_000));
    c.tcp(later + 10, Client, PORTS, (700_001, 900_001), ACK | PUSH, b"an attack");
    c.tcp(later + 11, Server, PORTS, (900_001, 700_010), ACK, b"");
    c
}

/// Runs the engine on a capture. Returns its output folder.
fn run(name: &str, capture: Capture, rules: &str, outputs: &str) -> PathBuf {
    run_with(&[], name, capture, rules, outputs)
}

fn run_with(options: &[&str], name: &str, capture: Capture, rules: &str, outputs: &str) -> PathBuf {
    let dir = folder(&format!("verdict-{name}"));
    capture.write(&dir.join("a.pcap"));
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let yaml = format!(
        "%YAML 1.1\n---\nstats:\n  enabled: no\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types: \
         [alert: {{verdict: yes}}, flow, drop: {{alerts: yes, verdict: yes}}, dns: {{version: 3}}]\n{outputs}\napp-layer:\n  protocols:\n    http:\n      enabled: yes\n    dns:\n      udp:\n        enabled: yes\n        \
         detection-ports:\n          dp: 53\n"
    );
    std::fs::write(dir.join("margay.yaml"), yaml).expect("a configuration");
    let mut c = process::engine(process::MARGAY, &dir.join("margay.yaml"), &dir);
    c.args(["--set", "unix-command.enabled=no", "-k", "none", "--runmode", "single", "-r"]).arg(dir.join("a.pcap"));
    let out = c.args(options).stdin(Stdio::null()).output().expect("the engine runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    dir
}

fn sids(dir: &Path) -> Vec<u64> {
    of_type(dir, "alert").iter().filter_map(|e| e["alert"]["signature_id"].as_u64()).collect()
}

/// Matches the remaining stream data, but no packet.
const AT_THE_END: &str = "flow:established,to_server,only_stream; content:\"the unseen end\";";

#[test]
fn bypass_is_not_inherited() {
    let rules = format!(
        "alert tcp any any -> any any (msg:\"end\"; {AT_THE_END} bypass; sid:1;)\n\
         alert tcp any any -> any any (msg:\"attack\"; content:\"an attack\"; sid:2;)\n"
    );
    let dir = run("bypass", two_connections(), &rules, "");
    assert_eq!(sids(&dir), [1, 2], "the second connection is inspected");
    let states: Vec<_> = of_type(&dir, "flow").iter().map(|e| e["flow"]["state"].clone()).collect();
    assert!(states.iter().all(|s| s != "bypassed"), "{states:?}");
}

/// The payloads of a capture file's packets.
fn payloads(dir: &Path) -> Vec<String> {
    let logged = std::fs::read_dir(dir).expect("a folder").flatten().map(|e| e.path());
    let logged = logged.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kept.")));
    let mut all = Vec::new();
    for file in logged {
        let mut capture = pcap::Capture::from_file(file).expect("a capture");
        while let Ok(p) = capture.next_packet() {
            all.push(String::from_utf8_lossy(p.data.get(40..).unwrap_or_default()).into_owned());
        }
    }
    all
}

#[test]
fn a_capture_log_keeps_what_its_own_flow_is_kept_for() {
    let rules = format!("alert tcp any any -> any any (msg:\"end\"; {AT_THE_END} tag:session,10,packets; sid:1;)\n");
    // The alert at a flow's end writes the flow's data; a tag begins with a packet.
    let kept: [(&str, &[&str]); 2] = [("alerts", &["the unseen end"]), ("tag", &[])];
    for (conditional, kept) in kept {
        let log = format!(
            "  - pcap-log:\n      enabled: yes\n      filename: kept.pcap\n      mode: normal\n      limit: 10mb\n      conditional: \
             {conditional}\n"
        );
        let dir = run(&format!("pcap-{conditional}"), two_connections(), &rules, &log);
        assert_eq!(sids(&dir), [1]);
        assert_eq!(payloads(&dir), kept, "{conditional}: nothing alerts in the second connection");
    }
}

#[test]
fn packets_after_a_pass_are_passed() {
    let rules = "pass http any any -> any any (msg:\"pass\"; http.uri; content:\"/pass\"; sid:1;)\n";
    let mut c = Capture::new();
    let ports = (40_000, 80);
    c.open(0, ports, (1000, 5000));
    let mut seq = 1001;
    for (n, uri) in ["/pass", "/later", "/last"].into_iter().enumerate() {
        let request = format!("GET {uri} HTTP/1.1\r\nHost: a\r\n\r\n");
        let millis = 10 * (n as u32 + 1);
        c.tcp(millis, Client, ports, (seq, 5001), ACK | PUSH, request.as_bytes());
        seq += request.len() as u32;
        c.tcp(millis + 1, Server, ports, (5001, seq), ACK, b"");
    }
    let log = "  - pcap-log:\n      enabled: yes\n      filename: kept.pcap\n      mode: normal\n      limit: 10mb\n      \
               honor-pass-rules: yes\n";
    let dir = run("honor-pass", c, rules, log);
    let kept = payloads(&dir);
    // The packet that acknowledges the first request is the one that the rule passes.
    let has = |uri: &str| kept.iter().any(|p| p.contains(uri));
    assert_eq!((has("/pass"), has("/later"), has("/last")), (true, true, false), "{kept:?}");
}

/// A DNS query for that name (RFC 1035 section 4.1).
fn query(id: u16, name: &str) -> Vec<u8> {
    let mut q = id.to_be_bytes().to_vec();
    q.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        q.push(label.len() as u8);
        q.extend(label.as_bytes());
    }
    q.extend([0, 0, 1, 0, 1]);
    q
}

#[test]
fn variables_of_a_packet_are_shown_with_its_own_transactions() {
    // The query is passed, so its packet is not inspected when its transaction is logged. The packet before it captured
    // a variable.
    let rules = "pass dns any any -> any 53 (msg:\"pass\"; dns.query; content:\"first\"; sid:1;)\n\
                 alert udp any any -> any 9999 (msg:\"captures\"; pcre:\"/who=(?P<pkt_who>[a-z]+)/\"; sid:2;)\n";
    let mut c = Capture::new();
    c.udp(0, Client, (4000, 53), &query(1, "first.example"));
    c.udp(10, Client, (5000, 9999), b"who=somebody");
    c.udp(20, Client, (4000, 53), &query(2, "second.example"));
    let dir = run("variables", c, rules, "");
    assert_eq!(sids(&dir), [2]);
    let alert = of_type(&dir, "alert").remove(0);
    assert_eq!(alert["metadata"]["pktvars"][0]["who"], "somebody", "{alert}");
    let dns = of_type(&dir, "dns");
    assert_eq!(dns.len(), 2);
    for e in dns {
        assert!(e["metadata"].is_null(), "{e}");
    }
}

/// Nothing is sent when a capture file is read, and events say how the engine would answer.
#[test]
fn events_name_the_answer_to_a_rejected_packet() {
    let rules = "reject udp any any -> any 9999 (msg:\"datagram\"; sid:1;)\n\
                 rejectboth tcp any any -> any 80 (msg:\"connection\"; flags:S; sid:2;)\n";
    let mut c = Capture::new();
    c.udp(0, Client, (5000, 9999), b"who");
    c.tcp(10, Client, (5001, 80), (1, 0), SYN, b"");
    let dir = run("answers", c, rules, "");
    let answers: Vec<_> = of_type(&dir, "alert").iter().map(|a| a["verdict"]["reject"].clone()).collect();
    assert_eq!(answers, [serde_json::json!(["icmp-prohib"]), serde_json::json!(["tcp-reset"])]);
}

/// An exception policy that rejects is answered as a rule's `reject`.
#[test]
fn events_name_the_answer_of_an_exception_policy() {
    let mut c = Capture::new();
    c.tcp(0, Client, (5001, 80), (1001, 5001), ACK | PUSH, b"GET / HTTP/1.0\r\n\r\n");
    let dir = run_with(&["--simulate-ips"], "policy", c, "", "stream: {midstream-policy: reject}");
    let drops: Vec<_> = of_type(&dir, "drop").iter().map(|d| d["verdict"].clone()).collect();
    let answer = serde_json::json!({"action": "drop", "reject-target": "to_client", "reject": ["tcp-reset"]});
    assert_eq!(drops, [answer]);
}

/// A flow that an exception policy drops or bypasses has no session. A SYN on it opens a connection, which is inspected.
#[test]
fn a_connection_after_one_without_a_session() {
    const PORTS: (u16, u16) = (5001, 80);
    let rules = "alert tcp any any -> any any (content:\"hello\"; sid:1;)\n";
    for (policy, dropped) in [("drop-flow", 2), ("bypass", 0)] {
        let mut c = Capture::new();
        c.tcp(0, Client, PORTS, (1001, 5001), ACK | PUSH, b"before");
        c.tcp(10, Server, PORTS, (5001, 1007), ACK, b"");
        c.open(20, PORTS, (70_000, 90_000));
        c.tcp(30, Client, PORTS, (70_001, 90_001), ACK | PUSH, b"hello");
        let settings = format!("stream: {{midstream-policy: {policy}}}");
        let dir = run_with(&["--simulate-ips"], &format!("again-{policy}"), c, rules, &settings);
        assert_eq!(sids(&dir), [1], "{policy}");
        assert_eq!(of_type(&dir, "drop").len().min(2), dropped, "{policy}");
    }
}

/// A rule that bypasses a flow when its stream is inspected at its end. The next connection is another flow.
#[test]
fn a_connection_after_one_bypassed_at_its_end() {
    const PORTS: (u16, u16) = (5001, 9999);
    const FIN: u8 = 1;
    let rules = "alert tcp any any -> any any (content:\"known\"; bypass; sid:1;)\n\
                 alert tcp any any -> any any (content:\"hello\"; sid:2;)\n";
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, b"known");
    c.tcp(20, Client, PORTS, (1006, 5001), ACK | FIN, b"");
    c.tcp(30, Server, PORTS, (5001, 1007), ACK | FIN, b"");
    c.tcp(40, Client, PORTS, (1007, 5002), ACK, b"");
    c.open(50, PORTS, (70_000, 90_000));
    c.tcp(60, Client, PORTS, (70_001, 90_001), ACK | PUSH, b"hello");
    c.tcp(70, Server, PORTS, (90_001, 70_006), ACK, b"");
    let dir = run("again-end", c, rules, "");
    assert_eq!(sids(&dir), [1, 2]);
}

/// After a timeout, the rest of a dropped attack does not pass as another connection. A new connection is inspected.
#[test]
fn a_dropped_connection_stays_dropped_after_its_timeout() {
    const PORTS: (u16, u16) = (5001, 80);
    let rules = "drop http any any -> any any (http.uri; content:\"attack\"; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"hello\"; sid:2;)\n";
    for policy in ["auto", "ignore"] {
        let mut c = Capture::new();
        c.open(0, PORTS, (1000, 5000));
        c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, b"GET /at");
        c.tcp(20, Server, PORTS, (5001, 1008), ACK, b"");
        c.tcp(30, Client, PORTS, (1008, 5001), ACK | PUSH, b"tack HTTP/1.0\r\n\r\n");
        c.tcp(9000, Client, PORTS, (1008, 5001), ACK | PUSH, b"tack HTTP/1.0\r\n\r\n");
        c.tcp(9010, Client, PORTS, (1008, 5001), ACK | PUSH, b"tack HTTP/1.0\r\n\r\n");
        c.open(18_000, PORTS, (70_000, 90_000));
        c.tcp(18_010, Client, PORTS, (70_001, 90_001), ACK | PUSH, b"GET /hello HTTP/1.0\r\n\r\n");
        let settings = format!("flow-timeouts: {{tcp: {{established: 4}}}}\nstream: {{midstream-policy: {policy}}}");
        let dir = run_with(&["--simulate-ips"], &format!("dropped-{policy}"), c, rules, &settings);
        assert_eq!(sids(&dir), [1, 2], "{policy}");
        let drops = of_type(&dir, "drop");
        let reasons: Vec<_> = drops.iter().map(|d| (d["pcap_cnt"].as_u64(), d["drop"]["reason"].as_str())).collect();
        assert_eq!(reasons, [(Some(6), Some("rules")), (Some(7), Some("flow drop"))], "{policy}");
    }
}

/// The SYN of a new connection is the first packet of its flow: after FINs, and after a reset that nothing confirms.
#[test]
fn the_syn_of_a_new_connection_begins_its_flow() {
    const PORTS: (u16, u16) = (5001, 80);
    let rules = "pass http any any -> any any (http.uri; content:\"known\"; sid:1;)\n\
                 alert tcp any any -> any any (flags:S; flowbits:set,syn; sid:2;)\n\
                 alert tcp any any -> any any (flags:SA; flowbits:isset,syn; sid:3;)\n";
    for reset in [false, true] {
        let mut c = Capture::new();
        c.open(0, PORTS, (1000, 5000));
        c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, b"GET /known HTTP/1.0\r\n\r\n");
        c.tcp(20, Server, PORTS, (5001, 1024), ACK, b"");
        if reset {
            c.tcp(30, Client, PORTS, (1024, 5001), ACK | 4, b"");
        } else {
            c.tcp(30, Client, PORTS, (1024, 5001), ACK | 1, b"");
            c.tcp(40, Server, PORTS, (5001, 1025), ACK | 1, b"");
            c.tcp(50, Client, PORTS, (1025, 5002), ACK, b"");
        }
        c.open(1000, PORTS, (70_000, 90_000));
        let dir = run_with(&["--simulate-ips"], &format!("syn-{reset}"), c, rules, "");
        assert_eq!(sids(&dir), [2, 3, 2, 3], "{reset}");
        assert!(of_type(&dir, "drop").is_empty(), "{reset}");
        let packets: Vec<_> = of_type(&dir, "flow").iter().map(|f| f["flow"]["pkts_toserver"].as_u64()).collect();
        assert_eq!(packets, [Some(if reset { 4 } else { 5 }), Some(2)], "{reset}");
    }
}

/// Of several rules that drop a packet, the event names the first one with an alert.
#[test]
fn a_drop_names_a_rule_with_an_alert() {
    let rules = "drop udp any any -> any 53 (noalert; sid:1;)\n\
                 drop udp any any -> any 53 (sid:2;)\n\
                 drop udp any any -> any 53 (sid:3;)\n\
                 drop udp any any -> any 99 (noalert; sid:4;)\n";
    let mut c = Capture::new();
    c.udp(0, Client, (4000, 53), b"x");
    c.udp(20, Client, (4000, 99), b"x");
    let dir = run_with(&["--simulate-ips"], "drop-name", c, rules, "");
    let drops: Vec<_> = of_type(&dir, "drop").iter().map(|d| d["alert"]["signature_id"].clone()).collect();
    assert_eq!(drops, [serde_json::json!(2), serde_json::json!(4)]);
}

#[test]
fn a_drop_names_the_transaction() {
    let rules = "drop dns any any -> any 53 (msg:\"query\"; dns.query; content:\"second\"; sid:1;)\n";
    let mut c = Capture::new();
    c.udp(0, Client, (4000, 53), &query(1, "first.example"));
    c.udp(20, Client, (4000, 53), &query(2, "second.example"));
    let dir = run_with(&["--simulate-ips"], "drop-tx", c, rules, "");
    let drops: Vec<_> = of_type(&dir, "drop").iter().map(|d| d["tx_id"].clone()).collect();
    assert_eq!(drops, [serde_json::json!(1)]);
}

/// `flows: start`, the default, limits the events of a dropped flow. Packets that are dropped one by one are all logged.
#[test]
fn each_dropped_packet_is_logged_unless_its_flow_is_dropped() {
    let packets = "drop udp any any -> any any (content:\"tick\"; sid:1;)\n";
    for (name, rule, want) in [("packets", packets, 4), ("flow", "drop ip any any -> any any (sid:1;)\n", 2)] {
        let mut c = Capture::new();
        for n in 0..6 {
            let (side, ports) = if n % 2 == 0 { (Client, (4000, 7777)) } else { (Server, (4000, 7777)) };
            c.udp(10 * n, side, ports, if n < 2 { b"open" } else { b"tick" });
        }
        let dir = run_with(&["--simulate-ips"], &format!("drops-{name}"), c, rule, "");
        assert_eq!(of_type(&dir, "drop").len(), want, "{name}");
    }
}

/// A rate filter that makes an alert or a drop of a `pass` also shows it. `suppress` without addresses only removes alerts.
#[test]
fn thresholds_of_a_pass() {
    let rules = "pass udp any any -> any any (content:\"tick\"; sid:1;)\nalert udp any any -> any any (content:\"tick\"; sid:2;)\n";
    let rate = "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 60, new_action alert, timeout 60\n";
    let suppress = "suppress gen_id 1, sig_id 1\n";
    for (name, entries, want) in [
        ("rate", rate.to_owned(), vec![1, 2, 1, 2]),
        ("suppress", suppress.to_owned(), vec![]),
        ("both", format!("{suppress}{rate}"), vec![2, 2]),
    ] {
        let mut c = Capture::new();
        (0..4).for_each(|n| c.udp(10 * n, Client, (4000, 7777), b"tick"));
        let file = folder("verdict-entries").join(format!("{name}.config"));
        std::fs::write(&file, entries).expect("thresholds");
        let set = format!("threshold-file={}", file.display());
        let dir = run_with(&["--set", &set], &format!("pass-{name}"), c, rules, "");
        assert_eq!(sids(&dir), want, "{name}");
    }
}

/// An alert on a stream shows acknowledged data that was not both parsed and inspected before, as in Suricata. No protocol is
/// detected here, so nothing was parsed.
#[test]
fn payloads_of_streams_end_with_acknowledged_data() {
    const PORTS: (u16, u16) = (40_000, 7777);
    let rules = "alert tcp any any -> any any (flow:established,only_stream; content:\"message\"; sid:1;)\n";
    let shown = "  - eve-log:\n      enabled: yes\n      filename: shown.json\n      types: [alert: {payload-printable: yes}]\n";
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    let all = "1st message;2nd message;3rd message;";
    for (n, bytes) in [(0, 0..15), (1, 15..27), (2, 27..36)] {
        let seq = 1001 + bytes.start as u32;
        c.tcp(100 * n + 10, Client, PORTS, (seq, 5001), ACK | PUSH, &all.as_bytes()[bytes]);
        c.tcp(100 * n + 20, Server, PORTS, (5001, 1013 + 12 * n), ACK, b"");
    }
    let dir = run_with(&["--set", "stream.reassembly.toserver-chunk-size=10"], "shown", c, rules, shown);
    let text = std::fs::read_to_string(dir.join("shown.json")).expect("events");
    let payloads = text.lines().filter_map(|l| {
        let event: serde_json::Value = serde_json::from_str(l).expect("JSON");
        event["payload_printable"].as_str().map(str::to_owned)
    });
    assert_eq!(payloads.collect::<Vec<_>>(), ["1st message;", "1st message;2nd message;", all]);
}

/// The packet that begins a session midstream is not established, as in Suricata. In IPS mode it is, since its data is not
/// inspected again.
#[test]
fn the_first_packet_midstream() {
    const PORTS: (u16, u16) = (40_000, 7777);
    const RULES: &str = "alert tcp any any -> any any (flow:established; sid:1;)\n\
        alert tcp any any -> any any (flow:not_established; sid:2;)\n";
    for (name, more, want) in [("passive", None, [2, 1]), ("inline", Some("--simulate-ips"), [1, 1])] {
        let mut c = Capture::new();
        c.tcp(0, Client, PORTS, (1001, 5001), ACK | PUSH, b"hello");
        c.tcp(10, Server, PORTS, (5001, 1006), ACK, b"");
        let options: Vec<&str> = ["--set", "stream.midstream=yes"].into_iter().chain(more).collect();
        let dir = run_with(&options, &format!("midstream-{name}"), c, RULES, "");
        assert_eq!(sids(&dir), want, "{name}");
    }
}

/// A connection that is not closed, or whose protocol is undecided, ends with a pseudo packet in each direction, as in Suricata.
/// Rules with a negated address and nothing else to inspect see it.
#[test]
fn connections_end_in_both_directions() {
    const FIN: u8 = 1;
    const PORTS: (u16, u16) = (40_000, 7777);
    const RULES: &str =
        "alert tcp any any -> !192.0.2.7 any (sid:1;)\nalert tcp any any -> any any (content:\"nowhere\"; sid:2;)\n";
    let junk = "~xyzzy~".repeat(10);
    for (name, answers, closes, more) in
        [("open", true, false, 2), ("decided", true, true, 0), ("undecided", false, true, 2)]
    {
        let mut c = Capture::new();
        c.open(0, PORTS, (1000, 5000));
        c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, junk.as_bytes());
        c.tcp(20, Server, PORTS, (5001, 1071), ACK, b"");
        let (mut at, mut packets) = (5001, 5);
        if answers {
            c.tcp(30, Server, PORTS, (at, 1071), ACK | PUSH, junk.as_bytes());
            c.tcp(40, Client, PORTS, (1071, at + 70), ACK, b"");
            (at, packets) = (at + 70, packets + 2);
        }
        if closes {
            c.tcp(50, Client, PORTS, (1071, at), ACK | FIN, b"");
            c.tcp(60, Server, PORTS, (at, 1072), ACK, b"");
            c.tcp(70, Server, PORTS, (at, 1072), ACK | FIN, b"");
            c.tcp(80, Client, PORTS, (1072, at + 1), ACK, b"");
            packets += 4;
        }
        let dir = run(&format!("ends-{name}"), c, RULES, "");
        assert_eq!(sids(&dir).len(), packets + more, "{name}");
    }
}

/// Rules see the headers and stream events of a packet that the stream engine refuses, but not its payload.
#[test]
fn refused_packets_are_inspected_without_payload() {
    const PORTS: (u16, u16) = (40_000, 7777);
    let rules = "alert tcp any any -> any any (msg:\"event\"; stream-event:est_invalid_ack; sid:1;)\n\
                 alert tcp any any -> any any (msg:\"flags\"; flags:PA; sid:2;)\n\
                 alert tcp any any -> any any (msg:\"payload\"; content:\"refused\"; sid:3;)\n\
                 alert tcp any any -> any any (msg:\"size\"; dsize:>0; sid:4;)\n";
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    c.tcp(10, Client, PORTS, (1001, 900_000_000), ACK | PUSH, b"refused");
    let dir = run_with(&["--simulate-ips"], "refused", c, rules, "");
    let reasons: Vec<_> = of_type(&dir, "drop").iter().map(|d| d["drop"]["reason"].clone()).collect();
    assert_eq!(reasons, ["stream error"]);
    assert_eq!(sids(&dir), [1, 2]);
    for a in of_type(&dir, "alert") {
        assert_eq!((&a["alert"]["action"], &a["verdict"]["action"]), (&"allowed".into(), &"drop".into()), "{a}");
    }
}

/// The packet that carries a dropped one is dropped for that reason.
#[test]
fn a_drop_inside_a_tunnel_is_logged_for_both_packets() {
    let rules = "drop udp any any -> any 5000 (msg:\"inner\"; content:\"bad\"; sid:1;)\n";
    let mut inner = Capture::new();
    inner.udp(0, Client, (4000, 5000), b"bad");
    let mut c = Capture::new();
    let carried = [&[0, 0, 8, 0], inner.bytes().get(40..).expect("a packet")].concat();
    c.between(0, ([192, 0, 2, 1], [192, 0, 2, 2]), Client, 47, &carried);
    let dir = run_with(&["--simulate-ips"], "tunnel", c, rules, "");
    let drops: Vec<_> =
        of_type(&dir, "drop").iter().map(|d| (d["src_ip"].clone(), d["drop"]["reason"].clone())).collect();
    assert_eq!(drops, [("10.0.0.1".into(), "rules".into()), ("192.0.2.1".into(), "tunnel packet drop".into())]);
}

/// Inline, a request is inspected before its server answers, whatever its method, and behind blank lines too. A passive engine
/// waits for the answer, which identifies the protocol.
#[test]
fn requests_of_any_method_are_inspected_before_their_servers_answer() {
    let rules = "drop http any any -> any any (http.uri; content:\"/evil\"; sid:1;)\n";
    let methods = ["SEARCH", "PURGE", "RPC_IN_DATA", "JEFF", "USER", "\r\nGET"];
    let capture = || {
        let mut c = Capture::new();
        for (n, method) in (0..).zip(methods) {
            let (at, ports) = (100 * u32::from(n), (5000 + n, 8080));
            c.open(at, ports, (1000, 5000));
            let request = format!("{method} /evil HTTP/1.1\r\nHost: x\r\n\r\n");
            c.tcp(at + 10, Client, ports, (1001, 5001), ACK | PUSH, request.as_bytes());
        }
        c
    };
    let inline = run_with(&["--simulate-ips"], "methods", capture(), rules, "");
    let dropped: Vec<_> = of_type(&inline, "drop").iter().filter_map(|d| d["src_port"].as_u64()).collect();
    assert_eq!(dropped, [5000, 5001, 5002, 5003, 5004, 5005]);
    let passive = run("methods-passive", capture(), rules, "");
    assert!(sids(&passive).is_empty());
}

/// `guess-applayer-tx`: any rule without transaction keywords shows the only transaction, `stream-tx-log-limit` times.
#[test]
fn alerts_show_the_only_transaction_as_often_as_configured() {
    let capture = || {
        let mut c = Capture::new();
        c.open(0, (5001, 80), (1000, 5000));
        let mut seq = 1001;
        for (n, line) in (0..).zip(["GET / HTTP/1.1\r\n", "Host: x\r\n", "A: b\r\n", "C: d\r\n"]) {
            c.tcp(10 + n, Client, (5001, 80), (seq, 5001), ACK | PUSH, line.as_bytes());
            seq += line.len() as u32;
        }
        c
    };
    let rules = "alert ip any any -> any any (flow:to_server; dsize:>0; sid:1;)\n";
    for (name, limit, want) in [("all", "255", 4), ("two", "2", 2), ("none", "0", 0)] {
        let limit = format!("detect.stream-tx-log-limit={limit}");
        let options = ["--simulate-ips", "--set", "detect.guess-applayer-tx=yes", "--set", &limit];
        let alerts = of_type(&run_with(&options, &format!("guess-{name}"), capture(), rules, ""), "alert");
        assert_eq!(alerts.len(), 4);
        assert_eq!(alerts.iter().filter(|a| a["tx_guessed"] == true && a["tx_id"] == 0).count(), want, "{name}");
    }
}

/// Inline, rules on an open frame see each packet's data together with a chunk before it, and match again while their bytes are
/// in it, as rules on the stream do. A passive engine inspects new data only.
#[test]
fn open_frames_are_inspected_in_a_sliding_window_inline() {
    let capture = || {
        let mut c = Capture::new();
        c.open(0, (5001, 25), (1000, 5000));
        c.tcp(10, Server, (5001, 25), (5001, 1001), ACK | PUSH, b"220 mx ESMTP\r\n");
        let mut seq = 1001;
        let filler = format!("NOOP {}\r\n", "x".repeat(1300));
        for (n, line) in (0..).zip(["EHLO there\r\n", "NOOP\r\n", &filler, &filler, "QUIT\r\n"]) {
            c.tcp(20 + n, Client, (5001, 25), (seq, 5015), ACK | PUSH, line.as_bytes());
            seq += line.len() as u32;
        }
        c
    };
    let rules = "alert smtp any any -> any any (frame:smtp.stream; content:\"EHLO there\"; sid:1;)\n";
    let at = |options: &[&str], name| -> Vec<_> {
        let dir = run_with(options, name, capture(), rules, "");
        of_type(&dir, "alert").iter().map(|a| a["pcap_cnt"].as_u64()).collect()
    };
    // The chunk of 2,560 bytes before the last packet no longer has the command.
    assert_eq!(at(&["--simulate-ips"], "frame-inline"), [5, 6, 7, 8].map(Some));
    assert_eq!(at(&[], "frame-passive").len(), 1);
}

/// A connection goes on after a long silence, and behind a SYN whose data looks like another protocol. The parser of that
/// data must not read the connection's.
#[test]
fn a_resumed_connection_has_its_own_parser() {
    const PORTS: (u16, u16) = (40_000, 80);
    const GREETING: &[u8] = b"SSH-2.0-OpenSSH_9.2\r\n";
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    let later = 4_000_000;
    c.tcp(later, Client, PORTS, (1000, 0), SYN, GREETING);
    let request = b"GET /attack HTTP/1.1\r\nHost: x\r\n\r\n";
    c.tcp(later + 10, Client, PORTS, (1001, 5001), ACK | PUSH, request);
    c.tcp(later + 11, Server, PORTS, (5001, 1001 + request.len() as u32), ACK, b"");
    let rules = "drop http any any -> any any (http.uri; content:\"/attack\"; sid:1;)\n";
    let dir = run_with(&["--simulate-ips"], "resumed", c, rules, "");
    assert_eq!(sids(&dir), [1]);
}
