//! `margay-lab traffic` as a user runs it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by it")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{LAB, until};
use margay_capture::Reader;
use margay_packet::{DecodeConfig, Decoder, Packet};

fn lab(args: &[&str]) -> Output {
    Command::new(LAB).arg("traffic").args(args).output().unwrap()
}

fn ok(args: &[&str]) -> Output {
    let out = lab(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// The error message, which is one sentence.
fn fails(args: &[&str]) -> String {
    let out = lab(args);
    assert!(!out.status.success(), "{args:?}");
    String::from_utf8(out.stderr).unwrap()
}

fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Numbers of packets, and of packets with a wrong checksum, from the project's own decoder.
fn checks(path: &Path) -> (u64, u64) {
    let mut reader = Reader::new(std::fs::File::open(path).unwrap(), path).unwrap();
    let mut decoder = Decoder::new(DecodeConfig::default());
    let (mut packets, mut wrong) = (0, 0);
    while let Some(batch) = reader.next_batch(256).unwrap() {
        for frame in batch.iter() {
            decoder.decode(&frame, &mut |packet: &Packet<'_>| {
                packets += 1;
                wrong += u64::from(packet.checksum_ok() == Some(false));
            });
        }
    }
    (packets, wrong)
}

fn path(dir: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[test]
fn captures_have_the_size_and_the_bytes_of_their_seed() {
    let dir = tempfile::tempdir().unwrap();
    let (a, at) = path(&dir, "a.pcap");
    let (b, bt) = path(&dir, "b.pcap");
    ok(&["gen", "--preset", "office", "--size", "30MB", "--seed", "7", "-o", &at]);
    ok(&["gen", "--preset", "office", "--size", "30MB", "--seed", "7", "-o", &bt]);
    let (one, two) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    assert!(one == two, "the same seed gives the same bytes");
    assert_eq!(one[..4], 0xa1b2_3c4du32.to_le_bytes(), "nanoseconds");
    assert!((one.len() as f64 / 30e6 - 1.0).abs() < 0.1, "{}", one.len());
    let (packets, wrong) = checks(&a);
    assert!(packets > 10_000 && wrong == 0, "{wrong} of {packets} checksums are wrong");
    ok(&["gen", "--preset", "loss", "--duration", "100ms", "--micro", "-o", &bt]);
    assert_eq!(std::fs::read(&b).unwrap()[..4], 0xa1b2_c3d4u32.to_le_bytes(), "microseconds");
}

#[test]
fn attacks_come_with_rules_and_truth() {
    let dir = tempfile::tempdir().unwrap();
    let (a, at) = path(&dir, "mix.pcap");
    ok(&["gen", "--preset", "attacks", "--attacks", "10%", "--duration", "3s", "-o", &at]);
    let rules = std::fs::read_to_string(a.with_extension("rules")).unwrap();
    let truth = std::fs::read_to_string(a.with_extension("truth.jsonl")).unwrap();
    assert!(truth.lines().count() > 200, "{}", truth.lines().count());
    for line in truth.lines() {
        let t: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(rules.contains(&format!("sid:{};", t["sid"])), "{line}");
        assert!(t["src_ip"].as_str().unwrap().starts_with("16.") && t["dest_ip"].as_str().unwrap().starts_with("48."));
    }
}

#[test]
fn a_profile_of_trex_is_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("cap2")).unwrap();
    // The template: one connection with a wrong checksum.
    let (template, text) = path(&dir, "cap2/web.pcap");
    std::fs::write(dir.path().join("one.yaml"), "templates: [{kind: http, cps: 1, variants: 1}]").unwrap();
    let (_, one) = path(&dir, "one.yaml");
    ok(&["gen", &one, "--duration", "1s", "-o", &text]);
    let mut bytes = std::fs::read(&template).unwrap();
    // The SYN's TCP checksum.
    bytes[24 + 16 + 50] ^= 0x55;
    std::fs::write(&template, &bytes).unwrap();
    assert_eq!(checks(&template).1, 1);
    let profile = r#"
- duration : 2.0
  generator :
          distribution : "seq"
          clients_start : "10.1.0.1"
          clients_end   : "10.1.0.200"
          servers_start : "10.2.0.1"
          servers_end   : "10.2.0.255"
          clients_per_gb : 201
          min_clients    : 101
          dual_port_mask : "1.0.0.0"
          tcp_aging      : 0
          udp_aging      : 0
  mac        : [0x0,0x0,0x0,0x1,0x0,0x00]
  cap_ipg    : false
  cap_info :
     - name: cap2/web.pcap
       cps : 50.0
       ipg : 1000
       rtt : 5000
       w   : 2
       limit : 40
"#;
    std::fs::write(dir.path().join("cap2/t.yaml"), profile).unwrap();
    let (_, t) = path(&dir, "cap2/t.yaml");
    let (out, o) = path(&dir, "o.pcap");
    let (report, r) = path(&dir, "r.json");
    let said = String::from_utf8(ok(&["gen", &t, "-o", &o, "--report", &r]).stderr).unwrap();
    assert!(said.contains("'clients_per_gb: 201': the whole range of clients is used"), "{said}");
    assert_eq!(json(&report)["sources"][0]["sessions"], 100);
    let (packets, wrong) = checks(&out);
    assert!(packets > 1000 && wrong == 0, "{wrong} of {packets} wrong");
}

