//! What a script asks of the engine.

use crate::value::Value;

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The packet at hand: `get`, `timestamp`, `timestring_legacy`, `timestring_iso8601`, `tuple`, `sp`, `dp`, `payload`,
    /// `packet`, `pcap_cnt`.
    Packet,
    /// Its flow: `get`, `timestamps`, `timestring_legacy`, `timestring_iso8601`, `tuple`, `app_layer_proto`, `has_alerts`,
    /// `id`, `stats`.
    Flow,
    /// The rule: `get`, `sid`, `gid`, `rev`, `msg`, `action`, `class_description`, `priority`, `class`.
    Rule,
    /// The file at hand: `get`, `file_id`, `tx_id`, `name`, `size`, `magic`, `md5`, `sha1`, `sha256`, `get_state`, `is_stored`.
    File,
    /// The transaction at hand. The first argument is the protocol that the script takes it to be of; what is asked is up to the
    /// protocol; `get` says whether there is one.
    Tx,
    /// A variable of the flow that is text: `get` with its name, `set` with name and value.
    FlowVar,
    /// A variable of the flow that is a number: `get` with its name, `set` with name and value.
    FlowInt,
    /// A variable of the rule that `byte_extract` or `byte_math` sets: `get` with its name.
    ByteVar,
    /// A set of data: `get` with its name says whether there is one, `add` with name and data gives 1 where the data is
    /// new, 0 where it is in the set already.
    Dataset,
    /// The thread: `info` gives number, name and group.
    Thread,
}

impl Subject {
    /// All of them, with their names in the prelude.
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

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostError {
    /// There is none now: the script gets `nil` and this sentence.
    Absent(String),
    /// The question makes no sense: an error in the script.
    Wrong(String),
}

impl HostError {
    /// What is not there.
    pub fn absent(what: impl Into<String>) -> Self {
        HostError::Absent(what.into())
    }
}

/// The engine, as a script sees it for one call.
pub trait Host {
    /// Answers a question.
    ///
    /// # Errors
    /// Where there is nothing to answer with.
    fn ask(&mut self, subject: Subject, what: &str, args: &[Value<'_>]) -> Result<Value<'_>, HostError>;
}

/// A host that has nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn ask(&mut self, _: Subject, _: &str, _: &[Value<'_>]) -> Result<Value<'_>, HostError> {
        Err(HostError::absent("there is nothing to look at here"))
    }
}
