//! Settings of DNS, and of its events.

/// Settings of DNS.
#[derive(Debug, Clone)]
pub struct Config {
    /// The limit of transactions in a flow that are not yet inspected and logged. Further messages are counted (`tx_limit`),
    /// not parsed. DNS transactions are complete from the start, so only a stream segment with that many small messages reaches
    /// the limit.
    pub max_tx: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_tx: 4096 }
    }
}

/// The format of `dns` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// As in Suricata 5 to 7: an event for each query; answers have the query's name and type.
    V2,
    /// As in Suricata 8: one event for each message, in the same format for requests and responses.
    #[default]
    V3,
}

/// Settings of `dns` events.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// `version`.
    pub version: Version,
    /// `requests`.
    pub requests: bool,
    /// `responses`.
    pub responses: bool,
    /// `formats: [detailed]`: individual answers.
    pub detailed: bool,
    /// `formats: [grouped]`: answers grouped by type.
    pub grouped: bool,
    /// `types`: only messages that query one of these types; `None` for all.
    pub types: Option<Vec<u16>>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            version: Version::default(),
            requests: true,
            responses: true,
            detailed: true,
            grouped: true,
            types: None,
        }
    }
}

impl LogOptions {
    /// Whether messages that query a type are logged.
    pub fn wants(&self, rrtype: u16) -> bool {
        self.types.as_ref().is_none_or(|t| t.contains(&rrtype))
    }
}
