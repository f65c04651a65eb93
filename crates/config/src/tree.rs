//! The configuration tree: named nodes with at most one value each.

use crate::error::{ConfigError, Note, Place};
use crate::typed;
use crate::yaml::MAX_DEPTH;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::sync::Arc;

mod watch;

pub use watch::Reads;
use watch::Watch;

/// The name of the built-in configuration in messages. No file has this name.
pub(crate) const BUILT_IN: &str = "<built-in>";

/// Limit of the nodes in a configuration: all files together, with aliases expanded.
const MAX_NODES: usize = 1_000_000;
/// Limit of the bytes of names and values: all files together, with aliases expanded.
const MAX_BYTES: usize = 64 << 20;
/// A node with more children than this keeps an index of their names.
const INDEX_FROM: usize = 16;

/// A configuration: settings by name, in the order they were written.
///
/// Every value is text; [`Config::bool`], [`Config::size`] and the other typed getters convert it. A list is a node whose
/// children are called `0`, `1`, `2`…; the value of an item that is a mapping is its first key, and its keys are its
/// children: `outputs.0 = fast`, `outputs.0.fast.enabled = yes`.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) nodes: Vec<Data>,
    pub(crate) files: Vec<Arc<str>>,
    pub(crate) notes: Vec<Note>,
    bytes: usize,
    /// Observes reads, for tests.
    pub(crate) watch: Watch,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) name: Box<str>,
    pub(crate) value: Option<String>,
    pub(crate) children: Vec<u32>,
    index: Option<HashMap<Box<str>, u32>>,
    pub(crate) sequence: bool,
    /// The command line set the value, and no file changes it.
    pub(crate) set: bool,
    /// The node is on the path to such a value: a file may add children, but does not replace the node.
    pub(crate) pinned: bool,
    file: u32,
    line: u32,
    column: u32,
    /// Index of the parent node; for the top node, its own index.
    parent: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

impl Config {
    /// An empty configuration.
    pub fn new() -> Config {
        Config {
            nodes: vec![Data::default()],
            files: vec![Arc::from("--set")],
            notes: Vec::new(),
            bytes: 0,
            watch: Watch::Nobody,
        }
    }

