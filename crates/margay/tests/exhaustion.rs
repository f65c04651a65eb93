//! What an outsider may try so that the engine runs out of something, and what it costs.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod made;
mod process;

use std::path::Path;
use std::process::{Command, Stdio};

use made::Capture;
use made::Side::Client;
use margay_flow::{Ends, HashKey};
use process::{folder, last_stats, root};

fn engine(dir: &Path, capture: &Capture, rules: &str, more: &[&str]) -> Command {
    std::fs::create_dir_all(dir).expect("a folder");
    capture.write(&dir.join("a.pcap"));
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let mut c = process::engine(process::MARGAY, &root().join("etc/margay.yaml"), dir);
    c.args(["--set", "unix-command.enabled=no", "-k", "none", "--runmode", "single"]).args(more);
    c.arg("-r").arg(dir.join("a.pcap")).stdin(Stdio::null());
    c
}

fn run(dir: &Path, capture: &Capture, rules: &str, more: &[&str]) {
    let out = engine(dir, capture, rules, more).output().expect("the engine runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

const BUCKETS: u32 = 256;
const BUCKETS_SET: &str = "flow.hash-size=256";

/// Datagrams whose flows all lie in one bucket of a table that has this key.
fn colliding(key: &HashKey, count: usize) -> Capture {
    let every = (0..=255u8).flat_map(|host| (1024..=u16::MAX).map(move |port| (host, port)));
    let chosen = every.filter(|&(host, sport)| {
        let client = u64::from(u32::from_be_bytes([10, 0, 1, host]));
        let ends =
            Ends { src: [0, client], dst: [0, 0x0a00_0002], sport, dport: 9, proto: 17, v6: false, vlans: [0; 3] };
        (u64::from(ends.hash(key, true) as u32) * u64::from(BUCKETS)) >> 32 == 0
    });
    let mut c = Capture::new();
    for (n, (host, port)) in chosen.take(count).enumerate() {
        let mut udp = [port, 9, 12, 0].iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        udp.extend(b"data");
        c.between(n as u32, ([10, 0, 1, host], [10, 0, 0, 2]), Client, 17, &udp);
    }
    c
}

/// The key of the flow table is random unless `--no-random` is given: who computes collisions for that one has them there, bounded,
/// and nowhere else.
#[test]
fn collisions_of_the_flow_table_need_its_key() {
    let capture = colliding(&HashKey::fixed(0), 500);
    let stats = |name: &str, more: &[&str]| {
        let dir = folder(&format!("exhaustion-{name}"));
        run(&dir, &capture, "", &[&["--set", BUCKETS_SET], more].concat());
        last_stats(&dir)["flow"].clone()
    };
    let fixed = stats("fixed", &["--no-random"]);
    // At most 16, and 8 more for each time that the 10,000 places which are made at the start exceed the buckets.
    let chain = 16 + 8 * (10_000 / u64::from(BUCKETS));
    assert_eq!((&fixed["total"], &fixed["chain_evicted"]), (&500.into(), &(500 - chain).into()), "{fixed}");
    let random = stats("random", &[]);
    assert_eq!((&random["total"], &random["chain_evicted"]), (&500.into(), &0.into()), "{random}");
}

/// Events without what is measured.
fn output(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("eve.json")).expect("events");
    text.lines().filter(|l| !l.contains("\"event_type\":\"stats\"")).map(str::to_owned).collect()
}

#[test]
fn a_capture_file_gives_the_same_events_with_every_key() {
    let capture = std::fs::read(root().join("demo/demo.pcap")).expect("the demo's capture");
    let rules = std::fs::read_to_string(root().join("demo/demo.rules")).expect("its rules");
    let mut all = Vec::new();
    for (n, more) in [&[][..], &[], &["--no-random"]].into_iter().enumerate() {
        let dir = folder(&format!("exhaustion-keys-{n}"));
        run(&dir, &Capture::of(capture.clone()), &rules, more);
        all.push(output(&dir));
    }
    assert!(all[0].len() > 10 && all[0] == all[1] && all[0] == all[2]);
}

/// Stored files with their sizes, by their place in the store.
fn stored(dir: &Path) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for folder in std::fs::read_dir(dir.join("filestore")).expect("the store").flatten() {
        for file in std::fs::read_dir(folder.path()).expect("a folder").flatten() {
            let path = file.path();
            let name = path.strip_prefix(dir).expect("inside").display().to_string();
            // Records carry the number of the file, which is given in the order that workers come to it.
            if !name.ends_with(".json") {
                all.push((name, file.metadata().expect("a file").len()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn stored_files_are_there_at_the_end_however_many_workers_there_are() {
    let capture = std::fs::read(root().join("demo/demo.pcap")).expect("the demo's capture");
    let yaml = "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      types: [files: {}, stats: {}]\n  - \
                file-store:\n      version: 2\n      enabled: yes\n      force-filestore: yes\n      write-fileinfo: yes\n      \
                queue-size: 64kb\nstats:\n  enabled: yes\napp-layer:\n  protocols:\n    http: {enabled: yes}\n    smtp: {enabled: \
                yes, mime: {decode-mime: yes}}\n    ftp: {enabled: yes}\n    ftp-data: {enabled: yes}\n    smb: {enabled: yes}\n";
    let mut all = Vec::new();
    for (n, more) in
        [&["--runmode", "single"][..], &["--runmode", "autofp", "--set", "margay.workers=3"]].into_iter().enumerate()
    {
        let dir = folder(&format!("exhaustion-store-{n}"));
        std::fs::write(dir.join("store.yaml"), yaml).expect("a configuration");
        std::fs::write(dir.join("a.pcap"), &capture).expect("a capture");
        std::fs::write(dir.join("a.rules"), "").expect("rules");
        let mut c = process::engine(process::MARGAY, &dir.join("store.yaml"), &dir);
        c.args(["--set", "unix-command.enabled=no", "-k", "none"]).args(more).arg("-r").arg(dir.join("a.pcap"));
        let out = c.stdin(Stdio::null()).output().expect("the engine runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let stats = last_stats(&dir)["file_store"].clone();
        assert_eq!(
            (&stats["fs_errors"], &stats["files_lost"], &stats["open_files"]),
            (&0.into(), &0.into(), &0.into()),
            "{stats}"
        );
        let files = process::of_type(&dir, "fileinfo");
        assert!(!files.is_empty() && files.iter().all(|e| e["fileinfo"]["stored"] == true), "{files:?}");
        let sizes: Vec<_> = files.iter().filter_map(|e| e["fileinfo"]["size"].as_u64()).collect();
        let stored = stored(&dir);
        assert!(
            stored.iter().all(|(name, size)| !name.contains("tmp") && sizes.contains(size)),
            "{stored:?}: {sizes:?}"
        );
        all.push(stored);
    }
    assert!(!all[0].is_empty() && all[0] == all[1], "{all:?}");
}
