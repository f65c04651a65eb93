//! Rules compiled into groups, prefilters and ordered checks.

mod config;
mod header;
mod iponly;
pub mod iprep;
mod kind;
pub mod mpm;
mod order;
mod tag;
mod threshold;

pub use config::{DetectConfig, PACKET_ALERT_MAX, PrefilterMode};
pub use kind::RuleKind;
