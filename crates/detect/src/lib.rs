//! Rules compiled into groups, prefilters and ordered checks.

pub mod buffer;
pub mod checks;
mod config;
mod detect;
pub mod effect;
pub mod fast_pattern;
mod group;
mod header;
pub mod hostvars;
mod input;
pub mod inspect;
mod iponly;
pub mod iprep;
mod kind;
pub mod mpm;
mod order;
pub mod pcre;
mod pending;
mod rule;
mod state;
mod tag;
#[cfg(test)]
mod tests;
mod threshold;

pub use config::{DetectConfig, PACKET_ALERT_MAX, PrefilterMode};
pub use detect::{CompileReport, Detect, Environment};
pub use group::GroupCounts;
pub use input::{Alert, DropReason, Input, Reject, StreamChunk, Verdict, VerdictAction};
pub use kind::RuleKind;
pub use state::{DetectCounters, DetectState};
pub mod transform;
