//! Keywords of HTTP besides the buffers that the protocol declares.

use super::{Direction, Keyword};
use crate::ast::{Check, Compare};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::{compare, pair};
use crate::size::unsigned;

/// Protocols with the HTTP buffers.
const HTTP: &[&str] = &["http", "http1", "http2", "doh2"];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::modifier(&["http_server_body"], &super::app::FILE_DATA),
    Keyword::value(&["urilen"], urilen).only(Direction::ToServer).about("the length of the URI"),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::UriLen { .. } => "urilen",
        _ => return None,
    })
}

/// The buffer that `urilen` measures: the one of the old modifiers.
pub(crate) fn uri_buffer(raw: bool) -> &'static str {
    super::modified(if raw { "http_raw_uri" } else { "http_uri" }).map_or("", |b| b.name)
}

fn urilen(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-urilen";
    super::need_protocol(b, HTTP, "urilen");
    b.restrict(HTTP)?;
    let (n, raw) = match i.text.split_once(',') {
        Some((n, "raw")) => (n, true),
        Some((n, "norm")) => (n, false),
        Some((n, kind)) if matches!(kind.trim(), "raw" | "norm") => (n, kind.trim() == "raw"),
        // As in Suricata, any other word is ignored.
        Some((n, kind)) => {
            b.warn(M, format!("\"{}\" is neither raw nor norm, and ignored", kind.trim()));
            (n, false)
        }
        None => (i.text.as_ref(), false),
    };
    let most = u64::from(u16::MAX);
    // For a range without any value between its ends, the first number counts, as in Suricata.
    let first = || pair(n).and_then(|(a, b)| unsigned(a).filter(|&a| a <= most && unsigned(b).is_some()));
    let Some(value) = compare(n, most).or_else(|| first().map(Compare::Equal)) else {
        return fail(M, format!("invalid value for urilen: \"{}\"", i.text));
    };
    b.check(Check::UriLen { value, raw });
    Ok(())
}
