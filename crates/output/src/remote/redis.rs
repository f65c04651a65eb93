//! Redis: lists, channels and streams.
//!
//! This module speaks the protocol (RESP2) itself: five commands and three kinds of reply take a page, while the client
//! crate brings twenty dependencies. A batch is a pipeline of commands whose replies are read afterwards. Within `MULTI`
//! and `EXEC` the server executes all commands or none. Only a batch whose reply is lost with the connection may
//! therefore arrive twice.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::{Outcome, PATIENCE, RedisMode, RedisSettings, Transport, stream};

/// The longest accepted reply. Replies to these commands are short.
const LONGEST_REPLY: u64 = 64 << 10;

pub(super) struct Redis {
    settings: RedisSettings,
    connection: Option<BufReader<Box<dyn Wire>>>,
    request: Vec<u8>,
}

trait Wire: Read + Write + Send {}
impl Wire for TcpStream {}
impl Wire for UnixStream {}

/// The reason that a batch did not arrive.
enum Trouble {
    /// The connection failed.
    Io(io::Error),
    /// The server returned an error.
    Said(String),
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Trouble::Io(e)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Io(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                write!(f, "no answer within {} s", PATIENCE.as_secs())
            }
            Trouble::Io(e) => write!(f, "the connection failed: {e}"),
            Trouble::Said(text) => write!(f, "the server said: {text}"),
        }
    }
}

impl Redis {
    pub(super) fn new(settings: RedisSettings) -> Redis {
        Redis { settings, connection: None, request: Vec::new() }
    }

    fn open(&mut self) -> Result<(), Trouble> {
        self.connection = None;
        let wire: Box<dyn Wire> = if self.settings.server.starts_with('/') {
            let s = UnixStream::connect(&self.settings.server)?;
            s.set_read_timeout(Some(PATIENCE))?;
            s.set_write_timeout(Some(PATIENCE))?;
            Box::new(s)
        } else {
            Box::new(stream::tcp(&format!("{}:{}", bracketed(&self.settings.server), self.settings.port))?)
        };
        self.connection = Some(BufReader::new(wire));
        let login = self.settings.login.clone();
        self.request.clear();
        match &login {
            Some((Some(user), password)) => {
                command(&mut self.request, &[b"AUTH", user.as_bytes(), password.as_bytes()])
            }
            Some((None, password)) => command(&mut self.request, &[b"AUTH", password.as_bytes()]),
            None => command(&mut self.request, &[b"PING"]),
        }
        self.exchange(1)
    }

    /// Writes the request and reads `replies` replies.
    fn exchange(&mut self, replies: usize) -> Result<(), Trouble> {
        let Some(c) = &mut self.connection else { return Err(io::Error::from(io::ErrorKind::NotConnected).into()) };
        c.get_mut().write_all(&self.request)?;
        let mut said = None;
        for _ in 0..replies {
            if let Some(error) = reply(c, 0)? {
                said.get_or_insert(error);
            }
        }
        said.map_or(Ok(()), |s| Err(Trouble::Said(s)))
    }

    /// Adds lines in one step: all of them or none.
    fn put(&mut self, lines: &[&[u8]]) -> Result<(), Trouble> {
        let key = self.settings.key.as_bytes();
        let out = &mut self.request;
        out.clear();
        let replies = match self.settings.mode {
            RedisMode::LeftPush | RedisMode::RightPush => {
                let name: &[u8] = if self.settings.mode == RedisMode::LeftPush { b"LPUSH" } else { b"RPUSH" };
                start(out, 2 + lines.len());
                bulk(out, name);
                bulk(out, key);
                lines.iter().for_each(|l| bulk(out, l));
                1
            }
            RedisMode::Publish | RedisMode::Stream { .. } => {
                command(out, &[b"MULTI"]);
                for line in lines {
                    if let RedisMode::Stream { maxlen, exact } = self.settings.mode {
                        let limit = maxlen.to_string();
                        let about: &[u8] = if exact { b"=" } else { b"~" };
                        if maxlen > 0 {
                            command(out, &[b"XADD", key, b"MAXLEN", about, limit.as_bytes(), b"*", b"eve", line]);
                        } else {
                            command(out, &[b"XADD", key, b"*", b"eve", line]);
                        }
                    } else {
                        command(out, &[b"PUBLISH", key, line]);
                    }
                }
                command(out, &[b"EXEC"]);
                lines.len() + 2
            }
        };
        self.exchange(replies)
    }
}

