//! Bypass between a client and a server, who do not know of the engine between them: what passes by arrives as it was sent, and is
//! told of as if it had been looked at.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod bench;

use std::net::UdpSocket;
use std::time::Duration;

use bench::{
    Bench, Engine, Ns, SERVER4, SERVER6, Server, ask, ask_bulk, at, connect, folder, last_stats, of_type, query,
    wait_for,
};
use serde_json::Value;

in_namespace! {
    "mgo";
    elephants_pass_by: inner_elephants,
    nothing_passes_when_it_is_killed: inner_killed,
}

const RULES: &str = "\
    alert udp any any -> any 80 (msg:\"enough\"; content:\"LETMEPASS\"; bypass; sid:1;)\n\
    alert udp any any -> any 80 (msg:\"more\"; content:\"needle\"; sid:2;)\n";
const MEGABYTES: usize = 96;
const ROUND_TRIPS: u64 = 2000;

fn start(name: &str) -> (Engine, std::path::PathBuf) {
    let dir = folder(name);
    let mut settings = Bench::settings(2);
    for more in
        ["af-packet.0.bypass=yes", "af-packet.1.bypass=yes", "stream.bypass=yes", "stream.reassembly.depth=256kb"]
    {
        settings.extend(["--set".to_owned(), more.to_owned()]);
    }
    settings.push("-vv".to_owned());
    (Engine::start(&dir, RULES, &settings), dir)
}

fn bypassed(e: &Engine) -> u64 {
    e.counters()["capture"]["bypass"]["flows"].as_u64().unwrap_or(0)
}

/// A socket whose flow is bypassed, and how many datagrams it has sent.
fn udp_passing_by(client: &Ns, e: &Engine, address: &'static str, before: u64) -> (UdpSocket, u64) {
    let own = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    // It stays where it was made.
    let socket = client.run(|| UdpSocket::bind(own).expect("a socket"));
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket");
    socket.connect(at(address, 80)).expect("an address");
    let mut sent = 0;
    wait_for("an answer", || {
        sent += 1;
        socket.send(b"LETMEPASS").is_ok() && socket.recv(&mut [0; 100]).is_ok()
    });
    wait_for("the flow is entered", || bypassed(e) == before + 1);
    (socket, sent)
}

fn number(v: &Value, path: &str) -> u64 {
    v.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {v}"))
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_elephants() {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let (e, dir) = start("bypass-inline");
    let mut datagrams = Vec::new();
    for (n, address) in [SERVER4, SERVER6].into_iter().enumerate() {
        let before = 2 * n as u64;
        bench.client.run(|| {
            let mut c = connect(at(address, 80));
            // Every byte is looked at.
            ask_bulk(&mut c, MEGABYTES);
            ask(&mut c, 5, 100_000).expect("the same connection goes on");
        });
        wait_for("the flow was entered", || bypassed(&e) == before + 1);
        let (socket, mut sent) = udp_passing_by(&bench.client, &e, address, before + 1);
        for n in 0..ROUND_TRIPS {
            let words = format!("a needle {n} {}", "x".repeat(n as usize % 1300));
            let mut got = [0; 2000];
            wait_for("an answer", || {
                sent += 1;
                socket.send(words.as_bytes()).expect("it is sent");
                socket.recv(&mut got).is_ok_and(|len| got[..len] == *words.as_bytes())
            });
        }
        datagrams.push((socket.local_addr().expect("an address").port(), sent));
    }
    let words = e.stop();
    let said = |w: &str| words.iter().any(|l| l.contains(w));
    if !said("(tc)") {
        assert!(said("Linux 6.6"), "{words:#?}");
        eprintln!("tested with XDP: {words:?}");
    }
    assert!(said("received = inspected + lost") && said("inspected = sent + dropped + lost"), "{words:#?}");
    assert!(!said("cannot be explained"), "{words:#?}");

    let stats = last_stats(&dir);
    assert_eq!(number(&stats, "/ips/blocked"), 0, "{:?}", of_type(&dir, "drop").first());
    let capture = &stats["capture"];
    assert_eq!((number(capture, "/bypass/flows"), number(capture, "/bypass/full")), (4, 0));
    assert_eq!((number(capture, "/kernel_drops"), number(capture, "/afpacket/send_errors")), (0, 0));
    // Of what passed by nothing was looked at.
    let alerts = |sid: u64| of_type(&dir, "alert").iter().filter(|a| a["alert"]["signature_id"] == sid).count();
    assert!(alerts(1) >= 2 && alerts(2) == 0, "{} {}", alerts(1), alerts(2));

    // The records have all packets and bytes.
    let flows = of_type(&dir, "flow");
    let of = |proto: &str| {
        flows.iter().filter(|f| f["proto"] == proto && f["flow"]["bypass"] == "capture").collect::<Vec<_>>()
    };
    let (tcp, udp) = (of("TCP"), of("UDP"));
    assert_eq!((tcp.len(), udp.len()), (2, 2), "{flows:?}");
    for f in &tcp {
        let bytes = number(f, "/flow/bytes_toclient");
        assert!(bytes > (MEGABYTES << 20) as u64 && bytes < (MEGABYTES << 20) as u64 * 11 / 10, "{f}");
        // Most of them the kernel sent on.
        assert!(number(f, "/flow/bypassed/bytes_toclient") > bytes * 9 / 10, "{f}");
        assert_eq!(f["flow"]["state"], "bypassed");
    }
    for (port, sent) in datagrams {
        let f = udp.iter().find(|f| f["src_port"] == port).expect("a record");
        let answers = number(f, "/flow/pkts_toclient");
        assert_eq!(number(f, "/flow/pkts_toserver"), sent, "{f}");
        assert!(answers <= sent && answers > ROUND_TRIPS, "{f}");
        assert!(number(f, "/flow/bypassed/pkts_toserver") >= ROUND_TRIPS, "{f}");
    }
    // All that came to the interfaces was inspected, or sent on by the kernel, and is in a record.
    let received = number(capture, "/nic/received");
    let sums = ["/flow/pkts_toserver", "/flow/pkts_toclient"].map(|p| flows.iter().map(|f| number(f, p)).sum::<u64>());
    let recorded = sums[0] + sums[1];
    assert!(recorded <= received && recorded + 200 > received, "{recorded} of {received}");
    // The engine itself had few of them.
    let (seen, came) = (number(&stats, "/decoder/pkts"), number(&stats, "/flow_bypassed/local_capture_pkts"));
    assert!(seen < received / 4 && came < seen, "{seen} {came} of {received}");
    eprintln!("{received} packets, {seen} seen by the engine, {came} of them of bypassed flows");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_killed() {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let (mut first, _) = start("bypass-inline-killed");
    let (socket, _) = udp_passing_by(&bench.client, &first, SERVER4, 0);
    first.signal("KILL");
    first.child.wait().expect("it ends");
    // The program went with it: this is no way past an engine.
    while socket.recv(&mut [0; 100]).is_ok() {}
    socket.send(b"more").expect("it is sent");
    assert!(socket.recv(&mut [0; 100]).is_err());
    let (second, dir) = start("bypass-inline-again");
    // It begins anew: this is no bypassed flow.
    wait_for("an answer", || socket.send(b"a needle").is_ok() && socket.recv(&mut [0; 100]).is_ok());
    bench.client.run(|| {
        assert_eq!(query(at(SERVER4, 80), "others", 30).expect("no error").as_deref(), Some("others"));
    });
    assert_eq!(bypassed(&second), 0);
    second.stop();
    assert!(of_type(&dir, "alert").iter().any(|a| a["alert"]["signature_id"] == 2));
}
