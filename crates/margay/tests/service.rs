//! Running as a service: in the background, as another user with minimal rights, with a watchdog, reporting to systemd.
//! Tests with interfaces run in network namespaces. Tests that need root report it if they do not have it.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

#[macro_use]
#[path = "../../capture/tests/common/namespace.rs"]
mod namespace;
#[path = "service/engine.rs"]
mod engine;

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Engine, frames, is_root, place, run, wait};
use namespace::{ip, pair};
use serde_json::Value;

in_namespace! {
    "mgs";
    an_interface_with_few_rights: inner_restricted,
    af_xdp_with_few_rights: inner_xdp,
    bypass_with_few_rights: inner_bypass,
    a_queue_with_few_rights: inner_queue,
    a_stuck_worker_is_told: inner_stuck,
}

/// Another user, without a name or files of its own.
const USER: &str = "61234";
const GROUP: &str = "61235";

const RULES: &str = "alert udp any any -> any 53 (msg:\"lookup\"; sid:1;)\n\
    alert http any any -> any any (msg:\"file\"; filestore; sid:2;)\n\
    alert http any any -> any any (msg:\"pattern\"; http.uri; pcre:\"/.+/\"; sid:3;)\n";

/// Every kind of output, in a folder for `USER`.
const OUTPUTS: &str = "
default-log-dir: DIR/log
pid-file: DIR/m.pid
stats: {enabled: yes, interval: 1}
unix-command: {enabled: yes, filename: DIR/run/s.sock}
default-rule-path: DIR
rule-files: [a.rules]
logging:
  outputs:
    - console: {enabled: yes}
    - file: {enabled: yes, filename: engine.log, level: info}
outputs:
  - fast: {enabled: yes, filename: fast.log}
  - eve-log: {enabled: yes, filename: eve.json, types: [alert, http, dns, {files: {force-magic: yes}}, flow, {stats: {totals: yes}}]}
  - stats: {enabled: yes, filename: stats.log}
  - pcap-log: {enabled: yes, filename: log.%n.pcap}
  - file-store: {version: 2, enabled: yes, force-filestore: yes}
app-layer:
  protocols: {http: {enabled: yes}, dns: {udp: {enabled: yes}, tcp: {enabled: yes}}, tls: {enabled: yes}}
datasets:
  seen: {type: string, state: seen.lst}
data-dir: DIR/data
security:
  limit-noproc: yes
  landlock: {enabled: yes}
  seccomp: {enabled: yes, action: kill}
";

fn configure(dir: &Path, text: &str) {
    let text = format!("%YAML 1.1\n---\n{text}").replace("DIR", &dir.display().to_string());
    std::fs::write(dir.join("m.yaml"), text).expect("a configuration");
    std::fs::write(dir.join("a.rules"), RULES).expect("rules");
}

/// A folder with a configuration, and subfolders for `USER`.
fn restricted(name: &str) -> PathBuf {
    let dir = place(name);
    configure(&dir, OUTPUTS);
    for sub in ["log", "data"] {
        std::fs::create_dir(dir.join(sub)).expect("a folder");
        let (user, group) = (USER.parse().ok(), GROUP.parse().ok());
        std::os::unix::fs::chown(dir.join(sub), user, group).expect("root gives it away");
    }
    dir
}

fn events(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("log/eve.json")).unwrap_or_default();
    text.lines().map(|l| serde_json::from_str(l).expect("an event")).collect()
}

fn alerts(dir: &Path, sid: u64) -> usize {
    events(dir).iter().filter(|e| e["alert"]["signature_id"] == sid).count()
}

/// The name of each thread, and one of its files in /proc.
fn tasks(pid: u32, file: &str) -> Vec<(String, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
    let read = |t: &std::fs::DirEntry, file: &str| std::fs::read_to_string(t.path().join(file)).unwrap_or_default();
    tasks.map(|t| (read(&t, "comm").trim().to_owned(), read(&t, file))).filter(|t| !t.1.is_empty()).collect()
}

fn field<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim()
}

