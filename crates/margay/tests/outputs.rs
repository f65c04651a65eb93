//! Runs the engine on one HTTP connection with various settings, and compares the lines of its outputs and of its own log.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by it")]

mod made;
mod process;

use std::path::{Path, PathBuf};
use std::process::Output;

use made::Side::{Client, Server};
use made::{ACK, Capture, PUSH};
use process::{folder, of_type};

const PORTS: (u16, u16) = (40_000, 80);
const REQUEST: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: Www.Example:80\r\nUser-Agent: t/1\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: /c\r\nContent-Length: 2\r\n\r\nok";

/// One request with its response, in Ethernet frames. The client's address ends in `01`, the server's in `02`.
fn capture() -> Vec<u8> {
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    let (request, response) = (1001 + REQUEST.len() as u32, 5001 + RESPONSE.len() as u32);
    c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, REQUEST);
    c.tcp(20, Server, PORTS, (5001, request), ACK | PUSH, RESPONSE);
    c.tcp(30, Client, PORTS, (request, response), ACK, b"");
    // Outside the window, which is an event of the stream.
    c.tcp(40, Client, PORTS, (request + 9_000_000, response), ACK | PUSH, b"far");
    in_frames(&c.bytes())
}

fn in_frames(raw: &[u8]) -> Vec<u8> {
    let mut out = raw[..20].to_vec();
    out.extend(1u32.to_le_bytes());
    let mut rest = &raw[24..];
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().expect("a length")) as usize;
        let (head, packet) = (&rest[..8], &rest[16..16 + len]);
        let (src, dst) = (packet[15], packet[19]);
        out.extend(head);
        out.extend([(len + 14) as u32; 2].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 8, 0]);
        out.extend(packet);
        rest = &rest[16 + len..];
    }
    out
}

/// Runs the engine with sections of a configuration, rules and options.
fn run(name: &str, yaml: &str, rules: &str, options: &[&str]) -> (PathBuf, Output) {
    let dir = folder(&format!("outputs-{name}"));
    std::fs::write(dir.join("a.pcap"), capture()).expect("a capture");
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let yaml = format!("%YAML 1.1\n---\n{yaml}\napp-layer: {{protocols: {{http: {{enabled: yes}}}}}}\n");
    std::fs::write(dir.join("margay.yaml"), yaml).expect("a configuration");
    let mut c = std::process::Command::new(process::MARGAY);
    c.args(["-k", "none", "-c"]).arg(dir.join("margay.yaml")).arg("-l").arg(&dir);
    c.arg("-S").arg(dir.join("a.rules")).arg("-r").arg(dir.join("a.pcap")).args(options);
    let out = c.output().expect("the engine runs");
    (dir, out)
}

fn run_well(name: &str, yaml: &str, rules: &str, options: &[&str]) -> PathBuf {
    let (dir, out) = run(name, yaml, rules, options);
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    dir
}

fn read(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).expect("a log")
}

#[test]
fn requests_are_lines() {
    let yaml = "outputs:\n  - http-log: {enabled: yes, extended: yes}\n  - http-log: {enabled: yes, filename: own.log, custom: yes, \
                customformat: \"%{%s}t.%z %{user-agent}i %{X}i %H %m %h %u %s %B %{location}o %a:%p -> %A:%P\"}\n";
    let dir = run_well("lines", yaml, "", &[]);
    let line = read(&dir, "http.log");
    let (_, line) = line.split_once(' ').expect("a time");
    assert_eq!(
        line,
        "Www.Example[**]/a?b[**]t/1[**]<no referer>[**]GET[**]HTTP/1.1[**]302 => /c[**]2 bytes[**]10.0.0.1:40000 -> 10.0.0.2:80\n"
    );
    assert_eq!(
        read(&dir, "own.log"),
        "1700000000.030000 t/1 - HTTP/1.1 GET Www.Example /a?b 302 2 /c 10.0.0.1:40000 -> 10.0.0.2:80\n"
    );
}

/// An event shows the client as source; its Ethernet addresses must not contradict that if the server sent the packet.
#[test]
fn ethernet_addresses_follow_the_others() {
    let yaml = "outputs:\n  - eve-log: {enabled: yes, ethernet: yes, types: [http]}\n";
    for options in [&[][..], &["--simulate-ips"]] {
        let dir = run_well("ether", yaml, "", options);
        let [http] = &of_type(&dir, "http")[..] else { panic!("one event") };
        assert_eq!(http["src_ip"], "10.0.0.1");
        assert_eq!(http["ether"]["src_mac"], "02:00:00:00:00:01", "{options:?}");
    }
}

