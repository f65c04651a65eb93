//! Settings of DCE/RPC.

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `max-tx`: the limit of open transactions in a flow. A further one ends the oldest (`too_many_transactions`).
    pub max_tx: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_tx: 1024 }
    }
}
