//! TCP sessions and reassembly.
//!
//! # How it works
//!
//! [`StreamEngine::process`] processes a packet with its flow's [`TcpSession`]. The state machine checks whether the
//! packet belongs to the session (handshake, windows, acknowledgments, timestamps, resets; `states.rs`, `handshake.rs`,
//! `established.rs`), records anomalies as [`StreamEvent`]s and inserts the data into the direction's [`StreamBuffer`].
//! The [`Outcome`] tells the engine what to do next.
//!
//! A buffer works like a receiver's queues (`buffer/`). In-order data is appended to a single run: most packets need
//! nothing else, and this is the only copy of their bytes. Early data waits in a tree, whatever its amount. If early
//! segments overlap with different data, the receiver's operating system decides which bytes count ([`OsPolicy`]); data
//! in order or acknowledged stays. Inline, the first data stays and later packets are rewritten
//! ([`TcpSession::rewrite`]).
//!
//! # What a host accepts
//!
//! The engine must have the same data as the host behind it. If every host discards a segment, so does the engine.
//! Sometimes only some hosts do, or the result depends on facts that a sensor cannot see (acknowledged but unseen data,
//! an old acknowledgment, a timestamp that may have been recorded, a lower TTL than before, a window probe). Then the
//! data is kept, but data from a segment without such a doubt replaces it (`doubt.rs`). Inline, such a segment is
//! dropped if no host misses it.
//!
//! Only accepted data counts as seen. A session picked up midstream begins where its receiver is, which the receiver's
//! first acknowledgment shows: data from before the first data seen is read too. Inline, no uninspected data passes: a
//! segment that repeats data which can no longer be compared passes without its payload.
//!
//! An established connection that timed out is remembered. When its next packet arrives, it continues with its sequence
//! numbers (`resume.rs`), even if midstream pickup is off.
//!
//! Two readers read each direction at their own pace: the application layer ([`TcpSession::app_data`]) and raw
//! inspection ([`TcpSession::raw_chunk`]). Both see acknowledged data; inline, and when a flow ends (`all`), they see
//! all data. A gap is data that was acknowledged but never seen, with later data after it: readers skip it. Data that
//! both have read is freed, except for a little context for raw inspection.
//!
//! Offsets count from the first byte after the SYN. Urgent bytes that are removed from the stream (RFC 6093) do not
//! count.
//!
//! Events and accepted packets follow Suricata, by observation: both engines processed captures and generated sessions
//! with mutations, and the results were compared packet by packet (`examples/stats.rs` prints Margay's).
//!
//! # Limits
//!
//! | limit on | setting | when it is reached |
//! | --- | --- | --- |
//! | sessions | `stream.memcap` | no session: `tcp.ssn_memcap_drop`, [`Exception::SessionMemcap`] |
//! | stream data | `stream.reassembly.memcap` | the segment's data is skipped: `tcp.segment_memcap_drop`, [`Exception::ReassemblyMemcap`] |
//! | bytes per direction | `stream.reassembly.depth` | the rest is not tracked: `tcp.stream_depth_reached`, `reassembly_depth_reached` |
//! | SYNs, SYN/ACKs stored | `max-syn-queued`, `max-synack-queued` | `3whs_syn_flood`, `3whs_synack_flood` |
//! | urgent bytes per direction | `urgent.oob-limit` | `reassembly_urgent_oob_limit_reached`; inline, `oob-limit-policy` |
//! | connections after a reset that may go on | `margay.reset-memory` | the engine settles the oldest: `tcp.reset_settled` |
//! | resumable connections | `margay.resumable-connections` | the oldest entry of the set is evicted: `tcp.resumable_forgotten` |

mod buffer;
mod config;
mod counters;
mod engine;
mod event;
mod peer;
mod policy;
mod seq;
mod session;

pub use buffer::{Inserted, StreamBuffer};
pub use config::{StreamConfig, UrgentPolicy};
pub use counters::StreamCounters;
pub use engine::{Exception, FlowPrint, Outcome, StreamEngine};
pub use event::{StreamEvent, StreamEvents};
pub use policy::{HostOsPolicies, OsPolicy};
pub use session::{AppData, SideState, StreamChunk, TcpSession, TcpState};
