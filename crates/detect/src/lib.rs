//! Rules compiled into groups, prefilters and ordered checks.

mod config;
mod detect;
mod group;
mod header;
mod input;
pub mod buffer;
pub mod checks;
pub mod effect;
pub mod fast_pattern;
pub mod hostvars;
pub mod inspect;
mod iponly;
pub mod iprep;
mod kind;
pub mod mpm;
mod order;
pub mod pcre;
mod rule;
mod state;
mod tag;
#[cfg(test)]
mod tests;
mod threshold;
pub mod transform;

pub use config::{DetectConfig, PACKET_ALERT_MAX, PrefilterMode};
pub use detect::{CompileReport, Detect, Environment};
pub use group::GroupCounts;
pub use input::{Alert, DropReason, Input, Reject, StreamChunk, Verdict, VerdictAction};
pub use kind::RuleKind;
pub use state::{DetectCounters, DetectState};
