//! Builds the datasets that the configuration and the rules declare.

use std::collections::{HashMap, HashSet};
use std::io::BufRead;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use margay_rules::ast::{BufferCheck, Rule, SetCommand, SetFormat, SetKind, SetOptions};

use super::file::{self, Problems};
use super::json;
use super::table::Table;
use super::{DataSet, Datasets, SHARDS};

/// The section `datasets:`, and where its files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetsConfig {
    /// Folder for `save` and `state` files.
    pub data_dir: PathBuf,
    /// `datasets.defaults.memcap`, in bytes.
    pub memcap: u64,
    /// `datasets.defaults.hashsize`.
    pub hashsize: u64,
    /// `datasets.limits.single-hashsize`: largest hashsize of one dataset.
    pub single_hashsize: u64,
    /// `datasets.limits.total-hashsizes`: largest sum of hashsizes.
    pub total_hashsizes: u64,
    /// `datasets.rules.allow-absolute-filenames`: whether rules may write outside the data directory.
    pub allow_absolute: bool,
    /// `datasets.rules.allow-write`: whether rules may cause files to be written at all.
    pub allow_write: bool,
    /// Whether an invalid entry makes its dataset unusable.
    pub strict: bool,
}

impl Default for DatasetsConfig {
    fn default() -> Self {
        DatasetsConfig {
            data_dir: PathBuf::from("."),
            memcap: 512 << 20,
            hashsize: 4096,
            single_hashsize: 262_144,
            total_hashsizes: 67_108_864,
            allow_absolute: false,
            allow_write: true,
            strict: false,
        }
    }
}

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetLevel {
    /// A dataset was refused.
    Error,
    /// An entry was skipped.
    Warning,
    /// Information about the effect of settings.
    Config,
}

/// A message for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetMessage {
    /// The severity.
    pub level: SetLevel,
    /// The module that logs the message.
    pub module: &'static str,
    /// The text.
    pub text: String,
}

/// Collects datasets and loads them.
#[derive(Debug)]
pub struct DatasetsBuilder<'p> {
    config: DatasetsConfig,
    previous: Option<&'p Datasets>,
    sets: Datasets,
    index: HashMap<String, usize>,
    /// Datasets that failed, after their error was reported.
    failed: HashSet<String>,
    hashsizes: u64,
    messages: Vec<SetMessage>,
}

/// The files of a dataset.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Files {
    load: PathBuf,
    save: PathBuf,
}

impl<'p> DatasetsBuilder<'p> {
    /// A builder without datasets. Those of `previous` that rules may change are kept under their names.
    pub fn new(config: DatasetsConfig, previous: Option<&'p Datasets>) -> Self {
        DatasetsBuilder {
            config,
            previous,
            sets: Datasets::default(),
            index: HashMap::new(),
            failed: HashSet::new(),
            hashsizes: 0,
            messages: Vec::new(),
        }
    }

    /// Messages since the last call.
    pub fn messages(&mut self) -> Vec<SetMessage> {
        std::mem::take(&mut self.messages)
    }

    /// The finished datasets.
    pub fn finish(self) -> Datasets {
        self.sets
    }

    /// Adds a dataset from the configuration; its files may be anywhere. Returns whether it can be used.
    pub fn configured(&mut self, name: &str, options: &SetOptions) -> bool {
        let dir = &self.config.data_dir;
        // Files to read may also be in the working directory.
        let load = |n: &String| match dir.join(n) {
            path if path.exists() => path,
            _ => PathBuf::from(n),
        };
        let state = options.state.as_ref().map(|n| dir.join(n));
        let files = Files {
            load: state.clone().or_else(|| options.load.as_ref().map(load)).unwrap_or_default(),
            save: state.or_else(|| options.save.as_ref().map(|n| dir.join(n))).unwrap_or_default(),
        };
        self.define(name, options, files, true)
    }

    /// Adds the datasets of a rule. Returns whether all can be used; if not, messages give the reason.
    pub fn rule(&mut self, rule: &Rule) -> bool {
        rule.buffers.iter().all(|b| self.checks(rule, &b.checks))
    }

    fn checks(&mut self, rule: &Rule, checks: &[BufferCheck]) -> bool {
        checks.iter().all(|c| match c {
            BufferCheck::Dataset(d) => {
                self.of_rule(rule, &d.name, &d.options)
                    && (matches!(d.command, SetCommand::IsSet | SetCommand::IsNotSet) || self.is_plain(&d.name))
            }
            BufferCheck::DataRep(d) => self.of_rule(rule, &d.name, &d.options) && self.is_plain(&d.name),
            BufferCheck::Base64 { data, .. } => self.checks(rule, data),
            _ => true,
        })
    }

