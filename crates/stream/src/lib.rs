//! TCP sessions and reassembly.
//!
//! # How it works
//!
//! [`StreamEngine::process`] takes a packet of a flow into the flow's [`TcpSession`]: the state machine checks whether the
//! packet belongs there (handshakes, windows, acknowledgments, timestamps, resets; `states.rs`, `established.rs`), notes
//! what is wrong as a [`StreamEvent`], takes its data into the direction's [`StreamBuffer`] and says in an [`Outcome`] what
//! the engine has to do next.
//!
//! A buffer is like a receiver's queues (`buffer/`). Data in order is appended to the one run there is: that is all most
//! packets need, and the one copy that is made of their bytes. What came early waits in a tree, however much it is. Where
//! early segments overlap with different data, the receiver's operating system decides which counts ([`OsPolicy`]); what is in
//! order or acknowledged stays. Inline, what came first stays and later packets are rewritten ([`TcpSession::rewrite`]).
//!
//! # What a host takes
//!
//! The engine must have what the host behind it has. Where every host discards a segment, so does the engine. Where some do,
//! or where it depends on what cannot be seen for certain (what is acknowledged but was not seen, an old acknowledgment, a
//! timestamp that may have been noted, a lower TTL than before, a window probe), its data is kept and gives way to that of
//! a segment without such a doubt (`doubt.rs`). Inline such a segment is dropped, where no host misses it.
//!
//! Only what was taken counts as seen. A session that is picked up in its middle begins where its receiver is, which is known
//! from the receiver's first acknowledgment: data from before what was seen first is read, too. Inline nothing passes that was
//! not looked at: what a receiver has, and what cannot be compared any more, goes on without its payload.
//!
//! A connection that was established and timed out is remembered, and goes on with its numbers when its next packet comes
//! (`resume.rs`), also where sessions are not picked up in their middle.
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
//! | SYNs, SYN/ACKs kept | `max-syn-queued`, `max-synack-queued` | `3whs_syn_flood`, `3whs_synack_flood` |
//! | urgent bytes a direction | `urgent.oob-limit` | `reassembly_urgent_oob_limit_reached`; inline, `oob-limit-policy` |
//! | connections that may go on | `margay.resumable-connections` | the oldest of its set is forgotten: `tcp.resumable_forgotten` |

mod buffer;
mod config;
mod counters;
mod data;
mod doubt;
mod engine;
mod established;
mod event;
mod handshake;
mod peer;
mod policy;
mod resume;
mod seq;
mod session;
mod states;

pub use buffer::{Inserted, StreamBuffer};
pub use config::{StreamConfig, UrgentPolicy};
pub use counters::StreamCounters;
pub use engine::{Exception, Outcome, StreamEngine};
pub use event::{StreamEvent, StreamEvents};
pub use policy::{HostOsPolicies, OsPolicy};
pub use resume::FlowPrint;
pub use session::{AppData, SideState, StreamChunk, TcpSession, TcpState};
