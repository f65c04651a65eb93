//! Describes the language for tools that list and explain it: keywords, buffers, and a rule's options as written.
//!
//! This module parses no values; [`crate::Loader`] does that.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::buffer::{Buffer, Direction};
use crate::keywords::{self, Does, Keyword, Takes};
use crate::lexer;

/// A buffer that rules can inspect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferInfo {
    /// Canonical name: `http.uri`.
    pub name: &'static str,
    /// Suricata's name in messages and reports: `http_uri`.
    pub internal: &'static str,
    /// The buffer's content.
    pub description: &'static str,
    /// Application protocols with this buffer, by their names in rules; empty for packet buffers.
    pub protocols: &'static [&'static str],
    /// Whether it exists from client to server.
    pub to_server: bool,
    /// Whether it exists from server to client.
    pub to_client: bool,
    /// Whether one transaction may have several values.
    pub multi: bool,
    /// Whether it looks alike in nearly every transaction, so that a literal in it selects little.
    pub is_common: bool,
}

impl BufferInfo {
    const fn of(b: &'static Buffer) -> BufferInfo {
        BufferInfo {
            name: b.name,
            internal: b.internal,
            description: b.description,
            protocols: b.protocols,
            to_server: !matches!(b.direction, Direction::ToClient),
            to_client: !matches!(b.direction, Direction::ToServer),
            multi: b.multi,
            is_common: b.is_common,
        }
    }
}

/// The kind of a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordKind {
    /// Selects a buffer.
    StickyBuffer,
    /// Moves the previous content to a buffer.
    Modifier,
    /// Transforms the selected buffer.
    Transform,
    /// Any other keyword.
    Plain,
}

/// A keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeywordInfo {
    /// Canonical name.
    pub name: &'static str,
    /// Aliases.
    pub aliases: &'static [&'static str],
    /// The kind.
    pub kind: KeywordKind,
    /// The buffer that it selects or moves to.
    pub buffer: Option<BufferInfo>,
    /// Application protocols of the keyword, by their names in rules; empty for any.
    pub protocols: &'static [&'static str],
    /// Whether it takes a value: yes, no, or optional (`None`).
    pub takes_value: Option<bool>,
    /// Whether the value may be negated with `!`.
    pub negatable: bool,
    /// What it does, as written beside the keyword; empty if that follows from its name.
    pub about: &'static str,
    /// Page of Suricata's manual, relative to the manual's root.
    pub page: &'static str,
}

impl KeywordInfo {
    fn of(k: &'static Keyword, page: &'static str) -> KeywordInfo {
        let (kind, buffer, protocols): (_, _, &'static [&'static str]) = match k.does {
            Does::Select(b) => (KeywordKind::StickyBuffer, Some(BufferInfo::of(b)), b.protocols),
            Does::Modify(b) => (KeywordKind::Modifier, Some(BufferInfo::of(b)), b.protocols),
            Does::Number(p, _) => (KeywordKind::Plain, None, p),
            Does::Parse(_) if keywords::is_transform(k) => (KeywordKind::Transform, None, &[]),
            Does::Parse(_) => (KeywordKind::Plain, buffer(k.names.first().copied().unwrap_or_default()), &[]),
        };
        let kind = if kind == KeywordKind::Plain && buffer.is_some() { KeywordKind::StickyBuffer } else { kind };
        let (name, aliases) = k.names.split_first().map_or(("", k.names), |(n, a)| (*n, a));
        KeywordInfo {
            name,
            aliases,
            kind,
            buffer,
            protocols,
            takes_value: match k.takes {
                Takes::Nothing => Some(false),
                Takes::Value => Some(true),
                Takes::Maybe => None,
            },
            negatable: k.negatable,
            about: k.about,
            page,
        }
    }
}

static BUFFERS: LazyLock<HashMap<&'static str, &'static Buffer>> = LazyLock::new(|| {
    keywords::all()
        .filter_map(|(k, _)| match k.does {
            Does::Select(b) | Does::Modify(b) => Some((b.name, b)),
            _ => None,
        })
        .collect()
});

/// The buffer with a canonical name, as in [`crate::ast::BufferChecks::buffer`]; `None` for the payload and for frames.
pub fn buffer(name: &str) -> Option<BufferInfo> {
    BUFFERS.get(name).map(|b| BufferInfo::of(b))
}