    /// Rejects operations that JSON datasets do not support.
    fn is_plain(&mut self, name: &str) -> bool {
        let json = self.index.get(name).and_then(|&i| self.sets.sets.get(i)).is_some_and(|s| s.json);
        if json {
            self.error("detect-dataset", format!("dataset {name} is in JSON: only isset and isnotset are possible"));
        }
        !json
    }

    fn of_rule(&mut self, rule: &Rule, name: &str, options: &SetOptions) -> bool {
        const M: &str = "detect-dataset";
        if options.save.is_some() || options.state.is_some() {
            if !self.config.allow_write {
                self.error(M, "Rules containing save/state datasets have been disabled".into());
                return false;
            }
            for file in [&options.save, &options.state].into_iter().flatten() {
                if !self.may_write(file) {
                    return false;
                }
            }
        }
        let state = options.state.as_ref().map(|n| self.config.data_dir.join(n));
        let load = |n: &String| {
            let beside = Path::new(&*rule.place.file).parent().unwrap_or(Path::new("")).join(n);
            match self.config.data_dir.join(n) {
                // The file that an earlier run saved.
                path if options.save.is_some() && !beside.exists() && path.exists() => path,
                _ => beside,
            }
        };
        let files = Files {
            load: state.clone().or_else(|| options.load.as_ref().map(load)).unwrap_or_default(),
            save: state.or_else(|| options.save.as_ref().map(|n| self.config.data_dir.join(n))).unwrap_or_default(),
        };
        let ok = self.define(name, options, files, false);
        if !ok {
            self.error(M, format!("failed to set up dataset '{name}'."));
        }
        ok
    }

    /// Whether a rule may have `file` written.
    fn may_write(&mut self, file: &str) -> bool {
        const M: &str = "detect-dataset";
        let path = Path::new(file);
        if path.is_absolute() {
            if !self.config.allow_absolute {
                self.error(M, format!("Absolute paths not allowed: {file}"));
                return false;
            }
            let text = format!("Allowing absolute filename for dataset rule: {file}");
            self.messages.push(SetMessage { level: SetLevel::Config, module: M, text });
        } else if !self.config.allow_absolute && path.components().any(|c| c == Component::ParentDir) {
            self.error(M, format!("Directory traversals not allowed: {file}"));
            return false;
        }
        true
    }

    fn error(&mut self, module: &'static str, text: String) {
        self.messages.push(SetMessage { level: SetLevel::Error, module, text });
    }

    /// Creates a dataset, or compares the declaration with the existing one.
    fn define(&mut self, name: &str, options: &SetOptions, files: Files, configured: bool) -> bool {
        const M: &str = "datasets";
        if let Some(set) = self.index.get(name).and_then(|&i| self.sets.sets.get(i)) {
            let is_given = |p: &Path| p != Path::new("");
            let mismatch = if options.kind.is_some_and(|k| k != set.kind) {
                format!("dataset {name} already exists and is of type {}", set.kind.name())
            } else if is_given(&files.load) && files.load != set.load {
                format!("dataset {name} load mismatch: {} != {}", set.load.display(), files.load.display())
            } else if is_given(&files.save) && files.save != set.save {
                format!("dataset {name} save mismatch: {} != {}", set.save.display(), files.save.display())
            } else {
                return true;
            };
            self.error(M, mismatch);
            return false;
        }
        if self.failed.contains(name) {
            return false;
        }
        match self.make(name, options, files, configured) {
            Ok(set) => {
                self.index.insert(name.to_owned(), self.sets.sets.len());
                self.sets.sets.push(set);
                true
            }
            Err(text) => {
                self.failed.insert(name.to_owned());
                // Suricata's log has this error under another module.
                self.error(if text.starts_with(file::BAD_BASE64) { "debug" } else { M }, text);
                false
            }
        }
    }

