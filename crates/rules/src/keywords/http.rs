//! HTTP: sticky buffers, their old modifiers, and `urilen`.

use super::{Buffer, Direction, Keyword};
use crate::ast::{Check, Compare, Content};
use crate::builder::{Builder, Input};
use crate::error::{Fail, fail};
use crate::number::{compare, pair};
use crate::size::unsigned;

/// Protocols with the HTTP buffers.
pub(super) const HTTP: &[&str] = &["http", "http1", "http2", "doh2"];

macro_rules! buffers {
    ($(
        $id:ident $name:literal $internal:literal $description:literal $direction:ident $multi:literal
        $(, $property:ident: $value:expr)*;
    )*) => {
        $(pub(super) static $id: Buffer = Buffer {
            name: $name, internal: $internal, description: $description, protocols: HTTP,
            direction: Direction::$direction, multi: $multi, $($property: $value,)* ..Buffer::PLAIN
        };)*
    };
}

buffers! {
    URI "http.uri" "http_uri" "http request uri" ToServer false;
    URI_RAW "http.uri.raw" "http_raw_uri" "raw http uri" ToServer false;
    METHOD "http.method" "http_method" "http request method" ToServer false, is_common: true, check: method;
    HEADER "http.header" "http_header" "http headers" Both false;
    HEADER_RAW "http.header.raw" "http_raw_header" "raw http headers" Both false, needs_flow: Some("detect-http-raw-header");
    HEADER_NAMES "http.header_names" "http_header_names" "http header names" Both false, is_common: true;
    REQUEST_HEADER "http.request_header" "http_request_header" "HTTP header name and value" ToServer true;
    RESPONSE_HEADER "http.response_header" "http_response_header" "HTTP header name and value" ToClient true;
    ARG "http.arg" "http_arg" "names and values of path, query, cookies and body" ToServer true;
    COOKIE "http.cookie" "http_cookie" "http cookie header" Both false;
    USER_AGENT "http.user_agent" "http_user_agent" "http user agent" ToServer false;
    HOST "http.host" "http_host" "http host" ToServer false, check: host;
    HOST_RAW "http.host.raw" "http_raw_host" "http raw host header" ToServer false;
    STAT_CODE "http.stat_code" "http_stat_code" "http response status code" ToClient false, is_common: true;
    STAT_MSG "http.stat_msg" "http_stat_msg" "http response status message" ToClient false, is_common: true;
    REQUEST_BODY "http.request_body" "http_client_body" "http request body" ToServer false;
    RESPONSE_BODY "http.response_body" "http_response_body" "http response body" ToClient false, ignores_flow: true;
    REQUEST_LINE "http.request_line" "http_request_line" "http request line" ToServer false;
    RESPONSE_LINE "http.response_line" "http_response_line" "http response line" ToClient false;
    PROTOCOL "http.protocol" "http_protocol" "http protocol" Both false, is_common: true, check: version;
    START "http.start" "http_start" "http start: request and response line and headers" Both false;
    ACCEPT "http.accept" "http_accept" "http accept header" ToServer false;
    ACCEPT_LANG "http.accept_lang" "http_accept_lang" "http accept-language header" ToServer false;
    ACCEPT_ENC "http.accept_enc" "http_accept_enc" "http accept-encoding header" ToServer false, is_common: true;
    REFERER "http.referer" "http_referer" "http referer header" ToServer false;
    CONNECTION "http.connection" "http_connection" "http connection header" Both false, is_common: true;
    CONTENT_LEN "http.content_len" "http_content_len" "http content length header" Both false, is_common: true;
    CONTENT_TYPE "http.content_type" "http_content_type" "http content type header" Both false;
    LOCATION "http.location" "http_location" "http location header" ToClient false;
    SERVER "http.server" "http_server" "http server header" ToClient false;
}

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::sticky(&["http.uri"], &URI),
    Keyword::sticky(&["http.uri.raw"], &URI_RAW),
    Keyword::sticky(&["http.method"], &METHOD),
    Keyword::sticky(&["http.header"], &HEADER),
    Keyword::sticky(&["http.header.raw"], &HEADER_RAW),
    Keyword::sticky(&["http.header_names", "http_header_names"], &HEADER_NAMES),
    Keyword::sticky(&["http.request_header"], &REQUEST_HEADER),
    Keyword::sticky(&["http.response_header"], &RESPONSE_HEADER),
    Keyword::sticky(&["http.arg"], &ARG),
    Keyword::sticky(&["http.cookie"], &COOKIE),
    Keyword::sticky(&["http.user_agent"], &USER_AGENT),
    Keyword::sticky(&["http.host"], &HOST),
    Keyword::sticky(&["http.host.raw"], &HOST_RAW),
    Keyword::sticky(&["http.stat_code"], &STAT_CODE),
    Keyword::sticky(&["http.stat_msg"], &STAT_MSG),
    Keyword::sticky(&["http.request_body"], &REQUEST_BODY),
    Keyword::sticky(&["http.response_body"], &RESPONSE_BODY),
    Keyword::sticky(&["http.request_line", "http_request_line"], &REQUEST_LINE),
    Keyword::sticky(&["http.response_line", "http_response_line"], &RESPONSE_LINE),
    Keyword::sticky(&["http.protocol", "http_protocol"], &PROTOCOL),
    Keyword::sticky(&["http.start", "http_start"], &START),
    Keyword::sticky(&["http.accept", "http_accept"], &ACCEPT),
    Keyword::sticky(&["http.accept_lang", "http_accept_lang"], &ACCEPT_LANG),
    Keyword::sticky(&["http.accept_enc", "http_accept_enc"], &ACCEPT_ENC),
    Keyword::sticky(&["http.referer", "http_referer"], &REFERER),
    Keyword::sticky(&["http.connection", "http_connection"], &CONNECTION),
    Keyword::sticky(&["http.content_len", "http_content_len"], &CONTENT_LEN),
    Keyword::sticky(&["http.content_type", "http_content_type"], &CONTENT_TYPE),
    Keyword::sticky(&["http.location", "http_location"], &LOCATION),
    Keyword::sticky(&["http.server", "http_server"], &SERVER),
    Keyword::modifier(&["http_uri"], &URI),
    Keyword::modifier(&["http_raw_uri"], &URI_RAW),
    Keyword::modifier(&["http_method"], &METHOD),
    Keyword::modifier(&["http_header"], &HEADER),
    Keyword::modifier(&["http_raw_header"], &HEADER_RAW),
    Keyword::modifier(&["http_cookie"], &COOKIE),
    Keyword::modifier(&["http_user_agent"], &USER_AGENT),
    Keyword::modifier(&["http_host"], &HOST),
    Keyword::modifier(&["http_raw_host"], &HOST_RAW),
    Keyword::modifier(&["http_stat_code"], &STAT_CODE),
    Keyword::modifier(&["http_stat_msg"], &STAT_MSG),
    Keyword::modifier(&["http_client_body"], &REQUEST_BODY),
    Keyword::modifier(&["http_server_body"], &super::app::FILE_DATA),
    Keyword::value(&["urilen"], urilen).only(Direction::ToServer).about("the length of the URI"),
    Keyword::sticky(&["http2.header_name"], &HTTP2_HEADER_NAME),
];

