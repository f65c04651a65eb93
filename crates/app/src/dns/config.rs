//! Settings of DNS, and of what `dns` events show.

/// Settings of DNS.
#[derive(Debug, Clone)]
pub struct Config {
    /// Most transactions of a flow that wait to be looked at and logged. Messages on top of that are not parsed, and
    /// counted (`tx_limit`); they are complete when they are made, so that only a piece of a stream with that many small
    /// messages gets there.
    pub max_tx: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_tx: 4096 }
    }
}

/// Form of `dns` events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// As in Suricata 5 to 7: an event for each query, answers with the query's name and type.
    V2,
    /// As in Suricata 8: one event for each message, of the same form for requests and responses.
    #[default]
    V3,
}

/// What `dns` events show.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// `version`.
    pub version: Version,
    /// `requests`.
    pub requests: bool,
    /// `responses`.
    pub responses: bool,
    /// `formats: [detailed]`: answers one by one.
    pub detailed: bool,
    /// `formats: [grouped]`: answers by their type.
    pub grouped: bool,
    /// `types`: only messages that ask for one of these; `None` for all.
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
    /// Whether messages that ask for a type are logged.
    pub fn wants(&self, rrtype: u16) -> bool {
        self.types.as_ref().is_none_or(|t| t.contains(&rrtype))
    }
}
