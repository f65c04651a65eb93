//! Reads any YAML file as a tree of values with their places. It is for files that are not engine configurations (profiles,
//! experiments), so that their readers can name the faulty line.

use crate::error::{ConfigError, Place};
use crate::yaml::{Document, Kind};
use std::path::Path;
use std::sync::Arc;

/// Limit of the values in a file, with aliases expanded.
const MAX_VALUES: usize = 200_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub struct Yaml {
    /// The place where it begins.
    pub place: Place,
    /// Its content.
    pub value: Value,
}

/// The content of a [`Yaml`] value.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing, or an unquoted `null` or `~`.
    Null,
    /// Text as written, quoted or not; the reader decides whether it is a number.
    Text(String),
    /// A list.
    List(Vec<Yaml>),
    /// Names and values, in the order written.
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    /// Reads a file. No `%YAML` line is needed.
    ///
    /// # Errors
    /// The file cannot be read, is not UTF-8, is not YAML, has two documents, defines a name twice in a mapping or
    /// breaks a limit.
    pub fn load(path: impl AsRef<Path>) -> Result<Yaml, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = crate::load::read(path)
            .map_err(|reason| ConfigError::new(Place::file(&name), format!("cannot be read: {reason}")))?;
        Yaml::parse(&text, &name)
    }

    /// Reads text, called `name` in messages.
    ///
    /// # Errors
    /// As [`Yaml::load`].
    pub fn parse(text: &str, name: &str) -> Result<Yaml, ConfigError> {
        let doc = Document::parse_plain(text, Arc::from(name))?;
        let Some(root) = doc.root else { return Ok(Yaml { place: Place::file(name), value: Value::Null }) };
        value(&doc, root, &mut 0)
    }

    /// An error at this value's place.
    pub fn error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::new(self.place.clone(), reason)
    }

    /// The value called `name` in a mapping; `None` if this is not a mapping or has no such name.
    pub fn get(&self, name: &str) -> Option<&Yaml> {
        self.map().iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Names and values; empty if this is not a mapping.
    pub fn map(&self) -> &[(String, Yaml)] {
        match &self.value {
            Value::Map(pairs) => pairs,
            _ => &[],
        }
    }

    /// The text of a scalar; `None` for anything else.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

// The recursion is at most as deep as the document, whose depth the parser limits.
fn value(doc: &Document, index: usize, count: &mut usize) -> Result<Yaml, ConfigError> {
    let place = doc.place(index);
    *count += 1;
    if *count > MAX_VALUES {
        let reason = format!("the file has more than {MAX_VALUES} values; are aliases (*name) nested in each other?");
        return Err(ConfigError::new(place, reason));
    }
    let value = match doc.item(index).map(|i| &i.kind) {
        None => Value::Null,
        Some(Kind::Scalar { text, plain: true }) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL") => {
            Value::Null
        }
        Some(Kind::Scalar { text, .. }) => Value::Text(text.clone()),
        Some(Kind::Sequence(items)) => {
            Value::List(items.iter().map(|&i| value(doc, i, count)).collect::<Result<_, _>>()?)
        }
        Some(Kind::Mapping(pairs)) => {
            let mut map: Vec<(String, Yaml)> = Vec::with_capacity(pairs.len());
            let mut seen = std::collections::HashSet::new();
            for &(key, item) in pairs {
                let Some(Kind::Scalar { text, .. }) = doc.item(key).map(|i| &i.kind) else {
                    return Err(ConfigError::new(doc.place(key), "a name must be plain text, not a list or a mapping"));
                };
                if !seen.insert(text.as_str()) {
                    return Err(ConfigError::new(doc.place(key), format!("'{text}' is written twice here")));
                }
                map.push((text.clone(), value(doc, item, count)?));
            }
            Value::Map(map)
        }
    };
    Ok(Yaml { place, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_places() {
        let yaml = Yaml::parse("- a : 1\n  b : [x, ~]\n", "f").unwrap();
        let Value::List(items) = &yaml.value else { panic!("{yaml:?}") };
        let b = items[0].get("b").unwrap();
        assert_eq!((b.place.line, b.place.column), (2, 7));
        assert_eq!(b.error("no").to_string(), "f:2:7: no");
        let Value::List(list) = &b.value else { panic!("{b:?}") };
        assert_eq!(list[0].text(), Some("x"));
        assert!(matches!(list[1].value, Value::Null));
        assert_eq!(items[0].get("a").and_then(Yaml::text), Some("1"));
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        assert_eq!(Yaml::parse("a: 1\na: 2\n", "f").unwrap_err().to_string(), "f:2:1: 'a' is written twice here");
        assert!(Yaml::parse("a: [1\n", "f").unwrap_err().to_string().starts_with("f:"));
        assert!(matches!(Yaml::parse("", "f").unwrap().value, Value::Null));
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x]\n");
        for i in 1..8 {
            let p = i - 1;
            bomb += &format!("a{i}: &a{i} [*a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}, *a{p}]\n");
        }
        assert!(Yaml::parse(&bomb, "f").unwrap_err().to_string().contains("more than 200000 values"));
    }
}
