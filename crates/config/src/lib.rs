//! Reads a Suricata-compatible YAML file and command line, and offers their settings with types.
//!
//! [`Config::load`] reads YAML (`%YAML 1.1`, `---`) and the included files into a tree of named nodes. Every value stays text
//! until a getter reads it ([`Config::bool`], [`Config::size`]…), because the meaning of a text depends on the setting: `yes`
//! may be a boolean or one of several words. The tree has Suricata's names, which `--set outputs.1.eve-log.enabled=no` and
//! [`Config::dump`] (`--dump-config`) use too. List items are called `0`, `1`, `2`…, and `a.b.c: x` is the same as nested
//! mappings. `foo_bar` is an old spelling of `foo-bar`, except in `vars`. A second definition of a section replaces the
//! first. A value of the command line overrides every file.
//!
//! Files may be hostile or damaged. Limits apply to size, depth, the number of settings and the expansion of aliases. Every
//! error has its file, line and column.
//!
//! [`keys`] is the table of all settings: allowed values, default, and effect. [`Config::unknown_keys`] returns the settings
//! that are not in the table and are probably misspelt, and [`Config::ignored_keys`] those without effect.
//! `docs/configuration.md` is generated from the table. A new setting needs a row there: in debug builds, reading a setting
//! without a row is an error ([`Config::check_reads`]).
//!
//! [`Cli::parse`] converts the arguments to a [`Command`], usually [`Command::Run`]. That has a field for each of Suricata's
//! options, so that the engine can name those that it does not support. One table (`options.rs`) has the options for the
//! parser and for [`help`]. [`Config::load_with`] reads the configuration of `-c`, `--include` and `--set`, and
//! [`Config::built_in`] the one of a run without `-c`.
//!
//! Observed differences from Suricata 7: a list inside a list keeps its items (Suricata mixes them with the outer ones),
//! aliases work, a file that includes itself is an error (Suricata crashes), and a document whose top is not a mapping is an
//! error.

pub mod built_in;
mod cli;
mod error;
pub mod keys;
mod known;
mod load;
mod options;
mod plain;
pub mod reference;
mod run_options;
mod tree;
pub mod typed;
mod yaml;

pub use cli::{Cli, CliError, Command, Keywords, Own};
pub use error::{ConfigError, Level, Note, Place};
pub use known::Ignored;
pub use options::{COMMANDS, Unserved, help, rows as option_rows, unserved};
pub use plain::{Value, Yaml};
pub use run_options::{Capture, Checksums, RuleFiles, RunOptions, Strict};
pub use tree::{Config, Node, Reads};
