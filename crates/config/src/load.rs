//! Reads files into the tree: handles includes, old spellings and repeated definitions.

use crate::error::{ConfigError, Level, Note, Place};
use crate::tree::{At, Config};
use crate::yaml::{Document, Kind, MAX_DEPTH, MAX_FILE};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Limit of the depth of includes.
const MAX_INCLUDE_DEPTH: usize = 16;
/// Limit of the files of one configuration.
const MAX_FILES: usize = 256;

impl Config {
    /// Reads the file at `path` and its includes.
    ///
    /// # Errors
    /// The file (or one it includes) cannot be read, is not YAML, lacks the header or breaks a limit.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        config.read_file(path)?;
        Ok(config)
    }

    /// Reads a configuration as a run does: the values of the command line (`--set`, which override every file), the main
    /// file, and then the files of `--include`.
    ///
    /// # Errors
    /// As [`Config::load`] and [`Config::set`].
    pub fn load_with<P: AsRef<Path>>(
        main: impl AsRef<Path>,
        includes: &[P],
        sets: &[String],
    ) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        for setting in sets {
            config.set(setting)?;
        }
        config.read_file(main)?;
        for include in includes {
            config.read_file(include)?;
        }
        Ok(config)
    }

    /// Reads a configuration from text, called `name` in messages. Relative includes refer to the current directory.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_str(text: &str, name: &str) -> Result<Config, ConfigError> {
        let mut config = Config::new();
        config.read_str(text, name)?;
        Ok(config)
    }

    /// Reads another file into this configuration. Its settings replace those with the same name, except values of the
    /// command line.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn read_file(&mut self, path: impl AsRef<Path>) -> Result<(), ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let text = read(path).map_err(|reason| {
            ConfigError::new(Place::file(&name), format!("failed to open the configuration file: {reason}"))
        })?;
        let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let top = dir.clone();
        self.read_text(&text, Source { name: &name, dir, top, include_depth: 0 }, 0, 0)
    }

    /// Reads text into this configuration, as [`Config::read_file`] does a file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn read_str(&mut self, text: &str, name: &str) -> Result<(), ConfigError> {
        self.read_text(text, Source { name, dir: PathBuf::new(), top: PathBuf::new(), include_depth: 0 }, 0, 0)
    }

    /// Reads a file's text into the node `parent`, which is `depth` levels deep.
    fn read_text(&mut self, text: &str, source: Source<'_>, parent: u32, depth: usize) -> Result<(), ConfigError> {
        let Source { name, dir, top, include_depth } = source;
        if self.files.len() > MAX_FILES {
            return Err(ConfigError::new(
                Place::file(name),
                format!("more than {MAX_FILES} configuration files are included"),
            ));
        }
        let file: Arc<str> = Arc::from(name);
        self.files.push(file.clone());
        let doc = Document::parse(text, file)?;
        let number = (self.files.len() - 1) as u32;
        let mut loader = Loader { config: self, doc: &doc, file: number, dir, top, include_depth };
        let Some(root) = doc.root else { return Ok(()) };
        match doc.item(root).map(|i| &i.kind) {
            Some(Kind::Mapping(pairs)) => loader.mapping(pairs, parent, depth),
            Some(Kind::Sequence(items)) if include_depth > 0 => loader.sequence(items, parent, depth),
            Some(Kind::Scalar { text, plain: true }) if text.is_empty() => Ok(()),
            _ => Err(ConfigError::new(doc.place(root), "the file must hold settings as 'name: value'")),
        }
    }
}

/// The origin of a text.
struct Source<'a> {
    name: &'a str,
    /// The folder that its relative includes refer to.
    dir: PathBuf,
    /// The main file's folder, for includes that are not there: Suricata resolves all of them from there.
    top: PathBuf,
    include_depth: usize,
}

