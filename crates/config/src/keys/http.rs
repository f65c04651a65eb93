//! `app-layer.protocols.http`.

use super::{Key, U32, flag, flag_or, list, number, size, text, word};

pub(super) const ABOUT: &str = "HTTP/1, and what HTTP/2 shares with it. What stands below `default-config` may stand below \
                                an entry of `server-config` as well, for some servers.";

const PERSONALITIES: &[&str] =
    &["Minimal", "Generic", "IDS", "IIS_4_0", "IIS_5_0", "IIS_5_1", "IIS_6_0", "IIS_7_0", "IIS_7_5", "Apache_2"];

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    size("app-layer.protocols.http.memcap", "0", "Memory for bodies and headers; 0 is no limit."),
    number("app-layer.protocols.http.arguments.max-count", "512", (1, 65535), "names and values", "How many arguments of a request rules look at (`http.arg`); more are counted in `http.arguments_limit`."),
    size("app-layer.protocols.http.arguments.max-size", "128kb", "How many bytes of them, and of the body that they are read from, up to 64mb."),
    size("app-layer.protocols.http.byterange.memcap", "100mb", "Memory for files that are fetched in ranges."),
    number("app-layer.protocols.http.byterange.timeout", "60", (0, i64::MAX), "seconds", "How long a range is waited for."),
    size("app-layer.protocols.http.byterange.max-size", "1gb", "How large such a file may be."),
    word("app-layer.protocols.http.libhtp.default-config.personality", PERSONALITIES, "IDS", "Whose reading of requests is followed."),
    size("app-layer.protocols.http.libhtp.default-config.request-body-limit", "4kb", "How much of a request's body is inspected; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.response-body-limit", "4kb", "How much of a response's body is inspected; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.request-body-minimal-inspect-size", "32kb", "How much is gathered first.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.request-body-inspect-window", "4kb", "How much of what was inspected is inspected with what is new.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.response-body-minimal-inspect-size", "32kb", "The same of responses.").within(0, U32 as u64),
    size("app-layer.protocols.http.libhtp.default-config.response-body-inspect-window", "4kb", "The same of responses.").within(0, U32 as u64),
    number("app-layer.protocols.http.libhtp.default-config.request-body-decompress-layer-limit", "2", (0, 255), "layers", "Codings of a request's body that are undone."),
    number("app-layer.protocols.http.libhtp.default-config.response-body-decompress-layer-limit", "2", (0, 255), "layers", "Codings of a response's body that are undone."),
    flag_or("app-layer.protocols.http.libhtp.default-config.http-body-inline", &["auto"], "auto", "Whether bodies are inspected as they come; `auto`: when inline."),
    flag("app-layer.protocols.http.libhtp.default-config.swf-decompression.enabled", "no", "Whether Flash files are decompressed."),
    word("app-layer.protocols.http.libhtp.default-config.swf-decompression.type", &["both", "deflate", "lzma"], "both", "Which."),
    size("app-layer.protocols.http.libhtp.default-config.swf-decompression.compress-depth", "0", "How much of them is read; 0 is all."),
    size("app-layer.protocols.http.libhtp.default-config.swf-decompression.decompress-depth", "0", "How much of what comes out; 0 is all."),
    flag("app-layer.protocols.http.libhtp.default-config.randomize-inspection-sizes", "*", "Sizes that vary from flow to flow.").ignored("the same traffic has the same alerts"),
    number("app-layer.protocols.http.libhtp.default-config.randomize-inspection-range", "*", (0, 100), "percent", "By how much.").ignored("the same traffic has the same alerts"),
    flag("app-layer.protocols.http.libhtp.default-config.double-decode-path", "no", "Percent signs within percent signs, in paths."),
    flag("app-layer.protocols.http.libhtp.default-config.double-decode-query", "no", "The same in queries."),
    flag("app-layer.protocols.http.libhtp.default-config.query-plusspace-decode", "no", "A plus sign in a query is a blank."),
    flag("app-layer.protocols.http.libhtp.default-config.uri-include-all", "no", "`http.uri` with scheme, user and host where the request has them."),
    flag("app-layer.protocols.http.libhtp.default-config.allow-space-uri", "no", "Whether a blank may be a part of the URI.").ignored("blanks are read as the personality reads them"),
    flag("app-layer.protocols.http.libhtp.default-config.path-convert-backslash-separators", "yes", "Backslashes in paths are slashes. (Defaults of paths are those of the personality; shown: IDS.)"),
    flag("app-layer.protocols.http.libhtp.default-config.path-separators-decode", "yes", "Encoded slashes are slashes."),
    flag("app-layer.protocols.http.libhtp.default-config.path-separators-compress", "yes", "Several slashes are one."),
    flag("app-layer.protocols.http.libhtp.default-config.path-u-encoding-decode", "yes", "`%u` is decoded."),
    flag("app-layer.protocols.http.libhtp.default-config.path-utf8-convert-bestfit", "yes", "UTF-8 becomes the letter that is most alike."),
    text("app-layer.protocols.http.libhtp.default-config.path-bestfit-replacement-char", "a character", "?", "What stands for those that none is like.").like("x"),
    flag("app-layer.protocols.http.libhtp.default-config.path-convert-lowercase", "no", "Paths are lower case."),
    flag("app-layer.protocols.http.libhtp.default-config.path-nul-encoded-terminates", "no", "An encoded NUL ends the path."),
    flag("app-layer.protocols.http.libhtp.default-config.path-nul-raw-terminates", "no", "A NUL ends the path."),
    word("app-layer.protocols.http.libhtp.default-config.path-url-encoding-invalid-handling", &["preserve_percent", "remove_percent", "decode_invalid"], "preserve_percent", "What becomes of `%` that begins no code."),
    flag("app-layer.protocols.http.libhtp.default-config.lzma-enabled", "no", "Whether LZMA is undone."),
    size("app-layer.protocols.http.libhtp.default-config.lzma-memlimit", "1mb", "Memory for it; counts only with `lzma-enabled`.").shown_by("engine/src/settings/app.rs::reads_the_default_and_servers"),
    size("app-layer.protocols.http.libhtp.default-config.compression-bomb-limit", "1mb", "What a body may become by more than 2,048 times its size."),
    number("app-layer.protocols.http.libhtp.default-config.decompression-time-limit", "100000", (0, i64::MAX), "microseconds", "How long a transaction's bodies may take; counted in work, not by a clock."),
    number("app-layer.protocols.http.libhtp.default-config.max-tx", "512", (0, U32), "transactions", "Most of a flow."),
    number("app-layer.protocols.http.libhtp.default-config.headers-limit", "1024", (0, U32), "headers", "Most of a message."),
    size("app-layer.protocols.http.libhtp.default-config.meta-field-limit", "18000", "Longest line of a request or header.").within(0, U32 as u64),
    list("app-layer.protocols.http.libhtp.server-config.#.*.address", "networks", "", "Which servers an entry is for.").like("[10.0.0.0/8]").shown_by("engine/src/settings/app.rs::reads_the_default_and_servers"),
];