/// Checks that every thread runs as the user, with minimal rights. `capability` is the set that workers keep.
fn has_few_rights(pid: u32, workers: usize, capability: &str) {
    let all = tasks(pid, "status");
    let ids = |id: &str| [id; 4].join("\t");
    for (name, status) in &all {
        let of = |field_name: &str| field(status, field_name);
        assert_eq!((of("Uid"), of("Gid"), of("Groups")), (&*ids(USER), &*ids(GROUP), GROUP), "{name}");
        let kept = match &**name {
            n if n.starts_with("W#") => capability,
            // CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON
            "bypass" => "000000c000001000",
            _ => "0000000000000000",
        };
        assert_eq!((of("CapPrm"), of("CapEff")), (kept, kept), "{name}");
        for set in ["CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(of(set), "0000000000000000", "{name}: {set}");
        }
        assert_eq!((of("NoNewPrivs"), of("Seccomp")), ("1", "2"), "{name}");
    }
    assert_eq!(all.iter().filter(|(name, _)| name.starts_with("W#")).count(), workers, "{all:?}");
}

fn traffic() -> Vec<Vec<u8>> {
    let root = engine::root();
    [frames(&root.join("crates/margay/tests/lua/packets.pcap")), frames(&root.join("demo/demo.pcap"))].concat()
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_restricted() {
    pair("va", "vb", "");
    let dir = restricted("live");
    let (user, group) = (format!("--user={USER}"), format!("--group={GROUP}"));
    let pidfile = format!("--pidfile={}", dir.join("pid/m.pid").display());
    std::fs::create_dir(dir.join("pid")).expect("a folder of root's");
    let cpus = |what: &str| format!("threading.cpu-affinity.worker-cpu-set.{what}");
    let sets = [
        "af-packet.0.interface=vb".to_owned(),
        "af-packet.0.threads=2".to_owned(),
        "threading.set-cpu-affinity=yes".to_owned(),
        cpus("cpu.0=0"),
        cpus("prio.default=high"),
    ];
    let set = sets.iter().flat_map(|s| ["--set", s]);
    let more: Vec<&str> = ["--af-packet=vb", &user, &group, &pidfile].into_iter().chain(set).collect();
    let mut e = Engine::start(&dir, &more);
    let pid = e.child.id();
    // CAP_NET_RAW
    has_few_rights(pid, 2, "0000000000002000");
    // CPUs and priority match the configuration, although only root may set such a priority.
    for (name, stat) in tasks(pid, "stat").into_iter().filter(|t| t.0.starts_with("W#")) {
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(fields[16], "-2", "{name}: {stat}");
    }
    for (name, status) in tasks(pid, "status").into_iter().filter(|t| t.0.starts_with("W#")) {
        assert_eq!(field(&status, "Cpus_allowed_list"), "0", "{name}");
    }
    assert_eq!(std::fs::read_to_string(dir.join("pid/m.pid")).expect("a pid file").trim(), pid.to_string());
    let sent = traffic();
    let mut sender = engine::Sender::on("va");
    sender.send(&sent);
    e.decoded(sent.len() as u64);
    // The user owns the socket, in a folder that was created for it.
    let socket = std::fs::metadata(dir.join("run/s.sock")).expect("a socket");
    assert_eq!(
        (socket.uid().to_string(), socket.gid().to_string(), socket.mode() & 0o777),
        (USER.into(), GROUP.into(), 0o660)
    );
    assert_eq!(e.ask(&["capture-mode"]), "AF_PACKET_DEV");
    assert_eq!(e.ask(&["running-mode"]), "workers");
    assert_eq!(e.ask(&["dataset-add", "seen", "string", "YWJj"]), "data added");
    assert_eq!(e.ask(&["dataset-dump"]), "datasets dump done");
    assert!(std::fs::read_to_string(dir.join("data/seen.lst")).is_ok_and(|t| t.contains("YWJj")));
    // A reload by signal and by command, and one with unreadable rules.
    std::fs::write(
        dir.join("a.rules"),
        RULES.to_owned() + "alert udp any any -> any 53 (msg:\"new\"; dsize:>0; sid:9;)\n",
    )
    .expect("rules");
    e.signal("USR2");
    assert!(e.until("rule reload complete"), "{:?}", e.all);
    assert_eq!(e.ask(&["reload-rules"]), "done");
    // The user moves the logs away, and the engine creates new ones.
    let files = ["eve.json", "fast.log", "stats.log", "engine.log"];
    for f in files {
        std::fs::rename(dir.join("log").join(f), dir.join("log").join(format!("{f}.1"))).expect("it is there");
    }
    e.signal("HUP");
    wait("logs are made anew", || files.iter().all(|f| dir.join("log").join(f).exists()));
    for f in files {
        assert_eq!(std::fs::metadata(dir.join("log").join(f)).expect("a log").uid().to_string(), USER, "{f}");
    }
    assert_eq!(e.ask(&["reopen-log-files"]), "done");
    // An interface that disappears and returns is reopened.
    assert!(ip("link del vb"));
    assert!(e.until("is gone"), "{:?}", e.all);
    pair("va", "vb", "");
    assert!(e.until("is up again"), "{:?}", e.all);
    wait("all workers have it", || e.ask(&["dump-counters"])["capture"]["afpacket"]["reopened"].as_u64() >= Some(2));
    let before = e.ask(&["dump-counters"])["decoder"]["pkts"].as_u64().unwrap_or(0);
    engine::Sender::on("va").send(&sent);
    e.decoded(before + sent.len() as u64);
    has_few_rights(pid, 2, "0000000000002000");
    assert_eq!(e.ask(&["dump-counters"])["watchdog"]["stuck"], 0);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(0), "{words:?}");
    let refused = ["Permission denied", "not permitted", "not restricted"];
    assert!(!words.iter().any(|l| refused.iter().any(|r| l.contains(r))), "{words:?}");
    assert!(alerts(&dir, 9) > 0, "the new rule after the rotation");
    let before = std::fs::read_to_string(dir.join("log/eve.json.1")).expect("what was moved away");
    assert!(
        before.ends_with('\n') && before.contains("\"signature_id\":3,") && !before.contains("\"signature_id\":9,")
    );
    let pcap = std::fs::read_dir(dir.join("log")).expect("logs").flatten();
    assert!(pcap.filter(|f| f.file_name().to_string_lossy().starts_with("log.")).count() >= 1);
    let mut stored = engine::files_below(&dir.join("log/filestore"));
    stored.retain(|f| !f.contains("/filestore/tmp/"));
    assert!(!stored.is_empty());
    // Its folder belongs to root: a file that cannot be removed is emptied.
    assert_eq!(std::fs::read_to_string(dir.join("pid/m.pid")).unwrap_or_default(), "");
}

