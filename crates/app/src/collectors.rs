//! Collectors of telemetry: servers that store the logs, traces and errors of others.
//!
//! Their records repeat statements, commands, and attacks on other servers. A collector stores them as data. If an inline
//! engine judged them, the report of an attack would be dropped with the attack.

use crate::param::without_parameters;

/// The paths at which collectors take records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collectors(Vec<Box<[u8]>>);

/// Elasticsearch and OpenSearch, Loki, OpenTelemetry's traces, Splunk, Sentry, Zipkin, VictoriaLogs. Paths that applications
/// use for something else as well, such as `/v1/logs`, are left out.
const USUAL: &[&str] = &[
    "/_bulk",
    "/*/_bulk",
    "/api/*/envelope/",
    "/api/*/store/",
    "/api/store/",
    "/api/v2/spans",
    "/insert/elasticsearch/_bulk",
    "/insert/jsonline",
    "/insert/loki/api/v1/push",
    "/loki/api/v1/push",
    "/services/collector",
    "/services/collector/event",
    "/v1/traces",
];

/// Media types of records, as parts of their names. A form or multipart body is none: an application may read it at any path.
const RECORDS: [&[u8]; 4] = [b"json", b"protobuf", b"msgpack", b"x-sentry-envelope"];

impl Default for Collectors {
    fn default() -> Collectors {
        Collectors::new(USUAL.iter().copied())
    }
}

impl Collectors {
    /// Collectors at these paths. A `*` stands for one segment of letters, digits, `.`, `-` and `_` that is no file:
    /// `/index.php/_bulk` runs a script.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a str>) -> Collectors {
        Collectors(paths.into_iter().map(|p| p.as_bytes().into()).collect())
    }

    /// Whether the body of a request for `path` consists of records. The path is compared as sent.
    pub(crate) fn take(&self, path: &[u8], content_type: &[u8]) -> bool {
        let is_record = |t: &[u8]| {
            let media = without_parameters(t).to_ascii_lowercase();
            RECORDS.iter().any(|r| memchr::memmem::find(&media, r).is_some())
        };
        content_type.split(|&b| b == b',').all(is_record) && self.0.iter().any(|p| is_at(p, path))
    }
}

fn is_at(pattern: &[u8], path: &[u8]) -> bool {
    let segments = |text| <[u8]>::split(text, |&b: &u8| b == b'/');
    let same = |(want, is): (&[u8], &[u8])| want == is || want == b"*" && is_name(is);
    segments(pattern).count() == segments(path).count() && segments(pattern).zip(segments(path)).all(same)
}

/// Whether a segment is a name, which may have a number behind its last dot: an index of Elasticsearch has a date.
fn is_name(segment: &[u8]) -> bool {
    let extension = memchr::memrchr(b'.', segment).and_then(|at| segment.get(at + 1..)).unwrap_or(&[]);
    !segment.is_empty()
        && segment.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        && extension.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_at_whole_paths() {
        let usual = Collectors::default();
        for (path, taken) in [
            ("/_bulk", true),
            ("/logs-2026.11/_bulk", true),
            ("//_bulk", false),
            ("/index.php/_bulk/", false),
            ("/index.php/_bulk", false),
            ("/a;b/_bulk", false),
            ("/a%2e/_bulk", false),
            ("/index.php/a/_bulk", false),
            ("/api/42/store/", true),
            ("/api/42/store", false),
            ("/v1/traces", true),
            ("/v1/traces/x", false),
            ("/login/v1/traces", false),
            ("/%5fbulk", false),
            ("", false),
        ] {
            assert_eq!(usual.take(path.as_bytes(), b"application/json"), taken, "{path}");
        }
    }

    #[test]
    fn no_form_is_a_record() {
        let own = Collectors::new(["/in/*"]);
        for (content_type, taken) in [
            ("application/x-ndjson; charset=utf-8", true),
            ("Application/JSON", true),
            ("application/x-protobuf", true),
            ("application/x-sentry-envelope", true),
            ("application/x-www-form-urlencoded", false),
            ("application/x-www-form-urlencoded; a=json", false),
            ("application/json, application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=json", false),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(own.take(b"/in/logs", content_type.as_bytes()), taken, "{content_type}");
        }
        assert!(!own.take(b"/v1/traces", b"application/json"));
        assert!(!Collectors::new([]).take(b"/_bulk", b"application/json"));
    }
}
