//! What an `eve-log` shows of the application layer: `http`, `files`, bodies of alerts, `xff`.

use margay_app::AppLogOptions;
use margay_app::http1::LogOptions;
use margay_config::{ConfigError, Node};
use margay_output::event::EventType;
use margay_output::settings::{Xff, XffMode, XffSettings};

/// What outputs want to know of files. It is found out once for all of them, and all of them show it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileDemands {
    /// `force-magic`.
    pub(crate) magic: bool,
    /// `force-hash: [md5]`.
    pub(crate) md5: bool,
    /// `force-hash: [sha1]`.
    pub(crate) sha1: bool,
    /// `force-hash: [sha256]`.
    pub(crate) sha256: bool,
}

/// Headers that `http: custom:` may name: those that Suricata knows, with hyphens.
const CUSTOM: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-datetime",
    "accept-encoding",
    "accept-language",
    "accept-range",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "etag",
    "expires",
    "from",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "org-src-ip",
    "origin",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "x-authenticated-user",
    "x-bluecoat-via",
    "x-flash-version",
    "x-forwarded-proto",
    "x-requested-with",
];

const XFF_HEADER: &str = "X-Forwarded-For";

/// Options of one `eve-log`, filled in while its types are read.
#[derive(Debug, Default)]
pub(super) struct AppLog {
    pub(super) options: AppLogOptions,
    pub(super) xff: XffSettings,
    pub(super) files: FileDemands,
}

impl AppLog {
    /// Takes what the section of one type says. `eve` is that of the `eve-log`.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub(super) fn read(
        &mut self,
        kind: EventType,
        eve: Node<'_>,
        node: Option<Node<'_>>,
        warnings: &mut Vec<String>,
    ) -> Result<(), ConfigError> {
        let xff = match kind {
            EventType::Alert => &mut self.xff.alert,
            EventType::Http => &mut self.xff.http,
            EventType::Fileinfo => &mut self.xff.files,
            _ => return Ok(()),
        };
        // A type's own section, even one that is off, stands before that of the output.
        *xff = match node.and_then(|n| n.node("xff")).or_else(|| eve.node("xff")) {
            Some(n) => self::xff(n, warnings)?,
            None => None,
        };
        let Some(node) = node else { return Ok(()) };
        match kind {
            EventType::Alert => {
                self.options.http_body = node.bool("http-body")?.unwrap_or(false);
                self.options.http_body_printable = node.bool("http-body-printable")?.unwrap_or(false);
            }
            EventType::Http => self.options.http = http(node, warnings)?,
            _ => self.files = files(node, warnings)?,
        }
        Ok(())
    }
}

fn http(node: Node<'_>, warnings: &mut Vec<String>) -> Result<LogOptions, ConfigError> {
    let mut o = LogOptions { extended: node.bool("extended")?.unwrap_or(false), ..LogOptions::default() };
    if let Some(which) = node.get("dump-all-headers") {
        o.dump_headers = match which {
            "both" => [true, true],
            "request" => [true, false],
            "response" => [false, true],
            other => {
                let at = node.node("dump-all-headers").unwrap_or(node).place();
                warnings.push(format!(
                    "{at}: dump-all-headers: \"{other}\" is none of both, request and response; no headers are dumped"
                ));
                [false, false]
            }
        };
    }
    let Some(custom) = node.node("custom") else { return Ok(o) };
    if o.dump_headers == [true; 2] {
        warnings.push(format!("{}: no need for custom as dump-all-headers is already present", custom.place()));
        return Ok(o);
    }
    for name in custom.values() {
        let known = name.to_ascii_lowercase().replace('_', "-");
        if !CUSTOM.contains(&known.as_str()) {
            warnings.push(format!(
                "{}: custom: \"{name}\" is none of the headers that can be named here and is not logged; \
                 dump-all-headers logs all",
                custom.place()
            ));
        } else if !o.custom.contains(&known) {
            o.custom.push(known);
        }
    }
    Ok(o)
}

/// `force-magic`, `force-hash` and the old `force-md5` of `files` or `file-store`.
///
/// # Errors
/// A value that cannot be read.
pub(super) fn files(node: Node<'_>, warnings: &mut Vec<String>) -> Result<FileDemands, ConfigError> {
    let mut d = FileDemands { magic: node.bool("force-magic")?.unwrap_or(false), ..FileDemands::default() };
    if let Some(old) = node.bool("force-md5")? {
        warnings.push(format!(
            "{}: deprecated 'force-md5' option found; please use 'force-hash: [md5]' instead",
            node.place()
        ));
        d.md5 = old;
    }
    if let Some(list) = node.node("force-hash") {
        for name in list.values() {
            match name.to_ascii_lowercase().as_str() {
                "md5" => d.md5 = true,
                "sha1" => d.sha1 = true,
                "sha256" => d.sha256 = true,
                _ => warnings.push(format!(
                    "{}: force-hash: \"{name}\" is none of md5, sha1 and sha256 and is not computed",
                    list.place()
                )),
            }
        }
    }
    Ok(d)
}

impl FileDemands {
    /// What either wants.
    pub(super) const fn and(self, other: FileDemands) -> FileDemands {
        FileDemands {
            magic: self.magic || other.magic,
            md5: self.md5 || other.md5,
            sha1: self.sha1 || other.sha1,
            sha256: self.sha256 || other.sha256,
        }
    }
}

/// Reads an `xff` section; `None` where it is off.
///
/// # Errors
/// A value that cannot be read.
pub(super) fn xff(node: Node<'_>, warnings: &mut Vec<String>) -> Result<Option<Xff>, ConfigError> {
    if !node.bool("enabled")?.unwrap_or(false) {
        return Ok(None);
    }
    let mode = match node.get("mode") {
        Some(m) if m.eq_ignore_ascii_case("overwrite") => XffMode::Overwrite,
        None => XffMode::ExtraData,
        Some(m) if m.eq_ignore_ascii_case("extra-data") => XffMode::ExtraData,
        Some(m) => {
            warnings.push(format!("{}: the XFF mode {m} is invalid, falling back to extra-data mode", node.place()));
            XffMode::ExtraData
        }
    };
    let forward = match node.get("deployment") {
        Some(d) if d.eq_ignore_ascii_case("forward") => true,
        None => false,
        Some(d) if d.eq_ignore_ascii_case("reverse") => false,
        Some(d) => {
            warnings.push(format!(
                "{}: the XFF deployment {d} is invalid, falling back to reverse proxy deployment",
                node.place()
            ));
            false
        }
    };
    let header = node.get("header").filter(|h| !h.is_empty()).unwrap_or_else(|| {
        warnings.push(format!("{}: the XFF header hasn't been defined, using the default {XFF_HEADER}", node.place()));
        XFF_HEADER
    });
    Ok(Some(Xff { mode, forward, header: header.into() }))
}
