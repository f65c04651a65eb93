//! Settings of HTTP/1 and of the application layer (`app-layer.protocols.http:`).

use margay_app::declare::Values;
use margay_app::decompress::Limits;
use margay_app::http1::{Config as HttpConfig, InvalidEncoding, PathConfig, Personality, ServerConfig, SwfConfig};
use margay_app::recognise::Recogniser;
use margay_app::window::FILE_WINDOW;
use margay_app::{AppConfig, ArgLimits, Collectors};
use margay_config::{Config, ConfigError, Node};

use super::networks;

/// Default memory limit of all parsers and transactions together.
const MEMCAP: u64 = 512 << 20;

/// Limit of the request arguments that can be kept.
const ARGUMENTS_MAX: usize = 65_535;
/// Limit of their bytes.
const ARGUMENT_BYTES_MAX: usize = 64 << 20;
/// Path of HTTP's settings.
const HTTP: &str = "app-layer.protocols.http";

/// The settings of the application layer.
///
/// # Errors
/// An invalid value, personality or network.
pub(crate) fn app(config: &Config) -> Result<AppConfig, ConfigError> {
    let http1 = http(config)?;
    let mut declared = Values::settings();
    super::declared::settings(config, &mut declared)?;
    Ok(AppConfig {
        settings: declared,
        memcap: super::size(config, "app-layer.memcap", MEMCAP)?,
        http2: super::http2::http2(config, &http1.default)?,
        http1,
        argument_limits: arguments(config)?,
        collectors: collectors(config)?,
        ftp: super::ftp::ftp(config),
        smb: super::smb::smb(config)?,
        smtp: super::smtp::smtp(config)?,
        ..AppConfig::new(Recogniser::new(&super::recogniser(config)?))
    })
}

fn http(config: &Config) -> Result<HttpConfig, ConfigError> {
    let follows_stream = config.bool("stream.bypass")?.unwrap_or(false);
    let Some(node) = config.node(HTTP) else {
        return Ok(HttpConfig { default: servers_default(), follows_stream, ..Default::default() });
    };
    let mut http =
        HttpConfig { default: servers_default(), memcap: node.size("memcap")?.unwrap_or(0), ..HttpConfig::default() };
    http.stream_depth = if node.get("stream-depth") == Some("auto") { None } else { node.size("stream-depth")? };
    http.follows_stream = follows_stream;
    if let Some(n) = node.node("libhtp.default-config") {
        server(n, &mut http.default)?;
        http.body_inline = body_inline(n)?;
    }
    for item in node.node("libhtp.server-config").iter().flat_map(Node::children) {
        // Either `- name: {…}`, or the settings themselves.
        let (name, below) = item.entry();
        let settings = below.filter(|b| b.children().next().is_some()).unwrap_or(item);
        let mut special = http.default.clone();
        server(settings, &mut special)?;
        let Some(address) = settings.child("address") else {
            return Err(item.error(format!("server-config: \"{name}\" has no address")));
        };
        if let Some(n) = settings.child("http-body-inline") {
            return Err(n.error("http-body-inline: holds for all servers, and belongs in default-config"));
        }
        http.servers.push((networks(address, "address")?, special));
    }
    Ok(http)
}

/// How many arguments of a request, and how many of their bytes, are kept for rules.
fn arguments(config: &Config) -> Result<ArgLimits, ConfigError> {
    const COUNT: &str = "app-layer.protocols.http.arguments.max-count";
    const SIZE: &str = "app-layer.protocols.http.arguments.max-size";
    let default = ArgLimits::default();
    let count = super::number(config, COUNT, default.count as i64)?;
    let bytes = super::size(config, SIZE, default.bytes as u64)?;
    match (usize::try_from(count), usize::try_from(bytes)) {
        (Ok(count @ 1..=ARGUMENTS_MAX), Ok(bytes @ 1..=ARGUMENT_BYTES_MAX)) => Ok(ArgLimits { count, bytes }),
        (Ok(1..=ARGUMENTS_MAX), _) => Err(super::wrong(config, SIZE, "must be from 1 byte to 64mb")),
        _ => Err(super::wrong(config, COUNT, "must be from 1 to 65535")),
    }
}

