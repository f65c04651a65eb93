//! Buffers and numbers that rules can match: their declarations, and the bytes that a transaction returns.

use margay_flow::Direction;

use crate::condition::NumberSyntax;

/// How many values a buffer has, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferKind {
    /// One value, complete once the transaction reaches its progress.
    Single,
    /// A list, read by index from 0 until an index has no value.
    Multi,
    /// A list that can grow until the transaction ends. Rules inspect it at its progress and again at the end.
    Growing,
    /// Streamed data: each inspection sees a window of it.
    Stream,
}

impl BufferKind {
    /// Whether the buffer is a list.
    pub const fn is_several(self) -> bool {
        matches!(self, BufferKind::Multi | BufferKind::Growing)
    }

    /// Whether values can be added until the transaction ends.
    pub const fn grows(self) -> bool {
        matches!(self, BufferKind::Stream | BufferKind::Growing)
    }
}

/// A buffer that rules can match.
#[derive(Debug, Clone, Copy)]
pub struct BufferDef {
    /// Name in rules (`http.uri`). The rule language makes a sticky buffer of it, unless a table of keywords says more about it.
    pub name: &'static str,
    /// Other names of that keyword.
    pub also: &'static [&'static str],
    /// Number for [`crate::Transaction::buffer`]; below 64 within a protocol.
    pub id: u8,
    /// By [`margay_flow::Direction::index`]: the progress from which it is available, `None` if the direction has no such
    /// buffer. A buffer is complete once the transaction is past that progress, or at its end. Rules inspect a `Single` or
    /// `Multi` buffer when [`crate::TxBase::progress`] is at least this.
    pub progress: [Option<u8>; 2],
    /// Its values exist before that progress already, in the state before, as soon as the parser has read them. Rules match
    /// them then. In that state a value may still come, or change.
    pub early: bool,
    /// How many values it has, and when.
    pub kind: BufferKind,
    /// Its name in Suricata's messages and reports; empty if that is `name` with underscores.
    pub internal: &'static str,
    /// The description of its content in messages; empty if messages use the words of `name`.
    pub about: &'static str,
    /// `internal` is also a keyword: the old modifier of the content before it.
    pub is_modifier: bool,
    /// The option letter of `pcre` that selects it.
    pub letter: Option<char>,
    /// It looks alike in nearly every transaction, so a literal in it selects little.
    pub is_common: bool,
    /// A rule must name its direction with `flow`; the module of the message if not.
    pub needs_flow: Option<&'static str>,
    /// It is inspected in its own direction, whatever `flow` says.
    pub ignores_flow: bool,
    /// The form of its text.
    pub form: Form,
    /// The extra work that the parser does for it, if a rule or an output needs it.
    pub extra: Option<Extra>,
}

impl BufferDef {
    /// A buffer of any bytes that costs nothing extra, for declarations to say what differs.
    pub const PLAIN: BufferDef = BufferDef {
        name: "",
        also: &[],
        id: 0,
        progress: [None; 2],
        early: false,
        kind: BufferKind::Single,
        internal: "",
        about: "",
        is_modifier: false,
        letter: None,
        is_common: false,
        needs_flow: None,
        ignores_flow: false,
        form: Form::Any,
        extra: None,
    };

    /// The progress from which on it can have a value in a direction; `None` if the direction has no such buffer.
    pub const fn begins(&self, dir: Direction) -> Option<u8> {
        match self.progress[dir.index()] {
            Some(progress) if self.early => Some(progress.saturating_sub(1)),
            progress => progress,
        }
    }
}

/// The form that a buffer's text always has. Rules bring their contents into it, and refuse those that can never match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Any bytes.
    Any,
    /// An MD5 digest: 32 hexadecimal digits in lower case.
    Md5 {
        /// Suricata's module for messages.
        module: &'static str,
        /// Its name in messages.
        called: &'static str,
        /// A content with other characters is an error, not only a warning.
        strict: bool,
    },
    /// An MD5 digest whose rules are not brought into lower case.
    Digest {
        /// Suricata's module for messages.
        module: &'static str,
    },
    /// A SHA-1 digest: 20 pairs of hexadecimal digits in lower case, with colons between them.
    Fingerprint {
        /// Suricata's module for messages.
        module: &'static str,
    },
    /// A serial number: pairs of hexadecimal digits in upper case, with colons between them.
    Serial {
        /// Suricata's module for messages.
        module: &'static str,
    },
    /// A host name, in lower case.
    Host,
    /// A request method, without space around it.
    Method,
    /// A protocol version, without a space.
    Version,
}

/// Work that a parser does only if a rule or an output needs the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// JA3 and JA3S fingerprints.
    Ja3,
    /// JA4 fingerprints.
    Ja4,
    /// HASSH fingerprints.
    Hassh,
    /// The arguments of HTTP requests.
    Arguments,
}

/// A number that rules can match: a code, a version, a bit set, or 1 for a property that holds.
#[derive(Debug, Clone, Copy)]
pub struct NumberDef {
    /// The keyword's canonical name in rules (`dns.opcode`).
    pub name: &'static str,
    /// Number for [`crate::Transaction::number`].
    pub id: u8,
    /// As [`BufferDef::progress`].
    pub progress: [Option<u8>; 2],
    /// Other names of the keyword.
    pub also: &'static [&'static str],
    /// The keyword's argument. `None` if a table of keywords says more about it.
    pub syntax: Option<NumberSyntax>,
    /// The keyword goes together with rules of either direction, although only one has a value.
    pub goes_with_both: bool,
}

impl NumberDef {
    /// A number without a keyword, for declarations to say what differs.
    pub const PLAIN: NumberDef =
        NumberDef { name: "", id: 0, progress: [None; 2], also: &[], syntax: None, goes_with_both: false };

    /// A number with its keyword.
    pub const fn keyword(name: &'static str, id: u8, progress: [Option<u8>; 2], syntax: NumberSyntax) -> NumberDef {
        NumberDef { name, id, progress, syntax: Some(syntax), ..NumberDef::PLAIN }
    }

    /// The progress of a number that can change at any time: a failed check may succeed later.
    pub const ANY_STATE: u8 = u8::MAX;
}

/// A buffer's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The bytes.
    pub data: &'a [u8],
    /// Stream offset of the first byte for [`BufferKind::Stream`]; otherwise 0.
    pub offset: u64,
    /// Whether the data is complete.
    pub end: bool,
    /// How many of its first bytes the previous inspection had too, if the buffer is a [`BufferKind::Stream`] that was inspected
    /// then. Otherwise 0.
    pub seen: usize,
}

impl<'a> Found<'a> {
    /// A complete buffer.
    pub const fn whole(data: &'a [u8]) -> Self {
        Found { data, offset: 0, end: true, seen: 0 }
    }

    /// A value of a message. As in Suricata, rules do not see an empty one: `bsize:0` and negated contents do not match it.
    pub fn filled(data: &'a [u8]) -> Option<Self> {
        (!data.is_empty()).then(|| Found::whole(data))
    }
}

/// The value of a list index that has no number: no rule check matches it.
pub const ABSENT: u64 = u64::MAX;