    /// Notes from reading: included files, sections defined twice, old spellings.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The files that were read, including included ones, by the names that were given. The built-in configuration is not
    /// listed.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        // The first stands for the command line.
        self.files.iter().skip(1).map(|f| &**f).filter(|f| *f != BUILT_IN)
    }

    /// The top of the tree.
    pub fn root(&self) -> Node<'_> {
        Node { config: self, id: 0 }
    }

    /// The node called `path` (`a.b.c`).
    pub fn node(&self, path: &str) -> Option<Node<'_>> {
        self.root().node(path)
    }

    /// The node called `path`, which need not be a setting: what a user asks for.
    pub fn written(&self, path: &str) -> Option<Node<'_>> {
        path.split('.').try_fold(self.root(), |n, part| n.peek(part))
    }

    /// The value of the node called `path`; `None` if the node does not exist or has no value.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.root().get(path)
    }

    /// Whether `--set` gave the node called `path` its value.
    pub fn is_set(&self, path: &str) -> bool {
        self.written(path).is_some_and(|n| n.data().set)
    }

    /// `vars.address-groups`: names and values as written, references (`$HOME_NET`) not resolved.
    pub fn address_groups(&self) -> impl Iterator<Item = (&str, &str)> {
        self.group("vars.address-groups")
    }

    /// `vars.port-groups`: names and values as written, references not resolved.
    pub fn port_groups(&self) -> impl Iterator<Item = (&str, &str)> {
        self.group("vars.port-groups")
    }

    fn group(&self, path: &str) -> impl Iterator<Item = (&str, &str)> {
        self.node(path).into_iter().flat_map(|n| n.children()).filter_map(|n| Some((n.name(), n.value()?)))
    }

    /// Sets a value as `--set` does: `a.b.c=value`, with optional blanks around the `=`. Missing nodes are created. The value
    /// also overrides files that are read later.
    ///
    /// # Errors
    /// There is no `=`, a part of the name is empty, or the name has too many parts.
    pub fn set(&mut self, setting: &str) -> Result<(), ConfigError> {
        let place = Place::file("--set");
        let Some((name, value)) = setting.split_once('=') else {
            return Err(ConfigError::new(place, format!("'{setting}' has no '='; write --set name=value")));
        };
        let (name, value) = (name.trim(), value.trim_start());
        if name.split('.').any(str::is_empty) {
            return Err(ConfigError::new(
                place,
                format!("'{setting}': a part of the name is empty; write --set a.b.c=value"),
            ));
        }
        let at = At { file: 0, line: 0, column: 0 };
        let mut id = 0;
        let mut parts = name.split('.').enumerate().peekable();
        while let Some((depth, part)) = parts.next() {
            if depth >= MAX_DEPTH {
                return Err(ConfigError::new(place, format!("the name has more than {MAX_DEPTH} parts")));
            }
            id = self.child_or_new(id, part, at)?;
            self.node_mut(id).pinned = true;
            // An item of a list is named after its first setting, as in a file: `outputs.1.fast.enabled=yes` adds `- fast:`.
            if let Some((_, first)) = parts.peek()
                && part.bytes().all(|b| b.is_ascii_digit())
                && self.data(id).value.is_none()
            {
                self.set_value(id, Some(first), at)?;
            }
        }
        self.set_value(id, Some(value), at)?;
        self.node_mut(id).set = true;
        Ok(())
    }

    /// Writes every node as `name = value`, as `--dump-config` prints them; `(null)` for a node without a value.
    ///
    /// # Errors
    /// The error of writing to `out`.
    pub fn dump(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut path = String::new();
        self.dump_node(0, &mut path, out)
    }

    fn dump_node(&self, id: u32, path: &mut String, out: &mut dyn Write) -> io::Result<()> {
        // The recursion is at most as deep as the tree, whose depth is limited when it is built.
        for &child in &self.data(id).children {
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            let data = self.data(child);
            path.push_str(&data.name);
            writeln!(out, "{path} = {}", data.value.as_deref().unwrap_or("(null)"))?;
            self.dump_node(child, path, out)?;
            path.truncate(length);
        }
        Ok(())
    }

    /// The path of a node, with `#` for the items of lists.
    pub(crate) fn path_of(&self, mut id: u32) -> String {
        let mut parts = Vec::new();
        // At most as many steps as the tree is deep.
        while id != 0 {
            let data = self.data(id);
            parts.push(if self.data(data.parent).sequence { "#" } else { &data.name });
            id = data.parent;
        }
        parts.reverse();
        parts.join(".")
    }

    pub(crate) fn data(&self, id: u32) -> &Data {
        self.nodes.get(id as usize).unwrap_or(&self.nodes[0])
    }

    pub(crate) fn node_mut(&mut self, id: u32) -> &mut Data {
        let id = if (id as usize) < self.nodes.len() { id as usize } else { 0 };
        &mut self.nodes[id]
    }

    pub(crate) fn find(&self, parent: u32, name: &str) -> Option<u32> {
        let data = self.data(parent);
        match &data.index {
            Some(index) => index.get(name).copied(),
            None => data.children.iter().copied().find(|&c| *self.data(c).name == *name),
        }
    }

    pub(crate) fn place_of(&self, at: At) -> Place {
        let file = self.files.get(at.file as usize).cloned().unwrap_or_else(|| Arc::from("?"));
        Place { file, line: at.line, column: at.column }
    }

    /// The child called `name`, created if it does not exist.
    pub(crate) fn child_or_new(&mut self, parent: u32, name: &str, at: At) -> Result<u32, ConfigError> {
        if let Some(id) = self.find(parent, name) {
            return Ok(id);
        }
        if self.nodes.len() >= MAX_NODES {
            let reason = format!(
                "the configuration has more than {MAX_NODES} settings; are aliases (*name) nested in each other?"
            );
            return Err(ConfigError::new(self.place_of(at), reason));
        }
        self.count_bytes(name.len(), at)?;
        let id = self.nodes.len() as u32;
        let At { file, line, column } = at;
        self.nodes.push(Data { name: name.into(), file, line, column, parent, ..Data::default() });
        let indexed: Option<Vec<(Box<str>, u32)>> = {
            let data = self.node_mut(parent);
            data.children.push(id);
            match &mut data.index {
                Some(index) => {
                    index.insert(name.into(), id);
                    None
                }
                None if data.children.len() > INDEX_FROM => {
                    let children = data.children.clone();
                    Some(children.into_iter().map(|c| (self.data(c).name.clone(), c)).collect())
                }
                None => None,
            }
        };
        if let Some(pairs) = indexed {
            self.node_mut(parent).index = Some(pairs.into_iter().collect());
        }
        Ok(id)
    }

    /// Sets a node's value, unless the command line set it.
    pub(crate) fn set_value(&mut self, id: u32, value: Option<&str>, at: At) -> Result<(), ConfigError> {
        self.count_bytes(value.map_or(0, str::len), at)?;
        let from_command_line = at.file == 0;
        let data = self.node_mut(id);
        if !data.set || from_command_line {
            data.value = value.map(str::to_owned);
            (data.file, data.line, data.column) = (at.file, at.line, at.column);
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize, at: At) -> Result<(), ConfigError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            let reason = format!(
                "the configuration's values need more than {} MiB; are aliases (*name) nested in each other?",
                MAX_BYTES >> 20
            );
            return Err(ConfigError::new(self.place_of(at), reason));
        }
        Ok(())
    }

    /// Removes a node's value and children, because another definition follows.
    pub(crate) fn clear(&mut self, id: u32) {
        let data = self.node_mut(id);
        data.value = None;
        data.children.clear();
        data.index = None;
        data.sequence = false;
    }

    /// Moves these children after their siblings, in this order.
    pub(crate) fn move_last(&mut self, parent: u32, order: &[u32]) {
        let children = &mut self.node_mut(parent).children;
        if !children.ends_with(order) {
            let moved: HashSet<u32> = order.iter().copied().collect();
            children.retain(|c| !moved.contains(c));
            children.extend_from_slice(order);
        }
    }
}

