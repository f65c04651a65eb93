//! Requests snapshots from an engine, over its unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::model::Snapshot;

/// Limit of the wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit of an answer's bytes.
const ANSWER_MAX: usize = 16 << 20;

/// A connection that is opened again after it breaks.
pub(super) struct Client {
    path: PathBuf,
    stream: Option<UnixStream>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    status: String,
    #[serde(default)]
    message: serde_json::Value,
}

fn line(stream: &mut UnixStream) -> Result<Vec<u8>, String> {
    let mut bytes = [0u8; 8192];
    let mut whole = Vec::new();
    while whole.len() < ANSWER_MAX {
        let n = stream.read(&mut bytes).map_err(|e| format!("no answer: {e}"))?;
        if n == 0 {
            return Err("the engine closed the connection".into());
        }
        whole.extend_from_slice(bytes.get(..n).unwrap_or_default());
        if whole.ends_with(b"\n") {
            return Ok(whole);
        }
    }
    Err("the answer is too long".into())
}

fn read(stream: &mut UnixStream) -> Result<Answer, String> {
    serde_json::from_slice(&line(stream)?).map_err(|e| format!("the answer cannot be read: {e}"))
}

impl Client {
    pub(super) fn new(path: &Path) -> Client {
        Client { path: path.to_owned(), stream: None }
    }

    fn connect(&self) -> Result<UnixStream, String> {
        let place = self.path.display();
        let mut stream = UnixStream::connect(&self.path).map_err(|e| {
            format!("no engine answers at {place}: {e}; --socket names another, unix-command in the configuration says where it is")
        })?;
        let failed = |e: std::io::Error| format!("{place}: {e}");
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.write_all(b"{\"version\": \"0.2\"}\n").map_err(failed)?;
        match read(&mut stream)?.status.as_str() {
            "OK" => Ok(stream),
            _ => Err(format!("{place}: the engine does not speak this version of the protocol")),
        }
    }

    /// The current snapshot. A broken connection is opened again.
    ///
    /// # Errors
    /// A message for the user.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, String> {
        let mut stream = match self.stream.take() {
            Some(s) => s,
            None => self.connect()?,
        };
        stream.write_all(b"{\"command\": \"watch\"}\n").map_err(|e| format!("the engine is gone: {e}"))?;
        let answer = read(&mut stream)?;
        if answer.status != "OK" {
            let said = answer.message.as_str().unwrap_or_default();
            return Err(format!("the engine does not show itself: {said} (is it older than this program?)"));
        }
        self.stream = Some(stream);
        serde_json::from_value(answer.message).map_err(|e| format!("the answer cannot be read: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_broken_connection_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert!(Client::new(&path).snapshot().unwrap_err().contains("no engine answers"));
        let listener = UnixListener::bind(&path).unwrap();
        let picture = serde_json::to_string(&Snapshot { uptime: 7, ..Snapshot::default() }).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| {
                for answers in [
                    vec![format!("{{\"return\":\"OK\",\"message\":{picture}}}\n")],
                    vec![],
                    vec!["{\"return\":\"NOK\",\"message\":\"why\"}\n".into()],
                ] {
                    let (mut stream, _) = listener.accept().unwrap();
                    line(&mut stream).unwrap();
                    stream.write_all(b"{\"return\":\"OK\"}\n").unwrap();
                    for a in answers {
                        line(&mut stream).unwrap();
                        stream.write_all(a.as_bytes()).unwrap();
                    }
                }
            });
            let mut client = Client::new(&path);
            assert_eq!(client.snapshot().unwrap().uptime, 7);
            assert!(client.snapshot().is_err(), "the engine went");
            assert!(client.snapshot().is_err(), "it goes at once");
            assert!(client.snapshot().unwrap_err().contains("why"));
        });
    }
}
