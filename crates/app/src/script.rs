//! Answers to scripts that query a transaction by name ([`crate::Transaction::ask`]).

use margay_flow::Direction::{self, ToClient, ToServer};

use crate::buffer::BufferDef;
use crate::tx::Transaction;

pub use crate::answer::Answer;

/// A buffer of a transaction, by its rule keyword.
pub(crate) fn buffer(tx: &dyn Transaction, buffers: &[BufferDef], name: &str, dir: Direction) -> Answer {
    let Some(def) = buffers.iter().find(|b| b.name == name) else { return Answer::Nothing };
    let mut scratch = Vec::new();
    tx.buffer(def.id, dir, 0, &mut scratch).map_or(Answer::Nothing, |f| Answer::Bytes(f.data.to_vec()))
}

/// Queries that HTTP of any version answers.
pub(crate) fn http(
    tx: &dyn Transaction,
    buffers: &[BufferDef],
    body: impl Fn(Direction) -> (Vec<u8>, u64),
    what: &str,
    arg: Option<&[u8]>,
) -> Option<Answer> {
    let get = |name, dir| buffer(tx, buffers, name, dir);
    Some(match what {
        "get" => Answer::Bool(true),
        "request_line" => get("http.request_line", ToServer),
        "response_line" => get("http.response_line", ToClient),
        "request_headers_raw" => get("http.header.raw", ToServer),
        "response_headers_raw" => get("http.header.raw", ToClient),
        "request_uri_raw" => get("http.uri.raw", ToServer),
        "request_uri_normalized" => get("http.uri", ToServer),
        "request_host" => as_written(get("http.host", ToServer), get("http.host.raw", ToServer)),
        "request_header" => header(tx, buffers, ToServer, arg?),
        "response_header" => header(tx, buffers, ToClient, arg?),
        "request_headers" => Answer::Table(headers(tx, buffers, ToServer)),
        "response_headers" => Answer::Table(headers(tx, buffers, ToClient)),
        "request_body" | "response_body" => {
            let (data, offset) = body(if what == "request_body" { ToServer } else { ToClient });
            if data.is_empty() {
                return Some(Answer::Nothing);
            }
            let offset = i64::try_from(offset).unwrap_or(i64::MAX);
            let end = offset.saturating_add(data.len() as i64);
            Answer::Several(vec![Answer::List(vec![Answer::Bytes(data)]), Answer::Int(offset), Answer::Int(end)])
        }
        _ => return None,
    })
}

/// The host as the client wrote it, without port.
fn as_written(host: Answer, raw: Answer) -> Answer {
    let (Answer::Bytes(host), Answer::Bytes(raw)) = (&host, &raw) else { return host };
    let lower = raw.to_ascii_lowercase();
    let at = if host.is_empty() { None } else { memchr::memmem::find(&lower, host) };
    let written = at.and_then(|at| raw.get(at..at + host.len())).unwrap_or(host);
    Answer::Bytes(written.to_vec())
}

fn headers(tx: &dyn Transaction, buffers: &[BufferDef], dir: Direction) -> Vec<(Vec<u8>, Answer)> {
    let name = if dir == ToServer { "http.request_header" } else { "http.response_header" };
    let Some(def) = buffers.iter().find(|b| b.name == name) else { return Vec::new() };
    let mut out = Vec::new();
    for index in 0.. {
        let mut scratch = Vec::new();
        let Some(found) = tx.buffer(def.id, dir, index, &mut scratch) else { break };
        let mut parts = found.data.splitn(2, |b| *b == b':');
        let (mut name, mut value) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
        // HTTP/2 pseudo-header names begin with a colon.
        if name.is_empty() {
            let at = value.iter().position(|b| *b == b':').unwrap_or(value.len());
            name = found.data.get(..=at).unwrap_or(&[]);
            value = value.get(at + 1..).unwrap_or(&[]);
        }
        out.push((name.to_vec(), Answer::Bytes(value.trim_ascii().to_vec())));
    }
    out
}

fn header(tx: &dyn Transaction, buffers: &[BufferDef], dir: Direction, name: &[u8]) -> Answer {
    let all = headers(tx, buffers, dir);
    all.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or(Answer::Nothing, |(_, v)| v)
}
