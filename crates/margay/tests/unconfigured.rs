//! A run without a configuration file, the built-in tables, and the errors that a configuration test (`-T`) finds.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use process::{Engine, MARGAY, events, folder, of_type, root, wait};

/// Runs in that folder.
fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(MARGAY).args(args).current_dir(dir).stdin(Stdio::null()).output().expect("it starts")
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

fn demo(file: &str) -> String {
    root().join("demo").join(file).display().to_string()
}

/// Whether a configuration is installed here. A run without `-c` would use it.
fn installed() -> bool {
    let there = Path::new("/etc/margay/margay.yaml").exists();
    if there {
        margay_testing::not_run("/etc/margay/margay.yaml is installed here: what holds without it cannot be seen");
    }
    there
}

#[test]
fn nothing_is_configured() {
    if installed() {
        return;
    }
    let dir = folder("unconfigured");
    let (pcap, rules) = (demo("demo.pcap"), demo("demo.rules"));
    let o = run(&dir, &["-r", &pcap, "-S", &rules, "-k", "none"]);
    assert!(o.status.success(), "{}", said(&o));
    let alerts = of_type(&dir, "alert");
    assert_eq!(alerts.len(), 4);
    // From the built-in classification.
    assert!(alerts.iter().any(|a| a["alert"]["category"] == "Attempted Information Leak"), "{alerts:?}");
    assert!(!said(&o).contains("Error opening") && !said(&o).contains("unknown classtype"), "{}", said(&o));
    for file in ["eve.json", "fast.log", "stats.log", "suricata.log"] {
        assert!(dir.join(file).exists(), "{file}");
    }

    let o = run(&dir, &["-r", &pcap, "-S", &rules, "-k", "none", "-l", "a/b"]);
    assert!(o.status.success() && dir.join("a/b/eve.json").exists(), "{}", said(&o));

    // Without rules, the engine says so and logs events.
    let o = run(&dir, &["-r", &pcap, "-l", "bare"]);
    if !Path::new("/var/lib/margay/rules/suricata.rules").exists() {
        assert!(o.status.success() && said(&o).contains("-S FILE"), "{}", said(&o));
    }
    assert!(!of_type(&dir.join("bare"), "flow").is_empty());
}

#[test]
fn no_folder_but_that_of_logs_is_written_to() {
    if installed() {
        return;
    }
    let dir = folder("unconfigured-settings");
    let o = run(&dir, &["--dump-config"]);
    assert!(o.status.success(), "{}", said(&o));
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(text.contains("default-log-dir = (null)") && text.contains("vars.address-groups.HOME_NET ="), "{text}");
    // The search for rules in these places writes nothing.
    let places: Vec<&str> = text.lines().filter(|l| l.contains("= /")).collect();
    assert!(
        places.iter().all(|l| l.starts_with("default-rule-path") || l.starts_with("firewall.rule-path")),
        "{places:?}"
    );
    assert!(!text.contains("/suricata/"), "{text}");
    assert_eq!(std::fs::read_dir(&dir).expect("a folder").count(), 0);
}

#[test]
fn a_test_needs_no_folder_for_logs() {
    if installed() {
        return;
    }
    let dir = folder("unconfigured-test");
    let o = run(&dir, &["-T", "-S", &demo("demo.rules"), "-l", "none"]);
    assert!(o.status.success() && !dir.join("none").exists(), "{}", said(&o));
    assert!(!said(&o).contains("none/"), "{}", said(&o));
    let config = root().join("etc/margay.yaml").display().to_string();
    let o = run(&dir, &["-T", "-c", &config, "-S", &demo("demo.rules"), "--set", "default-log-dir=/no/such/folder"]);
    assert!(o.status.success() && !said(&o).contains("/no/such/folder"), "{}", said(&o));
}

