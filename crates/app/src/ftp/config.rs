//! Settings of FTP.

/// `app-layer.protocols.ftp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of texts that the transactions of all flows may hold (`memcap`); 0 for no limit. Beyond that no text of further
    /// lines is kept: they are logged as truncated.
    pub memcap: u64,
    /// Longest line that is kept (`max-line-length`); of a longer one this much, and an event.
    pub max_line: u32,
    /// Most commands of a flow that wait for a reply (`max-tx`); with one more the flow is not parsed any more, and the
    /// oldest has an event.
    pub max_tx: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { memcap: 64 << 20, max_line: 4096, max_tx: 1024 }
    }
}
