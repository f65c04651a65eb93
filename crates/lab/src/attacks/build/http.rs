//! HTTP requests.

use std::fmt::Write as _;

use crate::traffic::session::Session;
use crate::traffic::template::Dir;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Sends a request and its answer on a new connection. Returns the ports of client and server.
pub(super) fn exchange(s: &mut Session<'_>, n: u32, request: &[u8]) -> [u16; 2] {
    let ports = [1024 + (n % 60_000) as u16, 80];
    let mut stream = s.open(ports[0], ports[1]);
    s.send(&mut stream, Dir::Client, request);
    s.send(&mut stream, Dir::Server, ANSWER);
    s.close(&mut stream, Dir::Client);
    ports
}

/// Converts each character, up to U+00FF, to one byte.
fn single(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

/// Percent-encodes a value for a URL's query (RFC 3986): everything but unreserved characters and slashes.
fn quoted(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len());
    for &b in data {
        if b.is_ascii_alphanumeric() || b"_.-~/".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

/// A request with the value in that place (`where` in a declaration).
///
/// # Errors
/// If there is no such place.
pub(in super::super) fn request(place: &str, value: &str) -> Result<Vec<u8>, String> {
    let mut fields: Vec<Vec<u8>> = vec![b"Host: www.example.com".to_vec()];
    let (mut target, mut body) = (b"/".to_vec(), Vec::new());
    match place {
        // The value is a whole request.
        "start" | "request" | "any" => return Ok(single(value)),
        "arg" => target = format!("/view?q={}", quoted(value.as_bytes())).into_bytes(),
        "uri" => target = value.as_bytes().to_vec(),
        "rawuri" => target = single(value),
        "header" => fields.push(value.as_bytes().to_vec()),
        "ua" => fields.push([b"User-Agent: ", value.as_bytes()].concat()),
        "referer" => fields.push([b"Referer: ", value.as_bytes()].concat()),
        "cookie" => fields.push([b"Cookie: ", value.as_bytes()].concat()),
        "body" => {
            body = single(value);
            let parts = body.starts_with(b"--X\r\n");
            let kind = if parts { "multipart/form-data; boundary=X" } else { "text/plain" };
            fields.push(format!("Content-Type: {kind}").into_bytes());
            fields.push(format!("Content-Length: {}", body.len()).into_bytes());
        }
        other => return Err(format!("'{other}' is no place in a request")),
    }
    let method: &[u8] = if body.is_empty() { b"GET " } else { b"POST " };
    let head = fields.join(&b"\r\n"[..]);
    Ok([method, &target, b" HTTP/1.1\r\n", &head, b"\r\n\r\n", &body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_they_are_to_be() {
        let text = |place, value| String::from_utf8_lossy(&request(place, value).unwrap()).into_owned();
        assert_eq!(
            text("arg", "1' or é/~"),
            "GET /view?q=1%27%20or%20%C3%A9/~ HTTP/1.1\r\nHost: www.example.com\r\n\r\n"
        );
        assert!(text("ua", "x y").contains("\r\nUser-Agent: x y\r\n\r\n"));
        assert!(text("body", "--X\r\nabc").starts_with("POST / HTTP/1.1\r\n"));
        assert!(text("body", "--X\r\nabc").contains("boundary=X\r\nContent-Length: 8\r\n\r\n--X"));
        assert_eq!(request("rawuri", "/\u{ff}").unwrap()[..6], *b"GET /\xff");
        assert_eq!(text("start", "GET /a\n"), "GET /a\n");
        assert!(request("nowhere", "x").is_err());
    }
}
