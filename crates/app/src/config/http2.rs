//! Settings of HTTP/2.

use super::http1::ServerConfig;

/// Settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// `max-streams`: the limit of open transactions in a flow. A further one closes the oldest (`too_many_streams`).
    pub max_streams: u32,
    /// `max-table-size`: the limit of a header compression table in bytes, whatever the peer announces.
    pub max_table_size: u32,
    /// `max-reassembly-size`: the limit in bytes of headers that span frames, and of any other frame that is read as a whole.
    pub max_reassembly_size: u32,
    /// `max-frames`: the limit of frames that are parsed in a stream; later ones are skipped (`too_many_frames`).
    pub max_frames: u32,
    /// `app-layer.protocols.doh2.enabled`: detect DNS over HTTP/2 (RFC 8484).
    pub doh2: bool,
    /// How bodies are decompressed and paths normalised: the defaults of HTTP/1, without the body limit.
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
    /// Adapts HTTP/1 settings to HTTP/2: the whole body is inspected.
    pub fn server(of: &ServerConfig) -> ServerConfig {
        ServerConfig { body_limit: [0; 2], ..of.clone() }
    }
}
