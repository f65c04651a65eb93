//! The live page and the metrics over HTTP/1.1 (RFC 9112): a small server of its own, because it answers only a few paths,
//! never changes anything, and must cost the engine nothing without a client.
//!
//! | path | what |
//! | --- | --- |
//! | `/` and its files | the page, without any data of the engine |
//! | `/api/snapshot` | the snapshot ([`crate::model::Snapshot`]) |
//! | `/api/history?since=T` | points of the last hour later than T milliseconds since 1970 |
//! | `/api/alerts?since=N&limit=M` | alerts with a number above N: the last M, at most all that are kept |
//! | `/metrics` | every counter ([`crate::metrics`]) |
//!
//! Limits: [`CLIENTS_MAX`] connections, requests of [`REQUEST_MAX`] bytes within [`PATIENCE`], none with a body. If a token
//! is set, `/api` and `/metrics` require it. Without a token, requests must name a host of this machine, so that a foreign
//! page cannot send them through a visitor's browser (DNS rebinding).

mod assets;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::{Hub, metrics};

/// Limit of the connections at a time.
pub const CLIENTS_MAX: usize = 16;
/// Limit of a request's bytes.
pub const REQUEST_MAX: usize = 8 << 10;
/// Limit of the time for a request, from its first byte on, and for reading an answer.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be silent between two requests.
const IDLE: Duration = Duration::from_secs(30);
/// Interval of the checks whether the engine stops.
const STEP: Duration = Duration::from_millis(200);
/// Interval of the checks for new connections.
const ACCEPT: Duration = Duration::from_millis(20);
/// Delay of the answer to a wrong token, so that guessing is slow.
const WRONG: Duration = Duration::from_millis(300);
/// Limit of the wait for a first sample.
const SAMPLE: Duration = Duration::from_secs(4);
/// Stack of a connection's thread.
const STACK: usize = 512 << 10;

/// Content-Security-Policy: the page may load its own scripts, styles and images, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The rules for admitting clients.
#[derive(Clone)]
pub struct Access {
    /// The address on which the server listens.
    pub listen: SocketAddr,
    /// The token that clients must send, if any.
    pub token: Option<String>,
}

/// The state for answering a connection.
struct Served<'a> {
    hub: &'a Hub,
    access: &'a Access,
    shared: &'a (dyn Fn(&str) -> bool + Sync),
    stop: &'a (dyn Fn() -> bool + Sync),
}

/// Serves until `stop` is set. `shared` says whether a counter belongs to all workers together. Each connection has its own
/// thread.
pub fn serve(
    listener: &TcpListener,
    hub: &Hub,
    access: &Access,
    shared: &(dyn Fn(&str) -> bool + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) {
    let served = Served { hub, access, shared, stop };
    let clients = AtomicUsize::new(0);
    // A blocking `accept` would delay the engine's end.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    std::thread::scope(|scope| {
        while !stop() {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(ACCEPT);
                continue;
            };
            if clients.load(Ordering::Acquire) >= CLIENTS_MAX {
                // A refused client need not receive the answer.
                let _ = stream.set_nonblocking(true);
                let _ = stream.write_all(&Answer::text(503, "too many connections; try again").bytes(false, false));
                continue;
            }
            clients.fetch_add(1, Ordering::AcqRel);
            let leaving = Leaving(&clients);
            let served = &served;
            let thread = std::thread::Builder::new().name("margay-web".into()).stack_size(STACK);
            // If no thread can start, the connection closes, and `leaving` is dropped with the closure.
            let _ = thread.spawn_scoped(scope, move || {
                let _leaving = leaving;
                served.connection(&mut stream);
            });
        }
    });
}

/// Decrements the count of connections, however a connection ends.
struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The relevant parts of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    head_only: bool,
    path: String,
    query: String,
    host: Option<String>,
    token: Option<String>,
    open_metrics: bool,
    close: bool,
}

/// A response.
struct Answer {
    status: u16,
    kind: &'static str,
    keep: bool,
    body: Vec<u8>,
}

