//! Data that a protocol declares: keywords, settings, and options of its event type.
//!
//! The rule language, the configuration and the reference are generated from these declarations, so each fact has one place.

mod protocol;

use margay_json::Json;

use crate::buffer::{BufferDef, BufferKind, NumberDef};

pub use crate::condition::{NumberCondition, NumberPart, NumberSyntax};
pub use crate::config::{Handover, Values};
pub use crate::recognise::Opening;
pub use protocol::Protocol;

/// The directions of a flow in which a keyword has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordDirection {
    /// Client to server.
    ToServer,
    /// Server to client.
    ToClient,
    /// Both directions.
    Both,
}

/// A keyword of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Keyword {
    /// Its names, the canonical one first. [`crate::BufferDef`] and [`crate::NumberDef`] use the canonical name.
    pub names: &'static [&'static str],
    /// The kind of value that the keyword matches.
    pub kind: KeywordKind,
    /// The directions in which the value exists.
    pub direction: KeywordDirection,
    /// The transaction progress from which the value is available.
    pub progress: u8,
}

/// The kind of value that a keyword matches.
#[derive(Debug, Clone, Copy)]
pub enum KeywordKind {
    /// A sticky buffer. With `multi`, a transaction may have several.
    Buffer {
        /// Whether each use of the keyword in a rule selects the buffer again.
        multi: bool,
    },
    /// A number, with what a rule writes about it.
    Number(NumberSyntax),
}

impl Keyword {
    /// A buffer that exists once in a transaction.
    pub const fn buffer(names: &'static [&'static str], direction: KeywordDirection) -> Keyword {
        Keyword { names, kind: KeywordKind::Buffer { multi: false }, direction, progress: 1 }
    }

    /// A buffer that may exist several times in a transaction.
    pub const fn buffers(names: &'static [&'static str], direction: KeywordDirection) -> Keyword {
        Keyword { names, kind: KeywordKind::Buffer { multi: true }, direction, progress: 1 }
    }

    /// An integer from 0 to `max`.
    pub const fn number(names: &'static [&'static str], max: u64, direction: KeywordDirection) -> Keyword {
        Keyword { names, kind: KeywordKind::Number(NumberSyntax::Compare { max, words: &[] }), direction, progress: 1 }
    }

    /// An integer whose values have names.
    pub const fn words(
        names: &'static [&'static str],
        max: u64,
        words: &'static [(&'static str, u64)],
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Number(NumberSyntax::Compare { max, words }), direction, progress: 1 }
    }

    /// A set of bits.
    pub const fn flags(
        names: &'static [&'static str],
        max: u64,
        words: &'static [(&'static str, u64)],
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Number(NumberSyntax::Flags { max, words }), direction, progress: 1 }
    }

    /// A number that `read` reads from the rule.
    pub const fn own(
        names: &'static [&'static str],
        read: fn(&str) -> Result<NumberCondition, String>,
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Number(NumberSyntax::Own(read)), direction, progress: 1 }
    }

    /// The same keyword, available from `progress` instead of 1.
    pub const fn from(self, progress: u8) -> Keyword {
        Keyword { progress, ..self }
    }

    const fn is_buffer(&self) -> bool {
        matches!(self.kind, KeywordKind::Buffer { .. })
    }

    const fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The progress by direction, in the form that detection uses.
    const fn progress(&self) -> [Option<u8>; 2] {
        match self.direction {
            KeywordDirection::ToServer => [Some(self.progress), None],
            KeywordDirection::ToClient => [None, Some(self.progress)],
            KeywordDirection::Both => [Some(self.progress); 2],
        }
    }
}

/// Returns the name of a value.
pub fn word(words: &[(&'static str, u64)], value: u64) -> Option<&'static str> {
    words.iter().find(|w| w.1 == value).map(|w| w.0)
}

/// Writes the name of a value, or the number as text if it has no name.
pub fn named(json: &mut Json, key: &'static str, words: &[(&'static str, u64)], value: impl Into<u64>) {
    let value = value.into();
    match word(words, value) {
        Some(name) => json.str(key, name),
        None => json.str(key, &value.to_string()),
    }
}

/// Counts the buffers among the keywords, or the numbers if `buffers` is false.
pub const fn count(keywords: &[Keyword], buffers: bool) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < keywords.len() {
        if keywords[i].is_buffer() == buffers {
            n += 1;
        }
        i += 1;
    }
    n
}

/// The buffers among the keywords. A buffer's id is its index in `keywords`.
pub const fn buffers<const N: usize>(keywords: &[Keyword]) -> [BufferDef; N] {
    let mut all = [BufferDef::PLAIN; N];
    let (mut n, mut i) = (0, 0);
    while i < keywords.len() {
        let k = &keywords[i];
        if let KeywordKind::Buffer { multi } = k.kind {
            let kind = if multi { BufferKind::Multi } else { BufferKind::Single };
            let (name, progress) = (k.name(), k.progress());
            all[n] = BufferDef { name, id: i as u8, progress, kind, ..BufferDef::PLAIN };
            n += 1;
        }
        i += 1;
    }
    all
}

/// The numbers among the keywords. A number's id is its index in `keywords`.
pub const fn numbers<const N: usize>(keywords: &[Keyword]) -> [NumberDef; N] {
    let mut all = [NumberDef::PLAIN; N];
    let (mut n, mut i) = (0, 0);
    while i < keywords.len() {
        let k = &keywords[i];
        if !k.is_buffer() {
            all[n] = NumberDef { name: k.name(), id: i as u8, progress: k.progress(), ..NumberDef::PLAIN };
            n += 1;
        }
        i += 1;
    }
    all
}

/// A setting below `app-layer.protocols.KEY`.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The value if the configuration does not set it.
    pub default: u64,
    /// A sentence for the reference that says what it does.
    pub about: &'static str,
}

impl Setting {
    /// The number of bytes of each direction that the parser follows.
    pub const STREAM_DEPTH: Setting = Setting {
        key: "stream-depth",
        unit: Unit::Bytes,
        default: 0,
        about: "How much of each direction's stream is followed; 0 for all.",
    };

    /// The limit on open transactions.
    pub const fn max_tx(default: u64) -> Setting {
        Setting {
            key: "max-tx",
            unit: Unit::Count,
            default,
            about: "Most transactions of a flow that are not complete.",
        }
    }
}

/// An option of a protocol's event type (`outputs.eve-log.types.TYPE.KEY`), or of alerts (`outputs.eve-log.types.alert.KEY`).
#[derive(Debug, Clone, Copy)]
pub struct EveOption {
    /// Its key.
    pub key: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The value if the configuration does not set it.
    pub default: u64,
    /// A sentence for the reference that says what it does.
    pub about: &'static str,
}

/// Unit of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `yes` or `no`: 1 or 0.
    Flag,
    /// Bytes, with `kb`, `mb` and `gb`.
    Bytes,
    /// A count.
    Count,
}
