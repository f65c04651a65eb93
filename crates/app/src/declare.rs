//! What a protocol declares as data: keywords, settings, options of its event type.
//!
//! The rule language, the configuration and the reference read these declarations. Nothing of them is said a second time.

use margay_json::Json;

use crate::tx::{BufferDef, BufferKind, NumberDef};

/// In which direction of a flow a keyword's value exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordDirection {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
    /// Both.
    Both,
}

/// A keyword of a protocol.
#[derive(Debug, Clone, Copy)]
pub struct Keyword {
    /// Its names, the canonical one first. [`crate::BufferDef`] and [`crate::NumberDef`] have the canonical one.
    pub names: &'static [&'static str],
    /// What it asks for.
    pub kind: KeywordKind,
    /// Where its value exists.
    pub direction: KeywordDirection,
    /// Progress of a transaction from which on its value is there.
    pub progress: u8,
}

/// What a keyword asks for.
#[derive(Debug, Clone, Copy)]
pub enum KeywordKind {
    /// A sticky buffer; `multi`: a transaction may have several of it.
    Buffer {
        /// Whether every selection is its own.
        multi: bool,
    },
    /// An integer from 0 to `max`, compared in the syntax that integer keywords share. `words` are names for values, in lower
    /// case; `!` may precede a name.
    Number {
        /// Largest value that a rule may name.
        max: u64,
        /// Names of values.
        words: &'static [(&'static str, u64)],
    },
    /// A set of bits: names separated by commas, all of which must be set, or with `!` clear; or a comparison of the whole number.
    Flags {
        /// Largest value that a rule may name.
        max: u64,
        /// Each bit with its name, in lower case.
        words: &'static [(&'static str, u64)],
    },
    /// A number that is read from the rule by a function of its own.
    Own(fn(&str) -> Result<NumberCondition, String>),
}

/// What a rule asks of a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberCondition {
    /// A comparison as integer keywords have it (`>3`, `1-5`, `!7`), of values up to `max`.
    Compare {
        /// The comparison as written.
        text: String,
        /// Largest value that it may name.
        max: u64,
    },
    /// One of these values.
    OneOf {
        /// The values.
        values: Vec<u64>,
        /// None of them instead.
        negated: bool,
    },
    /// The upper 32 bits are `tag`, and the lower 32 bits compare.
    Tagged {
        /// What has the value.
        tag: u32,
        /// The comparison as written.
        text: String,
    },
    /// One of the bits of `any` is set, and no bit of `none`.
    Bits {
        /// Bits of which one has to be set; 0 asks for none.
        any: u64,
        /// Bits that must not be set.
        none: u64,
    },
    /// Each of these parts of the number compares: of a number that is put together of several.
    Parts(Vec<NumberPart>),
}

/// A range of bits of a number, and the condition on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberPart {
    /// Its lowest bit.
    pub first: u8,
    /// How many bits it has, from 1 to 32.
    pub bits: u8,
    /// The comparison as written.
    pub text: String,
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
        Keyword { names, kind: KeywordKind::Number { max, words: &[] }, direction, progress: 1 }
    }

    /// An integer whose values have names.
    pub const fn words(
        names: &'static [&'static str],
        max: u64,
        words: &'static [(&'static str, u64)],
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Number { max, words }, direction, progress: 1 }
    }

    /// A set of bits.
    pub const fn flags(
        names: &'static [&'static str],
        max: u64,
        words: &'static [(&'static str, u64)],
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Flags { max, words }, direction, progress: 1 }
    }

    /// A number that `read` reads from the rule.
    pub const fn own(
        names: &'static [&'static str],
        read: fn(&str) -> Result<NumberCondition, String>,
        direction: KeywordDirection,
    ) -> Keyword {
        Keyword { names, kind: KeywordKind::Own(read), direction, progress: 1 }
    }

    /// The same, there from another progress on than 1.
    pub const fn from(self, progress: u8) -> Keyword {
        Keyword { progress, ..self }
    }

    const fn is_buffer(&self) -> bool {
        matches!(self.kind, KeywordKind::Buffer { .. })
    }

    const fn name(&self) -> &'static str {
        self.names[0]
    }

    /// By direction, as detection has it.
    const fn progress(&self) -> [Option<u8>; 2] {
        match self.direction {
            KeywordDirection::ToServer => [Some(self.progress), None],
            KeywordDirection::ToClient => [None, Some(self.progress)],
            KeywordDirection::Both => [Some(self.progress); 2],
        }
    }
}

