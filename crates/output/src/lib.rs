//! Events as EVE JSON and the other formats.

pub mod community_id;
pub mod eve;
pub mod event;
pub mod fast;
pub mod json;
pub mod log;
pub mod names;
pub mod outputs;
pub mod pcaplog;
pub mod settings;
pub mod sinks;
pub mod stats_log;
pub mod time;
pub use outputs::{OutputError, OutputSpec, Outputs};
