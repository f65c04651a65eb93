//! Queries from a script to the engine.

use crate::value::Value;

/// The subject of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The current packet: `get`, `timestamp`, `timestring_legacy`, `timestring_iso8601`, `tuple`, `sp`, `dp`, `payload`,
    /// `packet`, `pcap_cnt`.
    Packet,
    /// Its flow: `get`, `timestamps`, `timestring_legacy`, `timestring_iso8601`, `tuple`, `app_layer_proto`, `has_alerts`,
    /// `id`, `stats`.
    Flow,
    /// The rule: `get`, `sid`, `gid`, `rev`, `msg`, `action`, `class_description`, `priority`, `class`.
    Rule,
    /// The current file: `get`, `file_id`, `tx_id`, `name`, `size`, `magic`, `md5`, `sha1`, `sha256`, `get_state`,
    /// `is_stored`.
    File,
    /// The current transaction. The first argument is the protocol that the script expects. The protocol defines the queries;
    /// `get` says whether there is a transaction.
    Tx,
    /// A text variable of the flow: `get` with its name, `set` with name and value.
    FlowVar,
    /// A number variable of the flow: `get` with its name, `set` with name and value.
    FlowInt,
    /// A variable of the rule that `byte_extract` or `byte_math` sets: `get` with its name.
    ByteVar,
    /// A dataset: `get` with its name says whether it exists. `add` with name and data returns 1 if the data is new, and 0 if
    /// it was in the set.
    Dataset,
    /// The thread: `info` returns number, name and group.
    Thread,
}

impl Subject {
    /// All subjects, with their names in the prelude.
    pub(crate) const NAMES: [(&'static str, Subject); 10] = [
        ("packet", Subject::Packet),
        ("flow", Subject::Flow),
        ("rule", Subject::Rule),
        ("file", Subject::File),
        ("tx", Subject::Tx),
        ("flowvar", Subject::FlowVar),
        ("flowint", Subject::FlowInt),
        ("bytevar", Subject::ByteVar),
        ("dataset", Subject::Dataset),
        ("thread", Subject::Thread),
    ];

    pub(crate) fn from_name(name: &str) -> Option<Subject> {
        Self::NAMES.iter().find(|(n, _)| *n == name).map(|(_, s)| *s)
    }
}

/// Why a query has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostError {
    /// The value is not available now: the script gets `nil` and this message.
    Absent(String),
    /// The query is invalid: an error in the script.
    Wrong(String),
}

impl HostError {
    /// The value is not available.
    pub fn absent(what: impl Into<String>) -> Self {
        HostError::Absent(what.into())
    }
}

/// The engine, as a script sees it during one call.
pub trait Host {
    /// Answers a query.
    ///
    /// # Errors
    /// There is no answer.
    fn ask(&mut self, subject: Subject, what: &str, args: &[Value<'_>]) -> Result<Value<'_>, HostError>;
}

/// A host without any values.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn ask(&mut self, _: Subject, _: &str, _: &[Value<'_>]) -> Result<Value<'_>, HostError> {
        Err(HostError::absent("there is nothing to look at here"))
    }
}
