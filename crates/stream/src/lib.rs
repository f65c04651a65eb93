//! TCP sessions and reassembly.

mod buffer;
mod config;
mod counters;
mod engine;
mod established;
mod event;
mod policy;
mod seq;
mod session;
mod states;

pub use buffer::{Inserted, StreamBuffer};
pub use config::{StreamConfig, UrgentPolicy};
pub use counters::StreamCounters;
pub use engine::{Exception, Outcome, StreamEngine};
pub use event::{StreamEvent, StreamEvents};
pub use policy::{HostOsPolicies, OsPolicy};
pub use session::{AppData, StreamChunk, TcpSession, TcpState};