/// Checks that the engine reports no refused operation.
fn was_refused_nothing(words: &[String]) {
    let refused = ["Permission denied", "not permitted", "not restricted", "cannot be", "are needed"];
    assert!(!words.iter().any(|l| refused.iter().any(|r| l.contains(r))), "{words:?}");
    assert!(words.iter().any(|l| l.contains("received = inspected + lost")), "{words:?}");
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_xdp() {
    pair("va", "vb", "");
    let dir = restricted("xdp");
    let (user, group) = (format!("--user={USER}"), format!("--group={GROUP}"));
    let set = ["af-xdp.0.interface=vb", "af-xdp.0.threads=1", "af-xdp.0.gro-flush-timeout=1000"];
    let more: Vec<&str> =
        ["--af-xdp=vb", &user, &group].into_iter().chain(set.iter().flat_map(|s| ["--set", s])).collect();
    let flush = || std::fs::read_to_string("/sys/class/net/vb/gro_flush_timeout").expect("a setting").trim().to_owned();
    // CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_BPF
    let kept = "0000008000007000";
    let sent = traffic();
    for gone in [false, true] {
        let before = flush();
        let mut e = Engine::start(&dir, &more);
        has_few_rights(e.child.id(), 1, kept);
        assert_eq!(flush(), "1000");
        engine::Sender::on("va").send(&sent);
        e.decoded(sent.len() as u64);
        if gone {
            assert!(ip("link del vb"));
            assert!(e.until("is gone"), "{:?}", e.all);
            pair("va", "vb", "");
            assert!(e.until("is up again"), "{:?}", e.all);
            engine::Sender::on("va").send(&sent);
            e.decoded(2 * sent.len() as u64);
            has_few_rights(e.child.id(), 1, kept);
        }
        let (status, words) = e.stop();
        assert_eq!(status.code(), Some(0), "{words:?}");
        was_refused_nothing(&words);
        assert_eq!(flush(), before, "it was put back");
    }
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_bypass() {
    pair("va", "vb", "");
    let dir = restricted("bypass");
    let rule = "alert udp any any -> any 53 (msg:\"enough\"; bypass; sid:1;)\n";
    std::fs::write(dir.join("a.rules"), rule).expect("rules");
    let (user, group) = (format!("--user={USER}"), format!("--group={GROUP}"));
    let set = ["af-packet.0.interface=vb", "af-packet.0.threads=1", "af-packet.0.bypass=yes"];
    let more: Vec<&str> =
        ["--af-packet=vb", &user, &group].into_iter().chain(set.iter().flat_map(|s| ["--set", s])).collect();
    let mut e = Engine::start(&dir, &more);
    let pid = e.child.id();
    // CAP_NET_RAW, CAP_BPF
    let kept = "0000008000002000";
    wait("the thread has little", || {
        tasks(pid, "status").iter().any(|(n, s)| n == "bypass" && field(s, "CapEff") == "000000c000001000")
    });
    has_few_rights(pid, 1, kept);
    let lookup = |port: u16| {
        let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0];
        f.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend(port.to_be_bytes());
        f.extend([0, 53, 0, 20, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
        f
    };
    for (n, port) in [(1, 4000), (2, 4001)] {
        if n == 2 {
            // The BPF program returns with the interface; a thread that has the rights loads it.
            assert!(ip("link del vb"));
            assert!(e.until("is gone"), "{:?}", e.all);
            pair("va", "vb", "");
            assert!(e.until("are bypassed in the kernel again"), "{:?}", e.all);
            wait("the socket is back", || e.ask(&["dump-counters"])["capture"]["afpacket"]["reopened"] == 1);
        }
        let mut sender = engine::Sender::on("va");
        sender.send(&[lookup(port)]);
        wait("the flow is entered", || e.ask(&["dump-counters"])["capture"]["bypass"]["flows"] == n);
        sender.send(&vec![lookup(port); 100]);
        wait("they are counted", || e.ask(&["iface-stat", "vb"])["bypassed"].as_u64() == Some(n * 100));
    }
    assert_eq!(e.ask(&["dump-counters"])["decoder"]["pkts"], 2);
    has_few_rights(pid, 1, kept);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(0), "{words:?}");
    was_refused_nothing(&words);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_queue() {
    assert!(ip("link set lo up"));
    let filter = ["-A", "INPUT", "-p", "udp", "--dport", "53", "-j", "NFQUEUE", "--queue-num", "3"];
    assert!(std::process::Command::new("iptables").args(filter).status().expect("iptables").success());
    let dir = restricted("queue");
    let rule = "reject udp any any -> any 53 (msg:\"no\"; content:\"evil\"; sid:1;)\n";
    std::fs::write(dir.join("a.rules"), rule).expect("rules");
    let e = Engine::start(&dir, &["-q", "3", &format!("--user={USER}"), &format!("--group={GROUP}")]);
    // CAP_NET_ADMIN
    has_few_rights(e.child.id(), 1, "0000000000001000");
    let server = std::net::UdpSocket::bind("127.0.0.1:53").expect("a socket");
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    client.connect("127.0.0.1:53").expect("a socket");
    for s in [&server, &client] {
        s.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    }
    let mut bytes = [0; 100];
    client.send(b"good").expect("it is sent");
    assert_eq!(server.recv(&mut bytes).expect("it comes"), 4);
    client.send(b"evil").expect("it is sent");
    // The response of `reject`: unreachable.
    let refused = client.recv(&mut bytes).expect_err("nobody answers");
    assert_eq!(refused.kind(), std::io::ErrorKind::HostUnreachable);
    e.decoded(2);
    assert_eq!(e.ask(&["dump-counters"])["capture"]["kernel_packets"], 2);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(0), "{words:?}");
    was_refused_nothing(&words);
}

#[test]
#[ignore = "runs in a namespace"]
fn inner_stuck() {
    pair("va", "vb", "");
    let dir = place("stuck");
    let more = "\n  - lua: {enabled: yes, scripts-dir: DIR, scripts: [wait.lua]}";
    let text = OUTPUTS.replace("\napp-layer", &format!("{more}\napp-layer"));
    configure(&dir, &text);
    std::fs::create_dir(dir.join("log")).expect("a folder");
    let fifo = dir.join("log/fifo");
    margay_testing::named_pipe(&fifo);
    // Opening a pipe without a writer blocks.
    std::fs::write(
        dir.join("wait.lua"),
        format!(
            "function init() return {{type = 'packet', filter = 'alerts'}} end\nfunction setup() end\nfunction log() local f = \
             io.open('{}', 'r') f:read('a') f:close() end\nfunction deinit() end\n",
            fifo.display()
        ),
    )
    .expect("a script");
    let listen = UnixDatagram::bind(dir.join("notify")).expect("a socket");
    listen.set_read_timeout(Some(Duration::from_secs(4))).expect("a time");
    let interface = ["--af-packet=vb", "--runmode", "single"];
    let set = |seconds: &str, action: &str| {
        [format!("margay.watchdog.seconds={seconds}"), format!("margay.watchdog.action={action}")]
    };
    let lookup = frames(&engine::root().join("demo/demo.pcap")).into_iter().take(1).collect::<Vec<_>>();
    let begin = |seconds: &str, action: &str| {
        let [a, b] = set(seconds, action);
        let more: Vec<&str> = interface.iter().copied().chain(["--set", &a, "--set", &b]).collect();
        Engine::start_with(&dir, &more, |c| {
            c.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "2000000");
        })
    };
    // The log names the current step. systemd is not notified until the step ends.
    let mut e = begin("2", "log");
    engine::Sender::on("va").send(&lookup);
    assert!(e.until("has not gone on for 2 s"), "{:?}", e.all);
    let words = e.all.last().cloned().unwrap_or_default();
    assert!(words.contains("W#01-vb") && words.contains("wait.lua") && words.contains("waits in"), "{words}");
    let mut heard = engine::Notifications::new(&listen);
    heard.drain();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(heard.drain().is_empty(), "silence");
    // Open the pipe for writing.
    let writer = std::fs::OpenOptions::new().write(true).open(&fifo).expect("it is waited for");
    drop(writer);
    assert!(e.until("goes on, after"), "{:?}", e.all);
    assert!(heard.until("WATCHDOG=1"));
    wait("it is counted", || e.ask(&["dump-counters"])["watchdog"]["stuck"] == 1);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(0), "{words:?}");
    let last = events(&dir).into_iter().rfind(|e| e["event_type"] == "stats").expect("statistics");
    assert_eq!(last["stats"]["watchdog"]["stuck"], 1);
    // A stuck start does not delay the end.
    let mut e = begin("2", "log");
    engine::Sender::on("va").send(&lookup);
    assert!(e.until("has not gone on"), "{:?}", e.all);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(1), "{words:?}");
    assert!(words.iter().any(|l| l.contains("does not wait for it any longer")), "{words:?}");
    // A second signal ends the process at once.
    let mut e = begin("600", "log");
    engine::Sender::on("va").send(&lookup);
    wait("it is stuck", || e.ask(&["dump-counters"]).as_str().is_some_and(|t| t.contains("did not answer")));
    e.signal("TERM");
    assert!(e.until("Stopping engine"), "{:?}", e.all);
    let (status, words) = e.stop();
    assert_eq!(status.code(), Some(1), "{words:?}");
    // The watchdog aborts the process if so configured.
    let mut e = begin("1", "abort");
    engine::Sender::on("va").send(&lookup);
    assert!(e.until("margay.watchdog.action: abort"), "{:?}", e.all);
    let status = e.child.wait().expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6));
}

