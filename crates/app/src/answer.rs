//! The answer to a script's query ([`crate::Transaction::ask`]).

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The value does not exist.
    Nothing,
    /// Text or bytes.
    Bytes(Vec<u8>),
    /// A number.
    Int(i64),
    /// A floating-point number.
    Number(f64),
    /// A truth value.
    Bool(bool),
    /// A list, indexed from 1 as in Lua.
    List(Vec<Answer>),
    /// A list, indexed from 0.
    ListFromZero(Vec<Answer>),
    /// Values by name.
    Table(Vec<(Vec<u8>, Answer)>),
    /// Several return values.
    Several(Vec<Answer>),
}

impl Answer {
    /// Bytes, or `Nothing`.
    pub fn bytes(b: Option<&[u8]>) -> Answer {
        b.map_or(Answer::Nothing, |b| Answer::Bytes(b.to_vec()))
    }

    /// Text.
    pub fn text(s: &str) -> Answer {
        Answer::Bytes(s.as_bytes().to_vec())
    }
}
