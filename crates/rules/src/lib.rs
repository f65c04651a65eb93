//! The rule language: parses text to a checked tree and reports every error with file, line and column.
//!
//! [`Loader`] joins continuation lines and passes each rule to the lexer, which splits it into header and options
//! without knowing any keyword. The rule's `requires` is checked first, since the rest may be invalid for this version.
//! Then the header's addresses and ports become sorted ranges (each distinct text is parsed once). Each option goes
//! through the keyword registry (`keywords`, one file per family) to a builder, which remembers the selected buffer and
//! the last keyword. Finally `validate` checks the rule as a whole.
//!
//! A rule ends in one of five ways: in [`Loaded::rules`]; in [`Loaded::set_aside`] if it is valid but needs protocols or
//! features missing from [`Context::available`]; in [`Loaded::skipped`] if its requirements are not met; in
//! [`Loaded::errors`]; or replaced by a higher revision. Errors have the messages and module names that Suricata logs
//! for the same fault, because people and tests search for them.
//!
//! Buffers have their canonical dotted names. Payload content without a sticky buffer is in the buffer `payload`, and
//! old modifiers (`http_uri`) use the buffer of their sticky successor (`http.uri`).
//!
//! Limits: a rule has at most [`RULE_BYTES_MAX`] bytes, a loader accepts at most [`Context::max_rules`] rules, and lists
//! nest at most 64 deep and expand to at most 131,072 ranges. No input causes deeper recursion than that.

mod address;
pub mod ast;
mod buffer;
mod builder;
mod classification;
mod context;
mod error;
mod event_names;
mod firewall;
mod flowbits;
mod forms;
pub mod info;
mod keywords;
mod lexer;
mod loader;
mod number;
mod port;
mod protocol;
mod ranges;
mod size;
mod thresholds;
mod validate;

pub use address::{negate, overlap};
pub use classification::{Reference, parse_classification, parse_references};
pub use context::{Context, FEATURES, StrictKeywords, Version};
pub use error::{ConfigProblem, Message, RuleError, RuleWarning, Severity};
pub use event_names::{APP_LAYER as APP_LAYER_EVENTS, DECODER as DECODER_EVENTS, STREAM as STREAM_EVENTS};
pub use keywords::{FileBuffer, PacketBuffer, is_known, metadata, names as keyword_names, references, render_content};
pub use loader::{Loaded, Loader, RULE_BYTES_MAX, Skipped, load_bytes, load_str};
pub use thresholds::parse_thresholds;
