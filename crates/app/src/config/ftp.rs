//! Settings of FTP.

/// `app-layer.protocols.ftp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The memory limit for texts in the transactions of all flows (`memcap`); 0 for none. Above it, the text of further lines
    /// is not kept, and they are logged as truncated.
    pub memcap: u64,
    /// The longest line (`max-line-length`); a longer one is truncated, with an event.
    pub max_line: u32,
    /// The limit of commands in a flow that wait for a reply (`max-tx`). A further one ends parsing of the flow, and the oldest
    /// gets an event.
    pub max_tx: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { memcap: 64 << 20, max_line: 4096, max_tx: 1024 }
    }
}