/// Reads a file's text. The error is the reason that it cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err("it is a directory".into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {} MiB", MAX_FILE >> 20));
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = e.as_bytes().get(..e.utf8_error().valid_up_to()).unwrap_or_default();
        format!("it is not UTF-8 text (line {})", before.iter().filter(|&&b| b == b'\n').count() + 1)
    })
}

/// Loads one file into the tree.
struct Loader<'c, 'd> {
    config: &'c mut Config,
    doc: &'d Document,
    file: u32,
    /// The folder that relative includes refer to.
    dir: PathBuf,
    /// The main file's folder.
    top: PathBuf,
    include_depth: usize,
}

impl<'d> Loader<'_, 'd> {
    fn at(&self, item: usize) -> At {
        let (line, column) = self.doc.item(item).map_or((0, 0), |i| (i.line, i.column));
        At { file: self.file, line, column }
    }

    fn fail<T>(&self, item: usize, reason: impl Into<String>) -> Result<T, ConfigError> {
        Err(ConfigError::new(self.doc.place(item), reason))
    }

    fn note(&mut self, level: Level, item: usize, message: String) {
        // A hostile file must not fill the memory with notes.
        if self.config.notes.len() < 1000 {
            self.config.notes.push(Note { level, place: self.doc.place(item), message });
        }
    }

    fn enter(&self, item: usize, depth: usize) -> Result<usize, ConfigError> {
        if depth >= MAX_DEPTH {
            self.fail(item, format!("nested deeper than {MAX_DEPTH} levels"))
        } else {
            Ok(depth + 1)
        }
    }

    fn mapping(&mut self, pairs: &[(usize, usize)], parent: u32, depth: usize) -> Result<(), ConfigError> {
        let mut included = false;
        for &(key, value) in pairs {
            let name = self.key(key)?;
            if name == "include" {
                if included {
                    let advice = "several 'include' settings at the same level: better write one list of files";
                    self.note(Level::Warning, key, advice.into());
                }
                included = true;
                self.include_setting(value, parent, depth)?;
            } else {
                self.setting(key, name, value, parent, depth)?;
            }
        }
        Ok(())
    }

    /// The text of a key.
    fn key(&self, key: usize) -> Result<&'d str, ConfigError> {
        let doc: &'d Document = self.doc;
        let text = match doc.item(key).map(|i| &i.kind) {
            Some(Kind::Scalar { text, .. }) => text,
            _ => return self.fail(key, "a setting's name must be plain text, not a list or a mapping"),
        };
        if text == "<<" {
            return self.fail(key, "YAML merge keys (<<) are not supported; use 'include' or repeat the settings");
        }
        if text.split('.').any(str::is_empty) {
            return self.fail(key, "a setting's name (or a part of it between dots) is empty");
        }
        Ok(text)
    }

    /// Handles one `name: value`. A name with dots is a path below `parent`.
    fn setting(&mut self, key: usize, name: &str, value: usize, parent: u32, depth: usize) -> Result<(), ConfigError> {
        let at = self.at(key);
        let mut depth = self.enter(key, depth)?;
        let dotted = name.contains('.');
        let id = if dotted {
            let mut id = parent;
            for part in name.split('.') {
                depth = self.enter(key, depth)?;
                id = self.config.child_or_new(id, part, at)?;
            }
            id
        } else {
            let name = self.spelling(key, name, parent);
            let known = self.config.find(parent, &name);
            if let Some(id) = known
                && !self.config.data(id).pinned
            {
                self.note(Level::Info, key, format!("'{name}' is defined again: this replaces the earlier definition"));
                self.config.clear(id);
            }
            self.config.child_or_new(parent, &name, at)?
        };
        let Some(item) = self.doc.item(value) else { return Ok(()) };
        match &item.kind {
            Kind::Scalar { text, .. } if item.include => self.include(value, text, id, depth),
            Kind::Scalar { text, plain } => {
                // If the command line set something at or below this node, the file's value is ignored.
                if self.config.data(id).pinned && !dotted {
                    return Ok(());
                }
                self.config.set_value(id, scalar(text, *plain), at)
            }
            Kind::Mapping(pairs) => self.mapping(pairs, id, depth),
            Kind::Sequence(items) => self.sequence(items, id, depth),
        }
    }

    /// Converts an old name with `_` to today's name with `-`. Names of variables stay as written.
    fn spelling(&mut self, key: usize, name: &str, parent: u32) -> String {
        let variables = matches!(&*self.config.data(parent).name, "address-groups" | "port-groups");
        if variables || !name.contains('_') {
            return name.to_owned();
        }
        let today = name.replace('_', "-");
        self.note(Level::Warning, key, format!("{name} is deprecated. Please use {today}"));
        today
    }

    fn sequence(&mut self, items: &[usize], parent: u32, depth: usize) -> Result<(), ConfigError> {
        self.config.node_mut(parent).sequence = true;
        let mut order = Vec::with_capacity(items.len());
        for &index in items {
            let depth = self.enter(index, depth)?;
            let Some(item) = self.doc.item(index) else { continue };
            let at = self.at(index);
            if let Kind::Scalar { text, .. } = &item.kind
                && text.is_empty()
            {
                // Suricata skips empty items and does not count them.
                continue;
            }
            let id = self.config.child_or_new(parent, &order.len().to_string(), at)?;
            order.push(id);
            match &item.kind {
                Kind::Scalar { text, .. } if item.include => self.include(index, text, id, depth)?,
                Kind::Scalar { text, plain } => self.config.set_value(id, scalar(text, *plain), at)?,
                Kind::Sequence(inner) => self.sequence(inner, id, depth)?,
                Kind::Mapping(pairs) => {
                    if let Some(&(first, _)) = pairs.first() {
                        let name = self.key(first)?.replace('_', "-");
                        self.config.set_value(id, Some(&name), at)?;
                    }
                    self.mapping(pairs, id, depth)?;
                }
            }
        }
        self.config.move_last(parent, &order);
        Ok(())
    }

    /// `include: file` or `include: [file, file]`.
    fn include_setting(&mut self, value: usize, parent: u32, depth: usize) -> Result<(), ConfigError> {
        match self.doc.item(value).map(|i| &i.kind) {
            Some(Kind::Scalar { text, .. }) => self.include(value, text, parent, depth),
            Some(Kind::Sequence(items)) => items.iter().try_for_each(|&i| match self.doc.item(i).map(|i| &i.kind) {
                Some(Kind::Scalar { text, .. }) => self.include(i, text, parent, depth),
                _ => self.fail(i, "'include' takes a file name or a list of file names"),
            }),
            _ => self.fail(value, "'include' takes a file name or a list of file names, not a mapping"),
        }
    }

    fn include(&mut self, item: usize, file: &str, parent: u32, depth: usize) -> Result<(), ConfigError> {
        if file.is_empty() {
            return self.fail(item, "'include' needs the name of a file");
        }
        if self.include_depth >= MAX_INCLUDE_DEPTH {
            return self.fail(
                item,
                format!("files include each other deeper than {MAX_INCLUDE_DEPTH} levels; does one include itself?"),
            );
        }
        let mut path = self.dir.join(file);
        if !path.exists() && self.top.join(file).exists() {
            path = self.top.join(file);
        }
        let name = path.display().to_string();
        let text = match read(&path) {
            Ok(text) => text,
            Err(reason) => {
                return self.fail(item, format!("failed to open the configuration include file {name}: {reason}"));
            }
        };
        self.note(Level::Info, item, format!("including {name}"));
        let dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
        let source = Source { name: &name, dir, top: self.top.clone(), include_depth: self.include_depth + 1 };
        self.config.read_text(&text, source, parent, depth)
    }
}

/// A scalar's value; `None` for an unquoted null or an unquoted empty text.
fn scalar(text: &str, plain: bool) -> Option<&str> {
    (!(plain && matches!(text, "" | "~" | "null" | "Null" | "NULL"))).then_some(text)
}