/// The name of a value among words.
pub fn word(words: &[(&'static str, u64)], value: u64) -> Option<&'static str> {
    words.iter().find(|w| w.1 == value).map(|w| w.0)
}

/// Writes a value by its name among words, or as a number in text.
pub fn named(json: &mut Json, key: &'static str, words: &[(&'static str, u64)], value: impl Into<u64>) {
    let value = value.into();
    match word(words, value) {
        Some(name) => json.str(key, name),
        None => json.str(key, &value.to_string()),
    }
}

/// How many buffers, or numbers, there are among keywords.
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

/// The buffers among keywords; each has its place as number.
pub const fn buffers<const N: usize>(keywords: &[Keyword]) -> [BufferDef; N] {
    let mut all = [BufferDef { name: "", also: &[], id: 0, progress: [None; 2], kind: BufferKind::Single }; N];
    let (mut n, mut i) = (0, 0);
    while i < keywords.len() {
        let k = &keywords[i];
        if let KeywordKind::Buffer { multi } = k.kind {
            let kind = if multi { BufferKind::Multi } else { BufferKind::Single };
            all[n] = BufferDef { name: k.name(), also: &[], id: i as u8, progress: k.progress(), kind };
            n += 1;
        }
        i += 1;
    }
    all
}

/// The numbers among keywords; each has its place as number.
pub const fn numbers<const N: usize>(keywords: &[Keyword]) -> [NumberDef; N] {
    let mut all = [NumberDef { name: "", id: 0, progress: [None; 2] }; N];
    let (mut n, mut i) = (0, 0);
    while i < keywords.len() {
        let k = &keywords[i];
        if !k.is_buffer() {
            all[n] = NumberDef { name: k.name(), id: i as u8, progress: k.progress() };
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
    /// Value where the configuration says nothing.
    pub default: u64,
    /// What it does, in a sentence for the reference.
    pub about: &'static str,
}

impl Setting {
    /// How many bytes of each direction are followed.
    pub const STREAM_DEPTH: Setting = Setting {
        key: "stream-depth",
        unit: Unit::Bytes,
        default: 0,
        about: "How much of each direction's stream is followed; 0 for all.",
    };

    /// The limit of open transactions.
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
    /// Value where the configuration says nothing.
    pub default: u64,
    /// What it does, in a sentence for the reference.
    pub about: &'static str,
}

/// Unit of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `yes` or `no`: 1 or 0.
    Flag,
    /// Bytes, with `kb`, `mb` and `gb`.
    Bytes,
    /// A number of something.
    Count,
}

/// What protocols declared under keys, with the values in force.
#[derive(Debug, Clone)]
pub struct Values(Vec<Vec<u64>>);

impl Values {
    fn new(defaults: impl Iterator<Item = Vec<u64>>) -> Values {
        Values(defaults.collect())
    }

    /// The defaults of all settings.
    pub fn settings() -> Values {
        Values::new(crate::registry::ALL.iter().map(|p| p.settings.iter().map(|s| s.default).collect()))
    }

    /// The defaults of all options of event types, and behind those of a protocol its options of alerts.
    pub fn eve_options() -> Values {
        let of = |p: &&crate::Protocol| p.eve_options.iter().chain(p.alert_options).map(|s| s.default).collect();
        Values::new(crate::registry::ALL.iter().map(of))
    }

    /// The value at a place of a protocol's list; 0 where there is no such place.
    pub fn get(&self, proto: crate::AppProto, place: usize) -> u64 {
        let of = (proto as usize).checked_sub(2).and_then(|i| self.0.get(i));
        of.and_then(|v| v.get(place)).copied().unwrap_or(0)
    }

    /// Sets the value at a place of a protocol's list.
    pub fn set(&mut self, proto: crate::AppProto, place: usize, value: u64) {
        let of = (proto as usize).checked_sub(2).and_then(|i| self.0.get_mut(i));
        if let Some(v) = of.and_then(|v| v.get_mut(place)) {
            *v = value;
        }
    }
}
