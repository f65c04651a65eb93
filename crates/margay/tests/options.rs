//! Every command-line option: it works, it is rejected, or the start reports that it has no effect.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use margay_config::keys::Effect;
use process::{MARGAY, folder, root};
use serde_json::Value;

/// The output of a run.
struct Run {
    output: Output,
    dir: PathBuf,
}

impl Run {
    fn code(&self) -> i32 {
        self.output.status.code().unwrap_or(-1)
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned() + &String::from_utf8_lossy(&self.output.stderr)
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.join("eve.json")).unwrap_or_default();
        let all = text.lines().map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
        all.filter(|e| e["event_type"] == kind).collect()
    }

    fn stats(&self) -> Value {
        self.events("stats").pop().expect("statistics")["stats"].clone()
    }
}

fn demo(file: &str) -> String {
    root().join("demo").join(file).display().to_string()
}

/// Runs with these arguments and the shipped configuration.
fn run(name: &str, args: &[&str]) -> Run {
    let dir = folder(&format!("option-{name}"));
    let config = root().join("etc/margay.yaml");
    let mut command = Command::new(MARGAY);
    if !args.contains(&"-c") {
        command.arg("-c").arg(config);
    }
    if !args.contains(&"-l") {
        command.arg("-l").arg(&dir);
    }
    for file in ["classification", "reference"] {
        let path = root().join(format!("etc/{file}.config"));
        command.args([
            "--set",
            &format!("{file}-{}={}", if file == "reference" { "config-file" } else { "file" }, path.display()),
        ]);
    }
    let output = command.args(args).output().expect("the engine runs");
    Run { output, dir }
}

