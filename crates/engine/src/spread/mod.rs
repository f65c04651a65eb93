//! Code that several run modes need to divide packets among workers: it finds the flow of a frame, lists frames in memory that
//! threads share, and lets an idle worker search payloads for a busy one.

pub(crate) mod ahead;
pub(crate) mod hosts;
pub(crate) mod piece;
pub(crate) mod steer;