impl Transport for Redis {
    fn connect(&mut self) -> Result<(), String> {
        self.open().map_err(|e| {
            self.connection = None;
            e.to_string()
        })
    }

    fn send(&mut self, batch: &[u8]) -> Outcome {
        let lines: Vec<&[u8]> = batch.split(|&b| b == b'\n').filter(|l| !l.is_empty()).collect();
        let mut sent = 0;
        for part in lines.chunks(self.settings.batch.max(1)) {
            if let Err(e) = self.put(part) {
                self.connection = None;
                return Outcome::Failed { rest: batch.get(sent..).unwrap_or_default().to_vec(), why: e.to_string() };
            }
            sent += part.iter().map(|l| l.len() + 1).sum::<usize>();
        }
        Outcome::Done { refused: 0, why: None }
    }
}

/// Puts an IPv6 address in brackets.
fn bracketed(server: &str) -> String {
    if server.contains(':') && !server.starts_with('[') { format!("[{server}]") } else { server.to_owned() }
}

fn start(out: &mut Vec<u8>, parts: usize) {
    out.extend_from_slice(format!("*{parts}\r\n").as_bytes());
}

fn bulk(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
    out.extend_from_slice(part);
    out.extend_from_slice(b"\r\n");
}

fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    start(out, parts.len());
    parts.iter().for_each(|p| bulk(out, p));
}

/// Reads a reply. Returns the error that the reply is or contains, if any.
fn reply(c: &mut impl BufRead, depth: usize) -> Result<Option<String>, Trouble> {
    let odd = || Trouble::Said("something that is no reply of Redis".into());
    let mut line = Vec::new();
    c.by_ref().take(LONGEST_REPLY).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let Some((kind, text)) = line.strip_suffix(b"\r\n").and_then(|l| l.split_first()) else { return Err(odd()) };
    let text = String::from_utf8_lossy(text).into_owned();
    let number = || text.parse::<i64>().map_err(|_| odd());
    match kind {
        b'+' | b':' => Ok(None),
        b'-' => Ok(Some(text)),
        // A null array: the transaction was not executed.
        b'*' if number()? < 0 => Ok(Some("the transaction was not executed".into())),
        b'$' => {
            if let Ok(n) = u64::try_from(number()?) {
                if n > LONGEST_REPLY {
                    return Err(odd());
                }
                let skipped = io::copy(&mut c.by_ref().take(n + 2), &mut io::sink())?;
                if skipped < n + 2 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
            }
            Ok(None)
        }
        b'*' if depth < 2 => {
            let mut said = None;
            for _ in 0..number()? {
                if let Some(error) = reply(c, depth + 1)? {
                    said.get_or_insert(error);
                }
            }
            Ok(said)
        }
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies() {
        let read = |text: &str| match reply(&mut text.as_bytes(), 0) {
            Ok(None) => "ok".to_owned(),
            Ok(Some(e)) => e,
            Err(e) => e.to_string(),
        };
        assert_eq!(read("+PONG\r\n"), "ok");
        assert_eq!(read(":12\r\n"), "ok");
        assert_eq!(read("$3\r\nabc\r\n"), "ok");
        assert_eq!(read("$-1\r\n"), "ok");
        assert_eq!(read("*2\r\n:1\r\n$1\r\nx\r\n"), "ok");
        assert_eq!(read("*2\r\n:1\r\n-OOM no room\r\n"), "OOM no room");
        assert_eq!(read("*-1\r\n"), "the transaction was not executed");
        assert_eq!(read("-WRONGTYPE no list\r\n"), "WRONGTYPE no list");
        for bad in ["HTTP/1.1 400\r\n", "$99999999\r\n", "*x\r\n", "+half", "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"] {
            assert!(read(bad).contains("no reply of Redis"), "{bad}: {}", read(bad));
        }
        assert!(read("").contains("connection failed"));
        assert!(read("$3\r\nab").contains("connection failed"));
    }

    #[test]
    fn commands() {
        let mut out = Vec::new();
        command(&mut out, &[b"LPUSH", b"suricata", b"{}"]);
        assert_eq!(out, b"*3\r\n$5\r\nLPUSH\r\n$8\r\nsuricata\r\n$2\r\n{}\r\n");
        assert_eq!(bracketed("::1"), "[::1]");
    }
}
