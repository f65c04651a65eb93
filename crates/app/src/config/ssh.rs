//! Settings of SSH.

/// How to continue once both directions are encrypted (`encryption-handling`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptionHandling {
    /// Stop inspecting the payload.
    #[default]
    TrackOnly,
    /// Bypass the flow.
    Bypass,
    /// Continue as before.
    Full,
}

/// Settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Whether HASSH fingerprints are computed.
    pub hassh: bool,
    /// How to continue once both directions are encrypted.
    pub encryption: EncryptionHandling,
}