impl Answer {
    fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status: 200, kind, keep: false, body: body.into() }
    }

    fn text(status: u16, why: &str) -> Answer {
        Answer { status, ..Answer::new("text/plain; charset=utf-8", format!("{why}\n")) }
    }

    fn json(text: String) -> Answer {
        Answer::new("application/json", text)
    }

    /// The whole answer; for a HEAD request, without the body.
    fn bytes(&self, head_only: bool, stays: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            431 => "Request Header Fields Too Large",
            _ => "Service Unavailable",
        };
        let more = match self.status {
            401 => "WWW-Authenticate: Bearer realm=\"margay\"\r\n",
            405 => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut out = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\nCache-Control: {}\r\n\
             Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n{more}\r\n",
            self.status,
            self.kind,
            self.body.len(),
            if stays { "keep-alive" } else { "close" },
            if self.keep { "no-cache" } else { "no-store" },
        )
        .into_bytes();
        if !head_only {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

/// Reads a request's head.
///
/// # Errors
/// The error response.
fn parse(head: &[u8]) -> Result<Request, Answer> {
    let bad = |why: &str| Answer::text(400, why);
    let text = std::str::from_utf8(head).map_err(|_| bad("the request is no text"))?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad("the request line cannot be read"));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(bad("HTTP/1.1 is spoken here"));
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err(Answer::text(405, "nothing can be changed here: GET and HEAD alone"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !path.starts_with('/') {
        return Err(bad("the target must be a path"));
    }
    let mut request = Request {
        head_only: method == "HEAD",
        path: path.to_owned(),
        query: query.to_owned(),
        close: version == "HTTP/1.0",
        ..Request::default()
    };
    for line in lines.filter(|l| !l.is_empty()) {
        let Some((name, value)) = line.split_once(':') else { return Err(bad("a header cannot be read")) };
        let value = value.trim_matches([' ', '\t']);
        match name.to_ascii_lowercase().as_str() {
            // Several `Host` fields may be an attack, and must be refused (RFC 9112, section 3.2).
            "host" if request.host.is_some() => return Err(bad("Host is there twice")),
            "host" => request.host = Some(value.to_owned()),
            "authorization" => {
                let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
                request.token = token.map(|(_, token)| token.trim().to_owned());
            }
            "accept" => request.open_metrics = value.contains("application/openmetrics-text"),
            "connection" => request.close |= value.to_ascii_lowercase().contains("close"),
            "content-length" if value == "0" => {}
            "content-length" | "transfer-encoding" => return Err(bad("a body is not taken here")),
            _ => {}
        }
    }
    Ok(request)
}

/// A number in a query: 5 for `since` in `since=5&limit=3`.
fn number(query: &str, name: &str) -> Option<u64> {
    query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// Whether `host` is a loopback name of this machine, or the address on which the server listens.
fn is_own(host: &str, listen: SocketAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |r| r.0),
        None => host.rsplit_once(':').map_or(host, |h| h.0),
    };
    let address: Option<IpAddr> = name.parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(|a| a.is_loopback() || a == listen.ip())
}

impl Served<'_> {
    /// Answers the requests of a connection, one after the other.
    fn connection(&self, stream: &mut TcpStream) {
        if stream.set_nonblocking(false).is_err()
            || stream.set_read_timeout(Some(STEP)).is_err()
            || stream.set_write_timeout(Some(PATIENCE)).is_err()
        {
            return;
        }
        // Each answer is written in one piece, so delaying small segments would gain nothing.
        let _ = stream.set_nodelay(true);
        let mut held: Vec<u8> = Vec::new();
        let mut bytes = [0u8; 4096];
        let mut since = Instant::now();
        loop {
            if let Some(end) = held.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = held.drain(..end + 4).collect();
                let (answer, head_only, stays) = match parse(head.get(..end).unwrap_or_default()) {
                    Ok(r) => (self.answer(&r), r.head_only, !r.close),
                    Err(answer) => (answer, false, false),
                };
                if stream.write_all(&answer.bytes(head_only, stays)).is_err() || !stays {
                    return;
                }
                since = Instant::now();
                continue;
            }
            if held.len() > REQUEST_MAX {
                // Nothing more is read, whether or not the client receives this answer.
                let _ = stream.write_all(&Answer::text(431, "the request is too long").bytes(false, false));
                return;
            }
            let patience = if held.is_empty() { IDLE } else { PATIENCE };
            if (self.stop)() || since.elapsed() > patience {
                return;
            }
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => {
                    if held.is_empty() {
                        since = Instant::now();
                    }
                    held.extend_from_slice(bytes.get(..n).unwrap_or_default());
                }
                Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn answer(&self, r: &Request) -> Answer {
        if let Some((kind, body)) = assets::find(&r.path) {
            return Answer { keep: true, ..Answer::new(kind, body) };
        }
        if let Some(refusal) = self.refusal(r) {
            return refusal;
        }
        let none = || Answer::text(503, "nothing is known yet: the engine is starting, or stops");
        match r.path.as_str() {
            "/api/snapshot" => match self.hub.snapshot(SAMPLE).map(|s| serde_json::to_string(&*s)) {
                Some(Ok(text)) => Answer::json(text),
                _ => none(),
            },
            "/api/history" => {
                let points = self.hub.history(number(&r.query, "since").unwrap_or(0));
                serde_json::to_string(&points).map_or_else(|_| none(), Answer::json)
            }
            "/api/alerts" => {
                let most = number(&r.query, "limit").and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
                Answer::json(self.hub.alerts(number(&r.query, "since").unwrap_or(0), most))
            }
            "/metrics" => match self.hub.sample(SAMPLE) {
                Some(sample) => {
                    let format = if r.open_metrics { metrics::Format::OpenMetrics } else { metrics::Format::Text };
                    Answer::new(format.content_type(), metrics::render(&sample, self.shared, format))
                }
                None => none(),
            },
            _ => Answer::text(404, "there is nothing of that name"),
        }
    }

    /// The refusal of a request for the engine's data; `None` if the request is allowed.
    fn refusal(&self, r: &Request) -> Option<Answer> {
        match (&self.access.token, &r.token) {
            (Some(wanted), given) => {
                let given = given.as_deref().unwrap_or_default();
                if bool::from(wanted.as_bytes().ct_eq(given.as_bytes())) {
                    return None;
                }
                if !given.is_empty() {
                    std::thread::sleep(WRONG);
                }
                Some(Answer::text(401, "a token is wanted (margay.web.token): Authorization: Bearer TOKEN"))
            }
            (None, _) => match &r.host {
                Some(host) if is_own(host, self.access.listen) => None,
                _ => Some(Answer::text(421, "without a token only requests to this host itself are answered")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> u16 {
        parse(head.as_bytes()).map_or_else(|a| a.status, |_| 200)
    }

    #[test]
    fn requests() {
        let r = parse(b"GET /api/alerts?since=5&limit=x HTTP/1.1\r\nHOST: localhost:1\r\nAuthorization: bearer  abc\r\nAccept: application/openmetrics-text;q=1").unwrap_or_default();
        assert_eq!(
            (r.path.as_str(), r.host.as_deref(), r.token.as_deref()),
            ("/api/alerts", Some("localhost:1"), Some("abc"))
        );
        assert!(r.open_metrics && !r.close && !r.head_only);
        assert_eq!(
            (number(&r.query, "since"), number(&r.query, "limit"), number(&r.query, "sin")),
            (Some(5), None, None)
        );
        for (head, want) in [
            ("HEAD / HTTP/1.0\r\nHost: a", 200),
            ("POST / HTTP/1.1\r\nHost: a", 405),
            ("GET / HTTP/2", 400),
            ("GET /", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET http://x/ HTTP/1.1", 400),
            ("GET / HTTP/1.1\r\nno colon", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
            ("GET / HTTP/1.1\r\nContent-Length: 0", 200),
            ("GET / HTTP/1.1\r\nContent-Length: 3", 400),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked", 400),
        ] {
            assert_eq!(status(head), want, "{head}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1").map_or_else(|a| a.status, |_| 200), 400);
    }

    #[test]
    fn names_of_this_host() {
        let listen: SocketAddr = "192.0.2.7:9300".parse().unwrap();
        for (host, own) in [
            ("localhost:9400", true),
            ("LOCALHOST", true),
            ("127.0.0.1:9300", true),
            ("127.9.9.9", true),
            ("[::1]:9300", true),
            ("192.0.2.7:9300", true),
            ("192.0.2.8:9300", false),
            ("evil.example:9300", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("", false),
        ] {
            assert_eq!(is_own(host, listen), own, "{host}");
        }
    }
}
