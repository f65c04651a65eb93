//! The rule language: text to a checked tree, every error with file, line and column.
//!
//! How a rule walks through: [`Loader`] joins continuation lines and hands each rule to the lexer, which takes the header
//! and the options apart without knowing any keyword. What the rule `requires` is answered first, since the rest may make
//! no sense to this version. Then the header's addresses and ports become sorted ranges (each text is worked out once),
//! and each option goes through the keyword registry (`keywords`, one file a family) into a builder that remembers which
//! buffer is selected and what came last. At the end `validate` asks what only the whole rule can tell.
//!
//! A rule ends in one of five ways: in [`Loaded::rules`]; in [`Loaded::set_aside`], when it is right but needs protocols
//! or features that [`Context::available`] does not name; in [`Loaded::skipped`], when what it requires is not met; in
//! [`Loaded::errors`]; or replaced by a higher revision of itself. Errors carry the messages that Suricata logs for the
//! same fault, with the same module names, because people and tests search for them.
//!
//! Buffers go by their canonical dotted names; payload content without a sticky buffer is in the buffer `payload`, and
//! old modifiers (`http_uri`) end in the buffer of their sticky successor (`http.uri`).
//!
//! Limits: a rule has at most [`RULE_BYTES_MAX`] bytes, a loader takes at most [`Context::max_rules`] rules, lists nest at
//! most 64 deep and expand to at most 131,072 ranges. Nothing recurses deeper than that on any input.

mod address;
pub mod ast;
mod builder;
mod classification;
mod context;
mod descriptions;
mod error;
mod event_names;
mod firewall;
mod flowbits;
pub mod info;
mod keywords;
mod lexer;
mod loader;
mod number;
mod port;
mod protocol;
mod ranges;
mod thresholds;
mod validate;

pub use address::{negate, overlap};
pub use classification::{Reference, parse_classification, parse_references};
pub use context::{Context, FEATURES, StrictKeywords, Version};
pub use error::{ConfigProblem, Message, RuleError, RuleWarning, Severity};
pub use event_names::{APP_LAYER as APP_LAYER_EVENTS, DECODER as DECODER_EVENTS, STREAM as STREAM_EVENTS};
pub use keywords::{is_known, metadata, names as keyword_names, references, render_content};
pub use loader::{Loaded, Loader, RULE_BYTES_MAX, Skipped, load_bytes, load_str};
pub use thresholds::parse_thresholds;