/// A place as numbers: file number, line, column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A node of a [`Config`].
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(crate) config: &'a Config,
    pub(crate) id: u32,
}

impl<'a> Node<'a> {
    fn data(&self) -> &'a Data {
        self.config.data(self.id)
    }

    /// The last part of the node's name: `enabled` for `outputs.0.fast.enabled`, `0` for a list's first item.
    pub fn name(&self) -> &'a str {
        &self.data().name
    }

    /// The node's own value: a scalar, or for a list item that is a mapping its first key.
    pub fn value(&self) -> Option<&'a str> {
        self.data().value.as_deref()
    }

    /// The value, or the empty text.
    pub fn text(&self) -> &'a str {
        self.value().unwrap_or_default()
    }

    /// Whether the node was written as a list.
    pub fn is_sequence(&self) -> bool {
        self.data().sequence
    }

    /// The nodes below, in the order they were written.
    pub fn children(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let config = self.config;
        self.data().children.iter().map(move |&id| Node { config, id })
    }

    /// The values of a list of scalars, or the single value if the node is a scalar.
    pub fn values(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let alone = if self.data().children.is_empty() { self.value() } else { None };
        self.children().filter_map(|n| n.value()).chain(alone)
    }

    /// A list item such as `- fast: {enabled: yes}` or `- ftp`: its name (`fast`, `ftp`) and its settings, if any.
    pub fn entry(&self) -> (&'a str, Option<Node<'a>>) {
        let name = self.text();
        (name, self.peek(name))
    }

    /// The first item of this list whose setting `key` has this value, such as `interface: eth0` in `af-packet`.
    pub fn item(&self, key: &str, value: &str) -> Option<Node<'a>> {
        self.children().find(|n| n.get(key) == Some(value))
    }

    /// The child called `name` (one part, no dots).
    pub fn child(&self, name: &str) -> Option<Node<'a>> {
        self.config.asked(self.id, name);
        self.peek(name)
    }

    /// The node at `path` below this one.
    pub fn node(&self, path: &str) -> Option<Node<'a>> {
        self.config.asked(self.id, path);
        path.split('.').try_fold(*self, |n, part| n.peek(part))
    }

    /// The child called `name`, without notifying the observer.
    pub(crate) fn peek(&self, name: &str) -> Option<Node<'a>> {
        let id = self.config.find(self.id, name)?;
        Some(Node { config: self.config, id })
    }

    /// The value at `path` below this one.
    pub fn get(&self, path: &str) -> Option<&'a str> {
        self.node(path)?.value()
    }

    /// The node's place.
    pub fn place(&self) -> Place {
        let Data { file, line, column, .. } = *self.data();
        self.config.place_of(At { file, line, column })
    }

    /// An error at this node.
    pub fn error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::new(self.place(), reason)
    }

    fn typed<T>(&self, path: &str, read: fn(&str) -> Result<T, String>) -> Result<Option<T>, ConfigError> {
        let Some(node) = self.node(path) else { return Ok(None) };
        let Some(value) = node.value() else { return Ok(None) };
        read(value).map(Some).map_err(|reason| node.error(format!("{path}: {reason}")))
    }
}

/// The typed getters, for [`Config`] (paths from the top) and [`Node`] (paths from that node).
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $read:path;)*) => {
        impl Config {
            $($(#[$doc])*
            ///
            /// `None` if the node does not exist or has no value.
            ///
            /// # Errors
            /// The value is invalid for this type. The error has its place.
            pub fn $name(&self, path: &str) -> Result<Option<$type>, ConfigError> {
                self.root().typed(path, $read)
            })*
        }

        impl Node<'_> {
            $($(#[$doc])*
            ///
            /// `None` if the node does not exist or has no value.
            ///
            /// # Errors
            /// The value is invalid for this type. The error has its place.
            pub fn $name(&self, path: &str) -> Result<Option<$type>, ConfigError> {
                self.typed(path, $read)
            })*
        }
    };
}

getters! {
    /// The boolean at `path`: `yes`, `true`, `on`, `1` or `no`, `false`, `off`, `0`, in any case.
    bool: bool = typed::parse_bool;
    /// The whole number at `path`; `0x` begins a hexadecimal one.
    int: i64 = typed::parse_int;
    /// The number of bytes at `path`: `64mb`, `1 gb`, `2MiB`, `1.5kb`, or plain bytes. A kb has 1024 bytes.
    size: u64 = typed::parse_size;
    /// The number at `path`.
    float: f64 = typed::parse_float;
    /// The percentage at `path`, 0 to 100, with or without `%`.
    percent: f64 = typed::parse_percent;
}
