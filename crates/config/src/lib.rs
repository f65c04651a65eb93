//! A Suricata-compatible YAML file and command line as typed settings.
//!
//! The file first: [`Config::load`] reads YAML (`%YAML 1.1`, `---`) and the files it includes into a tree of named
//! nodes. Every value stays text until a getter reads it ([`Config::bool`], [`Config::size`]…), since the same text
//! means different things to different readers (`yes` in one place is `auto`'s neighbour in another). The tree's names
//! are Suricata's, so that `--set outputs.1.eve-log.enabled=no` and [`Config::dump`] (`--dump-config`) speak the same
//! language: list items are called `0`, `1`, `2`…, `a.b.c: x` is the same as nested mappings, `foo_bar` is an old
//! spelling of `foo-bar` (not in `vars`), a second definition of a section replaces the first, and what the command
//! line set wins over every file.
//!
//! Files may be hostile or merely broken: size, depth, number of settings and what aliases expand to are limited, and
//! every error has its file, line and column.
//!
//! [`keys`] is the table of all settings: allowed values, default, and whether each acts. [`Config::unknown_keys`] names settings
//! that are not in it and probably misspelt, [`Config::ignored_keys`] those without effect, and `docs/configuration.md` is
//! generated from it. A new setting needs a row there: in debug builds reading a setting without a row is an error
//! ([`Config::check_reads`]).
//!
//! Then the command line: [`Cli::parse`] turns arguments into a [`Command`], for the most part
//! [`Command::Run`] with one field for each of Suricata's options, so that the engine can say which it cannot serve.
//! One table (`options.rs`) holds the options for the parser and for [`help`]. [`Config::load_with`] reads the
//! configuration of `-c`, `--include` and `--set`, [`Config::built_in`] the one without `-c`.
//!
//! Differences from Suricata 7, as observed: a list inside a list keeps its items (there they
//! are mixed with the outer ones), aliases work, an include that includes itself is an error (there a crash), and a
//! document whose top is not a mapping is an error.

pub mod built_in;
mod cli;
mod error;
pub mod keys;
mod known;
mod load;
mod options;
mod plain;
mod tree;
pub mod typed;
mod watch;
mod yaml;

pub use cli::{Capture, Checksums, Cli, CliError, Command, Keywords, Own, RuleFiles, RunOptions, Strict};
pub use error::{ConfigError, Level, Note, Place};
pub use known::Ignored;
pub use options::{COMMANDS, Unserved, help, rows as option_rows, unserved};
pub use plain::{Value, Yaml};
pub use tree::{Config, Node};
pub use watch::Reads;
