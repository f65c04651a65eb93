//! Settings of HTTP/1: the defaults, and others for some server addresses.

use std::net::IpAddr;

use crate::decompress::Limits;
use crate::decompress::swf::SwfConfig;
use crate::window::{FILE_WINDOW, WindowLimits};

/// The server software to imitate (`personality`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Personality {
    Minimal,
    Generic,
    #[default]
    Ids,
    Iis40,
    Iis50,
    Iis51,
    Iis60,
    Iis70,
    Iis75,
    Apache2,
}

impl Personality {
    /// The personality with this name in the configuration (`IIS_7_5`), in any case.
    ///
    /// The manual also lists `Apache` and `Apache_2_2`, which are `Apache_2` by now.
    pub fn from_name(name: &str) -> Option<Personality> {
        if ["Apache", "Apache_2_2"].iter().any(|n| n.eq_ignore_ascii_case(name)) {
            return Some(Personality::Apache2);
        }
        Self::NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|&(_, p)| p)
    }

    /// Names in the configuration.
    pub const NAMES: [(&'static str, Personality); 10] = [
        ("Minimal", Personality::Minimal),
        ("Generic", Personality::Generic),
        ("IDS", Personality::Ids),
        ("IIS_4_0", Personality::Iis40),
        ("IIS_5_0", Personality::Iis50),
        ("IIS_5_1", Personality::Iis51),
        ("IIS_6_0", Personality::Iis60),
        ("IIS_7_0", Personality::Iis70),
        ("IIS_7_5", Personality::Iis75),
        ("Apache_2", Personality::Apache2),
    ];
}

/// How to handle a percent sign in a path without two hexadecimal digits after it (`path-url-encoding-invalid-handling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InvalidEncoding {
    /// Keep it.
    #[default]
    Preserve,
    /// Drop it, and keep what follows.
    Remove,
    /// Decode what follows as if it were digits, as some servers do.
    Decode,
}

/// How a path is normalised. A personality sets all of it; single settings can override it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathConfig {
    /// `path-convert-backslash-separators`: treat backslashes as slashes.
    pub backslash: bool,
    /// `path-separators-decode`: decode `%2f` to a slash (and `%5c`, if backslashes are separators); otherwise keep it as
    /// written.
    pub decode_separators: bool,
    /// `path-separators-compress`: merge repeated slashes.
    pub compress: bool,
    /// `path-u-encoding-decode`: decode `%uXXXX`.
    pub u_encoding: bool,
    /// `path-utf8-convert-bestfit`: convert UTF-8 to single bytes.
    pub utf8_best_fit: bool,
    /// `path-bestfit-replacement-char`: replaces a character that no byte matches.
    pub replacement: u8,
    /// `path-convert-lowercase`.
    pub lowercase: bool,
    /// `path-nul-encoded-terminates`: end the path at `%00`.
    pub nul_encoded_ends: bool,
    /// `path-nul-raw-terminates`: end the path at a null byte.
    pub nul_raw_ends: bool,
    /// `path-url-encoding-invalid-handling`.
    pub invalid: InvalidEncoding,
}

impl PathConfig {
    /// The settings of a personality.
    pub const fn of(personality: Personality) -> PathConfig {
        use Personality as P;
        let windows = matches!(personality, P::Generic | P::Ids | P::Iis51 | P::Iis60 | P::Iis70 | P::Iis75);
        PathConfig {
            backslash: windows,
            decode_separators: windows,
            compress: windows || matches!(personality, P::Apache2),
            u_encoding: matches!(personality, P::Ids | P::Iis60 | P::Iis70 | P::Iis75),
            utf8_best_fit: matches!(personality, P::Ids),
            replacement: b'?',
            lowercase: false,
            nul_encoded_ends: false,
            nul_raw_ends: false,
            invalid: InvalidEncoding::Preserve,
        }
    }
}

