//! `app-layer.protocols.http`.

use super::{Key, U32, flag, flag_or, list, number, size, text, word};

pub(super) const ABOUT: &str = "HTTP/1, and settings that HTTP/2 shares. Settings below `default-config` may also stand below \
                                an entry of `server-config`, for some servers.";

const PERSONALITIES: &[&str] =
    &["Minimal", "Generic", "IDS", "IIS_4_0", "IIS_5_0", "IIS_5_1", "IIS_6_0", "IIS_7_0", "IIS_7_5", "Apache_2"];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    size("app-layer.protocols.http.memcap", "0", "Memory for bodies and headers; 0 is no limit."),
    size("app-layer.protocols.http.stream-depth", "auto", "Bytes of a stream to follow, whatever `stream.reassembly.depth` says; 0 is all. `auto`: all when inline without `stream.bypass`, so that a long upload hides no later request, else `stream.reassembly.depth`.").like("0").shown_by("margay/tests/http.rs::a_request_behind_the_depth"),
    number("app-layer.protocols.http.arguments.max-count", "65535", (1, 65535), "names and values", "Arguments that a request has at once (`http.arg`); requests with more count in `http.arguments_limit`."),
    size("app-layer.protocols.http.arguments.max-size", "128kb", "Bytes of arguments that a request has at once, up to 64mb. A long body is inspected in windows of a quarter of it, and of at most 32kb."),
    list("app-layer.protocols.http.arguments.collectors", "paths", "[/_bulk, /*/_bulk, /api/*/envelope/, /api/*/store/, /api/store/, /api/v2/spans, /insert/elasticsearch/_bulk, /insert/jsonline, /insert/loki/api/v1/push, /loki/api/v1/push, /services/collector, /services/collector/event, /v1/traces]", "Paths at which servers collect logs, traces and errors. Bodies of records (JSON, protocol buffers) for them are no arguments, because they repeat what others sent; forms and queries are. `*` stands for a segment that is no file. [Rules](rules.md#margays-own-keywords) says whose they are.").like("[/v1/logs, \"/logs/*/append\"]"),
    size("app-layer.protocols.http.byterange.memcap", "100mb", "Memory for files fetched in ranges."),
    number("app-layer.protocols.http.byterange.timeout", "60", (0, i64::MAX), "seconds", "How long to wait for a missing range."),
    size("app-layer.protocols.http.byterange.max-size", "1gb", "Size limit of a file fetched in ranges."),
    word("app-layer.protocols.http.libhtp.default-config.personality", PERSONALITIES, "IDS", "Server whose interpretation of requests to follow."),
    size("app-layer.protocols.http.libhtp.default-config.request-body-limit", "4kb", "Bytes of a request's body to inspect; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.response-body-limit", "4kb", "Bytes of a response's body to inspect; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.request-body-minimal-inspect-size", "32kb", "Bytes of a request's body to gather before the first inspection.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.request-body-inspect-window", "4kb", "Inspected bytes of a request's body to inspect again together with new ones.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.response-body-minimal-inspect-size", "32kb", "Bytes of a response's body to gather before the first inspection.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.response-body-inspect-window", "4kb", "Inspected bytes of a response's body to inspect again together with new ones.").within(0, U32 as u64),
    number("app-layer.protocols.http.libhtp.default-config.request-body-decompress-layer-limit", "2", (0, 255), "layers", "Encodings of a request's body to undo; 0 is all."),
    number("app-layer.protocols.http.libhtp.default-config.response-body-decompress-layer-limit", "2", (0, 255), "layers", "Encodings of a response's body to undo; 0 is all."),
    flag_or("app-layer.protocols.http.libhtp.default-config.http-body-inline", &["auto"], "auto", "Whether to inspect bodies as they arrive; `auto`: when inline."),
    flag("app-layer.protocols.http.libhtp.default-config.swf-decompression.enabled", "no", "Whether to decompress Flash files."),
    word("app-layer.protocols.http.libhtp.default-config.swf-decompression.type", &["both", "deflate", "lzma"], "both", "Compression of Flash files to undo."),
    size("app-layer.protocols.http.libhtp.default-config.swf-decompression.compress-depth", "0", "Compressed bytes of a Flash file to read; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.swf-decompression.decompress-depth", "0", "Decompressed bytes of a Flash file to inspect; 0 is all."),
    flag("app-layer.protocols.http.libhtp.default-config.randomize-inspection-sizes", "*", "Sizes that vary from flow to flow.").ignored("the same traffic has the same alerts"),
    number("app-layer.protocols.http.libhtp.default-config.randomize-inspection-range", "*", (0, 100), "percent", "By how much.").ignored("the same traffic has the same alerts"),
    flag("app-layer.protocols.http.libhtp.default-config.double-decode-path", "no", "Whether to decode percent encoding twice in paths."),
    flag("app-layer.protocols.http.libhtp.default-config.double-decode-query", "no", "Whether to decode percent encoding twice in queries."),
    flag("app-layer.protocols.http.libhtp.default-config.query-plusspace-decode", "no", "Whether a plus sign in a query is a space."),
    flag("app-layer.protocols.http.libhtp.default-config.uri-include-all", "no", "Whether `http.uri` includes scheme, user and host of the request."),
    flag("app-layer.protocols.http.libhtp.default-config.allow-space-uri", "no", "Whether a blank may be a part of the URI.").ignored("blanks are read as the personality reads them"),
    flag("app-layer.protocols.http.libhtp.default-config.path-convert-backslash-separators", "yes", "Whether backslashes in paths are slashes. (Defaults of paths are the personality's; shown: IDS.)"),
    flag("app-layer.protocols.http.libhtp.default-config.path-separators-decode", "yes", "Whether encoded slashes are slashes."),
    flag("app-layer.protocols.http.libhtp.default-config.path-separators-compress", "yes", "Whether repeated slashes are one."),
    flag("app-layer.protocols.http.libhtp.default-config.path-u-encoding-decode", "yes", "Whether to decode `%u`."),
    flag("app-layer.protocols.http.libhtp.default-config.path-utf8-convert-bestfit", "yes", "Whether UTF-8 becomes the most similar ASCII letter."),
    text("app-layer.protocols.http.libhtp.default-config.path-bestfit-replacement-char", "a character", "?", "Replacement for characters without a similar letter.").like("x"),
    flag("app-layer.protocols.http.libhtp.default-config.path-convert-lowercase", "no", "Whether paths become lower case."),
    flag("app-layer.protocols.http.libhtp.default-config.path-nul-encoded-terminates", "no", "Whether an encoded NUL ends the path."),
    flag("app-layer.protocols.http.libhtp.default-config.path-nul-raw-terminates", "no", "Whether a NUL ends the path."),
    word("app-layer.protocols.http.libhtp.default-config.path-url-encoding-invalid-handling", &["preserve_percent", "remove_percent", "decode_invalid"], "preserve_percent", "What to do with `%` that starts no code."),
    flag("app-layer.protocols.http.libhtp.default-config.lzma-enabled", "no", "Whether to decompress LZMA."),
    size("app-layer.protocols.http.libhtp.default-config.lzma-memlimit", "1mb", "Memory for LZMA, with `lzma-enabled`.").within(1, u64::MAX).shown_by("engine/src/settings/app.rs::reads_the_default_and_servers"),
    size("app-layer.protocols.http.libhtp.default-config.compression-bomb-limit", "1mb", "Decompressed size up to which a body may grow by more than 2,048 times.").within(1, u64::MAX),
    number("app-layer.protocols.http.libhtp.default-config.decompression-time-limit", "100000", (1, i64::MAX), "microseconds", "Time limit for decompressing a transaction's bodies, counted in work, not by a clock."),
    number("app-layer.protocols.http.libhtp.default-config.max-tx", "512", (0, U32), "transactions", "Open transactions of a flow."),
    number("app-layer.protocols.http.libhtp.default-config.headers-limit", "1024", (0, U32), "headers", "Headers of a message, at most."),
    size("app-layer.protocols.http.libhtp.default-config.meta-field-limit", "18000", "Length limit of a request or header line.").within(1, U32 as u64),
    list("app-layer.protocols.http.libhtp.server-config.#.*.address", "networks", "", "Server addresses of this entry.").like("[10.0.0.0/8]").shown_by("engine/src/settings/app.rs::reads_the_default_and_servers"),
];