#[test]
fn a_file_with_few_rights() {
    if !is_root() {
        return;
    }
    let dir = restricted("file");
    let capture = dir.join("a.pcap");
    std::fs::copy(engine::root().join("crates/margay/tests/lua/packets.pcap"), &capture).expect("a capture");
    let file = capture.display().to_string();
    let o = run(&dir, &["-r", &file, "--user", USER, "--group", GROUP]);
    assert_eq!(o.0, Some(0), "{}", o.1);
    assert!(o.1.contains(&format!("running as user {USER}")) && o.1.contains("files are restricted"), "{}", o.1);
    let count = |e: &str| events(&dir).iter().filter(|v| v["event_type"] == e).count();
    let got = ["alert", "http", "dns", "fileinfo", "flow"].map(count);
    assert!(got.iter().all(|n| *n > 0), "{got:?}");
    assert!(!engine::files_below(&dir.join("log/filestore")).is_empty());
    // The result is the same as without.
    let other = place("file-free");
    configure(
        &other,
        &OUTPUTS.replace("landlock: {enabled: yes}", "").replace("seccomp: {enabled: yes", "seccomp: {enabled: no"),
    );
    std::fs::create_dir(other.join("log")).expect("a folder");
    let o = run(&other, &["-r", &file]);
    assert_eq!(o.0, Some(0), "{}", o.1);
    let plain = ["alert", "http", "dns", "fileinfo", "flow"]
        .map(|e| events(&other).iter().filter(|v| v["event_type"] == e).count());
    assert_eq!(got, plain);
    // Files that are not configured are not read: another folder's rules, through a link that root could follow.
    std::fs::write(other.join("b.rules"), RULES).expect("rules");
    std::fs::remove_file(dir.join("a.rules")).expect("it is there");
    std::os::unix::fs::symlink(other.join("b.rules"), dir.join("a.rules")).expect("a link");
    let o = run(&dir, &["-r", &file, "--user", USER, "--group", GROUP, "--init-errors-fatal"]);
    if !o.1.contains("files are not restricted") {
        assert_eq!(o.0, Some(1), "{}", o.1);
        assert!(o.1.to_lowercase().contains("permission denied"), "{}", o.1);
    }
}

