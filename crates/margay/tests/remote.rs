//! Events that go to another machine, with the servers that people run: Redis, rsyslog, and OpenSSL's for TLS. Each gets
//! what a file gets from the same run, in the same order.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod process;

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use process::{MARGAY, folder, root, wait};

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the program is there; where it is not, the test is recorded as not run.
fn installed(program: &str) -> bool {
    let there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|d| d.join(program).exists()))
        || Path::new("/usr/sbin").join(program).exists();
    if !there {
        margay_testing::not_run(&format!("{program} is not installed"));
    }
    there
}

/// A port that nobody has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

fn listening(port: u16) {
    wait("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

/// Reads the demonstration's capture, writing all of its events to `eve.json` and to an output with these lines.
fn run(dir: &Path, output: &str) -> Output {
    let types = "[alert, dns, http, fileinfo, flow, tls]";
    let config = format!(
        "%YAML 1.1\n---\noutputs:\n  - eve-log:\n      enabled: yes\n      filename: eve.json\n      append: no\n      community-id: yes\n      \
         types: {types}\n  - eve-log:\n      enabled: yes\n      community-id: yes\n      types: {types}\n{output}\n"
    );
    std::fs::write(dir.join("c.yaml"), config).expect("a configuration");
    let demo = root().join("demo");
    let capture = std::fs::read_dir(&demo).expect("the demonstration").flatten().map(|e| e.path());
    let capture: PathBuf = capture.filter(|p| p.extension().is_some_and(|e| e == "pcap")).max().expect("a capture");
    let mut c = Command::new(MARGAY);
    c.arg("-c").arg(dir.join("c.yaml")).arg("-l").arg(dir).arg("-r").arg(capture).arg("-k").arg("none");
    c.arg("-S").arg("/dev/null").output().expect("the engine runs")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

/// What the file has.
fn written(dir: &Path) -> Vec<String> {
    let all = lines(&std::fs::read_to_string(dir.join("eve.json")).expect("events"));
    assert!(all.len() > 5, "{} events", all.len());
    all
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn redis(port: u16) -> Server {
    let mut c = Command::new("redis-server");
    c.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let server = Server(c.stdout(Stdio::null()).spawn().expect("redis-server starts"));
    listening(port);
    server
}

fn ask_redis(port: u16, words: &[&str]) -> Vec<String> {
    let out = Command::new("redis-cli").args(["-p", &port.to_string(), "--raw"]).args(words).output();
    lines(&String::from_utf8_lossy(&out.expect("redis-cli runs").stdout))
}

#[test]
fn redis_gets_what_the_file_gets() {
    if !installed("redis-server") {
        return;
    }
    let port = free_port();
    let _server = redis(port);
    let output = |more: &str| format!("      filetype: redis\n      redis: {{port: {port}{more}}}");
    let dir = folder("remote-redis");
    for (mode, key) in [("list", "left"), ("rpush", "right")] {
        let ran = run(&dir, &output(&format!(", mode: {mode}, key: {key}")));
        assert!(ran.status.success(), "{}", said(&ran));
        let mut got = ask_redis(port, &["LRANGE", key, "0", "-1"]);
        if mode == "list" {
            got.reverse();
        }
        assert_eq!(got, written(&dir), "{mode}");
    }
    let ran = run(&dir, &output(", mode: stream, key: s, pipelining: {enabled: yes, batch-size: 3}"));
    assert!(ran.status.success(), "{}", said(&ran));
    let got = ask_redis(port, &["XRANGE", "s", "-", "+"]);
    // Each entry is its identifier, the field and the value.
    let (fields, values): (Vec<_>, Vec<_>) = got.chunks(3).map(|e| (e[1].clone(), e[2].clone())).unzip();
    assert!(fields.iter().all(|f| f == "eve"));
    assert_eq!(values, written(&dir));
    let ran = run(&dir, &output(", mode: stream, key: s, stream-maxlen: 4, stream-trim-exact: yes"));
    assert!(ran.status.success(), "{}", said(&ran));
    assert_eq!(ask_redis(port, &["XLEN", "s"]), ["4"]);
}

#[test]
fn a_channel_of_redis() {
    if !installed("redis-server") {
        return;
    }
    let port = free_port();
    let _server = redis(port);
    let dir = folder("remote-channel");
    let heard = dir.join("heard");
    let mut c = Command::new("redis-cli");
    c.args(["-p", &port.to_string(), "--raw", "SUBSCRIBE", "eve"]).stdout(File::create(&heard).expect("a file"));
    let _listener = Server(c.spawn().expect("redis-cli runs"));
    wait("somebody listens", || ask_redis(port, &["PUBSUB", "NUMSUB", "eve"]) == ["eve", "1"]);
    let ran = run(&dir, &format!("      filetype: redis\n      redis: {{port: {port}, mode: channel, key: eve}}"));
    assert!(ran.status.success(), "{}", said(&ran));
    let want = written(&dir);
    let events = || {
        let all = lines(&std::fs::read_to_string(&heard).unwrap_or_default());
        all.into_iter().filter(|l| l.starts_with('{')).collect::<Vec<_>>()
    };
    wait("all of them came", || events().len() >= want.len());
    assert_eq!(events(), want);
}

#[test]
fn what_redis_refuses_is_told_and_ends_with_1() {
    if !installed("redis-server") {
        return;
    }
    let port = free_port();
    let _server = redis(port);
    ask_redis(port, &["SET", "taken", "text"]);
    let dir = folder("remote-refused");
    let ran = run(&dir, &format!("      filetype: redis\n      redis: {{port: {port}, key: taken}}"));
    let said = said(&ran);
    assert!(said.contains("WRONGTYPE"), "{said}");
    assert!(said.contains("could not be sent before the end and are lost"), "{said}");
    assert_eq!(ran.status.code(), Some(1), "{said}");
}

#[test]
fn the_spool_keeps_events_for_a_redis_that_comes_later() {
    if !installed("redis-server") {
        return;
    }
    let port = free_port();
    let dir = folder("remote-spool");
    let output =
        format!("      filetype: redis\n      redis: {{port: {port}, mode: rpush}}\n      spool: {{dir: spool}}");
    let mut want = Vec::new();
    for _ in 0..2 {
        let ran = run(&dir, &output);
        assert!(ran.status.success(), "{}", said(&ran));
        assert!(said(&ran).contains("wait on disk for the next run"), "{}", said(&ran));
        want.extend(written(&dir));
    }
    let _server = redis(port);
    let ran = run(&dir, &output);
    assert!(ran.status.success(), "{}", said(&ran));
    want.extend(written(&dir));
    assert_eq!(ask_redis(port, &["LRANGE", "suricata", "0", "-1"]), want);
    let left = std::fs::read_dir(dir.join("spool")).expect("the spool").flatten();
    assert!(left.map(|e| e.file_name()).all(|n| n == "acknowledged"), "the spool is empty afterwards");
}

#[test]
fn rsyslog_reads_what_is_sent() {
    if !installed("rsyslogd") {
        return;
    }
    for scheme in ["tcp", "udp"] {
        let dir = folder(&format!("remote-rsyslog-{scheme}"));
        let (port, got) = (free_port(), dir.join("got"));
        let config = format!(
            "global(workDirectory=\"{0}\" maxMessageSize=\"64k\")\nmodule(load=\"im{scheme}\")\ninput(type=\"im{scheme}\" port=\"{port}\" \
             address=\"127.0.0.1\")\ntemplate(name=\"t\" type=\"string\" \
             string=\"%syslogfacility-text% %syslogseverity-text% %app-name% %msgid%|%msg%\\n\")\naction(type=\"omfile\" file=\"{1}\" template=\"t\")\n",
            dir.display(),
            got.display()
        );
        std::fs::write(dir.join("r.conf"), config).expect("a configuration");
        let mut c = Command::new("/usr/sbin/rsyslogd");
        c.arg("-n").arg("-f").arg(dir.join("r.conf")).arg("-i").arg(dir.join("pid"));
        let _server = Server(c.spawn().expect("rsyslogd starts"));
        if scheme == "tcp" {
            listening(port);
        } else {
            let port = format!(":{port:04X}");
            wait("the server listens", || std::fs::read_to_string("/proc/net/udp").is_ok_and(|t| t.contains(&port)));
        }
        let ran = run(
            &dir,
            &format!(
                "      filetype: syslog\n      identity: sensor\n      facility: local3\n      level: Notice\n      syslog: {{server: \"{scheme}://127.0.0.1:{port}\"}}"
            ),
        );
        assert!(ran.status.success(), "{}", said(&ran));
        let want: Vec<String> = written(&dir).iter().map(|l| format!("local3 notice sensor eve|{l}")).collect();
        let read = || lines(&std::fs::read_to_string(&got).unwrap_or_default());
        wait("all of them came", || read().len() >= want.len());
        // rsyslog puts a space before a message without structured data.
        let read: Vec<String> = read().iter().map(|l| l.replacen("| {", "|{", 1)).collect();
        assert_eq!(read, want, "{scheme}");
    }
}

/// An authority, and a server's certificate for `localhost`.
fn certificates(dir: &Path) {
    let openssl = |args: &str| {
        let done = Command::new("openssl").args(args.split(' ')).current_dir(dir).output().expect("openssl runs");
        assert!(done.status.success(), "{args}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    for ca in ["ca", "other"] {
        openssl(&format!("req -x509 {key} -keyout {ca}.key -out {ca}.pem -subj /CN={ca} -days 2"));
    }
    openssl(&format!("req {key} -keyout s.key -out s.csr -subj /CN=localhost"));
    std::fs::write(dir.join("ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").expect("a file");
    openssl("x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out s.pem -days 2 -extfile ext");
}

#[test]
fn lines_over_tls() {
    if !installed("openssl") {
        return;
    }
    let dir = folder("remote-tls");
    certificates(&dir);
    let (port, got) = (free_port(), dir.join("got"));
    let mut c = Command::new("openssl");
    c.args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-cert", "s.pem", "-key", "s.key", "-quiet"]);
    c.current_dir(&dir).stdin(Stdio::piped()).stdout(File::create(&got).expect("a file")).stderr(Stdio::null());
    let _server = Server(c.spawn().expect("openssl starts"));
    listening(port);
    let output = |ca: &str, name: &str| {
        format!(
            "      filetype: tcp\n      tcp: {{server: \"127.0.0.1:{port}\", tls: {{enabled: yes, ca: {}, server-name: {name}}}}}",
            dir.join(ca).display()
        )
    };
    let ran = run(&dir, &output("ca.pem", "localhost"));
    assert!(ran.status.success(), "{}", said(&ran));
    let want = written(&dir);
    let read = || lines(&std::fs::read_to_string(&got).unwrap_or_default());
    wait("all of them came", || read().len() >= want.len());
    assert_eq!(read(), want);
    // A server that nobody vouches for, or another one than was meant, gets nothing.
    for (ca, name) in [("other.pem", "localhost"), ("ca.pem", "elsewhere")] {
        let ran = run(&dir, &output(ca, name));
        assert_eq!(ran.status.code(), Some(1), "{}", said(&ran));
        assert!(said(&ran).contains("invalid peer certificate"), "{}", said(&ran));
        assert_eq!(read(), want);
    }
}
