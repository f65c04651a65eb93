//! Inline mode: the engine between a client and a server that do not know of it. Each test has network namespaces of its
//! own.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod bench;

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use margay_stream::StreamEvent;
use serde_json::Value;

use bench::{
    BadLink, Bench, Engine, Ns, SERVER4, SERVER6, Server, addressed, ask, at, connect, events, folder, ip, last_stats,
    of_type, pair, query, sysctl, wait_for,
};

in_namespace! {
    "mgi";
    benign_traffic_arrives_and_attacks_do_not: inner_arrives,
    rejected_connections_are_reset: inner_reject,
    payloads_are_replaced: inner_replace,
    a_bad_link_is_no_attack: inner_bad_link,
    connections_of_before_and_half_of_them: inner_before,
    a_tap_drops_nothing: inner_tap,
    the_other_interface_goes_and_comes_back: inner_link,
    passive_answers: inner_passive,
}

const RULES: &str = "\
    drop tcp any any -> any 80 (msg:\"tcp attack\"; content:\"ATTACK-TCP\"; sid:1;)\n\
    drop udp any any -> any 80 (msg:\"udp attack\"; content:\"ATTACK-UDP\"; sid:2;)\n\
    alert http any any -> any any (msg:\"seen\"; http.user_agent; content:\"bench\"; sid:3;)\n";

/// A rule for each stream event.
fn stream_events() -> String {
    let rule = |(e, sid): (&StreamEvent, u32)| {
        let name = e.name();
        format!("alert tcp any any -> any any (msg:\"{name}\"; stream-event:{name}; sid:{sid};)\n")
    };
    StreamEvent::ALL.iter().zip(100..).map(rule).collect()
}

/// Checks that the sums of lost, sent and dropped packets add up.
fn explained(said: &[String]) {
    let explained = |words: &str| said.iter().any(|l| l.contains(words));
    assert!(explained("inspected = sent + dropped + lost") && explained("received = inspected + lost"), "{said:#?}");
    assert!(!explained("cannot be explained"), "{said:#?}");
}

/// Downloads of these sizes on one connection.
fn download(client: &Ns, server: &'static str, port: u16, sizes: &'static [usize]) {
    client.run(|| {
        let mut c = connect(at(server, port));
        for (n, &size) in sizes.iter().enumerate() {
            ask(&mut c, n as u64 + 7, size).unwrap_or_else(|e| panic!("{server} {size}: {e}"));
        }
    });
}

