//! TCP sessions and reassembly.
//!
//! # How it works
//!
//! [`StreamEngine::process`] takes a packet of a flow into the flow's [`TcpSession`]: the state machine checks whether the
//! packet belongs there (handshakes, windows, acknowledgments, timestamps, resets; `states.rs`, `established.rs`), notes
//! what is wrong as a [`StreamEvent`], takes its data into the direction's [`StreamBuffer`] and says in an [`Outcome`] what
//! the engine has to do next.
//!
//! A buffer holds blocks of bytes without holes. Data in order is appended to the one block there is: that is all most
//! packets need, and the one copy that is made of their bytes. What came early waits in blocks of its own. Where segments
//! overlap with different data, the receiver's operating system decides which counts ([`OsPolicy`]), until a reader had
//! it; inline, what came first stays and later packets are rewritten ([`TcpSession::rewrite`]).
//!
//! Two readers follow each direction, at their own pace: the application layer ([`TcpSession::app_data`]) and raw
//! inspection ([`TcpSession::raw_chunk`]). Both see what the other side has acknowledged; inline, and when a flow ends
//! (`all`), what there is. Data that was acknowledged but never seen, with data after it, is a gap: readers step over
//! it. What both are past is freed, but for the little that raw inspection keeps as context.
//!
//! Offsets count from the first byte after the SYN. Urgent bytes that are taken out of the stream (RFC 6093) do not
//! count.
//!
//! What is an event and what is let pass follows Suricata, by observation: captures and generated sessions with
//! mutations were run through both and compared packet by packet (`examples/stats.rs` prints our side).
//!
//! # Limits
//!
//! | what | limit | where it is reached |
//! | --- | --- | --- |
//! | sessions | `stream.memcap` | no session: `tcp.ssn_memcap_drop`, [`Exception::SessionMemcap`] |
//! | stream data | `stream.reassembly.memcap` | the segment's data is left out: `tcp.segment_memcap_drop`, [`Exception::ReassemblyMemcap`] |
//! | bytes a direction | `stream.reassembly.depth` | the rest is not followed: `tcp.stream_depth_reached`, `reassembly_depth_reached` |
//! | blocks a direction | 256, and `max-regions` far apart | the segment's data is left out: `reassembly_insert_limit` |
//! | pieces a direction | 2,048 | neighbours count as one segment for overlaps |
//! | SYNs, SYN/ACKs kept | `max-syn-queued`, `max-synack-queued` | `3whs_syn_flood`, `3whs_synack_flood` |
//! | urgent bytes a direction | `urgent.oob-limit` | `reassembly_urgent_oob_limit_reached`, `oob-limit-policy` |

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
pub use session::{AppData, SideState, StreamChunk, TcpSession, TcpState};
