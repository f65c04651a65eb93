//! JSON dataset files: one member of each object is the data, and alerts show the rest.

use std::io::BufRead;

use margay_rules::ast::{SetFormat, SetKind, SetOptions};
use serde_json::Value;

use super::file::{self, Problems, too_large};
use super::table::{NO_VALUE, Table};

/// Most bytes of an object that alerts show.
const CONTEXT_MAX: usize = 16 * 1024;

/// The value at a dotted path.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |v, name| v.get(name))
}

/// Removes the value at a dotted path.
fn remove(value: &mut Value, path: &str) {
    let (parent, last) = match path.rsplit_once('.') {
        Some((parent, last)) => (parent.split('.').try_fold(value, |v, name| v.get_mut(name)), last),
        None => (Some(value), path),
    };
    if let Some(object) = parent.and_then(Value::as_object_mut) {
        // Keeps the order of the other members.
        object.shift_remove(last);
    }
}

/// Reads the objects of a file into a table.
struct Reader<'a> {
    name: &'a str,
    kind: SetKind,
    shown: &'a str,
    options: &'a SetOptions,
    value_key: &'a str,
    table: &'a mut Table,
    problems: &'a mut Problems,
    data: Vec<u8>,
    /// Number of objects that have the value.
    found: u64,
}

impl Reader<'_> {
    fn bad(&mut self, place: &str, text: &str) -> Result<(), String> {
        self.problems.bad(format!("dataset {}: {text} in {}{place}", self.name, self.shown))
    }

    /// Adds an object; `place` gives its place for messages.
    fn object(&mut self, mut object: Value, place: &dyn Fn() -> String) -> Result<(), String> {
        // An object without the value is not an entry.
        let Some(value) = at(&object, self.value_key) else { return Ok(()) };
        let Some(text) = value.as_str() else {
            let text = format!("failed to get value because it is not a string: {}", self.value_key);
            return self.bad(&place(), &text);
        };
        if let Err(what) = file::plain(self.kind, text.as_bytes(), &mut self.data) {
            let shown: String = text.chars().take(64).collect();
            return self.bad(&place(), &format!("\"{shown}\" is not {what}"));
        }
        self.found += 1;
        if self.options.context_key.is_none() {
            self.table.insert(&self.data, NO_VALUE);
            return Ok(());
        }
        if self.options.remove_key {
            remove(&mut object, self.value_key);
        }
        let context = serde_json::to_vec(&object).map_err(|e| e.to_string())?;
        if context.len() > CONTEXT_MAX {
            return self.bad(&place(), &format!("an object of more than {CONTEXT_MAX} bytes"));
        }
        self.table.insert_with(&self.data, context);
        Ok(())
    }
}

/// Reads a file, which messages call `shown`, into `table`.
///
/// # Errors
/// If the file cannot be used.
pub(super) fn load(
    name: &str,
    (kind, options): (SetKind, &SetOptions),
    file: &mut dyn BufRead,
    shown: &str,
    table: &mut Table,
    memcap: u64,
    problems: &mut Problems,
) -> Result<(), String> {
    let value_key = options.value_key.as_deref().unwrap_or_default();
    let mut reader = Reader { name, kind, shown, options, value_key, table, problems, data: Vec::new(), found: 0 };
    if options.format == SetFormat::Json {
        let document: Value = serde_json::from_reader(&mut *file)
            .map_err(|e| format!("dataset {name}: {shown} is not a JSON document: {e}"))?;
        let array = match &options.array_key {
            Some(key) => match at(&document, key) {
                Some(a) => a,
                None => return Err(format!("dataset {name}: there is no \"{key}\" in {shown}")),
            },
            None => &document,
        };
        let Some(array) = array.as_array() else {
            return Err(format!(
                "dataset {name}: {shown} has no array of objects{}",
                match &options.array_key {
                    Some(key) => format!(" at \"{key}\""),
                    None => " at its top; array_key says where it is".to_owned(),
                }
            ));
        };
        for (n, object) in array.iter().enumerate() {
            reader.object(object.clone(), &|| format!(", element {}", n + 1))?;
            if n % 1024 == 0 && reader.table.memory() > memcap {
                return Err(too_large(name, shown, memcap));
            }
        }
    } else {
        let mut line = Vec::new();
        for number in 1u64.. {
            line.clear();
            if file.read_until(b'\n', &mut line).map_err(|e| format!("cannot read {shown}: {e}"))? == 0 {
                break;
            }
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            let place = || format!(", line {number}");
            match serde_json::from_slice::<Value>(text) {
                Ok(object) => reader.object(object, &place)?,
                Err(e) => reader.bad(&place(), &format!("no JSON: {e}"))?,
            }
            if number % 1024 == 0 && reader.table.memory() > memcap {
                return Err(too_large(name, shown, memcap));
            }
        }
    }
    let found = reader.found;
    if table.memory() > memcap {
        return Err(too_large(name, shown, memcap));
    }
    if found == 0 {
        return Err(format!("dataset {name}: no object in {shown} has a value at \"{value_key}\""));
    }
    Ok(())
}
