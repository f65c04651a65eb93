//! Events as EVE JSON and the other formats.

pub mod community_id;
pub mod eve;
pub mod event;
pub mod json;
pub mod log;
pub mod names;
pub mod settings;
pub mod sinks;
pub mod time;
