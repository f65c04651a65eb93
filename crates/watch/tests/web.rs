//! The live page and its data as a client finds them: over a socket, and in a browser.
#![allow(clippy::expect_used, reason = "a test fails by it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use margay_watch::Hub;
use margay_watch::model::{About, Memory, Sample, WorkerSample};
use margay_watch::web::{Access, CLIENTS_MAX, REQUEST_MAX, serve};

const TOKEN: &str = "0123456789abcdef";

fn sample(n: u64) -> Sample {
    let counters = vec![
        ("decoder.pkts".to_owned(), n * 1000),
        ("decoder.bytes".to_owned(), n * 700_000),
        ("detect.alert".to_owned(), n),
        ("flow.active".to_owned(), 42),
        ("app_layer.flow.http".to_owned(), n),
    ];
    let lost = vec![("capture.kernel_packets".to_owned(), n * 1000), ("capture.kernel_drops".to_owned(), n * 3)];
    Sample {
        at: Instant::now(),
        time: 1_700_000_000_000 + n * 1000,
        uptime: n,
        about: About {
            version: "0.1.0".into(),
            mode: "workers".into(),
            interfaces: vec!["eth0".into()],
            ..About::default()
        },
        totals: counters.clone(),
        workers: vec![WorkerSample {
            name: "W#01-eth0".into(),
            interface: "eth0".into(),
            cpu: Duration::from_millis(n * 300),
            counters,
            memory: vec![Memory { name: "flow.memcap".into(), used: 5 << 20, cap: 128 << 20 }],
        }],
        interfaces: vec![("eth0".into(), lost)],
        process_cpu: Duration::from_millis(n * 500),
        resident: 300 << 20,
        rules: Vec::new(),
        late: 0,
    }
}

fn alert(n: u64) -> String {
    format!(
        "{{\"timestamp\":\"2026-01-02T03:04:05.000000+0000\",\"flow_id\":{n},\"event_type\":\"alert\",\"src_ip\":\"10.0.0.1\",\"src_port\":40000,\
         \"dest_ip\":\"10.0.0.2\",\"dest_port\":80,\"proto\":\"TCP\",\"app_proto\":\"http\",\"alert\":{{\"action\":\"allowed\",\"gid\":1,\
         \"signature_id\":{},\"rev\":1,\"signature\":\"alert <b>number</b> {n}\",\"category\":\"\",\"severity\":{},\"rule\":\"alert tcp any any -> any any\"}},\
         \"flow\":{{\"pkts_toserver\":1,\"pkts_toclient\":1,\"bytes_toserver\":60,\"bytes_toclient\":60,\"start\":\"s\",\"src_ip\":\"10.0.0.1\",\
         \"dest_ip\":\"10.0.0.2\"}},\"packet\":\"R0VUIC8gSFRUUC8xLjE=\"}}\n",
        2_000_000 + n % 7,
        1 + n % 3
    )
}

/// Runs `test` against a server of its own that has a few samples and alerts.
fn served(token: Option<&str>, test: impl FnOnce(SocketAddr, &Hub)) {
    let hub = Hub::default();
    hub.always();
    for n in 0..20 {
        hub.take(sample(n));
        hub.feed().lines(alert(n).as_bytes());
        hub.feed().alert(1, 2_000_000, None);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = listener.local_addr().expect("its address");
    let access = Access { listen, token: token.map(str::to_owned) };
    let stop = AtomicBool::new(false);
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|s| {
        s.spawn(|| serve(&listener, &hub, &access, &|_| false, &|| stop.load(Ordering::Relaxed)));
        // The guard stops the server even if the test fails.
        let _stop = Stop(&stop);
        test(listen, &hub);
    });
}