/// The paths at which bodies have no arguments.
fn collectors(config: &Config) -> Result<Collectors, ConfigError> {
    let Some(node) = config.node("app-layer.protocols.http.arguments.collectors") else {
        return Ok(Collectors::default());
    };
    match node.values().find(|p| !p.starts_with('/')) {
        Some(path) => Err(node.error(format!("collectors: \"{path}\" is no path; a path begins with /"))),
        None => Ok(Collectors::new(node.values())),
    }
}

/// Defaults without a configuration: smaller body limits than in the shipped configuration, as in Suricata, and no LZMA.
fn servers_default() -> ServerConfig {
    let mut server = ServerConfig { body_limit: [4096; 2], window: [FILE_WINDOW; 2], ..ServerConfig::default() };
    server.decompress.lzma_memory = 0;
    server
}

/// `http-body-inline`: yes, no, or auto.
fn body_inline(node: Node<'_>) -> Result<Option<bool>, ConfigError> {
    match node.get("http-body-inline") {
        None | Some("" | "auto") => Ok(None),
        Some(_) => node.bool("http-body-inline"),
    }
}

/// Applies a server's section.
fn server(node: Node<'_>, server: &mut ServerConfig) -> Result<(), ConfigError> {
    if let Some(n) = node.child("personality") {
        let Some(personality) = Personality::from_name(n.text()) else {
            let names = Personality::NAMES.map(|(name, _)| name).join(", ");
            return Err(n.error(format!("personality: \"{}\" is none; there are {names}", n.text())));
        };
        server.set_personality(personality);
    }
    let [request, response] = &mut server.body_limit;
    set(node.size("request-body-limit")?, request);
    set(node.size("response-body-limit")?, response);
    let [request, response] = &mut server.window;
    set(bytes(node, "request-body-minimal-inspect-size")?, &mut request.min);
    set(bytes(node, "request-body-inspect-window")?, &mut request.window);
    set(bytes(node, "response-body-minimal-inspect-size")?, &mut response.min);
    set(bytes(node, "response-body-inspect-window")?, &mut response.window);
    let [request, response] = &mut server.layers;
    set(count(node, "request-body-decompress-layer-limit")?, request);
    set(count(node, "response-body-decompress-layer-limit")?, response);
    decompression(node, &mut server.decompress)?;
    if let Some(n) = node.child("swf-decompression") {
        server.swf = swf(n)?;
    }
    set(node.bool("double-decode-path")?, &mut server.double_decode_path);
    set(node.bool("double-decode-query")?, &mut server.double_decode_query);
    set(node.bool("uri-include-all")?, &mut server.uri_include_all);
    set(node.bool("query-plusspace-decode")?, &mut server.plus_as_space);
    not_zero(node, "meta-field-limit")?;
    set(bytes(node, "meta-field-limit")?, &mut server.field_limit);
    set(count(node, "max-tx")?, &mut server.max_tx);
    set(count(node, "headers-limit")?, &mut server.headers_limit);
    path(node, &mut server.path)
}

fn decompression(node: Node<'_>, limits: &mut Limits) -> Result<(), ConfigError> {
    for name in ["compression-bomb-limit", "lzma-memlimit", "decompression-time-limit"] {
        not_zero(node, name)?;
    }
    set(node.size("compression-bomb-limit")?, &mut limits.bomb);
    let memory = node.size("lzma-memlimit")?;
    match node.bool("lzma-enabled")? {
        Some(true) => limits.lzma_memory = memory.unwrap_or_else(|| Limits::default().lzma_memory),
        Some(false) => limits.lzma_memory = 0,
        // A limit alone does not enable LZMA.
        None if limits.lzma_memory != 0 => set(memory, &mut limits.lzma_memory),
        None => {}
    }
    set(count::<u64>(node, "decompression-time-limit")?.map(Limits::work_of_time), &mut limits.work);
    Ok(())
}

fn swf(node: Node<'_>) -> Result<Option<SwfConfig>, ConfigError> {
    let (deflate, lzma) = match node.get("type") {
        None | Some("" | "both") => (true, true),
        Some("deflate") => (true, false),
        Some("lzma") => (false, true),
        Some(other) => {
            return Err(
                node.error(format!("swf-decompression: \"{other}\" is no type; there are deflate, lzma and both"))
            );
        }
    };
    let swf = SwfConfig {
        deflate,
        lzma,
        compress_depth: node.size("compress-depth")?.unwrap_or(0),
        decompress_depth: node.size("decompress-depth")?.unwrap_or(0),
    };
    Ok(node.bool("enabled")?.unwrap_or(false).then_some(swf))
}

