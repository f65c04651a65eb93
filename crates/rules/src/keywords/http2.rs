//! Keywords on numbers in HTTP/2 frames.

use super::{Buffer, Direction, Keyword, Takes, number};
use crate::ast::{Compare, NumberTest, Which};
use crate::builder::Input;
use crate::error::{Fail, fail};
use crate::number::compare;

const HTTP2: &[&str] = &["http2", "http", "doh2"];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::number(&["http2.frametype"], Takes::Value, HTTP2, frame_type),
    Keyword::number(&["http2.errorcode"], Takes::Value, HTTP2, error_code),
    Keyword::number(&["http2.priority"], Takes::Value, HTTP2, priority),
    Keyword::number(&["http2.window"], Takes::Value, HTTP2, number::u32),
    Keyword::number(&["http2.size_update"], Takes::Value, HTTP2, size_update),
    Keyword::number(&["http2.settings"], Takes::Value, HTTP2, settings),
    Keyword::sticky(&["grpc.service"], &GRPC_SERVICE),
    Keyword::sticky(&["grpc.method"], &GRPC_METHOD),
    Keyword::number(&["grpc.status"], Takes::Value, HTTP2, grpc_status),
];

static GRPC_SERVICE: Buffer = of_call("grpc.service", "grpc_service", "grpc service");
static GRPC_METHOD: Buffer = of_call("grpc.method", "grpc_method", "grpc method");

/// A buffer of a gRPC call.
const fn of_call(name: &'static str, internal: &'static str, description: &'static str) -> Buffer {
    let direction = Direction::ToServer;
    Buffer { name, internal, description, protocols: HTTP2, direction, ..Buffer::PLAIN }
}

/// Frame types (RFC 9113, section 6), by number.
const TYPES: [&str; 10] = [
    "data",
    "headers",
    "priority",
    "rststream",
    "settings",
    "pushpromise",
    "ping",
    "goaway",
    "windowupdate",
    "continuation",
];

/// Error codes (RFC 9113, section 7), by number.
const ERRORS: [&str; 14] = [
    "noerror",
    "protocolerror",
    "internalerror",
    "flowcontrolerror",
    "settingstimeout",
    "streamclosed",
    "framesizeerror",
    "refusedstream",
    "cancel",
    "compressionerror",
    "connecterror",
    "enhanceyourcalm",
    "inadequatesecurity",
    "http11required",
];

/// Settings (RFC 9113, section 6.5.2; RFC 8441, section 3; RFC 9218, section 2.1).
const SETTINGS: [(&str, u32); 8] = [
    ("headertablesize", 1),
    ("enablepush", 2),
    ("maxconcurrentstreams", 3),
    ("initialwindowsize", 4),
    ("maxframesize", 5),
    ("maxheaderlistsize", 6),
    ("enableconnectprotocol", 8),
    ("norfc7540priorities", 9),
];

/// The index of a name; ignores case and underscores.
fn place(names: &[&str], name: &str) -> Option<u64> {
    let name: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    names.iter().zip(0..).find(|(n, _)| **n == name).map(|(_, i)| i)
}

fn frame_type(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u8::MAX), &|name| place(&TYPES, name))
}

fn error_code(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u32::MAX), &|name| place(&ERRORS, name))
}

fn priority(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u8::MAX), &|_| None)
}

/// The status of a gRPC call, by number or name.
fn grpc_status(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::from(u32::MAX), &|name| {
        margay_app::http2::GRPC_STATUS.iter().find(|s| s.0 == name).map(|s| s.1)
    })
}

fn size_update(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    number::integer(i, u64::MAX, &|_| None)
}

/// `SETTINGS_HEADER_TABLE_SIZE>1000`: a setting by name or number, with an optional condition on its value.
fn settings(i: &Input<'_>) -> Result<(NumberTest, Which), Fail> {
    let text = i.text.trim();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let plain: String = name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let named = plain.strip_prefix("settings").and_then(|n| SETTINGS.iter().find(|s| s.0 == n)).map(|s| s.1);
    let Some(tag) = named.or_else(|| name.parse::<u16>().ok().map(u32::from)) else {
        return fail("detect-parse", format!("http2.settings: \"{name}\" is no setting"));
    };
    let rest = rest.trim();
    let value = match rest {
        "" => Some(Compare::GreaterEqual(0)),
        r => compare(r.strip_prefix(':').unwrap_or(r).trim(), u64::from(u32::MAX)),
    };
    match value {
        Some(value) => Ok((NumberTest::Tagged { tag, value }, Which::Any)),
        None => fail("detect-parse", format!("invalid value for http2.settings: \"{rest}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Check;
    use crate::context::Context;
    use crate::loader::Loader;

    fn check(option: &str) -> Option<NumberTest> {
        let context = Context { available: ["http2".to_owned(), "app-layer".to_owned()].into(), ..Context::default() };
        let mut loader = Loader::new(&context);
        loader.load_str(&format!("alert http2 any any -> any any ({option} sid:1;)\n"), "t.rules");
        let rule = loader.finish().rules.pop()?;
        match rule.checks.into_iter().find(|c| matches!(c, Check::Number { .. }))? {
            Check::Number { test, .. } => Some(test),
            _ => None,
        }
    }

    #[test]
    fn names_and_numbers() {
        let one = |n, negated| Some(NumberTest::OneOf { values: vec![n], negated });
        for (option, want) in [
            ("http2.frametype:GOAWAY;", one(7, false)),
            ("http2.frametype:rst_stream;", one(3, false)),
            ("http2.frametype:6;", Some(NumberTest::Compare(Compare::Equal(6)))),
            ("http2.errorcode:INADEQUATE_SECURITY;", one(12, false)),
            ("http2.errorcode:HTTP_1_1_REQUIRED;", one(13, false)),
            ("http2.errorcode:!NO_ERROR;", one(0, true)),
            ("http2.priority:>100;", Some(NumberTest::Compare(Compare::Greater(100)))),
            ("http2.window:34634;", Some(NumberTest::Compare(Compare::Equal(34634)))),
            ("http2.size_update:1234;", Some(NumberTest::Compare(Compare::Equal(1234)))),
            ("grpc.status:not_found;", one(5, false)),
            ("grpc.status:>4;", Some(NumberTest::Compare(Compare::Greater(4)))),
            ("grpc.status:nothing;", None),
            ("http2.frametype:nothing;", None),
            ("http2.priority:256;", None),
        ] {
            assert_eq!(check(option), want, "{option}");
        }
    }

    #[test]
    fn settings_have_values() {
        let of = |tag, value| Some(NumberTest::Tagged { tag, value });
        for (option, want) in [
            ("http2.settings:SETTINGS_HEADER_TABLE_SIZE>1000;", of(1, Compare::Greater(1000))),
            ("http2.settings:SETTINGS_ENABLE_PUSH;", of(2, Compare::GreaterEqual(0))),
            ("http2.settings:SETTINGS_MAX_FRAME_SIZE=16384;", of(5, Compare::Equal(16384))),
            ("http2.settings:SETTINGS_SOMETHING;", None),
            ("http2.settings:SETTINGS_ENABLE_PUSH>x;", None),
        ] {
            assert_eq!(check(option), want, "{option}");
        }
        let test = NumberTest::Tagged { tag: 1, value: Compare::Greater(1000) };
        assert!(test.holds(1 << 32 | 1001) && !test.holds(1 << 32 | 1000) && !test.holds(2 << 32 | 1001));
    }
}
