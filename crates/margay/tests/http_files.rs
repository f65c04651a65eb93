//! Names of HTTP files, from packets to alerts.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by it")]

mod made;
mod process;

use std::collections::BTreeSet;
use std::process::Stdio;

use made::Side::{Client, Server};
use made::{ACK, Capture, PUSH};
use process::{folder, of_type};

/// The rules that alert on a request and its response.
fn alerts(name: &str, rules: &str, request: &[u8], response: &[u8]) -> BTreeSet<u64> {
    const PORTS: (u16, u16) = (5001, 80);
    let (client, server) = (1001 + request.len() as u32, 5001 + response.len() as u32);
    let mut c = Capture::new();
    c.open(0, PORTS, (1000, 5000));
    c.tcp(10, Client, PORTS, (1001, 5001), ACK | PUSH, request);
    c.tcp(20, Server, PORTS, (5001, client), ACK | PUSH, response);
    c.tcp(30, Client, PORTS, (client, server), ACK, b"");
    let dir = folder(&format!("http-files-{name}"));
    c.write(&dir.join("a.pcap"));
    std::fs::write(dir.join("a.rules"), rules).expect("rules");
    let yaml = "%YAML 1.1\n---\noutputs:\n  - eve-log: {enabled: yes, filename: eve.json, types: [alert]}\n\
                app-layer: {protocols: {http: {enabled: yes, libhtp: {default-config: {request-body-limit: 100kb}}}}}\n";
    std::fs::write(dir.join("margay.yaml"), yaml).expect("a configuration");
    let mut e = process::engine(process::MARGAY, &dir.join("margay.yaml"), &dir);
    e.args(["--set", "unix-command.enabled=no", "-k", "none", "--runmode", "single", "-r"]).arg(dir.join("a.pcap"));
    let out = e.stdin(Stdio::null()).output().expect("the engine runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    of_type(&dir, "alert").iter().filter_map(|a| a["alert"]["signature_id"].as_u64()).collect()
}

/// A file's name has at most 4,096 bytes, in either direction and in a form.
#[test]
fn long_names_of_files() {
    const RULES: &str = "alert http any any -> any any (app-layer-event:http.file_name_too_long; sid:1;)\n\
                         alert http any any -> any any (file.name; bsize:>4096; sid:2;)\n";
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let get = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(n - 1)).into_bytes();
    let part = |n: usize| {
        let body = format!(
            "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{}\"\r\n\r\nhello\r\n--B--\r\n",
            "n".repeat(n)
        );
        let head = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: ";
        format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
    };
    for (n, request) in [get(4096), get(4097), part(4096), part(4097)].iter().enumerate() {
        let sids = alerts(&format!("name-{n}"), RULES, request, ok);
        assert_eq!(sids.into_iter().collect::<Vec<_>>(), if n % 2 == 1 { vec![1] } else { vec![] }, "{n}");
    }
}

/// In a `=>` rule, `file.name:to_server` is about the request's file.
#[test]
fn a_rule_in_both_directions_names_the_file_of_one() {
    const RULES: &str = "\
        alert http any any => any any (file.name:to_server; content:\"evil\"; http.stat_code; content:\"200\"; sid:1;)\n\
        alert http any any => any any (file.name:to_client; content:\"evil\"; http.uri; content:\"/\"; sid:2;)\n\
        alert http any any => any any (file.name:to_server; content:\"up\"; http.stat_code; content:\"200\"; sid:3;)\n\
        alert http any any => any any (file.name:to_server; content:\"up\"; file.name:to_client; content:\"evil\"; sid:4;)\n";
    let response: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Disposition: attachment; filename=\"evil.exe\"\r\nContent-Length: 2\r\n\r\nok";
    let post: &[u8] = b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let get: &[u8] = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    for (name, request, want) in [("post", post, vec![2, 3, 4]), ("get", get, vec![2])] {
        let sids = alerts(&format!("both-{name}"), RULES, request, response);
        assert_eq!(sids.into_iter().collect::<Vec<_>>(), want, "{name}");
    }
}