#[test]
fn the_mix_of_the_studies() {
    let Some(profile) = margay_testing::shared("captures/sfr/sfr_delay_10_1g.yaml") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (out, o) = path(&dir, "sfr.pcap");
    let (report, r) = path(&dir, "sfr.json");
    ok(&["gen", profile.to_str().unwrap(), "--size", "200MB", "-o", &o, "--report", &r]);
    assert_eq!(checks(&out).1, 0);
    let r = json(&report);
    let sum = |what: &str| -> f64 { r["sources"].as_array().unwrap().iter().map(|s| s[what].as_f64().unwrap()).sum() };
    for s in r["sources"].as_array().unwrap() {
        for what in ["sessions", "bytes"] {
            let want = format!("expected_{what}");
            let got = s[what].as_f64().unwrap() / sum(what);
            let want = s[&want].as_f64().unwrap() / sum(&want);
            assert!((got - want).abs() < 0.02, "{}: {got} of {what}, {want} in the profile", s["name"]);
        }
    }
}

#[test]
fn an_interrupted_run_keeps_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let (report, r) = path(&dir, "r.json");
    let (capture, c) = path(&dir, "c.pcap");
    let child = Command::new(LAB)
        .args(["traffic", "gen", "--preset", "office", "--duration", "10h", "-o", &c, "--report", &r])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("packets in the capture", || std::fs::metadata(&capture).is_ok_and(|m| m.len() > 2_000_000));
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130));
    let report = json(&report);
    assert_eq!(report["interrupted"], true);
    assert!(report["packets"].as_u64().unwrap() > 1000);
}

#[test]
fn what_is_wrong_is_said() {
    assert!(fails(&["gen", "nothere.yaml", "-o", "x.pcap"]).contains("nothere.yaml: cannot be read"));
    assert!(
        fails(&["gen", "--preset", "elephants", "-o", "x.pcap"]).contains("there is no preset 'elephants'; there are")
    );
    assert!(
        fails(&["gen", "--preset", "office", "-o", "/nowhere/x.pcap"]).contains("/nowhere/x.pcap cannot be written")
    );
    assert!(fails(&["gen", "--preset", "dns", "--rate", "fast", "-o", "x"]).contains("'fast' is not a rate"));
    assert!(fails(&["gen", "--preset", "office", "--attacks", "1%", "-o", "x"]).contains("has no attacks"));
    assert!(fails(&["send", "-i", "nosuch0", "x.pcap"]).contains("there is no interface 'nosuch0'"));
    assert!(fails(&["send", "-i", "lo", "--peer", "lo", "x.pcap"]).contains("needs an interface of its own"));
}

/// Two network namespaces, connected by two virtual pairs, removed when dropped.
struct Pair {
    name: String,
}

impl Pair {
    /// `None` if they cannot be created; prints the reason.
    fn new(test: &str) -> Option<Pair> {
        let name = format!("mlt{}{test}", std::process::id());
        let ip = |args: String| {
            let out = Command::new("ip").args(args.split_whitespace()).output();
            out.is_ok_and(|o| o.status.success())
        };
        let pair = Pair { name: name.clone() };
        let mut made = ip(format!("netns add {name}a")) && ip(format!("netns add {name}b"));
        for link in ["v", "w"] {
            made = made
                && ip(format!("link add {link}0 netns {name}a type veth peer name {link}1 netns {name}b"))
                && ip(format!("-n {name}a link set {link}0 up"))
                && ip(format!("-n {name}b link set {link}1 up"));
        }
        if !made {
            margay_testing::not_run("network namespaces need root and iproute2");
            return None;
        }
        Some(pair)
    }

    fn run(&self, args: &[&str]) -> Output {
        let inside = format!("{}a", self.name);
        let all = ["netns", "exec", &inside, LAB, "traffic", "send", "-q", "--json"];
        Command::new("ip").args(all).args(args).output().unwrap()
    }

    /// Sends, and returns the report.
    fn send(&self, args: &[&str]) -> serde_json::Value {
        let out = self.run(args);
        let said = String::from_utf8_lossy(&out.stderr);
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {said}"))
    }

    /// Packets received on an interface of the other side.
    fn received(&self, interface: &str) -> u64 {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        let inside = format!("{}b", self.name);
        let out = Command::new("ip").args(["netns", "exec", &inside, "cat", &path]).output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for end in ["a", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &format!("{}{end}", self.name)]).output();
        }
    }
}

