//! Control of a running engine: signals, the unix socket, `margay ctl`.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use process::{Engine, PATIENCE, folder, root};

impl Engine {
    fn start(dir: &Path, more: &[&str]) -> Engine {
        let root = root();
        let set = |name: &str, file: &str| format!("{name}={}", root.join(file).display());
        let mut c = Command::new(process::MARGAY);
        c.arg("-c")
            .arg(root.join("etc/margay.yaml"))
            .arg("-l")
            .arg(dir)
            .args(["-k", "none", "--set", &set("classification-file", "etc/classification.config")])
            .args(["--set", &set("reference-config-file", "etc/reference.config"), "-S"])
            .arg(dir.join("a.rules"))
            .args(more);
        Engine::spawn(c, dir.join("s.sock"))
    }

    /// The output of `ctl`, and whether it succeeded.
    fn says(&self, words: &[&str]) -> (String, bool) {
        let o = self.ctl(words);
        (String::from_utf8_lossy(&o.stdout).into_owned(), o.status.success())
    }

    fn end(self) -> bool {
        self.ended().0.success()
    }
}

fn sids(dir: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default();
    let alerts = text.lines().filter(|l| l.contains("\"event_type\":\"alert\""));
    let sid = |l: &str| l.split("\"signature_id\":").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
    alerts.filter_map(sid).collect()
}

/// A capture file of one UDP flow, with a datagram for each text.
fn capture(texts: &[&str], second: u32) -> Vec<u8> {
    let mut out = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0];
    for (n, text) in texts.iter().enumerate() {
        let len = 28 + text.len();
        let mut p = vec![0x45, 0, 0, len as u8, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let sum: u32 = p.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p.extend_from_slice(&[4, 1, 4, 2, 0, (8 + text.len()) as u8, 0, 0]);
        p.extend_from_slice(text.as_bytes());
        for word in [1_700_000_000 + second, n as u32, len as u32, len as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&p);
    }
    out
}

/// Puts a complete capture into a watched folder.
fn put(dir: &Path, pcaps: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join("part"), bytes).expect("a capture");
    std::fs::rename(dir.join("part"), pcaps.join(name)).expect("a capture");
}

/// The rules change between two files of one flow. The new rules inspect the second half of the flow, and the flow keeps
/// the state that the old ones set.
#[test]
fn a_signal_reloads_the_rules_of_a_flow() {
    let dir = folder("usr2");
    let pcaps = dir.join("in");
    std::fs::create_dir_all(&pcaps).expect("a folder");
    let set = "alert udp any any -> any any (content:\"one\"; flowbits:set,seen; sid:1;)\n";
    std::fs::write(dir.join("a.rules"), set).expect("rules");
    put(&dir, &pcaps, "1.pcap", &capture(&["one"], 0));
    let mut e = Engine::start(
        &dir,
        &[
            "-v",
            "-r",
            &pcaps.display().to_string(),
            "--pcap-file-continuous",
            "--set",
            "pcap-file.delay=0",
            "--set",
            "pcap-file.poll-interval=1",
        ],
    );
    assert!(e.until("end of file reached"));
    // Rules that do not load change nothing.
    std::fs::write(dir.join("a.rules"), "alert nonsense\n").expect("rules");
    e.signal("USR2");
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(
        dir.join("a.rules"),
        format!("alert udp any any -> any any (content:\"two\"; flowbits:isset,seen; sid:2;)\n{set}"),
    )
    .expect("rules");
    e.signal("USR2");
    assert!(e.until("rule reload complete"));
    put(&dir, &pcaps, "2.pcap", &capture(&["two", "one"], 1));
    assert!(e.until("end of file reached"));
    e.signal("TERM");
    assert!(e.end());
    assert_eq!(sids(&dir), [1, 2, 1]);
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    assert_eq!(text.matches("\"event_type\":\"flow\"").count(), 1);
    assert!(text.contains("\"rules_loaded\":2"), "{text}");
}

/// A pipe of a capture program may be silent for any time: the engine writes the events of what came, reloads rules, and stops.
#[test]
fn a_silent_pipe_holds_nothing_up() {
    let bytes = capture(&["hello", "hello again"], 0);
    let modes: [&[&str]; 3] = [
        &["--runmode", "single"],
        &["--runmode", "autofp", "--set", "margay.workers=1"],
        &["--runmode", "autofp", "--set", "margay.workers=3"],
    ];
    for mode in modes {
        // Without a writer; without the whole file header; in the middle of a packet; between two packets.
        for sent in [None, Some(20), Some(bytes.len() - 3), Some(bytes.len())] {
            let dir = folder("silent-pipe");
            std::fs::write(dir.join("a.rules"), "alert udp any any -> any any (content:\"hello\"; sid:1;)\n")
                .expect("rules");
            let pipe = dir.join("pipe");
            margay_testing::named_pipe(&pipe);
            let path = pipe.display().to_string();
            let mut e = Engine::start(&dir, &[&["-v", "-r", &path][..], mode].concat());
            let mut to = None;
            if let Some(sent) = sent {
                let mut pipe = std::fs::File::options().write(true).open(&pipe).expect("the engine reads it");
                pipe.write_all(&bytes[..sent]).expect("it takes them");
                to = Some(pipe);
            }
            let whole = sent.map_or(0, |n| usize::from(n > bytes.len() - 4) + usize::from(n == bytes.len()));
            process::wait("its alerts", || sids(&dir).len() == whole);
            assert!(e.until("Engine started"), "{mode:?} {sent:?}: {:?}", e.all);
            e.signal("USR2");
            assert!(e.until("rule reload complete"), "{mode:?} {sent:?}: {:?}", e.all);
            let words = e.stop_by("TERM");
            assert_eq!(sids(&dir).len(), whole, "{mode:?} {sent:?}: {words:?}");
            drop(to);
        }
    }
}