/// The same, on the demo capture with its rules.
fn read(name: &str, more: &[&str]) -> Run {
    let (pcap, rules) = (demo("demo.pcap"), demo("demo.rules"));
    let mut args = vec!["-r", &pcap, "-k", "none"];
    if !more.contains(&"-S") && !more.contains(&"-s") {
        args.extend(["-S", &rules]);
    }
    args.extend(more);
    run(name, &args)
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

const RULE: &str = "alert udp any any -> any any (msg:\"u\"; sid:77;)\n";

/// Options of live capture and services, with the tests that cover them.
const ELSEWHERE: [(&str, &str, &str); 11] = [
    ("-i", "margay/tests/live.rs", "traffic_during_the_start_is_not_lost"),
    ("--af-packet", "margay/tests/live.rs", "alerts_are_those_of_the_file"),
    ("--af-xdp", "margay/tests/af_xdp.rs", "alerts_are_those_of_the_file"),
    ("--pcap", "margay/tests/live.rs", "libpcap_finds_what_the_file_has"),
    ("--pcap-buffer-size", "engine/src/live/libpcap.rs", "an_interface_has_what_is_said_of_it_or_of_all"),
    ("-q", "margay/tests/nfqueue.rs", "attacks_do_not_arrive"),
    ("--unix-socket", "margay/tests/control.rs", "captures_are_handed_over"),
    ("--reject-dev", "margay/tests/live.rs", "answers_go_out_of_another_interface"),
    ("-D", "margay/tests/service.rs", "in_the_background"),
    ("--user", "margay/tests/service.rs", "a_file_with_few_rights"),
    ("--group", "margay/tests/service.rs", "a_file_with_few_rights"),
];

#[test]
fn every_option_does_what_it_says() {
    let mut untested = Vec::new();
    for (option, takes, effect) in margay_config::option_rows() {
        match effect {
            Effect::Acts if acts(&option) => {}
            Effect::Acts => match ELSEWHERE.iter().find(|e| e.0 == option) {
                Some((_, file, test)) => {
                    let text = std::fs::read_to_string(root().join("crates").join(file)).expect("a test");
                    assert!(
                        text.contains(test) && text.contains(option.as_str()) || file.starts_with("engine"),
                        "{option}: {file}::{test}"
                    );
                }
                None => untested.push(option),
            },
            Effect::Ignored(why) => {
                let value = if takes == Some("SIZE") { "1mb" } else { "1" };
                let r = read("ignored", &[&option, value][..if takes.is_some() { 2 } else { 1 }]);
                assert!(
                    r.code() == 0 && r.said().contains(&format!("{option} has no effect: {why}")),
                    "{option}: {}",
                    r.said()
                );
            }
            Effect::Refused(why) => {
                let given =
                    if takes.is_some() && option.starts_with("--") { format!("{option}=1") } else { option.clone() };
                let alone = [given.as_str(), "1"];
                let r = run("refused", &alone[..if takes.is_some() && !option.starts_with("--") { 2 } else { 1 }]);
                assert!(
                    r.code() == 1 && r.said().contains(why) && r.said().contains(&option),
                    "{option}: {}",
                    r.said()
                );
            }
        }
    }
    assert_eq!(untested, [""; 0], "nobody tests what these do");
}

/// Whether this file tests the option; the test has then passed.
fn acts(option: &str) -> bool {
    let dir = folder(&format!("for{option}"));
    let plain = || read("plain", &[]);
    match option {
        "-c" => {
            let config =
                write(&dir, "own.yaml", "%YAML 1.1\n---\noutputs:\n- eve-log: {enabled: yes, types: [flow]}\n");
            let r = read("c", &["-c", &config]);
            assert!(r.code() == 0 && !r.events("flow").is_empty() && r.events("alert").is_empty(), "{}", r.said());
        }
        "--include" => {
            let more = write(&dir, "more.yaml", "%YAML 1.1\n---\nsensor-name: included\n");
            assert_eq!(read("include", &["--include", &more]).events("alert")[0]["host"], "included");
        }
        // A run that ends at once serves no page, but it opens the port. tests/watch.rs tests the page.
        "--web" => {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let at = taken.local_addr().expect("its address").to_string();
            let r = read("web", &["--web", &at]);
            assert!(r.code() == 1 && r.said().contains(&at), "{}", r.said());
        }
        "--set" => assert_eq!(read("set", &["--set", "sensor-name=here"]).events("alert")[0]["host"], "here"),
        "-l" => {
            let r = read("l", &["-l", &dir.display().to_string()]);
            assert!(dir.join("eve.json").exists() && !r.dir.join("eve.json").exists());
        }
        "--data-dir" => {
            let rules = write(
                &dir,
                "d.rules",
                "alert dns any any -> any any (dns.query; dataset:set,seen,type string,save seen.lst; sid:1;)\n",
            );
            let r = read(
                "data",
                &["--data-dir", &dir.display().to_string(), "-S", &rules, "--set", "datasets.rules.allow-write=yes"],
            );
            assert!(dir.join("seen.lst").exists(), "{}", r.said());
        }
        "-T" => {
            let r = read("test", &["-T"]);
            assert!(
                r.code() == 0 && !r.dir.join("eve.json").exists() && r.said().contains("successfully loaded. Exiting")
            );
        }
        "--dump-config" => assert!(read("dump", &["--dump-config"]).said().contains("\ndefault-log-dir = ")),
        "-r" => assert!(plain().stats()["decoder"]["pkts"].as_u64() > Some(10)),
        "--pcap-file-recursive" => {
            std::fs::create_dir_all(dir.join("in/deeper")).expect("folders");
            std::fs::copy(demo("demo.pcap"), dir.join("in/deeper/a.pcap")).expect("a copy");
            let of = |more: &[&str]| {
                run(
                    "recursive",
                    &[&["-r", &dir.join("in").display().to_string(), "-S", &demo("demo.rules")], more].concat(),
                )
            };
            assert!(of(&[]).events("alert").is_empty() && !of(&["--pcap-file-recursive"]).events("alert").is_empty());
        }
        "--pcap-file-continuous" => {
            // The engine watches a folder until it is told to stop.
            let mut child = Command::new(MARGAY)
                .arg("-c")
                .arg(root().join("etc/margay.yaml"))
                .arg("-l")
                .arg(&dir)
                .arg("-r")
                .arg(&dir)
                .arg("-S")
                .arg(demo("demo.rules"))
                .arg("--pcap-file-continuous")
                .spawn()
                .expect("the engine starts");
            std::thread::sleep(std::time::Duration::from_millis(1500));
            assert!(child.try_wait().expect("a child").is_none(), "it waits for more");
            process::kill(&child.id().to_string(), "INT");
            assert!(child.wait().expect("a child").success());
        }
        "--pcap-preload" => {
            // A preloaded file may be removed during the run. Here it is enough that both runs find the same.
            assert_eq!(read("preload", &["--pcap-preload"]).events("alert").len(), plain().events("alert").len());
        }
        "--pcap-file-delete" => {
            let copy = dir.join("a.pcap");
            std::fs::copy(demo("demo.pcap"), &copy).expect("a copy");
            let r =
                run("delete", &["-r", &copy.display().to_string(), "-S", &demo("demo.rules"), "--pcap-file-delete"]);
            assert!(r.code() == 0 && !copy.exists(), "{}", r.said());
        }
        "-F" => {
            let filter = write(&dir, "filter", "udp # and nothing else\n");
            let (all, some) = (plain().stats(), read("F", &["-F", &filter]).stats());
            assert!(
                some["decoder"]["tcp"] == 0
                    && some["decoder"]["udp"] == all["decoder"]["udp"]
                    && all["decoder"]["tcp"] != 0
            );
        }
        "-k" => {
            let broken = broken_checksums(&dir);
            let of = |k: &str| run("k", &["-r", &broken, "-S", &demo("demo.rules"), "-k", k]).events("alert").len();
            assert!(of("none") > of("all"), "{} {}", of("none"), of("all"));
        }
        "-s" | "-S" => {
            let rules = write(&dir, "own.rules", RULE);
            let found = read(
                "rules",
                &[
                    option,
                    &rules,
                    "--set",
                    &format!("default-rule-path={}", root().join("demo").display()),
                    "--set",
                    "rule-files.0=demo.rules",
                ],
            );
            let sids: Vec<u64> =
                found.events("alert").iter().filter_map(|e| e["alert"]["signature_id"].as_u64()).collect();
            assert!(sids.contains(&77) && sids.contains(&1_000_001) == (option == "-s"), "{option}: {sids:?}");
        }
        "--firewall" | "--firewall-rules-exclusive" => {
            let rules = write(&dir, "fw.rules", "accept:hook tcp:all any any -> any any (sid:1;)\n");
            let set = format!("firewall.rule-files.0={rules}");
            let args: &[&str] = if option == "--firewall" {
                &["--firewall", "--simulate-ips", "--set", &set]
            } else {
                &[option, &rules, "--simulate-ips"]
            };
            let r = read("firewall", args);
            assert!(r.code() == 0, "{}", r.said());
            let alone = read("firewall-passive", &[option, &rules][..if option == "--firewall" { 1 } else { 2 }]);
            assert!(alone.code() == 1 && alone.said().contains("firewall mode drops packets"), "{}", alone.said());
        }
        "--init-errors-fatal" => {
            let rules = write(
                &dir,
                "bad.rules",
                "alert udp any any -> any any (nonsense; sid:1;)\nalert udp any any -> any any (sid:2;)\n",
            );
            assert_eq!((read("lax", &["-S", &rules]).code(), read("fatal", &["-S", &rules, option]).code()), (0, 1));
        }
        "--strict-rule-keywords" => {
            let rules = write(&dir, "strict.rules", "alert udp any any -> any any (classtype:no-such-class; sid:2;)\n");
            let of = |more: &[&str]| read("strict", &[&["-S", &rules, "--init-errors-fatal"], more].concat()).code();
            assert_eq!((of(&[]), of(&[option])), (0, 1));
        }
        "--disable-detection" => assert!(read("off", &[option]).events("alert").is_empty()),
        "--disable-hashing" => {
            let set = ["--set", "outputs.1.eve-log.types.7.files.force-hash.0=md5"];
            let hashes = |r: &Run| r.events("fileinfo").iter().filter(|e| e["fileinfo"]["md5"].is_string()).count();
            let (with, without) = (read("hash", &set), read("nohash", &[&set[..], &[option]].concat()));
            assert!(hashes(&with) > 0 && hashes(&without) == 0, "{} {}", hashes(&with), hashes(&without));
        }
        "--no-cache" => {
            let cache = dir.join("cache");
            let set = format!("detect.sgh-mpm-caching-path={}", cache.display());
            read("cache", &["--set", &set, option]);
            assert!(!cache.exists());
        }
        "--engine-analysis" => {
            let r = run("analysis", &["-S", &demo("demo.rules"), option]);
            assert!(r.dir.join("rules.json").exists(), "{}", r.said());
        }
        "--runmode" => {
            let words = |mode: &str| read("runmode", &["--runmode", mode, "--set", "margay.workers=3"]).said();
            assert!(words("single").contains("W: 1 ") && words("autofp").contains("W: 3 "), "{}", words("autofp"));
        }
        "--simulate-ips" => {
            let rules = write(&dir, "drop.rules", "drop udp any any -> any any (msg:\"d\"; sid:1;)\n");
            let actions = |more: &[&str]| {
                let r = read("ips", &[&["-S", &rules], more].concat());
                r.events("alert").iter().filter(|e| e["alert"]["action"] == "blocked").count()
            };
            assert!(actions(&[]) == 0 && actions(&[option]) > 0);
        }
        "--pidfile" => {
            let file = dir.join("pid");
            // The file is removed at the end of the process. A path that cannot be created shows that the option works.
            assert_eq!(read("pid", &[option, &file.display().to_string()]).code(), 0);
            let r = read("no-pid", &[option, "/no/such/folder/pid"]);
            assert!(r.code() == 1 && r.said().contains("/no/such/folder/pid"), "{}", r.said());
        }
        "--no-random" => {
            let ids = |more: &[&str]| -> Vec<u64> {
                read("ids", more).events("alert").iter().filter_map(|e| e["flow_id"].as_u64()).collect()
            };
            assert!(ids(&[option]) == ids(&[option]) && !ids(&[option]).is_empty());
        }
        "-v" => assert!(read("v", &["-v"]).said().len() > plain().said().len()),
        "--help" => assert!(run("help", &[option]).said().contains("Usage: margay")),
        "--version" => assert!(run("version", &[option]).said().contains(env!("CARGO_PKG_VERSION"))),
        "--build-info" => assert!(!run("build", &[option]).said().is_empty()),
        "--dump-features" => assert!(!run("features", &[option]).said().is_empty()),
        "--list-app-layer-protos" => assert!(run("protos", &[option]).said().contains("\ndns\n")),
        "--list-app-layer-hooks" => assert!(run("hooks", &[option]).said().contains("request_")),
        "--list-rule-protos" => assert!(run("rule-protos", &[option]).said().contains("tcp-pkt")),
        "--list-keywords" => assert!(run("keywords", &["--list-keywords=content"]).said().starts_with("= content =")),
        "--list-runmodes" => assert!(run("runmodes", &[option]).said().contains("autofp")),
        _ => return false,
    }
    true
}

/// The demo capture with a wrong checksum in every TCP segment.
fn broken_checksums(dir: &Path) -> String {
    let mut bytes = std::fs::read(demo("demo.pcap")).expect("the demo");
    let mut at = 24;
    while let Some(length) = bytes.get(at + 8..at + 12).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize) {
        let frame = at + 16;
        // Ethernet, IPv4 without options, TCP.
        if bytes.get(frame + 12..frame + 15) == Some(&[8, 0, 0x45]) && bytes.get(frame + 23) == Some(&6) {
            bytes[frame + 14 + 20 + 16] ^= 0x55;
        }
        at = frame + length;
    }
    let path = dir.join("broken.pcap");
    std::fs::write(&path, bytes).expect("a file");
    path.display().to_string()
}
