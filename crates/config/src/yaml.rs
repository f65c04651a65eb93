//! Parses YAML text to a tree of nodes with their places.
//!
//! The YAML library delivers events. This module stores the nodes in an arena, so that an alias is only another reference to
//! the same node. Aliases are expanded when the configuration tree is built, which limits their number.

use crate::error::{ConfigError, Place};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// Limit of a file's size in bytes. Suricata's default file has 90 kB.
pub(crate) const MAX_FILE: u64 = 16 << 20;
/// Limit of the YAML nodes in one file.
const MAX_NODES: usize = 1_000_000;
/// Limit of the nesting of mappings and sequences.
pub(crate) const MAX_DEPTH: usize = 128;

/// The content of a YAML node.
pub(crate) enum Kind {
    /// A scalar, and whether it was written without quotes.
    Scalar { text: String, plain: bool },
    /// The items' indexes.
    Sequence(Vec<usize>),
    /// The keys' and values' indexes.
    Mapping(Vec<(usize, usize)>),
}

/// One YAML node.
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// It has the tag `!include`.
    pub(crate) include: bool,
}

/// One parsed file.
pub(crate) struct Document {
    pub(crate) file: Arc<str>,
    pub(crate) items: Vec<Item>,
    /// Index of the top node; `None` in an empty file.
    pub(crate) root: Option<usize>,
}

/// A collection that is still open.
enum Open {
    Sequence(Vec<usize>),
    Mapping(Vec<(usize, usize)>, Option<usize>),
}

struct Frame {
    open: Open,
    anchor: usize,
    line: u32,
    column: u32,
    include: bool,
}

impl Document {
    pub(crate) fn item(&self, index: usize) -> Option<&Item> {
        self.items.get(index)
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        let (line, column) = self.item(index).map_or((0, 0), |i| (i.line, i.column));
        Place { file: self.file.clone(), line, column }
    }

    /// Parses `text`, called `file` in messages.
    pub(crate) fn parse(text: &str, file: Arc<str>) -> Result<Document, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut doc = Document { file, items: Vec::new(), root: None };
        if text.len() as u64 > MAX_FILE {
            return Err(doc.fail(0, 0, format!("the file is larger than {} MiB", MAX_FILE >> 20)));
        }
        if !doc.check_header(text)? {
            return Ok(doc);
        }
        doc.read(text)?;
        Ok(doc)
    }

    /// Parses `text`, which needs no header.
    pub(crate) fn parse_plain(text: &str, file: Arc<str>) -> Result<Document, ConfigError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut doc = Document { file, items: Vec::new(), root: None };
        doc.read(text)?;
        Ok(doc)
    }

    fn read(&mut self, text: &str) -> Result<(), ConfigError> {
        let doc = self;
        let mut stack: Vec<Frame> = Vec::new();
        let mut anchors: HashMap<usize, usize> = HashMap::new();
        let mut documents = 0;
        for next in Parser::new_from_str(text) {
            let (event, span) = match next {
                Ok(e) => e,
                Err(e) => {
                    let (line, column) = place(e.marker());
                    return Err(doc.fail(line, column, format!("this is not valid YAML: {}", e.info())));
                }
            };
            let (line, column) = place(&span.start);
            if doc.items.len() >= MAX_NODES {
                return Err(doc.fail(line, column, format!("the file has more than {MAX_NODES} YAML nodes")));
            }
            match event {
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(doc.fail(
                            line,
                            column,
                            "a second YAML document begins here; a configuration file holds one, other files are included with 'include'",
                        ));
                    }
                }
                Event::Alias(id) => match anchors.get(&id) {
                    Some(&index) => doc.place_value(&mut stack, index),
                    None => return Err(doc.fail(line, column, "this alias refers to a node that contains it")),
                },
                Event::Scalar(value, style, anchor, tag) => {
                    let kind = Kind::Scalar { text: value.into_owned(), plain: style == ScalarStyle::Plain };
                    doc.items.push(Item { kind, line, column, include: is_include(&tag) });
                    doc.close(&mut stack, &mut anchors, anchor);
                }
                Event::SequenceStart(anchor, tag) => {
                    let open = Open::Sequence(Vec::new());
                    stack.push(Frame { open, anchor, line, column, include: is_include(&tag) });
                }
                Event::MappingStart(anchor, tag) => {
                    let open = Open::Mapping(Vec::new(), None);
                    stack.push(Frame { open, anchor, line, column, include: is_include(&tag) });
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    if let Some(Frame { open, anchor, line, column, include }) = stack.pop() {
                        let kind = match open {
                            Open::Sequence(items) => Kind::Sequence(items),
                            Open::Mapping(pairs, _) => Kind::Mapping(pairs),
                        };
                        doc.items.push(Item { kind, line, column, include });
                        doc.close(&mut stack, &mut anchors, anchor);
                    }
                }
            }
            if stack.len() > MAX_DEPTH {
                return Err(doc.fail(line, column, format!("nested deeper than {MAX_DEPTH} levels")));
            }
        }
        Ok(())
    }

    /// Completes the newest item: records its anchor, and adds it to the collection that encloses it.
    fn close(&mut self, stack: &mut [Frame], anchors: &mut HashMap<usize, usize>, anchor: usize) {
        let index = self.items.len().saturating_sub(1);
        if anchor != 0 {
            anchors.insert(anchor, index);
        }
        self.place_value(stack, index);
    }

    fn place_value(&mut self, stack: &mut [Frame], index: usize) {
        match stack.last_mut().map(|f| &mut f.open) {
            None => self.root = self.root.or(Some(index)),
            Some(Open::Sequence(items)) => items.push(index),
            Some(Open::Mapping(pairs, key)) => match key.take() {
                None => *key = Some(index),
                Some(k) => pairs.push((k, index)),
            },
        }
    }

    /// Checks the header: like Suricata, requires `%YAML 1.1` and `---` before anything except comments. Returns `false` if
    /// the file is empty.
    fn check_header(&self, text: &str) -> Result<bool, ConfigError> {
        let mut version = false;
        for (line, number) in text.lines().zip(1u32..) {
            let line = line.trim_end();
            if line.trim_start().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            if let Some(rest) = line.strip_prefix("%YAML") {
                match rest.split('#').next().map(str::trim) {
                    Some("1.1") => version = true,
                    _ => {
                        return Err(self.fail(
                            number,
                            1,
                            "Invalid YAML version. Must be 1.1: begin the file with '%YAML 1.1'",
                        ));
                    }
                }
            } else if line.starts_with('%') {
                continue;
            } else if version && (line == "---" || line.starts_with("--- ")) {
                return Ok(true);
            } else {
                return Err(self.fail(
                    number,
                    1,
                    "Invalid configuration file. The configuration file must begin with the following two lines: %YAML 1.1 and ---",
                ));
            }
        }
        if version {
            return Err(self.fail(0, 0, "the line '---' is missing after '%YAML 1.1'"));
        }
        Ok(false)
    }

    pub(crate) fn fail(&self, line: u32, column: u32, reason: impl Into<String>) -> ConfigError {
        ConfigError::new(Place { file: self.file.clone(), line, column }, reason)
    }
}

fn is_include(tag: &Option<Cow<'_, Tag>>) -> bool {
    tag.as_ref().is_some_and(|t| t.handle == "!" && t.suffix == "include")
}

fn place(m: &Marker) -> (u32, u32) {
    (m.line().min(u32::MAX as usize) as u32, m.col().saturating_add(1).min(u32::MAX as usize) as u32)
}
