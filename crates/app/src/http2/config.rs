//! Settings of HTTP/2.

use crate::http1::ServerConfig;

/// Settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// `max-streams`: most transactions of a flow at a time. With one more the oldest is at its end (`too_many_streams`).
    pub max_streams: u32,
    /// `max-table-size`: most bytes of a table of header compression, whatever its owner announces.
    pub max_table_size: u32,
    /// `max-reassembly-size`: most bytes of headers in several frames, and of any other frame that is read as a whole.
    pub max_reassembly_size: u32,
    /// `max-frames`: most frames of a stream that are looked at; those after it are skipped (`too_many_frames`).
    pub max_frames: u32,
    /// `app-layer.protocols.doh2.enabled`: DNS in HTTP/2 (RFC 8484) is looked for.
    pub doh2: bool,
    /// How bodies are decompressed and paths normalised: what HTTP/1 does by default, but bodies have no limit.
    pub server: ServerConfig,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_streams: 4096,
            max_table_size: 65_536,
            max_reassembly_size: 102_400,
            max_frames: 65_536,
            doh2: true,
            server: Config::server(&ServerConfig::default()),
        }
    }
}

impl Config {
    /// What holds for HTTP/2 where `of` does for HTTP/1: all of a body is looked at.
    pub fn server(of: &ServerConfig) -> ServerConfig {
        ServerConfig { body_limit: [0; 2], ..of.clone() }
    }
}
