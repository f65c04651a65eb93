//! Recognises filters that people write for trackers and searches: `status = open and owner in (ann, bob) order by
//! created desc`.
//!
//! An attack continues after the value of an existing condition. So it begins with a value, or with a comparison that
//! needs no column. A filter is complete: each of its conditions begins with a field name.

use super::reader::Reader;
use super::token::{Kind, tokens};
use super::vocabulary::is_call;

/// Most tokens in a filter.
const TOKENS: usize = 64;
/// Words that are not field names.
const NO_FIELDS: &[&str] = &["or", "and", "not", "xor", "having", "where", "select", "union", "case", "if", "exists"];
/// Comparison words.
const COMPARES: &[&str] = &["like", "eq", "ne", "gt", "lt", "ge", "le", "contains", "was"];

/// Whether the whole value consists of conditions on fields, with an optional order.
pub(super) fn is_filter(value: &[u8]) -> bool {
    let tokens = tokens(value);
    if tokens.len() > TOKENS || tokens.len() < 3 {
        return false;
    }
    let commented = memchr::memmem::find(value, b"/*").is_some();
    let reader = Reader { tokens: &tokens, broken: false, before: false, commented };
    !commented && reader.filter().is_some()
}

impl Reader<'_> {
    fn filter(&self) -> Option<()> {
        let mut i = 0;
        loop {
            i = self.skip_open(i);
            i = self.condition_of_field(i)?;
            while self.is(i, ")") {
                i += 1;
            }
            if self.at(i).is_none() {
                return Some(());
            }
            if self.word(i, &["order"]) {
                return self.order(i);
            }
            if !self.word(i, &["and", "or"]) {
                return None;
            }
            i += 1;
        }
    }

    /// The end of a condition.
    fn condition_of_field(&self, mut i: usize) -> Option<usize> {
        let field = self.at(i)?;
        let plain = field.text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if field.kind != Kind::Word || !plain || field.word(NO_FIELDS) {
            return None;
        }
        i += 1;
        if self.word(i, &["not"]) {
            i += 1;
        }
        if self.word(i, &["in"]) {
            return self.list(i + 1);
        }
        let sign = self.at(i)?;
        let compares = sign.kind == Kind::Operator
            && matches!(sign.text, b"=" | b"==" | b"!=" | b"<" | b">" | b"<=" | b">=" | b"~" | b"<>");
        if !compares && !sign.word(COMPARES) {
            return None;
        }
        i += 1;
        if self.is(i, "-") {
            i += 1;
        }
        let right = self.at(i)?;
        // A field that is compared with itself is true in every row.
        if right.text == field.text || right.word(NO_FIELDS) {
            return None;
        }
        match right.kind {
            Kind::Text => Some(i + 1),
            // `-7d`
            Kind::Number => {
                Some(i + 1 + usize::from(self.at(i + 1).is_some_and(|t| matches!(t.text, b"d" | b"h" | b"w" | b"m"))))
            }
            Kind::Word if self.is(i + 1, "(") => (self.is(i + 2, ")") && !is_call(right)).then_some(i + 3),
            Kind::Word => Some(i + 1),
            _ => None,
        }
    }

    /// The end of a list of values.
    fn list(&self, mut i: usize) -> Option<usize> {
        if !self.is(i, "(") {
            return None;
        }
        loop {
            i += 1;
            let item = self.at(i)?;
            if !matches!(item.kind, Kind::Word | Kind::Number | Kind::Text) || item.word(NO_FIELDS) {
                return None;
            }
            i += 1;
            if self.is(i, ")") {
                return Some(i + 1);
            }
            if !self.is(i, ",") {
                return None;
            }
        }
    }

    /// `order by name desc`, to the end of the value.
    fn order(&self, i: usize) -> Option<()> {
        let mut i = i + 1;
        if !self.word(i, &["by"]) {
            return None;
        }
        loop {
            i += 1;
            if !self.kind(i, Kind::Word) {
                return None;
            }
            i += 1;
            if self.word(i, &["asc", "desc"]) {
                i += 1;
            }
            if self.at(i).is_none() {
                return Some(());
            }
            if !self.is(i, ",") {
                return None;
            }
        }
    }
}
