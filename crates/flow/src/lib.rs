//! The flow table, timeouts and per-flow variables.
