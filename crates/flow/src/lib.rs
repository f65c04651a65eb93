//! The flow table, timeouts and per-flow variables.

mod core;

pub use crate::core::{Direction, FlowAction, FlowCore, FlowState, FlowVars};