/// Settings for one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The personality. Set it with [`ServerConfig::set_personality`], which also sets [`ServerConfig::path`].
    pub personality: Personality,
    /// How paths are normalised.
    pub path: PathConfig,
    /// The limit of inspected body bytes, 0 for none: `request-body-limit`, `response-body-limit`.
    pub body_limit: [u64; 2],
    /// Inspection limits of bodies, by direction.
    pub window: [WindowLimits; 2],
    /// `request-body-decompress-layer-limit` (off: 0), `response-body-decompress-layer-limit`.
    pub layers: [u8; 2],
    /// Limits of decompression.
    pub decompress: Limits,
    /// `swf-decompression`; `None` if it is off.
    pub swf: Option<SwfConfig>,
    /// `double-decode-path`.
    pub double_decode_path: bool,
    /// `double-decode-query`.
    pub double_decode_query: bool,
    /// `uri-include-all`: include scheme, host and port in the normalised URI.
    pub uri_include_all: bool,
    /// `query-plusspace-decode`.
    pub plus_as_space: bool,
    /// `meta-field-limit`: the longest header or request line.
    pub field_limit: u32,
    /// `max-tx`: the limit of transactions in a flow.
    pub max_tx: u32,
    /// `headers-limit`: the limit of headers in a message.
    pub headers_limit: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            personality: Personality::Ids,
            path: PathConfig::of(Personality::Ids),
            body_limit: [100 << 10, 100 << 10],
            window: [FILE_WINDOW, WindowLimits { min: 40 << 10, window: 16 << 10, whole: 0 }],
            layers: [2, 2],
            decompress: Limits::default(),
            swf: None,
            double_decode_path: false,
            double_decode_query: false,
            uri_include_all: false,
            plus_as_space: false,
            field_limit: 18_000,
            max_tx: 512,
            headers_limit: 1024,
        }
    }
}

impl ServerConfig {
    /// The inspection limits of bodies. Inline, data is inspected before it is forwarded, so it never waits for more.
    pub(crate) fn windows(&self, inline: bool) -> [WindowLimits; 2] {
        if inline { self.window.map(WindowLimits::inline) } else { self.window }
    }

    /// Sets a personality, including its path settings.
    pub const fn set_personality(&mut self, personality: Personality) {
        self.personality = personality;
        self.path = PathConfig::of(personality);
    }
}

/// Settings for all servers.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `default-config`.
    pub default: ServerConfig,
    /// `server-config`: networks as (address, prefix length), with their settings.
    pub servers: Vec<(Vec<(IpAddr, u8)>, ServerConfig)>,
    /// `memcap`; 0 for none.
    pub memcap: u64,
    /// `stream-depth`: the bytes of a direction that are parsed, 0 for all. `None` is `auto`: all in inline mode, so that a long
    /// upload hides no later request; else as `stream.reassembly.depth` says.
    pub stream_depth: Option<u64>,
    /// `stream.bypass`: flows are bypassed at `stream.reassembly.depth`, so `auto` keeps to it.
    pub follows_stream: bool,
    /// `http-body-inline`: inspect bodies as packets arrive. `None` is `auto`: in inline mode only.
    pub body_inline: Option<bool>,
}

impl Config {
    /// The bytes of a direction that are parsed, 0 for all; `None` as `stream.reassembly.depth` says.
    pub(crate) fn depth(&self, inline: bool) -> Option<u64> {
        self.stream_depth.or((inline && !self.follows_stream).then_some(0))
    }

    /// The settings for a server: those of the longest prefix that contains the address.
    pub fn server(&self, address: IpAddr) -> &ServerConfig {
        let inside = |&(net, bits): &(IpAddr, u8)| match (net, address) {
            (IpAddr::V4(n), IpAddr::V4(a)) => {
                let mask = u32::MAX.checked_shl(32u32.saturating_sub(u32::from(bits))).unwrap_or(0);
                u32::from(n) & mask == u32::from(a) & mask
            }
            (IpAddr::V6(n), IpAddr::V6(a)) => {
                let mask = u128::MAX.checked_shl(128u32.saturating_sub(u32::from(bits))).unwrap_or(0);
                u128::from(n) & mask == u128::from(a) & mask
            }
            _ => false,
        };
        let mut best: Option<(u8, &ServerConfig)> = None;
        for (nets, server) in &self.servers {
            let longest = nets.iter().filter(|n| inside(n)).map(|n| n.1).max();
            // Of equal prefixes, the first one counts.
            if let Some(bits) = longest.filter(|b| best.is_none_or(|(most, _)| *b > most)) {
                best = Some((bits, server));
            }
        }
        best.map_or(&self.default, |(_, s)| s)
    }
}

/// Settings of `http` events.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// `extended`.
    pub extended: bool,
    /// `custom`: additional headers, by name in lower case.
    pub custom: Vec<String>,
    /// `dump-all-headers`: for requests and for responses.
    pub dump_headers: [bool; 2],
}
