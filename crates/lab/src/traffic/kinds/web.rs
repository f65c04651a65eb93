//! HTTP/1.1 (RFC 9112) and DNS (RFC 1035).

use super::super::profile::Options;
use super::super::session::Session;
use super::super::template::Dir::{Client, Server};
use super::{host, prose};

const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
];

/// A request's head.
pub(crate) fn request(s: &mut Session<'_>, method: &str, path: &str, host: &str, more: &str) -> String {
    let agent = s.rng.pick(&AGENTS);
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\
         Accept-Language: en-US,en;q=0.5\r\nConnection: keep-alive\r\n{more}\r\n"
    )
}

/// A response with its body.
pub(crate) fn response(status: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: nginx/1.26.1\r\nDate: Sat, 01 Jun 2024 10:00:00 GMT\r\nContent-Type: {kind}\r\n\
         Content-Length: {}\r\nConnection: keep-alive\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn path(s: &mut Session<'_>, extension: &str) -> String {
    const DIRS: [&str; 8] = ["assets", "news", "images", "articles", "static/js", "products", "media", "v2/items"];
    let (dir, n) = (*s.rng.pick(&DIRS), s.rng.range(4, 12) as usize);
    format!("/{dir}/{}.{extension}", s.rng.word(n))
}

pub(super) fn http(s: &mut Session<'_>, o: &Options) {
    const KINDS: [(&str, &str); 5] = [
        ("html", "text/html; charset=utf-8"),
        ("js", "application/javascript"),
        ("css", "text/css"),
        ("woff2", "font/woff2"),
        ("json", "application/json"),
    ];
    let host = host(s);
    let mut t = s.open(0, o.port.unwrap_or(80));
    for n in 0..o.requests.unwrap_or(4) {
        if n > 0 {
            let think = s.rng.tailed(30_000_000, 2_000_000);
            s.wait(think);
        }
        let size = s.rng.tailed(o.bytes.unwrap_or(12_000), 100) as usize;
        if s.rng.chance(o.upload) {
            let body = prose(s, size);
            let more = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n", body.len());
            let path = path(s, "cgi");
            let head = request(s, "POST", &path, &host, &more);
            s.send(&mut t, Client, &[head.as_bytes(), body.as_bytes()].concat());
            s.wait(1_000_000);
            s.send(&mut t, Server, &response("200 OK", "application/json", b"{\"stored\": true}"));
            continue;
        }
        let (extension, kind) = *s.rng.pick(&KINDS);
        let path = path(s, extension);
        let head = request(s, "GET", &path, &host, "");
        s.send(&mut t, Client, head.as_bytes());
        s.wait(500_000);
        let answer = if s.rng.chance(0.04) {
            response("404 Not Found", "text/html", b"<html><body><h1>Not Found</h1></body></html>")
        } else if extension == "woff2" {
            let mut body = s.rng.bytes(size);
            let magic = *b"wOF2";
            let n = body.len().min(4);
            body[..n].copy_from_slice(&magic[..n]);
            response("200 OK", kind, &body)
        } else {
            let body = prose(s, size);
            response("200 OK", kind, body.as_bytes())
        };
        s.send(&mut t, Server, &answer);
    }
    s.close(&mut t, Client);
}

/// Encodes a domain name as DNS labels.
pub(crate) fn labels(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|l| !l.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(label.len() as u8);
        out.extend(label);
    }
    out.push(0);
    out
}

/// A DNS message with one question, `flags`, and answers to it as pairs of type and data.
pub(crate) fn message(id: u16, flags: u16, name: &str, kind: u16, answers: &[(u16, Vec<u8>)], soa: bool) -> Vec<u8> {
    let mut m = Vec::with_capacity(64);
    for n in [id, flags, 1, answers.len() as u16, u16::from(soa), 0] {
        m.extend(n.to_be_bytes());
    }
    m.extend(labels(name));
    m.extend(kind.to_be_bytes());
    m.extend([0, 1]);
    let mut record = |kind: u16, ttl: u32, data: &[u8]| {
        m.extend([0xc0, 12]);
        m.extend(kind.to_be_bytes());
        m.extend([0, 1]);
        m.extend(ttl.to_be_bytes());
        m.extend((data.len() as u16).to_be_bytes());
        m.extend(data);
    };
    for (kind, data) in answers {
        record(*kind, 300, data);
    }
    if soa {
        let mut data = labels("ns1.example.com");
        data.extend(labels("hostmaster.example.com"));
        for n in [2_024_060_101u32, 7200, 3600, 1_209_600, 300] {
            data.extend(n.to_be_bytes());
        }
        record(6, 300, &data);
    }
    m
}

pub(super) fn dns(s: &mut Session<'_>, o: &Options) {
    let port = o.port.unwrap_or(53);
    let name = host(s);
    let id = s.rng.next() as u16;
    let (kind, name, answers): (u16, String, Vec<(u16, Vec<u8>)>) = match s.rng.below(10) {
        0 | 1 => (28, name, vec![(28, [&[0x20, 1, 0x0d, 0xb8][..], &s.rng.bytes(12)].concat())]),
        2 => (15, name, vec![(15, [&[0, 10][..], &labels("mx1.example.com")].concat())]),
        3 => (16, name, vec![(16, [&[11][..], b"v=spf1 -all"].concat())]),
        4 => {
            let b = s.rng.bytes(4);
            let reverse = format!("{}.{}.{}.{}.in-addr.arpa", b[0], b[1], b[2], b[3]);
            (12, reverse, vec![(12, labels(&name))])
        }
        5 => {
            let n = s.rng.word(9);
            (1, format!("{n}.{name}"), Vec::new())
        }
        _ => {
            let n = s.rng.range(1, 3);
            (1, name, (0..n).map(|_| (1, [&[203, 0, 113][..], &s.rng.bytes(1)].concat())).collect())
        }
    };
    let missing = answers.is_empty();
    s.udp(Client, 0, port, &message(id, 0x0100, &name, kind, &[], false));
    let turn = s.turn();
    s.wait(turn * 2);
    let flags = if missing { 0x8183 } else { 0x8180 };
    s.udp(Server, 0, port, &message(id, flags, &name, kind, &answers, missing));
}
