//! Finds expressions of operators and operands between the end of a string and the beginning of another.

use super::reader::{NEAR, Reader};
use super::token::{Kind, Token};
use super::vocabulary::{COMPARES, JOINS};

impl Reader<'_> {
    /// Whether operators and operands lead from the end of the string to another one, or to a comment: `' ^ 0 != '1`,
    /// `' * column is \N - '`. Prose has words side by side, or no operator in front of the quote; paths and parts of programs
    /// that are joined have nothing but `/`, `-` and `+`, or other strings between them.
    pub(super) fn is_expression(&self) -> bool {
        let is_operator = |t: &Token<'_>| t.kind == Kind::Operator || t.word(JOINS) || t.word(COMPARES);
        // `"<" + name + ">"`
        let joins_strings = |t: &Token<'_>| {
            let inner = t.text.get(1..t.text.len() - 1).unwrap_or(&[]).trim_ascii();
            [inner.first(), inner.last()].into_iter().flatten().any(|b| b.is_ascii_punctuation())
        };
        // `"/apps/"`
        if self.is(0, "/") && self.kind(1, Kind::Word) {
            return false;
        }
        let (mut operand, mut compared, mut decides) = (true, false, false);
        for (i, t) in self.tokens.iter().enumerate().take(NEAR) {
            match t.kind {
                // The string that the surrounding statement closes.
                Kind::Open => return !operand && decides && i >= 2,
                Kind::Comment => return operand && compared && i >= 3,
                _ if is_operator(t) => {
                    // Signs and negations may stand before an operand.
                    let sign = matches!(t.text, b"+" | b"-" | b"!" | b"~" | b"@") || t.word(&["not", "is"]);
                    if !operand && !sign {
                        return false;
                    }
                    compared |= t.compares();
                    decides |= !matches!(t.text, b"/" | b"-" | b"+");
                    operand = false;
                }
                Kind::Mark if t.is("(") && !operand => {}
                Kind::Mark if t.is(")") && operand => {}
                Kind::Text if joins_strings(t) => return false,
                Kind::Word | Kind::Number | Kind::Text if !operand => operand = true,
                _ => return false,
            }
        }
        false
    }

    /// Whether the rest joins two strings by numbers alone: `'-0||'`, `'^(0)^'`.
    pub(super) fn joins_numbers(&self) -> bool {
        let Some(([.., operator], last)) = self.tokens.split_last().map(|(l, rest)| (rest, l)) else { return false };
        let number = |t: &Token<'_>| matches!(t.kind, Kind::Number | Kind::Operator) || t.is("(") || t.is(")");
        last.kind == Kind::Open
            && operator.kind == Kind::Operator
            && self.tokens.len() <= NEAR
            && self.tokens.iter().rev().skip(1).all(number)
            && self.tokens.iter().any(|t| t.kind == Kind::Number)
    }
}