#[test]
fn who_may_not_is_told_why() {
    if !is_root() {
        return;
    }
    let dir = restricted("denied");
    let capture = engine::root().join("demo/demo.pcap").display().to_string();
    let as_user = ["-r", &capture, "--user", USER, "--group", GROUP];
    // The log folder belongs to root.
    std::os::unix::fs::chown(dir.join("log"), Some(0), Some(0)).expect("root takes it");
    let o = run(&dir, &as_user);
    assert_eq!(o.0, Some(1));
    for word in ["logging directory", &format!("as user {USER}"), "belongs to uid 0", "chown"] {
        assert!(o.1.contains(word), "{word}: {}", o.1);
    }
    // A log from an earlier run as root blocks the path.
    std::os::unix::fs::chown(dir.join("log"), USER.parse().ok(), None).expect("root gives it away");
    std::fs::write(dir.join("log/eve.json"), "").expect("a file");
    let o = run(&dir, &as_user);
    assert_eq!(o.0, Some(1));
    assert!(o.1.contains("eve.json") && o.1.contains("belongs to uid 0"), "{}", o.1);
    for (user, group, words) in
        [("nobody-of-that-name", "0", "there is no user"), ("0", "no-such-group", "there is no group")]
    {
        let o = run(&dir, &["-r", &capture, "--user", user, "--group", group]);
        assert!(o.0 == Some(1) && o.1.contains(words), "{}", o.1);
    }
    // A user by name, with its groups.
    let o = run(&dir, &["-T", "--user", "nobody"]);
    assert_eq!(o.0, Some(0), "{}", o.1);
}

