//! The application layer from packets to events: flows whose parser fails, and data that hosts read and that must not
//! escape inspection.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod conversation;
mod process;

use std::io::Write;

use conversation::{Capture, Client, Datagram, Lost, Ran, Reset, Say, Server, Turn, run};

/// An invalid chunk length, then an attack on the same connection.
const BROKEN_CHUNK: &[Turn<'static>] = &[
    Say(Client, b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"),
    Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    Say(Client, b"GET /evil-attack HTTP/1.1\r\nHost: x\r\n\r\n"),
    Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
];

/// One rule for the packet on which the parser fails, one for the data after it, and one for both.
const RULES: &str = "\
    alert tcp any any -> any 80 (msg:\"the packet itself\"; content:\"hello\"; sid:1;)\n\
    alert tcp any any -> any 80 (msg:\"what follows\"; content:\"evil-attack\"; sid:2;)\n";

fn with_policy(name: &str, policy: &str, more: &[&str]) -> Ran {
    let mut capture = Capture::new();
    capture.connection(40_000, 80, BROKEN_CHUNK);
    let set = format!("app-layer.error-policy={policy}");
    let mut args = vec!["--set", &set, "--set", "stats.exception-policy.per-app-proto-errors=yes"];
    args.extend(more);
    run(&format!("error-policy-{name}"), &capture, RULES, &args)
}

/// The packet and the sid of each alert.
fn alerts(ran: &Ran) -> Vec<(u64, u64)> {
    let of = |e: &serde_json::Value| Some((e["pcap_cnt"].as_u64()?, e["alert"]["signature_id"].as_u64()?));
    ran.events("alert").iter().filter_map(of).collect()
}

/// Packets 4 (the broken chunk) to 14 (the last), of which 5 come from the server.
#[test]
fn a_parser_error_is_answered_as_the_policy_says() {
    // Policy; whether later data is inspected; packets blocked by the error and by the flow; the flow's action.
    let cases: [(&str, bool, [u64; 2], Option<&str>); 7] = [
        ("drop-flow", false, [1, 10], Some("drop")),
        ("reject", false, [1, 10], Some("drop")),
        ("drop-packet", true, [1, 0], None),
        ("pass-packet", true, [0, 0], None),
        ("pass-flow", false, [0, 0], Some("pass")),
        ("bypass", false, [0, 0], Some("pass")),
        ("ignore", true, [0, 0], None),
    ];
    for (policy, inspected, [error, flow], action) in cases {
        let ran = with_policy(policy, policy, &["--simulate-ips"]);
        let alerts: Vec<(u64, u64)> = alerts(&ran);
        assert_eq!(alerts.iter().any(|a| a.1 == 2), inspected, "{policy}: {alerts:?}");
        // The packet itself is inspected only if the policy ignores the error.
        assert_eq!(alerts.contains(&(4, 1)), policy == "ignore", "{policy}: {alerts:?}");
        let dropped =
            ["applayer_error", "exception_policy_flow_drop"].map(|r| ran.counter(&format!("ips.drop_reason.{r}")));
        assert_eq!(dropped, [error, flow], "{policy}");
        let record = &ran.events("flow")[0];
        assert_eq!(record["flow"]["action"].as_str(), action, "{policy}: {record}");
        let name = policy.replace('-', "_");
        let took_effect = &record["flow"]["exception_policy"][0];
        assert_eq!((&took_effect["target"], &took_effect["policy"]), (&"app_layer_error".into(), &name.clone().into()));
        assert_eq!(ran.counter("app_layer.error.http.parser"), 1, "{policy}");
        let counted = (policy != "ignore").then_some(1);
        for counter in [
            "exception_policy.app_layer.error",
            "app_layer.error.exception_policy",
            "app_layer.error.http.exception_policy",
        ] {
            assert_eq!(ran.find_counter(&format!("{counter}.{name}")), counted, "{policy}: {counter}");
        }
        assert_eq!(ran.counter("ips.rejected"), u64::from(policy == "reject"));
    }
}

#[test]
fn by_default_a_parser_error_drops_the_flow_inline_and_nothing_otherwise() {
    let ran = with_policy("auto-inline", "auto", &["--simulate-ips"]);
    assert_eq!((ran.sids(), ran.counter("ips.drop_reason.applayer_error")), (vec![], 1));
    let ran = with_policy("auto-passive", "auto", &[]);
    assert_eq!(ran.sids(), [1, 2]);
    assert_eq!(ran.events("flow")[0]["flow"]["exception_policy"][0]["policy"], "ignore");
}

/// When a protocol changes into another, the data before is inspected and logged with pseudo packets.
#[test]
fn what_comes_before_another_protocol_is_inspected_apart() {
    let mut capture = Capture::new();
    let turns = [
        Say(Server, b"220 mx ESMTP\r\n"),
        Say(Client, b"EHLO a\r\n"),
        Say(Server, b"250 mx\r\n"),
        Say(Client, b"STARTTLS\r\n"),
        Say(Server, b"220 Ready\r\n"),
        Say(Client, b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"),
    ];
    capture.connection(40_000, 25, &turns);
    let rules = "\
        alert tcp any any -> any 25 (content:\"EHLO\"; sid:1;)\n\
        alert tcp any any -> any 25 (content:\"STARTTLS\"; sid:2;)\n\
        alert tcp any 25 -> any any (content:\"Ready\"; sid:3;)\n\
        alert tcp any 25 -> any any (content:\"Ready\"; content:\"|16|\"; sid:4;)\n";
    let ran = run("protocol-change", &capture, rules, &[]);
    let of = |e: &serde_json::Value| (e["alert"]["signature_id"].as_u64(), e["pcap_cnt"].as_u64());
    let seen: Vec<_> = ran.events("alert").iter().map(of).collect();
    // The acknowledgment of the reply shows it to the engine, so its direction comes last.
    assert_eq!(seen, [(Some(1), Some(9)), (Some(3), None), (Some(2), None)]);
    let sources: Vec<_> = ran.events("alert").iter().map(|e| e["pkt_src"].clone()).collect();
    assert_eq!(sources, ["wire/pcap", "stream (detect/log)", "stream (detect/log)"]);
    assert_eq!(ran.events("smtp")[0]["pkt_src"], "stream (detect/log)");
}

/// A passive engine only logs a drop policy, and inspects everything.
#[test]
fn a_policy_that_drops_does_not_blind_a_passive_engine() {
    for (policy, action) in [("drop-flow", Some("drop")), ("drop-packet", None), ("reject", None)] {
        let ran = with_policy(&format!("passive-{policy}"), policy, &[]);
        assert_eq!(ran.sids(), [1, 2], "{policy}");
        let record = &ran.events("flow")[0]["flow"];
        assert_eq!(record["exception_policy"][0]["policy"], policy.replace('-', "_"));
        assert_eq!(record["action"].as_str(), action, "{policy}");
    }
}

/// The parser cannot resume a handshake after a gap.
#[test]
fn a_gap_that_a_parser_cannot_get_over_is_an_error() {
    let hello = [&[0x16, 3, 1, 0, 0x2d, 1, 0, 0, 0x29, 3, 3][..], &[0; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat();
    let data = b"\x17\x03\x03\x00\x14later an evil-attack";
    let mut capture = Capture::new();
    capture.connection(
        40_001,
        443,
        &[Say(Client, &hello), Say(Server, b"\x16\x03\x03\x00\x04\x02\0\0\0"), Lost(Client, 40), Say(Client, data)],
    );
    let rules = "alert tcp any any -> any 443 (content:\"evil-attack\"; sid:2;)\n";
    let ran = run("error-policy-gap", &capture, rules, &["--simulate-ips"]);
    assert!(ran.sids().is_empty(), "{:?}", ran.sids());
    assert_eq!(ran.counter("ips.drop_reason.applayer_error"), 1);
    assert_eq!((ran.counter("app_layer.error.tls.gap"), ran.counter("app_layer.error.tls.parser")), (1, 0));
}

/// A protocol without a parser cannot have a parser error.
#[test]
fn an_unknown_protocol_is_no_parser_error() {
    let mut capture = Capture::new();
    let noise = [0x81u8; 300_000];
    capture.connection(40_002, 9999, &[Say(Client, &noise), Lost(Client, 9), Say(Client, &noise)]);
    let ran = run("error-policy-unknown", &capture, "", &["--simulate-ips"]);
    assert_eq!((ran.counter("ips.blocked"), ran.counter("exception_policy.app_layer.error.drop_flow")), (0, 0));
}

/// A gzip file with that content.
fn gzip(content: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    e.write_all(content).expect("to memory");
    e.finish().expect("to memory")
}

/// Go, Node.js and urllib3 read all members of a body, so rules do.
#[test]
fn all_members_of_a_gzip_body_are_inspected() {
    let body = [gzip(b""), gzip(b"first, "), gzip(b"an evil-payload")].concat();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut capture = Capture::new();
    let request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    capture.connection(40_003, 80, &[Say(Client, request), Say(Server, &[head.as_bytes(), &body].concat())]);
    let rules = "alert http any any -> any any (file.data; content:\"first, an evil-payload\"; sid:1;)\n";
    let ran = run("gzip-members", &capture, rules, &[]);
    assert_eq!(ran.sids(), [1]);
    assert_eq!(ran.events("fileinfo")[0]["fileinfo"]["size"], 22);
}

/// A DNS query for the address of a name.
fn query(name: &str) -> Vec<u8> {
    let mut q = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        q.push(label.len() as u8);
        q.extend(label.as_bytes());
    }
    q.extend([0, 0, 1, 0, 1]);
    q
}

/// Datagrams that the receiver discards or does not read are not part of the conversation.
#[test]
fn datagrams_are_what_their_receiver_reads() {
    let query = |name: &str| query(&format!("{name}.example"));
    let whole = |port, data| Datagram {
        from: Client,
        client_port: port,
        server_port: 53,
        data,
        wrong_by: Some(0),
        length: None,
    };
    let data = ["right", "wrong", "none", "behind", "beyond", "decoy", "real"].map(query);
    let behind = [&data[3][..], b"more than its length says"].concat();
    let mut capture = Capture::new();
    capture.datagram(whole(4001, &data[0]));
    capture.datagram(Datagram { wrong_by: Some(0x1111), ..whole(4002, &data[1]) });
    capture.datagram(Datagram { wrong_by: None, ..whole(4003, &data[2]) });
    capture.datagram(Datagram { length: Some(8 + data[3].len() as u16), ..whole(4004, &behind) });
    capture.datagram(Datagram { length: Some(200), ..whole(4005, &data[4]) });
    // A decoy, then the datagram as it arrives.
    capture.datagram(Datagram { wrong_by: Some(1), ..whole(4006, &data[5]) });
    capture.datagram(whole(4006, &data[6]));
    let names = |ran: &Ran| {
        let dns = ran.events("dns");
        let name = |e: &serde_json::Value| e["dns"]["queries"][0]["rrname"].as_str().map(str::to_owned);
        dns.iter().filter_map(name).map(|n| n.trim_end_matches(".example").to_owned()).collect::<Vec<_>>()
    };
    let ran = run("udp-checksums", &capture, "", &["-k", "all"]);
    assert_eq!(names(&ran), ["right", "none", "behind", "real"]);
    assert_eq!(ran.counter("udp.invalid_checksum"), 2);
    // A sender whose card computes checksums is captured with wrong ones only. After the first correct one, wrong ones
    // are discarded, and state from the decoy is dropped.
    capture.datagram(Datagram { wrong_by: Some(1), ..whole(4006, &data[5]) });
    let ran = run("udp-checksums-auto", &capture, "", &[]);
    assert_eq!(names(&ran), ["right", "wrong", "none", "behind", "decoy", "real"]);
    assert_eq!(ran.counter("udp.invalid_checksum"), 3);
    // With -k none, checksums are ignored.
    let ran = run("udp-checksums-ignored", &capture, "", &["-k", "none"]);
    assert_eq!(names(&ran), ["right", "wrong", "none", "behind", "decoy", "real", "decoy"]);
}

/// HTTP requests, one of which is an attack.
fn requests(count: usize, marked: usize) -> Vec<u8> {
    let path = |n| if n == marked { "evil-attack".into() } else { format!("{n}") };
    (0..count).map(|n| format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", path(n))).collect::<String>().into_bytes()
}

/// One burst of more requests than a flow may have transactions: each is inspected and logged, passive and inline. An
/// alert has the number of the packet at which the request was reassembled: inline the packet that completes it,
/// otherwise the acknowledgment.
#[test]
fn nothing_of_a_burst_goes_by() {
    const COUNT: usize = 5000;
    let rules = "drop http any any -> any any (http.uri; content:\"/evil-attack\"; sid:1;)\n";
    for (how, inline, first_last) in [("passive", false, false), ("inline", true, false), ("hole", true, true)] {
        let more: &[&str] = if inline { &["--simulate-ips"] } else { &[] };
        for marked in [0, 511, 512, 1024, COUNT - 1] {
            let mut capture = Capture::new();
            let all = requests(COUNT, marked);
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(COUNT);
            // All requests arrive before any of them is acknowledged.
            let acknowledged = capture.burst_in_order(40_010, 80, &[(Client, &all), (Server, &response)], first_last);
            let ran = run(&format!("burst-{how}-{marked}"), &capture, rules, more);
            let found = alerts(&ran);
            assert_eq!(found.iter().map(|a| a.1).collect::<Vec<_>>(), [1], "{how} {marked}");
            assert_eq!(ran.counter("app_layer.error.http.parser") + ran.counter("app_layer.error.http.internal"), 0);
            if inline {
                // The last packet before the acknowledgment fills the hole.
                if first_last || marked == COUNT - 1 {
                    assert_eq!(found[0].0, acknowledged[0] - 1, "{how} {marked}");
                }
                // That packet and all later ones are dropped. The connection ends three packets after the last
                // acknowledgment.
                let packets = acknowledged[1] + 3;
                let blocked = packets - found[0].0 + 1;
                assert_eq!(ran.counter("ips.accepted"), packets - blocked, "{how} {marked}");
                assert_eq!(ran.counter("ips.blocked"), blocked, "{how} {marked}");
                assert_eq!(ran.counter("ips.drop_reason.rules"), 1, "{how} {marked}");
                assert_eq!(ran.events("flow")[0]["flow"]["action"], "drop", "{how} {marked}");
            } else {
                assert_eq!(found[0].0, acknowledged[0], "{marked}");
                assert!(ran.counter("app_layer.tx_limit") > 0, "{marked}");
                // Pipelined requests get events of their own, and so do their responses.
                let events = ran.events("http");
                let requests = events.iter().filter(|e| e["http"]["url"] != "/libhtp::request_uri_not_seen").count();
                let responses = events.iter().filter(|e| e["http"]["status"] == 200).count();
                assert_eq!((requests, responses), (COUNT, COUNT), "{marked}");
                assert!(events.len() < 2 * COUNT, "some were answered in time");
                assert_eq!(ran.counter("app_layer.tx.http"), events.len() as u64, "{marked}");
            }
        }
    }
}

/// The capture ends before the burst is acknowledged, so the burst is inspected when the flow ends.
#[test]
fn a_burst_that_nobody_acknowledged_is_inspected_at_the_end() {
    let rules = "alert http any any -> any any (http.uri; content:\"/evil-attack\"; sid:1;)\n";
    for marked in [0, 1024, 4999] {
        let mut capture = Capture::new();
        capture.unanswered_burst(40_011, 80, &requests(5000, marked));
        let ran = run(&format!("burst-end-{marked}"), &capture, rules, &[]);
        assert_eq!(ran.sids(), [1], "{marked}");
        assert_eq!(ran.events("http").len(), 5000, "{marked}");
    }
}

/// Transactions are freed even while their files wait for a packet of the other direction to be logged.
#[test]
fn files_of_a_burst_are_logged() {
    const COUNT: usize = 3000;
    let rules = "alert http any any -> any any (flow:to_client; file.data; content:\"attack\"; sid:1;)\n";
    let body = |n| if n == COUNT - 1 { "attack" } else { "hello!" };
    let response = |n| format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n{}", body(n));
    let all: String = (0..COUNT).map(response).collect();
    let mut capture = Capture::new();
    capture.burst(40_012, 80, &[(Client, &requests(COUNT, COUNT)), (Server, all.as_bytes())]);
    let ran = run("burst-files", &capture, rules, &[]);
    assert_eq!(ran.sids(), [1]);
    assert_eq!(ran.counter("app_layer.error.http.internal"), 0);
    assert_eq!(ran.events("fileinfo").len(), COUNT);
}

/// Flows that exceed `app-layer.memcap` lose their parser; the others continue. All memory is returned in the end.
#[test]
fn memory_of_the_application_layer_has_a_limit() {
    const FLOWS: u16 = 20;
    let rules = "alert http any any -> any any (http.uri; content:\"/flow-\"; sid:1;)\n";
    let mut capture = Capture::new();
    for n in 0..FLOWS {
        let request = format!("GET /flow-{n} HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(15_000));
        capture.open_connection(41_000 + n, 80, &[Say(Client, request.as_bytes())], false);
    }
    for (memcap, inline) in [("150kb", false), ("150kb", true), ("10mb", false), ("0", false)] {
        let set = format!("app-layer.memcap={memcap}");
        let mut more = vec!["--set", &set];
        more.extend(inline.then_some("--simulate-ips"));
        let ran = run(&format!("memcap-{memcap}-{inline}"), &capture, rules, &more);
        let lost = ran.counter("app_layer.memcap");
        assert_eq!(ran.counter("app_layer.error.http.alloc"), lost, "{memcap} {inline}");
        if memcap != "150kb" {
            assert_eq!(lost, 0, "{memcap}");
            assert_eq!(ran.sids().len(), usize::from(FLOWS), "{memcap}");
            continue;
        }
        // Each flow holds more than 15 kB, so the cap has room for fewer than ten.
        assert!((u64::from(FLOWS) - 10..u64::from(FLOWS)).contains(&lost), "{lost} {inline}");
        assert_eq!(ran.counter("ips.drop_reason.applayer_error"), if inline { lost } else { 0 });
        assert_eq!(ran.counter("app_layer.memuse"), 0, "{inline}");
    }
}

/// A connection that a reset closed keeps what it needs to go on. If such connections exceed the memory limit, the engine
/// inspects the rest of the oldest one's streams and frees it. If that one then sends more, its protocol is detected again.
#[test]
fn memory_of_connections_after_a_reset_has_a_limit() {
    const FLOWS: u16 = 20;
    let rules = "alert http any any -> any any (http.request_body; content:\"the-tail\"; sid:1;)\n\
                 alert http any any -> any any (http.uri; content:\"/later\"; sid:2;)\n";
    let body = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n{}the-tail", "a".repeat(15_000));
    let mut capture = Capture::new();
    for n in 0..FLOWS {
        capture.open_connection(41_000 + n, 80, &[Say(Client, body.as_bytes()), Reset(Client)], false);
    }
    for (memory, settled) in [("100kb", 10..20), ("10mb", 0..1), ("0", 0..1)] {
        let set = format!("margay.reset-memory={memory}");
        let ran = run(&format!("reset-{memory}"), &capture, rules, &["--set", &set]);
        assert_eq!(ran.sids(), [1].repeat(FLOWS.into()), "{memory}");
        assert!(settled.contains(&ran.counter("tcp.reset_settled")), "{memory}: {}", ran.counter("tcp.reset_settled"));
        assert_eq!(ran.events("http").len(), usize::from(FLOWS), "{memory}");
    }
    // A connection that goes on after it was settled.
    let later = Say(Client, b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut capture = Capture::new();
    capture.open_connection(41_000, 80, &[Say(Client, body.as_bytes()), Reset(Client), later], false);
    let ran = run("reset-goes-on", &capture, rules, &["--set", "margay.reset-memory=1kb"]);
    assert_eq!((ran.counter("tcp.reset_settled"), ran.sids()), (1, vec![1, 2]));
}

/// A flow that loses its parser returns its memory, including the parser, while the flow continues.
#[test]
fn memory_of_parsers_that_are_gone_is_given_back() {
    const FLOWS: u16 = 100;
    let rules = "alert http any any -> any any (http.uri; content:\"/at-last\"; sid:1;)\n";
    let mut capture = Capture::new();
    // Each flow alone needs more than the whole cap.
    let requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100);
    for n in 0..FLOWS {
        capture.open_connection(41_000 + n, 80, &[Say(Client, requests.as_bytes())], false);
    }
    capture.open_connection(42_000, 80, &[Say(Client, b"GET /at-last HTTP/1.1\r\nHost: x\r\n\r\n")], false);
    // The cap has room for the remaining 480 bytes or so of each flow, but not for their parsers as well.
    let ran = run("memcap-given-back", &capture, rules, &["--set", "app-layer.memcap=60kb"]);
    assert_eq!(ran.counter("app_layer.memcap"), u64::from(FLOWS));
    assert_eq!(ran.sids(), [1]);
}

/// A rule that names the protocol and inspects the payload reports the datagram's transaction, whether or not other
/// rules inspect transactions.
#[test]
fn a_rule_on_the_payload_of_a_protocol_tells_the_transaction() {
    let data = ["one", "two"].map(query);
    let mut capture = Capture::new();
    for q in &data {
        let whole =
            Datagram { from: Client, client_port: 4001, server_port: 53, data: q, wrong_by: Some(0), length: None };
        capture.datagram(whole);
    }
    let payload = "alert dns any any -> any any (content:\"|00 07 01|\"; sid:1;)\n";
    let query = "alert dns any any -> any any (dns.query; content:\"none\"; sid:2;)\n";
    for rules in [payload, &[payload, query].concat()] {
        let ran = run("payload-tx", &capture, rules, &[]);
        let told: Vec<_> = ran
            .events("alert")
            .iter()
            .map(|e| (e["tx_id"].as_u64(), e["dns"]["queries"][0]["rrname"].clone()))
            .collect();
        assert_eq!(told, [(Some(0), "one".into()), (Some(1), "two".into())]);
        // DNS has only the states begun and complete.
        assert!(ran.events("alert").iter().all(|e| e.get("ts_progress").or(e.get("tc_progress")).is_none()));
    }
}

/// A rule on addresses alone drops the flow at the first query. The receiver reads neither that query nor the second
/// one.
#[test]
fn datagrams_of_a_dropped_flow_are_not_parsed() {
    let mut capture = Capture::new();
    for name in ["first.example", "second.example"] {
        let data = &query(name);
        capture.datagram(Datagram {
            from: Client,
            client_port: 4001,
            server_port: 53,
            data,
            wrong_by: Some(0),
            length: None,
        });
    }
    let rule = "drop udp 10.0.0.1 any -> any any (sid:1;)\n";
    let queries = |name: &str, more: &[&str]| run(name, &capture, rule, more).events("dns").len();
    assert_eq!((queries("dropped-datagrams", &["--simulate-ips"]), queries("passive-datagrams", &[])), (1, 2));
}

/// Events of some protocols have the addresses of the packet that triggers them: in passive mode, the packet that
/// acknowledges the data.
#[test]
fn addresses_of_the_packet() {
    let mut capture = Capture::new();
    capture.connection(
        40_000,
        3389,
        &[Say(Client, b"\x03\0\0\x0b\x06\xe0\0\0\0\0\0"), Say(Server, b"\x03\0\0\x0b\x06\xd0\0\0\0\0\0")],
    );
    let ports = |name: &str, more: &[&str]| {
        let ran = run(name, &capture, "", more);
        let of = |e: &serde_json::Value| Some((e["rdp"]["event_type"].as_str()?.to_owned(), e["src_port"].as_u64()?));
        ran.events("rdp").iter().filter_map(of).collect::<Vec<_>>()
    };
    let event = |name: &str, port| (format!("initial_{name}"), port);
    assert_eq!(ports("packet-addresses", &[]), [event("request", 3389), event("response", 40_000)]);
    assert_eq!(
        ports("packet-addresses-inline", &["--simulate-ips"]),
        [event("request", 40_000), event("response", 3389)]
    );
}

/// A DCE/RPC message of type `kind`, with the number `call` and with `body` behind its header.
fn rpc(kind: u8, call: u8, body: &[u8]) -> Vec<u8> {
    [&[5, 0, kind, 3, 0x10, 0, 0, 0, 16 + body.len() as u8, 0, 0, 0, call, 0, 0, 0][..], body].concat()
}

/// The operation is known with the request, so a rule for the client matches with the next packet to the client. Stub data
/// waits for the response.
#[test]
fn operations_of_rpc_are_compared_before_the_response() {
    const RULES: &str = "\
        alert dcerpc any any -> any any (flow:to_client; dcerpc.opnum:5; sid:1;)\n\
        alert dcerpc any any -> any any (flow:to_server; dcerpc.opnum:5; sid:2;)\n\
        alert dcerpc any any -> any any (flow:to_client; dcerpc.iface:11111111-1111-1111-1111-111111111111; sid:3;)\n\
        alert dcerpc any any -> any any (flow:to_client; dcerpc.opnum:5; dcerpc.stub_data; content:\"no\"; sid:4;)\n";
    let context = [&[0, 0, 1, 0][..], &[0x11; 16], &[1, 0, 0, 0], &[0; 20]].concat();
    let bind = rpc(11, 1, &[&[0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 1, 0, 0, 0][..], &context].concat());
    let accepted = [&[0xb8, 0x10, 0xb8, 0x10, 0, 0, 0, 0, 4, 0][..], b"135\0\0\0", &[1, 0, 0, 0], &[0; 24]].concat();
    let ask = rpc(0, 2, b"\0\0\0\0\0\0\x05\0yes?");
    let accepted = rpc(12, 1, &accepted);
    let talk = [Say(Client, &bind), Say(Server, &accepted), Say(Client, &ask)].into_iter();
    let answer = rpc(2, 2, b"\0\0\0\0\0\0\0\0no");
    let mut capture = Capture::new();
    capture.connection(40_000, 135, &talk.chain([Say(Server, &answer)]).collect::<Vec<_>>());
    // Each message is followed by its acknowledgment: the request is packet 8, the response packet 10.
    let mut found = alerts(&run("operations-of-rpc", &capture, RULES, &[]));
    found.sort_unstable();
    assert_eq!(found, [(9, 1), (9, 3), (11, 2), (13, 4)]);
}

/// Passively, `file.data` of an upload by FTP waits for its end. Inline, the first packet is inspected before it passes.
#[test]
fn file_data_of_ftp_waits_only_passively() {
    const CONTROL: &[Turn<'static>] = &[
        Say(Server, b"220 FTP\r\n"),
        Say(Client, b"USER a\r\n"),
        Say(Server, b"230 in\r\n"),
        Say(Client, b"EPSV\r\n"),
        Say(Server, b"229 Extended (|||5000|)\r\n"),
        Say(Client, b"STOR a.txt\r\n"),
        Say(Server, b"150 go\r\n"),
    ];
    const RULES: &str = "drop ftp-data any any -> any any (file.data; content:\"an evil-file\"; sid:1;)\n";
    let mut capture = Capture::new();
    capture.connection(40_000, 21, CONTROL);
    let packets = capture.packets();
    capture.connection(
        40_001,
        5000,
        &[Say(Client, b"an evil-file "), Say(Client, b"and more of it"), Say(Client, b", to the end")],
    );
    let [passive, inline] = [("passive", &[][..]), ("inline", &["--simulate-ips"])]
        .map(|(name, args)| alerts(&run(&format!("ftp-file-{name}"), &capture, RULES, args)));
    // The handshake has three packets.
    assert_eq!(inline.iter().map(|a| a.0).collect::<Vec<_>>(), [packets + 4], "{inline:?}");
    assert!(passive.iter().all(|a| a.0 > packets + 6), "{passive:?}");
    assert_eq!(passive.len(), 1, "{passive:?}");
}

/// In the payload, a rule on a transaction sees what is new with it, not what came before.
#[test]
fn payload_contents_belong_to_their_transaction() {
    const RULES: &str = "\
        alert http any any -> any any (content:\"POST\"; depth:4; http.uri; content:\"/two\"; sid:1;)\n\
        alert http any any -> any any (content:\"GET\"; depth:3; http.uri; content:\"/two\"; sid:2;)\n\
        alert http any any -> any any (content:\"/one\"; http.uri; content:\"/two\"; sid:3;)\n\
        alert http any any -> any any (content:!\"/one\"; http.uri; content:\"/two\"; sid:4;)\n\
        alert http any any -> any any (content:!\"POST\"; depth:4; http.uri; content:\"/two\"; sid:5;)\n";
    const TALK: &[Turn<'static>] = &[
        Say(Client, b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"),
        Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        Say(Client, b"POST /two HTTP/1.1\r\nHost: x\r\n"),
        Say(Client, b"Content-Length: 2\r\n\r\nab"),
        Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    ];
    let mut capture = Capture::new();
    capture.connection(40_000, 80, TALK);
    let mut sids: Vec<u64> =
        alerts(&run("payload-of-transactions", &capture, RULES, &[])).iter().map(|a| a.1).collect();
    sids.sort_unstable();
    assert_eq!(sids, [1, 4]);
}

/// With `stream.inline` a passive engine inspects data as an inline one does: before its acknowledgment, and again with what follows.
#[test]
fn a_passive_engine_can_inspect_inline() {
    let mut capture = Capture::new();
    capture.connection(
        40_000,
        7777,
        &[Say(Client, b"an evil-attack"), Say(Server, b"answer"), Say(Client, b"more"), Say(Client, b"rest")],
    );
    let rules = "alert tcp-stream any any -> any any (flow:to_server; content:\"evil-attack\"; sid:1;)\n";
    let found = |name: &str, more: &[&str]| alerts(&run(&format!("stream-inline-{name}"), &capture, rules, more)).len();
    let inline = found("ips", &["--simulate-ips"]);
    assert!(inline > 1, "{inline}");
    assert_eq!(found("yes", &["--set", "stream.inline=yes"]), inline);
    assert_eq!(found("no", &["--set", "stream.inline=no"]), 1);
    assert_eq!(found("ips-no", &["--simulate-ips", "--set", "stream.inline=no"]), 1);
}
