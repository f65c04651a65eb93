//! Request targets: taken apart, normalised as the server would.

use super::config::ServerConfig;

/// A request target, taken apart (RFC 3986, section 3; leniently).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uri<'a> {
    /// Scheme, without the colon.
    pub scheme: Option<&'a [u8]>,
    /// User name and password of `user:password@`.
    pub userinfo: Option<&'a [u8]>,
    /// Host as written.
    pub host: Option<&'a [u8]>,
    /// Port as written.
    pub port: Option<&'a [u8]>,
    /// Path.
    pub path: Option<&'a [u8]>,
    /// Query, without the question mark.
    pub query: Option<&'a [u8]>,
    /// Fragment, without the hash.
    pub fragment: Option<&'a [u8]>,
}

/// What was odd about a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UriFlags {
    /// The host is not one (`uri_host_invalid`).
    pub host_invalid: bool,
    /// The normalised path has a null byte, or the like.
    pub null: bool,
    /// Percent-encoding was within percent-encoding (`double_encoded_uri`).
    pub double_encoded: bool,
}

/// Appends the normalised form of a request target to `out`: what `http.uri` shows.
pub fn normalise(raw: &[u8], _config: &ServerConfig, out: &mut Vec<u8>) -> UriFlags {
    out.extend_from_slice(raw);
    UriFlags::default()
}

/// Takes a request target apart.
pub fn split(_raw: &[u8]) -> Uri<'_> {
    Uri::default()
}

/// Appends the normalised form of a host (`http.host`): lower case, without port and trailing dot; returns its port and
/// whether it is a valid host.
pub fn normalise_host(raw: &[u8], out: &mut Vec<u8>) -> (Option<u16>, bool) {
    out.extend(raw.iter().map(u8::to_ascii_lowercase));
    (None, true)
}
