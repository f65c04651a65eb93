//! Faults while the engine is between a client and a server: downloads under way stop for no longer than the fault, none fails, and
//! attacks are stopped afterwards as before. Each test has network namespaces of its own; those that take long are run by
//! `make test-faults`.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
mod bench;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::{
    Bench, Engine, SERVER4, SERVER6, Server, ask, at, connect, folder, ip, last_stats, of_type, query, wait_for,
};

in_namespace! {
    "mgb";
    stopped_for_a_second: inner_stopped,
    killed_and_started_again: inner_killed,
    reloads_under_downloads: inner_reloads,
    an_interface_goes_down_and_up: inner_flaps,
}

/// As `in_namespace`, of tests that take long.
macro_rules! long {
    ($($name:ident: $inner:ident,)*) => {
        $(#[test]
        #[ignore = "takes long: make test-faults"]
        fn $name() {
            namespace::inside("mgb", stringify!($inner));
        })*
    };
}

long! {
    long_stopped_for_five_seconds: inner_stopped_long,
    long_killed_ten_times: inner_killed_often,
    long_a_hundred_reloads: inner_many_reloads,
    long_an_interface_goes_down_and_up_twenty_times: inner_many_flaps,
}

const RULES: &str = "drop udp any any -> any 80 (msg:\"attack\"; content:\"ATTACK\"; sid:1;)\n\
    alert http any any -> any any (msg:\"seen\"; http.user_agent; content:\"bench\"; sid:2;)\n";

/// A client that asks for one thing after the other, on the same connection of each version of IP.
struct Downloads {
    stop: Arc<AtomicBool>,
    done: Arc<[AtomicU64; 2]>,
    threads: Vec<JoinHandle<()>>,
}

impl Downloads {
    fn of(bench: &Bench) -> Downloads {
        Downloads::sized(bench, 100_000, Duration::from_millis(5))
    }

    /// Of so many bytes each, with a pause after each.
    fn sized(bench: &Bench, len: usize, pause: Duration) -> Downloads {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let threads = [SERVER4, SERVER6].into_iter().enumerate().map(|(n, address)| {
            let (stop, done) = (Arc::clone(&stop), Arc::clone(&done));
            bench.client.spawn(move || {
                let mut c = connect(at(address, 80));
                let mut seed = 0;
                while !stop.load(Ordering::Relaxed) {
                    ask(&mut c, seed, len).unwrap_or_else(|e| panic!("{address}: {e}"));
                    seed += 1;
                    done[n].fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(pause);
                }
            })
        });
        let threads = threads.collect();
        Downloads { stop, done, threads }
    }

    /// Waits until both have got so many more.
    fn go_on(&self, more: u64) {
        let now = || self.done.each_ref().map(|d| d.load(Ordering::Relaxed));
        let want = now().map(|n| n + more);
        wait_for("downloads go on", || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a download failed");
            now().iter().zip(&want).all(|(n, w)| n >= w)
        });
    }

    /// Ends them; none failed.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().expect("each download was whole"));
    }
}

fn signal(e: &Engine, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(e.id().to_string()).status();
    assert!(sent.expect("kill").success());
}

/// All is as before the fault: attacks do not arrive, what is harmless does, and what was lost is explained.
fn recovered(bench: &Bench, e: Engine) {
    bench.client.run(|| {
        assert_eq!(query(at(SERVER4, 80), "an ATTACK", 2).expect("no error"), None);
        assert_eq!(query(at(SERVER4, 80), "a question", 30).expect("no error").as_deref(), Some("a question"));
    });
    let said = e.stop();
    let explained = |words: &str| said.iter().any(|l| l.contains(words));
    assert!(explained("inspected = sent + dropped + lost") && explained("received = inspected + lost"), "{said:#?}");
    assert!(!explained("panicked") && !explained("cannot be explained"), "{said:#?}");
}

