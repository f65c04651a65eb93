//! Judges what a request's value means to the program that receives it.
//!
//! Attacks on applications hide in encodings that the application decodes, and in endless equivalent spellings. This
//! crate splits a request into values ([`args`]), decodes them ([`decode`]) and judges them by the grammar of the
//! language that an attack would use: SQL ([`sqli`]), HTML with JavaScript ([`xss`]), shells ([`shell`]). All work is
//! bounded, and linear in the value's length.

pub mod args;
pub mod body;
pub mod decode;
mod json;
mod multipart;
pub mod shell;
pub mod sqli;
mod text;
mod words;
pub mod xss;

/// A judgement of a value, which rules use as a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Judge {
    /// [`sqli`]
    Sqli,
    /// [`xss`]
    Xss,
    /// [`shell`]
    Shell,
}

impl Judge {
    /// All judgements.
    pub const ALL: [Judge; 3] = [Judge::Sqli, Judge::Xss, Judge::Shell];

    /// The keyword in rules.
    pub const fn name(self) -> &'static str {
        match self {
            Judge::Sqli => "sqli",
            Judge::Xss => "xss",
            Judge::Shell => "shell_injection",
        }
    }

    /// Whether a value in canonical form ([`decode::canonical`]) is an attack of this kind.
    pub fn holds(self, value: &[u8]) -> bool {
        match self {
            // No interpreter accepts such a value as text.
            Judge::Sqli | Judge::Shell if is_binary(value) => false,
            Judge::Sqli => sqli::is_injection(value),
            Judge::Xss => xss::is_injection(value),
            Judge::Shell => shell::is_injection(value),
        }
    }
}

/// Whether more than four bytes, and more than one in twenty, are control characters.
fn is_binary(value: &[u8]) -> bool {
    let is_control = |b: u8| ((b < 0x20) & (b.wrapping_sub(b'\t') >= 5)) | (b == 0x7f);
    // Most values have none, which is cheaper to find out than their number.
    if !decode::has(value, is_control) {
        return false;
    }
    let controls = value.iter().filter(|b| is_control(**b)).count();
    controls > 4 && controls * 20 > value.len()
}
