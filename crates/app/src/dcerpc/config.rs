//! Settings of DCE/RPC.

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `max-tx`: most transactions of a flow that are not complete. With one more the oldest is at its end
    /// (`too_many_transactions`).
    pub max_tx: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_tx: 1024 }
    }
}