/// Nothing was dropped but attacks.
fn nothing_harmless_dropped(dir: &Path) {
    let drops = of_type(dir, "drop");
    let reasons: Vec<_> = drops.iter().map(|d| d["drop"]["reason"].as_str().unwrap_or_default()).collect();
    assert!(reasons.iter().all(|r| ["rules", "flow drop"].contains(r)), "{drops:#?}");
    assert_eq!(last_stats(dir)["ips"]["drop_reason"]["stream_error"], 0);
}

fn stopped(name: &str, time: Duration) {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let dir = folder(name);
    let e = Engine::start(&dir, RULES, &Bench::settings(2));
    let downloads = Downloads::of(&bench);
    downloads.go_on(3);
    signal(&e, "STOP");
    std::thread::sleep(time);
    signal(&e, "CONT");
    downloads.go_on(3);
    downloads.end();
    recovered(&bench, e);
    nothing_harmless_dropped(&dir);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_stopped() {
    stopped("faults-inline-stopped", Duration::from_secs(1));
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_stopped_long() {
    stopped("faults-inline-stopped-long", Duration::from_secs(5));
}

fn killed(name: &str, times: usize) {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let mut dir = folder(&format!("{name}-0"));
    let mut e = Engine::start(&dir, RULES, &Bench::settings(2));
    let downloads = Downloads::of(&bench);
    for n in 1..=times {
        downloads.go_on(3);
        signal(&e, "KILL");
        drop(e);
        // Connections that are open are no reason to drop anything.
        dir = folder(&format!("{name}-{n}"));
        e = Engine::start(&dir, RULES, &Bench::settings(2));
    }
    downloads.go_on(3);
    downloads.end();
    recovered(&bench, e);
    nothing_harmless_dropped(&dir);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_killed() {
    killed("faults-inline-killed", 1);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_killed_often() {
    killed("faults-inline-killed-often", 10);
}

fn reloads(name: &str, times: usize) {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let dir = folder(name);
    let mut e = Engine::start(&dir, RULES, &Bench::settings(2));
    let downloads = Downloads::of(&bench);
    for _ in 0..times {
        downloads.go_on(1);
        signal(&e, "USR2");
        assert!(e.until("rule reload complete"), "{:?}", e.all);
    }
    downloads.go_on(1);
    downloads.end();
    recovered(&bench, e);
    nothing_harmless_dropped(&dir);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_reloads() {
    reloads("faults-inline-reloads", 5);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_many_reloads() {
    reloads("faults-inline-many-reloads", 100);
}

/// What came large is not taken for something else, nobody waits busily, and nothing harmless is dropped.
fn flaps(name: &str, times: usize) {
    let bench = Bench::new();
    let _server = Server::start(&bench.server, 80);
    let dir = folder(name);
    let mut e = Engine::start(&dir, RULES, &Bench::settings(2));
    // Without a pause: something is always on its way.
    let downloads = Downloads::sized(&bench, 2_000_000, Duration::ZERO);
    for n in 0..times {
        downloads.go_on(1);
        let interface = if n % 2 == 0 { "ib" } else { "ia" };
        ip(&format!("link set {interface} down"));
        assert!(e.until("went down"), "{:?}", e.all);
        ip(&format!("link set {interface} up"));
        assert!(e.until("is up again"), "{:?}", e.all);
    }
    downloads.go_on(2);
    downloads.end();
    // Nothing comes: nobody looks for it more often than needs be.
    let polls = || e.counters()["capture"]["afpacket"]["polls"].as_u64().expect("a count");
    let (before, began) = (polls(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (made, took) = (polls() - before, began.elapsed());
    // Two workers, each of which asks for two interfaces.
    assert!(made <= 4 * (took.as_millis() / 5) as u64 + 200, "{made} polls in {took:?}");
    recovered(&bench, e);
    nothing_harmless_dropped(&dir);
    let stats = last_stats(&dir);
    let capture = &stats["capture"];
    let of = &capture["afpacket"];
    assert_eq!((&of["truncated"], &of["unreadable"]), (&0.into(), &0.into()), "{of}");
    assert_eq!(capture["engine"]["lost"], 0, "{capture}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_flaps() {
    flaps("faults-inline-flaps", 2);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_many_flaps() {
    flaps("faults-inline-many-flaps", 20);
}
