//! The socket's protocol, which is suricatasc's: a sequence of JSON objects.
//!
//! A client begins with `{"version": "0.2"}`, with or without a line feed, and gets `{"return": "OK"}`. Each command
//! (`{"command": "uptime"}`, `{"command": "conf-get", "arguments": {"variable": "a.b"}}`) gets one answer: `{"message": …,
//! "return": "OK"}`, or `NOK` with the reason as message. Answers end with a line feed in version 0.2, but not in version
//! 0.1. A complete object is accepted with or without a line feed after it.
//!
//! A client's messages are limited to [`MESSAGE_MAX`] bytes an object, and 128 levels.

use serde_json::{Map, Value, json};

/// Limit of one object's bytes, with any white space before it.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// The protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// 0.1: answers end with their last brace.
    First,
    /// 0.2: answers end with a line feed.
    Second,
}

/// Why the input is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// It does not begin with an object.
    #[error("a message is a JSON object")]
    NoObject,
    /// It is too long.
    #[error("a message has at most {MESSAGE_MAX} bytes")]
    TooLong,
    /// It is not valid JSON.
    #[error("the message is not valid JSON: {0}")]
    NoJson(String),
}

/// Extracts messages from the received bytes.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// State of the scan: position, depth in braces, whether inside a string, whether after a backslash.
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Messages {
    /// Adds bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether part of a message was received.
    pub(crate) fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// The next message, if it is complete.
    ///
    /// # Errors
    /// The input is not a message. After [`Broken::NoJson`], later messages may still be valid.
    pub(crate) fn next(&mut self) -> Result<Option<Map<String, Value>>, Broken> {
        if self.depth == 0 {
            let blank = self.bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.bytes.drain(..blank);
            match self.bytes.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(_) => return Err(Broken::NoObject),
            }
        }
        while let Some(&b) = self.bytes.get(self.at) {
            self.at += 1;
            match b {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' if !self.in_string => self.depth += 1,
                b'}' if !self.in_string => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return self.take().map(Some);
                    }
                }
                // No string contains a line feed, so the message ends with the line.
                b'\n' if self.in_string => {
                    return self.take().map(Some);
                }
                _ => {}
            }
            if self.at > MESSAGE_MAX {
                return Err(Broken::TooLong);
            }
        }
        Ok(None)
    }

    fn take(&mut self) -> Result<Map<String, Value>, Broken> {
        let rest = self.bytes.split_off(self.at.min(self.bytes.len()));
        let message = std::mem::replace(&mut self.bytes, rest);
        (self.at, self.depth, self.in_string, self.escaped) = (0, 0, false, false);
        serde_json::from_slice(&message).map_err(|e| Broken::NoJson(e.to_string()))
    }
}

/// All messages in the input `chunks`, as text, and the errors. Nothing follows an error that ends the conversation. For
/// fuzzing and tests.
pub fn messages<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<String, String>> {
    let mut m = Messages::default();
    let mut out = Vec::new();
    for c in chunks {
        m.push(c);
        loop {
            match m.next() {
                Ok(Some(v)) => out.push(Ok(Value::Object(v).to_string())),
                Ok(None) => break,
                Err(e) => {
                    out.push(Err(e.to_string()));
                    if !matches!(e, Broken::NoJson(_)) {
                        return out;
                    }
                }
            }
        }
    }
    out
}

/// The version that a client requests.
pub(crate) fn version(message: &Map<String, Value>) -> Option<Version> {
    match message.get("version")?.as_str()? {
        "0.1" => Some(Version::First),
        "0.2" => Some(Version::Second),
        _ => None,
    }
}

/// The result of a command.
pub(crate) type Answer = Result<Value, String>;

/// An answer in its wire format.
pub(crate) fn render(answer: &Answer, version: Version) -> Vec<u8> {
    let value = match answer {
        Ok(message) => json!({"message": message, "return": "OK"}),
        Err(reason) => json!({"message": reason, "return": "NOK"}),
    };
    let mut bytes = value.to_string().into_bytes();
    if version == Version::Second {
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<Result<String, String>> {
        messages(chunks.iter().copied())
    }

    fn err(e: &Broken) -> Vec<Result<String, String>> {
        vec![Err(e.to_string())]
    }

    #[test]
    fn messages_end_with_their_brace() {
        let text = br#"{"version": "0.2"}{"command":"a","arguments":{"x":"}\"{"}}
{"b":1}"#;
        let whole = all(&[text]);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(whole, all(&bytes));
        let values: Vec<Value> = whole.into_iter().flatten().map(|t| serde_json::from_str(&t).unwrap()).collect();
        let command = json!({"command": "a", "arguments": {"x": "}\"{"}});
        assert_eq!(values, [json!({"version": "0.2"}), command, json!({"b": 1})]);
    }

    #[test]
    fn what_is_broken_is_bounded() {
        assert_eq!(all(&[b"garbage"]), err(&Broken::NoObject));
        assert_eq!(all(&[b"  [1]"]), err(&Broken::NoObject));
        let long: Vec<u8> = b"{\"a\":\"".iter().copied().chain(std::iter::repeat_n(b'x', MESSAGE_MAX + 10)).collect();
        assert_eq!(all(&[&long]), err(&Broken::TooLong));
        let deep: Vec<u8> = b"{\"a\":".repeat(5000);
        assert_eq!(all(&[&deep]), []);
        let nested: Vec<u8> = deep.iter().copied().chain(std::iter::repeat_n(b'}', 5000)).collect();
        let no_json = |e: &str| e.starts_with("the message is not valid JSON");
        assert!(matches!(&all(&[&nested])[..], [Err(e)] if no_json(e)));
        let bad = all(&[b"{\"a\":}{\"b\":2}"]);
        assert!(matches!(&bad[..], [Err(e), Ok(b)] if no_json(e) && b == "{\"b\":2}"), "{bad:?}");
        let bad = all(&[b"{\"ver\n{\"b\":2}"]);
        assert!(matches!(&bad[..], [Err(e), Ok(_)] if no_json(e)), "{bad:?}");
    }

    #[test]
    fn versions_and_answers() {
        let of = |t: &str| version(serde_json::from_str::<Value>(t).unwrap().as_object().unwrap());
        assert_eq!(of(r#"{"version":"0.1"}"#), Some(Version::First));
        assert_eq!(of(r#"{"version":"0.2"}"#), Some(Version::Second));
        assert_eq!((of(r#"{"version":"0.3"}"#), of(r#"{"version":2}"#), of("{}")), (None, None, None));
        assert_eq!(render(&Ok(json!(3)), Version::First), br#"{"message":3,"return":"OK"}"#);
        assert_eq!(render(&Err("no".into()), Version::Second), b"{\"message\":\"no\",\"return\":\"NOK\"}\n");
    }
}
