//! Options of an `eve-log` for the application layer: `http`, bodies of alerts, `xff`.

use margay_app::http1::LogOptions;
use margay_app::{AppLogOptions, AppProto, protocol};
use margay_config::{ConfigError, Node};
use margay_output::event::EventType;
use margay_output::settings::{Xff, XffMode, XffSettings};

/// Headers that `http: custom:` may name: those that Suricata supports, with hyphens.
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

/// The options of one `eve-log`, collected from its event types.
#[derive(Debug, Default)]
pub(super) struct AppLog {
    pub(super) options: AppLogOptions,
    pub(super) xff: XffSettings,
}

impl AppLog {
    /// Reads the section of one event type. `eve` is the `eve-log` section.
    ///
    /// # Errors
    /// An invalid value.
    pub(super) fn read(
        &mut self,
        kind: EventType,
        eve: Node<'_>,
        node: Option<Node<'_>>,
        warnings: &mut Vec<String>,
    ) -> Result<(), ConfigError> {
        let xff = match kind {
            EventType::Alert => Some(&mut self.xff.alert),
            EventType::App(p) if protocol(p).is_some_and(|p| p.shows_forwarded) => Some(&mut self.xff.http),
            EventType::Fileinfo => Some(&mut self.xff.files),
            _ => None,
        };
        if let Some(xff) = xff {
            // A type's own section takes precedence over the output's, even if it is off.
            *xff = match node.and_then(|n| n.node("xff")).or_else(|| eve.node("xff")) {
                Some(n) => self::xff(n, warnings)?,
                None => None,
            };
        }
        if kind == EventType::App(AppProto::Dns) {
            self.options.dns = super::dns::log(node, warnings)?;
        }
        let Some(node) = node else { return Ok(()) };
        if let EventType::App(proto) = kind {
            super::declared::eve_options(proto, node, &mut self.options.options)?;
        }
        match kind {
            EventType::Alert => {
                self.options.http_body = node.bool("http-body")?.unwrap_or(false);
                self.options.http_body_printable = node.bool("http-body-printable")?.unwrap_or(false);
                super::declared::alert_options(node, &mut self.options.options)?;
                if let Some(bytes) = node.size("payload-buffer-size")? {
                    self.options.alert_frame_payload = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(1);
                }
            }
            EventType::App(AppProto::Http1) => self.options.http = http(node, warnings)?,
            EventType::Frame => {
                if let Some(bytes) = node.size("payload-buffer-size")? {
                    self.options.frame_payload = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(1);
                }
            }
            EventType::App(AppProto::Tls) => self.options.tls = super::tls::log(node, warnings)?,
            EventType::App(AppProto::Smb) => self.options.smb = super::smb::log(node, warnings),
            EventType::App(AppProto::Smtp) => self.options.smtp = super::smtp::log(node, warnings)?,
            // File analysis is the same for all outputs: see `files`.
            _ => {}
        }
        Ok(())
    }
}

fn http(node: Node<'_>, warnings: &mut Vec<String>) -> Result<LogOptions, ConfigError> {
    let mut o = LogOptions { extended: node.bool("extended")?.unwrap_or(false), ..LogOptions::default() };
    if let Some(which) = node.get("dump-all-headers") {
        o.dump_headers = match which {
            "" | "none" => [false, false],
            "both" => [true, true],
            "request" => [true, false],
            "response" => [false, true],
            other => {
                let at = node.node("dump-all-headers").unwrap_or(node).place();
                warnings.push(format!(
                    "{at}: dump-all-headers: \"{other}\" is none of none, both, request and response; no headers are dumped"
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

/// Reads an `xff` section; `None` if it is off.
///
/// # Errors
/// An invalid value.
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
