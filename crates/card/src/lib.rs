//! A simulator of a network card that detects, after LineSnort (study 2).
//!
//! [`trace::Trace`] has the work of each packet (bytes, flow, flush points, literals found, verifications, URIs).
//! [`design::Design`] describes a card, and [`cost::Costs`] has the cost of each step. [`model::simulate`] replays the trace through
//! the card and returns the result. Time is a whole number of picoseconds. The same design, costs, trace and seed give the same
//! result.

pub mod area;
pub mod cache;
pub mod cost;
pub mod design;
pub mod dram;
pub mod mix;
pub mod model;
mod read;
pub mod record;
pub mod search;
pub mod synthetic;
pub mod trace;

/// Why a file cannot be used, as one sentence with file and line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Bad(pub String);

impl From<margay_config::ConfigError> for Bad {
    fn from(error: margay_config::ConfigError) -> Bad {
        Bad(error.to_string())
    }
}