impl KeywordInfo {
    /// A one-line description. A keyword's own file has the text; for buffers and fields of protocols it follows from their
    /// names.
    pub fn description(&self) -> String {
        match (self.kind, self.buffer, self.protocols.first()) {
            (KeywordKind::Transform, ..) => format!("transform of the selected buffer: {}", self.about),
            _ if !self.about.is_empty() => self.about.to_owned(),
            (KeywordKind::StickyBuffer, Some(b), _) => format!("sticky buffer: {}", b.description),
            (KeywordKind::Modifier, Some(b), _) => format!("the content before it is looked for in {}", b.name),
            (_, _, Some(protocol)) => {
                let field = self.name.split_once(['.', '_']).map_or(self.name, |n| n.1).replace(['.', '_'], " ");
                format!("{}: {field}", protocol.to_ascii_uppercase())
            }
            _ => String::new(),
        }
    }
}

/// All keywords, sorted by name.
pub fn all_keywords() -> Vec<KeywordInfo> {
    let mut list: Vec<_> = keywords::all().map(|(k, page)| KeywordInfo::of(k, page)).collect();
    list.sort_unstable_by_key(|k| k.name);
    list
}

/// The keyword with a name or alias.
pub fn keyword(name: &str) -> Option<KeywordInfo> {
    let found = keywords::find(name)?;
    keywords::all().find(|(k, _)| std::ptr::eq(*k, found)).map(|(k, page)| KeywordInfo::of(k, page))
}

/// The canonical name of the keyword that a check comes from. `xbits` for two hosts is called `hostbits`.
pub fn keyword_of_check(c: &crate::ast::Check) -> &str {
    keywords::of_check(c)
}

/// The keyword of a bit that has this owner.
pub const fn keyword_of_bit(track: crate::ast::XBitTrack) -> &'static str {
    keywords::of_bit(track)
}

/// The buffer that `urilen` measures.
pub fn uri_buffer(raw: bool) -> &'static str {
    keywords::uri_buffer(raw)
}

/// Names of application protocols that a rule's header may use.
pub fn header_protocols() -> impl Iterator<Item = &'static str> {
    crate::protocol::app_names()
}

/// An option of a rule, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenOption {
    /// The canonical name of its keyword.
    pub keyword: &'static str,
    /// The kind of the keyword.
    pub kind: KeywordKind,
    /// The buffer that it selects or moves to.
    pub buffer: Option<BufferInfo>,
    /// The value, including quotes.
    pub value: Option<String>,
}

/// The options of a rule's text, in order. Unknown keywords are skipped.
pub fn options(text: &str) -> Vec<WrittenOption> {
    let Ok(parts) = lexer::split(text.as_bytes()) else { return Vec::new() };
    let named = |o: &lexer::RawOption<'_>| {
        let k = keywords::find(&String::from_utf8_lossy(o.name))?;
        let info = KeywordInfo::of(k, "");
        let value = o.value.map(|v| String::from_utf8_lossy(v).into_owned());
        Some(WrittenOption { keyword: info.name, kind: info.kind, buffer: info.buffer, value })
    };
    parts.options.iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_and_buffers() {
        let uri = keyword("http.uri").unwrap();
        assert_eq!((uri.kind, uri.takes_value), (KeywordKind::StickyBuffer, Some(false)));
        let b = uri.buffer.unwrap();
        assert_eq!((b.internal, b.to_server, b.to_client), ("http_uri", true, false));
        assert_eq!(keyword("flags").unwrap().name, "tcp.flags");
        assert_eq!(keyword("to_md5").unwrap().kind, KeywordKind::Transform);
        assert_eq!(keyword("file_data").unwrap().kind, KeywordKind::StickyBuffer);
        assert_eq!(keyword("http_uri").unwrap().kind, KeywordKind::Modifier);
        assert!(keyword("nonsense").is_none() && buffer("payload").is_none());
        let all = all_keywords();
        assert!(all.len() > 200 && all.windows(2).all(|w| w[0].name < w[1].name));
    }

    #[test]
    fn options_as_written() {
        let o = options("alert tcp any any -> any any (flags:S; content:\"a\\;b\"; http_uri; sid:1;)");
        let names: Vec<_> = o.iter().map(|o| o.keyword).collect();
        assert_eq!(names, ["tcp.flags", "content", "http_uri", "sid"]);
        assert_eq!(o[1].value.as_deref(), Some("\"a\\;b\""));
        assert!(options("no rule").is_empty());
    }

    #[test]
    fn every_keyword_says_what_it_does() {
        for k in all_keywords() {
            let text = k.description();
            assert!(!text.is_empty(), "{} has no description", k.name);
            assert!(!text.contains(';'), "{}: a semicolon divides the columns of lists", k.name);
        }
    }
}
