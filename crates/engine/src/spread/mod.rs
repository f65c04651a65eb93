//! What the run modes share that divide packets among workers: which flow a frame belongs to, lists of frames in buffers that
//! threads share, and searches that an idle worker makes for a busy one.

pub(crate) mod ahead;
pub(crate) mod hosts;
pub(crate) mod piece;
pub(crate) mod steer;