/// Sends bytes, and reads until the connection is closed: status, head, body.
fn raw(to: SocketAddr, bytes: &[u8]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit of time");
    stream.write_all(bytes).expect("it is sent");
    let mut all = Vec::new();
    // Unread data may reset the connection; the answer came before.
    let _ = stream.read_to_end(&mut all);
    let all = String::from_utf8_lossy(&all).into_owned();
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, head.to_owned(), body.to_owned())
}

fn get(to: SocketAddr, path: &str, more: &str) -> (u16, String, String) {
    raw(to, format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{more}\r\n").as_bytes())
}

#[test]
fn every_file_of_the_page_is_served_under_a_strict_policy() {
    served(Some(TOKEN), |to, _| {
        let (status, head, page) = get(to, "/", "");
        assert_eq!(status, 200);
        let mut files: Vec<String> = vec!["/".into()];
        for part in page.split("href=\"").skip(1).chain(page.split("src=\"").skip(1)) {
            let name = part.split('"').next().unwrap();
            assert!(!name.contains("//"), "{name} is of elsewhere");
            if !name.starts_with('#') && name != "metrics" {
                files.push(format!("/{name}"));
            }
        }
        files.extend(["/graph.js".into(), "/alerts.js".into()]);
        assert!(files.len() >= 6);
        for f in &files {
            let (status, head, body) = get(to, f, "");
            assert_eq!(status, 200, "{f}");
            assert!(!body.contains("http://") || f.ends_with(".svg") || f.ends_with("graph.js"), "{f} asks elsewhere");
            assert!(!body.contains("innerHTML") && !body.contains("style=\""), "{f}");
            assert!(head.contains("default-src 'none'") && head.contains("nosniff"), "{f}: {head}");
        }
        assert!(head.contains("frame-ancestors 'none'") && !head.contains("unsafe"));
        assert_eq!(get(to, "/../Cargo.toml", &format!("Authorization: Bearer {TOKEN}\r\n")).0, 404);
    });
}

#[test]
fn a_token_is_wanted_where_one_is_set() {
    served(Some(TOKEN), |to, _| {
        for path in ["/api/snapshot", "/api/history", "/api/alerts", "/metrics"] {
            let (status, head, body) = get(to, path, "");
            assert_eq!(status, 401, "{path}");
            assert!(head.contains("WWW-Authenticate: Bearer") && !body.contains("eth0"));
            assert_eq!(get(to, path, "Authorization: Bearer 0123456789abcdeg\r\n").0, 401);
            assert_eq!(get(to, path, &format!("Authorization: Basic {TOKEN}\r\n")).0, 401);
            assert_eq!(get(to, path, &format!("Authorization: Bearer {TOKEN}\r\n")).0, 200, "{path}");
        }
    });
    served(None, |to, _| {
        assert_eq!(get(to, "/api/snapshot", "").0, 200);
        let foreign = raw(to, b"GET /api/snapshot HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
        assert_eq!(foreign.0, 421, "a foreign page asks by way of a browser");
        assert_eq!(raw(to, b"GET /api/snapshot HTTP/1.1\r\nConnection: close\r\n\r\n").0, 421);
    });
}

#[test]
fn data_is_json_and_metrics_are_metrics() {
    served(None, |to, _| {
        let json = |path: &str| -> serde_json::Value { serde_json::from_str(&get(to, path, "").2).unwrap() };
        let s = json("/api/snapshot");
        assert_eq!((&s["about"]["version"], &s["totals"]["packets"]), (&"0.1.0".into(), &19_000.into()));
        assert_eq!(s["stages"][0]["stage"], "queue");
        let history = json("/api/history");
        assert_eq!(history.as_array().unwrap().len(), 19);
        let later = json(&format!("/api/history?since={}", history[16]["t"]));
        assert_eq!(later.as_array().unwrap().len(), 2);
        let alerts = json("/api/alerts?since=5&limit=3");
        let numbers: Vec<u64> = alerts.as_array().unwrap().iter().map(|a| a["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [18, 19, 20]);
        assert_eq!(alerts[0]["event"]["alert"]["rule"], "alert tcp any any -> any any");
        let (_, head, text) = get(to, "/metrics", "");
        assert!(head.contains("text/plain; version=0.0.4") && text.contains("margay_decoder_pkts_total{"));
        let (_, head, text) = get(to, "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
        assert!(head.contains("application/openmetrics-text") && text.ends_with("# EOF\n"));
    });
}

#[test]
fn nothing_is_changed_and_nobody_takes_more_than_their_share() {
    served(None, |to, _| {
        assert_eq!(raw(to, b"POST /api/snapshot HTTP/1.1\r\nHost: localhost\r\n\r\n").0, 405);
        assert_eq!(raw(to, &[b'a'; REQUEST_MAX + 4096]).0, 431);
        let (status, head, body) =
            raw(to, b"HEAD /api/snapshot HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(status == 200 && body.is_empty() && !head.contains("Content-Length: 0"));
        // Two requests, one connection.
        let two =
            b"GET /api/history HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/history HTTP/1.0\r\nHost: localhost\r\n\r\n";
        assert!(raw(to, two).2.contains("HTTP/1.1 200 OK"));
        let silent: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| TcpStream::connect(to).unwrap()).collect();
        let refused = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            get(to, "/", "").0 == 503
        });
        assert!(refused, "so many at a time and no more");
        drop(silent);
        let served = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            get(to, "/", "").0 == 200
        });
        assert!(served, "those that are gone make room");
    });
}

/// The page's content once it shows all of `words`; a busy machine may take several tries.
fn shown(to: SocketAddr, hash: &str, words: &[&str]) -> Option<String> {
    let mut page = browser(to, hash)?;
    for _ in 0..9 {
        if words.iter().all(|w| page.contains(w)) {
            break;
        }
        page = browser(to, hash)?;
    }
    for word in words {
        assert!(page.contains(word), "{word} is not in\n{page}");
    }
    Some(page)
}

/// The page's content after it ran in a browser.
fn browser(to: SocketAddr, hash: &str) -> Option<String> {
    let Some(program) =
        ["chromium", "chromium-browser"].into_iter().find(|p| Command::new(p).arg("--version").output().is_ok())
    else {
        margay_testing::not_run("there is no chromium (Debian's package chromium)");
        return None;
    };
    let home = tempfile::tempdir().expect("a folder");
    let out = Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=4000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(format!("http://{to}/{hash}"))
        .output()
        .expect("the browser runs");
    Some(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs `test` while samples are taken as an engine takes them: a browser on a busy machine may start after the first samples
/// are too old to be shown.
fn sampled(hub: &Hub, test: impl FnOnce()) {
    let (done, stop) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|s| {
        s.spawn(move || {
            let second = Duration::from_secs(1);
            while matches!(stop.recv_timeout(second), Err(std::sync::mpsc::RecvTimeoutError::Timeout)) {
                hub.take(sample(19));
            }
        });
        test();
        drop(done);
    });
}

#[test]
fn a_browser_shows_the_page() {
    served(Some(TOKEN), |to, hub| {
        sampled(hub, || {
            let words =
                ["W#01-eth0", "flow.memcap", "class=\"curve\"", "up 00:00:19", "Open flows", "id=\"login\" hidden"];
            let Some(_) = shown(to, &format!("#token={TOKEN}"), &words) else { return };
            let Some(refused) = browser(to, "") else { return };
            assert!(!refused.contains("id=\"login\" hidden") && !refused.contains("W#01-eth0"), "{refused}");
        });
    });
    served(None, |to, hub| {
        sampled(hub, || {
            // Text from traffic is escaped.
            let _ = shown(to, "#alerts", &["20 of the last 20 alerts", "alert &lt;b&gt;number&lt;/b&gt; 19"]);
            let _ = shown(to, "#health", &["eth0 queue: 57", "nfq.queue-length"]);
        });
    });
}