/// Path settings that differ from the personality's defaults.
fn path(node: Node<'_>, path: &mut PathConfig) -> Result<(), ConfigError> {
    set(node.bool("path-convert-backslash-separators")?, &mut path.backslash);
    set(node.bool("path-separators-decode")?, &mut path.decode_separators);
    set(node.bool("path-separators-compress")?, &mut path.compress);
    set(node.bool("path-u-encoding-decode")?, &mut path.u_encoding);
    set(node.bool("path-utf8-convert-bestfit")?, &mut path.utf8_best_fit);
    set(node.bool("path-convert-lowercase")?, &mut path.lowercase);
    set(node.bool("path-nul-encoded-terminates")?, &mut path.nul_encoded_ends);
    set(node.bool("path-nul-raw-terminates")?, &mut path.nul_raw_ends);
    if let Some(n) = node.child("path-bestfit-replacement-char") {
        let &[byte] = n.text().as_bytes() else {
            return Err(n.error(format!("path-bestfit-replacement-char: \"{}\" is not one character", n.text())));
        };
        path.replacement = byte;
    }
    if let Some(n) = node.child("path-url-encoding-invalid-handling") {
        path.invalid = match n.text() {
            "preserve_percent" => InvalidEncoding::Preserve,
            "remove_percent" => InvalidEncoding::Remove,
            "decode_invalid" => InvalidEncoding::Decode,
            // Listed in the manual. The parser answers no requests, so nothing of it is left.
            "status_400" => {
                margay_output::warning!(
                    "app-layer-htp",
                    "path-url-encoding-invalid-handling: status_400 is the same as preserve_percent"
                );
                InvalidEncoding::Preserve
            }
            other => {
                return Err(n.error(format!(
                    "path-url-encoding-invalid-handling: \"{other}\" is none; there are preserve_percent, \
                     remove_percent and decode_invalid"
                )));
            }
        };
    }
    Ok(())
}

fn set<T>(value: Option<T>, target: &mut T) {
    if let Some(v) = value {
        *target = v;
    }
}

/// Refuses 0 for a limit, as Suricata does: it would leave nothing to inspect.
fn not_zero(node: Node<'_>, name: &str) -> Result<(), ConfigError> {
    if node.size(name)? == Some(0) {
        return Err(at(node, name).error(format!("{name}: must be at least 1")));
    }
    Ok(())
}

/// A size below 4 GB.
fn bytes(node: Node<'_>, name: &str) -> Result<Option<u32>, ConfigError> {
    let Some(n) = node.size(name)? else { return Ok(None) };
    u32::try_from(n).map(Some).map_err(|_| at(node, name).error(format!("{name}: {n} is larger than 4 GB")))
}

/// A number that fits into `T`.
fn count<T: TryFrom<i64>>(node: Node<'_>, name: &str) -> Result<Option<T>, ConfigError> {
    let Some(n) = node.int(name)? else { return Ok(None) };
    T::try_from(n).map(Some).map_err(|_| at(node, name).error(format!("{name}: {n} is out of range")))
}

