//! `customformat`: a line's text with places for values.

use crate::time::split_at_conversion;

/// A part of a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Text as it is.
    Text(String),
    /// The time, in a format of strftime(3).
    Time(String),
    /// The time's microseconds.
    Micros,
    /// A value by its letter, with its argument, such as a header's name.
    Value(char, Option<String>),
}

/// The format of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Format(Vec<Part>);

impl Format {
    /// Reads a format: text, `%` and a letter, or `%{argument}` and a letter. `%%` is a percent sign.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Format, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, conversion, after)) = split_at_conversion(rest) {
            push(&mut parts, before);
            rest = after;
            let (mut letter, mut arg) = (conversion.chars().nth(1), None);
            if letter == Some('{') {
                let Some((name, after)) = rest.split_once('}').filter(|(name, _)| !name.is_empty()) else {
                    return Err(format!("customformat: \"%{{{rest}\" needs a text in braces"));
                };
                arg = Some(name.to_owned());
                letter = after.chars().next();
                rest = after.get(letter.map_or(0, char::len_utf8)..).unwrap_or_default();
            }
            match letter {
                Some('%') => push(&mut parts, "%"),
                Some('t') => parts.push(Part::Time(arg.unwrap_or_else(|| "%D-%H:%M:%S".into()))),
                Some('z') => parts.push(Part::Micros),
                other => parts.push(Part::Value(other.unwrap_or_default(), arg)),
            }
        }
        push(&mut parts, rest);
        Ok(Format(parts))
    }

    /// Its parts, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }
}

fn push(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_need_a_text_and_an_end() {
        for text in ["%{", "a %{un b", "%{}i"] {
            assert!(Format::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Format::parse("a%%b %{X-Y}i%").unwrap().parts(),
            [Part::Text("a%b ".into()), Part::Value('i', Some("X-Y".into())), Part::Value('\0', None)]
        );
    }
}
