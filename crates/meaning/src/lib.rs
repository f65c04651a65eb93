//! What a value of a request means to the program that it is meant for.
//!
//! Attacks on applications hide in encodings that the application undoes, and in spellings without end that mean the same. Here a
//! value is taken apart ([`args`]), decoded ([`decode`]) and judged by the grammar of the language that it would have to be a piece of:
//! SQL ([`sqli`]), HTML with JavaScript ([`xss`]), shells ([`shell`]). All of it is bounded, and linear in the length of the value.

pub mod args;
pub mod decode;
mod json;
pub mod shell;
pub mod sqli;
mod text;
mod words;
pub mod xss;

/// A judgement of a value, as a keyword of a rule.
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
    /// All of them.
    pub const ALL: [Judge; 3] = [Judge::Sqli, Judge::Xss, Judge::Shell];

    /// Its name in rules.
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
            // No interpreter takes such a value for text.
            Judge::Sqli | Judge::Shell if is_binary(value) => false,
            Judge::Sqli => sqli::is_injection(value),
            Judge::Xss => xss::is_injection(value),
            Judge::Shell => shell::is_injection(value),
        }
    }
}

/// Whether more than every twentieth byte is a control character, and more than four are.
fn is_binary(value: &[u8]) -> bool {
    let controls = value.iter().filter(|&&b| b < 0x20 && !matches!(b, b'\t'..=b'\r') || b == 0x7f).count();
    controls > 4 && controls * 20 > value.len()
}