#[test]
fn captures_are_handed_over() {
    let dir = folder("handed");
    std::fs::write(dir.join("a.rules"), "alert udp any any -> any any (content:\"one\"; sid:1;)\n").expect("rules");
    let socket = dir.join("s.sock");
    let mut e = Engine::start(&dir, &[&format!("--unix-socket={}", socket.display())]);
    assert!(e.until("Engine started"));
    assert_eq!(e.says(&["running-mode"]), ("{\"message\":\"single\",\"return\":\"OK\"}\n".to_owned(), true));
    let (said, ok) = e.says(&["nonsense"]);
    assert!(!ok && said.contains("Unknown command"), "{said}");
    let mut dirs = Vec::new();
    for n in 0..3 {
        let out = dir.join(format!("out{n}"));
        std::fs::create_dir_all(&out).expect("a folder");
        std::fs::write(dir.join(format!("{n}.pcap")), capture(&vec!["one"; n + 1], 0)).expect("a capture");
        let file = dir.join(format!("{n}.pcap")).display().to_string();
        let (said, ok) = e.says(&["pcap-file", &file, &out.display().to_string()]);
        assert!(ok, "{said}");
        dirs.push(out);
    }
    for (n, out) in dirs.iter().enumerate() {
        let end = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(out.join("eve.json")).is_ok_and(|t| t.contains("\"stats\""))
            && Instant::now() < end
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(sids(out), vec![1; n + 1]);
    }
    assert!(!e.says(&["pcap-file", "/no/such/file", "/"]).1);
    assert_eq!(e.ctl(&["conf-get"]).status.code(), Some(2));
    // The engine tolerates a client that stops within a message, and one that sends nonsense.
    let mut half = UnixStream::connect(&socket).expect("somebody listens");
    half.write_all(b"{\"version\": \"0.2\"").expect("is read");
    let mut mad = UnixStream::connect(&socket).expect("somebody listens");
    mad.set_read_timeout(Some(PATIENCE)).expect("a limit");
    mad.write_all(&[0xff; 1000]).expect("is read");
    let mut said = Vec::new();
    let _ = mad.read_to_end(&mut said);
    assert!(said.is_empty());
    std::fs::write(dir.join("a.rules"), "alert udp any any -> any any (content:\"one\"; sid:7;)\n").expect("rules");
    assert!(e.says(&["reload-rules"]).1);
    let (said, _) = e.says(&["ruleset-stats"]);
    assert!(said.contains("\"rules_loaded\":1"), "{said}");
    assert!(e.says(&["shutdown"]).1);
    assert!(e.end());
    assert!(!socket.exists());
}

/// Reloads under load: memory does not grow, and no packet is lost.
#[test]
fn reloads_under_load_leak_nothing() {
    let dir = folder("load");
    let pcaps = dir.join("in");
    std::fs::create_dir_all(&pcaps).expect("a folder");
    let rules = |n: usize| -> String {
        (0..200)
            .map(|s| {
                format!("alert udp any any -> any any (content:\"p{s}x{n}\"; flowbits:set,b{s}; sid:{};)\n", s + 1)
            })
            .collect()
    };
    std::fs::write(dir.join("a.rules"), rules(0)).expect("rules");
    let socket = dir.join("s.sock").display().to_string();
    let mut e = Engine::start(
        &dir,
        &[
            "-r",
            &pcaps.display().to_string(),
            "--pcap-file-continuous",
            "--set",
            "pcap-file.delay=0",
            "--set",
            "pcap-file.poll-interval=1",
            "--set",
            "unix-command.enabled=yes",
            "--set",
            &format!("unix-command.filename={socket}"),
        ],
    );
    assert!(e.until("Engine started"));
    let resident = || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", e.child.id())).unwrap_or_default();
        let line = text.lines().find(|l| l.starts_with("VmRSS")).map(str::to_owned).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut client = BufReader::new(UnixStream::connect(&socket).expect("somebody listens"));
    let mut line = String::new();
    let mut ask = |text: &str| {
        client.get_mut().write_all(text.as_bytes()).expect("is read");
        line.clear();
        client.read_line(&mut line).expect("an answer");
        line.clone()
    };
    assert!(ask("{\"version\": \"0.2\"}").contains("OK"));
    let (mut packets, mut before) = (0, 0);
    for n in 0..100 {
        std::fs::write(dir.join("a.rules"), rules(n)).expect("rules");
        let texts = vec!["p7x1"; 50];
        packets += texts.len();
        put(&dir, &pcaps, &format!("{n:03}.pcap"), &capture(&texts, n as u32));
        let said = ask("{\"command\": \"reload-rules\"}\n");
        assert!(said.contains("\"OK\""), "{said}");
        if n == 20 {
            before = resident();
        }
    }
    let after = resident();
    assert!(before == 0 || after < before + 32 * 1024, "{before} KiB before, {after} KiB after");
    let end = Instant::now() + PATIENCE;
    let mut said = String::new();
    while Instant::now() < end && !said.contains(&format!("\"pkts\":{packets},")) {
        std::thread::sleep(Duration::from_millis(100));
        said = ask("{\"command\": \"dump-counters\"}\n");
    }
    assert!(said.contains(&format!("\"pkts\":{packets},")), "every packet: {said}");
    assert!(said.contains("\"rule_sets\":1}") || said.contains("\"rule_sets\":1,"), "one set of rules is left: {said}");
    e.signal("TERM");
    assert!(e.end());
}
