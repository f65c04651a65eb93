//! The target `json`: the writer of events, checked with another reader.

use margay_json::Json;
use serde_json::Value;

/// The text that the writer must produce: UTF-8 unchanged, otherwise each byte above 0x7f as `\xff`.
fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            bytes.iter().map(|&b| if b < 0x80 { char::from(b).to_string() } else { format!("\\x{b:02x}") }).collect()
        }
    }
}

/// Members of an object: each has a byte for the kind, a byte for the length, and that many bytes.
pub fn json(data: &[u8]) {
    let mut json = Json::new();
    let (mut want, mut rest) = (Vec::new(), data);
    json.item_object();
    json.array("list");
    while let [kind, len, tail @ ..] = rest {
        let (bytes, next) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = next;
        let number = bytes.iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
        json.item_object();
        want.push(match kind % 8 {
            0 => {
                json.bytes("v", bytes);
                Value::String(shown(bytes))
            }
            1 => {
                let text = String::from_utf8_lossy(bytes);
                json.str("v", &text);
                Value::String(text.into_owned())
            }
            2 => {
                json.printable("v", bytes);
                let dots = |&b: &u8| if matches!(b, 0x20..=0x7e | b'\r' | b'\n') { char::from(b) } else { '.' };
                Value::String(bytes.iter().map(dots).collect())
            }
            3 => {
                json.hex("v", bytes);
                Value::String(bytes.iter().map(|b| format!("{b:02x}")).collect())
            }
            4 => {
                json.uint("v", number);
                number.into()
            }
            5 => {
                json.int("v", number as i64);
                (number as i64).into()
            }
            6 => {
                let text = String::from_utf8_lossy(bytes);
                json.name(&text);
                json.raw(b"1");
                json.bool("v", true);
                true.into()
            }
            _ => {
                json.base64("v", bytes);
                Value::String(base64(bytes))
            }
        });
        json.end_object();
    }
    json.end_array();
    json.end_object();
    let text = std::str::from_utf8(json.as_bytes()).expect("events are UTF-8");
    assert!(!text.contains('\n'), "an event is one line");
    let read: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let got = read["list"].as_array().expect("the list");
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(&want) {
        // A name may equal that of the value; the last one then counts.
        assert_eq!(&got["v"], want, "{text}");
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().chain(&[0, 0]).take(3).fold(0usize, |n, &b| n << 8 | usize::from(b));
        for i in 0..4 {
            out.push(if i <= chunk.len() { char::from(LETTERS[n >> (18 - 6 * i) & 63]) } else { '=' });
        }
    }
    out
}
