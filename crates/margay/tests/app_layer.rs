//! The application layer from packets to events: what becomes of a flow whose parser gives up, and that nothing of what hosts
//! read slips past.

mod conversation;
mod process;

use conversation::{Capture, Client, Lost, Ran, Say, Server, Turn, run};

/// A chunk's length that is none, then an attack on the same connection.
const BROKEN_CHUNK: &[Turn<'static>] = &[
    Say(Client, b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n"),
    Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    Say(Client, b"GET /evil-attack HTTP/1.1\r\nHost: x\r\n\r\n"),
    Say(Server, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
];

/// A rule for the packet with which the parser fails, one for what follows, and one for both.
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

/// Packets 4 (the broken chunk) to the last are 4 to 14, of which 5 come from the server.
#[test]
fn a_parser_error_is_answered_as_the_policy_says() {
    // Policy; whether what follows is inspected; packets blocked because of the error, and because of their flow; the flow's action.
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
        // The packet itself is not inspected unless the error is ignored.
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

/// Where nothing can be dropped a policy that drops is noted, and everything is inspected.
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

/// Nothing of a handshake is understood behind a hole in it.
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

/// What has no parser cannot fail.
#[test]
fn an_unknown_protocol_is_no_parser_error() {
    let mut capture = Capture::new();
    let noise = [0x81u8; 300_000];
    capture.connection(40_002, 9999, &[Lost(Server, 7), Say(Client, &noise), Lost(Client, 9), Say(Client, &noise)]);
    let ran = run("error-policy-unknown", &capture, "", &["--simulate-ips"]);
    assert_eq!((ran.counter("ips.blocked"), ran.counter("exception_policy.app_layer.error.drop_flow")), (0, 0));
}