#[test]
fn sending_over_a_virtual_pair() {
    let Some(pair) = Pair::new("s") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (capture, c) = path(&dir, "c.pcap");
    ok(&["gen", "--preset", "office", "--size", "5MB", "-q", "-o", &c]);
    let n = checks(&capture).0;
    for method in ["ring", "sendmmsg", "xdp", "auto"] {
        let before = pair.received("v1");
        let r = pair.send(&["-i", "v0", "--flat-out", "--method", method, &c]);
        assert_eq!((&r["packets"], &r["error"]), (&n.into(), &serde_json::Value::Null), "{method}: {r}");
        // The counters include the kernel's own packets (neighbour discovery).
        let counted = |what: &str| r["interfaces"][0][what].as_u64().unwrap();
        assert!(counted("kernel_tx_packets") + counted("kernel_tx_dropped") >= n, "{method}: {r}");
        // A busy machine may drop packets of a burst, and counts them.
        assert!(pair.received("v1") - before + counted("kernel_tx_dropped") >= n, "{method}: {r}");
    }
    let r = pair.send(&["-i", "v0", "--rate", "20kpps", "--packets", "4000", &c]);
    assert_eq!(r["packets"], 4000);
    let seconds = r["seconds"].as_f64().unwrap();
    assert!(seconds > 0.19, "{seconds}");
    assert_eq!(r["pacing_error_ns"]["packets"], 4000, "{r}");
    let r = pair.send(&["-i", "v0", "--flat-out", "--copies", "3", &c]);
    assert_eq!(r["packets"], 3 * n);
    let r = pair.send(&["-i", "v0", "--peer", "w0", "--multiplier", "100", &c]);
    let by = |k: usize| r["interfaces"][k]["packets"].as_u64().unwrap();
    assert!(by(0) > 1000 && by(1) > 1000 && by(0) + by(1) == n, "{r}");
    let r = pair.send(&["-i", "v0", "--preset", "udp64", "--rate", "10kpps", "--duration", "600ms"]);
    // No more than the rate allows in the real time (a busy machine stops late), and not much less.
    let (got, took) = (r["packets"].as_u64().unwrap(), r["seconds"].as_f64().unwrap());
    assert!(took >= 0.6 && got >= 2000 && got as f64 <= took * 10_000.0 + 2.0, "{r}");
    Command::new("ip").args(["-n", &format!("{}a", pair.name), "link", "set", "v0", "down"]).status().unwrap();
    let out = pair.run(&["-i", "v0", &c]);
    assert!(String::from_utf8_lossy(&out.stderr).contains("the interface 'v0' is down"));
}

#[test]
fn every_thread_has_a_queue_where_there_are_so_many() {
    let Some(pair) = Pair::new("q") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (_, c) = path(&dir, "c.pcap");
    ok(&["gen", "--preset", "office", "--size", "2MB", "-q", "-o", &c]);
    let (near, far) = (format!("{}a", pair.name), format!("{}b", pair.name));
    let wide = format!(
        "link add x0 netns {near} numtxqueues 2 numrxqueues 2 type veth peer name x1 netns {far} numtxqueues 2 numrxqueues 2"
    );
    for args in [wide, format!("-n {near} link set x0 up"), format!("-n {far} link set x1 up")] {
        assert!(Command::new("ip").args(args.split_whitespace()).status().unwrap().success(), "{args}");
    }
    // Without --quiet there is more output on standard error.
    let send = |interface: &str| {
        let all = [
            "netns",
            "exec",
            &near,
            LAB,
            "traffic",
            "send",
            "--json",
            "--flat-out",
            "--threads",
            "2",
            "-i",
            interface,
            &c,
        ];
        let out = Command::new("ip").args(all).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
        (report["methods"].clone(), said)
    };
    let (methods, said) = send("x0");
    if methods[0] != "AF_XDP" {
        return margay_testing::not_run(&format!("the kernel has no AF_XDP: {said}"));
    }
    assert_eq!(methods, serde_json::json!(["AF_XDP", "AF_XDP"]), "{said}");
    assert!(!said.contains("transmit queue"), "{said}");
    let (methods, said) = send("v0");
    assert_eq!(methods, serde_json::json!(["AF_XDP", "sendmmsg"]), "{said}");
    // With a single processor, the driver has no second queue.
    let could = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    let note = "'v0' has 1 transmit queue for 2 threads; after 'ethtool -L v0 tx 2'";
    assert!(!could || said.contains(note), "{said}");
}

#[test]
fn the_machine_is_looked_at_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let tune =
        |args: &[&str]| Command::new(LAB).arg("tune").args(args).env("MARGAY_TUNE_STATE", &state).output().unwrap();
    let out = tune(&["plan", "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let open = !plan["steps"].as_array().unwrap().is_empty();
    // The machine's counters only grow, so the plan still has changes a moment later.
    let code = tune(&["plan", "--check"]).status.code();
    assert!(code == Some(3) || (code == Some(0) && !open), "{code:?}: {plan}");
    assert!(!open || !tune(&["plan", "--commands"]).stdout.is_empty(), "{plan}");
    // Without --yes nothing is changed or recorded.
    let applied = tune(&["apply"]);
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    assert!(!state.join("journal").exists());
}