#[test]
fn a_daemon_logs_where_it_was_started() {
    if installed() {
        return;
    }
    let dir = folder("unconfigured-daemon");
    let (pcap, rules) = (demo("demo.pcap"), demo("demo.rules"));
    let o = run(&dir, &["-D", "-r", &pcap, "-S", &rules, "-k", "none"]);
    assert!(o.status.success(), "{}", said(&o));
    // The daemon is still writing: only whole lines count.
    let alerts = || {
        let text = std::fs::read_to_string(dir.join("eve.json")).unwrap_or_default();
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        whole.filter(|l| l.contains(r#""event_type":"alert""#)).count()
    };
    wait("alerts", || alerts() == 4);
}

#[test]
fn an_interface_without_a_configuration() {
    if installed() {
        return;
    }
    if std::fs::metadata("/proc/self").map_or(true, |m| std::os::unix::fs::MetadataExt::uid(&m) != 0) {
        margay_testing::not_run("capturing from an interface needs root");
        return;
    }
    let dir = folder("unconfigured-live");
    let mut c = Command::new(MARGAY);
    c.args(["-i", "lo", "-S", &demo("demo.rules"), "--set", "unix-command.enabled=no"]).current_dir(&dir);
    let mut engine = Engine::spawn(c, dir.join("none.sock")).ready();
    std::net::UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(b"x", "127.0.0.1:9")).expect("a packet");
    engine.signal("TERM");
    assert!(engine.until("Stopping engine"), "{:?}", engine.all);
    let (status, all) = engine.ended();
    assert!(status.success(), "{all:?}");
    assert!(dir.join("eve.json").exists() && !of_type(&dir, "stats").is_empty());
}

#[test]
fn tables_are_found_beside_the_configuration() {
    let dir = folder("beside");
    std::fs::write(
        dir.join("m.yaml"),
        "%YAML 1.1\n---\noutputs:\n- eve-log: {enabled: yes, types: [alert]}\nclassification-file: /no/such/classification.config\n",
    )
    .expect("a file");
    let rules = "alert ip any any -> any any (msg:\"m\"; classtype:own-class; sid:1;)\n";
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let read = || {
        let _ = std::fs::remove_file(dir.join("eve.json"));
        let o = run(&dir, &["-c", "m.yaml", "-r", &demo("demo.pcap"), "-S", "a.rules"]);
        assert!(o.status.success(), "{}", said(&o));
        (said(&o), events(&dir)[0]["alert"]["category"].clone())
    };
    // The file is missing, and the log reports it. The built-in table does not have the class.
    let (words, category) = read();
    assert!(words.contains("/no/such/classification.config") && words.contains("built-in"), "{words}");
    assert_eq!(category, "");
    let table = "config classification: own-class,Of a class of its own,2\n";
    std::fs::write(dir.join("classification.config"), table).expect("a table");
    let (words, category) = read();
    assert_eq!(category, "Of a class of its own", "{words}");
}

#[test]
fn a_test_refuses_what_would_not_start() {
    let dir = folder("refused");
    let inline = "af-packet:\n- interface: e0\n  copy-mode: ips\n  copy-iface: nowhere\n  threads: 1\n";
    for (name, text, word) in [
        ("memcap", "flow: {memcap: 12zb}\n", "12zb"),
        ("stream", "stream: {memcap: much}\n", "much"),
        ("copy", inline, "copy-iface"),
        ("home", "vars: {address-groups: {HOME_NET: 10.0.0.0/33}}\n", "10.0.0.0/33"),
        ("port", "vars: {port-groups: {HTTP_PORTS: 99999}}\n", "HTTP_PORTS"),
        ("batch", "margay: {batch-size: 0}\n", "batch-size"),
        ("threads", "af-packet:\n- interface: e0\n  threads: many\n", "many"),
        ("log", "logging: {outputs: [{console: {enabled: yes, level: loud}}]}\n", "loud"),
        ("delete", "pcap-file: {delete-when-done: perhaps}\n", "perhaps"),
    ] {
        let file = dir.join(format!("{name}.yaml"));
        std::fs::write(&file, format!("%YAML 1.1\n---\n{text}")).expect("a file");
        let o = run(&dir, &["-T", "-c", &file.display().to_string(), "-S", "/dev/null"]);
        assert_eq!(o.status.code(), Some(1), "{name}: {}", said(&o));
        assert!(said(&o).contains(word), "{name}: {}", said(&o));
    }
    let o = run(&dir, &["-T", "-i", "no-such-card", "-S", "/dev/null"]);
    assert!(o.status.code() == Some(1) && said(&o).contains("no-such-card"), "{}", said(&o));
}

#[test]
fn what_is_no_capture_ends_with_one() {
    let dir = folder("captures");
    let demo = std::fs::read(root().join("demo/demo.pcap")).expect("the demo capture");
    let files: [(&str, &[u8], i32, &str); 6] = [
        ("a.pcap.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3, 4], 1, "gzip"),
        ("empty.pcap", b"", 1, "is empty"),
        ("text.pcap", b"this is no capture at all, and it is long enough to see", 1, "not a capture"),
        ("header.pcap", &demo[..10], 1, "cut short"),
        ("cut.pcap", &demo[..1000], 0, "cut short"),
        ("none.pcap", &demo[..24], 0, "0 packets"),
    ];
    for (name, bytes, status, word) in files {
        std::fs::write(dir.join(name), bytes).expect("a file");
        for mode in ["single", "autofp"] {
            let o = run(&dir, &["-r", name, "--runmode", mode, "-S", "/dev/null", "-l", "logs"]);
            assert_eq!(o.status.code(), Some(status), "{name} {mode}: {}", said(&o));
            assert!(said(&o).contains(word) && said(&o).contains(name) | (status == 0), "{name} {mode}: {}", said(&o));
        }
    }
    // The other files of the folder are still read.
    let o = run(&dir, &["-r", ".", "-S", "/dev/null", "-l", "logs"]);
    assert!(o.status.success() && said(&o).contains("a.pcap.gz: skipped"), "{}", said(&o));
}

#[test]
fn the_program_says_the_same_of_itself_everywhere() {
    let dir = folder("itself");
    let build = said(&run(&dir, &["--build-info"]));
    for word in ["AF_PACKET", "AF_XDP", "NFQUEUE", "libpcap"] {
        assert!(build.contains(word), "{word}: {build}");
    }
    let socket = dir.join("s.sock");
    let mut c = Command::new(MARGAY);
    c.args(["--set", "unix-command.enabled=yes", "-S", "/dev/null", "-l"]).arg(&dir);
    c.arg(format!("--unix-socket={}", socket.display()));
    let engine = Engine::spawn(c, socket.clone()).ready();
    wait("the socket", || socket.exists());
    // As Suricata, the socket answers with the release alone.
    let version = engine.ask(&["version"]);
    assert!(
        version.as_str().is_some_and(|v| v.ends_with(" RELEASE") && said(&run(&dir, &["-V"])).contains(v)),
        "{version}"
    );
    engine.stop_by("TERM");
}