fn at<'a>(node: Node<'a>, name: &str) -> Node<'a> {
    node.child(name).unwrap_or(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(libhtp: &str) -> Result<HttpConfig, ConfigError> {
        let text =
            format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    http:\n      memcap: 2mb\n      libhtp:\n{libhtp}");
        http(&Config::from_str(&text, "t").unwrap())
    }

    #[test]
    fn reads_the_default_and_servers() {
        let c = read(
            "        default-config:\n          personality: iis_7_0\n          request-body-limit: 0\n          \
             response-body-minimal-inspect-size: 2kb\n          response-body-decompress-layer-limit: 3\n          \
             lzma-enabled: yes\n          max-tx: 7\n          http-body-inline: no\n          swf-decompression:\n            \
             enabled: yes\n            type: lzma\n            compress-depth: 1kb\n        server-config:\n          \
             - apache:\n              address: [192.168.1.0/24, \"::1\"]\n              personality: Apache_2\n              \
             double-decode-path: yes\n              path-convert-lowercase: yes\n",
        )
        .unwrap();
        assert_eq!((c.memcap, c.body_inline), (2 << 20, Some(false)));
        let d = &c.default;
        assert_eq!((d.personality, d.body_limit[0], d.window[1].min), (Personality::Iis70, 0, 2048));
        assert_eq!((d.layers, d.max_tx, d.decompress.lzma_memory), ([2, 3], 7, 1 << 20));
        assert_eq!(d.swf, Some(SwfConfig { deflate: false, lzma: true, compress_depth: 1024, decompress_depth: 0 }));
        let apache = c.server("192.168.1.9".parse().unwrap());
        assert_eq!((apache.personality, apache.double_decode_path, apache.max_tx), (Personality::Apache2, true, 7));
        assert!(apache.path.lowercase && !apache.path.backslash);
        assert_eq!(c.server("::1".parse().unwrap()).personality, Personality::Apache2);
        assert_eq!(c.server("10.0.0.1".parse().unwrap()).personality, Personality::Iis70);
    }

    #[test]
    fn without_settings() {
        let c = app(&Config::from_str("%YAML 1.1\n---\n", "t").unwrap()).unwrap().http1;
        assert_eq!((c.default.personality, c.default.decompress.lzma_memory), (Personality::Ids, 0));
    }

    #[test]
    fn collectors_are_paths() {
        let of = |yaml: &str| {
            let text = format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    http:\n      arguments:\n{yaml}");
            collectors(&Config::from_str(&text, "t").unwrap())
        };
        assert_eq!(of("        max-count: 9\n").unwrap(), Collectors::default());
        assert_eq!(of("        collectors: []\n").unwrap(), Collectors::new([]));
        assert_eq!(of("        collectors: [/a, \"/b/*\"]\n").unwrap(), Collectors::new(["/a", "/b/*"]));
        assert!(of("        collectors: [v1/logs]\n").unwrap_err().to_string().contains("v1/logs"));
    }

    #[test]
    fn the_longest_prefix_decides() {
        let servers = "        server-config:\n          - wide:\n              address: [10.0.0.0/8, \"2001::/16\"]\n              \
                       request-body-limit: 5kb\n          - one:\n              address: [10.0.0.2, \"2001:2::/32\"]\n              \
                       request-body-limit: 7kb\n";
        let http = read(servers).unwrap();
        let limit = |address: &str| http.server(address.parse().unwrap()).body_limit[0];
        assert_eq!(["10.0.0.1", "10.0.0.2"].map(limit), [5 << 10, 7 << 10]);
        assert_eq!(["2001::1", "2001:2::1"].map(limit), [5 << 10, 7 << 10]);
    }

    #[test]
    fn values_that_the_manual_lists() {
        for (line, personality) in [
            ("personality: Apache", Personality::Apache2),
            ("personality: Apache_2_2", Personality::Apache2),
            ("path-url-encoding-invalid-handling: status_400", Personality::Ids),
        ] {
            let http = read(&format!("        default-config:\n          {line}\n")).unwrap();
            assert_eq!(http.default.personality, personality, "{line}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, word) in [
            ("personality: Tomcat", "Tomcat"),
            ("request-body-limit: much", "request-body-limit"),
            ("max-tx: -1", "max-tx"),
            ("meta-field-limit: 0", "meta-field-limit"),
            ("compression-bomb-limit: 0", "compression-bomb-limit"),
            ("lzma-memlimit: 0", "lzma-memlimit"),
            ("decompression-time-limit: 0", "decompression-time-limit"),
            ("path-bestfit-replacement-char: ab", "ab"),
            ("path-url-encoding-invalid-handling: guess", "guess"),
            ("swf-decompression: {enabled: yes, type: zip}", "zip"),
        ] {
            let e = read(&format!("        default-config:\n          {line}\n")).unwrap_err();
            assert!(e.to_string().contains(word), "{e}");
            assert!(e.place.line > 7, "{e}");
        }
        for server in ["address: 10.0.0.0/99", "address: here", "personality: IDS"] {
            let e = read(&format!("        server-config:\n          - one:\n              {server}\n")).unwrap_err();
            assert!(e.place.line > 7, "{e}");
        }
    }
}
