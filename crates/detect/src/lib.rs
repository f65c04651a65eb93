//! Rules compiled into groups, prefilters and ordered checks.

mod config;
mod group;
mod header;
pub mod inspect;
mod iponly;
pub mod iprep;
mod kind;
pub mod mpm;
mod order;
pub mod pcre;
mod tag;
mod threshold;

pub use config::{DetectConfig, PACKET_ALERT_MAX, PrefilterMode};
pub use kind::RuleKind;