/// Sends `words` on a connection, and checks that neither they nor later data get through.
fn is_cut(client: &Ns, server: &'static str, words: &str) {
    client.run(|| {
        let mut c = connect(at(server, 80));
        ask(&mut c, 1, 1000).expect("before it all is well");
        write!(c, "GET /{words} HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is sent");
        c.set_read_timeout(Some(Duration::from_millis(1500))).expect("a connection");
        let read = c.read(&mut [0; 100]);
        assert!(
            read.as_ref().is_err_and(|e| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "{read:?}"
        );
        write!(c, "GET /after HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is sent");
        let read = c.read(&mut [0; 100]);
        assert!(read.is_err(), "{read:?}");
    });
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_arrives() {
    let bench = Bench::new();
    let mut addresses = vec![SERVER4, SERVER6];
    // With VLAN tags as well, if the kernel supports such interfaces.
    let tags = |i: &str| {
        let words = format!("link add link {i} name {i}.7 type vlan id 7");
        std::process::Command::new("ip").args(words.split_whitespace()).output().is_ok_and(|o| o.status.success())
    };
    if bench.client.run(|| tags("c0")) && bench.server.run(|| tags("s0")) {
        for (ns, i, n) in [(&bench.client, "c0.7", 1), (&bench.server, "s0.7", 2)] {
            ns.run(|| ip(&format!("link set {i} up")));
            addressed(ns, i, 7, n);
        }
        addresses.extend(["10.9.7.2", "fd09:7::2"]);
    } else {
        margay_testing::unavailable("the kernel has no VLAN interfaces (this part only)");
    }
    let server = Server::start(&bench.server, 80);
    for workers in [1, 2] {
        let dir = folder(&format!("inline-arrives-{workers}"));
        let e = Engine::start(&dir, RULES, &Bench::settings(workers));
        for &address in &addresses {
            download(&bench.client, address, 80, &[1, 500, 5_000, 300_000, 4_000_000]);
            bench.client.run(|| {
                for n in 0..20 {
                    let words = format!("query {n} {address}");
                    assert_eq!(query(at(address, 80), &words, 30).expect("no error"), Some(words));
                }
                // In fragments.
                let long = "fragment ".repeat(900);
                assert_eq!(query(at(address, 80), &long, 30).expect("no error").as_deref(), Some(&*long));
            });
        }
        for address in [SERVER4, SERVER6] {
            is_cut(&bench.client, address, "ATTACK-TCP");
            let words = "an ATTACK-UDP";
            bench.client.run(|| assert_eq!(query(at(address, 80), words, 2).expect("no error"), None));
        }
        assert!(!server.was_asked("ATTACK") && !server.was_asked("after"));
        explained(&e.stop());
        let stats = last_stats(&dir);
        let drops = of_type(&dir, "drop");
        let reasons: Vec<_> = drops.iter().map(|d| d["drop"]["reason"].as_str().unwrap_or_default()).collect();
        assert!(reasons.iter().all(|r| ["rules", "flow drop"].contains(r)), "{reasons:?}");
        let count = |path: &str| stats.pointer(path).and_then(|v| v.as_u64()).unwrap_or(u64::MAX);
        assert_eq!(count("/capture/afpacket/send_errors"), 0, "{}", stats["capture"]);
        assert_eq!(count("/capture/kernel_drops"), 0);
        assert_eq!(count("/ips/drop_reason/stream_error"), 0);
        assert!(count("/ips/drop_reason/rules") >= 4 && count("/ips/drop_reason/flow_drop") >= 4, "{}", stats["ips"]);
        assert_eq!(count("/ips/accepted"), count("/capture/afpacket/sent"));
        for sid in [1, 2, 3] {
            let alerts = of_type(&dir, "alert");
            let of = alerts.iter().filter(|a| a["alert"]["signature_id"] == sid);
            let blocked: Vec<bool> = of.map(|a| a["alert"]["action"] == "blocked").collect();
            assert!(!blocked.is_empty() && blocked.iter().all(|b| *b == (sid != 3)), "{sid}: {blocked:?}");
        }
        let ifaces: std::collections::BTreeSet<String> =
            events(&dir).iter().filter_map(|e| e["in_iface"].as_str().map(str::to_owned)).collect();
        assert!(ifaces.contains("ia"), "{ifaces:?}");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_reject() {
    let bench = Bench::new();
    let server = Server::start(&bench.server, 80);
    let dir = folder("inline-reject");
    let rules = "reject tcp any any -> any 80 (msg:\"r\"; content:\"ATTACK-TCP\"; sid:1;)\n\
                 rejectboth tcp any any -> any 80 (msg:\"b\"; content:\"ATTACK-BOTH\"; sid:3;)\n\
                 reject udp any any -> any 80 (msg:\"u\"; content:\"ATTACK-UDP\"; sid:2;)\n";
    let e = Engine::start(&dir, rules, &Bench::settings(1));
    for address in [SERVER4, SERVER6] {
        bench.client.run(|| {
            for words in ["ATTACK-TCP", "ATTACK-BOTH"] {
                let mut c = connect(at(address, 80));
                ask(&mut c, 1, 100_000).expect("before it all is well");
                write!(c, "GET /{words} HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is sent");
                c.set_read_timeout(Some(Duration::from_secs(30))).expect("a connection");
                let read = c.read(&mut [0; 100]).map_err(|e| e.kind());
                assert_eq!(read, Err(ErrorKind::ConnectionReset), "{address} {words}");
            }
            let told = query(at(address, 80), "an ATTACK-UDP", 30);
            assert!(told.is_err(), "{told:?}");
        });
    }
    // Where resets go to both sides, the server's side has ended too.
    bench.server.run(|| {
        wait_for("the server is told", || {
            let o = std::process::Command::new("cat").args(["/proc/net/tcp6"]).output().expect("a list");
            let open = String::from_utf8_lossy(&o.stdout)
                .lines()
                .filter(|l| l.split_whitespace().nth(3) == Some("01"))
                .count();
            open <= 2
        });
    });
    assert!(!server.was_asked("ATTACK"));
    explained(&e.stop());
    let stats = last_stats(&dir);
    assert_eq!(stats["capture"]["reject"]["sent"], 8, "{}", stats["capture"]);
    assert_eq!(stats["ips"]["rejected"], 6);
    let alerts = of_type(&dir, "alert");
    let how = |sid: u64| {
        let a = alerts.iter().find(|a| a["alert"]["signature_id"] == sid).expect("an alert");
        a["verdict"]["reject"].clone()
    };
    assert_eq!((how(1), how(2)), (serde_json::json!(["tcp-reset"]), serde_json::json!(["icmp-prohib"])));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_replace() {
    let bench = Bench::new();
    let server = Server::start(&bench.server, 80);
    let dir = folder("inline-replace");
    let rules = "alert tcp any any -> any 80 (msg:\"t\"; content:\"secret\"; replace:\"public\"; sid:1;)\n\
                 alert udp any any -> any 80 (msg:\"u\"; content:\"secret\"; replace:\"public\"; sid:2;)\n";
    let e = Engine::start(&dir, rules, &Bench::settings(1));
    for address in [SERVER4, SERVER6] {
        bench.client.run(|| {
            let mut c = connect(at(address, 80));
            write!(c, "GET /5/50/secret HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is sent");
            let mut head = [0; 30];
            c.read_exact(&mut head).expect("an answer");
            for words in ["a secret word", "the secret words"] {
                let got = query(at(address, 80), words, 30).expect("no error");
                assert_eq!(got, Some(words.replace("secret", "public")));
            }
        });
    }
    assert!(server.was_asked("GET /5/50/public") && !server.was_asked("secret"));
    explained(&e.stop());
    assert!(last_stats(&dir)["ips"]["replaced"].as_u64().expect("a count") >= 6);
}

/// Downloads on this many connections at once. Returns the duration.
fn downloads(client: &Ns, server: &'static str, connections: u64, each: u64, len: usize) -> Duration {
    let began = Instant::now();
    let all: Vec<_> = (0..connections)
        .map(|n| {
            client.spawn(move || {
                for m in 0..each {
                    let mut c = connect(at(server, 80));
                    ask(&mut c, n * 1000 + m, len).unwrap_or_else(|e| panic!("{n} {m}: {e}"));
                }
            })
        })
        .collect();
    all.into_iter().for_each(|t| t.join().expect("a download"));
    began.elapsed()
}

/// A bench whose client is behind a bad link. `permille` says how many of 1,000 packets are lost, duplicated and
/// reordered; `delay` is each packet's delay.
fn bad_bench(permille: [u64; 3], delay: Duration) -> (Bench, BadLink) {
    let link = Ns::new();
    let bench = Bench::with(|client| {
        // Both ends belong to other namespaces, so the client's namespace creates them.
        client.run(|| pair("c0", "l0", &link));
        pair("ia", "l1", &link);
    });
    for (ns, i) in [(&bench.client, "c0"), (&bench.server, "s0")] {
        // Packets as on a wire, so that each is lost separately.
        ns.run(|| ip(&format!("link set {i} gso_max_segs 1")));
    }
    let bad = BadLink::slow(&link, "l0", "l1", 11, permille, delay);
    (bench, bad)
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_bad_link() {
    let (bench, bad) = bad_bench([30, 30, 30], Duration::ZERO);
    let _server = Server::start(&bench.server, 80);
    let dir = folder("inline-bad");
    let e = Engine::start(&dir, &format!("{RULES}{}", stream_events()), &Bench::settings(2));
    downloads(&bench.client, SERVER4, 8, 5, 100_000);
    downloads(&bench.client, SERVER6, 4, 2, 100_000);
    assert!(bad.lost.load(Ordering::Relaxed) > 20 && bad.passed.load(Ordering::Relaxed) > 1000);
    explained(&e.stop());
    let drops = of_type(&dir, "drop");
    // The stream events of the flow tell why.
    let events = |flow: &Value| {
        let of_flow = |e: &Value| e["flow_id"] == *flow && e["alert"]["signature_id"].as_u64() >= Some(100);
        of_type(&dir, "alert").into_iter().filter(of_flow).map(|e| e.to_string()).collect::<Vec<_>>().join("\n")
    };
    assert!(drops.is_empty(), "{} {} after\n{}", drops.len(), drops[0], events(&drops[0]["flow_id"]));
    assert_eq!(last_stats(&dir)["ips"]["blocked"], 0);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_before() {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let first = Engine::start(&folder("inline-before-1"), RULES, &Bench::settings(1));
    let mut open: Vec<_> = bench.client.run(|| [SERVER4, SERVER6].map(|a| connect(at(a, 80))).into_iter().collect());
    for c in &mut open {
        ask(c, 1, 10_000).expect("an answer");
    }
    explained(&first.stop());
    let dir = folder("inline-before-2");
    let e = Engine::start(&dir, RULES, &Bench::settings(2));
    for c in &mut open {
        for n in 0..5 {
            ask(c, n, 100_000).expect("an answer");
        }
    }
    explained(&e.stop());
    assert_eq!(last_stats(&dir)["ips"]["blocked"], 0, "{:?}", of_type(&dir, "drop"));
    // The server's replies take another path.
    pair("d0", "c1", &bench.client);
    ip(&format!("link set d0 netns {}", bench.server.path()));
    bench.server.run(|| {
        ip("link set d0 up");
        ip("route add 10.9.0.1/32 dev d0");
    });
    let dir = folder("inline-half");
    let e = Engine::start(&dir, RULES, &Bench::settings(1));
    downloads(&bench.client, SERVER4, 4, 5, 50_000);
    explained(&e.stop());
    let stats = last_stats(&dir);
    assert_eq!(stats["ips"]["blocked"], 0, "{:?}", of_type(&dir, "drop").first());
    assert!(stats["threads"].is_null());
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_tap() {
    let bench = Bench::new();
    let server = Server::start(&bench.server, 80);
    let dir = folder("inline-tap");
    let settings: Vec<String> =
        Bench::settings(1).into_iter().map(|s| s.replace("copy-mode=ips", "copy-mode=tap")).collect();
    let e = Engine::start(&dir, RULES, &settings);
    bench.client.run(|| {
        let words = "an ATTACK-UDP".to_owned();
        assert_eq!(query(at(SERVER4, 80), &words, 30).expect("no error"), Some(words));
    });
    assert!(server.was_asked("ATTACK"));
    explained(&e.stop());
    let alerts = of_type(&dir, "alert");
    assert!(alerts.iter().any(|a| a["alert"]["signature_id"] == 2 && a["alert"]["action"] == "allowed"), "{alerts:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_link() {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let dir = folder("inline-link");
    let mut e = Engine::start(&dir, RULES, &Bench::settings(2));
    download(&bench.client, SERVER4, 80, &[10_000]);
    ip("link set ib down");
    assert!(e.until("went down"), "{:?}", e.all);
    ip("link set ib up");
    assert!(e.until("is up again"), "{:?}", e.all);
    download(&bench.client, SERVER4, 80, &[10_000]);
    ip("link del ib");
    assert!(e.until("is gone"), "{:?}", e.all);
    pair("ib", "s0", &bench.server);
    bench.server.run(|| ip("link set s0 address 02:00:00:09:00:02"));
    addressed(&bench.server, "s0", 0, 2);
    assert!(e.until("is up again"), "{:?}", e.all);
    downloads(&bench.client, SERVER4, 8, 2, 10_000);
    explained(&e.stop());
    assert_eq!(last_stats(&dir)["ips"]["blocked"], 0, "{:?}", of_type(&dir, "drop"));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_passive() {
    // The server runs on the engine's host and uses its interface.
    sysctl("ipv6/conf/default/disable_ipv6", "1");
    let client = Ns::new();
    pair("ia", "c0", &client);
    addressed(&client, "c0", 0, 1);
    ip("addr add 10.9.0.2/24 dev ia");
    ip("link set lo up");
    let listener = std::net::TcpListener::bind("10.9.0.2:80").expect("a port");
    let dir = folder("inline-passive");
    let rules = "reject tcp any any -> any 80 (msg:\"r\"; content:\"ATTACK-TCP\"; depth:10; sid:1;)\n";
    let e = Engine::start(&dir, rules, &["-i".into(), "ia".into()]);
    let read = client.run(|| {
        let mut c = connect(at(SERVER4, 80));
        c.set_read_timeout(Some(Duration::from_secs(60))).expect("a connection");
        write!(c, "ATTACK-TCP").expect("it is sent");
        c.read(&mut [0; 100]).map_err(|e| e.kind())
    });
    assert_eq!(read, Err(ErrorKind::ConnectionReset));
    drop(listener);
    let said = e.stop();
    assert!(said.iter().any(|l| l.contains("received = inspected + lost")), "{said:?}");
    assert_eq!(last_stats(&dir)["capture"]["reject"]["sent"], 1);
}

#[test]
#[ignore = "a measurement: takes minutes, and an optimised build to mean anything"]
fn measure_beside_the_peer() {
    namespace::inside("mgm", "inner_measure");
}

#[test]
#[ignore = "a measurement: takes minutes, and an optimised build to mean anything"]
fn measure_what_the_engine_costs_a_link() {
    namespace::inside("mgm", "inner_harm");
}

/// The value below which `permille` of 1,000 values are.
fn at_permille(sorted: &[f64], permille: usize) -> f64 {
    sorted.get((sorted.len() * permille / 1000).min(sorted.len() - 1)).copied().unwrap_or(0.0)
}

fn figures(name: &str, sorted: &[f64]) -> String {
    let [p50, p99, p999] = [500, 990, 999].map(|p| at_permille(sorted, p));
    format!("{name:<12} p50 {p50:8.1} us  p99 {p99:8.1} us  p99.9 {p999:8.1} us")
}

/// Runs both engines in turn, several times (`MARGAY_BENCH_ENGINE` names another build of Margay). Measures how much each
/// adds to a round trip, and how fast a large file comes through.
#[test]
#[ignore = "runs in a namespace"]
fn inner_measure() {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let rounds = 3;
    let throughput = |name: &str| {
        let began = Instant::now();
        bench.client.run(|| bench::ask_bulk(&mut connect(at(SERVER4, 80)), 1024));
        let took = began.elapsed().as_secs_f64();
        eprintln!("{name:<12} 1 GiB in {took:.2} s: {:.2} Gbit/s", 8.0 * f64::from(1 << 30) / took / 1e9);
    };
    let margay = || Engine::start(&folder("measure-margay"), RULES, &Bench::settings(1));
    for round in 0..=rounds {
        // The first round uses the offloads of virtual interfaces; the peer cannot forward such packets.
        if round == 1 {
            bench::offloads_off(&bench.client, "c0");
            bench::offloads_off(&bench.server, "s0");
        }
        let e = margay();
        round_trips_of("margay", &bench);
        throughput("margay");
        explained(&e.stop());
        if round == 0 || std::process::Command::new("suricata").arg("-V").output().is_err() {
            continue;
        }
        let dir = folder("measure-peer");
        std::fs::write(dir.join("a.rules"), RULES).expect("rules");
        let mut c = std::process::Command::new("suricata");
        c.arg("-c")
            .arg(bench::peer_settings(&dir))
            .arg("-S")
            .arg(dir.join("a.rules"))
            .args(["--af-packet", "-l"])
            .arg(&dir);
        let e = Engine::run(c, &dir, "Engine started");
        std::thread::sleep(Duration::from_secs(2));
        round_trips_of("suricata", &bench);
        throughput("suricata");
        e.stop();
    }
}

fn round_trips_of(name: &str, bench: &Bench) {
    let to = at(SERVER4, 80);
    bench::round_trips(&bench.client, to, 1000);
    eprintln!("{}", figures(name, &bench::round_trips(&bench.client, to, 20_000)));
}

/// Removes the remains of a bench.
fn no_bench() {
    for i in ["br0", "ia", "ib"] {
        let _ = std::process::Command::new("ip").args(["link", "del", i]).output();
    }
}

/// A kernel bridge in place of the engine, until dropped.
struct KernelBridge;

impl KernelBridge {
    fn new() -> KernelBridge {
        ip("link add br0 type bridge");
        for i in ["ia", "ib"] {
            ip(&format!("link set {i} master br0"));
        }
        ip("link set br0 up");
        KernelBridge
    }
}

impl Drop for KernelBridge {
    fn drop(&mut self) {
        ip("link del br0");
    }
}

/// CPU seconds that a process has used.
fn processor_time(process: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after = text.rsplit(") ").next().unwrap_or_default();
    let ticks: f64 = after.split(' ').skip(11).take(2).filter_map(|w| w.parse::<f64>().ok()).sum();
    ticks / 100.0
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Runs the same downloads through the engine and through a kernel bridge in its place, alternately, over links of all
/// kinds. `MARGAY_BENCH_ENGINE` names another build, `MARGAY_BENCH_ROUNDS` the number of rounds. `MARGAY_BENCH_LINKS` is
/// `clean` for only the lossless links, or `bulk` for only their large downloads. Each pair gives a ratio. The output
/// also has the engine's CPU time, and the CPU time of all processes compared with the bridge's: on a busy machine it
/// shows whether a difference is noise.
#[test]
#[ignore = "runs in a namespace"]
fn inner_harm() {
    let rounds: usize = std::env::var("MARGAY_BENCH_ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(5);
    eprintln!(
        "link                              engine    bridge   engine/bridge (each pair)          cpu s  all/all  drops"
    );
    let one = |name: String, bench: Bench, bad: Option<BadLink>, more: &[&str], run: &dyn Fn(&Ns) -> Duration| {
        let _server = Server::start(&bench.server, 80);
        let (mut times, mut ratios, mut cpu, mut drops) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new(), 0);
        // Both ends are in this process, and so is much of the kernel's work on the path.
        let (mut all, ends) = (Vec::new(), std::process::id());
        for _ in 0..rounds {
            let dir = folder("harm");
            let mut settings = Bench::settings(1);
            more.iter().for_each(|m| settings.extend(["--set".to_owned(), (*m).to_owned()]));
            let e = Engine::start(&dir, RULES, &settings);
            let before = (processor_time(e.id()), processor_time(ends));
            let with = run(&bench.client).as_secs_f64();
            let own = processor_time(e.id()) - before.0;
            let together = own + processor_time(ends) - before.1;
            cpu.push(own);
            explained(&e.stop());
            drops += of_type(&dir, "drop").len();
            let bridge = KernelBridge::new();
            let before = processor_time(ends);
            let without = run(&bench.client).as_secs_f64();
            all.push(together / (processor_time(ends) - before));
            drop(bridge);
            times[0].push(with);
            times[1].push(without);
            ratios.push(with / without);
        }
        let [with, without] = times.map(median);
        let each: Vec<String> = ratios.iter().map(|r| format!("{r:.2}")).collect();
        let (ratio, cpu, all) = (median(ratios), median(cpu), median(all));
        let each = each.join(" ");
        eprintln!("{name:<32} {with:7.2} s {without:7.2} s   {ratio:.3} ({each})  {cpu:6.2}  {all:.3}  {drops}");
        drop((bad, bench));
        no_bench();
    };
    let bulk = |client: &Ns, megabytes: usize| {
        let began = Instant::now();
        client.run(|| bench::ask_bulk(&mut connect(at(SERVER4, 80)), megabytes));
        began.elapsed()
    };
    one("clean, 512 MiB".into(), Bench::new(), None, &[], &|client| bulk(client, 512));
    // A flow that the kernel forwards after its first megabyte.
    let bypass =
        ["af-packet.0.bypass=yes", "af-packet.1.bypass=yes", "stream.bypass=yes", "stream.reassembly.depth=1mb"];
    one("clean, 2 GiB, bypassed".into(), Bench::new(), None, &bypass, &|client| bulk(client, 2048));
    let links = std::env::var("MARGAY_BENCH_LINKS").unwrap_or_default();
    if links == "bulk" {
        return;
    }
    let many = |client: &Ns| downloads(client, SERVER4, 20, 20, 50_000);
    one("clean, 400 x 50 kB".into(), Bench::new(), None, &[], &many);
    if links == "clean" {
        return;
    }
    for (delay, times) in [(0, 20), (5, 3)] {
        let some = move |client: &Ns| downloads(client, SERVER4, 20, times, 50_000);
        for permille in [0, 10, 30, 50] {
            let (bench, bad) = bad_bench([permille; 3], Duration::from_millis(delay));
            let percent = permille as f64 / 10.0;
            one(format!("{percent} % bad, 2 x {delay} ms, {} x 50 kB", 20 * times), bench, Some(bad), &[], &some);
        }
    }
}