/// Configures the engine to wait for captures on its socket.
fn waiting(dir: &Path) -> String {
    format!("--unix-socket={}", dir.join("s.sock").display())
}

#[test]
fn in_the_background() {
    let dir = place("daemon");
    configure(&dir, OUTPUTS);
    for folder in ["log", "data"] {
        std::fs::create_dir(dir.join(folder)).expect("a folder");
    }
    // Relative paths on the command line work wherever the daemon changes to.
    let capture = waiting(&dir);
    let daemon = ["-D", &*capture, "-S", "a.rules"];
    let o = run(&dir, &daemon);
    assert_eq!(o.0, Some(0), "{}", o.1);
    // The daemon is ready when the command returns.
    let pid = std::fs::read_to_string(dir.join("m.pid")).expect("a pid file").trim().to_owned();
    let end = engine::Killer(pid.clone());
    let ask = |words: &[&str]| engine::ask(&dir.join("s.sock"), words);
    assert!(ask(&["uptime"]).is_u64());
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).expect("its folder"), Path::new("/"));
    for fd in 0..3 {
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).expect("open"), Path::new("/dev/null"));
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("its numbers");
    let fields: Vec<&str> = status.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    assert_ne!(fields[3], pid, "no leader of a session");
    assert_eq!(ask(&["reload-rules"]), "done");
    // Its messages are in the log.
    wait("the log", || {
        std::fs::read_to_string(dir.join("log/engine.log")).is_ok_and(|t| t.contains("rule reload complete"))
    });
    // A second daemon with the same file does not start.
    let o = run(&dir, &["-D", &format!("--unix-socket={}", dir.join("t.sock").display())]);
    assert_eq!(o.0, Some(1));
    assert!(o.1.contains(&format!("(process {pid}) is running")), "{}", o.1);
    assert!(dir.join("m.pid").exists());
    engine::kill(&pid, "TERM");
    wait("it ends", || !Path::new(&format!("/proc/{pid}")).exists());
    assert!(!dir.join("m.pid").exists() && !dir.join("s.sock").exists());
    drop(end);
    // A stale file is replaced. A failed start is reported, with its status.
    std::fs::write(dir.join("m.pid"), "1\n").expect("a file");
    std::fs::write(dir.join("a.rules"), "alert nothing\n").expect("rules");
    let o = run(&dir, &[&daemon[..], &["--init-errors-fatal"]].concat());
    assert_eq!(o.0, Some(1));
    assert!(o.1.contains("a.rules") && !o.1.contains("before it was ready"), "{}", o.1);
    assert!(!dir.join("m.pid").exists());
}