#[test]
fn drops_show_the_flows_variables() {
    let yaml = "outputs:\n  - eve-log: {enabled: yes, types: [{drop: {flows: all}}]}\n";
    let rules = "alert tcp any any -> any any (flags:S; flowbits:set,seen; noalert; sid:1;)\n\
                 drop http any any -> any any (http.uri; content:\"/a\"; sid:2;)\n";
    let dir = run_well("drop", yaml, rules, &["--simulate-ips"]);
    let drops = of_type(&dir, "drop");
    assert!(drops.len() > 1);
    assert!(drops.iter().all(|d| d["metadata"]["flowbits"] == serde_json::json!(["seen"])), "{drops:?}");
}

#[test]
fn packet_headers_of_stream_anomalies() {
    let yaml = "outputs:\n  - eve-log: {enabled: yes, types: [{anomaly: {types: {stream: yes, applayer: no}, packethdr: yes}}]}\n";
    let dir = run_well("packethdr", yaml, "", &[]);
    let found = of_type(&dir, "anomaly");
    assert!(!found.is_empty());
    assert!(found.iter().all(|a| a["anomaly"]["type"] == "stream" && a["packet"].is_string()), "{found:?}");
}

#[test]
fn alerts_name_the_capture_file() {
    let rules = "alert http any any -> any any (http.uri; content:\"/a\"; sid:1;)\n";
    let yaml =
        "outputs:\n  - eve-log: {enabled: yes, types: [alert]}\n  - pcap-log: {enabled: yes, filename: log.pcap}\n";
    for mode in ["single", "autofp"] {
        let dir = run_well(&format!("capture-{mode}"), yaml, rules, &["--runmode", mode]);
        let [alert] = &of_type(&dir, "alert")[..] else { panic!("one alert") };
        let file = dir.join("log.pcap.1700000000");
        assert_eq!(alert["capture_file"].as_str(), file.to_str(), "{mode}");
        // Several workers write to one file in mode normal.
        assert_eq!(std::fs::metadata(&file).expect("a capture").len(), capture().len() as u64, "{mode}");
    }
}

/// The files of an alert belong to `metadata.rule.metadata`, whether or not it has the protocol's members.
#[test]
fn files_of_alerts_are_chosen() {
    let rules = "alert http any any -> any any (http.stat_code; content:\"302\"; sid:1;)\n";
    for (n, metadata, http, files) in [
        ("all", "yes", true, true),
        ("rule", "{rule: {metadata: no}}", true, false),
        ("app", "{app-layer: no}", false, true),
    ] {
        let yaml = format!("outputs: [{{eve-log: {{enabled: yes, types: [alert: {{metadata: {metadata}}}]}}}}]");
        let dir = run_well(&format!("files-{n}"), &yaml, rules, &[]);
        let alerts = of_type(&dir, "alert");
        assert_eq!((alerts[0]["http"].is_object(), alerts[0]["files"].is_array()), (http, files), "{alerts:?}");
    }
}

/// With `conditional`, the packets with the data that led to the alert are written before its packet.
#[test]
fn a_capture_file_begins_with_the_data_before_the_alert() {
    let log = |name: &str, rule: &str, memcap: &str| {
        let log = format!("enabled: yes, filename: log.pcap, conditional: alerts, hold-memcap: {memcap}");
        let rules = format!("alert http any any -> any any ({rule} sid:1;)\n");
        let dir = run_well(&format!("conditional-{name}"), &format!("outputs: [{{pcap-log: {{{log}}}}}]"), &rules, &[]);
        let all = std::fs::read(dir.join("log.pcap.1700000000")).expect("packets");
        let (mut rest, mut times) = (&all[24..], Vec::new());
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("a number"));
            times.push(word(4) / 1000);
            rest = &rest[16 + word(8) as usize..];
        }
        times
    };
    // Request and response, the acknowledgment with the alert, and the packet after it.
    assert_eq!(log("request", "http.method; content:\"GET\";", "1mb"), [10, 20, 30, 40]);
    assert_eq!(log("none", "http.method; content:\"GET\";", "0"), [30, 40]);
    // The end of the flow brings the alert.
    assert_eq!(log("end", "http.stat_code; content:\"302\";", "1mb"), [10, 20, 40]);
}

/// With `use-stream-depth`, a capture file has nothing of a connection after either side reached the depth.
#[test]
fn packets_beyond_the_depth_are_left_out() {
    let yaml = "stream: {reassembly: {depth: 80}}\noutputs: [{pcap-log: {enabled: yes, use-stream-depth: yes}}]";
    let dir = run_well("depth", yaml, "", &[]);
    let kept = std::fs::read(dir.join("log.pcap.1700000000")).expect("a capture");
    assert!(RESPONSE.len() < 80 && REQUEST.len() < 80);
    let data = REQUEST.len() + RESPONSE.len();
    assert_eq!(kept.len(), 24 + 7 * (16 + 14 + 40) + data + 3);
    let dir = run_well("less-depth", &yaml.replace("80", "58"), "", &[]);
    let kept = std::fs::read(dir.join("log.pcap.1700000000")).expect("a capture");
    assert_eq!(kept.len(), 24 + 3 * (16 + 14 + 40), "up to the request");
}