/// The keyword of a check that this file makes.
pub(super) const fn of_check(c: &Check) -> Option<&'static str> {
    Some(match c {
        Check::UriLen { .. } => "urilen",
        _ => return None,
    })
}

static HTTP2_HEADER_NAME: Buffer = Buffer {
    name: "http2.header_name",
    internal: "http2_header_name",
    description: "HTTP2 header name",
    protocols: &["http2", "http", "doh2"],
    multi: true,
    ..Buffer::PLAIN
};

/// `http.host` is in lower case.
fn host(c: &Content, sid: u32) -> Result<(), Fail> {
    const M: &str = "detect-http-host";
    if c.nocase {
        return Err(Fail::warned(
            M,
            format!(
                "rule {sid}: http.host keyword specified along with \"nocase\". The hostname buffer is normalized to \
                 lowercase, specifying nocase is redundant."
            ),
        ));
    }
    if c.bytes.iter().any(u8::is_ascii_uppercase) {
        return Err(Fail::warned(
            M,
            format!(
                "rule {sid}: A pattern with uppercase characters detected for http.host. The hostname buffer is \
                 normalized to lowercase, please specify a lowercase pattern."
            ),
        ));
    }
    Ok(())
}

/// A method has no space around it.
fn method(c: &Content, _sid: u32) -> Result<(), Fail> {
    const M: &str = "detect-http-method";
    if matches!(c.bytes.first(), Some(b' ' | b'\t')) {
        return fail(M, "http_method pattern with leading space");
    }
    if matches!(c.bytes.last(), Some(b' ' | b'\t')) {
        return fail(M, "http_method pattern with trailing space");
    }
    Ok(())
}

/// A version has no space.
fn version(c: &Content, _sid: u32) -> Result<(), Fail> {
    match c.bytes.contains(&b' ') {
        true => fail("detect-http-protocol", "Invalid http.protocol string containing a space"),
        false => Ok(()),
    }
}

/// The buffer that `urilen` measures.
pub(crate) const fn uri_buffer(raw: bool) -> &'static str {
    if raw { URI_RAW.name } else { URI.name }
}

fn urilen(b: &mut Builder<'_>, i: &Input<'_>) -> Result<(), Fail> {
    const M: &str = "detect-urilen";
    super::need_protocol(b, HTTP, "urilen");
    b.restrict(HTTP)?;
    let (n, raw) = match i.text.split_once(',') {
        Some((n, "raw")) => (n, true),
        Some((n, "norm")) => (n, false),
        Some((n, kind)) if matches!(kind.trim(), "raw" | "norm") => (n, kind.trim() == "raw"),
        Some(_) => return fail(M, format!("invalid value for urilen: \"{}\"", i.text)),
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