#[test]
fn systemd_is_told() {
    let dir = place("notify");
    configure(&dir, OUTPUTS);
    std::fs::create_dir(dir.join("log")).expect("a folder");
    let listen = UnixDatagram::bind(dir.join("notify")).expect("a socket");
    let mut heard = engine::Notifications::new(&listen);
    let e = Engine::start_with(&dir, &[&waiting(&dir)], |c| {
        c.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "500000");
    });
    assert!(heard.until("READY=1"));
    assert!(heard.until("WATCHDOG=1") && heard.until("WATCHDOG=1"));
    e.signal("USR2");
    assert!(heard.until("RELOADING=1\nMONOTONIC_USEC="));
    assert!(heard.until("READY=1"));
    let (status, words) = e.stop();
    assert!(heard.until("STOPPING=1"));
    assert_eq!(status.code(), Some(0), "{words:?}");
}

#[test]
fn scripts_start_no_programs() {
    let dir = place("noproc");
    let script = "\n  - lua: {enabled: yes, scripts-dir: DIR, scripts: [run.lua]}";
    let text = OUTPUTS.replace("\napp-layer", &format!("{script}\napp-layer"));
    std::fs::create_dir(dir.join("log")).expect("a folder");
    let capture = engine::root().join("demo/demo.pcap").display().to_string();
    let made = dir.join("log/made");
    for (limit, seccomp, there) in [("yes", "no", false), ("no", "yes", false), ("no", "no", true)] {
        let text = text
            .replace("limit-noproc: yes", &format!("limit-noproc: {limit}"))
            .replace("seccomp: {enabled: yes, action: kill}", &format!("seccomp: {{enabled: {seccomp}}}"))
            .replace("landlock: {enabled: yes}", "landlock: {enabled: no}");
        configure(&dir, &text);
        std::fs::write(
            dir.join("run.lua"),
            format!(
                "function init() return {{type = 'packet'}} end\nfunction setup() end\nfunction log() os.execute('touch {}') end\n\
                 function deinit() end\n",
                made.display()
            ),
        )
        .expect("a script");
        let _ = std::fs::remove_file(&made);
        let o = run(&dir, &["-r", &capture]);
        assert_eq!(o.0, Some(0), "{}", o.1);
        assert_eq!(made.exists(), there, "limit-noproc {limit}, seccomp {seccomp}: {}", o.1);
    }
}

#[test]
fn memory_is_locked() {
    if !is_root() {
        return;
    }
    let dir = restricted("memory");
    let socket = format!("--unix-socket={}", dir.join("run/s.sock").display());
    let locked = |e: &Engine| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", e.child.id())).expect("its status");
        field(&status, "VmLck").trim_end_matches(" kB").trim().parse().expect("a number")
    };
    let lock = [&*socket, "--set", "margay.lock-memory=yes", "--set", "umask=027"];
    let e = Engine::start(&dir, &lock);
    assert!(locked(&e) > 1000, "{:?}", e.all);
    assert_eq!(e.stop().0.code(), Some(0));
    std::fs::remove_dir_all(dir.join("log")).expect("root's logs");
    std::fs::create_dir(dir.join("log")).expect("a folder");
    std::os::unix::fs::chown(dir.join("log"), USER.parse().ok(), GROUP.parse().ok()).expect("root gives it away");
    std::fs::remove_dir_all(dir.join("run")).expect("root's folder");
    let e = Engine::start(&dir, &[&lock[..], &["--user", USER, "--group", GROUP]].concat());
    // Root in a container may not be able to raise the limit; the log then says so.
    assert!(locked(&e) > 1000 || e.all.iter().any(|l| l.contains("LimitMEMLOCK=infinity")), "{:?}", e.all);
    has_few_rights(e.child.id(), 0, "");
    let log = std::fs::metadata(dir.join("log/engine.log")).expect("a log");
    assert_eq!((log.mode() & 0o777, log.uid().to_string()), (0o640, USER.to_owned()));
    assert_eq!(e.stop().0.code(), Some(0));
}
