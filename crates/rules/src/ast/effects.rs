//! Effects of a match besides its action: variables, tags, thresholds.

use super::{Action, AddressSet, FlowIntValue, Place, XBitTrack};

/// An effect of a match besides its action.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum Effect {
    /// `flowbits:set|unset|toggle`
    FlowBit { names: Vec<String>, op: BitOp },
    /// `flowint` changes
    FlowInt { name: String, op: FlowIntOp },
    /// `xbits`, `hostbits` `set|unset|toggle`, with the lifetime in seconds
    XBit { name: String, track: XBitTrack, op: BitOp, expire: u32, hostbits: bool },
    /// `score:NAME,+N`: adds to a transaction score
    Score { name: String, add: u32 },
    /// `tag`
    Tag(Tag),
    /// `bypass`
    Bypass,
    /// Marks a rule with `replace`; the content has the replacement
    Replace,
    /// `nfq_set_mark`
    NfqMark { mark: u32, mask: u32 },
    /// An action with a scope, or an additional action, in the header (`accept:flow,alert`); one for each, in order.
    /// Without any, the rule has only [`super::Rule::action`].
    Action { action: Action, scope: Option<ActionScope> },
    /// `config`
    Config { what: ConfigWhat, kind: ConfigKind, scope: ConfigScope },
    /// `filestore`: the direction of the files, `None` for the rule's own, and which of them
    FileStore { side: Option<FileSide>, scope: FileScope },
    /// `tls.store`: the certificates of the matching direction
    TlsStore,
    /// Effects that later protocols add, as written
    Other { keyword: String, argument: String },
}

/// The direction whose files `filestore` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileSide {
    ToServer,
    ToClient,
    Both,
}

/// The files that `filestore` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileScope {
    /// `file`: the file that matched
    File,
    /// `tx`: all files of the transaction
    Transaction,
    /// `ssn`, `flow`: all later files of the flow
    Flow,
}

/// The scope of an action in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActionScope {
    /// `packet`
    Packet,
    /// `flow`
    Flow,
    /// `hook`: this state of the protocol
    Hook,
    /// `tx`
    Transaction,
}

/// The feature that `config` turns off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConfigWhat {
    Logging,
    Tracking,
}

/// The object for which `config` turns it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConfigKind {
    Transaction,
    Flow,
}

/// The scope of `config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConfigScope {
    Transaction,
    Flow,
    Packet,
}

/// Changes of a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BitOp {
    Set,
    Unset,
    Toggle,
}

/// Changes of a flowint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FlowIntOp {
    Add(FlowIntValue),
    Subtract(FlowIntValue),
    Set(FlowIntValue),
}

/// `tag`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// The tagged object
    pub scope: TagScope,
    /// The amount; 0 of packets or bytes tags none
    pub count: u32,
    /// The unit of the amount
    pub unit: TagUnit,
}

/// The object that `tag` tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TagScope {
    Session,
    HostSource,
    HostDestination,
}

/// The unit that `tag` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TagUnit {
    Packets,
    Seconds,
    Bytes,
}

/// `threshold`, `detection_filter`, and the global rules of `threshold.config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Threshold {
    /// Kind
    pub kind: ThresholdKind,
    /// The subject of the count
    pub track: Track,
    /// The count
    pub count: u32,
    /// The window in seconds
    pub seconds: u32,
    /// `backoff`: factor
    pub multiplier: u32,
}

/// Kinds of threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ThresholdKind {
    Limit,
    Threshold,
    Both,
    Backoff,
    DetectionFilter,
}

/// The subject by which a threshold counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Track {
    Source,
    Destination,
    Both,
    Either,
    Rule,
    Flow,
}

/// One entry of `threshold.config`.
#[derive(Debug, Clone, PartialEq, Hash)]
pub struct GlobalThreshold {
    /// Generator; 0 for all
    pub gid: u32,
    /// Signature; 0 for all of the generator
    pub sid: u32,
    /// The effect
    pub kind: GlobalThresholdKind,
    /// The entry's place
    pub place: Place,
}

impl GlobalThreshold {
    /// The message that no loaded rule has its numbers.
    pub fn unknown(&self) -> String {
        let GlobalThreshold { gid, sid, .. } = self;
        match &self.kind {
            GlobalThresholdKind::Suppress { .. } => format!("can't suppress sid {sid}, gid {gid}: unknown rule"),
            _ => format!("can't apply the entry to sid {sid}, gid {gid}: unknown rule"),
        }
    }
}

/// The effect of a `threshold.config` entry.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum GlobalThresholdKind {
    /// `threshold`, `event_filter`
    Limit(Threshold),
    /// `rate_filter`
    RateFilter { track: Track, count: u32, seconds: u32, new_action: NewAction, timeout: u32 },
    /// `suppress`, for all or by address
    Suppress { track: Option<Track>, addresses: AddressSet },
}

/// `new_action` of `rate_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum NewAction {
    Alert,
    Drop,
    Pass,
    Reject,
}
