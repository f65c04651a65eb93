//! What a match does besides its action: variables, tags, thresholds.

use super::{Action, AddressSet, FlowIntValue, Place, XBitTrack};

/// What a match does besides its action.
#[derive(Debug, Clone, PartialEq, Hash)]
#[allow(missing_docs)]
pub enum Effect {
    /// `flowbits:set|unset|toggle`
    FlowBit { names: Vec<String>, op: BitOp },
    /// `flowint` changes
    FlowInt { name: String, op: FlowIntOp },
    /// `xbits`, `hostbits` `set|unset|toggle`, with seconds to live
    XBit { name: String, track: XBitTrack, op: BitOp, expire: u32, hostbits: bool },
    /// `score:NAME,+N`: adds to a score of the transaction
    Score { name: String, add: u32 },
    /// `tag`
    Tag(Tag),
    /// `bypass`
    Bypass,
    /// `replace` is in the content; this marks that a rule has one
    Replace,
    /// `nfq_set_mark`
    NfqMark { mark: u32, mask: u32 },
    /// An action with a scope, or a further action, of the header (`accept:flow,alert`); one for each, in order. Without
    /// any the rule has [`super::Rule::action`] alone.
    Action { action: Action, scope: Option<ActionScope> },
    /// `config`
    Config { what: ConfigWhat, kind: ConfigKind, scope: ConfigScope },
    /// `filestore`: which directions' files, `None` for that of the rule, and how many
    FileStore { side: Option<FileSide>, scope: FileScope },
    /// `tls.store`: the certificates of the direction that matched
    TlsStore,
    /// Whatever later protocols add, as written
    Other { keyword: String, argument: String },
}

/// Whose files `filestore` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileSide {
    ToServer,
    ToClient,
    Both,
}

/// Which files `filestore` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileScope {
    /// `file`: that which matched
    File,
    /// `tx`: all of the transaction
    Transaction,
    /// `ssn`, `flow`: all of the flow from now on
    Flow,
}

/// How far an action of the header reaches.
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

/// What `config` turns off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConfigWhat {
    Logging,
    Tracking,
}

/// Of what `config` turns it off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ConfigKind {
    Transaction,
    Flow,
}

/// For how much `config` turns it off.
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
    /// What is tagged
    pub scope: TagScope,
    /// For how much; 0 seconds or packets means the default
    pub count: u32,
    /// Of what
    pub unit: TagUnit,
}

/// What `tag` tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TagScope {
    Session,
    HostSource,
    HostDestination,
}

/// What `tag` counts.
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
    /// By what
    pub track: Track,
    /// How many
    pub count: u32,
    /// Within how many seconds
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

/// What a threshold counts by.
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
    /// What it does
    pub kind: GlobalThresholdKind,
    /// Where it stands
    pub place: Place,
}

/// What an entry of `threshold.config` does.
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