    fn make(
        &mut self,
        name: &str,
        options: &SetOptions,
        files: Files,
        configured: bool,
    ) -> Result<Arc<DataSet>, String> {
        let Some(kind) = options.kind else {
            return Err(format!("dataset {name} not defined: it needs a type where it is named first"));
        };
        let hashsize = options.hashsize.unwrap_or(self.config.hashsize.min(self.config.single_hashsize));
        let total = self.hashsizes.saturating_add(hashsize);
        if hashsize > self.config.single_hashsize {
            return Err(format!(
                "hashsize {hashsize} in dataset '{name}' exceeds configured 'single-hashsize' limit ({})",
                self.config.single_hashsize
            ));
        }
        if total > self.config.total_hashsizes {
            return Err(format!(
                "hashsize {hashsize} in dataset '{name}' exceeds configured 'total-hashsizes' limit ({}, in use {})",
                self.config.total_hashsizes, self.hashsizes
            ));
        }
        let json = options.format != SetFormat::Csv;
        if json && (options.value_key.is_none() || files.save != Path::new("")) {
            return Err(format!("dataset {name}: files in JSON need value_key, and cannot be saved"));
        }
        self.hashsizes = total;
        if let Some(old) = self.previous.and_then(|p| p.get(name))
            && old.is_dynamic()
            && (old.kind, &old.load, &old.save) == (kind, &files.load, &files.save)
        {
            return Ok(old.clone());
        }
        // Otherwise the loss shows only when the run ends.
        if let Some(folder) = files.save.parent().filter(|f| *f != Path::new("") && !f.is_dir()) {
            return Err(format!(
                "dataset {name}: cannot write {}: there is no folder {}; create it, or set data-dir",
                files.save.display(),
                folder.display()
            ));
        }
        // As in Suricata, 0 is no limit.
        let memcap = Some(options.memcap.unwrap_or(self.config.memcap)).filter(|m| *m > 0).unwrap_or(u64::MAX);
        // A missing state file will be written at the end.
        let nothing = files.load == Path::new("") || (files.load == files.save && !files.load.exists());
        let (table, warnings) = if nothing {
            (Table::new(0), Vec::new())
        } else {
            let mut file = file::open(&files.load, memcap)?;
            let shown = files.load.display().to_string();
            let read = read(name, kind, options, &mut file, &shown, (hashsize as usize, memcap, self.config.strict));
            if file.get_ref().limit() == 0 {
                return Err(file::too_large(name, &shown, memcap));
            }
            read?
        };
        let warnings = warnings.into_iter();
        self.messages.extend(warnings.map(|text| SetMessage { level: SetLevel::Warning, module: "datasets", text }));
        Ok(Arc::new(DataSet {
            name: name.to_owned(),
            kind,
            load: files.load,
            save: files.save,
            configured,
            json,
            context_key: options.context_key.as_deref().filter(|_| json).map(Arc::from),
            used: AtomicU64::new(table.memory()),
            loaded: table,
            count: AtomicUsize::new(0),
            added: (0..SHARDS).map(|_| RwLock::default()).collect(),
            memcap,
            changes: AtomicBool::new(false),
            contexts: RwLock::default(),
            with_context: AtomicUsize::new(0),
        }))
    }
}

/// Reads a file, which messages call `shown`: returns the table and messages about skipped entries. `entries` is the
/// expected number of entries. More than `memcap` bytes are an error. With `strict`, so is an invalid entry, which is
/// otherwise skipped.
fn read(
    name: &str,
    kind: SetKind,
    options: &SetOptions,
    file: &mut dyn BufRead,
    shown: &str,
    (entries, memcap, strict): (usize, u64, bool),
) -> Result<(Table, Vec<String>), String> {
    let mut table = Table::new(entries);
    let mut problems = Problems::new(strict);
    match options.format {
        SetFormat::Csv => file::load(name, kind, file, shown, &mut table, memcap, &mut problems)?,
        _ => json::load(name, (kind, options), file, shown, &mut table, memcap, &mut problems)?,
    }
    Ok((table, problems.finish(name)))
}

/// Reads a file's text as the dataset that `options` describe. Returns the entries in file format, and messages about
/// skipped entries.
///
/// # Errors
/// If the file cannot be used.
pub fn read_text(options: &SetOptions, text: &[u8], memcap: u64) -> Result<(Vec<u8>, Vec<String>), String> {
    let kind = options.kind.ok_or("a type is needed")?;
    let mut reader = text;
    let (table, warnings) = read("set", kind, options, &mut reader, "text", (16, memcap, false))?;
    let mut out = Vec::new();
    for data in table.live() {
        file::encode(kind, data, &mut out);
        out.push(b'\n');
    }
    Ok((out, warnings))
}
