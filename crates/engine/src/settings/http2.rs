//! `app-layer.protocols.http2:` and `doh2:` as settings of HTTP/2.

use margay_app::http1::ServerConfig;
use margay_app::http2::Config as Http2Config;
use margay_config::{Config, ConfigError};

/// HTTP/2's settings. `server` has the settings of HTTP/1, which apply to bodies and paths.
///
/// `http1-rules` is obsolete: rules on `http` apply to both versions.
///
/// # Errors
/// An invalid value.
pub(crate) fn http2(config: &Config, server: &ServerConfig) -> Result<Http2Config, ConfigError> {
    let mut http2 = Http2Config { server: Http2Config::server(server), ..Http2Config::default() };
    if let Some(node) = config.node("app-layer.protocols.http2") {
        for (key, to) in [
            ("max-streams", &mut http2.max_streams),
            ("max-table-size", &mut http2.max_table_size),
            ("max-reassembly-size", &mut http2.max_reassembly_size),
            ("max-frames", &mut http2.max_frames),
        ] {
            if let Some(n) = node.size(key)? {
                *to = u32::try_from(n).unwrap_or(u32::MAX);
            }
        }
    }
    http2.doh2 = config.bool("app-layer.protocols.doh2.enabled")?.unwrap_or(true);
    Ok(http2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &str) -> Result<Http2Config, ConfigError> {
        let text = format!("%YAML 1.1\n---\napp-layer:\n  protocols:\n    http2:\n      enabled: yes\n{settings}");
        http2(&Config::from_str(&text, "t").unwrap(), &ServerConfig::default())
    }

    #[test]
    fn limits() {
        let d = read("").unwrap();
        assert_eq!((d.max_streams, d.max_table_size, d.max_reassembly_size, d.doh2), (4096, 65_536, 102_400, true));
        let c = read("      max-streams: 10\n      max-table-size: 1kb\n      max-reassembly-size: 2000\n      max-frames: 5\n    doh2:\n      enabled: no\n").unwrap();
        assert_eq!(
            (c.max_streams, c.max_table_size, c.max_reassembly_size, c.max_frames, c.doh2),
            (10, 1024, 2000, 5, false)
        );
        assert!(read("      max-streams: many\n").is_err());
        assert_eq!(d.server.body_limit, [0, 0]);
    }
}