#[test]
fn the_packet_that_sets_a_tag_is_kept() {
    let rules = "alert http any any -> any any (http.uri; content:\"/a\"; tag:session,2,packets; sid:1;)\n";
    let yaml =
        "outputs:\n  - eve-log: {enabled: yes, types: [alert]}\n  - pcap-log: {enabled: yes, conditional: tag}\n";
    let dir = run_well("tag", yaml, rules, &[]);
    let [alert] = &of_type(&dir, "alert")[..] else { panic!("one alert") };
    // Tagged packets are events only if that is asked for.
    assert!(of_type(&dir, "packet").is_empty());
    assert_eq!(alert["pcap_cnt"], 6);
    let kept = std::fs::read(dir.join("log.pcap.1700000000")).expect("a capture");
    let data = REQUEST.len() + RESPONSE.len() + 3;
    assert_eq!(kept.len(), 24 + 4 * (16 + 14 + 40) + data, "packets 4 and 5 with the data before, 6 and 7");
}

#[test]
fn the_log_takes_levels_and_forms() {
    let said = |name: &str, logging: &str| {
        let (_, out) = run(name, &format!("logging: {{{logging}}}\nstats: {{enabled: no}}\n"), "", &[]);
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert_eq!(said("log-error", "default-log-level: error"), "");
    let own = said("log-form", "default-log-format: \"<%d|%S> %M;\"");
    assert!(own.contains("<Notice|pcap> read 1 file") && own.lines().all(|l| l.starts_with('<')), "{own}");
}

#[test]
fn types_and_loggers_that_cannot_be() {
    let yaml = |types: &str| format!("outputs:\n  - eve-log: {{enabled: yes, types: [{types}]}}\n");
    // The name of an event, and not of a type.
    let dir = run_well("fileinfo", &yaml("{fileinfo: {enabled: yes}}"), "", &[]);
    assert_eq!(read(&dir, "eve.json"), "");
    let two = "  - eve-log: {enabled: yes, filename: b.json, types: [drop]}\n";
    let (_, out) = run("two-drops", &(yaml("drop") + two), "", &["--simulate-ips"]);
    assert!(!out.status.success());
}

#[test]
fn bytes_of_alerts_streams_and_bodies() {
    let rules = "alert tcp any any -> any any (msg:\"a\"; flow:to_client; content:\"Found\"; flowbits:set,seen; sid:7;)\n\
                 alert http any any -> any any (msg:\"b\"; http.stat_code; content:\"302\"; sid:8;)\n";
    let yaml = "outputs:\n  - alert-debug: {enabled: yes}\n  - tcp-data: {enabled: yes, type: both}\n  - http-body-data: \
                {enabled: yes, type: both}\n";
    let dir = run_well("bytes", yaml, rules, &[]);
    let log = read(&dir, "alert-debug.log");
    for line in [
        "PROTO:             6",
        "SRC PORT:          80",
        "FLOW:              to_server: FALSE, to_client: TRUE",
        "FLOW APP_LAYER:    DETECTED: TRUE, PROTO http",
        "FLOWBIT:           seen",
        "ALERT CNT:           2",
        "ALERT SID [01]:      8",
        "ALERT CLASS [00]:    <none>",
        "ALERT FOUND IN [01]: STATE",
        "ALERT IN TX [01]:    0",
    ] {
        assert!(log.lines().any(|l| l == line), "{line}\n{log}");
    }
    assert!(log.contains(" 0000  48 54 54 50 2F 31 2E 31  20 33 30 32 20 46 6F 75   HTTP/1.1  302 Fou\n"), "{log}");
    let ends = "10.0.0.1_40000-10.0.0.2_80";
    let bytes = |name: &str| std::fs::read(dir.join(name)).expect("a file");
    assert_eq!(bytes(&format!("tcp/{ends}--ts.data")), REQUEST);
    assert_eq!(bytes(&format!("tcp/{ends}--tc.data")), RESPONSE);
    assert_eq!(bytes(&format!("http/{ends}-0-tc.data")), b"ok");
    assert!(read(&dir, "tcp-data.log").starts_with(&format!("{ends}-ts:\n 0000  47 45 54 ")));
    assert_eq!(read(&dir, "http-data.log").lines().next(), Some(&*format!("{ends}-tc:")));
}
