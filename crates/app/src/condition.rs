//! Keywords on numbers: the syntax of the argument in a rule, and the condition that the argument states.
//!
//! The rule language reads arguments by the declared [`NumberSyntax`], so that a number and its keyword are declared together.

/// The argument of a keyword on a number.
#[derive(Debug, Clone, Copy)]
pub enum NumberSyntax {
    /// An integer from 0 to `max`, compared with the shared syntax of integer keywords. `words` names values in lower case; a
    /// rule may put `!` before a name.
    Compare {
        /// Largest value that a rule may name.
        max: u64,
        /// Names of values.
        words: &'static [(&'static str, u64)],
    },
    /// A bit set. A rule lists names separated by commas, each of which must be set, or clear with `!`; or it compares the
    /// whole number.
    Flags {
        /// Largest value that a rule may name.
        max: u64,
        /// Each bit with its name, in lower case.
        words: &'static [(&'static str, u64)],
    },
    /// A syntax of its own, which this function reads. An error is a sentence without the keyword's name.
    Own(fn(&str) -> Result<NumberCondition, String>),
    /// No argument: the number is 1 if the property holds.
    Holds,
}

impl NumberSyntax {
    /// An integer of 32 bits.
    pub const U32: NumberSyntax = NumberSyntax::Compare { max: u32::MAX as u64, words: &[] };
    /// An integer of 16 bits.
    pub const U16: NumberSyntax = NumberSyntax::Compare { max: u16::MAX as u64, words: &[] };
    /// An integer of 8 bits.
    pub const U8: NumberSyntax = NumberSyntax::Compare { max: u8::MAX as u64, words: &[] };
}

impl NumberCondition {
    /// The condition that the number has the value of `word`, which may be written in any case.
    ///
    /// # Errors
    /// If it is none of `words`.
    pub fn word(word: &str, words: &[(&str, u64)]) -> Result<NumberCondition, String> {
        let word = word.trim();
        match words.iter().find(|w| w.0.eq_ignore_ascii_case(word)) {
            Some((_, value)) => Ok(NumberCondition::OneOf { values: vec![*value], negated: false }),
            None => {
                let all: Vec<_> = words.iter().map(|w| w.0).collect();
                Err(format!("\"{word}\" is none of {}", all.join(", ")))
            }
        }
    }
}

/// A rule's condition on a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumberCondition {
    /// A comparison in the syntax of integer keywords (`>3`, `1-5`, `!7`) with values up to `max`.
    Compare {
        /// The comparison as written.
        text: String,
        /// The largest value that the comparison may name.
        max: u64,
    },
    /// One of these values.
    OneOf {
        /// The values.
        values: Vec<u64>,
        /// Match any value except these.
        negated: bool,
    },
    /// The upper 32 bits equal `tag`, and the lower 32 bits compare.
    Tagged {
        /// The tag, which says what the value belongs to.
        tag: u32,
        /// The comparison as written; `None` for any value.
        text: Option<String>,
    },
    /// A value from the first to the second number of one of these pairs, both included.
    Ranges(Vec<(u64, u64)>),
    /// At least one bit of `any` is set, and no bit of `none`.
    Bits {
        /// Bits of which at least one must be set; 0 for no such requirement.
        any: u64,
        /// Bits that must not be set.
        none: u64,
    },
    /// The number packs several fields, and each of these fields compares.
    Parts(Vec<NumberPart>),
}

/// A bit field within a number, and the condition on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberPart {
    /// Its lowest bit.
    pub first: u8,
    /// How many bits it has, from 1 to 32.
    pub bits: u8,
    /// The comparison as written.
    pub text: String,
}
